"""With this folder in PYTHONPATH every program's PyTorch has a CUDA device that is not there
(fake_cuda), as soon as it imports it; a program without PyTorch is left alone.

Its machine has nothing else to do: the kernel's counts of busy cores and of TCP's segments stand
still, for what this machine's do is no part of a machine that is not there."""
import functools
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path


COUNTS = ("/proc/stat", "/proc/net/snmp")


class Torch(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            import fake_cuda

            fake_cuda.install()
            read, first = Path.read_text, functools.lru_cache(Path.read_text)
            Path.read_text = lambda self, *args, **kwargs: (
                first(self) if str(self) in COUNTS else read(self, *args, **kwargs)
            )

        spec.loader.exec_module = exec_module
        return spec


sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.meta_path.insert(0, Torch())
