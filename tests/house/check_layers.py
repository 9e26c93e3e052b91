#!/usr/bin/env python3
"""Holds the tree to sim/LAYERS: who may include whom, what a pure room may use, how long a file and
a class may be.

  check_layers.py ROOT         prints each violation as `path:line: sentence`; exit 1 if there is
                               one
  check_layers.py --self-test  builds a small tree per rule, breaks the rule, and requires that it
                               is caught

The syntax of sim/LAYERS is described at its top. Standard library only.
"""
import collections
import dataclasses
import functools
import pathlib
import posixpath
import re
import sys
import tempfile

SOURCES = (".h", ".hpp", ".cc", ".cpp", ".cu", ".cuh", ".inc")
INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|import|include_next)\b[ \t]*(.*)$")
NAMED = re.compile(r'(?:<([^>]+)>|"([^"]+)")')
# Comments, raw strings, strings, character literals (a ' inside a number, 1'000, is not one).
NOT_CODE = re.compile(
    r'//(?:[^\\\n]|\\.|\\\n)*'
    r'|/\*.*?\*/'
    r'|(?:u8|[uUL])?R"(?P<mark>[^ ()\\\t\n]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9A-Za-z_])(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+'",
    re.DOTALL,
)
# The head of a class, up to its brace; `template <class T>` and `enum class` are none.
CLASS = re.compile(
    r'(?<!enum )(?<!\w)(?:class|struct|union)\b\s*'
    r'(?:alignas\s*\([^;{}]*?\)\s*|\[\[[^;{}]*?\]\]\s*)*'
    r'(?P<name>[A-Za-z_][\w:]*(?:\s*<[^;{}()]*>)?)?\s*(?:final\b\s*)?(?::(?!:)[^;{}]*)?\{'
)


# `struct A : B {`, `class A final : public B<int>, C {`.
DERIVED = re.compile(
    r'(?<!enum )(?<!enum class )(?<!\w)(?:class|struct)\s+(?P<name>[A-Za-z_]\w*)\s*(?:final\b\s*)?'
    r':(?!:)(?P<bases>[^;{}()]*)\{'
)

# A number, with what may be put into it and behind it: 1e6, 1'000'000, 1000.0F.
LITERAL = re.compile(
    r"(?<![\w.'])(?P<value>(?:\d[\d']*\.?[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?)"
    r"[fFlLuUzZ]{0,3}(?![\w.'])"
)

# The head of a function, from its type to what precedes its brace (initialisers, too).
FUNCTION = re.compile(
    r"(?:[\w:<>&*,\s\[\]]|\(\*\))*?(?<![\w.])(?P<name>~?[A-Za-z_][\w:]*)\s*\((?!\*)"
    r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*(?:const\b\s*)?(?:noexcept\b\s*)?"
    r"(?:->[\w:<>&*\s]+)?(?::(?!:).*)?$",
    re.DOTALL,
)


class LayersError(Exception):
    """sim/LAYERS itself cannot be read."""


@dataclasses.dataclass
class Rules:
    rooms: list = dataclasses.field(default_factory=list)  # paths, lowest first
    pure: set = dataclasses.field(default_factory=set)
    only: list = dataclasses.field(default_factory=list)  # (header, rooms)
    impure: set = dataclasses.field(default_factory=set)
    ban: list = dataclasses.field(default_factory=list)  # (token, regex)
    generated: set = dataclasses.field(default_factory=set)
    hidden: list = dataclasses.field(default_factory=list)  # (header, room)
    doors: dict = dataclasses.field(default_factory=dict)  # room -> what others may include of it
    composed: list = dataclasses.field(default_factory=list)  # folders without inheritance
    bases: list = dataclasses.field(default_factory=list)  # but of these
    few: list = dataclasses.field(
        default_factory=list
    )  # (most files, tokens, regexes, rooms that may)
    bare: list = dataclasses.field(default_factory=list)  # (factors, numbers, folder, rooms)
    casts: list = dataclasses.field(default_factory=list)  # (most in a thousand lines, folder)
    ids: list = dataclasses.field(default_factory=list)  # (type, name, folder)
    warn_lines: int = 400
    fail_lines: int = 600
    class_lines: int = 300
    function_lines: int = 1000

    def room_of(self, path):
        """The innermost room that holds `path`, or None."""
        inside = [r for r in self.rooms if path.startswith(r + "/")]
        return max(inside, key=len, default=None)


def token_regex(token):
    call = token.endswith("(")
    words = r"[A-Za-z0-9_]*".join(re.escape(part) for part in token.rstrip("(").split("*"))
    words = words.replace("::", r"\s*::\s*")
    if call:  # unqualified, or ::f(
        return re.compile(r"(?<![\w.:])(?<!->)(?:::\s*)?" + words + r"\s*\(")
    return re.compile(r"(?<!\w)" + words + r"(?!\w)")


