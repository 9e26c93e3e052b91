#!/usr/bin/env python3
"""Each setting that docs/other_words.md gives for a word of another tool is one of ddpsim's.

  other_words.py DDPSIM [--self-test]
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRANSFORMER = ["--workload", "llama-3.2-1b", "--cluster", "dgx-h100"]
IMAGES = ["--workload", "resnet50", "--cluster", "dgx-h100"]
MASTERS = ["--set", "workload.precision=bf16", "--set", "workload.casting=master_weights"]
# By section, the question to which a setting is added.
QUESTIONS = {
    "PyTorch FSDP": [*TRANSFORMER, "--plan", "fsdp"],
    "PyTorch FSDP2": [*TRANSFORMER, "--plan", "fsdp2"],
    "torchtitan": [*TRANSFORMER, "--plan", "fsdp2"],
    "DeepSpeed": [*TRANSFORMER, *MASTERS, "--plan", "zero2"],
    "Megatron-LM": [*TRANSFORMER, *MASTERS, "--plan", "megatron"],
    "Horovod": [*IMAGES, "--plan", "horovod"],
    "NCCL": [*IMAGES, "--set", "cluster.hosts=2"],
}
OF_IMAGES = ("sync_batch_norm", "channels_last", "size_based", "rank_order")
# No setting of a question about a step: a flag of another command, or a printed refusal.
OTHERS = ("--bytes", "--recovery", "--mtbf-per-gpu", "--cluster fat-tree-h100")


def settings(text):
    """(line, section, setting) of the second and third column."""
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("## "):
            section = line[3:].strip()
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if section == "Not in ddpsim" or len(cells) != 3:
            continue
        for code in re.findall(r"`(--[^`]+)`", " ".join(cells[1:])):
            if not code.startswith(OTHERS):
                yield number, section, code


def question(section, code):
    words = list(QUESTIONS.get(section, TRANSFORMER))
    if any(name in code for name in OF_IMAGES):
        words[: len(IMAGES)] = IMAGES
    if "--plan" in code and "--plan" in words:
        at = words.index("--plan")
        words = words[:at] + words[at + 2 :]
    return ["predict", *words, *code.split()]


def refused(ddpsim, text):
    out, count = [], 0
    for number, section, code in settings(text):
        asked = [ddpsim, *question(section, code)]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        count += 1
        if done.returncode != 0:
            out.append(f"docs/other_words.md:{number}: {code}: {done.stderr.strip()[:300]}")
    return out, count


PLANTED = """## DeepSpeed
| a | `--set reduce_bucket_size=5e8` | fine |
| b | `--set no_such_size=1` | |
| c | `x` | or `--plan no_such_plan` |
"""


def main():
    text = PLANTED if "--self-test" in sys.argv else (ROOT / "docs/other_words.md").read_text()
    found, count = refused(sys.argv[1], text)
    print("\n".join(found))
    print(f"other_words: {count} settings, {len(found)} refused")
    if "--self-test" in sys.argv:
        return 0 if count == 3 and [f.split(":")[1] for f in found] == ["3", "4"] else 1
    return 1 if found or count < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
