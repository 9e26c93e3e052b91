#!/usr/bin/env python3
"""How far a price of matrix products by tiles, waves and alignment carries: fitted to one GPU's shapes, tried on others.

    /usr/bin/python3 tools/python/gpu_products.py [FIT [OTHER]]     folders of calib/gpu-runs; default h100-sxm h200-sxm

    t = t0 + (product^4 + memory^4)^(1/4)
    product = the least over tiles a x b and splits s of the sum of
              ceil(ceil(M/a) ceil(N/b) s / SMs) (2 a b K/s / (rate/SMs * efficiency(a, b) * alignment) + fill)
              + what adding up s parts takes
    memory  = bytes of all operands / bandwidth

M, N, K: rows, columns and summed side of the product as it is computed, which differ between a linear layer's forward
and its two gradients. The alignment is that of the operands' rows: multiples of 16 bytes, 8, 4 or 2. A third of the
shapes is held out, by their hash. The constants are found by a random descent from a fixed seed; this shows what form
a price needs, and is not part of a prediction.
"""
import gzip
import hashlib
import json
import math
import random
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2] / "calib/gpu-runs"
SMS = 132  # H100 and H200, SXM
TILES = ((128, 256), (256, 128), (128, 128), (128, 64), (64, 128), (64, 64), (64, 256), (256, 64))
BYTES = {0: 4, 1: 4, 2: 2, 3: 2}
NAMES = {0: "fp32", 1: "tf32", 2: "bf16", 3: "fp16"}


def load(machine):
    """(M, N, K, alignment in bytes, precision, microseconds, held out) of each linear layer's product."""
    rows = []
    for s in json.loads(gzip.decompress((ROOT / machine / "torch-ops.json.gz").read_bytes()))["samples"]:
        if s["op"] != "torch/linear":
            continue
        p = s["parameters"]
        m, n, k, back, precision = (p[x] for x in ("m", "n", "k", "pass", "precision"))
        size = {0: (m, n, k), 1: (m, k, n), 2: (n, k, m)}[back]
        lines = (k, n) if back == 0 else (n, k)
        aligned = min(next(q for q in (16, 8, 4, 2) if x * BYTES[precision] % q == 0) for x in lines)
        held = hashlib.sha256(str((m, n, k, back, precision)).encode()).digest()[0] % 3 == 0
        rows.append((*size, aligned, precision, median(s["durations_ps"]) / 1e6, held))
    return rows


def price(row, c):
    m, n, k, aligned, precision = row[:5]
    rate = c["rate"] / SMS * c[f"aligned{aligned}"]
    least = math.inf
    for a, b in TILES:
        speed = rate * c[f"tile{max(a, b)}x{min(a, b)}"]
        for split in (1, 2, 4, 8, 16):
            if split > 1 and k / split < 256:
                break
            waves = math.ceil(math.ceil(m / a) * math.ceil(n / b) * split / SMS)
            took = waves * (2.0 * a * b * (k / split) / speed * 1e6 + c["fill"])
            least = min(least, took + (c["split"] + m * n * 4 * split / c["bandwidth"] * 1e6 if split > 1 else 0))
    memory = BYTES[precision] * (m * n + m * k + n * k) / c["bandwidth"] * 1e6
    return c["t0"] + (least ** 4 + memory ** 4) ** 0.25


def fit(rows, tries=700):
    rng = random.Random(1)
    c = {"t0": 2.5, "rate": max(2.0 * r[0] * r[1] * r[2] / r[5] for r in rows) * 1e6, "bandwidth": 2.8e12, "fill": 1.0, "split": 2.0, "aligned16": 1.0, "aligned8": 1.0, "aligned4": 0.35,
         "aligned2": 0.17, "tile256x128": 1.0, "tile128x128": 0.85, "tile128x64": 0.65, "tile64x64": 0.45, "tile256x64": 0.7}
    free = [k for k in c if k != "aligned16"]

    def off(x):
        return sum(abs(math.log(price(r, x) / r[5])) for r in rows)

    now = off(c)
    for _ in range(tries):
        new = dict(c)
        for key in rng.sample(free, rng.choice((1, 1, 2))):
            new[key] *= math.exp(rng.gauss(0, 0.12))
        if (then := off(new)) < now:
            c, now = new, then
    return c


def said(rows, c):
    errors = sorted(abs(price(r, c) / r[5] - 1) for r in rows)
    return f"{100 * median(errors):5.1f} % (p90 {100 * errors[len(errors) * 9 // 10]:.0f} %, {len(errors)} shapes)"


def main():
    machines = (sys.argv[1:] + ["h100-sxm", "h200-sxm"][len(sys.argv) - 1:])[:2]
    for machine in machines:
        if not (ROOT / machine / "torch-ops.json.gz").exists():
            sys.exit(f"gpu_products: {machine}: no such folder of calib/gpu-runs")
    ours, theirs = (load(m) for m in machines)
    for precision in (2, 1, 0):
        mine = [r for r in ours if r[4] == precision]
        c = fit([r for r in mine if not r[6]])
        print(f"{NAMES[precision]}: fitted {said([r for r in mine if not r[6]], c)}; held out {said([r for r in mine if r[6]], c)}; {machines[1]} {said([r for r in theirs if r[4] == precision], c)}")
        print("      " + ", ".join(f"{k} {v:.3g}" for k, v in c.items()))


if __name__ == "__main__":
    main()
