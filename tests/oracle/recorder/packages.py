"""Imports a system's Python from a folder for its recorder, on a PyTorch that lacks some of what it
imports: Stubs stand in for these."""
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path

import torch
import torch.utils._python_dispatch
from torch import nn

from .events import around, put


class Stub(types.ModuleType):
    """A module that has every name: an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        kind = type("Made", (type,), {"__getattr__": lambda c, n: c})
        setattr(self, name, kind(name, (), {"__init__": lambda *_, **__: None}))
        return getattr(self, name)


class Package(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules `ours` and below are the folder's, those of `stubs` and below Stubs; the longer
    name decides."""

    def __init__(self, folder, ours, stubs):
        self.folder, self.ours, self.stubs = Path(folder), ours, stubs
        for name in [m for m in sys.modules if self.above(m, [*ours, *stubs])]:
            del sys.modules[name]
        sys.meta_path.insert(0, self)
        for name, members in stubs.items():
            vars(importlib.import_module(name)).update(members)

    @staticmethod
    def above(name, names):
        return max((n for n in names if (name + ".").startswith(n + ".")), key=len, default="")

    def find_spec(self, name, _, __=None):
        ours, stub = self.above(name, self.ours), self.above(name, self.stubs)
        if len(stub) > len(ours):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        path = self.folder / name.replace(".", "/")
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if ours and file.exists():
                return importlib.util.spec_from_file_location(name, file)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, _):
        pass


def newer_pytorch():
    """Gives PyTorch 1.13 what FSDP and FSDP2 of 2.7 both take from theirs."""

    def named(old, self, prefix="", recurse=True, remove_duplicate=True):
        return old(self, prefix, recurse)

    around(nn.Module, named_parameters=named)
    torch.Tensor.untyped_storage = lambda self: self._storage()
    put(torch.utils._python_dispatch, is_traceable_wrapper_subclass=lambda _: False)
