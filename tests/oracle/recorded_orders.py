#!/usr/bin/env python3
"""Do fsdp1.py, fsdp2.py and horovod.py say what FSDP and Horovod did? Holds them against every
schedule in tests/data/recorded_orders (its README says who recorded them, how, and what a recording
may have changed).

FSDP: operation by operation of every step, in the order in which the host issued them: collectives
(operation, unit, tensors, elements, bytes, dtype, group, stream, prefetched or not, the last
gradient before them), waits of streams, waits of the host, divisions, what is freed and what is
kept, and where the recording has it, the storage of flat parameters as it comes and goes.
FSDP2: recorded_fsdp2.py says what is compared.
Horovod: recorded_horovod.py says.

  recorded_orders.py [FOLDER]     exit code 1 if anything differs
  recorded_orders.py --self-test  it notices a schedule that was changed
  recorded_orders.py --table      what each recording was found to be
  recorded_orders.py --reduce FROM  makes tests/data/recorded_orders of a folder of recordings
"""
import sys

import fsdp1
import fsdp2
import horovod
import recorded_fsdp2
import recorded_horovod
import recordings

DROPPED = ("parameter_shapes", "buffers", "compute", "compute_note", "gradient_arrival_order",
           "load_average_after")
SWITCHES = ("forward_prefetch", "limit_all_gathers", "no_sync", "clip_grad_norm",
            "use_orig_params", "debug_detail", "keep_low_precision_grads", "cpu_offload")
CHOICES = ("backward_prefetch", "param_dtype", "reduce_dtype", "gpus_per_host")
DROPPED_OF_STEP = ("forward_end_us", "backward_end_us", "end_us", "end_us_all_ranks")


def reduced(said):
    for key in DROPPED:
        said.pop(key, None)
    for step in said["steps"] if said["system"] == "horovod" else []:
        for key in DROPPED_OF_STEP:
            step.pop(key, None)
    return said


# --- FSDP
def brackets(units, modules):
    """Where each unit's forward begins and ends, from the order in which modules ran alone."""

    def inside(unit, module):
        return unit == "(root)" or module == unit or module.startswith(unit + ".")

    order, open_units = [], []
    for at, module in enumerate(modules):
        while open_units and not inside(open_units[-1], module):
            order.append(["exit", open_units.pop()])
        for unit in units:  # module order: the outer one first
            if inside(unit, module) and unit not in open_units:
                order.append(["enter", unit])
                open_units.append(unit)
        order.append(["compute", module])
        gone = [u for u in open_units if not any(inside(u, m) for m in modules[at + 1 :])]
        for unit in reversed(open_units):
            if unit in gone:
                order.append(["exit", unit])
        open_units = [u for u in open_units if u not in gone]
    return order


