"""Spreadsheets (xlsx, xlsb, xls, ods): every sheet's values as comma-separated lines."""

import datetime as dt
import io
from collections.abc import Iterator

import python_calamine

from helix_desktop.documents.document_archive import open_document_archive
from helix_desktop.documents.document_page import (
    DocumentDamaged,
    DocumentNeedsPassword,
    DocumentPage,
)
from helix_desktop.documents.text_tables import split_rows_into_pages


def read_sheets(content: bytes) -> Iterator[DocumentPage]:
    """Yield the values of each sheet. Charts that stand in place of a sheet are left out.

    The library unpacks the archive itself, so it is checked before that this is not too large.
    """
    if content.startswith(b"PK"):
        with open_document_archive(content) as archive:
            archive.check_unpacked_size()
            archive.check_is_not_encrypted()
    try:
        book = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
        for number, name in enumerate(book.sheet_names, 1):
            sheet_type = book.sheets_metadata[number - 1].typ
            if sheet_type is not python_calamine.SheetTypeEnum.WorkSheet:
                continue
            rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
            lines = ([_format_cell(cell) for cell in row] for row in rows)
            yield from split_rows_into_pages(lines, name, number)
    except python_calamine.PasswordError as error:
        raise DocumentNeedsPassword(str(error)) from error
    except (python_calamine.CalamineError, ValueError, OSError) as error:
        raise DocumentDamaged(str(error)) from error


def _format_cell(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))  # A sheet has one kind of number; 3 is stored as 3.0.
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, dt.datetime) and cell.time() == dt.time():
        return cell.date().isoformat()
    return str(cell)
