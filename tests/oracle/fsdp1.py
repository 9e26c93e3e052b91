#!/usr/bin/env python3
"""Which operations does one rank of FSDP1 issue in a step, and what does each wait for?

PyTorch 1.13 to 2.14, written from their behaviour and from no line of the simulator. It plays the
hooks on the host (before and after a unit's forward, before and after its backward, the end of the
backward) and keeps streams, events and memory as the hooks leave them.

  fsdp1.py QUESTION.json        the operations of each step, one a line
  fsdp1.py --differences        what is different between 1.13 and 2.7, and where that is written
  fsdp1.py --self-test          closed forms

A question: {"version": "1.13".."2.14", "world_size": N, "units": [{"unit", "tensors", "elements"}]
in module order, the root first (one whose parameters are frozen says "requires_grad": false),
"forward": [["enter", unit] | ["compute", name] | ["exit", unit] ...], "steps": K, and any knob of
KNOBS}.

How a backward follows from a forward: autograd runs nodes in reverse order of their creation. So it
is the forward read from its end: where a unit's forward ended, its output's hook fires (before the
unit's backward); where the views of its flat parameter were made, the gradient of the flat
parameter is complete. 1.13 makes the views where the unit's forward begins, 2.7 where it is
unsharded in a forward: with forward_prefetch, one unit early. Units whose forwards end with nothing
computed between share one output tensor, and its hooks fire in the order in which they were
registered, the inner unit's first. Not here: units that are used twice in a forward, activation
checkpoints, parameters that get no gradient though they require one, units of mixed trainability,
`optim_in_backward`; of `cpu_offload`, which is
CPUOffload(offload_params=True), NO_SHARD and clipping.
"""
import json
import sys
import types

SIZE = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4}

KNOBS = {
    "sharding_strategy": "FULL_SHARD",
    "backward_prefetch": "default",  # BACKWARD_PRE, BACKWARD_POST or None
    "forward_prefetch": False,
    "limit_all_gathers": "default",
    "use_orig_params": False,  # from 2.0
    "dtype": "float32",  # of the parameters
    "param_dtype": None,  # the three of MixedPrecision that matter in a step
    "reduce_dtype": None,
    "buffer_dtype": None,  # buffers are cast once, before the first forward
    "keep_low_precision_grads": False,
    "accumulation_steps": 1,
    "no_sync": False,  # around all micro-steps but the last
    "clip_grad_norm": False,
    "set_to_none": "default",  # of zero_grad
    "gpus_per_host": None,  # HYBRID_SHARD: ranks that share a shard group
    "cpu_offload": False,  # CPUOffload(offload_params=True)
    "debug_detail": False,  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    "steps": 2,
}

# One line a difference: what, 1.13, 2.7, where 1.13 says so, where 2.7 does. 1.13's functions are
# in torch/distributed/fsdp/fully_sharded_data_parallel.py, 2.7's files in torch/distributed/fsdp.
DIFFERENCES = [
    (
        "backward_prefetch",
        "None",
        "BACKWARD_PRE",
        "__init__",
        "fully_sharded_data_parallel.py __init__",
    ),
    ("limit_all_gathers", "False", "True", "__init__", "fully_sharded_data_parallel.py __init__"),
    (
        "forward_reach",
        "root",
        "every",
        (
            "_lazy_init shares three dictionaries with the other units, "
            "but not _needs_pre_forward_unshard: only the root's has an entry"
        ),
        "_runtime_utils.py _root_pre_forward: a flag on every handle",
    ),
    (
        "order_check",
        "always",
        "detail",
        (
            "_ExecOrderData._check_order: two blocking all-gathers of "
            "int32 a unit until the first backward has ended"
        ),
        "_exec_order_utils.py _check_order: only with TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    (
        "limiter_calls",
        "every unshard",
        "unless prefetched",
        (
            "_pre_forward_unshard and _pre_backward_hook call _unshard, which asks the limiter, for"
            " what is there already, too"
        ),
        "_runtime_utils.py _pre_forward_unshard, _pre_backward_hook: not where handle._prefetched",
    ),
    (
        "limiter_place",
        "before the cast",
        "after the cast",
        "_unshard",
        "_runtime_utils.py _unshard",
    ),
    ("prefetched_until", "freed", "resharded", "_reshard", "_runtime_utils.py _reshard"),
    (
        "pad_copy",
        "always",
        "if padded",
        "_post_backward_hook: F.pad, which copies for a padding of 0, too",
        "_runtime_utils.py _get_reduce_scatter_tensors",
    ),
    (
        "shard_gradient",
        "zeros",
        "empty",
        "_post_backward_hook: zeros_like",
        "_runtime_utils.py _get_reduce_scatter_tensors: empty_like",
    ),
    (
        "hybrid",
        "no",
        "yes",
        "ShardingStrategy has three values",
        "_runtime_utils.py _reduce_grad, _init_streams; _init_utils.py",
    ),
    (
        "clip_blocks_host",
        "yes",
        "no",
        (
            "clip_grad_norm_: `if self.cpu_offload` is true of any "
            "object, so total_norm.cpu(); then `if clip_coef < 1`"
        ),
        "fully_sharded_data_parallel.py clip_grad_norm_: clamped and always multiplied",
    ),
    (
        "clip_waits",
        "yes",
        "no",
        "clip_grad_norm_ calls _wait_for_previous_optim_step",
        "fully_sharded_data_parallel.py clip_grad_norm_",
    ),
    (
        "clip_no_shard",
        "all_reduce",
        "local",
        "clip_grad_norm_",
        "fully_sharded_data_parallel.py clip_grad_norm_: torch.nn.utils.clip_grad_norm_",
    ),
    (
        "use_orig_params",
        "no",
        "yes",
        "not an argument",
        (
            "_flat_param.py _init_flat_param_and_metadata: tensors begin at multiples of 16 bytes,"
            " the end at one of the world size"
        ),
    ),
    (
        "frozen_hook",
        "none",
        "of inputs",
        "a unit whose parameters are frozen is resharded at the end: _wait_for_post_backward",
        (
            "_runtime_utils.py _register_post_backward_reshard_only_hook: when the gradients of its"
            " inputs are there"
        ),
    ),
    (
        "views",
        "at forward",
        "at unshard",
        "flatten_params_wrapper.py forward",
        (
            "_flat_param.py _use_unsharded_flat_param, in a forward prefetch, too: then the unit's"
            " gradient is complete, and reduced, only when the backward of the unit before it"
            " has run"
        ),
    ),
    (
        "moved_shard",
        "kept by nobody",
        "until gathered",
        (
            "_all_gather_flat_param: no record_stream, so what was copied to the device is free for"
            " the stream of its copy as soon as the gathering has been issued"
        ),
        "_flat_param.py _all_gather_flat_param: record_stream of the unshard stream",
    ),
    (
        "set_to_none",
        "False",
        "True",
        "torch/optim/optimizer.py zero_grad",
        "torch/optim/optimizer.py zero_grad",
    ),
    (
        "names",
        "all_gather, pre_all_gather, post_backward",
        "unshard, pre_unshard, post_backward, all_reduce",
        "_init_streams",
        "_runtime_utils.py _init_streams",
    ),
]


