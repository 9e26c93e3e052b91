#!/usr/bin/env python3
"""Is what ddpsim lowers for DDP's PowerSGD hook, join, batched_grad_copy, optimizer in backward and
SyncBatchNorm what PyTorch does?

  ddp_options_lowered.py DDPSIM              recordings and scenarios; exit 1 if one differs
  ddp_options_lowered.py DDPSIM --self-test  changes of recordings and of Programs are noticed
  ddp_options_lowered.py --reduce FOLDER     writes the data of this test from recordings

Recordings are of PyTorch 1.13.1 (tests/data/recorded_orders/README.md): four of PowerSGD, of which
the first step, the one after it and the last are compared, every collective with operation,
elements, type and the last gradient before it, in order; four of join, where every rank still has
inputs: the collectives of a forward as a set (they were seen on Gloo's threads), those of backward
in order. Scenarios are played by `steady` below, from the source and from no line of the simulator:
collectives, what the host waits for, and kernels of the hooks with their traffic.

Three of post-local SGD in subgroups: the first step, the one after it and, in order, all that a
round sends up to an averaging of all ranks, with the size of the group that it is sent in; one of
them is of HierarchicalModelAverager, one sends no gradients, and is local SGD without DDP, too.
Rounds of other sizes, periods and buckets are played by `round_of`, also what is divided.

Known differences: what is agreed on for buffers has eight bytes, where the recording took four for
granted; a recording's broadcast_coalesced is one broadcast for each type.
"""
import copy
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import apex_lowered
from recordings import DATA as KEPT, load, write
from lowered import shown, tally

DATA = KEPT / "ddp_options/torch-1.13.1.json.gz"
SIZES = {"float16": 2, "float32": 4, "int32": 4, "int64": 8}
MIB = 1 << 20


# ---- recordings
def phases_of(steps, k):
    step = steps[k]
    return step["phases"] if "phases" in step else phases_of(steps, step["same_as"])


def reduce_folder(folder):
    out = []
    names = ("powersgd__*.json", "join__*.json", "post_localsgd__*.json")
    for path in [p for name in names for p in sorted(Path(folder).glob(name))]:
        d = json.loads(path.read_text())
        keys = ("file", "system", "knobs", "world_size", "gradient_arrival_order", "buffers")
        steps = []
        for k in range(len(d["steps"])):
            kept = {}
            for phase, events in phases_of(d["steps"], k).items():
                kept[phase] = [
                    [
                        "c",
                        *(e[1].get(key) for key in ("op", "elements", "dtype", "after_grad")),
                        *([e[1]["group"]] if d["system"] == "post_localsgd" else []),
                    ]
                    if e[0] == "c"
                    else e
                    for e in events
                    if e[0] in "cg"
                ]
            steps.append(kept)
        shapes = d["parameter_shapes"]
        parameters = [[n, shape, t] for (n, _, t), shape in zip(d["parameters"], shapes)]
        out.append({**{k: d[k] for k in keys}, "parameters": parameters, "steps": steps})
    DATA.parent.mkdir(exist_ok=True)
    write(DATA, out)
    print(f"{len(out)} recordings, {DATA.stat().st_size} bytes")
    return 0


def recordings():
    return load(DATA)


# ---- ddpsim
def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def workload(q):
    flat = {
        "parameters": [[n, count(s), t] for n, s, t in q["parameters"]],
        "arrival": q["arrival"],
    }
    document = apex_lowered.workload(flat)
    for tensor, (_, shape, _) in zip(document["tensors"], q["parameters"]):
        tensor["shape"] = shape
    document["buffers"] = [{"name": n, "shape": [e], "dtype": t} for n, e, t in q["buffers"]]
    document["source"] = "made by tests/oracle/ddp_options_lowered.py"
    for norm in q.get("norms", []):  # [weight, bias], as one layer
        layers = document["layers"]
        at = next(i for i, l in enumerate(layers) if l["tensors"] == [norm[0]])
        layers[at]["tensors"] = norm
        layers[at]["op"] = {"kind": "batch_norm"}
        layers[:] = [l for l in layers if l["tensors"] != [norm[1]]]
    return document


