#!/usr/bin/env python3
"""A deliberately naive second opinion on what one training step of a data-parallel run consists of.

    oracle.py SCENARIO.json                              print the Program listing (docs/formats.md)
    oracle.py --self-test FIXTURE_BUCKETS FIXTURE_MODELS check the bucket rule against known buckets

Written from the facts about PyTorch only. It shares no code and no idea with the simulator:
every rule is a plain loop over plain lists, so that it can be read and believed.
"""

import json
import os
import sys
import types

MIB = 1024 * 1024
NO_LIMIT = sys.maxsize
BROADCAST_LIMIT = 250 * MIB
BROADCASTS_IN_FLIGHT = 2
ELEMENT_BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "uint8": 1,
    "bool": 1,
}


class Refused(Exception):
    """The scenario asks for something that PyTorch rejects or that this oracle does not cover."""


# ---------------------------------------------------------------- tensors and buckets


def elements(tensor):
    n = 1
    for extent in tensor["shape"]:
        n = n * extent
    return n


def size(tensor):
    return elements(tensor) * ELEMENT_BYTES[tensor["dtype"]]


def total_size(tensors):
    total = 0
    for tensor in tensors:
        total = total + size(tensor)
    return total


def assign_buckets(tensors, order, limits, explicit_order):
    """compute_bucket_assignment_by_size: `order` lists tensor indices; returns lists of indices.

    One open bucket per dtype. The tensor that reaches the limit still belongs to the bucket. The
    first limit is for the first bucket of a dtype, the last limit for all that follow.
    """
    open_bucket = {}  # dtype -> indices
    open_bytes = {}  # dtype -> bytes
    next_limit = {}  # dtype -> position in limits
    first_seen = []  # dtypes
    result = []
    for index in order:
        dtype = tensors[index]["dtype"]
        if dtype not in open_bucket:
            open_bucket[dtype] = []
            open_bytes[dtype] = 0
            next_limit[dtype] = 0
            first_seen.append(dtype)
        open_bucket[dtype].append(index)
        open_bytes[dtype] += size(tensors[index])
        if open_bytes[dtype] >= limits[next_limit[dtype]]:
            result.append(open_bucket[dtype])
            open_bucket[dtype] = []
            open_bytes[dtype] = 0
            if next_limit[dtype] + 1 < len(limits):
                next_limit[dtype] += 1
    # What is left is appended in the order of a std::unordered_map. In libstdc++ a new key goes to
    # the front of the map's list: the dtype seen last comes first.
    for dtype in reversed(first_seen):
        if open_bucket[dtype]:
            result.append(open_bucket[dtype])
    if not explicit_order:
        result.sort(key=min)
    return result


def initial_buckets(tensors, limits):
    """Buckets as DDP's constructor makes them: registration order, then the list is reversed."""
    order = list(range(len(tensors)))
    buckets = assign_buckets(tensors, order, limits, explicit_order=False)
    buckets.reverse()
    return buckets


def rebuilt_buckets(tensors, ready_order, limits):
    return assign_buckets(tensors, ready_order, limits, explicit_order=True)


def broadcast_groups(buffers):
    """broadcast_coalesced: the same rule, one limit, sorted by the smallest buffer index."""
    order = list(range(len(buffers)))
    return assign_buckets(buffers, order, [BROADCAST_LIMIT], explicit_order=False)


# ---------------------------------------------------------------- one step's listing


