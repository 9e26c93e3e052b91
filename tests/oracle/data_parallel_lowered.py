#!/usr/bin/env python3
"""Is what ddpsim lowers for torch.nn.DataParallel what its source says?

  data_parallel_lowered.py DDPSIM              every scenario; exit 1 if one differs
  data_parallel_lowered.py DDPSIM --self-test  changes of Programs are noticed

`played` below says, from the source and from no line of the simulator, what the master does in a
step: flat copies, broadcasts, forward, gathering, loss, backward, sums, accumulation, the
optimizer, in the host's order and with bytes; and how much longer its host and its loss take than
those of one replica. Nobody has recorded nn.DataParallel: it needs GPUs.
"""
import functools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lowered import Planted, first_difference, judge, other_bytes, shown  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TEN = 10 * 1024 * 1024
SCALAR_TYPES = ("int64", "float16", "float32")  # in the order in which a std::map has them
SIZES = {"float32": 4, "float16": 2, "int64": 8}


def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def scenarios():
    for ranks in (1, 2, 3, 4, 8):
        yield {"workload": "resnet50", "ranks": ranks}
    yield {"workload": "gpt2-small", "ranks": 4}
    yield {"workload": "bert-base", "ranks": 8, "set": ["workload.batch=8"]}
    yield {"workload": "vgg16", "ranks": 4, "set": ["set_to_none=false"]}
    yield {"workload": "mlp784-50-10", "ranks": 8, "set": ["accumulation_steps=3"]}
    yield {"workload": "resnet50", "ranks": 2, "set": ["workload.precision=fp16"]}
    yield {"workload": "gpt2-small", "ranks": 2, "set": ["workload.precision=bf16"]}
    both = ["accumulation_steps=2", "set_to_none=false"]
    yield {"workload": "densenet121", "ranks": 8, "set": both}


def groups(tensors):
    """take_tensors: of each type, closed by the tensor that reaches ten MiB."""
    made, running = [], {}
    for i, (shape, dtype) in enumerate(tensors):
        group = running.setdefault(dtype, [])
        group.append(i)
        if sum(count(tensors[j][0]) * SIZES[dtype] for j in group) >= TEN:
            made.append(group)
            running[dtype] = []
    return made + [running[d] for d in SCALAR_TYPES if running.get(d)]


def played(w, s):
    """Of a steady step. Durations as multiples: ["fwd", host], ["loss", device]."""
    said = dict(x.split("=", 1) for x in s.get("set", []))
    g, micro_steps = s["ranks"], int(said.get("accumulation_steps", 1))
    keeps = said.get("set_to_none") == "false"
    batch = int(said.get("workload.batch", w["batch"]))
    weights = [(t["shape"], t["dtype"]) for t in w["tensors"]]
    buffers = [(b["shape"], b["dtype"]) for b in w["buffers"]]
    halves = said.get("workload.precision", w["precision"]) in ("fp16", "bf16")
    length = w.get("sequence", 0)

    def of(list_of_bytes):
        """A number, or [a constant, for each token]."""
        value = list_of_bytes[1 if halves else 0]
        return value if not isinstance(value, list) else value[0] + value[1] * length

    losses = []
    for layer in reversed(w["layers"]):
        if not layer["op"]["kind"].startswith("cross_entropy"):
            break
        losses.append(layer)
    outputs = 0
    for layer in losses:  # what they read is as large as what they make, in the replicas' type
        single = halves and layer["op"]["kind"].endswith("_single")
        outputs += of(layer["makes"]) / (2 if single else 1)
    outputs = int(outputs * batch)
    out = []

    def coalesced(what, how, list_of_groups, tensors):
        for group in list_of_groups:
            nbytes = sum(count(tensors[i][0]) * SIZES[tensors[i][1]] for i in group)
            if len(group) > 1:
                out.append(["flatten", what, nbytes])
            out.append([how, what, nbytes])

    if keeps:
        out.append(["zero_grad"])
    for micro in range(micro_steps):
        if g > 1:
            out.append(["scatter", g])
            coalesced("weights", "broadcast", groups(weights), weights)
            coalesced("replica_buffers", "broadcast", groups(buffers), buffers)
        out.append(["fwd"])
        if losses:
            if g > 1:
                out.append(["gather", (g - 1) * outputs])
            out.append(["loss", g])
            out.append(["loss_backward", g])
            if g > 1:
                out.append(["scatter_gradient", (g - 1) * outputs])
        out.append(["bwd", len(w["arrival"])])
        accumulates = micro > 0 or keeps
        if g > 1:
            coalesced("gradients", "reduce", groups(weights), weights)
        if accumulates:
            out.append(["accumulate", len(weights)])
    if said.get("workload.precision") == "fp16":  # a GradScaler, whose flag the host waits for
        out += [["unscale"], ["wait"]]
    out.append(["optimizer"])
    return out


