#!/usr/bin/env python3
"""Training scripts that shard their model, or reduce with Horovod, as ddpsim describe takes them:
FSDP, FSDP2, DeepSpeed, Horovod, none of which needs to be installed.

  sharded_scripts.py DDPSIM [unittest's arguments]
"""
import json
import sys

import describe
from describe import Case

MODEL = """
import functools
import torch
import torch.distributed as dist
from torch import nn
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x): return x + self.down(torch.relu(self.up(self.norm(x))))
class Model(nn.Module):
    def __init__(self, width=64, blocks=6):
        super().__init__()
        self.table = nn.Embedding(1000, width)
        self.layers = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 1000)
    def forward(self, tokens):
        x = self.table(tokens)
        for layer in self.layers: x = layer(x)
        return self.head(x)
def data(): return torch.utils.data.TensorDataset(torch.randint(1000, (512, 16)))
def batches(): return torch.utils.data.DataLoader(data(), batch_size=8)
def loss(model, tokens):
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
"""
LOOP = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (tokens,) in enumerate(batches()):
    tokens = tokens.cuda()
    optimizer.zero_grad()
    loss(model, tokens).backward()
    optimizer.step()
"""
PLAIN = "from model import *\nmodel = nn.parallel.DistributedDataParallel(Model().cuda())\n" + LOOP
FSDP = (
    """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, MixedPrecision, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, enable_wrap, wrap
from model import *
dist.init_process_group("nccl")
by_block = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
by_size = functools.partial(size_based_auto_wrap_policy, min_num_params=20000)
model = Model().cuda()
MADE
assert isinstance(model, FSDP) and isinstance(model, Model) and model.module is model
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT): model.state_dict()
"""
    + LOOP
)
FSDP2 = """
from torch.distributed.fsdp import fully_shard, CPUOffloadPolicy, MixedPrecisionPolicy
from torch.distributed.device_mesh import init_device_mesh
from model import *
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
assert mesh["shard"].size() == 4 and mesh.ndim == 2
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = Model()
for layer in model.layers: fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=2)
fully_shard([model.head], mesh=mesh, mp_policy=policy, reshard_after_forward=False)
fully_shard(model.table, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
for a, b, c in zip(model.layers, model.layers[1:], model.layers[2:]):
    a.set_modules_to_forward_prefetch([b, c])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (tokens,) in enumerate(batches()):
    model.set_requires_gradient_sync(step % 2 == 1)
    loss(model, tokens.cuda()).backward()
    if step % 2: optimizer.step(), optimizer.zero_grad()
"""
DEEPSPEED = """
import argparse
import deepspeed
from deepspeed.ops.adam import FusedAdam
from model import *
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
arguments = deepspeed.add_config_arguments(parser).parse_args()
deepspeed.init_distributed()
with deepspeed.zero.Init(): model = Model()
engine, optimizer, loader, _ = deepspeed.initialize(
    args=arguments, model=model, model_parameters=model.parameters(), training_data=data())
for (tokens,) in loader:
    engine.backward(loss(engine, tokens.to(engine.device)))
    engine.step()
"""
CONFIGURATION = {
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 8,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": "auto"}},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": False,
        "reduce_bucket_size": 5e7,
        "prefetch_bucket_size": 1e7,
        "stage3_max_live_parameters": "auto",
        "offload_optimizer": {"device": "none"},
    },
}
HOROVOD = """
import horovod.torch as hvd
from model import *
hvd.init()
torch.cuda.set_device(hvd.local_rank())
model = Model().cuda()
assert hvd.size() == 16
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.fp16,
    backward_passes_per_step=2, op=hvd.Average)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for step, (tokens,) in enumerate(batches()):
    loss(model, tokens.cuda()).backward()
    if step % 2: optimizer.step(), optimizer.zero_grad()
