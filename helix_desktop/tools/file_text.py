"""Reads and writes a text file's bytes, and replaces parts of its text. Does not access the disk.

A file keeps its encoding, byte order mark and line ends. An ambiguous change is
refused, with the text.
"""

import codecs
import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator

from helix_desktop.errors import InvalidInput

# An error message quotes this many characters of a file's present text.
_MOST_QUOTED_CHARACTERS = 2_000
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")


def decode_file_text(content: bytes) -> str:
    """Decode a file. `encode_in_same_encoding` restores bytes that are no text."""
    name = detect_encoding(content)
    return content.decode(name, _error_handler_for(name))


def encode_in_same_encoding(text: str, encoded_before: bytes) -> bytes:
    name = detect_encoding(encoded_before)
    return text.encode(name, _error_handler_for(name))


def _error_handler_for(encoding: str) -> str:
    """Return how bytes that are no text are kept, which works differently in UTF-16."""
    if encoding == "utf-8":
        return "surrogateescape"
    return "surrogatepass"


def encoding_by_mark(content: bytes) -> str:
    """Return the encoding that a byte order mark names, or UTF-8 without one."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return encoding
    return "utf-8"


def detect_encoding(content: bytes) -> str:
    """Return UTF-16 if the file starts with its mark and is valid to its end, or else UTF-8."""
    name = encoding_by_mark(content)
    try:
        if name != "utf-8":
            content.decode(name, "surrogatepass")
    except UnicodeDecodeError:
        return "utf-8"
    return name


def _has_foreign_bytes(content: bytes) -> bool:
    """Whether the content is neither UTF-8 nor UTF-16 with a byte order mark."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return detect_encoding(content) == "utf-8"
    return False


def encode_like_before(old_content: bytes, new_text: str, shown_path: str) -> bytes:
    """Encode the content like the file it replaces, with its byte order mark, and with its line ends
    if all are alike.
    """
    is_in_old_encoding = _has_foreign_bytes(old_content) and b"\0" not in old_content[:8192]
    if is_in_old_encoding and not new_text.isascii():
        raise InvalidInput(
            f"{shown_path} is not UTF-8, and the new content has characters outside ASCII; nothing was written.",
            remedy="First convert the file to UTF-8 with a command such as iconv, then read it again.",
        )
    old_text = decode_file_text(old_content)
    text = new_text
    if old_text.startswith("\ufeff"):
        text = "\ufeff" + text.removeprefix("\ufeff")
    has_only_windows_ends = 0 < old_text.count("\r\n") == old_text.count("\n")
    if has_only_windows_ends and "\r\n" not in text:
        text = text.replace("\n", "\r\n")
    return encode_in_same_encoding(text, old_content)


def replace_text_in_file(
    before: bytes, old: str, new: str, shown_path: str, *, every: bool
) -> bytes:
    """Replace `old` in a file, keeping its line ends and encoding. Refuse what is ambiguous.

    First it is checked what is asked, then how often `old` is in the file: it must be there
    exactly once, unless `every` one is to be replaced. Only then anything is replaced.
    """
    whole_text = decode_file_text(before)
    has_foreign_bytes = _has_foreign_bytes(before)
    if not old:
        raise InvalidInput(
            "old_text is empty.",
            remedy="To create a file or replace its whole content, use write_file.",
        )
    if old == new:
        raise InvalidInput("old_text and new_text are the same; nothing to do.")
    if has_foreign_bytes and not new.isascii() and not _BEYOND_ASCII.search(whole_text):
        raise InvalidInput(
            f"{shown_path} is not UTF-8, and new_text contains non-ASCII characters; nothing was changed.",
            remedy="Change the file with a command that supports its encoding.",
        )
    has_windows_ends = "\r\n" in whole_text
    searched = old
    replacement = new
    if "\r\n" in old and not has_windows_ends:
        searched = old.replace("\r\n", "\n")
        replacement = new.replace("\r\n", "\n")
    occurrence_count = _count_text(whole_text, searched)
    if not occurrence_count:
        raise InvalidInput(
            f"old_text is not in {shown_path}; nothing was changed.",
            remedy=_explain_missing_text(whole_text, searched, foreign=has_foreign_bytes),
        )
    if occurrence_count > 1 and not every:
        raise InvalidInput(
            f"old_text appears {occurrence_count} times in {shown_path} (lines {_name_lines_with(whole_text, searched)}); nothing was changed.",
            remedy="Include more of the surrounding text, or set replace_all.",
        )
    if has_windows_ends:
        after = _replace_keeping_line_ends(whole_text, searched, replacement)
    else:
        after = whole_text.replace(searched, replacement)
    return encode_in_same_encoding(after, before)


