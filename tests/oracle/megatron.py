"""One step of a rank of Megatron-LM's DistributedDataParallel and its optimizers, as plain loops.

Written from NVIDIA/Megatron-LM (August 2026: core/distributed/{distributed_data_parallel,
param_and_grad_buffer}.py, core/optimizer/{distrib_optimizer,optimizer,clip_grads,param_layout}.py,
training/{training,arguments}.py), without pipeline, tensor or expert parallelism, before the C++.
What it says: events in the order in which the host issues them,

  ["kernel", what, of, bytes read and written]    on the compute stream
  ["collective", operation, bytes, dtype, parameters]
  ["stream waits", number of the collective]      the compute stream goes on after it
  ["host waits", what]                            until the compute stream has come so far
"""
import math

SIZE = {"float32": 4, "bfloat16": 2, "float16": 2}


def options(**given):
    """Those of DistributedDataParallelConfig, with the defaults of training/arguments.py."""
    o = {
        "use_distributed_optimizer": False,
        "overlap_grad_reduce": False,
        "overlap_param_gather": False,
        "bucket_size": None,
        "num_buckets": None,
        "pad_buckets_for_high_nccl_busbw": False,
        "average_in_collective": False,
        "grad_reduce_in_fp32": None,
        "check_for_nan_in_grad": None,
        "gradient_accumulation_fusion": True,
        # of the model and its loop
        "dtype": "float32",
        "micro_batches": 1,
        "clip": False,
    }
    assert not set(given) - set(o), given
    o.update(given)
    # bf16: gradients are accumulated and reduced in fp32; fp16 scales its loss dynamically.
    if o["grad_reduce_in_fp32"] is None:
        o["grad_reduce_in_fp32"] = o["dtype"] == "bfloat16"
    if o["check_for_nan_in_grad"] is None:
        o["check_for_nan_in_grad"] = o["dtype"] != "float16"
    if o["overlap_param_gather"]:
        assert o["use_distributed_optimizer"] and o["overlap_grad_reduce"]
    return o


def up(value, divisor):
    return (value + divisor - 1) // divisor * divisor


class Buffer:
    """Parameters from the last to the first, in buckets."""

    def __init__(self, numels, ranks, o):
        size = o["bucket_size"]
        if o["num_buckets"]:
            size = sum(numels) // o["num_buckets"]
        elif size is None:
            size = max(40_000_000, 1_000_000 * ranks)
        if not o["overlap_grad_reduce"]:
            size = None
        sharded = o["use_distributed_optimizer"]
        divisor = math.lcm(ranks, 128)
        if o["pad_buckets_for_high_nccl_busbw"]:
            divisor = math.lcm(divisor, 2**16)
        self.where = {}  # parameter: (start, end, bucket)
        self.buckets = []  # (start, end)
        at = begin = 0
        members = 0
        for p in reversed(range(len(numels))):
            if sharded:
                at = up(at, 64)
            end = at + numels[p]
            self.where[p] = (at, end, len(self.buckets))
            members += 1
            at = end
            if size is not None and end - begin >= size:
                at = up(end, divisor) if sharded else end
                self.buckets.append((begin, at))
                begin, members = at, 0
        if members:
            self.buckets.append((begin, up(at, divisor) if sharded else at))
        self.numel = self.buckets[-1][1]

    def of(self, k):
        return [p for p, (_, _, b) in self.where.items() if b == k]

    def elements(self, k):
        return self.buckets[k][1] - self.buckets[k][0]

    def owned(self, ranks):
        """(elements, slices) of the rank that owns the most elements."""
        out = []
        for r in range(ranks):
            n = slices = 0
            for start, end, k in self.where.values():
                b0, b1 = self.buckets[k]
                shard = (b1 - b0) // ranks
                part = min(end, b0 + (r + 1) * shard) - max(start, b0 + r * shard)
                if part > 0:
                    n, slices = n + part, slices + 1
            out.append((n, slices))
        return max(out)