@functools.cache
def longest_word(token):
    """Of a token's words: where it is not in a text, the token is not."""
    return max(re.findall(r"\w+", token), key=len)


def read_rules(root):
    path = root / "sim" / "LAYERS"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LayersError(f"sim/LAYERS: cannot be read ({error.strerror})") from error
    rules = Rules()
    mentioned = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        verb, args = words[0], words[1:]
        if verb == "room" and len(args) == 1:
            if args[0] in rules.rooms:
                raise LayersError(f"sim/LAYERS:{number}: room {args[0]} is listed twice")
            rules.rooms.append(args[0])
        elif verb == "pure" and args:
            rules.pure.update(args)
            mentioned += [(number, a) for a in args]
        elif verb == "only" and len(args) >= 2:
            rules.only.append((args[0], args[1:]))
            mentioned += [(number, a) for a in args[1:]]
        elif verb == "hidden" and len(args) == 2:
            rules.hidden.append((args[0], args[1]))
            mentioned.append((number, args[1]))
        elif verb == "door" and len(args) >= 2:
            rules.doors.setdefault(args[0], []).extend(args[1:])
            mentioned.append((number, args[0]))
        elif verb == "composed" and args:
            rules.composed.append(args[0])
            rules.bases += args[1:]
        elif verb == "impure" and args:
            rules.impure.update(args)
        elif verb == "ban" and args:
            rules.ban += [(a, token_regex(a)) for a in args]
        elif verb == "few" and len(args) >= 4 and args[0].isdigit() and "beside" in args[2:-1]:
            at = args.index("beside")
            rules.few.append(
                (int(args[0]), args[1:at], [token_regex(a) for a in args[1:at]], args[at + 1 :])
            )
            mentioned += [(number, a) for a in args[at + 1 :]]
        elif verb == "bare" and args[0].isdigit() and args[-4:-1:2] == ["in", "beside"]:
            rules.bare.append((int(args[0]), args[1:-4], args[-3], args[-1]))
            mentioned.append((number, args[-1]))
        elif verb == "casts" and len(args) == 2 and args[0].isdigit():
            rules.casts.append((int(args[0]), args[1]))
        elif verb == "id" and len(args) == 3:
            rules.ids.append(tuple(args))
        elif verb == "generated" and args:
            rules.generated.update(args)
        elif verb == "lines" and len(args) == 2 and all(a.isdigit() for a in args):
            rules.warn_lines, rules.fail_lines = map(int, args)
        elif verb == "class" and len(args) == 1 and args[0].isdigit():
            rules.class_lines = int(args[0])
        elif verb == "function" and len(args) == 1 and args[0].isdigit():
            rules.function_lines = int(args[0])
        else:
            raise LayersError(f"sim/LAYERS:{number}: cannot be understood: {line.strip()}")
    for number, room in mentioned:
        if room not in rules.rooms:
            raise LayersError(f"sim/LAYERS:{number}: {room} is no room; add a `room` line")
    if not rules.rooms:
        raise LayersError("sim/LAYERS: lists no room")
    return rules


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


@functools.cache
def code_only(text):
    """`text` with comments and literals blanked; lines stay where they are."""
    return NOT_CODE.sub(blank, text)


@functools.cache
def without_comments(text):
    """`text` with comments blanked and literals kept: a header's name is a literal."""
    return NOT_CODE.sub(lambda m: blank(m) if m.group(0)[:2] in ("//", "/*") else m.group(0), text)


def without_raw_strings(text):
    return NOT_CODE.sub(lambda m: blank(m) if m.group("mark") is not None else m.group(0), text)


@functools.cache
def joined_lines(text):
    """Lines with their backslash continuations joined into the first; the others are left empty."""

    def join(match):
        parts = match.group(0).split("\\\n")
        return " ".join(parts) + "\n" * (len(parts) - 1)

    return re.sub(r"(?:[^\n]*\\\n)+[^\n]*", join, text).split("\n")


def resolve(root, includer, header):
    """The project path that `#include "header"` names, or None when it names no file of the
    tree."""
    for base in (posixpath.dirname(includer), "", "sim"):
        path = posixpath.normpath(posixpath.join(base, header))
        if not path.startswith("..") and (root / path).is_file():
            return path
    return None


def allows(rule_header, header):
    if rule_header.endswith("/"):
        return header.startswith(rule_header)
    return header == rule_header or header.startswith(rule_header + "/")


def is_open(rules, room, header):
    """Whether other rooms may include `header` of `room`: what lies in no folder of it, and what
    its `door` names."""
    inside = header[len(room or "") + 1 :]
    return (
        room not in rules.doors
        or "/" not in inside
        or any(
            inside.startswith(name) if name.endswith("/") else ("/" + header).endswith("/" + name)
            for name in rules.doors[room]
        )
    )


