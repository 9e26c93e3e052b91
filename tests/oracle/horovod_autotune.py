#!/usr/bin/env python3
"""In which order does Horovod's autotuner try settings, and what does it settle on?

  horovod_autotune.py HOROVOD_PLAY   ddpsim's tuner against this one; exit 1 if they differ
  horovod_autotune.py --self-test           closed forms

Written from horovod 2626dc87, common/parameter_manager.{h,cc}, optim/bayesian_optimization.cc,
optim/gaussian_process.cc, and from no line of the simulator.

The chain is (fusion threshold, cycle time) jointly, hierarchical all-reduce, hierarchical
all-gather, torus all-reduce, cache. A score goes to the first; where that has finished, what its
best score is goes to the next, and so on: whoever has not finished sets its next value, and all
before it begin again. So the joint parameters go through 21 settings for every combination of the
flags that the environment does not fix. What comes after the four fixed points is random in
Horovod (std::random_device): here a question gives the points that were drawn, and only the rule of
acceptance is checked (its expected improvement is no lower than at most points).
"""
import functools
import json
import math
import random
import subprocess
import sys

POINTS = [(4, 5), (32, 50), (16, 25), (8, 10)]
BOUNDS = [(0, 64), (1, 100)]
FLAGS = ["hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce", "cache"]
MOST, NOISE, XI = 20, 0.8, 0.01


class Categorical:
    def __init__(self, fixed):
        self.tunable, self.values = fixed is None, [False, True]
        self.value = self.best = bool(fixed)
        self.best_score, self.index = 0.0, 0

    def tune(self, score):
        if score > self.best_score:
            self.best_score, self.best = score, self.value
        if not self.tunable:
            return True, self.best_score
        self.index += 1
        if self.index < len(self.values):
            self.value = self.values[self.index]
            return False, self.best_score
        self.value, self.index = self.values[0], 0
        return True, self.best_score


class Joint:
    """`draws`: what NextSample() returned, in order."""

    def __init__(self, fixed, draws):
        self.free = [i for i in range(2) if fixed[i] is None]
        self.draws = iter(draws)
        self.iteration, self.best_score, self.samples = 0, 0.0, []
        self.value = self.best = self.point(0)

    def point(self, i):
        return [POINTS[i][k] for k in self.free]

    def tune(self, score):
        if score > self.best_score:
            self.best_score, self.best = score, self.value
        self.samples.append((self.value, score))
        self.iteration += 1
        if self.iteration < len(POINTS):
            self.value = self.point(self.iteration)
        elif self.iteration <= MOST:
            self.value = next(self.draws)
        if self.iteration > MOST:
            self.value, self.iteration, self.samples = self.point(0), 0, []
            return True, self.best_score
        return False, self.best_score


class Manager:
    def __init__(self, fixed, draws):
        self.fixed = fixed
        self.joint = Joint([fixed.get("fusion_mb"), fixed.get("cycle_ms")], draws)
        self.flags: list = [Categorical(fixed.get(f)) for f in FLAGS]
        self.finished = False

    def tune(self, score):
        self.finished = True
        for parameter in [self.joint, *self.flags]:
            finished, score = parameter.tune(score)
            if not finished:
                self.finished = False
                return

    def setting(self, best=False):
        out = {f: (p.best if best else p.value) for f, p in zip(FLAGS, self.flags)}
        joint = iter(self.joint.best if best else self.joint.value)
        for name in ("fusion_mb", "cycle_ms"):
            out[name] = self.fixed[name] if name in self.fixed else next(joint)
        return out


# --- the process, by plain linear algebra
def kernel(a, b, length, height):
    squared = sum((x - y) ** 2 for x, y in zip(a, b))
    return height**2 * math.exp(-0.5 / length**2 * squared)


def inverted(matrix):
    """Gauss and Jordan, with pivots."""
    n = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(n))] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        mine = rows[i] = [v / rows[i][i] for v in rows[i]]
        for r in range(n):
            if r != i:
                factor = rows[r][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], mine)]
    return [row[n:] for row in rows]


