"""What ddpsim says of a device's memory, for reports that hold it against measured peaks."""

import json
import os
import re
import subprocess

GIB = 2**30


def memory_of(ddpsim, root, workload, cluster, plan, ranks, sets=()):
    """The `memory` of a prediction, or the sentence of its refusal."""
    command = [ddpsim, "predict", "--workload", str(workload), "--cluster", str(cluster)]
    command += ["--plan", plan, "--ranks", str(ranks), "--format", "json"]
    for s in ("stragglers=false", *sets):
        command += ["--set", s]
    home = dict(os.environ, DDPSIM_HOME=str(root))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=home)
    if done.returncode not in (0, 1):
        return done.stderr.strip().splitlines()[0]
    return json.loads(done.stdout)["summary"]["memory"]


def at_length(count, tokens):
    if not isinstance(count, list):
        return count
    return sum(c * tokens**power for power, c in enumerate(count))


def kept_after_forward(document, batch, tokens, mode, fused, checkpointed=False):
    """Bytes that autograd keeps of a described workload when forward has ended. mode: index of
    `saves`: fp32, autocast, pure; checkpointed: of each block its input alone."""
    total, before, made = 0, None, 0
    for layer in document["layers"]:
        op = layer.get("op", {})
        block = re.match(r".*?\.\d+(?=\.|$)", layer["name"]) if checkpointed else None
        if block and block[0] != before:
            total += made
        before = block and block[0]
        made = batch * at_length(layer["makes"][mode], tokens) if "makes" in layer else 0
        if block:
            continue
        if fused and op.get("attention"):
            saves = layer.get("saves_fused", (0, 0, 0))
        else:
            saves = layer.get("saves", (0, 0, 0))
        total += batch * at_length(saves[mode], tokens)
        if mode == 1 and op.get("kind") == "linear":
            total += 2 * op["inputs"] * op["outputs"]
        if mode == 1 and op.get("kind") == "conv":
            weight = op["channels"] * op["filters"] // op.get("groups", 1) * op["kernel"] ** 2
            total += 2 * weight
    return total


def percent(ratio):
    return f"{100 * (ratio - 1):+.1f}"
