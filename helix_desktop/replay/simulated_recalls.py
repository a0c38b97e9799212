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

# In characters. Whole lines of such a length are references, too.
SHORTEST_LINE = 24
LONGEST_LINE = 300
MOST_WORDS = 12  # The maximum number of words in an agent's search.
MANY = 12  # If an agent needs more references than this from an entry, it reads the whole entry.
SHORT = 1_500  # In characters. An agent reads shorter entries completely.
PAGES_IN_ORDER = 3  # An agent is assumed to read this many pages in order, and then certain lines.
# An agent that asks for several entries in one call asks for this many. With four, three wrong
# ones and the right one cost one request.
OPENED_TOGETHER = 4
MOST_WRONG = 3  # After opening this many wrong entries for a reply, an agent searches all entries.
MOST_LINES_ON_PAGE = 2_000  # No more lines than these are looked at for one page.
# BM25's usual constants: how soon more of a word stops to count, and how much length matters.
BM25_K1 = 1.2
BM25_B = 0.75
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


# The names and values of a recall's arguments, without the hash.
Asked = tuple[tuple[str, str], ...]


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
        """Return the words that an agent would search for to find what it misses.

        It knows only words that it still sees, so these are taken from the lines of the reply
        in which the missed things stand, or else from all of its lines.
        """
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
            for word in _WORD.findall(line):
                reply_words.add(word.casefold())
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
        # All references in the session so far.
        self._earlier_references: set[str] = set()
        # Each text of the session so far. The keys are invented names.
        self._session_texts: dict[str, str] = {}
        # By the id of each block of the view: the block, and the references in it.
        self._shown_blocks: dict[int, tuple[Block, Uses]] = {}
        # In how many blocks of the view each reference stands.
        self._shown_counts: Counter[str] = Counter()
        # By text: its references, and its words. Both are looked up again and again.
        self._references_by_text: dict[str, Uses] = {}
        self._words_by_text: dict[str, Uses] = {}
        # By entry: the range of lines and the text of each of its pages.
        self._pages: dict[str, list[tuple[str, str]]] = {}
        self._opened_in_vain: set[str] = set()
        self._opened_at_once = 1

    def add_earlier_message(self, message: RecordedMessage) -> None:
        """Add a message of the session. Later replies may refer to its content."""
        for text in message_texts(message):
            self._earlier_references |= self.references_in(text)
            if text.strip():
                invented_name = f"message {len(self._session_texts)}"
                self._session_texts[invented_name] = text_or_json_values(text)

    def set_shown_view(self, blocks: Iterable[Block], says: Callable[[Block], str]) -> None:
        """Set the view that the next reply is an answer to."""
        blocks_by_id = {id(block): block for block in blocks}
        # Views share blocks, so only what has gone and what is new is counted.
        for block_id in self._shown_blocks.keys() - blocks_by_id.keys():
            _, references = self._shown_blocks.pop(block_id)
            self._shown_counts.subtract(references)
        for block_id in blocks_by_id.keys() - self._shown_blocks.keys():
            block = blocks_by_id[block_id]
            references = self.references_in(says(block))
            self._shown_blocks[block_id] = (block, references)
            self._shown_counts.update(references)

    def references_used_but_not_in_view(self, reply: RecordedMessage) -> set[str]:
        """Return what the reply uses that occurred in the session but is nowhere in the view."""
        used_references = self.session_references_used_by(reply)
        return {reference for reference in used_references if self._shown_counts[reference] <= 0}

    def session_references_used_by(self, reply: RecordedMessage) -> set[str]:
        """Return what the reply uses and can only know from the session."""
        used_references: set[str] = set()
        for text in message_texts(reply):
            used_references |= self.references_in(text)
        # An agent can repeat its own sentences without a recall.
        used_references -= {line for line in self.references_in(reply.text) if " " in line}
        from_session: set[str] = set()
        for reference in used_references & self._earlier_references:
            if not self._public_names.has_reference(reference):
                from_session.add(reference)
        return from_session

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
        """Return the pages to read, in order, to bring back what a reply misses.

        The simplest agent reads the pages that have it, of the entries that the view names.
        One that searches does not know where it is: it opens entries that sound right, and
        then, if the view has a summary, searches what the summary stands for. `view` has the
        texts that the model was shown.
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
        pages: list[RecalledPage] = []
        for entry, missed_in_entry in self._choose_entries_holding(missed, entries):
            pages += _pages_that_help(self._all_pages_of(entry), missed_in_entry)
        return pages

    def _texts_not_in_view(self, view_texts: Iterable[str]) -> list[ShownEntry]:
        plain_view_texts = set(map(text_or_json_values, view_texts))
        hidden_texts: list[ShownEntry] = []
        for name, text in self._session_texts.items():
            if text not in plain_view_texts:
                hidden_texts.append(ShownEntry(name, text, text))
        return hidden_texts

    def _choose_entries_holding(
        self, missed: set[str], entries: Sequence[ShownEntry]
    ) -> list[tuple[ShownEntry, Uses]]:
        """Choose entries until nothing is missed that any entry has.

        Each time, it is the entry with most of what is still missed, and of equals the
        shortest. Each is returned with the missed references that it was chosen for.
        """
        still_missed = frozenset(missed)
        candidates: list[ShownEntry] = []
        for entry in entries:
            if not still_missed.isdisjoint(self.references_in(entry.text)):
                candidates.append(entry)
        # The first entry with the most wins, so the shortest of equals stands first.
        candidates.sort(key=lambda entry: len(entry.text))
        chosen: list[tuple[ShownEntry, Uses]] = []
        while still_missed and candidates:
            missed_in_entries = [
                self.references_in(entry.text) & still_missed for entry in candidates
            ]
            missed_in_best = max(missed_in_entries, key=len)
            best = candidates.pop(missed_in_entries.index(missed_in_best))
            if missed_in_best:
                chosen.append((best, missed_in_best))
                still_missed -= missed_in_best
        return chosen

    def _pages_from_opened_entries(
        self, missed: set[str], query: _RecallQuery, entries: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        """Open as many matching entries as are needed, then one at a time, then search.

        An entry is opened in vain if it has nothing that the reply uses: the agent can
        tell so only afterwards.
        """
        needed_entries = self._choose_entries_holding(missed, entries)
        still_missed = frozenset[str]().union(*(references for _, references in needed_entries))
        # As many as are needed are opened in one request, further ones in others.
        opened_in_first_round = max(len(needed_entries), self._opened_at_once)
        chosen_pages: list[RecalledPage] = []
        opened_count = 0
        wrong_count = 0
        for entry in self._rank_entries(entries, query.reply_words_in_view()):
            if not still_missed or wrong_count == MOST_WRONG:
                break
            missed_in_entry = self.references_in(entry.text) & still_missed
            if not missed_in_entry and entry.name in self._opened_in_vain:
                continue
            words = query.words_to_search(missed_in_entry or still_missed)
            pages = self._choose_pages_of_entry(entry, missed_in_entry, words)
            round_number = self._round_of_entry(opened_count, opened_in_first_round)
            if missed_in_entry:
                chosen_pages += _move_to_later_round(pages, round_number, seeks=missed_in_entry)
            else:
                chosen_pages.append(self._remember_vain_page(pages, still_missed, round_number))
                wrong_count += 1
            still_missed -= missed_in_entry
            opened_count += 1
        if still_missed:
            round_number = self._round_of_entry(opened_count, opened_in_first_round)
            chosen_pages += self._pages_from_search(still_missed, query, entries, round_number)
        return chosen_pages

    def _round_of_entry(self, opened_before: int, opened_in_first_round: int) -> int:
        """Return the number of the request in which an entry is opened, counting from 0."""
        if opened_before < opened_in_first_round:
            return 0
        opened_later = opened_before - opened_in_first_round
        return 1 + opened_later // self._opened_at_once

    def _rank_entries(self, entries: Sequence[ShownEntry], words: Uses) -> list[ShownEntry]:
        described = [(entry, self._words_in(entry.shown)) for entry in entries]
        return _rank_by_words(described, words)

    def _pages_from_search(
        self, missed: Uses, query: _RecallQuery, entries: Sequence[ShownEntry], first_round: int
    ) -> list[RecalledPage]:
        """Return a search of all entries, and the pages with what the search may not show."""
        chosen_pages: list[RecalledPage] = []
        words = query.words_to_search(missed)
        if words:
            chosen_pages.append(_build_search(words, missed, first_round, ToolName.SEARCH_CACHE))
        for entry, missed_in_entry in self._choose_entries_holding(set(missed), entries):
            words_for_entry = query.words_to_search(missed_in_entry)
            pages = self._choose_pages_of_entry(entry, missed_in_entry, words_for_entry)
            chosen_pages += _move_to_later_round(pages, first_round + 1, seeks=missed_in_entry)
        return chosen_pages

    def _pages_from_history_search(
        self, missed: set[str], query: _RecallQuery, behind_summary: Sequence[ShownEntry]
    ) -> list[RecalledPage]:
        """Return the searches for what only a summary mentions, and the pages to read after each.

        Before the right page, the agent opens a few wrong ones that sound right, too. A search
        that has shown everything makes its pages unnecessary, which is decided when it is
        played.
        """
        chosen_pages: list[RecalledPage] = []
        for entry, missed_in_entry in self._choose_entries_holding(missed, behind_summary):
            words = query.words_to_search(missed_in_entry)
            if words:
                search = _build_search(
                    words, missed_in_entry, round_number=0, tool=ToolName.RECALL_HISTORY
                )
                chosen_pages.append(search)
            pages: list[RecalledPage] = []
            for wrong_entry in self._entries_tried_before(entry, words, behind_summary):
                vain_pages = self._choose_pages_of_entry(wrong_entry, frozenset(), words)
                pages.append(self._remember_vain_page(vain_pages, missed_in_entry, round_number=0))
            pages += self._choose_pages_in_order(entry, missed_in_entry)
            for number, page in enumerate(pages):
                page_of_history = replace(
                    page,
                    tool=ToolName.RECALL_HISTORY,
                    seeks=missed_in_entry,
                    round=1 + number // self._opened_at_once,
                )
                chosen_pages.append(page_of_history)
        return chosen_pages

    def _entries_tried_before(
        self, entry: ShownEntry, words: str, behind_summary: Sequence[ShownEntry]
    ) -> list[ShownEntry]:
        """Return the wrong entries that a search for the words shows before the right one."""
        searched_words = frozenset(word.casefold() for word in words.split())
        ranked = self._rank_entries(behind_summary, searched_words)
        if entry in ranked:
            ranked = ranked[: ranked.index(entry)]
        untried = [candidate for candidate in ranked if candidate.name not in self._opened_in_vain]
        return untried[:MOST_WRONG]

    def _remember_vain_page(
        self, pages: Sequence[RecalledPage], seeks: Uses, round_number: int
    ) -> RecalledPage:
        self._opened_in_vain.add(pages[0].entry)
        return replace(pages[0], round=round_number, holds=frozenset(), seeks=seeks)

    def _choose_pages_of_entry(
        self, entry: ShownEntry, missed: Uses, words: str
    ) -> list[RecalledPage]:
        """Return the pages of an entry that an agent would read to find what it misses.

        A short entry is read whole, and so is one of which much is needed. In others the agent
        searches for words, and reads on in order if that did not show everything.
        """
        pages = self._all_pages_of(entry)
        if len(pages) == 1 and len(entry.text) <= SHORT:
            return pages
        if len(missed) > MANY:
            return pages[: _last_needed_index(pages, missed) + 1]
        if not words:
            return self._choose_pages_in_order(entry, missed)
        lines = entry.text.removesuffix("\n").split("\n")
        passages = text_passages.find_passages(self._tokens, lines, words)
        references_found = self.references_in(passages)
        arguments = (("find", words),)
        chosen_pages = [RecalledPage(entry.name, arguments, passages, references_found)]
        still_missed = missed - references_found
        if still_missed:
            pages_read_then = self._choose_pages_in_order(entry, still_missed)
            for page in pages_read_then:
                chosen_pages.append(replace(page, round=page.round + 1))
        return chosen_pages

    def _choose_pages_in_order(self, entry: ShownEntry, missed: Uses) -> list[RecalledPage]:
        """Return the pages up to the last one needed, or only those that help if there are many."""
        pages = self._all_pages_of(entry)
        last_needed = _last_needed_index(pages, missed)
        if last_needed >= PAGES_IN_ORDER:
            return _pages_that_help(pages, missed)
        # Each page in a request of its own: the agent goes on only if a page was not enough.
        return [replace(pages[number], round=number) for number in range(last_needed + 1)]

    def _all_pages_of(self, entry: ShownEntry) -> list[RecalledPage]:
        """Return an entry's pages, each with the arguments by which it is recalled."""
        name = entry.name
        if name not in self._pages:
            lines = entry.text.split("\n")
            self._pages[name] = list(_cut_into_pages(self._tokens, lines))
        pages: list[RecalledPage] = []
        for line_range, text in self._pages[name]:
            arguments: Asked = ()
            if line_range:
                arguments = (("lines", line_range),)
            references = self.references_in(text)
            pages.append(RecalledPage(name, arguments, text, references))
        return pages

    def _words_in(self, text: str) -> Uses:
        if text not in self._words_by_text:
            words = map(str.casefold, _WORD.findall(text))
            self._words_by_text[text] = frozenset(words)
        return self._words_by_text[text]

    def references_in(self, text: str) -> Uses:
        """Return a text's identifiers, paths, and lines without numbers and indentation."""
        if text not in self._references_by_text:
            self._references_by_text[text] = _find_references(text_or_json_values(text))
        return self._references_by_text[text]


