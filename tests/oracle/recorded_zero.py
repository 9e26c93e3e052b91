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
import copy
import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import deepspeed

DATA = Path(__file__).resolve().parents[1] / "data/recorded_orders"
PREFIXES = ("ds_zero", "zero_redundancy__")


def load(path):
    text = gzip.open(path).read() if path.name.endswith(".gz") else path.read_bytes()
    return json.loads(text)


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
    modules = {}
    for at, (name, _, _) in enumerate(recording["parameters"]):
        modules.setdefault(name.rpartition(".")[0], []).append(at)
    question = {
        "world_size": recording["world_size"],
        "rank": rank,
        "parameters": [p[:2] for p in recording["parameters"]],
        "modules": modules,
        "forward": brackets(ran),
        "arrival": recording["gradient_arrival_order"],
        "steps": len(recording["steps"]),
        **knobs,
        **zero,
    }
    if recording["model"].startswith("gpt"):
        modules["lm_head"] = [0]  # tied to the embedding of tokens
        question["no_input_gradient"] = ["", "wte", "wpe"]
    return question


STREAMS = {
    1: {"main": "main", "reduction": "stream0"},
    3: {"main": "main", "all_gather": "stream0", "reduce_and_partition": "stream1"},
}


def as_recorded(log, question):
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
                said["comm"] = e["comm"]
            if e["operation"] == "all_gather":
                said["in_elements"] = e["shard_elements"]
            if e["operation"] == "reduce_scatter":
                said["out_elements"] = e["shard_elements"]
            if e["tensors"]:
                said["tensors"] = e["tensors"]
            into.append(["c", said])
        elif what == "op" and e.get("kernel") and e["recorded"]:
            on, pieces = stream[e["stream"]], e.get("pieces", 1)
            if into and into[-1][:2] == ["l", e["kernel"]] and into[-1][4] == on:
                into[-1][2] += e["elements"]
                into[-1][3] += pieces
            else:
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


def compare_steps(made, recorded, found, who):
    compared = 0
    for number, phases in enumerate(made):
        step = recorded[number]
        if step.get("same_as") is not None:
            step = recorded[step["same_as"]]
        for phase, said in phases.items():
            there = step["phases"].get(phase, [])
            compared += len(there)
            for at, (a, b) in enumerate(zip(said, there)):
                a, b = comparable(a, b)
                if a != b:
                    found.append(f"{who} step {number} {phase} {at}: oracle {a}, recorded {b}")
                    break
            else:
                if len(said) != len(there):
                    longer = said if len(said) > len(there) else there
                    found.append(
                        f"{who} step {number} {phase}: {len(said)} here, {len(there)} recorded; "
                        f"the first more is {longer[min(len(said), len(there))]}"
                    )
    return compared


def deepspeed_differences(recording):
    found, compared = [], 0
    ranks = {0: recording["steps"]}
    if "rank1_steps" in recording:
        ranks[1] = recording["rank1_steps"]
    if recording["all_ranks_identical"]:
        ranks |= {r: recording["steps"] for r in range(recording["world_size"])}
    for rank, steps in ranks.items():
        question = question_of(recording, rank)
        made = [as_recorded(log, question) for log in deepspeed.steps(question)]
        compared += compare_steps(made, steps, found, f"rank {rank}")
    observed, oracle = recording["observed"], deepspeed.rank_of(question)
    if question["stage"] == 3:
        said = {"persistent_params": oracle.persistent, "partition_numel": oracle.shard}
    else:
        said = {"partition_size": [oracle.partitions.size]}
    for what, value in said.items():
        if what in observed and observed[what] != value:
            found.append(f"{what}: oracle {value}, recorded {observed[what]}")
    return found, {"ranks": sorted(ranks), "events": compared}


def differences(recording):
    return deepspeed_differences(recording)


def compare(folder, table):
    bad = total = 0
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(PREFIXES):
            continue
        found, said = differences(load(path))
        total += 1
        bad += bool(found)
        if table or found:
            print(path.name, said)
        for f in found[:5]:
            print(f"  {f}")
    print(f"{total} recorded schedules, {bad} of them another one than the oracle's")
    return 1 if bad or not total else 0


def main():
    table = "--table" in sys.argv
    return compare(Path(([a for a in sys.argv[1:] if a != "--table"] or [DATA])[0]), table)


if __name__ == "__main__":
    sys.exit(main())
