#!/usr/bin/python3
"""Records what a system does in a step, for tests/data/recorded_orders, as recorder/ says.

  record.py SYSTEM OUT [--package FOLDER] [--version V]
                    records the system's list of questions into the folder OUT
  record.py SYSTEM OUT --draw COUNT SEED ...
                    records as many drawn questions instead (fsdp2, zero)
  record.py SYSTEM --check ...
                    records into a folder that is removed, and compares with the oracle
  record.py --self-test
                    all of the recorder that runs without a system's Python

  SYSTEM  --package
  fsdp1   FSDP of 2.7's sources: torch/distributed/{fsdp,utils.py,_composable_state.py,
          algorithms/_comm_hooks}. Without: of the PyTorch that is installed
  fsdp2   FSDP2 of 2.7's sources, or of those with functions of a later --version in place of their
          own: torch/distributed/{fsdp/_fully_shard,_composable/contract.py,_composable_state.py,
          utils.py}
  zero    FOLDER:FOLDER...; the first has deepspeed 0.14.5, the others pydantic 1.10, cpuinfo, tqdm

PyTorch must be 1.13: exit code 77 where it is not. 1: a recording differs from the oracle.
"""
import argparse
import functools
import importlib
import importlib.util
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path


def pytorch():
    """Why nothing can be recorded here, or None."""
    if importlib.util.find_spec("torch") is None:
        return "no PyTorch"
    import torch

    version = torch.__version__
    return None if version.startswith("1.13") else f"PyTorch {version}, not 1.13"


def draw(record, drawn, version, count, seed):
    """Records questions nobody thought of; what the system itself refuses is counted."""
    rnd, failed = random.Random(seed), 0
    for number in range(count):
        question = drawn(rnd, version)
        try:
            record(config=f"drawn{seed}_{number}", **question)
        except RuntimeError as failure:
            print(question, failure)
            failed += 1
    print(f"{count} drawn questions, the system fails in {failed}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("system", choices=("fsdp1", "fsdp2", "zero"))
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--package")
    parser.add_argument("--version", default="2.7")
    parser.add_argument("--draw", nargs=2, type=int, metavar=("COUNT", "SEED"))
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if (args.out is None) != args.check or (args.system != "fsdp1" and not args.package):
        parser.error("OUT or --check, and --package of all but fsdp1")
    if args.draw and args.system == "fsdp1":
        parser.error("fsdp1 draws nothing")
    return args


def main():
    self_test = sys.argv[1:] == ["--self-test"]
    args = None if self_test else arguments()
    warnings.filterwarnings("ignore")
    missing = pytorch()
    if missing:
        print("skipped:", missing)
        return 77
    if self_test:
        return importlib.import_module("recorder.self_test").main()
    system = importlib.import_module(f"recorder.{args.system}_record")
    real = system.prepare(args.package, args.version)
    with tempfile.TemporaryDirectory() as folder:
        record = functools.partial(system.record, real, args.out or Path(folder))
        if args.draw:
            draw(record, system.drawn, real.version, *args.draw)
        else:
            system.questions(record, real.version)
        if args.check:  # a process of its own: an oracle and a package share a name
            reader = Path(__file__).resolve().with_name(system.READER)
            return subprocess.run([sys.executable, reader, folder], check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