class Step:
    """The ops of one step in issue order. `main` is the compute stream on a GPU, the host on a
    CPU."""

    def __init__(self, kind, gpu):
        self.kind = kind
        self.gpu = gpu
        self.ops = []
        self.prefix = ""  # of names, where each micro-step reduces
        self.base = 0  # number of the first bucket of the pass
        self.last_main = None  # the op issued last on the compute stream (GPU)
        self.last_host = None  # the op issued last on the host (CPU)
        self.stream_waits = (
            []
        )  # GPU: what the compute stream was told to wait for, since its last op

    def add(self, lane, op, tensors, nbytes, waits_for):
        for other in self.ops:
            assert other["op"] != op, "op listed twice: " + op
        self.ops.append(
            {
                "lane": lane,
                "op": op,
                "tensors": tensors,
                "bytes": nbytes,
                "waits_for": sorted(waits_for),
            }
        )

    def host(self, op, waits_for):
        """An op of the training thread itself, which nothing launches."""
        op = self.prefix + op
        self.add("host", op, [], 0, [self.prefix + other for other in waits_for])
        self.last_host = op

    def main(self, op, tensors, nbytes):
        op = self.prefix + op
        if self.gpu:
            self.add("host", "launch/" + op, [], 0, [])
            self.add("compute", op, tensors, nbytes, ["launch/" + op] + self.stream_waits)
            self.stream_waits = []
            self.last_main = op
        else:
            self.add("host", op, tensors, nbytes, [])
            self.last_host = op

    def collective(self, op, tensors, nbytes):
        op = self.prefix + op
        if self.gpu:
            waits_for = ["launch/" + op]
            if self.last_main is not None:
                waits_for.append(self.last_main)
            self.add("host", "launch/" + op, [], 0, [])
            self.add("comm", op, tensors, nbytes, waits_for)
        else:
            waits_for = []
            if self.last_host is not None:
                waits_for.append(self.last_host)
            self.add("worker", op, tensors, nbytes, waits_for)

    def callback(self, op, nbytes, after):
        self.add("callback", self.prefix + op, [], nbytes, [self.prefix + after])

    def wait_work(self, wait_op, work):
        """work.wait(): blocks the host on a CPU; on a GPU only the compute stream waits."""
        if self.gpu:
            self.stream_waits.append(self.prefix + work)
        else:
            self.host(wait_op, [work])


# ---------------------------------------------------------------- reading a scenario


class Setting(types.SimpleNamespace):
    """A bag for what a scenario says, with the defaults filled in."""


def version_of(text):
    major, minor = text.split(".")[:2]
    return (int(major), int(minor))


def read_scenario(path):
    with open(path) as file:
        scenario = json.load(file)
    with open(os.path.join(os.path.dirname(path), scenario["workload"])) as file:
        workload = json.load(file)
    plan = scenario["plan"]
    if workload["basis"] != "captured":
        raise Refused("only captured workloads")

    s = Setting()
    s.tensors = workload["tensors"]
    s.buffers = workload["buffers"]
    s.gpu = workload["device"]["kind"] == "gpu"
    backend = plan.get("backend")
    if backend is None:
        backend = "nccl" if s.gpu else "gloo"
    if (backend == "nccl") != s.gpu:
        raise Refused("backend " + backend + " on this kind of device is not covered")

    s.system = plan["system"]
    s.version = version_of(plan.get("pytorch", "2.7"))
    s.accumulation = plan.get("accumulation_steps", 1)
    s.set_to_none = plan.get("set_to_none")
    if s.set_to_none is None:
        s.set_to_none = s.version >= (2, 0)

    # averaging
    s.granularity = plan.get("granularity", "per_parameter")
    s.async_op = plan.get("async_op", False)

    # DDP
    s.broadcast_buffers = plan.get("broadcast_buffers", True)
    s.static_graph = plan.get("static_graph", False)
    s.find_unused = plan.get("find_unused_parameters", False) and not s.static_graph
    s.bucket_view = plan.get("gradient_as_bucket_view", False)
    s.hook = plan.get("comm_hook", "none")
    s.no_sync = plan.get("no_sync", True)
    s.caps = bucket_caps(plan.get("bucket_cap_mb"), plan.get("first_bucket_bytes", MIB), s.version)

    # Gradients that arrive: (tensor index, offset). An unused tensor is absent from `arrival`, or
    # named in the plan.
    named_unused = plan.get("unused_parameters", [])
    names = [tensor["name"] for tensor in s.tensors]
    for name in named_unused:
        if name not in names:
            raise Refused("unused_parameters: no tensor " + name)
    s.arrivals = []
    for index, ready in zip(workload["arrival"], workload["times"]["ready_ps"], strict=True):
        if names[index] not in named_unused:
            s.arrivals.append((index, ready))
    arriving = [index for index, ready in s.arrivals]
    s.unused = []
    for index in range(len(s.tensors)):
        if index not in arriving:
            s.unused.append(index)
    s.backward_ps = workload["times"]["backward_ps"]
    if s.unused and s.system == "pytorch_ddp" and not s.find_unused and not s.static_graph:
        raise Refused("unused parameters need find_unused_parameters or static_graph")
    return s


