# A frozen copy runs in each step, too, and is an average of weights.
import os, copy, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import torchvision
dist.init_process_group("nccl"); dev = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(dev)
s = torchvision.models.resnet18().to(dev); t = copy.deepcopy(s)
for p in t.parameters(): p.requires_grad_(False)
s = DDP(s, device_ids=[dev]); o = torch.optim.SGD(s.parameters(), lr=.1, momentum=.9)
for i in range(6):
    x = torch.randn(32, 3, 224, 224, device=dev)
    with torch.no_grad(): y = t(x)
    l = (s(x) - y).square().mean(); o.zero_grad(); l.backward(); o.step()
    with torch.no_grad():
        for a, b in zip(t.parameters(), s.module.parameters()): a.mul_(.99).add_(b, alpha=.01)
    if dist.get_rank() == 0: print(f"step {i}: {l.item():.4f}")
