#!/usr/bin/env python3
"""Damaged files for every command that reads one, and damaged scripts: an answer or one sentence
(exit code 0, 1 or 2), in 5 s of CPU time and a gigabyte, and no file but the answer's is changed.

  damaged_inputs.py DDPSIM [COUNT] [SEED]     COUNT: 60; the nightly asks for 2,000
"""
import gzip
import hashlib
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_CPU, MOST_MEMORY = 5, 1 << 30
NCCL = "tests/data/nccl/"
RUN = "calib/runs/" + sorted(p.name for p in (ROOT / "calib/runs").glob("*.json.gz"))[0]
ON = ["--cluster", "ethernet-10g"]
GPU = ["--workload", "resnet18", "--cluster"]

# Arguments, with FILE where the damaged file stands, and what it is made of.
READERS = [
    (["predict", "FILE"], "tests/golden/scenarios/fsdp-1.13.json"),
    (["predict", "FILE", *ON], "scenarios/ten-all-reduces.json"),
    (["predict", "--workload", "FILE", "--cluster", "hgx-h100"], "workloads/resnet18.json"),
    (["predict", *GPU, "FILE"], "topologies/dgx1-v100.json"),
    (["predict", *GPU, "hgx-h100", "--profile", "FILE"], "calib/profiles/h100-sxm.datasheet.json"),
    (["topology", "show", "FILE"], "topologies/fat-tree-h100.json"),
    (["show", "run", "FILE"], RUN),
    (["import", "nccl-tests", "FILE"], NCCL + "all_reduce_modern.txt"),
    (["import", "nccl-tests", "FILE"], NCCL + "all_reduce.json"),
    (["import", "nccl-tests", "FILE", "--forced", "ALGO=Ring"], NCCL + "sweep.csv"),
    (["import", "nccl-topo", "FILE"], NCCL + "dgx_a100_topo.xml"),
    (["import", "nccl-graph", "FILE"], NCCL + "graph_2hosts.xml"),
    (["export", "nccl-tuner", "--from", "FILE"], NCCL + "tuner_measured.csv"),
    (["import", "kineto", "FILE", "--run", "OUT"], "tests/data/kineto/cnn-2-0.json.gz"),
    (["import", "horovod-timeline", "FILE", "--run", "OUT"],
     "tests/data/horovod_timeline/resnet18.json"),
    (["import", "chakra", "FILE", "--out", "OUT"], "CHAKRA"),
    (["explain", "FILE"], "tests/data/kineto/cnn-1-0.json.gz"),
    (["merge", "FILE", "--out", "OUT"], "SWEEP"),
    (["describe", "--timeout", "5s", "--script", "FILE", "--out", "OUT"], "SCRIPT"),
]  # fmt: skip
SCRIPT = """import os, sys, torch, shutil, json, logging
import torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
os.makedirs("out", exist_ok=True)
logging.basicConfig(filename="train.log")
for step in range(9):
    x = torch.randn(4, 8).cuda()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    open("out/log.txt", "a").write(f"{step} {loss.item()}")
shutil.rmtree("out")
"""
WORDS = [b"0", b"-1", b"1e308", b"NaN", b"null", b"[]", b"{}", b'""', b"99999999999999999999",
         b"\0", b"\xff", b"\xe2\x80\xae", b"[" * 5000, b'{"a":' * 3000, b"exit()", b"<a>" * 3000,
         b"0Gb/s", b"#", b"\n" * 3000, b"while 1: pass\n", b"os._exit(3)\n",
         b"raise BaseException\n", b"x" * 300000]  # fmt: skip


