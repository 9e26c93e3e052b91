#!/usr/bin/env python3
"""Does ddpsim exchange quantised gradients (ZeRO++'s qgZ) as DeepSpeed 0.14.5 does?

  qgz_lowered.py DDPSIM              every case; exit 1 if one differs
  qgz_lowered.py DDPSIM --self-test  changes of what ddpsim says are noticed

Models and knobs are those of zero_lowered.py's recordings of stage 3, as fp16 on several hosts.
What is expected is what deepspeed.py issues, which is equal to recordings of qgZ
(recorded_zero.py). Compared of a steady step: collectives in their order with their bytes and
communicator, and between them what is quantised, summed, made halves again, averaged and padded,
in bytes. Where DeepSpeed would stop, ddpsim must refuse.
"""
import copy
import sys
import tempfile

import deepspeed
import recorded_zero
from recordings import load
import zero_lowered

COMM = {"comm": "g0", "comm_world": "world", "comm_local": "local", "comm_across": "across"}
KERNELS = {
    "quantize_gradient": "swizzle_quant",
    "sum_quantized": "quantized_reduction",
    "dequantize_gradient": "dequantize",
    "mean": "mean",
    "average": "div",
    "interleave": "cat",
}
PLACES = ((8, 2), (8, 4), (4, 2), (16, 4))  # ranks, of them on a host
MORE = ({}, {"accumulation": 2}, {"reduce_bucket_size": 100_000}, {"overlap_comm": False})


def add(out, what, size):
    out[-1][what] = out[-1].get(what, 0) + size


def lowered(step):
    """[{kernel: bytes}, [operation, bytes, communicator], ...]"""
    out = [{}]
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        word = name.split("/")[0]
        if o["does"] == "communicate":
            out += [[o["operation"], o["bytes"], COMM[o["lane"]]], {}]
        elif "/bucket." in name and word in KERNELS:
            add(out, KERNELS[word], o["bytes"])
    return out


def question(r, devices):
    counts = [zero_lowered.count(shape) for _, shape in r["parameters"]]
    modules = {}
    for at, (name, _) in enumerate(r["parameters"]):
        modules.setdefault(name.rpartition(".")[0], []).append(at)
    said = {
        "world_size": r["ranks"],
        "devices_per_node": devices,
        "zero_quantized_gradients": True,
        "parameters": [[p[0], n] for p, n in zip(r["parameters"], counts)],
        "shapes": [shape for _, shape in r["parameters"]],
        "modules": modules,
        "forward": recorded_zero.brackets(r["modules"]),
        "arrival": r["arrival"],
        "steps": 5,
        "dtype": "fp16",
        "gradient_accumulation_steps": zero_lowered.micro_steps(r),
        **r["knobs"]["zero_optimization"],
    }
    if "gpt" in r["file"]:
        modules["lm_head"] = [0]  # tied to the embedding of tokens
        said["no_input_gradient"] = ["", "wte", "wpe"]
    return said


def expected(r, devices):
    """As lowered(). Bytes: gradients of two, a scale of four, two numbers in a byte."""
    rank = deepspeed.rank_of(question(r, devices))
    log = [rank.step() for _ in range(5)][-1]
    out, hosts = [{}], r["ranks"] // devices
    for e in log:
        if e["do"] != "op":
            continue
        if "operation" in e:
            out += [[e["operation"], e["bytes"], e["comm"]], {}]
            continue
        kernel, n, groups = e.get("kernel"), e.get("elements", 0), e.get("groups", 0)
        if kernel == "swizzle_quant":
            add(out, kernel, 2 * n + n // 2 + 4 * groups)
        elif kernel == "quantized_reduction":  # n: bytes that came
            add(out, kernel, (n + 4 * groups) + (n + 4 * groups) // devices)
        elif kernel == "dequantize":
            add(out, kernel, n + 4 * groups + 2 * 2 * n)
        elif kernel == "add_new":  # the first one is added to a number
            first = 4 * n if not out[-1].get("mean", 0) else 0
            add(out, "mean", first or 6 * n)
        elif kernel == "div_new":
            add(out, "mean", 4 * n)
        elif kernel in ("div", "cat") and (kernel == "div" or e.get("inputs")):
            add(out, kernel, 4 * n)
    assert hosts > 1
    return out


def differences(mine, theirs):
    for k in range(max(len(mine), len(theirs))):
        a = mine[k] if k < len(mine) else None
        b = theirs[k] if k < len(theirs) else None
        if a != b:
            return f"{k} of {len(theirs)}: ddpsim {a}, expected {b}"
    return None


def cases():
    recordings = load(zero_lowered.DATA)
    third = [r for r in recordings if r["knobs"]["zero_optimization"]["stage"] == 3]
    third = [r for r in third if not zero_lowered.refusal(r)]
    third = [r for r in third if r["knobs"]["zero_optimization"].get("reduce_scatter", True)]
    for at, r in enumerate(third):
        for place in (PLACES[at % 4], PLACES[(at + 1) % 4]):
            one, more = copy.deepcopy(r), dict(MORE[at % len(MORE)])
            one["ranks"], one["knobs"]["dtype"] = place[0], "fp16"
            if "accumulation" in more:
                one["knobs"]["gradient_accumulation_steps"] = more.pop("accumulation")
            one["knobs"]["zero_optimization"] |= more
            yield one, place[1]


def asked(ddpsim, r, devices):
    more = ["--set", f"cluster.devices_per_host={devices}", "--set", "cluster.hosts=4"]
    more += ["--set", f"cluster.nics_per_host={devices}"]
    more += ["--set", "zero_quantized_gradients=true"]
    with tempfile.TemporaryDirectory() as folder:
        return zero_lowered.program(ddpsim, r, folder, "dgx-a100", more)


def self_test(mine, theirs):
    changes = missed = 0
    for k, segment in enumerate(mine):
        for what in segment if isinstance(segment, dict) else range(3):
            other = copy.deepcopy(mine)
            other[k][what] = -1
            changes += 1
            missed += differences(other, theirs) is None
    return changes, missed


def main():
    ddpsim, tests = sys.argv[1], "--self-test" in sys.argv
    bad = total = exchanged = refused = changes = missed = 0
    for r, devices in cases():
        try:
            theirs = expected(r, devices)
        except ValueError as stops:
            refused += 1
            try:
                asked(ddpsim, r, devices)
            except SystemExit as refusal:
                if "does not divide" in str(refusal):
                    continue
            bad += 1
            print(r["file"], devices, "DeepSpeed stops, ddpsim does not:", stops)
            continue
        mine = lowered(asked(ddpsim, r, devices)["steps"][-1])
        total += 1
        exchanged += sum(o[0] == "all_to_all" for o in theirs if isinstance(o, list))
        if found := differences(mine, theirs):
            bad += 1
            print(r["file"], r["ranks"], devices, r["knobs"], "\n ", found)
        elif tests and total % 7 == 1:
            some = self_test(mine, theirs)
            changes, missed = changes + some[0], missed + some[1]
    print(f"{total} Programs with {exchanged} all-to-alls, {refused} refused; {bad} differ")
    if tests:
        print(f"self-test: {changes} changes, {missed} not noticed")
    return 1 if bad or missed or not total or not exchanged or tests > changes else 0


if __name__ == "__main__":
    sys.exit(main())
