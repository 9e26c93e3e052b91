#!/usr/bin/env python3
"""Steps of PyTorch 1.13's ZeroRedundancyOptimizer that others executed, beside their predictions.

  executed_elsewhere.py DDPSIM              prints all; exit 1 if a case that repeated on four ranks
                                            is off by more than 3 %
  executed_elsewhere.py DDPSIM --self-test  a step that is 5 % longer is noticed
  executed_elsewhere.py --reduce FOLDER     makes the data of a folder of recordings

tests/data/executed_zero_redundancy.json: eight cases over Gloo between network namespaces of one
machine of two cores, which other jobs used as well; layers were slept, the optimizer took no time.
The recording has how long forward took; all layers are taken to be late alike. Nothing here was
fitted or chosen with these cases but what line gloo-broadcasts of
tests/golden/predictions_changed.json says.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import slept

DATA = Path(__file__).resolve().parents[1] / "data" / "executed_zero_redundancy.json"
MOST = 0.03


def reduce_folder(folder):
    models, cases = {}, []
    for path in sorted(Path(folder).glob("zero_redundancy*")):
        said = json.loads((path / "input.json").read_text())
        measured = json.loads((path / "measured.json").read_text())
        model = said["model"]["name"]
        models[model] = slept.layers_of(said)
        cases.append(
            {
                "name": said["name"],
                "model": model,
                "ranks": said["world_size"],
                "mbit": said["topology"]["links"][0]["rate_mbit"],
                "burst": said["topology"]["token_bucket_burst_bytes"],
                "view": said["strategy"]["parameters_as_bucket_view"],
                "buckets": [int(b) for b in said["bucket_plan_bytes_launch_order"].split(",")],
                "forward_s": measured["forward_end_s"],
                "steps_s": measured["iterations_s"],
                "step_s": measured["iteration_s_median"],
                "quality": measured["quality"],
            }
        )
    slept.write_data(DATA, models, cases)
    return 0


def predicted(ddpsim, layers, case, folder):
    file = Path(folder) / "workload.json"
    source = "tests/data/executed_zero_redundancy.json"
    file.write_text(json.dumps(slept.workload(layers, source, case["forward_s"])))
    asked = [ddpsim, "predict", "--format", "json", "--workload", str(file)]
    asked += ["--cluster", "testbed-torch", "--plan", "zero_redundancy"]
    for setting in (
        "pytorch=1.13",
        f"cluster.hosts={case['ranks']}",
        f"cluster.link.bandwidth={case['mbit']}Mb/s",
        f"cluster.link.burst={case['burst']}B",
        f"parameters_as_bucket_view={json.dumps(case['view'])}",
    ):
        asked += ["--set", setting]
    out = subprocess.run(asked, capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{case['name']}: {out.stderr}")
    summary = json.loads(out.stdout)["summary"]
    buckets = [b["bytes"] for b in summary["buckets"]][: len(case["buckets"])]
    if buckets != case["buckets"]:
        raise SystemExit(f"{case['name']}: buckets {buckets}, recorded {case['buckets']}")
    return summary["step_ps"] / 1e12


def report(ddpsim, data, longer=1.0):
    """How many cases that count are off; prints all."""
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in data["cases"]:
            step = predicted(ddpsim, data["models"][case["model"]], case, folder)
            error = step / (case["step_s"] * longer) - 1
            counts = case["ranks"] == 4 and case["quality"] != "noisy"
            bad += counts and abs(error) > MOST
            low, high = min(case["steps_s"]), max(case["steps_s"])
            print(
                f"{case['name']:<44} {case['quality']:<5} measured {case['step_s']:.3f} s"
                f" ({low:.3f} to {high:.3f}), predicted {step:.3f} s, {100 * error:+.1f} %"
                + ("" if counts else "  not counted")
            )
    return bad


def main():
    if sys.argv[1:2] == ["--reduce"]:
        return reduce_folder(sys.argv[2])
    data = json.loads(DATA.read_text())
    if "--self-test" in sys.argv:
        noticed = report(sys.argv[1], data, 1.05) > 0
        print("self-test:", "ok" if noticed else "a longer step is not noticed")
        return 0 if noticed else 1
    return 1 if report(sys.argv[1], data) else 0


if __name__ == "__main__":
    sys.exit(main())