def damaged(rng, data):
    out = bytearray(data)
    for _ in range(1 + int(rng.expovariate(1))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(7)
        if kind == 0:
            del out[at:]
        elif kind == 1:
            del out[at : at + rng.randrange(1, 60)]
        elif kind == 2 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 3:
            out[at:at] = rng.choice(WORDS)
        elif kind == 4:
            begin = rng.randrange(len(out) + 1)
            out[at:at] = out[begin : begin + rng.randrange(2000)]
        elif kind == 5:
            numbers = [i for i in range(len(out)) if 48 <= out[i] <= 57][:100000]
            if numbers:
                i = rng.choice(numbers)
                out[i : i + 1] = rng.choice(WORDS[:9])
        else:
            lines = out.split(b"\n")
            rng.shuffle(lines)
            out = bytearray(b"\n".join(lines))
    return bytes(out)


def seeds(ddpsim, folder):
    """Of each reader: undamaged bytes and the file's ending."""
    made = {"SCRIPT": (SCRIPT.encode(), ".py")}
    subprocess.run([ddpsim, "export", "chakra", ROOT / "scenarios/ten-all-reduces.json", *ON,
                    "--out", folder / "et"], check=True, capture_output=True)  # fmt: skip
    made["CHAKRA"] = (sorted((folder / "et").glob("*.et"))[0].read_bytes(), ".0.et")
    sweep = [ddpsim, "sweep", *GPU, "hgx-h100", "--axis", "ranks=2,4,8", "--format", "csv"]
    text = subprocess.run([*sweep, "--out", folder / "s.csv"], capture_output=True, check=True)
    made["SWEEP"] = ((folder / "s.csv").read_bytes() or text.stdout, ".csv")
    for _, source in READERS:
        if source not in made:
            data, ending = (ROOT / source).read_bytes(), "".join(Path(source).suffixes[-1:])
            if source.endswith(".gz"):
                data, ending = gzip.decompress(data), ".json"
            made[source] = (data, ending)
    return made


def tree(folder):
    return {
        str(p.relative_to(folder)): p.is_file() and hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.rglob("*")
    }


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    ddpsim, count = os.path.abspath(sys.argv[1]), int((sys.argv[2:3] or ["60"])[0])
    rng = random.Random(int((sys.argv[3:4] or ["53"])[0]))
    failed, codes, most_cpu, most_memory = 0, {}, 0.0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = seeds(ddpsim, folder)
        work = folder / "work"
        work.mkdir()
        (work / "kept.txt").write_text("kept")
        environment = {**os.environ, "DDPSIM_HOME": str(ROOT), "TMPDIR": name}
        for number in range(-len(READERS), count):
            # First each as it is; a script takes as long as ten files.
            readers = READERS if number % 10 == 0 else READERS[:-1]
            arguments, source = rng.choice(readers) if number >= 0 else READERS[number]
            data, ending = known[source]
            file = work / ("input" + ending)
            file.write_bytes(damaged(rng, data) if number >= 0 else data)
            (folder / "out.json").unlink(missing_ok=True)
            places = {"FILE": str(file), "OUT": str(folder / "out.json")}
            before = tree(work)
            argv = [places.get(a, a) for a in arguments]
            process = subprocess.Popen(
                [ddpsim, *argv], cwd=work, env=environment, preexec_fn=limits,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            said = process.stderr.read().decode(errors="replace")
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = code = os.waitstatus_to_exitcode(status)
            cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss << 10
            script = arguments[0] == "describe"
            wrong = []
            if code not in ((0, 1, 2) if number >= 0 else (0,)):
                wrong.append(f"exit code {code}")
            if cpu > (MOST_CPU + 10 if script else MOST_CPU):  # imports of torch, and --timeout
                wrong.append(f"{cpu:.1f} s")
            if memory > MOST_MEMORY:
                wrong.append(f"{memory >> 20} MiB")
            if tree(work) != before:
                wrong.append("files were changed")
            if number >= 0:
                codes[code] = codes.get(code, 0) + 1
            if not script:
                most_cpu, most_memory = max(most_cpu, cpu), max(most_memory, memory)
            if wrong:
                failed += 1
                kept = Path(tempfile.gettempdir()) / f"ddpsim-damaged-{number}{ending}"
                kept.write_bytes(file.read_bytes())
                print(f"{number}: {' '.join(arguments)} ({source}): {', '.join(wrong)}: {kept}")
                print("   ", said[-300:])
            file.unlink()
    print(
        f"{count} damaged inputs, {failed} do not end as they should; exit codes"
        f" {dict(sorted(codes.items()))}; of files at most {most_cpu:.1f} s and"
        f" {most_memory >> 20} MiB"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
