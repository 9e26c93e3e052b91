#!/usr/bin/env python3
"""The validation must be able to fail: with each mechanism of the model taken out, the gate on the
committed Runs fails.

  faults.py DDPSIM
"""
import re
import subprocess
import sys

MECHANISMS = [
    "copy_in",
    "in_order_launch",
    "burst",
    "host_lane",
    "workers",
    "reverse_order",
    "uplink_sharing",
    "late_arrival",
    "reduction_time",
    "first_bucket",
    "connection",
    "shared_memory",
    "shared_cores",
    "stragglers",
    "kernels",
    "conversions",
    "calls",
    "loop",
    "host_memory",
    "kernel_wait",
    "power",
]
# Noticed by published steps, which several GPUs made.
OF_STEPS = set(MECHANISMS[MECHANISMS.index("stragglers") :])


def gate(ddpsim, *more):
    done = subprocess.run([ddpsim, "validate", *more], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"validate {' '.join(more)}: {done.stderr}")
    return done.returncode == 1, done.stderr


def main():
    ddpsim = sys.argv[1]
    # That both pass with every mechanism in place is of validation.reports_accuracy and
    # validation.steps.
    failed, why = gate(ddpsim, "--steps", "--without", "burst")
    if failed:
        sys.exit("published steps, which have no token buckets, notice that they are gone:\n" + why)
    unnoticed = []
    for m in MECHANISMS:
        how = ["--steps"] if m in OF_STEPS else []
        failed, why = gate(ddpsim, "--fail-fast", "--without", m, *how)
        reasons = sorted(set(re.findall(r"ddpsim: (?:budget: (\S+)|(mismatch|stale))", why)))
        print(
            f"{m:<16} {'noticed' if failed else 'NOT NOTICED'} "
            f" {' '.join(sorted({a or b for a, b in reasons}))[:150]}"
        )
        if not failed:
            unnoticed.append(m)
    if unnoticed:
        sys.exit("the gate passes without " + ", ".join(unnoticed))


if __name__ == "__main__":
    main()
