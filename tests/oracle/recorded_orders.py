#!/usr/bin/env python3
"""Do fsdp1.py and horovod.py say what FSDP and Horovod did? Holds both against every schedule of
them in tests/data/recorded_orders (its README says who recorded them, how, and what a recording may
have changed).

FSDP: operation by operation of every step, in the order in which the host issued them: collectives
(operation, unit, tensors, elements, bytes, dtype, group, stream, prefetched or not, the last gradient
before them), waits of streams, waits of the host, divisions, what is freed and what is kept.
Horovod: what is fused differs from step to step, so each recorded step must be one that the rules
allow, and the steps' distribution must be the one that the oracle makes of the recorded ready times.

  recorded_orders.py              exit code 1 if anything differs
  recorded_orders.py --self-test  it notices a schedule that was changed
  recorded_orders.py --table      what each recording was found to be
  recorded_orders.py --reduce FROM  makes tests/data/recorded_orders of a folder of recordings
"""
import copy
import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fsdp1
import horovod

DATA = Path(__file__).resolve().parents[1] / "data/recorded_orders"
DROPPED = ("parameter_shapes", "buffers", "compute", "compute_note", "gradient_arrival_order",
           "load_average_after")
DROPPED_OF_STEP = ("forward_end_us", "backward_end_us", "end_us", "end_us_all_ranks")


def load(path):
    text = gzip.open(path).read() if path.name.endswith(".gz") else path.read_bytes()
    return json.loads(text)


def reduce_folder(folder):
    for path in sorted(Path(folder).iterdir()):
        if not path.name.startswith(("fsdp1__", "horovod__")):
            continue
        said = load(path)
        name = path.name.removesuffix(".gz")
        for key in DROPPED:
            said.pop(key, None)
        if said["system"] == "horovod":
            for step in said["steps"]:
                for key in DROPPED_OF_STEP:
                    step.pop(key, None)
        text = json.dumps(said, separators=(",", ":")).encode()
        if said["system"] == "horovod":          # 4 MB as text
            (DATA / (name + ".gz")).write_bytes(gzip.compress(text, 9, mtime=0))
        else:
            (DATA / name).write_bytes(text.replace(b',["', b',\n["') + b"\n")


# --- FSDP ------------------------------------------------------------------------------------------
def brackets(units, modules):
    """Where each unit's forward begins and ends, from the order in which modules ran alone."""
    def inside(unit, module):
        return unit == "(root)" or module == unit or module.startswith(unit + ".")

    order, open_units = [], []
    for at, module in enumerate(modules):
        while open_units and not inside(open_units[-1], module):
            order.append(["exit", open_units.pop()])
        for unit in units:                       # module order: the outer one first
            if inside(unit, module) and unit not in open_units:
                order.append(["enter", unit])
                open_units.append(unit)
        order.append(["compute", module])
        gone = [u for u in open_units if not any(inside(u, m) for m in modules[at + 1:])]
        for unit in reversed(open_units):
            if unit in gone:
                order.append(["exit", unit])
        open_units = [u for u in open_units if u not in gone]
    return order


