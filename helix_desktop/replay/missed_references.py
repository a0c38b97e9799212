"""What a reply uses that the view no longer shows, and the pages that bring it back.

A miss is known by use: the recorded reply names an identifier or a path, or a call in it repeats a line, that stood in the
session and stands nowhere in the view, not even inside a longer path or line. A word of ordinary prose is no identifier: it
has a joint in it. `RecallMode` says how the agent gets it back. Nothing here asks what the engine thinks it kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice

from helix_desktop.engine import passages
from helix_desktop.engine.blocks import Block
from helix_desktop.engine.content_recall import LINES_TOKENS, PAGE_TOKENS, cut_to_page
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.recorded_session import RecordedMessage, message_texts
from helix_desktop.replay.lost_details import text_without_escapes
from helix_desktop.replay.retention import IDENTIFIER

LINE = (24, 300)  # characters of a line that is told from others by its words
MOST_WORDS = 12  # an agent asks by
MANY = 12  # more than this is used of an entry: it is read whole
SHORT = 1_500  # characters: what is not longer is read as it is
MOST_PAGES = 3  # an agent reads for one reply
_JOINT = re.compile(r"\w[_./]\w|[a-z][A-Z]|[A-Za-z]\d|\d[A-Za-z]")
_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_NUMBER = re.compile(r"(?<!\s)\s*+\d+[\t|:→]\s?")  # that tools put before a line

Uses = frozenset[str]


class RecallMode(StrEnum):
    """How an agent gets back what it misses."""

    NONE = "none"  # not at all
    NAMED = "named"  # where the view names the entry by its hash: the pages that hold it
    # It does not know where it is. It asks by the words beside it in the reply, as far as the view still shows them, and reads the
    # entry from the beginning where that does not bring it. Where only a summary stands for it, it searches first.
    SEARCHED = "searched"


Asked = tuple[tuple[str, str], ...]  # the arguments of a recall besides the hash


@dataclass(frozen=True, slots=True)
class RecalledPage:
    """A page as the tool hands it out. `asked`: by which words or lines, nothing for the first page. `named`: the view names
    the entry, so that no search is needed.
    """

    entry: str
    asked: Asked
    text: str
    holds: Uses
    named: bool
    round: int = 0  # those of one round are asked for at once

    @property
    def was_found_by_words(self) -> bool:
        return any(name == "find" for name, _ in self.asked)


@dataclass(frozen=True, slots=True)
class _RecallQuery:
    """How an agent asks for what it cannot see: by the words beside it that the view still shows."""

    reply: RecordedMessage
    seen: Uses
    uses: Callable[[str], Uses]

    def words_to_search(self, missed: Uses) -> str:
        lines = [line for text in message_texts(self.reply) for line in text_without_escapes(text).splitlines()]
        beside = [line for line in lines if not missed.isdisjoint(self.uses(line))]
        spoken = (word for line in beside or lines for word in _WORD.findall(line) if word.casefold() in self.seen)
        return " ".join(islice(dict.fromkeys(spoken), MOST_WORDS))


class MissedReferences:
    """The account of one session. `set_shown_view` takes each step's view, `missed_by_reply` what the reply to it misses."""

    def __init__(self, tokens: TokenCounter) -> None:
        self._tokens = tokens
        self._earlier: set[str] = set()
        self._said: dict[str, str] = {}  # every text of the session, by a name of its own
        self._shown: dict[int, tuple[Block, Uses]] = {}
        self._counts: Counter[str] = Counter()
        self._found: dict[str, Uses] = {}
        self._spoken: dict[str, Uses] = {}
        self._pages: dict[str, list[tuple[str, str]]] = {}

    def note_earlier_message(self, message: RecordedMessage) -> None:
        """A message of the session: what it says has stood there from now on."""
        for text in message_texts(message):
            self._earlier |= self.references_in(text)
            if text.strip():
                self._said[f"message {len(self._said)}"] = text

    def set_shown_view(self, blocks: Iterable[Block], says: Callable[[Block], str]) -> None:
        """The view the next reply is made from."""
        now = {id(block): block for block in blocks}
        for key in self._shown.keys() - now.keys():
            self._counts.subtract(self._shown.pop(key)[1])
        for key in now.keys() - self._shown.keys():
            self._shown[key] = (now[key], self.references_in(says(now[key])))
            self._counts.update(self._shown[key][1])

    def missed_by_reply(self, reply: RecordedMessage) -> set[str]:
        """What the reply uses, had stood in the session, and stands nowhere in the view."""
        return {one for one in self.references_used_by(reply) if self._counts[one] <= 0}

    def references_used_by(self, reply: RecordedMessage) -> set[str]:
        """What the reply uses of what had stood in the session."""
        used: set[str] = set()
        for text in message_texts(reply):
            used |= self.references_in(text)
        used -= {
            line for line in self.references_in(reply.text) if " " in line
        }  # what it says to the person it can say anew
        return used & self._earlier

    def pages_to_recall(
        self,
        missed: set[str],
        reply: RecordedMessage,
        entries: Sequence[tuple[str, str]],
        view: Iterable[str],
        *,
        summarised: bool,
        recalls: RecallMode = RecallMode.SEARCHED,
    ) -> list[RecalledPage]:
        """The pages that are read for it, in order, of the entries the view names (name and text); where the agent searches and
        a summary stands in the view, of everything it may stand for as well. `view`: what the view says.
        """
        searches = recalls is RecallMode.SEARCHED
        asks = (
            _RecallQuery(reply, frozenset().union(*map(self._words_in, view)), self.references_in) if searches else None
        )
        chosen, left = self._choose_pages(missed, asks, entries, MOST_PAGES, named=True)
        if left and summarised and searches and len(chosen) < MOST_PAGES:
            behind = [(name, text) for name, text in self._said.items()]
            chosen += self._choose_pages(left, asks, behind, MOST_PAGES - len(chosen), named=False)[0]
        return chosen

    def _choose_pages(
        self, missed: set[str], asks: _RecallQuery | None, entries: Sequence[tuple[str, str]], most: int, *, named: bool
    ) -> tuple[list[RecalledPage], set[str]]:
        """Entry after entry, each time the one that holds the most of what is missed, of equal ones the shortest."""
        left = set(missed)
        every = [(name, text) for name, text in entries if not left.isdisjoint(self.references_in(text))]
        chosen: list[RecalledPage] = []
        while left and every and _count_useful_pages(chosen, missed) < most:
            name, text = best = max(every, key=lambda one: (len(self.references_in(one[1]) & left), -len(one[1])))
            every.remove(best)
            if not named:
                read = _best_page_of(self._all_pages_of(name, text, named=False), left)
            elif asks is None:
                read = _pages_that_help(self._all_pages_of(name, text, named=True), left)
            else:
                read = self._pages_of_entry(name, text, self.references_in(text) & left, asks)
            room = most - _count_useful_pages(chosen, missed)
            chosen += [
                one for number, one in enumerate(read) if _count_useful_pages(read[: number + 1], missed) <= room
            ]
            left = left.difference(*(page.holds for page in chosen))
        return chosen, left

    def _pages_of_entry(self, name: str, text: str, missed: Uses, asks: _RecallQuery) -> list[RecalledPage]:
        """What is used much of is read whole, in one round. Else by words first, and where that does not bring all, page
        after page up to the last that is needed; of what lies too far in, the lines.
        """
        pages, words = self._all_pages_of(name, text, named=True), asks.words_to_search(missed)
        if (len(pages) == 1 and len(text) <= SHORT) or len(missed) > MANY or not words:
            return pages[:MOST_PAGES]
        said = passages.find_passages(self._tokens, text.removesuffix("\n").split("\n"), words)
        found = RecalledPage(name, (("find", words),), said, self.references_in(said), named=True)
        left, needed = missed - found.holds, list[int]()
        for number, one in enumerate(pages):
            if not left.isdisjoint(one.holds):
                left -= one.holds
                needed.append(number)
        if needed and needed[-1] >= MOST_PAGES:
            return [found, *(replace(pages[number], round=1) for number in needed)]
        return [found, *(replace(pages[number], round=number + 1) for number in range(max(needed, default=-1) + 1))]

    def _all_pages_of(self, name: str, text: str, *, named: bool) -> list[RecalledPage]:
        if name not in self._pages:
            self._pages[name] = list(_cut_into_pages(self._tokens, text.split("\n")))
        return [
            RecalledPage(name, (("lines", lines),) if lines else (), said, self.references_in(said), named)
            for lines, said in self._pages[name]
        ]

    def _words_in(self, text: str) -> Uses:
        if text not in self._spoken:
            self._spoken[text] = frozenset(map(str.casefold, _WORD.findall(text)))
        return self._spoken[text]

    def references_in(self, text: str) -> Uses:
        """Identifiers and paths of a text, and its lines as they are without numbers and indentation."""
        if text not in self._found:
            values = text_without_escapes(text)
            lines = (_NUMBER.sub("", line, count=1).strip() for line in values.splitlines())
            named = (name for found in IDENTIFIER.findall(values) if _JOINT.search(name := found.rstrip("./-")))
            self._found[text] = frozenset((*named, *(line for line in lines if LINE[0] <= len(line) <= LINE[1])))
        return self._found[text]


