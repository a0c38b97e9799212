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
# An agent that asks for several entries in one call asks for this many. With four, three wrong
# ones and the right one cost one request.
OPENED_TOGETHER = 4
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
    # Like "searched", but it asks for the likeliest entries together, as the tool offers,
    # since each further request would send the whole context again.
    TOGETHER = "together"


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
        lines_with_missed = [line for line in lines if not missed.isdisjoint(self.uses(line))]
        seen_words: dict[str, None] = {}  # In the order of the reply.
        for line in lines_with_missed or lines:
            for word in _WORD.findall(line):
                if word.casefold() in self.seen:
                    seen_words[word] = None
        return " ".join(list(seen_words)[:MOST_WORDS])

    def reply_words_in_view(self) -> Uses:
        reply_words: set[str] = set()
        for line in self._lines_of_reply():
            reply_words.update(map(str.casefold, _WORD.findall(line)))
        return self.seen & reply_words

    def _lines_of_reply(self) -> list[str]:
        lines: list[str] = []
        for text in message_texts(self.reply):
            lines += text_or_json_values(text).splitlines()
        return lines


class MissedReferences:
    """Finds what each reply of a session misses in the view set before it."""

    def __init__(self, tokens: TokenCounter, public_names: "PublicNames | None" = None) -> None:
        self._tokens = tokens
        self._public_names = public_names or PublicNames()
        self._earlier: set[str] = set()
        # Each text of the session so far. The keys are invented names.
        self._said: dict[str, str] = {}
        self._shown: dict[int, tuple[Block, Uses]] = {}
        self._counts: Counter[str] = Counter()
        self._found: dict[str, Uses] = {}
        self._spoken: dict[str, Uses] = {}
        self._pages: dict[str, list[tuple[str, str]]] = {}
        self._opened_in_vain: set[str] = set()
        self._opened_at_once = 1

    def add_earlier_message(self, message: RecordedMessage) -> None:
        """Add a message of the session. Later replies may refer to its content."""
        for text in message_texts(message):
            self._earlier |= self.references_in(text)
            if text.strip():
                self._said[f"message {len(self._said)}"] = text_or_json_values(text)

    def set_shown_view(self, blocks: Iterable[Block], says: Callable[[Block], str]) -> None:
        """Set the view that the next reply is an answer to."""
        new_view = {id(block): block for block in blocks}
        for key in self._shown.keys() - new_view.keys():
            _, references = self._shown.pop(key)
            self._counts.subtract(references)
        for key in new_view.keys() - self._shown.keys():
            block = new_view[key]
            references = self.references_in(says(block))
            self._shown[key] = (block, references)
            self._counts.update(references)

    def references_used_but_not_in_view(self, reply: RecordedMessage) -> set[str]:
        """Return what the reply uses that occurred in the session but is nowhere in the view."""
        used = self.session_references_used_by(reply)
        return {reference for reference in used if self._counts[reference] <= 0}

    def session_references_used_by(self, reply: RecordedMessage) -> set[str]:
        """Return what the reply uses and can only know from the session."""
        used: set[str] = set()
        for text in message_texts(reply):
            used |= self.references_in(text)
        # An agent can repeat its own sentences without a recall.
        used -= {line for line in self.references_in(reply.text) if " " in line}
        used &= self._earlier
        return {reference for reference in used if not self._public_names.has_reference(reference)}

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
        if recall_mode is RecallMode.NAMED:
            return self._pages_of_named_entries(missed, entries)
        self._opened_at_once = 1
        if recall_mode is RecallMode.TOGETHER:
            self._opened_at_once = OPENED_TOGETHER
        view_texts = set(view)
        seen_words = frozenset[str]().union(*map(self._words_in, view_texts))
        query = _RecallQuery(reply, seen_words, self.references_in)
        chosen = self._pages_from_opened_entries(missed, query, entries)
        still_missed = missed.difference(*(page.seeks for page in chosen))
        if still_missed and has_summary:
            behind_summary = self._texts_not_in_view(view_texts)
            chosen += self._pages_from_history_search(still_missed, query, behind_summary)
        return chosen

    def _pages_of_named_entries(
        self, missed: set[str], entries: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        chosen: list[RecalledPage] = []
        for entry, held in self._choose_entries_holding(missed, entries):
            chosen += _pages_that_help(self._all_pages_of(entry), held)
        return chosen

    def _texts_not_in_view(self, view_texts: Iterable[str]) -> list[ShownEntry]:
        plain_view_texts = set(map(text_or_json_values, view_texts))
        hidden_texts: list[ShownEntry] = []
        for name, text in self._said.items():
            if text not in plain_view_texts:
                hidden_texts.append(ShownEntry(name, text, text))
        return hidden_texts

    def _choose_entries_holding(
        self, missed: set[str], entries: Sequence[ShownEntry]
    ) -> list[tuple[ShownEntry, Uses]]:
        """Choose, one by one, the entry with most of what is still missed; of equals,
        the shortest.
        """
        left = set(missed)
        candidates = [
            entry for entry in entries if not left.isdisjoint(self.references_in(entry.text))
        ]

        def worth_of_entry(entry: ShownEntry) -> tuple[int, int]:
            return len(self.references_in(entry.text) & left), -len(entry.text)

        chosen: list[tuple[ShownEntry, Uses]] = []
        while left and candidates:
            best = max(candidates, key=worth_of_entry)
            candidates.remove(best)
            held = self.references_in(best.text) & left
            if held:
                chosen.append((best, held))
                left -= held
        return chosen

    def _pages_from_opened_entries(
        self, missed: set[str], query: _RecallQuery, entries: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        """Open as many matching entries as are needed, then one at a time, then search."""
        needed = self._choose_entries_holding(missed, entries)
        left = frozenset[str]().union(*(held for _, held in needed))
        chosen: list[RecalledPage] = []
        opened_count = 0
        wrong_count = 0
        round_number = 0
        for entry in self._rank_entries(entries, query.reply_words_in_view()):
            if not left or wrong_count == MOST_WRONG:
                break
            held = self.references_in(entry.text) & left
            if not held and entry.name in self._opened_in_vain:
                continue
            words = query.words_to_search(held or left)
            pages = self._choose_pages_of_entry(entry, held, words)
            if held:
                for page in pages:
                    chosen.append(replace(page, round=page.round + round_number, seeks=held))
            else:
                chosen.append(self._remember_vain_page(pages, left, round_number))
                wrong_count += 1
            left -= held
            opened_count += 1
            # As many as are needed are opened in one request, further ones in others.
            opened_first = max(len(needed), self._opened_at_once)
            if opened_count >= opened_first:
                round_number = 1 + (opened_count - opened_first) // self._opened_at_once
        if left:
            chosen += self._pages_from_search(left, query, entries, round_number)
        return chosen

    def _rank_entries(self, entries: Sequence[ShownEntry], words: Uses) -> list[ShownEntry]:
        described = [(entry, self._words_in(entry.shown)) for entry in entries]
        return _rank_by_words(described, words)

    def _pages_from_search(
        self, missed: Uses, query: _RecallQuery, entries: Sequence[ShownEntry], first_round: int
    ) -> list[RecalledPage]:
        """Return a search, and the pages with what the search did not show."""
        chosen: list[RecalledPage] = []
        words = query.words_to_search(missed)
        if words:
            chosen.append(_build_search(words, missed, first_round, ToolName.SEARCH_CACHE))
        for entry, held in self._choose_entries_holding(set(missed), entries):
            for page in self._choose_pages_of_entry(entry, held, query.words_to_search(held)):
                chosen.append(replace(page, round=page.round + first_round + 1, seeks=held))
        return chosen

    def _pages_from_history_search(
        self, missed: set[str], query: _RecallQuery, behind_summary: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        """Return a search for each missed thing, and the pages to read if it fails."""
        chosen: list[RecalledPage] = []
        for entry, held in self._choose_entries_holding(missed, behind_summary):
            words = query.words_to_search(held)
            if words:
                chosen.append(_build_search(words, held, 0, ToolName.RECALL_HISTORY))
            pages: list[RecalledPage] = []
            for wrong_entry in self._entries_tried_before(entry, words, behind_summary):
                pages_in_vain = self._choose_pages_of_entry(wrong_entry, frozenset(), words)
                pages.append(self._remember_vain_page(pages_in_vain, held, 0))
            pages += self._choose_pages_in_order(entry, held)
            for number, page in enumerate(pages):
                round_number = 1 + number // self._opened_at_once
                chosen.append(
                    replace(page, tool=ToolName.RECALL_HISTORY, seeks=held, round=round_number)
                )
        return chosen

    def _entries_tried_before(
        self, entry: ShownEntry, words: str, behind_summary: Sequence[ShownEntry]
    ) -> list[ShownEntry]:
        """Return the wrong entries that a search for the words shows before the right one."""
        searched_words = frozenset(map(str.casefold, words.split()))
        ranked = self._rank_entries(behind_summary, searched_words)
        if entry in ranked:
            ranked = ranked[: ranked.index(entry)]
        untried = [shown for shown in ranked if shown.name not in self._opened_in_vain]
        return untried[:MOST_WRONG]

    def _remember_vain_page(
        self, pages: Sequence[RecalledPage], seeks: Uses, round_number: int
    ) -> RecalledPage:
        self._opened_in_vain.add(pages[0].entry)
        return replace(pages[0], round=round_number, holds=frozenset(), seeks=seeks)

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
        lines = entry.text.removesuffix("\n").split("\n")
        passages = text_passages.find_passages(self._tokens, lines, words)
        held = self.references_in(passages)
        chosen = [RecalledPage(entry.name, (("find", words),), passages, held)]
        left = missed - held
        if left:
            for page in self._choose_pages_in_order(entry, left):
                chosen.append(replace(page, round=page.round + 1))
        return chosen

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
        pages: list[RecalledPage] = []
        for lines, text in self._pages[name]:
            asked: Asked = ()
            if lines:
                asked = (("lines", lines),)
            pages.append(RecalledPage(name, asked, text, self.references_in(text)))
        return pages

    def _words_in(self, text: str) -> Uses:
        if text not in self._spoken:
            self._spoken[text] = frozenset(map(str.casefold, _WORD.findall(text)))
        return self._spoken[text]

    def references_in(self, text: str) -> Uses:
        """Return a text's identifiers, paths, and lines without numbers and indentation."""
        if text not in self._found:
            self._found[text] = _find_references(text_or_json_values(text))
        return self._found[text]


def _find_references(text: str) -> Uses:
    references: set[str] = set()
    for identifier in IDENTIFIER.findall(text):
        name = identifier.rstrip("./-")
        if _JOINT.search(name):
            references.add(name)
    for numbered_line in text.splitlines():
        line = _NUMBER.sub("", numbered_line, count=1).strip()
        if LINE[0] <= len(line) <= LINE[1]:
            references.add(line)
    return frozenset(references)


def missing_from_view(missed: set[str], view: Iterable[str]) -> set[str]:
    """Return those that are nowhere in the view, even inside a longer path or line."""
    if not missed:
        return missed
    view_text = "\n".join(map(text_or_json_values, view))
    missing: set[str] = set()
    for reference in missed:
        word = re.escape(reference)
        # What stands before a word is checked behind it, because such a search is faster.
        if not re.search(rf"{word}(?<!\w{word})(?!\w)", view_text):
            missing.add(reference)
    return missing


def group_by_round(pages: Sequence[RecalledPage]) -> list[list[RecalledPage]]:
    pages_of_round: dict[int, list[RecalledPage]] = {}
    for page in pages:
        pages_of_round.setdefault(page.round, []).append(page)
    return [pages_of_round[number] for number in sorted(pages_of_round)]


def build_shown_entry(name: str, text: str, view_texts: Iterable[str]) -> ShownEntry:
    """Build an entry described by the texts that name it, or by two lines of a long text."""
    description: list[str] = []
    for view_text in view_texts:
        if name not in view_text:
            continue
        if len(view_text) <= SHORT:
            description.append(view_text)
            continue
        lines = view_text.splitlines()
        for number, line in enumerate(lines):
            if name in line:
                description += lines[number : number + 2]
    return ShownEntry(name, text, "\n".join(description))


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

    # Of equals, the newest comes first. Sorting keeps the order of equals.
    ranked: list[tuple[float, ShownEntry]] = []
    for entry, said in reversed(entries):
        worth = score(said)
        if worth > 0:
            ranked.append((worth, entry))
    ranked.sort(key=lambda pair: pair[0], reverse=True)
    return [entry for _, entry in ranked]


def _build_search(words: str, seeks: Uses, round_number: int, tool: ToolName) -> RecalledPage:
    argument_name = "find"
    if tool is ToolName.SEARCH_CACHE:
        argument_name = "query"
    asked = ((argument_name, words),)
    return RecalledPage("", asked, "", frozenset(), round=round_number, tool=tool, seeks=seeks)


def _last_needed_index(pages: Sequence[RecalledPage], missed: Uses) -> int:
    return max((pages.index(page) for page in _pages_that_help(pages, missed)), default=0)


def _pages_that_help(pages: Sequence[RecalledPage], missed: Iterable[str]) -> list[RecalledPage]:
    """Return the pages that hold something that no earlier page holds."""
    left = set(missed)
    helpful_pages: list[RecalledPage] = []
    for page in pages:
        if not left.isdisjoint(page.holds):
            left -= page.holds
            helpful_pages.append(page)
    return helpful_pages


def _cut_into_pages(tokens: TokenCounter, lines: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield a text's pages as the tool returns them, each with its range of lines."""
    first = 1
    while first <= len(lines):
        text, last = cut_to_page_with_last_line_number(
            tokens, lines[first - 1 : first + 2_000], first, LINES_TOKENS
        )
        has_all_lines = first == 1 and last == len(lines)
        line_range = f"{first}-{last}"
        # An entry that fits on a page is recalled without asking for lines.
        if has_all_lines and tokens.count_tokens(text) <= PAGE_TOKENS:
            line_range = ""
        yield line_range, text
        first = last + 1
