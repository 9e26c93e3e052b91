#!/usr/bin/env python3
"""Which operations does one rank of DeepSpeed's ZeRO issue in a step, and what does each wait for?

DeepSpeed 0.14.5, stages 1, 2 and 3, written from its behaviour and from no line of the simulator.
It plays the hooks on the host and keeps buckets, trace, streams, events and parameters as the hooks
leave them.

  deepspeed.py QUESTION.json    the operations of a steady step, one a line
  deepspeed.py --all QUESTION.json  those of every step
  deepspeed.py --self-test      closed forms

A question: {"world_size": N, "rank": R, "parameters": [[name, elements] ...] in registration order,
"modules": {module: [parameters of its own, by index]}, "forward": [["enter", module] | ["exit",
module] | ["use", parameter] ...] in the order in which modules run, the root "" included for stage
3, "steps": K}, and any knob of KNOBS. "use" is for a parameter that a module with other modules
uses itself; one without is used where its module begins. "arrival" is the order of gradients
(default: the forward read from its end), "no_input_gradient" the modules whose inputs need no
gradient (default: those that begin before any module with parameters has ended).

How a backward follows from a forward (stage 3): autograd runs nodes in reverse order of their
creation. Where a module's forward ended, its backward begins (parameters are fetched); where it
began, its gradients are complete and its parameters are released, unless its inputs need no
gradient: then there is no node that could release them.

An operation on a stream waits for all before it on this stream and for `waits`. A collective runs
on its communicator's own stream, in the order of issue, after what the stream had when it was
issued; the stream goes on after it unless it is `async`. Then a `wait_work` says when.

Copies between device and host, of stage 3, are kernels of their own: `to_device` and `to_host`, and
with `_blocking` where the host waits for them whatever memory is pinned; `host_...` is the host's
own work. Not here: offloading of stages 1 and 2, to NVMe or in part, MoE, hpZ, MiCS, pipelines,
qgZ with error feedback (LoCo), sparse gradients, parameters without a gradient,
`wall_clock_breakdown`, BF16_Optimizer (stage 1, bf16, gradients in fp32).
"""
import dataclasses
import json
import sys
import types

