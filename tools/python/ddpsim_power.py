"""What GPUs drew in recorded steps, by what their kernels did: tools/gpu_report's section Power,
and the numbers of `power` in profiles of GPUs that were measured (sim/MODEL.md, 5.1)."""

from statistics import median

COLUMNS = ("idle", "products fp32", "products tf32", "products half", "attention", "memory")


def shares(name, step_ms, by_kind):
    """Of a step of `step_ms`, the shares that COLUMNS are multiplied with. `by_kind`: ms of kernels
    by the report's kinds; `name`: of the capture, which says its precision."""
    precision = "half" if "bf16" in name or "fp16" in name else "tf32" if "tf32" in name else "fp32"
    products = by_kind.get("products", 0) / step_ms
    attention = by_kind.get("attention", 0) / step_ms
    rest = sum(by_kind.values()) / step_ms - products - attention
    return [
        1.0,
        *(products if precision == p else 0.0 for p in ("fp32", "tf32", "half")),
        attention,
        rest,
    ]


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
    """Watts by COLUMNS: least squares. steps: [(shares, watts)]."""
    n = len(COLUMNS)
    normal = [[sum(s[i] * s[k] for s, _ in steps) for k in range(n)] for i in range(n)]
    return solved(normal, [sum(s[i] * w for s, w in steps) for i in range(n)])


def watts(x, of):
    return sum(a * b for a, b in zip(x, of))


def power_table(steps):
    """steps: [(machine, shares, watts)]. The section, as lines of Markdown."""
    every = fitted([(s, w) for _, s, w in steps])
    off = [abs(watts(every, s) - w) for _, s, w in steps]
    out = [
        "",
        "## Power",
        "",
        (
            "What NVML said in a second of training, by what kernels did: watts = idle + the sum"
            " over kinds of their share of the step times"
        ),
        "the watts below, by least squares. *memory*: every other kernel.",
        "",
        "| steps of | " + " | ".join(COLUMNS) + " | steps | off, W: median | p90 |",
        "|---|" + "---:|" * (len(COLUMNS) + 3),
    ]

    def line(label, x, n, errors):
        errors = sorted(errors)
        out.append(
            f"| {label} | "
            + " | ".join(f"{v:.0f}" for v in x)
            + f" | {n} | {median(errors):.0f} | {errors[int(0.9 * len(errors))]:.0f} |"
        )

    line("all", every, len(steps), off)
    for machine in sorted({m for m, _, _ in steps}):
        mine = [(s, w) for m, s, w in steps if m == machine]
        others = [(s, w) for m, s, w in steps if m != machine]
        if len(mine) <= len(COLUMNS) or len(others) <= len(COLUMNS):
            continue
        x = fitted(others)
        errors = [abs(watts(x, s) - w) for s, w in mine]
        line(f"all but {machine}: off on it", x, len(others), errors)
    return out
