#!/usr/bin/env python3
"""What NCCL chooses on 400 random communicators, by NCCL's own search and cost model, beside
`ddpsim explain --op`: algorithm, protocol and channels.

The answers (tests/data/nccl/choices.json) are NCCL's: nccl_search.cc, which calls NCCL's
src/graph/*.cc of the tags 2.19 to 2.30 on hosts described in XML, as NCCL_TOPO_FILE takes them.
Nothing of sim/nccl had a part in them. Here are the hosts, and the comparison.

    python3 nccl_choice.py DDPSIM          # a quarter (all: DDPSIM_NIGHTLY); fails below the share
                                           # that has to agree
    python3 nccl_choice.py DDPSIM --all            # and name each difference
    python3 nccl_choice.py --ask FOLDER    # NCCL anew: FOLDER/VERSION/nccl_search, see there
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/python"))
from ddpsim_profiles import named_gpus, read_profile  # noqa: E402

ANSWERS = pathlib.Path(__file__).parent.parent / "data" / "nccl" / "choices.json"
CALIB = pathlib.Path(__file__).parent.parent.parent / "calib" / "profiles"
COMMUNICATORS = 400
AGREE = 0.99
VERSIONS = ["2.19.4", "2.21.5", "2.22.3", "2.23.4", "2.24.3", "2.25.1", "2.26.6", "2.27.3",
            "2.27.7", "2.28.9", "2.28.9", "2.28.9", "2.29.7", "2.30.7"]
OPERATIONS = {"all_reduce": "allreduce", "all_gather": "allgather",
              "reduce_scatter": "reducescatter", "broadcast": "broadcast", "reduce": "reduce"}
POINTS = [(op, 1 << e) for op in OPERATIONS for e in (10, 14, 16, 18, 20, 22, 24, 26, 28)]
POINTS_EACH = 4

# A host. `wiring`: what is between GPUs; `place`: how GPUs and NICs stand on PCIe switches.
Host = collections.namedtuple("Host", "wiring gpus sm place nics rate cpu generation latency")
PROFILES = {86: "a40.datasheet", 89: "l40s.datasheet"}
PROFILES |= {
    g["compute_capability"]: g["profile"] for g in named_gpus() if "compute_capability" in g
}
NVLINKS = {70: 6, 80: 12, 90: 18, 100: 18}
CPUS = {"skylake": ("x86_64", "GenuineIntel", 6, 85),
        "sapphire": ("x86_64", "GenuineIntel", 6, 143),
        "amd": ("x86_64", "AuthenticAMD", 143, 49), "arm": ("arm64", "ARM", 0, 0)}
PCIE = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe", 6: "64.0 GT/s PCIe"}
# A DGX-1's NVLinks, of V100.
CUBE = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
        (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2}
SWITCH = "0xffff:ff:ff.0"


def bus(kind, i):
    return "0000:%02x:00.0" % ((0x10 if kind == "gpu" else 0x80 if kind == "nic" else 0xc0) + i)


def nvlinks_of(h, i):
    """Of GPU i: (target, links, class)."""
    if h.wiring == "switch":
        return [("0000:f0:00.0", NVLINKS[h.sm], "0x068000")]
    count = {}
    if h.wiring == "mesh":
        each = {70: 2, 80: 4, 90: 6}[h.sm]
        count = {j: each for j in range(h.gpus) if j != i}
    elif h.wiring == "cube":
        for (a, b), n in CUBE.items():
            if i in (a, b) and max(a, b) < h.gpus:
                count[b if i == a else a] = n
    elif h.wiring == "pairs" and i ^ 1 < h.gpus:
        count = {i ^ 1: {70: 4, 75: 2, 80: 12, 86: 4, 90: 18}[h.sm]}
    return [(bus("gpu", j), n, "0x030200") for j, n in sorted(count.items())]


def pci(lines, indent, busid, kind, generation, inside):
    lines.append(f'{indent}<pci busid="{busid}" class="{kind}" vendor="0x0" device="0x0" '
                 f'subsystem_vendor="0x0" subsystem_device="0x0" '
                 f'link_speed="{PCIE[generation]}" link_width="16">')
    inside()
    lines.append(f"{indent}</pci>")


def xml_of(h):
    lines = ['<system version="1">']
    # Which GPUs and NICs stand on each switch of each CPU; a switch None: on the CPU itself.
    cpus = h.gpus if h.wiring == "grace" else 2 if h.gpus > 1 else 1
    half = -(-h.gpus // cpus)
    groups = []  # (cpu, gpus, nics, on a switch)
    per = {"own": 1, "two": 2, "four": 4, "root": 1, "far": 2}[h.place]
    for c in range(cpus):
        mine = list(range(c * half, min(h.gpus, (c + 1) * half)))
        for k in range(0, len(mine), per):
            groups.append([c, mine[k:k + per], [], h.place != "root"])
    nics = list(range(h.nics))
    if h.place in ("root", "far"):  # NICs by themselves on the CPUs
        for n in nics:
            groups.append([n * cpus // h.nics, [], [n], False])
    else:
        for n in nics:
            spread = h.nics < len(groups)
            groups[n * len(groups) // h.nics if spread else n % len(groups)][2].append(n)
    arch, vendor, family, model = CPUS[h.cpu]
    switches = 0
    for c in range(cpus):
        lines.append(f'  <cpu host_hash="0x1" numaid="{c}" affinity="ffff" arch="{arch}" '
                     f'vendor="{vendor}" familyid="{family}" modelid="{model}">')
        for cpu, gpus, ns, switch in groups:
            if cpu != c or not gpus and not ns:
                continue

            def devices(indent):
                for g in gpus:
                    def gpu(g=g):
                        lines.append(f'{indent}  <gpu dev="{g}" sm="{h.sm}" rank="{g}" gdr="1">')
                        for target, n, kind in nvlinks_of(h, g):
                            lines.append(f'{indent}    <nvlink target="{target}" count="{n}" '
                                         f'tclass="{kind}"/>')
                        if h.wiring == "grace":
                            for j in range(h.gpus):
                                if j != g:
                                    lines.append(f'{indent}    <nvlink target="{bus("gpu", j)}" '
                                                 'count="6" tclass="0x030200"/>')
                            lines.append(f'{indent}    <c2c bw="44712" count="10"/>')
                        lines.append(f"{indent}  </gpu>")
                    pci(lines, indent, bus("gpu", g), "0x030200", h.generation, gpu)
                for n in ns:
                    def nic(n=n):
                        lines.append(f"{indent}  <nic>")
                        lines.append(
                            f'{indent}    <net name="mlx5_{n}" dev="{n}" speed="{h.rate * 1000}" '
                            f'port="1" latency="{h.latency}" guid="0x{n + 1:x}" maxconn="131072" '
                            f'gdr="1" keep="1"/>')
                        lines.append(f"{indent}  </nic>")
                    pci(lines, indent, bus("nic", n), "0x020700", h.generation, nic)

            if switch:
                switches += 1
                pci(lines, "    ", bus("switch", switches), "0x060400", h.generation,
                    lambda: devices("      "))
            else:
                devices("    ")
        lines.append("  </cpu>")
    lines.append("</system>")
    return "\n".join(lines) + "\n"


def random_communicator(r):
    wiring = r.choice(["switch"] * 8 + ["none"] * 3 + ["pairs", "pairs", "mesh", "mesh", "cube",
                                                      "cube", "grace", "lone", "lone"])
    gpus, place, cpu = 8, r.choice(["own", "own", "two", "two", "four", "root", "far"]), None
    if wiring == "switch":
        sm = r.choice([80, 90, 90, 100])
        gpus = r.choice([8, 8, 8, 4, 2, 6])
    elif wiring in ("none", "pairs"):
        sm = r.choice([70, 80, 86, 89, 90] if wiring == "none" else [80, 86, 90])
        gpus = r.choice([8, 4, 4, 2])
    elif wiring == "mesh":
        sm, gpus = r.choice([70, 80, 90]), 4
    elif wiring == "cube":
        sm, place = 70, r.choice(["two", "four"])
    elif wiring == "grace":
        sm, gpus, place, cpu = 90, 4, "root", "arm"
    else:
        wiring, sm, gpus = "none", r.choice([70, 80, 90]), 1
        place = r.choice(["own", "root"])
    cpu = cpu or r.choice(["skylake", "amd"] if sm < 89 else ["sapphire", "amd"])
    generation = {70: 3, 80: 4, 86: 4, 89: 4, 90: 5, 100: 6}[sm]
    nics = r.choice([n for n in (1, 2, 4, 8) if n <= gpus])
    if wiring == "grace":
        nics = 4
    rate = r.choice({3: [25, 100], 4: [100, 200], 5: [200, 400], 6: [400, 800]}[generation])
    if sm in (86, 89):
        rate = r.choice([25, 100])
    host = Host(wiring, gpus, sm, place, nics, rate, cpu, generation, r.choice([0, 0, 0, 5]))
    nodes = r.choice([1, 2, 2, 3, 4, 8, 16, 32])
    if gpus == 1 and nodes == 1:
        nodes = 2
    return host, nodes, r.choice(VERSIONS)


def communicators():
    r = random.Random(27)
    out, seen = [], set()
    while len(out) < COMMUNICATORS:
        c = random_communicator(r)
        if c in seen:
            continue
        seen.add(c)
        out.append((*c, sorted(r.sample(POINTS, POINTS_EACH))))
    return out


def ask(folder):
    """NCCL's answers."""
    answers = [None] * COMMUNICATORS
    every = communicators()
    with tempfile.TemporaryDirectory() as at:
        for version in sorted(set(VERSIONS)):
            which = [i for i, c in enumerate(every) if c[2] == version]
            lines = []
            for i in which:
                path = pathlib.Path(at) / f"{i}.xml"
                path.write_text(xml_of(every[i][0]))
                lines.append(f"{path} {every[i][1]} 1")
            out = subprocess.run([pathlib.Path(folder) / version / "nccl_search"],
                                 input="\n".join(lines) + "\n", text=True, stdout=subprocess.PIPE,
                                 check=True).stdout
            of = iter(out.split("case ")[1:])
            for i, text in zip(which, of, strict=True):
                rows = {}
                graphs = {}
                for line in text.splitlines():
                    words = line.split()
                    if words[0] == "point":
                        rows[words[1], int(words[2])] = words[3:6]
                    if words[0] == "graph":
                        graphs[words[1]] = [float(w) for w in words[4:7]]
                points = []
                for op, size in every[i][3]:
                    algorithm, protocol, channels = rows[OPERATIONS[op], size]
                    points.append([op, size, f"{algorithm}/{protocol}", int(channels)])
                answers[i] = {"version": version, "nodes": every[i][1], "host": list(every[i][0]),
                              "graphs": graphs, "points": points}
    ANSWERS.write_text("[\n" + ",\n".join(json.dumps(a) for a in answers) + "\n]\n")


