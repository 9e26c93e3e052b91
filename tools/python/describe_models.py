#!/usr/bin/env python3
"""Writes the described workloads: models whose layers are computed from their published
definitions, not measured.

    describe_models.py --out workloads/            write all of them
    describe_models.py --out workloads/ --only bert-base
    describe_models.py --out workloads/ --check    fail if a file in workloads/ is not what this
    script would write

A described layer says how many floating point operations and how many bytes it moves; a Profile
turns them into time. What is described is un-fused eager PyTorch in fp32, NCHW. Format:
docs/formats.md, `ddpsim.workload/1`. Standard library only; Python 3.11 or newer.

Conventions, all bytes at 4 bytes an element:
  conv, Linear   forward reads input and weights, writes output. Backward reads grad_out twice
                 (dgrad, wgrad; a third time if there is a bias to sum), input once, writes grad_in;
                 reads weights and writes their gradients. The model's first layer computes no
                 grad_in.
  BatchNorm      training forward reads x twice and writes y; backward reads x and dy twice and
                 writes dx.
  LayerNorm      forward reads x, writes y; backward reads dy and x twice (dx; gamma and beta) and
                 writes dx.
  ReLU           reads and writes in place; backward reads y and dy, writes dx.
  fork           where one tensor feeds several consumers, autograd sums their gradients: read two,
                 write one, per additional consumer.
  dropout        one-byte mask: 9 bytes an element in each direction.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ddpsim_files import write_whole  # noqa: E402
from ddpsim_repeat import folded  # noqa: E402

F32 = 4  # bytes an element
I64 = 8

# Kernels launched by operations that are one call in the model's source. A reader who counts
# otherwise changes a number here.
BATCH_NORM_FORWARD_KERNELS = (
    1  # the increment of num_batches_tracked (one more tiny kernel) is not counted
)
# Of more than 3,072 indices: zero-fill, radix sort of the indices, segment bookkeeping, summation.
EMBEDDING_SORT_BACKWARD_KERNELS = 7
EMBEDDING_SMALL_BACKWARD_KERNELS = 2  # zero-fill, summation


@dataclass(frozen=True)
class Tokens:
    """A count that depends on the sequence length: constant + linear * n + square * n^2."""

    constant: int
    linear: int
    square: int = 0

    def at(self, n: int) -> int:
        return self.constant + n * (self.linear + n * self.square)

    def __add__(self, other: Count) -> Tokens:
        o = other if isinstance(other, Tokens) else Tokens(other, 0)
        return Tokens(self.constant + o.constant, self.linear + o.linear, self.square + o.square)

    def __mul__(self, other: Count) -> Tokens:
        o = other if isinstance(other, Tokens) else Tokens(other, 0)
        if self.square * o.linear or self.linear * o.square or self.square * o.square:
            raise AssertionError("no cost grows faster than the square of the sequence length")
        return Tokens(
            self.constant * o.constant,
            self.constant * o.linear + self.linear * o.constant,
            self.constant * o.square + self.linear * o.linear + self.square * o.constant,
        )

    def __pow__(self, exponent: int) -> Tokens:
        return self * self if exponent == 2 else NotImplemented

    __radd__, __rmul__ = __add__, __mul__


Count = int | Tokens
SEQUENCE = Tokens(0, 1)


def at_length(n: Count, tokens: int) -> int:
    return n.at(tokens) if isinstance(n, Tokens) else n


def coefficients(n: Count) -> int | list[int]:
    if isinstance(n, int):
        return n
    if n.square:
        return [n.constant, n.linear, n.square]
    return [n.constant, n.linear] if n.linear else n.constant


@dataclass(frozen=True)
class Cost:
    """One direction of one layer. Bytes are memory traffic."""

    flops: Count = 0  # per sample; a multiply-add is 2
    sample: Count = 0  # bytes per sample
    fixed: Count = 0  # bytes that do not depend on the batch
    kernels: int = 0

    def json(self, write: Callable[[Count], object]) -> dict[str, object]:
        return {
            "flops_per_sample": write(self.flops),
            "bytes_per_sample": write(self.sample),
            "bytes_fixed": write(self.fixed),
            "kernels": self.kernels,
        }


@dataclass(frozen=True)
class Memory:
    """Bytes per sample, by how the model trains."""

    fp32: Count = 0
    autocast: Count = 0
    pure: Count = 0  # all in halves

    def __add__(self, other: Memory) -> Memory:
        return Memory(
            self.fp32 + other.fp32, self.autocast + other.autocast, self.pure + other.pure
        )

    def json(self, write: Callable[[Count], object]) -> list[object]:
        return [write(self.fp32), write(self.autocast), write(self.pure)]


def alike(count: Count) -> Memory:
    """As many bytes in every precision: masks and indices."""
    return Memory(count, count, count)


@dataclass(eq=False)
class Value:
    """A tensor that a layer makes: elements per sample; half: under autocast; single: in fp32,
    whatever the model trains in."""

    n: Count
    half: bool = False
    single: bool = False
    kept: set[str] = field(default_factory=set)  # modes in which autograd keeps it

    def size(self, mode: str) -> int:
        if self.single:
            return F32
        return 2 if mode == "pure" or (mode == "autocast" and self.half) else F32

    def bytes(self) -> Memory:
        return Memory(*(self.size(mode) * self.n for mode in MODES))


MODES = ("fp32", "autocast", "pure")


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str  # conv, gemm, attention, memory
    tensors: tuple[str, ...]  # in arrival order
    forward: Cost
    backward: Cost
    op: dict[str, object]  # what it computes; beside what that costs
    saves: Memory = Memory()  # what autograd keeps of it until its backward, not counted before
    makes: Memory = Memory()  # its output
    saves_fused: Memory | None = None  # of fused attention in place of all its layers


@dataclass
class Model:
    """A model under construction: methods append layers in forward order and register tensors as
    the modules would."""

    name: str
    model: str
    batch: int
    source: str
    optimizer: dict[str, object]
    sequence: int = 0  # tokens per sample that the file begins with; 0 = none
    positions: int = 0  # rows of the table of learned positions; 0 = none
    keeps_input: bool = False  # softmax and log_softmax do, too: PyTorch before 1.11
    repeats: bool = False  # the file says blocks that are alike once
    tensors: list[Tensor] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    in_gradient: bool = False  # does the next layer's input need a gradient?
    in_attention: bool = False  # are the next layers what a fused attention replaces?
    value: Value | None = None  # what the next layer reads
    forks: list[Value] = field(default_factory=list)  # that other branches read, too
    residual: Value | None = None  # what the next residual addition adds
    pending: Memory = Memory()  # what the next layer saves

    # --- registration

    def parameter(self, name: str, *shape: int) -> str:
        """Where modules are registered in another order than they run in, their parameters are
        named before their layers."""
        if Tensor(name, shape) not in self.tensors:
            self.tensors.append(Tensor(name, shape))
        return name

    def buffer(self, name: str, dtype: str, *shape: int) -> None:
        self.buffers.append(Tensor(name, shape, dtype))

    # --- what autograd keeps. Source: torch/csrc/autograd's derivatives.yaml, autocast's lists

    def reads(self, n: Count) -> Value:
        """The next layer's input, of n elements."""
        if self.value is None or self.value.n != n:
            self.value = Value(n, self.value.half if self.value else False)
        return self.value

    def keeps(self, value: Value, cast: str = "", single: bool = False) -> None:
        """cast: autocast hands the operation a copy where the value is no "half" (products), no
        "float" (norms, softmax, losses); "" = it computes in what it gets. single: the model
        itself casts to fp32."""
        held: list[Count] = []
        for mode in MODES:
            size = value.size(mode)
            wanted = {"half": 2, "float": F32}.get(cast, size) if mode == "autocast" else size
            if single:
                wanted = F32
            if wanted != size:
                held.append(wanted * value.n)
            else:
                held.append(0 if mode in value.kept else size * value.n)
                value.kept.add(mode)
        self.pending += Memory(*held)

    def makes(self, n: Count, half: bool | None = None) -> Value:
        """The next layer's output. half: None = as its input."""
        if half is None:
            half = self.value.half if self.value else False
        self.value = Value(n, half)
        return self.value

    def branch(self) -> None:
        """The next layer reads what was forked last."""
        self.value = self.forks[-1]

    def layer(
        self,
        name: str,
        kind: str,
        forward: Cost,
        backward: Cost,
        tensors: Sequence[str] = (),
        op: str | dict[str, object] = "",
        saves_fused: Memory | None = None,
    ) -> None:
        says: dict[str, object] = {"kind": op} if isinstance(op, str) else dict(op)
        if self.in_attention:
            says["attention"] = True
        self.layers.append(
            Layer(
                name,
                kind,
                tuple(tensors),
                forward,
                backward,
                says if says.get("kind") else {},
                self.pending,
                self.value.bytes() if self.value else Memory(),
                saves_fused,
            )
        )
        self.pending = Memory()

    # --- layers with weights

    def conv(
        self,
        name: str,
        c_in: int,
        c_out: int,
        k: int,
        size_in: int,
        size_out: int,
        bias: bool = False,
        groups: int = 1,
        dilation: int = 1,
    ) -> None:
        """k x k convolution, size_in^2 -> size_out^2."""
        tensors = [self.parameter(f"{name}.weight", c_out, c_in // groups, k, k)]
        weight = c_out * c_in // groups * k * k
        if bias:
            tensors.append(self.parameter(f"{name}.bias", c_out))
        weights = F32 * (weight + (c_out if bias else 0))
        x, y = F32 * c_in * size_in**2, F32 * c_out * size_out**2
        flops = 2 * weight * size_out**2
        op = {
            "kind": "conv",
            "channels": c_in,
            "size": size_in,
            "filters": c_out,
            "kernel": k,
            "out": size_out,
            **({"groups": groups} if groups > 1 else {}),
            **({"dilation": dilation} if dilation > 1 else {}),
        }
        self.keeps(self.reads(c_in * size_in**2), "half")
        self.makes(c_out * size_out**2, True)
        self.matrix(name, "conv", tensors, flops, x, y, weights, F32 * weight, bias, op)

    def linear(
        self,
        name: str,
        tokens: Count,
        n_in: int,
        n_out: int,
        bias: bool = True,
        conv1d: bool = False,
        tied: bool = False,
        joint: str = ".",
    ) -> None:
        """Linear over `tokens` rows a sample. conv1d: GPT-2's Conv1D keeps [in, out]; tied: the
        weight belongs to another module; joint: between the name and "weight"."""
        tensors: list[str] = []
        if not tied:
            shape = (n_in, n_out) if conv1d else (n_out, n_in)
            weight = self.parameter(f"{name}{joint}weight", *shape)
            # addmm's edges: bias first, the weight behind a transpose (Linear) or as the second
            # matrix (Conv1D).
            tensors = [self.parameter(f"{name}{joint}bias", n_out), weight] if bias else [weight]
        weights = F32 * (n_in * n_out + (n_out if bias else 0))
        flops = 2 * tokens * n_in * n_out
        op = {"kind": "linear", "rows": tokens, "inputs": n_in, "outputs": n_out}
        self.keeps(self.reads(tokens * n_in), "half")
        self.makes(tokens * n_out, True)
        self.matrix(
            name,
            "gemm",
            tensors,
            flops,
            F32 * tokens * n_in,
            F32 * tokens * n_out,
            weights,
            F32 * n_in * n_out,
            bias,
            op,
        )

    def matrix(
        self,
        name: str,
        kind: str,
        tensors: Sequence[str],
        flops: Count,
        x: Count,
        y: Count,
        weights: int,
        weight: int,
        bias: bool,
        op: dict[str, object],
    ) -> None:
        dgrad = 1 if self.in_gradient else 0
        self.layer(
            name,
            kind,
            Cost(flops, x + y, weights, 1),
            Cost(
                flops * (1 + dgrad),
                y * (1 + dgrad + int(bias)) + x * (1 + dgrad),
                weight * dgrad + weights,
                1 + dgrad + int(bias),
            ),
            tensors,
            op,
        )
        self.in_gradient = True

    def batch_norm(self, name: str, c: int, size: int) -> None:
        tensors = (self.parameter(f"{name}.weight", c), self.parameter(f"{name}.bias", c))
        self.buffer(f"{name}.running_mean", "float32", c)
        self.buffer(f"{name}.running_var", "float32", c)
        self.buffer(f"{name}.num_batches_tracked", "int64")
        x = F32 * c * size**2
        self.keeps(self.reads(c * size**2))
        self.makes(c * size**2)
        # fixed: forward weight, bias, running statistics read and written, batch statistics saved;
        # backward weight, statistics, two gradients
        self.layer(
            name,
            "memory",
            Cost(0, 3 * x, F32 * 8 * c, BATCH_NORM_FORWARD_KERNELS),
            Cost(0, 5 * x, F32 * 5 * c, 1),
            tensors,
            "batch_norm",
        )

    def layer_norm(self, name: str, tokens: Count, hidden: int) -> None:
        tensors = (self.parameter(f"{name}.weight", hidden), self.parameter(f"{name}.bias", hidden))
        x = F32 * tokens * hidden
        self.keeps(self.reads(tokens * hidden), "float")
        self.pending += alike(2 * F32 * tokens)  # mean and 1 / deviation
        self.makes(tokens * hidden, False)
        self.layer(
            name,
            "memory",
            Cost(0, 2 * x + 2 * F32 * tokens, F32 * 2 * hidden, 1),
            Cost(0, 5 * x + 4 * F32 * tokens, F32 * 3 * hidden, 2),
            tensors,
            "layer_norm",
        )

    def rms_norm(self, name: str, tokens: Count, hidden: int) -> None:
        """weight * (x * rsqrt(mean(x^2) + eps)), composed; n elements in t rows.

        Forward reads + writes: square 2n, mean n + t, + eps 2t, rsqrt 2t, two products 2n + t and
        2n. Backward: the weight's product 6n (its gradient is a product and a sum), x's 6n + 2t,
        rsqrt 6t (three operations), mean n + t, square 7n (three operations), two uses of x summed
        3n: 23n + 9t.
        """
        weight = self.parameter(f"{name}.weight", hidden)
        n = tokens * hidden
        # In fp32, whatever the model trains in: x, and what the weight multiplies as x was.
        x = self.reads(n)
        self.keeps(x, single=True)
        self.pending += x.bytes() + alike(F32 * tokens)
        self.makes(n, False)
        self.layer(
            name,
            "memory",
            Cost(0, F32 * (7 * n + 6 * tokens), F32 * hidden, 6),
            Cost(0, F32 * (23 * n + 9 * tokens), F32 * 2 * hidden, 14),
            (weight,),
            "rms_norm",
        )

    def embedding(
        self,
        name: str,
        rows: int,
        hidden: int,
        indices: Count,
        tied: int = 0,
        shared: bool = False,
    ) -> None:
        """Per-sample indices. tied: so many other gradients of the weight (from the output layer)
        are added here, after the sum over indices; shared: the weight is another module's."""
        tensors = () if shared else (self.parameter(f"{name}.weight", rows, hidden),)
        x, w = F32 * indices * hidden, F32 * rows * hidden
        self.pending += alike(I64 * indices)
        self.makes(indices * hidden, False)
        self.layer(
            name,
            "memory",
            Cost(0, I64 * indices + 2 * x, 0, 1),
            Cost(
                0,
                6 * I64 * indices + 3 * x,
                w * (1 + 3 * tied),
                EMBEDDING_SORT_BACKWARD_KERNELS + tied,
            ),
            tensors,
            "embedding",
        )
        self.in_gradient = True

    def position_embedding(self, name: str, rows: int, hidden: int, indices: Count) -> None:
        """Indices [1, S]: the same for every sample."""
        weight = self.parameter(f"{name}.weight", rows, hidden)
        x = F32 * indices * hidden
        self.layer(
            name,
            "memory",
            Cost(0, 0, I64 * indices + 2 * x, 1),
            Cost(
                0, 0, I64 * indices + 3 * x + F32 * rows * hidden, EMBEDDING_SMALL_BACKWARD_KERNELS
            ),
            (weight,),
            "position_embedding",
        )

    # --- layers without weights; `n` = elements per sample

    def memory(
        self,
        name: str,
        forward: Count,
        backward: Count,
        kernels: tuple[int, int] = (1, 1),
        op: str = "copy",
    ) -> None:
        """Bytes per sample in each direction."""
        self.layer(
            name,
            "memory",
            Cost(0, forward, 0, kernels[0]),
            Cost(0, backward, 0, kernels[1]),
            (),
            op,
        )

    def relu(self, name: str, n: Count) -> None:
        self.keeps(self.makes(n))
        self.memory(name, 2 * F32 * n, 3 * F32 * n, (1, 1), "relu")

    def add(self, name: str, n: Count) -> None:
        """Residual addition: read two, write one; backward hands the same gradient to both
        inputs."""
        self.makes(n, bool(self.value and self.value.half and (self.residual or self.value).half))
        self.memory(name, 3 * F32 * n, 0, (1, 0), "add")

    def fork(self, name: str, n: Count, consumers: int = 2, residual: bool = True) -> None:
        """A tensor with several consumers: free in forward, their gradients are summed in
        backward. residual: the next addition adds it."""
        self.forks.append(self.reads(n))
        if residual:
            self.residual = self.forks[-1]
        self.memory(name, 0, 3 * F32 * n * (consumers - 1), (0, consumers - 1), "fork")

    def dropout(self, name: str, n: Count) -> None:
        self.pending += alike(n)  # a byte of mask each
        self.makes(n)
        self.memory(name, 9 * n, 9 * n, (1, 1), "dropout")

    def copy(self, name: str, n: Count, kernels: tuple[int, int] = (1, 1)) -> None:
        self.makes(n)
        self.memory(name, 2 * F32 * n, 2 * F32 * n, kernels)

    def max_pool(self, name: str, n_in: int, n_out: int) -> None:
        """Saves int64 indices."""
        self.keeps(self.reads(n_in))
        self.pending += alike(I64 * n_out)
        self.makes(n_out)
        n = F32 * n_in + (F32 + I64) * n_out
        self.memory(name, n, n, (1, 1), "max_pool")

    def avg_pool(self, name: str, n_in: int, n_out: int, whole: bool = True) -> None:
        """whole: over the whole image, which is a mean and keeps nothing."""
        if not whole:
            self.keeps(self.reads(n_in))
        self.makes(n_out)
        n = F32 * (n_in + n_out)
        self.memory(name, n, n, (1, 1), "avg_pool")

    def interpolate(self, name: str, n_in: int, n_out: int) -> None:
        """Bilinear; backward zero-fills and then adds into grad_in."""
        self.makes(n_out)
        self.memory(name, F32 * (n_in + n_out), F32 * (3 * n_in + n_out), (1, 2), "interpolate")

    def gelu_erf(self, name: str, n: Count) -> None:
        self.keeps(self.reads(n))
        self.makes(n)
        self.memory(name, 2 * F32 * n, 3 * F32 * n, (1, 1), "gelu")

    def gelu_tanh_composed(self, name: str, n: Count) -> None:
        """Hugging Face's gelu_new, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as eight
        element-wise operations.

        Forward reads + writes: x^3 2, *c 2, x+ 3, *c 2, tanh 2, 1+ 2, 0.5x 2, product 3 = 18.
        Backward: product 6 (two gradients), 0.5x 2, tanh 3, *c 2, *c 2, x^3 7 (three operations),
        three uses of x summed 6 = 28.
        """
        x = self.reads(n)
        self.keeps(x, "float")
        # tanh's output, 1 + tanh, 0.5 x
        self.pending += Memory(3 * F32 * n, (2 * F32 + (2 if x.half else F32)) * n, 6 * n)
        self.makes(n, False)
        self.memory(name, 18 * F32 * n, 28 * F32 * n, (8, 11), "gelu_composed")

    def tanh(self, name: str, n: Count) -> None:
        self.keeps(self.makes(n))
        self.memory(name, 2 * F32 * n, 3 * F32 * n, (1, 1), "tanh")

    def silu(self, name: str, n: Count, inplace: bool = False) -> None:
        """inplace: autograd keeps a copy of the input."""
        self.keeps(self.reads(n))
        self.makes(n)
        self.memory(name, (4 if inplace else 2) * F32 * n, 3 * F32 * n, (1 + inplace, 1), "silu")

    def product(self, name: str, n: Count, other: Value | None = None) -> None:
        """Of two tensors of n elements, what is read and another."""
        self.keeps(self.reads(n))
        self.keeps(other or Value(n, bool(self.value and self.value.half)))
        self.makes(n)
        self.memory(name, 3 * F32 * n, 6 * F32 * n, (1, 2))

    def scale(self, name: str, n: int, tensors: Sequence[str] = (), fixed: int = 0) -> None:
        """A product of n elements with one number a channel, which has a gradient: a product and
        its sum."""
        self.keeps(self.reads(n))
        self.makes(n, False if tensors else None)
        self.layer(
            name,
            "memory",
            Cost(0, 2 * F32 * n, fixed, 1),
            Cost(0, 6 * F32 * n, 2 * fixed, 3),
            tensors,
            "copy",
        )

    def stochastic_depth(self, name: str, n: int) -> None:
        """A random number a sample (drawn, divided) times the sample's n elements."""
        self.makes(n)
        self.memory(name, 2 * F32 * n, 2 * F32 * n, (3, 1))

    def softmax(self, name: str, n: Count) -> None:
        """One pass over the input: rows of at most 1024 elements stay in registers, longer ones in
        shared memory while it holds them (SoftMax.cu of PyTorch 2.5); rows that are longer still,
        which are read again, are not told apart."""
        if self.keeps_input:
            self.keeps(self.reads(n), "float")
        self.keeps(self.makes(n, False))
        self.memory(name, 2 * F32 * n, 3 * F32 * n, (1, 1), "softmax")

    def cross_entropy(
        self, name: str, rows: Count, classes: Count, spatial: bool = False, single: bool = False
    ) -> None:
        """log_softmax and nll_loss; single: the model casts its logits to fp32. Rows above 1024
        elements are read once more for the maximum and the sum, over space twice more."""
        again = 2 if spatial else 1 if isinstance(classes, int) and classes > 1024 else 0
        n = F32 * rows * classes
        labels = I64 * rows
        # log_softmax keeps its output, in what it got (torch.nn.functional.cross_entropy says which
        # type, so that autocast leaves it alone); nll_loss keeps autocast's copy of that in fp32.
        if self.keeps_input:
            self.keeps(self.reads(rows * classes))
        logits = self.value = Value(rows * classes, bool(self.value and self.value.half), single)
        self.pending += logits.bytes() + alike(labels)
        if logits.half and not single:
            self.pending += Memory(0, n, 0)
        # backward: zero-fill and scatter of nll_loss, then read grad (again, if long) and y, write
        # dx
        self.memory(
            name,
            (2 + again) * n + labels,
            (4 + min(again, 1)) * n + labels,
            (2, 3),
            "cross_entropy_single" if single else "cross_entropy",
        )

    def batched_matmul(
        self,
        name: str,
        count: int,
        rows: Count,
        inputs: Count,
        outputs: Count,
        causal: bool = False,
        groups: int = 0,
        beside: Count = 0,
    ) -> None:
        """`count` products c (rows x outputs) = a (rows x inputs) b a sample; backward reads dc
        twice, a, b and writes da, db. groups: of keys and values, where a fused attention takes
        fewer than `count`; beside: elements of a buffer of which what it takes is a view."""
        flops = 2 * count * rows * inputs * outputs
        elements = count * (rows * inputs + inputs * outputs + rows * outputs)
        op: dict[str, object] = {
            "kind": "bmm",
            "count": count,
            "rows": rows,
            "inputs": inputs,
            "outputs": outputs,
        }
        if causal:
            op["causal"] = True
        queries, keys = count * rows * inputs, count * inputs * outputs
        fused = None
        if (
            not self.value
            or self.value.n != queries
            or self.value.bytes() != Value(queries).bytes()
        ):
            # Of scores: queries, keys and values, and a number a row.
            kept = 2 * (groups or count) * inputs * outputs + beside
            fused = Value(queries + kept, True).bytes() + alike(F32 * count * rows)
        self.keeps(self.reads(queries), "half")
        self.keeps(Value(keys, True), "half")
        self.makes(count * rows * outputs, True)
        self.layer(
            name,
            "attention",
            Cost(flops, F32 * elements, 0, 1),
            Cost(2 * flops, F32 * 2 * elements, 0, 2),
            (),
            op,
            fused if self.in_attention else None,
        )

    # --- checks and output

    def arrival(self) -> list[str]:
        return [t for layer in reversed(self.layers) for t in layer.tensors]

    def macs(self, belongs: Callable[[str], bool] = lambda name: True) -> int:
        """Multiply-adds of forward per sample, over the layers whose name `belongs`."""
        flops = [x.forward.flops for x in self.layers if belongs(x.name)]
        return sum(at_length(n, self.sequence) for n in flops) // 2

    def check(self) -> None:
        names = [t.name for t in self.tensors]
        for what, items in (
            ("tensor", names),
            ("buffer", [b.name for b in self.buffers]),
            ("layer", [x.name for x in self.layers]),
        ):
            if len(set(items)) != len(items):
                raise AssertionError(f"{self.name}: a {what} name occurs twice")
        if sorted(self.arrival()) != sorted(names):
            raise AssertionError(
                f"{self.name}: the layers' tensors are not a permutation of the registered ones"
            )

    def json_text(self, tokens: int = 0) -> str:
        """One tensor or layer a line. tokens: numbers at this sequence length, instead of what
        they are at any."""
        self.check()

        def count(n: Count) -> object:
            return at_length(n, tokens) if tokens else coefficients(n)

        def size(n: object) -> object:
            if not isinstance(n, Tokens):
                return n
            if n != SEQUENCE:
                raise AssertionError(f"{self.name}: a size is a number or the sequence length")
            return tokens or "sequence"

        index = {t.name: i for i, t in enumerate(self.tensors)}

        def dump(value: object) -> str:
            return json.dumps(value, ensure_ascii=True)

        def line(row: dict[str, Any]) -> str:
            if "repeat" not in row:
                return dump(row)
            of = ",\n      ".join(dump(one) for one in row["of"])
            return f'{{"repeat": {row["repeat"]}, "from": {row["from"]}, "of": [\n      {of}]}}'

        def block(rows: Sequence[str]) -> str:
            return "[\n    " + ",\n    ".join(rows) + "\n  ]" if rows else "[]"

        def listed(rows: Sequence[dict[str, object]]) -> str:
            return block([line(row) for row in rows])

        def tensor(t: Tensor) -> dict[str, object]:
            return {"name": t.name, "shape": list(t.shape), "dtype": t.dtype}

        tensors = [tensor(t) for t in self.tensors]

        arrival = [index[name] for name in self.arrival()]
        wrapped = [", ".join(map(str, arrival[i : i + 24])) for i in range(0, len(arrival), 24)]
        layers: list[dict[str, object]] = [
            {
                "name": x.name,
                "class": x.kind,
                **({"op": {k: size(v) for k, v in x.op.items()}} if x.op else {}),
                "tensors": [index[t] for t in x.tensors],
                "forward": x.forward.json(count),
                "backward": x.backward.json(count),
                "saves": x.saves.json(count),
                **({"saves_fused": x.saves_fused.json(count)} if x.saves_fused else {}),
                "makes": x.makes.json(count),
            }
            for x in self.layers
        ]
        short = self.repeats and not tokens
        if short:
            tensors = folded(tensors)
            layers = folded(layers, max(len(t.get("of", ())) for t in tensors))
        head: list[tuple[str, str]] = [
            ("schema", dump("ddpsim.workload/1")),
            ("name", dump(self.name)),
            ("model", dump(self.model)),
            ("basis", dump("described")),
            ("batch", dump(self.batch)),
            *([("sequence", dump(self.sequence))] if self.sequence and not tokens else []),
            *([("positions", dump(self.positions))] if self.positions and not tokens else []),
            ("precision", dump("fp32")),
            ("device", dump({"kind": "gpu", "name": "any; times from the profile's roofline"})),
            (
                "source",
                (
                    dump(self.source.replace(f"length {self.sequence},", f"length {tokens},"))
                    if tokens
                    else dump(self.source)
                ),
            ),
            ("optimizer", dump(self.optimizer)),
            ("tensors", listed(tensors)),
            ("buffers", listed([tensor(b) for b in self.buffers])),
            *([] if short else [("arrival", block(wrapped))]),
            ("layers", listed(layers)),
        ]
        return "{\n" + ",\n".join(f'  "{key}": {value}' for key, value in head) + "\n}\n"


SGD: dict[str, object] = {
    "name": "sgd",
    "momentum": True,
    "weight_decay": True,
    "foreach": True,
    "fused": False,
}
SGD_PLAIN: dict[str, object] = {
    "name": "sgd",
    "momentum": False,
    "weight_decay": False,
    "foreach": True,
    "fused": False,
}
ADAMW: dict[str, object] = {
    "name": "adamw",
    "momentum": False,
    "weight_decay": True,
    "foreach": True,
    "fused": False,
}

EAGER = (
    "Written by tools/python/describe_models.py from the model's published definition; nothing was"
    " measured. Un-fused eager PyTorch, fp32, NCHW. "
)
EAGER_CNN = (
    EAGER
    + "Not described: algorithms that do fewer operations than the direct convolution (Winograd,"
    " FFT), layout conversions, the increment of num_batches_tracked, input loading. A"
    " convolution's bias is added in the same kernel. "
)
EAGER_TRANSFORMER = (
    EAGER
    + "Attention is the un-fused ('eager') one; building masks and input loading are not"
    " described. "
)


# --- ResNet, torchvision models/resnet.py


def residual_block(
    m: Model,
    p: str,
    c_in: int,
    width: int,
    size_in: int,
    size_out: int,
    bottleneck: bool,
    downsample: bool,
    consumers: int,
    groups: int = 1,
    group_width: int = 64,
    dilation: int = 1,
) -> int:
    """Appends one block and returns its output channels. The 3x3 convolution carries the stride
    and the dilation, and in a bottleneck it is the second, in `groups` of `group_width` channels
    (in stage 1)."""
    c_out = 4 * width if bottleneck else width
    inner = width * group_width * groups // 64
    m.fork(f"{p}.fork", c_in * size_in**2, consumers)
    if bottleneck:
        plan = [
            (c_in, inner, 1, size_in, size_in, 1),
            (inner, inner, 3, size_in, size_out, groups),
            (inner, c_out, 1, size_out, size_out, 1),
        ]
    else:
        plan = [(c_in, width, 3, size_in, size_out, 1), (width, width, 3, size_out, size_out, 1)]
    for i, (a, b, k, before, after, split) in enumerate(plan, 1):
        spread = dilation if k == 3 else 1
        m.conv(f"{p}.conv{i}", a, b, k, before, after, groups=split, dilation=spread)
        m.batch_norm(f"{p}.bn{i}", b, after)
        if i < len(plan):
            m.relu(f"{p}.relu.{i}", b * after**2)
    if downsample:
        m.branch()
        m.conv(f"{p}.downsample.0", c_in, c_out, 1, size_in, size_out)
        m.batch_norm(f"{p}.downsample.1", c_out, size_out)
    m.add(f"{p}.add", c_out * size_out**2)
    m.relu(f"{p}.relu.{len(plan)}", c_out * size_out**2)
    return c_out


def resnet_features(
    m: Model,
    p: str,
    blocks: Sequence[int],
    bottleneck: bool,
    size: int,
    dilated: bool = False,
    aux: bool = False,
    groups: int = 1,
    group_width: int = 64,
) -> tuple[int, int]:
    """Everything before the average pool; returns channels and size. dilated: the strides of layer3
    and layer4 become dilations. aux: the output of layer3 has one more consumer."""
    half = (size + 1) // 2
    m.conv(f"{p}conv1", 3, 64, 7, size, half)
    m.batch_norm(f"{p}bn1", 64, half)
    m.relu(f"{p}relu", 64 * half**2)
    size = (half + 1) // 2
    m.max_pool(f"{p}maxpool", 64 * half**2, 64 * size**2)
    channels = 64
    for stage, n in enumerate(blocks, 1):
        width = 32 << stage
        stride = 1 if stage == 1 or (dilated and stage > 2) else 2
        for i in range(n):
            first = i == 0
            after = (size + stride - 1) // stride if first else size
            downsample = first and (stride != 1 or channels != (4 * width if bottleneck else width))
            consumers = 3 if aux and stage == 4 and first else 2
            # The first block of a stage has the dilation of the stage before.
            spread = 1 << max(0, stage - (3 if first else 2)) if dilated else 1
            channels = residual_block(
                m,
                f"{p}layer{stage}.{i}",
                channels,
                width,
                size,
                after,
                bottleneck,
                downsample,
                consumers,
                groups,
                group_width,
                spread,
            )
            size = after
    return channels, size


def resnet(depth: int, groups: int = 1, group_width: int = 64) -> Model:
    blocks, bottleneck = {
        18: ([2, 2, 2, 2], False),
        34: ([3, 4, 6, 3], False),
        50: ([3, 4, 6, 3], True),
        101: ([3, 4, 23, 3], True),
        152: ([3, 8, 36, 3], True),
    }[depth]
    name = f"resnext{depth}-{groups}x{group_width}d" if groups > 1 else f"resnet{depth}"
    m = Model(
        name,
        f"torchvision.models.{name.replace('-', '_')}",
        32,
        EAGER_CNN
        + "Input 3x224x224, 1000 classes; the 3x3 convolution of a bottleneck carries the stride"
        + (f" and has {groups} groups." if groups > 1 else " (v1.5)."),
        SGD,
    )
    channels, size = resnet_features(
        m, "", blocks, bottleneck, 224, groups=groups, group_width=group_width
    )
    m.avg_pool("avgpool", channels * size**2, channels)
    m.linear("fc", 1, channels, 1000)
    m.cross_entropy("loss", 1, 1000)
    return m


# --- VGG-16, torchvision models/vgg.py


def vgg16() -> Model:
    m = Model(
        "vgg16",
        "torchvision.models.vgg16",
        32,
        EAGER_CNN + "Input 3x224x224, 1000 classes, no batch normalisation.",
        SGD,
    )
    channels, size, i = 3, 224, 0
    for item in [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0]:
        if item:
            m.conv(f"features.{i}", channels, item, 3, size, size, bias=True)
            m.relu(f"features.{i + 1}", item * size**2)
            channels, i = item, i + 2
        else:
            m.max_pool(f"features.{i}", channels * size**2, channels * (size // 2) ** 2)
            size, i = size // 2, i + 1
    m.avg_pool("avgpool", channels * size**2, channels * 49, whole=False)
    features = channels * 49
    for i, (n_in, n_out) in enumerate([(features, 4096), (4096, 4096)]):
        m.linear(f"classifier.{3 * i}", 1, n_in, n_out)
        m.relu(f"classifier.{3 * i + 1}", n_out)
        m.dropout(f"classifier.{3 * i + 2}", n_out)
    m.linear("classifier.6", 1, 4096, 1000)
    m.cross_entropy("loss", 1, 1000)
    return m


# --- DeepLabV3-ResNet101, torchvision models/segmentation/deeplabv3.py


def deeplabv3_resnet101(classes: int = 21, size_image: int = 520, aux: bool = True) -> Model:
    m = Model(
        "deeplabv3-resnet101",
        f"torchvision.models.segmentation.deeplabv3_resnet101(aux_loss={aux})",
        4,
        EAGER_CNN
        + f"Input 3x{size_image}x{size_image}, {classes} classes, output stride 8 (layer3 and"
        " layer4 dilated), "
        + (
            "auxiliary classifier on layer3, loss = cross-entropy(out) + 0.5 cross-entropy(aux)."
            if aux
            else "loss = cross-entropy(out)."
        ),
        SGD,
    )
    channels, size = resnet_features(
        m, "backbone.", [3, 4, 23, 3], True, size_image, dilated=True, aux=aux
    )

    def conv_bn_relu(
        name: str, conv: str, bn: str, relu: str, c_in: int, k: int, at: int, dilation: int = 1
    ) -> None:
        m.conv(f"{name}.{conv}", c_in, 256, k, at, at, dilation=dilation)
        m.batch_norm(f"{name}.{bn}", 256, at)
        m.relu(f"{name}.{relu}", 256 * at**2)

    aspp = "classifier.0"
    m.fork(f"{aspp}.fork", channels * size**2, 5)
    for i, k in enumerate([1, 3, 3, 3]):
        m.branch()
        rate = 12 * i if i else 1
        conv_bn_relu(f"{aspp}.convs.{i}", "0", "1", "2", channels, k, size, rate)
    m.branch()
    m.avg_pool(f"{aspp}.convs.4.0", channels * size**2, channels)
    conv_bn_relu(f"{aspp}.convs.4", "1", "2", "3", channels, 1, 1)
    m.interpolate(f"{aspp}.convs.4.interpolate", 256, 256 * size**2)
    m.memory(
        f"{aspp}.cat", 2 * F32 * 5 * 256 * size**2, 0, (1, 0)
    )  # backward: views of the gradient
    conv_bn_relu(f"{aspp}.project", "0", "1", "2", 5 * 256, 1, size)
    m.dropout(f"{aspp}.project.3", 256 * size**2)
    conv_bn_relu("classifier", "1", "2", "3", 256, 3, size)
    m.conv("classifier.4", 256, classes, 1, size, size, bias=True)
    m.interpolate("out.interpolate", classes * size**2, classes * size_image**2)
    if not aux:
        m.cross_entropy("loss.out", size_image**2, classes, spatial=True)
        return m
    conv_bn_relu("aux_classifier", "0", "1", "2", 1024, 3, size)
    m.dropout("aux_classifier.3", 256 * size**2)
    m.conv("aux_classifier.4", 256, classes, 1, size, size, bias=True)
    m.interpolate("aux.interpolate", classes * size**2, classes * size_image**2)
    m.cross_entropy("loss.out", size_image**2, classes, spatial=True)
    m.cross_entropy("loss.aux", size_image**2, classes, spatial=True)
    return m


# --- BERT, Hugging Face transformers models/bert/modeling_bert.py, BertForPreTraining and
# BertForQuestionAnswering


def bert(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    sequence: int,
    batch: int,
    squad: bool = False,
    classes: int = 0,
    vocabulary: int = 30522,
    keeps_input: bool = False,
) -> Model:
    """classes: BertForSequenceClassification's."""
    inner, tokens = 4 * hidden, SEQUENCE
    pretraining = (
        "; logits at every position. The decoder's weight is tied to the word embeddings: its"
        " gradient is complete only when backward ends."
    )
    arrival = (
        " Arrival: cls.predictions.bias is placed after the transform, in reverse order of"
        " registration, as in the reference list; its cost is in cls.predictions.decoder."
    )
    kind = "QuestionAnswering" if squad else "SequenceClassification" if classes else "PreTraining"
    m = Model(
        name,
        f"transformers.BertFor{kind}",
        batch,
        EAGER_TRANSFORMER
        + f"Sequence length {sequence}, {layers} layers, hidden {hidden}, {heads} heads"
        + (", no pooler. Fine-tuning for SQuAD: begin and end of an answer." if squad else "")
        + ("" if squad else pretraining)
        + " Buffers: position_ids and token_type_ids, registered"
        " by the Hugging Face releases since 2021 (not saved in checkpoints in the newer ones,"
        " but still in named_buffers(), which is what DDP broadcasts)."
        + ("" if squad else arrival),
        ADAMW,
        sequence,
        512,
        keeps_input,
    )
    n, n_inner, scores = tokens * hidden, tokens * inner, heads * tokens**2
    e = "bert.embeddings"
    m.buffer(f"{e}.position_ids", "int64", 1, 512)
    m.buffer(f"{e}.token_type_ids", "int64", 1, 512)
    alone = squad or classes > 0
    m.embedding(f"{e}.word_embeddings", vocabulary, hidden, tokens, tied=0 if alone else 1)
    if squad:  # positions are looked up last, and their gradient arrives first
        m.parameter(f"{e}.position_embeddings.weight", 512, hidden)
        m.embedding(f"{e}.token_type_embeddings", 2, hidden, tokens)
    m.position_embedding(f"{e}.position_embeddings", 512, hidden, tokens)
    if not squad:
        m.embedding(f"{e}.token_type_embeddings", 2, hidden, tokens)
    # word + type, + position (broadcast over the batch; backward sums over it)
    m.layer(
        f"{e}.add",
        "memory",
        Cost(0, 5 * F32 * n, F32 * n, 2),
        Cost(0, F32 * n, F32 * n, 1),
        (),
        "add",
    )
    m.layer_norm(f"{e}.LayerNorm", tokens, hidden)
    m.dropout(f"{e}.dropout", n)
    for i in range(layers):
        p = f"bert.encoder.layer.{i}"
        a = f"{p}.attention.self"
        m.fork(f"{p}.attention.fork", n, 4)
        for which in ("query", "key", "value"):
            m.branch()
            m.linear(f"{a}.{which}", tokens, hidden, hidden)
        m.in_attention = True
        m.copy(f"{a}.split_heads", 3 * n, (3, 3))
        m.batched_matmul(f"{a}.scores", heads, tokens, hidden // heads, tokens)
        m.memory(f"{a}.scale", 2 * F32 * scores, 2 * F32 * scores)
        m.memory(f"{a}.mask", 2 * F32 * scores, 0, (1, 0))  # an addition
        m.softmax(f"{a}.softmax", scores)
        m.dropout(f"{a}.dropout", scores)
        m.batched_matmul(f"{a}.context", heads, tokens, tokens, hidden // heads)
        m.copy(f"{a}.merge_heads", n)
        m.in_attention = False
        m.linear(f"{p}.attention.output.dense", tokens, hidden, hidden)
        m.dropout(f"{p}.attention.output.dropout", n)
        m.add(f"{p}.attention.output.add", n)
        m.layer_norm(f"{p}.attention.output.LayerNorm", tokens, hidden)
        m.fork(f"{p}.fork", n)
        m.linear(f"{p}.intermediate.dense", tokens, hidden, inner)
        m.gelu_erf(f"{p}.intermediate.gelu", n_inner)
        m.linear(f"{p}.output.dense", tokens, inner, hidden)
        m.dropout(f"{p}.output.dropout", n)
        m.add(f"{p}.output.add", n)
        m.layer_norm(f"{p}.output.LayerNorm", tokens, hidden)
    if squad:
        m.linear("qa_outputs", tokens, hidden, 2)
        m.copy("qa_outputs.split", 2 * tokens, (2, 1))  # backward: one concatenation
        # A class a position: one row a sample for the begin, one for the end; their mean.
        m.cross_entropy("loss.start", 1, tokens)
        m.cross_entropy("loss.end", 1, tokens)
        return m
    m.fork(
        "bert.encoder.output.fork", n
    )  # the pooler's gradient is zero but for the first token, and as large as the rest
    m.linear("bert.pooler.dense", 1, hidden, hidden)
    m.tanh("bert.pooler.activation", hidden)
    if classes:
        m.dropout("dropout", hidden)
        m.linear("classifier", 1, hidden, classes)
        m.cross_entropy("loss", 1, classes)
        return m
    c = "cls.predictions"
    m.layer(f"{c}.bias", "memory", Cost(), Cost(), (m.parameter(f"{c}.bias", vocabulary),))
    m.linear(f"{c}.transform.dense", tokens, hidden, hidden)
    m.gelu_erf(f"{c}.transform.gelu", n)
    m.layer_norm(f"{c}.transform.LayerNorm", tokens, hidden)
    m.linear(f"{c}.decoder", tokens, hidden, vocabulary, tied=True)
    m.linear("cls.seq_relationship", 1, hidden, 2)
    m.cross_entropy("loss.masked_lm", tokens, vocabulary)
    m.cross_entropy("loss.next_sentence", 1, 2)
    return m


# --- GPT-2, Hugging Face transformers models/gpt2/modeling_gpt2.py, GPT2LMHeadModel


def gpt2(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    sequence: int,
    batch: int,
    vocabulary: int = 50257,
    inner: int = 0,
    bias: bool = True,
    composed: bool = True,
    single: bool = True,
    dropout: bool = True,
    cached: bool = False,
) -> Model:
    """composed: GELU is gelu_new's operations, not one; single: logits are cast to fp32; cached:
    keys and values go through a cache (use_cache, which the library leaves on in training):
    DynamicCache appends them to an empty tensor, which copies them."""
    tokens, inner = SEQUENCE, inner or 4 * hidden
    cache = (
        " Keys and values are copied to a cache (use_cache is on unless it is turned off), whose"
        " copies a fused attention keeps beside c_attn's output."
        if cached
        else ""
    )
    m = Model(
        name,
        "transformers.GPT2LMHeadModel",
        batch,
        EAGER_TRANSFORMER
        + f"Sequence length {sequence}, {layers} layers, hidden {hidden}, {heads} heads, logits at"
        " every position; gelu_new is the composed tanh form. lm_head is tied to wte: its"
        " gradient is complete only when backward ends. Buffers: none. Releases that register"
        f" the causal masks (attn.bias, bool [1,1,{sequence},{sequence}] per layer,"
        f" {layers * sequence**2:,} bytes in all) make DDP broadcast them before every forward"
        " unless broadcast_buffers is false: add them to `buffers` to see it." + cache,
        ADAMW,
        sequence,
        sequence,
    )

    def drop(name: str, count: Count) -> None:
        if dropout:
            m.dropout(name, count)

    n, n_inner, scores = tokens * hidden, tokens * inner, heads * tokens**2
    t = "transformer"
    m.embedding(f"{t}.wte", vocabulary, hidden, tokens, tied=1)
    m.position_embedding(f"{t}.wpe", sequence, hidden, tokens)
    m.layer(
        f"{t}.add",
        "memory",
        Cost(0, 2 * F32 * n, F32 * n, 1),
        Cost(0, F32 * n, F32 * n, 1),
        (),
        "add",
    )
    drop(f"{t}.drop", n)
    for i in range(layers):
        p = f"{t}.h.{i}"
        m.fork(f"{p}.attn.fork", n)
        m.layer_norm(f"{p}.ln_1", tokens, hidden)
        a = f"{p}.attn"
        m.linear(f"{a}.c_attn", tokens, hidden, 3 * hidden, bias, conv1d=True)
        uncached = 1 if cached else 3
        if cached:
            m.memory(f"{a}.cache", 4 * F32 * n, 0, (2, 0))  # backward: views
        m.in_attention = True
        # Forward copies what no cache has copied; backward is one concatenation.
        m.makes(3 * n)
        m.memory(f"{a}.split_heads", 2 * F32 * uncached * n, 6 * F32 * n, (uncached, 1))
        m.batched_matmul(
            f"{a}.scores",
            heads,
            tokens,
            hidden // heads,
            tokens,
            causal=True,
            beside=2 * n if cached else 0,
        )
        m.memory(f"{a}.scale", 2 * F32 * scores, 2 * F32 * scores)
        m.memory(f"{a}.mask", 2 * F32 * scores, 2 * F32 * scores)  # where(mask, scores, minimum)
        m.softmax(f"{a}.softmax", scores)
        drop(f"{a}.attn_dropout", scores)
        m.batched_matmul(f"{a}.context", heads, tokens, tokens, hidden // heads)
        m.copy(f"{a}.merge_heads", n)
        m.in_attention = False
        m.linear(f"{a}.c_proj", tokens, hidden, hidden, bias, conv1d=True)
        drop(f"{a}.resid_dropout", n)
        m.add(f"{p}.attn.add", n)
        m.fork(f"{p}.mlp.fork", n)
        m.layer_norm(f"{p}.ln_2", tokens, hidden)
        m.linear(f"{p}.mlp.c_fc", tokens, hidden, inner, bias, conv1d=True)
        (m.gelu_tanh_composed if composed else m.gelu_erf)(f"{p}.mlp.act", n_inner)
        m.linear(f"{p}.mlp.c_proj", tokens, inner, hidden, bias, conv1d=True)
        drop(f"{p}.mlp.dropout", n)
        m.add(f"{p}.mlp.add", n)
    m.layer_norm(f"{t}.ln_f", tokens, hidden)
    m.linear("lm_head", tokens, hidden, vocabulary, bias=False, tied=True)
    m.cross_entropy("loss", tokens, vocabulary, single=single)
    return m


# --- Llama, Hugging Face transformers models/llama/modeling_llama.py, LlamaForCausalLM


def llama(
    name: str,
    layers: int,
    hidden: int,
    inner: int,
    sequence: int,
    batch: int,
    tied: bool,
    vocabulary: int = 128256,
    heads: int = 32,
    groups: int = 8,
    single: bool = True,
    repeats: bool = False,
    joint: bool = False,
) -> Model:
    """groups: heads of keys and values; single: logits are cast to fp32; repeats: a fused
    attention, too, takes as many keys and values as queries; joint: one product makes queries,
    keys and values, and what attention takes of the values is a view of it."""
    tokens = SEQUENCE
    dim = hidden // heads
    kv, shared = groups * dim, 0 if repeats else groups
    m = Model(
        name,
        "transformers.LlamaForCausalLM",
        batch,
        EAGER_TRANSFORMER
        + f"Sequence length {sequence}, {layers} layers, hidden {hidden}, {heads} heads, {groups}"
        " of keys and values, repeated before the products; logits at every position; RMSNorm and"
        " rotary embedding are composed of element-wise operations, cosines and sines are computed"
        " once a step and not described."
        + (
            " lm_head is tied to embed_tokens: its gradient is complete only when backward ends."
            if tied
            else ""
        )
        + " Buffers: none but rotary_emb.inv_freq.",
        ADAMW,
        sequence,
    )
    n, n_kv, n_inner, scores = tokens * hidden, tokens * kv, tokens * inner, heads * tokens**2
    products = [("q_proj", hidden), ("k_proj", kv), ("v_proj", kv)]
    if joint:
        products = [("qkv_proj", hidden + 2 * kv)]
    m.buffer("model.rotary_emb.inv_freq", "float32", dim // 2)
    m.embedding("model.embed_tokens", vocabulary, hidden, tokens, tied=int(tied))
    for i in range(layers):
        p = f"model.layers.{i}"
        a = f"{p}.self_attn"
        for which, n_out, n_in in [
            *(("self_attn." + which, n_out, hidden) for which, n_out in products),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ]:
            m.parameter(f"{p}.{which}.weight", n_out, n_in)
        m.fork(f"{a}.fork", n)
        m.rms_norm(f"{p}.input_layernorm", tokens, hidden)
        m.fork(f"{a}.qkv.fork", n, 3, residual=False)
        for which, n_out in products:
            m.branch()
            m.linear(f"{a}.{which}", tokens, hidden, n_out, bias=False)
        for which, elements in (("q", n), ("k", n_kv)):
            # x cos + rotate_half(x) sin. Forward: two products 4, negation of a half 1,
            # concatenation 2, sum 3. Backward: two products 4, negation 1, two halves into zeros 4,
            # three uses of x summed 6.
            m.memory(f"{a}.rotary.{which}", 10 * F32 * elements, 15 * F32 * elements, (5, 9))
        for which in ("k", "v"):  # backward: a sum over the repetitions
            m.memory(f"{a}.repeat.{which}", F32 * (n_kv + n), F32 * (n_kv + n))
        m.in_attention = True
        m.copy(f"{a}.split_heads", n)
        m.batched_matmul(
            f"{a}.scores",
            heads,
            tokens,
            dim,
            tokens,
            causal=True,
            groups=shared,
            beside=n + n_kv if joint else 0,
        )
        m.memory(f"{a}.scale", 2 * F32 * scores, 2 * F32 * scores)
        m.memory(f"{a}.mask", 2 * F32 * scores, 0, (1, 0))  # an addition
        m.softmax(f"{a}.softmax", scores)
        m.batched_matmul(f"{a}.context", heads, tokens, tokens, dim)
        m.copy(f"{a}.merge_heads", n)
        m.in_attention = False
        m.linear(f"{a}.o_proj", tokens, hidden, hidden, bias=False)
        m.add(f"{a}.add", n)
        m.fork(f"{p}.mlp.fork", n)
        m.rms_norm(f"{p}.post_attention_layernorm", tokens, hidden)
        m.fork(f"{p}.mlp.gate_up.fork", n, residual=False)
        m.linear(f"{p}.mlp.gate_proj", tokens, hidden, inner, bias=False)
        m.silu(f"{p}.mlp.act_fn", n_inner)
        gate = m.value
        m.branch()
        m.linear(f"{p}.mlp.up_proj", tokens, hidden, inner, bias=False)
        m.product(f"{p}.mlp.product", n_inner, gate)
        m.linear(f"{p}.mlp.down_proj", tokens, inner, hidden, bias=False)
        m.add(f"{p}.mlp.add", n)
    m.rms_norm("model.norm", tokens, hidden)
    m.linear("lm_head", tokens, hidden, vocabulary, bias=False, tied=tied)
    m.cross_entropy("loss", tokens, vocabulary, single=single)
    return m


# --- T5, Hugging Face transformers models/t5/modeling_t5.py, T5ForConditionalGeneration


def t5(name: str, layers: int, hidden: int, heads: int) -> Model:
    vocabulary, inner, buckets, sequence, target = 32128, 4 * hidden, 32, 512, 128
    dim = hidden // heads
    m = Model(
        name,
        "transformers.T5ForConditionalGeneration",
        32,
        EAGER_TRANSFORMER
        + f"Sequence length {sequence}, of the encoder's input; {target} tokens of target,"
        f" whatever the input's length. {layers} layers each, hidden {hidden}, {heads} heads, ReLU,"
        " logits at every position of the target. shared is the table of both embeddings and of"
        " lm_head: its"
        " gradient is complete only when backward ends. Positions are relative: a bias of the"
        " scores that the first layer of each stack computes for all of them. Buffers: none.",
        ADAMW,
        sequence,
    )

    encoded: list[Value | None] = []  # the encoder's output

    def attention(
        p: str, which: str, at: Count, keys: Count, bias: bool, bidirectional: bool
    ) -> None:
        """bias: with the relative positions' of block 0, of which `p` has the table if its first.
        `at` queries, `keys` keys."""
        a = f"{p}.{which}"
        cross, first = which == "EncDecAttention", bias
        n, scores = at * hidden, heads * (at * keys)
        for one in "qkvo":
            m.parameter(f"{a}.{one}.weight", hidden, hidden)
        if first:
            m.parameter(f"{a}.relative_attention_bias.weight", buckets, heads)
        m.fork(f"{p}.fork", n)
        m.rms_norm(f"{p}.layer_norm", at, hidden)
        if not cross:
            m.fork(f"{a}.fork", n, 3, residual=False)
        normed = m.value
        for one, rows in (("q", at), ("k", keys), ("v", keys)):
            m.value = encoded[0] if cross and one != "q" else normed
            m.linear(f"{a}.{one}", rows, hidden, hidden, bias=False)
        m.copy(f"{a}.split_heads", n + 2 * (keys * hidden), (3, 3))
        m.batched_matmul(f"{a}.scores", heads, at, dim, keys)
        if first:
            pairs = at * keys
            # About 15 operations on integers find the bucket of each pair.
            m.layer(
                f"{a}.relative_attention_bias.buckets",
                "memory",
                Cost(0, 0, 15 * 2 * I64 * pairs, 15),
                Cost(),
                (),
                "copy",
            )
            m.layer(
                f"{a}.relative_attention_bias",
                "memory",
                Cost(0, F32 * scores, I64 * pairs + 3 * F32 * scores, 2),
                Cost(
                    0,
                    F32 * scores,
                    6 * I64 * pairs + 4 * F32 * scores,
                    EMBEDDING_SORT_BACKWARD_KERNELS + 1,
                ),
                (f"{a}.relative_attention_bias.weight",),
                "position_embedding",
            )
        # The bias is one tensor for all layers of a stack; between the stacks it is constant.
        again = not first and not cross
        m.memory(f"{a}.position_bias", 3 * F32 * scores, 3 * F32 * scores * again, (1, int(again)))
        m.softmax(f"{a}.softmax", scores)
        m.dropout(f"{a}.dropout", scores)
        m.batched_matmul(f"{a}.context", heads, at, keys, dim)
        m.copy(f"{a}.merge_heads", n)
        m.linear(f"{a}.o", at, hidden, hidden, bias=False)
        m.dropout(f"{p}.dropout", n)
        m.add(f"{p}.add", n)

    def feed_forward(p: str, at: Count) -> None:
        m.parameter(f"{p}.DenseReluDense.wi.weight", inner, hidden)
        m.parameter(f"{p}.DenseReluDense.wo.weight", hidden, inner)
        m.fork(f"{p}.fork", at * hidden)
        m.rms_norm(f"{p}.layer_norm", at, hidden)
        m.linear(f"{p}.DenseReluDense.wi", at, hidden, inner, bias=False)
        m.relu(f"{p}.DenseReluDense.act", at * inner)
        m.dropout(f"{p}.DenseReluDense.dropout", at * inner)
        m.linear(f"{p}.DenseReluDense.wo", at, inner, hidden, bias=False)
        m.dropout(f"{p}.dropout", at * hidden)
        m.add(f"{p}.add", at * hidden)

    def stack(s: str, at: Count) -> None:
        m.dropout(f"{s}.dropout", at * hidden)
        for i in range(layers):
            p = f"{s}.block.{i}.layer"
            attention(f"{p}.0", "SelfAttention", at, at, i == 0, s == "encoder")
            if s == "decoder":
                attention(f"{p}.1", "EncDecAttention", at, SEQUENCE, False, True)
            feed_forward(f"{p}.{2 if s == 'decoder' else 1}", at)
        m.rms_norm(f"{s}.final_layer_norm", at, hidden)
        m.dropout(f"{s}.dropout.output", at * hidden)

    # The gradients of decoder.embed_tokens and of lm_head are added in the encoder's.
    m.embedding("shared", vocabulary, hidden, SEQUENCE, tied=2)
    stack("encoder", SEQUENCE)
    m.fork("encoder.output.fork", SEQUENCE * hidden, 2 * layers)
    encoded.append(m.value)
    m.embedding("decoder.embed_tokens", vocabulary, hidden, target, shared=True)
    stack("decoder", target)
    m.copy("lm_head.scale", target * hidden)
    m.linear("lm_head", target, hidden, vocabulary, bias=False, tied=True)
    m.cross_entropy("loss", target, vocabulary)
    return m


# --- ViT, torchvision models/vision_transformer.py


def vit(name: str, layers: int, hidden: int, heads: int, patch: int = 16) -> Model:
    size = 224 // patch
    tokens, inner, dim = size**2 + 1, 4 * hidden, hidden // heads
    m = Model(
        name,
        f"torchvision.models.{name.replace('-', '_')}",
        32,
        EAGER_TRANSFORMER
        + f"Input 3x224x224 in patches of {patch}x{patch} and a class token: {tokens} tokens, as"
        " many as its"
        f" learned positions. {layers} layers, hidden {hidden}, {heads} heads, no dropout, 1000"
        " classes. torch.nn.MultiheadAttention calls scaled_dot_product_attention in PyTorch 2:"
        " workload.attention=fused.",
        ADAMW,
    )
    n, scores = tokens * hidden, heads * tokens**2
    token = m.parameter("class_token", 1, 1, hidden)
    m.conv("conv_proj", 3, hidden, patch, 224, size, bias=True)
    # Concatenation; backward: a sum over the batch, and the patches in the order of the convolution
    m.layer(
        "class_token",
        "memory",
        Cost(0, 2 * F32 * n, F32 * hidden, 1),
        Cost(0, 2 * F32 * n + F32 * hidden, F32 * hidden, 2),
        (token,),
        "copy",
    )
    table = m.parameter("encoder.pos_embedding", 1, tokens, hidden)
    m.layer(
        "encoder.pos_embedding",
        "memory",
        Cost(0, 2 * F32 * n, F32 * n, 1),
        Cost(0, F32 * n, F32 * n, 1),
        (table,),
        "position_embedding",
    )
    for i in range(layers):
        p = f"encoder.layers.encoder_layer_{i}"
        a = f"{p}.self_attention"
        m.fork(f"{p}.fork", n)
        m.layer_norm(f"{p}.ln_1", tokens, hidden)
        m.copy(f"{a}.transpose", n)  # MultiheadAttention computes with the tokens first
        m.linear(f"{a}.in_proj", tokens, hidden, 3 * hidden, joint="_")
        m.in_attention = True
        m.copy(f"{a}.split_heads", 3 * n)
        m.copy(f"{a}.scale", n)
        m.batched_matmul(f"{a}.scores", heads, tokens, dim, tokens)
        m.softmax(f"{a}.softmax", scores)
        m.batched_matmul(f"{a}.context", heads, tokens, tokens, dim)
        m.copy(f"{a}.merge_heads", n)
        m.in_attention = False
        m.linear(f"{a}.out_proj", tokens, hidden, hidden)
        m.add(f"{p}.add", n)
        m.fork(f"{p}.mlp.fork", n)
        m.layer_norm(f"{p}.ln_2", tokens, hidden)
        m.linear(f"{p}.mlp.0", tokens, hidden, inner)
        m.gelu_erf(f"{p}.mlp.1", tokens * inner)
        m.linear(f"{p}.mlp.3", tokens, inner, hidden)
        m.add(f"{p}.mlp.add", n)
    m.layer_norm("encoder.ln", tokens, hidden)
    m.memory("encoder.token", 0, F32 * (n + 2 * hidden), (0, 2))  # backward: into zeros
    m.linear("heads.head", 1, hidden, 1000)
    m.cross_entropy("loss", 1, 1000)
    return m


# --- DenseNet-121, torchvision models/densenet.py


def densenet121() -> Model:
    growth, bottleneck = 32, 4 * 32
    m = Model(
        "densenet121",
        "torchvision.models.densenet121",
        32,
        EAGER_CNN
        + "Input 3x224x224, 1000 classes, not memory_efficient: each layer concatenates what all"
        " before it made, and their gradients are summed one by one.",
        SGD,
    )
    m.conv("features.conv0", 3, 64, 7, 224, 112)
    m.batch_norm("features.norm0", 64, 112)
    m.relu("features.relu0", 64 * 112**2)
    m.max_pool("features.pool0", 64 * 112**2, 64 * 56**2)
    channels, size = 64, 56
    for block, layers in enumerate([6, 12, 24, 16], 1):
        for i in range(layers):
            p = f"features.denseblock{block}.denselayer{i + 1}"
            n = channels * size**2
            m.memory(f"{p}.cat", 2 * F32 * n, 3 * F32 * n, (1, i + 1))
            m.batch_norm(f"{p}.norm1", channels, size)
            m.relu(f"{p}.relu1", n)
            m.conv(f"{p}.conv1", channels, bottleneck, 1, size, size)
            m.batch_norm(f"{p}.norm2", bottleneck, size)
            m.relu(f"{p}.relu2", bottleneck * size**2)
            m.conv(f"{p}.conv2", bottleneck, growth, 3, size, size)
            channels += growth
        m.memory(f"features.denseblock{block}.cat", 2 * F32 * channels * size**2, 0, (1, 0))
        if block < 4:
            p = f"features.transition{block}"
            m.batch_norm(f"{p}.norm", channels, size)
            m.relu(f"{p}.relu", channels * size**2)
            m.conv(f"{p}.conv", channels, channels // 2, 1, size, size)
            channels //= 2
            m.avg_pool(f"{p}.pool", channels * size**2, channels * (size // 2) ** 2, whole=False)
            size //= 2
    m.batch_norm("features.norm5", channels, size)
    m.relu("relu", channels * size**2)
    m.avg_pool("avgpool", channels * size**2, channels)
    m.linear("classifier", 1, channels, 1000)
    m.cross_entropy("loss", 1, 1000)
    return m


# --- EfficientNet-B0, torchvision models/efficientnet.py


def efficientnet_b0() -> Model:
    m = Model(
        "efficientnet-b0",
        "torchvision.models.efficientnet_b0",
        32,
        EAGER_CNN
        + "Input 3x224x224, 1000 classes. SiLU in place keeps a copy of its input. Stochastic"
        " depth draws a number a sample. Optimizer: SGD with momentum, where torchvision's recipe"
        " has RMSprop.",
        SGD,
    )

    def conv_bn(p: str, c_in: int, c_out: int, k: int, before: int, after: int, **how: int) -> None:
        m.conv(f"{p}.0", c_in, c_out, k, before, after, **how)
        m.batch_norm(f"{p}.1", c_out, after)

    size, channels = 112, 32
    conv_bn("features.0", 3, channels, 3, 224, size)
    m.silu("features.0.2", channels * size**2, inplace=True)
    for stage, (expand, k, stride, c_out, layers) in enumerate(
        [
            (1, 3, 1, 16, 1),
            (6, 3, 2, 24, 2),
            (6, 5, 2, 40, 2),
            (6, 3, 2, 80, 3),
            (6, 5, 1, 112, 3),
            (6, 5, 2, 192, 4),
            (6, 3, 1, 320, 1),
        ],
        1,
    ):
        for i in range(layers):
            p = f"features.{stage}.{i}"
            wide = channels * expand
            after = size // stride if i == 0 else size
            residual = after == size and channels == c_out
            if residual:
                m.fork(f"{p}.fork", channels * size**2)
            j = 0
            if expand > 1:
                conv_bn(f"{p}.block.0", channels, wide, 1, size, size)
                m.silu(f"{p}.block.0.2", wide * size**2, inplace=True)
                j = 1
            conv_bn(f"{p}.block.{j}", wide, wide, k, size, after, groups=wide)
            n = wide * after**2
            m.silu(f"{p}.block.{j}.2", n, inplace=True)
            se, squeeze = f"{p}.block.{j + 1}", channels // 4
            m.fork(f"{se}.fork", n, residual=False)
            m.avg_pool(f"{se}.avgpool", n, wide)
            m.conv(f"{se}.fc1", wide, squeeze, 1, 1, 1, bias=True)
            m.silu(f"{se}.activation", squeeze, inplace=True)
            m.conv(f"{se}.fc2", squeeze, wide, 1, 1, 1, bias=True)
            m.memory(f"{se}.scale_activation", 2 * F32 * wide, 3 * F32 * wide, op="sigmoid")
            m.scale(f"{se}.scale", n)
            conv_bn(f"{p}.block.{j + 2}", wide, c_out, 1, after, after)
            if residual:
                m.stochastic_depth(f"{p}.stochastic_depth", c_out * after**2)
                m.add(f"{p}.add", c_out * after**2)
            size, channels = after, c_out
    conv_bn("features.8", channels, 1280, 1, size, size)
    m.silu("features.8.2", 1280 * size**2, inplace=True)
    m.avg_pool("avgpool", 1280 * size**2, 1280)
    m.dropout("classifier.0", 1280)
    m.linear("classifier.1", 1, 1280, 1000)
    m.cross_entropy("loss", 1, 1000)
    return m


# --- ConvNeXt-Tiny, torchvision models/convnext.py


def convnext_tiny() -> Model:
    m = Model(
        "convnext-tiny",
        "torchvision.models.convnext_tiny",
        32,
        EAGER_CNN
        + "Input 3x224x224, 1000 classes. LayerNorm over channels copies its input into NHWC, and"
        " the gradient back. Stochastic depth draws a number a sample in all blocks but the first.",
        ADAMW,
    )

    def norm(name: str, channels: int, size: int) -> None:
        m.copy(f"{name}.permute", channels * size**2)
        m.layer_norm(name, size**2, channels)

    size = 56
    m.conv("features.0.0", 3, 96, 4, 224, size, bias=True)
    norm("features.0.1", 96, size)
    for stage, (channels, blocks) in enumerate([(96, 3), (192, 3), (384, 9), (768, 3)]):
        if stage > 0:
            p = f"features.{2 * stage}"
            norm(f"{p}.0", channels // 2, size)
            m.conv(f"{p}.1", channels // 2, channels, 2, size, size // 2, bias=True)
            size //= 2
        n = channels * size**2
        for i in range(blocks):
            p = f"features.{2 * stage + 1}.{i}"
            scale = m.parameter(f"{p}.layer_scale", channels, 1, 1)
            m.fork(f"{p}.fork", n)
            m.conv(f"{p}.block.0", channels, channels, 7, size, size, bias=True, groups=channels)
            norm(f"{p}.block.2", channels, size)
            m.linear(f"{p}.block.3", size**2, channels, 4 * channels)
            m.gelu_erf(f"{p}.block.4", 4 * n)
            m.linear(f"{p}.block.5", size**2, 4 * channels, channels)
            m.scale(f"{p}.layer_scale", n, (scale,), F32 * channels)
            if stage or i:
                m.stochastic_depth(f"{p}.stochastic_depth", n)
            m.add(f"{p}.add", n)
    m.avg_pool("avgpool", 768 * size**2, 768)
    m.layer_norm("classifier.0", 1, 768)
    m.linear("classifier.2", 1, 768, 1000)
    m.cross_entropy("loss", 1, 1000)
    return m


# --- large models, whose files say a block once


def repeated(m: Model) -> Model:
    m.repeats = True
    return m


# --- a digit classifier


def mlp784_50_10() -> Model:
    m = Model(
        "mlp784-50-10",
        "mlp784-50-10",
        64,
        EAGER + "784 inputs, 50 hidden units with ReLU, 10 classes.",
        SGD_PLAIN,
    )
    m.linear("fc1", 1, 784, 50)
    m.relu("relu", 50)
    m.linear("fc2", 1, 50, 10)
    m.cross_entropy("loss", 1, 10)
    return m


MODELS: dict[str, Callable[[], Model]] = {
    "resnet18": lambda: resnet(18),
    "resnet34": lambda: resnet(34),
    "resnet50": lambda: resnet(50),
    "resnet101": lambda: resnet(101),
    "resnet152": lambda: resnet(152),
    "resnext50-32x4d": lambda: resnet(50, 32, 4),
    "resnext101-32x8d": lambda: resnet(101, 32, 8),
    "vgg16": vgg16,
    "bert-base": lambda: bert("bert-base", 12, 768, 12, 128, 32),
    "bert-large": lambda: bert("bert-large", 24, 1024, 16, 512, 8),
    "bert-base-squad": lambda: bert("bert-base-squad", 12, 768, 12, 384, 12, squad=True),
    "bert-large-squad": lambda: bert("bert-large-squad", 24, 1024, 16, 384, 12, squad=True),
    "gpt2-small": lambda: gpt2("gpt2-small", 12, 768, 12, 1024, 8, cached=True),
    "deeplabv3-resnet101": deeplabv3_resnet101,
    "mlp784-50-10": mlp784_50_10,
    "vit-b-16": lambda: vit("vit-b-16", 12, 768, 12),
    "vit-l-16": lambda: vit("vit-l-16", 24, 1024, 16),
    "densenet121": densenet121,
    "efficientnet-b0": efficientnet_b0,
    "convnext-tiny": convnext_tiny,
    "t5-base": lambda: t5("t5-base", 12, 768, 12),
    "llama-3.2-1b": lambda: llama("llama-3.2-1b", 16, 2048, 8192, 2048, 4, True),
    "llama-3.1-8b": lambda: llama("llama-3.1-8b", 32, 4096, 14336, 4096, 1, False),
    "llama-3.1-70b": lambda: repeated(
        llama("llama-3.1-70b", 80, 8192, 28672, 4096, 1, False, heads=64)
    ),
    "gpt3-13b": lambda: repeated(gpt2("gpt3-13b", 40, 5120, 40, 2048, 1)),
    "gpt3-175b": lambda: repeated(gpt2("gpt3-175b", 96, 12288, 96, 2048, 1)),
    "vit-h-14": lambda: repeated(vit("vit-h-14", 32, 1280, 16, 14)),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Writes the described workloads.")
    parser.add_argument(
        "--out", required=True, type=Path, help="folder to write NAME.json to, usually workloads/"
    )
    parser.add_argument(
        "--only", choices=sorted(MODELS), action="append", help="just this one (may be repeated)"
    )
    parser.add_argument(
        "--sequence",
        type=int,
        default=0,
        metavar="TOKENS",
        help="numbers at this sequence length, in files that have no other (models that have one)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit 1 if a file differs from what would be written",
    )
    args = parser.parse_args(argv)
    out: Path = args.out
    names: list[str] = args.only or list(MODELS)
    check: bool = args.check
    stale = 0
    if args.sequence:
        names = [name for name in names if MODELS[name]().sequence]
    if not check:
        out.mkdir(parents=True, exist_ok=True)
    for name in names:
        path, text = out / f"{name}.json", MODELS[name]().json_text(args.sequence)
        if check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                print(
                    (
                        f"{path} is not what tools/python/describe_models.py writes: run it with"
                        f" --out {out}"
                    ),
                    file=sys.stderr,
                )
                stale += 1
        else:
            write_whole(path, text)
            print(f"{path}: {len(text)} bytes", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