def _find_references(text: str) -> Uses:
    """Return what a later reply could refer to: names of joined parts, paths, and whole lines."""
    references: set[str] = set()
    for identifier in IDENTIFIER.findall(text):
        name = identifier.rstrip("./-")
        if _JOINT.search(name):
            references.add(name)
    for numbered_line in text.splitlines():
        line = _NUMBER.sub("", numbered_line, count=1).strip()
        if SHORTEST_LINE <= len(line) <= LONGEST_LINE:
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
    """Return the entries that share a word with the query, ranked by BM25, then by age.

    BM25 is the usual formula of text search: a rare word weighs more than a common one,
    and a word in a short text more than in a long one.
    """
    entry_count = len(entries)
    total_length = sum(len(entry_words) for _, entry_words in entries)
    mean_length = total_length / max(1, entry_count)
    # In how many entries each word of the query stands.
    entries_with_word: Counter[str] = Counter()
    for _, entry_words in entries:
        entries_with_word.update(entry_words & words)
    scored: list[tuple[float, ShownEntry]] = []
    # Of equals, the newest comes first. Sorting keeps the order of equals.
    for entry, entry_words in reversed(entries):
        rarity = 0.0
        for word in entry_words & words:
            rarity += math.log(1 + entry_count / entries_with_word[word])
        length = len(entry_words) / max(1, mean_length)
        length_weight = 1 - BM25_B + BM25_B * length
        score = rarity * (BM25_K1 + 1) / (1 + BM25_K1 * length_weight)
        if score > 0:
            scored.append((score, entry))
    scored.sort(key=lambda pair: pair[0], reverse=True)
    return [entry for _, entry in scored]


