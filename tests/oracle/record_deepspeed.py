#!/usr/bin/python3
"""Records what DeepSpeed's ZeRO does in a step, for tests/data/recorded_orders: the real engine and
optimizers on small models, with streams, events and process groups that only write down what is
asked of them.

  record_deepspeed.py OUT --package FOLDER[:FOLDER...]  the first has deepspeed 0.14.5, the others
                                     pydantic 1.10, cpuinfo, tqdm; 77: no PyTorch 1.13
  record_deepspeed.py OUT --package FOLDERS --draw COUNT SEED  drawn configurations instead;
                                     `recorded_zero.py OUT` compares them with the oracle

One rank runs, of a world of any size: what the others would send never decides what is issued.
Every event is in the words of the recordings, and these are more: the kernels that PyTorch's own
operators make for DeepSpeed's Python (`cat`, `cast`, `add`, and `mul_new`, `div_new` that make a
new tensor), and ["w", stream, operation, "work"], a wait on an asynchronous collective.

With offload_optimizer or offload_param, storages that DeepSpeed keeps on the host are known, and
what is copied between them and all others is written down: `to_device`, `to_host`, with `_blocking`
where non_blocking was not asked for, and `host_...` of what is done where they are.

Stood in for: the accelerator (DeepSpeed's own one of the CPU, which here says that it is
asynchronous, as CUDA does), torch.distributed, and `split_half_float_double`, which knows CUDA's
tensor types only. Nothing of its logic is changed.
"""
import importlib
import importlib.util
import gzip
import json
import logging
import os
import random
import sys
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

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
into = [None]  # where events go; None: nowhere
current = ["main"]  # stack of streams
on_host = set()  # storages; empty: nothing is offloaded, and all are where they are
now = {"gradient": None, "world": 2, "rank": 0, "fetch": None, "carried": None, "up": False}
now["devices"] = 1  # of a node
made = {"streams": 0, "groups": 0}


def log(*event):
    if into[0] is not None:
        into[0].append(list(event))


def kernel(kind, tensor):
    events = into[0]
    if events is None:
        return
    if events and events[-1][:2] == ["l", kind] and events[-1][4] == current[-1]:
        events[-1][2] += tensor.numel()
        events[-1][3] += 1
    else:
        log("l", kind, tensor.numel(), 1, current[-1])


# --- a device that only writes down
class Stream:
    def __init__(self, name=None):
        self.name = name or f"stream{made['streams']}"
        made["streams"] += name is None

    def wait_stream(self, other):
        log("w", self.name, other.name, "stream")

    def synchronize(self):
        log("h", "stream.synchronize", self.name)


class Event:
    def __init__(self, **_):
        self.name = None

    def record(self, *_):
        self.name = current[-1]

    def query(self):
        return False

    def synchronize(self):
        log("h", "event.synchronize", "ev@" + self.name)


class Inside:
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        current.append(self.stream.name)

    def __exit__(self, *_):
        current.pop()


# --- process groups that only write down
class Group:
    def __init__(self, ranks):
        self.ranks = list(ranks)
        self.name = f"g{made['groups']}"
        made["groups"] += 1


class Work:
    def __init__(self, name):
        self.name = name

    def wait(self):
        log("w", current[-1], self.name, "work")


def collective(op, elements, dtype, group, asynchronous, **more):
    name = str(dtype)[6:]
    size = torch.empty(0, dtype=dtype).element_size()
    said = {
        "op": op,
        "elements": elements,
        "dtype": name,
        "bytes": elements * size,
        "group": len(group.ranks) if op == "all_to_all" else now["world"],
        "queue": current[-1],
        "async": bool(asynchronous),
        "after_grad": now["gradient"],
        **{k: v for k, v in more.items() if v is not None},
    }
    if isinstance(group, Group):
        said["comm"] = group.name
    if now["carried"] and elements > 1:
        said["tensors"] = list(now["carried"])
    if now["fetch"] is not None and op == "all_gather":
        said["issued_by"] = now["fetch"]
    log("c", said)
    return Work(op)


def all_reduce(tensor, op=None, group=None, async_op=False):
    op = "MAX" if op == dist.ReduceOp.MAX else "SUM"
    return collective("all_reduce", tensor.numel(), tensor.dtype, group, async_op, reduce_op=op)


