#!/usr/bin/env python3
"""Which operations does one rank of NVIDIA Apex's DistributedDataParallel issue in a step? Written
from its behaviour and from no line of the simulator.

  apex.py QUESTION.json  the events of each step, one a line
  apex.py --self-test    closed forms

A question: {"world_size": N, "parameters": [[name, elements, dtype] ...] in registration order,
"arrival": indices in the order of gradients, "steps": K, "micro_batches": M}, and any knob of
KNOBS. Events, in the host's order:

  ["g", i]                                    gradient i is there, its hook runs
  ["c", operation, elements, dtype, queue, communicator, gradient before, [tensors]]
  ["l", kind, elements, calls, queue]         flatten, mul, copy, and casts to and from float
  ["w", queue, on]                            a stream waits for what is on another
  ["update"]                                  the optimizer
"""
import json
import sys

KNOBS = {
    "message_size": 10_000_000,
    "delay_allreduce": False,
    "allreduce_trigger_params": None,
    "num_allreduce_streams": 1,
    "retain_allreduce_buffers": False,
    "allreduce_always_fp32": False,
    "gradient_average": True,
    "gradient_predivide_factor": 1.0,
    "disable_allreduce": False,  # by the script, in micro-batches but the last
}
TYPES = ("float16", "float32", "float64")  # grouped by type, in this order


class Rank:
    def __init__(self, said):
        for knob in said:
            if knob not in KNOBS and knob not in (
                "world_size",
                "parameters",
                "arrival",
                "steps",
                "micro_batches",
            ):
                raise ValueError(f"unknown: {knob}")
        self.knobs = {**KNOBS, **{k: v for k, v in said.items() if k in KNOBS}}
        self.names = [p[0] for p in said["parameters"]]
        self.elements = [p[1] for p in said["parameters"]]
        self.types = [p[2] for p in said["parameters"]]
        self.arrival = said["arrival"]
        self.micro_batches = said.get("micro_batches", 1)
        self.buckets = None  # rank 0's, once they are known
        self.log = []
        self.last = None

    # --- what a hook does while the order is not known
    def record(self):
        open_ones = {t: [] for t in TYPES}
        shipped = []
        triggers = self.knobs["allreduce_trigger_params"]
        for i in self.arrival:
            bucket = open_ones[self.types[i]]
            bucket.append(i)
            if triggers is None:
                full = sum(self.elements[j] for j in bucket) >= self.knobs["message_size"]
            else:
                full = self.names[i] in triggers
            if full:
                shipped.append(list(bucket))
                bucket.clear()
        return shipped + [b for b in open_ones.values() if b]

    def communicate(self, operation, elements, dtype, queue, comm, tensors):
        self.log.append(["c", operation, elements, dtype, queue, comm, self.last, tensors])

    def reduce(self, tensors, queue, comm):
        n = sum(self.elements[i] for i in tensors)
        dtype = self.types[tensors[0]]
        self.log.append(["l", "flatten", n, 1, "main"])
        if queue != "main":
            self.log.append(["w", queue, "main"])
        wire = "float32" if self.knobs["allreduce_always_fp32"] else dtype
        if wire != dtype:
            self.log.append(["l", "to_float", n, 1, queue])
        if self.knobs["gradient_predivide_factor"] != 1.0:
            self.log.append(["l", "mul", n, 1, queue])
        self.communicate("all_reduce", n, wire, queue, comm, tensors)
        if self.knobs["gradient_average"]:
            self.log.append(["l", "mul", n, 1, queue])
        if wire != dtype:
            self.log.append(["l", "from_float", n, 1, queue])
        if not self.knobs["retain_allreduce_buffers"]:
            self.log.append(["l", "copy", n, len(tensors), queue])

    def backward(self, reduces):
        known = self.buckets is not None
        waits_for = [] if self.knobs["delay_allreduce"] or not known else self.buckets
        missing = [set(b) for b in waits_for]
        following, used = 0, set()
        streams = self.knobs["num_allreduce_streams"]
        for i in self.arrival:
            self.last = i
            self.log.append(["g", i])
            if not reduces:
                continue
            for bucket in missing:
                bucket.discard(i)
            while following < len(missing) and not missing[following]:
                k = following % streams
                used.add(k)
                comm = f"g{k}" if streams > 1 else None
                self.reduce(waits_for[following], f"stream{k}", comm)
                following += 1
        if not reduces:
            return
        if known and not self.knobs["delay_allreduce"]:
            for k in sorted(used):
                self.log.append(["w", "main", f"stream{k}"])
            return
        if not self.knobs["delay_allreduce"]:
            self.buckets = self.record()
            numbers = 1 + len(self.buckets) + sum(len(b) for b in self.buckets)
            self.communicate("broadcast", numbers, "int32", "main", None, None)
        for dtype in TYPES:
            together = [i for i in range(len(self.elements)) if self.types[i] == dtype]
            together = [i for i in together if i in self.arrival]
            if together:
                self.reduce(together, "main", None)

    def step(self):
        self.log = []
        for micro in range(self.micro_batches):
            self.last = None
            last = micro + 1 == self.micro_batches
            self.backward(last or not self.knobs["disable_allreduce"])
        self.log.append(["update"])
        return self.log


def steps(said):
    rank = Rank(said)
    return [rank.step() for _ in range(said.get("steps", 3))]


def self_test():
    bad = []

    def check(what, a, b):
        if a != b:
            bad.append(f"{what}: {a}, expected {b}")

    parameters = [["a", 6, "float32"], ["b", 5, "float16"], ["c", 4, "float32"]]
    parameters += [["d", 3, "float32"]]
    question = {"world_size": 2, "parameters": parameters, "arrival": [3, 2, 1, 0]}
    rank = Rank(dict(question, message_size=7))
    check("full with the one that reaches it", rank.record(), [[3, 2], [1], [0]])
    rank = Rank(dict(question, allreduce_trigger_params=["b"]))
    check("of the trigger's type alone", rank.record(), [[1], [3, 2, 0]])
    for knobs in ({}, {"message_size": 1, "num_allreduce_streams": 3}, {"delay_allreduce": True}):
        for log in steps(dict(question, **knobs)):
            sent = sum(e[2] for e in log if e[0] == "c" and e[1] == "all_reduce")
            check("every element once", sent, 18)
    log = steps(dict(question, message_size=1, num_allreduce_streams=3))[1]
    turns = ["stream0", "stream1", "stream2", "stream0"]
    check("in turn", [e[4] for e in log if e[0] == "c"], turns)
    for b in bad:
        print(b)
    print("apex.py self-test:", "failed" if bad else "ok")
    return 1 if bad else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    for number, log in enumerate(steps(json.loads(open(sys.argv[1]).read()))):
        for e in log:
            print(number, json.dumps(e))
    return 0


if __name__ == "__main__":
    sys.exit(main())
