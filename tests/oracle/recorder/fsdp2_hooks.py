"""Listens to `fully_shard` for fsdp2_record.py.

The package is Python only; it runs on 1.13's autograd, which has the same order (newest node
first). Stood in for: DTensor (a tensor that is its own shard), device meshes, torch.compile, hooks
of modules with keyword arguments, the operators of the package that 1.13 does not have, and
everything that asks for a device.
"""
import contextlib
import importlib
import sys
import types

import torch
import torch.distributed as dist
from torch import nn

from . import packages
from .events import DEVICE, Event, Group, Stream, Work, around, bytes_of, counting, current, issued
from .events import log, mark_gradient, nothing, now, put, setting, told
from .fsdp2_memory import listen_to_kernels, op, plain_copy

indices = {}  # parameter's name: index


# --- collectives
def collective(name, whole, group, reduce_op=None, async_op=False):
    stream = "nccl" if async_op else current[-1]
    said = told(name, whole, async_op, group=group.name, ranks=group.size())
    said["reduce_op"] = reduce_op and ("AVG" if reduce_op == dist.ReduceOp.AVG else "SUM")
    said["unit"] = now["unit"]
    op("c", said, stream=stream)
    return Work(stream, issued[stream]) if async_op else None


def all_gather(output_tensor, input_tensor, group, async_op=False):
    for part in output_tensor.chunk(group.size()):
        if part.data_ptr() != input_tensor.data_ptr():
            plain_copy(part, input_tensor)
    return collective("all_gather", output_tensor, group, async_op=async_op)


def reduce_scatter(output, input, group, op):
    plain_copy(output, input.view(group.size(), -1)[group.rank()])
    collective("reduce_scatter", input, group, op)


def all_reduce(tensor, group, op):
    collective("all_reduce", tensor, group, op)


# --- what 1.13 does not have
class DTensor(torch.Tensor):
    @staticmethod
    def __new__(cls, local, spec, requires_grad=False):
        made_of = torch.Tensor._make_subclass(cls, local.detach(), requires_grad)
        made_of._local_tensor, made_of._spec = local, spec
        return made_of

    def detach(self):
        return DTensor(self._local_tensor.detach(), self._spec)


class Mesh:
    def __init__(self, device_type, mesh, names=None):
        self.device_type, self.mesh, self.mesh_dim_names = device_type, mesh, names
        self.ndim = mesh.ndim
        if names is None:
            names = ("replicate", "post_forward") if mesh.ndim == 2 else ("shard",)
        self.groups = [Group(0, n, name) for n, name in zip(mesh.shape, names)]

    def size(self, dim):
        return self.mesh.shape[dim]

    def get_group(self, dim):
        return self.groups[dim]


class Shard:
    def __init__(self, dim):
        self.dim = dim


class Spec:
    def __init__(self, mesh, placements, tensor_meta=None):
        self.mesh, self.placements, self.tensor_meta = mesh, placements, tensor_meta


def duplicates_too(module, **how):
    return list(module.named_parameters(**how))


PACKAGE = "torch.distributed.fsdp._fully_shard"
OURS = (PACKAGE, "torch.distributed.utils", "torch.distributed._composable_state",
        "torch.distributed._composable.contract")
STUBS: dict = {
    "torch._logging": {"warning_once": nothing},
    "torch._dynamo": {
        "disable": lambda function, **_: function,
        "config": types.SimpleNamespace(skip_fsdp_hooks=True),
    },
    "torch._dynamo.compiled_autograd": {
        "compiled_autograd_enabled": False,
        "compiled_autograd_enabled_force_eager": False,
        "in_compiled_autograd_region": False,
    },
    "torch.distributed._functional_collectives": {},
    "torch.distributed.device_mesh": {"_get_device_handle": lambda _: DEVICE},
    "torch.distributed.tensor": {
        "DTensor": DTensor, "DeviceMesh": Mesh, "init_device_mesh": None, "Shard": Shard,
        "Replicate": type("Replicate", (), {}),
    },
    "torch.distributed.tensor._dtensor_spec": {"DTensorSpec": Spec, "TensorMeta": nothing},
    "torch.distributed.tensor.device_mesh": {"_mesh_resources": None},
    "torch.distributed.tensor.placement_types": {"_StridedShard": None, "Placement": object},
    "torch.distributed._composable": {},
    "torch.distributed.fsdp": {},
    "torch.distributed.fsdp._common_utils": {"_named_parameters_with_duplicates": duplicates_too},
}


