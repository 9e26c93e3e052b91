#!/usr/bin/env python3
"""From a GPU that is not there to rows of the accuracy table (fake.h), with the commands that a
user has: tools/gpu_calibrate -> tools/gpu_import (ddpsim import) -> ddpsim fit -> ddpsim validate.

  chain.py DDPSIM_FAKE_GPU    fixed planted values, and others drawn from a seed

Kernels, NCCL and replays run on the fake of CUDA's libraries; captures and recorded steps of DDP on
the stand-in for PyTorch's CUDA (torch/fake_cuda), which is planted as the same device. Every class
of CLASSES must have rows, all held out, none noisy, and each within 2 % of what was executed; steps
of PyTorch, predicted and recorded, also of what torch/train.py's stopwatch says, which knows
nothing of ddpsim. The seed is printed; DDPSIM_FAKE_SEED repeats it.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from check import ROOT, Machine, load  # noqa: E402
from planted import DEFAULT, drawn, found_by_fit  # noqa: E402

TORCH = Path(__file__).resolve().parent / "torch"
sys.path.append(str(TORCH))
from machine import FAST, Machine as TorchMachine  # noqa: E402

WITHIN = 0.02
# What makes the numbers that everything is predicted with.
MEASURED = [
    "memory",
    "gemm",
    "conv",
    "host",
    "interference",
    "copies",
    "nccl",
    "nccl-one-gpu",
    "fit-kernels",
    "fit-loopback",
]
# What is captured and recorded by PyTorch (gpu_calibrate --models), and the buckets of its records.
# Their names say that all of them are held out (tools/python/ddpsim_names.py).
MODEL = {
    "name": "wide-b131072-fp32",
    "factory": "fake_models:wide",
    "batch": 131072,
    "precision": "fp32",
    "repeats": 4,
}
CASES = ((1, 25), (2, 25), (2, 1))  # ranks, bucket_cap_mb; 25: its default
MODELS = {
    "captures": [MODEL],
    "records": [
        {
            "capture": MODEL["name"],
            "ranks": n,
            "steps": 8,
            **({} if cap == 25 else {"bucket_cap_mb": cap}),
        }
        for n, cap in CASES
    ],
}
PYTHON = "/usr/bin/python3"  # Debian's python3-torch belongs to it
# Evidence, the stages that leave its Runs, and how many rows those are.
OF_TORCH = [
    ("system_gpu", ["captures", "records-held-n1"], 1),
    ("system_one_gpu", ["records-held-n2"], 2),
]
CLASSES = [
    ("replay_gpu", ["run-resnet50", "run-resnet50-cap1"], 2),
    ("replay_one_gpu", ["run-resnet50-2", "run-resnet50-2-cap5", "run-resnet50-4"], 3),
]
FORCED = ["all_reduce@one-gpu/n2/ring/ll", "all_reduce@one-gpu/n2/ring/simple"]
LINK_BYTES_PER_S = 5e9  # topologies/one-gpu.json


def same_device(p):
    """What is planted in the stand-in for PyTorch's CUDA: the device of the other libraries, and
    between two ranks what their rings take."""
    same = (
        "memory_bytes_per_s",
        "kernel_us",
        "fp32",
        "tf32",
        "bf16",
        "fp16",
        "conv",
        "latency_us",
        "event_us",
        "pcie_bytes_per_s",
        "pageable_bytes_per_s",
        "nccl_bytes_per_s",
    )
    return {**FAST, **{k: p[k] for k in same}, "nccl_us": 2 * p["nccl_step_us"]}


def measured(machine, name, classes):
    """(folder of Runs as they would be committed, sentences about what went wrong)"""
    stages = MEASURED + [s for _, more, _ in classes for s in more]
    models = machine.folder / "models.json"
    models.write_text(json.dumps(MODELS), encoding="utf-8")
    planted = machine.folder / "planted-torch"
    planted.write_text(
        "".join(f"{k} {v!r}\n" for k, v in same_device(machine.planted).items()), encoding="utf-8"
    )
    machine.env.update(
        DDPSIM_FAKE_TORCH=str(planted),
        PYTHONPATH=str(TORCH / "site"),
        PYTHONDONTWRITEBYTECODE="1",
        OMP_NUM_THREADS="1",
    )
    status, said, error = machine.calibrate(stages, "--models", models, "--python", PYTHON)
    print(f"--- planted: {name}\n{said}", end="")
    if status or f"{len(stages)} of {len(stages)} stages" not in said:
        return None, [f"{name}: gpu_calibrate ended with {status}: {error.strip()[-300:]}"]
    gpu_calibrate = load("gpu_calibrate", ROOT / "tools/gpu_calibrate")
    whole = machine.folder / "out/runs.tar.gz"
    gpu_calibrate.PART_BYTES = whole.stat().st_size * 2 // 3  # as if that were what may come back
    session = gpu_calibrate.Session(machine.folder / "out")
    session.pack()
    if len(session.parts) < 2 or session.too_much:
        return None, [f"{name}: the archive is not in parts: {session.what_came()}"]
    out = machine.folder / "imported"
    status, said, error = machine.ask(
        sys.executable,
        ROOT / "tools/gpu_import",
        *session.parts,
        "--name",
        "h100-sxm",
        "--cluster",
        "hgx-h100",
        "--ddpsim",
        machine.ddpsim,
        "--out",
        out,
    )
    print(said + error, end="")
    if status:
        return None, [f"{name}: gpu_import ended with {status}: {error.strip()[-300:]}"]
    return out, []


def profiles_are_planted(name, out, p):
    """Sentences about what the two fits missed."""
    wrong = []
    if not (out / "profiles/h100-sxm.one-gpu.json").exists():
        return [f"{name}: no profile came back"]
    kernels = json.loads((out / "profiles/h100-sxm.json").read_text(encoding="utf-8"))
    loopback = json.loads((out / "profiles/h100-sxm.one-gpu.json").read_text(encoding="utf-8"))
    link = loopback["transports"]["loopback"]
    rows = found_by_fit(kernels, p) + [
        (
            "loopback, bytes a second",
            p["nccl_bytes_per_s"],
            LINK_BYTES_PER_S * link["efficiency"]["mid"],
        ),
        (
            "sm_hold of two blocks",
            2 * p["product_hold"],
            loopback["interference"]["sm_hold"]["mid"],
        ),
    ]
    for what, planted, got in rows:
        slack = 2 * p["noise"] if "hold" in what else 0
        if abs(got - planted) > WITHIN * planted + slack:
            wrong.append(f"{name}: fit: {what}: planted {planted:g}, fitted {got:g}")
    print(f"{len(rows)} fitted values, {len(wrong)} wrong")
    if sorted(loopback["fit"]["scenarios"]) != FORCED:
        wrong.append(f"{name}: the loopback was fitted from {loopback['fit']['scenarios']}")
    return wrong


def truths_of_torch(machine, several):
    """{(ranks, bucket_cap_mb): ms} by a stopwatch in a plain loop; `several`: of two ranks, too."""
    torch = TorchMachine(machine.folder / "truth", same_device(machine.planted), python=PYTHON)
    truths = {}
    for ranks in (1, 2) if several else (1,):
        caps = [cap for n, cap in CASES if n == ranks]
        asked = [
            {
                "system": "ddp",
                "model": "wide",
                "precision": "fp32",
                "bucket_cap_mb": cap,
                "steps": 8,
            }
            for cap in caps
        ]
        for cap, truth in zip(caps, torch.truths(ranks, asked)):
            truths[ranks, cap] = truth["step_ms"]
    return truths


def rows_of_torch(name, machine, out, rows):
    """Sentences about recorded steps of PyTorch that are not what was planted."""
    several = any(p["evidence"] == "system_one_gpu" for p in rows)
    truths, wrong = truths_of_torch(machine, several), []
    for p in rows:
        scenario = json.loads((out / "scenarios" / f"{p['scenario']}.json").read_text())
        truth = truths[scenario["ranks"], scenario.get("plan", {}).get("bucket_cap_mb", 25)]
        for what in ("predicted", "measured"):
            got = p[f"{what}_ps"] / 1e9
            if abs(got / truth - 1) > WITHIN:
                wrong.append(f"{name}: {p['key']}: {what} {got:.3f} ms, planted {truth:.3f}")
    return wrong


def rows_are_there(name, machine, out, classes):
    """Sentences about the accuracy table's rows."""
    status, said, error = machine.run("validate", "--runs", out, "--format", "json")
    if status:
        return [f"{name}: validate ended with {status}: {error.strip()[-500:]}"]
    table = json.loads(said)
    wrong = []
    for evidence, _, count in classes:
        rows = [p for p in table["pairs"] if p["evidence"] == evidence]
        for p in rows:
            print(
                f"{p['evidence']:<16} {p['key'][:56]:<56} {p['measured_ps'] / 1e9:9.3f} ms "
                f"{100 * p['error']:+6.2f} %  {p['sample']}{', noisy' if p['noisy'] else ''}"
            )
            if p["sample"] != "held_out" or p["noisy"] or abs(p["error"]) > WITHIN:
                wrong.append(
                    f"{name}: {p['key']}: {100 * p['error']:+.2f} %, {p['sample']}, "
                    f"{'noisy' if p['noisy'] else 'clean'}"
                )
        if len(rows) != count:
            wrong.append(f"{name}: {len(rows)} rows of {evidence}, not {count}")
    stray = {p["evidence"] for p in table["pairs"]} - {e for e, _, _ in classes}
    if stray:
        wrong.append(f"{name}: rows of {stray}, which nothing made")
    budget = out / "budget.json"
    limits = json.loads(budget.read_text(encoding="utf-8"))["limits"] if budget.exists() else []
    if {x["what"] for x in limits if "min" in x} != {f"{e}.held_out.n" for e, _, _ in classes}:
        wrong.append(f"{name}: the budget limits {[x['what'] for x in limits]}")
    of_torch = [p for p in table["pairs"] if p["evidence"].startswith("system")]
    return wrong + (rows_of_torch(name, machine, out, of_torch) if of_torch else [])


