"""Tables as text: Markdown for tables within prose, comma-separated lines for sheets."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from helix_desktop.documents.document_page import DocumentPage

ROWS_OF_A_PART = 500  # A long sheet is split, so that a reader can ask for some of it.


def format_markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first row is its head. Cells keep to one line."""
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    lines = [_format_table_row(row, width) for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _format_table_row(row: Sequence[str], width: int) -> str:
    cells = [cell.strip().replace("|", "\\|").replace("\n", "<br>") for cell in row]
    cells += [""] * (width - len(cells))
    return "| " + " | ".join(cells) + " |"


def split_rows_into_pages(
    rows: Iterable[Sequence[str]], title: str, unit_number: int
) -> Iterator[DocumentPage]:
    """Yield a sheet's rows as comma-separated lines, some hundreds on each page, and each page
    with the sheet's first row before it, which usually names the columns.
    """
    head: Sequence[str] = ()
    held: list[Sequence[str]] = []
    first = 1
    number = 0
    for number, row in enumerate(rows, 1):
        if number == 1:
            head = row
        held.append(row)
        if len(held) == ROWS_OF_A_PART:
            yield _page_of_rows(held, head, title, first, unit_number)
            held = []
            first = number + 1
    if held or not number:
        if first == 1:
            first = 0  # A sheet of one page needs no row numbers.
        yield _page_of_rows(held, head, title, first, unit_number)


def _page_of_rows(
    rows: Sequence[Sequence[str]], head: Sequence[str], title: str, first: int, unit_number: int
) -> DocumentPage:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if first > 1:
        writer.writerow(head)
    writer.writerows(rows)
    if first:
        span = f"rows {first}-{first + len(rows) - 1}"
        title = ", ".join(filter(None, [title, span]))
    return DocumentPage(out.getvalue().rstrip("\n"), title, unit_number)
