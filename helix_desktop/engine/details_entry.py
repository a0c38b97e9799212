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

HEADER = "Details kept from the conversation, each as: kind [message] text"
_LINE = re.compile(r"(\w+) \[(\d+)(?: x(\d+))?(?: \+(\d+) lines)?\] (.*)")


def format_details_entry(details: Iterable[Detail], index: Digest | None = None) -> str:
    """Format details as lines, critical ones first and names last, and note what is
    left out or in another entry.
    """
    lines: list[str] = []
    characters = len(HEADER)
    left_out_count = 0
    for detail_count, line in _format_lines_with_detail_counts(sort_details(details)):
        characters += len(line) + len("\n")
        if characters <= conversation_details.REFERENCE_LIMIT:
            lines.append(line)
        else:
            left_out_count += detail_count
    header = HEADER
    if left_out_count:
        header += f"; {left_out_count:,} names are left out, and found by search_cached_content"
    if index is not None:
        recall = f'recall_cached_content("{index.hex}")'
        header += f"; names in outputs that were seen as excerpts: {recall}"
    lines.insert(0, header)
    lines.append("")
    return "\n".join(lines)


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
    """Return the kind, the message, and whether the detail needs a line of its own."""
    is_one_word = detail.kind in WORDS and detail.text.split() == [detail.text]
    is_repeated = detail.times > 1
    return detail.kind, detail.seq, is_repeated or not is_one_word


def parse_details_entry(text: str) -> list[Detail]:
    """Parse the details of an entry, skipping other lines."""
    details: list[Detail] = []
    lines = text.split("\n")
    line_number = 1  # The first line is the header.
    while line_number < len(lines):
        match = _LINE.fullmatch(lines[line_number])
        line_number += 1
        if match is None:
            continue
        kind, seq_digits, times_digits, more_line_digits, first_line = match.groups()
        seq = int(seq_digits)
        word_kind = kind.removesuffix("s")
        if word_kind != kind and word_kind in WORDS:
            details += [Detail(word_kind, word, seq) for word in first_line.split(" ")]
        elif kind in KINDS:
            times = int(times_digits or 1)
            more_line_count = int(more_line_digits or 0)
            end_of_detail = line_number + more_line_count
            lines_of_detail = [first_line]
            lines_of_detail += lines[line_number:end_of_detail]
            line_number = end_of_detail
            text_of_detail = "\n".join(lines_of_detail)
            details.append(Detail(kind, text_of_detail, seq, times))
    return details