def ours(ddpsim, answer, at):
    """[choice, channels] of each point."""
    xml = pathlib.Path(at) / "host.xml"
    cluster = pathlib.Path(at) / "host.json"
    xml.write_text(xml_of(Host(*answer["host"])))

    def run(*arguments):
        return subprocess.run([ddpsim, *arguments], text=True, capture_output=True)

    done = run("import", "nccl-topo", str(xml), "--hosts", str(answer["nodes"]), "--out",
               str(cluster), "--profile", profile_of(Host(*answer["host"]), at))
    if done.returncode != 0:
        return done.stderr
    out = []
    for op, size, _, _ in answer["points"]:
        done = run("explain", "--op", op, "--bytes", f"{size}B", "--cluster", str(cluster),
                   "--nccl",
                   answer["version"], "--format", "json")
        if done.returncode != 0:
            return done.stderr
        chosen = next(c for c in json.loads(done.stdout)["candidates"] if c["chosen"])
        out.append([f"{chosen['algorithm']}/{chosen['protocol']}", chosen["channels"]])
    return out


def profile_of(host, at):
    """Of the host's GPU; the A40, whose NVLink bridge the shipped profile leaves out, with it."""
    if host.wiring == "grace":
        return "gh200-96gb.datasheet"
    if host.wiring != "pairs" or host.sm != 86:
        return PROFILES[host.sm]
    bridged, linked = (read_profile(CALIB / f"{PROFILES[sm]}.json") for sm in (86, 80))
    bridged["transports"]["nvlink"] = linked["transports"]["nvlink"]
    path = pathlib.Path(at) / "bridged.json"
    path.write_text(json.dumps(bridged))
    return str(path)


