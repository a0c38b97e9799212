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
LIST_PIECE = 600  # A list is cut at the next item once it has this many characters.
TABLE_PIECE = 20  # So many rows of a table are one chunk.

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
        fence = _FENCE.match(line)
        if fence is not None:
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
    newline = text.find("\n", position)
    if newline < 0:
        return len(text)
    return newline + 1


def _find_fence_end(text: str, position: int, mark: str) -> int:
    closing = re.compile(
        rf"^[ \t]{{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*(?:\n|\Z)", re.MULTILINE
    )
    closing_line = closing.search(text, position)
    if closing_line is None:  # The fence is still being written.
        return len(text)
    return closing_line.end()


def _is_table_start(text: str, position: int, line_end: int) -> bool:
    header = text[position : min(line_end, position + LONGEST)]
    if "|" not in header:
        return False
    delimiter_end = min(_find_line_end(text, line_end), line_end + LONGEST)
    delimiters = text[line_end:delimiter_end]
    if "-" not in delimiters or "|" not in delimiters:
        return False
    return _DELIMITERS.match(delimiters.rstrip("\n")) is not None


def _split_table_chunks(text: str, position: int, line_end: int) -> Iterator[MarkdownChunk]:
    """Yields up to `TABLE_PIECE` rows at a time. Later chunks repeat the header, to be
    parsed separately.
    """
    header_end = _find_line_end(text, line_end)
    header = text[position:header_end]
    start = position
    end = header_end
    rows = 0
    while end < len(text):
        row_end = _find_line_end(text, end)
        row = text[end : min(row_end, end + 200)]
        if not row.strip():
            break
        end = row_end
        rows += 1
        if rows == TABLE_PIECE:
            yield _build_table_chunk(start, end, header, is_first=start == position)
            start = end
            rows = 0
    is_first = start == position
    if rows or is_first:
        yield _build_table_chunk(start, end, header, is_first=is_first)


def _build_table_chunk(start: int, end: int, head: str, *, is_first: bool) -> MarkdownChunk:
    if is_first:
        return MarkdownChunk(start, end)
    return MarkdownChunk(start, end, head=head)


def _find_plain_block_end(text: str, position: int, line_end: int) -> int:
    """Finds the end of a paragraph, heading or list. Indented text after blank lines
    continues a list.
    """
    # Of a line of any length, the beginning tells what it is.
    first_line = text[position : min(line_end, position + 200)]
    if _HEADING.match(first_line):
        return line_end
    can_have_indented_lines = _can_have_indented_lines(first_line)

    fence_in_first_line = _open_fence_after(first_line, "")
    end = _skip_open_fence(text, line_end, fence_in_first_line)
    while end < len(text) and end - position < LONGEST:
        next_line_end = _find_line_end(text, end)
        line = text[end : min(next_line_end, end + 200)]
        # A long list is cut between two of its items.
        if end - position > LIST_PIECE and _is_item_of_same_list(line, first_line):
            break
        if not line.strip():
            next_text = _skip_blank_lines(text, next_line_end)
            is_indented = text.startswith(("  ", "\t"), next_text)
            if not is_indented or not can_have_indented_lines:
                break
            end = next_text
            continue
        if _ends_plain_block(line, can_have_indented_lines=can_have_indented_lines):
            break
        fence_in_line = _open_fence_after(line, "")
        end = _skip_open_fence(text, next_line_end, fence_in_line)
    # A fence that is never closed must not make one chunk of all that follows.
    return min(end, position + 50 * LONGEST)


def _skip_open_fence(text: str, position: int, open_fence: str) -> int:
    """Finds the end of a fence of code that was opened before this place. Without one, it is the
    place itself.
    """
    end = position
    while open_fence and end < len(text):
        next_line_end = _find_line_end(text, end)
        line = text[end : min(next_line_end, end + 200)]
        open_fence = _open_fence_after(line, open_fence)
        end = next_line_end
    return end


def _can_have_indented_lines(first_line: str) -> bool:
    """Whether a block is a list or indented code, in which blank lines may stand."""
    if _LIST.match(first_line):
        return True
    return first_line.startswith(("    ", "\t"))


def _is_item_of_same_list(line: str, first_line: str) -> bool:
    bullet = _DOT.match(first_line)
    return bullet is not None and line.startswith(bullet.group())


def _ends_plain_block(line: str, *, can_have_indented_lines: bool) -> bool:
    if _HEADING.match(line):
        return True
    if _FENCE.match(line) is None:
        return False
    # An indented fence is part of the item of a list.
    return not (can_have_indented_lines and line[0] == " ")


def _open_fence_after(line: str, open_fence: str) -> str:
    """Returns the mark of the fence that is open after this line of a list or a quotation."""
    match = _ANY_FENCE.match(line)
    if match is None:
        return open_fence
    mark = match.group(1)
    if not open_fence:
        return mark
    # A fence is closed by a mark of the same letter, at least as long, with nothing behind it.
    is_same_letter = mark[0] == open_fence[0]
    is_long_enough = len(mark) >= len(open_fence)
    has_text_behind = bool(line[match.end() :].strip())
    if is_same_letter and is_long_enough and not has_text_behind:
        return ""
    return open_fence


def _skip_blank_lines(text: str, position: int) -> int:
    while position < len(text):
        end = _find_line_end(text, position)
        if text[position : min(end, position + 200)].strip():
            return position
        position = end
    return position
