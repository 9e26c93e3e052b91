#!/usr/bin/env python3
"""Are the collectives that ddpsim lowers for ZeRO the ones that DeepSpeed 0.14.5 issued?

  zero_lowered.py DDPSIM            every recording; exit 1 if one differs beyond what is listed
  zero_lowered.py DDPSIM --self-test  changes in a recording are noticed
  zero_lowered.py --reduce FOLDER   writes the data of this test from recordings

A workload is made of each recording: its parameters in order of registration, its modules in order
of forward, its order of arrival; times are made up. Compared are the first step and the last one:
each collective's operation, bytes, type, tensors (a slice as one), communicator, stream, the order
of all of them, and the module whose gradients had last arrived when it was issued; of the last step
also what is divided and copied, and how often the host waits for the device.
"""
import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from recordings import DATA as KEPT, load, write

DATA = KEPT / "zero/deepspeed-0.14.5.json.gz"

# What ddpsim cannot be asked.
REFUSED = {
    "predivide": "gradient_predivide_factor scales gradients in two steps",
}


# ---- recordings
def resolved(steps, k):
    return steps[steps[k]["same_as"]] if "same_as" in steps[k] else steps[k]


def micro_batches(phase):
    """[events of micro-batch 0, ...]"""
    out = [[]]
    for e in phase:
        if e[:2] == ["m", "micro_batch"]:
            out.extend([] for _ in range(e[2] + 1 - len(out)))
        else:
            out[-1].append(e)
    return out


def work(phases):
    """Of a step: elements divided and copied on each stream before the optimizer, and how often the
    host waits for the device."""
    out = {}
    for phase, events in phases.items():
        for e in events:
            key = None
            if e[0] == "h" and e[1] == "device.synchronize":
                key, n = "device", 1
            elif e[0] == "l" and phase == "backward" and e[1] in ("copy", "div", "mul"):
                key, n = ("copy" if e[1] == "copy" else "average") + " " + e[4], e[2]
            if key:
                out[key] = out.get(key, 0) + n
    return out


def reduce_folder(folder):
    """Of each recording what is compared: modules, collectives, and the host's waits for the
    device."""
    out = []
    for path in sorted(Path(folder).glob("ds_*.json*")):
        d = load(path)
        first = micro_batches(d["steps"][0]["phases"]["forward"])[0]
        fetched = [e[2] for e in first if e[:2] == ["m", "fetch"]]
        owners = [e[1] for e in first if e[0] == "f"]
        steps, last = [], resolved(d["steps"], len(d["steps"]) - 1)["phases"]
        for k in (0, len(d["steps"]) - 1):
            phases = {p: micro_batches(e) for p, e in resolved(d["steps"], k)["phases"].items()}
            keys = ("op", "bytes", "dtype", "tensors", "queue", "comm", "after_grad")
            steps.append(
                [
                    {x: e[1][x] for x in keys if x in e[1]}
                    for m in range(len(phases["backward"]))
                    for phase in ("forward", "backward", "step")
                    for e in (phases[phase] + [[]] * m)[m]
                    if e[0] == "c"
                ]
            )
        out.append(
            {
                "file": path.name.split(".json")[0],
                "knobs": d["knobs"],
                "ranks": d["world_size"],
                "parameters": [
                    [p[0], shape] for p, shape in zip(d["parameters"], d["parameter_shapes"])
                ],
                "arrival": d["gradient_arrival_order"],
                "owners": owners,
                "modules": fetched,
                "steps": steps,
                "work": work(last),
            }
        )
    DATA.parent.mkdir(exist_ok=True)
    write(DATA, out)
    print(f"{len(out)} recordings, {DATA.stat().st_size} bytes")
    return 0


# ---- the question
def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def micro_steps(r):
    return r["knobs"].get("gradient_accumulation_steps", 1)


def workload(r):
    names = [p[0] for p in r["parameters"]]
    index = {n: i for i, n in enumerate(names)}
    at = {t: k for k, t in enumerate(r["arrival"])}
    modules = r["modules"] or r["owners"]
    cost = {"flops_per_sample": 1e9, "bytes_per_sample": 1e6, "bytes_fixed": 0, "kernels": 1}
    layers, taken, seen = [], set(), {}
    for name in modules:
        own = [i for n, i in index.items() if n.rsplit(".", 1)[0] == name and i not in taken]
        inner = any(m.startswith(name + ".") for m in modules)
        if name == "" or (not own and inner):
            continue
        taken.update(own)
        own.sort(key=at.get)
        layer = {"name": name, "class": "memory", "tensors": own}
        shapes = [r["parameters"][i][1] for i in own]
        if any(len(s) == 4 for s in shapes):
            layer["class"] = "conv"
        elif name.startswith("w"):  # wte, wpe
            layer["op"] = {"kind": "embedding" if name == "wte" else "position_embedding"}
        elif not own and name == "lm_head":  # it shares wte's
            outputs, inputs = r["parameters"][index["wte.weight"]][1]
            layer["op"] = {"kind": "linear", "rows": 32, "inputs": inputs, "outputs": outputs}
        elif not own:
            layer["op"] = {"kind": "relu"}
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            layer["name"] += f".{seen[name]}"
        layer["forward"], layer["backward"] = dict(cost), dict(cost)
        if layer.get("op", {}).get("kind") == "linear":
            products = 2 * 32 * inputs * outputs
            layer["forward"]["flops_per_sample"] = products
            layer["backward"]["flops_per_sample"] = 2 * products
        layers.append(layer)
    document = {
        "schema": "ddpsim.workload/1",
        "name": r["file"],
        "model": "recorded",
        "basis": "described",
        "batch": 2,
        "precision": "fp32",
        "device": {"kind": "gpu", "name": "any"},
        "source": "made by tests/oracle/zero_lowered.py",
        "optimizer": {
            "name": "adam",
            "momentum": False,
            "weight_decay": False,
            "foreach": True,
            "fused": False,
        },
        "tensors": [{"name": n, "shape": s, "dtype": "float32"} for n, s in r["parameters"]],
        "buffers": [],
        "arrival": r["arrival"],
        "layers": layers,
    }
    if r["knobs"]["dtype"] != "fp32":
        document["precision"] = r["knobs"]["dtype"]
        document["casting"] = "master_weights"
    if r["knobs"].get("gradient_clipping"):
        document["loop"] = {"clip_grad_norm": True}
    return document