def quarter(answers):
    """One in four, others with each commit."""
    words = ["git", "rev-parse", "HEAD"]
    said = subprocess.run(words, cwd=ANSWERS.parent, capture_output=True, text=True)
    return answers[int(said.stdout[:8] or "0", 16) % 4 :: 4]


def compare(ddpsim, every):
    answers = json.loads(ANSWERS.read_text())
    whole = every or bool(os.environ.get("DDPSIM_NIGHTLY"))
    if not whole:
        answers = quarter(answers)

    def one(answer):
        with tempfile.TemporaryDirectory() as at:
            return ours(ddpsim, answer, at)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        got = list(pool.map(one, answers))
    points = ways = both = 0
    for i, (answer, mine) in enumerate(zip(answers, got)):
        wrong = []
        if isinstance(mine, str):
            wrong.append(mine.strip())
            mine = [["", 0]] * len(answer["points"])
        for (op, size, way, channels), (my_way, my_channels) in zip(answer["points"], mine):
            points += 1
            ways += way == my_way
            both += way == my_way and channels == my_channels
            if [way, channels] != [my_way, my_channels]:
                wrong.append(f"{op} {size}: NCCL {way} {channels}, ddpsim {my_way} {my_channels}")
        if wrong and every:
            print(i, answer["version"], answer["nodes"], *answer["host"], "| " + "; ".join(wrong))
    print(f"{points} points of {len(answers)} communicators: algorithm and protocol agree in "
          f"{100 * ways / points:.1f} %, channels too in {100 * both / points:.1f} %")
    least = AGREE if whole else AGREE - 0.01  # a quarter has its own luck
    return min(ways, both) / points >= least


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ddpsim", nargs="?")
    parser.add_argument("--ask")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    if given.ask:
        ask(given.ask)
    if given.ddpsim:
        if not compare(given.ddpsim, given.all):
            sys.exit(f"{100 * AGREE:g} % have to")


if __name__ == "__main__":
    main()
