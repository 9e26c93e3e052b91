"""Two DistributedDataParallel modules in one program: what recorded_two_modules.py runs.

  two_modules.py gan | towers | critic       (RANK, WORLD_SIZE and the like as torchrun sets them)

With TWO_MODULES_LOG a comm hook of each module writes down what its Reducer launches: the module,
the bucket's number, its elements and its parameters, in the order in which this process issues
them. Its reduction is the one that DDP makes without a hook.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
launched = []


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 300), nn.BatchNorm1d(300), nn.ReLU())
        self.head = nn.Linear(300, 200)

    def forward(self, z):
        return self.head(self.body(z))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(200, 400), nn.LeakyReLU(0.2), nn.Linear(400, 150))
        self.head = nn.Linear(150, 1)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Tower(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, 64)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def wrapped(title, module, cap):
    model = DistributedDataParallel(module, bucket_cap_mb=cap)
    names = {id(p): n for n, p in module.named_parameters()}

    def hook(state, bucket):
        launched.append(
            [title, bucket.index(), bucket.buffer().numel(),
             [names[id(p)] for p in bucket.parameters()]]
        )
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    if "TWO_MODULES_LOG" in os.environ:
        model.register_comm_hook(None, hook)
    return model


def gan(critic_steps=1):
    g = wrapped("Generator", Generator(), 0.05)
    d = wrapped("Discriminator", Discriminator(), 0.1)
    of_g, of_d = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (g, d))
    loss = nn.BCEWithLogitsLoss()
    for step in range(STEPS):
        launched.append(["step", step])
        for _ in range(critic_steps):
            of_d.zero_grad(set_to_none=True)
            loss(d(torch.randn(8, 200)), torch.ones(8, 1)).backward()
            loss(d(g(torch.randn(8, 16)).detach()), torch.zeros(8, 1)).backward()
            of_d.step()
        of_g.zero_grad(set_to_none=True)
        loss(d(g(torch.randn(8, 16))), torch.ones(8, 1)).backward()
        of_g.step()


def towers():
    query = wrapped("Tower", Tower(32, 500), 0.05)
    item = wrapped("Tower2", Tower(48, 700), 0.05)
    both = torch.optim.SGD([*query.parameters(), *item.parameters()], lr=0.01)
    for step in range(STEPS):
        launched.append(["step", step])
        both.zero_grad(set_to_none=True)
        scores = query(torch.randn(8, 32)) @ item(torch.randn(8, 48)).t()
        nn.functional.cross_entropy(scores, torch.arange(8)).backward()
        both.step()


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 20_000  # so that small models have several buckets
    dist.init_process_group("gloo")
    {"gan": gan, "towers": towers, "critic": lambda: gan(3)}[sys.argv[1]]()
    if "TWO_MODULES_LOG" in os.environ:
        with open(f"{os.environ['TWO_MODULES_LOG']}.{os.environ['RANK']}", "w") as out:
            json.dump(launched, out)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
