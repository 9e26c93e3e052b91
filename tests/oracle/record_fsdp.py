#!/usr/bin/python3
"""Records what FSDP does in a step, for tests/data/recorded_orders: the real
FullyShardedDataParallel on a small model, with streams, events and process groups that only write
down what is asked of them.

  record_fsdp.py OUT                   FSDP of the PyTorch that is installed, which must be 1.13
  record_fsdp.py --check               records it, and compares with fsdp1.py; 77: no PyTorch 1.13
  record_fsdp.py OUT --package FOLDER  FSDP of 2.7: FOLDER has torch/distributed/{fsdp,utils.py,
                                       _composable_state.py,algorithms/_comm_hooks} of its sources

2.7's package is Python only; here it runs on 1.13's autograd, whose order (newest node first) is
2.7's. Stood in for: what of its imports 1.13 does not have (DTensor, device meshes, torch.compile,
checkpoints, state dictionaries), names of storages, and everything that asks for a device. Names of
streams are those of _init_streams. Of cpu_offload every tensor is on a device, in name, but the
shards and gradients that FSDP keeps on the host. Nothing of its logic is changed.
"""
import contextlib
import dataclasses
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import tempfile
import types
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
if importlib.util.find_spec("torch") is None:
    print("skipped: no PyTorch")
    sys.exit(77)
import torch
import torch.distributed as dist
from torch import nn

SIZE = {torch.float32: 4, torch.bfloat16: 2, torch.int32: 4}
into = [None]  # where events go; None: nowhere
current = ["main"]  # stack of streams
now = {"unit": None, "prefetch": False, "gradient": None}
unit_of = {}  # handle: (name, indices of its tensors)
GPU = torch.device("cuda", 0)
on_host = set()  # storages; empty: nothing is offloaded, and all are where they are


def log(*event):
    if into[0] is not None:
        into[0].append(list(event))


class Stream:
    names, made = [], 0

    def __init__(self, priority=0, name=None):
        self.name = name or Stream.names[Stream.made]
        Stream.made += name is None

    def wait_stream(self, other):
        log("w", self.name, other.name, "stream")

    def synchronize(self):
        log("h", "stream.synchronize", self.name)


class Event:
    def record(self):
        self.name = current[-1]

    def synchronize(self):
        log("h", "event.synchronize", "ev@" + self.name)


class Inside:
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        current.append(self.stream.name)

    def __exit__(self, *_):
        current.pop()


DEVICE = {
    "is_available": lambda: True,
    "current_device": lambda: 0,
    "device_count": lambda: 8,
    "Stream": Stream,
    "Event": Event,
    "synchronize": lambda: None,
    "stream": Inside,
    "current_stream": lambda *_: Stream(name=current[-1]),
}


class Group(dist.ProcessGroup):
    def __init__(self, rank, size):
        super().__init__(rank, size)


def collective(op, elements, dtype, group, **more):
    said = {
        "op": op,
        "elements": elements,
        "dtype": str(dtype)[6:],
        "bytes": elements * SIZE[dtype],
        "group": group.size(),
        "queue": current[-1],
        "async": False,
        "after_grad": now["gradient"],
        **more,
    }
    if now["unit"]:
        said.update(unit=now["unit"][0], tensors=now["unit"][1])
        if op == "all_gather":
            said["prefetch"] = now["prefetch"]
    log("c", said)


def all_gather(outs, shard, group=None):
    outs = outs if isinstance(outs, list) else list(outs.chunk(group.size()))
    collective(
        "all_gather", sum(o.numel() for o in outs), shard.dtype, group, in_elements=shard.numel()
    )
    for o in outs:
        o.copy_(shard.detach())


def reduce_scatter(out, whole, group=None):
    collective("reduce_scatter", whole.numel(), whole.dtype, group, out_elements=out.numel())
    out.copy_(whole.view(group.size(), -1)[group.rank()])