def reduce(tensor, dst, op=None, group=None, async_op=False):
    return collective("reduce", tensor.numel(), tensor.dtype, group, async_op, root=dst)


def broadcast(tensor, src, group=None, async_op=False):
    return collective("broadcast", tensor.numel(), tensor.dtype, group, async_op, root=src)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    n = input_tensor.numel()
    return collective(
        "all_gather", output_tensor.numel(), input_tensor.dtype, group, async_op, in_elements=n
    )


def reduce_scatter_tensor(output_tensor, input_tensor, op=None, group=None, async_op=False):
    n = output_tensor.numel()
    return collective(
        "reduce_scatter", input_tensor.numel(), input_tensor.dtype, group, async_op, out_elements=n
    )


def all_to_all_single(
    output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False
):
    if input.shape[0] % len(group.ranks):  # as PyTorch's check_split_sizes
        raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
    return collective("all_to_all", input.numel(), input.dtype, group, async_op)


def stand_in():
    for name, value in {
        "is_initialized": lambda: now["up"],
        "get_rank": lambda group=None: now["rank"],
        "get_world_size": lambda group=None: now["world"],
        "new_group": lambda ranks=None, *_, **__: Group(ranks),
        "get_backend": lambda group=None: "nccl",
        "barrier": lambda *_, **__: None,
        "all_reduce": all_reduce,
        "reduce": reduce,
        "broadcast": broadcast,
        "all_gather_into_tensor": all_gather_into_tensor,
        "reduce_scatter_tensor": reduce_scatter_tensor,
        "all_to_all_single": all_to_all_single,
    }.items():
        setattr(dist, name, value)
    dist.distributed_c10d.get_global_rank = lambda group, rank: rank
    torch.Tensor.record_stream = lambda self, stream: None
    for name in ("hjson", "pynvml"):
        sys.modules[name] = types.ModuleType(name)
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK="0")


def away(tensor):
    return bool(on_host) and tensor.storage().data_ptr() in on_host


def offload(optimizer):
    kept = [optimizer.grad_partitions_flat_buffer, *optimizer.param_groups_fp16_flat_cpu_memory]
    for flat in optimizer.fp32_partitioned_groups_flat if optimizer.offload_optimizer else ():
        kept += [flat.data, flat.grad]
    on_host.update(t.storage().data_ptr() for t in kept)


def listen_to_kernels():
    """Of what DeepSpeed's Python asks of a tensor, what makes a kernel."""

    def ours(folder="/deepspeed/"):
        return folder in sys._getframe(3).f_code.co_filename

    tensor = torch.Tensor

    def around(holder, name, new):
        old = getattr(holder, name)
        setattr(holder, name, lambda *args, **kwargs: new(old, *args, **kwargs))

    def in_place(kind):
        def new(old, self, *args, **kwargs):
            if ours():
                kernel("host_" + kind if away(self) else kind, self)
            return old(self, *args, **kwargs)

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

    around(tensor, "copy_", copy)
    around(tensor, "double", double)
    for name, kind in (("div_", "div"), ("mul_", "mul"), ("add_", "add")):
        around(tensor, name, in_place(kind))
    around(tensor, "float", in_place("cast_float"))
    for name in ("mul", "div"):
        around(tensor, name, in_place(name + "_new"))

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

    def reduced(kind):
        def new(old, self, *args):
            if ours("/deepspeed/runtime/comm/"):
                kernel(kind, self)
            return old(self, *args)

        return new

    for name, kind in (("__radd__", "add"), ("__add__", "add"), ("__truediv__", "div")):
        around(tensor, name, reduced(kind + "_new"))
    around(tensor, "to", to)
    around(torch, "cat", cat)
    import deepspeed.runtime.zero.stage3 as three
    import deepspeed.runtime.zero.stage_1_and_2 as two

    for module in (two, three):

        def flatten(tensors, old=module._flatten_dense_tensors):
            result = old(tensors)
            if len(tensors) > 1:
                kernel("cat", result)
            return result

        module._flatten_dense_tensors = flatten


