"""What a training script finds in place of GPUs, other ranks and wrappers while it is described: it
runs unmodified, as rank 0, and nothing is computed, sent or saved. What it asks for is noted.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import os
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist
import torch.multiprocessing
from ddpsim_capture import tensors_in
from ddpsim_meta import META, WithoutMemory
from ddpsim_op_costs import base_name
from ddpsim_own_work import Collective
from ddpsim_wrapped import Asked, stand_in_for_amp, stand_in_for_wrappers
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

DEVICES = 8  # GPUs that a host seems to have


class Anything:
    """Stands for an event, a stream or a context of a GPU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    waits: Callable[[], None] = staticmethod(lambda: None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: 0

    def synchronize(self) -> None:
        self.waits()

    def __enter__(self) -> "Anything":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


def returns(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


# ---- GPUs


class OnGpu(WithoutMemory):
    """What is sent to a GPU has no values there, but numbers and indices; values that the script
    reads there are ones. Data of the CPU is real."""

    small = 1 << 28

    def run(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        asked = kwargs.get("device")
        gpu = asked is not None and torch.device(asked).type not in ("cpu", "meta")
        out = super().run(func, args, kwargs)
        return tree_map(floats_on_meta, out) if gpu else out

    def read(self, name: str, t: Tensor) -> Any:
        return one_of(name, t)


def to_cpu(func: Any, kwargs: Dict[str, Any]) -> bool:
    asked = kwargs.get("device")
    return base_name(func) == "_to_copy" and asked is not None and torch.device(asked).type == "cpu"


def one_of(name: str, t: Tensor) -> Any:
    """What is read of a tensor without values, outside of the model."""
    if name == "nonzero":
        return torch.zeros((0, t.dim()), dtype=torch.int64)
    if t.is_floating_point():
        return 1.0
    return True if t.dtype == torch.bool or name in ("equal", "is_nonzero") else 1


def floats_on_meta(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.dim() == 0 or value.device.type == "meta":
        return value
    if not value.is_floating_point():
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)


def stand_in_for_gpus(asked: Asked) -> None:
    cuda: Any = torch.cuda
    device = types.SimpleNamespace(
        name="a GPU", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132
    )
    for value, names in {
        None: "_lazy_init init set_device empty_cache ipc_collect manual_seed"
        " manual_seed_all seed seed_all reset_peak_memory_stats set_per_process_memory_fraction"
        " reset_max_memory_allocated set_stream",
        True: "is_available is_initialized is_bf16_supported",
        0: "current_device memory_allocated max_memory_allocated memory_reserved"
        " max_memory_reserved utilization",
    }.items():
        for name in names.split():
            setattr(cuda, name, returns(value))
    cuda.device_count = returns(min(asked.ranks, DEVICES))
    cuda.get_device_name = returns(device.name)
    cuda.get_device_capability = returns((device.major, device.minor))
    cuda.get_device_properties = returns(device)
    cuda.mem_get_info = returns((device.total_memory, device.total_memory))
    cuda.synchronize = lambda *args, **kwargs: asked.waits()
    Anything.waits = staticmethod(lambda: asked.waits())
    for name in ("Event", "Stream", "device", "stream", "StreamContext"):
        setattr(cuda, name, Anything)
    cuda.current_stream = cuda.default_stream = returns(Anything())
    stand_in_for_moves()
    Tensor.pin_memory = lambda self, *args: self  # type: ignore[method-assign,assignment]
    Tensor.is_pinned = returns(True)  # type: ignore[method-assign]


def stand_in_for_moves() -> None:
    """A device without an index would ask CUDA which is the current one."""
    original = Tensor.to

    def first(value: Any) -> Any:
        if isinstance(value, (str, torch.device)):
            device = torch.device(value)
            known = device.type in ("cpu", "meta") or device.index is not None
            return value if known else torch.device(device.type, 0)
        return value

    def moved(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        kwargs = {k: first(v) for k, v in kwargs.items()}
        return original(self, *map(first, args), **kwargs)

    def on_gpu(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return original(self, torch.device("cuda", 0))

    Tensor.to = moved  # type: ignore[method-assign,assignment]
    Tensor.cuda = on_gpu  # type: ignore[method-assign]


def stand_in_for_values(asked: Asked) -> None:
    """Of a tensor without values: ones for whoever looks at them; nothing is infinite."""
    form = Tensor.__format__

    def formatted(t: Tensor, wanted: str) -> str:
        if t.device != META or t.numel() != 1:
            return form(t, wanted)
        return format(t.item(), wanted)

    Tensor.__format__ = formatted  # type: ignore[method-assign]
    for name, value in (("isnan", False), ("isinf", False), ("isfinite", True)):
        original = getattr(torch, name)

        def told(t: Tensor, original: Any = original, value: bool = value) -> Tensor:
            if t.device != META:
                return original(t)
            return asked.tests(torch.tensor(value)).expand(t.shape)

        setattr(torch, name, told)
        setattr(Tensor, name, told)
    for name in ("numpy", "tolist", "__array__"):
        original = getattr(Tensor, name)

        def values(t: Tensor, *args: Any, original: Any = original, **more: Any) -> Any:
            if t.device == META:
                asked.waits()
                t = torch.ones((), dtype=t.dtype).expand(t.shape)
            return original(t, *args, **more)

        setattr(Tensor, name, values)


def parameters_without_memory() -> None:
    """Parameters are made on the meta device, so that autograd sees one device."""
    original = nn.Parameter.__new__

    def made(cls: Any, data: Any = None, requires_grad: bool = True, **more: Any) -> Any:
        if isinstance(data, Tensor) and data.device.type != "meta":
            data = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device=META)
        return original(cls, data, requires_grad, **more)

    nn.Parameter.__new__ = staticmethod(made)  # type: ignore[assignment]


    for name, fill in vars(nn.init).items():
        if name.endswith("_") and not name.startswith("_") and callable(fill):
            setattr(nn.init, name, unless_on_meta(fill))


def unless_on_meta(fill: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fill)
    def filled(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        return tensor if tensor.device == META else fill(tensor, *args, **kwargs)

    return filled


# ---- other ranks


class Work:
    """A collective that has ended."""

    def wait(self, *args: Any) -> bool:
        return True

    is_completed = is_success = wait

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(None)
        return future


# Of c10d's functions: what they do, and which argument is what this rank gives, or, of a
# reduce-scatter, gets.
GIVES: Dict[str, Tuple[str, str]] = {
    "all_reduce": ("all_reduce", "tensor"),
    "all_reduce_coalesced": ("all_reduce", "tensors"),
    "broadcast": ("broadcast", "tensor"),
    "reduce": ("reduce", "tensor"),
    "barrier": ("all_reduce", ""),
    "monitored_barrier": ("all_reduce", ""),
    "all_gather": ("all_gather", "tensor"),
    "all_gather_coalesced": ("all_gather", "input_tensor_list"),
    "all_gather_into_tensor": ("all_gather", "input_tensor"),
    "_all_gather_base": ("all_gather", "input_tensor"),
    "reduce_scatter": ("reduce_scatter", "output"),
    "reduce_scatter_tensor": ("reduce_scatter", "output"),
    "_reduce_scatter_base": ("reduce_scatter", "output"),
    "all_to_all": ("all_to_all", "input_tensor_list"),
    "all_to_all_single": ("all_to_all", "input"),
    "gather": ("gather", "tensor"),
    "scatter": ("scatter", "tensor"),
    "send": ("send", "tensor"),
    "recv": ("recv", "tensor"),
    "isend": ("isend", "tensor"),
    "irecv": ("irecv", "tensor"),
    "broadcast_object_list": ("broadcast_object_list", ""),
    "all_gather_object": ("all_gather_object", ""),
    "gather_object": ("gather_object", ""),
}


def collective(asked: Asked, name: str, original: Any) -> Callable[..., Optional[Work]]:
    """Stands in for a function of c10d: what the script communicates itself."""
    operation, gives = GIVES[name]
    signature: Any = None
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(original)

    def called(*args: Any, **kwargs: Any) -> Optional[Work]:
        given = dict(kwargs)
        with contextlib.suppress(TypeError, AttributeError):
            given = signature.bind(*args, **kwargs).arguments
        tensors = list(tensors_in([given.get(gives)])) if gives else []
        own = getattr(given.get("group"), "members", 0)
        barrier = name.endswith("barrier")
        asked.communicates(
            Collective(
                operation,
                4 if barrier else sum(t.numel() * t.element_size() for t in tensors),
                str(tensors[0].dtype).replace("torch.", "") if tensors else "float32",
                sum(t.numel() for t in tensors),
                own if own and own != asked.ranks else 0,
                bool(given.get("async_op")),
                barrier,
            ),
            tensors[0] if tensors else None,
        )
        return Work() if given.get("async_op") or name in ("isend", "irecv") else None

    return called


def stand_in_for_ranks(asked: Asked) -> None:
    joined = [False]

    def init(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        joined[0] = True

    names: Dict[str, Any] = {
        name: collective(asked, name, getattr(dist, name, None)) for name in GIVES
    }
    all_objects, objects = names["all_gather_object"], names["gather_object"]

    def group_of(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        members = len(list(ranks)) if ranks is not None else asked.ranks
        return types.SimpleNamespace(
            rank=returns(0), size=returns(members), members=members, name=returns("nccl")
        )

    def gathered(objects: List[Any], own: Any, *args: Any, **kwargs: Any) -> None:
        all_objects()
        objects[:] = [own] * len(objects)

    def gathered_to_one(own: Any, given: Optional[List[Any]] = None, *a: Any, **more: Any) -> None:
        objects()
        if given is not None:
            given[:] = [own] * len(given)

    names.update(
        destroy_process_group=returns(None),
        init_process_group=init,
        is_initialized=lambda: joined[0],
        get_rank=returns(0),
        get_world_size=returns(asked.ranks),
        get_backend=returns("nccl"),
        is_available=returns(True),
        is_nccl_available=returns(True),
        is_torchelastic_launched=returns(True),
        new_group=group_of,
        all_gather_object=gathered,
        gather_object=gathered_to_one,
    )
    for module in (dist, distributed_c10d):
        for name, value in names.items():
            if hasattr(module, name):
                setattr(module, name, value)
    host = min(asked.ranks, DEVICES)
    os.environ.update(
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE=str(asked.ranks),
        LOCAL_WORLD_SIZE=str(host),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )
    torch.multiprocessing.spawn = spawn


def spawn(fn: Callable[..., Any], args: Any = (), *more: Any, **kwargs: Any) -> None:
    """The first of the processes, in this one."""
    fn(0, *args)


# ---- the loop, files, loaders


def stand_in_for_loop(asked: Asked) -> None:
    def clipped(*args: Any, **kwargs: Any) -> Tensor:
        asked.loop["clip_grad_norm"] = True
        return torch.tensor(1.0)

    nn.utils.clip_grad_norm_ = clipped  # type: ignore[assignment]
    nn.utils.clip_grad.clip_grad_norm_ = clipped  # type: ignore[assignment]

    def not_saved(*args: Any, **kwargs: Any) -> None:
        asked.note("what the script saves with torch.save is not saved: it has no values")

    torch.save = not_saved
    # These write without Python.
    torch.jit.save = torch.jit.ScriptModule.save = not_saved  # type: ignore[method-assign]
    torch.onnx.export = not_saved
    os.environ.setdefault("WANDB_MODE", "disabled")


def loaders(scaled: Callable[[Any], Any]) -> None:
    """Loaders work in this process; ``scaled`` changes what they give."""
    begin, iterate = DataLoader.__init__, DataLoader.__iter__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(begin).bind(self, *args, **kwargs).arguments
        for name in (
            "self num_workers pin_memory prefetch_factor persistent_workers timeout"
            " multiprocessing_context worker_init_fn pin_memory_device"
        ).split():
            given.pop(name, None)
        begin(self, **given)

    def each(self: Any) -> Iterator[Any]:
        for value in iterate(self):
            yield scaled(value)

    DataLoader.__init__ = init  # type: ignore[method-assign]
    DataLoader.__iter__ = each  # type: ignore[method-assign,assignment]


def install(asked: Asked) -> None:
    """All but loaders; the script's process is changed for good."""
    stand_in_for_gpus(asked)
    stand_in_for_values(asked)
    parameters_without_memory()
    stand_in_for_ranks(asked)
    stand_in_for_wrappers(asked)
    stand_in_for_amp(asked)
    stand_in_for_loop(asked)
