"""Records FullyShardedDataParallel for tests/data/recorded_orders: of the PyTorch that is
installed, or the Python of 2.7 in a folder: torch/distributed/{fsdp,utils.py,_composable_state.py,
algorithms/_comm_hooks}."""
import contextlib

import torch
import torch.distributed as dist

import recordings

from . import fsdp1_hooks as hooks
from .blocks import Model, sharded
from .events import Group, add_step, begin, freeze, into, log, mark_modules, now

READER = "recorded_orders.py"


def prepare(package, version):
    hooks.stand_in()
    real = hooks.fsdp_27(package) if package else hooks.fsdp_113()
    real.version = "2.7" if package else "1.13"
    return real


def settings(api, ranks, hosts_of, said):
    """FSDP gets these for the knobs of a recording."""
    detail = said.pop("debug_detail", False)
    dist.get_debug_level = lambda: dist.DebugLevel.DETAIL if detail else dist.DebugLevel.OFF
    said["sharding_strategy"] = getattr(api.ShardingStrategy, said["sharding_strategy"])
    said["process_group"] = (
        (Group(0, hosts_of), Group(0, ranks // hosts_of)) if hosts_of else Group(0, ranks)
    )
    if said.get("backward_prefetch"):
        said["backward_prefetch"] = getattr(api.BackwardPrefetch, said["backward_prefetch"])
    if said.pop("cpu_offload", False):
        said["cpu_offload"] = api.CPUOffload(offload_params=True)
    mixed = {k: getattr(torch, said.pop(k)) for k in ("param_dtype", "reduce_dtype") if k in said}
    if "keep_low_precision_grads" in said:
        mixed["keep_low_precision_grads"] = said.pop("keep_low_precision_grads")
    if mixed:
        said["mixed_precision"] = api.MixedPrecision(**mixed)
    return said


def plain(path):
    """The name of a module or parameter, without FSDP's own modules."""
    return ".".join(p for p in path.split(".") if p not in ("_fsdp_wrapped_module", "_fpw_module"))


def units_of(real, model, names):
    units = []
    for path, module in model.named_modules():
        handle = real.handle_of(module) if isinstance(module, real.cls) else None
        if handle is None:
            continue
        flat, name = handle.flat_param, plain(path)
        own = [f"{name}.{plain(n)}".lstrip(".") for n in real.names_of(flat)]
        unit = {"unit": name or "(root)", "tensors": [names.index(n) for n in own]}
        hooks.unit_of[handle] = (unit["unit"], unit["tensors"])
        unit["unsharded_elements"] = flat._unpadded_unsharded_size.numel()
        unit["sharded_elements"] = flat.numel()
        units.append(unit | ({} if flat.requires_grad else {"requires_grad": False}))
    return units


def train(model, micro, no_sync, clip):
    """Four steps, as events."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.001)
    steps = []
    for _ in range(4):
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
                        loss = model(model.batch()).float().sum()
                    else:
                        loss.backward()
        into[0] = phases["step"]
        if clip:
            model.clip_grad_norm_(1.0)
        into[0] = None
        optimizer.step()
        add_step(steps, {"phases": phases})
    return steps


def record(real, out, config, ranks=4, wrap="layer", micro=1, no_sync=False, clip=False,
           hosts_of=None, frozen=(), **knobs):
    begin(unit=None, prefetch=False)
    hooks.unit_of.clear()
    model = Model()
    freeze(model, frozen)
    parameters = [[name, p.numel(), "float32"] for name, p in model.named_parameters()]
    mark_modules(model)
    strategy = knobs.get("sharding_strategy", "FULL_SHARD")
    said = settings(real.api, ranks, hosts_of, {**knobs, "sharding_strategy": strategy})
    model = sharded(model, wrap, lambda module: real.cls(module, **said))
    units = units_of(real, model, [p[0] for p in parameters])
    real.lazy_init(model)
    if "cpu_offload" in knobs:
        hooks.offload([m for m in model.modules() if isinstance(m, real.cls)], hooks.unit_of)
    steps = train(model, micro, no_sync, clip)
    told = {k: str(v) if isinstance(v, bool) else v for k, v in knobs.items()}
    told.update({"wrap": wrap, "sharding_strategy": strategy})
    told.update({"no_sync": "True"} if no_sync else {})
    told.update({"clip_grad_norm": "True"} if clip else {})
    told.update({"gpus_per_host": hosts_of} if hosts_of else {})
    name = f"fsdp1_{real.version.replace('.', '')}__blocks3__{config}__n{ranks}.json"
    recordings.write(out / name, {
        "system": "fsdp1", "of": real.version, "model": "blocks3", "memory": True,
        "config": config, "knobs": told, "world_size": ranks, "file": name,
        "parameters": parameters, "units_in_module_order": units, "steps": steps,
    })


def questions(of, version):
    new = version == "2.7"
    pre = {} if new else {"backward_prefetch": "BACKWARD_PRE"}
    post = {"backward_prefetch": "BACKWARD_POST"}
    bf16 = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
    ahead, limited = {"forward_prefetch": True}, {"limit_all_gathers": True}
    gradop, noshard = ({"sharding_strategy": s} for s in ("SHARD_GRAD_OP", "NO_SHARD"))
    nosync = {"micro": 3, "no_sync": True}
    of("gradop", **gradop, **pre)
    of("noshard", **noshard, **pre)
    of("default")
    of("n16", 16, **pre)
    of("fwdpf", **ahead, **pre)
    of("fwdpf_post_gradop", 2, **gradop, **ahead, **post)
    of("bf16", **limited, **bf16, **pre)
    of("bf16_reduce", 3, param_dtype="bfloat16", **pre)
    of("noshard_bf16", **noshard, param_dtype="bfloat16", **pre)
    of("reduce_bf16_gradop", reduce_dtype="bfloat16", **gradop, **pre)
    of("keep_low", param_dtype="bfloat16", keep_low_precision_grads=True, **pre)
    of("nested", wrap="nested", **limited, **pre)
    of("nested_fwdpf_post", wrap="nested", **ahead, **post)
    of("root_only", wrap="none", **pre)
    of("acc3", micro=3, **pre)
    of("frozen_unit", frozen=["h.1."], **pre)
    of("frozen_units", frozen=["h.1.", "h.2."], **limited, **bf16, **pre)
    of("frozen_unit_fwdpf_post", frozen=["h.2."], **ahead, **post)
    of("frozen_unit_acc3_nosync", frozen=["h.1."], **nosync, **pre)
    of("frozen_gradop", frozen=["h.0.", "h.2."], **gradop, **pre)
    of("frozen_noshard", frozen=["h.1."], **noshard, **pre)
    of("frozen_inside", wrap="nested", frozen=["h.1.fc", "h.2.out", "head"], **pre)
    of("frozen_root", frozen=["inp", "ln_f", "head"], **pre)
    front = ["inp", "h.0.", "ln_f", "head"]
    of("frozen_front", frozen=front, **pre)
    of("frozen_front_gradop", frozen=front, **gradop, **ahead, **post)
    of("acc3_nosync", **nosync, **limited, **pre)
    of("acc3_nosync_gradop_fwdpf", **nosync, **gradop, **ahead, **pre)
    away = {"cpu_offload": True}
    of("offload", **away, **pre)
    of("offload_gradop", 3, **gradop, **away, **post)
    of("offload_bf16", **limited, **away, **bf16, **pre)
    of("offload_bf16_gradop_fwdpf", **gradop, **away, **bf16, **ahead, **pre)
    of("offload_fwdpf", **limited, **away, **ahead, **pre)
    of("offload_nested_post", wrap="nested", **away, **post)
    of("offload_acc3_nosync", **nosync, **away, **pre)
    of("clip", clip=True, **pre)
    of("clip_noshard", clip=True, **noshard, **pre)
    if not new:
        return
    hybrid = {"sharding_strategy": "HYBRID_SHARD", "hosts_of": 4}
    of("post", **post)
    of("none", backward_prefetch=None)
    of("nolimit", limit_all_gathers=False)
    of("detail", debug_detail=True)
    of("orig", use_orig_params=True)
    of("orig_bf16", use_orig_params=True, **bf16)
    of("orig_fwdpf", use_orig_params=True, **ahead)
    of("hybrid", 8, **hybrid)
    of("hybrid2_bf16", 8, sharding_strategy="_HYBRID_SHARD_ZERO2", hosts_of=2, **bf16)
    of("offload_hybrid", 8, **hybrid, **away, **bf16)
    of("hybrid_acc2_nosync_clip", 8, **hybrid, micro=2, no_sync=True, clip=True, **post)
