"""Records `fully_shard` for tests/data/recorded_orders: of 2.7's Python in a folder, or of that
with functions of a later version in place of its own. A folder has of 2.7's sources
torch/distributed/{fsdp/_fully_shard,_composable/contract.py,_composable_state.py,utils.py}."""
import gc

import torch
from torch import nn

import recordings

from . import fsdp2_hooks as hooks
from .blocks import Model, WithEmbedding, sharded
from .events import Group, add_step, begin, freeze, into, issued, log, mark_modules

READER = "recorded_orders.py"
OF_EACH_MICRO_STEP = ("set_requires_gradient_sync", "set_requires_all_reduce",
                      "set_is_last_backward", "set_reshard_after_backward")


def prepare(package, version):
    real = hooks.fsdp2(package)
    real.version = version
    return real


def settings(api, mesh, policy, knobs):
    """`fully_shard` gets these for the knobs of a recording."""
    names, shape = ("replicate", "shard")[-len(mesh) :], torch.zeros(*mesh, dtype=torch.int64)
    said = {"mesh": hooks.Mesh("cpu", shape, names)}
    if "reshard_after_forward" in knobs:
        said["reshard_after_forward"] = knobs["reshard_after_forward"]
    if policy:
        dtypes = {k: getattr(torch, v) for k, v in policy.items()}
        said["mp_policy"] = api.MixedPrecisionPolicy(**dtypes)
    return said


def units_of(fully_shard, model):
    """{name: its module}, and what a recording says of each."""
    units, modules = [], {}
    path_of = {id(m): path for path, m in model.named_modules()}
    for path, module in model.named_modules():
        state = fully_shard.state(module) if hasattr(module, "unshard") else None
        if not state or not state._fsdp_param_group:
            continue
        group, name = state._fsdp_param_group, path or "(root)"
        modules[name], group.unit_name = module, name
        infos = [p._module_info for p in group.fsdp_params]
        own = [f"{path_of[id(i.module)]}.{i.param_name}".lstrip(".") for i in infos]
        units.append({"unit": name, "tensors": [hooks.indices[n] for n in own]})
    return modules, units


def turn(model, modules, groups, ranks, knobs):
    """The knobs that are turned after `fully_shard`."""
    for knob, module_lists in knobs.items():
        if knob.startswith("set_modules_to"):
            for unit, targets in module_lists.items():
                getattr(modules[unit], knob)([modules[t] for t in targets])
    for unit, value in knobs.get("set_unshard_in_backward", {}).items():
        modules[unit].set_unshard_in_backward(value)
    if knobs.get("unshard_async_op"):
        model._set_unshard_async_op(True)
    for group in groups:  # what the functions of these names set
        if "set_reduce_scatter_max_input_buffers" in knobs:
            group.reduce_scatter_max_input_buffers = knobs["set_reduce_scatter_max_input_buffers"]
        if knobs.get("set_force_sum_reduction_for_comms"):
            group.force_sum_reduction_for_comms = True
        if knobs.get("set_separate_reduce_scatter_group"):
            group.mesh_info.reduce_scatter_process_group = Group(0, ranks, "shard_reduce")


def train(model, groups, micro, knobs):
    """Four steps, as events."""
    steps = []
    for _ in range(4):
        gc.collect()
        gc.disable()
        events = into[0] = []
        issued.clear()
        for group in groups:
            for p in group.fsdp_params:
                p.sharded_param.grad = None
        for j in range(micro):
            for knob in OF_EACH_MICRO_STEP:
                if knob in knobs:
                    getattr(model, knob)(knobs[knob][j])
            log("m", "micro_batch", j)
            log("m", "forward")
            loss = model(model.batch()).float().sum()
            log("m", "backward")
            loss.backward()
            del loss
        into[0] = None
        gc.enable()
        for p in model.parameters():
            assert (p.grad is not None) == p.requires_grad, "a gradient is missing"
        add_step(steps, {"events": events})
    return steps


