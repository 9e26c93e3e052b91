#!/usr/bin/env python3
"""Forward by layer: what ddpsim_capture.py notes of a real small model, and what `--plan fsdp`
makes of it.

  test_layers.py DDPSIM
"""
from __future__ import annotations

import copy
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
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/python"))
import ddpsim_capture as dc  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

DDPSIM = ""
WIDE = 256


class Model(nn.Module):
    """Registered in another order than it runs; blocks; tied weights; a parameter of the model's
    own; a module whose parameters somebody else uses; one that nobody calls."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(WIDE, 500, bias=False)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDE, 4 * WIDE), nn.ReLU(), nn.Linear(4 * WIDE, WIDE))
            for _ in range(4)
        )
        self.attention = nn.MultiheadAttention(WIDE, 4, batch_first=True)
        self.first = nn.Embedding(500, WIDE)
        self.scale = nn.Parameter(torch.ones(WIDE))
        self.unused = nn.Linear(3, 3)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) * self.scale
        for block in self.blocks:
            x = x + block(x)
        x = self.attention(x, x, x, need_weights=False)[0]
        return self.last(x).mean(1)


def captured() -> Dict[str, Any]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    return dc.capture(Model(), torch.randint(500, (8, 32)), repeats=6, warmup=1, name="small")


def on_a_gpu(workload: Dict[str, Any]) -> Dict[str, Any]:
    """The same times as if a GPU had taken them, with a host that takes none: FSDP is modelled on
    GPUs."""
    out = copy.deepcopy(workload)
    out["device"] = {"kind": "gpu", "name": "a CPU, called a GPU"}
    times = out["times"]
    del times["core_ps"]
    times.update({f"host_{k}_ps": 0 for k in ("forward", "backward", "optimizer")})
    times["host_ready_ps"] = [0] * len(times["ready_ps"])
    for layer in times.get("layers", []):
        layer["host_forward_ps"] = 0
    return out


def predicted(workload: Dict[str, Any], plan: str = "fsdp") -> Tuple[int, Dict[str, Any], str]:
    """(exit status, document, stderr) on a host of eight GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workload.json"
        path.write_text(json.dumps(workload), encoding="utf-8")
        command = [DDPSIM, "predict", "--workload", str(path), "--cluster", "dgx1-v100"]
        command += ["--ranks", "8", "--plan", plan, "--format", "json"]
        # Computation as it was captured: nobody is slower, and no collective takes of it.
        alone = "profile.interference.sm_hold=" + json.dumps(
            dict.fromkeys(("low", "mid", "high"), 0)
        )
        command += ["--set", "stragglers=false", "--set", alone]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}, done.stderr


