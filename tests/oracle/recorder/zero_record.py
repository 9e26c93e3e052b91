"""Records DeepSpeed's ZeRO for tests/data/recorded_orders: the engine and the optimizers of
0.14.5's Python. `package` is FOLDER:FOLDER...: the first has deepspeed, the others pydantic 1.10,
cpuinfo, tqdm."""
import importlib

import torch

import recordings

from . import zero_hooks as hooks
from .events import add_step, begin, into, log, mark_gradient, mark_modules, now
from .zero_models import MODELS, Raw
from .zero_questions import LONG, drawn, questions

__all__ = ["READER", "drawn", "prepare", "questions", "record"]
READER = "recorded_zero.py"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
OF_THE_ENGINE = ("gradient_clipping", "prescale_gradients", "gradient_predivide_factor",
                 "communication_data_type")


def prepare(package, version):
    real = hooks.deepspeed(package)
    real.version = "0.14.5"
    return real


def arrival_of(model, dtype):
    """The order in which gradients arrive where no DeepSpeed is."""
    order = []
    for i, p in enumerate(model.parameters()):
        p.register_hook(lambda _, i=i: order.append(i))
    model(model.batch(dtype)).backward()
    return order


def engine_of(deepspeed, model, dtype, ranks, micro, knobs, said):
    """DeepSpeed's engine, and what it did to become one."""
    world = importlib.import_module("deepspeed.utils.groups")
    setattr(world, "_WORLD_GROUP", None)
    setattr(world, "_ALL_TO_ALL_GROUP", {})
    configuration = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": micro,
        "train_batch_size": 2 * micro * ranks,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": knobs,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
        **said,
    }
    if dtype != "fp32":
        configuration[dtype] = {"enabled": True}
    initial = into[0] = []
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=configuration
    )
    into[0] = None
    if knobs.get("offload_optimizer"):
        hooks.offload(engine.optimizer)
    return engine, initial


def train(engine, batch, micro):
    """Five steps, as events."""
    steps = []
    for _ in range(5):
        phases = {"forward": [], "backward": [], "step": []}
        for j in range(micro):
            now["gradient"] = None
            x = batch()
            for phase in phases:
                into[0] = phases[phase]
                if micro > 1:
                    log("m", "micro_batch", j)
                if phase == "forward":
                    loss = engine(x)
                elif phase == "backward":
                    engine.backward(loss)
                else:
                    engine.step()
                into[0] = None
        add_step(steps, {"phases": phases})
    return steps


def observed(optimizer, model, stage, index):
    """DeepSpeed itself says this of its parts."""
    if stage < 3:
        return {"partition_size": [optimizer.partition_size[0]]}
    return {
        "persistent_params": [index[id(p)] for p in optimizer.persistent_parameters],
        "partition_numel": [p.partition_numel() for p in model.parameters()],
    }


def record(real, out, model, config, ranks, rank=0, devices=1, dtype="fp32", micro=1, **knobs):
    begin(world=ranks, rank=rank, devices=devices, fetch=None, carried=None)
    knobs = {LONG.get(k, k): v for k, v in knobs.items()}
    said = {k: knobs.pop(k) for k in OF_THE_ENGINE if k in knobs}
    name, torch_dtype, stage = model, DTYPES[dtype], knobs["stage"]
    arrival = arrival_of(MODELS[name]().to(torch_dtype), torch_dtype)
    model = MODELS[name]()
    parameters = [[n, p.numel(), str(torch_dtype)[6:]] for n, p in model.named_parameters()]
    shapes = {"shapes": [list(p.shape) for p in model.parameters()], "devices_per_node": devices}
    index = now["index"] = {id(p): i for i, p in enumerate(model.parameters())}
    now["name"] = {id(m): n for n, m in model.named_modules()}
    modules = {
        n: [index[id(p)] for p in m.parameters(recurse=False)] for n, m in model.named_modules()
    }
    mark_modules(model)
    engine, initial = engine_of(real, model, dtype, ranks, micro, knobs, said)
    for i, p in enumerate(model.parameters()):
        mark_gradient(p, i)
    steps = train(engine, lambda: model.batch(torch_dtype), micro)
    file = f"ds_0145_zero{stage}__{name}__{config}__n{ranks}r{rank}.json"
    recordings.write(out / (file + ".gz"), {
        "system": "deepspeed",
        "version": "DeepSpeed 0.14.5, torch 1.13.1, everything below it stood in for",
        "detail": True, "model": name, "config": config,
        "knobs": {"zero_optimization": knobs, "gradient_accumulation_steps": micro,
                  "dtype": dtype, "optimizer": "Adam", **said},
        "world_size": ranks, "rank": rank, "file": file, "parameters": parameters,
        **(shapes if knobs.get("zero_quantized_gradients") else {}),
        "modules": modules, "no_input_gradient": model.no_input_gradient,
        **({"forward": model.events} if isinstance(model, Raw) else {}),
        "gradient_arrival_order": arrival,
        "observed": observed(engine.optimizer, model, stage, index),
        "all_ranks_identical": False, "init": initial, "steps": steps,
    })
