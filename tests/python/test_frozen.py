#!/usr/bin/env python3
"""Frozen parameters of a model: what describe (of a factory, of a script) and capture write of
them, and what ddpsim predicts with them. The law: what the model has is in `tensors` or `frozen`.

  test_frozen.py DDPSIM
"""
from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Tuple

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is missing (Debian: python3-torch)")
    sys.exit(77)
sys.dont_write_bytecode = True
TOOLS = Path(__file__).resolve().parents[2] / "tools/python"
sys.path.insert(0, str(TOOLS))
import ddpsim_capture as dc  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

DDPSIM = ""
MODEL = '''
import torch
from torch import nn

class Lora(nn.Module):
    def __init__(self, i, o, dtype):
        super().__init__()
        self.w = nn.Linear(i, o, dtype=dtype).requires_grad_(False)
        self.a, self.b = nn.Linear(i, 4, bias=False), nn.Linear(4, o, bias=False)
    def forward(self, x):
        return self.w(x.to(self.w.weight.dtype)).to(x.dtype) + self.b(self.a(x))

class Block(nn.Module):
    def __init__(self, h, dtype, trains):
        super().__init__()
        self.n = nn.LayerNorm(h).requires_grad_(False)
        self.up, self.down = Lora(h, 4 * h, dtype), Lora(4 * h, h, dtype)
        self.unused = nn.Linear(3, 5).requires_grad_(False)
        if not trains:
            self.requires_grad_(False)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.n(x))))

class Net(nn.Module):
    def __init__(self, dtype=torch.float32, h=64):
        super().__init__()
        self.e = nn.Embedding(100, h).requires_grad_(False)
        self.layers = nn.ModuleList(Block(h, dtype, i > 0) for i in range(3))
        self.head = nn.Linear(h, 100, bias=False)
        self.head.weight = self.e.weight
    def forward(self, ids):
        x = self.e(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).mean(1)
'''
FACTORY = MODEL + '''
def make():
    return Net(), (torch.zeros(2, 16, dtype=torch.long),)

def halves():
    return Net(torch.bfloat16, 256), (torch.zeros(2, 16, dtype=torch.long),)
'''
SCRIPT = MODEL + '''
import os, sys
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
dist.init_process_group("nccl")
model = Net()
model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True) \\
    if sys.argv[1] == "fsdp" else nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
for _ in range(4):
    loss = model(torch.zeros(2, 16, dtype=torch.long)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
'''


def net(text: str = FACTORY) -> Dict[str, Any]:
    names: Dict[str, Any] = {}
    exec(compile(text, "model", "exec"), names)
    return names


