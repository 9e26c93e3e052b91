"""Small models, as factories: (model, inputs, loss_fn, optimizer); None is left to the program."""
import torch
from torch import nn

MLP = (784, 512, 512, 512, 256, 10)  # widths
MLP_BATCH = 32
WIDE, WIDE_BATCH = (256, 512, 512, 512, 256), 131072


def mlp():
    layers = []
    for width, wider in zip(MLP, MLP[1:]):
        layers += [nn.Linear(width, wider), nn.ReLU()]
    return nn.Sequential(*layers[:-1]), (torch.randn(MLP_BATCH, MLP[0]),), None, None


def wide():
    """So large that a device as fast as a GPU decides. Nothing of it is computed."""
    layers = []
    for width, wider in zip(WIDE, WIDE[1:]):
        layers += [nn.Linear(width, wider), nn.ReLU()]
    return nn.Sequential(*layers[:-1]), (torch.zeros(WIDE_BATCH, WIDE[0]),), None, None


def mlp_with_optimizer():
    """The model is on the host, and the optimizer knows its parameters."""
    model, inputs, _, _ = mlp()
    return model, inputs, None, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def cnn():
    layers = []
    for width, wider in ((3, 16), (16, 32), (32, 64)):
        layers += [
            nn.Conv2d(width, wider, 3, padding=1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4, 10))
    return model, (torch.randn(4, 3, 16, 16),), None, None


def attention():
    """A decoder layer with a tied embedding; its output is (batch, vocabulary, position)."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(500, 64)
            self.attn = nn.MultiheadAttention(64, 4, batch_first=True)
            self.ln = nn.LayerNorm(64)

        def forward(self, tokens):
            x = self.wte(tokens)
            x = x + self.attn(x, x, x, need_weights=False)[0]
            return nn.functional.linear(self.ln(x), self.wte.weight).transpose(1, 2)

    return Model(), (torch.randint(500, (4, 16)),), None, None
