"""Models of many kinds at full size, as factories for ``ddpsim describe``, and the same model at a
size that a CPU executes.

    ddpsim describe --factory tests/python/model_zoo.py:swin_t -o swin.json

Each entry of ZOO makes (model, inputs, loss); ``small`` makes one of the same kind with fewer
samples, pixels, tokens or blocks. ``without_chance`` takes dropout and stochastic depth out of a
model, of which a GPU keeps other tensors than a CPU does.
"""
import importlib.util
import math
from typing import Any, Callable, NamedTuple

import plain_transformers as plain
import torch
from torch import nn
from torch.nn import functional as F

HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None


class Entry(NamedTuple):
    full: Callable[[], Any]
    small: Callable[[], Any]
    kind: str = ""
    # What DDP is told, and its plan: the first step's graph, or looking for parameters that get no
    # gradient.
    ddp: str = ""


def without_chance(model):
    for m in model.modules():
        if isinstance(m, nn.modules.dropout._DropoutNd) or type(m).__name__ == "StochasticDepth":
            m.p = 0.0
        if isinstance(m, nn.MultiheadAttention):
            m.dropout = 0.0
    return model


def mean(output):
    return output.pow(2).mean()


# ---- torchvision


def vision(name, batch=32, size=224, loss=None, small=64, **more):
    def make(batch, size):
        import torchvision

        with_weights = {"weights_backbone": None} if name.startswith(("deeplab", "fcn")) else {}
        if name in ("googlenet", "inception_v3"):
            with_weights = {"init_weights": False}
        model = torchvision.models.get_model(name, weights=None, **with_weights, **more)
        return model.train(), (torch.randn(batch, 3, size, size),), loss

    return lambda: make(batch, size), lambda: make(2, small)


def auxiliary(output):
    """GoogLeNet's and Inception's losses: of the end, and of what hangs off the middle."""
    labels = torch.arange(output[0].shape[0])
    return sum(
        w * F.cross_entropy(y, labels)
        for y, w in zip((y for y in output if y is not None), (1.0, 0.3, 0.3))
    )


def segmented(output):
    def of(y):
        return F.cross_entropy(y, torch.zeros((y.shape[0], *y.shape[2:]), dtype=torch.long))

    return of(output["out"]) + (0.5 * of(output["aux"]) if "aux" in output else 0)


def video(frames, size, batch):
    def make():
        import torchvision

        model = torchvision.models.get_model("r3d_18", weights=None)
        return model.train(), (torch.randn(batch, 3, frames, size, size),), None

    return make


def frozen(batch, size):
    """Fine-tuning: the first half takes no gradients, and its statistics stay."""

    def make():
        import torchvision

        model = torchvision.models.get_model("resnet50", weights=None).train()
        for part in (model.conv1, model.bn1, model.layer1, model.layer2):
            part.requires_grad_(False).eval()
        return model, (torch.randn(batch, 3, size, size),), None

    return make


# ---- pictures in plain PyTorch


