"""What a script that shards its model finds while it is described: stand-ins for FSDP
(``torch.distributed.fsdp``), FSDP2 (``fully_shard``) and meshes of ranks, for PyTorch 1.13 as for
2.x. The model keeps its parameters and its names; arguments become knobs of plan fsdp or fsdp2.
"""
from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from ddpsim_wrapped import Asked, Stopped, module_of
from torch import nn

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
FSDP1_POSITIONS = (
    "process_group sharding_strategy cpu_offload auto_wrap_policy backward_prefetch"
    " mixed_precision ignored_modules param_init_fn device_id sync_module_states"
    " forward_prefetch limit_all_gathers use_orig_params ignored_states device_mesh"
).split()
FSDP1 = (
    "torch.distributed.fsdp",
    "torch.distributed.fsdp.api",
    "torch.distributed.fsdp.fully_sharded_data_parallel",
    "torch.distributed.fsdp.sharded_grad_scaler",
    "torch.distributed.fsdp.wrap",
)
FSDP2 = (
    "torch.distributed._composable",
    "torch.distributed._composable.fsdp",
    "torch.distributed._composable.fsdp.fully_shard",
    "torch.distributed.fsdp._fully_shard",
)
MESHES = ("torch.distributed.device_mesh", "torch.distributed._tensor.device_mesh")


class Named(type):
    """Of an enumeration: a member is its name."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name

    def __getitem__(cls, name: str) -> str:
        return name


class Given:
    """Of a record of options: what it was made with."""

    positions: Tuple[str, ...] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        self.options = {**dict(zip(self.positions, args)), **options}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "options":
            raise AttributeError(name)
        return self.options.get(name)


def record_of(name: str, *positions: str) -> type:
    return type(name, (Given,), {"positions": positions})


def enumeration(name: str) -> type:
    return Named(name, (), {})


# ---- meshes


class Mesh:
    """Of all ranks, as this script shapes it; this is its first."""

    def __init__(self, device: Any, mesh: Any, *args: Any, **named: Any) -> None:
        self.shape: Tuple[int, ...] = tuple(mesh) if isinstance(mesh, (tuple, list)) else ()
        if isinstance(mesh, torch.Tensor):
            self.shape = tuple(mesh.shape)
        names = named.get("mesh_dim_names") or (args[0] if args else None)
        self.mesh_dim_names = tuple(names or range(len(self.shape)))
        self.device_type = str(device)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, dim: Optional[int] = None) -> int:
        return torch.Size(self.shape).numel() if dim is None else self.shape[dim]

    def __getitem__(self, names: Any) -> "Mesh":
        wanted = (names,) if isinstance(names, (str, int)) else tuple(names)
        at = [self.mesh_dim_names.index(n) for n in wanted]
        return Mesh(self.device_type, [self.shape[i] for i in at], mesh_dim_names=wanted)

    def get_group(self, *args: Any) -> Any:
        return torch.distributed.new_group()

    def get_rank(self) -> int:
        return 0

    def get_local_rank(self, *args: Any) -> int:
        return 0

    def get_coordinate(self) -> List[int]:
        return [0] * self.ndim


def shard_degree(mesh: Any) -> Optional[int]:
    """Of a mesh of copies by shards; none: all ranks shard."""
    return int(mesh.shape[-1]) if getattr(mesh, "ndim", 1) == 2 else None


# ---- units


def is_block(model: nn.Module, module: nn.Module) -> bool:
    """Whether it is one of a list, as ddpsim's repeated blocks are."""
    name = next((n for n, m in model.named_modules() if m is module), "")
    own = [part for part in name.split(".") if part != "_checkpoint_wrapped_module"]
    return own[-1:] != [] and own[-1].isdigit()


