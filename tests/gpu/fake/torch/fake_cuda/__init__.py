"""A CUDA device that is not there, for programs that use PyTorch's public API: ``install()`` first.

PyTorch may be built without CUDA. Tensors on ``cuda`` lie in the host's memory, each operator moves
a virtual clock and a virtual stream by what was planted (planted.py), and ``torch.cuda``'s events
and ``time``'s clocks tell that. ``python -m fake_cuda SCRIPT ARGUMENTS`` runs a program so.

What it cannot say: anything of a real GPU. Autograd runs on the caller's thread; communication does
not slow computation; two devices in one process, graphs, and torch.compile are not there.
"""


def install() -> None:
    from . import clock

    clock.install()
    from . import cuda, nccl, profiler, tensors

    cuda.install()
    tensors.install()
    profiler.install()
    nccl.install()