def deepspeed_0145(folder):
    folders = folder.split(":")
    assert (Path(folders[0]) / "version.txt").read_text().strip() == "0.14.5"
    sys.path[:0] = folders
    stand_in()
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    setattr(sys.modules["deepspeed.comm.torch"], "build_shm_op", lambda: None)
    now["up"] = True
    device = type(get_accelerator())
    for name, value in {
        "is_synchronized_device": False,
        "resolves_data_dependency": False,
        "handles_memory_backpressure": False,
        "use_host_timers": True,
        "is_bf16_supported": True,
        "is_fp16_supported": True,
    }.items():
        setattr(device, name, lambda self, value=value: value)
    device.device_count = lambda self: now["devices"]
    device.Stream = property(lambda self: lambda *_, **__: Stream())
    device.Event = property(lambda self: Event)
    device.stream = lambda self, stream: Inside(stream)
    device.current_stream = lambda self, *_: Stream(current[-1])
    device.default_stream = lambda self, *_: Stream("main")
    device.on_accelerator = lambda self, tensor: not away(tensor)
    device.synchronize = lambda self, *_: log("h", "device.synchronize", "device")
    import deepspeed.runtime.zero.partitioned_param_coordinator as coordinator
    import deepspeed.runtime.zero.stage3 as three
    import deepspeed.runtime.zero.stage_1_and_2 as two

    utils = importlib.import_module("deepspeed.runtime.zero.utils")
    from_rank_0 = utils.get_lst_from_rank0

    def as_rank_0(values):  # what rank 0 has, this rank has
        rank, now["rank"] = now["rank"], 0
        try:
            return from_rank_0(values)
        finally:
            now["rank"] = rank

    setattr(utils, "get_lst_from_rank0", as_rank_0)

    def by_dtype(tensors):
        order = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
        buckets = [[t for t in tensors if t.dtype == dtype] for dtype in order]
        return [b for b in buckets if b]

    two.split_half_float_double = by_dtype

    def around(cls, name, call):
        old = getattr(cls, name)
        setattr(cls, name, lambda self, *args, **kwargs: call(old, self, *args, **kwargs))

    def carrying(index_of):
        def call(old, self, *args, **kwargs):
            now["carried"] = index_of(self)
            try:
                return old(self, *args, **kwargs)
            finally:
                now["carried"] = None

        return call

    def in_bucket_3(self):
        # reduce_scatter sorts by ds_id; the contiguous all-reduce leaves the order of arrival
        tensors = [now["index"][id(p)] for p in self.params_in_ipg_bucket]
        elements = sum(p.ds_numel for p in self.params_in_ipg_bucket)
        flat = self.contiguous_gradients and not self.reduce_scatter
        return tensors if flat and elements <= self.reduce_bucket_size else sorted(tensors)

    stage3 = three.DeepSpeedZeroOptimizer_Stage3
    around(
        two.DeepSpeedZeroOptimizer,
        "reduce_ipg_grads",
        carrying(lambda self: [now["index"][id(p)] for _, p, _ in self.params_in_ipg_bucket]),
    )
    around(
        stage3,
        "_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads",
        carrying(in_bucket_3),
    )
    cls = coordinator.PartitionedParameterCoordinator

    def fetch(old, self, module, forward):
        now["fetch"] = now["name"][id(module)]
        log("m", "fetch", now["fetch"], "forward" if forward else "backward")
        try:
            return old(self, module, forward)
        finally:
            now["fetch"] = None

    def gather(old, self, params, *args):
        away = [p for p in params if p.ds_status == coordinator.ZeroParamStatus.NOT_AVAILABLE]
        now["carried"] = sorted(now["index"][id(p)] for p in away)
        try:
            return old(self, params, *args)
        finally:
            now["carried"] = None

    def release(old, self, param):
        if param.ds_status == coordinator.ZeroParamStatus.AVAILABLE:
            if not param.ds_active_sub_modules:
                log("m", "release", now["index"][id(param)])
        return old(self, param)

    around(cls, "fetch_sub_module", fetch)
    around(cls, "_PartitionedParameterCoordinator__all_gather_params", gather)
    around(cls, "_PartitionedParameterCoordinator__release_param", release)
    listen_to_kernels()
    sys.modules["deepspeed.utils"].logger.setLevel(logging.ERROR)
    return deepspeed


# --- models
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln, self.fc = nn.LayerNorm(width), nn.Linear(width, 3 * width + 1)
        self.act = nn.ReLU()
        self.out = nn.Linear(3 * width + 1, width)

    def forward(self, x):
        return x + self.act(self.out(self.act(self.fc(self.ln(x)))))


