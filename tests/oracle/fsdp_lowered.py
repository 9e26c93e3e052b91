#!/usr/bin/env python3
"""Is the Program that ddpsim lowers for FSDP the one that the oracle issues?

  fsdp_lowered.py DDPSIM            every question of CASES; exit 1 if one differs
  fsdp_lowered.py DDPSIM --self-test  changes in a Program are noticed

Both sides are asked for a steady step of a shipped workload, wrapped block by block. They must
list the same operations in the same order, on the same streams, with the same bytes, dtype and
tensors; and one must have to end before another begins in both, or in neither (also through the
host, where the rate limiter blocks). What an operation allocates and frees is the same, of whole
weights and of all else but what autograd makes before it is flat. fsdp1.py is held to recorded
schedules by recorded_orders.py.
"""
import copy
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fsdp1  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
STRATEGIES = {
    "full_shard": "FULL_SHARD",
    "shard_grad_op": "SHARD_GRAD_OP",
    "no_shard": "NO_SHARD",
    "hybrid_shard": "HYBRID_SHARD",
    "_hybrid_shard_zero2": "_HYBRID_SHARD_ZERO2",
}
OF_UNITS = ("pytorch", "auto_wrap_policy", "blocks_per_unit", "shard_degree")
OF_UNITS += ("min_num_params", "module_lists")
LANES = {"world": "comm", "shard": "comm", "replicas": "comm_replicas"}
OF_HOST = ("wait/to_host", "host_optimizer", "host_zero_gradients")  # of cpu_offload
PREFETCHES = {"backward_pre": "BACKWARD_PRE", "backward_post": "BACKWARD_POST", "none": None}

