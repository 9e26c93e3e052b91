"""ResNet-18 whose layers are registered from the head down, as where a class creates ``self.head``
before its backbone.

DDP fills its buckets in reverse order of registration, so here the first bucket holds what backward
computes last, and every bucket waits for it.

As a factory: ``ddpsim_capture.py --factory head_first:resnet18 --out
workloads/resnet18-headfirst-cpu.json``.
"""
import torch
from torch import nn
from torchvision.models import resnet18 as registered_in_order


class HeadFirst(nn.Module):
    """The same computation as ``model``, its children registered last to first."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.order = [name for name, _ in model.named_children()]
        for name in reversed(self.order):
            self.add_module(name, getattr(model, name))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.order:
            if name == "fc":
                x = torch.flatten(x, 1)
            x = getattr(self, name)(x)
        return x


def resnet18():
    """For ``--factory``: (model, inputs, loss_fn, optimizer), batch 8 of 224 x 224 images."""
    return HeadFirst(registered_in_order()), (torch.randn(8, 3, 224, 224),), None, None
