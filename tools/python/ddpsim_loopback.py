#!/usr/bin/env python3
"""How fast ranks that share one GPU talk over sockets on loopback, and what decides it.

    ddpsim_one_gpu.py --ranks 2 -- python3 ddpsim_loopback.py --seconds 20 --out loopback-n2.json

A rank's sockets are served by one thread, NCCL's progress thread, which copies what is sent and
what is received. So all-reduces of 1 to 100 MiB, and a reduce, in which the first and the last rank
do only one of both, are timed with that thread, and with the process, on cores of its own, on cores
side by side and far apart, and where the scheduler puts them; in cycles, so that a machine that
drifts is told from a place that matters. Rank 0 writes a Run (schema ``ddpsim.run/1``, evidence
``kernel``): ``loopback/PLACE/WAY``, a sample of each rank and cycle, of series back to back
(``durations_ps``: of one operation), with the cores that the progress thread was seen on and how
busy it was.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

os.environ["NCCL_SET_THREAD_NAME"] = "1"  # before NCCL starts
sys.path.insert(0, str(Path(__file__).resolve().parent))
import ddpsim_capture as cap  # noqa: E402  (says itself what is missing where PyTorch is)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

MIB = 1 << 20
SERIES = 4  # of each way, place and cycle
Threads = Dict[int, Tuple[str, float, int]]  # id -> name, seconds of CPU, core it was last on


def threads() -> Threads:
    out: Threads = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            head, _, tail = (task / "stat").read_text().rpartition(")")
            fields = tail.split()
            ticks = int(fields[11]) + int(fields[12])
            out[int(task.name)] = (
                head.partition("(")[2],
                ticks / os.sysconf("SC_CLK_TCK"),
                int(fields[36]),
            )
    return out


def progress_threads(before: Threads, after: Threads) -> List[int]:
    """NCCL's, by their name; else the one, beside the main one, that used the processor most."""
    named = [t for t, (name, _, _) in after.items() if "Progress" in name]
    used = sorted(
        (after[t][1] - before[t][1], t) for t in after if t in before and t != os.getpid()
    )
    return named or [t for s, t in used[-1:] if s > 0]


def place(wanted: Set[int], only: Sequence[int] = ()) -> None:
    """Keeps this process, or some threads of it, to these cores."""
    for t in only or threads():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(t, wanted)


def series(operation: Callable[[], Any], count: int) -> int:
    """Picoseconds of one of `count` operations back to back."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    operation()
    begin.record()
    for _ in range(count):
        operation()
    end.record()
    torch.cuda.synchronize()
    return max(1, round(begin.elapsed_time(end) * 1e9 / count))


def ways() -> List[Tuple[str, int, int, Callable[[], Any]]]:
    """(name, bytes, operations of a series, operation)."""
    value = torch.ones(25 * MIB, dtype=torch.float32, device="cuda")

    def of(call: Callable[..., Any], size: int, *more: int) -> Callable[[], Any]:
        part = value[: size // 4]
        return lambda: call(part, *more)

    return [
        ("all_reduce", 25 * MIB, 4, of(dist.all_reduce, 25 * MIB)),
        ("all_reduce", MIB, 20, of(dist.all_reduce, MIB)),
        ("all_reduce", 100 * MIB, 1, of(dist.all_reduce, 100 * MIB)),
        ("reduce", 25 * MIB, 4, of(dist.reduce, 25 * MIB, 0)),
    ]


def places(rank: int, ranks: int, cores: List[int]) -> List[Tuple[str, Set[int], Set[int]]]:
    """(name, cores of the process, cores of its progress thread)."""
    everywhere, block = set(cores), max(1, len(cores) // ranks)
    mine = set(cores[rank * block : (rank + 1) * block])
    return [
        ("anywhere", everywhere, everywhere),
        ("own_cores", mine, mine),
        ("progress_own_core", mine, {min(mine)}),
        ("progress_side_by_side", everywhere - set(cores[:ranks]), {cores[rank % len(cores)]}),
        ("one_block", set(cores[:block]), set(cores[:block])),
    ]


def measure(seconds: float) -> List[Dict[str, Any]]:
    begin = time.monotonic()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    cores = sorted(os.sched_getaffinity(0))
    todo = ways()
    for _, _, _, operation in todo:
        operation()
    torch.cuda.synchronize()
    before = threads()
    series(todo[0][3], 20)
    progress = progress_threads(before, threads())
    samples: List[Dict[str, Any]] = []
    for cycle in range(99):
        for name, process, thread in places(rank, ranks, cores):
            place(process)
            place(thread, progress)
            for way, size, count, operation in todo:
                late = [bool(samples) and time.monotonic() - begin > seconds]
                dist.broadcast_object_list(late, 0)
                if late[0]:
                    place(set(cores))
                    return samples
                dist.barrier()
                was, at = threads(), time.monotonic()
                took = [series(operation, count) for _ in range(SERIES)]
                spent, now = time.monotonic() - at, threads()
                busy = sum(now[t][1] - was[t][1] for t in progress if t in now and t in was)
                parameters = {
                    "rank": rank,
                    "ranks": ranks,
                    "bytes": size,
                    "cycle": cycle,
                    "progress_busy_percent": round(100 * busy / spent),
                }
                for t in progress[:1]:
                    parameters["progress_core"] = now.get(t, ("", 0, -1))[2]
                samples.append(
                    {
                        "op": f"loopback/{name}/{way}",
                        "parameters": parameters,
                        "durations_ps": took,
                    }
                )
    return samples


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=20, help="at most, but one reading at least (default 20)"
    )
    parser.add_argument("--out", type=Path, required=True, help="the Run")
    args = parser.parse_args(argv)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    mine = measure(args.seconds)
    everyone: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    if dist.get_rank() == 0:
        samples = [s for part in everyone for s in part]
        run = cap.kernel_run(samples, f"loopback/n{dist.get_world_size()}")
        cap.write_run(run, args.out)
        for s in samples:
            p = s["parameters"]
            if p["rank"] == 0 and p["cycle"] < 2:
                rate = 2 * (p["ranks"] - 1) / p["ranks"] if "all_reduce" in s["op"] else 1
                best = sorted(s["durations_ps"])[len(s["durations_ps"]) // 2]
                print(
                    f"{s['op']:<36} {p['bytes'] >> 20:4d} MiB {best / 1e9:8.3f} ms"
                    f" {rate * p['bytes'] * 1e3 / best:6.2f} GB/s, core"
                    f" {p.get('progress_core', -1)}, {p['progress_busy_percent']} %",
                    flush=True,
                )
    dist.barrier()
    return 0


if __name__ == "__main__":
    cap.leave(main())
