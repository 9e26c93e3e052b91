"""What an operator of PyTorch costs on a GPU: floating point operations, bytes read and written,
kernels; and what ddpsim calls it. Conventions are those of describe_models.py: all floating point
numbers have 4 bytes, a multiply-add is two operations, a view costs nothing.
"""
from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

LONG_ROW = 1024  # elements of a row that log_softmax keeps in registers
SORTED_INDICES = 3072  # more than so many are sorted by the gradient of an embedding
MEMORY_FORMAT_FREE = (
    "as_strided_",
    "resize_",
    "set_",
    "detach",
    "alias",
    "lift_fresh",
    "_unsafe_view",
    "_reshape_alias",
    "lift",
    "transpose_",
    "t_",
    "squeeze_",
    "unsqueeze_",
)
EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_efficientzero")
WRITES = (
    "zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full arange linspace"
    " zero_ fill_ bernoulli_ uniform_ normal_ randn rand randint randn_like rand_like randperm eye"
    " scalar_tensor random_ fill tril_indices triu_indices exponential_ _efficientzerotensor"
).split()
ELEMENTWISE = (
    "add sub rsub mul div neg abs pow exp expm1 log log1p log2 sqrt rsqrt reciprocal square sin cos"
    " erf sign floor ceil round clamp clamp_min clamp_max maximum minimum where masked_fill eq ne"
    " lt le gt ge bitwise_and bitwise_or bitwise_not logical_not logical_and logical_or isnan isinf"
    " remainder fmod floor_divide addcmul addcdiv lerp clone copy _to_copy contiguous cat stack"
    " relu gelu silu sigmoid tanh hardtanh leaky_relu elu softplus hardswish hardsigmoid mish prelu"
    " _prelu_kernel threshold log_sigmoid_forward celu selu native_dropout bernoulli triu tril flip"
    " roll repeat constant_pad_nd reflection_pad2d replication_pad2d pixel_shuffle pixel_unshuffle"
    " index_select gather scatter scatter_add index index_put _index_put_impl index_add"
    " masked_select sum mean var std var_mean amax amin max min argmax argmin any all prod norm"
    " linalg_vector_norm logsumexp cumsum mse_loss smooth_l1_loss l1_loss huber_loss"
    " binary_cross_entropy binary_cross_entropy_with_logits kl_div _softmax native_group_norm topk"
    " sort im2col col2im unfold_backward glu atan2 atan acos asin tan dot outer ger nan_to_num"
    " slice_scatter select_scatter unbind view_as_complex linalg_cross one_hot avg_pool1d"
    " max_pool1d polar complex repeat_interleave renorm embedding_renorm mul_ grid_sampler_2d"
    " _weight_norm_interface histc bincount nonzero logit trace sinh cosh"
).split()
BACKWARD = (
    "threshold_backward gelu_backward silu_backward sigmoid_backward tanh_backward"
    " hardtanh_backward leaky_relu_backward elu_backward softplus_backward hardswish_backward"
    " hardsigmoid_backward mish_backward prelu_backward _prelu_kernel_backward glu_backward"
    " native_dropout_backward _softmax_backward_data native_group_norm_backward"
    " mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward"
    " avg_pool2d_backward _adaptive_avg_pool2d_backward adaptive_max_pool2d_backward"
    " reflection_pad2d_backward replication_pad2d_backward log_sigmoid_backward"
    " grid_sampler_2d_backward _weight_norm_interface_backward"
).split()
KINDS = {
    "relu": "relu",
    "hardtanh": "relu",
    "leaky_relu": "relu",
    "threshold": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "native_dropout": "dropout",
    "_softmax": "softmax",
    "native_layer_norm": "layer_norm",
    "native_batch_norm": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "_native_batch_norm_legit_functional": "batch_norm",
    "max_pool2d_with_indices": "max_pool",
    "avg_pool2d": "avg_pool",
    "_adaptive_avg_pool2d": "avg_pool",
    "upsample_bilinear2d": "interpolate",
    "upsample_nearest2d": "interpolate",
    "upsample_bicubic2d": "interpolate",
    "embedding": "embedding",
}
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "addbmm")
# Of autocast's lists: what computes in halves, and what in fp32.
IN_HALVES = (*PRODUCTS, "convolution", "_convolution", "cudnn_convolution")
IN_SINGLE = (  # _log_softmax stands for cross entropy's, which computes in what it gets
    "_softmax native_layer_norm native_group_norm nll_loss_forward nll_loss2d_forward"
    " pow exp expm1 log log1p log2 rsqrt reciprocal cumsum prod norm mse_loss smooth_l1_loss"
    " l1_loss kl_div softplus sum acos asin cosh sinh tan binary_cross_entropy_with_logits"
    " embedding"
).split()
# What keeps its (first) output for backward, rather than its input.
KEEPS_OUTPUT = (
    "relu sigmoid tanh _softmax _log_softmax exp sqrt rsqrt reciprocal expm1 tan norm hardsigmoid"
    " logsumexp amax amin cumprod linalg_vector_norm elu_ leaky_relu_ celu std var_mean"
).split()


