"""Described workloads of mmsegmentation's models, as its configurations define them: for
tools/memory_report, which holds their memory against the model zoo's. Sources: mmseg/models of
release 0.30; configs/_base_/models."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from describe_models import EAGER_CNN, F32, SGD, Layer, Model

RATES = {"D8": (1, 2, 1, 1), "D16": (1, 2, 2, 1), "D32": (1, 2, 2, 2)}  # strides of the stages
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
# expand ratio, channels, blocks, stride (of the dilated backbone of configs/mobilenet_v2)
MOBILE = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 1),
    (6, 96, 3, 1),
    (6, 160, 3, 1),
    (6, 320, 1, 1),
)


class Extent(int):
    """Sides of an image: as a size, their geometric mean; its square is exact."""

    high: int
    wide: int

    def __new__(cls, high: int, wide: int) -> Extent:
        made = int.__new__(cls, math.isqrt(high * wide))
        made.high, made.wide = high, wide
        return made

    def __pow__(self, exponent: int, _modulo: object = None) -> int:  # type: ignore[override]
        assert exponent == 2
        return self.high * self.wide

    def strided(self, stride: int) -> Extent:
        return Extent(-(-self.high // stride), -(-self.wide // stride))


def conv_bn(
    m: Model,
    p: str,
    c_in: int,
    c_out: int,
    k: int,
    before: int,
    after: int,
    groups: int = 1,
    dilation: int = 1,
) -> None:
    m.conv(f"{p}.conv", c_in, c_out, k, before, after, groups=groups, dilation=dilation)
    m.batch_norm(f"{p}.bn", c_out, after)


def conv_bn_relu(
    m: Model,
    p: str,
    c_in: int,
    c_out: int,
    k: int,
    before: int,
    after: int,
    groups: int = 1,
    dilation: int = 1,
) -> None:
    conv_bn(m, p, c_in, c_out, k, before, after, groups, dilation)
    m.relu(f"{p}.relu", c_out * after**2)


def of_rectangle(layer: Layer) -> Layer:
    """A convolution's own sides."""
    if layer.kind != "conv":
        return layer
    op: dict[str, Any] = layer.op
    out = op["out"]
    wide = {"wide": out.wide} if out.wide != out.high else {}
    sides = {"size": op["size"].high, "out": out.high, **wide}
    return dataclasses.replace(layer, op=op | sides)