CASES = [
    ("gpt2-small", 8, {}),
    ("gpt2-small", 8, {"pytorch": "1.13"}),
    *(
        ("gpt2-small", ranks, {"pytorch": pytorch, **knobs})
        for pytorch in ("2.0", "2.1", "2.2", "2.8")
        for ranks, knobs in (
            (8, {}),
            (3, {"sharding_strategy": "shard_grad_op", "param_dtype": "bfloat16"}),
            (4, {"forward_prefetch": True, "limit_all_gathers": True}),
            (4, {"backward_prefetch": "backward_post", "accumulation_steps": 2}),
            (8, {"cpu_offload": True}),
        )
    ),
    ("gpt2-small", 8, {"use_orig_params": True, "pytorch": "2.1"}),
    ("gpt2-small", 3, {"sharding_strategy": "shard_grad_op"}),
    ("gpt2-small", 3, {"sharding_strategy": "shard_grad_op", "pytorch": "1.13"}),
    ("gpt2-small", 2, {"sharding_strategy": "no_shard", "accumulation_steps": 2}),
    ("gpt2-small", 4, {"backward_prefetch": "backward_post"}),
    ("gpt2-small", 4, {"backward_prefetch": "none", "limit_all_gathers": False}),
    ("gpt2-small", 4, {"forward_prefetch": True}),
    ("gpt2-small", 4, {"forward_prefetch": True, "pytorch": "1.13", "limit_all_gathers": True}),
    (
        "gpt2-small",
        4,
        {"forward_prefetch": True, "backward_prefetch": "none", "accumulation_steps": 2},
    ),
    ("gpt2-small", 8, {"param_dtype": "bfloat16"}),
    ("gpt2-small", 8, {"param_dtype": "bfloat16", "reduce_dtype": "float32"}),
    ("gpt2-small", 8, {"param_dtype": "float16", "pytorch": "1.13", "limit_all_gathers": True}),
    ("gpt2-small", 8, {"sharding_strategy": "no_shard", "param_dtype": "bfloat16"}),
    (
        "gpt2-small",
        3,
        {"pytorch": "1.13", "sharding_strategy": "no_shard", "accumulation_steps": 2},
    ),
    ("gpt2-small", 6, {"accumulation_steps": 3}),
    ("gpt2-small", 6, {"accumulation_steps": 3, "no_sync": True}),
    ("gpt2-small", 6, {"accumulation_steps": 3, "no_sync": True, "pytorch": "1.13"}),
    (
        "gpt2-small",
        6,
        {"accumulation_steps": 2, "no_sync": True, "sharding_strategy": "shard_grad_op"},
    ),
    ("gpt2-small", 1, {}),
    ("gpt2-small", 8, {"set_to_none": False}),
    ("gpt2-small", 8, {"auto_wrap_policy": "none"}),
    ("gpt2-small", 8, {"blocks_per_unit": 3}),
    ("resnet50", 8, {"blocks_per_unit": [1, 4, 2]}),
    (
        "resnet50",
        8,
        {"auto_wrap_policy": "size_based", "min_num_params": 2000000, "module_lists": "none"},
    ),
    (
        "resnet50",
        4,
        {
            "auto_wrap_policy": "size_based",
            "min_num_params": 2000000,
            "module_lists": "none",
            "pytorch": "1.13",
            "backward_prefetch": "backward_pre",
        },
    ),
    ("llama-3.1-8b", 8, {"auto_wrap_policy": "size_based", "module_lists": "none"}),
    ("llama-3.1-8b", 8, {"auto_wrap_policy": "size_based", "module_lists": "all"}),
    ("bert-base", 8, {}),
    ("bert-large", 5, {"pytorch": "1.13", "backward_prefetch": "backward_pre"}),
    ("resnet50", 8, {}),
    ("resnet50", 7, {"pytorch": "1.13"}),
    ("vgg16", 4, {"forward_prefetch": True}),
    ("gpt2-small", 16, {"sharding_strategy": "hybrid_shard"}),
    ("gpt2-small", 24, {"sharding_strategy": "_hybrid_shard_zero2", "param_dtype": "bfloat16"}),
    (
        "gpt2-small",
        12,
        {"sharding_strategy": "hybrid_shard", "shard_degree": 4, "accumulation_steps": 2},
    ),
    (
        "bert-base",
        16,
        {
            "sharding_strategy": "hybrid_shard",
            "shard_degree": 2,
            "accumulation_steps": 2,
            "no_sync": True,
            "reduce_dtype": "float16",
        },
    ),
    ("gpt2-small", 8, {"cpu_offload": True}),
    ("gpt2-small", 8, {"cpu_offload": True, "pytorch": "1.13"}),
    ("gpt2-small", 3, {"cpu_offload": True, "sharding_strategy": "shard_grad_op"}),
    (
        "gpt2-small",
        4,
        {
            "cpu_offload": True,
            "sharding_strategy": "shard_grad_op",
            "pytorch": "1.13",
            "backward_prefetch": "backward_pre",
            "set_to_none": True,
        },
    ),
    ("gpt2-small", 8, {"cpu_offload": True, "param_dtype": "bfloat16", "set_to_none": False}),
    (
        "bert-base",
        8,
        {
            "cpu_offload": True,
            "param_dtype": "float16",
            "reduce_dtype": "float32",
            "pytorch": "1.13",
            "backward_prefetch": "backward_pre",
            "limit_all_gathers": True,
        },
    ),
    ("gpt2-small", 6, {"cpu_offload": True, "accumulation_steps": 3, "no_sync": True}),
    (
        "gpt2-small",
        6,
        {
            "cpu_offload": True,
            "accumulation_steps": 2,
            "no_sync": True,
            "pytorch": "1.13",
            "param_dtype": "bfloat16",
            "sharding_strategy": "shard_grad_op",
        },
    ),
    ("vgg16", 4, {"cpu_offload": True, "forward_prefetch": True}),
    (
        "resnet50",
        4,
        {
            "cpu_offload": True,
            "auto_wrap_policy": "size_based",
            "min_num_params": 2000000,
            "module_lists": "none",
            "pytorch": "1.13",
            "forward_prefetch": True,
            "backward_prefetch": "backward_post",
        },
    ),
    (
        "gpt2-small",
        16,
        {
            "cpu_offload": True,
            "sharding_strategy": "hybrid_shard",
            "reduce_dtype": "bfloat16",
        },
    ),
    (
        "gpt2-small",
        12,
        {
            "cpu_offload": True,
            "sharding_strategy": "_hybrid_shard_zero2",
            "shard_degree": 4,
            "param_dtype": "bfloat16",
            "accumulation_steps": 2,
            "no_sync": True,
        },
    ),
]


# Of the cases of size_based, as size_based.py finds them with PyTorch's own function.
MLPS = [f"model.layers.{i}.mlp" for i in range(32)]
BY_SIZE = {
    ("resnet50", "none"): [
        *["layer3", "layer4.0.conv2", "layer4.0.downsample.0", "layer4.1", "layer4.1.conv2"],
        *["layer4.2", "layer4.2.conv2", "fc"],
    ],
    # An outer unit ends inside one, begins inside one.
    ("llama-3.1-8b", "none"): ["model.embed_tokens", "model.layers", "lm_head", *MLPS],
    ("llama-3.1-8b", "all"): ["model", "model.embed_tokens", "lm_head", *MLPS],
}


