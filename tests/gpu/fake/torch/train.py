"""What a user would run, with a stopwatch: the truth that the recorder is held to.

    python -m fake_cuda train.py '{"model": "mlp", "system": "ddp", "bucket_cap_mb": 1}' OUT

Nothing of ddpsim is used. It trains until the device is warm and DDP has settled, then takes the
host's clock around many steps, the device being idle before and after; and then, on an idle device,
the time that the host takes to issue each phase of a step. Rank 0 writes OUT. An array of options
makes an array of answers.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import fake_models

WARM, STEPS = 16, 24  # STEPS: unless the options say


def average(model, world, how):
    grads = [p.grad for p in model.parameters()]
    if how == "flat":
        flat = torch._utils._flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        flat.div_(world)
        for g, part in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
            g.copy_(part)
        return
    works = [dist.all_reduce(g, async_op=True) for g in grads] if how == "async" else []
    for k, g in enumerate(grads):
        works[k].wait() if works else dist.all_reduce(g)
        g.div_(world)


def arrivals(model, step, settle):
    """[(parameter, share of backward on the host)] as gradients are accumulated."""
    seen, nodes = [], []
    for index, p in enumerate(model.parameters()):
        node = p.expand_as(p).grad_fn.next_functions[0][0]
        nodes.append(node)
        node.register_hook(lambda *_, index=index: seen.append((index, time.perf_counter())))
    settle()
    stamps = []
    step(stamps)
    forward, backward = stamps[2:4]
    last = dict(seen)  # a tied parameter counts when it is last accumulated
    return sorted(
        ((i, (t - forward) / (backward - forward)) for i, t in last.items()),
        key=lambda pair: pair[1],
    )


def train(options):
    torch.manual_seed(1)
    tf32 = options.get("precision", "tf32") == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    system = options.get("system", "bare")
    model, inputs, _, _ = getattr(fake_models, options["model"])()
    model.cuda()
    inputs = tuple(t.cuda() for t in inputs)
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[options.get("optimizer", "sgd")]
    how = {"lr": 1e-3, "momentum": 0.9} if kind is torch.optim.SGD else {"lr": 1e-5}
    world = 1
    if system != "bare":
        if not dist.is_initialized():
            dist.init_process_group("nccl")
        world = dist.get_world_size()
    if options.get("zero"):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        update = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=kind, **how)
    else:
        update = kind(model.parameters(), **how)
    trained = model
    if system == "ddp":
        more = {
            k: options[k]
            for k in (
                "bucket_cap_mb",
                "gradient_as_bucket_view",
                "static_graph",
                "find_unused_parameters",
            )
            if k in options
        }
        trained = nn.parallel.DistributedDataParallel(model, device_ids=[0], **more)
        if options.get("half"):
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            trained.register_comm_hook(None, default_hooks.fp16_compress_hook)
    set_to_none = {k: v for k, v in options.items() if k == "set_to_none"}
    with torch.no_grad():
        scores = model(*inputs)
    targets = torch.randint(scores.shape[1], scores.shape[:1] + scores.shape[2:], device="cuda")
    del scores
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.get("precision"))
    scaler = torch.cuda.amp.GradScaler(enabled=half is torch.float16)

    def forward():
        with torch.autocast("cuda", dtype=half, enabled=half is not None):
            return nn.functional.cross_entropy(trained(*inputs), targets)

    def step(stamps=None):
        stamp = stamps.append if stamps is not None else lambda _: None
        stamp(time.perf_counter())
        update.zero_grad(**set_to_none)
        stamp(time.perf_counter())
        for _ in range(options.get("micro", 1) - 1):
            with trained.no_sync():
                scaler.scale(forward()).backward()
        loss = forward()
        stamp(time.perf_counter())
        scaler.scale(loss).backward()
        if system == "averaging":
            average(model, world, options.get("how"))
        stamp(time.perf_counter())
        scaler.step(update)
        scaler.update()
        stamp(time.perf_counter())

    def settle():
        if world > 1:
            dist.barrier()
        torch.cuda.synchronize()

    for _ in range(WARM):
        step()
    settle()
    begin = time.perf_counter()
    steps = options.get("steps", STEPS)
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    period = (time.perf_counter() - begin) / steps
    host = []
    for _ in range(5):
        settle()
        stamps = []
        step(stamps)
        host.append([b - a for a, b in zip(stamps, stamps[1:])])
    zeroed, forward_s, backward_s, optimizer_s = host[-1]
    settle()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    ready = arrivals(model, step, settle)
    return {
        "step_ms": 1e3 * period,
        "host_forward_ms": 1e3 * forward_s,
        "host_backward_ms": 1e3 * backward_s,
        "host_optimizer_ms": 1e3 * (zeroed + optimizer_s),
        "peak_bytes": peak,
        "host_ready": ready,
    }


def main():
    asked = json.loads(sys.argv[1])
    said = [train(o) for o in asked] if isinstance(asked, list) else train(asked)
    if os.environ.get("RANK", "0") == "0":
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            json.dump(said, file)


main()
sys.stdout.flush()
os._exit(0)  # Gloo's threads may still wait for ranks that have gone
