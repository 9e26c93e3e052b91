#!/usr/bin/env python3
"""Holds the install lists of tools/lib.sh to what the tree calls: every program that a script, a
test, CMake or the binary starts, and every Python module that is not the standard library's, is
brought by a package of the lists, by a minimal Debian, or stands below with the reason why not.

  check_programs.py ROOT         prints each violation; exit 1 if there is one
  check_programs.py --self-test  takes each package out of the lists, plants calls of programs that
                                 no table knows, and requires that each is caught

Programs are found where they are named: in Python the first word of what subprocess or shutil.which
gets (through variables and functions of the file, too), in shell the words where a command stands.
C++ that starts programs is listed by file. Where the tree's packages are installed (dpkg), each is
also asked whether it brings what the table says. Standard library only.
"""
import ast
import collections
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from check_tree import text_of, tracked  # noqa: E402

# Package -> programs of it that the tree calls.
LISTED = {
    "chromium": "chromium",
    "clang": "clang clang++",
    "clang-format": "clang-format",
    "clang-tidy": "clang-tidy",
    "cmake": "cmake ctest",
    "g++": "c++ g++",
    "git": "git",
    "graphviz": "dot",
    "iproute2": "ip tc",
    "mypy": "mypy",
    "ninja-build": "ninja",
    "nodejs": "node",
    "npm": "npm",
    "openmpi-bin": "mpirun",
    "pyflakes3": "pyflakes3",
    "python3": "python3",
    "shellcheck": "shellcheck",
}
# What every Debian has: packages that are essential, apt, and those of priority "required".
MINIMAL = {
    "apt": "apt-config apt-get",
    "bash": "bash",
    "bsdutils": "",
    "coreutils": "cat chmod chroot comm cp cut date dirname du env head id ln ls mkdir mktemp mv"
    " nice nproc rm seq sleep sort tail tee timeout touch tr true uname uniq wc",
    "dash": "sh",
    "diffutils": "cmp diff",
    "dpkg": "dpkg-query",
    "findutils": "find xargs",
    "grep": "grep",
    "hostname": "hostname",
    "gzip": "gzip",
    "libc-bin": "ldd",
    "mawk": "awk",
    "mount": "mount umount",
    "sed": "sed",
    "util-linux": "nsenter setarch setpriv unshare",
}
# Neither: why the tree may call them all the same.
ELSEWHERE = {
    "ddpsim": "ours",
    "chromium-browser": "another name of chromium, on other systems",
    "clang-format-14": "another name of clang-format",
    "debootstrap": "a stage of the nightly installs it, or is skipped",
    "gcc": "g++ depends on it",
    "em++": "a stage of the nightly installs it, or is skipped",
    "gcovr": "a stage of the nightly installs it, or is skipped",
    "google-chrome": "another browser that does",
    "nvcc": "of the CUDA toolkit; without it the build leaves CUDA out",
    "nvidia-cuda-mps-control": "of NVIDIA's driver; tests have a stand-in",
    "sudo": "asked for by name only, where the caller is not root",
    "time": "tools/peers leaves memory out without it",
}
# Python modules that are not the standard library's -> package.
MODULES = {
    "google": "python3-protobuf",
    "jsonschema": "python3-jsonschema",
    "mkdocs": "mkdocs",
    "mpi4py": "python3-mpi4py",
    "numpy": "python3-torch",
    "torch": "python3-torch",
    "torchvision": "python3-torchvision",
    "yaml": "python3-yaml",
}
MODULES_ELSEWHERE = {
    "ddpsim": "ours",
    "transformers": "not in Debian; what wants it takes a stand-in, or is skipped with the reason",
}
# C++ files that start programs -> which.
STARTS = {
    "calib/cuda/ranks.cc": "",  # ddpsim itself
    "calib/describe.cc": "python3",
    "calib/mpi.cc": "hostname mount mpirun nsenter python3 setpriv sh unshare",
    "calib/script_log.cc": "python3",
    "calib/testbed.cc": "ip tc",
    "tests/grid/grid_test.cc": "git",
    "tests/unit/sequence_test.cc": "python3",
    "tools/cmd/graphviz.cc": "dot",
}
STARTING = re.compile(
    r"(?<!\w)(?:::|std::)(?:exec(?:l|lp|le|v|vp|vpe|ve)|posix_spawnp?|popen|system)\("
)
NAME = re.compile(r"[a-z][\w.+-]*")