def check_include(root, rules, path, room, text):
    """Sentences about one #include directive of `path`; `text` is what follows the keyword."""
    named = NAMED.match(text)
    if not named:
        yield f"includes through a macro ({text.strip()}), which cannot be checked; name the header"
        return
    system, quoted = named.groups()
    header = system or quoted
    for rule_header, rooms in rules.only:
        if allows(rule_header, header) and room not in rooms:
            yield f"{room} includes <{header}>; only {', '.join(rooms)} may"
    if room in rules.pure and header in rules.impure:
        yield (
            f"{room} is pure (no I/O, clock, environment, hidden randomness) and includes"
            f" <{header}>"
        )
    target = resolve(root, path, header) if quoted else None
    if system and rules.room_of(posixpath.normpath(system)):
        target = posixpath.normpath(system)
    if target is None:
        if quoted and quoted not in rules.generated:
            yield (
                f'"{header}" names no file of this tree; write <{header}> for a library, '
                'or list it as `generated` in sim/LAYERS'
            )
        return
    target_room = rules.room_of(target)
    if target_room is None:
        yield f"{room} includes {target}, which lies in no room of sim/LAYERS"
    elif rules.rooms.index(target_room) > rules.rooms.index(room):
        yield f"{room} includes {target}: {target_room} comes after {room} in sim/LAYERS"
    elif room in rules.pure and target_room not in rules.pure:
        yield f"{room} is pure and includes {target}, but {target_room} is not pure"
    if target_room and target_room != room and not is_open(rules, target_room, target):
        yield (
            f"{room} includes {target}, which is inside a folder of {target_room}; its door is"
            f" {', '.join(rules.doors[target_room][:2])}"
        )


def classes_of(text):
    """(first line, name, lines) of each class, those in other classes too; from its head to its
    closing brace."""
    code = code_only(text)
    for head in CLASS.finditer(code):
        depth = 1
        for brace in re.finditer(r"[{}]", code[head.end() :]):
            depth += 1 if brace.group(0) == "{" else -1
            if depth == 0:
                lines = code.count("\n", head.start(), head.end() + brace.start()) + 1
                name = re.sub(r"\s", "", head.group("name") or "") or "(no name)"
                yield code.count("\n", 0, head.start()) + 1, name, lines
                break


def functions_of(text):
    """(first line, name, lines) of each function with a body of its own: no lambda, no class."""
    code = code_only(text)
    opened = []
    for brace in re.finditer(r"[{}]", code):
        if brace.group(0) == "{":
            opened.append(brace.start())
        elif opened:
            begin = opened.pop()
            head = re.split(r"[;{}]", code[max(0, begin - 1000) : begin])[-1]
            named = FUNCTION.match(head.strip())
            if named and named.group("name") not in ("if", "for", "while", "switch", "catch"):
                lead = len(head) - len(head.lstrip())
                first = code.count("\n", 0, begin - len(head) + lead)
                yield first + 1, named.group("name"), code.count("\n", 0, brace.start()) - first + 1


def derived_classes(text):
    """(line, name, its bases) of each class that has bases."""
    code = code_only(text)
    for match in DERIVED.finditer(code):
        bases = re.sub(r"\b(?:public|protected|private|virtual)\b", "", match.group("bases"))
        names = [re.sub(r"<.*", "", b).strip() for b in bases.split(",")]
        yield code.count("\n", 0, match.start()) + 1, match.group("name"), names


def check_file(root, rules, path):
    """(violations, warnings), each a list of (line, sentence)."""
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    room = rules.room_of(path)
    bad, warn = [], []
    if room is None:
        return [(1, "lies in no room; add its folder to sim/LAYERS or move it")], warn
    lines = text.count("\n") + (not text.endswith("\n") and text != "")
    composed = any(path.startswith(folder + "/") for folder in rules.composed)
    most = rules.warn_lines if composed else rules.fail_lines
    if lines > most:
        bad.append((lines, f"has {lines} lines; more than {most}: split it by what it does"))
    elif lines > rules.warn_lines:
        warn.append(
            (lines, f"has {lines} lines; files of at most {rules.warn_lines} are the custom")
        )
    bad += [
        (
            number,
            (
                f"{name} has {count} lines; a class has at most {rules.class_lines}: take it apart"
                " by what it knows"
            ),
        )
        for number, name, count in classes_of(text)
        if count > rules.class_lines
    ]
    if composed:
        bad += [
            (number, f"{name} has {count} lines; a function has at most {rules.function_lines}")
            for number, name, count in functions_of(text)
            if count > rules.function_lines
        ]
        bad += [
            (number, f"{name} inherits {', '.join(names)}; let it have one instead")
            for number, name, names in derived_classes(text)
            if not set(names) <= set(rules.bases)
        ]
    for number, line in enumerate(joined_lines(without_raw_strings(without_comments(text))), 1):
        directive = INCLUDE.match(line)
        if directive:
            bad += [
                (number, sentence)
                for sentence in check_include(root, rules, path, room, directive.group(1))
            ]
    if room in rules.pure:
        code = re.sub(r"(?m)^[ \t]*#[ \t]*include\b.*$", "", code_only(text))  # <new> is a header
        for token, regex in rules.ban:
            for match in regex.finditer(code) if longest_word(token) in code else ():
                bad.append(
                    (
                        code.count("\n", 0, match.start()) + 1,
                        f"{room} is pure and uses `{token}`, which sim/LAYERS bans there",
                    )
                )
    return sorted(bad), warn


