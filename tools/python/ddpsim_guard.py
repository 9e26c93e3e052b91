"""Keeps a script that is described from the world: what it writes goes to a folder that vanishes;
what would still write elsewhere, send or start a process is refused. However it ends, and however
long it runs, the describer goes on as if it had not run. Standard library only.
"""
from __future__ import annotations

import _thread
import builtins
import contextlib
import errno
import os
import signal
import socket
import sys
import tempfile
import types
import warnings
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

import ddpsim_overlay as overlay

WAY_OUT = "--allow-writes lets the script write, send and start processes"
TRIES = 5  # to end a script whose time is over, before the process is ended
BETWEEN = 0.4  # seconds
WAKES = getattr(signal, "SIGRTMAX", signal.SIGALRM) - 3  # no script has a use for it
# What the script may have replaced, and the describer needs.
NEEDED = (
    "argparse builtins collections contextlib copy dataclasses datetime functools genericpath"
    " hashlib inspect io itertools json json.decoder json.encoder linecache math operator os"
    " pathlib platform posixpath re secrets shutil signal socket stat string sys tempfile threading"
    " time tokenize traceback types typing warnings"
).split()


class Refused(PermissionError):
    """What the script may not do; `what`: "starting a process (git)"."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EPERM, what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} is refused while a script is described: {WAY_OUT}"


class Left(BaseException):
    """The script ends its process by itself; the text says how."""


class OutOfTime(BaseException):
    """The script's time is over; the text says where it was."""


# ---- what is refused


def path_of(value: Any) -> str:
    with contextlib.suppress(TypeError):
        return os.fsdecode(value)
    return ""


def first_word(command: Any) -> str:
    if isinstance(command, (str, bytes, os.PathLike)):
        return path_of(command)
    with contextlib.suppress(Exception):
        return " ".join(path_of(word) for word in command)[:60]
    return "?"


def of_address(address: Any) -> str:
    if isinstance(address, tuple):
        return ":".join(map(str, address[:2]))
    return path_of(address) or str(address)


