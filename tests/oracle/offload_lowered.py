#!/usr/bin/env python3
"""Does ddpsim offload to the hosts what DeepSpeed and PyTorch offload, in their order?

  offload_lowered.py DDPSIM              every case; exit 1 if one differs
  offload_lowered.py DDPSIM --self-test  changes of what is expected are noticed

Written from DeepSpeed 0.14.5 (runtime/zero/stage_1_and_2.py: reduce_ipg_grads,
copy_grads_in_partition, step) and PyTorch 2.7 (distributed/fsdp/_fully_shard: foreach_all_gather,
foreach_reduce, finalize_backward), after the C++ and by its author: it notices a change, and
proves no reading. Compared of a steady step: copies between device and host with their bytes, what
the host computes with the bytes of its memory, and what it waits for, in the order of issue; and
that a plan that offloads differs in nothing else.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import megatron
import megatron_lowered as made_up

ROOT = Path(__file__).resolve().parent.parent.parent
SIZE = {"float32": 4, "bfloat16": 2, "float16": 2}


def up(value, divisor):
    return (value + divisor - 1) // divisor * divisor


# ---- ZeRO-1 and 2
def zero_events(ranks, dtype, stage, limit, micro_batches, overlap, pinned):
    numels = [made_up.count(s) for _, s in made_up.tensors()]
    size = SIZE[dtype]
    shard = up(sum(numels), 2 * ranks) // ranks
    start = [sum(numels[:p]) for p in range(len(numels))]

    def most(bucket):
        """(elements, elements of their parameters, slices) of the rank that owns the most."""
        best = (0, 0, 0)
        for r in range(ranks):
            n = whole = slices = 0
            for p in bucket:
                part = min(start[p] + numels[p], (r + 1) * shard) - max(start[p], r * shard)
                if part > 0:
                    n, whole, slices = n + part, whole + numels[p], slices + 1
            if n > best[0]:
                best = (n, whole, slices)
        return best

    def buckets():
        order = made_up.arrival() if stage == 2 or overlap else range(len(numels))
        out, bucket = [], []
        for p in order:
            if bucket and sum(numels[q] for q in bucket) + numels[p] > limit:
                out.append(bucket)
                bucket = []
            bucket.append(p)
        return out + [bucket]

    events = []
    for m in range(micro_batches):
        last = m + 1 == micro_batches
        if stage == 1 and not last:
            continue
        for bucket in buckets():
            n, whole, _ = most(bucket)
            if m > 0:
                events.append(["move", size * whole])
            if last:
                events.append(["wait", "check_slices"])
            events.append(["move", 4 * n if last else size * whole])
            if not pinned:
                events.append(["wait", "to_host"])
    if dtype == "float16":
        events.append(["wait", "overflow"])
    events += [["wait", "norms"], ["wait", "norm_sum"]]
    events += [["host", 8 * shard], ["host", 28 * shard], ["move", 4 * shard], ["wait", "weights"]]
    return events


# ---- fully_shard
def units():
    """Of gpt2-small: [(name, shapes)], the root first."""
    document = json.loads((ROOT / "workloads" / "gpt2-small.json").read_text())
    out = {"root": []}
    for t in document["tensors"]:
        parts = t["name"].split(".")
        name = ".".join(parts[:3]) if parts[1] == "h" else "root"
        out.setdefault(name, []).append(t["shape"])
    return list(out.items())


def fsdp2_events(ranks, micro_batches, fused):
    def shard(shapes):
        return sum(up(s[0], ranks) // ranks * made_up.count(s[1:]) for s in shapes)

    all_units = units()
    root, blocks = all_units[0], all_units[1:]
    events = []
    for m in range(micro_batches):
        # The root's weights stay from its forward to its backward, and are freed then.
        events.append(["move", 4 * shard(root[1])])
        for _, shapes in blocks:
            events.append(["move", 4 * shard(shapes)])
        # Before a block's backward its own weights, and then those of the block before it.
        backward = [shapes for _, shapes in reversed(blocks)]
        gathers = [4 * shard(shapes) for shapes in backward]
        scatters = [4 * shard(shapes) for shapes in backward + [root[1]]]
        events.append(["move", gathers[0]])
        for k, scattered in enumerate(scatters):
            if k + 1 < len(gathers):
                events.append(["move", gathers[k + 1]])
            events.append(["move", scattered])
            if m > 0:
                events += [["wait", "to_host"], ["host", 3 * scattered]]
        if m == 0:
            events += [["wait", "to_host"]] * len(scatters)
    n = sum(shard(shapes) for _, shapes in all_units)
    events.append(["host", n * (28 if fused else 80)])
    return events


# ---- ddpsim
def listed(ddpsim, arguments):
    asked = [ddpsim, "show", "program", "--format", "json", "--cluster", "dgx-h100"]
    out = subprocess.run(asked + arguments, capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{arguments}: {out.stderr}")
    return json.loads(out.stdout)["steps"][-1]["ops"]


def offloaded(op):
    name = op["op"].split("/", 1)[1] if op["op"].startswith("micro") else op["op"]
    if op["does"] == "move":
        return ["move", op["bytes"]]
    if op["lane"] == "host" and name.startswith("host_"):
        return ["host", op["bytes"]]
    what = name.split("/")[1].split(".")[0] if name.startswith("wait/") else None
    waits = ("check_slices", "to_host", "overflow", "norms", "norm_sum", "weights")
    return ["wait", what] if what in waits else None


def zero_case(ddpsim, ranks, dtype, stage, limit, micro_batches, overlap, pinned):
    o = megatron.options(dtype=dtype)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.json"
        file.write_text(json.dumps(made_up.workload(o)))
        ops = listed(
            ddpsim,
            ["--workload", str(file), "--ranks", str(ranks), "--plan", f"zero{stage}"]
            + ["--set", "cluster.host_memory=300GB/s", "--set", "offload_optimizer=cpu"]
            + ["--set", f"reduce_bucket_size={limit}"]
            + ["--set", f"accumulation_steps={micro_batches}"]
            + ["--set", f"overlap_comm={json.dumps(overlap)}"]
            + ["--set", f"offload_pin_memory={json.dumps(pinned)}"],
        )
    return [e for e in map(offloaded, ops) if e]


def fsdp2_case(ddpsim, ranks, micro_batches, fused):
    ops = listed(
        ddpsim,
        ["--workload", "gpt2-small", "--ranks", str(ranks), "--plan", "fsdp2"]
        + ["--set", "cluster.host_memory=300GB/s", "--set", "cpu_offload=true"]
        + ["--set", f"workload.optimizer.fused={json.dumps(fused)}"]
        + ["--set", f"workload.optimizer.foreach={json.dumps(not fused)}"]
        + ["--set", f"accumulation_steps={micro_batches}"],
    )
    return [e for e in map(offloaded, ops) if e]


CASES = [
    (zero_case, zero_events, case)
    for case in (
        (2, "float32", 1, 10**9, 1, False, False),
        (8, "float32", 2, 20000, 1, False, False),
        (8, "bfloat16", 2, 20000, 3, True, False),
        (3, "bfloat16", 1, 30000, 2, False, True),
        (4, "float16", 2, 10000, 2, False, True),
        (6, "float16", 1, 50000, 1, True, False),
    )
] + [(fsdp2_case, fsdp2_events, case) for case in ((8, 1, True), (6, 2, False), (2, 3, True))]


def difference(mine, theirs):
    for k in range(max(len(mine), len(theirs))):
        a = mine[k] if k < len(mine) else None
        b = theirs[k] if k < len(theirs) else None
        if a != b:
            return f"{k}: ddpsim {a}, expected {b}"
    return None


def main():
    ddpsim = sys.argv[1]
    bad = events = missed = changes = 0
    for play, expect, case in CASES:
        mine, theirs = play(ddpsim, *case), expect(*case)
        events += len(theirs)
        if found := difference(mine, theirs):
            bad += 1
            print(expect.__name__, case, "\n ", found)
        if "--self-test" in sys.argv:
            for k, e in enumerate(theirs):
                other = [e[0], e[1] + 4] if isinstance(e[1], int) else [e[0], "another"]
                for changed in (
                    theirs[:k] + theirs[k + 1 :],
                    theirs[:k] + [other] + theirs[k + 1 :],
                ):
                    changes += 1
                    missed += difference(mine, changed) is None
    print(f"{len(CASES)} cases, {events} events; {bad} differ")
    if "--self-test" in sys.argv:
        print(f"self-test: {changes} changes, {missed} not noticed")
    return 1 if bad or missed else 0


if __name__ == "__main__":
    sys.exit(main())
