#!/usr/bin/env python3
"""Does `ddpsim import horovod-timeline` read what Horovod did?

  horovod_timeline.py DDPSIM              every recording of Horovod, written as timeline.cc writes
  horovod_timeline.py DDPSIM --self-test  a difference is noticed
  horovod_timeline.py --write RECORDING STEPS FILE   one of them, as a file

Recordings (tests/data/recorded_orders/horovod__*) were made with the timeline on and have, of each
step, when tensors were asked for and which were reduced together from when to when; the files
themselves were not kept. Here they are written again in the format of horovod 0.28.1
(common/timeline.cc; common.h has the names), on a CPU as they were (MPI) and, besides, as GPUs'
would be: a finalizer thread writes QUEUE, the copies and NCCL_ALLREDUCE.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import recordings

GAP = 60_000  # microseconds from one step to the next: the recording's barrier


class Writer:
    """timeline.cc: a process for each tensor, named when it is first met."""

    def __init__(self):
        self.lines = [
            '{"name": "process_name", "ph": "M", "pid": 0, "args": '
            '{"start_time_since_epoch_in_micros":1763800000000000}}',
            '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}}',
        ]
        self.number = {}

    def event(self, tensor, phase, ts, name=None, args=""):
        if tensor not in self.number:
            pid = self.number[tensor] = len(self.number) + 1
            self.lines.append(
                f'{{"name": "process_name", "ph": "M", "pid": {pid}, '
                f'"args": {{"name": "{tensor}"}}}}'
            )
            self.lines.append(
                f'{{"name": "process_sort_index", "ph": "M", "pid": {pid}, '
                f'"args": {{"sort_index": {pid}}}}}'
            )
        line = f'{{"ph": "{phase}"'
        if phase != "E":
            line += f', "name": "{name}"'
        line += f', "ts": {ts}, "pid": {self.number[tensor]}'
        if phase == "X":
            line += ', "dur": 0'
        if args:
            line += f', "args": {{{args}}}'
        self.lines.append(line + "}")

    def mark(self, ts):
        self.lines.append(f'{{"ph": "i", "name": "CYCLE_START", "ts": {ts}, "s": "g"}}')

    def text(self, closed=True):
        return "[\n" + ",\n".join(self.lines) + ("]" if closed else ",\n")


def steps_of(recording, most=None):
    """[(asked {tensor: us}, [(tensors, start, end)])], on one clock."""
    out, offset = [], 0
    for step in recording["steps"][:most]:
        asked = {t: offset + us for us, tensors in step["enqueue"] for t in tensors}
        ops = [
            (op["tensors"], offset + op["start_us"], offset + op["end_us"]) for op in step["ops"]
        ]
        out.append((asked, ops))
        offset += max(op["end_us"] for op in step["ops"]) + GAP
    return out


def written(recording, gpu=False, most=None, closed=True, marks=False):
    names = [p[0] for p in recording["parameters"]]
    shapes = recording.get("parameter_shapes") or [[p[1]] for p in recording["parameters"]]
    half = recording["knobs"].get("compression") == "fp16"
    events = []  # (time, order, tensor, phase, name, args)
    for number, (asked, ops) in enumerate(steps_of(recording, most)):
        for tensors, start, end in ops:
            for t in tensors:
                events.append((asked[t], t, "B", "NEGOTIATE_ALLREDUCE", ""))
                if number == 0:  # by name
                    for r in range(recording["world_size"]):
                        events.append((asked[t] + 2 * r, t, "X", str(r), ""))
                events.append((max(asked[t] + 9, start - 50), t, "E", None, ""))
            several = len(tensors) > 1
            events += [(max(start - 40, 0), t, "B", "ALLREDUCE", "") for t in tensors]
            phases = [("QUEUE", start - 30, start - 20)] if gpu else []
            if several:
                phases.append(("MEMCPY_IN_FUSION_BUFFER", start - 15, start - 1))
            phases.append(("NCCL_ALLREDUCE" if gpu else "MPI_ALLREDUCE", start, end))
            if several:
                phases.append(("MEMCPY_OUT_FUSION_BUFFER", end + 1, end + 12))
            for name, begin, until in phases:
                events += [(begin, t, "B", name, "") for t in tensors]
                events += [(until, t, "E", None, "") for t in tensors]
            for t in tensors:
                kind = "float16" if half else recording["parameters"][t][2]
                shape = ", ".join(str(d) for d in shapes[t])
                events.append((end + 14, t, "E", None, f'"dtype": "{kind}", "shape": "[{shape}]"'))
    # A tensor's own events are in order; the file is in the order of time.
    events = sorted(enumerate(events), key=lambda e: (e[1][0], e[0]))
    writer = Writer()
    last = 0
    for _, (ts, t, phase, name, args) in events:
        if marks:
            while last + 5000 <= ts:
                last += 5000
                writer.mark(last)
        writer.event(names[t], phase, ts, name, args)
    return writer.text(closed)


def imported(ddpsim, text):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "timeline.json")
        file.write_text(text)
        run = pathlib.Path(folder, "run.json")
        command = [ddpsim, "import", "horovod-timeline", str(file), "--format", "json"]
        done = subprocess.run(
            command + ["--run", str(run)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return None, None, done.stderr
        return json.loads(done.stdout), json.loads(run.read_text()), ""


def differences(recording, told, run, most=None):
    names = [p[0] for p in recording["parameters"]]
    half = recording["knobs"].get("compression") == "fp16"
    size = [p[1] * (2 if half else 4) for p in recording["parameters"]]
    known = [t["name"] for t in told["tensors"]]
    truth = steps_of(recording, most)
    if len(told["steps"]) != len(truth):
        return f"{len(told['steps'])} steps, not {len(truth)}"
    for k, ((asked, ops), step) in enumerate(zip(truth, told["steps"])):
        theirs = [(sorted(names[t] for t in tensors), start, end) for tensors, start, end in ops]
        ours = []
        for r in step:
            moved = [a for a in r["activities"] if a["name"].endswith("ALLREDUCE")]
            ours.append(
                (sorted(known[t] for t in r["tensors"]), moved[0]["begin_us"], moved[0]["end_us"])
            )
        if sorted(ours) != sorted(theirs):
            return f"step {k}: {ours[:3]} ... not {theirs[:3]}"
        spans = [s for s in run["spans"] if s["step"] == k and s["op"].startswith("allreduce/")]
        volumes = sorted(s["bytes"] for s in spans)
        if volumes != sorted(sum(size[t] for t in tensors) for tensors, _, _ in ops):
            return f"step {k}: bytes {volumes}"
    ends = [max(end for _, _, end in ops) + 14 for _, ops in truth]
    for k, step in enumerate(run["steps"]):
        lasts = 1_000_000 * (ends[k] - (ends[k - 1] if k else min(truth[0][0].values())))
        if step["duration_ps"] != lasts:
            return f"step {k} lasts {step['duration_ps']} ps, not {lasts}"
    return None


def main(argv):
    if argv[1:2] == ["--write"]:
        recording = recordings.load(pathlib.Path(argv[2]))
        pathlib.Path(argv[4]).write_text(written(recording, most=int(argv[3]), marks=True))
        return 0
    if len(argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    files = sorted(recordings.DATA.glob("horovod__*"))
    if "--self-test" in argv:
        recording = recordings.load(files[0])
        told, run, _ = imported(argv[1], written(recording))
        first = told["steps"][1][0]["tensors"]
        told["steps"][1][0]["tensors"] = first[:-1]
        assert differences(recording, told, run), "a tensor that is missing was not noticed"
        print("horovod_timeline: a tensor that is missing was noticed")
        return 0
    found, steps = [], 0
    for file in files:
        recording = recordings.load(file)
        # A file of a run that was killed ends elsewhere, and is otherwise the first.
        for gpu, closed, most in ((False, True, None), (True, True, None), (False, False, 5)):
            told, run, error = imported(argv[1], written(recording, gpu, most, closed))
            problem = error or differences(recording, told, run, most)
            if problem:
                found.append(f"{file.name} gpu={gpu} closed={closed}: {problem}")
            steps += len(recording["steps"][:most])
    for f in found[:5]:
        print(f[:2000])
    print(
        f"horovod_timeline: {len(files)} recordings, {steps} steps in three forms, "
        f"{len(found)} differ"
    )
    return 1 if found or len(files) < 20 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
