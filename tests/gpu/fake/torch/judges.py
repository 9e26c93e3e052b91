"""What the scripts must say of planted values: sentences about what is wrong.

The truth is train.py's stopwatch, which knows nothing of ddpsim, and for the MLP and the operators
a count of FLOPs and bytes that shares no code with the device that is not there.
"""
from __future__ import annotations

import gzip
import json
import statistics

MLP, BATCH = (784, 512, 512, 512, 256, 10), 32  # fake_models.py
MS = 1e9  # picoseconds
NOT_TIMED = ("raw", "notes", "modules")


def near(what, got, want, within=0.01, slack=0.0):
    """[] or a sentence; ``slack`` in the same unit."""
    if abs(got - want) <= within * abs(want) + slack:
        return []
    return [f"{what}: {got:.6g}, not {want:.6g}"]


# ---- counted by hand


def kernel_ms(p, moved, flops=0.0, rate=1.0):
    return p["kernel_us"] / 1e3 + 1e3 * (flops / rate + moved / p["memory_bytes_per_s"])


def mlp_ms(p, rate, foreach):
    """(forward, backward, optimizer) in ms, and when each gradient is there: [(parameter, ms)]."""
    m, layers = BATCH, list(zip(MLP, MLP[1:]))
    forward = backward = 0.0
    for k, n in layers:
        forward += kernel_ms(p, 4 * (n + m * k + k * n + m * n), 2 * m * k * n, rate)
    forward += sum(kernel_ms(p, 8 * m * n) for n in MLP[1:-1])  # ReLU
    scores, labels = 4 * m * MLP[-1], 8 * m
    forward += kernel_ms(p, 2 * scores) + kernel_ms(p, scores + labels + 8)  # log_softmax, nll_loss
    backward += kernel_ms(p, 4) + kernel_ms(p, 2 * scores + labels + 8) + kernel_ms(p, 3 * scores)
    ready = []
    for i, (k, n) in reversed(list(enumerate(layers))):
        gemm = kernel_ms(p, 4 * (m * k + k * n + m * n), 2 * m * k * n, rate)
        backward += gemm * (2 if i else 1) + kernel_ms(p, 4 * (m * n + n))
        ready += [(2 * i + 1, backward), (2 * i, backward)]  # the bias comes first
        if i:
            backward += kernel_ms(p, 12 * m * k)  # of ReLU
    sizes = [4 * x for k, n in layers for x in (k * n, n)]
    passes = (2, 3, 3)  # momentum: mul, add; add
    if foreach:
        optimizer = sum(kernel_ms(p, c * sum(sizes)) for c in passes)
    else:
        optimizer = sum(kernel_ms(p, c * s) for c in passes for s in sizes)
    return (forward, backward, optimizer), ready


def mlp_layers_ms(p, rate):
    """Forward of each product with what follows it."""
    m, layers, out = BATCH, list(zip(MLP, MLP[1:])), []
    for k, n in layers:
        product = kernel_ms(p, 4 * (n + m * k + k * n + m * n), 2 * m * k * n, rate)
        out.append(product + kernel_ms(p, 8 * m * n))  # ReLU
    scores, labels = 4 * m * MLP[-1], 8 * m
    out[-1] += kernel_ms(p, 2 * scores) + kernel_ms(p, scores + labels + 8)
    out[-1] -= kernel_ms(p, 8 * m * MLP[-1])
    return out


def all_reduce_ms(p, size, ranks):
    if ranks == 1:
        return p["kernel_us"] / 1e3
    return p["nccl_us"] / 1e3 + 1e3 * 2 * (ranks - 1) / ranks * size / p["nccl_bytes_per_s"]


# ---- captures


