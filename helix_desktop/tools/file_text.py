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

_SHOWN = 2_000  # An error message quotes this many characters of a file's present text.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")


def decode_file_text(content: bytes) -> str:
    """Decode a file. `encode_in_same_encoding` restores bytes that are no text."""
    name = detect_encoding(content)
    return content.decode(name, "surrogateescape" if name == "utf-8" else "surrogatepass")


def encode_in_same_encoding(text: str, encoded_before: bytes) -> bytes:
    name = detect_encoding(encoded_before)
    return text.encode(name, "surrogateescape" if name == "utf-8" else "surrogatepass")


def encoding_by_mark(content: bytes) -> str:
    """Return the encoding that a byte order mark names, or UTF-8 without one."""
    return next((name for order, name in _MARKS if content.startswith(order)), "utf-8")


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
    """Encode the content like the file it replaces, with its line ends if all are alike."""
    if (
        _has_foreign_bytes(old_content)
        and b"\0" not in old_content[:8192]
        and not new_text.isascii()
    ):
        raise InvalidInput(
            f"{shown_path} is not UTF-8, and the new content has characters outside ASCII; nothing was written.",
            remedy="First convert the file to UTF-8 with a command such as iconv, then read it again.",
        )
    text = decode_file_text(old_content)
    if text.startswith("\ufeff"):
        new_text = "\ufeff" + new_text.removeprefix("\ufeff")
    if "\r\n" not in new_text and 0 < text.count("\r\n") == text.count("\n"):
        new_text = new_text.replace("\n", "\r\n")
    return encode_in_same_encoding(new_text, old_content)


def replace_text_in_file(
    before: bytes, old: str, new: str, shown_path: str, *, every: bool
) -> bytes:
    """Replace `old` in a file, keeping its line ends and encoding. Refuse what is ambiguous."""
    whole_text = decode_file_text(before)
    foreign = _has_foreign_bytes(before)
    if not old:
        raise InvalidInput(
            "old_text is empty.",
            remedy="To create a file or replace its whole content, use write_file.",
        )
    if old == new:
        raise InvalidInput("old_text and new_text are the same; nothing to do.")
    if foreign and not new.isascii() and not _BEYOND_ASCII.search(whole_text):
        raise InvalidInput(
            f"{shown_path} is not UTF-8, and new_text contains non-ASCII characters; nothing was changed.",
            remedy="Change the file with a command that supports its encoding.",
        )
    has_windows_ends = "\r\n" in whole_text
    if "\r\n" in old and not has_windows_ends:
        old = old.replace("\r\n", "\n")
        new = new.replace("\r\n", "\n")
    if has_windows_ends:
        times = sum(1 for _ in _find_text_places(whole_text, old))
    else:
        times = whole_text.count(old)
    if not times:
        raise InvalidInput(
            f"old_text is not in {shown_path}; nothing was changed.",
            remedy=_explain_missing_text(whole_text, old, foreign=foreign),
        )
    if times > 1 and not every:
        starts = (place.start for place in itertools.islice(_find_text_places(whole_text, old), 10))
        lines = ", ".join(str(whole_text.count("\n", 0, start) + 1) for start in starts)
        raise InvalidInput(
            f"old_text appears {times} times in {shown_path} (lines {lines}); nothing was changed.",
            remedy="Include more of the surrounding text, or set replace_all.",
        )
    if has_windows_ends:
        after = _replace_keeping_line_ends(whole_text, old, new)
    else:
        after = whole_text.replace(old, new)
    return encode_in_same_encoding(after, before)


def _find_text_places(text: str, old: str) -> Iterator[slice]:
    """Yield where `old` occurs in the text, whatever the line ends."""
    plain = text.replace("\r\n", "\n")
    wanted = old.replace("\r\n", "\n")
    # Places in `plain`, each after a line end that is one character longer in the text.
    begins = list(itertools.accumulate(len(line) + 1 for line in text.split("\r\n")))
    at = plain.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        yield slice(at + bisect_right(begins, at), end + bisect_right(begins, end))
        at = plain.find(wanted, end)


def _replace_keeping_line_ends(text: str, old: str, new: str) -> str:
    """Replace each place by `new`, with that place's line ends, or else the most frequent ones."""
    usual = text.count("\r\n") * 2 > text.count("\n")
    unix = new.replace("\r\n", "\n")
    pieces, end = list[str](), 0
    for place in _find_text_places(text, old):
        there = text[place]
        as_there = (
            unix.replace("\n", "\r\n") if ("\r\n" in there if "\n" in there else usual) else unix
        )
        pieces += [text[end : place.start], as_there]
        end = place.stop
    return "".join([*pieces, text[end:]])


def _explain_missing_text(text: str, old: str, *, foreign: bool) -> str:
    """Say why a text was not found: where its first line is, or that only spaces differ."""
    if foreign and not old.isascii():
        return "The file is not UTF-8, and letters beyond ASCII are not shown as they are: choose a text without them."
    words = old.split()
    # A regular expression that allows any amount of white space would be slow for long texts.
    if words and (at := (plain := " ".join(text.split())).find(" ".join(words))) >= 0:
        before = plain.count(" ", 0, at)
        there = list(itertools.islice(re.finditer(r"\S+", text), before, before + len(words)))
        lines = _lines_around(text, there[0].start(), there[-1].end())
        return f"It is there with other spaces or line breaks, exactly so:\n{lines}"
    first, count = (
        next((line.strip() for line in old.splitlines() if line.strip()), ""),
        old.count("\n") + 1,
    )
    if first and (start := text.find(first)) >= 0:
        number = text.count("\n", 0, start) + 1
        end = next(itertools.islice(re.finditer(r"\n|\Z", text[start:]), count - 1, None), None)
        goes_on = _lines_around(text, start, start + end.start() if end else len(text))
        return f"Its first line is like line {number} of the file, but what follows differs. There it goes on so:\n{goes_on}"
    return "Read the file again and copy the text exactly."


def _lines_around(text: str, start: int, end: int) -> str:
    """Return the lines that contain a piece of the text, shortened to fit a message."""
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    lines = text[first : last if last >= 0 else len(text)]
    return lines if len(lines) <= _SHOWN else f"{lines[:_SHOWN]}…"
