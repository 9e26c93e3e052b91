#!/usr/bin/env python3
"""Runs a command once per rank, all ranks on the first GPU: for machines with one GPU.

    ddpsim_one_gpu.py --ranks 2 -- python3 tools/python/ddpsim_record.py --model resnet50 --batch 16
    --device cuda --out run.json

NCCL refuses two ranks on one GPU unless they say that they are different hosts, and ranks that take
turns on the GPU wait milliseconds for one another: each rank gets an ``NCCL_HOSTID`` of its own and
talks over sockets on loopback, and a private MPS daemon, ended with this script, lets them run side
by side. What is measured so are NCCL's steps and DDP's schedule, not NVLink. Standard library only.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Dict, Iterator, List, Optional, Sequence


def environment(rank: int, ranks: int, folder: str, port: int) -> Dict[str, str]:
    """Of rank `rank`, on top of the caller's."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // ranks),
        "NCCL_HOSTID": f"ddpsim{rank}",
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_MNNVL_ENABLE": "0",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_RAS_ENABLE": "0",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_CUMEM_HOST_ENABLE": "0",
        "DDPSIM_ONE_GPU": "1",
        "NCCL_RUNTIME_CONNECT": "0",
        "NCCL_MIN_CTAS": "2",
        "NCCL_MAX_CTAS": "2",
    }


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A free port of 127.0.0.1 that the kernel gives to nobody else meanwhile: bound, not
    listening, with SO_REUSEADDR, so that rank 0's TCPStore can listen there."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]


class Mps:
    """A private MPS daemon."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ddpsim-mps-")
        for part in ("pipe", "log"):
            os.mkdir(f"{self.folder}/{part}", 0o700)
        self.env = dict(
            os.environ,
            CUDA_MPS_PIPE_DIRECTORY=f"{self.folder}/pipe",
            CUDA_MPS_LOG_DIRECTORY=f"{self.folder}/log",
        )

    def __enter__(self) -> "Mps":
        try:
            done = subprocess.run(
                ["nvidia-cuda-mps-control", "-d"],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.quit()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise SystemExit(f"ddpsim_one_gpu: nvidia-cuda-mps-control: {error}") from None
        if done.returncode != 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise SystemExit(
                f"ddpsim_one_gpu: nvidia-cuda-mps-control -d: exit status {done.returncode}"
            )
        return self

    def quit(self) -> None:
        with contextlib.suppress(
            OSError, subprocess.TimeoutExpired
        ):  # it is known to wait for a client that ended badly
            subprocess.run(
                ["nvidia-cuda-mps-control"],
                input="quit -t 1\n",
                env=self.env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                check=False,
                timeout=8,
            )

    def __exit__(self, *_: object) -> None:
        self.quit()
        shutil.rmtree(self.folder, ignore_errors=True)


def run(command: Sequence[str], ranks: int, folder: str) -> int:
    """The first exit status that is not 0; the other ranks are ended then."""
    processes: List["subprocess.Popen[bytes]"] = []
    try:
        with held_port() as port:
            for rank in range(ranks):
                env = {**os.environ, **environment(rank, ranks, folder, port)}
                processes.append(subprocess.Popen(command, env=env))
            while True:
                codes = [p.poll() for p in processes]
                bad = [c for c in codes if c]
                if bad:
                    return bad[0]
                if all(c == 0 for c in codes):
                    return 0
                time.sleep(0.05)
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
        for p in processes:
            p.wait()


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND ARGUMENT...")
    args = parser.parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not 2 <= args.ranks <= 16:
        parser.error(f"--ranks {args.ranks}: 2 to 16")
    if not command:
        parser.error("no command was given")

    def end(*_: object) -> None:
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, end)
    with Mps() as mps:
        return run(command, args.ranks, mps.folder)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("ddpsim_one_gpu: interrupted", file=sys.stderr)
        sys.exit(130)
