"""From operators of a traced step to layers of a described workload: what scales with the batch,
what belongs together, what it is called.
"""
from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ddpsim_batches import Batches, Direction, Json, Scaled, whole
from ddpsim_op_costs import class_of

COPIES = ("clone", "copy", "_to_copy", "contiguous")


@dataclass
class Layer:
    module: str
    label: str
    kind: str
    forward: Direction
    backward: Direction
    sizes: Json = field(default_factory=dict)
    tensors: List[int] = field(default_factory=list)  # in order of arrival
    saves: List[Scaled] = field(default_factory=lambda: [Scaled(), Scaled(), Scaled()])
    makes: List[Scaled] = field(default_factory=lambda: [Scaled(), Scaled(), Scaled()])
    attention: bool = False
    scores: bool = False  # the first product of attention
    last: int = 0  # its last operator
    names: List[str] = field(default_factory=list)
    name: str = ""
    frozen: List[int] = field(default_factory=list)  # parameters without gradient that it reads


def layers_of(found: Batches) -> List[Layer]:
    """In order of forward; what a view of a weight is made for has its gradient."""
    layers: List[Layer] = []
    carried: List[Tuple[List[int], List[int]]] = []  # parameters of views; storages
    carried_saves = [Scaled(), Scaled(), Scaled()]
    for i, op in enumerate(found.traces[0].ops):
        saves = [a + found.solve(i, lambda o, m=m: o.saves[m]) for m, a in enumerate(carried_saves)]
        free = not op.forward.kernels and not op.backward.kernels
        if free:
            if op.parameters:
                carried.insert(0, (list(op.parameters), op.reads))
            carried_saves = saves
        else:
            own = [c for c in carried if set(c[1]) & set(op.reads)]
            carried = [c for c in carried if c not in own]
            layer = Layer(
                op.module,
                op.kind if op.kind not in ("", "copy") else op.name.strip("_"),
                op.kind or "copy",
                found.direction(i, "forward"),
                found.direction(i, "backward"),
                found.sizes(i),
                list(op.parameters) + [t for parameters, _ in own for t in parameters],
                saves,
                [found.solve(i, lambda o, m=m: o.makes[m]) for m in range(3)],
                last=i,
                names=[op.name],
                frozen=[found.traces[0].frozen[k] for k in op.reads if k in found.traces[0].frozen],
            )
            if op.kind == "embedding" and layer.forward.bytes.per == 0:
                layer.kind = layer.label = "position_embedding"
            layers.append(layer)
            carried_saves = [Scaled(), Scaled(), Scaled()]
        if op.forks.kernels:
            layers.append(
                Layer(op.module, "fork", "fork", Direction(), found.direction(i, "forks"), last=i)
            )
    if carried and layers:
        layers[-1].tensors += [t for parameters, _ in carried for t in parameters]
    return layers


# ---- what belongs together


def merged(layers: List[Layer]) -> List[Layer]:
    out: List[Layer] = []
    i = 0
    while i < len(layers):
        for length, kind in PATTERNS:
            group = layers[i : i + length]
            if len(group) == length and kind(group):
                one = kind(group)
                out.append(one)  # type: ignore[arg-type]
                i += length
                break
        else:
            out.append(layers[i])
            i += 1
    return out


def together(group: Sequence[Layer], kind: str) -> Layer:
    one = Layer(group[-1].module, kind, kind, Direction(), Direction(), last=group[-1].last)
    for layer in group:
        one.forward, one.backward = one.forward + layer.forward, one.backward + layer.backward
        one.tensors = layer.tensors + one.tensors
        one.frozen = one.frozen + layer.frozen
        one.saves = [a + b for a, b in zip(one.saves, layer.saves)]
        one.names += layer.names
    one.makes = group[-1].makes
    return one


def names_of(group: Sequence[Layer]) -> List[str]:
    return [n.rstrip("_") for layer in group for n in layer.names or ["fork"]]


def one_module(group: Sequence[Layer]) -> bool:
    return len({layer.module for layer in group}) == 1


