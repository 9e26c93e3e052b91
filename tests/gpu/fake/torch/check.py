#!/usr/bin/env python3
"""PyTorch's part of the harness (tools/python) on a CUDA device that is not there (fake_cuda).

  check.py capture             captures, memory, profiler: three sets of planted values, one drawn
  check.py record              recorded steps of one and two ranks, DDP and others
  check.py ops                 the times of operators
  check.py run DDPSIM [FAKES]  ddpsim run --backend torch -> ddpsim validate; FAKES: folder of the
                               MPS daemon that is not there, where ddpsim was built with CUDA

The seed is printed; DDPSIM_FAKE_SEED repeats it. Needs PyTorch, built with CUDA or without.
"""
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is missing (Debian: python3-torch)")
    sys.exit(77)
sys.path.insert(0, str(Path(__file__).resolve().parent))
import judges  # noqa: E402
from machine import FAST, HERE, HOST, ROOT, SLOW, Machine, drawn, task, the_seed  # noqa: E402

sys.path.append(str(ROOT / "tools/python"))
from ddpsim_profiles import read_profile  # noqa: E402


# ---- what is asked


def captures_of(machine, tasks):
    """Sentences about what is wrong with these captures."""
    made = machine.captured(tasks)
    if isinstance(made, str):
        return [made]
    wrong = []
    for t in tasks:
        model, precision = t["factory"].partition(":")[2], t["precision"]
        workload, run = made[t["name"]]
        truth = machine.truth(
            model=model, precision=precision, set_to_none=True, optimizer=t.get("optimizer", "sgd")
        )
        bad = judges.capture(machine.p, workload, run, truth)
        if model == "mlp" and truth["busy"] and precision != "fp16":
            bad += judges.counted(machine.p, workload)
        times = [workload["times"][f"{k}_ps"] / 1e9 for k in ("forward", "backward", "optimizer")]
        print(
            (
                f"{t['name']:<16} {' + '.join(f'{x:.3f}' for x in times)} ms, planted "
                f"{truth['step_ms']:.3f}: {len(bad)} wrong"
            ),
            flush=True,
        )
        wrong += [f"{t['name']}: {b}" for b in bad]
    return wrong


def by_itself(machine):
    """ddpsim_capture.py: a model with an optimizer of its own, precision as PyTorch is set."""
    out = machine.folder / "alone.json"
    status, said = machine.run(
        machine.tools / "ddpsim_capture.py",
        "--factory",
        "fake_models:mlp_with_optimizer",
        "--device",
        "cuda",
        "--out",
        out,
    )
    if status:
        return [f"ddpsim_capture.py ended with {status}: {said[-300:]}"]
    workload = judges.load(out)
    bad = judges.counted(machine.p, workload)
    print(f"{'by itself':<16} {workload['precision']}: {len(bad)} wrong", flush=True)
    return [f"by itself: {b}" for b in bad]


def capture(folder):
    seed = the_seed()
    wrong = by_itself(Machine(folder, SLOW))
    for name, p in (("slow", SLOW), ("host", HOST), ("drawn", drawn(seed))):
        print(f"--- planted: {name}")
        tasks = [
            task("mlp", "tf32"),
            task("mlp", "fp32"),
            task("cnn", "tf32"),
            task("attention", "bf16", optimizer="adamw"),
            task("mlp", "fp16"),
        ]
        machine = Machine(f"{folder}/{name}", p)
        wrong += captures_of(machine, tasks if name != "drawn" else tasks[:2])
    return wrong


