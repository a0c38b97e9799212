"""Finds out in which shapes an entry's bytes can be shown. Knows nothing of Qt."""

from collections.abc import Sequence
from enum import StrEnum

from helix_desktop.engine.hidden_characters import is_mostly_text
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.safe_text import terminal_output_text
from helix_desktop.json_values import parse_json_or_none

PAGE_BYTES = 1 << 20
LARGEST_INDENTED_JSON = 1 << 20
_HEX_ROW = 16


class ContentShape(StrEnum):
    TEXT = "text"
    JSON = "json"
    IMAGE = "image"
    HEX = "hex"


def list_possible_content_shapes(
    media_type: str, source: str, head: bytes, size: int
) -> tuple[ContentShape, ...]:
    """Returns the shapes in which an entry can be shown, the best first."""
    if media_type.startswith("image/") and "svg" not in media_type:
        return (ContentShape.IMAGE, ContentShape.HEX)
    if not is_mostly_text(head):
        return (ContentShape.HEX,)
    text_alone = (ContentShape.TEXT, ContentShape.HEX)
    if size > LARGEST_INDENTED_JSON or head.lstrip()[:1] not in (b"{", b"["):
        return text_alone
    if parse_json_container(head.decode("utf-8", "replace")) is None:
        return text_alone
    if media_type == "application/json" or source.endswith(".json"):
        return (ContentShape.JSON, ContentShape.TEXT, ContentShape.HEX)
    return (ContentShape.TEXT, ContentShape.JSON, ContentShape.HEX)


def parse_json_container(text: str) -> object | None:
    """Parses a JSON text that is an object or an array. Returns None for any other text."""
    parsed = parse_json_or_none(text)
    if isinstance(parsed, dict | list):
        return parsed
    return None


def split_page_lines(content: bytes, *, first: bool, last: bool) -> tuple[list[str], int]:
    """Splits a page into lines and counts its line ends. A character that the page's
    edge cuts is left out.
    """
    text = content.decode("utf-8", "replace")
    if not first:
        text = text.lstrip("\N{REPLACEMENT CHARACTER}")
    if not last:
        text = text.rstrip("\N{REPLACEMENT CHARACTER}")
    lines = terminal_output_text(text).split("\n")
    if last and len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines, content.count(b"\n")


@dataclass(frozen=True, slots=True)
class HexDumpLines(Sequence[str]):
    """Bytes as rows of sixteen, built on demand. `start`: where the first byte is in its entry."""

    content: bytes
    start: int = 0

    def __len__(self) -> int:
        return (len(self.content) + _HEX_ROW - 1) // _HEX_ROW

    def __getitem__(self, number: int | slice) -> str:
        if isinstance(number, slice):
            raise TypeError("hex is read a row at a time")
        row = self.content[number * _HEX_ROW : (number + 1) * _HEX_ROW]
        characters: list[str] = []
        for byte in row:
            if 32 <= byte < 127:
                characters.append(chr(byte))
            else:
                characters.append("·")
        first_half = row[:8].hex(" ")
        second_half = row[8:].hex(" ")
        # Eight bytes in hex, with blanks between them, are 23 characters.
        return f"{first_half:<23}  {second_half:<23}  {''.join(characters)}"

    def format_offset_of_hex_row(self, number: int) -> str:
        return f"{self.start + number * _HEX_ROW:08x}"