def bucket_caps(bucket_cap_mb, first_bucket_bytes, version):
    """Limits of rebuilt buckets. Up to PR #121640 (2024) the first bucket was always small; since
    then only when the user gave no bucket_cap_mb."""
    if bucket_cap_mb is None:
        return [first_bucket_bytes, 25 * MIB]
    cap = int(bucket_cap_mb * 1024 * 1024)
    if version < (2, 4):
        return [first_bucket_bytes, cap]
    return [cap]


def name_of(s, index):
    return s.tensors[index]["name"]


def names_of(s, indices):
    return [name_of(s, index) for index in indices]


def all_names(s):
    return names_of(s, range(len(s.tensors)))


# ---------------------------------------------------------------- pieces of a step


def zero_grad(s, step, step_number):
    if not s.set_to_none and step_number > 0:
        step.main("zero_grad", all_names(s), total_size(s.tensors))


def optimizer(s, step):
    step.main("optimizer", all_names(s), total_size(s.tensors))


def micro_prefix(s, micro):
    if s.accumulation == 1 or not (s.system == "averaging" or s.no_sync):
        return ""  # or of the whole pass
    return "micro%d/" % micro


def gradients_exist(s, step_number, micro):
    """Does the engine find a gradient to add into?"""
    if micro > 0:
        return True
    return step_number > 0 and not s.set_to_none


def backward(s, step, step_number, micro, hook):
    """All of backward; `hook(index)` is called for each gradient when it has been accumulated."""
    prefix = micro_prefix(s, micro)
    previous = 0
    for index, ready in s.arrivals:
        name = name_of(s, index)
        if ready != previous:
            step.main(prefix + "bwd/" + name, [name], 0)
        previous = ready
        if gradients_exist(s, step_number, micro):
            step.main(prefix + "accumulate/" + name, [name], size(s.tensors[index]))
        hook(index)
    if s.backward_ps != previous:
        step.main(prefix + "bwd/tail", [], 0)


def no_hook(index):
    pass


# ---------------------------------------------------------------- PyTorch DDP


def rebuild_broadcasts(s, step, buckets):
    sizes = [4 * (len(s.tensors) + 1), 4 * len(buckets)]
    for i in range(2):
        op = "broadcast/rebuild.%d" % i
        step.collective(op, [], sizes[i])
        step.host("wait/" + op, [op])


def buffer_broadcasts(s, step):
    groups = broadcast_groups(s.buffers)
    sizes = [total_size([s.buffers[index] for index in group]) for group in groups]
    in_flight = []

    def finish_oldest():
        g = in_flight.pop(0)
        step.wait_work("wait/broadcast/buffers.%d" % g, "broadcast/buffers.%d" % g)
        step.main("unflatten/buffers.%d" % g, [], sizes[g])

    for g in range(len(groups)):
        if len(in_flight) == BROADCASTS_IN_FLIGHT:
            finish_oldest()
        step.main("flatten/buffers.%d" % g, [], sizes[g])
        step.collective("broadcast/buffers.%d" % g, [], sizes[g])
        in_flight.append(g)
    while in_flight:
        finish_oldest()


def launch_bucket(s, step, buckets, k):
    bucket_tensors = [s.tensors[index] for index in buckets[k]]
    nbytes = total_size(bucket_tensors)
    wire = nbytes
    name = "bucket.%d" % (step.base + k)
    if s.hook in ("fp16_compress", "bf16_compress"):
        step.main("compress/" + name, [], nbytes)
        wire = 0
        for tensor in bucket_tensors:
            wire = wire + 2 * elements(tensor)
    if s.hook == "allreduce":
        step.main("divide/" + name, [], nbytes)
    step.collective("allreduce/" + name, names_of(s, buckets[k]), wire)
    if s.hook in ("fp16_compress", "bf16_compress"):
        step.callback("decompress/" + name, nbytes, "allreduce/" + name)


def launch_bitmap(s, step):
    step.collective("allreduce/unused", [], 4 * len(s.tensors))


