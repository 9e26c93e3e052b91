#!/usr/bin/env python3
"""`ddpsim epoch` beside PyTorch's own DistributedSampler and DataLoader.

  test_sampler.py DDPSIM              300 random data sets
  test_sampler.py DDPSIM --self-test  a sampler that cuts blocks instead of striding is noticed
"""
import importlib.util
import json
import random
import subprocess
import sys

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is missing (Debian: python3-torch)")
    sys.exit(77)
sys.dont_write_bytecode = True
from torch.utils.data import DataLoader  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402


class Blocks(DistributedSampler):
    """The same samples, dealt out in blocks."""

    def __iter__(self):
        order = [None] * self.total_size
        rank, mine = self.rank, None
        for self.rank in range(self.num_replicas):
            order[self.rank::self.num_replicas] = list(super().__iter__())
        self.rank = rank
        mine = order[rank * self.num_samples:(rank + 1) * self.num_samples]
        return iter(mine)


def case(r):
    samples = r.choice([r.randint(1, 12), r.randint(1, 200), r.randint(1, 5000)])
    ranks = r.choice([1, 2, 3, 4, 7, 8, r.randint(1, 40)])
    return {"samples": samples, "ranks": ranks, "batch": r.choice([1, 2, 3, 8, r.randint(1, 64)]),
            "accumulation": r.choice([1, 1, 2, 3, 8]), "rank": r.randrange(ranks),
            "seed": r.randint(0, 10000), "epoch": r.randint(0, 90), "shuffle": r.random() < 0.7,
            "drop_last": r.random() < 0.4, "drop_last_batch": r.random() < 0.4}


def real(c, sampler):
    data = list(range(c["samples"]))
    s = sampler(data, num_replicas=c["ranks"], rank=c["rank"], shuffle=c["shuffle"],
                seed=c["seed"], drop_last=c["drop_last"])
    s.set_epoch(c["epoch"])
    indices = list(s)
    batches = []
    if indices:
        loader = DataLoader(data, batch_size=c["batch"], sampler=s,
                            drop_last=c["drop_last_batch"])
        batches = [b.tolist() for b in loader]
        assert len(batches) == len(loader) and len(s) == len(indices)
    k = c["accumulation"]
    steps = [batches[i:i + k] for i in range(0, len(batches), k)]
    return {"indices": indices, "samples_per_rank": len(indices), "micro_steps": len(batches),
            "last_batch": len(batches[-1]) if batches else 0, "steps": len(steps),
            "last_step_micro_steps": len(steps[-1]) if steps else 0}


def ours(ddpsim, c):
    args = [ddpsim, "epoch", "--format", "json", "--epoch-samples", c["samples"], "--ranks",
            c["ranks"], "--batch", c["batch"], "--accumulation", c["accumulation"], "--rank",
            c["rank"], "--seed", c["seed"], "--epoch", c["epoch"]]
    for flag, key, on in (("--no-shuffle", "shuffle", False), ("--drop-last", "drop_last", True),
                          ("--drop-last-batch", "drop_last_batch", True)):
        if c[key] == on:
            args.append(flag)
    return json.loads(subprocess.run([str(a) for a in args], check=True, capture_output=True,
                                     text=True).stdout)


def main():
    ddpsim, broken = sys.argv[1], "--self-test" in sys.argv
    r, different = random.Random(25), 0
    for i in range(40 if broken else 300):
        c = case(r)
        want, got = real(c, Blocks if broken else DistributedSampler), ours(ddpsim, c)
        wrong = [k for k in want if want[k] != got[k]]
        different += bool(wrong)
        if wrong and not broken:
            print(f"{c}: {', '.join(f'{k} is {got[k]}, PyTorch {want[k]}' for k in wrong)}")
    if broken:
        assert different > 10, different
        print(f"blocks instead of strides: noticed in {different} of 40")
        return 0
    print(f"300 data sets, {different} differ from PyTorch's")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
