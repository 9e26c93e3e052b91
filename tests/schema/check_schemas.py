#!/usr/bin/python3
"""JSON Schema of each kind of file (ddpsim schema) beside its reader.

  tests/schema/check_schemas.py DDPSIM    every shipped file is valid; among files with a mistake
                                          the schema refuses what the reader refuses, and nothing
                                          that the reader takes
  tests/schema/check_schemas.py --self-test

Exit code: 0 as said, 1 not, 77 without jsonschema (Debian: python3-jsonschema).
"""
import copy
import gzip
import json
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MISTAKES = 400  # files that are tried; at least LEAST of them are refused by reader and schema
LEAST = 200
FOLDERS = ("workloads", "topologies", "scenarios", "calib", "tests", "reports", "tools")
LARGE = 300_000  # bytes of a packed or plain file beyond which it is left out
EACH = 9  # of the packed files, which are alike, one in so many is looked at
TRIED = ("workload", "cluster", "profile", "scenario", "run")  # that `ddpsim show` reads
# Questions that are refused, as JSON.
REFUSED = [
    ["predict", "--workload", "resnet5", "--cluster", "hgx-h100"],
    ["predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--set", "cluster.hostz=2"],
    ["predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--ranks", "0"],
    ["predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--rankz", "2"],
    ["predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--set", "bucket_cap_mb=x"],
    ["show", "run", "no_such_file.json"],
    ["show", "plan", "ddpx"],
    ["tune", "no_such_file.json"],
    ["topology", "show", "dgx-h10"],
    ["sweep"],
]
# For files that have all keys, or that nothing shipped has.
FIXTURES = {
    "cluster": [
        {
            "schema": "ddpsim.cluster/1",
            "name": "drawn",
            "pattern": "star",
            "hosts": 2,
            "device": {"kind": "gpu", "profile": "h100"},
            "link": {"bandwidth": "100Gb/s", "latency": "5us", "transport": "nccl_tcp"},
            "inside": {
                "vertices": [
                    {"name": "g0", "kind": "gpu"},
                    {"name": "g1", "kind": "gpu"},
                    {"name": "n0", "kind": "nic"},
                    {"name": "s", "kind": "pcie_switch"},
                ],
                "links": [
                    {"from": v, "to": "s", "bandwidth": "25GB/s", "transport": "pcie"}
                    for v in ("g0", "g1", "n0")
                ],
            },
        },
        {
            "schema": "ddpsim.cluster/1",
            "$schema": "cluster.schema.json",
            "name": "tree",
            "pattern": "fat_tree",
            "hosts": 8,
            "hosts_per_leaf": 4,
            "spines": 2,
            "oversubscription": "2:1",
            "ecmp": "hash",
            "devices_per_host": 1,
            "device": {"kind": "gpu", "profile": "h100"},
            "link": {"bandwidth": "100Gb/s", "latency": "5us", "transport": "nccl_tcp"},
            "nccl": {"cpu": "amd", "ll": False},
            "slow_links": [{"host": 1, "bandwidth": "10Gb/s"}],
        },
    ],
    "scenario": [
        {
            "schema": "ddpsim.scenario/1",
            "workload": "resnet50",
            "cluster": "dgx-h100",
            "plan": {
                "system": "pytorch_ddp",
                "bucket_cap_mb": 50,
                "pytorch": "2.7",
                "environment": {"NCCL_ALGO": "ring"},
                "comm_hook": "fp16_compress",
            },
            "ranks": 8,
            "slow_ranks": {"3": 1.5},
            "jitter": {"cv": 0.1, "seed": 3},
            "input": {"samples_per_s": 2000, "bytes_per_sample": "147KiB", "copy": "ahead"},
        },
        {
            "schema": "ddpsim.scenario/1",
            "workload": "gpt2-small",
            "cluster": "dgx-h100",
            "plan": {"system": "zero3", "stage3_prefetch_bucket_size": 5e7},
            "ranks": 4,
        },
        {
            "schema": "ddpsim.scenario/1",
            "workload": "gpt2-small",
            "cluster": "dgx-h100",
            "plan": {"system": "fsdp", "sharding_strategy": "shard_grad_op", "units": 2},
        },
    ],
}


def shipped():
    """(name, document) of every file of the tree that says its schema, but for large ones."""
    for folder in FOLDERS:
        packed = sorted((ROOT / folder).rglob("*.json.gz"))[::EACH]
        for path in sorted((ROOT / folder).rglob("*.json")) + packed:
            if path.stat().st_size > LARGE or "BAD" in path.parts or "bad" in path.parts:
                continue
            raw = path.read_bytes()
            text = gzip.decompress(raw) if path.suffix == ".gz" else raw
            try:
                document = json.loads(text)
            except ValueError:
                continue  # some tests' files are broken on purpose
            if isinstance(document, dict) and "schema" in document and len(text) < 20 * LARGE:
                yield str(path.relative_to(ROOT)), document


def places(node, at=()):
    """Paths of all values."""
    yield at
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in items:
        if isinstance(child, (dict, list)):
            yield from places(child, (*at, key))
        else:
            yield (*at, key)


def value_at(document, path):
    for key in path:
        document = document[key]
    return document