def check_few(root, rules, paths):
    """Sentences about tokens that more files use than may."""
    for most, tokens, regexes, rooms in rules.few:
        users = []
        for path in paths:
            if rules.room_of(path) in rooms:
                continue
            code = code_only((root / path).read_text(encoding="utf-8", errors="replace"))
            if any(regex.search(code) for regex in regexes):
                users.append(path)
        if len(users) > most:
            yield (
                f"sim/LAYERS:1: {len(users)} files use {', '.join(tokens)} beside"
                f" {', '.join(rooms)}, and {most} may: {', '.join(users)}"
            )


def bare_factors(code, numbers):
    """Lines of factors and divisors that are one of the numbers, however it is written; those of a
    constant that is one (kName), where the constant is written down."""
    for match in LITERAL.finditer(code):
        if float(match.group("value").replace("'", "")) not in numbers:
            continue
        before = code[: match.start()]
        factor = re.search(r"[*/]=?\s*$", before) or re.match(r"\s*[*/]", code[match.end() :])
        named = re.search(r"\b(k[A-Z]\w*)\s*[={]\s*$", before)
        if named and not factor:
            name = named.group(1)
            factor = re.search(rf"[*/]=?\s*{name}\b|\b{name}\s*[*/]", code)
        if factor:
            yield code.count("\n", 0, match.start()) + 1


def check_bare(root, rules, paths):
    """Sentences about numbers that turn one unit into another, where they are not exactly as many
    as may be."""
    for most, numbers, folder, room in rules.bare:
        values = {float(n) for n in numbers}
        found = []
        for path in paths:
            if path.startswith(folder + "/") and rules.room_of(path) != room:
                code = code_only((root / path).read_text(encoding="utf-8", errors="replace"))
                found += [f"{path}:{line}" for line in bare_factors(code, values)]
        if len(found) > most:
            yield (
                f"sim/LAYERS:1: {len(found)} factors of {folder} are bare {', '.join(numbers)}, and"
                f" {most} may; {room} has conversions with names: {', '.join(found)}"
            )
        elif len(found) < most:
            yield (
                f"sim/LAYERS:1: {len(found)} factors of {folder} are bare {', '.join(numbers)};"
                f" lower the {most} of the `bare` line to that"
            )


NUMBER = r"(?:std::)?(?:u?int(?:8|16|32|64)?_t|size_t|ptrdiff_t|int|unsigned|long|float|double)"
CAST = re.compile(
    rf"\b(?:static|const|reinterpret|bit)_cast<([^()]*?)>\("
    rf"|(?<![\w<:])({NUMBER})\((?!\))|\(({NUMBER})\)(?=[\w(])"
)


def casts_in(code):
    """The types that a file's casts are to, however they are written."""
    return [next(t for t in m.groups() if t is not None) for m in CAST.finditer(code)]


def check_casts(root, rules, paths):
    """Sentences about folders with more casts than they may have, by kind."""
    for most, folder in rules.casts:
        kinds, lines = collections.Counter(), 0
        for path in paths:
            if path.startswith(folder + "/"):
                text = (root / path).read_text(encoding="utf-8", errors="replace")
                kinds.update(casts_in(code_only(text)))
                lines += text.count("\n")
        count = kinds.total()
        if count * 1000 > most * lines:
            listed = ", ".join(f"{n} to {kind}" for kind, n in kinds.most_common(8))
            yield (
                f"sim/LAYERS:1: {count} casts in {lines} lines of {folder}, and {most} in a"
                f" thousand may be: {listed}; give a number its type, or a table its enumeration"
            )


def check_ids(root, rules, paths):
    """Sentences about numbers that are called what a strong id is for: `int device`, `int
    from_device`, `std::vector<int> devices`."""
    for kind, name, folder in rules.ids:
        bare = re.compile(
            rf"(?:\bint[&\s]+(?:from_|to_)?{name}(?:_[ab])?"
            rf"|(?:vector|set)<int>[&\s]+{name}s)_?\s*[,;=){{:]"
        )
        for path in paths:
            if not path.startswith(folder + "/"):
                continue
            code = code_only((root / path).read_text(encoding="utf-8", errors="replace"))
            for match in bare.finditer(code):
                yield (
                    f"{path}:{code.count(chr(10), 0, match.start()) + 1}: a {name} is a {kind},"
                    f" not a number: {' '.join(match.group(0).split())}"
                )