def program(ddpsim, s):
    asked = [ddpsim, "show", "program", "--format", "json", "--workload", s["workload"]]
    asked += ["--cluster", "hgx-h100", "--ranks", str(s["ranks"]), "--plan", "data_parallel"]
    for setting in s.get("set", []):
        asked += ["--set", setting]
    return shown(asked, s)


def lowered(step, arrival):
    out = []
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        word, _, of = name.partition("/")
        if o["does"] == "launch":
            if o["kernels"] < 1 and "broadcast/" in of and "zero" in of:
                out.append(["a collective without launches"])
            continue
        if o["lane"] not in ("compute", "host"):
            out.append(["elsewhere", name])
        what = of.split(".")[0]
        if word == "flatten" and o["traffic_bytes"] == 2 * o["bytes"]:
            out.append([word, what, o["bytes"]])
        elif word in ("broadcast", "reduce") and o["operation"] == word and not o.get("root"):
            out.append([word, what, o["bytes"]])
        elif name == "scatter/inputs":
            out.append(["scatter", o["kernels"]])
        elif name == "gather/outputs" and o["operation"] == "reduce":
            out.append(["gather", o["bytes"]])
        elif name == "scatter/output_gradient" and o["operation"] == "broadcast":
            out.append(["scatter_gradient", o["bytes"]])
        elif word == "bwd":
            if not out or out[-1][0] != "bwd":
                out.append(["bwd", arrival])  # gradients of one layer are one operation
        elif word == "accumulate":
            if out[-1][0] != "accumulate":
                out.append(["accumulate", 0])
                # Where there is one replica, autograd accumulates as it goes.
            out[-1][1] += 1
        elif word in ("loss", "loss_backward"):
            out.append([word, o["duration_ps"]])
        else:
            out.append([word])
    return out


@functools.cache
def times(ddpsim, workload, sets):
    """Of one replica by itself the device of loss; of two the host from forward to the launch of
    what follows, and how much more of it there is for three: one forward, and one launch."""
    s = {"workload": workload, "set": sets}
    one, two, three = (program(ddpsim, {**s, "ranks": n})["steps"][-1] for n in (1, 2, 3))
    loss = [o for o in one["ops"] if o["op"].split("/")[-1] in ("loss", "loss_backward")]
    two, three = host_of_forward(two), host_of_forward(three)
    return {o["op"].split("/")[-1]: o["duration_ps"] for o in loss}, two, three - two


def host_of_forward(step):
    """The host's time between what is before the first forward and what follows it."""
    total, inside = 0, False
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        if o["does"] != "launch":
            if inside and name != "fwd":
                return total
            inside = inside or name == "fwd"
            continue
        if o["op"].endswith("launch/fwd") or o["op"].endswith("/fwd") or inside:
            total += o["duration_ps"]
    return total


def differences(ddpsim, s, p=None):
    w = json.loads((ROOT / "workloads" / f"{s['workload']}.json").read_text())
    p = p or program(ddpsim, s)
    one, host, more = times(ddpsim, s["workload"], tuple(s.get("set", ())))
    step = p["steps"][-1]
    mine = lowered(step, len(w["arrival"]))
    for event in mine:
        if event[0] in one:
            event[1] = round(event[1] / one[event[0]])
    theirs = played(w, s)
    if s["ranks"] == 1 and any(e[0] == "accumulate" for e in theirs):
        return ["one rank accumulates gradient by gradient: not compared"], 0
    found = first_difference(mine, theirs)
    expected = host + (s["ranks"] - 2) * more
    if s["ranks"] > 1 and abs(host_of_forward(step) - expected) > 1e-6 * expected:
        found.append(f"host of forward: {host_of_forward(step)}, expected {expected}, of {host}")
    return found, len(theirs)


def self_test(ddpsim):
    planted = Planted()
    for s in ({"workload": "resnet50", "ranks": 4}, {"workload": "gpt2-small", "ranks": 2}):
        p = program(ddpsim, s)

        def ask(s=s, p=p):
            return differences(ddpsim, s, p)[0]

        planted.unchanged(ask())
        planted.operations(
            p["steps"][-1]["ops"],
            ask,
            lambda o: o["does"] == "launch" or o["op"].startswith("bwd/"),
            other_bytes,
        )
    return planted.verdict()


def main():
    ddpsim = sys.argv[1]
    if "--self-test" in sys.argv:
        return self_test(ddpsim)
    return judge(ddpsim, scenarios(), differences)


if __name__ == "__main__":
    sys.exit(main())
