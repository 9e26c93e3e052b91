"""Tensors without memory: large ones are made on PyTorch's meta device, which has shapes and no
data, whatever device was asked for.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import ddpsim_op_costs as costs
import torch
from ddpsim_capture import CaptureError, tensors_in
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

SMALL = 65536  # elements of a tensor that is made for real, so that its values can be read
META = torch.device("meta")


class WithoutMemory(TorchDispatchMode):
    """Large tensors are made on the meta device, whatever device was asked for, and what meets them
    moves there."""

    floats_too = True  # small ones are real, too
    small = SMALL

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        given = tensors_of(args, kwargs)
        name = costs.base_name(func)
        if not given:
            if name == "detach":  # 1.13 unwraps wrapped numbers on their way here
                return torch.scalar_tensor(args[0])
            return self.made(func, args, kwargs)
        if any(t.device.type == "meta" for t in given):
            if name in ("_local_scalar_dense", "nonzero", "item", "equal", "is_nonzero"):
                return self.read(name, given[0])
            if "device" in kwargs and kwargs["device"] is not None:
                kwargs = {**kwargs, "device": META}
            first = args[0] if args else None
            if name.endswith("_") and isinstance(first, Tensor) and first.device.type != "meta":
                return first  # small and real: its values are not known any more
            if any(t.device.type != "meta" and t.dim() for t in given):
                args, kwargs = tree_map(on_meta, args), tree_map(on_meta, kwargs)
            return without_kernel(name, func, args, kwargs)
        device = kwargs.get("device")
        if device is not None and torch.device(device).type not in ("cpu", "meta"):
            kwargs = {**kwargs, "device": torch.device("cpu")}
        out = func(*args, **kwargs)
        if name == "detach" and not isinstance(out, Tensor):  # or on their way back
            return torch.scalar_tensor(out, dtype=given[0].dtype)
        large = any(t.numel() > self.small for t in tensors_in(out)) and not name.endswith("_")
        return tree_map(on_meta, out) if large and not func_aliases(func) else out

    def read(self, name: str, t: Tensor) -> Any:
        """The value of a tensor that has none. Raises CaptureError."""
        raise CaptureError(
            f"{name} reads values of a tensor, which has none here: give the model what does not"
            " depend on data, or capture it (ddpsim_capture.py)"
        )

    def made(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        if not any(a.name == "device" for a in func._schema.arguments):
            return func(*args, **kwargs)
        out = func(*args, **{**kwargs, "device": META, "pin_memory": None})
        real = [t.numel() <= self.small and (self.floats_too or not t.is_floating_point())
                for t in tensors_in(out)]  # fmt: skip
        if all(real) and not (kwargs.get("device") and torch.device(kwargs["device"]) == META):
            return func(*args, **{**kwargs, "device": torch.device("cpu"), "pin_memory": None})
        return out


def tensors_of(args: Any, kwargs: Dict[str, Any]) -> List[Tensor]:
    """Of an operator's arguments."""
    out: List[Tensor] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            out.append(value)
        elif isinstance(value, (tuple, list, dict)):
            out += tensors_in(value)
    return out


def func_aliases(func: Any) -> bool:
    return any(r.alias_info is not None for r in func._schema.returns)


def on_meta(value: Any) -> Any:
    """The same without values; numbers that PyTorch wrapped stay."""
    if not isinstance(value, Tensor) or value.device.type == "meta" or value.dim() == 0:
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)


def without_kernel(name: str, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    """What it returns; by its rule where this PyTorch cannot run it without memory."""
    if name not in ("convolution_backward",):
        try:
            return func(*args, **kwargs)
        except NotImplementedError as error:
            why = error
    else:
        why = NotImplementedError()
    made = costs.shapes_without_kernel(name, func, args)
    out = kwargs.get("grad_input", kwargs.get("out"))
    if made is not None and isinstance(out, Tensor):
        return out.resize_(made.shape)
    if made is None:
        raise CaptureError(
            f"operator {name} cannot run without memory in PyTorch {torch.__version__}: leave it"
            " out of the model, use a newer PyTorch, or capture the model (ddpsim_capture.py)"
        ) from why
    return made


def moved_to_meta(model: nn.Module) -> None:
    """Parameters and buffers in place, tied ones once."""
    moved: Dict[int, Tensor] = {}

    def at(t: Tensor) -> Tensor:
        if t.device.type == "meta":
            return t
        if id(t) not in moved:
            data = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=META)
            parameter = isinstance(t, nn.Parameter)
            moved[id(t)] = nn.Parameter(data, t.requires_grad) if parameter else data
        return moved[id(t)]

    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, t in table.items():
                if t is not None:
                    table[name] = at(t)  # type: ignore[assignment]
        if isinstance(module, nn.RNNBase):
            module._flat_weights = [
                getattr(module, n) if hasattr(module, n) else None
                for n in module._flat_weights_names
            ]
