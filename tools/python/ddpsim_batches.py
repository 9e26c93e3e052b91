"""Numbers of a traced step that scale with the batch, and those that do not: from three batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Sequence

from ddpsim_capture import CaptureError
from ddpsim_trace import Op, Tracer

Json = Dict[str, Any]


@dataclass
class Scaled:
    """A number: fixed + per * batch."""

    per: float = 0
    fixed: float = 0

    def __add__(self, o: "Scaled") -> "Scaled":
        return Scaled(self.per + o.per, self.fixed + o.fixed)

    def times(self, factor: float) -> "Scaled":
        return Scaled(self.per * factor, self.fixed * factor)


@dataclass
class Direction:
    flops: Scaled = field(default_factory=Scaled)
    bytes: Scaled = field(default_factory=Scaled)
    kernels: int = 0

    def __add__(self, o: "Direction") -> "Direction":
        return Direction(self.flops + o.flops, self.bytes + o.bytes, self.kernels + o.kernels)

    def json(self, batch: int) -> Json:
        return {
            # The format knows no operations that do not depend on the batch.
            "flops_per_sample": whole(self.flops.per + self.flops.fixed / batch),
            "bytes_per_sample": whole(self.bytes.per),
            "bytes_fixed": whole(self.bytes.fixed),
            "kernels": self.kernels,
        }


def whole(value: float) -> int:
    return max(0, round(value))


class Batches:
    """The same step at one batch or at three; numbers are solved for what scales."""

    def __init__(self, batches: Sequence[int], traces: Sequence[Tracer]) -> None:
        self.batches, self.traces = batches, traces
        self.inexact = 0  # numbers that are no line, and hold at the first batch only
        first = [(op.name, op.module) for op in traces[0].ops]
        for t in traces[1:]:
            if [(op.name, op.module) for op in t.ops] != first or t.arrival != traces[0].arrival:
                raise CaptureError("the model computes other operators at another batch")

    def solve(self, index: int, number: Callable[[Op], float]) -> Scaled:
        values = [number(t.ops[index]) for t in self.traces]
        b = self.batches
        if not any(values):
            return Scaled()
        if len(values) == 3:
            per = (values[1] - values[0]) / (b[1] - b[0])
            fixed = values[0] - per * b[0]
            if per >= 0 and fixed >= -1e-6 and abs(fixed + per * b[2] - values[2]) < 1:
                return Scaled(per, max(0.0, fixed))
            self.inexact += 1
        return Scaled(values[0] / b[0], 0)

    def direction(self, index: int, which: str) -> Direction:
        return Direction(
            self.solve(index, lambda op: getattr(op, which).flops),
            self.solve(index, lambda op: getattr(op, which).bytes),
            getattr(self.traces[0].ops[index], which).kernels,
        )

    def sizes(self, index: int) -> Json:
        """`op`'s sizes of a sample; none if they are not whole."""
        op = self.traces[0].ops[index]
        each = {"linear": "rows", "bmm": "count"}.get(op.kind)
        if each is None:
            return dict(op.sizes)
        scaled = self.solve(index, lambda o: o.sizes[each])
        others = [{**t.ops[index].sizes, each: 0} for t in self.traces]
        if scaled.fixed or scaled.per % 1 or scaled.per < 1 or any(o != others[0] for o in others):
            return {}
        return {**op.sizes, each: int(scaled.per)}