def _count_text(text: str, old: str) -> int:
    """Count how often `old` occurs, whatever the line ends."""
    if "\r\n" in text:
        return len(list(_find_text_places(text, old)))
    return text.count(old)


def _name_lines_with(text: str, old: str) -> str:
    """Return the numbers of the first ten lines at which `old` begins."""
    numbers = []
    for place in itertools.islice(_find_text_places(text, old), 10):
        line_number = text.count("\n", 0, place.start) + 1
        numbers.append(str(line_number))
    return ", ".join(numbers)


def _find_text_places(text: str, old: str) -> Iterator[slice]:
    """Yield where `old` occurs in the text, whatever the line ends."""
    plain_text = text.replace("\r\n", "\n")
    plain_searched_text = old.replace("\r\n", "\n")
    # Where lines begin in the plain text. Each line end before is one character longer in `text`.
    line_lengths = [len(line) + 1 for line in text.split("\r\n")]
    line_starts = list(itertools.accumulate(line_lengths))
    start = plain_text.find(plain_searched_text)
    while start >= 0:
        end = start + len(plain_searched_text)
        line_ends_before_start = bisect_right(line_starts, start)
        line_ends_before_end = bisect_right(line_starts, end)
        yield slice(start + line_ends_before_start, end + line_ends_before_end)
        start = plain_text.find(plain_searched_text, end)


def _replace_keeping_line_ends(text: str, old: str, new: str) -> str:
    """Replace each place by `new`, with that place's line ends, or else the most frequent ones."""
    are_most_windows_ends = text.count("\r\n") * 2 > text.count("\n")
    new_with_unix_ends = new.replace("\r\n", "\n")
    new_with_windows_ends = new_with_unix_ends.replace("\n", "\r\n")
    pieces: list[str] = []
    copied_up_to = 0
    for place in _find_text_places(text, old):
        replaced = text[place]
        uses_windows_ends = are_most_windows_ends
        if "\n" in replaced:
            uses_windows_ends = "\r\n" in replaced
        pieces.append(text[copied_up_to : place.start])
        if uses_windows_ends:
            pieces.append(new_with_windows_ends)
        else:
            pieces.append(new_with_unix_ends)
        copied_up_to = place.stop
    pieces.append(text[copied_up_to:])
    return "".join(pieces)


def _explain_missing_text(text: str, old: str, *, foreign: bool) -> str:
    """Say why a text was not found: where its first line is, or that only spaces differ."""
    if foreign and not old.isascii():
        return "The file is not UTF-8, and letters beyond ASCII are not shown as they are: choose a text without them."
    with_other_spaces = _quote_with_other_spaces(text, old)
    if with_other_spaces:
        return f"It is there with other spaces or line breaks, exactly so:\n{with_other_spaces}"
    first_line = ""
    for line in old.splitlines():
        if line.strip():
            first_line = line.strip()
            break
    start = text.find(first_line)
    if not first_line or start < 0:
        return "Read the file again and copy the text exactly."
    line_number = text.count("\n", 0, start) + 1
    end = _find_end_of_lines(text, start, line_count=old.count("\n") + 1)
    continuation = _lines_around(text, start, end)
    return f"Its first line is like line {line_number} of the file, but what follows differs. There it goes on so:\n{continuation}"


def _quote_with_other_spaces(text: str, old: str) -> str:
    """Return the lines that are like `old` except for white space, or an empty string."""
    # A regular expression that allows any amount of white space would be slow for long texts.
    words = old.split()
    plain = " ".join(text.split())
    start_in_plain = plain.find(" ".join(words))
    if not words or start_in_plain < 0:
        return ""
    first_word = plain.count(" ", 0, start_in_plain)
    all_words = re.finditer(r"\S+", text)
    places = list(itertools.islice(all_words, first_word, first_word + len(words)))
    return _lines_around(text, places[0].start(), places[-1].end())


def _find_end_of_lines(text: str, start: int, line_count: int) -> int:
    """Return where this many lines end, counted from `start`, or the text's end."""
    end = start - 1
    for _ in range(line_count):
        end = text.find("\n", end + 1)
        if end < 0:
            return len(text)
    return end


def _lines_around(text: str, start: int, end: int) -> str:
    """Return the lines that contain a piece of the text, shortened to fit a message."""
    first_position = text.rfind("\n", 0, start) + 1
    last_position = text.find("\n", end)
    if last_position < 0:
        last_position = len(text)
    lines = text[first_position:last_position]
    if len(lines) > _MOST_QUOTED_CHARACTERS:
        return f"{lines[:_MOST_QUOTED_CHARACTERS]}…"
    return lines
