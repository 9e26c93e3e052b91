"""What PyTorch saves for backward beside `saves` of the described workloads: hooks on eight
torchvision models, and on blocks of GPT-2 (with and without a cache of keys and values, and a fused
attention) and Llama in plain PyTorch, executed in fp32 on the CPU.

    /usr/bin/python3 tests/python/saved_tensors.py

Per sample: the difference of two batches, which leaves out what does not grow with them. A tensor
that several operations save counts once; parameters and buffers do not. Exit 77 (skipped) where
torch or torchvision is missing.
"""
import copy
import json
import sys
from pathlib import Path

try:
    import torch
    import torchvision
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/python"), str(ROOT / "tests/python")]
import describe_models  # noqa: E402
from executed_steps import quick_weights  # noqa: E402

MODELS = (
    "resnet18",
    "resnet50",
    "resnext50-32x4d",
    "vgg16",
    "densenet121",
    "efficientnet-b0",
    "convnext-tiny",
    "vit-b-16",
)
LIMIT = 0.005


def storage_of(tensor):
    return tensor.storage().data_ptr()


def saved_bytes(model, run):
    """Of run(), but the model's own tensors."""
    own = {storage_of(t) for t in [*model.parameters(), *model.buffers()]}
    seen, alive = {}, []

    def pack(tensor):
        alive.append(tensor)  # so that no address is used twice
        if storage_of(tensor) not in own:
            seen[storage_of(tensor)] = tensor.storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        alive.append(run())
    return sum(seen.values())


def of_images(model, batch):
    images, labels = torch.randn(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)
    return saved_bytes(model, lambda: torch.nn.functional.cross_entropy(model(images), labels))


def executed(name):
    with quick_weights():
        model = getattr(torchvision.models, name.replace("-", "_"))().train()
    return of_images(model, 2) - of_images(model, 1)


# ---- blocks of transformers, as transformers' modeling_gpt2.py and modeling_llama.py compute them

BATCH, TOKENS, HIDDEN, HEADS, GROUPS, INNER = 2, 96, 64, 4, 2, 160
DIM = HIDDEN // HEADS


def attend(q, k, v, mask):
    scores = torch.matmul(q, k.transpose(2, 3)) / DIM**0.5
    scores = torch.where(mask, scores, torch.full([], torch.finfo(scores.dtype).min))
    weights = torch.nn.functional.softmax(scores, dim=-1)
    out = torch.matmul(weights, v).transpose(1, 2)
    return out.reshape(BATCH, TOKENS, HIDDEN)


class FusedAttention(torch.autograd.Function):
    """What a fused kernel saves: its three inputs, its output and a number a row. Forward alone."""

    @staticmethod
    def forward(ctx, q, k, v, mask):
        out = attend(q, k, v, mask)
        ctx.save_for_backward(q, k, v, out, torch.zeros(BATCH, HEADS, TOKENS))
        return out


def heads_of(x, count):
    return x.view(BATCH, TOKENS, count, DIM).transpose(1, 2)


class Gpt2Block(torch.nn.Module):
    def __init__(self, cached=False, fused=False):
        super().__init__()
        self.cached, self.attend = cached, FusedAttention.apply if fused else attend
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(HIDDEN), torch.nn.LayerNorm(HIDDEN)
        self.qkv = torch.nn.Linear(HIDDEN, 3 * HIDDEN)
        self.proj = torch.nn.Linear(HIDDEN, HIDDEN)
        self.up = torch.nn.Linear(HIDDEN, 4 * HIDDEN)
        self.down = torch.nn.Linear(4 * HIDDEN, HIDDEN)
        self.register_buffer("mask", torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril())

    def forward(self, x):
        q, k, v = (heads_of(t, HEADS) for t in self.qkv(self.ln_1(x)).split(HIDDEN, dim=2))
        if self.cached:
            k, v = (torch.cat([torch.tensor([]), x], dim=-2) for x in (k, v))
        x = x + self.proj(self.attend(q, k, v, self.mask))
        up = self.up(self.ln_2(x))
        inner = 0.7978845608 * (up + 0.044715 * torch.pow(up, 3.0))
        return x + self.down(0.5 * up * (1.0 + torch.tanh(inner)))


class RmsNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        y = x.to(torch.float32)
        # Not mean, which in 1.13 keeps its input.
        y = y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) / HIDDEN + 1e-6)
        return self.weight * y.to(x.dtype)


class LlamaBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()

        def linear(n_in, n_out):
            return torch.nn.Linear(n_in, n_out, bias=False)

        self.norm_1, self.norm_2 = RmsNorm(), RmsNorm()
        self.q, self.o = linear(HIDDEN, HIDDEN), linear(HIDDEN, HIDDEN)
        self.k, self.v = linear(HIDDEN, GROUPS * DIM), linear(HIDDEN, GROUPS * DIM)
        self.gate, self.up = linear(HIDDEN, INNER), linear(HIDDEN, INNER)
        self.down = linear(INNER, HIDDEN)
        self.register_buffer("mask", torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril())
        self.register_buffer("cos", torch.randn(TOKENS, DIM))
        self.register_buffer("sin", torch.randn(TOKENS, DIM))

    def rotated(self, x):
        half = torch.cat((-x[..., DIM // 2 :], x[..., : DIM // 2]), dim=-1)
        return x * self.cos + half * self.sin

    def repeated(self, x):
        x = x[:, :, None].expand(BATCH, GROUPS, HEADS // GROUPS, TOKENS, DIM)
        return x.reshape(BATCH, HEADS, TOKENS, DIM)

    def forward(self, x):
        y = self.norm_1(x)
        q, k = self.rotated(heads_of(self.q(y), HEADS)), self.rotated(heads_of(self.k(y), GROUPS))
        v = heads_of(self.v(y), GROUPS)
        x = x + self.o(attend(q, self.repeated(k), self.repeated(v), self.mask))
        y = self.norm_2(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


def of_blocks(block, count):
    blocks = torch.nn.Sequential(*(block() for _ in range(count)))
    x = torch.randn(BATCH, TOKENS, HIDDEN, requires_grad=True)
    return saved_bytes(blocks, lambda: blocks(x))


def block_of_gpt2(cached=False):
    m = describe_models.gpt2("m", 2, HIDDEN, HEADS, TOKENS, BATCH, dropout=False, cached=cached)
    return [x for x in m.layers if x.name.startswith("transformer.h.1.")]


def block_of_llama():
    sizes = {"vocabulary": 10, "heads": HEADS, "groups": GROUPS}
    m = describe_models.llama("m", 2, HIDDEN, INNER, TOKENS, BATCH, False, **sizes)
    return [x for x in m.layers if x.name.startswith("model.layers.1.")]


def off_blocks(name, layers, block, fused=False):
    """A block more or less, of a sample."""
    seen = (of_blocks(block, 3) - of_blocks(block, 2)) / BATCH
    saves = [x.saves for x in layers]
    if fused:
        saves = [x.saves_fused or x.saves for x in layers if x.saves_fused or not inside(x)]
    return off(name, sum(describe_models.at_length(s.fp32, TOKENS) for s in saves), seen)


def inside(layer):
    return layer.op.get("attention", False)


def described(document):
    return sum(layer["saves"][0] for layer in document["layers"])


def off(name, said, seen):
    error = said / seen - 1
    print(
        f"{name:28s} executed {seen / 2**20:8.2f} MiB a sample, described "
        f"{said / 2**20:8.2f}, {100 * error:+.2f} %",
        flush=True,
    )
    return abs(error) > LIMIT


def main():
    wrong, first = [], None
    for name in MODELS:
        document = json.loads((ROOT / f"workloads/{name}.json").read_text(encoding="utf-8"))
        seen = executed(name)
        if off(name, described(document), seen):
            wrong.append(name)
        first = first or (name, document, seen)
    for cached in (False, True):
        for fused in (False, True):
            name = "GPT-2's block" + ", cached" * cached + ", fused" * fused

            def block(cached=cached, fused=fused):
                return Gpt2Block(cached, fused)

            if off_blocks(name, block_of_gpt2(cached), block, fused):
                wrong.append(name)
    if off_blocks("Llama's block", block_of_llama(), LlamaBlock):
        wrong.append("Llama's block")
    # The check can fail: without what its largest layer saves, a model is off.
    name, document, seen = copy.deepcopy(first)
    max(document["layers"], key=lambda layer: layer["saves"][0])["saves"][0] = 0
    print("without one layer: ", end="")
    if not off(name, described(document), seen):
        wrong.append("a layer that was left out")
    for name in wrong:
        print(f"saved_tensors: {name}: more than {100 * LIMIT:.1f} % off", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
