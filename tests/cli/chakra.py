#!/usr/bin/env python3
"""ddpsim export chakra and import chakra, beside Google's own Protocol Buffers: what is exported is
what Chakra's feeder takes, an import of it is predicted as the scenario was, traces that others
wrote are played, and what nothing can play is refused in a sentence. Skipped without
python3-protobuf.

  chakra.py DDPSIM [--self-test]
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
try:
    import chakra_schema as chakra
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-protobuf)")
    sys.exit(77)

COMM = {"all_reduce": 0, "reduce": 1, "all_gather": 2, "broadcast": 5, "reduce_scatter": 7}
SCENARIOS = {
    "ddp": ["--workload", "resnet50", "--cluster", "dgx-h100", "--ranks", "8"],
    "fsdp": ["--workload", "resnet50", "--cluster", "dgx-h100", "--ranks", "8",
             "--set", "system=fsdp"],
    "cpu": ["--workload", "cnn-cpu", "--cluster", "ethernet-10g", "--ranks", "4"],
}  # fmt: skip


def check(condition, what):
    if not condition:
        raise SystemExit(f"chakra: {what}")


class Asker:
    def __init__(self, ddpsim):
        self.ddpsim = ddpsim

    def run(self, *args):
        return subprocess.run([self.ddpsim, *map(str, args)], capture_output=True, text=True)

    def text(self, *args):
        done = self.run(*args)
        check(done.returncode == 0, f"{args}: {done.stderr}")
        return done.stdout

    def step(self, *args):
        return json.loads(self.text("predict", *args, "--format", "json"))["summary"]["step_ps"]

    def refused(self, sentence, *args):
        done = self.run(*args)
        check(done.returncode == 2, f"{args} ends with {done.returncode}: {done.stderr}")
        check(sentence in done.stderr, f"{args}: expected {sentence!r}, it says {done.stderr}")


def check_nodes(program, ranks, nodes, rank, groups):
    """Of a Program (ddpsim.program/1), one rank's nodes, from Chakra's schema and its feeder."""
    ops = program["steps"][-1]["ops"]
    check(len(nodes) == len(ops), f"{len(nodes)} nodes of {len(ops)} operations")
    number = {o["op"]: k for k, o in enumerate(ops)}
    on_cpu_device = program["device"] == "cpu"
    last = {}
    for k, (o, n) in enumerate(zip(ops, nodes)):
        said = chakra.values_of(n)
        check(n.id == k and n.name == o["op"], f"node {k} is {n.id}, {n.name}")
        wanted = {number[w] for w in o["waits_for"]}
        if o["lane"] not in ("worker", "callback"):
            if o["lane"] in last:
                wanted.add(last[o["lane"]])
            last[o["lane"]] = k
        check(set(n.data_deps) == wanted, f"{o['op']} waits for {list(n.data_deps)}, not {wanted}")
        check(all(d < k for d in n.data_deps), f"{o['op']} waits for a later node")
        if o["does"] != "communicate":
            check(n.type == chakra.COMP, f"{o['op']} is of type {n.type}")
            host = o["lane"] in ("host", "worker")
            if on_cpu_device and o["does"] in ("compute", "copy"):
                host = False
            check(said["is_cpu_op"] is host, f"{o['op']}: is_cpu_op is {said['is_cpu_op']}")
            check({"num_ops", "tensor_size"} <= said.keys(), f"{o['op']} lacks what is computed")
            if o.get("cost", "measured") == "measured" and "duration_ps" in o:
                micros = o["duration_ps"] / 1e6
                check(abs(n.duration_micros - micros) <= 0.5001, f"{o['op']}: {n.duration_micros}")
            continue
        check(n.type == chakra.COLL and said["is_cpu_op"] is False, f"{o['op']} is no collective")
        check(said["comm_type"] == COMM[o["operation"]], f"{o['op']}: {said['comm_type']}")
        size = ranks
        if o["group"] != "world":
            members = groups[said["pg_name"]]
            check(rank in members, f"{o['op']} of rank {rank} is of group {members}")
            size = len(members)
            check(size == program["groups"][o["group"]]["size"], f"{o['op']}: {members}")
        else:
            check("pg_name" not in said, f"{o['op']} names a group")
        # ASTRA-sim's ring gathers comm_size from each rank; everything else is the whole vector.
        bytes_ = -(-o["bytes"] // size) if o["operation"] == "all_gather" else o["bytes"]
        check(said["comm_size"] == bytes_, f"{o['op']}: {said['comm_size']} bytes, not {bytes_}")


def longest_path(nodes):
    end = []
    for n in nodes:
        end.append(max((end[d] for d in n.data_deps), default=0) + n.duration_micros)
    return max(end) * 1e6


def plain(metadata, nodes):
    """As another program would have written it."""
    other = chakra.GlobalMetadata(version=metadata.version)
    out = []
    for n in nodes:
        m = chakra.Node()
        m.CopyFrom(n)
        del m.attr[:]
        m.attr.extend(a for a in n.attr if not a.name.startswith("ddpsim."))
        out.append(m)
    return other, out


def round_trip(ask, folder, name, flags):
    out = folder / name
    ask.text("export", "chakra", *flags, "--out", out, "--name", "step")
    program = json.loads(ask.text("show", "program", *flags, "--format", "json"))
    ranks = program["ranks"]
    files = sorted(out.glob("step.*.et"))
    check(len(files) == ranks, f"{name}: {len(files)} files of {ranks} ranks")
    groups = {}
    if (out / "comm_groups.json").exists():
        groups = json.loads((out / "comm_groups.json").read_text())
    for rank in range(ranks):
        metadata, nodes = chakra.read(out / f"step.{rank}.et")
        check(metadata.version == "0.0.4", f"version {metadata.version}")
        check_nodes(program, ranks, nodes, rank, groups)
    pairs = [flags[k : k + 2] for k in range(0, len(flags), 2)]
    cluster = [f for p in pairs if p[0] == "--cluster" or "cluster." in p[1] for f in p]
    back = folder / f"{name}.json"
    ask.text("import", "chakra", *files, "--out", back)
    wanted = ask.step(*flags)
    step = ask.step("--program", back, *cluster)
    check(step == wanted, f"{name}: predicted {step}, the scenario {wanted}")

    metadata, nodes = chakra.read(files[0])
    alone = longest_path(nodes)
    # The nodes do not say that collectives wait for kernels and hold their share of the device.
    check(abs(alone / wanted - 1) < 0.07, f"{name}: the longest path takes {alone}, not {wanted}")
    # A changed node counts, and not what ddpsim wrote beside it.
    devices = [n for n in nodes if n.type == chakra.COMP and not chakra.values_of(n)["is_cpu_op"]]
    longest = max(devices, key=lambda n: n.duration_micros)
    longest.duration_micros += 50_000
    changed = chakra.write(folder / "changed.et", nodes, metadata)
    named = ["--groups", out / "comm_groups.json"] if groups else []
    done = ask.run("import", "chakra", changed, "--ranks", ranks, "--out", back, *named)
    check("it was changed since" in done.stderr, f"{name}: a changed trace is read as it was")
    step = ask.step("--program", back, *cluster)
    check(step > wanted + 40e9, f"{name}: 50 ms more, and it takes {step} instead of {wanted}")
    longest.duration_micros -= 50_000
    metadata, nodes = plain(metadata, nodes)
    foreign = chakra.write(folder / "foreign.et", nodes, metadata)
    ask.text("import", "chakra", foreign, "--ranks", ranks, "--out", back, *named)
    step = ask.step("--program", back, *cluster)
    if "--verbose" in sys.argv:
        parts = f"longest path {alone / wanted - 1:+.4f}, plain {step / wanted - 1:+.4f}"
        print(f"{name}: {wanted} ps, {parts}")
    check(abs(step / wanted - 1) < 0.07, f"{name}: as another's trace {step}, not {wanted}")


def given(ask, folder):
    """A program of somebody's, which says no batch."""
    cluster = ["--cluster", "ethernet-10g"]
    program, back = ROOT / "scenarios/ten-all-reduces.json", folder / "given.json"
    ask.text("export", "chakra", "--program", program, *cluster, "--out", folder / "given")
    ask.text("import", "chakra", *sorted((folder / "given").glob("*.et")), "--out", back)
    wanted, step = (ask.step("--program", p, *cluster) for p in (program, back))
    check(step == wanted, f"given: predicted {step}, the program {wanted}")