def all_reduce(tensor, op=None, group=None):
    collective("all_reduce", tensor.numel(), tensor.dtype, group, reduce_op="SUM")


def storage_of(tensor):
    return tensor.storage().data_ptr()


def stand_in_host():
    device, to, copy = torch.Tensor.device, torch.Tensor.to, torch.Tensor.copy_

    def where(tensor):
        at = device.__get__(tensor)
        return GPU if on_host and storage_of(tensor) not in on_host else at

    def moved(tensor, *args, **kwargs):
        if not args or args[0] != GPU:
            return to(tensor, *args, **kwargs)
        log("l", "to_device", tensor.numel(), 1, current[-1])
        return tensor.detach().clone()

    def copied(tensor, source, non_blocking=False):
        if on_host and storage_of(tensor) in on_host:
            assert storage_of(source) not in on_host and non_blocking
            log("l", "to_host", tensor.numel(), 1, current[-1])
        return copy(tensor, source)

    def made(old, *args, device=None, **kwargs):
        return old(*args, **kwargs)  # all are on the CPU

    around([torch], "zeros", made)
    around([torch], "tensor", made)
    torch.Tensor.pin_memory = lambda self: self
    torch.Tensor.device = property(where)
    torch.Tensor.to, torch.Tensor.copy_ = moved, copied


def offload(modules, handles):
    for module in modules:
        module.compute_device = GPU
    for handle in handles:
        handle.device = GPU
        kept = (handle.flat_param._local_shard, handle.flat_param._cpu_grad)
        on_host.update(map(storage_of, kept))


def stand_in():
    dist.all_gather = dist.all_gather_into_tensor = dist._all_gather_base = all_gather
    dist.reduce_scatter_tensor = dist._reduce_scatter_base = reduce_scatter
    dist.all_reduce = all_reduce
    dist.get_world_size = lambda group=None: group.size()
    dist.get_rank = lambda group=None: group.rank()
    torch.Tensor.record_stream = lambda self, stream: None
    torch.Tensor.cuda = lambda self, *_: self
    stand_in_host()
    made = dataclasses.dataclass

    def dataclass(cls=None, **how):  # 1.13's TensorProperties under Python 3.11
        if cls is None:
            return lambda c: dataclass(c, **how)
        return made(cls, **({"unsafe_hash": True} if cls.__name__ == "TensorProperties" else how))

    dataclasses.dataclass = dataclass


# --- FSDP of 1.13 and of 2.7: which of its functions are listened to
def around(holders, name, call):
    old = getattr(holders[0], name)

    @functools.wraps(old)
    def new(*args, **kwargs):
        return call(old, *args, **kwargs)

    for holder in holders:
        if getattr(holder, name, None) is old:
            setattr(holder, name, new)


def in_unit(handle, call):
    was, now["unit"] = now["unit"], unit_of[handle]
    try:
        return call()
    finally:
        now["unit"] = was


def prefetching(old, *args):
    now["prefetch"] = True
    try:
        return old(*args)
    finally:
        now["prefetch"] = False


def listen_to_views(handle):
    for (name, module, _), index in zip(handle.flat_param._param_infos, unit_of[handle][1]):
        view = getattr(module, name)
        if view.requires_grad and view.grad_fn is not None:

            def arrived(_, index=index):
                now["gradient"] = index
                log("g", index)

            view.register_hook(arrived)


def listen_to_memory(flat):
    def allocate(old, tensor, size):
        had = tensor.storage().size()
        old(tensor, size)
        if had == 0:
            log("a", "allocate", tensor.storage().size() * tensor.element_size(), current[-1])

    def free(old, tensor):
        if tensor.storage().size():
            log("a", "free", tensor.storage().size() * tensor.element_size(), current[-1])
        old(tensor)

    around([flat], "_alloc_storage", allocate)
    around([flat], "_free_storage", free)