def _move_to_later_round(
    pages: Sequence[RecalledPage], later_by: int, *, seeks: Uses
) -> list[RecalledPage]:
    return [replace(page, round=page.round + later_by, seeks=seeks) for page in pages]


def _build_search(words: str, seeks: Uses, round_number: int, tool: ToolName) -> RecalledPage:
    """Return a search for words. What it finds is known only when it is played."""
    argument_name = "find"
    if tool is ToolName.SEARCH_CACHE:
        argument_name = "query"
    return RecalledPage(
        entry="",
        asked=((argument_name, words),),
        text="",
        holds=frozenset(),
        round=round_number,
        tool=tool,
        seeks=seeks,
    )


def _last_needed_index(pages: Sequence[RecalledPage], missed: Uses) -> int:
    helpful_pages = _pages_that_help(pages, missed)
    if not helpful_pages:
        return 0
    return pages.index(helpful_pages[-1])


def _pages_that_help(pages: Sequence[RecalledPage], missed: Iterable[str]) -> list[RecalledPage]:
    """Return the pages that hold something that no earlier page holds."""
    still_missed = set(missed)
    helpful_pages: list[RecalledPage] = []
    for page in pages:
        if not still_missed.isdisjoint(page.holds):
            still_missed -= page.holds
            helpful_pages.append(page)
    return helpful_pages


def _cut_into_pages(tokens: TokenCounter, lines: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield a text's pages as the tool returns them, each after its range of lines.

    The range is empty for a text of one page, which is recalled without naming lines.
    """
    first_line = 1
    while first_line <= len(lines):
        # Lines count from 1.
        lines_to_cut = lines[first_line - 1 : first_line + MOST_LINES_ON_PAGE]
        text, last_line = cut_to_page_with_last_line_number(
            tokens, lines_to_cut, first_line, LINES_TOKENS
        )
        is_whole_entry = first_line == 1 and last_line == len(lines)
        if is_whole_entry and tokens.count_tokens(text) <= PAGE_TOKENS:
            yield "", text
        else:
            yield f"{first_line}-{last_line}", text
        first_line = last_line + 1
