"""A folder that takes what a program writes, in place of the files that it names: the program sees
its own files over those that are there, and none of those is changed. Standard library only.
"""
from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DEVICES = {f"/dev/{name}" for name in "null zero full tty stdout stderr ptmx".split()}

READ = "access getxattr listxattr lstat pathconf readlink stat statvfs".split()
CHANGE = "chflags chmod chown lchmod lchown removexattr setxattr truncate utime".split()
OTHER = (
    "chdir getcwd getcwdb link listdir mkdir mkfifo mknod open remove rename replace rmdir scandir"
    " symlink unlink"
).split()
REAL: Dict[str, Callable[..., Any]] = {
    name: getattr(os, name) for name in [*READ, *CHANGE, *OTHER] if hasattr(os, name)
}
OPEN = io.open
KEEP_LINK = {"lstat", "readlink", "lchmod", "lchown"}


def kind(path: str) -> int:
    """Of a real path: S_IFDIR, ...; 0: there is nothing."""
    try:
        return stat.S_IFMT(REAL["lstat"](path).st_mode)
    except (OSError, ValueError):
        return 0


def error(number: int, path: Any, other: Any = None) -> OSError:
    if other is None:
        return OSError(number, os.strerror(number), path)
    return OSError(number, os.strerror(number), path, None, other)


def is_special(path: str) -> bool:
    """No file of a disk."""
    return path.startswith(("/proc/", "/sys/", "/dev/")) and not path.startswith("/dev/shm/")


class Entry:
    """Stands for os.DirEntry."""

    def __init__(self, folder: Any, name: Any) -> None:
        self.name, self.path = name, os.path.join(folder, name)

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path) if follow_symlinks else os.lstat(self.path)

    def inode(self) -> int:
        return os.lstat(self.path).st_ino

    def is_symlink(self) -> bool:
        return os.path.islink(self.path)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self.path) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self.path) and (follow_symlinks or not self.is_symlink())

    def is_junction(self) -> bool:
        return False


class Entries:
    """Stands for what os.scandir returns."""

    def __init__(self, entries: List[Entry]) -> None:
        self.entries = iter(entries)

    def __iter__(self) -> Iterator[Entry]:
        return self.entries

    def __next__(self) -> Entry:
        return next(self.entries)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def close(self) -> None:
        self.entries = iter(())