def fsdp_113():
    for name, value in DEVICE.items():
        setattr(torch.cuda, name, value)
    Stream.names = ["all_gather", "post_backward", "pre_all_gather"]
    import torch.distributed.fsdp as api
    import torch.distributed.fsdp.flat_param as flat
    import torch.distributed.fsdp.fully_sharded_data_parallel as wrapper

    cls, handles = wrapper.FullyShardedDataParallel, flat.FlatParamHandle
    cls._get_compute_device = lambda *_: torch.device("cpu")
    cls._move_module_to_device = cls._get_device_from_device_id = lambda *_: None
    wrapper._to_kwargs = lambda args, kwargs, *_: ((args,), (kwargs,))
    around([cls], "_unshard", lambda old, self, hs: hs and in_unit(hs[0], lambda: old(self, hs)))
    around([cls], "_prefetch_handles", prefetching)

    def reshard(old, self, hs, frees):
        for h, freed in zip(hs, frees):
            log("m", "reshard" if freed else "reshard_keep", unit_of[h][0])
        return old(self, hs, frees)

    def prepare(old, handle):
        old(handle)
        log("m", "pre_backward", unit_of[handle][0])

    def after(old, self, handle, *args):
        log("m", "post_backward", unit_of[handle][0])
        return in_unit(handle, lambda: old(self, handle, *args))

    def unflatten(old, handle, as_params):
        old(handle, as_params)
        if into[0] is not None and not as_params and handle in unit_of:
            listen_to_views(handle)

    def divide(old, tensor, factor):
        if sys._getframe(2).f_code.co_filename.endswith("default_hooks.py"):
            log("l", "div", tensor.numel(), 1, current[-1])
        return old(tensor, factor)

    def to_cpu(old, tensor, *args, **kwargs):
        if sys._getframe(2).f_code.co_name == "clip_grad_norm_":
            log("h", "clip", "main")
        return old(tensor, *args, **kwargs)

    around([cls], "_reshard", reshard)
    around([handles], "prepare_gradient", prepare)
    around([cls], "_post_backward_hook", after)
    around([handles], "_unflatten", unflatten)
    around([torch.Tensor], "div_", divide)
    around([torch.Tensor], "cpu", to_cpu)
    listen_to_memory(flat)
    return (
        api,
        cls,
        lambda m: m._handles[0] if m._handles else None,
        lambda p: p._prefixed_param_names,
        lambda m: m._lazy_init(),
    )


STUBS = (
    "torch.distributed.tensor",
    "torch.distributed.device_mesh",
    "torch.distributed._shard",
    "torch.distributed.algorithms._checkpoint",
    "torch.distributed._composable",
    "torch.distributed._functional_collectives",
    "torch.distributed._state_dict_utils",
    "torch.testing._internal.distributed.fake_pg",
) + tuple(
    "torch.distributed.fsdp." + name
    for name in (
        "_state_dict_utils",
        "_optim_utils",
        "_shard_utils",
        "_debug_utils",
        "_dynamo_utils",
        "_fully_shard",
        "sharded_grad_scaler",
    )
)
OTHERS = (
    "torch.distributed.fsdp",
    "torch.distributed.utils",
    "torch.distributed._composable",
    "torch.distributed.algorithms._comm_hooks",
)


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type("Made", (type,), {"__getattr__": lambda c, n: c})(
            name, (), {"__init__": lambda *_, **__: None}
        )
        setattr(self, name, made)
        return made


class Package(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folder):
        self.folder = Path(folder)

    def find_spec(self, name, _, __=None):
        if any(name == stub or name.startswith(stub + ".") for stub in STUBS):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        path = self.folder / name.replace(".", "/")
        if not name.startswith(OTHERS) or not (path.is_dir() or path.with_suffix(".py").exists()):
            return None
        if path.is_dir():
            return importlib.util.spec_from_file_location(
                name, path / "__init__.py", submodule_search_locations=[str(path)]
            )
        return importlib.util.spec_from_file_location(name, path.with_suffix(".py"))

    def create_module(self, spec):
        made = Stub(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, _):
        pass


