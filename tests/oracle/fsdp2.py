#!/usr/bin/env python3
"""Which operations does one rank of FSDP2 (`fully_shard`) issue in a step, what waits for what?

PyTorch 2.5 to 2.14, written from their behaviour and from no line of the simulator. It
plays the hooks on the host and keeps streams, events, references and memory as the hooks leave
them.

  fsdp2.py QUESTION.json        the operations of each step, one a line
  fsdp2.py --differences        what is different between the versions, and where that is written
  fsdp2.py --self-test          closed forms, and tests/oracle/scenarios/fsdp2-*.json

A question: {"version", "mesh": [shard] or [replicate, shard], "units": [{"unit", "parameters":
[[name, [dims], dtype, requires_grad]]}] in module order, the root first, "forward": [["enter",
unit] | ["compute", module] | ["exit", unit] ...], "steps": K, and any knob of KNOBS}. The last two
entries of a parameter may be left out (float32, true). A unit may have its own
reshard_after_forward, and "input_requires_grad" where the rule below is wrong for it.

How a backward follows from a forward: autograd runs nodes in reverse order of their creation. Where
a unit's forward ended, its output's hook fires before the unit's backward (pre_backward); where it
began, an identity on its inputs has its backward after the unit's (post_backward). Inputs that need
no gradient have no such identity: that unit (the root; an embedding in front of all computation) is
reduced in the callback at the end of backward. Gradients of a parameter arrive when the backward of
the module it is named after ("h.0.fc" of "h.0.fc.weight") has been issued.

Not here: units used twice in a forward, activation checkpoints, fully_shard of a list of modules or
with several meshes, parameters sharded in another dimension than the first, tensor parallelism,
extensions of the all-gather, offloading to the CPU, all-reduce hooks, set_post_optim_event, custom
or symmetric-memory collectives, casts of activations.
"""
import json
import sys
import types
from pathlib import Path

VERSIONS = ("2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14")
SIZE = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "uint8": 1}

KNOBS = {
    "reshard_after_forward": "default",  # None, True, False or a size of group
    "mp_policy": {},  # param_dtype, reduce_dtype
    "set_modules_to_forward_prefetch": {},  # unit: units
    "set_modules_to_backward_prefetch": {},
    "unshard_async_op": False,
    "set_unshard_in_backward": {},  # unit: bool
    "accumulation_steps": 1,
    # A list has one entry a micro-step.
    "set_requires_gradient_sync": True,
    "set_requires_all_reduce": True,
    "set_is_last_backward": True,
    "set_reshard_after_backward": True,
    "set_force_sum_reduction_for_comms": False,  # from 2.8
    "set_separate_reduce_scatter_group": False,  # from 2.13
    "set_reduce_scatter_max_input_buffers": 1,  # from 2.13
    "steps": 2,
}

# What; what is done from which version on; where that is written. Files are in
# torch/distributed/fsdp/_fully_shard.
DIFFERENCES: list[tuple[str, dict[str, object], str]] = [
    (
        "root_after_forward",
        {"2.5": "kept", "2.8": "as said"},
        "_fsdp_state.py _lazy_init: 2.7 clears the root's post_forward_mesh_info whatever was said;"
        " from 2.8 (PRs 154704, 155319) only where reshard_after_forward was left None",
    ),
    (
        "default",
        {"2.5": True, "2.8": None},
        "_fully_shard.py fully_shard: the argument's default; None is True for all but the root",
    ),
    (
        "uniform_dtype",
        {"2.5": "all", "2.8": "trainable"},
        "_fsdp_param_group.py _init_mp_dtypes: 2.7 asserts one dtype in a unit; later only of what"
        " needs a gradient: a frozen parameter of another dtype makes an all-gather of bytes",
    ),
    (
        "one_rank_gathers",
        {"2.5": "collectives", "2.9": "copies"},
        "_fsdp_param_group.py unshard, wait_for_unshard (PR 160135, 2.9)",
    ),
    (
        "one_rank_scatters",
        {"2.5": "collectives", "2.10": "copies"},
        "_fsdp_collectives.py foreach_reduce (PR 162021, 2.10)",
    ),
    (
        "one_rank_averages",
        {"2.5": "AVG", "2.9": "SUM"},
        "_fsdp_collectives.py _get_gradient_divide_factors: AVG of one rank is SUM (2.9)",
    ),
    (
        "force_sum",
        {"2.5": False, "2.8": True},
        "_fully_shard.py set_force_sum_reduction_for_comms (PR 155915)",
    ),
    (
        "recycle_asks_for_gradients",
        {"2.5": True, "2.12": False},
        "_fsdp_param_group.py post_backward: up to 2.11 a unit without gradients does not wait for"
        " the reduce-scatter before it; from 2.12 (PR 177319) it does",
    ),
    (
        "old_input_ends",
        {"2.5": "before", "2.12": "after", "2.13": "before"},
        "_fsdp_param_group.py post_backward: 2.12's loop over reduce_scatter_states leaves its"
        " variable on the last of them, so the input that was waited for ends when the function"
        " returns, after the next one was allocated; 2.13 says `del oldest`",
    ),
    (
        "input_buffers",
        {"2.5": False, "2.13": True},
        "_fsdp_param_group.py post_backward: set_reduce_scatter_max_input_buffers (PR 186000); of"
        " all units' values the largest counts, _fsdp_state.py _init_shared_state",
    ),
    (
        "separate_group",
        {"2.5": False, "2.13": True},
        "_fsdp_param_group.py _reduce_scatter_process_group (PR 186335)",
    ),
    (
        "end_waits",
        {"2.5": "each unit", "2.13": "each stream"},
        "_fsdp_param_group.py finalize_backward: 2.13 waits for the last event of each stream only"
        " (_last_post_reduce_events, PR 183983)",
    ),
    (
        "nccl_stream",
        {"2.5": "own", "2.8": "current"},
        "ProcessGroupNCCL.cpp: up to 2.7 a collective runs on its communicator's own stream, which"
        " waits for the current one and is waited for by it; from 2.8 (PR 150398) on the current"
        " stream unless async_op",
    ),
]


