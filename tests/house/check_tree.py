#!/usr/bin/env python3
"""Holds the tree to what a clone needs: no path of one machine, no registry's host, scripts that
run.

  check_tree.py ROOT         prints each violation as `path:line: sentence`; exit 1 if there is one
  check_tree.py --self-test  builds a small tree per rule, breaks the rule, and requires that it is
                             caught

Looks at the files that git tracks or would track; without git, at every file outside build folders.
Files compressed by gzip are read through. Standard library only.
"""
import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zlib

SKIPPED = {".git", "build", "out", "node_modules", "__pycache__", ".cache", ".venv"}

# Spelled so that this file does not contain what it looks for.
MACHINE = re.compile(r"(?<![\w.\-})\]*#])/(?:work|root)" + "/")
HOME = re.compile(r"(?<![\w.\-})\]*#])/(?:home|Users)" + r"/[a-z_][\w.\-]*/")
HOST_NAMES = (
    ("deb", "debian"),
    ("security", "debian"),
    ("snapshot", "debian"),
    ("ftp", r"[a-z.]*debian"),
    ("archive", "ubuntu"),
    ("security", "ubuntu"),
    ("ports", "ubuntu"),
    ("pypi", r"(?:org|python)"),
    ("files", "pythonhosted"),
    ("registry", "npmjs"),
    ("registry", "yarnpkg"),
    ("proxy", r"golang"),
    ("static", r"crates\.io"),
    ("index", r"crates\.io"),
    ("conda", "anaconda"),
    ("registry-1", "docker"),
    ("deb", "nodesource"),
)
HOSTS = re.compile("|".join(a + r"\." + b for a, b in HOST_NAMES), re.IGNORECASE)


def tracked(root):
    """Paths relative to `root`, sorted."""
    try:
        out = subprocess.run(
            [
                "git",
                "-C",
                str(root),
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ],
            check=True,
            capture_output=True,
        ).stdout
        # A folder that is not itself the top of a repository may lie in someone else's.
        top = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--show-toplevel"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        if pathlib.Path(top).resolve() == root.resolve():
            names = {os.fsdecode(name) for name in out.split(b"\0") if name}
            return sorted(name for name in names if (root / name).is_file())
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        found += [
            os.path.relpath(os.path.join(folder, name), root)
            for name in files
            if os.path.isfile(os.path.join(folder, name))
        ]
    return sorted(found)


def text_of(path):
    """The file's text, or None for a binary file."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return None
    if b"\0" in data[:65536]:
        return None
    return data.decode("utf-8", errors="replace")


def is_script(name, text):
    in_tools = name.startswith("tools/") and name.count("/") == 1 and "." not in name[6:]
    return name.endswith(".sh") or in_tools or name.startswith(".ci/") or text.startswith("#!")


WIDTH = 100


def wide_lines(name, text):
    """Numbers of lines that are too wide: of C++ and Python all, of shell and CMake comments, of
    Markdown prose (no table, no code, no heading; what tools generate is not looked at)."""
    python = name.endswith(".py") or text.startswith("#!/usr/bin/env python3")
    shell = name.endswith(".sh") or text.startswith("#!/usr/bin/env bash")
    shell |= name.endswith((".cmake", "CMakeLists.txt"))
    code = name.endswith((".cc", ".h", ".cu", ".c"))
    markdown = name.endswith((".md", ".md.in")) and not name.startswith("reports/")
    if not (python or shell or code or markdown) or name == "README.md":
        return
    fence = False
    for number, line in enumerate(text.splitlines(), 1):
        if markdown:
            fence ^= line.lstrip().startswith("```")
            if fence or line.lstrip().startswith(("|", "`", "#")) or line.startswith("    "):
                continue
        if shell and not line.lstrip().startswith("#"):
            continue
        if len(line) > WIDTH:
            yield number


# Words, one of which is in what the expression finds; the expression; what is wrong.
KEPT_OUT = (
    (
        ("/work" + "/", "/root" + "/"),
        MACHINE,
        "{0} is a path of one machine; use one relative to the tree",
    ),
    (
        ("/home" + "/", "/Users" + "/"),
        HOME,
        "{0} is a path of somebody's home; use one relative to the tree",
    ),
    (
        tuple(first + "." for first, _ in HOST_NAMES),
        HOSTS,
        "{0} is a registry's host; what the machine is configured with must do",
    ),
)


# Two suites on one machine meet in what has a fixed name.
FIXED = re.compile(r"""["'=( ]/(?:tmp|var/tmp|dev/shm)\b|(?:127\.0\.0\.1|localhost):[1-9]""")
FOLDER = re.compile(r"(?:TempDir|temp_directory_path)\(\)[^;]*;")


def fixed_names(name, text):
    """Numbers of a test's lines that name a place which another run of the tests names, too."""
    if not name.startswith("tests/") or not name.endswith((".cc", ".h", ".py", ".mjs")):
        return
    for found in (*FIXED.finditer(text), *FOLDER.finditer(text)):
        if "getpid" not in found.group(0):
            yield text.count("\n", 0, found.start()) + 1


