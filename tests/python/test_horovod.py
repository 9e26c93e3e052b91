"""ddpsim_horovod.py's reader of Horovod's timeline, without Horovod: held to ddpsim's own reader,
which is another program by other rules (`ddpsim import horovod-timeline`)."""
import importlib.util
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

if importlib.util.find_spec("torch") is None:
    print("skipped: PyTorch is missing (Debian: python3-torch)")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/python"))
import ddpsim_horovod as recorder  # noqa: E402

TIMELINE = ROOT / "tests/data/horovod_timeline/resnet18.json"
DDPSIM = sys.argv.pop(1) if len(sys.argv) > 1 and os.path.isfile(sys.argv[1]) else ""


class FakeJob:
    def __init__(self, names, micro=1, slow=1.0):
        self.names, self.sizes, self.micro = names, [4] * len(names), micro
        self.model = type("Model", (), {"slow": slow})()


class TestTimeline(unittest.TestCase):
    def test_what_was_reduced_together_is_what_ddpsim_reads(self):
        if not DDPSIM:
            self.skipTest("no binary of ddpsim was named")
        command = [DDPSIM, "import", "horovod-timeline", str(TIMELINE), "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said = json.loads(done.stdout)
        names = [t["name"] for t in said["tensors"]]
        theirs = sorted(
            sorted(names[t] for t in r["tensors"]) for step in said["steps"] for r in step
        )
        known = {name for r in theirs for name in r}
        ours = sorted(
            sorted(r["names"])
            for r in recorder.reductions(
                recorder.timeline_events(TIMELINE.read_text(encoding="utf-8"))
            )
            if set(r["names"]) <= known
        )
        self.assertGreater(len(theirs), 10)
        self.assertEqual(ours[: len(theirs)], theirs)

    def test_a_list_that_is_not_closed_is_read(self):
        text = TIMELINE.read_text(encoding="utf-8").strip().rstrip("]").rstrip().rstrip(",")
        whole = list(recorder.timeline_events(TIMELINE.read_text(encoding="utf-8")))
        self.assertEqual(len(list(recorder.timeline_events(text + ","))), len(whole))

    def test_members_of_a_group_are_counted_from_its_first(self):
        names = ["a", "b.weight", "c", "d"]
        index = {n: i for i, n in enumerate(names)}
        self.assertEqual(recorder.tensors_of("allreduce.b.weight", index), [1])
        self.assertEqual(recorder.tensors_of("grouped_allreduce.b.weight_1of3", index), [1])
        self.assertEqual(recorder.tensors_of("grouped_allreduce.b.weight_3of3", index), [3])
        self.assertEqual(recorder.tensors_of("allreduce.ddpsim.agreed", index), [])


class TestSteps(unittest.TestCase):
    def test_a_step_ends_with_its_last_rank(self):
        ranks = [
            [[("start", 0), ("optimizer", 10)], [("start", 10), ("optimizer", 30)]],
            [[("start", 0), ("optimizer", 12)], [("start", 12), ("optimizer", 25)]],
        ]
        self.assertEqual(recorder.durations(ranks, 0), [12_000, 18_000])

    def test_a_hook_is_backward_beyond_the_layers(self):
        step = [("start", 0), ("fwd", 100), ("bwd", 400), ("reduced", 500), ("optimizer", 501)]
        job = FakeJob(["a", "b"], slow=2.0)
        sample = recorder.hook_sample(job, 1, [step, step, step], 100_000)
        self.assertEqual(sample["durations_ps"], [50_000, 50_000])
        self.assertEqual(sample["parameters"], {"rank": 1})

    def test_a_knob_that_is_not_played_is_refused(self):
        with self.assertRaisesRegex(recorder.HorovodError, "op is not played here"):
            recorder.read_plan('{"system": "horovod", "op": "adasum"}')
        plan = recorder.read_plan('{"HOROVOD_CYCLE_TIME": 2.5, "accumulation_steps": 3}')
        self.assertEqual(plan["accumulation_steps"], 3)
        self.assertEqual(os.environ.pop("HOROVOD_CYCLE_TIME"), "2.5")


if __name__ == "__main__":
    unittest.main()
