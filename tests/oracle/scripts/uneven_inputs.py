"""Trains under join with uneven inputs, as one rank; what join_uneven.py runs. Writes down every
collective of this rank in the order in which it is issued, by Python or by DDP's C++: the process
group is one that notes what it is asked for and asks Gloo.

  uneven_inputs.py OUT INPUTS KNOBS      INPUTS: of each rank; KNOBS: as JSON, of DDP and join
"""
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import ProcessGroup, ProcessGroupGloo
from torch.nn.parallel import DistributedDataParallel

asked = []


class Noting(ProcessGroup):
    def __init__(self, gloo):
        super().__init__(gloo.rank(), gloo.size())
        self.gloo = gloo

    def allreduce(self, tensors, *options):
        asked.append(["all_reduce", sum(t.numel() for t in tensors)])
        return self.gloo.allreduce(tensors, *options)

    def broadcast(self, tensors, *options):
        asked.append(["broadcast", sum(t.numel() for t in tensors)])
        return self.gloo.broadcast(tensors, *options)

    def allgather(self, outputs, inputs, *options):
        return self.gloo.allgather(outputs, inputs, *options)

    def barrier(self, opts):
        return self.gloo.barrier(opts)

    def getBackendName(self):
        return "noting"


class Model(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first = nn.Linear(20, 60)
        self.norm = nn.BatchNorm1d(60) if norm else nn.Identity()
        self.second = nn.Linear(60, 90)
        self.head = nn.Linear(90, 7)
        self.unused = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.norm(self.first(x))))))


def main():
    out, inputs, knobs = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    rank = int(os.environ["RANK"])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 8_000
    dist.Backend.register_backend(
        "noting", lambda store, rank, size, timeout: Noting(ProcessGroupGloo(store, rank, size))
    )
    dist.init_process_group("noting")
    model = Model(knobs.get("norm", True))
    if not knobs.get("find_unused_parameters"):
        del model.unused
    ddp = DistributedDataParallel(
        model,
        bucket_cap_mb=0.02,
        find_unused_parameters=knobs.get("find_unused_parameters", False),
        broadcast_buffers=knobs.get("broadcast_buffers", True),
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    dist.barrier()
    initial = knobs.get("divide_by_initial_world_size", True)
    asked.clear()
    with ddp.join(divide_by_initial_world_size=initial):
        for _ in range(inputs[rank]):
            optimizer.zero_grad()
            ddp(torch.randn(4, 20)).sum().backward()
            optimizer.step()
    with open(f"{out}.{rank}", "w") as file:
        json.dump(asked, file)
    dist.barrier()


if __name__ == "__main__":
    main()
