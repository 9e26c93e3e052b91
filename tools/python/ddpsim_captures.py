#!/usr/bin/env python3
"""Capture many models on one GPU, one after another in one process: workloads, memory by kind,
kernels by phase.

    ddpsim_captures.py --list captures.json --seconds 300 --workloads DIR --runs DIR

``--list`` holds an array of objects: ``name``, ``model`` or ``factory`` (as for ddpsim_capture.py),
and, where they are not the default, ``batch``, ``image``, ``precision``, ``memory_format``,
``optimizer``, ``compile``, ``benchmark`` (cuDNN tries every algorithm). Each leaves
``DIR/NAME.json`` (the workload) and ``DIR/profile-NAME.json`` (a Run of samples: ``memory_bytes``,
``profiled/PHASE/KERNEL``, ``profiled_busy/PHASE``). What fails is said, and the next one follows; a
file that exists is not made again.
"""
from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ddpsim_capture as cap  # noqa: E402  (says itself what is missing where PyTorch is)
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

CAPTURE_SHARE = 0.75  # of the time; the rest is for the profiler
KEYS = {
    "name": None,
    "model": None,
    "factory": None,
    "batch": None,
    "image": 224,
    "precision": None,
    "memory_format": "contiguous",
    "optimizer": "sgd",
    "compile": False,
    "benchmark": False,
    "repeats": 8,
}


def made(task: Dict[str, Any]) -> Tuple[nn.Module, Tuple[Any, ...], Any, Any]:
    """(model, inputs, loss_fn, optimizer) on the GPU."""
    loss_fn = optimizer = None
    with cap.on_device(torch.device("cuda")):  # random weights are made where they are needed
        if task["model"]:
            model, inputs = cap.named_model(task["model"], task["batch"], task["image"])
            model.train()
        else:
            model, inputs, loss_fn, optimizer = cap.made_by_factory(task["factory"])
    model.cuda()
    several = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    several = tuple(t.cuda() if isinstance(t, Tensor) else t for t in several)
    if task["memory_format"] == "channels_last":
        several = cap.channels_last(model, several)
    if optimizer is None:
        optimizer = cap.default_optimizer(
            task["optimizer"], [p for p in model.parameters() if p.requires_grad]
        )
    return model, several, loss_fn, optimizer


def prepare(task: Dict[str, Any]) -> Tuple[nn.Module, Any, Tuple[Any, ...], Any, Any]:
    """(model, what is trained, inputs, loss_fn, optimizer) as the task says."""
    torch.manual_seed(1)
    cap.set_tf32(task["precision"] if task["precision"] in ("fp32", "tf32") else "tf32")
    torch.backends.cudnn.benchmark = bool(task["benchmark"])
    model, inputs, loss_fn, optimizer = made(task)
    return model, torch.compile(model) if task["compile"] else model, inputs, loss_fn, optimizer


def step_of(task: Dict[str, Any]) -> cap.Step:
    model, trained, inputs, loss_fn, optimizer = prepare(task)
    parameters = [p for p in model.parameters() if p.requires_grad]
    return cap.Step(
        trained,
        inputs,
        None,
        loss_fn,
        optimizer,
        task["precision"] or "fp32",
        parameters[0].device,
        parameters,
    )


def capture_one(task: Dict[str, Any], workloads: Path, runs: Path) -> str:
    model, trained, inputs, loss_fn, optimizer = prepare(task)
    workload = cap.capture(
        trained,
        inputs,
        loss_fn,
        optimizer,
        name=task["name"],
        model_name=task["model"] or type(model).__name__,
        batch=task["batch"],
        warmup=4,
        repeats=task["repeats"],
        precision=task["precision"],
        modules=not task["compile"],
    )
    recipe = {k: v for k, v in task.items() if k not in ("name", "repeats") and v != KEYS[k]}
    workload["source"]["recipe"] = recipe
    cap.write(workload, workloads / f"{task['name']}.json")
    parameters = [p for p in model.parameters() if p.requires_grad]
    step = cap.Step(
        trained,
        inputs,
        None,
        loss_fn,
        optimizer,
        workload["precision"],
        parameters[0].device,
        parameters,
    )
    with torch.cuda.device(0):
        run = cap.kernel_run(
            cap.memory_samples(step) + cap.clock_samples(step), f"profile/{task['name']}"
        )
    cap.write_run(run, runs / f"profile-{task['name']}.json")
    t = workload["times"]
    return (
        f"{t['forward_ps'] / 1e9:.2f} + {t['backward_ps'] / 1e9:.2f} +"
        f" {t['optimizer_ps'] / 1e9:.2f} ms"
    )


def profile_one(task: Dict[str, Any], runs: Path) -> str:
    """Adds the kernels of each phase to the Run that ``capture_one`` left."""
    path = runs / f"profile-{task['name']}.json"
    run = json.loads(path.read_text(encoding="utf-8"))
    step = step_of(task)
    with torch.cuda.device(0):
        step.run()
        run["samples"] += cap.profile_samples(step)
    run["origin"]["date"] = cap.describe_source()[
        "date"
    ]  # from here on the profiler's hooks are in this process
    cap.write_run(run, path)
    return "profiled"


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", type=Path, required=True, help="what to capture, as JSON")
    parser.add_argument("--workloads", type=Path, required=True, help="folder of workloads")
    parser.add_argument("--runs", type=Path, required=True, help="folder of Runs")
    parser.add_argument(
        "--seconds", type=float, default=300, help="no capture begins later than this (default 300)"
    )
    args = parser.parse_args(argv)
    begin = time.monotonic()
    tasks = json.loads(args.list.read_text(encoding="utf-8"))
    for task in tasks:
        for key in task:
            if key not in KEYS:
                parser.error(f"{args.list}: '{key}' is none of {', '.join(KEYS)}")
    if not torch.cuda.is_available():
        print("ddpsim_captures: this PyTorch finds no CUDA GPU", file=sys.stderr)
        return 2
    good = bad = late = 0
    captured: List[Dict[str, Any]] = []

    def attempt(task: Dict[str, Any], what: Callable[[], str]) -> bool:
        at = time.monotonic()
        fine = True
        try:
            said = what()
        except (
            Exception
        ) as error:  # noqa: BLE001  (whatever one model does wrong, the next may do right)
            fine = False
            said = "failed: " + (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        print(f"{task['name']}: {said} ({time.monotonic() - at:.1f} s)", flush=True)
        gc.collect()
        if task["compile"]:
            torch._dynamo.reset()
        torch.cuda.empty_cache()
        return fine

    for given in tasks:
        task = {**KEYS, **given}
        if (args.workloads / f"{task['name']}.json").exists():
            continue
        if time.monotonic() - begin > args.seconds * CAPTURE_SHARE:
            late += 1
        elif attempt(task, lambda: capture_one(task, args.workloads, args.runs)):
            good += 1
            captured.append(task)
        else:
            bad += 1
    # The profiler leaves its hooks in the process, and launches may take twice as long from then
    # on: it comes last.
    for task in captured:
        if not task["compile"] and time.monotonic() - begin <= args.seconds:
            attempt(task, lambda: profile_one(task, args.runs))
    print(f"{good} captured, {bad} failed, {late} left out: the time was over")
    return 0 if bad == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
