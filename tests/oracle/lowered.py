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
