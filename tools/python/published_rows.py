"""Rows of calib/published (memory/peaks.csv, sharded/steps.csv) as questions for ddpsim: the model
described from the row's sizes, and its precision, optimizer and plan as settings. For
tools/memory_report and tools/sharded_report."""

from __future__ import annotations

import csv
import functools
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import describe_models
from opt_model import opt
from segmentation_models import Extent, segmentation

Row = dict[str, str]

PLANS = {"single": "averaging", "ddp": "pytorch_ddp", "fsdp1": "fsdp", "fsdp2": "fsdp2"}
PLANS |= {f"zero{stage}": f"zero{stage}" for stage in (1, 2, 3)} | {"hsdp": "fsdp"}
# The first cluster whose GPU a row's name has in it; a GPU that no profile describes is taken for
# one with workspaces of the same size.
CLUSTERS = (
    ("H100", "hgx-h100"),
    ("H200", "hgx-h200"),
    ("H800", "hgx-h100"),
    ("B200", "hgx-b200"),
    ("A100", "dgx-a100"),
    ("V100", "dgx1-v100"),
    ("4070", "rtx-4090-4"),
    ("MI300X", "mi300x-8"),
    ("", "dgx1-v100"),
)
DONE = {"none": "none", "full": "full", "selective (op)": "selective"}


class NotPredicted(Exception):
    """Why a row is not."""


@dataclass
class Question:
    row: Row
    model: describe_models.Model
    plan: str
    ranks: int
    cluster: str
    profile: str | None = None  # other than the cluster's
    sets: dict[str, str] = field(default_factory=dict)


def rows_of(path: Path) -> list[Row]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(row: Row, key: str) -> int:
    if not row[key]:
        raise NotPredicted(f"{key} is not printed")
    return int(row[key])


# --- models


# Rows often have a model in common; the batch is a setting.
described_llama = functools.cache(describe_models.llama)
described_gpt2 = functools.cache(describe_models.gpt2)
ONE = 1


def llama_of(row: Row, **how: bool) -> describe_models.Model:
    model = described_llama(
        "llama",
        number(row, "layers"),
        number(row, "hidden"),
        number(row, "ffn"),
        ONE,
        ONE,
        row["tied"] == "yes",
        number(row, "vocab"),
        number(row, "heads"),
        number(row, "kv_heads"),
        **how,
    )
    return replace(model, sequence=number(row, "sequence"))


def bert_of(row: Row, old: bool) -> describe_models.Model:
    sizes = [number(row, k) for k in ("layers", "hidden", "heads", "sequence", "batch_per_rank")]
    return describe_models.bert("bert", *sizes, classes=2, keeps_input=old)


def gpt2_of(row: Row, positions: int = 1024, **how: bool) -> describe_models.Model:
    sizes = [number(row, k) for k in ("layers", "hidden", "heads")]
    rest = number(row, "vocab"), int(row["ffn"] or 0)
    model = described_gpt2("gpt2", *sizes, positions, ONE, *rest, **how)
    return replace(model, sequence=number(row, "sequence"))


def segmentation_of(row: Row) -> describe_models.Model:
    found = re.match(
        r"(\S+)(?: \(D(6)\))? (R-\d+b?|M-V2)-(D\d+), crop (\d+)x(\d+), (\d+) classes", row["model"]
    )
    if not found or found[1] not in ("FCN", "PSPNet", "DeepLabV3"):
        raise NotPredicted("the model is not described")
    size = Extent(int(found[5]), int(found[6]))
    dilation = int(found[2] or 1)
    return segmentation(found[1], found[3], found[4], size, int(found[7]), dilation)