def twice(a, b):
    """Two convolutions of a U-Net."""
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1, bias=False),
        nn.BatchNorm2d(b),
        nn.ReLU(inplace=True),
        nn.Conv2d(b, b, 3, padding=1, bias=False),
        nn.BatchNorm2d(b),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=64, depth=4, classes=2):
        super().__init__()
        sizes = [width * 2**k for k in range(depth + 1)]
        self.down = nn.ModuleList(twice(a, b) for a, b in zip([3, *sizes], sizes))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * s, s, 2, stride=2) for s in reversed(sizes[:-1])
        )
        self.merge = nn.ModuleList(twice(2 * s, s) for s in reversed(sizes[:-1]))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for part in self.down[:-1]:
            x = part(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return {"out": self.out(x)}


class Generator(nn.Sequential):
    """DCGAN's, of 64 x 64 pixels."""

    def __init__(self, noise=100, width=64):
        sizes = [noise, 8 * width, 4 * width, 2 * width, width]
        parts = []
        for k, (a, b) in enumerate(zip(sizes, sizes[1:])):
            parts += [
                nn.ConvTranspose2d(a, b, 4, 2 if k else 1, 1 if k else 0, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(True),
            ]
        super().__init__(*parts, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


class PlainViT(nn.Module):
    """A transformer of pictures: patches, a token for the class, blocks of PyTorch's own."""

    def __init__(self, size, patch, hidden, heads, blocks, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, stride=patch)
        self.first = nn.Parameter(torch.zeros(1, 1, hidden))
        self.places = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, hidden))
        self.blocks = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(
                hidden, heads, 4 * hidden, 0.0, "gelu", batch_first=True, norm_first=True
            ),
            blocks,
            enable_nested_tensor=False,
        )
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Diffusion(nn.Module):
    """Group norms, SiLU, attention of pixels and a time that every block gets: as in denoising."""

    def __init__(self, width=128, groups=8, size=16):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(groups, width) for _ in range(4))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.down, self.qkv = nn.AvgPool2d(2), nn.Conv2d(width, 3 * width, 1)
        self.proj, self.last = nn.Conv2d(width, width, 1), nn.Conv2d(2 * width, 3, 3, padding=1)
        self.width = width

    def attend(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).reshape(b, 3, c, h * w).unbind(1)
        scores = F.softmax(torch.bmm(q.transpose(1, 2), k) / math.sqrt(c), -1)
        return x + self.proj(torch.bmm(v, scores.transpose(1, 2)).reshape(b, c, h, w))

    def forward(self, x, time):
        half = torch.exp(-math.log(10000.0) * torch.arange(self.width // 2) / (self.width // 2))
        angles = time[:, None] * half
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        kept = x = self.first(x)
        for k in range(2):
            x = x + self.convs[k](F.silu(self.norms[k](x))) + t
        x = self.attend(self.down(x))
        for k in range(2, 4):
            x = x + self.convs[k](F.silu(self.norms[k](x))) + t
        return self.last(torch.cat([kept, F.interpolate(x, scale_factor=2.0, mode="nearest")], 1))


# ---- sequences, graphs, several losses


class Recurrent(nn.Module):
    """A language model; ``which``: nn.LSTM or nn.GRU."""

    def __init__(self, which, words, width, hidden, layers, both=False):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.rnn = which(width, hidden, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(hidden * (1 + both), words)

    def forward(self, tokens):
        return self.head(self.rnn(self.words(tokens))[0]).transpose(1, 2)


def of_words(y):
    return F.cross_entropy(y, torch.zeros((y.shape[0], y.shape[2]), dtype=torch.long))


def recurrent(which, both=False):
    def make(words, width, hidden, layers, batch, length):
        model = Recurrent(which, words, width, hidden, layers, both)
        return model, (torch.randint(words, (batch, length)),), of_words

    return (
        lambda: make(33278, 650, 650, 2, 20, 35),
        lambda: make(100, 32, 48, 2, 4, 9),
    )


class Graph(nn.Module):
    """Messages along the edges of a mesh that all samples have: gathered, computed, summed."""

    def __init__(self, width, inner, layers, classes, nodes, edges):
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("ends", torch.randint(nodes, (2, edges)))
        sizes = [width, *[inner] * (layers - 1)]
        self.edge = nn.ModuleList(nn.Linear(2 * a, inner) for a in sizes)
        self.node = nn.ModuleList(nn.Linear(a + inner, inner) for a in sizes)
        self.norm = nn.ModuleList(nn.LayerNorm(inner) for a in sizes)
        self.head = nn.Linear(inner, classes)

    def forward(self, x):
        begin, end = self.ends[0], self.ends[1]
        for edge, node, norm in zip(self.edge, self.node, self.norm):
            message = F.relu(edge(torch.cat([x[:, begin], x[:, end]], -1)))
            sums = torch.zeros(x.shape[0], x.shape[1], message.shape[2])
            sums = sums.index_add(1, end, message)
            x = norm(F.relu(node(torch.cat([x, sums], -1))))
        return self.head(x)


def graph(width, inner, layers, nodes, edges, batch):
    return lambda: (
        Graph(width, inner, layers, 40, nodes, edges),
        (torch.randn(batch, nodes, width),),
        mean,
    )


class Translation(nn.Module):
    """Encoder and decoder; one table of words for both and for the end."""

    def __init__(self, words, hidden, heads, layers, length):
        super().__init__()
        self.words, self.places = nn.Embedding(words, hidden), nn.Embedding(length, hidden)
        self.both = nn.Transformer(hidden, heads, layers, layers, 4 * hidden, batch_first=True)
        self.head = nn.Linear(hidden, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, source, target):
        def of(tokens):
            return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))

        n = target.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        return self.head(self.both(of(source), of(target), tgt_mask=mask)).transpose(1, 2)


def translation_of(words, hidden, heads, layers, batch, length):
    return lambda: (
        Translation(words, hidden, heads, layers, length),
        (torch.randint(words, (batch, length)), torch.randint(words, (batch, length))),
        of_words,
    )


class Multitask(nn.Module):
    """A frozen stem; a body that two heads and their losses use; a layer that gets no gradient."""

    def __init__(self, width, inner):
        super().__init__()
        self.stem, self.body = nn.Linear(width, inner), nn.Linear(inner, inner)
        self.labels, self.value = nn.Linear(inner, 10), nn.Linear(inner, 1)
        self.unused = nn.Linear(3, 3)
        self.stem.requires_grad_(False)

    def forward(self, x):
        x = torch.relu(self.body(torch.relu(self.stem(x))))
        return self.labels(x), self.value(x)


def both_losses(output):
    labels, value = output
    return F.cross_entropy(labels, torch.zeros(labels.shape[0], dtype=torch.long)) + (
        F.binary_cross_entropy_with_logits(value, torch.ones_like(value))
    )


def bert_of(layers, hidden, heads, words, batch, length):
    def make():
        model = plain.BertForQuestionAnswering(layers, hidden, heads, words)
        inputs = {
            "tokens": torch.randint(words, (batch, length)),
            "mask": torch.zeros(batch, 1, 1, length),
            "begin": torch.zeros(batch, dtype=torch.long),
            "end": torch.zeros(batch, dtype=torch.long),
        }
        return model, inputs, plain.own

    return make


def of_tokens(make, batch, length, words):
    return lambda: (make(), (torch.randint(words, (batch, length)),), plain.own)


def gpt2_of(checkpoint=0):
    return (
        of_tokens(lambda: plain.Gpt2(12, 768, 12, 1024, 50257, checkpoint), 8, 1024, 50257),
        of_tokens(lambda: plain.Gpt2(3, 64, 4, 32, 100, checkpoint), 4, 32, 100),
    )


def llama(full, batch, length, tied):
    return (
        of_tokens(lambda: plain.Llama(*full, tied=tied), batch, length, 128256),
        of_tokens(lambda: plain.Llama(2, 64, 160, 4, 2, tied, 100), 4, 32, 100),
    )


ZOO = {
    "unet": Entry(
        lambda: (UNet(), (torch.randn(8, 3, 256, 256),), segmented),
        lambda: (UNet(8, 3), (torch.randn(2, 3, 32, 32),), segmented),
        "U-Net",
    ),
    "dcgan_generator": Entry(
        lambda: (Generator(), (torch.randn(128, 100, 1, 1),), mean),
        lambda: (Generator(8, 8), (torch.randn(2, 8, 1, 1),), mean),
        "a GAN's generator",
    ),
    "diffusion": Entry(
        lambda: (Diffusion(256, 32), (torch.randn(16, 3, 32, 32), torch.randn(16)), mean),
        lambda: (Diffusion(16, 4), (torch.randn(2, 3, 8, 8), torch.randn(2)), mean),
        "denoising, with attention of pixels",
    ),
    "lstm": Entry(*recurrent(nn.LSTM), kind="LSTM"),
    "gru": Entry(*recurrent(nn.GRU, both=True), kind="GRU, in both directions"),
    "gnn": Entry(
        graph(128, 256, 6, 10000, 60000, 4), graph(12, 24, 3, 20, 50, 3), "GNN in plain PyTorch"
    ),
    "bert": Entry(
        bert_of(12, 768, 12, 30522, 12, 384), bert_of(2, 64, 4, 100, 3, 24), "encoder; two losses"
    ),
    "gpt2": Entry(*gpt2_of(), kind="decoder, tied"),
    "gpt2_checkpointed": Entry(*gpt2_of(1), kind="decoder, tied, with checkpointing"),
    "gpt2_checkpointed_without_reentry": Entry(*gpt2_of(2), kind="the same without reentry"),
    "translation": Entry(
        translation_of(37000, 512, 8, 6, 32, 128), translation_of(100, 32, 4, 2, 3, 12),
        "encoder-decoder, tied three times",
    ),
    "vit": Entry(
        lambda: (PlainViT(224, 16, 384, 6, 12), (torch.randn(64, 3, 224, 224),), None),
        lambda: (PlainViT(32, 8, 48, 4, 3, 10), (torch.randn(2, 3, 32, 32),), None),
        "ViT-like",
    ),
    "llama_1b": Entry(*llama((16, 2048, 8192, 32, 8), 4, 2048, True), kind="decoder, tied"),
    "llama_8b": Entry(*llama((32, 4096, 14336, 32, 8), 1, 4096, False), kind="decoder, untied"),
    "multitask": Entry(
        lambda: (Multitask(2048, 4096), (torch.randn(64, 2048),), both_losses),
        lambda: (Multitask(16, 24), (torch.randn(5, 16),), both_losses),
        "two losses, a frozen part, an unused one",
        "find_unused_parameters",
    ),
}  # fmt: skip
if HAS_TORCHVISION:
    for _name, _more in {
        "alexnet": {},
        "convnext_tiny": {},
        "deeplabv3_resnet50": {"batch": 4, "size": 513, "loss": segmented},
        "densenet121": {},
        "efficientnet_b0": {},
        "efficientnet_v2_s": {},
        "googlenet": {"loss": auxiliary, "aux_logits": True},
        "inception_v3": {"size": 299, "loss": auxiliary, "small": 299, "aux_logits": True},
        "mnasnet1_0": {},
        "mobilenet_v2": {},
        "mobilenet_v3_large": {},
        "regnet_y_400mf": {},
        "resnet50": {},
        "resnext50_32x4d": {},
        "shufflenet_v2_x1_0": {},
        "squeezenet1_1": {},
        "swin_t": {},
        "swin_v2_t": {},
        "vgg16_bn": {"small": 32},
        "vit_b_16": {},
        "wide_resnet50_2": {},
    }.items():
        ZOO[_name] = Entry(*vision(_name, **_more), kind="torchvision")  # type: ignore[arg-type]
    ZOO["vit_b_16"] = Entry(
        vision("vit_b_16", image_size=224)[0], vision("vit_b_16", small=64, image_size=64)[1],
        "torchvision",
    )  # fmt: skip
    ZOO["resnet50_frozen"] = Entry(frozen(32, 224), frozen(2, 64), "torchvision, half frozen")
    ZOO["r3d_18"] = Entry(video(16, 112, 8), video(4, 32, 2), "torchvision, video")


def _factory(name):
    def make():
        return ZOO[name].full()

    return make


globals().update({_name: _factory(_name) for _name in ZOO})
