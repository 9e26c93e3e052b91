#!/usr/bin/env python3
"""Kills `ddpsim run` at random moments: after the next start nothing of it is left. Its own
executor and, where Open MPI is, that of MPI. Needs the right to make network namespaces, else
skipped (77).

  kill.py DDPSIM [--times N] [--seed S]
"""
import argparse
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MARK = "DDPSIM_KILL_TEST"


def processes(mark):
    """Processes that carry our mark in their environment."""
    out = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (
                f"{MARK}={mark}".encode() in (entry / "environ").read_bytes()
                and (entry / "stat").read_text().split(")")[1].split()[0] != "Z"
            ):
                out.append(int(entry.name))
        except OSError:
            pass
    return out


def killed(pid):
    """Has the kernel been told to end it? On a busy machine it may be long about it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    pending = re.findall(r"(?:SigPnd|ShdPnd):\s*([0-9a-f]+)", status)
    return any(int(p, 16) >> (signal.SIGKILL - 1) & 1 for p in pending)


def left_over(mark):
    """Which processes are left two seconds after their job has ended, and nobody ends."""
    ended = time.time()
    while left := processes(mark):
        lasted = time.time() - ended
        if lasted > 20 or lasted > 2 and not all(map(killed, left)):
            return left
        time.sleep(0.01)
    return []


def namespaces():
    out = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                out.add(os.readlink(entry / "ns/net"))
            except OSError:
                pass
    return out


def machine_mark():
    """That ddpsim puts into the names of its temporaries (sim/io/write_file.cc)."""
    try:
        machine = Path("/etc/machine-id").read_text().split("\n")[0]
    except OSError:
        machine = ""
    h = 0xCBF29CE484222325
    for byte in f"{socket.gethostname()}\n{machine}\n{os.readlink('/proc/self/ns/pid')}".encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return f"{(h ^ h >> 32) & 0xFFFFFFFF:08x}"


def links():
    return {name for _, name in socket.if_nameindex()}  # without /sys, too


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ddpsim")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    mark = f"{os.getpid()}.{time.time_ns()}"
    env = dict(os.environ, **{MARK: mark})
    chance = random.Random(a.seed)
    before_links, before_namespaces = links(), namespaces()
    def kills(command, times):
        """How long the run takes, and nothing of it stays however it is killed; why not: text."""
        begin = time.time()
        whole = subprocess.run(command, env=env, capture_output=True, text=True)
        lasted = time.time() - begin
        if "no mpi4py" in whole.stderr or "no Open MPI" in whole.stderr:
            return lasted, "not over MPI: " + whole.stderr.strip()
        if whole.returncode != 0:
            sys.exit(f"the run itself failed: {whole.stderr}")
        if "NOT shaped" in whole.stdout:
            return lasted, whole.stdout.splitlines()[-1]
        for k in range(times):
            child = subprocess.Popen(
                command,
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            time.sleep(chance.uniform(0, lasted))
            # The front process; any process of the run; or, as Ctrl-C does, all of them.
            how = chance.choice(["front", "any", "interrupt"])
            try:
                if how == "front":
                    os.kill(child.pid, signal.SIGKILL)
                elif how == "any":
                    os.kill(chance.choice(processes(mark) or [child.pid]), signal.SIGKILL)
                else:
                    os.killpg(child.pid, signal.SIGINT)
            except ProcessLookupError:
                pass
            child.wait(timeout=60)
            if left := left_over(mark):
                sys.exit(f"kill {k} ({how}): processes {left} are left")
        return lasted, ""

    with tempfile.TemporaryDirectory() as runs:
        asked = ["run", "--workload", "mlp784-50-10-cpu", "--cluster", "testbed-star"]
        asked += ["--set", "cluster.hosts=3", "--runs", runs, "--steps"]
        command = [a.ddpsim, *asked, "6"]
        lasted, why = kills(command, 0)
        if why:
            print("skipped: " + why)
            return 77
        complete = {p.name for p in Path(runs).glob("*.json.gz")}
        kills(command, a.times)
        over_mpi = [a.ddpsim, *asked, "40", "--backend", "mpi", "--plan", "averaging"]
        _, why = kills(over_mpi, a.times // 3)
        # A writer that was killed in the middle of a Run: no such process can have this number.
        (
            Path(runs) / f"tcp-half.json.gz.ddpsim-{machine_mark()}-4194305-0123456789abcdef"
        ).write_bytes(b"half")
        subprocess.run(command, env=env, check=True, capture_output=True)
        for p in Path(runs).rglob("*"):
            if p.is_file() and not (
                p.name.endswith(".json.gz") or p.parent.name == "scenarios" and p.suffix == ".json"
            ):
                sys.exit(f"{p.name} is left in the folder of Runs")
        files = [str(p) for p in Path(runs).glob("*.json.gz")]
        for f in files:
            subprocess.run(["gzip", "-t", f], check=True)
        assert complete <= {Path(f).name for f in files}
    for what, now, before in (
        ("devices", links, before_links),
        ("namespaces", namespaces, before_namespaces),
    ):
        extra = now() - before
        for _ in range(400):  # those of others come and go; ours would stay
            if not extra:
                break
            time.sleep(0.05)
            extra &= now()
        if extra:
            sys.exit(f"network {what} {extra} are left")
    more = why or f"{a.times // 3} of one over MPI"
    print(f"{a.times} kills of a run of {lasted:.1f} s, {more}: nothing is left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
