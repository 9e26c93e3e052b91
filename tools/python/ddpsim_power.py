"""What GPUs drew in recorded steps, by what their kernels did: tools/gpu_report's section Power,
and the numbers of `power` in profiles of GPUs that were measured (docs/model.md, 5.1)."""

from statistics import median

PRECISIONS = ("half", "tf32", "fp32")
COLUMNS = ("idle, W", "busy, W", "pJ a FLOP: half", "TF32", "fp32")
KINDS = ("linear", "conv", "bmm")


def at(value, tokens):
    """A number of a workload's layer, which may be a polynomial of the sequence."""
    if not isinstance(value, list):
        return value
    return sum(c * tokens**i for i, c in enumerate(value))


def flops(workload, batch, tokens, again):
    """Of products, convolutions and attention in a step; `again`: forward is computed twice."""
    total = 0
    for layer in workload["layers"]:
        if layer.get("op", {}).get("kind") in KINDS:
            forward = at(layer["forward"]["flops_per_sample"], tokens)
            total += (2 if again else 1) * forward
            total += at(layer["backward"]["flops_per_sample"], tokens)
    return total * batch


def shares(precision, step_ms, busy_ms, step_flops):
    """What the numbers of COLUMNS are multiplied with to make watts."""
    kind = "half" if precision in ("bf16", "fp16") else precision
    rate = step_flops / step_ms / 1e9  # TFLOP/s: picojoules of each are watts
    return [1.0, busy_ms / step_ms, *(rate if kind == p else 0.0 for p in PRECISIONS)]


def solved(a, b):
    """x of a x = b, by elimination with pivots. a: rows of a square matrix."""
    rows = [[*line, right] for line, right in zip(a, b)]
    for i in range(len(rows)):
        best = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        rows[i], rows[best] = rows[best], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for k, row in enumerate(rows):
            if k != i:
                rows[k] = [v - row[i] * w for v, w in zip(row, rows[i])]
    return [row[-1] for row in rows]


def fitted(steps):
    """Numbers by COLUMNS: least squares. steps: [(shares, watts)]."""
    n = len(COLUMNS)
    normal = [[sum(s[i] * s[k] for s, _ in steps) for k in range(n)] for i in range(n)]
    return solved(normal, [sum(s[i] * w for s, w in steps) for i in range(n)])


def watts(x, of):
    return sum(a * b for a, b in zip(x, of))


def clock_at(x, limit, tflops):
    """Share of the clock at which products of `tflops` (at the full clock) draw the limit."""
    return min(1.0, ((limit - x[0]) / (x[1] + x[2] * tflops)) ** (1 / 3))


def power_table(steps, sustained, held=()):
    """The section, as lines of Markdown. steps: [(machine, shares, watts)]; sustained: {machine:
    (FLOP of a product, ms with pauses, ms without)}; held: machines that nothing is fitted to."""
    strangers = [one for one in steps if one[0] in held]
    steps = [one for one in steps if one[0] not in held]
    every = fitted([(s, w) for _, s, w in steps])
    out = [
        "",
        "## Power",
        "",
        (
            "What NVML said in a second of training, by what the GPU did: idle + busy x the share"
            " of the step in which kernels ran + energy x operations"
        ),
        "of products, convolutions and attention a second, by least squares.",
        "",
        "| steps of | " + " | ".join(COLUMNS) + " | steps | off, W: median | p90 |",
        "|---|" + "---:|" * (len(COLUMNS) + 3),
    ]

    def line(label, x, n, errors):
        errors = sorted(errors)
        cells = [f"{v:.0f}" for v in x[:2]] + [f"{v:.3f}" for v in x[2:]]
        out.append(
            f"| {label} | "
            + " | ".join(cells)
            + f" | {n} | {median(errors):.0f} | {errors[int(0.9 * len(errors))]:.0f} |"
        )

    line("all", every, len(steps), [abs(watts(every, s) - w) for _, s, w in steps])
    for machine in sorted({m for m, _, _ in steps}):
        mine = [(s, w) for m, s, w in steps if m == machine]
        others = [(s, w) for m, s, w in steps if m != machine]
        if min(len(mine), len(others)) <= len(COLUMNS):
            continue
        x = fitted(others)
        errors = [abs(watts(x, s) - w) for s, w in mine]
        line(f"all but {machine}: off on it", x, len(others), errors)
    for machine in sorted({m for m, _, _ in strangers}):
        errors = [abs(watts(every, s) - w) for m, s, w in strangers if m == machine]
        line(f"all: off on {machine}, which lent nothing", every, len(steps), errors)
    out += [
        "",
        (
            "No step drew 700 W, and none of this fit did. A product that does not pause for a"
            " second does: what the fit says of its clock, and what it took."
        ),
        "",
        "| machine | TFLOP/s with pauses | without | share of the clock | predicted |",
        "|---|---:|---:|---:|---:|",
    ]
    for machine, (work, paused, steady) in sorted(sustained.items()):
        rate = work / paused / 1e9
        out.append(
            f"| {machine} | {rate:.0f} | {work / steady / 1e9:.0f} | {paused / steady:.3f} |"
            f" {clock_at(every, 700, rate):.3f} |"
        )
    return out