def around(unit, units):
    """The units that have it inside, the innermost first."""
    return sorted((u for u in units if unit.startswith(u + ".")), key=len, reverse=True)


def unit_by_size(layers, at, units):
    """Without parameters: of a unit that the layer with parameters before or after it is in."""
    found = around(layers[at]["name"] + ".", units)
    if layers[at]["tensors"]:
        return next(iter(found), "root")
    beside = [next((x for x in layers[at:] if x["tensors"]), None)]
    beside.append(next((x for x in reversed(layers[:at]) if x["tensors"]), None))
    names = [x["name"] + "." for x in beside if x]
    return next((u for u in found if any(n.startswith(u + ".") for n in names)), "root")


def grouped(layers, block_of, per_unit, ends):
    """Blocks that fully_shard([...]) or one module holds together: so many with parameters a unit,
    none from two lists; `ends`: what is before the first block and after the last are units."""
    per_unit = [per_unit] if isinstance(per_unit, int) else per_unit
    blocks = [b for b in dict.fromkeys(block_of.values()) if b != "root"]
    weighty = {block_of[layer["name"]] for layer in layers if layer["tensors"]}
    units, unit_of = [], {}
    for b in blocks if per_unit else ():
        of = b.rpartition(".")[0]
        most = per_unit[min(max(len(units) - 1, 0), len(per_unit) - 1)]
        same = bool(units) and units[-1][0].rpartition(".")[0] == of
        if b not in weighty:
            if same:
                unit_of[b] = len(units) - 1
            continue
        if not same or len(units[-1]) == most:
            units.append([])
        units[-1].append(b)
        unit_of[b] = len(units) - 1
    names = [u[0] + (f"-{u[-1].rpartition('.')[2]}" if len(u) > 1 else "") for u in units]
    out = {k: names[unit_of[b]] if b in unit_of else b for k, b in block_of.items()}
    inside = [k for k, layer in enumerate(layers) if block_of[layer["name"]] != "root"]
    for part in (layers[: inside[0]], layers[inside[-1] + 1 :]) if ends else ():
        out.update((layer["name"], part[0]["name"]) for layer in part)
    return out


def units_and_forward(workload, wrap, per_unit=(), ends=False, lists=None):
    """As ddpsim names them. Of a unit its tensors, and of each the part of forward that has it."""
    path = ROOT / "workloads" / f"{workload}.json"
    document = json.loads((Path(workload) if workload.endswith(".json") else path).read_text())
    parameters = [*document["tensors"], *document.get("frozen", [])]
    names, trained = [t["name"] for t in parameters], len(document["tensors"])
    for layer in document["layers"]:  # of all parameters: those that are frozen after the others
        layer["tensors"] = [*layer["tensors"], *(trained + t for t in layer.get("frozen", []))]
    units, forward, block_of = [{"unit": "root", "layers": []}], [], {}
    nested = BY_SIZE[workload, lists] if wrap == "size_based" else []
    for at, layer in enumerate(document["layers"]):
        parts, block = layer["name"].split("."), "root"
        if wrap == "block":
            for i, part in enumerate(parts):
                if part.isdigit():
                    block = ".".join(parts[: i + 1])
                    break
        elif wrap == "size_based":
            block = unit_by_size(document["layers"], at, nested)
        block_of[layer["name"]] = block
    block_of = grouped(document["layers"], block_of, per_unit, ends)
    short = {b: ".".join(b.split(".")[-2:]) for b in block_of.values()}
    if wrap == "size_based" or len(set(short.values())) < len(short):
        short = {b: b for b in short}
    seen: dict = {"root": units[0]}
    for layer in document["layers"]:
        name = short[block_of[layer["name"]]]
        for new in [*reversed(around(name, nested)), name]:
            if new not in seen:
                seen[new] = {"unit": new, "layers": []}
                units.append(seen[new])
        seen[name]["layers"].append(layer)
    taken = set()
    for layer in document["layers"]:
        u = seen[short[block_of[layer["name"]]]]
        for t in layer["tensors"]:
            if t not in taken:
                taken.add(t)
                u.setdefault("indices", []).append(t)
    for u in units:
        u["indices"] = sorted(u.get("indices", []))
        u["tensors"] = [names[i] for i in u["indices"]]
        u["shapes"] = [parameters[i]["shape"] for i in u["indices"]]
        u["dtypes"] = [parameters[i]["dtype"] for i in u["indices"]]
        u["trained"] = [i < trained for i in u["indices"]]
        u["part_of"] = {}
    parts, label = [], None
    for layer in document["layers"]:
        name = short[block_of[layer["name"]]]
        if not parts or parts[-1] != name:
            parts.append(name)
            label = name if parts.count(name) == 1 else f"{name}.{parts.count(name)}"
        for t in layer["tensors"]:
            if names[t] in seen[name]["tensors"]:
                seen[name]["part_of"].setdefault(names[t], label)
    times, entered = {}, {"root"}
    forward = [["enter", "root"]]
    for k, name in enumerate(parts):
        times[name] = times.get(name, 0) + 1
        for new in [*reversed(around(name, nested)), name]:
            if new not in entered:
                forward.append(["enter", new])
                entered.add(new)
        forward.append(["compute", name if times[name] == 1 else f"{name}.{times[name]}"])
        for old in [name, *around(name, nested)]:
            if old != "root" and not any(old in [n, *around(n, nested)] for n in parts[k + 1 :]):
                forward.append(["exit", old])
    forward.append(["exit", "root"])
    return units, forward