def includes_of(root, path):
    """The files of the tree that `path` includes, with the line of each."""
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(joined_lines(without_raw_strings(without_comments(text))), 1):
        directive = INCLUDE.match(line)
        named = NAMED.match(directive.group(1)) if directive else None
        target = resolve(root, path, named.group(1) or named.group(2)) if named else None
        if target:
            yield number, target


def check_hidden(root, rules, paths):
    """Sentences about files that see a hidden header, themselves or through others."""
    if not rules.hidden:
        return
    direct = {path: list(includes_of(root, path)) for path in paths}
    for header, room in rules.hidden:
        if header not in direct:
            yield f"sim/LAYERS:1: {header} is hidden, and is no file"
            continue
        sees = {header}
        grew = True
        while grew:
            more = {p for p, all in direct.items() if any(t in sees for _, t in all)} - sees
            sees |= more
            grew = bool(more)
        for path in paths:
            if rules.room_of(path) == room:
                continue
            for number, target in direct[path]:
                if target in sees:
                    yield f"{path}:{number}: sees {header}, which is hidden in {room}"


def source_files(root, rules):
    tops = sorted({room.split("/")[0] for room in rules.rooms})
    for top in tops:
        for file in sorted((root / top).rglob("*")):
            if file.suffix in SOURCES and file.is_file():
                yield file.relative_to(root).as_posix()


def check(root):
    """(violations, warnings, number of files), as printable lines."""
    rules = read_rules(root)
    bad, warn, count = [], [], 0
    paths = list(source_files(root, rules))
    bad += check_few(root, rules, paths)
    bad += check_bare(root, rules, paths)
    bad += check_casts(root, rules, paths)
    bad += check_ids(root, rules, paths)
    bad += check_hidden(root, rules, paths)
    for path in paths:
        count += 1
        file_bad, file_warn = check_file(root, rules, path)
        bad += [f"{path}:{line}: {sentence}" for line, sentence in file_bad]
        warn += [f"{path}:{line}: warning: {sentence}" for line, sentence in file_warn]
    if count == 0:
        bad.append(f"{root}:1: no source file was found in any room: nothing was checked")
    return bad, warn, count


# --- self-test ---------------------------------------------------------------------------------

LAYERS = """
room sim/units   # lowest
room sim/engine
room sim/topology
room sim/io
room calib/fit
room calib
room tools
pure sim/units sim/engine sim/topology
pure calib/fit
only boost/graph/ sim/topology
only nlohmann/ sim/io
only fstream sim/io
only filesystem sim/io
only thread calib tools
impure chrono random fstream
ban std::exp std::log std::pow std::*_distribution exp( shared_ptr new virtual
generated version.h
few 1 Does::* Phase::* beside sim/units
bare 1 1e3 1e6 in sim beside sim/units
casts 100 sim
id PlaceId place sim
hidden sim/engine/inside.h sim/engine
door sim/topology base/ record.h
composed sim/units std::runtime_error
lines 400 600
class 30
function 20
"""


# A class of `lines` lines.
def of_lines(head, lines):
    return head + " {\n" + "  int f() { return 0; }\n" * (lines - 2) + "};\n"


CLEAN = {
    "sim/units/time.h": (
        '#pragma once\n#include <cstdint>\n// std::exp( new virtual #include "sim/io/x.h"\n'
    ),
    "sim/engine/inside.h": "#include <vector>\n",
    "sim/topology/base/part.h": "",
    "sim/units/plain.h": (
        "enum class E : char { A };\nstruct Bad : std::runtime_error {\n};\n"
        "struct Plain {\n  Plain() : x(0) {}\n  int x : 3;\n};\n"
    ),
    "sim/topology/ring/record.h": '#include "sim/topology/ring/inner.h"\n',
    "sim/topology/ring/inner.h": "",
    "tools/door.cc": '#include "sim/topology/ring/record.h"\n#include "sim/topology/base/part.h"\n',
    "sim/engine/heap.h": '#include "sim/units/time.h"\n',
    # One factor; what is none, or no conversion's, or of the room that has them.
    "sim/engine/rate.h": (
        "double a = x / 1e3;  // y * 1e6\nbool b = a <= 1e6;\nconstexpr double kMost = 1e6;\n"
        "int c = 1'000'000, d = 0x1000 * 10'000, e = 1e30 * v1000;\nbool f = a < kMost;\n"
    ),
    "sim/units/convert.h": "double a = x * 1e6;\n",
    "calib/factor.h": "double a = x * 1e6;\n",
    "sim/engine/queue.h": '#include <new>\n#include "sim/units/time.h"\n#define X \\\n  1\n',
    "sim/engine/queue.cc": (
        '#include "queue.h"\n/* shared_ptr\n#include <chrono>\n*/\nconst char* a = "new virtual \\"'
        ' std::log(";\nconst char* b = R"x(\n#include <random>\nnew )" )x";\nint renewed(int news)'
        ' { return news + 1\'000 + \'x\'; }\nint c(S s) { return s.exp(1) + s->exp(2) +'
        ' S::exp(3); }\n'
    ),
    "sim/topology/graph.cc": (
        '#include <boost/graph/adjacency_list.hpp>\n#include "sim/engine/queue.h"\n'
    ),
    "sim/io/json.h": (
        "#include <nlohmann/json.hpp>\n#include <fstream>\n#include <chrono>\nvirtual new"
        " std::exp(1)\n"
    ),
    "calib/fit/fit.cc": '#include "sim/engine/queue.h"\n',
    "calib/run.cc": '#include "sim/io/json.h"\n#include "fit/fit.cc"\n#include <thread>\n',
    "tools/main.cc": '#include "version.h"\n#include "sim/io/json.h"\n#include <chrono>\n',
    "calib/ask.cc": "bool b = k == Does::Wait;  // Phase::Forward\n",
    # As many as may be; what is long and no class; braces that are no code; one after another.
    "tools/short.cc": (
        of_lines("struct Short : Base<int> /* { */", 30)
        + of_lines("namespace n", 40)
        + of_lines("enum class E", 40)
        + of_lines("Table my_struct", 40)
        + of_lines("template <class T>\nvoid g(struct S s)", 40)
        + 'struct A { char c = \'{\'; const char* s = "{{"; };  // {\n'
        + "class Forward;\nstruct A a;\n"
        + "\n" * 40
        + of_lines("struct B", 20)
        + of_lines("struct C", 20)
    ),
}

