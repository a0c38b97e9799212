"""What a command reads from and writes to: this terminal and its files, or the other
end of a socket.
"""

import codecs
import contextlib
import io
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self, TextIO

from helix_desktop import concurrency
from helix_desktop.atomic_files import ReplacementFile
from helix_desktop.errors import InvalidInput, NotFound, StoreFailed

log = logging.getLogger(__name__)
PIECE = 1 << 20
# Terminals obey control characters: a text could change the title, the colours or the clipboard, or
# overwrite its own line. Direction marks and line separators make a text look like another one, and
# tags (U+E0000 to U+E007F) carry a text that nobody sees.
_OBEYED = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def escape_control_characters(text: str) -> str:
    """Makes control characters and direction marks in foreign text visible, as `⟨202E⟩`. All
    text that is printed goes through this, in a pipe too: `less -R` and `head` pass them on.
    """
    return _OBEYED.sub(lambda found: f"⟨{ord(found[0]):04X}⟩", text)


def put_on_one_line(text: str) -> str:
    """Joins the lines of a foreign name, which could look like further lines of a list."""
    return " ".join(text.split())


def print_text(
    text: str, *, file: TextIO | None = None, end: str = "\n", flush: bool = False
) -> None:
    """Prints a text of a command, which may hold foreign words. Nothing else prints."""
    print(escape_control_characters(text), file=file, end=end, flush=flush)


def dump_printed_json(value: Any, indent: int | None = None) -> str:
    """JSON for a terminal or a script: the same value, with such characters as escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _OBEYED.sub(lambda found: json.dumps(found[0])[1:-1], text)


class Console(Protocol):
    """The input and output of whoever started a command, on this terminal or at the
    other end of a socket.
    """

    async def read_input(self) -> bytes:
        """Returns the next piece of the input, or empty bytes at its end."""

    async def write_output(self, data: bytes) -> None:
        """Writes content to the chosen output file or to standard output."""

    async def print_line(self, text: str) -> None: ...
    async def print_error(self, sentence: str) -> None: ...


class Terminal:
    """Standard input, output and error of this process, or the files `source` and `target` instead.

    `gather` first reads the whole input into a temporary file, so that the reader of
    this console never waits for the writer of the input. A target file is replaced as a
    whole when the block ends without an error; a device or pipe is written to directly.
    All streams are binary on every platform.
    """

    def __init__(
        self, *, source: Path | None = None, target: Path | None = None, gather: bool = False
    ) -> None:
        self._source: IO[bytes] | None = None
        if source:
            self._source = _open_input_file(source)
        elif gather:
            self._source = _open_temporary_file()
        self._target: Path | None = None
        self._beside: IO[bytes] | ReplacementFile | None = None
        self._decoder = _create_decoder_for_terminal()
        if target:
            # If it is a symbolic link, the link stays, and the file it points to is written.
            self._target = Path(os.path.realpath(target))
            self._beside = _open_output_target(self._target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._source:
            self._source.close()
        if self._beside and self._target:
            _finish_output_target(self._beside, self._target, whole=kind is None)

    async def read_input(self) -> bytes:
        try:
            if self._source:
                return self._source.read(PIECE)
            if not sys.stdin:
                return b""
            stream = sys.stdin.buffer.fileno()
            return await concurrency.run_on_detached_thread(
                lambda: os.read(stream, PIECE), name="standard input"
            )
        except OSError as error:
            raise InvalidInput(f"The input cannot be read: {error.strerror}.") from error

    async def write_output(self, data: bytes) -> None:
        """Writes the bytes as they are, but to a terminal only what it does not obey."""
        if self._beside:
            file: IO[bytes]
            if isinstance(self._beside, ReplacementFile):
                file = self._beside.file
            else:
                file = self._beside
            with _ignore_closed_output(str(self._target)):
                file.write(data)
        elif sys.stdout is None:
            raise StoreFailed(
                "Standard output is closed.",
                remedy="Nothing was lost. Redirect the output, or specify a file.",
            )
        elif sys.stdout.isatty():
            # A character, or a line's end, may begin in one piece and end in the next.
            text = self._decoder.decode(data)
            _write_to_output(escape_control_characters(text).encode("utf-8", "replace"))
        else:
            _write_to_output(data)

    async def print_line(self, text: str) -> None:
        if sys.stdout is not None:
            _write_to_output(escape_control_characters(text).encode("utf-8", "replace") + b"\n")

    async def print_error(self, sentence: str) -> None:
        if sys.stderr is not None:
            sys.stderr.write(f"{escape_control_characters(sentence)}\n")
            sys.stderr.flush()


def _create_decoder_for_terminal() -> io.IncrementalNewlineDecoder:
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    return io.IncrementalNewlineDecoder(characters, translate=False)


def discard_output() -> None:
    """Discards output that is still buffered; writing it at exit would fail a second time."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_to_output(data: bytes) -> None:
    with _ignore_closed_output("Standard output"):
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError:
            discard_output()
            raise


@contextlib.contextmanager
def _ignore_closed_output(what: str) -> Iterator[None]:
    """Ignores a closed output: `| head` stops reading early, which is not an error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreFailed(
            f"{what} could not be written: {error.strerror}.",
            remedy="The output is incomplete. Nothing in the workspace was lost.",
        ) from error


def _open_temporary_file() -> IO[bytes]:
    with contextlib.ExitStack() as on_failure:
        try:
            gathered = on_failure.enter_context(tempfile.TemporaryFile())
            if sys.stdin:
                shutil.copyfileobj(sys.stdin.buffer, gathered, PIECE)
            gathered.seek(0)
        except OSError as error:
            raise StoreFailed(
                f"Standard input could not be read: {error.strerror}.", remedy="Nothing was stored."
            ) from error
        on_failure.pop_all()
        return gathered


def _open_input_file(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise NotFound(f"The file {path} does not exist.") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error


def _open_output_target(target: Path) -> IO[bytes] | ReplacementFile:
    """Opens a temporary file that will replace the target, or the target itself if it
    is not a regular file.
    """
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder. Specify a file.")
    if not target.parent.is_dir():
        raise NotFound(f"The folder {target.parent} does not exist.")
    try:
        if target.exists() and not target.is_file():
            return target.open("wb", buffering=0)
        return ReplacementFile(target, 0o600)  # A history or its outputs: for this user only.
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written: {error.strerror}.") from error


def _finish_output_target(
    beside: IO[bytes] | ReplacementFile, target: Path, *, whole: bool
) -> None:
    if not isinstance(beside, ReplacementFile):
        beside.close()
        return
    try:
        if whole:
            beside.replace_target()
    except OSError as error:
        raise StoreFailed(
            f"{target} could not be written: {error.strerror}.",
            remedy="The existing file is unchanged.",
        ) from error
    finally:
        beside.discard_replacement()


class QuietConsole:
    """The console of a command whose exit code is all that matters."""

    async def read_input(self) -> bytes:
        return b""

    async def write_output(self, data: bytes) -> None:
        pass

    async def print_line(self, text: str) -> None:
        pass

    async def print_error(self, sentence: str) -> None:
        log.info("a workspace was not given up: %s", sentence)
