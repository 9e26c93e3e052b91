"""What a training script wraps model, optimizer and precision in, while it is described:
stand-ins that change nothing and note their arguments, as knobs of a plan.
"""
from __future__ import annotations

import contextlib
import sys
import types
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
from torch import nn
from torch.nn import parallel

HOOKS = {
    "allreduce_hook": "allreduce",
    "fp16_compress_hook": "fp16_compress",
    "bf16_compress_hook": "bf16_compress",
}
KNOBS = (  # arguments of DistributedDataParallel that are knobs of the plan, under the same names
    "bucket_cap_mb",
    "broadcast_buffers",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "static_graph",
)


class Stopped(BaseException):
    """Ends the script, whatever it catches; `error`: one sentence, or empty where all is known."""

    def __init__(self, error: str = "") -> None:
        super().__init__(error)
        self.error = error


@dataclass
class Asked:
    """What the script asked for."""

    ranks: int
    knobs: Dict[str, Any] = field(default_factory=dict)  # of the plan
    wrapped: List[nn.Module] = field(default_factory=list)  # what DDP or DataParallel was given
    ddp: bool = False
    loop: Dict[str, bool] = field(default_factory=dict)  # of the workload
    notes: List[str] = field(default_factory=list)
    halves: Optional[torch.dtype] = None  # of autocast, where gradients are wanted
    armed: bool = False  # DDP: a forward that reduces has run since the last backward
    held: bool = False  # FSDP: gradients are not reduced now
    passes: int = 0  # backward passes of a step that Horovod was told of; 0: it was not asked
    syncs: Callable[[], bool] = lambda: True  # whether the backward that begins reduces gradients
    waits: Callable[[], None] = lambda: None  # the host waits for the device
    communicates: Callable[..., None] = lambda *_: None  # the script calls a collective itself
    tests: Callable[[Any], Any] = lambda t: t  # a tensor that stands for isfinite()
    compiled: List[nn.Module] = field(default_factory=list)  # what torch.compile was given
    at_end: Callable[[], Dict[str, Any]] = dict  # knobs that are known once all was wrapped

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def as_armed(self) -> bool:
        """`syncs` of DDP, which reads its flag in forward."""
        armed, self.armed = self.armed, False
        return armed


# ---- wrappers


