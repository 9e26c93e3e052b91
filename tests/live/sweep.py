#!/usr/bin/env python3
"""ddpsim sweep, killed and resumed; under mpirun; on a disk that fills: the file is the one of an
undisturbed process.

  sweep.py DDPSIM

Kills a sweep (SIGKILL) at 20 random moments (the seed is printed), resumes it, and compares bytes.
Runs four local MPI processes where mpirun and the module are. Fills a small tmpfs where one can be
mounted.
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

SWEEP = [
    "sweep",
    "--workload",
    "resnet50",
    "--cluster",
    "hgx-h100",
    "--axis",
    "bucket_cap_mb=1:30",
    "--axis",
    "cluster.hosts=1:12",
    "--axis",
    "cluster.link.bandwidth=100Gb/s,400Gb/s",
]


def run(ddpsim, *more, **kw):
    return subprocess.run([ddpsim, *SWEEP, *more], capture_output=True, text=True, **kw)


def fail(sentence):
    sys.exit(f"sweep.py: {sentence}")


def main():
    ddpsim = os.path.abspath(sys.argv[1])
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        whole = f"{folder}/whole.csv"
        begin = time.monotonic()
        done = run(ddpsim, "--out", whole)
        took = time.monotonic() - begin
        if done.returncode != 0:
            fail(done.stderr)
        wanted = pathlib.Path(whole).read_bytes()
        partial = 0
        for k in range(100):
            if k >= 20 and partial >= 5:  # a busy machine may have finished most of the first
                break
            out = f"{folder}/k{k}.csv"
            child = subprocess.Popen(
                [ddpsim, *SWEEP, "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(rng.uniform(0, took))
            child.kill()
            child.wait()
            left = pathlib.Path(out).read_bytes() if os.path.exists(out) else b""
            if not wanted.startswith(left):
                fail(f"killed: what {out} holds is not the beginning of the whole")
            partial += 0 < len(left) < len(wanted)
            done = run(ddpsim, "--out", out, "--resume")
            if done.returncode != 0:
                fail(done.stderr)
            if pathlib.Path(out).read_bytes() != wanted:
                fail(f"resumed after {len(left)} bytes: another file than an uninterrupted one")
        if partial < 5:
            fail(f"only {partial} of 100 kills met a half-written file: the check shows nothing")
        print(f"{k} kills, {partial} in the middle of the file: resumed to the same bytes")

        module = os.path.join(os.path.dirname(ddpsim), "ddpsim_mpi.so")
        if shutil.which("mpirun") and os.path.exists(module):
            environment = dict(
                os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"
            )
            out = f"{folder}/mpi.csv"
            done = subprocess.run(
                ["mpirun", "--oversubscribe", "-n", "4", ddpsim, *SWEEP, "--out", out],
                capture_output=True,
                text=True,
                env=environment,
            )
            if done.returncode != 0:
                fail(f"mpirun: {done.stderr}")
            if pathlib.Path(out).read_bytes() != wanted:
                fail("four MPI processes wrote another file than one process")
            half = f"{folder}/half.csv"
            pathlib.Path(half).write_bytes(wanted[: len(wanted) // 3])
            done = subprocess.run(
                ["mpirun", "--oversubscribe", "-n", "3", ddpsim, *SWEEP, "--out", half, "--resume"],
                capture_output=True,
                text=True,
                env=environment,
            )
            if done.returncode != 0 or pathlib.Path(half).read_bytes() != wanted:
                fail(f"three MPI processes resumed to another file: {done.stderr}")
            # What a process says last, mpirun may lose when it ends the others.
            for _ in range(3):
                done = subprocess.run(
                    ["mpirun", "--oversubscribe", "-n", "2", ddpsim, *SWEEP, "--out", "/dev/full"],
                    capture_output=True,
                    text=True,
                    env=environment,
                    timeout=120,
                )
                if done.returncode == 0 or done.stderr.count("ddpsim:") > 0:
                    break
            if done.returncode == 0 or done.stderr.count("ddpsim:") != 1:
                fail(f"a full disk under mpirun: {done.returncode}, {done.stderr}")
            print("4 MPI processes: the same bytes")
        else:
            print("MPI: skipped (no mpirun, or built without it)")

        small = f"{folder}/small"
        os.mkdir(small)
        if (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", small], capture_output=True
            ).returncode
            == 0
        ):
            try:
                out = f"{small}/x.csv"
                done = run(ddpsim, "--out", out)
                left = pathlib.Path(out).read_bytes()
                if done.returncode != 2 or "No space left" not in done.stderr:
                    fail(f"a full disk: {done.returncode}, {done.stderr}")
                if not wanted.startswith(left) or len(left) < 20000:
                    fail("a full disk lost finished rows")
                shutil.copy(out, f"{folder}/saved.csv")
                done = run(ddpsim, "--out", f"{folder}/saved.csv", "--resume")
                if (
                    done.returncode != 0
                    or pathlib.Path(f"{folder}/saved.csv").read_bytes() != wanted
                ):
                    fail("not resumed after a full disk")
                print(
                    f"a disk of 40 KiB: {left.count(10) - 1} rows kept, resumed elsewhere to the"
                    " same bytes"
                )
            finally:
                subprocess.run(["umount", small], check=True)
        else:
            print("full disk: skipped (no tmpfs can be mounted)")


if __name__ == "__main__":
    main()