def in_groups(ask, folder):
    """HSDP: a file a rank, which differ in their groups."""
    flags = ["--workload", "resnet50", "--cluster", "dgx-h100", "--ranks", "16",
             "--set", "cluster.hosts=2", "--set", "system=fsdp",
             "--set", "sharding_strategy=hybrid_shard"]  # fmt: skip
    round_trip(ask, folder, "hsdp", flags)


def others_traces(ask, folder):
    """What ASTRA-sim's examples are: one collective, the same on each rank."""
    ranks = 4
    files = [
        chakra.write(folder / f"all_reduce.{r}.et",
                     [chakra.node(r, "all_reduce_4npus_1MB", chakra.COLL, is_cpu_op=False,
                                  comm_type=0, comm_size=1 << 20)])  # fmt: skip
        for r in range(ranks)
    ]
    back = folder / "one.json"
    ask.text("import", "chakra", *files, "--out", back)
    program = json.loads(back.read_text())
    check(program["ranks"] == ranks and program["name"] == "all_reduce", f"{program}")
    op = program["steps"][0]["ops"][0]
    check(op["bytes"] == 1 << 20 and op["operation"] == "all_reduce", f"{op}")
    flags = ["--cluster", "dgx-h100"]
    step = ask.step("--program", back, *flags)
    priced = json.loads(ask.text("explain", "--op", "all_reduce", "--bytes", "1MiB", "--ranks", "4",
                                 *flags, "--format", "json"))  # fmt: skip
    chosen = next(c for c in priced["candidates"] if c["chosen"])
    check(step == chosen["price_ps"], f"one all-reduce takes {step}, its price is {chosen}")
    # A rank puts in an eighth of what is gathered.
    gathers = chakra.node(0, "g", chakra.COLL, is_cpu_op=False, comm_type=2, comm_size=1000)
    gather = chakra.write(folder / "gather.0.et", [gathers])
    program = json.loads(ask.text("import", "chakra", gather, "--ranks", 8))
    check(program["steps"][0]["ops"][0]["bytes"] == 8000, f"{program}")
    # Nodes in any order, dependencies of both kinds, on itself and on nodes that are not there;
    # two streams; groups in a node of metadata.
    pg = chakra.node(9, "## process_group:init ##", chakra.METADATA)
    pg.inputs.values = '["[{\\"pg_name\\": \\"7\\", \\"ranks\\": [0, 2]}]"]'
    nodes = [
        chakra.node(4, "sum", chakra.COLL, [3], is_cpu_op=False, comm_type=0, comm_size=4000,
                    pg_name="7"),
        chakra.node(3, "gemm", chakra.COMP, [2, 3, 77], 900, is_cpu_op=False, tid=7),
        chakra.node(2, "MulBackward0", chakra.COMP, [9], 20, is_cpu_op=True),
        chakra.node(5, "gemm", chakra.COMP, [2], 400, is_cpu_op=False, tid=20),
        pg,
    ]  # fmt: skip
    nodes[0].ctrl_deps.append(5)
    nodes[3].attr.append(chakra.AttributeProto(name="num_ops", sint64_val=-3))
    mixed = chakra.write(folder / "mixed.0.et", nodes)
    done = ask.run("import", "chakra", mixed, "--ranks", 4, "--out", back)
    check("1 dependencies are on nodes that are not in the trace" in done.stderr, done.stderr)
    ops = {o["op"]: o for o in json.loads(back.read_text())["steps"][0]["ops"]}
    order = list(ops)
    check(order == ["MulBackward0", "gemm", "gemm #5", "sum"], f"in the order {order}")
    waits = set(ops["sum"]["waits_for"])
    check(waits == {"gemm", "gemm #5"} and ops["sum"]["group"] == [0, 2], f"{ops}")
    check(ops["gemm"]["lane"] == "compute" and ops["gemm #5"]["lane"] == "stream.20", f"{ops}")
    check(ops["gemm"]["phase"] == "update", f"{ops['gemm']} comes after backward's last node")
    check(ask.step("--program", back, *flags) > 900e6, "it is no longer than a kernel")
    nodes[2].ctrl_deps.append(4)
    done = ask.run("import", "chakra", chakra.write(mixed, nodes), "--ranks", 4, "--out", back)
    check("dependencies of control have cycles" in done.stderr, done.stderr)
    del nodes[2].ctrl_deps[:]
    missing = chakra.write(folder / "missing.0.et", nodes[:4])
    ask.refused("--groups FILE.json", "import", "chakra", missing, "--ranks", 4)
    groups = folder / "groups.json"
    groups.write_text('{"7": [0, 2]}')
    ask.text("import", "chakra", missing, "--ranks", 4, "--groups", groups)