class Units:
    """What one script gave to FSDP, root and parts."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.groups: List[List[nn.Module]] = []  # of each call, in order
        self.reshards: List[Any] = []  # reshard_after_forward of each

    def add(self, modules: List[nn.Module], reshard: Any = None) -> None:
        """One call. The last call around all others has the model."""
        self.groups.append(modules)
        self.reshards.append(reshard)
        inside = {id(m) for each in modules for m in each.modules()}
        self.asked.wrapped[:] = [w for w in self.asked.wrapped if id(w) not in inside]
        self.asked.wrapped.extend(modules)

    def root(self) -> Optional[nn.Module]:
        return self.asked.wrapped[0] if len(self.asked.wrapped) == 1 else None

    def parts(self) -> List[List[nn.Module]]:
        return [g for g in self.groups if not any(m is self.root() for m in g)]

    def knobs(self) -> Dict[str, Any]:
        """auto_wrap_policy and what goes with it, of modules that were wrapped one by one."""
        root = self.root()
        if root is None:
            return {}
        blocks = [g for g in self.parts() if all(is_block(root, m) for m in g)]
        others = [g for g in self.parts() if not all(is_block(root, m) for m in g)]
        if not self.parts():
            return {"auto_wrap_policy": "none"}
        if not blocks:
            self.asked.note(
                "units that are no blocks of a list are predicted as a unit for each block that"
                " repeats: --set auto_wrap_policy=none: all in one"
            )
            return {}
        out: Dict[str, Any] = {"auto_wrap_policy": "block"}
        sizes = [len(g) for g in blocks]
        if max(sizes) > 1:
            out["blocks_per_unit"] = sizes
        if others and self.asked.knobs.get("system") == "fsdp2":
            out["ends_apart"] = True
        elif others:
            kinds = sorted({type(m).__name__ for g in others for m in g})
            self.asked.note(f"units of {', '.join(kinds)} are predicted as the root's")
        return out

    def reshard(self) -> Any:
        """reshard_after_forward of the blocks, else of the model."""
        root = self.root()
        found = [r for g, r in zip(self.groups, self.reshards) if not any(m is root for m in g)]
        of_model = self.reshards[-1] if self.reshards else None
        return next((r for r in found if r is not None), of_model)


def with_methods(module: nn.Module, methods: type) -> None:
    """The same module, with an FSDP module's methods: names and parameters stay."""
    if not isinstance(module, methods):
        own = type(module)
        module.__class__ = type(own.__name__, (methods, own), {"__module__": own.__module__})


def precision_knobs(policy: Any) -> Dict[str, Any]:
    out = {}
    for name in ("param_dtype", "reduce_dtype"):
        dtype = getattr(policy, name, None)
        if dtype is not None:
            if dtype not in DTYPES:
                raise Stopped(f"{name} {dtype} is none of {', '.join(DTYPES.values())}")
            out[name] = DTYPES[dtype]
    return out


# ---- FSDP


def policy_knobs(policy: Any, model: nn.Module, asked: Asked) -> Dict[str, Any]:
    """Of an auto_wrap_policy: what makes a unit."""
    function, options = policy, {}
    if isinstance(policy, functools.partial):
        function, options = policy.func, policy.keywords
    name = getattr(function, "__name__", type(function).__name__)
    if name == "size_based_auto_wrap_policy":
        least = options.get("min_num_params", 100_000_000)
        return {"auto_wrap_policy": "size_based", "min_num_params": int(least)}
    classes = options.get("transformer_layer_cls") or getattr(policy, "classes", None)
    if classes:
        found = [m for m in model.modules() if isinstance(m, tuple(classes))]
        told = ", ".join(sorted(c.__name__ for c in classes))
        if not found:
            raise Stopped(f"auto_wrap_policy names {told}, and the model has none of them")
        if not any(is_block(model, m) for m in found):
            asked.note(f"units of {told} are predicted as a unit for each block that repeats")
        return {"auto_wrap_policy": "block"}
    raise Stopped(
        f"auto_wrap_policy is {name}, and ddpsim knows transformer_auto_wrap_policy,"
        " ModuleWrapPolicy and size_based_auto_wrap_policy: describe the model (--factory), and"
        " predict with --plan fsdp --set auto_wrap_policy=block, none or size_based"
    )


