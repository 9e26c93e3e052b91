#!/usr/bin/python3
"""Records what FSDP2 does in a step, for tests/data/recorded_orders: the real `fully_shard` on a
small model, with streams, events, process groups and kernels that write down what is asked of them.

  record_fsdp2.py OUT --package FOLDER [VERSION]
  record_fsdp2.py SEED:COUNT --package FOLDER [VERSION]
                         draws as many questions, and compares each with fsdp2.py

FOLDER has of 2.7's sources, or of those with functions of a later VERSION in place of their own,
torch/distributed/{fsdp/_fully_shard,_composable/contract.py,_composable_state.py,utils.py}. It runs
on the PyTorch that is installed, which must be 1.13: the package is Python only, and 1.13's
autograd has the same order (newest node first). Stood in for: DTensor (a tensor that is its own
shard), device meshes, torch.compile, hooks of modules with keyword arguments, the operators of the
package that 1.13 does not have (foreach copy, split with copy, chunk and concatenate), and
everything that asks for a device. Nothing of its logic is changed. Every buffer that it allocates
is memory of its own whose end is noticed, so the recording says when the last reference to it was
dropped.
"""
import contextlib
import functools
import gc
import gzip
import importlib.util
import json
import random
import sys
import tempfile
import types
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import record_fsdp  # skips where there is no PyTorch
from record_fsdp import Group, Model, Stub, around, current, into, log

import numpy
import torch
import torch.distributed as dist
from torch import nn

NAMES = ["all_gather_copy_in", "all_gather", "reduce_scatter", "all_reduce"]
SIZE = {**record_fsdp.SIZE, torch.float16: 2, torch.uint8: 1}
issued = {}  # of each stream: how many operations of FSDP2
made = [0]
quiet = [0]  # > 0: what happens is not the package's own work
work_of = [None]  # the unit that the host works for
indices = {}  # parameter's name: index


def op(*event, stream=None):
    stream = stream or current[-1]
    issued[stream] = issued.get(stream, 0) + 1
    log(*event)


class Event:
    def __init__(self):
        self.stream = None

    def record(self, stream=None):
        self.stream = stream.name if stream else current[-1]
        self.after = issued.get(self.stream, 0)


class Stream:
    def __init__(self, priority=0, name=None):
        self.name = name or NAMES[made[0]]
        made[0] += name is None

    def record_event(self):
        event = Event()
        event.record(self)
        return event

    def wait_event(self, event):
        log("w", self.name, event.stream, "event", event.after)

    def wait_stream(self, other):
        log("w", self.name, other.name, "stream", issued.get(other.name, 0))


DEVICE = types.SimpleNamespace(
    Stream=Stream,
    Event=Event,
    current_stream=lambda *_: Stream(name=current[-1]),
    stream=record_fsdp.Inside,
    current_device=lambda: 0,
)


# --- memory whose end is noticed
class Memory(numpy.ndarray):
    pass


def tracked(count, dtype):
    size = count * SIZE[dtype]
    memory = numpy.zeros(size, numpy.uint8).view(Memory)
    stream = current[-1]
    weakref.finalize(memory, log, "a", "free", size, stream)
    log("a", "allocate", size, stream)
    return torch.from_numpy(memory).view(dtype)


def own(old):
    """Of a function that allocates: its memory is noticed where FSDP2 calls it in a step."""

    @functools.wraps(old)
    def new(*args, **kwargs):
        if into[0] is None or quiet[0]:
            return old(*args, **kwargs)
        quiet[0] += 1
        try:
            return noticed(old.__name__, old, *args, **kwargs)
        finally:
            quiet[0] -= 1

    return new


def noticed(name, old, *args, **kwargs):
    if name == "empty":
        count = args[0] if isinstance(args[0], int) else args[0][0]
        return tracked(count, kwargs["dtype"])
    if name == "new_empty":
        return tracked(args[1][0], args[0].dtype)
    source = args[0]
    dtype = args[1] if name == "to" else source.dtype
    if name == "to" and (not isinstance(dtype, torch.dtype) or dtype == source.dtype):
        return old(*args, **kwargs)
    result = tracked(source.numel(), dtype)
    op("k", name, source.numel() * SIZE[source.dtype], source.numel() * SIZE[dtype], current[-1])
    result.copy_(source.detach().reshape(-1))
    return result.view(source.shape)