def synchronised_backward(s, step, step_number, micro, buckets, marks_unused, bitmap):
    """Backward with DDP's hooks. Returns the order in which the parameters were marked ready."""
    prefix = micro_prefix(s, micro)
    ready = []  # tensor indices
    launched = []  # bucket numbers

    def mark_ready(index):
        step.main(
            prefix + "copy_in/" + name_of(s, index), [name_of(s, index)], size(s.tensors[index])
        )
        ready.append(index)
        # Launch, in strict bucket order, whatever is complete now.
        while len(launched) < len(buckets):
            k = len(launched)
            complete = True
            for member in buckets[k]:
                if member not in ready:
                    complete = False
            if not complete:
                break
            launch_bucket(s, step, buckets, k)
            launched.append(k)
            if bitmap and len(launched) == len(buckets):
                launch_bitmap(s, step)

    def hook(index):
        if marks_unused and not ready:  # the first hook of this backward
            for unused in s.unused:
                mark_ready(unused)
        mark_ready(index)

    backward(s, step, step_number, micro, hook)
    assert len(launched) == len(buckets)
    return ready


def static_graph_first_backward(s, step, step_number, micro, buckets):
    """The first backward of a static graph: hooks only count, everything else comes afterwards."""
    backward(s, step, step_number, micro, no_hook)
    launch_bitmap(s, step)
    for index in range(len(s.tensors)):
        step.main("copy_in/" + name_of(s, index), [name_of(s, index)], size(s.tensors[index]))
    for k in range(len(buckets)):
        launch_bucket(s, step, buckets, k)


def finalize(s, step, buckets, bitmap):
    if bitmap and s.unused:
        step.host("wait/unused", ["allreduce/unused"])
    for k in range(len(buckets)):
        number = step.base + k
        work = "allreduce/bucket.%d" % number
        if s.hook in ("fp16_compress", "bf16_compress"):
            work = "decompress/bucket.%d" % number
        step.wait_work("wait/bucket.%d" % number, work)
        if s.bucket_view:
            continue
        for index in buckets[k]:
            if index not in s.unused:
                step.main(
                    "copy_out/" + name_of(s, index), [name_of(s, index)], size(s.tensors[index])
                )


def ddp_pass(s, step, life, step_number, number, buckets):
    """Forward and backward with one reduction. `number`: of the pass in its step. Returns the order
    in which its backward marked parameters ready (None: not recorded)."""
    static_first = s.static_graph and life == "first"
    bitmap = s.find_unused or static_first
    if life == "rebuild":
        rebuild_broadcasts(s, step, buckets)
    if s.broadcast_buffers:
        buffer_broadcasts(s, step)
    ready_order = None
    micro_steps = s.accumulation if s.no_sync else 1
    for micro in range(micro_steps):
        last = micro == micro_steps - 1
        prefix = micro_prefix(s, micro)
        step.main(prefix + "fwd", [], 0)
        if not last:  # under no_sync
            backward(s, step, step_number, micro, no_hook)
            continue
        if s.find_unused:
            step.host(prefix + "find_unused", [])
        if static_first:
            static_graph_first_backward(s, step, step_number, micro + number, buckets)
        else:
            marks_unused = s.find_unused or s.static_graph
            ready_order = synchronised_backward(
                s, step, step_number, micro + number, buckets, marks_unused, bitmap
            )
    finalize(s, step, buckets, bitmap)
    return ready_order


def ddp_steps(s):
    if s.find_unused:  # never rebuilt
        buckets = initial_buckets(s.tensors, s.caps)
        lives = ["first"]
    else:
        buckets = initial_buckets(s.tensors, [NO_LIMIT])
        lives = ["first", "second", "rebuild"] if s.static_graph else ["first", "rebuild"]
    passes = 1 if s.no_sync else s.accumulation
    count = (len(lives) + passes - 1) // passes + 1  # the last is steady
    steps = []
    ready_order = None
    for step_number in range(count):
        own = (lives[step_number * passes :] + ["steady"] * passes)[:passes]
        kind = {"second": "first"}.get(own[0], own[0])
        step = Step(kind, s.gpu)
        zero_grad(s, step, step_number)
        for number, life in enumerate(own):
            if life == "rebuild":
                step.base = len(buckets) if number > 0 else 0
                buckets = rebuilt_buckets(s.tensors, ready_order, s.caps)
            if passes > 1:
                step.prefix = "micro%d/" % number
            order = ddp_pass(s, step, life, step_number, number, buckets)
            ready_order = order if order is not None else ready_order
        step.prefix = ""
        optimizer(s, step)
        steps.append(step)
    return steps


# ---------------------------------------------------------------- plain averaging