def fsdp1_knobs(given: Dict[str, Any]) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    if given.get("sharding_strategy") is not None:
        out["sharding_strategy"] = str(given["sharding_strategy"]).lower()
    if "backward_prefetch" in given:
        out["backward_prefetch"] = str(given["backward_prefetch"]).lower()  # None: none
    for name in ("forward_prefetch", "limit_all_gathers", "use_orig_params"):
        if given.get(name) is not None:
            out[name] = bool(given[name])
    if getattr(given.get("cpu_offload"), "offload_params", False):
        out["cpu_offload"] = True
    degree = shard_degree(given.get("device_mesh"))
    if degree and "hybrid" in out.get("sharding_strategy", ""):
        out["shard_degree"] = degree
    out.update(precision_knobs(given.get("mixed_precision")))
    return out


def fsdp1_class(asked: Asked) -> type:
    units = Units(asked)

    class Methods:
        """Of a wrapped module."""

        @property
        def module(self) -> Any:
            return self

        @contextlib.contextmanager
        def no_sync(self) -> Iterator[None]:
            before, asked.held = asked.held, True
            try:
                yield
            finally:
                asked.held = before

        def clip_grad_norm_(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            asked.loop["clip_grad_norm"] = True
            return torch.tensor(1.0)

    class Class(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, Methods)

        def __call__(cls, module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
            given = {**dict(zip(FSDP1_POSITIONS, args)), **kwargs}
            asked.ddp = True
            asked.syncs = lambda: not asked.held  # FSDP reads it in backward
            asked.knobs["system"] = "fsdp"
            units.add([module])
            policy = given.get("auto_wrap_policy")
            if policy is not None:
                asked.knobs.update(policy_knobs(policy, module, asked))
            asked.at_end = units.knobs if policy is None else dict
            asked.knobs.update(fsdp1_knobs(given))
            with_methods(module, Methods)
            return module

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return {
                "state_dict_type": lambda *a, **k: contextlib.nullcontext(),
                "summon_full_params": lambda *a, **k: contextlib.nullcontext(),
                "fsdp_modules": lambda m, **k: [x for x in m.modules() if isinstance(x, Methods)],
            }.get(name, lambda *args, **kwargs: {})

    return Class("FullyShardedDataParallel", (), {})


# ---- FSDP2


def fsdp2_functions(asked: Asked) -> Dict[str, Any]:
    units = Units(asked)

    class FSDPModule:
        """Of a sharded module."""

        def set_requires_gradient_sync(self, wanted: bool, *args: Any, **kwargs: Any) -> None:
            asked.held = not wanted

        def set_modules_to_forward_prefetch(self, modules: Any) -> None:
            ahead("forward_prefetch_units", len(list(modules)))

        def set_modules_to_backward_prefetch(self, modules: Any) -> None:
            ahead("backward_prefetch_units", len(list(modules)))

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)  # type: ignore[misc]
            except AttributeError:
                if not name.startswith(("set_", "unshard", "reshard")):
                    raise
                return lambda *args, **kwargs: None

    def ahead(knob: str, count: int) -> None:
        asked.knobs[knob] = max(count, asked.knobs.get(knob, 0))

    def at_end() -> Dict[str, Any]:
        reshard = units.reshard()
        return {**units.knobs(), **({} if reshard is None else {"reshard_after_forward": reshard})}

    def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
        modules = list(module) if isinstance(module, (list, tuple)) else [module]
        given = {**dict(zip(("mesh",), args)), **kwargs}
        asked.ddp = True
        asked.syncs = lambda: not asked.held
        asked.knobs["system"] = "fsdp2"
        units.add(modules, given.get("reshard_after_forward"))
        asked.knobs.update(precision_knobs(given.get("mp_policy")))
        degree = shard_degree(given.get("mesh"))
        if degree:
            asked.knobs["shard_degree"] = degree
        if type(given.get("offload_policy")).__name__ == "CPUOffloadPolicy":
            asked.knobs["cpu_offload"] = True
        asked.at_end = at_end
        for each in modules:
            with_methods(each, FSDPModule)
        return module

    return {"fully_shard": fully_shard, "FSDPModule": FSDPModule}


# ---- checkpointing


def stand_in_for_checkpointing() -> None:
    """apply_activation_checkpointing wraps with FSDP's own functions, which are not there."""
    try:
        from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as own
    except ImportError:
        return

    def apply(model: nn.Module, checkpoint_wrapper_fn: Any = own.checkpoint_wrapper,
              check_fn: Any = lambda _: True, **policy: Any) -> None:  # fmt: skip
        if policy.get("auto_wrap_policy") is not None:
            raise Stopped(
                "apply_activation_checkpointing with auto_wrap_policy is not taken from a script:"
                " give it check_fn"
            )
        chosen = [(n, m) for n, m in model.named_modules() if n and check_fn(m)]
        for name, module in reversed(chosen):  # what is inside first: names stay until then
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, checkpoint_wrapper_fn(module))

    own.apply_activation_checkpointing = apply  # type: ignore[assignment]


