#!/usr/bin/env python3
"""What a training script does besides the model that is described: nothing is dropped in silence.
Operations, bytes and parameters that a script is seen to have when it runs are those of its
workload, or are named there.

  own_work.py DDPSIM [unittest's arguments]
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import describe
from describe import Case

ROOT = Path(__file__).resolve().parents[2]
COUNTED = ROOT / "tests/support/counted_script.py"
SCRIPTS = ROOT / "tests/data/scripts"
RANKS = 4

HEAD = """
import contextlib, copy, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
torch.manual_seed(0)
dev = "cuda" if torch.cuda.is_available() else "cpu"
class Net(nn.Module):
    def __init__(self, width=48, out=12):
        super().__init__()
        self.a, self.b = nn.Linear(32, width), nn.Linear(width, out)
    def forward(self, x): return self.b(torch.relu(self.a(x)))
data = torch.utils.data.TensorDataset(torch.randn(4000, 32), torch.randn(4000, 12))
loader = torch.utils.data.DataLoader(data, batch_size=10)
def frozen(net):
    for p in net.parameters(): p.requires_grad_(False)
    return net.to(dev)
model = Net().to(dev)
"""
OPTIMIZER = "o = torch.optim.SGD(model.parameters(), lr=0.1)\n"
# Micro-steps of a step; the loop's body.
LAW = {
    "accumulates with a teacher": (3, """
t = frozen(Net(64))
m = DDP(model)
for i, (x, y) in enumerate(loader):
    x = x.to(dev)
    with torch.no_grad(): soft = t(x)
    (m(x) - soft).square().mean().backward()
    if i % 3 == 2: o.step(); o.zero_grad()
"""),
    "a flag, and an average of weights": (2, """
m = DDP(model)
ema = frozen(copy.deepcopy(model))
for i, (x, y) in enumerate(loader):
    m.require_backward_grad_sync = i % 2 == 1
    (m(x.to(dev)) - y.to(dev)).square().mean().backward()
    if i % 2 == 0: continue
    o.step(); o.zero_grad()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters()): p.mul_(0.9).add_(q, alpha=0.1)
"""),
    "forward outside of no_sync": (2, """
m = DDP(model)
for i, (x, y) in enumerate(loader):
    loss = (m(x.to(dev)) - y.to(dev)).square().mean()
    with m.no_sync(): loss.backward()
    if i % 2 == 0: continue
    o.step(); o.zero_grad()
    seen = torch.ones(7, device=dev); dist.all_reduce(seen)
"""),
    "all_reduce in forward, and isnan": (1, """
class Own(Net):
    def forward(self, x):
        z = super().forward(x); c = z.T @ z
        dist.all_reduce(c)
        return z @ c
model = Own().to(dev)
o = torch.optim.SGD(model.parameters(), lr=0.1)
m = DDP(model)
for x, y in loader:
    loss = (m(x.to(dev)) - y.to(dev)).square().mean() * 1e-6
    if torch.isnan(loss).any(): break
    o.zero_grad(); loss.backward(); o.step()
"""),
    "contrastive, with a barrier": (1, """
m = DDP(model)
for x, y in loader:
    z = m(x.to(dev))
    them = [torch.zeros_like(z) for _ in range(dist.get_world_size())]
    dist.all_gather(them, z.detach())
    o.zero_grad(); (z @ torch.cat(them).T).square().mean().backward(); o.step()
    dist.barrier()
"""),
    "averages by hand, teacher and average": (1, """
t, ema = frozen(Net(20)), frozen(copy.deepcopy(model))
for x, y in loader:
    x = x.to(dev)
    with torch.no_grad(): soft = t(x)
    loss = (model(x) - soft).square().mean()
    o.zero_grad(); loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad); p.grad.div_(dist.get_world_size())
    o.step()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters()): p.lerp_(q, 0.1)
    loss.item()
"""),
    "averages flat, and the loss": (1, """
for x, y in loader:
    loss = (model(x.to(dev)) - y.to(dev)).square().mean()
    o.zero_grad(); loss.backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    o.step()
    mean = loss.detach().clone(); dist.all_reduce(mean); print(f"{mean:.3f} {float(mean)}")