def question_of(recording):
    knobs = recording["knobs"]
    sizes = {i: p[1] for i, p in enumerate(recording["parameters"])}
    dtypes = {p[2] for p in recording["parameters"]}
    sizes[-1] = sizes[0]                         # a tied embedding that wrapping by size untied
    units = [{"unit": u["unit"], "tensors": u["tensors"], "elements": [sizes[t] for t in u["tensors"]]}
             for u in recording["units_in_module_order"]]
    if units[0]["unit"] != "(root)":
        units.insert(0, {"unit": "(root)", "tensors": [], "elements": []})
    first = recording["steps"][0]["phases"]
    micro_steps = max(1, sum(e[0] == "m" and e[1] == "micro_batch" for e in first["forward"]))
    modules = [e[1] for e in first["forward"] if e[0] == "f"]
    modules = modules[:len(modules) // micro_steps]
    question = {"version": recording.get("of", "1.13"), "world_size": recording["world_size"],
                "units": units, "dtype": dtypes.pop(),
                "forward": brackets([u["unit"] for u in units], modules),
                "sharding_strategy": knobs["sharding_strategy"], "steps": len(recording["steps"]),
                "accumulation_steps": micro_steps, "set_to_none": True}
    for knob in ("forward_prefetch", "limit_all_gathers", "no_sync"):
        if knob in knobs:
            question[knob] = knobs[knob] == "True"
    if "backward_prefetch" in knobs:
        question["backward_prefetch"] = knobs["backward_prefetch"]
    for knob in ("param_dtype", "reduce_dtype", "gpus_per_host", "use_orig_params"):
        if knob in knobs:
            question[knob] = knobs[knob]
    return question


def as_recorded(log, micro_steps, world_size):
    """The oracle's step in the words of the recordings. Left out is what they do not have: copies
    inside PyTorch's C++ (flatten, pad, accumulate), memory, backward's computation, optimizer."""
    phases, into, last = {"forward": [], "backward": [], "step": []}, None, None
    stream = {"compute": "main"}
    for e in log:
        what = e["do"]
        if what == "mark":
            if e["what"] in phases:
                into = phases[e["what"]]
            elif e["what"] == "micro_batch":
                if micro_steps > 1:
                    phases["forward"].append(["m", "micro_batch", e["unit"]])
                    phases["backward"].append(["m", "micro_batch", e["unit"]])
            else:
                into.append(["m", e["what"], e["unit"]])
        elif what == "wait":
            into.append(["w", stream.get(e["stream"], e["stream"]), stream.get(e["on"], e["on"]),
                         "stream"])
        elif what == "host_wait":
            into.append(["h", "event.synchronize", "ev@main"])
        elif what == "gradient":
            last = e["tensor"]
            into.append(["g", last])
        elif what == "op" and "operation" in e:
            said = {"op": e["operation"], "elements": e["elements"], "dtype": e["dtype"],
                    "bytes": e["bytes"], "group": world_size,
                    "queue": stream.get(e["stream"], e["stream"]), "async": False,
                    "after_grad": last}
            if e["operation"] == "all_gather":
                said["in_elements"] = e["shard_elements"]
            if e["operation"] == "reduce_scatter":
                said["out_elements"] = e["shard_elements"]
            if e["operation"] == "all_reduce":
                said["reduce_op"] = "SUM"
            if e["unit"] is not None:
                said.update(unit=e["unit"], tensors=e["tensors"])
                if e["operation"] == "all_gather":
                    said["prefetch"] = e["prefetch"]
            into.append(["c", said])
        elif what == "op" and e.get("kernel") == "div":
            into.append(["l", "div", e["elements"], 1, e["stream"]])
        elif what == "op" and e["op"].startswith("fwd/"):
            into.append(["f", e["module"]])
    return phases


def fsdp_differences(recording):
    question = question_of(recording)
    found, compared = [], 0
    recorded = recording["steps"]
    for number, log in enumerate(fsdp1.steps(question)):
        step = recorded[number]
        if step.get("same_as") is not None:
            step = recorded[step["same_as"]]
        phases = as_recorded(log, question["accumulation_steps"], recording["world_size"])
        for phase, said in phases.items():
            there = step["phases"].get(phase, [])
            compared += len(there)
            for at, (a, b) in enumerate(zip(said, there)):
                if a != b:
                    found.append(f"step {number} {phase} {at}: oracle {a}, recorded {b}")
                    break
            else:
                if len(said) != len(there):
                    longer = said if len(said) > len(there) else there
                    found.append(f"step {number} {phase}: {len(said)} here, {len(there)} recorded; "
                                 f"the first more is {longer[min(len(said), len(there))]}")
    return found, compared


# --- Horovod ---------------------------------------------------------------------------------------
