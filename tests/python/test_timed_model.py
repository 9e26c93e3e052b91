#!/usr/bin/env python3
"""ddpsim_record.py's timed layers, which sleep: they end on time on a machine that is not busy."""
import sys
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools/python"))
sys.dont_write_bytecode = True
try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: PyTorch is missing (Debian: python3-torch)")
    sys.exit(77)
import ddpsim_record as rec  # noqa: E402

MS = 10**9


def workload(tensors=3, each_ms=10):
    names = ["a.weight", "a.bias", "b.weight"][:tensors]
    return {
        "name": "w",
        "basis": "captured",
        "tensors": [{"name": n, "shape": [1000], "dtype": "float32"} for n in names],
        "buffers": [{"name": "a.mean", "shape": [4], "dtype": "float32"}],
        "arrival": [2, 0, 1],
        "times": {
            "forward_ps": 20 * MS,
            "backward_ps": 40 * MS,
            "optimizer_ps": 5 * MS,
            "ready_ps": [each_ms * MS * (i + 1) for i in range(tensors)],
        },
    }


class TimedModelTest(unittest.TestCase):
    def test_keeps_registration_order_and_names(self):
        model = rec.TimedModel(workload(), [], 1.0)
        self.assertEqual(
            [n for n, _ in model.named_parameters()], ["a.weight", "a.bias", "b.weight"]
        )
        self.assertEqual([n for n, _ in model.named_buffers()], ["a.mean"])

    def test_gradients_arrive_in_order_and_on_time(self):
        model = rec.TimedModel(workload(), [], 1.0)
        seen = []
        nodes = [p.expand_as(p).grad_fn.next_functions[0][0] for p in model.parameters()]
        for name, node in zip(("a.weight", "a.bias", "b.weight"), nodes):
            node.register_hook(lambda *_, name=name: seen.append((name, time.monotonic())))
        begin = time.monotonic()
        loss = model(model.start).sum()
        forward = time.monotonic()
        loss.backward()
        end = time.monotonic()
        self.assertEqual([n for n, _ in seen], ["b.weight", "a.weight", "a.bias"])
        self.assertAlmostEqual(forward - begin, 0.020, delta=0.010)
        for (_, at), expected in zip(seen, (0.010, 0.020, 0.030)):
            self.assertAlmostEqual(at - forward, expected, delta=0.010)
        self.assertAlmostEqual(end - forward, 0.040, delta=0.015)

    def test_a_slow_rank_takes_longer(self):
        model = rec.TimedModel(workload(), [], 1.5)
        self.assertEqual(model.forward_ns, 30_000_000)
        self.assertEqual([ns for _, ns in model.layers], [15_000_000] * 3)
        self.assertEqual(model.tail_ns, 15_000_000)

    def test_unused_parameters_get_no_gradient(self):
        model = rec.TimedModel(workload(), ["a.weight"], 0.01)
        model(model.start).sum().backward()
        self.assertEqual([n for n, p in model.named_parameters() if p.grad is None], ["a.weight"])

    def test_lateness_does_not_add_up(self):
        sleeper = rec.Sleeper()
        begin = rec.now()
        for _ in range(40):
            sleeper.until(rec.now(), 1_000_000)
        self.assertAlmostEqual((rec.now() - begin) / 1e6, 40, delta=6)

    def test_being_late_once_shortens_the_next_sleep(self):
        sleeper = rec.Sleeper()
        begin = rec.now()
        time.sleep(0.015)  # a layer that was to take 5 ms
        sleeper.until(begin, 5_000_000)
        sleeper.until(rec.now(), 20_000_000)
        self.assertAlmostEqual((rec.now() - begin) / 1e6, 25, delta=4)


if __name__ == "__main__":
    unittest.main()
