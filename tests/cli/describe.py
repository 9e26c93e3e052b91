#!/usr/bin/env python3
"""ddpsim describe as a user meets it: answers, refusals, streams.

  describe.py DDPSIM [unittest's arguments]
"""
import json
import os
import pty
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DDPSIM = ""
FACTORIES = """
import torch
from torch import nn
def make():
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    print("said by the factory")
    return model, torch.randn(32, 784), None, torch.optim.Adam(model.parameters())
def language(): return Embeds(), {"ids": torch.randint(100, (4, 16)), "labels": torch.ones(4, 1)}
class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(100, 32), nn.Linear(32, 1)
    def forward(self, ids, labels):
        return {"loss": ((self.head(self.table(ids).mean(1)) - labels) ** 2).mean()}
class Odd(torch.optim.Optimizer):
    def __init__(self, p): super().__init__(p, {})
def odd():
    model = nn.Linear(3, 4)
    return model, torch.randn(2, 3), None, Odd(model.parameters())
def three(): return 3
def reads(): return nn.Linear(3, 4), torch.randn(2, 3), lambda y: y.sum() * y.sum().item()
def width(): return nn.Linear(3, 4), torch.randn(2, 5)
def raises(): raise ValueError("no such data")
def missing_module(): import no_such_module_at_all
def ends(): sys.exit(3)
def killed():
    import os
    os.kill(os.getpid(), 9)
import sys
value = 5
"""


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "train.py").write_text(FACTORIES)

    def ask(self, *args, **more):
        return subprocess.run(
            [DDPSIM, *map(str, args)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=250,
            check=False,
            **more,
        )

    def answer(self, *args):
        done = self.ask(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, *args, says=()):
        """One line on stderr, beside what the script itself says; nothing on stdout."""
        done = self.ask(*args)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        own = [line for line in done.stderr.splitlines() if line.startswith("ddpsim: ")]
        self.assertEqual(len(own), 1, done.stderr)
        for words in says:
            self.assertIn(words, own[0])
        return done.stderr


class Factory(Case):
    def test_to_a_file_and_predicted(self):
        done = self.answer("describe", "--factory", "train:make", "-o", "mine.json")
        self.assertEqual(done.stdout, "")
        self.assertIn("mine.json: 407,050 parameters, 4 layers, batch 32", done.stderr)
        self.assertIn("next: ddpsim predict --workload mine.json", done.stderr)
        workload = json.loads((self.folder / "mine.json").read_text())
        self.assertEqual(workload["name"], "mine")
        self.assertEqual(workload["source"]["recipe"]["factory"], "train:make")
        self.assertTrue(workload["source"]["command"].startswith("ddpsim describe --factory"))
        said = self.answer("predict", "--workload", "mine.json", "--cluster", "hgx-h100")
        self.assertIn("mine, batch 32 per rank", said.stdout)

    def test_to_stdout(self):
        done = self.answer("describe", "--factory", "train.py:make", "--precision", "bf16")
        workload = json.loads(done.stdout)
        self.assertEqual(workload["name"], "train")
        self.assertEqual(workload["precision"], "bf16")
        self.assertIn("said by the factory", done.stderr)

    def test_a_mapping_of_inputs(self):
        done = self.answer("describe", "--factory", "train:language", "--name", "tiny")
        workload = json.loads(done.stdout)
        self.assertEqual((workload["name"], workload["batch"]), ("tiny", 4))

    def test_what_stands_for_an_optimizer(self):
        done = self.answer("describe", "--factory", "train:odd", "--optimizer-name", "adamw")
        self.assertEqual(json.loads(done.stdout)["optimizer"]["name"], "adamw")

    def test_on_a_terminal(self):
        parent, child = pty.openpty()
        done = subprocess.run(
            [DDPSIM, "describe", "--factory", "train:make", "-o", "t.json"],
            stdin=child, stdout=child, stderr=child, cwd=self.folder, timeout=250, check=False,
        )  # fmt: skip
        os.close(child)
        text = os.read(parent, 65536).decode()
        os.close(parent)
        self.assertEqual(done.returncode, 0, text)
        self.assertIn("407,050 parameters", text)


class Refused(Case):
    def test_factories(self):
        for function, words in {
            "three": ["returned int", "must return (model, inputs, loss_fn, optimizer)"],
            "odd": ["--optimizer-name"],
            "reads": ["reads values of a tensor", "capture it"],
            "width": ["step failed"],
            "raises": ["ValueError: no such data (train.py, line"],
            "missing_module": ["no_such_module_at_all", "install it for", "--python"],
            "ends": ["if __name__ == '__main__'"],
            "killed": ["out of memory"],
            "value": ["is no function"],
            "mak": ["did you mean 'make'?"],
        }.items():
            with self.subTest(function):
                self.refused("describe", "--factory", f"train:{function}", "-o", "x", says=words)
                self.assertFalse((self.folder / "x").exists())

    def test_names(self):
        for flags, words in [
            (["--factory", "trane:make"], ["No module named 'trane'", "run it where"]),
            (["--factory", "trane.py:make"], ["there is no file 'trane.py'"]),
            (["--factory", "train"], ["FILE.py:FUNCTION"]),
            ([], ["no model given", "--factory"]),
            (["--factory", "train:make", "--model", "resnet18"], ["give one of them"]),
            (["--factory", "train:make", "--batch", "0"], ["--batch 0", "at least 1"]),
            (["--factory", "train:make", "--image", "9"], ["is of --model"]),
            (["--factory", "train:make", "--precision", "int8"], ["int8 not in"]),
            (["--factory", "train:make", "--python", "no-python"], ["cannot be started"]),
            (["--factory", "train:make", "--python", "false"], ["has no PyTorch", "install it"]),
            (["--factory", "train.py:make", "-o", "train.py"], ["name another"]),
            (["--factory", "train:make", "-o", "no/where.json"], ["there is no folder"]),
            (["--factory", "train:make", "--ot", "x"], ["did you mean --out?"]),
        ]:
            with self.subTest(" ".join(flags)):
                self.refused("describe", *flags, says=words)
        self.assertEqual((self.folder / "train.py").read_text(), FACTORIES)


def main(argv):
    global DDPSIM
    DDPSIM = str(Path(argv[1]).resolve())
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [DDPSIM, "describe", "--factory", "no:where"], capture_output=True, text=True, cwd=empty
        )
    if "neither python3 nor" in done.stderr:
        print("skipped: PyTorch is missing (Debian: python3-torch)")
        sys.exit(77)
    unittest.main(argv=argv[:1] + argv[2:])


if __name__ == "__main__":
    main(sys.argv)
