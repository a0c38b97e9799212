"""Finds what a reply uses that the view no longer shows, and the pages that bring it back.

A miss is known by use: the recorded reply names an identifier or a path, or a call in it repeats a line, that stood
in the session and stands nowhere in the view, not even inside a longer path or line. A word of ordinary prose is no
identifier: it has a joint in it. A name that any reader of public code knows (`resources/known_names.txt`) is never
missed. `RecallMode` says how the agent gets it back. Nothing here asks what the engine thinks it kept.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from helix_desktop.engine import text_passages
from helix_desktop.engine.content_recall import LINES_TOKENS, PAGE_TOKENS, cut_to_page
from helix_desktop.engine.messages import Block
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.recorded_session import RecordedMessage, message_texts
from helix_desktop.replay.lost_details import text_without_escapes
from helix_desktop.replay.retention import IDENTIFIER
from helix_desktop.resources import resources_folder

LINE = (24, 300)  # In characters. The shortest and the longest line that is recognised by its words.
MOST_WORDS = 12  # The maximum number of words in an agent's search.
MANY = 12  # If an agent needs more references than this from an entry, it reads the whole entry.
SHORT = 1_500  # In characters. An agent reads shorter entries completely.
PAGES_IN_ORDER = 3  # An agent is assumed to read this many pages in order, and then certain lines.
MOST_WRONG = 3  # After it has opened this many wrong entries for a reply, an agent searches all entries.
_JOINT = re.compile(r"\w[_./]\w|[a-z][A-Z]|[A-Za-z]\d|\d[A-Za-z]")
_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_NUMBER = re.compile(r"(?<!\s)\s*+\d+[\t|:→]\s?")  # Line numbers that tools put before each line.
_IMPORT = re.compile(r"(?:from|import)\s+([\w.]+)(?:\s+import\s+[\w*, ()]+|\s+as\s+\w+)?")

Uses = frozenset[str]


class RecallMode(StrEnum):
    """How an agent gets back what it misses."""

    NONE = "none"  # The agent recalls nothing.
    NAMED = "named"  # The agent reads the pages with what it misses, if the view names their entry.
    # The agent does not know where to find what it misses.
    # The agent opens entries whose description fits its reply: first by `find`, then page by page.
    # If only a summary stands for what the agent misses, the agent searches first.
    SEARCHED = "searched"


Asked = tuple[tuple[str, str], ...]  # A recall's arguments besides the hash: names and values.


class ShownEntry(NamedTuple):
    """An entry that can be recalled: its hash, its text, and the view's description of it."""

    name: str
    text: str
    shown: str = ""


@dataclass(frozen=True, slots=True)
class RecalledPage:
    """A page as the tool returns it. `asked`: words or lines; nothing for the first page. `named`: the view
    names the entry, so no search is needed. `seeks`: what it is for, unless a search already brought that.
    """

    entry: str
    asked: Asked
    text: str
    holds: Uses
    named: bool
    round: int = 0  # Recalls with equal numbers belong to the same request.
    tool: ToolName = ToolName.RECALL
    seeks: Uses = frozenset()


@dataclass(frozen=True, slots=True)
class _RecallQuery:
    """How an agent asks for what it cannot see: by words of its reply that the view still shows."""

    reply: RecordedMessage
    seen: Uses
    uses: Callable[[str], Uses]

    def words_to_search(self, missed: Uses) -> str:
        lines = self._lines_of_reply()
        beside = [line for line in lines if not missed.isdisjoint(self.uses(line))]
        spoken = (word for line in beside or lines for word in _WORD.findall(line) if word.casefold() in self.seen)
        return " ".join(islice(dict.fromkeys(spoken), MOST_WORDS))

    def reply_words_in_view(self) -> Uses:
        return self.seen & {word.casefold() for line in self._lines_of_reply() for word in _WORD.findall(line)}

    def _lines_of_reply(self) -> list[str]:
        return [line for text in message_texts(self.reply) for line in text_without_escapes(text).splitlines()]


