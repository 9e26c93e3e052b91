#!/usr/bin/env python3
"""Does ddpsim offload and quantise of ZeRO-3 what DeepSpeed 0.14.5 does, between the same
collectives?

  zero_3_offload_lowered.py DDPSIM              every case; exit 1 if one differs
  zero_3_offload_lowered.py DDPSIM --self-test  changes of what ddpsim says are noticed

Models and knobs are those of zero_lowered.py's recordings of stage 3, with offloading added. What
is expected is what deepspeed.py issues, which is equal to recordings of offloading
(recorded_zero.py). Compared of a steady step: collectives in their order with their bytes; between
them copies to the host and to the device by whether the host waits for them, how many and of how
many elements, norms and sums on the device, what is quantised there, and what the host computes.
Where the types of a copy that blocks differ, the CPU casts (PyTorch, Copy.cu): that is said here,
and by no recording.
"""
import copy
import json
import sys
import tempfile

import deepspeed
import recorded_zero
from recordings import load
import zero_lowered

SIZE = {"fp32": 4, "bf16": 2, "fp16": 2}
# Of an operation of ddpsim: what it is, its bytes an element (w: of a weight), the wait for it.
WORDS = {
    "to_host/bucket": ("to_host", "w"),
    "to_device/bucket": ("to_device", "w"),
    "accumulate_host/bucket": ("add", "3 * w"),
    "norm_shards/bucket": ("double", "w + 16"),
    "to_optimizer/bucket": ("to_host_blocking", "w"),
    "host_to_float/bucket": ("host_to_float", "w + 4"),
    "fetch_shards/bucket": ("to_device_blocking", "w"),
    "fetch_shards/persistent": ("to_device_blocking", "w"),
    "to_device/group": ("to_device_blocking", "w"),
    "host_unscale/group": ("host_mul", "8"),
    "host_optimizer/group": ("optimizer", "28"),
    "host_cast/group": ("host_cast", "w + 4"),
    "host_overflow": ("host_overflow", "2 * w + 4"),
    "quantize/bucket": ("quantize", "1"),  # in bytes, which scales are of, too
    "dequantize/bucket": ("dequantize", "1"),
}
WAITS = {
    "wait/to_host": "to_host",
    "wait/to_optimizer": "to_host_blocking",
    "wait/fetch_shards": "to_device_blocking",
    "wait/to_device": "to_device_blocking",
    "wait/norms": "item",
    "wait/norm_sum": "item",
    "wait/overflow": "item",
}
MOVES = ("to_host", "to_device", "to_host_blocking", "to_device_blocking")


def segments():
    """[[what was issued before the next collective], collective, ...]"""
    return [{}]


def add(out, what, elements, copies=0):
    before = out[-1].setdefault(what, [0, 0])
    before[0] += elements
    before[1] += copies if what in MOVES else 0


def wait(out, for_what):
    out[-1].setdefault("waits", set()).add(for_what)


def lowered(step, w):
    out = segments()
    for o in step["ops"]:
        name = o["op"].split("/", 1)[1] if o["op"].startswith("micro") else o["op"]
        word = name.split(".")[0]
        if o["does"] == "communicate":
            out += [[o["operation"], o["bytes"]], {}]
        elif word in WORDS:
            what, each = WORDS[word]
            elements, rest = divmod(o["bytes"], eval(each, {"w": w}))
            if rest:
                raise SystemExit(f"{o['op']}: {o['bytes']} B are not of whole elements")
            add(out, what, elements, o.get("kernels", 0))
        elif word in WAITS:
            wait(out, WAITS[word])
    return out


def question(r, knobs):
    counts = [zero_lowered.count(shape) for _, shape in r["parameters"]]
    modules = {}
    for at, (name, _) in enumerate(r["parameters"]):
        modules.setdefault(name.rpartition(".")[0], []).append(at)
    said = {
        "world_size": r["ranks"],
        "parameters": [[p[0], n] for p, n in zip(r["parameters"], counts)],
        "modules": modules,
        "forward": recorded_zero.brackets(r["modules"]),
        "arrival": r["arrival"],
        "steps": 5,
        "dtype": r["knobs"]["dtype"],
        "gradient_accumulation_steps": zero_lowered.micro_steps(r),
        **r["knobs"]["zero_optimization"],
    }
    if "gpt" in r["file"]:
        modules["lm_head"] = [0]  # tied to the embedding of tokens
        said["no_input_gradient"] = ["", "wte", "wpe"]
    pinned = {"device": "cpu", "pin_memory": "offload_pin_memory" in knobs}
    said["offload_optimizer"] = pinned
    said["zero_quantized_weights"] = "zero_quantized_weights" in knobs
    said["offload_param"] = pinned if "offload_param" in knobs else None
    return said


