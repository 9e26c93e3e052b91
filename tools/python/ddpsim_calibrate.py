#!/usr/bin/env python3
"""Measure what c10d's collectives and DDP's own work cost here, as a ddpsim Run of samples (schema
``ddpsim.run/1``, evidence ``collective``).

Every rank runs this script; rank 0 writes the Run. ``ddpsim calibrate --backend torch`` starts the
ranks on hosts that it makes; torchrun does elsewhere.

Samples, raw, in picoseconds:
  all_reduce, broadcast    {ranks, bytes}: end of the last rank to end of the last rank, one
                           collective after another, float32
  half_all_reduce          {ranks, bytes}: as all_reduce, float16
  broadcast_idle           {ranks, bytes}: one broadcast after 40 ms of silence, from a moment that
                           all ranks know to the end of the last
  in_flight                {ranks, first_bytes, second_bytes, gap_us, which}: two all-reduces, the
                           second `gap_us` after the first; the end of one (`which`), from the start
                           of the first
  all_reduce_cpu           {ranks, bytes}: core time of one such all-reduce, all ranks and the
                           kernel's network (one mean)
  bare_*, ddp_*, half_*    {tensors, bytes, ranks}: forward and backward of a model of `tensors`
                           parameters of `bytes` bytes without computation, bare, under
                           DistributedDataParallel in a group of one, and with its
                           fp16_compress_hook: what hooks, copies and halves cost; `ranks` processes
                           do it at once
  thin_product             {rows, columns, rank, operators}: a matrix of float32 by `rank` columns,
                           its transpose by as many, and a matrix from two such factors, by rank 0
                           alone, each matrix out of the caches: PowerSGD's products, a sample for
                           each of the three; before the first two the factor is made orthogonal, so
                           that Python calls `operators` operators
"""
from __future__ import annotations

import gc
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ddpsim_files import append_line, write_whole  # noqa: E402
import ddpsim_capture as cap  # noqa: E402
import ddpsim_record as rec  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    fp16_compress_hook,
)  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    _orthogonalize as orthogonalize,
)  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

