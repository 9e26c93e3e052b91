"""The small model that the recorders of FSDP shard for their recordings."""
import torch
from torch import nn

from .events import log


class Block(nn.Module):
    def __init__(self, width, name):
        super().__init__()
        self.name, self.ln = name, nn.LayerNorm(width)
        self.fc, self.out = nn.Linear(width, 2 * width + 1), nn.Linear(2 * width + 1, width)

    def forward(self, x):
        y = self.out(torch.relu(self.fc(self.ln(x))))
        log("f", self.name + ".add")
        return x + y


class Model(nn.Module):
    def __init__(self, width=13, blocks=3):
        super().__init__()
        self.inp = nn.Linear(10, width)
        self.h = nn.ModuleList([Block(width, f"h.{i}") for i in range(blocks)])
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        x = self.inp(x)
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))

    def batch(self):
        return torch.randn(3, 10)


class WithEmbedding(Model):
    """An embedding in front, a unit by itself: its input needs no gradient."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Embedding(11, 13)

    def batch(self):
        return torch.randint(0, 11, (3,))


def sharded(model, wrap, shard):
    """Every block is a unit, "nested" with units inside; "none": the model alone is one."""
    for i, block in enumerate(model.h if wrap != "none" else []):
        if wrap == "nested":
            block.fc, block.out = shard(block.fc), shard(block.out)
        model.h[i] = shard(block)
    if isinstance(model, WithEmbedding):
        model.inp = shard(model.inp)
    if wrap == "nested":
        model.head = shard(model.head)
    return shard(model)
