#!/usr/bin/env python3
"""Record what a training script would do as one rank of many, without a GPU and without other
ranks.

  ddpsim_record_program.py --ranks 8 --out step.program.json train.py [ARGUMENTS OF train.py ...]

Runs the script in this process and lets it believe that it is rank --rank of --ranks: whatever
backend it asks `torch.distributed` for, it gets a process group that performs nothing and writes
everything down. The file (ddpsim.program/1, docs/formats.md) holds, for each optimizer step, when
which gradient was ready and every collective: operation, group, bytes, dtype, and the parameters,
gradients or buffers that it carries, recognised by their memory or by their values. Nothing of any
framework is assumed, so that a schedule arrives as its own code makes it. `ddpsim compare` holds it
against a lowered one (`ddpsim show program SCENARIO --format json`).

What does not exist here does not happen: a collective leaves its output as one rank's input makes
it (a sum is what this rank gave, a gather repeats it), so the loss is not that of a real job. A
script whose control flow depends on received values may go another way; point-to-point messages
deliver nothing. Durations are of this machine's processor.

Exit code: 0 recorded; 2 the script cannot be recorded (one sentence says why).
"""
import argparse
import datetime
import json
import os
import runpy
import sys
import time
import traceback
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ddpsim_files import write_whole  # noqa: E402

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

SCHEMA = "ddpsim.program/1"
BACKEND = "ddpsim"  # what the recording process group is called
BYTES = {
    torch.float64: 8,
    torch.int64: 8,
    torch.float32: 4,
    torch.int32: 4,
    torch.float16: 2,
    torch.bfloat16: 2,
    torch.int16: 2,
    torch.uint8: 1,
    torch.int8: 1,
    torch.bool: 1,
}
WRAPPERS = ("module.", "_fsdp_wrapped_module.", "_orig_mod.", "_fpw_module.")


class CannotRecord(Exception):
    """One sentence for the user."""


class Enough(BaseException):
    """As many steps as were asked for; no `except Exception` of the script stops it."""


def dtype_name(dtype):
    return str(dtype).replace("torch.", "")


