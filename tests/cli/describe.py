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

import warm_python

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


TRAINS = """
import argparse, os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
def make():
    return Net(512), torch.randn(32, 784), None, torch.optim.AdamW(Net(512).parameters())
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.norm = nn.Linear(784, width), nn.BatchNorm1d(width)
        self.b, self.scale = nn.Linear(width, 10), nn.Parameter(torch.ones(1))
    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x)))) * self.scale
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    model = DDP(Net(args.width).cuda(), device_ids=[local], bucket_cap_mb=50, static_graph=True)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    data = TensorDataset(torch.randn(20000, 784), torch.randint(10, (20000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=4, pin_memory=True)
    scaler = torch.cuda.amp.GradScaler()
    print("world", dist.get_world_size(), len(sampler))
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.to("cuda")
        with torch.cuda.amp.autocast():
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        print(f"loss {loss.item():.3f}")
        torch.save(model.state_dict(), "saved.pt")
if __name__ == "__main__":
    main()
"""
ACCUMULATES = """
import contextlib
import torch
from torch import nn
import torch.distributed as dist
dist.init_process_group("nccl")
model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)).to("cuda", torch.bfloat16)
model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=10)
optimizer = torch.optim.Adam(model.parameters())
while True:
    for micro in range(4):
        with model.no_sync() if micro < 3 else contextlib.nullcontext():
            loss = model(torch.randn(12, 64).cuda().bfloat16()).float().mean() / 4
            loss.backward()
    if not torch.isfinite(loss):
        raise SystemExit("diverged")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""
ALONE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(torch.randn(100, 1, 8, 8), torch.randint(10, (100,)))
for epoch in range(3):
    model.train()
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(data, 64))
"""
SPAWNS = """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
def work(gpu, width):
    dist.init_process_group("nccl", rank=gpu, world_size=4)
    model = nn.parallel.DistributedDataParallel(nn.Linear(width, 4).cuda(gpu), [gpu])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    for _ in range(9):
        model(torch.randn(6, width, device="cuda")).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    mp.spawn(work, args=(16,), nprocs=torch.cuda.device_count())
"""
PARALLEL = """
import torch
from torch import nn
model = nn.DataParallel(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 10)))
model = model.to("cuda", memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    y = torch.randint(10, (6,)).cuda()
    nn.functional.cross_entropy(model(torch.randn(6, 3, 8, 8).cuda()), y).backward()
    optimizer.step()
"""
AVERAGES = """
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, batch_first=True), 2).to(0)
for p in model.parameters():
    dist.broadcast(p.data, 0)
optimizer = torch.optim.AdamW(model.parameters())
event, stream = torch.cuda.Event(enable_timing=True), torch.cuda.Stream()
for _ in range(4):
    with torch.cuda.stream(stream):
        x = torch.randn(4, 10, 32).to(0, non_blocking=True)
    torch.cuda.current_stream().wait_stream(stream)
    event.record()
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
    torch.cuda.synchronize()
    print(event.elapsed_time(event), loss.item())
"""
STEP = """
import torch
from torch import nn
def steps(model, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(9):
        model(x).sum().backward()
        optimizer.step()
"""
BAD_SCRIPTS = {
    "open('no/data.bin')": ["FileNotFoundError", "(bad.py, line", "by itself"],
    "raise SystemExit('give --data')": ["'give --data'", "--factory"],
    "pass": ["without a step of an optimizer"],
    "import no_such_module": ["install it for", "--python"],
    "x = (": ["SyntaxError"],
    "from torch.distributed.fsdp import FlatParameter; FlatParameter()": [
        "FlatParameter of FSDP", "--factory", "list plans"
    ],
    "class M(nn.Linear):\n    def forward(s, x): return x * s.weight.sum().item()\n"
    "steps(M(3, 3), torch.randn(2, 3))": ["reads values", "(bad.py, line"],
    "a, b = nn.Linear(3, 3), nn.Linear(3, 3)\no = torch.optim.SGD([*a.parameters(),"
    " *b.parameters()], lr=1)\nb(a(torch.randn(2, 3))).sum().backward()": ["one model", "factory"],
    "m = nn.Linear(3, 3)\nwhile True: m(torch.randn(2, 3)).sum().backward()": [
        "steps no optimizer"
    ],
    "try:\n    nn.parallel.DistributedDataParallel(nn.Linear(3, 3)).register_comm_hook(None, print)"
    "\nexcept Exception: pass": ["hook print", "fp16_compress_hook"],
    "class O(torch.optim.Optimizer):\n    def __init__(s, p): super().__init__(p, {})\n"
    "m = nn.Linear(3, 3); o = O(m.parameters()); m(torch.randn(2, 3)).sum().backward(); o.step()": [
        "--optimizer-name"
    ],
}  # fmt: skip


