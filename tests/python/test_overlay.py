"""What a program does to files, in a folder of its own and over an overlay: it sees the same, and
what the overlay lies over does not change.

Run: /usr/bin/python3 tests/python/test_overlay.py   (standard library only, seconds)
"""
import os
import random
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, List, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
import ddpsim_overlay as overlay  # noqa: E402

NAMES = "a d d/b d/e d/e/c r r/x ld ld/b ld/e ld/e/n la ln n n/m d/n r/n r/n/q .".split()
ONE = (
    "append chmod exists listdir lstat makedirs mkdir new number read readlink rmdir rmtree scandir"
    " stat truncate unlink update walk write"
).split()
TWO = "copy copytree link move rename symlink".split()
SEQUENCES = 200
LENGTH = 14


def fill(folder: str) -> None:
    os.makedirs(f"{folder}/d/e")
    os.makedirs(f"{folder}/r")
    for name in ("a", "d/b", "d/e/c", "r/x"):
        Path(folder, name).write_text(name)
    for name, to in (("ld", "d"), ("la", "a"), ("ln", "nowhere")):
        os.symlink(to, f"{folder}/{name}")


def changes_itself(a: str, b: str) -> bool:
    """A folder that goes into itself, which never ends."""
    return a == "." or b == "." or os.path.realpath(b).startswith(os.path.realpath(a))


def texts(path: str, mode: str, text: str = "") -> str:
    with open(path, mode) as file:
        out = file.read() if "r" in mode else ""
        file.write(text) if text else None
    return out


def number(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.write(descriptor, b"q")
    os.close(descriptor)


def about(entry: Any) -> Tuple[Any, ...]:
    return (entry.name, entry.path, entry.is_symlink(), entry.is_dir(follow_symlinks=False))


def size(path: str, seen: os.stat_result) -> Tuple[int, int]:
    return seen.st_mode, seen.st_size if os.path.isfile(path) else 0


def does(what: str, a: str, b: str) -> Any:
    if what in ("copytree", "move", "rename") and changes_itself(a, b):
        return None
    if what in ("chmod", "rmtree") and (a == "." or (what == "chmod") != os.path.isfile(a)):
        return None
    functions: Any = {
        "append": lambda: texts(a, "a", "more"),
        "chmod": lambda: os.chmod(a, 0o640),
        "copy": lambda: shutil.copy(a, b) and None,
        "copytree": lambda: shutil.copytree(a, b, symlinks=True) and None,
        "exists": lambda: (os.path.exists(a), os.path.lexists(a), os.path.isdir(a)),
        "listdir": lambda: sorted(os.listdir(a)),
        "lstat": lambda: size(a, os.lstat(a)),
        "makedirs": lambda: os.makedirs(a, exist_ok=True),
        "move": lambda: shutil.move(a, b) and None,
        "new": lambda: texts(a, "x", "n"),
        "number": lambda: number(a),
        "read": lambda: texts(a, "r"),
        "rmtree": lambda: shutil.rmtree(a),
        "scandir": lambda: sorted(map(about, os.scandir(a))),
        "stat": lambda: size(a, os.stat(a)),
        "symlink": lambda: os.symlink(os.path.basename(a), b),
        "truncate": lambda: os.truncate(a, 1),
        "update": lambda: texts(a, "r+", "z"),
        "walk": lambda: sorted((r, sorted(d), sorted(f)) for r, d, f in os.walk(a)),
        "write": lambda: texts(a, "w", "w"),
    }
    call = functions.get(what)
    try:
        return call() if call else getattr(os, what)(*([a] if what in ONE else [a, b]))
    except (OSError, shutil.Error):
        return "an error"


def tree() -> List[Any]:
    out = []
    for folder, below, files in os.walk("."):
        paths = [os.path.join(folder, f) for f in sorted(files)]
        text = [texts(p, "r") if os.path.isfile(p) else None for p in paths]
        out.append((folder, sorted(below), paths, text))
    return sorted(out)


class Beside(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.folder = folder.name

    def over(self, sequence: List[Tuple[str, str, str]], root: str) -> List[Any]:
        upper = overlay.Overlay(root)
        before = []
        for module, name, function in upper.functions():
            before.append((module, name, getattr(module, name)))
            setattr(module, name, function)
        try:
            return [does(*each) for each in sequence] + tree()
        finally:
            for module, name, function in before:
                setattr(module, name, function)
            upper.clear()

    def test_same_as_a_real_folder(self) -> None:
        done = 0
        for seed in range(SEQUENCES):
            rng = random.Random(seed)
            sequence = [(rng.choice(ONE + TWO), rng.choice(NAMES), rng.choice(NAMES))
                        for _ in range(LENGTH)]  # fmt: skip
            with self.subTest(seed=seed):
                real, under = f"{self.folder}/{seed}/real", f"{self.folder}/{seed}/under"
                for folder in (real, under):
                    fill(folder)
                os.chdir(real)
                wanted = [does(*each) for each in sequence]
                done += sum(w != "an error" for w in wanted)
                wanted += tree()
                os.chdir(under)
                before = tree()
                found = self.over(sequence, f"{self.folder}/{seed}/root")
                self.assertEqual(found, wanted, sequence)
                self.assertEqual(tree(), before)
                self.assertFalse(os.path.exists(f"{self.folder}/{seed}/root"))
        self.assertGreater(done, SEQUENCES * LENGTH / 3)


if __name__ == "__main__":
    unittest.main()
