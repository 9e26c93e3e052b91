#!/usr/bin/env python3
"""Which all-reduces does Horovod make of gradients that become ready, and when?

Written from the behaviour of horovod 0.21 to master 2626dc87 (0.28.1 and later) and from no line of
the simulator. Each rank has a thread that begins a cycle no sooner than HOROVOD_CYCLE_TIME after it
began the last one, takes what the hooks have put into its queue, agrees with all other ranks on
what every rank has, fuses it, and reduces it before its next cycle (on a CPU) or puts it on a
stream (on a GPU). So what is fused is decided while it runs.

  horovod.py QUESTION.json      the fused all-reduces, one a line
  horovod.py --self-test        closed forms

A question: {"tensors": {name: elements or [elements, dtype]}, "ready": [for each rank [[time, name
or [names of a group]] ...]], and any knob of KNOBS}. Times, `coordination`, `negotiation`, `launch`
and `reduce` are in the same unit, whichever.

Left out: the autotuner, Adasum, torus, join, elastic, stall checks, process sets, sparse gradients.
"""
import json
import sys

SIZE = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}

# Upstream names; defaults of 0.21 and later. operations.cc BackgroundThreadLoop reads them.
KNOBS = {
    "HOROVOD_CYCLE_TIME": 1.0,  # in the question's unit of time; 5 before 0.21
    "HOROVOD_FUSION_THRESHOLD": 128 << 20,  # 64 MiB before 0.21
    "HOROVOD_CACHE_CAPACITY": 1024,
    "HOROVOD_HIERARCHICAL_ALLREDUCE": False,
    "HOROVOD_DISABLE_GROUP_FUSION": False,
    "HOROVOD_BATCH_D2D_MEMCOPIES": True,  # only in builds with CUDA or ROCm
    "compression": "none",  # or fp16
    "backward_passes_per_step": 1,  # who calls: `ready` is of the last pass
    "local_size": 1,
    "gpu": False,
    "timeline": False,  # doubles the vector of cache bits
    "cached": [],  # names in the cache already, by bit
    "coordination": 0.0,  # from the last rank's pop to an agreement
    "negotiation": 0.0,  # more, where something is not cached
    "launch": 0.0,  # GPU: host time of an operation
    "device_ready": {},  # GPU: when the stream has a gradient, by name
    "reduce": [0.0, 0.0],  # an operation's time: a + b * bytes
    "copy": 0.0,  # into or out of the fusion buffer: times bytes
    "last_cycle": None,  # when each rank began its last cycle; None: never
}

ATOMIC_UNIT = 64  # common.h FUSION_BUFFER_ATOMIC_UNIT, elements
PADDING = 16  # BATCHED_D2D_PADDING, bytes


