"""Listens to FullyShardedDataParallel of 1.13 and of 2.7 for fsdp1_record.py.

2.7's package is Python only; here it runs on 1.13's autograd, whose order (newest node first) is
2.7's. Stood in for: what of its imports 1.13 does not have (DTensor, device meshes, torch.compile,
checkpoints, state dictionaries), names of storages, and everything that asks for a device. Names of
streams are those of _init_streams. With cpu_offload every tensor is on a device, in name, but the
shards and gradients that FSDP keeps on the host.
"""
import dataclasses
import sys
import types

import torch
import torch.distributed as dist

from . import packages
from .events import DEVICE, Stream, around, away, current, into, log, mark_gradient, nothing, now
from .events import on_host, put, setting, told

unit_of = {}  # handle: (name, indices of its tensors)
GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")


def collective(op, whole, group, **more):
    said = told(op, whole, group=group.size())
    said.update(after_grad=now["gradient"], **more)
    if now["unit"]:
        said.update(unit=now["unit"][0], tensors=now["unit"][1])
        if op == "all_gather":
            said["prefetch"] = now["prefetch"]
    log("c", said)


def all_gather(outs, shard, group=None):
    whole = torch.cat(outs) if isinstance(outs, list) else outs
    collective("all_gather", whole, group, in_elements=shard.numel())
    for o in outs if isinstance(outs, list) else outs.chunk(group.size()):
        o.copy_(shard.detach())


def reduce_scatter(out, whole, group=None):
    collective("reduce_scatter", whole, group, out_elements=out.numel())
    out.copy_(whole.view(group.size(), -1)[group.rank()])


def all_reduce(tensor, op=None, group=None):
    collective("all_reduce", tensor, group, reduce_op="SUM")


# --- the host of cpu_offload
def stand_in_host():
    device, to, copy = torch.Tensor.device, torch.Tensor.to, torch.Tensor.copy_

    def where(tensor):
        at = device.__get__(tensor)
        return GPU if on_host and not away(tensor) else at

    def moved(tensor, *args, **kwargs):
        if not args or args[0] != GPU:
            return to(tensor, *args, **kwargs)
        log("l", "to_device", tensor.numel(), 1, current[-1])
        return tensor.detach().clone()

    def copied(tensor, source, non_blocking=False):
        if away(tensor):
            assert not away(source) and non_blocking
            log("l", "to_host", tensor.numel(), 1, current[-1])
        return copy(tensor, source)

    def made(old, *args, device=None, **kwargs):
        return old(*args, **kwargs)  # all are on the CPU

    around(torch, zeros=made, tensor=made)
    put(torch.Tensor, device=property(where), to=moved, copy_=copied, pin_memory=lambda self: self)


def offload(modules, handles):
    for module in modules:
        module.compute_device = GPU
    for handle in handles:
        handle.device = GPU
        kept = (handle.flat_param._local_shard, handle.flat_param._cpu_grad)
        on_host.update(t.storage().data_ptr() for t in kept)


def stand_in():
    dist.all_gather = dist.all_gather_into_tensor = dist._all_gather_base = all_gather
    dist.reduce_scatter_tensor = dist._reduce_scatter_base = reduce_scatter
    put(dist, all_reduce=all_reduce, get_world_size=lambda group=None: group.size(),
        get_rank=lambda group=None: group.rank())
    put(torch.Tensor, record_stream=nothing, cuda=lambda self, *_: self)
    stand_in_host()
    made = dataclasses.dataclass

    def dataclass(cls=None, **how):  # 1.13's TensorProperties under Python 3.11
        if cls is None:
            return lambda c: dataclass(c, **how)
        return made(cls, **({"unsafe_hash": True} if cls.__name__ == "TensorProperties" else how))

    dataclasses.dataclass = dataclass


# --- which of its functions are listened to
def listed(one_or_more):
    return one_or_more if isinstance(one_or_more, (list, tuple)) else [one_or_more]


def unshard(old, state, handle, *streams):  # 1.13 has a list of one, or of none
    if handle:
        with setting("unit", unit_of[listed(handle)[0]]):
            old(state, handle, *streams)


def prefetch(old, *args):
    with setting("prefetch", True):
        return old(*args)


def reshard(old, state, handle, freed):
    for h, frees in zip(listed(handle), listed(freed)):
        log("m", "reshard" if frees else "reshard_keep", unit_of[h][0])
    return old(state, handle, freed)


def after_backward(old, state, handle, *args):
    log("m", "post_backward", unit_of[handle][0])
    with setting("unit", unit_of[handle]):
        return old(state, handle, *args)


def mark_views(handle):
    for (name, module, _), index in zip(handle.flat_param._param_infos, unit_of[handle][1]):
        view = getattr(module, name)
        if view.requires_grad and view.grad_fn is not None:
            mark_gradient(view, index)


def listen_to_memory(flat):
    def size_of(tensor):
        return tensor.storage().size() * tensor.element_size()

    def allocate(old, tensor, size):
        had = tensor.storage().size()
        old(tensor, size)
        if had == 0:
            log("a", "allocate", size_of(tensor), current[-1])

    def free(old, tensor):
        if tensor.storage().size():
            log("a", "free", size_of(tensor), current[-1])
        old(tensor)

    around(flat, _alloc_storage=allocate, _free_storage=free)