# The first release with what stands third: read on both sides (2.0.1, 2.1.0, 2.2.2, 2.4.1, 2.6.0,
# 2.7.1), or what its documentation and the pull request say.
SINCE = {
    "backward_prefetch": "2.0",  # #88428
    "limit_all_gathers": "2.1",  # #104900
    "forward_reach": "2.1",  # #104488
    "order_check": "2.2",  # #109049
    "limiter_calls": "2.1",  # #97981
    "limiter_place": "2.0",  # #89057
    "prefetched_until": "2.2",  # #111354, #110139
    "pad_copy": "2.0",
    "shard_gradient": "2.0",
    "hybrid": "2.1",  # #106080: 2.0's all-reduces on the stream of its reduce-scatters
    "clip_blocks_host": "2.4",  # #122001
    "clip_waits": "2.0",  # #89308
    "clip_no_shard": "2.0",  # #88955
    "use_orig_params": "2.1",  # #97667: 2.0's has neither gaps nor an end at the world size
    "frozen_hook": "2.1",  # #101982
    "frozen_prefetch": "2.3",  # the hook of a frozen unit sets BACKWARD_POST
    "views": "2.1",  # #98249
    "moved_shard": "2.2",
    "set_to_none": "2.0",  # #92731
    "names": "2.0",
}


def release(version):
    return tuple(int(n) for n in version.split("."))


def is_new(what, version):
    return release(version) >= release(SINCE[what])


def of_version(what, version):
    for row in DIFFERENCES:
        if row[0] == what:
            return row[2] if is_new(what, version) else row[1]
    raise KeyError(what)


def predivide_factor(world_size):
    """torch/distributed/algorithms/_comm_hooks/default_hooks.py _get_gradient_predivide_factor."""
    factor = 1
    while world_size % factor == 0 and world_size / factor > factor:
        factor *= 2
    return factor