def plain(name):
    """A parameter's name without what wraps the model."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def place(tensor):
    """(storage, first byte, one past the last) in memory; None for what has no memory of its
    own."""
    if tensor.numel() == 0 or not tensor.is_contiguous():
        return None
    begin = tensor.data_ptr()
    return begin, begin + tensor.numel() * tensor.element_size()


class Recorder:
    """Events of the script, in the order in which this rank issues them."""

    def __init__(self, ranks, rank, steps, updates=1):
        self.ranks, self.rank, self.steps, self.updates = ranks, rank, steps, updates
        self.roots = []  # models, in the order in which they first ran
        self.of_root = []  # their tensors' names
        self.updated = 0  # optimizer steps of the step in progress
        self.backward = False  # a gradient has come since a model's forward began
        self.named = {}  # plain name -> parameter or buffer
        self.kind = {}  # plain name -> "parameter", "buffer"
        self.done = []  # finished steps: lists of operations
        self.ops = []  # of the step in progress; before the first forward: "init"
        self.init = None
        self.arrived = []  # names of gradients of this step, in order of arrival
        self.taken = set()  # gradients that a collective of this step has carried
        self.last_compute = None
        self.waited = []  # collectives that the script waited for since the last computation
        self.pending = {}  # id of a Work -> name of its collective
        self.unnamed = []  # (operation, what it carried): before the model was seen
        self.began = time.perf_counter_ns()

    # ---- what the script computes

    def saw_module(self, module):
        """An outermost module that runs is a model, if it trains what is of none before it."""
        if any(module is root for root in self.roots):
            return
        known = {id(t) for t in self.named.values()}
        if self.roots and not any(
            p.requires_grad and id(p) not in known for p in module.parameters()
        ):
            return
        self.roots.append(module)
        self.of_root.append([])
        # Of the first plain; of others behind their class, for the time being.
        before = f"{self.title(len(self.roots) - 1)}." if len(self.roots) > 1 else ""
        for kind, tensors in (
            ("parameter", module.named_parameters()),
            ("buffer", module.named_buffers()),
        ):
            for name, t in tensors:
                if len(self.roots) > 1 and id(t) in known:
                    continue
                name = before + plain(name)
                self.named[name], self.kind[name] = t, kind
                self.of_root[-1].append(name)
                if kind == "parameter" and t.requires_grad and t.is_leaf:
                    t.register_hook(self.gradient_hook(name))
        if len(self.roots) == 1:
            self.init, self.ops, self.waited = self.ops, [], []
        for op, tensors in self.unnamed:
            op["tensors"] = []
            op.pop("unrecognised_elements", None)
            self.name_tensors(op, tensors)
        # What is left may be of a model that has yet to run.
        self.unnamed = [u for u in self.unnamed if "unrecognised_elements" in u[0]]

    def title(self, k):
        """Of a model among several: its class, with a number where another has it, too."""
        titles = []
        for root in self.roots:
            while type(root).__name__ in ("DistributedDataParallel", "OptimizedModule") and any(
                True for _ in root.children()
            ):
                root = next(root.children())
            titles.append(type(root).__name__)
        same = [j for j, title in enumerate(titles) if title == titles[k]]
        return titles[k] if same[0] == k else f"{titles[k]}{same.index(k) + 1}"

    def gradient_hook(self, name):
        def ready(gradient):
            self.backward = True
            self.taken.discard(name)  # of a second backward it is another
            if name not in self.arrived:
                self.arrived.append(name)
            self.compute("backward", f"bwd/{name}", [name])
            return gradient

        return ready

    def compute(self, phase, name, tensors=()):
        now = time.perf_counter_ns()
        waits = ([self.last_compute] if self.last_compute else []) + self.waited
        self.ops.append(
            {
                "op": self.unique(name),
                "lane": "compute",
                "does": "compute",
                "phase": phase,
                "tensors": list(tensors),
                "waits_for": waits,
                "duration_ps": (now - self.began) * 1000,
            }
        )
        self.last_compute = self.ops[-1]["op"]
        self.waited = []
        self.began = time.perf_counter_ns()

    def unique(self, name):
        names = {o["op"] for o in self.ops}
        if name not in names:
            return name
        k = 1
        while f"{name}#{k}" in names:
            k += 1
        return f"{name}#{k}"

    def stepped(self):
        """An optimizer's step has ended."""
        if not self.roots:
            return  # of a model that never ran: a warm-up of its state
        self.compute("update", "optimizer")
        self.updated += 1
        if self.updated < self.updates:
            return
        self.updated = 0
        self.add_unseen_waits()
        self.done.append(self.ops)
        self.ops, self.arrived, self.taken = [], [], set()
        self.last_compute, self.waited = None, []
        if len(self.done) == self.steps:
            raise Enough()

    def add_unseen_waits(self):
        """What a framework waits for in C++ is not seen here. What nobody was seen to wait for is
        taken to be awaited where it is needed: a reduction by the optimizer, anything else (a
        broadcast of buffers) by the computation that follows it."""
        seen = {name for op in self.ops for name in op["waits_for"]}
        user = None
        for op in reversed(self.ops):
            if op["lane"] != "comm":
                user = op
            elif op["op"] not in seen:
                reduces = op["operation"] in ("all_reduce", "reduce_scatter", "reduce")
                (self.ops[-1] if reduces else user)["waits_for"].append(op["op"])

    # ---- what it communicates

    def collective(self, operation, tensors, group, **more):
        """`tensors`: what this rank gives, or gets where it gives nothing."""
        stopped = time.perf_counter_ns()
        dtypes = sorted({dtype_name(t.dtype) for t in tensors})
        # Of the whole vector, as NCCL's own tests count: a rank of an all-gather gives a part of
        # it.
        parts = len(group) if operation == "all_gather" else 1
        number = sum(o["lane"] == "comm" for o in self.ops)
        op = {
            "op": f"{operation}/{number}",
            "lane": "comm",
            "does": "communicate",
            "phase": self.phase(),
            "operation": operation,
            "group": list(group),
            "tensors": [],
            "bytes": parts * sum(t.numel() * BYTES[t.dtype] for t in tensors),
            "dtype": dtypes[0] if len(dtypes) == 1 else dtypes,
            "async": True,
            "waits_for": ([self.last_compute] if self.last_compute else []) + self.waited,
        }
        op.update(more)
        if not self.roots:
            self.unnamed.append((op, [t.detach().clone() for t in tensors]))
        else:
            self.name_tensors(op, tensors)
        self.ops.append(op)
        self.began += time.perf_counter_ns() - stopped  # looking is no work of the script
        return op

    def name_tensors(self, op, tensors):
        rest = 0
        for t in tensors:
            names, unknown = self.recognise(t)
            op["tensors"] += names
            rest += unknown
        if rest:
            op["unrecognised_elements"] = rest

    def phase(self):
        if not self.roots:
            return "init"
        return "backward" if self.ops and self.backward else "forward"

    def waits(self, work):
        op = self.pending.pop(id(work), None)
        if op is None:
            return
        if self.ops and self.ops[-1] is op:
            op["async"] = False
        if any(o is op for o in self.ops):  # of this step
            self.waited.append(op["op"])

    def recognise(self, flat):
        """(names of what a tensor carries, in its order; elements that are nothing known)."""
        found = self.by_memory(flat)
        if found:
            slices = found[0].endswith("]") and found[0] not in self.named
            return found, 0 if slices else flat.numel() - sum(self.named[n].numel() for n in found)
        return self.by_values(flat)

    def by_memory(self, flat):
        """Tensors that lie in `flat`, in its order; or the slice of one that `flat` is."""
        here = place(flat)
        inside = []
        for name, p in self.named.items() if here else ():
            for t in (p, p.grad if isinstance(p, torch.nn.Parameter) else None):
                at = place(t) if t is not None else None
                if at is None:
                    continue
                if here[0] <= at[0] and at[1] <= here[1]:
                    inside.append((at[0], name))
                    if t is not p:
                        self.taken.add(name)
                elif at[0] <= here[0] and here[1] <= at[1]:
                    first = (here[0] - at[0]) // t.element_size()
                    return [f"{name}[{first}:{first + flat.numel()}]"]
        return [name for _, name in sorted(set(inside))]

    def by_values(self, flat):
        """Walks the tensor and asks at each place which gradient of this step, parameter or buffer
        begins there. A factor that all elements share (an average, a scale) is no difference. Of
        several with the same values (the two biases before a residual's addition), the one that
        was declared next to the tensor before."""
        flat = flat.detach().reshape(-1)
        gradients = [(n, self.named[n].grad) for n in self.arrived if n not in self.taken]
        states = [(n, t) for n, t in self.named.items()]
        number = {n: i for i, n in enumerate(self.named)}
        out, at, unknown, peaks = [], 0, 0, {}
        while at < flat.numel():
            last = number[out[-1]] if out else None
            hit = ""
            for of_step, candidates in ((True, gradients), (False, states)):
                if last is not None:
                    candidates = sorted(candidates, key=lambda c: abs(number[c[0]] - last))
                for n, t in candidates:
                    if t is None or n in out or not alike(flat, at, t, peaks):
                        continue
                    # One element is a factor of any other: it is one only where nothing larger is.
                    larger = self.named[n].numel() > 1
                    hit = n if larger else hit or n
                    if larger:
                        break
                if hit:
                    break
            if not hit:
                unknown = flat.numel() - at
                break
            out.append(hit)
            if of_step:
                self.taken.add(hit)
            at += self.named[hit].numel()
        return out, unknown


