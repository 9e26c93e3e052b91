"""Profiles as ddpsim reads them: each over what it extends (docs/formats.md). Standard library
only."""
from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).resolve().parents[2] / "calib/profiles"


def patched(value: Any, patch: Any) -> Any:
    """RFC 7396: objects key by key, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    out = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            out.pop(key, None)
        else:
            out[key] = patched(out.get(key), change)
    return out


def base_of(path: Path, extends: str) -> Path:
    """The file that ``path`` extends."""
    if "/" in extends or extends.endswith(".json"):
        return path.parent / extends
    shipped = [folder / f"{extends}.json" for folder in (SHIPPED / "bases", SHIPPED)]
    return next((p for p in shipped if p.exists()), shipped[-1])


def named_gpus() -> list[dict[str, Any]]:
    """The rows of calib/gpus.json."""
    rows: list[dict[str, Any]]
    rows = json.loads((SHIPPED.parent / "gpus.json").read_text(encoding="utf-8"))["gpus"]
    return rows


def profile_named(text: str) -> str | None:
    """The profile of the GPU whose name, as calib/gpus.json has it, stands in ``text``: of several
    the longest."""
    said = {name: gpu["profile"] for gpu in named_gpus() for name in gpu["names"]}
    found = [name for name in said if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    return said[max(found, key=len)] if found else None


def read_profile(path: Path | str) -> dict[str, Any]:
    """The whole profile of a file."""
    packed = Path(path).read_bytes()
    own = json.loads(gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed)
    extends = own.pop("extends", None)
    return own if extends is None else patched(read_profile(base_of(Path(path), extends)), own)
