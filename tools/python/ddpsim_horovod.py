#!/usr/bin/env python3
"""Record training steps of the real Horovod as a ddpsim Run (schema ``ddpsim.run/1``, evidence
``system``).

Every rank runs this script; rank 0 writes the Run. ``ddpsim run --backend mpi --plan horovod``
starts the ranks on hosts that it makes; anywhere else mpirun or horovodrun does:

    mpirun -n 4 python3 tools/python/ddpsim_horovod.py --out run.json --workload w.json --plan '{}'

Computation is slept as long as the workload says; parameters and gradients have their real sizes.
``horovod.torch.DistributedOptimizer`` is used as training scripts use it: its hooks ask for each
gradient, its thread fuses them, ``step()`` waits for all of them. The plan's knobs become the
environment of Horovod (``HOROVOD_CYCLE_TIME``) and arguments of its optimizer.

First comes the layer profile: plain steps of the bare model, all ranks running, without
communication. Then steps with nothing but a clock between them. Then Horovod's timeline is switched
on, and a few steps say what was reduced together, and when; the timeline doubles the bits that
cycles agree on, so these steps are marked as instrumented.

Samples ``horovod_hook {rank}``: what a gradient's hook takes of the host, of each steady step:
backward beyond the layer profile's, by gradients. Where ``set_to_none`` is false it includes adding
into the gradients that exist. HOROVOD_ELASTIC=1 gives one rank hooks, too, whose thread waits for
nobody:

    HOROVOD_ELASTIC=1 mpirun -n 1 python3 tools/python/ddpsim_horovod.py --out run.json \\
        --workload w.json --plan '{"set_to_none": true}'

Needs PyTorch and Horovod built for it, on processes of one machine. Times are integers in
picoseconds of CLOCK_MONOTONIC, which they share.
"""
from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Dict, List, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ddpsim_files import write_whole  # noqa: E402
import ddpsim_capture as cap  # noqa: E402  (says itself what is missing where PyTorch is)
import ddpsim_record as rec  # noqa: E402
import torch  # noqa: E402

now = rec.now
Marks = List[Tuple[str, int]]  # of a step: what had ended, when
HEAD_START_NS = 20_000_000
QUIET_S = 0.3  # several cycles
PASSES = 3  # of the layer profile
LOGGED = 6  # steps with the timeline on that are written down

# Knobs of the plan, with Horovod's defaults; names as in docs/formats.md.
ENVIRONMENT: Dict[str, Any] = {
    "HOROVOD_CYCLE_TIME": None,
    "HOROVOD_FUSION_THRESHOLD": None,
    "HOROVOD_CACHE_CAPACITY": None,
    "HOROVOD_DISABLE_GROUP_FUSION": None,
}
ARGUMENTS: Dict[str, Any] = {
    "accumulation_steps": 1,
    "compression": "none",
    "groups": 0,
    "set_to_none": None,
    "unused_parameters": [],
}
SAID_ELSEWHERE = ("system", "backend", "open_mpi", "pytorch")


class HorovodError(Exception):
    """A recording that cannot be made; the message is one sentence for the user."""


def read_plan(text: str) -> Dict[str, Any]:
    """The plan's knobs that are played here; those of the environment are set."""
    given = json.loads(text)
    known = {**ENVIRONMENT, **ARGUMENTS}
    for name in given:
        if name not in known and name not in SAID_ELSEWHERE:
            raise HorovodError(f"plan: {name} is not played here; played are {', '.join(known)}")
    for name in ENVIRONMENT:
        if given.get(name) is not None:
            value = given[name]
            os.environ[name] = str(int(value)) if isinstance(value, bool) else str(value)
    return {**ARGUMENTS, **{k: v for k, v in given.items() if k in ARGUMENTS}}


# ---- steps