"""),
    "a network in the loss, and a broadcast": (1, """
judge = frozen(nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 1)))
m = DDP(model)
rate = torch.ones(3, device=dev)
for x, y in loader:
    dist.broadcast(rate, 0)
    o.zero_grad(); judge(m(x.to(dev))).mean().backward(); o.step()
"""),
    "some ranks, and messages": (1, """
m = DDP(model)
pair = dist.new_group([0, 1])
for x, y in loader:
    o.zero_grad(); (m(x.to(dev)) - y.to(dev)).square().mean().backward(); o.step()
    one = torch.ones(20, device=dev)
    dist.all_reduce(one, group=pair); dist.reduce(one, 0); dist.send(one, 1)
    if dist.get_rank() == 0: print(one.sum().item())
"""),
    "asynchronous, all to all, no_sync": (2, """
m = DDP(model)
for i, (x, y) in enumerate(loader):
    with m.no_sync() if i % 2 == 0 else contextlib.nullcontext():
        (m(x.to(dev)) - y.to(dev)).square().mean().backward()
    if i % 2 == 0: continue
    o.step(); o.zero_grad()
    one, two = torch.ones(16, device=dev), torch.zeros(16, device=dev)
    work = dist.all_reduce(one, async_op=True)
    dist.all_to_all_single(two, one); work.wait()
"""),
}  # fmt: skip


def sets_of(plan):
    flags = []
    for knob, value in plan.items():
        flags += ["--set", f"{knob}={value if isinstance(value, str) else json.dumps(value)}"]
    return flags


class Law(Case):
    def counted(self):
        """Of script.py, as it runs."""
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            ["python3", COUNTED, "script.py", str(RANKS), "seen.json", "recorded.json"],
            cwd=self.folder, env=env, capture_output=True, text=True, timeout=250,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / "seen.json").read_text())

    def described(self):
        flags = ["--script", "script.py", "--ranks", RANKS, "-o", "mine.json"]
        self.said = self.answer("describe", *flags).stderr
        return json.loads((self.folder / "mine.json").read_text())

    def sent(self, workload, plan):
        """Bytes of each kind of collective in a steady step."""
        listed = self.answer(
            "show", "program", "--workload", "mine.json", "--cluster", "hgx-h100", "--ranks",
            RANKS, "--format", "json", *sets_of(plan),
        )  # fmt: skip
        (self.folder / "lowered.json").write_text(listed.stdout)
        out = {}
        for op in json.loads(listed.stdout)["steps"][-1]["ops"]:
            if "operation" in op:
                out[op["operation"]] = out.get(op["operation"], 0) + op["bytes"]
        for named in workload.get("not_counted", ()):
            found = re.match(r"\d+ (\w+( among \d+ ranks)?) in each step", named["what"])
            if found:
                out[found[1]] = out.get(found[1], 0) + named["bytes"]
        return out

    def test_what_is_seen_is_in_the_workload_or_named(self):
        for what, (micro_steps, body) in LAW.items():
            with self.subTest(what):
                (self.folder / "script.py").write_text(HEAD + OPTIMIZER + body)
                seen, mine = self.counted(), self.described()
                plan = mine["source"]["plan"]
                self.assertEqual(plan.get("accumulation_steps", 1), micro_steps)
                named = mine.get("not_counted", [])
                flops = sum(
                    layer[d]["flops_per_sample"] for layer in mine["layers"]
                    for d in ("forward", "backward")
                ) * mine["batch"] * micro_steps + sum(n.get("flops", 0) for n in named)  # fmt: skip
                self.assertEqual(flops, seen["flops"])
                held = sum(n["bytes"] for n in named if n["what"].startswith("memory of"))
                for t in mine["tensors"] + mine["buffers"]:
                    count = 4
                    for extent in t["shape"]:
                        count *= extent
                    held += count
                self.assertEqual(held, seen["weights"])
                plan = {**plan, "pytorch": "1.13", "set_to_none": True}
                self.assertEqual(self.sent(mine, plan), seen["sent"], self.said)

    def test_said_by_every_answer_as_by_describe(self):
        """In text and in JSON."""
        for what in ("accumulates with a teacher", "some ranks, and messages"):
            (self.folder / "script.py").write_text(HEAD + OPTIMIZER + LAW[what][1])
            mine = self.described()
            question = ["predict", "--workload", "mine.json", "--cluster", "hgx-h100"]
            text = " ".join(self.answer(*question).stdout.split())
            answer = json.loads(self.answer(*question, "--format", "json").stdout)
            self.assertTrue(mine["not_counted"])
            for left in mine["not_counted"]:
                self.assertIn(f"not counted: {left['what']}", self.said)
                self.assertIn(f"not counted: {left['what']}", text)
                said = " ".join(answer["summary"]["extrapolated"])
                self.assertIn(f"not counted: {left['what']}", said)
                for command in ("explain", "tune"):
                    other = self.answer(command, *question[1:], "--format", "json")
                    notes = " ".join(json.loads(other.stdout)["notes"])
                    self.assertIn(f"not counted: {left['what']}", notes, command)
            version = mine["described_with"]["pytorch"]
            if not version.startswith("2.7"):
                self.assertIn(f"operators are those of PyTorch {version}", text)


ACCUMULATES = HEAD + OPTIMIZER + """
m = WRAP
for i, (x, y) in enumerate(loader):
    last = i % 4 == 3
    def loss(): return (m(x.to(dev)) - y.to(dev)).square().mean()
    BODY
    if last: o.step(); o.zero_grad()