class Blocks(nn.Module):
    """Tokens and positions, three blocks, a head that is the embedding."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(23, 10), nn.Embedding(7, 10)
        self.h = nn.ModuleList(Block(10) for _ in range(3))
        self.ln = nn.LayerNorm(10)
        self.head = nn.Linear(10, 23, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x):
        y = self.wte(x) + self.wpe(torch.arange(7))
        for block in self.h:
            y = block(y)
        return self.head(self.ln(y)).float().sum()

    def batch(self, dtype):
        return torch.randint(23, (2, 7))

    no_input_gradient = ["", "wte", "wpe"]


class Twice(nn.Module):
    """One layer that is used twice, and one behind it; an input of the model's dtype."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(9, 9), nn.Linear(9, 9), nn.Linear(9, 5)

    def forward(self, x):
        return self.c(self.b(torch.tanh(self.b(self.a(x))))).float().sum()

    def batch(self, dtype):
        return torch.randn(3, 9, dtype=dtype)

    no_input_gradient = ["", "a"]


class Step(torch.autograd.Function):
    """Stands in for a layer's kernels where the CPU has none (float16)."""

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(w, b)
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        w, b = ctx.saved_tensors
        return g, torch.zeros_like(w), torch.zeros_like(b)


class Layer(nn.Module):
    def __init__(self, w, b):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(w)), nn.Parameter(torch.ones(b))

    def forward(self, x):
        return Step.apply(x, self.weight, self.bias)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.ModuleList(Layer(37 * i + 11, i + 3) for i in range(7))

    def forward(self, x):
        for layer in self.l:
            x = layer(x)
        return x.float().sum()

    def batch(self, dtype):
        return torch.ones(4, dtype=dtype)

    no_input_gradient = ["", "l.0"]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.fc = nn.Parameter(torch.ones(9)), nn.Linear(9, 9)

    def forward(self, x):
        return self.fc(x * self.scale)


class Raw(nn.Module):
    """Modules with modules use parameters of their own."""

    def __init__(self):
        super().__init__()
        self.place, self.a, self.b = nn.Parameter(torch.ones(9)), nn.Linear(9, 9), Scaled()
        self.c = nn.Linear(9, 5)

    def forward(self, x):
        return self.c(self.b(self.a(x) + self.place)).float().sum()

    def batch(self, dtype):
        return torch.randn(3, 9, dtype=dtype)

    no_input_gradient = ["", "a"]
    events = [["enter", ""], ["enter", "a"], ["exit", "a"], ["use", 0], ["enter", "b"], ["use", 3]]
    events += [["enter", "b.fc"], ["exit", "b.fc"], ["exit", "b"], ["enter", "c"], ["exit", "c"]]
    events += [["exit", ""]]


class Shared(Raw):
    """A module and one inside it have a parameter in common."""

    def __init__(self):
        super().__init__()
        self.b.fc.bias = self.b.scale


class Eights(Tower):
    """Parameters whose parts are of whole groups of eight."""

    def __init__(self):
        super().__init__()
        self.l = nn.ModuleList(Layer(5024 * i + 64, 32) for i in range(6))


class Plates(Tower):
    """Gradients of one, two and three dimensions; one that no exchange parts."""

    def __init__(self):
        super().__init__()
        shapes = (8, 6), (6, 16), (5, 7), (2, 2, 24), (24,)
        self.l = nn.ModuleList(Layer(shape, 3 + i) for i, shape in enumerate(shapes))


class Quantizer:
    """Kernels of qwZ and qgZ, which would have to be compiled."""

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


MODELS: dict = {"raw": Raw, "shared": Shared, "blocks3": Blocks, "twice": Twice, "tower7": Tower}
MODELS |= {"eights": Eights, "plates": Plates}


