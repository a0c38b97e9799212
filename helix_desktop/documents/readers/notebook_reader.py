"""Jupyter notebooks: each cell with its code or text and the text of its outputs."""

import json
from collections.abc import Iterator
from typing import Any

from helix_desktop.documents.document_page import DocumentDamaged, DocumentPage
from helix_desktop.json_values import object_at, objects_at, text_at

_LONGEST_TITLE = 80


def read_notebook_cells(content: bytes) -> Iterator[DocumentPage]:
    """Yield a notebook's cells, each as a page."""
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DocumentDamaged(str(error)) from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise DocumentDamaged("it has no cells")
    language = text_at(object_at(notebook, "metadata", "kernelspec"), "language") or "python"
    for number, cell in enumerate(objects_at(notebook, "cells"), 1):
        yield _read_cell(cell, language, number)


def _read_cell(cell: dict[str, Any], language: str, number: int) -> DocumentPage:
    """Return a cell as Markdown: text as it is, and code in a block, followed by its outputs."""
    source = _join_notebook_lines(cell.get("source"))
    first_line = source.strip().partition("\n")[0].lstrip("# ")[:_LONGEST_TITLE]
    if cell.get("cell_type") != "code":
        return DocumentPage(source, first_line, number)
    blocks = [f"```{language}\n{source}\n```"]
    for output in objects_at(cell, "outputs"):
        text = _text_of_output(output)
        if text.strip():
            blocks.append(f"Output:\n```\n{text.rstrip()}\n```")
    return DocumentPage("\n".join(blocks), first_line, number)


def _text_of_output(output: dict[str, Any]) -> str:
    """Return the text of a cell's output: an error, printed text, or a result. Of a picture and
    the like, only the names of its formats are shown.
    """
    if output.get("output_type") == "error":
        return f"{text_at(output, 'ename')}: {text_at(output, 'evalue')}"
    if "text" in output:
        return _join_notebook_lines(output["text"])
    formats = object_at(output, "data")
    if "text/plain" in formats:
        return _join_notebook_lines(formats["text/plain"])
    if not formats:
        return ""
    return f"[{', '.join(formats)}]"


def _join_notebook_lines(value: object) -> str:
    """Return a text, which notebooks store whole or as a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    if isinstance(value, str):
        return value
    return ""