def alike(flat, at, tensor, peaks):
    """Are the elements from `at` on those of `tensor`, up to one factor? `peaks` keeps where each
    tensor is largest."""
    n = tensor.numel()
    if n == 0 or at + n > flat.numel():
        return False
    t = tensor.detach().reshape(-1)
    if flat.dtype in (torch.float16, torch.bfloat16) or t.dtype in (torch.float16, torch.bfloat16):
        tolerance = 2e-2
    elif flat.dtype != t.dtype:
        return False
    else:
        tolerance = 1e-4
    if id(tensor) not in peaks:
        peaks[id(tensor)] = int(t.double().abs().argmax())
    peak = peaks[id(tensor)]
    a = flat[at : at + n]
    if t[peak] == 0:
        return bool((a == 0).all())
    largest = float(t[peak])
    factor = float(a[peak]) / largest
    if factor == 0:
        return False

    most = tolerance * abs(factor * largest)

    def near(k):
        return abs(float(a[k]) - factor * float(t[k])) <= most

    def same(x, y):
        return bool(((x.double() - factor * y.double()).abs() <= most).all())

    # Most differ in the first few.
    return all(map(near, range(0, n, max(1, n // 8)))) and same(a, t)


def flatten(tensors):
    """Tensors of arguments such as [[t, ...], ...]."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [x for t in tensors for x in flatten(t)]


def recording_group(recorder):
    """The class of process groups that record. torch's base class calls it from C++ as well."""
    from torch._C._distributed_c10d import ProcessGroup, _create_work_from_future
    from torch.futures import Future

    class RecordingGroup(ProcessGroup):
        def __init__(self, rank, size):
            super().__init__(rank, size)
            self.members = list(range(size))

        def ended(self, op, result):
            future = Future()
            future.set_result(result)
            work = _create_work_from_future(future)
            recorder.pending[id(work)] = op
            op_works.append(work)  # so that no other Work gets its id
            return work

        def note(self, operation, tensors, result, **more):
            op = recorder.collective(operation, flatten(tensors), self.members, **more)
            return self.ended(op, result)

        def allreduce(self, tensors, options=None):
            return self.note("all_reduce", tensors, tensors, reduction=reduction(options))

        def allreduce_coalesced(self, tensors, options=None):
            return self.note("all_reduce", tensors, tensors, reduction=reduction(options))

        def broadcast(self, tensors, options=None):
            return self.note("broadcast", tensors, tensors, root=getattr(options, "rootRank", 0))

        def reduce(self, tensors, options=None):
            return self.note(
                "reduce",
                tensors,
                tensors,
                root=getattr(options, "rootRank", 0),
                reduction=reduction(options),
            )

        def allgather(self, outputs, inputs, options=None):
            for each, given in zip(outputs, inputs):
                for t in each:
                    t.copy_(given)
            return self.note("all_gather", inputs, outputs)

        def allgather_coalesced(self, outputs, inputs, options=None):
            for each in outputs:
                for t, given in zip(each, inputs):
                    t.copy_(given)
            return self.note("all_gather", inputs, outputs)

        def _allgather_base(self, output, given, options=None):
            output.reshape(self.size(), -1).copy_(given.reshape(1, -1).expand(self.size(), -1))
            return self.note("all_gather", given, output)

        def reduce_scatter(self, outputs, inputs, options=None):
            for t, each in zip(outputs, inputs):
                t.copy_(each[self.rank()])
            return self.note("reduce_scatter", inputs, outputs, reduction=reduction(options))

        def _reduce_scatter_base(self, output, given, options=None):
            output.copy_(given.reshape(self.size(), -1)[self.rank()].reshape(output.shape))
            return self.note("reduce_scatter", given, output, reduction=reduction(options))

        def gather(self, outputs, inputs, options=None):
            for each in outputs:
                for t, given in zip(each, inputs * len(each)):
                    t.copy_(given)
            return self.note("gather", inputs, outputs, root=getattr(options, "rootRank", 0))

        def scatter(self, outputs, inputs, options=None):
            for t, each in zip(outputs, inputs):
                t.copy_(each[self.rank()])
            return self.note("scatter", outputs, outputs, root=getattr(options, "rootRank", 0))

        def alltoall_base(self, output, given, output_sizes, input_sizes, options=None):
            if output.numel() == given.numel():
                output.copy_(given.reshape(output.shape))
            return self.note("all_to_all", given, output)

        def alltoall(self, outputs, inputs, options=None):
            for t, given in zip(outputs, inputs):
                if t.shape == given.shape:
                    t.copy_(given)
            return self.note("all_to_all", inputs, outputs)

        def send(self, tensors, peer, tag=0):
            return self.note("send", tensors, tensors, peer=self.members[peer])

        def recv(self, tensors, peer, tag=0):
            return self.note("recv", tensors, tensors, peer=self.members[peer])

        def recv_anysource(self, tensors, tag=0):
            raise CannotRecord(
                "the script receives from whichever rank sends first: what follows "
                "depends on other ranks, and there are none here"
            )

        def barrier(self, opts=None):
            return self.note("barrier", [], None)

        def monitored_barrier(self, timeout=None, wait_all_ranks=False):
            recorder.collective("barrier", [], self.members)

        def getBackendName(self):
            return BACKEND

        name = getBackendName

        def _get_backend_name(self):
            return BACKEND

        def _set_sequence_number_for_group(self):
            pass

        def _get_sequence_number_for_group(self):
            return 0

    op_works = []
    return RecordingGroup


def reduction(options):
    """A word: 1.13's operations print as an object's address."""
    from torch.distributed import ReduceOp as known

    asked = getattr(options, "reduceOp", None)
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"):
        if asked is not None and hasattr(known, name) and asked == getattr(known, name):
            return name.lower()
    return "sum" if asked is None else str(asked).rsplit(".", 1)[-1].lower()


def patch_distributed(recorder):
    """Whatever backend the script asks for, it gets ours."""
    group_class = recording_group(recorder)
    groups = {}

    def make(store, rank, size, timeout):
        return group_class(rank, size)

    dist.Backend.register_backend(BACKEND, make)
    init, new_group = dist.init_process_group, dist.new_group

    def init_process_group(
        backend=None,
        init_method=None,
        timeout=None,
        world_size=-1,
        rank=-1,
        store=None,
        group_name="",
        pg_options=None,
        **more,
    ):
        for what, given, ours in (
            ("world_size", world_size, recorder.ranks),
            ("rank", rank, recorder.rank),
        ):
            if given not in (-1, ours):
                raise CannotRecord(
                    f"the script asks for {what} {given}; it is recorded as "
                    f"{what} {ours} (--ranks, --rank)"
                )
        init(BACKEND, store=dist.HashStore(), rank=recorder.rank, world_size=recorder.ranks)

    def new_group_of(ranks=None, timeout=None, backend=None, pg_options=None, **more):
        made = new_group(ranks, backend=BACKEND)
        if isinstance(made, group_class):
            made.members = sorted(ranks) if ranks is not None else list(range(recorder.ranks))
        return made

    for module in (dist, distributed_c10d):
        module.init_process_group = init_process_group
        module.new_group = new_group_of
        module.is_nccl_available = module.is_gloo_available = lambda: True
    distributed_c10d._store_based_barrier = lambda *args, **kwargs: None
    work = torch._C._distributed_c10d.Work
    wait = work.wait

    def waited(self, *args):
        recorder.waits(self)
        return wait(self, *args)

    work.wait = waited
    return groups


def patch_training(recorder):
    """Forward passes and optimizer steps of whatever runs."""
    depth = [0]

    def before(module, inputs):
        if depth[0] == 0:
            recorder.saw_module(module)
            if any(module is root for root in recorder.roots):
                recorder.backward = False
                recorder.began = time.perf_counter_ns()
        depth[0] += 1

    def after(module, inputs, output):
        depth[0] -= 1
        if depth[0] == 0 and any(module is root for root in recorder.roots):
            recorder.compute("forward", "fwd")

    torch.nn.modules.module.register_module_forward_pre_hook(before)
    torch.nn.modules.module.register_module_forward_hook(after)
    original = torch.optim.Optimizer.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        step = self.step
        inside = [False]

        def stepped(_, *a, **k):
            if inside[0] or recording_step[0]:
                return step(*a, **k)
            inside[0] = recording_step[0] = True
            try:
                out = step(*a, **k)
            finally:
                inside[0] = recording_step[0] = False
            recorder.stepped()
            return out

        self.step = types.MethodType(stepped, self)  # schedulers ask whose it is

    recording_step = [False]  # an optimizer within an optimizer: one step
    torch.optim.Optimizer.__init__ = __init__


def run_script(script, arguments, recorder):
    os.environ.update(
        RANK=str(recorder.rank),
        WORLD_SIZE=str(recorder.ranks),
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )
    sys.argv = [script] + arguments
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        return
    except SystemExit as e:
        if e.code not in (None, 0):
            raise CannotRecord(f"{script} ended with {e.code!r}") from e
    except CannotRecord:
        raise
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        raise CannotRecord(
            f"{script} failed: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''} "
            f"({os.path.basename(where.filename)}, line {where.lineno})"
        ) from e


def name_by_model(recorder):
    """Where the script trains several models, the first one's tensors are behind its class, too."""
    if len(recorder.roots) < 2:
        return
    new = {n: f"{recorder.title(0)}.{n}" for n in recorder.of_root[0]}

    def renamed(name):
        whole, bracket, elements = name.partition("[")
        if name in new or not bracket:
            return new.get(name, name)
        return new.get(whole, whole) + bracket + elements

    for kept in (recorder.named, recorder.kind):
        items = [(new.get(n, n), v) for n, v in kept.items()]
        kept.clear()
        kept.update(items)
    for ops in [recorder.init or []] + recorder.done:
        operations = {}
        for op in ops:
            name = op["op"]
            if name.startswith("bwd/"):
                tensor, number, again = name[4:].partition("#")
                op["op"] = "bwd/" + renamed(tensor) + number + again
            operations[name] = op["op"]
            op["tensors"] = [renamed(n) for n in op["tensors"]]
            op["waits_for"] = [operations.get(n, n) for n in op["waits_for"]]


def document(recorder, arguments):
    name_by_model(recorder)
    tensors = [
        {"name": n, "kind": recorder.kind[n], "shape": list(t.shape), "dtype": dtype_name(t.dtype)}
        for n, t in recorder.named.items()
    ]
    return {
        "schema": SCHEMA,
        "origin": {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "software": f"PyTorch {torch.__version__}",
            "argv": arguments,
            "recorder": "ddpsim_record_program.py",
        },
        "ranks": recorder.ranks,
        "rank": recorder.rank,
        "tensors": tensors,
        "init": recorder.init or [],
        "steps": [{"kind": f"step.{i}", "ops": ops} for i, ops in enumerate(recorder.done)],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--ranks", type=int, required=True, help="of the job that the script believes in"
    )
    parser.add_argument("--rank", type=int, default=0, help="which of them it is (default 0)")
    parser.add_argument(
        "--steps", type=int, default=4, help="optimizer steps to record (default 4)"
    )
    parser.add_argument(
        "--updates",
        type=int,
        default=1,
        help="of optimizers, that make one step: 2 of a GAN whose generator and discriminator have "
        "one each (default 1)",
    )
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    a = parser.parse_args()
    if a.ranks < 1 or not 0 <= a.rank < a.ranks or a.steps < 1 or a.updates < 1:
        parser.error("--ranks, --steps and --updates: at least 1; --rank: below --ranks")
    if not os.path.isfile(a.script):
        parser.error(f"{a.script}: no such script")
    recorder = Recorder(a.ranks, a.rank, a.steps, a.updates)
    patch_distributed(recorder)
    patch_training(recorder)
    try:
        run_script(a.script, a.arguments, recorder)
        if not dist.is_initialized() and not recorder.done:
            raise CannotRecord(
                f"{a.script} neither called torch.distributed.init_process_group nor "
                "stepped an optimizer: there is nothing to record"
            )
        if not recorder.done:
            raise CannotRecord(
                f"{a.script} ended without a step of a torch.optim optimizer: "
                "a step's end is what divides the recording"
            )
    except CannotRecord as e:
        print(f"ddpsim_record_program: {e}", file=sys.stderr)
        return 2
    text = json.dumps(document(recorder, [a.script] + a.arguments), indent=1)
    write_whole(a.out, text + "\n")
    ops = sum(o["lane"] == "comm" for o in recorder.done[-1])
    print(f"{a.out}: {len(recorder.done)} steps; the last has {ops} collectives")
    return 0


if __name__ == "__main__":
    sys.exit(main())