"""
DDP_WRAP = "DDP(model)"
FSDP = "__import__('torch.distributed.fsdp').distributed.fsdp.FullyShardedDataParallel(model)"
FSDP2 = FSDP.replace("distributed.fsdp", "distributed._composable.fsdp")
FSDP2 = FSDP2.replace("FullyShardedDataParallel", "fully_shard")
EACH = "loss().backward()"
INSIDE = "with contextlib.nullcontext() if last else m.no_sync(): loss().backward()"
BACKWARD_ONLY = """l = loss()
    with contextlib.nullcontext() if last else m.no_sync(): l.backward()"""
FORWARD_ONLY = """with contextlib.nullcontext() if last else m.no_sync(): l = loss()
    l.backward()"""
FLAG = "m.require_backward_grad_sync = last; loss().backward()"
SYNC = "m.set_requires_gradient_sync(last); loss().backward()"


class NoSync(Case):
    """DDP reads its flag in forward, FSDP in backward."""

    def plan(self, wrap, body):
        script = ACCUMULATES.replace("WRAP", wrap).replace("BODY", body)
        (self.folder / "script.py").write_text(script)
        mine = json.loads(self.answer("describe", "--script", "script.py").stdout)
        plan = mine["source"]["plan"]
        self.assertEqual(plan["accumulation_steps"], 4)
        return plan.get("no_sync"), " ".join(mine["source"]["notes"])

    def test_each_way(self):
        for wrap, body, expected in [
            (DDP_WRAP, EACH, False), (DDP_WRAP, INSIDE, None), (DDP_WRAP, FLAG, None),
            (DDP_WRAP, BACKWARD_ONLY, False), (DDP_WRAP, FORWARD_ONLY, None),
            (FSDP, EACH, None), (FSDP, INSIDE, True), (FSDP, BACKWARD_ONLY, True),
            (FSDP, FORWARD_ONLY, None), (FSDP2, EACH, None), (FSDP2, SYNC, True),
        ]:  # fmt: skip
            with self.subTest(f"{wrap}: {body}"):
                self.assertEqual(self.plan(wrap, body)[0], expected)

    def test_some_of_them(self):
        some = EACH.replace("loss", "m.require_backward_grad_sync = i % 4 > 0; loss")
        found, said = self.plan(DDP_WRAP, some)
        self.assertIs(found, False)
        self.assertIn("3 of 4 backward passes", said)

    def test_none_of_them(self):
        for body in ("m.require_backward_grad_sync = False; loss().backward()",
                     "(m.module(x.to(dev)) - y.to(dev)).square().mean().backward()"):  # fmt: skip
            text = ACCUMULATES.replace("WRAP", DDP_WRAP).replace("BODY", body)
            (self.folder / "script.py").write_text(text)
            self.refused("describe", "--script", "script.py", says=["no backward pass"])

    def test_predicted_as_it_is_and_the_lever(self):
        (self.folder / "script.py").write_text((SCRIPTS / "no_sync.py").read_text())
        steps = {}
        for mode in ("plain", "flag", "inside", "outside"):
            done = self.answer(
                "predict", "--script", "script.py", "--cluster", "gpu-ethernet-10g", "--ranks",
                "16", "--format", "json", "--", mode,
            )  # fmt: skip
            steps[mode] = json.loads(done.stdout)["summary"]["step_ps"]
        self.assertEqual(steps["flag"], steps["inside"])
        self.assertEqual(steps["plain"], steps["outside"])
        self.assertGreater(steps["plain"], 5 * steps["inside"])
        text = self.answer(
            "predict", "--script", "script.py", "--cluster", "gpu-ethernet-10g", "--ranks", "16",
            "--", "plain",
        ).stdout  # fmt: skip
        self.assertIn("with no_sync() around micro-steps but the last  [--set no_sync=true]", text)
        self.assertIn("each of which reduces", " ".join(text.split()))
        # The file is asked as the script is; --set and --plan take the place of its knobs.
        self.answer(
            "describe", "--script", "script.py", "--ranks", "16", "-o", "mine.json", "--", "plain"
        )
        question = ("--workload", "mine.json", "--cluster", "gpu-ethernet-10g", "--ranks", "16",
                    "--set", "cluster.hosts=16")  # fmt: skip

        def step(*more):
            done = self.answer("predict", *question, "--format", "json", *more)
            return json.loads(done.stdout)["summary"]["step_ps"], done.stderr

        of_file, said = step()
        self.assertEqual(of_file, steps["plain"])
        self.assertIn("accumulation_steps=8, no_sync=false", said)
        self.assertEqual(step("--set", "no_sync=true")[0], steps["inside"])
        for other in (("--plan", "pytorch_ddp"), ("--set", "plan.system=pytorch_ddp")):
            alone, said = step(*other)
            self.assertLess(alone, steps["inside"])
            self.assertIn("left out, since another plan is named: accumulation_steps=8", said)


class Beside(Case):
    def described(self, name, *arguments, ranks=8):
        (self.folder / "script.py").write_text((SCRIPTS / name).read_text())
        flags = ["--script", "script.py", "--ranks", ranks, "-o", "mine.json"]
        self.said = self.answer("describe", *flags, "--", *arguments).stderr
        return json.loads((self.folder / "mine.json").read_text())

    def step(self, *sets):
        flags = ["--workload", "mine.json", "--cluster", "gpu-ethernet-10g", "--format", "json"]
        for s in sets:
            flags += ["--set", s]
        return json.loads(self.answer("predict", *flags).stdout)["summary"]

    def test_collectives_in_forward(self):
        self.described("in_forward.py", "none")
        plain = self.step()["step_ps"]
        mine = self.described("in_forward.py", "reduce")
        (reduced,) = mine["loop"]["collectives"]
        self.assertEqual((reduced["operation"], reduced["when"]), ("all_reduce", "forward"))
        self.assertEqual(reduced["bytes_fixed"], 1 << 28)
        said = "own all_reduce of 256 MiB is predicted between forward and backward"
        self.assertIn(said, self.said)
        more = self.step()["step_ps"] - plain
        self.assertGreater(more, 2 * 0.875 * (1 << 28) * 8 / 10e9 * 1e12)  # a ring's share
        mine = self.described("in_forward.py", "gather")
        (gathered,) = mine["loop"]["collectives"]
        self.assertEqual((gathered["operation"], gathered["bytes_per_sample"]),
                         ("all_gather", 32768))  # fmt: skip
        self.assertIn("is of 8 ranks", self.said)
        mine = self.described("in_forward.py", "sync")
        self.assertEqual(mine["source"]["plan"], {"sync_batch_norm": True})
        self.assertGreater(self.step("sync_batch_norm=true")["step_ps"], plain)

    def test_a_teacher_and_an_average(self):
        mine = self.described("teacher.py")
        beside = [layer for layer in mine["layers"] if layer["name"].startswith("beside/")]
        own = [layer for layer in mine["layers"] if layer not in beside]
        forward = [sum(x["forward"]["flops_per_sample"] for x in each) for each in (beside, own)]
        self.assertEqual(*forward)  # the same network
        self.assertEqual([x for x in beside if x["tensors"] or x["backward"]["kernels"]], [])
        weights = sum(n["bytes"] for n in mine["not_counted"])
        update = mine["loop"]["own_update"]
        self.assertEqual(update["bytes"], 20 * sum(4 * n for n in sizes(mine)) // 4)
        self.assertGreaterEqual(weights, 4 * sum(sizes(mine)))
        self.assertTrue(mine["loop"]["loss_item"])
        for words in ("of ResNet forward", "are updated in each step", "not counted: memory"):
            self.assertIn(words, self.said)

    def test_what_is_printed_ends_nothing(self):
        mine = self.described("formatted.py", ranks=4)
        self.assertEqual(mine["loop"], {"loss_item": True})
        self.assertIn("top1 1.00", self.said)

    def test_waits_in_front_of_backward(self):
        for line, loop in [
            ("if not torch.isfinite(loss): raise SystemExit", {"forward_item": True}),
            ("if loss.item() > 1e9: break", {"forward_item": True}),
            ("loss.detach().cpu()", {"forward_item": True}),
            ("torch.cuda.synchronize()", {"forward_item": True}),
            ("torch.where(torch.isnan(loss), 0.0, 1.0)", None),
        ]:
            body = "m = DDP(model)\nfor x, y in loader:\n    loss = (m(x.to(dev)) -"
            body += f" y.to(dev)).square().mean()\n    {line}\n    o.zero_grad(); loss.backward()"
            (self.folder / "script.py").write_text(HEAD + OPTIMIZER + body + "; o.step()\n")
            mine = json.loads(self.answer("describe", "--script", "script.py").stdout)
            with self.subTest(line):
                self.assertEqual(mine.get("loop"), loop)


def sizes(workload):
    out = []
    for t in workload["tensors"]:
        count = 1
        for extent in t["shape"]:
            count *= extent
        out.append(count)
    return out


ASKS = """
import torch.nn.functional as F
try: from torch.nn.attention import no_such_context
except ImportError: pass
Norm = getattr(nn, "NoSuchNorm", nn.LayerNorm)
if hasattr(F, "no_such_attention") or hasattr(torch, "_private") or hasattr(torch, "__dunder__"):
    raise SystemExit("there is none")
