#!/usr/bin/env python3
"""tools/gpu_calibrate and ddpsim_one_gpu.py without a GPU: planning, budgets, archives, and what
happens to a stage that fails or never ends."""
import importlib.machinery
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


gpu = load("gpu_calibrate", ROOT / "tools/gpu_calibrate")
one = load("ddpsim_one_gpu", ROOT / "tools/python/ddpsim_one_gpu.py")
HAS_TORCH = importlib.util.find_spec("torch") is not None
ALL = {
    k: ""
    for k in ("gpu", "cuBLASLt", "cuDNN", "NCCL", "MPS", "torch", "torchvision", "transformers")
}


def stages():
    return gpu.ordered(
        {
            **gpu.ddpsim_stages("ddpsim", "runs", "NVIDIA H100"),
            **gpu.torch_stages("python3", "out", False),
        }
    )


class Plan(unittest.TestCase):
    def test_the_most_valuable_stage_goes_first_and_every_name_is_known(self):
        names = [s.name for s in stages()]
        self.assertEqual(names[: len(gpu.ORDER)], gpu.ORDER)
        self.assertEqual(len(names), len(set(names)))

    def test_never_plans_more_than_the_budget(self):
        for minutes in (0.2, 1, 3, 8, 25):
            spent = sum(
                seconds + gpu.PACK_S
                for _, seconds, why in gpu.plan(stages(), ALL, 60 * minutes)
                if not why
            )
            self.assertLessEqual(spent, 60 * minutes)

    def test_eight_minutes_hold_every_kind_of_stage(self):
        done = {s.name for s, _, why in gpu.plan(stages(), ALL, 480) if not why}
        for name in (
            "memory",
            "gemm",
            "host",
            "interference",
            "captures",
            "torch-ops",
            "records-n1",
        ):
            self.assertIn(name, done)

    def test_a_short_budget_keeps_the_first_stages(self):
        done = [s.name for s, _, why in gpu.plan(stages(), ALL, 60) if not why]
        self.assertEqual(done[0], "memory")
        self.assertIn("gemm", done)

    def test_what_is_missing_is_a_reason(self):
        found = {**ALL, "MPS": "nvidia-cuda-mps-control is not installed"}
        why = {s.name: w for s, _, w in gpu.plan(stages(), found, 480)}
        self.assertEqual(why["nccl-one-gpu"], "MPS: nvidia-cuda-mps-control is not installed")
        self.assertEqual(why["memory"], "")

    def test_without_a_gpu_nothing_is_planned(self):
        found = {k: "no GPU" for k in ALL}
        self.assertTrue(all(w for _, _, w in gpu.plan(stages(), found, 480)))

    def test_captures_are_the_models_at_three_batches(self):
        names = [t["name"] for t in gpu.capture_tasks()]
        self.assertEqual(len(names), len(set(names)))
        for model in ("resnet50", "resnet101", "vgg16", "bert-base", "gpt2-small", "llama-1b"):
            batches = {m[1] for m in (re.match(f"{model}-b(\\d+)-", n) for n in names) if m}
            self.assertGreaterEqual(len(batches), 3, model)
        for model in ("resnet50", "bert-base", "gpt2-small"):
            for precision in ("bf16", "tf32", "fp32"):
                self.assertTrue(
                    any(n.startswith(f"{model}-b") and n.endswith(precision) for n in names),
                    (model, precision),
                )
        self.assertTrue(any("nhwc" in n for n in names))

    def test_records_have_names_of_their_own_and_what_they_need(self):
        for ranks, records in gpu.record_lists("R").items():
            outs = [r[r.index("--out") + 1] for r in records]
            self.assertEqual(len(outs), len(set(outs)))
            for r in records:
                self.assertTrue(r[r.index("--out") + 1].endswith(f"-n{ranks}.json"))
                self.assertEqual(r[r.index("--device") + 1], "cuda")
                self.assertTrue("--model" in r or "--factory" in r)
        caps = {w for r in gpu.record_lists("R")[2] for w in r if w.startswith("bucket_cap_mb")}
        self.assertEqual(
            caps, {"bucket_cap_mb=1", "bucket_cap_mb=5", "bucket_cap_mb=100"}
        )  # and the default

    def test_every_model_has_every_cap_at_two_and_four_ranks(self):
        for ranks in (2, 4):
            names = {gpu.record_name(r) for r in gpu.record_lists("R")[ranks]}
            for model, batch in gpu.usual_batches(gpu.record_lists("R")[ranks]):
                of_model = {n for n in names if n.startswith(f"torch-{model}-b{batch}-")}
                caps = {c for c in (1, 5, 100) if any(f"-cap{c}-" in n for n in of_model)}
                self.assertEqual(caps, {1, 5, 100}, (model, ranks))
                self.assertTrue(any("-cap" not in n for n in of_model))
            held = [n for n in names if gpu.split_of(n) == "held_out"]
            self.assertTrue(len(names) / 5 < len(held) < len(names) / 2, (len(held), len(names)))

    def test_recorders_and_captures_take_what_they_are_given(self):
        record = (
            load("ddpsim_record_words", ROOT / "tools/python/ddpsim_record.py")
            if HAS_TORCH
            else None
        )
        captures = (
            load("ddpsim_captures", ROOT / "tools/python/ddpsim_captures.py") if HAS_TORCH else None
        )
        if record is None or captures is None:
            self.skipTest("needs PyTorch")
        for records in gpu.record_lists("R").values():
            for words in records:
                record.read_plan(record.parse(words))
        for task in gpu.capture_tasks():
            self.assertLessEqual(set(task), set(captures.KEYS))

    def test_a_smoke_takes_seconds_of_each_and_resume_leaves_out_what_ended_well(self):
        with tempfile.TemporaryDirectory() as folder:
            session = gpu.Session(folder)
            self.addCleanup(session.log.close)
            session.run(gpu.Stage("one", [], 1, 1, lambda _: ["true"]), 5, dict(os.environ))
            session.run(gpu.Stage("two", [], 1, 1, lambda _: ["false"]), 5, dict(os.environ))
            self.assertEqual(session.finished(), {"one"})
            lists = gpu.torch_stages("python3", folder, True)["captures"].command(9)
            self.assertEqual(len(json.loads(Path(lists[lists.index("--list") + 1]).read_text())), 3)


