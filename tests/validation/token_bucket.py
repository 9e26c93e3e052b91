#!/usr/bin/env python3
"""The token bucket of shaped hosts, by what PyTorch's all-reduces take with no other in flight.

  token_bucket.py DDPSIM

Errors of whole steps cannot tell it: a step that is predicted too short for another reason comes
nearer if its all-reduces are made longer. So each all-reduce of every clean Run of the real PyTorch
with timed layers is compared by itself, with the bucket and without it. It counts if it overlaps
with no other, executed or predicted, and has 256 KiB or more; executed: the median of the recorded
steps.
"""
import glob
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

LEAST_BYTES = 256 * 1024
MOST_WITH = 0.025  # median |error|
LEAST_TIMES_WITHOUT = 2  # as far off


def alone(spans):
    """Spans (begin, end, ...) that overlap with no other."""
    return [s for s in spans if not any(o is not s and o[0] < s[1] and o[1] > s[0] for o in spans)]


def executed(run):
    """Operation -> (bytes, duration in us), of rank 0."""
    steps = {}
    for s in run["spans"]:
        if s["actor"] == 0 and s["op"].startswith("allreduce/"):
            steps.setdefault(s["step"], []).append(
                (s["begin_ps"], s["end_ps"], s["op"], s["bytes"])
            )
    found = {}
    for spans in steps.values():
        for begin, end, op, size in alone(spans):
            found.setdefault((op, size), []).append((end - begin) / 1e6)
    return {op: (size, statistics.median(v)) for (op, size), v in found.items()}


def predicted(ddpsim, scenario, run, folder):
    out = f"{folder}/trace.json"
    subprocess.run(
        [ddpsim, "trace", scenario, "--layers", run, "--out", out], check=True, capture_output=True
    )
    spans = [
        (e["ts"], e["ts"] + e["dur"], e["name"])
        for e in json.loads(pathlib.Path(out).read_text())["traceEvents"]
        if e.get("ph") == "X" and e["pid"] == 0 and e["name"].startswith("allreduce/")
    ]
    return {name: end - begin for begin, end, name in alone(spans)}


def without_bucket(scenario, folder):
    s = json.loads(pathlib.Path(scenario).read_text())
    for link in ("link", "uplink"):
        for key in ("burst", "peak"):
            s["cluster"].get(link, {}).pop(key, None)
    out = f"{folder}/without.json"
    pathlib.Path(out).write_text(json.dumps(s))
    return out


def main():
    ddpsim = os.path.abspath(sys.argv[1])
    runs = pathlib.Path(__file__).resolve().parents[2] / "calib" / "runs"
    errors = {"with": [], "without": []}
    nearer = used = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(glob.glob(f"{runs}/torch-*.json.gz")):
            with gzip.open(path, "rt") as f:
                run = json.load(f)
            timed = run["origin"]["compute"] == "timed" and "layers" in run
            if not timed or run["quality"]["verdict"] != "clean" or not run.get("spans"):
                continue
            measured = executed(run)
            scenario = f"{runs}/scenarios/{path.split('/')[-1].split('-')[1]}.json"
            if not any(b >= LEAST_BYTES for b, _ in measured.values()):
                continue
            ends = {
                "with": predicted(ddpsim, scenario, path, folder),
                "without": predicted(ddpsim, without_bucket(scenario, folder), path, folder),
            }
            before = len(errors["with"])
            for op, (size, us) in measured.items():
                if size < LEAST_BYTES or any(op not in e for e in ends.values()):
                    continue
                pair = {k: abs(e[op] / us - 1) for k, e in ends.items()}
                for k, x in pair.items():
                    errors[k].append(x)
                nearer += pair["with"] < pair["without"]
            used += len(errors["with"]) > before
    median = {k: statistics.median(v) for k, v in errors.items()}
    print(
        f"{len(errors['with'])} all-reduces alone on the network, of {used} Runs: median |error|"
        f" {100 * median['with']:.2f} % with the token bucket, {100 * median['without']:.2f} %"
        f" without; nearer with it: {nearer}"
    )
    if median["with"] > MOST_WITH or median["without"] < LEAST_TIMES_WITHOUT * median["with"]:
        sys.exit("the token bucket is not what these all-reduces met")


if __name__ == "__main__":
    main()
