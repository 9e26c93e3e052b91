#!/usr/bin/env python3
"""Capture one training step of a PyTorch model as a ddpsim workload.

A workload (schema ``ddpsim.workload/1``, see docs/formats.md) holds the parameters of a model, the
order in which their gradients are accumulated during backward, and when. As a library:
``write(capture(model, inputs, ...), path)``. As a script: ``ddpsim_capture.py --model resnet50
--batch 8 --out workloads/resnet50.json``. Times are integers in picoseconds.
"""
from __future__ import annotations

import argparse
import contextlib
import datetime
import difflib
import gc
import importlib
import json
import os
import platform
import re
import sys
import threading
import time
import traceback
from collections import Counter, OrderedDict
from pathlib import Path
from statistics import median, quantiles
from typing import (
    Any,
    Callable,
    Collection,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ddpsim_files import write_whole  # noqa: E402

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    _NO_TORCH = (
        f"PyTorch is missing for {sys.executable or 'this interpreter'}: install the Debian package"
        " python3-torch and run with /usr/bin/python3, or run 'pip install torch torchvision'"
    )
    if __name__ != "__main__":
        raise ImportError(_NO_TORCH) from None
    print(f"ddpsim_capture: {_NO_TORCH}", file=sys.stderr)
    sys.exit(2)

SCHEMA = "ddpsim.workload/1"
INTERRUPTED = "interrupted"  # how that note begins
REFERENCE_BLAS = (
    "this PyTorch computes matrix products with the reference BLAS, many times slower than OpenBLAS"
    " or MKL would (Debian: libopenblas0-pthread); the times are of this one"
)
OPTIMIZERS = ("sgd", "adam", "adamw")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
EXCESS_LIMIT = (
    0.03  # fraction by which an instrumented step may exceed a plain one before it is noted
)
QUIET_CORES = 0.15  # a pair of passes is quiet if other processes use no more CPU cores than this
QUIET_WINDOW_S = 0.5  # time over which that is judged
MAX_TRIES = 4  # pairs tried for each one wanted, before the quietest are taken
OTHER = "(other)"  # share of a phase that belongs to no listed module
DTYPES = {
    getattr(torch, n): n
    for n in ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool")
}
ELEMENT_SIZES = {n: torch.empty(0, dtype=dtype).element_size() for dtype, n in DTYPES.items()}

Workload = Dict[str, Any]
LossFn = Callable[..., Tensor]


class CaptureError(Exception):
    """A capture that cannot be made; the message is one sentence for the user."""


class Totals(NamedTuple):
    """Phases of one step in ps; ``optimizer`` includes zero_grad(set_to_none=True)."""

    forward: int
    backward: int
    optimizer: int
    step: int


class Pass(NamedTuple):
    """One step: totals on the device and on the host thread; if instrumented, (parameter, device,
    host) arrivals."""

    device: Totals
    host: Totals
    arrivals: List[Tuple[int, int, int]]


class Forward(NamedTuple):
    """A forward by layers: modules in the order in which they begin; of each, on the device and on
    the host, the time until the next one begins."""

    order: List[nn.Module]
    device: List[int]
    host: List[int]
    total: int
    host_total: int


class HostClock:
    """Marks points in time on the host; on a CPU these are also the device's times."""

    def __init__(self) -> None:
        self.times: List[int] = []

    def synchronize(self) -> None:
        """Wait for the device; called before the first mark of a pass and before any is read."""

    def mark(self) -> int:
        self.times.append(time.perf_counter_ns())
        return len(self.times) - 1

    def host_ps(self, a: int, b: int) -> int:
        return (self.times[b] - self.times[a]) * 1000

    def device_ps(self, a: int, b: int) -> int:
        return self.host_ps(a, b)


class CudaClock(HostClock):
    """Marks points in time on the current CUDA stream (events) and on the host thread."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.events: List[Any] = []  # reused by every pass: the warm-up creates them

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def mark(self) -> int:
        index = super().mark()
        if index == len(self.events):
            self.events.append(torch.cuda.Event(enable_timing=True))
        self.events[index].record()
        return index

    def device_ps(self, a: int, b: int) -> int:
        return round(
            self.events[a].elapsed_time(self.events[b]) * 1e9
        )  # elapsed_time is in milliseconds


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


class Keywords(dict):  # type: ignore[type-arg]
    """Inputs that a model takes by name, as those of Hugging Face do."""


def as_inputs(inputs: Any) -> Tuple[Any, ...]:
    """What a model's forward is given: positions, or one Keywords for a mapping."""
    if isinstance(inputs, Tensor):
        return (inputs,)
    if isinstance(inputs, Mapping):
        if not all(isinstance(name, str) for name in inputs):
            raise CaptureError(
                "inputs that are a mapping are given by name, so its keys must be text"
            )
        return (Keywords(inputs),)
    if not isinstance(inputs, Iterable) or isinstance(inputs, str):
        raise CaptureError(
            "the inputs must be a tensor, a tuple of them, or a mapping of names to them, not "
            f"{type(inputs).__name__}"
        )
    return tuple(inputs)


def moved(inputs: Tuple[Any, ...], device: Any) -> Tuple[Any, ...]:
    """The same on a device."""

    def at(value: Any) -> Any:
        return value.to(device) if isinstance(value, Tensor) else value

    return tuple(
        Keywords({n: at(v) for n, v in i.items()}) if isinstance(i, Keywords) else at(i)
        for i in inputs
    )


def call(model: Any, inputs: Tuple[Any, ...]) -> Any:
    """The model's output."""
    if len(inputs) == 1 and isinstance(inputs[0], Keywords):
        return model(**inputs[0])
    return model(*inputs)


def where_it_failed(error: BaseException) -> str:
    """One line: what was raised, and the last line of code of the user's that raised it."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not os.path.basename(f.filename).startswith("ddpsim_")
        and "site-packages" not in f.filename
        and "dist-packages" not in f.filename
        and not f.filename.startswith("<")
    ]
    place = (
        f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    )
    text = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {text}{place}"


class Step:
    """Runs and measures training steps of one model."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Tuple[Any, ...],
        targets: Optional[Tensor],
        loss_fn: Optional[LossFn],
        optimizer: torch.optim.Optimizer,
        precision: str,
        device: torch.device,
        parameters: Sequence[Tensor],
    ) -> None:
        self.model, self.inputs, self.targets, self.loss_fn = model, inputs, targets, loss_fn
        self.optimizer, self.precision, self.device, self.parameters = (
            optimizer,
            precision,
            device,
            parameters,
        )
        self.autocast = precision in ("bf16", "fp16") and any(
            p.dtype == torch.float32 for p in parameters
        )
        self.clock: HostClock = CudaClock(device) if device.type == "cuda" else HostClock()
        self.nodes: List[Any] = []  # AccumulateGrad nodes, which nothing else keeps alive
        self.last_loss: Optional[Tensor] = None
        # Half precision is trained with a scaled loss: its check for infinities makes the host wait
        # in every step.
        scaled = self.autocast and precision == "fp16" and device.type == "cuda"
        self.scaler: Any = grad_scaler() if scaled else None

    def backward(self, loss: Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def update(self) -> None:
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def loss(self) -> Tensor:
        context: ContextManager[Any] = contextlib.nullcontext()
        if self.autocast:
            dtype = torch.bfloat16 if self.precision == "bf16" else torch.float16
            context = torch.autocast(self.device.type, dtype=dtype)
        with context:
            try:
                output = call(self.model, self.inputs)
            except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
                raise CaptureError(
                    f"the model's forward failed: {where_it_failed(error)}"
                ) from error
            if self.loss_fn is None:
                loss = self.default_loss(output)
            else:
                loss = (
                    self.loss_fn(output)
                    if self.targets is None
                    else self.loss_fn(output, self.targets)
                )
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise CaptureError(
                "the loss must be a tensor with one element that requires a gradient"
            )
        return loss

    def default_loss(self, output: Any) -> Tensor:
        """The model's own loss if it returns one, else cross entropy against ``targets`` (random
        unless given)."""
        own = (
            output.get("loss", output)
            if isinstance(output, dict)
            else getattr(output, "loss", output)
        )
        if isinstance(own, Tensor) and own.numel() == 1 and own.requires_grad:
            return own
        logits = [t for t in tensors_in(output) if t.dim() >= 2 and t.is_floating_point()]
        if not logits or isinstance(output, dict):
            raise CaptureError(
                "the model's output is not a batch of class scores, so loss_fn must be given"
            )
        if self.targets is None:
            shape = logits[0].shape[:1] + logits[0].shape[2:]
            self.targets = torch.randint(logits[0].shape[1], shape, device=logits[0].device)
        losses = [nn.functional.cross_entropy(t, self.targets) for t in logits]
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def install(self, seen: List[Tuple[int, int]]) -> List[Any]:
        """Hook every parameter: append (parameter, mark) to ``seen`` once its gradient was
        accumulated."""
        mark = self.clock.mark

        def hook_for(index: int) -> Callable[..., None]:
            def hook(*_: Any) -> None:
                seen.append((index, mark()))

            return hook

        if hasattr(Tensor, "register_post_accumulate_grad_hook"):  # PyTorch 2.1 and later
            return [
                p.register_post_accumulate_grad_hook(hook_for(i))
                for i, p in enumerate(self.parameters)
            ]
        if not self.nodes:
            self.nodes = [p.expand_as(p).grad_fn.next_functions[0][0] for p in self.parameters]
        return [node.register_hook(hook_for(i)) for i, node in enumerate(self.nodes)]

    def run(self, instrument: bool = False) -> Pass:
        """One pass, begun on an idle device."""
        return self.run_train(1, instrument)[0]

    def run_train(self, count: int, instrument: bool = False) -> List[Pass]:
        """Passes one after another, as in training: on a GPU the host runs ahead, and waits only
        where the model does.

        The device is idle before the first one only, so only the first one fills the pipeline.
        """
        clock = self.clock
        seen: List[Tuple[int, int]] = []
        handles = self.install(seen) if instrument else []
        clock.times.clear()
        clock.synchronize()
        marks: List[Tuple[int, int, int, int, int, List[Tuple[int, int]]]] = []
        for _ in range(count):
            seen.clear()
            start = clock.mark()
            self.optimizer.zero_grad(set_to_none=True)
            zeroed = clock.mark()
            loss = self.loss()
            forward = clock.mark()
            self.backward(loss)
            backward = clock.mark()
            self.update()
            marks.append((start, zeroed, forward, backward, clock.mark(), list(seen)))
        clock.synchronize()
        for handle in handles:
            handle.remove()
        self.last_loss = loss.detach()
        return [self.told(*m) for m in marks]

    def told(
        self,
        start: int,
        zeroed: int,
        forward: int,
        backward: int,
        end: int,
        seen: List[Tuple[int, int]],
    ) -> Pass:
        clock = self.clock

        def totals(ps: Callable[[int, int], int]) -> Totals:
            times = (
                ps(zeroed, forward),
                ps(forward, backward),
                ps(start, zeroed) + ps(backward, end),
            )
            return Totals(*times, step=sum(times))

        last: Dict[int, int] = (
            {}
        )  # a gradient accumulated more than once counts when it is last accumulated
        for index, mark in seen:
            last.pop(index, None)
            last[index] = mark
        arrivals = [
            (i, clock.device_ps(forward, m), clock.host_ps(forward, m)) for i, m in last.items()
        ]
        return Pass(totals(clock.device_ps), totals(clock.host_ps), arrivals)

    def run_modules(self, names: Dict[nn.Module, str]) -> Tuple[Dict[str, int], Dict[str, int]]:
        """One step with hooks on modules and autograd nodes: ps of forward and of backward by
        module name.

        The time between two marks belongs to the owner stored with the later (backward) or the
        earlier (forward) mark; None marks the hooks' own work. Every autograd node belongs to the
        module whose forward made it.
        """
        clock = self.clock
        line: List[Tuple[int, Optional[str]]] = []
        stack: List[Tuple[str, Set[Any]]] = []
        owners: Dict[Any, str] = {}

        def before(module: nn.Module, args: Any) -> None:
            line.append((clock.mark(), None))
            stack.append(
                (names[module], {t.grad_fn for t in tensors_in(args) if t.grad_fn is not None})
            )
            line.append((clock.mark(), names[module]))

        def after(module: nn.Module, args: Any, output: Any) -> None:
            line.append((clock.mark(), None))
            name, boundary = stack.pop()
            todo = [t.grad_fn for t in tensors_in(output)]
            while todo:
                node = todo.pop()
                if node is not None and node not in boundary and node not in owners:
                    owners[node] = name
                    todo.extend(n for n, _ in node.next_functions)
            line.append((clock.mark(), stack[-1][0] if stack else OTHER))

        handles = [m.register_forward_pre_hook(before) for m in names]
        handles += [m.register_forward_hook(after) for m in names]
        try:
            self.optimizer.zero_grad(set_to_none=True)
            clock.times.clear()
            clock.synchronize()
            line.append((clock.mark(), OTHER))
            loss = self.loss()
            line.append((clock.mark(), None))
            done: List[Tuple[int, str]] = []

            def node_hook(name: str) -> Callable[..., None]:
                return lambda *_: done.append((clock.mark(), name))

            todo, nodes = [loss.grad_fn], set()
            while todo:
                node = todo.pop()
                if node is not None and node not in nodes:
                    nodes.add(node)
                    handles.append(node.register_hook(node_hook(owners.get(node, OTHER))))
                    todo.extend(n for n, _ in node.next_functions)
            done.append((clock.mark(), OTHER))
            self.backward(loss)
            done.append((clock.mark(), OTHER))
            clock.synchronize()
        finally:
            for handle in handles:
                handle.remove()
            owners.clear()
        self.update()
        forward: Dict[str, int] = dict.fromkeys(names.values(), 0)
        backward = dict(forward)
        forward[OTHER] = backward[OTHER] = 0
        for (a, owner), (b, _) in zip(line, line[1:]):
            if owner is not None:
                forward[owner] += clock.device_ps(a, b)
        for (a, _), (b, name) in zip(done, done[1:]):
            backward[name] += clock.device_ps(a, b)
        return forward, backward

    def run_layers(self, owners: Collection[nn.Module], count: int) -> List[Forward]:
        """Forward of passes one after another, as run_train: when each module begins."""
        clock = self.clock
        calls: List[Tuple[nn.Module, int]] = []
        handles = [
            m.register_forward_pre_hook(lambda m, _: calls.append((m, clock.mark())))
            for m in owners
        ]
        passes: List[Tuple[int, List[Tuple[nn.Module, int]], int]] = []
        try:
            clock.times.clear()
            clock.synchronize()
            for _ in range(count):
                calls.clear()
                self.optimizer.zero_grad(set_to_none=True)
                start = clock.mark()
                loss = self.loss()
                # What backward computes again is backward's.
                passes.append((start, list(calls), clock.mark()))
                self.backward(loss)
                self.update()
            clock.synchronize()
        finally:
            for handle in handles:
                handle.remove()
        out = []
        for start, line, end in passes:
            begins = [m for _, m in line] + [end]
            pieces = [
                [ps(a, b) for a, b in zip(begins, begins[1:])]
                for ps in (clock.device_ps, clock.host_ps)
            ]
            total = (clock.device_ps(start, end), clock.host_ps(start, end))
            out.append(Forward([m for m, _ in line], pieces[0], pieces[1], *total))
        return out


def grad_scaler() -> Any:
    """torch.amp's since 2.3, torch.cuda.amp's before."""
    new = getattr(torch.amp, "GradScaler", None) if hasattr(torch, "amp") else None
    return new("cuda") if new is not None else torch.cuda.amp.GradScaler()


PHASES = ("forward", "backward", "optimizer")


def phases(step: Step) -> Iterator[str]:
    """One step, a phase at a time: each is named when it has been issued."""
    step.optimizer.zero_grad(set_to_none=True)
    loss = step.loss()
    yield "forward"
    step.backward(loss)
    del loss
    yield "backward"
    step.update()
    yield "optimizer"


def memory_samples(step: Step) -> List[Dict[str, Any]]:
    """Bytes on the GPU: by kind, and the peak of each phase (PyTorch's allocator, and what the
    driver says is gone)."""
    device = step.device
    step.run()
    step.last_loss = None
    step.optimizer.zero_grad(set_to_none=True)
    gc.collect()

    def size(tensors: Iterator[Tensor]) -> int:
        return sum(t.numel() * t.element_size() for t in tensors)

    kinds = {
        "weights": size(iter(step.model.parameters())),
        "buffers": size(step.model.buffers()),
        "inputs": size(t for t in tensors_in([step.inputs, step.targets]) if t.is_cuda),
        "optimizer_state": size(
            t for s in step.optimizer.state.values() for t in tensors_in(s) if t.is_cuda
        ),
        "before": torch.cuda.memory_allocated(device),
    }
    torch.cuda.reset_peak_memory_stats(device)
    for phase in phases(step):
        kinds[f"after_{phase}"] = torch.cuda.memory_allocated(device)
        kinds[f"peak_{phase}"] = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
    kinds["gradients"] = size(p.grad for p in step.parameters if p.grad is not None)
    kinds["reserved"] = torch.cuda.memory_reserved(device)
    free, total = torch.cuda.mem_get_info(device)
    kinds["outside_allocator"] = total - free - kinds["reserved"]
    return [{"op": "memory_bytes", "parameters": kinds, "durations_ps": [1]}]


def clock_samples(step: Step, seconds: float = 1.0) -> List[Dict[str, Any]]:
    """The GPU's clock, power and temperature while it trains without a pause; nothing where NVML is
    missing."""
    seen: List[Tuple[int, int, int]] = []
    ended = threading.Event()

    def look() -> None:
        with contextlib.suppress(Exception):  # no NVML binding, or none that answers
            while True:  # at least one, however soon it is over
                seen.append(
                    (
                        torch.cuda.clock_rate(step.device),
                        torch.cuda.power_draw(step.device),
                        torch.cuda.temperature(step.device),
                    )
                )
                if ended.wait(0.05):
                    break

    watcher = threading.Thread(target=look)
    watcher.start()
    begin = time.monotonic()
    durations: List[int] = []
    while time.monotonic() - begin < seconds:
        durations += [p.device.step for p in step.run_train(4)[1:]]
    ended.set()
    watcher.join()
    late = seen[len(seen) // 3 :]  # once the clock has settled
    if not late:
        return []
    mhz, mw, celsius = (round(median(column)) for column in zip(*late))
    return [
        {
            "op": "sustained_step",
            "parameters": {"sm_mhz": mhz, "power_mw": mw, "celsius": celsius},
            "durations_ps": durations,
        }
    ]


def profile_samples(step: Step) -> List[Dict[str, Any]]:
    """What the GPU ran in each phase of one step: durations by kernel, and how long it was busy
    (torch.profiler)."""
    from torch.profiler import ProfilerActivity, profile

    step.run()
    torch.cuda.synchronize(step.device)
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        torch.cuda.synchronize(step.device)  # these are seen, and divide the phases
        for _ in phases(step):
            torch.cuda.synchronize(step.device)
    events = prof.profiler.kineto_results.events()
    on_device = [
        (e.start_ns(), e.duration_ns(), e.name())
        for e in events
        if str(e.device_type()).endswith("CUDA") and not e.name().startswith("ProfilerStep")
    ]
    marks = sorted(
        e.start_ns() + e.duration_ns() for e in events if e.name() == "cudaDeviceSynchronize"
    )
    divides = marks[: len(PHASES) + 1]
    samples: List[Dict[str, Any]] = []
    for phase, begin, end in zip(PHASES, divides, divides[1:]):
        mine = sorted(e for e in on_device if begin <= e[0] < end)
        by_name: Dict[str, List[int]] = {}
        busy = at = 0
        for start, took, name in mine:
            by_name.setdefault(name[:160], []).append(max(1, took) * 1000)
            busy += max(0, start + took - max(at, start))
            at = max(at, start + took)
        launches = sum(
            1
            for e in events
            if begin <= e.start_ns() < end
            and e.name().startswith(
                ("cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync")
            )
        )
        if mine:
            samples.append(
                {
                    "op": f"profiled_busy/{phase}",
                    "parameters": {"kernels": len(mine), "launches": launches},
                    "durations_ps": [max(1, busy * 1000)],
                }
            )
        samples += [
            {"op": f"profiled/{phase}/{name}", "parameters": {}, "durations_ps": took}
            for name, took in by_name.items()
        ]
    return samples


def foreign_cpu_s() -> float:
    """CPU seconds used so far by everything but this process, on Linux; elsewhere constant."""
    with contextlib.suppress(OSError, ValueError):
        user, nice, system, _, _, irq, softirq = map(
            int, Path("/proc/stat").read_text().split()[1:8]
        )
        return (user + nice + system + irq + softirq) / os.sysconf(
            "SC_CLK_TCK"
        ) - time.process_time()
    return 0.0


def ready_offsets(
    passes: Sequence[Sequence[int]], backwards: Sequence[int], backward_ps: int
) -> List[int]:
    """Median over passes of each parameter's share of its pass's backward, times the plain
    backward; non-decreasing."""
    result: List[int] = []
    for offsets in zip(*passes):
        share = median(o / b for o, b in zip(offsets, backwards))
        result.append(
            max(min(round(share * backward_ps), backward_ps), result[-1] if result else 0)
        )
    return result


def module_table(
    step: Step, repeats: int, forward_ps: int, backward_ps: int
) -> List[Dict[str, Any]]:
    """Breakdown over modules that are leaves or own parameters, scaled to the totals."""
    names = {
        m: n or "(model)"
        for n, m in step.model.named_modules()
        if not list(m.children()) or list(m.parameters(recurse=False))
    }
    step.run_modules(names)
    runs = [step.run_modules(names) for _ in range(repeats)]
    scaled: List[Dict[str, int]] = []
    for side, total in enumerate((forward_ps, backward_ps)):
        shares = {
            n: median(r[side][n] / max(1, sum(r[side].values())) for r in runs)
            for n in runs[0][side]
        }
        whole = sum(shares.values()) or 1.0
        column = {n: int(s / whole * total) for n, s in shares.items()}
        column[OTHER] = total - sum(ps for n, ps in column.items() if n != OTHER)
        scaled.append(column)
    forward, backward = scaled
    return [
        {"name": n, "forward_ps": forward[n], "backward_ps": backward[n]}
        for n in forward
        if forward[n] or backward[n]
    ]


class Owner(NamedTuple):
    """A module that forward calls: its name, and its parameters that require a gradient and that
    require none."""

    name: str
    tensors: List[int]
    frozen: List[int]


def layer_owners(step: Step) -> Dict[nn.Module, Owner]:
    """Of the modules that forward calls: a parameter belongs to the innermost one that is called
    and holds it."""
    modules = dict(step.model.named_modules())
    called: Set[nn.Module] = set()
    handles = [m.register_forward_pre_hook(lambda m, _: called.add(m)) for m in modules.values()]
    try:
        step.run()
    finally:
        for handle in handles:
            handle.remove()
    index = {id(p): i for i, p in enumerate(step.parameters)}
    of_frozen = {id(p): i for i, (_, p) in enumerate(named_frozen(step.model))}
    owners: Dict[nn.Module, Owner] = {}
    for name, module in modules.items():
        mine = [index[id(p)] for p in module._parameters.values() if id(p) in index]
        frozen = [of_frozen[id(p)] for p in module._parameters.values() if id(p) in of_frozen]
        while (mine or frozen) and name and modules[name] not in called:
            name = name.rpartition(".")[0]
        if (mine or frozen) and modules[name] in called:
            owner = owners.setdefault(modules[name], Owner(name or "(model)", [], []))
            owner.tensors.extend(mine)
            owner.frozen.extend(frozen)
    return owners


def layer_table(step: Step, repeats: int, times: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Forward by layer, in order of execution: from its begin to that of the next. Shares of the
    instrumented forward, median over passes, times the plain one. RuntimeError: it cannot be told.
    """
    owners = layer_owners(step)
    left = set(range(len(step.parameters))) - {i for o in owners.values() for i in o.tensors}
    if left:
        raise RuntimeError(f"forward calls no module that owns parameter {min(left)}")
    passes = step.run_layers(owners, repeats + 1)[1:]
    if any(p.order != passes[0].order for p in passes):
        raise RuntimeError("the order of layers varies from pass to pass")
    times["raw"]["forward_by_layer"] = [p.total for p in passes]

    def column(pieces: List[List[int]], totals: List[int], forward_ps: int) -> List[int]:
        shares = [median(x / t for x, t in zip(of, totals)) for of in zip(*pieces)]
        # A busy machine makes each pass slow in another place: medians sum to less than a pass.
        inside = median(sum(own) / t for own, t in zip(pieces, totals))
        return [int(s / sum(shares) * inside * forward_ps) for s in shares]

    columns = {
        "forward_ps": column(
            [p.device for p in passes], [p.total for p in passes], times["forward_ps"]
        )
    }
    if step.device.type == "cuda":
        alone = [step.run_layers(owners, 1)[0] for _ in range(max(3, repeats // 2))]
        columns["host_forward_ps"] = column(
            [p.host for p in alone], [p.host_total for p in alone], times["host_forward_ps"]
        )
    return [
        {
            "name": owners[m].name,
            "tensors": sorted(owners[m].tensors),
            **({"frozen": sorted(owners[m].frozen)} if owners[m].frozen else {}),
            **dict(zip(columns, values)),
        }
        for m, *values in zip(passes[0].order, *columns.values())
    ]


class Progress:
    """How far, and how long yet, on stderr: on a terminal a line that changes, else one now and
    then."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.begin = time.perf_counter()
        self.said = self.begin

    def show(self, done: int, quiet: int, repeats: int) -> None:
        now = time.perf_counter()
        if now - self.said < (0.2 if self.terminal else 10):
            return
        if self.said == self.begin and reference_blas():  # it takes long, and this may be why
            print(f"ddpsim_capture: {REFERENCE_BLAS}", file=sys.stderr)
        self.said = now
        pair = (now - self.begin) / max(1, done)
        least, most = pair * (repeats - quiet), pair * (MAX_TRIES * repeats - done)
        text = (
            f"{quiet} of {repeats} quiet pairs of passes, {done} in all; about {least:.0f} s left, "
            f"{most:.0f} s if other processes stay busy"
        )
        print(
            f"\r{text}   " if self.terminal else f"ddpsim_capture: {text}",
            end="" if self.terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        if self.terminal and self.said > self.begin:
            print(file=sys.stderr)


def take_pairs(
    step: Step, warmup: int, repeats: int, progress: Optional[Progress], notes: List[str]
) -> Tuple[List[Tuple[float, int, Pass, Pass]], List[int]]:
    """Load of other processes, number, plain and instrumented pass of each pair; core time of each
    plain one, ns.

    Ctrl-C ends the measurement: what is complete by then is kept, and a note says so."""
    pairs: List[Tuple[float, int, Pass, Pass]] = []
    cores: List[int] = []
    block: List[Tuple[Pass, Pass]] = []
    begin, busy = time.perf_counter(), 0.0

    def close() -> None:
        load = (foreign_cpu_s() - busy) / max(1e-9, time.perf_counter() - begin)
        pairs.extend([(load, len(pairs) + i, *pair) for i, pair in enumerate(block)])
        block.clear()

    try:
        for _ in range(warmup):
            step.run(), step.run(instrument=True)
        if progress:
            progress.begin = progress.said = time.perf_counter()
        while (
            sum(p[0] <= QUIET_CORES for p in pairs) < repeats and len(pairs) < MAX_TRIES * repeats
        ):
            begin, busy = time.perf_counter(), foreign_cpu_s()
            while len(block) < repeats and (
                not block or time.perf_counter() - begin < QUIET_WINDOW_S
            ):
                used = time.process_time_ns()
                passed = step.run()
                used = time.process_time_ns() - used
                block.append((passed, step.run(instrument=True)))
                cores.append(used)
            close()
            if progress:
                progress.show(len(pairs), sum(p[0] <= QUIET_CORES for p in pairs), repeats)
    except KeyboardInterrupt:
        del cores[len(pairs) + len(block) :]
        close()
        if not pairs:
            raise
        notes.append(
            INTERRUPTED + f": {len(pairs)} pairs of passes were measured, {repeats} were asked for"
        )
    if progress:
        progress.end()
    return pairs, cores


def measure(
    step: Step,
    names: Sequence[str],
    warmup: int,
    repeats: int,
    modules: bool,
    progress: Optional[Progress] = None,
) -> Tuple[List[int], Dict[str, Any]]:
    """Alternate plain and instrumented passes; return `arrival` and `times`."""
    notes: List[str] = []
    if step.device.type == "cuda":
        for _ in range(warmup):
            step.run(), step.run(instrument=True)
        # Device times from passes one after another, less the first, which fills the pipeline; host
        # times from passes each begun on an idle device, so that a full queue never makes the host
        # wait.
        plain, hooked = (
            step.run_train(repeats + 1)[1:],
            step.run_train(repeats + 1, instrument=True)[1:],
        )
        alone = [step.run() for _ in range(max(3, repeats // 2))]
        alone_hooked = [step.run(instrument=True) for _ in range(max(3, repeats // 2))]
        return summarize(
            step, names, repeats, modules, plain, hooked, alone, alone_hooked, [], notes
        )
    if step.device.type == "cpu" and reference_blas():
        notes.append(REFERENCE_BLAS)
    pairs, cores = take_pairs(step, warmup, repeats, progress, notes)
    repeats = min(repeats, len(pairs))
    kept = sorted(sorted(pairs, key=lambda p: max(p[0], QUIET_CORES))[:repeats], key=lambda p: p[1])
    plain, hooked = [p[2] for p in kept], [p[3] for p in kept]
    if len(pairs) > len(kept):
        notes.append(
            f"the {len(kept)} quietest of {len(pairs)} pairs of passes are used; other processes"
            f" used at most {max(0.0, *(p[0] for p in kept)):.2f} cores during these"
        )
    return summarize(
        step, names, repeats, modules, plain, hooked, [], [], [cores[p[1]] for p in kept], notes
    )


def summarize(
    step: Step,
    names: Sequence[str],
    repeats: int,
    modules: bool,
    plain: Sequence[Pass],
    hooked: Sequence[Pass],
    alone: Sequence[Pass],
    alone_hooked: Sequence[Pass],
    cores: Sequence[int],
    notes: List[str],
) -> Tuple[List[int], Dict[str, Any]]:
    """`arrival` and `times` from passes. ``alone``: on a GPU, each begun on an idle device;
    ``cores``: ns, on a CPU."""
    orders = Counter(tuple(i for i, _, _ in p.arrivals) for p in hooked)
    order, count = orders.most_common(1)[0]
    if not order:
        raise CaptureError("no parameter received a gradient from the loss")
    if len(orders) > 1:
        notes.append(
            f"the arrival order varied: {len(orders)} orders in {repeats} repetitions; "
            f"arrival and ready_ps are from the {count} with the most common one"
        )
    chosen = [p for p in hooked if tuple(i for i, _, _ in p.arrivals) == order]
    unused = [n for i, n in enumerate(names) if i not in set(order)]
    if unused:
        notes.append("no gradient arrived for: " + ", ".join(unused))
    sparse = [
        names[i]
        for i in order
        if step.parameters[i].grad is not None and step.parameters[i].grad.is_sparse
    ]
    if sparse:
        notes.append("the gradient is sparse, but simulated as dense, for: " + ", ".join(sparse))

    raw: Dict[str, List[int]] = {
        k: [getattr(p.device, k) for p in plain] for k in ("forward", "backward", "optimizer")
    }
    raw["step_plain"] = [p.device.step for p in plain]
    raw["step_instrumented"] = [p.device.step for p in hooked]
    excess = (
        median(b / a for a, b in zip(raw["step_plain"], raw["step_instrumented"])) - 1
    )  # neighbours: no drift
    if excess > EXCESS_LIMIT:
        notes.append(
            f"the instrumented step took {excess:.1%} longer than the plain one before it (median)"
        )
    if repeats >= 4:
        low, middle, high = quantiles(raw["step_plain"], n=4, method="inclusive")
        width = (high - low) / middle
        notes.append(
            f"plain step: {repeats} repetitions, interquartile range {width:.1%} of the median,"
            f" standard error of the median about {0.93 * width / repeats ** 0.5:.1%} if they are"
            " independent"
        )
    times: Dict[str, Any] = {
        f"{k}_ps": round(median(raw[k])) for k in ("forward", "backward", "optimizer")
    }
    times["ready_ps"] = ready_offsets(
        [[t for _, t, _ in p.arrivals] for p in chosen],
        [p.device.backward for p in chosen],
        times["backward_ps"],
    )
    if step.device.type == "cpu":
        times["core_ps"] = round(1000 * median(cores))
    else:
        for k in ("forward", "backward", "optimizer"):
            times[f"host_{k}_ps"] = round(median(getattr(p.host, k) for p in alone))
        chosen = [p for p in alone_hooked if tuple(i for i, _, _ in p.arrivals) == order]
        if not chosen:
            raise CaptureError("the arrival order of gradients differs from pass to pass")
        times["host_ready_ps"] = ready_offsets(
            [[t for _, _, t in p.arrivals] for p in chosen],
            [p.host.backward for p in chosen],
            times["host_backward_ps"],
        )
        raw["step_alone"] = [p.device.step for p in alone]
    times["raw"] = raw
    if modules and not any(n.startswith(INTERRUPTED) for n in notes):
        try:
            times["modules"] = module_table(
                step, max(3, repeats // 3), times["forward_ps"], times["backward_ps"]
            )
        except (
            RuntimeError,
            TypeError,
            AttributeError,
        ) as error:  # informative only: a capture stands without it
            notes.append(f"no breakdown by module: {str(error).splitlines()[0]}")
        try:
            times["layers"] = layer_table(step, max(5, repeats // 2), times)
        except (RuntimeError, TypeError, AttributeError) as error:  # a capture stands without it
            notes.append(f"no forward by layer: {str(error).splitlines()[0]}")
    if step.last_loss is not None and not bool(torch.isfinite(step.last_loss).all()):
        notes.append("the loss was not finite in the last pass")
    times.update(instrumented_excess=round(excess, 5), notes=notes)
    return list(order), times


def describe_optimizer(
    optimizer: torch.optim.Optimizer, name: Optional[str], device: torch.device
) -> Dict[str, Any]:
    """The `optimizer` section, from the class and param_groups of the real object."""
    classes = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
    known = next((classes[c] for c in type(optimizer).__mro__ if c in classes), None)
    if name is not None and name not in OPTIMIZERS:
        raise CaptureError(
            f"optimizer name '{name}' is unknown; it must be one of {', '.join(OPTIMIZERS)}"
        )
    if name is None and known is None:
        raise CaptureError(
            f"optimizer class {type(optimizer).__name__} is not one that ddpsim models; say with "
            f"optimizer_name (--optimizer-name) which of {', '.join(OPTIMIZERS)} stands for it"
        )
    groups = optimizer.param_groups
    fused = any(bool(g.get("fused")) for g in groups)
    default_foreach = (
        device.type == "cuda" and not fused and int(torch.__version__.split(".")[0]) >= 2
    )
    return {
        "name": name or known,
        "momentum": any(bool(g.get("momentum")) for g in groups),
        "weight_decay": any(bool(g.get("weight_decay")) for g in groups),
        "foreach": any(
            default_foreach if g.get("foreach") is None else bool(g["foreach"]) for g in groups
        ),
        "fused": fused,
    }


def describe_tensors(named: Sequence[Tuple[str, Tensor]]) -> List[Dict[str, Any]]:
    for name, tensor in named:
        if tensor.dtype not in DTYPES:
            raise CaptureError(f"'{name}' has dtype {tensor.dtype}, which workloads do not support")
    return [{"name": n, "shape": list(t.shape), "dtype": DTYPES[t.dtype]} for n, t in named]


def named_frozen(model: nn.Module) -> List[Tuple[str, Tensor]]:
    """Parameters that require no gradient: those of a frozen backbone, beneath adapters."""
    return [(n, p) for n, p in model.named_parameters() if not p.requires_grad]


def describe_frozen(model: nn.Module) -> Dict[str, Any]:
    """The section `frozen`, where there are any."""
    frozen = named_frozen(model)
    return {"frozen": describe_tensors(frozen)} if frozen else {}


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def reference_blas() -> bool:
    """Whether matrix products go to the Fortran reference BLAS, which Debian's PyTorch has unless
    another is installed."""
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    with contextlib.suppress(OSError):
        loaded = {
            os.path.realpath(line.split()[-1])
            for line in Path("/proc/self/maps").read_text().splitlines()
            if line.rstrip().endswith(("/libblas.so.3", "/libblas.so")) or "/libblas.so." in line
        }
        return any(os.path.basename(os.path.dirname(path)) == "blas" for path in loaded)
    return False


def describe_source() -> Dict[str, Any]:
    """Provenance, without absolute paths of this machine."""
    words = [re.sub(r"(^|=)/(?:[^/]*/)*", r"\1", word) for word in sys.argv]
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    source: Dict[str, Any] = {
        "tool": "ddpsim_capture.py",
        "command": " ".join([os.path.basename(words[0]), *words[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_blas": blas.group(1) if blas else "unknown",
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
    }
    if "torchvision" in sys.modules:
        source["torchvision"] = str(sys.modules["torchvision"].__version__)
    if torch.cuda.is_available():
        source.update(cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())
    return source


def detect_precision(parameters: Sequence[Tensor], device: torch.device) -> str:
    halves = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    largest = max((p for p in parameters if p.is_floating_point()), key=lambda p: p.numel())
    if largest.dtype in halves:
        return halves[largest.dtype]
    # Convolutions alone run in TF32 by PyTorch's default: that is what fp32 means (docs/model.md
    # 5.1).
    if (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device)[0] >= 8
        and torch.backends.cuda.matmul.allow_tf32
    ):
        return "tf32"
    return "fp32"


def capture(
    model: nn.Module,
    inputs: Union[Tensor, Sequence[Any]],
    loss_fn: Optional[LossFn] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
    *,
    name: Optional[str] = None,
    model_name: Optional[str] = None,
    batch: Optional[int] = None,
    warmup: int = 3,
    repeats: int = 15,
    targets: Optional[Tensor] = None,
    optimizer_name: Optional[str] = None,
    precision: Optional[str] = None,
    modules: bool = True,
    progress: Optional[Progress] = None,
) -> Workload:
    """Measure training steps of ``model`` on ``inputs``: the positional arguments of its forward,
    or a mapping of the named ones.

    ``loss_fn`` is called as ``loss_fn(output)``, or ``loss_fn(output, targets)`` if ``targets`` is
    given; the default is the model's own loss if it returns one, else cross entropy against random
    classes. The default optimizer is SGD with momentum 0.9. ``precision`` bf16 or fp16 runs a
    float32 model under autocast. The model is trained: its parameters change, and its gradients are
    left behind.
    """
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise CaptureError(
            "the model is wrapped in DistributedDataParallel; pass the module inside it"
        )
    named = [
        (n, p) for n, p in model.named_parameters() if p.requires_grad
    ]  # tied parameters: first name only
    if not named:
        raise CaptureError("the model has no parameter that requires a gradient")
    parameters = [p for _, p in named]
    args = as_inputs(inputs)
    if batch is None:
        batch = next((t.shape[0] for t in tensors_in(args) if t.dim() > 0), 0)
    for label, value, least in (
        ("batch", batch, 1),
        ("repeats", repeats, 1),
        ("warmup", warmup, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise CaptureError(f"{label} must be an integer of at least {least}, not {value!r}")
    devices = {p.device for p in parameters}
    device = parameters[0].device
    if len(devices) > 1 or device.type not in ("cpu", "cuda"):
        raise CaptureError(
            "all parameters must be on one device, a CPU or a CUDA GPU, not on "
            + ", ".join(sorted(map(str, devices)))
        )
    if precision is not None and precision not in PRECISIONS:
        raise CaptureError(
            f"precision '{precision}' is unknown; it must be one of {', '.join(PRECISIONS)}"
        )
    precision = precision or detect_precision(list(model.parameters()), device)
    if optimizer is None:
        optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    workload: Workload = {
        "schema": SCHEMA,
        "name": name or model_name or type(model).__name__.lower(),
        "model": model_name or type(model).__name__,
        "basis": "captured",
        "batch": batch,
        "precision": precision,
        "device": {"kind": "cpu", "name": f"{cpu_name()}, {torch.get_num_threads()} threads"},
        "source": describe_source(),
        "optimizer": describe_optimizer(optimizer, optimizer_name, device),
        "tensors": describe_tensors(named),
        **describe_frozen(model),
        "buffers": describe_tensors(list(model.named_buffers())),
    }
    step = Step(model, args, targets, loss_fn, optimizer, precision, device, parameters)
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection inside a pass would be taken for computation
    try:
        with torch.enable_grad(), (
            torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
        ):
            if device.type == "cuda":
                workload["device"] = {"kind": "gpu", "name": torch.cuda.get_device_name(device)}
            workload["arrival"], workload["times"] = measure(
                step, [n for n, _ in named], warmup, repeats, modules, progress
            )
    finally:
        if collecting:
            gc.enable()
    if optimizer_name is not None:
        workload["times"]["notes"].append(
            f"{type(optimizer).__name__} is represented as {optimizer_name}"
        )
    return workload


def format_json(value: Any, indent: int = 0, width: int = 118) -> str:
    """JSON with short values on one line, lists of numbers filled, and other lists with one item to
    a line."""
    flat = json.dumps(value, ensure_ascii=False)
    if (
        not isinstance(value, (dict, list))
        or not value
        or (len(flat) + indent <= width and indent > 0)
    ):
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        items = [
            f"{pad}{json.dumps(k)}: {format_json(v, indent + 1, width)}" for k, v in value.items()
        ]
        return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
    if not all(isinstance(v, (int, float)) for v in value):
        items = [pad + format_json(v, indent + 1, width) for v in value]
        return "[\n" + ",\n".join(items) + "\n" + " " * indent + "]"
    lines = [pad]
    for text in flat[1:-1].split(", "):
        if len(lines[-1]) + len(text) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append(pad)
        lines[-1] += text + ", "
    return "[\n" + "\n".join(lines)[:-2] + "\n" + " " * indent + "]"


def write(workload: Workload, path: Union[str, "os.PathLike[str]"]) -> None:
    """Write a workload; the file appears complete or not at all."""
    write_whole(path, format_json(workload) + "\n")


def kernel_run(samples: List[Dict[str, Any]], key: str) -> Dict[str, Any]:
    """A measured Run of samples on this machine's GPU, without steps (schema ``ddpsim.run/1``)."""
    source = describe_source()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {
        "schema": "ddpsim.run/1",
        "kind": "measured",
        "evidence": "kernel",
        "case": {"key": key},
        "origin": {
            "version": "",
            "revision": "",
            "date": source["date"],
            "argv": source["command"].split(),
            "cpu": source["cpu"],
            "cores": os.cpu_count() or 0,
            "gpu": gpu,
            "kernel": f"{os.uname().sysname} {os.uname().release.split('-')[0]}",
            "backend": "torch",
            "hosts": "gpus",
            "compute": "real",
            "profile": "",
            "software": (
                f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN"
                f" {torch.backends.cudnn.version() or 'none'}, Python {platform.python_version()}"
            ),
        },
        "clock": {"domain": "CLOCK_MONOTONIC", "offset_bound_ps": 0},
        "steps": [],
        "samples": samples,
        "spans": [],
        "quality": {
            "verdict": "clean",
            "spread": 0.0,
            "retransmits": 0,
            "load": 0.0,
            "reasons": [],
        },
        "skipped": [],
    }


def write_run(run: Dict[str, Any], path: Path) -> None:
    write_whole(path, json.dumps(run) + "\n")


def leave(code: int) -> None:
    """Ends this process at once: threads of Gloo or NCCL may wait for ranks that have gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def named_model(name: str, batch: int, image: int) -> Tuple[nn.Module, Tuple[Tensor, ...]]:
    if name == "mlp784-50-10":
        layers = {"fc1": nn.Linear(784, 50), "relu": nn.ReLU(), "fc2": nn.Linear(50, 10)}
        return nn.Sequential(OrderedDict(layers)), (torch.randn(batch, 784),)
    try:
        from torchvision import models
    except ImportError:
        raise CaptureError(
            "--model needs torchvision: install the Debian package python3-torchvision, run "
            "'pip install torchvision', or use --factory"
        ) from None
    if hasattr(models, "list_models"):
        known = list(models.list_models(module=models))
    else:
        known = [n for n, v in vars(models).items() if n.islower() and callable(v)]
    if name not in known:
        near = difflib.get_close_matches(name, known + ["mlp784-50-10"], n=1, cutoff=0.0)
        raise CaptureError(f"model '{name}' is unknown; the nearest known name is '{near[0]}'")
    return getattr(models, name)(), (torch.randn(batch, 3, image, image),)


def factory_of(spec: str) -> Callable[[], Any]:
    """MODULE:FUNCTION, or FILE.py:FUNCTION. Raises CaptureError where there is none, and what the
    module raises."""
    module_name, colon, function = spec.rpartition(":")
    if not (module_name and colon and function):
        raise CaptureError(f"--factory must be MODULE:FUNCTION or FILE.py:FUNCTION, not '{spec}'")
    folder, named = os.getcwd(), module_name
    if module_name.endswith(".py"):
        path = Path(module_name)
        if not path.is_file():
            raise CaptureError(f"--factory {spec}: there is no file '{module_name}'")
        folder, module_name = str(path.absolute().parent), path.stem
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0]:
            raise
        raise CaptureError(
            f"--factory {spec}: No module named '{error.name}' in this folder: run it where"
            f" {error.name}.py lies, or name the file, as in path/{error.name}.py:{function}"
        ) from None
    made = getattr(module, function, None)
    if not callable(made):
        raise CaptureError(f"--factory {spec}: {no_function(module, named, function)}")
    return made  # type: ignore[no-any-return]


def no_function(module: Any, named: str, function: str) -> str:
    """One sentence: what the module has instead."""
    if hasattr(module, function):
        return f"'{function}' of {named} is no function, and a factory is called"
    own = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")
           and getattr(v, "__module__", "") == module.__name__]  # fmt: skip
    near = difflib.get_close_matches(function, own, n=1, cutoff=0.0)
    return f"{named} has no function '{function}'" + (
        f" (did you mean '{near[0]}'?)" if near else "; write one that returns the model"
    )


def why_no_factory(spec: str, error: BaseException) -> str:
    """One sentence about what a factory, or its module, raised."""
    if isinstance(error, SystemExit):
        return (
            f"--factory {spec} ended its process while it ran: put what trains under"
            " if __name__ == '__main__':, and let the factory read no arguments"
        )
    if isinstance(error, ModuleNotFoundError):
        return (
            f"--factory {spec} failed: {error}: install it for {sys.executable}, or name the"
            " interpreter that has it (--python)"
        )
    return f"--factory {spec} failed: {where_it_failed(error)}"


def made_by_factory(
    spec: str,
) -> Tuple[nn.Module, Any, Optional[LossFn], Optional[torch.optim.Optimizer]]:
    """What it returns; loss_fn and optimizer may be left out."""
    try:
        made = factory_of(spec)()
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's script raises
        raise CaptureError(why_no_factory(spec, error)) from error
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4 or not isinstance(made[0], nn.Module):
        raise CaptureError(
            f"--factory {spec} must return (model, inputs, loss_fn, optimizer), of which the last"
            f" two may be left out, and returned {what_it_is(made)}"
        )
    return (*made, None, None)[:4]  # type: ignore[return-value]


def what_it_is(value: Any) -> str:
    """Types, for a sentence: (Linear, Tensor)."""
    if isinstance(value, tuple):
        return "(" + ", ".join(type(v).__name__ for v in value) + ")"
    return type(value).__name__


def set_tf32(precision: Optional[str]) -> None:
    """fp32 and tf32 are settings of PyTorch; None and the halves leave them alone."""
    if precision in ("fp32", "tf32"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = (
            precision == "tf32"
        )


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CaptureError(message)


def on_device(device: torch.device) -> ContextManager[Any]:
    """Tensors are made there, where this PyTorch can (2.0 and later); else where they were."""
    entered = hasattr(device, "__enter__")
    return device if entered else contextlib.nullcontext()  # type: ignore[return-value]


def channels_last(model: nn.Module, inputs: Tuple[Any, ...]) -> Tuple[Any, ...]:
    """Puts the model and its images in the order that tensor cores read without conversion."""
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return tuple(
        (
            t.contiguous(memory_format=torch.channels_last)
            if isinstance(t, Tensor) and t.dim() == 4
            else t
        )
        for t in inputs
    )


def add_model_flags(group: Any) -> None:
    """What to train, for ``named_model`` and ``made_by_factory``."""
    group.add_argument("--model", help="a torchvision classification model, or mlp784-50-10")
    group.add_argument(
        "--factory",
        metavar="MODULE:FUNCTION",
        help=(
            "or FILE.py:FUNCTION; returns (model, inputs, loss_fn, optimizer), of which the last"
            " two may be None or left out"
        ),
    )


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = OneLineParser(
        description="Capture one training step of a PyTorch model as a ddpsim workload."
    )
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    add_model_flags(what)
    add("--out", required=True, type=Path, help="file to write, such as workloads/x.json")
    add(
        "--batch",
        type=int,
        help="samples per step; with --factory the default is read from the inputs",
    )
    add("--image", type=int, default=224, help="image height and width (default 224)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default cpu")
    add("--threads", type=int, help="CPU threads (default: PyTorch's own choice)")
    add(
        "--optimizer",
        choices=OPTIMIZERS,
        default="sgd",
        help="used if the factory gives none; default sgd (momentum)",
    )
    add(
        "--optimizer-name",
        choices=OPTIMIZERS,
        help="what stands for an optimizer class that ddpsim does not model",
    )
    add(
        "--memory-format",
        choices=("contiguous", "channels_last"),
        default="contiguous",
        help="order of images and their weights in memory (default contiguous)",
    )
    add(
        "--precision",
        choices=PRECISIONS,
        help="default: the model's dtype; bf16 and fp16 use autocast",
    )
    add("--warmup", type=int, default=3, help="unmeasured pairs of passes (default 3)")
    add("--repeats", type=int, default=15, help="measured pairs of passes (default 15)")
    add("--name", help="name of the workload (default: stem of --out)")
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> Workload:
    for option in ("batch", "threads", "image"):
        if getattr(args, option) is not None and getattr(args, option) < 1:
            raise CaptureError(f"--{option} must be at least 1, not {getattr(args, option)}")
    if args.model and args.batch is None:
        raise CaptureError("--batch is required with --model")
    if not args.out.absolute().parent.is_dir():
        raise CaptureError(f"--out: the directory of '{args.out}' does not exist")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise CaptureError("--device cuda: this PyTorch finds no CUDA GPU")
    if args.threads:
        torch.set_num_threads(args.threads)
    set_tf32(args.precision)
    torch.manual_seed(1)
    optimizer: Optional[torch.optim.Optimizer] = None
    loss_fn: Optional[LossFn] = None
    if args.model:
        model, inputs = named_model(args.model, args.batch, args.image)
        model.train()
    else:
        model, inputs, loss_fn, optimizer = made_by_factory(args.factory)
    if args.device == "cuda":
        # The parameters stay the same objects, so that an optimizer made before knows them.
        model.cuda()
        inputs = moved(as_inputs(inputs), "cuda")
    inputs = as_inputs(inputs)
    if args.memory_format == "channels_last":
        inputs = channels_last(model, inputs)
    if optimizer is None:
        optimizer = default_optimizer(
            args.optimizer, [p for p in model.parameters() if p.requires_grad]
        )
    workload = capture(
        model,
        inputs,
        loss_fn,
        optimizer,
        name=args.name or args.out.stem,
        model_name=args.model or type(model).__name__,
        batch=args.batch,
        warmup=args.warmup,
        repeats=args.repeats,
        optimizer_name=args.optimizer_name,
        precision=args.precision,
        progress=Progress(),
    )
    # How to make the same model again: ddpsim_record.py trains it on several ranks.
    recipe = (
        {"model": args.model, "batch": args.batch, "image": args.image}
        if args.model
        else {"factory": args.factory}
    )
    workload["source"]["recipe"] = {**recipe, "optimizer": workload["optimizer"]["name"]}
    if args.memory_format != "contiguous":
        workload["source"]["recipe"]["memory_format"] = args.memory_format
    if args.precision:
        workload["source"]["recipe"]["precision"] = args.precision
    return workload


def default_optimizer(name: str, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](parameters, lr=1e-5)


def main(argv: Optional[Sequence[str]] = None) -> int:
    try:
        args = parse(argv)
        workload = run(args)
        write(workload, args.out)
    except KeyboardInterrupt:
        print(
            (
                "\nddpsim_capture: interrupted before the first pair of passes was complete;"
                " nothing is written"
            ),
            file=sys.stderr,
        )
        return 130
    except (CaptureError, OSError, RuntimeError, MemoryError) as error:
        text = str(error).strip() or type(error).__name__
        print(f"ddpsim_capture: {text.splitlines()[0]}", file=sys.stderr)
        return 2
    times = workload["times"]
    print(
        f"{args.out}: forward {times['forward_ps'] / 1e9:.3f} ms, backward"
        f" {times['backward_ps'] / 1e9:.3f} ms, optimizer {times['optimizer_ps'] / 1e9:.3f} ms,"
        f" instrumented excess {times['instrumented_excess']:.2%}"
    )
    for note in times["notes"]:
        print("  " + note)
    return 130 if any(note.startswith(INTERRUPTED) for note in times["notes"]) else 0


if __name__ == "__main__":
    sys.exit(main())
