#!/usr/bin/env python3
"""Does ddpsim gather weights where ZeRO++'s hpZ gathers them?

  hpz_lowered.py DDPSIM              every case; exit 1 if one differs
  hpz_lowered.py DDPSIM --self-test  changes of what is expected are noticed

Written from DeepSpeed 0.14.5 (partition_parameters.py: _partition_param_sec; stage3.py:
invalidate_secondary_tensor; partitioned_param_coordinator.py: __all_gather_params), after the C++
and by its author (it notices a change, and proves no reading), without prefetching and with
nothing kept between a module's passes. Compared of a steady step, in order: all-gathers with bytes
and group, copies into the second copy of weights with bytes, and the host's wait for each.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import megatron
import megatron_lowered as made_up

CASES = [(8, 4, "float32", 1), (8, 8, "bfloat16", 2), (6, 2, "float16", 1), (8, 1, "float32", 2)]


def expected(ranks, group, dtype, micro_batches):
    size = {"float32": 4, "bfloat16": 2, "float16": 2}[dtype]
    second = set()
    events = []

    def shard(shape):
        return (made_up.count(shape) + ranks - 1) // ranks

    def gather(own):
        for in_group in (True, False):
            n = sum(shard(s) for name, s in own if (name in second) == in_group)
            if n:
                events.append(["gather", n * ranks * size, "secondary" if in_group else "world"])

    def release(own):
        for name, shape in own:
            if group > 1 and name not in second:
                events.append(["keep", 2 * size * shard(shape) * ranks // group])
                events.append(["wait", name])
                second.add(name)

    modules = [own for _, _, own in made_up.LAYERS if own]
    # The input of the first module is not differentiated: nothing tells that its backward ended.
    held = []
    for _ in range(micro_batches):
        for own in modules:
            gather([p for p in own if p not in held])
            release(own)
        for own in reversed(modules):
            gather(own)
            release(own)
        held = modules[0]
    return events


def lowered(ddpsim, ranks, group, dtype, micro_batches):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.json"
        file.write_text(json.dumps(made_up.workload(megatron.options(dtype=dtype))))
        asked = [ddpsim, "show", "program", "--format", "json", "--workload", str(file)]
        asked += ["--cluster", "hgx-h100", "--ranks", str(ranks), "--plan", "zero3"]
        for knob in ("prefetch_bucket_size", "param_persistence_threshold", "max_reuse_distance"):
            asked += ["--set", f"stage3_{knob}=0"]
        asked += ["--set", f"zero_hpz_partition_size={group}"]
        asked += ["--set", f"accumulation_steps={micro_batches}"]
        out = subprocess.run(asked, capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(out.stderr)
    events = []
    for op in json.loads(out.stdout)["steps"][-1]["ops"]:
        name = op["op"].split("/", 1)[1] if op["op"].startswith("micro") else op["op"]
        if op.get("operation") == "all_gather":
            events.append(["gather", op["bytes"], op["group"]])
        elif name.startswith("keep_secondary/"):
            events.append(["keep", op["traffic_bytes"]])
        elif name.startswith("wait/secondary/"):
            events.append(["wait", name.split("/")[2]])
    return events


def main():
    bad = missed = changes = 0
    for case in CASES:
        mine, theirs = lowered(sys.argv[1], *case), expected(*case)
        if mine != theirs:
            bad += 1
            at = next((k for k, (a, b) in enumerate(zip(mine, theirs)) if a != b), None)
            print(case, len(mine), len(theirs), at is not None and (at, mine[at], theirs[at]))
        for k, e in enumerate(theirs):
            for changed in ([], [[e[0], 4, "other"]]):
                changes += 1
                missed += mine == theirs[:k] + changed + theirs[k + 1 :]
    print(f"{len(CASES)} cases: {bad} differ; {changes} changes, {missed} not noticed")
    return 1 if bad or ("--self-test" in sys.argv and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
