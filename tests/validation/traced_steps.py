#!/usr/bin/env python3
"""Steps of two and four ranks, as one rank's trace of PyTorch's profiler predicts them.

  traced_steps.py DDPSIM        prints all; exit 1 beyond the limits below

calib/trace-runs (tools/trace_truth): a trace of one rank on a CPU, imported, and its step executed
by PyTorch over Gloo between shaped hosts, its layers slept or trained again. A prediction sees the
trace and nothing of the Run. Those that repeat (clean) have limits; the others are printed.
"""
import gzip
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

RUNS = Path(__file__).resolve().parents[2] / "calib/trace-runs"
LEAST, MEDIAN, LARGEST = 17, 0.02, 0.055


def rows(ddpsim):
    for path in sorted(RUNS.glob("*.json.gz")):
        run = json.loads(gzip.decompress(path.read_bytes()))
        scenario = RUNS / "scenarios" / f"{run['case']['scenario']}.json"
        told = subprocess.run(
            [ddpsim, "predict", str(scenario), "--format", "json"],
            check=True,
            capture_output=True,
            text=True,
        )
        summary = json.loads(told.stdout)["summary"]
        steady = [s["duration_ps"] for s in run["steps"] if s["kind"] == "steady"]
        said = json.loads(scenario.read_text())
        yield {
            "case": run["case"]["key"].rsplit("/", 1)[0],
            "rate": said["cluster"]["link"]["bandwidth"],
            "compute": run["origin"].get("compute", "timed"),
            "measured": median(steady) / 1e9,
            "error": summary["step_ps"] / median(steady) - 1,
            "inside": summary["step_low_ps"] <= median(steady) <= summary["step_high_ps"],
            "clean": run["quality"]["verdict"] == "clean",
        }


def errors_of(found, clean):
    return [abs(r["error"]) for r in found if r["clean"] == clean]


def main():
    found = sorted(rows(sys.argv[1]), key=lambda r: r["error"])
    for r in found:
        print(
            f"{100 * r['error']:+7.2f} %  of {r['measured']:8.1f} ms  {r['case']} {r['rate']} "
            f"{r['compute']}{'' if r['clean'] else ' (noisy)'}"
        )
    failed = False
    for clean in (True, False):
        errors = errors_of(found, clean)
        if not errors:
            continue
        print(
            f"{len(errors)} {'clean' if clean else 'noisy'}: median {100 * median(errors):.2f} %, "
            f"largest {100 * max(errors):.2f} %"
        )
        if clean:
            failed = len(errors) < LEAST or median(errors) > MEDIAN or max(errors) > LARGEST
    if failed:
        limits = f"limits: at least {LEAST} clean, median {MEDIAN}, largest {LARGEST}"
        print(limits, file=sys.stderr)
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
