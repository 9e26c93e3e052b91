#!/usr/bin/env python3
"""Is what ddpsim lowers for NVIDIA Apex's DistributedDataParallel what Apex did?

  apex_lowered.py DDPSIM              every recording and every scenario; exit 1 if one differs
  apex_lowered.py DDPSIM --self-test  changes of recordings and of Programs are noticed
  apex_lowered.py --reduce FOLDER     writes the data of this test from recordings

Recordings are of Apex's own code (tests/data/recorded_orders/README.md); scenarios are played by
apex.py, which must also say what was recorded. Compared are the first step and the steady one:
gradients, collectives with operation, elements, type, queue, communicator and tensors, casts,
multiplications, copies and flat copies with elements and queue, waits between streams, all in the
host's order. Known differences, of which the test knows no others:

- `flatten` of one gradient is recorded as a call; it makes a view (tensor_flatten.h), and a
  Program has no operation for it.
- A gradient's hook is where its backward is enqueued. Every gradient has a layer of its own here,
  so that it has an operation.
"""
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import apex
from recordings import DATA as KEPT, load, write
from lowered import shown, tally

DATA = KEPT / "apex/apex-2025-05.json.gz"
SIZES = {"float16": 2, "float32": 4, "float64": 8, "int32": 4}


# ---- recordings
def reduce_folder(folder):
    out = []
    for path in sorted(Path(folder).glob("apex__*.json")):
        d = json.loads(path.read_text())
        assert d["all_ranks_identical"]
        steps = [d["steps"][k]["phases"]["backward"] for k in (0, d["steps"][3]["same_as"])]
        for events in steps:
            for e in events:
                if e[0] == "c":
                    for key in ("async", "group", "reduce_op", "root", "bucket"):
                        e[1].pop(key, None)
        keys = ("file", "knobs", "world_size", "parameters", "gradient_arrival_order")
        out.append({**{k: d[k] for k in keys}, "steps": steps})
    DATA.parent.mkdir(exist_ok=True)
    write(DATA, out)
    print(f"{len(out)} recordings, {DATA.stat().st_size} bytes")
    return 0


def recorded_events(events):
    out = []
    for e in events:
        if e[0] == "c":
            c = e[1]
            assert c["bytes"] == c["elements"] * SIZES[c["dtype"]]
            after, sent = c["after_grad"], c.get("tensors")
            out.append(
                ["c", c["op"], c["elements"], c["dtype"], c["queue"], c.get("comm"), after, sent]
            )
        elif e[0] == "w":
            out.append(["w", e[1], e[2].removeprefix("ev@")])
        else:
            out.append(list(e))
    return out + [["update"]]


def question_of(recording):
    return {
        "world_size": recording["world_size"],
        "parameters": recording["parameters"],
        "arrival": recording["gradient_arrival_order"],
        **recording["knobs"],
    }


# ---- scenarios: made up so that rules show
SHAPES = [
    ("embed.weight", 70100),
    ("norm.weight", 60),
    ("norm.bias", 60),
    ("up.weight", 14400),
    ("up.bias", 240),
    ("down.weight", 14400),
    ("down.bias", 60),
    ("head.weight", 42060),
    ("head.bias", 701),
]
ARRIVAL = [8, 7, 6, 5, 4, 3, 1, 2, 0]


def scenarios():
    def one(ranks, halves=(), **more):
        types = ["float16" if i in halves else "float32" for i in range(len(SHAPES))]
        parameters = [[n, e, t] for (n, e), t in zip(SHAPES, types)]
        return {"world_size": ranks, "parameters": parameters, "arrival": ARRIVAL, **more}

    every = range(len(SHAPES))
    yield one(2)
    yield one(8, message_size=1)
    yield one(8, message_size=1, num_allreduce_streams=3, gradient_predivide_factor=8.0)
    yield one(4, message_size=15000, num_allreduce_streams=2)
    yield one(4, message_size=42761)
    yield one(4, message_size=42762, retain_allreduce_buffers=True, gradient_average=False)
    yield one(3, every, message_size=20000, allreduce_always_fp32=True)
    twice = {"allreduce_always_fp32": True, "gradient_predivide_factor": 2.0}
    yield one(8, every, message_size=20000, **twice)
    yield one(8, every, delay_allreduce=True, allreduce_always_fp32=True)
    yield one(2, delay_allreduce=True, retain_allreduce_buffers=True)
    yield one(8, allreduce_trigger_params=["up.weight", "head.weight", "embed.weight"])
    yield one(8, allreduce_trigger_params=["norm.bias"], num_allreduce_streams=2)
    yield one(4, message_size=15000, micro_batches=3)
    yield one(4, message_size=15000, micro_batches=3, disable_allreduce=True)
    yield one(4, message_size=15000, micro_batches=2, num_allreduce_streams=4)
    yield one(2, delay_allreduce=True, micro_batches=2)


