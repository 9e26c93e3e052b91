#!/usr/bin/env python3
"""Is what ddpsim does with parameter servers what its sources say?

  parameter_server_lowered.py DDPSIM              every scenario; exit 1 if one differs
  parameter_server_lowered.py DDPSIM --self-test  changes of Programs are noticed

From the sources (tensorflow/python/distribute/parameter_server_strategy_v2.py, sharded_variable.py,
python/ops/partitioned_variables.py; Ho et al., NIPS 2013, for the bound of staleness) and from no
line of the simulator:

- `shards`: into which parts variables are cut, and on which server each part is;
- `played`: what a worker pulls, pushes and waits for, in its order, per connection;
- `paces`: how fast workers of different speed go under a bound of staleness, and how stale their
  updates are, as a recurrence over steps; held against an answer on a network that costs nothing.
"""
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lowered import Planted, first_difference, judge, other_bytes, shown  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
QUICK = "cluster.link={\"bandwidth\":\"100000Gb/s\",\"latency\":\"0us\",\"transport\":\"tcp\"}"


def scenarios():
    for servers in (1, 2, 3, 8):
        yield {"workload": "resnet50", "ranks": 4, "set": [f"servers={servers}"]}
    yield {"workload": "vgg16", "ranks": 8, "set": ["servers=4", "placement=by_size"]}
    fixed = ["servers=3", "variable_partitioner=fixed_shards", "max_shards=3"]
    yield {"workload": "vgg16", "ranks": 2, "set": fixed}
    yield {"workload": "vgg16", "ranks": 2, "set": ["servers=3", "variable_partitioner=min_size",
                                                   "shard_bytes=262144", "max_shards=8"]}
    yield {"workload": "gpt2-small", "ranks": 4, "set": ["servers=2", "placement=by_size",
           "variable_partitioner=max_size", "shard_bytes=4000000"]}
    yield {"workload": "gpt2-small", "ranks": 4, "set": ["servers=2", "max_shards=2",
           "variable_partitioner=max_size", "shard_bytes=4000000"]}
    yield {"workload": "resnet50", "ranks": 4, "set": ["servers=2", "pull=after_push",
                                                      "synchronous=true"]}
    yield {"workload": "resnet50", "ranks": 4, "set": ["servers=2", "synchronous=true"]}
    yield {"workload": "mlp784-50-10", "ranks": 4, "set": ["servers=2", "accumulation_steps=3"]}
    yield {"workload": "mlp784-50-10", "ranks": 1, "set": ["servers=1", "staleness=0"]}
    for bound in (None, 0, 1, 3):
        for slow in ({}, {"2": 2}, {"0": 1.5, "3": 3}):
            yield {"pace": bound, "slow": slow, "ranks": 4}


def size(t):
    return SIZES[t["dtype"]] * math.prod(t["shape"])


def shards(w, said):
    """[(variable, elements from, to, bytes, server)], in the order in which they are made."""
    how = said.get("variable_partitioner", "none")
    most = int(said.get("max_shards", said.get("servers", 1)))
    bound = int(said.get("shard_bytes", 256 << 10))
    servers = int(said.get("servers", 1))
    made = []
    for i, t in enumerate(w["tensors"]):
        shape = t["shape"] or [1]
        rows = shape[0]
        element = SIZES[t["dtype"]]
        parts = 1
        if how == "fixed_shards":
            parts = min(most, rows)
        elif how == "min_size":
            parts = max(1, min(rows, most, math.ceil(size(t) / bound)))
        elif how == "max_size":
            held = max(1, math.floor(bound / (size(t) / rows)))
            parts = math.ceil(rows / held)
            if "max_shards" in said:
                parts = min(most, parts)
        row = math.prod(shape[1:])
        begin = 0
        for k in range(parts):  # 10 rows in 4 parts: 3, 3, 2, 2
            end = begin + rows // parts + (1 if k < rows % parts else 0)
            made.append([i, begin * row, end * row, (end - begin) * row * element])
            begin = end
    held = [0] * servers
    for k, s in enumerate(made):
        server = k % servers
        if said.get("placement") == "by_size":  # the least loaded; of equal ones the first
            server = held.index(min(held))
        held[server] += s[3]
        s.append(server)
    return made


