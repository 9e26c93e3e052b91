#!/usr/bin/env python3
"""Which algorithm Open MPI's coll/tuned runs for an MPI_Allreduce of a commutative operation,
beside `ddpsim predict`, whose answer names that of each all-reduce.

Written from the facts about Open MPI (v4.0.5, v4.1.6, v5.0.9: coll_tuned_decision_fixed.c,
coll_base_allreduce.c) before the C++, and sharing nothing with it. Standard library only.

    python3 open_mpi.py VERSION RANKS BYTES [ELEMENT_SIZE [FORCED]]  # what runs
    python3 open_mpi.py --compare DDPSIM                             # every scenario below
    python3 open_mpi.py --self-test DDPSIM                           # a wrong table is noticed
"""
import json
import subprocess
import sys
import tempfile

LINEAR, NONOVERLAPPING, DOUBLING, RING, SEGMENTED, RABENSEIFNER = 1, 2, 3, 4, 5, 6
NAMES = {
    LINEAR: "basic_linear",
    NONOVERLAPPING: "nonoverlapping",
    DOUBLING: "recursive_doubling",
    RING: "ring",
    SEGMENTED: "segmented_ring",
    RABENSEIFNER: "rabenseifner",
}


def fixed_4_0(ranks, size, count):
    if size < 10_000:
        return DOUBLING
    if count > ranks:
        return RING if ranks * 1_048_576 >= size else SEGMENTED
    return NONOVERLAPPING


def fixed_4_1(ranks, size):
    if ranks < 4:
        for limit, algorithm in (
            (8, RING), (4096, DOUBLING), (8192, RING), (16384, DOUBLING), (65536, RING),
            (262144, SEGMENTED),
        ):
            if size < limit:
                return algorithm
        return RABENSEIFNER
    if ranks < 8:
        return RING if size < 16 else DOUBLING if size < 8192 else RABENSEIFNER
    if ranks < 16:
        return DOUBLING if size < 8192 else RABENSEIFNER
    if ranks < 32:
        return SEGMENTED if size < 64 else DOUBLING if size < 4096 else RABENSEIFNER
    if ranks < 64:
        return SEGMENTED if size < 128 else RABENSEIFNER
    if ranks < 128:
        return DOUBLING if size < 262144 else RABENSEIFNER
    if ranks < 256:
        return NONOVERLAPPING if size < 131072 else DOUBLING if size < 262144 else RABENSEIFNER
    if ranks < 512:
        return NONOVERLAPPING if size < 4096 else RABENSEIFNER
    if ranks < 2048:
        return NONOVERLAPPING if size < 2048 else DOUBLING if size < 16384 else RABENSEIFNER
    if ranks < 4096:
        if size < 2048:
            return NONOVERLAPPING
        return SEGMENTED if size < 4096 else DOUBLING if size < 16384 else RABENSEIFNER
    if size < 2048:
        return NONOVERLAPPING
    return SEGMENTED if size < 16384 else DOUBLING if size < 32768 else RABENSEIFNER


def runs(version, ranks, size, element=4, forced=0, segment=0):
    """What is left after the algorithm's own check of the count."""
    count = size // element
    if forced:
        chosen = forced
    elif version == "4.0":
        chosen, segment = fixed_4_0(ranks, size, count), 1_048_576
    else:
        chosen, segment = fixed_4_1(ranks, size), 0
    if chosen == RABENSEIFNER:
        power = 1
        while power * 2 <= ranks:
            power *= 2
        return LINEAR if count < power else RABENSEIFNER
    if chosen == RING:
        return DOUBLING if count < ranks else RING
    if chosen == SEGMENTED:
        # A segment of so many whole elements; none given: all of them in one. With fewer than a
        # segment for every rank it is the plain ring, which looks at the count once more.
        per_segment = segment // element if segment >= element else count
        if count < ranks * per_segment:
            return DOUBLING if count < ranks else RING
    return chosen


# Version, ranks, extra settings; sizes come from `edges`.
DYNAMIC = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1"}
FORCE = "OMPI_MCA_coll_tuned_allreduce_algorithm"
SEGMENT = FORCE + "_segmentsize"
SCENARIOS = [("4.1", n, {}) for n in (2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256)]
SCENARIOS += [("4.1", n, {}) for n in (511, 512, 2047, 2048, 4095, 4096)]
SCENARIOS += [("4.0", n, {}) for n in (2, 3, 8, 100, 4096)]
SCENARIOS += [("5.0.9", n, {}) for n in (2, 5, 8, 33, 200)]
SCENARIOS += [("4.1.4", n, {**DYNAMIC, FORCE: str(a)}) for n in (3, 8) for a in range(7)]
SCENARIOS += [("4.1", 6, {**DYNAMIC, FORCE: "segmented_ring", SEGMENT: str(s)}) for s in (8, 4096)]
LIMITS = (8, 16, 64, 128, 2048, 4096, 8192, 10_000, 16384, 32768, 65536, 131072, 262144)