class Step:
    def __init__(self, names, numels, fused, modules, arrival, ranks, o, first=False):
        self.names, self.numels, self.fused = names, numels, fused
        self.modules, self.arrival, self.ranks, self.o = modules, arrival, ranks, o
        self.first = first
        self.buffer = Buffer(numels, ranks, o)
        self.param = o["dtype"]
        self.grad = "float32" if o["grad_reduce_in_fp32"] else o["dtype"]
        self.events = []
        self.collectives = 0
        self.gathering = {}  # bucket: collective in flight
        self.dispatched = set()

    # ---- what is put down
    def kernel(self, what, of, traffic):
        self.events.append(["kernel", what, of, traffic])

    def collective(self, operation, nbytes, dtype, params):
        self.events.append(["collective", operation, nbytes, dtype, sorted(params)])
        self.collectives += 1
        return self.collectives - 1

    def stream_waits(self, number):
        self.events.append(["stream waits", number])

    def host_waits(self, what):
        self.events.append(["host waits", what])

    # ---- forward
    def start_param_sync(self, k):
        number = self.collective(
            "all_gather",
            self.buffer.elements(k) * SIZE[self.param],
            self.param,
            self.buffer.of(k),
        )
        self.dispatched.add(k)
        return number

    def finish_param_sync(self, k):
        if k not in self.dispatched:
            self.gathering[k] = self.start_param_sync(k)
        if k in self.gathering:
            self.stream_waits(self.gathering.pop(k))
            # The all-gathers go from the last bucket, which the first layers are in, to the first.
            if k > 0 and k - 1 not in self.dispatched:
                self.gathering[k - 1] = self.start_param_sync(k - 1)

    def forward(self):
        hooks = self.o["overlap_param_gather"] and not self.first
        for m, params in enumerate(self.modules):
            if hooks:
                for p in params:
                    self.finish_param_sync(self.buffer.where[p][2])
            self.events.append(["forward", m])

    # ---- backward
    def start_grad_sync(self, k):
        n = self.buffer.elements(k)
        if self.o["check_for_nan_in_grad"]:
            self.kernel("norm", k, n * SIZE[self.grad])
            self.host_waits(f"norm {k}")
        if not self.o["average_in_collective"] and self.ranks > 1:
            self.kernel("scale", k, 2 * n * SIZE[self.grad])
        operation = "reduce_scatter" if self.o["use_distributed_optimizer"] else "all_reduce"
        return self.collective(operation, n * SIZE[self.grad], self.grad, self.buffer.of(k))

    def backward(self, last):
        ready = {k: 0 for k in range(len(self.buffer.buckets))}
        reducing = {}
        for p in self.arrival:
            self.events.append(["backward", p])
            if not (self.fused[p] and self.o["gradient_accumulation_fusion"]):
                traffic = 2 * SIZE[self.grad] + SIZE[self.param]
                self.kernel("accumulate", p, traffic * self.numels[p])
            # Buckets' hooks are counted in the first step, and reduce from the second on.
            if last and self.o["overlap_grad_reduce"] and not self.first:
                k = self.buffer.where[p][2]
                ready[k] += 1
                if ready[k] == len(self.buffer.of(k)):
                    reducing[k] = self.start_grad_sync(k)
        self.events.append(["backward", "tail"])
        if last:
            for k in range(len(self.buffer.buckets)):
                self.stream_waits(reducing[k] if k in reducing else self.start_grad_sync(k))

    # ---- the optimizer
    def optimize(self):
        halves = self.param != "float32"
        if self.o["use_distributed_optimizer"]:
            n, _ = self.buffer.owned(self.ranks)
        else:
            n = sum(self.numels)
        if halves and self.grad != "float32":
            self.kernel("copy_gradients", None, (SIZE[self.grad] + 4) * n)
        if self.param == "float16":
            self.kernel("unscale", None, 8 * n)
            if self.o["use_distributed_optimizer"]:
                self.stream_waits(self.collective("all_reduce", 4, "float32", []))
            self.host_waits("found_inf")
        if self.o["clip"]:
            self.kernel("grad_norm", None, 4 * n)
            if self.o["use_distributed_optimizer"]:
                self.stream_waits(self.collective("all_reduce", 4, "float32", []))
            self.kernel("clip", None, 8 * n)
        self.kernel("optimizer", n, None)
        if halves:
            self.kernel("copy_weights", None, 6 * n)
        if self.o["use_distributed_optimizer"] and not self.o["overlap_param_gather"]:
            for k in range(len(self.buffer.buckets)):
                self.stream_waits(self.start_param_sync(k))
        self.host_waits("updated")
        self.collective("all_reduce", 8, "float32", [])

    def play(self):
        self.kernel("zero_grad", None, self.buffer.numel * SIZE[self.grad])
        for m in range(self.o["micro_batches"]):
            self.forward()
            self.backward(m + 1 == self.o["micro_batches"])
        self.optimize()
        return self.events

    def resident(self):
        """Bytes between steps."""
        sharded = self.o["use_distributed_optimizer"]
        n = self.buffer.owned(self.ranks)[0] if sharded else sum(self.numels)
        return {
            "parameters": self.buffer.numel * SIZE[self.param],
            "master_parameters": 4 * n if self.param != "float32" else 0,
            "optimizer_state": 8 * n,
            "buckets": self.buffer.numel * SIZE[self.grad],
        }