# Of an event: which of its arguments are paths that change.
CHANGED: Dict[str, Tuple[int, ...]] = {
    "os.chflags": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.link": (1,),
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.removexattr": (0,),
    "os.rename": (0, 1),
    "os.rmdir": (0,),
    "os.setxattr": (0,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.utime": (0,),
}
STARTED: Dict[str, Callable[..., Any]] = {
    "os.exec": lambda path, *_: path,
    "os.fork": lambda *_: "fork",
    "os.forkpty": lambda *_: "fork",
    "os.posix_spawn": lambda path, *_: path,
    "os.spawn": lambda mode, path, *_: path,
    "os.system": lambda command, *_: command,
    "pty.spawn": lambda argv, *_: argv,
    "subprocess.Popen": lambda program, words, *_: words or program,
}


class Guard:
    """``holds()`` before the script, ``ends()`` after it. ``writes``: it may do all of that."""

    def __init__(self, writes: bool, root: Optional[str] = None) -> None:
        self.process, self.thread = os.getpid(), _thread.get_ident()
        self.folder = os.getcwd()
        self.writes = writes
        self.held = False
        name = f"ddpsim-{os.getpid()}-{os.urandom(8).hex()}"
        self.overlay = overlay.Overlay(root or os.path.join(tempfile.gettempdir(), name))
        self.exit = os._exit
        self.saved: List[Tuple[Any, Dict[str, Any]]] = []
        self.modules: Dict[str, types.ModuleType] = {}
        self.streams = (sys.stdin, sys.stdout, sys.stderr)
        self.builtins = (vars(builtins), dict(vars(builtins)))
        self.interrupted = False  # by who started it
        self.refused = ""  # what was refused last
        self.time: Optional[Deadline] = None
        self.lists: List[Tuple[Any, List[Any]]] = []
        self.recursion = sys.getrecursionlimit()

    # ---- the net

    def event(self, name: str, args: Tuple[Any, ...]) -> None:
        check = self.checks.get(name)
        if check is None or not (self.held or _thread.get_ident() != self.thread):
            return
        if self.time is not None and _thread.get_ident() == self.time.thread:
            return
        what = check(name, *args)
        if what:
            self.refuse(what)

    def refuse(self, what: str) -> NoReturn:
        self.refused = what
        raise Refused(what)

    def told(self) -> str:
        """What may be why the script ended."""
        return f" ({self.refused} was refused; {WAY_OUT})" if self.refused else ""

    def outside(self, path: Any) -> str:
        """The path, if none may write there; else empty."""
        if path is None or isinstance(path, int):
            return ""
        name = path_of(path)
        whole = os.path.normpath(os.path.join(overlay.REAL["getcwd"](), name))
        return "" if self.overlay.holds(whole) or whole in overlay.DEVICES else name

    def opens(self, event: str, path: Any, mode: Any, flags: Any) -> str:
        write = isinstance(flags, int) and flags & overlay.WRITES
        if not write and not (isinstance(mode, str) and any(c in mode for c in "wax+")):
            return ""
        name = self.outside(path)
        return name and f"writing {name}"

    def changes(self, event: str, *args: Any) -> str:
        names = [name for name in (self.outside(args[i]) for i in CHANGED[event]) if name]
        return f"changing {names[0]} ({event})" if names else ""

    def starts(self, event: str, *args: Any) -> str:
        return f"starting a process ({first_word(STARTED[event](*args))})"

    def sends(self, event: str, connection: Any, address: Any = None, *_: Any) -> str:
        if event == "socket.bind" and isinstance(address, tuple) and address[1:2] == (0,):
            return ""  # to learn which port is free
        how = "serving at" if event == "socket.bind" else "sending to"
        return f"{how} {of_address(address)}"

    def asks(self, event: str, host: Any, *_: Any) -> str:
        """For the address of a name, which goes to another machine."""
        name = path_of(host)
        with contextlib.suppress(OSError):
            socket.inet_aton(name)
            return ""
        own = name in ("", "localhost", "localhost.localdomain", self.host) or ":" in name
        return "" if own else f"asking for the address of {name}"

    def signals(self, event: str, process: int, number: int) -> str:
        if number == 0:
            return ""
        if event == "os.kill" and process == os.getpid():
            self.signals_itself(number)
            return ""
        return f"sending signal {int(number)} to process {process}"

    def signals_itself(self, number: int) -> None:
        harmless = (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH)
        if signal.getsignal(number) in (signal.SIG_DFL, None) and number not in harmless:
            raise Left(f"signal {int(number)}")

    def databases(self, event: str, name: Any, *_: Any) -> str:
        memory = path_of(name) in ("", ":memory:") or path_of(name).startswith("file::memory:")
        outside = "" if memory else self.outside(name)
        return outside and f"opening the database {outside}"

    def logs(self, event: str, *_: Any) -> str:
        return "writing to the system's log"

    # ---- before and after

    def holds(self) -> None:
        self.host = socket.gethostname()
        self.modules = dict(sys.modules)
        for name in NEEDED:
            module = sys.modules.get(name)
            if module is not None:
                self.saved.append((module, dict(vars(module))))
        import json
        import pathlib

        for own in (pathlib.PurePath, pathlib.Path, json.JSONEncoder):
            self.saved.append((own, dict(vars(own))))
        lists = (sys.path, sys.meta_path, sys.path_hooks, warnings.filters)
        self.lists = [(each, list(each)) for each in lists]
        self.catches_ends()
        if not self.writes:
            self.takes_files()
            self.checks: Dict[str, Callable[..., str]] = {
                "open": self.opens,
                **dict.fromkeys(CHANGED, self.changes),
                **dict.fromkeys(STARTED, self.starts),
                **dict.fromkeys(("os.kill", "os.killpg"), self.signals),
                "sqlite3.connect": self.databases,
                "syslog.openlog": self.logs,
                "syslog.syslog": self.logs,
            }
            for event in "bind connect sendmsg sendto".split():
                self.checks[f"socket.{event}"] = self.sends
            for event in "getaddrinfo gethostbyname gethostbyaddr".split():
                self.checks[f"socket.{event}"] = self.asks
            sys.addaudithook(self.event)
        self.held = True
        if self.time is not None:
            self.time.begins()

    def catches_ends(self) -> None:
        exits, raises, process = os._exit, signal.raise_signal, self.process

        def leave(status: int = 0) -> None:
            if os.getpid() != process:
                exits(status)
            raise Left(f"os._exit({status})")

        def abort() -> None:
            raise Left("os.abort()")

        def raise_signal(number: int) -> None:
            self.signals_itself(number)
            raises(number)

        def interrupt(number: int, frame: Any) -> None:
            self.interrupted = True
            raise KeyboardInterrupt

        os._exit, os.abort = leave, abort  # type: ignore[assignment]
        signal.raise_signal = raise_signal
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
        import threading

        usual = threading.excepthook

        def ended(about: Any) -> None:
            if issubclass(about.exc_type, Exception):
                usual(about)

        threading.excepthook = ended

    def takes_files(self) -> None:
        functions = self.overlay.functions()
        for module, name, function in functions:
            setattr(module, name, function)
        for name, own in (("bz2", "_builtin_open"), ("lzma", "builtin_open"),
                          ("lzma", "_builtin_open"), ("tarfile", "bltn_open")):  # fmt: skip
            module = sys.modules.get(name)
            if hasattr(module, own):
                setattr(module, own, self.overlay.open)
        closer: Any = getattr(tempfile, "_TemporaryFileCloser", None)
        for function in vars(closer).values() if closer else ():
            defaults = getattr(function, "__defaults__", None) or ()
            if overlay.REAL["unlink"] in defaults:
                function.__defaults__ = tuple(
                    self.overlay.unlink if d is overlay.REAL["unlink"] else d for d in defaults
                )
        import pathlib

        accessor: Any = getattr(pathlib, "_NormalAccessor", None)  # before Python 3.11
        for module, name, function in functions if accessor else ():
            if module is os and hasattr(accessor, name):
                setattr(accessor, name, staticmethod(function))
        for name in ("_dbm", "_gdbm"):  # write without Python; dbm then takes what does not
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]
        with contextlib.suppress(ImportError):
            import _posixsubprocess  # which multiprocessing calls itself

            def fork_exec(words: Any, *_: Any) -> None:
                self.refuse(f"starting a process ({first_word(words)})")

            self.saved.append((_posixsubprocess, dict(vars(_posixsubprocess))))
            _posixsubprocess.fork_exec = fork_exec  # type: ignore[assignment]

    def ends(self) -> None:
        """The describer's own functions, files and folder are as they were."""
        self.builtins[0].update(self.builtins[1])
        if self.time is not None:
            self.time.ends()
        self.held, self.thread = False, _thread.get_ident()
        for module, before in self.saved:
            now = vars(module)
            for name, value in before.items():
                if now.get(name, self) is not value:
                    with contextlib.suppress(AttributeError, TypeError):
                        setattr(module, name, value)
        sys.modules.update(self.modules)
        for each, values in self.lists:
            each[:] = values
        warnings.simplefilter("ignore")  # says that the list is another
        sys.settrace(None)
        sys.setprofile(None)
        sys.setrecursionlimit(self.recursion)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        with contextlib.suppress(Exception):
            for stream in self.streams[1:]:
                stream.flush()
        for number in range(3):
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        with contextlib.suppress(OSError):
            self.overlay.clear()

    def leaves(self, status: int) -> NoReturn:
        """Ends the process, whatever the script left in it to run at an end."""
        for stream in self.streams[1:]:
            with contextlib.suppress(Exception):
                stream.flush()
        self.exit(status)


