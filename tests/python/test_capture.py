"""Tests of tools/python/ddpsim_capture.py. Run: /usr/bin/python3 -m unittest
tests/python/test_capture.py"""
from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Tuple
from unittest import mock

TOOL = Path(__file__).resolve().parents[2] / "tools" / "python" / "ddpsim_capture.py"
sys.path.insert(0, str(TOOL.parent))

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    raise unittest.SkipTest("PyTorch is missing; run with /usr/bin/python3") from None

import ddpsim_capture as dc  # noqa: E402


def setUpModule() -> None:
    quiet = mock.patch.object(
        dc, "QUIET_CORES", 1e9
    )  # the load of this machine must not matter to the tests
    quiet.start()
    unittest.addModuleCleanup(quiet.stop)


class SmallCnn(nn.Module):
    """Has a tied, an unused and a frozen parameter, in-place activations, and a parameter owned by
    an inner module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.frozen = nn.Conv2d(8, 8, 1)
        for p in self.frozen.parameters():
            p.requires_grad_(False)
        self.unused = nn.Linear(4, 4)
        self.a = nn.Linear(8, 8, bias=False)
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = self.a.weight
        self.scale = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.frozen(self.relu(self.bn(self.conv(x)))).mean((2, 3))
        return self.head(self.tied(self.relu(self.a(x))) * self.scale)


def check_workload(test: unittest.TestCase, w: Dict[str, Any]) -> None:
    """The rules of docs/formats.md for a captured workload."""
    frozen = w.get("frozen", [])
    test.assertEqual(
        set(w) - {"frozen"},
        {
            "schema",
            "name",
            "model",
            "basis",
            "batch",
            "precision",
            "device",
            "source",
            "optimizer",
            "tensors",
            "buffers",
            "arrival",
            "times",
        },
    )
    test.assertEqual((w["schema"], w["basis"]), ("ddpsim.workload/1", "captured"))
    test.assertIn(w["precision"], ("fp32", "tf32", "bf16", "fp16"))
    test.assertEqual(set(w["device"]), {"kind", "name"})
    gpu = w["device"]["kind"] == "gpu"
    test.assertIn(w["device"]["kind"], ("cpu", "gpu"))
    test.assertEqual(set(w["optimizer"]), {"name", "momentum", "weight_decay", "foreach", "fused"})
    test.assertIn(w["optimizer"].pop("name"), ("sgd", "adam", "adamw"))
    test.assertTrue(all(isinstance(v, bool) for v in w["optimizer"].values()))
    for t in w["tensors"] + frozen + w["buffers"]:
        test.assertEqual(set(t), {"name", "shape", "dtype"})
        test.assertTrue(all(type(n) is int for n in t["shape"]))
        test.assertIn(
            t["dtype"],
            ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"),
        )
    parameters = w["tensors"] + frozen
    test.assertEqual(len({t["name"] for t in parameters}), len(parameters))
    test.assertEqual(len(set(w["arrival"])), len(w["arrival"]))
    test.assertTrue(set(w["arrival"]) <= set(range(len(w["tensors"]))))
    t = w["times"]
    keys = {"forward_ps", "backward_ps", "optimizer_ps", "ready_ps"}
    host = {"host_" + k for k in keys} if gpu else set()
    test.assertTrue(keys | host <= set(t))
    test.assertTrue(
        set(t)
        <= keys | host | {"core_ps", "layers", "modules", "raw", "instrumented_excess", "notes"}
    )
    for prefix in ("", "host_") if gpu else ("",):
        ready = t[prefix + "ready_ps"]
        test.assertEqual(len(ready), len(w["arrival"]))
        test.assertEqual(ready, sorted(ready))
        test.assertGreaterEqual(ready[0], 0)
        test.assertLessEqual(ready[-1], t[prefix + "backward_ps"])
        for k in ("forward_ps", "backward_ps", "optimizer_ps"):
            test.assertIs(type(t[prefix + k]), int)
            test.assertGreater(t[prefix + k], 0)
        test.assertTrue(all(type(r) is int for r in ready))
    for phase in ("forward_ps", "backward_ps") if "modules" in t else ():
        test.assertEqual(sum(m[phase] for m in t["modules"]), t[phase])
        test.assertTrue(all(type(m[phase]) is int and m[phase] >= 0 for m in t["modules"]))
    if "layers" in t:
        test.assertLessEqual(sum(x["forward_ps"] for x in t["layers"]), t["forward_ps"])
        test.assertEqual(
            {i for x in t["layers"] for i in x["tensors"]}, set(range(len(w["tensors"])))
        )
        test.assertTrue(t["raw"].pop("forward_by_layer"))
    test.assertEqual(
        set(t["raw"]), {"forward", "backward", "optimizer", "step_plain", "step_instrumented"}
    )
    test.assertEqual(len({len(v) for v in t["raw"].values()}), 1)
    test.assertTrue(all(type(x) is int for v in t["raw"].values() for x in v))
    for f, b, o, s in zip(
        *(t["raw"][k] for k in ("forward", "backward", "optimizer", "step_plain"))
    ):
        test.assertEqual(f + b + o, s)
    for k in ("forward", "backward", "optimizer"):
        test.assertTrue(min(t["raw"][k]) <= t[k + "_ps"] <= max(t["raw"][k]))


def script(*args: str) -> Tuple[int, str]:
    """Exit code and stderr of main()."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = dc.main(args)
    return code, err.getvalue()


