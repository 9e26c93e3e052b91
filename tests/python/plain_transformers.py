"""GPT-2, BERT and Llama in plain PyTorch, with the parameters' names and the eager operations of
Hugging Face's transformers: factories for ``ddpsim_describe.py`` and its tests.

    ddpsim_describe.py --factory tests/python/plain_transformers.py:llama_8b --out llama.json
"""

import math

import torch
from torch import nn
import torch.utils.checkpoint  # noqa: F401
from torch.nn import functional as F


def attend(q, k, v, dropout, mask=None, add=None):
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, torch.full([], -3.4e38))
    if add is not None:
        scores = scores + add
    weights = dropout(F.softmax(scores, dim=-1))
    out = torch.matmul(weights, v).transpose(1, 2)
    return out.reshape(out.shape[0], out.shape[1], -1)


def heads_of(x, dim):
    return x.view(*x.shape[:2], -1, dim).transpose(1, 2)


class Loss(nn.Module):
    """Logits at every position against the tokens."""

    def forward(self, logits, tokens):
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))


# ---- GPT-2


class Conv1D(nn.Module):
    def __init__(self, n_out, n_in):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(n_in, n_out)), nn.Parameter(
            torch.zeros(n_out)
        )

    def forward(self, x):
        y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return y.view(*x.shape[:-1], -1)


class Gelu(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class Gpt2Attention(nn.Module):
    def __init__(self, hidden, heads, length):
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(3 * hidden, hidden), Conv1D(hidden, hidden)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.hidden, self.dim = hidden, hidden // heads
        self.mask = torch.ones(length, length, dtype=torch.bool).tril()

    def forward(self, x):
        q, k, v = (heads_of(t, self.dim) for t in self.c_attn(x).split(self.hidden, dim=2))
        return self.resid_dropout(self.c_proj(attend(q, k, v, self.attn_dropout, self.mask)))


class Gpt2Mlp(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(4 * hidden, hidden), Conv1D(hidden, 4 * hidden)
        self.act, self.dropout = Gelu(), nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


class Gpt2Block(nn.Module):
    def __init__(self, hidden, heads, length):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(hidden), Gpt2Attention(hidden, heads, length)
        self.ln_2, self.mlp = nn.LayerNorm(hidden), Gpt2Mlp(hidden)

    def forward(self, x):
        x = self.attn(self.ln_1(x)) + x
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, layers, hidden, heads, length, vocabulary=50257, checkpoint=False):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, hidden),
                "wpe": nn.Embedding(length, hidden),
                "drop": nn.Dropout(0.1),
                "h": nn.ModuleList([Gpt2Block(hidden, heads, length) for _ in range(layers)]),
                "ln_f": nn.LayerNorm(hidden),
            }
        )
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight
        self.loss, self.checkpoint = Loss(), checkpoint

    def forward(self, tokens):
        t = self.transformer
        positions = torch.arange(tokens.shape[1]).unsqueeze(0)
        x = t["drop"](t["wte"](tokens) + t["wpe"](positions))
        for block in t["h"]:
            if self.checkpoint:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.checkpoint == 1)
            else:
                x = block(x)
        return self.loss(self.lm_head(t["ln_f"](x)), tokens)


# ---- BERT


class BertSelf(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.dropout = nn.Linear(hidden, hidden), nn.Dropout(0.1)
        self.dim = hidden // heads

    def forward(self, x, mask):
        q = heads_of(self.query(x), self.dim)
        k, v = heads_of(self.key(x), self.dim), heads_of(self.value(x), self.dim)
        return attend(q, k, v, self.dropout, add=mask)


class BertOutput(nn.Module):
    def __init__(self, n_in, hidden):
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(n_in, hidden), nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, residual):
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class BertLayer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": BertSelf(hidden, heads), "output": BertOutput(hidden, hidden)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(hidden, 4 * hidden)})
        self.output = BertOutput(4 * hidden, hidden)

    def forward(self, x, mask):
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class BertForQuestionAnswering(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary=30522, length=512):
        super().__init__()
        self.bert = nn.ModuleDict(
            {
                "embeddings": nn.ModuleDict(
                    {
                        "word_embeddings": nn.Embedding(vocabulary, hidden, padding_idx=0),
                        "position_embeddings": nn.Embedding(length, hidden),
                        "token_type_embeddings": nn.Embedding(2, hidden),
                        "LayerNorm": nn.LayerNorm(hidden),
                        "dropout": nn.Dropout(0.1),
                    }
                ),
                "encoder": nn.ModuleDict(
                    {"layer": nn.ModuleList([BertLayer(hidden, heads) for _ in range(layers)])}
                ),
            }
        )
        self.qa_outputs = nn.Linear(hidden, 2)
        for name in ("position_ids", "token_type_ids"):
            self.bert["embeddings"].register_buffer(name, torch.zeros(1, length, dtype=torch.long))

    def forward(self, tokens, mask, begin, end):
        e = self.bert["embeddings"]
        n = tokens.shape[1]
        types = e.token_type_ids[:, :n].expand(*tokens.shape)
        x = e["word_embeddings"](tokens) + e["token_type_embeddings"](types)
        x = x + e["position_embeddings"](e.position_ids[:, :n])
        x = e["dropout"](e["LayerNorm"](x))
        for layer in self.bert["encoder"]["layer"]:
            x = layer(x, mask)
        logits = self.qa_outputs(x).split(1, dim=-1)
        losses = [
            F.cross_entropy(t.squeeze(-1).contiguous(), at) for t, at in zip(logits, (begin, end))
        ]
        return (losses[0] + losses[1]) / 2


