#!/usr/bin/env python3
"""Is what ddpsim lowers for Megatron-LM what its source says (megatron.py)?

  megatron_lowered.py DDPSIM              every case; exit 1 if one differs
  megatron_lowered.py DDPSIM --self-test  changes of what the oracle says are noticed

Compared are the first step and the steady one: kernels of the training system with the bytes that
they read and write, collectives with bytes, type and parameters, what computation and the host wait
for, the order of all of them, and the bytes that are there between steps.
"""
import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import megatron

# Made up so that rules show: sizes that no multiple of 64 or 128 divides, a layer with parameters
# in two buckets, an embedding whose weight the head shares, layers without parameters.
LAYERS: list = [
    ("embed", "embedding", [("embed.weight", [701, 60])]),
    ("norm0", "layer_norm", [("norm0.weight", [60]), ("norm0.bias", [60])]),
    ("up0", "linear", [("up0.weight", [60, 240]), ("up0.bias", [240])]),
    ("act0", "relu", []),
    ("down0", "linear", [("down0.weight", [240, 60]), ("down0.bias", [60])]),
    ("norm1", "layer_norm", [("norm1.weight", [60]), ("norm1.bias", [60])]),
    ("up1", "linear", [("up1.weight", [60, 241]), ("up1.bias", [241])]),
    ("act1", "relu", []),
    ("down1", "linear", [("down1.weight", [241, 60]), ("down1.bias", [60])]),
    ("head", "linear", [("head.weight", [60, 701])]),
]

CASES = [
    (2, {}),
    (1, {"use_distributed_optimizer": True}),
    (4, {"use_distributed_optimizer": True}),
    (8, {"overlap_grad_reduce": True, "bucket_size": 20000}),
    (8, {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "bucket_size": 20000}),
    (3, {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "num_buckets": 5}),
    (8, {"use_distributed_optimizer": True, "overlap_grad_reduce": True}),
    (8, {"dtype": "bfloat16", "clip": True}),
    (8, {"dtype": "bfloat16", "use_distributed_optimizer": True, "clip": True}),
    (
        6,
        {
            "dtype": "bfloat16",
            "use_distributed_optimizer": True,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
            "bucket_size": 10000,
            "micro_batches": 3,
            "average_in_collective": True,
            "check_for_nan_in_grad": False,
            "clip": True,
        },
    ),
    (
        4,
        {
            "dtype": "bfloat16",
            "use_distributed_optimizer": True,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
            "bucket_size": 1,
            "grad_reduce_in_fp32": False,
            "pad_buckets_for_high_nccl_busbw": True,
        },
    ),
    (
        5,
        {
            "dtype": "float16",
            "use_distributed_optimizer": True,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
            "bucket_size": 30000,
            "gradient_accumulation_fusion": False,
            "micro_batches": 2,
            "clip": True,
        },
    ),
    (2, {"dtype": "float16", "overlap_grad_reduce": True, "num_buckets": 3}),
]


def tensors():
    return [t for _, _, own in LAYERS for t in own]


def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def arrival():
    """From the last layer to the first, a bias before its weight."""
    names = [n for n, _ in tensors()]
    return [names.index(n) for _, _, own in reversed(LAYERS) for n, _ in reversed(own)]


def workload(o):
    index = {n: i for i, (n, _) in enumerate(tensors())}
    cost = {"flops_per_sample": 1e9, "bytes_per_sample": 1e6, "bytes_fixed": 0, "kernels": 1}
    layers = []
    for name, kind, own in LAYERS:
        layer = {"name": name, "class": "memory", "tensors": [index[n] for n, _ in own][::-1]}
        layer["forward"], layer["backward"] = dict(cost), dict(cost)
        layer["op"] = {"kind": kind}
        if kind == "linear":
            inputs, outputs = own[0][1]
            layer["op"] = {"kind": kind, "rows": 32, "inputs": inputs, "outputs": outputs}
            layer["forward"]["flops_per_sample"] = 64 * inputs * outputs
            layer["backward"]["flops_per_sample"] = 128 * inputs * outputs
        layers.append(layer)
    document = {
        "schema": "ddpsim.workload/1",
        "name": "made-up",
        "model": "made up",
        "basis": "described",
        "batch": 2,
        "precision": "fp32",
        "device": {"kind": "gpu", "name": "any"},
        "source": "made by tests/oracle/megatron_lowered.py",
        "optimizer": {
            "name": "adam",
            "momentum": False,
            "weight_decay": False,
            "foreach": False,
            "fused": True,
        },
        "tensors": [{"name": n, "shape": s, "dtype": "float32"} for n, s in tensors()],
        "buffers": [],
        "arrival": arrival(),
        "layers": layers,
        "loop": {"clip_grad_norm": o["clip"]},
    }
    if o["dtype"] != "float32":
        document["precision"] = {"bfloat16": "bf16", "float16": "fp16"}[o["dtype"]]
        document["casting"] = "master_weights"
    return document


KNOBS = [k for k in megatron.options() if k not in ("dtype", "micro_batches", "clip")]