def in_place(name, old):
    def new(tensor, other):
        if into[0] is None or quiet[0]:
            return old(tensor, other)
        size = tensor.numel() * SIZE[tensor.dtype]
        read = size + (other.numel() * SIZE[other.dtype] if torch.is_tensor(other) else 0)
        op("k", name, read, size, current[-1])
        quiet[0] += 1
        try:  # a CPU cannot divide float16
            return tensor if tensor.dtype == torch.float16 else old(tensor, other)
        finally:
            quiet[0] -= 1

    return new


plain_copy = torch.Tensor.copy_


def copy(to, source):
    """As if its version counter were preserved, for which FSDP2 asks where it counts."""
    if into[0] is None or quiet[0]:
        return plain_copy(to, source)
    op("k", "copy", bytes_of([source]), bytes_of([to]), current[-1])
    return plain_copy(to.data, source.detach())


def bytes_of(tensors):
    return sum(t.numel() * SIZE[t.dtype] for t in tensors)


def foreach_copy(to, sources):
    op("k", "foreach_copy", bytes_of(sources), bytes_of(to), current[-1])
    for a, b in zip(to, sources):
        plain_copy(a, b.detach())


def split_copy(whole, sizes, dim, out):
    op("k", "split_with_sizes_copy", bytes_of([whole]), bytes_of(out), current[-1])
    for a, b in zip(out, whole.split(sizes, dim)):
        plain_copy(a.data, b)


