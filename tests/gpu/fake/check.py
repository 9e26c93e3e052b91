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
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STAGES = ["memory", "gemm", "host", "conv", "nccl", "nccl-one-gpu", "interference", "copies",
          "run-resnet50", "run-resnet50-2"]
MOVES = [8, 12, 4, 6, 8, 12, 20, 28]      # bytes an element: calib/cuda/kernels.h
PRECISIONS = ["fp32", "tf32", "bf16", "fp16"]
HALVES = (2, 3)
CLOCK_US = 0.05                           # what reading the host's clock takes
SYNCHRONIZE_US = 0.3                      # of an idle stream: tests/gpu/fake/runtime.cc
DEFAULT = {
    "memory_bytes_per_s": 3e12, "kernel_us": 2.5, "fp32": 5e13, "tf32": 4e14, "bf16": 8e14,
    "fp16": 7.5e14, "conv": 0.6, "launch_us": 2.1, "product_hold": 0.008, "memory_hold": 0.012,
    "block_bytes_per_us": 60000, "pcie_bytes_per_s": 5e10, "pageable_bytes_per_s": 1e10,
    "nccl_step_us": 10, "nccl_bytes_per_s": 2e9, "event_us": 0.4, "latency_us": 3, "noise": 0,
    "form": 0}
TILES = {"form": 2, "wave_us": 1.3, "split_us": 4.5, "tile128": 0.8, "tile64": 0.42,
         "aligned4": 0.31, "aligned2": 0.16}
SMS = 132


def drawn(seed):
    r = random.Random(seed)
    bf16 = r.uniform(3e14, 1.2e15)
    return {
        "memory_bytes_per_s": r.uniform(1.5e12, 5e12), "kernel_us": r.uniform(1.5, 4),
        "fp32": r.uniform(3e13, 8e13), "tf32": bf16 * r.uniform(0.4, 0.6), "bf16": bf16,
        "fp16": bf16 * r.uniform(0.9, 1.1), "conv": r.uniform(0.35, 0.9),
        "launch_us": r.uniform(1.5, 4), "product_hold": r.uniform(0.002, 0.014),
        "memory_hold": r.uniform(0.002, 0.014), "block_bytes_per_us": r.uniform(45000, 90000),
        "pcie_bytes_per_s": r.uniform(2e10, 6e10), "pageable_bytes_per_s": r.uniform(5e9, 1.5e10),
        "nccl_step_us": r.uniform(5, 20), "nccl_bytes_per_s": r.uniform(1e9, 5e9),
        "event_us": r.uniform(0.2, 0.8), "latency_us": r.uniform(1, 6),
        "nccl_version": 23003, "noise": 0.002, "form": 0}


class Machine:
    """A fake GPU with its planted values, in a folder of its own."""

    def __init__(self, ddpsim, folder, planted, faults="", mps=True):
        self.ddpsim, self.folder, self.planted = ddpsim, Path(folder), planted
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "planted"
        file.write_text("".join(f"{k} {v!r}\n" for k, v in planted.items()), encoding="utf-8")
        self.env = dict(os.environ, DDPSIM_FAKE_GPU=str(file), DDPSIM_FAKE_FAULT=faults,
                        DDPSIM_HOME=str(ROOT), DDPSIM_FAKE_MPS="" if mps else "none",
                        PATH=f"{Path(ddpsim).resolve().parent}/fake_gpu:{os.environ['PATH']}")

    def ask(self, *command, timeout=200):
        """(exit status, stdout, stderr)"""
        done = subprocess.run([str(c) for c in command], env=self.env, capture_output=True,
                              text=True, errors="replace", timeout=timeout, check=False)
        return done.returncode, done.stdout, done.stderr

    def run(self, *arguments, timeout=200):
        return self.ask(self.ddpsim, *arguments, timeout=timeout)

    def stage(self, name, seconds=30, backend="cuda", more=()):
        """(exit status, Run or None, stderr) of one stage."""
        out = self.folder / f"{name}{''.join(more)}.json"
        status, said, error = self.run("calibrate", "--backend", backend, "--stage", name,
                                       "--seconds", seconds, *more, "--out", out)
        run = json.loads(out.read_text(encoding="utf-8"))[0] if out.exists() else None
        return status, run, error or said

    def calibrate(self, stages, *more):
        only = [x for s in stages for x in ("--only", s)]
        return self.ask(sys.executable, ROOT / "tools/gpu_calibrate", *only, "--minutes", "20",
                        "--out", self.folder / "out", "--ddpsim", self.ddpsim, "--python",
                        sys.executable, *more)

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


