"""Builds a preview of a long text: first and last lines, errors, and lines about the
call's purpose.

It also shows the structure: keys, columns, headings, signatures with line numbers. It
has about as many tokens as asked for, even of 5 MB in one line, a million spaces, NULs
or escape codes. Names are listed only if there are no useful lines.
"""

import asyncio
import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import islice

from helix_desktop.engine.conversation_details import find_error_lines

NAMES_READ = 400_000  # Only this many characters at the beginning of a text are searched for names.
AT_ONCE = 1 << 15  # Searching more characters at once would block other threads.
_LONG_NAME = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][\w./-]{9,80}")  # no end of a word


def find_frequent_names(text: str, most_characters: int) -> str:
    """Return the most frequent long identifiers and paths, in at most this many characters."""
    parts = (
        _LONG_NAME.finditer(text, at, min(at + AT_ONCE, NAMES_READ))
        for at in range(0, min(len(text), NAMES_READ), AT_ONCE)
    )
    counts = Counter(found.group().rstrip("./-") for part in parts for found in part)
    taken: list[str] = []
    for name, _ in counts.most_common(200):
        if len(name) + 2 <= most_characters:
            taken.append(name)
            most_characters -= len(name) + 2
    return ", ".join(taken)


CHARACTERS_PER_TOKEN = 3.2  # A cautious estimate of how many characters make a token.
HEAD_PERCENT, TAIL_PERCENT = (
    30,
    20,
)  # The first and the last lines may take these percentages of the preview.
NAMES_PERCENT = 30  # If a text has no useful lines, names may take this percentage of the preview.
LINES_READ = 20_000
MOST_SIGNATURES, LONGEST_SIGNATURE = (
    40,
    90,
)  # The most function signatures shown, and the most characters of each.
LONGEST_LINE = 240  # Lines are cut to this many characters.
WIDE_GAP = " " * 8  # Longer gaps in a line are shortened to this width.
MOST_ERRORS = 12
IN_A_THREAD = 1 << 15  # Previews of texts with more characters are built in a thread.
MOST_KEYS = 12
MOST_RANGES = 8  # An outline of a text without headings lists this many ranges of lines.
JSON_LIMIT = 1_000_000  # Parsing JSON texts of more characters would block other threads.
_WORD = re.compile(r"[A-Za-z_][\w.-]{3,60}")
_NAME = re.compile(r"[_.\d]|[a-z][A-Z]")  # Words that this matches are names from code, not prose.
_SIGNATURE = re.compile(
    r"(?:\s*\d+[\t|:→]\s?)?\s{0,8}(?:#{1,4} \S|(?:export |default |async |public "
    r"|private |protected |static |abstract |final |pub |unsafe )*(?:def|class"
    r"|function|interface|type|enum|struct|trait|impl|fn|func|module|namespace|const"
    r"|describe|it|test|CREATE TABLE)\b[ (]\S|\[\w[\w. -]*\]$|diff --git |@@ |=== "
    r"|--- \S+ ---)"
)
_LINE = re.compile(r"[^\r\n]+")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]")


