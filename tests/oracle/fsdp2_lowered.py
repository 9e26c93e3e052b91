#!/usr/bin/env python3
"""Is the Program that ddpsim lowers for FSDP2 the one that the oracle issues, and its memory?

  fsdp2_lowered.py DDPSIM            every question of CASES; exit 1 if one differs
  fsdp2_lowered.py DDPSIM --self-test  changes in a Program are noticed

As fsdp_lowered.py does for FSDP1: a steady step of a shipped workload, wrapped block by block; the
same operations in the same order, on the same streams, with the same bytes, dtype, group, tensors
and number of kernels; and one must have to end before another begins in both, or in neither. What
the oracle issues for each parameter is one operation of so many kernels in ddpsim. Beside each
operation what is allocated before and dropped after it, by what holds it; and the peaks.
fsdp2.py is held to recorded schedules by recorded_fsdp2.py.
"""
import copy
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fsdp2  # noqa: E402
from fsdp_lowered import (  # noqa: E402
    ROOT,
    differences,
    issued,
    lowered,
    units_and_forward,
    with_frozen,
)

LAST = {"pytorch": "2.13"}
HALVES = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
NO_SYNC = {"accumulation_steps": 3, "no_sync": True}

CASES = [
    ("gpt2-small", 8, {}),
    *(
        ("gpt2-small", ranks, {"pytorch": pytorch, **knobs})
        for pytorch in ("2.5", "2.6", "2.8", "2.9", "2.10", "2.14")
        for ranks, knobs in ((8, {}), (1, {"param_dtype": "bfloat16"}), (6, {"no_sync": True}))
    ),
    *(
        ("gpt2-small", 4, {"shard_degree": 1, "pytorch": pytorch})
        for pytorch in ("2.6", "2.8", "2.9", "2.10")
    ),
    ("gpt2-small", 8, {"pytorch": "2.11"}),
    ("gpt2-small", 8, {"pytorch": "2.12"}),
    ("gpt2-small", 7, LAST),
    ("gpt2-small", 8, {"reshard_after_forward": True}),
    ("gpt2-small", 8, {"reshard_after_forward": True, "pytorch": "2.11"}),
    ("gpt2-small", 8, {"reshard_after_forward": False}),
    ("gpt2-small", 8, {"reshard_after_forward": False, **LAST}),
    ("gpt2-small", 16, {"reshard_after_forward": 8}),
    ("gpt2-small", 16, {"reshard_after_forward": 8, "pytorch": "2.12", **HALVES}),
    ("gpt2-small", 32, {"reshard_after_forward": 8, "shard_degree": 16, **LAST}),
    ("gpt2-small", 8, {"forward_prefetch_units": 1}),
    ("gpt2-small", 8, {"forward_prefetch_units": 2, **LAST}),
    ("gpt2-small", 8, {"backward_prefetch_units": 2}),
    (
        "gpt2-small",
        8,
        {"forward_prefetch_units": 2, "backward_prefetch_units": 2, "pytorch": "2.11", **HALVES},
    ),
    ("gpt2-small", 8, {"param_dtype": "bfloat16"}),
    ("gpt2-small", 8, HALVES),
    ("gpt2-small", 12, {"param_dtype": "float16", "pytorch": "2.12"}),
    ("gpt2-small", 8, {"reduce_dtype": "bfloat16", **LAST}),
    ("gpt2-small", 6, {"accumulation_steps": 3}),
    ("gpt2-small", 6, {"accumulation_steps": 2, **HALVES, **LAST}),
    ("gpt2-small", 6, NO_SYNC),
    ("gpt2-small", 6, {**NO_SYNC, **HALVES, "pytorch": "2.12"}),
    ("gpt2-small", 6, {**NO_SYNC, "reshard_after_forward": False, "pytorch": "2.13"}),
    ("gpt2-small", 16, {"shard_degree": 8}),
    ("gpt2-small", 16, {"shard_degree": 4, "accumulation_steps": 2, **HALVES}),
    ("gpt2-small", 16, {"shard_degree": 4, "accumulation_steps": 2, **LAST}),
    ("gpt2-small", 24, {"shard_degree": 8, "param_dtype": "float16", **NO_SYNC, **LAST}),
    ("gpt2-small", 8, {"separate_reduce_scatter_group": True, **LAST}),
    ("gpt2-small", 8, {"reduce_scatter_max_input_buffers": 3, **LAST}),
    (
        "bert-base",
        16,
        {
            "separate_reduce_scatter_group": True,
            "reduce_scatter_max_input_buffers": 2,
            "shard_degree": 8,
            **HALVES,
            **LAST,
        },
    ),
    ("gpt2-small", 1, {}),
    ("gpt2-small", 1, {"accumulation_steps": 2, **HALVES, **LAST}),
    ("gpt2-small", 4, {"shard_degree": 1, "param_dtype": "float16", "pytorch": "2.11"}),
    ("gpt2-small", 8, {"auto_wrap_policy": "none", "pytorch": "2.12"}),
    ("gpt2-small", 8, {"blocks_per_unit": [1, 3, 4]}),
    ("vgg16", 8, {"blocks_per_unit": 3, "forward_prefetch_units": 1}),
    ("resnet50", 8, {"blocks_per_unit": 4, "ends_apart": True, **HALVES, **LAST}),
    ("llama-3.1-8b", 16, {"blocks_per_unit": [8, 16], "ends_apart": True, "shard_degree": 8}),
    ("vgg16", 4, {}),
    ("vgg16", 8, {"forward_prefetch_units": 2, "backward_prefetch_units": 2, **LAST}),
    ("vgg16", 1, {**NO_SYNC, "pytorch": "2.12"}),
    ("resnet50", 8, {"pytorch": "2.12"}),
    ("resnet50", 7, {"forward_prefetch_units": 1, "param_dtype": "bfloat16", **NO_SYNC, **LAST}),
    ("vit-b-16", 8, {"reshard_after_forward": True, **LAST}),
]