SIZE = {"int8": 1, "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "uint8": 1}
DTYPE = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

KNOBS = {
    "stage": 2,
    "reduce_bucket_size": 500_000_000,  # elements, as all sizes are
    "allgather_bucket_size": 500_000_000,  # unused where all_gather_into_tensor exists
    "reduce_scatter": True,
    "contiguous_gradients": True,
    "overlap_comm": None,  # stage 3: True, else False
    "use_multi_rank_bucket_allreduce": True,
    "round_robin_gradients": False,
    "stage3_prefetch_bucket_size": 50_000_000,
    "stage3_param_persistence_threshold": 100_000,
    "stage3_model_persistence_threshold": sys.maxsize,
    "stage3_max_live_parameters": 1_000_000_000,
    "stage3_max_reuse_distance": 1_000_000_000,
    "sub_group_size": 1_000_000_000,
    "offload_optimizer": None,  # {"device": "cpu", "pin_memory": ...}, of stage 3
    "offload_param": None,
    "zero_quantized_weights": False,  # qwZ, of stage 3: all-gathers of int8 and of scales
    "zero_quantized_gradients": False,  # qgZ, of stage 3: all-to-alls of int4 and of scales
    "devices_per_node": 1,  # qgZ: get_accelerator().device_count()
    "dtype": "fp32",
    "communication_data_type": None,  # the dtype
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 0.0,  # no operation depends on it
    "gradient_predivide_factor": 1.0,
    "prescale_gradients": False,
    "throughput_timer": True,  # timers: throughput: enabled and synchronized
    "steps": 4,
}
OTHERS = (
    "world_size",
    "rank",
    "parameters",
    "modules",
    "forward",
    "arrival",
    "no_input_gradient",
    "buffers",
    "shapes",  # of parameters, for qgZ
)


@dataclasses.dataclass(frozen=True)
class Op:
    """What was issued; of one source (a stream, a communicator) operations end in order."""

    number: int
    source: str
    stream: str | None  # that goes on behind it; None: an asynchronous collective
    name: str


class Device:
    """Streams, events, communicators and the host of one rank."""

    def __init__(self):
        self.log = []
        self.issued = 0
        self.first = 0  # of this step
        self.last = {}  # of each stream: the operation issued last
        self.communicator = {}  # of each: the collective issued last
        self.pending = {}  # of each stream: by source, what its next operation must wait for
        self.known = {}  # of each stream, and of the host: by source, the number it has waited for
        self.count = {}

    def begin_step(self):
        self.log, self.count, self.first = [], {}, self.issued

    def name(self, op):
        return op.name if op.number >= self.first else "previous/" + op.name

    def names(self, ops, who):
        """In order of issue, without what `who` or the host knows to have ended."""
        news = []
        for op in sorted(ops, key=lambda op: op.number):
            if op.number > max(self.known.get(w, {}).get(op.source, -1) for w in (who, "host")):
                news.append(self.name(op))
        for op in ops:
            known = self.known.setdefault(who, {})
            known[op.source] = max(known.get(op.source, -1), op.number)
        return news

    def must_wait(self, stream, ops):
        pending = self.pending.setdefault(stream, {})
        for op in ops:
            if op.stream != stream:
                if op.source not in pending or pending[op.source].number < op.number:
                    pending[op.source] = op

    def wait(self, stream, on):
        """A stream waits for what another has been given so far."""
        self.log.append({"do": "wait", "stream": stream, "on": on})
        if stream != on:
            self.must_wait(stream, self.given(on))

    def wait_work(self, stream, work):
        """A stream waits for an asynchronous collective."""
        self.log.append({"do": "wait_work", "stream": stream, "on": work.name})
        self.must_wait(stream, [work])

    def given(self, stream):
        """What must have ended so that all that a stream was given has ended."""
        last = [self.last[stream]] if stream in self.last else []
        return last + list(self.pending.get(stream, {}).values())

    def host_wait(self, why, on, after=None):
        if after is None and on == "device":
            after = [*self.last.values(), *self.communicator.values()]
        elif after is None:
            after = self.given(on)
        names = self.names(after, "host")
        self.log.append({"do": "host_wait", "why": why, "on": on, "after": names})

    def mark(self, what, **fields):
        self.log.append({"do": "mark", "what": what, **fields})

    def issue(self, stream, name, **fields):
        number = self.count.get(name, 0)
        self.count[name] = number + 1
        full = name if number == 0 else f"{name}#{number}"
        source = "communicator/" + fields["comm"] if "operation" in fields else stream
        issued = Op(self.issued, source, None if fields.get("async") else stream, full)
        self.issued += 1
        said = {"do": "op", "op": full, "stream": stream}
        said["waits"] = self.names(self.pending.get(stream, {}).values(), stream)
        said.update(fields)
        self.log.append(said)
        if "operation" in fields:
            before = self.communicator.get(fields["comm"])
            if before:
                said["after_in_communicator"] = self.name(before)
            self.communicator[fields["comm"]] = issued
        if issued.stream:
            self.pending.pop(stream, None)
            self.last[stream] = issued
        return issued

    def kernel(self, stream, kernel, what, elements, recorded=True, **fields):
        return self.issue(
            stream,
            f"{kernel}/{what}",
            kernel=kernel,
            elements=elements,
            recorded=recorded,
            **fields,
        )

    def collective(self, stream, operation, what, elements, dtype, comm, group, **fields):
        return self.issue(
            stream,
            f"{operation}/{what}",
            operation=operation,
            elements=elements,
            dtype=dtype,
            bytes=elements * SIZE[dtype],
            comm=comm,
            group=group,
            **fields,
        )


class Question(types.SimpleNamespace):
    def __init__(self, said):
        for knob in said:
            if knob not in KNOBS and knob not in OTHERS:
                raise ValueError(f"unknown: {knob}")
        for knob, value in KNOBS.items():
            setattr(self, knob, said.get(knob, value))
        if self.stage not in (1, 2, 3):
            raise ValueError(f"stage {self.stage}: 1, 2 and 3 are known")
        for offload in (self.offload_optimizer, self.offload_param):
            if offload and (self.stage != 3 or offload["device"] != "cpu"):
                raise ValueError("offloading is played of stage 3, to the CPU")
        if self.overlap_comm is None:
            self.overlap_comm = self.stage == 3
        self.dtype = DTYPE.get(self.dtype, self.dtype)
        self.wire = self.communication_data_type or self.dtype
        self.wire = DTYPE.get(self.wire, self.wire)
        if self.reduce_scatter and self.stage >= 2:
            if self.gradient_predivide_factor != 1.0 or self.prescale_gradients:
                raise ValueError("with reduce_scatter stages 2 and 3 refuse predivide and prescale")
        self.world_size = said["world_size"]
        self.rank = said.get("rank", 0)
        self.names = [p[0] for p in said["parameters"]]
        self.elements = [p[1] for p in said["parameters"]]
        self.shapes = said.get("shapes") or [[n] for n in self.elements]
        self.nodes = self.world_size // self.devices_per_node
        self.exchanges = self.zero_quantized_gradients and self.nodes > 1
        if self.zero_quantized_gradients and (self.stage != 3 or not self.reduce_scatter):
            raise ValueError("qgZ is of stage 3, with reduce_scatter")
        if self.exchanges and self.world_size % self.devices_per_node:
            raise ValueError("qgZ has groups of whole nodes")
        self.modules = said.get("modules", {})
        self.forward = said.get("forward", [])
        self.arrival = said.get("arrival") or self.reversed_forward()
        self.no_input_gradient = said.get("no_input_gradient")
        if self.no_input_gradient is None:
            self.no_input_gradient, ended = [], False
            for what, module in self.forward:
                if what == "exit":
                    ended = ended or bool(self.modules.get(module))
                elif what == "enter" and not ended:
                    self.no_input_gradient.append(module)

    def reversed_forward(self):
        order = []
        for what, module in self.forward:  # a tied parameter's gradient: its first use is the last
            if what == "enter":
                order += [p for p in self.modules.get(module, []) if p not in order]
        order += [p for p in range(len(self.elements)) if p not in order]
        return order[::-1]


class Rank:
    """What the engine does for all stages."""

    run_backward: object  # these three are of each stage
    after_backward: object
    optimizer_step: object

    def __init__(self, said):
        self.q = Question(said)
        self.device = Device()
        self.global_steps = 0
        self.timed = False  # the throughput timer has begun to measure

    def timer_start(self):
        if self.q.throughput_timer and self.global_steps >= 2:
            self.device.host_wait("device.synchronize", "device")
            self.timed = True

    def timer_stop(self):
        if self.timed:
            self.device.host_wait("device.synchronize", "device")

    def scalar(self, name, dtype, op):
        self.device.collective(
            "main",
            "all_reduce",
            name,
            1,
            dtype,
            "g0",
            self.q.world_size,
            reduce_op=op,
            tensors=None,
        )

    def step(self):
        q, d = self.q, self.device
        d.begin_step()
        for micro_step in range(q.gradient_accumulation_steps):
            self.boundary = micro_step + 1 == q.gradient_accumulation_steps
            d.mark("micro_batch", number=micro_step)
            d.mark("forward")
            self.timer_start()
            self.run_forward()
            d.mark("backward")
            if q.gradient_accumulation_steps > 1:
                d.kernel("main", "cast_float", "loss", 1)
            d.kernel("main", "cast_float", "loss", 1)
            self.run_backward()
            self.after_backward()
            d.mark("step")
            if self.boundary:
                self.optimizer_step()
            self.timer_stop()
        self.global_steps += 1
        return d.log

    def run_forward(self):
        for what, module in self.q.forward:
            if what == "enter" and self.q.modules.get(module):
                self.device.issue("main", f"fwd/{module}", module=module)

    def gradient(self, parameter):
        self.device.issue("main", f"bwd/{self.q.names[parameter]}", gradient=parameter)


# --- stages 1 and 2
def aligned(total, world_size):
    """The flat buffer of all parameters: a multiple of 2 elements a rank."""
    return total + -total % (2 * world_size)


def round_robin(count, world_size):
    """Parameters 0, N, 2N ... first, then 1, N + 1 ...: rank 0's, rank 1's ..."""
    return [p for r in range(world_size) for p in range(r, count, world_size)]


class Partitions:
    """Which rank owns which elements of which parameter."""

    def __init__(self, elements, world_size, order):
        self.total = aligned(sum(elements), world_size)
        self.size = self.total // world_size
        self.slices = {}  # of each parameter: [rank, first element, elements]
        offset = 0
        for p in order:
            self.slices[p] = []
            begin = 0
            for rank in range(world_size):
                end = min(max((rank + 1) * self.size - offset, 0), elements[p])
                if end > begin:
                    self.slices[p].append([rank, begin, end - begin])
                    begin = end
            offset += elements[p]

    def elements_of(self, rank):
        return sum(s[2] for slices in self.slices.values() for s in slices if s[0] == rank)

    def owns(self, rank, parameter):
        return any(r == rank for r, _, _ in self.slices[parameter])


class Stage12(Rank):
    def __init__(self, said):
        super().__init__(said)
        q = self.q
        count = len(q.elements)
        order = round_robin(count, q.world_size) if q.round_robin_gradients else list(range(count))
        self.partitions = Partitions(q.elements, q.world_size, order)
        self.stream = "reduction" if q.overlap_comm else "main"
        self.bucket = []
        self.in_bucket = 0
        self.buffer = 0  # overlap_comm: the next bucket goes into the other one
        self.to_clear = []

    # --- a bucket
    def ready(self, p):
        q, d = self.q, self.device
        if self.in_bucket + q.elements[p] > q.reduce_bucket_size:
            self.reduce_bucket()
            if q.contiguous_gradients and q.overlap_comm:
                self.buffer = 1 - self.buffer
        if q.contiguous_gradients and q.elements[p] <= q.reduce_bucket_size:
            d.kernel(
                "main",
                "copy",
                f"bucket/{q.names[p]}",
                q.elements[p],
                tensors=[p],
                buffer=self.buffer,
            )
        self.in_bucket += q.elements[p]
        self.bucket.append(p)

    def reduce_bucket(self):
        q, d = self.q, self.device
        if q.contiguous_gradients:
            self.average()
        elif self.bucket:
            self.reduce_part(list(self.bucket), self.in_bucket, None, divide=True)
            d.kernel(
                self.stream,
                "copy",
                "out",
                self.in_bucket,
                pieces=len(self.bucket),
                in_place=len(self.bucket) == 1,
            )
        for p in self.bucket:
            if self.partitions.owns(q.rank, p):
                if q.contiguous_gradients:  # the bucket will be overwritten
                    d.kernel(self.stream, "copy", f"own/{q.names[p]}", q.elements[p], tensors=[p])
            elif q.stage == 2:
                if q.overlap_comm and not q.contiguous_gradients:
                    self.to_clear.append(p)  # while the reduction may still read it
                else:
                    d.mark("free_gradient", tensors=[p])
        self.bucket, self.in_bucket = [], 0

    def clear_previous(self):
        if self.to_clear:
            self.device.mark("free_gradient", tensors=self.to_clear)
            self.to_clear = []

    def synchronize(self):
        self.device.host_wait("device.synchronize", "device")
        self.clear_previous()

    def average(self):
        """A bucket that lies in one buffer, or one parameter larger than the bucket."""
        q, d = self.q, self.device
        if q.overlap_comm:
            d.wait(self.stream, "main")
            d.wait("main", self.stream)  # so the next bucket is copied after the one before this
        if not q.reduce_scatter:
            return self.all_reduce_with_predivide()
        d.kernel(self.stream, "div", "bucket", self.in_bucket, tensors=list(self.bucket))
        slices = []  # [rank, elements], neighbours of one rank made one
        for p in self.bucket:
            for rank, _, elements in self.partitions.slices[p]:
                if slices and slices[-1][0] == rank:
                    slices[-1][1] += elements
                else:
                    slices.append([rank, elements])
        if q.use_multi_rank_bucket_allreduce:
            groups = {None: slices}
        else:
            groups = {}
            for s in slices:
                groups.setdefault(s[0], []).append(s)
        for root, group in groups.items():
            part, elements = [], 0
            for s in group:
                part.append(s)
                elements += s[1]
                if elements > q.reduce_bucket_size:
                    self.reduce_slices(part, elements, root)
                    part, elements = [], 0
            if part:
                self.reduce_slices(part, elements, root)

    def reduce_slices(self, slices, elements, root):
        q, d = self.q, self.device
        if q.overlap_comm and root is not None:
            self.synchronize()
        self.reduce_part(list(self.bucket), elements, root, slices=slices)
        own = [s for s in slices if s[0] == q.rank]
        if own:
            d.kernel(
                self.stream,
                "copy",
                "out",
                sum(s[1] for s in own),
                pieces=len(own),
                in_place=len(slices) == 1,
            )

    def reduce_part(self, tensors, elements, root, slices=None, divide=False):
        """Flatten, perhaps cast, perhaps divide, reduce."""
        q, d = self.q, self.device
        if slices is None and q.overlap_comm:
            self.synchronize()
        pieces = len(tensors) if slices is None else len(slices)
        if pieces > 1:
            d.kernel(self.stream, "cat", "bucket", elements, recorded=False, inputs=pieces)
        if q.wire != q.dtype:
            d.kernel(self.stream, "cast", "bucket", elements, recorded=False)
        if divide:
            d.kernel(self.stream, "div", "bucket", elements, tensors=tensors)
        fields = {"reduce_op": "SUM"} if root is None else {"root": root}
        d.collective(
            self.stream,
            "all_reduce" if root is None else "reduce",
            "bucket",
            elements,
            q.wire,
            "g0",
            q.world_size,
            tensors=tensors,
            slices=slices,
            **fields,
        )
        if q.wire != q.dtype and root in (None, q.rank):
            d.kernel(self.stream, "copy", "cast_back", elements)

    def all_reduce_with_predivide(self):
        q, d = self.q, self.device
        elements, tensors = self.in_bucket, list(self.bucket)
        if not elements:
            return
        if q.wire != q.dtype:
            d.kernel(self.stream, "cast", "bucket", elements, recorded=False)
        if q.prescale_gradients:
            d.kernel(self.stream, "div", "bucket", elements, tensors=tensors)
        elif q.gradient_predivide_factor != 1.0:
            d.kernel(self.stream, "mul", "before", elements, tensors=tensors)
        d.collective(
            self.stream,
            "all_reduce",
            "bucket",
            elements,
            q.wire,
            "g0",
            q.world_size,
            reduce_op="SUM",
            tensors=tensors,
            slices=None,
        )
        if not q.prescale_gradients and q.gradient_predivide_factor != q.world_size:
            d.kernel(self.stream, "mul", "after", elements, tensors=tensors)
        if q.wire != q.dtype:
            d.kernel(self.stream, "copy", "cast_back", elements)

    # --- backward and step
    def run_backward(self):
        hooks = self.q.stage == 2 or (self.q.overlap_comm and self.boundary)
        for p in self.q.arrival:
            self.gradient(p)
            if hooks:
                self.ready(p)
        self.buffer = 0

    def after_backward(self):
        q, d = self.q, self.device
        if q.stage == 1 and not self.boundary:
            return
        if q.stage == 1 and not q.overlap_comm:
            for p in range(len(q.elements)):
                self.ready(p)
        self.reduce_bucket()
        if q.overlap_comm:
            self.synchronize()
        if q.stage == 2 and q.gradient_accumulation_steps > 1 and not d.count.get("first_micro"):
            d.count["first_micro"] = 1
        elif q.stage == 2 and q.gradient_accumulation_steps > 1:
            elements, tensors = self.own_gradients()
            d.kernel("main", "add", "partition", elements, recorded=False, pieces=tensors)
        d.mark("free_gradient", tensors="all that is not in this rank's partition")

    def own_gradients(self):
        """Elements and tensors of this rank's partition, zeros behind the last one included."""
        owned = sum(self.partitions.owns(self.q.rank, p) for p in range(len(self.q.elements)))
        padded = self.partitions.elements_of(self.q.rank) < self.partitions.size
        return self.partitions.size, owned + padded

    def optimizer_step(self):
        q, d = self.q, self.device
        size = self.partitions.size
        tensors = self.own_gradients()[1]
        if q.dtype == "float16":
            d.kernel("main", "cast_float", "overflow", 2 * size, pieces=2 * tensors)
            self.scalar("overflow", "uint8", "MAX")
            d.host_wait("item", "main")
        if self.partitions.elements_of(q.rank):
            d.kernel("main", "cast_float", "norm", 1)
        self.scalar("norm", "float32", "SUM")
        if tensors > 1:
            d.kernel("main", "cat", "gradients", size, recorded=False, inputs=tensors)
        if q.dtype != "float32":
            d.kernel("main", "cast", "gradients", size, recorded=False)
        d.kernel("main", "mul", "unscale", size)
        d.kernel("main", "optimizer", "partition", size, recorded=False)
        d.kernel("main", "copy", "weights", size)
        if q.world_size > 1:
            d.collective(
                "main",
                "all_gather",
                "weights",
                self.partitions.total,
                q.dtype,
                "g0",
                q.world_size,
                shard_elements=size,
                tensors=None,
            )


# --- stage 3
def quantisation_groups(elements):
    """CUDAQuantizer.quantize(), which stops where there are none."""
    groups = -(-elements // 8000)
    while groups < elements and elements % (8 * groups):
        groups += 1
    if elements % (8 * groups) or elements <= groups:
        raise ValueError(f"{elements} elements are of no whole groups")
    return groups


class Stage3(Rank):
    LIMIT = 2  # events that may stand while one more is made

    def __init__(self, said):
        super().__init__(said)
        q = self.q
        if q.world_size == 1:
            raise ValueError("one rank: nothing is gathered")
        self.shard = [-(-n // q.world_size) for n in q.elements]
        self.gather_stream = "all_gather" if q.overlap_comm else "main"
        self.reduce_stream = "reduce_and_partition" if q.overlap_comm else "main"
        self.persistent, total = [], 0
        for p, n in enumerate(q.elements):
            if n + total <= q.stage3_model_persistence_threshold:
                if n <= q.stage3_param_persistence_threshold:
                    self.persistent.append(p)
                    total += n
        self.status = ["away"] * len(q.elements)  # "flying", "here"
        self.users = [set() for _ in q.elements]  # modules between fetch and release
        self.flying = {}  # parameter: its gather
        self.scales = {}  # gather: that of its scales
        self.gathers = {}  # gather: parameters that its first wait must put together
        self.fetch_events, self.reduce_events = [], []
        # the trace
        self.complete = False
        self.module_order = []
        self.trace = []  # (parameter, number of the fetch that uses it)
        self.queue = []
        self.fetched_until = {}  # parameter: the last use that a fetch or prefetch has passed
        self.fetches = 0
        self.available = 0
        self.cache = {}  # what a module may release, decided once and never again
        # gradients
        self.bucket = []
        self.micro_step = 0
        self.inputs_left = {}

    # --- events
    def push(self, events, stream):
        events.append([stream, self.device.given(stream)])

    def limit(self, events):
        """Events that are done are dropped first; if more than two still stand, the host waits for
        the first. Events of one stream end in order: so it waits for the third last, which may
        long be done."""
        if len(events) > self.LIMIT:
            stream, after = events.pop(0)
            self.device.host_wait("event.synchronize", stream, after)

    def move(self, stream, how, elements):
        self.device.kernel(stream, how, "shard", elements, recorded=False)

    # --- fetch and release
    def gather(self, parameters, module, prefetch):
        """One all-gather for all of them, in order of registration."""
        q, d = self.q, self.device
        parameters = sorted(p for p in parameters if self.status[p] == "away")
        if not parameters:
            return
        shard = sum(self.shard[p] for p in parameters)
        self.available += sum(q.elements[p] for p in parameters)
        if q.offload_param:  # .to(device), one by one
            for p in parameters:
                self.move(self.gather_stream, "to_device_blocking", self.shard[p])
        if len(parameters) > 1:
            d.kernel(self.gather_stream, "cat", "shards", shard, recorded=False)
        what = [(shard, q.dtype)]
        if q.zero_quantized_weights:
            groups = quantisation_groups(shard)
            d.kernel(self.gather_stream, "quantize", "shards", shard, recorded=False, groups=groups)
            what = [(shard, "int8"), (groups, "float32")]
        works = [
            d.collective(
                self.gather_stream,
                "all_gather",
                module or "(root)",
                own * q.world_size,
                dtype,
                "world",
                q.world_size,
                shard_elements=own,
                tensors=parameters,
                issued_by=module,
                prefetch=prefetch,
                **{"async": True},
            )
            for own, dtype in what
        ]
        work = works[0]
        for p in parameters:
            self.status[p] = "flying"
            self.flying[p] = work
        self.gathers[work] = parameters
        self.scales[work] = works[1:]

    def wait_for(self, p):
        q, d = self.q, self.device
        self.limit(self.fetch_events)
        work = self.flying.pop(p)
        together = self.gathers.pop(work, None)
        if together:  # the first wait: put every parameter of the gather together
            d.wait_work(self.gather_stream, work)
            for scales in self.scales.pop(work):
                d.wait_work(self.gather_stream, scales)
                alone = len(together) == 1
                shards = sum(self.shard[other] for other in together)
                n = q.elements[p] if alone else shards * q.world_size
                groups = quantisation_groups(shards) * q.world_size
                d.kernel(
                    self.gather_stream, "dequantize", "all", n, recorded=False, groups=groups
                )
            for other in together:
                if len(together) > 1:
                    d.kernel(
                        self.gather_stream,
                        "cat",
                        f"assemble/{q.names[other]}",
                        q.elements[other],
                        recorded=False,
                    )
                self.status[other] = "here"
        self.push(self.fetch_events, self.gather_stream)

    def fetch(self, module, forward):
        q, d = self.q, self.device
        d.mark("fetch", module=module, forward=forward)
        own = q.modules.get(module, [])
        if self.complete:
            if self.fetches >= len(self.module_order):
                raise ValueError("more modules than in the trace")
            if self.module_order[self.fetches] != module:
                raise ValueError(f"{module}: the trace has {self.module_order[self.fetches]}")
        else:
            self.module_order.append(module)
        self.gather(own, module, False)
        for p in own:
            self.users[p].add(module)
            if p in self.flying:
                self.wait_for(p)
        d.wait("main", self.gather_stream)
        if self.complete:
            self.prefetch(module, own)
        self.fetches += 1

    def prefetch(self, module, own):
        q = self.q
        # the module's own uses leave the queue, unless an earlier prefetch took them off
        expected = {p for p in own if self.fetched_until.get(p, -1) < self.fetches}
        passed = set()
        while self.queue and len(passed) < len(expected):
            p, use = self.queue.pop(0)
            self.fetched_until[p] = use
            passed.add(p)
        if passed != expected:
            raise ValueError(f"{module}: the queue has {passed}, not {expected}")
        if q.stage3_prefetch_bucket_size <= 0:
            return
        room = min(q.stage3_max_live_parameters - self.available, q.stage3_prefetch_bucket_size)
        ahead, elements = [], 0
        while self.queue and elements < room:
            p, use = self.queue.pop(0)
            self.fetched_until[p] = max(self.fetched_until.get(p, -1), use)
            if self.status[p] == "away" and p not in ahead:
                ahead.append(p)
                elements += q.elements[p]
        self.gather(ahead, module, True)

    def may_release(self, module):
        """Computed once for each module and place in the step, the first time it is asked."""
        q = self.q
        key = (module, self.fetches)
        if key not in self.cache:
            free = [p for p in q.modules.get(module, []) if p not in self.persistent]
            free = [p for p in free if self.fetched_until.get(p, -1) <= self.fetches]
            passed = 0
            for later in self.module_order[self.fetches :]:
                if passed >= q.stage3_max_reuse_distance:
                    break
                for p in q.modules.get(later, []):
                    if p in free:
                        free.remove(p)
                    passed += q.elements[p]
            self.cache[key] = free
        return self.cache[key]

    def release(self, p):
        if self.status[p] == "here" and not self.users[p]:
            self.device.mark("release", tensors=[p], elements=self.q.elements[p])
            self.status[p] = "away"
            self.available -= self.q.elements[p]

    def release_module(self, module):
        own = self.q.modules.get(module, [])
        free = self.may_release(module) if self.complete else own
        for p in own:
            self.users[p].discard(module)
            if p in free:
                self.release(p)

    def end_of_trace(self):
        """After every backward."""
        q, d = self.q, self.device
        if self.flying:
            raise ValueError("parameters are still being gathered")
        if not self.complete:
            self.trace = [
                (p, use)
                for use, module in enumerate(self.module_order)
                for p in sorted(q.modules.get(module, []))
            ]
            for what, count in (
                ("modules", len(self.module_order)),
                ("parameters", len(self.trace)),
                ("uses", len(self.trace)),
            ):
                d.collective(
                    "main",
                    "broadcast",
                    f"trace_{what}",
                    count,
                    "int64",
                    "world",
                    q.world_size,
                    root=0,
                    tensors=None,
                )
                d.host_wait("item", "main")
            self.complete = True
        self.queue = list(self.trace)
        self.fetched_until = {}
        self.fetches = 0
        self.available = 0  # also where parameters are still here

    # --- forward and backward
    def run_forward(self):
        q, d = self.q, self.device
        self.inputs_left = {}
        self.calls = []
        for what, module in q.forward:
            if what == "enter":
                if q.modules.get(module):
                    d.mark("module", module=module)
                self.fetch(module, True)
                if q.modules.get(module):
                    d.issue("main", f"fwd/{module}", module=module)
                self.inputs_left[module] = 0 if module in q.no_input_gradient else 1
            elif what == "exit":
                self.release_module(module)

    def run_backward(self):
        q = self.q
        first_use = {}  # of each parameter: autograd comes to it last
        said = {which for what, which in q.forward if what == "use"}
        for at, (what, which) in enumerate(q.forward):
            if what == "enter":
                for p in q.modules.get(which, []):
                    if p not in said:
                        first_use.setdefault(p, at)
            elif what == "use":
                first_use.setdefault(which, at)
        place = {p: i for i, p in enumerate(q.arrival)}
        for at in range(len(q.forward) - 1, -1, -1):
            what, module = q.forward[at]
            if what == "exit":
                self.fetch(module, False)
                continue
            if what == "use":
                if first_use[module] == at:
                    self.gradient(module)
                    self.ready(module)
                continue
            complete = [p for p in q.modules.get(module, []) if first_use.get(p) == at]
            for p in sorted(complete, key=place.get):
                self.gradient(p)
                self.ready(p)
            if module not in q.no_input_gradient:
                # counts one call: a module that ran twice releases after its last call only
                self.inputs_left[module] -= 1
                if self.inputs_left[module] == 0:
                    self.release_module(module)
        self.end_of_trace()

    # --- gradients
    def in_bucket(self):
        return sum(self.q.elements[p] for p in self.bucket)

    def ready(self, p):
        q, d = self.q, self.device
        if self.bucket and self.in_bucket() + q.elements[p] > q.reduce_bucket_size:
            self.reduce_bucket()
        d.wait(self.reduce_stream, "main")
        if q.contiguous_gradients and self.in_bucket() + q.elements[p] <= q.reduce_bucket_size:
            d.kernel(self.reduce_stream, "copy", f"bucket/{q.names[p]}", q.elements[p], tensors=[p])
        self.bucket.append(p)

    def reduce_bucket(self):
        q, d = self.q, self.device
        if not self.bucket:
            return
        self.limit(self.reduce_events)
        stream, elements = self.reduce_stream, self.in_bucket()
        if q.contiguous_gradients and not q.reduce_scatter and elements <= q.reduce_bucket_size:
            self.all_reduce(stream, elements)
        else:
            self.bucket.sort()
            if q.exchanges:
                self.exchange(stream)
            else:
                self.reduce_scatter(stream)
        own, pieces = 0, 0
        for p in self.bucket:
            n = min(self.shard[p], q.elements[p] - q.rank * self.shard[p])
            if n > 0:
                # the all-reduce's own part is padded with zeros, the reduce-scatter's is cut
                own += n if self.by_scatter else self.shard[p]
                pieces += 1
        if q.offload_optimizer:
            self.offload_gradients(stream)
        elif pieces:
            d.kernel(
                stream,
                "copy" if self.micro_step == 0 else "add",
                "partition",
                own,
                recorded=self.micro_step == 0,
                pieces=pieces,
            )
        d.mark("free_gradient", tensors=list(self.bucket))
        self.bucket = []
        self.push(self.reduce_events, stream)

    def offload_gradients(self, stream):
        """partition_grads(): the host's buffer, what is added to it on the device, and in the last
        micro-step a norm and the optimizer's gradient, which the host waits for."""
        q, d = self.q, self.device
        for p in self.bucket:
            n = min(self.shard[p], q.elements[p] - q.rank * self.shard[p])
            if n <= 0:
                continue
            n = n if self.by_scatter else self.shard[p]
            if self.micro_step == 0:
                self.move(stream, "to_host", n)
                self.move(stream, "to_device", n)
            else:
                self.move(stream, "to_device", n)
                d.kernel(stream, "add", "shard", n, recorded=False)
                self.move(stream, "to_host", n)
            if self.boundary:
                d.kernel(stream, "double", "norm", n, recorded=False)
                self.move(stream, "to_host_blocking", n)

    def all_reduce(self, stream, elements):
        q, d = self.q, self.device
        self.by_scatter = False
        tensors = list(self.bucket)  # as they arrived
        if q.wire != q.dtype:
            d.kernel(stream, "cast", "bucket", elements, recorded=False)
        if not q.prescale_gradients and q.gradient_predivide_factor != 1.0:
            d.kernel(stream, "div", "before", elements, tensors=tensors)
        d.kernel(stream, "div", "bucket", elements, tensors=tensors)
        d.collective(
            stream,
            "all_reduce",
            "bucket",
            elements,
            q.wire,
            "g0",
            q.world_size,
            reduce_op="SUM",
            tensors=tensors,
        )
        if not q.prescale_gradients and q.gradient_predivide_factor != q.world_size:
            d.kernel(stream, "mul_new", "after", elements, recorded=False, tensors=tensors)
        if q.wire != q.dtype:
            d.kernel(stream, "cast", "cast_back", elements, recorded=False)

    def reduce_scatter(self, stream):
        q, d = self.q, self.device
        self.by_scatter = True
        tensors = list(self.bucket)
        shard = sum(self.shard[p] for p in tensors)
        padded = shard * q.world_size
        elements, count = self.in_bucket(), len(tensors)
        if q.wire != q.dtype:
            d.kernel(stream, "cast", "bucket", elements, recorded=False, pieces=count)
        predivide = not q.prescale_gradients and q.gradient_predivide_factor != 1.0
        if predivide:
            d.kernel(stream, "div_new", "before", elements, recorded=False, pieces=count)
        if len(tensors) > 1 or padded != q.elements[tensors[0]]:
            d.kernel(stream, "cat", "interleave", padded, recorded=False, inputs=len(tensors))
        d.kernel(stream, "div", "bucket", padded, tensors=tensors)
        d.collective(
            stream,
            "reduce_scatter",
            "bucket",
            padded,
            q.wire,
            "g0",
            q.world_size,
            shard_elements=shard,
            tensors=tensors,
        )
        own = [min(self.shard[p], q.elements[p] - q.rank * self.shard[p]) for p in tensors]
        elements, count = sum(max(n, 0) for n in own), len(own)
        if predivide and q.gradient_predivide_factor != q.world_size:
            d.kernel(stream, "mul_new", "after", elements, recorded=False, pieces=count)
        if q.wire != q.dtype:
            d.kernel(stream, "cast", "cast_back", elements, recorded=False, pieces=count)

    def exchange(self, stream):
        """all_to_all_quant_reduce(): one gradient after another."""
        q, d = self.q, self.device
        self.by_scatter = True
        world, local = q.world_size, q.devices_per_node
        bucket = list(self.bucket)
        for p in bucket:
            n, shape = q.elements[p], q.shapes[p]
            if len(shape) == 1 or n % (2 * world):
                self.scatter_alone(stream, p, bucket)
                continue
            scales = max(shape[0], shape[1], world)

            def all_to_all(what, elements, dtype, inside):
                comm = "local" if inside else "across"
                ranks = local if inside else q.nodes
                if elements % ranks:
                    raise ValueError(f"{elements} of {what}: dim 0 does not divide")
                d.collective(
                    stream, "all_to_all", what, elements, dtype, comm, ranks, tensors=bucket
                )

            d.kernel(stream, "swizzle_quant", "gradient", n, recorded=False, groups=scales)
            all_to_all("gradient", n // 2, "int8", True)
            all_to_all("scales", scales, "float32", True)
            d.kernel(
                stream, "quantized_reduction", "parts", n // 2, recorded=False, groups=scales
            )
            all_to_all("parts", n // 2 // local, "int8", False)
            all_to_all("scales", scales // local, "float32", False)
            half = n // 2 // local
            d.kernel(
                stream, "dequantize", "parts", half, recorded=False, groups=scales // local
            )
            for _ in range(q.nodes):
                d.kernel(stream, "add_new", "nodes", n // world, recorded=False)
            d.kernel(stream, "div_new", "mean", n // world, recorded=False)

    def scatter_alone(self, stream, p, bucket):
        """reduce_scatter_coalesced([tensor]), in the group of all."""
        q, d = self.q, self.device
        padded = self.shard[p] * q.world_size
        if padded != q.elements[p]:
            d.kernel(stream, "cat", "pad", padded, recorded=False, inputs=1)
        d.kernel(stream, "div", "gradient", padded, tensors=[p])
        d.collective(
            stream,
            "reduce_scatter",
            "gradient",
            padded,
            q.wire,
            "world",
            q.world_size,
            shard_elements=self.shard[p],
            tensors=bucket,
        )

    def after_backward(self):
        self.reduce_bucket()
        self.device.host_wait("stream.synchronize", self.reduce_stream)
        self.micro_step += 1

    # --- step
    def sub_groups(self):
        q = self.q
        groups, group, size = [], [], 0
        for p in range(len(q.elements)):
            group.append(p)
            size += self.shard[p]
            if size >= q.sub_group_size or p == len(q.elements) - 1:
                groups.append(group)
                group, size = [], 0
        return groups

    def optimizer_step(self):
        q, d = self.q, self.device
        self.micro_step = 0
        for p in range(len(q.elements)):
            self.users[p].clear()
            self.release(p)
        if q.dtype == "float16":
            d.wait("main", self.reduce_stream)
            self.scalar("overflow", "uint8", "MAX")
            d.host_wait("item", "main")
        groups = self.sub_groups()
        for _ in groups:
            if q.offload_optimizer:  # float(sum of the norms), and the norm that comes back
                d.host_wait("item", "main")
            self.scalar("norm", *(("float32" if q.offload_optimizer else "float64"), "SUM"))
            if q.offload_optimizer:
                d.host_wait("item", "main")
        for group in groups:
            size = sum(self.shard[p] for p in group)
            if q.offload_optimizer:
                self.update_on_host(size)
                continue
            if len(group) > 1:
                d.kernel("main", "cat", "gradients", size, recorded=False)
            if q.dtype != "float32":
                d.kernel("main", "cast", "gradients", size, recorded=False)
            d.kernel("main", "mul", "unscale", size)
            d.kernel("main", "optimizer", "partition", size, recorded=False)
            d.kernel("main", "copy", "weights", size)
        self.gather_persistent()

    def update_on_host(self, size):
        self.move("main", "host_mul", size)
        self.move("main", "optimizer", size)
        self.move("main", "host_copy" if self.q.offload_param else "to_device_blocking", size)

    def gather_persistent(self):
        q, d = self.q, self.device
        if q.offload_param:
            for p in self.persistent:
                self.move("main", "to_device_blocking", self.shard[p])
        for p in self.persistent:
            alone = len(self.persistent) == 1
            if alone and not q.offload_param:
                d.kernel("main", "copy", "shard", self.shard[p])
            work = d.collective(
                "main",
                "all_gather",
                f"persistent/{q.names[p]}",
                self.shard[p] * q.world_size,
                q.dtype,
                "world",
                q.world_size,
                shard_elements=self.shard[p],
                tensors=[p],
                **{"async": not alone},
            )
            self.status[p] = "here"
        if len(self.persistent) == 1:
            n = q.elements[self.persistent[0]]
            pieces = -(-n // self.shard[self.persistent[0]])
            d.kernel("main", "copy", "assemble", n, pieces=pieces)
        elif self.persistent:
            d.wait_work("main", work)
            d.host_wait("device.synchronize", "device")


def rank_of(said):
    return (Stage3 if said.get("stage", KNOBS["stage"]) == 3 else Stage12)(said)


def steps(said):
    rank = rank_of(said)
    return [rank.step() for _ in range(said.get("steps", KNOBS["steps"]))]


def steady(said):
    """The first step that the next one repeats."""
    rank = rank_of(said)
    before = None
    for _ in range(20):
        log = rank.step()
        if log == before:
            return log
        before = log
    raise ValueError("no step repeats")


# --- closed forms
def self_test():
    bad = []

    def check(what, a, b):
        if a != b:
            bad.append(f"{what}: {a}, expected {b}")

    def ops(log, operation):
        return [e for e in log if e.get("operation") == operation]

    # five layers of 100 + 4 elements
    parameters = [[f"l{i}.{w}", n] for i in range(5) for w, n in (("w", 100), ("b", 4))]
    modules = {"": []} | {f"l{i}": [2 * i, 2 * i + 1] for i in range(5)}
    forward = [["enter", ""]]
    forward += [[what, f"l{i}"] for i in range(5) for what in ("enter", "exit")]
    forward += [["exit", ""]]
    base = {
        "parameters": parameters,
        "modules": modules,
        "forward": forward,
        "world_size": 4,
        "throughput_timer": False,
    }
    for stage in (1, 2):
        for bucket in (90, 104, 208, 300, 1000):
            for rank in range(4):
                for multi in (True, False):
                    said = dict(
                        base,
                        stage=stage,
                        rank=rank,
                        reduce_bucket_size=bucket,
                        use_multi_rank_bucket_allreduce=multi,
                    )
                    log = steady(said)
                    reduced = ops(log, "all_reduce" if multi else "reduce")
                    reduced = [r for r in reduced if r["tensors"]]
                    what = f"stage {stage} bucket {bucket} rank {rank} multi {multi}"
                    check(what, sum(r["elements"] for r in reduced), 520)
                    check(f"{what} weights", ops(log, "all_gather")[0]["elements"], 520)
    check(
        "more than a bucket: cut where partitions end",
        [
            r["elements"]
            for r in ops(
                steady(
                    {
                        "parameters": [["a", 10], ["b", 100]],
                        "world_size": 2,
                        "stage": 2,
                        "reduce_bucket_size": 20,
                    }
                ),
                "all_reduce",
            )
        ],
        [56 - 10, 100 - 46, 10, 1],
    )
    check("round robin", round_robin(5, 2), [0, 2, 4, 1, 3])
    check("alignment", aligned(39760 + 1, 4), 39768)
    p = Partitions([10, 100], 2, [0, 1])
    check("slices", p.slices, {0: [[0, 0, 10]], 1: [[0, 0, 46], [1, 46, 54]]})
    three = dict(base, stage=3, stage3_param_persistence_threshold=0)
    log = steady(three)
    check("everything ahead", [g["elements"] for g in ops(log, "all_gather")], [520])
    none = dict(three, stage3_prefetch_bucket_size=0, stage3_max_reuse_distance=0)
    log = steady(none)
    check(
        "nothing ahead",
        [g["tensors"][0] for g in ops(log, "all_gather")],
        [0, 2, 4, 6, 8, 8, 6, 4, 2, 0],
    )
    check("first step has no prefetch", len(ops(steps(dict(three, steps=1))[0], "all_gather")), 10)
    for bucket in (50, 104, 300, 1000):
        log = steady(dict(three, reduce_bucket_size=bucket))
        check(
            f"reduce-scattered, bucket {bucket}",
            sum(r["elements"] for r in ops(log, "reduce_scatter")),
            520,
        )
    for b in bad:
        print(b)
    print("deepspeed.py self-test:", "failed" if bad else "ok")
    return 1 if bad else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    said = json.loads(open(sys.argv[-1]).read())
    for number, log in enumerate(steps(said) if "--all" in sys.argv else [steady(said)]):
        for e in log:
            print(json.dumps({"step": number, **e}) if "--all" in sys.argv else json.dumps(e))
    return 0


if __name__ == "__main__":
    sys.exit(main())