def program(ddpsim, ranks, o, given):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.json"
        file.write_text(json.dumps(workload(o)))
        asked = [ddpsim, "show", "program", "--format", "json", "--workload", str(file)]
        asked += ["--cluster", "hgx-h100", "--ranks", str(ranks), "--plan", "megatron"]
        asked += ["--set", f"accumulation_steps={o['micro_batches']}"]
        for knob in KNOBS:
            if knob in given:
                asked += ["--set", f"{knob}={json.dumps(given[knob])}"]
        out = subprocess.run(asked, capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{ranks} {given}: {out.stderr}")
    return json.loads(out.stdout)


def oracle(ranks, o, first):
    names = [n for n, _ in tensors()]
    index = {n: i for i, n in enumerate(names)}
    modules = [[index[n] for n, _ in own] for _, _, own in LAYERS]
    fused = [False] * len(names)
    for _, kind, own in LAYERS:
        if kind == "linear":
            fused[index[own[0][0]]] = True
    numels = [count(s) for _, s in tensors()]
    return megatron.Step(names, numels, fused, modules, arrival(), ranks, o, first)


KERNELS = {
    "norm": "norm",
    "grad_scale": "scale",
    "accumulate": "accumulate",
    "zero_grad": "zero_grad",
    "copy_gradients": "copy_gradients",
    "unscale": "unscale",
    "grad_norm": "grad_norm",
    "clip_grad_norm": "clip",
    "copy_weights": "copy_weights",
}
WAITS = {"found_inf": "found_inf", "updated": "updated"}


def lowered(step):
    """The Program's operations as the oracle's events; layers of forward as one."""
    index = {n: i for i, (n, _) in enumerate(tensors())}
    lane = {op["op"]: op["lane"] for op in step["ops"]}
    out, collectives, last = [], {}, None
    for op in step["ops"]:
        name = op["op"].split("/", 1)[1] if op["op"].startswith("micro") else op["op"]
        if op["does"] == "launch":
            continue
        if op["lane"] == "compute":
            waits = sorted(collectives[w] for w in op["waits_for"] if lane[w] == "comm")
            out.extend(["stream waits", number] for number in waits)
        what, _, of = name.partition("/")
        if op["does"] == "communicate":
            said = {"reduce_scatter": "reduce_scatter", "all_gather": "all_gather"}
            event = ["collective", said.get(op["operation"], "all_reduce"), op["bytes"]]
            event += [op["dtype"], sorted(index[t] for t in op["tensors"])]
            # It waits for all that computation was given before.
            if [w for w in op["waits_for"] if lane[w] == "compute"] != [last]:
                event.append(f"does not wait for {last}")
            out.append(event)
            collectives[op["op"]] = len(collectives)
        elif op["does"] == "wait":
            of = of.replace("norm.", "norm ")
            out.append(["host waits", WAITS.get(of, of)])
            if op["lane"] != "host":
                out[-1].append(op["lane"])
        elif what == "fwd":
            out.append(["forward"])
        elif what == "bwd":
            out.append(["backward", "tail" if of == "tail" else index[of]])
        elif what == "optimizer":
            out.append(["kernel", "optimizer", op["bytes"] // 4, None])
        else:
            number = of.replace("bucket.", "")
            number = int(number) if number.isdigit() else index.get(number)
            out.append(["kernel", KERNELS[what], number, op["traffic_bytes"]])
        if op["lane"] == "compute":
            last = op["op"]
    return out


def played(step, lowered_events):
    """The oracle's events in the Program's terms: layers of forward that nothing parts are one, a
    gradient that arrives with another has no computation of its own, the last wait is of the
    step that follows, what computation waits for stands before what computes next."""
    has = {e[1] for e in lowered_events if e[0] == "backward"}
    out, waits = [], []
    for e in step.play():
        if e[0] == "forward":
            if not waits and out and out[-1] == ["forward"]:
                continue
            e = ["forward"]
        if e[0] == "backward" and e[1] not in has:
            continue
        if e[0] == "stream waits":
            waits.append(e)
            continue
        if e[0] in ("forward", "backward", "kernel"):
            out.extend(sorted(waits))
            waits = []
        out.append(e)
    return out


def differences(ddpsim, ranks, given, change=None):
    o = megatron.options(**given)
    p = program(ddpsim, ranks, o, given)
    found, compared = [], 0
    for what, listed in (("first", p["steps"][0]), ("steady", p["steps"][-1])):
        mine = lowered(listed)
        theirs = played(oracle(ranks, o, what == "first"), mine)
        if change:
            theirs = change(copy.deepcopy(theirs))
        compared += len(theirs)
        for k in range(max(len(mine), len(theirs))):
            a = mine[k] if k < len(mine) else None
            b = theirs[k] if k < len(theirs) else None
            if a != b:
                found.append(f"{what} {k}: ddpsim {a}, oracle {b}")
                break
    return found, compared


def self_test(ddpsim):
    missed = []
    ranks, given = CASES[9]

    def noticed(name, change):
        if not differences(ddpsim, ranks, given, change)[0]:
            missed.append(name)

    steady = played(oracle(ranks, megatron.options(**given), False), lowered_of(ddpsim))
    for k, e in enumerate(steady):

        def without(events, k=k, e=e):
            return events[:k] + events[k + 1 :] if events[k : k + 1] == [e] else events

        noticed(f"without {e}", without)
        if isinstance(e[-1], int) or e[0] == "collective":

            def other(events, k=k, e=e):
                if events[k : k + 1] == [e]:
                    events[k][2 if e[0] == "collective" else -1] += 1
                return events

            noticed(f"other bytes of {e}", other)
    for m in missed:
        print("not noticed:", m)
    print(f"self-test: {2 * len(steady)} changes:", "failed" if missed else "ok")
    return 1 if missed else 0


def lowered_of(ddpsim):
    ranks, given = CASES[9]
    return lowered(program(ddpsim, ranks, megatron.options(**given), given)["steps"][-1])


def main():
    ddpsim = sys.argv[1]
    if "--self-test" in sys.argv:
        return self_test(ddpsim)
    bad = events = 0
    for ranks, given in CASES:
        found, compared = differences(ddpsim, ranks, given)
        events += compared
        bad += bool(found)
        if found:
            print(ranks, given, "\n  " + "\n  ".join(found))
    print(f"{len(CASES)} cases, {events} events; {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
