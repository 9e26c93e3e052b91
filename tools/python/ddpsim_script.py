"""Runs a training script unmodified and writes down three of its steps, each with another batch:
which model it trains, with which optimizer, wrapped how. The script is ended after the third step.
"""
from __future__ import annotations

import contextlib
import os
import runpy
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import ddpsim_stand_ins as stand
import torch
from ddpsim_capture import CaptureError, tensors_in, where_it_failed
from ddpsim_guard import WAY_OUT, Deadline, Guard, Left, OutOfTime, Refused
from ddpsim_meta import META
from ddpsim_own_work import Collective, OwnWork, Told, by_gradients, collectives, operators
from ddpsim_own_work import weights_beside
from ddpsim_stand_ins import OnGpu
from ddpsim_trace import Tracer, key_of
from ddpsim_wrapped import Asked, Stopped
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

STEPS = 3
TRIES = 12  # steps that are looked at to see so many of different batches
MICRO_STEPS = 4096  # without a step of the optimizer: no training loop
CAUGHT = 9  # times that a script may go on after its end


def on_device(args: Any) -> bool:
    return any(t.device.type == "meta" for t in tensors_in([args]))


class LiveTracer(Tracer):
    """A step that the script runs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.reads = 0  # values that the loop reads between forward and backward
        self.collectives: List[Collective] = []  # the script's own, in forward and backward

    def run(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        if not self.stack and stand.to_cpu(func, kwargs) and on_device(args):
            self.reads += 1
        return super().run(func, args, kwargs)

    def read(self, name: str, t: Tensor) -> Any:
        if self.stack:
            return super().read(name, t)
        self.reads += 1
        return stand.one_of(name, t)


class Outside(OnGpu):
    """What the script computes between steps."""

    def __init__(self, watch: "Watch") -> None:
        super().__init__()
        self.watch = watch

    def run(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        out = super().run(func, args, kwargs)
        if stand.to_cpu(func, kwargs) and on_device(args):
            self.watch.waits()
        if self.watch.own.window is not None:
            self.watch.own.saw(func, args, kwargs, out)
        if self.watch.own.reads_a_test(func, args, kwargs, out):
            self.watch.waits()
        return out

    def read(self, name: str, t: Tensor) -> Any:
        self.watch.waits()
        return super().read(name, t)



class Watch:
    """Sees the script's steps. ``traces[k]`` is of batch ``batches[k]``."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.own = OwnWork()
        self.weights: Optional[List[Dict[str, Any]]] = None  # of networks besides the model
        asked.waits, asked.communicates, asked.tests = self.waits, self.communicates, self.own.tests
        self.traces: List[LiveTracer] = []
        self.batches: List[int] = []
        self.model: Optional[nn.Module] = None
        self.optimizers: List[Optimizer] = []
        self.optimizer: Optional[Optimizer] = None  # that stepped
        self.tracer: Optional[LiveTracer] = None  # of the step in progress
        self.depth = 0  # of modules that run
        self.backwards = False  # whether backward runs
        self.micro_steps = 0  # backward passes since the last step of the optimizer
        self.accumulation = 1
        self.reduces: List[bool] = []  # of each of those passes: whether it reduces gradients
        self.batch = 0  # of the step in progress
        self.samples_now = 0  # of the micro-step in progress
        self.tries = 0  # steps that were begun
        self.loads = 0  # samples of a loader's first batch; 0: there is no loader
        self.multiplied = False  # without a loader, inputs got more samples after the first step
        self.original_backward = torch.autograd.backward
        self.left = False  # the script ended by itself, whatever batches it was given
        self.stops = 0  # how often it was to end
        self.concludes: Callable[[str], None] = lambda why: None  # without the script

    # ---- what is the model

    def trained(self) -> Set[int]:
        """Parameters of the optimizers."""
        return {id(p) for o in self.optimizers for g in o.param_groups for p in g["params"]}

    def is_model(self, module: nn.Module) -> bool:
        """Whether this call begins a training step."""
        if not (module.training and torch.is_grad_enabled()):
            return False
        if self.asked.wrapped:
            return any(module is w for w in self.asked.wrapped)
        if self.depth:
            return False
        trained = self.trained()
        return any(id(p) in trained for p in module.parameters() if p.requires_grad)

    def begins(self, module: nn.Module, batch: int) -> None:
        """A call of a model in training, with so many samples."""
        if self.model is None:
            self.model = module
        if module is not self.model:
            raise Stopped(
                f"the script trains a {type(self.model).__name__} and a {type(module).__name__},"
                " and one model is described: write a factory that returns one module of both, or"
                " the one that matters (ddpsim describe --factory)"
            )
        if self.tracer is not None and not self.tracer.in_backward:
            return  # once more in the same step
        self.ends()
        if not self.loads and self.traces and self.optimizer is None:
            return  # as many samples as before: the first step goes on
        if len(self.traces) < STEPS and self.tries < TRIES:
            self.tries += 1
            self.batch = batch
            self.tracer = LiveTracer(module)
            self.tracer.begin()
            if not self.asked.wrapped:
                self.tracer.stack.append("(model)")  # its own call has begun

    def called(self, original: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """In place of ``nn.Module.__call__``."""
        is_model = self.is_model(module)
        if is_model:
            ends = self.own.closes(first_dimension((args, kwargs)))
            if ends and self.model is not None and self.weights is None:
                self.weights = weights_beside(self.model, self.asked.wrapped)
            self.stops_when_known()
            if self.optimizer is not None and not self.loads:
                args, kwargs = self.loaded((list(args), kwargs))
                self.loads, self.multiplied = 0, True
            args, kwargs = tree_map(stand.floats_on_meta, (args, kwargs))
            self.samples_now = first_dimension((args, kwargs))
            self.begins(module, self.samples_now)
        self.depth += 1
        self.own.enter(module)
        try:
            return original(module, *args, **kwargs)
        finally:
            self.own.leave()
            self.depth -= 1

    # ---- the step

    def backward(self, tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        """In place of ``torch.autograd.backward``."""
        if self.backwards:  # of a checkpoint, inside of the step's own
            self.original_backward(tensors, grad_tensors, *args, **kwargs)
            return
        losses = list(tensors_in([tensors]))
        if self.tracer is None or not self.tracer.in_backward:
            self.micro_steps += 1
            if self.optimizer is None:
                self.reduces.append(self.asked.syncs())
        if self.tracer is None:
            self.check_micro_steps()
            for p in self.model.parameters() if self.model is not None else ():
                if p.requires_grad and p.grad is None:
                    p.grad = torch.empty_like(p)
            self.own.opens(self.samples_now)
            return  # nothing is computed
        gradients = [self.tracer.begin_backward(loss) for loss in losses]
        self.backwards = True
        try:
            with self.tracer:
                self.original_backward(losses, gradients, *args, **kwargs)
        finally:
            self.backwards = False
        self.own.opens(self.samples_now)

    # ---- what it does besides

    def waits(self) -> None:
        """The host waits for the device."""
        if self.own.window is not None:
            self.own.window.reads += 1
        elif self.tracer is not None and not self.tracer.in_backward:
            self.tracer.reads += 1

    def communicates(self, call: Collective, tensor: Any = None) -> None:
        """The script calls a collective itself."""
        if self.own.window is not None:
            gradients = {key_of(p.grad) for o in self.optimizers for g in o.param_groups
                         for p in g["params"] if p.grad is not None}  # fmt: skip
            call.gradient = isinstance(tensor, Tensor) and key_of(tensor) in gradients
            self.own.window.collectives.append(call)
        elif self.tracer is not None:
            self.tracer.collectives.append(call)

    def besides(self) -> Told:
        """All of that, for the workload."""
        assert self.model is not None
        told, own = Told(), self.own
        windows = own.windows or [w for w in [own.window] if w is not None]
        batch = self.batches[0]
        trained = [p for p in self.model.parameters() if p.requires_grad]
        elements = sum(p.numel() for p in trained)
        if not self.asked.ddp:
            for w in windows:
                calls = [c for c in w.collectives if c.operation == "all_reduce"]
                whole = [c for c in calls if c.elements >= elements]
                some = [c for c in calls if c.elements > 1]
                mine = [c for c in calls if c.gradient] or whole or some
                if sum(c.elements for c in mine) < elements / 2:
                    continue
                if w is windows[0]:
                    by_gradients(told, mine, len(trained), elements)
                w.collectives = [c for c in w.collectives if not any(c is m for m in mine)]
                del w.ops[: w.stepped_at], w.firsts[: w.stepped_at]  # the averaging's own
        operators(told, own.windows, batch)
        collectives(told, "forward", [t.collectives for t in self.traces], self.batches)
        collectives(told, "step", [w.collectives for w in windows], [w.batch for w in windows])
        if windows and all(w.reads for w in windows[:2]):
            told.loop["loss_item"] = True
        elif any(w.reads for w in windows[:2]):
            told.not_counted.append({"what": "values that the host reads in some steps only"})
        if self.traces[0].reads:
            told.loop["forward_item"] = True
        told.not_counted += self.weights or []
        if any(c.operation == "all_gather" for c in self.traces[0].collectives):
            told.notes.append(
                f"what follows an all_gather is of {self.asked.ranks} ranks: describe it with"
                " --ranks for another number"
            )
        if len(windows) < 2 and (told.layers or told.loop):
            told.notes.append(
                "one step was seen whole: each is taken to read, clip and send the same"
            )
        return told

    def check_micro_steps(self) -> None:
        if self.micro_steps > MICRO_STEPS:
            raise Stopped(
                "the script runs backward again and again and steps no optimizer of torch.optim:"
                " describe its model with --factory"
            )

    def ends(self) -> None:
        """The step in progress is complete."""
        if self.tracer is None:
            return
        self.tracer.close()
        if self.tracer.in_backward and self.batch not in self.batches:
            self.traces.append(self.tracer)
            self.batches.append(self.batch)
        self.tracer = None

    def stepped(self, optimizer: Optimizer) -> None:
        """In place of an optimizer's step."""
        self.ends()
        if not self.traces:
            return
        if self.optimizer is None:
            self.optimizer = optimizer
            self.accumulation = max(1, self.micro_steps)
        self.micro_steps = 0
        if self.own.window is not None:
            self.own.window.stepped, self.own.window.stepped_at = True, len(self.own.window.ops)
        self.stops_when_known()

    def stops_when_known(self) -> None:
        """Steps of different batches, and what is between two pairs of steps."""
        if len(self.own.windows) > 1 and (len(self.traces) >= STEPS or self.tries >= TRIES):
            self.stops += 1
            if self.stops == CAUGHT:  # in a thread, which is inside of nothing of the script's
                threading.Thread(target=self.concludes, args=("",)).start()
            while self.stops >= CAUGHT:
                time.sleep(1)
            raise Stopped()

    # ---- what is known at the end

    def samples(self) -> int:
        """Of a step, as the script has it; 0: not known."""
        first = self.batches[0]
        return first // 2 if self.loads == 1 and first > 1 else first

    def loop(self) -> Dict[str, bool]:
        """`loop` of the workload."""
        out = dict(self.asked.loop)
        if self.asked.halves == torch.float16:
            out.setdefault("grad_scaler", False)
        return out

    def compiled(self) -> str:
        """`compile` of the workload: what torch.compile was given is DDP, all of the model, or
        parts of it; "": it was not called."""
        assert self.model is not None
        all_of_it = set(self.model.parameters())
        out = ""
        for part in self.asked.compiled:
            if type(part).__name__ == "DistributedDataParallel":
                return "buckets"
            out = "whole" if set(part.parameters()) >= all_of_it else out or "regional"
        return out

    def plan(self, notes: List[str], told: Told) -> Dict[str, Any]:
        """Knobs, by their names in a plan."""
        out = {**self.asked.knobs, **self.asked.at_end(), **told.plan}
        if not self.asked.ddp:
            how = (
                "reduces gradients itself, as --plan averaging predicts"
                if out.get("system") == "averaging"
                else "wraps its model in no DistributedDataParallel: a plan's defaults count"
            )
            notes.append(f"the script {how}")
        if self.accumulation > 1:
            out["accumulation_steps"] = self.accumulation
        if 0 < self.asked.passes < self.accumulation:
            raise CaptureError(
                f"Horovod refuses {self.accumulation} backward passes in a step: say"
                f" backward_passes_per_step={self.accumulation}"
            )
        out.update(self.no_sync(out.get("system", "pytorch_ddp"), notes))
        if out.get("sync_batch_norm") and out.get("system", "pytorch_ddp") != "pytorch_ddp":
            del out["sync_batch_norm"]
            told.not_counted.append({"what": "collectives of SyncBatchNorm, which are modelled of"
                                     " plain DDP"})  # fmt: skip
        return out

    def no_sync(self, system: str, notes: List[str]) -> Dict[str, bool]:
        """The plan's `no_sync`, where it is not the plan's default. Raises CaptureError."""
        usual = {"pytorch_ddp": True, "zero_redundancy": True, "fsdp": False, "fsdp2": False}
        if system not in usual or not self.asked.ddp:
            return {}
        count, last = sum(self.reduces), self.reduces[-1:]
        if not count:
            raise CaptureError(
                "no backward pass of a step reduces gradients: each forward is inside no_sync(), or"
                " goes round the wrapper (model.module(...)); describe the model with --factory,"
                " and predict with --plan local_sgd if ranks train by themselves"
            )
        if self.accumulation == 1:
            return {}
        alone = 2 * count <= len(self.reduces)
        if count == len(self.reduces) and usual[system]:
            notes.append(
                f"{count} backward passes of a step each reduce their gradients (there is no"
                " no_sync()): no_sync=false; predict says what it would gain"
            )
        elif 1 < count < len(self.reduces) or (count == 1 and last == [False]):
            notes.append(
                f"{count} of {len(self.reduces)} backward passes of a step reduce gradients:"
                f" predicted as if {'the last alone' if alone else 'each'} did"
            )
        return {} if alone == usual[system] else {"no_sync": alone}

    # ---- batches

    def loaded(self, value: Any) -> Any:
        """What a loader gives, with as many samples as the next step is to have."""
        was = first_dimension(value)
        if was < 1:
            return value
        steps = len(self.traces) + (self.tracer is not None)
        if not steps or not self.loads:
            self.loads = was
        # Of one sample dimensions are one, which takes no copies.
        return with_samples(value, was, max(self.loads, 2) * min(steps + 1, STEPS))


def with_samples(value: Any, was: int, wanted: int) -> Any:
    """The same with another number of samples, in tensors that have them first and lists of that
    length."""
    if isinstance(value, Tensor):
        if value.dim() == 0 or value.shape[0] != was or was == wanted:
            return value
        if value.device.type == "meta" or value.is_floating_point():
            return torch.empty((wanted, *value.shape[1:]), dtype=value.dtype, device=META)
        return value.index_select(0, torch.arange(wanted) % was)
    if isinstance(value, dict) and type(value) is dict:
        return {k: with_samples(v, was, wanted) for k, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(with_samples(v, was, wanted) for v in value)
    if hasattr(value, "_fields") and isinstance(value, tuple):
        return type(value)(*(with_samples(v, was, wanted) for v in value))
    if hasattr(value, "data") and isinstance(value.data, dict):  # Hugging Face's BatchEncoding
        value.data = with_samples(value.data, was, wanted)
    return value


def first_dimension(value: Any) -> int:
    """Samples of a batch, as its first tensor has them; 0: none has any."""
    if isinstance(value, Tensor):
        return int(value.shape[0]) if value.dim() > 0 else 0
    if isinstance(getattr(value, "data", None), dict):
        value = value.data
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return next((n for n in map(first_dimension, value) if n > 0), 0)
    return 0


# ---- the script


def watched(watch: Watch) -> None:
    """Modules, backward and optimizers of whatever runs."""
    call, begin = nn.Module.__call__, Optimizer.__init__

    def called(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return watch.called(call, self, args, kwargs)

    def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        watch.optimizers.append(self)
        own = type(self)
        if "ddpsim_step" not in vars(own):

            def step(self: Optimizer, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
                loss = closure() if callable(closure) else None
                watch.stepped(self)
                return loss

            step.hooked = True  # type: ignore[attr-defined]  # or PyTorch wraps it
            own.step = own.ddpsim_step = step  # type: ignore[assignment,attr-defined]

    def cleared(self: Any, *args: Any, **kwargs: Any) -> None:
        groups = getattr(self, "param_groups", None)
        of_model = [] if groups is not None else list(self.parameters())
        for p in [p for g in groups or () for p in g["params"]] + of_model:
            p.grad = None

    nn.Module.__call__ = called  # type: ignore[method-assign,assignment]
    Optimizer.__init__ = init  # type: ignore[method-assign,assignment]
    Optimizer.zero_grad = nn.Module.zero_grad = cleared  # type: ignore[method-assign]
    torch.autograd.backward = watch.backward
    grad = torch.autograd.grad

    def graded(*args: Any, **kwargs: Any) -> Any:
        if watch.tracer is not None:
            raise Stopped(
                "the script takes gradients in its forward (torch.autograd.grad), which a described"
                " step cannot say: capture the model (ddpsim_capture.py)"
            )
        return grad(*args, **kwargs)

    torch.autograd.grad = graded  # type: ignore[assignment]


def run_script(
    script: str, arguments: Sequence[str], watch: Watch, guard: Guard, seconds: float
) -> str:
    """One sentence if it ended too early, else empty. Raises CaptureError."""
    if Path(script).is_dir():
        raise CaptureError("is a folder; name the script in it that you train with")
    if not Path(script).is_file():
        raise CaptureError("there is no such file; name the script that you train with")
    stand.install(watch.asked)
    stand.loaders(watch.loaded)
    watched(watch)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    with contextlib.suppress(Exception):  # what a script needs that is not there
        sys.stdin = open(os.devnull, encoding="utf-8")

    def forced(where: str) -> None:
        watch.left = True
        watch.concludes(steps_until(where, watch))

    guard.time = Deadline(script, seconds, forced)
    return ended(script, watch, guard)


def check_seen(watch: Watch, why: str) -> None:
    """Whether a script that ended so early can be described. Raises CaptureError."""
    if why and not watch.traces:
        raise CaptureError(why)
    if why and len(watch.traces) < STEPS and (watch.left or not watch.multiplied):
        watch.asked.note(f"{len(watch.traces)} of {STEPS} steps were seen: {why}")


def steps_until(where: str, watch: Watch) -> str:
    return (
        f"{where}, and has made {len(watch.traces)} of {STEPS} steps: let it train on less data, or"
        " give it more time (--timeout)"
    )


def ended(script: str, watch: Watch, guard: Guard) -> str:
    """Runs it to its end; one sentence if it ended too early, else empty."""
    try:
        try:
            guard.holds()
            with Outside(watch):
                runpy.run_path(script, run_name="__main__")
        finally:
            if os.getpid() != guard.process:  # a child of the script's
                guard.exit(0)
            guard.ends()
    except Stopped as stop:
        if stop.error:
            raise CaptureError(stop.error) from None
        return ""
    except CaptureError as error:
        raise CaptureError(f"{error}{place_in(script, error)}") from error
    except SystemExit as error:
        if error.code not in (None, 0):
            code = first_line(repr, error.code)
            return f"the script ended itself with {code} before a step{guard.told()}: {NEXT}"
    except OutOfTime as error:
        guard.ends()
        watch.left = True
        return steps_until(str(error), watch)
    except Left as error:
        watch.left = True
        return f"the script ended itself with {error}{place_in(script, error)}: {NEXT}"
    except ModuleNotFoundError as error:
        return (
            f"the script failed: {error}: install it for {sys.executable}, or name the interpreter"
            " that has it (--python)"
        )
    except BaseException as error:  # whatever a script raises
        if isinstance(error, KeyboardInterrupt) and guard.interrupted:
            raise
        watch.left = not isinstance(error, Exception)
        refused = refused_in(error)
        if refused is not None:
            watch.left = True
            place = place_in(script, error)
            return f"the script failed: {refused.what} is refused{place}: {WAY_OUT}"
        return f"the script failed: {first_line(where_in, script, error)}: {NEXT}"
    watch.ends()
    told = guard.told()
    return f"the script ended without a step of an optimizer of torch.optim{told}: {NEXT}"


def first_line(says: Callable[..., str], *about: Any) -> str:
    """Of what is said of an exception, which may fail to say anything."""
    try:
        return says(*about).splitlines()[0]
    except Exception:
        return type(about[-1]).__name__


def refused_in(error: Optional[BaseException]) -> Optional[Refused]:
    """What the guard refused, if an exception came of it."""
    seen: Set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Refused):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


NEXT = "check that it trains so by itself, or describe its model with --factory"


def place_in(script: str, error: BaseException) -> str:
    """" (train.py, line 12)": the script's last line that was at work; empty: none was."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if os.path.abspath(f.filename) == os.path.abspath(script)]
    return f" ({os.path.basename(script)}, line {own[-1].lineno})" if own else ""


def where_in(script: str, error: BaseException) -> str:
    """As ``where_it_failed``, in the script itself where it is one of the frames."""
    text, place = where_it_failed(error), place_in(script, error)
    return text.rsplit(" (", 1)[0] + place if place and text.endswith(")") else text + place
