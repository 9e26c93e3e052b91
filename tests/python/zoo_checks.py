"""One model of the zoo: described at full size, and beside its execution at a small one."""
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "tools/python"), str(HERE)]
import ddpsim_describe as describe  # noqa: E402
import executed_steps  # noqa: E402
import model_zoo as zoo  # noqa: E402
import torch  # noqa: E402
from counted_flops import CountedFlops  # noqa: E402


class Beside(NamedTuple):
    """described / executed - 1, and whether lists are equal."""

    arrival: bool
    buckets: bool
    count: int  # buckets
    forward: float  # operations
    backward: float
    saved: float  # bytes that autograd keeps
    parameters: float = 0.0  # elements, of tensors and what is frozen
    why: str = ""

    def wrong(self, width: float = 0.01) -> List[str]:
        lists = [w for w in ("arrival", "buckets") if not getattr(self, w)]
        numbers = ("forward", "backward", "saved", "parameters")
        return lists + [w for w in numbers if abs(getattr(self, w)) > width]


def described(model, inputs, loss_fn, name):
    args = describe.parse(["--model", "none", "--out", "zoo.json", "--name", name])
    args.model, args.factory = None, f"model_zoo.py:{name}"
    made = describe.Made(model, describe.cap.as_inputs(inputs), loss_fn, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return describe.describe(made, args).workload


def total(workload, direction):
    each = sum(x[direction]["flops_per_sample"] for x in workload["layers"])
    return each * workload["batch"]


def buckets_of(ddpsim: str, workload: Dict[str, Any], knobs: List[str]) -> List[List[int]]:
    """Of the steady step, as indices of tensors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "zoo.json"
        path.write_text(json.dumps(workload), encoding="utf-8")
        line = [ddpsim, "show", "buckets", "--workload", str(path), "--cluster", "hgx-h100"]
        for knob in ["pytorch=1.13", *knobs]:
            line += ["--set", knob]
        home = dict(os.environ, DDPSIM_HOME=str(ROOT))
        line += ["--format", "json"]
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=home)
    if done.returncode:
        raise RuntimeError(done.stderr)
    steady = [s for s in json.loads(done.stdout)["steps"] if s["kind"] == "steady"]
    names = [t["name"] for t in workload["tensors"]]
    return [
        [names.index(t) if isinstance(t, str) else t for t in b["tensors"]]
        for b in steady[-1]["buckets"]
    ]


def beside(ddpsim: str, name: str) -> Beside:
    """REQUIRES: a process group (executed_steps.alone)."""
    entry = zoo.ZOO[name]
    torch.manual_seed(1)
    with executed_steps.quick_weights():
        model, inputs, loss_fn = entry.small()
    zoo.without_chance(model)
    options = {entry.ddp: True} if entry.ddp else {}
    real = executed_steps.executed(model, describe.cap.as_inputs(inputs), loss_fn, **options)
    said = described(model, inputs, loss_fn, name)
    saved = sum(x["saves"][0] for x in said["layers"]) * said["batch"]
    knobs = [f"{k}=true" for k in options]
    buckets = buckets_of(ddpsim, said, knobs)
    elements = sum(math.prod(t["shape"]) for t in said["tensors"] + said.get("frozen", []))
    return Beside(
        said["arrival"] == real.arrival,
        buckets == real.buckets,
        len(buckets),
        total(said, "forward") / max(1, real.forward) - 1,
        total(said, "backward") / max(1, real.backward) - 1,
        saved / real.saved - 1,
        elements / sum(p.numel() for p in model.parameters()) - 1,
    )


# ---- at full size, in a process of its own


class Full(NamedTuple):
    wall_s: float  # of the whole command
    core_s: float
    peak_bytes: int
    parameters: int
    forward: float  # operations: described / counted - 1
    backward: float
    tera: float  # described, forward and backward of a batch
    batch: int


def full(name: str) -> Full:
    """What ``ddpsim describe`` does, and then its operations counted without memory."""
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import zoo_checks as z;"
    code += f" z.child({name!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    return Full(*json.loads(done.stdout.strip().splitlines()[-1]))


def child(name: str) -> None:
    torch.set_num_threads(1)
    factory = f"{HERE / 'model_zoo.py'}:{name}"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "full.json"
        code = describe.main(["--factory", factory, "--out", str(out)])
        wall = time.time() - started()
        core = time.process_time()
        peak = high_water()
        workload = json.loads(out.read_text(encoding="utf-8"))
    if code:
        sys.exit(code)
    forward, backward = counted(factory)
    said = [total(workload, d) for d in ("forward", "backward")]
    parameters = sum(torch.Size(t["shape"]).numel() for t in workload["tensors"])
    print(json.dumps([
        wall, core, peak, parameters, said[0] / forward - 1, said[1] / backward - 1,
        sum(said) / 1e12, workload["batch"],
    ]))  # fmt: skip


def started() -> float:
    """When this process began, seconds since the epoch."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def high_water() -> int:
    """Bytes; of this process alone."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def counted(factory: str):
    """Operations of a step without memory, by functions' shapes."""
    args = describe.parse(["--factory", factory, "--out", "zoo.json"])
    made = describe.made_by(args)
    describe.moved_to_meta(made.model)
    inputs = describe.without_values(made.inputs)
    parameters = [p for p in made.model.parameters() if p.requires_grad]
    step = describe.cap.Step(
        made.model, inputs, None, made.loss_fn, None, "fp32", describe.META, parameters
    )  # fmt: skip
    with warnings.catch_warnings(), describe.WithoutMemory(), CountedFlops() as count:
        warnings.simplefilter("ignore")
        loss = step.loss()
        if name_of_checkpoint(made.model):
            count.again = True
            torch.autograd.backward(loss, torch.ones_like(loss))
    return count.forward, count.backward


def name_of_checkpoint(model) -> bool:
    return bool(getattr(model, "checkpoint", 0))
