#!/usr/bin/env python3
"""NCCL's double binary tree, Simple, among servers of one to four GPUs: piece by piece, beside
`ddpsim predict --fidelity message`.

Written from NCCL's source (src/graph/connect.cc, trees.cc, src/device/all_reduce.h) and
docs/model.md 7.3, before anything of it was compared with the C++; nothing shared: the trees are
built from the root down, rates are solved anew at each event, numbers of NCCL, of the clusters and
of the profiles are written down here. Standard library only.

    python3 nccl_tree.py DDPSIM         # every case within 0.1 %, rank by rank
    python3 nccl_tree.py --self-test    # the trees' pictures, and that a wrong tree is noticed
"""
import collections
import json
import math
import pathlib
import subprocess
import sys
import tempfile

# NCCL: a piece is one of the 8 parts of a connection's buffer of 4 MiB. Each channel of the search
# is two of the communicator, one for each tree.
PIECE = 512 << 10
PARTS = 8
LAUNCH = 8.4  # microseconds, of a tree
CABLE = 3
TREE_SHARE = 0.92  # of what a link inside a host gives a ring

# `rate`: bytes per microsecond of a NIC, each way, of which the transport reaches a share; `extra`:
# microseconds of a step beyond NCCL's number (14, and sockets' 30; InfiniBand's on machines of
# Hopper's age). `thread`: bytes per microsecond that a rank's one thread sends, and receives.
Net = collections.namedtuple("Net", "transport bandwidth rate extra thread")
SOCKETS = Net("tcp", "25Gb/s", 25e3 / 8 * 0.94, 16, 2.2e3)
INFINIBAND = Net("ib", "50Gb/s", 50e3 / 8 * 0.92, 0, math.inf)
YOUNG_INFINIBAND = INFINIBAND._replace(extra=6.9)
# What differs between generations: `factor`, of a step inside (NCCL's numbers are Hopper's;
# Ampere's clock is slower); `share`, of NVLink; `block`, bytes per microsecond of a channel's
# thread block (NCCL's limit of a tree's channel on one node).
Generation = collections.namedtuple("Generation", "profile factor share block")
A100 = Generation("a100-sxm4-80gb.datasheet", 1.4, 0.8, 24e3)
H100 = Generation("h100-sxm.datasheet", 1.0, 0.824, 38.7e3)

# `nvlink`: bytes per microsecond of a GPU's way to its switch, in data sheets' numbers. `balanced`:
# two GPUs of a chain are near its NIC, so that children enter at both: sockets are as far from
# every GPU; where nothing inside a host is drawn, GPUs before Hopper share their NICs in pairs, and
# each of Hopper's has its own.
Case = collections.namedtuple("Case", "hosts gpus generation nvlink net nics balanced size cable")
CASES = [
    Case(hosts, 1, A100, 0, SOCKETS, 1, False, size, CABLE)
    for hosts in (2, 3, 6, 8)
    for size in (96 << 10, 1 << 20, (1 << 20) + 4096, 5 << 19, 6 << 20, 13 << 20)
]
CASES += [
    Case(hosts, 1, A100, 0, SOCKETS, 1, False, size, 1000)
    for hosts in (2, 3, 8)
    for size in (1 << 20, 2 << 20, 13 << 20)
]  # the buffers are too small for this distance
# Several GPUs: slow NVLinks, some that pass more than half a thread block, some less.
SEVERAL = [
    Case(hosts, gpus, generation, nvlink, SOCKETS, 1, True, size, CABLE)
    for hosts, gpus in ((2, 2), (3, 3), (6, 2), (8, 4))
    for generation in (A100, H100)
    for nvlink in (4e3, 25e3, 200e3)
    for size in (1 << 20, 6 << 20)
]
# A NIC a GPU, and a channel of the search a NIC: each begins at another GPU.
SEVERAL += [
    Case(hosts, gpus, generation, nvlink, net, gpus, generation is A100, size, cable)
    for hosts, gpus in ((3, 2), (4, 4), (7, 2))
    for generation, net in ((A100, INFINIBAND), (H100, YOUNG_INFINIBAND))
    for nvlink in (25e3, 200e3)
    for size, cable in ((1 << 20, CABLE), (14 << 20, CABLE), (14 << 20, 1000))
]


