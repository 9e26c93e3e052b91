"""Rows of calib/published/sharded as questions, and ddpsim's answers: for tools/sharded_report and
tools/known_errors."""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from ddpsim_profiles import profile_named
from published_rows import NotPredicted, number, question_of, rows_of

ROOT = Path(__file__).resolve().parent.parent.parent
STEPS = ROOT / "calib/published/sharded/steps.csv"

# What joins the hosts, by the beginning of what a row says of its cluster; a cluster that is not
# here is known inside a host alone. Leonardo: leonardo-supercomputer.cineca.eu/hpc-system (four
# GPUs, 400 Gb/s a node). MareNostrum 5: bsc.es/supportkc/docs/MareNostrum5 (four GPUs, 4 NDR200).
FOUR = {"cluster.devices_per_host": "4", "cluster.nics_per_host": "4"}
NETWORKS = {
    "8 A100 a node; 1600 Gbps": {},
    "Grand Teton": {},
    "8 H200 with NVLink a host; RDMA 400": {},
    "Azure NDm A100 v4": {},
    "4 * 100Gb RoCE": {"cluster.nics_per_host": "4", "cluster.link.bandwidth": "100Gb/s"},
    "400 Gbps between nodes": {"cluster.nics_per_host": "4", "cluster.link.bandwidth": "100Gb/s"},
    "800 Gbps between nodes": {"cluster.link.bandwidth": "100Gb/s"},
    "4 H200 with NVLink a node": FOUR,
    "Leonardo Booster": FOUR | {"cluster.link.bandwidth": "100Gb/s"},
    "MareNostrum 5": FOUR | {"cluster.link.bandwidth": "200Gb/s"},
}
# What a row prints of its boards.
BOARDS = {
    "HBM2e 500W": {
        "profile.power.limit_w": "500",
        "profile.memory.bandwidth_bytes_per_s": "2400000000000",
        "profile.memory.capacity_bytes": str(96 << 30),
    },
    "64GB": {"profile.memory.capacity_bytes": str(64 << 30)},
}
UNKNOWN = ("GB200", "GB300")
# What modalities leaves open, as its GPTs of these sizes usually are (GPT-3's heads; Brown et al.
# 2020, table 2.1).
USUAL_HEADS = {"2560": "32", "4096": "32", "5120": "40"}
COMPLETED = {"modalities"}


def completed(row):
    """A row of modalities with what it leaves open."""
    if row["source"] not in COMPLETED:
        return row
    hidden = number(row, "hidden")
    usual = {"heads": USUAL_HEADS[row["hidden"]], "ffn": str(4 * hidden), "vocab": "50304"}
    usual |= {"attention": "flash", "optimizer": "AdamW", "compile": "no", "tied": "yes"}
    return row | {key: value for key, value in usual.items() if not row[key]}


def steps_question(row):
    row = completed(row)
    q = question_of(row)
    if any(name in row["gpu"] for name in UNKNOWN) or not row["gpu"]:
        raise NotPredicted(f"no profile of {row['gpu'] or 'a GPU that is not printed'}")
    if row["system"] == "zero1" and row["resharding"] not in (
        "states sharded over all ranks",
        f"states sharded over {q.ranks} ranks",
    ):
        raise NotPredicted("ZeRO 1 whose states are sharded over some of the ranks")
    network = next((n for n in NETWORKS if row["cluster"].startswith(n)), None)
    if network is None and q.ranks > 8:
        raise NotPredicted("the network between hosts is not printed")
    q.sets |= NETWORKS.get(network, {})
    each = int(q.sets.get("cluster.devices_per_host", 8))
    if q.ranks < each or network is None:
        each = min(q.ranks, each)
        q.sets["cluster.devices_per_host"] = str(each)
    q.sets["cluster.hosts"] = str(-(-q.ranks // each))
    if row["source"] == "internevo":  # configs/7B_sft.py: overlap_sync_grad
        q.sets["overlap_comm"] = "true"
    if q.cluster == "hgx-h200":  # whose drawing is of eight GPUs
        q.cluster = "hgx-h100"
    q.profile = profile_named(row["gpu"])
    cluster = json.loads((ROOT / f"topologies/{q.cluster}.json").read_text(encoding="utf-8"))
    if q.profile == cluster["device"]["profile"]:
        q.profile = None
    q.sets |= next((sets for name, sets in BOARDS.items() if name in row["gpu"]), {})
    return q


def measured_seconds(row):
    """Of a step."""
    value, unit = float(row["value"]), row["unit"]
    samples = number(row, "batch_per_rank") * int(row["accumulation"] or 1)
    if unit == "s":
        return value
    if unit == "tokens/s/GPU":
        return samples * number(row, "sequence") / value
    if unit == "samples/s":
        return samples * number(row, "gpus") / value
    raise NotPredicted(f"what is measured: {unit}")


def sweep(ddpsim, questions, paths):
    """One process for questions of one plan, cluster and profile with the same settings."""
    first = questions[0]
    command = [ddpsim, "sweep", "--plan", first.plan, "--cluster", first.cluster]
    command += ["--workload", str(paths[0]), "--format", "csv"]
    if first.profile:
        command += ["--profile", first.profile]
    fields = {"workload": [str(p) for p in paths]}
    fields |= {key: [q.sets[key] for q in questions] for key in first.sets}
    for key, values in fields.items():
        if len(set(values)) == 1 and key != "workload":
            command += ["--set", f"{key}={values[0]}"]
        else:
            command += ["--zip", f"{key}={','.join(values)}"]
    home = dict(os.environ, DDPSIM_HOME=str(ROOT))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=home)
    answers = list(csv.DictReader(io.StringIO(done.stdout)))
    if done.returncode not in (0, 1) or len(answers) != len(questions):
        sys.exit(f"sharded_report: {first.row['id']}: {done.stderr.strip()}\n{' '.join(command)}")
    return answers


def written(folder, model, known):
    """The model's file. Models of the same layers and sequence have one."""
    key = id(model.layers), model.sequence
    if key not in known:
        known[key] = Path(folder) / f"{len(known)}.json"
        known[key].write_text(model.json_text(), encoding="utf-8")
    return known[key]


def predictions(ddpsim, folder, questions):
    """Answers in the questions' order; rows that ask the same are asked once."""
    groups, known, keys = defaultdict(dict), {}, []
    for q in questions:
        group = q.plan, q.cluster, q.profile, tuple(sorted(q.sets))
        asks = written(folder, q.model, known), *sorted(q.sets.items())
        keys.append((group, asks))
        groups[group][asks] = q
    said = {}
    for group, asked in groups.items():
        paths = [key[0] for key in asked]
        said |= zip(((group, key) for key in asked), sweep(ddpsim, list(asked.values()), paths))
    return [said[key] for key in keys]


def answered(ddpsim):
    """([(question, measured seconds, ddpsim's answer)], rows in all, {why: rows not predicted})."""
    questions, left_out = [], Counter()
    rows = rows_of(STEPS)
    for row in rows:
        try:
            q = steps_question(row)
            questions.append((q, measured_seconds(q.row)))
        except NotPredicted as why:
            left_out[str(why)] += 1
    with tempfile.TemporaryDirectory() as folder:
        said = predictions(ddpsim, folder, [q for q, _ in questions])
    return [(q, seconds, a) for (q, seconds), a in zip(questions, said)], len(rows), left_out
