#!/usr/bin/env python3
"""Runs every command that README.md or another document prints, as it is printed.

  commands.py DDPSIM [--only TEXT | --but TEXT] [--accept [--measured] | --list | --self-test]
      --only TEXT  the documents whose path begins with TEXT; --but: the others (repeatable)
      --accept     writes the outputs and pictures below into the documents, and judges nothing
      --measured   with --accept: outputs that differ from run to run, too
      --list       what is printed, and what becomes of it; nothing runs

A document's commands run in their order in one folder, next to links to the tree's. A command is a
line of code (indented, or between fences) that begins with a program of ours, of CMake or with
Python; in the text, what stands between backticks and names files or a whole question. A mention
(`ddpsim predict --format json`) does not run; its options must exist. A command that cannot run
stands below with its reason. A document says with a comment of HTML what the next lines are:

  <!-- file: NAME -->       a fenced block: this file, for the commands that follow
  <!-- output -->           a fenced block: the stdout of the command above, whole
  <!-- output: A; B -->     the same: its paragraphs that begin with A or B; "..." stands for others
  <!-- output, measured --> the same; it differs from run to run, and is not compared
  <!-- picture: NAME -->    an image: a copy of the file NAME that the commands above wrote
"""
import argparse
import functools
import gzip
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/cli"), str(ROOT / "tests/python")]
sys.path.insert(0, str(ROOT / "tools/python"))
import nsys  # noqa: E402
import warm_python  # noqa: E402
from ddpsim_files import write_whole  # noqa: E402

DATA = ROOT / "tests/data"
LEFT_OUT = ("CHANGELOG.md", "build", ".git", "reports", "tests/data", "node_modules")
PROGRAM = re.compile(
    r"(?:ddpsim|cmake|ctest|mpirun|torchrun|(?:/usr/bin/)?python3|(?:\./)?(?:tools|tests|build)/\S+"
    r"|(?:\./)?\.ci/run)(?=\s|$)"
)
STANDS_IN = {"tests/oracle/README.md": ROOT / "tests/oracle"}
SUBCOMMANDS = "topology show import export list".split()  # the next word belongs to their name

# A command that begins so (with " $": that is no longer) does not run, because ...
BUILDS = "it builds or installs: .ci/run and the nightly's stages run it"
MINUTES = "it executes or measures for minutes"
GPU = "it needs a GPU, or the CUDA toolkit"
WRITES = "it writes what is committed; .ci/run and tests run it with --check"
JUDGES = "it takes long; tests of the rung validation run it"
TORCH = "it starts several processes of PyTorch; the test python.record runs it"
NOT_RUN = {
    "./tools/quickstart": BUILDS,
    "./tools/test": BUILDS,
    "tools/test -L": BUILDS,
    "cmake": BUILDS,
    "tools/truth_matrix": MINUTES,
    "tools/trace_truth": MINUTES,
    "tools/fresh_truth": MINUTES,
    "tools/python/describe_models.py --out workloads/": MINUTES,
    "ddpsim calibrate": MINUTES,
    "/usr/bin/python3 tools/python/ddpsim_cpu_ops.py": MINUTES,
    "/usr/bin/python3 tests/python/cpu_steps.py --execute": MINUTES,
    "/usr/bin/python3 tools/python/ddpsim_capture.py --model resnet50": MINUTES,
    "/usr/bin/python3 tools/python/ddpsim_capture.py --factory mymodule:make": (
        "it waits for a machine that is not busy; docs/start/own_model.md has its like, which runs"
    ),
    "ddpsim run --backend torch --workload resnet18-cpu": MINUTES + "; .ci/run runs its like",
    "torchrun": TORCH,
    "/usr/bin/python3 tests/python/": "it is itself a test",
    "python3 oracle.py --self-test": "it is itself a test",
    "tests/validation/": "it is itself a test",
    "tests/python/": "it is itself a test",
    "ddpsim validate $": JUDGES,
    "tools/gpu_import": "it unpacks what a session on a GPU left: the test python.gpu_import",
    "tools/gpu_calibrate $": GPU,
    "tools/gpu_calibrate --models": GPU,
    "tools/docs": WRITES,
    "tools/figures": WRITES,
    "tools/reports": WRITES,
}
# Exit codes other than 0: a difference, which is what the command is there to tell.
TELLS = {
    "ddpsim compare predicted.json measured.json": (0, 1),  # on a machine that is not quiet
    "ddpsim compare lowered.program.json": (0, 1),  # of another model
}
# What a machine may lack. A command that says so is left out.
LACKS = (
    "has no PyTorch",
    "PyTorch is missing",
    "No module named 'torch",
    "has no SQLite",
    'Graphviz\'s "dot" was not found',
    "this build of ddpsim has no page",
)