def flat_layout(elements, world_size, aligned_bytes, element_size):
    """Elements of a flat parameter: with the gaps that use_orig_params leaves, and of one shard."""
    total = 0
    for count in elements:
        if aligned_bytes:
            step = aligned_bytes // element_size
            total += -total % step
        total += count
    if aligned_bytes:
        total += -total % world_size
    return total, -(-total // world_size)


class Unit:
    def __init__(self, described, question):
        self.name = described["unit"]
        self.tensors = described["tensors"]
        self.elements = described["elements"]
        self.requires_grad = described.get("requires_grad", True)
        self.given = self.returned = True  # what it is given, what it returns needs a gradient
        self.dtype = described.get("dtype", question.dtype)
        self.compute_dtype = question.param_dtype or self.dtype
        self.reduce_dtype = question.reduce_dtype or question.param_dtype or self.dtype
        self.flat, self.shard = flat_layout(
            self.elements,
            question.shard_ranks,
            16 if question.use_orig_params else 0,
            SIZE[self.compute_dtype],
        )
        self.padded = self.shard * question.shard_ranks
        self.unsharded = False  # its padded flat parameter is there
        self.cast = False  # NO_SHARD: its low precision copy is there
        self.prefetched = False
        self.needs_forward = False
        self.needs_backward = False
        self.ran_pre_backward = False
        self.gradient = None  # "unsharded", "sharded"
        self.gradient_bytes = 0
        self.saved_gradient = False
        self.on_device = False  # cpu_offload: its flat parameter is not the host's shard


class Question(types.SimpleNamespace):
    def __init__(self, said):
        self.version = said["version"]
        if not (1, 13) <= release(self.version) <= (2, 14):
            raise ValueError(f"version {self.version}: 1.13 to 2.14 are known")
        for knob in said:
            if knob not in KNOBS and knob not in ("version", "world_size", "units", "forward"):
                raise ValueError(f"unknown: {knob}")
        for knob, value in KNOBS.items():
            value = said.get(knob, value)
            if value == "default":
                value = {"False": False, "True": True, "None": None}.get(
                    of_version(knob, self.version), of_version(knob, self.version)
                )
            setattr(self, knob, value)
        self.world_size = said["world_size"]
        self.shard_ranks, self.replicas = self.world_size, 1
        self.hybrid = "HYBRID" in self.sharding_strategy
        if self.hybrid:
            if not is_new("hybrid", self.version):
                raise ValueError("hybrid strategies are known as of 2.1")
            if not self.gpus_per_host or self.world_size % self.gpus_per_host:
                raise ValueError("a hybrid strategy needs hosts of equally many ranks")
            if self.gpus_per_host == 1:
                raise ValueError("one rank a host: NO_SHARD, and gradients are not reduced at all")
            self.shard_ranks = self.gpus_per_host
            self.replicas = self.world_size // self.gpus_per_host
        if self.use_orig_params and not is_new("use_orig_params", self.version):
            raise ValueError("use_orig_params is known as of 2.1")
        if self.world_size == 1:
            self.sharding_strategy = "NO_SHARD"
        self.sharded = self.sharding_strategy != "NO_SHARD"
        if self.cpu_offload and (not self.sharded or self.clip_grad_norm):
            raise ValueError("cpu_offload: neither NO_SHARD nor clipping is played")
        if self.cpu_offload and self.accumulation_steps > 1 and not self.no_sync:
            raise ValueError("FSDP does not support accumulation outside no_sync() when offloading")
        self.frees_after_forward = self.sharding_strategy in ("FULL_SHARD", "HYBRID_SHARD")
        self.predivide = predivide_factor(self.world_size)
        self.postdivide = self.world_size / self.predivide
        self.forward = said["forward"]
        self.units = {u["unit"]: Unit(u, self) for u in said["units"]}
        self.root = next(iter(self.units))

    def is_(self, what, value):
        return of_version(what, self.version) == value


class Device:
    """Streams, events, the host and memory of one rank."""

    def __init__(self):
        self.log = []  # everything, as the host did it
        self.last = {}  # of each stream: the operation issued last
        self.pending = {}  # of each stream: what its next operation must wait for
        self.communicator = {}  # of each group: the collective issued last
        self.live = 0
        self.peak = 0
        self.count = {}

    def wait(self, waiter, on):
        self.log.append({"do": "wait", "stream": waiter, "on": on})
        if on in self.last and on != waiter:
            self.pending.setdefault(waiter, set()).add(self.last[on])
        self.pending.setdefault(waiter, set()).update(self.pending.get(on, ()))

    def issue(self, stream, name, **fields):
        number = self.count.get(name, 0)
        self.count[name] = number + 1
        full = name if number == 0 else f"{name}#{number}"
        waits = self.pending.pop(stream, set())
        op = {"do": "op", "stream": stream, "op": full, "waits": sorted(waits)}
        op.update(fields)
        if "group" in op:
            before = self.communicator.get(op["group"])
            if before and before != self.last.get(stream):
                op["after_in_communicator"] = before
            self.communicator[op["group"]] = full
        self.last[stream] = full
        self.log.append(op)
        return full

    def host_waits(self, why, after):
        self.log.append({"do": "host_wait", "why": why, "after": after})

    def host_op(self, name, waits=(), **fields):
        """The host's own work, after what it waits for."""
        self.log.append({"do": "host_op", "op": name, "waits": sorted(waits), **fields})
        return name

    def mark(self, what, unit):
        self.log.append({"do": "mark", "what": what, "unit": unit})

    def allocate(self, what, unit, size, stream):
        self.live += size
        self.peak = max(self.peak, self.live)
        self.log.append(
            {"do": "allocate", "what": what, "unit": unit, "bytes": size, "stream": stream}
        )

    def free(self, what, unit, size, used_on, after=None, ended=False):
        """The allocator may give it out again when what `used_on` was issued so far has ended. Or:
        `after` that was issued; has `ended`."""
        self.live -= size
        self.log.append(
            {
                "do": "free",
                "what": what,
                "unit": unit,
                "bytes": size,
                "stream": used_on,
                "when_ended": after or self.last.get(used_on),
                "ended": ended,
            }
        )


class Rank:
    def __init__(self, said):
        self.q = Question(said)
        self.device = Device()
        q = self.q
        self.unshard_stream = "unshard" if is_new("names", q.version) else "all_gather"
        self.pre_stream = "pre_unshard" if is_new("names", q.version) else "pre_all_gather"
        self.shard_group = "shard" if q.hybrid else "world"
        self.first = True  # until a backward has ended
        self.pre_order = []  # of the first iteration
        self.post_order = []  # of this forward
        self.free_events = []
        self.sync = True
        self.trace = None  # of this forward: what backward reads from its end

    # --- unshard and reshard
    def limiter(self):
        if self.q.limit_all_gathers and len(self.free_events) >= 2:
            self.device.host_waits("rate_limiter", self.free_events.pop(0))

    def cast_shard(self, u):
        """pre_unshard(): the low precision copy of what this rank keeps."""
        q, d = self.q, self.device
        if q.cpu_offload:
            if not q.param_dtype:
                return not u.on_device and self.move_shard(u)
        elif not q.param_dtype or (q.sharded and u.unsharded):
            return False
        count = u.shard if q.sharded else u.flat
        size = count * SIZE[u.compute_dtype]
        if not u.cast:
            d.allocate("low_precision_shard", u.name, size, self.pre_stream)
        u.cast = True
        if q.cpu_offload:
            self.move_shard(u)
        d.issue(
            self.pre_stream,
            f"cast_shard/{u.name}",
            kernel="cast",
            unit=u.name,
            elements=count,
            bytes=count * SIZE[u.dtype] + size,
        )
        if q.cpu_offload:  # a temporary tensor
            d.free("moved_shard", u.name, count * SIZE[u.dtype], self.pre_stream)
        return True

    def move_shard(self, u):
        """From the host's pinned memory, without waiting for it."""
        size = u.shard * SIZE[u.dtype]
        self.device.allocate("moved_shard", u.name, size, self.pre_stream)
        self.device.issue(
            self.pre_stream,
            f"to_device/{u.name}",
            kernel="move",
            unit=u.name,
            elements=u.shard,
            bytes=size,
        )
        return True

    def unshard(self, u, prefetch):
        q, d = self.q, self.device
        if q.is_("limiter_place", "before the cast"):
            self.limiter()
        cast = self.cast_shard(u)
        moved, issued = cast and not q.param_dtype, None
        if cast:
            d.wait(self.unshard_stream, self.pre_stream)
        if q.is_("limiter_place", "after the cast"):
            self.limiter()
        if q.sharded and not u.unsharded:
            size = u.padded * SIZE[u.compute_dtype]
            d.allocate("unsharded", u.name, size, self.unshard_stream)
            issued = d.issue(
                self.unshard_stream,
                f"all_gather/{u.name}",
                operation="all_gather",
                unit=u.name,
                tensors=u.tensors,
                elements=u.padded,
                shard_elements=u.shard,
                dtype=u.compute_dtype,
                bytes=size,
                group=self.shard_group,
                prefetch=prefetch,
            )
            u.unsharded = True
        if q.sharded and u.cast:
            d.free(
                "low_precision_shard", u.name, u.shard * SIZE[u.compute_dtype], self.unshard_stream
            )
            u.cast = False
        if moved:  # its flat parameter becomes the whole one
            recorded = issued and q.is_("moved_shard", "until gathered")
            used_on = self.unshard_stream if recorded else self.pre_stream
            d.free("moved_shard", u.name, u.shard * SIZE[u.dtype], used_on, issued)
        u.on_device = True
        if self.trace is not None and q.is_("views", "at unshard"):
            self.trace.append(["views", u.name])

    def reshard(self, u, free):
        q, d = self.q, self.device
        d.mark("reshard" if free else "reshard_keep", u.name)
        u.on_device = False
        if free:
            d.free("unsharded", u.name, u.padded * SIZE[u.compute_dtype], "compute")
            u.unsharded = False
        if free and q.limit_all_gathers:
            self.free_events.append(d.last.get("compute"))
        if not q.sharded and u.cast:
            d.free("low_precision_shard", u.name, u.flat * SIZE[u.compute_dtype], "compute")
            u.cast = False
        if free or q.is_("prefetched_until", "resharded"):
            u.prefetched = False

    def prefetch(self, u, when):
        q = self.q
        target = None
        if when == "forward" and q.forward_prefetch and u.name in self.pre_order:
            place = self.pre_order.index(u.name) + 1
            known = q.is_("forward_reach", "every") or u.name == q.root
            if known and place < len(self.pre_order):
                target = q.units[self.pre_order[place]]
                if not target.needs_forward or target.prefetched:
                    target = None
        elif when == q.backward_prefetch and u.name in self.post_order:
            place = self.post_order.index(u.name) - 1
            if place >= 0:
                target = q.units[self.post_order[place]]
                if not target.needs_backward or target.prefetched:
                    target = None
        if target:
            self.unshard(target, True)
            target.prefetched = True

    def bring(self, u):
        """What the hooks before a forward and before a backward have in common."""
        if self.q.is_("limiter_calls", "every unshard") or not u.prefetched:
            self.unshard(u, False)

    # --- forward
    def optimizer_before_this(self):
        self.device.wait(self.unshard_stream, "compute")
        self.device.wait(self.pre_stream, "compute")

    def check_order(self, u):
        if self.first and (self.q.is_("order_check", "always") or self.q.debug_detail):
            for what in ("count", "index"):
                self.device.issue(
                    "compute",
                    f"order_{what}/{u.name}",
                    operation="all_gather",
                    unit=None,
                    tensors=[],
                    elements=self.q.shard_ranks,
                    shard_elements=1,
                    dtype="int32",
                    bytes=4 * self.q.shard_ranks,
                    group=self.shard_group,
                    blocks_host=True,
                )

    def before_forward(self, u):
        q, d = self.q, self.device
        if not u.tensors:
            return
        self.check_order(u)
        if self.first and u.name not in self.pre_order:
            self.pre_order.append(u.name)
        self.bring(u)
        u.needs_forward = False
        if q.is_("views", "at forward"):
            self.trace.append(["views", u.name])
        d.wait("compute", self.unshard_stream)
        self.prefetch(u, "forward")

    def after_forward(self, u):
        if not u.tensors:
            return
        if u.name not in self.post_order:
            self.post_order.append(u.name)
        self.reshard(u, u.name != self.q.root and self.q.frees_after_forward)
        u.needs_backward = u.returned
        u.ran_pre_backward = False

    def forward(self):
        q, d = self.q, self.device
        if q.forward_prefetch:
            for u in q.units.values():
                u.needs_forward = True
                if is_new("prefetched_until", q.version):
                    u.prefetched = False
        self.optimizer_before_this()
        self.trace = []
        gradient, inside = False, []  # has what was computed so far one? open units
        for what, name in q.forward:
            if what == "enter":
                u = q.units[name]
                inside.append(u)
                u.given = gradient
                self.before_forward(u)
                if self.is_frozen(u) and gradient and q.is_("frozen_hook", "of inputs"):
                    self.trace.append(["given", name])
            elif what == "exit":
                u = inside.pop()
                u.returned = gradient
                self.trace.append([what, name])
                self.after_forward(u)
            else:
                d.issue("compute", f"fwd/{name}", kernel="compute", module=name)
                gradient = gradient or bool(inside[-1].tensors and inside[-1].requires_grad)
                if gradient:
                    self.trace.append([what, name])

    # --- backward
    def before_backward(self, u):
        d = self.device
        if u.ran_pre_backward or not u.tensors or not u.returned:
            return
        self.bring(u)
        d.wait("compute", self.unshard_stream)
        u.needs_backward = False
        self.prefetch(u, "BACKWARD_PRE")
        if u.gradient == "sharded":  # prepare_gradient()
            u.saved_gradient = True
            u.gradient = None
        if u.gradient == "host":
            u.gradient = None
        u.ran_pre_backward = True
        d.mark("pre_backward", u.name)

    def is_frozen(self, u):
        return bool(u.tensors) and not u.requires_grad

    def frees_in_backward(self):
        return self.q.sharded and (self.sync or self.q.frees_after_forward)

    def gradients_arrive(self, u):
        d = self.device
        for tensor in reversed(u.tensors):
            d.log.append({"do": "gradient", "tensor": tensor, "unit": u.name})
        size = u.flat * SIZE[u.compute_dtype]
        d.allocate("gradient", u.name, size, "compute")
        d.issue(
            "compute",
            f"flatten_gradient/{u.name}",
            kernel="copy",
            unit=u.name,
            elements=u.flat,
            bytes=2 * size,
        )
        if u.gradient:  # AccumulateGrad, into what is there
            d.issue(
                "compute",
                f"accumulate/{u.name}",
                kernel="add",
                unit=u.name,
                elements=u.flat,
                bytes=3 * size,
            )
            d.free("gradient", u.name, size, "compute")
        u.gradient = "unsharded"

    def divide(self, stream, u, count, factor, what):
        if factor > 1:
            self.device.issue(
                stream,
                f"{what}/{u.name}",
                kernel="div",
                unit=u.name,
                elements=count,
                bytes=2 * count * SIZE[u.reduce_dtype],
            )

    def after_backward(self, u):
        d = self.device
        if not u.tensors or self.is_frozen(u):
            return
        self.gradients_arrive(u)
        d.mark("post_backward", u.name)
        self.reshard(u, self.frees_in_backward())
        self.prefetch(u, "BACKWARD_POST")
        if self.sync:
            self.reduce(u)

    def reduce(self, u):
        """What the hook holds lives until it returns, and on the stream until that has ended."""
        q, d = self.q, self.device
        stream = "post_backward"
        d.wait(stream, "compute")
        size, reduced = SIZE[u.compute_dtype], SIZE[u.reduce_dtype]
        held = [("gradient", u.flat * size)]
        if u.reduce_dtype != u.compute_dtype:
            held.append(("reduce_dtype", u.flat * reduced))
            d.allocate("reduce_dtype", u.name, u.flat * reduced, stream)
            d.issue(
                stream,
                f"cast_gradient/{u.name}",
                kernel="cast",
                unit=u.name,
                elements=u.flat,
                bytes=u.flat * (size + reduced),
            )
        if q.sharded:
            self.reduce_shards(u, held)
        else:
            self.divide(stream, u, u.flat, q.predivide, "predivide")
            d.issue(
                stream,
                f"all_reduce/{u.name}",
                operation="all_reduce",
                unit=u.name,
                tensors=u.tensors,
                elements=u.flat,
                dtype=u.reduce_dtype,
                bytes=u.flat * reduced,
                group="world",
            )
            self.divide(stream, u, u.flat, q.postdivide, "postdivide")
            if u.reduce_dtype != u.dtype and not q.keep_low_precision_grads:
                self.cast_back(stream, "gradient", u, u.flat)
                u.gradient_bytes = u.flat * SIZE[u.dtype]
            else:  # the last of what is held is the gradient itself
                u.gradient_bytes = held.pop()[1]
        for what, count in held:
            d.free(what, u.name, count, stream)

    def reduce_shards(self, u, held):
        q, d = self.q, self.device
        stream, reduced = "post_backward", SIZE[u.reduce_dtype]
        if u.padded != u.flat or q.is_("pad_copy", "always"):
            held.append(("padded_gradient", u.padded * reduced))
            d.allocate("padded_gradient", u.name, u.padded * reduced, stream)
            d.issue(
                stream,
                f"pad/{u.name}",
                kernel="copy",
                unit=u.name,
                elements=u.padded,
                bytes=(u.flat + u.padded) * reduced,
            )
        d.allocate("shard_gradient", u.name, u.shard * reduced, stream)
        if q.is_("shard_gradient", "zeros"):
            d.issue(
                stream,
                f"zero_shard/{u.name}",
                kernel="zero",
                unit=u.name,
                elements=u.shard,
                bytes=u.shard * reduced,
            )
        self.divide(stream, u, u.padded, q.predivide, "predivide")
        d.issue(
            stream,
            f"reduce_scatter/{u.name}",
            operation="reduce_scatter",
            unit=u.name,
            tensors=u.tensors,
            elements=u.padded,
            shard_elements=u.shard,
            dtype=u.reduce_dtype,
            bytes=u.padded * reduced,
            group=self.shard_group,
        )
        if q.hybrid:
            d.wait("all_reduce", stream)
            stream = "all_reduce"
            d.issue(
                stream,
                f"all_reduce/{u.name}",
                operation="all_reduce",
                unit=u.name,
                tensors=u.tensors,
                elements=u.shard,
                dtype=u.reduce_dtype,
                bytes=u.shard * reduced,
                group="replicas",
            )
        self.divide(stream, u, u.shard, q.postdivide, "postdivide")
        if u.reduce_dtype != u.dtype:
            self.cast_back(stream, "shard_gradient", u, u.shard)
            d.free("shard_gradient", u.name, u.shard * reduced, stream)
        if u.saved_gradient:
            d.issue(
                stream,
                f"accumulate_shard/{u.name}",
                kernel="add",
                unit=u.name,
                elements=u.shard,
                bytes=3 * u.shard * SIZE[u.dtype],
            )
            d.free("shard_gradient", u.name, u.shard * SIZE[u.dtype], stream)
        u.saved_gradient = False
        u.gradient, u.gradient_bytes = "sharded", u.shard * SIZE[u.dtype]
        if q.cpu_offload:
            u.gradient = "host"
            d.issue(
                stream,
                f"to_host/{u.name}",
                kernel="move",
                unit=u.name,
                elements=u.shard,
                bytes=u.gradient_bytes,
            )

    def cast_back(self, stream, what, u, count):
        self.device.allocate(what, u.name, count * SIZE[u.dtype], stream)
        self.device.issue(
            stream,
            f"cast_back/{u.name}",
            kernel="cast",
            unit=u.name,
            elements=count,
            bytes=count * (SIZE[u.reduce_dtype] + SIZE[u.dtype]),
        )

    def backward(self):
        q, d = self.q, self.device
        ending = []  # units whose forwards ended here, innermost last
        given = []  # frozen units whose inputs are of here
        trace, self.trace = self.trace, None
        for what, name in reversed(trace):
            if what == "exit":
                ending.append(q.units[name])
                continue
            if what == "given":
                given.append(q.units[name])
                continue
            for u in reversed(ending):  # hooks of one tensor, in order of registration
                self.before_backward(u)
            ending = []
            if what == "views":
                self.after_backward(q.units[name])
            else:
                for u in reversed(given):  # of the same tensors, registered later
                    self.reshard(u, self.frees_in_backward())
                    if is_new("frozen_prefetch", q.version):
                        self.prefetch(u, "BACKWARD_POST")
                given = []
                d.issue("compute", f"bwd/{name}", kernel="compute", module=name)
        if self.sync:
            d.wait("compute", "post_backward")
            if q.hybrid:
                d.wait("compute", "all_reduce")
            elif is_new("names", q.version):  # `is not current_stream` compares two new objects
                d.wait("compute", "compute")
            if q.cpu_offload:
                self.await_gradients()
        for u in q.units.values():
            # Asks whether its flat parameter is its shard: where backward did not come it is,
            # unless original parameters are views of the whole one.
            views = q.use_orig_params and not q.frees_after_forward
            if self.is_frozen(u) and u.unsharded and (u.ran_pre_backward or views):
                self.reshard(u, self.frees_in_backward())
        self.first = False
        self.post_order = []
        for u in q.units.values():
            u.ran_pre_backward = u.needs_backward = u.prefetched = False
            keeps = q.sharded and q.keep_low_precision_grads and u.compute_dtype != u.dtype
            if self.sync and keeps and u.gradient:
                kept = u.shard * SIZE[u.compute_dtype]
                d.allocate("shard_gradient", u.name, kept, "compute")
                d.issue(
                    "compute",
                    f"cast_kept/{u.name}",
                    kernel="cast",
                    unit=u.name,
                    elements=u.shard,
                    bytes=kept + u.gradient_bytes,
                )
                d.free("shard_gradient", u.name, u.gradient_bytes, "compute")
                u.gradient_bytes = kept

    def await_gradients(self):
        """compute.synchronize(); then nobody refers to the shards on the device any more."""
        d = self.device
        waits = {d.last["compute"], *d.pending.get("compute", ())}
        done = d.host_op("wait/to_host", waits)
        for u in self.q.units.values():
            if u.gradient == "host":
                d.free("shard_gradient", u.name, u.gradient_bytes, "post_backward", done, True)

    # --- the step
    def clip(self):
        q, d = self.q, self.device
        if q.is_("clip_waits", "yes"):
            self.optimizer_before_this()
        held = [u for u in q.units.values() if u.tensors]
        count = sum(u.shard if q.sharded else u.flat for u in held)
        d.issue(
            "compute",
            "norms",
            kernel="norm",
            elements=count,
            bytes=sum((u.shard if q.sharded else u.flat) * SIZE[u.dtype] for u in held),
        )
        if q.sharded or q.is_("clip_no_shard", "all_reduce"):
            done = d.issue(
                "compute",
                "all_reduce/norm",
                operation="all_reduce",
                unit=None,
                tensors=[],
                elements=1,
                dtype="float32",
                bytes=4,
                group=self.shard_group,
            )
            if q.is_("clip_blocks_host", "yes"):
                d.host_waits("clip", done)
        d.issue(
            "compute",
            "clip",
            kernel="mul",
            elements=count,
            only_if_above=release(q.version) < (2, 0),
            bytes=2 * sum((u.shard if q.sharded else u.flat) * SIZE[u.dtype] for u in held),
        )

    def step(self):
        q, d = self.q, self.device
        start = len(d.log)
        d.count = {}
        on_host = [u for u in q.units.values() if u.gradient == "host"]
        if on_host and not q.set_to_none:
            d.host_op("host_zero_gradients", bytes=sum(u.gradient_bytes for u in on_host))
        for u in on_host:
            u.gradient = None if q.set_to_none else "host"
        for u in (u for u in q.units.values() if u.gradient != "host"):
            if u.gradient and not q.set_to_none:
                d.issue(
                    "compute",
                    f"zero_gradient/{u.name}",
                    kernel="zero",
                    unit=u.name,
                    elements=u.shard if q.sharded else u.flat,
                    bytes=u.gradient_bytes,
                )
            elif u.gradient:
                what = "shard_gradient" if q.sharded else "gradient"
                d.free(what, u.name, u.gradient_bytes, "compute")
                u.gradient = None
        for micro in range(q.accumulation_steps):
            d.mark("micro_batch", micro)
            self.sync = not q.no_sync or micro == q.accumulation_steps - 1
            d.mark("forward", None)
            self.forward()
            d.mark("backward", None)
            self.backward()
        d.mark("step", None)
        if q.clip_grad_norm:
            self.clip()
        held = [u for u in q.units.values() if u.tensors and u.requires_grad]
        if q.cpu_offload:
            d.host_op("host_optimizer", elements=sum(u.shard for u in held))
        else:
            d.issue(
                "compute",
                "optimizer",
                kernel="optimizer",
                elements=sum(u.shard if q.sharded else u.flat for u in held),
            )
        return d.log[start:]


def steps(question):
    rank = Rank(question)
    return [rank.step() for _ in range(rank.q.steps)]


def listing(log):
    for e in log:
        what = e["do"]
        if what == "op":
            hidden = ("do", "stream", "op", "waits", "tensors")
            rest = " ".join(f"{k}={v}" for k, v in e.items() if k not in hidden and v is not None)
            waits = f"  <- {', '.join(e['waits'])}" if e["waits"] else ""
            yield f"{e['stream']:15} {e['op']}  {rest}{waits}"
        elif what == "wait":
            yield f"{e['stream']:15} waits for {e['on']}"
        elif what == "host_wait":
            yield f"{'host':15} waits ({e['why']}) for {e['after']}"
        elif what == "host_op":
            yield f"{'host':15} {e['op']}  {e.get('bytes', '')}  <- {', '.join(e['waits'])}"
        elif what in ("allocate", "free"):
            yield f"{'':15} {what} {e['what']} {e['unit']} {e['bytes']}"
        elif what == "mark":
            yield f"{'':15} [{e['what']} {e['unit']}]"


# --- closed forms
def chain(count, elements, **knobs):
    """A root of one tensor, and `count` units in a row."""
    units = [{"unit": "root", "tensors": ["head"], "elements": [elements]}]
    forward = [["enter", "root"]]
    for i in range(count):
        units.append(
            {"unit": f"u{i}", "tensors": [f"u{i}.w", f"u{i}.b"], "elements": [elements, 3]}
        )
        forward += [["enter", f"u{i}"], ["compute", f"u{i}.m"], ["exit", f"u{i}"]]
    forward += [["compute", "head"], ["exit", "root"]]
    return {"version": "2.7", "world_size": 4, "units": units, "forward": forward, **knobs}


def collectives(log, operation):
    return [e for e in log if e["do"] == "op" and e.get("operation") == operation]


def self_test_offload(expect, base):
    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
        log = steps(chain(2, 100, cpu_offload=True, sharding_strategy=strategy, **base))[2]
        moved = [e for e in log if e["do"] == "op" and e.get("kernel") == "move"]
        to_device = [e["unit"] for e in moved if e["op"].startswith("to_device")]
        # In backward, too, what is whole already: its flat parameter was the host's again.
        for u in ("root", "u0", "u1"):
            expect(f"{strategy}: shards to the device", to_device.count(u) == 2)
        back = [e["bytes"] for e in moved if e["op"].startswith("to_host")]
        expect(f"{strategy}: gradients to the host", sorted(back) == [4 * 25, 4 * 26, 4 * 26])
        waits = [e for e in log if e["do"] == "host_op" and e["op"] == "wait/to_host"]
        expect(f"{strategy}: one wait", len(waits) == 1 and "to_host/root" in waits[0]["waits"])
    for wrong in ({"sharding_strategy": "NO_SHARD"}, {"accumulation_steps": 2}):
        try:
            steps(chain(2, 100, cpu_offload=True, **wrong, **base))
            expect(f"cpu_offload {wrong} is refused", False)
        except ValueError:
            pass


def self_test():
    failed = []

    def expect(what, condition):
        if not condition:
            failed.append(what)

    for version in ("1.13", "2.0", "2.1", "2.2", "2.7"):
        base = {"version": version, "steps": 3}
        one = {
            "version": version,
            "world_size": 4,
            "steps": 2,
            "units": [{"unit": "root", "tensors": ["a", "b"], "elements": [10, 7]}],
            "forward": [["enter", "root"], ["compute", "m"], ["exit", "root"]],
        }
        log = steps(one)[1]
        gathered = collectives(log, "all_gather")
        scattered = collectives(log, "reduce_scatter")
        expect("one unit: one all-gather, one reduce-scatter", len(gathered) == len(scattered) == 1)
        expect("17 elements on 4 ranks are 20", gathered[0]["bytes"] == scattered[0]["bytes"] == 80)
        for strategy, times in (("FULL_SHARD", 2), ("SHARD_GRAD_OP", 1), ("NO_SHARD", 0)):
            log = steps(chain(5, 100, sharding_strategy=strategy, **base))[2]
            got = [e["unit"] for e in collectives(log, "all_gather")]
            expect(
                f"{version} {strategy}: gathered",
                all(got.count(f"u{i}") == times for i in range(5)),
            )
            expect(f"{version} {strategy}: the root once", got.count("root") == min(times, 1))
            reduced = collectives(log, "reduce_scatter" if times else "all_reduce")
            expect(
                f"{version} {strategy}: reduced in reverse",
                [e["unit"] for e in reduced] == [f"u{i}" for i in range(4, -1, -1)] + ["root"],
            )
        log = steps(chain(5, 100, limit_all_gathers=True, **base))[2]
        blocked = [e for e in log if e["do"] == "host_wait"]
        freed = [e for e in log if e["do"] == "free" and e["what"] == "unsharded"]
        expect(
            f"{version}: in a steady step the limiter waits for each that was freed",
            len(blocked) == len(freed) == len(collectives(log, "all_gather")) == 11,
        )
        held = most = 0
        for e in log:  # how many units are there at once
            if e["do"] in ("allocate", "free") and e["what"] == "unsharded":
                held += 1 if e["do"] == "allocate" else -1
                most = max(most, held)
        expect(f"{version}: the root and two units at most", most <= 3)
        log = steps(chain(3, 100, accumulation_steps=3, no_sync=True, **base))[1]
        expect(f"{version} no_sync: reduced once", len(collectives(log, "reduce_scatter")) == 4)
        log = steps(chain(3, 100, accumulation_steps=3, **base))[1]
        expect(
            f"{version} accumulation: reduced three times",
            len(collectives(log, "reduce_scatter")) == 12,
        )
        for bytes_each, knobs in ((2, {"param_dtype": "bfloat16"}), (4, {})):
            log = steps(chain(2, 100, **knobs, **base))[1]
            expect(
                f"{version} {knobs}: bytes",
                all(
                    e["bytes"] == e["elements"] * bytes_each for e in collectives(log, "all_gather")
                ),
            )
        for knobs in (
            {},
            {"param_dtype": "bfloat16", "reduce_dtype": "float32"},
            {"param_dtype": "bfloat16"},
            {"reduce_dtype": "float16"},
            {"sharding_strategy": "NO_SHARD"},
            {"sharding_strategy": "SHARD_GRAD_OP"},
            {"sharding_strategy": "NO_SHARD", "param_dtype": "bfloat16"},
            {"accumulation_steps": 2},
            {"accumulation_steps": 2, "no_sync": True},
            {"param_dtype": "bfloat16", "keep_low_precision_grads": True},
            {
                "param_dtype": "bfloat16",
                "keep_low_precision_grads": True,
                "sharding_strategy": "NO_SHARD",
            },
            {"cpu_offload": True},
            {"cpu_offload": True, "param_dtype": "bfloat16", "sharding_strategy": "SHARD_GRAD_OP"},
            {"cpu_offload": True, "accumulation_steps": 2, "no_sync": True},
        ):
            rank = Rank(chain(3, 101, **knobs, **{**base, "set_to_none": True}))
            live = []
            for _ in range(4):
                rank.step()
                live.append(rank.device.live)
            expect(
                f"{version} {knobs}: nothing is lost or freed twice: {live}",
                live[1] == live[2] == live[3] and (live[3] == 0) == ("cpu_offload" in knobs),
            )
        self_test_offload(expect, base)
    log = steps(chain(2, 100, sharding_strategy="HYBRID_SHARD", gpus_per_host=2))[1]
    expect("hybrid: two groups", {e["group"] for e in log if "group" in e} == {"shard", "replicas"})
    expect(
        "hybrid: the all-reduce is of shards",
        all(e["elements"] == u for e, u in zip(collectives(log, "all_reduce"), (52, 52, 50))),
    )
    expect("16 bytes", flat_layout([3, 5], 4, 16, 4) == (12, 3))
    expect(
        "predivide",
        [predivide_factor(n) for n in (1, 2, 3, 4, 6, 8, 16, 64)] == [1, 2, 2, 2, 4, 4, 4, 8],
    )
    for f in failed:
        print("failed:", f)
    print("self-test:", "failed" if failed else "ok")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:] == ["--differences"]:
        for what, old, new, here, there in DIFFERENCES:
            print(f"{what}\n  1.13: {old} ({here})\n  {SINCE[what]}:  {new} ({there})")
        return 0
    with open(sys.argv[1], encoding="utf-8") as f:
        question = json.load(f)
    for number, log in enumerate(steps(question)):
        print(f"== step {number}")
        print("\n".join(listing(log)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