def fsdp_27(folder):
    for name in [m for m in sys.modules if m.startswith(OTHERS + STUBS)]:
        del sys.modules[name]
    sys.meta_path.insert(0, Package(folder))
    import torch.autograd.graph
    import torch.utils._mode_utils
    import torch.utils._python_dispatch
    import torch.utils._pytree
    import torch.utils.hooks

    for holder, name, value in (  # what 1.13 does not have yet
        (torch, "Event", object),
        (torch, "Stream", object),
        (torch.utils._python_dispatch, "is_traceable_wrapper_subclass", lambda _: False),
        (torch.utils._pytree, "tree_map_only", None),
        (torch.utils._mode_utils, "no_dispatch", contextlib.nullcontext),
        (torch.autograd.graph, "register_multi_grad_hook", None),
        (torch.utils.hooks, "unserializable_hook", lambda hook: hook),
        (dist.distributed_c10d, "_get_pg_default_device", None),
        (torch.Tensor, "_typed_storage", lambda self: self.storage()),
        (torch.Tensor, "untyped_storage", lambda self: self._storage()),
    ):
        if not hasattr(holder, name):
            setattr(holder, name, value)
    for name in ("size", "resize_", "data_ptr"):
        setattr(torch.storage.TypedStorage, "_" + name, getattr(torch.storage.TypedStorage, name))
    named = nn.Module.named_parameters
    nn.Module.named_parameters = lambda self, prefix="", recurse=True, remove_duplicate=True: named(
        self, prefix, recurse
    )
    torch.cpu = types.SimpleNamespace(**DEVICE)
    Stream.names = ["unshard", "post_backward", "pre_unshard", "all_reduce"]
    import torch.distributed._composable.contract as contract
    import torch.distributed._functional_collectives as functional
    import torch.distributed.device_mesh as mesh

    contract._get_registry = lambda _: None
    functional.is_torchdynamo_compiling = lambda: False
    mesh._mesh_resources = types.SimpleNamespace(get_root_mesh=lambda _: None)
    dist.get_debug_level = lambda: dist.DebugLevel.OFF
    import torch.distributed.fsdp._dynamo_utils as dynamo

    dynamo._annotate_modules_for_dynamo = lambda *_: None
    import torch.distributed.fsdp as api
    import torch.distributed.fsdp._common_utils as common
    import torch.distributed.fsdp._flat_param as flat
    import torch.distributed.fsdp._init_utils as init
    import torch.distributed.fsdp._runtime_utils as runtime
    import torch.distributed.fsdp.fully_sharded_data_parallel as wrapper

    common._CHECKPOINT_PREFIX = "_checkpoint_wrapped_module."
    for holder in (common, flat, runtime):
        holder._no_dispatch_record_stream = lambda tensor, stream: None
    wrapper._annotate_modules_for_dynamo = lambda *_: None
    wrapper._init_device_handle = lambda state, *_: setattr(
        state, "_device_handle", common._FSDPDeviceHandle.from_device(torch.device("cpu"))
    )
    init._get_compute_device = lambda *_: torch.device("cpu")
    init._move_module_to_device = lambda *_: None
    where = [runtime, wrapper, init]
    around(
        where,
        "_unshard",
        lambda old, state, handle, *streams: handle
        and in_unit(handle, lambda: old(state, handle, *streams)),
    )
    around(where, "_prefetch_handle", prefetching)

    def reshard(old, state, handle, freed):
        log("m", "reshard" if freed else "reshard_keep", unit_of[handle][0])
        return old(state, handle, freed)

    def before(old, state, module, handle, grad, *args):
        ran = handle is None or getattr(handle, "_ran_pre_backward_hook", False)
        made = old(state, module, handle, grad, *args)
        if not ran:
            log("m", "pre_backward", unit_of[handle][0])
        return made

    def after(old, state, handle, *args):
        log("m", "post_backward", unit_of[handle][0])
        return in_unit(handle, lambda: old(state, handle, *args))

    def divide(old, tensor, factor):
        if factor > 1:
            log("l", "div", tensor.numel(), 1, current[-1])
        return old(tensor, factor)

    def views(old, handle, as_params):
        old(handle, as_params)
        if into[0] is not None and handle._training_state == flat.HandleTrainingState.FORWARD:
            listen_to_views(handle)

    around(where, "_reshard", reshard)
    around(where, "_pre_backward_hook", before)
    around(where, "_post_backward_hook", after)
    around(where, "_div_if_needed", divide)
    around([flat.FlatParamHandle], "_use_unsharded_views", views)
    listen_to_memory(flat)
    return (
        api,
        wrapper.FullyShardedDataParallel,
        lambda m: m._handle,
        lambda p: p._fqns,
        lambda m: runtime._lazy_init(m, m),
    )


