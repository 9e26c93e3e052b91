"""Small models of many kinds, to be executed on a CPU beside their description: name -> what makes
(model, inputs, loss). Without dropout, of which a GPU keeps other tensors.
"""

import importlib.util

import plain_transformers as plain
import torch
from executed_steps import quick_weights
from torch import nn
from torch.nn import functional as F

HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn = nn.Embedding(100, 32), nn.LSTM(32, 48, 2, batch_first=True)
        self.head = nn.Linear(48, 100)

    def forward(self, tokens):
        return self.head(self.rnn(self.words(tokens))[0]).transpose(1, 2)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.pool, self.mid = nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.out = nn.Conv2d(32, 5, 1)

    def forward(self, x):
        a = self.down(x)
        b = torch.relu(self.mid(self.pool(a)))
        return self.out(torch.cat([a, self.up(b)], 1))


class Graph(nn.Module):
    """Sums over neighbours."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 24), nn.Linear(24, 4)

    def forward(self, x, near):
        x = torch.relu(self.one(torch.bmm(near, x)))
        return self.two(torch.bmm(near, x)).mean(1)


class TwoLosses(nn.Module):
    """Frozen stem, an unused layer, a head that two losses use."""

    def __init__(self):
        super().__init__()
        self.stem, self.body = nn.Linear(16, 16), nn.Linear(16, 16)
        self.a, self.b, self.unused = nn.Linear(16, 4), nn.Linear(16, 1), nn.Linear(3, 3)
        for p in self.stem.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        x = torch.relu(self.body(torch.relu(self.stem(x))))
        return self.a(x), self.b(x)


def two_losses(output):
    return output[0].pow(2).mean() + F.binary_cross_entropy_with_logits(
        output[1], torch.ones_like(output[1])
    )


class Generator(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.ConvTranspose2d(8, 16, 4),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 4, stride=2, padding=1),
            nn.Tanh(),
        )


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(12, 20, bidirectional=True), nn.Linear(40, 3)

    def forward(self, x):
        return self.head(self.rnn(x.transpose(0, 1))[0][-1])


def mean(output):
    return output.pow(2).mean()


def own(model, vocabulary=100):
    return lambda: (model().eval(), (torch.randint(vocabulary, (4, 32)),), plain.own)


def vision(name, size=64, **more):
    def make():
        import torchvision

        with quick_weights():
            model = getattr(torchvision.models, name)(**more).eval()
        return model.train(), (torch.randn(2, 3, size, size),), None

    return make


RECURRENT = ("lstm", "gru")
SMALL = {
    "gpt2": own(lambda: plain.Gpt2(2, 64, 4, 32, 100)),
    "llama": own(lambda: plain.Llama(2, 64, 160, 4, 2, False, 100)),
    "llama_tied": own(lambda: plain.Llama(2, 64, 160, 4, 2, True, 100)),
    "lstm": lambda: (Recurrent(), (torch.randint(100, (4, 9)),), None),
    "gru": lambda: (Gru(), (torch.randn(4, 9, 12),), None),
    "unet": lambda: (UNet(), (torch.randn(2, 3, 16, 16),), None),
    "graph": lambda: (Graph(), (torch.randn(3, 7, 12), torch.randn(3, 7, 7)), None),
    "two_losses": lambda: (TwoLosses(), (torch.randn(5, 16),), two_losses),
    "generator": lambda: (Generator(), (torch.randn(2, 8, 1, 1),), mean),
    "encoder": lambda: (
        nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True),
        (torch.randn(2, 10, 32),),
        mean,
    ),
}
if HAS_TORCHVISION:
    SMALL.update(
        {
            n: vision(n)
            for n in (
                "resnet18",
                "resnext50_32x4d",
                "densenet121",
                "regnet_y_400mf",
                "shufflenet_v2_x1_0",
                "convnext_tiny",
            )
        }
    )
    SMALL["swin_t"] = vision("swin_t", 224)
    SMALL["vit_b_16"] = vision("vit_b_16", image_size=64)
