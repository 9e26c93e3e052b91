#!/usr/bin/env python3
"""Errors planted in tools/python are noticed by what check.py asks.

  breakage.py [PART OF A NAME]    all of them, or those whose name has that part

Each is one text replaced by another in a copy of the scripts. The scripts as they are must pass
what the copy fails. Too few samples count as noticed, too: what is refused is no wrong number.
"""
import concurrent.futures
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check  # noqa: E402
from machine import FAST, HOST, SLOW, TOOLS, Machine, task  # noqa: E402

CAPTURE, RECORD, OPS = "ddpsim_capture.py", "ddpsim_record.py", "ddpsim_ops.py"
MIXED = dict(SLOW, call_us=120.0, launch_us=180.0)  # the device waits for a host that waits


# ---- what is asked: (sentences about what is wrong, how many samples)


def ask_captures(folder, tools):
    tasks = [task("mlp", "tf32"), task("cnn", "tf32")]
    return check.captures_of(Machine(folder, SLOW, tools), tasks), 0


def ask_record(number, planted):
    def ask(folder, tools):
        return check.records_of(Machine(folder, planted, tools), [check.RECORDS[number]]), 0

    return ask


def ask_slow_rank(folder, tools):
    return check.slow_rank(Machine(folder, SLOW, tools)), 0


def ask_ops(*groups):
    def ask(folder, tools):
        only = [x for g in groups for x in ("--only", g)]
        judged, wrong = check.operators_of(Machine(folder, FAST, tools), 0.4, *only)
        return wrong, judged

    return ask


CAPTURES, ONE = ask_captures, ask_record(0, SLOW)
SMALL, AVERAGING = ask_record(2, SLOW), ask_record(4, SLOW)
ON_HOST, BETWEEN = ask_record(0, HOST), ask_record(0, MIXED)
LINEAR, COPIES = ask_ops("linear"), ask_ops("copy")

