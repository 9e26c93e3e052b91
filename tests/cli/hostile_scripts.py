#!/usr/bin/env python3
"""Scripts that write, send, start processes, break the interpreter or never end, described: each
ends in a description, or in one sentence and exit code 2; none changes a file.

  hostile_scripts.py DDPSIM [unittest's arguments]
"""
import json
import os
import signal
import subprocess
import sys
import time

import describe
import warm_python
from describe import Case

HEAD = """
import os, sys, torch
from torch import nn
model = nn.Linear(8, 4)
o = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(4, 8)).sum().backward(); o.step(); o.zero_grad()
def train():
    for _ in range(9): step()
"""

# What these write they see; three steps are seen.
WRITES = {
    "folders and files": """
import csv, json, shutil, tempfile
from pathlib import Path
os.makedirs("out/deep", exist_ok=True); os.makedirs("out/deep", exist_ok=True)
open("out/x.json", "w").write("[1]")
assert json.load(open("out/x.json")) == [1]
Path("out/deep/y.txt").write_text("y"); assert Path("out/deep/y.txt").read_text() == "y"
with open("out/t.csv", "a", newline="") as f: csv.writer(f).writerow([1, 2])
assert sorted(os.listdir("out")) == ["deep", "t.csv", "x.json"]
assert sorted(p.name for p in Path("out").rglob("*")) == ["deep", "t.csv", "x.json", "y.txt"]
assert os.path.isdir("out") and os.path.getsize("out/x.json") == 3
with tempfile.TemporaryDirectory() as d:
    open(os.path.join(d, "a"), "w").write("a"); assert os.listdir(d) == ["a"]
assert not os.path.exists(d)
with tempfile.NamedTemporaryFile("w+") as f: f.write("t"); f.seek(0); assert f.read() == "t"
""",
    "files that are there": """
import shutil
from pathlib import Path
open("kept/a.txt", "a").write("more"); assert open("kept/a.txt").read() == "amore"
assert sorted(os.listdir("kept")) == ["a.txt", "b.txt"]
os.remove("kept/b.txt"); assert os.listdir("kept") == ["a.txt"]
try: open("kept/b.txt")
except FileNotFoundError as e: assert e.filename == "kept/b.txt"
else: raise SystemExit("it is there")
with open("kept/a.txt", "r+") as f: f.write("A")
assert Path("kept/a.txt").read_text() == "Amore"
os.rename("kept/a.txt", "kept/c.txt"); assert os.listdir("kept") == ["c.txt"]
shutil.rmtree("kept"); assert not os.path.exists("kept")
os.mkdir("kept"); assert os.listdir("kept") == []
shutil.copy("linked/b.txt", "kept/b.txt"); assert open("kept/b.txt").read() == "b"
shutil.copytree("linked", "copied"); assert open("copied/b.txt").read() == "b"
shutil.move("copied", "moved"); assert os.listdir("moved") == ["b.txt"]
os.rename("linked", "other"); assert open("other/b.txt").read() == "b"
assert not os.path.exists("linked")
""",
    "links and modes": """
from pathlib import Path
open("linked/new", "w").write("n"); assert "new" in os.listdir("real")
os.symlink("real/b.txt", "latest"); assert os.readlink("latest") == "real/b.txt"
open("latest", "w").write("by the link"); assert open("real/b.txt").read() == "by the link"
os.link("real/b.txt", "hard"); assert open("hard").read() == "by the link"
os.chmod("script.py", 0o600); os.utime("script.py", (1, 1))
assert os.stat("script.py").st_mtime == 1
os.truncate("real/b.txt", 2); assert os.path.getsize("real/b.txt") == 2
os.replace("real/b.txt", "kept/a.txt"); assert open("kept/a.txt").read() == "by"
number = os.open("raw", os.O_WRONLY | os.O_CREAT, 0o644); os.write(number, b"raw"); os.close(number)
assert open("raw", "rb").read() == b"raw" and os.access("raw", os.R_OK)
os.makedirs("here"); os.chdir("here"); assert os.getcwd().endswith("/here")
open("z", "w").write("z"); assert os.path.exists("../here/z") and os.path.exists("../script.py")
os.chdir(".."); assert Path("here/z").read_text() == "z"
assert [(e.name, e.is_file()) for e in os.scandir("here")] == [("z", True)]
os.rmdir("kept") if not os.listdir("kept") else None
""",
    "logs and arrays": """
import logging, shelve
logging.basicConfig(filename="train.log", level=logging.INFO); logging.info("begins")
logging.getLogger().addHandler(logging.FileHandler("logs.txt"))
assert "begins" in open("train.log").read()
try:
    import numpy
    numpy.save("a.npy", numpy.ones(3)); assert numpy.load("a.npy").sum() == 3
    numpy.savez("b.npz", x=numpy.ones(2)); assert numpy.load("b.npz")["x"].sum() == 2
except ImportError: pass
torch.save(model.state_dict(), "model.pt")
torch.jit.save(torch.jit.script(nn.Linear(2, 2)), "script.pt")
with shelve.open("shelf") as shelf: shelf["x"] = 1
with shelve.open("shelf") as shelf: assert shelf["x"] == 1
""",
    "a gzip and an archive": """
import bz2, gzip, lzma, tarfile, zipfile
for how in (gzip, bz2, lzma):
    with how.open("x.z", "wb") as f: f.write(b"x" * 100)
    assert how.open("x.z").read() == b"x" * 100
with zipfile.ZipFile("x.zip", "w") as f: f.writestr("in", "side")
assert zipfile.ZipFile("x.zip").read("in") == b"side"
with tarfile.open("x.tar.gz", "w:gz") as f: f.add("script.py")
assert tarfile.open("x.tar.gz").getnames() == ["script.py"]
""",
    "a port that is free": """
import socket
s = socket.socket(); s.bind(("", 0)); port = s.getsockname()[1]; s.close(); assert port
open(os.devnull, "w").write("x")
""",
    "what is refused is handled": """
import socket, subprocess
for refused in (lambda: subprocess.run(["true"]), lambda: os.system("touch x"), os.fork,
                lambda: socket.create_connection(("127.0.0.1", 9)),
                lambda: os.execv("/bin/true", ["true"]), lambda: os.kill(os.getppid(), 9)):
    try: refused()
    except OSError as e: assert "--allow-writes" in str(e), e
    else: raise SystemExit("it is done")
""",
}  # fmt: skip