def capture(p, workload, run, truth):
    """A capture by ddpsim_captures.py, and the Run that it left, beside train.py's ``truth``."""
    t, wrong = workload["times"], []
    raw = t["raw"]
    for phase in ("forward", "backward", "optimizer"):
        for reading in raw[phase]:
            wrong += near(f"a reading of {phase}, ms", reading / MS, t[f"{phase}_ps"] / MS)
        got, want = t[f"host_{phase}_ps"] / MS, truth[f"host_{phase}_ms"]
        wrong += near(f"host {phase}, ms", got, want, 0.02, 2 * p["event_us"] / 1e3)
    for name in ("step_plain", "step_instrumented"):
        for reading in raw[name]:
            within = 0.01 if name == "step_plain" else 0.03
            wrong += near(f"a reading of {name}, ms", reading / MS, truth["step_ms"], within)
    total = sum(t[f"{k}_ps"] for k in ("forward", "backward", "optimizer"))
    wrong += near("a step, ms", total / MS, truth["step_ms"])
    if workload["arrival"] != [i for i, _ in truth["host_ready"]]:
        wrong.append(f"arrival {workload['arrival']}, not {truth['host_ready']}")
    for (i, share), at in zip(truth["host_ready"], t["host_ready_ps"]):
        wrong += near(f"host, gradient {i}, share", at / t["host_backward_ps"], share, 0.01, 0.02)
    return wrong + captured_run(p, workload, run, truth)


def captured_run(p, workload, run, truth):
    """Memory, the sustained step, and what the profiler saw."""
    wrong, by_op = [], {s["op"]: s for s in run["samples"]}
    kinds = by_op["memory_bytes"]["parameters"]
    size = {"float32": 4}
    weights = 0
    for tensor in workload["tensors"]:
        elements = 1
        for n in tensor["shape"]:
            elements *= n
        weights += elements * size[tensor["dtype"]]
    states = {"sgd": 1, "adam": 2, "adamw": 2}[workload["optimizer"]["name"]]
    wrong += near("bytes of weights", kinds["weights"], weights, 0)
    wrong += near("bytes of gradients", kinds["gradients"], weights, 0)
    wrong += near("bytes of the optimizer", kinds["optimizer_state"], states * weights, 0.001)
    known = sum(kinds[k] for k in ("weights", "buffers", "inputs", "optimizer_state"))
    blocks = 512 * 3 * (len(workload["tensors"]) + len(workload["buffers"]) + 2)
    wrong += near("bytes before a step", kinds["before"], known, 0, blocks)
    wrong += near(
        "bytes of gradients allocated",
        kinds["after_backward"] - kinds["before"],
        weights,
        0,
        blocks,
    )
    peak = max(kinds[k] for k in kinds if k.startswith("peak"))
    wrong += near("peak bytes", peak, truth["peak_bytes"], 0.01, 4096)
    wrong += near("bytes of the driver", kinds["outside_allocator"], p["context_bytes"], 0)
    if "sustained_step" not in by_op:
        return wrong + ["no sustained step"]
    for reading in by_op["sustained_step"]["durations_ps"]:
        wrong += near("sustained step, ms", reading / MS, truth["step_ms"])
    busy = 0
    for phase in ("forward", "backward", "optimizer"):
        seen = by_op.get(f"profiled_busy/{phase}")
        if seen is None:
            return wrong + [f"the profiler saw nothing of {phase}"]
        busy += seen["durations_ps"][0]
        if seen["parameters"]["kernels"] != seen["parameters"]["launches"]:
            wrong.append(f"{phase}: {seen['parameters']}")
    if truth["busy"]:
        wrong += near("busy in a step, ms", busy / MS, truth["step_ms"])
    return wrong


def counted(p, workload):
    """The MLP's capture beside what it must be."""
    t = workload["times"]
    rate = p["tf32"] if workload["precision"] == "tf32" else p["fp32"]
    phases, ready = mlp_ms(p, rate, workload["optimizer"]["foreach"])
    wrong = []
    for phase, want in zip(("forward", "backward", "optimizer"), phases):
        wrong += near(f"{phase} of the MLP, ms", t[f"{phase}_ps"] / MS, want)
    if workload["arrival"] != [i for i, _ in ready]:
        wrong.append(f"arrival of the MLP: {workload['arrival']}")
    for (i, want), got in zip(ready, t["ready_ps"]):
        wrong += near(f"gradient {i} of the MLP, ms", got / MS, want)
    layers = t.get("layers", [])
    if [x["tensors"] for x in layers] != [[2 * i, 2 * i + 1] for i in range(len(MLP) - 1)]:
        wrong.append(f"layers of the MLP: {layers}")
    for layer, want in zip(layers, mlp_layers_ms(p, rate)):
        wrong += near(f"layer {layer['name']} of the MLP, ms", layer["forward_ps"] / MS, want)
    return wrong