def as_dropout(group: Sequence[Layer]) -> Optional[Layer]:
    """On a GPU one kernel, which keeps a mask of bytes."""
    if names_of(group) != ["bernoulli", "div", "mul"] or not one_module(group):
        return None
    product = group[2]
    elements = product.forward.bytes.times(1 / 12)
    if group[0].forward.bytes != elements.times(4):
        return None  # of whole channels
    one = together(group, "dropout")
    one.forward = Direction(Scaled(), elements.times(9), 1)
    one.backward = Direction(Scaled(), elements.times(9), 1)
    one.saves = [elements, elements, elements]
    return one


def as_batch_norm(group: Sequence[Layer]) -> Optional[Layer]:
    """Without the increment of num_batches_tracked."""
    if group[0].names != ["add_"] or group[1].kind != "batch_norm" or not one_module(group):
        return None
    group[1].tensors += group[0].tensors
    group[1].frozen += group[0].frozen
    return group[1]


def as_linear(group: Sequence[Layer]) -> Optional[Layer]:
    """A product and its bias, which a GPU adds in the same kernel."""
    product, bias = group[0], group[-1]
    if any(x.forward.kernels or x.tensors or x.kind == "fork" for x in group[1:-1]):
        return None
    if product.kind != "linear" or bias.names[:1] not in (["add"], ["add_"]):
        return None
    if not one_module(group) or not (bias.tensors or bias.frozen):
        return None
    one = together(group, "linear")
    one.sizes, one.kind = product.sizes, product.kind
    fixed = Scaled(0, bias.forward.bytes.fixed)
    one.forward = product.forward + Direction(Scaled(), fixed, 0)
    one.makes = product.makes
    return one


def as_cross_entropy(group: Sequence[Layer]) -> Optional[Layer]:
    names = names_of(group)
    if names[0] != "_log_softmax" or names[1] not in ("nll_loss_forward", "nll_loss2d_forward"):
        return None
    return together(group, "cross_entropy")


def as_rms_norm(group: Sequence[Layer]) -> Optional[Layer]:
    if names_of(group) != ["pow", "mean", "add", "rsqrt", "mul", "mul"] or not one_module(group):
        return None
    return together(group, "rms_norm")


def as_gelu(group: Sequence[Layer]) -> Optional[Layer]:
    wanted = Counter(["pow", "mul", "add", "mul", "tanh", "add", "mul", "mul"])
    same = one_module(group) and not any(layer.tensors for layer in group)
    return together(group, "gelu_composed") if same and Counter(names_of(group)) == wanted else None


PATTERNS: Sequence[Tuple[int, Callable[[Sequence[Layer]], Optional[Layer]]]] = (
    (8, as_gelu),
    (6, as_rms_norm),
    (3, as_dropout),
    (3, as_linear),
    (2, as_batch_norm),
    (2, as_linear),
    (2, as_cross_entropy),
)


def is_copy(layer: Layer) -> bool:
    """Another order in memory; not what takes a tensor apart."""
    views = not layer.forward.kernels and layer.names[:1] not in (["split"], ["slice"], ["select"])
    plain = layer.kind == "copy" and not layer.tensors
    return plain and (layer.names[:1] == ["clone"] or views)


def mark_attention(layers: List[Layer]) -> None:
    """Two products with a softmax between them, and copies around them: what one fused kernel can
    replace."""
    i = 0
    while i < len(layers):
        end = i + 1
        while end < len(layers) and class_of(layers[end].kind) == "memory":
            end += 1
        between = layers[i + 1 : end]
        if (
            layers[i].kind == "bmm"
            and end < len(layers)
            and layers[end].kind == "bmm"
            and any(x.kind == "softmax" for x in between)
            and not any(x.tensors for x in between)
        ):
            begin, last = i, end
            while begin > 0 and i - begin < 6 and is_copy(layers[begin - 1]):
                begin -= 1
            while last + 1 < len(layers) and last - end < 2 and is_copy(layers[last + 1]):
                last += 1
            for x in layers[begin : last + 1]:
                x.attention = True
            layers[i].scores = True
            i = last
        i += 1


def saves_fused(layer: Layer) -> List[int]:
    """Bytes that fused attention keeps, in fp32, under autocast and in halves: queries, keys,
    values and a number a row. What follows keeps the output, which is its input."""
    s = layer.sizes
    elements = s["count"] * (s["rows"] * s["inputs"] + 2 * s["inputs"] * s["outputs"])
    rows = 4 * s["count"] * s["rows"]
    return [4 * elements + rows, 2 * elements + rows, 2 * elements + rows]