TRAINS_ON = {  # the script, and what is said of it
    "steps in a bare except": ("while True:\n    try: step()\n    except: pass\n", ""),
    "a training thread": ("import threading\nt = threading.Thread(target=train)\n"
                          "t.start(); t.join()\n", ""),
    "threads that run on": ("import threading, time\n"
                            "threading.Thread(target=time.sleep, args=(300,)).start()\n"
                            "train()\n", ""),
    "atexit": ("import atexit\natexit.register(lambda: os._exit(9))\n"
               "atexit.register(lambda: 1 / 0)\ntrain()\n", ""),
    "descriptors": ("os.close(1); os.close(2); os.closerange(3, 4096)\ntrain()\n", ""),
    "no stdout": ("sys.stdout = sys.stderr = None\ntrain()\n", ""),
    "json is another": ("import json\njson.dumps = json.loads = None\n"
                        "from pathlib import Path\nPath.write_text = None\ntrain()\n", ""),
    "no builtins": ("import builtins\ntry: train()\nfinally:\n"
                    "    for n in dir(builtins): setattr(builtins, n, None)\n", ""),
    "sys is another": ("sys.exit = os._exit = None\nsys.path.clear()\nsys.argv = None\n"
                       "try: train()\nfinally: sys.setrecursionlimit(60)\n", ""),
    "no torch": ("try: train()\nfinally: del sys.modules['torch']\n", ""),
    "no modules": ("try: train()\nfinally: sys.modules.clear()\n", ""),
    "warnings are errors": ("import warnings\nwarnings.simplefilter('error')\ntrain()\n", ""),
    "signals": ("import signal\nfor s in range(1, 64):\n"
                "    try: signal.signal(s, lambda *_: 1 / 0)\n"
                "    except (OSError, ValueError): pass\ntrain()\n", ""),
    "the folder is left": ("os.chdir('/')\ntrain()\n", ""),
    "ends after a step": ("step(); step(); os._exit(0)\n", "of 3 steps were seen"),
    "fails after a step": ("step(); step(); raise BaseException('no more')\n", "no more"),
}  # fmt: skip