WIDTH = 110  # columns of what documents show
MARK = re.compile(r"<!-- (file|output|picture)(?:: (.*?))?(, measured)? -->")


class Shown:
    """A block of a document that follows one of the comments: lines [begin, end), from 0."""

    def __init__(self, what, name, measured, begin, end):
        self.what, self.name, self.measured = what, name, measured
        self.begin, self.end = begin, end


class Command:
    def __init__(self, document, line, text, whole):
        self.document, self.line, self.text, self.whole = document, line, text, whole
        self.files = {}  # that the document gives before it: {name: text}
        self.shown = []  # what of it the document shows

    def __str__(self):
        return f"{self.document}:{self.line}: {self.text}"

    @property
    def reason(self):
        begins = [b for b in NOT_RUN if f"{self.text} $".startswith(b)]
        return NOT_RUN[max(begins, key=len)] if begins else ""


def documents(root):
    found = [str(p.relative_to(root)) for p in root.rglob("*.md")]
    return sorted(p for p in found if not p.startswith(LEFT_OUT))


def without_comment(line):
    return re.sub(r"\s+#\s.*$", "", line).strip()


def whole(text):
    """Is what stands between backticks a command, and not the mention of one?"""
    if re.search(r"(?<![-\w])[A-Z][A-Z_]*\b(?!=)|\.\.\.|^\S+$", re.sub(r"\$\w+", "", text)):
        return False
    if not text.startswith("ddpsim "):
        return bool(PROGRAM.match(text))
    files = re.search(r"[\w*]\.(?:json|csv|log|gz|conf|html|sqlite|md)\b", text)
    return bool(files) or "--workload" in text and "--cluster" in text


def attach(code, commands, lines):
    """To each command the files that its document gives before it and what it shows of it. code:
    the commands that are lines of code, whose outputs can be shown."""
    for at, line in enumerate(lines):
        mark = MARK.fullmatch(line.strip())
        if not mark:
            continue
        what, name, measured = mark.groups()
        if what == "picture":
            owner = next((c for c in commands if c.whole and name in c.text.split()), None)
            shown = Shown(what, name, False, at + 1, at + 2)
        else:
            end = next(k for k in range(at + 2, len(lines)) if lines[k].strip() == "```")
            shown = Shown(what, name, bool(measured), at + 2, end)
            if what == "output":
                owner = next((c for c in reversed(code) if c.line <= at), None)
            else:
                owner = next((c for c in commands if c.line > at), None)
        if owner is None:
            raise SystemExit(f"commands: line {at + 1}: no command makes or reads this {what}")
        if what == "file":
            owner.files[name] = "\n".join(lines[shown.begin : shown.end]) + "\n"
        else:
            owner.shown.append(shown)


def excerpt(output, names):
    """Paragraphs that begin with one of the names, or have one of the numbers ("1-3", from 1).
    None: all. "..." stands for the others."""
    text = output.rstrip("\n")
    if names is None:
        return text.split("\n")
    asked = [n.strip() for n in names.split(";")]
    spans = [[int(k) for k in n.split("-")] for n in asked if re.fullmatch(r"\d+(-\d+)?", n)]
    out = []
    for number, paragraph in enumerate(text.split("\n\n"), 1):
        named = paragraph.lstrip().startswith(tuple(asked))
        if named or any(span[0] <= number <= span[-1] for span in spans):
            out += [paragraph.strip("\n")]
        elif out[-1:] != ["..."]:
            out += ["..."]
    return "\n\n".join(out).split("\n")


def printed(name, text):
    """Commands of a document, in their order."""
    out, fence, begun = [], "", ""  # fence: what opened it
    lines, prose = text.split("\n"), []
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fence = "" if fence else line.strip()
            prose.append("")
            continue
        if fence == "```text":
            prose.append("")
            continue
        if not (fence or line.startswith("    ")):
            prose.append(line)
            continue
        prose.append("")
        line = f"{begun} {line.strip()}".strip() if begun else line.strip().removeprefix("$ ")
        begun = ""
        if line.endswith("\\"):
            begun = line[:-1].strip()
        elif PROGRAM.match(line):
            out.append(Command(name, number, without_comment(line), True))
    code, text = list(out), "\n".join(prose)
    for m in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
        said = re.sub(r"\s+", " ", m.group(1))
        if PROGRAM.match(said) and " " in said:
            number = text.count("\n", 0, m.start()) + 1
            out.append(Command(name, number, said, whole(said)))
    out.sort(key=lambda c: c.line)
    attach(code, out, lines)
    return out