def with_frozen(folder, name, is_frozen, dtype=None):
    """GPT-2 of which some parameters are frozen: what is before the first that is not has no
    backward, and keeps nothing for one."""
    document = json.loads((ROOT / "workloads" / "gpt2-small.json").read_text())
    old = document["tensors"]
    freezes = [is_frozen(t["name"]) for t in old]
    kinds = {kind: [i for i, f in enumerate(freezes) if f == kind] for kind in (0, 1)}
    new = {i: k for kind in (0, 1) for k, i in enumerate(kinds[kind])}
    document["tensors"] = [old[i] for i in kinds[0]]
    document["frozen"] = [{**old[i], "dtype": dtype or old[i]["dtype"]} for i in kinds[1]]
    document["arrival"] = [new[i] for i in document["arrival"] if i in kinds[0]]
    any_trained = False
    for layer in document["layers"]:
        own = layer["tensors"]
        layer["tensors"] = [new[i] for i in own if i in kinds[0]]
        layer["frozen"] = [new[i] for i in own if i in kinds[1]]
        any_trained = any_trained or bool(layer["tensors"])
        if not any_trained:
            layer["backward"] = {**dict.fromkeys(layer["backward"], 0)}
            for key in ("saves", "saves_fused"):
                if key in layer:
                    layer[key] = [0, 0, 0]
    path = Path(folder) / f"{name}.json"
    path.write_text(json.dumps(document))
    return str(path)


def frozen_units(folder):
    """Units all of whose parameters are frozen: one, several, the first ones, the root."""

    def of(*prefixes):
        return lambda name: int(name.startswith(prefixes))

    one = with_frozen(folder, "frozen-one", of("transformer.h.5."))
    front = with_frozen(folder, "frozen-front", of("transformer.wte", "transformer.wpe",
        "transformer.ln_f", *(f"transformer.h.{i}." for i in range(4))))  # fmt: skip
    root = with_frozen(folder, "frozen-root", of("transformer.wte", "transformer.wpe",
        "transformer.ln_f", "transformer.h.7.", "transformer.h.8."))  # fmt: skip
    halves = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
    old = {"pytorch": "1.13", "backward_prefetch": "backward_pre"}
    grad_op = {"sharding_strategy": "shard_grad_op"}
    post = {"forward_prefetch": True, "backward_prefetch": "backward_post"}
    return [
        (one, 8, {}),
        (one, 8, old),
        (one, 8, {**post, **halves}),
        *((one, 8, {**post, "pytorch": pytorch}) for pytorch in ("2.0", "2.1", "2.2", "2.3")),
        (one, 6, {"accumulation_steps": 3, "no_sync": True, **grad_op}),
        (one, 16, {"sharding_strategy": "hybrid_shard"}),
        (one, 8, {"cpu_offload": True}),
        (one, 2, {"sharding_strategy": "no_shard"}),
        (front, 8, {}),
        (front, 8, {**old, **halves, "limit_all_gathers": True}),
        (front, 8, {**grad_op, **post}),
        (front, 8, {**grad_op, **old}),
        (root, 8, {}),
        (root, 7, old),
        (root, 8, {"use_orig_params": True, **grad_op}),
    ]