class Job:
    """One rank's model and Horovod's optimizer of it."""

    def __init__(self, workload: Dict[str, Any], plan: Dict[str, Any], slow: float):
        self.plan = plan
        self.model = rec.TimedModel(workload, plan["unused_parameters"], slow)
        self.micro = plan["accumulation_steps"]
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        self.names = [n for n, _ in named]
        self.parameters = [p for _, p in named]
        self.sizes = [p.numel() * p.element_size() for p in self.parameters]
        self.bare = cap.Step(
            self.model,
            (self.model.start,),
            None,
            None,
            rec.TimedOptimizer(self.model),
            "fp32",
            torch.device("cpu"),
            self.parameters,
        )
        self.optimizer: Any = None

    def wrap(self, hvd: Any) -> None:
        """Horovod's optimizer in place of the model's: from here on backward reduces."""
        plan, model = self.plan, self.model

        class Sleeping(torch.optim.SGD):
            """Horovod derives its optimizer from this one, and gives it the parameters alone."""

            def __init__(self, parameters: Any) -> None:
                super().__init__(parameters, lr=0.0)

            def step(self, closure: Any = None) -> None:  # type: ignore[override]
                model.sleeper.until(now(), model.optimizer_ns)

        self.optimizer = hvd.DistributedOptimizer(
            Sleeping(self.parameters),
            named_parameters=list(zip(self.names, self.parameters)),
            compression=hvd.Compression.fp16
            if plan["compression"] == "fp16"
            else hvd.Compression.none,
            backward_passes_per_step=self.micro,
            groups=plan["groups"] or None,
        )
        major = int(torch.__version__.split(".", maxsplit=1)[0])
        self.to_none = plan["set_to_none"] if plan["set_to_none"] is not None else major >= 2

    def zero_grad(self) -> None:
        if self.to_none:
            for p in self.parameters:
                p.grad = None
        else:
            self.optimizer.zero_grad()

    def step(self) -> Marks:
        marks = [("start", now())]
        for m in range(self.micro):
            before = f"micro{m}/" if self.micro > 1 else ""
            loss = self.model(self.model.start)
            marks.append((f"{before}fwd", now()))
            loss.sum().backward()
            marks.append((f"{before}bwd", now()))
        self.optimizer.synchronize()
        marks.append(("reduced", now()))
        with self.optimizer.skip_synchronize():
            self.optimizer.step()
        self.zero_grad()
        marks.append(("optimizer", now()))
        return marks


def agreed(hvd: Any, value: int) -> List[int]:
    """Of all ranks."""
    return [int(x) for x in hvd.allgather(torch.tensor([value]), name="ddpsim.agreed")]


def play(hvd: Any, job: Job, steps: int) -> Tuple[int, List[Marks]]:
    """Steps from a common start, one after the other: the start, and their marks."""
    moment = max(agreed(hvd, now())) + HEAD_START_NS
    rec.wait_until(moment)
    return moment, [job.step() for _ in range(steps)]


def last_ends(everyone: List[List[Marks]], begin: int) -> List[int]:
    """The common start, then of each step when its last rank ended."""
    return [begin] + [max(marks[-1][1] for marks in step) for step in zip(*everyone)]


# ---- what the timeline says


def timeline_events(text: str) -> List[Dict[str, Any]]:
    """Its writer may not have closed the list."""
    text = text.strip().rstrip(",")
    events: List[Dict[str, Any]] = json.loads(text if text.endswith("]") else text + "]")
    return events