# --- what they need ----------------------------------------------------------------------------

# Before a command that begins so, these are made.
TRAIN = """import torch
from torch import nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(784, 1024), nn.Linear(1024, 10)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def make():
    return Net(), (torch.randn(16, 784),), None, None


if __name__ == "__main__":
    import argparse
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    lr = parser.parse_args().lr
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = DDP(Net(), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(6):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(16, 784)), torch.randint(10, (16,))).backward()
        optimizer.step()
"""


def write(folder, name, text):
    (folder / name).write_text(text)


def link(folder, name, to):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(to)


def given(name, text):
    return lambda folder, _ddpsim: write(folder, name, text)


def copied(name, file):
    return lambda folder, _ddpsim: shutil.copy(ROOT / file, folder / name)


def answers(*lines):
    """What these commands write."""

    def make(folder, ddpsim):
        for line in lines:
            words = [ddpsim, *shlex.split(line)]
            subprocess.run(words, cwd=folder, check=True, capture_output=True)

    return make


def traces(*names):
    """Traces of ranks 0, 1, ... of an H100: a published one of two A100, under another name."""

    def make(folder, _ddpsim):
        text = gzip.open(DATA / "kineto/a100-resnet50-ddp2.json.gz").read()
        trace = json.loads(text.replace(b"NVIDIA A100-PG509-200", b"NVIDIA H100 80GB HBM3"))
        for rank, name in enumerate(names):
            trace["distributedInfo"]["rank"] = rank
            (folder / name).write_bytes(gzip.compress(json.dumps(trace).encode(), 1))

    return make


def nsys_export(folder, _ddpsim):
    nsys.shaped(folder / "step.sqlite")


RESNET = """import torch
import torchvision


def make():
    return torchvision.models.resnet50(), (torch.randn(4, 3, 224, 224),), None, None
"""
def shards(folder, ddpsim):
    """What an array of two jobs leaves; a command before has written the whole."""
    (folder / "grid.csv").unlink()
    sweep = "sweep --workload resnet50 --cluster hgx-h100 --axis bucket_cap_mb=1,5 --shard"
    answers(*(f"{sweep} {k}/2 --out shard{k}.csv" for k in (0, 1)))(folder, ddpsim)


def question_and_run(folder, run_name):
    """question.json, and a Run of it by PyTorch that says what its layers take; as torchrun's, it
    names no scenario."""
    run = next((ROOT / "calib/runs").glob("torch-1e8172296e4f0f97-*.json.gz"))
    run = json.loads(gzip.decompress(run.read_bytes()))
    run["case"] = {"key": "", "split": run["case"]["split"]}
    write(folder, run_name, json.dumps(run))
    shutil.copy(ROOT / "calib/runs/scenarios/1e8172296e4f0f97.json", folder / "question.json")


def runs_of_mine(folder, _ddpsim):
    """Some of what `ddpsim calibrate` and tools/truth_matrix leave, on hosts without GPUs."""
    runs, mine = ROOT / "calib/runs", folder / "mine"
    shutil.copytree(runs / "scenarios", mine / "scenarios")
    kept = 0
    for run in sorted(runs.glob("*.json.gz")):
        if run.name.startswith("tcp-"):
            scenario = json.loads((mine / f"scenarios/{run.name.split('-')[1]}.json").read_text())
            cpu = scenario["cluster"]["device"]["kind"] == "cpu"
            kept += cpu
            if not cpu or kept % 3:
                continue
        if not run.name.startswith("torch-"):
            shutil.copy(run, mine)


def expected(folder, ddpsim):
    question_and_run(folder, "measured.json")
    answers("predict question.json --format json --out expected.json")(folder, ddpsim)


def gpu_runs(folder, _ddpsim):
    """What tools/gpu_calibrate leaves of the device: an H200's, as if it had been quiet."""
    (folder / "gpu-runs/runs").mkdir(parents=True)
    for path in (ROOT / "calib/gpu-runs/h200-sxm").glob("cuda-*.json.gz"):
        run = json.loads(gzip.decompress(path.read_bytes()))
        run["quality"].update(verdict="clean", reasons=[])
        (folder / "gpu-runs/runs" / path.name).write_bytes(
            gzip.compress(json.dumps(run).encode(), 1)
        )