def wrapper(asked: Asked) -> type:
    """Stands in for DistributedDataParallel: its arguments are noted, the model is not changed."""

    class DistributedDataParallel(nn.Module):
        def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self.module = module
            if not any(p.requires_grad for p in module.parameters()):
                raise RuntimeError("a module whose parameters need no gradient needs no DDP")
            asked.wrapped.append(module)
            asked.ddp = True
            asked.syncs = asked.as_armed
            self.require_backward_grad_sync = True
            given = dict(zip(POSITIONS, args))
            given.update(kwargs)
            note_arguments(asked, given)

        def forward(self, *inputs: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() and self.require_backward_grad_sync:
                asked.armed = True
            return self.module(*inputs, **kwargs)

        @contextlib.contextmanager
        def no_sync(self) -> Iterator[None]:
            before = self.require_backward_grad_sync
            self.require_backward_grad_sync = False
            try:
                yield
            finally:
                self.require_backward_grad_sync = before

        def join(self, *args: Any, **kwargs: Any) -> Any:
            return contextlib.nullcontext()

        def register_comm_hook(self, state: Any, hook: Any) -> None:
            name = getattr(hook, "__name__", str(hook))
            if name not in HOOKS:
                raise Stopped(
                    f"the script gives DDP the hook {name}, and ddpsim knows"
                    f" {', '.join(HOOKS)}: leave it out, or describe the model with --factory"
                )
            asked.knobs["comm_hook"] = HOOKS[name]

        def _set_static_graph(self) -> None:
            asked.knobs["static_graph"] = True

    return DistributedDataParallel


def in_one_process(asked: Asked) -> type:
    """Stands in for DataParallel, which is no job of several ranks."""

    class DataParallel(nn.Module):
        def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self.module = module
            asked.wrapped.append(module)
            asked.note("DataParallel is left out: each rank has one GPU, and the whole batch")

        def forward(self, *inputs: Any, **kwargs: Any) -> Any:
            return self.module(*inputs, **kwargs)

    return DataParallel


POSITIONS = "device_ids output_device dim broadcast_buffers process_group bucket_cap_mb".split()


def note_arguments(asked: Asked, given: Dict[str, Any]) -> None:
    for name, value in given.items():
        if name in KNOBS and value is not None:
            asked.knobs[name] = value
        elif name == "bucket_cap_mb_list" and value:
            asked.knobs[name] = list(value)
        elif name in ("mixed_precision", "delay_all_reduce_named_params") and value is not None:
            asked.note(f"DDP's {name} is not modelled: the step is predicted without it")


def redundancy(asked: Asked) -> Callable[..., Any]:
    """Stands in for ZeroRedundancyOptimizer: the optimizer that it shares out."""

    def made(
        params: Any,
        optimizer_class: Any,
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> Any:
        asked.knobs["system"] = "zero_redundancy"
        asked.knobs["parameters_as_bucket_view"] = bool(parameters_as_bucket_view)
        if overlap_with_ddp:
            raise Stopped(
                "the script asks ZeroRedundancyOptimizer for overlap_with_ddp, which is not"
                " modelled: leave it out"
            )
        return optimizer_class(params, **defaults)

    return made


def stand_in_for_wrappers(asked: Asked) -> None:
    ddp = wrapper(asked)
    parallel.DistributedDataParallel = ddp  # type: ignore[misc,assignment]
    parallel.distributed.DistributedDataParallel = ddp  # type: ignore[misc,assignment]
    nn.parallel.DistributedDataParallel = ddp  # type: ignore[misc,assignment]
    nn.DataParallel = parallel.DataParallel = in_one_process(asked)  # type: ignore[misc]
    with contextlib.suppress(ImportError):
        import torch.distributed.optim as optim

        optim.ZeroRedundancyOptimizer = redundancy(asked)  # type: ignore[misc,assignment]
        optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer = optim.ZeroRedundancyOptimizer

    def synced(cls: Any, module: nn.Module, process_group: Any = None) -> nn.Module:
        if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules()):
            asked.knobs["sync_batch_norm"] = True
        return module

    class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
        """Of any shape, like PyTorch's, which refuses what is on no GPU."""

        convert_sync_batchnorm = classmethod(synced)

        def __init__(self, *args: Any, process_group: Any = None, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            asked.knobs["sync_batch_norm"] = True

        def _check_input_dim(self, input: Any) -> None:
            pass

    nn.SyncBatchNorm = nn.modules.SyncBatchNorm = SyncBatchNorm  # type: ignore[misc,assignment]
    nn.modules.batchnorm.SyncBatchNorm = SyncBatchNorm  # type: ignore[misc]
    torch.compile = uncompiled(asked)  # type: ignore[attr-defined]  # PyTorch 1.13 has none
    import ddpsim_engine_script as engines
    import ddpsim_sharded_script as sharded

    modules = {
        **sharded.sharding_modules(asked),
        **engines.deepspeed_modules(asked),
        **engines.horovod_modules(asked),
    }
    sys.meta_path.insert(0, StandIns(modules))
    sharded.stand_in_for_checkpointing()
    meshes = modules["torch.distributed.device_mesh"]
    for name in ("DeviceMesh", "init_device_mesh"):  # PyTorch 2.x has them here, too
        setattr(torch.distributed, name, getattr(meshes, name))


def uncompiled(asked: Asked) -> Callable[..., Any]:
    """Stands in for torch.compile: notes what it was given, which runs eagerly."""

    def given(model: Any) -> Any:
        if isinstance(model, nn.Module):
            asked.compiled.append(model)
        else:
            asked.note("torch.compile of a function is left out: described as it runs eagerly")
        return model

    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        return given if model is None else given(model)

    return compile


# ---- modules of other systems


def module_of(name: str, known: Dict[str, Any], what: str) -> types.ModuleType:
    """A module with what is known; calling anything else ends the script, importing it does not."""
    module = types.ModuleType(name)
    module.__dict__.update(known)
    module.__path__ = []

    def attribute(asked_for: str) -> Any:
        if asked_for.startswith("__"):
            raise AttributeError(asked_for)

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise Stopped(
                f"the script uses {name}.{asked_for} of {what}, which is not taken from a script:"
                " describe its model (ddpsim describe --factory), and name the plan that it trains"
                " by (ddpsim list plans)"
            )

        return type(asked_for, (), {"__new__": refuse})

    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module


class StandIns:
    """Finds modules that stand in for others, whether those are installed or not."""

    def __init__(self, modules: Dict[str, types.ModuleType]) -> None:
        self.modules = modules
        for name in [n for n in sys.modules if self.own(n)]:
            del sys.modules[name]

    def own(self, name: str) -> bool:
        return any(name == m or name.startswith(m + ".") for m in self.modules)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not self.own(name):
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        made = self.modules.get(spec.name)
        return module_of(spec.name, {}, spec.name.partition(".")[0]) if made is None else made

    def exec_module(self, module: types.ModuleType) -> None:
        pass


# ---- mixed precision


class Scaler:
    """Stands in for GradScaler. A scaler of ``asked`` is of a class with that attribute."""

    asked: Asked

    def __init__(self, *args: Any, enabled: bool = True, **kwargs: Any) -> None:
        self.enabled = enabled
        self.asked.loop["grad_scaler"] = self.asked.loop.get("grad_scaler", False) or enabled

    def scale(self, loss: Any) -> Any:
        return loss

    def unscale_(self, optimizer: Any) -> None:
        pass

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    def update(self, *args: Any) -> None:
        pass

    def get_scale(self) -> float:
        return 1.0

    def is_enabled(self) -> bool:
        return self.enabled

    def state_dict(self) -> Dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


def stand_in_for_amp(asked: Asked) -> None:
    scaler = type("GradScaler", (Scaler,), {"asked": asked})
    torch.cuda.amp.GradScaler = scaler  # type: ignore[misc,assignment]
    torch.cuda.amp.grad_scaler.GradScaler = scaler  # type: ignore[misc,assignment]
    if hasattr(torch.amp, "GradScaler"):
        torch.amp.GradScaler = scaler  # type: ignore[misc,assignment]
    autocast: Any = torch.autocast
    begin, enter = autocast.__init__, autocast.__enter__

    def init(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *a: Any, **k: Any
    ) -> None:
        begin(self, "cpu", torch.bfloat16, enabled=False)
        usual = torch.bfloat16 if device_type == "cpu" else torch.float16
        self.asked_dtype = (dtype or usual) if enabled else None

    def entered(self: Any) -> Any:
        if torch.is_grad_enabled() and self.asked_dtype is not None:
            asked.halves = self.asked_dtype
        return enter(self)

    autocast.__init__, autocast.__enter__ = init, entered
