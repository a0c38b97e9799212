"""Writes the details that a document must not lose as an entry of the cache, and reads them back.

A line is `kind [seq] text`. Names, paths and addresses of one message share a line. A
later handover inherits the details from its entry, without reading the messages again.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from helix_desktop.engine import conversation_details
from helix_desktop.engine.conversation_details import KINDS, WORDS, Detail, sort_details
from helix_desktop.engine.sha256_digest import Digest

HEADER = "Details kept by Helix Desktop: kind [seq] text"
_LINE = re.compile(r"(\w+) \[(\d+)(?: x(\d+))?(?: \+(\d+) lines)?\] (.*)")


def format_details_entry(details: Iterable[Detail], index: Digest | None = None) -> str:
    """Format details as lines, critical ones first and names last, and note what is
    left out or in another entry.
    """
    lines: list[str] = []
    size = len(HEADER)
    left_out = 0
    for count, line in _format_lines_with_detail_counts(sort_details(details)):
        size += len(line) + 1
        if size <= conversation_details.REFERENCE_LIMIT:
            lines.append(line)
        else:
            left_out += count
    header = HEADER
    if left_out:
        header += f"; {left_out:,} names are left out, and found by search_cached_content"
    if index is not None:
        recall = f'recall_cached_content("{index.hex}")'
        header += f"; names in outputs that were seen as excerpts: {recall}"
    return "\n".join([header, *lines]) + "\n"


def _format_lines_with_detail_counts(details: Iterable[Detail]) -> Iterator[tuple[int, str]]:
    """Yield the number of details in each line, and the line. Words of one message share a line."""
    for (kind, seq, is_alone), group in groupby(details, _key_of_shared_line):
        if is_alone:
            for detail in group:
                yield 1, detail.format_reference_line()
        else:
            words = [detail.text for detail in group]
            yield len(words), f"{kind}s [{seq}] {' '.join(words)}"


def _key_of_shared_line(detail: Detail) -> tuple[str, int, bool]:
    is_one_word = detail.kind in WORDS and detail.text.split() == [detail.text]
    return detail.kind, detail.seq, detail.times > 1 or not is_one_word


def parse_details_entry(text: str) -> list[Detail]:
    """Parse the details of an entry, skipping other lines."""
    details = []
    lines = iter(text.split("\n")[1:])
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        kind, seq, times, more_lines, said = match.groups()
        word_kind = kind.removesuffix("s")
        if word_kind != kind and word_kind in WORDS:
            details += [Detail(word_kind, word, int(seq)) for word in said.split(" ")]
        elif kind in KINDS:
            more = [next(lines, "") for _ in range(int(more_lines or 0))]
            details.append(Detail(kind, "\n".join([said, *more]), int(seq), int(times or 1)))
    return details
