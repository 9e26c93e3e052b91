#!/usr/bin/env python3
"""Ten described models beside their execution on one core of a CPU: forward and backward.

    cpu_steps.py DDPSIM                        the committed times beside what ddpsim says now
    cpu_steps.py DDPSIM --table                the same as a table, with every operator
    cpu_steps.py --execute OUT.json            execute them (one thread; nothing else may run)
    cpu_steps.py DDPSIM --times F --profile P  of another machine

calib/cpu-runs has the operators that the profile was fitted to (tools/python/ddpsim_cpu_ops.py) and
the times of these models, of which the fit saw nothing. The models were chosen before anything was
measured.
"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torchvision") is None:
    print("skipped: PyTorch or torchvision is missing (Debian: python3-torchvision)")
    sys.exit(77)
sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun does; OpenBLAS has threads of its own
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/python"), str(Path(__file__).resolve().parent)]
import ddpsim_describe as describe  # noqa: E402
import ddpsim_record as record  # noqa: E402
import model_zoo as zoo  # noqa: E402
import plain_transformers as plain  # noqa: E402
import torch  # noqa: E402

TIMES = ROOT / "calib/cpu-runs/steps.json"
PROFILE = "cpu-epyc-one-core"
LIMIT = 0.20  # of the median
WORST = 0.25  # of one model: what was found, rounded up
WARM, READINGS = 1, 5


def vision(name, batch, size):
    def make():
        import torchvision

        model = torchvision.models.get_model(name, weights=None).train()
        return model, (torch.randn(batch, 3, size, size),), None

    return make


MODELS = {
    "resnet18": vision("resnet18", 4, 112),
    "vgg11_bn": vision("vgg11_bn", 2, 64),
    "densenet121": vision("densenet121", 4, 64),
    "mobilenet_v2": vision("mobilenet_v2", 4, 112),
    "efficientnet_b0": vision("efficientnet_b0", 4, 112),
    "unet": lambda: (zoo.UNet(16, 3), (torch.randn(4, 3, 64, 64),), zoo.segmented),
    "vit": lambda: (zoo.PlainViT(112, 16, 192, 3, 6), (torch.randn(4, 3, 112, 112),), None),
    "gpt2": zoo.of_tokens(lambda: plain.Gpt2(3, 256, 4, 128, 5000), 4, 128, 5000),
    "bert": zoo.bert_of(4, 256, 4, 5000, 4, 128),
    "gnn": zoo.graph(64, 128, 3, 2000, 10000, 1),
}


# ---- executed


def execute(name):
    """Picoseconds of core time of forward and backward, each of several steps."""
    torch.manual_seed(1)
    model, inputs, loss_fn = MODELS[name]()
    parameters = [p for p in model.parameters() if p.requires_grad]
    inputs = describe.cap.as_inputs(inputs)
    step = describe.cap.Step(
        model, inputs, None, loss_fn, None, "fp32", torch.device("cpu"), parameters
    )  # fmt: skip
    out = {"forward_ps": [], "backward_ps": []}
    for k in range(WARM + READINGS):
        for p in parameters:
            p.grad = None
        a = time.process_time_ns()
        loss = step.loss()
        b = time.process_time_ns()
        loss.backward()
        c = time.process_time_ns()
        del loss
        if k >= WARM:
            out["forward_ps"].append((b - a) * 1000)
            out["backward_ps"].append((c - b) * 1000)
    with torch.profiler.profile() as seen:
        step.loss().backward()
    out["operators_us"] = {
        e.key: round(e.self_cpu_time_total)
        for e in sorted(seen.key_averages(), key=lambda e: -e.self_cpu_time_total)[:16]
    }
    return out


def execute_all(path):
    torch.set_num_threads(1)
    record.keep_memory()
    record.touch_memory(1 << 30)
    source = describe.cap.describe_source()
    out = {key: source[key] for key in ("cpu", "date", "torch_blas") if key in source}
    out["software"] = f"PyTorch {torch.__version__}, 1 thread, freed memory kept, core time"
    out["models"] = {name: execute(name) for name in MODELS}
    describe.cap.write_whole(path, json.dumps(out, indent=1) + "\n")


# ---- described


def described(name):
    torch.manual_seed(1)
    model, inputs, loss_fn = MODELS[name]()
    args = describe.parse(["--factory", f"cpu_steps.py:{name}", "--out", f"{name}.json"])
    made = describe.Made(model, describe.cap.as_inputs(inputs), loss_fn, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return describe.describe(made, args).workload


def predicted(ddpsim, profile, name, folder):
    """(forward, backward) in picoseconds."""
    path = Path(folder) / f"{name}.json"
    path.write_text(json.dumps(described(name)), encoding="utf-8")
    command = [ddpsim, "predict", "--workload", str(path), "--cluster", "ethernet-10g"]
    command += ["--profile", profile, "--ranks", "1", "--plan", "averaging", "--format", "json"]
    env = dict(os.environ, DDPSIM_HOME=str(ROOT))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        sys.exit(done.stderr)
    summary = json.loads(done.stdout)["summary"]
    return summary["forward_ps"], summary["backward_ps"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ddpsim", nargs="?")
    parser.add_argument("--execute", type=Path)
    parser.add_argument("--times", type=Path, default=TIMES)
    parser.add_argument("--profile", default=PROFILE)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.execute:
        execute_all(args.execute)
        return 0
    times = json.loads(args.times.read_text(encoding="utf-8"))["models"]
    errors = {}
    print("model             executed ms           predicted ms          error %")
    print("                  forward   backward    forward   backward    both")
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            t = times[name]
            real = [median(t[f"{d}_ps"]) for d in ("forward", "backward")]
            said = predicted(args.ddpsim, args.profile, name, folder)
            errors[name] = sum(said) / sum(real) - 1
            numbers = "   ".join(f"{x / 1e9:9.1f}" for x in (*real, *said))
            print(f"{name:15s} {numbers}   {100 * errors[name]:+6.1f}")
            if args.table:
                rows = t["operators_us"].items()
                print("    " + ", ".join(f"{op} {us / 1e3:.1f}" for op, us in rows))
    sizes = [abs(e) for e in errors.values()]
    print(f"median {100 * median(sizes):.1f} %, largest {100 * max(sizes):.1f} %")
    return 0 if median(sizes) <= LIMIT and max(sizes) <= WORST else 1


if __name__ == "__main__":
    sys.exit(main())