class Cost(NamedTuple):
    """Of one operator as it was called; a sum of them is their sum."""

    flops: int = 0
    bytes: int = 0
    kernels: int = 0

    def plus(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(self, other)))


def base_name(func: Any) -> str:
    """aten.add_.Tensor -> add_"""
    return str(func._schema.name).split("::")[-1]


def elements(t: Tensor) -> int:
    """That are in memory: expanded dimensions are read once."""
    return math.prod(n for n, stride in zip(t.shape, t.stride()) if stride != 0)


def element_size(t: Tensor) -> int:
    return 4 if t.is_floating_point() else t.element_size()


def size_of(t: Tensor) -> int:
    return element_size(t) * elements(t)


def total(tensors: Sequence[Tensor]) -> int:
    """Bytes of different tensors."""
    return sum(size_of(t) for t in {id(t): t for t in tensors}.values())


def product_flops(name: str, args: Sequence[Any]) -> int:
    a, b = (args[1], args[2]) if name in ("addmm", "baddbmm", "addmv", "addbmm") else args[:2]
    return 2 * int(a.numel()) * (int(b.shape[-1]) if b.dim() > 1 else 1)


def convolution_flops(x: Tensor, w: Tensor, out: Sequence[int], transposed: bool) -> int:
    pixels = math.prod(x.shape[2:] if transposed else out[2:])
    return 2 * int(w.numel()) * pixels * int(x.shape[0])


