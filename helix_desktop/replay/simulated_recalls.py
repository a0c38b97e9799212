"""Finds what a reply uses although the view no longer shows it, and the pages that bring it back.

A reference is missed if the recorded reply names an identifier or a path, or repeats a
line in a call, that occurred in the session but is nowhere in the view, not even inside
a longer path or line. Identifiers consist of joined parts, so ordinary words are none.
Names that every reader of public code knows (`PublicNames`) are never missed. The engine
is not asked what it kept.
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from helix_desktop.engine import text_passages
from helix_desktop.engine.content_recall import (
    LINES_TOKENS,
    PAGE_TOKENS,
    cut_to_page_with_last_line_number,
)
from helix_desktop.engine.messages import Block
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.recorded_session import RecordedMessage, message_texts
from helix_desktop.replay.lost_details import text_or_json_values
from helix_desktop.replay.retention import IDENTIFIER

LINE = (24, 300)  # In characters. Whole lines of such a length are references, too.
MOST_WORDS = 12  # The maximum number of words in an agent's search.
MANY = 12  # If an agent needs more references than this from an entry, it reads the whole entry.
SHORT = 1_500  # In characters. An agent reads shorter entries completely.
PAGES_IN_ORDER = 3  # An agent is assumed to read this many pages in order, and then certain lines.
MOST_WRONG = 3  # After opening this many wrong entries for a reply, an agent searches all entries.
_JOINT = re.compile(r"\w[_./]\w|[a-z][A-Z]|[A-Za-z]\d|\d[A-Za-z]")
_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_NUMBER = re.compile(r"(?<!\s)\s*+\d+[\t|:→]\s?")  # Line numbers that tools put before each line.
_IMPORT = re.compile(r"(?:from|import)\s+([\w.]+)(?:\s+import\s+[\w*, ()]+|\s+as\s+\w+)?")

Uses = frozenset[str]


class RecallMode(StrEnum):
    """Says how an agent gets back what it misses."""

    NONE = "none"  # The agent recalls nothing.
    # The agent reads the pages that contain what it misses, if the view names their
    # entry.
    NAMED = "named"
    # It opens entries whose description fits its reply. It first uses `find`, and then reads
    # page by page. The agent lacks something that only a summary mentions, so it searches first.
    SEARCHED = "searched"


Asked = tuple[
    tuple[str, str], ...
]  # The names and values of a recall's arguments, without the hash.


class ShownEntry(NamedTuple):
    """An entry that can be recalled: its hash, its text, and how the view describes it."""

    name: str
    text: str
    shown: str = ""


@dataclass(frozen=True, slots=True)
class RecalledPage:
    """A page as the tool returns it. `asked` is empty for the first page of an entry."""

    entry: str
    asked: Asked
    text: str
    holds: Uses
    round: int = 0  # Recalls with the same number belong to the same request.
    tool: ToolName = ToolName.RECALL
    seeks: Uses = frozenset()


@dataclass(frozen=True, slots=True)
class _RecallQuery:
    """Chooses words of a reply that the view still shows, to ask for what is missing."""

    reply: RecordedMessage
    seen: Uses
    uses: Callable[[str], Uses]

    def words_to_search(self, missed: Uses) -> str:
        lines = self._lines_of_reply()
        beside = [line for line in lines if not missed.isdisjoint(self.uses(line))]
        spoken = (
            word
            for line in beside or lines
            for word in _WORD.findall(line)
            if word.casefold() in self.seen
        )
        return " ".join(islice(dict.fromkeys(spoken), MOST_WORDS))

    def reply_words_in_view(self) -> Uses:
        return self.seen & {
            word.casefold() for line in self._lines_of_reply() for word in _WORD.findall(line)
        }

    def _lines_of_reply(self) -> list[str]:
        return [
            line
            for text in message_texts(self.reply)
            for line in text_or_json_values(text).splitlines()
        ]


class MissedReferences:
    """Finds what each reply of a session misses in the view set before it."""

    def __init__(self, tokens: TokenCounter, public_names: "PublicNames | None" = None) -> None:
        self._tokens = tokens
        self._public_names = public_names or PublicNames()
        self._earlier: set[str] = set()
        self._said: dict[
            str, str
        ] = {}  # Each text of the session so far. The keys are invented names.
        self._shown: dict[int, tuple[Block, Uses]] = {}
        self._counts: Counter[str] = Counter()
        self._found: dict[str, Uses] = {}
        self._spoken: dict[str, Uses] = {}
        self._pages: dict[str, list[tuple[str, str]]] = {}
        self._opened_in_vain: set[str] = set()

    def add_earlier_message(self, message: RecordedMessage) -> None:
        """Add a message of the session. Later replies may refer to its content."""
        for text in message_texts(message):
            self._earlier |= self.references_in(text)
            if text.strip():
                self._said[f"message {len(self._said)}"] = text_or_json_values(text)

    def set_shown_view(self, blocks: Iterable[Block], says: Callable[[Block], str]) -> None:
        """Set the view that the next reply is an answer to."""
        now = {id(block): block for block in blocks}
        for key in self._shown.keys() - now.keys():
            self._counts.subtract(self._shown.pop(key)[1])
        for key in now.keys() - self._shown.keys():
            self._shown[key] = (now[key], self.references_in(says(now[key])))
            self._counts.update(self._shown[key][1])

    def references_used_but_not_in_view(self, reply: RecordedMessage) -> set[str]:
        """Return what the reply uses that occurred in the session but is nowhere in the view."""
        return {one for one in self.session_references_used_by(reply) if self._counts[one] <= 0}

    def session_references_used_by(self, reply: RecordedMessage) -> set[str]:
        """Return what the reply uses and can only know from the session."""
        used: set[str] = set()
        for text in message_texts(reply):
            used |= self.references_in(text)
        # An agent can repeat its own sentences without a recall.
        used -= {line for line in self.references_in(reply.text) if " " in line}
        return {one for one in used & self._earlier if not self._public_names.has_reference(one)}

    def pages_to_recall(
        self,
        missed: set[str],
        reply: RecordedMessage,
        entries: Sequence[ShownEntry],
        view: Iterable[str],
        *,
        has_summary: bool,
        recall_mode: RecallMode = RecallMode.SEARCHED,
    ) -> list[RecalledPage]:
        """Return the pages to read, in order: of the entries that the view names, or, if the agent
        searches and the view has a summary, of everything before. `view` has the view's texts.
        """
        if recall_mode is not RecallMode.SEARCHED:
            needed = self._choose_entries_holding(missed, entries)
            return [
                one
                for entry, held in needed
                for one in _pages_that_help(self._all_pages_of(entry), held)
            ]
        said = set(view)
        asks = _RecallQuery(
            reply, frozenset().union(*map(self._words_in, said)), self.references_in
        )
        chosen = self._pages_from_opened_entries(missed, asks, entries)
        left = missed.difference(*(page.seeks for page in chosen))
        if left and has_summary:
            said = set(map(text_or_json_values, said))
            behind = [
                ShownEntry(name, text, text)
                for name, text in self._said.items()
                if text not in said
            ]
            chosen += self._pages_from_history_search(left, asks, behind)
        return chosen

    def _choose_entries_holding(
        self, missed: set[str], entries: Sequence[ShownEntry]
    ) -> list[tuple[ShownEntry, Uses]]:
        """Choose, one by one, the entry with most of what is still missed; of equals,
        the shortest.
        """
        left = set(missed)
        every = [one for one in entries if not left.isdisjoint(self.references_in(one.text))]
        chosen: list[tuple[ShownEntry, Uses]] = []
        while left and every:
            best = max(
                every, key=lambda one: (len(self.references_in(one.text) & left), -len(one.text))
            )
            every.remove(best)
            if held := self.references_in(best.text) & left:
                chosen.append((best, held))
                left -= held
        return chosen

    def _pages_from_opened_entries(
        self, missed: set[str], asks: _RecallQuery, entries: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        """Open as many matching entries as are needed, then one at a time, then search."""
        needed = self._choose_entries_holding(missed, entries)
        left = frozenset[str]().union(*(held for _, held in needed))
        fitting = _rank_by_words(
            [(one, self._words_in(one.shown)) for one in entries], asks.reply_words_in_view()
        )
        chosen: list[RecalledPage] = []
        opened = wrong = 0
        for entry in fitting:
            held = self.references_in(entry.text) & left
            if not left or wrong == MOST_WRONG:
                break
            if not held and entry.name in self._opened_in_vain:
                continue
            at = max(0, opened - len(needed) + 1)
            pages = self._choose_pages_of_entry(entry, held, asks.words_to_search(held or left))
            found = [replace(one, round=one.round + at, seeks=held) for one in pages]
            chosen += found if held else self._remember_vain_page(pages, left, at)
            opened, wrong, left = opened + 1, wrong + (not held), left - held
        if left:
            chosen += self._pages_from_search(left, asks, entries, max(0, opened - len(needed) + 1))
        return chosen

    def _pages_from_search(
        self, missed: Uses, asks: _RecallQuery, entries: Sequence[ShownEntry], first_round: int
    ) -> list[RecalledPage]:
        """Return a search, and the pages with what the search did not show."""
        words = asks.words_to_search(missed)
        chosen = [_build_search(words, missed, first_round, ToolName.SEARCH_CACHE)] if words else []
        for entry, held in self._choose_entries_holding(set(missed), entries):
            pages = self._choose_pages_of_entry(entry, held, asks.words_to_search(held))
            chosen += [
                replace(page, round=page.round + first_round + 1, seeks=held) for page in pages
            ]
        return chosen

    def _pages_from_history_search(
        self, missed: set[str], asks: _RecallQuery, behind: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        """Return a search for each missed thing, and the pages to read if it fails."""
        chosen: list[RecalledPage] = []
        for entry, held in self._choose_entries_holding(missed, behind):
            words = asks.words_to_search(held)
            if words:
                chosen.append(_build_search(words, held, 0, ToolName.RECALL_HISTORY))
            spoken = frozenset(map(str.casefold, words.split()))
            ranked = _rank_by_words([(one, self._words_in(one.shown)) for one in behind], spoken)
            before = ranked[: ranked.index(entry)] if entry in ranked else ranked
            fresh = [one for one in before if one.name not in self._opened_in_vain][:MOST_WRONG]
            vain = [
                page
                for one in fresh
                for page in self._remember_vain_page(
                    self._choose_pages_of_entry(one, frozenset(), words), held, 0
                )
            ]
            chosen += [
                replace(page, tool=ToolName.RECALL_HISTORY, seeks=held, round=number)
                for number, page in enumerate([*vain, *self._choose_pages_in_order(entry, held)], 1)
            ]
        return chosen

    def _remember_vain_page(
        self, pages: Sequence[RecalledPage], seeks: Uses, round_number: int
    ) -> list[RecalledPage]:
        self._opened_in_vain.add(pages[0].entry)
        return [replace(pages[0], round=round_number, holds=frozenset(), seeks=seeks)]

    def _choose_pages_of_entry(
        self, entry: ShownEntry, missed: Uses, words: str
    ) -> list[RecalledPage]:
        """Return all pages if much is needed, or else those found by words."""
        pages = self._all_pages_of(entry)
        if len(pages) == 1 and len(entry.text) <= SHORT:
            return pages
        if len(missed) > MANY:
            return pages[: _last_needed_index(pages, missed) + 1]
        if not words:
            return self._choose_pages_in_order(entry, missed)
        said = text_passages.find_passages(
            self._tokens, entry.text.removesuffix("\n").split("\n"), words
        )
        found = RecalledPage(entry.name, (("find", words),), said, self.references_in(said))
        left = missed - found.holds
        rest = self._choose_pages_in_order(entry, left) if left else []
        return [found, *(replace(page, round=page.round + 1) for page in rest)]

    def _choose_pages_in_order(self, entry: ShownEntry, missed: Uses) -> list[RecalledPage]:
        """Return the pages up to the last one needed, or only those that help if there are many."""
        pages = self._all_pages_of(entry)
        last = _last_needed_index(pages, missed)
        if last >= PAGES_IN_ORDER:
            return _pages_that_help(pages, missed)
        return [replace(pages[number], round=number) for number in range(last + 1)]

    def _all_pages_of(self, entry: ShownEntry) -> list[RecalledPage]:
        name = entry.name
        if name not in self._pages:
            self._pages[name] = list(_cut_into_pages(self._tokens, entry.text.split("\n")))
        return [
            RecalledPage(name, (("lines", lines),) if lines else (), said, self.references_in(said))
            for lines, said in self._pages[name]
        ]

    def _words_in(self, text: str) -> Uses:
        if text not in self._spoken:
            self._spoken[text] = frozenset(map(str.casefold, _WORD.findall(text)))
        return self._spoken[text]

    def references_in(self, text: str) -> Uses:
        """Return a text's identifiers, paths, and lines without numbers and indentation."""
        if text not in self._found:
            values = text_or_json_values(text)
            lines = (_NUMBER.sub("", line, count=1).strip() for line in values.splitlines())
            named = (
                name
                for found in IDENTIFIER.findall(values)
                if _JOINT.search(name := found.rstrip("./-"))
            )
            self._found[text] = frozenset(
                (*named, *(line for line in lines if LINE[0] <= len(line) <= LINE[1]))
            )
        return self._found[text]


