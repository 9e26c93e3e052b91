"""What PyTorch saves for backward beside `saves` of the described workloads: hooks on eight
torchvision models, executed in fp32 on the CPU.

    /usr/bin/python3 tests/python/saved_tensors.py

Per sample: the difference of two batches, which leaves out what does not grow with them. A tensor
that several operations save counts once; parameters and buffers do not. Exit 77 (skipped) where
torch or torchvision is missing.
"""
import copy
import json
import sys
from pathlib import Path

try:
    import torch
    import torchvision
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
MODELS = (
    "resnet18",
    "resnet50",
    "resnext50-32x4d",
    "vgg16",
    "densenet121",
    "efficientnet-b0",
    "convnext-tiny",
    "vit-b-16",
)
LIMIT = 0.005


def storage_of(tensor):
    return tensor.storage().data_ptr()


def saved_bytes(model, batch):
    own = {storage_of(t) for t in [*model.parameters(), *model.buffers()]}
    seen, alive = {}, []

    def pack(tensor):
        alive.append(tensor)  # so that no address is used twice
        if storage_of(tensor) not in own:
            seen[storage_of(tensor)] = tensor.storage().nbytes()
        return tensor

    images, labels = torch.randn(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        torch.nn.functional.cross_entropy(model(images), labels)
    return sum(seen.values())


def executed(name):
    torch.manual_seed(0)
    model = getattr(torchvision.models, name.replace("-", "_"))().train()
    return saved_bytes(model, 2) - saved_bytes(model, 1)


def described(document):
    return sum(layer["saves"][0] for layer in document["layers"])


def off(name, document, seen):
    error = described(document) / seen - 1
    print(
        f"{name:16s} executed {seen / 2**20:8.2f} MiB a sample, described "
        f"{described(document) / 2**20:8.2f}, {100 * error:+.2f} %",
        flush=True,
    )
    return abs(error) > LIMIT


def main():
    wrong, first = [], None
    for name in MODELS:
        document = json.loads((ROOT / f"workloads/{name}.json").read_text(encoding="utf-8"))
        seen = executed(name)
        if off(name, document, seen):
            wrong.append(name)
        first = first or (name, document, seen)
    # The check can fail: without what its largest layer saves, a model is off.
    name, document, seen = copy.deepcopy(first)
    max(document["layers"], key=lambda layer: layer["saves"][0])["saves"][0] = 0
    print("without one layer: ", end="")
    if not off(name, document, seen):
        wrong.append("a layer that was left out")
    for name in wrong:
        print(f"saved_tensors: {name}: more than {100 * LIMIT:.1f} % off", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
