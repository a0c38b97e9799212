"""Reads one document in a process that can be ended. A script.

    document_worker.py FOLDERS      folders with this package and the libraries

Standard input has a line of JSON (`reader`, and for pictures `pages` and `edge`), then the document.
Standard output has a line of JSON for each page or picture, and a last one with `end`: "read", or
why it ended early. Formats are parsed by libraries that strangers' files may overwhelm, so the
system limits this process's time, memory and files.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helix_desktop.documents.document_page import DocumentPage

CPU_SECONDS = 45


def serve_one_document() -> None:
    sys.path += [folder for folder in sys.argv[1].split(os.pathsep) if folder]
    _limit_reading_process()
    request = json.loads(sys.stdin.buffer.readline())
    content = sys.stdin.buffer.read()
    from helix_desktop.documents import document_page

    endings = {
        document_page.DocumentNeedsPassword: "password",
        document_page.DocumentTooLarge: "too large",
        MemoryError: "too large",
    }
    try:
        if "pages" in request:
            _write_pictures(content, request["pages"], request["edge"])
        else:
            for page in _find_reader(request["reader"])(content):
                _write_line({"text": page.text, "title": page.title, "unit": page.unit_number})
        ending = "read"
    except Exception as error:  # noqa: BLE001 - whatever a stranger's file brings about
        ending = "damaged"
        for error_type, word in endings.items():
            if isinstance(error, error_type):
                ending = word
    _write_line({"end": ending})


def _find_reader(name: str) -> Callable[[bytes], Iterator[DocumentPage]]:  # noqa: PLR0911
    """Return a format's reader. Only that one and its library are imported."""
    match name:
        case "pdf":
            from helix_desktop.documents.readers.pdf_reader import read_pdf_pages

            return read_pdf_pages
        case "word":
            from helix_desktop.documents.readers.word_reader import read_word_sections

            return read_word_sections
        case "powerpoint":
            from helix_desktop.documents.readers.powerpoint_reader import read_slides

            return read_slides
        case "spreadsheet":
            from helix_desktop.documents.readers.spreadsheet_reader import read_sheets

            return read_sheets
        case "open document":
            from helix_desktop.documents.readers.open_document_reader import read_open_document

            return read_open_document
        case "epub":
            from helix_desktop.documents.readers.epub_reader import read_chapters

            return read_chapters
        case "html":
            from helix_desktop.documents.readers.html_reader import read_html_sections

            return read_html_sections
        case "notebook":
            from helix_desktop.documents.readers.notebook_reader import read_notebook_cells

            return read_notebook_cells
        case "csv":
            from helix_desktop.documents.readers.csv_reader import read_csv_rows

            return read_csv_rows
    raise ValueError(name)


def _write_pictures(content: bytes, page_numbers: list[int], edge: int) -> None:
    from helix_desktop.documents.readers.pdf_reader import draw_pdf_pages

    for picture in draw_pdf_pages(content, page_numbers, edge):
        png = base64.b64encode(picture.png).decode()
        _write_line({"number": picture.page_number, "png": png})


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
