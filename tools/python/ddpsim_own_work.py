"""What a training script does in a step besides the model that is described: operators of other
networks, updates of tensors, collectives of its own, values that its host reads.

A step's window reaches from its last backward to the next step's forward. What two windows have in
common is done in each step.
"""
from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import ddpsim_op_costs as costs
from ddpsim_batches import Batches, Direction, Json, Scaled
from ddpsim_capture import tensors_in
from ddpsim_layers import Layer, layers_of, mark_attention, merged, named, row
from ddpsim_meta import func_aliases
from ddpsim_op_costs import class_of
from ddpsim_trace import Op, key_of
from torch import Tensor, nn

PRICED = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all")
READS = ("_local_scalar_dense", "is_nonzero", "item", "equal")


@dataclass
class Collective:
    """One call. ``bytes``: what this rank gives; of a reduce-scatter, what it gets."""

    operation: str
    bytes: int
    dtype: str
    elements: int = 0
    ranks: int = 0  # of its group; 0: all
    overlaps: bool = False  # async_op
    host: bool = False  # the host waits for it
    gradient: bool = False  # of a trained parameter

    def alike(self) -> Tuple[Any, ...]:
        return (self.operation, self.dtype, self.ranks, self.overlaps, self.host)


@dataclass
class Window:
    """Between two steps."""

    batch: int  # samples of the micro-step before
    next: int = 0  # of the one that follows
    ops: List[Op] = field(default_factory=list)
    firsts: List[Set[int]] = field(default_factory=list)  # first dimensions of each one's tensors
    collectives: List[Collective] = field(default_factory=list)
    reads: int = 0
    stepped: bool = False  # an optimizer has
    stepped_at: int = 0  # after so many operators
    arrival: Tuple[int, ...] = ()  # of no parameters
    groups: Tuple[int, ...] = ()
    frozen: Dict[int, int] = field(default_factory=dict)  # weights here are of no model

    def names(self) -> List[Tuple[str, str]]:
        return [(op.name, op.module) for op in self.ops]


class OwnWork:
    """Of one script, as it is seen."""

    def __init__(self) -> None:
        self.window: Optional[Window] = None  # that is open
        self.windows: List[Window] = []  # that are complete
        self.tested: Dict[int, Tensor] = {}  # storages that tell whether values are finite
        self.modules: List[str] = []  # of another network, that run
        self.names: Dict[int, str] = {}

    # ---- windows

    def opens(self, batch: int) -> None:
        """A backward has ended: what follows is the next micro-step, or the step's end."""
        self.window = Window(batch)

    def closes(self, batch: int) -> bool:
        """The model's forward begins; whether this ends a window."""
        window, self.window = self.window, None
        complete = window is not None and window.stepped
        if complete:
            window.next = batch  # type: ignore[union-attr]
            self.windows.append(window)  # type: ignore[arg-type]
        return complete

    def enter(self, module: nn.Module) -> None:
        if self.window is None:
            return
        if not self.modules:
            title = type(module).__name__
            self.names = {
                id(m): f"{title}.{n}".replace(".", "_") if n else title
                for n, m in module.named_modules()
            }
        self.modules.append(self.names.get(id(module), type(module).__name__))

    def leave(self) -> None:
        if self.modules:
            self.modules.pop()

    # ---- operators

    def saw(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator outside of a step's forward and backward."""
        name = costs.base_name(func)
        given, made = list(tensors_in([list(args), kwargs])), list(tensors_in(out))
        if name == "_to_copy" and given[0].dtype == made[0].dtype and kwargs.get("device"):
            return  # from the CPU, or from there to here
        if not any(t.device.type == "meta" for t in given):
            return  # of the CPU, or from there; or without input, as data are made
        assert self.window is not None
        inplace = func_aliases(func) and any(
            a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments
        )
        before = [key_of(t) for t in given]
        shared = bool(made) and all(key_of(t) in before for t in made)
        cost = costs.cost_of(name, given, made, args, shared and not inplace)
        if not cost.kernels:
            return
        kind, sizes = costs.kind_of(name, args, False)
        module = self.modules[-1] if self.modules else "own"
        op = Op(name, module, cost, kind, sizes, before, graded=False)
        if made:
            n = costs.element_size(made[0]) * made[0].numel()
            half = n // 2 if made[0].is_floating_point() else n
            op.makes = (n, half if name in costs.IN_HALVES else n, half)
        self.window.ops.append(op)
        self.window.firsts.append({int(t.shape[0]) for t in [*given, *made] if t.dim()})

    def tests(self, t: Tensor) -> Tensor:
        """A tensor of the CPU that stands for isfinite() and the like."""
        self.tested[key_of(t)] = t
        return t

    def reads_a_test(self, func: Any, args: Any, kwargs: Any, out: Any) -> bool:
        """Whether this operator reads such a tensor; what it makes of one is one, too."""
        if not self.tested:
            return False
        given = list(tensors_in([list(args), kwargs]))
        if not any(key_of(t) in self.tested for t in given):
            return False
        for t in tensors_in(out):
            self.tested[key_of(t)] = t
        return costs.base_name(func) in READS


# ---- what each step does


class Outside(Batches):
    """Operators between steps, of one window or of two with the same ones. They are about the batch
    of the step to come, or of the one before."""

    def __init__(self, windows: Sequence[Window], batch: int) -> None:
        self.batches, self.traces = [batch], [windows[0]]  # type: ignore[list-item]
        self.inexact, self.windows = 0, windows

    def solve(self, index: int, number: Callable[[Op], float]) -> Scaled:
        values = [number(w.ops[index]) for w in self.windows]
        each = [[w.next for w in self.windows], [w.batch for w in self.windows]]
        if len(values) == 2:
            for one, two in each:
                if one == two or values[0] == values[1]:
                    continue
                per = (values[1] - values[0]) / (two - one)
                fixed = values[0] - per * one
                if per > 0 and fixed >= -1e-6:
                    return Scaled(per, max(0.0, fixed))
            if values[0] != values[1] or all(one != two for one, two in each):
                return Scaled(0, values[0])
        for sizes in each:  # they are alike: a first dimension tells
            if sizes[0] in self.windows[0].firsts[index]:
                return Scaled(values[0] / sizes[0])
        return Scaled(0, values[0])


@dataclass
class Told:
    """For a workload: keys of it, and sentences."""

    layers: List[Json] = field(default_factory=list)
    loop: Json = field(default_factory=dict)
    plan: Json = field(default_factory=dict)
    not_counted: List[Json] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)