def played(w, s):
    said = dict(x.split("=", 1) for x in s.get("set", []))
    names = [t["name"] for t in w["tensors"]]
    made = shards(w, said)
    after = said.get("pull") == "after_push"
    of = {}
    for k, (i, *_) in enumerate(made):
        of.setdefault(i, []).append(k)
    out, last = [], {}

    def message(word, k, more):
        i, a, z, nbytes, server = made[k]
        before = last.get((word, server))  # one connection: after what was sent there before
        last[(word, server)] = f"{word}/shard.{k}"
        waits = set(more) | ({before} if before else set())
        part = names[i] if z - a == size(w["tensors"][i]) // SIZES[w["tensors"][i]["dtype"]] else \
            f"{names[i]}[{a}:{z}]"
        out.append([word, k, part, nbytes, f"server{server}", sorted(waits)])

    out.append(["clock"])
    if not after:
        for k in range(len(made)):
            message("pull", k, [])
    for m in range(int(said.get("accumulation_steps", 1))):
        out.append(["fwd", 0 if after or m > 0 else len(made)])
    for t in w["arrival"]:
        for k in of[t]:
            message("push", k, [])
            out.append(["serve", k, [f"push/shard.{k}"]])
            if after:
                message("pull", k, [f"serve/shard.{k}"])
    last_word = "pull" if after else "serve"
    trained = sorted(k for t in w["arrival"] for k in of[t])
    out.append(["end", sorted(f"{last_word}/shard.{k}" for k in trained)])
    return out


def program(ddpsim, s):
    asked = [ddpsim, "show", "program", "--format", "json", "--workload", s["workload"]]
    asked += ["--cluster", "dgx-h100", "--ranks", str(s["ranks"]), "--plan", "parameter_server"]
    for setting in s.get("set", []):
        asked += ["--set", setting]
    return shown(asked, s)


def lowered(step):
    out = []
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        word = name.split("/")[0]
        number = int(name.split(".")[-1]) if "/shard." in name else None
        waits = [x for x in o["waits_for"] if "/shard." in x and not x.startswith("launch/")]
        if o["does"] == "launch" or word == "bwd" or word == "accumulate":
            continue
        if name == "wait/clock":
            out.append(["clock"])
        elif word in ("pull", "push"):
            ok = o["operation"] == word
            out.append([word, number, o["tensors"][0] if isinstance(o["tensors"][0], str)
                        else o["tensors"][0]["name"], o["bytes"], o["group"] if ok else "?",
                        sorted(waits)])
        elif word == "serve":
            out.append([word, number, sorted(waits)])
        elif word == "fwd":
            out.append(["fwd", len(waits)])
        elif name == "wait/applied":
            out.append(["end", sorted(waits)])
        else:
            out.append([name])
    return out


def paces(compute, factors, bound, steps=400):
    """Steps a second of each worker, and how many updates of others each one's own update missed:
    their mean, and the most."""
    ranks = range(len(factors))
    begin = [[0.0] * steps for _ in ranks]
    end = [[0.0] * steps for _ in ranks]
    for k in range(steps):
        for r in ranks:
            ready = end[r][k - 1] if k else compute * r / len(factors)  # they begin apart
            if bound is not None and k > bound:
                ready = max(ready, max(end[x][k - 1 - bound] for x in ranks))
            begin[r][k] = ready
            end[r][k] = ready + compute * factors[r]
    until = min(end[r][-1] for r in ranks)
    since = until / 2

    def pace(r):
        return sum(since < e <= until for e in end[r]) / (until - since)

    missed = []
    for r in ranks:
        for k in range(steps):
            if since < begin[r][k] and end[r][k] <= until:
                # Of updates at the same time one or the other is the first.
                near = 0.01 * compute
                others = [e for x in ranks if x != r for e in end[x] if e > begin[r][k] + near]
                missed.append(sum(1.0 if e < end[r][k] - near else 0.5
                                  for e in others if e <= end[r][k] + near))
    return [pace(r) for r in ranks], sum(missed) / len(missed), max(missed)


