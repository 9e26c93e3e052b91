#!/usr/bin/env python3
"""Uneven inputs under DDP's join: what ranks shadow that have none left, and what others wait for.

  join_uneven.py DDPSIM              12 scenarios; exit 1 if one differs
  join_uneven.py DDPSIM --self-test  changes of Programs and of plays are noticed
  join_uneven.py --real              5 trainings by PyTorch 1.13 over Gloo; 77 = no PyTorch here

Written from torch/distributed/algorithms/join.py and torch/nn/parallel/distributed.py (1.13, 2.7):

1. A rank with inputs begins its forward with an all-reduce of a float (how many have inputs), which
   it does not wait for, unless it divides by that number (divide_by_initial_world_size=False), then
   at the first gradient. Then buckets are rebuilt, if it is the second step: two broadcasts that
   are waited for. Where buffers are sent: an all-reduce of an int64 (the largest rank that has
   inputs sends them), which the host reads, and a broadcast from it for each type. Then an
   all-reduce of a float (whether this backward synchronises), which nobody waits for.
2. A rank that has joined does the same collectives in the same order, and computes nothing: one
   all-reduce of zeros for each bucket, in the buckets' order, all of them issued before it waits
   for the first; with find_unused_parameters the bitmap's too.
3. So a bucket's all-reduce begins when the last rank with inputs has it. Steps are as long as if
   ranks that joined were not slower than any other.
4. When nobody has inputs: the count once more (it is zero), an all-reduce of an int64 (the largest
   rank of those that joined last), and a broadcast of the model from that: of each type parameters
   and buffers together.
"""
import importlib.util
import json
import os
import socket
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/oracle"), str(ROOT / "tests/support")]
import apex_lowered
from forked import Forks
from lowered import Planted, first_difference, judge, shown

SCRIPT = ROOT / "tests/oracle/scripts/uneven_inputs.py"
MIB = 1 << 20
SIZES = {"float32": 4, "int64": 8}


# ---- what the facts say
def buckets_of(sizes, arrival, first, cap, step, finds):
    """[elements] of each bucket, in launch order."""
    limits = [first, cap]
    order = arrival if step > 0 and not finds else range(len(sizes))
    if step == 0 and not finds:
        limits = [1 << 60]
    out, held = [], []
    for i in order:
        held.append(sizes[i])
        if 4 * sum(held) >= limits[min(len(out), len(limits) - 1)]:
            out.append(sum(held))
            held = []
    out += [sum(held)] if held else []
    return out if step > 0 and not finds else out[::-1]


def iteration(q, step):
    """[what, operation, elements, bytes an element] of every rank, joined or not, in order."""
    k = q["knobs"]
    out = [["count", "all_reduce", 1, 4]]
    sent = buckets_of(q["sizes"], q["arrival"], q["first"], q["cap"], step,
                      k.get("find_unused_parameters", False))
    if step == 1 and not k.get("find_unused_parameters", False):
        out.append(["rebuild", "broadcast", len(q["sizes"]) + 1, 4])
        out.append(["rebuild", "broadcast", len(sent), 4])
    if k.get("broadcast_buffers", True) and q["buffers"]:
        out.append(["source", "all_reduce", 1, 8])
        out += [["buffers", "broadcast", n, SIZES[t]] for t, n in q["buffers"].items()]
    out.append(["sync", "all_reduce", 1, 4])
    out += [["bucket", "all_reduce", n, 4] for n in sent]
    if k.get("find_unused_parameters", False):
        out.append(["bitmap", "all_reduce", len(q["sizes"]), 4])
    return out


def training(q, inputs):
    """Of every rank: all collectives of max(inputs) iterations, and the end."""
    out = []
    for step in range(max(inputs)):
        out += iteration(q, step)
    out += [["count", "all_reduce", 1, 4], ["source", "all_reduce", 1, 8]]
    kinds = {"float32": sum(q["sizes"])}
    for t, n in q["buffers"].items():
        kinds[t] = kinds.get(t, 0) + n
    return out + [["model", "broadcast", n, SIZES[t]] for t, n in kinds.items()]


# ---- scenarios for ddpsim
SHAPES = [30_000, 64, 64, 210_000, 700, 10_000, 28_000, 40]
ARRIVAL = [7, 6, 5, 4, 3, 1, 2, 0]