def averaging_allreduce(s, step, op, tensors, nbytes):
    """all_reduce(): since 2.8 a blocking call runs on the current stream. True if it did."""
    if s.gpu and not s.async_op and s.version >= (2, 8):
        step.main(op, tensors, nbytes)
        return True
    step.collective(op, tensors, nbytes)
    return False


def average_per_parameter(s, step, used):
    if s.async_op:
        for index in used:
            name = name_of(s, index)
            averaging_allreduce(s, step, "allreduce/" + name, [name], size(s.tensors[index]))
        for index in used:
            name = name_of(s, index)
            step.wait_work("wait/" + name, "allreduce/" + name)
            step.main("div/" + name, [name], size(s.tensors[index]))
    else:
        for index in used:
            name = name_of(s, index)
            on_stream = averaging_allreduce(
                s, step, "allreduce/" + name, [name], size(s.tensors[index])
            )
            if not on_stream:
                step.wait_work("wait/" + name, "allreduce/" + name)
            step.main("div/" + name, [name], size(s.tensors[index]))


def average_flat(s, step, used):
    names = names_of(s, used)
    nbytes = total_size([s.tensors[index] for index in used])
    step.main("flatten/grads", names, nbytes)
    on_stream = averaging_allreduce(s, step, "allreduce/flat", names, nbytes)
    if not on_stream:
        step.wait_work("wait/flat", "allreduce/flat")
    step.main("div/flat", [], nbytes)
    step.main("unflatten/grads", names, nbytes)


def averaging_steps(s):
    used = []
    for index in range(len(s.tensors)):
        if index not in s.unused:
            used.append(index)
    steps = []
    for number, kind in enumerate(["first", "steady"]):
        step = Step(kind, s.gpu)
        zero_grad(s, step, number)
        for micro in range(s.accumulation):
            step.main(micro_prefix(s, micro) + "fwd", [], 0)
            backward(s, step, number, micro, no_hook)
        if s.granularity == "flat":
            average_flat(s, step, used)
        else:
            average_per_parameter(s, step, used)
        optimizer(s, step)
        steps.append(step)
    return steps


# ---------------------------------------------------------------- output


def listing(path):
    s = read_scenario(path)
    if s.system == "pytorch_ddp":
        steps = ddp_steps(s)
    elif s.system == "averaging":
        steps = averaging_steps(s)
    else:
        raise Refused("system " + s.system)
    return {"steps": [{"kind": step.kind, "ops": step.ops} for step in steps]}


def print_listing(program):
    """JSON with one op a line, so that a difference is one line."""
    print('{"steps": [')
    for i, step in enumerate(program["steps"]):
        print('{"kind": %s, "ops": [' % json.dumps(step["kind"]))
        for j, op in enumerate(step["ops"]):
            print(json.dumps(op) + ("," if j + 1 < len(step["ops"]) else ""))
        print("]}" + ("," if i + 1 < len(program["steps"]) else ""))
    print("]}")


# ---------------------------------------------------------------- self test of the bucket rule


def fp32(pairs):
    return [{"name": name, "shape": shape, "dtype": "float32"} for name, shape in pairs]


def vgg11():
    """(tensors, names in arrival order): conv arrives weight, bias; Linear arrives bias, weight."""
    tensors, groups = [], []
    channels = 3
    for i, out in enumerate([64, 128, 256, 256, 512, 512, 512, 512]):
        tensors += [("conv%d.weight" % i, [out, channels, 3, 3]), ("conv%d.bias" % i, [out])]
        groups.append(["conv%d.weight" % i, "conv%d.bias" % i])
        channels = out
    features = 25088
    for i, out in enumerate([4096, 4096, 1000]):
        tensors += [("fc%d.weight" % i, [out, features]), ("fc%d.bias" % i, [out])]
        groups.append(["fc%d.bias" % i, "fc%d.weight" % i])
        features = out
    arrival = []
    for group in reversed(groups):
        arrival += group
    return fp32(tensors), arrival