# What a sample must say, in microseconds, from the planted values alone; None: nothing is planted.

def memory(p, moved):
    us = moved / p["memory_bytes_per_s"] * 1e6
    return p["kernel_us"] + us if p["form"] else max(p["kernel_us"], us)


def product(p, flops, rate, moved):
    us = flops / rate * 1e6
    return max(memory(p, moved), p["kernel_us"] + us if p["form"] else us)


def conv_us(p, v):
    out = (v["size"] + 2 * (v["kernel"] // 2) - v["kernel"]) // v["stride"] + 1
    image = v["batch"] * v["channels"] * v["size"] ** 2
    result = v["batch"] * v["filters"] * out ** 2
    weights = v["channels"] * v["filters"] * v["kernel"] ** 2
    each = 2 if v["precision"] in HALVES else 4
    flops = 2 * result * v["channels"] * v["kernel"] ** 2
    rate = p["conv"] * p[PRECISIONS[v["precision"]]]
    return product(p, flops, rate, each * (image + result + weights))


def tiled_us(p, rows, columns, total, rate, moved, aligned):
    rate *= {4: p["aligned4"], 2: p["aligned2"]}.get(aligned, 1)
    ways = []
    for a, b, share in ((256, 128, 1), (128, 256, 1), (128, 128, p["tile128"]),
                        (64, 64, p["tile64"])):
        tiles = -(-rows // a) * -(-columns // b)
        for parts in (1, 2, 4, 8, 16, 32, 64, 128):
            if parts > 1 and (total / parts < 256 or tiles * parts > 8 * SMS):
                break
            wave = 2 * a * b * total / parts / (rate / SMS * share) * 1e6 + p["wave_us"]
            added = 4 * rows * columns * parts / p["memory_bytes_per_s"] * 1e6 + p["split_us"]
            ways.append(-(-tiles * parts // SMS) * wave + (added if parts > 1 else 0))
    memory_us = moved / p["memory_bytes_per_s"] * 1e6
    return p["kernel_us"] + (min(ways) ** 4 + memory_us ** 4) ** 0.25


def gemm_us(p, v):
    m, n, k = v["m"], v["n"], v["k"]
    each = 2 if v["precision"] in HALVES else 4
    if p["form"] == 2:
        aligned = next((by for by in (8, 4) if not n * each % by and not k * each % by), 2)
        return tiled_us(p, m, n, k, p[PRECISIONS[v["precision"]]], each * (m * n + m * k + n * k),
                        aligned)
    return product(p, 2 * m * n * k, p[PRECISIONS[v["precision"]]], each * (m * n + m * k + n * k))


def interference_us(p, v):
    alone = [lambda: gemm_us(p, {"m": 4096, "n": 4096, "k": 4096, "precision": 2}),
             lambda: conv_us(p, {"batch": 64, "channels": 128, "size": 28, "filters": 128,
                                 "kernel": 3, "stride": 1, "precision": 1}),
             lambda: memory(p, 8 * (32 << 20))][v["victim"]]()
    hold = p["memory_hold"] if v["victim"] == 2 else p["product_hold"]
    return alone / (1 - hold * v["blocks"])


def collective_us(p, op, v):
    n, size = v["ranks"], v["bytes"]
    if n == 1:
        return memory(p, 2 * size)
    if op in ("all_to_all", "send_receive"):
        tree, ll = False, size <= 65536
    else:
        tree, ll = v["algorithm"] == 0, v["protocol"] == 0
    step = p["nccl_step_us"] / (4 if ll else 1)
    rate = p["nccl_bytes_per_s"] / 1e6 / (2 if ll else 1)
    if op == "all_reduce" and tree:
        return 2 * (n - 1).bit_length() * step + 2 * size / rate
    if op in ("all_to_all", "send_receive"):
        return step + size / rate
    return (2 if op == "all_reduce" else 1) * (n - 1) * (step + size / n / rate)


def copy_us(p, v):
    if v["kind"] in (0, 2):  # page-locked memory
        return max(p["kernel_us"], v["bytes"] / p["pcie_bytes_per_s"] * 1e6)
    if v["kind"] == 4:
        return memory(p, 2 * v["bytes"])
    if v["kind"] in (1, 3):  # the call itself waits
        return p["launch_us"] + p["latency_us"] + SYNCHRONIZE_US + max(
            p["kernel_us"], v["bytes"] / p["pageable_bytes_per_s"] * 1e6)
    return None


FOREACH = [[12], [8, 12, 12], [12, 8, 12, 8, 8, 8, 16]]  # bytes an element of each pass


def expected_us(p, op, v):
    if op == "move":
        return memory(p, MOVES[v["kernel"]] * v["elements"])
    if op in ("gemm", "gemm_sustained"):
        return gemm_us(p, v)
    if op == "conv":
        return conv_us(p, v)
    if op == "interference":
        return interference_us(p, v)
    if op == "interference_traffic":
        return None
    if op == "copy":
        return copy_us(p, v)
    if op == "launch":
        return p["launch_us"]
    if op in ("kernel_gap", "event_handover"):
        return p["kernel_us"]
    if op in ("event_record", "event_record_timed", "event_wait"):
        return p["event_us"]
    if op == "stream_synchronize":
        return SYNCHRONIZE_US
    if op == "launch_and_synchronize":
        return p["launch_us"] + p["latency_us"] + p["kernel_us"]
    if op == "optimizer":  # lists of at most 36 tensors
        launches = -(-v["tensors"] // 36)
        return sum(launches * memory(p, each * v["elements"] / launches)
                   for each in FOREACH[v["kind"]])
    if op in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all",
              "send_receive"):
        return collective_us(p, op, v)
    return None


def judge_samples(p, run, within=0.01):
    """(how many were judged, sentences about those that are wrong). Every reading counts, but the
    first of a collective, which waits for the ranks' clocks."""
    wrong, judged = [], 0
    for sample in run["samples"]:
        v = sample["parameters"]
        want = expected_us(p, sample["op"], v)
        if sample["op"] == "interference_traffic":
            moved = v["bytes"] / sample["durations_ps"][0] * 1e6 / v["blocks"]
            rate = min(v["bytes_per_us"] or 1e18, p["block_bytes_per_us"])
            if abs(moved / rate - 1) > within:
                wrong.append(f"{sample['op']} {v}: {moved:.0f} bytes a microsecond, not {rate:.0f}")
        if want is None:
            continue
        judged += 1
        if sample["op"] == "move" and v["traffic"] != MOVES[v["kernel"]] * v["elements"]:
            wrong.append(f"move {v}: counts {v['traffic']} bytes")
        readings = [d / 1e6 for d in sample["durations_ps"]]
        if "ranks" in v:
            readings = readings[1:]
        worst = max(readings, key=lambda r: abs(r / want - 1), default=want)
        single = sample["op"] == "launch_and_synchronize" or v.get("kind") in (1, 3)
        if abs(worst - want) > within * want + (CLOCK_US if single else 0.002):
            wrong.append(f"{sample['op']} {v}: {worst:.3f} us, not {want:.3f}")
    return judged, wrong


def quiet(runs):
    """The fake GPU's clock is virtual: how busy this machine was says nothing of its Runs, and the
    fit would refuse them."""
    for file in runs.glob("*.json*"):
        packed = file.suffix == ".gz"
        run = json.loads(gzip.decompress(file.read_bytes()) if packed else file.read_bytes())
        quality = run["quality"]
        reasons = [r for r in quality["reasons"] if "cores were busy" not in r]
        if quality["verdict"] == "noisy" and not reasons:
            quality.update(verdict="clean", reasons=[])
            text = json.dumps(run).encode()
            file.write_bytes(gzip.compress(text) if packed else text)


def fitted(machine, runs):
    """(profile, what fit said)"""
    quiet(runs)
    out = machine.folder / "fitted.json"
    status, said, error = machine.run("fit", "--backend", "cuda", "--base", "h100-sxm.datasheet",
                                      "--name", "fitted", "--runs", runs, "--out", out)
    if status:
        sys.exit(f"fit: {error}")
    return json.loads(out.read_text(encoding="utf-8")), said


# Of convolutions the form by octaves is judged, which knows no sum of a fixed time and work / rate.
SUM_WITHIN = 0.02


FRAMEWORK_LAUNCH_US = 5  # h100-sxm.datasheet


def found_by_tiles(kernels, p):
    """[(what, planted, fitted)] of the constants that shapes of real models identify."""
    add = next(c for c in kernels["memory"] if c["op"] == "add")
    rows = [("SMs", SMS, kernels["sms"]),
            ("bandwidth", p["memory_bytes_per_s"], kernels["bandwidth_bytes_per_s"]),
            ("plain kernel, us", p["kernel_us"], add["fixed_ps"] / 1e6)]
    for c in kernels["products"]:
        if c["class"] == "gemm":
            name = c["precision"]
            rows.append((f"tiles {name}", p[name], c["flops_per_s"]))
            if name == "bf16":  # elsewhere hardly a product is short enough to tell it from waves
                rows.append((f"tiles {name}, fixed us", p["kernel_us"], c["fixed_ps"] / 1e6))
            if name in ("bf16", "fp16"):  # a vocabulary of 50,257 halves
                rows.append((f"tiles {name}, 2 bytes", p["aligned2"], c["unaligned"]["2"]))
            else:
                rows.append((f"tiles {name}, 4 bytes", p["aligned4"], c["unaligned"]["4"]))
    return rows


def found_by_fit(profile, p):
    """[(what, planted, fitted)]"""
    m, c, i = profile["memory"], profile["compute"], profile["interference"]
    # What CUDA's bare launch takes is no framework's call: the base profile's is kept.
    rows = [("memory bandwidth", p["memory_bytes_per_s"],
             m["bandwidth_bytes_per_s"] * m["efficiency"]["mid"]),
            ("kernel floor, us", p["kernel_us"], m["kernel_ps"] / 1e6),
            ("a framework's launch, us", FRAMEWORK_LAUNCH_US, profile["host"]["launch_ps"] / 1e6)]
    if p["form"] == 2:
        rows += found_by_tiles(profile["kernels"], p)
    for precision in PRECISIONS:
        peak = c["peak_flops"][precision]
        if p["form"] == 0:
            rows.append((f"gemm {precision}", p[precision], peak * c["efficiency"]["gemm"]["mid"]))
        if precision != "fp16":  # no convolution is measured in it
            rows.append((f"conv {precision}", p["conv"] * p[precision],
                         peak * c["efficiency"]["conv"]["mid"]))
    for what, hold in (("sm_hold", p["product_hold"]), ("memory_hold", p["memory_hold"])):
        for level, blocks in (("low", 24), ("mid", 20), ("high", 16)):
            rows.append((f"{what} {level}", hold * blocks, i[what][level]))
    return rows


LEFT_OUT = {"a real collective beside computation", "copies to a peer", "links", "prediction",
            "collectives between GPUs", "several ranks of one host on one GPU"}


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
        wrong += [f"{file.name}: left out: {s['what']}: {s['why']}"
                  for s in run.get("skipped", []) if s["what"] not in LEFT_OUT
                  and not (slow and s["why"] == "the time of this stage was over")]
        if "samples" in run:
            judged, bad = judge_samples(p, run)
            print(f"{file.name}: {judged} of {len(run['samples'])} samples judged, "
                  f"{len(bad)} wrong")
            wrong += bad[:8]
    if len(runs) != len(STAGES):
        wrong.append(f"{len(runs)} Runs of {len(STAGES)} stages")
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
    status, said, error = machine.run("run", "--backend", "nccl", "--workload", "resnet50",
                                      "--cluster", "hgx-h100", "--profile", profile, "--ranks", 1,
                                      "--runs", machine.folder / "replays")
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
    ("out of memory beside a collective", "nccl", 8, "nccl", ONE, "device_bytes=5e7", 2,
     "out of memory", False),
    ("a launch that fails", "memory", 6, "cuda", (), "fail=cudaLaunchKernel fail_at=60000", 0,
     "launch failure", True),
    ("a call that hangs", "memory", 3, "cuda", (), "hang=cudaEventSynchronize hang_at=300", 0,
     "not done after", True),
    ("a call that hangs at once", "gemm", 2, "cuda", (), "hang=cublasLtMatmul", 2,
     "not done after", False),
    ("a rank that hangs", "nccl", 8, "nccl", ONE, "hang=ncclAllReduce hang_at=40", 2,
     "not done after", False),
    ("a process that dies", "memory", 3, "cuda", (), "crash=cudaEventSynchronize crash_at=300", 0,
     "ended with signal 6", True),
    ("no cuBLASLt", "gemm", 3, "cuda", (), "missing=libcublasLt", 2, "libcublasLt", False),
    ("no cuDNN", "conv", 3, "cuda", (), "missing=libcudnn", 2, "libcudnn", False),
    ("no NCCL", "nccl", 3, "nccl", (), "missing=libnccl", 2, "libnccl", False),
    ("no NVML", "memory", 3, "cuda", (), "missing=libnvidia-ml", 0, "libnvidia-ml", True),
    ("no MPS", "nccl", 8, "nccl", ONE, "mps", 2, "nvidia-cuda-mps-control", False),
    ("ranks in turns", "nccl", 8, "nccl", ONE, "turns=1", 2, "take turns", False),
    ("NCCL takes one rank", "nccl", 8, "nccl", ONE, "refuse=1", 2, "Duplicate GPU", False),
    ("time of memory", "memory", 1, "cuda", (), "memory_bytes_per_s=1e11", 0,
     "time of this stage was over", True),
    ("time of gemm", "gemm", 1, "cuda", (), "", 0, "time of this stage was over", True),
    ("time of conv", "conv", 1, "cuda", (), "", 0, "time of this stage was over", True),
    ("time of interference", "interference", 1, "cuda", (), "", 0, "time of this stage was over",
     True),
    ("time of copies", "copies", 1, "cuda", (), "pcie_bytes_per_s=1e9", 0,
     "time of this stage was over", True),
    ("time of nccl", "nccl", 7, "nccl", ONE, "", 0, "time of this stage was over", True),
    ("no time for nccl", "nccl", 1, "nccl", ONE, "", 2, "time of this stage was over", False),
]


def one_fault(ddpsim, folder, fault):
    """(row to print, sentences about what is wrong)"""
    name, stage, seconds, backend, flags, planted, want, words, kept = fault
    mps = planted != "mps"
    machine = Machine(ddpsim, Path(folder) / name.replace(" ", "-"), DEFAULT,
                      planted if mps else "", mps)
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
        if v.get("power_mw") != 699000 or v.get("sm_mhz") != 1782:
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
    ("an iteration that hangs", "hang=cublasLtMatmul hang_at=2000", True, ["run-resnet50"],
     ("--smoke",), 1, "did not end in 36 s"),
    ("no GPU", "fail=cudaGetDeviceCount", True, ["memory"], (), 1, "nothing was measured"),
    ("one stage of two", "missing=libcudnn", True, ["memory", "conv"], (), 0, "libcudnn"),
    ("the only stage", "missing=libcudnn", True, ["conv"], (), 1, "libcudnn"),
    ("MPS", "", False, ["nccl-one-gpu"], (), 1, "nvidia-cuda-mps-control"),
    ("memory for an iteration", "device_bytes=3e8", True, ["run-resnet50"], (), 1,
     "out of memory"),
    ("iterations of ranks in turns", "turns=1", True, ["run-resnet50-2"], (), 1, "take turns"),
    ("iterations of ranks that NCCL refuses", "refuse=1", True, ["run-resnet50-2"], (), 1,
     "Duplicate GPU"),
]


def one_whole(ddpsim, folder, fault):
    """(row to print, sentences about what is wrong)"""
    name, planted, mps, stages, flags, want, words = fault
    begin = time.monotonic()
    machine = Machine(ddpsim, Path(folder) / f"whole-{name.replace(' ', '-')}", DEFAULT, planted,
                      mps)
    status, said, error = machine.calibrate(stages, *flags)
    said += error
    wrong = []
    if status != want or words not in said:
        wrong.append(f"gpu_calibrate, {name}: {status}, not {want}, or not \"{words}\": {said}")
    if not (machine.folder / "out/runs.tar.gz").exists():
        wrong.append(f"gpu_calibrate, {name}: left no archive")
    wrong += [f"gpu_calibrate, {name}: still running: {c}" for c in machine.left_running()]
    where = max(0, said.find(words) - 60)
    sentence = " ".join(said[where:where + 150].split())
    return f"{name:<38} {status} {time.monotonic() - begin:5.1f} s  {sentence}", wrong


def faults(ddpsim, folder):
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # the slow ones sleep
        slow_first = sorted(FAULTS, key=lambda f: "hang" not in f[5])
        whole = [pool.submit(one_whole, ddpsim, folder, f) for f in WHOLE[:1]]
        whole += [pool.submit(one_fault, ddpsim, folder, f) for f in slow_first]
        whole += [pool.submit(one_whole, ddpsim, folder, f) for f in WHOLE[1:]]
        for done in whole:
            row, bad = done.result()
            print(row)
            wrong += bad
    return wrong


# Errors planted in calib/cuda: (name, file, what is replaced, by what, stage, backend, flags).
BREAKAGE = [
    ("an event on a wrong stream", "bench.cc", "cudaEventRecord(done_, stream_)",
     "cudaEventRecord(done_, nullptr)", "memory", "cuda", ()),
    ("the first event before the wait", "bench.cc",
     """launch_spin(std::max<std::int64_t>(20'000, count * each_ns), stream_);
        DDPSIM_CUDA(cudaEventRecord(begin_, stream_));""",
     """DDPSIM_CUDA(cudaEventRecord(begin_, stream_));
        launch_spin(std::max<std::int64_t>(20'000, count * each_ns), stream_);""",
     "memory", "cuda", ()),
    ("the last event late", "bench.cc", "bool full = cudaEventQuery",
     "launch_nothing(stream_);\nbool full = cudaEventQuery", "memory", "cuda", ()),
    ("one launch too many", "bench.cc", "i < count; ++i) launch(k++)",
     "i <= count; ++i) launch(k++)", "memory", "cuda", ()),
    ("a GPU that was idle", "bench.cc", "now_ns() < until;", "now_ns() < until && saved_ns_ < 0;",
     "memory", "cuda", ()),
    ("no warm-up of the host's calls", "bench.cc", "if (i >= 2) readings",
     "if (i >= 0) readings", "host", "cuda", ()),
    ("bytes counted twice", "stages.cc", "{8, 12, 4, 6, 8,", "{16, 12, 4, 6, 8,", "memory", "cuda",
     ()),
    ("operands that the cache has", "stages.cc", "return k % slots * slot;",
     "return 0 * k * slots * slot;", "memory", "cuda", ()),
    ("traffic that is not started again", "stages.cc", "        *stop = 0;\n", "", "interference",
     "cuda", ()),
    ("traffic before its victim", "stages.cc",
     "static_cast<unsigned long long*>(moved.at()), beside);\n"
     "        DDPSIM_CUDA(cudaEventRecord(end",
     "static_cast<unsigned long long*>(moved.at()), b.stream());\n"
     "        DDPSIM_CUDA(cudaEventRecord(end", "interference", "cuda", ()),
    ("another precision", "products.cc", "p == Precision::Tf32 ? CUBLAS",
     "p == Precision::Fp16 ? CUBLAS", "gemm", "cuda", ()),
    ("an algorithm without its workspace", "products.cc",
     " || r.memory > static_cast<std::size_t>(kConvWorkspace)", "", "conv", "cuda", ()),
    ("not the first algorithm", "products.cc", "if (r.status != CUDNN_STATUS_SUCCESS ||",
     "if (r.status != CUDNN_STATUS_SUCCESS || i < 3 ||", "conv", "cuda", ()),
    ("times from the first event on", "collectives.cc", "elapsed_ns(events[at], events[at + 1])",
     "elapsed_ns(events[0], events[at + 1])", "nccl", "nccl", ONE),
    ("no wait for the queue", "collectives.cc", "      launch_spin(kSpinNs, stream);\n", "", "nccl",
     "nccl", ONE),
    ("a rank that sums half", "collectives.cc", "static_cast<std::size_t>(p.bytes) / 4);",
     "static_cast<std::size_t>(p.bytes) / 4 / (1 + place.rank));", "nccl", "nccl", ONE),
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
    all_of = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "ddpsim_fake_gpu"],
                            capture_output=True, text=True, check=True).stdout
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
        key = (sample["op"], sample["parameters"].get("bytes", 0) if backend == "nccl" else 0)
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