REFUSED = {  # the script, and words of the sentence
    "ends itself, 0": ("os._exit(0)", ["os._exit(0)"]),
    "ends itself, 5": ("os._exit(5)", ["os._exit(5)"]),
    "aborts": ("os.abort()", ["os.abort"]),
    "an exception of its own": ("class Own(BaseException): pass\nraise Own('enough')",
                                ["Own: enough", "script.py, line"]),
    "an exception without a text": ("class Own(Exception):\n    def __str__(self): return 1 / 0\n"
                                    "raise Own()", ["Own"]),
    "an interrupt": ("raise KeyboardInterrupt", ["KeyboardInterrupt", "line"]),
    "an exit": ("sys.exit(7)", ["ended itself with 7"]),
    "an exit with lines": ("sys.exit('one\\ntwo')", ["one"]),
    "another program": ("os.execv('/bin/true', ['true'])", ["line", "--allow-writes"]),
    "a process": ("import subprocess\nsubprocess.run(['touch', 'x'])", ["touch", "--allow-writes"]),
    "a shell": ("os.system('touch x')", ["touch x", "line", "--allow-writes"]),
    "a fork": ("os.fork()", ["--allow-writes"]),
    "a Process": ("import multiprocessing as mp\nmp.Process(target=print).start()",
                  ["--allow-writes"]),
    "a spawned Process": ("import multiprocessing as mp\n"
                          "mp.get_context('spawn').Process(target=print).start()",
                          ["--allow-writes"]),
    "a connection": ("import socket\nsocket.create_connection(('127.0.0.1', 9))",
                     ["127.0.0.1", "--allow-writes"]),
    "a download": ("import urllib.request\nurllib.request.urlopen('http://no.example/x')",
                   ["no.example", "--allow-writes"]),
    "a datagram": ("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
                   ".sendto(b'x', ('127.0.0.1', 9))", ["--allow-writes"]),
    "a server": ("import socket\nsocket.socket().bind(('127.0.0.1', 29999))", ["--allow-writes"]),
    "a descriptor of a folder": ("d = os.open('.', os.O_RDONLY)\nos.mkdir('x', dir_fd=d)",
                                 ["x", "line", "--allow-writes"]),
    "posix itself": ("import posix\nposix.mkdir('x')", ["x", "--allow-writes"]),
    "io itself": ("import _io\n_io.FileIO('x', 'w')", ["x", "--allow-writes"]),
    "a database": ("import sqlite3\nsqlite3.connect('x.db')", ["x.db", "--allow-writes"]),
    "closes all": ("os.close(1); os.close(2); os.closerange(3, 4096)", ["without a step"]),
    "closes all and fails": ("os.closerange(0, 4096)\nraise ValueError('so')", ["ValueError: so"]),
    "recursion": ("def f(): f()\nf()", ["RecursionError"]),
    "kills itself": ("os.kill(os.getpid(), 9)", ["signal", "line"]),
    "kills all": ("os.killpg(0, 9)", ["line"]),
    "a signal": ("import signal\nsignal.raise_signal(signal.SIGKILL)", ["signal"]),
    "a trap": ("import ctypes\nctypes.string_at(0)", ["signal 11"]),
    "leaves at once": ("import ctypes\nctypes.CDLL(None)._exit(1)", ["ended", "status 1"]),
    "leaves with 0": ("import ctypes\nctypes.CDLL(None)._exit(0)", ["ended", "status 0"]),
    "a Python error": ("1 / 0", ["ZeroDivisionError", "line"]),
    "syntax": ("def (", ["SyntaxError"]),
    "reads what is not there": ("open('no')", ["FileNotFoundError", "'no'"]),
    "a text that is none": ("raise ValueError('\\udcff')", ["ValueError"]),
}  # fmt: skip

FILES = {  # its bytes, and words
    "empty": (b"", ["without a step"]),
    "not UTF-8": (b"x = '\xff\xfe'\n", ["SyntaxError"]),
    "a NUL": (b"x = 1\0\n", ["null byte"]),
}

ENDLESS = {
    "sleeps": ("import time\nstep(); step()\ntime.sleep(300)", None),
    "works": ("while True: pass", ["0 of 3 steps", "line"]),
    "swallows": ("import time\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n"
                 "    except: pass",
                 ["0 of 3 steps", "line"]),
    "blocks signals": ("import signal as s, time\n"
                       "s.pthread_sigmask(s.SIG_BLOCK, range(1, 65))\ntime.sleep(300)",
                       ["0 of 3 steps", "line"]),
}  # fmt: skip


