#!/usr/bin/env python3
"""Time PyTorch's own operators on one core of this CPU as a ddpsim Run (evidence ``kernel``): what
``ddpsim fit --backend cpu`` makes a profile of.

    ddpsim_cpu_ops.py --seconds 400 --out runs/cpu-ops.json
    ddpsim fit --backend cpu --runs runs --base cpu-generic.datasheet --name my-cpu \
        --out my-cpu.json

Products as a linear layer makes them and in batches, convolutions, and what memory or functions
decide; each forward and backward, fp32, one thread. Times are core time of the process, which other
processes lengthen least. Operands and results rotate through more memory
than caches hold, as activations do; freed memory is kept, as after the first steps of a training.
Backward is of several calls by one run of autograd. Parameters are those of ddpsim_ops.py.
"""
from __future__ import annotations

import argparse
import os
import random
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun does; OpenBLAS has threads of its own
sys.path.insert(0, str(Path(__file__).resolve().parent))
import ddpsim_capture as cap  # noqa: E402  (says itself what is missing where PyTorch is)
import ddpsim_record as rec  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

READINGS = 7
NOISY_SPREAD = 0.1  # of the median operator
CASE_S = 0.3  # after its third reading no case takes longer
POOL_BYTES = 96 << 20
AT_ONCE = 6  # calls in one reading of backward
Call = Callable[[int], Any]


class Case(NamedTuple):
    op: str
    parameters: Dict[str, int]
    make: Callable[[], Tuple[Call, int]]  # launches the k-th; how many calls that is