def scenarios():
    def one(ranks, joined, buffers=True, cap=25 * MIB, **knobs):
        return {"ranks": ranks, "joined": joined, "sizes": SHAPES, "arrival": ARRIVAL,
                "buffers": {"float32": 128, "int64": 1} if buffers else {}, "first": MIB,
                "cap": cap, "knobs": {"pytorch": "1.13", **knobs}}

    tenth = int(0.1 * MIB)
    yield one(4, 0)
    yield one(4, 1)
    yield one(4, 3)
    yield one(8, 5, cap=tenth, bucket_cap_mb=0.1)
    yield one(8, 7, cap=tenth, bucket_cap_mb=0.1, first_bucket_bytes=4096)
    yield one(16, 8, cap=tenth, bucket_cap_mb=0.1)
    yield one(2, 1, broadcast_buffers=False)
    yield one(2, 1, buffers=False)
    yield one(4, 2, divide_by_initial_world_size=False)
    yield one(8, 3, divide_by_initial_world_size=False, cap=tenth, bucket_cap_mb=0.1)
    yield one(4, 2, find_unused_parameters=True)
    yield one(8, 1, find_unused_parameters=True, cap=tenth, bucket_cap_mb=0.1)


def question(q, folder):
    if "first_bucket_bytes" in q["knobs"]:
        q["first"] = q["knobs"]["first_bucket_bytes"]
    flat = {"parameters": [[f"p{i}", n, "float32"] for i, n in enumerate(q["sizes"])],
            "arrival": q["arrival"]}
    document = apex_lowered.workload(flat)
    document["buffers"] = [{"name": t, "shape": [n], "dtype": t} for t, n in q["buffers"].items()]
    document["source"] = "made by tests/oracle/join_uneven.py"
    file = Path(folder) / "workload.json"
    file.write_text(json.dumps(document))
    out = ["--workload", str(file), "--cluster", "hgx-h100", "--ranks", str(q["ranks"])]
    out += ["--set", f"cluster.hosts={-(-q['ranks'] // 8)}", "--set", "stragglers=false"]
    for knob, value in {**q["knobs"], "join": True, "joined_ranks": q["joined"]}.items():
        out += ["--set", f"{knob}={json.dumps(value)}"]
    return out


def asked(ddpsim, q):
    """Program, and the spans of a steady step."""
    with tempfile.TemporaryDirectory() as folder:
        words = question(q, folder)
        program = shown([ddpsim, "show", "program", "--format", "json", *words], q["knobs"])
        played = shown([ddpsim, "predict", "--format", "json", *words], q["knobs"])
    return program, played["run"]["spans"]


def sent_by(program, k):
    """[operation, elements] of a step, in order; what the host waits for; who sends buffers."""
    sent, waits, roots = [], [], set()
    for o in program["steps"][k]["ops"]:
        if o["does"] == "communicate":
            sent.append([o["operation"], o["bytes"]])
            if o["op"].startswith("broadcast/buffers"):
                roots.add(o.get("root", 0))
        elif o["does"] == "wait":
            waits += [w.split("/", 1)[1].split(".")[-1] if "join" in w else w.split("/", 1)[1]
                      for w in o["waits_for"]]
    return sent, waits, roots


def differences(ddpsim, q, answer=None):
    program, spans = answer or asked(ddpsim, q)
    found, compared = [], 0
    k = q["knobs"]
    last = len(program["steps"]) - 1
    for number in range(len(program["steps"])):
        theirs = iteration(q, number)
        sent, waits, roots = sent_by(program, number)
        said = [[op, n * size] for _, op, n, size in theirs]
        compared += len(said)
        found += [f"step {number}: {s}" for s in first_difference(sent, said)]
        awaited = []  # by the host
        if any(e[0] == "rebuild" for e in theirs):
            awaited += ["rebuild.0", "rebuild.1"]
        if any(e[0] == "source" for e in theirs):
            awaited.append("source")
        if not k.get("divide_by_initial_world_size", True):
            awaited.append("notify")
        found += [f"step {number}, the host waits: {s}" for s in first_difference(waits, awaited)]
        wanted = {q["ranks"] - 1 - q["joined"]} if "source" in awaited else set()
        if roots != wanted:
            found.append(f"step {number}: buffers from {sorted(roots)}, not {sorted(wanted)}")
    found += played_differences(q, spans, iteration(q, last))
    return found, compared


