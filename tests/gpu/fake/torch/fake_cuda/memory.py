"""Which storages are the device's, and how many bytes they are.

A storage is known by its address, which a weak reference keeps from being used again. Blocks are
multiples of 512 bytes, as those of PyTorch's allocator.
"""
from __future__ import annotations

from typing import Any, Dict

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .planted import planted

BLOCK = 512


def storage_of(tensor: torch.Tensor) -> Any:
    """The untyped storage (2.0 and later by a method of that name), None where there is none."""
    get = getattr(tensor, "untyped_storage", None) or tensor._storage  # type: ignore[attr-defined]
    try:
        return get()
    except (RuntimeError, NotImplementedError):  # sparse, and others without one
        return None


class Memory:
    def __init__(self) -> None:
        self.live: Dict[int, Any] = {}  # storage -> (weak reference, bytes)
        self.pinned: Dict[int, Any] = {}
        self.bound = 0  # at least what is allocated
        self.peak = 0
        self.reserved = 0

    def holds(self, tensor: torch.Tensor) -> bool:
        if tensor.is_meta:
            return False
        storage = storage_of(tensor)
        return storage is not None and storage._cdata in self.live

    def take(self, tensor: torch.Tensor) -> None:
        """The tensor's storage is the device's from now on."""
        storage = storage_of(tensor)
        if storage is None or storage._cdata in self.live:
            return
        nbytes = -(-storage.nbytes() // BLOCK) * BLOCK
        self.live[storage._cdata] = (StorageWeakRef(storage), nbytes)
        self.bound += nbytes
        if self.bound > self.peak:
            self.peak = max(self.peak, self.allocated())
            self.reserved = max(self.reserved, self.peak)
            if self.reserved > planted.device_bytes - planted.context_bytes:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    def pin(self, tensor: torch.Tensor) -> None:
        storage = storage_of(tensor)
        self.pinned[storage._cdata] = StorageWeakRef(storage)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        storage = storage_of(tensor)
        return storage is not None and storage._cdata in self.pinned

    def allocated(self) -> int:
        """Bytes; forgets what has been freed."""
        for key in [k for k, (reference, _) in self.live.items() if reference.expired()]:
            del self.live[key]
        self.bound = sum(nbytes for _, nbytes in self.live.values())
        return self.bound

    def reset_peak(self) -> None:
        self.peak = self.allocated()

    def empty_cache(self) -> None:
        self.reserved = self.allocated()


memory = Memory()
