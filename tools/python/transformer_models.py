"""Transformers for ``--factory``, from Hugging Face's library without any download: the published
configurations, with random weights.

    ddpsim_capture.py --factory transformer_models:bert_base_16 --device cuda --precision bf16 --out
    bert.json

The number is the batch, in sequences: of 128 tokens for BERT-base (masked language model), of 1,024
for GPT-2 small and Llama 3.2 1B (causal). Needs ``transformers``.
"""
from __future__ import annotations

import re
from typing import Any, Callable, Tuple

import torch
from torch import Tensor, nn


def bert_base(batch: int) -> Tuple[nn.Module, Any, Callable[..., Tensor], None]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig()
    tokens = torch.randint(0, config.vocab_size, (batch, 128))
    return Labelled(BertForMaskedLM(config)), (tokens,), loss_of, None


def gpt2_small(batch: int) -> Tuple[nn.Module, Any, Callable[..., Tensor], None]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config()
    tokens = torch.randint(0, config.vocab_size, (batch, 1024))
    return Labelled(GPT2LMHeadModel(config)), (tokens,), loss_of, None


def llama_1b(batch: int) -> Tuple[nn.Module, Any, Callable[..., Tensor], None]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        tie_word_embeddings=True,
        use_cache=False,
    )
    tokens = torch.randint(0, config.vocab_size, (batch, 1024))
    return Labelled(LlamaForCausalLM(config)), (tokens,), loss_of, None


class Labelled(nn.Module):
    """A language model that predicts its own input: its output is its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        loss: Tensor = self.model(input_ids=tokens, labels=tokens).loss
        return loss


def loss_of(output: Tensor) -> Tensor:
    return output


def checkpointed(make: Callable[[int], Any]) -> Callable[[int], Any]:
    """Activations of each block are computed again in backward."""

    def made(batch: int) -> Any:
        out = make(batch)
        out[0].model.gradient_checkpointing_enable()
        return out

    return made


def in_bf16(make: Callable[[int], Any]) -> Callable[[int], Any]:
    """Weights, gradients and optimizer state in bf16: no autocast, no master copy."""

    def made(batch: int) -> Any:
        out = make(batch)
        out[0].to(torch.bfloat16)
        return out

    return made


MODELS = {
    "bert_base": bert_base,
    "gpt2_small": gpt2_small,
    "llama_1b": llama_1b,
    "gpt2_small_ckpt": checkpointed(gpt2_small),
    "llama_1b_ckpt": checkpointed(llama_1b),
    "llama_1b_pure": in_bf16(llama_1b),
}


def __getattr__(name: str) -> Callable[[], Any]:
    found = re.fullmatch(r"([a-z0-9_]+)_(\d+)", name)
    if not found or found[1] not in MODELS:
        raise AttributeError(f"{name}: expected one of {', '.join(MODELS)}, then _ and the batch")
    return lambda: MODELS[found[1]](int(found[2]))