# On Hopper NCCL's search runs chains of more than two GPUs in another order for each channel, which
# is not here.
SEVERAL = [c for c in SEVERAL if c.generation is A100 or c.gpus <= 2]


def step(between, case):
    """Microseconds. Between hosts: NCCL's 14 for a tree, what the transport takes beyond NCCL's
    number, two cables less the one microsecond that NCCL's number has in it. Inside: 4, over
    NVLink."""
    return 14 + case.net.extra + (2 * case.cable - 1) if between else 4 * case.generation.factor


def btree(n):
    """Children of each rank. Rank 0 stands on the largest power of two below n; below a rank, one
    step of half the size to either side, a smaller one where that is beyond the last rank."""
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


def edges(children, chain, balanced):
    """One channel's tree of GPUs, as (from, to, edges that it waits for): up, then down. `chain`:
    the GPUs of each host, head first. A host's parent is at its head; its first child enters at the
    chain's second GPU in a balanced tree, the second child at the head."""
    below = {}
    hosts_children = {host: list(of) for host, of in children.items()}
    root = (set(children) - {c for of in children.values() for c in of}).pop()
    for host, order in chain.items():
        for k, gpu in enumerate(order):
            below[gpu] = order[k + 1 : k + 2]
    for host, of in hosts_children.items():
        for child in of:
            # The root's only child is its second.
            second = host == root or of.index(child) == 1
            entrance = chain[host][1 if balanced and not second and len(chain[host]) > 1 else 0]
            below[entrance] = below[entrance] + [chain[child][0]]
    out = []

    def up(gpu):
        """Edges into `gpu` from below."""
        into = []
        for child in below[gpu]:
            waits = up(child)
            out.append((child, gpu, waits))
            into.append(len(out) - 1)
        return into

    def down(gpu, waits):
        for child in below[gpu]:
            out.append((gpu, child, waits))
            down(child, [len(out) - 1])

    top = chain[root][0]
    down(top, up(top))
    return out


def max_min(flows, room):
    """Rates of flows, each over its links: all rise together, who meets a full link stays. `room`:
    what each link carries."""
    rates = {}
    room = dict(room)
    open_flows = dict(flows)
    while open_flows:
        users = {}
        for f, links in open_flows.items():
            for link in links:
                users.setdefault(link, []).append(f)
        tight = min(users, key=lambda link: room[link] / len(users[link]))
        share = room[tight] / len(users[tight])
        for f in users[tight]:
            rates[f] = share
            for link in open_flows.pop(f):
                room[link] = max(0.0, room[link] - share)
    return rates


def chains(case):
    """Of each channel of the search: the GPUs of each host in order, and its NIC. An NVSwitch is
    asked for neighbours only. A chain begins at its NIC's own GPU; the second one of a balanced
    tree is the other of the pair that shares the NIC. Where all channels can go through the GPUs in
    one order, they do.
    """

    def order(channel):
        if case.balanced and case.gpus == 2:
            return [0, 1]
        turn = -1 if case.balanced and channel % 2 else 1
        return [(channel + turn * k) % case.gpus for k in range(case.gpus)]

    return [
        ({h: [h * case.gpus + g for g in order(c)] for h in range(case.hosts)}, c)
        for c in range(case.nics)
    ]