# (name, file, what is replaced, by what, what is asked)
BREAKAGE = [
    (
        "an event on another stream",
        CAPTURE,
        "self.events[index].record()",
        "self.events[index].record(torch.cuda.Stream())",
        CAPTURES,
    ),
    (
        "an event recorded late",
        CAPTURE,
        "            forward = clock.mark()\n            self.backward(loss)\n",
        "            self.backward(loss)\n            forward = clock.mark()\n",
        CAPTURES,
    ),
    (
        "no warm-up",
        CAPTURE,
        'if step.device.type == "cuda":\n        for _ in range(warmup):',
        'if step.device.type == "cuda":\n        for _ in range(0):',
        CAPTURES,
    ),
    (
        "a captured step without its optimizer",
        CAPTURE,
        "            self.update()\n            marks",
        "            marks",
        CAPTURES,
    ),
    (
        "events read before they have happened",
        CAPTURE,
        "        clock.synchronize()\n        for handle in handles:",
        "        for handle in handles:",
        CAPTURES,
    ),
    (
        "host times behind a full queue",
        CAPTURE,
        "alone = [step.run() for _ in range(max(3, repeats // 2))]",
        "alone = step.run_train(max(8, repeats))[3:]",
        CAPTURES,
    ),
    (
        "bytes counted twice",
        CAPTURE,
        "return sum(t.numel() * t.element_size() for t in tensors)",
        "return 2 * sum(t.numel() * t.element_size() for t in tensors)",
        CAPTURES,
    ),
    (
        "a layer that begins when its forward ends",
        CAPTURE,
        "            m.register_forward_pre_hook(lambda m, _: calls.append((m, clock.mark())))\n",
        "            m.register_forward_hook(lambda m, _, __: calls.append((m, clock.mark())))\n",
        CAPTURES,
    ),
    (
        "a peak that begins too late",
        CAPTURE,
        (
            "        kinds[f\"peak_{phase}\"] = torch.cuda.max_memory_allocated(device)\n"
            "        torch.cuda.reset_peak_memory_stats(device)\n"
        ),
        (
            "        torch.cuda.reset_peak_memory_stats(device)\n"
            "        kinds[f\"peak_{phase}\"] = torch.cuda.max_memory_allocated(device)\n"
        ),
        CAPTURES,
    ),
    (
        "the profiler between two captures",
        "ddpsim_captures.py",
        "            captured.append(task)\n",
        "            captured.append(task)\n            profile_one(task, args.runs)\n",
        CAPTURES,
    ),
    (
        "the profiler while steps are timed",
        RECORD,
        "    load = quiet_load()\n",
        (
            "    __import__('torch.profiler').profiler.profile().__enter__()\n"
            "    load = quiet_load()\n"
        ),
        ON_HOST,
    ),
    (
        "a recorded step without its optimizer",
        RECORD,
        "            self.bare.update()\n        self.marks.append((\"optimizer\"",
        "            pass\n        self.marks.append((\"optimizer\"",
        ONE,
    ),
    (
        "gradients set to zero outside the step",
        RECORD,
        (
            '        self.marks, self.collectives = [("start", self.moment())], []\n'
            '        self.optimizer.zero_grad(set_to_none=self.set_to_none)\n'
        ),
        (
            "        self.optimizer.zero_grad(set_to_none=True)\n"
            "        self.marks, self.collectives = [(\"start\", self.moment())], []\n"
        ),
        ONE,
    ),
    (
        "steps in which DDP's logger waits",
        RECORD,
        "logged = max(0, 11 - warmup) if job.ddp is not None",
        "logged = 0 if job.ddp is not None",
        BETWEEN,
    ),
    (
        "moments told before the device is done",
        RECORD,
        "    join.__exit__(None, None, None)\n    job.synchronize()\n",
        "    join.__exit__(None, None, None)\n",
        ONE,
    ),
    (
        "a bucket that ends when it begins",
        RECORD,
        "            entry[\"end\"] = self.moment()\n            reduced = future.value()",
        "            entry[\"end\"] = ready\n            reduced = future.value()",
        SMALL,
    ),
    (
        "a collective's bytes counted twice",
        RECORD,
        '"bytes": wire.numel() * wire.element_size()',
        '"bytes": 2 * wire.numel() * wire.element_size()',
        SMALL,
    ),
    (
        "a rank left out of the spans",
        RECORD,
        "        for rank, e in enumerate(everyone):\n            origin",
        "        for rank, e in enumerate(everyone[:1]):\n            origin",
        SMALL,
    ),
    (
        "a rank left out of the layer profile",
        RECORD,
        'slowest = [max(ranks, key=sum) for ranks in zip(*(p["passes"] for p in profiles))]',
        'slowest = [ranks[0] for ranks in zip(*(p["passes"] for p in profiles))]',
        ask_slow_rank,
    ),
    (
        "a gradient used before its all-reduce",
        RECORD,
        "async_op=async_op)\n            entry",
        "async_op=True)\n            entry",
        AVERAGING,
    ),
    (
        "the first event before the wait",
        OPS,
        "        torch.cuda._sleep(int(spin_s * self.cycles_per_s))\n        begin.record()\n",
        "        begin.record()\n        torch.cuda._sleep(int(spin_s * self.cycles_per_s))\n",
        LINEAR,
    ),
    (
        "one launch too many",
        OPS,
        "for i in range(count):\n            call(k + i)",
        "for i in range(count + 1):\n            call(k + i)",
        LINEAR,
    ),
    (
        "the last event on another stream",
        OPS,
        "full = not begin.query()\n        done.record()",
        "full = not begin.query()\n        done.record(torch.cuda.Stream())",
        LINEAR,
    ),
    (
        "no wait for the host",
        OPS,
        "        torch.cuda._sleep(int(spin_s * self.cycles_per_s))\n",
        "",
        LINEAR,
    ),
    ("another precision", OPS, "allow_tf32 = p == TF32", "allow_tf32 = p == BF16", LINEAR),
    (
        "copies of half of the bytes",
        OPS,
        '"kind": kind, "bytes": size}',
        '"kind": kind, "bytes": 2 * size}',
        COPIES,
    ),
]


def broken(folder, file, old, new):
    """A copy of the scripts with one text replaced."""
    tools = Path(folder) / "tools"
    shutil.copytree(TOOLS, tools, ignore=shutil.ignore_patterns("__pycache__"))
    text = (tools / file).read_text(encoding="utf-8")
    if text.count(old) != 1:
        sys.exit(f"breakage: {file} does not have once: {old}")
    (tools / file).write_text(text.replace(old, new), encoding="utf-8")
    return tools


def main():
    begin = time.monotonic()
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [b for b in BREAKAGE if part in b[0]]
    wrong, whole = [], {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = list(dict.fromkeys(b[4] for b in chosen))
        answers = pool.map(lambda k: asked[k](f"{folder}/whole{k}", TOOLS), range(len(asked)))
        for ask, (bad, judged) in zip(asked, answers):
            whole[ask] = judged
            if bad:
                print(f"WRONG: the scripts as they are: {bad[0]}")
                return 1

        def one(number):
            _, file, old, new, ask = chosen[number]
            place = f"{folder}/broken{number}"
            return ask(f"{place}/run", broken(place, file, old, new))

        for (name, *_, ask), (bad, judged) in zip(chosen, pool.map(one, range(len(chosen)))):
            if not bad and judged < 0.7 * whole[ask]:
                bad = [f"{judged} samples, not {whole[ask]}"]
            how = "noticed: " + " ".join(bad[0].split())[:110] if bad else "NOT NOTICED"
            print(f"{name:<40} {how}", flush=True)
            wrong += [] if bad else [name]
    print(f"{time.monotonic() - begin:.0f} s")
    for name in wrong:
        print("WRONG: nobody noticed: " + name)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
