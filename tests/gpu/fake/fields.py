#!/usr/bin/env python3
"""Is each number that the harness measures read by something, and is each number of a fitted
profile measured or marked as not?

  fields.py DDPSIM_FAKE_GPU

The documents are what the harness writes on a GPU that is not there (fake.h, torch/fake_cuda). Of
each kind of sample its times are multiplied, and each parameter is left out, or else doubled: then
`ddpsim fit`, `ddpsim predict` or tools/gpu_report must say something else (or refuse), and the
parameter's name must be in their sources; or FOR says for whom it is written. What the fit does not
change when its base is another one is measured; the rest must be marked.
"""
import copy
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from check import ROOT, Machine, load  # noqa: E402
from planted import DEFAULT  # noqa: E402

TORCH = Path(__file__).resolve().parent / "torch"
sys.path.append(str(TORCH))
from machine import FAST, SLOW, Machine as TorchMachine, task  # noqa: E402

sys.path.append(str(ROOT / "tools/python"))
from ddpsim_profiles import read_profile  # noqa: E402

PYTHON = "/usr/bin/python3"  # Debian's python3-torch belongs to it
CAPTURE = "resnet50-b8-fp32"  # what the small model is called, so that the report lists it
STAGES = {"memory": 4, "gemm": 6, "conv": 60, "host": 3, "interference": 4, "copies": 4}
DURATION = "durations_ps"

# Written for a person: (kind of sample, parameter or DURATION) -> for what; "*": of every kind, and
# every parameter.
FOR = {
    ("*", "sm_mhz"): "a person: the clock at which a sample was read",
    ("*", "power_mw"): "a person: the power at which a sample was read",
    ("*", "celsius"): "a person: the temperature at which a sample was read",
    ("*", "throttle_bits"): "a person: why the clock was low",
    ("conv", "algorithm"): "a person: why a convolution is fast or slow",
    ("conv", "math"): "a person: why a convolution is fast or slow",
    ("conv", "workspace_bytes"): "a person: why a convolution is fast or slow",
    ("move", "kernel"): "a person: what moved the bytes of `traffic`",
    ("gemm_sustained", "precision"): "a person: the stage's only one is bf16",
    ("interference", "threads"): "a person: what the stand-in was",
    ("interference", "bytes_per_us"): "a person: the fit takes all rates together",
    ("torch/*", "kind"): "a person: the sample's name says the same",
    ("torch_host/*", "*"): "a person: the shape of the call; the report takes all of them together",
    ("memory_bytes", DURATION): "nobody: a Run's samples have times",
    ("memory_bytes", "*"): "a person: memory by kind; the peaks are in reports/gpu.md",
    ("sustained_step", DURATION): "a person: the step at the clock that it comes down to",
    ("profiled_busy", "kernels"): "a person: how many kernels a phase has",
    ("profiled_busy", "launches"): "a person: how many calls launched them",
    ("profiled_step", "kernels"): "a person: how many kernels a step has",
    ("profiled_step", "rank"): "a person: gpu_import judges the first rank",
    ("profiled_step", DURATION): "a person: the step under the profiler",
    ("cores_busy", DURATION): "nobody: a Run's samples have times",
    ("cores_busy", "thousandths"): "a person: what else ran on the host before the start",
    ("layer_profile", DURATION): "a person: the raw passes of `layers`",
    ("layer_profile", "rank"): "a person: the raw passes of `layers`",
}
# Of a capture's `times`: the same.
FOR_TIMES = {
    "raw": "a person: the raw readings of the medians; the steps' spread is an interval",
    "notes": "a person",
    "instrumented_excess": "a person: what the hooks cost",
    "modules": "a person: where a step's time goes",
}


report = load("gpu_report", ROOT / "tools/gpu_report")
gpu_import = load("gpu_import", ROOT / "tools/gpu_import")
READERS = sorted(ROOT.glob("calib/fit/*.cc")) + [
    ROOT / "tools/gpu_report",
    ROOT / "tools/gpu_import",
]
SOURCES = "".join(f.read_text(encoding="utf-8") for f in READERS)


def kind_of(op):
    parts = op.split("/")
    if op.startswith("layer_profile"):
        return "layer_profile"
    return "/".join(parts[:2]) if parts[0].startswith("torch") else parts[0]


