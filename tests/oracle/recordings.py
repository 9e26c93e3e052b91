"""Reads, writes and compares recordings for those who make them and for the tests of oracles: those
of tests/data/recorded_orders, whose README says what is in them."""
import gzip
import json
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data/recorded_orders"


def load(path):
    text = gzip.open(path).read() if path.name.endswith(".gz") else path.read_bytes()
    return json.loads(text)


def write(path, said):
    text = json.dumps(said, separators=(",", ":")).encode()
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(text, 9, mtime=0))
    else:
        path.write_bytes(text.replace(b',["', b',\n["') + b"\n")


def reduce_folder(folder, prefixes, reduced):
    """Makes DATA's of a folder of recordings; `reduced` leaves out of one what no test asks."""
    for path in sorted(Path(folder).iterdir()):
        if path.name.startswith(prefixes):
            said = reduced(load(path))
            name = path.name.removesuffix(".gz")
            write(DATA / (name if said["system"] == "fsdp1" else name + ".gz"), said)


def compare_steps(made, recorded, found, who="", comparable=lambda *pair: pair):
    """An oracle's steps with those of a recording, of each phase the first difference into `found`;
    how many events were compared."""
    compared = 0
    for number, phases in enumerate(made):
        step = recorded[number]
        if step.get("same_as") is not None:
            step = recorded[step["same_as"]]
        for phase, said in phases.items():
            there = step["phases"].get(phase, [])
            compared += len(there)
            for at, (a, b) in enumerate(zip(said, there)):
                a, b = comparable(a, b)
                if a != b:
                    found.append(f"{who}step {number} {phase} {at}: oracle {a}, recorded {b}")
                    break
            else:
                if len(said) != len(there):
                    longer = said if len(said) > len(there) else there
                    found.append(
                        f"{who}step {number} {phase}: {len(said)} here, {len(there)} recorded; "
                        f"the first more is {longer[min(len(said), len(there))]}"
                    )
    return compared


def compare(folder, prefixes, differences, table):
    bad = total = 0
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(prefixes):
            continue
        found, said = differences(load(path))
        total += 1
        bad += bool(found)
        if table or found:
            print(path.name, said)
        for f in found[:5]:
            print(f"  {f}")
    print(f"{total} recorded schedules, {bad} of them another one than the oracle's")
    return 1 if bad or not total else 0


class Changes:
    """Changes recordings, and tells which change was not noticed; of `step`, unless another is
    said."""

    def __init__(self, differences, step):
        self.differences, self.step, self.missed, self.fine = differences, step, [], set()

    def changed(self, name, what, change):
        recording = load(DATA / name)
        if name not in self.fine and self.differences(recording)[0]:
            self.missed.append(f"{name}: differs unchanged")
        self.fine.add(name)
        change(recording)
        if not self.differences(recording)[0]:
            self.missed.append(f"{name}: {what}")

    def events(self, recording, kind, phase="backward", step=None):
        said = recording["steps"][self.step if step is None else step]["phases"][phase]
        return said, [i for i, e in enumerate(said) if e[0] == kind]

    def swap(self, recording, kind, phase="backward"):
        said, where = self.events(recording, kind, phase)
        said[where[0]], said[where[-1]] = said[where[-1]], said[where[0]]

    def field(self, recording, key, value, at=0, phase="backward"):
        said, where = self.events(recording, "c", phase)
        said[where[at]][1][key] = value

    def drop(self, recording, kind, phase="backward", at=0):
        said, where = self.events(recording, kind, phase)
        del said[where[at]]

    def end(self):
        for m in self.missed:
            print("not noticed:", m)
        print("self-test:", "failed" if self.missed else "ok")
        return 1 if self.missed else 0


def main(prefixes, differences, reduced, self_test):
    """Does what a test of recordings is asked by its arguments."""
    if sys.argv[1:2] == ["--reduce"]:
        return reduce_folder(sys.argv[2], *reduced)
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    folders = [a for a in sys.argv[1:] if a != "--table"]
    return compare(Path((folders or [DATA])[0]), prefixes, differences, "--table" in sys.argv)
