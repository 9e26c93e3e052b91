"""The described workloads against independent lists: tensor names, shapes, arrival, DDP's buckets,
multiply-adds, buffers.

Run: /usr/bin/python3 -m unittest tests/python/test_describe.py   (standard library only, a second)
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "python" / "describe_models.py"


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("describe_models", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["describe_models"] = module
    spec.loader.exec_module(module)
    return module


describe = load_script()
from ddpsim_repeat import folded, unfolded  # noqa: E402  beside the script

FIXTURE = json.loads((ROOT / "tests" / "data" / "models.json").read_text(encoding="utf-8"))
BUCKETS = json.loads((ROOT / "tests" / "data" / "buckets.json").read_text(encoding="utf-8"))
BUILT = {name: make() for name, make in describe.MODELS.items()}
SHORT = {name: m for name, m in BUILT.items() if m.repeats}
# At the sequence length that the file begins with, numbers as they are there.
DOCUMENTS: dict[str, Any] = {
    n: json.loads(dataclasses.replace(m, repeats=False).json_text(m.sequence))
    for n, m in BUILT.items()
}

KEYS = {
    "bert-base": "bert_base(PreTraining)",
    "bert-large": "bert_large(PreTraining)",
    "gpt2-small": "gpt2_small",
    "deeplabv3-resnet101": "deeplabv3_r101(aux)",
}
MIB = 1 << 20
SIZES = {"float32": 4, "int64": 8}


# Parameters as the publishers count them: num_params of torchvision's weights, and
# model.num_parameters() of transformers.
PARAMETERS = {
    "resnext50-32x4d": 25_028_904,
    "resnext101-32x8d": 88_791_336,
    "bert-base-squad": 108_893_186,
    "bert-large-squad": 334_094_338,
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "densenet121": 7_978_856,
    "efficientnet-b0": 5_288_548,
    "convnext-tiny": 28_589_128,
    "t5-base": 222_903_552,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "vit-h-14": 632_045_800,
    # By the definition: 12 h^2 + 13 h a layer, words and positions, a last norm.
    "gpt3-13b": 40 * (12 * 5120**2 + 13 * 5120) + (50257 + 2048 + 2) * 5120,
    "gpt3-175b": 96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048 + 2) * 12288,
}


# Tokens a sample, and rows of the table of learned positions.
SEQUENCES = {
    "bert-base": (128, 512),
    "bert-large": (512, 512),
    "bert-base-squad": (384, 512),
    "bert-large-squad": (384, 512),
    "gpt2-small": (1024, 1024),
    "t5-base": (512, None),
    "llama-3.2-1b": (2048, None),
    "llama-3.1-8b": (4096, None),
    "llama-3.1-70b": (4096, None),
    "gpt3-13b": (2048, 2048),
    "gpt3-175b": (2048, 2048),
}


def fixture_key(name: str) -> str:
    return KEYS.get(name, name)


def with_fixture() -> list[tuple[str, Any]]:
    return [(name, d) for name, d in DOCUMENTS.items() if fixture_key(name) in FIXTURE]


def tensor_bytes(tensor: dict[str, Any]) -> int:
    return math.prod(tensor["shape"]) * SIZES[tensor["dtype"]]


def buckets(sizes: list[int], caps: list[int]) -> list[list[int]]:
    """DDP's rule: a bucket closes when its bytes reach the cap; the last cap repeats."""
    result: list[list[int]] = []
    count = size = 0
    for s in sizes:
        count, size = count + 1, size + s
        if size >= caps[min(len(result), len(caps) - 1)]:
            result.append([count, size])
            count = size = 0
    if count:
        result.append([count, size])
    return result


