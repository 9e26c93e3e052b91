"""Floating point operations of a step, counted from the shapes that PyTorch's functions are called
with: an account that knows nothing of ddpsim's table of operators. A multiply-add is two. What is
no matrix product or convolution counts nothing.
"""
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


def asks(t):
    return isinstance(t, Tensor) and t.requires_grad


def given(args, kwargs, place, name):
    return args[place] if len(args) > place else kwargs[name]


class CountedFlops(TorchFunctionMode):
    """``forward``: of the calls; ``backward``: as much again for each operand that gets a gradient,
    and what backward calls again (torch.utils.checkpoint)."""

    def __init__(self):
        super().__init__()
        self.forward = self.backward = 0
        self.again = False  # forward has ended: what is called is called again
        self.later = False  # a call had no graph, which it gets when it is called again

    def add(self, flops, *operands):
        if self.again:
            self.backward += flops
        else:
            self.forward += flops
        graph = torch.is_grad_enabled()
        self.later |= not graph and not self.again
        if graph and (not self.again or self.later):
            self.backward += flops * sum(asks(t) for t in operands)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func is F.multi_head_attention_forward:
            self.heads(args, kwargs)
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        if name in ("lstm", "gru"):
            self.recurrent(name, args)
        elif name == "linear":
            x, w = given(args, kwargs, 0, "input"), given(args, kwargs, 1, "weight")
            self.add(2 * x.numel() * w.shape[0], x, w)
        elif name in ("conv1d", "conv2d", "conv3d"):
            x, w = given(args, kwargs, 0, "input"), given(args, kwargs, 1, "weight")
            self.add(2 * out.numel() * w[0].numel(), x, w)
        elif name.startswith("conv_transpose"):
            x, w = given(args, kwargs, 0, "input"), given(args, kwargs, 1, "weight")
            self.add(2 * x.numel() * w[0].numel(), x, w)
        elif name in ("matmul", "bmm", "mm", "__matmul__"):
            a, b = args[0], args[1]
            self.add(2 * out.numel() * a.shape[-1], a, b)
        elif name in ("addmm", "baddbmm"):
            a, b = args[1], args[2]
            self.add(2 * out.numel() * a.shape[-1], a, b)
        elif name == "einsum":
            raise NotImplementedError("einsum is not counted")
        return out

    def heads(self, args, kwargs):
        """Attention of (tokens, batch, width): four projections and two products of all heads."""
        q, k, v = (given(args, kwargs, i, n) for i, n in enumerate(("query", "key", "value")))
        width = q.shape[-1]
        weight = given(args, kwargs, 5, "in_proj_weight")
        for t in (q, k, v):
            self.add(2 * t.numel() * width, t, weight)
        pairs = q.numel() // width * k.shape[0] * width
        self.add(4 * pairs, weight, weight)
        self.add(2 * q.numel() * width, weight, weight)

    def recurrent(self, name, args):
        """Every matrix of every layer and direction meets every step of every sample."""
        x, _, weights, _, layers = args[:5]
        batch_first = args[-1]
        steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
        matrices = [w for w in weights if w.dim() == 2]
        for i, w in enumerate(matrices):
            of_hidden = i % 2 == 1
            flops = 2 * w.numel() * steps * batch
            # The first step's hidden state is given, and gets no gradient.
            first = not of_hidden and i < len(matrices) // layers
            data = asks(x) if first else True
            self.add(flops, w)
            self.backward += (flops * (steps - 1) // steps if of_hidden else flops) * data
