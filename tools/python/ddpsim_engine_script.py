"""What a script finds of DeepSpeed and Horovod while it is described: stand-ins for
``deepspeed.initialize`` and its engine, and for ``horovod.torch``. Neither needs to be installed.
Configuration and arguments become knobs of plan zero or horovod.
"""
from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any, Dict, Tuple

import torch
import torch.distributed as dist
from ddpsim_own_work import Collective
from ddpsim_sharded_script import Given
from ddpsim_stand_ins import DEVICES, Anything, returns
from ddpsim_wrapped import Asked, Stopped, module_of
from torch import nn
from torch.utils.data import DataLoader
from torch.utils._pytree import tree_map

ZERO = (  # of zero_optimization: knobs of the plan under the same names
    "overlap_comm reduce_bucket_size allgather_bucket_size reduce_scatter contiguous_gradients"
    " use_multi_rank_bucket_allreduce round_robin_gradients zero_hpz_partition_size"
    " zero_quantized_weights zero_quantized_gradients"
).split()
ZERO_3 = (
    "stage3_prefetch_bucket_size stage3_param_persistence_threshold stage3_max_live_parameters"
    " stage3_max_reuse_distance sub_group_size"
).split()
WITHOUT_STAGE_3 = {name.replace("stage3_", ""): name for name in ZERO_3}  # their newer names


# ---- DeepSpeed


