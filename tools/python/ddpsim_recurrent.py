"""Recurrent layers as PyTorch's CPU and cuDNN compute them: the gates of all inputs at once, then
one step after the other. On the meta device PyTorch would take the inputs step by step, too.

The steps are those of aten/src/ATen/native/RNN.cpp (lstm, gru, rnn_tanh, rnn_relu of padded
sequences); what else is asked of it (packed sequences, projections) is left to PyTorch.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
State = Tuple[Tensor, ...]


def lstm_step(x: Tensor, state: State, w: Tensor, b: Optional[Tensor]) -> State:
    h, c = state
    i, f, g, o = F.linear(h, w, b).add_(x).unsafe_chunk(4, 1)
    i, f, g, o = i.sigmoid_(), f.sigmoid_(), g.tanh_(), o.sigmoid_()
    c = (f * c).add_(i * g)
    return o * c.tanh(), c


def gru_step(x: Tensor, state: State, w: Tensor, b: Optional[Tensor]) -> State:
    (h,) = state
    of_x = x.unsafe_chunk(3, 1)
    of_h = F.linear(h, w, b).unsafe_chunk(3, 1)
    reset = of_h[0].add_(of_x[0]).sigmoid_()
    update = of_h[1].add_(of_x[1]).sigmoid_()
    new = of_x[2].add(of_h[2].mul_(reset)).tanh_()
    return ((h - new).mul_(update).add_(new),)


def plain_step(function: Callable[[Tensor], Tensor]) -> Callable[..., State]:
    def step(x: Tensor, state: State, w: Tensor, b: Optional[Tensor]) -> State:
        return (function(F.linear(state[0], w, b).add_(x)),)

    return step


STEPS: Dict[str, Callable[..., State]] = {
    "lstm": lstm_step,
    "gru": gru_step,
    "rnn_tanh": plain_step(torch.tanh),
    "rnn_relu": plain_step(torch.relu),
}


def one_way(
    name: str, x: Tensor, state: State, weights: Sequence[Tensor], back: bool
) -> Tuple[Tensor, State]:
    """A layer in one direction, of (steps, batch, width)."""
    w_x, w_h, *biases = weights
    b_x, b_h = biases or (None, None)
    steps: List[Tensor] = list(F.linear(x, w_x, b_x).unbind(0))
    outputs: List[Tensor] = []
    for each in reversed(steps) if back else steps:
        state = STEPS[name](each, state, w_h, b_h)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if back else outputs, 0), state


def recurrent(name: str, args: Sequence[Any]) -> Tuple[Tensor, ...]:
    x, start, weights, biases, layers, dropout, train, both, batch_first = args
    starts: Sequence[Tensor] = start if name == "lstm" else (start,)
    ways = 2 if both else 1
    each = 4 if biases else 2
    x = x.transpose(0, 1) if batch_first else x
    given = [tuple(parts) for parts in zip(*(s.unbind(0) for s in starts))]
    ends: List[State] = []
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            k = layer * ways + way
            out, end = one_way(name, x, given[k], weights[k * each : (k + 1) * each], way == 1)
            outputs.append(out)
            ends.append(end)
        x = torch.cat(outputs, -1) if both else outputs[0]
        if dropout and train and layer < layers - 1:
            x = F.dropout(x, dropout)
    x = x.transpose(0, 1) if batch_first else x
    return (x, *(torch.stack(parts, 0) for parts in zip(*ends)))


class RecurrentLayers(TorchFunctionMode):
    """Padded recurrent layers, while it lives, are computed as above."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        plain = len(args) == 9 and not kwargs and isinstance(args[5], float)
        if name in GATES and plain and len(args[2]) == args[4] * (1 + args[7]) * (
            4 if args[3] else 2
        ):
            return recurrent(name, args)
        return func(*args, **(kwargs or {}))
