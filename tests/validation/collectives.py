#!/usr/bin/env python3
"""The prices of NCCL's collectives stay as good as they were: `ddpsim validate --collectives`
inside collectives.json.

  collectives.py DDPSIM      exit 1 names every limit that is broken
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    ddpsim = sys.argv[1]

    def ask(form):
        return subprocess.run(
            [ddpsim, "validate", "--collectives", "--format", form],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout

    found = json.loads(ask("json"))
    limits = json.loads((ROOT / "tests/validation/collectives.json").read_text())["limits"]
    values = {
        f"median.{band}": value
        for band, value in zip(("small", "middle", "large"), found["median_error"])
    }
    for b, band in enumerate(("small", "middle", "large")):
        values[f"worst_table.{band}"] = max(
            t["bands"][b]["median_error"] for t in found["tables"] if t["bands"][b]["rows"]
        )
    values["closer_than_nccl"] = found["cells_closer"] / found["cells_off"]
    values["worse_elsewhere"] = found["most_worse"]
    values["every_other_size.median"] = found["fitted"]["largest_median_error"]
    values["every_other_size.p95"] = found["fitted"]["p95_error_1_to_128_mib"]
    values["more_ranks.median"] = max(e["median_error"] for e in found["extrapolated"])
    executed = found["executed"]
    values["executed.rows"] = executed["judged"]
    values["executed.median"] = executed["median_error"]
    values["executed.p95"] = executed["p95_error"]
    values["executed.order"] = executed["pairs_right"] / executed["pairs"]
    for library in ("gloo", "open_mpi"):
        values[f"{library}.rows"] = executed[library]["judged"]
        values[f"{library}.median"] = executed[library]["median_error"]
        values[f"{library}.largest"] = executed[library]["largest_error"]
    values["tables"] = len(found["tables"])
    for size, over in zip(("small", "middle", "upper", "large"), found["over_machines"]):
        values[f"machines.{size}.n"] = over["machines"]
        values[f"machines.{size}.median"] = over["median_error"]
        values[f"machines.{size}.shipped"] = over["shipped_median_error"]
        values[f"machines.{size}.worst"] = over["worst"]
    constants = found["constants"]
    values["constants.stale"] = max(
        abs(constants["shipped"][name] / value - 1) for name, value in constants["of_all"].items()
    )
    # A machine whose tables say what a constant is, is judged without them.
    values["constants.left_out"] = sum(
        m["constants"] != constants["of_all"] for m in found["machines"]
    )
    for size, of in zip(("small", "middle", "upper", "largest"), found["intervals"]):
        values[f"intervals.{size}.inside"] = of["inside"] / of["rows"]
        # What explain --op says is what the tables say.
        values[f"intervals.{size}.stale"] = max(
            abs(of[f"shipped_{end}"] / of[end] - 1) for end in ("low", "high")
        )
    broken = 0
    for limit in limits:
        value = values[limit["what"]]
        low, high = limit.get("min", float("-inf")), limit.get("max", float("inf"))
        ok = low <= value <= high
        print(f"{'ok    ' if ok else 'BROKEN'} {limit['what']} {value:.4f} ({low} to {high})")
        broken += not ok
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
