#!/usr/bin/env python3
"""Record real data-parallel training steps of PyTorch as a ddpsim Run (schema ``ddpsim.run/1``,
evidence ``system``).

Every rank runs this script; rank 0 writes the Run. ``ddpsim run --backend torch`` starts the ranks
on hosts that it makes; anywhere else torchrun does:

    torchrun --nproc_per_node 4 tools/python/ddpsim_record.py --factory train:make \\
        --set bucket_cap_mb=5 --out run.json

What is recorded, in this order:
  1. the layer profile: plain steps of the bare model, all ranks running, without communication;
  2. real steps, from the first (DDP's single bucket) over the rebuild to the steady ones, with
     nothing but a clock between them;
  3. a few more steps with a communication hook that notes when each bucket is ready and when its
     all-reduce has ended.

The model is real (``--model``, ``--factory``) or made of timed layers (``--workload``): parameters
and gradients of the real sizes, computation slept as long as the workload says. Times are integers
in picoseconds of CLOCK_MONOTONIC, which processes of one machine share.
"""
from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ddpsim_files import write_whole  # noqa: E402
import ddpsim_capture as cap  # noqa: E402  (says itself what is missing where PyTorch is)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributed.algorithms.join import Join  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

SCHEMA = "ddpsim.run/1"
MIB = 1 << 20
NOISY_SPREAD = 0.01  # median absolute deviation of the steady steps / their median
NOISY_LOAD = 0.3  # cores that are busy while all ranks sleep

# Knobs of the plan that are played here, with their defaults; names as in docs/formats.md.
KNOBS: Dict[str, Any] = {
    "system": "pytorch_ddp",
    "backend": None,
    "pytorch": None,
    "accumulation_steps": 1,
    "set_to_none": None,
    "gloo_threads": 2,
    "bucket_cap_mb": None,
    "first_bucket_bytes": 1024 * 1024,
    "broadcast_buffers": True,
    "find_unused_parameters": False,
    "static_graph": False,
    "gradient_as_bucket_view": False,
    "comm_hook": "none",
    "unused_parameters": [],
    "granularity": "per_parameter",
    "async_op": False,
    "parameters_as_bucket_view": False,
    "overlap_with_ddp": False,
    "matrix_approximation_rank": 1,
    "start_powerSGD_iter": 1000,
    "min_compression_rate": 2,
    "use_error_feedback": True,
    "warm_start": True,
    "optimizer_in_backward": False,
    "join": False,
    "joined_ranks": 0,
    "divide_by_initial_world_size": True,
    "outer_optimizer": "none",
    "subgroup_size": None,
    "start_localSGD_iter": 100,
    "post_local_gradient_allreduce": True,
    "averaging_periods": [],
    "averaging_group_sizes": [],
}
# Recorded, and not predicted by ddpsim: --record KNOB=VALUE.
UNPREDICTED: Dict[str, Any] = {
    "zero_redundancy_optimizer": False,  # torch.distributed.optim.ZeroRedundancyOptimizer
    "fsdp2": (
        0
    ),  # fully_shard over repeated blocks and the rest; 1: reshard after forward, 2: do not
}

now = time.monotonic_ns


class RecordError(Exception):
    """A recording that cannot be made; the message is one sentence for the user."""


def keep_memory() -> None:
    """Memory that this process frees stays with it, so that a new bucket is not new memory.

    Otherwise glibc returns large blocks to the kernel, and a virtual machine may return them to its
    host: touching them again is slow, page by page, which says nothing about the cluster that is
    imitated (docs/measuring.md). All threads share one arena: those that glibc makes for others,
    such as Gloo's workers, which run a hook's callbacks, give large blocks back whatever is asked
    here.
    """
    m_trim_threshold, m_mmap_max, m_arena_max = -1, -4, -8  # malloc.h of glibc
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if (
        mallopt is None
        or mallopt(m_mmap_max, 0) != 1
        or mallopt(m_trim_threshold, 2**31 - 1) != 1
        or mallopt(m_arena_max, 1) != 1
    ):
        raise RecordError(
            "--keep-memory: this C library has no mallopt that keeps freed memory (glibc has)"
        )


