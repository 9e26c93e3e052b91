#!/usr/bin/env python3
"""Steps of Horovod over Open MPI, and of DDP beside them, that others executed, and predictions.

  executed_horovod.py DDPSIM               prints all, with the ratio to DDP; exit 1 if something
                                           that the recordings fix is not so (below)
  executed_horovod.py DDPSIM --backend B   gloo, or mpi where DDPSIM has it; default: mpi, else gloo
  executed_horovod.py --reduce FOLDER      makes the data of a folder of recordings

tests/data/executed_horovod.json: Horovod master 2626dc8 over Open MPI 4.1.4 (TCP, a polling thread
a rank) and PyTorch 1.13's DDP over Gloo, between network namespaces of one machine of two cores,
which other jobs used as well; layers were slept. Of the recording a prediction sees when forward
and backward ended (a median over its steps), and the layers' own times by their share. Nothing was
fitted to these cases. With four ranks Open MPI's polling threads need more cores than there are:
the recording's own README calls these an upper bound. On a busy machine exchanges take turns that
need not (docs/model.md 4.9): calib/horovod-runs has what the same build takes on a quiet one.

What must be so: all cases are predicted; and with the model's own bytes over the link as the least
that a step takes, none is predicted to be quicker than that.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import slept

DATA = Path(__file__).resolve().parents[1] / "data" / "executed_horovod.json"


def reduce_folder(folder):
    models, cases = {}, []
    for path in sorted(Path(folder).glob("*")):
        if not path.name.startswith(("hvd_", "ddp_")):
            continue
        said = json.loads((path / "input.json").read_text())
        measured = json.loads((path / "measured.json").read_text())
        model = said["model"]["name"]
        models[model] = slept.layers_of(said)
        profile = said.get("compute_profile", {})
        strategy = said["strategy"]
        steps = measured.get("steps", [])
        cases.append(
            {
                "name": said["name"],
                "system": strategy["system"],
                "model": model,
                "ranks": said["world_size"],
                "mbit": said["topology"]["links"][0]["rate_mbit"],
                "burst": said["topology"]["token_bucket_burst_bytes"],
                "threshold": strategy.get("HOROVOD_FUSION_THRESHOLD"),
                "cycle": strategy.get("HOROVOD_CYCLE_TIME"),
                "forward_s": profile.get("forward_end_s", measured.get("forward_end_s")),
                "backward_s": profile.get("backward_end_s"),
                "reductions": sorted(len(s["ops"]) for s in steps[1:])[len(steps[1:]) // 2]
                if len(steps) > 1 and "ops" in steps[1]
                else None,
                "step_s": measured["iteration_s_median"],
                "steps_s": measured["iterations_s"],
                "quality": measured["quality"],
            }
        )
    slept.write_data(DATA, models, cases)
    return 0


def predicted(ddpsim, layers, case, folder, backend):
    file = Path(folder) / "workload.json"
    slow = slept.workload(
        layers, "tests/data/executed_horovod.json", case["forward_s"], case["backward_s"]
    )
    file.write_text(json.dumps(slow))
    asked = [ddpsim, "predict", "--format", "json", "--workload", str(file)]
    over_mpi = case["system"] == "horovod" and backend == "mpi"
    asked += ["--cluster", "testbed-mpi" if over_mpi else "testbed-torch"]
    settings = [
        f"cluster.hosts={case['ranks']}",
        f"cluster.link.bandwidth={case['mbit']}Mb/s",
        f"cluster.link.burst={case['burst']}B",
    ]
    if case["system"] == "horovod":
        asked += ["--plan", "horovod"]
        settings += [f"HOROVOD_FUSION_THRESHOLD={case['threshold']}"]
        settings += [f"HOROVOD_CYCLE_TIME={case['cycle']}"]
        if backend != "gloo":
            settings += [f"backend={backend}"]
    else:
        settings += ["pytorch=1.13"]
    for setting in settings:
        asked += ["--set", setting]
    out = subprocess.run(asked, capture_output=True, text=True, check=False)
    if out.returncode:
        raise SystemExit(f"{case['name']}: {out.stderr}")
    said = json.loads(out.stdout)["summary"]
    return tuple(said[f"step{end}_ps"] / 1e12 for end in ("", "_low", "_high"))


def has_backend(ddpsim, case, layers, backend):
    with tempfile.TemporaryDirectory() as folder:
        try:
            predicted(ddpsim, layers, case, folder, backend)
        except SystemExit:
            return False
    return True


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else float("nan")


def report(ddpsim, data, backend):
    """Names of what is not as it must be; prints all."""
    wrong, errors, base, inside = [], {}, {}, []
    order = sorted(data["cases"], key=lambda c: c["system"])  # ddp first
    with tempfile.TemporaryDirectory() as folder:
        for case in order:
            layers = data["models"][case["model"]]
            step, low, high = predicted(ddpsim, layers, case, folder, backend)
            size = sum(b for _, sizes, _, _ in layers for b in sizes)
            n = case["ranks"]
            least = 2 * (n - 1) / n * size * 8 / (case["mbit"] * 1e6)
            if step < least:
                wrong.append(f"{case['name']}: {step} s, quicker than its bytes")
            key = (case["model"], n, case["mbit"])
            ratio = ""
            if case["system"] != "horovod":
                base[key] = (case["step_s"], step)
            else:
                errors.setdefault(n, []).append(step / case["step_s"] - 1)
                inside.append(low <= case["step_s"] <= high)
                if key in base:
                    ours = step / base[key][1]
                    theirs = case["step_s"] / base[key][0]
                    ratio = f"  to DDP: measured {theirs:.2f}, predicted {ours:.2f}"
            low, high = min(case["steps_s"]), max(case["steps_s"])
            print(
                f"{case['name']:<40} {case['quality']:<5} measured {case['step_s']:.3f} s"
                f" ({low:.3f} to {high:.3f}), predicted {step:.3f} s,"
                f" {100 * (step / case['step_s'] - 1):+.1f} %{ratio}"
            )
    print(f"intervals hold {sum(inside)} of {len(inside)} cases of Horovod")
    for n, of_ranks in sorted(errors.items()):
        print(
            f"Horovod on {n} ranks over {backend}: {len(of_ranks)} cases, median"
            f" {100 * median(of_ranks):+.1f} %, median of sizes"
            f" {100 * median(abs(e) for e in of_ranks):.1f} %"
        )
    return wrong


def main():
    if sys.argv[1:2] == ["--reduce"]:
        return reduce_folder(sys.argv[2])
    data = json.loads(DATA.read_text())
    ddpsim = sys.argv[1]
    if "--backend" in sys.argv:
        backend = sys.argv[sys.argv.index("--backend") + 1]
    else:
        one = next(c for c in data["cases"] if c["system"] == "horovod")
        layers = data["models"][one["model"]]
        backend = "mpi" if has_backend(ddpsim, one, layers, "mpi") else "gloo"
    if backend == "gloo":
        print("Open MPI's all-reduces are predicted as Gloo's ring")
    wrong = report(ddpsim, data, backend)
    for w in wrong:
        print(f"executed_horovod: {w}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
