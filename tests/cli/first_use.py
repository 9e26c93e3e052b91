#!/usr/bin/env python3
"""What somebody meets who uses ddpsim for the first time, and must not be misled by.

  first_use.py DDPSIM [unittest's arguments]
"""
import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
H100 = "calib/gpu-runs/h100-sxm/workloads/resnet50-b64-tf32.json.gz"
MLP = ["--workload", "mlp784-50-10-cpu", "--cluster", "testbed-star"]
HGX = ["--workload", "resnet50", "--cluster", "hgx-h100"]
DDPSIM = ""


def ask(*args, cwd=ROOT):
    return subprocess.run([DDPSIM, *map(str, args)], capture_output=True, text=True, cwd=cwd,
                          timeout=250)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def answer(self, *args, code=0):
        done = ask(*args)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def refused(self, *args, says=()):
        done = ask(*args)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        for words in says:
            self.assertIn(words, done.stderr)
        return done.stderr


class Captures(Case):
    """Times of one GPU are no times of another."""

    def test_other_gpus_refuse_it(self):
        for cluster in ["hgx-h200", "dgx-a100", "dgx1-v100"]:
            self.refused("predict", "--workload", H100, "--cluster", cluster,
                         says=["captured on a GPU named NVIDIA H100 80GB HBM3", "carried over"])

    def test_another_jobs_capture_too(self):
        job = json.dumps([{"rank_order": [0, 1], "workload": str(ROOT / H100)}])
        self.refused("predict", "--workload", "resnet50", "--cluster", "gpu-ethernet-25g", "--ranks",
                     "2", "--set", "rank_order=[2,3]", "--set", "other_jobs=" + job,
                     says=["captured on a GPU named NVIDIA H100"])

    def test_the_same_gpu_takes_it_and_is_named(self):
        page = self.answer("predict", "--workload", H100, "--cluster", "hgx-h100")
        self.assertIn("captured from the real model on NVIDIA H100 80GB HBM3", page)

    def test_names_of_one_product(self):
        workload = json.loads(gzip.open(ROOT / H100).read())

        def takes(name, cluster):
            workload["device"]["name"] = name
            (self.folder / "w.json").write_text(json.dumps(workload))
            return ask("predict", "--workload", self.folder / "w.json", "--cluster",
                       cluster).returncode == 0

        for name, cluster, fits in [("NVIDIA H100 80GB HBM3", "hgx-h100", True),
                                    ("NVIDIA H100 PCIe", "hgx-h100", False),
                                    ("NVIDIA H200", "hgx-h100", False),
                                    ("NVIDIA H200", "hgx-h200", True),
                                    ("NVIDIA A100-SXM4-80GB", "dgx-a100", True),
                                    ("NVIDIA A100-SXM4-40GB", "dgx-a100", False),
                                    ("Tesla V100-SXM2-16GB", "dgx1-v100", True),
                                    ("Tesla V100-PCIE-32GB", "dgx1-v100", False),
                                    ("NVIDIA GH200 480GB", "gh200x4-slingshot", True),
                                    ("a card", "hgx-h100", True)]:
            self.assertEqual(takes(name, cluster), fits, f"{name} on {cluster}")


class Trace(Case):
    def test_nothing_is_before_zero(self):
        trace = json.loads(self.answer("trace", *HGX))
        times = [e["ts"] for e in trace["traceEvents"] if "ts" in e]
        self.assertEqual(min(times), 0)
        begins = [e for e in trace["traceEvents"] if e["ph"] == "i"]
        self.assertEqual([e["name"] for e in begins], ["the step begins"])
        # The device's first operation begins no earlier than the step.
        self.assertGreater(begins[0]["ts"], 0)
        forward = [e["ts"] for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == "compute"]
        self.assertGreaterEqual(min(forward), begins[0]["ts"])
        self.assertEqual(trace["otherData"]["step_begins_us"], begins[0]["ts"])


class Intervals(Case):
    """One name for one profile's interval, wherever it is shown."""

    def names(self, *question):
        page = self.answer("predict", *question)
        said = page[page.index("step "):].splitlines()[0].rsplit("; ", 1)[1].rstrip(")")
        tuned = self.answer("tune", *question, "--no-levers", "--values", "5,25")
        listed = [s for s in tuned.splitlines() if s.startswith("interval: ")]
        as_json = json.loads(self.answer("tune", *question, "--no-levers", "--values", "5,25",
                                         "--format", "json"))
        return said, listed, as_json.get("interval"), tuned

    def test_of_a_datasheet(self):
        said, listed, as_json, tuned = self.names(*HGX)
        self.assertIn("range of efficiencies that the datasheet profile states", said)
        self.assertEqual(listed, ["interval: " + said])
        self.assertEqual(as_json, said)
        self.assertNotIn("80 %", tuned)

    def test_of_a_profile_that_was_held_to_steps(self):
        said, listed, as_json, _ = self.names(*MLP)
        self.assertIn("80 % interval", said)
        self.assertEqual(listed, ["interval: " + said])
        self.assertEqual(as_json, said)


class Runs(Case):
    def test_clusters_that_hosts_here_cannot_play(self):
        for cluster in ["hgx-h100", "gpu-ethernet-25g"]:
            self.refused("run", "--workload", "resnet50", "--cluster", cluster,
                         says=["of GPUs", "--loopback"])
        self.refused("run", "--workload", "resnet18-cpu", "--cluster", "testbed-star", "--set",
                     "cluster.hosts=65", says=["at most 64 hosts", "--loopback"])

    def test_says_what_was_typed(self):
        typed = ["run", *MLP, "--set", "cluster.hosts=2", "--steps", "2", "--loopback", "--format",
                 "json"]
        origin = json.loads(self.answer(*typed))["origin"]
        self.assertEqual(origin["argv"], ["ddpsim", *typed])
        clone = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True,
                               text=True)
        if clone.returncode == 0:
            self.assertRegex(origin["revision"], "^[0-9a-f]{12}(-dirty)?$")


if __name__ == "__main__":
    DDPSIM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
