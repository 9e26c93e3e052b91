"""What a script or a library asks PyTorch for that this one lacks: where it then falls back,
another PyTorch would take other operators.
"""
from __future__ import annotations

import os
import sys
import types
from typing import Any, List

import torch

MODULES = (
    "torch torch.nn torch.nn.functional torch.nn.attention torch.nn.parallel torch.optim torch.cuda"
    " torch.backends torch.backends.cuda torch.backends.cudnn torch.amp torch.utils"
    " torch.utils.checkpoint torch.distributed torch.fft torch.linalg torch.special"
).split()
OWN = tuple(
    os.path.join(os.path.dirname(os.path.abspath(f)), "") for f in (__file__, torch.__file__)
)
PRIVATE = ("torch._dynamo", "torch._inductor")  # what torch.compile asks for says nothing here


def asks_itself(depth: int) -> bool:
    """Whether PyTorch, Python or this tool asks, not a script or a library."""
    frame: Any = sys._getframe(depth + 1)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(OWN):
        return True
    return frame.f_globals.get("__name__", "") in ("inspect", "pkgutil", "unittest.mock", "typing")


class Absent:
    """Notes such names; ``names``: in order."""

    def __init__(self) -> None:
        self.names: List[str] = []
        for name in MODULES:
            module = sys.modules.get(name)
            if module is not None:
                self.watch(module)
        sys.meta_path.append(self)  # type: ignore[arg-type]  # last: nobody else has it

    def note(self, name: str) -> None:
        if name not in self.names and not name.startswith(PRIVATE):
            self.names.append(name)

    def watch(self, module: types.ModuleType) -> None:
        before = vars(module).get("__getattr__")

        def missing(name: str) -> Any:
            if before is not None:
                try:
                    return before(name)
                except AttributeError:
                    pass
            full = f"{module.__name__}.{name}"
            if not name.startswith("_") and full not in sys.modules and not asks_itself(1):
                self.note(full)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = missing  # type: ignore[method-assign]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Of an import that nobody else can make."""
        private = any(part.startswith("_") for part in name.split("."))
        if name.startswith("torch.") and not private and not asks_itself(1):
            self.note(name)


def described_with(names: List[str]) -> Any:
    """`described_with` of a workload."""
    version = torch.__version__.partition("+")[0]
    return {"pytorch": version, **({"absent": names} if names else {})}