def edges(ranks):
    """Sizes, in elements of four bytes: at every limit of the tables and beside it, and where
    there are as many elements as ranks."""
    out = {1, 2, 3, 1_000_000, ranks - 1, ranks, ranks + 1, 4096 * 6, ranks * 262_144 + 1}
    power = 1 << (ranks.bit_length() - 1)
    out |= {power - 1, power}
    for limit in LIMITS:
        out |= {limit // 4 - 1, limit // 4, limit // 4 + 1}
    out.add(ranks * 262_144)
    return sorted(n for n in out if 0 < n <= 40_000_000)


def question(counts):
    tensors = [
        {"name": f"t{i}", "shape": [n], "dtype": "float32"} for i, n in enumerate(counts)
    ]
    ready = [1_000_000 * (i + 1) for i in range(len(counts))]
    return {
        "schema": "ddpsim.workload/1",
        "name": "sizes",
        "model": "synthetic",
        "basis": "captured",
        "batch": 1,
        "precision": "fp32",
        "device": {"kind": "cpu", "name": "made up"},
        "source": {"note": "made up for tests/oracle: tensors of given sizes"},
        "optimizer": {
            "name": "sgd", "momentum": False, "weight_decay": False, "foreach": False,
            "fused": False,
        },
        "tensors": tensors,
        "buffers": [],
        "arrival": list(reversed(range(len(counts)))),
        "times": {
            "forward_ps": 1_000_000,
            "backward_ps": ready[-1],
            "optimizer_ps": 1_000_000,
            "ready_ps": ready,
        },
    }


def predicted(ddpsim, folder, version, ranks, settings, counts):
    """{elements: algorithm}, as ddpsim has it."""
    path = f"{folder}/sizes.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(question(counts), f)
    command = [
        ddpsim, "predict", "--workload", path, "--cluster", "ethernet-10g", "--plan", "averaging",
        "--ranks", str(ranks), "--format", "json", "--fidelity", "collective",
    ]
    for key, value in {
        "cluster.hosts": ranks, "plan.backend": "mpi", "open_mpi": version, **settings,
    }.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    buckets = json.loads(done.stdout)["summary"]["buckets"]
    return {b["bytes"] // 4: b["algorithm"] for b in buckets}


def expected(version, ranks, settings, elements):
    forced = settings.get(FORCE, "0")
    ids = {name: number for number, name in NAMES.items()}
    forced = ids[forced] if forced in ids else int(forced)
    return NAMES[
        runs(version[:3], ranks, 4 * elements, 4, forced, int(settings.get(SEGMENT, 0)))
    ]


def compare(ddpsim, wrong=False):
    asked = differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for version, ranks, settings in SCENARIOS:
            counts = edges(ranks)
            found = predicted(ddpsim, folder, version, ranks, settings, counts)
            if set(found) != set(counts):
                raise SystemExit(f"{version}, {ranks} ranks: other sizes than were asked")
            for n in counts:
                asked += 1
                wanted = expected("4.0" if wrong else version, ranks, settings, n)
                if found[n] != wanted:
                    differ += 1
                    if not wrong:
                        print(f"Open MPI {version}, {ranks} ranks, {4 * n} bytes, {settings}: "
                              f"{found[n]}, and the oracle says {wanted}")
    print(f"{asked} choices in {len(SCENARIOS)} scenarios, {differ} differ")
    return differ


def self_test(ddpsim):
    assert runs("4.1", 4, 12) == DOUBLING, "three elements are too few for a ring of four"
    assert runs("4.1", 4, 16) == DOUBLING and runs("4.1", 2, 8) == DOUBLING
    assert runs("4.1", 2, 7, 1) == RING and runs("4.1", 3, 131072) == RING
    assert runs("4.1", 4, 8192) == RABENSEIFNER and runs("4.1", 7, 8191) == DOUBLING
    assert runs("4.1", 100, 262144 + 4) == RABENSEIFNER
    assert runs("4.1", 32, 16 * 8, 8) == RABENSEIFNER or runs("4.1", 32, 128, 8) == LINEAR
    assert runs("4.0", 8, 9996) == DOUBLING and runs("4.0", 8, 10_000) == RING
    assert runs("4.0", 8, (8 << 20) + 4) == SEGMENTED
    assert runs("4.0", 4096, 10_000) == NONOVERLAPPING
    # A wrong table is noticed.
    return 0 if compare(ddpsim, wrong=True) > 100 else 1


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        sys.exit(self_test(sys.argv[2]))
    if sys.argv[1] == "--compare":
        sys.exit(1 if compare(sys.argv[2]) else 0)
    arguments = [int(a) for a in sys.argv[2:]]
    print(NAMES[runs(sys.argv[1], *arguments)])
