"""What an entry's bytes can be shown as: text, a JSON tree, a table, an image, or hex. Plain Python."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum

from helix_desktop.gui.transcript.harmless import printed
from helix_desktop.values import dataclass

PAGE = 1 << 20
LARGEST_TREE = 1 << 20
MOST_ROWS = 5_000
MOST_COLUMNS = 200
_HEX_ROW = 16


class Shape(StrEnum):
    TEXT = "text"
    JSON = "json"
    TABLE = "table"
    IMAGE = "image"
    HEX = "hex"


def shapes_of(media_type: str, source: str, head: bytes, size: int) -> tuple[Shape, ...]:
    """How an entry can be shown, the best first."""
    if media_type.startswith("image/") and "svg" not in media_type:
        return (Shape.IMAGE, Shape.HEX)
    if not is_text(head):
        return (Shape.HEX,)
    found: list[Shape] = []
    if (
        size <= LARGEST_TREE
        and head.lstrip()[:1] in (b"{", b"[")
        and as_json(head.decode("utf-8", "replace")) is not None
    ):
        found.append(Shape.JSON)
    if media_type in ("text/csv", "text/tab-separated-values") or source.endswith((".csv", ".tsv")):
        found.append(Shape.TABLE)
    plain_first = media_type not in ("application/json", "text/csv") and not source.endswith((".json", ".csv", ".tsv"))
    return (Shape.TEXT, *found, Shape.HEX) if plain_first or not found else (*found, Shape.TEXT, Shape.HEX)


def is_text(head: bytes) -> bool:
    """Whether bytes read as text: no zero byte, and almost all of it UTF-8."""
    sample = head[:8192]
    if b"\0" in sample:
        return False
    return sample.decode("utf-8", "replace").count("\N{REPLACEMENT CHARACTER}") <= max(3, len(sample) // 100)


def as_json(text: str) -> object | None:
    """The value of a JSON text that is an object or an array; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def as_rows(text: str, source: str) -> list[list[str]]:
    """A table's rows, as far as they are shown."""
    delimiter = "\t" if source.endswith(".tsv") or text[:2000].count("\t") > text[:2000].count(",") else ","
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            rows.append(row[:MOST_COLUMNS])
            if len(rows) >= MOST_ROWS:
                break
    except csv.Error:
        return rows
    return rows


def text_lines(content: bytes, *, first: bool, last: bool) -> tuple[list[str], int]:
    """The lines of a page, and how many line ends it holds. A sign cut by the page's edge is left out."""
    text = content.decode("utf-8", "replace")
    if not first:
        text = text.lstrip("\N{REPLACEMENT CHARACTER}")
    if not last:
        text = text.rstrip("\N{REPLACEMENT CHARACTER}")
    lines = printed(text).split("\n")
    if last and len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines, content.count(b"\n")


@dataclass(frozen=True, slots=True)
class HexLines(Sequence[str]):
    """Bytes as rows of sixteen, made when they are looked at. `start`: the place of the first byte in its entry."""

    content: bytes
    start: int = 0

    def __len__(self) -> int:
        return (len(self.content) + _HEX_ROW - 1) // _HEX_ROW

    def __getitem__(self, number: int | slice) -> str:
        if isinstance(number, slice):
            raise TypeError("hex is read a row at a time")
        piece = self.content[number * _HEX_ROW : (number + 1) * _HEX_ROW]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in piece)
        left, right = piece[:8].hex(" "), piece[8:].hex(" ")
        return f"{left:<23}  {right:<23}  {signs}"

    def label(self, number: int) -> str:
        return f"{self.start + number * _HEX_ROW:08x}"
