#!/usr/bin/env python3
"""ddpsim import nsys and explain of Nsight Systems' exports: one says what a trace of PyTorch's
profiler says of the same run; what is wrong is told in a sentence. Skipped where the build has no
SQLite.

  nsys.py DDPSIM
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from nsys_fixture import Export, events_of  # noqa: E402

BEGAN_NS = {"v100-resnet50-ddp1": 1712195495_000_000_000, "a100-resnet50-ddp2": 4458676_000_000_000,
            "mi250-minitoy": 4203669_000_000_000}  # fmt: skip
TIMES = ("iteration_ps", "forward_ps", "backward_ps", "optimizer_ps", "hooks_ps", "exposed_ps",
         "host_forward_ps", "host_backward_ps", "host_optimizer_ps", "host_waits_ps")  # fmt: skip


def check(condition, what):
    if not condition:
        sys.exit(f"nsys: {what}")


class Asker:
    def __init__(self, ddpsim):
        self.ddpsim = ddpsim

    def run(self, *args):
        return subprocess.run([self.ddpsim, *map(str, args)], capture_output=True, text=True)

    def answer(self, *args):
        done = self.run(*args)
        check(done.returncode == 0, f"{args}: {done.stderr}")
        return json.loads(done.stdout)

    def refused(self, sentence, *args):
        done = self.run(*args)
        check(done.returncode == 2, f"{args} ends with {done.returncode}")
        check(sentence in done.stderr, f"{args}: expected {sentence!r}, it says {done.stderr}")
        check(len(done.stderr.strip().splitlines()) == 1, f"{args}: no sentence: {done.stderr}")


def numbered(document):
    """The fixtures have no numbers of autograd: one for each node before a gradient, and an
    operator of forward that made it, evenly over forward."""
    events = sorted(document["traceEvents"], key=lambda e: (e["ts"], -e["dur"]))
    kind = "autograd::engine::evaluate_function: "
    forward = node = None
    open_nodes, made = [], []
    for e in events:
        if e["name"].startswith("DistributedDataParallel.forward"):
            forward, open_nodes = e, []
        elif e["name"] == kind + "torch::autograd::AccumulateGrad":
            if node is not None and "Sequence number" not in node["args"]:
                node["args"]["Sequence number"] = len(made) + len(open_nodes)
                open_nodes.append(node)
        elif e["name"].startswith(kind):
            node = e
        elif e["name"].startswith("Optimizer.step") and forward is not None:
            for k, n in enumerate(reversed(open_nodes)):
                made.append({
                    "ph": "X", "cat": "cpu_op", "name": "aten::op", "pid": forward["pid"],
                    "tid": forward["tid"], "dur": 1,
                    "ts": forward["ts"] + forward["dur"] * k / len(open_nodes),
                    "args": {"Sequence number": n["args"]["Sequence number"]}})  # fmt: skip
            forward = None
    document["traceEvents"] += made


def export(folder, name, older=False, registered=False):
    document = events_of(ROOT / "tests" / "data" / "kineto" / f"{name}.json.gz")
    numbered(document)
    path = folder / f"{name}.sqlite"
    made = Export(path, older)
    made.session(document["deviceProperties"][0]["name"], BEGAN_NS[name])
    made.add(document, pid=4711, device=0, began_ns=BEGAN_NS[name], registered=registered)
    made.close()
    plain = folder / f"{name}.json"
    plain.write_text(json.dumps(document, default=str))
    return path, plain


def as_kineto(ask, folder):
    more = ["--model", "resnet50"]
    for name, older, registered, cluster in (
        ("v100-resnet50-ddp1", False, False, "aws-p3dn"),
        ("v100-resnet50-ddp1", True, False, "aws-p3dn"),
        ("a100-resnet50-ddp2", False, True, "dgx-a100"),
    ):
        path, plain = export(folder, name, older, registered)
        made, wanted = folder / "made.json", folder / "wanted.json"
        a = ask.answer("import", "nsys", path, "--format", "json", "--workload", made, *more)
        b = ask.answer("import", "kineto", plain, "--format", "json", "--workload", wanted, *more)
        for key in ("iterations", "gradients", "device"):
            check(a[key] == b[key], f"{name}: {key} is {a[key]}, of PyTorch's trace {b[key]}")
        for key in TIMES:  # the export counts nanoseconds
            check(abs(a[key] - b[key]) < 2_000, f"{name}: {key} is {a[key]}, not {b[key]}")
        a, b = json.loads(made.read_text()), json.loads(wanted.read_text())
        for key in ("device", "tensors", "arrival", "optimizer", "precision"):
            check(a[key] == b[key], f"{name}: {key} of the workload differs")
        layers = [w["times"]["layers"] for w in (a, b)]
        check(len(layers[0]) == 107, f"{name}: {len(layers[0])} layers")
        for x, y in zip(*layers):
            check(x["name"] == y["name"] and x["tensors"] == y["tensors"], f"{name}: {x}, not {y}")
            for key in ("forward_ps", "host_forward_ps"):
                check(abs(x[key] - y[key]) < 4_000, f"{name}: {x}, not {y}")
        steps = [
            ask.answer("predict", "--workload", w, "--cluster", cluster, "--ranks", 8,
                       "--plan", "fsdp", "--format", "json")["summary"]["step_ps"]
            for w in (made, wanted)
        ]  # fmt: skip
        check(abs(steps[0] / steps[1] - 1) < 1e-4, f"{name}: predicted {steps}")


def shaped(path):
    """An export whose ranges tell shapes, as emit_nvtx(record_shapes=True) has them."""
    document = events_of(ROOT / "tests" / "data" / "kineto" / "mi250-minitoy.json.gz")
    made = Export(path)
    made.session("AMD", BEGAN_NS["mi250-minitoy"])
    # One optimizer's step tells no iteration: the same steps again.
    twice = [dict(e, ts=e["ts"] + 20_000, args=dict(e["args"])) for e in document["traceEvents"]]
    for e in twice:
        if "correlation" in e["args"]:
            e["args"]["correlation"] += 1000
    document["traceEvents"] += twice
    made.add(document, pid=12, device=2, began_ns=BEGAN_NS["mi250-minitoy"])
    made.close()


def with_shapes(ask, folder):
    path = folder / "shapes.sqlite"
    shaped(path)
    out = folder / "shapes.json"
    more = ["--workload", out, "--batch", 20, "--format", "json"]
    notes = ask.answer("import", "nsys", path, *more)["notes"]
    check(any("float32" in n for n in notes), "it does not say that it takes float32")
    shapes = [t["shape"] for t in json.loads(out.read_text())["tensors"]]
    check(sorted(shapes) == [[128], [128, 128]], f"tensors of shapes are {shapes}")


def several_ranks(ask, folder):
    """Two processes in one export, the second 3 ms late, with the same correlation ids."""
    document = events_of(ROOT / "tests" / "data" / "kineto" / "a100-resnet50-ddp2.json.gz")
    path = folder / "ranks.sqlite"
    began = BEGAN_NS["a100-resnet50-ddp2"]
    made = Export(path)
    made.session("NVIDIA A100", began)
    made.add(document, pid=200, device=1, began_ns=began, late_ns=3_000_000)
    made.add(document, pid=300, device=0, began_ns=began)
    made.close()
    run = folder / "run.json"
    ask.answer("import", "nsys", path, "--run", run, "--name", "two", "--format", "json")
    run = json.loads(run.read_text())
    check(run["case"]["key"] == "nsys/two/n2", f"its case is {run['case']}")
    moved = sum(s["bytes"] for s in run["spans"] if s["op"].startswith("allreduce/bucket."))
    check(moved == 2 * 25_557_032 * 4, f"two ranks reduce {moved} bytes")
    kinds = {s.get("dtype") for s in run["spans"] if s["op"].startswith("allreduce/bucket.")}
    check(kinds == {"float32"}, f"NCCL's kernels say {kinds}")
    told = ask.answer("explain", path, "--format", "json")
    check([r["rank"] for r in told["ranks"]] == [0, 1], f"ranks are {told['ranks']}")
    check("(process 300)" in told["ranks"][0]["file"], "rank 0 is not that of device 0")
    older = folder / "older.sqlite"
    made = Export(older, older=True)
    made.add(document, pid=200, device=1, began_ns=began)
    made.add(document, pid=300, device=0, began_ns=began)
    made.close()
    ask.refused("record each process by itself", "import", "nsys", older)


def changed(path, to, statement):
    import shutil
    import sqlite3

    shutil.copy(path, to)
    base = sqlite3.connect(to)
    base.executescript(statement)
    base.commit()
    base.close()
    return to


def refusals(ask, folder):
    path, plain = export(folder, "v100-resnet50-ddp1")
    at = folder / "bad.sqlite"
    ask.refused("no such file", "import", "nsys", folder / "none.sqlite")
    ask.refused("ddpsim import kineto", "import", "nsys", plain)
    ask.refused("ddpsim import nsys", "import", "kineto", path)
    report = folder / "step.nsys-rep"
    report.write_bytes(b"NSYS report")
    ask.refused("nsys export --type sqlite", "import", "nsys", report)
    whole = path.read_bytes()
    for size in (16, 100, 4096, len(whole) // 3, len(whole) - 4096):
        at.write_bytes(whole[:size])
        ask.refused("it breaks off or is damaged", "import", "nsys", at)
    for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        ask.refused("--pytorch=autograd-shapes-nvtx", "import", "nsys",
                    changed(path, at, f"DROP TABLE {table}"))  # fmt: skip
    changed(path, at, "DROP TABLE StringIds")
    ask.refused("StringIds is nowhere", "import", "nsys", at)
    changed(path, at, "ALTER TABLE NVTX_EVENTS RENAME COLUMN globalTid TO tid")
    ask.refused("has no column globalTid", "import", "nsys", at)
    changed(path, at, "DELETE FROM NVTX_EVENTS WHERE text LIKE 'Optimizer.step#%'")
    ask.refused("no whole iteration", "import", "nsys", at)
    changed(path, at, "DELETE FROM NVTX_EVENTS WHERE text LIKE 'autograd::%'")
    ask.refused("no range of autograd", "import", "nsys", at)
    changed(path, at, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; DELETE FROM "
            "CUPTI_ACTIVITY_KIND_MEMCPY; DELETE FROM CUPTI_ACTIVITY_KIND_MEMSET")  # fmt: skip
    ask.refused("no kernel in its iterations", "import", "nsys", at)
    # Copies and fills are left, which run in forward and in backward.
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    changed(path, at, f"DELETE FROM {kernels}")
    ask.refused("no kernel in its iterations", "import", "nsys", at)
    others = "SELECT id FROM StringIds WHERE value NOT LIKE 'nccl%'"
    changed(path, at, f"DELETE FROM {kernels} WHERE demangledName IN ({others})")
    ask.refused("no kernel in its iterations", "import", "nsys", at)
    for statement, phase in (
        (f"UPDATE {kernels} SET correlationId = 0", "the update"),
        (f"DELETE FROM {kernels} WHERE start > "
         f"(SELECT MAX(start) / 2 + MIN(start) / 2 FROM {kernels})", "the update"),
        ("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME", "forward"),
    ):  # fmt: skip
        changed(path, at, statement)
        for command in (("import", "nsys"), ("explain",)):
            ask.refused(f"enqueues in {phase} of an iteration nothing is in it", *command, at)
    ask.refused("--model", "import", "nsys", path, "--workload", folder / "w.json")
    # Rows that no export has.
    changed(path, at, "UPDATE NVTX_EVENTS SET globalTid = 'x', text = zeroblob(9) "
            "WHERE rowid % 7 = 0; UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 9e18, end = 9.1e18 "
            "WHERE rowid % 5 = 0")  # fmt: skip
    done = ask.run("import", "nsys", at, "--model", "resnet50")
    check(done.returncode in (0, 2), f"damaged rows end it with {done.returncode}: {done.stderr}")


def main():
    ask = Asker(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        path, _ = export(folder, "v100-resnet50-ddp1")
        first = ask.run("import", "nsys", path, "--model", "resnet50")
        if "has no SQLite" in first.stderr:
            check("libsqlite3-dev" in first.stderr, first.stderr)
            print("skipped: this build has no SQLite (Debian: libsqlite3-dev)")
            sys.exit(77)
        as_kineto(ask, folder)
        with_shapes(ask, folder)
        several_ranks(ask, folder)
        refusals(ask, folder)


if __name__ == "__main__":
    main()
