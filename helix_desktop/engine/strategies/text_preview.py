"""Builds a preview of a long text: first and last lines, errors, and lines about the
call's purpose.

It also shows the structure: keys, columns, headings, signatures with line numbers. It
has about as many tokens as asked for, even of 5 MB in one line, a million spaces, NULs
or escape codes. Names are listed only if there are no useful lines.
"""

import asyncio
import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from helix_desktop.engine.conversation_details import find_error_lines
from helix_desktop.fast_dataclass import dataclass

NAMES_READ = 400_000  # Only this many characters at the beginning of a text are searched for names.
AT_ONCE = 1 << 15  # Searching more characters at once would block other threads.
MOST_NAMES = 200
_LONG_NAME = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][\w./-]{9,80}")  # no end of a word


def find_frequent_names(text: str, most_characters: int) -> str:
    """Return the most frequent long identifiers and paths, in at most this many characters."""
    counts: Counter[str] = Counter()
    searched_characters = min(len(text), NAMES_READ)
    for start in range(0, searched_characters, AT_ONCE):
        end = min(start + AT_ONCE, searched_characters)
        for match in _LONG_NAME.finditer(text, start, end):
            name = match.group().rstrip("./-")
            counts[name] += 1

    listed_names: list[str] = []
    free_characters = most_characters
    for name, _ in counts.most_common(MOST_NAMES):
        needed_characters = len(name) + len(", ")
        if needed_characters <= free_characters:
            listed_names.append(name)
            free_characters -= needed_characters
    return ", ".join(listed_names)


CHARACTERS_PER_TOKEN = 3.2  # A cautious estimate of how many characters make a token.
# The first and the last lines may take these percentages of the preview.
HEAD_PERCENT = 30
TAIL_PERCENT = 20
NAMES_PERCENT = 30  # If a text has no useful lines, names may take this percentage of the preview.
# Of the lines from the middle, the groups may take these percentages.
ERRORS_PERCENT = 20
PURPOSE_PERCENT = 15
SIGNATURES_PERCENT = 35
LINES_READ = 20_000
# The most function signatures shown, and the most characters of each.
MOST_SIGNATURES = 40
LONGEST_SIGNATURE = 90
LONGEST_LINE = 240  # Lines are cut to this many characters.
WIDE_GAP = " " * 8  # Longer gaps in a line are shortened to this width.
MOST_ERRORS = 12
IN_A_THREAD = 1 << 15  # Previews of texts with more characters are built in a thread.
MOST_KEYS = 12
MOST_NAMES_OF_PURPOSE = 20
FEW_SIGNATURES = 4  # An outline of a text with fewer headings or signatures lists ranges of lines.
MOST_RANGES = 8
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


@dataclass(frozen=True, slots=True)
class _TextEnds:
    """Non-empty lines from the beginning and, of those after them, from the end of a text.
    `line_count`: how many it has in all.
    """

    first_lines: list[str]
    last_lines: list[str]
    line_count: int


@dataclass(frozen=True, slots=True)
class _LineGroup:
    """Lines of a preview under a title, which may take `percent` of its room."""

    title: str
    lines: Iterable[str]
    percent: int