def amount(flops: float) -> str:
    """"52.4 MFLOP"."""
    for size, unit in ((1e12, "TFLOP"), (1e9, "GFLOP")):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops / 1e6:.3g} MFLOP"


def size(count: float) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} bytes"


def operators(told: Told, windows: Sequence[Window], batch: int) -> None:
    """Of other networks: layers without parameters or backward, in front of the model's. Of tensors
    whose size is no batch's: an update once a step."""
    if not windows or not any(w.ops for w in windows):
        return
    chosen = min(windows[:2], key=lambda w: len(w.ops))  # some steps do more
    rest = max(windows[:2], key=lambda w: len(w.ops))
    if len(windows) > 1 and rest.names() != chosen.names():
        more = sum(op.forward.flops for op in rest.ops) - sum(o.forward.flops for o in chosen.ops)
        told.not_counted.append({
            "what": f"{len(rest.ops) - len(chosen.ops)} operators that some steps run",
            **({"flops": more} if more > 0 else {}),
        })  # fmt: skip
    both = len(windows) > 1 and rest.names() == chosen.names()
    found = Outside(windows[:2] if both else [chosen], batch)
    all_of_them = merged(layers_of(found))
    mark_attention(all_of_them)
    layers: List[Layer] = []
    own = Direction()
    for x in all_of_them:
        fixed = x.forward.flops.per == 0 and x.forward.bytes.per == 0
        if fixed and class_of(x.kind) == "memory":
            own = own + x.forward
        elif x.forward.kernels:
            layers.append(x)
    if own.kernels:
        told.loop["own_update"] = {"bytes": round(own.bytes.fixed), "kernels": own.kernels}
        told.notes.append(
            f"tensors besides the batch are updated in each step ({size(own.bytes.fixed)} read and"
            f" written, {own.kernels} kernels): loop.own_update"
        )
    if not layers:
        return
    named(layers)
    for x in layers:
        x.name = "beside/" + x.name.replace(".", "_")  # no number of a block
        x.tensors = []
    told.layers = [row(x, batch) for x in layers]
    networks = sorted({x.module.split("_")[0] for x in layers} - {"own"})
    flops = sum(x["forward"]["flops_per_sample"] for x in told.layers) * batch
    told.notes.append(
        f"beside the model a step computes {amount(flops)}"
        + (f" of {', '.join(networks)}" if networks else "")
        + f" forward: {len(layers)} layers beside/..., in each micro-step"
    )