# ---- ddpsim
def workload(question):
    tensors = [
        {"name": n, "shape": [e], "dtype": d} for n, e, d in question["parameters"]
    ]
    cost = {"flops_per_sample": 1e9, "bytes_per_sample": 1e6, "bytes_fixed": 0, "kernels": 1}
    layers = [
        {
            "name": f"l{i}",
            "class": "memory",
            "op": {"kind": "relu"},
            "tensors": [i],
            "forward": dict(cost),
            "backward": dict(cost),
        }
        for i in reversed(question["arrival"])
    ]
    document = {
        "schema": "ddpsim.workload/1",
        "name": "made-up",
        "model": "recorded",
        "basis": "described",
        "batch": 2,
        "precision": "fp32",
        "device": {"kind": "gpu", "name": "any"},
        "source": "made by tests/oracle/apex_lowered.py",
        "optimizer": {
            "name": "adam",
            "momentum": False,
            "weight_decay": False,
            "foreach": True,
            "fused": False,
        },
        "tensors": tensors,
        "buffers": [],
        "arrival": question["arrival"],
        "layers": layers,
    }
    if all(t["dtype"] == "float16" for t in tensors):
        for t in tensors:
            t["dtype"] = "float32"  # the precision says it
        document.update(precision="fp16", casting="master_weights", loop={"grad_scaler": False})
    return document


def program(ddpsim, question):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.json"
        file.write_text(json.dumps(workload(question)))
        asked = [ddpsim, "show", "program", "--format", "json", "--workload", str(file)]
        asked += ["--cluster", "hgx-h100", "--ranks", str(question["world_size"]), "--plan", "apex"]
        asked += ["--set", f"accumulation_steps={question.get('micro_batches', 1)}"]
        for knob in apex.KNOBS:
            if question.get(knob) is not None:
                asked += ["--set", f"{knob}={json.dumps(question[knob])}"]
        return shown(asked, question)


LOCAL = {
    "flatten": "flatten",
    "to_fp32": "to_float",
    "predivide": "mul",
    "mean": "mul",
    "from_fp32": "from_float",
    "unflatten": "copy",
}


