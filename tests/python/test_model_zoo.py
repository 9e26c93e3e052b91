#!/usr/bin/env python3
"""Models of many kinds (model_zoo.py), described and executed on the CPU under the real
DistributedDataParallel: the order in which gradients arrive, what is in which bucket, operations
(counted by counted_flops.py) and the bytes that autograd keeps.

  test_model_zoo.py DDPSIM          those that take no more than two seconds each
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
from torch import nn  # noqa: E402

DDPSIM = ""
SLOW = ("alexnet", "inception_v3", "vgg16_bn", "vit_b_16", "wide_resnet50_2")
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
            (right._replace(parameters=-0.02), "parameters"),
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


class Recurrent(unittest.TestCase):
    def test_computes_what_pytorch_computes(self):
        from ddpsim_recurrent import RecurrentLayers

        for which in (nn.LSTM, nn.GRU, nn.RNN):
            for more in (
                {},
                {"bidirectional": True, "batch_first": True},
                {"bias": False},
                {"nonlinearity": "relu"} if which is nn.RNN else {},
            ):
                with self.subTest(which=which.__name__, **more):
                    torch.manual_seed(1)
                    layer, x = which(5, 7, 2, **more), torch.randn(4, 3, 5)
                    with RecurrentLayers():
                        mine = layer(x)
                    for a, b in zip(flat(mine), flat(layer(x))):
                        self.assertTrue(torch.allclose(a, b, atol=1e-6))

    def test_what_it_does_not_know_is_pytorchs(self):
        from ddpsim_recurrent import RecurrentLayers

        x = nn.utils.rnn.pack_sequence([torch.randn(3, 5), torch.randn(2, 5)])
        narrow = nn.LSTM(5, 7, proj_size=3)
        for layer, given in ((nn.LSTM(5, 7), x), (narrow, torch.randn(4, 3, 5))):
            theirs = layer(given)
            with RecurrentLayers():
                mine = layer(given)
            for a, b in zip(flat(mine), flat(theirs)):
                self.assertTrue(torch.equal(a, b))


def flat(value):
    """Tensors, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in flat(v)] if isinstance(value, tuple) else []


def main(argv):
    global DDPSIM
    DDPSIM = str(Path(argv[1]).resolve())
    unittest.main(argv=argv[:1] + [a for a in argv[2:] if a != "--all"])


if __name__ == "__main__":
    main(sys.argv)