def record(deepspeed, out, model, config, ranks, rank=0, steps=5, **knobs):
    torch.manual_seed(0)
    made.update(streams=0, groups=0)
    current[:] = ["main"]
    into[0] = None
    on_host.clear()
    now.update(world=ranks, rank=rank, gradient=None, fetch=None, carried=None)
    name = model
    now["devices"] = knobs.pop("devices", 1)
    exchanges = knobs.get("zero_quantized_gradients", False)
    dtype = knobs.pop("dtype", "fp32")
    top = ("gradient_clipping", "prescale_gradients", "gradient_predivide_factor")
    top += ("communication_data_type",)
    said = {k: knobs.pop(k) for k in top if k in knobs}
    gas = knobs.pop("gradient_accumulation_steps", 1)
    plain = MODELS[model]().to(DTYPES[dtype])
    arrival = []
    for i, p in enumerate(plain.parameters()):
        p.register_hook(lambda g, i=i: arrival.append(i))
    plain(plain.batch(DTYPES[dtype])).backward()
    model = MODELS[name]()
    parameters = [[n, p.numel(), str(DTYPES[dtype])[6:]] for n, p in model.named_parameters()]
    shapes = [list(p.shape) for p in model.parameters()]
    modules = {}
    index = {id(p): i for i, p in enumerate(model.parameters())}
    now["index"] = index
    now["name"] = {id(m): n for n, m in model.named_modules()}
    for n, m in model.named_modules():
        modules[n] = [index[id(p)] for p in m.parameters(recurse=False)]
        if modules[n]:
            m.register_forward_pre_hook(lambda _, __, n=n: log("f", n))
    world = __import__("deepspeed.utils.groups", fromlist=["x"])
    setattr(world, "_WORLD_GROUP", None)
    setattr(world, "_ALL_TO_ALL_GROUP", {})
    configuration = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": gas,
        "train_batch_size": 2 * gas * ranks,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": knobs,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
        **said,
    }
    if dtype != "fp32":
        configuration[dtype] = {"enabled": True}
    initial = []
    into[0] = initial
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=configuration
    )
    into[0] = None
    if knobs.get("offload_optimizer"):
        offload(engine.optimizer)
    for i, p in enumerate(model.parameters()):

        def arrived(_, i=i):
            now["gradient"] = i
            log("g", i)

        p.register_hook(arrived)
    recorded = []
    for number in range(steps):
        phases = {"forward": [], "backward": [], "step": []}
        for micro in range(gas):
            now["gradient"] = None
            batch = model.batch(DTYPES[dtype])
            for phase in phases:
                into[0] = phases[phase]
                if gas > 1:
                    log("m", "micro_batch", micro)
                if phase == "forward":
                    loss = engine(batch)
                elif phase == "backward":
                    engine.backward(loss)
                else:
                    engine.step()
                into[0] = None
        same = [s for s in recorded if s.get("phases") == phases]
        recorded.append(
            {"step": number, "same_as": same[0]["step"]}
            if same
            else {"step": number, "phases": phases}
        )
    stage = knobs["stage"]
    observed = {}
    optimizer = engine.optimizer
    if stage == 3:
        observed["persistent_params"] = [index[id(p)] for p in optimizer.persistent_parameters]
        observed["partition_numel"] = [p.partition_numel() for p in model.parameters()]
    else:
        observed["partition_size"] = [optimizer.partition_size[0]]
    file = f"ds_0145_zero{stage}__{name}__{config}__n{ranks}r{rank}.json"
    text = json.dumps(
        {
            "system": "deepspeed",
            "version": "DeepSpeed 0.14.5, torch 1.13.1, everything below it stood in for",
            "detail": True,
            "model": name,
            "config": config,
            "knobs": {
                "zero_optimization": knobs,
                "gradient_accumulation_steps": gas,
                "dtype": dtype,
                "optimizer": "Adam",
                **said,
            },
            "world_size": ranks,
            "rank": rank,
            "file": file,
            "parameters": parameters,
            **({"shapes": shapes, "devices_per_node": now["devices"]} if exchanges else {}),
            "modules": modules,
            "no_input_gradient": model.no_input_gradient,
            **({"forward": model.events} if isinstance(model, Raw) else {}),
            "gradient_arrival_order": arrival,
            "observed": observed,
            "all_ranks_identical": False,
            "init": initial,
            "steps": recorded,
        },
        separators=(",", ":"),
    )
    (Path(out) / (file + ".gz")).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def drawn(deepspeed, out, count, seed):
    rng = random.Random(seed)
    for number in range(count):
        stage, ranks = rng.choice([1, 2, 3, 3]), rng.choice([2, 2, 3, 4, 5, 8, 16])
        knobs = {"stage": stage}

        def maybe(share, knob, *values):
            if rng.random() < share:
                knobs[knob] = rng.choice(values)

        maybe(0.8, "reduce_bucket_size", 5, 50, 100, 200, 300, 400, 700, 1000, 2000)
        maybe(0.4, "overlap_comm", True, False)
        maybe(0.3, "contiguous_gradients", False)
        maybe(0.3, "reduce_scatter", False)
        maybe(0.3, "gradient_accumulation_steps", 2, 3)
        maybe(0.4, "dtype", "bf16", "fp16")
        maybe(0.15, "communication_data_type", "fp32", "bf16", "fp16")
        maybe(0.1, "gradient_clipping", 1.0)
        if stage == 1 or not knobs.get("reduce_scatter", True):
            maybe(0.3, "prescale_gradients", True)
            maybe(0.3, "gradient_predivide_factor", 2.0, 4.0)
        if stage < 3:
            maybe(0.3, "use_multi_rank_bucket_allreduce", False)
            maybe(0.3, "round_robin_gradients", True)
        else:
            maybe(0.7, "stage3_prefetch_bucket_size", 0, 10, 50, 100, 200, 400, 800)
            maybe(0.8, "stage3_param_persistence_threshold", 0, 0, 10, 31, 100, 400)
            maybe(0.5, "stage3_max_live_parameters", 0, 100, 300, 600, 1000, 2000)
            maybe(0.6, "stage3_max_reuse_distance", 0, 50, 100, 300, 600, 1000, 2000)
            maybe(0.2, "stage3_model_persistence_threshold", 0, 30, 75, 200, 1000)
            maybe(0.2, "sub_group_size", 1, 50, 200, 500)
        models = sorted(set(MODELS) - {"eights", "plates"})
        model = "tower7" if knobs.get("dtype") == "fp16" else rng.choice(models)
        rank = rng.randrange(ranks)
        record(deepspeed, out, model, f"drawn{seed}_{number}", ranks, rank, **knobs)