def reductions(events: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """What was reduced together: names, and begin and end in the timeline's microseconds. What is
    reduced together enters the all-reduce before any of it leaves."""
    names: Dict[int, str] = {}
    out: List[Dict[str, Any]] = []
    open_sets: Dict[int, Dict[str, Any]] = {}
    nested: Dict[int, List[str]] = {}
    joining: Optional[Dict[str, Any]] = None
    for e in events:
        pid = e.get("pid", 0)
        if e["ph"] == "M":
            if "name" in e.get("args", {}):
                names[pid] = e["args"]["name"]
        elif e["ph"] == "B":
            nested.setdefault(pid, []).append(e["name"])
            if e["name"] != "MPI_ALLREDUCE":
                continue
            if joining is None:
                joining = {"names": [], "begin": e["ts"], "end": e["ts"]}
                out.append(joining)
            joining["names"].append(names[pid])
            open_sets[pid] = joining
        elif e["ph"] == "E" and nested.get(pid):
            if nested[pid].pop() == "MPI_ALLREDUCE":
                open_sets.pop(pid)["end"] = e["ts"]
                joining = None
    return out


def timeline_origin(events: List[Dict[str, Any]]) -> int:
    """Microseconds since 1970 at which the timeline's clock began."""
    for e in events:
        start = e.get("args", {}).get("start_time_since_epoch_in_micros")
        if start is not None:
            return int(start)
    raise HorovodError("Horovod's timeline does not say when it began")


def logged_spans(
    job: Job, text: str, everyone: List[List[Marks]], first: int, begin: int
) -> List[Dict[str, Any]]:
    """Spans of the steps with the timeline on, of rank 0's reductions and all ranks' phases."""
    spans: List[Dict[str, Any]] = []
    last = last_ends(everyone, begin)
    index = {name: i for i, name in enumerate(job.names)}
    events = timeline_events(text)
    offset = timeline_origin(events) * 1000 - (time.time_ns() - now())
    sets = []
    for r in reductions(events):
        tensors = [t for name in r["names"] for t in tensors_of(name, index)]
        if tensors:
            sets.append((r["begin"] * 1000 + offset, r["end"] * 1000 + offset, tensors))
    for k in range(1, len(everyone[0])):
        mine = [s for s in sets if last[k] <= s[0] < last[k + 1]]
        carried = sorted(t for s in mine for t in s[2])
        if carried != list(range(len(job.names))):
            raise HorovodError("Horovod's timeline does not have each tensor once in each step")
        for number, (start, end, tensors) in enumerate(mine):
            spans.append(
                span(first + k, 0, "worker", f"allreduce/fused.{number}", start, end, last[k])
            )
            spans[-1].update(
                tensors=tensors,
                bytes=sum(job.sizes[t] for t in tensors),
                algorithm="MPI_ALLREDUCE",
            )
        for rank, theirs in enumerate(everyone):
            before = theirs[k][0][1]
            for name, t in theirs[k][1:]:
                if name.endswith("fwd") or name == "optimizer":
                    spans.append(span(first + k, rank, "host", name, before, t, last[k]))
                before = t
    return spans


def tensors_of(name: str, index: Dict[str, int]) -> List[int]:
    """Of an entry of the timeline: "allreduce.layer.weight"; "grouped_allreduce.layer.weight_2of5"
    is the second of the group that begins with that tensor, in the order of registration."""
    name = name.split(".", 1)[1] if "." in name else name
    if name in index:
        return [index[name]]
    first, _, place = name.rpartition("_")
    if first in index and "of" in place:
        return [index[first] + int(place.split("of")[0]) - 1]
    return []


def span(
    step: int, rank: int, lane: str, op: str, begin: int, end: int, origin: int
) -> Dict[str, Any]:
    return {
        "step": step,
        "actor": rank,
        "lane": lane,
        "op": op,
        "ready_ps": (begin - origin) * 1000,
        "begin_ps": (begin - origin) * 1000,
        "end_ps": (end - origin) * 1000,
    }


# ---- the Run


def durations(everyone: List[List[Marks]], begin: int) -> List[int]:
    """Picoseconds from the last rank's end to the last rank's end."""
    last = last_ends(everyone, begin)
    return [(b - a) * 1000 for a, b in zip(last, last[1:])]


def record(hvd: Any, job: Job, args: argparse.Namespace) -> Optional[Dict[str, Any]]:
    # Horovod's own thread keeps a core busy while it waits, and gives it away when it is wanted.
    profile = rec.host_profile(
        job.bare, PASSES, job.model.slow, lambda: agreed(hvd, 0), time.thread_time_ns
    )
    job.wrap(hvd)
    again = rec.retransmits()
    begin, history = play(hvd, job, 1 + args.steps)
    resent = sum(agreed(hvd, rec.retransmits() - again))
    with tempfile.TemporaryDirectory(prefix="ddpsim_") as folder:
        file = Path(folder) / "timeline.json"
        # Horovod aborts if its timeline begins while ranks are asking for a tensor.
        agreed(hvd, 0)
        if hvd.rank() == 0:
            hvd.start_timeline(str(file), mark_cycles=False)
        time.sleep(QUIET_S)
        second, logged = play(hvd, job, 1 + LOGGED)
        everyone = hvd.allgather_object([history, logged, profile])
        if hvd.rank() == 0:
            hvd.stop_timeline()
            time.sleep(0.2)
            text = file.read_text(encoding="utf-8")
    if hvd.rank() != 0:
        return None
    steps = [
        {"kind": "steady" if k else "first", "duration_ps": d, "page_faults": 0}
        for k, d in enumerate(durations([e[0] for e in everyone], begin))
    ]
    steps += [
        {"kind": "steady", "duration_ps": d, "page_faults": 0, "instrumented": True}
        for d in durations([e[1] for e in everyone], second)
    ]
    spans = logged_spans(job, text, [e[1] for e in everyone], 1 + args.steps, second)
    profiles = [e[2] for e in everyone]
    layers = rec.joined(profiles)
    samples = rec.profile_samples(profiles) + [
        hook_sample(job, rank, e[0], layers["backward_ps"]) for rank, e in enumerate(everyone)
    ]
    settled = [s["duration_ps"] for s in steps[2 : 1 + args.steps]] or [steps[1]["duration_ps"]]
    typical = median(settled)
    spread = median(abs(s - typical) for s in settled) / typical
    run = rec.document_of("system", software(hvd), samples, 0.0, resent)
    run["origin"].update(backend="mpi", compute="timed")
    run.update(steps=steps, layers=layers, spans=spans, tensors=job.names)
    reasons = run["quality"]["reasons"]
    if rec.known_spread(spread, len(settled)) > rec.NOISY_SPREAD:
        reasons.append(f"the steps spread by {100 * spread:.1f} % (median absolute deviation)")
    run["quality"].update(
        spread=round(spread, 6), verdict="noisy" if reasons else "clean", reasons=reasons
    )
    return run


def hook_sample(
    job: Job, rank: int, history: List[Marks], backward_ps: int
) -> Dict[str, Any]:
    """Of a gradient, of each steady step; at least 1."""
    spent = []
    for marks in history[1:]:
        at = dict(marks)
        last = f"micro{job.micro - 1}/" if job.micro > 1 else ""
        took = (at[f"{last}bwd"] - at[f"{last}fwd"]) * 1000 - backward_ps * job.model.slow
        spent.append(max(1, round(took / len(job.names))))
    return {"op": "horovod_hook", "parameters": {"rank": rank}, "durations_ps": spent}


def software(hvd: Any) -> str:
    horovod: Any = importlib.import_module("horovod")
    return (
        f"Horovod {horovod.__version__} over MPI, PyTorch {torch.__version__}, {hvd.size()} ranks"
    )


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workload", type=Path, required=True)
    parser.add_argument("--plan", default="{}")
    parser.add_argument("--steps", type=int, default=8, help="steady steps")
    parser.add_argument("--slow", action="append", default=[], help="RANK=FACTOR")
    parser.add_argument("--hosts", help="host of each rank, checked against DDPSIM_HOST")
    return parser.parse_args(argv)


def measure(args: argparse.Namespace) -> None:
    plan = read_plan(args.plan)
    os.environ.setdefault("HOROVOD_CPU_OPERATIONS", "mpi")
    os.environ.setdefault("HOROVOD_CONTROLLER", "mpi")
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"  # may be switched on later
    try:
        import horovod.torch as hvd  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise HorovodError(f"no Horovod for PyTorch here: {error}") from error
    torch.set_num_threads(1)
    rec.keep_memory()
    hvd.init()
    if args.hosts and args.hosts.split(",")[hvd.rank()] != os.environ.get("DDPSIM_HOST"):
        raise HorovodError(
            f"mpirun started rank {hvd.rank()} on host {os.environ.get('DDPSIM_HOST')}"
        )
    slow = dict(s.split("=", 1) for s in args.slow)
    workload = json.loads(args.workload.read_text(encoding="utf-8"))
    job = Job(workload, plan, float(slow.get(str(hvd.rank()), 1)))
    run = record(hvd, job, args)
    if run is not None:
        write_whole(args.out, json.dumps(run) + "\n")
    hvd.shutdown()


def main(argv: Optional[Sequence[str]] = None) -> int:
    try:
        measure(parse(argv))
    except (HorovodError, rec.RecordError, OSError, RuntimeError, KeyError, ValueError) as error:
        print(f"ddpsim_horovod: {str(error).strip().splitlines()[0]}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