# --- Python ------------------------------------------------------------------------------------


def first_words(node):
    """Constant first words of a command: a list, a sum of lists, a string, a conditional one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from node.value.split()[:1]
    elif isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        if isinstance(node.elts[0], ast.Starred):
            yield from first_words(node.elts[0].value)
        else:
            yield from first_words(node.elts[0])
    elif isinstance(node, ast.BinOp):
        yield from first_words(node.left)
    elif isinstance(node, ast.IfExp):
        yield from first_words(node.body)
        yield from first_words(node.orelse)


def names_in(node):
    """Variables that may begin a command."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.BinOp):
        yield from names_in(node.left)
    elif isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        yield from names_in(node.elts[0])
    elif isinstance(node, ast.Starred):
        yield from names_in(node.value)


def called(node):
    return ast.unparse(node.func).split(".")[-1]


STARTS_PROGRAMS = {"which", "Popen", "check_call", "check_output"}


def starts(node):
    name = ast.unparse(node.func)
    return (
        called(node) in STARTS_PROGRAMS
        or name in ("subprocess.run", "subprocess.call", "os.system", "os.popen")
        or name.startswith("os.exec")
        or name.startswith("os.posix_spawn")
    )


def scopes(tree):
    """{node: the function that it is in, or the module}."""
    out, todo = {}, [(tree, tree)]
    while todo:
        node, scope = todo.pop()
        out[node] = scope
        inside = node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else scope
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]
    return out


def of_python(text):
    """(programs, modules), each as (name, line)."""
    tree = ast.parse(text)
    scope = scopes(tree)
    programs, modules, seen = set(), set(), set()
    commands = [n.args[0] for n in scope if isinstance(n, ast.Call) and n.args and starts(n)]
    while commands:
        programs |= {(w, c.lineno) for c in commands for w in first_words(c)}
        new = {(scope[c], v) for c in commands for v in names_in(c)} - seen
        seen |= new
        commands = []
        for where, name in new:
            commands += [c for c in values(scope, where, name)]
    for n in scope:
        if isinstance(n, ast.Import):
            modules |= {(a.name.split(".")[0], n.lineno) for a in n.names}
        elif isinstance(n, ast.ImportFrom) and n.level == 0:
            modules.add((n.module.split(".")[0], n.lineno))
        elif isinstance(n, ast.Call) and n.args and isinstance(n.args[0], ast.Constant):
            if ast.unparse(n.func).split(".")[-1] in ("import_module", "find_spec"):
                modules.add((str(n.args[0].value).split(".")[0], n.lineno))
    return {(p, line) for p, line in programs if NAME.fullmatch(p)}, modules


def values(scope, where, name):
    """What the variable `name` of a function (or of the module) may hold."""
    found = []
    for n, inside in scope.items():
        if inside is not where and not isinstance(inside, ast.Module):
            continue
        if isinstance(n, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in n.targets
        ):
            found.append(n.value)
        elif isinstance(n, (ast.For, ast.comprehension)) and (
            isinstance(n.target, ast.Name) and n.target.id == name
        ):
            if isinstance(n.iter, (ast.List, ast.Tuple)):
                found += n.iter.elts
    if isinstance(where, ast.Module):
        return found
    arguments = [a.arg for a in where.args.args]
    if name in arguments:
        place = arguments.index(name) - (arguments[0] == "self")
        for n in scope:
            if isinstance(n, ast.Call) and called(n) == where.name:
                found += n.args[place : place + 1]
    return found