def configuration(given: Any) -> Dict[str, Any]:
    if isinstance(given, dict):
        return given
    if given is None:
        raise Stopped("the script gives deepspeed.initialize no configuration: config=, or"
                      " --deepspeed_config behind --")  # fmt: skip
    try:
        said = json.loads(Path(given).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Stopped(f"DeepSpeed's configuration {given} cannot be read: {error}") from None
    if not isinstance(said, dict):
        raise Stopped(f"DeepSpeed's configuration {given} is no JSON object")
    return said


def section(config: Dict[str, Any], name: str) -> Dict[str, Any]:
    """Of a configuration; empty where it is not there, or only for a library's trainer to fill."""
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value == int(value) else value


def zero_knobs(config: Dict[str, Any], asked: Asked) -> Dict[str, Any]:
    zero = section(config, "zero_optimization")
    stage = zero.get("stage", 0)
    if stage not in (1, 2, 3):
        raise Stopped(
            f"DeepSpeed without ZeRO (stage {stage}) is not modelled: describe the model"
            " (--factory), and predict with --plan zero --set stage=1, or with --plan averaging"
        )
    out: Dict[str, Any] = {"system": "zero", "stage": stage}
    for name, value in zero.items():
        knob = WITHOUT_STAGE_3.get(name, name)
        if knob not in ZERO and not (stage == 3 and knob in ZERO_3):
            continue
        if value == "auto":
            asked.note(f"{name} is \"auto\", which a trainer fills in: the plan's default counts")
        else:
            out[knob] = number(value)
    for name in ("offload_optimizer", "offload_param"):
        to = section(zero, name).get("device", "none")
        if to not in ("cpu", "none"):
            raise Stopped(f"{name} to {to} is not modelled: cpu, or none")
        if to == "cpu":
            out[name] = "cpu"
    if out.get("offload_optimizer") and section(zero, "offload_optimizer").get("pin_memory"):
        out["offload_pin_memory"] = True
    return out


def micro_steps(config: Dict[str, Any], ranks: int) -> int:
    """Of a step of the optimizer."""
    said = config.get("gradient_accumulation_steps")
    if isinstance(said, int):
        return said
    whole, one = config.get("train_batch_size"), config.get("train_micro_batch_size_per_gpu")
    if isinstance(whole, int) and isinstance(one, int):
        return max(1, whole // (one * ranks))
    return 1


def optimizer_of(config: Dict[str, Any], params: Any) -> Any:
    said = section(config, "optimizer")
    if not said:
        raise Stopped("the script gives deepspeed.initialize no optimizer, nor does its"
                      " configuration")  # fmt: skip
    kind = str(said.get("type", "")).lower()
    classes = {"adam": torch.optim.AdamW, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    if kind not in classes:
        raise Stopped(f"DeepSpeed's optimizer {said.get('type')} is not modelled: Adam, AdamW, SGD")
    options = {
        k: v
        for k, v in section(said, "params").items()
        if k in ("lr", "betas", "eps", "weight_decay", "momentum") and v != "auto"
    }
    return classes[kind](params, **{"lr": 1e-3, **options})


class Engine(nn.Module):
    """Stands in for DeepSpeedEngine."""

    def __init__(self, model: nn.Module, optimizer: Any, steps: int, config: Any) -> None:
        super().__init__()
        self.module, self.optimizer, self.config = model, optimizer, config
        self.steps, self.passes = steps, 0
        self.local_rank = self.global_rank = self.global_steps = 0
        self.world_size = dist.get_world_size()
        self.device = torch.device("cuda", 0)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        as_weights = next((p.dtype for p in self.module.parameters()), torch.float32)

        def cast(t: Any) -> Any:
            wanted = isinstance(t, torch.Tensor) and t.is_floating_point()
            return t.to(as_weights) if wanted and t.dtype != as_weights else t

        inputs, named = tree_map(cast, (inputs, named))
        return self.module(*inputs, **named)

    def backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss.backward()
        self.passes += 1
        return loss

    def step(self, *args: Any, **kwargs: Any) -> None:
        if self.passes % self.steps == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.global_steps += 1

    def gradient_accumulation_steps(self) -> int:
        return self.steps

    def is_gradient_accumulation_boundary(self) -> bool:
        return self.passes % self.steps == 0

    def train_micro_batch_size_per_gpu(self) -> int:
        one = self.config.get("train_micro_batch_size_per_gpu")
        whole = self.config.get("train_batch_size")
        if isinstance(one, int):
            return one
        return whole // (self.steps * self.world_size) if isinstance(whole, int) else 1

    def train_batch_size(self) -> int:
        return self.train_micro_batch_size_per_gpu() * self.steps * self.world_size

    def get_lr(self) -> Any:
        return [g.get("lr") for g in self.optimizer.param_groups]

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> bool:
        return True

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> Tuple[None, Dict[str, Any]]:
        return None, {}

    def no_sync(self) -> Any:
        stage = section(self.config, "zero_optimization").get("stage", 0)
        if stage in (2, 3):
            raise Stopped(
                f"DeepSpeed has no no_sync() with ZeRO stage {stage}, which scatters gradients in"
                " each micro-step: leave it out"
            )
        return contextlib.nullcontext()


def deepspeed_modules(asked: Asked) -> Dict[str, Any]:
    def initialize(
        args: Any = None,
        model: Any = None,
        optimizer: Any = None,
        model_parameters: Any = None,
        training_data: Any = None,
        lr_scheduler: Any = None,
        *more: Any,
        config: Any = None,
        config_params: Any = None,
        collate_fn: Any = None,
        **others: Any,
    ) -> Tuple[Any, Any, Any, Any]:
        given = config if config is not None else config_params
        if given is None:
            given = getattr(args, "deepspeed_config", None)
        said = configuration(given)
        asked.ddp = True
        asked.wrapped.append(model)
        asked.knobs.update(zero_knobs(said, asked))
        for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16),
                            ("bfloat16", torch.bfloat16)):  # fmt: skip
            if section(said, name).get("enabled") is True:
                asked.halves = dtype
        if said.get("gradient_clipping"):
            asked.loop["clip_grad_norm"] = True
        if optimizer is None:
            params = model_parameters
            if params is None:
                params = [p for p in model.parameters() if p.requires_grad]
            optimizer = optimizer_of(said, params)
        elif callable(optimizer) and not isinstance(optimizer, torch.optim.Optimizer):
            optimizer = optimizer(model_parameters or model.parameters())
        engine = Engine(model, optimizer, micro_steps(said, asked.ranks), said)
        loader = None
        if training_data is not None:
            loader = DataLoader(
                training_data,
                batch_size=engine.train_micro_batch_size_per_gpu(),
                collate_fn=collate_fn,
            )
        if callable(lr_scheduler):
            lr_scheduler = lr_scheduler(optimizer)
        return engine, optimizer, loader, lr_scheduler

    def add_config_arguments(parser: Any) -> Any:
        parser.add_argument("--deepspeed", default=False, action="store_true")
        parser.add_argument("--deepspeed_config", default=None, type=str)
        return parser

    def init_distributed(*args: Any, **kwargs: Any) -> None:
        dist.init_process_group("nccl")

    def adam(params: Any, *args: Any, adamw_mode: bool = True, adam_w_mode: bool = True,
             lr: float = 1e-3, **options: Any) -> Any:  # fmt: skip
        kept = {k: v for k, v in options.items() if k in ("betas", "eps", "weight_decay")}
        kind = torch.optim.AdamW if adamw_mode and adam_w_mode else torch.optim.Adam
        return kind(params, lr=lr, **kept)

    zero = {"Init": Anything, "GatheredParameters": Anything}  # weights are whole, without memory
    adams = {"FusedAdam": adam, "DeepSpeedCPUAdam": adam}
    logger = {"logger": logging.getLogger("deepspeed"), "log_dist": returns(None)}
    top = {
        "initialize": initialize,
        "add_config_arguments": add_config_arguments,
        "init_distributed": init_distributed,
        "DeepSpeedEngine": Engine,
        "zero": Given(**zero),
        "comm": dist,
        "__version__": "0.14.5",
    }
    of = {
        "deepspeed": top,
        "deepspeed.comm": {n: getattr(dist, n) for n in dir(dist) if not n.startswith("__")},
        "deepspeed.zero": zero,
        "deepspeed.runtime": {},
        "deepspeed.runtime.zero": zero,
        "deepspeed.ops": {},
        "deepspeed.ops.adam": adams,
        "deepspeed.utils": logger,
        "deepspeed.utils.logging": logger,
        "deepspeed.accelerator": {"get_accelerator": lambda: torch.cuda},
    }
    return {name: module_of(name, found, "DeepSpeed") for name, found in of.items()}


# ---- Horovod


def horovod_modules(asked: Asked) -> Dict[str, Any]:
    def init(*args: Any, **kwargs: Any) -> None:
        dist.init_process_group("nccl")

    def distributed(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        positions = "named_parameters compression backward_passes_per_step op".split()
        given = {**dict(zip(positions, args)), **kwargs}
        asked.ddp = True
        asked.knobs["system"] = "horovod"
        if given.get("compression") == "fp16":
            asked.knobs["compression"] = "fp16"
        asked.passes = int(given.get("backward_passes_per_step") or 1)
        if given.get("op") == "Adasum":
            asked.knobs["op"] = "adasum"
        groups = given.get("num_groups") or given.get("groups")
        if isinstance(groups, int) and groups:
            asked.knobs["groups"] = groups
        elif groups:
            asked.note("lists of parameters in groups are left out: --set groups=N makes N")
        for name in ("synchronize", "set_backward_passes_per_step"):
            setattr(optimizer, name, returns(None))
        optimizer.skip_synchronize = contextlib.nullcontext
        return optimizer

    def same(value: Any, *args: Any, **kwargs: Any) -> Any:
        return value

    def sends(operation: str) -> Any:
        def called(value: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(value, torch.Tensor):
                count, dtype = value.numel() * value.element_size(), str(value.dtype)[6:]
                asked.communicates(Collective(operation, count, dtype, value.numel()), value)
            return value

        return called

    top = {
        "init": init,
        "size": returns(asked.ranks),
        "local_size": returns(min(asked.ranks, DEVICES)),
        "DistributedOptimizer": distributed,
        "allgather_object": lambda value, *a, **k: [value] * asked.ranks,
        "join": returns(asked.ranks - 1),
        "Compression": Given(none="none", fp16="fp16"),
        **{name: name for name in ("Average", "Sum", "Adasum")},
        **{name: returns(0) for name in ("rank", "local_rank", "cross_rank")},
        **{
            name: returns(True)
            for name in "is_initialized nccl_built mpi_built mpi_threads_supported".split()
        },
        **{
            name: returns(None)
            for name in "shutdown barrier broadcast_parameters broadcast_optimizer_state".split()
        },
        "broadcast_object": same,
        "broadcast": sends("broadcast"),
        "allgather": sends("all_gather"),
        **{name: sends("all_reduce") for name in ("allreduce", "allreduce_")},
    }
    return {
        "horovod": module_of("horovod", {}, "Horovod"),
        "horovod.torch": module_of("horovod.torch", top, "Horovod"),
    }