# ---- recomputation


def with_recomputation(layers: List[Layer], found: Batches) -> List[Layer]:
    """Before the backward of what was checkpointed, its forward again."""
    for first, last in found.traces[0].groups:
        inside = [x for x in layers if first <= x.last <= last and x.kind != "fork"]
        if not inside:
            continue
        cost = sum((x.forward for x in inside), Direction())
        common = common_path([x.module for x in inside])
        kinds = Counter({k: 0.0 for k in ("linear",)})
        for x in inside:
            kinds[x.kind] += x.forward.flops.per + x.forward.flops.fixed
        again = Layer(common, "recompute", kinds.most_common(1)[0][0], Direction(), cost)
        again.last = last
        at = max(i for i, x in enumerate(layers) if x.last <= last and x in inside)
        layers.insert(at + 1, again)
    return layers


def common_path(paths: Sequence[str]) -> str:
    split = [p.split(".") for p in paths]
    parts = []
    for column in zip(*split):
        if len(set(column)) > 1:
            break
        parts.append(column[0])
    return ".".join(parts) or "(model)"


# ---- names, order


def named(layers: List[Layer]) -> None:
    labels: Dict[str, set[str]] = {}
    for x in layers:
        if x.kind != "fork" and x.label != "recompute":
            labels.setdefault(x.module, set()).add(x.label)
    used: Counter[str] = Counter()
    for x in layers:
        path = "" if x.module == "(model)" else x.module
        alone = len(labels.get(x.module, ())) == 1 and x.kind != "fork" and x.label != "recompute"
        name = path if alone and path else ".".join(p for p in (path, x.label) if p)
        used[name] += 1
        x.name = name if used[name] == 1 else f"{name}.{used[name]}"
    taken: Counter[str] = Counter(x.name for x in layers)
    if max(taken.values(), default=1) > 1:
        for i, x in enumerate(layers):
            x.name = f"{x.name}.{i}" if taken[x.name] > 1 else x.name


def ordered(layers: List[Layer], arrival: Sequence[int]) -> int:
    """Parameters move to earlier layers until the layers backwards are the order of arrival; how
    many did."""
    where = {t: i for i, x in enumerate(layers) for t in x.tensors}
    moved, lowest = 0, len(layers) - 1
    for x in layers:
        x.tensors = []
    for t in arrival:
        at = where.get(t, lowest)
        if at > lowest:
            moved, at = moved + 1, lowest
        lowest = at
        layers[at].tensors.append(t)
    return moved


def described_layers(found: Batches, batch: int) -> Tuple[List[Json], int]:
    """`layers` of a workload of that batch, and how many gradients arrive after their layer's."""
    layers = merged(layers_of(found))
    mark_attention(layers)
    layers = with_recomputation(layers, found)
    moved = ordered(layers, found.traces[0].arrival)
    layers = [
        x for x in layers if x.forward.kernels or x.backward.kernels or x.tensors or x.saves[0].per
    ]
    named(layers)
    return [row(x, batch) for x in layers], moved


def row(x: Layer, batch: int) -> Json:
    forward, backward = x.forward.json(batch), x.backward.json(batch)
    op: Json = {"kind": x.kind, **x.sizes}
    if x.label == "recompute" or (class_of(x.kind) != "memory" and not x.sizes):
        op = {}
    elif class_of(x.kind) != "memory" and operations(op) != forward["flops_per_sample"]:
        op = {}
    if op and x.attention:
        op["attention"] = True
    return {
        "name": x.name,
        "class": class_of(x.kind),
        **({"op": op} if op else {}),
        "tensors": x.tensors,
        **({"frozen": sorted(set(x.frozen))} if x.frozen else {}),
        "forward": forward,
        "backward": backward,
        "saves": [whole(s.per + s.fixed / batch) for s in x.saves],
        **({"saves_fused": saves_fused(x)} if op and x.scores else {}),
        "makes": [whole(s.per + s.fixed / batch) for s in x.makes],
    }


def operations(op: Json) -> int:
    if op["kind"] == "conv":
        filters = op["channels"] // op.get("groups", 1) * op["filters"]
        return 2 * int(filters * op["kernel"] ** 2 * op["out"] ** 2)
    return 2 * math.prod(int(op[k]) for k in ("rows", "inputs", "outputs")) * op.get("count", 1)