def main():
    if not torch.__version__.startswith("1.13"):
        print(f"skipped: PyTorch {torch.__version__}, not 1.13")
        return 77
    out, _, folders = sys.argv[1:4]
    deepspeed = deepspeed_0145(folders)
    if sys.argv[4:5] == ["--draw"]:
        drawn(deepspeed, out, *map(int, sys.argv[5:]))
        return 0

    def of(model, config, ranks, rank=0, **knobs):
        record(deepspeed, out, model, config, ranks, rank, **knobs)

    # one and two
    for rank in range(3):
        of("blocks3", "small", 3, rank, stage=1, reduce_bucket_size=400)
        of("blocks3", "small", 3, rank, stage=2, reduce_bucket_size=250)
    of("twice", "default", 2, stage=2)
    of("tower7", "fp16", 4, 2, stage=2, dtype="fp16", reduce_bucket_size=300)
    of("tower7", "fp16_acc2", 4, stage=1, dtype="fp16", gradient_accumulation_steps=2)
    of("blocks3", "overlap_acc2", 2, stage=1, overlap_comm=True, gradient_accumulation_steps=2)
    of(
        "blocks3",
        "overlap_acc2_nocontig",
        2,
        stage=2,
        overlap_comm=True,
        gradient_accumulation_steps=2,
        contiguous_gradients=False,
        reduce_bucket_size=300,
    )
    for stage in (1, 2):
        of(
            "blocks3",
            "overlap_nomulti",
            4,
            stage=stage,
            overlap_comm=True,
            use_multi_rank_bucket_allreduce=False,
            reduce_bucket_size=333,
        )
        of("blocks3", "tiny_bucket", 4, 3, stage=stage, reduce_bucket_size=7)
        of("blocks3", "rr", 4, 1, stage=stage, round_robin_gradients=True, reduce_bucket_size=500)
    of("blocks3", "many", 64, 63, stage=2, reduce_bucket_size=400)
    of("blocks3", "many", 64, 20, stage=1, overlap_comm=True, reduce_bucket_size=400)
    fp32 = {"dtype": "bf16", "communication_data_type": "fp32"}
    of("blocks3", "bf16_wire32", 2, stage=2, **fp32, reduce_bucket_size=300)
    of(
        "blocks3",
        "bf16_wire32_nomulti",
        2,
        1,
        stage=2,
        use_multi_rank_bucket_allreduce=False,
        **fp32,
    )
    of("blocks3", "bf16_wire32_norsc", 2, stage=1, reduce_scatter=False, **fp32)
    of("blocks3", "prescale", 4, stage=1, prescale_gradients=True, reduce_scatter=False)
    of("blocks3", "predivide4", 4, stage=2, gradient_predivide_factor=4.0, reduce_scatter=False)
    of("blocks3", "prescale_rsc", 4, stage=1, prescale_gradients=True)
    # three
    none = {"stage": 3, "stage3_param_persistence_threshold": 0}
    for rank in range(3):
        of("blocks3", "small", 3, rank, **none, reduce_bucket_size=300)
        of("blocks3", "small_norsc", 3, rank, **none, reduce_bucket_size=300, reduce_scatter=False)
    of("twice", "default", 2, **none)
    of("raw", "default", 2, **none, stage3_prefetch_bucket_size=100, reduce_bucket_size=100)
    of("shared", "default", 2, **none, stage3_prefetch_bucket_size=90)
    # sizes that are exactly a limit
    for stage in (1, 2):
        of("twice", "exact", 2, stage=stage, reduce_bucket_size=50)
        of("twice", "exact_slice", 2, 1, stage=stage, reduce_bucket_size=26)
    of("twice", "exact", 2, **none, reduce_bucket_size=50, sub_group_size=46)
    of("twice", "exact_norsc", 2, **none, reduce_bucket_size=50, reduce_scatter=False)
    exact = {"stage3_param_persistence_threshold": 10, "stage3_model_persistence_threshold": 40}
    of("blocks3", "exact_persistent", 2, stage=3, **exact)
    of(  # what a module may release is decided once, and would be another thing later
        "tower7",
        "decided_once",
        16,
        14,
        stage=3,
        stage3_prefetch_bucket_size=100,
        stage3_param_persistence_threshold=100,
        stage3_max_live_parameters=100,
        stage3_max_reuse_distance=0,
    )
    of(
        "raw",
        "nothing_ahead",
        3,
        **none,
        stage3_prefetch_bucket_size=0,
        stage3_max_reuse_distance=50,
    )
    of(
        "twice",
        "nothing_ahead",
        2,
        **none,
        stage3_prefetch_bucket_size=0,
        stage3_max_reuse_distance=0,
    )
    of("blocks3", "default", 2, stage=3)
    of(
        "blocks3",
        "one_persistent",
        2,
        stage=3,
        stage3_param_persistence_threshold=100,
        stage3_model_persistence_threshold=75,
    )
    of(
        "blocks3",
        "some_persistent",
        3,
        2,
        stage=3,
        stage3_param_persistence_threshold=100,
        stage3_prefetch_bucket_size=300,
        stage3_model_persistence_threshold=150,
    )
    of(
        "tower7",
        "fp16",
        4,
        1,
        **none,
        dtype="fp16",
        stage3_prefetch_bucket_size=200,
        reduce_bucket_size=300,
    )
    of(
        "tower7",
        "fp16_acc2",
        2,
        stage=3,
        dtype="fp16",
        gradient_accumulation_steps=2,
        stage3_param_persistence_threshold=50,
    )
    for size in (0, 100, 350, 1000):
        for reuse in (0, 300, 1000):
            of(
                "blocks3",
                f"pf{size}_reuse{reuse}",
                2,
                **none,
                stage3_prefetch_bucket_size=size,
                stage3_max_reuse_distance=reuse,
            )
    for live in (0, 200, 700):
        for persist in (0, 40):
            of(
                "blocks3",
                f"live{live}_persist{persist}",
                2,
                stage=3,
                stage3_max_live_parameters=live,
                stage3_param_persistence_threshold=persist,
                stage3_prefetch_bucket_size=400,
            )
    of(
        "blocks3",
        "nooverlap_acc3",
        2,
        **none,
        overlap_comm=False,
        gradient_accumulation_steps=3,
        stage3_prefetch_bucket_size=200,
    )
    of(
        "blocks3",
        "acc3_reuse",
        2,
        1,
        **none,
        gradient_accumulation_steps=3,
        stage3_prefetch_bucket_size=0,
        stage3_max_reuse_distance=500,
    )
    of("blocks3", "subgroups", 2, **none, sub_group_size=300)
    of(
        "blocks3",
        "subgroups_bf16_wire32",
        2,
        **none,
        sub_group_size=500,
        **fp32,
        reduce_bucket_size=300,
    )
    of(
        "blocks3",
        "norsc_predivide2_wire32",
        4,
        **none,
        reduce_scatter=False,
        gradient_predivide_factor=2.0,
        **fp32,
    )
    of("blocks3", "norsc_prescale", 4, **none, reduce_scatter=False, prescale_gradients=True)
    of("blocks3", "many", 64, 63, **none, reduce_bucket_size=300, stage3_prefetch_bucket_size=300)
    offloaded(of, none)
    quantised(of, none)
    exchanged(of, none)
    return 0