"""


def operations(workload, phase):
    """Of one sample."""
    return sum(layer[phase]["flops_per_sample"] for layer in workload["layers"])


class Sharded(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "model.py").write_text(MODEL)

    def described(self, text, *after):
        (self.folder / "script.py").write_text(text)
        said = self.answer("describe", "--script", "script.py", "--ranks", "16", *after)
        return json.loads(said.stdout)

    def fsdp(self, made):
        return self.described(FSDP.replace("MADE", "model = " + made))

    def test_fsdp(self):
        block = {"system": "fsdp", "auto_wrap_policy": "block"}
        for made, plan in (
            (
                "FSDP(model, None, ShardingStrategy.SHARD_GRAD_OP, auto_wrap_policy=by_block,"
                " backward_prefetch=BackwardPrefetch.BACKWARD_POST, limit_all_gathers=False,"
                " mixed_precision=MixedPrecision(torch.bfloat16, reduce_dtype=torch.float32))",
                {
                    **block,
                    "sharding_strategy": "shard_grad_op",
                    "backward_prefetch": "backward_post",
                    "limit_all_gathers": False,
                    "param_dtype": "bfloat16",
                    "reduce_dtype": "float32",
                },
            ),
            (
                "FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), backward_prefetch=None,"
                " cpu_offload=CPUOffload(offload_params=True), forward_prefetch=True)",
                {
                    **block,
                    "backward_prefetch": "none",
                    "forward_prefetch": True,
                    "cpu_offload": True,
                },
            ),
            (
                "FSDP(model, auto_wrap_policy=by_size)",
                {"system": "fsdp", "auto_wrap_policy": "size_based", "min_num_params": 20000},
            ),
            ("FSDP(model)", {"system": "fsdp", "auto_wrap_policy": "none"}),
        ):
            with self.subTest(made):
                self.assertEqual(self.fsdp(made)["source"]["plan"], plan)

    def test_fsdp_around_each_block(self):
        text = FSDP.replace(
            "MADE",
            "with enable_wrap(wrapper_cls=FSDP, sharding_strategy=ShardingStrategy.FULL_SHARD):\n"
            "    for i, layer in enumerate(model.layers): model.layers[i] = wrap(layer)\n"
            "    model = wrap(model)\n",
        )
        plan = {"auto_wrap_policy": "block", "sharding_strategy": "full_shard", "system": "fsdp"}
        self.assertEqual(self.described(text)["source"]["plan"], plan)

    def test_fsdp_of_blocks_that_are_checkpointed(self):
        wrap = "model = FSDP(model, auto_wrap_policy=by_block)\n"
        each = "for layer in model.layers: FSDP(layer)\nmodel = FSDP(model)\n"
        check = (
            "from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as c\n"
            "c.apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))\n"
        )
        plan = {"system": "fsdp", "auto_wrap_policy": "block"}
        plain = self.fsdp("FSDP(model, auto_wrap_policy=by_block)")
        for made in (wrap + check, check + each, each + check):
            with self.subTest(made):
                said = self.described(FSDP.replace("MADE", made))
                self.assertEqual(said["source"]["plan"], plan)
                shapes = [[t["shape"] for t in w["tensors"]] for w in (said, plain)]
                self.assertEqual(*shapes)
                # Forward of the blocks runs once more, and nothing else: twice two products each.
                more = operations(said, "backward") - operations(plain, "backward")
                self.assertEqual(more, 6 * 2 * 2 * 16 * 64 * 256)
                self.assertEqual(operations(said, "forward"), operations(plain, "forward"))

    def test_the_model_is_the_one_without_it(self):
        plain, sharded = self.described(PLAIN), self.fsdp("FSDP(model, auto_wrap_policy=by_block)")
        for key in ("batch", "precision", "optimizer", "tensors", "arrival", "layers", "model"):
            self.assertEqual(plain[key], sharded[key], key)

    def test_a_script_with_the_lines_of_tune_is_what_they_are_of(self):
        (self.folder / "plain.json").write_text(json.dumps(self.described(PLAIN)))
        place = ("--cluster", "hgx-h100", "--ranks", "16", "--format", "json")
        head = "from model import *\ndist.init_process_group('nccl')\nmodel = Model().cuda()\n"
        steps = set()
        for settings in (
            ["units=none"],
            ["units=2"],
            ["units=1x2/4", "reshard_after_forward=false"],
            ["units=1+ends", "forward_prefetch_units=2", "shard_degree=8"],
        ):
            with self.subTest(settings):
                asked = ["--workload", "plain.json", "--plan", "fsdp2"]
                for setting in settings:
                    asked += ["--set", setting]
                tuned = ("--knob", "backward_prefetch_units", "--values", "1")
                lines = json.loads(self.answer("tune", *asked, *place, *tuned).stdout)["lines"]
                pasted = self.described(head + "\n".join(lines) + "\n" + LOOP)
                (self.folder / "pasted.json").write_text(json.dumps(pasted))
                of_plan, of_script = (
                    json.loads(self.answer("predict", *q, *place).stdout)["summary"]["step_ps"]
                    for q in (asked, ["--workload", "pasted.json"])
                )
                self.assertEqual(of_plan, of_script)
                steps.add(of_plan)
        self.assertEqual(len(steps), 4)

    def test_fsdp2(self):
        said = self.described(FSDP2)
        self.assertEqual(
            said["source"]["plan"],
            {
                "system": "fsdp2",
                "shard_degree": 4,
                "param_dtype": "bfloat16",
                "reduce_dtype": "float32",
                "reshard_after_forward": 2,
                "auto_wrap_policy": "block",
                "ends_apart": True,
                "forward_prefetch_units": 2,
                "no_sync": True,
                "accumulation_steps": 2,
            },
        )
        self.assertEqual(len(said["tensors"]), len(self.described(PLAIN)["tensors"]))

    def test_deepspeed(self):
        (self.folder / "ds.json").write_text(json.dumps(CONFIGURATION))
        said = self.described(DEEPSPEED, "--", "--deepspeed_config", "ds.json")
        self.assertEqual(
            said["source"]["plan"],
            {
                "system": "zero",
                "stage": 3,
                "overlap_comm": False,
                "reduce_bucket_size": 50000000,
                "stage3_prefetch_bucket_size": 10000000,
                "accumulation_steps": 2,
            },
        )
        self.assertEqual((said["precision"], said["batch"]), ("bf16", 8))
        self.assertEqual(said["optimizer"]["name"], "adamw")
        self.assertEqual(said["loop"], {"clip_grad_norm": True})
        self.assertIn('"auto"', " ".join(said["source"]["notes"]))

    def test_horovod(self):
        plan = {"system": "horovod", "compression": "fp16", "accumulation_steps": 2}
        self.assertEqual(self.described(HOROVOD)["source"]["plan"], plan)

    def test_predicted_in_one_command(self):
        (self.folder / "script.py").write_text(FSDP2)
        flags = ("--ranks", "16", "--cluster", "dgx-h100", "--format", "json")
        said = json.loads(self.answer("predict", "--script", "script.py", *flags).stdout)
        self.assertIn("/fsdp2/n16/", said["run"]["case"]["key"])

    def test_refused(self):
        made = "model = FSDP(model, auto_wrap_policy="
        for text, words in (
            (FSDP.replace("MADE", made + "lambda *a, **k: True)"), ["<lambda>", "--factory"]),
            (FSDP.replace("MADE", made + "ModuleWrapPolicy({nn.LSTM}))"), ["LSTM", "none of them"]),
            ("import deepspeed\ndeepspeed.PipelineModule()", ["PipelineModule", "list plans"]),
            (DEEPSPEED, ["no configuration", "--deepspeed_config"]),
            (
                DEEPSPEED.replace("args=arguments", "config={'zero_optimization': {'stage': 0}}"),
                ["stage 0", "averaging"],
            ),
            (DEEPSPEED.replace("args=arguments", "config='no.json'"), ["no.json"]),
            (
                DEEPSPEED.replace(
                    "args=arguments",
                    "config={'zero_optimization': {'stage': 3, 'offload_param': NVME}}",
                ).replace("import argparse", "import argparse\nNVME = {'device': 'nvme'}"),
                ["nvme", "cpu"],
            ),
        ):
            with self.subTest(words[0]):
                (self.folder / "script.py").write_text(text)
                self.refused("describe", "--script", "script.py", "-o", "x", says=words)


if __name__ == "__main__":
    describe.main(sys.argv)
