"""Listens to DeepSpeed 0.14.5 for zero_record.py.

One rank runs, of a world of any size: what the others would send never decides what is issued.
Every event is in the words of the recordings, and these are more: the kernels that PyTorch's own
operators make for DeepSpeed's Python (`cat`, `cast`, `add`, and `mul_new`, `div_new` that make a
new tensor), and ["w", stream, operation, "work"], a wait on an asynchronous collective.

With offload_optimizer or offload_param, storages that DeepSpeed keeps on the host are known, and
what is copied between them and all others is written down: `to_device`, `to_host`, with `_blocking`
where non_blocking was not asked for, and `host_...` of what is done where they are.

Stood in for: the accelerator (DeepSpeed's own one of the CPU, which here says that it is
asynchronous, as CUDA does), torch.distributed, kernels of quantisation, and
`split_half_float_double`, which knows CUDA's tensor types only.
"""
import importlib
import logging
import os
import sys
import types
from pathlib import Path

import torch
import torch.distributed as dist

from .events import Event, Group, Stream, Work, around, away, current, inside, into, log, nothing
from .events import now, on_host, put, setting, told

now.update(world=2, rank=0, devices=1, up=False, carried=None, fetch=None)  # devices: of a node


def kernel(kind, tensor):
    events = into[0]
    if events and events[-1][:2] == ["l", kind] and events[-1][4] == current[-1]:
        events[-1][2] += tensor.numel()
        events[-1][3] += 1
    else:
        log("l", kind, tensor.numel(), 1, current[-1])


# --- collectives
def collective(op, whole, group, asynchronous, **more):
    ranks = group.size() if op == "all_to_all" else now["world"]
    said = told(op, whole, asynchronous, group=ranks)
    said.update(after_grad=now["gradient"], **more)
    if isinstance(group, Group):
        said["comm"] = group.name
    if now["carried"] and whole.numel() > 1:
        said["tensors"] = list(now["carried"])
    if now["fetch"] is not None and op == "all_gather":
        said["issued_by"] = now["fetch"]
    log("c", said)
    return Work(op)


def all_reduce(tensor, op=None, group=None, async_op=False):
    op = "MAX" if op == dist.ReduceOp.MAX else "SUM"
    return collective("all_reduce", tensor, group, async_op, reduce_op=op)


def reduce(tensor, dst, op=None, group=None, async_op=False):
    return collective("reduce", tensor, group, async_op, root=dst)


def broadcast(tensor, src, group=None, async_op=False):
    return collective("broadcast", tensor, group, async_op, root=src)


def all_gather(output_tensor, input_tensor, group=None, async_op=False):
    n = input_tensor.numel()
    return collective("all_gather", output_tensor, group, async_op, in_elements=n)


def reduce_scatter(output_tensor, input_tensor, op=None, group=None, async_op=False):
    n = output_tensor.numel()
    return collective("reduce_scatter", input_tensor, group, async_op, out_elements=n)


def all_to_all(output, input, output_split_sizes=None, input_split_sizes=None, group=None,
               async_op=False):
    if input.shape[0] % group.size():  # as PyTorch's check_split_sizes
        raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
    return collective("all_to_all", input, group, async_op)


def stand_in():
    put(dist, is_initialized=lambda: now["up"], barrier=nothing,
        get_rank=lambda group=None: now["rank"], get_world_size=lambda group=None: now["world"],
        new_group=lambda ranks=None, *_, **__: Group(0, len(list(ranks))),
        get_backend=lambda group=None: "nccl", all_reduce=all_reduce, reduce=reduce,
        broadcast=broadcast, all_gather_into_tensor=all_gather,
        reduce_scatter_tensor=reduce_scatter, all_to_all_single=all_to_all)
    dist.distributed_c10d.get_global_rank = lambda group, rank: rank
    torch.Tensor.record_stream = nothing
    for name in ("hjson", "pynvml"):
        sys.modules[name] = types.ModuleType(name)
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK="0")


