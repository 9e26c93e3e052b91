#!/usr/bin/env python3
"""What does Horovod do with tensors that it reduces together on GPUs, other than one all-reduce?

Written from horovod 2626dc87: ops/nccl_operations.cc (NCCLHierarchicalAllreduce,
NCCLTorusAllreduce), ops/adasum_gpu_operations.cc, ops/adasum/adasum.h (FusedAllreduce),
ops/adasum/adasum_mpi.cc
(InitializeVHDDReductionComms), ops/gpu_operations.cc, common/operations.cc; horovod.py has what is
decided before. From no line of the simulator.

  horovod_parts.py --self-test     closed forms

parts(...) lists, in the order in which the background thread issues them, what the last rank of a
host does: (operation, group, where, bytes). Groups: "host" (ranks of a host), "across" (those of
one place on each host), "pair.K" (two ranks that exchange in Adasum's level K), "block.K" (all
ranks that have met by then). Where: "nccl" (a stream of the GPU; the thread goes on), "host" (the
thread does it, and goes on when it is done). Bytes: of a reduce-scatter and an all-gather the whole
vector.
"""
import sys

from horovod import ATOMIC_UNIT, PADDING

DOUBLE = 8


def elements_of(counts, element_size, local, batched=True):
    """What is in the buffer: tensors behind one another, each padded where copies are batched; then
    dummies, up to a multiple of the unit. One by itself stays where it is: nothing is added."""
    if len(counts) == 1:
        return counts[0]
    pad = PADDING if batched else 1
    size = sum(-(-n * element_size // pad) * pad for n in counts)
    unit = local * ATOMIC_UNIT
    return -(-(size // element_size) // unit) * unit


def scatter(elements, element_size, local):
    each, rest = divmod(elements, local)
    ops = []
    if each:
        ops.append(("reduce_scatter", "host", "nccl", each * local * element_size))
    if rest:
        ops.append(("reduce", "host", "nccl", rest * element_size))
    return each, rest, ops


def gather(each, rest, element_size, local):
    ops = []
    if each:
        ops.append(("all_gather", "host", "nccl", each * local * element_size))
    if rest:
        ops.append(("broadcast", "host", "nccl", rest * element_size))
    return ops


def copied(counts, ops, batched=True):
    """Into the fusion buffer and out of it, where there is more than one tensor."""
    if len(counts) == 1:
        return ops
    size = sum(counts)
    return [("copy_in", "", "nccl", size)] + ops + [("copy_out", "", "nccl", size)]


def hierarchical(counts, element_size, local, hosts, batched=True):
    n = elements_of(counts, element_size, local, batched)
    each, rest, ops = scatter(n, element_size, local)
    own = (each + rest) * element_size  # local_size - 1 is the root of what is left over
    ops.append(("wait", "", "host", 0))
    ops.append(("to_host", "", "host", own))
    ops.append(("all_reduce", "across", "host", own))
    ops.append(("to_device", "", "host", own))
    ops += gather(each, rest, element_size, local)
    ops.append(("scale", "", "nccl", n * element_size))  # postscale: 1 / ranks, a kernel of its own
    return copied(counts, ops, batched)


def torus(counts, element_size, local, hosts, batched=True):
    n = elements_of(counts, element_size, local, batched)
    each, rest, ops = scatter(n, element_size, local)
    ops.append(("all_reduce", "across", "nccl", (each + rest) * element_size))
    ops += gather(each, rest, element_size, local)
    if len(counts) == 1:  # of several the copy out scales
        ops.append(("scale", "", "nccl", n * element_size))
    return copied(counts, ops, batched)


def levels(local, hosts):
    """Distances of the exchange: powers of two from the ranks of a host on."""
    size = 1
    while 2 * size <= local * hosts:
        size *= 2
    out, level = [], 1
    while level < size:
        if level >= local:
            out.append(level)
        level *= 2
    return out


def halves(count, upper):
    """What a rank keeps and what it sends of `count` elements, at one level."""
    first = count >> 1
    return (count - first, first) if upper else (first, count - first)


def held(counts, local, hosts, rank):
    """Elements that a rank holds before each level, exact."""
    n = elements_of(counts, 1, local, False) if len(counts) > 1 else counts[0]
    each, rest = divmod(n, local)
    mine = each + (rest if rank % local == local - 1 else 0)
    out = []
    for level in levels(local, hosts):
        out.append(mine)
        mine, _ = halves(mine, bool(rank & level))
    return out


def adasum(counts, element_size, local, hosts, batched=True):
    n = elements_of(counts, element_size, local, batched)
    each, rest, ops = scatter(n, element_size, local)
    ops.append(("wait", "", "host", 0))
    mine = each + rest
    ops.append(("to_host", "", "host", mine * element_size))
    went = []
    for k, level in enumerate(levels(local, hosts)):
        went.append(mine)
        ops.append(("exchange", f"pair.{k}", "host", mine * element_size))
        mine, _ = halves(mine, True)  # the last rank is always the upper one
        ops.append(("dots", "", "host", 2 * mine * element_size))
        ops.append(("all_reduce", f"block.{k}", "host", 3 * len(counts) * DOUBLE))
        ops.append(("add", "", "host", 3 * mine * element_size))
    for k in reversed(range(len(went))):
        ops.append(("collect", f"pair.{k}", "host", went[k] * element_size))
    ops.append(("to_device", "", "host", (each + rest) * element_size))
    ops += gather(each, rest, element_size, local)
    # The thread itself waits for the gradients (HorovodOp::WaitForData), before anything else.
    return [("wait_for_data", "", "host", 0)] + copied(counts, ops, batched)


KINDS = {"hierarchical": hierarchical, "torus": torus, "adasum": adasum}


def parts(kind, counts, element_size, local, hosts, batched=True):
    """On one host the first two are not used (operations.cc: size() != local_size()); Adasum is."""
    return KINDS[kind](list(counts), element_size, local, hosts, batched)


def stream_of(number, streams):
    """FinalizeGPUQueue: operations take turns on HOROVOD_NUM_NCCL_STREAMS streams."""
    return number % streams


def sent_across(ops, hosts):
    """Bytes that a rank sends to other hosts: an all-reduce of S by 2 (h - 1)/h S, as a ring or by
    halving and doubling; an exchange by its half."""
    total = 0.0
    for operation, group, _, size in ops:
        if operation == "all_reduce" and group == "across":
            total += 2 * (hosts - 1) / hosts * size
        elif operation in ("exchange", "collect"):
            total += size / 2
    return total


def self_test():
    failed = []

    def expect(what, condition):
        if not condition:
            failed.append(what)

    names = [o[0] for o in parts("torus", [1000, 24], 4, 4, 2)]
    expect(
        "torus: all on the stream",
        names == ["copy_in", "reduce_scatter", "all_reduce", "all_gather", "copy_out"],
    )
    expect("a unit of 64 a rank", elements_of([1000, 24], 4, 4) == 1024)
    expect("one by itself is not padded", elements_of([1001], 4, 4) == 1001)
    expect("16 bytes each", elements_of([1, 1], 4, 1) == 64 and elements_of([1] * 20, 4, 1) == 128)
    one = parts("torus", [1001], 4, 4, 2)
    expect(
        "a remainder",
        one
        == [
            ("reduce_scatter", "host", "nccl", 4000),
            ("reduce", "host", "nccl", 4),
            ("all_reduce", "across", "nccl", 1004),
            ("all_gather", "host", "nccl", 4000),
            ("broadcast", "host", "nccl", 4),
            ("scale", "", "nccl", 4004),
        ],
    )
    expect("fewer elements than ranks", parts("torus", [3], 4, 4, 2)[0][:2] == ("reduce", "host"))
    blocked = [o for o in parts("hierarchical", [4096, 4096], 4, 8, 4) if o[2] == "host"]
    expect(
        "hierarchical: the thread waits, copies, reduces, copies",
        [o[0] for o in blocked] == ["wait", "to_host", "all_reduce", "to_device"]
        and {o[3] for o in blocked[1:]} == {4096},
    )
    expect("levels of 8 x 4", levels(8, 4) == [8, 16])
    expect("levels of one host", levels(8, 1) == [])
    for local, hosts in ((8, 2), (8, 8), (4, 16), (1, 4), (2, 64)):
        counts = [local * hosts * 64 * 7, local * hosts * 64]
        whole = sum(counts) / local * 4
        ada = sent_across(parts("adasum", counts, 4, local, hosts), hosts)
        flat = sent_across(parts("hierarchical", counts, 4, local, hosts), hosts)
        tor = sent_across(parts("torus", counts, 4, local, hosts), hosts)
        expect(
            f"{local} x {hosts}: 2 (h - 1)/h of an l-th",
            abs(ada - 2 * (hosts - 1) / hosts * whole) < 1 and ada == flat == tor,
        )
        # Halves that are sent are what the others hold: each level ends with disjoint parts.
        for level_index, level in enumerate(levels(local, hosts)):
            before = [held(counts, local, hosts, r)[level_index] for r in range(local * hosts)]
            for r in range(local * hosts):
                mine, sent = halves(before[r], bool(r & level))
                theirs, _ = halves(before[r ^ level], bool((r ^ level) & level))
                expect(f"level {level}: halves meet", before[r] == before[r ^ level])
                whole_of = mine + sent == before[r]
                expect(f"level {level}: sent is theirs", sent == theirs and whole_of)
    agreed = ("all_reduce", "block.0", "host", 48)
    expect("three doubles a tensor", agreed in parts("adasum", [64, 64], 4, 2, 2))
    expect("streams take turns", [stream_of(i, 3) for i in range(5)] == [0, 1, 2, 0, 1])
    for f in failed:
        print("failed:", f)
    print("self-test:", "failed" if failed else "ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(self_test())
