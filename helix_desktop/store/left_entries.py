"""Finds entries that are only in parts of conversations that users left by a rewind."""

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from helix_desktop.engine.cache_entry_rows import EntryUse
from helix_desktop.engine.facts import Recorded, Rewound
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.fact_tree import FactTree
from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.conversation_rows import StoredConversation
from helix_desktop.store.index_file import StoreFeed
from helix_desktop.store.journal_file import JournalFile, select_journal_rows, select_rewinds

Run = tuple[int, int]  # The first and the last of neighbouring fact numbers.
_RESULT_THAT_NAMES_CHILD = (
    "SELECT seq FROM facts WHERE conversation = ? AND substr(fact, 10, 12) = 'ToolReturned'"
    " AND instr(fact, ?) ORDER BY seq DESC LIMIT 1"
)


def kept_runs(rewinds: Iterable[Recorded], last_seq: int) -> list[Run]:
    """Return the numbers of the facts that no rewind left."""
    tree = FactTree()
    for recorded in rewinds:
        if isinstance(recorded.fact, Rewound):
            tree.add_rewind(recorded.seq, recorded.fact.to)
    return tree.runs_leading_to(last_seq)


def is_in_runs(seq: int, runs: Iterable[Run]) -> bool:
    return any(first <= seq <= last for first, last in runs)


@dataclass(frozen=True, slots=True)
class _KeptRuns:
    """Which facts of a conversation no rewind has left, up to its last one."""

    last_seq: int
    rewinds: tuple[Recorded, ...]
    runs: list[Run]


class LeftParts:
    """Which facts users have left. What was read of a conversation is remembered, so that only its
    new facts are read for the next question.
    """

    def __init__(self, feed: StoreFeed) -> None:
        self._feed = feed
        self._known: dict[str, _KeptRuns] = {}

    def select_left_entries(
        self, uses: Mapping[Digest, Collection[EntryUse]]
    ) -> dict[Digest, frozenset[str]]:
        """Return the entries of which all uses were left, each with the conversations of these."""
        left_entries: dict[Digest, frozenset[str]] = {}
        for digest, uses_of_entry in uses.items():
            # A call that asks for an entry again does not show that its conversation has it.
            holding = [use for use in uses_of_entry if use.how != "recall"]
            if holding and all(self._was_left(use.conversation, use.seq) for use in holding):
                left_entries[digest] = frozenset(use.conversation for use in holding)
        return left_entries

    def _was_left(self, conversation: str, seq: int) -> bool:
        """Whether the fact was left, or the call that started the fact's conversation was."""
        checked: set[str] = set()
        while conversation not in checked:
            checked.add(conversation)
            # One conversation at a time, so that nobody waits long who stores something.
            row = self._feed.run_on_stores(partial(self._read_row, conversation))
            if row is None:
                return False
            if not is_in_runs(seq, self._known[conversation].runs):
                return True
            answer_seq = 0
            if row.parent:
                answer_seq = self._feed.run_on_stores(partial(_select_answer_to_parent, row))
            if not answer_seq:
                return False
            conversation = row.parent
            seq = answer_seq
        return False

    def _read_row(
        self, conversation: str, _: object, journal: JournalFile
    ) -> StoredConversation | None:
        """Return a conversation's row, and read which of its facts were left."""
        try:
            row = journal.conversation_row(conversation)
        except NotFound:  # The index is a little behind.
            return None
        known = self._known.get(conversation)
        if known is None or known.last_seq > row.last_seq:
            known = _KeptRuns(0, (), [])
        if known.last_seq < row.last_seq:
            rewinds = known.rewinds + select_rewinds(journal, conversation, known.last_seq)
            runs = kept_runs(rewinds, row.last_seq)
            self._known[conversation] = _KeptRuns(row.last_seq, rewinds, runs)
        return row


def _select_answer_to_parent(row: StoredConversation, _: object, journal: JournalFile) -> int:
    """Return the fact with a sub-agent's answer in its parent's conversation, or 0."""
    named_child = f'"child":"{row.id}"'
    rows = select_journal_rows(journal, _RESULT_THAT_NAMES_CHILD, row.parent, named_child)
    if not rows:
        return 0
    return int(rows[0][0])