def chunk_cat(tensors, dim, count, out):
    op("k", "chunk_cat", bytes_of(tensors), bytes_of([out]), current[-1])
    at = 0
    for t in tensors:
        rows = -(-t.size(0) // count)
        padded = t.new_zeros([rows * count, *t.shape[1:]])
        padded[: t.size(0)] = t
        width = padded.numel() // count
        out[:, at : at + width] = padded.view(count, -1)
        at += width


# --- collectives
class Work:
    def __init__(self, after):
        self.after = after

    def wait(self):
        log("w", current[-1], "nccl", "work", self.after)


def collective(name, count, dtype, group, reduce_op=None, async_op=False):
    stream = "nccl" if async_op else current[-1]
    op(
        "c",
        {
            "op": name,
            "elements": count,
            "dtype": str(dtype)[6:],
            "bytes": count * SIZE[dtype],
            "group": group.name,
            "ranks": group.size(),
            "queue": current[-1],
            "async": async_op,
            "reduce_op": reduce_op and ("AVG" if reduce_op == dist.ReduceOp.AVG else "SUM"),
            "unit": work_of[0],
        },
        stream=stream,
    )
    return Work(issued[stream]) if async_op else None


def all_gather(output_tensor, input_tensor, group, async_op=False):
    for part in output_tensor.chunk(group.size()):
        if part.data_ptr() != input_tensor.data_ptr():
            plain_copy(part, input_tensor)
    return collective(
        "all_gather", output_tensor.numel(), output_tensor.dtype, group, async_op=async_op
    )


def reduce_scatter(output, input, group, op):
    plain_copy(output, input.view(group.size(), -1)[group.rank()])
    collective("reduce_scatter", input.numel(), input.dtype, group, op)


def all_reduce(tensor, group, op):
    collective("all_reduce", tensor.numel(), tensor.dtype, group, op)


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
        self.groups = [Group(0, n) for n in mesh.shape]
        for group, name in zip(self.groups, names):
            group.name = name

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


def nothing(*_, **__):
    return None


def stub(name, **members):
    module = Stub(name)
    module.__path__ = []
    for key, value in members.items():
        setattr(module, key, value)
    sys.modules[name] = module
    holder, _, last = name.rpartition(".")
    setattr(sys.modules[holder], last, module)
    return module


def load(name, folder):
    path = Path(folder) / (name.replace(".", "/") + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    holder, _, last = name.rpartition(".")
    setattr(sys.modules[holder], last, module)
    return module


def hooks_of_modules():
    pre, post = nn.Module.register_forward_pre_hook, nn.Module.register_forward_hook

    def register_pre(self, hook, *, prepend=False, with_kwargs=False):
        handle = pre(self, (lambda m, a: hook(m, a, {})[0]) if with_kwargs else hook)
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    nn.Module.register_forward_pre_hook = register_pre
    nn.Module.register_forward_hook = lambda self, hook, **_: post(self, hook)
    for name in ("register_state_dict_pre_hook", "register_load_state_dict_post_hook"):
        setattr(nn.Module, name, nothing)
    named = nn.Module.named_parameters
    nn.Module.named_parameters = lambda self, prefix="", recurse=True, remove_duplicate=True: named(
        self, prefix, recurse
    )


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
    torch._foreach_copy_, torch._chunk_cat = foreach_copy, chunk_cat
    torch.split_with_sizes_copy = split_copy


def fsdp2(folder):
    operators()
    hooks_of_modules()
    torch.Event, torch._running_with_deploy = Event, lambda: False
    torch.fx.node.has_side_effect = nothing
    torch.Tensor.untyped_storage = lambda self: self._storage()
    torch.Tensor.itemsize = property(lambda self: self.element_size())
    torch.autograd._unsafe_preserve_version_counter = lambda _: contextlib.nullcontext()
    torch.autograd.graph._MultiHandle = None
    torch.utils._python_dispatch.is_traceable_wrapper_subclass = lambda _: False
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: False)
    torch.accelerator = DEVICE
    stub("torch._logging", warning_once=nothing)
    dynamo = stub("torch._dynamo", disable=lambda function, **_: function)
    dynamo.config = types.SimpleNamespace(skip_fsdp_hooks=True)
    stub(
        "torch._dynamo.compiled_autograd",
        compiled_autograd_enabled=False,
        compiled_autograd_enabled_force_eager=False,
        in_compiled_autograd_region=False,
    )
    stub("torch.distributed._functional_collectives", AsyncCollectiveTensor=type("Async", (), {}))
    stub("torch.distributed.device_mesh", _get_device_handle=lambda _: DEVICE)
    placements = {"Shard": Shard, "Replicate": type("Replicate", (), {})}
    stub(
        "torch.distributed.tensor",
        DTensor=DTensor,
        DeviceMesh=Mesh,
        init_device_mesh=None,
        **placements,
    )
    stub("torch.distributed.tensor._dtensor_spec", DTensorSpec=Spec, TensorMeta=lambda *_: None)
    stub("torch.distributed.tensor.device_mesh", _mesh_resources=None)
    stub("torch.distributed.tensor.placement_types", _StridedShard=None, Placement=object)
    dist.distributed_c10d.Work = Work
    dist.all_gather_into_tensor, dist.reduce_scatter_tensor = all_gather, reduce_scatter
    dist.all_reduce = all_reduce
    load("torch.distributed.utils", folder)
    load("torch.distributed._composable_state", folder)
    stub("torch.distributed._composable")
    contract = load("torch.distributed._composable.contract", folder)
    setattr(sys.modules["torch.distributed._composable"], "contract", contract.contract)
    stub("torch.distributed.fsdp")
    stub(
        "torch.distributed.fsdp._common_utils",
        _named_parameters_with_duplicates=lambda module, **how: list(
            module.named_parameters(**how)
        ),
    )
    package = "torch.distributed.fsdp._fully_shard"
    stub(package)
    api, common, param, collectives, group, state, _, wrapper = (
        load(f"{package}.{name}", folder)
        for name in (
            "_fsdp_api",
            "_fsdp_common",
            "_fsdp_param",
            "_fsdp_collectives",
            "_fsdp_param_group",
            "_fsdp_state",
            "_fsdp_init",
            "_fully_shard",
        )
    )
    listen(param, collectives, group, state)
    return api, wrapper.fully_shard


# --- which of its functions are listened to
def listen(param, collectives, group, state):
    torch.empty = own(torch.empty)
    for name in ("new_empty", "clone", "to"):
        setattr(torch.Tensor, name, own(getattr(torch.Tensor, name)))
    torch.Tensor.copy_ = copy
    torch.Tensor.__iadd__ = in_place("add", torch.Tensor.__iadd__)
    torch.Tensor.div_ = in_place("div", torch.Tensor.div_)
    cast = state._cast_fp_tensor

    def cast_input(dtype, x):
        quiet[0] += 1
        try:
            return cast(dtype, x)
        finally:
            quiet[0] -= 1

    state._cast_fp_tensor = cast_input

    def outputs(old, self, *args, **kwargs):
        fresh = not self.all_gather_outputs
        quiet[0] += 1
        old(self, *args, **kwargs)
        quiet[0] -= 1
        for t in self.all_gather_outputs if fresh else []:
            log("a", "allocate", bytes_of([t]), current[-1])

    def allocate(old, tensor):
        had = tensor.untyped_storage().size()
        old(tensor)
        if tensor.untyped_storage().size() != had:
            log("a", "allocate", bytes_of([tensor]), current[-1])

    def free(old, tensor):
        if tensor.untyped_storage().size():
            log("a", "free", bytes_of([tensor]), "main")
        old(tensor)

    def first_unsharded(old, self):
        fresh = not hasattr(self, "_unsharded_param")
        old(self)
        if fresh and self._unsharded_param.requires_grad:
            index = indices[self._param_fqn]
            self._unsharded_param.register_hook(lambda _: log("g", index))

    def in_unit(old, self, *args, **kwargs):
        was, work_of[0] = work_of[0], self.unit_name
        try:
            return old(self, *args, **kwargs)
        finally:
            work_of[0] = was

    def before(old, self, *args):
        if str(self._training_state) != "TrainingState.PRE_BACKWARD":
            log("m", "pre_backward", self.unit_name)
        return old(self, *args)

    def after(old, self, *args):
        log("m", "post_backward", self.unit_name)
        return in_unit(old, self, *args)

    def resharded(what, done):
        def mark(old, self):
            was = done(self)
            old(self)
            if not was:
                log("m", what, self.unit_name)

        return mark

    def end(old, self):
        log("m", "end_of_backward")
        return old(self)

    groups = group.FSDPParamGroup
    around([param.FSDPParam], "init_all_gather_outputs", outputs)
    around([param.FSDPParam], "init_unsharded_param", first_unsharded)
    around([param, group], "alloc_storage", allocate)
    around([param], "free_storage", free)
    around([groups], "unshard", in_unit)
    around([groups], "wait_for_unshard", in_unit)
    around([groups], "pre_backward", before)
    around([groups], "post_backward", after)
    around([groups], "_to_sharded", resharded("reshard", lambda g: g.is_sharded))
    around(
        [groups],
        "_to_sharded_post_forward",
        resharded("reshard_part", lambda g: g.is_sharded_post_forward),
    )
    around([state.FSDPState], "_root_post_backward_final_callback", end)


# --- the model and its steps
class WithEmbedding(Model):
    """An embedding in front, a unit by itself: its input needs no gradient."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Embedding(11, 13)


def record(
    fsdp,
    version,
    out,
    config,
    mesh,
    wrap="layer",
    micro=1,
    policy=None,
    embedding=False,
    frozen=(),
    odd=False,
    **knobs,
):
    api, fully_shard = fsdp
    torch.manual_seed(0)
    made[0], current[:] = 0, ["main"]
    model = WithEmbedding() if embedding else Model()
    if odd:  # nobody uses it
        model.h[1].odd = nn.Parameter(torch.zeros(9, 4, dtype=torch.bfloat16), requires_grad=False)
        frozen = ["h.1.odd"]
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(tuple(frozen)))
    parameters = [
        [n, list(p.shape), str(p.dtype)[6:], p.requires_grad] for n, p in model.named_parameters()
    ]
    indices.clear()
    indices.update({p[0]: i for i, p in enumerate(parameters)})
    for name, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda _, __, name=name: log("f", name))
    names = ("replicate", "shard")[-len(mesh) :]
    shape = torch.zeros(*mesh, dtype=torch.int64)
    said = {"mesh": Mesh("cpu", shape, names)}
    if "reshard_after_forward" in knobs:
        said["reshard_after_forward"] = knobs["reshard_after_forward"]
    if policy:
        said["mp_policy"] = api.MixedPrecisionPolicy(
            **{k: getattr(torch, v) for k, v in policy.items()}
        )
    for block in model.h if wrap != "none" else []:
        if wrap == "nested":
            fully_shard(block.fc, **said)
            fully_shard(block.out, **said)
        fully_shard(block, **said)
    if embedding:
        fully_shard(model.inp, **said)
    if wrap == "nested":
        fully_shard(model.head, **said)
    fully_shard(model, **said)
    units, modules = [], {}
    for path, module in model.named_modules():
        state = fully_shard.state(module) if hasattr(module, "unshard") else None
        if not state or not state._fsdp_param_group:
            continue
        name = path or "(root)"
        modules[name] = module
        state._fsdp_param_group.unit_name = name
        of_module = {id(m): p for p, m in model.named_modules()}
        tensors = [
            indices[
                f"{of_module[id(p._module_info.module)]}.{p._module_info.param_name}".lstrip(".")
            ]
            for p in state._fsdp_param_group.fsdp_params
        ]
        units.append({"unit": name, "tensors": tensors})
    for knob, module_lists in knobs.items():
        if knob.startswith("set_modules_to"):
            for unit, targets in module_lists.items():
                getattr(modules[unit], knob)([modules[t] for t in targets])
    for unit, value in knobs.get("set_unshard_in_backward", {}).items():
        modules[unit].set_unshard_in_backward(value)
    if knobs.get("unshard_async_op"):
        model._set_unshard_async_op(True)
    for module in modules.values():  # what the functions of these names set
        group = fully_shard.state(module)._fsdp_param_group
        if "set_reduce_scatter_max_input_buffers" in knobs:
            group.reduce_scatter_max_input_buffers = knobs["set_reduce_scatter_max_input_buffers"]
        if knobs.get("set_force_sum_reduction_for_comms"):
            group.force_sum_reduction_for_comms = True
        if knobs.get("set_separate_reduce_scatter_group"):
            group.mesh_info.reduce_scatter_process_group = own_group = Group(0, mesh[-1])
            own_group.name = "shard_reduce"
    steps = []
    for number in range(4):
        gc.collect()
        gc.disable()
        events = into[0] = []
        issued.clear()
        for name, module in modules.items():
            for p in fully_shard.state(module)._fsdp_param_group.fsdp_params:
                p.sharded_param.grad = None
        for j in range(micro):
            for knob in (
                "set_requires_gradient_sync",
                "set_requires_all_reduce",
                "set_is_last_backward",
                "set_reshard_after_backward",
            ):
                if knob in knobs:
                    getattr(model, knob)(knobs[knob][j])
            log("m", "micro_batch", j)
            log("m", "forward")
            x = torch.randint(0, 11, (3,)) if embedding else torch.randn(3, 10)
            loss = model(x).float().sum()
            log("m", "backward")
            loss.backward()
            del loss
        into[0] = None
        gc.enable()
        for p in model.parameters():
            assert (p.grad is not None) == p.requires_grad, "a gradient is missing"
        same = [s for s in steps if s.get("events") == events]
        steps.append(
            {"step": number, "same_as": same[0]["step"]}
            if same
            else {"step": number, "events": events}
        )
    told = {**knobs, "wrap": wrap, "accumulation_steps": micro}
    if policy:
        told["mp_policy"] = policy
    ranks = "x".join(str(n) for n in mesh)
    name = f"fsdp2_{version.replace('.', '')}__blocks3__{config}__n{ranks}.json.gz"
    text = json.dumps(
        {
            "system": "fsdp2",
            "of": version,
            "model": "blocks3",
            "config": config,
            "knobs": told,
            "mesh": list(mesh),
            "file": name,
            "parameters": parameters,
            "units_in_module_order": units,
            "steps": steps,
        },
        separators=(",", ":"),
    )
    (Path(out) / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def drawn(rnd, version):
    """A question nobody thought of: a mesh, a wrapping and knobs."""

    def flags():
        return [rnd.random() < 0.5 for _ in range(micro - 1)] + [True]

    n = rnd.choice([2, 3, 4, 8])
    hybrid, embedding = rnd.random() < 0.4, rnd.random() < 0.3
    wrap, micro = rnd.choice(["layer", "layer", "nested", "none"]), rnd.choice([1, 1, 2, 3])
    said = {"wrap": wrap, "micro": micro, "embedding": embedding}
    names = ["(root)"] + ["inp"] * embedding + ["head"] * (wrap == "nested")
    for i in range(3 if wrap != "none" else 0):
        names += [f"h.{i}"] + [f"h.{i}.{x}" for x in ("fc", "out") if wrap == "nested"]
    if rnd.random() < 0.6:
        parts = [2] * (n in (4, 8)) + [4] * (n == 8)
        said["reshard_after_forward"] = rnd.choice([True, False, *parts])
    wide = ("float32", "bfloat16", "float16")
    said["policy"] = {"param_dtype": "bfloat16"} if rnd.random() < 0.5 else {}
    said["policy"].update({"reduce_dtype": rnd.choice(wide)} if rnd.random() < 0.5 else {})
    if micro > 1:
        if rnd.random() < 0.5:
            said["set_requires_gradient_sync"] = flags()
        elif hybrid and rnd.random() < 0.6:
            said["set_requires_all_reduce"] = flags()
        for knob in ("set_is_last_backward", "set_reshard_after_backward"):
            if rnd.random() < 0.5:
                said[knob] = flags()
    for way in ("forward", "backward"):
        if rnd.random() < 0.3:
            said[f"set_modules_to_{way}_prefetch"] = {
                u: rnd.sample(names, min(len(names), rnd.randint(1, 3)))
                for u in rnd.sample(names, rnd.randint(1, len(names)))
            }
    if rnd.random() < 0.2:
        said["unshard_async_op"] = True
    if rnd.random() < 0.5 and embedding:
        said["set_unshard_in_backward"] = {"inp": False}
    if rnd.random() < 0.2:
        said["frozen"] = rnd.sample(["inp", "h.0.", "h.1.fc", "h.1.", "h.2.", "head.bias"], 2)
    if version == "2.13" and rnd.random() < 0.4:
        said["set_reduce_scatter_max_input_buffers"] = rnd.choice([2, 3, 10])
    if version == "2.13" and rnd.random() < 0.3:
        said["set_separate_reduce_scatter_group"] = True
    return {"mesh": (rnd.choice([2, 3]), n) if hybrid else (n,), **said}


def draw(fsdp, version, seed, count):
    import recorded_orders

    rnd, differ, failed = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as out:
        for _ in range(count):
            question = drawn(rnd, version)
            try:
                record(fsdp, version, out, "drawn", **question)
            except RuntimeError as failure:  # its own: gathered in one state, waited for in another
                print(question, failure)
                into[0], failed = None, failed + 1
                continue
            (path,) = Path(out).iterdir()
            found, _ = recorded_orders.differences(recorded_orders.load(path))
            path.unlink()
            differ += bool(found)
            for f in found[:1]:
                print(question, f)
    print(f"{version}: {count} drawn questions, FSDP2 fails in {failed}, {differ} others differ")
    return 1 if differ else 0


def main():
    if not torch.__version__.startswith("1.13"):
        print(f"skipped: PyTorch {torch.__version__}, not 1.13")
        return 77
    fsdp = fsdp2(sys.argv[3])
    version = (sys.argv[4:] or ["2.7"])[0]
    if ":" in sys.argv[1]:
        return draw(fsdp, version, *(int(n) for n in sys.argv[1].split(":")))

    def of(config, mesh=(4,), **more):
        record(fsdp, version, sys.argv[1], config, mesh, **more)

    bf16 = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
    only_bf16 = {"param_dtype": "bfloat16"}
    last = [False, False, True]
    of("default")
    of("embedding", embedding=True)
    of("bf16", policy=bf16)
    of("hsdp", (2, 4))
    of("hsdp_bf16_reduce", (2, 2), policy=only_bf16)
    of("hsdp_acc3_last", (2, 2), micro=3, set_is_last_backward=last)
    of("acc3_last", micro=3, set_is_last_backward=last)
    of("frozen_unit", frozen=["h.1."])
    of("frozen_front", frozen=["inp", "h.0."])
    of("frozen", frozen=["inp", "h.0.fc", "h.2.ln.bias"])
    if version != "2.7":
        of("bytes", odd=True)
        of("bytes_part2", odd=True, reshard_after_forward=2)
        of("sum", set_force_sum_reduction_for_comms=True)
        of("sum_hsdp_bf16", (2, 4), policy=only_bf16, set_force_sum_reduction_for_comms=True)
        of("root_too", reshard_after_forward=True)
        of("root_part2", reshard_after_forward=2)
        of("one_rank_bf16", (1,), policy=only_bf16)
        of("one_rank_hsdp", (4, 1))
    if version == "2.13":
        of("buffers2", set_reduce_scatter_max_input_buffers=2)
        of(
            "buffers3_acc3_last",
            micro=3,
            set_is_last_backward=last,
            set_reduce_scatter_max_input_buffers=3,
        )
        of("buffers2_embedding", embedding=True, set_reduce_scatter_max_input_buffers=2)
        of("separate", set_separate_reduce_scatter_group=True)
        of("separate_hsdp", (2, 2), set_separate_reduce_scatter_group=True)
        of("hsdp_acc3_partial", (2, 2), micro=3, set_requires_all_reduce=last)
        of("hsdp_fp16", (2, 4), policy={"reduce_dtype": "float16"})
    if version != "2.7":
        return 0
    of("n16", (16,))
    of("n3", (3,))
    of("keep", reshard_after_forward=False)
    of("part2", reshard_after_forward=2)
    of("part2_bf16", reshard_after_forward=2, policy=bf16)
    of("root_only", wrap="none")
    of("nested", wrap="nested")
    of("bf16_reduce", (3,), policy=only_bf16)
    of("reduce_bf16", policy={"reduce_dtype": "bfloat16"})
    of("reduce_fp16", (8,), policy={"reduce_dtype": "float16"})
    of("hsdp_fp16", (2, 4), policy={"reduce_dtype": "float16"})
    chain = ["h.0", "h.1", "h.2"]
    ahead = {chain[i]: chain[i + 1 : i + 3] for i in range(2)}
    back = {"(root)": ["h.2", "h.1"], "h.2": ["h.1", "h.0"], "h.1": ["h.0"]}
    of("fwdpf2", set_modules_to_forward_prefetch={"(root)": chain[:2], **ahead})
    of("bwdpf2", set_modules_to_backward_prefetch=back)
    of("async", unshard_async_op=True)
    of("async_fwdpf", unshard_async_op=True, set_modules_to_forward_prefetch=ahead)
    of("no_unshard_in_backward", embedding=True, set_unshard_in_backward={"inp": False})
    of("acc3", micro=3)
    of("acc3_nosync", micro=3, set_requires_gradient_sync=last)
    of(
        "acc3_nosync_keep",
        micro=3,
        set_requires_gradient_sync=last,
        set_reshard_after_backward=last,
    )
    of("acc3_nosync_bf16", micro=3, set_requires_gradient_sync=last, policy=bf16)
    of("acc3_nosync_last", micro=3, set_requires_gradient_sync=last, set_is_last_backward=last)
    of("hsdp_acc3_partial", (2, 2), micro=3, set_requires_all_reduce=last)
    of("hsdp_part2", (2, 4), reshard_after_forward=2, policy=bf16)
    of(
        "nested_acc2_nosync_keep_bf16",
        micro=2,
        wrap="nested",
        policy=only_bf16,
        set_requires_gradient_sync=[False, True],
        set_reshard_after_backward=[False, True],
    )
    of("keep_acc2_last", micro=2, reshard_after_forward=False, set_is_last_backward=last[1:])
    of(
        "part2_bwdpf2_acc2",
        (8,),
        micro=2,
        reshard_after_forward=2,
        set_modules_to_backward_prefetch=back,
    )
    of(
        "embedding_async_fwdpf_keep",
        embedding=True,
        unshard_async_op=True,
        reshard_after_forward=False,
        set_modules_to_forward_prefetch={"(root)": ["inp", *chain[:1]], **ahead},
    )
    of("hsdp_acc2_bf16", (2, 2), micro=2, policy=only_bf16)
    return 0


if __name__ == "__main__":
    sys.exit(main())