def attention_flops(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> int:
    flops = 2 * int(q.numel()) * int(k.shape[-2])
    flops += 2 * int(q.numel() // q.shape[-1]) * int(k.shape[-2]) * int(v.shape[-1])
    return flops // 2 if causal else flops


def known(name: str) -> bool:
    plain = name[:-1] if name.endswith("_") else name
    return (
        plain in ELEMENTWISE
        or name in WRITES
        or name in EMPTY
        or name in MEMORY_FORMAT_FREE
        or name in BACKWARD
        or name in SPECIAL
        or plain in KINDS
        or name in PRODUCTS
        or "scaled_dot_product" in name
    )


# ---- operators that read or write other than each of their tensors once


def _convolution(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    flops = convolution_flops(args[0], args[1], outs[0].shape, bool(args[6]))
    return Cost(flops, total(ins) + total(outs), 1)


def _convolution_backward(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    grad, x, w, mask = args[0], args[1], args[2], args[10]
    flops = convolution_flops(x, w, grad.shape, bool(args[7]))
    data, weight, bias = (bool(m) for m in mask)
    y, image, filters = size_of(grad), size_of(x), size_of(w)
    moved = (data + weight + bias) * y + (data + weight) * (image + filters)
    moved += 4 * int(w.shape[1] if args[7] else w.shape[0]) if bias else 0
    return Cost(flops * (data + weight), moved, data + weight + bias)


def _batch_norm(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    training = bool(args[5])  # reads its input once more, for the statistics
    channels = int(args[0].shape[1]) if args[0].dim() > 1 else 1
    return Cost(0, (3 if training else 2) * size_of(args[0]) + 4 * 8 * channels, 1)


def _batch_norm_backward(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    channels = int(args[1].shape[1]) if args[1].dim() > 1 else 1
    return Cost(0, 5 * size_of(args[1]) + 4 * 5 * channels, 1)


def _layer_norm_backward(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    # reads the gradient and the input twice: for its own gradient, and for those of its weights
    rows = sum(size_of(t) for t in (args[3], args[4]))
    width = math.prod(args[2])
    weighted = args[5] is not None
    passes = 5 if weighted else 3
    return Cost(
        0,
        passes * size_of(args[1]) + (1 + weighted) * rows + (12 * width if weighted else 0),
        1 + weighted,
    )


def _embedding(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, size_of(args[1]) + 2 * total(outs), 1)


def _embedding_backward(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    indices = size_of(args[1])
    if args[1].numel() > SORTED_INDICES:
        return Cost(0, 6 * indices + 3 * size_of(args[0]) + total(outs), 7)
    return Cost(0, indices + 3 * size_of(args[0]) + total(outs), 2)


def _log_softmax(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, (2 + _again(args[0], args[1])) * size_of(outs[0]), 1)


def _log_softmax_backward(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, (3 + min(1, _again(args[0], args[2]))) * size_of(outs[0]), 1)


def _again(x: Tensor, dim: int) -> int:
    """How often rows that are too long for registers are read once more."""
    if dim % x.dim() != x.dim() - 1:
        return 2
    return 1 if x.shape[dim] > LONG_ROW else 0


def _nll_loss(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, size_of(args[1]), 1)


def _nll_loss_backward(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, size_of(args[2]) + total(outs), 2)  # zeros, and a value a row


def _layer_norm(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    copied = not args[0].is_contiguous()  # by a kernel of its own
    return Cost(0, total(ins) + total(outs) + copied * 2 * size_of(args[0]), 1 + copied)


def _without_input(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, size_of(args[0]) + total(outs), 1)


def _max_pool_backward(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, size_of(args[0]) + size_of(args[-1]) + total(outs), 1)


def _interpolate_backward(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, size_of(args[0]) + 3 * total(outs), 2)  # zeros, then additions


def _into_zeros(ins: List[Tensor], outs: List[Tensor], args: Sequence[Any]) -> Cost:
    return Cost(0, 2 * size_of(args[0]) + total(outs), 2)


SPECIAL = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_batch_norm_with_update": _batch_norm,
    "batch_norm_backward": _batch_norm_backward,
    "cudnn_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_layer_norm": _layer_norm,
    "avg_pool2d_backward": _without_input,
    "_adaptive_avg_pool2d_backward": _without_input,
    "native_layer_norm_backward": _layer_norm_backward,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "_log_softmax": _log_softmax,
    "_log_softmax_backward_data": _log_softmax_backward,
    "nll_loss_forward": _nll_loss,
    "nll_loss2d_forward": _nll_loss,
    "nll_loss_backward": _nll_loss_backward,
    "nll_loss2d_backward": _nll_loss_backward,
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "upsample_bilinear2d_backward": _interpolate_backward,
    "upsample_nearest2d_backward": _interpolate_backward,
    "slice_backward": _into_zeros,
    "select_backward": _into_zeros,
    "diagonal_backward": _into_zeros,
}


def cost_of(
    name: str, ins: List[Tensor], outs: List[Tensor], args: Sequence[Any], alias: bool
) -> Cost:
    """ins, outs: tensors of the call. alias: a view of its input, which computes nothing."""
    if alias or name in EMPTY or name in MEMORY_FORMAT_FREE or not outs:
        return Cost()
    if name in WRITES:
        return Cost(0, total(outs), 1)
    if name in SPECIAL:
        return SPECIAL[name](ins, outs, args)
    moved = total(ins) + total(outs)
    if name == "copy_":
        moved = total(outs) + (size_of(args[1]) if len(args) > 1 else 0)
    flops = 0
    if name in PRODUCTS:
        flops = product_flops(name, args)
        if name in ("addmm", "baddbmm") and args[0].numel() == 0:
            moved -= size_of(args[0])
    elif "scaled_dot_product" in name:
        back = "backward" in name
        q, k, v = args[1:4] if back else args[:3]
        causal = any(a is True for a in args[4:])
        flops = attention_flops(q, k, v, causal) * (5 if back else 2) // 2
    return Cost(flops, moved, 1)


def kind_of(name: str, args: Sequence[Any], alias: bool) -> Tuple[str, Dict[str, int]]:
    """`op` of a layer: kind, and sizes of what was called (rows and count of the whole batch)."""
    plain = name[:-1] if name.endswith("_") else name
    if name in ("mm", "addmm"):
        a, b = args[-2:] if name == "mm" else args[1:3]
        rows, inner = a.shape
        return "linear", {"rows": int(rows), "inputs": int(inner), "outputs": int(b.shape[1])}
    if name in ("bmm", "baddbmm"):
        a, b = args[:2] if name == "bmm" else args[1:3]
        count, rows, inner = a.shape
        return "bmm", {
            "count": int(count),
            "rows": int(rows),
            "inputs": int(inner),
            "outputs": int(b.shape[2]),
        }
    if name == "convolution":
        return "conv", conv_sizes(args)
    if "scaled_dot_product" in name:
        return "attention", {}
    if plain in KINDS:
        return KINDS[plain], {}
    if plain == "add" and len(args) > 1 and isinstance(args[1], Tensor) and args[1].dim() > 0:
        return "add", {}
    if plain == "mean" and args[0].dim() == 4:
        return "avg_pool", {}
    return ("" if alias else "copy"), {}


def conv_sizes(args: Sequence[Any]) -> Dict[str, int]:
    """Of a square convolution in two dimensions; else nothing, and a profile prices its
    operations."""
    x, w, stride, padding, dilation, transposed, groups = (*args[:2], *args[3:7], args[8])
    if x.dim() != 4 or transposed or x.shape[2] != x.shape[3] or w.shape[2] != w.shape[3]:
        return {}
    if len(set(stride)) > 1 or len(set(padding)) > 1 or len(set(dilation)) > 1:
        return {}
    size, k = int(x.shape[2]), int(w.shape[2])
    out = (size + 2 * padding[0] - dilation[0] * (k - 1) - 1) // stride[0] + 1
    sizes = {"channels": int(x.shape[1]), "size": size, "filters": int(w.shape[0]), "kernel": k}
    more = {"groups": int(groups)} if groups > 1 else {}
    if dilation[0] > 1:
        more["dilation"] = int(dilation[0])
    return {**sizes, "out": out, **more}


def class_of(kind: str) -> str:
    return {"conv": "conv", "linear": "gemm", "bmm": "attention", "attention": "attention"}.get(
        kind, "memory"
    )


def shapes_without_kernel(name: str, func: Any, args: Sequence[Any]) -> Any:
    """What an operator returns that this PyTorch cannot run without memory: gradients are as large
    as what they are of. None: not known."""
    if name == "convolution_backward":
        x, w, mask = args[1], args[2], args[10]
        bias = args[0].new_empty(args[3]) if mask[2] and args[3] else None
        if mask[2] and bias is None:
            bias = args[0].new_empty([args[0].shape[1]])
        return (
            torch.empty_like(x) if mask[0] else None,
            torch.empty_like(w) if mask[1] else None,
            bias if mask[2] else None,
        )
    if name == "nll_loss2d_forward":
        scalar = args[0].new_empty([]) if args[3] != 0 else args[0].new_empty(args[1].shape)
        return scalar, args[0].new_empty([])
    if name == "grid_sampler_2d_backward":
        return torch.empty_like(args[1]), torch.empty_like(args[2])
    if name.endswith("_backward"):
        returns = [r for r in func._schema.returns]
        names = [a.name for a in func._schema.arguments]
        if len(returns) == 1 and "self" in names and names.index("self") < len(args):
            own = args[names.index("self")]
            return torch.empty_like(own) if isinstance(own, Tensor) else None
    return None
