#!/usr/bin/env python3
"""Do deepspeed.py and zero_redundancy.py say what DeepSpeed's ZeRO and PyTorch's
ZeroRedundancyOptimizer did? Holds both against every schedule of them in tests/data/recorded_orders
(its README says who recorded them, how, and what a recording may have changed).

Operation by operation of every step, in the order in which the host issued them, of every rank that
was recorded: collectives (operation, elements, dtype, bytes, group, communicator, stream, async or
not, tensors, root, the last gradient before them, what fetched them), waits of streams, waits of
the host, copies, divisions, casts, gradients, and for ZeRO-3 what is fetched and released.

  recorded_zero.py [FOLDER]     exit code 1 if anything differs
  recorded_zero.py --self-test  it notices a schedule that was changed
  recorded_zero.py --table      what each recording was found to be
  recorded_zero.py --reduce FROM  makes tests/data/recorded_orders of a folder of recordings
"""
import sys

import deepspeed
import recordings
import zero_redundancy

PREFIXES = ("ds_", "zero_redundancy__")

KEPT = ("system", "version", "model", "config", "knobs", "world_size", "parameters",
        "gradient_arrival_order", "observed", "steps", "rank1_steps", "other_ranks",
        "all_ranks_identical", "partition_param_index_per_rank", "ddp_logged", "profiled_steps",
        "file")
DROPPED_OF_EVENT = ("thread", "start_us", "end_us", "tensors_in_call")


def reduced(said):
    kept = {key: said[key] for key in KEPT if key in said}
    if said["system"] == "zero_redundancy":
        kept["buffers"] = said["buffers"]
    lists = [kept["steps"], kept.get("rank1_steps", []), kept.get("profiled_steps", [])]
    lists += [r["steps"] for r in kept.get("other_ranks", [])]
    for step in [s for steps in lists for s in steps]:
        for events in step.get("phases", {}).values():
            for event in events:
                if event[0] == "c":
                    for key in DROPPED_OF_EVENT:
                        event[1].pop(key, None)
    return kept


# --- DeepSpeed
def brackets(modules):
    """Where each module's forward begins and ends, from the order in which forwards begin."""

    def inside(outer, inner):
        return inner != "" and (outer == "" or inner.startswith(outer + "."))

    order, running = [], []
    for module in modules:
        while running and not inside(running[-1], module):
            order.append(["exit", running.pop()])
        order.append(["enter", module])
        running.append(module)
    return order + [["exit", m] for m in reversed(running)]