class Hostile(Case):
    def setUp(self):
        super().setUp()
        for folder in ("kept", "real", "tmp"):
            (self.folder / folder).mkdir()
        for name, text in (("kept/a.txt", "a"), ("kept/b.txt", "b"), ("real/b.txt", "b")):
            (self.folder / name).write_text(text)
        (self.folder / "linked").symlink_to("real")

    def tree(self):
        """Of all that is there: mode, time and text."""
        out = {}
        for path in sorted(self.folder.rglob("*")):
            seen = path.lstat()
            kind = os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
            time = 0 if path.name == "tmp" else seen.st_mtime_ns
            out[str(path)] = (seen.st_mode, time, kind)
        return out

    def described(self, script, *flags, code=0, says=()):
        if isinstance(script, bytes):
            (self.folder / "script.py").write_bytes(script)
        else:
            (self.folder / "script.py").write_text(HEAD + script)
        before = self.tree()
        env = {**os.environ, "TMPDIR": str(self.folder / "tmp")}
        done = self.ask("describe", "--script", "script.py", *flags, env=env)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.tree(), before)
        own = [line for line in done.stderr.splitlines() if line.startswith("ddpsim: ")]
        for words in says:
            self.assertIn(words, " ".join(own))
        if code:
            self.assertEqual((len(own), done.stdout), (1, ""), done.stderr)
        else:
            self.assertEqual(json.loads(done.stdout)["batch"], 4)

    def test_what_it_writes_it_sees(self):
        for name, script in WRITES.items():
            with self.subTest(name):
                self.described(script + "train()\n")

    def test_described_all_the_same(self):
        for name, (script, says) in TRAINS_ON.items():
            with self.subTest(name):
                self.described(script, says=[says])

    def test_refused(self):
        for name, (script, says) in REFUSED.items():
            with self.subTest(name):
                self.described(script + "\n", code=2, says=says)

    def test_files(self):
        for name, (data, says) in FILES.items():
            with self.subTest(name):
                self.described(data, code=2, says=says)
        self.refused("describe", "--script", "kept", says=["is a folder"])

    def test_endless(self):
        for name, (script, says) in ENDLESS.items():
            with self.subTest(name):
                place = "after 0.5 s the script is at script.py, line"
                words = [place, *says] if says else [f"of 3 steps were seen: {place}"]
                code = 2 if says else 0
                self.described(script + "\n", "--timeout", "500ms", code=code, says=words)
        for flags in (["--timeout", "0s"], ["--timeout", "soon"]):
            self.refused("describe", "--script", "train.py", *flags, says=["--timeout"])
        self.refused("describe", "--factory", "train:make", "--timeout", "1s", says=["--script"])
        self.refused("describe", "--factory", "train:make", "--allow-writes", says=["--script"])

    def test_allowed(self):
        (self.folder / "script.py").write_text(
            HEAD + "import subprocess\nopen('written', 'w').write('w')\n"
            "subprocess.run(['touch', 'touched'], check=True)\ntrain()\n"
        )
        self.answer("describe", "--script", "script.py", "--allow-writes")
        self.assertEqual((self.folder / "written").read_text(), "w")
        self.assertTrue((self.folder / "touched").exists())
        flags = ("--cluster", "hgx-h100", "--allow-writes")
        (self.folder / "written").unlink()
        self.answer("predict", "--script", "script.py", *flags)
        self.assertTrue((self.folder / "written").exists())

    def test_interrupted(self):
        """By a terminal, or killed: nothing is left over."""
        (self.folder / "script.py").write_text(
            "import time\nopen('x', 'w').write('x')\nprint('written', flush=True)\n"
            "time.sleep(300)\n"
        )
        env = {**os.environ, "TMPDIR": str(self.folder / "tmp")}
        command = [describe.DDPSIM, "describe", "--script", "script.py"]
        for end in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(end):
                process = subprocess.Popen(
                    [*command, "--python", warm_python.PYTHON], cwd=self.folder, env=env,
                    stderr=subprocess.PIPE, text=True, start_new_session=True,
                )  # fmt: skip
                self.assertEqual(process.stderr.readline(), "written\n")
                self.assertEqual(len(os.listdir(self.folder / "tmp")), 1)
                os.killpg(process.pid, end)
                process.communicate()
                until = time.monotonic() + 20
                while os.listdir(self.folder / "tmp") and time.monotonic() < until:
                    time.sleep(0.05)
                self.assertEqual(os.listdir(self.folder / "tmp"), [])

    def test_a_real_interpreter(self):
        """Not forked: threads, descriptors and the end are its own."""
        script = "".join(TRAINS_ON[name][0] for name in ("atexit", "threads that run on"))
        script = script.replace("train()\n", "") + TRAINS_ON["descriptors"][0]
        self.described(script, "--python", warm_python.PYTHON)


if __name__ == "__main__":
    describe.main(sys.argv)
