# Collectives in forward: none, reduce, gather, sync.
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
mode = sys.argv[1]
dist.init_process_group("nccl")
dev = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(dev)
class Net(nn.Module):
    def __init__(s):
        super().__init__()
        ends = nn.Linear(1024, 4096), nn.Linear(4096, 8192)
        s.b = nn.Sequential(ends[0], nn.BatchNorm1d(4096), nn.ReLU(), ends[1])
    def forward(s, x):
        z = s.b(x); c = z.T @ z
        if mode == "reduce": dist.all_reduce(c)                     # 256 MiB in forward
        if mode == "gather":
            out = [torch.empty_like(z) for _ in range(dist.get_world_size())]
            dist.all_gather(out, z)
            c = torch.cat(out) @ z.T
        return c.square().mean()
net = Net()
if mode == "sync": net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
m = DDP(net.to(dev), device_ids=[dev]); o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
for i in range(6):
    x = torch.randn(256, 1024, device=dev); loss = m(x); o.zero_grad(); loss.backward(); o.step()