def check(root):
    """(violations, number of text files)."""
    bad, count = [], 0
    for name in tracked(root):
        text = text_of(root / name)
        if text is None:
            continue
        count += 1
        small = text.lower()
        there = [k[1:] for k in KEPT_OUT if any(w.lower() in small for w in k[0])]
        for number, line in enumerate(text.splitlines() if there else [], 1):
            for regex, sentence in there:
                match = regex.search(line)
                if match:
                    bad.append(f"{name}:{number}: " + sentence.format(match.group(0)))
        bad += [f"{name}:{n}: is wider than {WIDTH} columns" for n in wide_lines(name, text)]
        bad += [
            f"{name}:{n}: a fixed path or port; take one of this run's own"
            for n in fixed_names(name, text)
        ]
        executable = os.access(root / name, os.X_OK) and (root / name).stat().st_mode & 0o111
        if is_script(name, text):
            if not executable:
                bad.append(f"{name}:1: is a script and not executable; chmod +x it")
            if not text.startswith("#!"):
                bad.append(f"{name}:1: is a script without a #! line")
        elif executable:
            bad.append(f"{name}:1: is executable and no script; chmod -x it")
    if count == 0:
        bad.append(f"{root}:1: holds no text file: nothing was checked")
    return bad, count


# --- self-test ---------------------------------------------------------------------------------


def path_of(*parts):
    return "/" + "/".join(parts) + "/"


def host_of(*parts):
    return ".".join(parts)


CLEAN = {
    "README.md": (
        "See network/work/ and docs, $HOME/work/, ${TMP}/root/x, x.json#/work/3,"
        " https://e.org/root/.\n"
    ),
    "tools/go": "#!/bin/sh\n",
    "tools/notes.md": "no script\n",
    "sim/a.md": f"| {'x' * 101} |\n```\n{'y ' * 60}\n```\n    {'z ' * 60}\n",
    "reports/a.md": "w " * 60,
    ".ci/run": "#!/bin/sh\n",
    "tests/a.cc": "f(testing::TempDir() +\n  std::to_string(::getpid()));\n",
}
# name -> (path, text, executable, what the message must say)
BROKEN = {
    "machine path": ("a.md", f"ok\nsee '{path_of('work', 'main')}x'\n", False, "a.md:2: "),
    "machine path at the start": ("a.md", path_of("root") + "x\n", False, "path of one machine"),
    "file URL": ("a.json", "file:/" + path_of("work"), False, "path of one machine"),
    "option value": ("a.json", "--out=" + path_of("root"), False, "path of one machine"),
    "home": ("a.md", "in " + path_of("home", "me") + "x", False, "somebody's home"),
    "mirror": (
        "a.txt",
        "http://" + host_of("deb", "debian", "org") + "/debian",
        False,
        "registry's host",
    ),
    "Python index": ("a.txt", "https://" + host_of("PyPI", "org"), False, "registry's host"),
    "npm": (
        "package-lock.json",
        "https://" + host_of("registry", "npmjs", "org"),
        False,
        "registry's host",
    ),
    "in gzip": ("a.json.gz", gzip.compress(path_of("work").encode()), False, "path of one machine"),
    "shell not executable": ("x/a.sh", "#!/bin/sh\n", False, "not executable"),
    "shell without #!": ("x/a.sh", "echo\n", True, "without a #! line"),
    "tool not executable": ("tools/go2", "#!/bin/sh\n", False, "not executable"),
    "python not executable": ("x/a.py", "#!/usr/bin/env python3\n", False, "not executable"),
    "ci not executable": (".ci/run2", "#!/bin/sh\n", False, "not executable"),
    "wide C++": ("x/a.cc", "//" + "é" * 98 + "\n//" + "é" * 99, False, "a.cc:2: is wider"),
    "wide Python": ("x/a.py", "#" + "é" * 100, False, "is wider"),
    "wide shell": ("x/go", "#!/usr/bin/env bash\n  #" + "é" * 98, True, "go:2: is wider"),
    "wide prose": ("x/a.md", "```\n```\n" + "w " * 60, False, "a.md:3: is wider"),
    "fixed path": ("tests/a.py", "x\nopen('/t" + "mp/x')\n", False, "a.py:2: a fixed"),
    "fixed port": ("tests/a.py", '"tcp://localhost' + ':29500"', False, "a fixed path or port"),
    "fixed folder": ("tests/a.cc", "f(TempDir" + '() + "x");', False, "a fixed path or port"),
    "executable data": ("x/a.json", "{}\n", True, "no script"),
}


def run_case(files, git):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, (text, executable) in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            path.chmod(0o755 if executable else 0o644)
        if git:
            subprocess.run(["git", "init", "-q", folder], check=True, capture_output=True)
        return check(root)


def self_test():
    failures, cases = [], 0
    ignored = {".gitignore": ("build/\n", False), "build/log": (path_of("work"), False)}
    clean = {name: (text, text.startswith("#!")) for name, text in CLEAN.items()}
    try:
        subprocess.run(["git", "--version"], check=True, capture_output=True)
        modes = (False, True)
    except (OSError, subprocess.CalledProcessError):
        modes = (False,)
    for git in modes:
        bad, count = run_case({**clean, **ignored}, git)
        cases += 1
        if bad or count != len(clean) + 1:
            failures.append(f"self-test (git={git}): a clean tree passes: {count} files, {bad}")
        for name, (path, text, executable, says) in BROKEN.items():
            bad, _ = run_case({**clean, **ignored, path: (text, executable)}, git)
            cases += 1
            if len(bad) != 1 or says not in bad[0] or not bad[0].startswith(path + ":"):
                failures.append(f"self-test (git={git}): {name} is caught: {bad}")
    bad, _ = run_case({}, False)
    cases += 1
    if not bad:
        failures.append("self-test: an empty tree fails")
    return failures, cases


def main(argv):
    if len(argv) == 2 and argv[1] == "--self-test":
        failures, count = self_test()
        print("\n".join(failures) if failures else f"check_tree: {count} self-tests passed")
        return 1 if failures else 0
    if len(argv) != 2 or argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if argv[1:] in (["--help"], ["-h"]) else 2
    bad, count = check(pathlib.Path(argv[1]))
    for line in bad:
        print(line)
    print(f"check_tree: {count} text files, {len(bad)} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
