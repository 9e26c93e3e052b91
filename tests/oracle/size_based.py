#!/usr/bin/env python3
"""Are ddpsim's units those that PyTorch's size_based_auto_wrap_policy makes?

  size_based.py DDPSIM              every question of REAL and NAMED; exit 1 if one differs
  size_based.py DDPSIM --self-test  changes in PyTorch's answer are noticed

PyTorch's own function (torch/distributed/fsdp/wrap.py of the installed torch, loaded as a file: it
needs nothing but torch.nn) wraps a model, and ddpsim shows the Program of the same workload. Both
must have the same units in the order in which a forward enters them, with the same tensors and
elements. REAL are torchvision's models, whose forward is run. NAMED are the others: modules that
are built of the names of a workload's parameters, numbered children once in Sequentials and once
in ModuleLists; without module_lists ddpsim must refuse where the two differ, and only there. A
weight that two units share must be refused.
"""
import importlib.util
import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path

try:
    import torch
    from torch import nn
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "tools/python")]
from executed_steps import quick_weights  # noqa: E402

RANKS = 8

REAL = [  # workload, torchvision's name, side of the image, min_num_params
    ("resnet50", "resnet50", 64, (1, 4096, 10**5, 10**6, 2 * 10**6, 10**7, 10**8)),
    ("vgg16", "vgg16", 64, (10**5, 10**7, 10**8, 2 * 10**8)),
    ("densenet121", "densenet121", 64, (10**5, 10**6, 4 * 10**6)),
    ("vit-b-16", "vit_b_16", 224, (10**6, 3 * 10**6, 5 * 10**6, 10**7, 10**8)),
    ("convnext-tiny", "convnext_tiny", 64, (10**4, 10**6, 5 * 10**6)),
    ("efficientnet-b0", "efficientnet_b0", 64, (10**4, 3 * 10**5, 10**6)),
]
NAMED = [
    ("llama-3.1-8b", (10**6, 5 * 10**7, 10**8, 2 * 10**8, 10**9, 10**10)),
    ("llama-3.2-1b", (10**8, 10**9, 2 * 10**9)),
    ("gpt2-small", (10**6, 3 * 10**6, 5 * 10**7, 10**8, 2 * 10**8)),
    ("bert-base", (10**6, 10**7, 2 * 10**8)),
    ("bert-large-squad", (10**6, 4 * 10**6, 10**7, 10**8)),
    ("mlp784-50-10", (100, 1000, 10**5)),
]


