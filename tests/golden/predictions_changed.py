#!/usr/bin/env python3
"""Does each golden say which change moved it last?

  predictions_changed.py              names each golden without its line; exit 1 for any
  predictions_changed.py --accept ID  line ID moved every golden whose bytes are new: writes that
  predictions_changed.py --is-line ID is there a line ID? exit 2 if not
  predictions_changed.py --self-test  plants errors in a copy, each of which must be noticed

predictions_changed.json lies beside this file. Its "lines" say which change moved predictions and
why, the newest first. Its "goldens" say of each file of expected/ which line moved it last, and the
first 16 hex digits of its SHA-256.
"""
import argparse
import contextlib
import hashlib
import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools" / "python"))
from ddpsim_files import write_whole  # noqa: E402

SCHEMA = "ddpsim.predictions_changed/1"
DATA = "predictions_changed.json"
IN_TREE = f"tests/golden/{DATA}"


def once(pairs):
    """A JSON object; the same key twice, as a merge may leave it, is an error."""
    keys = [key for key, _ in pairs]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice")
    return dict(pairs)


def read(folder):
    return json.loads((folder / DATA).read_text(encoding="utf-8"), object_pairs_hook=once)


def text_of(data):
    """The file's text: a line of it for each golden, so that changes of two merge."""

    def said(value):
        return json.dumps(value, ensure_ascii=False)

    lines = [
        ",\n".join(f"   {said(key)}: {said(value)}" for key, value in line.items())
        for line in data["lines"]
    ]
    goldens = [f"  {said(name)}: {said(data['goldens'][name])}" for name in sorted(data["goldens"])]
    return (
        f'{{\n "schema": {said(data["schema"])},\n "lines": [\n  {{\n'
        + "\n  },\n  {\n".join(lines)
        + '\n  }\n ],\n "goldens": {\n'
        + ",\n".join(goldens)
        + "\n }\n}\n"
    )


def hashes(folder):
    """{name: hash} of the goldens there are."""
    files = (f for f in (folder / "expected").glob("*.json") if not f.name.endswith(".new.json"))
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest()[:16] for f in sorted(files)}


def ids(data):
    return [line.get("id") for line in data["lines"]]


def wrong_lines(lines):
    """A sentence for each thing that is wrong with the lines."""
    seen = set()
    for number, line in enumerate(lines, 1):
        name = line.get("id") or f"line {number}"
        for key in ("id", "what", "why"):
            if not isinstance(line.get(key), str) or not line[key].strip():
                yield f"{name}: has no {key!r}"
        for key in line.keys() - {"id", "what", "why", "validation"}:
            yield f"{name}: {key!r} is no key of a line"
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", line.get("id") or "a"):
            yield f"{name}: an id is words of a-z and 0-9 with hyphens between them"
        if name in seen:
            yield f"{name}: two lines have this id"
        seen.add(name)
        if not (line.get("what") or ".").endswith("."):
            yield f"{name}: 'what' ends without a full stop"


def wrong(folder):
    """A sentence for each thing that is wrong."""
    try:
        data = read(folder)
        if data["schema"] != SCHEMA:
            return [f"the schema is {data['schema']!r}, not {SCHEMA!r}"]
        told = list(wrong_lines(data["lines"]))
        named, known = data["goldens"], ids(data)
        for name, now in hashes(folder).items():
            said = named.get(name)
            if said is None or said["sha256"] != now:
                moved = "moved" if said else "is new"
                told.append(
                    f"expected/{name} {moved}, and no line says why: add a line to {IN_TREE}, then "
                    f"run tools/goldens --accept --line ID"
                )
            elif said["line"] not in known:
                told.append(f"expected/{name}: there is no line {said['line']!r}")
        for name in named.keys() - hashes(folder).keys():
            told.append(f"expected/{name} is not there: delete it from \"goldens\"")
        return told
    except KeyError as missing:
        return [f"key {missing} is absent"]
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        return [f"cannot be read: {fault}"]


def accept(folder, line):
    """Names of the goldens that `line` moved; the data says so from now on."""
    data = read(folder)
    now, before = hashes(folder), data["goldens"]
    moved = [name for name in now if before.get(name, {}).get("sha256") != now[name]]
    kept = {name: before[name] for name in now if name not in moved}
    data["goldens"] = kept | {name: {"line": line, "sha256": now[name]} for name in moved}
    if data["goldens"] != before:
        write_whole(folder / DATA, text_of(data))
    return moved