def program(ddpsim, q):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.json"
        file.write_text(json.dumps(workload(q)))
        asked = [ddpsim, "show", "program", "--format", "json", "--workload", str(file)]
        asked += ["--cluster", "hgx-h100", "--ranks", str(q["world_size"])]
        knobs = dict(q["knobs"])
        asked += ["--plan", knobs.pop("system", "pytorch_ddp")]
        for knob, value in knobs.items():
            asked += ["--set", f"{knob}={json.dumps(value)}"]
        return shown(asked, q["knobs"])


def collectives(q, step):
    """Of forward and of backward: [operation, elements, type, last gradient]"""
    index = {p[0]: i for i, p in enumerate(q["parameters"])}
    forward, backward, last = [], [], None
    for o in step["ops"]:
        if o["op"].startswith("bwd/") and o["op"] != "bwd/tail":
            last = index[o["op"][4:]]
        if o["does"] != "communicate":
            continue
        dtype = o.get("dtype", "float32")
        event = [o["operation"], o["bytes"] // SIZES.get(dtype, 1), dtype, last]
        (forward if last is None else backward).append(event)
    return forward, backward


def recorded_question(r):
    knobs = {"pytorch": "1.13"}
    for knob, value in r["knobs"].items():
        if knob != "inputs":
            knobs[knob] = value
    if r["system"] == "join":
        knobs["join"] = True
    if r["system"] == "post_localsgd":
        given = r["knobs"]
        knobs = {"pytorch": "1.13", "system": "local_sgd", "subgroup_size": given["subgroup"]}
        knobs["start_localSGD_iter"] = given["start_localSGD_iter"]
        if "post_local_gradient_allreduce" in given:
            knobs["post_local_gradient_allreduce"] = given["post_local_gradient_allreduce"]
        if "periods" in given:
            knobs["averaging_periods"] = [p for p, _ in given["periods"]]
            knobs["averaging_group_sizes"] = [s for _, s in given["periods"]]
        knobs["accumulation_steps"] = given.get("period") or given["periods"][-1][0]
    return {
        "world_size": r["world_size"],
        "parameters": r["parameters"],
        "arrival": r["gradient_arrival_order"],
        "buffers": r["buffers"],
        "knobs": knobs,
    }


def buffers_of(r):
    """Elements by type, in the order in which the types come."""
    kinds = {}
    for _, n, t in r["buffers"]:
        kinds[t] = kinds.get(t, 0) + n
    return kinds


def forward_of(r, step):
    """[operation, elements, what of] of the collectives before the first gradient."""
    out, kinds = [], list(buffers_of(r))
    for o in step["ops"]:
        if o["op"].startswith("bwd/"):
            return out
        if o["does"] != "communicate":
            continue
        of, _, number = o["op"].split("/", 1)[1].partition(".")
        size = SIZES[kinds[int(number)]] if of == "buffers" else 4
        out.append([o["operation"], o["bytes"] // SIZES.get(o.get("dtype"), size), of])
    return out


def sent_in_groups(q, p, step):
    """Of a step, in order: [operation, elements, type, last gradient, ranks of its group]."""
    index = {x[0]: i for i, x in enumerate(q["parameters"])}
    out, last = [], None
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        if name.startswith("bwd/") and name != "bwd/tail":
            last = index[name[4:]]
        if o["does"] != "communicate":
            continue
        dtype = o.get("dtype", "float32")
        group = o.get("group", "world")
        ranks = q["world_size"] if group == "world" else p["groups"][group]["size"]
        out.append([o["operation"], o["bytes"] // SIZES.get(dtype, 1), dtype, last, ranks])
    return out


def round_differences(ddpsim, r, p=None):
    """Of post-local SGD: what is sent in DDP's first steps, and between two averagings."""
    q = recorded_question(r)
    p = p or program(ddpsim, q)
    given = r["knobs"]
    sent = [[e[1:] for phase in s.values() for e in phase if e[0] == "c"] for s in r["steps"]]
    updated = [[e[1:] for e in s["step"] if e[0] == "c"] for s in r["steps"]]
    warm = max(given["warmup_steps"], given["start_localSGD_iter"])
    ends = [
        k for k, s in enumerate(updated) if k >= warm and s and s[-1][4] == r["world_size"]
    ]
    found = []
    steps = q["knobs"]["accumulation_steps"]
    if len(ends) < 2:
        return [f"averaged in steps {ends}"], len(sent)
    if [b - a for a, b in zip(ends, ends[1:])] != [steps] * (len(ends) - 1):
        found.append(f"averaged in steps {ends}")
    theirs = [e for k in range(ends[0] + 1, ends[1] + 1) for e in sent[k]]
    pairs = [("a round", sent_in_groups(q, p, p["steps"][-1]), theirs)]
    for k in (0, 1):  # rebuilding is not seen from Python
        mine = [e for e in sent_in_groups(q, p, p["steps"][k]) if e[0] != "broadcast"]
        pairs.append((f"step {k}", mine, sent[k]))
    for what, mine, said in pairs:
        if mine != said:
            found.append(f"{what}: ddpsim {mine}, recorded {said}")
    if not given.get("post_local_gradient_allreduce", True):
        alone = {**q, "knobs": {"pytorch": "1.13", "system": "local_sgd"}}
        alone["knobs"]["accumulation_steps"] = steps
        without = program(ddpsim, alone)
        mine = [e[:3] for e in sent_in_groups(alone, without, without["steps"][-1])]
        if mine != [e[:3] for e in theirs]:
            found.append(f"without DDP: ddpsim {mine}, recorded {theirs}")
    return found, sum(len(said) for _, _, said in pairs)


def recorded_differences(ddpsim, r, p=None):
    if r["system"] == "post_localsgd":
        return round_differences(ddpsim, r, p)
    q = recorded_question(r)
    p = p or program(ddpsim, q)
    found, compared = [], 0
    power = r["system"] == "powersgd"
    number = len(r["steps"])
    pairs = [(0, 0), (1, 1), (2, number - 1)]
    if not power:
        pairs = [(min(k, 2), k) for k in range(number)]
    for mine, theirs in ((p["steps"][a], r["steps"][b]) for a, b in pairs):
        _, backward = collectives(q, mine)
        said = [e[1:] for e in theirs["backward"] if e[0] == "c"]
        compared += len(said)
        if not power:  # seen on Gloo's threads: begun after the gradient, or later
            order = {g: k for k, g in enumerate(q["arrival"])}
            late = [a for a, b in zip(backward, said) if order[b[3]] < order[a[3]]]
            if late:
                found.append(f"reduced before its last gradient: {late}")
            said = [[*e[:3], a[3]] for e, a in zip(said, backward)]
        if backward != said:
            found.append(f"backward: ddpsim {backward}, recorded {said}")
        mine_forward = forward_of(r, mine)
        if power:  # rebuilding is not seen from Python, where PowerSGD was recorded
            mine_forward = [e for e in mine_forward if e[2] != "rebuild"]
        mine_forward = sorted(e[:2] for e in mine_forward)
        said = []
        for e in theirs["forward"]:
            if e[0] == "c" and e[1] == "broadcast_coalesced":
                kinds = buffers_of(r)
                if sum(kinds.values()) != e[2]:
                    found.append(f"buffers: {kinds}, recorded {e[2]}")
                said += [["broadcast", n] for n in kinds.values()]
            elif e[0] == "c":
                said.append(e[1:3])
        compared += len(said)
        if mine_forward != sorted(said):
            found.append(f"forward: ddpsim {mine_forward}, recorded {sorted(said)}")
    return found, compared


# ---- scenarios
SHAPES = [
    ("conv.weight", [64, 32, 3, 3]),
    ("norm.weight", [64]),
    ("norm.bias", [64]),
    ("up.weight", [700, 300]),
    ("up.bias", [700]),
    ("tall.weight", [5000, 2]),
    ("scalar", [1]),
    ("head.weight", [40, 700]),
    ("head.bias", [40]),
]
ARRIVAL = [8, 7, 6, 5, 4, 3, 1, 2, 0]


def scenarios():
    def one(ranks, norms=(), **knobs):
        parameters = [[n, s, "float32"] for n, s in SHAPES]
        buffers = [["norm.running_mean", 64, "float32"], ["norm.n", 1, "int64"]]
        knobs = {"pytorch": "2.7", **knobs}
        return {"world_size": ranks, "parameters": parameters, "arrival": ARRIVAL,
                "buffers": buffers, "norms": [list(n) for n in norms], "knobs": knobs}

    power = {"comm_hook": "powerSGD"}
    yield one(2, **power)
    yield one(8, **power, matrix_approximation_rank=4)
    yield one(8, **power, matrix_approximation_rank=2, min_compression_rate=0.5)
    yield one(8, **power, matrix_approximation_rank=16, min_compression_rate=30)
    yield one(4, **power, use_error_feedback=False, bucket_cap_mb=0.1)
    yield one(4, **power, warm_start=False, matrix_approximation_rank=3, bucket_cap_mb=0.2)
    yield one(4, **power, min_compression_rate=1000)
    yield one(8, join=True)
    yield one(8, join=True, broadcast_buffers=False, bucket_cap_mb=0.3)
    yield one(4, join=True, find_unused_parameters=True)
    yield one(4, join=True, divide_by_initial_world_size=False, bucket_cap_mb=0.3)
    yield one(8, pytorch="2.12", batched_grad_copy=True, bucket_cap_mb=0.1)
    yield one(8, pytorch="2.13", batched_grad_copy=True, comm_hook="allreduce")
    yield one(8, optimizer_in_backward=True, bucket_cap_mb=0.1)
    yield one(8, optimizer_in_backward=True, gradient_as_bucket_view=True)
    yield one(4, pytorch="2.11", find_unused_parameters=True, bucket_cap_mb=0.1,
              unused_parameters=["head.weight", "head.bias", "scalar", "tall.weight"],
              skip_all_reduce_unused_params=True)
    yield one(8, norms=[(1, 2)], sync_batch_norm=True)
    yield one(4, norms=[(1, 2)], sync_batch_norm=True, bucket_cap_mb=0.1, pytorch="2.13")


def round_scenarios():
    def one(ranks, steps, **knobs):
        parameters = [[n, s, "float32"] for n, s in SHAPES]
        buffers = [["norm.running_mean", 64, "float32"], ["norm.n", 1, "int64"]]
        knobs = {"pytorch": "2.7", "system": "local_sgd", "accumulation_steps": steps, **knobs}
        return {"world_size": ranks, "parameters": parameters, "arrival": ARRIVAL,
                "buffers": buffers, "norms": [], "knobs": knobs}

    yield one(8, 3, subgroup_size=4)
    yield one(8, 2, subgroup_size=8, bucket_cap_mb=0.3, broadcast_buffers=False)
    yield one(8, 4, subgroup_size=2, post_local_gradient_allreduce=False)
    yield one(8, 1, subgroup_size=4, bucket_cap_mb=0.1, gradient_as_bucket_view=True)
    yield one(8, 8, subgroup_size=2, averaging_periods=[2, 4, 8],
              averaging_group_sizes=[2, 4, 8], bucket_cap_mb=0.3)
    yield one(8, 6, subgroup_size=4, averaging_periods=[3, 6], averaging_group_sizes=[4, 8])
    yield one(8, 4, averaging_periods=[1, 4], averaging_group_sizes=[2, 8])


def round_of(q):
    """A round of post-local SGD: ["c", operation, bytes, ranks of its group], ["d", bytes that are
    divided by themselves], ["u"] an update."""
    k, ranks = q["knobs"], q["world_size"]
    size = [4 * count(s) for _, s, _ in q["parameters"]]
    whole = sum(size)
    limits = [k["bucket_cap_mb"]] if "bucket_cap_mb" in k else [1, 25]
    buckets, open_ = [], 0
    for i in q["arrival"]:
        open_ += size[i]
        if open_ >= int(limits[min(len(buckets), len(limits) - 1)] * MIB):
            buckets.append(open_)
            open_ = 0
    buckets += [open_] if open_ else []
    levels = list(zip(k.get("averaging_periods", []), k.get("averaging_group_sizes", [])))
    levels = levels or [(k["accumulation_steps"], ranks)]
    out = []
    for done in range(1, k["accumulation_steps"] + 1):
        if "subgroup_size" in k:
            if k.get("broadcast_buffers", True):  # of DDP's own group, which is all ranks
                kinds = {}
                for _, n, t in q["buffers"]:
                    kinds[t] = kinds.get(t, 0) + n * SIZES[t]
                out += [["c", "broadcast", b, ranks] for b in kinds.values()]
            if k.get("post_local_gradient_allreduce", True):
                for b in buckets:
                    out += [["d", b], ["c", "all_reduce", b, k["subgroup_size"]]]
        out.append(["u"])
        ending = [s for period, s in levels if done % period == 0]
        if ending:
            out += [["d", whole], ["c", "all_reduce", whole, ending[-1]]]
    return out


def round_lowered(q, p):
    out = []
    for o in p["steps"][-1]["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        word = name.split("/")[0]
        if o["does"] == "communicate":
            group = o.get("group", "world")
            ranks = q["world_size"] if group == "world" else p["groups"][group]["size"]
            out.append(["c", o["operation"], o["bytes"], ranks])
        elif word == "divide":
            out.append(["d", o["bytes"]])
        elif name == "inner_optimizer":
            out.append(["u"])
    return out


def round_scenario_differences(ddpsim, q, p=None):
    p = p or program(ddpsim, q)
    theirs = round_of(q)
    difference = apex_lowered.first_difference(round_lowered(q, p), theirs)
    return [difference] if difference else [], len(theirs)


def steady(q):
    """["c", operation, bytes, last gradient], ["h", what the host waits for], ["k", what, bytes
    read and written, stream]: of hooks and of what is asked for here, in the host's order."""
    k = q["knobs"]
    size = [4 * count(s) for _, s, _ in q["parameters"]]
    out, last = [], None

    def send(operation, nbytes):
        if nbytes:
            out.append(["c", operation, nbytes, last])

    if k.get("join"):
        send("all_reduce", 4)
    kinds = {}
    if k.get("broadcast_buffers", True):
        for _, n, t in q["buffers"]:
            kinds[t] = kinds.get(t, 0) + n * SIZES[t]
        if k.get("join"):
            send("all_reduce", 8)
            out.append(["h", "source"])
    for nbytes in kinds.values():
        send("broadcast", nbytes)
    if k.get("join"):
        send("all_reduce", 4)
    for weight, _ in q["norms"] if k.get("sync_batch_norm") else []:
        channels = q["parameters"][weight][1][0]
        send("all_gather", 4 * q["world_size"] * (2 * channels + 1))
        out.append(["h", "statistics"])
    # --- buckets
    finds = k.get("find_unused_parameters", False)
    order = list(range(len(size))) if finds else q["arrival"]
    caps = [k["bucket_cap_mb"]] if "bucket_cap_mb" in k else [1, 25]
    buckets, bucket = [], []
    for i in order:
        bucket.append(i)
        if sum(size[j] for j in bucket) >= int(caps[min(len(buckets), len(caps) - 1)] * MIB):
            buckets.append(bucket)
            bucket = []
    buckets += [bucket] if bucket else []
    if finds:
        buckets.reverse()
    # --- backward
    names = [n for n, _, _ in q["parameters"]]
    unused = {names.index(n) for n in k.get("unused_parameters", [])}
    missing = [set(b) - unused for b in buckets]  # those are ready with the first gradient
    following = 0
    for i in [i for i in q["arrival"] if i not in unused]:
        if k.get("sync_batch_norm") and any(i == w for w, _ in q["norms"]):
            send("all_reduce", 4 * 2 * q["parameters"][i][1][0])
        last = i
        if i == q["arrival"][0] and not k.get("divide_by_initial_world_size", True):
            out.append(["h", "count"])
        for b in missing:
            b.discard(i)
        while following < len(buckets) and not missing[following]:
            tensors = buckets[following]
            following += 1
            s = sum(size[j] for j in tensors)
            if k.get("skip_all_reduce_unused_params") and set(tensors) <= unused:
                continue
            if k.get("batched_grad_copy"):
                out.append(["k", "copy", 2 * s, "compute"])
                if k.get("comm_hook", "none") == "none":
                    out.append(["k", "divide", 2 * s, "compute"])
            if k.get("comm_hook") == "powerSGD":
                power_sgd(q, tensors, s, out, send)
                continue
            send("all_reduce", s)
            if k.get("optimizer_in_backward"):
                out.append(["k", "divide", 2 * s, "optimizer"])
                out.append(["k", "update", 72 * s // 4, "optimizer"])
        if finds and following == len(buckets):
            send("all_reduce", 4 * len(size))
            following += 1
    return out


def power_sgd(q, tensors, s, out, send):
    k = q["knobs"]
    rank, rate = k.get("matrix_approximation_rank", 1), k.get("min_compression_rate", 2)
    whole, matrices = 0, []
    for i in tensors:
        shape = q["parameters"][i][1]
        n, m = shape[0], count(shape) // shape[0]
        r = min(n, m, rank)
        if (n + m) * r * rate < n * m:
            matrices.append((n, m, r))
        else:
            whole += 4 * n * m
    area = sum(4 * n * m for n, m, _ in matrices)
    p = sum(4 * n * r for n, _, r in matrices)
    qs = sum(4 * m * r for _, m, r in matrices)

    def kernel(what, nbytes, stream):
        if nbytes:
            out.append(["k", what, nbytes, stream])

    feeds = k.get("use_error_feedback", True)
    if feeds:
        kernel("error", 5 * s, "compute")  # two reads and a write; a copy
    kernel("join", 2 * whole, "compute")
    if matrices:  # Q made orthogonal: read twice, written; M, Q read, P written
        kernel("P", 2 * qs + area + qs + p, "compute")
    send("all_reduce", whole)
    kernel("unpack", 4 * whole, "powersgd")
    send("all_reduce", p)
    if matrices:
        kernel("Q", 2 * p + area + p + qs, "powersgd")
    send("all_reduce", qs)
    if matrices:  # divided in place; P and Q read, M written
        kernel("M", 2 * qs + p + qs + area, "powersgd")
    out.append(["h", "device"])
    if feeds:
        kernel("keep", 3 * s, "powersgd")


KERNELS = {
    "add_error": "error",
    "join_whole": "join",
    "make_p": "P",
    "average_whole": "unpack",
    "make_q": "Q",
    "multiply_pq": "M",
    "keep_error": "keep",
    "batched_copy_in": "copy",
    "batched_divide": "divide",
    "divide_reduced": "divide",
}
WAITS = {
    "wait/join.source": "source",
    "wait/join.notify": "count",
    "wait/powersgd": "device",
    "wait/sync_bn": "statistics",
}


def lowered(q, step):
    index = {p[0]: i for i, p in enumerate(q["parameters"])}
    out, last, ops = [], None, {}
    for o in step["ops"]:
        name = o["op"]
        word = name.split("/")[0]
        if name.startswith("bwd/") and name != "bwd/tail":
            last = index[name[4:]]
        if o["does"] == "communicate":
            out.append(["c", o["operation"], o["bytes"], last])
        elif o["does"] == "wait" and name.rstrip("0123456789").rstrip(".") in WAITS:
            out.append(["h", WAITS[name.rstrip("0123456789").rstrip(".")]])
        elif word in KERNELS or (word == "optimizer" and name != "optimizer"):
            out.append(["k", KERNELS.get(word, "update"), o["traffic_bytes"], o["lane"]])
        ops[name] = o
    return out, chained(step, ops)


def chained(step, ops):
    """What each all-reduce of PowerSGD, and each update in backward, must wait for."""
    found = []
    for name, o in ops.items():
        number = name.rsplit(".", 1)[-1]
        before = {
            "allreduce/powersgd_p": ["average_whole/bucket", "make_p/bucket"],
            "allreduce/powersgd_q": ["make_q/bucket"],
            "make_q/bucket": ["allreduce/powersgd_p"],
            "multiply_pq/bucket": ["allreduce/powersgd_q"],
            "average_whole/bucket": ["allreduce/powersgd_whole"],
            "divide_reduced/bucket": ["allreduce/bucket"],
            "optimizer/bucket": ["divide_reduced/bucket"],
            "wait/powersgd": ["multiply_pq/bucket", "average_whole/bucket"],
        }.get(name.rsplit(".", 1)[0], [])
        there = [f"{b}.{number}" for b in before if f"{b}.{number}" in ops]
        if there and not set(there) & set(o["waits_for"]):
            found.append(f"{name} waits for {o['waits_for']}, not for {there[0]}")
    return found


def scenario_differences(ddpsim, q, p=None):
    p = p or program(ddpsim, q)
    mine, found = lowered(q, p["steps"][-1])
    theirs = steady(q)
    if difference := apex_lowered.first_difference(mine, theirs):
        found.append(difference)
    return found, len(theirs)


def self_test(ddpsim):
    missed = []
    for r in recordings():
        q = recorded_question(r)
        p = program(ddpsim, q)
        if r["system"] == "post_localsgd":
            warm = max(r["knobs"]["warmup_steps"], r["knobs"]["start_localSGD_iter"])
            for k, step in enumerate(r["steps"][:8]):
                for phase, events in step.items():
                    for i, e in enumerate(events):
                        ends = [
                            j for j, s in enumerate(r["steps"])
                            if j >= warm
                            and any(x[0] == "c" and x[5] == r["world_size"] for x in s["step"])
                        ]
                        if e[0] != "c" or not (k < 2 or ends[0] < k <= ends[1]):
                            continue
                        for key in (2, 5):
                            changed = copy.deepcopy(r)
                            changed["steps"][k][phase][i][key] += 1
                            if not recorded_differences(ddpsim, changed, p)[0]:
                                missed.append(f"{r['file']}: step {k} {e}")
            continue
        for k, step in enumerate(r["steps"]):
            for phase in ("forward", "backward"):
                for i, e in enumerate(step[phase]):
                    left_out = r["system"] == "powersgd" and k not in (0, 1, len(r["steps"]) - 1)
                    if e[0] != "c" or left_out:
                        continue
                    changed = copy.deepcopy(r)
                    changed["steps"][k][phase][i][2] += 1
                    if not recorded_differences(ddpsim, changed, p)[0]:
                        missed.append(f"{r['file']}: {e}")
    tried = 0
    for q in round_scenarios():
        p = program(ddpsim, q)
        ops = p["steps"][-1]["ops"]
        for k, o in enumerate(list(ops)):
            divides = o["does"] == "copy" and "divide/" in o["op"]
            if o["does"] != "communicate" and not divides:
                continue
            tried += 1
            del ops[k]
            if not round_scenario_differences(ddpsim, q, p)[0]:
                missed.append(f"{q['knobs']}: without {o['op']}")
            ops.insert(k, o)
            group = o.get("group", "world")
            if group != "world" and p["groups"][group]["size"] != q["world_size"]:
                o["group"] = "world"
                if not round_scenario_differences(ddpsim, q, p)[0]:
                    missed.append(f"{q['knobs']}: {o['op']} of all ranks")
                o["group"] = group
    for q in scenarios():
        p = program(ddpsim, q)
        for o in p["steps"][-1]["ops"]:
            word = o["op"].split("/")[0]
            keys = ["bytes"] if o["does"] == "communicate" else []
            keys += ["traffic_bytes"] if word in KERNELS else []
            keys += ["waits_for"] if word in ("make_q", "multiply_pq", "divide_reduced") else []
            for key in keys:
                tried += 1
                before, o[key] = o[key], [] if key == "waits_for" else o[key] + 4
                if not scenario_differences(ddpsim, q, p)[0]:
                    missed.append(f"{q['knobs']} {o['op']}: {key}")
                o[key] = before
    for m in missed:
        print("not noticed:", m)
    print(f"self-test, {tried} changes of Programs:", "failed" if missed else "ok")
    return 1 if missed else 0


def main():
    if sys.argv[1] == "--reduce":
        return reduce_folder(sys.argv[2])
    ddpsim = sys.argv[1]
    if "--self-test" in sys.argv:
        return self_test(ddpsim)
    bad = 0
    for kind, every, of in (
        ("recorded schedules", recordings(), recorded_differences),
        ("scenarios", list(scenarios()), scenario_differences),
        ("rounds", list(round_scenarios()), round_scenario_differences),
    ):
        events, differ = tally(ddpsim, every, of, lambda one: one.get("file", one["knobs"]))
        bad += differ
        print(f"{len(every)} {kind}, {events} events; {bad} differ so far")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