def question_of(recording):
    knobs = recording["knobs"]
    sizes = {i: p[1] for i, p in enumerate(recording["parameters"])}
    dtypes = {p[2] for p in recording["parameters"]}
    sizes[-1] = sizes[0]  # a tied embedding that wrapping by size untied
    units = [
        {
            "unit": u["unit"],
            "tensors": u["tensors"],
            "elements": [sizes[t] for t in u["tensors"]],
            "requires_grad": u.get("requires_grad", True),
        }
        for u in recording["units_in_module_order"]
    ]
    if units[0]["unit"] != "(root)":
        units.insert(0, {"unit": "(root)", "tensors": [], "elements": []})
    first = recording["steps"][0]["phases"]
    micro_steps = max(1, sum(e[0] == "m" and e[1] == "micro_batch" for e in first["forward"]))
    modules = [e[1] for e in first["forward"] if e[0] == "f"]
    modules = modules[: len(modules) // micro_steps]
    question = {
        "version": recording.get("of", "1.13"),
        "world_size": recording["world_size"],
        "units": units,
        "dtype": dtypes.pop(),
        "forward": brackets([u["unit"] for u in units], modules),
        "sharding_strategy": knobs["sharding_strategy"],
        "steps": len(recording["steps"]),
        "accumulation_steps": micro_steps,
        "set_to_none": True,
    }
    question |= {knob: knobs[knob] == "True" for knob in SWITCHES if knob in knobs}
    return question | {knob: knobs[knob] for knob in CHOICES if knob in knobs}


def as_recorded(log, micro_steps, group_sizes, memory=False):
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
            into.append(
                ["w", stream.get(e["stream"], e["stream"]), stream.get(e["on"], e["on"]), "stream"]
            )
        elif what == "host_wait":
            into.append(
                ["h", "event.synchronize", "ev@main"]
                if e["why"] == "rate_limiter"
                else ["h", e["why"], "main"]
            )
        elif what in ("allocate", "free"):
            if memory and e["what"] in ("unsharded", "low_precision_shard"):
                into.append(["a", what, e["bytes"], stream.get(e["stream"], e["stream"])])
        elif what == "gradient":
            last = e["tensor"]
            into.append(["g", last])
        elif what == "op" and "operation" in e:
            said = {
                "op": e["operation"],
                "elements": e["elements"],
                "dtype": e["dtype"],
                "bytes": e["bytes"],
                "group": group_sizes[e["group"]],
                "queue": stream.get(e["stream"], e["stream"]),
                "async": False,
                "after_grad": last,
            }
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
        elif what == "host_op":
            if e["op"].startswith("wait/to_host"):  # and what the host computes is not recorded
                into.append(["h", "stream.synchronize", "main"])
        elif what == "op" and e.get("kernel") == "move":
            into.append(["l", e["op"].split("/")[0], e["elements"], 1, e["stream"]])
        elif what == "op" and e.get("kernel") == "div":
            into.append(["l", "div", e["elements"], 1, e["stream"]])
        elif what == "op" and e["op"].startswith("fwd/"):
            into.append(["f", e["module"]])
    return phases


def fsdp_differences(recording):
    question = question_of(recording)
    ranks = recording["world_size"]
    host = question.get("gpus_per_host") or ranks
    groups = {"world": ranks, "shard": host, "replicas": ranks // host}
    micro_steps, memory = question["accumulation_steps"], recording.get("memory", False)
    made = [as_recorded(log, micro_steps, groups, memory) for log in fsdp1.steps(question)]
    found = []
    return found, recordings.compare_steps(made, recording["steps"], found)


# --- the test
def differences(recording):
    if recording["system"] == "fsdp1":
        found, compared = fsdp_differences(recording)
        return found, {"events": compared}
    if recording["system"] == "fsdp2":
        found, compared = recorded_fsdp2.differences(recording, brackets)
        return found, {"events": compared}
    return recorded_horovod.differences(recording)


def self_test():
    """Each kind of change to a recording must be found."""
    changes = recordings.Changes(differences, 1)
    of_fsdp1(changes)
    of_fsdp2(changes)
    of_horovod(changes)
    return changes.end()


def of_fsdp1(changes):
    changed, swap, field, drop = changes.changed, changes.swap, changes.field, changes.drop
    fsdp = "fsdp1__gpt5__full_size_post_limit__n2.json"
    changed(fsdp, "two collectives swapped", lambda r: swap(r, "c"))
    changed(fsdp, "bytes", lambda r: field(r, "bytes", 1))
    changed(fsdp, "stream", lambda r: field(r, "queue", "main"))
    changed(fsdp, "tensors", lambda r: field(r, "tensors", [1, 2]))
    changed(fsdp, "a wait of a stream lost", lambda r: drop(r, "w"))
    changed(fsdp, "a wait of the host lost", lambda r: drop(r, "h"))
    changed(fsdp, "a unit that is not freed", lambda r: drop(r, "m"))
    changed(fsdp, "another prefetch", lambda r: r["knobs"].update(backward_prefetch="BACKWARD_PRE"))
    changed(fsdp, "no limiter", lambda r: r["knobs"].update(limit_all_gathers="False"))
    changed(fsdp, "another strategy",
            lambda r: r["knobs"].update(sharding_strategy="SHARD_GRAD_OP"))
    ahead = "fsdp1_27__blocks3__fwdpf__n4.json"
    changed(ahead, "another version", lambda r: r.update(of="1.13"))
    changed(ahead, "memory", lambda r: drop(r, "a"))
    for version in ("113", "27"):
        away = f"fsdp1_{version}__blocks3__offload__n4.json"
        changed(away, "a copy or a division lost", lambda r: drop(r, "l"))
        changed(away, "the host does not wait", lambda r: drop(r, "h"))
        changed(away, "not offloaded", lambda r: r["knobs"].pop("cpu_offload"))


def of_fsdp2(changes):
    changed = changes.changed

    def one(kind, change, at=0):
        def changed_one(recording):
            steps = recording["steps"][0]["events"]
            where = [i for i, e in enumerate(steps) if e[0] == kind]
            change(steps, where[at])

        return changed_one

    def put(place, value):
        def change(steps, where):
            steps[where][place] = value

        return change

    def later(steps, where):
        steps.insert(where + 1, steps.pop(where))

    def lost(steps, where):
        del steps[where]

    second = "fsdp2_213__blocks3__buffers2__n4.json.gz"
    changed(second, "one input buffer",
            lambda r: r["knobs"].pop("set_reduce_scatter_max_input_buffers"))
    for version in ("27", "211", "212"):
        hybrid = f"fsdp2_{version}__blocks3__hsdp_bf16_reduce__n2x2.json.gz"
        changed(hybrid, "a wait lost", one("w", lost, -1))
        changed(hybrid, "a wait for something older", one("w", put(4, 0), 9))
        changed(hybrid, "a buffer kept longer", one("a", later, -4))
        changed(hybrid, "bytes of a copy", one("k", put(2, 4)))
        changed(hybrid, "stream of a division", one("k", put(4, "main"), -1))
        changed(hybrid, "a collective earlier", one("c", later, 3))
        changed(hybrid, "a gradient later", one("g", later, -1))
        changed(hybrid, "another group", lambda r: r.update(mesh=[1, 4]))
    changed("fsdp2_212__blocks3__default__n4.json.gz", "2.12 as if it freed before",
            lambda r: r.update(of="2.11"))


def of_horovod(changes):
    changed = changes.changed

    def op(recording):
        return recording["steps"][3]["ops"][0]

    fused = "horovod__resnet18__f2_c5__n2.json.gz"
    changed(fused, "order inside a fused operation", lambda r: op(r)["tensors"].reverse())
    changed(fused, "bytes", lambda r: op(r).update(bytes=4))
    changed(fused, "a threshold below what was fused",
            lambda r: r["knobs"].update(HOROVOD_FUSION_THRESHOLD=1000000))
    changed(fused, "reduced before it was ready", lambda r: op(r).update(start_us=0))
    changed(fused, "a cycle that would be too long",
            lambda r: r["knobs"].update(HOROVOD_CYCLE_TIME=40))
    changed(fused, "too few cycles", lambda r: r["steps"][3].update(cycles=0))
    changed(fused, "another vector of bits",
            lambda r: r["steps"][3].update(coordination={"allreduce:64B:BAND": 15}))
    changed(fused, "a tensor twice", lambda r: op(r)["tensors"].append(0))
    changed("horovod__gpt5__f64_c5__n2.json.gz", "no fusion at all",
            lambda r: r["knobs"].update(HOROVOD_FUSION_THRESHOLD=8))
    changed("horovod__gpt5__groups3_c1__n2.json.gz", "other groups",
            lambda r: r["knobs"].update(groups=4))


def main():
    if not {"--reduce", "--self-test"} & set(sys.argv):
        for name, why in recorded_horovod.DISTRIBUTION.items():
            print(f"known: {name}: {why}")
    return recordings.main(  # ZeRO's are recorded_zero.py's
        ("fsdp", "horovod"), differences, (("fsdp1__", "horovod__"), reduced),
        lambda: self_test() or fsdp1.self_test() or fsdp2.self_test() or horovod.self_test())


if __name__ == "__main__":
    sys.exit(main())