def model_of(row: Row) -> describe_models.Model:
    """As the source's code makes it: `single` logits are cast to fp32 for the loss, `repeats` keys
    and values are repeated for grouped queries, `joint` they are of one product."""
    source, model = row["source"], row["model"]
    if source == "mmsegmentation":
        return segmentation_of(row)
    if source == "hf-perf-train-gpu-one":
        return bert_of(row, old=True)  # January 2022
    if source == "optimum-benchmark-rocm":
        return bert_of(row, old=False) if model == "bert-base" else gpt2_of(row)
    if source == "nanogpt-memory-arithmetic":
        return gpt2_of(row, bias=False, composed=False, single=False, dropout=False)
    if source == "llm-foundry":
        positions = number(row, "sequence")
        return gpt2_of(row, positions, composed=False, single=False, dropout=False)
    if source == "modalities":
        positions = number(row, "sequence")
        return gpt2_of(row, positions, composed=False, single=False, dropout=False)
    if source == "lightning-thunder" and model.startswith("llama"):
        return llama_of(row, single=False, joint=True)  # litgpt
    if source == "kempnerforge":
        return llama_of(row, single=False)
    if source == "internevo":
        return llama_of(row, single=False, joint=True)
    if source.startswith(("torchtitan", "torchao-float8", "torchao-pre", "torchao-mx")):
        if model.startswith("llama"):
            return llama_of(row, repeats=True)
    if source in ("torchtune-readme", "fms-fsdp", "pytorch-blog-202403"):
        if model.startswith("llama"):
            return llama_of(row, repeats=True)
    if model == "opt-1.3b":
        keys = ("layers", "hidden", "heads", "ffn", "sequence", "batch_per_rank", "vocab")
        return opt(*(number(row, k) for k in keys))
    if source == "alcf-megatron-deepspeed":
        return llama_of(row, repeats=True)
    raise NotPredicted("the model is not described")


# --- settings


def precision_of(row: Row, plan: str) -> dict[str, str]:
    """By the words before the first bracket."""
    said = row["precision"]
    if row.get("float8") == "yes" or re.search("float8|mxfp8|nvfp4|amp_fp8", said):
        raise NotPredicted("products in 8 bits")
    if said == "fp32":
        return {"workload.precision": "fp32"}
    gathers = plan.startswith("fsdp")
    if said.startswith("pure_bf16"):
        out = {"workload.precision": "bf16", "workload.casting": "pure"}
        return out | ({"reduce_dtype": "float32"} if "reduced in fp32" in said else {})
    if said.startswith("bf16 gathered, fp32 shards") and gathers:
        halves = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
        return {"workload.precision": "bf16", **halves}
    both = ("bf16 gathered and reduced", "bf16 gathered, reduced in bf16", "bf16 mixed (FSDP")
    if gathers and (said.startswith(both) or "FSDP gathers bf16" in said):
        return {"workload.precision": "bf16", "param_dtype": "bfloat16"}
    if said.endswith(("with fp32 master (DeepSpeed)", "with fp32 master (InternEvo)")):
        # Its loss scaling is the library's own.
        master = {"workload.casting": "master_weights", "workload.loop.grad_scaler": "false"}
        return {"workload.precision": said.split()[0], **master}
    if "(DeepSpeed)" in said:
        raise NotPredicted("ZeRO that accumulates gradients in fp32 (grad_accum_dtype)")
    if "low-level ZeRO" in said:
        raise NotPredicted("Colossal-AI's own ZeRO")
    if said.startswith("amp"):
        return {"workload.precision": "fp16" if "fp16" in said else "bf16"}
    raise NotPredicted(f"precision: {said or 'not printed'}")


def optimizer_of(row: Row) -> dict[str, str]:
    said = row["optimizer"]
    if said.startswith("SGD with momentum"):
        return {}
    if re.search(r"8-bit|4-bit|Adafactor|fused into backward", said):
        raise NotPredicted("the optimizer's states are other than Adam's or SGD's")
    if not said.startswith(("AdamW", "FusedAdam", "DecoupledAdamW", "Adam")):
        raise NotPredicted(f"optimizer: {said or 'not printed'}")
    if "(fused)" in said or said == "FusedAdam":
        return {"workload.optimizer.fused": "true"}
    # composer/optim/decoupled_weight_decay.py: a loop over the parameters.
    loop = "for loop" in said or said.startswith("Decoupled")
    return {"workload.optimizer.foreach": "false"} if loop else {}