def resnet(m: Model, depth: int, strides: tuple[int, ...], deep_stem: bool, at: Extent) -> Extent:
    """Leaves the outputs of the last two stages in m.forks: (stage 3, stage 4). What a stage has no
    stride for it is dilated by; its first block half as much (contract_dilation)."""
    half = at.strided(2)
    if deep_stem:
        for i, (c_in, c_out) in enumerate([(3, 32), (32, 32), (32, 64)]):
            conv_bn_relu(m, f"backbone.stem.{i}", c_in, c_out, 3, half if i else at, half)
    else:
        conv_bn_relu(m, "backbone.stem", 3, 64, 7, at, half)
    size = half.strided(2)
    m.max_pool("backbone.maxpool", 64 * half**2, 64 * size**2)
    channels, wide, full = 64, depth >= 50, (1, 2, 2, 2)
    spread = 1
    for stage, (blocks, stride) in enumerate(zip(BLOCKS[depth], strides)):
        width = 64 << stage
        out = 4 * width if wide else width
        before, spread = spread, spread * (full[stage] // stride)
        for i in range(blocks):
            p = f"backbone.layer{stage + 1}.{i}"
            after = size.strided(stride) if i == 0 else size
            m.fork(f"{p}.fork", channels * size**2)
            rate = before if i == 0 else spread
            if wide:
                conv_bn_relu(m, f"{p}.1", channels, width, 1, size, size)
                conv_bn_relu(m, f"{p}.2", width, width, 3, size, after, dilation=rate)
                conv_bn(m, f"{p}.3", width, out, 1, after, after)
            else:
                conv_bn_relu(m, f"{p}.1", channels, width, 3, size, after, dilation=rate)
                conv_bn(m, f"{p}.2", width, out, 3, after, after)
            if i == 0 and (channels != out or after**2 != size**2):
                m.branch()
                conv_bn(m, f"{p}.downsample", channels, out, 1, size, after)
            m.add(f"{p}.add", out * after**2)
            m.relu(f"{p}.relu", out * after**2)
            channels, size = out, after
        if stage == 2:
            m.fork("backbone.aux.fork", channels * size**2, residual=False)
            m.auxiliary = (m.value, channels, size)  # type: ignore[attr-defined]
    m.channels = channels  # type: ignore[attr-defined]
    return size


def mobilenet_v2(m: Model, at: Extent) -> Extent:
    size, channels = at.strided(2), 32
    conv_bn_relu(m, "backbone.conv1", 3, channels, 3, at, size)
    for stage, (expand, c_out, blocks, stride) in enumerate(MOBILE):
        for i in range(blocks):
            p = f"backbone.layer{stage + 1}.{i}"
            wide = channels * expand
            after = size.strided(stride) if i == 0 else size
            if i:
                m.fork(f"{p}.fork", channels * size**2)
            if expand > 1:
                conv_bn_relu(m, f"{p}.expand", channels, wide, 1, size, size)
            conv_bn_relu(m, f"{p}.depthwise", wide, wide, 3, size, after, groups=wide)
            conv_bn(m, f"{p}.project", wide, c_out, 1, after, after)
            if i:
                m.add(f"{p}.add", c_out * after**2)
            channels, size = c_out, after
        if stage == 4:
            m.fork("backbone.aux.fork", channels * size**2, residual=False)
            m.auxiliary = (m.value, channels, size)  # type: ignore[attr-defined]
    m.channels = channels  # type: ignore[attr-defined]
    return size


def concatenated(m: Model, name: str, n: int) -> None:
    m.makes(n)
    m.memory(name, 2 * F32 * n, 0, (1, 0))  # backward: views of the gradient


def segments(m: Model, p: str, channels: int, classes: int, size: Extent, image: Extent) -> None:
    """Dropout of whole channels, a convolution to classes, the image's size, the loss."""
    m.copy(f"{p}.dropout", channels * size**2)
    m.conv(f"{p}.conv_seg", channels, classes, 1, size, size, bias=True)
    m.interpolate(f"{p}.resize", classes * size**2, classes * image**2)
    m.cross_entropy(f"{p}.loss", image**2, classes, spatial=True)


def pooled(m: Model, p: str, c_in: int, c: int, scale: int, size: Extent) -> None:
    m.avg_pool(f"{p}.pool", c_in * size**2, c_in * scale**2, whole=False)
    conv_bn_relu(m, p, c_in, c, 1, Extent(scale, scale), Extent(scale, scale))
    m.interpolate(f"{p}.resize", c * scale**2, c * size**2)


def segmentation(
    method: str, backbone: str, rate: str, image: Extent, classes: int, dilation: int = 1
) -> Model:
    """method: FCN, PSPNet or DeepLabV3; backbone: R-50, R-50b (torchvision's stem), M-V2; dilation:
    of FCN's head."""
    m = Model(
        "segmentation",
        f"mmseg {method} {backbone}-{rate}",
        2,
        EAGER_CNN,
        dict(SGD),
        keeps_input=True,
    )
    found = re.fullmatch(r"R-(\d+)(b?)", backbone)
    if found:
        size = resnet(m, int(found[1]), RATES[rate], not found[2], image)
    else:
        size = mobilenet_v2(m, image)
    c_in: int = m.channels  # type: ignore[attr-defined]
    small = backbone.startswith("R-18")
    c, c_aux = (128, 64) if small else (512, 256)
    h = "decode_head"
    n_in = c_in * size**2
    m.fork(f"{h}.fork", n_in, 5, residual=False)
    if method == "FCN":
        for i in range(2):
            conv_bn_relu(m, f"{h}.convs.{i}", c if i else c_in, c, 3, size, size, 1, dilation)
        concatenated(m, f"{h}.cat", n_in + c * size**2)
        conv_bn_relu(m, f"{h}.conv_cat", c_in + c, c, 3, size, size)
    elif method == "PSPNet":
        for scale in (1, 2, 3, 6):
            m.branch()
            pooled(m, f"{h}.psp.{scale}", c_in, c, scale, size)
        concatenated(m, f"{h}.cat", n_in + 4 * c * size**2)
        conv_bn_relu(m, f"{h}.bottleneck", c_in + 4 * c, c, 3, size, size)
    elif method == "DeepLabV3":
        pooled(m, f"{h}.image_pool", c_in, c, 1, size)
        for i, k in enumerate((1, 3, 3, 3)):
            m.branch()
            conv_bn_relu(m, f"{h}.aspp.{i}", c_in, c, k, size, size, dilation=12 * i if i else 1)
        concatenated(m, f"{h}.cat", 5 * c * size**2)
        conv_bn_relu(m, f"{h}.bottleneck", 5 * c, c, 3, size, size)
    else:
        raise KeyError(method)
    segments(m, h, c, classes, size, image)
    m.value, channels, at = m.auxiliary  # type: ignore[attr-defined]
    conv_bn_relu(m, "auxiliary_head.conv", channels, c_aux, 3, at, at)
    segments(m, "auxiliary_head", c_aux, classes, at, image)
    m.layers = [of_rectangle(layer) for layer in m.layers]
    return m
