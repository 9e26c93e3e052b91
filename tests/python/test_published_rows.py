"""Rows of calib/published as questions: what of a row becomes which setting, which rows are left
out and why, what a rate is in seconds.

Run: /usr/bin/python3 -m unittest tests/python/test_published_rows.py   (standard library only)
"""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/python"))
import published_rows  # noqa: E402
import sharded_steps  # noqa: E402
from published_rows import NotPredicted  # noqa: E402

STEPS = {r["id"]: r for r in published_rows.rows_of(ROOT / "calib/published/sharded/steps.csv")}
PEAKS = {r["id"]: r for r in published_rows.rows_of(ROOT / "calib/published/memory/peaks.csv")}
TITAN = STEPS["titan-202412-8b-8-eager"]
BLOG = STEPS["pytorch-blog-202403-7b-a100-128"]
MPT = STEPS["mpt-h100-80gb-3b-s512-g8-b40-ampbf16-default-noac"]


def asked(row, **change):
    return sharded_steps.steps_question(row | change)


class Questions(unittest.TestCase):
    def why(self, row, **change):
        with self.assertRaises(NotPredicted) as raised:
            asked(row, **change)
        return str(raised.exception)

    def test_what_a_row_says_is_set(self):
        q = asked(TITAN)
        self.assertEqual((q.plan, q.cluster, q.ranks, q.profile), ("fsdp2", "hgx-h100", 8, None))
        self.assertEqual(
            q.sets,
            {
                "workload.precision": "bf16",
                "param_dtype": "bfloat16",
                "reduce_dtype": "float32",
                "workload.batch": "2",
                "workload.attention": "flash2",
                "workload.checkpointing": "selective",
                "cluster.hosts": "1",
                "profile.power.limit_w": "500",
                "profile.memory.bandwidth_bytes_per_s": "2400000000000",
                "profile.memory.capacity_bytes": str(96 << 30),
            },
        )
        self.assertEqual(q.model.sequence, 8192)

    def test_hsdp_and_the_network_that_is_printed(self):
        q = asked(BLOG)
        self.assertEqual((q.plan, q.ranks), ("fsdp", 128))
        self.assertEqual(q.sets["sharding_strategy"], "hybrid_shard")
        self.assertEqual(q.sets["cluster.hosts"], "16")
        self.assertEqual(q.sets["cluster.nics_per_host"], "4")
        self.assertEqual(q.sets["cluster.link.bandwidth"], "100Gb/s")

    def test_hosts_of_four(self):
        q = asked(STEPS["modalities-leonardo-000"])
        self.assertEqual(q.sets["cluster.devices_per_host"], "4")
        self.assertEqual(q.sets["cluster.hosts"], "2")
        self.assertEqual(q.profile, "a100-sxm4-40gb.datasheet")

    def test_llm_foundry_gathers_halves_steps_in_a_loop_and_has_positions(self):
        q = asked(MPT)
        self.assertEqual(q.sets["param_dtype"], "bfloat16")
        self.assertEqual(q.sets["workload.optimizer.foreach"], "false")
        self.assertEqual(q.sets["accumulation_steps"], "6")
        self.assertEqual((q.model.positions, q.model.sequence), (512, 512))
        parameters = sum(t.elements for t in q.model.tensors)
        self.assertAlmostEqual(parameters / int(MPT["parameters"]), 1, delta=0.001)

    def test_models_of_the_same_layers_are_described_once(self):
        other = STEPS["titan-202412-8b-128-eager"]
        self.assertIs(asked(TITAN).model.layers, asked(other).model.layers)

    def test_why_not(self):
        self.assertIn("tensor, pipeline", self.why(TITAN, tp="8"))
        self.assertIn("8 bits", self.why(TITAN, float8="yes"))
        self.assertIn("quality unclear", self.why(TITAN, quality="unclear"))
        self.assertIn("network between hosts", self.why(TITAN, cluster="elsewhere", gpus="16"))
        self.assertIn("no profile", self.why(TITAN, gpu="GB300"))
        self.assertIn("no plan", self.why(TITAN, system="fsdp (Megatron FSDP)"))
        self.assertIn("checkpointing", self.why(TITAN, checkpointing="selective (layer)"))
        self.assertIn("hidden is not printed", self.why(TITAN, hidden=""))
        zero = STEPS["internevo-tp1-z8-16"]
        self.assertIn("some of the ranks", self.why(zero))

    def test_peaks_and_steps_of_one_run_ask_the_same(self):
        shared = [i for i in STEPS if i in PEAKS and STEPS[i]["quality"] == "good"]
        self.assertGreater(len(shared), 20)
        compared = 0
        for i in shared:
            answers = []
            for row in (STEPS[i], PEAKS[i]):
                try:
                    q = published_rows.question_of(row)
                    answers.append((q.plan, q.cluster, q.sets))
                except NotPredicted:
                    answers.append(None)
            if all(answers):
                self.assertEqual(*answers, msg=i)
                compared += 1
        self.assertGreater(compared, 2)


class Seconds(unittest.TestCase):
    def test_a_rate_is_a_step(self):
        rates = (
            ("s", "2.5", 2.5),
            ("tokens/s/GPU", "1000", 2 * 3 * 500 / 1000),
            ("samples/s", "12", 2 * 3 * 8 / 12),
        )
        for unit, value, seconds in rates:
            row = TITAN | {"unit": unit, "value": value, "sequence": "500", "accumulation": "3"}
            self.assertAlmostEqual(sharded_steps.measured_seconds(row), seconds)
        with self.assertRaises(NotPredicted):
            sharded_steps.measured_seconds(TITAN | {"unit": "TFLOPS/GPU"})


if __name__ == "__main__":
    unittest.main()
