"""What a record's own ranks read beside its steps. Standard library only."""
from collections import defaultdict
from statistics import median
from typing import Any, Dict, List, Tuple


def all_reduces_beside(run: Dict[str, Any]) -> List[Tuple[int, float]]:
    """(bytes, picoseconds) of the all-reduces of ranks that share one GPU, before the steps and
    after them (ddpsim_record.py writes them); empty where there are none."""
    took: Dict[Tuple[int, int], List[int]] = defaultdict(list)
    for s in run.get("samples", []):
        if s["op"] == "one_gpu_all_reduce":
            took[s["parameters"]["after"], s["parameters"]["bytes"]] += s["durations_ps"]
    return [(size, median(ps)) for (_, size), ps in sorted(took.items())]