Samples = List[Dict[str, Any]]
now = time.monotonic_ns
BYTES = (4, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
MIB = rec.MIB
THIN = (
    (64, 64),
    (64, 576),
    (256, 256),
    (256, 2304),
    (512, 4608),
    (1000, 512),
    (2048, 512),
    (8000, 256),
)
COLD = 128 * MIB  # of matrices of one kind: more than a processor's last cache
MODELS = (
    (100, 1 << 10),
    (100, 1 << 16),
    (40, 1 << 20),
    (10, 1 << 22),
    (4, 1 << 24),
)  # tensors, bytes


def repetitions(size: int) -> int:
    return 20 if size <= 1 << 18 else 8 if size <= 1 << 22 else 4


def collectives(op: str, ranks: int, group: Any, sizes: Sequence[int]) -> Samples:
    """On ranks 0 to ranks - 1; the others only pass through the gathering."""
    out: Samples = []
    member = dist.get_rank() < ranks
    for size in sizes:
        ends: List[int] = []
        busy = 0.0
        if member:
            half = op == "half_all_reduce"
            tensor = torch.full(
                (max(1, size // (2 if half else 4)),),
                1e-3,
                dtype=torch.float16 if half else torch.float32,
            )
            count = repetitions(size)
            for k in range(count + 2):
                if k == 2:
                    busy = rec.busy_core_s()
                if op != "broadcast":
                    dist.all_reduce(tensor, group=group)
                    tensor.fill_(1e-3) if k % 8 == 7 else None  # the sum grows with every call
                else:
                    dist.broadcast(tensor, 0, group=group)
                ends.append(now())
            busy = (rec.busy_core_s() - busy) / count
        everyone = [e for e in rec.gathered(ends) if e]
        last = [max(column) for column in zip(*everyone)]
        parameters = {"ranks": ranks, "bytes": max(4, size)}
        out.append(
            {
                "op": op,
                "parameters": parameters,
                "durations_ps": [(b - a) * 1000 for a, b in zip(last[1:], last[2:])],
            }
        )
        if op == "all_reduce" and size >= 1 << 20:
            out.append(
                {
                    "op": "all_reduce_cpu",
                    "parameters": parameters,
                    "durations_ps": [max(1, round(busy * 1e12))],
                }
            )
    return out


def idle_broadcasts(ranks: int, group: Any, sizes: Sequence[int]) -> Samples:
    out: Samples = []
    for size in sizes:
        start = rec.start_together(60_000_000)
        tensor = torch.zeros(max(1, size // 4))
        took: List[int] = []
        for _ in range(12 if dist.get_rank() < ranks else 0):
            rec.wait_until(start)
            dist.broadcast(tensor, 0, group=group)
            took.append(now() - start)
            start += 40_000_000
        columns = zip(*(e for e in rec.gathered(took) if e))
        out.append(
            {
                "op": "broadcast_idle",
                "parameters": {"ranks": ranks, "bytes": max(4, size)},
                "durations_ps": [max(c) * 1000 for c in columns],
            }
        )
    return out


def in_flight(ranks: int, group: Any, pairs: Sequence[Any], gap_us: int) -> Samples:
    out: Samples = []
    for sizes in pairs:
        tensors = [torch.zeros(size // 4) for size in sizes]
        took: List[List[int]] = []
        for _ in range(3):
            start = rec.start_together(100_000_000)
            ends = [0, 0]
            if dist.get_rank() < ranks:
                futures = []
                for i, tensor in enumerate(tensors):
                    rec.wait_until(start + i * gap_us * 1000)
                    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
                    futures.append(future.then(lambda _, i=i: ends.__setitem__(i, now())))
                for future in futures:
                    future.wait()
            everyone = [e for e in rec.gathered(ends) if e[0]]
            took.append([max(c) - start for c in zip(*everyone)])
        for i in (0, 1):
            out.append(
                {
                    "op": "in_flight",
                    "parameters": {
                        "ranks": ranks,
                        "first_bytes": sizes[0],
                        "second_bytes": sizes[1],
                        "gap_us": gap_us,
                        "which": i,
                    },
                    "durations_ps": [t[i] * 1000 for t in took],
                }
            )
    return out


class Chain(rec.nn.Module):
    """Parameters that get a gradient each, and nothing else."""

    def __init__(self, tensors: int, size: int) -> None:
        super().__init__()
        self.parts = rec.nn.ParameterList(
            [rec.nn.Parameter(torch.full((size // 4,), 1e-2)) for _ in range(tensors)]
        )
        self.start = torch.zeros(1, requires_grad=True)
        self.sleeper = rec.Sleeper()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for p in self.parts:
            x = rec.TimedLayer.apply(x, p, 0, self.sleeper)
        return x


def passes(model: rec.nn.Module, chain: Chain, count: int) -> Dict[str, List[int]]:
    out: Dict[str, List[int]] = {"forward": [], "backward": []}
    for k in range(count + 3):
        for p in chain.parts:
            p.grad = None
        a = now()
        loss = model(chain.start).sum()
        b = now()
        loss.backward()
        c = now()
        if k >= 3:
            out["forward"].append((b - a) * 1000)
            out["backward"].append((c - b) * 1000)
    return out


def framework(ranks: int, alone: Any, tensors: int, size: int) -> Samples:
    """Hooks and copies, on ranks 0 to ranks - 1 at once; rank 0's times."""
    found: Dict[str, Dict[str, List[int]]] = {}
    for name in ("bare", "ddp", "half"):
        chain = Chain(tensors, size)
        model = (
            chain
            if name == "bare"
            else DistributedDataParallel(chain, process_group=alone, bucket_cap_mb=25)
        )
        if name == "half":
            model.register_comm_hook(alone, fp16_compress_hook)
        dist.barrier()
        if dist.get_rank() < ranks:
            found[name] = passes(model, chain, 10)
        dist.barrier()  # nobody makes the next model beside who measures this one
        del model, chain
        gc.collect()
    return [
        {
            "op": f"{name}_{phase}",
            "parameters": {"tensors": tensors, "bytes": size, "ranks": ranks},
            "durations_ps": durations,
        }
        for name, times in found.items()
        for phase, durations in times.items()
    ]


def thin_products() -> Samples:
    """As PowerSGD's hook makes them of a convolution's or a linear layer's gradient, by one thread:
    a factor made orthogonal, the matrix by it; the same with its transpose; and back from both.

    A bucket's matrices come one after another, so each is out of the caches when its turn comes.
    """
    out: Samples = []
    if dist.get_rank() != 0:
        return out
    for rows, columns in THIN:
        count = max(4, min(400, COLD // (4 * rows * columns)))
        matrices = [torch.randn(1, rows, columns) for _ in range(count)]
        for rank in (1, 2, 4):
            p, q = torch.randn(1, rows, rank), torch.randn(1, columns, rank)
            to_p, to_q = torch.empty_like(p), torch.empty_like(q)
            orthogonal = 2 if rank > 2 else 2 * rank + 4 * (rank - 1)

            def by_q(m: torch.Tensor) -> None:
                orthogonalize(q)
                torch.bmm(m, q, out=to_p)

            def by_p(m: torch.Tensor) -> None:
                orthogonalize(p)
                torch.bmm(m.transpose(1, 2), p, out=to_q)

            def both(m: torch.Tensor) -> None:
                torch.bmm(p, q.transpose(1, 2), out=m)

            for product, operators in ((by_q, orthogonal + 1), (by_p, orthogonal + 1), (both, 1)):
                took = []
                for m in matrices:
                    begin = now()
                    product(m)
                    took.append((now() - begin) * 1000)
                out.append(
                    {
                        "op": "thin_product",
                        "parameters": {
                            "rows": rows,
                            "columns": columns,
                            "rank": rank,
                            "operators": operators,
                        },
                        "durations_ps": took,
                    }
                )
    return out


def parts_of(counts: List[int], groups: Dict[int, Any], alone: Any) -> List[Callable[[], Samples]]:
    """What is measured, in order, the same on all ranks."""
    parts: List[Callable[[], Samples]] = []
    for n in counts:
        g = groups[n]
        ops = [("all_reduce", BYTES), ("broadcast", (4, 1 << 16, 1 << 20))]
        ops += [("half_all_reduce", (1 << 20, 1 << 22))] if n <= 4 else []
        parts += [partial(collectives, op, n, g, [size]) for op, sizes in ops for size in sizes]
        parts.append(partial(idle_broadcasts, n, g, (4, 1 << 16)))
    for n in counts[:2]:
        for first, second in ((12, 4), (12, 6), (12, 8), (8, 3), (8, 5), (16, 10)):
            pair = [(first * MIB, second * MIB)]
            parts.append(partial(in_flight, n, groups[n], pair, 42_000))
    parts += [partial(framework, n, alone, *model) for n in [1] + counts[:2] for model in MODELS]
    return parts


def measure(argv: Optional[Sequence[str]]) -> None:
    parser = cap.OneLineParser(
        description=(
            "Measure c10d's collectives and DDP's own work; run it under torchrun, or through"
            " ddpsim calibrate --backend torch."
        )
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--partial", type=Path, help="file to which rank 0 adds what it has so far")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stage", action="append", choices=("collectives", "products"))
    rec.add_memory_flag(parser)
    args = parser.parse_args(argv)
    rec.require_rank("ddpsim_calibrate.py", "ddpsim calibrate --backend torch")
    memory = rec.apply_memory_flag(args)
    if memory:
        rec.touch_memory(256 * MIB)
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    counts = [n for n in (2, 4, 8, 16, 32) if n <= world]
    groups = {n: dist.new_group(list(range(n))) for n in counts}
    alone = [dist.new_group([r]) for r in range(world)][dist.get_rank()]
    load = rec.quiet_load()
    again = rec.retransmits()
    stages = args.stage or ["collectives", "products"]
    parts = parts_of(counts, groups, alone) if "collectives" in stages else []
    parts += [thin_products] if "products" in stages else []
    samples: Samples = []
    for k, part in enumerate(parts):
        if dist.get_rank() == 0 and samples:
            so_far = rec.document("collective", samples, load, 0, memory)
            so_far["skipped"].append(
                {
                    "what": f"{len(parts) - k} of {len(parts)} parts",
                    "why": f"interrupted after {k} of them",
                }
            )
            append_line(args.partial, json.dumps(so_far))
        samples += part()
    resent = sum(rec.gathered(rec.retransmits() - again))
    if dist.get_rank() == 0:
        write_whole(
            args.out, json.dumps(rec.document("collective", samples, load, resent, memory)) + "\n"
        )
    dist.barrier()


def main(argv: Optional[Sequence[str]] = None) -> int:
    try:
        measure(argv)
    except (rec.RecordError, cap.CaptureError, OSError, RuntimeError, MemoryError) as error:
        print(f"ddpsim_calibrate: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    cap.leave(main())