# --- the model and its steps
class Block(nn.Module):
    def __init__(self, width, name):
        super().__init__()
        self.name, self.ln = name, nn.LayerNorm(width)
        self.fc, self.out = nn.Linear(width, 2 * width + 1), nn.Linear(2 * width + 1, width)

    def forward(self, x):
        y = self.out(torch.relu(self.fc(self.ln(x))))
        log("f", self.name + ".add")
        return x + y


class Model(nn.Module):
    def __init__(self, width=13, blocks=3):
        super().__init__()
        self.inp = nn.Linear(10, width)
        self.h = nn.ModuleList([Block(width, f"h.{i}") for i in range(blocks)])
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        x = self.inp(x)
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def record(
    fsdp,
    version,
    out,
    config,
    ranks,
    wrap="layer",
    micro=1,
    no_sync=False,
    clip=False,
    hosts_of=None,
    frozen=(),
    **knobs,
):
    api, cls, handle_of, names_of, lazy_init = fsdp
    torch.manual_seed(0)
    Stream.made, current[:] = 0, ["main"]
    unit_of.clear()
    on_host.clear()
    now.update(unit=None, prefetch=False, gradient=None)
    model = Model()
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(tuple(frozen)))
    names = [name for name, _ in model.named_parameters()]
    parameters = [[name, p.numel(), "float32"] for name, p in model.named_parameters()]
    for name, module in model.named_modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda _, __, name=name: log("f", name))
    said = dict(knobs)
    detail = said.pop("debug_detail", False)
    dist.get_debug_level = lambda: dist.DebugLevel.DETAIL if detail else dist.DebugLevel.OFF
    strategy = said.pop("sharding_strategy", "FULL_SHARD")
    said["sharding_strategy"] = getattr(api.ShardingStrategy, strategy)
    said["process_group"] = (
        (Group(0, hosts_of), Group(0, ranks // hosts_of)) if hosts_of else Group(0, ranks)
    )
    if said.get("backward_prefetch"):
        said["backward_prefetch"] = getattr(api.BackwardPrefetch, said["backward_prefetch"])
    offloads = said.pop("cpu_offload", False)
    if offloads:
        said["cpu_offload"] = api.CPUOffload(offload_params=True)
    mixed = {k: getattr(torch, said.pop(k)) for k in ("param_dtype", "reduce_dtype") if k in said}
    if "keep_low_precision_grads" in said:
        mixed["keep_low_precision_grads"] = said.pop("keep_low_precision_grads")
    if mixed:
        said["mixed_precision"] = api.MixedPrecision(**mixed)
    for i, block in enumerate(model.h if wrap != "none" else []):
        if wrap == "nested":
            block.fc, block.out = cls(block.fc, **said), cls(block.out, **said)
        model.h[i] = cls(block, **said)
    if wrap == "nested":
        model.head = cls(model.head, **said)
    model = cls(model, **said)
    units = []
    for path, module in model.named_modules():
        handle = handle_of(module) if isinstance(module, cls) else None
        if handle is None:
            continue
        inner = ("_fsdp_wrapped_module", "_fpw_module")
        name = ".".join(p for p in path.split(".") if p and p not in inner)
        own = [
            ".".join(p for p in n.split(".") if p not in inner) for n in names_of(handle.flat_param)
        ]
        tensors = [names.index(f"{name}.{n}" if name else n) for n in own]
        unit_of[handle] = (name or "(root)", tensors)
        units.append(
            {
                "unit": name or "(root)",
                "tensors": tensors,
                "unsharded_elements": handle.flat_param._unpadded_unsharded_size.numel(),
                "sharded_elements": handle.flat_param.numel(),
                **({} if handle.flat_param.requires_grad else {"requires_grad": False}),
            }
        )
    lazy_init(model)
    if offloads:
        offload([m for m in model.modules() if isinstance(m, cls)], unit_of)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.001)
    steps = []
    for number in range(4):
        phases = {"forward": [], "backward": [], "step": []}
        now["gradient"] = None
        optimizer.zero_grad(set_to_none=True)
        for j in range(micro):
            held = no_sync and j < micro - 1
            with model.no_sync() if held else contextlib.nullcontext():
                for phase in ("forward", "backward"):
                    into[0] = phases[phase]
                    if micro > 1:
                        log("m", "micro_batch", j)
                    if phase == "forward":
                        loss = model(torch.randn(3, 10)).float().sum()
                    else:
                        loss.backward()
        into[0] = phases["step"]
        if clip:
            model.clip_grad_norm_(1.0)
        into[0] = None
        optimizer.step()
        same = [s for s in steps if s.get("phases") == phases]
        steps.append(
            {"step": number, "same_as": same[0]["step"]}
            if same
            else {"step": number, "phases": phases}
        )
    told = {k: str(v) if isinstance(v, bool) else v for k, v in knobs.items()}
    told.update({"wrap": wrap, "sharding_strategy": strategy})
    told.update({"no_sync": "True"} if no_sync else {})
    told.update({"clip_grad_norm": "True"} if clip else {})
    told.update({"gpus_per_host": hosts_of} if hosts_of else {})
    name = f"fsdp1_{version.replace('.', '')}__blocks3__{config}__n{ranks}.json"
    text = json.dumps(
        {
            "system": "fsdp1",
            "of": version,
            "model": "blocks3",
            "memory": True,
            "config": config,
            "knobs": told,
            "world_size": ranks,
            "file": name,
            "parameters": parameters,
            "units_in_module_order": units,
            "steps": steps,
        },
        separators=(",", ":"),
    )
    (Path(out) / name).write_text(text.replace(',["', ',\n["') + "\n")


def check():
    """What the FSDP that is installed does today, against the oracle."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import recorded_orders

    with tempfile.TemporaryDirectory() as folder:
        sys.argv[1:] = [folder]
        main()
        return recorded_orders.compare(Path(folder), False)


def main():
    if not torch.__version__.startswith("1.13"):
        print(f"skipped: PyTorch {torch.__version__}, not 1.13")
        return 77
    if sys.argv[1:] == ["--check"]:
        return check()
    stand_in()
    new = sys.argv[2:3] == ["--package"]
    version = "2.7" if new else "1.13"
    fsdp = fsdp_27(sys.argv[3]) if new else fsdp_113()
    pre = {} if new else {"backward_prefetch": "BACKWARD_PRE"}
    post = {"backward_prefetch": "BACKWARD_POST"}
    bf16 = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
    ahead = {"forward_prefetch": True}

    def of(config, ranks=4, **more):
        record(fsdp, version, sys.argv[1], config, ranks, **more)

    for strategy, name in (("SHARD_GRAD_OP", "gradop"), ("NO_SHARD", "noshard")):
        of(name, sharding_strategy=strategy, **pre)
    of("default")
    of("n16", 16, **pre)
    of("fwdpf", **ahead, **pre)
    of("fwdpf_post_gradop", 2, sharding_strategy="SHARD_GRAD_OP", **ahead, **post)
    of("bf16", limit_all_gathers=True, **bf16, **pre)
    of("bf16_reduce", 3, param_dtype="bfloat16", **pre)
    of("noshard_bf16", sharding_strategy="NO_SHARD", param_dtype="bfloat16", **pre)
    of("reduce_bf16_gradop", reduce_dtype="bfloat16", sharding_strategy="SHARD_GRAD_OP", **pre)
    of("keep_low", param_dtype="bfloat16", keep_low_precision_grads=True, **pre)
    of("nested", wrap="nested", limit_all_gathers=True, **pre)
    of("nested_fwdpf_post", wrap="nested", **ahead, **post)
    of("root_only", wrap="none", **pre)
    of("acc3", micro=3, **pre)
    of("frozen_unit", frozen=["h.1."], **pre)
    of("frozen_units", frozen=["h.1.", "h.2."], limit_all_gathers=True, **bf16, **pre)
    of("frozen_unit_fwdpf_post", frozen=["h.2."], **ahead, **post)
    of("frozen_unit_acc3_nosync", frozen=["h.1."], micro=3, no_sync=True, **pre)
    of("frozen_gradop", frozen=["h.0.", "h.2."], sharding_strategy="SHARD_GRAD_OP", **pre)
    of("frozen_noshard", frozen=["h.1."], sharding_strategy="NO_SHARD", **pre)
    of("frozen_inside", wrap="nested", frozen=["h.1.fc", "h.2.out", "head"], **pre)
    of("frozen_root", frozen=["inp", "ln_f", "head"], **pre)
    of("frozen_front", frozen=["inp", "h.0.", "ln_f", "head"], **pre)
    of(
        "frozen_front_gradop",
        frozen=["inp", "h.0.", "ln_f", "head"],
        sharding_strategy="SHARD_GRAD_OP",
        **ahead,
        **post,
    )
    of("acc3_nosync", micro=3, no_sync=True, limit_all_gathers=True, **pre)
    of(
        "acc3_nosync_gradop_fwdpf",
        micro=3,
        no_sync=True,
        sharding_strategy="SHARD_GRAD_OP",
        **ahead,
        **pre,
    )
    away = {"cpu_offload": True}
    of("offload", **away, **pre)
    of("offload_gradop", 3, sharding_strategy="SHARD_GRAD_OP", **away, **post)
    of("offload_bf16", limit_all_gathers=True, **away, **bf16, **pre)
    of(
        "offload_bf16_gradop_fwdpf",
        sharding_strategy="SHARD_GRAD_OP",
        **away,
        **bf16,
        **ahead,
        **pre,
    )
    of("offload_fwdpf", limit_all_gathers=True, **away, **ahead, **pre)
    of("offload_nested_post", wrap="nested", **away, **post)
    of("offload_acc3_nosync", micro=3, no_sync=True, **away, **pre)
    of("clip", clip=True, **pre)
    of("clip_noshard", clip=True, sharding_strategy="NO_SHARD", **pre)
    if new:
        of("post", **post)
        of("none", backward_prefetch=None)
        of("nolimit", limit_all_gathers=False)
        of("detail", debug_detail=True)
        of("orig", use_orig_params=True)
        of("orig_bf16", use_orig_params=True, **bf16)
        of("orig_fwdpf", use_orig_params=True, **ahead)
        of("hybrid", 8, sharding_strategy="HYBRID_SHARD", hosts_of=4)
        of("hybrid2_bf16", 8, sharding_strategy="_HYBRID_SHARD_ZERO2", hosts_of=2, **bf16)
        of("offload_hybrid", 8, sharding_strategy="HYBRID_SHARD", hosts_of=4, **away, **bf16)
        of(
            "hybrid_acc2_nosync_clip",
            8,
            sharding_strategy="HYBRID_SHARD",
            hosts_of=4,
            micro=2,
            no_sync=True,
            clip=True,
            **post,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
