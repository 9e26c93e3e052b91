#!/usr/bin/env python3
"""Every scenario of this folder: ddpsim's lower() must list exactly what the oracle lists."""
import json
import pathlib
import subprocess
import sys

SAID = ("lane", "op", "tensors", "bytes", "waits_for")  # of an operation, by the oracle
HERE = pathlib.Path(__file__).resolve().parent


def main() -> int:
    ddpsim = sys.argv[1]
    scenarios = sorted((HERE / "scenarios").glob("[0-9]*.json"))
    if len(scenarios) < 20:
        print(f"only {len(scenarios)} scenarios; 20 are required")
        return 1
    failed = 0
    for scenario in scenarios:
        oracle = subprocess.run(
            [sys.executable, HERE / "oracle.py", scenario], capture_output=True, text=True
        )
        ours = subprocess.run(
            [ddpsim, "show", "program", scenario, "--format", "json"],
            capture_output=True,
            text=True,
        )
        if oracle.returncode or ours.returncode:
            print(
                f"{scenario.name}: oracle {oracle.returncode} {oracle.stderr.strip()} ddpsim"
                f" {ours.returncode} {ours.stderr.strip()}"
            )
            failed += 1
            continue
        expected, got = json.loads(oracle.stdout), json.loads(ours.stdout)
        # What a collective carries is held against the real system by recorded_programs.py.
        got = {key: got[key] for key in expected}
        for step in got["steps"]:
            step["ops"] = [{key: op[key] for key in SAID} for op in step["ops"]]
        operations = sum(len(step["ops"]) for step in expected["steps"])
        if expected == got:
            print(f"{scenario.name}: {operations} operations equal")
            continue
        failed += 1
        print(f"{scenario.name}: DIFFERENT")
        for want_step, got_step in zip(expected["steps"], got["steps"]):
            for want, have in zip(want_step["ops"], got_step["ops"]):
                if want != have:
                    print(f"  {want_step['kind']}: oracle {want}\n          ddpsim {have}")
                    break
    print(f"{len(scenarios) - failed} of {len(scenarios)} schedules equal")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
