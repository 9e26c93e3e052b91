#!/usr/bin/env python3
"""Measure Open MPI here through mpi4py, as a ddpsim Run (schema ``ddpsim.run/1``).

Every rank runs this script; rank 0 writes the Run. ``ddpsim run --backend mpi`` and ``ddpsim
calibrate --backend mpi --collectives`` start it on hosts that they make; anywhere else mpirun does:

    mpirun -n 4 python3 tools/python/ddpsim_mpi.py --out run.json --sizes 4096,1048576
    mpirun -n 4 python3 tools/python/ddpsim_mpi.py --out run.json --workload w.json --plan '{}'

With --sizes: MPI_Allreduce in place of so many bytes of float32, each after a common start; samples
``all_reduce {ranks, bytes}``: end on the last rank less begin on the last rank. Evidence
``collective``.

With --workload: training steps that average gradients by hand. Computation is slept as long as the
workload says; gradients are numpy arrays of the real sizes. After backward each is summed in place
by a blocking ``comm.Allreduce(MPI.IN_PLACE, gradient)`` and divided, in the order of registration
(``"granularity": "flat"``: one copy of all of them). Evidence ``system``.

With --messages all_reduce:BYTES or broadcast:BYTES: one such collective and nothing else, for Open
MPI's monitoring of messages (``tools/mpi_messages``); nothing is written.

Needs mpi4py and numpy, not PyTorch. Times are integers in picoseconds of CLOCK_MONOTONIC, which
processes of one machine share.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ddpsim_files import append_line, write_whole  # noqa: E402
import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

now = time.monotonic_ns
HEAD_START_NS = 5_000_000
NOISY_SPREAD = 0.01  # median absolute deviation of the steady steps / their median
NOISY_LOAD = 0.3  # cores that are busy while all ranks sleep
SPANS = 3  # of the last steps


class MpiError(Exception):
    """A measurement that cannot be made; the message is one sentence for the user."""


def wait_until(moment: int) -> None:
    while now() < moment:
        time.sleep(max(0.0, (moment - now()) / 1e9))


def start_together(comm: Any) -> int:
    """A moment of CLOCK_MONOTONIC that all ranks know, at which this returns."""
    comm.Barrier()
    moment = np.array([now() + HEAD_START_NS], np.int64)
    comm.Bcast(moment, 0)
    wait_until(int(moment[0]))
    return int(moment[0])


def pattern(count: int) -> np.ndarray:
    return (1 + np.arange(count, dtype=np.int64) % 7).astype(np.float32)


def require(right: bool, what: str) -> None:
    if not right:
        raise MpiError(f"a sum of {what} is wrong")


# ---- all-reduces alone


def measure_sizes(
    comm: Any,
    sizes: Sequence[int],
    warmups: int,
    repetitions: int,
    so_far: Callable[[List[Dict[str, Any]]], None],
) -> List[Dict[str, Any]]:
    """``so_far``: is told what was measured before each size but the first; on rank 0."""
    samples: List[Dict[str, Any]] = []
    for size in sizes:
        if samples:
            so_far(samples)
        once = pattern(size // 4)
        total = once * np.float32(comm.size * (comm.size + 1) // 2)
        data = np.empty_like(once)
        times: List[Tuple[int, int]] = []
        for _ in range(warmups + repetitions):
            np.multiply(once, np.float32(comm.rank + 1), out=data)
            start_together(comm)
            begin = now()
            comm.Allreduce(MPI.IN_PLACE, data)
            times.append((begin, now()))
            require(bool(np.allclose(data, total, rtol=1e-5)), f"{size} bytes")
        everyone = comm.gather(times[warmups:], 0)
        if comm.rank == 0:
            durations = [
                (max(t[k][1] for t in everyone) - max(t[k][0] for t in everyone)) * 1000
                for k in range(repetitions)
            ]
            samples.append(
                {
                    "op": "all_reduce",
                    "parameters": {"ranks": comm.size, "bytes": size},
                    "durations_ps": durations,
                }
            )
    return samples


# ---- steps


class Sleeper:
    """Sleeps; being late once shortens the next sleep, so that lateness does not add up."""

    def __init__(self) -> None:
        self.late = 0

    def sleep(self, duration: int) -> None:
        wanted = now() + duration - self.late
        wait_until(wanted)
        self.late = max(0, min(now() - wanted, 20_000_000))


class Job:
    def __init__(
        self, comm: Any, workload: Dict[str, Any], plan: Dict[str, Any], slow: float
    ) -> None:
        self.comm = comm
        self.flat = plan.get("granularity", "per_parameter") == "flat"
        self.micro = plan.get("accumulation_steps", 1)
        arrives = set(workload["arrival"])
        unused = set(plan.get("unused_parameters", []))
        self.names = [t["name"] for t in workload["tensors"]]
        self.indices = [
            i for i, name in enumerate(self.names) if i in arrives and name not in unused
        ]
        shapes = [workload["tensors"][i]["shape"] for i in self.indices]
        self.grads = [np.full(shape, 1e-2, np.float32) for shape in shapes]
        times = workload["times"]
        self.phases = {
            name: round(slow * times[f"{name}_ps"] / 1000)
            for name in ("forward", "backward", "optimizer")
        }
        self.sleeper = Sleeper()

    def step(self) -> Dict[str, Any]:
        marks = [("start", now())]
        reduced: List[Dict[str, Any]] = []
        for m in range(self.micro):
            self.sleeper.sleep(self.phases["forward"])
            marks.append((f"micro{m}/fwd" if self.micro > 1 else "fwd", now()))
            self.sleeper.sleep(self.phases["backward"])
            marks.append((f"micro{m}/bwd", now()))
        self.average(reduced)
        marks.append(("reduced", now()))
        self.sleeper.sleep(self.phases["optimizer"])
        marks.append(("optimizer", now()))
        return {"marks": marks, "collectives": reduced}

    def average(self, reduced: List[Dict[str, Any]]) -> None:
        if self.flat:
            value = np.concatenate([g.ravel() for g in self.grads])
            self.sum(value, "flat", self.indices, reduced)
            value /= np.float32(self.comm.size)
            begin = 0
            for g in self.grads:
                g[...] = value[begin : begin + g.size].reshape(g.shape)
                begin += g.size
            return
        for i, g in zip(self.indices, self.grads):
            self.sum(g, self.names[i], [i], reduced)
            g /= np.float32(self.comm.size)

    def sum(
        self, value: np.ndarray, name: str, tensors: List[int], reduced: List[Dict[str, Any]]
    ) -> None:
        begin = now()
        self.comm.Allreduce(MPI.IN_PLACE, value)
        reduced.append(
            {
                "op": f"allreduce/{name}",
                "tensors": tensors,
                "bytes": value.nbytes,
                "begin": begin,
                "end": now(),
            }
        )


def measure_steps(job: Job, steady: int) -> Dict[str, Any]:
    comm = job.comm
    begin = start_together(comm)
    history = [job.step() for _ in range(1 + steady)]
    for g in job.grads:
        require(bool(np.allclose(g, 1e-2, rtol=1e-4)), "gradients")
    everyone = comm.gather(history, 0)
    if comm.rank != 0:
        return {}
    ends = [[begin] + [h["marks"][-1][1] for h in rank] for rank in everyone]
    last = [max(e[k] for e in ends) for k in range(len(history) + 1)]
    steps = [
        {
            "kind": "steady" if k else "first",
            "duration_ps": (last[k + 1] - last[k]) * 1000,
            "page_faults": 0,
        }
        for k in range(len(history))
    ]
    spans = []
    for k in range(max(1, len(history) - SPANS), len(history)):
        for rank, theirs in enumerate(everyone):
            spans += spans_of(theirs[k], k, rank, last[k])
    settled = [s["duration_ps"] for s in steps[2:]] or [steps[-1]["duration_ps"]]
    typical = median(settled)
    spread = median(abs(s - typical) for s in settled) / typical
    return {"steps": steps, "spans": spans, "tensors": job.names, "spread": spread}


def spans_of(step: Dict[str, Any], k: int, rank: int, origin: int) -> List[Dict[str, Any]]:
    def span(op: str, begin: int, end: int, lane: str, **more: Any) -> Dict[str, Any]:
        return {
            "step": k,
            "actor": rank,
            "lane": lane,
            "op": op,
            **more,
            "ready_ps": (begin - origin) * 1000,
            "begin_ps": (begin - origin) * 1000,
            "end_ps": (end - origin) * 1000,
        }

    out = []
    before = step["marks"][0][1]
    for name, t in step["marks"][1:]:
        if name.endswith("fwd") or name == "optimizer":
            out.append(span(name, before, t, "host"))
        before = t
    for c in step["collectives"]:
        more = {"tensors": c["tensors"], "bytes": c["bytes"], "algorithm": ""}
        out.append(span(c["op"], c["begin"], c["end"], "worker", **more))
    return out


# ---- the Run


def snmp(name: str) -> int:
    rows = [
        line.split()
        for line in Path("/proc/net/snmp").read_text(encoding="ascii").splitlines()
        if line.startswith("Tcp:")
    ]
    return int(rows[1][rows[0].index(name)])


def busy_core_s() -> float:
    """Core seconds that the machine has been busy."""
    fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    ticks = [int(f) for f in fields]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def quiet_load() -> float:
    """Cores that are busy while this rank, which alone is started so far, sleeps."""
    before = busy_core_s()
    time.sleep(0.25)
    return (busy_core_s() - before) / 0.25


def document(comm: Any, evidence: str, load: float, resent: int) -> Dict[str, Any]:
    library = MPI.Get_library_version().split(",")[0].strip()
    cpu = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return {
        "schema": "ddpsim.run/1",
        "kind": "measured",
        "evidence": evidence,
        "case": {"key": ""},
        "origin": {
            "version": "",
            "revision": "",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "argv": [os.path.basename(sys.argv[0])],
            "cpu": cpu,
            "cores": os.cpu_count() or 0,
            "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
            "backend": "mpi",
            "hosts": os.environ.get("DDPSIM_HOSTS", "loopback"),
            "compute": "none" if evidence == "collective" else "timed",
            "profile": "",
            "software": f"{library}, mpi4py {mpi4py_version()}, {comm.size} ranks",
        },
        "clock": {"domain": "CLOCK_MONOTONIC", "offset_bound_ps": 0},
        "steps": [],
        "samples": [],
        "spans": [],
        "quality": {
            "verdict": "clean",
            "spread": 0.0,
            "retransmits": resent,
            "load": max(0.0, load),
            "reasons": [],
        },
        "skipped": [],
    }


def mpi4py_version() -> str:
    import mpi4py  # pylint: disable=import-outside-toplevel

    return mpi4py.__version__


def judge(run: Dict[str, Any], load: float, spread: float) -> None:
    reasons = run["quality"]["reasons"]
    if load > NOISY_LOAD:
        reasons.append(f"{load:.1f} cores were busy while all ranks slept")
    if spread > NOISY_SPREAD:
        reasons.append(f"the steps spread by {100 * spread:.1f} % (median absolute deviation)")
    run["quality"]["spread"] = round(spread, 6)
    run["quality"]["verdict"] = "noisy" if reasons else "clean"


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--partial", type=Path, help="with --sizes: what is measured so far")
    parser.add_argument("--sizes", help="bytes, separated by commas")
    parser.add_argument("--warmups", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--workload", type=Path)
    parser.add_argument("--plan", default="{}")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--slow", action="append", default=[], help="RANK=FACTOR")
    parser.add_argument("--hosts", help="host of each rank, checked against DDPSIM_HOST")
    parser.add_argument("--messages", help="OPERATION:BYTES")
    return parser.parse_args(argv)


def measure(args: argparse.Namespace) -> None:
    comm = MPI.COMM_WORLD
    if args.hosts and args.hosts.split(",")[comm.rank] != os.environ.get("DDPSIM_HOST"):
        raise MpiError(f"mpirun started rank {comm.rank} on host {os.environ.get('DDPSIM_HOST')}")
    if args.messages:
        operation, size = args.messages.split(":")
        data = np.ones(int(size) // 4, np.float32)
        if operation == "broadcast":
            comm.Bcast(data, 0)
        else:
            comm.Allreduce(MPI.IN_PLACE, data)
        return
    if not args.out or bool(args.sizes) == bool(args.workload):
        raise MpiError("give --out, and --sizes or --workload (--help)")
    request = comm.Ibarrier()  # polled seldom: a barrier that blocks keeps a core busy
    while not request.Test():
        time.sleep(0.002)
    load = quiet_load()
    again = snmp("RetransSegs")
    spread = 0.0
    if args.sizes:
        sizes = [int(s) // 4 * 4 for s in args.sizes.split(",")]
        found: Dict[str, Any] = {
            "samples": measure_sizes(
                comm, sizes, args.warmups, args.repetitions, lambda s: keep(comm, args, load, s)
            )
        }
    else:
        slow = dict(s.split("=", 1) for s in args.slow)
        factor = float(slow.get(str(comm.rank), 1))
        workload = json.loads(args.workload.read_text(encoding="utf-8"))
        found = measure_steps(Job(comm, workload, json.loads(args.plan), factor), args.steps)
        spread = found.pop("spread", 0.0)
    resent = sum(comm.allgather(snmp("RetransSegs") - again))
    if comm.rank != 0:
        return
    run = document(comm, "collective" if args.sizes else "system", load, resent)
    run.update(found)
    judge(run, load, spread)
    write_whole(args.out, json.dumps(run) + "\n")


def keep(comm: Any, args: argparse.Namespace, load: float, samples: List[Dict[str, Any]]) -> None:
    """The Run of what was measured so far, for when all ranks are ended."""
    run = document(comm, "collective", load, 0)
    run["samples"] = samples
    judge(run, load, 0.0)
    count = len(args.sizes.split(","))
    missing = {
        "what": f"{count - len(samples)} of {count} sizes",
        "why": f"interrupted after {len(samples)} of them",
    }
    run["skipped"].append(missing)
    append_line(args.partial, json.dumps(run))


def main(argv: Optional[Sequence[str]] = None) -> int:
    try:
        measure(parse(argv))
    except (MpiError, OSError, RuntimeError, MemoryError, KeyError, ValueError) as error:
        print(f"ddpsim_mpi: {str(error).strip().splitlines()[0]}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