class Models(unittest.TestCase):
    """--models FILE: a user's own."""

    TASK = {"name": "mine-b32-bf16", "factory": "train:make", "batch": 32, "precision": "bf16"}

    def read(self, document):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "models.json"
            path.write_text(document if isinstance(document, str) else json.dumps(document))
            return gpu.read_models(path)

    def test_they_are_captured_and_recorded_and_no_others(self):
        nhwc = dict(self.TASK, name="mine-b32-bf16-nhwc", memory_format="channels_last")
        own = self.read(
            {
                "captures": [self.TASK, nhwc],
                "records": [
                    {"capture": "mine-b32-bf16", "ranks": 2, "bucket_cap_mb": 5},
                    {"capture": "mine-b32-bf16-nhwc", "ranks": 8},
                ],
            }
        )
        made = gpu.torch_stages("python3", "out", False, own)
        self.assertNotIn("captures-more", made)
        self.assertEqual(made["captures"].needs, ["torch"])
        lists = gpu.own_record_lists(*own, "R")
        self.assertEqual(
            [gpu.record_name(w) for w in lists[2] + lists[8]],
            ["torch-mine-b32-bf16-cap5-n2", "torch-mine-b32-bf16-nhwc-n8"],
        )
        self.assertIn("bucket_cap_mb=5", lists[2][0])
        self.assertIn("channels_last", lists[8][0])
        names = {n for n in made if n.startswith("records-")}
        held = [gpu.split_of(gpu.record_name(w)) == "held_out" for w in lists[2] + lists[8]]
        self.assertLessEqual({f"records-{'held-' * h}n{n}" for h, n in zip(held, (2, 8))}, names)
        everything = {**gpu.ddpsim_stages("ddpsim", "R", ""), **made}
        for _, words, rows in gpu.session_commands(30, "D", everything, ["--models", "FILE"]):
            self.assertIn("FILE", words)
            self.assertTrue(rows)
            self.assertLessEqual(
                {w for a, w in zip(words, words[1:]) if a == "--only"}, set(everything)
            )

    def test_what_cannot_be_read_is_a_sentence(self):
        record = {"capture": "mine-b32-bf16", "ranks": 2}
        for document, said in (
            ("{", "Expecting"),
            ([], "an object of"),
            ({"captures": [{}]}, "needs \"name\""),
            ({"captures": [self.TASK], "records": [dict(record, capture="x")]}, "names a"),
            ({"captures": [self.TASK], "records": [dict(record, cap=5)]}, "bucket_cap_mb"),
            ({"captures": [dict(self.TASK, batch=8)], "records": [record]}, "MODEL-bBATCH"),
            (
                {"captures": [dict(self.TASK, memory_format="channels_last")], "records": [record]},
                "-nhwc",
            ),
            ({"captures": [self.TASK], "records": [dict(record, ranks=0)]}, "1 to 16"),
            (
                {"captures": [self.TASK], "records": [dict(record, bucket_cap_mb=0.5)]},
                "whole number",
            ),
        ):
            with self.assertRaisesRegex(gpu.ModelsError, said):
                self.read(document)