def question(workload, ranks, knobs, program):
    """What the oracle is asked: knobs as the user set them."""
    units, forward = units_and_forward(
        workload,
        knobs.get("auto_wrap_policy", "block"),
        knobs.get("blocks_per_unit", ()),
        lists=knobs.get("module_lists"),
    )
    for u in units:
        u["elements"] = [math.prod(shape) for shape in u["shapes"]]
    said = {
        "version": knobs.get("pytorch", "2.7"),
        "world_size": ranks,
        "units": [
            {
                **{k: u[k] for k in ("unit", "tensors", "elements")},
                "requires_grad": any(u["trained"]),
            }
            for u in units
        ],
        "forward": forward,
        "steps": 3,
    }
    for knob, value in knobs.items():
        if knob == "sharding_strategy":
            said[knob] = STRATEGIES[value]
        elif knob == "backward_prefetch":
            said[knob] = PREFETCHES[value]
        elif knob not in OF_UNITS:
            said[knob] = value
    if "hybrid" in knobs.get("sharding_strategy", ""):
        said["gpus_per_host"] = knobs.get("shard_degree", 8)
    return said


def lowered(ddpsim, workload, ranks, knobs, system="fsdp"):
    sets = {"cluster.host_memory": "300GB/s"} if knobs.get("cpu_offload") else {}
    sets.update({"plan.system": system, **{f"plan.{k}": v for k, v in knobs.items()}})
    argv = [
        ddpsim,
        "show",
        "program",
        "--workload",
        workload,
        "--cluster",
        "dgx-h100" if knobs.get("cpu_offload") else "hgx-h100",
        "--set",
        f"cluster.hosts={(ranks + 7) // 8}",
        "--ranks",
        str(ranks),
        "--format",
        "json",
    ]
    for name, value in sets.items():
        argv += ["--set", f"{name}={json.dumps(value) if not isinstance(value, str) else value}"]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: {done.stderr}")
    return json.loads(done.stdout)


HOST_OP = {"stream": "host", "dtype": None, "operation": None, "tensors": [], "group": None}


def issued(steps, kind="steady"):
    """Of ddpsim: what is put on the device in a step, and what must have ended before."""
    ops = next(s for s in steps["steps"] if s["kind"] == kind)["ops"]
    before, last, out = {}, {}, []
    for op in ops:
        if op["op"] in before:
            raise SystemExit(f"{op['op']} stands twice in a step")
        ready = set()
        for name in op["waits_for"]:
            ready |= before[name]
        if op["lane"] in last:
            ready |= before[last[op["lane"]]]
        last[op["lane"]] = op["op"]
        device = op["lane"] != "host" and op["op"] != "wait/optimizer"
        device = device or op["op"].split("/", op["op"].startswith("micro"))[-1] in OF_HOST
        if device:
            out.append(
                {
                    "op": op["op"],
                    "stream": op["lane"],
                    "bytes": op["bytes"],
                    "kernels": op.get("kernels"),
                    "memory": op.get("memory", []),
                    "dtype": op.get("dtype"),
                    "operation": op.get("operation"),
                    "tensors": op["tensors"] if op.get("operation") else [],
                    "group": op.get("group"),
                    "after": ready,
                }
            )
        before[op["op"]] = ready | ({op["op"]} if device else set())
    return out


