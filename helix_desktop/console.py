"""What a command reads from and writes to: this terminal and its files, or the far end of a socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from helix_desktop import tasks
from helix_desktop.errors import NotThere, StoreFailed, WrongUse

PIECE = 1 << 20


class Console(Protocol):
    """Bytes in, bytes out, and lines for whoever asked."""

    async def read(self) -> bytes:
        """The next piece of the input; empty at its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Content: to the file named for it, or standard output."""
        ...

    async def say(self, text: str) -> None:
        """A line of standard output."""
        ...

    async def complain(self, sentence: str) -> None:
        """A line of standard error."""
        ...


class Terminal:
    """Standard input, output and error of this process; `source` and `target` put a file in their place.

    `gather`: take standard input to its end first, into a temporary file, so that whoever reads this console never
    waits for whoever fills it. A target appears whole or not at all: when the block ends without an error. Binary on every platform.
    """

    def __init__(self, *, source: Path | None = None, target: Path | None = None, gather: bool = False) -> None:
        self._source: IO[bytes] | None = _opened(source) if source else _gathered() if gather else None
        self._target = target
        self._beside = tempfile.NamedTemporaryFile(dir=_folder_of(target), delete=False) if target else None  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._source:
            self._source.close()
        if self._beside and self._target:
            self._beside.close()
            if kind is None:
                _rename(Path(self._beside.name), self._target)
            else:
                Path(self._beside.name).unlink()

    async def read(self) -> bytes:
        if self._source:
            return self._source.read(PIECE)
        stream = sys.stdin.buffer.fileno() if sys.stdin else -1
        return b"" if stream < 0 else await tasks.detached(lambda: os.read(stream, PIECE), name="standard input")

    async def write(self, data: bytes) -> None:
        if self._beside:
            self._beside.write(data)
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    async def say(self, text: str) -> None:
        sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()

    async def complain(self, sentence: str) -> None:
        sys.stderr.write(f"{sentence}\n")
        sys.stderr.flush()


def _gathered() -> IO[bytes]:
    with contextlib.ExitStack() as on_failure:
        gathered = on_failure.enter_context(tempfile.TemporaryFile())
        if sys.stdin:
            shutil.copyfileobj(sys.stdin.buffer, gathered, PIECE)
        gathered.seek(0)
        on_failure.pop_all()
        return gathered


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise NotThere(f"There is no file {path}.") from error
    except OSError as error:
        raise WrongUse(f"{path} cannot be read: {error.strerror}.") from error


def _folder_of(path: Path) -> Path:
    if path.is_dir():
        raise WrongUse(f"{path} is a folder; name a file.")
    if not path.parent.is_dir():
        raise NotThere(f"There is no folder {path.parent}.")
    return path.parent


def _rename(beside: Path, target: Path) -> None:
    """With the rights a new file would have had, not the private ones of a temporary one."""
    umask = os.umask(0)
    os.umask(umask)
    beside.chmod(0o666 & ~umask)
    try:
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreFailed(f"{target} could not be written: {error.strerror}.") from error
