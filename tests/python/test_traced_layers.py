#!/usr/bin/env python3
"""Layers of a trace beside the modules that really ran: a real training is recorded by PyTorch's
own profiler, with a mark where each module begins, written in the form of Kineto's export (which
Debian's PyTorch lacks), and imported.

  test_traced_layers.py DDPSIM
"""
import bisect
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is missing (Debian: python3-torch)")
    sys.exit(77)
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/python"))
import example_models  # noqa: E402
import torch  # noqa: E402
from torch.autograd import profiler  # noqa: E402

DDPSIM = ""
STEPS = 6


def marks(model):
    """A record that begins and ends at once where a module with parameters of its own begins."""
    for name, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)):

            def hook(_module, _inputs, name=name):
                with profiler.record_function(f"module {name}"):
                    pass

            module.register_forward_pre_hook(hook)


def record(name):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model, inputs, _, _ = getattr(example_models, name)()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    marks(model)
    with profiler.profile(record_shapes=True) as recorded:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            model(*inputs).float().mean().backward()
            optimizer.step()
    return model, recorded.function_events


def as_kineto(events):
    out = []
    for e in events:
        args = {}
        if e.sequence_nr >= 0:
            args["Sequence number"] = e.sequence_nr
        if e.name == "torch::autograd::AccumulateGrad" and e.input_shapes:
            args.update({"Input Dims": e.input_shapes, "Input type": ["float"]})
        mark = e.name.startswith(("Optimizer.", "module "))
        out.append({
            "ph": "X", "cat": "user_annotation" if mark else "cpu_op", "name": e.name, "pid": 1,
            "tid": e.thread, "ts": e.time_range.start, "dur": e.time_range.elapsed_us(),
            "args": args})  # fmt: skip
    return {"schemaVersion": 1, "traceEvents": out}


def described(model, folder):
    """The parameters of the model, as a workload that says no more."""
    named = list(model.named_parameters())
    path = folder / "model.json"
    path.write_text(json.dumps({
        "schema": "ddpsim.workload/1", "name": "m", "model": "m", "basis": "captured", "batch": 1,
        "precision": "fp32", "device": {"kind": "cpu", "name": "a CPU"}, "optimizer": {
            "name": "sgd", "momentum": False, "weight_decay": False},
        "tensors": [{"name": n, "shape": list(p.shape), "dtype": "float32"} for n, p in named],
        "buffers": [], "arrival": list(range(len(named)))[::-1],
        "times": {"forward_ps": 1, "backward_ps": 1, "optimizer_ps": 1,
                  "ready_ps": [1] * len(named)}}))  # fmt: skip
    return path


class Layers(unittest.TestCase):
    def layers(self, name):
        model, events = record(name)
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            trace, out = folder / "trace.json", folder / "out.json"
            trace.write_text(json.dumps(as_kineto(events)))
            done = subprocess.run(
                [DDPSIM, "import", "kineto", trace, "--model", described(model, folder),
                 "--workload", out, "--format", "json"],
                capture_output=True, text=True)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            return model, events, json.loads(out.read_text())

    def check(self, name):
        model, events, workload = self.layers(name)
        layers = workload["times"]["layers"]
        marks_of = [e for e in events if e.name.startswith("module ")]
        thread = marks_of[0].thread
        starts = sorted(
            e.time_range.start
            for e in events
            if e.thread == thread and e.name.startswith("aten::")
        )
        # Not the mark's own time: the machine may do something else between it and the module.
        begins = sorted(
            (starts[bisect.bisect(starts, e.time_range.start)], e.name.removeprefix("module "))
            for e in marks_of
        )
        count = len(begins) // STEPS
        order = [n for _, n in begins[:count]]
        called = [x for x in layers if x["name"] in order]
        self.assertEqual([x["name"] for x in called], order)
        tensors = [t["name"] for t in workload["tensors"]]
        for layer in layers:
            module = model.get_submodule(layer["name"])
            mine = [n for n, _ in module.named_parameters(recurse=False)]
            self.assertEqual(
                sorted(tensors[t] for t in layer["tensors"]),
                sorted(f"{layer['name']}.{n}" for n in mine),
            )
        # Of the iterations, one is the workload's: the nearest by all layers together.
        # What somebody else uses of a module that is not called belongs to the one before.
        taken = []
        for layer in layers:
            if layer["name"] in order:
                taken.append(0)
            taken[-1] += layer["forward_ps"] / 1e6
        taken.pop()
        apart = []
        for step in range(STEPS):
            at = [t for t, _ in begins[step * count : (step + 1) * count]]
            real = [b - a for a, b in zip(at, at[1:])]
            apart.append([abs(x - y) for x, y in zip(taken, real)])
        nearest = min(apart, key=sum)
        middle = statistics.median(nearest)
        near = sum(x < 250 for x in nearest) / len(nearest)
        share = sum(nearest) / sum(taken)
        print(f"{name}: {len(layers)} layers, apart {middle:.0f} us (median), {share:.2%} in all")
        self.assertLess(middle, 150)
        self.assertGreater(near, 0.6)

    def test_a_cnn(self):
        self.check("cnn")

    def test_a_transformer(self):
        self.check("gpt")


if __name__ == "__main__":
    DDPSIM = sys.argv.pop(1)
    unittest.main()