def vit_h14():
    h, mlp = 1280, 5120
    tensors = [
        ("class_token", [1, 1, h]),
        ("conv_proj.weight", [h, 3, 14, 14]),
        ("conv_proj.bias", [h]),
        ("pos_embedding", [1, 257, h]),
    ]
    for i in range(32):
        for name, shape in [
            ("ln_1", [h]),
            ("in_proj", [3 * h, h]),
            ("out_proj", [h, h]),
            ("ln_2", [h]),
            ("mlp.0", [mlp, h]),
            ("mlp.3", [h, mlp]),
        ]:
            tensors += [("%d.%s.weight" % (i, name), shape), ("%d.%s.bias" % (i, name), shape[:1])]
    tensors += [
        ("ln.weight", [h]),
        ("ln.bias", [h]),
        ("heads.weight", [1000, h]),
        ("heads.bias", [1000]),
    ]
    arrival = ["heads.bias", "heads.weight", "ln.weight", "ln.bias"]
    for i in reversed(range(32)):
        for name in [
            "mlp.3.bias",
            "mlp.3.weight",
            "mlp.0.bias",
            "mlp.0.weight",
            "ln_2.weight",
            "ln_2.bias",
            "out_proj.bias",
            "out_proj.weight",
            "in_proj.bias",
            "in_proj.weight",
            "ln_1.weight",
            "ln_1.bias",
        ]:
            arrival.append("%d.%s" % (i, name))
    arrival += ["pos_embedding", "class_token", "conv_proj.weight", "conv_proj.bias"]
    return fp32(tensors), arrival


def summary(tensors, buckets):
    return [[len(bucket), total_size([tensors[index] for index in bucket])] for bucket in buckets]


def self_test(buckets_path, models_path):
    with open(buckets_path) as file:
        expected = json.load(file)
    with open(models_path) as file:
        models = json.load(file)
    checks, failures = 0, 0

    def check(label, got, want):
        nonlocal checks, failures
        checks += 1
        if got != want:
            failures += 1
            print("FAIL %s\n  got  %s\n  want %s" % (label, got, want))

    def arrival_indices(tensors, arrival):
        position = {}
        for index, tensor in enumerate(tensors):
            position[tensor["name"]] = index
        return [position[name] for name in arrival]

    small = bucket_caps(None, MIB, (2, 7))
    for model, rows in expected.items():
        tensors = fp32(models[model]["tensors"])
        order = arrival_indices(tensors, models[model]["arrival"])
        computed = {
            "ddp_rebuilt_default": rebuilt_buckets(tensors, order, small),
            "ddp_rebuilt_cap25": rebuilt_buckets(tensors, order, bucket_caps(25, MIB, (2, 7))),
            "ddp_initial_default": initial_buckets(tensors, [NO_LIMIT]),
            "ddp_initial_find_unused": initial_buckets(tensors, small),
        }
        for row, want in rows.items():
            if row.startswith("ddp_"):
                check(model + " " + row, summary(tensors, computed[row]), want)

    tensors, arrival = vgg11()
    check("VGG-11 tensors", len(tensors), 22)
    check("VGG-11 parameters", total_size(tensors), 4 * 132863336)
    buckets = rebuilt_buckets(tensors, arrival_indices(tensors, arrival), small)
    check(
        "VGG-11 buckets",
        [nbytes for count, nbytes in summary(tensors, buckets)],
        [16388000, 67125248, 411058176, 28315648, 8566272],
    )

    tensors, arrival = vit_h14()
    check("ViT-H/14 tensors", len(tensors), 392)
    check("ViT-H/14 parameters", total_size(tensors), 4 * 632045800)
    buckets = rebuilt_buckets(tensors, arrival_indices(tensors, arrival), small)
    check(
        "ViT-H/14 buckets",
        [nbytes for count, nbytes in summary(tensors, buckets)],
        [5124000] + 32 * [26229760, 26234880, 26245120] + [4346880],
    )

    # ResNet-18 as measured by a user of PyTorch < 2.4 (issue #48880): explicit caps, small first
    # bucket.
    tensors = fp32(models["resnet18"]["tensors"])
    order = arrival_indices(tensors, models["resnet18"]["arrival"])
    for cap, want in [(25, [2052000, 28852224, 15853824]), (35, [2052000, 38297600, 6408448])]:
        buckets = rebuilt_buckets(tensors, order, bucket_caps(cap, MIB, (2, 0)))
        check(
            "ResNet-18 measured, cap %d" % cap,
            [nbytes for count, nbytes in summary(tensors, buckets)],
            want,
        )

    print("%d checks, %d failures" % (checks, failures))
    return failures


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "--self-test":
        return 1 if self_test(arguments[1], arguments[2]) else 0
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print_listing(listing(arguments[0]))
    except Refused as refused:
        print("oracle: refused: %s" % refused, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
