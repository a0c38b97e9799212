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
    first_row: Sequence[str] = ()
    rows_of_page: list[Sequence[str]] = []
    first_number = 1
    row_number = 0
    for row_number, row in enumerate(rows, 1):
        if row_number == 1:
            first_row = row
        rows_of_page.append(row)
        if len(rows_of_page) == ROWS_OF_A_PART:
            yield _page_of_rows(rows_of_page, first_row, title, first_number, unit_number)
            rows_of_page = []
            first_number = row_number + 1
    if rows_of_page or not row_number:
        if first_number == 1:
            first_number = 0  # A sheet of one page needs no row numbers.
        yield _page_of_rows(rows_of_page, first_row, title, first_number, unit_number)


def _page_of_rows(
    rows: Sequence[Sequence[str]],
    column_names: Sequence[str],
    title: str,
    first_number: int,
    unit_number: int,
) -> DocumentPage:
    """Return a page with these rows as comma-separated lines. `first_number`: the number of its
    first row in the sheet, or 0 if the page needs no row numbers. From the second page on, the
    names of the columns come first.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if first_number > 1:
        writer.writerow(column_names)
    writer.writerows(rows)
    if first_number:
        span = f"rows {first_number}-{first_number + len(rows) - 1}"
        title = ", ".join(filter(None, [title, span]))
    return DocumentPage(buffer.getvalue().rstrip("\n"), title, unit_number)
