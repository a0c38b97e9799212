"""Writes all details of a fold into one cache entry and back, as plain lines so that an agent can search it."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from helix_desktop.engine.conversation_details import KINDS, WORDS, Detail, sort_details

REFERENCE_LIMIT = 2_000_000  # In characters. A list of details is stored up to this length.
HEADER = "Details kept by Helix Desktop: kind [seq] text"


def format_details_entry(found: Iterable[Detail]) -> str:
    """Writes all details as lines, critical ones first, the index last. If too long, it says what is left out."""
    lines, size, left_out = [HEADER], len(HEADER), 0
    for count, line in _group_into_lines(sort_details(found)):
        size += len(line) + 1
        if size <= REFERENCE_LIMIT:
            lines.append(line)
        else:
            left_out += count
    if left_out:
        lines[0] += f"; {left_out:,} names are left out, and found by search_cached_content"
    return "\n".join(lines) + "\n"


def _group_into_lines(found: Iterable[Detail]) -> Iterator[tuple[int, str]]:
    """Yields each line with its number of details. Words of one message share a line."""
    for (kind, seq, alone), group in groupby(found, _line_key):
        details = list(group)
        if alone:
            yield from ((1, detail.format_reference_line()) for detail in details)
        else:
            yield len(details), f"{kind}s [{seq}] {' '.join(detail.text for detail in details)}"


def _line_key(detail: Detail) -> tuple[str, int, bool]:
    alone = detail.kind not in WORDS or detail.times > 1 or detail.text.split() != [detail.text]
    return detail.kind, detail.seq, alone


_LINE = re.compile(r"(\w+) \[(\d+)(?: x(\d+))?(?: \+(\d+) lines)?\] (.*)")


def parse_details_entry(text: str) -> list[Detail]:
    """Reads the details of an entry and skips every other line."""
    found = []
    lines = iter(text.split("\n")[1:])
    for line in lines:
        match = _LINE.fullmatch(line)
        if match and match.group(1)[:-1] in WORDS and match.group(1).endswith("s"):
            found += [Detail(match.group(1)[:-1], word, int(match.group(2))) for word in match.group(5).split(" ")]
        elif match and match.group(1) in KINDS:
            more = [next(lines, "") for _ in range(int(match.group(4) or 0))]
            said = "\n".join([match.group(5), *more])
            found.append(Detail(match.group(1), said, int(match.group(2)), int(match.group(3) or 1)))
    return found