def is_from(version, since):
    return VERSIONS.index(version) >= VERSIONS.index(since)


def of_version(what, version):
    for name, values, _ in DIFFERENCES:
        if name == what:
            return next(v for since, v in reversed(values.items()) if is_from(version, since))
    raise KeyError(what)


def divide_factors(ranks, reduce_dtype, force_sum):
    """What is divided before and after, and the operation (_get_gradient_divide_factors)."""
    if reduce_dtype in ("float32", "bfloat16"):
        return (1, ranks, "SUM") if force_sum else (1, 1, "AVG")
    before = 1
    while ranks % before == 0 and ranks / before > before:
        before *= 2
    return before, ranks / before, "SUM"


class Parameter:
    """One tensor and its shards in the first dimension; every rank's shard is padded alike."""

    def __init__(self, said, shard_ranks, policy):
        self.name, shape = said[0], said[1]
        self.dtype = said[2] if len(said) > 2 else "float32"
        self.requires_grad = said[3] if len(said) > 3 else True
        self.module = self.name.rpartition(".")[0]
        rows, row = shape[0], 1
        for extent in shape[1:]:
            row *= extent
        chunk = -(-rows // shard_ranks)
        self.elements = rows * row
        self.padded_shard = chunk * row
        self.padded = self.padded_shard * shard_ranks
        self.shard_of_rank = [
            max(0, min(chunk, rows - rank * chunk)) * row for rank in range(shard_ranks)
        ]
        wanted, reduce_dtype = policy.get("param_dtype"), policy.get("reduce_dtype")
        self.cast_to = wanted if wanted != self.dtype else None
        self.compute_dtype = wanted or self.dtype
        # Both None, or gradients have that dtype anyway: nothing to cast.
        self.reduce_to = reduce_dtype if reduce_dtype != wanted else None
        self.gradient = None  # bytes of the unsharded gradient that autograd left
        self.accumulated = None  # bytes of one in the reduction's dtype
        self.sharded_gradient = False
        self.part = None  # bytes kept after forward, where they are a part


class Unit:
    def __init__(self, said, question):
        self.name = said["unit"]
        self.parameters = [
            Parameter(p, question.shard_ranks, question.mp_policy) for p in said["parameters"]
        ]
        self.input_requires_grad = said.get("input_requires_grad", "default")
        self.state = "sharded"  # post_forward, unsharded
        self.training = "idle"  # forward, pre_backward, post_backward
        self.result = None  # of an all-gather that nobody has waited for
        self.reshard_event = None
        self.post_reduce_event = None
        self.all_reduce_state = None  # (event, bytes that this reference keeps)
        self.partial = None  # bytes
        self.indices = []  # in the order of the forward
        self.had_outputs = False
        self.gradient_bytes = 0  # of the sharded gradients
        self.gradient_stream = None
        trainable = [p for p in self.parameters if p.requires_grad]
        asked = (
            self.parameters if of_version("uniform_dtype", question.version) == "all" else trainable
        )
        if len({p.dtype for p in asked}) > 1 or len({p.reduce_to for p in asked}) > 1:
            raise ValueError(f"{self.name}: parameters of several dtypes")
        self.orig_dtype = trainable[0].dtype if trainable else None
        self.shard_elements = sum(p.padded_shard for p in self.parameters)
        dtypes = {p.compute_dtype for p in self.parameters}
        self.gather_dtype = dtypes.pop() if len(dtypes) == 1 else "uint8"
        self.shard_bytes = sum(p.padded_shard * SIZE[p.compute_dtype] for p in self.parameters)
        self.unsharded_bytes = self.shard_bytes * question.shard_ranks
        self.cast = [p for p in self.parameters if p.cast_to]


class Question(types.SimpleNamespace):
    def __init__(self, said):
        self.version = said["version"]
        if self.version not in VERSIONS:
            raise ValueError(f"version {self.version}: {', '.join(VERSIONS)} are known")
        for knob in said:
            if knob not in KNOBS and knob not in ("version", "mesh", "units", "forward"):
                raise ValueError(f"unknown: {knob}")
        for knob, value in KNOBS.items():
            setattr(self, knob, said.get(knob, value))
        self.mesh = said["mesh"]
        if len(self.mesh) not in (1, 2):
            raise ValueError("a mesh has one or two dimensions")
        self.shard_ranks = self.mesh[-1]
        self.hybrid = len(self.mesh) == 2
        self.replicas = self.mesh[0] if self.hybrid else 1
        for knob, since in (
            ("set_force_sum_reduction_for_comms", "force_sum"),
            ("set_separate_reduce_scatter_group", "separate_group"),
        ):
            if getattr(self, knob) and not self.of(since):
                raise ValueError(f"{self.version} has no {knob}")
        self.buffers = self.set_reduce_scatter_max_input_buffers
        if self.buffers != 1 and not self.of("input_buffers"):
            raise ValueError(f"{self.version} has no set_reduce_scatter_max_input_buffers")
        if self.buffers < 1:
            raise ValueError("at least one input buffer")
        self.forward = said["forward"]
        self.units = {u["unit"]: Unit(u, self) for u in said["units"]}
        self.root = next(iter(self.units))
        for u in said["units"]:
            self.set_reshard(self.units[u["unit"]], u.get("reshard_after_forward", "unsaid"))
        one = self.shard_ranks == 1
        self.gathers = not one or self.of("one_rank_gathers") == "collectives"
        self.scatters = not one or self.of("one_rank_scatters") == "collectives"

    def of(self, what):
        return of_version(what, self.version)

    def set_reshard(self, u, wanted):
        """post_forward_ranks: None keeps the parameters, else ranks that each keep a part."""
        if wanted == "unsaid":
            wanted = self.reshard_after_forward
        if wanted == "default":
            wanted = self.of("default")
        if wanted is None and self.of("default"):
            raise ValueError(f"{self.version}: reshard_after_forward is a bool or an int")
        auto = wanted is None
        if auto:
            wanted = True
        if not isinstance(wanted, bool):
            if wanted < 1 or self.shard_ranks % wanted:
                raise ValueError(f"reshard_after_forward={wanted}: no factor of {self.shard_ranks}")
            if wanted == 1:
                wanted = False
            elif wanted == self.shard_ranks:
                wanted = True
        u.post_forward_ranks = None
        if wanted is True:
            u.post_forward_ranks = self.shard_ranks
        elif wanted is not False:
            u.post_forward_ranks = wanted
        if u.name == self.root and (auto or self.of("root_after_forward") == "kept"):
            u.post_forward_ranks = None

    def at(self, knob, micro):
        value = getattr(self, knob)
        return value[micro] if isinstance(value, list) else value


class Event:
    def __init__(self, stream, after, carried):
        self.stream, self.after, self.carried = stream, after, carried


class Device:
    """Streams, events and memory of one rank. Times are none; order is all."""

    def __init__(self):
        self.log = []  # everything, as the host did it
        self.last = {}  # of each stream: the operation issued last
        self.pending = {}  # of each stream: what its next operation must wait for
        self.communicator = {}  # of each group: the collective issued last
        self.live = 0
        self.peak = 0
        self.count = {}

    def record(self, stream):
        return Event(stream, self.last.get(stream), set(self.pending.get(stream, ())))

    def wait(self, stream, event, how="event"):
        self.log.append(
            {"do": "wait", "stream": stream, "on": event.stream, "after": event.after, "how": how}
        )
        if stream != event.stream:
            waits = self.pending.setdefault(stream, set())
            waits |= event.carried
            if event.after:
                waits.add(event.after)

    def wait_stream(self, stream, on):
        self.wait(stream, self.record(on), "stream")

    def issue(self, stream, kind, unit, **fields):
        name = f"{kind}/{unit}"
        number = self.count[name] = self.count.get(name, -1) + 1
        full = name if number == 0 else f"{name}#{number}"
        op = {"do": "op", "stream": stream, "op": full, "kind": kind, "unit": unit}
        op["waits"] = sorted(self.pending.pop(stream, set()))
        op.update(fields)
        if "group" in op:
            op["after_in_communicator"] = self.communicator.get(op["group"])
            self.communicator[op["group"]] = full
        self.last[stream] = full
        self.log.append(op)
        return full

    def allocate(self, what, unit, size, stream):
        self.live += size
        self.peak = max(self.peak, self.live)
        self.log.append(
            {"do": "allocate", "what": what, "unit": unit, "bytes": size, "stream": stream}
        )

    def free(self, what, unit, size, stream):
        """The last reference is dropped. The block is `stream`'s, on which it was allocated: what
        is issued there later may write into it, that is, after `reuse_after`."""
        self.live -= size
        after = set(self.pending.get(stream, ()))
        if stream in self.last:
            after.add(self.last[stream])
        self.log.append(
            {
                "do": "free",
                "what": what,
                "unit": unit,
                "bytes": size,
                "stream": stream,
                "reuse_after": sorted(after),
            }
        )

    def mark(self, what, unit):
        self.log.append({"do": "mark", "what": what, "unit": unit})


COMPUTE, COPY_IN, GATHER = "compute", "all_gather_copy_in", "all_gather"
SCATTER, REDUCE = "reduce_scatter", "all_reduce"


class Rank:
    def __init__(self, said):
        self.q = Question(said)
        self.d = Device()
        self.all_gather_state = None  # (result, copy-out's event): freed by the next copy-out
        self.scatter_states = []  # (unit, bytes, event): inputs that must not be reused yet
        self.last_post_reduce = {}  # 2.13: the last event of each stream
        self.order = []  # of forwards' ends
        self.micro = 0
        self.trace = None

    # --- unshard
    def gather_streams(self, training):
        """Copy-in's and the all-gather's; async_op, or by hand, both the current one."""
        if not self.q.unshard_async_op and training in ("forward", "pre_backward"):
            return COPY_IN, GATHER
        return COMPUTE, COMPUTE

    def gather_streams_wait(self, event):
        self.d.wait(COPY_IN, event)
        self.d.wait(GATHER, event)

    def unshard(self, u, prefetch=False):
        q, d = self.q, self.d
        if u.result or u.state == "unsharded":
            return
        if not q.set_unshard_in_backward.get(u.name, True) and u.training == "pre_backward":
            return
        if u.reshard_event:
            self.gather_streams_wait(u.reshard_event)
            u.reshard_event = None
        if not q.gathers:
            u.result = {"event": None, "work": None, "bytes": 0, "stream": COMPUTE}
            return
        copy_in, gather = self.gather_streams(u.training)
        ranks, group = q.shard_ranks, "shard"
        if u.state == "post_forward":
            ranks, group = u.post_forward_ranks, "post_forward"
        mine = u.unsharded_bytes // ranks  # what each rank of that group keeps, padded
        elements = u.shard_elements * q.shard_ranks
        if u.gather_dtype == "uint8":
            elements = u.unsharded_bytes
        if u.cast:  # kept in another dtype than computed with: one foreach copy more
            wide = sum(
                p.padded // ranks * SIZE[p.dtype if u.state == "sharded" else p.compute_dtype]
                for p in u.cast
            )
            narrow = sum(p.padded // ranks * SIZE[p.compute_dtype] for p in u.cast)
            d.allocate("cast_shard", u.name, narrow, copy_in)
            d.issue(copy_in, "cast_shard", u.name, read=wide, write=narrow)
        d.allocate("gathered", u.name, mine * ranks, copy_in)
        d.issue(copy_in, "copy_in", u.name, read=mine, write=mine)
        d.wait_stream(gather, copy_in)
        if q.unshard_async_op:
            nccl = f"nccl/{group}"
            d.pending.setdefault(nccl, set()).add(d.last[gather])
        name = d.issue(
            nccl if q.unshard_async_op else gather,
            "all_gather",
            u.name,
            issued_on=gather,
            runs_on=self.runs_on(gather, group, q.unshard_async_op),
            group=group,
            ranks=ranks,
            elements=elements,
            dtype=u.gather_dtype,
            bytes=mine * ranks,
            prefetch=prefetch,
        )
        work = Event(nccl, name, set()) if q.unshard_async_op else None
        event = d.record(gather)
        if u.cast:
            d.free("cast_shard", u.name, narrow, copy_in)
        u.result = {"event": event, "work": work, "bytes": mine * ranks, "stream": copy_in}

    def runs_on(self, stream, group, async_op=False):
        own = async_op or self.q.of("nccl_stream") == "own"
        return f"nccl/{group}" if own else stream

    def drop_gathered(self, u, result):
        if result["bytes"]:
            self.d.free("gathered", u.name, result["bytes"], result["stream"])

    def wait_for_unshard(self, u):
        q, d = self.q, self.d
        result, before, held = u.result, None, []
        if not result:
            return
        if u.training == "forward" and self.all_gather_state:
            before = self.all_gather_state
            self.gather_streams_wait(before[2])
            self.all_gather_state = None
        if not q.gathers:
            held = self.copy_own_shard(u)
        else:
            d.wait(COMPUTE, result["event"])
            if result["work"]:
                d.wait(COMPUTE, result["work"], "work")
            for p in u.parameters:
                d.allocate("unsharded", u.name, p.padded * SIZE[p.compute_dtype], COMPUTE)
            d.issue(COMPUTE, "copy_out", u.name, read=result["bytes"], write=result["bytes"])
        if u.state == "post_forward":
            for p in u.parameters:
                d.free("post_forward", u.name, p.part, COMPUTE)
                p.part = None
        u.state = "unsharded"
        event = d.record(COMPUTE)
        u.result = None
        if not result["work"] and u.training == "forward" and q.gathers:
            self.all_gather_state = (u, result, event)
        else:
            self.gather_streams_wait(event)
            self.drop_gathered(u, result)
        if before:  # a local name kept it until here: three buffers are there for a moment
            self.drop_gathered(*before[:2])
        for size in held:
            d.free("cast_shard", u.name, size, COMPUTE)

    def copy_own_shard(self, u):
        """A shard group of one rank: a copy, and a cast, of each parameter. A cast copy's end is
        the next one's beginning, or the return."""
        d, held = self.d, []
        for p in u.parameters:
            size = p.padded * SIZE[p.compute_dtype]
            if p.cast_to:
                d.allocate("cast_shard", u.name, size, COMPUTE)
                d.issue(COMPUTE, "cast_own", u.name, read=p.padded * SIZE[p.dtype], write=size)
            for old in held:
                d.free("cast_shard", u.name, old, COMPUTE)
            held = [size] if p.cast_to else []
            d.allocate("unsharded", u.name, size, COMPUTE)
            d.issue(COMPUTE, "copy_shard", u.name, read=size, write=size)
        return held

    def prefetch(self, u, training):
        if u.parameters:
            was, u.training = u.training, training
            self.unshard(u, True)
            u.training = was

    # --- reshard
    def to_sharded(self, u):
        if u.state == "sharded":
            return
        if u.state == "unsharded":
            for p in u.parameters:
                self.d.free("unsharded", u.name, p.padded * SIZE[p.compute_dtype], COMPUTE)
        u.state = "sharded"
        self.d.mark("reshard", u.name)

    def reshard_after_forward(self, u):
        d = self.d
        if u.post_forward_ranks is None:
            return
        if u.post_forward_ranks == self.q.shard_ranks:
            self.to_sharded(u)
            return
        for p in u.parameters:
            size = p.padded * SIZE[p.compute_dtype]
            part = size // u.post_forward_ranks
            d.allocate("post_forward", u.name, part, COMPUTE)
            d.issue(COMPUTE, "keep_part", u.name, read=part, write=part)
            if p.part:  # of a forward whose backward did not gather
                d.free("post_forward", u.name, p.part, COMPUTE)
            p.part = part
            d.free("unsharded", u.name, size, COMPUTE)
        u.state = "post_forward"
        d.mark("reshard_part", u.name)
        u.reshard_event = d.record(COMPUTE)

    # --- forward
    def pre_forward(self, u):
        d = self.d
        if u.name == self.q.root:
            d.wait_stream(COPY_IN, COMPUTE)
            d.wait_stream(GATHER, COMPUTE)
        if u.parameters:
            u.training = "forward"
            self.unshard(u)
            self.wait_for_unshard(u)
        for name in self.q.set_modules_to_forward_prefetch.get(u.name, ()):
            self.prefetch(self.q.units[name], "forward")

    def post_forward(self, u):
        if u.parameters:
            self.reshard_after_forward(u)
            u.indices.append(len(self.order))
            self.order.append(u)
            u.training = "idle"
        if u.name == self.q.root and self.all_gather_state:
            other, old, event = self.all_gather_state
            self.gather_streams_wait(event)
            self.all_gather_state = None
            self.drop_gathered(other, old)

    def needs_gradient(self, module, open_units):
        """Does what this module makes need one, of inputs that need none?"""
        of_module = [p for u in open_units for p in u.parameters if p.module == module]
        return any(p.requires_grad for p in of_module or open_units[-1].parameters)

    def forward(self):
        self.trace = []
        gradient, open_units = False, []
        for what, name in self.q.forward:
            if what == "enter":
                u = self.q.units[name]
                open_units.append(u)
                self.pre_forward(u)
                hooked = u.input_requires_grad
                self.trace.append([what, u, gradient if hooked == "default" else hooked])
            elif what == "exit":
                self.post_forward(open_units[-1])
                self.trace.append([what, open_units.pop(), gradient])
            else:
                self.d.issue(COMPUTE, "fwd", name)
                gradient = gradient or self.needs_gradient(name, open_units)
                self.trace.append([what, name, gradient])

    # --- backward
    def pre_backward(self, u):
        explicit = self.q.set_modules_to_backward_prefetch.get(u.name, ())
        if u.parameters and u.training != "pre_backward":
            self.d.mark("pre_backward", u.name)
            u.training = "pre_backward"
            self.unshard(u)
            self.wait_for_unshard(u)
            if not explicit and u.indices:
                index = u.indices.pop()
                if index > 0:
                    self.prefetch(self.order[index - 1], "pre_backward")
        for name in explicit:
            self.prefetch(self.q.units[name], "pre_backward")

    def gradients_arrive(self, parameters):
        d = self.d
        for u, p in parameters:
            if not p.requires_grad:
                continue
            size = p.elements * SIZE[p.compute_dtype]
            d.log.append({"do": "gradient", "parameter": p.name, "unit": u.name})
            if p.gradient:  # autograd adds in place
                d.issue(COMPUTE, "autograd_add", p.name, read=2 * size, write=size)
            else:
                d.allocate("gradient", u.name, size, COMPUTE)
                p.gradient = size

    def post_backward(self, u):
        q, d = self.q, self.d
        d.mark("post_backward", u.name)
        u.training = "post_backward"
        for p in u.parameters:
            if p.accumulated and p.gradient:
                d.issue(
                    COMPUTE,
                    "add_accumulated",
                    u.name,
                    read=p.accumulated + p.gradient,
                    write=p.accumulated,
                )
                d.free("gradient", u.name, p.gradient, COMPUTE)
                p.gradient = None
        if not q.at("set_requires_gradient_sync", self.micro):
            if q.at("set_reshard_after_backward", self.micro):
                self.to_sharded(u)
            for p in u.parameters:
                if p.reduce_to and p.gradient and p.compute_dtype != p.reduce_to:
                    p.accumulated = p.elements * SIZE[p.reduce_to]
                    d.allocate("accumulated", u.name, p.accumulated, COMPUTE)
                    d.issue(COMPUTE, "cast_gradient", u.name, read=p.gradient, write=p.accumulated)
                    d.free("gradient", u.name, p.gradient, COMPUTE)
                    p.gradient = None
            return
        with_gradient = [p for p in u.parameters if p.accumulated or p.gradient]
        if q.at("set_reshard_after_backward", self.micro):
            self.to_sharded(u)
        old = []
        if with_gradient or not q.of("recycle_asks_for_gradients"):
            old = self.recycle()
        if with_gradient:
            self.wait_for_post_backward(u)
            self.reduce(u, with_gradient)
        self.drop_inputs(old)

    def recycle(self):
        """Compute waits for the oldest reduce-scatter, whose input is then given back."""
        old = []
        while len(self.scatter_states) >= self.q.buffers:
            old.append(self.scatter_states.pop(0))
            self.d.wait(COMPUTE, old[-1][2])
            if self.q.of("old_input_ends") == "before":
                self.drop_inputs([old.pop()])
        return old

    def drop_inputs(self, states):
        for u, size, _ in states:
            self.d.free("scatter_input", u.name, size, COMPUTE)

    def wait_for_post_backward(self, u):
        if u.post_reduce_event:
            self.d.wait(COMPUTE, u.post_reduce_event)
            u.post_reduce_event = None
        if u.all_reduce_state:
            self.d.wait(COMPUTE, u.all_reduce_state[0])
            self.drop_all_reduce_state(u)

    def drop_all_reduce_state(self, u):
        size = u.all_reduce_state[1]
        u.all_reduce_state = None
        if size:
            self.d.free("scatter_output", u.name, size, SCATTER)

    def reduce(self, u, parameters):
        q, d = self.q, self.d
        first = parameters[0]
        dtype = first.reduce_to or first.compute_dtype
        elements = sum(p.padded for p in parameters)
        size = elements * SIZE[dtype]
        out = size // q.shard_ranks
        ranks = q.shard_ranks * q.replicas
        force = q.set_force_sum_reduction_for_comms
        before, after, reduce_op = divide_factors(ranks, dtype, force)
        if reduce_op == "AVG" and ranks == 1 and q.of("one_rank_averages") == "SUM":
            reduce_op = "SUM"
        group = "shard_reduce" if q.set_separate_reduce_scatter_group else "shard"
        d.allocate("scatter_input", u.name, size, COMPUTE)
        d.issue(
            COMPUTE,
            "reduce_copy_in",
            u.name,
            read=sum(p.accumulated or p.gradient for p in parameters),
            write=size,
            dtype=dtype,
        )
        gradients = [
            ("accumulated" if p.accumulated else "gradient", u.name, p.accumulated or p.gradient)
            for p in parameters
        ]
        for p in parameters:
            p.accumulated = p.gradient = None
        kept = [] if not q.scatters else [gradients.pop()]  # a loop's variable, until the return
        for gradient in reversed(gradients):
            d.free(*gradient, COMPUTE)
        d.wait_stream(SCATTER, COMPUTE)
        d.allocate("scatter_output", u.name, out, SCATTER)
        if before > 1:
            d.issue(SCATTER, "predivide", u.name, read=size, write=size, by=before)
        if not q.scatters:
            d.issue(SCATTER, "copy_gradient", u.name, read=size, write=out)
        else:
            d.issue(
                SCATTER,
                "reduce_scatter",
                u.name,
                issued_on=SCATTER,
                runs_on=self.runs_on(SCATTER, group),
                group=group,
                ranks=q.shard_ranks,
                elements=elements,
                dtype=dtype,
                bytes=size,
                reduce_op=reduce_op,
            )
        self.scatter_states.append((u, size, d.record(SCATTER)))
        stream = SCATTER
        if q.hybrid:
            if not q.at("set_requires_all_reduce", self.micro):
                had, u.partial = u.partial, out
                if had:
                    d.issue(SCATTER, "add_partial", u.name, read=2 * out, write=out)
                self.end_reduce(u, SCATTER, kept)
                if had:
                    d.free("scatter_output", u.name, out, SCATTER)
                return
            if u.partial:
                d.issue(SCATTER, "add_partial", u.name, read=2 * out, write=out)
            stream = REDUCE
            d.wait_stream(REDUCE, SCATTER)
            d.issue(
                REDUCE,
                "all_reduce",
                u.name,
                issued_on=REDUCE,
                runs_on=self.runs_on(REDUCE, "replicate"),
                group="replicate",
                ranks=q.replicas,
                elements=elements // q.shard_ranks,
                dtype=dtype,
                bytes=out,
                reduce_op=reduce_op,
            )
            u.all_reduce_state = (d.record(REDUCE), 0)
        if after > 1:
            d.issue(stream, "postdivide", u.name, read=out, write=out, by=after)
        self.give_gradients(u, parameters, stream, dtype, out, kept)
        if u.partial:
            d.free("scatter_output", u.name, u.partial, SCATTER)
            u.partial = None

    def give_gradients(self, u, parameters, stream, dtype, out, kept):
        """Cast to the parameters' dtype; gradients are views of that, or added to what is there."""
        d = self.d
        what, held, owner = "scatter_output", out, SCATTER
        if dtype != u.orig_dtype:
            held = out // SIZE[dtype] * SIZE[u.orig_dtype]
            d.allocate("sharded_gradient", u.name, held, stream)
            d.issue(stream, "cast_back", u.name, read=out, write=held)
            if u.all_reduce_state:  # it keeps what was reduced until the end of backward
                u.all_reduce_state = (u.all_reduce_state[0], out)
            else:
                d.free("scatter_output", u.name, out, SCATTER)
            what, owner = "sharded_gradient", stream
        fresh = 0
        for p in parameters:
            size = p.shard_of_rank[0] * SIZE[u.orig_dtype]
            if p.sharded_gradient:
                d.issue(stream, "add_gradient", u.name, read=2 * size, write=size)
            else:
                fresh += 1
                p.sharded_gradient = True
        self.end_reduce(u, stream, kept)
        if not fresh:
            if what == "scatter_output" and u.all_reduce_state:
                u.all_reduce_state = (u.all_reduce_state[0], held)
            else:
                d.free(what, u.name, held, owner)
        else:
            u.gradient_bytes, u.gradient_stream = held, (what, owner)

    def end_reduce(self, u, stream, kept):
        u.post_reduce_event = self.d.record(stream)
        for gradient in kept:
            self.d.free(*gradient, stream=COMPUTE)
        if self.q.of("end_waits") == "each stream":
            self.last_post_reduce[stream] = u.post_reduce_event

    def finalize(self, u):
        d = self.d
        if self.q.of("end_waits") == "each stream":
            for event in self.last_post_reduce.values():
                d.wait(COMPUTE, event)
            self.last_post_reduce = {}
            u.post_reduce_event = None
            if u.all_reduce_state:
                self.drop_all_reduce_state(u)
        else:
            self.wait_for_post_backward(u)
        if u.result:  # gathered for a backward that did not come
            if u.result["event"]:
                d.wait(COMPUTE, u.result["event"])
            if u.result["work"]:
                d.wait(COMPUTE, u.result["work"], "work")
            result, u.result = u.result, None
            self.drop_gathered(u, result)
        u.indices = []

    def end_of_backward(self):
        d = self.d
        d.mark("end_of_backward", None)
        last = self.q.at("set_is_last_backward", self.micro)
        for u in self.q.units.values():
            if not u.parameters:
                continue
            if u.training != "post_backward":
                self.post_backward(u)
            u.training = "idle"
            if last:
                self.finalize(u)
        if last:
            self.order = []
            for _, _, event in self.scatter_states:
                d.wait(COMPUTE, event)
            last_one = self.scatter_states[-1:]  # a loop's variable, until the return
            self.drop_inputs([*reversed(self.scatter_states[:-1]), *last_one])
            self.scatter_states = []

    def backward(self):
        modules = {}
        for u in self.q.units.values():
            for p in u.parameters:
                modules.setdefault(p.module, []).append((u, p))
        ran = {name for what, name in self.q.forward if what == "compute"}
        ending = []
        for what, who, hooked in reversed(self.trace):
            if not hooked and what != "enter":
                continue
            if what == "exit":
                ending.append(who)
                continue
            for u in reversed(ending):  # hooks of one tensor, in order of registration
                self.pre_backward(u)
            ending = []
            if what == "compute":
                self.d.issue(COMPUTE, "bwd", who)
                self.gradients_arrive(reversed(modules.get(who, [])))
                continue
            self.gradients_arrive(
                reversed([(who, p) for p in who.parameters if p.module not in ran])
            )
            if hooked and who.parameters:
                self.post_backward(who)
        self.end_of_backward()

    # --- the step
    def step(self):
        q, d = self.q, self.d
        start = len(d.log)
        d.count = {}
        for u in q.units.values():  # zero_grad
            if u.gradient_bytes:
                what, owner = u.gradient_stream
                d.free(what, u.name, u.gradient_bytes, owner)
                u.gradient_bytes = 0
            for p in u.parameters:
                p.sharded_gradient = False
        for self.micro in range(q.accumulation_steps):
            d.mark("micro_batch", self.micro)
            d.mark("forward", None)
            self.forward()
            d.mark("backward", None)
            self.backward()
        d.mark("step", None)
        d.issue(COMPUTE, "optimizer", "all")
        return d.log[start:]


def steps(question):
    rank = Rank(question)
    return [rank.step() for _ in range(rank.q.steps)]


def listing(log):
    for e in log:
        what = e["do"]
        if what == "op":
            hidden = ("do", "stream", "op", "waits", "kind", "unit")
            rest = " ".join(f"{k}={v}" for k, v in e.items() if k not in hidden and v is not None)
            waits = f"  <- {', '.join(e['waits'])}" if e["waits"] else ""
            yield f"{e['stream']:18} {e['op']}  {rest}{waits}"
        elif what == "wait":
            yield f"{e['stream']:18} waits for {e['on']} ({e['after']})"
        elif what in ("allocate", "free"):
            after = f"  reuse after {', '.join(e['reuse_after'])}" if what == "free" else ""
            yield f"{'':18} {what} {e['what']} {e['unit']} {e['bytes']} {e['stream']}{after}"
        elif what == "mark":
            yield f"{'':18} [{e['what']} {e['unit']}]"


# --- what a scenario expects, and closed forms
def ops(log, kind):
    return [e for e in log if e["do"] == "op" and e["kind"] == kind]


def most(log, kinds, live=0):
    """The most bytes of these kinds that are allocated at once, as the host sees it."""
    peak = live
    for e in log:
        if e["do"] in ("allocate", "free") and e["what"] in kinds:
            live += e["bytes"] if e["do"] == "allocate" else -e["bytes"]
            peak = max(peak, live)
    return peak


PARAMETERS = ("gathered", "unsharded", "post_forward", "cast_shard")


def said_of(log, what):
    if what in ("all_gather", "reduce_scatter", "all_reduce"):
        return [f"{e['unit']} {e['bytes']}" for e in ops(log, what)]
    if what == "prefetched":
        return [e["op"] for e in ops(log, "all_gather") if e["prefetch"]]
    if what == "groups":
        return sorted({f"{e['kind']} {e['group']} {e['ranks']}" for e in log if "group" in e})
    if what == "runs_on":
        return sorted({f"{e['kind']} {e['runs_on']}" for e in log if "group" in e})
    if what == "reduce_ops":
        return sorted({f"{e['kind']} {e['reduce_op']}" for e in log if "reduce_op" in e})
    if what == "dtypes":
        return sorted({f"{e['kind']} {e['dtype']}" for e in log if "group" in e})
    if what == "kernels":
        counted = {}
        for e in log:
            if e["do"] == "op" and "read" in e:
                counted[e["kind"]] = counted.get(e["kind"], 0) + 1
        return counted
    if what == "kernel_bytes":
        return {e["op"]: [e["read"], e["write"]] for e in log if e["do"] == "op" and "read" in e}
    if what == "streams":
        return {e["kind"]: e["stream"] for e in log if e["do"] == "op"}
    if what == "elements":
        return {e["op"]: e["elements"] for e in log if "group" in e}
    if what == "divided_by":
        return sorted({(e["kind"], e["by"]) for e in log if "by" in e})
    if what == "waits":
        return {e["op"]: e["waits"] for e in log if e["do"] == "op"}
    if what == "peak_of_parameters":
        return most(log, PARAMETERS)
    if what == "peak_of_inputs":
        return most(log, ("scatter_input",))
    if what == "peak_of_gradients":
        return most(log, ("gradient", "accumulated"))
    if what == "after_in_communicator":
        return {e["op"]: e["after_in_communicator"] for e in log if "group" in e}
    if what == "host_waits":
        return sum(e["do"] == "host_wait" for e in log)
    raise KeyError(what)


def play(scenario):
    """What a scenario expects that is not so."""
    expected, wrong = scenario["expected"], []
    try:
        log = steps(scenario["question"])[-1]
    except ValueError as refused:
        said = expected.get("refused", "nothing")
        return [] if said in str(refused) else [f"refused: {refused}, expected {said}"]
    for what, wanted in expected.items():
        if what == "refused":
            wrong.append(f"not refused: {wanted}")
            continue
        got = said_of(log, what)
        if isinstance(wanted, dict) and what != "kernels":  # these of many
            got = {k: got.get(k) for k in wanted}
        if json.loads(json.dumps(got)) != wanted:
            wrong.append(f"{what}: {got}, expected {wanted}")
    return wrong


def chain(version, count, rows, ranks, **knobs):
    """A root with one tensor in front and one behind, and `count` units of two tensors in a row."""
    units = [{"unit": "root", "parameters": [["in.w", [rows, 2]], ["out.w", [3, rows]]]}]
    forward = [["enter", "root"], ["compute", "in"]]
    for i in range(count):
        parameters = [[f"u{i}.w", [rows, 5]], [f"u{i}.b", [rows]]]
        units.append({"unit": f"u{i}", "parameters": parameters})
        forward += [["enter", f"u{i}"], ["compute", f"u{i}"], ["exit", f"u{i}"]]
    forward += [["compute", "out"], ["exit", "root"]]
    return {"version": version, "mesh": ranks, "units": units, "forward": forward, **knobs}


def closed_forms(expect):
    def up(count, ranks):
        return -(-count // ranks) * ranks

    for version in VERSIONS:
        for n, count, rows in ((2, 1, 4), (4, 5, 7), (3, 6, 2), (8, 4, 16)):
            unit, root = 4 * up(rows, n) * 6, 4 * (up(rows, n) * 2 + up(3, n) * rows)
            about = f"{version}, {n} ranks, {count} units of {rows} rows"
            log = steps(chain(version, count, rows, [n]))[1]
            gathered = sum(e["bytes"] for e in ops(log, "all_gather"))
            expect(f"{about}: gathered", gathered == root + 2 * count * unit)
            reduced = sum(e["bytes"] for e in ops(log, "reduce_scatter"))
            expect(f"{about}: reduced", reduced == root + count * unit)
            ahead = min(count, 2)  # in forward, the next one is gathered beside this one
            peak = max(root + (1 + ahead) * unit, 2 * root + 2 * unit)
            expect(f"{about}: peak", most(log, PARAMETERS) == peak)
            inputs = [max(root, unit), max(root, unit) if count == 1 else 2 * unit]
            if version == "2.12":
                inputs[1] = max(2 * unit * (count > 1), root + unit)
            expect(f"{about}: inputs", most(log, ("scatter_input",)) == inputs[version == "2.12"])
            log = steps(chain(version, count, rows, [n], reshard_after_forward=False))[1]
            gathered = sum(e["bytes"] for e in ops(log, "all_gather"))
            expect(f"{about}: kept, gathered once", gathered == root + count * unit)
            kept = root + count * unit
            peak = max(kept + min(count, 2) * unit, 2 * root + 2 * unit)
            expect(f"{about}: kept, peak", most(log, PARAMETERS) == peak)
            hybrid = steps(chain(version, count, rows, [2, n]))[1]
            summed = sum(e["bytes"] for e in ops(hybrid, "all_reduce"))
            expect(f"{about}: all-reduced shards", summed * n == root + count * unit)
            expect(f"{about}: the host never waits", said_of(log, "host_waits") == 0)
    knobs: dict
    for knobs in (
        {},
        {"mp_policy": {"param_dtype": "bfloat16"}},
        {"mp_policy": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}},
        {"accumulation_steps": 2, "set_requires_gradient_sync": [False, True]},
        {"accumulation_steps": 2, "set_is_last_backward": [False, True]},
        {"reshard_after_forward": 2},
        {"unshard_async_op": True},
        {"reshard_after_forward": False, "set_reshard_after_backward": True},
    ):
        for version in VERSIONS:
            for mesh in ([4], [2, 4], [1]):
                if mesh == [1] and knobs.get("reshard_after_forward") == 2:
                    continue
                rank, live = Rank(chain(version, 3, 7, mesh, **knobs)), []
                for _ in range(4):
                    log = rank.step()
                    known = {e["op"] for e in log if e["do"] == "op"} | {"optimizer/all"}
                    asked = {w for e in log if e["do"] == "op" for w in e["waits"]}
                    expect(f"{version} {mesh} {knobs}: waits for what is there", asked <= known)
                    live.append(rank.d.live)
                expect(
                    f"{version} {mesh} {knobs}: nothing is lost or freed twice: {live}",
                    live[1] == live[2] == live[3] > 0,
                )
    for ranks, factors in (
        (2, (2, 1)),
        (3, (2, 1.5)),
        (5, (2, 2.5)),
        (4, (2, 2)),
        (8, (4, 2)),
        (16, (4, 4)),
    ):
        expect(f"fp16 on {ranks}", divide_factors(ranks, "float16", False) == (*factors, "SUM"))
    p = Parameter(["w", [5, 3]], 4, {})
    expect(
        "5 rows on 4 ranks", (p.padded, p.padded_shard, p.shard_of_rank) == (24, 6, [6, 6, 3, 0])
    )


def self_test():
    failed = []

    def expect(what, condition):
        if not condition:
            failed.append(what)

    closed_forms(expect)
    found = sorted((Path(__file__).resolve().parent / "scenarios").glob("fsdp2-*.json"))
    expect(f"{len(found)} scenarios", len(found) >= 12)
    for path in found:
        for wrong in play(json.loads(path.read_text(encoding="utf-8"))):
            failed.append(f"{path.name}: {wrong}")
    for f in failed:
        print("failed:", f)
    print("self-test:", "failed" if failed else f"ok, {len(found)} scenarios")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:] == ["--differences"]:
        for what, values, where in DIFFERENCES:
            told = ", ".join(f"{v}: {value}" for v, value in values.items())
            print(f"{what}\n  {told}\n  {where}")
        return 0
    with open(sys.argv[1], encoding="utf-8") as f:
        question = json.load(f)
    question = question.get("question", question)
    for number, log in enumerate(steps(question)):
        print(f"== step {number}")
        print("\n".join(listing(log)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
