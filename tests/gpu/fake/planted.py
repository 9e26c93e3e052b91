"""What is planted in the fake GPU (fake.h), and what follows from that alone: what each sample of a
Run must say, and what a fit must find."""
import random

MOVES = [8, 12, 4, 6, 8, 12, 20, 28]  # bytes an element: calib/cuda/kernels.h
PRECISIONS = ["fp32", "tf32", "bf16", "fp16"]
HALVES = (2, 3)
CLOCK_US = 0.05  # what reading the host's clock takes
SYNCHRONIZE_US = 0.3  # of an idle stream: tests/gpu/fake/runtime.cc
DEFAULT = {
    "memory_bytes_per_s": 3e12,
    "kernel_us": 2.5,
    "fp32": 5e13,
    "tf32": 4e14,
    "bf16": 8e14,
    "fp16": 7.5e14,
    "conv": 0.6,
    "conv_algorithm": 2,
    "conv_workspace_bytes": 256 << 20,
    "conv_quick": 1.7,
    "conv_quick_algorithm": 5,
    "conv_quick_workspace_bytes": 3 << 30,
    "launch_us": 2.1,
    "product_hold": 0.008,
    "memory_hold": 0.012,
    "block_bytes_per_us": 60000,
    "pcie_bytes_per_s": 5e10,
    "pageable_bytes_per_s": 1e10,
    "nccl_step_us": 10,
    "nccl_bytes_per_s": 2e9,
    "event_us": 0.4,
    "latency_us": 3,
    "noise": 0,
    "form": 0,
}
TILES = {
    "form": 2,
    "wave_us": 1.3,
    "split_us": 4.5,
    "tile128": 0.8,
    "tile64": 0.42,
    "aligned4": 0.31,
    "aligned2": 0.16,
}
SMS = 132


def drawn(seed):
    r = random.Random(seed)
    bf16 = r.uniform(3e14, 1.2e15)
    algorithm, quick = r.sample((2, 4, 5), 2)
    return {
        "memory_bytes_per_s": r.uniform(1.5e12, 5e12),
        "kernel_us": r.uniform(1.5, 4),
        "fp32": r.uniform(3e13, 8e13),
        "tf32": bf16 * r.uniform(0.4, 0.6),
        "bf16": bf16,
        "fp16": bf16 * r.uniform(0.9, 1.1),
        "conv": r.uniform(0.35, 0.9),
        "conv_algorithm": algorithm,
        "conv_workspace_bytes": r.randrange(1 << 20, 1 << 30),
        "conv_quick": r.uniform(1.2, 2.5),
        "conv_quick_algorithm": quick,
        "conv_quick_workspace_bytes": r.randrange(1 << 20, 16 << 30),
        "launch_us": r.uniform(1.5, 4),
        "product_hold": r.uniform(0.002, 0.014),
        "memory_hold": r.uniform(0.002, 0.014),
        "block_bytes_per_us": r.uniform(45000, 90000),
        "pcie_bytes_per_s": r.uniform(2e10, 6e10),
        "pageable_bytes_per_s": r.uniform(5e9, 1.5e10),
        "nccl_step_us": r.uniform(5, 20),
        "nccl_bytes_per_s": r.uniform(1e9, 5e9),
        "event_us": r.uniform(0.2, 0.8),
        "latency_us": r.uniform(1, 6),
        "nccl_version": 23003,
        "noise": 0.002,
        "form": 0,
    }


# What a sample must say, in microseconds, from the planted values alone; None: nothing is planted.


def memory(p, moved):
    us = moved / p["memory_bytes_per_s"] * 1e6
    return p["kernel_us"] + us if p["form"] else max(p["kernel_us"], us)


def product(p, flops, rate, moved):
    us = flops / rate * 1e6
    return max(memory(p, moved), p["kernel_us"] + us if p["form"] else us)