TRAIN_DDP = """import torch
import train
from torch.nn.parallel import DistributedDataParallel as DDP

torch.distributed.init_process_group("gloo")
model, inputs, _, _ = train.make()
model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(6):
    optimizer.zero_grad()
    labels = torch.randint(10, (16,))
    torch.nn.functional.cross_entropy(model(*inputs), labels).backward()
    optimizer.step()
"""


# (how a command begins, what is made before it)
NEEDS = [
    (
        "ddpsim import nccl-tests all_reduce.log",
        copied("all_reduce.log", "tests/data/nccl/all_reduce_modern.txt"),
    ),
    (
        "ddpsim compare before.json",
        answers(
            "predict --workload resnet50 --cluster hgx-h100 --format json --out before.json",
            "predict --workload resnet50 --cluster hgx-h100 --format json --out after.json",
        ),
    ),
    (
        "ddpsim import kineto trace.json.gz",
        copied("trace.json.gz", "tests/data/kineto/mi250-minitoy.json.gz"),
    ),
    ("ddpsim import nsys step.sqlite", nsys_export),
    ("ddpsim describe --factory model.py:make", given("model.py", RESNET)),
    ("ddpsim predict --script train.py", given("train.py", TRAIN)),
    ("ddpsim describe --script train.py", given("train.py", TRAIN)),
    ("ddpsim import kineto rank*", traces("rank0.json.gz", "rank1.json.gz")),
    ("ddpsim explain rank*.json.gz", traces("rank0.json.gz", "rank1.json.gz")),
    ("ddpsim merge shard*.csv --out grid.csv", shards),
    ("ddpsim tune question.json --layers", lambda folder, _: question_and_run(folder, "run.json")),
    ("/usr/bin/python3 tools/python/ddpsim_record_program.py", given("train_ddp.py", TRAIN_DDP)),
    ("ddpsim predict question.json --format json --out now.json", expected),
    ("ddpsim fit --runs mine", runs_of_mine),
    (
        "ddpsim import run measured.json question.json",
        lambda folder, _: question_and_run(folder, "measured.json"),
    ),
    (
        "ddpsim import run run.json question.json",
        lambda folder, _: question_and_run(folder, "run.json"),
    ),
    ("ddpsim fit --backend cuda --runs gpu-runs/runs", gpu_runs),
    ("ddpsim describe --factory train.py:make", given("train.py", TRAIN)),
]


# --- running them ------------------------------------------------------------------------------


