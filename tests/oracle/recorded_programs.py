#!/usr/bin/python3
"""Is what `lower()` makes what PyTorch does? Real training scripts are recorded as one rank of many
(tools/python/ddpsim_record_program.py), in this process and without a network, and `ddpsim compare`
holds the lowered Program against each recording: operation, bytes, dtype, tensors in their order,
and the gradient that each collective waits for, in every kind of step.

  recorded_programs.py DDPSIM        77 = no PyTorch here
"""
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/cli")]
import warm_python  # noqa: E402
from forked import Forks  # noqa: E402

RECORDER = ROOT / "tools/python/ddpsim_record_program.py"

MODEL = """
import sys
sys.path.insert(0, {python!r})
import torch, torch.distributed as dist
torch.manual_seed(0)
dist.init_process_group("nccl")
if {factory!r}:
    import example_models
    made = getattr(example_models, {factory!r})()
    model, inputs, loss = made[0], made[1], made[2]
    def ask(m):
        out = m(*inputs) if isinstance(inputs, tuple) else m(inputs)
        return loss(out) if loss else out.float().pow(2).mean()
else:
    import torchvision
    model = getattr(torchvision.models, {torchvision!r})()
    x = torch.randn(2, 3, 64, 64)
    ask = lambda m: m(x).sum()
"""
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
for _ in range(8):
    optimizer.zero_grad(set_to_none=False)
    for micro in range({micro_steps}):
        {before}
        ask(model).backward()
    {after}
    optimizer.step()
    schedule.step()
"""
DDP = """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
model = torch.nn.parallel.DistributedDataParallel(model, {arguments})
{hook}
"""
AVERAGE = "[dist.all_reduce(p.grad) for p in model.parameters()]"

# name: torchvision's model or ours, workload, arguments of DDP (None: averaging), hook, --set
# lines; micro-steps, what each begins with
CASES: dict = {
    "resnet18": ("resnet18", "", "resnet18-cpu", "bucket_cap_mb=5", "", ["bucket_cap_mb=5"]),
    "mobilenet_v2, no buffers": (
        "mobilenet_v2", "", "mobilenet-v2-cpu", "bucket_cap_mb=2, broadcast_buffers=False", "",
        ["bucket_cap_mb=2", "broadcast_buffers=false"],
    ),
    "gpt, view": (
        "", "gpt", "gpt-cpu", "bucket_cap_mb=4, gradient_as_bucket_view=True", "",
        ["bucket_cap_mb=4", "gradient_as_bucket_view=true"],
    ),
    "mlp, fp16": (
        "", "mlp", "mlp-cpu", "",
        "model.register_comm_hook(None, default_hooks.fp16_compress_hook)",
        ["comm_hook=fp16_compress"],
    ),
    "cnn, averaged": ("", "cnn", "cnn-cpu", None, "", []),
    "resnet18, each of 3 micro-steps reduces": (
        "resnet18", "", "resnet18-cpu", "bucket_cap_mb=5", "",
        ["bucket_cap_mb=5", "accumulation_steps=3", "no_sync=false"], 3,
    ),
    "gpt, view, each of 2 reduces": (
        "", "gpt", "gpt-cpu", "bucket_cap_mb=4, gradient_as_bucket_view=True", "",
        ["bucket_cap_mb=4", "gradient_as_bucket_view=true", "accumulation_steps=2",
         "no_sync=false"], 2,
    ),
    "resnet18, static, each of 2 reduces": (
        "resnet18", "", "resnet18-cpu", "static_graph=True", "",
        ["static_graph=true", "accumulation_steps=2", "no_sync=false"], 2,
    ),
    "mlp, 3 micro-steps of which the last reduces": (
        "", "mlp", "mlp-cpu", "", "", ["accumulation_steps=3"], 3,
        "model.require_backward_grad_sync = micro == 2",
    ),
}

ZERO = """
import torch, torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.Linear(200, 50))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(2, 100)).sum().backward()
    optimizer.step()
