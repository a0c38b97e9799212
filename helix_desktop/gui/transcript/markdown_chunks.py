"""Cuts a Markdown text into chunks that can be parsed separately: paragraphs, lists,
tables, fences.

So a long text is parsed and laid out in slices of a few milliseconds, and while one is
being written only its last chunk is parsed again. A chunk is never cut inside a fence.
A bulleted list is cut between two items; anything longer than `LONGEST` ends at the
next line end.
"""

import re
from collections.abc import Iterator

from helix_desktop.fast_dataclass import dataclass

LONGEST = 4_000
LIST_PIECE = 600
TABLE_PIECE = 20

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_ANY_FENCE = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])?[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
_DOT = re.compile(r" {0,3}[-*+] ")
_LIST = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_DELIMITERS = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


@dataclass(frozen=True, slots=True)
class MarkdownChunk:
    """The characters from `start` to `end`. `is_table_continuation`: the table's header
    is in an earlier chunk.
    """

    start: int
    end: int
    is_fence: bool = False
    head: str = ""

    @property
    def is_table_continuation(self) -> bool:
        return bool(self.head)


def split_markdown_chunks(text: str, start: int = 0) -> Iterator[MarkdownChunk]:
    """Yields the chunks from `start`, which must be 0 or the start of a chunk, without
    blank lines between them.
    """
    position = start
    while position < len(text):
        line_end = _find_line_end(text, position)
        line = text[position : min(line_end, position + 200)]
        if not line.strip() and line_end - position < 200:
            position = line_end
            continue
        if fence := _FENCE.match(line):
            end = _find_fence_end(text, line_end, fence.group(1))
            yield MarkdownChunk(position, end, is_fence=True)
            position = end
        elif _is_table_start(text, position, line_end):
            for piece in _split_table_chunks(text, position, line_end):
                yield piece
                position = piece.end
        else:
            end = _find_plain_block_end(text, position, line_end)
            yield MarkdownChunk(position, end)
            position = end


def _find_line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1


def _find_fence_end(text: str, position: int, mark: str) -> int:
    closing = re.compile(
        rf"^[ \t]{{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*(?:\n|\Z)", re.MULTILINE
    )
    found = closing.search(text, position)
    return found.end() if found else len(text)


def _is_table_start(text: str, position: int, line_end: int) -> bool:
    if "|" not in text[position : min(line_end, position + LONGEST)]:
        return False
    below = text[line_end : min(_find_line_end(text, line_end), line_end + LONGEST)]
    return "-" in below and "|" in below and bool(_DELIMITERS.match(below.rstrip("\n")))


def _split_table_chunks(text: str, position: int, line_end: int) -> Iterator[MarkdownChunk]:
    """Yields up to `TABLE_PIECE` rows at a time. Later chunks repeat the header, to be
    parsed separately.
    """
    body = _find_line_end(text, line_end)
    head = text[position:body]
    start, end, rows = position, body, 0
    while end < len(text):
        after = _find_line_end(text, end)
        if not text[end : min(after, end + 200)].strip():
            break
        end = after
        rows += 1
        if rows == TABLE_PIECE:
            yield MarkdownChunk(start, end, head=head if start != position else "")
            start, rows = end, 0
    if rows or start == position:
        yield MarkdownChunk(start, end, head=head if start != position else "")


def _find_plain_block_end(text: str, position: int, line_end: int) -> int:
    """Finds the end of a paragraph, heading or list. Indented text after blank lines
    continues a list.
    """
    first = text[position : min(line_end, position + 200)]
    if _HEADING.match(first):
        return line_end
    indented = bool(_LIST.match(first)) or first.startswith(("    ", "\t"))
    dot = _DOT.match(first)
    end, opened = line_end, _open_fence_after(first, "")
    while end < len(text) and (end - position < LONGEST or opened):
        after = _find_line_end(text, end)
        line = text[end : min(after, end + 200)]
        if opened:
            opened = _open_fence_after(line, opened)
        elif dot and end - position > LIST_PIECE and line.startswith(dot.group()):
            break
        elif not line.strip():
            beyond = _skip_blank_lines(text, after)
            if not (indented and text.startswith(("  ", "\t"), beyond)):
                break
            after = beyond
        elif (_FENCE.match(line) and not (indented and line[0] == " ")) or _HEADING.match(line):
            break
        else:
            opened = _open_fence_after(line, "")
        end = after
    return min(end, position + 50 * LONGEST)


def _open_fence_after(line: str, opened: str) -> str:
    """Returns the mark of the fence that is open after this line of a list or a quotation."""
    if (match := _ANY_FENCE.match(line)) is None:
        return opened
    mark = match.group(1)
    if not opened:
        return mark
    closes = mark[0] == opened[0] and len(mark) >= len(opened) and not line[match.end() :].strip()
    return "" if closes else opened


def _skip_blank_lines(text: str, position: int) -> int:
    while position < len(text):
        end = _find_line_end(text, position)
        if text[position : min(end, position + 200)].strip():
            return position
        position = end
    return position
