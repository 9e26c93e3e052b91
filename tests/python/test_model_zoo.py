#!/usr/bin/env python3
"""Models of many kinds (model_zoo.py), described and executed on the CPU under the real
DistributedDataParallel: the order in which gradients arrive, what is in which bucket, operations
(counted by counted_flops.py) and the bytes that autograd keeps.

  test_model_zoo.py DDPSIM          those that execute in a second or so
  test_model_zoo.py DDPSIM --all    all of them (reports/described.md)
"""
import importlib.util
import sys
import unittest
from pathlib import Path

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is missing (Debian: python3-torch)")
    sys.exit(77)
sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tools/python"), str(HERE)]
import executed_steps  # noqa: E402
import model_zoo as zoo  # noqa: E402
import torch  # noqa: E402
import zoo_checks  # noqa: E402

DDPSIM = ""
SLOW = (
    "alexnet deeplabv3_resnet50 densenet121 efficientnet_v2_s inception_v3 swin_v2_t vgg16_bn"
    " vit_b_16 wide_resnet50_2 resnext50_32x4d regnet_y_400mf mnasnet1_0"
).split()
ALL = "--all" in sys.argv


class Zoo(unittest.TestCase):
    def test_described_as_executed(self):
        torch.set_num_threads(1)
        names = [n for n in zoo.ZOO if ALL or n not in SLOW]
        with executed_steps.alone():
            for name in names:
                with self.subTest(name):
                    found = zoo_checks.beside(DDPSIM, name)
                    self.assertEqual(found.wrong(), [], found)
        print(f"{len(names)} models")

    def test_it_would_be_noticed(self):
        """Each number is compared: one that is wrong is told."""
        right = zoo_checks.Beside(True, True, 1, 0.0, 0.0, 0.0)
        self.assertEqual(right.wrong(), [])
        for wrong, what in (
            (right._replace(arrival=False), "arrival"),
            (right._replace(buckets=False), "buckets"),
            (right._replace(forward=0.02), "forward"),
            (right._replace(backward=-0.02), "backward"),
            (right._replace(saved=0.02), "saved"),
        ):
            self.assertEqual(wrong.wrong(), [what])

    def test_a_planted_break_is_noticed(self):
        """A table that forgets what a ReLU keeps, and one that counts products once."""
        import ddpsim_op_costs as costs

        with executed_steps.alone():
            was = costs.product_flops
            costs.product_flops = lambda name, args: was(name, args) // 2
            try:
                found = zoo_checks.beside(DDPSIM, "gnn")
            finally:
                costs.product_flops = was
            self.assertEqual(found.wrong(), ["forward", "backward"])

    def test_at_full_size_without_memory(self):
        for name in ("lstm", "gpt2"):
            found = zoo_checks.full(name)
            self.assertLess(abs(found.forward), 0.01)
            self.assertLess(abs(found.backward), 0.01)
            self.assertLess(found.core_s, 20)
            self.assertLess(found.peak_bytes, 1e9)


def main(argv):
    global DDPSIM
    DDPSIM = str(Path(argv[1]).resolve())
    unittest.main(argv=argv[:1] + [a for a in argv[2:] if a != "--all"])


if __name__ == "__main__":
    main(sys.argv)
