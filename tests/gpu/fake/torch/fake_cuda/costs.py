"""What an operator launches on the device: kernels, with FLOPs and bytes.

A product counts 2 FLOPs a multiplication; everything else counts the bytes that it reads and
writes, each tensor once. The gradient of a convolution is a kernel for each gradient. A list of
tensors (``_foreach_*``) is a kernel for each 30 of them.
"""
from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Sequence

import torch
from torch import Tensor

from .planted import planted

LIST = 30  # tensors that one kernel takes
WRITE_ONLY = {"zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "_foreach_zero_"}
NO_KERNEL = {
    "empty",
    "empty_strided",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "set_",
    "detach",
    "_local_scalar_dense",
    "is_same_size",
    "_unsafe_view",
    "lift_fresh",
    "record_stream",
    "_reshape_alias",
    "is_pinned",
    "view",
}
PRODUCTS = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "addmm": (1, 2),
    "baddbmm": (1, 2),
    "addbmm": (1, 2),
    "mv": (0, 1),
    "dot": (0, 1),
    "addmv": (1, 2),
}


class Kernel(NamedTuple):
    name: str
    flops: float
    rate: float  # FLOP/s
    bytes: float

    @property
    def us(self) -> float:
        return (
            planted.kernel_us
            + 1e6 * self.flops / self.rate
            + 1e6 * self.bytes / planted.memory_bytes_per_s
        )


def size(tensor: Tensor) -> int:
    """Bytes that it has; a broadcast one is as large as its storage."""
    strides = zip(tensor.shape, tensor.stride()) if tensor.layout == torch.strided else ()
    repeated = math.prod(n for n, stride in strides if stride == 0)
    return tensor.numel() * tensor.element_size() // max(1, repeated)


def rate_of(tensor: Tensor, tf32: bool) -> float:
    rates = {torch.bfloat16: planted.bf16, torch.float16: planted.fp16}
    return rates.get(tensor.dtype, planted.tf32 if tf32 else planted.fp32)


def kernels_of(
    op: str, args: Sequence[Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> List[Kernel]:
    """``inputs``, ``outputs``: its tensors; those that are written in place are both."""
    if op in NO_KERNEL:
        return []
    written = sum(size(t) for t in outputs)
    total = written + sum(size(t) for t in inputs)
    kind = f"{op}<{inputs[0].dtype if inputs else outputs[0].dtype if outputs else ''}>"
    if op in PRODUCTS:
        a, b = (args[i] for i in PRODUCTS[op])
        flops = 2.0 * a.numel() * (b.shape[-1] if b.dim() > 1 else 1)
        return [Kernel(kind, flops, rate_of(a, torch.backends.cuda.matmul.allow_tf32), total)]
    if op in ("convolution", "convolution_overrideable", "convolution_backward"):
        return convolution(kind, op, args, inputs, outputs, total)
    if op in WRITE_ONLY or op.endswith("s_like"):  # ones_like, zeros_like
        total = written
    if op == "embedding":
        total = 2 * written + size(args[1])
    count = 1
    if op.startswith("_foreach"):
        count = -(-len(args[0]) // LIST)
    return [Kernel(kind, 0.0, 1.0, total / count)] * count


def convolution(
    kind: str,
    op: str,
    args: Sequence[Any],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    total: float,
) -> List[Kernel]:
    backward = op.endswith("backward")
    image, weight = (args[1], args[2]) if backward else (args[0], args[1])
    result = args[0] if backward else outputs[0]
    flops = 2.0 * result.numel() * (weight.numel() // weight.shape[0])
    rate = planted.conv * rate_of(image, torch.backends.cudnn.allow_tf32)
    if not backward:
        return [Kernel(kind, flops, rate, total)]
    wanted = args[10]
    moved = size(image) + size(weight) + size(result)
    made = [Kernel(f"{kind}[{i}]", flops, rate, moved) for i in (0, 1) if wanted[i]]
    if wanted[2]:
        made.append(Kernel(f"{kind}[2]", 0.0, 1.0, size(result) + 4 * weight.shape[0]))
    return made
