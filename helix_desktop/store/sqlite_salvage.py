"""Reads rows from an SQLite file whose tree of pages is damaged, without SQLite.

SQLite finds a page only through the pages above it, and stops at the first damaged one. But each
leaf page says itself where its rows are, so every leaf of the file is read here. The caller keeps
the rows that prove right. https://sqlite.org/fileformat2.html describes the format.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from helix_desktop.fast_dataclass import dataclass

_TABLE_LEAF = 0x0D
_FILE_HEADER = 100  # Before the header of the first page.
_PAGE_HEADER = 8
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_MOST_COLUMNS = 100
Value = int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class CarvedRow:
    """A row as its page has it. The column that is the row's id is None in `values`."""

    id: int
    values: tuple[Value, ...]


class _PageFile:
    """The pages of a database. `newer` has those of its log."""

    def __init__(self, file: BinaryIO, page_size: int, newer: Mapping[int, bytes]) -> None:
        self._file = file
        self._newer = newer
        self.page_size = page_size
        self.page_count = max([-(-_size_of(file) // page_size), *newer])

    def read_page(self, number: int) -> bytes:
        """Return a page, the first of which is number 1. One that is cut off ends in zeros."""
        if number in self._newer:
            return self._newer[number]
        self._file.seek((number - 1) * self.page_size)
        return self._file.read(self.page_size).ljust(self.page_size, b"\0")


def carve_rows(
    path: Path, page_size: int, newer_pages: Mapping[int, bytes], columns: int
) -> Iterator[CarvedRow]:
    """Yield what looks like a row with so many columns, from every leaf of every table."""
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        pages = _PageFile(file, page_size, newer_pages)
        for number in range(1, pages.page_count + 1):
            page = pages.read_page(number)
            header_start = 0
            if number == 1:
                header_start = _FILE_HEADER
            if page[header_start] == _TABLE_LEAF:
                yield from _read_leaf(pages, page, header_start, columns)


def _read_leaf(pages: _PageFile, page: bytes, start: int, columns: int) -> Iterator[CarvedRow]:
    """Yield the rows of a leaf page. Behind its header, the page lists where its rows begin,
    each as a number of two bytes. What is no row with so many columns is passed over.
    """
    (row_count,) = struct.unpack_from(">H", page, start + 3)
    list_start = start + _PAGE_HEADER
    most_rows = (len(page) - list_start) // 2
    for index in range(min(row_count, most_rows)):
        (position,) = struct.unpack_from(">H", page, list_start + 2 * index)
        # A damaged row may be of any length and have any characters.
        with suppress(IndexError, struct.error, ValueError):
            row = _read_row(pages, page, position)
            if len(row.values) == columns:
                yield row


def _read_row(pages: _PageFile, page: bytes, position: int) -> CarvedRow:
    """Read the row at a position of its page: its size, its id, and then its values. Of a long row,
    the page has only the beginning, and behind that the number of the page where it goes on.
    """
    size, id_position = _read_varint(page, position)
    row_id, start = _read_varint(page, id_position)
    bytes_in_page = _bytes_of_row_in_page(size, len(page))
    end = start + bytes_in_page
    record = page[start:end]
    if bytes_in_page < size:
        (next_page,) = struct.unpack_from(">I", page, end)
        record += _read_overflow(pages, next_page, size - bytes_in_page)
    return CarvedRow(row_id, _decode_record(record))


def _bytes_of_row_in_page(size: int, page_size: int) -> int:
    """Return how much of a row of this size is in its leaf page, as SQLite's format says under
    "B-tree Cell Format": the rest fills whole pages if possible.
    """
    most_bytes = page_size - 35
    if size <= most_bytes:
        return size
    least_bytes = (page_size - 12) * 32 // 255 - 23
    bytes_if_rest_fills_pages = least_bytes + (size - least_bytes) % (page_size - 4)
    if bytes_if_rest_fills_pages <= most_bytes:
        return bytes_if_rest_fills_pages
    return least_bytes


def _read_overflow(pages: _PageFile, number: int, size: int) -> bytes:
    """Return the rest of a row, which a chain of pages holds."""
    rest = bytearray()
    page_number = number
    while len(rest) < size:
        if not 0 < page_number <= pages.page_count:
            raise ValueError("the chain of pages is broken")
        page = pages.read_page(page_number)
        # A page of the chain begins with the number of the next one.
        missing_bytes = size - len(rest)
        rest += page[4 : 4 + missing_bytes]
        page_number = int.from_bytes(page[:4], "big")
    return bytes(rest)


def _decode_record(record: bytes) -> tuple[Value, ...]:
    """Decode a row's values. A header says its own size and the kind of each value, from which
    follows how long the value is. The values come behind it, one after the other.
    """
    header_size, kind_position = _read_varint(record, 0)
    kinds: list[int] = []
    while kind_position < header_size:
        kind, kind_position = _read_varint(record, kind_position)
        kinds.append(kind)
        if len(kinds) > _MOST_COLUMNS:
            raise ValueError("no row has so many columns")

    values: list[Value] = []
    value_start = kind_position
    for kind in kinds:
        value_end = value_start + _size_of_value(kind)
        values.append(_decode_value(kind, record[value_start:value_end]))
        value_start = value_end
    return tuple(values)


def _size_of_value(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    if kind == 7:  # A floating-point number.
        return 8
    return _INTEGER_SIZES.get(kind, 0)


def _decode_value(kind: int, content: bytes) -> Value:
    """Decode a value as SQLite stores it. Its kind says its type and, for text and bytes, also
    its length: an odd kind is a text.
    """
    if kind == 0:
        return None
    if kind in (8, 9):
        return kind - 8
    if kind == 7:
        (number,) = struct.unpack(">d", content)
        return float(number)
    if kind in _INTEGER_SIZES:
        return int.from_bytes(content, "big", signed=True)
    if kind < 12:
        raise ValueError("no value is of this kind")
    is_text = kind % 2 == 1
    if is_text:
        return content.decode("utf-8", "replace")
    return content


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    number = 0
    for index in range(8):
        byte = content[position + index]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, position + index + 1
    return number << 8 | content[position + 8], position + 9


def _size_of(file: BinaryIO) -> int:
    return file.seek(0, 2)
