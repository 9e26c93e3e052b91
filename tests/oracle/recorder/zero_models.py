"""Has the small models that zero_record.py gives to DeepSpeed: its recordings are of their steps.

Each says which of its modules get an input that needs no gradient."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln, self.fc = nn.LayerNorm(width), nn.Linear(width, 3 * width + 1)
        self.act = nn.ReLU()
        self.out = nn.Linear(3 * width + 1, width)

    def forward(self, x):
        return x + self.act(self.out(self.act(self.fc(self.ln(x)))))


class Blocks(nn.Module):
    """Tokens and positions, three blocks, a head that is the embedding."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(23, 10), nn.Embedding(7, 10)
        self.h = nn.ModuleList(Block(10) for _ in range(3))
        self.ln = nn.LayerNorm(10)
        self.head = nn.Linear(10, 23, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x):
        y = self.wte(x) + self.wpe(torch.arange(7))
        for block in self.h:
            y = block(y)
        return self.head(self.ln(y)).float().sum()

    def batch(self, dtype):
        return torch.randint(23, (2, 7))

    no_input_gradient = ["", "wte", "wpe"]


class Twice(nn.Module):
    """One layer that is used twice, and one behind it; an input of the model's dtype."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(9, 9), nn.Linear(9, 9), nn.Linear(9, 5)

    def forward(self, x):
        return self.c(self.b(torch.tanh(self.b(self.a(x))))).float().sum()

    def batch(self, dtype):
        return torch.randn(3, 9, dtype=dtype)

    no_input_gradient = ["", "a"]


class Step(torch.autograd.Function):
    """Stands in for a layer's kernels where the CPU has none (float16)."""

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(w, b)
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        w, b = ctx.saved_tensors
        return g, torch.zeros_like(w), torch.zeros_like(b)


class Layer(nn.Module):
    def __init__(self, w, b):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(w)), nn.Parameter(torch.ones(b))

    def forward(self, x):
        return Step.apply(x, self.weight, self.bias)


class Tower(nn.Module):
    """Layers in a row, whose weights and biases have these shapes."""

    no_input_gradient = ["", "l.0"]

    def __init__(self, *shapes):
        super().__init__()
        self.l = nn.ModuleList(Layer(*shape) for shape in shapes)

    def forward(self, x):
        for layer in self.l:
            x = layer(x)
        return x.float().sum()

    def batch(self, dtype):
        return torch.ones(4, dtype=dtype)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.fc = nn.Parameter(torch.ones(9)), nn.Linear(9, 9)

    def forward(self, x):
        return self.fc(x * self.scale)


class Raw(nn.Module):
    """Modules with modules use parameters of their own."""

    def __init__(self):
        super().__init__()
        self.place, self.a, self.b = nn.Parameter(torch.ones(9)), nn.Linear(9, 9), Scaled()
        self.c = nn.Linear(9, 5)

    def forward(self, x):
        return self.c(self.b(self.a(x) + self.place)).float().sum()

    def batch(self, dtype):
        return torch.randn(3, 9, dtype=dtype)

    no_input_gradient = ["", "a"]
    events = [["enter", ""], ["enter", "a"], ["exit", "a"], ["use", 0], ["enter", "b"], ["use", 3]]
    events += [["enter", "b.fc"], ["exit", "b.fc"], ["exit", "b"], ["enter", "c"], ["exit", "c"]]
    events += [["exit", ""]]


class Shared(Raw):
    """A module and one inside it have a parameter in common."""

    def __init__(self):
        super().__init__()
        self.b.fc.bias = self.b.scale


MODELS: dict = {
    "raw": Raw,
    "shared": Shared,
    "blocks3": Blocks,
    "twice": Twice,
    "tower7": lambda: Tower(*((37 * i + 11, i + 3) for i in range(7))),
    # Parameters whose parts are of whole groups of eight.
    "eights": lambda: Tower(*((5024 * i + 64, 32) for i in range(6))),
    # Gradients of one, two and three dimensions; one that no exchange parts.
    "plates": lambda: Tower(*zip([(8, 6), (6, 16), (5, 7), (2, 2, 24), (24,)], range(3, 8))),
}