class Script(Case):
    def described(self, text, *flags):
        (self.folder / "script.py").write_text(text)
        return json.loads(self.answer("describe", "--script", "script.py", *flags).stdout)

    def test_ddp_with_everything(self):
        (self.folder / "script.py").write_text(TRAINS)
        done = self.answer(
            "describe", "--script", "script.py", "--ranks", "64", "-o", "mine.json",
            "--", "--width", "512",
        )  # fmt: skip
        self.assertIn("world 64 313", done.stderr)
        self.assertIn("--set bucket_cap_mb=50 --set comm_hook=fp16_compress", done.stderr)
        self.assertFalse((self.folder / "saved.pt").exists())
        mine = json.loads((self.folder / "mine.json").read_text())
        self.assertEqual(mine["source"]["batches"], [32, 64, 96])
        self.assertEqual(mine["source"]["recipe"]["arguments"], ["--width", "512"])
        plan = {"bucket_cap_mb": 50, "static_graph": True, "comm_hook": "fp16_compress"}
        self.assertEqual(mine["source"]["plan"], plan)
        loop = {"grad_scaler": True, "clip_grad_norm": True, "loss_item": True}
        self.assertEqual(mine["loop"], loop)
        made = self.answer("describe", "--factory", "script.py:make", "--precision", "fp16")
        theirs = json.loads(made.stdout)
        for key in ("batch", "precision", "optimizer", "tensors", "buffers", "arrival", "model"):
            self.assertEqual(mine[key], theirs[key], key)
        for a, b in zip(mine["layers"], theirs["layers"]):
            self.assertEqual({**a, "name": ""}, {**b, "name": ""}, a["name"])
        self.assertEqual(len(mine["layers"]), len(theirs["layers"]))

    def test_accumulation_and_no_loader(self):
        mine = self.described(ACCUMULATES)
        plan = {"bucket_cap_mb": 10, "accumulation_steps": 4}
        self.assertEqual(mine["source"]["plan"], plan)
        self.assertEqual((mine["precision"], mine["casting"]), ("bf16", "pure"))
        self.assertEqual((mine["batch"], mine["source"]["batches"]), (12, [12, 24, 36]))

    def test_one_process_on_the_cpu(self):
        mine = self.described(ALONE)
        self.assertEqual((mine["batch"], mine["source"]["batches"]), (64, [64, 128, 192]))
        self.assertIn("no DistributedDataParallel", mine["source"]["notes"][0])

    def test_data_parallel(self):
        mine = self.described(PARALLEL)
        self.assertEqual(mine["tensors"][0]["name"], "0.weight")
        self.assertEqual((mine["memory_format"], mine["batch"]), ("channels_last", 6))
        notes = " ".join(mine["source"]["notes"])  # the labels keep their number
        self.assertIn("DataParallel is left out", notes)
        self.assertIn("described at batch 6 alone", notes)

    def test_gradients_averaged_by_hand(self):
        mine = self.described(AVERAGES)
        self.assertIn("--plan averaging", mine["source"]["notes"][0])
        self.assertEqual(mine["source"]["batches"], [4, 8, 12])

    def test_spawned_with_a_sharded_optimizer(self):
        mine = self.described(SPAWNS)
        plan = {"system": "zero_redundancy", "parameters_as_bucket_view": False}
        self.assertEqual(mine["source"]["plan"], plan)
        self.assertEqual((mine["batch"], mine["optimizer"]["name"]), (6, "adam"))

    def test_compiled(self):
        wrap = "nn.parallel.DistributedDataParallel(model, bucket_cap_mb=10)"
        for how, model in {
            "buckets": f"torch.compile({wrap})",
            "whole": wrap.replace("(model", "(torch.compile(model)"),
            "regional": f"{wrap}\ntorch.compile(model.module[0])",
        }.items():
            with self.subTest(how):
                mine = self.described(ACCUMULATES.replace(wrap, model))
                self.assertEqual(mine["compile"], how)
        self.assertNotIn("compile", self.described(ACCUMULATES))

    def test_refused(self):
        for text, words in BAD_SCRIPTS.items():
            with self.subTest(text):
                (self.folder / "bad.py").write_text(STEP + text + "\n")
                self.refused("describe", "--script", "bad.py", "-o", "x", says=words)
        self.refused("describe", "--script", "no.py", says=["there is no such file"])
        self.refused("describe", "--script", "train.py", "-o", "train.py", says=["name another"])
        self.refused(
            "describe", "--script", "train.py", "--optimizer", "sgd", says=["--optimizer-name"]
        )
        self.refused(
            "describe", "--factory", "train:make", "--ranks", "4", says=["is of --script"]
        )