def lowered(question, step):
    index = {p[0]: i for i, p in enumerate(question["parameters"])}
    streams = question.get("num_allreduce_streams", 1)
    ops = {o["op"]: o for o in step["ops"]}
    sent = {o["op"].rsplit(".", 1)[1]: o for o in step["ops"] if o["op"].startswith("allreduce/")}
    on_compute = set()  # buckets that the compute stream reduces: it goes on behind them
    for number, o in sent.items():
        words = ("mean", "unflatten", "predivide", "to_fp32")
        others = [f"{word}/bucket.{number}" for word in words]
        lanes = {ops[n]["lane"] for n in others if n in ops}
        if lanes == {"compute"} or (not lanes and step["kind"] == "first"):
            on_compute.add(number)
        elif not lanes and question.get("delay_allreduce"):
            on_compute.add(number)

    def queue(number, o):
        if number in on_compute or (o["lane"] == "compute" and o["does"] != "communicate"):
            return "main"
        if o["lane"] in ("comm", "bucket_stream"):
            return "stream0"
        return o["lane"].replace("bucket_stream", "stream")

    out, last, compute, waited, used = [], None, None, set(), {}
    for o in step["ops"]:
        name = o["op"]
        if name.startswith("micro"):
            micro, name = name.split("/", 1)
            if name == "fwd":
                last = None
        word, _, of = name.partition("/")
        number = of.removeprefix("bucket.")
        if o["does"] == "launch":
            continue
        if o["lane"] == "compute":
            behind = sorted(s for s in used if used[s] in o["waits_for"])
            for s in behind:
                out.append(["w", "main", s])
            used = {s: n for s, n in used.items() if s not in behind}
        if word == "bwd" and of != "tail":
            last = index[of]
            out.append(["g", last])
        elif name == "broadcast/structure":
            out.append(["c", "broadcast", o["bytes"] // 4, "int32", "main", None, last, None])
        elif o["does"] == "communicate" or word in LOCAL:
            s = queue(number, o)
            if s != "main" and word != "flatten" and number not in waited:
                waited.add(number)
                if compute in o["waits_for"]:
                    out.append(["w", s, "main"])
            if o["does"] == "communicate":
                tensors = [index[t] for t in o["tensors"]]
                comm = f"g{s[-1]}" if streams > 1 and s != "main" else None
                if streams > 1 and (o["lane"] == "comm") != (comm is None):
                    comm = f"on {o['lane']}"
                n = o["bytes"] // SIZES[o["dtype"]]
                out.append(["c", "all_reduce", n, o["dtype"], s, comm, last, tensors])
            else:
                tensors = len(sent[number]["tensors"])
                count = tensors if word == "unflatten" else 1
                own = question["parameters"][index[sent[number]["tensors"][0]]][2]
                size = SIZES[own]
                wire = SIZES[sent[number]["dtype"]]
                per = {"to_fp32": size + wire, "from_fp32": size + wire, "mean": 2 * wire}
                per["predivide"] = 2 * wire
                n = o["traffic_bytes"] / per.get(word, 2 * size)
                out.append(["l", LOCAL[word], int(n) if n == int(n) else n, count, s])
            if s != "main":
                used[s] = o["op"]
        elif word == "optimizer":
            out.append(["update"])
        if o["lane"] == "compute":
            compute = o["op"]
    return out


def said(events):
    """Without flat copies of one gradient."""
    out = []
    for k, e in enumerate(events):
        if e[:2] == ["l", "flatten"]:
            following = next((c for c in events[k:] if c[0] == "c"), None)
            if following and following[7] and len(following[7]) == 1:
                continue
        out.append(e)
    return out


# ---- comparing
def first_difference(mine, theirs):
    for k in range(max(len(mine), len(theirs))):
        a = mine[k] if k < len(mine) else None
        b = theirs[k] if k < len(theirs) else None
        if a != b:
            return f"{k}: {a}, expected {b}"
    return None


def recorded_differences(ddpsim, recording, p=None):
    question = question_of(recording)
    oracle = apex.steps(question)
    p = p or program(ddpsim, question)
    found, compared = [], 0
    for which, mine, theirs in ((0, p["steps"][0], oracle[0]), (1, p["steps"][-1], oracle[2])):
        events = recorded_events(recording["steps"][which])
        compared += len(events)
        for who, a, b in (
            ("ddpsim", lowered(question, mine), said(events)),
            ("oracle", theirs, events),
        ):
            if difference := first_difference(a, b):
                found.append(f"{who}, step {which}, {difference}")
    return found, compared


def scenario_differences(ddpsim, question, p=None):
    oracle = apex.steps(question)
    p = p or program(ddpsim, question)
    found, compared = [], 0
    for which, mine, theirs in ((0, p["steps"][0], oracle[0]), (1, p["steps"][-1], oracle[2])):
        compared += len(theirs)
        if difference := first_difference(lowered(question, mine), said(theirs)):
            found.append(f"step {which}, {difference}")
    return found, compared


def recordings():
    return load(DATA)


def self_test(ddpsim):
    missed = []
    r = next(r for r in recordings() if "predivide4_streams2" in r["file"])
    p = program(ddpsim, question_of(r))
    if recorded_differences(ddpsim, r, p)[0]:
        missed.append("what was not changed is told to differ")
    for which in (0, 1):
        events = r["steps"][which]
        for k, e in enumerate(list(events)):
            del events[k]
            if not recorded_differences(ddpsim, r, p)[0]:
                missed.append(f"without {e}")
            events.insert(k, e)
    others = {"message_size": 300000, "num_allreduce_streams": 1, "gradient_average": False}
    for other in ({knob: value} for knob, value in others.items()):
        changed = {**r, "knobs": {**r["knobs"], **other}}
        if not recorded_differences(ddpsim, changed, p)[0]:
            missed.append(str(other))
    question = next(q for q in scenarios() if q.get("disable_allreduce"))
    p = program(ddpsim, question)
    steady = p["steps"][-1]["ops"]
    for k, o in enumerate(list(steady)):
        counts = o["does"] == "communicate" or o["op"].split("/")[0] in LOCAL
        for key in ("bytes", "traffic_bytes", "waits_for"):
            if not counts or not o.get(key) or (key == "bytes") != (o["does"] == "communicate"):
                continue
            before, o[key] = o[key], [] if key == "waits_for" else o[key] + 4
            first = o["op"].startswith("allreduce")  # what waits for the compute stream
            if (key != "waits_for" or first) and not scenario_differences(ddpsim, question, p)[0]:
                missed.append(f"{o['op']}: {key}")
            o[key] = before
    for m in missed:
        print("not noticed:", m)
    print("self-test:", "failed" if missed else "ok")
    return 1 if missed else 0


def main():
    if sys.argv[1] == "--reduce":
        return reduce_folder(sys.argv[2])
    ddpsim = sys.argv[1]
    if "--self-test" in sys.argv:
        return apex.self_test() or self_test(ddpsim)
    bad = 0
    for kind, every, of in (
        ("recorded schedules", recordings(), recorded_differences),
        ("scenarios", list(scenarios()), scenario_differences),
    ):
        events, differ = tally(ddpsim, every, of, lambda one: one.get("file", one))
        bad += differ
        print(f"{len(every)} {kind}, {events} events; {bad} differ so far")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
