#!/usr/bin/env python3
"""NCCL's double binary tree, Simple, among servers of one GPU each: piece by piece, beside `ddpsim predict --fidelity message`.

Written from NCCL's description of its trees, before anything of it was compared with the C++; nothing shared: the trees are built from the root down, rates are solved anew at each event,
numbers of NCCL, of the cluster and of the profile are written down here. Standard library only.

    python3 nccl_tree.py DDPSIM         # every case within 0.1 %, rank by rank
    python3 nccl_tree.py --self-test    # the trees' pictures, and that a wrong tree is noticed
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

# NCCL: two channels, one for each tree; a piece is one of the 8 parts of a connection's buffer of 4 MiB.
PIECE = 512 << 10
PARTS = 8
# Microseconds: what launches a tree, and a step between hosts: NCCL's 14 for a tree, what a socket takes beyond NCCL's 14 for a ring (30), two cables less the
# one microsecond that NCCL's number has in it.
LAUNCH = 8.4
def step(cable):
    return 14 + (30 - 14) + (2 * cable - 1)


CABLE = 3
RATE = 25e3 / 8 * 0.75  # bytes per microsecond, each way: 25 Gb/s, of which sockets reach 0.75
CASES = [(hosts, size, CABLE) for hosts in (2, 3, 6, 8) for size in (96 << 10, 1 << 20, (1 << 20) + 4096, 5 << 19, 6 << 20, 13 << 20)]
CASES += [(hosts, size, 1000) for hosts in (2, 3, 8) for size in (1 << 20, 2 << 20, 13 << 20)]  # the buffers are too small for this distance


def btree(n):
    """Children of each rank. Rank 0 stands on the largest power of two below n; below a rank, one step of half the size to either side, a smaller one where that
    is beyond the last rank."""
    children = {r: [] for r in range(n)}

    def grow(rank, reach):
        if reach < 1:
            return
        left = rank - reach
        right, step = rank + reach, reach
        while right >= n and step > 1:
            step //= 2
            right = rank + step
        children[rank] = [left] + ([right] if right < n else [])
        grow(left, reach // 2)
        if right < n:
            grow(right, step // 2)

    top = 1
    while top * 2 < n:
        top *= 2
    children[0] = [top]
    grow(top, top // 2)
    return children


def dtree(n):
    """Two trees: the first, and its mirror (n even) or its shift by one (n odd)."""
    first = btree(n)
    turn = (lambda r: (r + 1) % n) if n % 2 else (lambda r: n - 1 - r)
    return [first, {turn(r): [turn(c) for c in below] for r, below in first.items()}]


def edges(children):
    """(from, to, edges that it waits for): up, then down."""
    root = (set(children) - {c for below in children.values() for c in below}).pop()
    out = []

    def up(rank):
        """Edges into `rank` from below."""
        into = []
        for child in children[rank]:
            waits = up(child)
            out.append((child, rank, waits))
            into.append(len(out) - 1)
        return into

    def down(rank, waits):
        for child in children[rank]:
            out.append((rank, child, waits))
            down(child, [len(out) - 1])

    down(root, up(root))
    return out


def max_min(flows):
    """Rates of flows, each over its sender's and its receiver's link: all rise together, who meets a full link stays."""
    rates = {}
    room = {}
    for links in flows.values():
        for link in links:
            room[link] = RATE
    open_flows = dict(flows)
    while open_flows:
        users = {}
        for f, links in open_flows.items():
            for link in links:
                users.setdefault(link, []).append(f)
        tight = min(users, key=lambda link: (room[link] / len(users[link]), link))
        share = room[tight] / len(users[tight])
        for f in users[tight]:
            rates[f] = share
            for link in open_flows.pop(f):
                room[link] = max(0.0, room[link] - share)
    return rates


def ends(trees, size, arrive, cable=CABLE):
    """When each rank is done: the last piece that it sends has been taken, the last one that it waits for has come."""
    stages = []
    for tree in trees:
        first = len(stages)
        stages += [(a, b, [first + w for w in waits]) for a, b, waits in edges(tree)]
    half = size / 2
    count = math.ceil(half / PIECE)
    bytes_of = [min(PIECE, half - PIECE * j) for j in range(count)]
    took = [[None] * count for _ in stages]  # when a piece had arrived
    now = 0.0
    latency = step(cable)
    moving = {}  # stage -> bytes left; one piece of a stage at a time
    sent = [0] * len(stages)  # pieces that set out

    def ready(i):
        """When the next piece of a stage may move; None: not known yet."""
        a, b, waits = stages[i]
        j = sent[i]
        if j == count or i in moving:
            return None
        have = [arrive[a] + LAUNCH, arrive[b] + LAUNCH]
        for w in waits:
            have.append(took[w][j])
        if j >= PARTS:  # its part of the buffer is free when word of the piece before in it has come back
            have.append(None if took[i][j - PARTS] is None else took[i][j - PARTS] + latency)
        return None if None in have else max(have) + latency

    while any(t[-1] is None for t in took):
        waiting = []
        for i in range(len(stages)):
            when = ready(i)
            if when is None:
                continue
            if when <= now + 1e-9:
                moving[i] = bytes_of[sent[i]]
                sent[i] += 1
            else:
                waiting.append(when)
        rates = max_min({i: (("up", stages[i][0]), ("down", stages[i][1])) for i in moving})
        until = min(waiting + [now + left / rates[i] for i, left in moving.items()])
        for i in list(moving):
            moving[i] -= rates[i] * (until - now)
            if moving[i] <= 1e-6:
                del moving[i]
                took[i][sent[i] - 1] = until
        now = until
    return [max(t[-1] for (a, b, _), t in zip(stages, took) if rank in (a, b)) for rank in range(len(arrive))]


def ask(ddpsim, folder, hosts, size, cable):
    """Arrival and end of each rank's all-reduce, microseconds: a step of one tensor, whose layer takes so long that no two all-reduces overlap."""
    slow = {"flops_per_sample": 0, "bytes_per_sample": 0, "bytes_fixed": 10**11, "kernels": 1}
    workload = {"schema": "ddpsim.workload/1", "name": "one", "model": "one", "basis": "described", "batch": 1, "precision": "fp32", "source": "one tensor",
                "device": {"kind": "gpu", "name": "any"}, "optimizer": {"name": "sgd", "momentum": False, "weight_decay": False, "foreach": True, "fused": False},
                "tensors": [{"name": "w", "shape": [size // 4], "dtype": "float32"}], "buffers": [], "arrival": [0],
                "layers": [{"name": "l", "class": "memory", "tensors": [0], "forward": slow, "backward": slow}]}
    scenario = {"schema": "ddpsim.scenario/1", "workload": "workload.json", "cluster": "gpu-ethernet-25g", "ranks": hosts,
                "plan": {"system": "pytorch_ddp", "environment": {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "allreduce:simple"}}}
    (folder / "workload.json").write_text(json.dumps(workload))
    (folder / "scenario.json").write_text(json.dumps(scenario))
    said = subprocess.run([ddpsim, "predict", folder / "scenario.json", "--set", f"cluster.link.latency={cable}us", "--fidelity", "message", "--format", "json"], capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"ddpsim: {said.stderr}")
    spans = [s for s in json.loads(said.stdout)["run"]["spans"] if s["op"] == "allreduce/bucket.0"]
    if sorted(s["class"] for s in spans) != list(range(hosts)) or any(s["algorithm"] != "tree/simple" or s["bytes"] != size for s in spans):
        sys.exit(f"ddpsim ran something else: {spans}")
    spans.sort(key=lambda s: s["class"])
    first = min(s["begin_ps"] for s in spans)
    return [(s["begin_ps"] - first) / 1e6 for s in spans], [(s["end_ps"] - first) / 1e6 for s in spans]


def farthest(trees, size, arrive, told, cable=CABLE):
    """The largest error of a rank, of the time from its arrival."""
    return max(abs((b - at) / (a - at) - 1) for a, b, at in zip(ends(trees, size, arrive, cable), told, arrive))


def self_test():
    # src/graph/trees.cc draws these.
    assert btree(14) == {0: [8], 8: [4, 12], 4: [2, 6], 12: [10, 13], 2: [1, 3], 6: [5, 7], 10: [9, 11], **{r: [] for r in (1, 3, 5, 7, 9, 11, 13)}}
    assert btree(2) == {0: [1], 1: []}
    assert dtree(12)[1] == {11: [3], 3: [7, 1], 7: [9, 5], 1: [2, 0], 9: [10, 8], 5: [6, 4], **{r: [] for r in (0, 2, 4, 6, 8, 10)}}
    assert dtree(13)[1][1] == [9] and dtree(13)[1][9] == [5, 0]
    # Two ranks, one piece: up, down, and nobody in the way; both trees at once.
    assert abs(ends(dtree(2), 1 << 20, [0, 0])[0] - (LAUNCH + 2 * step(CABLE) + 2 * PIECE / RATE)) < 1e-6
    # A chain instead of the trees is noticed.
    chain = [{r: [r + 1] if r < 7 else [] for r in range(8)}, {r: [r - 1] if r else [] for r in range(8)}]
    assert farthest(chain, 6 << 20, [0] * 8, ends(dtree(8), 6 << 20, [0] * 8)) > 0.02
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        for hosts, size, cable in CASES:
            arrive, told = ask(sys.argv[1], pathlib.Path(name), hosts, size, cable)
            error = farthest(dtree(hosts), size, arrive, told, cable)
            print(f"{hosts} hosts, {size:9d} bytes, cables of {cable:4d} us: {max(told) - max(arrive):10.3f} us, farthest rank {100 * error:.4f} %")
            worst = max(worst, error)
    print(f"{len(CASES)} all-reduces; farthest {100 * worst:.4f} %")
    return 1 if worst > 0.001 else 0


if __name__ == "__main__":
    sys.exit(main())
