"""What oracles that ask ddpsim for lowered Programs have in common: question and verdict."""
import json
import subprocess


def shown(asked, what):
    """The Program that a `ddpsim show program` prints as JSON. `what`: names a question refused."""
    out = subprocess.run(asked, capture_output=True, text=True, check=False)
    if out.returncode:
        raise SystemExit(f"{what}: {out.stderr}")
    return json.loads(out.stdout)


def tally(ddpsim, questions, differences, name=str):
    """(what was compared, questions that differ); differences(ddpsim, question) -> (sentences, how
    much was compared). Prints the sentences behind name(question)."""
    events = bad = 0
    for question in questions:
        found, count = differences(ddpsim, question)
        events += count
        bad += bool(found)
        if found:
            print(name(question), "\n  " + "\n  ".join(found))
    return events, bad


def judge(ddpsim, questions, differences, asked="scenarios", compared="operations"):
    """Asks all of them, says how many differ, and returns the exit status."""
    every = list(questions)
    events, bad = tally(ddpsim, every, differences)
    print(f"{len(every)} {asked}, {events} {compared}; {bad} differ")
    return 1 if bad else 0


def first_difference(mine, theirs, width=None):
    """A sentence on the first place where two lists differ, in a list; [] if none."""
    for k in range(max(len(mine), len(theirs))):
        a = mine[k] if k < len(mine) else None
        b = theirs[k] if k < len(theirs) else None
        if a != b:
            return [f"{k}: ddpsim {str(a)[:width]}, oracle {str(b)[:width]}"]
    return []


class Planted:
    """Changes of what ddpsim said, which a comparison has to notice."""

    def __init__(self):
        self.missed, self.tried = [], 0

    def unchanged(self, found):
        if found:
            self.missed.append("what was not changed is told to differ")

    def change(self, found, what):
        self.tried += 1
        if not found:
            self.missed.append(what)

    def operations(self, ops, ask, skipped, changes):
        """Takes out each operation that is not `skipped`, and makes each of changes(operation),
        which are (key, value, what it is); ask() -> sentences. Afterwards `ops` is as it was."""
        for k, o in enumerate(list(ops)):
            if skipped(o):
                continue
            del ops[k]
            self.change(ask(), f"without {o['op']}")
            ops.insert(k, o)
            for key, value, what in changes(o):
                before, o[key] = o[key], value
                self.change(ask(), f"{what} of {o['op']}")
                o[key] = before

    def verdict(self):
        """Says what was not noticed, and returns the exit status."""
        for m in self.missed:
            print("not noticed:", m)
        print(f"self-test, {self.tried} changes:", "failed" if self.missed else "ok")
        return 1 if self.missed else 0


def other_bytes(o):
    """Planted: a collective of four more bytes."""
    return [("bytes", o["bytes"] + 4, "other bytes")] if o["does"] == "communicate" else []