@functools.lru_cache(4)
def between(xs, length, height, noise):
    """The inverse of the matrix between the known points."""
    return inverted(
        [
            [kernel(a, b, length, height) + (noise**2 if i == j else 0) for j, b in enumerate(xs)]
            for i, a in enumerate(xs)
        ]
    )


def posterior(x, xs, ys, length, height, noise=NOISE):
    inverse = between(tuple(map(tuple, xs)), length, height, noise)
    ks = [kernel(a, x, length, height) for a in xs]
    weight = [sum(a * b for a, b in zip(row, ks)) for row in inverse]
    mean = sum(a * b for a, b in zip(weight, ys))
    variance = height**2 + 1e-8 - sum(a * b for a, b in zip(ks, weight))
    return mean, math.sqrt(max(variance, 0))


@functools.lru_cache(4)
def best_of(xs, ys, length, height):
    return max(posterior(a, xs, ys, length, height)[0] for a in xs)


def improvement(x, xs, ys, length, height):
    best = best_of(tuple(map(tuple, xs)), tuple(ys), length, height)
    mean, deviation = posterior(x, xs, ys, length, height)
    better = mean - best - XI
    z = better / deviation
    return better * 0.5 * math.erfc(-z / math.sqrt(2)) + deviation * math.exp(
        -z * z / 2
    ) / math.sqrt(2 * math.pi)


def normalised(ys):
    if len(ys) < 3:
        return ys
    mean = sum(ys) / len(ys)
    deviation = math.sqrt(sum((y - mean) ** 2 for y in ys) / len(ys))
    return [(y - mean) / deviation for y in ys] if deviation else [y - mean for y in ys]


# --- against ddpsim
def score_of(setting, landscape):
    """A smooth landscape with a peak, and what the flags add."""
    peak, width, flags = landscape["peak"], landscape["width"], landscape["flags"]
    away = sum(((setting[k] - p) / width) ** 2 for k, p in zip(("fusion_mb", "cycle_ms"), peak))
    slope = 0.1 * setting["fusion_mb"] - 0.05 * setting["cycle_ms"]
    flat = 100 + slope + sum(v for f, v in flags.items() if setting[f])
    return 1000 * math.exp(-away) + flat


def landscapes(rng):
    fixed = [
        {},
        {"cycle_ms": 2.0},
        {"fusion_mb": 128.0},
        {"fusion_mb": 64.0, "cycle_ms": 1.0},
        {"cache": True},
        {f: False for f in FLAGS[:3]},
        {f: False for f in FLAGS},
        {"hierarchical_allreduce": True, "torus_allreduce": False},
        {"cache": False, "cycle_ms": 5.0},
        {"hierarchical_allgather": False, "fusion_mb": 1.0},
        {"torus_allreduce": True},
        {"hierarchical_allreduce": False, "torus_allreduce": False},
    ]
    for k, f in enumerate(fixed):
        yield {
            "seed": k + 1,
            "fixed": f,
            "landscape": {
                "peak": [rng.uniform(0, 64), rng.uniform(1, 100)],
                "width": rng.choice([12, 25, 60]),
                "flags": {name: rng.choice([-50, 0, 30]) for name in FLAGS},
            },
        }


