"""The text of a document, as one text with a line before each page, and pages taken out of it.

The text is what a model is sent, what is searched and what is counted. Its first line says which
stored entry the original is.
"""

import math
import re
from collections.abc import Sequence

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput, format_things
from helix_desktop.fast_dataclass import dataclass

_HEAD = re.compile(r"\[Text of the document (.+)\. The original: ([0-9a-f]{64})\]\n")
# Its groups: what a page is called, its number, and its title if it has one.
_PAGE_LINE = re.compile(r"^=== (page|sheet|slide|chapter|section|cell|part) (\d+) of \d+(?:: (.*))? ===$", re.MULTILINE)  # fmt: skip
_PAGE_LINE_END = " ==="
_PAGE_RANGE = re.compile(r"(\d{1,9})(?:\s*(?:-|–|to)\s*(\d{1,9}))?")
PLURALS = {
    "page": "pages",
    "sheet": "sheets",
    "slide": "slides",
    "chapter": "chapters",
    "section": "sections",
    "cell": "cells",
    "part": "parts",
}
TOKENS_OF_A_LINE = 30  # A line of an outline has about this many.
FEWEST_OUTLINE_LINES = 10
_BEGINNING = 100  # Characters of a page in an outline.
MOST_PAGES_ASKED = 10_000


@dataclass(frozen=True, slots=True)
class PageText:
    """A page's own text in a document's text. `start` and `end` include its line."""

    number: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A document's text, taken apart. `unit` is what a page is called."""

    description: str
    original: Digest
    unit: str
    pages: tuple[PageText, ...]


@dataclass(frozen=True, slots=True)
class PageStart:
    """Where a page begins in a document's text. `unit` is what it is called, such as "page"."""

    position: int
    unit: str
    number: int


def format_document_text(
    name: str, unit: str, unit_count: int, original: Digest, pages: Sequence[tuple[str, str]]
) -> str:
    """Return the text of a document from the titles and texts of its pages."""
    counted = format_things(unit_count, unit, PLURALS[unit])
    page_word = unit
    if len(pages) != unit_count:
        page_word = "part"
    lines = [f"[Text of the document {_one_line(name)}, {counted}. The original: {original.hex}]\n"]
    for number, (title, text) in enumerate(pages, 1):
        lines.append(_format_page(page_word, number, len(pages), title, text))
    return "\n".join(lines)


def parse_document_text(text: str) -> DocumentText | None:
    """Take a document's text apart, or return None for any other text."""
    head = _HEAD.match(text)
    if head is None:
        return None
    page_lines = list(_PAGE_LINE.finditer(text))
    unit = "page"
    if page_lines:
        unit = page_lines[0][1]
    # A page ends where the next one begins, and the last one with the text.
    page_ends = [page_line.start() for page_line in page_lines[1:]]
    page_ends.append(len(text))
    pages: list[PageText] = []
    for page_line, page_end in zip(page_lines, page_ends, strict=False):
        number = int(page_line[2])
        title = page_line[3] or ""
        body = text[page_line.end() : page_end].strip("\n")
        pages.append(PageText(number, title, body))
    description = head[1]
    original = Digest.from_hex(head[2])
    return DocumentText(description, original, unit, tuple(pages))


def list_page_starts(text: str) -> tuple[PageStart, ...]:
    """Return where the pages begin. Empty for a text that is no document's."""
    if not text.startswith("["):
        return ()
    starts: list[PageStart] = []
    for page_line in _PAGE_LINE.finditer(text):
        page_number = int(page_line[2])
        starts.append(PageStart(page_line.start(), page_line[1], page_number))
    return tuple(starts)


def blank_lines_of_form(text: str) -> str:
    """Return a document's text with blanks in place of its first line and of the line before each
    page, which nobody wrote. All else stays where it was. Any other text is returned as it is.
    """
    if not list_page_starts(text):
        return text
    first_line_end = max(text.find("\n"), 0)
    rest = _PAGE_LINE.sub(_blanks_and_title, text[first_line_end:])
    return " " * first_line_end + rest


def _blanks_and_title(page_line: re.Match[str]) -> str:
    title = page_line[3] or ""
    return title.rjust(len(page_line[0]) - len(_PAGE_LINE_END)) + " " * len(_PAGE_LINE_END)


def parse_page_numbers(asked: str, count: int) -> list[int]:
    """Return the pages that "3-7, 9" names. Raises InvalidInput for anything else."""
    numbers: dict[int, None] = {}  # Each once, in the order in which they are named.
    for piece in asked.split(","):
        page_range = piece.strip()
        if not page_range:
            continue
        match = _PAGE_RANGE.fullmatch(page_range)
        if match is None:
            raise InvalidInput(f'"{asked[:60]}" does not name pages. Write them as 3-7 or 3, 9.')
        first = int(match[1])
        last = int(match[2] or first)
        if not 1 <= first <= last or first > count:
            raise InvalidInput(f"There is no page {page_range[:20]}; the last one is {count}.")
        for number in range(first, min(last, count) + 1):
            numbers[number] = None
    if not numbers:
        raise InvalidInput("No page was named. Write pages as 3-7 or 3, 9.")
    return list(numbers)


def format_chosen_pages(document: DocumentText, numbers: Sequence[int]) -> str:
    """Return the text of a document with only these pages."""
    chosen_numbers = set(numbers)
    page_count = len(document.pages)
    lines = [f"[{document.description}]\n"]
    for page in document.pages:
        if page.number in chosen_numbers:
            lines.append(
                _format_page(document.unit, page.number, page_count, page.title, page.text)
            )
    return "\n".join(lines)


def format_document_outline(document: DocumentText, source: str, most_tokens: int) -> str:
    """Return an outline: each page's title or first words with its size, and how to read it."""
    pages = document.pages
    most_lines = max(most_tokens // TOKENS_OF_A_LINE, FEWEST_OUTLINE_LINES)
    # A book of 2,000 pages is outlined by groups of pages.
    group_size = max(1, math.ceil(len(pages) / most_lines))
    call = f'read_document (with call_tool): document "{source}", pages "3-7"'
    lines = [
        f"[{document.description}. This is its outline. To read some of it, call {call}.]",
    ]
    for start in range(0, len(pages), group_size):
        group = pages[start : start + group_size]
        lines.append(_describe_page_group(document.unit, group))
    return "\n".join(lines)


def _describe_page_group(unit: str, group: Sequence[PageText]) -> str:
    """Return a line with the numbers of these pages, their words and their first title, or the
    beginning of their text if none has a title.
    """
    first_page = group[0]
    numbers = str(first_page.number)
    if len(group) > 1:
        numbers += f"-{group[-1].number}"
    word_count = 0
    for page in group:
        word_count += len(page.text.split())
    titles = [page.title for page in group if page.title]
    if titles:
        title = titles[0]
    else:
        title = _beginning(first_page.text)
    return f"{unit} {numbers} ({word_count:,} words): {title}"


def _format_page(unit: str, number: int, count: int, title: str, text: str) -> str:
    heading = f"{unit} {number} of {count}"
    if title:
        heading += f": {_one_line(title)}"
    # A document cannot pretend to have other pages than it has.
    body = _PAGE_LINE.sub(lambda line: f" {line[0]}", text.strip("\n"))
    return f"=== {heading} ===\n{body}\n"


def _beginning(text: str) -> str:
    return _one_line(text[: _BEGINNING * 2])[:_BEGINNING]


def _one_line(text: str) -> str:
    return " ".join(text.split())