class CaptureTest(unittest.TestCase):
    w: Dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        torch.manual_seed(0)
        x = torch.randn(4, 3, 12, 12)
        cls.w = dc.capture(SmallCnn(), (x,), name="small", model_name="cnn", repeats=5, warmup=1)

    def arrival(self) -> List[str]:
        return [self.w["tensors"][i]["name"] for i in self.w["arrival"]]

    def test_format(self) -> None:
        check_workload(self, json.loads(json.dumps(self.w)))
        self.assertEqual((self.w["name"], self.w["model"], self.w["batch"]), ("small", "cnn", 4))
        self.assertEqual(self.w["device"]["kind"], "cpu")

    def test_parameters(self) -> None:
        names = [t["name"] for t in self.w["tensors"]]
        self.assertEqual(
            names,
            [
                "scale",
                "conv.weight",
                "conv.bias",
                "bn.weight",
                "bn.bias",
                "unused.weight",
                "unused.bias",
                "a.weight",
                "head.weight",
                "head.bias",
            ],
        )
        self.assertEqual(
            [(b["name"], b["shape"], b["dtype"]) for b in self.w["buffers"]],
            [
                ("bn.running_mean", [8], "float32"),
                ("bn.running_var", [8], "float32"),
                ("bn.num_batches_tracked", [], "int64"),
            ],
        )

    def test_arrival(self) -> None:
        """Linear: bias first; conv, norm: weight first; the tied one after its last use; unused
        ones absent."""
        self.assertEqual(
            self.arrival(),
            [
                "head.bias",
                "head.weight",
                "scale",
                "a.weight",
                "bn.weight",
                "bn.bias",
                "conv.weight",
                "conv.bias",
            ],
        )
        self.assertIn(
            "no gradient arrived for: unused.weight, unused.bias", self.w["times"]["notes"]
        )

    def test_modules(self) -> None:
        modules = {m["name"]: m for m in self.w["times"]["modules"]}
        for name in ("conv", "bn", "relu", "frozen", "a", "tied", "head", "(model)", "(other)"):
            self.assertIn(name, modules)
        self.assertNotIn("unused", modules)
        for name in ("conv", "bn", "relu", "frozen", "head"):
            self.assertGreater(modules[name]["forward_ps"], 0)
            self.assertGreater(modules[name]["backward_ps"], 0)

    def test_no_hooks_left_and_gc_restored(self) -> None:
        model = nn.Linear(3, 2)
        dc.capture(model, torch.randn(2, 3), repeats=2, warmup=0)
        self.assertFalse(model._forward_hooks or model._forward_pre_hooks)
        self.assertTrue(gc.isenabled())
        with mock.patch.object(dc.HostClock, "mark", side_effect=AssertionError("a hook was left")):
            model(torch.randn(2, 3)).sum().backward()

    def test_accumulation_is_marked(self) -> None:
        """In the hook the gradient is there, and is whole."""
        p = nn.Parameter(torch.ones(2))
        step = dc.Step(
            nn.Identity(), (), None, None, torch.optim.SGD([p], lr=0.1), "fp32", p.device, [p]
        )
        found: List[Any] = []

        def mark() -> int:
            found.append(p.grad.tolist())
            return 0

        with mock.patch.object(step.clock, "mark", side_effect=mark):
            handles = step.install([])
            (p * 2 + p.exp() * 0).sum().backward()
        for h in handles:
            h.remove()
        self.assertEqual(found, [[2.0, 2.0]])

    def test_varying_order(self) -> None:
        class Odd(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b, self.calls = (
                    nn.Parameter(torch.ones(3, 3)),
                    nn.Parameter(torch.ones(3, 3)),
                    0,
                )

            def forward(self, x: Tensor) -> Tensor:
                self.calls += 1
                p, q = (self.a, self.b) if self.calls % 6 else (self.b, self.a)
                return x @ p @ q

        w = dc.capture(Odd(), torch.randn(2, 3), repeats=6, warmup=0)
        self.assertEqual(w["arrival"], [1, 0])
        self.assertTrue(any("2 orders in 6" in n for n in w["times"]["notes"]))
        check_workload(self, w)

    def test_losses_and_targets(self) -> None:
        model, x = nn.Linear(3, 2), torch.randn(4, 3)
        for kw in (
            {"loss_fn": lambda out: out.pow(2).mean()},
            {"targets": torch.zeros(4, dtype=torch.long)},
            {"loss_fn": nn.MSELoss(), "targets": torch.zeros(4, 2)},
        ):
            check_workload(self, dc.capture(model, (x,), repeats=1, warmup=0, **kw))
        with self.assertRaisesRegex(dc.CaptureError, "loss_fn must be given"):
            dc.capture(nn.Sequential(model, nn.Flatten(0)), x, repeats=1, warmup=0)
        with self.assertRaisesRegex(dc.CaptureError, "one element"):
            dc.capture(model, x, lambda out: out, repeats=1, warmup=0)

    def test_optimizers(self) -> None:
        p = [nn.Parameter(torch.ones(1))]
        cpu = torch.device("cpu")

        class Mine(torch.optim.Optimizer):
            def __init__(self) -> None:
                super().__init__(p, {})

        def names(optimizer: torch.optim.Optimizer, name: Any = None) -> List[str]:
            section = dc.describe_optimizer(optimizer, name, cpu)
            return [section.pop("name")] + [k for k, v in section.items() if v]

        self.assertEqual(names(torch.optim.SGD(p, lr=1.0)), ["sgd"])
        self.assertEqual(
            names(torch.optim.SGD(p, lr=1.0, momentum=0.9, weight_decay=1e-4, foreach=True)),
            ["sgd", "momentum", "weight_decay", "foreach"],
        )
        self.assertEqual(names(torch.optim.Adam(p)), ["adam"])
        self.assertEqual(names(torch.optim.AdamW(p)), ["adamw", "weight_decay"])
        self.assertEqual(names(Mine(), "adam"), ["adam"])
        with self.assertRaisesRegex(dc.CaptureError, "Mine"):
            names(Mine())
        with self.assertRaisesRegex(dc.CaptureError, "rmsprop"):
            names(Mine(), "rmsprop")

    def test_bad_arguments(self) -> None:
        x = torch.randn(2, 3)
        for kw in (
            {"batch": 0},
            {"batch": True},
            {"repeats": 0},
            {"warmup": -1},
            {"precision": "fp8"},
        ):
            with self.assertRaises(dc.CaptureError, msg=str(kw)):
                dc.capture(nn.Linear(3, 2), x, **kw)  # type: ignore[arg-type]
        with self.assertRaisesRegex(dc.CaptureError, "no parameter that requires"):
            dc.capture(nn.ReLU(), x)

    def test_bf16_model(self) -> None:
        w = dc.capture(
            nn.Linear(3, 2).bfloat16(), torch.randn(2, 3).bfloat16(), repeats=1, warmup=0
        )
        self.assertEqual((w["precision"], w["tensors"][0]["dtype"]), ("bf16", "bfloat16"))
        w = dc.capture(nn.Linear(3, 2), torch.randn(2, 3), repeats=1, warmup=0, precision="bf16")
        self.assertEqual((w["precision"], w["tensors"][0]["dtype"]), ("bf16", "float32"))


class ScalingTest(unittest.TestCase):
    def test_ready_offsets(self) -> None:
        self.assertEqual(
            dc.ready_offsets([[10, 50], [20, 100], [30, 90]], [100, 200, 100], 1000), [100, 500]
        )
        self.assertEqual(dc.ready_offsets([[50, 40, 101]], [100], 1000), [500, 500, 1000])

    def test_quietest_pairs_are_kept(self) -> None:
        """Blocks of one pair: other processes use 1 core in the first three of them, then none."""
        busy = iter([0.0, 9.0, 9.0, 18.0, 18.0, 27.0] + [27.0] * 20)
        model, x = nn.Linear(3, 2), torch.randn(2, 3)
        with mock.patch.object(dc, "foreign_cpu_s", lambda: next(busy)), mock.patch.multiple(
            dc, QUIET_WINDOW_S=0.0, QUIET_CORES=0.1
        ):
            notes = dc.capture(model, x, repeats=4, warmup=0)["times"]["notes"]
        self.assertTrue(any(n.startswith("the 4 quietest of 7 pairs") for n in notes), notes)

    def test_noise_does_not_block(self) -> None:
        busy = iter(range(0, 10**6, 1000))
        with mock.patch.object(dc, "foreign_cpu_s", lambda: float(next(busy))), mock.patch.multiple(
            dc, QUIET_WINDOW_S=0.0, QUIET_CORES=0.1
        ):
            w = dc.capture(nn.Linear(3, 2), torch.randn(2, 3), repeats=2, warmup=0)
        self.assertEqual(len(w["times"]["raw"]["forward"]), 2)
        self.assertTrue(any(n.startswith("the 2 quietest of 8 pairs") for n in w["times"]["notes"]))

    def test_interruption_keeps_what_was_measured(self) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
        for after, pairs in ((9, 2), (10, 3), (11, 3)):  # passes; 4 of warm-up
            calls = 0
            real = dc.Step.run

            def run(step: Any, instrument: bool = False) -> Any:
                nonlocal calls
                calls += 1
                if calls > after:
                    raise KeyboardInterrupt
                return real(step, instrument=instrument)

            with mock.patch.object(dc.Step, "run", run):
                w = dc.capture(model, torch.randn(4, 8), warmup=2, repeats=30)
            self.assertEqual(len(w["times"]["raw"]["step_plain"]), pairs)
            self.assertTrue(
                any(n.startswith(f"interrupted: {pairs} pairs") for n in w["times"]["notes"]),
                w["times"]["notes"],
            )
            self.assertNotIn("modules", w["times"])
        with mock.patch.object(dc.Step, "run", side_effect=KeyboardInterrupt), self.assertRaises(
            KeyboardInterrupt
        ):
            dc.capture(model, torch.randn(4, 8))

    def test_progress_says_how_long(self) -> None:
        progress = dc.Progress()
        progress.begin -= 20
        progress.said -= 20
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            progress.show(4, 3, 15)
        self.assertRegex(
            out.getvalue(),
            r"3 of 15 quiet pairs of passes, 4 in all; about 60 s left, 280 s if other",
        )

    def test_reference_blas_is_said(self) -> None:
        for reference in (True, False):
            with mock.patch.object(dc, "reference_blas", lambda: reference):
                w = dc.capture(nn.Linear(4, 2), torch.randn(4, 4), repeats=2, warmup=0)
            self.assertEqual(dc.REFERENCE_BLAS in w["times"]["notes"], reference)

    def test_cuda_clock(self) -> None:
        """Device offsets come from events, host offsets from the host thread (with stand-ins for
        torch.cuda)."""

        class Event:
            now = 0.0

            def __init__(self, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                Event.now += 0.5
                self.at = Event.now

            def elapsed_time(self, other: "Event") -> float:
                return other.at - self.at

        x = torch.randn(4, 3)
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        parameters = list(model.parameters())
        with mock.patch("torch.cuda.Event", Event), mock.patch("torch.cuda.synchronize"):
            step = dc.Step(
                model,
                (x,),
                None,
                None,
                torch.optim.SGD(parameters, lr=0.1),
                "fp32",
                torch.device("cuda", 0),
                parameters,
            )
            arrival, times = dc.measure(step, ["w0", "b0", "w1", "b1"], 1, 3, modules=True)
        self.assertEqual(arrival, [3, 2, 1, 0])
        self.assertEqual(
            (times["forward_ps"], times["backward_ps"], times["optimizer_ps"]),
            (500_000_000,) * 2 + (1_000_000_000,),
        )
        self.assertEqual(times["ready_ps"], [100_000_000, 200_000_000, 300_000_000, 400_000_000])
        self.assertGreater(times["host_backward_ps"], times["host_ready_ps"][-1])
        self.assertEqual(times["host_ready_ps"], sorted(times["host_ready_ps"]))


class ScriptTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.dir = Path(directory.name)
        self.out = str(self.dir / "x.json")

    def fails(self, text: str, *args: str) -> None:
        code, err = script(*args)
        self.assertEqual(code, 2, err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn(text, err)
        self.assertEqual(os.listdir(self.dir), [])

    def test_errors(self) -> None:
        mlp = ("--model", "mlp784-50-10")
        self.fails(
            "'resnet5O' is unknown; the nearest known name is 'resnet50'",
            "--model",
            "resnet5O",
            "--batch",
            "2",
            "--out",
            self.out,
        )
        self.fails("--batch must be at least 1", *mlp, "--batch", "0", "--out", self.out)
        self.fails("invalid int value: 'four'", *mlp, "--batch", "four", "--out", self.out)
        self.fails("--batch is required", *mlp, "--out", self.out)
        self.fails("--model --factory is required", "--out", self.out)
        self.fails("does not exist", *mlp, "--batch", "2", "--out", str(self.dir / "no" / "x.json"))
        self.fails("MODULE:FUNCTION", "--factory", "nothing", "--out", self.out)
        self.fails("no_such_module", "--factory", "no_such_module:f", "--out", self.out)
        self.fails("must return (model", "--factory", "os:getcwd", "--out", self.out)
        if not torch.cuda.is_available():
            self.fails("no CUDA GPU", *mlp, "--batch", "2", "--device", "cuda", "--out", self.out)

    def test_missing_torch(self) -> None:
        code = (
            "import runpy, sys; sys.modules['torch'] = None; sys.argv = ['x']; "
            f"runpy.run_path({str(TOOL)!r}, run_name='__main__')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("python3-torch", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_mlp(self) -> None:
        argv = [
            "ddpsim_capture.py",
            "--model",
            "mlp784-50-10",
            "--batch",
            "8",
            "--repeats",
            "4",
            "--out",
            self.out,
        ]
        with mock.patch.object(sys, "argv", argv):
            self.assertEqual(script(*argv[1:]), (0, ""))
        self.assertEqual(os.listdir(self.dir), ["x.json"])
        text = Path(self.out).read_text(encoding="utf-8")
        w = json.loads(text)
        self.assertEqual(
            [(t["name"], t["shape"]) for t in w["tensors"]],
            [
                ("fc1.weight", [50, 784]),
                ("fc1.bias", [50]),
                ("fc2.weight", [10, 50]),
                ("fc2.bias", [10]),
            ],
        )
        self.assertEqual(w["arrival"], [3, 2, 1, 0])
        self.assertEqual((w["name"], w["model"], w["batch"]), ("x", "mlp784-50-10", 8))
        self.assertNotIn(str(self.dir), text)
        self.assertIn("--out x.json", w["source"]["command"])
        self.assertLess(max(map(len, text.splitlines())), 200)
        self.assertIn(' {"name": "fc1.bias", "shape": [50], "dtype": "float32"},\n', text)
        check_workload(self, w)

    def test_factory(self) -> None:
        (self.dir / "mine_factory.py").write_text(
            "import torch\ndef make():\n    m = torch.nn.Linear(3, 2)\n    return m,"
            " (torch.randn(5, 3),), lambda out: out.sum(), torch.optim.Adam(m.parameters())\n"
        )
        self.addCleanup(sys.path.remove, str(self.dir))
        sys.path.insert(0, str(self.dir))
        code, err = script("--factory", "mine_factory:make", "--repeats", "1", "--out", self.out)
        self.assertEqual((code, err), (0, ""))
        w = json.loads(Path(self.out).read_text(encoding="utf-8"))
        self.assertEqual((w["batch"], w["model"], w["optimizer"]["name"]), (5, "Linear", "adam"))
        check_workload(self, w)

    def test_named_inputs(self) -> None:
        """As Hugging Face's models take them, and give their loss."""
        (self.dir / "named_factory.py").write_text(
            "import torch\nfrom torch import nn\nclass M(nn.Module):\n    def __init__(self):\n    "
            "    super().__init__()\n        self.e, self.o = nn.Embedding(9, 4), nn.Linear(4, 9)\n"
            "    def forward(self, input_ids, labels):\n        x = self.o(self.e(input_ids))\n    "
            "    return {'logits': x, 'loss': nn.functional.cross_entropy(x.flatten(0, 1),"
            " labels.flatten())}\ndef make():\n    m, t = M(), torch.randint(0, 9, (6, 3))\n   "
            " return m, {'input_ids': t, 'labels': t}, None, torch.optim.AdamW(m.parameters())\ndef"
            " wrong():\n    return M(), (torch.randint(0, 9, (6, 3)),), None, None\ndef breaks():\n"
            "    return {}['x']\n"
        )
        self.addCleanup(sys.path.remove, str(self.dir))
        sys.path.insert(0, str(self.dir))
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        self.addCleanup(setattr, sys, "dont_write_bytecode", before)
        code, err = script("--factory", "named_factory:make", "--repeats", "1", "--out", self.out)
        self.assertEqual((code, err), (0, ""))
        w = json.loads(Path(self.out).read_text(encoding="utf-8"))
        self.assertEqual(
            (w["batch"], w["optimizer"]["name"], w["source"]["recipe"]["optimizer"]),
            (6, "adamw", "adamw"),
        )
        check_workload(self, w)
        for made, says in (
            ("wrong", "forward failed: TypeError"),
            ("breaks", "failed: KeyError: 'x' (named_factory.py, line 16)"),
        ):
            code, err = script(
                "--factory", f"named_factory:{made}", "--repeats", "1", "--out", self.out
            )
            self.assertEqual((code, err.count("\n")), (2, 1), err)
            self.assertIn(says, err)

    def test_format_json(self) -> None:
        value = {
            "a": list(range(300)),
            "b": [{"c": [], "d": "x" * 200}],
            "e": {},
            "f": [1.5, -2],
            "g": None,
        }
        text = dc.format_json(value)
        self.assertEqual(json.loads(text), value)
        self.assertLess(len(text.splitlines()), 30)

    def test_write_is_atomic(self) -> None:
        Path(self.out).write_text("before")
        with mock.patch("os.replace", side_effect=OSError("disk")), self.assertRaises(OSError):
            dc.write({"a": 1}, self.out)
        self.assertEqual(os.listdir(self.dir), ["x.json"])
        self.assertEqual(Path(self.out).read_text(), "before")


class CommittedWorkloadsTest(unittest.TestCase):
    """The captured workloads of this repository follow the format."""

    def test_files(self) -> None:
        for path in sorted((TOOL.parents[2] / "workloads").glob("*-cpu.json")):
            with self.subTest(path.name):
                w = json.loads(path.read_text(encoding="utf-8"))
                self.assertEqual(w["name"], path.stem)
                self.assertLess(path.stat().st_size, 150_000)
                check_workload(self, w)


if __name__ == "__main__":
    unittest.main()
