#!/usr/bin/env python3
"""Is the tree's C++ formatted as .clang-format says?

  check_format.py ROOT         names each file that clang-format would change; exit 1 for any
  check_format.py --self-test  a file out of form must be noticed, one in form must not

Exit 77 where there is no clang-format 14 (Debian 12's; other versions break lines otherwise).
`clang-format -i FILE` mends a file.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = "14"
SKIPPED = 77


def program():
    """clang-format 14, or None."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        found = shutil.which(name)
        if found:
            told = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {VERSION}\.", told):
                return found
    return None


def sources(root):
    """The C++ and CUDA files that git tracks or would track."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others"]
    command += ["--exclude-standard", "*.cc", "*.h", "*.cu", "*.c"]
    out = subprocess.run(command, capture_output=True, check=True).stdout
    return [root / name.decode() for name in out.split(b"\0") if name]


def out_of_form(clang_format, files):
    """Those of `files` that clang-format would change."""
    wrong = []
    for begin in range(0, len(files), 50):
        told = subprocess.run(
            [clang_format, "--dry-run", *map(str, files[begin : begin + 50])],
            capture_output=True,
            text=True,
        ).stderr
        wrong += re.findall(r"^(.*?):\d+:\d+: (?:warning|error): ", told, re.MULTILINE)
    return sorted(set(wrong))


def self_test(clang_format, root):
    with tempfile.TemporaryDirectory() as folder:
        style = pathlib.Path(folder, ".clang-format")
        style.write_text((root / ".clang-format").read_text())
        good, bad = pathlib.Path(folder, "good.cc"), pathlib.Path(folder, "bad.cc")
        good.write_text("int f();\n")
        bad.write_text("int  f( );\n")
        wrong = out_of_form(clang_format, [good, bad])
    assert wrong == [str(bad)], wrong
    print("check_format: noticed a file out of form")
    return 0


def main(argv):
    if len(argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    clang_format = program()
    if clang_format is None:
        print(f"check_format: there is no clang-format {VERSION}")
        return SKIPPED
    if argv[1] == "--self-test":
        return self_test(clang_format, pathlib.Path(__file__).resolve().parents[2])
    root = pathlib.Path(argv[1])
    try:
        files = [f for f in sources(root) if f.is_file()]
    except (OSError, subprocess.CalledProcessError):
        print("check_format: not a git repository")
        return SKIPPED
    wrong = out_of_form(clang_format, files)
    for name in wrong:
        print(f"{name}:1: is out of form; clang-format -i mends it")
    print(f"check_format: {len(files)} files, {len(wrong)} out of form")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