def asked(log, micro_steps):
    """The same of the oracle."""
    before, last, communicator, host, out, pending = {}, {}, {}, set(), [], {}
    allocated, freed, made, entry = [], [], {}, {}
    micro, backward, names = -1, False, set()
    for e in log:
        if e["do"] == "mark" and e["what"] == "micro_batch":
            micro += 1
        elif e["do"] == "mark" and e["what"] in ("forward", "backward"):
            backward = e["what"] == "backward"
        elif e["do"] == "mark" and e["what"] == "step":
            micro = -1
        elif e["do"] == "host_wait":
            # An event of the step before has long happened.
            host = host | before.get(e["after"], set())
        elif e["do"] in ("allocate", "free"):
            holds = "gathered" if e["what"] == "unsharded" else "other"
            streams = made.setdefault((e["what"], e["unit"], e["bytes"]), [])
            if e["do"] == "allocate":
                allocated.append((holds, e["bytes"], False))
                streams.append(e["stream"])
            else:
                used_elsewhere = streams != [] and streams.pop() != e["stream"]
                used_elsewhere = used_elsewhere or e["ended"]
                freed.append((e["when_ended"], (holds, -e["bytes"], used_elsewhere)))
        elif e["do"] == "wait":
            of, on = e["stream"], e["on"]
            pending[of] = pending.get(of, set()) | pending.get(on, set())
            if on in last:
                pending[of] |= before[last[on]]
        elif e["do"] == "host_op":
            name = f"micro{micro}/{e['op']}" if micro_steps > 1 and micro >= 0 else e["op"]
            ready = host.union(*(before[w] for w in e["waits"]))
            host = before[e["op"]] = ready | {name}
            out.append({**HOST_OP, "op": name, "bytes": e.get("bytes"), "after": ready})
            out[-1]["memory"], allocated, entry[e["op"]] = allocated, [], out[-1]
        elif e["do"] == "op":
            name = e["op"].split("#")[0]
            first = name.split("/")[0]
            again = backward and first in ("all_gather", "cast_shard", "to_device")
            name = name.replace("/", "/bwd.", 1) if again else name
            name = name.replace("all_reduce/", "allreduce/")
            if first.startswith("order_"):
                name = "all_gather/" + name.replace("/", ".", 1)
            if micro_steps > 1 and micro >= 0:
                name = f"micro{micro}/{name}"
            if name in names:  # 1.13 offloading: what was gathered ahead is cast once more
                head, bwd, label = re.fullmatch("(.*/)(bwd\\.)?(.*)", name).groups()
                name = f"{head}{bwd or ''}again.{label}"
            names.add(name)
            s = e["stream"]
            ready = set(host) | pending.pop(s, set())
            if s in last:
                ready |= before[last[s]]
            if "group" in e:
                if e["group"] in communicator:
                    ready |= before[communicator[e["group"]]]
                communicator[e["group"]] = e["op"]
            last[s] = e["op"]
            before[e["op"]] = ready | {name}
            if e.get("blocks_host"):
                host = host | before[e["op"]]
            size = 0 if first in ("fwd", "bwd") else e.get("bytes")
            out.append(
                {
                    "op": name,
                    "stream": LANES[e["group"]] if "group" in e else s,
                    "bytes": size,
                    "dtype": e.get("dtype"),
                    "operation": e.get("operation"),
                    "tensors": e.get("tensors", []),
                    "group": e.get("group"),
                    "after": ready,
                    "memory": allocated,
                }
            )
            allocated, entry[e["op"]] = [], out[-1]
    for op, change in freed:  # zero_grad() frees what the step before made: the optimizer in ddpsim
        entry[op]["memory"].append(change)
    return out


def of_memory(ours, oracles):
    for a, b in zip(ours, oracles):
        net = {}
        for sign, changes in ((1, a["memory"]), (-1, b["memory"])):
            for holds, size, at_end in changes:
                net[holds, at_end] = net.get((holds, at_end), 0) + sign * size
        for (holds, at_end), size in net.items():
            if size:
                when = "when it has ended" if at_end else "when it is issued"
                yield f"{a['op']}: {holds}, {when}: {size} B more than the oracle says"


def held(op):
    """What fsdp1.py knows of."""
    word = op["op"].rpartition("/")[0].rpartition("/")[2]
    out = []
    for m in op["memory"]:
        of_autograd = m["holds"] == "gradients" and word in ("bwd", "flatten_gradient")
        if m["holds"] in ("gathered", "buckets", "gradients") and not of_autograd:
            holds = "gathered" if m["holds"] == "gathered" else "other"
            out.append((holds, m["bytes"], m.get("at_end", False)))
    return out


