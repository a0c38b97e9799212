"""CSV and TSV, in the encodings and with the separators that spreadsheets write."""

import csv
import io
from collections.abc import Iterator

from helix_desktop.documents.document_page import DocumentDamaged, DocumentPage
from helix_desktop.documents.text_tables import split_rows_into_pages

_SAMPLE = 64 << 10
_SEPARATORS = ",;\t|"


def read_csv_rows(content: bytes) -> Iterator[DocumentPage]:
    """Yield the rows of a CSV file, some hundreds on each page."""
    text = _decode_csv(content)
    csv.field_size_limit(16 << 20)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_find_separator(text[:_SAMPLE]))
    page_number = 0
    try:
        for page_number, page in enumerate(split_rows_into_pages(reader, "", 1), 1):
            yield DocumentPage(page.text, page.title, page_number)
    except csv.Error as error:
        raise DocumentDamaged(str(error)) from error


def _decode_csv(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")  # What Excel writes in western countries.


def _find_separator(sample: str) -> str:
    """Return the separator that the first line has most of, outside quotes."""
    first_line = sample.partition("\n")[0]
    unquoted = "".join(first_line.split('"')[::2])
    return max(_SEPARATORS, key=unquoted.count)