# (name, options of train.py, arguments of ddpsim_record.py, ranks)
DDP, STEPS = {"system": "ddp"}, ["--steps", "6", "--precision", "tf32"]
RECORDS = [
    ("DDP", dict(DDP, model="mlp"), ["--factory", "fake_models:mlp"], 1),
    ("DDP with buffers", dict(DDP, model="cnn"), ["--factory", "fake_models:cnn"], 1),
    (
        "DDP, small buckets, two ranks",
        dict(DDP, model="mlp", bucket_cap_mb=0.5),
        ["--factory", "fake_models:mlp", "--set", "bucket_cap_mb=0.5"],
        2,
    ),
    (
        "DDP, two buckets, two ranks",
        dict(DDP, model="mlp", bucket_cap_mb=100),
        ["--factory", "fake_models:mlp", "--set", "bucket_cap_mb=100"],
        2,
    ),
    (
        "averaging, two ranks",
        {"system": "averaging", "model": "mlp"},
        ["--factory", "fake_models:mlp", "--set", "system=averaging"],
        2,
    ),
    (
        "flat averaging, two ranks",
        {"system": "averaging", "model": "mlp", "how": "flat"},
        ["--factory", "fake_models:mlp", "--set", "system=averaging", "--set", "granularity=flat"],
        2,
    ),
    (
        "averaging, not waiting, two ranks",
        {"system": "averaging", "model": "mlp", "how": "async"},
        ["--factory", "fake_models:mlp", "--set", "system=averaging", "--set", "async_op=true"],
        2,
    ),
    (
        "gradients as halves, two ranks",
        dict(DDP, model="mlp", half=True),
        ["--factory", "fake_models:mlp", "--set", "comm_hook=fp16_compress"],
        2,
    ),
    (
        "DDP, bf16, AdamW",
        dict(DDP, model="attention", precision="bf16", optimizer="adamw"),
        ["--factory", "fake_models:attention", "--precision", "bf16", "--optimizer", "adamw"],
        1,
    ),
    (
        "DDP, fp16",
        dict(DDP, model="mlp", precision="fp16"),
        ["--factory", "fake_models:mlp", "--precision", "fp16"],
        1,
    ),
    (
        "DDP, gradients none",
        dict(DDP, model="mlp", set_to_none=True),
        ["--factory", "fake_models:mlp", "--set", "set_to_none=true"],
        1,
    ),
    (
        "DDP, gradients in buckets",
        dict(DDP, model="mlp", gradient_as_bucket_view=True),
        ["--factory", "fake_models:mlp", "--set", "gradient_as_bucket_view=true"],
        1,
    ),
    (
        "DDP, static graph",
        dict(DDP, model="cnn", static_graph=True),
        ["--factory", "fake_models:cnn", "--set", "static_graph=true"],
        1,
    ),
    (
        "DDP, finds unused",
        dict(DDP, model="cnn", find_unused_parameters=True),
        ["--factory", "fake_models:cnn", "--set", "find_unused_parameters=true"],
        1,
    ),
    (
        "DDP, two micro-steps",
        dict(DDP, model="mlp", micro=2),
        ["--factory", "fake_models:mlp", "--set", "accumulation_steps=2"],
        1,
    ),
    (
        "ZeRO-1, two ranks",
        dict(DDP, model="mlp", zero=True),
        ["--factory", "fake_models:mlp", "--record", "zero_redundancy_optimizer=true"],
        2,
    ),
]


def records_of(machine, which):
    wrong = []
    for name, options, arguments, ranks in which:
        truth = machine.truth(ranks=ranks, **options)
        run = machine.recorded(*STEPS, *arguments, ranks=ranks)
        bad = (
            [run]
            if isinstance(run, str)
            else judges.record(machine.p, run, truth, ranks, bool(options.get("half")))
        )
        got = f"{judges.steady_ms(run):.3f}" if not isinstance(run, str) else "no Run"
        print(f"{name:<34} {got} ms, planted {truth['step_ms']:.3f}: {len(bad)} wrong", flush=True)
        wrong += [f"{name}: {b}" for b in bad]
    return wrong


def slow_rank(machine):
    """Of two ranks the second takes 1.3 times as long: the layers are the slower one's."""
    rates = ("fp32", "tf32", "bf16", "fp16", "memory_bytes_per_s")
    slower = dict(machine.p, **{k: machine.p[k] / 1.3 for k in rates})
    slower["kernel_us"] *= 1.3
    of_rank = [machine.p, slower]
    arguments = ["--factory", "fake_models:mlp", "--set", "bucket_cap_mb=0.5"]
    truth = machine.truth(ranks=2, of_rank=of_rank, **DDP, model="mlp", bucket_cap_mb=0.5)
    run = machine.recorded(*STEPS, *arguments, ranks=2, of_rank=of_rank)
    if isinstance(run, str):
        return [run]
    foreach = int(str(run["origin"]["software"]).split()[1].split(".")[0]) >= 2
    bad = judges.record(machine.p, run, truth, 2)
    bad += judges.layers(machine.p, run, machine.p["tf32"], foreach, 1.3)
    print(
        (
            f"{'DDP, a slow rank':<34} {judges.steady_ms(run):.3f} ms, planted "
            f"{truth['step_ms']:.3f}: {len(bad)} wrong"
        ),
        flush=True,
    )
    return [f"a slow rank: {b}" for b in bad]


