#!/usr/bin/env python3
"""Are the operations that ddpsim lowers for ZeroRedundancyOptimizer the oracle's
(zero_redundancy.py, which is equal to recordings of PyTorch 1.13)?

  zero_redundancy_lowered.py DDPSIM              every configuration; exit 1 if one differs
  zero_redundancy_lowered.py DDPSIM --self-test  changed questions are noticed

Compared are the first, the rebuild and the steady step: each collective's operation, bytes, root
and tensors in the order in which the host issues them, the last gradient before it, that the
broadcasts follow the optimizer and the host (GPU: the compute stream) waits for all of them, and
that the optimizer takes the share of the rank that has the most elements.
"""
import itertools
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import zero_redundancy

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ("gpt-cpu", "cnn-cpu", "resnet18-cpu", "mobilenet-v2-cpu", "mlp-cpu")


def configurations():
    for name, ranks, view in itertools.product(WORKLOADS, (2, 3, 4), (False, True)):
        yield {"workload": name, "ranks": ranks, "knobs": {"parameters_as_bucket_view": view}}
    for view in (False, True):  # more ranks than parameters, and one rank
        for ranks in (1, 7, 40):
            yield {
                "workload": "mlp-cpu",
                "ranks": ranks,
                "knobs": {"parameters_as_bucket_view": view},
            }
    for knobs in (
        {"bucket_cap_mb": 1},
        {"bucket_cap_mb": 5, "parameters_as_bucket_view": True},
        {"broadcast_buffers": False},
    ):
        for name in ("resnet18-cpu", "mobilenet-v2-cpu"):
            yield {"workload": name, "ranks": 4, "knobs": knobs}


def workload(name):
    return json.loads((ROOT / "workloads" / f"{name}.json").read_text())


def elements(tensor):
    n = 1
    for extent in tensor["shape"]:
        n *= extent
    return n


def program(ddpsim, c):
    asked = [ddpsim, "show", "program", "--format", "json", "--workload", c["workload"]]
    asked += ["--cluster", "testbed-torch", "--set", f"cluster.hosts={c['ranks']}"]
    asked += ["--plan", "zero_redundancy", "--set", "pytorch=1.13"]
    for knob, value in c["knobs"].items():
        asked += ["--set", f"{knob}={json.dumps(value)}"]
    out = subprocess.run(asked, capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{c}: {out.stderr}")
    return json.loads(out.stdout)


def lowered(w, step):
    index = {t["name"]: i for i, t in enumerate(w["tensors"])}
    out, after = [], None
    for o in step["ops"]:
        name = o["op"]
        if name.startswith("copy_in/"):
            after = index[name.removeprefix("copy_in/")]
        elif name == "optimizer":
            out.append(["optimizer"])
        elif o["does"] == "communicate":
            tensors = [index[t] for t in o["tensors"]]
            if name.startswith("broadcast/"):
                tensors = None
            out.append([o["operation"], o["bytes"], o.get("root", 0), tensors, after])
    return out


def expected(log):
    out, after = [], None
    for e in log:
        if e["do"] == "gradient":
            after = e["tensor"]
        elif e.get("kernel") == "optimizer":
            out.append(["optimizer"])
        elif "operation" in e:
            out.append([e["operation"], e["bytes"], e.get("root", 0), e.get("tensors"), after])
    return out


def waits_for_all(step):
    """Whether the last operation of the step waits for every broadcast of parameters."""
    sent = {o["op"] for o in step["ops"] if o["op"].startswith("broadcast_param")}
    return bool(sent) and sent == set(step["ops"][-1]["waits_for"])


def differences(ddpsim, c, p=None):
    w = workload(c["workload"])
    question = {
        "world_size": c["ranks"],
        "parameters": [[t["name"], elements(t)] for t in w["tensors"]],
        "arrival": w["arrival"],
        "buffers": [[b["name"], elements(b), b["dtype"]] for b in w.get("buffers", [])],
        "steps": 3,
        **c["knobs"],
    }
    p = p or program(ddpsim, c)
    found, compared = [], 0
    logs = zero_redundancy.steps(question)
    for number, (log, step) in enumerate(zip(logs, p["steps"], strict=True)):
        mine, theirs = lowered(w, step), expected(log)
        compared += len(theirs)
        for k in range(max(len(mine), len(theirs))):
            a = mine[k] if k < len(mine) else None
            b = theirs[k] if k < len(theirs) else None
            if a != b:
                found.append(f"step {number}, {k}: ddpsim {a}, oracle {b}")
                break
        if not waits_for_all(step):
            found.append(f"step {number}: its end does not wait for every broadcast")
    sizes = [p[1] for p in question["parameters"]]
    owned = zero_redundancy.partition(sizes, c["ranks"])
    most = max(sum(sizes[t] for t in own) for own in owned)
    said = next(o for o in p["steps"][-1]["ops"] if o["op"] == "optimizer")["duration_ps"]
    share = w["times"]["optimizer_ps"] * most / sum(sizes)
    if abs(said - share) > 1:
        found.append(f"optimizer: ddpsim {said} ps, the largest share takes {share:.0f}")
    return found, compared


def self_test(ddpsim):
    missed = []
    c = {"workload": "cnn-cpu", "ranks": 3, "knobs": {}}
    p = program(ddpsim, c)
    for changed in (
        {**c, "ranks": 4},
        {**c, "knobs": {"parameters_as_bucket_view": True}},
        {**c, "knobs": {"bucket_cap_mb": 2}},
        {**c, "knobs": {"broadcast_buffers": False}},
    ):
        if not differences(ddpsim, changed, p)[0]:
            missed.append(str(changed))
    steady = p["steps"][-1]
    sent = next(o for o in steady["ops"] if o.get("root"))
    optimizer = next(o for o in steady["ops"] if o["op"] == "optimizer")
    for operation, key, value in (
        (sent, "root", 0),
        (sent, "bytes", 4),
        (sent, "tensors", [steady["ops"][-2]["tensors"][0]]),
        (optimizer, "duration_ps", 2 * optimizer["duration_ps"]),
        (steady["ops"][-1], "waits_for", steady["ops"][-1]["waits_for"][1:]),
    ):
        before = operation[key]
        operation[key] = value
        if not differences(ddpsim, c, p)[0]:
            missed.append(f"{operation['op']}: {key}")
        operation[key] = before
    if differences(ddpsim, c, p)[0]:
        missed.append("what was not changed is told to differ")
    for m in missed:
        print("not noticed:", m)
    print("self-test:", "failed" if missed else "ok")
    return 1 if missed else 0


def main():
    ddpsim = sys.argv[1]
    if "--self-test" in sys.argv:
        return self_test(ddpsim)
    bad = total = operations = 0
    for c in configurations():
        found, compared = differences(ddpsim, c)
        total += 1
        operations += compared
        bad += bool(found)
        if found:
            print(c, "\n  " + "\n  ".join(found))
    print(f"{total} configurations, {operations} operations; {bad} differ")
    return 1 if bad or not total else 0


if __name__ == "__main__":
    sys.exit(main())
