#!/usr/bin/env python3
"""Does ddpsim decide as horovod.py says Horovod does?

  horovod_lowered.py HOROVOD_PLAY DDPSIM   compares; exit 1 if something differs
  horovod_lowered.py HOROVOD_PLAY DDPSIM --self-test   a difference is noticed

1. The policy by itself (HOROVOD_PLAY, with the oracle's own clock): every steady step of every
   recording of Horovod (tests/data/recorded_orders), driven by its enqueue times, and questions
   drawn from a seed: dtypes, groups, caches that are too small, ranks that are late, GPUs.
2. What `ddpsim predict --plan horovod` played: each cycle's requests, fused by the oracle's rule,
   must give the same sets of tensors; cycles begin as far apart as they must.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import horovod
import recorded_horovod
import recordings

QUESTIONS = 400


def drawn(rng):
    """A question: few tensors, thresholds near their sizes, times that collide."""
    names = [f"t{i}" for i in range(rng.randint(1, 24))]
    types = rng.choice([["float32"], ["float32", "float16"], ["float32", "float16", "float64"]])
    tensors = {n: [rng.choice([1, 7, 64, 1000, 4096]), rng.choice(types)] for n in names}
    order = rng.sample(names, len(names))
    if rng.random() < 0.3:
        entries = horovod.split_groups(order, rng.randint(1, len(order)))
    else:
        entries = order
    times, now = [], 0.0
    for _ in entries:
        now += rng.choice([0, 0, 0.25, 0.5, 1, 3.75])
        times.append(now)
    late = rng.choice([0, 0, 0.5, 2.25])
    ready = [
        [[t + late * r + rng.choice([0, 0, 0.25]), e] for t, e in zip(times, entries)]
        for r in range(rng.randint(1, 4))
    ]
    for of_rank in ready:  # a rank's hooks run one after another
        for before, after in zip(of_rank, of_rank[1:]):
            after[0] = max(after[0], before[0])
    cached = rng.choice([names, names, [], names[: len(names) // 2]])
    return {
        "tensors": tensors,
        "ready": ready,
        "HOROVOD_CYCLE_TIME": rng.choice([0.5, 1, 1, 4]),
        "HOROVOD_FUSION_THRESHOLD": rng.choice([0, 4096, 8192, 20000, 1 << 27]),
        "HOROVOD_CACHE_CAPACITY": rng.choice([1024, 1024, 0, 5]) if cached != names else 1024,
        "cached": rng.sample(cached, len(cached)) if len(cached) <= 5 or cached == names else [],
        "HOROVOD_DISABLE_GROUP_FUSION": rng.random() < 0.2,
        "compression": rng.choice(["none", "none", "fp16"]),
        "local_size": rng.choice([1, 2]),
        "coordination": rng.choice([0, 0.125, 0.5]),
        "negotiation": rng.choice([0, 0.25]),
        "gpu": rng.random() < 0.4,
        "launch": 0.0625,
        "reduce": [rng.choice([0, 0.5, 2]), rng.choice([0, 2**-14])],
        "copy": rng.choice([0, 2**-16]),
    }


def recorded_questions():
    """Of each recording of Horovod its steady steps, as recorded_horovod.py asks them."""
    asked = []
    kept = horovod.operations
    horovod.operations = asked.append
    for path in sorted(recordings.DATA.glob("horovod__*")):
        told = recorded_horovod.Recorded(recordings.load(path))
        for number in range(1, len(told.steps)):
            told.played(number)
    horovod.operations = kept
    return asked


def differences(questions, played):
    for question, ours in zip(questions, played):
        theirs = [[op["start"], op["tensors"]] for op in horovod.operations(question)]
        if [t for _, t in ours] != [t for _, t in theirs]:
            yield f"{json.dumps(question)}\n  ddpsim {ours}\n  oracle {theirs}"
        elif any(abs(a[0] - b[0]) > 1e-3 for a, b in zip(ours, theirs)):
            yield f"{json.dumps(question)}\n  times: ddpsim {ours}\n  oracle {theirs}"


def play(program, questions):
    out = subprocess.run(
        [program], input=json.dumps(questions), capture_output=True, text=True, check=True
    ).stdout
    return [json.loads(line) for line in out.splitlines()]


# --- predictions
PREDICTIONS = [
    ["resnet50", "hgx-h100", []],
    ["resnet50", "hgx-h100", ["HOROVOD_FUSION_THRESHOLD=8388608", "HOROVOD_CYCLE_TIME=2"]],
    ["gpt2-small", "dgx-h100", ["cluster.hosts=4", "HOROVOD_CYCLE_TIME=0.1"]],
    ["bert-base", "gpu-ethernet-100g", ["compression=fp16"]],
    ["resnet101", "dgx-h100", ["cluster.hosts=2", "groups=5", "HOROVOD_CYCLE_TIME=0.25"]],
]


def predicted(ddpsim, workload, cluster, settings):
    """The spans of the last step that a prediction played: {name: (begin, end, tensors)}, us."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "run.json")
        command = [ddpsim, "predict", "--workload", workload, "--cluster", cluster]
        command += ["--plan", "horovod", "--format", "json", "--out", str(file)]
        for s in settings:
            command += ["--set", s]
        subprocess.run(command, check=True, capture_output=True)
        run = json.loads(file.read_text())
    spans = [s for s in run["run"]["spans"] if s["class"] == 0]
    return {s["op"]: (s["begin_ps"], s["end_ps"], s.get("tensors", [])) for s in spans}