def stages_of(case, balanced, turn=None):
    """All channels' edges: from, to, what each waits for, whether it is between hosts, and what it
    passes. Ways from GPUs to NICs cost nothing here."""
    stages = []
    for chain, nic in chains(case):
        for which, tree in enumerate(turn or dtree(case.hosts)):
            first = len(stages)
            for a, b, waits in edges(tree, chain, balanced):
                between = a // case.gpus != b // case.gpus
                passes = (
                    [
                        ("out", a // case.gpus, nic),
                        ("in", b // case.gpus, nic),
                        ("sends", a),
                        ("receives", b),
                    ]
                    if between
                    else [("nvlink out", a), ("nvlink in", b)]
                )
                # Half of a thread block's threads send up, half down. They read a piece once and
                # write it to all that it goes to, so that each way is as fast as they are.
                passes.append(("threads", a, b, nic, which))
                stages.append((a, b, [first + w for w in waits], between, passes))
    return stages


def ends(case, arrive, balanced=None, turn=None):
    """When each rank is done: the last piece that it sends has been taken, the last one that it
    waits for has come."""
    g = case.generation
    rates_of = {
        "out": case.net.rate,
        "in": case.net.rate,
        "sends": case.net.thread,
        "receives": case.net.thread,
        "nvlink out": case.nvlink * g.share * TREE_SHARE,
        "nvlink in": case.nvlink * g.share * TREE_SHARE,
        "threads": g.block / 2,
    }
    stages = stages_of(case, case.balanced if balanced is None else balanced, turn)
    share = case.size / (2 * case.nics)
    count = math.ceil(share / PIECE)
    bytes_of = [min(PIECE, share - PIECE * j) for j in range(count)]
    room = {link: rates_of[link[0]] for stage in stages for link in stage[4]}
    latency = [step(stage[3], case) for stage in stages]
    took = [[None] * count for _ in stages]  # when a piece had arrived
    now = 0.0
    moving = {}  # stage -> bytes left; one piece of a stage at a time
    sent = [0] * len(stages)  # pieces that set out

    def ready(i):
        """When the next piece of a stage may move; None: not known yet."""
        a, b, waits = stages[i][:3]
        j = sent[i]
        if j == count or i in moving:
            return None
        have = [arrive[a] + LAUNCH, arrive[b] + LAUNCH]
        for w in waits:
            have.append(took[w][j])
        if (
            j >= PARTS
        ):  # its part of the buffer is free when word of the piece before in it has come back
            have.append(None if took[i][j - PARTS] is None else took[i][j - PARTS] + latency[i])
        return None if None in have else max(have) + latency[i]

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
        rates = max_min({i: stages[i][4] for i in moving}, room)
        until = min(waiting + [now + left / rates[i] for i, left in moving.items()])
        for i in list(moving):
            moving[i] -= rates[i] * (until - now)
            if moving[i] <= 1e-6:
                del moving[i]
                took[i][sent[i] - 1] = until
        now = until
    return [
        max(t[-1] for stage, t in zip(stages, took) if rank in stage[:2])
        for rank in range(len(arrive))
    ]


def cluster_of(case):
    if case.gpus == 1:
        return "gpu-ethernet-25g"
    return {
        "schema": "ddpsim.cluster/1",
        "name": "servers",
        "description": "servers of several GPUs",
        "source": "none",
        "pattern": "star",
        "hosts": case.hosts,
        "devices_per_host": case.gpus,
        "device": {"kind": "gpu", "profile": case.generation.profile},
        "nics_per_host": case.nics,
        "link": {
            "bandwidth": case.net.bandwidth,
            "latency": "3us",
            "transport": case.net.transport,
        },
        "intra": {
            "bandwidth": f"{case.nvlink / 1e3}GB/s",
            "latency": "100ns",
            "transport": "nvlink",
        },
    }


def ask(ddpsim, folder, case):
    """Arrival and end of each rank's all-reduce, microseconds: a step of one tensor, whose layer
    takes so long that no two all-reduces overlap."""
    ranks = case.hosts * case.gpus
    slow = {"flops_per_sample": 0, "bytes_per_sample": 0, "bytes_fixed": 10**11, "kernels": 1}
    workload = {
        "schema": "ddpsim.workload/1",
        "name": "one",
        "model": "one",
        "basis": "described",
        "batch": 1,
        "precision": "fp32",
        "source": "one tensor",
        "device": {"kind": "gpu", "name": "any"},
        "optimizer": {
            "name": "sgd",
            "momentum": False,
            "weight_decay": False,
            "foreach": True,
            "fused": False,
        },
        "tensors": [{"name": "w", "shape": [case.size // 4], "dtype": "float32"}],
        "buffers": [],
        "arrival": [0],
        "layers": [
            {"name": "l", "class": "memory", "tensors": [0], "forward": slow, "backward": slow}
        ],
    }
    cluster = cluster_of(case)
    if not isinstance(cluster, str):
        (folder / "cluster.json").write_text(json.dumps(cluster))
        cluster = "cluster.json"
    scenario = {
        "schema": "ddpsim.scenario/1",
        "workload": "workload.json",
        "cluster": cluster,
        "ranks": ranks,
        "plan": {
            "system": "pytorch_ddp",
            "environment": {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "allreduce:simple"},
        },
    }
    (folder / "workload.json").write_text(json.dumps(workload))
    (folder / "scenario.json").write_text(json.dumps(scenario))
    said = subprocess.run(
        [
            ddpsim,
            "predict",
            folder / "scenario.json",
            "--set",
            f"cluster.link.latency={case.cable}us",
            "--fidelity",
            "message",
            "--format",
            "json",
        ],
        capture_output=True,
        text=True,
    )
    if said.returncode:
        sys.exit(f"ddpsim: {said.stderr}")
    spans = [s for s in json.loads(said.stdout)["run"]["spans"] if s["op"] == "allreduce/bucket.0"]
    if sorted(s["class"] for s in spans) != list(range(ranks)) or any(
        s["algorithm"] != "tree/simple" or s["bytes"] != case.size for s in spans
    ):
        sys.exit(f"ddpsim ran something else: {spans}")
    spans.sort(key=lambda s: s["class"])
    first = min(s["begin_ps"] for s in spans)
    return [(s["begin_ps"] - first) / 1e6 for s in spans], [
        (s["end_ps"] - first) / 1e6 for s in spans
    ]


def farthest(case, arrive, told, balanced=None, turn=None):
    """The largest error of a rank, of the time from its arrival."""
    return max(
        abs((b - at) / (a - at) - 1)
        for a, b, at in zip(ends(case, arrive, balanced, turn), told, arrive)
    )


def self_test():
    # src/graph/trees.cc draws these.
    assert btree(14) == {
        0: [8],
        8: [4, 12],
        4: [2, 6],
        12: [10, 13],
        2: [1, 3],
        6: [5, 7],
        10: [9, 11],
        **{r: [] for r in (1, 3, 5, 7, 9, 11, 13)},
    }
    assert btree(2) == {0: [1], 1: []}
    assert dtree(12)[1] == {
        11: [3],
        3: [7, 1],
        7: [9, 5],
        1: [2, 0],
        9: [10, 8],
        5: [6, 4],
        **{r: [] for r in (0, 2, 4, 6, 8, 10)},
    }
    assert dtree(13)[1][1] == [9] and dtree(13)[1][9] == [5, 0]
    # Two ranks, one piece: up, down, and nobody in the way; both trees at once.
    two = Case(2, 1, A100, 0, SOCKETS, 1, False, 1 << 20, CABLE)
    copied = 2 * PIECE / SOCKETS.thread  # the thread is slower than the link
    assert abs(ends(two, [0, 0])[0] - (LAUNCH + 2 * step(True, two) + copied)) < 1e-6
    many = two._replace(net=SOCKETS._replace(thread=math.inf))
    assert farthest(two, [0, 0], ends(many, [0, 0])) > 0.02
    # A chain instead of the trees is noticed.
    eight = Case(8, 1, A100, 0, SOCKETS, 1, False, 6 << 20, CABLE)
    chain = [
        {r: [r + 1] if r < 7 else [] for r in range(8)},
        {r: [r - 1] if r else [] for r in range(8)},
    ]
    assert farthest(eight, [0] * 8, ends(eight, [0] * 8), turn=chain) > 0.02
    # The first child at the chain's head instead of at its second GPU, too.
    for case in SEVERAL:
        if case.hosts > 2 and case.balanced:
            arrive = [0] * (case.hosts * case.gpus)
            assert farthest(case, arrive, ends(case, arrive), balanced=False) > 0.003, case
    # Thread blocks without a limit, where NVLinks pass more than they, too.
    for case in SEVERAL:
        if case.nvlink == 200e3:
            arrive = [0] * (case.hosts * case.gpus)
            told = ends(case, arrive)
            assert (
                farthest(
                    case._replace(generation=case.generation._replace(block=1e9)), arrive, told
                )
                > 0.001
            ), case
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        for case in CASES + SEVERAL:
            arrive, told = ask(sys.argv[1], pathlib.Path(name), case)
            error = farthest(case, arrive, told)
            print(
                f"{case.hosts} hosts of {case.gpus} {case.generation.profile[:4]},"
                f" {case.size:9d} bytes, NVLinks of {case.nvlink / 1e3:3.0f} GB/s, {case.nics} NICs"
                f" {case.net.transport}, cables of {case.cable:4d} us:"
                f" {max(told) - max(arrive):10.3f} us, farthest rank {100 * error:.4f} %"
            )
            worst = max(worst, error)
    print(f"{len(CASES + SEVERAL)} all-reduces; farthest {100 * worst:.4f} %")
    return 1 if worst > 0.001 else 0


if __name__ == "__main__":
    sys.exit(main())
