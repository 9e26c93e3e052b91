"""Rows of a described workload whose blocks are alike, said once (docs/formats.md, `repeat`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def block_of(row: Row) -> int:
    """The first number of a name; -1: none."""
    found = re.search(r"(?<=[._])\d+(?=\.|$)", str(row["name"]))
    return int(found[0]) if found else -1


def as_first(row: Row, block: int, offset: int) -> Row:
    """What the block's first repetition would have."""
    name = re.sub(r"(?<=[._])\d+(?=\.|$)", "{}", str(row["name"]), count=1)
    moved = {"tensors": [t - offset for t in row["tensors"]]} if "tensors" in row else {}
    return {**row, "name": name, **moved}


def blocks_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Neighbours of one block, and each row of none by itself."""
    out: list[list[Row]] = []
    last = -1
    for row in rows:
        block = block_of(row)
        if block >= 0 and block == last:
            out[-1].append(row)
        else:
            out.append([row])
        last = block
    return out


def folded(rows: Sequence[Row], stride: int = 0) -> list[Row]:
    """stride: tensors of a block, where rows name them."""
    blocks, out, i = blocks_of(rows), [], 0
    while i < len(blocks):
        number = block_of(blocks[i][0])
        pattern = [as_first(r, number, 0) for r in blocks[i]]
        times = 1
        while (
            number >= 0
            and i + times < len(blocks)
            and block_of(blocks[i + times][0]) == number + times
            and [as_first(r, number, times * stride) for r in blocks[i + times]] == pattern
        ):
            times += 1
        if times > 1:
            out.append({"repeat": times, "from": number, "of": pattern})
        else:
            out += blocks[i]
        i += times
    return out


def unfolded(rows: Sequence[Row], stride: int = 0) -> list[Row]:
    """The opposite of folded()."""
    out: list[Row] = []
    for row in rows:
        if "repeat" not in row:
            out.append(row)
            continue
        for k in range(row["repeat"]):
            for one in row["of"]:
                name = one["name"].replace("{}", str(row["from"] + k), 1)
                moved = [t + k * stride for t in one["tensors"]] if "tensors" in one else None
                out.append(
                    {**one, "name": name, **({"tensors": moved} if moved is not None else {})}
                )
    return out