def expected(r, knobs):
    said, out = question(r, knobs), segments()
    half, params = r["knobs"]["dtype"] != "fp32", said["offload_param"]
    rank = deepspeed.rank_of(said)
    log = [rank.step() for _ in range(said["steps"])][-1]
    if r["knobs"]["dtype"] == "fp16":
        overflow = next(i for i, e in enumerate(log) if e.get("op") == "all_reduce/overflow")
        log.insert(overflow, {"do": "op", "kernel": "host_overflow", "elements": sum(rank.shard)})
    for e in log:
        if e["do"] == "host_wait" and e["why"] == "item":
            wait(out, "item")
        elif e["do"] == "op" and "operation" in e:
            out += [[e["operation"], e["bytes"]], {}]
        elif e["do"] == "op" and e.get("kernel") in {what for what, _ in WORDS.values()}:
            kernel, n = e["kernel"], e["elements"]
            if "groups" in e:
                n = (1 + SIZE[r["knobs"]["dtype"]]) * n + 4 * e["groups"]
            add(out, kernel, n, 1)
            if kernel.endswith("_blocking") or (
                kernel == "to_host" and not said["offload_optimizer"]["pin_memory"]
            ):
                wait(out, kernel)
            if half and kernel == "to_host_blocking":
                add(out, "host_to_float", n)
            if kernel == "optimizer" and (half or params):
                add(out, "host_cast", n)
    return out


def differences(mine, theirs):
    for k in range(max(len(mine), len(theirs))):
        a = mine[k] if k < len(mine) else None
        b = theirs[k] if k < len(theirs) else None
        if a != b:
            return f"{k} of {len(theirs)}: ddpsim {a}, expected {b}"
    return None


CASES: list = [
    {},
    {"offload_param": "cpu"},
    {"offload_param": "cpu", "offload_pin_memory": True, "sub_group_size": 1500000},
    {"offload_pin_memory": True, "dtype": "fp16", "accumulation": 2},
    {"offload_param": "cpu", "dtype": "bf16", "accumulation": 3, "overlap_comm": False},
]
# Of models whose parameters' parts are of eights.
QUANTISED = [
    {"zero_quantized_weights": True, "dtype": "fp16"},
    {"zero_quantized_weights": True, "dtype": "fp16", "offload_param": "cpu", "accumulation": 2},
]


def cases():
    recordings = load(zero_lowered.DATA)
    third = [r for r in recordings if r["knobs"]["zero_optimization"]["stage"] == 3]
    third = [r for r in third if not zero_lowered.refusal(r)]
    for at, r in enumerate(third):
        more = [CASES[at % len(CASES)], CASES[(at + 1) % len(CASES)]]
        for knobs in more + (QUANTISED if "gpt" in r["file"] else []):
            r, knobs = copy.deepcopy(r), dict(knobs)
            r["knobs"]["dtype"] = knobs.pop("dtype", r["knobs"]["dtype"])
            r["knobs"]["gradient_accumulation_steps"] = knobs.pop(
                "accumulation", zero_lowered.micro_steps(r)
            )
            for knob in ("sub_group_size", "overlap_comm"):
                if knob in knobs:
                    r["knobs"]["zero_optimization"][knob] = knobs.pop(knob)
            yield r, {"offload_optimizer": "cpu", **knobs}


def asked(ddpsim, r, knobs):
    more = ["--set", "cluster.host_memory=300GB/s"]
    for knob, value in knobs.items():
        more += ["--set", f"{knob}={value if isinstance(value, str) else json.dumps(value)}"]
    with tempfile.TemporaryDirectory() as folder:
        p = zero_lowered.program(ddpsim, r, folder, "dgx-h100", more)
    return lowered(p["steps"][-1], SIZE[r["knobs"]["dtype"]])


def self_test(mine, theirs):
    """What is left out, or another number, of each kind between two collectives."""
    changes = missed = 0
    for k, segment in enumerate(mine):
        for what in segment if isinstance(segment, dict) else (0, 1):
            other = copy.deepcopy(mine)
            if not isinstance(segment, dict):
                other[k][what] = -1
            elif what == "waits":
                other[k][what].pop()
            else:
                other[k][what][0] += 1
            changes += 1
            missed += differences(other, theirs) is None
    return changes, missed


def main():
    ddpsim, tests = sys.argv[1], "--self-test" in sys.argv
    bad = total = collectives = changes = missed = 0
    for r, knobs in cases():
        mine, theirs = asked(ddpsim, r, knobs), expected(r, knobs)
        total += 1
        collectives += len(theirs) // 2
        if found := differences(mine, theirs):
            bad += 1
            print(r["file"], r["knobs"], knobs, "\n ", found)
        elif tests and total % 7 == 1:
            some = self_test(mine, theirs)
            changes, missed = changes + some[0], missed + some[1]
    print(f"{total} Programs, {collectives} collectives and what is between them; {bad} differ")
    if tests:
        print(f"self-test: {changes} changes, {missed} not noticed")
    return 1 if bad or missed or not total or tests > changes else 0


if __name__ == "__main__":
    sys.exit(main())
