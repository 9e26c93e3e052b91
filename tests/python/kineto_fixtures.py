#!/usr/bin/env python3
"""Make the traces in tests/data/kineto.

``record NAME --ranks N --out FOLDER``: trains a model of tools/python/example_models.py, or one of
torchvision's (batch 4), on N ranks of this machine (0: one process without
DistributedDataParallel) under PyTorch's profiler, and writes NAME-N-RANK.json.gz.
``cut TRACE --steps A-B --out FILE``: of a published trace, the events of some iterations that an
import reads, without what names people and machines.
"""
import argparse
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WANTED = re.compile(
    r"ProfilerStep#|Optimizer\.|autograd::engine::evaluate_function|torch::autograd::AccumulateGrad"
    r"|copy_bucket_to_grad|DistributedDataParallel|nccl:|gloo:|record_param_comms|enumerate"
)
ARGUMENTS = ("correlation", "Collective name", "In msg nelems", "Out msg nelems", "Group size",
             "dtype", "Process Group Name", "Process Group Ranks", "Input Dims", "Input type",
             "stream", "device")  # fmt: skip
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def pack(path: Path, value: object) -> None:
    """Without a name and a time in its header: the same trace gives the same bytes."""
    text = json.dumps(value, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, 9, mtime=0))


def train(name: str, ranks: int, rank: int, out: Path, steps: int) -> None:
    sys.path.insert(0, str(HERE.parents[1] / "tools" / "python"))
    import example_models
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    torch.manual_seed(1)
    if hasattr(example_models, name):
        model, inputs, _, _ = getattr(example_models, name)()
    else:
        import torchvision

        model, inputs = getattr(torchvision.models, name)(), (torch.randn(4, 3, 224, 224),)
    trained = model
    if ranks:
        where = (out.parent / f"{name}.store").resolve().as_uri()
        dist.init_process_group("gloo", init_method=where, world_size=ranks, rank=rank)
        trained = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    raw = out.with_suffix("")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        scores = trained(*inputs)
        targets = torch.zeros(scores.shape[:1] + scores.shape[2:], dtype=torch.long)
        torch.nn.functional.cross_entropy(scores, targets).backward()
        optimizer.step()

    for _ in range(5):
        step()
    plan = schedule(wait=0, warmup=2, active=steps)
    write = lambda p: p.export_chrome_trace(str(raw))  # noqa: E731
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=write, record_shapes=True
    ) as p:
        for _ in range(2 + steps):
            step()
            p.step()
    pack(out, json.loads(raw.read_text()))
    raw.unlink()


def cut(trace: Path, first: int, last: int, out: Path) -> None:
    opened = gzip.open(trace, "rt") if trace.suffix == ".gz" else open(trace)
    with opened as file:
        whole = json.load(file)
    marks = sorted(
        (e["ts"], e["ts"] + e["dur"])
        for e in whole["traceEvents"]
        if e.get("name", "").startswith("ProfilerStep#") and not e["cat"].startswith("gpu")
    )
    begin, end = marks[first][0], marks[last][1]
    launched = {
        e["args"]["correlation"]
        for e in whole["traceEvents"]
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and begin <= e["ts"] < end
        and "correlation" in e.get("args", {})
    }  # fmt: skip
    events = []
    for e in whole["traceEvents"]:
        if e.get("ph") != "X":
            continue
        device = e.get("cat") in DEVICE
        if device and e.get("args", {}).get("correlation") not in launched:
            continue
        if not device and not begin <= e["ts"] < end:
            continue
        runtime = e.get("cat") in ("cuda_runtime", "cuda_driver")
        if runtime and not ("Launch" in e["name"] or "mem" in e["name"].lower()
                            or "Synchronize" in e["name"]):  # fmt: skip
            continue
        if not device and not runtime and not WANTED.search(e["name"]):
            continue
        if str(e.get("cat", "")).startswith("gpu_user"):
            continue
        kept = {k: e[k] for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}
        if device:
            kept["name"] = kept["name"][:40]
        kept["args"] = {k: v for k, v in e.get("args", {}).items() if k in ARGUMENTS}
        events.append(kept)
    head = {k: whole[k] for k in ("schemaVersion", "distributedInfo") if k in whole}
    head["deviceProperties"] = [
        {"id": d["id"], "name": d["name"]} for d in whole.get("deviceProperties", [])[:1]
    ]
    pack(out, {**head, "traceEvents": events})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record")
    record.add_argument("name")
    record.add_argument("--ranks", type=int, default=0)
    record.add_argument("--rank", type=int)
    record.add_argument("--steps", type=int, default=4)
    record.add_argument("--out", type=Path, required=True)
    part = commands.add_parser("cut")
    part.add_argument("trace", type=Path)
    part.add_argument("--steps", required=True)
    part.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    if a.command == "cut":
        first, last = map(int, a.steps.split("-"))
        return cut(a.trace, first, last, a.out)
    if a.rank is not None:
        out = a.out / f"{a.name}-{a.ranks}-{a.rank}.json.gz"
        return train(a.name, a.ranks, a.rank, out, a.steps)
    again = [sys.executable, __file__, "record", a.name, "--ranks", str(a.ranks), "--out",
             str(a.out), "--steps", str(a.steps), "--rank"]  # fmt: skip
    store = a.out / f"{a.name}.store"
    store.unlink(missing_ok=True)
    started = [subprocess.Popen([*again, str(r)]) for r in range(max(1, a.ranks))]
    status = max(p.wait() for p in started)
    store.unlink(missing_ok=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
