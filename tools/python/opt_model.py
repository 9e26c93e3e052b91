"""A described workload of OPT, Hugging Face transformers models/opt/modeling_opt.py of 4.28
(OPTForCausalLM): for tools/memory_report."""

from __future__ import annotations

from describe_models import ADAMW, EAGER_TRANSFORMER, F32, SEQUENCE, Cost, Model, Value


def opt(
    layers: int, hidden: int, heads: int, inner: int, sequence: int, batch: int, vocabulary: int
) -> Model:
    tokens, positions = SEQUENCE, 2050
    n, scores = tokens * hidden, heads * tokens**2
    m = Model(
        "opt",
        "transformers.OPTForCausalLM",
        batch,
        EAGER_TRANSFORMER,
        ADAMW,
        sequence,
        positions,
    )
    d = "model.decoder"
    m.embedding(f"{d}.embed_tokens", vocabulary, hidden, tokens, tied=1)
    m.position_embedding(f"{d}.embed_positions", positions, hidden, tokens)
    m.layer(f"{d}.add", "memory", Cost(0, 3 * F32 * n, 0, 1), Cost(0, F32 * n, 0, 1), (), "add")
    for i in range(layers):
        p = f"{d}.layers.{i}"
        a = f"{p}.self_attn"
        m.fork(f"{p}.fork", n)
        m.layer_norm(f"{p}.self_attn_layer_norm", tokens, hidden)
        m.fork(f"{a}.fork", n, 3, residual=False)
        for which in ("k_proj", "v_proj", "q_proj"):
            m.branch()
            m.linear(f"{a}.{which}", tokens, hidden, hidden)
        m.copy(f"{a}.scale", n)
        m.copy(f"{a}.split_heads", 3 * n, (3, 3))
        m.batched_matmul(f"{a}.scores", heads, tokens, hidden // heads, tokens)
        m.memory(f"{a}.mask", 2 * F32 * scores, 0, (1, 0))  # an addition
        m.keeps(m.makes(scores))
        m.memory(f"{a}.max", 2 * F32 * scores, 2 * F32 * scores)  # with the least number there is
        m.value = Value(scores, single=True)  # in fp32, and then as it was
        m.keeps(m.value)
        m.memory(f"{a}.softmax", 2 * F32 * scores, 3 * F32 * scores, op="softmax")
        m.value = Value(scores, True)
        m.memory(f"{a}.cast", 2 * F32 * scores, 2 * F32 * scores)
        m.batched_matmul(f"{a}.context", heads, tokens, tokens, hidden // heads)
        m.copy(f"{a}.merge_heads", n)
        m.linear(f"{a}.out_proj", tokens, hidden, hidden)
        m.dropout(f"{p}.dropout", n)
        m.add(f"{p}.add", n)
        m.fork(f"{p}.mlp.fork", n)
        m.layer_norm(f"{p}.final_layer_norm", tokens, hidden)
        m.linear(f"{p}.fc1", tokens, hidden, inner)
        m.relu(f"{p}.relu", tokens * inner)
        m.linear(f"{p}.fc2", tokens, inner, hidden)
        m.dropout(f"{p}.mlp.dropout", n)
        m.add(f"{p}.mlp.add", n)
    m.layer_norm(f"{d}.final_layer_norm", tokens, hidden)
    m.linear("lm_head", tokens, hidden, vocabulary, bias=False, tied=True)
    m.copy("shift", tokens * vocabulary)
    m.cross_entropy("loss", tokens, vocabulary)
    return m
