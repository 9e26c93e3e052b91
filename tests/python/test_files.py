"""Tests of tools/python/ddpsim_files.py. Run: python3 -m unittest tests/python/test_files.py"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/python"))
from ddpsim_files import whole_file, write_whole  # noqa: E402


class WholeFiles(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.file = self.folder / "x.json"

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    def test_text_and_bytes(self) -> None:
        write_whole(self.file, "gr\u00f6\u00dfer\n")
        self.assertEqual(self.file.read_bytes(), b"gr\xc3\xb6\xc3\x9fer\n")
        write_whole(str(self.file), b"\x1f\x8b")
        self.assertEqual(self.file.read_bytes(), b"\x1f\x8b")
        self.assertEqual(self.names(), ["x.json"])

    def test_a_failure_leaves_what_was_there(self) -> None:
        write_whole(self.file, "before")
        with mock.patch("os.replace", side_effect=OSError("disk")), self.assertRaises(OSError):
            write_whole(self.file, "after")
        with self.assertRaises(KeyboardInterrupt), whole_file(self.file) as file:
            file.write(b"half")
            raise KeyboardInterrupt
        self.assertEqual(self.file.read_text(), "before")
        self.assertEqual(self.names(), ["x.json"])

    def test_the_name_is_new_each_time_and_not_the_place(self) -> None:
        seen = set()
        for _ in range(8):
            with whole_file(self.file) as file:
                beside = [name for name in self.names() if name != "x.json"]
                self.assertEqual(len(beside), 1)
                self.assertRegex(beside[0], r"^x\.json\.ddpsim-[0-9a-f]{16}$")
                seen.add(beside[0])
                file.write(b"1")
        self.assertEqual(len(seen), 8)

    def test_takes_nothing_that_somebody_put_in_its_way(self) -> None:
        victim = self.folder / "victim"
        victim.write_text("mine")
        with mock.patch("secrets.token_hex", return_value="0" * 16):
            trap = self.folder / ("x.json.ddpsim-" + "0" * 16)
            for make in (lambda: trap.symlink_to(victim), lambda: os.link(victim, trap)):
                make()
                with self.assertRaises(FileExistsError):
                    write_whole(self.file, "theirs")
                self.assertTrue(os.path.lexists(trap), "what was not its own was removed")
                trap.unlink()
        self.assertEqual((victim.read_text(), self.names()), ("mine", ["victim"]))

    def test_keeps_the_mode_and_the_link(self) -> None:
        real = self.folder / "real.json"
        real.write_text("old")
        real.chmod(0o640)
        self.file.symlink_to("real.json")
        write_whole(self.file, "new")
        self.assertTrue(self.file.is_symlink())
        self.assertEqual((real.read_text(), real.stat().st_mode & 0o777), ("new", 0o640))
        old = os.umask(0o027)
        self.addCleanup(os.umask, old)
        write_whole(self.folder / "fresh", "")
        self.assertEqual((self.folder / "fresh").stat().st_mode & 0o777, 0o640)

    def test_writes_devices_and_descriptors_as_they_are(self) -> None:
        write_whole("/dev/null", "gone")
        self.assertFalse(os.path.isfile("/dev/null"))
        with open(self.file, "wb") as opened:
            inode = self.file.stat().st_ino
            write_whole(f"/proc/self/fd/{opened.fileno()}", "kept")
        self.assertEqual((self.file.read_text(), self.file.stat().st_ino), ("kept", inode))

    def test_long_names(self) -> None:
        name = "\u00f6" * 120  # 240 bytes of the 255 that a file system takes
        write_whole(self.folder / name, "x")
        self.assertEqual(self.names(), [name])

    def test_archives(self) -> None:
        write_whole(self.folder / "member", "x")
        with whole_file(self.folder / "a.tar.gz") as file, tarfile.open(
            fileobj=file, mode="w:gz"
        ) as tar:
            tar.add(self.folder / "member", arcname="member")
        with tarfile.open(self.folder / "a.tar.gz") as tar:
            self.assertEqual(tar.getnames(), ["member"])


class Scripts(unittest.TestCase):
    def test_no_other_way_to_a_temporary(self) -> None:
        """Names that can be guessed, and renames of one's own, beside the helper."""
        own = re.compile(
            r"getpid\(\)\}?\.tmp|\.tmp\"|os\.replace|os\.rename|\.replace\([A-Za-z_.]+\)$"
        )
        scripts = [
            p
            for folder in ("tools", "tools/python")
            for p in (ROOT / folder).iterdir()
            if p.is_file()
            and p.name not in ("ddpsim_files.py", "ddpsim_guard.py")  # which names what it refuses
            and (p.suffix == ".py" or p.read_bytes()[:80].startswith(b"#!/usr/bin/env python3"))
        ]
        self.assertGreater(len(scripts), 12)
        for script in scripts:
            for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), 1):
                self.assertIsNone(own.search(line), f"{script.name}:{number}: {line.strip()}")

    def test_describe_replaces_a_link_in_its_way_by_nothing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            victim = Path(folder) / "victim"
            victim.write_text("mine")
            (Path(folder) / "vgg16.json.tmp").symlink_to(victim)  # the name that was taken once
            subprocess.run(
                [
                    sys.executable,
                    str(ROOT / "tools/python/describe_models.py"),
                    "--only",
                    "vgg16",
                    "--out",
                    folder,
                ],
                check=True,
                capture_output=True,
            )
            self.assertEqual(victim.read_text(), "mine")
            self.assertTrue((Path(folder) / "vgg16.json").is_file())


if __name__ == "__main__":
    unittest.main()