# --- shell -------------------------------------------------------------------------------------

KEYWORDS = set("if then else elif fi do done while until esac time { } !".split())
BUILTIN = set(
    ": . [ [[ alias break cd continue declare echo eval exit export false getopts hash let local"
    " mapfile printf pwd read readonly return select set shift shopt source test times trap type"
    " ulimit umask unalias unset wait in".split()
)
# A command that runs another -> how many words stand between them.
RUNNERS = {"exec": 0, "command": 0, "logged": 2, "tests": 1, "env": 0, "nice": 0, "xargs": 0,
           "timeout": 1, "setarch": 1, "unshare": 0, "chroot": 1}  # fmt: skip


class Shell:
    """Words where a command stands; quotes, here-documents, substitutions and arrays are known,
    what an awk or another shell gets between single quotes is not looked at."""

    def __init__(self, text):
        self.text, self.at, self.words = text, 0, []
        self.arrays, self.used, self.functions, self.documents = {}, set(), set(), []

    def line(self):
        return self.text.count("\n", 0, self.at) + 1

    def skip_quoted(self):
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            if self.text[self.at] == "\\":
                self.at += 2
            elif self.text.startswith(("$(", "${"), self.at):
                self.substitution()
            else:
                self.at += 1
        self.at += 1

    def substitution(self):
        if self.text.startswith("$((", self.at):
            self.at = self.text.index("))", self.at) + 2
        elif self.text.startswith("$(", self.at):
            self.at += 2
            self.scan(True)
        else:
            self.at += 2
            depth = 1
            while self.at < len(self.text) and depth:
                if self.text.startswith(("$(", "${"), self.at):
                    self.substitution()
                    continue
                if self.text[self.at] == '"':
                    self.skip_quoted()
                    continue
                depth -= self.text[self.at] == "}"
                self.at += 1

    def word(self):
        """Reads one word, returns its text."""
        begin = self.at
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "'":
                self.at = self.text.index("'", self.at + 1) + 1
            elif c == '"':
                self.skip_quoted()
            elif c == "\\":
                self.at += 2
            elif self.text.startswith(("$(", "${"), self.at):
                self.substitution()
            elif c in " \t\n;&|()<>":
                break
            else:
                self.at += 1
        return self.text[begin : self.at]

    def scan(self, inner=False):
        command, skip, depth, runner = True, 0, 0, False
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "\n":
                self.at += 1
                for end in self.documents:
                    rest = re.compile(rf"^\t*{re.escape(end)}$", re.M).search(self.text, self.at)
                    self.at = rest.end() if rest else len(self.text)
                self.documents, command, skip, runner = [], True, 0, False
            elif c in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif c == "#":
                self.at = (self.text + "\n").index("\n", self.at)
            elif self.text.startswith("((", self.at):
                self.at = self.text.index("))", self.at) + 2
            elif self.text.startswith(";;", self.at):
                self.at += 2
                self.pattern()
                command, skip, runner = True, 0, False
            elif c in ";&|(":
                depth += c == "("
                self.at += 1
                command, skip, runner = True, 0, False
            elif c == ")":
                self.at += 1
                if depth == 0 and inner:
                    return
                depth = max(0, depth - 1)
                command, skip, runner = True, 0, False
            elif c in "<>":
                document = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?").match(self.text, self.at)
                here = self.text.startswith("<<<", self.at)
                if document and not here:
                    self.documents.append(document.group(1))
                    self.at = document.end()
                    continue
                self.at += 3 if here else 1
                while self.text[self.at : self.at + 1] in ("<", ">", "&"):
                    self.at += 1
                if self.text[self.at : self.at + 1] == "(":
                    self.at += 1
                    self.scan(True)
                    continue
                while self.text[self.at : self.at + 1] in (" ", "\t"):
                    self.at += 1
                self.word()
            else:
                line = self.line()
                word = self.word()
                command, skip, runner = self.take(word, line, command, skip, runner)

    def take(self, word, line, command, skip, runner):
        """What a word is; returns whether a command may still follow, after how many words."""
        following = self.text[self.at : self.at + 2]
        assigned = re.match(r"(?:local\s+)?(\w+)\+?=", word)
        if assigned and following[:1] == "(" and word.endswith("="):
            self.at += 1
            self.array(assigned.group(1))
            return command, skip, runner
        if not command:
            return False, 0, False
        if assigned or (runner and word.startswith("-")):
            return True, skip, runner
        if skip:
            return True, skip - 1, runner
        if following == "()":
            self.functions.add(word)
            return True, 0, False
        if word == "case":
            while self.at < len(self.text) and word != "in":
                self.at += self.text[self.at] in " \t\n"
                word = self.word()
            self.pattern()
            return True, 0, False
        if word in ("for", "select", "function"):
            return False, 0, False
        if word in KEYWORDS:
            return True, 0, False
        if used := re.match(r'"?\$\{(\w+)', word):
            self.used.add(used.group(1))
        if NAME.fullmatch(word):
            self.words.append((word, line))
            if word in RUNNERS:
                return True, RUNNERS[word], True
        return False, 0, False

    def pattern(self):
        """Passes a pattern of `case`, if one follows."""
        while m := re.compile(r"\s+|#.*").match(self.text, self.at):
            self.at = m.end()
        if not re.compile(r"esac\b").match(self.text, self.at):
            self.at = (self.text + ")").index(")", self.at) + 1

    def array(self, name):
        first = True
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] in " \t\n\\":
                self.at += 1
                continue
            if self.text[self.at] == "#":
                self.at = self.text.index("\n", self.at)
                continue
            if self.text[self.at] in "<>;&|(":
                self.at += 1
                continue
            line = self.line()
            word = self.word()
            if first and NAME.fullmatch(word):
                self.arrays[name] = (word, line)
            first = False
        self.at += 1