# name -> (path, text added at the end, what the message must say)
BROKEN = {
    "upward include": (
        "sim/units/time.h",
        '#include "sim/engine/queue.h"\n',
        "comes after sim/units",
    ),
    "upward, angle brackets": (
        "sim/units/time.h",
        "#include <sim/engine/queue.h>\n",
        "comes after",
    ),
    "upward, relative": ("sim/units/time.h", '#include "../engine/queue.h"\n', "comes after"),
    "upward, from sim/": ("sim/units/time.h", '#include "engine/queue.h"\n', "comes after"),
    "upward, spaced directive": (
        "sim/units/time.h",
        ' # include\t"sim/engine/queue.h"\n',
        "comes after",
    ),
    "upward, comment inside": (
        "sim/units/time.h",
        '#include /* x */ "sim/engine/queue.h"\n',
        "comes after",
    ),
    "upward, continued line": (
        "sim/units/time.h",
        '#include \\\n"sim/engine/queue.h"\n',
        "comes after",
    ),
    "upward in a .cu": ("sim/units/k.cu", '#include "sim/io/json.h"\n', "comes after"),
    "inner room to outer": (
        "calib/fit/fit.cc",
        '#include "calib/run.cc"\n',
        "comes after calib/fit",
    ),
    "pure includes impure": ("calib/fit/fit.cc", '#include "sim/io/json.h"\n', "is not pure"),
    "boost graph elsewhere": (
        "sim/engine/queue.cc",
        "#include <boost/graph/bfs.hpp>\n",
        "only sim/topology",
    ),
    "a hidden header": (
        "tools/main.cc",
        '#include "sim/engine/inside.h"\n',
        "is hidden in sim/engine",
    ),
    "a long file of a composed folder": (
        "sim/units/l.h",
        "// line\n" * 401,
        "has 401 lines; more than 400",
    ),
    "a long function": (
        "sim/units/f.cc",
        "namespace n {\nint X::f(int a,\n  int b) const {\n" + "  g();\n" * 18 + "}\n}\n",
        "X::f has 21 lines",
    ),
    "a base class": ("sim/units/b.h", "struct B : A {\n  int x;\n};\n", "B inherits A"),
    "a private base": (
        "sim/units/b.h",
        "class B final : Other<A>, C {\n};\n",
        "B inherits Other, C",
    ),
    "past a door": (
        "tools/main.cc",
        '#include "sim/topology/ring/inner.h"\n',
        "is inside a folder of sim/topology",
    ),
    "json elsewhere": ("tools/main.cc", "#include <nlohmann/json_fwd.hpp>\n", "only sim/io"),
    "json, quoted": ("tools/main.cc", '#include "nlohmann/json.hpp"\n', "only sim/io"),
    "fstream elsewhere": ("calib/run.cc", "#include <fstream>\n", "only sim/io"),
    "filesystem elsewhere": ("tools/main.cc", "#include <filesystem>\n", "only sim/io"),
    "thread in a pure room": ("sim/engine/queue.h", "#include <thread>\n", "only calib, tools"),
    "clock in a pure room": ("sim/engine/queue.h", "#include <chrono>\n", "is pure"),
    "random in a pure room": ("calib/fit/fit.cc", "#include <random>\n", "is pure"),
    "macro include": ("tools/main.cc", "#include HEADER\n", "through a macro"),
    "unknown quoted header": ("tools/main.cc", '#include "nowhere.h"\n', "names no file"),
    "test header": ("tools/main.cc", '#include "tests/t.h"\n', "lies in no room"),
    "file in no room": ("sim/attic/old.cc", "int x;\n", "lies in no room"),
    "std::exp": ("sim/units/time.h", "double y = std::exp(1);\n", "`std::exp`"),
    "std :: log": ("sim/units/time.h", "double y = std :: log (1);\n", "`std::log`"),
    "std::pow taken": ("sim/units/time.h", "auto f = &std::pow;\n", "`std::pow`"),
    "exp unqualified": ("sim/units/time.h", "double y = 2*exp(1);\n", "`exp(`"),
    "::exp": ("sim/units/time.h", "double y = ::exp(1);\n", "`exp(`"),
    "distribution": (
        "sim/engine/queue.cc",
        "std::normal_distribution<> d;\n",
        "std::*_distribution",
    ),
    "shared_ptr": ("sim/engine/queue.cc", "std::shared_ptr<int> p;\n", "`shared_ptr`"),
    "raw new": ("sim/engine/queue.cc", "int* p = new int(1);\n", "`new`"),
    "virtual": ("sim/engine/queue.cc", "struct S { virtual void f(); };\n", "`virtual`"),
    "banned after a number": (
        "sim/engine/queue.cc",
        "int n = 1'0; auto p = new int('x');\n",
        "`new`",
    ),
    "banned beside a literal": ("sim/engine/queue.cc", 'f("x", new int, "y");\n', "`new`"),
    "long class": ("sim/engine/queue.cc", of_lines("class Long", 31), "Long has 31 lines"),
    "long struct": ("tools/main.cc", of_lines("struct Long", 31), "Long has 31 lines"),
    "long in a header": ("sim/io/json.h", of_lines("class Long", 31), "Long has 31 lines"),
    "long, derived": (
        "tools/main.cc",
        of_lines("class Long final : public Base<int>, n::Other", 31),
        "Long has 31 lines",
    ),
    "long, brace below": (
        "tools/main.cc",
        of_lines("template <class T, class U = int>\nstruct Long\n", 30),
        "Long has 31 lines",
    ),
    "long, of a template": ("tools/main.cc", of_lines("struct Long<int*>", 31), "has 31 lines"),
    "long, with an attribute": (
        "tools/main.cc",
        of_lines("class [[nodiscard]] alignas(64) Long", 31),
        "Long has 31 lines",
    ),
    "long, no name": ("tools/main.cc", of_lines("struct", 31), "(no name) has 31 lines"),
    "long in a function": (
        "tools/main.cc",
        "void f() {\n" + of_lines("struct Long", 31) + "}\n",
        "Long has 31 lines",
    ),
    "long by its comments": (
        "tools/main.cc",
        "struct Long {\n" + "// }\n" * 29 + "};\n",
        "Long has 31 lines",
    ),
    "too long": ("sim/engine/queue.cc", "\n" * 601, "more than 600"),
}


