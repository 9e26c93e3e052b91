"""Many short Python programs that all import PyTorch: one process imports it, and forks for each.

    with forked.Forks(("torch",)) as forks:
        status, said = forks.start(["script.py", "--flag"], env, cwd).result()

A program runs as `python script.py --flag` (or `python -m NAME`: ["-m", "NAME", ...]) would, in an
environment and a folder of its own; nothing else has been imported that it could see. stdout and
stderr come back together.
"""
import concurrent.futures
import json
import os
import runpy
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path


class Forks:
    def __init__(self, modules, python=sys.executable):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        env.pop("PYTHONPATH", None)
        self._server = subprocess.Popen(
            [python, "-W", "ignore", __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        self._lock, self._asked, self._last = threading.Lock(), {}, 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, argv, env, cwd):
        """A future of (exit status, what was said)."""
        future = concurrent.futures.Future()
        descriptor, out = tempfile.mkstemp()
        os.close(descriptor)
        with self._lock:
            self._last += 1
            self._asked[self._last] = (future, Path(out))
            request = {"id": self._last, "argv": list(map(str, argv)), "env": env}
            request.update(cwd=str(cwd), out=out)
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
        return future

    def _read(self):
        for line in self._server.stdout:
            answer = json.loads(line)
            with self._lock:
                future, out = self._asked.pop(answer["id"])
            said = out.read_text(encoding="utf-8", errors="replace")
            out.unlink()
            future.set_result((answer["status"], said))
        with self._lock:
            left, self._asked = self._asked, {}
        for future, _ in left.values():
            future.set_exception(RuntimeError("the process that forks has ended"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stdin.close()
        self._server.wait()


# ---- the process that forks


def become(request):
    """What the forked process does; never returns."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        descriptor = os.open(request["out"], os.O_WRONLY | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        argv = request["argv"]
        for folder in reversed(request["env"].get("PYTHONPATH", "").split(":")):
            if folder:
                sys.path.insert(1, folder)
        sys.argv = argv[1:] if argv[0] == "-m" else argv
        sys.modules.pop("__main__", None)
        if argv[0] == "-m":
            sys.path[0] = request["cwd"]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(argv[0]).resolve().parent)
            runpy.run_path(argv[0], run_name="__main__")
        status = 0
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else int(e.code is not None)
        if e.code is not None and not isinstance(e.code, int):
            print(e.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve(modules):
    for module in modules:
        __import__(module)
    children, woken = {}, os.pipe()
    os.set_blocking(woken[1], False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken[1])
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(woken[0], selectors.EVENT_READ)
    left, open_ = b"", True
    while open_ or children:
        for key, _ in selector.select():
            data = os.read(key.fd, 1 << 20)
            if key.fd == 0:
                if not data:
                    open_ = False
                    selector.unregister(0)
                *lines, left = (left + data).split(b"\n")
                for line in lines:
                    request = json.loads(line)
                    child = os.fork()
                    if child == 0:
                        become(request)
                    children[child] = request["id"]
        while children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            print(json.dumps({"id": children.pop(child), "status": code}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1:])