def of_shell(text):
    shell = Shell(text)
    shell.scan()
    words = set(shell.words) | {w for name, w in shell.arrays.items() if name in shell.used}
    own = BUILTIN | {"exec", "command"}
    return {(w, n) for w, n in words if w not in own}, shell.functions


# --- the whole tree ----------------------------------------------------------------------------


def of_javascript(text):
    starting = r"""(?:spawn|spawnSync|execFile|execFileSync)\(\s*["']([\w.+-]+)["']"""
    found = re.finditer(starting, text)
    found = [(m.group(1), text.count("\n", 0, m.start()) + 1) for m in found]
    for m in re.finditer(r"""\[("[a-z-]*chrom[a-z-]*"(?:,\s*"[a-z-]+")*)\]""", text):
        line = text.count("\n", 0, m.start()) + 1
        found += [(w, line) for w in re.findall(r'"([a-z-]+)"', m.group(1))]
    return set(found)


def of_cmake(text):
    found = re.finditer(r"(?:find_program\(\w+|\bCOMMAND)\s+([a-z][\w.+-]*)(?=[\s)])", text)
    found = {(m.group(1), text.count("\n", 0, m.start()) + 1) for m in found}
    compiled = re.search(r"\bproject\([^)]*\bCXX\b", text)
    return found | ({("g++", text.count("\n", 0, compiled.start()) + 1)} if compiled else set())


def lists(root):
    """{name of a list in tools/lib.sh: its packages}."""
    text = (root / "tools/lib.sh").read_text()
    found = re.findall(r"^ddpsim_(\w+)_packages=\(([^)]*)\)", text, re.M)
    return {name: packages.split() for name, packages in found}


