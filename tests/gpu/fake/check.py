#!/usr/bin/env python3
"""tools/gpu_calibrate and `ddpsim fit` on a GPU that is not there (fake.h).

  check.py recover DDPSIM_FAKE_GPU    three sets of planted values, the second drawn from a seed;
                                      the third with products in tiles, waves and split sums
  check.py faults DDPSIM_FAKE_GPU     what is broken ends in a sentence, and what is usable is kept
  check.py breakage DDPSIM_FAKE_GPU   errors planted in calib/cuda are noticed (compiles each)

The seed is printed; DDPSIM_FAKE_SEED repeats it.
"""
import concurrent.futures
import gzip
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from planted import DEFAULT, PRECISIONS, TILES, drawn, found_by_fit, judge_samples  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
STAGES = [
    "memory",
    "gemm",
    "host",
    "conv",
    "nccl",
    "nccl-one-gpu",
    "interference",
    "copies",
    "run-resnet50",
    "run-resnet50-2",
]


def load(name, path):
    """A script as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Machine:
    """A fake GPU with its planted values, in a folder of its own."""

    def __init__(self, ddpsim, folder, planted, faults="", mps=True):
        self.ddpsim, self.folder, self.planted = ddpsim, Path(folder), planted
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "planted"
        file.write_text("".join(f"{k} {v!r}\n" for k, v in planted.items()), encoding="utf-8")
        self.env = dict(
            os.environ,
            DDPSIM_FAKE_GPU=str(file),
            DDPSIM_FAKE_FAULT=faults,
            DDPSIM_HOME=str(ROOT),
            DDPSIM_FAKE_MPS="" if mps else "none",
            PATH=f"{Path(ddpsim).resolve().parent}/fake_gpu:{os.environ['PATH']}",
        )

    def ask(self, *command, timeout=200):
        """(exit status, stdout, stderr)"""
        done = subprocess.run(
            [str(c) for c in command],
            env=self.env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def run(self, *arguments, timeout=200):
        return self.ask(self.ddpsim, *arguments, timeout=timeout)

    def stage(self, name, seconds=30, backend="cuda", more=()):
        """(exit status, Run or None, stderr) of one stage."""
        out = self.folder / f"{name}{''.join(more)}.json"
        status, said, error = self.run(
            "calibrate",
            "--backend",
            backend,
            "--stage",
            name,
            "--seconds",
            seconds,
            *more,
            "--out",
            out,
        )
        if not out.exists():
            return status, None, error or said
        runs = json.loads(out.read_text(encoding="utf-8"))
        run = dict(runs[0], samples=[s for r in runs for s in r["samples"]])
        return status, run, error or said

    def calibrate(self, stages, *more):
        only = [x for s in stages for x in ("--only", s)]
        return self.ask(
            sys.executable,
            ROOT / "tools/gpu_calibrate",
            *only,
            "--minutes",
            "20",
            "--out",
            self.folder / "out",
            "--ddpsim",
            self.ddpsim,
            "--python",
            sys.executable,
            *more,
            timeout=600,
        )

    def left_running(self):
        """Processes of this machine that are still there."""
        mine = f"DDPSIM_FAKE_GPU={self.folder}/".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if mine in (place / "environ").read_bytes():
                    found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it ended, or is somebody else's
                pass
        return found


def fitted(machine, runs):
    """(profile, what fit said)"""
    out = machine.folder / "fitted.json"
    status, said, error = machine.run(
        "fit",
        "--backend",
        "cuda",
        "--base",
        "h100-sxm.datasheet",
        "--name",
        "fitted",
        "--runs",
        runs,
        "--out",
        out,
    )
    if status:
        sys.exit(f"fit: {error}")
    return json.loads(out.read_text(encoding="utf-8")), said


# Of convolutions the form by octaves is judged, which knows no sum of a fixed time and work / rate.
SUM_WITHIN = 0.02


LEFT_OUT = {
    "a real collective beside computation",
    "copies to a peer",
    "links",
    "prediction",
    "collectives between GPUs",
    "several ranks of one host on one GPU",
}


def recover_one(ddpsim, folder, name, p):
    """Sentences about what is wrong."""
    begin = time.monotonic()
    machine = Machine(ddpsim, Path(folder) / name, p)
    status, said, error = machine.calibrate(STAGES)
    print(f"--- planted: {name}\n{said}", end="")
    wrong = []
    if status:
        wrong.append(f"gpu_calibrate ended with {status}: {error.strip()[-300:]}")
    runs = {}
    for file in sorted((machine.folder / "out/runs").glob("*.json*")):
        packed = file.read_bytes()
        run = json.loads(gzip.decompress(packed) if file.suffix == ".gz" else packed)
        runs[file.name] = run
        slow = "one-gpu" in file.name  # collectives as slow as planted may fill their time
        wrong += [
            f"{file.name}: left out: {s['what']}: {s['why']}"
            for s in run.get("skipped", [])
            if s["what"] not in LEFT_OUT
            and not (slow and s["why"] == "the time of this stage was over")
        ]
        if "samples" in run:
            judged, bad = judge_samples(p, run)
            print(
                f"{file.name}: {judged} of {len(run['samples'])} samples judged, {len(bad)} wrong"
            )
            wrong += bad[:8]
    if f"{len(STAGES)} of {len(STAGES)} stages" not in said:
        wrong.append("a stage is missing")
    # Two numbers of ranks, four ways to force an all-reduce; twice where ranks may be one host's.
    tables = 18 * (2 if p.get("nccl_version", 0) >= 23003 else 1)
    over = any(
        s["why"] == "the time of this stage was over"
        for r in runs.values()
        for s in r.get("skipped", [])
    )
    whole = len(STAGES) - 1 + tables
    if len(runs) != whole and not (over and whole - tables / 2 < len(runs) < whole):
        wrong.append(f"{len(runs)} Runs of {len(STAGES)} stages, {tables} of them of collectives")
    wrong += [
        f"{name}: samples of {s['op']} in a Run of {r['collectives']['op']}"
        for name, r in runs.items()
        if "collectives" in r
        for s in r["samples"]
        if s["op"] != r["collectives"]["op"]
    ]
    print(f"{len(runs)} Runs, {time.monotonic() - begin:.0f} s")
    profile, said = fitted(machine, machine.folder / "out/runs")
    print(said, end="")
    if p["form"] == 2:
        for row in profile["fit"]["kernels"]:
            if row["kernel"].startswith("gemm") and row["median_error"] > 0.01:
                wrong.append(f"fit: {row['kernel']}: {100 * row['median_error']:.1f} % off")
    for what, planted, got in found_by_fit(profile, p):
        # A loss is a difference of two times: noise of either shows.
        within = SUM_WITHIN if p["form"] and "conv" in what else 0.01
        near = abs(got - planted) <= within * planted + (2 * p["noise"] if "hold" in what else 0)
        print(f"{what:<20} planted {planted:<12.6g} fitted {got:<12.6g}{'' if near else ' WRONG'}")
        if not near:
            wrong.append(f"fit: {what}: planted {planted:g}, fitted {got:g}")
    return wrong + replayed(machine, machine.folder / "fitted.json")


def replayed(machine, profile):
    """One rank's iterations, executed and predicted with the fitted profile. Several ranks of one
    device are no cluster that can be predicted."""
    status, said, error = machine.run(
        "run",
        "--backend",
        "nccl",
        "--workload",
        "resnet50",
        "--cluster",
        "hgx-h100",
        "--profile",
        profile,
        "--ranks",
        1,
        "--runs",
        machine.folder / "replays",
    )
    off = re.search(r"predicted .*\(([-+0-9.]+) %", said)
    print(said.strip() or error.strip())
    if status or not off or abs(float(off.group(1))) > 1:
        return [f"one rank's iterations are not as predicted: {(said or error).strip()}"]
    return []


def recover(ddpsim, folder):
    seed = os.environ.get("DDPSIM_FAKE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed} (DDPSIM_FAKE_SEED={seed} repeats it)")
    wrong = recover_one(ddpsim, folder, "fixed", DEFAULT)
    wrong += recover_one(ddpsim, folder, "drawn", drawn(seed))
    return wrong + recover_one(ddpsim, folder, "tiles", dict(DEFAULT, **TILES))


# Faults: (name, stage, seconds, backend, flags, what is planted, exit status or None where either
# will do, what must be said, whether samples must be kept).
ONE = ("--one-gpu",)
FAULTS = [
    ("power cap", "gemm", 4, "cuda", (), "power_cap=1", 0, "", True),
    ("heat", "memory", 4, "cuda", (), "thermal=1", 0, "throttled", True),
    ("out of memory", "conv", 4, "cuda", (), "device_bytes=1e9", 2, "out of memory", False),
    (
        "out of memory beside a collective",
        "nccl",
        8,
        "nccl",
        ONE,
        "device_bytes=5e7",
        2,
        "out of memory",
        False,
    ),
    (
        "a launch that fails",
        "memory",
        6,
        "cuda",
        (),
        "fail=cudaLaunchKernel fail_at=60000",
        0,
        "launch failure",
        True,
    ),
    (
        "a call that hangs",
        "memory",
        3,
        "cuda",
        (),
        "hang=cudaEventSynchronize hang_at=300",
        0,
        "not done after",
        True,
    ),
    (
        "a call that hangs at once",
        "gemm",
        2,
        "cuda",
        (),
        "hang=cublasLtMatmul",
        2,
        "not done after",
        False,
    ),
    (
        "a rank that hangs",
        "nccl",
        8,
        "nccl",
        ONE,
        "hang=ncclAllReduce hang_at=40",
        2,
        "not done after",
        False,
    ),
    (
        "a process that dies",
        "memory",
        3,
        "cuda",
        (),
        "crash=cudaEventSynchronize crash_at=300",
        0,
        "ended with signal 6",
        True,
    ),
    ("no cuBLASLt", "gemm", 3, "cuda", (), "missing=libcublasLt", 2, "libcublasLt", False),
    ("no cuDNN", "conv", 3, "cuda", (), "missing=libcudnn", 2, "libcudnn", False),
    ("no NCCL", "nccl", 3, "nccl", (), "missing=libnccl", 2, "libnccl", False),
    ("no NVML", "memory", 3, "cuda", (), "missing=libnvidia-ml", 0, "libnvidia-ml", True),
    ("no MPS", "nccl", 8, "nccl", ONE, "mps", 2, "nvidia-cuda-mps-control", False),
    ("ranks in turns", "nccl", 8, "nccl", ONE, "turns=1", 2, "take turns", False),
    ("NCCL takes one rank", "nccl", 8, "nccl", ONE, "refuse=1", 2, "Duplicate GPU", False),
    (
        "time of memory",
        "memory",
        1,
        "cuda",
        (),
        "memory_bytes_per_s=1e11",
        0,
        "time of this stage was over",
        True,
    ),
    ("time of gemm", "gemm", 1, "cuda", (), "", 0, "time of this stage was over", True),
    (
        "time of host",
        "host",
        1,
        "cuda",
        (),
        "launch_us=1000",
        0,
        "time of this stage was over",
        True,
    ),
    ("time of conv", "conv", 1, "cuda", (), "", 0, "time of this stage was over", True),
    (
        "time of interference",
        "interference",
        1,
        "cuda",
        (),
        "",
        0,
        "time of this stage was over",
        True,
    ),
    (
        "time of copies",
        "copies",
        1,
        "cuda",
        (),
        "pcie_bytes_per_s=1e9",
        0,
        "time of this stage was over",
        True,
    ),
    ("time of nccl", "nccl", 7, "nccl", ONE, "", 0, "time of this stage was over", True),
    ("no time for nccl", "nccl", 1, "nccl", ONE, "", 2, "time of this stage was over", False),
]


def one_fault(ddpsim, folder, fault):
    """(row to print, sentences about what is wrong)"""
    name, stage, seconds, backend, flags, planted, want, words, kept = fault
    mps = planted != "mps"
    machine = Machine(
        ddpsim, Path(folder) / name.replace(" ", "-"), DEFAULT, planted if mps else "", mps
    )
    begin = time.monotonic()
    status, run, said = machine.stage(stage, seconds, backend, flags)
    said = said.strip() if run is None else json.dumps([run.get("skipped"), run["quality"]])
    wrong = []
    if want is not None and status != want:
        wrong.append(f"{name}: exit status {status}, not {want}: {said[-200:]}")
    if words not in said:
        wrong.append(f"{name}: nobody said \"{words}\": {said[-300:]}")
    if kept != bool(run and run.get("samples")):
        wrong.append(f"{name}: {'no sample was kept' if kept else 'samples of a run that failed'}")
    if run and kept and name != "a launch that fails":
        p = slowed(DEFAULT) if planted in ("power_cap=1", "thermal=1") else dict(DEFAULT)
        for word in planted.split():
            if word.split("=")[0] in DEFAULT:
                p[word.split("=")[0]] = float(word.split("=")[1])
        judged, bad = judge_samples(p, run)
        wrong += [f"{name}: {b}" for b in bad[:3]]
    if name == "power cap" and run:
        v = run["samples"][-1]["parameters"]
        kept_with = [v.get(k) for k in ("power_mw", "sm_mhz", "celsius", "throttle_bits")]
        if kept_with != [699000, 1782, 61, 4]:
            wrong.append(f"{name}: power and clock were not kept with the samples: {v}")
        if any("throttled" in r for r in run["quality"].get("reasons", [])):
            wrong.append(f"{name}: the power limit is how training runs, and makes no Run noisy")
    if name == "heat" and run and run["quality"]["verdict"] != "noisy":
        wrong.append("heat: the Run is not noisy")
    row = f"{name:<36} {status} {time.monotonic() - begin:5.1f} s  {said[-90:]}"
    return row, wrong


def slowed(p):
    """Power or heat: products at 0.9 of their speed."""
    return dict(p, **{k: 0.9 * p[k] for k in PRECISIONS})


# gpu_calibrate itself: (name, planted, MPS, stages, flags, exit status, what must be said).
WHOLE = [
    (
        "an iteration that hangs",
        "hang=cublasLtMatmul hang_at=2000",
        True,
        ["run-resnet50"],
        ("--smoke",),
        1,
        "not done after 5",
    ),
    ("no GPU", "fail=cudaGetDeviceCount", True, ["memory"], (), 1, "nothing was measured"),
    ("one stage of two", "missing=libcudnn", True, ["memory", "conv"], (), 0, "libcudnn"),
    ("the only stage", "missing=libcudnn", True, ["conv"], (), 1, "libcudnn"),
    ("MPS", "", False, ["nccl-one-gpu"], (), 1, "nvidia-cuda-mps-control"),
    ("memory for an iteration", "device_bytes=3e8", True, ["run-resnet50"], (), 1, "out of memory"),
    ("iterations of ranks in turns", "turns=1", True, ["run-resnet50-2"], (), 1, "take turns"),
    (
        "iterations of ranks that NCCL refuses",
        "refuse=1",
        True,
        ["run-resnet50-2"],
        (),
        1,
        "Duplicate GPU",
    ),
]


def one_whole(ddpsim, folder, fault):
    """(row to print, sentences about what is wrong)"""
    name, planted, mps, stages, flags, want, words = fault
    begin = time.monotonic()
    machine = Machine(
        ddpsim, Path(folder) / f"whole-{name.replace(' ', '-')}", DEFAULT, planted, mps
    )
    status, said, error = machine.calibrate(stages, *flags)
    said += error
    wrong = []
    if status != want or words not in said:
        wrong.append(f"gpu_calibrate, {name}: {status}, not {want}, or not \"{words}\": {said}")
    if not (machine.folder / "out/runs.tar.gz").exists():
        wrong.append(f"gpu_calibrate, {name}: left no archive")
    wrong += [f"gpu_calibrate, {name}: still running: {c}" for c in machine.left_running()]
    where = max(0, said.find(words) - 60)
    sentence = " ".join(said[where : where + 150].split())
    return f"{name:<38} {status} {time.monotonic() - begin:5.1f} s  {sentence}", wrong


def ended_midway(ddpsim, folder):
    """(row to print, sentences about what is wrong): NCCL's Runs are written one by one. The whole
    command may be over before this process has looked; then it is run again."""
    for attempt in range(10):
        row, wrong = ended_once(ddpsim, Path(folder) / f"ended{attempt}")
        if not wrong:
            break
    return row, wrong


def ended_once(ddpsim, folder):
    machine = Machine(ddpsim, folder, DEFAULT)
    runs = machine.folder / "runs"
    command = [
        ddpsim,
        "calibrate",
        "--backend",
        "nccl",
        "--one-gpu",
        "--seconds",
        "60",
        "--runs",
        str(runs),
    ]
    with subprocess.Popen(
        command,
        env=machine.env,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        until = time.monotonic() + 100
        while not list(runs.glob("nccl-*.json.gz")) and time.monotonic() < until:
            time.sleep(0.002)
        early = process.poll() is None
        if early:
            os.killpg(process.pid, signal.SIGKILL)
    kept = [json.loads(gzip.decompress(f.read_bytes())) for f in runs.glob("nccl-*.json.gz")]
    wrong = [] if early else ["ended midway: it wrote nothing before it was done"]
    if not kept or not all(r.get("samples") and r.get("collectives") for r in kept):
        wrong.append(f"ended midway: {len(kept)} Runs were kept")
    return f"{'ended midway':<36} {len(kept)} Runs are kept", wrong


def faults(ddpsim, folder):
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # the slow ones sleep
        slow_first = sorted(FAULTS, key=lambda f: "hang" not in f[5])
        whole = [pool.submit(one_whole, ddpsim, folder, f) for f in WHOLE[:1]]
        whole += [pool.submit(one_fault, ddpsim, folder, f) for f in slow_first]
        whole += [pool.submit(one_whole, ddpsim, folder, f) for f in WHOLE[1:]]
        whole.append(pool.submit(ended_midway, ddpsim, folder))
        for done in whole:
            row, bad = done.result()
            print(row)
            wrong += bad
    return wrong


# Errors planted in calib/cuda: (name, file, what is replaced, by what, stage, backend, flags).
BREAKAGE = [
    (
        "an event on a wrong stream",
        "bench.cc",
        "cudaEventRecord(done_, stream_)",
        "cudaEventRecord(done_, nullptr)",
        "memory",
        "cuda",
        (),
    ),
    (
        "the first event before the wait",
        "bench.cc",
        """launch_spin(std::max<std::int64_t>(20'000, count * each_ns), stream_);
        DDPSIM_CUDA(cudaEventRecord(begin_, stream_));""",
        """DDPSIM_CUDA(cudaEventRecord(begin_, stream_));
        launch_spin(std::max<std::int64_t>(20'000, count * each_ns), stream_);""",
        "memory",
        "cuda",
        (),
    ),
    (
        "the last event late",
        "bench.cc",
        "bool full = cudaEventQuery",
        "launch_nothing(stream_);\nbool full = cudaEventQuery",
        "memory",
        "cuda",
        (),
    ),
    (
        "one launch too many",
        "bench.cc",
        "i < count; ++i) launch(k++)",
        "i <= count; ++i) launch(k++)",
        "memory",
        "cuda",
        (),
    ),
    (
        "a GPU that was idle",
        "bench.cc",
        "now_ns() < until;",
        "now_ns() < until && saved_ns_ < 0;",
        "memory",
        "cuda",
        (),
    ),
    (
        "no warm-up of the host's calls",
        "bench.cc",
        "if (i >= 2) readings",
        "if (i >= 0) readings",
        "host",
        "cuda",
        (),
    ),
    (
        "bytes counted twice",
        "stages.cc",
        "{8, 12, 4, 6, 8,",
        "{16, 12, 4, 6, 8,",
        "memory",
        "cuda",
        (),
    ),
    (
        "operands that the cache has",
        "stages.cc",
        "return k % slots * slot;",
        "return 0 * k * slots * slot;",
        "memory",
        "cuda",
        (),
    ),
    (
        "traffic that is not started again",
        "stages.cc",
        "        *stop = 0;\n",
        "",
        "interference",
        "cuda",
        (),
    ),
    (
        "traffic before its victim",
        "stages.cc",
        (
            "static_cast<unsigned long long*>(moved.at()), beside);\n"
            "        DDPSIM_CUDA(cudaEventRecord(end"
        ),
        (
            "static_cast<unsigned long long*>(moved.at()), b.stream());\n"
            "        DDPSIM_CUDA(cudaEventRecord(end"
        ),
        "interference",
        "cuda",
        (),
    ),
    (
        "another precision",
        "products.cc",
        "p == Precision::Tf32 ? CUBLAS",
        "p == Precision::Fp16 ? CUBLAS",
        "gemm",
        "cuda",
        (),
    ),
    (
        "an algorithm without its workspace",
        "products.cc",
        " || r.memory > limit_",
        "",
        "conv",
        "cuda",
        (),
    ),
    (
        "not the first algorithm",
        "products.cc",
        "if (r.status != CUDNN_STATUS_SUCCESS ||",
        "if (r.status != CUDNN_STATUS_SUCCESS || i < 3 ||",
        "conv",
        "cuda",
        (),
    ),
    (
        "another algorithm's number",
        "products.cc",
        "static_cast<std::int64_t>(r.algo)",
        "static_cast<std::int64_t>(results[0].algo)",
        "conv",
        "cuda",
        (),
    ),
    (
        "benchmark mode asks the heuristics",
        "products.cc",
        "if (!trial) {",
        "{",
        "conv",
        "cuda",
        (),
    ),
    (
        "no algorithm's workspace but the last one's",
        "products.cc",
        "most = std::max(most, needs);",
        "most = needs;",
        "conv",
        "cuda",
        (),
    ),
    (
        "a limit of 1 GiB in benchmark mode",
        "products.cc",
        "needs <= limit_)",
        "needs <= std::size_t{1} << 30)",
        "conv",
        "cuda",
        (),
    ),
    (
        "heuristics that say benchmark",
        "stages.cc",
        'said["mode"] = static_cast<std::int64_t>(mode);',
        'said["mode"] = 1;',
        "conv",
        "cuda",
        (),
    ),
    (
        "times from the first event on",
        "collectives.cc",
        "elapsed_ns(events[at], events[at + 1])",
        "elapsed_ns(events[0], events[at + 1])",
        "nccl",
        "nccl",
        ONE,
    ),
    (
        "no wait for the queue",
        "collectives.cc",
        "      launch_spin(kSpinNs, stream);\n",
        "",
        "nccl",
        "nccl",
        ONE,
    ),
    (
        "a rank that sums half",
        "collectives.cc",
        "static_cast<std::size_t>(p.bytes) / 4);",
        "static_cast<std::size_t>(p.bytes) / 4 / (1 + place.rank));",
        "nccl",
        "nccl",
        ONE,
    ),
]


def broken_binary(ddpsim, folder, number, file, old, new):
    """ddpsim_fake_gpu with one object made from a changed source; its path."""
    build = Path(ddpsim).resolve().parent
    source = ROOT / "calib/cuda" / file
    text = source.read_text(encoding="utf-8")
    if text.count(old) != 1:
        sys.exit(f"breakage: {file} does not have once: {old}")
    changed = Path(folder) / f"broken_{number}.cc"
    changed.write_text(text.replace(old, new), encoding="utf-8")
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    command = shlex.split(next(c["command"] for c in commands if c["file"] == str(source)))
    made = Path(folder) / f"broken_{number}.o"
    command[command.index("-o") + 1] = str(made)
    command[command.index("-c") + 1] = str(changed)
    subprocess.run(command + ["-O0"], cwd=build, check=True)
    all_of = subprocess.run(
        ["ninja", "-C", str(build), "-t", "commands", "ddpsim_fake_gpu"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    link = next(line for line in reversed(all_of.splitlines()) if " -o ddpsim_fake_gpu " in line)
    broken = build / f"ddpsim_fake_broken_{number}"
    link = link.replace(" -o ddpsim_fake_gpu ", f" {made} -o {broken.name} ")
    subprocess.run(["sh", "-c", link], cwd=build, check=True)
    return broken


def complaints(ddpsim, folder, name, stage, backend, flags):
    """What the check says about one stage of this binary, against the whole harness's counts."""
    machine = Machine(ddpsim, Path(folder) / name, DEFAULT)
    status, run, said = machine.stage(stage, {"nccl": 14}.get(stage, 4), backend, flags)
    if status or not run:
        return [said.strip()[-160:]], {}
    _, wrong = judge_samples(DEFAULT, run)
    count = {}
    for sample in run["samples"]:
        v = sample["parameters"]
        key = (sample["op"], v.get("bytes", 0) if backend == "nccl" else v.get("mode", 0))
        count[key] = count.get(key, 0) + 1
    return wrong, count


def breakage(ddpsim, folder):
    if not (Path(ddpsim).resolve().parent / "build.ninja").exists():
        print("gpu.fake_breakage: skipped: needs Ninja, which says how an object is linked")
        sys.exit(77)
    wrong, whole = [], {}
    for number, (name, file, old, new, stage, backend, flags) in enumerate(BREAKAGE):
        if stage not in whole:
            bad, whole[stage] = complaints(ddpsim, folder, f"whole-{stage}", stage, backend, flags)
            if bad:
                return [f"the harness as it is: {bad[0]}"]
        broken = broken_binary(ddpsim, folder, number, file, old, new)
        try:
            bad, count = complaints(broken, folder, f"broken-{number}", stage, backend, flags)
        finally:
            broken.unlink()
        for key in whole[stage]:
            if not bad and count.get(key, 0) < 0.7 * whole[stage][key]:
                bad = [f"{count.get(key, 0)} samples of {key}, not {whole[stage][key]}"]
        print(f"{name:<36} {'noticed: ' + bad[0][:110] if bad else 'NOT NOTICED'}", flush=True)
        if not bad:
            wrong.append(f"nobody noticed: {name}")
    return wrong


def main():
    if len(sys.argv) < 3:
        print("gpu.fake: skipped: built without the CUDA toolkit's, cuDNN's and NCCL's headers")
        return 77
    what, ddpsim = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        wrong = {"recover": recover, "faults": faults, "breakage": breakage}[what](ddpsim, folder)
    for line in wrong:
        print("WRONG: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