def build_preview(text: str, tokens: int, purpose: str = "") -> str:
    """Return what matters of a text. `purpose`: the call's arguments, and what was said
    before it.
    """
    room = int(tokens * CHARACTERS_PER_TOKEN)
    cleaned = (
        text
        if len(text) <= JSON_LIMIT
        else text[: JSON_LIMIT // 2] + "\n" + text[-JSON_LIMIT // 2 :]
    )
    first, last, count = _first_and_last_lines_and_count(cleaned, room)
    shape = _describe_structure(text)
    head = _lines_that_fit(first, room * HEAD_PERCENT // 100)
    tail = _lines_that_fit([*first[len(head) :], *last][::-1], room * TAIL_PERCENT // 100)[::-1]
    seen = {*head, *tail}
    left_out = count - len(head) - len(tail)
    pieces = [*([shape] if shape else []), *head]
    if left_out > 0:
        pieces.append(f"[… {left_out:,} lines left out …]")
        pieces += _most_informative_lines(cleaned, purpose, seen, room)
        pieces += ["Last lines:"] if tail and pieces[-1][:1] != "[" else []
    elif not tail and len(cleaned) > room:
        pieces += _line_of_frequent_names(cleaned, room)
    return "\n".join([*pieces, *tail]) or "(nothing but space)"


def _most_informative_lines(text: str, purpose: str, seen: set[str], room: int) -> list[str]:
    """Return lines from the middle: errors, the call's purpose and structure, each once."""
    pieces: list[str] = []
    errors = [
        line
        for line in dict.fromkeys(map(_shorten_preview_line, find_error_lines(text)))
        if line not in seen
    ]
    fitting = _lines_that_fit(errors[-MOST_ERRORS:], room * 20 // 100)
    # Without a count, the last error that is shown seems to be the last one of the text.
    of_all = f" ({len(fitting)} of {len(errors)} found)" if len(fitting) < len(errors) else ""
    groups = (
        (f"Lines that look like errors{of_all}:", fitting, 20),
        ("Lines about what was asked for:", list(_lines_about_purpose(text, purpose)), 15),
        ("In it, by line:", list(_headings_and_signatures(text)), 35),
    )
    for title, lines, share in groups:
        shown = _lines_that_fit(
            [line for line in dict.fromkeys(lines) if line not in seen], room * share // 100
        )
        seen |= set(shown)
        pieces += [title, *shown] if shown else []
    return pieces or _line_of_frequent_names(text, room)


def _line_of_frequent_names(text: str, room: int) -> list[str]:
    """Return a list with one line that names the most frequent names, or an empty list."""
    named = find_frequent_names(text, room * NAMES_PERCENT // 100)
    return [f"Names in it: {named}"] if named else []


def _lines_about_purpose(text: str, purpose: str) -> Iterator[str]:
    """Yield the lines that contain a name mentioned in the purpose, with their numbers."""
    words = {word for word in _WORD.findall(purpose) if _NAME.search(word)}
    if not words:
        return
    wanted = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True)[:20])))
    for number, line in enumerate(islice(_LINE.finditer(text), LINES_READ), 1):
        if wanted.search(line.group()):
            yield f"{number}: {_shorten_preview_line(line.group().strip())}"


def _headings_and_signatures(text: str) -> Iterator[str]:
    """Yield headings and signatures with their line numbers, by which parts can be recalled."""
    found = [
        (number, line.rstrip())
        for number, line in enumerate(text.split("\n", LINES_READ)[:LINES_READ], 1)
        if _SIGNATURE.match(line)
    ]
    stride = max(1, len(found) // MOST_SIGNATURES)
    for number, line in found[::stride]:
        yield f"{number}: {_strip_line_number(line)[:LONGEST_SIGNATURE]}"


def outline_text(text: str, first: int, tokens: int) -> str:
    """Return headings and signatures from line `first` on, or ranges if there are too few."""
    room = int(tokens * CHARACTERS_PER_TOKEN)
    lines = text.split("\n", LINES_READ)[:LINES_READ]
    named = [
        f"{number}: {_strip_line_number(line)[:LONGEST_SIGNATURE]}"
        for number, line in enumerate(lines, 1)
        if number >= first and _SIGNATURE.match(line)
    ]
    if len(named) < MOST_RANGES // 2:
        size = max(1, -(-(len(lines) - first + 1) // MOST_RANGES))
        starts = range(first, len(lines) + 1, size)
        named = [
            f"{at}-{min(at + size - 1, len(lines))}: {_first_nonblank_line(lines[at - 1 : at - 1 + size])}"
            for at in starts
        ]
    stride = max(1, -(-sum(len(line) + 1 for line in named) // room))
    return "\n".join(_lines_that_fit(named[::stride], room))


def _first_nonblank_line(lines: Sequence[str]) -> str:
    return next(
        (_shorten_preview_line(line).strip()[:LONGEST_SIGNATURE] for line in lines if line.strip()),
        "",
    )


def _strip_line_number(line: str) -> str:
    """Return a line without the number a tool has put before it."""
    return re.sub(r"^\s*\d+[\t|:→]\s?", "", line).strip()


async def build_preview_in_thread(text: str, tokens: int, purpose: str = "") -> str:
    if len(text) < IN_A_THREAD:
        return build_preview(text, tokens, purpose)
    return await asyncio.to_thread(build_preview, text, tokens, purpose)


def _first_and_last_lines_and_count(text: str, room: int) -> tuple[list[str], list[str], int]:
    """Return up to `room` non-empty lines from each end, and how many there are in all."""
    shorts = (_shorten_preview_line(line.group()) for line in _LINE.finditer(text))
    numbered = (
        (number, line) for number, line in enumerate((line for line in shorts if line.strip()), 1)
    )
    most = max(room, 1)
    first = list(islice(numbered, most))
    last = deque(numbered, maxlen=most)
    count = max((number for number, _ in (*first[-1:], *last)), default=0)
    return [line for _, line in first], [line for _, line in last], count


def _shorten_preview_line(line: str) -> str:
    plain = line[: LONGEST_LINE * 4]
    if not plain.isprintable():
        plain = _ESCAPES.sub("", plain)
    plain = plain.rstrip()
    if WIDE_GAP in plain:
        plain = re.sub(r" {8,}", WIDE_GAP, plain)
    return (
        plain
        if len(plain) <= LONGEST_LINE
        else f"{plain[: LONGEST_LINE - 20]}… ({len(line):,} characters)"
    )


def _lines_that_fit(lines: Sequence[str], room: int) -> list[str]:
    taken: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        taken.append(line)
    return taken


def _describe_structure(text: str) -> str:
    """Return the outline of JSON or of a table, or nothing for other text."""
    start = text.lstrip()[:1]
    if start in ("{", "[") and len(text) <= JSON_LIMIT:
        try:
            return "JSON: " + _outline_json(json.loads(text), 2)
        except (ValueError, RecursionError):
            return ""
    first = text[:4_000].splitlines()[:3]
    for separator in ("\t", ",", "|", ";"):
        counts = {line.count(separator) for line in first}
        if len(first) > 2 and len(counts) == 1 and counts.pop() >= 2:
            return f"Table of {first[0].count(separator) + 1} columns: {_shorten_preview_line(first[0])}"
    return ""


def _outline_json(value: object, depth: int) -> str:
    if isinstance(value, dict):
        keys = list(value)[:MOST_KEYS]
        more = f", … {len(value) - MOST_KEYS} more" if len(value) > MOST_KEYS else ""
        if depth == 0:
            return f"object of {len(value)}"
        return (
            "{"
            + ", ".join(f"{str(key)[:60]}: {_outline_json(value[key], depth - 1)}" for key in keys)
            + more
            + "}"
        )
    if isinstance(value, list):
        return f"list of {len(value)}" + (
            f" x {_outline_json(value[0], depth - 1)}" if value and depth else ""
        )
    return type(value).__name__