def question_of(recording, rank):
    knobs = dict(recording["knobs"])
    zero = knobs.pop("zero_optimization")
    knobs.pop("optimizer")
    first = recording["steps"][0]["phases"]["forward"]
    stage = zero["stage"]
    if stage == 3:
        ran = [e[2] for e in first if e[:2] == ["m", "fetch"]]
    else:
        ran = [e[1] for e in first if e[0] == "f"]
    ran = ran[: len(ran) // knobs["gradient_accumulation_steps"]]
    modules = recording.get("modules", {})
    for at, (name, _, _) in enumerate([] if modules else recording["parameters"]):
        modules.setdefault(name.rpartition(".")[0], []).append(at)
    question = {
        "world_size": recording["world_size"],
        "rank": rank,
        "parameters": [p[:2] for p in recording["parameters"]],
        "modules": modules,
        "forward": recording.get("forward") or brackets(ran),
        "arrival": recording["gradient_arrival_order"],
        "steps": len(recording["steps"]),
        **knobs,
        **zero,
    }
    for key in ("shapes", "devices_per_node"):
        if key in recording:
            question[key] = recording[key]
    if "no_input_gradient" in recording:
        question["no_input_gradient"] = recording["no_input_gradient"]
    if recording["model"].startswith("gpt"):
        modules["lm_head"] = [0]  # tied to the embedding of tokens
        question["no_input_gradient"] = ["", "wte", "wpe"]
    return question


STREAMS = {
    1: {"main": "main", "reduction": "stream0"},
    3: {"main": "main", "all_gather": "stream0", "reduce_and_partition": "stream1"},
}


def communicator(name, question):
    """As it is numbered: with qgZ those of nodes and those across nodes are made first."""
    if not question.get("zero_quantized_gradients"):
        return name
    devices, rank = question["devices_per_node"], question["rank"]
    nodes = question["world_size"] // devices
    made = nodes + devices if nodes > 1 else 1
    at = {"local": rank // devices, "across": nodes + rank % devices, "g0": made}
    return f"g{at[name]}"


def as_recorded(log, question, detail):
    """The oracle's step in the words of the recordings. Left out is what they do not have: what
    PyTorch's C++ and operators do (flatten, cat, casts by .to, add_), the optimizer, computation,
    and a wait on an asynchronous collective."""
    phases, into, last = {"forward": [], "backward": [], "step": []}, None, None
    accumulates = question["gradient_accumulation_steps"] > 1
    stream = STREAMS[3 if question["stage"] == 3 else 1]
    for e in log:
        what = e["do"]
        if what == "mark":
            if e["what"] in phases:
                into = phases[e["what"]]
                if e["what"] == "forward":
                    last = None
            elif e["what"] == "micro_batch":
                for phase in phases.values():
                    if accumulates:
                        phase.append(["m", "micro_batch", e["number"]])
            elif e["what"] == "module":
                into.append(["f", e["module"]])
            elif e["what"] == "fetch":
                into.append(["m", "fetch", e["module"], "forward" if e["forward"] else "backward"])
            elif e["what"] == "release":
                into += [["m", "release", t] for t in e["tensors"]]
        elif what == "wait":
            into.append(["w", stream[e["stream"]], stream[e["on"]], "stream"])
        elif what == "host_wait":
            if e["why"] != "item":
                on = stream.get(e["on"], e["on"])
                into.append(["h", e["why"], f"ev@{on}" if e["why"].startswith("event") else on])
        elif what == "op" and "gradient" in e:
            last = e["gradient"]
            into.append(["g", last])
        elif what == "op" and "operation" in e:
            said = {
                "op": e["operation"],
                "elements": e["elements"],
                "dtype": e["dtype"],
                "bytes": e["bytes"],
                "group": e["group"],
                "queue": stream[e["stream"]],
                "async": e.get("async", False),
                "after_grad": last,
            }
            for field in ("root", "reduce_op", "issued_by"):
                if field in e:
                    said[field] = e[field]
            if e["comm"] != "world":
                said["comm"] = communicator(e["comm"], question)
            if e["operation"] == "all_gather":
                said["in_elements"] = e["shard_elements"]
            if e["operation"] == "reduce_scatter":
                said["out_elements"] = e["shard_elements"]
            if e["tensors"]:
                said["tensors"] = e["tensors"]
            into.append(["c", said])
        elif what == "wait_work" and detail:
            into.append(["w", stream[e["stream"]], e["on"].partition("/")[0], "work"])
        elif what == "op" and e.get("kernel") and (e["recorded"] or detail):
            on, pieces = stream[e["stream"]], e.get("pieces", 1)
            if into and into[-1][:2] == ["l", e["kernel"]] and into[-1][4] == on:
                into[-1][2] += e["elements"]
                into[-1][3] += pieces
            elif e["kernel"] != "optimizer":
                into.append(["l", e["kernel"], e["elements"], pieces, on])
        elif what == "op" and "module" in e and question["stage"] < 3:
            into.append(["f", e["module"]])
    return phases


def comparable(oracle, recorded):
    """The two, less what a recording does not say, or is known to say wrongly."""
    if oracle[0] == "c" and recorded[0] == "c":
        a, b = dict(oracle[1]), dict(recorded[1])
        by_id = b.pop("tensors_order", None)
        if "tensors" not in b:  # persistent parameters after a step
            a.pop("tensors", None)
        elif by_id and b["op"] == "all_reduce":
            # written down in order of registration; the buffer has them as they arrived
            a["tensors"] = sorted(a["tensors"])
        return ["c", a], ["c", b]
    return oracle, recorded


def deepspeed_differences(recording):
    found, compared = [], 0
    ranks = {recording.get("rank", 0): recording["steps"]}
    if "rank1_steps" in recording:
        ranks[1] = recording["rank1_steps"]
    if recording["all_ranks_identical"]:
        ranks |= {r: recording["steps"] for r in range(recording["world_size"])}
    for rank, steps in ranks.items():
        question = question_of(recording, rank)
        made = [
            as_recorded(log, question, recording.get("detail")) for log in deepspeed.steps(question)
        ]
        compared += recordings.compare_steps(made, steps, found, f"rank {rank} ", comparable)
    observed, oracle = recording["observed"], deepspeed.rank_of(question)
    if question["stage"] == 3:
        said = {"persistent_params": oracle.persistent, "partition_numel": oracle.shard}
    else:
        said = {"partition_size": [oracle.partitions.size]}
    for what, value in said.items():
        if what in observed and observed[what] != value:
            found.append(f"{what}: oracle {value}, recorded {observed[what]}")
    return found, {"ranks": sorted(ranks), "events": compared}


# --- ZeroRedundancyOptimizer
def redundancy_differences(recording):
    """Forward and backward were seen when a worker executed them: an all-reduce may stand after
    gradients that arrived later, two broadcasts of buffers may have changed places, and nothing is
    said about what they carry. Rank 0's are taken from its profile: `steps` has no broadcast of new
    buckets, and in the two recordings of gpt5 a later step in place of the first."""
    found, compared = [], 0
    question = {
        "world_size": recording["world_size"],
        "parameters": [p[:2] for p in recording["parameters"]],
        "arrival": recording["gradient_arrival_order"],
        "buffers": recording["buffers"],
        "steps": len(recording["steps"]),
        **recording["knobs"],
    }

    def same(what, said, there):
        if said != there:
            found.append(f"{what}: oracle {said}, recorded {there}")

    made = zero_redundancy.steps(question)
    if not question.get("parameters_as_bucket_view"):
        elements = [p[1] for p in recording["parameters"]]
        same(
            "partition",
            zero_redundancy.partition(elements, question["world_size"]),
            recording["partition_param_index_per_rank"],
        )
    plan = [e["tensors"] for e in made[1] if e.get("operation") == "all_reduce"]
    logged = recording["ddp_logged"]["rebuilt_per_bucket_param_indices"]
    same("buckets", plan, [[int(t) for t in b.split()] for b in logged.split(",")])
    ranks = {0: recording["steps"]}
    ranks |= {r["rank"]: r["steps"] for r in recording.get("other_ranks", [])}
    for rank, recorded in ranks.items():
        for number, log in enumerate(made):
            step = recorded[number]
            if step.get("same_as") is not None:
                step = recorded[step["same_as"]]
            if rank == 0:
                profile = recording["profiled_steps"][number]["phases"]
                step = {"phases": {**profile, "step": step["phases"]["step"]}}
            said = {"forward": [], "backward": [], "step": []}
            gradients, carried = [], []
            for e in log:
                if e["do"] == "mark":
                    into = said[e["what"]]
                elif e["do"] == "gradient":
                    gradients.append(e["tensor"])
                elif "operation" in e and (rank == 0 or not e.get("blocks_host")):
                    into.append([e["operation"], e["elements"], e["dtype"], e["bytes"]])
                    if e["operation"] == "all_reduce":
                        carried.append(e["tensors"])
                    elif "tensors" in e:
                        into[-1] += [e["root"], e["group"], e["async"]]
            there = {"forward": [], "backward": [], "step": []}
            arrived, reduced = [], 0
            for phase, events in there.items():
                for kind, e in step["phases"][phase]:
                    compared += 1
                    if kind == "g":
                        arrived.append(e)
                        continue
                    events.append([e["op"], e["elements"], e["dtype"], e["bytes"]])
                    if phase == "step":
                        events[-1] += [e["root"], e["group"], e["async"]]
                    if phase == "backward" and reduced < len(carried):
                        early = set(carried[reduced]) - set(arrived)
                        same(f"step {number}: reduced before it was there", sorted(early), [])
                        reduced += 1
            said["forward"].sort()
            there["forward"].sort()
            same(f"rank {rank} step {number}: gradients", gradients, arrived)
            for phase in said:
                same(f"rank {rank} step {number} {phase}", said[phase], there[phase])
    return found, {"ranks": sorted(ranks), "events": compared}


# --- the test
def differences(recording):
    if recording["system"] == "deepspeed":
        return deepspeed_differences(recording)
    return redundancy_differences(recording)


def lose(recording, kind, place, what, phase="backward"):
    said = recording["steps"][2]["phases"][phase]
    del said[next(i for i, e in enumerate(said) if e[0] == kind and e[place] == what)]


def used_once(recording):
    said = recording["steps"][0]["phases"]["forward"]
    del said[[i for i, e in enumerate(said) if e[0] == "m" and e[2] == "b"][1]]


def zero(recording, **knobs):
    recording["knobs"]["zero_optimization"].update(knobs)


def of_stages_1_and_2(changes):
    changed, swap, field, drop = changes.changed, changes.swap, changes.field, changes.drop

    def tensors(recording):
        said, where = changes.events(recording, "c")
        return said[where[2]][1]["tensors"]

    one = "ds_zero1__gpt5__small_overlap__n2.json.gz"
    two = "ds_zero2__gpt5__small_n4__n4.json.gz"
    changed(one, "two collectives swapped", lambda r: swap(r, "c"))
    changed(one, "bytes", lambda r: field(r, "bytes", 1))
    changed(one, "elements", lambda r: field(r, "elements", 1, -1))
    changed(one, "stream", lambda r: field(r, "queue", "main"))
    changed(one, "async", lambda r: field(r, "async", True))
    changed(one, "communicator", lambda r: field(r, "comm", "g1"))
    changed(one, "order inside a bucket", lambda r: tensors(r).reverse())
    changed(one, "a wait of a stream lost", lambda r: drop(r, "w"))
    changed(one, "a wait of the host lost", lambda r: drop(r, "h"))
    changed(one, "a copy lost", lambda r: drop(r, "l", at=-1))
    changed(one, "no overlap", lambda r: zero(r, overlap_comm=False))
    late = "ds_zero1__gpt5__small__n2.json.gz"
    changed(late, "the other stage", lambda r: zero(r, stage=2))
    changed(two, "a bucket that is larger by an element",
            lambda r: zero(r, reduce_bucket_size=296831))
    changed(two, "one reduction an owner", lambda r: zero(r, use_multi_rank_bucket_allreduce=False))
    changed(two, "no slices", lambda r: zero(r, reduce_scatter=False))
    changed(two, "round robin", lambda r: zero(r, round_robin_gradients=True))
    changed(two, "an all-gather lost", lambda r: drop(r, "c", "step", -1))
    changed(two, "the other rank's copies", lambda r: r.update(rank1_steps=r["steps"]))


def of_stage_3(changes):
    changed, swap, field, drop = changes.changed, changes.swap, changes.field, changes.drop
    three = "ds_zero3__gpt5__reuse_mid__n2.json.gz"
    changed(three, "two gathers swapped", lambda r: swap(r, "c", "forward"))
    changed(three, "who fetches", lambda r: field(r, "issued_by", "h.1", phase="forward"))
    changed(three, "what is gathered", lambda r: field(r, "tensors", [1], phase="forward"))
    changed(three, "a release lost", lambda r: drop(r, "m", at=-1))
    changed(three, "an event's wait lost", lambda r: drop(r, "h", "forward", -1))
    again = "ds_zero3__gpt5__pf0_reuse0_persist0__n2.json.gz"
    changed(again, "reuse", lambda r: zero(r, stage3_max_reuse_distance=200000))
    changed(three, "prefetch", lambda r: zero(r, stage3_prefetch_bucket_size=200000))
    changed(three, "live", lambda r: zero(r, stage3_max_live_parameters=1000000))
    changed(three, "persistent", lambda r: zero(r, stage3_param_persistence_threshold=200))
    changed(three, "buckets", lambda r: zero(r, reduce_bucket_size=500000))


def of_details(changes):
    changed = changes.changed
    detail = "ds_0145_zero3__blocks3__small__n3r1.json.gz"
    changed(detail, "a cat lost", lambda r: lose(r, "l", 1, "cat"))
    changed(detail, "a wait on a collective lost", lambda r: lose(r, "w", 3, "work", "forward"))
    changed(detail, "the other rank", lambda r: r.update(rank=2))
    tied = "ds_0145_zero3__twice__nothing_ahead__n2r0.json.gz"
    changed(tied, "used once", lambda r: used_once(r))
    away = "ds_0145_zero3__blocks3__offload_params__n2r1.json.gz"
    for how in ("to_host", "to_device", "double", "to_host_blocking"):
        changed(away, f"a {how} lost", lambda r, how=how: lose(r, "l", 1, how))
    changed(away, "a shard lost", lambda r: lose(r, "l", 1, "to_device_blocking", "forward"))
    for how in ("host_mul", "host_copy"):
        changed(away, f"a {how} lost", lambda r, how=how: lose(r, "l", 1, how, "step"))
    changed(away, "weights on the device", lambda r: zero(r, offload_param=None))


def of_quantised(changes):
    changed, drop = changes.changed, changes.drop
    bytes_of = "ds_0145_zero3__eights__qwz__n2r0.json.gz"
    for how in ("quantize", "dequantize"):
        changed(bytes_of, f"a {how} lost", lambda r, how=how: lose(r, "l", 1, how, "forward"))
    changed(bytes_of, "scales lost", lambda r: drop(r, "c", "forward", 1))
    changed(bytes_of, "whole weights", lambda r: zero(r, zero_quantized_weights=False))
    ints = "ds_0145_zero3__plates__qgz__n4r0.json.gz"
    for how in ("swizzle_quant", "quantized_reduction", "dequantize", "add_new", "div_new"):
        changed(ints, f"a {how} lost", lambda r, how=how: lose(r, "l", 1, how))
    changed(ints, "an all-to-all lost", lambda r: drop(r, "c", at=-4))
    changed(ints, "another node", lambda r: r.update(rank=2))
    changed(ints, "larger nodes", lambda r: r.update(devices_per_node=4))
    changed(ints, "flat gradients", lambda r: r.update(shapes=[]))
    changed(ints, "halves", lambda r: zero(r, zero_quantized_gradients=False))


def of_redundancy(changes):
    changed, events = changes.changed, changes.events
    four = "zero_redundancy__resnet18__plain__n4.json.gz"
    changed(four, "an owner", lambda r: events(r, "c", "step", 1)[0][0][1].update(root=1))
    changed(four, "bucket view", lambda r: r["knobs"].update(parameters_as_bucket_view=True))
    changed(four, "partition", lambda r: r["partition_param_index_per_rank"][0].reverse())
    changed(four, "buckets", lambda r: r["ddp_logged"].update(rebuilt_per_bucket_param_indices="1"))


def self_test():
    """Each kind of change to a recording must be found."""
    changes = recordings.Changes(differences, 2)
    for test in (of_stages_1_and_2, of_stage_3, of_details, of_quantised, of_redundancy):
        test(changes)
    return changes.end()


def main():
    return recordings.main(
        PREFIXES, differences, (PREFIXES, reduced),
        lambda: self_test() or deepspeed.self_test() or zero_redundancy.self_test())


if __name__ == "__main__":
    sys.exit(main())
