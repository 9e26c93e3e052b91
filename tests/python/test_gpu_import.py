#!/usr/bin/env python3
"""tools/gpu_import without a GPU: names, splits, and which recorded steps count."""
import importlib.machinery
import importlib.util
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("gpu_import", str(ROOT / "tools/gpu_import"))
gpu = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_import", loader))
loader.exec_module(gpu)


def run(date, ranks=1, step_ms=10.0, busy_ms=None):
    samples = (
        []
        if busy_ms is None
        else [
            {
                "op": "profiled_step",
                "parameters": {"compute_busy_ns": round(busy_ms * 1e6)},
                "durations_ps": [1],
            }
        ]
    )
    return {
        "origin": {"date": date},
        "layers": {"ranks": ranks},
        "samples": samples,
        "skipped": [],
        "quality": {"verdict": "clean", "reasons": []},
        "steps": [
            {"kind": "steady", "duration_ps": round(step_ms * 1e9)},
            {"kind": "steady", "duration_ps": 1, "instrumented": True},
        ],
    }


class Import(unittest.TestCase):
    def test_the_link_is_as_fast_as_it_was_beside_the_steps(self):
        record = run("1", ranks=4)
        section = {"latency_ps": 1000, "efficiency": {"low": 0.4, "mid": 0.5, "high": 0.6}}
        profile = {"transports": {"loopback": section}}
        self.assertIsNone(gpu.link_beside(record, profile))
        # 1.5 times 4,000 bytes each way in 1,000 and in 3,000 ps beside six steps of 1,000 ps.
        for after, ps in ((0, 7000), (1, 9000)):
            for rank in range(4):
                parameters = {"rank": rank, "bytes": 4000, "after": after}
                record["samples"].append(
                    {"op": "one_gpu_all_reduce", "parameters": parameters, "durations_ps": [ps] * 3}
                )
        self.assertEqual(gpu.link_beside(record, profile), "64000.000Gb/s")
        self.assertIsNone(gpu.link_beside(record, None))

    def test_what_is_no_archive_is_a_sentence(self):
        with tempfile.NamedTemporaryFile(suffix=".tar.gz") as junk:
            junk.write(b"junk")
            junk.flush()
            for words, why in (
                ([junk.name], "no archive"),
                ([junk.name + "x"], "no such file"),
            ):
                done = subprocess.run(
                    [ROOT / "tools/gpu_import", *words, "--name", "x", "--cluster", "hgx-h100"],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual(done.returncode, 2)
                self.assertIn(why, done.stderr.splitlines()[-1])

    def test_a_sharded_model_is_as_long_as_its_ranks_took_without_shards(self):
        layers = {"forward_ps": 40, "backward_ps": 60, "optimizer_ps": 5, "ready_ps": [3, 50]}
        record = {"layers": {**layers, "ranks": 2, "arrival": [1, 0]}}
        times = {"forward_ps": 20, "backward_ps": 30, "optimizer_ps": 9, "ready_ps": [1, 20]}
        parts = [{"forward_ps": 8, "host_forward_ps": 3}, {"forward_ps": 12}]
        times |= {"host_forward_ps": 6, "layers": parts, "raw": {}}
        captures = [{"name": f"gpt-b{b}-bf16", "batch": b, "times": times} for b in (16, 4)]
        name = "torch-gpt-b2-bf16-fsdp22-n2"
        made = gpu.workload_of_shards({name: record, "torch-gpt-b2-bf16-n2": record}, captures)
        self.assertEqual(list(made), [name])
        self.assertEqual(made[name]["batch"], 2)
        got = made[name]["times"]
        self.assertEqual({k: got[k] for k in layers}, layers)
        self.assertEqual([p["forward_ps"] for p in got["layers"]], [16, 24])
        self.assertEqual(got["layers"][0]["host_forward_ps"], 3)
        self.assertIn("gpt-b4-bf16", got["notes"][1])
        self.assertNotIn("raw", got)
        self.assertEqual(times["layers"][0]["forward_ps"], 8)

    def test_the_plan_of_shards_is_what_their_name_says(self):
        self.assertEqual(gpu.plan_of_shards("", "bf16"), [])
        self.assertEqual(gpu.plan_of_shards("-zero1", "bf16"), ["--plan", "zero_redundancy"])
        self.assertIn("reshard_after_forward=true", gpu.plan_of_shards("-fsdp21", "tf32"))
        halves = gpu.plan_of_shards("-fsdp22", "bf16")
        for said in ("reshard_after_forward=false", "param_dtype=bfloat16", "reduce_dtype=float32"):
            self.assertIn(said, halves)

    def test_records_with_the_profiler_are_of_a_process_of_their_own(self):
        name = "torch-bert-base-b16-bf16-cap1-nhwc-n1"
        self.assertEqual(gpu.NAME.fullmatch(name + "-profiled")[6], "-profiled")
        runs = {name: run("2", busy_ms=9), name + "-profiled": run("1", busy_ms=9)}
        self.assertEqual(gpu.after_profiler(runs), set())
        workload, why = gpu.question(name + "-profiled", runs[name], Path("/"))
        self.assertIsNone(workload)
        self.assertIn("torch.profiler", why)

    def test_what_follows_the_profiler_counts_only_where_the_gpu_decided(self):
        runs = {
            "a": run("1", busy_ms=2),
            "b": run("2", busy_ms=9.5),
            "c": run("3", busy_ms=9),
            "other": run("0", ranks=2),
        }
        late = gpu.after_profiler(runs)
        self.assertEqual(late, {"b", "c"})
        for name, r in runs.items():
            gpu.judge(name, r, late)
        self.assertEqual(
            {n: r["quality"]["verdict"] for n, r in runs.items()},
            {"a": "clean", "b": "clean", "c": "noisy", "other": "clean"},
        )
        self.assertIn("90 % of the step", runs["c"]["quality"]["reasons"][0])

    def test_without_a_profiler_nothing_is_late(self):
        self.assertEqual(gpu.after_profiler({"a": run("1"), "b": run("2")}), set())

    def test_a_capture_after_the_profiler_of_its_process_is_late(self):
        def capture(name, date, command):
            return {"name": name, "source": {"date": date, "command": command}}

        captures = [
            capture("a", "1", "list one"),
            capture("b", "3", "list one"),
            capture("c", "4", "list two"),
            capture("d", "5", "list three"),
            capture("e", "6", "list three"),
        ]
        profiled = {
            "a": "2",
            "b": "3",
            "d": "7",
            "e": "8",
        }  # after each capture; not at all; after all of them
        self.assertEqual(gpu.captured_late(captures, profiled), {"b"})

    def test_that_it_is_not_predicted_is_said_once(self):
        r = run("1")
        gpu.leave_out(r, "because")
        gpu.leave_out(r, "for another reason")
        self.assertEqual(r["skipped"], [{"what": "prediction", "why": "because"}])

    def test_a_name_says_the_question(self):
        with tempfile.TemporaryDirectory() as folder:
            workloads = Path(folder)
            for name in ("resnet50-b64-tf32", "resnet50-b64-bf16-nhwc"):
                (workloads / f"{name}.json").write_text("{}")
            self.assertEqual(
                gpu.question("torch-resnet50-b64-tf32-n1", {}, workloads),
                (workloads / "resnet50-b64-tf32.json", ["--ranks", "1"]),
            )
            self.assertEqual(
                gpu.question("torch-resnet50-b64-tf32-cap100-n1", {}, workloads)[1],
                ["--ranks", "1", "--set", "bucket_cap_mb=100"],
            )
            self.assertEqual(
                gpu.question("torch-resnet50-b64-bf16-nhwc-n1", {}, workloads)[0].name,
                "resnet50-b64-bf16-nhwc.json",
            )
            for name in (
                "torch-resnet50-b64-tf32-n2",
                "torch-resnet50-b8-tf32-n1",
                "torch-bert-base-b16-bf16-fsdp21-n1",
                "torch-bert-base-b16-bf16-zero1-n1",
            ):
                self.assertIsNone(gpu.question(name, {}, workloads)[0], name)

            (workloads / "resnet50-b16-tf32-n2.json").write_text("{}")
            channels = ["--set", "NCCL_MIN_CTAS=2", "--set", "NCCL_MAX_CTAS=2"]
            for name, cap in (
                ("torch-resnet50-b16-tf32-n2", []),
                ("torch-resnet50-b16-tf32-cap5-n2-again", ["--set", "bucket_cap_mb=5"]),
            ):
                workload, flags = gpu.question(name, {}, workloads)
                self.assertEqual(workload.name, "resnet50-b16-tf32-n2.json")
                self.assertEqual(flags, ["--ranks", "2"] + channels + cap)

    def test_several_ranks_have_device_times_of_their_own_and_a_captures_host_times(self):
        def capture(batch):
            times = {
                "forward_ps": 1,
                "ready_ps": [1],
                "host_forward_ps": batch,
                "host_ready_ps": [batch],
                "modules": [1],
                "notes": ["n", gpu.HOST_NOTE],
            }
            return {
                "name": f"bert-base-b{batch}-bf16",
                "batch": batch,
                "tensors": ["t"],
                "arrival": [0],
                "times": times,
            }

        def record(date, **more):
            layers = {
                "forward_ps": 7,
                "backward_ps": 8,
                "optimizer_ps": 9,
                "core_ps": 5,
                "ranks": 2,
                "arrival": [0],
                "ready_ps": [6],
            }
            return {"origin": {"date": date}, "layers": dict(layers, **more)}

        records = {
            "torch-bert-base-b8-bf16-cap1-n2": record("2", forward_ps=70),
            "torch-bert-base-b8-bf16-n2": record("1"),
            "torch-bert-base-b8-bf16-zero1-n2": record("0"),
            "torch-bert-base-b8-bf16-n1": record("0"),
            "torch-vgg16-b8-tf32-n2": record("0"),
        }  # of which there is no capture
        made = gpu.workload_of_ranks(records, [capture(64), capture(16)])
        self.assertEqual(list(made), ["bert-base-b8-bf16-n2"])
        w = made["bert-base-b8-bf16-n2"]
        self.assertEqual((w["batch"], w["tensors"]), (8, ["t"]))
        self.assertEqual(
            {k: v for k, v in w["times"].items() if k != "notes"},
            {
                "forward_ps": 7,
                "backward_ps": 8,
                "optimizer_ps": 9,
                "ready_ps": [6],
                "host_forward_ps": 16,
                "host_ready_ps": [16],
            },
        )
        self.assertIn("torch-bert-base-b8-bf16-n2, 2 ranks", w["times"]["notes"][0])
        self.assertEqual(w["times"]["notes"][-1], gpu.HOST_NOTE)

    def test_a_run_of_several_collectives_becomes_one_for_each(self):
        def one(op, ranks, size, forced=0, way=(1, 2)):
            return {
                "op": op,
                "durations_ps": [5],
                "parameters": {
                    "ranks": ranks,
                    "bytes": size,
                    "in_place": 1,
                    "one_gpu": 1,
                    "forced": forced,
                    "algorithm": way[0],
                    "protocol": way[1],
                    "channels": 2,
                },
            }

        run = {
            "case": {"key": "calibrate/nccl-one-gpu"},
            "skipped": ["why"],
            "origin": {"gpu": "NVIDIA X (132 SMs)", "software": "cuDNN 9; NCCL 2.28.3"},
            "samples": [
                one("all_reduce", 2, 8),
                one("all_reduce", 2, 32),
                one("all_reduce", 4, 8),
                one("broadcast", 2, 8),
                one("all_reduce", 2, 8, 1, (0, 0)),
            ],
        }
        parts = gpu.collectives_of(run)
        self.assertEqual(
            [p["case"]["key"] for p in parts],
            [
                "all_reduce@one-gpu/n2",
                "all_reduce@one-gpu/n4",
                "broadcast@one-gpu/n2",
                "all_reduce@one-gpu/n2/tree/ll",
            ],
        )
        self.assertEqual([len(p["samples"]) for p in parts], [2, 1, 1, 1])
        self.assertEqual([p["skipped"] for p in parts], [["why"], [], [], []])
        c = parts[3]["collectives"]
        said = [c[k] for k in ("algorithm", "protocol", "hosts", "cluster", "nccl")]
        self.assertEqual(said, ["tree", "ll", 2, "one-gpu", "2.28.3"])
        self.assertEqual(c["environment"], {"NCCL_MIN_CTAS": "2", "NCCL_MAX_CTAS": "2"})
        self.assertEqual(gpu.collectives_of(parts[0]), [parts[0]])

    def test_limits_are_what_holds_now(self):
        values = {
            "system_gpu.held_out.n": 0.0,
            "replay_gpu.held_out.n": 3.0,
            "replay_gpu.held_out.step.median_abs_error": 0.00321,
            "replay_gpu.held_out.step.max_abs_error": 0.01,
        }
        self.assertEqual(
            gpu.limits_of(values),
            [
                {"what": "replay_gpu.held_out.n", "min": 3},
                {"what": "replay_gpu.held_out.step.median_abs_error", "max": 0.0035},
                {"what": "replay_gpu.held_out.step.max_abs_error", "max": 0.01},
            ],
        )

    def test_a_third_is_held_out_by_its_name(self):
        names = [f"torch-model{k}-n1" for k in range(300)]
        held = [n for n in names if gpu.split_of(n) == "held_out"]
        self.assertTrue(70 < len(held) < 130, len(held))
        self.assertEqual(held, [n for n in names if gpu.split_of(n) == "held_out"])

    def test_the_same_document_is_the_same_file(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a", "b"):
                gpu.write(Path(folder) / f"{name}.json.gz", {"x": [1, 2]})
            self.assertEqual(
                (Path(folder) / "a.json.gz").read_bytes(), (Path(folder) / "b.json.gz").read_bytes()
            )
            self.assertEqual(gpu.read(Path(folder) / "a.json.gz"), {"x": [1, 2]})


class HowGood(unittest.TestCase):
    def test_its_figures_of_gpus_are_the_reports(self):
        report = (ROOT / "reports/gpu.md").read_text(encoding="utf-8")
        page = " ".join((ROOT / "docs/accuracy.md").read_text(encoding="utf-8").split())
        steps = re.search(
            (
                r"(\d+) steps of 3 machines: median \|error\| ([\d.]+) %, largest ([\d.]+) %. The"
                r" interval holds (\d+) of them. DDP's overhead: (\d+) % off"
            ),
            report,
        )
        self.assertEqual(steps[1], steps[4])
        self.assertIn(f"On GPUs there are {steps[1]} steps", page)
        aside = re.findall(r"decides: (\d+) % off at the median, \d+ at most; (\d+) in", report)
        said = sorted((int(off) for off, _ in aside))
        self.assertIn("they are {}, {} and {} % off at the median".format(*said), page)
        self.assertIn(f"their intervals hold {sum(int(n) for _, n in aside)}.", page)
        for machine in ("h100-sxm", "h200-sxm"):
            off, held = re.search(
                machine + r", which lent nothing: .*? median \|error\| ([\d.]+) %.*?\((\d+) %\)",
                report,
            ).groups()
            self.assertIn(f"{off} % on an {machine[:4].upper()}", page)
            self.assertIn(f"{held} %", page)
        self.assertIn(
            f"within {float(steps[2]):.1f} % at the median and {float(steps[3]):.1f} % at most,"
            f" inside the interval; DDP's own overhead is {steps[5]} % off",
            page,
        )
        told = re.search(r"beside the steps: (\d+) steps, .*? median \|error\| ([\d.]+) %", report)
        self.assertIn(f"{told[1]} steps of DDP with the link as it was measured", page)
        self.assertIn(f"are {told[2]} % off at the median", page)
        every = re.search(
            (
                r"Of (\d+) captures, .*? is ([\d.]+) % off at the median \(bias (\S+) %\), the"
                r" measured one ([\d.]+) % .*?, the stranger ([\d.]+) %"
            ),
            report,
        )
        self.assertIn(
            (
                f"beside {every[1]} captures their computation is {every[2]} % off at the median,"
                f" {every[3]} % on balance"
            ),
            page,
        )
        self.assertIn(
            (
                f"it is {every[4]} % off at the median; the H200's from the H100's operators and"
                f" its own datasheet {every[5]} %"
            ),
            page,
        )
        inside, of, percent = (
            int(x)
            for x in re.search(r"^\| all \| (\d+) \| (\d+) \| (\d+) \|", report, re.M).groups()
        )
        self.assertIn(f"80 % interval holds {inside} of the {of}", page)
        self.assertTrue(65 <= percent <= 95, percent)


if __name__ == "__main__":
    unittest.main()
