#!/usr/bin/env python3
"""Kills a worker of a real torchrun job and writes down what its recovery takes, phase by phase.

    /usr/bin/python3 tools/python/ddpsim_elastic.py --monitor 1 --workers 2 --out cell.json

torchrun (torch.distributed.run) starts `--workers` processes of this file on this machine, c10d
rendezvous, Gloo. They train a small DDP model and write a checkpoint every 10 steps. After step 17,
and a random part of the monitor interval, one worker gets SIGKILL. Times, in seconds, are of one
clock: those of the agent from its log as it comes, those of the workers from what they print.

What is written of each repetition (ddpsim.elastic_record/1; docs/formats.md): when things happened,
counted from the kill; the worker's CPU time of import; how many other processes wanted the CPUs
meanwhile. Raw: nothing is averaged or left out, but repetitions in which torchrun did not come back
within --timeout, which are counted.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from ddpsim_files import whole_file, write_whole

STEPS_BEFORE = 17
CHECKPOINT_EVERY = 10
WIDTH = 1024
LAYERS = 5


def say(what, **more):
    print(json.dumps({"t": time.time(), "what": what, **more}), flush=True)


def worker():
    rank = int(os.environ["RANK"])
    again = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) > 0
    say("python_main", rank=rank, again=again)
    import torch
    import torch.distributed as dist
    say("import_done", rank=rank, again=again, cpu=time.process_time())
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    say("process_group_done", rank=rank, again=again)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    say("built", rank=rank, again=again)
    path = os.environ["DDPSIM_CHECKPOINT"]
    step = 0
    if again:
        saved = torch.load(path)
        model.module.load_state_dict(saved["model"])
        step = saved["step"]
        say("restored", rank=rank, again=again, bytes=os.path.getsize(path))
    x = torch.randn(4, WIDTH)
    while True:
        time.sleep(0.05)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        step += 1
        say("step", rank=rank, again=again, step=step)
        if rank == 0 and step % CHECKPOINT_EVERY == 0:
            with whole_file(path) as file:
                torch.save({"model": model.module.state_dict(), "step": step}, file)
            say("saved", rank=rank, again=again)


def come_first():
    """The caller's session before all others where Linux shares CPUs by session: as on an idle
    machine. Needs root."""
    with open("/proc/self/autogroup", "w") as f:
        f.write("-20")


class Runnable(threading.Thread):
    """How many processes want a CPU, every 20 ms; itself not counted."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = []
        self.start()

    def run(self):
        while True:
            with open("/proc/stat") as f:
                n = int(next(line for line in f if line.startswith("procs_running")).split()[1])
            self.seen.append((time.time(), n - 1))
            time.sleep(0.02)

    def mean(self, begin, end):
        n = [n for t, n in self.seen if begin <= t <= end]
        return sum(n) / len(n) if n else 0.0


AGENT_SAYS = (("Starting worker group", "start_workers"), ("closing signal", "sigterm_sent"),
              ("failed (exitcode", "failed_seen"), ("will restart worker group", "restarting"),
              ("Rendezvous'ing worker group", "rendezvous_begin"),
              ("Rendezvous complete", "rendezvous_done"))


def read_lines(pipe, events, lock, of_agent):
    for line in pipe:
        now = time.time()
        if of_agent:
            found = [{"t": now, "what": what} for text, what in AGENT_SAYS if text in line]
        else:
            at = line.find("{")
            try:
                found = [json.loads(line[at:])] if at >= 0 else []
            except ValueError:
                found = []
        with lock:
            events.extend(found)


def find(events, what, after=0.0, **like):
    return [e for e in events if e["what"] == what and e["t"] >= after and
            all(e.get(k) == v for k, v in like.items())]


def wait_for(condition, until):
    while time.time() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    return None