def played_differences(q, spans, sent):
    """Ranks that joined compute nothing; every collective waits for those with inputs."""
    found = []
    first_joined = q["ranks"] - q["joined"]
    by_actor = {}
    for s in spans:
        by_actor.setdefault(s["class"], []).append(s)
    idle = [a for a in by_actor if a >= first_joined]
    busy = [a for a in by_actor if a < first_joined]
    if bool(idle) != bool(q["joined"]) or not busy:
        return [f"ranks of spans: {sorted(by_actor)}"]
    ends = {}
    for actor, own in by_actor.items():
        worked = sum(s["end_ps"] - s["begin_ps"] for s in own if s["lane"] == "compute"
                     and not s["op"].startswith(("allreduce", "broadcast")))
        if (actor in idle) != (worked == 0):
            found.append(f"rank {actor} computes for {worked} ps")
        reduced = [s for s in own if s["op"].startswith("allreduce/bucket.")]
        if len(reduced) != sum(e[0] == "bucket" for e in sent):
            found.append(f"rank {actor} reduces {len(reduced)} buckets")
        for s in reduced:
            ends.setdefault(s["op"], set()).add(s["end_ps"])
            ready = max(t["ready_ps"] for a in busy for t in by_actor[a] if t["op"] == s["op"])
            if s["begin_ps"] < ready:
                found.append(f"{s['op']} of rank {actor} begins before the others have it")
    found += [f"{op} ends at {sorted(e)}" for op, e in ends.items() if len(e) > 1]
    return found


def self_test(ddpsim):
    planted = Planted()
    q = list(scenarios())[3]
    program, spans = asked(ddpsim, q)

    def ask():
        return differences(ddpsim, q, (program, spans))[0]

    planted.unchanged(ask())
    for step in program["steps"]:
        planted.operations(
            step["ops"], ask, lambda o: o["does"] not in ("communicate", "wait"),
            lambda o: [("bytes", o["bytes"] + 4, "bytes")] if o["does"] == "communicate" else [],
        )
    for s in spans:
        joined = s["class"] >= q["ranks"] - q["joined"]
        if joined and s["lane"] == "compute" and s["op"].startswith("bwd/"):
            before, s["end_ps"] = s["end_ps"], s["end_ps"] + 1
            planted.change(ask(), f"{s['op']} of a rank that joined takes time")
            s["end_ps"] = before
        if joined and s["op"].startswith("allreduce/bucket."):
            before, s["begin_ps"] = s["begin_ps"], 0
            planted.change(ask(), f"{s['op']} waits for nobody")
            s["begin_ps"] = before
    return planted.verdict()


# ---- the real PyTorch
def real_cases():
    yield [4, 2, 1], {}
    yield [1, 3, 3], {"broadcast_buffers": False}
    yield [2, 5], {"norm": False}
    yield [3, 1, 2], {"divide_by_initial_world_size": False}
    yield [2, 4, 3], {"find_unused_parameters": True}


def real_question(knobs):
    """The model of scripts/uneven_inputs.py."""
    sizes, arrival = [20 * 60, 60], []
    if knobs.get("norm", True):
        sizes += [60, 60]
    sizes += [60 * 90, 90, 90 * 7, 7]
    if knobs.get("find_unused_parameters"):
        sizes += [5 * 3, 3]
    arrival = [len(sizes) - 1 - i for i in range(len(sizes))]
    if knobs.get("norm", True):  # batch norm's weight comes before its bias
        arrival[arrival.index(3)], arrival[arrival.index(2)] = 2, 3
    return {"sizes": sizes, "arrival": arrival, "first": 8_000, "cap": int(0.02 * MIB),
            "buffers": {"float32": 120, "int64": 1} if knobs.get("norm", True) else {},
            "knobs": knobs}


def run_ranks(forks, inputs, knobs, folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for rank in range(len(inputs)):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(inputs)),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [SCRIPT, f"{folder}/log", json.dumps(inputs), json.dumps(knobs)]
        ranks.append(forks.start(command, env, folder))
    for status, said in [r.result(timeout=300) for r in ranks]:
        if status:
            raise SystemExit(f"{inputs} {knobs}: a rank failed: {said}")
    return [json.loads(Path(f"{folder}/log.{r}").read_text()) for r in range(len(inputs))]


def real():
    if importlib.util.find_spec("torch") is None:
        print("no PyTorch here")
        return 77
    bad = 0
    with Forks(("torch", "torch.distributed")) as forks:
        for inputs, knobs in real_cases():
            theirs = [e[1:3] for e in training(real_question(knobs), inputs)]
            with tempfile.TemporaryDirectory() as folder:
                logs = run_ranks(forks, inputs, knobs, folder)
            for rank, log in enumerate(logs):
                found = first_difference(log, theirs)
                bad += bool(found)
                if found:
                    print(f"rank {rank} of inputs {inputs}, {knobs}:", *found)
            print(f"inputs {inputs}, {knobs}: {len(theirs)} collectives of each rank")
    print("PyTorch:", f"{bad} ranks differ" if bad else "all as the facts say")
    return 1 if bad else 0


def main():
    if "--real" in sys.argv:
        return real()
    if "--self-test" in sys.argv:
        return self_test(sys.argv[1])
    return judge(sys.argv[1], scenarios(), differences, compared="collectives")


if __name__ == "__main__":
    sys.exit(main())
