#!/usr/bin/env python3
"""Which operations does one rank of PyTorch 1.13's ZeroRedundancyOptimizer on top of
DistributedDataParallel issue in a step? Written from its behaviour and from no line of the
simulator.

  zero_redundancy.py QUESTION.json  the operations of each step, one a line
  zero_redundancy.py --self-test    closed forms

A question: {"world_size": N, "rank": R, "parameters": [[name, elements] ...] in registration order,
"arrival": order of gradients, "buffers": [[name, elements, dtype] ...], "steps": K}, and any knob
of KNOBS. All of float32. Not here: `overlap_with_ddp`, several parameter groups, `join`.

Gradients: DDP's buckets, all-reduced by every rank, so every rank has all gradients. Each parameter
belongs to one rank, which alone updates it. Then each rank in turn broadcasts what it owns,
asynchronously, and the host waits for all of them at the end of the step.
"""
import json
import sys

KNOBS = {
    "parameters_as_bucket_view": False,
    "bucket_cap_mb": 25,
    "first_bucket_mb": 1,
    "broadcast_buffers": True,
    "steps": 2,
}


def partition(elements, world_size):
    """The largest first, to the rank that has the fewest elements; the first of equals wins."""
    owned = [[] for _ in range(world_size)]
    sizes = [0] * world_size
    for p in sorted(range(len(elements)), key=lambda i: -elements[i]):
        rank = sizes.index(min(sizes))
        owned[rank].append(p)
        sizes[rank] += elements[p]
    return owned


def buckets(arrival, elements, limits):
    """In the order of arrival; a bucket is full with the tensor that reaches its limit."""
    made, bucket, size = [], [], 0
    for p in arrival:
        bucket.append(p)
        size += 4 * elements[p]
        if size >= limits[min(len(made), len(limits) - 1)]:
            made.append(bucket)
            bucket, size = [], 0
    return made + ([bucket] if bucket else [])


def steps(said):
    knobs = {**KNOBS, **{k: v for k, v in said.items() if k in KNOBS}}
    for knob in said:
        if knob not in KNOBS and knob not in (
            "world_size",
            "rank",
            "parameters",
            "arrival",
            "buffers",
        ):
            raise ValueError(f"unknown: {knob}")
    elements = [p[1] for p in said["parameters"]]
    world_size = said["world_size"]
    arrival = said.get("arrival") or list(range(len(elements)))[::-1]
    owned = partition(elements, world_size)
    mb = 1 << 20
    limits = [knobs["first_bucket_mb"] * mb, knobs["bucket_cap_mb"] * mb]
    logs = []
    for step in range(knobs["steps"]):
        log = [{"do": "mark", "what": "forward"}]

        def communicate(operation, count, dtype="float32", **fields):
            size = {"float32": 4, "int32": 4, "int64": 8}[dtype]
            fields = {"operation": operation, "elements": count, "dtype": dtype, **fields}
            log.append({"do": "op", "bytes": count * size, "group": world_size, **fields})

        if step == 1:  # rank 0's new buckets: tensors in order and how many buckets; sizes
            count = len(buckets(arrival, elements, limits))
            communicate("broadcast", len(elements) + 1, "int32", root=0, blocks_host=True)
            communicate("broadcast", count, "int32", root=0, blocks_host=True)
        if knobs["broadcast_buffers"]:
            sums = {}
            for _, count, dtype in said.get("buffers", []):
                sums[dtype] = sums.get(dtype, 0) + count
            for dtype, count in sums.items():
                communicate("broadcast", count, dtype, root=0)
        log.append({"do": "mark", "what": "backward"})
        plan, arrived = [list(range(len(elements)))], set()  # the first step: one bucket
        if step:
            plan = buckets(arrival, elements, limits)
        for p in arrival:
            log.append({"do": "gradient", "tensor": p})
            arrived.add(p)
            while plan and arrived.issuperset(plan[0]):
                bucket = plan.pop(0)
                count = sum(elements[t] for t in bucket)
                communicate("all_reduce", count, reduce_op="SUM", tensors=bucket, **{"async": True})
        log.append({"do": "mark", "what": "step"})
        own = owned[said.get("rank", 0)]
        count = sum(elements[p] for p in own)
        log.append({"do": "op", "kernel": "optimizer", "elements": count, "tensors": own})
        for rank, parameters in enumerate(owned):
            together = [parameters] if knobs["parameters_as_bucket_view"] else []
            for tensors in together or [[p] for p in parameters]:
                communicate(
                    "broadcast",
                    sum(elements[p] for p in tensors) or 1,  # a rank with nothing: zeros(1)
                    root=rank,
                    tensors=tensors,
                    **{"async": True},
                )
        log.append({"do": "host_wait", "why": "work", "on": "all broadcasts"})
        logs.append(log)
    return logs


def self_test():
    bad = []

    def check(what, a, b):
        if a != b:
            bad.append(f"{what}: {a}, expected {b}")

    check("greedy", partition([5, 9, 5, 1, 4], 2), [[1, 4], [0, 2, 3]])
    check("a tie goes to the first", partition([4, 4, 4], 2), [[0, 2], [1]])
    check("full with the tensor that reaches it", buckets([2, 1, 0], [9, 1, 1], [8]), [[2, 1], [0]])
    question = {"world_size": 3, "parameters": [["a", 10], ["b", 20], ["c", 5], ["d", 7]]}
    for view in (False, True):
        log = steps(dict(question, parameters_as_bucket_view=view, steps=3))[2]
        sent = [e for e in log if e.get("operation") == "broadcast"]
        check("all weights", sum(e["elements"] for e in sent), 42)
        check("messages", len(sent), 3 if view else 4)
    for b in bad:
        print(b)
    print("zero_redundancy.py self-test:", "failed" if bad else "ok")
    return 1 if bad else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    for number, log in enumerate(steps(json.loads(open(sys.argv[1]).read()))):
        for e in log:
            print(json.dumps({"step": number, **e}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
