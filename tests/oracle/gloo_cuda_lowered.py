#!/usr/bin/env python3
"""Is what ddpsim lowers for Gloo with CUDA tensors what ProcessGroupGloo does with them?

  gloo_cuda_lowered.py DDPSIM              14 scenarios; exit 1 if one differs
  gloo_cuda_lowered.py DDPSIM --self-test  changes of what ddpsim said are noticed

Written from torch/csrc/distributed/c10d/ProcessGroupGloo.cpp (2.6; AsyncAllreduceCUDAWork,
AsyncBroadcastCUDAWork, initializeStreamsEvents, AsyncWork::execute, runLoop; later versions have
the first in ProcessGroupGlooCuda.cpp as AsyncAllreduceCUDAHostWork), reducer.cpp and comm.cpp,
before the C++ that it judges:

1. Whoever calls a collective records an event on its stream, takes a stream of the pool, lets that
   wait for the event, and begins a copy into pinned memory there. Of a broadcast only the root
   copies; a Program is the root's.
2. A worker (two, one queue in the order of the calls) waits for that stream, performs Gloo's
   collective on the pinned memory, begins a copy back on the same stream, and lets the device's
   default stream wait for that. Then the Work has ended. Worker and host wait for no copy back.
3. wait() stops the host until the Work has ended. What it launches next on the default stream is
   behind the copy back.

So a collective waits for its copy to the host alone, the copy for all that was launched before it;
after its wait the next kernel is behind the copy back. DDP waits in finalize_backward bucket by
bucket, broadcast_coalesced for the first of two that are in flight; averaging at each all_reduce.
"""
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import apex_lowered
from ddp_options_lowered import SIZES, count
from lowered import Planted, first_difference, judge, shown

MIB = 1 << 20
PARAMETERS = [
    ("conv.weight", [64, 32, 3, 3]),
    ("norm.weight", [64]),
    ("norm.bias", [64]),
    ("up.weight", [700, 300]),
    ("up.bias", [700]),
    ("tall.weight", [5000, 2]),
    ("head.weight", [40, 700]),
    ("head.bias", [40]),
]
ARRIVAL = [7, 6, 5, 4, 3, 1, 2, 0]
BUFFERS = [
    ("norm.running_mean", [64], "float32"),
    ("norm.running_var", [64], "float32"),
    ("norm.batches", [1], "int64"),
    ("mask", [3], "uint8"),
]


def scenarios():
    def one(ranks, buffers=4, **knobs):
        return {"ranks": ranks, "buffers": BUFFERS[:buffers], "knobs": {"pytorch": "2.7", **knobs}}

    yield one(2)
    yield one(8, bucket_cap_mb=0.1)
    yield one(16, bucket_cap_mb=0.3, buffers=3)
    yield one(4, broadcast_buffers=False, gradient_as_bucket_view=True, bucket_cap_mb=0.1)
    yield one(4, pytorch="1.13", bucket_cap_mb=0.1)
    yield one(8, accumulation_steps=3, bucket_cap_mb=0.2)
    yield one(8, find_unused_parameters=True, unused_parameters=["tall.weight", "head.bias"])
    yield one(2, find_unused_parameters=True, bucket_cap_mb=0.1)
    yield one(4, static_graph=True, bucket_cap_mb=0.2)
    yield one(8, comm_hook="fp16_compress", bucket_cap_mb=0.2)
    yield one(8, system="averaging")
    yield one(4, system="averaging", async_op=True)
    yield one(4, system="averaging", granularity="flat")
    yield one(16, system="averaging", pytorch="2.13")