def question_of(row: Row) -> Question:
    if any(row[k] != "1" for k in ("tp", "pp", "ep", "cp")):
        raise NotPredicted("tensor, pipeline, expert or context parallel")
    if row["quality"] != "good":
        raise NotPredicted(f"quality {row['quality']}")
    if row.get("trainable", "all") != "all" or row["offload"] != "none":
        raise NotPredicted("not all parameters are trained, or some are offloaded")
    if row["system"] not in PLANS:
        raise NotPredicted(f"system {row['system']} has no plan")
    if row["checkpointing"] not in DONE:
        raise NotPredicted(f"checkpointing: {row['checkpointing'] or 'not printed'}")
    if re.search("chunk", row["notes"]):
        raise NotPredicted("the loss is computed in chunks")
    plan = PLANS[row["system"]]
    sets = precision_of(row, plan) | optimizer_of(row)
    model = model_of(row)
    sets["workload.batch"] = str(number(row, "batch_per_rank"))
    if row["attention"] and "math" not in row["attention"]:
        # FlashAttention-2, or PyTorch's of before 2.9; where a row says cuDNN, that.
        sets["workload.attention"] = "fused" if "cuDNN" in row["attention"] else "flash2"
    if row["compile"] == "yes":  # each unit by itself
        sets["workload.compile"] = "regional"
    if DONE[row["checkpointing"]] != "none":
        sets["workload.checkpointing"] = DONE[row["checkpointing"]]
    if row["accumulation"] not in ("", "1"):
        sets["accumulation_steps"] = row["accumulation"]
        # kempnerforge/training/grad.py: set_requires_gradient_sync(False) but in the last one.
        if row["source"] == "kempnerforge":
            sets["no_sync"] = "true"
    if row["system"] == "hsdp":
        sets["sharding_strategy"] = "hybrid_shard"
    if row.get("resharding") == "SHARD_GRAD_OP":
        sets["sharding_strategy"] = "shard_grad_op"
    if "zero2: not resharded after forward" in row["notes"] + row.get("resharding", ""):
        key, keeps = {
            "fsdp": ("sharding_strategy", "shard_grad_op"),
            "fsdp2": ("reshard_after_forward", "false"),
        }[plan]
        sets[key] = keeps
    # Before 2.0 zero_grad keeps gradients.
    if row["source"] in ("mmsegmentation", "hf-perf-train-gpu-one"):
        sets["pytorch"] = "1.13"
    ranks = number(row, "gpus")
    cluster = next(c for name, c in CLUSTERS if name in row["gpu"])
    if ranks > 8:
        sets["cluster.hosts"] = str(-(-ranks // 8))
    return Question(row, model, plan, ranks, cluster, sets=sets)


# --- tables


def figures(errors: list[float]) -> str:
    size = [abs(e) for e in errors]
    worst = max(errors, key=abs)
    return (
        f"{len(errors)} | {100 * median(size):.1f} | {100 * median(errors):+.1f} |"
        f" {100 * worst:+.1f}"
    )


def grouped(title, rows, key) -> list[str]:
    out = ["", f"| {title} | rows | median of abs. error % | bias % | worst % |"]
    out.append("|---|---:|---:|---:|---:|")
    groups = defaultdict(list)
    for r in rows:
        groups[key(r)].append(r["error"])
    return out + [f"| {name} | {figures(errors)} |" for name, errors in sorted(groups.items())]


def not_predicted(left_out) -> list[str]:
    """left_out: rows by reason."""
    out = ["", "## Not predicted", "", "The first reason that holds of a row.", ""]
    out += ["| rows | why |", "|---:|---|"]
    return out + [f"| {n} | {why} |" for why, n in left_out.most_common()]