def described(*arguments: str) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "factory.py").write_text(FACTORY)
        (Path(folder) / "script.py").write_text(SCRIPT)
        out = Path(folder) / "out.json"
        done = subprocess.run(
            [sys.executable, str(TOOLS / "ddpsim_describe.py"), "--out", str(out), *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        document: Dict[str, Any] = json.loads(out.read_text())
        document["says"] = done.stdout
        return document


class Frozen(unittest.TestCase):
    def conserved(self, workload: Dict[str, Any], model: nn.Module) -> None:
        """All that the model has, each once, where it belongs."""
        for key, wanted in (("tensors", True), ("frozen", False)):
            has = [
                (n, list(p.shape), dc.DTYPES[p.dtype])
                for n, p in model.named_parameters()
                if p.requires_grad == wanted
            ]
            said = [(t["name"], t["shape"], t["dtype"]) for t in workload[key]]
            self.assertEqual(said, has)

    def read_by_layers(self, workload: Dict[str, Any], layers: List[Dict[str, Any]]) -> None:
        names = [t["name"] for t in workload["frozen"]]
        read = {names[i] for layer in layers for i in layer.get("frozen", [])}
        self.assertEqual(read, {n for n in names if ".unused." not in n})

    def test_of_a_factory(self) -> None:
        for factory in ("make", "halves"):
            w = described("--factory", f"factory.py:{factory}")
            model = net()[factory]()[0]
            self.conserved(w, model)
            self.read_by_layers(w, w["layers"])
            self.assertEqual(w["precision"], "bf16" if factory == "halves" else "fp32")
            held = sum(p.numel() for p in model.parameters() if not p.requires_grad)
            self.assertIn(f"and {held:,} frozen ones (", w["says"])

    def test_backward_of_frozen_layers(self) -> None:
        """None before the first trainable one, of the others the gradient of their input alone."""
        w = described("--factory", "factory.py:make")
        layers = {layer["name"]: layer for layer in w["layers"]}
        front = [n for n in layers if n == "e" or n.startswith("layers.0.")]
        self.assertGreater(len(front), 5)
        for name in front:
            self.assertEqual(layers[name]["backward"]["kernels"], 0, name)
            self.assertEqual(layers[name]["saves"], [0, 0, 0], name)
        product = layers["layers.1.down.w"]
        flops = [product[d]["flops_per_sample"] for d in ("forward", "backward")]
        self.assertEqual(flops[0], flops[1])
        self.assertEqual(product["forward"]["kernels"], 1)  # the bias is added by the product
        self.assertEqual(product["tensors"], [])
        self.assertEqual(product["saves"], [0, 0, 0])  # its weight is there anyway
        first = layers["layers.1.up.w"]  # its input needs no gradient
        self.assertEqual(first["backward"]["kernels"], 0)

    def test_of_a_script(self) -> None:
        for plan in ("ddp", "fsdp"):
            w = described("--script", "script.py", "--ranks", "8", "--", plan)
            self.conserved(w, net(MODEL)["Net"]())
            self.read_by_layers(w, w["layers"])
            self.assertEqual(w["source"]["plan"].get("use_orig_params", False), plan == "fsdp")

    def test_of_a_capture(self) -> None:
        torch.manual_seed(1)
        torch.set_num_threads(1)
        model = net(MODEL)["Net"]()
        w = dc.capture(model, torch.randint(100, (4, 16)), repeats=3, warmup=1, name="small")
        self.conserved(w, model)
        # What nothing calls is its parent's: layers are modules here.
        read = {i for layer in w["times"]["layers"] for i in layer.get("frozen", [])}
        self.assertEqual(read, set(range(len(w["frozen"]))))

    def test_without_any(self) -> None:
        w = dc.capture(nn.Linear(3, 4), torch.randn(2, 3), repeats=2, warmup=1, name="plain")
        self.assertNotIn("frozen", w)
        self.assertNotIn("frozen", w["times"]["layers"][0])

    def predicted(self, workload: Dict[str, Any], *flags: str) -> Tuple[int, Dict[str, Any], str]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "workload.json"
            path.write_text(json.dumps({k: v for k, v in workload.items() if k != "says"}))
            done = subprocess.run(
                [DDPSIM, "predict", "--workload", str(path), "--cluster", "hgx-h100", "--ranks",
                 "8", "--format", "json", *flags],
                capture_output=True,
                text=True,
            )  # fmt: skip
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def test_what_is_predicted(self) -> None:
        w = described("--factory", "factory.py:halves")
        size = sum(
            torch.Size(t["shape"]).numel() * dc.ELEMENT_SIZES[t["dtype"]] for t in w["frozen"]
        )
        code, answer, err = self.predicted(w, "--plan", "pytorch_ddp")
        self.assertEqual(code, 0, err)
        self.assertEqual(answer["summary"]["frozen"]["bytes"], size)
        trained = 4 * sum(torch.Size(t["shape"]).numel() for t in w["tensors"])
        held = answer["summary"]["memory"]["at_peak_bytes"]
        self.assertEqual(held["parameters"], trained + size)
        self.assertLessEqual(held["gradients"], trained)  # at the peak: some have yet to come
        code, _, err = self.predicted(w, "--plan", "fsdp")
        self.assertEqual(code, 2)
        self.assertIn("uniform dtype", err)
        for plan in ("zero3", "zero2"):
            code, answer, err = self.predicted(w, "--plan", plan)
            self.assertEqual(code, 0, err)
        code, answer, err = self.predicted(w, "--plan", "fsdp2", "--set", "pytorch=2.12")
        self.assertEqual(code, 0, err)
        held = answer["summary"]["memory"]["at_peak_bytes"]
        self.assertLess(abs(8 * held["parameters"] - trained - size), 128 * 1024)  # padded rows


if __name__ == "__main__":
    DDPSIM = sys.argv.pop(1)
    unittest.main()