def missing_from_view(missed: set[str], view: Iterable[str]) -> set[str]:
    """Return those that are nowhere in the view, even inside a longer path or line."""
    if not missed:
        return missed
    said = "\n".join(map(text_or_json_values, view))
    # What stands before a word is checked behind it, because such a search is faster.
    words = {one: re.escape(one) for one in missed}
    return {
        one for one, word in words.items() if not re.search(rf"{word}(?<!\w{word})(?!\w)", said)
    }


def group_by_round(pages: Sequence[RecalledPage]) -> list[list[RecalledPage]]:
    return [
        [page for page in pages if page.round == number]
        for number in sorted({page.round for page in pages})
    ]


def build_shown_entry(name: str, text: str, view_texts: Iterable[str]) -> ShownEntry:
    """Build an entry described by the texts that name it, or by two lines of a long text."""
    about: list[str] = []
    for each in view_texts:
        if name in each:
            lines = each.splitlines()
            near = (number for number, line in enumerate(lines) if name in line)
            about += (
                [each]
                if len(each) <= SHORT
                else [line for at in near for line in lines[at : at + 2]]
            )
    return ShownEntry(name, text, "\n".join(about))


class PublicNames:
    """Names that every model knows. Without a list, only Python's own modules are."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        listed = {name.split(".")[0] for name in self._names if name.count(".") == 1}
        self._modules = listed | sys.stdlib_module_names

    def has_reference(self, reference: str) -> bool:
        """Return whether this is such a name, or a line that imports such a module."""
        if " " in reference:
            imported = _IMPORT.fullmatch(reference)
            return imported is not None and imported[1].split(".")[0] in self._modules
        return reference.removeprefix("self.").removeprefix("this.") in self._names


def _rank_by_words(entries: Sequence[tuple[ShownEntry, Uses]], words: Uses) -> list[ShownEntry]:
    """Return the entries that share a word with the query, ranked by BM25, then by age."""
    mean = sum(len(said) for _, said in entries) / max(1, len(entries))
    commons = Counter(word for _, said in entries for word in said & words)

    def score(said: Uses) -> float:
        length = 0.25 + 0.75 * len(said) / max(1, mean)
        return (
            sum(math.log(1 + len(entries) / commons[word]) for word in said & words)
            * 2.2
            / (1 + 1.2 * length)
        )

    scored = [(score(said), number, one) for number, (one, said) in enumerate(entries)]
    return [
        one for worth, _, one in sorted(scored, reverse=True, key=lambda row: row[:2]) if worth > 0
    ]


def _build_search(words: str, seeks: Uses, round_number: int, tool: ToolName) -> RecalledPage:
    asked = "query" if tool is ToolName.SEARCH_CACHE else "find"
    return RecalledPage(
        "", ((asked, words),), "", frozenset(), round=round_number, tool=tool, seeks=seeks
    )


def _last_needed_index(pages: Sequence[RecalledPage], missed: Uses) -> int:
    return max((pages.index(page) for page in _pages_that_help(pages, missed)), default=0)


def _pages_that_help(pages: Sequence[RecalledPage], missed: Iterable[str]) -> list[RecalledPage]:
    """Return the pages that hold something that no earlier page holds."""
    left, holding = set(missed), list[RecalledPage]()
    for one in pages:
        if not left.isdisjoint(one.holds):
            left -= one.holds
            holding.append(one)
    return holding


def _cut_into_pages(tokens: TokenCounter, lines: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield a text's pages as the tool returns them, each with its range of lines."""
    first = 1
    while first <= len(lines):
        text, last = cut_to_page_with_last_line_number(
            tokens, lines[first - 1 : first + 2_000], first, LINES_TOKENS
        )
        whole = first == 1 and last == len(lines) and tokens.count_tokens(text) <= PAGE_TOKENS
        yield "" if whole else f"{first}-{last}", text
        first = last + 1
