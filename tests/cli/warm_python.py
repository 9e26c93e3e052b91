#!/usr/bin/env python3
"""A python3 that has imported PyTorch before it is started: tests that start it fifty times wait
for the import once. A command `python3 SCRIPT ...` becomes a fork of a process that waits; anything
else (-c, -m) is run by the interpreter itself.

  with warm_python.folder() as path: put it first in PATH
"""
import contextlib
import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

PYTHON = "/usr/bin/python3"
TOOLS = str(Path(__file__).resolve().parents[2] / "tools/python")
DESCRIBER = ("ddpsim_capture", "ddpsim_layers", "ddpsim_script", "torch.distributed.optim")
SHIM = f"""#!{PYTHON} -ES
import json, os, signal, socket, sys
if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    os.execv("{PYTHON}", ["{PYTHON}", *sys.argv[1:]])
me = socket.socket(socket.AF_UNIX)
me.connect(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "socket"))
mine = "/proc/%d/fd/" % os.getpid()
argv = [a.replace("/proc/self/fd/", mine) for a in sys.argv[1:]]
asked = json.dumps([argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(me, [len(asked).to_bytes(8, "little")], [0, 1, 2])
me.sendall(asked)
status = int(me.recv(64))
if os.WIFSIGNALED(status):
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.WEXITSTATUS(status))
"""


def run(argv, folder, env, streams):
    """In a child: the script, as if an interpreter had been started for it."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv = argv
    sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(i, m) for i, m in enumerate("rww"))
    code = 0
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001  # as an interpreter ends
        traceback.print_exc()
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 255)


def serve(path):
    importlib.import_module("torch")
    sys.path.append(TOOLS)  # where no .pyc is kept: compiled once
    for name in DESCRIBER:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or each child looks at all of that, and copies it
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen()
    print("ready", flush=True)
    while True:
        caller, _ = door.accept()
        size, streams, _, _ = socket.recv_fds(caller, 8, 3)
        left, asked = int.from_bytes(size, "little"), b""
        while len(asked) < left:
            asked += caller.recv(left - len(asked))
        child = os.fork()
        if child == 0:
            door.close()
            caller.close()
            run(*json.loads(asked), streams=streams)
        for stream in streams:
            os.close(stream)

        def wait(child=child, caller=caller):
            with contextlib.suppress(OSError), caller:
                caller.sendall(str(os.waitpid(child, 0)[1]).encode())

        threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def folder():
    """Its path, or None where Debian's interpreter has no PyTorch."""
    with tempfile.TemporaryDirectory() as name:
        server = subprocess.Popen(
            [PYTHON, __file__, "--serve", f"{name}/socket"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) if shutil.which(PYTHON) else None  # fmt: skip
        try:
            if not server or server.stdout.readline() != "ready\n":
                yield None
                return
            shim = Path(name) / "python3"
            shim.write_text(SHIM)
            shim.chmod(0o755)
            yield name
        finally:
            if server:
                server.kill()
                server.wait()


if __name__ == "__main__":
    serve(sys.argv[2])