def collectives_are_shown(name, machine, out):
    """Sentences about NCCL's tables: which are held out, and the long ones' errors."""
    status, said, error = machine.run(
        "validate", "--collectives", "--published", out, "--runs", out, "--format", "json"
    )
    if status:
        return [f"{name}: validate --collectives ended with {status}: {error.strip()[-300:]}"]
    wrong = []
    tables = json.loads(said)["tables"]
    seen = sorted(t["name"] for t in tables if t["sample"] == "in_sample")
    if len(seen) != 2 or not all("all_reduce-one-gpu-n2-ring" in s for s in seen):
        wrong.append(f"{name}: tables in sample: {seen}")
    held = [t for t in tables if t["sample"] == "held_out"]
    # How a chain fills is not planted.
    rings = [t for t in held if not t["name"].startswith(("nccl-broadcast-", "nccl-reduce-"))]
    long = [
        (t["name"], r["bytes"], r["predicted_ps"] / r["measured_ps"] - 1)
        for t in rings
        for r in t["rows"]
        if r["bytes"] >= 16 << 20 and r["algorithm"] == "ring"
    ]
    worst = max(long, key=lambda x: abs(x[2]), default=("none", 0, 1))
    print(
        f"{len(tables)} tables of collectives, {len(held)} held out; {len(long)} long rings of "
        f"them, the worst {100 * worst[2]:+.2f} % ({worst[0]}, {worst[1]} bytes)"
    )
    if len(held) < 10 or abs(worst[2]) > WITHIN:
        wrong.append(f"{name}: a long ring of {worst[0]} is off by {100 * worst[2]:+.2f} %")
    return wrong