def uses(root):
    """{(kind, name): [where]}; kind: "program" or "module". And C++ files that start programs."""
    found, functions, shells, cpp = collections.defaultdict(list), set(), {}, {}
    names = tracked(root)
    paths = [pathlib.PurePath(n) for n in names]
    own = {p.stem for p in paths if p.suffix in ("", ".py")}
    own |= {part for p in paths for part in p.parts[:-1]}
    for name in names:
        path = root / name
        if name.endswith((".json", ".gz", ".md", ".csv")):
            continue
        text = text_of(path)
        if text is None:
            continue
        first = text.split("\n", 1)[0]
        if name.endswith(".py") or re.match(r"#!.*python3", first):
            programs, modules = of_python(text)
            for p, line in programs:
                found["program", p].append(f"{name}:{line}")
            for m, line in modules:
                if m not in sys.stdlib_module_names and m not in own:
                    found["module", m].append(f"{name}:{line}")
        elif re.match(r"#!.*\b(?:ba)?sh\b", first):
            shells[name], more = of_shell(text)
            functions |= more
        elif name.endswith((".mjs", ".js")):
            for p, line in of_javascript(text):
                found["program", p].append(f"{name}:{line}")
        elif name.endswith((".cmake", "CMakeLists.txt")):
            for p, line in of_cmake(text):
                found["program", p].append(f"{name}:{line}")
        elif name.endswith((".cc", ".h", ".cu")) and (m := STARTING.search(text)):
            cpp[name] = text.count("\n", 0, m.start()) + 1
    for name, words in shells.items():
        for word, line in words:
            if word not in functions:
                found["program", word].append(f"{name}:{line}")
    return {k: sorted(v) for k, v in found.items()}, cpp


def packages_of(table):
    return {p: package for package, programs in table.items() for p in programs.split()}


def check(root, called=None, listed=None):
    """(violations, number of programs and modules). called: uses(root)."""
    bad = []
    listed = lists(root) if listed is None else listed
    offered = {p for packages in listed.values() for p in packages}
    found, cpp = uses(root) if called is None else called
    found = {k: list(v) for k, v in found.items()}
    for name, line in cpp.items():
        if name not in STARTS:
            bad.append(f"{name}:{line}: starts a program, and STARTS does not say which")
    for name, programs in STARTS.items():
        for p in programs.split():
            if (root / name).is_file():
                found.setdefault(("program", p), []).append(f"{name}:{cpp.get(name, 1)}")
    by_program, minimal = packages_of(LISTED), packages_of(MINIMAL)
    for (kind, name), where in sorted(found.items()):
        package = by_program.get(name) if kind == "program" else MODULES.get(name)
        if kind == "program" and (name in minimal or name in ELSEWHERE):
            continue
        if kind == "module" and name in MODULES_ELSEWHERE:
            continue
        if package is None:
            bad.append(f"{where[0]}: {kind} {name}: no package is known to bring it")
        elif package not in offered:
            bad.append(f"{where[0]}: {kind} {name}: its package {package} is in no install list")
    return bad, len(found)


def not_brought(listed):
    """What the tables claim and installed packages do not hold; nothing without dpkg."""
    bad = []
    offered = {p for packages in listed.values() for p in packages}
    for package, programs in (LISTED | MINIMAL).items():
        if package in LISTED and package not in offered:
            continue
        try:
            done = subprocess.run(["dpkg-query", "-L", package], capture_output=True, text=True)
        except OSError:
            return []
        if done.returncode:
            continue
        held = {pathlib.PurePath(p).name for p in done.stdout.split("\n")}
        held |= {"awk", "c++", "mpirun"}  # of update-alternatives
        bad += [f"{package} does not bring {p}" for p in programs.split() if p not in held]
    return bad


# --- self-test ---------------------------------------------------------------------------------