class Runner:
    def __init__(self, ddpsim, python):
        self.ddpsim = str(Path(ddpsim).resolve())
        self.python = python
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSIM")}
        self.has_torch = python is not None

    def folder(self, place):
        """As a clone looks to who stands in it, but that nothing of ours can be written over."""
        (place / "bin").mkdir()
        link(place, "bin/ddpsim", self.ddpsim)
        (place / "build/release").mkdir(parents=True)
        link(place, "build/release/ddpsim", self.ddpsim)
        for name in ("tools", "tests", "topologies", "sim", "docs", "README.md"):
            link(place, name, ROOT / name)
        for name in ("calib", "workloads"):
            (place / name).mkdir()
            for entry in (ROOT / name).iterdir():
                link(place, f"{name}/{entry.name}", entry)
        (place / "calib/profiles").unlink()
        shutil.copytree(ROOT / "calib/profiles", place / "calib/profiles")
        paths = [str(place / "bin"), *([self.python] if self.python else []), os.environ["PATH"]]
        made = {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": str(WIDTH)}
        return {**self.env, "PATH": ":".join(paths), **made}

    @functools.lru_cache(None)
    def help(self, *words):
        program = self.ddpsim if words[0] == "ddpsim" else str(ROOT / words[0])
        done = subprocess.run(
            [program, *words[1:], "--help"], capture_output=True, text=True, timeout=60
        )
        return done.stdout if done.returncode == 0 else None

    def unknown(self, command):
        """Options of a command that its help does not name."""
        words = command.text.split()
        if not (words[0] == "ddpsim" or words[0].removeprefix("./").startswith("tools/")):
            return []
        name = [words[0].removeprefix("./")]
        if words[0] == "ddpsim" and len(words) > 1 and not words[1].startswith("-"):
            name.append(words[1])
            if words[1] in SUBCOMMANDS and len(words) > 2 and words[2].islower():
                name += [w for w in words[2:3] if not w.startswith("-")]
        text = self.help(*name)
        if text is None and len(name) > 2:
            text = self.help(*name[:2])
        if text is None:
            return [f"there is no {' '.join(name)}"]
        options = [w.split("=")[0].strip(",;.") for w in words if w.startswith("--") and len(w) > 2]
        return [f"{' '.join(name)} has no {o}" for o in options if o not in text]

    def run(self, command, place, env):
        for begins, make in NEEDS:
            if command.text.startswith(begins):
                make(place, self.ddpsim)
        for name, text in command.files.items():
            write(place, name, text)
        return subprocess.run(
            ["timeout", "600", "bash", "-c", command.text],
            cwd=STANDS_IN.get(command.document, place),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def written(command):
    """Files that a command says it writes."""
    options = r"(?:--out|-o|--workload|--run|--runs|>)"
    return set(re.findall(options + r"\s+(\S+)", command.text)) - {"runs", "mine"}


def lacks(command, said, absent):
    """Why a command cannot run on this machine: it says so, or what was to be read is absent."""
    if word := next((w for w in LACKS if w in said), None):
        return word
    name = next((n for n in absent if n in said or n in command.text.split()), None)
    return f"{name} is not there" if name else ""


def compared(command, done, place, lines, accepted, measured):
    """What of a command its document shows differently. accepted: not None: {(begin, end): lines}
    that stand there now; pictures are copied."""
    failed = []
    for shown in command.shown:
        if shown.what == "picture":
            path = re.search(r"\]\((.*?)\)", lines[shown.begin])[1]
            target = ROOT / Path(command.document).parent / path
            now = (place / shown.name).read_text()
            if accepted is not None:
                target.parent.mkdir(exist_ok=True)
                target.write_text(now)
            elif not target.is_file() or target.read_text() != now:
                failed.append(f"{command}\n    {path} is another picture: tools/docs --accept")
            continue
        now = [line.rstrip() for line in excerpt(done.stdout, shown.name)]
        if accepted is not None:
            if not shown.measured or measured:
                accepted[shown.begin, shown.end] = now
        elif not shown.measured and now != lines[shown.begin : shown.end]:
            was = lines[shown.begin : shown.end]
            other = (k for k, (a, b) in enumerate(zip(now, was)) if a != b)
            k = next(other, min(len(now), len(was)))
            pair = [(x[k] if k < len(x) else "(nothing)") for x in (was, now)]
            failed.append(
                f"{command}\n    line {shown.begin + k + 1} of the document has another output"
                f" (tools/docs --accept):\n    - {pair[0]}\n    + {pair[1]}"
            )
    return failed


def judge(runner, texts, top, accept=False, measured=False):
    """Runs what the documents {name: text} print; returns (what fails, sentence). accept: writes
    what the documents show."""
    failed, ran, lacking, kept, mentioned = [], 0, 0, 0, 0
    for number, (name, text) in enumerate(texts.items()):
        place = Path(top) / str(number)
        place.mkdir()
        env, absent = runner.folder(place), set()
        lines, accepted = text.split("\n"), {} if accept else None
        for command in printed(name, text):
            if accept and not command.shown and not command.whole:
                continue
            if command.reason or not command.whole:
                failed += [f"{command}\n    {why}" for why in runner.unknown(command)]
                kept += command.whole
                mentioned += not command.whole
                continue
            before, clock = cpu(), time.time()
            done = runner.run(command, place, env)
            took = f"{cpu() - before:6.2f} s of CPU, {time.time() - clock:6.2f} s"
            codes = next((c for b, c in TELLS.items() if command.text.startswith(b)), (0,))
            lack = done.returncode and lacks(command, done.stderr, absent)
            if lack:
                lacking += 1
                absent |= written(command)
                print(f"{command}\n    left out: {lack}")
                continue
            ran += 1
            print(f"{took}  {command}", flush=True)
            if done.returncode not in codes:
                said = f"exit code {done.returncode}: {done.stderr.strip()[-600:]}"
                failed.append(f"{command}\n    {said}")
            else:
                failed += compared(command, done, place, lines, accepted, measured)
        for (begin, end), now in sorted((accepted or {}).items(), reverse=True):
            lines[begin:end] = now
        if accept and "\n".join(lines) != text:
            write_whole(ROOT / name, "\n".join(lines))
            print(f"commands: wrote {name}")
    return failed, (
        f"{ran} commands ran, {lacking} lack something here, {kept} have a reason not to run, "
        f"{mentioned} are mentioned"
    )


def unused(asked):
    """Entries of the tables above that no document needs any more, where README.md is asked."""
    if "README.md" not in asked:
        return []
    texts = {d: (ROOT / d).read_text() for d in documents(ROOT)}
    said = [f"{c.text} $" for d, text in texts.items() for c in printed(d, text) if c.whole]
    tables = (*NOT_RUN, *TELLS, *(begins for begins, _ in NEEDS))
    return [f"no document prints: {b}" for b in tables if not any(s.startswith(b) for s in said)]


SELF_TEST = """    ddpsim list plans    # good
    ddpsim predict --workload no-such --cluster hgx-h100
    ddpsim predict --workload resnet50 --cluster hgx-h100 \\
        --set no_such_knob=3
    python3 no_such_file.py
    tools/truth_matrix --no-such-flag
```
$ ddpsim list clusters
ddpsim: this is what it says
$ ddpsim no-such-command
```
`ddpsim sweep --no-such-option` and `ddpsim sweep --axis` are mentions, `ddpsim predict` too, and
`ddpsim predict --workload NAME --cluster NAME`; `ddpsim predict --workload no-such
--cluster hgx-h100` is none.
"""


# Shown by a document: the truth, and in turn each of the LIES.
SHOWN = """<!-- file: a.txt -->
```
first

second

third
```

```sh
ddpsim --version > picture.svg && cat a.txt
```

<!-- output -->
```text
first

second

third
```

<!-- output: se; 3 -->
```text
...

second

third
```

<!-- output, measured -->
```text
of another day
```

<!-- picture: picture.svg -->
![x](PICTURE)
"""
LIES = (
    ("first\n\nsecond\n\nthird\n```\n\n<!--", "first\n\nthird\n```\n\n<!--", "another output"),
    ("...\n\nsecond", "first\n\nsecond", "another output"),
    ("```\nfirst", "```\nfirs", "another output"),
    ("(PICTURE)", "(LICENSE)", "another picture"),
    ("(PICTURE)", "(no_such.svg)", "another picture"),
)


def shows(runner, top):
    """Lies about outputs and pictures that go unnoticed, and what is said of the truth."""
    picture = Path(top) / "version.svg"
    picture.write_text(subprocess.check_output([runner.ddpsim, "--version"], text=True))
    wrong = []
    for number, (old, new, said) in enumerate([("", "", ""), *LIES]):
        text = SHOWN.replace(old, new, 1).replace("PICTURE", str(picture))
        (Path(top) / str(number)).mkdir()
        failed, _ = judge(runner, {"planted.md": text}, Path(top) / str(number))
        if bool(said) != bool(failed) or said not in "".join(failed):
            wrong.append(f"{new!r}: {failed}")
    return wrong


def self_test(runner):
    with tempfile.TemporaryDirectory() as top:
        failed, said = judge(runner, {"planted.md": SELF_TEST}, top)
    print(said)
    lines = sorted({int(f.split(":")[1]) for f in failed})
    wanted = [2, 4, 5, 6, 10, 12, 13]
    with tempfile.TemporaryDirectory() as top:
        wrong = shows(runner, top)
    if wrong:
        print("commands: of what documents show, these are judged wrongly:", *wrong, sep="\n")
        return 1
    if lines != wanted or not said.startswith("7 commands ran"):
        print("\n".join(failed))
        print(f"commands: of the planted lines {wanted} it notices {lines}")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ddpsim")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--but", action="append", default=[])
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.measured and not args.accept:
        parser.error("--measured goes with --accept")
    asked = [d for d in documents(ROOT) if not d.startswith(tuple(args.but))]
    if args.only:
        asked = [d for d in asked if d.startswith(tuple(args.only))]
    texts = {d: (ROOT / d).read_text() for d in asked}
    if args.list:
        for command in (c for d, text in texts.items() for c in printed(d, text)):
            how = command.reason or "runs" if command.whole else "is mentioned"
            print(f"{command}\n    {how}")
        return 0
    if args.self_test:
        return self_test(Runner(args.ddpsim, None))
    begin = time.time()
    with warm_python.folder() as python, tempfile.TemporaryDirectory() as top:
        runner = Runner(args.ddpsim, python)
        failed, said = judge(runner, texts, top, args.accept, args.measured)
    failed += [] if args.accept else unused(asked)
    print("\n".join(failed))
    took = f"{cpu():.0f} s of CPU, {time.time() - begin:.0f} s"
    print(f"commands: {said}; {len(failed)} fail; {took}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
