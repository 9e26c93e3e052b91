#!/usr/bin/env python3
"""Is the prose plain? Short sentences, no sentence (but a question) that begins with Of, What or
Those, no word of docs/words.txt.

  check_prose.py ROOT           exit 1 for a violation in STRICT, or for more of them elsewhere than
                                prose.json allows
  check_prose.py ROOT --lower   writes today's numbers into prose.json where they are lower
  check_prose.py --self-test    plants each violation, and a clean page

STRICT holds README.md and what a newcomer reads: none is allowed there. Other documents, and the
first words of comments in code, have a number each in prose.json, which may only fall. Code, links'
targets, generated regions and outputs are no prose; a cell of a table is a sentence of its own.
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STRICT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/start/", "docs/cookbook/",
          "docs/concepts/", "docs/other_words.md", "docs/decisions.md")
ALLOWED = "tests/house/prose.json"
LONGEST = 30  # words
STARTS = ("Of", "What", "Those")
CODE = (".h", ".cc", ".cu", ".py", ".js", ".mjs", ".sh")
SKIPPED = ("reports/", "tests/data/", "calib/published/")
COMMENT = re.compile(r"^\s*(?://|#)\s*(?P<first>\w+)")


def banned(root):
    """(pattern, what stands instead) of docs/words.txt."""
    out = []
    for line in (root / "docs/words.txt").read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, _, instead = (part.strip() for part in line.partition("="))
        end = r"\W*$" if word.endswith(".") else r"\b"
        out.append((re.compile(rf"\b{re.escape(word.rstrip('.'))}{end}", re.I), word, instead))
    return out


def paragraphs(text):
    """(line, text) of a document's paragraphs, items and cells, without code."""
    made = re.compile(r"<!-- figures: .*?<!-- end -->|<!--.*?-->", re.S)
    text = made.sub(lambda m: "\n" * m[0].count("\n"), text)
    out, fence, open_item = [], False, False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fence, open_item = not fence, False
        elif fence or (line.startswith("    ") and not open_item) or not line.strip():
            open_item = open_item and not fence and line.startswith("    ")
        elif line.startswith("#"):
            open_item = False
        elif line.lstrip().startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            out += [(number, c.strip()) for c in cells if re.search(r"\w", c)]
            open_item = False
        elif open_item and not re.match(r"\s*(?:[-*]|\d+\.) ", line):
            out[-1] = (out[-1][0], f"{out[-1][1]} {line.strip()}")
        else:
            out.append((number, re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line).strip()))
            open_item = True
    return out


def sentences(text):
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"[*_]{1,2}(?=\S)|(?<=\S)[*_]{1,2}", "", text)
    return [s for s in re.split(r"(?<=[.!?])\s+", text) if s.strip()]


def found(text, words):
    """(line, what is wrong) of a document."""
    for line, paragraph in paragraphs(text):
        for s in sentences(paragraph):
            short = s if len(s) < 60 else s[:57] + "..."
            count = len(re.findall(r"[\w$%][\w.,$%/'-]*", s))
            if count > LONGEST:
                yield line, f"{count} words in a sentence, and {LONGEST} are allowed: {short}"
            if s.lstrip("(\"").split(" ")[0] in STARTS and not s.endswith("?"):
                yield line, f"a sentence begins with {s.split(' ')[0]}: {short}"
            for pattern, word, instead in words:
                if pattern.search(s):
                    yield line, f"\"{word}\" (instead: {instead}): {short}"


def comments(text):
    """How many comments begin with a word of STARTS."""
    count, before = 0, False
    for line in text.split("\n"):
        m = COMMENT.match(line)
        count += bool(m) and not before and m["first"] in STARTS
        before = bool(re.match(r"^\s*(?://|#)", line))
    return count


def files(root):
    asked = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(asked, capture_output=True, check=False)
    if done.returncode == 0:
        listed = set(done.stdout.decode().split("\0"))
        return sorted(f for f in listed if f and (root / f).is_file())
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def judge(root):
    """(violations in STRICT, {document: number} of the others)."""
    words, strict, counted = banned(root), [], {}
    in_code = 0
    for name in files(root):
        if name.startswith(SKIPPED):
            continue
        if name.endswith(CODE):
            in_code += comments((root / name).read_text(encoding="utf-8", errors="replace"))
        if not name.endswith(".md"):
            continue
        wrong = list(found((root / name).read_text(encoding="utf-8"), words))
        if name.startswith(STRICT):
            strict += [f"{name}:{line}: {what}" for line, what in wrong]
        elif wrong:
            counted[name] = len(wrong)
    if in_code:
        counted["comments in code"] = in_code
    return strict, counted


def compare(root, lower):
    strict, counted = judge(root)
    path = root / ALLOWED
    allowed = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for sentence in strict:
        print(sentence)
    more = {n: c for n, c in counted.items() if c > allowed.get(n, 0)}
    for name, count in more.items() if not lower else ():
        print(f"{name}: {count} violations of the prose, and {allowed.get(name, 0)} are allowed")
    if lower:
        now = {n: min(c, allowed.get(n, c)) for n, c in counted.items()}
        path.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"check_prose: {len(strict)} violations, {sum(counted.values())} allowed ones elsewhere")
    return 1 if strict or (more and not lower) else 0


CLEAN = (
    "# What\n\nIt runs. `what goes` is code.\n\n    What goes\n\n```\nOf\n```\n\n| Of | a cell |\n"
    "\nWhat is it?\n"
)
PLANTED = {
    "long": ("README.md", "One " + "two " * 30 + "three.\n", "32 words"),
    "start": ("README.md", "It runs. Of it more.\n", "begins with Of"),
    "item": ("docs/start/a.md", "- fine\n- What runs\n", "begins with What"),
    "word": ("docs/cookbook/a.md", "It goes.\n", '"goes"'),
    "end": ("README.md", "It runs, too.\n", '"too."'),
    "cell": ("README.md", "| a | b |\n|---|---|\n| c | What is it |\n", "begins with What"),
    "more": ("docs/model.md", "It goes. It goes.\n", "2 violations of the prose, and 1 are"),
    "comment": ("sim/a.h", "// Of it.\nint a;\n", "comments in code: 1 violations"),
}


def self_test():
    checker, failed = str(Path(__file__).resolve()), 0
    words = (Path(checker).parents[2] / "docs/words.txt").read_text(encoding="utf-8")
    for name, (file, text, needed) in {"clean": ("README.md", "", ""), **PLANTED}.items():
        with tempfile.TemporaryDirectory() as top:
            root = Path(top)
            tree = {"README.md": CLEAN.replace("| Of |", "| It |"), "docs/words.txt": words}
            tree |= {"docs/model.md": "It goes.\n", "sim/b.h": "// It.\n// Of two lines.\n"}
            tree |= {ALLOWED: '{"docs/model.md": 1}'} | ({file: text} if text else {})
            for path, content in tree.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content, encoding="utf-8")
            done = subprocess.run(
                [sys.executable, checker, top], capture_output=True, text=True, check=False
            )
            ok = needed in done.stdout and done.returncode == (1 if needed else 0)
            failed += not ok
            print(f"{'ok' if ok else 'FAILED'}: {name}" + ("" if ok else f"\n{done.stdout}"))
    return 1 if failed else 0


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        sys.exit(self_test())
    sys.exit(compare(Path(sys.argv[1]), "--lower" in sys.argv))