class Player:
    """Events in the host's order: ["c", operation, bytes, type, kernel before it], ["h", number of
    the collective that the host waits for], ["k", kernel, collectives that it is behind]."""

    def __init__(self, q, step, number):
        self.q, self.step, self.k = q, step, q["knobs"]
        self.names = [n for n, _ in PARAMETERS]
        self.size = [4 * count(s) for _, s in PARAMETERS]
        self.unused = {self.names.index(n) for n in self.k.get("unused_parameters", [])}
        self.arrival = [i for i in ARRIVAL if i not in self.unused]
        self.out, self.before, self.sent, self.number = [], None, 0, number

    def kernel(self, name, behind=()):
        self.before = name
        if behind:
            self.out.append(["k", name, sorted(behind)])

    def send(self, operation, nbytes, dtype):
        self.out.append(["c", operation, nbytes, dtype, self.before])
        self.sent += 1
        return self.sent - 1

    def awaited(self, collective):
        self.out.append(["h", collective])

    # ---- DDP
    def buckets(self):
        default = [1 << 20, 25 << 20]
        cap = int(self.k["bucket_cap_mb"] * MIB) if "bucket_cap_mb" in self.k else None
        finds = self.k.get("find_unused_parameters", False)
        old = self.k["pytorch"] == "1.13"
        limits = [default[0] if old else cap, cap] if cap else default
        steady = self.step == "steady" or self.step == "rebuild"
        order = list(range(len(self.size)))
        if steady and not finds:
            order = list(self.arrival)
        elif not finds:
            limits = [1 << 60]
        out, open_ = [], []
        for i in order:
            open_.append(i)
            if sum(self.size[j] for j in open_) >= limits[min(len(out), len(limits) - 1)]:
                out.append(open_)
                open_ = []
        out += [open_] if open_ else []
        return out if steady and not finds else out[::-1]

    def broadcast_buffers(self):
        kinds = {}
        for _, shape, dtype in self.q["buffers"]:
            kinds[dtype] = kinds.get(dtype, 0) + count(shape) * SIZES.get(dtype, 1)
        flying = []

        def finish():
            number, collective = flying.pop(0)
            self.awaited(collective)
            self.kernel(f"unflatten/buffers.{number}", [collective])

        for number, (dtype, nbytes) in enumerate(kinds.items()):
            if len(flying) == 2:
                finish()
            self.kernel(f"flatten/buffers.{number}")
            flying.append((number, self.send("broadcast", nbytes, None)))
        while flying:
            finish()

    def ddp(self):
        buckets = self.buckets()
        # zero_grad() of 1.13 keeps gradients, which backward then adds to.
        kept = self.k["pytorch"] == "1.13" and self.number > 0
        if kept:
            self.kernel("zero_grad")
        if self.step == "rebuild":
            for nbytes in (4 * (len(self.size) + 1), 4 * len(buckets)):
                self.send("broadcast", nbytes, "int32")
                self.out.append(["h", "rebuild"])
        if self.k.get("broadcast_buffers", True):
            self.broadcast_buffers()
        steps = self.k.get("accumulation_steps", 1)
        delayed = self.k.get("static_graph", False) and self.number == 0
        finds = self.k.get("find_unused_parameters", False)
        missing = [set(b) for b in buckets]
        reduced, bitmap = [], None
        half = self.k.get("comm_hook", "none") == "fp16_compress"
        for micro in range(steps):
            prefix = f"micro{micro}/" if steps > 1 else ""
            self.kernel(f"{prefix}fwd")
            for position, i in enumerate(self.arrival):
                self.kernel(f"{prefix}bwd/{self.names[i]}")
                if micro or kept:
                    self.kernel(f"{prefix}accumulate/{self.names[i]}")
                if micro + 1 < steps or delayed:
                    continue
                here = sorted(self.unused) + [i] if position == 0 else [i]
                for j in here:
                    self.kernel(f"{prefix}copy_in/{self.names[j]}")
                    for b in missing:
                        b.discard(j)
                    while len(reduced) < len(buckets) and not missing[len(reduced)]:
                        reduced.append(self.reduce(len(reduced), buckets, half))
                    if finds and len(reduced) == len(buckets) and bitmap is None:
                        bitmap = self.send("all_reduce", 4 * len(self.size), "int32")
        if delayed:
            bitmap = self.send("all_reduce", 4 * len(self.size), "int32")
            for j in range(len(self.size)):
                self.kernel(f"copy_in/{self.names[j]}")
            reduced = [self.reduce(b, buckets, half) for b in range(len(buckets))]
        if bitmap is not None and self.unused:
            self.out.append(["h", "unused"])
        behind = []  # of what is awaited, until a kernel follows
        for b, tensors in enumerate(buckets):
            self.awaited(reduced[b])
            behind.append(reduced[b])
            for j in tensors:
                if j not in self.unused and not self.k.get("gradient_as_bucket_view", False):
                    self.kernel(f"copy_out/{self.names[j]}", behind)
                    behind = []
        self.kernel("optimizer", behind)

    def reduce(self, b, buckets, half):
        nbytes = sum(self.size[j] for j in buckets[b])
        if half:
            self.kernel(f"compress/bucket.{b}")
            return self.send("all_reduce", nbytes // 2, "float16")
        return self.send("all_reduce", nbytes, "float32")

    # ---- plain averaging
    def averaging(self):
        self.kernel("fwd")
        for i in self.arrival:
            self.kernel(f"bwd/{self.names[i]}")
        if self.k.get("granularity") == "flat":
            self.kernel("flatten/grads")
            collective = self.send("all_reduce", sum(self.size), "float32")
            self.awaited(collective)
            self.kernel("div/flat", [collective])
        elif self.k.get("async_op"):
            all_ = [self.send("all_reduce", n, "float32") for n in self.size]
            for name, collective in zip(self.names, all_):
                self.awaited(collective)
                self.kernel(f"div/{name}", [collective])
        else:
            for name, nbytes in zip(self.names, self.size):
                collective = self.send("all_reduce", nbytes, "float32")
                self.awaited(collective)
                self.kernel(f"div/{name}", [collective])


def played(q, kind, number):
    player = Player(q, kind, number)
    player.averaging() if q["knobs"].get("system") == "averaging" else player.ddp()
    return player.out


# ---- ddpsim
def program(ddpsim, q):
    flat = {"parameters": [[n, count(s), "float32"] for n, s in PARAMETERS], "arrival": ARRIVAL}
    document = apex_lowered.workload(flat)
    for tensor, (_, shape) in zip(document["tensors"], PARAMETERS):
        tensor["shape"] = shape
    document["buffers"] = [{"name": n, "shape": s, "dtype": t} for n, s, t in q["buffers"]]
    document["source"] = "made by tests/oracle/gloo_cuda_lowered.py"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workload.json"
        file.write_text(json.dumps(document))
        asked = [ddpsim, "show", "program", "--format", "json", "--workload", str(file)]
        asked += ["--cluster", "dgx-h100", "--ranks", str(q["ranks"]), "--set", "backend=gloo"]
        asked += ["--set", f"cluster.hosts={-(-q['ranks'] // 8)}"]
        knobs = dict(q["knobs"])
        asked += ["--plan", knobs.pop("system", "pytorch_ddp")]
        for knob, value in knobs.items():
            asked += ["--set", f"{knob}={json.dumps(value)}"]
        return shown(asked, q["knobs"])


def lowered(step):
    """The same events, and sentences on what is not staged as it should be."""
    out, wrong, ops, numbers, backs = [], [], {}, {}, {}
    for o in step["ops"]:
        name, waits = o["op"], o["waits_for"]
        ops[name] = o
        if o["does"] == "communicate":
            there, back = ops.get(f"copy_to_host/{name}"), f"copy_back/{name}"
            numbers[name] = backs[back] = len(numbers)
            if o["lane"] != "worker" or waits != [f"copy_to_host/{name}"]:
                wrong.append(f"{name} on {o['lane']} waits for {waits}")
            if there is None or there["does"] != "move" or there["bytes"] != o["bytes"]:
                wrong.append(f"{name} has no copy to the host: {there}")
            dtype = o.get("dtype") if o["operation"] != "broadcast" else None
            if o["operation"] == "broadcast" and "rebuild" in name:
                dtype = "int32"
            after = [w for w in (there or {"waits_for": []})["waits_for"]
                     if not w.startswith("launch/")]
            out.append(["c", o["operation"], o["bytes"], dtype, after[0] if after else None])
            if len(after) > 1:
                wrong.append(f"the copy of {name} waits for {after}")
        elif name.startswith("copy_back/"):
            if waits != [name[len("copy_back/"):]] or o["lane"] != "to_device":
                wrong.append(f"{name} on {o['lane']} waits for {waits}")
            if o["bytes"] != ops.get(name[len("copy_back/"):], {}).get("bytes"):
                wrong.append(f"{name} has {o['bytes']} bytes")
        elif name.startswith("copy_to_host/"):
            if o["lane"] != "to_host" or f"launch/{name}" not in waits:
                wrong.append(f"{name} on {o['lane']} waits for {waits}")
        elif o["does"] == "wait" and o["lane"] == "host":
            # The host reads what these brought, behind the copy back.
            reads = {"rebuild": "rebuild", "unused": "unused"}
            what = next((v for k, v in reads.items() if k in name), None)
            if what:
                out.append(["h", what])
                if not waits or [w for w in waits if w not in backs]:
                    wrong.append(f"{name} waits for {waits}")
            else:
                out += [["h", numbers.get(w, w)] for w in waits]
        elif o["lane"] == "compute":
            behind = sorted(backs[w] for w in waits if w in backs)
            if behind:
                out.append(["k", name, behind])
    wrong += [f"{name} is not copied back" for name in numbers if f"copy_back/{name}" not in ops]
    return out, wrong


def differences(ddpsim, q, p=None):
    p = p or program(ddpsim, q)
    found, compared = [], 0
    for number, step in enumerate(p["steps"]):
        mine, wrong = lowered(step)
        theirs = played(q, step["kind"], number)
        if q["knobs"].get("comm_hook"):  # what is cast back is a Work's continuation
            mine = [e for e in mine if e[0] == "c"]
            theirs = [e for e in theirs if e[0] == "c"]
        compared += len(theirs)
        where = f"step {number} ({step['kind']})"
        found += [f"{where}: {s}" for s in wrong + first_difference(mine, theirs)]
    return found, compared


def self_test(ddpsim):
    planted = Planted()
    q = next(scenarios())
    p = program(ddpsim, q)
    planted.unchanged(differences(ddpsim, q, p)[0])

    def ask():
        return differences(ddpsim, q, p)[0]

    def changes(o):
        if o["does"] == "move":
            yield "bytes", o["bytes"] + 4, "other bytes"
            yield "lane", "compute", "another lane"
            yield "waits_for", [], "no wait"
        elif o["does"] == "communicate":
            yield "bytes", o["bytes"] + 4, "other bytes"
            yield "lane", "comm", "another lane"
        elif o["does"] == "wait":
            yield "waits_for", [], "no wait"

    def skipped(o):
        return o["does"] not in ("move", "communicate", "wait")

    for step in p["steps"]:
        planted.operations(step["ops"], ask, skipped, changes)
    return planted.verdict()


def main():
    if "--self-test" in sys.argv:
        return self_test(sys.argv[1])
    return judge(sys.argv[1], scenarios(), differences, compared="events")


if __name__ == "__main__":
    sys.exit(main())
