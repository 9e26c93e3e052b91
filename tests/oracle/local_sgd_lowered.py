#!/usr/bin/env python3
"""Is what ddpsim lowers for local SGD and DiLoCo what their sources say?

  local_sgd_lowered.py DDPSIM              every scenario; exit 1 if one differs
  local_sgd_lowered.py DDPSIM --self-test  changes of Programs are noticed

`played` says, from PyTorch's model averaging and torchft's DiLoCo (one fragment, weights of the
round before on the device) and from no line of the simulator, what a rank does in a round: copies
and updates with bytes read and written, collectives, what the host waits for. What PyTorch 1.13 was
seen to send is compared in ddp_options_lowered.py.
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lowered import Planted, first_difference, judge, shown  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def scenarios():
    for workload, cluster in (("resnet50", "hgx-h100"), ("cnn-cpu", "testbed-torch")):
        for outer in ("none", "nesterov"):
            for steps, keeps in ((1, False), (3, True)):
                yield workload, cluster, outer, steps, keeps
    yield "gpt2-small", "hgx-h100", "nesterov", 10, False
    yield "bert-base", "dgx-a100", "none", 5, False


def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def played(w, gpu, outer, steps, keeps):
    sizes = [4 * count(t["shape"]) for t in w["tensors"]]
    whole = sum(sizes)
    out = []
    for _ in range(steps):
        if keeps:
            out.append(["zero", whole])
        out += [["forward"], ["backward"], ["update"]]
    if outer == "none":
        out += [["flatten", 2 * whole], ["divide", 2 * whole]]
        if gpu:
            out.append(["host waits", "device"])
        out.append(["all_reduce", whole])
        out.append(["compute waits"] if gpu else ["host waits", "parameters"])
        return out
    out.append(["pseudo", 3 * whole])  # two read, one written
    for s in sizes:
        out.append(["all_reduce", s])
        if gpu:
            out.append(["divide one", 2 * s])
    out.append(["host waits", "outer"])
    out.append(["restore", 2 * whole + 2 * whole])  # a clone, and a copy
    # buf *= m: 8 of 4 bytes; buf += g: 12; g + m buf: 12; p += : 12
    out.append(["outer update", (8 + 12 + 12 + 12) * whole // 4])
    out.append(["keep", 2 * whole + 2 * whole + 3 * whole])  # a clone, a copy, lerp_
    return out


def program(ddpsim, workload, cluster, outer, steps, keeps):
    asked = [ddpsim, "show", "program", "--format", "json", "--workload", workload]
    asked += ["--cluster", cluster, "--plan", "diloco" if outer == "nesterov" else "local_sgd"]
    asked += ["--set", f"accumulation_steps={steps}"]
    asked += ["--set", f"set_to_none={json.dumps(not keeps)}"]
    return shown(asked, f"{workload} {outer}")


COPIES = {
    "inner_zero_grad": "zero",
    "flatten/parameters": "flatten",
    "divide/parameters": "divide",
    "pseudo_gradients": "pseudo",
    "restore_parameters": "restore",
    "outer_optimizer": "outer update",
    "keep_parameters": "keep",
}
WAITS = {"before_averaging": "device", "parameters": "parameters", "outer": "outer"}


def lowered(step):
    out, ops, awaited = [], {}, set()
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        ops[o["op"]] = o
        if o["does"] == "launch" or name.startswith("accumulate/"):
            continue
        if name in COPIES:
            out.append([COPIES[name], o["traffic_bytes"]])
        elif name.startswith("outer_divide/"):
            out.append(["divide one", o["traffic_bytes"]])
            if o["op"].replace("outer_divide/", "outer_allreduce/") not in o["waits_for"]:
                out.append(["divided before it was reduced"])
        elif o["does"] == "communicate":
            out.append([o["operation"], o["bytes"]])
        elif o["does"] == "wait":
            out.append(["host waits", WAITS[name.removeprefix("wait/")]])
            awaited = set(o["waits_for"])
            if name == "wait/outer":  # on one stream, the last is behind the others
                last = [n for n in ops if n.startswith("outer_")]
                if last[-1] not in awaited:
                    out.append(["did not wait for the last"])
        elif name == "parameters_averaged":
            sent = "allreduce/parameters" in o["waits_for"]
            out.append(["compute waits"] if sent and o["lane"] == "compute" else [name])
        elif name == "fwd":
            out.append(["forward"])
        elif name.startswith("bwd/"):
            if not out or out[-1] != ["backward"]:
                out.append(["backward"])
        elif name == "inner_optimizer":
            out.append(["update"])
        else:
            out.append([name])
    return out


def differences(ddpsim, s, p=None):
    workload, cluster, outer, steps, keeps = s
    w = json.loads((ROOT / "workloads" / f"{workload}.json").read_text())
    p = p or program(ddpsim, *s)
    mine = lowered(p["steps"][-1])
    theirs = played(w, w["device"]["kind"] == "gpu", outer, steps, keeps)
    return first_difference(mine, theirs), len(theirs)


def self_test(ddpsim):
    def changes(o):
        key = "bytes" if o["does"] == "communicate" else "traffic_bytes"
        return [(key, o[key] + 4, f"other {key}")] if o.get(key) else []

    planted = Planted()
    for s in list(scenarios())[1::2]:
        p = program(ddpsim, *s)

        def ask(s=s, p=p):
            return differences(ddpsim, s, p)[0]

        planted.operations(
            p["steps"][-1]["ops"],
            ask,
            lambda o: o["does"] == "launch" or "accumulate/" in o["op"] or "bwd/" in o["op"],
            changes,
        )
    return planted.verdict()


def main():
    ddpsim = sys.argv[1]
    if "--self-test" in sys.argv:
        return self_test(ddpsim)
    return judge(ddpsim, scenarios(), differences, asked="rounds")


if __name__ == "__main__":
    sys.exit(main())