def refusals(ask, folder):
    good = [chakra.node(0, "a", chakra.COMP, [], 10, is_cpu_op=False)]
    at = folder / "bad.et"

    def bad(sentence, nodes, *more):
        ask.refused(sentence, "import", "chakra", chakra.write(at, nodes), *more)

    bad("traces of pipelines", [*good, chakra.node(1, "s", chakra.SEND)])
    bad("moves memory", [chakra.node(1, "m", chakra.MEM_LOAD)])
    circle = [chakra.node(0, "a", chakra.COMP, [1]), chakra.node(1, "b", chakra.COMP, [0])]
    bad("have a cycle", circle)
    bad("two nodes have the number 0", good + good)
    bad("without comm_type and comm_size", [chakra.node(0, "c", chakra.COLL, is_cpu_op=False)])
    bad("which ddpsim does not play",
        [chakra.node(0, "c", chakra.COLL, is_cpu_op=False, comm_type=3, comm_size=8)])  # fmt: skip
    bad("has no node", [])
    bad("no node that takes time", [chakra.node(0, "m", chakra.METADATA)])
    one = chakra.write(folder / "r.0.et", good)
    two = chakra.write(folder / "r.1.et", good + [
        chakra.node(1, "c", chakra.COLL, is_cpu_op=False, comm_type=0, comm_size=8)])  # fmt: skip
    ask.refused("all ranks do the same", "import", "chakra", one, two)
    ask.refused("2 traces are given", "import", "chakra", one, one, "--ranks", 4)
    ask.refused("no such file", "import", "chakra", folder / "none.et")
    whole = one.read_bytes()
    for size in range(1, len(whole)):
        at.write_bytes(whole[:size])
        done = ask.run("import", "chakra", at)
        check(done.returncode == 2 and len(done.stderr.splitlines()) == 1,
              f"cut at {size}: {done.returncode}, {done.stderr}")  # fmt: skip
    for content in (b"", b"{\"schema\": 1}", b"\xff" * 64, bytes(64), b"\x02\x0a\xff"):
        at.write_bytes(content)
        done = ask.run("import", "chakra", at)
        check(done.returncode == 2, f"{content!r}: {done.returncode}, {done.stderr}")
    ask.refused("--out", "export", "chakra", *SCENARIOS["ddp"])