# ---- collectives


def by_gradients(told: Told, calls: List[Collective], parameters: int, elements: int) -> None:
    """The knobs of plan averaging that these all-reduces are."""
    told.plan["system"] = "averaging"
    if len(calls) == 1 and calls[0].elements >= elements:
        told.plan["granularity"] = "flat"
    elif len(calls) != parameters:
        told.notes.append(
            f"{len(calls)} all-reduces of gradients are predicted as {parameters}, one a parameter"
        )
    if any(c.overlaps for c in calls):
        told.plan["async_op"] = True


def affine(calls: Sequence[Collective], batches: Sequence[int]) -> Dict[str, float]:
    """Bytes of one call at several batches."""
    if len(calls) < 2 or batches[1] == batches[0]:
        return {"bytes_fixed": calls[0].bytes}
    per = (calls[1].bytes - calls[0].bytes) / (batches[1] - batches[0])
    out = {"bytes_per_sample": per, "bytes_fixed": calls[0].bytes - per * batches[0]}
    return {k: int(v) if v == int(v) else v for k, v in out.items() if v > 0}


def collectives(
    told: Told, when: str, seen: Sequence[List[Collective]], batches: Sequence[int]
) -> None:
    """Those of each step."""
    seen = list(seen)[:2]
    if not seen or not any(seen):
        return
    if len(seen) > 1 and [c.alike() for c in seen[0]] != [c.alike() for c in seen[1]]:
        less, more = sorted(seen, key=len)
        count = len(more) - len(less)
        total = sum(c.bytes for c in more) - sum(c.bytes for c in less)
        told.not_counted.append({
            "what": f"{count} collectives that some steps call", "bytes": max(0, total)
        })  # fmt: skip
        seen, batches = [less], batches[:1]
    rows: List[Json] = told.loop.setdefault("collectives", [])
    left: Dict[str, List[int]] = {}
    for calls in zip(*seen):
        c = calls[0]
        if c.operation not in PRICED or c.ranks:
            among = f" among {c.ranks} ranks" if c.ranks else ""
            entry = left.setdefault(c.operation + among, [0, 0])
            entry[0], entry[1] = entry[0] + 1, entry[1] + c.bytes
            continue
        if c.overlaps:
            told.notes.append(
                f"{c.operation} with async_op is predicted as if the device waited for it at once"
            )
        made: Json = {"operation": c.operation, "when": when, **affine(calls, batches),
                      "dtype": c.dtype, **({"host": True} if c.host else {})}  # fmt: skip
        if rows and {k: v for k, v in rows[-1].items() if k != "count"} == made:
            rows[-1]["count"] = rows[-1].get("count", 1) + 1
        else:
            rows.append(made)
    for what, (count, total) in left.items():
        told.not_counted.append({"what": f"{count} {what} in each step", "bytes": total})
    if not rows:
        del told.loop["collectives"]
        return
    priced = [c for c in seen[0] if c.operation in PRICED and not c.ranks]
    if not priced:
        return
    kinds = ", ".join(sorted({c.operation for c in priced}))
    place = "between forward and backward" if when == "forward" else "after the update"
    total = sum(c.bytes for c in priced)
    told.notes.append(f"the script's own {kinds} of {size(total)} is predicted {place}")


# ---- memory


def weights_beside(model: nn.Module, others: Sequence[nn.Module]) -> List[Json]:
    """Networks that the script holds besides the model's, with their bytes."""
    gc.collect()
    known: Set[int] = {id(t) for m in [model, *others] for t in m.parameters()}
    known |= {id(t) for m in [model, *others] for t in m.buffers()}
    modules = [m for m in gc.get_objects() if issubclass(type(m), nn.Module)]
    inside = {id(c) for m in modules for c in m.children()}
    found: Dict[str, int] = {}
    for m in [m for m in modules if id(m) not in inside]:
        rest = {id(t): t for t in [*m.parameters(), *m.buffers()] if id(t) not in known}
        known |= set(rest)
        count = sum(t.numel() * t.element_size() for t in rest.values())
        if count:
            found[type(m).__name__] = found.get(type(m).__name__, 0) + count
    return [{"what": f"memory of the weights of {name}, beside the model", "bytes": n}
            for name, n in sorted(found.items())]  # fmt: skip
