"""What a reply uses that the view no longer shows, and the pages that bring it back.

A miss is known by use: the recorded reply names an identifier or a path, or a call in it repeats a line, that stood in the
session and stands nowhere in the view. A word of ordinary prose is no identifier: it has a joint in it. Where an entry that
the view names holds it, the agent recalls that entry and reads it from the beginning, page after page as the tool hands them
out: it does not know the line. Where only a summary stands for it, it searches first. Nothing here asks what the engine
thinks it kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest

from helix_desktop.engine.blocks import Block, Role
from helix_desktop.engine.ports import Tokens
from helix_desktop.engine.recall import LINES_TOKENS, PAGE_TOKENS, page
from helix_desktop.histories.recording import RecordedMessage, texts
from helix_desktop.replay.losses import plain
from helix_desktop.replay.retention import IDENTIFIER

LINE = (24, 300)  # characters of a line that is told from others by its words
MOST_PAGES = 3  # an agent reads for one reply
_JOINT = re.compile(r"\w[_./]\w|[a-z][A-Z]|[A-Za-z]\d|\d[A-Za-z]")
_NUMBER = re.compile(r"\s*\d+[\t|:→]\s?")  # that tools put before a line

Uses = frozenset[str]


@dataclass(frozen=True, slots=True)
class Page:
    """A page as the tool hands it out. `lines`: what is asked for, nothing for the first page. `named`: the view names the
    entry, so that no search is needed.
    """

    entry: str
    lines: str
    text: str
    holds: Uses
    named: bool


class Misses:
    """The account of one session. `show` takes each step's view, `of` what the reply to it misses."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._earlier: set[str] = set()
        self._said: dict[str, str] = {}  # every text of the session, by a name of its own
        self._shown: dict[int, tuple[Block, Uses]] = {}
        self._counts: Counter[str] = Counter()
        self._found: dict[str, Uses] = {}
        self._pages: dict[str, list[tuple[str, str]]] = {}

    def heard(self, message: RecordedMessage) -> None:
        """A message of the session: what it says has stood there from now on."""
        for text in texts(message):
            self._earlier |= self.uses(text)
            if text.strip():
                self._said[f"message {len(self._said)}"] = text

    def show(self, blocks: Iterable[Block], says: Callable[[Block], str]) -> None:
        """The view the next reply is made from."""
        now = {id(block): block for block in blocks if block.role is not Role.SYSTEM}
        for key in self._shown.keys() - now.keys():
            self._counts.subtract(self._shown.pop(key)[1])
        for key in now.keys() - self._shown.keys():
            self._shown[key] = (now[key], self.uses(says(now[key])))
            self._counts.update(self._shown[key][1])

    def of(self, reply: RecordedMessage) -> set[str]:
        """What the reply uses, had stood in the session, and stands nowhere in the view."""
        return {one for one in self.used(reply) if self._counts[one] <= 0}

    def used(self, reply: RecordedMessage) -> set[str]:
        """What the reply uses of what had stood in the session."""
        used: set[str] = set()
        for text in texts(reply):
            used |= self.uses(text)
        used -= {line for line in self.uses(reply.text) if " " in line}  # what it says to the person it can say anew
        return used & self._earlier

    def pages(self, missed: set[str], entries: Sequence[tuple[str, str]], *, summarised: bool) -> list[Page]:
        """The pages that are read for it, in order, of the entries the view names (name and text); where a summary stands
        in the view, of everything it may stand for as well.
        """
        chosen, left = self._chosen(missed, entries, MOST_PAGES, named=True)
        if left and summarised and len(chosen) < MOST_PAGES:
            behind = [(name, text) for name, text in self._said.items()]
            chosen += self._chosen(left, behind, MOST_PAGES - len(chosen), named=False)[0]
        return chosen

    def _chosen(
        self, missed: set[str], entries: Sequence[tuple[str, str]], most: int, *, named: bool
    ) -> tuple[list[Page], set[str]]:
        """Entry after entry, each time the one that holds the most of what is missed, of equal ones the shortest."""
        left = set(missed)
        holding = [(name, text) for name, text in entries if not left.isdisjoint(self.uses(text))]
        every = [(self._pages_of(name, text, named=named), len(text)) for name, text in holding]
        chosen: list[Page] = []
        while left and every and len(chosen) < most:
            best = max(every, key=lambda one: (sum(len(page.holds & left) for page in one[0]), -one[1]))
            every.remove(best)
            read = _read(best[0], left) if named else _found(best[0], left)
            chosen += read[: most - len(chosen)]
            left = left.difference(*(page.holds for page in chosen))
        return chosen, left

    def _pages_of(self, name: str, text: str, *, named: bool) -> list[Page]:
        if name not in self._pages:
            self._pages[name] = list(_cut(self._tokens, text.split("\n")))
        return [Page(name, lines, said, self.uses(said), named) for lines, said in self._pages[name]]

    def uses(self, text: str) -> Uses:
        """Identifiers and paths of a text, and its lines as they are without numbers and indentation."""
        if text not in self._found:
            values = plain(text)
            lines = (_NUMBER.sub("", line, count=1).strip() for line in values.splitlines())
            named = (name for found in IDENTIFIER.findall(values) if _JOINT.search(name := found.rstrip("./-")))
            self._found[text] = frozenset((*named, *(line for line in lines if LINE[0] <= len(line) <= LINE[1])))
        return self._found[text]


def rounds(pages: Sequence[Page]) -> list[list[Page]]:
    """What is asked for at once: the first page of every entry, then the second of every entry."""
    entries = [list(group) for _, group in groupby(pages, lambda page: page.entry)]
    return [[page for page in at if page] for at in zip_longest(*entries)]


def _read(pages: Sequence[Page], missed: set[str]) -> list[Page]:
    """From the beginning up to the last page that is needed; of what lies too far in, the first page and the lines."""
    left, needed = set(missed), list[int]()
    for number, one in enumerate(pages, 1):
        if not left.isdisjoint(one.holds):
            left -= one.holds
            needed.append(number)
    if needed and needed[-1] > MOST_PAGES:
        return [pages[0], *(pages[number - 1] for number in needed if number > 1)]
    return list(pages[: max(needed, default=0)])


def _found(pages: Sequence[Page], missed: set[str]) -> list[Page]:
    """The page a search would lead to, with what is looked for in it."""
    best = max(pages, key=lambda page: len(page.holds & missed))
    return [replace(best, holds=best.holds & missed)] if best.holds & missed else []


def _cut(tokens: Tokens, lines: Sequence[str]) -> Iterable[tuple[str, str]]:
    """The pages of a text, each with the lines that are asked for: as the tool says how to go on. An agent
    does not read on for ever: what lies behind `MOST_PAGES` it asks for by the lines.
    """
    first = number = 1
    while first <= len(lines):
        size = PAGE_TOKENS if number <= MOST_PAGES else LINES_TOKENS
        text, last = page(tokens, lines[first - 1 : first + 2_000], first, size)
        yield "" if number == 1 else f"{first}-" if number <= MOST_PAGES else f"{first}-{last}", text
        first, number = last + 1, number + 1