def with_mistake(document, draw):
    """A copy with one thing changed, and what."""
    out = copy.deepcopy(document)
    free = {"source", "raw", "residuals", "notes", "description", "name"}  # nothing reads them
    inner = [p for p in places(out) if p and not free & set(p)]
    path = draw.choice(inner)
    parent, key = value_at(out, path[:-1]), path[-1]
    value = parent[key]
    kind = draw.choice(["type", "unknown", "absent", "word", "number"])
    if kind == "unknown":
        holders = [p for p in places(out) if isinstance(value_at(out, p), dict)]
        path = (*draw.choice([p for p in holders if "source" not in p]), "no_such_key")
        value_at(out, path[:-1])["no_such_key"] = 1
    elif kind == "absent" and isinstance(parent, dict):
        del parent[key]
    elif kind == "word" and isinstance(value, str):
        parent[key] = value + draw.choice(["?", " of sorts", "\u00e9"])
    elif kind == "number" and isinstance(value, (int, float)) and not isinstance(value, bool):
        parent[key] = draw.choice([-value - 1, 1.5, 10**17])
    else:
        kind = "type"
        wrong = [v for v in (7, "seven", True, [], {}, [1, "a"]) if type(v) is not type(value)]
        parent[key] = draw.choice(wrong)
    return out, f"{'/'.join(map(str, path))}: {kind}"


def is_tried(shown):
    """Large files are slow to try and have nothing that small ones lack; a part is no profile."""
    name, document = shown
    part = "extends" in document or "/bases/" in name
    return len(json.dumps(document)) < 60_000 and not part


def reads(ddpsim, kind, document, folder, number):
    """None, or the reader's refusal."""
    path = Path(folder) / f"{kind}-{number}.json"
    path.write_text(json.dumps(document))
    done = subprocess.run(
        [ddpsim, "show", kind, str(path)], capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else done.stderr.strip()


def is_of_schema(refusal):
    """A mistake that a schema can see: the rest is about values beside one another."""
    return any(
        words in refusal
        for words in (
            "unknown key",
            "is missing",
            "expected",
            "is none of",
            "is not within",
            "belongs to",
            "is no unit",
            "has no unit",
        )
    )


def check(ddpsim):
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        print("skipped: python3-jsonschema is not installed")
        return 77
    wrong = []
    draw = random.Random(56)
    validators, documents = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([ddpsim, "schema", "--folder", folder], check=True)
        for path in Path(folder).glob("*.schema.json"):
            schema = json.loads(path.read_text())
            Draft202012Validator.check_schema(schema)
            kind = path.name.removesuffix(".schema.json")
            validators[kind] = Draft202012Validator(schema)
            documents[kind] = [(f"fixture {k}", d) for k, d in enumerate(FIXTURES.get(kind, []))]
    for name, document in shipped():
        kind = str(document["schema"]).removeprefix("ddpsim.").removesuffix("/1")
        if kind in validators:
            documents[kind].append((name, document))
    for kind, found in documents.items():
        for name, document in found:
            if "/bases/" in name:  # it is extended, and no profile by itself
                document = document | {"extends": "gpu"}
            for error in list(validators[kind].iter_errors(document))[:3]:
                wrong.append(f"{name} is not valid: {error.json_path}: {error.message[:200]}")
    small = {
        k: [d for d in v if is_tried(d)]
        for k, v in documents.items()
    }
    tries = []
    for number in range(MISTAKES):
        kind = TRIED[number % len(TRIED)]
        name, document = draw.choice(small[kind])
        changed, what = with_mistake(document, draw)
        tries.append((number, kind, f"{name}: {what}", changed))
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(2) as pool:
            refusals = list(pool.map(lambda t: reads(ddpsim, t[1], t[3], folder, t[0]), tries))
    for question in REFUSED:
        done = subprocess.run(
            [ddpsim, *question, "--format", "json"], capture_output=True, text=True, check=False
        )
        said = json.loads(done.stdout)
        if done.returncode != said["exit_code"] or said["message"] not in done.stderr:
            wrong.append(f"{' '.join(question)}: {done.returncode}, {done.stderr} and {said}")
        for error in validators["error"].iter_errors(said):
            wrong.append(f"{' '.join(question)}: {error.json_path}: {error.message}")
    both = 0
    for (_, kind, what, changed), refusal in zip(tries, refusals, strict=True):
        valid = validators[kind].is_valid(changed)
        if refusal and not valid:
            both += 1
        elif refusal is None and not valid:
            error = next(validators[kind].iter_errors(changed))
            wrong.append(f"{what}: the reader takes it; schema: {error.json_path}: {error.message}")
        elif refusal and is_of_schema(refusal):
            wrong.append(f"{what}: the schema takes it; reader: {refusal[:200]}")
    if both < LEAST:
        wrong.append(f"{both} files were refused by reader and schema, expected {LEAST}")
    for sentence in wrong:
        print(sentence)
    shown = sum(len(d) for d in documents.values())
    print(f"{shown} files are valid; {both} of {MISTAKES} with a mistake refused by both")
    return 1 if wrong else 0


def self_test():
    draw = random.Random(1)
    document = {"a": {"b": [1, "x"]}, "c": 2}
    for _ in range(50):
        changed, what = with_mistake(document, draw)
        assert changed != document, what
    assert is_of_schema('x.json#/a: unknown key; known are "b"')
    assert not is_of_schema("x.json#/hosts: a leaf of 4 ports has 2")
    print("ok")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(check(str(Path(sys.argv[1]).resolve())))