def listed(kind, field):
    family = kind.split("/")[0] + "/*"
    fields = (field,) if field == DURATION else (field, "*")
    return any((k, f) in FOR for k in (kind, family, "*") for f in fields)


# ---- what the harness writes


def documents_of_cuda(ddpsim, folder):
    """{name: Run} of the stages; of products and convolutions every eighth shape, which is enough
    for a fit."""
    machine, out = Machine(ddpsim, folder / "cuda", DEFAULT), {}
    for stage, seconds in STAGES.items():
        status, run, said = machine.stage(stage, seconds)
        if status or not run:
            sys.exit(f"stage {stage}: {said}")
        each = {"gemm": 3, "conv": 8}.get(stage, 1)
        run["samples"] = run["samples"][:1] + run["samples"][1::each]
        out[f"cuda-{stage}"] = run
    return out


def documents_of_torch(folder, gpu):
    """({name: Run}, a workload) of PyTorch's scripts; ({}, None) without PyTorch."""
    have = "import importlib.util as u; exit(u.find_spec('torch') is None)"
    if not Path(PYTHON).exists() or subprocess.run([PYTHON, "-c", have], check=False).returncode:
        print("PyTorch is missing (Debian: python3-torch): its documents are left out")
        return {}, None
    fast = TorchMachine(folder / "fast", FAST, python=PYTHON)
    only = [x for g in ("linear", "pointwise", "copy", "host") for x in ("--only", g)]
    status, said = fast.run(
        fast.tools / "ddpsim_ops.py", "--seconds", 2, "--out", "ops.json", *only
    )
    if status:
        sys.exit(said)
    ops = json.loads((fast.folder / "ops.json").read_text(encoding="utf-8"))
    # Debian's PyTorch has no fused attention; the others take long, or are too few in so short a
    # time.
    real = report.read(ROOT / "calib/gpu-runs/h100-sxm/torch-ops.json.gz")["samples"]
    for kind in ("torch/attention", "torch/optimizer", "torch/conv", "torch/pointwise/add"):
        ops["samples"] += [s for s in real if s["op"].startswith(kind)][:90]
    ops["origin"]["gpu"] = gpu
    slow = TorchMachine(folder / "slow", dict(SLOW, cold_ms=1.0), python=PYTHON)
    made = slow.captured([task("mlp", "fp32", repeats=3)])
    recorded = slow.recorded("--steps", "3", "--precision", "fp32", "--factory", "fake_models:mlp")
    for each in (made, recorded):
        if isinstance(each, str):
            sys.exit(each)
    workload, profile = made["mlp-fp32"]
    return {"torch-ops": ops, f"profile-{CAPTURE}": profile, "torch-record": recorded}, workload


# ---- what reads it


