#!/usr/bin/env python3
"""Ctrl-C of `ddpsim calibrate`: what was measured is kept as a Run that can be read and says what
is missing, the exit code is 130, and no process is left. With every backend that this machine has.

  interrupt.py DDPSIM [--only NAME]
"""
import argparse
import gzip
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kill import MARK, left_over  # noqa: E402

HOSTS = ["--cluster", "testbed-star", "--set", "cluster.hosts=2", "--loopback"]
SIZES = ["--collectives", "--sizes", "4KiB,1MiB,16MiB,64MiB", "--repetitions", "40"]
CASES = {  # backend: arguments; what the Run counts
    "tcp": (["--backend", "tcp", *HOSTS], "points"),
    "collectives": (["--backend", "tcp", "--algorithms", "ring", *SIZES, *HOSTS], "points"),
    "gloo": (["--backend", "gloo", "--algorithms", "ring", *SIZES, *HOSTS], "points"),
    "torch": (["--backend", "torch", *HOSTS], "parts"),
    "mpi": (["--backend", "mpi", *SIZES, "--ranks", "2", *HOSTS], "sizes"),
}

FIRST = {"torch": 4.5}  # seconds before the first Ctrl-C, 0.4 elsewhere: it begins with an import


def missing(name):
    """Why this machine cannot."""
    if name == "torch" and importlib.util.find_spec("torch") is None:
        return "no PyTorch"
    if name == "mpi" and (not shutil.which("mpirun") or not importlib.util.find_spec("mpi4py")):
        return "no Open MPI or no mpi4py"
    return ""


def interrupted_after(command, env, seconds, how):
    """(exit code, stderr) of a command that got SIGINT after so many seconds."""
    child = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # As a terminal does, or as `kill -INT` does.
        (os.killpg if how == "group" else os.kill)(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=60)
    return child.returncode, err


def check(name, ddpsim, how):
    arguments, counted = CASES[name]
    mark = f"{os.getpid()}.{time.time_ns()}"
    env = dict(os.environ, **{MARK: mark})
    seconds = FIRST.get(name, 0.4)
    while True:
        with tempfile.TemporaryDirectory() as runs:
            command = [ddpsim, "calibrate", *arguments, "--runs", runs]
            code, err = interrupted_after(command, env, seconds, how)
            if "built without" in err or "this build" in err:
                return f"{name}: skipped: {err.strip()}"
            if code not in (0, 130):
                sys.exit(f"{name}: exit code {code} after {seconds} s: {err}")
            if code == 0:
                sys.exit(f"{name}: it ended before anything could be interrupted ({seconds} s)")
            if left := left_over(mark):
                sys.exit(f"{name}: processes {left} are left")
            files = sorted(Path(runs).glob("*.json.gz"))
            if "nothing is kept" in err:
                if files:
                    sys.exit(f"{name}: says that nothing is kept, and wrote {files[0].name}")
                seconds *= 1.5
                continue
            if f"is kept in {runs}" not in err or len(files) != 1:
                sys.exit(f"{name}: {len(files)} files in the folder, and it said: {err}")
            run = json.loads(gzip.decompress(files[0].read_bytes()))
            said = [s for s in run["skipped"] if s["why"].startswith("interrupted after")]
            if len(said) != 1 or f" {counted}" not in said[0]["what"]:
                sys.exit(f"{name}: the Run does not say what is missing: {run['skipped']}")
            if not run["samples"] or not all(s["durations_ps"] for s in run["samples"]):
                sys.exit(f"{name}: samples without times: {run['samples']}")
            if min(d for s in run["samples"] for d in s["durations_ps"]) <= 0:
                sys.exit(f"{name}: a time that nobody measured")
            kept = len(run["samples"])
            return f"{name}: interrupted after {seconds:.1f} s: {kept} samples; {said[0]['what']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ddpsim")
    parser.add_argument("--only", choices=CASES)
    a = parser.parse_args()
    for k, name in enumerate([a.only] if a.only else CASES):
        if why := missing(name):
            print(f"{name}: skipped: {why}")
            continue
        print(check(name, a.ddpsim, "group" if k % 2 == 0 else "front"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