def listed(machine):
    """Two records one after another by the same two ranks, as tools/gpu_calibrate starts them."""
    caps, mps = (0.5, 100), machine.folder / "bin/nvidia-cuda-mps-control"
    mps.parent.mkdir()
    shutil.copy(HERE.parent / mps.name, mps)
    mps.chmod(0o755)
    items = [
        [
            *STEPS,
            "--factory",
            "fake_models:mlp",
            "--device",
            "cuda",
            "--set",
            f"bucket_cap_mb={c}",
            "--import-from",
            str(HERE),
            "--out",
            f"cap{c}.json",
        ]
        for c in caps
    ]
    (machine.folder / "list.json").write_text(json.dumps(items), encoding="utf-8")
    env = machine.environment(0, 1, 0, machine.p)
    done = subprocess.run(
        [
            sys.executable,
            machine.tools / "ddpsim_one_gpu.py",
            "--ranks",
            "2",
            "--",
            sys.executable,
            "-m",
            "fake_cuda",
            machine.tools / "ddpsim_record.py",
            "--list",
            "list.json",
        ],
        cwd=machine.folder,
        env={**env, "PATH": f"{mps.parent}:{env['PATH']}"},
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        return [f"a list: {(done.stderr or done.stdout)[-400:]}"]
    wrong = []
    for cap in caps:
        run = judges.load(machine.folder / f"cap{cap}.json")
        truth = machine.truth(ranks=2, **DDP, model="mlp", bucket_cap_mb=cap)
        bad = judges.record(machine.p, run, truth, 2)
        if not any(s["what"] == "links" for s in run["skipped"]):
            bad.append("the Run does not say that its links are none")
        print(
            (
                f"{f'on one GPU, listed, cap {cap}':<34} {judges.steady_ms(run):.3f} ms, planted "
                f"{truth['step_ms']:.3f}: {len(bad)} wrong"
            ),
            flush=True,
        )
        wrong += [f"a list, cap {cap}: {b}" for b in bad]
    return wrong


def freed(machine):
    status, said = machine.run(HERE / "freed.py", ranks=2)
    print(f"{'memory after collectives':<34} {'all free' if not status else 'in use'}", flush=True)
    return [f"memory after collectives: {said.strip()[-300:]}"] if status else []


def loopback(machine):
    """All-reduces of two ranks, wherever their threads are: what is planted."""
    out, p, ranks = "loopback.json", machine.p, 2
    status, said = machine.run(
        machine.tools / "ddpsim_loopback.py", "--seconds", 4, "--out", out, ranks=ranks
    )
    if status:
        return [f"ddpsim_loopback.py ended with {status}: {said[-300:]}"]
    wrong, places = [], set()
    for s in judges.load(machine.folder / out)["samples"]:
        _, place, way = s["op"].split("/")
        places.add(place)
        if way != "all_reduce":
            continue
        planted = p["nccl_us"] / 1e3 + 1e3 * s["parameters"]["bytes"] / p["nccl_bytes_per_s"]
        for ps in s["durations_ps"]:
            wrong += judges.near(f"{s['op']}, {s['parameters']}, ms", ps / 1e9, planted, 0.02)
    print(f"{'loopback':<34} {len(places)} places: {len(wrong)} wrong", flush=True)
    return wrong + ([] if "anywhere" in places else [f"no readings anywhere: {places}"])


def record(folder):
    wrong = loopback(Machine(f"{folder}/loopback", dict(FAST, nccl_bytes_per_s=5e8)))
    wrong += freed(Machine(f"{folder}/freed", SLOW))
    wrong += records_of(Machine(f"{folder}/slow", SLOW), RECORDS)
    wrong += slow_rank(Machine(f"{folder}/two", SLOW)) + listed(Machine(f"{folder}/list", SLOW))
    print("--- planted: host")
    return wrong + records_of(Machine(f"{folder}/host", HOST), [RECORDS[0], RECORDS[2]])


def operators_of(machine, seconds, *more):
    out = machine.folder / "ops.json"
    out.unlink(missing_ok=True)
    status, said = machine.run(
        machine.tools / "ddpsim_ops.py", "--seconds", seconds, "--out", out, *more
    )
    if status:
        return 0, [f"ddpsim_ops.py ended with {status}: {said[-300:]}"]
    return judges.operators(machine.p, judges.load(out))


def ops(folder):
    wrong = []
    # Optimizers alone: parameters by the hundred, so that a call fills the queue.
    for seconds, least, groups in (
        (3, 300, ("conv", "linear", "pointwise", "copy", "host")),
        (60, 12, ("optimizer",)),
    ):
        only = [x for g in groups for x in ("--only", g)]
        judged, bad = operators_of(Machine(folder, FAST), seconds, *only)
        print(f"{', '.join(groups)}: {judged} samples judged, {len(bad)} wrong", flush=True)
        wrong += bad + ([] if judged >= least else [f"only {judged} samples could be judged"])
    return wrong


# ---- ddpsim run --backend torch


def planted_profile(machine, name):
    """A profile and a cluster that say what is planted; ``ddpsim`` adds nothing to them."""
    p = machine.p
    profile = read_profile(ROOT / "calib/profiles/h100-sxm.datasheet.json")
    one = {"low": 1.0, "mid": 1.0, "high": 1.0}
    profile["compute"].pop("compute_capability")  # so that NCCL's choice is a ring's
    profile.pop("kernels")  # which are carried from a GPU to one that is known
    profile["interference"]["sm_hold"] = dict.fromkeys(one, 0.0)
    profile["name"] = name
    profile["memory"].update(
        bandwidth_bytes_per_s=round(p["memory_bytes_per_s"]),
        efficiency=one,
        kernel_ps=round(p["kernel_us"] * 1e6),
    )
    profile["host"].update(
        launch_ps=round((p["call_us"] + p["launch_us"]) * 1e6),
        hook_ps=0,
        collective_launch_ps=round(p["nccl_call_us"] * 1e6),
    )
    profile["transports"] = {
        "nvlink": {
            "basis": "datasheet",
            "source": "planted",
            "latency_ps": 1,
            "launch_ps": round(p["nccl_us"] * 1e6),
            "efficiency": one,
        }
    }
    cluster = {
        "schema": "ddpsim.cluster/1",
        "name": f"{name}-cluster",
        "description": "planted",
        "source": "planted",
        "pattern": "star",
        "hosts": 1,
        "devices_per_host": 4,
        "device": {"kind": "gpu", "profile": name},
        "nics_per_host": 1,
        "link": {"bandwidth": "400Gb/s", "latency": "0ns", "transport": "nvlink"},
        "intra": {
            "bandwidth": f"{p['nccl_bytes_per_s'] / 1e9}GB/s",
            "latency": "0ns",
            "transport": "nvlink",
        },
    }
    files = machine.folder / f"{name}.json", machine.folder / "cluster.json"
    for file, document in zip(files, (profile, cluster)):
        file.write_text(json.dumps(document), encoding="utf-8")
    return files


def run_ddpsim(machine, ddpsim, fakes, *arguments):
    """(exit status, stdout, stderr) of `ddpsim run --backend torch` on the device's machine."""
    env = machine.environment(0, 1, 0, machine.p)
    env.update(
        DDPSIM_FAKE_TORCH=str(machine.folder / "planted0"),
        PYTHONPATH=str(HERE / "site"),
        PATH=f"{fakes}:{env['PATH']}",
        DDPSIM_HOME=str(ROOT),
    )
    done = subprocess.run(
        [
            ddpsim,
            "run",
            "--backend",
            "torch",
            "--python",
            sys.executable,
            "--workload",
            machine.folder / "workloads/mlp-tf32.json",
            *map(str, arguments),
        ],
        env=env,
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def run_of(machine, ddpsim, name, cases):
    """Sentences about steps of (bucket_cap_mb, ranks) that ddpsim run has PyTorch make."""
    files = planted_profile(machine, name)
    runs, wrong = machine.folder / "runs-of-ddpsim", []
    for cap, ranks in cases:
        status, said, error = run_ddpsim(
            machine,
            ddpsim,
            "",
            "--cluster",
            files[1],
            "--profile",
            files[0],
            "--ranks",
            ranks,
            "--set",
            f"bucket_cap_mb={cap}",
            "--steps",
            6,
            "--runs",
            runs,
        )
        print(said, end="")
        if status or "gpus       Fake CUDA device" not in said:
            return [f"run: {status}: {error.strip()[-400:]}{said}"]
    done = subprocess.run(
        [ddpsim, "validate", "--runs", runs, "--profile", files[0], "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return [f"validate: {done.stderr.strip()}"]
    pairs = json.loads(done.stdout)["pairs"]
    if len(pairs) != len(cases):
        wrong.append(f"{len(pairs)} rows of {len(cases)} Runs")
    for pair in pairs:
        asked = judges.load(runs / "scenarios" / f"{pair['scenario']}.json")
        cap, ranks = asked["plan"]["bucket_cap_mb"], asked["ranks"]
        truth = machine.truth(ranks=ranks, system="ddp", model="mlp", bucket_cap_mb=cap)["step_ms"]
        if (pair["evidence"], pair["sample"]) != ("system_gpu", "held_out") or pair["loopback"]:
            wrong.append(f"{pair['key']}: {pair['evidence']}, {pair['sample']}")
        for what in ("predicted", "measured"):
            got = pair[f"{what}_ps"] / 1e9
            wrong += judges.near(f"{pair['key']}: {what}, ms", got, truth, 0.02)
        reasons = judges.load(runs / pair["file"])["quality"]["reasons"]
        # The cores and the loopback of this machine are real, and no part of it.
        wrong += [f"{pair['key']}: {r}" for r in reasons if "cores" not in r and "TCP" not in r]
    return wrong


def run_on_one(machine, ddpsim, fakes):
    """Two ranks on one GPU."""
    if not fakes:
        print("ranks on one GPU: skipped: ddpsim was built without CUDA")
        return []
    out = machine.folder / "one.json"
    status, _, error = run_ddpsim(
        machine,
        ddpsim,
        fakes,
        "--cluster",
        "one-gpu",
        "--ranks",
        2,
        "--one-gpu",
        "--steps",
        6,
        "--set",
        "bucket_cap_mb=100",
        "--out",
        out,
    )
    if status:
        return [f"two ranks on one GPU: {status}: {error.strip()[-400:]}"]
    run, wrong = judges.load(out), []
    truth = machine.truth(ranks=2, system="ddp", model="mlp", bucket_cap_mb=100)["step_ms"]
    print(f"two ranks on one GPU: {judges.steady_ms(run):.3f} ms, planted {truth:.3f}")
    if not any(s["what"] == "links" for s in run["skipped"]):
        wrong.append("two ranks on one GPU: the Run does not say that its links are none")
    return wrong + judges.near("two ranks on one GPU, ms", judges.steady_ms(run), truth)


def run(folder, ddpsim, fakes=""):
    """A price is the longer of a kernel's fixed time and its traffic (docs/model.md 5.3), what is
    planted is their sum: so the fixed time is short here."""
    machine = Machine(folder, dict(SLOW, kernel_us=1.0, devices=2.0))
    made = machine.captured([task("mlp", "tf32")])
    if isinstance(made, str):
        return [made]
    wrong = run_of(machine, ddpsim, "planted", [(100, 2)])
    return wrong + run_on_one(machine, ddpsim, fakes)


def main():
    what = {"capture": capture, "record": record, "ops": ops, "run": run}
    if len(sys.argv) < 2 or sys.argv[1] not in what:
        sys.exit(__doc__)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        wrong = what[sys.argv[1]](folder, *sys.argv[2:])
    print(f"{time.monotonic() - begin:.0f} s")
    for line in wrong[:40]:
        print("WRONG: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
