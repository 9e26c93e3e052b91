#!/usr/bin/env python3
"""The rung of published training steps notices what it is for: `ddpsim validate --steps` passes,
and fails when the steps of one source are off by 1.3, all of them or those of several GPUs alone,
and when a row is gone.

  steps.py DDPSIM      exit 1 names what was not noticed

Each source is planted by itself, beside its own limits of tests/validation/steps.json.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = ROOT / "calib/published/steps"
BUDGET = json.loads((ROOT / "tests/validation/steps.json").read_text())
FACTOR = 1.3


def judge(ddpsim, folder=None, budget=None):
    """(exit code, answer, what it said)"""
    command = [ddpsim, "validate", "--steps", "--format", "json"]
    if folder:
        # No published step has a token bucket (faults.py): without them nothing changes, but that
        # no other constants are tried, of which a source's own limits say nothing.
        command += ["--published", folder, "--budget", budget, "--without", "burst"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.returncode, json.loads(done.stdout), done.stderr


def scaled(row, factor):
    """As if the step had taken `factor` times as long."""
    for unit in row["measured"]:
        row["measured"][unit] *= 1 / factor if unit == "samples_per_s" else factor


def plant(ddpsim, name, change):
    """The exit code beside that source's own limits, after `change` of its rows."""
    with tempfile.TemporaryDirectory() as folder:
        source = json.loads((ROWS / f"{name}.json").read_text())
        change(source["rows"])
        for beside in ("workloads", "clusters"):
            (pathlib.Path(folder) / beside).symlink_to(ROWS / beside)
        (pathlib.Path(folder) / f"{name}.json").write_text(json.dumps(source))
        budget = pathlib.Path(folder) / "limits"
        own = [limit for limit in BUDGET["limits"] if f".source.{name}." in limit["what"]]
        budget.write_text(json.dumps({"schema": BUDGET["schema"], "limits": own}))
        return judge(ddpsim, folder, budget)[0]


def main():
    ddpsim = sys.argv[1]
    code, found, said = judge(ddpsim)
    if code != 0:
        print(said, end="")
        return 1
    counted = {r["id"] for r in found["results"] if "error" in r and r["sample"] == "held_out"}
    bias = {
        (g["name"], g["question"]): g["median_error"]
        for g in found["groups"]
        if g["by"] == "source"
    }
    missed = 0
    # What the report calls off is off: one of its rows by 7 % or more.
    causes = {}
    for file in ROWS.glob("*.json"):
        for row in json.loads(file.read_text())["rows"]:
            if "off" in row:
                causes.setdefault(row["off"]["cause"], set()).add(row["id"])
    for cause, ids in causes.items():
        worst = max(abs(r.get("error", 0)) for r in found["results"] if r["id"] in ids)
        if worst < 0.07:
            print(f"MISSED nothing of it is off: {cause}")
            missed += 1

    def expect(what, name, wanted, change):
        nonlocal missed
        code = plant(ddpsim, name, change)
        print(f"{'ok    ' if code == wanted else 'MISSED'} {name}: {what}")
        missed += code != wanted

    for name in sorted({name for name, _ in bias}):
        # A prediction that is too short gets worse where what was measured is longer.
        longer = {
            q: FACTOR if b < 0 else 1 / FACTOR for (source, q), b in bias.items() if source == name
        }

        def all_rows(rows):
            for row in rows:
                scaled(row, longer["one_gpu"])

        def several(rows):
            for row in rows:
                if row["ranks"] > 1:
                    scaled(row, longer["one_host"])

        expect("as it is", name, 0, lambda rows: None)
        expect("all steps off", name, 1, all_rows)
        if (name, "one_host") in bias:
            expect("steps of several GPUs off", name, 1, several)

        def one_less(rows):
            needed = {row.get("one_gpu") for row in rows}
            rows.remove([r for r in rows if r["id"] in counted - needed][-1])

        expect("a row is gone", name, 1, one_less)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