# ---- Llama


class RmsNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


def rotated(x, cos, sin):
    half = torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)
    return x * cos + half * sin


class LlamaAttention(nn.Module):
    def __init__(self, hidden, heads, groups):
        super().__init__()
        self.dim, self.repeats = hidden // heads, heads // groups
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, groups * self.dim, bias=False)
        self.v_proj = nn.Linear(hidden, groups * self.dim, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def repeated(self, x):
        b, groups, n, dim = x.shape
        x = x[:, :, None].expand(b, groups, self.repeats, n, dim)
        return x.reshape(b, groups * self.repeats, n, dim)

    def forward(self, x, cos, sin, mask):
        q = rotated(heads_of(self.q_proj(x), self.dim), cos, sin)
        k = rotated(heads_of(self.k_proj(x), self.dim), cos, sin)
        v = heads_of(self.v_proj(x), self.dim)
        return self.o_proj(attend(q, self.repeated(k), self.repeated(v), lambda w: w, add=mask))


class LlamaMlp(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj, self.act_fn = nn.Linear(inner, hidden, bias=False), nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, hidden, inner, heads, groups):
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(hidden, heads, groups), LlamaMlp(hidden, inner)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(hidden), RmsNorm(hidden)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, layers, hidden, inner, heads, groups, tied, vocabulary=128256):
        super().__init__()
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(vocabulary, hidden),
                "layers": nn.ModuleList(
                    [LlamaBlock(hidden, inner, heads, groups) for _ in range(layers)]
                ),
                "norm": RmsNorm(hidden),
                "rotary_emb": nn.Module(),
            }
        )
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.model["embed_tokens"].weight
        self.loss, self.dim = Loss(), hidden // heads
        self.model["rotary_emb"].register_buffer("inv_freq", torch.ones(self.dim // 2))

    def forward(self, tokens):
        n = tokens.shape[1]
        cos, sin = torch.ones(n, self.dim), torch.ones(n, self.dim)
        mask = torch.full((n, n), -3.4e38).triu(1)
        x = self.model["embed_tokens"](tokens)
        for block in self.model["layers"]:
            x = block(x, cos, sin, mask)
        return self.loss(self.lm_head(self.model["norm"](x)), tokens)


# ---- factories


def tokens_of(batch, length, vocabulary):
    return torch.randint(vocabulary, (batch, length))


def own(loss):
    return loss


def adamw(model):
    return torch.optim.AdamW(model.parameters(), foreach=True)


def of_tokens(model, batch, length, vocabulary):
    return model, tokens_of(batch, length, vocabulary), own, adamw(model)


def gpt2_small():
    return of_tokens(Gpt2(12, 768, 12, 1024), 8, 1024, 50257)


def llama_1b():
    return of_tokens(Llama(16, 2048, 8192, 32, 8, True), 4, 2048, 128256)


def llama_8b():
    return of_tokens(Llama(32, 4096, 14336, 32, 8, False), 1, 4096, 128256)


def bert_squad():
    model = BertForQuestionAnswering(12, 768, 12)
    inputs = {
        "tokens": tokens_of(12, 384, 30522),
        "mask": torch.zeros(12, 1, 1, 384),
        "begin": torch.zeros(12, dtype=torch.long),
        "end": torch.zeros(12, dtype=torch.long),
    }
    return model, inputs, own, adamw(model)


def gpt2_tiny():
    return of_tokens(Gpt2(2, 64, 4, 32, 100), 4, 32, 100)


def gpt2_checkpointed():
    return of_tokens(Gpt2(3, 64, 4, 32, 100, checkpoint=1), 4, 32, 100)


def gpt2_checkpointed_without_reentry():
    return of_tokens(Gpt2(3, 64, 4, 32, 100, checkpoint=2), 4, 32, 100)


def llama_tiny():
    return of_tokens(Llama(2, 64, 160, 4, 2, False, 100), 4, 32, 100)