def prediction_differs(ddpsim, workload, cluster, settings):
    """Cycles are rebuilt from what the prediction says of the hooks' requests: each decision takes
    what had been requested when its cycle began, fused by the oracle's rule, in the order of bits
    (that of the first requests). All ranks are alike."""
    spans = predicted(ddpsim, workload, cluster, settings)
    size = {}
    knobs = dict(s.split("=") for s in settings)
    asked = sorted((s[1], n.split("/", 1)[1]) for n, s in spans.items() if n.startswith("request/"))
    bits = {name: bit for bit, (_, name) in enumerate(asked)}
    half = knobs.get("compression") == "fp16"
    known = elements(ddpsim, workload)
    size = {n: e * (2 if half else 4) for n, e in known.items()}
    names = list(known)
    threshold = horovod.rounded_threshold(int(knobs.get("HOROVOD_FUSION_THRESHOLD", 1 << 27)), 8)
    cycle = 1e9 * float(knobs.get("HOROVOD_CYCLE_TIME", 1))
    fused = sorted(
        (int(n.rsplit(".", 1)[1]), s) for n, s in spans.items() if n.startswith("allreduce/")
    )
    begins = sorted(s[0] for n, s in spans.items() if n.startswith("coordinate/"))
    if groups := int(knobs.get("groups", 0)):  # asked for together, with the last of them
        told = {name: time for time, name in asked}
        for together in horovod.split_groups(names, groups):
            last = max(told[name] for name in together)
            told.update({name: last for name in together})
        asked = [(told[name], name) for _, name in asked]
    left = [[time, name] for time, name in asked]
    ours = [[names[t] for t in s[2]] for _, s in fused]
    theirs = []
    for begin in begins:
        taken = sorted((n for t, n in left if t <= begin), key=bits.get)
        left = [[t, n] for t, n in left if t > begin]
        theirs += horovod.fuse([(n, size[n], "") for n in taken], threshold, 16)
    if ours != theirs or left:
        return f"{workload} on {cluster} {settings}:\n  ddpsim {ours}\n  oracle {theirs}"
    # A cycle is no sooner than the one before; the first takes nothing later than a cycle.
    for before, after in zip(begins, begins[1:]):
        if after - before < cycle - 1:
            return f"{workload}: cycles {(after - before) / 1e9} ms apart"
    waits = min(b - asked[0][0] for b in begins)
    if not 0 <= waits <= cycle:
        return f"{workload}: the first request waited {waits / 1e9} ms"
    return None


def elements(ddpsim, workload):
    out = subprocess.run(
        [ddpsim, "show", "workload", workload, "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    tensors = json.loads(out)["tensors"]
    count = {}
    for t in tensors:
        n = 1
        for d in t["shape"]:
            n *= d
        count[t["name"]] = n
    return count


def main(argv):
    if len(argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    rng = random.Random(20261123)
    questions = recorded_questions()
    recorded = len(questions)
    questions += [drawn(rng) for _ in range(QUESTIONS)]
    played = play(argv[1], questions)
    if "--self-test" in argv:
        played[0][0][1] = played[0][0][1][1:]
        found = list(differences(questions, played))
        assert len(found) == 1, found
        print("horovod_lowered: a tensor that is missing was noticed")
        return 0
    found = list(differences(questions, played))
    found += [d for p in PREDICTIONS for d in [prediction_differs(argv[2], *p)] if d]
    for f in found[:5]:
        print(f[:3000])
    print(
        f"horovod_lowered: {recorded} recorded steps, {QUESTIONS} drawn questions and "
        f"{len(PREDICTIONS)} predictions, {len(found)} differ"
    )
    return 1 if found or recorded < 27 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