# ---- recorded steps


def record(p, run, truth, ranks, half=False, within=0.01):
    wrong = []
    plain = [s for s in run["steps"] if s["kind"] == "steady" and not s.get("instrumented")]
    for s in plain:
        wrong += near("a recorded step, ms", s["duration_ps"] / MS, truth["step_ms"], within)
    if not plain:
        wrong.append("no step counts")
    looked_at = run["steps"][-2:]
    for s in looked_at if run["spans"] else []:
        wrong += near("a step with spans, ms", s["duration_ps"] / MS, truth["step_ms"], 0.03)
    # The machine's cores and its loopback are real.
    reasons = [r for r in run["quality"]["reasons"] if "cores" not in r and "TCP" not in r]
    wrong += [f"noisy: {r}" for r in reasons]
    if {s["actor"] for s in run["spans"]} != set(range(ranks)):
        wrong.append(f"spans of ranks {sorted({s['actor'] for s in run['spans']})}")
    for s in run["samples"]:
        if s["op"] == "memory_bytes":
            wrong += near(
                f"peak bytes of rank {s['parameters']['rank']}",
                s["parameters"]["peak"],
                truth["peak_bytes"],
                0.02,
                8192,
            )
    return wrong + collectives(p, run, ranks, half)


def collectives(p, run, ranks, half):
    """Each ends when the slowest rank had come and the one before had ended, and then its time.

    ``half``: from when a bucket is ready it is cast and divided first.
    """
    wrong = []
    for step in {s["step"] for s in run["spans"]}:
        seen = {}
        for s in run["spans"]:
            if s["step"] == step and s["lane"] == "comm":
                seen.setdefault(s["op"], []).append(s)
        before = 0
        for op, mine in sorted(seen.items(), key=lambda kv: kv[1][0]["end_ps"]):
            if len(mine) != ranks:
                wrong.append(f"{op}: {len(mine)} ranks")
            begin = max([before] + [s["ready_ps"] for s in mine])
            before = max(s["end_ps"] for s in mine)
            wire = mine[0]["bytes"]
            want = all_reduce_ms(p, wire, ranks)
            want += kernel_ms(p, 3 * wire) + kernel_ms(p, 2 * wire) if half else 0.0
            wrong += near(f"{op}, ms", (before - begin) / MS, want, 0.02, 0.03)
    return wrong


def layers(p, run, rate, foreach, slowest=1.0):
    """The layer profile of an MLP's Run; ``slowest``: how much longer its slowest rank takes."""
    phases, ready = mlp_ms(p, rate, foreach)
    wrong = []
    for phase, want in zip(("forward", "backward", "optimizer"), phases):
        wrong += near(f"layers, {phase}, ms", run["layers"][f"{phase}_ps"] / MS, slowest * want)
    for (i, want), got in zip(ready, run["layers"]["ready_ps"]):
        wrong += near(f"layers, gradient {i}, ms", got / MS, slowest * want)
    return wrong


# ---- operators

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
# Bytes that an element of the input costs, in tensors: (forward, backward), without small ones.
POINTWISE = {
    "relu": (2, 3),
    "gelu": (2, 3),
    "silu": (2, 3),
    "add": (3,),
    "add_": (3,),
    "zero_": (1,),
    "mul_scalar": (2,),
    "softmax": (2, 3),
    "sum": (1,),
    "cat": (4,),
}


