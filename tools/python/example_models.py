"""Small models that train on one CPU core, as factories: ``ddpsim_capture.py --factory
example_models:gpt --threads 1 --out workloads/gpt-cpu.json``.

Each returns (model, inputs, loss_fn, optimizer); None stands for the default.
"""
import torch
from torch import nn


class Block(nn.Module):
    """A decoder layer, normalised before attention and before the MLP."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Token and position embeddings, blocks, a head of its own; returns (batch, vocabulary,
    position) scores."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer(
            "mask", torch.full((length, length), float("-inf")).triu(1), persistent=False
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x, self.mask)
        return self.head(self.ln_f(x)).transpose(1, 2)


def gpt():
    """8.4 million parameters, 32 tokens."""
    return Gpt(8000, 256, 5, 4, 32), (torch.randint(8000, (1, 32)),), None, None


def mlp():
    """5.8 million parameters, batch 8."""
    layers = [
        nn.Linear(784, 2048),
        nn.ReLU(),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, 10),
    ]
    return nn.Sequential(*layers), (torch.randn(8, 784),), None, None


def cnn():
    """4.7 million parameters, batch 4 of 32 x 32 images."""
    layers = []
    for width, wider in ((3, 64), (64, 128), (128, 256), (256, 512)):
        layers += [
            nn.Conv2d(width, wider, 3, padding=1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    layers += [nn.Flatten(), nn.Linear(512 * 4, 1536), nn.ReLU(), nn.Linear(1536, 10)]
    return nn.Sequential(*layers), (torch.randn(4, 3, 32, 32),), None, None
