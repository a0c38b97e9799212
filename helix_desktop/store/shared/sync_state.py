"""Remembers how much of each conversation other machines have, and its head when last seen.

A table in the journal, changed in one transaction with the facts. It is
derived: without it, all facts here are compared with the shared ones.
"""

# ruff: noqa: S608 -- what is put together here are the names of columns

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import ConversationStarted, Fact, Forgotten, UserSaid
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import JournalCorrupt
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_sql_statements
from helix_desktop.store import content_forgetting, sqlite_database
from helix_desktop.store.journal_file import (
    JournalFile,
    StoredFact,
    checksum_of_fact,
    select_journal_rows,
)
from helix_desktop.store.shared import fact_segments
from helix_desktop.store.shared.conversation_heads import HeadMark
from helix_desktop.store.shared.fact_segments import FactSegment, HeadContents
from helix_desktop.store.shared.link_progress import build_machine_name
from helix_desktop.store.shared.released_conversations import ReleasedConversations
from helix_desktop.store.shared.row_encryption import RowCipher

_SAVE_PROGRESS = sqlite_database.build_upsert(
    "in_step", ["conversation", "seq", "chain", "version", "writer", "head"]
)
_SELECT_PROGRESS = "SELECT conversation, seq, chain, version, writer, head FROM in_step"
_CREATE_SHARING = "CREATE TABLE IF NOT EXISTS sharing(name TEXT PRIMARY KEY, value TEXT NOT NULL)"
_CREATE_BLANKED = "CREATE TABLE IF NOT EXISTS blanked(name BLOB PRIMARY KEY, conversation TEXT NOT NULL, seq INTEGER NOT NULL)"
_SQL = read_sql_statements("sync_statements")
_CREATE_WORKERS = "CREATE TABLE IF NOT EXISTS written_by_worker(conversation TEXT PRIMARY KEY, last_seq INTEGER NOT NULL)"
_NOTE_WORKER = (
    "INSERT INTO written_by_worker SELECT ?, coalesce((SELECT last_seq FROM conversations WHERE id = ?), 0) + ?"
    " WHERE true ON CONFLICT(conversation) DO UPDATE SET last_seq = max(excluded.last_seq,"
    " written_by_worker.last_seq + ?)"
)
_HEX = re.compile("[0-9a-f]{64}")
_NOTE_PENDING = (
    "DELETE FROM pending WHERE conversation = {0}; INSERT INTO pending SELECT {0} WHERE "
    + _SQL["is_pending"]
)
# Conversations to send, or removed here, are noted at once, since searching 10,000 took
# 17 ms each time. By event: the column with the conversation.
_EVENTS_TO_NOTE = {
    "INSERT ON main.conversations": "new.id",
    "UPDATE OF last_seq ON main.conversations": "new.id",
    "DELETE ON main.conversations": "old.id",
    "INSERT ON main.in_step": "new.conversation",
    "UPDATE OF seq ON main.in_step": "new.conversation",
    "DELETE ON main.released": "old.conversation",
}
_PENDING = [
    "CREATE TEMP TABLE IF NOT EXISTS pending(conversation TEXT PRIMARY KEY) WITHOUT ROWID",
    "INSERT OR IGNORE INTO pending SELECT one FROM (SELECT id AS one FROM conversations UNION SELECT conversation"
    " FROM in_step) WHERE " + _SQL["is_pending"].format("one"),
]
for _number, (_event, _column) in enumerate(_EVENTS_TO_NOTE.items()):
    _PENDING.append(
        f"CREATE TEMP TRIGGER IF NOT EXISTS pending_{_number} AFTER {_event}"
        f" BEGIN {_NOTE_PENDING.format(_column)}; END"
    )
_SELECT_REMOVED = "SELECT conversation FROM pending WHERE NOT EXISTS (SELECT 1 FROM conversations WHERE id = conversation)"


