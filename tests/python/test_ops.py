"""Tests of tools/python/ddpsim_ops.py and ddpsim_captures.py without a GPU. Run: /usr/bin/python3
-m unittest tests/python/test_ops.py"""
from __future__ import annotations

import json
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List
from unittest import mock

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "python"
sys.path.insert(0, str(TOOLS))
sys.dont_write_bytecode = True

try:
    import torch
    from torch import nn
except ImportError:
    raise unittest.SkipTest("PyTorch is missing; run with /usr/bin/python3") from None

import ddpsim_capture as cap  # noqa: E402
import ddpsim_captures as captures  # noqa: E402
import ddpsim_ops as ops  # noqa: E402


class Cases(unittest.TestCase):
    def test_each_is_asked_once_and_its_parameters_are_integers(self) -> None:
        cases = ops.shuffled(list(ops.GROUPS))
        names = [(c.op, tuple(sorted(c.parameters.items()))) for c in cases]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(all(isinstance(v, int) for c in cases for v in c.parameters.values()))
        self.assertEqual(
            names,
            [(c.op, tuple(sorted(c.parameters.items()))) for c in ops.shuffled(list(ops.GROUPS))],
        )

    def test_parameters_of_models_are_the_models_own(self) -> None:
        sizes = {
            n: sum(torch.Size(s).numel() for s in ops.shapes_of(n))
            for n in ("bert_base", "llama_1b")
        }
        self.assertEqual(sizes["llama_1b"], 1_235_814_400)  # Llama 3.2 1B, embeddings tied
        self.assertAlmostEqual(sizes["bert_base"], 109.5e6, delta=1e6)

    def test_what_fails_is_skipped_and_what_is_late_is_counted(self) -> None:
        bench = ops.Bench(60)

        def broken() -> None:
            raise RuntimeError("no such engine\nwith a second line")

        self.assertTrue(bench.attempt("conv", broken))
        self.assertEqual(bench.skipped, [{"what": "conv", "why": "no such engine"}])
        bench.end = 0
        self.assertFalse(bench.attempt("conv", broken))
        self.assertEqual(bench.left_out, 1)


class Readings(unittest.TestCase):
    def times(self, *batches: Any) -> Dict[str, List[int]]:
        """Readings of an operator whose batches took this, the last one again and again."""
        bench = ops.Bench(60)
        answers = [*batches[:-1], *[batches[-1]] * 40]
        with mock.patch.object(bench, "batch_ps", side_effect=answers):
            bench.device(ops.Case("x", {}, lambda: lambda _: None))
        return {s["op"]: s["durations_ps"] for s in bench.samples}

    def test_a_batch_that_is_refused_is_no_reading_of_the_host_either(self) -> None:
        fine, late = (10**6, 2e-6, True), (10**6, 7e-6, False)
        seen = self.times(fine, fine, fine, late, fine)
        self.assertEqual(set(seen["torch_host/x"]), {2 * 10**6})
        self.assertEqual(len(seen["torch/x"]), len(seen["torch_host/x"]))

    def test_a_long_call_that_the_host_issues_as_long_is_no_time_of_the_device(self) -> None:
        with self.assertRaises(RuntimeError):
            self.times((10**10, 9e-3, False))
        self.assertEqual(set(self.times((10**10, 1e-3, False))["torch/x"]), {10**10})


class OnAStandIn(unittest.TestCase):
    """A CPU that says that it is a GPU: the ways through, not the times."""

    def step(self) -> cap.Step:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        parameters = list(model.parameters())
        return cap.Step(
            model,
            (torch.randn(5, 4),),
            None,
            None,
            torch.optim.SGD(parameters, lr=0.1),
            "fp32",
            torch.device("cpu"),
            parameters,
        )

    def test_a_gpu_is_timed_by_passes_one_after_another(self) -> None:
        step = self.step()
        step.device = mock.Mock(type="cuda")
        trains = mock.Mock(side_effect=step.run_train)
        step.run_train = trains  # type: ignore[method-assign]
        arrival, times = cap.measure(step, ["a", "b", "c", "d"], 1, 4, modules=False)
        self.assertEqual(arrival, [3, 2, 1, 0])
        self.assertIn(
            5, [c.args[0] for c in trains.call_args_list]
        )  # one more than wanted: the first fills the pipeline
        self.assertEqual(len(times["raw"]["step_plain"]), 4)
        self.assertEqual(len(times["host_ready_ps"]), 4)
        self.assertNotIn("core_ps", times)

    def test_passes_of_a_train_are_told_apart(self) -> None:
        passes = self.step().run_train(3, instrument=True)
        self.assertEqual([[i for i, _, _ in p.arrivals] for p in passes], [[3, 2, 1, 0]] * 3)
        for p in passes:
            self.assertEqual(
                p.device.step, p.device.forward + p.device.backward + p.device.optimizer
            )

    def test_phases_come_in_order_and_the_optimizer_steps(self) -> None:
        step = self.step()
        before = step.parameters[0].detach().clone()
        self.assertEqual(list(cap.phases(step)), list(cap.PHASES))
        self.assertFalse(torch.equal(before, step.parameters[0]))

    def test_a_scaled_loss_is_unscaled_before_the_step(self) -> None:
        step = self.step()
        calls = []
        scaler = mock.Mock()
        scaler.scale.side_effect = lambda loss: loss
        scaler.step.side_effect = lambda optimizer: calls.append("step")
        scaler.update.side_effect = lambda: calls.append("update")
        step.scaler = scaler
        step.run()
        self.assertEqual(calls, ["step", "update"])


class Lists(unittest.TestCase):
    def test_the_profiler_comes_after_every_capture(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tasks = Path(folder) / "list.json"
            tasks.write_text(
                json.dumps(
                    [
                        {"name": "a", "model": "m", "batch": 1},
                        {"name": "broken", "model": "m", "batch": 1},
                        {"name": "b", "model": "m", "batch": 1},
                    ]
                )
            )
            calls = []

            def capture(task, workloads, runs):  # type: ignore[no-untyped-def]
                calls.append(("capture", task["name"]))
                if task["name"] == "broken":
                    raise RuntimeError("out of memory")
                return "fine"

            def profile(task, runs):  # type: ignore[no-untyped-def]
                calls.append(("profile", task["name"]))
                return "profiled"

            with mock.patch.multiple(
                captures, capture_one=capture, profile_one=profile
            ), mock.patch.object(torch.cuda, "is_available", return_value=True), mock.patch.object(
                torch.cuda, "empty_cache"
            ), mock.patch(
                "builtins.print"
            ):
                code = captures.main(
                    ["--list", str(tasks), "--workloads", folder, "--runs", folder]
                )
            self.assertEqual(code, 1)  # one of them failed
            self.assertEqual(
                calls,
                [
                    ("capture", "a"),
                    ("capture", "broken"),
                    ("capture", "b"),
                    ("profile", "a"),
                    ("profile", "b"),
                ],
            )


if __name__ == "__main__":
    unittest.main()