class MissedReferences:
    """A session's account. `set_shown_view` takes each step's view; `references_used_but_not_in_view` returns what its reply misses."""

    def __init__(self, tokens: TokenCounter) -> None:
        self._tokens = tokens
        self._earlier: set[str] = set()
        self._said: dict[str, str] = {}  # Each text of the session so far, under an invented name.
        self._shown: dict[int, tuple[Block, Uses]] = {}
        self._counts: Counter[str] = Counter()
        self._found: dict[str, Uses] = {}
        self._spoken: dict[str, Uses] = {}
        self._pages: dict[str, list[tuple[str, str]]] = {}
        self._opened_in_vain: set[str] = set()

    def add_earlier_message(self, message: RecordedMessage) -> None:
        """Add a message of the session. From now on, its content has been in the session."""
        for text in message_texts(message):
            self._earlier |= self.references_in(text)
            if text.strip():
                self._said[f"message {len(self._said)}"] = text_without_escapes(text)

    def set_shown_view(self, blocks: Iterable[Block], says: Callable[[Block], str]) -> None:
        """Set the view from which the next reply is made."""
        now = {id(block): block for block in blocks}
        for key in self._shown.keys() - now.keys():
            self._counts.subtract(self._shown.pop(key)[1])
        for key in now.keys() - self._shown.keys():
            self._shown[key] = (now[key], self.references_in(says(now[key])))
            self._counts.update(self._shown[key][1])

    def references_used_but_not_in_view(self, reply: RecordedMessage) -> set[str]:
        """Return what the reply uses that was in the session but is nowhere in the view."""
        return {one for one in self.references_used_by(reply) if self._counts[one] <= 0}

    def references_used_by(self, reply: RecordedMessage) -> set[str]:
        """Return what the reply uses from the session that nobody could know otherwise."""
        used: set[str] = set()
        for text in message_texts(reply):
            used |= self.references_in(text)
        # An agent can repeat its own sentences without a recall.
        used -= {line for line in self.references_in(reply.text) if " " in line}
        return {one for one in used & self._earlier if not is_publicly_known(one)}

    def pages_to_recall(
        self,
        missed: set[str],
        reply: RecordedMessage,
        entries: Sequence[ShownEntry],
        view: Iterable[str],
        *,
        summarised: bool,
        recalls: RecallMode = RecallMode.SEARCHED,
    ) -> list[RecalledPage]:
        """Return the pages to read for it, in order, from entries the view names. If the agent searches
        and the view has a summary, also from everything the summary may cover. `view`: its text.
        """
        if recalls is not RecallMode.SEARCHED:
            needed = self._choose_entries_holding(missed, entries)
            return [one for entry, held in needed for one in _pages_that_help(self._all_pages_of(entry), held)]
        said = set(view)
        asks = _RecallQuery(reply, frozenset().union(*map(self._words_in, said)), self.references_in)
        chosen = self._open_entries_by_rank(missed, asks, entries)
        left = missed.difference(*(page.seeks for page in chosen))
        if left and summarised:
            said = set(map(text_without_escapes, said))
            behind = [ShownEntry(name, text, text) for name, text in self._said.items() if text not in said]
            chosen += self._search_behind_summaries(left, asks, behind)
        return chosen

    def _choose_entries_holding(self, missed: set[str], entries: Sequence[ShownEntry]) -> list[tuple[ShownEntry, Uses]]:
        """Choose entries in turn: the one with the most of what is missed, or the shortest of equals."""
        left = set(missed)
        every = [one for one in entries if not left.isdisjoint(self.references_in(one.text))]
        chosen: list[tuple[ShownEntry, Uses]] = []
        while left and every:
            best = max(every, key=lambda one: (len(self.references_in(one.text) & left), -len(one.text)))
            every.remove(best)
            if held := self.references_in(best.text) & left:
                chosen.append((best, held))
                left -= held
        return chosen

    def _open_entries_by_rank(
        self, missed: set[str], asks: _RecallQuery, entries: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        """Open at once as many matching entries as there are to find, then one after another. After
        several in vain, or without another match, the agent searches all entries and reads what it finds.
        """
        needed = self._choose_entries_holding(missed, entries)
        left = frozenset[str]().union(*(held for _, held in needed))
        fitting = _rank_by_words([(one, self._words_in(one.shown)) for one in entries], asks.reply_words_in_view())
        chosen: list[RecalledPage] = []
        opened = wrong = 0
        for entry in fitting:
            held = self.references_in(entry.text) & left
            if not left or wrong == MOST_WRONG:
                break
            if not held and entry.name in self._opened_in_vain:
                continue
            at = max(0, opened - len(needed) + 1)
            pages = self._pages_of_entry(entry, held, asks.words_to_search(held or left))
            chosen += (
                [replace(one, round=one.round + at, seeks=held) for one in pages]
                if held
                else self._mark_page_read_in_vain(pages, left, at)
            )
            opened, wrong, left = opened + 1, wrong + (not held), left - held
        return (
            [*chosen, *self._search_entries(left, asks, entries, max(0, opened - len(needed) + 1))] if left else chosen
        )

    def _search_entries(
        self, missed: Uses, asks: _RecallQuery, entries: Sequence[ShownEntry], at: int
    ) -> list[RecalledPage]:
        """Search everything cached, and read what holds it if the search did not show it."""
        words = asks.words_to_search(missed)
        chosen = [_search_by_words(words, missed, at, ToolName.SEARCH_CACHE)] if words else []
        for entry, held in self._choose_entries_holding(set(missed), entries):
            pages = self._pages_of_entry(entry, held, asks.words_to_search(held))
            chosen += [replace(page, round=page.round + at + 1, seeks=held) for page in pages]
        return chosen

    def _search_behind_summaries(
        self, missed: set[str], asks: _RecallQuery, behind: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        """Search for each thing at once. If that fails, read what the words lead to, in order."""
        chosen: list[RecalledPage] = []
        for entry, held in self._choose_entries_holding(missed, behind):
            words = asks.words_to_search(held)
            if words:
                chosen.append(_search_by_words(words, held, 0, ToolName.RECALL_HISTORY))
            spoken = frozenset(map(str.casefold, words.split()))
            ranked = _rank_by_words([(one, self._words_in(one.shown)) for one in behind], spoken)
            before = ranked[: ranked.index(entry)] if entry in ranked else ranked
            fresh = [one for one in before if one.name not in self._opened_in_vain][:MOST_WRONG]
            vain = [
                page
                for one in fresh
                for page in self._mark_page_read_in_vain(self._pages_of_entry(one, frozenset(), words), held, 0)
            ]
            chosen += [
                replace(page, named=False, tool=ToolName.RECALL_HISTORY, seeks=held, round=number)
                for number, page in enumerate([*vain, *self._choose_pages_to_read(entry, held)], 1)
            ]
        return chosen

    def _mark_page_read_in_vain(self, pages: Sequence[RecalledPage], seeks: Uses, at: int) -> list[RecalledPage]:
        """Mark a first page read in vain, which the agent remembers."""
        self._opened_in_vain.add(pages[0].entry)
        return [replace(pages[0], round=at, holds=frozenset(), seeks=seeks)]

    def _pages_of_entry(self, entry: ShownEntry, missed: Uses, words: str) -> list[RecalledPage]:
        """Return an entry's pages: all at once if much is needed, else by words, then page after page."""
        pages = self._all_pages_of(entry)
        if len(pages) == 1 and len(entry.text) <= SHORT:
            return pages
        if len(missed) > MANY:
            return pages[: _last_page_with(pages, missed) + 1]
        if not words:
            return self._choose_pages_to_read(entry, missed)
        said = text_passages.find_passages(self._tokens, entry.text.removesuffix("\n").split("\n"), words)
        found = RecalledPage(entry.name, (("find", words),), said, self.references_in(said), named=True)
        left = missed - found.holds
        rest = self._choose_pages_to_read(entry, left) if left else []
        return [found, *(replace(page, round=page.round + 1) for page in rest)]

    def _choose_pages_to_read(self, entry: ShownEntry, missed: Uses) -> list[RecalledPage]:
        """Return pages in order up to the last one needed, or certain lines if that is far in."""
        pages = self._all_pages_of(entry)
        last = _last_page_with(pages, missed)
        if last >= PAGES_IN_ORDER:
            return _pages_that_help(pages, missed)
        return [replace(pages[number], round=number) for number in range(last + 1)]

    def _all_pages_of(self, entry: ShownEntry) -> list[RecalledPage]:
        name = entry.name
        if name not in self._pages:
            self._pages[name] = list(_cut_into_pages(self._tokens, entry.text.split("\n")))
        return [
            RecalledPage(name, (("lines", lines),) if lines else (), said, self.references_in(said), named=True)
            for lines, said in self._pages[name]
        ]

    def _words_in(self, text: str) -> Uses:
        if text not in self._spoken:
            self._spoken[text] = frozenset(map(str.casefold, _WORD.findall(text)))
        return self._spoken[text]

    def references_in(self, text: str) -> Uses:
        """Return a text's identifiers, paths, and lines without numbers and indentation."""
        if text not in self._found:
            values = text_without_escapes(text)
            lines = (_NUMBER.sub("", line, count=1).strip() for line in values.splitlines())
            named = (name for found in IDENTIFIER.findall(values) if _JOINT.search(name := found.rstrip("./-")))
            self._found[text] = frozenset((*named, *(line for line in lines if LINE[0] <= len(line) <= LINE[1])))
        return self._found[text]


def missing_from_view(missed: set[str], view: Iterable[str]) -> set[str]:
    """Return those that are nowhere in the view's text, even inside a longer path or line."""
    if not missed:
        return missed
    said = "\n".join(map(text_without_escapes, view))
    return {one for one in missed if not _occurs_as_whole_word(one, said)}


def _occurs_as_whole_word(one: str, said: str) -> bool:
    at = said.find(one)
    while at >= 0:
        if not (_is_word_character(said[at - 1 : at]) or _is_word_character(said[at + len(one) : at + len(one) + 1])):
            return True
        at = said.find(one, at + 1)
    return False


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"


def group_by_round(pages: Sequence[RecalledPage]) -> list[list[RecalledPage]]:
    """Group pages that are requested together."""
    return [[page for page in pages if page.round == number] for number in sorted({page.round for page in pages})]


def build_shown_entry(name: str, text: str, said: Iterable[str]) -> ShownEntry:
    """Build an entry with the view's description: texts with its hash, or two lines of a long one."""
    about: list[str] = []
    for each in said:
        if name in each:
            lines = each.splitlines()
            near = (number for number, line in enumerate(lines) if name in line)
            about += [each] if len(each) <= SHORT else [line for at in near for line in lines[at : at + 2]]
    return ShownEntry(name, text, "\n".join(about))


def is_publicly_known(reference: str) -> bool:
    """Whether readers of public code know it: a listed name, or a line that imports such a module."""
    if " " in reference:
        imported = _IMPORT.fullmatch(reference)
        return imported is not None and imported[1].split(".")[0] in _publicly_known_module_names()
    return reference.removeprefix("self.").removeprefix("this.") in _read_public_names()


@functools.cache
def _read_public_names() -> frozenset[str]:
    lines = (resources_folder() / "known_names.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


@functools.cache
def _publicly_known_module_names() -> frozenset[str]:
    return frozenset(name.split(".")[0] for name in _read_public_names() if name.count(".") == 1)


def _rank_by_words(entries: Sequence[tuple[ShownEntry, Uses]], words: Uses) -> list[ShownEntry]:
    """Return entries that share a word, best first, by BM25 over their descriptions, then newest first."""
    mean = sum(len(said) for _, said in entries) / max(1, len(entries))
    commons = Counter(word for _, said in entries for word in said & words)

    def score(said: Uses) -> float:
        length = 0.25 + 0.75 * len(said) / max(1, mean)
        return sum(math.log(1 + len(entries) / commons[word]) for word in said & words) * 2.2 / (1 + 1.2 * length)

    scored = [(score(said), number, one) for number, (one, said) in enumerate(entries)]
    return [one for worth, _, one in sorted(scored, reverse=True, key=lambda row: row[:2]) if worth > 0]


def _search_by_words(words: str, seeks: Uses, at: int, tool: ToolName) -> RecalledPage:
    """Return a search, whose result is known once it is made."""
    asked = "query" if tool is ToolName.SEARCH_CACHE else "find"
    return RecalledPage("", ((asked, words),), "", frozenset(), named=False, round=at, tool=tool, seeks=seeks)


def _last_page_with(pages: Sequence[RecalledPage], missed: Uses) -> int:
    """Return the last page needed, if each thing is taken from the first page that has it."""
    return max((pages.index(page) for page in _pages_that_help(pages, missed)), default=0)


def _pages_that_help(pages: Sequence[RecalledPage], missed: Iterable[str]) -> list[RecalledPage]:
    """Return the pages that help, each with something that no page before it has."""
    left, holding = set(missed), list[RecalledPage]()
    for one in pages:
        if not left.isdisjoint(one.holds):
            left -= one.holds
            holding.append(one)
    return holding


def _cut_into_pages(tokens: TokenCounter, lines: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield a text's pages as the tool returns them, each with the lines to ask for."""
    first = 1
    while first <= len(lines):
        text, last = cut_to_page(tokens, lines[first - 1 : first + 2_000], first, LINES_TOKENS)
        whole = first == 1 and last == len(lines) and tokens.count_tokens(text) <= PAGE_TOKENS
        yield "" if whole else f"{first}-{last}", text
        first = last + 1