@dataclass(frozen=True, slots=True)
class SharedProgress:
    """Others have the facts up to `seq`, where the chain's link is `chain`. The rest is
    from the head.
    """

    conversation: str
    seq: int = 0
    chain: bytes = fact_segments.NOTHING
    version: int = 0
    writer: bytes = b""
    contents: HeadContents | None = None

    @property
    def generation(self) -> int:
        if self.contents is None:
            return 0
        return self.contents.generation

    @property
    def segments(self) -> tuple[FactSegment, ...]:
        """Return the segments that the head names."""
        if self.contents is None:
            return ()
        return self.contents.segments

    @property
    def must_be_sent_again(self) -> bool:
        """Whether it must be sent anew, because facts that are there were changed in place here."""
        if self.contents is None:
            return False
        return bool(self.contents.segments) and self.contents.last == 0


class SyncState:
    """The table in an open journal. Used from the journal's thread."""

    def __init__(
        self,
        journal: JournalFile,
        seal_: RowCipher | None = None,
        forgotten: Callable[[Digest], bool] | None = None,
    ) -> None:
        """Create the tables if necessary, and find this machine's name.

        `seal_`: the workspace's key; without it, facts that are changed in place are not remembered.
        `forgotten`: whether an entry was forgotten, here or elsewhere.
        """
        self._journal = journal
        self._seal = seal_
        self._forgotten = forgotten
        self.released = ReleasedConversations(journal)
        statements = [_SQL["in_step"], _CREATE_SHARING, _CREATE_BLANKED, _CREATE_WORKERS]
        statements += _PENDING
        with journal.errors:
            for statement in statements:
                journal.connection.execute(statement)
        if seal_ is not None:
            journal.replacing = self._remember_changed_fact

        # The name depends on the folder, so that a copy of the workspace is another machine.
        known_name = self._read_value("machine")
        name = build_machine_name(journal.path.parent, known_name)
        if name != known_name:
            self._write_value("machine", name)
        self.machine = bytes.fromhex(name)

    def read_mark(self) -> HeadMark:
        """Return the engine's last change up to which everything was looked at."""
        change, _, engine = self._read_value("mark").partition(" ")
        return engine, int(change or 0)

    def save_mark(self, mark: HeadMark) -> None:
        self._write_value("mark", f"{mark[1]} {mark[0]}")

    def read_unread_heads(self) -> frozenset[bytes]:
        """Return older heads that could not be merged: damaged, or with conversations in use."""
        names = self._read_value("unread").split()
        return frozenset(bytes.fromhex(name) for name in names)

    def save_unread_heads(self, names: frozenset[bytes]) -> None:
        sorted_names = sorted(name.hex() for name in names)
        self._write_value("unread", " ".join(sorted_names))

    def read_shared_progress(self, conversation: str) -> SharedProgress:
        rows = select_journal_rows(
            self._journal, f"{_SELECT_PROGRESS} WHERE conversation = ?", conversation
        )
        if not rows:
            return SharedProgress(conversation)
        return _progress_from_row(rows[0])

    def read_progress_unless_removed(self, conversation: str) -> SharedProgress:
        """Return the progress, without any facts if the conversation was removed here."""
        progress = self.read_shared_progress(conversation)
        is_here = select_journal_rows(
            self._journal, "SELECT 1 FROM conversations WHERE id = ?", conversation
        )
        if is_here:
            return progress
        return replace(progress, seq=0, chain=fact_segments.NOTHING)

    def list_progress(self) -> tuple[SharedProgress, ...]:
        return tuple(map(_progress_from_row, select_journal_rows(self._journal, _SELECT_PROGRESS)))

    def needed_segment_names(self) -> tuple[bytes, ...]:
        """Return the rows that this machine needs for its conversations."""
        names: list[bytes] = []
        for progress in self.list_progress():
            names += [segment.name for segment in progress.segments]
        return tuple(names)

    def mark_conversations_for_resending(self, conversations: Iterable[str]) -> None:
        """Mark conversations with facts changed in place, by forgetting, to be sent
        anew as the next generation.
        """
        for conversation in conversations:
            progress = self.read_shared_progress(conversation)
            if progress.contents is None or not progress.seq:
                continue
            chain = fact_segments.compute_chain(
                fact_segments.NOTHING,
                self._journal.read_stored_facts(conversation, 0, progress.seq),
            )
            contents = replace(
                progress.contents, generation=progress.contents.generation + 1, last=0
            )
            self.save_progress(replace(progress, chain=chain, contents=contents))

    def merge_changed_facts(
        self,
        progress: SharedProgress,
        other_facts: Sequence[StoredFact],
        head_progress: SharedProgress,
    ) -> int | None:
        """Merge facts changed in place, here or there; the changed text wins. Return
        the number after which both wrote.

        `other_facts` are all facts of the other side. Up to `progress.seq`, both sides agree on
        them but for what was forgotten. Then come facts that both have without having noted it,
        and then what only one has, or what each has written for itself.
        """
        own_facts = self._journal.read_stored_facts(progress.conversation)
        agreed_count = min(progress.seq, len(other_facts))
        agreed_facts = list(zip(own_facts[:agreed_count], other_facts[:agreed_count], strict=True))
        for ours, other in agreed_facts:
            _refuse_other_words(ours, other)
        own_later_facts = own_facts[agreed_count:]
        other_later_facts = other_facts[agreed_count:]
        common_count = fact_segments.count_common_facts(own_later_facts, other_later_facts)
        facts_written_here = [
            stored_fact.decode_recorded().fact for stored_fact in own_later_facts[common_count:]
        ]
        have_both_written = common_count < min(len(own_later_facts), len(other_later_facts))
        is_ahead = progress.generation > head_progress.generation
        with self._journal.in_one_transaction():
            if not is_ahead:
                for ours, other in agreed_facts:
                    self._take_over_forgetting(ours, other, progress)
            has_only_forgotten = all(isinstance(fact, Forgotten) for fact in facts_written_here)
            if have_both_written and not has_only_forgotten:
                return agreed_count + common_count
            new_facts = other_later_facts[len(own_later_facts) :]
            if have_both_written:  # Here only marks of forgetting were written.
                self._journal.delete_facts_after(progress.conversation, agreed_count + common_count)
                new_facts = other_later_facts[common_count:]
            self._journal.insert_stored_facts(new_facts, trusted=True)
            self.save_progress(head_progress)
            self._plan_resend_if_different(head_progress, facts_written_here)
        return None

    def _take_over_forgetting(
        self, ours: StoredFact, other: StoredFact, progress: SharedProgress
    ) -> None:
        """Put another machine's version of a fact in the place of ours. If facts were forgotten
        here, too, ours may lack something that theirs still has, so both versions are merged.
        """
        if ours.fact == other.fact:
            return
        if progress.must_be_sent_again:
            fact = self._merge_blanked_facts(ours, other)
        else:
            fact = other.decode_recorded().fact
        self._journal.replace_fact(ours, fact)

    def save_progress(self, progress: SharedProgress) -> None:
        """Save how far a conversation is in step with the shared store. If it was removed there, it
        is also no longer marked as released from this disk.
        """
        head = b""
        if progress.contents:
            head = fact_segments.encode_head(progress.contents)
        with self._journal.in_one_transaction():
            row = (
                progress.conversation,
                progress.seq,
                progress.chain,
                progress.version,
                progress.writer,
                head,
            )
            self._journal.connection.execute(_SAVE_PROGRESS, row)
            if progress.contents and progress.contents.is_removed:
                self.released.remove_release_marks(progress.conversation)

    def save_progress_if_here(
        self, head_progress: SharedProgress, progress: SharedProgress
    ) -> bool:
        """Whether all facts of a head are here, such as after a lost answer. If so, note that."""
        if progress.must_be_sent_again or head_progress.seq <= progress.seq:
            return False
        stored_facts = self._journal.read_stored_facts(
            head_progress.conversation, progress.seq, head_progress.seq - progress.seq
        )
        is_here = fact_segments.compute_chain(progress.chain, stored_facts) == head_progress.chain
        if is_here:
            self.save_progress(head_progress)
        return is_here

    def save_progress_together(self, all_progress: Iterable[SharedProgress]) -> None:
        """Save several in one transaction, with one sync."""
        with self._journal.in_one_transaction():
            for one_progress in all_progress:
                self.save_progress(one_progress)

    def count_facts_to_send(self) -> dict[str, int]:
        """Return how many facts of each conversation others lack, the one waiting longest first."""
        rows = select_journal_rows(self._journal, _SQL["unsent"])
        return {str(conversation): int(count) for conversation, count in rows}

    def list_removed_conversations(self) -> tuple[str, ...]:
        return tuple(str(name) for (name,) in select_journal_rows(self._journal, _SELECT_REMOVED))

    def list_completely_sent(self, conversations: Iterable[str]) -> list[SharedProgress]:
        """Return the conversations without facts to send."""
        unsent_counts = self.count_facts_to_send()
        completely_sent = []
        for conversation in conversations:
            if conversation in unsent_counts:
                continue
            progress = self.read_shared_progress(conversation)
            if progress.seq and progress.contents and progress.contents.last == progress.seq:
                completely_sent.append(progress)
        return completely_sent

    def list_current_own_heads(
        self, conversations: Sequence[str]
    ) -> list[tuple[SharedProgress, HeadContents]]:
        """Return the conversations whose head is this machine's and current."""
        own = []
        for conversation in conversations:
            progress = self.read_shared_progress(conversation)
            is_own = progress.writer == self.machine and not progress.must_be_sent_again
            if is_own and progress.contents:
                own.append((progress, progress.contents))
        return own

    # --- Changing facts together with what is known of other machines' facts

    def append_facts_of_others(
        self, stored_facts: Sequence[StoredFact], progress: SharedProgress, *, anew: bool = False
    ) -> None:
        """Append another machine's facts. `anew`: they were changed on arrival, so they
        are sent again.
        """
        with self._journal.in_one_transaction():
            self._journal.insert_stored_facts(stored_facts, trusted=True)
            self.released.remove_release_marks(progress.conversation)
            self.save_progress(progress)
            if anew:
                self._plan_resend_if_different(progress)

    def move_own_facts_to_branch(
        self,
        conversation: str,
        last_common_seq: int,
        branch: str,
        started: ConversationStarted,
        stored_facts: Sequence[StoredFact],
        progress: SharedProgress,
    ) -> None:
        """Move what was written here after `last_common_seq` to a branch, since another
        machine wrote there, too. The branch has all facts with their numbers, and the
        other's take their place here, in one transaction, so none is ever missing.
        """
        own_facts = self._journal.read_stored_facts(conversation)
        with self._journal.in_one_transaction():
            self._journal.restore_facts(
                [_fact_in_branch(stored_fact, branch) for stored_fact in own_facts]
            )
            self._journal.append_all_or_nothing(branch, [started])
            self._journal.delete_facts_after(conversation, last_common_seq)
            move_blanked = "UPDATE blanked SET conversation = ? WHERE conversation = ? AND seq > ?"
            self._journal.connection.execute(move_blanked, (branch, conversation, last_common_seq))
            self._journal.insert_stored_facts(stored_facts, trusted=True)
            self.save_progress(progress)
            self._plan_resend_if_different(progress)

    def note_facts_of_worker(self, conversation: str, count: int) -> None:
        """Note, before a worker writes so many facts for a task, that they only count once
        the store has them: until then, the worker does nothing that is based on them.
        """
        with self._journal.in_one_transaction():
            values = (conversation, conversation, count, count)
            self._journal.connection.execute(_NOTE_WORKER, values)

    def was_written_by_worker(self, conversation: str) -> bool:
        asked = "SELECT 1 FROM written_by_worker WHERE conversation = ?"
        return bool(select_journal_rows(self._journal, asked, conversation))

    def is_unfinished_work(self, conversation: str, last_common_seq: int) -> bool:
        """Whether all facts after this one are what a worker had not sent yet when it
        hung or died, so that for everybody else they never happened.
        """
        statement = "SELECT last_seq FROM written_by_worker WHERE conversation = ?"
        rows = select_journal_rows(self._journal, statement, conversation)
        stored_facts = self._journal.read_stored_facts(conversation)
        if not rows:
            return False
        last_seq_of_worker = rows[0][0]
        last_seq = stored_facts[-1].seq
        if last_seq <= last_common_seq or last_seq > last_seq_of_worker:
            return False
        message_seqs = [
            stored_fact.seq for stored_fact in stored_facts if _is_message_of_user(stored_fact)
        ]
        # The first one is the task. Anything else a person has said here since then.
        return all(seq <= last_common_seq for seq in message_seqs[1:])

    def replace_unfinished_work(
        self,
        conversation: str,
        last_common_seq: int,
        stored_facts: Sequence[StoredFact],
        progress: SharedProgress,
    ) -> None:
        """Put another machine's facts in the place of `is_unfinished_work`."""
        with self._journal.in_one_transaction():
            self._journal.delete_facts_after(conversation, last_common_seq)
            self._journal.insert_stored_facts(stored_facts, trusted=True)
            self.save_progress(progress)
            self._plan_resend_if_different(progress)

    def blank_forgotten_facts(self, stored_facts: Sequence[StoredFact]) -> list[StoredFact]:
        """Return another machine's facts without what was forgotten here."""
        blanked_rows = dict(select_journal_rows(self._journal, "SELECT name, rowid FROM blanked"))
        if not blanked_rows and not self._forgotten:
            return list(stored_facts)
        return [self._blank_if_forgotten(stored_fact, blanked_rows) for stored_fact in stored_facts]

    def _blank_if_forgotten(self, stored_fact: StoredFact, blanked: dict[bytes, int]) -> StoredFact:
        """Return another machine's fact without what was forgotten here, be it a text that was
        blanked in the same fact here, or entries that it names.
        """
        if blanked:
            row = blanked.get(self._keyed_digest_of_fact(stored_fact))
            if row:
                return _with_fact_text(stored_fact, self._text_of_blanked_fact(stored_fact, row))
        if self._forgotten is None:
            return stored_fact
        named_digests = {Digest.from_hex(text) for text in _HEX.findall(stored_fact.fact)}
        forgotten = list(filter(self._forgotten, named_digests))
        if not forgotten:
            return stored_fact
        request = content_forgetting.ForgetRequest("", forgotten)
        blanked_fact = content_forgetting.blank_fact(stored_fact, request)
        if blanked_fact is None:
            return stored_fact
        return _with_fact_text(stored_fact, fact_encoding.encode_fact(blanked_fact))

    def _text_of_blanked_fact(self, stored_fact: StoredFact, row: int) -> str:
        """Return the text here of a fact that was blanked, or only a mark if it no
        longer exists.
        """
        statement = "SELECT conversation, seq FROM blanked WHERE rowid = ?"
        conversation, seq = self._journal.connection.execute(statement, (row,)).fetchone()
        stored_facts = self._journal.read_stored_facts(conversation, seq - 1, 1)
        if not stored_facts or stored_facts[0].time != stored_fact.time:
            return fact_encoding.encode_fact(Forgotten((), 1, content_forgetting.REASON))
        return stored_facts[0].fact

    def _remember_changed_fact(self, stored_fact: StoredFact) -> None:
        """Remember a fact changed in place by a keyed digest, which reveals nothing
        without the key.
        """
        self._journal.connection.execute(
            "INSERT OR IGNORE INTO blanked VALUES(?, ?, ?)",
            (self._keyed_digest_of_fact(stored_fact), stored_fact.conversation, stored_fact.seq),
        )

    def _keyed_digest_of_fact(self, stored_fact: StoredFact) -> bytes:
        assert self._seal is not None  # noqa: S101 - nothing is remembered without it
        return self._seal.keyed_row_name("fact", fact_segments.next_chain_link(b"", stored_fact))

    def _merge_blanked_facts(self, ours: StoredFact, other: StoredFact) -> Fact:
        """Merge a fact that both machines changed in place: whatever differs was
        forgotten by one of them.
        """
        statement = "SELECT 1 FROM blanked WHERE conversation = ? AND seq = ?"
        fact_key = (ours.conversation, ours.seq)
        is_blanked_here = (
            self._journal.connection.execute(statement, fact_key).fetchone() is not None
        )
        if not is_blanked_here:
            return other.decode_recorded().fact
        merged = _merge_versions_blanking_differences(json.loads(ours.fact), json.loads(other.fact))
        return fact_encoding.decode_fact(json.dumps(merged))

    def _plan_resend_if_different(
        self, progress: SharedProgress, marks: Sequence[Fact] = ()
    ) -> None:
        """Plan to send it anew if others have something else, because facts were forgotten here.

        A chain is a hash over all facts up to one of them. A conversation is only sent if it has
        facts that others lack, so it gets the fact that something was forgotten, unless it has more.
        """
        stored_facts = self._journal.read_stored_facts(progress.conversation)
        own_chain = fact_segments.compute_chain(fact_segments.NOTHING, stored_facts[: progress.seq])
        if own_chain == progress.chain:
            return
        if len(stored_facts) == progress.seq:
            facts_to_append = marks or [Forgotten((), 1, content_forgetting.REASON)]
            self._journal.append_all_or_nothing(progress.conversation, facts_to_append)
        self.mark_conversations_for_resending([progress.conversation])

    def _read_value(self, name: str) -> str:
        rows = select_journal_rows(self._journal, "SELECT value FROM sharing WHERE name = ?", name)
        if not rows:
            return ""
        return str(rows[0][0])

    def _write_value(self, name: str, value: str) -> None:
        with self._journal.in_one_transaction():
            self._journal.connection.execute(
                "INSERT OR REPLACE INTO sharing VALUES(?, ?)", (name, value)
            )


