"""Two training steps of a model under the real DistributedDataParallel on the CPU (gloo, one rank):
what arrives when, what is in which bucket, what autograd keeps, how many operations.
"""
import contextlib
import warnings
from typing import Any, List, NamedTuple

import torch
import torch.distributed as dist
from counted_flops import CountedFlops
from ddpsim_capture import Step
from torch import nn

CPU = torch.device("cpu")
FILLS = ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_",
         "xavier_uniform_", "xavier_normal_")  # fmt: skip


class Executed(NamedTuple):
    arrival: List[int]
    buckets: List[List[int]]  # of the last step
    saved: int  # bytes, each storage once, without parameters and buffers
    forward: int  # operations
    backward: int


@contextlib.contextmanager
def alone():
    """A group of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def quick_weights():
    """Weights are made without drawing them; numbers decide nothing here."""

    def fill(t, *_, **__):
        with torch.no_grad():
            return t.fill_(0.01)

    was = {n: getattr(nn.init, n) for n in FILLS}
    try:
        for n in FILLS:
            setattr(nn.init, n, fill)
        yield
    finally:
        for n, f in was.items():
            setattr(nn.init, n, f)


def storage(t):
    return t.storage().data_ptr()


def executed(model, inputs, loss_fn, **ddp_options) -> Executed:
    parameters = [p for p in model.parameters() if p.requires_grad]
    own = {storage(t) for t in [*model.parameters(), *model.buffers()]}
    order: List[int] = []
    alive: List[Any] = []
    kept = {}
    buckets = {}
    for i, p in enumerate(parameters):
        node = p.expand_as(p).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_, i=i: order.append(i))
        alive.append(node)

    def pack(t):
        alive.append(t)  # so that no address is used twice
        if storage(t) not in own:
            kept[storage(t)] = t.storage().nbytes()
        return t

    def hook(_, bucket):
        mine = [next(i for i, q in enumerate(parameters) if q is p) for p in bucket.parameters()]
        buckets[bucket.index()] = mine
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ddp = nn.parallel.DistributedDataParallel(model, **ddp_options)
        ddp.register_comm_hook(None, hook)
        step = Step(ddp, inputs, None, loss_fn, None, "fp32", CPU, parameters)
        with CountedFlops() as count:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                loss = step.loss()
            count.again = True
            torch.autograd.backward(loss)  # a tensor's own method would end the count
        first = list(order)
        saved = sum(kept.values())
        alive.clear()
        del loss
        buckets.clear()
        step.loss().backward()
    return Executed(first, [buckets[k] for k in sorted(buckets)], saved, count.forward,
                    count.backward)  # fmt: skip
