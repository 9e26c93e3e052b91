# Gradients of eight micro-steps: plain, flag, inside, outside.
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
mode = sys.argv[1]
dist.init_process_group("nccl")
dev = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(dev)
net = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(8)]).to(dev)
m = DDP(net, device_ids=[dev]); o = torch.optim.AdamW(m.parameters(), lr=1e-3)
K = 8
for it in range(6):
    for k in range(K):
        x = torch.randn(64, 2048, device=dev)
        if mode == "flag": m.require_backward_grad_sync = (k == K - 1)
        if mode == "inside" and k < K - 1:
            with m.no_sync():
                (m(x).square().mean() / K).backward()
        elif mode == "outside" and k < K - 1:
            loss = m(x).square().mean() / K
            with m.no_sync():
                loss.backward()
        else:
            (m(x).square().mean() / K).backward()
    o.step(); o.zero_grad(set_to_none=True)