def _is_message_of_user(stored_fact: StoredFact) -> bool:
    fact = stored_fact.decode_recorded().fact
    return isinstance(fact, UserSaid) and not fact.by


def _refuse_other_words(ours: StoredFact, other: StoredFact) -> None:
    """Another machine may forget what was said here, but not put other words in its place."""
    if ours.time == other.time:
        if ours.fact == other.fact:
            return
        if content_forgetting.differ_only_by_forgetting(ours.fact, other.fact):
            return
    raise JournalCorrupt(
        f"Another computer changed record {ours.seq} of the conversation {ours.conversation}.",
        remedy="The change was not taken over. Your own copy is intact.",
    )


def _fact_in_branch(stored_fact: StoredFact, conversation: str) -> StoredFact:
    stored_fact.decode_recorded()  # Raises for a damaged fact, which must get no valid seal.
    return _with_fact_text(replace(stored_fact, id=0, conversation=conversation), stored_fact.fact)


def _with_fact_text(stored_fact: StoredFact, fact: str) -> StoredFact:
    return replace(
        stored_fact,
        fact=fact,
        digest=checksum_of_fact(stored_fact.conversation, stored_fact.seq, stored_fact.time, fact),
    )


def _merge_versions_blanking_differences(ours: Any, other: Any) -> Any:
    """Return what both say, with a blank for each text in which they differ."""
    match ours, other:
        case dict(), dict():
            merged_fields = {}
            for name in ours.keys() & other.keys():
                merged_fields[name] = _merge_versions_blanking_differences(ours[name], other[name])
            return merged_fields
        case list(), list() if len(ours) == len(other):
            merged_items = []
            for our_item, other_item in zip(ours, other, strict=True):
                merged_items.append(_merge_versions_blanking_differences(our_item, other_item))
            return merged_items
        case str(), str() if ours != other:
            return content_forgetting.FORGOTTEN_MARK
    return other


def _progress_from_row(row: tuple[str, int, bytes, int, bytes, bytes]) -> SharedProgress:
    conversation, seq, chain, version, writer, head = row
    contents = None
    if head:
        contents = fact_segments.decode_head(head)
    return SharedProgress(conversation, seq, chain, version, writer, contents)
