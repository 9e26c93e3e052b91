"""Says which kernels FSDP2 runs on which memory for fsdp2_record.py. Every buffer that it allocates
is memory of its own whose end is noticed, so the recording says when the last reference to it was
dropped."""
import weakref

import numpy
import torch

from .events import SIZE, around, bytes_of, current, into, issued, log, now, put, setting


def op(*event, stream=None):
    stream = stream or current[-1]
    issued[stream] = issued.get(stream, 0) + 1
    log(*event)


def unheard():
    """Is what happens not the package's own work in a step?"""
    return into[0] is None or now["quiet"]


class Memory(numpy.ndarray):
    pass


def tracked(count, dtype):
    size = count * SIZE[dtype]
    memory = numpy.zeros(size, numpy.uint8).view(Memory)
    stream = current[-1]
    weakref.finalize(memory, log, "a", "free", size, stream)
    log("a", "allocate", size, stream)
    return torch.from_numpy(memory).view(dtype)


def own(old, *args, **kwargs):
    """Notices the memory of a function that allocates, where FSDP2 calls it in a step."""
    if unheard():
        return old(*args, **kwargs)
    with setting("quiet", True):
        return noticed(old.__name__, old, *args, **kwargs)


def noticed(name, old, *args, **kwargs):
    if name == "empty":
        count = args[0] if isinstance(args[0], int) else args[0][0]
        return tracked(count, kwargs["dtype"])
    if name == "new_empty":
        return tracked(args[1][0], args[0].dtype)
    source = args[0]
    dtype = args[1] if name == "to" else source.dtype
    if name == "to" and (not isinstance(dtype, torch.dtype) or dtype == source.dtype):
        return old(*args, **kwargs)
    result = tracked(source.numel(), dtype)
    op("k", name, bytes_of(source), source.numel() * SIZE[dtype], current[-1])
    result.copy_(source.detach().reshape(-1))
    return result.view(source.shape)


def in_place(name):
    def new(old, tensor, other):
        if unheard():
            return old(tensor, other)
        read = bytes_of(*(t for t in (tensor, other) if torch.is_tensor(t)))
        op("k", name, read, bytes_of(tensor), current[-1])
        with setting("quiet", True):  # a CPU cannot divide float16
            return tensor if tensor.dtype == torch.float16 else old(tensor, other)

    return new


plain_copy = torch.Tensor.copy_


def copy(to, source):
    """As if its version counter were preserved, for which FSDP2 asks where it counts."""
    if unheard():
        return plain_copy(to, source)
    op("k", "copy", bytes_of(source), bytes_of(to), current[-1])
    return plain_copy(to.data, source.detach())


# --- operators of the package that 1.13 does not have
def foreach_copy(to, sources):
    op("k", "foreach_copy", bytes_of(*sources), bytes_of(*to), current[-1])
    for a, b in zip(to, sources):
        plain_copy(a, b.detach())


def split_copy(whole, sizes, dim, out):
    op("k", "split_with_sizes_copy", bytes_of(whole), bytes_of(*out), current[-1])
    for a, b in zip(out, whole.split(sizes, dim)):
        plain_copy(a.data, b)


def chunk_cat(tensors, dim, count, out):
    op("k", "chunk_cat", bytes_of(*tensors), bytes_of(out), current[-1])
    at = 0
    for t in tensors:
        rows = -(-t.size(0) // count)
        padded = t.new_zeros([rows * count, *t.shape[1:]])
        padded[: t.size(0)] = t
        width = padded.numel() // count
        out[:, at : at + width] = padded.view(count, -1)
        at += width


def listen_to_kernels():
    put(torch, _foreach_copy_=foreach_copy, _chunk_cat=chunk_cat, split_with_sizes_copy=split_copy)
    around(torch, empty=own)
    around(torch.Tensor, new_empty=own, clone=own, to=own, __iadd__=in_place("add"),
           div_=in_place("div"))
    torch.Tensor.copy_ = copy
