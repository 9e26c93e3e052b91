#!/usr/bin/env python3
"""Does ddpsim reduce in parts as horovod_parts.py says Horovod does?

  horovod_parts_lowered.py DDPSIM              compares; exit 1 if something differs
  horovod_parts_lowered.py DDPSIM --self-test  a difference is noticed

Of each prediction every fused set of the last step: the operations in the order in which they are
issued, where they run, of which group, and their bytes; with several streams, which one.
"""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import horovod_parts

HOST = ["cluster.host_memory=300GB/s"]
# Workload, cluster, ranks of a host, hosts, settings.
QUESTIONS = [
    ("resnet50", "dgx-h100", 8, 2, []),
    ("resnet50", "dgx-h100", 8, 4, ["HOROVOD_CYCLE_TIME=0.25"]),
    ("resnet50", "dgx-h100", 8, 2, ["HOROVOD_FUSION_THRESHOLD=0"]),
    ("resnet50", "dgx-h100", 8, 2, ["compression=fp16", "HOROVOD_CYCLE_TIME=5"]),
    ("gpt2-small", "dgx-h100", 8, 4, ["HOROVOD_FUSION_THRESHOLD=8388608"]),
    ("gpt2-small", "dgx-h100", 8, 2, ["HOROVOD_BATCH_D2D_MEMCOPIES=false"]),
    ("bert-base", "dgx-h100", 8, 8, ["HOROVOD_CYCLE_TIME=2.5"]),
    ("bert-base", "dgx-h100", 8, 2, ["accumulation_steps=3"]),
    ("resnet101", "dgx-h100", 8, 4, ["HOROVOD_CACHE_CAPACITY=0"]),
    ("vgg16", "dgx-h100", 8, 2, ["HOROVOD_NUM_NCCL_STREAMS=3", "HOROVOD_CYCLE_TIME=0.1"]),
    ("resnet50", "dgx-h100", 8, 2, ["HOROVOD_ENABLE_ASYNC_COMPLETION=true"]),
]
KINDS = {
    "hierarchical": "HOROVOD_HIERARCHICAL_ALLREDUCE=true",
    "torus": "HOROVOD_TORUS_ALLREDUCE=true",
    "adasum": "op=adasum",
}
# A word of ddpsim: the oracle's operation. "sum" is what MPI's all-reduce does inside.
OPERATIONS = {
    "copy_in": "copy_in",
    "copy_out": "copy_out",
    "reduce_scatter": "reduce_scatter",
    "reduce": "reduce",
    "allreduce": "all_reduce",
    "allreduce_across": "all_reduce",
    "allgather": "all_gather",
    "broadcast": "broadcast",
    "scale": "scale",
    "to_host": "to_host",
    "to_device": "to_device",
}


def show(ddpsim, arguments):
    command = [ddpsim, "show", *arguments, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def told_of(name):
    """The oracle's operation and level of an operation's name; None: another kind."""
    word, _, rest = name.partition("/")
    if word == "launch" or "." not in name:
        return None
    if name.startswith("wait/"):
        return {"gradients": "wait_for_data", "part": "wait"}.get(rest.split(".")[0])
    base, _, level = word.partition("_")
    if level.isdigit():
        return {"exchange": "exchange", "dots": "dots", "agree": "all_reduce", "add": "add"}.get(
            base, "collect"
        )
    return OPERATIONS.get(word) if rest.startswith("fused.") else None


def group_of(op):
    group = op.get("group", "")
    return "" if group == "world" else group.replace("_", ".")


def reductions(program):
    """By fused set: its tensors, and [(operation, group, where, bytes, lane)] in order."""
    out = {}
    for op in program["steps"][-1]["ops"]:
        told = told_of(op["op"])
        if told is None:
            continue
        number = int(op["op"].rsplit(".", 1)[1])
        where = "host" if op["lane"] == "worker" else "nccl"
        tensors, ops = out.setdefault(number, ([], []))
        if op["tensors"] and not tensors:
            tensors += op["tensors"]
        size = 0 if told.startswith("wait") else op["bytes"]
        ops.append((told, group_of(op), where, size, op["lane"]))
    return [out[k] for k in sorted(out)]


def difference(ddpsim, kind, question, spoil=False):
    workload, cluster, local, hosts, settings = question
    told = show(ddpsim, ["workload", workload])["tensors"]
    count = {}
    for t in told:
        count[t["name"]] = 1
        for d in t["shape"]:
            count[t["name"]] *= d
    arguments = ["program", "--workload", workload, "--cluster", cluster, "--plan", "horovod"]
    for s in [f"cluster.hosts={hosts}", KINDS[kind], *HOST, *settings]:
        arguments += ["--set", s]
    program = show(ddpsim, arguments)
    if spoil:
        program["steps"][-1]["ops"] = [
            op for op in program["steps"][-1]["ops"] if not op["op"].startswith("allgather/")
        ]
    knobs = dict(s.split("=") for s in settings)
    size = 2 if knobs.get("compression") == "fp16" else 4
    batched = knobs.get("HOROVOD_BATCH_D2D_MEMCOPIES") != "false"
    streams = int(knobs.get("HOROVOD_NUM_NCCL_STREAMS", 1))
    seen, sets = [], reductions(program)
    for number, (tensors, ops) in enumerate(sets):
        counts = [count[t] for t in tensors]
        seen += tensors
        wanted = horovod_parts.parts(kind, counts, size, local, hosts, batched)
        wanted = [
            (o, g, w, b * size if o in ("copy_in", "copy_out") else b) for o, g, w, b in wanted
        ]
        ours = [o[:4] for o in ops]
        if ours != wanted:
            return f"set {number} of {len(tensors)}:\n  ddpsim {ours}\n  oracle {wanted}"
        lanes = {o[4] for o in ops if o[2] == "nccl"}
        k = horovod_parts.stream_of(number, streams)
        if lanes - ({"comm", "fusion"} if k == 0 else {f"nccl_{k}"}):
            return f"set {number} is on {lanes}, not on stream {k}"
    if sorted(seen) != sorted(count):
        return f"{len(seen)} tensors were reduced, of {len(count)}"
    return None


def main(argv):
    if len(argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if "--self-test" in argv:
        assert difference(argv[1], "torus", QUESTIONS[0], spoil=True)
        print("horovod_parts_lowered: an operation that is missing was noticed")
        return 0
    found, questions = [], 0
    for kind in KINDS:
        for question in QUESTIONS:
            questions += 1
            if problem := difference(argv[1], kind, question):
                found.append(f"{kind} {question}: {problem}")
    for f in found[:4]:
        print(f[:3000])
    print(f"horovod_parts_lowered: {questions} predictions, {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