class Readers:
    """Answers of everything that reads samples, as text; a refusal is an answer, too."""

    def __init__(self, ddpsim, folder, workload):
        self.ddpsim, self.folder = ddpsim, folder
        place = self.folder / f"captured/machine/{CAPTURE}.json.gz"
        place.parent.mkdir(parents=True)
        place.write_bytes(gzip.compress(json.dumps(workload).encode()))

    def fit(self, runs, base="h100-sxm.datasheet"):
        place = self.folder / "runs"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name, run in runs.items():
            (place / f"{name}.json").write_text(json.dumps(run), encoding="utf-8")
        out = self.folder / "fitted.json"
        command = [self.ddpsim, "fit", "--backend", "cuda", "--base", base, "--name", "fitted"]
        done = subprocess.run(
            [*map(str, command), "--runs", str(place), "--out", str(out)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr
        return out.read_text(encoding="utf-8") + done.stdout

    def report(self, runs):
        place = self.folder / "gpu-runs/machine"
        place.mkdir(parents=True, exist_ok=True)
        for name, run in runs.items():
            (place / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(run).encode(), 1))
        report.RUNS, report.CAPTURED = place.parent, self.folder / "captured"
        try:
            tables = report.rest_table(["machine"]) + report.kinds_table(["machine"])
            return "\n".join(tables) + json.dumps(report.captures(["machine"]))
        except (KeyError, IndexError, ValueError) as error:
            return repr(error)

    def imported(self, runs):
        run = copy.deepcopy(runs["torch-record"])
        try:
            gpu_import.judge("torch-record", run, {"torch-record"})
        except (KeyError, TypeError) as error:
            return repr(error)
        return json.dumps(run["quality"])

    def answers(self, runs, name):
        """Of those who read a document of that name."""
        if name == "torch-record":
            return [lambda: self.imported(runs)]
        fits = {k: r for k, r in runs.items() if k.startswith("cuda-") or k == "torch-ops"}
        without = {k: r for k, r in fits.items() if k != "torch-ops"}  # a machine without PyTorch
        out = [lambda: self.report(runs)]
        if name in fits:
            out.append(lambda: self.fit(fits))
        if name in without:
            out.append(lambda: self.fit(without))
        return out


def changed(runs, name, kind, field, how):
    """The documents with one field of one kind of sample changed."""
    run = dict(runs[name], samples=[])
    for k, s in enumerate(runs[name]["samples"]):
        s = dict(s, parameters=dict(s["parameters"]))
        if kind_of(s["op"]) == kind and field == DURATION:
            s[DURATION] = [100 * (2 + k % 3) * d for d in s[DURATION]]
        elif kind_of(s["op"]) == kind and field in s["parameters"]:
            if how == "left out":
                del s["parameters"][field]
            else:
                s["parameters"][field] = 2 * s["parameters"][field] + 1
        run["samples"].append(s)
    return {**runs, name: run}


def unread_samples(readers, runs):
    """Sentences."""
    wrong, count, used = [], 0, 0
    for name, run in runs.items():
        before = [answer() for answer in readers.answers(runs, name)]
        fields = {
            (kind_of(s["op"]), f) for s in run["samples"] for f in [DURATION, *s["parameters"]]
        }
        for kind, field in sorted(fields):
            count += 1
            if listed(kind, field):
                continue
            says_so = field == DURATION or f'"{field}"' in SOURCES
            other = any(
                answer() != was
                for how in ("left out", "doubled")[: 2 - (field == DURATION)]
                for answer, was in zip(
                    readers.answers(changed(runs, name, kind, field, how), name), before
                )
            )
            readers.answers(runs, name)  # the files as they were
            if says_so and other:
                used += 1
            else:
                wrong.append(f"nobody reads \"{field}\" of samples {kind} ({name})")
        for answer in readers.answers(runs, name):
            answer()
    print(f"{count} fields of samples, {used} read, {count - used - len(wrong)} listed")
    return wrong


def unread_times(ddpsim, folder, workload):
    """Sentences about `times` of a capture that no prediction reads."""
    path, wrong = folder / "workload.json", []

    def predicted(document):
        path.write_text(json.dumps(document), encoding="utf-8")
        command = [ddpsim, "predict", "--workload", path, "--cluster", "dgx-h100", "--ranks", "2"]
        command += ["--plan", "fsdp"]
        done = subprocess.run(
            [*map(str, command), "--format", "json"], capture_output=True, text=True, check=False
        )
        said = json.loads(done.stdout) if done.returncode == 0 else {"summary": done.stderr}
        return json.dumps(said["summary"])

    def scaled_host(by):
        return {
            k: [by * x for x in v] if isinstance(v, list) else by * v
            for k, v in workload["times"].items()
            if k.startswith("host_")
        }

    fields = [f for f in workload["times"] if f not in (*FOR_TIMES, "layers")]
    fields += [f"layers.{k}" for k in workload["times"]["layers"][0] if k.endswith("_ps")]
    for field in fields:
        other = False
        for host in (scaled_host(1), scaled_host(10_000)):  # the GPU decides, the host decides
            times = {**workload["times"], **host}
            if field.startswith("layers."):  # the last one's goes to the first
                *layers, last = times["layers"]
                more = {"layers": [*layers, {**last, field.removeprefix("layers."): 0}]}
            elif isinstance(times[field], list):
                more = {field: [max(times[field])] * len(times[field])}
            else:
                more = {field: 2 * times[field]}
            before, after = (predicted({**workload, "times": {**times, **m}}) for m in ({}, more))
            if "step_ps" not in before or "step_ps" not in after:
                sys.exit(f"predict: {field}: {before} {after}")
            other |= before != after
        if not other:
            wrong.append(f"no prediction reads times.{field} of a capture")
    print(f"{len(fields)} times of a capture, {len(wrong)} unread")
    return wrong


# ---- what a fitted profile says


def leaves(value, place=()):
    if isinstance(value, dict):
        for k, v in value.items():
            yield from leaves(v, (*place, k))
    elif isinstance(value, list):
        for k, v in enumerate(value):
            yield from leaves(v, (*place, str(k)))
    elif not isinstance(value, (str, bool)):
        yield place, value


def scaled(base):
    """Another base: every number 1.25 times as large, and ranges that are shares 0.8 times."""

    def change(v, key=""):
        if isinstance(v, dict):
            return {k: change(x, k) for k, x in v.items()}
        if isinstance(v, list):
            return [change(x, key) for x in v]
        if isinstance(v, (str, bool)) or key in (
            "compute_capability",
            "sms",
            "clock_hz",
            "captures",
            "capacity_bytes",
        ):
            return v
        if key == "slow":  # at least 1
            return 1.25 * v
        return 0.8 * v if isinstance(v, float) else v * 5 // 4

    return change(base)


# A section that is measured has this from its base, by a word of its `source`.
SAID = {
    ("compute", "efficiency", "attention"): "attention",
    ("power",): "reports/gpu.md",
}
# What the device is; the fit refuses a base with another capacity.
FACTS = {
    ("compute", "compute_capability"),
    ("compute", "sms"),
    ("compute", "clock_hz"),
    ("memory", "capacity_bytes"),
}


def unmarked(readers, runs, folder):
    """Sentences about numbers of a fitted profile that do not say where they are from."""
    base = read_profile(ROOT / "calib/profiles/h100-sxm.datasheet.json")
    other = folder / "other.json"
    other.write_text(json.dumps(scaled(base)), encoding="utf-8")
    fits = []
    for path in (ROOT / "calib/profiles/h100-sxm.datasheet.json", other):
        said = readers.fit(runs, path)
        fits.append(json.loads((readers.folder / "fitted.json").read_text(encoding="utf-8")))
        if not said.startswith("{"):
            return [f"fit: {said}"]
    numbers = [dict(leaves(f)) for f in fits]
    wrong, measured, taken = [], 0, 0
    for place, value in numbers[0].items():
        if place[0] in ("fit", "kernels") or place in FACTS:
            continue  # `fit` is about the fit; `kernels` has no base
        if value == 0:
            continue  # whichever base it is of, it is the same
        section = fits[0]["transports"][place[1]] if place[0] == "transports" else fits[0][place[0]]
        name = ".".join(place)
        source = section["source"]
        if numbers[1].get(place) == value:
            measured += 1
            if section["basis"] != "measured" and not (place[0] == "host" and "measured" in source):
                wrong.append(f"{name} is measured, and its section's basis is {section['basis']}")
            continue
        taken += 1
        word = next((w for k, w in SAID.items() if place[: len(k)] == k), None)
        if section["basis"] == "measured" and (word is None or word not in source):
            wrong.append(f"{name} is the base profile's, and its section says it is measured")
    if "kernels" in fits[0] and fits[0]["kernels"] != fits[1]["kernels"]:
        wrong.append("kernels: something in it is the base profile's")
    print(f"a fitted profile: {measured} numbers are measured, {taken} the base's")
    return wrong


def main():
    if len(sys.argv) < 2:
        print("gpu.fake_fields: skipped: built without the headers of CUDA, cuDNN and NCCL")
        return 77
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = documents_of_cuda(sys.argv[1], folder)
        more, workload = documents_of_torch(folder, runs["cuda-memory"]["origin"]["gpu"])
        runs.update(more)
        print(f"documents: {time.monotonic() - begin:.0f} s")
        readers = Readers(sys.argv[1], folder / "readers", workload)
        wrong = unread_samples(readers, runs)
        fits = {k: r for k, r in runs.items() if k.startswith("cuda-") or k == "torch-ops"}
        wrong += unmarked(readers, fits, folder)
        if workload:
            wrong += unread_times(sys.argv[1], folder, workload)
    for line in wrong:
        print("WRONG: " + line)
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
