"""Tensors that say that they are on ``cuda`` and lie in the host's memory.

A dispatch mode sees every operator that PyTorch runs, in backward too. It asks memory.py which
tensors are the device's, runs the operator on the CPU where it is small (where it is large only the
shapes of its results are made), and charges host and stream. As on a GPU, tensors of both kinds
cannot be mixed, what the host reads waits for the stream, and pageable copies wait.
"""
from __future__ import annotations

from typing import Any, Callable, Iterator, List, Optional

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .clock import host
from .costs import Kernel, kernels_of, size
from .device import device
from .memory import memory, storage_of
from .planted import planted

BIG = 1 << 16  # elements: beyond these nothing is computed
BIG_FLOPS = 2e6
HOST_MAY_MIX = {
    "copy_",
    "_to_copy",
    "index",
    "index_put_",
    "_index_put_impl_",
    "set_",
    "where",
    "_pin_memory",
    "is_same_size",
}
CPU = torch.device("cpu")


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def is_cuda(where: Any) -> bool:
    return where is not None and torch.device(where).type == "cuda"


def race(tensors: List[Tensor]) -> None:
    """A collective that still writes a tensor must have been waited for: C++ code does so."""
    for t in tensors if device.in_flight else ():
        flight = device.in_flight.get(getattr(storage_of(t), "_cdata", 0))
        if flight is None or device.current in flight.waited:
            continue
        if not device.engine:
            raise RuntimeError("fake CUDA: race: a tensor is used while a collective writes it")
        device.current.tail = max(device.current.tail, flight.end)
        flight.waited.add(device.current)


def shapes_only(func: Any, op: str, args: Any, kwargs: Any, mutable: bool) -> Any:
    """The results without their values, or NotImplemented where PyTorch cannot say their shapes."""
    if mutable:
        return kwargs.get("out", args[0]) if func._schema.returns else None
    if op.startswith("_foreach"):
        return [torch.empty_like(t) for t in args[0]]
    if op == "convolution_backward":
        like = (args[1], args[2])
        made = [torch.empty_like(t) if args[10][i] else None for i, t in enumerate(like)]
        return (*made, args[2].new_empty(args[2].shape[0]) if args[10][2] else None)

    def to_meta(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="meta"
            )
        if isinstance(value, (tuple, list)):
            return type(value)(to_meta(v) for v in value)
        return torch.device("meta") if isinstance(value, torch.device) else value

    def to_host(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        return type(value)(to_host(v) for v in value) if isinstance(value, (tuple, list)) else value

    try:
        return to_host(func(*to_meta(args), **{k: to_meta(v) for k, v in kwargs.items()}))
    except (NotImplementedError, RuntimeError):
        return NotImplemented


class FakeCuda(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name
        if not name.startswith("aten::"):
            return func(*args, **kwargs)
        op = name[6:]
        tensors = list(tensors_in(args)) + list(tensors_in(list(kwargs.values())))
        mine = [t for t in tensors if memory.holds(t)]
        wanted = self.place(op, kwargs, tensors, mine)
        pinned = kwargs.pop("pin_memory", None)
        if not mine and not wanted:
            out = func(*args, **kwargs)
            if pinned or op == "_pin_memory":
                memory.pin(out)
            return out
        if op in ("_to_copy", "copy_"):
            return self.copy(func, op, args, kwargs, wanted)
        if op not in HOST_MAY_MIX and any(t.dim() > 0 for t in tensors if not memory.holds(t)):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least "
                f"two devices, cuda:{device.index} and cpu! ({op})"
            )
        race(mine)
        host.busy(planted.call_us)
        mutable = func._schema.is_mutable
        before = {storage_of(t)._cdata for t in mine}
        out = self.run(func, op, args, kwargs, tensors, mutable)
        made = list(tensors_in(out))
        for t in made:
            memory.take(t)
        if op == "_local_scalar_dense":
            device.current.synchronize()
            return out
        if mutable and not made:  # lists in place
            made = list(tensors_in(args[0]))
        if mutable or not made or any(storage_of(t)._cdata not in before for t in made):
            read = [t for t in mine if t is not kwargs.get("out")]
            for kernel in kernels_of(op, args, read, made):
                device.launch(kernel.name, kernel.us)
            if op in ("nonzero", "equal", "masked_select", "_unique2"):
                device.current.synchronize()
        return out

    @staticmethod
    def place(op: str, kwargs: Any, tensors: List[Tensor], mine: List[Tensor]) -> bool:
        """Whether results are the device's; the CPU is told of no other device."""
        asked: Optional[Any] = kwargs.get("device")
        if asked is None:
            return bool(mine)
        if is_cuda(asked):
            kwargs["device"] = CPU
            return True
        # C++ code that makes a tensor "like" another knows it as the CPU's.
        if op == "_to_copy":
            return bool(device.engine and mine)
        return bool(mine) or bool(device.engine and not tensors)

    @staticmethod
    def run(
        func: Any, op: str, args: Any, kwargs: Any, tensors: List[Tensor], mutable: bool
    ) -> Any:
        if op == "_amp_foreach_non_finite_check_and_unscale_" and not torch.cuda.scaler_on_cpu:
            for t in args[0]:  # 1.13 has no kernel of it for a CPU
                t.mul_(args[2].to(t.dtype))
            return None
        if op == "_amp_update_scale_" and not torch.cuda.scaler_on_cpu:
            return args[0]
        large = max([t.numel() for t in tensors], default=0) > BIG
        if not tensors and args and isinstance(args[0], (list, tuple, torch.Size)):
            elements = 1
            for n in args[0]:
                elements *= n if isinstance(n, int) else 1
            if elements > BIG:
                kwargs = {k: v for k, v in kwargs.items() if k in ("dtype", "device", "layout")}
                if op.startswith("rand") and op != "randint" or op in ("zeros", "ones", "empty"):
                    return torch.empty(args[0], **kwargs)
        if op in ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"):
            flops = sum(k.flops for k in kernels_of(op, args, tensors, [args[0]]))
            large = large or flops > BIG_FLOPS
        if large and not is_view(func):
            out = shapes_only(func, op, args, kwargs, mutable)
            if out is not NotImplemented:
                return out
        return func(*args, **kwargs)

    @staticmethod
    def copy(func: Any, op: str, args: Any, kwargs: Any, wanted: bool) -> Any:
        """Between devices, or on one: ``copy_(to, source)``, ``_to_copy(source)``."""
        source = args[1] if op == "copy_" else args[0]
        off = memory.holds(source)
        to = memory.holds(args[0]) if op == "copy_" else wanted
        asynchronous = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        race([t for t in args if isinstance(t, Tensor) and memory.holds(t)])
        host.busy(planted.call_us)
        out = None
        if op == "_to_copy" and source.numel() > BIG:
            rest = {k: v for k, v in kwargs.items() if k != "non_blocking"}
            out = shapes_only(func, op, args, rest, False)
        if op == "copy_" and source.numel() > BIG:
            out = args[0]
        if out is None or out is NotImplemented:
            out = func(*args, **kwargs)
        if to:
            memory.take(out)
        if off and to:
            device.launch("copy", Kernel("copy", 0, 1, size(source) + size(out)).us)
            return out
        locked = memory.is_pinned(source if to else out)
        rate = planted.pcie_bytes_per_s if locked else planted.pageable_bytes_per_s
        name = "Memcpy HtoD" if to else "Memcpy DtoH"
        device.launch(name, planted.kernel_us + 1e6 * size(out) / rate)
        if not asynchronous or not locked:
            device.current.synchronize()
        return out


def is_view(func: Any) -> bool:
    returns = func._schema.returns
    alias = [r.alias_info for r in returns if r.alias_info is not None]
    return bool(alias) and not func._schema.is_mutable


# ---- what torch.Tensor says of itself


def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name, None)))


