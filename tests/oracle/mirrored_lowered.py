#!/usr/bin/env python3
"""Is what ddpsim lowers for TensorFlow's MirroredStrategy and MultiWorkerMirroredStrategy what
TensorFlow's source says?

  mirrored_lowered.py DDPSIM              every scenario; exit 1 if one differs
  mirrored_lowered.py DDPSIM --self-test  changes of Programs are noticed

`played` says, from the source (tensorflow/python/distribute/cross_device_ops.py and
cross_device_utils.py, single files of 2.x) and from no line of the simulator, what a replica does
between the first gradient and the optimizer: which gradients go into which pack, when a pack is
reduced, by what, and what is copied before and after. Nobody has recorded it: TensorFlow is not
at hand.
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lowered import Planted, first_difference, judge, other_bytes, shown  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
MIB = 1 << 20


def scenarios():
    one, two = "mirrored", "multi_worker_mirrored"
    yield {"plan": one, "workload": "resnet50", "ranks": 8}
    yield {"plan": one, "workload": "gpt2-small", "ranks": 4, "set": ["reduce_op=mean"]}
    yield {"plan": one, "workload": "vgg16", "ranks": 8, "set": ["num_packs=1",
           "cross_device_ops=nccl_all_reduce"]}
    yield {"plan": one, "workload": "resnet50", "ranks": 4, "set": ["num_packs=3",
           "cross_device_ops=nccl_all_reduce", "reduce_op=mean"]}
    yield {"plan": one, "workload": "resnet50", "ranks": 8, "set": ["num_packs=0",
           "cross_device_ops=nccl_all_reduce"]}
    for packs in (0, 1, 10):
        yield {"plan": one, "workload": "mlp784-50-10" if packs == 10 else "vgg16", "ranks": 8,
               "set": [f"num_packs={packs}", "cross_device_ops=hierarchical_copy_all_reduce"]}
    yield {"plan": one, "workload": "resnet50", "ranks": 2, "set": [
           "cross_device_ops=hierarchical_copy_all_reduce"]}
    yield {"plan": one, "workload": "vgg16", "ranks": 4, "set": [
           "cross_device_ops=reduction_to_one_device", "reduce_op=mean"]}
    yield {"plan": one, "workload": "bert-base", "ranks": 8, "set": [f"bytes_per_pack={50 * MIB}"]}
    yield {"plan": one, "workload": "vgg16", "ranks": 8, "set": ["eager=true", "reduce_op=mean"]}
    yield {"plan": two, "workload": "resnet50", "ranks": 16}
    yield {"plan": two, "workload": "resnet50", "ranks": 16, "set": ["implementation=NCCL"]}
    yield {"plan": two, "workload": "gpt2-small", "ranks": 16, "set": ["implementation=NCCL",
           f"bytes_per_pack={25 * MIB}"]}
    yield {"plan": two, "workload": "vgg16", "ranks": 16, "set": ["implementation=RING",
           f"bytes_per_pack={10 * MIB}", "reduce_op=mean"]}
    yield {"plan": two, "workload": "resnet50", "ranks": 16, "set": ["implementation=NCCL",
           "bytes_per_pack=1"]}
    yield {"plan": two, "workload": "resnet50", "ranks": 16, "set": ["implementation=NCCL",
           "eager=true"]}
    yield {"plan": two, "workload": "mlp784-50-10", "ranks": 16, "set": ["accumulation_steps=3",
           "bytes_per_pack=1000"]}
    yield {"plan": two, "workload": "vgg16", "ranks": 1, "set": ["bytes_per_pack=1000"]}


def size(t):
    n = SIZES[t["dtype"]]
    for extent in t["shape"]:
        n *= extent
    return n


def group_by_size(order, nbytes, limit):
    """A new pack where the last one is already larger than the limit."""
    if limit == 0:
        return [order]
    packs = []
    held = 0
    for t in order:
        if not packs or held > limit:
            packs.append([])
            held = 0
        packs[-1].append(t)
        held += nbytes[t]
    return packs


def played(w, s):
    """(what happens in backward and after it, backend)."""
    said = dict(x.split("=", 1) for x in s.get("set", []))
    nbytes = [size(t) for t in w["tensors"]]
    names = [t["name"] for t in w["tensors"]]
    order = w["arrival"]  # of gradients, as the model makes them
    trained = sorted(order)
    ops = said.get("cross_device_ops", "collective_all_reduce")
    mean = said.get("reduce_op", "sum") == "mean"
    ranks = s["ranks"]
    default = "NCCL" if s["plan"] == "mirrored" else "AUTO"
    nccl = said.get("implementation", default) == "NCCL"  # AUTO: no hint, and TensorFlow's ring
    out = []
    micro_steps = int(said.get("accumulation_steps", 1))
    for _ in range(micro_steps - 1):
        out += [["bwd", names[t]] for t in order]

    def average(tensors):
        if mean:
            out.extend(["divide", names[t], nbytes[t]] for t in tensors)

    def after_backward():
        out.extend(["bwd", names[t]] for t in order)

    if ops == "collective_all_reduce" and said.get("eager") == "true":
        after_backward()  # the tape is done before anything is reduced
        for t in reversed(trained):
            out.append(["all_reduce", [names[t]], nbytes[t]])
            out.append(["wait"])
        average(trained)
    elif ops == "collective_all_reduce":
        packs = group_by_size(trained[::-1], nbytes, int(said.get("bytes_per_pack", 0)))
        there, left, reduced = set(), list(range(len(packs))), []
        for t in order:
            out.append(["bwd", names[t]])
            there.add(t)
            ready = [k for k in left if there.issuperset(packs[k])]
            for k in ready:
                # NCCL's are ordered by a token; of the ring each runs when its pack is there.
                if nccl and k != len(reduced):
                    break
                total = sum(nbytes[x] for x in packs[k])
                if len(packs[k]) > 1:
                    out.append(["concat", [names[x] for x in packs[k]], total])
                out.append(["all_reduce", [names[x] for x in packs[k]], total])
                reduced.append(k)
                left.remove(k)
        for k in reduced:
            out.append(["wait"])
            if len(packs[k]) > 1:
                out.append(["split", [names[x] for x in packs[k]],
                            sum(nbytes[x] for x in packs[k])])
        average(trained)
    elif ops == "reduction_to_one_device":
        for t in order:
            out.append(["bwd", names[t]])
            out.append(["reduce", [names[t]], nbytes[t], 0])
            average([t])  # on the device that has the sum, before it is sent
            out.append(["broadcast", [names[t]], nbytes[t], 0])
    else:
        after_backward()
        n = int(said.get("num_packs", 1))
        total = sum(nbytes[t] for t in trained)
        element = SIZES[w["tensors"][0]["dtype"]]
        if n > 0:  # ConcatAndSplitPacker
            each = total // element // n
            sizes = [each * element] * (n - 1) + [total - each * element * (n - 1)]
            if len(trained) > 1:
                out.append(["concat", [names[t] for t in trained], total])
            if n > 1:
                out.append(["split", [names[t] for t in trained], total])
            packs = [(None, b) for b in sizes]
        else:
            packs = [([names[t]], nbytes[t]) for t in trained]
        half = ranks // 2
        for k, (what, b) in enumerate(packs):
            if ops == "nccl_all_reduce":
                out.append(["all_reduce", what, b])
                continue
            main = k % ranks % half  # in its group of half the devices
            if half > 1:
                out.append(["reduce", what, b, main])
            # Between the two mains; the one whose turn it is has the sum, and sends it back.
            out.append(["reduce", what, b, k % ranks // half])
            out.append(["broadcast", what, b, k % ranks // half])
            if half > 1:
                out.append(["broadcast", what, b, main])
        if n > 1:
            out.append(["concat", [names[t] for t in trained], total])
        if n > 0 and len(trained) > 1:
            out.append(["split", [names[t] for t in trained], total])
        average(trained)
    out.append(["optimizer"])
    return out, "nccl" if nccl else "tcp"


def program(ddpsim, s):
    asked = [ddpsim, "show", "program", "--format", "json", "--workload", s["workload"]]
    asked += ["--cluster", "dgx1-v100" if s["ranks"] <= 8 else "hgx-h100", "--ranks",
              str(s["ranks"]), "--plan", s["plan"]]
    if s["ranks"] > 8:
        asked += ["--set", "cluster.hosts=2"]
    for setting in s.get("set", []):
        asked += ["--set", setting]
    return shown(asked, s)


def lowered(step, packs_are_parts):
    out = []
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        word = name.split("/")[0]
        if o["does"] == "launch" or o["phase"] == "forward" or name == "bwd/tail":
            continue
        if o["does"] == "communicate":
            what = None if packs_are_parts else o["tensors"]
            made = [o["operation"], what, o["bytes"]]
            if o["operation"] != "all_reduce":
                made.append(o.get("root", 0))
            out.append(made)
            if o["lane"] == "compute":
                out.append(["on the stream that computes"])
        elif word in ("concat", "split"):
            out.append([word, o["tensors"], o["bytes"]])
            if o["traffic_bytes"] != 2 * o["bytes"]:
                out.append(["traffic"])
        elif word == "divide":
            out.append([word, name.removeprefix("divide/packed."), o["bytes"]])
        elif word == "bwd":
            out.append([word, name.split("/", 1)[1]])
        elif word == "wait":
            out.append([word])
        elif word == "accumulate":
            continue
        else:
            out.append([word])
    return out


def differences(ddpsim, s, p=None):
    w = json.loads((ROOT / "workloads" / f"{s['workload']}.json").read_text())
    p = p or program(ddpsim, s)
    theirs, backend = played(w, s)
    parts = any(x.startswith("num_packs") and not x.endswith("=0") for x in s.get("set", []))
    parts = parts or s.get("set") == ["cross_device_ops=hierarchical_copy_all_reduce"]
    # A layer's gradients may be one operation of backward: named by its last.
    mine = lowered(p["steps"][-1], parts)
    shown_names = {e[1] for e in mine if e[0] == "bwd"}
    theirs = [e for e in theirs if e[0] != "bwd" or e[1] in shown_names]
    found = []
    if p["backend"] != backend:
        found.append(f"backend {p['backend']}, oracle {backend}")
    return found + first_difference(mine, theirs, 200), len(theirs)


def self_test(ddpsim):
    planted = Planted()
    for s in ({"plan": "multi_worker_mirrored", "workload": "resnet50", "ranks": 16,
               "set": ["implementation=NCCL", "bytes_per_pack=10000000", "reduce_op=mean"]},
              {"plan": "mirrored", "workload": "vgg16", "ranks": 8, "set": [
                  "num_packs=3", "cross_device_ops=hierarchical_copy_all_reduce"]}):
        p = program(ddpsim, s)

        def ask(s=s, p=p):
            return differences(ddpsim, s, p)[0]

        planted.unchanged(ask())
        planted.operations(
            p["steps"][-1]["ops"],
            ask,
            lambda o: (
                o["does"] == "launch" or o["phase"] == "forward" or o["op"].startswith("bwd/")
            ),
            other_bytes,
        )
    return planted.verdict()


def main():
    ddpsim = sys.argv[1]
    # TensorFlow's own example (cross_device_utils_test.py): sizes and the packs that they make.
    if group_by_size([0, 1, 2, 3], [128, 32, 800, 4], 200) != [[0, 1, 2], [3]]:
        raise SystemExit("group_by_size is not TensorFlow's")
    if "--self-test" in sys.argv:
        return self_test(ddpsim)
    return judge(ddpsim, scenarios(), differences)


if __name__ == "__main__":
    sys.exit(main())