def fsdp_113():
    put(torch.cuda, **vars(DEVICE))
    Stream.names = ["all_gather", "post_backward", "pre_all_gather"]
    import torch.distributed.fsdp as api
    import torch.distributed.fsdp.flat_param as flat
    import torch.distributed.fsdp.fully_sharded_data_parallel as wrapper

    cls = wrapper.FullyShardedDataParallel
    cls._get_compute_device = lambda *_: CPU
    cls._move_module_to_device = cls._get_device_from_device_id = nothing
    wrapper._to_kwargs = lambda args, kwargs, *_: ((args,), (kwargs,))

    def prepare(old, handle):
        old(handle)
        log("m", "pre_backward", unit_of[handle][0])

    def unflatten(old, handle, as_params):
        old(handle, as_params)
        if into[0] is not None and not as_params and handle in unit_of:
            mark_views(handle)

    def divide(old, tensor, factor):
        if sys._getframe(2).f_code.co_filename.endswith("default_hooks.py"):
            log("l", "div", tensor.numel(), 1, current[-1])
        return old(tensor, factor)

    def to_cpu(old, tensor, *args, **kwargs):
        if sys._getframe(2).f_code.co_name == "clip_grad_norm_":
            log("h", "clip", "main")
        return old(tensor, *args, **kwargs)

    around(cls, _unshard=unshard, _prefetch_handles=prefetch, _reshard=reshard,
           _post_backward_hook=after_backward)
    around(flat.FlatParamHandle, prepare_gradient=prepare, _unflatten=unflatten)
    around(torch.Tensor, div_=divide, cpu=to_cpu)
    listen_to_memory(flat)
    return types.SimpleNamespace(
        api=api,
        cls=cls,
        handle_of=lambda m: m._handles[0] if m._handles else None,
        names_of=lambda p: p._prefixed_param_names,
        lazy_init=cls._lazy_init,
    )


# --- 2.7: what 1.13 does not have
FSDP = "torch.distributed.fsdp"
EMPTY = ("_state_dict_utils", "_optim_utils", "_shard_utils", "_debug_utils", "_fully_shard",
         "sharded_grad_scaler")
OURS = (FSDP, "torch.distributed.utils", "torch.distributed._composable_state",
        "torch.distributed.algorithms._comm_hooks")
STUBS: dict = {
    "torch.distributed.tensor": {},
    "torch.distributed.device_mesh": {
        "_mesh_resources": types.SimpleNamespace(get_root_mesh=nothing)
    },
    "torch.distributed._shard": {},
    "torch.distributed.algorithms._checkpoint": {},
    "torch.distributed._composable": {},
    "torch.distributed._composable.contract": {"_get_registry": nothing},
    "torch.distributed._functional_collectives": {"is_torchdynamo_compiling": lambda: False},
    "torch.distributed._state_dict_utils": {},
    "torch.testing._internal.distributed.fake_pg": {},
    FSDP + "._dynamo_utils": {"_annotate_modules_for_dynamo": nothing},
    **{f"{FSDP}.{name}": {} for name in EMPTY},
}


def on_gradients(tensors, call):
    """PyTorch's own waits for those of all tensors. A block has one input, or one without."""
    assert len(tensors) < 2
    handles = [t.register_hook(call) for t in tensors]
    return handles[0] if handles else types.SimpleNamespace(remove=nothing)


def missing():
    import torch.autograd.graph
    import torch.utils._pytree as pytree

    packages.newer_pytorch()
    storage = torch.storage.TypedStorage
    put(torch, Event=object, cpu=DEVICE)
    put(torch.autograd.graph, register_multi_grad_hook=on_gradients)
    put(pytree, arg_tree_leaves=lambda *args, **kw: pytree.tree_flatten((args, kw))[0])
    put(dist, get_debug_level=lambda: dist.DebugLevel.OFF)
    dist.distributed_c10d._get_pg_default_device = None
    torch.Tensor._typed_storage = lambda self: self.storage()
    put(storage, _size=storage.size, _resize_=storage.resize_, _data_ptr=storage.data_ptr)
    Stream.names = ["unshard", "post_backward", "pre_unshard", "all_reduce"]


def fsdp_27(folder):
    missing()
    packages.Package(folder, OURS, STUBS)
    import torch.distributed.fsdp as api
    import torch.distributed.fsdp._common_utils as common
    import torch.distributed.fsdp._flat_param as flat
    import torch.distributed.fsdp._init_utils as init
    import torch.distributed.fsdp._runtime_utils as runtime
    import torch.distributed.fsdp.fully_sharded_data_parallel as wrapper

    common._CHECKPOINT_PREFIX = "_checkpoint_wrapped_module."
    for holder in (common, flat, runtime):
        holder._no_dispatch_record_stream = nothing
    wrapper._init_device_handle = lambda state, *_: setattr(
        state, "_device_handle", common._FSDPDeviceHandle.from_device(CPU)
    )
    init._get_compute_device, init._move_module_to_device = lambda *_: CPU, nothing

    def before(old, state, module, handle, grad, *args):
        ran = handle is None or getattr(handle, "_ran_pre_backward_hook", False)
        made = old(state, module, handle, grad, *args)
        if not ran:
            log("m", "pre_backward", unit_of[handle][0])
        return made

    def divide(old, tensor, factor):
        if factor > 1:
            log("l", "div", tensor.numel(), 1, current[-1])
        return old(tensor, factor)

    def views(old, handle, as_params):
        old(handle, as_params)
        if into[0] is not None and handle._training_state == flat.HandleTrainingState.FORWARD:
            mark_views(handle)

    around(runtime, wrapper, init, _unshard=unshard, _prefetch_handle=prefetch, _reshard=reshard,
           _pre_backward_hook=before, _post_backward_hook=after_backward, _div_if_needed=divide)
    around(flat.FlatParamHandle, _use_unsharded_views=views)
    listen_to_memory(flat)
    return types.SimpleNamespace(
        api=api,
        cls=wrapper.FullyShardedDataParallel,
        handle_of=lambda m: m._handle,
        names_of=lambda p: p._fqns,
        lazy_init=lambda m: runtime._lazy_init(m, m),
    )
