#!/usr/bin/env python3
"""Does tools/python/ddpsim_record_program.py see what two DDP modules of one program do?

  recorded_two_modules.py DDPSIM    exit 1 if something differs; 77 = no PyTorch here

tests/oracle/scripts/two_modules.py trains a GAN, a GAN with three steps of the critic, and two
towers. It runs as two real ranks of PyTorch over Gloo, where a comm hook of each module writes down
which bucket its Reducer launches, and through the recorder, without hooks. Compared, step by step:
the order in which the process issues both modules' reductions, elements, and parameters in their
order. Then ddpsim plays the recorded Program on a cluster of CPUs.
"""
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from forked import Forks  # noqa: E402

SCRIPT = ROOT / "tests/oracle/scripts/two_modules.py"
RECORDER = ROOT / "tools/python/ddpsim_record_program.py"
UPDATES = {"gan": 2, "critic": 4, "towers": 1}


def run_ranks(forks, what, folder):
    """Both ranks launched this, step by step: [elements, names]."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = Path(folder) / what
    ranks = []
    for rank in range(2):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), "TWO_MODULES_LOG": str(log)}
        ranks.append(forks.start([SCRIPT, what], env, folder))
    for status, said in [r.result(timeout=240) for r in ranks]:
        if status:
            raise SystemExit(f"{what}: a rank failed: {said}")
    first, second = (json.loads(Path(f"{log}.{rank}").read_text()) for rank in range(2))
    if first != second:
        raise SystemExit(f"{what}: the ranks launched different buckets")
    steps = []
    for event in first:
        if event[0] == "step":
            steps.append([])
        else:
            title, _, elements, names = event
            steps[-1].append([elements, [f"{title}.{n}" for n in names]])
    return steps


def record(forks, what, folder):
    out = Path(folder) / f"{what}.program.json"
    asked = [RECORDER, "--ranks", 2, "--updates", UPDATES[what], "--out", out, SCRIPT, what]
    status, said = forks.start(asked, dict(os.environ), folder).result()
    if status:
        raise SystemExit(f"{what}: {said}")
    return out, json.loads(out.read_text())


def reductions(step):
    return [
        [op["bytes"] // 4, op["tensors"]] for op in step["ops"]
        if op.get("operation") == "all_reduce"
    ]


def differences(forks, what, ddpsim, folder):
    real = run_ranks(forks, what, folder)
    path, program = record(forks, what, folder)
    found = []
    if len(program["steps"]) != len(real):
        found.append(f"{len(program['steps'])} steps, and {len(real)} in reality")
    for k, (mine, theirs) in enumerate(zip(program["steps"], real)):
        if reductions(mine) != theirs:
            found.append(f"step {k}: recorded {reductions(mine)}, launched {theirs}")
    kinds = {t["name"].split(".")[0] for t in program["tensors"]}
    if len(kinds) != 2:
        found.append(f"models: {sorted(kinds)}")
    done = subprocess.run(
        [ddpsim, "predict", "--program", str(path), "--cluster", "ethernet-10g", "--ranks", "2",
         "--format", "json"],
        capture_output=True, text=True, check=False,
    )
    if done.returncode:
        found.append(f"is not played: {done.stderr}")
        return found, real
    played = json.loads(done.stdout)["run"]["spans"]
    sent = [s["bytes"] // 4 for s in played if s["op"].startswith("all_reduce/")]
    if sent != [elements for elements, _ in real[-1]]:
        found.append(f"played {sent}, launched {real[-1]}")
    return found, real


def main():
    if importlib.util.find_spec("torch") is None:
        print("no PyTorch here")
        return 77
    bad = 0
    ddpsim = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder, Forks(("torch", "torch.distributed")) as forks:
        for what in UPDATES:
            found, real = differences(forks, what, ddpsim, folder)
            bad += bool(found)
            print(f"{what}: {sum(map(len, real))} reductions in {len(real)} steps of two modules,",
                  "as launched" if not found else "\n  ".join(["different:"] + found))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
