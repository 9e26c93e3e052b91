#!/usr/bin/env python3
"""What following `ddpsim tune` would have cost: on executed bucket sweeps, the measured step of the
recommended cap over the best measured one.

  tuning_regret.py DDPSIM [--all]     prints a row for each sweep; exit 1 if the regret of one that
                                      must keep the limit is above it

A sweep is a set of clean Runs under calib/runs whose scenarios differ in bucket_cap_mb only. Of
each, tune starts from the Run with the default cap (25, or not given; else the sweep's first),
knows that Run's layer profile if it has one, and chooses among the sweep's caps. Held out: the
profile was fitted from none of its Runs. Mixed sweeps are cut down to their held-out Runs; where
fewer than two caps are left they are shown with all Runs, and judged as well.
"""
import collections
import gzip
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/python"))
from ddpsim_profiles import read_profile  # noqa: E402
RUNS = ROOT / "calib/runs"
LIMIT = 0.01
LEAST_HELD_OUT = 10  # sweeps; fewer would show that Runs were lost, not that tune is right


def read(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as f:
        return json.load(f)


def fitted_scenarios():
    out = {}
    for path in (ROOT / "calib/profiles").glob("*.json"):
        profile = read_profile(path)
        out[profile["name"]] = set(profile.get("fit", {}).get("scenarios", []))
    return out


def steady_ms(run):
    steps = [
        s["duration_ps"]
        for s in run["steps"]
        if s["kind"] == "steady" and not s.get("instrumented")
    ]
    return statistics.median(steps) / 1e9


def sweeps():
    """[(cap, measured ms, path of the Run, path of its scenario, seen by the fit)] by what the Runs
    have in common."""
    seen = fitted_scenarios()
    groups = collections.defaultdict(list)
    for path in sorted(RUNS.glob("*.json*")):
        run = read(path)
        scenario = RUNS / "scenarios" / f"{run.get('case', {}).get('scenario', '')}.json"
        if (
            not run.get("steps")
            or run["evidence"] not in ("system", "replay")
            or not scenario.is_file()
        ):
            continue
        if (
            run["quality"]["verdict"] != "clean"
            or run["origin"].get("hosts") == "loopback"
            or any(s["what"] == "prediction" for s in run.get("skipped", []))
        ):
            continue
        question = read(scenario)
        plan = question.get("plan", {})
        if plan.get("system", "pytorch_ddp") != "pytorch_ddp" or question.get("other_jobs"):
            continue
        cap = plan.pop("bucket_cap_mb", None)
        base = question["cluster"]["device"]["profile"].removesuffix(".datasheet")
        fitted = run["case"]["scenario"] in seen.get(base, set())
        key = json.dumps([run["evidence"], run["origin"].get("compute"), question], sort_keys=True)
        groups[key].append((cap, steady_ms(run), path, scenario, fitted))
    return groups


def label(key):
    evidence, compute, q = json.loads(key)
    link = q["cluster"].get("link", {}).get("bandwidth", "")
    slow = " slow rank" if q.get("slow_ranks") else ""
    return (
        f"{evidence:<7}{q['workload']:<24}{q['cluster']['pattern']:<6}{q.get('ranks', 0):>3} ranks"
        f" {link:<8}{compute:<6}{slow}"
    )


def judge(ddpsim, rows):
    """Recommended cap, its regret; cap with the shortest predicted step, its regret; that of the
    longest predicted; spread; caps; whether all make one step."""
    measured = collections.defaultdict(list)
    for cap, ms, *_ in rows:
        measured[cap].append(ms)
    measured = {cap: statistics.median(v) for cap, v in measured.items()}
    start = next((r for want in (25, None) for r in rows if r[0] == want), rows[0])
    caps = sorted(c for c in measured if c is not None)
    command = [
        ddpsim,
        "tune",
        str(start[3]),
        "--values",
        ",".join(f"{c:g}" for c in caps),
        "--no-levers",
        "--format",
        "json",
    ]
    if "layers" in read(start[2]):
        command += ["--layers", str(start[2])]
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(" ".join(command) + "\n" + done.stderr)
    found = json.loads(done.stdout)
    best = found["best"]["value"]
    recommended = found["chosen"]["value"] if found["chosen"] else start[0]
    least = min(measured.values())
    longest = max(found["curve"], key=lambda p: p["step_ps"])["value"]
    same = len({p["step_ps"] for p in found["curve"]}) == 1
    regret = {cap: ms / least - 1 for cap, ms in measured.items()}
    return (
        recommended,
        regret[recommended],
        best,
        regret[best],
        regret[longest],
        max(regret.values()),
        len(measured),
        same,
    )


def main():
    ddpsim = sys.argv[1]
    print(
        f"{'':<60} {'caps':>4} {'spread':>8}  {'recommended':>11} {'regret':>7} "
        f" {'shortest predicted':>18} {'regret':>7}"
    )
    held_out = broken = wrong = 0
    for key, rows in sorted(sweeps().items()):
        unseen = [r for r in rows if not r[4]]
        if len({r[0] for r in unseen}) >= 2:
            rows, kind = unseen, "held out"
        elif len({r[0] for r in rows}) >= 2 and "--all" in sys.argv:
            kind = "seen"
        else:
            continue
        recommended, regret, best, best_regret, worst_regret, spread, caps, same = judge(
            ddpsim, rows
        )
        bad = kind == "held out" and regret > LIMIT
        held_out += kind == "held out"
        broken += bad
        wrong += kind == "held out" and worst_regret > LIMIT
        print(
            (
                f"{label(key):<60} {caps:>4} {100 * spread:>7.2f}% "
                f" {'default' if recommended is None else f'{recommended:g}':>11}"
                f" {100 * regret:>6.2f}%"
                f"  {best:>18g} {100 * best_regret:>6.2f}%"
                f"{'  the same buckets at every cap' if same else ''}"
                f"{'' if kind == 'held out' else '  seen by the fit'}"
                f"{'  <-- above the limit' if bad else ''}"
            ),
            flush=True,
        )
    print(
        f"{held_out} sweeps that no fit saw, {broken} with a regret above {100 * LIMIT:g} %; the"
        f" cap with the longest predicted step would have had one in {wrong}"
    )
    if wrong < LEAST_HELD_OUT:
        sys.exit("the wrong advice would hardly have been noticed: these sweeps test nothing")
    if held_out < LEAST_HELD_OUT:
        sys.exit(f"fewer than {LEAST_HELD_OUT} sweeps are left: Runs are missing")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