def program(ddpsim, r, folder, cluster="hgx-h100", more=()):
    file = Path(folder) / "workload.json"
    file.write_text(json.dumps(workload(r)))
    asked = [ddpsim, "show", "program", "--format", "json", "--workload", str(file)]
    asked += ["--cluster", cluster, "--ranks", str(r["ranks"]), "--plan", "zero", *more]
    asked += ["--set", f"accumulation_steps={micro_steps(r)}"]
    for knob, value in r["knobs"]["zero_optimization"].items():
        asked += ["--set", f"{knob}={json.dumps(value)}"]
    out = subprocess.run(asked, capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{r['file']}: {out.stderr}")
    return json.loads(out.stdout)


# ---- both sides, as the same words
def lowered(r, program, step):
    """[[operation, bytes, type, tensors or None, communicator, stream, module of the last
    gradient]]"""
    index = {p[0]: i for i, p in enumerate(r["parameters"])}
    owner = {i: n.rsplit(".", 1)[0] for n, i in index.items()}
    third = r["knobs"]["zero_optimization"]["stage"] == 3
    lane = {o["op"]: o["lane"] for o in step["ops"]}
    out, after, micro_step = [], None, ""
    for o in step["ops"]:
        name = o["op"]
        if name.startswith("micro"):
            micro, name = name.split("/", 1)
            if micro != micro_step:
                micro_step, after = micro, None
        if name.startswith("bwd/") and not third:
            after = owner[index[name[4:]]]
        elif name.startswith("bwd/") and name[4:] in owner.values():
            after = name[4:]
        if o["does"] != "communicate":
            continue
        lanes = {lane[w] for w in o["waits_for"]} - {"host", "comm", "comm_world"}
        stream = next((s for s in ("reduce", "all_gather") if s in lanes), "main")
        tensors = [index[t.split("[")[0]] for t in o["tensors"]]
        unsaid = name == "all_gather/weights" or "persistent" in name
        out.append(
            [
                o["operation"],
                o["bytes"],
                o.get("dtype", "int64"),
                None if unsaid else tensors,
                o["lane"],
                stream,
                after,
            ]
        )
    return out


NAMES = {
    1: {"main": "main", "stream0": "reduce"},
    3: {"main": "main", "stream0": "all_gather", "stream1": "reduce"},
}


def work_differences(r, step):
    """A rank copies its own slices; ddpsim, those of the rank that owns the most. What a slice is
    copied onto is itself on a GPU where it is alone: the recording, on a CPU, counts that."""
    stage = r["knobs"]["zero_optimization"]["stage"]
    size = 4 if r["knobs"]["dtype"] == "fp32" else 2
    names = NAMES[3 if stage == 3 else 1]
    said = {}
    for key, n in r["work"].items():
        what, _, stream = key.partition(" ")
        said[what, names[stream] if stream else "host"] = n
    # ThroughputTimer.start() follows stop(), of a device that is idle.
    said["device", "host"] -= micro_steps(r)
    mine = {}
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        what, lane = name.split("/")[0], o["lane"]
        key = None
        if what in ("to_bucket", "keep_shard", "average"):
            stream = "main" if lane == "compute" else lane
            key, n = ("average" if what == "average" else "copy", stream), o["traffic_bytes"]
            n //= 2 * size
            if what == "keep_shard" and o["op"].startswith("micro") and o["op"][5] != "0":
                key = None  # added, not copied
        elif name in ("wait/timer", "wait/persistent") or name.startswith("wait/device"):
            key, n = ("device", "host"), 1
        elif name == "wait/reductions" and stage < 3:
            key, n = ("device", "host"), 1
        if key:
            mine[key] = mine.get(key, 0) + n
    compared = [k for k in said if k[0] != "copy" or stage == 3]
    if ("average", "reduce") in said and ("copy", "main") in said:
        compared.append(("copy", "main"))  # with overlap_comm: into buckets, nothing else
    return [
        f"{' '.join(k)}: ddpsim {mine.get(k, 0)}, recorded {said[k]}"
        for k in compared
        if mine.get(k, 0) != said[k]
    ]


def recorded(r, collectives):
    zero = r["knobs"]["zero_optimization"]
    third = zero["stage"] == 3
    owner = [p[0].rsplit(".", 1)[0] for p in r["parameters"]]
    names = NAMES[3 if third else 1]
    out = []
    for c in collectives:
        after = c["after_grad"]
        if after is not None:
            after = owner[after]
        stream = names[c["queue"]]
        out.append(
            [
                c["op"],
                c["bytes"],
                c["dtype"],
                c.get("tensors"),
                "comm" if not third or c.get("comm") else "comm_world",
                stream,
                after,
            ]
        )
    return out


def alike(mine, theirs, third):
    a, b = list(mine), list(theirs)
    if a[0] in ("all_gather", "broadcast") and b[3] is None:
        a[3] = None
    if b[3] is None and a[3] == []:
        a[3] = None
    # The recorder sorts what stage 3 reduces; reduce_scatter=false keeps the order of arrival.
    if a[0] == "all_reduce" and a[3] and third:
        a[3], b[3] = sorted(a[3]), sorted(b[3])
    # Of a reduction to an owner the recorder names the whole bucket.
    if a[0] == "reduce" and set(a[3]) <= set(b[3]):
        a[3] = b[3]
    # A gathering of one parameter is preceded by no copy: nothing says which stream it is from.
    if a[0] == "all_gather" and a[5] == "main":
        a[5] = b[5]
    return a == b


def differences(ddpsim, r):
    with tempfile.TemporaryDirectory() as folder:
        p = program(ddpsim, r, folder)
    third = r["knobs"]["zero_optimization"]["stage"] == 3
    found, compared = [], 0
    for what, step, collectives in (
        ("first", p["steps"][0], r["steps"][0]),
        ("steady", p["steps"][-1], r["steps"][-1]),
    ):
        mine, theirs = lowered(r, p, step), recorded(r, collectives)
        compared += len(theirs)
        for k in range(max(len(mine), len(theirs))):
            a = mine[k] if k < len(mine) else None
            b = theirs[k] if k < len(theirs) else None
            if a is None or b is None or not alike(a, b, third):
                found.append(f"{what} {k}: ddpsim {a}, recorded {b}")
                break
    return found + work_differences(r, p["steps"][-1]), compared


def refusal(r):
    for part, why in REFUSED.items():
        if part in r["file"]:
            return why
    return None


def main():
    if sys.argv[1:2] == ["--reduce"]:
        return reduce_folder(sys.argv[2])
    ddpsim = sys.argv[1]
    recordings = load(DATA)
    if "--self-test" in sys.argv:
        return self_test(ddpsim, recordings)
    bad = total = operations = 0
    for r in recordings:
        if why := refusal(r):
            print(f"not asked: {r['file']}: {why}")
            continue
        found, compared = differences(ddpsim, r)
        total += 1
        operations += compared
        bad += bool(found)
        if found:
            print(r["file"], "\n  " + "\n  ".join(found))
    print(f"{total} recordings, {operations} collectives; {bad} differ")
    return 1 if bad or not total else 0


def self_test(ddpsim, recordings):
    missed = []
    for name, knob, value in (
        ("ds_zero2__resnet18__small__n2", "reduce_bucket_size", 1000000),
        ("ds_zero1__gpt5__small_overlap__n2", "overlap_comm", False),
        ("ds_zero2__gpt5__small_n4__n4", "reduce_bucket_size", 200000),
        ("ds_zero3__gpt5__persist0_pf__n2", "stage3_prefetch_bucket_size", 100000),
        ("ds_zero3__gpt5__default__n2", "stage3_param_persistence_threshold", 1000),
        ("ds_zero3__gpt5__pf0_reuse0_persist0__n2", "stage3_max_reuse_distance", 1000000000),
        ("ds_zero3__resnet18__persist0_n4__n4", "reduce_scatter", False),
    ):
        r = copy.deepcopy(next(x for x in recordings if x["file"] == name))
        r["knobs"]["zero_optimization"][knob] = value
        if not differences(ddpsim, r)[0]:
            missed.append(f"{name}: {knob}={value}")
    for key, value in (("bytes", 4), ("tensors", [0]), ("queue", "main"), ("dtype", "float16")):
        r = copy.deepcopy(
            next(x for x in recordings if x["file"] == "ds_zero2__resnet18__small_overlap__n2")
        )
        r["steps"][-1][1][key] = value
        if not differences(ddpsim, r)[0]:
            missed.append(key)
    r = copy.deepcopy(next(x for x in recordings if "zero3__resnet18__small_acc2" in x["file"]))
    for key in r["work"]:
        r["work"][key] += 1
        if not differences(ddpsim, r)[0]:
            missed.append(key)
        r["work"][key] -= 1
    for m in missed:
        print("not noticed:", m)
    print("self-test:", "failed" if missed else "ok")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