def build_preview(text: str, tokens: int, purpose: str = "") -> str:
    """Return what matters of a text in about so many tokens: what it consists of, its first and
    last lines, and between them the most informative lines of the middle.

    `purpose`: the call's arguments, and what was said before it.
    """
    preview_characters = int(tokens * CHARACTERS_PER_TOKEN)
    # Of a very long text, the middle is not searched.
    searched = text
    if len(text) > JSON_LIMIT:
        beginning = text[: JSON_LIMIT // 2]
        end = text[-JSON_LIMIT // 2 :]
        searched = f"{beginning}\n{end}"

    ends = _read_ends(searched, preview_characters)
    head = _lines_that_fit(ends.first_lines, preview_characters * HEAD_PERCENT // 100)
    lines_behind_head = ends.first_lines[len(head) :] + ends.last_lines
    tail = _last_lines_that_fit(lines_behind_head, preview_characters * TAIL_PERCENT // 100)
    left_out_count = ends.line_count - len(head) - len(tail)

    middle: list[str] = []
    if left_out_count > 0:
        shown_lines = set(head) | set(tail)
        informative_lines = _most_informative_lines(
            searched, purpose, shown_lines, preview_characters
        )
        middle = [f"[… {left_out_count:,} lines left out …]", *informative_lines]
        # Without a title, the last lines would seem to belong to the list before them.
        if tail and informative_lines:
            middle.append("Last lines:")
    elif not tail and len(searched) > preview_characters:
        middle = _line_of_frequent_names(searched, preview_characters)

    rows = [*head, *middle, *tail]
    structure = _describe_structure(text)
    if structure:
        rows.insert(0, structure)
    return "\n".join(rows) or "(nothing but space)"


def _last_lines_that_fit(lines: Sequence[str], characters: int) -> list[str]:
    """Return as many of the last lines as fit, in their order."""
    backwards = _lines_that_fit(list(reversed(lines)), characters)
    backwards.reverse()
    return backwards


def _most_informative_lines(
    text: str, purpose: str, shown_lines: set[str], preview_characters: int
) -> list[str]:
    """Return lines from the middle: errors, the call's purpose and structure, each once."""
    error_lines = map(_shorten_preview_line, find_error_lines(text))
    errors = _lines_not_shown_yet(error_lines, shown_lines)
    most_characters_of_errors = preview_characters * ERRORS_PERCENT // 100
    fitting_errors = _lines_that_fit(errors[-MOST_ERRORS:], most_characters_of_errors)
    errors_title = "Lines that look like errors:"
    if len(fitting_errors) < len(errors):
        # Without a count, the last error that is shown seems to be the last one of the text.
        of_all = f"({len(fitting_errors)} of {len(errors)} found)"
        errors_title = f"Lines that look like errors {of_all}:"

    lines_about_purpose = _lines_about_purpose(text, purpose)
    groups = (
        _LineGroup(errors_title, fitting_errors, ERRORS_PERCENT),
        _LineGroup("Lines about what was asked for:", lines_about_purpose, PURPOSE_PERCENT),
        _LineGroup("In it, by line:", _headings_and_signatures(text), SIGNATURES_PERCENT),
    )
    rows: list[str] = []
    shown_so_far = set(shown_lines)
    for group in groups:
        candidates = _lines_not_shown_yet(group.lines, shown_so_far)
        lines = _lines_that_fit(candidates, preview_characters * group.percent // 100)
        shown_so_far.update(lines)
        if lines:
            rows.append(group.title)
            rows += lines
    if not rows:
        return _line_of_frequent_names(text, preview_characters)
    return rows


def _lines_not_shown_yet(lines: Iterable[str], shown_lines: set[str]) -> list[str]:
    """Return each line once, and none that is shown already."""
    return [line for line in dict.fromkeys(lines) if line not in shown_lines]


def _line_of_frequent_names(text: str, preview_characters: int) -> list[str]:
    """Return a list with one line that names the most frequent names, or an empty list."""
    names = find_frequent_names(text, preview_characters * NAMES_PERCENT // 100)
    if not names:
        return []
    return [f"Names in it: {names}"]


def _lines_about_purpose(text: str, purpose: str) -> Iterator[str]:
    """Yield the lines that contain a name mentioned in the purpose, with their numbers."""
    names = {word for word in _WORD.findall(purpose) if _NAME.search(word)}
    if not names:
        return
    longest_names = sorted(names, key=len, reverse=True)[:MOST_NAMES_OF_PURPOSE]
    escaped_names = [re.escape(name) for name in longest_names]
    any_name = re.compile("|".join(escaped_names))
    first_lines = islice(_LINE.finditer(text), LINES_READ)
    for number, match in enumerate(first_lines, 1):
        line = match.group()
        if any_name.search(line):
            shown_line = _shorten_preview_line(line.strip())
            yield f"{number}: {shown_line}"


def _headings_and_signatures(text: str) -> Iterator[str]:
    """Yield headings and signatures with their line numbers, by which parts can be recalled."""
    lines = text.split("\n", LINES_READ)[:LINES_READ]
    signatures = list(_numbered_signatures(lines))
    # Of many, some from the whole text are shown, not only those at its beginning.
    stride = max(1, len(signatures) // MOST_SIGNATURES)
    yield from signatures[::stride]


def _numbered_signatures(lines: Sequence[str], first: int = 1) -> Iterator[str]:
    """Yield headings and signatures from line `first` on, with their line numbers."""
    for number, line in enumerate(lines, 1):
        if number >= first and _SIGNATURE.match(line):
            signature = _strip_line_number(line)
            yield f"{number}: {signature[:LONGEST_SIGNATURE]}"


def outline_text(text: str, first: int, tokens: int) -> str:
    """Return headings and signatures from line `first` on, or ranges if there are too few."""
    most_characters = int(tokens * CHARACTERS_PER_TOKEN)
    lines = text.split("\n", LINES_READ)[:LINES_READ]
    rows = list(_numbered_signatures(lines, first))
    if len(rows) < FEW_SIGNATURES:
        rows = _outline_ranges(lines, first)
    # Of too many rows, some from the whole text are shown.
    needed_characters = sum(len(row) + len("\n") for row in rows)
    stride = max(1, math.ceil(needed_characters / most_characters))
    return "\n".join(_lines_that_fit(rows[::stride], most_characters))


def _outline_ranges(lines: Sequence[str], first: int) -> list[str]:
    """Return the first line of each of a few ranges from line `first` on."""
    last = len(lines)
    line_count = last - first + 1
    lines_in_range = max(1, math.ceil(line_count / MOST_RANGES))
    rows: list[str] = []
    for range_start in range(first, last + 1, lines_in_range):
        range_end = min(range_start + lines_in_range - 1, last)
        first_line = _first_nonblank_line(lines[range_start - 1 : range_end])
        rows.append(f"{range_start}-{range_end}: {first_line}")
    return rows


def _first_nonblank_line(lines: Sequence[str]) -> str:
    for line in lines:
        if line.strip():
            return _shorten_preview_line(line).strip()[:LONGEST_SIGNATURE]
    return ""


def _strip_line_number(line: str) -> str:
    """Return a line without the number a tool has put before it."""
    return re.sub(r"^\s*\d+[\t|:→]\s?", "", line).strip()


async def build_preview_in_thread(text: str, tokens: int, purpose: str = "") -> str:
    if len(text) < IN_A_THREAD:
        return build_preview(text, tokens, purpose)
    return await asyncio.to_thread(build_preview, text, tokens, purpose)


def _read_ends(text: str, preview_characters: int) -> _TextEnds:
    """Read more non-empty lines from each end than a preview of so many characters can have."""
    most_lines = max(preview_characters, 1)
    first_lines: list[str] = []
    last_lines: deque[str] = deque(maxlen=most_lines)
    line_count = 0
    for line in _nonblank_preview_lines(text):
        if line_count < most_lines:
            first_lines.append(line)
        else:
            last_lines.append(line)
        line_count += 1
    return _TextEnds(first_lines, list(last_lines), line_count)


def _nonblank_preview_lines(text: str) -> Iterator[str]:
    for match in _LINE.finditer(text):
        line = _shorten_preview_line(match.group())
        if line.strip():
            yield line


def _shorten_preview_line(line: str) -> str:
    """Return a line without control characters and wide gaps, cut if it is too long."""
    # Of 5 MB in one line, only what may be shown is worked on.
    shortened = line[: LONGEST_LINE * 4]
    if not shortened.isprintable():
        shortened = _ESCAPES.sub("", shortened)
    shortened = shortened.rstrip()
    if WIDE_GAP in shortened:
        shortened = re.sub(r" {8,}", WIDE_GAP, shortened)
    if len(shortened) <= LONGEST_LINE:
        return shortened
    room_for_size = len("… (5,000 characters)")
    return f"{shortened[: LONGEST_LINE - room_for_size]}… ({len(line):,} characters)"


def _lines_that_fit(lines: Sequence[str], most_characters: int) -> list[str]:
    """Return the first lines, as many as fit with their line ends."""
    fitting_lines: list[str] = []
    free_characters = most_characters
    for line in lines:
        free_characters -= len(line) + len("\n")
        if free_characters < 0:
            break
        fitting_lines.append(line)
    return fitting_lines


def _describe_structure(text: str) -> str:
    """Return the outline of JSON or of a table, or nothing for other text."""
    may_be_json = text.lstrip()[:1] in ("{", "[")
    if may_be_json and len(text) <= JSON_LIMIT:
        try:
            outline = _outline_json(json.loads(text), depth=2)
        except (ValueError, RecursionError):
            return ""
        return f"JSON: {outline}"
    return _describe_table(text)


def _describe_table(text: str) -> str:
    """Return the columns if the first lines of a text are rows with the same separators."""
    first_lines = text[:4_000].splitlines()[:3]
    if len(first_lines) < 3:
        return ""
    for separator in ("\t", ",", "|", ";"):
        counts = {line.count(separator) for line in first_lines}
        separator_count = first_lines[0].count(separator)
        has_same_count_in_each_line = len(counts) == 1
        # One comma in each of three lines is more often prose than a table.
        if has_same_count_in_each_line and separator_count >= 2:
            header = _shorten_preview_line(first_lines[0])
            return f"Table of {separator_count + 1} columns: {header}"
    return ""


def _outline_json(value: object, depth: int) -> str:
    """Describe a value by its type. `depth`: how many levels within it are described, too."""
    if isinstance(value, dict):
        return _outline_object(value, depth)
    if isinstance(value, list):
        if not value or depth == 0:
            return f"list of {len(value)}"
        return f"list of {len(value)} x {_outline_json(value[0], depth - 1)}"
    return type(value).__name__


def _outline_object(value: Mapping[str, object], depth: int) -> str:
    if depth == 0:
        return f"object of {len(value)}"
    rows: list[str] = []
    for key in list(value)[:MOST_KEYS]:
        rows.append(f"{key[:60]}: {_outline_json(value[key], depth - 1)}")
    if len(value) > MOST_KEYS:
        rows.append(f"… {len(value) - MOST_KEYS} more")
    return "{" + ", ".join(rows) + "}"