def planted():
    """(what is planted, how, what must be said of it)."""

    def edit(change):
        def plant(folder):
            data = read(folder)
            change(data)
            (folder / DATA).write_text(text_of(data), encoding="utf-8")

        return plant

    def raw(old, new):
        def plant(folder):
            text = (folder / DATA).read_text(encoding="utf-8")
            assert old in text, old
            (folder / DATA).write_text(text.replace(old, new, 1), encoding="utf-8")

        return plant

    def golden(data):
        return data["goldens"][min(data["goldens"])]

    def first(folder):
        return folder / "expected" / min(hashes(folder))

    run = "tools/goldens --accept --line ID"
    yield "a byte more", lambda f: first(f).write_bytes(first(f).read_bytes() + b"\n"), run
    yield "a new golden", lambda f: (f / "expected" / "zz.json").write_text("{}"), "zz.json is new"
    yield "a golden less", lambda f: first(f).unlink(), 'delete it from "goldens"'
    yield "another hash", edit(lambda d: golden(d).update(sha256="0" * 16)), run
    yield "no such line", edit(lambda d: golden(d).update(line="none")), "there is no line 'none'"
    yield "no line", edit(lambda d: golden(d).pop("line")), "key 'line' is absent"
    yield "an id twice", edit(lambda d: d["lines"].append(d["lines"][0])), "two lines have this id"
    yield "no id", edit(lambda d: d["lines"][0].pop("id")), "has no 'id'"
    yield "an id in capitals", edit(lambda d: d["lines"][0].update(id="An Id")), "an id is words"
    yield "no what", edit(lambda d: d["lines"][0].pop("what")), "has no 'what'"
    yield "no why", edit(lambda d: d["lines"][0].update(why=" ")), "has no 'why'"
    yield "no full stop", edit(lambda d: d["lines"][0].update(what="It moved")), "full stop"
    yield "a key more", edit(lambda d: d["lines"][0].update(whatever="1")), "is no key of a line"
    yield "another schema", edit(lambda d: d.update(schema="x/1")), "the schema is 'x/1'"
    yield "a key twice", raw('"lines"', '"schema": "", "lines"'), "is there twice"
    yield "a conflict", raw('"lines"', "<<<<<<< HEAD"), "cannot be read"
    yield "no data", lambda f: (f / DATA).unlink(), "cannot be read"


def self_test():
    with tempfile.TemporaryDirectory() as temporary:
        def copy():
            folder = Path(temporary, "golden")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(HERE / "expected", folder / "expected")
            shutil.copy(HERE / DATA, folder / DATA)
            accept(folder, "first")  # what somebody works at is no concern of this test
            return folder

        noticed = 0
        for name, plant, needed in planted():
            folder = copy()
            assert not wrong(folder), wrong(folder)
            plant(folder)
            told = wrong(folder)
            assert any(needed in sentence for sentence in told), (name, told)
            noticed += 1

        folder = copy()
        (folder / "expected" / "zz.new.json").write_text("{}")
        assert not wrong(folder), "what a failing test writes is no golden"
        before = (folder / DATA).read_text(encoding="utf-8")
        with contextlib.redirect_stderr(io.StringIO()) as refused:
            for flag in ("--accept", "--is-line"):
                assert main(["--folder", str(folder), flag, "none"]) == 2
        assert "has no line 'none'" in refused.getvalue(), refused.getvalue()
        assert (folder / DATA).read_text(encoding="utf-8") == before
        moved, gone, *_ = hashes(folder)
        (folder / "expected" / moved).write_text("{}")
        (folder / "expected" / gone).unlink()
        line = ids(read(folder))[0]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["--folder", str(folder), "--accept", line]) == 0
        assert not wrong(folder), wrong(folder)
        said = read(folder)["goldens"]
        assert said[moved]["line"] == line and gone not in said
    print(f"predictions_changed: noticed {noticed} planted errors; accepts what it is told to")
    return 0


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=HERE, help="default: this file's")
    what = parser.add_mutually_exclusive_group()
    for flag in ("--accept", "--is-line"):
        what.add_argument(flag, metavar="ID")
    what.add_argument("--self-test", action="store_true")
    asked = parser.parse_args(argv)
    if asked.self_test:
        return self_test()
    line = asked.accept or asked.is_line
    if line is not None:
        try:
            known = line in ids(read(asked.folder))
        except (OSError, ValueError, KeyError) as fault:
            sys.exit(f"predictions_changed: {IN_TREE} cannot be read: {fault}")
        if not known:
            print(f"predictions_changed: {IN_TREE} has no line {line!r}: add it", file=sys.stderr)
            return 2
        if asked.accept:
            for name in accept(asked.folder, line):
                print(f"predictions_changed: {line} moved {name}")
        return 0
    told = wrong(asked.folder)
    for sentence in told:
        print(f"{IN_TREE}: {sentence}")
    print(f"predictions_changed: {len(hashes(asked.folder))} goldens, {len(told)} wrong")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
