#!/usr/bin/env python3
"""PyTorch's part of the harness (tools/python) on a CUDA device that is not there (fake_cuda).

  check.py capture             captures, memory, profiler: two sets of planted values, one drawn
  check.py record              recorded steps of one and two ranks, DDP and others
  check.py ops                 the times of operators
  check.py chain DDPSIM        capture -> record -> ddpsim import run -> ddpsim validate
  (breakage.py: errors planted in the scripts are noticed)

The seed is printed; DDPSIM_FAKE_SEED repeats it. Needs PyTorch, built with CUDA or without.
"""
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
TOOLS = ROOT / "tools/python"
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import judges  # noqa: E402
from fake_cuda import planted as plants  # noqa: E402

# A device as slow as its tensors are small, so that it decides; one whose host decides; and one whose
# speeds are a GPU's, for operators of real sizes.
SLOW = dict(plants.DEFAULT, cold_ms=60.0, queue=128.0)
HOST = dict(SLOW, fp32=5e13, tf32=4e14, bf16=8e14, fp16=7.5e14, memory_bytes_per_s=3e12, cold_ms=0.5,
            call_us=80.0, launch_us=120.0, nccl_bytes_per_s=5e10)
FAST = dict(SLOW, fp32=5e13, tf32=4e14, bf16=8e14, fp16=7.5e14, memory_bytes_per_s=3e12,
            kernel_us=2.5, latency_us=3, cold_ms=3, first_use_us=300, pcie_bytes_per_s=5e10,
            pageable_bytes_per_s=1e10, nccl_us=40, nccl_bytes_per_s=5e10, nccl_call_us=15,
            event_us=0.5)


def drawn(seed):
    r = random.Random(seed)
    scale = {k: r.uniform(0.6, 1.6) for k in ("fp32", "memory_bytes_per_s", "kernel_us", "call_us",
                                              "launch_us", "latency_us", "nccl_us", "nccl_bytes_per_s")}
    p = {**SLOW, **{k: SLOW[k] * s for k, s in scale.items()}}
    p.update(tf32=p["fp32"] * r.uniform(2, 6), bf16=p["fp32"] * r.uniform(5, 12),
             conv=r.uniform(0.3, 0.9), context_bytes=float(r.randrange(10**8, 10**9)))
    return p


def the_seed():
    seed = os.environ.get("DDPSIM_FAKE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed} (DDPSIM_FAKE_SEED={seed} repeats it)", flush=True)
    return seed


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


TRUTHS = {}  # what train.py said