# ---- what may be imported


def sharding_modules(asked: Asked) -> Dict[str, Any]:
    """By name, with what a script imports of them."""

    def policy(name: str) -> Callable[..., bool]:
        def decides(*args: Any, **kwargs: Any) -> bool:
            return False

        decides.__name__ = name
        return decides

    def module_wrap_policy(classes: Any) -> Any:
        return Given(classes=set(classes))

    @contextlib.contextmanager
    def enable_wrap(**kwargs: Any) -> Iterator[None]:
        defaults.append(kwargs)
        yield
        defaults.pop()

    defaults: List[Dict[str, Any]] = []
    fsdp = fsdp1_class(asked)

    def wrap(module: nn.Module, **more: Any) -> nn.Module:
        """Within enable_wrap() its wrapper; elsewhere nothing."""
        given = {**defaults[-1], **more} if defaults else {}
        wrapper = given.pop("wrapper_cls", None)
        return module if wrapper is None else wrapper(module, **given)

    def scaler(*args: Any, **kwargs: Any) -> Any:
        return torch.cuda.amp.GradScaler(enabled=kwargs.get("enabled", True))

    dtypes = ("param_dtype", "reduce_dtype", "buffer_dtype")
    known: Dict[str, Any] = {
        "FullyShardedDataParallel": fsdp,
        "MixedPrecision": record_of("MixedPrecision", *dtypes),
        "MixedPrecisionPolicy": record_of("MixedPrecisionPolicy", *dtypes[:2]),
        "CPUOffload": record_of("CPUOffload", "offload_params"),
        "CPUOffloadPolicy": record_of("CPUOffloadPolicy", "pin_memory"),
        "OffloadPolicy": record_of("OffloadPolicy"),
        "ShardingStrategy": enumeration("ShardingStrategy"),
        "BackwardPrefetch": enumeration("BackwardPrefetch"),
        "StateDictType": enumeration("StateDictType"),
        "ShardedGradScaler": scaler,
        "ModuleWrapPolicy": module_wrap_policy,
        "enable_wrap": enable_wrap,
        "wrap": wrap,
        **{
            name: record_of(name)
            for name in "FullStateDictConfig ShardedStateDictConfig LocalStateDictConfig"
            " FullOptimStateDictConfig ShardedOptimStateDictConfig StateDictConfig".split()
        },
        **{
            name: policy(name)
            for name in "transformer_auto_wrap_policy size_based_auto_wrap_policy"
            " always_wrap_policy lambda_auto_wrap_policy _or_policy".split()
        },
        **fsdp2_functions(asked),
    }
    meshes = {
        "DeviceMesh": Mesh,
        "init_device_mesh": lambda device, shape, **named: Mesh(device, shape, **named),
    }
    out = {name: module_of(name, known, "FSDP") for name in FSDP1}
    out.update({name: module_of(name, known, "FSDP2") for name in FSDP2})
    out.update({name: module_of(name, meshes, "a mesh of ranks") for name in MESHES})
    return out