def difference(question, told):
    fixed = question["fixed"]
    free = [k for k in ("fusion_mb", "cycle_ms") if k not in fixed]
    tried = told["tried"]
    draws = [
        [t["setting"][k] for k in free]
        for i, t in enumerate(tried)
        if i % (MOST + 1) >= len(POINTS)
    ]
    manager = Manager(fixed, draws)
    for i, t in enumerate(tried):
        if manager.finished:
            return f"{len(tried)} settings, not {i}"
        if manager.setting() != t["setting"]:
            return f"setting {i}: {t['setting']}, not {manager.setting()}"
        wanted = score_of(t["setting"], question["landscape"])
        if abs(wanted - t["score"]) > 1e-9 * wanted:
            return f"score {i}: {t['score']}, not {wanted}"
        manager.tune(t["score"])
    if not manager.finished:
        return f"after {len(tried)} settings it is not finished"
    if manager.setting(best=True) != told["best"]:
        return f"settles on {told['best']}, not {manager.setting(best=True)}"
    if not free:
        return None
    # Of the first pass: the process, and what was drawn.
    rng = random.Random(question["seed"])
    for step, p in zip(range(len(POINTS), MOST + 1), told["processes"]):
        xs = [[t["setting"][k] for k in free] for t in tried[:step]]
        ys = normalised([t["score"] for t in tried[:step]])
        drawn = [tried[step]["setting"][k] for k in free]
        bounds = [b for b, k in zip(BOUNDS, ("fusion_mb", "cycle_ms")) if k in free]
        if any(not low <= d <= high for d, (low, high) in zip(drawn, bounds)):
            return f"setting {step} is out of bounds: {drawn}"
        mean, deviation = posterior(drawn, xs, ys, p["length"], p["height"])
        if abs(mean - p["mean"]) > 1e-6 or abs(deviation - p["deviation"]) > 1e-6:
            return f"process {step}: {p}, not {mean}, {deviation}"
        ours = improvement(drawn, xs, ys, p["length"], p["height"])
        if abs(ours - p["improvement"]) > 1e-6:
            return f"improvement {step}: {p['improvement']}, not {ours}"
        others = [
            improvement([rng.uniform(*b) for b in bounds], xs, ys, p["length"], p["height"])
            for _ in range(12)
        ]
        if sum(o > ours + 1e-6 for o in others) > 5:  # it is the best of 25 starts
            return f"setting {step}: of 12 points {sum(o > ours for o in others)} promise more"
    return None


def compare(play):
    rng = random.Random(20261125)
    questions = list(landscapes(rng))
    asked = json.dumps(questions)
    out = subprocess.run(
        [play, "--autotune"], input=asked, capture_output=True, text=True, check=True
    ).stdout
    found = []
    for question, line in zip(questions, out.splitlines(), strict=True):
        if problem := difference(question, json.loads(line)):
            found.append(f"{question}: {problem}")
    for f in found[:4]:
        print(f[:2000])
    print(f"horovod_autotune: {len(questions)} courses, {len(found)} differ")
    return 1 if found else 0


def self_test():
    failed = []

    def expect(what, condition):
        if not condition:
            failed.append(what)

    manager = Manager({}, ([i, i] for i in range(10_000)))
    settings = []
    while not manager.finished:
        settings.append(manager.setting())
        manager.tune(1.0 + (settings[-1]["cache"] and settings[-1]["fusion_mb"] == 16))
    expect("21 settings of 16 combinations", len(settings) == 21 * 16)
    expect("the fixed points first", [s["fusion_mb"] for s in settings[:4]] == [4, 32, 16, 8])
    expect("and again in each pass", [s["cycle_ms"] for s in settings[21:25]] == [5, 50, 25, 10])
    expect("hierarchical all-reduce first", settings[21]["hierarchical_allreduce"])
    expect("the cache last", [s["cache"] for s in settings].index(True) == 21 * 8)
    best = manager.setting(best=True)
    expect("the best", best["cache"] and best["fusion_mb"] == 16 and best["cycle_ms"] == 25)
    manager = Manager({f: False for f in FLAGS} | {"cycle_ms": 1}, ([i] for i in range(100)))
    count = 0
    while not manager.finished:
        manager.tune(1.0)
        count += 1
    expect("one pass where all flags are fixed", count == 21)
    mean, deviation = posterior([0.0], [[0.0]], [1.0], 1, 1)
    expect("one sample: mean", abs(mean - 1 / 1.64) < 1e-12)
    expect("one sample: deviation", abs(deviation - math.sqrt(1 + 1e-8 - 1 / 1.64)) < 1e-12)
    expect("far away it knows nothing", abs(posterior([50.0], [[0.0]], [1.0], 1, 1)[1] - 1) < 1e-6)
    for f in failed:
        print("failed:", f)
    print("self-test:", "failed" if failed else "ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else compare(sys.argv[1]))