def question(workload, ranks, knobs):
    """What the oracle is asked. A parameter is named after the part of forward that has it."""
    units, forward = units_and_forward(
        workload,
        knobs.get("auto_wrap_policy", "block"),
        knobs.get("blocks_per_unit", ()),
        knobs.get("ends_apart", False),
    )
    shard = knobs.get("shard_degree", ranks)
    policy = {k: knobs[k] for k in ("param_dtype", "reduce_dtype") if k in knobs}
    micro_steps = knobs.get("accumulation_steps", 1)
    said = {
        "version": knobs.get("pytorch", "2.7"),
        "mesh": [ranks // shard, shard] if shard < ranks else [ranks],
        "units": [
            {
                "unit": u["unit"],
                "parameters": [
                    [f"{u['part_of'][name]}.{i}", shape, dtype, trained]
                    for i, (name, shape, dtype, trained) in enumerate(
                        zip(u["tensors"], u["shapes"], u["dtypes"], u["trained"])
                    )
                ],
            }
            for u in units
        ],
        "forward": forward,
        "mp_policy": policy,
        "accumulation_steps": micro_steps,
        "steps": 3,
    }
    if "reshard_after_forward" in knobs:
        said["reshard_after_forward"] = knobs["reshard_after_forward"]
    if knobs.get("no_sync"):
        said["set_requires_gradient_sync"] = [m + 1 == micro_steps for m in range(micro_steps)]
    for knob in ("separate_reduce_scatter_group", "reduce_scatter_max_input_buffers"):
        if knob in knobs:
            said[f"set_{knob}"] = knobs[knob]
    # As PyTorch's tutorial sets them, of the modules that were wrapped.
    wrapped = [u["unit"] for u in units[1:] if u["tensors"]]
    for way, step in (("forward", 1), ("backward", -1)):
        depth = knobs.get(f"{way}_prefetch_units", 0)
        if depth > (way == "backward"):
            said[f"set_modules_to_{way}_prefetch"] = {
                name: [wrapped[i + step * (k + 1)] for k in range(depth)]
                for i, name in enumerate(wrapped)
                if 0 <= i + step * depth < len(wrapped)
            }
    return said, {u["unit"]: u["tensors"] for u in units}


# Of the oracle: ddpsim's word, then whether backward's has another name, then whether it is one
# kernel a parameter.
WORDS = {
    "cast_shard": ("cast_shard/", "cast_shard/bwd.", False),
    "copy_in": ("copy_in_shard/", "copy_in_shard/bwd.", False),
    "all_gather": ("all_gather/", "all_gather/bwd.", False),
    "copy_out": ("copy_out/unit.", "copy_out/bwd.", False),
    "cast_own": ("copy_out/unit.", "copy_out/bwd.", True),
    "copy_shard": ("copy_out/unit.", "copy_out/bwd.", True),
    "fwd": ("fwd/", None, False),
    "bwd": (None, "bwd/", False),
    "keep_part": ("reshard/", None, True),
    "autograd_add": (None, "accumulate/", True),
    "add_accumulated": (None, "accumulate/", True),
    "cast_gradient": (None, "cast_gradient/", True),
    "reduce_copy_in": (None, "chunk_cat/", False),
    "predivide": (None, "predivide/", False),
    "reduce_scatter": (None, "reduce_scatter/", False),
    "copy_gradient": (None, "copy_gradient/", False),
    "all_reduce": (None, "allreduce/", False),
    "postdivide": (None, "postdivide/", False),
    "cast_back": (None, "cast_back/", False),
    "add_gradient": (None, "accumulate_shard/", True),
}
LANES = {
    "shard": "comm",
    "shard_reduce": "comm_reduce_scatter",
    "replicate": "comm_replicas",
    "post_forward": "comm_post_forward",
}
HOLDS = {
    "unsharded": "gathered",
    "post_forward": "gathered",
    "gathered": "buckets",
    "cast_shard": "buckets",
    "scatter_input": "buckets",
    "gradient": "gradients",
    "accumulated": "gradients",
}
COMPARED = ("gathered", "buckets", "gradients")


def asked(log, micro_steps, hybrid, tensors):
    """Of the oracle, as fsdp_lowered.issued() has ddpsim's."""
    out, before, last, communicator = [], {}, {}, {}
    micro, backward, memory = -1, False, []
    groups = {"replicate": "replicas", "post_forward": "post_forward"}
    for e in log:
        if e["do"] == "mark" and e["what"] == "micro_batch":
            micro += 1
        elif e["do"] == "mark" and e["what"] in ("forward", "backward"):
            backward = e["what"] == "backward"
        elif e["do"] in ("allocate", "free"):
            change = (e["holds"], e["bytes"] if e["do"] == "allocate" else -e["bytes"])
            # What autograd makes comes with the operation that makes it.
            with_next = e["do"] == "allocate" and e["what"] != "gradient"
            (memory if with_next or not out else out[-1]["memory"]).append(change)
        elif e["do"] == "op":
            words = WORDS.get(e["kind"], ("optimizer", None, False))
            who = e["unit"].rpartition(".")[0] if e["kind"] == "autograd_add" else e["unit"]
            name = words[backward and e["kind"] != "optimizer"]
            name += "" if e["kind"] == "optimizer" else who
            if micro_steps > 1 and e["kind"] != "optimizer":
                name = f"micro{micro}/{name}"
            ready = set()
            for other in [*e["waits"], last.get(e["stream"]), communicator.get(e.get("group"))]:
                ready |= before.get(other, set())
            last[e["stream"]] = e["op"]
            if "group" in e:
                communicator[e["group"]] = e["op"]
            before[e["op"]] = ready | {name}
            size = e["bytes"] if "group" in e else e.get("read", 0) + e.get("write", 0)
            if words[2] and out and out[-1]["op"] == name:
                out[-1]["kernels"] += 1
                out[-1]["bytes"] += size
                out[-1]["memory"] += memory
                memory = []
                continue
            group = e.get("group")
            out.append(
                {
                    "op": name,
                    "stream": LANES[group] if group else e["stream"],
                    "bytes": size,
                    "kernels": None if group or not size else 1,
                    "dtype": e["dtype"] if group else None,
                    "operation": e["kind"] if group else None,
                    "tensors": tensors[e["unit"]] if group else [],
                    "group": groups.get(group, "shard" if hybrid else "world") if group else None,
                    "after": ready - {name},
                    "memory": memory,
                }
            )
            memory = []
    return out


def name_holders(log):
    """Of each allocation and each freeing what ddpsim says holds it. What a reduction makes is a
    gradient if it is still there when the step ends."""
    there = {}
    for e in log:
        if e["do"] not in ("allocate", "free"):
            continue
        e["holds"] = HOLDS.get(e["what"], "gradients")
        if e["what"] in HOLDS:
            continue
        made = there.setdefault((e["what"], e["unit"], e["bytes"]), [])
        if e["do"] == "allocate":
            made.append(e)
        elif made:
            e["holds"] = made.pop()["holds"] = "buckets"


def ledger(ops):
    """Of each operation: by holder what it allocates and frees, and the most that is there while it
    does; and the most of each holder, and of all."""
    per_op, now, most = [], dict.fromkeys((*COMPARED, "all"), 0), {}
    for o in ops:
        sums, here = {}, now["all"]
        for holds, size in o["memory"]:
            if holds not in COMPARED:
                continue
            both = sums.setdefault(holds, [0, 0])
            both[size < 0] += size
            for key in (holds, "all"):
                now[key] += size
                most[key] = max(most.get(key, 0), now[key])
            here = max(here, now["all"])
        per_op.append((sums, here))
    return per_op, most


def of_memory(ours, oracles):
    (a, most_a), (b, most_b) = ledger(ours), ledger(oracles)
    for o, (x, here_x), (y, here_y) in zip(ours, a, b):
        for holds in COMPARED:
            was, is_ = x.get(holds, [0, 0]), y.get(holds, [0, 0])
            if was != is_:
                yield f"{o['op']}: {holds} {was}, the oracle says {is_}"
        if here_x != here_y:
            yield f"{o['op']}: {here_x} B are there, the oracle says {here_y}"
    for key in most_b:
        if most_a.get(key) != most_b[key]:
            yield f"most of {key}: {most_a.get(key)}, the oracle says {most_b[key]}"


def both(ddpsim, workload, ranks, knobs):
    ours = issued(lowered(ddpsim, workload, ranks, knobs, "fsdp2"))
    for o in ours:
        o["memory"] = [(m["holds"], m["bytes"]) for m in o["memory"]]
    said, tensors = question(workload, ranks, knobs)
    log = fsdp2.steps(said)[-1]
    name_holders(log)
    # zero_grad() is at the next step's beginning here, and the optimizer's in ddpsim.
    start = next(i for i, e in enumerate(log) if e["do"] == "mark")
    hybrid = len(said["mesh"]) == 2
    oracles = asked(log[start:] + log[:start], said["accumulation_steps"], hybrid, tensors)
    return ours, oracles


def found(ours, oracles):
    different = list(differences(ours, oracles))
    same = [o["op"] for o in ours] == [o["op"] for o in oracles]
    return different + (list(of_memory(ours, oracles)) if same else [])


def ends_in_a_block(folder):
    """GPT-2 without what comes after its blocks: the hooks of the last block and of the root are of
    one tensor."""
    document = json.loads((ROOT / "workloads" / "gpt2-small.json").read_text())
    keep = next(i for i, t in enumerate(document["tensors"]) if t["name"].endswith("ln_f.weight"))
    document["layers"] = document["layers"][:-3]
    document["tensors"] = document["tensors"][:keep]
    document["arrival"] = [t for t in document["arrival"] if t < keep]
    path = Path(folder) / "ends-in-a-block.json"
    path.write_text(json.dumps(document))
    return str(path)


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    ddpsim = sys.argv[1]
    if sys.argv[2:] == ["--self-test"]:
        return self_test(ddpsim)
    with tempfile.TemporaryDirectory() as folder:
        last = (ends_in_a_block(folder), 8, {"reshard_after_forward": True, **LAST})
        return compare(ddpsim, [*CASES, last, *frozen_cases(folder)])


def frozen_cases(folder):
    """Frozen units, the first ones too; units of which some parameters are frozen, in their own
    dtype."""
    first = ("transformer.wte", "transformer.wpe", *(f"transformer.h.{i}." for i in range(4)))
    units = with_frozen(folder, "units", lambda n: int(n.startswith((*first, "transformer.h.9."))))
    mixed = with_frozen(folder, "mixed", lambda n: int(".attn." in n or n.startswith(first)))
    typed = with_frozen(folder, "typed", lambda n: int(".mlp." in n or "wpe" in n), "bfloat16")
    front = with_frozen(folder, "front", lambda n: int(n.startswith(first)))
    return [
        (units, 8, {}),
        (units, 8, {"reshard_after_forward": False, **LAST}),
        (units, 8, {"pytorch": "2.12", "forward_prefetch_units": 2, "backward_prefetch_units": 2}),
        (units, 16, {"shard_degree": 8, **NO_SYNC, **HALVES, "pytorch": "2.11"}),
        (units, 1, LAST),
        (mixed, 8, {}),
        (mixed, 6, {**NO_SYNC, "pytorch": "2.12"}),
        (mixed, 8, {**HALVES, **LAST}),
        (typed, 8, LAST),
        (typed, 8, {**HALVES, "pytorch": "2.11"}),
        (typed, 16, {"reshard_after_forward": 8, "param_dtype": "bfloat16", **LAST}),
        (front, 8, {}),
        (front, 8, {"reshard_after_forward": False}),
        (front, 7, {"reshard_after_forward": True, **LAST}),
    ]


def compare(ddpsim, cases):
    failed, operations, changes = 0, 0, 0
    for workload, ranks, knobs in cases:
        ours, oracles = both(ddpsim, workload, ranks, knobs)
        different = found(ours, oracles)
        operations += len(ours)
        changes += sum(len(o["memory"]) for o in ours)
        if different:
            failed += 1
            print(f"{workload} on {ranks}, {knobs}: {len(different)} differences")
            for line in different[:6]:
                print("   ", line)
    print(
        f"{len(cases) - failed} of {len(cases)} Programs, {operations} operations, {changes}"
        " changes of memory: equal"
    )
    return 1 if failed else 0


def self_test(ddpsim):
    """Planted changes, each noticed."""
    ours, oracles = both(ddpsim, "gpt2-small", 6, {**NO_SYNC, **HALVES, "pytorch": "2.12"})
    missed = [] if not found(ours, oracles) else ["equal to begin with"]
    planted = 0

    def plant(what, change):
        nonlocal planted
        planted += 1
        other = copy.deepcopy(ours)
        change(other)
        if not found(other, oracles):
            missed.append(what)

    def at(name):
        return next(i for i, o in enumerate(ours) if o["op"] == f"micro2/{name}")

    gather, scatter = at("all_gather/bwd.h.3"), at("reduce_scatter/h.3")
    several, cat, out = at("accumulate/h.3"), at("chunk_cat/h.3"), at("copy_out/unit.h.3")
    plant("bytes", lambda o: o[gather].update(bytes=o[gather]["bytes"] + 4))
    plant("bytes of a copy", lambda o: o[cat].update(bytes=o[cat]["bytes"] - 2))
    plant("dtype", lambda o: o[scatter].update(dtype="bfloat16"))
    plant("a tensor", lambda o: o[gather]["tensors"].pop())
    plant("an operation less", lambda o: o.pop(gather))
    plant("order", lambda o: o.insert(gather, o.pop(gather + 1)))
    plant("a wait less", lambda o: o[cat]["after"].discard("micro2/reduce_scatter/h.4"))
    plant("a wait more", lambda o: o[cat]["after"].add("micro2/reduce_scatter/h.2"))
    plant("a stream", lambda o: o[cat].update(stream="reduce_scatter"))
    plant("a group", lambda o: o[gather].update(group="shard"))
    plant("kernels", lambda o: o[several].update(kernels=1))
    plant("what holds it", lambda o: o[gather]["memory"].append(("gradients", 4)))
    plant("freed earlier", lambda o: o[cat]["memory"].append(o[scatter]["memory"].pop()))
    plant("never freed", lambda o: o[cat]["memory"].pop())
    plant("freed before what follows is there", lambda o: o[out]["memory"].reverse())
    print("self-test:", f"missed {missed}" if missed else f"{planted} planted changes noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