def conv_us(p, v, faster=1):
    out = (v["size"] + 2 * (v["kernel"] // 2) - v["kernel"]) // v["stride"] + 1
    image = v["batch"] * v["channels"] * v["size"] ** 2
    result = v["batch"] * v["filters"] * out**2
    weights = v["channels"] * v["filters"] * v["kernel"] ** 2
    each = 2 if v["precision"] in HALVES else 4
    flops = 2 * result * v["channels"] * v["kernel"] ** 2
    rate = faster * p["conv"] * p[PRECISIONS[v["precision"]]]
    return product(p, flops, rate, each * (image + result + weights))


def conv_of_mode(p, v):
    """(microseconds, algorithm, workspace): what the heuristics name, or (mode 1) the fastest."""
    named = conv_us(p, v), p["conv_algorithm"], p["conv_workspace_bytes"]
    if v["mode"] == 0 or (v["kernel"], v["stride"]) != (3, 1):
        return named
    quick = conv_us(p, v, p["conv_quick"])
    found = quick, p["conv_quick_algorithm"], p["conv_quick_workspace_bytes"]
    return found if quick < named[0] else named


def tiled_us(p, rows, columns, total, rate, moved, aligned):
    rate *= {4: p["aligned4"], 2: p["aligned2"]}.get(aligned, 1)
    ways = []
    for a, b, share in (
        (256, 128, 1),
        (128, 256, 1),
        (128, 128, p["tile128"]),
        (64, 64, p["tile64"]),
    ):
        tiles = -(-rows // a) * -(-columns // b)
        for parts in (1, 2, 4, 8, 16, 32, 64, 128):
            if parts > 1 and (total / parts < 256 or tiles * parts > 8 * SMS):
                break
            wave = 2 * a * b * total / parts / (rate / SMS * share) * 1e6 + p["wave_us"]
            added = 4 * rows * columns * parts / p["memory_bytes_per_s"] * 1e6 + p["split_us"]
            ways.append(-(-tiles * parts // SMS) * wave + (added if parts > 1 else 0))
    memory_us = moved / p["memory_bytes_per_s"] * 1e6
    return p["kernel_us"] + (min(ways) ** 4 + memory_us**4) ** 0.25


def gemm_us(p, v):
    m, n, k = v["m"], v["n"], v["k"]
    each = 2 if v["precision"] in HALVES else 4
    if p["form"] == 2:
        aligned = next((by for by in (8, 4) if not n * each % by and not k * each % by), 2)
        return tiled_us(
            p, m, n, k, p[PRECISIONS[v["precision"]]], each * (m * n + m * k + n * k), aligned
        )
    return product(p, 2 * m * n * k, p[PRECISIONS[v["precision"]]], each * (m * n + m * k + n * k))


def interference_us(p, v):
    alone = [
        lambda: gemm_us(p, {"m": 4096, "n": 4096, "k": 4096, "precision": 2}),
        lambda: conv_us(
            p,
            {
                "batch": 64,
                "channels": 128,
                "size": 28,
                "filters": 128,
                "kernel": 3,
                "stride": 1,
                "precision": 1,
            },
        ),
        lambda: memory(p, 8 * (32 << 20)),
    ][v["victim"]]()
    hold = p["memory_hold"] if v["victim"] == 2 else p["product_hold"]
    return alone / (1 - hold * v["blocks"])


def collective_us(p, op, v):
    n, size = v["ranks"], v["bytes"]
    if n == 1:
        return memory(p, 2 * size)
    if op in ("all_to_all", "send_receive"):
        tree, ll = False, size <= 65536
    else:
        tree, ll = v["algorithm"] == 0, v["protocol"] == 0
    step = p["nccl_step_us"] / (4 if ll else 1)
    rate = p["nccl_bytes_per_s"] / 1e6 / (2 if ll else 1)
    if op == "all_reduce" and tree:
        return 2 * (n - 1).bit_length() * step + 2 * size / rate
    if op in ("all_to_all", "send_receive"):
        return step + size / rate
    if op in ("broadcast", "reduce"):
        return (n - 1) * step + size / rate
    return (2 if op == "all_reduce" else 1) * (n - 1) * (step + size / n / rate)


def copy_us(p, v):
    if v["kind"] in (0, 2):  # page-locked memory
        return max(p["kernel_us"], v["bytes"] / p["pcie_bytes_per_s"] * 1e6)
    if v["kind"] == 4:
        return memory(p, 2 * v["bytes"])
    if v["kind"] in (1, 3):  # the call itself waits
        return (
            p["launch_us"]
            + p["latency_us"]
            + SYNCHRONIZE_US
            + max(p["kernel_us"], v["bytes"] / p["pageable_bytes_per_s"] * 1e6)
        )
    return None


def expected_us(p, op, v):
    if op == "move":
        return memory(p, MOVES[v["kernel"]] * v["elements"])
    if op in ("gemm", "gemm_sustained"):
        return gemm_us(p, v)
    if op == "conv":
        return conv_of_mode(p, v)[0]
    if op == "interference":
        return interference_us(p, v)
    if op == "interference_traffic":
        return None
    if op == "copy":
        return copy_us(p, v)
    if op == "launch":
        return p["launch_us"]
    if op in ("kernel_gap", "event_handover"):
        return p["kernel_us"]
    if op in ("event_record", "event_record_timed", "event_wait"):
        return p["event_us"]
    if op == "stream_synchronize":
        return SYNCHRONIZE_US
    if op == "launch_and_synchronize":
        return p["launch_us"] + p["latency_us"] + p["kernel_us"]
    if op in (
        "all_reduce",
        "reduce_scatter",
        "all_gather",
        "broadcast",
        "reduce",
        "all_to_all",
        "send_receive",
    ):
        return collective_us(p, op, v)
    return None


def judge_samples(p, run, within=0.01):
    """(how many were judged, sentences about those that are wrong). Every reading counts, but the
    first of a collective, which waits for the ranks' clocks."""
    wrong, judged = [], 0
    for sample in run["samples"]:
        v = sample["parameters"]
        want = expected_us(p, sample["op"], v)
        if sample["op"] == "interference_traffic":
            moved = v["bytes"] / sample["durations_ps"][0] * 1e6 / v["blocks"]
            rate = min(v["bytes_per_us"] or 1e18, p["block_bytes_per_us"])
            if abs(moved / rate - 1) > within:
                wrong.append(f"{sample['op']} {v}: {moved:.0f} bytes a microsecond, not {rate:.0f}")
        if want is None:
            continue
        judged += 1
        if sample["op"] == "move" and v["traffic"] != MOVES[v["kernel"]] * v["elements"]:
            wrong.append(f"move {v}: counts {v['traffic']} bytes")
        if sample["op"] == "conv":
            _, algorithm, workspace = conv_of_mode(p, v)
            if (v.get("algorithm"), v.get("workspace_bytes")) != (algorithm, workspace):
                wrong.append(f"conv {v}: not cuDNN's algorithm {algorithm} in {workspace} bytes")
        readings = [d / 1e6 for d in sample["durations_ps"]]
        if "ranks" in v:
            readings = readings[1:]
        if "period_ps" in v:
            readings.append(v["period_ps"] / 1e6)
        worst = max(readings, key=lambda r: abs(r / want - 1), default=want)
        single = sample["op"] == "launch_and_synchronize" or v.get("kind") in (1, 3)
        if abs(worst - want) > within * want + (CLOCK_US if single else 0.002):
            wrong.append(f"{sample['op']} {v}: {worst:.3f} us, not {want:.3f}")
    return judged, wrong


FRAMEWORK_LAUNCH_US = 5  # h100-sxm.datasheet


def found_by_tiles(kernels, p):
    """[(what, planted, fitted)] of the constants that shapes of real models identify."""
    add = next(c for c in kernels["memory"] if c["op"] == "add")
    rows = [
        ("SMs", SMS, kernels["sms"]),
        ("bandwidth", p["memory_bytes_per_s"], kernels["bandwidth_bytes_per_s"]),
        ("plain kernel, us", p["kernel_us"], add["fixed_ps"] / 1e6),
    ]
    for c in kernels["products"]:
        if c["class"] == "gemm":
            name = c["precision"]
            rows.append((f"tiles {name}", p[name], c["flops_per_s"]))
            if name == "bf16":  # elsewhere hardly a product is short enough to tell it from waves
                rows.append((f"tiles {name}, fixed us", p["kernel_us"], c["fixed_ps"] / 1e6))
            if name in ("bf16", "fp16"):  # a vocabulary of 50,257 halves
                rows.append((f"tiles {name}, 2 bytes", p["aligned2"], c["unaligned"]["2"]))
            else:
                rows.append((f"tiles {name}, 4 bytes", p["aligned4"], c["unaligned"]["4"]))
    return rows


def found_by_fit(profile, p):
    """[(what, planted, fitted)]"""
    m, c, i = profile["memory"], profile["compute"], profile["interference"]
    # What CUDA's bare launch takes is no framework's call: the base profile's is kept.
    rows = [
        (
            "memory bandwidth",
            p["memory_bytes_per_s"],
            m["bandwidth_bytes_per_s"] * m["efficiency"]["mid"],
        ),
        ("kernel floor, us", p["kernel_us"], m["kernel_ps"] / 1e6),
        ("a framework's launch, us", FRAMEWORK_LAUNCH_US, profile["host"]["launch_ps"] / 1e6),
    ]
    if p["form"] == 2:
        rows += found_by_tiles(profile["kernels"], p)
    for precision in PRECISIONS:
        peak = c["peak_flops"][precision]
        if p["form"] == 0:
            rows.append((f"gemm {precision}", p[precision], peak * c["efficiency"]["gemm"]["mid"]))
        if precision != "fp16":  # no convolution is measured in it
            rows.append(
                (
                    f"conv {precision}",
                    p["conv"] * p[precision],
                    peak * c["efficiency"]["conv"]["mid"],
                )
            )
    for what, hold in (("sm_hold", p["product_hold"]), ("memory_hold", p["memory_hold"])):
        for level, blocks in (("low", 24), ("mid", 20), ("high", 16)):
            rows.append((f"{what} {level}", hold * blocks, i[what][level]))
    return rows