def policy_module():
    path = Path(torch.__file__).parent / "distributed" / "fsdp" / "wrap.py"
    spec = importlib.util.spec_from_file_location("fsdp_wrap", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fsdp_wrap"] = module
    spec.loader.exec_module(module)
    return module


class Unit(nn.Module):
    """Stands for FullyShardedDataParallel."""

    entered = []

    def __init__(self, module):
        super().__init__()
        self._inner = module
        self.name = None

    def forward(self, *args, **kwargs):
        Unit.entered.append(self.name)
        return self._inner(*args, **kwargs)


def plain(name):
    return ".".join(part for part in name.split(".") if part != "_inner")


def wrapped(wrap, model, least):
    """The units, by name: tensors and elements of each; the root is "root"."""
    policy = partial(wrap.size_based_auto_wrap_policy, min_num_params=least)
    wrap._recursive_wrap(model, policy, Unit, set(), set(), only_wrap_children=True)
    units = {"root": []}
    for name, module in model.named_modules():
        if isinstance(module, Unit):
            module.name = plain(name)
            units[module.name] = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        name = plain(name)
        around = [u for u in units if u == "root" or name.startswith(u + ".")]
        inner = max(around, key=lambda u: -1 if u == "root" else len(u))
        units[inner].append((name, parameter))
    return units


def named_parameters_with_duplicates(self, **_):
    for name, module in self.named_modules(remove_duplicate=False):
        for own, parameter in module._parameters.items():
            if parameter is not None:
                yield (f"{name}.{own}" if name else own), parameter


class Model(nn.Module):
    named_parameters = named_parameters_with_duplicates


def real(wrap, name, side, least):
    import torchvision

    with quick_weights():
        model = getattr(torchvision.models, name)(weights=None).eval().to("meta")
    lists = [n for n, m in model.named_modules() if isinstance(m, (nn.ModuleList, nn.ModuleDict))]
    model.__class__ = type("Real", (Model, type(model)), {})
    units = wrapped(wrap, model, least)
    Unit.entered = []
    with torch.no_grad():
        model(torch.zeros(1, 3, side, side, device="meta"))
    return units, ["root", *Unit.entered], ",".join(lists) or "none"


def parameter(shape):
    return nn.Parameter(torch.empty(shape, device="meta"))


def built(document, container):
    """Nested modules of a workload's names; what has numbers for children is a `container`."""
    paths, root = {}, Model()
    for t in document["tensors"]:
        parts = t["name"].split(".")[:-1]
        for i in range(len(parts)):
            paths.setdefault(".".join(parts[: i + 1]), [])
    # A layer that computes with another one's weight.
    ties = []
    for layer in document["layers"]:
        op = layer.get("op", {})
        if not layer["tensors"] and op.get("kind") == "linear":
            parts = layer["name"].split(".")
            for i in range(len(parts)):
                paths.setdefault(".".join(parts[: i + 1]), [])
            shape = [op["outputs"], op["inputs"]]
            ties.append((layer["name"], [t for t in document["tensors"] if t["shape"] == shape]))
    modules = {"": root}
    for path in paths:
        inside = [p.rpartition(".")[2] for p in paths if p.rpartition(".")[0] == path]
        numbered = inside and all(p.isdigit() for p in inside)
        modules[path] = container() if numbered else Model()
    for path, module in modules.items():
        if path:
            up, _, last = path.rpartition(".")
            modules[up].add_module(last, module)
    made = {}
    for t in document["tensors"]:
        up, _, last = t["name"].rpartition(".")
        made[t["name"]] = parameter(t["shape"])
        modules[up].register_parameter(last, made[t["name"]])
    for layer, weights in ties:
        assert len(weights) == 1, layer
        modules[layer].register_parameter("weight", made[weights[0]["name"]])
    return root


def answer(wrap, document, container, least):
    """Units; None where a weight is of two."""
    units = wrapped(wrap, built(document, container), least)
    homes = {}
    for unit, parameters in units.items():
        for _, p in parameters:
            homes.setdefault(id(p), set()).add(unit)
    if any(len(h) > 1 for h in homes.values()):
        return None
    known = {t["name"] for t in document["tensors"]}
    return {u: [(n, p) for n, p in ps if n in known] for u, ps in units.items()}


def order_by_layers(document, units):
    """As a forward enters them, by the layers with parameters."""
    owner = {n: u for u, ps in units.items() for n, _ in ps}
    out = ["root"]
    for layer in document["layers"]:
        for t in layer["tensors"]:
            unit = owner[document["tensors"][t]["name"]]
            for u in sorted(units, key=len):
                if u not in out and (u == unit or unit.startswith(u + ".")):
                    out.append(u)
    return out


def shown(ddpsim, workload, least, lists):
    """ddpsim's units in order of forward: name, tensors, bytes; or what it refuses."""
    argv = [ddpsim, "show", "program", "--workload", workload, "--cluster", "hgx-h100"]
    argv += ["--ranks", str(RANKS), "--format", "json", "--plan", "fsdp"]
    argv += ["--set", "auto_wrap_policy=size_based", "--set", f"min_num_params={least}"]
    argv += ["--set", f"module_lists={lists}"] if lists else []
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode == 2:
        return done.stderr
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: {done.stderr}")
    steps = json.loads(done.stdout)["steps"]
    ops = next(s for s in steps if s["kind"] == "steady")["ops"]
    gathers = [o for o in ops if o["op"].startswith("all_gather/") and "bwd." not in o["op"]]
    return [(o["op"].split("/", 1)[1], sorted(o["tensors"]), o["bytes"]) for o in gathers]


def expected(units, order):
    out = []
    for name in order:
        tensors = sorted(n for n, _ in units[name])
        count = sum(math.prod(p.shape) for _, p in units[name])
        if count:
            out.append((name, tensors, -(-count // RANKS) * RANKS * 4))
    return out


def difference(ours, theirs):
    if isinstance(ours, str):
        return f"refused: {ours.strip()}"
    if [u[0] for u in ours] != [u[0] for u in theirs]:
        return f"units {[u[0] for u in ours]}, PyTorch has {[u[0] for u in theirs]}"
    for a, b in zip(ours, theirs):
        if a[1] != b[1]:
            return f"{a[0]}: of one only: {sorted(set(a[1]) ^ set(b[1]))[:4]}"
        if a[2] != b[2]:
            return f"{a[0]}: {a[2]} B, PyTorch's are {b[2]} B"
    return None


def questions(ddpsim, wrap):
    """What was asked, and how the two differ or None; and the units they agree in."""
    if importlib.util.find_spec("torchvision") is None:
        print("no torchvision: modules built of names alone")
        REAL.clear()
    for workload, name, side, sizes in REAL:
        for least in sizes:
            units, order, lists = real(wrap, name, side, least)
            theirs = expected(units, order)
            ours = shown(ddpsim, workload, least, lists)
            yield f"{workload}, {least}", difference(ours, theirs), len(theirs)
    for workload, sizes in NAMED:
        document = json.loads((ROOT / "workloads" / f"{workload}.json").read_text())
        for least in sizes:
            both = []
            for container, lists in ((nn.ModuleList, "all"), (nn.Sequential, "none")):
                units = answer(wrap, document, container, least)
                ours = shown(ddpsim, workload, least, lists)
                what = f"{workload} of {container.__name__}s, {least}"
                if units is None:
                    unties = isinstance(ours, str) and "unties" in ours
                    yield what, None if unties else f"unties, and ddpsim says {ours}", 0
                    both.append(None)
                    continue
                theirs = expected(units, order_by_layers(document, units))
                yield what, difference(ours, theirs), len(theirs)
                both.append(theirs)
            ours = shown(ddpsim, workload, least, None)
            asks = isinstance(ours, str) and "module_lists" in ours
            if None not in both:
                wrong = None if asks == (both[0] != both[1]) else f"ddpsim asks for lists: {asks}"
                yield f"{workload}, {least}, lists not said", wrong, 0


def self_test(ddpsim, wrap):
    theirs = expected(*real(wrap, "resnet50", 64, 2 * 10**6)[:2])
    ours = shown(ddpsim, "resnet50", 2 * 10**6, "none")
    missed = [] if difference(ours, theirs) is None else ["equal to begin with"]
    plants = [
        theirs[:-1],
        theirs[1:2] + theirs[:1] + theirs[2:],
        [(theirs[0][0], theirs[0][1][1:], theirs[0][2])] + theirs[1:],
        [(theirs[0][0], theirs[0][1], theirs[0][2] + 32)] + theirs[1:],
        expected(*real(wrap, "resnet50", 64, 10**6)[:2]),
    ]
    missed += [k for k, p in enumerate(plants) if difference(ours, p) is None]
    print("self-test:", f"missed {missed}" if missed else f"{len(plants)} changes noticed")
    return 1 if missed else 0


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    wrap = policy_module()
    if sys.argv[2:] == ["--self-test"]:
        return self_test(sys.argv[1], wrap)
    asked = units = failed = 0
    for what, differs, count in questions(sys.argv[1], wrap):
        asked, units = asked + 1, units + count
        if differs:
            failed += 1
            print(f"{what}: {differs[:1500]}")
    print(f"{asked - failed} of {asked} questions, {units} units: as PyTorch wraps them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
