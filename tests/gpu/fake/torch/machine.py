"""A device that is not there with its planted values, and the scripts that run on it."""
import functools
import json
import os
import random
import sys
from pathlib import Path

import judges
from fake_cuda import planted as plants

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
TOOLS = ROOT / "tools/python"
sys.path += [str(ROOT / "tests/support"), str(TOOLS)]
from ddpsim_one_gpu import held_port  # noqa: E402
from forked import Forks  # noqa: E402

# A device as slow as its tensors are small, so that it decides; one whose host decides; and one
# whose speeds are a GPU's, for operators of real sizes.
SLOW = dict(plants.DEFAULT, cold_ms=60.0, queue=128.0)
HOST = dict(
    SLOW,
    fp32=5e13,
    tf32=4e14,
    bf16=8e14,
    fp16=7.5e14,
    memory_bytes_per_s=3e12,
    cold_ms=0.5,
    call_us=80.0,
    launch_us=120.0,
    nccl_bytes_per_s=5e10,
)
FAST = dict(
    SLOW,
    fp32=5e13,
    tf32=4e14,
    bf16=8e14,
    fp16=7.5e14,
    memory_bytes_per_s=3e12,
    kernel_us=2.5,
    latency_us=3,
    cold_ms=3,
    queue=1024,
    first_use_us=300,
    pcie_bytes_per_s=5e10,
    pageable_bytes_per_s=1e10,
    nccl_us=40,
    nccl_bytes_per_s=5e10,
    nccl_call_us=15,
    event_us=0.5,
)


def drawn(seed):
    r = random.Random(seed)
    scaled = (
        "fp32",
        "memory_bytes_per_s",
        "kernel_us",
        "call_us",
        "launch_us",
        "latency_us",
        "nccl_us",
        "nccl_bytes_per_s",
    )
    scale = {k: r.uniform(0.6, 1.6) for k in scaled}
    p = {**SLOW, **{k: SLOW[k] * s for k, s in scale.items()}}
    p.update(
        tf32=p["fp32"] * r.uniform(2, 6),
        bf16=p["fp32"] * r.uniform(5, 12),
        conv=r.uniform(0.3, 0.9),
        context_bytes=float(r.randrange(10**8, 10**9)),
    )
    return p


def the_seed():
    seed = os.environ.get("DDPSIM_FAKE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed} (DDPSIM_FAKE_SEED={seed} repeats it)", flush=True)
    return seed


@functools.cache
def forks(python):
    return Forks(("torch", "torch.distributed"), python)


TRUTHS = {}  # what train.py said


class Machine:
    """Planted values, a folder, and a copy of the scripts that run there."""

    def __init__(self, folder, planted, tools=TOOLS, python=sys.executable):
        self.folder, self.p, self.tools = Path(folder), planted, Path(tools)
        self.python = python
        self.folder.mkdir(parents=True, exist_ok=True)

    def environment(self, rank, ranks, port, planted):
        file = self.folder / f"planted{rank}"
        file.write_text("".join(f"{k} {v!r}\n" for k, v in planted.items()), encoding="utf-8")
        return {
            **os.environ,
            "DDPSIM_FAKE_TORCH": str(file),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{HERE}",
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }

    def run(self, script, *arguments, ranks=1, of_rank=None):
        """(worst exit status, what all ranks said); ``of_rank``: their planted values."""
        argv = ["-m", "fake_cuda", str(script), *map(str, arguments)]
        with held_port() as port:
            envs = [
                self.environment(rank, ranks, port, planted)
                for rank, planted in enumerate(of_rank or [self.p] * ranks)
            ]
            started = [forks(self.python).start(argv, env, self.folder) for env in envs]
            done = [s.result(timeout=600) for s in started]
        return max(abs(status) for status, _ in done), "".join(said for _, said in done)

    def truth(self, ranks=1, of_rank=None, **options):
        key = json.dumps([self.p, ranks, of_rank, options])
        if key in TRUTHS:
            return TRUTHS[key]
        out = self.folder / f"truth{len(list(self.folder.glob('truth*')))}.json"
        status, said = self.run(
            HERE / "train.py", json.dumps(options), out, ranks=ranks, of_rank=of_rank
        )
        if status:
            sys.exit(f"train.py {options}: {said[-600:]}")
        found = judges.load(out)
        found["busy"] = self.p["fp32"] < 1e12  # so slow a device never waits for the host
        TRUTHS[key] = found
        return found

    def truths(self, ranks, options):
        """What train.py says of each of these, trained one after another by the same ranks."""
        out = self.folder / f"truths{len(list(self.folder.glob('truths*')))}.json"
        status, said = self.run(HERE / "train.py", json.dumps(options), out, ranks=ranks)
        if status:
            sys.exit(f"train.py {options}: {said[-600:]}")
        return judges.load(out)

    def captured(self, tasks):
        """{name: (workload, Run)} by ddpsim_captures.py, or a sentence."""
        (self.folder / "list.json").write_text(json.dumps(tasks), encoding="utf-8")
        for folder in ("workloads", "runs"):
            (self.folder / folder).mkdir(exist_ok=True)
        status, said = self.run(
            self.tools / "ddpsim_captures.py",
            "--list",
            "list.json",
            "--seconds",
            "1e6",
            "--workloads",
            "workloads",
            "--runs",
            "runs",
        )
        if status:
            return f"ddpsim_captures.py ended with {status}: {said[-300:]}"
        return {
            n: (
                judges.load(self.folder / f"workloads/{n}.json"),
                judges.load(self.folder / f"runs/profile-{n}.json"),
            )
            for n in (t["name"] for t in tasks)
        }

    def recorded(self, *arguments, ranks=1, of_rank=None):
        """A Run by ddpsim_record.py, or a sentence."""
        out = self.folder / "recorded.json"
        out.unlink(missing_ok=True)
        status, said = self.run(
            self.tools / "ddpsim_record.py",
            "--import-from",
            HERE,
            "--device",
            "cuda",
            "--out",
            out,
            *arguments,
            ranks=ranks,
            of_rank=of_rank,
        )
        if status or not out.exists():
            return f"ddpsim_record.py ended with {status}: {said[-400:]}"
        return judges.load(out)


def task(model, precision, **more):
    return {
        "name": f"{model}-{precision}",
        "factory": f"fake_models:{model}",
        "precision": precision,
        "repeats": 6,
        **more,
    }
