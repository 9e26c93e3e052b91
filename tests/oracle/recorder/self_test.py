"""Tests the recorder where no system's Python is at hand, for record.py: all of it is imported, a
made-up package is read, what is logged is known, and the questions are those of the recordings."""
import collections
import importlib
import inspect
import random
import re
import sys
import tempfile
from pathlib import Path

import torch

import recordings

from . import events, fsdp1_record, fsdp2_memory, fsdp2_record, packages, zero_hooks, zero_models
from . import zero_record
from .events import Event, Group, Stream, Work, inside, log

FILES = {
    fsdp1_record: (["1.13", "2.7"], "fsdp1_{of}__blocks3__{config}__n{ranks}.json"),
    fsdp2_record: (
        ["2.7", "2.11", "2.12", "2.13"], "fsdp2_{of}__blocks3__{config}__n{ranks}.json.gz"
    ),
    zero_record: (["0.14.5"], "ds_{of}_zero{stage}__{model}__{config}__n{ranks}r{rank}.json.gz"),
}


def logged(call):
    events.begin(unit=None, quiet=False)
    events.into[0] = []
    call()
    seen, events.into[0] = events.into[0], None
    return seen


def of_the_device():
    """Streams, events, works and kernels say what was asked of them."""
    Stream.names = ["side"]
    side, other = Stream(), Stream()
    event = Event()
    with inside(side):
        event.record()
        zero_hooks.kernel("cat", torch.zeros(3))
        zero_hooks.kernel("cat", torch.zeros(4))
    other.wait_event(event)
    side.wait_stream(other)
    event.synchronize()
    side.synchronize()
    Work("all_gather").wait()
    log("c", events.told("reduce", torch.zeros(5, dtype=torch.bfloat16), group=2))


SAID = {"op": "reduce", "elements": 5, "dtype": "bfloat16", "bytes": 10, "group": 2,
        "queue": "main", "async": False}
DEVICE = [
    ["l", "cat", 7, 2, "side"],
    ["w", "stream1", "side", "event"],
    ["w", "side", "stream1", "stream"],
    ["h", "event.synchronize", "ev@side"],
    ["h", "stream.synchronize", "side"],
    ["w", "main", "all_gather", "work"],
    ["c", SAID],
]


def of_memory():
    """A buffer is freed when its last reference is."""
    made = fsdp2_memory.tracked(4, torch.float32)
    out = torch.zeros(2, 4)
    fsdp2_memory.chunk_cat([torch.arange(3.0), torch.arange(4.0)], 0, 2, out)
    assert out.tolist() == [[0, 1, 0, 1], [2, 0, 2, 3]]
    fsdp2_memory.copy(made, torch.ones(4))
    del made


MEMORY = [
    ["a", "allocate", 16, "main"],
    ["k", "chunk_cat", 28, 32, "main"],
    ["k", "copy", 16, 16, "main"],
    ["a", "free", 16, "main"],
]
MADE_UP = {
    "made_up/__init__.py": "from made_up.lacks import anything\nfrom .inner import seven\n",
    "made_up/inner.py": "from lacking.below import six\nimport lacking\nseven = six + 1\n",
    "made_up/lacks/there.py": "eight = 8\n",
}


def read_package(expect):
    """The longer name decides whether a module is the folder's or a stub."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in MADE_UP.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        stubs = {"lacking": {}, "lacking.below": {"six": 6}, "made_up.lacks": {}}
        finder = packages.Package(folder, ("made_up", "made_up.lacks.there"), stubs)
        made_up, there = map(importlib.import_module, ("made_up", "made_up.lacks.there"))
        expect(made_up.seven == 7 and isinstance(made_up.anything, type), "a package with stubs")
        expect(there.eight == 8, "a module of the folder's below a stub")
        sys.meta_path.remove(finder)


def steps_alike(expect):
    steps = []
    for phases in ([1], [2], [1]):
        events.add_step(steps, {"phases": phases})
    expect(steps[2] == {"step": 2, "same_as": 0} and "phases" in steps[1], "a step like another")


def asked(system, of):
    """The names of the files that the questions of a version make."""
    names, signature = [], inspect.signature(system.record)

    def ask(*args, **knobs):
        bound = signature.bind(None, None, *args, **knobs)
        bound.apply_defaults()
        said = dict(bound.arguments)
        ranks = "x".join(map(str, said["mesh"])) if "mesh" in said else said["ranks"]
        said.update(ranks=ranks, of=of.replace(".", ""), stage=said["knobs"].get("stage"))
        names.append(FILES[system][1].format(**said))

    system.questions(ask, of)
    return names


def same_questions(expect):
    """Each kept recording of the recorder has its question, and no two questions a name."""
    kept = {p.name for p in recordings.DATA.iterdir()}
    for system, (versions, form) in FILES.items():
        for of in versions:
            names = asked(system, of)
            twice = [n for n, times in collections.Counter(names).items() if times > 1]
            expect(not twice, f"{twice} are asked twice")
            begin = re.match(r"\w+?_(?=\{)", form)[0] + of.replace(".", "") + "_"
            lost = [n for n in kept if n.startswith(begin) and n not in names]
            expect(not lost, f"nobody asks for {lost}")


def drawn_questions(expect):
    for system in (fsdp2_record, zero_record):
        for seed in range(50):
            question = system.drawn(random.Random(seed), "2.13")
            inspect.signature(system.record).bind(None, None, config="drawn", **question)
            model = question.get("model", "raw")
            expect(model in zero_models.MODELS, f"{model} is no model")


def main():
    missed = []

    def expect(holds, what):
        if not holds:
            missed.append(what)

    expect(logged(of_the_device) == DEVICE, f"the device: {logged(of_the_device)}")
    expect(logged(of_memory) == MEMORY, f"memory: {logged(of_memory)}")
    events.begin()
    expect([Group(0, 2).name, Group(0, 2, "own").name, Group(0, 2).name] == ["g0", "own", "g1"],
           "names of groups")
    for test in (read_package, steps_alike, same_questions, drawn_questions):
        test(expect)
    for m in missed:
        print("not so:", m)
    print("self-test:", "failed" if missed else "ok")
    return 1 if missed else 0