def sets_of(bytes_each: int, make: Callable[[], Any], most: int = 12) -> List[Any]:
    return [make() for _ in range(max(2, min(most, POOL_BYTES // max(1, bytes_each))))]


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape).mul_(0.5)


# ---- products


LAYERS = ((64, 64), (256, 256), (768, 768), (3072, 768), (768, 3072), (1000, 1280), (192, 576))
ROWS = (2, 8, 64, 400, 1024, 6272)


def linear_cases() -> Iterator[Case]:
    for m in ROWS:
        for n, k in LAYERS:
            if m * n * k <= 2**30:
                for back in (0, 1, 2):
                    yield linear_case(m, n, k, back)


def linear_case(m: int, n: int, k: int, back: int) -> Case:
    def make() -> Tuple[Call, int]:
        sets = sets_of(4 * (m * k + n * k + m * n), lambda: (rand(m, k), rand(n, k), rand(m, n)))

        def call(i: int) -> Any:
            x, w, y = sets[i % len(sets)]
            return F.linear(x, w) if back == 0 else y @ w if back == 1 else y.t() @ x

        return call, 1

    return Case("linear", {"m": m, "n": n, "k": k, "pass": back, "precision": 0}, make)


def bmm_cases() -> Iterator[Case]:
    for count, m, n, k in (
        (16, 64, 64, 32), (48, 128, 128, 64), (48, 128, 64, 128), (96, 50, 50, 64),
        (8, 384, 384, 64), (8, 384, 64, 384), (64, 16, 16, 64), (24, 197, 197, 32),
        (12, 256, 64, 256),
    ):  # fmt: skip
        for back in (0, 1, 2):
            yield bmm_case(count, m, n, k, back)


def bmm_case(count: int, m: int, n: int, k: int, back: int) -> Case:
    def make() -> Tuple[Call, int]:
        sets = sets_of(
            4 * count * (m * k + n * k + m * n),
            lambda: (rand(count, m, k), rand(count, k, n), rand(count, m, n)),
        )

        def call(i: int) -> Any:
            x, w, y = sets[i % len(sets)]
            if back == 0:
                return torch.bmm(x, w)
            return torch.bmm(y, w.transpose(1, 2)) if back == 1 else torch.bmm(x.transpose(1, 2), y)

        return call, 1

    parameters = {"count": count, "m": m, "n": n, "k": k, "pass": back, "precision": 0}
    return Case("bmm", parameters, make)


CONVS = (  # channels, size, filters, kernel, stride
    (64, 28, 64, 3, 1), (128, 14, 128, 3, 1), (256, 14, 256, 3, 1), (512, 7, 512, 3, 1),
    (32, 56, 32, 3, 1), (16, 64, 16, 3, 1), (64, 56, 128, 3, 2), (128, 28, 256, 3, 2),
    (3, 112, 64, 7, 2), (3, 128, 32, 3, 2), (3, 96, 64, 3, 1), (192, 28, 32, 3, 1),
    (64, 28, 256, 1, 1), (256, 28, 64, 1, 1), (256, 14, 1024, 1, 1), (1024, 7, 256, 1, 1),
    (24, 56, 144, 1, 1), (144, 28, 40, 1, 1), (96, 14, 576, 1, 1), (320, 7, 1280, 1, 1),
    (128, 28, 128, 1, 2), (256, 28, 128, 1, 1), (48, 32, 96, 3, 1), (96, 32, 48, 3, 1),
    (32, 28, 32, 5, 1), (3, 96, 192, 16, 16), (512, 14, 512, 3, 1),
)  # fmt: skip


def conv_cases() -> Iterator[Case]:
    for batch in (2, 8):
        for c, size, f, k, stride in CONVS:
            for back in (0, 1, 2):
                if not (c <= 4 and back == 1):
                    yield conv_case(batch, c, size, f, k, stride, back)


def conv_of(
    batch: int, c: int, size: int, f: int, k: int, stride: int, groups: int, masks: List[bool]
) -> Tuple[Call, int]:
    pad = k // 2
    out = (size + 2 * pad - k) // stride + 1
    sets = sets_of(
        4 * batch * (c * size * size + f * out * out),
        lambda: (rand(batch, c, size, size), rand(f, c // groups, k, k), rand(batch, f, out, out)),
    )

    def call(i: int) -> Any:
        x, w, y = sets[i % len(sets)]
        if not any(masks):
            return F.conv2d(x, w, None, stride, pad, 1, groups)
        return torch.ops.aten.convolution_backward(
            y, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups, masks
        )

    return call, 1


def conv_case(batch: int, c: int, size: int, f: int, k: int, stride: int, back: int) -> Case:
    parameters = {
        "batch": batch, "channels": c, "size": size, "filters": f, "kernel": k, "stride": stride,
        "groups": 1, "pass": back, "precision": 0, "channels_last": 0,
    }  # fmt: skip
    masks = [back == 1, back == 2, False]
    return Case("conv", parameters, lambda: conv_of(batch, c, size, f, k, stride, 1, masks))


def depthwise_cases() -> Iterator[Case]:
    """By what they read and write, as memory decides; backward: both gradients."""
    for batch, c, size, k in (
        (8, 96, 56, 3), (8, 144, 28, 3), (8, 384, 14, 3), (8, 960, 7, 3), (8, 32, 56, 3),
        (2, 240, 28, 5), (2, 96, 56, 7), (2, 384, 14, 7), (8, 672, 7, 5), (2, 64, 28, 7),
    ):  # fmt: skip
        for back in (0, 1):
            elements = batch * c * size * size
            parameters = {"elements": elements, "size": size, "kernel": k, "pass": back,
                          "precision": 0}  # fmt: skip
            masks = [back == 1, back == 1, False]
            make = partial(conv_of, batch, c, size, c, k, 1, c, masks)
            yield Case(f"pointwise/depthwise{'_wide' * (k > 3)}", parameters, make)


# ---- what memory, or a function of each element, decides


def gelu_composed(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


BACKWARD = (
    "relu gelu silu sigmoid tanh dropout layer_norm softmax batch_norm cross_entropy embedding"
    " max_pool avg_pool gelu_composed rms_norm"
).split()
FORWARD = "add add_ copy zero_ mul_scalar sum cat".split()
ROW = 512
SIZES = tuple(1 << k for k in (13, 15, 16, 17, 18, 19, 20, 21))


def operands(name: str, n: int) -> Tuple[Callable[[], Any], List[Tensor]]:
    """A call of the operator, and what it has gradients of."""
    grad = name in BACKWARD
    if name in ("batch_norm", "max_pool", "avg_pool"):
        side = 14 if n < 1 << 18 else 28
        x = rand(max(1, n // (64 * side * side)), 64, side, side).requires_grad_()
        if name == "max_pool":
            return (lambda: F.max_pool2d(x, 2, 2)), [x]
        if name == "avg_pool":
            return (lambda: F.avg_pool2d(x, 2, 2)), [x]
        w, b, mean, var = (torch.rand(64) for _ in range(4))
        w.requires_grad_(), b.requires_grad_()
        return (lambda: F.batch_norm(x, mean, var, w, b, True)), [x, w, b]
    if name == "embedding":
        table = torch.randn(30522, 768, requires_grad=True)
        ids = torch.randint(30522, (max(1, n // 768),))
        return (lambda: F.embedding(ids, table)), [table]
    if name == "cross_entropy":
        x = rand(max(1, n // 8192), 8192).requires_grad_()
        target = torch.randint(8192, (x.shape[0],))
        return (lambda: F.cross_entropy(x, target)), [x]
    x = rand(n // ROW, ROW).requires_grad_(grad)
    y = rand(n // ROW, ROW)
    w, b = torch.ones(ROW, requires_grad=grad), torch.zeros(ROW, requires_grad=grad)
    each: Dict[str, Callable[[], Any]] = {
        "relu": lambda: F.relu(x), "gelu": lambda: F.gelu(x), "silu": lambda: F.silu(x),
        "sigmoid": lambda: torch.sigmoid(x), "tanh": lambda: torch.tanh(x),
        "dropout": lambda: F.dropout(x, 0.1), "softmax": lambda: F.softmax(x, -1),
        "layer_norm": lambda: F.layer_norm(x, (ROW,), w, b), "rms_norm": lambda: rms_norm(x, w),
        "gelu_composed": lambda: gelu_composed(x), "add": lambda: x + y,
        "add_": lambda: y.add_(x, alpha=1e-9), "zero_": lambda: y.zero_(),
        "copy": lambda: x.view(-1, 8, ROW // 8).transpose(0, 1).contiguous(),
        "mul_scalar": lambda: x * 0.5, "sum": lambda: x.sum(0), "cat": lambda: torch.cat((x, y)),
    }  # fmt: skip
    wrt = {"layer_norm": [x, w, b], "rms_norm": [x, w]}.get(name, [x])
    return each[name], wrt


def pointwise_cases() -> Iterator[Case]:
    for name in [*FORWARD, *BACKWARD]:
        for n in SIZES:
            if n < 1 << 16 and name in ("batch_norm", "max_pool", "avg_pool", "cross_entropy"):
                continue
            for back in (0, 1) if name in BACKWARD else (0,):
                yield pointwise_case(name, n, back)


def pointwise_case(name: str, n: int, back: int) -> Case:
    def make() -> Tuple[Call, int]:
        sets = sets_of(12 * n, lambda: operands(name, n), 2 if name == "embedding" else 12)
        if back == 0:
            return (lambda i: sets[i % len(sets)][0]()), 1
        few = sets[:AT_ONCE]
        outs = [call() for call, _ in few]
        wrt = [t for _, ts in few for t in ts]
        gradients = [torch.ones_like(o) for o in outs]
        return (lambda _: torch.autograd.grad(outs, wrt, gradients, retain_graph=True)), len(few)

    parameters = {"elements": n, "channels_last": 0, "pass": back, "precision": 0}
    return Case(f"pointwise/{name}", parameters, make)


# ---- timing


def readings_of(call: Call, count: int) -> List[int]:
    """Picoseconds of one call, several times; results stay for a while, as activations do."""
    alive: List[Any] = [None] * 4
    out: List[int] = []
    begin_s = time.monotonic()
    call(0)
    each_s = max(1e-7, time.monotonic() - begin_s)
    batch = max(1, min(64, round(2e-3 / each_s)))
    k = 1
    begin_s = time.monotonic()
    while len(out) < READINGS and (len(out) < 3 or time.monotonic() - begin_s < CASE_S):
        begin = time.process_time_ns()
        for _ in range(batch):
            alive[k % 4] = call(k)
            k += 1
        out.append(max(1, round((time.process_time_ns() - begin) * 1000 / (batch * count))))
    return out


def cases() -> List[Case]:
    groups = (linear_cases, bmm_cases, conv_cases, depthwise_cases, pointwise_cases)
    out = [c for g in groups for c in g()]
    random.Random(1).shuffle(out)
    return out


def load_now() -> float:
    """Cores that are busy while this process sleeps."""
    before = rec.busy_core_s()
    time.sleep(0.5)
    return (rec.busy_core_s() - before) / 0.5


def spread_of(durations: List[int]) -> float:
    """Median absolute deviation over the median."""
    middle = median(durations)
    return median(abs(d - middle) for d in durations) / middle


def run_of(samples: List[Dict[str, Any]], left_out: int, load: float) -> Dict[str, Any]:
    run = cap.kernel_run(samples, "calibrate/cpu-ops")
    run["origin"]["gpu"], run["origin"]["hosts"] = "", "cpu"
    version = f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread, core time"
    run["origin"]["software"] = version
    run["quality"]["load"] = round(load, 3)
    spread = median(spread_of(s["durations_ps"]) for s in samples)
    run["quality"]["spread"] = round(spread, 4)
    if spread > NOISY_SPREAD:
        run["quality"]["verdict"] = "noisy"
        run["quality"]["reasons"] = [f"readings of an operator spread by {100 * spread:.1f} %"]
    if left_out:
        run["skipped"] = [{"what": f"{left_out} operators", "why": "the time was over"}]
    return run


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write the Run to")
    parser.add_argument("--seconds", type=float, default=400, help="time for all of it")
    parser.add_argument("--only", help="operators whose names begin so: linear,bmm,conv,pointwise")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    load = load_now()
    rec.keep_memory()
    rec.touch_memory(512 << 20)
    samples: List[Dict[str, Any]] = []
    left_out = 0
    end = time.monotonic() + args.seconds
    for case in cases():
        if args.only and not case.op.startswith(tuple(args.only.split(","))):
            continue
        if time.monotonic() > end:
            left_out += 1
            continue
        call, count = case.make()
        durations = readings_of(call, count)
        op = f"torch/{case.op}"
        samples.append({"op": op, "parameters": case.parameters, "durations_ps": durations})
    cap.write_run(run_of(samples, left_out, load), args.out)
    print(f"{args.out}: {len(samples)} operators, {left_out} left out")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("ddpsim_cpu_ops: interrupted; nothing is kept", file=sys.stderr)
        sys.exit(130)