"""
FROZEN = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(12)))
for i in (0, 1, 4, 5, 9):
    model[i].requires_grad_(False)
model[7].bias.requires_grad_(False)
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
for _ in range(8):
    optimizer.zero_grad(set_to_none=False)
    model(torch.randn(2, 300)).sum().backward()
    optimizer.step()
"""
SHARDS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
n, rank = dist.get_world_size(), dist.get_rank()
layers = [torch.nn.Linear(64, 64, bias=False) for _ in range(2)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
pair = dist.new_group([0, 1])
for _ in range(8):
    optimizer.zero_grad()
    for p in model.parameters():
        full, shard = torch.empty(p.numel()), p.detach().reshape(-1).chunk(n)[rank]
        dist._all_gather_base(full, shard)
    model(torch.randn(2, 64)).sum().backward()
    for p in model.parameters():
        shard = torch.empty(p.numel() // n)
        work = dist._reduce_scatter_base(shard, p.grad.reshape(-1), async_op=True)
        work.wait()
    dist.all_reduce(torch.zeros(1), group=pair)
    optimizer.step()
"""
REFUSED = {
    "one = 1": "neither called",
    "import torch.distributed as d\nd.init_process_group('nccl', world_size=3, rank=0)":
        "world_size 3",
    "import torch, torch.distributed as d\nd.init_process_group('nccl')\nd.recv(torch.zeros(1))": (
        "whichever rank sends first"
    ),
    "import torch.distributed as d\nd.init_process_group('nccl')\nraise ValueError('mine')": (
        "ValueError: mine"
    ),
    "import torch.distributed as d\nd.init_process_group('nccl')": "without a step",
}

failures = []


@functools.cache
def forks():
    return Forks(("torch", "torch.distributed", "torchvision"))


def expect(what, condition, why=""):
    if not condition:
        failures.append(f"{what}: {why}")


def record(folder, script, ranks=4, rank=0, steps=4):
    (folder / "train.py").write_text(script)
    out = folder / "recorded.json"
    out.unlink(missing_ok=True)
    asked = {"--ranks": ranks, "--rank": rank, "--steps": steps, "--out": out}
    argv = [RECORDER, *(word for pair in asked.items() for word in pair), folder / "train.py"]
    argv = list(map(str, argv))
    status, said = forks().start(argv, dict(os.environ), folder).result()
    done = subprocess.CompletedProcess(argv, status, "", said)
    return done, json.loads(out.read_text()) if out.exists() else None


def run(ddpsim, *asked, sets=()):
    knobs = [word for s in sets for word in ("--set", s)]
    return subprocess.run([ddpsim, *asked, *knobs], capture_output=True, text=True)


def compared(ddpsim, folder, name, workload, cluster, sets, *plan):
    """The recording with the lowered Program."""
    asked = ["--workload", workload, "--cluster", cluster, "--ranks", "4", "--format", "json"]
    listed = run(ddpsim, "show", "program", *asked, *plan, sets=sets)
    expect(name, listed.returncode == 0, listed.stderr)
    (folder / "lowered.json").write_text(listed.stdout)
    return run(ddpsim, "compare", *(str(folder / f"{w}.json") for w in ("lowered", "recorded")))


def against_lowered(ddpsim, folder):
    for name, case in CASES.items():
        torchvision, factory, workload, ddp, hook, sets = case[:6]
        micro_steps, before = [*case[6:], *(1, "pass")[len(case) - 6 :]]
        script = MODEL.format(
            python=str(ROOT / "tools/python"), factory=factory, torchvision=torchvision
        )
        if ddp is not None:
            script += DDP.format(arguments=ddp, hook=hook)
        script += LOOP.format(
            before=before, micro_steps=micro_steps, after=AVERAGE if ddp is None else ""
        )
        done, program = record(folder, script)
        expect(name, program is not None, done.stderr[-2000:])
        if program is None:
            continue
        unknown = [o for s in program["steps"] for o in s["ops"] if o.get("unrecognised_elements")]
        lost = [o["op"] for o in unknown if o["dtype"] not in ("int32", "int64")]
        expect(name, not lost, f"tensors of {lost} were not recognised")

        plan = ["--plan", "averaging"] if ddp is None else ["--set", "pytorch=1.13"]
        sets = [*sets, "set_to_none=false"]
        plays(ddpsim, folder, name, program)
        same = compared(ddpsim, folder, name, workload, "testbed-torch", sets, *plan)
        expect(name, same.returncode == 0, same.stdout + same.stderr)
        if ddp is not None:
            against_described(ddpsim, folder, name)
            sets += ["bucket_cap_mb=100", "first_bucket_bytes=10000"]
            other = compared(ddpsim, folder, name, workload, "testbed-torch", sets, *plan)
            noticed = other.returncode == 1 and "only in the" in other.stdout
            expect(name, noticed, f"another bucket size was not noticed: {other.stdout}")


def against_described(ddpsim, folder, name):
    """The script that was recorded last, described without running it on data: the plan that it
    says and its gradients make the collectives that it makes."""
    where = folder / "described.json"
    asked = ["--script", str(folder / "train.py"), "--ranks", "4", "-o", str(where)]
    done = run(ddpsim, "describe", *asked)
    expect(name, done.returncode == 0, done.stderr)
    if done.returncode:
        return
    plan = json.loads(where.read_text())["source"]["plan"]
    sets = ["set_to_none=false"]
    for knob, value in {**plan, "pytorch": "1.13"}.items():
        sets.append(f"{knob}={value if isinstance(value, str) else json.dumps(value)}")
    same = compared(ddpsim, folder, name, str(where), "hgx-h100", sets)
    # A described layer's gradients are one operation: which of them came last is not told apart.
    _, _, table = same.stdout.partition("difference\n")
    fine = ("waits for the gradient", "order of gradients")
    rest = [line for line in table.splitlines() if not any(words in line for words in fine)]
    whole = same.returncode in (0, 1) and "collectives of 4 steps" in same.stdout
    expect(f"{name}, described", whole and not rest, same.stdout + same.stderr)


def of_frozen(ddpsim, folder):
    """No collective of a step carries a frozen parameter, and the described one makes the same."""
    done, program = record(folder, FROZEN)
    expect("frozen", program is not None, done.stderr)
    if not program:
        return
    frozen = {f"{i}.{kind}" for i in (0, 1, 4, 5, 9) for kind in ("weight", "bias")} | {"7.bias"}
    carried = {t for s in program["steps"] for o in comm(s) for t in o["tensors"]}
    trained = {f"{i}.{k}" for i in range(12) for k in ("weight", "bias")} - frozen
    expect("frozen", carried == trained, sorted(carried ^ trained))
    against_described(ddpsim, folder, "frozen")
    said = json.loads((folder / "described.json").read_text())
    expect("frozen", {t["name"] for t in said["frozen"]} == frozen, said["frozen"])


def predicted(ddpsim, folder, cluster):
    """Predicts what was recorded last."""
    asked = ["--program", str(folder / "recorded.json"), "--cluster", cluster]
    return run(ddpsim, "predict", *asked)


def plays(ddpsim, folder, name, program):
    """A recording is predicted as it is, and its optimizer updates what has been reduced."""
    answer = predicted(ddpsim, folder, "testbed-torch")
    expect(name, answer.returncode == 0, answer.stderr)
    said = "of the machine that recorded the program (PyTorch"
    expect(name, said in answer.stdout, answer.stdout)
    for step in program["steps"]:
        seen = {w for o in step["ops"] for w in o["waits_for"]}
        lost = [o["op"] for o in comm(step) if o["op"] not in seen]
        expect(name, not lost, f"nobody waits for {lost}")


def comm(step):
    return [o for o in step["ops"] if o["lane"] == "comm"]


def of_other_systems(ddpsim, folder):
    done, program = record(folder, ZERO)
    expect("zero", program is not None, done.stderr)
    if program:
        last = [o for o in comm(program["steps"][-1]) if o["operation"] == "broadcast"]
        sent = sorted(t for o in last for t in o["tensors"])
        every = sorted(t["name"] for t in program["tensors"])
        expect("zero", sent == every, f"broadcasts of {last}")
    for rank in (0, 3):
        done, program = record(folder, SHARDS, rank=rank)
        expect("shards", program is not None, done.stderr)
        if not program:
            continue
        ops = comm(program["steps"][-1])
        order = ["all_gather"] * 2 + ["reduce_scatter"] * 2 + ["all_reduce"] * (rank < 2)
        expect("shards", [o["operation"] for o in ops] == order, ops)
        part = f"0.weight[{1024 * rank}:{1024 * rank + 1024}]"
        expect("shards", ops[0]["tensors"] == [part], ops[0])
        expect("shards", ops[0]["bytes"] == 16384 and ops[2]["bytes"] == 16384, ops)
        expect("shards", ops[2]["tensors"] == ["0.weight"] and not ops[2]["async"], ops[2])
        answer = predicted(ddpsim, folder, "hgx-h100")
        if rank < 2:
            expect("shards", ops[-1]["group"] == [0, 1], ops[-1])
            said = " ".join(answer.stdout.split())
            expect("shards", "ranks 0,1 communicate, all groups of 2 ranks, 1 apart" in said, said)
        expect("shards", answer.returncode == 0, answer.stderr)


def refusals(folder):
    for script, sentence in REFUSED.items():
        done, program = record(folder, script)
        expect(script, done.returncode == 2 and program is None, f"rc {done.returncode}")
        lines = done.stderr.strip().splitlines()
        expect(script, len(lines) == 1 and sentence in lines[0], done.stderr)


def main():
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torchvision") is None:
        print("skipped: no PyTorch, or no torchvision")
        return 77
    with tempfile.TemporaryDirectory() as temporary, warm_python.folder() as warm:
        os.environ["PATH"] = f"{warm}:{os.environ['PATH']}"
        # The C library keeps what is freed: recognising tensors makes and frees many large ones.
        os.environ.update(MALLOC_MMAP_THRESHOLD_=str(1 << 25), MALLOC_TRIM_THRESHOLD_=str(1 << 30))
        against_lowered(sys.argv[1], Path(temporary))
        of_frozen(sys.argv[1], Path(temporary))
        of_other_systems(sys.argv[1], Path(temporary))
        refusals(Path(temporary))
    for f in failures:
        print(f)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