def write_tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def run_case(files, layers=LAYERS):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write_tree(root, {**files, "sim/LAYERS": layers, "tests/t.h": "int t;\n"})
        try:
            return check(root)
        except LayersError as error:
            return [str(error)], [], 0


def self_test():
    failures = []

    def few(files):
        return [m for m in run_case({**CLEAN, **files})[0] if "files use" in m]

    def expect(name, condition, got):
        if not condition:
            failures.append(f"self-test: {name}: got {got}")

    expect(
        "a second file that asks is caught",
        len(few({"tools/b.cc": "auto x = Phase::Forward;\n"})) == 1,
        "nothing",
    )
    expect(
        "a room that may ask may",
        not few({"sim/units/b.cc": "auto x = Phase::Forward;\n"}),
        "a refusal",
    )
    def bare(text):
        return [m for m in run_case({**CLEAN, "sim/engine/rate.h": text})[0] if " bare " in m]

    for more in (
        "auto b = 1e6 * x;",
        "auto b = x / 1'000'000;",
        "auto b = x *\n  1000.0F;",
        "x /= 1.0E+3;",
        "constexpr double kPs = 1e6;\nauto b = x * kPs;",
        "constexpr int kA{1000};\nint b = kA * x;",
    ):
        got = bare("auto a = x / 1e3;\n" + more + "\n")
        expect(
            f"a factor more is caught: {more}",
            len(got) == 1 and got[0].count("rate.h:") == 2,
            got,
        )
    def casts(lines, *more):
        text = "\n".join([*more, *["int x;"] * (lines - len(more))]) + "\n"
        found = run_case({**CLEAN, "sim/engine/cast.h": text})[0]
        return [m for m in found if " casts in " in m]

    every = (
        "auto a = static_cast<int>(x);", "auto b = std::int64_t(x);", "auto c = (double)x;",
        "auto d = static_cast<std::vector<int>>(x);", "f(reinterpret_cast<char*>(x));",
    )
    for cast in every:
        got = casts(300, *[cast] * 90)
        expect(f"many casts are caught: {cast}", len(got) == 1, got)
    expect("few casts may be", not casts(300, *every), casts(300, *every))
    kinds = casts(100, *every * 10)
    expect("they are listed by kind", "10 to double" in str(kinds), kinds)
    no_casts = ("double f(int x);", "std::function<double(int)> g;", "int main();", "sizeof(int);")
    expect("declarations are none", not casts(100, *no_casts * 20), casts(100, *no_casts * 20))
    ids = [
        "int place = 0;", "void f(int from_place, int x);", "for (int place : x) {}",
        "const std::vector<int>& places = x;", "std::set<int> places_;",
        "int place_b{0};",
    ]  # fmt: skip
    for line in ids:
        got = run_case({**CLEAN, "sim/engine/id.h": "int x;\n" + line + "\n"})[0]
        expect(f"a bare id is caught: {line}", len(got) == 1 and "id.h:2: a place" in got[0], got)
    fine = (
        "int places = 3;\nPlaceId place;\nint replaced = 0;\nint place_count();\nf(place);\n"
        "int per_place;\n"
    )
    got = run_case({**CLEAN, "sim/engine/id.h": fine})[0]
    expect("counts, and ids of their type, are fine", not got, got)
    got = bare("auto a = x;\n")
    expect("a factor less lowers the number", len(got) == 1 and "lower the 1" in got[0], got)
    through = {
        "sim/topology/base/part.h": "",
    "sim/units/plain.h": (
        "enum class E : char { A };\nstruct Bad : std::runtime_error {\n};\n"
        "struct Plain {\n  Plain() : x(0) {}\n  int x : 3;\n};\n"
    ),
    "sim/topology/ring/record.h": '#include "sim/topology/ring/inner.h"\n',
    "sim/topology/ring/inner.h": "",
    "tools/door.cc": '#include "sim/topology/ring/record.h"\n#include "sim/topology/base/part.h"\n',
    "sim/engine/heap.h": '#include "inside.h"\n',
        "tools/main.cc": '#include "sim/engine/heap.h"\n',
    }
    bad, _, _ = run_case({**CLEAN, **through})
    expect(
        "a hidden header seen through another is caught",
        len(bad) == 1 and "tools/main.cc:1: sees" in bad[0],
        bad,
    )
    bad, warn, count = run_case(CLEAN)
    expect("a clean tree passes", not bad and not warn and count == len(CLEAN), bad + warn)
    for name, (path, text, says) in BROKEN.items():
        before = CLEAN.get(path, "")
        bad, _, _ = run_case({**CLEAN, path: before + text})
        first = before.count("\n") + 1
        last = first + max(0, text.count("\n") - 1)
        places = [
            m
            for m in bad
            if says in m
            and m.startswith(path + ":")
            and (first <= int(m.split(":")[1]) <= last or "more than" in m or "no room;" in m)
        ]
        expect(
            f"{name} is caught in its place",
            places and (len(bad) == 1 or name == "json, quoted"),
            bad,
        )
    _, warn, _ = run_case({**CLEAN, "sim/engine/queue.cc": "\n" * 401})
    expect("a file of 401 lines warns", len(warn) == 1 and "401 lines" in warn[0], warn)
    bad, warn, _ = run_case({**CLEAN, "sim/engine/queue.cc": "\n" * 400})
    expect("a file of 400 lines does not", not bad and not warn, bad + warn)
    inner = of_lines("class Outer", 20).replace("};\n", of_lines("struct Inner", 20) + "};\n")
    bad, _, _ = run_case({**CLEAN, "tools/b.cc": inner})
    expect(
        "a class counts with those in it",
        len(bad) == 1 and "Outer has 40 lines" in bad[0],
        bad,
    )
    bad, _, _ = run_case({})
    expect("an empty tree fails", bad and "nothing was checked" in bad[-1], bad)
    for name, layers, says in (
        ("unknown statement", LAYERS + "roof sim/x\n", "cannot be understood"),
        ("unknown room in a rule", LAYERS + "pure sim/nothing\n", "is no room"),
        ("room listed twice", LAYERS + "room sim/io\n", "listed twice"),
        ("no room", "# empty\n", "lists no room"),
    ):
        bad, _, _ = run_case(CLEAN, layers)
        expect(f"LAYERS: {name}", bad and says in bad[0], bad)
    return failures, len(BROKEN) + 19


def main(argv):
    if len(argv) == 2 and argv[1] == "--self-test":
        failures, count = self_test()
        print("\n".join(failures) if failures else f"check_layers: {count} self-tests passed")
        return 1 if failures else 0
    if len(argv) != 2 or argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if argv[1:] in (["--help"], ["-h"]) else 2
    try:
        bad, warn, count = check(pathlib.Path(argv[1]))
    except LayersError as error:
        print(error)
        return 1
    for line in bad + warn:
        print(line)
    print(f"check_layers: {count} files, {len(bad)} violations, {len(warn)} warnings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
