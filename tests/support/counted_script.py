#!/usr/bin/python3
"""Runs a training script as one rank of many (tools/python/ddpsim_record_program.py) and counts,
without a word of ddpsim's describer, what its third step does: floating point operations of
products, bytes of each kind of collective, bytes of all modules' parameters and buffers.

  counted_script.py SCRIPT RANKS OUT.json RECORDED.json
"""
import gc
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/python"), str(ROOT / "tests/python")]
import ddpsim_record_program as recorder  # noqa: E402
from counted_flops import CountedFlops  # noqa: E402


def main():
    import torch

    script, ranks, out, recorded = sys.argv[1:]
    counter, at_steps, weights = CountedFlops(), [], {}
    stepped = recorder.Recorder.stepped

    def counted(self):
        at_steps.append(counter.forward + counter.backward)
        for module in gc.get_objects():
            if issubclass(type(module), torch.nn.Module):
                for t in [*module.parameters(), *module.buffers()]:
                    weights[id(t)] = t.numel() * t.element_size()
        stepped(self)

    recorder.Recorder.stepped = counted
    sys.argv = ["recorder", "--ranks", ranks, "--steps", "3", "--out", recorded, script]
    with counter:
        status = recorder.main()
    if status:
        return status
    sent = {}
    for op in json.loads(Path(recorded).read_text())["steps"][-1]["ops"]:
        if op["lane"] == "comm":
            what = op["operation"]
            if len(op.get("group", [])) not in (0, int(ranks)):
                what += f" among {len(op['group'])} ranks"
            nccl = what == "barrier"  # an all-reduce of one number
            what = "all_reduce" if nccl else what
            sent[what] = sent.get(what, 0) + (4 if nccl else op["bytes"])
    seen = {"flops": at_steps[2] - at_steps[1], "sent": sent, "weights": sum(weights.values())}
    Path(out).write_text(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
