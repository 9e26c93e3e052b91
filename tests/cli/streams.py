#!/usr/bin/env python3
"""What only the program itself can show: closed and full standard streams, pipes, signals.

  streams.py DDPSIM
"""
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SWEEP = [
    "sweep",
    "--workload",
    "resnet50",
    "--cluster",
    "hgx-h100",
    "--axis",
    "bucket_cap_mb=1,5,25",
    "--axis",
    "cluster.hosts=1,2",
]
PREDICT = ["predict", "--workload", "resnet50", "--cluster", "hgx-h100"]


def shell(ddpsim, args, redirection, timeout=60):
    quoted = " ".join(f"'{a}'" for a in [ddpsim, *args])
    return subprocess.run(
        ["bash", "-c", f"{quoted} {redirection}"], capture_output=True, text=True, timeout=timeout
    )


def check(condition, what):
    if not condition:
        sys.exit(f"streams: {what}")


def closed(ddpsim, folder):
    whole = subprocess.run([ddpsim, *SWEEP], capture_output=True, text=True, check=True).stdout
    for redirection in [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"]:
        out = folder / "rows.csv"
        done = shell(ddpsim, [*SWEEP, "--out", str(out)], redirection)
        check(
            done.returncode == 0,
            f"sweep --out {redirection} ends with {done.returncode}: {done.stderr}",
        )
        check(
            out.read_text() == whole,
            f"sweep --out {redirection} wrote something else into its rows",
        )
        out.unlink()
    done = shell(ddpsim, PREDICT, ">&-")
    check(done.returncode == 2 and "stdout" in done.stderr, f"an answer without a stdout: {done}")


def full(ddpsim, folder):
    if not os.path.exists("/dev/full"):
        return
    for args in [
        SWEEP,
        PREDICT,
        [*SWEEP, "--format", "table"],
        ["list"],
        ["--help"],
        ["predict", "--help"],
        [*SWEEP, "--out", str(folder / "whole.csv")],
    ]:
        done = shell(ddpsim, args, "> /dev/full")
        check(
            done.returncode == 2 and "stdout: cannot be written" in done.stderr,
            f"{args} > /dev/full: {done}",
        )


def pipes(ddpsim, folder):
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    inputs = [
        ["predict", str(pipe)],
        [*PREDICT, "--plan", str(pipe)],
        [*PREDICT, "--layers", str(pipe)],
        [*PREDICT, "--set", "bucket_cap_mb=5", "--profile", str(pipe)],
        ["merge", str(pipe)],
        ["show", "run", str(pipe)],
        ["compare", str(pipe), str(pipe)],
        ["predict", "/proc/kmsg"],
        ["merge", "/proc/kmsg"],
        ["import", "nccl-tests", str(pipe)],
        ["import", "nccl-topo", "/proc/kmsg"],
        ["validate", "--budget", str(pipe)],
    ]
    # A pipe of their own: who looks at the other one is a reader while it does.
    unread = folder / "unread"
    os.mkfifo(unread)
    outputs = [
        [*PREDICT, "--out", str(unread)],
        [*SWEEP, "--out", str(unread)],
        [*PREDICT, "--html", str(unread)],
    ]
    running = [
        (
            args,
            subprocess.Popen(
                [ddpsim, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ),
        )
        for args in inputs + outputs
    ]
    for args, child in running:
        try:
            out, err = child.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            for _, c in running:
                c.kill()
            sys.exit(f"streams: {args} hangs")
        check(child.returncode == 2 and not out, f"{args} ends with {child.returncode}: {err}")
    # With a reader a pipe is as good as a file.
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    subprocess.run([ddpsim, *PREDICT, "--out", str(pipe)], check=True)
    check(
        "step" in reader.communicate(timeout=60)[0], "a pipe with a reader did not get the answer"
    )


def wait_until_handled(child, how):
    """Until it has its handlers, or has ended: before, a signal ends it as it would any process."""
    bit = 1 << (how - 1)
    while child.poll() is None:
        try:
            status = Path(f"/proc/{child.pid}/status").read_text()
        except OSError:
            return
        masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
        caught, ignored = (int(masks[m], 16) for m in ("SigCgt", "SigIgn"))
        if caught & bit or (ignored & bit and caught & 1 << (signal.SIGTERM - 1)):
            return
        time.sleep(0.001)


def signals(ddpsim, folder):
    """At whatever moment it is told to end: the old page, or the new one, and nothing beside it."""
    place = folder / "pages"
    place.mkdir()
    page = place / "page.html"
    page.write_text("old")
    page.chmod(0o600)
    command = [
        ddpsim,
        *SWEEP,
        "--out",
        str(folder / "rows.txt"),
        "--format",
        "table",
        "--html",
        str(page),
    ]
    begin = time.time()
    subprocess.run(command, check=True, capture_output=True)
    lasted = time.time() - begin
    check(stat.S_IMODE(page.stat().st_mode) == 0o600, "the page's mode was not kept")
    for k in range(24):
        how = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP][k % 3]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(lasted * (0.3 + 0.7 * k / 24))
        wait_until_handled(child, how)
        child.send_signal(how)
        code = child.wait(timeout=60)
        check(code in (0, 130 if how == signal.SIGINT else -how), f"{how.name} ends with {code}")
        left = [p.name for p in place.iterdir() if p != page]
        check(not left, f"{how.name} left {left}")
        check(page.stat().st_size > 10000, "the page is not whole")


def names(ddpsim, folder):
    """Names that are not UTF-8 are refused with a sentence."""
    odd = os.fsencode(str(folder)) + b"/caf\xe9.json"
    binary = [os.fsencode(a) for a in [ddpsim, *PREDICT]]
    runs = folder / "runs"
    runs.mkdir()
    for args in [
        binary + [b"--out", odd],
        binary + [b"--set", b"name=caf\xe9"],
        [os.fsencode(ddpsim), b"predict", odd],
        [os.fsencode(ddpsim), b"fit", b"--name", b"caf\xe9", b"--runs", os.fsencode(str(runs))],
        [os.fsencode(ddpsim), b"run", b"--revision", b"\xff", *binary[2:]],
    ]:
        done = subprocess.run(args, capture_output=True, timeout=60)
        check(done.returncode == 2 and b"UTF-8" in done.stderr, f"{args}: {done}")
        check(done.stderr.decode() and b"\x1b" not in done.stderr, f"{args}: {done.stderr!r}")
    (runs / os.fsdecode(b"caf\xe9.json")).write_text("{}")
    done = subprocess.run(
        [ddpsim, "validate", "--runs", str(runs)], capture_output=True, timeout=60
    )
    check(
        done.returncode == 2 and b"UTF-8" in done.stderr, f"a Run whose name is not UTF-8: {done}"
    )


def main():
    ddpsim = os.path.abspath(sys.argv[1])
    for part in [closed, full, pipes, signals, names]:
        with tempfile.TemporaryDirectory() as folder:
            part(ddpsim, Path(folder))
    print("streams: closed, full, pipes, signals, names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