def one(args, draw, runnable):
    """One job, one kill. None: torchrun did not come back in time."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, LOGLEVEL="INFO", PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1",
                   DDPSIM_CHECKPOINT=os.path.join(folder, "checkpoint"))
        job = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node",
             str(args.workers), "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0",
             "--max_restarts", "1", "--monitor_interval", str(args.monitor), "--log_dir", folder,
             "-r", "1", "-t", "1", os.path.abspath(__file__), "--as-worker"],
            preexec_fn=come_first if args.first else None,
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True)
        events, lock, until = [], threading.Lock(), time.time() + args.timeout
        children = set()
        for pipe, of_agent in ((job.stdout, False), (job.stderr, True)):
            threading.Thread(target=read_lines, args=(pipe, events, lock, of_agent),
                             daemon=True).start()

        def now():
            with lock:
                return list(events)

        try:
            n = args.workers
            ready = wait_for(lambda: len(find(now(), "step", step=STEPS_BEFORE)) >= n, until)
            if not ready:
                return None
            time.sleep(draw.random() * args.monitor)
            with open(f"/proc/{job.pid}/task/{job.pid}/children") as f:
                children = {int(pid) for pid in f.read().split()}
            victims = [pid for pid in sorted(children) if b"--as-worker" in
                       open(f"/proc/{pid}/cmdline", "rb").read()]
            last = max(e["step"] for e in find(now(), "step"))
            kill = time.time()
            os.kill(victims[len(victims) // 2], signal.SIGKILL)
            if not wait_for(lambda: len(find(now(), "step", after=kill, again=True)) >= n, until):
                return None
            time.sleep(0.2)
            return summary(now(), kill, last, n, runnable)
        finally:
            with open(f"/proc/{job.pid}/task/{job.pid}/children") as f:
                children |= {int(pid) for pid in f.read().split()}
            for pid in [job.pid, *children]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            job.wait()


def summary(events, kill, last, n, runnable):
    def at(what, pick=max, **like):
        found = find(events, what, after=kill, **like)
        return round(pick(e["t"] for e in found) - kill, 4) if found else None

    started = min(e["t"] for e in find(events, "start_workers"))
    begin, end = at("python_main"), at("import_done")
    restored = find(events, "restored", after=kill)
    before = sorted(e["t"] for e in find(events, "step", rank=0) if e["t"] < kill)
    steps = sorted(b - a for a, b in zip(before[2:], before[3:]))
    first = min(e["step"] for e in find(events, "step", after=kill, again=True))
    return {
        "started_before_kill_s": round(kill - started, 4),
        "step_before_s": round(steps[len(steps) // 2], 4),
        "from_kill_s": {
            "sigterm_sent": at("sigterm_sent", min), "failed_seen": at("failed_seen"),
            "rendezvous_begin": at("rendezvous_begin"), "rendezvous_done": at("rendezvous_done"),
            "start_workers": at("start_workers"), "python_main": begin, "import_done": end,
            "process_group_done": at("process_group_done"), "built": at("built"),
            "restored": at("restored"), "first_step": at("step", min, again=True)},
        "import_cpu_s": [round(e["cpu"], 4) for e in find(events, "import_done", after=kill)],
        "runnable_during_import": round(runnable.mean(kill + begin, kill + end), 2),
        "checkpoint_bytes": restored[0]["bytes"],
        "steps_lost": last - (first - 1)}


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--monitor", type=float, default=0.1, help="torchrun's --monitor_interval, s")
    p.add_argument("--workers", type=int, default=2, help="processes on this machine")
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--seed", type=int, default=1, help="of the moment of the kill")
    p.add_argument("--timeout", type=float, default=90, help="of one repetition, s")
    p.add_argument("--first", action="store_true",
                   help="give the job's session CPUs before others'; needs root")
    p.add_argument("--out", help="file; without it, standard output")
    p.add_argument("--as-worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.as_worker:
        return worker()
    import torch
    if args.first:  # who reads the clock, too
        if os.getpid() != os.getsid(0):
            os.setsid()
        come_first()
    draw, runnable, done, failed = random.Random(args.seed), Runnable(), [], 0
    for _ in range(args.repeat):
        r = one(args, draw, runnable)
        if r is None:
            failed += 1
            continue
        done.append(r)
        print(f"monitor {args.monitor} s, {args.workers} workers: first step after "
              f"{r['from_kill_s']['first_step']} s", file=sys.stderr)
    text = json.dumps({
        "schema": "ddpsim.elastic_record/1", "evidence": "system",
        "system": f"torchrun, torch {torch.__version__}, c10d rendezvous on 127.0.0.1, gloo",
        "monitor_interval_s": args.monitor, "workers": args.workers, "hosts": 1,
        "cores": os.cpu_count(), "signal": "SIGKILL", "seed": args.seed, "first": args.first,
        "checkpoint_every_steps": CHECKPOINT_EVERY, "not_back_in_time": failed,
        "repetitions": done}, indent=1) + "\n"
    if args.out:
        write_whole(args.out, text)
    else:
        print(text, end="")


if __name__ == "__main__":
    sys.exit(main())
