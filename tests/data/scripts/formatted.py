# Numbers of a GPU are printed in each step.
import os, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
dev = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(dev)
m = DDP(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).to(dev), device_ids=[dev])
o = torch.optim.SGD(m.parameters(), lr=0.1)
for i in range(5):
    x = torch.randn(64, 128, device=dev); y = torch.randint(0, 10, (64,), device=dev)
    out = m(x); loss = nn.functional.cross_entropy(out, y)
    hits = (out.argmax(1) == y).float().sum(0, keepdim=True)
    o.zero_grad(); loss.backward(); o.step()
    print("top1 {:.2f} loss {:.3f}".format(loss, loss.item()))