# ---- time


class Deadline:
    """Ends a script after so many ``seconds``: raises OutOfTime in it, and calls ``forced`` in
    another thread where that does not help."""

    def __init__(self, script: str, seconds: float, forced: Callable[[str], None]) -> None:
        self.script, self.seconds, self.forced = os.path.abspath(script), seconds, forced
        self.name = os.path.basename(script)
        self.main, self.thread = _thread.get_ident(), 0
        self.over = _thread.allocate_lock()
        self.waits = self.over.acquire
        self.kill, self.handler = signal.pthread_kill, signal.getsignal
        self.frames = sys._current_frames

    def begins(self) -> None:
        self.over.acquire()
        signal.signal(WAKES, self.raises)
        _thread.start_new_thread(self.runs, ())

    def ends(self) -> None:
        if self.over.locked():
            self.over.release()

    def runs(self) -> None:
        self.thread = _thread.get_ident()
        if self.waits(True, self.seconds):
            return
        for _ in range(TRIES):
            if self.handler(WAKES) == self.raises:
                self.kill(self.main, WAKES)
            if self.waits(True, BETWEEN):
                return
        self.forced(self.says(self.frames().get(self.main)))

    def raises(self, number: int, frame: Any) -> None:
        if self.over.locked():
            raise OutOfTime(self.says(frame))

    def says(self, frame: Any) -> str:
        """ "after 30 s the script is at train.py, line 12"."""
        while frame is not None and os.path.abspath(frame.f_code.co_filename) != self.script:
            frame = frame.f_back
        place = f"{self.name}, line {frame.f_lineno}" if frame is not None else "its end"
        minutes = self.seconds >= 120 and self.seconds % 60 == 0
        time = f"{self.seconds / 60:g} min" if minutes else f"{self.seconds:g} s"
        return f"after {time} the script is at {place}"
