#!/usr/bin/env python3
"""Holds the files of GPUs (calib/profiles/*.datasheet.json) to their own facts: what several say
stands in what they extend (calib/profiles/bases). And calib/gpus.json to the profiles.

  check_profiles.py ROOT         prints each violation as `path: sentence`; exit 1 if there is one
  check_profiles.py --self-test  breaks each rule in a copy, and requires that it is caught

No value of a key stands in more than half of the files, none stands in a file whose base has it,
and no file has more than 40 lines. Each base is extended. Each name in gpus.json is of one profile,
which is shipped, and has that compute capability. Standard library only.
"""
import collections
import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/python"))
from ddpsim_profiles import read_profile  # noqa: E402

MOST_LINES = 40
APART = {("schema",), ("extends",)}  # which each file has


def leaves(value, place=()):
    """(place, value) of what is no object; of an empty one itself."""
    if isinstance(value, dict) and value:
        for key, inside in value.items():
            yield from leaves(inside, (*place, key))
    else:
        yield place, json.dumps(value)


def own_of(path):
    return {p: v for p, v in leaves(json.loads(path.read_text("utf-8"))) if p not in APART}


def violations(root):
    """Sentences."""
    folder = root / "calib/profiles"
    bases = sorted((folder / "bases").glob("*.json"))
    gpus = [
        path
        for path in sorted(folder.glob("*.datasheet.json"))
        if not path.name.startswith("testbed") and read_profile(path).get("kind") == "gpu"
    ]
    if len(gpus) < 3 or not bases:
        return [f"{folder}: holds no GPUs, or no bases"]
    wrong = []
    files = collections.defaultdict(list)
    for path in gpus:
        for leaf in own_of(path).items():
            files[leaf].append(path)
        if (lines := path.read_text("utf-8").count("\n")) > MOST_LINES:
            wrong.append(f"{path}: has {lines} lines; {MOST_LINES} are enough for its own facts")
    for (place, value), paths in files.items():
        if 2 * len(paths) > len(gpus):
            wrong.append(
                f"{paths[0]}: {'.'.join(place)} is {value[:60]} here and in {len(paths) - 1} more"
                f" of {len(gpus)} files; say it in what they extend"
            )
    extended = set()
    for path in bases + sorted(folder.glob("*.json")):
        extends = json.loads(path.read_text("utf-8")).get("extends")
        if extends is None:
            continue
        base = next(p for p in (folder / "bases", folder) if (p / f"{extends}.json").exists())
        base /= f"{extends}.json"
        extended.add(base)
        said = dict(leaves(read_profile(base)))
        for place, value in own_of(path).items():
            absent = not any(p[: len(place)] == place for p in said)
            if said.get(place) == value or (value == "null" and absent):
                wrong.append(f"{path}: {'.'.join(place)} is what {extends} says; leave it out")
    wrong += [f"{base}: nothing extends it" for base in bases if base not in extended]
    return wrong + wrong_names(root)


def wrong_names(root):
    table = root / "calib/gpus.json"
    wrong = []
    seen = collections.Counter()
    for gpu in json.loads(table.read_text("utf-8"))["gpus"]:
        seen.update(gpu["names"])
        path = root / f"calib/profiles/{gpu['profile']}.json"
        if not path.exists():
            wrong.append(f"{table}: {gpu['profile']} is not shipped")
        elif (said := gpu.get("compute_capability")) is not None:
            seen[said] += 1
            if said != read_profile(path)["compute"]["compute_capability"]:
                wrong.append(f"{table}: {gpu['profile']} is of another compute capability")
    return wrong + [f"{table}: {name} is there twice" for name, n in seen.items() if n > 1]


def self_test(root):
    """Breaks each rule."""

    def change(name, edit):
        def broken(folder):
            path = folder / name
            document = json.loads(path.read_text("utf-8"))
            edit(document)
            path.write_text(json.dumps(document), "utf-8")

        return broken

    def everywhere(folder):
        for path in folder.glob("*.datasheet.json"):
            change(path.name, lambda d: d.setdefault("host", {}).update(hook_ps=3000001))(folder)

    def long(folder):
        path = folder / "t4.datasheet.json"
        path.write_text(path.read_text("utf-8") + "\n" * MOST_LINES, "utf-8")

    def unused(folder):
        shutil.copy(folder / "bases/gpu.json", folder / "bases/other.json")

    def named(**row):
        return change("../gpus.json", lambda d: d["gpus"][0].update(row))

    t4 = "t4.datasheet.json"
    rules = [
        ("say it in what they extend", everywhere),
        ("is what", change(t4, lambda d: d["compute"].update(basis="datasheet"))),
        ("is what", change(t4, lambda d: d["transports"].update(nvlink=None))),
        ("40 are enough", long),
        ("nothing extends it", unused),
        ("is not shipped", named(profile="t5.datasheet")),
        ("another compute capability", named(compute_capability=71)),
        ("80 is there twice", named(compute_capability=80)),
        ("H200 is there twice", named(names=["H200"])),
    ]
    missed = []
    for sentence, broken in rules:
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place) / "calib/profiles"
            shutil.copytree(root / "calib/profiles", folder)
            shutil.copy(root / "calib/gpus.json", folder.parent)
            if found := violations(pathlib.Path(place)):
                return [f"the copy itself: {found[0]}"]
            broken(folder)
            if not any(sentence in v for v in violations(pathlib.Path(place))):
                missed.append(f"not caught: {sentence}")
    return missed


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    self = sys.argv[1:] == ["--self-test"]
    found = self_test(here) if self else violations(pathlib.Path(sys.argv[1]))
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
