"""Draws sentences of the README, the help, the manual page and SECURITY.md, for somebody
who checks by doing whether each of them is true.

`python -m tests.benchmarks.sentence_draw [COUNT] [SEED]` prints each drawn sentence with
its file and line. Not every sentence can be checked (a heading, a definition, advice):
who checks takes the next one instead, so ask for more than are needed.

The seed was committed before anybody looked at a sentence that it draws.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEED = 75_281_128
COUNT = 300
ROOT = Path(__file__).parents[2]
MANUAL_PAGE = ROOT / "packaging" / "linux" / "helix-desktop.1"

# These pages are made of measurements, and tests compare them with those.
COMPUTED_PAGES = ("figures.md",)

FEWEST_WORDS = 4
END_OF_SENTENCE = re.compile(r"(?<=[.!?])[)*”\"]*\s+(?=[A-Z`“(*\[\"])")
# A heading, the line below a table's heading, a picture or a comment says nothing.
NO_SENTENCE = re.compile(r"#|\|[-:| ]+\|$|!\[|<!--")


@dataclass(frozen=True)
class Sentence:
    file: str
    line: int
    words: str


def main() -> None:
    count = COUNT
    seed = SEED
    if len(sys.argv) > 1:
        count = int(sys.argv[1])
    if len(sys.argv) > 2:
        seed = int(sys.argv[2])
    for number, sentence in enumerate(draw_sentences(count, seed), 1):
        sys.stdout.write(f"{number}\t{sentence.file}:{sentence.line}\t{sentence.words}\n")


def draw_sentences(count: int, seed: int) -> list[Sentence]:
    """Every sentence has the same chance, however long its page is."""
    sentences = list(list_sentences())
    return random.Random(seed).sample(sentences, min(count, len(sentences)))


def list_sentences() -> Iterator[Sentence]:
    help_pages = sorted((ROOT / "resources" / "help").glob("*.md"))
    for path in [ROOT / "README.md", ROOT / "SECURITY.md", *help_pages]:
        if path.name not in COMPUTED_PAGES:
            yield from list_markdown_sentences(path)
    yield from list_manual_page_sentences()


def list_markdown_sentences(path: Path) -> Iterator[Sentence]:
    """A line of these pages is a paragraph, an item of a list or a row of a table, which
    counts as one sentence; so does a line of a command that is shown.
    """
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if NO_SENTENCE.match(line):
            continue
        parts = [line]
        if not line.startswith("|"):
            parts = END_OF_SENTENCE.split(line)
        for part in parts:
            if len(part.split()) >= FEWEST_WORDS:
                yield Sentence(str(path.relative_to(ROOT)), number, part.strip())


def list_manual_page_sentences() -> Iterator[Sentence]:
    """A sentence of the manual page may go on over several lines of its source."""
    paragraph: list[str] = []
    begins_at = 0
    # The last line ends the last paragraph.
    lines = [*MANUAL_PAGE.read_text("utf-8").splitlines(), ".PP"]
    for number, line in enumerate(lines, 1):
        is_text = not line.startswith(".") or line.startswith((".B ", ".BR ", ".I "))
        if is_text:
            begins_at = begins_at or number
            paragraph.append(line)
            continue
        for part in END_OF_SENTENCE.split(" ".join(paragraph)):
            if len(part.split()) >= FEWEST_WORDS:
                yield Sentence(str(MANUAL_PAGE.relative_to(ROOT)), begins_at, part.strip())
        paragraph = []
        begins_at = 0


if __name__ == "__main__":
    main()
