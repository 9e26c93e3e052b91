#!/usr/bin/env python3
"""Writes reports/described.md to stdout: each model of the zoo described at full size (time,
memory, operations against a count of their own), and at a small one beside its execution.

    zoo_report.py DDPSIM > reports/described.md     (minutes; nothing else should run)
"""
import platform
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import zoo_checks  # noqa: E402
import executed_steps  # noqa: E402
import model_zoo as zoo  # noqa: E402
import torch  # noqa: E402

HEAD = """# Models described without their memory

Made by `/usr/bin/python3 tests/python/zoo_report.py build/release/ddpsim`; do not edit.
{count} models, PyTorch {torch} on {cpu}, one thread. Large is the model as `ddpsim describe
--factory tests/python/model_zoo.py:NAME` sees it: time of the whole command (in a fresh process,
PyTorch's start included), the same in core time, the most memory that it had, and operations of
forward and backward of a batch beside a count by shapes of PyTorch's functions
(`tests/python/counted_flops.py`). Small is the same kind of model with fewer pixels, tokens,
samples or blocks, executed under the real DistributedDataParallel on the CPU (gloo, one rank):
order of arrival and tensors of every bucket of the steady step, operations, and bytes that
autograd keeps (hooks, each storage once). `ctest -R python.model_zoo` holds the small ones to it.

"""
COLUMNS = """model|what|parameters (M)|batch|TFLOP|operations %|seconds|core s|peak (MB)|arrival
|buckets|operations %|kept bytes %""".replace("\n", "").split("|")
HEAD += "| " + " | ".join(COLUMNS) + " |\n|---|---|" + 7 * "---:|" + "---|---|---:|---:|"


def cpu():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def signed(x):
    return f"{100 * x:+.2f}"


def row(ddpsim, name):
    f = zoo_checks.full(name)
    with executed_steps.alone():
        b = zoo_checks.beside(ddpsim, name)
    off = max(f.forward, f.backward, key=abs)
    small = max(b.forward, b.backward, key=abs)
    equal = {True: "equal", False: "DIFFERS"}
    cells = [
        f"`{name}`", zoo.ZOO[name].kind, f"{f.parameters / 1e6:.1f}", f.batch, f"{f.tera:.3f}",
        signed(off), f"{f.wall_s:.1f}", f"{f.core_s:.1f}", f"{f.peak_bytes / 1e6:.0f}",
        equal[b.arrival], f"{equal[b.buckets]} ({b.count})", signed(small), signed(b.saved),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |", f, b


def main():
    ddpsim, names = sys.argv[1], sys.argv[2:] or list(zoo.ZOO)
    torch.set_num_threads(1)
    print(HEAD.format(count=len(zoo.ZOO), torch=torch.__version__, cpu=cpu()), flush=True)
    fulls, wrong = [], []
    for name in names:
        text, f, b = row(ddpsim, name)
        print(text, flush=True)
        fulls.append(f)
        wrong += [name] if b.wrong() or abs(f.forward) > 0.01 or abs(f.backward) > 0.01 else []
    others = [f for f in fulls if f.parameters < 8e9]
    print(
        f"\nLongest but 8B parameters: {max(f.wall_s for f in others):.1f} s; most memory:"
        f" {max(f.peak_bytes for f in fulls) / 1e6:.0f} MB. More than 1 % off, or another order or"
        f" bucket: {', '.join(wrong) or 'none'}."
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
