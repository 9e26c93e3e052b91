"""Who waited for a collective and drops its tensors has their memory back at once.

    python -m fake_cuda freed.py

Two ranks. Each of NCCL's collectives many times over; a late thread shows in one of several.
"""
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
COLLECTIVES = {
    "all_reduce": dist.all_reduce,
    "broadcast": lambda t: dist.broadcast(t, 0),
    "reduce": lambda t: dist.reduce(t, 0),
    "all_gather": lambda t: dist.all_gather([torch.zeros_like(t), torch.zeros_like(t)], t),
}
wrong = 0
for name, collective in COLLECTIVES.items():
    before, kept = torch.cuda.memory_allocated(), 0
    for _ in range(60):
        tensor = torch.zeros(1 << 16, device="cuda")
        collective(tensor)
        del tensor
        kept += torch.cuda.memory_allocated() > before
    if kept:
        print(f"{name}: its memory is still in use after {kept} of 60")
    wrong += kept
sys.stdout.flush()
os._exit(1 if wrong else 0)