def differences(ours, oracles):
    for i, (a, b) in enumerate(zip(ours, oracles)):
        for key in ("op", "stream", "operation", "group", "tensors"):
            if a[key] != b[key]:
                yield f"operation {i}: {key} {a[key]!r}, the oracle says {b[key]!r} (at {b['op']})"
                return
        if a["operation"] and (a["bytes"], a["dtype"]) != (b["bytes"], b["dtype"]):
            yield (
                f"{a['op']}: {a['bytes']} B of {a['dtype']}, the oracle says {b['bytes']} of"
                f" {b['dtype']}"
            )
        if not a["operation"] and b["bytes"] and a["bytes"] != b["bytes"]:
            yield f"{a['op']}: moves {a['bytes']} B, the oracle says {b['bytes']}"
        if b.get("kernels") and a["kernels"] != b["kernels"]:
            yield f"{a['op']}: {a['kernels']} kernels, the oracle says {b['kernels']}"
        for name in sorted(a["after"] ^ b["after"]):
            which = (
                "the oracle does not" if name in a["after"] else "the oracle does, too; ddpsim not"
            )
            yield f"{a['op']}: waits for {name}: {which}"
    if len(ours) != len(oracles):
        yield f"{len(ours)} operations, the oracle has {len(oracles)}"


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    ddpsim, failed, operations, changes = sys.argv[1], 0, 0, 0
    if sys.argv[2:] == ["--self-test"]:
        return self_test(ddpsim)
    folder = tempfile.TemporaryDirectory()
    cases = [*CASES, *frozen_units(folder.name)]
    for workload, ranks, knobs in cases:
        program = lowered(ddpsim, workload, ranks, knobs)
        logs = fsdp1.steps(question(workload, ranks, knobs, program))
        found = []
        for kind, log in (("first", logs[0]), ("steady", logs[-1])):
            ours = issued(program, kind)
            oracles = asked(log, knobs.get("accumulation_steps", 1))
            found += [f"{kind} step: {line}" for line in differences(ours, oracles)]
            operations += len(ours)
            if kind == "first":
                continue  # whose memory nobody is told
            for o in ours:
                o["memory"] = held(o)
            found += of_memory(ours, oracles)
            changes += sum(len(o["memory"]) for o in ours)
        if found:
            failed += 1
            print(f"{workload} on {ranks}, {knobs}: {len(found)} differences")
            for line in found[:6]:
                print("   ", line)
    print(
        f"{len(cases) - failed} of {len(cases)} Programs, {operations} operations, {changes}"
        " changes of memory: equal"
    )
    return 1 if failed else 0


def self_test(ddpsim):
    """Planted changes, each noticed."""
    missed, plants = [], 0

    def sides(case):
        program = lowered(ddpsim, *case)
        oracle = asked(fsdp1.steps(question(*case, program=program))[-1], 1)
        ours = issued(program)
        for o in ours:
            o["memory"] = held(o)
        if list(differences(ours, oracle)):
            missed.append(f"{case}: equal to begin with")
        return ours, oracle

    def planted(what, change):
        nonlocal plants
        plants += 1
        other = copy.deepcopy(ours)
        change(other)
        if not [*differences(other, oracle), *of_memory(other, oracle)]:
            missed.append(what)

    ours, oracle = sides(CASES[0])
    gather = next(i for i, o in enumerate(ours) if o["operation"] == "all_gather")
    planted("bytes", lambda o: o[gather].update(bytes=o[gather]["bytes"] + 4))
    planted("dtype", lambda o: o[gather].update(dtype="float16"))
    planted("a tensor", lambda o: o[gather]["tensors"].pop())
    planted("an operation less", lambda o: o.pop(gather))
    planted("order", lambda o: o.insert(gather, o.pop(gather + 1)))
    planted("a wait less", lambda o: o[-1]["after"].discard(o[-2]["op"]))
    planted("a stream", lambda o: o[gather].update(stream="compute"))
    planted("a group", lambda o: o[gather].update(group="replicas"))
    planted("memory", lambda o: o[gather]["memory"].append(("gathered", 4, False)))
    frees = next(i for i, o in enumerate(ours) if o["op"] == "fwd/h.3")
    planted("freed later", lambda o: o[frees + 1]["memory"].append(o[frees]["memory"].pop()))
    ours, oracle = sides(("gpt2-small", 8, {"cpu_offload": True, "set_to_none": False}))
    at = {o["op"]: k for k, o in enumerate(ours)}
    planted("bytes that are moved", lambda o: o[at["to_device/h.3"]].update(bytes=4))
    planted("bytes of zeros", lambda o: o[at["host_zero_gradients"]].update(bytes=4))
    planted("no copy", lambda o: o.pop(at["to_device/bwd.root"]))
    planted("no wait", lambda o: o[at["host_optimizer"]]["after"].discard("to_host/root"))
    planted("host first", lambda o: o.insert(at["to_host/root"], o.pop(at["host_optimizer"])))
    planted("kept", lambda o: o[at["wait/to_host"]]["memory"].pop())
    print("self-test:", f"missed {missed}" if missed else f"{plants} planted changes noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