PLANTED = {
    "a.py": (
        "import subprocess\nsubprocess.run(['tcpdump', '-i', x])\n",
        "import shutil\nif shutil.which('tcpdump'): pass\n",
        "import subprocess\nc = ['tcpdump'] + more\nsubprocess.run(c + ['-v'])\n",
        "from subprocess import Popen\ndef ask(what):\n  Popen(what)\nask(['tcpdump'])\n",
        "import subprocess\nfor tool in ('git', 'tcpdump'):\n  subprocess.run([tool])\n",
        "import os\nos.execvp('tcpdump', [])\n",
        "import tcpdump\n",
        "import importlib\nimportlib.import_module('tcpdump')\n",
        "import importlib.util\nif importlib.util.find_spec('tcpdump') is None: pass\n",
    ),
    "a": (
        "x\ntcpdump -i eth0\n",
        "if ! tcpdump; then :; fi\n",
        'x="$(cd a && tcpdump)"\n',
        "cat <<END\nnothing\nEND\ntrue | tcpdump\n",
        "run=(tcpdump -v)\n${run[@]}\n",
        "logged log what env X=1 tcpdump\n",
        "case $1 in\n  ab | cd) tcpdump ;;\nesac\n",
        "command -v tcpdump\n",
        "echo 'it''s' ${a:-b}; timeout 4 tcpdump\n",
    ),
    "a.mjs": ('spawnSync("tcpdump", []);\n',),
    "a.cmake": ("execute_process(COMMAND tcpdump -v)\n", "find_program(X tcpdump)\n"),
    "a.cc": ("void f() {\n  ::execvp(a[0], a);\n}\n", "int f() { return std::system(tcpdump); }\n"),
}
QUIET: dict = {  # no program is called here
    "a.py": "import json\nx = ['tcpdump']\nsubprocess.run([DDPSIM, 'tcpdump'])\n",
    "a": "# tcpdump\nx='tcpdump'\necho tcpdump\ncat <<END\ntcpdump\nEND\ny=(tcpdump)\n"
    "case $1 in\n  tcpdump) : ;;\nesac\nfor tcpdump in 1; do :; done\n"
    "for ((tcpdump = 1;;)); do :; done\ntcpdump() { :; }\n",
    "a.cc": "plan.system(x); fs::exec(y);\n",
}


def self_test(root):
    import tempfile

    failures, cases = [], 0
    whole, calls = lists(root), uses(root)
    used = set(packages_of(LISTED).values()) | set(MODULES.values())
    for package in sorted(used):
        less = {n: [p for p in packages if p != package] for n, packages in whole.items()}
        bad, _ = check(root, calls, less)
        cases += 1
        if not any(f"its package {package} is in no install list" in b for b in bad):
            failures.append(f"self-test: {package} taken out of the lists is noticed: {bad}")
    with tempfile.TemporaryDirectory() as folder:
        small = pathlib.Path(folder)
        (small / "tools").mkdir()
        (small / "tools/lib.sh").write_text((root / "tools/lib.sh").read_text())
        for names, caught in ((PLANTED, True), (QUIET, False)):
            for name, texts in names.items():
                for text in texts if caught else (texts,):
                    start = "#!/bin/sh\n" if name == "a" else ""
                    (small / name).write_text(start + text)
                    bad, _ = check(small)
                    (small / name).unlink()
                    cases += 1
                    if caught != any(b.startswith(f"{name}:") for b in bad):
                        failures.append(f"self-test: {name}: {text!r}: {bad}")
    return failures, cases


def main(argv):
    root = pathlib.Path(__file__).resolve().parents[2]
    if len(argv) == 2 and argv[1] == "--self-test":
        failures, count = self_test(root)
        print("\n".join(failures) if failures else f"check_programs: {count} self-tests passed")
        return 1 if failures else 0
    if len(argv) != 2 or argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if argv[1:] in (["--help"], ["-h"]) else 2
    root = pathlib.Path(argv[1])
    bad, count = check(root)
    bad += not_brought(lists(root))
    for line in bad:
        print(line)
    print(f"check_programs: {count} programs and modules, {len(bad)} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