class Session(unittest.TestCase):
    def commands(self, minutes):
        return gpu.session_commands(minutes, "D", {s.name: s for s in stages()})

    def test_each_command_has_nine_minutes_at_most_and_all_of_them_the_session(self):
        for session in (30, 45):
            spent = [
                float(words[words.index("--minutes") + 1]) for _, words, _ in self.commands(session)
            ]
            self.assertLessEqual(max(spent), 9)
            self.assertLessEqual(sum(spent), session)
            for (_, words, rows), minutes in zip(self.commands(session), spent):
                planned = sum(seconds + gpu.PACK_S for _, seconds, why in rows if not why)
                self.assertLessEqual(planned, 60 * minutes, words)

    def test_nothing_that_is_planned_is_left_out_but_what_goes_on_later(self):
        for session in (30, 45):
            for what, words, rows in self.commands(session):
                self.assertEqual([s.name for s, _, why in rows if why], [], what)
                self.assertEqual("--resume" in words, "--smoke" not in words, what)

    def test_every_stage_has_its_place_and_what_is_held_out_comes_late(self):
        rows = self.commands(30)
        place = {
            s.name: k
            for k, (_, words, r) in reversed(list(enumerate(rows)))
            for s, _, _ in r
            if "--smoke" not in words
        }
        self.assertEqual(set(place), {s.name for s in stages()})
        self.assertEqual(
            {s.name for s, _, _ in rows[0][2]}, {n for n in place if "-again" not in n}
        )
        self.assertTrue(all(seconds == 5 for _, seconds, _ in rows[0][2]))
        order = ["memory", "captures", "records-n2", "records-held-n2", "records-again-n2"]
        self.assertEqual(sorted(order, key=place.get), order)
        self.assertEqual(place["records-n4"], place["records-held-n2"])
        self.assertEqual(place["gemm-again"], place["memory-again"])

    def test_a_record_is_in_one_list_and_in_six_once_again(self):
        split = {}
        for name, ranks, items, _ in gpu.record_stages(gpu.record_lists("R")):
            for words in items:
                split.setdefault(gpu.record_name(words), []).append((name, ranks))
        names = [gpu.record_name(w) for items in gpu.record_lists("R").values() for w in items]
        looked = {n.removesuffix("-profiled") for n in split if n.endswith("-profiled")}
        self.assertEqual(
            set(names), {n for n in split if not n.endswith(("-again", "-profiled"))}
        )
        self.assertTrue(looked and looked <= set(names))
        again = [n for n in split if n.endswith("-again")]
        self.assertTrue(len(names) / 12 < len(again) < len(names) / 3, (len(again), len(names)))
        for n in names:
            held = "held-" if gpu.split_of(n) == "held_out" else ""
            self.assertEqual(split[n], [(f"records-{held}n{n[-1]}", int(n[-1]))])

    def test_a_plan_needs_no_gpu(self):
        done = subprocess.run(
            [
                sys.executable,
                str(ROOT / "tools/gpu_calibrate"),
                "--plan",
                "45m",
                "--ddpsim",
                "/no/such",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("1. does every stage work here", done.stdout)
        self.assertIn("tools/gpu_import gpu-runs/runs*.tar.gz", done.stdout)

    def test_what_was_fitted_here_is_what_is_executed(self):
        with tempfile.TemporaryDirectory() as folder:

            def profile(stage):
                made = gpu.ddpsim_stages("ddpsim", f"{folder}/runs", "NVIDIA H200")
                words = made[stage].command(9)
                return words[words.index("--profile") + 1], words[words.index("--timeout") + 1]

            self.assertEqual(profile("run-resnet50"), ("h200-sxm.datasheet", "9"))
            self.assertEqual(profile("run-resnet50-2"), ("h200-sxm.one-gpu", "9"))
            for name in ("h200-sxm", "h200-sxm.one-gpu"):
                path = Path(folder) / f"profiles/{name}.json"
                path.parent.mkdir(exist_ok=True)
                path.write_text("{}")
                stage = "run-resnet50" + ("-2" if "one" in name else "")
                self.assertEqual(profile(stage)[0], str(path))


class Run(unittest.TestCase):
    def session(self, folder):
        s = gpu.Session(folder)
        self.addCleanup(s.log.close)
        return s

    def test_a_stage_that_fails_or_hangs_loses_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            s = self.session(folder)
            write = gpu.Stage(
                "write",
                [],
                1,
                1,
                lambda _: [
                    sys.executable,
                    "-c",
                    f"open({folder!r} + '/runs/a.json', 'w').write('1')",
                ],
            )
            fail = gpu.Stage(
                "fail",
                [],
                1,
                1,
                lambda _: [
                    sys.executable,
                    "-c",
                    "import sys; print('no such kernel'); sys.exit(3)",
                ],
            )
            s.run(write, 5, dict(os.environ))
            s.pack()
            s.run(fail, 5, dict(os.environ))
            s.pack()
            self.assertEqual([r[1] for r in s.rows], ["ok", "failed (3)"])
            self.assertEqual(s.rows[1][3], "no such kernel")
            with tarfile.open(f"{folder}/runs.tar.gz") as tar:
                self.assertIn("runs/a.json", tar.getnames())
                self.assertIn("log", tar.getnames())

    def test_what_is_more_than_a_file_goes_on_in_the_next_and_what_is_too_much_is_named(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.multiple(
            gpu, PART_BYTES=30_000, PARTS=3, ALL_BYTES=80_000
        ):
            s = self.session(folder)
            s.say("a log")
            names = set()

            def write(name, size):  # what cannot be compressed
                (Path(folder) / "runs" / name).write_bytes(os.urandom(size))

            def packed():
                s.pack()
                names.clear()
                for part in s.parts:
                    self.assertLessEqual(part.stat().st_size, gpu.PART_BYTES)
                    with tarfile.open(part) as tar:
                        self.assertFalse(names & set(tar.getnames()))
                        names.update(tar.getnames())
                self.assertEqual(sorted(Path(folder).glob("runs*.tar.gz")), sorted(s.parts))
                return len(s.parts)

            write("a.json", 10_000)
            self.assertEqual((packed(), names), (1, {"log", "runs/a.json"}))
            for k in range(4):
                write(f"b{k}.json", 12_000)
            self.assertEqual((packed(), len(names), s.too_much), (3, 6, []))
            write("c.json", 40_000)  # in no part
            write("d.json", 20_000)  # in none that is left
            self.assertEqual((packed(), len(names)), (3, 6))
            said = s.what_came()
            self.assertIn("runs-3.tar.gz", said[0])
            self.assertIn("2 files", said[1])
            self.assertIn("runs/c.json, runs/d.json", said[1])
            for name in ("b0", "b1", "b2", "b3", "c", "d"):
                (Path(folder) / f"runs/{name}.json").unlink()
            self.assertEqual((packed(), len(s.what_came())), (1, 1))

    def test_what_never_ends_is_ended_with_all_that_it_started(self):
        with tempfile.TemporaryDirectory() as folder:
            child = f"{folder}/pid"
            script = (
                f"import subprocess, sys; p = subprocess.Popen(['sleep', '600']); open({child!r},"
                " 'w').write(str(p.pid)); print('waiting', flush=True); p.wait()"
            )
            command, said, begin = [sys.executable, "-c", script], "", time.monotonic()
            for seconds in (1.5, 30):  # a busy machine may not have begun after 1.5 s
                if "waiting" not in said:
                    said, code = gpu.run_bounded(command, dict(os.environ), seconds)
            self.assertLess(time.monotonic() - begin, 100)
            self.assertIn("waiting", said)
            self.assertIn("did not end", code)
            pid = int(Path(child).read_text())
            for _ in range(400):
                if (
                    not Path(f"/proc/{pid}").exists()
                    or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
                ):
                    break
                time.sleep(0.05)
            else:
                self.fail("what it started is still there")

    def test_a_command_that_is_not_there_is_said(self):
        said, code = gpu.run_bounded(["/no/such/program"], {}, 1)
        self.assertEqual(code, "cannot be started")
        self.assertIn("No such file", said)

    def test_with_a_binary_that_finds_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = Path(folder) / "ddpsim"
            fake.write_text(
                "#!/bin/sh\necho '"
                + json.dumps([{"what": "nvidia gpu", "ok": False, "detail": "no NVIDIA device"}])
                + "'\n"
            )
            fake.chmod(0o755)
            done = subprocess.run(
                [
                    sys.executable,
                    str(ROOT / "tools/gpu_calibrate"),
                    "--ddpsim",
                    str(fake),
                    "--minutes",
                    "1",
                    "--out",
                    f"{folder}/out",
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("no NVIDIA device", done.stdout)
            self.assertIn("nothing was measured", done.stderr)
            self.assertTrue((Path(folder) / "out/runs.tar.gz").is_file())

    def test_wrong_input_is_refused_in_a_sentence(self):
        for more, says in (
            (["--minutes", "0"], "--minutes 0"),
            (["--only", "nothing"], "there is no stage nothing"),
            (["--ddpsim", "/no/such"], "no ddpsim was found"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                fake = Path(folder) / "ddpsim"
                fake.write_text("#!/bin/sh\necho '[]'\n")
                fake.chmod(0o755)
                done = subprocess.run(
                    [
                        sys.executable,
                        str(ROOT / "tools/gpu_calibrate"),
                        "--ddpsim",
                        str(fake),
                        "--out",
                        f"{folder}/out",
                        *more,
                    ],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual(done.returncode, 2, more)
                self.assertIn(says, done.stderr)


class OneGpu(unittest.TestCase):
    def test_every_rank_is_a_host_of_its_own(self):
        a, b = one.environment(0, 2, "/f", 1234), one.environment(1, 2, "/f", 1234)
        self.assertNotEqual(a["NCCL_HOSTID"], b["NCCL_HOSTID"])
        self.assertEqual(a["LOCAL_RANK"], b["LOCAL_RANK"])
        self.assertEqual(a["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "50")

    def test_the_port_is_kept_for_rank_0(self):
        """Ranks come seconds after it was chosen; a port that is only free may be another's then,
        and a test beside this one failed of it."""
        with one.held_port() as port, socket.socket() as other, socket.socket() as store:
            with self.assertRaises(OSError):
                other.bind(("127.0.0.1", port))
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("127.0.0.1", port))
            store.listen()

    def test_a_rank_that_fails_ends_the_others(self):
        script = (
            "import os, sys, time; sys.exit(5) if os.environ['RANK'] == '1' else time.sleep(200)"
        )
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(one.run([sys.executable, "-c", script], 3, folder), 5)
        self.assertLess(time.monotonic() - begin, 100)

    def test_the_daemon_is_ended_whatever_happens(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = Path(folder) / "nvidia-cuda-mps-control"
            fake.write_text(
                f"#!/bin/sh\nif [ \"$1\" = -d ]; then echo start >> {folder}/said; else cat >>"
                f" {folder}/said; fi\n"
            )
            fake.chmod(0o755)
            with mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"):
                code = one.main(
                    [
                        "--ranks",
                        "2",
                        "--",
                        sys.executable,
                        "-c",
                        (
                            "import os, sys; sys.exit(0 if"
                            " os.path.isdir(os.environ['CUDA_MPS_PIPE_DIRECTORY']) else 9)"
                        ),
                    ]
                )
                self.assertEqual(code, 0)
                with self.assertRaises(ZeroDivisionError), one.Mps() as mps:
                    kept = mps.folder
                    raise ZeroDivisionError
            self.assertFalse(Path(kept).exists())
            self.assertEqual((Path(folder) / "said").read_text(), "start\nquit -t 1\n" * 2)

    def test_without_the_program_it_says_so(self):
        with mock.patch.dict(os.environ, PATH="/nonexistent"), self.assertRaises(
            SystemExit
        ) as caught:
            one.main(["--ranks", "2", "--", "true"])
        self.assertIn("nvidia-cuda-mps-control", str(caught.exception))

    def test_all_well(self):
        script = "import os; assert os.environ['WORLD_SIZE'] == '2'"
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(one.run([sys.executable, "-c", script], 2, folder), 0)


if __name__ == "__main__":
    unittest.main()
