"""Says what fsdp2.py says in the form of a recording, and where the two differ, for
recorded_orders.py.

Compared is every event of four steps in the host's order: kernels (bytes read and written, stream),
collectives (unit, elements, bytes, dtype, group, stream, operation), waits (which stream, for which
stream, after how many operations of FSDP2 on it), what is allocated and when the last reference to
it is dropped (bytes, stream), which gradients arrive between, and where hooks run.
"""
import fsdp2

KERNELS = {
    "cast_shard": "foreach_copy",
    "copy_in": "foreach_copy",
    "copy_out": "split_with_sizes_copy",
    "copy_shard": "copy",
    "cast_own": "to",
    "copy_gradient": "copy",
    "keep_part": "clone",
    "add_accumulated": "add",
    "cast_gradient": "to",
    "reduce_copy_in": "chunk_cat",
    "predivide": "div",
    "postdivide": "div",
    "add_partial": "add",
    "cast_back": "to",
    "add_gradient": "add",
}
OF_THE_RECORDER = ("wrap",)


def question_of(recording, brackets):
    parameters = recording["parameters"]
    first = recording["steps"][0]["events"]
    micro_steps = recording["knobs"]["accumulation_steps"]
    modules = [e[1] for e in first if e[0] == "f"]
    units = recording["units_in_module_order"]
    knobs = {k: v for k, v in recording["knobs"].items() if k not in OF_THE_RECORDER}
    return {
        "version": recording["of"],
        "mesh": recording["mesh"],
        "units": [
            {"unit": u["unit"], "parameters": [parameters[t] for t in u["tensors"]]} for u in units
        ],
        "forward": brackets([u["unit"] for u in units], modules[: len(modules) // micro_steps]),
        "steps": len(recording["steps"]),
        **knobs,
    }


def streams_name(stream):
    if stream.startswith("nccl/"):
        return "nccl"
    return "main" if stream == fsdp2.COMPUTE else stream


def told(log, index, at):
    """The oracle's log as events of a recording. `at`: of each operation, how many of its stream
    and step there were with it; an event may be of the step before."""
    count, events = {}, []
    for e in log:
        stream = streams_name(e.get("stream", ""))
        if e["do"] == "mark" and e["unit"] is not None:
            events.append(["m", e["what"], e["unit"]])
        elif e["do"] == "mark" and e["what"] != "step":
            events.append(["m", e["what"]])
        elif e["do"] == "gradient":
            events.append(["g", index[e["parameter"]]])
        elif e["do"] == "wait":
            on = streams_name(e["on"])
            after = count.get(on, 0) if e["how"] == "stream" else at.get(e["after"], 0)
            events.append(["w", stream, on, e["how"], after])
        elif e["do"] in ("allocate", "free") and e["what"] != "gradient":
            events.append(["a", e["do"], e["bytes"], stream])
        elif e["do"] == "op":
            kind = e["kind"]
            own = kind in KERNELS or "group" in e
            count[stream] = count.get(stream, 0) + own
            at[e["op"]] = count[stream]
            if kind == "fwd":
                events.append(["f", e["unit"]])
            elif kind in KERNELS:
                events.append(["k", KERNELS[kind], e["read"], e["write"], stream])
            elif "group" in e:
                said = {k: e[k] for k in ("elements", "dtype", "bytes", "group", "ranks", "unit")}
                said["op"], said["queue"] = kind, streams_name(e["issued_on"])
                said["async"] = stream == "nccl"
                said["reduce_op"] = e.get("reduce_op")
                events.append(["c", said])
    return events


def comparable(events):
    """Gradients that arrive with nothing between come in autograd's order, which is not FSDP2's."""
    made, arrived = [], set()
    for e in [*events, ["m", "end"]]:
        if e[0] == "g":
            arrived.add(e[1])
            continue
        if arrived:
            made.append(["g", *sorted(arrived)])
            arrived = set()
        made.append(e)
    return made


def differences(recording, brackets):
    question = question_of(recording, brackets)
    index = {p[0]: i for i, p in enumerate(recording["parameters"])}
    steps, at, found, compared = [], {}, [], 0
    for number, log in enumerate(fsdp2.steps(question)):
        step = recording["steps"][number]
        events = step["events"] if "events" in step else steps[step["same_as"]]
        steps.append(events)
        here, there = comparable(told(log, index, at)), comparable(events)
        compared += len(there)
        for place, (a, b) in enumerate(zip([*here, None], [*there, None])):
            if a != b:
                found.append(f"step {number}, event {place}: {a} is recorded as {b}")
                break
    return found, compared
