"""One training step without memory: every operator of forward and backward with its cost, by a
dispatch mode over tensors that have shapes and no data (PyTorch's meta device).

An operator of backward belongs to that of forward whose node of autograd ran it; a recomputed one
(torch.utils.checkpoint) to what it repeats.
"""
from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import ddpsim_op_costs as costs
import torch
from ddpsim_capture import CaptureError, tensors_in
from ddpsim_meta import META, WithoutMemory, func_aliases, tensors_of
from ddpsim_op_costs import Cost
from ddpsim_recurrent import RecurrentLayers
from torch import Tensor, nn

LOSS = "loss"  # what is computed outside of the model


def storage_of(t: Tensor) -> Any:
    return t.untyped_storage() if hasattr(t, "untyped_storage") else t._storage()


def key_of(t: Tensor) -> int:
    return int(storage_of(t)._cdata)


@dataclass
class Op:
    """An operator of forward; what backward does for it."""

    name: str
    module: str  # the innermost that runs
    forward: Cost
    kind: str = ""
    sizes: Dict[str, int] = field(default_factory=dict)
    reads: List[int] = field(default_factory=list)  # storages
    makes: Tuple[int, ...] = (0, 0, 0)  # bytes of its first output: fp32, autocast, halves
    backward: Cost = Cost()
    backward_names: List[str] = field(default_factory=list)
    parameters: List[int] = field(default_factory=list)  # whose gradients it completes
    saves: List[int] = field(default_factory=lambda: [0, 0, 0])
    recomputed: List[int] = field(default_factory=lambda: [0, 0, 0])  # the same, in recomputation
    forks: Cost = Cost()  # gradients of its output that are summed
    graded: bool = True  # autograd was on


# Of a model: about 5 ms each.
MOST_MODULES = 10_000