def self_test(ask, folder):
    """The check of nodes notices what a wrong export would have."""
    flags = SCENARIOS["fsdp"]
    out = folder / "self"
    ask.text("export", "chakra", *flags, "--out", out, "--name", "step", "--first", 1)
    program = json.loads(ask.text("show", "program", *flags, "--format", "json"))
    for plant in ("dep", "size", "type", "cpu", "duration"):
        _, nodes = chakra.read(out / "step.0.et")
        collective = next(n for n in nodes if chakra.values_of(n).get("comm_type") == 2)
        compute = next(n for n in nodes if n.duration_micros > 3 and n.type == chakra.COMP)
        said = {a.name: a for a in collective.attr}
        if plant == "dep":
            del collective.data_deps[0]
        elif plant == "size":
            said["comm_size"].int64_val *= 8
        elif plant == "type":
            said["comm_type"].int64_val = 0
        elif plant == "cpu":
            said["is_cpu_op"].bool_val = True
        else:
            name = next(o["op"] for o in program["steps"][-1]["ops"] if o["does"] == "compute")
            compute = next(n for n in nodes if n.name == name)
            compute.duration_micros += 2
        try:
            check_nodes(program, 8, nodes, 0, {})
        except SystemExit:
            continue
        raise SystemExit(f"chakra: a wrong {plant} was not noticed")


def main():
    ask = Asker(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if "--self-test" in sys.argv:
            return self_test(ask, folder)
        for name, flags in SCENARIOS.items():
            round_trip(ask, folder, name, flags)
        given(ask, folder)
        in_groups(ask, folder)
        others_traces(ask, folder)
        refusals(ask, folder)


if __name__ == "__main__":
    main()
