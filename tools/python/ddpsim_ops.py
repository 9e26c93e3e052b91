#!/usr/bin/env python3
"""Time PyTorch's own operators on one GPU as a ddpsim Run (evidence ``kernel``): what a training
step is made of.

    ddpsim_ops.py --seconds 120 --out runs/torch-ops.json

Convolutions by memory format, products as a linear layer makes them, attention by kernel,
normalisation, activations, losses, optimizers, casts and copies; each forward and backward, by
precision. A sample ``torch/OP`` holds times on the device in a full queue; ``torch_host/OP`` the
time that the host takes to issue one call, the device being idle before. Operands rotate through
four times the second-level cache. The order is shuffled, so that what a short time leaves out is
left out everywhere alike. What this PyTorch cannot do is skipped, with its reason.

Parameters are integers: ``precision`` 0 fp32, 1 tf32, 2 bf16, 3 fp16; ``pass`` 0 forward, 1
gradient of the input (or of all inputs), 2 gradient of the weight; ``channels_last`` 0 or 1;
``kind`` as the table of the operator says below.
"""
from __future__ import annotations

import argparse
import math
import random
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ddpsim_capture as cap  # noqa: E402  (says itself what is missing where PyTorch is)
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

READINGS = 12  # of one operator at most
READING_S = 400e-6  # a reading is a batch of launches that takes about this
CASE_S = 0.05  # and no operator takes longer than this, after its first two readings
POOL_BYTES = 256 << 20  # operands of this size together, so that no cache holds them
FP32, TF32, BF16, FP16 = range(4)
DTYPE = {FP32: torch.float32, TF32: torch.float32, BF16: torch.bfloat16, FP16: torch.float16}
Call = Callable[[int], Any]  # launches the k-th


class Case(NamedTuple):
    op: str
    parameters: Dict[str, int]
    make: Callable[[], Call]