def quantised(of, none):
    import deepspeed.runtime.zero.partition_parameters as partition

    partition.CUDAQuantizer.quantizer_cuda_module = Quantizer()
    of("eights", "qwz", 2, **none, dtype="fp16", zero_quantized_weights=True)
    of(
        "eights",
        "qwz_one_by_one",
        4,
        1,
        **none,
        dtype="fp16",
        zero_quantized_weights=True,
        stage3_prefetch_bucket_size=0,
        stage3_max_reuse_distance=0,
    )
    of(
        "eights",
        "qwz_persistent_offload",
        4,
        2,
        stage=3,
        stage3_param_persistence_threshold=100,
        stage3_prefetch_bucket_size=9000,
        dtype="fp16",
        zero_quantized_weights=True,
        offload_optimizer={"device": "cpu"},
        offload_param={"device": "cpu"},
    )


def exchanged(of, none):
    import deepspeed.runtime.comm.coalesced_collectives as coalesced

    coalesced.quantizer_module = Quantizer()
    qgz = {"dtype": "fp16", "zero_quantized_gradients": True}
    of("plates", "qgz", 4, **none, **qgz, devices=2)
    of("plates", "qgz_buckets", 8, 5, **none, **qgz, devices=4, reduce_bucket_size=150)
    of(
        "plates",
        "qgz_acc2_nooverlap",
        8,
        6,
        **none,
        **qgz,
        devices=2,
        gradient_accumulation_steps=2,
        overlap_comm=False,
    )
    of("plates", "qgz_one_node", 4, 1, **none, **qgz, devices=4)
    of(
        "plates",
        "qgz_nocontig_offload",
        4,
        3,
        **none,
        **qgz,
        devices=2,
        contiguous_gradients=False,
        reduce_bucket_size=110,
        offload_optimizer={"device": "cpu", "pin_memory": True},
    )