m = DDP(model)
for x, y in loader:
    o.zero_grad(); (m(x.to(dev)) - y.to(dev)).square().mean().backward(); o.step()
"""


class Version(Case):
    def test_what_this_pytorch_lacks(self):
        (self.folder / "script.py").write_text(HEAD + OPTIMIZER + ASKS)
        done = self.answer("describe", "--script", "script.py", "-o", "mine.json")
        found = json.loads((self.folder / "mine.json").read_text())["described_with"]
        absent = [name for name in found["absent"] if name != "torch.nn.attention"]
        self.assertEqual([n for n in absent if "attention.no_such" not in n],
                         ["torch.nn.NoSuchNorm", "torch.nn.functional.no_such_attention"])
        self.assertIn(f"operators are those of PyTorch {found['pytorch']}", done.stderr)
        self.assertIn("NoSuchNorm", done.stderr)
        question = ["predict", "--workload", "mine.json", "--cluster", "hgx-h100"]
        same = ".".join(found["pytorch"].split(".")[:2])
        other = "2.0" if same != "2.0" else "2.7"
        text = " ".join(self.answer(*question, "--set", f"pytorch={other}").stdout.split())
        self.assertIn(f"operators are those of PyTorch {found['pytorch']}", text)
        self.assertIn("the script asked for torch.nn.functional.no_such_attention", text)
        if same in ("1.13", "2.7"):
            text = self.answer(*question, "--set", f"pytorch={same}").stdout
            self.assertNotIn("operators are those of", text)

    def test_a_factory_has_a_version(self):
        made = json.loads(self.answer("describe", "--factory", "train:make").stdout)
        self.assertIn("pytorch", made["described_with"])
        self.assertNotIn("absent", made["described_with"])


if __name__ == "__main__":
    describe.main(sys.argv)
