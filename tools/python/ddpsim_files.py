"""Files that appear complete or not at all, as ``write_file`` of sim/io writes them. Standard
library only."""
from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import IO, Iterator, Union


@contextlib.contextmanager
def whole_file(path: Union[str, "os.PathLike[str]"]) -> Iterator[IO[bytes]]:
    """A file to write bytes to, which takes the place of ``path`` when the block ends, and vanishes
    if it raises.

    It is written beside its place under a name that nobody can guess, through no link, and only if
    there is nothing of that name. The mode of a file that it replaces is kept; a link stays a link.
    What is no regular file, or an open descriptor, is written as it is.
    """
    target = Path(path)
    if str(target).startswith("/proc/") or (target.exists() and not target.is_file()):
        with open(target, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(target))
    replaces = target.exists()
    if replaces and not os.access(target, os.W_OK):
        raise PermissionError(f"{target} cannot be written")
    temporary = target.with_name(f"{target.name[:50]}.ddpsim-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    number = os.open(temporary, flags, 0o600 if replaces else 0o666)
    try:
        with open(number, "wb") as file:
            if replaces:
                os.fchmod(number, stat.S_IMODE(target.stat().st_mode) & 0o777)
            yield file
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def append_line(path: Union[str, "os.PathLike[str]", None], text: str) -> None:
    """For whoever reads the last whole line, however this process ends. None: nobody does."""
    if path is not None:
        with open(path, "ab", buffering=0) as file:
            file.write(text.encode("utf-8") + b"\n")


def write_whole(path: Union[str, "os.PathLike[str]"], data: Union[str, bytes]) -> None:
    """Writes text (as UTF-8) or bytes through ``whole_file``."""
    with whole_file(path) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)