class Tracer(WithoutMemory):
    """Writes down a step of ``model``: ``tracer.step(lambda: loss)``; or, while somebody else runs
    it, ``begin``, ``begin_backward``, backward within ``with tracer:``, ``close``."""

    floats_too = False

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.ops: List[Op] = []
        self.arrival: List[int] = []
        self.arrived_once: Set[int] = set()  # the same
        self.unknown: Counter[str] = Counter()
        self.groups: List[Tuple[int, int]] = []  # first and last operator that were recomputed
        self.saved_bytes = 0  # as a CPU keeps them
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.names = {id(m): n for n, m in model.named_modules()}
        if len(self.names) > MOST_MODULES:
            raise CaptureError(
                f"the model has {len(self.names):,} modules, and a description of more than "
                f"{MOST_MODULES:,} takes minutes: describe fewer of its layers"
            )
        owned = [*model.parameters(), *model.buffers()]
        self.weights = {key_of(t) for t in owned}
        frozen = [p for p in model.parameters() if not p.requires_grad]
        self.frozen = {key_of(p): i for i, p in enumerate(frozen)}  # storages
        self.half: Dict[int, bool] = {}  # storages that have halves under autocast
        self.alive: Dict[int, Any] = {}  # storages, so that no address is used twice
        self.held: Set[Tuple[str, int]] = set()  # (mode, storage) that autograd keeps already
        self.packed: List[Tuple[Tensor, bool]] = []  # inputs of the next operator; recomputed?
        self.stack: List[str] = []
        self.in_backward = False
        self.closed = False
        self.forward, self.hooks = contextlib.ExitStack(), contextlib.ExitStack()
        self.pending: List[Tuple[Any, int]] = []
        self.node_op: Dict[Any, int] = {}
        self.log: List[Tuple[str, Cost]] = []  # of backward, since a node ended
        self.expected: List[Any] = []  # nodes for which the next additions are
        self.received: Set[Tuple[Any, int]] = set()
        self.again: List[Op] = []  # recomputed; the k-th has index -1 - k
        self.repeats: List[int] = []  # of each, which operator of forward it repeats
        self.bound: Optional[int] = None  # what is recomputed next was computed before this one
        self.writer: Dict[int, int] = {}  # by parameter, the operator of its last gradient
        self.last_writer = 0
        self.last_outputs: Dict[int, bool] = {}  # storage: is it the first output?
        self.last_name = ""
        self.grads: Dict[Any, int] = {}
        for i, p in enumerate(self.parameters):
            p.grad = None  # of a step before
            node = p.expand_as(p).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
            self.grads[node] = i
            node.register_hook(self.ended(node))

    # ---- where

    @contextlib.contextmanager
    def modules(self) -> Iterator[None]:
        """Knows which module runs, and what is saved, meanwhile."""

        def begin(module: nn.Module, _: Any) -> None:
            own = self.stack[-1] if self.stack else LOSS
            self.stack.append(self.names.get(id(module), own) or "(model)")

        def end(module: nn.Module, *_: Any) -> None:
            if self.stack:
                self.stack.pop()

        hooks = [
            nn.modules.module.register_module_forward_pre_hook(begin),
            nn.modules.module.register_module_forward_hook(end),
        ]
        try:
            keeps = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda t: t)
            with keeps, RecurrentLayers():
                yield
        finally:
            for hook in hooks:
                hook.remove()

    # ---- operators

    def run(self, func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
        self.drain()
        name = costs.base_name(func)
        given = tensors_of(args, kwargs)
        before = [key_of(t) for t in given]
        out = super().run(func, args, kwargs)
        made = list(tensors_in(out))
        for t in made:
            self.alive.setdefault(key_of(t), storage_of(t))
        inplace = func_aliases(func) and any(
            a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments
        )
        shared = bool(made) and all(key_of(t) in before for t in made)
        alias = shared and not inplace
        cost = costs.cost_of(name, given, made, args, alias)
        if not alias and cost.kernels and not costs.known(name):
            self.unknown[name] += 1
        recomputing = self.in_backward and torch.is_grad_enabled()
        if self.in_backward and not recomputing:
            if cost.kernels:
                self.log.append((name, cost))
            return out
        module = self.stack[-1] if self.stack else LOSS
        if not given and module == LOSS:
            cost = Cost()  # labels
        kind, sizes = costs.kind_of(name, args, alias) if cost.kernels else ("", {})
        op = Op(name, module, cost, kind, sizes, before, graded=torch.is_grad_enabled())
        self.note_halves(op, name, given, made, alias)
        if recomputing:
            self.again.append(op)
            index = -len(self.again)
        else:
            index = len(self.ops)
            self.ops.append(op)
        self.keep_inputs(op)
        self.last_name = name
        self.last_outputs = {key_of(t): i == 0 for i, t in reversed(list(enumerate(made)))}
        self.pending += [(weakref.ref(t), index) for t in made if t.is_floating_point()]
        return out

    def note_halves(
        self, op: Op, name: str, given: List[Tensor], made: List[Tensor], alias: bool
    ) -> None:
        floats = [t for t in given if t.is_floating_point() and t.dim() > 0]
        if name in ("add_", "add") and self.last_name in ("mm", "_unsafe_view"):
            floats = [t for t in floats if key_of(t) not in self.weights]  # a linear layer's bias
        plain = name[:-1] if name.endswith("_") else name
        half = bool(floats) and all(self.half.get(key_of(t), False) for t in floats)
        if plain in costs.IN_HALVES or "scaled_dot_product" in name:
            half = True
        elif plain in costs.IN_SINGLE:
            half = False
        elif plain.endswith("batch_norm"):
            half = self.half.get(key_of(given[0]), False)
        for i, t in enumerate(made):
            if not alias:
                self.half[key_of(t)] = half and i == 0
        if made:
            op.makes = self.sizes(made[0])

    def sizes(self, t: Tensor) -> Tuple[int, int, int]:
        """Bytes of a tensor: in fp32, under autocast, in halves."""
        n = costs.element_size(t) * t.numel()
        if not t.is_floating_point():
            return n, n, n
        return n, n // 2 if self.half.get(key_of(t), False) else n, n // 2

    # ---- nodes of autograd

    def drain(self) -> None:
        """Learns the nodes of what the last operators made. What ran without autograd may get one
        when a function of autograd ends."""
        waiting = []
        for ref, index in self.pending:
            t = ref()
            if t is None:
                continue
            node = t.grad_fn
            if node is not None:
                self.know(node, index)
            elif index >= 0 and not self.ops[index].graded and not self.in_backward:
                waiting.append((ref, index))
        self.pending = waiting[-8:]

    def know(self, node: Any, index: int) -> None:
        if node not in self.node_op and node not in self.grads:
            self.node_op[node] = index
            node.register_hook(self.ended(node))

    def walk(self, root: Any) -> None:
        """Nodes that no operator made belong to what follows them."""
        todo, seen = [(root, len(self.ops) - 1)], set()
        while todo:
            node, follows = todo.pop()
            if node is None or node in seen or node in self.grads:
                continue
            seen.add(node)
            self.know(node, follows)
            todo += [(n, self.node_op[node]) for n, _ in node.next_functions]

    def ended(self, node: Any) -> Callable[..., None]:
        def hook(inputs: Any, outputs: Any = None) -> None:
            self.node_ended(node, inputs)

        return hook

    def node_ended(self, node: Any, gradients: Sequence[Optional[Tensor]]) -> None:
        if self.closed:
            return
        self.drain()
        self.stack.clear()
        self.recognise()
        op = self.ops[self.at(node)] if self.ops else None
        for name, cost in self.log:
            if self.expected and name in ("add", "add_"):
                self.summed(self.expected.pop(0), cost)
            elif op is not None:
                op.backward = op.backward.plus(cost)
                op.backward_names.append(name)
        self.log.clear()
        self.expected.clear()
        if node in self.grads:
            self.arrived(self.grads[node])
            return
        for (follows, slot), gradient in zip(node.next_functions, gradients or ()):
            if follows is None or gradient is None:
                continue
            if follows in self.grads:
                self.last_writer = self.at(node)
                self.writer[self.grads[follows]] = self.at(node)
            if (follows, slot) in self.received:
                self.expected.append(follows)
            self.received.add((follows, slot))

    def at(self, node: Any) -> int:
        """The operator of forward that a node belongs to."""
        if node in self.grads:
            return self.writer.get(self.grads[node], self.last_writer)
        index = self.node_op.get(node, self.last_writer)
        return index if index >= 0 else self.repeats[-1 - index]

    def summed(self, node: Any, cost: Cost) -> None:
        """Another gradient of what ``node`` made was added."""
        op = self.ops[self.at(node)]
        if node in self.grads:  # of a parameter that several operators use
            op.backward = op.backward.plus(cost)
        else:
            op.forks = op.forks.plus(cost)

    def arrived(self, parameter: int) -> None:
        if parameter in self.arrived_once:
            self.arrival.remove(parameter)
            for op in self.ops:
                if parameter in op.parameters:
                    op.parameters.remove(parameter)
        self.arrived_once.add(parameter)
        self.arrival.append(parameter)
        self.ops[self.writer.get(parameter, self.last_writer)].parameters.append(parameter)

    # ---- recomputation

    def recognise(self) -> None:
        """Which operators of forward those are that ran again."""
        group = self.again[len(self.repeats) :]
        if not group:
            return
        run = [i for i, op in enumerate(group) if op.forward.kernels]
        if not run:
            self.repeats += [self.last_writer] * len(group)
            return
        wanted = [(group[i].module, group[i].name) for i in run]
        have = [i for i, op in enumerate(self.ops) if op.forward.kernels]
        names = [(self.ops[i].module, self.ops[i].name) for i in have]
        end = len(have) if self.bound is None else self.bound
        for start in range(end - len(wanted), -1, -1):
            if names[start : start + len(wanted)] == wanted:
                break
        else:
            raise CaptureError(
                "what backward computes again is not what forward computed: describe the model"
                " without checkpointing"
            )
        self.bound = start
        self.groups.append((have[start], have[start + len(wanted) - 1]))
        positions = {k: have[start + n] for n, k in enumerate(run)}
        at = have[start]
        for k, op in enumerate(group):
            at = positions.get(k, at)
            self.repeats.append(at)
            for mode in range(3):
                self.ops[at].recomputed[mode] += op.saves[mode]

    # ---- what autograd keeps

    def pack(self, t: Tensor) -> Tensor:
        """Inputs are saved before their operator runs, outputs after it."""
        key = key_of(t)
        self.alive.setdefault(key, storage_of(t))
        recomputing = self.in_backward and torch.is_grad_enabled()
        if key in self.weights or (self.in_backward and not recomputing):
            return t
        if not recomputing and ("cpu", key) not in self.held:
            self.held.add(("cpu", key))
            self.saved_bytes += int(storage_of(t).nbytes())
        plain = self.last_name[:-1] if self.last_name.endswith("_") else self.last_name
        first = self.last_outputs.get(key)
        if first is not None and (plain in costs.KEEPS_OUTPUT or not first):
            self.keep(self.again[-1] if recomputing else self.ops[-1], t, recomputing)
            del self.last_outputs[key]  # once more, it is an input of what follows
        else:
            self.packed.append((t, recomputing))
        return t

    def keep_inputs(self, op: Op) -> None:
        for t, recomputing in self.packed:
            self.keep(op, t, recomputing)
        self.packed.clear()

    def keep(self, op: Op, t: Tensor, recomputing: bool) -> None:
        """Casts of autocast are tensors of their own."""
        key = key_of(t)
        whole = int(storage_of(t).nbytes()) // t.element_size() * costs.element_size(t)
        plain = op.name[:-1] if op.name.endswith("_") else op.name
        half = self.half.get(key, False)
        floats = t.is_floating_point()
        statistics = op.name in ("native_layer_norm", "native_group_norm", "native_batch_norm")
        single = statistics and self.last_outputs.get(key) is False
        copied = floats and not single and (
            2 if plain in costs.IN_HALVES and not half
            else 4 if plain in costs.IN_SINGLE and half else 0
        )  # fmt: skip
        kept = (
            whole,
            whole // 2 if half else whole,
            whole // 2 if floats and not single else whole,
        )
        for mode, name in enumerate(("fp32", "autocast", "pure")):
            if name == "autocast" and copied:
                op.saves[mode] += copied * t.numel()
                continue
            entry = (name + ("again" if recomputing else ""), key)
            if entry not in self.held:
                self.held.add(entry)
                op.saves[mode] += kept[mode]

    # ---- the step

    def step(self, loss_of: Callable[[], Tensor]) -> None:
        self.begin()
        try:
            loss = loss_of()
            gradient = self.begin_backward(loss)
            with self:
                loss.backward(gradient)
        finally:
            self.close()

    def begin(self) -> None:
        """Forward begins: what runs from now on is written down."""
        self.hooks.enter_context(self.modules())
        self.forward.enter_context(self)

    def begin_backward(self, loss: Tensor) -> Tensor:
        """Ends what ``begin`` began: nothing is written down until ``with tracer:`` runs backward.
        Returns the gradient of the loss."""
        if not self.in_backward:
            self.drain()
            self.forward.close()
            if self.packed and self.ops:
                self.keep_inputs(self.ops[-1])
        self.in_backward = True
        self.walk(loss.grad_fn)
        return torch.ones(loss.shape, dtype=loss.dtype, device=META)

    def close(self) -> None:
        """The step has ended; steps that follow on the same parameters are not its."""
        self.forward.close()
        self.hooks.close()
        self.closed = True