def offload(optimizer):
    kept = [optimizer.grad_partitions_flat_buffer, *optimizer.param_groups_fp16_flat_cpu_memory]
    for flat in optimizer.fp32_partitioned_groups_flat if optimizer.offload_optimizer else ():
        kept += [flat.data, flat.grad]
    on_host.update(t.storage().data_ptr() for t in kept)


class Quantizer:
    """Stands in for kernels of qwZ and qgZ, which would have to be compiled."""

    Symmetric = 0

    def quantize(self, tensor, groups, bits, _):
        kernel("quantize", tensor)
        return torch.zeros(tensor.numel(), dtype=torch.int8), torch.zeros(groups)

    def dequantize(self, tensor, scales, groups, bits, _):
        kernel("dequantize", tensor)
        shape = tensor.shape if bits == 8 else (2 * tensor.numel(),)
        return torch.zeros(shape, dtype=torch.float16)

    def swizzle_quant(self, tensor, groups, bits, *_):
        kernel("swizzle_quant", tensor)
        return torch.zeros(tensor.numel() * bits // 8, dtype=torch.int8), torch.zeros(groups, 1)

    def quantized_reduction(self, tensor, scales, groups, groups_left, bits, _, devices):
        kernel("quantized_reduction", tensor)
        left = torch.zeros(tensor.numel() // devices, dtype=torch.int8)
        return left, torch.zeros(groups_left, 1)


# --- which of its functions are listened to
def ours(folder="/deepspeed/"):
    """Does DeepSpeed's Python call what `around` wrapped?"""
    return folder in sys._getframe(3).f_code.co_filename


def in_place(kind):
    def new(old, self, *args, **kwargs):
        if ours():
            kernel("host_" + kind if away(self) else kind, self)
        return old(self, *args, **kwargs)

    return new


def reduced(kind):
    def new(old, self, *args):
        if ours("/deepspeed/runtime/comm/"):
            kernel(kind, self)
        return old(self, *args)

    return new


def copy(old, self, source, non_blocking=False):
    if ours():
        how = "" if non_blocking else "_blocking"
        between = {(1, 0): "to_host" + how, (0, 1): "to_device" + how, (1, 1): "host_copy"}
        kernel(between.get((away(self), away(source)), "copy"), self)
    return old(self, source, non_blocking)


def double(old, self):
    if ours() and on_host:
        kernel("double", self)
    return old(self)


def to(old, self, *args, **kwargs):
    if away(self) and not isinstance(args[0], torch.dtype):
        kernel("to_device" + ("" if kwargs.get("non_blocking") else "_blocking"), self)
        return self.detach().clone()
    result = old(self, *args, **kwargs)
    if ours() and result.dtype != self.dtype and self.dim() and self.is_floating_point():
        kernel("cast", self)
    return result


def cat(old, tensors, *args, **kwargs):
    result = old(tensors, *args, **kwargs)
    if into[0] is not None and ours():
        kernel("cat", result)
    return result


def flatten(old, tensors):
    result = old(tensors)
    if len(tensors) > 1:
        kernel("cat", result)
    return result


def listen_to_kernels(*stages):
    """Logs the kernels that DeepSpeed's Python makes a tensor run."""
    around(torch.Tensor, copy_=copy, double=double, float=in_place("cast_float"), to=to,
           div_=in_place("div"), mul_=in_place("mul"), add_=in_place("add"),
           mul=in_place("mul_new"), div=in_place("div_new"), __radd__=reduced("add_new"),
           __add__=reduced("add_new"), __truediv__=reduced("div_new"))
    around(torch, cat=cat)
    for module in stages:
        around(module, _flatten_dense_tensors=flatten)


def stand_in_device(device):
    for name in ("is_synchronized_device", "resolves_data_dependency",
                 "handles_memory_backpressure"):
        setattr(device, name, lambda self: False)
    for name in ("use_host_timers", "is_bf16_supported", "is_fp16_supported"):
        setattr(device, name, lambda self: True)
    put(device, device_count=lambda self: now["devices"],
        Stream=property(lambda self: lambda *_, **__: Stream()),
        Event=property(lambda self: Event),
        stream=lambda self, stream: inside(stream),
        current_stream=lambda self, *_: Stream(name=current[-1]),
        default_stream=lambda self, *_: Stream(name="main"),
        on_accelerator=lambda self, tensor: not away(tensor),
        synchronize=lambda self, *_: log("h", "device.synchronize", "device"))


def by_dtype(tensors):
    order = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
    buckets = [[t for t in tensors if t.dtype == dtype] for dtype in order]
    return [b for b in buckets if b]


def as_rank_0(old, values):  # what rank 0 has, this rank has
    with setting("rank", 0):
        return old(values)


def carrying(index_of):
    def call(old, self, *args, **kwargs):
        with setting("carried", index_of(self, *args)):
            return old(self, *args, **kwargs)

    return call


def in_bucket(self, *_):
    return [now["index"][id(p)] for _, p, _ in self.params_in_ipg_bucket]


def in_bucket_3(self, *_):
    # reduce_scatter sorts by ds_id; the contiguous all-reduce leaves the order of arrival
    tensors = [now["index"][id(p)] for p in self.params_in_ipg_bucket]
    elements = sum(p.ds_numel for p in self.params_in_ipg_bucket)
    flat = self.contiguous_gradients and not self.reduce_scatter
    return tensors if flat and elements <= self.reduce_bucket_size else sorted(tensors)


def listen_to_parameters(coordinator):
    """Marks which module of ZeRO-3 fetches parameters, and which are released."""
    status = coordinator.ZeroParamStatus

    def fetch(old, self, module, forward):
        with setting("fetch", now["name"][id(module)]):
            log("m", "fetch", now["fetch"], "forward" if forward else "backward")
            return old(self, module, forward)

    def missing(self, params, *_):
        away = [p for p in params if p.ds_status == status.NOT_AVAILABLE]
        return sorted(now["index"][id(p)] for p in away)

    def release(old, self, param):
        if param.ds_status == status.AVAILABLE and not param.ds_active_sub_modules:
            log("m", "release", now["index"][id(param)])
        return old(self, param)

    around(coordinator.PartitionedParameterCoordinator, fetch_sub_module=fetch,
           _PartitionedParameterCoordinator__all_gather_params=carrying(missing),
           _PartitionedParameterCoordinator__release_param=release)


def deepspeed(folders):
    folders = folders.split(":")
    assert (Path(folders[0]) / "version.txt").read_text().strip() == "0.14.5"
    sys.path[:0] = folders
    stand_in()
    real = importlib.import_module("deepspeed")
    setattr(sys.modules["deepspeed.comm.torch"], "build_shm_op", lambda: None)
    now["up"] = True
    stand_in_device(type(importlib.import_module("deepspeed.accelerator").get_accelerator()))
    names = ("partitioned_param_coordinator", "stage3", "stage_1_and_2", "utils")
    zero = (importlib.import_module("deepspeed.runtime.zero." + n) for n in names)
    coordinator, three, two, utils = zero
    around(utils, get_lst_from_rank0=as_rank_0)
    partition = importlib.import_module("deepspeed.runtime.zero.partition_parameters")
    coalesced = importlib.import_module("deepspeed.runtime.comm.coalesced_collectives")
    put(two, split_half_float_double=by_dtype)
    put(partition.CUDAQuantizer, quantizer_cuda_module=Quantizer())
    put(coalesced, quantizer_module=Quantizer())
    around(two.DeepSpeedZeroOptimizer, reduce_ipg_grads=carrying(in_bucket))
    around(three.DeepSpeedZeroOptimizer_Stage3,
           _DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads=carrying(in_bucket_3))
    listen_to_parameters(coordinator)
    listen_to_kernels(two, three)
    sys.modules["deepspeed.utils"].logger.setLevel(logging.ERROR)
    return real