class Layers(unittest.TestCase):
    workload: Any
    times: Any
    gpu: Any

    @classmethod
    def setUpClass(cls) -> None:
        cls.workload = captured()
        cls.times = cls.workload["times"]
        cls.gpu = on_a_gpu(cls.workload)

    def test_the_order_is_that_of_execution(self) -> None:
        names = [layer["name"] for layer in self.times["layers"]]
        blocks = [f"blocks.{k}.{part}" for k in range(4) for part in (0, 2)]
        self.assertEqual(names, ["(model)", "first", *blocks, "attention", "last"])

    def test_each_parameter_belongs_to_who_uses_it(self) -> None:
        names = [t["name"] for t in self.workload["tensors"]]
        owned = {x["name"]: [names[i] for i in x["tensors"]] for x in self.times["layers"]}
        self.assertEqual(owned["(model)"], ["scale", "unused.weight", "unused.bias"])
        self.assertEqual(owned["first"], ["last.weight"])  # tied: its first name
        self.assertEqual(owned["last"], ["last.weight"])
        self.assertEqual(len(owned["attention"]), 4)
        self.assertEqual(set(names), {n for mine in owned.values() for n in mine})

    def test_all_of_them_are_within_forward(self) -> None:
        took = {x["name"]: x["forward_ps"] for x in self.times["layers"]}
        total = sum(took.values())
        self.assertLessEqual(total, self.times["forward_ps"])
        self.assertGreater(total, 0.8 * self.times["forward_ps"])
        # A block's products are 128 times the scale's work.
        for k in range(4):
            self.assertGreater(took[f"blocks.{k}.0"], 3 * took["(model)"])
        self.assertEqual(len(self.times["raw"]["forward_by_layer"]), 5)

    def test_no_hook_is_left(self) -> None:
        model = Model()
        dc.capture(model, torch.randint(500, (2, 4)), repeats=2, warmup=0)
        for m in model.modules():
            self.assertFalse(m._forward_hooks or m._forward_pre_hooks)

    def test_what_cannot_be_told_is_a_note(self) -> None:
        class Outside(nn.Module):
            """Its forward is never called."""

            def __init__(self) -> None:
                super().__init__()
                self.w = nn.Parameter(torch.ones(3))

        outside = Outside()
        step = dc.Step(
            nn.Identity(), (), None, None, torch.optim.SGD([outside.w], lr=0.1), "fp32",
            outside.w.device, [outside.w],
        )  # fmt: skip
        step.loss = lambda: (outside.w * 2).sum()  # type: ignore[method-assign]
        with self.assertRaisesRegex(RuntimeError, "owns parameter 0"):
            dc.layer_table(step, 2, {"raw": {}, "forward_ps": 10})

    def test_gathering_by_layer_is_quicker_than_all_at_once(self) -> None:
        status, by_block, said = predicted(self.gpu)
        self.assertEqual(status, 0, said)
        lumped = copy.deepcopy(self.gpu)
        lumped["times"]["layers"] = [
            {
                "name": "all",
                "tensors": list(range(len(lumped["tensors"]))),
                "forward_ps": self.times["forward_ps"],
                "host_forward_ps": 0,
            }
        ]
        status, at_once, said = predicted(lumped)
        self.assertEqual(status, 0, said)
        steps = [d["summary"]["step_ps"] for d in (by_block, at_once)]
        exposed = [d["summary"]["exposed_communication_ps"] for d in (by_block, at_once)]
        self.assertLess(steps[0], steps[1])
        self.assertLess(exposed[0], 0.8 * exposed[1])
        for d in (by_block, at_once):  # neither loses of what is computed; copies are short
            for phase in ("forward", "backward"):
                ratio = d["summary"][f"{phase}_ps"] / self.times[f"{phase}_ps"]
                self.assertGreaterEqual(ratio, 1)
                self.assertLess(ratio, 1.002)

    def test_the_time_of_a_layer_moves_its_collectives(self) -> None:
        later = copy.deepcopy(self.gpu)
        layers = later["times"]["layers"]
        first, last = layers[2], layers[-2]  # a block's; the attention's
        moved = first["forward_ps"] // 2
        first["forward_ps"] -= moved
        last["forward_ps"] += moved
        steps = [predicted(w)[1]["summary"] for w in (self.gpu, later)]
        self.assertNotEqual(steps[0], steps[1])

    def test_without_layers_it_is_refused_and_says_what_to_do(self) -> None:
        old = copy.deepcopy(self.gpu)
        del old["times"]["layers"]
        status, _, said = predicted(old)
        self.assertEqual(status, 2)
        self.assertIn("capture it again", said)
        # Everything else takes it as before.
        ddp = [predicted(w, "averaging")[1]["summary"] for w in (old, self.gpu)]
        self.assertEqual(ddp[0], ddp[1])

    def test_bad_input_is_a_sentence(self) -> None:
        def bad(change: Any) -> str:
            workload = copy.deepcopy(self.gpu)
            change(workload["times"]["layers"])
            status, _, said = predicted(workload)
            self.assertEqual(status, 2, said)
            self.assertIn("/times/layers", said)
            return said

        def put(key: str, value: Any, at: int = 0) -> Any:
            return lambda layers: layers[at].update({key: value})

        self.assertIn("not negative", bad(put("forward_ps", -1)))
        self.assertIn("within forward", bad(put("forward_ps", self.times["forward_ps"], 3)))
        self.assertIn("within forward", bad(put("forward_ps", 2**62)))
        self.assertIn("within forward", bad(put("host_forward_ps", 1)))
        self.assertIn("no tensor has index", bad(put("tensors", [99])))
        self.assertIn("backward_ps", bad(put("backward_ps", 1)))
        self.assertIn("name", bad(put("name", 3)))
        self.assertIn("no layer has tensor \"scale\"", bad(put("tensors", [])))
        self.assertIn("one at least", bad(lambda layers: layers.clear()))
        self.assertIn("host_forward_ps", bad(lambda layers: layers[1].pop("host_forward_ps")))


def main(argv: List[str]) -> None:
    global DDPSIM
    DDPSIM = str(Path(argv[1]).resolve())
    unittest.main(argv=argv[:1] + argv[2:])


if __name__ == "__main__":
    main(sys.argv)