def chain(ddpsim, folder, name, p, classes):
    """Sentences about what is wrong."""
    begin = time.monotonic()
    machine = Machine(ddpsim, Path(folder) / name, p)
    out, wrong = measured(machine, name, classes)
    if out:
        wrong += profiles_are_planted(name, out, p) + rows_are_there(name, machine, out, classes)
        wrong += collectives_are_shown(name, machine, out)
    wrong += [f"{name}: still running: {c}" for c in machine.left_running()]
    print(f"{time.monotonic() - begin:.0f} s")
    return wrong


def main():
    if len(sys.argv) < 2:
        print("gpu.fake_chain: skipped: built without the headers of CUDA, cuDNN and NCCL")
        return 77
    seed = os.environ.get("DDPSIM_FAKE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed} (DDPSIM_FAKE_SEED={seed} repeats it)")
    classes, find = CLASSES, "import importlib.util as u; exit(u.find_spec('torch') is None)"
    if not Path(PYTHON).exists() or subprocess.run([PYTHON, "-c", find], check=False).returncode:
        print("no rows of system_gpu: PyTorch is missing (Debian: python3-torch)")
    else:
        classes = OF_TORCH + CLASSES
    with tempfile.TemporaryDirectory() as folder:
        wrong = chain(sys.argv[1], folder, "fixed", DEFAULT, classes)
        alone = [c for c in classes if c[0] != "system_one_gpu"]  # the ranks' processes take long
        wrong += chain(sys.argv[1], folder, "drawn", drawn(seed), alone)
    for line in wrong:
        print("WRONG: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