def hooks_of_modules():
    pre, post = nn.Module.register_forward_pre_hook, nn.Module.register_forward_hook

    def register_pre(self, hook, *, prepend=False, with_kwargs=False):
        handle = pre(self, (lambda m, a: hook(m, a, {})[0]) if with_kwargs else hook)
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    put(nn.Module, register_forward_pre_hook=register_pre,
        register_forward_hook=lambda self, hook, **_: post(self, hook),
        register_state_dict_pre_hook=nothing, register_load_state_dict_post_hook=nothing)


def operators():
    """The package registers its operators; they are what it registered for a CPU."""
    kept = types.SimpleNamespace()

    def implement(_, name, key):
        def keep(function):
            if key == "CPU":
                setattr(kept, name, function)
                function.default = function
            return function

        return keep

    torch.library.Library = lambda *_: types.SimpleNamespace(define=nothing)
    torch.library.impl = implement
    torch.ops.fsdp = kept


def missing():
    import torch.autograd.graph

    operators()
    hooks_of_modules()
    packages.newer_pytorch()
    put(torch, Event=Event, accelerator=DEVICE, _running_with_deploy=lambda: False,
        compiler=types.SimpleNamespace(is_compiling=lambda: False))
    put(torch.fx.node, has_side_effect=nothing)
    put(torch.Tensor, itemsize=property(lambda self: self.element_size()))
    put(torch.autograd, _unsafe_preserve_version_counter=lambda _: contextlib.nullcontext())
    put(torch.autograd.graph, _MultiHandle=None)
    put(dist.distributed_c10d, Work=Work)
    put(dist, all_gather_into_tensor=all_gather, reduce_scatter_tensor=reduce_scatter,
        all_reduce=all_reduce)
    Stream.names = ["all_gather_copy_in", "all_gather", "reduce_scatter", "all_reduce"]
    counting[0] = True


def fsdp2(folder):
    missing()
    packages.Package(folder, OURS, STUBS)
    contract = importlib.import_module("torch.distributed._composable.contract")
    setattr(sys.modules["torch.distributed._composable"], "contract", contract.contract)
    names = ("api", "common", "param", "collectives", "param_group", "state", "init")
    modules = {n: importlib.import_module(f"{PACKAGE}._fsdp_{n}") for n in names}
    wrapper = importlib.import_module(PACKAGE + "._fully_shard")
    listen_to_kernels()
    listen(modules["param"], modules["param_group"], modules["state"])
    return types.SimpleNamespace(api=modules["api"], fully_shard=wrapper.fully_shard)


# --- which of its functions are listened to
def listen(param, group, state):
    groups = group.FSDPParamGroup
    around(state, _cast_fp_tensor=unheard)
    around(param, group, alloc_storage=allocate)
    around(param, free_storage=free)
    around(param.FSDPParam, init_all_gather_outputs=outputs, init_unsharded_param=first_unsharded)
    around(groups, unshard=in_unit, wait_for_unshard=in_unit, pre_backward=before_backward,
           post_backward=after_backward, _to_sharded=resharded("reshard", "is_sharded"),
           _to_sharded_post_forward=resharded("reshard_part", "is_sharded_post_forward"))
    around(state.FSDPState, _root_post_backward_final_callback=end)


def unheard(old, *args, **kwargs):
    with setting("quiet", True):
        return old(*args, **kwargs)


def outputs(old, self, *args, **kwargs):
    fresh = not self.all_gather_outputs
    unheard(old, self, *args, **kwargs)
    for t in self.all_gather_outputs if fresh else []:
        log("a", "allocate", bytes_of(t), current[-1])


def allocate(old, tensor):
    had = tensor.untyped_storage().size()
    old(tensor)
    if tensor.untyped_storage().size() != had:
        log("a", "allocate", bytes_of(tensor), current[-1])


def free(old, tensor):
    if tensor.untyped_storage().size():
        log("a", "free", bytes_of(tensor), "main")
    old(tensor)


def first_unsharded(old, self):
    fresh = not hasattr(self, "_unsharded_param")
    old(self)
    if fresh and self._unsharded_param.requires_grad:
        mark_gradient(self._unsharded_param, indices[self._param_fqn])


def in_unit(old, self, *args, **kwargs):
    with setting("unit", self.unit_name):
        return old(self, *args, **kwargs)


def before_backward(old, self, *args):
    if str(self._training_state) != "TrainingState.PRE_BACKWARD":
        log("m", "pre_backward", self.unit_name)
    return old(self, *args)


def after_backward(old, self, *args):
    log("m", "post_backward", self.unit_name)
    return in_unit(old, self, *args)


def resharded(what, already):
    def mark(old, self):
        was = getattr(self, already)
        old(self)
        if not was:
            log("m", what, self.unit_name)

    return mark


def end(old, self):
    log("m", "end_of_backward")
    return old(self)