class Predict(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "script.py").write_text(TRAINS)

    def predicted(self, *flags):
        done = self.answer("predict", "--script", "script.py", *flags)
        return json.loads(done.stdout), done.stderr

    def test_as_described_by_hand(self):
        short, said = self.predicted("--cluster", "dgx-h100", "--ranks", "64", "--format", "json")
        self.assertIn("has 8 devices; taken with --set cluster.hosts=8", said)
        self.assertIn("bucket_cap_mb=50, comm_hook=fp16_compress, static_graph=true", said)
        self.answer("describe", "--script", "script.py", "--ranks", "64", "-o", "script.json")
        knobs = "bucket_cap_mb=50 comm_hook=fp16_compress static_graph=true"
        sets = ["cluster.hosts=8", *knobs.split()]
        flags = [word for s in sets for word in ("--set", s)]
        long = json.loads(
            self.answer(
                "predict", "--workload", "script.json", "--cluster", "dgx-h100", "--ranks", "64",
                "--format", "json", *flags,
            ).stdout
        )  # fmt: skip
        self.assertEqual(short["summary"], long["summary"])

    def test_what_is_asked_for_wins(self):
        done = self.answer(
            "predict", "--script", "script.py", "--cluster", "hgx-h100",
            "--set", "bucket_cap_mb=5", "--", "--width", "1024",
        )  # fmt: skip
        self.assertIn("bucket_cap_mb=5, fp16_compress, static_graph", done.stdout)
        self.assertIn("world 8", done.stderr)
        self.assertIn("816,139 parameters", done.stderr)
        done = self.answer(
            "predict", "--script", "script.py", "--cluster", "hgx-h100", "--plan", "fsdp2"
        )
        self.assertIn("left out, since another plan is named", done.stderr)

    def test_refused(self):
        script = ["predict", "--script", "script.py"]
        for flags, words in [
            ([*script], ["no cluster given"]),
            ([*script, "--workload", "resnet50"], ["names a workload, and so does --script"]),
            ([*script, "--cluster", "hgx"], ["--cluster hgx"]),
            ([*script, "--cluster", "hgx-h100", "--ranks", "0"], ["at least one rank"]),
            (["predict", "script.py"], ["predict --script", "ddpsim describe"]),
            (["predict", "--workload", "script.py"], ["ddpsim describe --script"]),
            (["predict", "--python", "x"], ["is of --script"]),
        ]:
            with self.subTest(" ".join(flags)):
                self.refused(*flags, says=words)


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
    with warm_python.folder() as warm:
        if warm:
            os.environ["PATH"] = f"{warm}:{os.environ['PATH']}"
        unittest.main(argv=argv[:1] + argv[2:])


if __name__ == "__main__":
    main(sys.argv)