def touch_memory(size: int) -> None:
    """Takes `size` bytes once and frees them, so that what keep_memory keeps is enough."""
    torch.full((size // 4,), 1.0)


# ---- timed layers


class Sleeper:
    """Sleeps; being late once shortens the next sleep, so that lateness does not add up."""

    def __init__(self) -> None:
        self.late = 0

    def until(self, start: int, duration: int) -> None:
        wanted = start + duration - self.late
        t = now()
        if t < wanted:
            time.sleep((wanted - t) / 1e9)
            t = now()
        self.late = max(0, min(t - wanted, 20_000_000))


class TimedLayer(torch.autograd.Function):
    """Passes its input on; its backward makes the parameter's gradient, and takes ``ns`` in all."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, parameter: Optional[Tensor], ns: int, sleeper: Sleeper
    ) -> Tensor:
        ctx.parameter, ctx.ns, ctx.sleeper = parameter, ns, sleeper
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, Optional[Tensor], None, None]:
        start = now()
        made: Optional[Tensor] = None
        if ctx.parameter is not None:
            known = getattr(ctx.parameter, "gradient", None)
            made = torch.full_like(ctx.parameter, 1e-4) if known is None else known.clone()
        ctx.sleeper.until(start, ctx.ns)
        return grad, made, None, None


class TimedModel(nn.Module):
    """A workload's parameters and buffers, whose forward and backward take the workload's time."""

    def __init__(self, workload: Dict[str, Any], unused: Sequence[str], factor: float) -> None:
        super().__init__()
        times = workload["times"]
        self.sleeper = Sleeper()
        self.slow = factor
        tensors = [
            self.place(
                t, nn.Parameter(torch.full(t["shape"], 1e-2, dtype=getattr(torch, t["dtype"])))
            )
            for t in workload["tensors"]
        ]
        for f in workload.get("frozen", []):
            held = torch.zeros(f["shape"], dtype=getattr(torch, f["dtype"]))
            self.place(f, nn.Parameter(held, requires_grad=False))
        for b in workload.get("buffers", []):
            self.place(b, torch.zeros(b["shape"], dtype=getattr(torch, b["dtype"])))
        ns = [round(factor * t / 1000) for t in times["ready_ps"]]
        self.layers: List[Tuple[Optional[Tensor], int]] = []  # in order of arrival
        before = 0
        for index, at in zip(workload["arrival"], ns):
            if workload["tensors"][index]["name"] in unused:
                continue
            self.layers.append((tensors[index], at - before))
            before = at
        self.tail_ns = round(factor * times["backward_ps"] / 1000) - before
        self.forward_ns = round(factor * times["forward_ps"] / 1000)
        self.optimizer_ns = round(factor * times["optimizer_ps"] / 1000)
        self.start = torch.zeros(1, requires_grad=True)

    def place(self, tensor: Dict[str, Any], value: Tensor) -> Tensor:
        """Registers under the dotted name, so that registration order is the real model's."""
        *path, leaf = tensor["name"].split(".")
        module: nn.Module = self
        for name in path:
            if name not in module._modules:
                module.add_module(name, nn.Module())
            module = module._modules[name]  # type: ignore[assignment]
        if isinstance(value, nn.Parameter):
            module.register_parameter(leaf, value)
        else:
            module.register_buffer(leaf, value)
        return value

    def forward(self, x: Tensor) -> Tensor:
        begin = now()
        y: Tensor = TimedLayer.apply(x, None, self.tail_ns, self.sleeper)
        for parameter, ns in reversed(self.layers):
            y = TimedLayer.apply(y, parameter, ns, self.sleeper)
        self.sleeper.until(begin, self.forward_ns)
        return y


def sleeping_shard(model: TimedModel) -> type:
    """An optimizer class for ZeroRedundancyOptimizer: takes the share of the workload's time that
    its parameters are of the model."""
    total = sum(p.numel() for p in model.parameters())

    class Shard(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            mine = sum(p.numel() for group in self.param_groups for p in group["params"])
            model.sleeper.until(now(), round(model.optimizer_ns * mine / total))

    return Shard


class TimedUpdates:
    """A functional optimizer (torch.distributed.optim), as DDP calls it for each parameter of a
    bucket: takes the share of the workload's time that the parameter is of the model."""

    def __init__(self, model: TimedModel) -> None:
        self.ns = model.optimizer_ns / sum(p.numel() for p in model.parameters())
        self.of_thread = threading.local()

    def step_param(self, parameter: Tensor, grad: Optional[Tensor]) -> None:
        if not hasattr(self.of_thread, "sleeper"):
            self.of_thread.sleeper = Sleeper()
        self.of_thread.sleeper.until(now(), round(self.ns * parameter.numel()))


class TimedOptimizer(torch.optim.SGD):
    """Takes the workload's time and leaves the parameters alone."""

    def __init__(self, model: TimedModel) -> None:
        super().__init__(model.parameters(), lr=0.0)
        self.model = model

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.model.sleeper.until(now(), self.model.optimizer_ns)


# ---- what is trained, and how


class Job:
    """One rank's model, and a training step of it by the plan."""

    def __init__(
        self,
        plan: Dict[str, Any],
        model: nn.Module,
        inputs: Tuple[Any, ...],
        loss_fn: Optional[Callable[..., Tensor]],
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        precision: str = "fp32",
    ) -> None:
        self.plan, self.model, self.inputs, self.optimizer, self.device = (
            plan,
            model,
            inputs,
            optimizer,
            device,
        )
        self.named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self.index = {id(p): i for i, (_, p) in enumerate(self.named)}
        self.parameters = [p for _, p in self.named]
        self.timed = isinstance(model, TimedModel)
        self.bare = cap.Step(
            model, inputs, None, loss_fn, optimizer, precision, device, self.parameters
        )
        self.wrapped: nn.Module = model
        self.ddp: Optional[DistributedDataParallel] = None
        self.world = dist.get_world_size()
        self.marks: List[Tuple[str, Any]] = (
            []
        )  # of the step under way: what has ended, when (a moment)
        self.collectives: List[Dict[str, Any]] = []  # of the step under way
        self.recording = False
        self.batch = ""  # of a round: what names of its collectives begin with
        self.post_local: Any = None  # state of the post-local SGD hook
        self.memory = ""  # what is special about it
        self.precision = precision
        self.origin: Any = None
        self.side: Any = (
            torch.cuda.Stream(device) if device.type == "cuda" else None
        )  # for events that must not wait for computation
        self.origin_ns = 0
        major, minor = (int(x) for x in torch.__version__.split(".")[:2])
        self.set_to_none = (
            plan["set_to_none"] if plan["set_to_none"] is not None else (major, minor) >= (2, 0)
        )

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # Moments: on a CPU nanoseconds; on a GPU an event on the current stream, so that the host runs
    # ahead as it does without a recorder.
    def moment(self) -> Any:
        if self.device.type != "cuda":
            return now()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def set_origin(self) -> None:
        """From here on events can be told in nanoseconds of the host's clock, to some
        microseconds."""
        if self.device.type == "cuda":
            self.origin = self.moment()
            self.origin.synchronize()
            self.origin_ns = now()

    def told(self, moment: Any) -> int:
        """Nanoseconds; on a GPU after synchronize() only."""
        return (
            moment
            if isinstance(moment, int)
            else self.origin_ns + round(self.origin.elapsed_time(moment) * 1e6)
        )

    def loss(self) -> Tensor:
        model, self.bare.model = self.bare.model, self.wrapped
        try:
            return self.bare.loss()
        finally:
            self.bare.model = model

    # -- DDP

    def wrap(self) -> None:
        p = self.plan
        if p["fsdp2"]:
            self.shard()
            return
        if p["system"] == "averaging" or (p["system"] == "local_sgd" and not p["subgroup_size"]):
            return
        options: Dict[str, Any] = dict(
            broadcast_buffers=p["broadcast_buffers"],
            find_unused_parameters=p["find_unused_parameters"],
            gradient_as_bucket_view=p["gradient_as_bucket_view"],
            static_graph=p["static_graph"],
        )
        if p["bucket_cap_mb"] is not None:
            options["bucket_cap_mb"] = p["bucket_cap_mb"]
        dist._DEFAULT_FIRST_BUCKET_BYTES = p["first_bucket_bytes"]
        self.ddp = DistributedDataParallel(
            self.model,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            **options,
        )
        self.wrapped = self.ddp
        if p["system"] == "zero_redundancy":
            self.share_optimizer()
        # What DDP does before forward (buffers, rebuilding) is not forward.
        self.model.register_forward_pre_hook(
            lambda *_: self.marks.append(("prepared", self.moment()))
        )
        self.register_hook()

    def register_hook(self) -> None:
        """The plan's communication hook: PyTorch's own where it is more than a reduction."""
        p = self.plan
        assert self.ddp is not None
        if p["comm_hook"] == "powerSGD":
            from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

            # Matrices of one value have rank 1: what is left of them in the hook's products are
            # denormal numbers, which processors multiply many times as slowly.
            for parameter in self.parameters if self.timed else []:
                setattr(parameter, "gradient", 1e-4 * torch.randn_like(parameter))
            names = ("matrix_approximation_rank", "start_powerSGD_iter", "min_compression_rate",
                     "use_error_feedback", "warm_start")
            self.ddp.register_comm_hook(
                powersgd.PowerSGDState(None, **{name: p[name] for name in names}),
                powersgd.powerSGD_hook,
            )
        elif p["optimizer_in_backward"]:
            # What DistributedDataParallel._register_fused_optim registers.
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
            from torch.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks as fused

            state = fused._OptimizerHookState(self.functional_optimizer())
            hook = self.watched(default_hooks.allreduce_hook)
            self.ddp.register_comm_hook(None, fused._hook_then_optimizer(hook, state))
        elif p["system"] == "local_sgd":
            from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post

            mine = [g for g in self.groups_of(p["subgroup_size"]) if g is not None]
            self.post_local = post.PostLocalSGDState(
                None, mine[0], p["start_localSGD_iter"], p["post_local_gradient_allreduce"]
            )
            self.ddp.register_comm_hook(self.post_local, self.watched(post.post_localSGD_hook))
        elif p["comm_hook"] != "none":
            self.ddp.register_comm_hook(None, self.hook)

    def groups_of(self, size: int) -> List[Any]:
        """As new_subgroups makes them, which asks for a GPU first: groups of `size` ranks that
        follow one another; None for those that this rank is not of."""
        out = []
        for first in range(0, self.world, size):
            ranks = list(range(first, first + size))
            group = dist.new_group(ranks)
            out.append(group if dist.get_rank() in ranks else None)
        return out

    def functional_optimizer(self) -> Any:
        if isinstance(self.model, TimedModel):
            return TimedUpdates(self.model)
        from torch.distributed.optim import as_functional_optim

        known = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "betas", "eps")
        options = {k: v for k, v in self.optimizer.defaults.items() if k in known}
        return as_functional_optim(type(self.optimizer), **options)

    # -- local SGD

    def share_rounds(self) -> None:
        """From here on parameters are averaged at the end of a round, and of its parts."""
        from torch.distributed.algorithms.model_averaging import averagers
        from torch.distributed.optim import PostLocalSGDOptimizer

        p = self.plan
        periods, sizes_ = p["averaging_periods"], p["averaging_group_sizes"]
        steps = p["accumulation_steps"]
        averager: Any
        if periods:
            averager = self.hierarchical(dict(zip(periods, sizes_)))
            averager.step = 1  # a period ends where it divides the number of steps so far
        else:
            averager = averagers.PeriodicModelAverager(steps, warmup_steps=steps - 1)
        self.optimizer = self.bare.optimizer = PostLocalSGDOptimizer(self.optimizer, averager)

    def hierarchical(self, sizes_of_periods: Dict[int, int]) -> Any:
        """HierarchicalModelAverager makes its groups with new_subgroups, which asks for a GPU."""
        from collections import OrderedDict

        from torch.distributed.algorithms.model_averaging import hierarchical_model_averager as of

        plain = dist.new_subgroups

        def new_subgroups(group_size: int, group: Any = None) -> Tuple[Any, List[Any]]:
            groups = self.groups_of(group_size)
            return next(g for g in groups if g is not None), groups

        dist.new_subgroups = new_subgroups
        try:
            return of.HierarchicalModelAverager(OrderedDict(sizes_of_periods))
        finally:
            dist.new_subgroups = plain

    def sent_per_step(self) -> int:
        """How often a step sends DDP's buckets as they are: PowerSGD's are others."""
        if self.plan["system"] == "local_sgd":
            return (
                self.plan["accumulation_steps"]
                if self.plan["post_local_gradient_allreduce"]
                else 0
            )
        return 0 if self.plan["comm_hook"] == "powerSGD" else 1

    @property
    def warming_up(self) -> bool:
        """Whether DDP still reduces over all ranks (post-local SGD)."""
        return self.post_local is not None and not isinstance(self.optimizer, self.averaging())

    @staticmethod
    def averaging() -> type:
        from torch.distributed.optim import PostLocalSGDOptimizer

        return PostLocalSGDOptimizer

    def round(self) -> None:
        """A round of local SGD: batches with an update each, the last followed by an averaging."""
        self.marks, self.collectives = [("start", self.moment())], []
        steps = 1 if self.warming_up else self.plan["accumulation_steps"]
        for m in range(steps):
            self.batch = f"micro{m}/" if self.plan["accumulation_steps"] > 1 else ""
            self.optimizer.zero_grad(set_to_none=self.set_to_none)
            self.marks.append(("zero_grad", self.moment()))
            loss = self.loss()
            self.marks.append((f"{self.batch}fwd", self.moment()))
            self.bare.backward(loss)
            self.marks.append(("backward", self.moment()))
            with self.watched_all_reduces():
                self.bare.update()
            self.marks.append(("updated", self.moment()))

    @contextlib.contextmanager
    def watched_all_reduces(self) -> Iterator[None]:
        """torch.distributed.all_reduce as Python calls it: an averaging's, or PowerSGD's, of which
        each bucket has three."""
        if not self.recording:
            yield
            return
        plain = dist.all_reduce
        power = self.plan["comm_hook"] == "powerSGD"
        called = [0]

        def all_reduce(tensor: Tensor, *args: Any, **options: Any) -> Any:
            number = called[0]
            called[0] += 1
            if tensor.numel() == 0:
                return plain(tensor, *args, **options)
            name = f"allreduce/powersgd_{('whole', 'p', 'q')[number % 3]}.{number // 3}"
            if not power:
                name = self.averaging_name()
            tensors = [] if power else list(range(len(self.parameters)))
            entry = self.note(name, tensors, tensor, self.moment())
            work = plain(tensor, *args, **options)
            if work is None:
                entry["end"] = self.moment()
                return work

            def ended(future: Any) -> Any:
                entry["end"] = self.moment()
                return future.value()

            entry["future"] = work.get_future().then(ended)
            return work

        dist.all_reduce = all_reduce
        try:
            yield
        finally:
            dist.all_reduce = plain
            for entry in self.collectives:
                if "future" in entry:
                    entry.pop("future").wait()

    def averaging_name(self) -> str:
        periods = self.plan["averaging_periods"]
        if not periods:
            return "allreduce/parameters"
        return f"{self.batch}allreduce/parameters"

    def share_optimizer(self) -> None:
        """From here on each rank updates its own parameters and broadcasts them."""
        old = self.optimizer
        made, options = type(old), old.defaults
        if isinstance(self.model, TimedModel):
            made, options = sleeping_shard(self.model), {"lr": 0.0}
        self.optimizer = self.bare.optimizer = ZeroRedundancyOptimizer(
            self.parameters,
            optimizer_class=made,
            parameters_as_bucket_view=self.plan["parameters_as_bucket_view"],
            **options,
        )

    @contextlib.contextmanager
    def watched_broadcasts(self) -> Iterator[None]:
        """ZeroRedundancyOptimizer's broadcasts, with a look at the clock when each is issued and
        when it has ended."""
        if self.plan["system"] != "zero_redundancy":
            yield
            return
        plain = dist.broadcast
        at = {p.data_ptr(): i for i, p in enumerate(self.parameters)}
        view = self.plan["parameters_as_bucket_view"]
        assert self.ddp is not None
        buckets = len(steady_buckets(self.ddp))  # of gradients; those of parameters follow
        owned = self.optimizer._partition_parameters() if view else []

        def broadcast(tensor: Tensor, src: int, **options: Any) -> Any:
            tensors = (
                [self.index[id(p)] for group in owned[src] for p in group["params"]]
                if view
                else [at[tensor.data_ptr()]]
            )
            entry = self.note(
                (
                    f"broadcast_params/bucket.{buckets + src}"
                    if view
                    else f"broadcast_param/{self.named[tensors[0]][0]}"
                ),
                tensors,
                tensor,
                self.moment(),
            )
            work = plain(tensor, src=src, **options)

            def ended(future: Any) -> Any:
                entry["end"] = self.moment()
                return future.value()

            entry["future"] = work.get_future().then(ended)
            return work

        dist.broadcast = broadcast
        try:
            yield
        finally:
            dist.broadcast = plain
            for entry in self.collectives:
                if "future" in entry:
                    entry.pop("future").wait()

    def shard(self) -> None:
        """fully_shard of each block of the longest ModuleList or Sequential of the model, then of
        the model."""
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        lists = [m for m in self.model.modules() if isinstance(m, (nn.ModuleList, nn.Sequential))]
        blocks = max((list(m.children()) for m in lists), key=len, default=[])
        half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        options: Dict[str, Any] = {"reshard_after_forward": self.plan["fsdp2"] == 1}
        if half is not None:
            options["mp_policy"] = MixedPrecisionPolicy(
                param_dtype=half, reduce_dtype=torch.float32
            )
            self.bare.autocast = False  # the policy casts
        for block in blocks:
            fully_shard(block, **options)
        fully_shard(self.model, **options)
        old = self.optimizer
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = type(old)(
            self.parameters,
            **{
                k: v
                for k, v in old.defaults.items()
                if k not in ("differentiable", "decoupled_weight_decay")
            },
        )
        self.bare.optimizer = self.optimizer

    def note(self, name: str, tensors: List[int], wire: Tensor, ready: Any) -> Dict[str, Any]:
        """A collective that begins; who sees it end fills that in."""
        entry = {
            "op": name,
            "tensors": tensors,
            "bytes": wire.numel() * wire.element_size(),
            "ready": ready,
            "end": 0,
        }
        self.collectives.append(entry)
        return entry

    def note_bucket(self, bucket: Any, wire: Tensor, ready: Any) -> Dict[str, Any]:
        return self.note(
            f"{self.batch}allreduce/bucket.{bucket.index()}",
            [self.index[id(p)] for p in bucket.parameters()],
            wire,
            ready,
        )

    def watched(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """A hook of PyTorch's own, with a look at the clock when a bucket is ready and when it is
        done with it."""

        def run(state, bucket):  # type: ignore[no-untyped-def]
            if self.post_local is not None and not (
                self.warming_up or self.plan["post_local_gradient_allreduce"]
            ):
                return hook(state, bucket)  # nothing is sent
            entry = self.note_bucket(bucket, bucket.buffer(), self.moment())

            def ended(future: Any) -> Any:
                entry["end"] = (
                    self.moment()
                )  # on a GPU callbacks run on a stream that has waited for the collective
                return future.value()

            return hook(state, bucket).then(ended)

        return run

    @property
    def hooked(self) -> bool:
        return (
            self.plan["comm_hook"] != "none"
            or self.plan["optimizer_in_backward"]
            or self.post_local is not None
        )

    # DDP reads the annotations, and knows its own types only.
    def hook(self, _, bucket):  # type: ignore[no-untyped-def]
        """What the plan's hook does, with a look at the clock when a bucket is ready and when its
        all-reduce has ended."""
        kind, buffer = self.plan["comm_hook"], bucket.buffer()
        if kind == "none" and self.divides_in_place:
            buffer.div_(self.world)
        ready = self.moment()
        half = {"fp16_compress": torch.float16, "bf16_compress": torch.bfloat16}.get(kind)
        # Plain DDP divides while it copies gradients into the bucket; a hook has to do it itself.
        # Here the loss was divided instead (step), so that the steps that are looked at cost what
        # the others do. Gradients that stay in their bucket are not copied: these are divided in
        # place.
        wire = (buffer.to(half) if half else buffer).div_(self.world) if kind != "none" else buffer
        entry = self.note_bucket(bucket, wire, ready)

        def ended(future: Any) -> Tensor:
            entry["end"] = self.moment()
            reduced = future.value()
            reduced = reduced[0] if isinstance(reduced, (list, tuple)) else reduced
            return buffer.copy_(reduced) if half else reduced

        return dist.all_reduce(wire, async_op=True).get_future().then(ended)

    def release(self) -> None:
        """DDP's C++ part holds the hook, and so this job and all its memory, where Python's
        collector cannot see it."""
        self.ddp, self.wrapped = None, self.model

    @property
    def divides_in_place(self) -> bool:
        """Whether DDP finds gradients in their bucket already, where it divides them without a
        copy."""
        return self.plan["gradient_as_bucket_view"] and not self.set_to_none

    def record_spans(self) -> None:
        if self.ddp is not None and not self.hooked:
            self.ddp.register_comm_hook(None, self.hook)
        self.recording = True

    def end_of(self, work: Any) -> Any:
        """Waits for a collective; when it has ended. On a GPU the current stream may still be busy
        with something else then."""
        end: Any = None
        if self.device.type == "cuda":
            with torch.cuda.stream(self.side):
                work.wait()
                end = self.moment()
        work.wait()
        return self.moment() if end is None else end

    # -- averaging

    def average(self) -> None:
        p = self.plan
        grads = [(i, x.grad) for i, x in enumerate(self.parameters) if x.grad is not None]

        def start(name: str, tensors: List[int], value: Tensor, async_op: bool) -> Any:
            entry = self.note(f"allreduce/{name}", tensors, value, self.moment())
            work = dist.all_reduce(value, async_op=async_op)
            entry["end"] = self.moment()
            return work

        if p["granularity"] == "flat":
            flat = torch._utils._flatten_dense_tensors([g for _, g in grads])
            start("flat", [i for i, _ in grads], flat, False)
            flat.div_(self.world)
            for (_, g), part in zip(
                grads, torch._utils._unflatten_dense_tensors(flat, [g for _, g in grads])
            ):
                g.copy_(part)
        elif p["async_op"]:
            works = [start(self.named[i][0], [i], g, True) for i, g in grads]
            first = len(self.collectives) - len(works)
            for k, ((_, g), work) in enumerate(zip(grads, works)):
                self.collectives[first + k]["end"] = self.end_of(work)
                g.div_(self.world)
        else:
            for i, g in grads:
                start(self.named[i][0], [i], g, False)
                g.div_(self.world)

    # -- a step

    def step(self) -> None:
        if self.plan["system"] == "local_sgd":
            self.round()
            return
        self.marks, self.collectives = [("start", self.moment())], []
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        self.marks.append(("zero_grad", self.moment()))
        micro = self.plan["accumulation_steps"]
        for m in range(micro):
            waits = self.ddp is not None and m + 1 < micro
            # type: ignore[union-attr]
            alone = self.ddp.no_sync if waits else contextlib.nullcontext
            with alone():
                loss = self.loss()
                if self.recording and not self.hooked and not self.divides_in_place:
                    loss = loss / self.world
                self.marks.append((f"micro{m}/fwd" if micro > 1 else "fwd", self.moment()))
                power = self.plan["comm_hook"] == "powerSGD"
                with self.watched_all_reduces() if power else contextlib.nullcontext():
                    self.bare.backward(loss)
        if self.ddp is None and not self.plan["fsdp2"]:
            self.average()
        self.marks.append(("backward", self.moment()))
        if self.plan["optimizer_in_backward"]:
            return  # parameters were updated
        with self.watched_broadcasts() if self.recording else contextlib.nullcontext():
            self.bare.update()
        self.marks.append(("optimizer", self.moment()))


# ---- the layer profile


def layer_profile(job: Job, passes: int) -> Dict[str, Any]:
    """This rank's plain steps without communication, while all ranks do the same; times in ps,
    arrival by parameter index."""
    if job.device.type == "cuda":
        return gpu_profile(job, passes)
    # The plan knows which rank is slow: the profile is of one that is not.
    slow = job.model.slow if isinstance(job.model, TimedModel) else 1.0
    return host_profile(job.bare, passes, slow, dist.barrier)


def host_profile(
    bare: cap.Step,
    passes: int,
    slow: float,
    barrier: Callable[[], Any],
    busy_ns: Callable[[], int] = time.process_time_ns,
) -> Dict[str, Any]:
    """As ``layer_profile``, of a CPU. `slow`: a factor of all times that is left out; `busy_ns`:
    what computation has kept cores busy so far."""
    plain: List[cap.Pass] = []
    hooked: List[cap.Pass] = []
    cores: List[int] = []
    for k in range(passes + 1):
        for instrument in (False, True):
            barrier()
            busy = busy_ns()
            seen = bare.run(instrument)
            if k > 0:  # the first pair warms up
                (hooked if instrument else plain).append(seen)
                if not instrument:
                    cores.append((busy_ns() - busy) * 1000)
    order = [i for i, _, _ in hooked[-1].arrivals]
    chosen = [p for p in hooked if [i for i, _, _ in p.arrivals] == order]
    shares = [
        median(t / p.device.backward for t, p in zip(column, chosen))
        for column in zip(*([t for _, t, _ in p.arrivals] for p in chosen))
    ]
    return {
        "passes": [
            [round(t / slow) for t in (p.device.forward, p.device.backward, p.device.optimizer)]
            for p in plain
        ],
        "core": round(median(cores)),
        "arrival": order,
        "shares": shares,
    }


def gpu_profile(job: Job, passes: int) -> Dict[str, Any]:
    """As ``layer_profile``: the device's times from passes one after another, as in training; the
    host's from passes begun on an idle device."""
    trains: List[List[cap.Pass]] = []
    for instrument in (False, False, True):  # the first warms up
        dist.barrier()
        trains.append(job.bare.run_train(passes + 1, instrument)[1:])
    alone: List[cap.Pass] = []
    for instrument in (False, True):
        for _ in range(max(3, passes // 2)):
            dist.barrier()
            alone.append(job.bare.run(instrument))
    plain, hooked = trains[1], trains[2]
    quiet, seen = alone[: len(alone) // 2], alone[len(alone) // 2 :]
    order = [i for i, _, _ in hooked[-1].arrivals]

    def shares(runs: Sequence[cap.Pass], device: bool) -> List[float]:
        chosen = [p for p in runs if [i for i, _, _ in p.arrivals] == order]
        totals = [p.device.backward if device else p.host.backward for p in chosen]
        columns = zip(*([(t if device else h) for _, t, h in p.arrivals] for p in chosen))
        return [median(t / total for t, total in zip(column, totals)) for column in columns]

    return {
        "passes": [[p.device.forward, p.device.backward, p.device.optimizer] for p in plain],
        "core": 0,
        "arrival": order,
        "shares": shares(hooked, True),
        "host": [[p.host.forward, p.host.backward, p.host.optimizer] for p in quiet],
        "host_shares": shares(seen, False),
    }


def known_spread(spread: float, steps: int) -> float:
    """What is compared is the median: of many steps it is known better than one of them (normal
    distribution: 1.4826 x 1.2533)."""
    return min(spread, 1.86 * spread / steps**0.5)


def profile_samples(profiles: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """What every rank's passes took, by phase."""
    return [
        {
            "op": f"layer_profile_{phase}",
            "parameters": {"rank": r},
            "durations_ps": [passed[k] for passed in p["passes"]],
        }
        for k, phase in enumerate(("forward", "backward", "optimizer"))
        for r, p in enumerate(profiles)
    ]


def joined(profiles: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """All ranks' profiles as one. Collectives wait for the slowest rank: of each pass that rank
    counts; then the median over passes."""
    slowest = [max(ranks, key=sum) for ranks in zip(*(p["passes"] for p in profiles))]
    forward, backward, optimizer = (round(median(column)) for column in zip(*slowest))
    order = profiles[0]["arrival"]
    ready: List[int] = []
    for column in zip(*(p["shares"] for p in profiles if p["arrival"] == order)):
        ready.append(
            max(min(round(median(column) * backward), backward), ready[-1] if ready else 0)
        )
    out = {
        "forward_ps": forward,
        "backward_ps": backward,
        "optimizer_ps": optimizer,
        "core_ps": round(median(p["core"] for p in profiles)),
        "ranks": len(profiles),
        "arrival": order,
        "ready_ps": ready,
    }
    if all("host" in p and len(p["host_shares"]) == len(order) for p in profiles):
        on_host = [max(ranks, key=sum) for ranks in zip(*(p["host"] for p in profiles))]
        for k, phase in enumerate(("forward", "backward", "optimizer")):
            out[f"host_{phase}_ps"] = round(median(p[k] for p in on_host))
        at: List[int] = []
        for column in zip(*(p["host_shares"] for p in profiles if p["arrival"] == order)):
            at.append(
                max(
                    min(round(median(column) * out["host_backward_ps"]), out["host_backward_ps"]),
                    at[-1] if at else 0,
                )
            )
        out["host_ready_ps"] = at
    return out


# ---- recording


def retransmits() -> int:
    """TCP segments sent again in this network namespace so far."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        rows = [
            line.split()
            for line in Path("/proc/net/snmp").read_text().splitlines()
            if line.startswith("Tcp:")
        ]
        return int(rows[1][rows[0].index("RetransSegs")])
    return 0


def page_faults() -> int:
    """Pages that this process has been given so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def busy_core_s() -> float:
    """Core seconds that the machine has been busy."""
    return cap.foreign_cpu_s() + time.process_time()


def start_together(pause_ns: int) -> int:
    """A moment at least `pause_ns` from now that all ranks know, of CLOCK_MONOTONIC (one
    machine)."""
    return max(gathered(now())) + pause_ns


def wait_until(moment: int) -> None:
    while now() < moment:
        time.sleep(max(0.0, (moment - now()) / 1e9))


def require_side_by_side(device: torch.device) -> None:
    """Ranks on one GPU that take turns on it wait milliseconds for one another: not what a step is
    made of."""
    small = torch.zeros(2, device=device)
    dist.all_reduce(small)
    torch.cuda.synchronize(device)
    begin = now()
    for _ in range(20):
        dist.all_reduce(small)
    torch.cuda.synchronize(device)
    if max(gathered(now() - begin)) > 20 * 1_000_000:
        raise RecordError(
            "an all-reduce of 8 bytes takes more than a millisecond: the ranks take turns on the"
            " GPU, MPS is not effective"
        )


def quiet_load() -> float:
    """Cores that are busy while all ranks sleep."""
    dist.barrier()
    before = busy_core_s()
    time.sleep(0.25)
    load = (busy_core_s() - before) / 0.25
    dist.barrier()
    return round(load, 2)


def gathered(value: Any) -> List[Any]:
    out: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(out, value)
    return out


def sizes(text: Any) -> List[int]:
    return [int(x) for x in str(text).replace(",", " ").split()]


def steady_buckets(ddp: DistributedDataParallel) -> List[int]:
    """Bytes of the buckets that DDP has now, or had where it did not make new ones."""
    data = ddp._get_ddp_logging_data()
    return sizes(data.get("rebuilt_bucket_sizes", "")) or sizes(data.get("bucket_sizes", ""))


POWERSGD = (
    "powerSGD_hook starts its second and third all-reduce from a callback, on the thread of Gloo"
    " that has ended the one before, and waits for it there: with several buckets the two threads"
    " wait for one another, or ranks start them in different orders and Gloo finds messages of the"
    " wrong size; use a bucket_cap_mb that makes one bucket"
)


class Watch:
    """Ends the process with a sentence if nothing happens for too long: collectives that wait for
    one another wait for ever."""

    def __init__(self, patience: float) -> None:
        self.last = time.monotonic()
        self.done = False
        if patience > 0:
            threading.Thread(target=self.run, args=(patience,), daemon=True).start()

    def alive(self) -> None:
        self.last = time.monotonic()

    def stop(self) -> None:
        self.done = True

    def run(self, patience: float) -> None:
        while time.monotonic() - self.last < patience:
            time.sleep(0.2)
            if self.done:
                return
        print(
            f"ddpsim_record: no step has ended for {patience:g} s",
            file=sys.stderr,
            flush=True,
        )
        os._exit(3)


def record(
    job: Job, steady: int, spans: int, passes: int, patience: float, profiled: bool = False
) -> Dict[str, Any]:
    """Runs the job; the Run on rank 0, without its ``case``. ``profiled``: see ``look``."""
    watch = Watch(patience)
    one_gpu = bool(os.environ.get("DDPSIM_ONE_GPU")) and dist.get_world_size() > 1
    if os.environ.get("DDPSIM_ONE_GPU"):
        require_side_by_side(job.device)
    pace = loopback_series(job.device, False) if one_gpu else []
    load = quiet_load()
    profile = layer_profile(job, passes)
    job.optimizer.zero_grad(set_to_none=True)
    job.wrap()
    again = retransmits()
    warmup = 0
    if job.plan["system"] == "local_sgd":
        warmup = 1 if job.ddp is None else job.plan["start_localSGD_iter"]
    elif job.ddp is not None:
        rebuilds = job.plan["static_graph"] or not job.plan["find_unused_parameters"]
        warmup = 1 + int(rebuilds) + int(job.plan["static_graph"])
    else:
        warmup = 1
    # On a GPU DDP's logger waits for the device in its first ten iterations: those are no step
    # times.
    logged = max(0, 11 - warmup) if job.ddp is not None and job.device.type == "cuda" else 0
    plain = warmup + logged + steady
    history: List[Dict[str, Any]] = []
    dist.barrier()
    job.set_origin()
    begin = start_together(50_000_000)
    buckets: Dict[str, List[int]] = {}
    wait_until(begin)
    before = busy_core_s()
    busy = 0.0  # cores, over the steps that are timed
    total = plain + spans + (1 if spans else 0)
    joined = job.plan["joined_ranks"]
    # Ranks without inputs any more shadow the others' collectives until all have joined.
    mine = warmup if dist.get_rank() >= job.world - joined else total
    join: Any = contextlib.nullcontext()
    if job.plan["join"]:
        initial = job.plan["divide_by_initial_world_size"]
        join = Join([job.ddp], divide_by_initial_world_size=initial)
    join.__enter__()
    for k in range(mine):
        if k == plain:
            job.record_spans()
        if job.plan["system"] == "local_sgd" and k == (0 if job.ddp is None else warmup):
            job.share_rounds()
        faults = page_faults()
        job.step()
        if k + 1 == plain:
            job.synchronize()
        if k < plain:
            busy = (busy_core_s() - before) / ((now() - begin) / 1e9)
        history.append(
            {
                "marks": job.marks,
                "faults": page_faults() - faults,
                "collectives": (
                    job.collectives if job.recording or job.hooked or job.ddp is None else []
                ),
            }
        )
        watch.alive()
        if k + 1 == warmup and job.plan["comm_hook"] == "powerSGD":  # it compresses from here on
            assert job.ddp is not None
            if (
                dist.get_backend() == "gloo"
                and len(job.ddp.reducer._get_zeros_like_grad_buckets()) > 1
            ):
                raise RecordError(POWERSGD)
        if k == 0 and job.ddp is not None:
            buckets["first"] = sizes(job.ddp._get_ddp_logging_data().get("bucket_sizes", ""))
    join.__exit__(None, None, None)
    job.synchronize()
    for h in history:
        h["marks"] = [(name, job.told(m)) for name, m in h["marks"]]
        for c in h["collectives"]:
            c["ready"], c["end"] = job.told(c["ready"]), job.told(c["end"])
    if job.ddp is not None:
        buckets["steady"] = steady_buckets(job.ddp) * job.sent_per_step()
    again = retransmits() - again
    pace += loopback_series(job.device, True) if one_gpu else []
    looked_at = look(job, profiled) if job.device.type == "cuda" and not joined else []
    watch.stop()
    everyone = gathered(
        {
            "history": history,
            "profile": profile,
            "retransmits": again,
            "boot": boot_id(),
            "samples": pace + looked_at,
        }
    )
    if dist.get_rank() != 0:
        return {}
    return assemble(job, everyone, begin, warmup, logged, plain, buckets, load, busy)


def look(job: Job, profiled: bool) -> List[Dict[str, Any]]:
    """One more step of each rank: bytes at its peak; if `profiled` one under torch.profiler: what
    the GPU ran, communication by launch.

    The profiler leaves its hooks in the process, and launches may take twice as long from then on:
    nothing is timed after it.
    """
    samples: List[Dict[str, Any]] = []
    torch.cuda.synchronize(job.device)
    torch.cuda.reset_peak_memory_stats(job.device)
    kinds = {"rank": dist.get_rank(), "before": torch.cuda.memory_allocated(job.device)}
    job.step()
    torch.cuda.synchronize(job.device)
    kinds.update(
        peak=torch.cuda.max_memory_allocated(job.device),
        reserved=torch.cuda.memory_reserved(job.device),
    )
    free, total = torch.cuda.mem_get_info(job.device)
    kinds["used_of_device"] = total - free
    samples.append({"op": "memory_bytes", "parameters": kinds, "durations_ps": [1]})
    if not profiled:
        return samples
    try:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            job.step()
            torch.cuda.synchronize(job.device)
        events = sorted(
            (e.start_ns(), e.duration_ns(), e.name())
            for e in prof.profiler.kineto_results.events()
            if str(e.device_type()).endswith("CUDA")
        )
    except (RuntimeError, AttributeError, ImportError):
        return samples  # the Run stands without
    if not events:
        return samples
    origin = events[0][0]
    busy = at = 0
    for begin, took, name in events:
        if "nccl" not in name.lower():
            busy += max(0, begin + took - max(at, begin))
            at = max(at, begin + took)
    end = max(b + t for b, t, _ in events)
    samples.append(
        {
            "op": "profiled_step",
            "parameters": {
                "rank": dist.get_rank(),
                "kernels": len(events),
                "compute_busy_ns": busy,
            },
            "durations_ps": [max(1, (end - origin) * 1000)],
        }
    )
    by_name: Dict[str, List[int]] = {}
    for _, took, name in events:
        by_name.setdefault(name[:160], []).append(max(1, took) * 1000)
    samples += [
        {"op": f"profiled/step/{name}", "parameters": {"rank": dist.get_rank()}, "durations_ps": t}
        for name, t in by_name.items()
    ]
    return samples


def loopback_series(device: torch.device, after: bool) -> List[Dict[str, Any]]:
    """What an all-reduce of 25 MiB takes among ranks on one GPU now, back to back: before the steps
    and after them. How fast their sockets are is not the same from minute to minute."""
    value = torch.ones(25 * MIB // 4, device=device)
    took: List[int] = []
    for k in range(9):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        dist.all_reduce(value)
        begin.record()
        for _ in range(3):
            dist.all_reduce(value)
        end.record()
        torch.cuda.synchronize(device)
        if k > 0:  # the first warms up
            took.append(max(1, round(begin.elapsed_time(end) * 1e9 / 3)))
    parameters = {"rank": dist.get_rank(), "bytes": 25 * MIB, "after": int(after)}
    return [{"op": "one_gpu_all_reduce", "parameters": parameters, "durations_ps": took}]


def boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return os.uname().nodename


def assemble(
    job: Job,
    everyone: List[Dict[str, Any]],
    begin: int,
    warmup: int,
    logged: int,
    plain: int,
    buckets: Dict[str, List[int]],
    load: float,
    busy: float,
) -> Dict[str, Any]:
    shared = len({e["boot"] for e in everyone}) == 1
    steps: List[Dict[str, Any]] = []
    spans: List[Dict[str, Any]] = []
    # Steps of ranks that had inputs to the end.
    count = max(len(e["history"]) for e in everyone)
    profiles = [e["profile"] for e in everyone]
    faults = [e["history"] for e in everyone]
    everyone = [e for e in everyone if len(e["history"]) == count]
    ends = [[begin] + [h["marks"][-1][1] for h in e["history"]] for e in everyone]
    kinds = ["first"] * (warmup - 1) + ["rebuild"] if warmup > 1 else ["first"]
    for k in range(count):
        last = [max(e[i] for e in ends) if shared else 0 for i in (k, k + 1)]
        duration = last[1] - last[0] if shared else ends[0][k + 1] - ends[0][k]
        step: Dict[str, Any] = {
            "kind": kinds[k] if k < warmup else "steady",
            "duration_ps": duration * 1000,
            "page_faults": sum(h[k]["faults"] for h in faults if k < len(h)),
        }
        if k >= plain or warmup <= k < warmup + logged:
            step["instrumented"] = True
        steps.append(step)
        if k == plain or not (
            k > plain or (plain == count and k + 3 >= count)
        ):  # the hook's first step warms up
            continue
        for rank, e in enumerate(everyone):
            origin = last[0] if shared else ends[rank][k]
            at = e["history"][k]
            before = at["marks"][0][1]
            for name, t in at["marks"][1:]:
                if name.endswith("fwd") or name == "optimizer":
                    spans.append(
                        {
                            "step": k,
                            "actor": rank,
                            "lane": "host",
                            "op": name,
                            "ready_ps": (before - origin) * 1000,
                            "begin_ps": (before - origin) * 1000,
                            "end_ps": (t - origin) * 1000,
                        }
                    )
                before = t
            for c in at["collectives"]:
                spans.append(
                    {
                        "step": k,
                        "actor": rank,
                        "lane": "worker" if job.device.type == "cpu" else "comm",
                        "op": c["op"],
                        "tensors": c["tensors"],
                        "bytes": c["bytes"],
                        "algorithm": "ring" if job.device.type == "cpu" else "nccl",
                        "ready_ps": (c["ready"] - origin) * 1000,
                        "begin_ps": (c["ready"] - origin) * 1000,
                        "end_ps": (c["end"] - origin) * 1000,
                    }
                )
    settled = [
        s["duration_ps"] for s in steps if s["kind"] == "steady" and not s.get("instrumented")
    ][1:] or [steps[plain - 1]["duration_ps"]]
    typical = median(settled)
    spread = median(abs(s - typical) for s in settled) / typical
    known = spread if job.device.type == "cpu" else known_spread(spread, len(settled))
    resent = sum(e["retransmits"] for e in everyone)
    reasons = []
    if load > NOISY_LOAD:
        reasons.append(f"{load:.1f} cores were busy while all ranks slept")
    if known > NOISY_SPREAD:
        reasons.append(f"the steps spread by {100 * spread:.1f} % (median absolute deviation)")
    if resent > max(
        4, sum(p.numel() for p in job.parameters) * 4 * 2 * count / 8948 * 1e-4 * len(everyone)
    ):
        reasons.append(f"{resent} TCP segments were sent again")
    skipped = []
    for knob, default in UNPREDICTED.items():
        if job.plan[knob] != default:
            skipped.append(
                {
                    "what": "prediction",
                    "why": f"{knob}={job.plan[knob]} is recorded, and not predicted",
                }
            )
    if job.ddp is not None:
        skipped += [
            {"what": what, "why": "a communication hook sees buckets only"}
            for what in ("broadcast/buffers.", "allreduce/unused", "allreduce/join.")
        ]
        if job.plan["system"] == "local_sgd":
            skipped += [
                {"what": f"micro{m}/broadcast/buffers.", "why": "a communication hook sees buckets"}
                for m in range(job.plan["accumulation_steps"])
            ]
    if os.environ.get("DDPSIM_ONE_GPU"):
        skipped.append(
            {
                "what": "links",
                "why": (
                    "all ranks are on one GPU: collectives go through sockets on loopback, and say"
                    " nothing about NVLink or a network"
                ),
            }
        )
    samples = [
        {"op": "cores_busy", "parameters": {"thousandths": round(1000 * busy)}, "durations_ps": [1]}
    ]
    samples += profile_samples(profiles)
    samples += [s for e in everyone for s in e["samples"]]
    run = document(
        "system",
        samples,
        load,
        resent,
        ", ".join(x for x in (job.precision if job.device.type == "cuda" else "", job.memory) if x),
    )
    run["origin"].update(
        hosts=run["origin"]["hosts"] if shared else "machines",
        compute="timed" if job.timed else "real",
    )
    run["clock"]["domain"] = "CLOCK_MONOTONIC" if shared else "per_host"
    if job.device.type == "cuda":
        run["origin"].update(
            gpu=torch.cuda.get_device_name(job.device), hosts="gpus" if shared else "machines"
        )
    run.update(
        steps=steps,
        layers=joined(profiles),
        spans=spans,
        tensors=[n for n, _ in job.named],
        skipped=skipped,
    )
    run["quality"].update(
        verdict="noisy" if reasons else "clean", spread=round(spread, 6), reasons=reasons
    )
    if buckets:
        run["buckets"] = buckets
    return run


def document(
    evidence: str, samples: List[Dict[str, Any]], load: float, resent: int, special: str
) -> Dict[str, Any]:
    """A measured Run of this machine by torch.distributed, without steps. `special`: what is
    special about the processes, if anything."""
    software = (
        f"PyTorch {torch.__version__}, {dist.get_backend()}, {dist.get_world_size()} ranks,"
        f" {torch.get_num_threads()} threads a rank{', ' if special else ''}{special}"
    )
    return document_of(evidence, software, samples, load, resent)


def document_of(
    evidence: str, software: str, samples: List[Dict[str, Any]], load: float, resent: int
) -> Dict[str, Any]:
    """A measured Run of this machine, without steps."""
    source = cap.describe_source()
    noisy = [f"{load:.1f} cores were busy while all ranks slept"] if load > NOISY_LOAD else []
    return {
        "schema": SCHEMA,
        "kind": "measured",
        "evidence": evidence,
        "case": {"key": ""},
        "origin": {
            "version": "",
            "revision": "",
            "date": source["date"],
            "argv": source["command"].split(),
            "cpu": source["cpu"],
            "cores": os.cpu_count() or 0,
            "kernel": f"{os.uname().sysname} {os.uname().release.split('-')[0]}",
            "backend": "torch",
            "hosts": os.environ.get("DDPSIM_HOSTS", "loopback"),
            "compute": "none",
            "profile": "",
            "software": software,
        },
        "clock": {"domain": "CLOCK_MONOTONIC", "offset_bound_ps": 0},
        "steps": [],
        "samples": samples,
        "spans": [],
        "quality": {
            "verdict": "noisy" if noisy else "clean",
            "spread": 0.0,
            "retransmits": resent,
            "load": max(0.0, load),
            "reasons": noisy,
        },
        "skipped": [],
    }


# ---- command line


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = cap.OneLineParser(
        description=(
            "Record real data-parallel training steps of PyTorch; run it under torchrun, or through"
            " ddpsim run --backend torch."
        )
    )
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    cap.add_model_flags(what)
    what.add_argument(
        "--workload",
        type=Path,
        metavar="FILE",
        help=(
            "a captured workload: its layers, timed; with --compute real the model that it was"
            " captured from"
        ),
    )
    add("--out", type=Path, required=True, help="file to write the Run to")
    add("--compute", choices=("timed", "real"), help="with --workload: timed (default) or real")
    add("--plan", default="{}", help="knobs as JSON, or a file of them")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="one knob, by its name in PyTorch: bucket_cap_mb=5",
    )
    add("--batch", type=int, help="samples per rank and step (with --model)")
    add("--image", type=int, default=224, help="image height and width (default 224)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default cpu")
    add(
        "--precision",
        choices=cap.PRECISIONS,
        help=(
            "fp32, tf32, or bf16 and fp16 by autocast; real models only; default: as PyTorch is set"
        ),
    )
    add(
        "--optimizer",
        choices=cap.OPTIMIZERS,
        default="sgd",
        help="where the model brings none; default sgd (momentum)",
    )
    add(
        "--memory-format",
        choices=("contiguous", "channels_last"),
        default="contiguous",
        help="order of images and their weights in memory",
    )
    add(
        "--profile",
        action="store_true",
        help=(
            "on a GPU: one more step under torch.profiler; the last thing that this process"
            " measures"
        ),
    )
    add(
        "--threads",
        type=int,
        default=1,
        help="CPU threads of a rank (default 1, as under torchrun)",
    )
    add("--steps", type=int, default=6, help="steady steps (default 6)")
    add("--spans", type=int, default=3, help="further steps whose buckets are recorded (default 3)")
    add("--passes", type=int, default=5, help="pairs of passes of the layer profile (default 5)")
    add(
        "--record",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="what is recorded and not predicted: " + ", ".join(UNPREDICTED),
    )
    add_memory_flag(parser)
    add(
        "--patience",
        type=float,
        default=120.0,
        help="end if no step ends for so many seconds (default 120; 0: wait for ever)",
    )
    add(
        "--import-from",
        action="append",
        default=[],
        metavar="FOLDER",
        help="where to look for the factory's module, too; repeatable",
    )
    add(
        "--slow", type=float, default=1.0, help=argparse.SUPPRESS
    )  # this rank's factor on timed layers
    return parser.parse_args(argv)


def add_memory_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-memory",
        action="store_true",
        help=(
            "freed memory stays with the process, as with other allocators than glibc's; ddpsim run"
            " and calibrate do it"
        ),
    )


def apply_memory_flag(args: argparse.Namespace) -> str:
    """What to say of the processes' memory in the Run."""
    if not args.keep_memory:
        return ""
    keep_memory()
    return "freed memory kept"


def read_plan(args: argparse.Namespace) -> Dict[str, Any]:
    text = (
        args.plan
        if args.plan.lstrip().startswith("{")
        else Path(args.plan).read_text(encoding="utf-8")
    )
    given = json.loads(text)
    for item in args.set:
        key, equals, value = item.partition("=")
        if not equals:
            raise RecordError(f"--set {item} is not KNOB=VALUE")
        key = key[5:] if key.startswith("plan.") else key
        try:
            given[key] = json.loads(value)
        except json.JSONDecodeError:
            given[key] = value
    for key in given:
        if key not in KNOBS:
            near = cap.difflib.get_close_matches(key, list(KNOBS), n=1, cutoff=0.0)[0]
            raise RecordError(
                f"'{key}' is not a knob that can be recorded; the nearest is '{near}'"
            )
    plan = {**KNOBS, **UNPREDICTED, **given}
    for item in args.record:
        key, _, value = item.partition("=")
        if key not in UNPREDICTED:
            raise RecordError(f"--record {key}: known are {', '.join(UNPREDICTED)}")
        plan[key] = json.loads(value)
    check_plan(plan)
    running = ".".join(str(torch.__version__).split(".")[:2])
    if plan["pytorch"] is not None and plan["pytorch"] != running:
        raise RecordError(f"the plan says PyTorch {plan['pytorch']}, and this is {running}")
    if plan["system"] not in ("pytorch_ddp", "averaging", "zero_redundancy", "local_sgd"):
        raise RecordError(
            f"system '{plan['system']}' cannot be recorded; known are pytorch_ddp, averaging,"
            " zero_redundancy and local_sgd"
        )
    if plan["gloo_threads"] != 2:
        raise RecordError("gloo_threads is fixed in c10d: 2")
    return plan


def check_plan(plan: Dict[str, Any]) -> None:
    """What would be recorded as something else, or never begin."""
    start = 3 if plan["static_graph"] else 2
    if plan["comm_hook"] == "powerSGD" and plan["start_powerSGD_iter"] != start:
        raise RecordError(
            f"start_powerSGD_iter={plan['start_powerSGD_iter']}: steps are recorded from the one"
            f" after the buckets are made, and it must compress: --set start_powerSGD_iter={start}"
        )
    if plan["outer_optimizer"] != "none":
        raise RecordError("outer_optimizer: torchft, which is not PyTorch's own, is not recorded")
    if plan["subgroup_size"] and plan["start_localSGD_iter"] != 2:
        raise RecordError(
            f"start_localSGD_iter={plan['start_localSGD_iter']}: rounds are recorded from the one"
            " after the buckets are made: --set start_localSGD_iter=2"
        )
    if plan["optimizer_in_backward"] and not hasattr(
        DistributedDataParallel, "_register_fused_optim"
    ):
        raise RecordError("optimizer_in_backward: this PyTorch has no _register_fused_optim")


def torchrun_flags() -> str:
    """Every version takes underscores, 1.13 nothing else; under Python 3.11 (Debian) that one needs
    -r and -t as numbers."""
    debian = str(torch.__version__).startswith("1.") and sys.version_info >= (3, 11)
    return "--nproc_per_node N" + (" -r 1 -t 1" if debian else "")


def require_rank(script: str, command: str) -> None:
    if "RANK" not in os.environ:
        raise RecordError(
            f"no rank: start it with torchrun {torchrun_flags()} {script} ..., or use {command}"
        )


def recipe_of(workload: Dict[str, Any], name: str) -> Dict[str, Any]:
    recipe = workload.get("source", {}).get("recipe")
    if not recipe:
        raise RecordError(
            f"workload '{name}' does not say how to make its model; capture it with --model or"
            " --factory, or run its layers timed"
        )
    if "script" in recipe:
        raise RecordError(
            f"workload '{name}' was described from {recipe['script']}, which is not trained here:"
            " give a factory of its model (--factory)"
        )
    return recipe


def as_captured(args: argparse.Namespace, workload: Dict[str, Any], recipe: Dict[str, Any]) -> None:
    """What else a capture's recipe says, where no flag does."""
    if recipe.get("compile"):
        raise RecordError(
            f"workload '{workload['name']}' was captured with torch.compile, which is not recorded"
        )
    torch.backends.cudnn.benchmark = bool(recipe.get("benchmark", False))
    args.memory_format = recipe.get("memory_format", args.memory_format)
    if args.precision is None:
        # A recipe without it: fp32 is PyTorch as it is set, everything else was asked for.
        asked = workload.get("precision") if workload.get("precision") != "fp32" else None
        args.precision = recipe.get("precision") or asked


def require_gpus() -> None:
    """A GPU, and one for each rank where ddpsim run started them, all on this machine: NCCL refuses
    two on one."""
    if not torch.cuda.is_available():
        raise RecordError("--device cuda: this PyTorch finds no CUDA GPU")
    ranks, gpus = int(os.environ["WORLD_SIZE"]), torch.cuda.device_count()
    if "DDPSIM_HOSTS" in os.environ and "DDPSIM_ONE_GPU" not in os.environ and ranks > gpus:
        raise RecordError(
            f"{ranks} ranks need as many GPUs, this machine has {gpus} (or --one-gpu "
            "with --cluster one-gpu)"
        )


def make_job(args: argparse.Namespace, plan: Dict[str, Any]) -> Job:
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device(
            "cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        )
        torch.cuda.set_device(device)
    loss_fn: Optional[Callable[..., Tensor]] = None
    optimizer: Optional[torch.optim.Optimizer] = None
    optimizer_name = args.optimizer
    if args.workload:
        workload = json.loads(args.workload.read_text(encoding="utf-8"))
        if args.compute != "real":
            if workload.get("basis") != "captured":
                raise RecordError(
                    f"workload '{workload['name']}' has no times of its own; timed layers need a"
                    " captured one"
                )
            model = TimedModel(workload, plan["unused_parameters"], args.slow)
            timed: torch.optim.Optimizer = TimedOptimizer(model)
            if plan["zero_redundancy_optimizer"]:
                timed = ZeroRedundancyOptimizer(
                    model.parameters(), optimizer_class=sleeping_shard(model), lr=0.0
                )
            return Job(plan, model, (model.start,), None, timed, device)
        recipe = recipe_of(workload, workload["name"])
        args.model, args.factory = recipe.get("model"), recipe.get("factory")
        args.batch, args.image = recipe.get("batch"), recipe.get("image", 224)
        optimizer_name = recipe.get("optimizer", "sgd")
        as_captured(args, workload, recipe)
    cap.set_tf32(args.precision)
    if args.model:
        if args.batch is None:
            raise RecordError("--batch is required with --model")
        with cap.on_device(device):  # random weights are made where they are needed
            model, inputs = cap.named_model(args.model, args.batch, args.image)
        model.train()
    else:
        sys.path[:0] = [os.path.abspath(folder) for folder in args.import_from]
        try:
            with cap.on_device(device):
                model, inputs, loss_fn, optimizer = cap.made_by_factory(args.factory)
        except cap.CaptureError as error:
            raise RecordError(
                f"{error} (looked in {', '.join([os.getcwd(), *args.import_from])})"
            ) from None
    inputs = cap.as_inputs(inputs)
    if device.type == "cuda":
        model.to(device)
        inputs = cap.moved(inputs, device)
    if args.memory_format == "channels_last":
        inputs = cap.channels_last(model, inputs)
    if plan["zero_redundancy_optimizer"] and optimizer_name == "adamw":
        optimizer = ZeroRedundancyOptimizer(
            [p for p in model.parameters() if p.requires_grad],
            optimizer_class=torch.optim.AdamW,
            lr=1e-5,
        )
    elif plan["zero_redundancy_optimizer"]:
        optimizer = ZeroRedundancyOptimizer(
            [p for p in model.parameters() if p.requires_grad],
            optimizer_class=torch.optim.SGD,
            lr=1e-3,
            momentum=0.9,
        )
    if optimizer is None:
        optimizer = cap.default_optimizer(
            optimizer_name, [p for p in model.parameters() if p.requires_grad]
        )
    return Job(plan, model, inputs, loss_fn, optimizer, device, args.precision or "fp32")


def record_one(args: argparse.Namespace, plan: Dict[str, Any], memory: str) -> Dict[str, Any]:
    torch.manual_seed(1)
    job = make_job(args, plan)
    job.memory = memory
    if memory:  # gradients, buckets, and what one of them is copied into; PowerSGD: errors, old and
        # new, and copies, between which freed blocks are too small for an aligned one
        times = 12 if plan["comm_hook"] == "powerSGD" else 3
        touch_memory(
            64 * MIB + times * sum(p.numel() * p.element_size() for p in job.parameters)
        )
    gc.collect()
    gc.disable()  # a collection inside a step would be taken for computation
    try:
        run = record(job, args.steps, args.spans, args.passes, args.patience, args.profile)
    finally:
        gc.enable()
        job.release()
    if dist.get_rank() == 0:
        write_whole(args.out, json.dumps(run) + "\n")
    dist.barrier()
    return run


def told(out: Path, run: Dict[str, Any]) -> str:
    """What was written, in a line or two."""
    steady = sorted(s["duration_ps"] for s in run["steps"] if s["kind"] == "steady")
    text = f"{out}: {len(steady)} steady steps"
    if steady:
        text += f", median {steady[len(steady) // 2] / 1e9:.3f} ms"
    return "\n  ".join([f"{text}, {run['quality']['verdict']}", *run["quality"]["reasons"]])


def record_list(path: Path, seconds: float) -> int:
    """``--list FILE``: an array of argument lists, recorded one after another by the same ranks;
    all of one device."""
    begin = time.monotonic()
    require_rank("ddpsim_record.py", "ddpsim run --backend torch")
    device = ""
    failed = 0
    for argv in json.loads(path.read_text(encoding="utf-8")):
        args = parse(argv)
        if not device:
            device = args.device
            torch.set_num_threads(args.threads)
            if device == "cuda":
                require_gpus()
                torch.cuda.set_device(
                    int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
                )
            dist.init_process_group("nccl" if device == "cuda" else "gloo")
        late = [time.monotonic() - begin > seconds]
        dist.broadcast_object_list(late, 0)
        if late[0]:
            print(f"{args.out.name}: left out: the time was over", flush=True)
            continue
        if args.out.exists():
            continue
        at = time.monotonic()
        said = "recorded"
        dist.barrier()  # a file that rank 0 writes must not be seen before the others have looked
        try:
            record_one(args, read_plan(args), "")
        except (
            RecordError,
            cap.CaptureError,
            OSError,
            RuntimeError,
            MemoryError,
            ValueError,
            ImportError,
            AttributeError,
            TypeError,
        ) as error:
            failed += 1
            said = "failed: " + (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            if dist.get_world_size() > 1:  # the others wait for this one
                print(f"{args.out.name}: {said}", flush=True)
                return 2
        if dist.get_rank() == 0:
            print(f"{args.out.name}: {said} ({time.monotonic() - at:.1f} s)", flush=True)
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    return 1 if failed else 0


def main(argv: Optional[Sequence[str]] = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--list"] and len(words) in (2, 4):
        try:
            return record_list(Path(words[1]), float(words[3]) if len(words) == 4 else 1e9)
        except (RecordError, cap.CaptureError, OSError, ValueError) as error:
            print(f"ddpsim_record: {str(error).splitlines()[0]}", file=sys.stderr)
            return 2
    try:
        args = parse(argv)
        for name, least in (("steps", 2), ("spans", 0), ("passes", 1), ("threads", 1)):
            if getattr(args, name) < least:
                raise RecordError(f"--{name} must be at least {least}, not {getattr(args, name)}")
        plan = read_plan(args)
        require_rank("ddpsim_record.py", "ddpsim run --backend torch")
        memory = apply_memory_flag(args)
        torch.set_num_threads(args.threads)
        if args.device == "cuda":
            require_gpus()
        dist.init_process_group(plan["backend"] or ("nccl" if args.device == "cuda" else "gloo"))
        run = record_one(args, plan, memory)
        if dist.get_rank() == 0 and not str(args.out).startswith("/proc/self/fd/"):
            print(told(args.out, run), flush=True)
    except (RecordError, cap.CaptureError, OSError, RuntimeError, MemoryError, ValueError) as error:
        print(
            f"ddpsim_record: {(str(error).strip() or type(error).__name__).splitlines()[0]}",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    cap.leave(main())
