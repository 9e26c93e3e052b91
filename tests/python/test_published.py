"""The described workloads against modules: the published definitions written once more with
torch.nn, by other means, and trained for one step. Names and shapes of parameters in order of
registration, the order in which gradients arrive, and what each convolution and linear layer
computes.

Run: /usr/bin/python3 -m unittest tests/python/test_published.py   (PyTorch; a minute)
"""

from __future__ import annotations

import importlib.util
import sys
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location(
    "describe_models", ROOT / "tools" / "python" / "describe_models.py"
)
assert SPEC is not None and SPEC.loader is not None
describe = importlib.util.module_from_spec(SPEC)
sys.modules["describe_models"] = describe
SPEC.loader.exec_module(describe)


def conv(a: int, b: int, k: int, stride: int = 1, groups: int = 1, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(a, b, k, stride, (k - 1) // 2, groups=groups, bias=bias)


# --- images


class ResNeXtBlock(nn.Module):
    def __init__(self, c_in: int, planes: int, stride: int, groups: int, base: int) -> None:
        super().__init__()
        width = planes * base // 64 * groups
        self.conv1, self.bn1 = conv(c_in, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride, groups), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * planes, 1), nn.BatchNorm2d(4 * planes)
        self.downsample = (
            nn.Sequential(conv(c_in, 4 * planes, 1, stride), nn.BatchNorm2d(4 * planes))
            if stride > 1 or c_in != 4 * planes
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += self.downsample(x) if self.downsample else x
        return F.relu(y, inplace=True)


class ResNeXt(nn.Module):
    def __init__(self, blocks: list[int], groups: int, base: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, 2), nn.BatchNorm2d(64)
        channels = 64
        for i, n in enumerate(blocks):
            stage = []
            for j in range(n):
                stride = 2 if i > 0 and j == 0 else 1
                stage.append(ResNeXtBlock(channels, 64 << i, stride, groups, base))
                channels = 256 << i
            setattr(self, f"layer{i + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for i in range(4):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


class DenseLayer(nn.Module):
    def __init__(self, c_in: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(c_in), conv(c_in, 128, 1)
        self.norm2, self.conv2 = nn.BatchNorm2d(128), conv(128, 32, 3)

    def forward(self, before: list[Tensor]) -> Tensor:
        x = self.conv1(F.relu(self.norm1(torch.cat(before, 1))))
        return self.conv2(F.relu(self.norm2(x)))


class DenseBlock(nn.ModuleDict):
    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return torch.cat(features, 1)


def densenet() -> nn.Module:
    features = nn.Sequential()
    features.add_module("conv0", conv(3, 64, 7, 2))
    features.add_module("norm0", nn.BatchNorm2d(64))
    features.add_module("relu0", nn.ReLU())
    features.add_module("pool0", nn.MaxPool2d(3, 2, 1))
    c = 64
    for i, n in enumerate((6, 12, 24, 16), 1):
        layers = {f"denselayer{j + 1}": DenseLayer(c + 32 * j) for j in range(n)}
        features.add_module(f"denseblock{i}", DenseBlock(layers))
        c += 32 * n
        if i < 4:
            transition = nn.Sequential()
            transition.add_module("norm", nn.BatchNorm2d(c))
            transition.add_module("relu", nn.ReLU())
            transition.add_module("conv", conv(c, c // 2, 1))
            transition.add_module("pool", nn.AvgPool2d(2))
            features.add_module(f"transition{i}", transition)
            c //= 2
    features.add_module("norm5", nn.BatchNorm2d(c))
    whole = nn.Sequential()
    whole.add_module("features", features)
    whole.add_module("pool", nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    whole.add_module("classifier", nn.Linear(c, 1000))
    return whole


def conv_bn(a: int, b: int, k: int, stride: int = 1, groups: int = 1, act: bool = True) -> Any:
    layers = [conv(a, b, k, stride, groups), nn.BatchNorm2d(b)]
    return nn.Sequential(*layers, *([nn.SiLU(inplace=True)] if act else []))


class Squeeze(nn.Module):
    def __init__(self, c: int, squeezed: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, squeezed, 1), nn.Conv2d(squeezed, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        s = self.fc2(F.silu(self.fc1(F.adaptive_avg_pool2d(x, 1)), inplace=True))
        return torch.sigmoid(s) * x


def keep_some(x: Tensor) -> Tensor:
    return x * torch.empty(x.shape[0], 1, 1, 1).bernoulli_(0.9).div_(0.9)


class MBConv(nn.Module):
    def __init__(self, a: int, b: int, k: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = a * expand
        self.block = nn.Sequential(
            *([conv_bn(a, wide, 1)] if expand > 1 else []),
            conv_bn(wide, wide, k, stride, wide),
            Squeeze(wide, a // 4),
            conv_bn(wide, b, 1, act=False),
        )
        self.residual = stride == 1 and a == b

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(x)
        return keep_some(y) + x if self.residual else y


def efficientnet() -> nn.Module:
    stages: list[nn.Module] = [conv_bn(3, 32, 3, 2)]
    a = 32
    for expand, k, stride, b, n in [
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ]:
        blocks = []
        for i in range(n):
            blocks.append(MBConv(a, b, k, stride if i == 0 else 1, expand))
            a = b
        stages.append(nn.Sequential(*blocks))
    stages.append(conv_bn(320, 1280, 1))
    whole = nn.Sequential()
    whole.add_module("features", nn.Sequential(*stages))
    whole.add_module("pool", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    whole.add_module("classifier", nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000)))
    return whole


class Move(nn.Module):
    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(*self.order)


class Norm2d(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            conv(c, c, 7, groups=c, bias=True),
            Move(0, 2, 3, 1),
            nn.LayerNorm(c),
            nn.Linear(c, 4 * c),
            nn.GELU(),
            nn.Linear(4 * c, c),
            Move(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(torch.ones(c, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return keep_some(self.layer_scale * self.block(x)) + x


def convnext() -> nn.Module:
    stages: list[nn.Module] = [nn.Sequential(nn.Conv2d(3, 96, 4, 4), Norm2d(96))]
    for i, n in enumerate([3, 3, 9, 3]):
        c = 96 << i
        if i:
            stages.append(nn.Sequential(Norm2d(c // 2), nn.Conv2d(c // 2, c, 2, 2)))
        stages.append(nn.Sequential(*[ConvNeXtBlock(c) for _ in range(n)]))
    whole = nn.Sequential()
    whole.add_module("features", nn.Sequential(*stages))
    whole.add_module("pool", nn.AdaptiveAvgPool2d(1))
    last = nn.Sequential(Norm2d(768), nn.Flatten(1), nn.Linear(768, 1000))
    whole.add_module("classifier", last)
    return whole


class EncoderLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden)
        self.self_attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden),
            nn.GELU(),
            nn.Dropout(0.0),
            nn.Linear(4 * hidden, hidden),
            nn.Dropout(0.0),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = self.self_attention(y, y, y, need_weights=False)[0] + x
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, 197, hidden))
        self.layers = nn.Sequential()
        for i in range(layers):
            self.layers.add_module(f"encoder_layer_{i}", EncoderLayer(hidden, heads))
        self.ln = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(x + self.pos_embedding))


class ViT(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, hidden, 16, 16)
        self.class_token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.encoder = Encoder(layers, hidden, heads)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(hidden, 1000))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        return self.heads(self.encoder(x)[:, 0])


# --- text


class RMSNorm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rotate(x: Tensor) -> Tensor:
    angle = torch.outer(torch.arange(x.shape[2]), torch.ones(x.shape[3]))
    a, b = x.chunk(2, -1)
    return x * angle.cos() + torch.cat((-b, a), -1) * angle.sin()


class LlamaAttention(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, hidden // 4, bias=False)
        self.v_proj = nn.Linear(hidden, hidden // 4, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = heads_of(self.q_proj(x), 32)
        k = heads_of(self.k_proj(x), 8)
        v = heads_of(self.v_proj(x), 8)
        q, k = rotate(q), rotate(k)
        k, v = (t[:, :, None].expand(-1, -1, 4, -1, -1).flatten(1, 2) for t in (k, v))
        scores = (q @ k.transpose(2, 3) * 0.1).softmax(-1)
        return self.o_proj((scores @ v).transpose(1, 2).flatten(2))


class LlamaMLP(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(hidden), LlamaMLP(hidden, inner)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(hidden), RMSNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, layers: int, hidden: int, inner: int, tied: bool) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(128256, hidden)
        self.model.layers = nn.Sequential(*[LlamaLayer(hidden, inner) for _ in range(layers)])
        self.model.norm = RMSNorm(hidden)
        self.lm_head = nn.Linear(hidden, 128256, bias=False)
        if tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.lm_head(self.model.norm(self.model.layers(self.model.embed_tokens(words))))


class T5Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, table: bool) -> None:
        super().__init__()
        self.heads = heads
        for name in "qkvo":
            setattr(self, name, nn.Linear(hidden, hidden, bias=False))
        if table:
            self.relative_attention_bias = nn.Embedding(32, heads)

    def forward(self, x: Tensor, of: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        q = heads_of(self.q(x), self.heads)
        k = heads_of(self.k(of), self.heads)
        v = heads_of(self.v(of), self.heads)
        scores = q @ k.transpose(2, 3)
        if bias is None:
            bias = torch.zeros(1, self.heads, *scores.shape[2:])
            if hasattr(self, "relative_attention_bias"):
                pairs = torch.arange(scores.shape[2] * scores.shape[3]) % 32
                bias = self.relative_attention_bias(pairs.view(scores.shape[2:]))
                bias = bias.permute(2, 0, 1)[None]
            bias = bias + torch.zeros(len(x), 1, 1, scores.shape[3])
        p = F.dropout((scores + bias).softmax(-1), 0.1)
        return self.o((p @ v).transpose(1, 2).flatten(2)), bias


class T5Layer(nn.Module):
    """One of SelfAttention, EncDecAttention and DenseReluDense, behind a norm."""

    def __init__(self, name: str, inside: nn.Module, hidden: int) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, inside)
        self.layer_norm = RMSNorm(hidden)


def feed_forward(hidden: int) -> nn.Module:
    inside = nn.Sequential()
    inside.add_module("wi", nn.Linear(hidden, 4 * hidden, bias=False))
    inside.add_module("act", nn.Sequential(nn.ReLU(), nn.Dropout(0.1)))
    inside.add_module("wo", nn.Linear(4 * hidden, hidden, bias=False))
    return inside


class T5Stack(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, decoder: bool) -> None:
        super().__init__()
        self.block = nn.ModuleList()
        for i in range(layers):
            parts = [T5Layer("SelfAttention", T5Attention(hidden, heads, i == 0), hidden)]
            if decoder:
                parts.append(T5Layer("EncDecAttention", T5Attention(hidden, heads, False), hidden))
            parts.append(T5Layer("DenseReluDense", feed_forward(hidden), hidden))
            block = nn.Module()
            block.layer = nn.ModuleList(parts)
            self.block.append(block)
        self.final_layer_norm = RMSNorm(hidden)

    def forward(self, x: Tensor, encoded: Tensor | None) -> Tensor:
        biases: dict[str, Tensor] = {}
        for block in self.block:
            for part in block.layer:
                y, inside = part.layer_norm(x), getattr(part, part.name)
                if part.name == "DenseReluDense":
                    y = inside(y)
                else:
                    of = encoded if part.name == "EncDecAttention" else y
                    y, biases[part.name] = inside(y, of, biases.get(part.name))
                x = x + F.dropout(y, 0.1)
        return F.dropout(self.final_layer_norm(x), 0.1)


class T5(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(32128, hidden)
        self.encoder = T5Stack(layers, hidden, heads, False)
        self.decoder = T5Stack(layers, hidden, heads, True)
        self.lm_head = nn.Linear(hidden, 32128, bias=False)
        self.lm_head.weight = self.shared.weight

    def forward(self, words: Tensor) -> Tensor:
        encoded = self.encoder(self.shared(words), None)
        return self.lm_head(self.decoder(self.shared(words[:, :128]), encoded) * 0.1)


class BertLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention = nn.Module()
        self.attention.self = nn.Module()
        for name in ("query", "key", "value"):
            self.attention.self.add_module(name, nn.Linear(hidden, hidden))
        self.attention.output = nn.Module()
        self.attention.output.dense = nn.Linear(hidden, hidden)
        self.attention.output.LayerNorm = nn.LayerNorm(hidden)
        self.intermediate, self.output = nn.Module(), nn.Module()
        self.intermediate.dense = nn.Linear(hidden, 4 * hidden)
        self.output.dense = nn.Linear(4 * hidden, hidden)
        self.output.LayerNorm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        a = self.attention.self
        q, k, v = (heads_of(f(x), self.heads) for f in (a.query, a.key, a.value))
        y = ((q @ k.transpose(2, 3)).softmax(-1) @ v).transpose(1, 2).flatten(2)
        o = self.attention.output
        x = o.LayerNorm(o.dense(y) + x)
        y = self.output.dense(F.gelu(self.intermediate.dense(x)))
        return self.output.LayerNorm(y + x)


class BertSquad(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.bert = nn.Module()
        e = self.bert.embeddings = nn.Module()
        e.word_embeddings = nn.Embedding(30522, hidden)
        e.position_embeddings = nn.Embedding(512, hidden)
        e.token_type_embeddings = nn.Embedding(2, hidden)
        e.LayerNorm = nn.LayerNorm(hidden)
        self.bert.encoder = nn.Module()
        self.bert.encoder.layer = nn.Sequential(*[BertLayer(hidden, heads) for _ in range(layers)])
        self.qa_outputs = nn.Linear(hidden, 2)

    def forward(self, words: Tensor) -> Tensor:
        e = self.bert.embeddings
        x = e.word_embeddings(words)
        types, positions = torch.zeros_like(words), torch.arange(words.shape[1])[None]
        x = x + e.token_type_embeddings(types)
        x = e.LayerNorm(x + e.position_embeddings(positions))
        return self.qa_outputs(self.bert.encoder.layer(x))


# --- one step


def trained(module: nn.Module, data: Tensor) -> tuple[list[str], dict[str, dict[str, int]]]:
    """Names in the order in which gradients arrive, and what convolutions and Linears computed."""
    arrival: list[str] = []
    computed: dict[str, dict[str, int]] = {}
    hooks = []
    for name, p in module.named_parameters():
        node = p.expand_as(p).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_, name=name: arrival.append(name))
        hooks.append(node)

    def note(name: str) -> Callable[..., None]:
        def hook(m: Any, inputs: Any, output: Any) -> None:
            x = inputs[0]
            if isinstance(m, nn.Conv2d):
                computed[name] = {
                    "channels": m.in_channels,
                    "size": x.shape[-1],
                    "filters": m.out_channels,
                    "kernel": m.kernel_size[0],
                    "out": output.shape[-1],
                    "groups": m.groups,
                }
            else:
                computed[name] = {
                    "rows": x[0].numel() // x.shape[-1],
                    "inputs": m.in_features,
                    "outputs": m.out_features,
                }

        return hook

    for name, m in module.named_modules():
        if type(m) in (nn.Conv2d, nn.Linear):
            m.register_forward_hook(note(name))
    module.train()
    module(data).sum().backward()
    return arrival, computed


class Published(unittest.TestCase):
    def compare(self, model: Any, module: nn.Module, data: Tensor) -> None:
        self.assertEqual(
            [(t.name, list(t.shape)) for t in model.tensors],
            [(name, list(p.shape)) for name, p in module.named_parameters()],
        )
        arrival, computed = trained(module, data)
        self.assertEqual(model.arrival(), arrival)
        ops = {x.name: dict(x.op) for x in model.layers if x.op.get("kind") in ("conv", "linear")}
        attention = [name for name in ops if name.endswith(".in_proj")]  # not called as a module
        attention += [name.replace(".in_proj", ".out_proj") for name in attention]
        self.assertEqual(set(ops) - set(attention), set(computed))
        for name, does in computed.items():
            says = {"groups": 1, **ops[name]} if "kernel" in does else ops[name]
            says = {k: describe.at_length(v, data.shape[-1]) for k, v in says.items() if k in does}
            self.assertEqual(says, does, name)

    def test_images(self) -> None:
        images = torch.zeros(1, 3, 224, 224)
        for model, module in [
            (describe.resnet(50, 32, 4), ResNeXt([3, 4, 6, 3], 32, 4)),
            (describe.densenet121(), densenet()),
            (describe.efficientnet_b0(), efficientnet()),
            (describe.convnext_tiny(), convnext()),
            (describe.vit("vit", 3, 96, 4), ViT(3, 96, 4)),
        ]:
            with self.subTest(model.name):
                self.compare(model, module, images)

    def test_text(self) -> None:
        """Few and narrow layers of each; test_describe.py counts the parameters of all."""
        words = torch.arange(160)[None]
        for model, module in [
            (describe.llama("1", 3, 64, 256, 160, 2, True), Llama(3, 64, 256, True)),
            (describe.llama("8", 3, 64, 224, 160, 2, False), Llama(3, 64, 224, False)),
            (describe.t5("t5", 3, 64, 4), T5(3, 64, 4)),
            (describe.bert("b", 3, 64, 4, 160, 2, squad=True), BertSquad(3, 64, 4)),
        ]:
            with self.subTest(model.name):
                self.compare(model, module, words)

    def test_silu_in_place_keeps_a_copy(self) -> None:
        x = torch.zeros(4, requires_grad=True) * 1
        with torch.profiler.profile() as p:
            F.silu(x, inplace=True)
        self.assertIn("aten::clone", [e.key for e in p.key_averages()])


if __name__ == "__main__":
    unittest.main()