class Machine:
    """Planted values, a folder, and a copy of the scripts that run there."""

    def __init__(self, folder, planted, tools=TOOLS):
        self.folder, self.p, self.tools = Path(folder), planted, Path(tools)
        self.folder.mkdir(parents=True, exist_ok=True)

    def environment(self, rank, ranks, port, planted):
        file = self.folder / f"planted{rank}"
        file.write_text("".join(f"{k} {v!r}\n" for k, v in planted.items()), encoding="utf-8")
        return {**os.environ, "DDPSIM_FAKE_TORCH": str(file), "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": f"{HERE}", "RANK": str(rank), "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1",
                "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def run(self, script, *arguments, ranks=1, of_rank=None):
        """(worst exit status, what all ranks said); ``of_rank``: their planted values."""
        port, started = free_port(), []
        for rank in range(ranks):
            env = self.environment(rank, ranks, port, (of_rank or [self.p] * ranks)[rank])
            started.append(subprocess.Popen(
                [sys.executable, "-m", "fake_cuda", str(script), *map(str, arguments)],
                cwd=self.folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        try:
            said = [s.communicate(timeout=150)[0] for s in started]
        finally:
            for s in started:
                s.kill()
        return max(abs(s.returncode) for s in started), "".join(said)

    def truth(self, ranks=1, of_rank=None, **options):
        key = json.dumps([self.p, ranks, of_rank, options])
        if key in TRUTHS:
            return TRUTHS[key]
        out = self.folder / f"truth{len(list(self.folder.glob('truth*')))}.json"
        status, said = self.run(HERE / "train.py", json.dumps(options), out, ranks=ranks, of_rank=of_rank)
        if status:
            sys.exit(f"train.py {options}: {said[-600:]}")
        found = judges.load(out)
        found["busy"] = self.p["fp32"] < 1e12  # so slow a device never waits for the host
        TRUTHS[key] = found
        return found

    def captured(self, tasks):
        """{name: (workload, Run)} by ddpsim_captures.py, or a sentence."""
        (self.folder / "list.json").write_text(json.dumps(tasks), encoding="utf-8")
        for folder in ("workloads", "runs"):
            (self.folder / folder).mkdir(exist_ok=True)
        status, said = self.run(self.tools / "ddpsim_captures.py", "--list", "list.json", "--seconds",
                                "1e6", "--workloads", "workloads", "--runs", "runs")
        if status:
            return f"ddpsim_captures.py ended with {status}: {said[-300:]}"
        return {t["name"]: (judges.load(self.folder / f"workloads/{t['name']}.json"),
                            judges.load(self.folder / f"runs/profile-{t['name']}.json")) for t in tasks}

    def recorded(self, *arguments, ranks=1, of_rank=None):
        """A Run by ddpsim_record.py, or a sentence."""
        out = self.folder / "recorded.json"
        out.unlink(missing_ok=True)
        status, said = self.run(self.tools / "ddpsim_record.py", "--import-from", HERE, "--device",
                                "cuda", "--out", out, *arguments, ranks=ranks, of_rank=of_rank)
        if status or not out.exists():
            return f"ddpsim_record.py ended with {status}: {said[-400:]}"
        return judges.load(out)


def task(model, precision, **more):
    return {"name": f"{model}-{precision}", "factory": f"fake_models:{model}", "precision": precision,
            "repeats": 6, **more}


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
        truth = machine.truth(model=model, precision=precision, set_to_none=True,
                              optimizer=t.get("optimizer", "sgd"))
        bad = judges.capture(machine.p, workload, run, truth)
        if model == "mlp" and truth["busy"] and precision != "fp16":
            bad += judges.counted(machine.p, workload)
        times = workload["times"]
        phases = " + ".join(f"{times[k + '_ps'] / 1e9:.3f}" for k in ("forward", "backward", "optimizer"))
        print(f"{t['name']:<16} {phases} ms, planted {truth['step_ms']:.3f}: {len(bad)} wrong", flush=True)
        wrong += [f"{t['name']}: {b}" for b in bad]
    return wrong


def capture(folder):
    seed = the_seed()
    wrong = []
    for name, p in (("slow", SLOW), ("host", HOST), ("drawn", drawn(seed))):
        print(f"--- planted: {name}")
        tasks = [task("mlp", "tf32"), task("mlp", "fp32"), task("cnn", "tf32"), task("attention", "bf16", optimizer="adamw"),
                 task("mlp", "fp16")]
        wrong += captures_of(Machine(f"{folder}/{name}", p), tasks if name != "drawn" else tasks[:2])
    return wrong


# (name, options of train.py, arguments of ddpsim_record.py, ranks)
DDP, STEPS = {"system": "ddp"}, ["--steps", "6", "--precision", "tf32"]
RECORDS = [
    ("DDP", dict(DDP, model="mlp"), ["--factory", "fake_models:mlp"], 1),
    ("DDP with buffers", dict(DDP, model="cnn"), ["--factory", "fake_models:cnn"], 1),
    ("DDP, small buckets, two ranks", dict(DDP, model="mlp", bucket_cap_mb=0.5),
     ["--factory", "fake_models:mlp", "--set", "bucket_cap_mb=0.5"], 2),
    ("DDP, two buckets, two ranks", dict(DDP, model="mlp", bucket_cap_mb=100),
     ["--factory", "fake_models:mlp", "--set", "bucket_cap_mb=100"], 2),
    ("averaging, two ranks", {"system": "averaging", "model": "mlp"},
     ["--factory", "fake_models:mlp", "--set", "system=averaging"], 2),
    ("ZeRO-1, two ranks", dict(DDP, model="mlp", zero=True),
     ["--factory", "fake_models:mlp", "--record", "zero_redundancy_optimizer=true"], 2),
]


def records_of(machine, which):
    wrong = []
    for name, options, arguments, ranks in which:
        truth = machine.truth(ranks=ranks, **options)
        run = machine.recorded(*STEPS, *arguments, ranks=ranks)
        bad = [run] if isinstance(run, str) else judges.record(machine.p, run, truth, ranks)
        got = f"{judges.steady_ms(run):.3f}" if not isinstance(run, str) else "no Run"
        print(f"{name:<30} {got} ms, planted {truth['step_ms']:.3f}: {len(bad)} wrong", flush=True)
        wrong += [f"{name}: {b}" for b in bad]
    return wrong


def slow_rank(machine):
    """Of two ranks the second takes 1.3 times as long: the layers are the slower one's."""
    slower = dict(machine.p, **{k: machine.p[k] / 1.3 for k in (
        "fp32", "tf32", "bf16", "fp16", "memory_bytes_per_s")}, kernel_us=machine.p["kernel_us"] * 1.3)
    of_rank = [machine.p, slower]
    arguments = ["--factory", "fake_models:mlp", "--set", "bucket_cap_mb=0.5"]
    truth = machine.truth(ranks=2, of_rank=of_rank, **DDP, model="mlp", bucket_cap_mb=0.5)
    run = machine.recorded(*STEPS, *arguments, ranks=2, of_rank=of_rank)
    if isinstance(run, str):
        return [run]
    foreach = int(str(run["origin"]["software"]).split()[1].split(".")[0]) >= 2
    bad = judges.record(machine.p, run, truth, 2)
    bad += judges.layers(machine.p, run, machine.p["tf32"], foreach, 1.3)
    print(f"{'DDP, a slow rank':<30} {judges.steady_ms(run):.3f} ms, planted {truth['step_ms']:.3f}: "
          f"{len(bad)} wrong", flush=True)
    return [f"a slow rank: {b}" for b in bad]


def record(folder):
    wrong = records_of(Machine(f"{folder}/slow", SLOW), RECORDS) + slow_rank(Machine(f"{folder}/two", SLOW))
    print("--- planted: host")
    return wrong + records_of(Machine(f"{folder}/host", HOST), [RECORDS[0], RECORDS[2]])


def operators_of(machine, seconds, *more):
    out = machine.folder / "ops.json"
    out.unlink(missing_ok=True)
    status, said = machine.run(machine.tools / "ddpsim_ops.py", "--seconds", seconds, "--out", out, *more)
    if status:
        return 0, [f"ddpsim_ops.py ended with {status}: {said[-300:]}"]
    return judges.operators(machine.p, judges.load(out))


def ops(folder):
    judged, wrong = operators_of(Machine(folder, FAST), 4)
    print(f"{judged} samples judged, {len(wrong)} wrong")
    return wrong + ([] if judged > 150 else [f"only {judged} samples could be judged"])


# ---- the chain

def planted_profile(machine, name):
    """A profile and a cluster that say what is planted; ``ddpsim`` adds nothing to them."""
    p = machine.p
    profile = judges.load(ROOT / "calib/profiles/h100-sxm.datasheet.json")
    one = {"low": 1.0, "mid": 1.0, "high": 1.0}
    profile["compute"].pop("compute_capability")  # so that NCCL's choice is a ring's
    profile.update(name=name, interference=dict(profile["interference"], sm_hold=dict.fromkeys(one, 0.0)))
    profile["memory"].update(bandwidth_bytes_per_s=round(p["memory_bytes_per_s"]), efficiency=one,
                             kernel_ps=round(p["kernel_us"] * 1e6))
    profile["host"].update(launch_ps=round((p["call_us"] + p["launch_us"]) * 1e6), hook_ps=0,
                           collective_launch_ps=round(p["nccl_call_us"] * 1e6))
    profile["transports"] = {"nvlink": {"basis": "datasheet", "source": "planted", "latency_ps": 1,
                                        "launch_ps": round(p["nccl_us"] * 1e6), "efficiency": one}}
    cluster = {"schema": "ddpsim.cluster/1", "name": f"{name}-cluster", "description": "planted",
               "source": "planted", "pattern": "star", "hosts": 1, "devices_per_host": 2,
               "device": {"kind": "gpu", "profile": name}, "nics_per_host": 1,
               "link": {"bandwidth": "400Gb/s", "latency": "0ns", "transport": "nvlink"},
               "intra": {"bandwidth": f"{p['nccl_bytes_per_s'] / 1e9}GB/s", "latency": "0ns",
                         "transport": "nvlink"}}
    files = machine.folder / f"{name}.json", machine.folder / "cluster.json"
    for file, document in zip(files, (profile, cluster)):
        file.write_text(json.dumps(document), encoding="utf-8")
    return files


# (model, bucket_cap_mb, ranks, with the Run's own layers or the capture's)
CHAIN = [("mlp", 25, 1, False), ("mlp", 0.5, 1, True), ("mlp", 0.5, 2, True), ("mlp", 100, 2, False),
         ("cnn", 25, 1, False)]


def one_row(machine, ddpsim, files, made, case):
    """(key of the imported Run, train.py's step), or a sentence."""
    model, cap, ranks, own = case
    name = f"{model}-cap{cap}-n{ranks}"
    run = machine.recorded(*STEPS, "--factory", f"fake_models:{model}", "--set", f"bucket_cap_mb={cap}",
                           ranks=ranks)
    if isinstance(run, str):
        return run
    if not own:
        del run["layers"]
    # The cores and the loopback of this machine are real, and no part of it.
    run["quality"].update(verdict="clean", reasons=[])
    bare = machine.folder / f"{name}.json"
    bare.write_text(json.dumps(run), encoding="utf-8")
    torch_version = ".".join(made[f"{model}-tf32"][0]["source"]["torch"].split(".")[:2])
    done = subprocess.run(
        [ddpsim, "import", "run", bare, "--workload", machine.folder / f"workloads/{model}-tf32.json",
         "--cluster", files[1], "--profile", files[0], "--ranks", str(ranks), "--set",
         f"bucket_cap_mb={cap}", "--set", f"pytorch={torch_version}", "--runs", machine.folder / "imported"],
        capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{name}: import run: {done.stderr.strip()}"
    truth = machine.truth(ranks=ranks, system="ddp", model=model, bucket_cap_mb=cap)
    return done.stderr.strip().rpartition(" ")[2], truth["step_ms"]


def chain_of(machine, ddpsim, name, cases):
    made = machine.captured([task(m, "tf32") for m in dict.fromkeys(c[0] for c in cases)])
    if isinstance(made, str):
        return [made]
    files = planted_profile(machine, name)
    truths, wrong = {}, []
    for case in cases:
        found = one_row(machine, ddpsim, files, made, case)
        if isinstance(found, str):
            return [found]
        truths[found[0]] = found[1]
    done = subprocess.run([ddpsim, "validate", "--runs", machine.folder / "imported", "--profile", files[0],
                           "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"validate: {done.stderr.strip()}"]
    pairs = json.loads(done.stdout)["pairs"]
    if len(pairs) != len(cases):
        wrong.append(f"{len(pairs)} rows of {len(cases)} Runs")
    for pair in pairs:
        predicted, measured = (pair[k] / 1e9 for k in ("predicted_ps", "measured_ps"))
        truth = truths[pair["key"]]
        print(f"{pair['key']:<60} {pair['evidence']} {pair['sample']} predicted {predicted:.3f}, measured "
              f"{measured:.3f}, planted {truth:.3f} ms", flush=True)
        if (pair["evidence"], pair["sample"], pair["noisy"]) != ("system_gpu", "held_out", False):
            wrong.append(f"{pair['key']}: {pair['evidence']}, {pair['sample']}, noisy {pair['noisy']}")
        wrong += judges.near(f"{pair['key']}: predicted, ms", predicted, truth, 0.02)
        wrong += judges.near(f"{pair['key']}: measured, ms", measured, truth, 0.02)
    return wrong


def chain(folder, ddpsim):
    """A price is the longer of a kernel's fixed time and its traffic (sim/MODEL.md 5.3), and here it
    is their sum: the fixed time is short."""
    wrong = chain_of(Machine(f"{folder}/slow", dict(SLOW, kernel_us=1.0)), ddpsim, "planted", CHAIN)
    other = dict(drawn(the_seed()), kernel_us=1.0)
    return wrong + chain_of(Machine(f"{folder}/drawn", other), ddpsim, "drawn", CHAIN[2:4])


def main():
    what = {"capture": capture, "record": record, "ops": ops, "chain": chain}
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