def answered(ddpsim, s):
    asked = [ddpsim, "predict", "--format", "json", "--workload", "mlp-cpu", "--cluster",
             "ethernet-10g", "--plan", "parameter_server", "--ranks", str(s["ranks"]), "--set",
             "servers=1", "--set", QUICK, "--set", "stragglers=false"]
    if s["pace"] is not None:
        asked += ["--set", f"staleness={s['pace']}"]
    if s["slow"]:
        asked += ["--set", "slow_ranks=" + json.dumps(s["slow"])]
    return shown(asked, s)


def pace_differences(ddpsim, s, a=None):
    a = a or answered(ddpsim, s)
    found = []
    factors = [float(s["slow"].get(str(r), 1)) for r in range(s["ranks"])]
    summary = a.get("summary", a)
    # One worker's step: what the answer says of an equal job of one worker.
    alone = answered(ddpsim, {**s, "ranks": 1, "slow": {}, "pace": None})
    alone = alone.get("summary", alone)
    step = alone["step_ps"] / 1e12
    rates, mean, most = paces(step, factors, s["pace"])
    mine = summary["workers"]["steps_per_s"]
    for r, (x, y) in enumerate(zip(mine, rates)):
        if abs(x - y) > 0.06 * y:
            found.append(f"worker {r}: ddpsim {x:.3f} steps/s, oracle {y:.3f}")
    if abs(summary["workers"]["staleness_mean"] - mean) > 0.25 + 0.1 * mean:
        found.append(f"staleness {summary['workers']['staleness_mean']}, oracle {mean}")
    if abs(summary["workers"]["staleness_most"] - most) > 1:
        found.append(f"at most {summary['workers']['staleness_most']}, oracle {most}")
    if abs(s["ranks"] / sum(mine) - summary["step_ps"] / 1e12) > 0.01 * summary["step_ps"] / 1e12:
        found.append("the step is not the workers' harmonic mean")
    return found, s["ranks"] + 2


def differences(ddpsim, s, p=None):
    if "pace" in s:
        return pace_differences(ddpsim, s, p)
    w = json.loads((ROOT / "workloads" / f"{s['workload']}.json").read_text())
    p = p or program(ddpsim, s)
    mine, theirs = lowered(p["steps"][-1]), played(w, s)
    return first_difference(mine, theirs, 160), len(theirs)


def self_test(ddpsim):
    def changes(o):
        server = [("group", "server9", "another server")] if o["does"] == "communicate" else []
        return other_bytes(o) + server

    planted = Planted()
    for s in ({"workload": "mlp784-50-10", "ranks": 4, "set": ["servers=2"]},
              {"workload": "vgg16", "ranks": 2, "set": ["servers=3", "placement=by_size",
                                                       "pull=after_push"]}):
        p = program(ddpsim, s)

        def ask(s=s, p=p):
            return differences(ddpsim, s, p)[0]

        planted.unchanged(ask())
        planted.operations(
            p["steps"][-1]["ops"],
            ask,
            lambda o: o["does"] == "launch" or o["op"].startswith("bwd/"),
            changes,
        )
    s = {"pace": 1, "slow": {"2": 2}, "ranks": 4}
    a = answered(ddpsim, s)
    workers = a.get("summary", a)["workers"]
    for k in range(4):
        workers["steps_per_s"][k] *= 1.3
        planted.change(pace_differences(ddpsim, s, a)[0], f"another pace of worker {k}")
        workers["steps_per_s"][k] /= 1.3
    return planted.verdict()


def main():
    ddpsim = sys.argv[1]
    if "--self-test" in sys.argv:
        return self_test(ddpsim)
    return judge(ddpsim, scenarios(), differences, compared="facts")


if __name__ == "__main__":
    sys.exit(main())