def missing_from_view(missed: set[str], view: Iterable[str]) -> set[str]:
    """Those that stand nowhere in what the view says, not even inside a longer path or line."""
    if not missed:
        return missed
    said = "\n".join(map(text_without_escapes, view))
    return {one for one in missed if not _stands_as_word(one, said)}


def _stands_as_word(one: str, said: str) -> bool:
    """Whether it stands there as whole words."""
    at = said.find(one)
    while at >= 0:
        if not (_is_word_character(said[at - 1 : at]) or _is_word_character(said[at + len(one) : at + len(one) + 1])):
            return True
        at = said.find(one, at + 1)
    return False


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"


def group_by_round(pages: Sequence[RecalledPage]) -> list[list[RecalledPage]]:
    """What is asked for at once."""
    return [[page for page in pages if page.round == number] for number in sorted({page.round for page in pages})]


def _count_useful_pages(pages: Sequence[RecalledPage], missed: set[str]) -> int:
    """Without the passages that brought nothing: they are billed, and the agent reads on."""
    return sum(not page.was_found_by_words or not page.holds.isdisjoint(missed) for page in pages)


def _pages_that_help(pages: Sequence[RecalledPage], missed: set[str]) -> list[RecalledPage]:
    """The pages that hold it, each for what none before it holds."""
    left, holding = set(missed), list[RecalledPage]()
    for one in pages:
        if not left.isdisjoint(one.holds):
            left -= one.holds
            holding.append(one)
    return holding


def _best_page_of(pages: Sequence[RecalledPage], missed: set[str]) -> list[RecalledPage]:
    """The page a search would lead to, with what is looked for in it."""
    best = max(pages, key=lambda page: len(page.holds & missed))
    return [replace(best, holds=best.holds & missed)] if best.holds & missed else []


def _cut_into_pages(tokens: TokenCounter, lines: Sequence[str]) -> Iterable[tuple[str, str]]:
    """The pages of a text as the tool hands them out, each with the lines that are asked for."""
    first = 1
    while first <= len(lines):
        text, last = cut_to_page(tokens, lines[first - 1 : first + 2_000], first, LINES_TOKENS)
        whole = first == 1 and last == len(lines) and tokens.count_tokens(text) <= PAGE_TOKENS
        yield "" if whole else f"{first}-{last}", text
        first = last + 1