def rounded_threshold(threshold, local_size):
    """controller.cc TensorFusionThresholdBytes, where every host has as many ranks."""
    step = local_size * 8 * ATOMIC_UNIT
    return -(-threshold // step) * step if threshold > 0 else 0


def bit_vector_bytes(entries, timeline=False):
    """response_cache.cc CacheCoordinator::sync: three bits of state, and one an entry."""
    return 8 * -(-(entries + 3) // 64) * (2 if timeline else 1)


def split_groups(names, count):
    """horovod/torch/optimizer.py split_list: groups=N cuts the registration order."""
    each, more = divmod(len(names), count)
    cuts = [i * each + min(i, more) for i in range(count + 1)]
    return [names[a:b] for a, b in zip(cuts, cuts[1:])]


def fuse(waiting, threshold, padding=1):
    """controller.cc FuseResponses. `waiting`: (name, bytes, what must be equal to be fused)."""
    fused = []
    waiting = list(waiting)
    while waiting:
        name, size, kind = waiting.pop(0)
        taken, total, skipped, passed = [name], -(-size // padding) * padding, [], 0
        while waiting:
            other, size, other_kind = waiting[0]
            size = -(-size // padding) * padding
            if other_kind == kind and total + size <= threshold:
                total += size
                taken.append(other)
            else:
                passed += size
                if total + passed > threshold:
                    break  # what does not fit by its size always ends here
                skipped.append(waiting[0])
            waiting.pop(0)
        waiting = skipped + waiting
        fused.append(taken)
    return fused


class Cache:
    """response_cache.cc: a bit for each name; bits stay, who is evicted the order of use says."""

    def __init__(self, capacity, names=()):
        self.capacity, self.bit, self.by_use = capacity, {}, []
        for name in names:
            self.put(name)

    def put(self, name):
        if self.capacity == 0:
            return
        if name in self.bit:
            self.by_use.remove(name)
        elif len(self.bit) == self.capacity:
            self.bit[name] = self.bit.pop(self.by_use.pop())  # the new one inherits the bit
        else:
            self.bit[name] = len(self.bit)
        self.by_use.insert(0, name)

    def used(self, name):
        self.by_use.remove(name)
        self.by_use.insert(0, name)

    def has(self, name):
        return name in self.bit


def hierarchical(elements, element_size, local_size, fused):
    """nccl_operations.cc NCCLHierarchicalAllreduce::Execute: what each rank does, in order. The
    host waits before the copy to its memory, and for MPI; averaging is a kernel at the end."""
    if fused:
        unit = local_size * ATOMIC_UNIT
        elements = -(-elements // unit) * unit
    each, rest = divmod(elements, local_size)
    root = {"only_local_rank": local_size - 1}
    ops = []
    if each:
        ops.append(
            {
                "operation": "reduce_scatter",
                "group": "host",
                "lane": "nccl",
                "bytes": each * local_size * element_size,
            }
        )
    if rest:
        ops.append(
            {
                "operation": "reduce",
                "group": "host",
                "lane": "nccl",
                "bytes": rest * element_size,
                "root": local_size - 1,
            }
        )
    for name, lane in (
        ("device_to_host", "nccl"),
        ("all_reduce", "host"),
        ("host_to_device", "nccl"),
    ):
        if each:
            ops.append(
                {
                    "operation": name,
                    "group": "same local rank",
                    "lane": lane,
                    "bytes": each * element_size,
                    "more_bytes_of_last": rest * element_size,
                }
            )
        elif rest:
            ops.append(
                {
                    "operation": name,
                    "group": "same local rank",
                    "lane": lane,
                    "bytes": rest * element_size,
                    **root,
                }
            )
    if each:
        ops.append(
            {
                "operation": "all_gather",
                "group": "host",
                "lane": "nccl",
                "bytes": each * local_size * element_size,
            }
        )
    if rest:
        ops.append(
            {
                "operation": "broadcast",
                "group": "host",
                "lane": "nccl",
                "bytes": rest * element_size,
                "root": local_size - 1,
            }
        )
    ops.append({"operation": "scale", "lane": "nccl", "bytes": 2 * elements * element_size})
    return ops


class Coordinator:
    """Rank 0 without a cache's help: a tensor is ready when every rank has asked for it."""

    def __init__(self, ranks):
        self.ranks, self.asked = ranks, {}

    def negotiate(self, messages):
        ready = []
        for names in messages:  # rank 0's own, then those of 1, 2, ...
            for name in names:
                self.asked[name] = self.asked.get(name, 0) + 1
                if self.asked[name] == self.ranks:
                    del self.asked[name]
                    ready.append(name)
        return ready


def read(question):
    for key in question:
        if key not in KNOBS and key not in ("tensors", "ready"):
            raise ValueError(f"unknown: {key}")
    knobs: dict = {**KNOBS, **question}
    half = knobs["compression"] == "fp16"
    knobs["kind"], knobs["elements"] = {}, {}
    for name, said in knobs["tensors"].items():
        count, dtype = said if isinstance(said, (list, tuple)) else (said, "float32")
        knobs["kind"][name] = "float16" if half and dtype.startswith("float") else dtype
        knobs["elements"][name] = count
    return knobs


def play(question):
    """Every cycle in which something was decided, until all tensors are reduced."""
    k = read(question)
    ranks = len(k["ready"])
    size = {n: k["elements"][n] * SIZE[k["kind"][n]] for n in k["elements"]}
    threshold = rounded_threshold(k["HOROVOD_FUSION_THRESHOLD"], k["local_size"])
    padding = PADDING if k["gpu"] and k["HOROVOD_BATCH_D2D_MEMCOPIES"] else 1
    cache = Cache(k["HOROVOD_CACHE_CAPACITY"], k["cached"])
    coordinator = Coordinator(ranks)
    cycle = k["HOROVOD_CYCLE_TIME"]
    coming, group_of = [], {}
    for entries in k["ready"]:
        flat = []
        for number, (time, names) in enumerate(entries):
            if isinstance(names, list):
                group_of.update({n: number for n in names})
            flat += [(time, n) for n in ([names] if isinstance(names, str) else names)]
        coming.append(sorted(flat, key=lambda entry: entry[0]))
    queue = [[] for _ in range(ranks)]
    began = list(k["last_cycle"] or [None] * ranks)
    free = [0.0 if b is None else b for b in began]
    stream_free, log, left, number = 0.0, [], sum(len(c) for c in coming), 0
    while left:
        number += 1
        for r in range(ranks):
            began[r] = free[r] if began[r] is None else max(free[r], began[r] + cycle)
        hits, misses = [], []
        for r in range(ranks):  # the pop
            while coming[r] and coming[r][0][0] <= began[r]:
                queue[r].append(coming[r].pop(0)[1])
            hits.append([n for n in queue[r] if cache.has(n)])
            misses.append([n for n in queue[r] if not cache.has(n)])
        agreed = max(began) + (k["coordination"] if k["HOROVOD_CACHE_CAPACITY"] else 0)
        common = set(hits[0]).intersection(*hits[1:])
        responses = sorted(common, key=cache.bit.get)
        star = any(misses) or not k["HOROVOD_CACHE_CAPACITY"]
        entries_then = len(cache.bit)
        if star:
            agreed += k["negotiation"]
            responses += coordinator.negotiate(misses)
        else:
            for name in responses:
                cache.used(name)
        for r in range(ranks):  # what not every rank has goes to the back
            queue[r] = [n for n in hits[r] if n not in common]
        described = [(n, size[n], k["kind"][n]) for n in responses]
        if k["HOROVOD_DISABLE_GROUP_FUSION"] and group_of:
            decided, seen = [], []
            for name in [n for n in responses if n in group_of]:
                if group_of[name] not in seen:
                    seen.append(group_of[name])
                    decided += fuse(
                        [d for d in described if group_of.get(d[0]) == group_of[name]],
                        threshold,
                        padding,
                    )
            decided += fuse([d for d in described if d[0] not in group_of], threshold, padding)
        else:
            decided = fuse(described, threshold, padding)
        now, ops = agreed, []
        for names in decided:
            total = sum(size[n] for n in names)
            takes = k["reduce"][0] + k["reduce"][1] * total
            copy = k["copy"] * total if len(names) > 1 else 0.0
            start = now + copy
            if k["gpu"]:  # the stream goes on, the thread does not wait
                start = copy + max(
                    [now + k["launch"], stream_free]
                    + [k["device_ready"].get(n, 0.0) for n in names]
                )
                stream_free = start + takes + copy
                now += k["launch"]
            else:
                now = start + takes + copy
            ops.append(
                {
                    "tensors": names,
                    "elements": sum(k["elements"][n] for n in names),
                    "dtype": k["kind"][names[0]],
                    "bytes": total,
                    "start": start,
                    "end": start + takes,
                    "copied": len(names) > 1,
                }
            )
            if k["gpu"] and k["HOROVOD_HIERARCHICAL_ALLREDUCE"]:
                ops[-1]["parts"] = hierarchical(
                    ops[-1]["elements"], SIZE[ops[-1]["dtype"]], k["local_size"], len(names) > 1
                )
            if star:
                for name in names:
                    cache.put(name)
        left -= len(responses) * ranks
        free = [now] * ranks
        if ops or star:
            log.append(
                {
                    "cycle": number,
                    "began": list(began),
                    "agreed": agreed,
                    "star": star,
                    "bit_vector_bytes": (
                        bit_vector_bytes(entries_then, k["timeline"])
                        if k["HOROVOD_CACHE_CAPACITY"]
                        else 0
                    ),
                    "ops": ops,
                }
            )
        if not any(queue) and not coordinator.asked and left and all(c for c in coming):
            skip = min(c[0][0] for c in coming)  # nothing to do: cycles pass, a cycle apart
            following = [max(f, b + cycle) for f, b in zip(free, began)]
            if cycle >= max(following) - min(following) + k["coordination"] and cycle > 0:
                passed = max(0, int((skip - max(following)) / cycle) - 1)
                for r in range(ranks):
                    began[r] = following[r] + (passed - 1) * cycle
            elif cycle == 0:
                free = [max(f, skip) for f in free]
        elif left and cycle == 0:
            later = [c[0][0] for c in coming if c]
            free = [max(f, min(later)) if later else f for f in free]
        if left and number > 10_000_000:
            raise ValueError("a tensor is not ready on every rank")
    return log


def operations(question):
    return [op for cycle in play(question) for op in cycle["ops"]]


# --- is what somebody recorded possible?
def cycles_needed(ops, bits, sizes, threshold, kind="float32"):
    """The fewest cycles that `ops` (lists of tensors, in order) can come from, and where they end;
    None: from none. A cycle makes of its tensors, in the order of their bits, what fuse() makes."""
    best = [0] + [None] * len(ops)
    cut = [0] * (len(ops) + 1)
    for end in range(1, len(ops) + 1):
        union = []
        for begin in range(end - 1, -1, -1):
            union = ops[begin] + union
            if best[begin] is None:
                continue
            inside = sorted(union, key=bits.get)
            if fuse([(n, sizes[n], kind) for n in inside], threshold) == ops[begin:end]:
                if best[end] is None or best[begin] + 1 < best[end]:
                    best[end], cut[end] = best[begin] + 1, begin
    if best[-1] is None:
        return None
    cuts, at = [], len(ops)
    while at:
        cuts.append(at)
        at = cut[at]
    return cuts[::-1]


# --- closed forms
def self_test():
    failed = []

    def expect(what, condition):
        if not condition:
            failed.append(what)

    names = [f"t{i}" for i in range(10)]
    sizes = {n: 1000 * (i + 1) for i, n in enumerate(names)}
    arrive = [[float(i) / 2, n] for i, n in enumerate(names)]
    everything = {"tensors": sizes, "ready": [[[0, n] for n in names]] * 4, "cached": names}
    ops = operations(everything)
    expect("all ready: one all-reduce of all", len(ops) == 1 and ops[0]["bytes"] == 4 * 55000)
    ops = operations({**everything, "HOROVOD_FUSION_THRESHOLD": 4 * 10240})
    expect(
        "never above the threshold",
        [o["tensors"] for o in ops] == [names[:4]] + [[n] for n in names[4:]],
    )
    ops = operations({**everything, "compression": "fp16"})
    expect("fp16: half the bytes", ops[0]["bytes"] == 2 * 55000)
    ops = operations({**everything, "HOROVOD_FUSION_THRESHOLD": 0})
    expect("threshold 0: one each", len(ops) == 10)
    slow = {
        "tensors": sizes,
        "ready": [arrive, arrive],
        "cached": names,
        "HOROVOD_CYCLE_TIME": 1,
        "reduce": [2.0, 0.0],
    }
    ops = operations(slow)
    expect(
        "what arrives during a reduction is fused next",
        [o["tensors"] for o in ops] == [["t0"], ["t1", "t2", "t3", "t4"], names[5:9], ["t9"]]
        and [o["start"] for o in ops] == [0, 2, 4, 6],
    )
    late = [[time + 1.2, n] for time, n in arrive]
    ops = operations({**slow, "ready": [arrive, late], "reduce": [0, 0]})
    expect(
        "the last rank decides",
        [o["tensors"] for o in ops]
        == [["t0", "t1"], ["t2", "t3"], ["t4", "t5"], ["t6", "t7"], ["t8", "t9"]],
    )
    log = play({**slow, "cached": [], "reduce": [0, 0]})
    expect("not cached: a star in every cycle that has something", all(c["star"] for c in log))
    mixed = {"a": [10, "float32"], "b": [10, "float16"], "c": [10, "float32"]}
    ops = operations({"tensors": mixed, "ready": [[[0, n] for n in mixed]], "cached": list(mixed)})
    expect("it looks past another dtype", [o["tensors"] for o in ops] == [["a", "c"], ["b"]])
    cache = Cache(2, ["a", "b"])
    cache.used("a")
    cache.put("c")
    expect("the least recently used goes, its bit is inherited", cache.bit == {"a": 0, "c": 1})
    expect("bit vector", [bit_vector_bytes(n) for n in (0, 61, 62, 161)] == [8, 8, 16, 24])
    expect("threshold", rounded_threshold(1000, 4) == 2048)
    expect("threshold, round already", rounded_threshold(2 << 20, 2) == 2 << 20)
    expect("groups", split_groups(list(range(64)), 3)[1] == list(range(22, 43)))
    parts = hierarchical(1001, 4, 4, False)
    expect(
        "hierarchical: a remainder",
        [(p["operation"], p["bytes"]) for p in parts]
        == [
            ("reduce_scatter", 4000),
            ("reduce", 4),
            ("device_to_host", 1000),
            ("all_reduce", 1000),
            ("host_to_device", 1000),
            ("all_gather", 4000),
            ("broadcast", 4),
            ("scale", 8008),
        ],
    )
    expect("hierarchical: fused, padded", hierarchical(1001, 4, 4, True)[0]["bytes"] == 4096)
    bits = {n: i for i, n in enumerate(names)}
    expect("possible", cycles_needed([["t0"], ["t1", "t2"]], bits, sizes, 1 << 30) == [1, 2])
    expect("impossible", cycles_needed([["t2", "t1"]], bits, sizes, 1 << 30) is None)
    expect("one cycle", cycles_needed([["t0"], ["t1"]], bits, sizes, 2500) == [2])
    ops = operations({**everything, "gpu": True, "launch": 1, "device_ready": {"t9": 7}})
    expect("GPU: waits for the last gradient in it", len(ops) == 1 and ops[0]["start"] == 7)
    for f in failed:
        print("failed:", f)
    print("self-test:", "failed" if failed else "ok")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    with open(sys.argv[1], encoding="utf-8") as f:
        for cycle in play(json.load(f)):
            for op in cycle["ops"]:
                print(
                    f"cycle {cycle['cycle']:4}  {op['start']:12.6g} to {op['end']:12.6g}  "
                    f"{op['bytes']:10} {op['dtype']}  {' '.join(op['tensors'])}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