def lists(v):
    """Kernels of a pass of an optimizer: one a tensor in a loop, else one for 30 (planted)."""
    return v["tensors"] if v["style"] == 0 else -(-v["tensors"] // 30)


def operator_us(p, op, v):
    """A call on the device, from its parameters; None: not planted in a form that is counted."""
    each = 2 if v.get("precision", 0) >= 2 else 4
    if op == "torch/conv":
        out = (v["size"] + 2 * (v["kernel"] // 2) - v["kernel"]) // v["stride"] + 1
        image = v["batch"] * v["channels"] * v["size"] ** 2
        result = v["batch"] * v["filters"] * out**2
        weights = v["filters"] * v["channels"] // v["groups"] * v["kernel"] ** 2
        flops = 2 * result * weights / v["filters"]
        rate = p["conv"] * p[PRECISIONS[v["precision"]]]
        return 1e3 * kernel_ms(p, each * (image + result + weights), flops, rate)
    if op == "torch/linear":
        m, n, k = v["m"], v["n"], v["k"]
        return 1e3 * kernel_ms(
            p, each * (m * n + n * k + m * k), 2 * m * n * k, p[PRECISIONS[v["precision"]]]
        )
    if op.startswith("torch/copy/"):
        if v["kind"] == 2:
            return 1e3 * kernel_ms(p, 2 * v["bytes"])
        if v["kind"] == 3:
            return None  # the host waits in it
        return p["kernel_us"] + 1e6 * v["bytes"] / p["pcie_bytes_per_s"]
    name = op.rpartition("/")[2]
    if op.startswith("torch/optimizer/sgd"):
        passes = (2, 3, 3) if name.endswith("momentum") else (3,)
        return sum(
            lists(v) * p["kernel_us"] + 4e6 * n * v["elements"] / p["memory_bytes_per_s"]
            for n in passes
        )
    if op.startswith("torch/pointwise/") and name in POINTWISE:
        if name == "softmax" and v["elements"] < 1024:
            return None
        return 1e3 * kernel_ms(p, each * POINTWISE[name][v["pass"]] * v["elements"])
    return None


def operators(p, run):
    """(how many were judged, what is wrong)"""
    wrong, judged = [], 0
    for s in run["samples"]:
        op, v = s["op"], s["parameters"]
        want = operator_us(p, op, v) if op.startswith("torch/") else host_us(p, op, v)
        if want is None:
            continue
        judged += 1
        for reading in s["durations_ps"]:
            bad = near(f"{op} {v}, us", reading / 1e6, want, 0.01, 0.05)
            if bad:
                wrong += bad
                break
    return judged, wrong


def calls(n, kernels):
    return lambda p: n * p["call_us"] + kernels * p["launch_us"]


HOST_US = {
    "torch_host/add/no_grad": calls(1, 1),
    "torch_host/relu/no_grad": calls(1, 1),
    "torch_host/matmul/no_grad": calls(1, 1),
    "torch_host/linear_module/no_grad": calls(2, 1),
    "torch_host/identity_module/no_grad": calls(0, 0),
    "torch_host/conv": calls(1, 1),
    "torch_host/pointwise/relu": calls(1, 1),
    "torch_host/item": lambda p: p["call_us"] + p["synchronize_us"],
}


def host_us(p, op, v):
    """What the host takes for a call; None: not planted in a form that is counted."""
    if op == "torch_host/linear":  # a transposed operand is a call, and no launch
        return calls(1 if v["pass"] == 1 else 2, 1)(p)
    if op.startswith("torch_host/optimizer/sgd"):
        passes = 3 if op.endswith("momentum") else 1
        return passes * calls(v["tensors"] if v["style"] == 0 else 1, lists(v))(p)
    if op == "torch_host/pointwise/relu" and v["pass"]:
        return None
    return HOST_US.get(op, lambda _: None)(p)


def load(path):
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def steady_ms(run):
    return (
        statistics.median(
            s["duration_ps"]
            for s in run["steps"]
            if s["kind"] == "steady" and not s.get("instrumented")
        )
        / MS
    )