def rotating(bytes_each: int, make: Callable[[], Any]) -> List[Any]:
    """Sets of operands of `bytes_each`, as many as no cache holds, at most 16."""
    return [make() for _ in range(max(1, min(16, POOL_BYTES // max(1, bytes_each))))]


def rand(*shape: int, p: int = FP32, grad: bool = False) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=DTYPE[p]).mul_(0.5).requires_grad_(grad)


# ---- cases


def conv_cases() -> Iterator[Case]:
    resnet = [
        (64, 56, 64, 3, 1),
        (64, 56, 256, 1, 1),
        (256, 56, 64, 1, 1),
        (128, 28, 128, 3, 1),
        (512, 28, 128, 1, 1),
        (256, 14, 256, 3, 1),
        (1024, 14, 256, 1, 1),
        (512, 7, 512, 3, 1),
        (2048, 7, 512, 1, 1),
        (512, 7, 2048, 1, 1),
        (3, 224, 64, 7, 2),
        (128, 56, 128, 3, 2),
        (256, 56, 512, 1, 2),
    ]
    vgg = [
        (64, 224, 64, 3, 1),
        (128, 112, 128, 3, 1),
        (256, 56, 256, 3, 1),
        (512, 28, 512, 3, 1),
        (512, 14, 512, 3, 1),
    ]
    for batch in (64, 16, 256):
        for c, size, f, k, stride in resnet + (vgg if batch <= 64 else []):
            for p in (TF32, BF16, FP16, FP32):
                if p in (FP16, FP32) and batch != 64:
                    continue
                for last in (0, 1):
                    for back in (0, 1, 2):
                        yield conv_case(batch, c, size, f, k, stride, 1, p, last, back)
    for c, size, k, stride in (
        (96, 112, 3, 2),
        (144, 56, 3, 1),
        (384, 14, 3, 1),
        (960, 7, 3, 1),
    ):  # depthwise
        for p in (TF32, BF16):
            for last in (0, 1):
                for back in (0, 1, 2):
                    yield conv_case(64, c, size, c, k, stride, c, p, last, back)


def conv_case(
    batch: int,
    c: int,
    size: int,
    f: int,
    k: int,
    stride: int,
    groups: int,
    p: int,
    last: int,
    back: int,
) -> Case:
    pad = k // 2
    out = (size + 2 * pad - k) // stride + 1

    def make() -> Call:
        form = torch.channels_last if last else torch.contiguous_format
        element = 2 if p in (BF16, FP16) else 4

        def operands() -> Tuple[Tensor, Tensor, Tensor]:
            made = (
                rand(batch, c, size, size, p=p),
                rand(f, c // groups, k, k, p=p),
                rand(batch, f, out, out, p=p),
            )
            image, kernel, result = (t.contiguous(memory_format=form) for t in made)
            return image, kernel, result

        sets = rotating(element * batch * (c * size * size + f * out * out), operands)
        if back == 0:
            return lambda i: F.conv2d(
                sets[i % len(sets)][0], sets[i % len(sets)][1], None, stride, pad, 1, groups
            )

        def gradient(i: int) -> Any:
            x, w, y = sets[i % len(sets)]
            return torch.ops.aten.convolution_backward(
                y,
                x,
                w,
                None,
                [stride] * 2,
                [pad] * 2,
                [1, 1],
                False,
                [0, 0],
                groups,
                [back == 1, back == 2, False],
            )

        return gradient

    return Case(
        "conv",
        {
            "batch": batch,
            "channels": c,
            "size": size,
            "filters": f,
            "kernel": k,
            "stride": stride,
            "groups": groups,
            "pass": back,
            "precision": p,
            "channels_last": last,
        },
        make,
    )


def linear_cases() -> Iterator[Case]:
    layers = [
        (3072, 768),
        (768, 3072),
        (768, 768),
        (2304, 768),
        (1024, 1024),
        (4096, 1024),
        (2048, 2048),
        (8192, 2048),
        (2048, 8192),
        (4096, 4096),
        (14336, 4096),
    ]
    shapes = [
        (m, n, k)
        for m in (2048, 512, 8192, 128)
        for n, k in layers
        if m * n * k <= 8192 * 4096 * 4096
    ]
    shapes += [
        (m, n, k)
        for m in (1024, 4096)
        for n, k in ((30522, 768), (50257, 768), (50264, 768), (50304, 768))
    ]
    shapes += [(m, n, k) for m in (32, 128, 256) for n, k in ((4096, 25088), (1000, 2048))]
    shapes += [
        (s, s, s)
        for s in (256, 512, 640, 1000, 1024, 1152, 1536, 2048, 2304, 3072, 4096, 4608, 6144, 8192)
    ]  # quantised to tiles or not
    for m, n, k in dict.fromkeys(shapes):
        for p in (BF16, TF32, FP16, FP32):
            if p == FP32 and m * n * k > 2**36 or p == FP16 and (m + n) % 3:
                continue
            for back in (0, 1, 2):
                yield linear_case(m, n, k, p, back)


def linear_case(m: int, n: int, k: int, p: int, back: int) -> Case:
    def make() -> Call:
        element = 2 if p in (BF16, FP16) else 4
        sets = rotating(
            element * (m * k + n * k + m * n),
            lambda: (rand(m, k, p=p), rand(n, k, p=p), rand(m, n, p=p)),
        )

        def call(i: int) -> Any:
            x, w, y = sets[i % len(sets)]
            return F.linear(x, w) if back == 0 else y @ w if back == 1 else y.t() @ x

        return call

    return Case("linear", {"m": m, "n": n, "k": k, "pass": back, "precision": p}, make)


ATTENTION = ("flash", "efficient", "math", "cudnn")


def attention_cases() -> Iterator[Case]:
    for kind, name in enumerate(ATTENTION):
        for batch, heads, seq, dim, causal in (
            (16, 12, 128, 64, 0),
            (32, 12, 512, 64, 0),
            (4, 12, 1024, 64, 1),
            (2, 32, 2048, 64, 1),
            (1, 32, 4096, 128, 1),
            (1, 16, 8192, 64, 1),
            (32, 12, 197, 64, 0),
        ):
            for p in (BF16, TF32):
                if p == TF32 and name in ("flash", "cudnn") or name == "math" and seq > 2048:
                    continue
                for back in (0, 1):
                    yield attention_case(kind, batch, heads, seq, dim, causal, p, back)


def attention_case(
    kind: int, batch: int, heads: int, seq: int, dim: int, causal: int, p: int, back: int
) -> Case:
    def make() -> Call:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        which = {
            "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION,
            "math": SDPBackend.MATH,
            "cudnn": SDPBackend.CUDNN_ATTENTION,
        }[ATTENTION[kind]]
        q, k, v = (rand(batch, heads, seq, dim, p=p, grad=True) for _ in range(3))

        def forward(_: int) -> Tensor:
            with sdpa_kernel(which):
                return F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))

        if back == 0:
            return lambda i: forward(i).detach()
        out = forward(0)
        go = torch.randn_like(out)
        return lambda _: torch.autograd.grad(out, (q, k, v), go, retain_graph=True)

    return Case(
        "attention",
        {
            "kind": kind,
            "batch": batch,
            "heads": heads,
            "sequence": seq,
            "dim": dim,
            "causal": causal,
            "pass": back,
            "precision": p,
        },
        make,
    )


# kind: number in this list. What reads and writes memory, by elements of its (first) input.
POINTWISE = (
    "relu",
    "gelu",
    "silu",
    "dropout",
    "add",
    "add_",
    "layer_norm",
    "softmax",
    "batch_norm",
    "cross_entropy",
    "embedding",
    "max_pool",
    "to_bf16",
    "to_fp32",
    "zero_",
    "mul_scalar",
    "sum",
    "cat",
    "rms_norm",
)


def pointwise_cases() -> Iterator[Case]:
    for kind, name in enumerate(POINTWISE):
        for p in (BF16, FP32):
            if name in ("to_bf16", "to_fp32", "embedding") and p != FP32:
                continue
            for elements in (1 << 24, 1 << 20, 1 << 26, 1 << 22, 1 << 16, 1 << 12):
                if name in ("batch_norm", "max_pool", "cross_entropy") and elements < 1 << 16:
                    continue
                for last in (0, 1) if name in ("batch_norm", "max_pool") else (0,):
                    backs = (
                        (0,)
                        if name
                        in (
                            "add",
                            "add_",
                            "to_bf16",
                            "to_fp32",
                            "zero_",
                            "mul_scalar",
                            "sum",
                            "cat",
                        )
                        else (0, 1)
                    )
                    for back in backs:
                        yield pointwise_case(kind, elements, p, last, back)


def pointwise_case(kind: int, elements: int, p: int, last: int, back: int) -> Case:
    name = POINTWISE[kind]

    def make() -> Call:
        element = 2 if p == BF16 else 4

        def one() -> Tuple[Callable[[], Any], Sequence[Tensor]]:
            if name in ("batch_norm", "max_pool"):
                side = 14 if elements < 1 << 20 else 56
                channels = 256 if name == "batch_norm" else 64
                x = rand(max(1, elements // (channels * side * side)), channels, side, side, p=p)
                x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_(
                    True
                )
                if name == "max_pool":
                    return (lambda: F.max_pool2d(x, 3, 2, 1)), (x,)
                w, b, mean, var = (torch.rand(channels, device="cuda") for _ in range(4))
                w.requires_grad_(True), b.requires_grad_(True)
                return (lambda: F.batch_norm(x, mean, var, w, b, True)), (x, w, b)
            if name == "cross_entropy":
                x = rand(max(1, elements // 32768), 32768, p=p, grad=True)
                target = torch.randint(32768, (x.shape[0],), device="cuda")
                return (lambda: F.cross_entropy(x, target)), (x,)
            if name == "embedding":
                table = rand(30522, 768, grad=True)
                ids = torch.randint(30522, (max(1, elements // 768),), device="cuda")
                return (lambda: F.embedding(ids, table)), (table,)
            if name in ("layer_norm", "softmax", "rms_norm"):
                width = 1024
                x = rand(max(1, elements // width), width, p=p, grad=True)
                if name == "softmax":
                    return (lambda: F.softmax(x, -1)), (x,)
                w = torch.ones(width, device="cuda", dtype=DTYPE[p], requires_grad=True)
                if name == "rms_norm":
                    return (lambda: F.rms_norm(x, (width,), w)), (x, w)
                b = torch.zeros(width, device="cuda", dtype=DTYPE[p], requires_grad=True)
                return (lambda: F.layer_norm(x, (width,), w, b)), (x, w, b)
            x = rand(elements, p=p, grad=name in ("relu", "gelu", "silu", "dropout"))
            y = rand(elements, p=p)
            plain: Dict[str, Callable[[], Any]] = {
                "relu": lambda: F.relu(x),
                "gelu": lambda: F.gelu(x),
                "silu": lambda: F.silu(x),
                "dropout": lambda: F.dropout(x, 0.1),
                "add": lambda: x + y,
                "add_": lambda: y.add_(x, alpha=1e-9),
                "to_bf16": lambda: x.to(torch.bfloat16),
                "to_fp32": lambda: half.to(torch.float32),
                "zero_": lambda: y.zero_(),
                "mul_scalar": lambda: x * 0.5,
                "sum": lambda: x.sum(),
                "cat": lambda: torch.cat((x, y)),
            }
            half = x.to(torch.bfloat16) if name == "to_fp32" else x
            return plain[name], (x,)

        sets = rotating(2 * element * elements, one)
        if back == 0:
            return lambda i: detached(sets[i % len(sets)][0]())
        graphs = []
        for forward, wrt in sets:
            out = forward()
            graphs.append((out, wrt, torch.ones_like(out)))
        return lambda i: torch.autograd.grad(
            graphs[i % len(graphs)][0],
            graphs[i % len(graphs)][1],
            graphs[i % len(graphs)][2],
            retain_graph=True,
        )

    return Case(
        f"pointwise/{name}",
        {"kind": kind, "elements": elements, "channels_last": last, "pass": back, "precision": p},
        make,
    )


def detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


OPTIMIZERS = ("sgd", "sgd_momentum", "adam", "adamw")
STYLES = ("loop", "foreach", "fused")
LISTS = ("resnet50", "bert_base", "llama_1b")


def shapes_of(which: str) -> List[Tuple[int, ...]]:
    """Parameters of well-known models, in order."""
    if which == "resnet50":
        from torchvision.models import resnet50

        with cap.on_device(torch.device("meta")):
            return [tuple(p.shape) for p in resnet50().parameters()]
    if which == "bert_base":
        layer: List[Tuple[int, ...]] = [(768, 768), (768,)] * 4 + [
            (768,),
            (768,),
            (3072, 768),
            (3072,),
            (768, 3072),
            (768,),
            (768,),
            (768,),
        ]
        return (
            [(30522, 768), (512, 768), (2, 768), (768,), (768,)]
            + 12 * layer
            + [(768, 768), (768,), (768,), (768,), (30522,)]
        )
    llama: List[Tuple[int, ...]] = [
        (2048, 2048),
        (512, 2048),
        (512, 2048),
        (2048, 2048),
        (8192, 2048),
        (8192, 2048),
        (2048, 8192),
        (2048,),
        (2048,),
    ]
    return [(128256, 2048)] + 16 * llama + [(2048,)]


def optimizer_cases() -> Iterator[Case]:
    for model in range(len(LISTS)):
        for kind in range(len(OPTIMIZERS)):
            for style in range(len(STYLES)):
                if LISTS[model] == "llama_1b" and (
                    OPTIMIZERS[kind] != "adamw" or STYLES[style] == "loop"
                ):
                    continue
                yield optimizer_case(kind, style, model)


def optimizer_case(kind: int, style: int, model: int) -> Case:
    shapes = shapes_of(LISTS[model])

    def make() -> Call:
        parameters = [nn.Parameter(torch.randn(s, device="cuda").mul_(0.02)) for s in shapes]
        for p in parameters:
            p.grad = torch.randn_like(p)
        how = {"foreach": STYLES[style] == "foreach"}
        if STYLES[style] == "fused":  # before 2.0 few optimizers know the word
            how["fused"] = True
        name = OPTIMIZERS[kind]
        if name.startswith("sgd"):
            optimizer: Any = torch.optim.SGD(
                parameters, lr=1e-6, momentum=0.9 if name == "sgd_momentum" else 0.0, **how
            )
        else:
            optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](
                parameters, lr=1e-6, **how
            )
        return lambda _: optimizer.step()

    return Case(
        f"optimizer/{OPTIMIZERS[kind]}",
        {
            "kind": kind,
            "style": style,
            "tensors": len(shapes),
            "elements": sum(math.prod(s) for s in shapes),
        },
        make,
    )


COPIES = (
    "host_to_device_pinned",
    "device_to_host_pinned",
    "device_to_device",
    "host_to_device_pageable",
)


def copy_cases() -> Iterator[Case]:
    for kind, name in enumerate(COPIES):
        for size in (1 << 26, 1 << 20, 1 << 16, 1 << 23):
            call = lambda kind=kind, size=size: copy_call(kind, size)  # type: ignore[misc]
            yield Case(f"copy/{name}", {"kind": kind, "bytes": size}, call)


def copy_call(kind: int, size: int) -> Call:
    device, other = torch.empty(size, dtype=torch.uint8, device="cuda"), torch.empty(
        size, dtype=torch.uint8, device="cuda"
    )
    host = torch.empty(size, dtype=torch.uint8, pin_memory=kind < 2)
    to, source = {0: (device, host), 1: (host, device), 2: (device, other), 3: (device, host)}[kind]
    return lambda _: to.copy_(source, non_blocking=True)


# ---- what the host pays: small tensors, so that the device never decides


def host_cases() -> Iterator[Tuple[str, Callable[[], Callable[[], int]]]]:
    """(name, make): what is made does some calls, and says how many."""

    def chain(
        grad: bool, op: Callable[[Tensor], Tensor], count: int = 50
    ) -> Callable[[], Callable[[], int]]:
        def make() -> Callable[[], int]:
            x = torch.zeros(8, 8, device="cuda", requires_grad=grad)

            def call() -> int:
                y = x
                for _ in range(count):
                    y = op(y)
                return count

            return call

        return make

    def backward(
        op: Callable[[Tensor], Tensor], count: int = 50
    ) -> Callable[[], Callable[[], int]]:
        def make() -> Callable[[], int]:
            x = torch.zeros(8, 8, device="cuda", requires_grad=True)
            y = x
            for _ in range(count):
                y = op(y)
            go = torch.ones_like(y)

            def call() -> int:
                torch.autograd.grad(y, x, go, retain_graph=True)
                return count

            return call

        return make

    def parameters(count: int) -> Callable[[], Callable[[], int]]:
        def make() -> Callable[[], int]:
            many = [torch.zeros(8, device="cuda", requires_grad=True) for _ in range(count)]
            total = sum(p.sum() for p in many)

            def call() -> int:
                for p in many:
                    p.grad = None
                total.backward(retain_graph=True)  # type: ignore[union-attr]
                return count

            return call

        return make

    w = torch.zeros(8, 8, device="cuda")
    lin, ident, norm, bn = (
        nn.Linear(8, 8, device="cuda"),
        nn.Identity(),
        nn.LayerNorm(8, device="cuda"),
        nn.BatchNorm1d(8, device="cuda"),
    )
    conv = nn.Conv2d(1, 1, 3, padding=1, device="cuda")

    def cast(op: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return op(x)

        return run

    ops: Dict[str, Callable[[Tensor], Tensor]] = {
        "add": lambda x: x + 1.0,
        "relu": F.relu,
        "matmul": lambda x: x @ w,
        "linear_module": lin,
        "layer_norm_module": norm,
        "batch_norm_module": bn,
        "conv_module": lambda x: conv(x.view(1, 1, 8, 8)).view(8, 8),
        "dropout": lambda x: F.dropout(x, 0.1),
        "identity_module": ident,
        "linear_module_autocast": cast(lin),
    }
    for name, op in ops.items():
        yield f"{name}/no_grad", no_grad(chain(False, op))
        yield f"{name}/forward", chain(True, op)
        if name != "identity_module":
            yield f"{name}/backward", backward(op)
    yield "accumulate_grad", parameters(100)

    def graph() -> Callable[[], int]:
        x = torch.zeros(8, 8, device="cuda")
        torch.cuda.synchronize()
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            y = x
            for _ in range(100):
                y = y + 1.0

        def call() -> int:
            g.replay()
            return 100

        return call

    yield "cuda_graph_replay", graph

    def item() -> Callable[[], int]:
        x = torch.zeros(1, device="cuda")

        def call() -> int:
            x.item()
            return 1

        return call

    yield "item", item


def no_grad(make: Callable[[], Callable[[], int]]) -> Callable[[], Callable[[], int]]:
    def made() -> Callable[[], int]:
        call = make()

        def run() -> int:
            with torch.no_grad():
                return call()

        return run

    return made


# ---- timing


class Bench:
    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.samples: List[Dict[str, Any]] = []
        self.skipped: List[Dict[str, str]] = []
        self.left_out = 0
        self.cycles_per_s = 1.5e9

    def batch_ps(self, call: Call, count: int, k: int, spin_s: float) -> Tuple[int, float, bool]:
        """(device ps of a launch, host seconds of a launch, whether the queue was full)."""
        begin, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        torch.cuda._sleep(int(spin_s * self.cycles_per_s))
        begin.record()
        from_s = time.perf_counter()
        for i in range(count):
            call(k + i)
        host_s = (time.perf_counter() - from_s) / count
        full = not begin.query()
        done.record()
        done.synchronize()
        return max(1, round(begin.elapsed_time(done) * 1e9 / count)), host_s, full

    def device(self, case: Case) -> None:
        set_precision(case.parameters.get("precision", FP32))
        call = case.make()
        spin = 300e-6
        took, host_s, full = self.batch_ps(call, 1, 0, spin)
        took, host_s, full = self.batch_ps(call, 2, 1, spin)
        count = max(1, min(100, round(READING_S / (took * 1e-12))))
        readings: List[int] = []
        hosts: List[int] = []
        from_s = time.monotonic()
        k = 3
        tries = 0
        while len(readings) < READINGS and (
            len(readings) < 2 or time.monotonic() - from_s < CASE_S
        ):
            took, host_s, full = self.batch_ps(call, count, k, max(spin, 1.3 * host_s * count))
            k += count
            # Of a long call the queue need not be full, if the host had issued it in half of its
            # time.
            if full or (took * count > 5e9 and host_s * count < 0.5e-12 * took * count):
                readings.append(took)
                hosts.append(round(host_s * 1e12))
            elif (tries := tries + 1) > 6:
                break
            else:
                host_s *= 2  # so that the next wait is longer
        if not readings:
            raise RuntimeError("the host cannot fill the queue, so the device's time is not known")
        self.samples.append(
            {"op": f"torch/{case.op}", "parameters": case.parameters, "durations_ps": readings}
        )
        self.samples.append(
            {"op": f"torch_host/{case.op}", "parameters": case.parameters, "durations_ps": hosts}
        )

    def host(self, name: str, make: Callable[[], Callable[[], int]]) -> None:
        set_precision(FP32)
        call = make()
        readings: List[int] = []
        for k in range(22):
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            count = call()
            if k >= 2:
                readings.append(round((time.perf_counter_ns() - begin) * 1000 / count))
        self.samples.append(
            {
                "op": f"torch_host/{name}",
                "parameters": {"per_call": count},
                "durations_ps": readings,
            }
        )

    def attempt(self, what: str, run: Callable[[], None]) -> bool:
        """False when the time is over."""
        if time.monotonic() > self.end:
            self.left_out += 1
            return False
        try:
            run()
        except (RuntimeError, AttributeError, ImportError, TypeError, ValueError) as error:
            if len(self.skipped) < 60:
                self.skipped.append(
                    {
                        "what": what,
                        "why": (str(error).strip() or type(error).__name__).splitlines()[0][:160],
                    }
                )
        return True

    def rate_of_spin(self) -> None:
        """Cycles of torch.cuda._sleep in a second."""
        begin, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(2):
            begin.record()
            torch.cuda._sleep(20_000_000)
            done.record()
            done.synchronize()
        self.cycles_per_s = 20_000_000 / (begin.elapsed_time(done) / 1e3)


def set_precision(p: int) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = p == TF32


GROUPS: Dict[str, Callable[[], Iterator[Case]]] = {
    "conv": conv_cases,
    "linear": linear_cases,
    "attention": attention_cases,
    "pointwise": pointwise_cases,
    "optimizer": optimizer_cases,
    "copy": copy_cases,
}


def shuffled(groups: Sequence[str], seed: int = 1) -> List[Case]:
    """All cases, mixed: a part of them is a part of each kind."""
    cases = [c for g in groups for c in GROUPS[g]()]
    random.Random(seed).shuffle(cases)
    return cases


def run_of(bench: Bench, key: str) -> Dict[str, Any]:
    run = cap.kernel_run(bench.samples, key)
    run["skipped"] = bench.skipped
    if bench.left_out:
        run["skipped"].append({"what": f"{bench.left_out} operators", "why": "the time was over"})
    return run


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write the Run to")
    parser.add_argument(
        "--seconds", type=float, default=120, help="time for all of it (default 120)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[*GROUPS, "host"],
        help="these operators only, repeatable",
    )
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("ddpsim_ops: this PyTorch finds no CUDA GPU", file=sys.stderr)
        return 2
    torch.manual_seed(1)
    bench = Bench(args.seconds)
    bench.rate_of_spin()
    if not args.only or "host" in args.only:
        for name, make in host_cases():
            bench.attempt(name, lambda: bench.host(name, make))
    saved = time.monotonic()
    for n, case in enumerate(shuffled([g for g in GROUPS if not args.only or g in args.only])):
        if not bench.attempt(f"{case.op} {case.parameters}", lambda: bench.device(case)):
            continue
        if n % 20 == 19:
            torch.cuda.empty_cache()
        if time.monotonic() - saved > 15:
            cap.write_run(run_of(bench, "calibrate/torch-ops"), args.out)
            saved = time.monotonic()
    cap.write_run(run_of(bench, "calibrate/torch-ops"), args.out)
    print(
        f"{args.out}: {len(bench.samples)} samples, {len(bench.skipped)} skipped,"
        f" {bench.left_out} left out"
    )
    for s in bench.skipped[:12]:
        print(f"  {s['what']}: {s['why']}")
    return 0 if bench.samples else 1


if __name__ == "__main__":
    sys.exit(main())
