"""Reads a document's text, or draws its pages, in a limited process of its own.

What cannot be read raises InvalidInput with the reason and what to do. It is said before
anything is sent: a document is never sent as something that a model cannot read.
"""

import asyncio
import base64
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from helix_desktop.documents import document_worker
from helix_desktop.documents.document_kinds import (
    DocumentKind,
    find_added_document_kind,
    is_office_file_with_password,
)
from helix_desktop.documents.document_page import DocumentPage, PagePicture
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes import starter

TIME_LIMIT_SECONDS = 60.0
MEMORY_LIMIT_BYTES = 3 << 30  # Of address space; PDFium alone maps half a gigabyte.
OUTPUT_LIMIT_BYTES = 128 << 20  # What the process may write: far more text than a window takes.
LARGEST_DOCUMENT_BYTES = 200 << 20
_LIBRARIES = ("helix_desktop", "pypdfium2", "python_calamine", "zstandard")
_KEPT_VARIABLES = ("SYSTEMROOT", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document's pages. `unit_count`: how many pages or sheets it has, which may be fewer,
    because a long sheet is several pages of this.
    """

    kind: DocumentKind
    pages: tuple[DocumentPage, ...]

    @property
    def unit_count(self) -> int:
        return len({page.unit_number for page in self.pages})

    @property
    def numbers_without_text(self) -> tuple[int, ...]:
        """Return the numbers of pages that have no text, such as scanned ones."""
        numbers: list[int] = []
        for number, page in enumerate(self.pages, 1):
            if not page.text.strip():
                numbers.append(number)
        return tuple(numbers)


async def read_document_pages(name: str, content: bytes, kind: DocumentKind) -> ReadDocument:
    """Return the text of a document. Raises InvalidInput if it cannot be read."""
    if not content:
        raise InvalidInput(f"{name} is empty.", remedy="There is nothing in it to send.")
    if len(content) > LARGEST_DOCUMENT_BYTES:
        raise _unreadable(name, kind, "too large")
    if kind.name != "xls" and is_office_file_with_password(content):
        raise _unreadable(name, kind, "password")
    request: dict[str, object] = {"reader": kind.reader}
    added = find_added_document_kind(kind.name)
    if added is not None:
        await asyncio.to_thread(added.check_unchanged)
        request["folders"] = list(added.folders)
    lines = await _run_worker(name, kind, request, content)
    pages: list[DocumentPage] = []
    for line in lines:
        text = str(line["text"])
        title = str(line["title"])
        unit = int(line["unit"])
        pages.append(DocumentPage(text, title, unit))
    return ReadDocument(kind, tuple(pages))


async def draw_pages(
    name: str, content: bytes, kind: DocumentKind, page_numbers: Sequence[int], edge: int
) -> list[PagePicture]:
    """Return pictures of a PDF's pages, whose longer edge has `edge` pixels."""
    request = {"reader": kind.reader, "pages": list(page_numbers), "edge": edge}
    lines = await _run_worker(name, kind, request, content)
    pictures: list[PagePicture] = []
    for line in lines:
        png = base64.b64decode(line["png"])
        pictures.append(PagePicture(int(line["number"]), png, bool(line["blank"])))
    return pictures


async def _run_worker(
    name: str, kind: DocumentKind, request: dict[str, object], content: bytes
) -> list[dict[str, Any]]:
    """Run the process that reads one document, and return the lines that it wrote, without the
    last one, which says how it ended.

    Raise InvalidInput if the document could not be read, or if an extension's reader failed.
    """
    process = await _start_worker()
    try:
        async with asyncio.timeout(TIME_LIMIT_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(_send_document(process, request, content))
            receiving = tasks.create_task(_receive_output(process))
        output = receiving.result()
    except TimeoutError:
        raise _unreadable(name, kind, "too slow") from None
    finally:
        await starter.end_process(process)
    if output is None:
        raise _unreadable(name, kind, "too large")
    lines = await asyncio.to_thread(_parse_lines, output)
    # Without a last line, the system ended the process: a library ran out of memory or time.
    ending = "stopped"
    if lines and "end" in lines[-1]:
        ending = str(lines[-1]["end"])
    if ending == "read":
        return lines[:-1]
    is_of_extension = find_added_document_kind(kind.name) is not None
    error_name = ""
    if lines:
        error_name = str(lines[-1].get("error", ""))
    if is_of_extension and ending == "damaged" and error_name != "DocumentDamaged":
        raise InvalidInput(
            f"{name} cannot be read: the extension that reads {kind.title} failed with {error_name}.",
            remedy="Tell the author of the extension.",
        )
    raise _unreadable(name, kind, ending)


async def _start_worker() -> starter.Process:
    """Start the process that reads one document. It is limited in memory, and finds only this
    package and the libraries it needs.
    """
    folders: dict[Path, None] = {}
    for library in _LIBRARIES:
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin:
            folders[Path(spec.origin).parents[1]] = None
    search_path = os.pathsep.join(str(folder) for folder in folders)
    argv = starter.isolated_python_command("-S", document_worker.__file__, search_path)
    environment: dict[str, str] = {}
    for name in _KEPT_VARIABLES:
        if name in os.environ:
            environment[name] = os.environ[name]
    launch = starter.ProcessLaunch(
        starter.CommandAuthor.PROGRAM,
        argv,
        environment=environment,
        memory_bytes=MEMORY_LIMIT_BYTES,
    )
    return await starter.start_process(launch, stdin=starter.PIPE, stderr=starter.DEVNULL)


async def _send_document(
    process: starter.Process, request: dict[str, object], content: bytes
) -> None:
    """Write what is asked, as a line of JSON, and then the document to the process's input."""
    stdin = cast(asyncio.StreamWriter, process.stdin)
    try:
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.write(content)
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()
    except OSError:
        return  # The process has ended, and its output says why.


async def _receive_output(process: starter.Process) -> bytes | None:
    """Return what the process writes, or None if that is more than any document needs."""
    stdout = cast(asyncio.StreamReader, process.stdout)
    pieces: list[bytes] = []
    bytes_left = OUTPUT_LIMIT_BYTES
    piece = await stdout.read(1 << 20)
    while piece:
        bytes_left -= len(piece)
        if bytes_left < 0:
            await starter.end_process(process)
            return None
        pieces.append(piece)
        piece = await stdout.read(1 << 20)
    return b"".join(pieces)


def _parse_lines(output: bytes) -> list[dict[str, Any]]:
    """Return the lines of JSON that the process wrote, up to one that is cut off."""
    lines: list[dict[str, Any]] = []
    for line in output.splitlines():
        try:
            lines.append(json.loads(line))
        except (ValueError, RecursionError):
            break  # The process ended within a line.
    return lines


def _unreadable(name: str, kind: DocumentKind, reason: str) -> InvalidInput:
    """Return the error for a document that was not read, with what the user can do. `reason` is
    a word of the process that read it, or of ours.
    """
    match reason:
        case "password":
            return InvalidInput(
                f"{name} is protected with a password, so it cannot be read.",
                remedy="Save a copy without the password, and use that.",
            )
        case "too large":
            return InvalidInput(
                f"{name} is too large to be read: unpacked, it needs more room than a document may use.",
                remedy="Save the part that you need as a file of its own.",
            )
        case "too slow":
            return InvalidInput(
                f"{name} was not read within {TIME_LIMIT_SECONDS:.0f} seconds, so reading was stopped.",
                remedy="Save the part that you need as a file of its own.",
            )
        case "stopped":
            return InvalidInput(
                f"{name} cannot be read: it needs too much memory or time, or it is damaged.",
                remedy="Open it in the program that made it, and save it again.",
            )
    return InvalidInput(
        f"{name} cannot be read: it is damaged, or it does not have the format {kind.title}.",
        remedy="Open it in the program that made it, and save it again.",
    )
