#!/usr/bin/env python3
"""Signs that published runs have and that nothing is fitted to: which of two settings is slower.

  signs.py DDPSIM      prints both; exit 1 names a sign that was reached and is so no longer

bucket_cap_mb 25 against 1: pytorch/pytorch (bf69c14), benchmarks/distributed/ddp/README.md, "How to
diff": seconds of an iteration at the 75th percentile, batch 32 a GPU, V100s of machines of eight
with 4 x 100 Gb/s InfiniBand, PyTorch 1.4. Two runs of the same setting differ there by about half a
percent (its table and its difference print other numbers of the same step), and on one GPU, where
nothing communicates, by 0.3 to 1.2 %.

BERT-Large on 16 and 32 GPUs of a fast network: reductions of each tensor by itself, begun as
gradients are ready, are slower than one of all after backward, and merged ones are fastest
(HKBU-HPML/ddl-benchmarks 30de09b, 100 Gb/s InfiniBand).
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GPUS = (1, 2, 4, 8, 16)
# Percent that bucket_cap_mb=1 takes longer, by GPUs. None: its baseline of 16 GPUs was one of its
# slow ones (the 95th percentile is 7.9 % longer, the 75th 0.1).
PUBLISHED = {
    "resnet50": (0.3, 1.0, 1.6, 2.6, 3.8),
    "resnet101": (1.2, 2.1, 2.6, 3.5, None),
    "resnext50-32x4d": (1.0, 1.5, 1.6, 1.5, 1.9),
    "resnext101-32x8d": (0.8, 1.3, 1.1, 1.3, 0.7),
}


def step(ddpsim, *arguments):
    command = [ddpsim, "predict", "--format", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)["summary"]["step_ps"]


def sets(**settings):
    return [word for k, v in settings.items() for word in ("--set", f"{k.replace('__', '.')}={v}")]


def bucket_caps(ddpsim):
    """Names of the signs that are wrong."""
    wrong = []
    print("bucket_cap_mb 25 to 1, percent longer: published, predicted")
    for model, published in PUBLISHED.items():
        said = []
        for gpus in GPUS:
            common = ["--workload", model, "--cluster", "dgx1-v100", "--ranks", str(gpus)]
            common += sets(workload__batch=32, cluster__hosts=-(-gpus // 8), pytorch="1.13")
            common += sets(broadcast_buffers="false")
            a, b = (step(ddpsim, *common, *sets(bucket_cap_mb=cap)) for cap in (25, 1))
            said.append(100 * (b / a - 1))
        cells = (
            f"{gpus}: {'-' if p is None else f'{p:.1f}'} {s:+.2f}"
            for gpus, p, s in zip(GPUS, published, said)
        )
        print(f"  {model:18}" + "   ".join(cells))
        if said[-1] <= 0:
            wrong.append(f"bucket_cap_mb of {model} on 16 GPUs")
    return wrong


# Milliseconds of a step: 8 samples a GPU over samples a second, results/2020-05-29, 100GbIB with
# RDMA, by GPUs: WFBP-A2A, BSP-A2A, MG-WFBP. One GPU: 49 samples a second.
BERT = {8: (629.4, 645.3, 599.4), 16: (690.3, 667.9, 622.0), 32: (753.3, 682.3, 639.7)}
ONE_BERT = 8 / 49


def bert(ddpsim):
    """All three are Horovod 0.19 with HOROVOD_CYCLE_TIME, CACHE_CAPACITY and FUSION_THRESHOLD 0
    (mgwfbp/bert_benchmark.py); what is merged is merged by hooks, before Horovod sees it: nothing,
    all in one, or what a model of theirs says (predicted as Horovod's own fusion).

    On 16 GPUs the first two are 22 ms (3.3 %) apart there and 28 ms the other way round here. What
    decides is the rate of rings through the memory of hosts without peer access: one reduction of
    1.34 GB takes 506 ms here and 473 there (5.0 and 5.3 GB/s of bus bandwidth), where on one host
    it takes 404 here and 428 there. Both are one constant here (profile, `host_memory`), which is
    of no such table; that it is 6 % higher over several hosts than on one is not explained.
    Reductions of each tensor are 2.3 % too short."""
    wrong = []
    names = ("each tensor, overlapped", "all at once, after backward", "merged")
    bare = sets(HOROVOD_CYCLE_TIME=0, HOROVOD_CACHE_CAPACITY=0)
    plans = (
        [*bare, *sets(HOROVOD_FUSION_THRESHOLD=0)],
        [*bare, *sets(HOROVOD_FUSION_THRESHOLD=2**31, groups=1)],
        [],
    )
    print("BERT-Large, 100 Gb/s InfiniBand, ms: published, predicted, with the published one GPU")
    for gpus, published in BERT.items():
        common = ["--workload", "bert-large", "--cluster", "rtx-2080-ti-ib", "--plan", "horovod"]
        common += sets(NCCL_ALGO="allreduce:ring")  # as NCCL 2.4 takes above 150 KB to 1.3 MB
        common += sets(workload__batch=8, workload__sequence=64)
        common += sets(workload__optimizer__foreach="false")
        common += ["--ranks", str(gpus)]
        known = ["--measured-step", f"{1e3 * ONE_BERT:.3f}ms"]
        said = [step(ddpsim, *common, *p) / 1e9 for p in plans]
        beside = [step(ddpsim, *common, *known, *p) / 1e9 for p in plans]
        for name, a, b, c in zip(names, published, said, beside):
            print(f"  {gpus:2} GPUs, {name:28} {a:6.1f} {b:6.1f} {c:6.1f}")
        if min(beside) != beside[2]:
            wrong.append(f"BERT-Large on {gpus} GPUs: merged is not the shortest")
        slowest = published.index(max(published))
        if beside.index(max(beside)) != slowest:
            print(f"  not as published: {names[slowest]} is the slowest there")
            if gpus == 32:  # reached; with 16 the two are 3.3 % apart, with 8 2.5 %
                wrong.append("BERT-Large on 32 GPUs: each tensor by itself is not the slowest")
    return wrong


def deeplab(ddpsim):
    """DeepLabV3-ResNet101 on V100x4 and V100x8 machines: Horovod and DDP are said to differ by 10
    to 20 %. The scripts (ResidentMario/spell-deeplab-voc-2012 ff176b9, June 2020): 22 classes,
    256 x 256, no auxiliary classifier, 8 samples a GPU, Adam, loss.item() in each step; DDP with
    init_process_group("gloo"), whose gradients are CUDA tensors, and Horovod over NCCL with
    Compression.fp16. Each step loads its batch with num_workers=0, alike in both, which is left
    out. So the sign is: DDP over gloo is the slower one, DDP over NCCL is not; why, says the
    breakdown (copies and Gloo's rings). What the scripts took is not in the repository."""
    wrong = []
    sys.path.insert(0, str(ROOT / "tools/python"))
    from describe_models import deeplabv3_resnet101

    print("DeepLabV3-ResNet101 on V100s, 8 samples a GPU, ms: Horovod (fp16), DDP over gloo, nccl")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "deeplab.json"
        file.write_text(deeplabv3_resnet101(22, 256, False).json_text(0))
        for gpus in (4, 8):
            common = ["--workload", str(file), "--cluster", "dgx1-v100", "--ranks", str(gpus)]
            common += sets(pytorch="1.13", workload__batch=8, workload__optimizer__name="adam")
            common += sets(workload__optimizer__momentum="false", workload__loop__loss_item="true")
            common += sets(workload__optimizer__weight_decay="false")
            common += sets(workload__optimizer__foreach="false")
            hvd = step(ddpsim, *common, "--plan", "horovod", *sets(compression="fp16")) / 1e9
            gloo = step(ddpsim, *common, *sets(backend="gloo")) / 1e9
            nccl = step(ddpsim, *common) / 1e9
            print(f"  {gpus} GPUs: {hvd:.1f} {gloo:.1f} ({100 * (gloo / hvd - 1):+.1f} %)"
                  f" {nccl:.1f} ({100 * (nccl / hvd - 1):+.1f} %)")
            if not gloo > 1.03 * hvd > nccl:  # 5 and 10 % here: half of what was reported
                wrong.append(f"DeepLabV3 on {gpus} GPUs: DDP over gloo is not slower than Horovod")
    return wrong


def main():
    wrong = deeplab(sys.argv[1]) + bucket_caps(sys.argv[1]) + bert(sys.argv[1])
    for name in wrong:
        print(f"signs: not as published: {name}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