def record(real, out, config, mesh=(4,), wrap="layer", micro=1, policy=None, embedding=False,
           frozen=(), odd=False, **knobs):
    begin(unit=None, quiet=False)
    model = WithEmbedding() if embedding else Model()
    if odd:  # nobody uses it
        model.h[1].odd = nn.Parameter(torch.zeros(9, 4, dtype=torch.bfloat16), requires_grad=False)
        frozen = ["h.1.odd"]
    freeze(model, frozen)
    parameters = [
        [n, list(p.shape), str(p.dtype)[6:], p.requires_grad] for n, p in model.named_parameters()
    ]
    hooks.indices.clear()
    hooks.indices.update({p[0]: i for i, p in enumerate(parameters)})
    mark_modules(model)
    said = settings(real.api, mesh, policy, knobs)
    sharded(model, wrap, lambda module: real.fully_shard(module, **said))
    modules, units = units_of(real.fully_shard, model)
    groups = [real.fully_shard.state(m)._fsdp_param_group for m in modules.values()]
    turn(model, modules, groups, mesh[-1], knobs)
    steps = train(model, groups, micro, knobs)
    told = {**knobs, "wrap": wrap, "accumulation_steps": micro}
    if policy:
        told["mp_policy"] = policy
    ranks = "x".join(str(n) for n in mesh)
    name = f"fsdp2_{real.version.replace('.', '')}__blocks3__{config}__n{ranks}.json.gz"
    recordings.write(out / name, {
        "system": "fsdp2", "of": real.version, "model": "blocks3", "config": config,
        "knobs": told, "mesh": list(mesh), "file": name, "parameters": parameters,
        "units_in_module_order": units, "steps": steps,
    })


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


def questions(of, version):
    bf16 = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
    only_bf16, fp16 = {"param_dtype": "bfloat16"}, {"reduce_dtype": "float16"}
    last = [False, False, True]
    is_last, synced = ({k: last} for k in ("set_is_last_backward", "set_requires_gradient_sync"))
    partial = {"set_requires_all_reduce": last}
    of("default")
    of("embedding", embedding=True)
    of("bf16", policy=bf16)
    of("hsdp", (2, 4))
    of("hsdp_bf16_reduce", (2, 2), policy=only_bf16)
    of("hsdp_acc3_last", (2, 2), micro=3, **is_last)
    of("acc3_last", micro=3, **is_last)
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
        two, three = ({"set_reduce_scatter_max_input_buffers": n} for n in (2, 3))
        of("buffers2", **two)
        of("buffers3_acc3_last", micro=3, **is_last, **three)
        of("buffers2_embedding", embedding=True, **two)
        of("separate", set_separate_reduce_scatter_group=True)
        of("separate_hsdp", (2, 2), set_separate_reduce_scatter_group=True)
        of("hsdp_acc3_partial", (2, 2), micro=3, **partial)
        of("hsdp_fp16", (2, 4), policy=fp16)
    if version != "2.7":
        return
    of("n16", (16,))
    of("n3", (3,))
    of("keep", reshard_after_forward=False)
    of("part2", reshard_after_forward=2)
    of("part2_bf16", reshard_after_forward=2, policy=bf16)
    of("root_only", wrap="none")
    of("nested", wrap="nested")
    of("bf16_reduce", (3,), policy=only_bf16)
    of("reduce_bf16", policy={"reduce_dtype": "bfloat16"})
    of("reduce_fp16", (8,), policy=fp16)
    of("hsdp_fp16", (2, 4), policy=fp16)
    chain = ["h.0", "h.1", "h.2"]
    ahead = {chain[i]: chain[i + 1 : i + 3] for i in range(2)}
    back = {"(root)": ["h.2", "h.1"], "h.2": ["h.1", "h.0"], "h.1": ["h.0"]}
    of("fwdpf2", set_modules_to_forward_prefetch={"(root)": chain[:2], **ahead})
    of("bwdpf2", set_modules_to_backward_prefetch=back)
    of("async", unshard_async_op=True)
    of("async_fwdpf", unshard_async_op=True, set_modules_to_forward_prefetch=ahead)
    of("no_unshard_in_backward", embedding=True, set_unshard_in_backward={"inp": False})
    of("acc3", micro=3)
    of("acc3_nosync", micro=3, **synced)
    of("acc3_nosync_keep", micro=3, **synced, set_reshard_after_backward=last)
    of("acc3_nosync_bf16", micro=3, **synced, policy=bf16)
    of("acc3_nosync_last", micro=3, **synced, **is_last)
    of("hsdp_acc3_partial", (2, 2), micro=3, **partial)
    of("hsdp_part2", (2, 4), reshard_after_forward=2, policy=bf16)
    of("nested_acc2_nosync_keep_bf16", micro=2, wrap="nested", policy=only_bf16,
       set_requires_gradient_sync=last[1:], set_reshard_after_backward=last[1:])
    of("keep_acc2_last", micro=2, reshard_after_forward=False, set_is_last_backward=last[1:])
    of("part2_bwdpf2_acc2", (8,), micro=2, reshard_after_forward=2,
       set_modules_to_backward_prefetch=back)
    of("embedding_async_fwdpf_keep", embedding=True, unshard_async_op=True,
       reshard_after_forward=False,
       set_modules_to_forward_prefetch={"(root)": ["inp", "h.0"], **ahead})
    of("hsdp_acc2_bf16", (2, 2), micro=2, policy=only_bf16)