class Overlay:
    """Keys are absolute paths without links, as the program means them; what it wrote at ``key``
    lies at ``root + key``. ``root`` is made when it first writes."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self.used = False  # it wrote or removed something
        self.gone: Set[str] = set()  # what is there, and is not seen any more, with all in it
        self.folders: Dict[str, str] = {}  # absolute path: key

    # ---- which path is which

    def key(self, path: Any, follow: bool = True, links: int = 40) -> str:
        whole = os.path.abspath(os.fsdecode(path))
        if self.holds(whole):
            whole = whole[len(self.root) :] or "/"
        folder, name = os.path.split(whole)
        if not name:
            return "/"
        if folder not in self.folders:
            self.folders[folder] = self.key(folder, True, links)
        key = os.path.join(self.folders[folder], name)
        if not follow or is_special(key):
            return key
        at = self.seen(key)
        if kind(at) != stat.S_IFLNK:
            return key
        if links < 1:
            raise error(errno.ELOOP, path)
        to = os.path.join(os.path.dirname(key), REAL["readlink"](at))
        return self.key(to, True, links - 1)

    def holds(self, path: str) -> bool:
        """Whether a real path is the overlay's."""
        return path == self.root or path.startswith(self.root + "/")

    def hidden(self, key: str) -> bool:
        while self.gone and key != "/":
            if key in self.gone:
                return True
            key = os.path.dirname(key)
        return False

    def seen(self, key: str) -> str:
        """Where to read it."""
        if not self.used or is_special(key):
            return key
        mine = kind(self.root + key)
        if not mine and not self.hidden(key):
            return key
        both = mine == stat.S_IFDIR and not self.hidden(key) and kind(key) == mine
        return key if both else self.root + key

    def kind(self, key: str) -> int:
        return kind(self.seen(key))

    def written(self, key: str, keep: bool = True) -> str:
        """Where to write it; ``keep``: with what it holds now."""
        if is_special(key):
            return key
        self.takes()
        self.folder(os.path.dirname(key))
        if keep and not kind(self.root + key) and not self.hidden(key):
            self.copy(key)
        return self.root + key

    def path(self, given: Any, write: bool, follow: bool = True, keep: bool = True) -> Any:
        """The real path to use for one that the program names."""
        if isinstance(given, int) or not (self.used or write) or not os.fspath(given):
            return given
        key = self.key(given, follow)
        at = self.written(key, keep) if write else self.seen(key)
        if at == os.path.abspath(os.fsdecode(given)) and not self.holds(REAL["getcwd"]()):
            return given
        return os.fsencode(at) if isinstance(os.fspath(given), bytes) else at

    # ---- what is in it

    def takes(self) -> None:
        if not kind(self.root):
            REAL["mkdir"](self.root, 0o700)
        self.used = True

    def folder(self, key: str) -> None:
        """Makes it, where the program sees one."""
        if kind(self.root + key) or (key != "/" and self.kind(key) != stat.S_IFDIR):
            return
        if key != "/":
            self.folder(os.path.dirname(key))
            REAL["mkdir"](self.root + key)

    def copy(self, key: str, whole: bool = False) -> None:
        """Of a file or folder that is there; ``whole``: with what is in the folder."""
        mine, what = self.root + key, kind(key)
        if what == stat.S_IFLNK:
            REAL["symlink"](REAL["readlink"](key), mine)
        elif what == stat.S_IFDIR:
            if not kind(mine):
                REAL["mkdir"](mine)
            for name in self.names(key) if whole else ():
                below = os.path.join(key, name)
                if self.seen(below) == below:
                    self.copy(below, True)
        elif what == stat.S_IFREG:
            with OPEN(key, "rb") as there, OPEN(mine, "wb") as here:
                shutil.copyfileobj(there, here, 1 << 20)
            about = REAL["stat"](key)
            REAL["chmod"](mine, stat.S_IMODE(about.st_mode) | stat.S_IWUSR)
            REAL["utime"](mine, ns=(about.st_atime_ns, about.st_mtime_ns))

    def names(self, key: str) -> List[str]:
        """In a folder."""
        out: Set[str] = set()
        if kind(self.root + key) == stat.S_IFDIR:
            out.update(REAL["listdir"](self.root + key))
        if not self.hidden(key) and kind(key) == stat.S_IFDIR:
            there = REAL["listdir"](key)
            out.update(n for n in there if os.path.join(key, n) not in self.gone)
        return sorted(out)

    def removes(self, key: str) -> None:
        """A file, or a folder with all in it."""
        if kind(key) and not self.hidden(key):
            self.gone.add(key)
        self.used = True
        self.folders.clear()
        remove_all(self.root + key)

    def clear(self) -> None:
        remove_all(self.root)

    # ---- in place of functions

    def open(
        self, file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None,
        errors: Any = None, newline: Any = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        more = (buffering, encoding, errors, newline, closefd)
        write = isinstance(mode, str) and any(c in mode for c in "wax+")
        if isinstance(file, int) or not (self.used or write):
            return OPEN(file, mode, *more, opener)
        if opener is not None:
            flags = os.O_RDWR if "+" in mode else os.O_WRONLY if write else os.O_RDONLY
            for letter, flag in (("w", os.O_TRUNC), ("a", os.O_APPEND), ("x", os.O_EXCL)):
                flags |= flag | os.O_CREAT if letter in mode else 0
            return OPEN(opener(file, flags | os.O_CLOEXEC), mode, *more)
        given = os.fspath(file)
        at = self.opened(given, write, "w" in mode or "x" in mode, "x" in mode)
        out = self.named(OPEN, at, given)(at, mode, *more)
        raw = getattr(getattr(out, "buffer", out), "raw", None)
        if at is not given and isinstance(getattr(raw, "name", None), (str, bytes)):
            raw.name = given
        return out

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        if dir_fd is not None:
            return REAL["open"](path, flags, mode, dir_fd=dir_fd)
        write, unnamed = bool(flags & WRITES), getattr(os, "O_TMPFILE", -1)
        if flags & unnamed == unnamed:
            at: Any = os.path.dirname(self.written(os.path.join(self.key(path), "x"), False))
        else:
            alone = flags & os.O_EXCL and flags & os.O_CREAT
            at = self.opened(path, write, flags & os.O_TRUNC, alone)
        return self.named(REAL["open"], at, path)(at, flags, mode)

    def opened(self, path: Any, write: bool, empty: Any, alone: Any) -> Any:
        if write and not isinstance(path, int) and os.fspath(path):
            if alone and self.kind(self.key(path, False)):  # it follows no link
                raise error(errno.EEXIST, path)
            what = self.kind(self.key(path))
            if what == stat.S_IFDIR:
                raise error(errno.EISDIR, path)
        return self.path(path, write, keep=not empty)

    def named(self, function: Callable[..., Any], at: Any, given: Any) -> Callable[..., Any]:
        """Its errors name what the program named."""
        if at is given:
            return function

        def called(*args: Any, **more: Any) -> Any:
            try:
                return function(*args, **more)
            except OSError as failed:
                if failed.filename == at:
                    failed.filename = given
                raise

        return called

    def reads(self, name: str) -> Callable[..., Any]:
        real, follows = REAL[name], name not in KEEP_LINK

        def called(path: Any = ".", *args: Any, **more: Any) -> Any:
            if not self.used or isinstance(path, int) or more.get("dir_fd") is not None:
                return real(path, *args, **more)
            at = self.path(path, False, follows and more.get("follow_symlinks", True))
            return self.named(real, at, path)(at, *args, **more)

        return called

    def changes(self, name: str) -> Callable[..., Any]:
        real, follows = REAL[name], name not in KEEP_LINK

        def called(path: Any, *args: Any, **more: Any) -> Any:
            if isinstance(path, int) or more.get("dir_fd") is not None:
                return real(path, *args, **more)
            at = self.path(path, True, follows and more.get("follow_symlinks", True))
            return self.named(real, at, path)(at, *args, **more)

        return called

    def makes(self, name: str) -> Callable[..., Any]:
        real = REAL[name]

        def called(path: Any, *args: Any, **more: Any) -> Any:
            if more.get("dir_fd") is not None:
                return real(path, *args, **more)
            key = self.key(path, False)
            if self.kind(key):
                raise error(errno.EEXIST, path)
            at = self.written(key, False)
            return self.named(real, at, path)(at, *args, **more)

        return called

    def unlink(self, path: Any, *, dir_fd: Any = None) -> None:
        if dir_fd is not None:
            return REAL["unlink"](path, dir_fd=dir_fd)
        key = self.key(path, False)
        what = self.kind(key)
        if what in (0, stat.S_IFDIR):
            raise error(errno.EISDIR if what else errno.ENOENT, path)
        self.removes(key)

    def rmdir(self, path: Any, *, dir_fd: Any = None) -> None:
        if dir_fd is not None:
            return REAL["rmdir"](path, dir_fd=dir_fd)
        key = self.key(path, False)
        what = self.kind(key)
        if what != stat.S_IFDIR:
            raise error(errno.ENOTDIR if what else errno.ENOENT, path)
        if self.names(key):
            raise error(errno.ENOTEMPTY, path)
        self.removes(key)

    def rename(self, src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
        if src_dir_fd is not None or dst_dir_fd is not None:
            return REAL["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        key, to = self.key(src, False), self.key(dst, False)
        what, there = self.kind(key), self.kind(to)
        if not what or self.kind(os.path.dirname(to)) != stat.S_IFDIR:
            raise error(errno.ENOENT, src, dst)
        if to == key:
            return
        if (to + "/").startswith(key + "/"):
            raise error(errno.EINVAL, src, dst)
        if there == stat.S_IFDIR:
            if what != there or self.names(to):
                raise error(errno.ENOTEMPTY if what == there else errno.EISDIR, src, dst)
        elif there and what == stat.S_IFDIR:
            raise error(errno.ENOTDIR, src, dst)
        if there:
            self.removes(to)
        at = self.written(to, False)
        self.written(key, False)
        if not self.hidden(key) and (what == stat.S_IFDIR or not kind(self.root + key)):
            self.copy(key, True)
        REAL["rename"](self.root + key, at)
        self.removes(key)

    def link(self, src: Any, dst: Any, *, follow_symlinks: bool = True, **more: Any) -> None:
        if more:
            return REAL["link"](src, dst, follow_symlinks=follow_symlinks, **more)
        key, to = self.key(src, False), self.key(dst, False)  # Linux links a link
        if not self.kind(key) or self.kind(to):
            raise error(errno.EEXIST if self.kind(key) else errno.ENOENT, src, dst)
        at = self.written(to, False)
        REAL["link"](self.written(key), at, follow_symlinks=False)

    def symlink(self, src: Any, dst: Any, directory: bool = False, *, dir_fd: Any = None) -> None:
        if dir_fd is not None:
            return REAL["symlink"](src, dst, dir_fd=dir_fd)
        to = self.key(dst, False)
        if self.kind(to):
            raise error(errno.EEXIST, src, dst)
        REAL["symlink"](os.fsdecode(src), self.written(to, False))
        self.folders.clear()

    def listdir(self, path: Any = None) -> List[Any]:
        path = "." if path is None else path
        if not self.used or isinstance(path, int):
            return REAL["listdir"](path)
        names = self.names(self.checked(path))
        return [os.fsencode(n) for n in names] if isinstance(os.fspath(path), bytes) else names

    def scandir(self, path: Any = None) -> Any:
        path = "." if path is None else path
        if not self.used or isinstance(path, int):
            return REAL["scandir"](path)
        key = self.checked(path)
        if self.path(path, False) is path and not self.touched(key):
            return REAL["scandir"](path)
        folder = os.fspath(path)
        names: List[Any] = self.names(key)
        if isinstance(folder, bytes):
            names = [os.fsencode(n) for n in names]
        return Entries([Entry(folder, n) for n in names])

    def touched(self, key: str) -> bool:
        """Whether a folder is not as it is there."""
        gone = any(os.path.dirname(k) == key for k in self.gone)
        return gone or bool(kind(self.root + key)) or self.hidden(key)

    def checked(self, path: Any) -> str:
        """The key of a folder."""
        key = self.key(path)
        what = self.kind(key)
        if what != stat.S_IFDIR:
            raise error(errno.ENOTDIR if what else errno.ENOENT, path)
        return key

    def chdir(self, path: Any) -> None:
        at = self.path(path, False)
        self.named(REAL["chdir"], at, path)(at)

    def getcwd(self) -> str:
        at = REAL["getcwd"]()
        return (at[len(self.root) :] or "/") if self.used and self.holds(at) else at

    def rmtree(
        self, path: Any, ignore_errors: bool = False, onerror: Any = None, **more: Any
    ) -> None:
        """In place of shutil's."""
        if more.get("dir_fd") is not None:
            raise NotImplementedError("rmtree with dir_fd")
        try:
            key = self.key(path, False)
            if self.kind(key) != stat.S_IFDIR:
                number = errno.ENOTDIR if self.kind(key) else errno.ENOENT
                raise error(number, path)
            self.removes(key)
        except OSError as failed:
            told: Any = more.get("onexc") or onerror
            if ignore_errors:
                return
            if told is None:
                raise
            about: Any = failed
            if told is onerror:
                about = (type(failed), failed, failed.__traceback__)
            told(os.lstat, path, about)

    def functions(self) -> List[Tuple[Any, str, Any]]:
        """(module, name, what stands in its place)."""
        import builtins

        out: List[Tuple[Any, str, Any]] = []
        own = {"open": self.os_open, "remove": self.unlink, "replace": self.rename,
               "getcwdb": lambda: os.fsencode(self.getcwd())}  # fmt: skip
        sets = [getattr(os, f"supports_{name}", set())
                for name in "dir_fd fd follow_symlinks effective_ids".split()]  # fmt: skip
        for name, real in REAL.items():
            if name in READ:
                function: Any = self.reads(name)
            elif name in CHANGE:
                function = self.changes(name)
            elif name in ("mkdir", "mkfifo", "mknod"):
                function = self.makes(name)
            else:
                function = own.get(name) or getattr(self, name)
            out.append((os, name, function))
            for each in sets:
                if real in each:  # it takes what the real one takes
                    each.add(function)
        out += [(builtins, "open", self.open), (io, "open", self.open)]
        out.append((shutil, "rmtree", rmtree(self)))
        return out


def rmtree(overlay: Overlay) -> Any:
    def rmtree(*args: Any, **more: Any) -> None:
        overlay.rmtree(*args, **more)

    rmtree.avoids_symlink_attacks = True  # type: ignore[attr-defined]
    return rmtree


def remove_all(path: str) -> None:
    """A real file, or folder with all in it; where there is one."""
    what: Optional[int] = kind(path)
    if what == stat.S_IFDIR:
        REAL["chmod"](path, 0o700)
        for name in REAL["listdir"](path):
            remove_all(os.path.join(path, name))
        REAL["rmdir"](path)
    elif what:
        REAL["unlink"](path)