class Described(unittest.TestCase):
    def test_tensors_and_arrival_equal_the_fixture(self) -> None:
        for name, document in with_fixture():
            with self.subTest(name):
                expected = FIXTURE[fixture_key(name)]
                self.assertEqual(
                    [[t["name"], t["shape"]] for t in document["tensors"]], expected["tensors"]
                )
                self.assertEqual({t["dtype"] for t in document["tensors"]}, {"float32"})
                self.assertEqual(
                    [document["tensors"][i]["name"] for i in document["arrival"]],
                    expected["arrival"],
                )
                self.assertEqual(
                    sum(math.prod(t["shape"]) for t in document["tensors"]), expected["params"]
                )

    def test_parameters_are_as_published(self) -> None:
        listed = {name for name, _ in with_fixture()} | set(PARAMETERS)
        self.assertEqual(listed, set(DOCUMENTS), "each model is in one of the two lists")
        for name, expected in PARAMETERS.items():
            with self.subTest(name):
                tensors = DOCUMENTS[name]["tensors"]
                self.assertEqual(sum(math.prod(t["shape"]) for t in tensors), expected)

    def test_walking_the_layers_backwards_gives_arrival(self) -> None:
        for name, document in DOCUMENTS.items():
            with self.subTest(name):
                walked = [i for layer in reversed(document["layers"]) for i in layer["tensors"]]
                self.assertEqual(walked, document["arrival"])
                self.assertEqual(sorted(walked), list(range(len(document["tensors"]))))

    def test_buckets_equal_the_fixture(self) -> None:
        for name, document in with_fixture():
            with self.subTest(name):
                expected = BUCKETS[fixture_key(name)]
                sizes = [tensor_bytes(document["tensors"][i]) for i in document["arrival"]]
                self.assertEqual(buckets(sizes, [MIB, 25 * MIB]), expected["ddp_rebuilt_default"])
                self.assertEqual(buckets(sizes, [25 * MIB]), expected["ddp_rebuilt_cap25"])

    def test_multiply_adds(self) -> None:
        def encoder(name: str) -> bool:
            return ".encoder.layer." in name

        def everything(_: str) -> bool:
            return True

        # torchvision's "GFLOPS" column (which counts multiply-adds) and, for the transformers, 12 S
        # H^2 + 2 S^2 H a layer, S H V for logits
        for name, part, expected in [
            ("resnet18", everything, 1.814e9),
            ("resnet50", everything, 4.089e9),
            ("resnet101", everything, 7.801e9),
            ("resnext50-32x4d", everything, 4.230e9),
            ("resnext101-32x8d", everything, 16.414e9),
            ("vgg16", everything, 15.470e9),
            ("deeplabv3-resnet101", everything, 258.74e9),
            ("bert-base", encoder, 11.17e9),
            ("bert-large", encoder, 167.5e9),
            ("bert-base-squad", everything, 12 * 384 * (12 * 768**2 + 2 * 384 * 768)),
            ("bert-large-squad", everything, 24 * 384 * (12 * 1024**2 + 2 * 384 * 1024)),
            ("gpt2-small", everything, 145.8e9),
            ("mlp784-50-10", everything, 39_700),
            ("vit-b-16", everything, 17.564e9),
            ("vit-l-16", everything, 61.555e9),
            ("densenet121", everything, 2.834e9),
            ("efficientnet-b0", everything, 0.386e9),
            ("convnext-tiny", everything, 4.456e9),
            # A token meets each weight once, but for the table; 2 S^2 H of attention a layer
            ("llama-3.2-1b", everything, 2048 * (1_235_814_400 + 16 * 2 * 2048 * 2048)),
            (
                "llama-3.1-8b",
                everything,
                4096 * (8_030_261_248 - 128_256 * 4096 + 32 * 2 * 4096 * 4096),
            ),
            # Encoder and decoder, keys and values of the encoder's output, attention three times
            (
                "t5-base",
                everything,
                12 * (512 * 12 + 128 * 12 + 128 * 2 + 512 * 2) * 768**2
                + 12 * 2 * (512 * 512 + 128 * 128 + 128 * 512) * 768
                + 128 * 768 * 32128,
            ),
        ]:
            with self.subTest(name):
                self.assertAlmostEqual(BUILT[name].macs(part) / expected, 1.0, delta=0.01)

    def test_backward_is_twice_forward_but_for_the_first_layer(self) -> None:
        for name, document in DOCUMENTS.items():
            with self.subTest(name):
                matrices = [x for x in document["layers"] if x["class"] != "memory"]
                after_embedding = document["layers"][0]["class"] == "memory"
                for i, layer in enumerate(matrices):
                    factor = 1 if i == 0 and not after_embedding else 2
                    self.assertEqual(
                        layer["backward"]["flops_per_sample"],
                        factor * layer["forward"]["flops_per_sample"],
                        layer["name"],
                    )

    def test_buffers(self) -> None:
        expected = {
            "resnet18": (38_400, 160),
            "resnet50": (212_480, 424),
            "resnet101": (421_376, 832),
            "vgg16": (0, 0),
        }
        for name, sizes in expected.items():
            with self.subTest(name):
                by_dtype = {"float32": 0, "int64": 0}
                for b in DOCUMENTS[name]["buffers"]:
                    by_dtype[b["dtype"]] += tensor_bytes(b)
                self.assertEqual((by_dtype["float32"], by_dtype["int64"]), sizes)
        names = [b["name"] for b in DOCUMENTS["resnet18"]["buffers"][:6]]
        self.assertEqual(
            names,
            [
                f"{m}.{b}"
                for m in ("bn1", "layer1.0.bn1")
                for b in ("running_mean", "running_var", "num_batches_tracked")
            ],
        )

    def test_costs_are_sane(self) -> None:
        for name, document in DOCUMENTS.items():
            for layer in document["layers"]:
                with self.subTest(f"{name} {layer['name']}"):
                    self.assertIn(layer["class"], {"conv", "gemm", "attention", "memory"})
                    for direction in ("forward", "backward"):
                        cost = layer[direction]
                        self.assertEqual(
                            set(cost),
                            {"flops_per_sample", "bytes_per_sample", "bytes_fixed", "kernels"},
                        )
                        self.assertTrue(all(isinstance(v, int) and v >= 0 for v in cost.values()))
                        moves = (
                            cost["flops_per_sample"]
                            + cost["bytes_per_sample"]
                            + cost["bytes_fixed"]
                        )
                        self.assertEqual(moves > 0, cost["kernels"] > 0)

    def test_sequence_lengths(self) -> None:
        for name, model in BUILT.items():
            with self.subTest(name):
                document = json.loads(model.json_text())
                self.assertEqual("sequence" in document, name in SEQUENCES)
                if name in SEQUENCES:
                    self.assertEqual(
                        (document["sequence"], document.get("positions")), SEQUENCES[name]
                    )

    def test_committed_files_are_current_and_small(self) -> None:
        self.assertEqual(describe.main(["--out", str(ROOT / "workloads"), "--check"]), 0)
        for name in DOCUMENTS:
            self.assertLess((ROOT / "workloads" / f"{name}.json").stat().st_size, 450_000, name)

    def test_a_block_that_repeats_is_said_once(self) -> None:
        self.assertEqual(len(SHORT), 4)
        for name, model in SHORT.items():
            with self.subTest(name):
                short = json.loads(model.json_text())
                plain = json.loads(dataclasses.replace(model, repeats=False).json_text())
                (stride,) = (len(t["of"]) for t in short["tensors"] if "repeat" in t)
                self.assertEqual(unfolded(short["tensors"]), plain["tensors"])
                self.assertEqual(unfolded(short["layers"], stride), plain["layers"])
                self.assertLess(len(model.json_text()), 20_000)

    def test_blocks_that_differ_are_not_folded(self) -> None:
        rows = [{"name": f"h.{i}.w", "shape": [2 + (i == 1)]} for i in range(5)]
        short = folded(rows)
        self.assertEqual([r.get("repeat") for r in short], [None, None, 3])
        self.assertEqual(short[2]["from"], 2)
        self.assertEqual(unfolded(short), rows)
        layers = [{"name": f"h.{i}", "tensors": [3 * i + (i > 3)]} for i in range(6)]
        self.assertEqual([r.get("repeat") for r in folded(layers, 3)], [4, 2])
        self.assertEqual(unfolded(folded(layers, 3), 3), layers)

    def test_writes_and_checks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["--out", folder, "--only", "mlp784-50-10"]
            stderr, sys.stderr = sys.stderr, open("/dev/null", "w", encoding="utf-8")
            try:
                self.assertEqual(describe.main([*arguments, "--check"]), 1)
                self.assertEqual(describe.main(arguments), 0)
                self.assertEqual(describe.main([*arguments, "--check"]), 0)
            finally:
                sys.stderr.close()
                sys.stderr = stderr
            self.assertEqual([p.name for p in Path(folder).iterdir()], ["mlp784-50-10.json"])


if __name__ == "__main__":
    unittest.main()
