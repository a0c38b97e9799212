"""Reads one document in a process that can be ended. A script.

    document_worker.py FOLDERS      folders with this package and the libraries

Standard input has a line of JSON (`reader`, for pictures `pages` and `edge`, and for an
extension's reader `folders`), then the document.
Standard output has a line of JSON for each page or picture, and a last one with `end`: "read", or
why it ended early, with the type of an unexpected `error`. Formats are parsed by libraries that strangers' files may overwhelm, so the
system limits this process's time, memory and files.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helix_desktop.documents.document_page import DocumentPage

CPU_SECONDS = 45


def serve_one_document() -> None:
    """Read the document on standard input, and write its pages or pictures, and last how this
    ended.

    The process is limited before anything of the document is read.
    """
    sys.path += [folder for folder in sys.argv[1].split(os.pathsep) if folder]
    _limit_reading_process()
    request = json.loads(sys.stdin.buffer.readline())
    sys.path += request.get("folders", [])  # Of an extension, last: no library is replaced.
    content = sys.stdin.buffer.read()
    from helix_desktop.documents import document_page

    endings = {
        document_page.DocumentNeedsPassword: "password",
        document_page.DocumentTooLarge: "too large",
        MemoryError: "too large",
    }
    error_name = ""
    try:
        if "pages" in request:
            _write_pictures(content, request["pages"], request["edge"])
        else:
            for page in _find_reader(request["reader"])(content):
                _write_line({"text": page.text, "title": page.title, "unit": page.unit_number})
        ending = "read"
    except Exception as error:  # noqa: BLE001 - whatever a stranger's file brings about
        ending = "damaged"
        error_name = type(error).__name__
        for error_type, word in endings.items():
            if isinstance(error, error_type):
                ending = word
    _write_line({"end": ending, "error": error_name})


def _find_reader(reader: str) -> Callable[[bytes], Iterable[DocumentPage]]:
    """Return a format's reader, named as "module:function". Only its module is imported."""
    module_name, _, function_name = reader.partition(":")
    module = importlib.import_module(module_name)
    function: Callable[[bytes], Iterable[DocumentPage]] = getattr(module, function_name)
    return function


def _write_pictures(content: bytes, page_numbers: list[int], edge: int) -> None:
    from helix_desktop.documents.readers.pdf_reader import draw_pdf_pages

    for picture in draw_pdf_pages(content, page_numbers, edge):
        png = base64.b64encode(picture.png).decode()
        _write_line({"number": picture.page_number, "png": png, "blank": picture.is_blank})


def _write_line(values: dict[str, object]) -> None:
    text = json.dumps(values, ensure_ascii=True)
    sys.stdout.write(text + "\n")


def _limit_reading_process() -> None:
    if sys.platform == "win32":  # There, the parent process ends this process.
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # It writes no file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    serve_one_document()