def offloaded(of, none):
    def cpu(pinned=False, params=False):
        said = {"device": "cpu", "pin_memory": pinned}
        return {"offload_optimizer": said, **({"offload_param": said} if params else {})}

    of("blocks3", "offload", 2, **none, **cpu(), reduce_bucket_size=300)
    of("blocks3", "offload_params", 2, 1, **none, **cpu(params=True), reduce_bucket_size=300)
    of("blocks3", "offload_persistent", 3, 2, stage=3, **cpu(True, True))
    of(
        "blocks3",
        "offload_acc3",
        2,
        **none,
        **cpu(True),
        gradient_accumulation_steps=3,
        reduce_bucket_size=200,
        stage3_prefetch_bucket_size=0,
        stage3_max_reuse_distance=300,
    )
    of(
        "blocks3",
        "offload_params_subgroups_bf16",
        4,
        3,
        **none,
        **cpu(params=True),
        dtype="bf16",
        sub_group_size=100,
        overlap_comm=False,
        gradient_accumulation_steps=2,
        stage3_prefetch_bucket_size=300,
    )
    of("tower7", "offload_params_fp16", 4, 1, **none, **cpu(params=True), dtype="fp16")
    of("tower7", "offload_fp16_norsc", 2, **none, **cpu(), dtype="fp16", reduce_scatter=False)
    of(
        "twice",
        "offload_params_one_persistent",
        2,
        stage=3,
        stage3_param_persistence_threshold=9,
        stage3_model_persistence_threshold=9,
        **cpu(params=True),
    )


if __name__ == "__main__":
    sys.exit(main())