def install() -> None:
    base = torch._C._TensorBase
    plain = base.device.__get__

    def where(self: Tensor) -> Any:
        return device.torch_device() if memory.holds(self) else plain(self)

    torch.Tensor.device = property(where)
    torch.Tensor.is_cuda = property(memory.holds)
    torch.Tensor.is_cpu = property(lambda self: where(self).type == "cpu")
    torch.Tensor.get_device = lambda self: device.index if memory.holds(self) else -1
    torch.Tensor.is_pinned = lambda self, device=None: memory.is_pinned(self)
    torch.Tensor.record_stream = lambda self, stream: None

    def to(original: Any) -> Any:
        def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if args and isinstance(args[0], Tensor):
                kwargs.setdefault("device", args[0].device)
                args = (args[0].dtype, *args[1:])
            copy = kwargs.pop("copy", False)
            at, dtype, non_blocking, form = torch._C._nn._parse_to(*args, **kwargs)
            rest = {} if form is None else {"memory_format": form}
            dtype = dtype or self.dtype
            if at is None or at.type == where(self).type:  # no C++ code may compare devices
                if not memory.holds(self) or dtype != self.dtype or copy or rest:
                    return original(self, dtype, non_blocking, copy, **rest)
                return self
            return torch.ops.aten._to_copy(
                self, dtype=dtype, device=at, non_blocking=non_blocking, **rest
            )

        return run

    patch(torch.Tensor, "to", to)
    torch.Tensor.cuda = lambda self, device=None, non_blocking=False, memory_format=None: self.to(
        "cuda", non_blocking=non_blocking
    )
    torch.Tensor.cpu = lambda self, memory_format=None: self.to("cpu")

    def read(original: Any) -> Any:
        def run(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            if memory.holds(self):
                if original.__name__ == "numpy":
                    raise TypeError(
                        "can't convert cuda:0 device type tensor to numpy. Use "
                        "Tensor.cpu() to copy the tensor to host memory first."
                    )
                device.current.synchronize()
            return original(self, *args, **kwargs)

        return run

    patch(torch.Tensor, "numpy", read)
    patch(torch.Tensor, "tolist", read)

    def new(original: Any) -> Any:
        def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if memory.holds(self):
                kwargs.setdefault("device", "cuda")
            return original(self, *args, **kwargs)

        return run

    for name in ("new_zeros", "new_ones", "new_empty", "new_full"):
        patch(torch.Tensor, name, new)

    def from_data(original: Any) -> Any:
        def run(
            data: Any, *args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any
        ) -> Tensor:
            made = original(data, *args, **kwargs)
            made = made.to("cuda") if is_cuda(device) else made
            return made.requires_grad_() if requires_grad else made

        # torch.jit.script knows functions by their identity, and libraries script while imported.
        torch.jit._builtins._register_builtin(run, f"aten::{original.__name__}")
        return run

    patch(torch, "tensor", from_data)
    patch(torch, "as_tensor", from_data)

    def inside(original: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with device.in_engine():
                out = original(*args, **kwargs)
            device.current.tail = max(
                [device.current.tail] + [w.end for w in device.in_flight.values() if w.by_engine]
            )
            for w in device.in_flight.values():
                if w.by_engine:
                    w.waited.add(device.current)
            return out

        return run

    patch(torch.autograd, "backward", inside)
    patch(torch.autograd, "grad", inside)
    FakeCuda().__enter__()
