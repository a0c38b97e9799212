"""The journal of one workspace: facts that are only appended, in SQLite. Plain calls,
from one thread.

WAL with synchronous=FULL: what `append_all_or_nothing` returned is on disk. Each fact
has a digest of its place and text, so damage is found and named. The table of
conversations is derived in the same transaction.
"""

import hashlib
import time as clock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from helix_desktop.engine.fact_encoding import decode_fact, encode_fact
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Fact,
    ModelReplied,
    Origin,
    Recorded,
)
from helix_desktop.errors import InvalidInput, JournalCorrupt, NotFound, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_schema, read_sql_statements
from helix_desktop.store import sqlite_database
from helix_desktop.store.conversation_rows import (
    COLUMNS,
    StoredConversation,
    advance_row,
    build_empty_row,
)

VERSION = 1
STEPS: dict[int, str] = {}  # For each version: the SQL that turns it into the next one.
APPLICATION = 0x48454C4A  # "HELJ" in ASCII.

_SCHEMA = read_schema("journal").replace(
    "{columns}", ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
)
_UPSERT = sqlite_database.build_upsert("conversations", [name for name, _ in COLUMNS])
_UPSERT_METER = sqlite_database.build_upsert("meters", ["conversation", "meter"])
_SELECT_FACTS = "SELECT id, conversation, seq, time, fact, digest FROM facts WHERE"
_SELECT_CONVERSATIONS = "SELECT conversations.*, coalesce(meter, '') FROM conversations LEFT JOIN meters ON meters.conversation = conversations.id"
_IS_IMPORT_FACT = """substr(fact, 1, 19) = '{"fact":"BroughtIn"'"""
_IMPORT_FACTS_INDEX = f"CREATE INDEX IF NOT EXISTS brought_in ON facts(id) WHERE {_IS_IMPORT_FACT}"
_SELECT_IMPORT_FACTS = f"{_SELECT_FACTS} {_IS_IMPORT_FACT} ORDER BY id"
_SELECT_LATER_IMPORT_FACTS = (
    f"{_SELECT_FACTS} conversation = ? AND seq > ? AND {_IS_IMPORT_FACT} ORDER BY seq"
)
_STATEMENTS = read_sql_statements("journal_statements")
_RECEIVED_FACTS = f"""{_SELECT_FACTS} conversation = ? AND substr(fact, 10, 8) IN ('Received', 'Rewound"') ORDER BY seq"""
_REWINDS = f"""{_SELECT_FACTS} conversation = ? AND seq > ? AND substr(fact, 10, 8) = 'Rewound"' ORDER BY seq"""
_CHANGES_NO_ROW = '{"fact":"ToolReturned","version":1,'
_INSERT_FACTS = "INSERT INTO facts(conversation, seq, time, fact, digest)"


@dataclass(frozen=True, slots=True)
class StoredFact:
    """A stored fact. `id` counts facts of all conversations, so that others can catch up by it."""

    id: int
    conversation: str
    seq: int
    time: float
    fact: str
    digest: bytes

    @property
    def is_intact(self) -> bool:
        return self.digest == checksum_of_fact(self.conversation, self.seq, self.time, self.fact)

    def decode_recorded(self) -> Recorded:
        if not self.is_intact:
            raise _damaged_fact_error(self.conversation, self.seq, "does not match its hash")
        return Recorded(self.conversation, self.seq, self.time, decode_fact(self.fact))


def checksum_of_fact(conversation: str, seq: int, time: float, fact: str) -> bytes:
    return hashlib.sha256(f"{conversation}\0{seq}\0{time!r}\0{fact}".encode()).digest()


def _cost_of_replies(recorded_facts: Sequence[Recorded]) -> float:
    cost = 0.0
    for recorded in recorded_facts:
        if isinstance(recorded.fact, ModelReplied):
            cost += recorded.fact.usage.cost
    return cost


class JournalFile:
    """The open journal, upgraded to this format unless `upgrade` is false. `unseen`:
    open it only to read.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], float] = clock.time,
        upgrade: bool = True,
        unseen: bool = False,
    ) -> None:
        """`now`: the clock that gives facts their times. Raises WrittenByNewerVersion if a newer
        program has written the journal.
        """
        self.path = path
        self._now = now
        # Called when a fact is replaced.
        self.replacing: Callable[[StoredFact], object] = lambda _line: None
        if unseen:
            self.connection = sqlite_database.connect_read_only(path, JournalCorrupt, "journal")
        else:
            self.connection = sqlite_database.connect_database(path, JournalCorrupt, "journal")
        self.errors = sqlite_database.SqliteErrors(JournalCorrupt, "journal")
        # Decode damaged text as far as possible. The digest reveals the damage.
        self.connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        sqlite_database.prepare_schema(
            self.connection, _SCHEMA, application=APPLICATION, version=VERSION, name="journal"
        )
        if upgrade:
            self.upgrade_format()

    @property
    def format_version(self) -> int:
        with self.errors:
            return sqlite_database.schema_version(self.connection)

    def upgrade_format(self) -> None:
        """Upgrade to this version, completely or not at all."""
        sqlite_database.upgrade_older_schema(self.connection, STEPS, VERSION, "journal")

    def close(self) -> None:
        self.connection.close()

    def scrub_journal(self) -> None:
        with self.errors:
            sqlite_database.scrub_database(self.connection)

    def remove_write_ahead_log(self) -> None:
        """Remove the log beside the file until it is opened again."""
        with self.errors:
            self.connection.execute("PRAGMA journal_mode=DELETE")

    def append_all_or_nothing(
        self, conversation: str, facts: Sequence[Fact]
    ) -> tuple[Recorded, ...]:
        """Append all facts or none; they are on disk on return. A conversation's first
        fact creates it.
        """
        if not facts:
            return ()
        if not conversation:
            raise InvalidInput("A conversation must have an ID.")
        time = self._now()
        with self.in_one_transaction():
            row = self._read_row(conversation) or build_empty_row(conversation, time)
            recorded = []
            for seq, fact in enumerate(facts, row.last_seq + 1):
                recorded.append(Recorded(conversation, seq, time, fact))
            self._insert_facts(row, recorded)
        return tuple(recorded)

    def append_together(
        self, batches: Sequence[tuple[str, Sequence[Fact]]]
    ) -> list[tuple[Recorded, ...]]:
        """Append facts of several conversations in one transaction: all or none."""
        with self.in_one_transaction():
            return [
                self.append_all_or_nothing(conversation, facts) for conversation, facts in batches
            ]

    def append_with_times(
        self, conversation: str, facts: Sequence[tuple[float, Fact]], meter: str = ""
    ) -> tuple[Recorded, ...]:
        """Append facts with their own times, like `append_all_or_nothing`. No time is
        before its predecessor's.
        """
        with self.in_one_transaction():
            first_time = self._now()
            if facts:
                first_time, _ = facts[0]
            row = self._read_row(conversation) or build_empty_row(conversation, first_time)

            recorded = []
            latest_time = row.updated
            for seq, (fact_time, fact) in enumerate(facts, row.last_seq + 1):
                # The clock of another program may have been set back.
                latest_time = max(latest_time, fact_time)
                recorded.append(Recorded(conversation, seq, latest_time, fact))

            self._insert_facts(row, recorded)
            if meter:
                self.write_meter(conversation, meter)
        return tuple(recorded)

    def read_import_facts(self) -> tuple[Recorded, ...]:
        """Return all facts about imports, oldest first, found by an index of their own."""
        with self.errors:
            self.connection.execute(_IMPORT_FACTS_INDEX)
        return _select_recorded(self, _SELECT_IMPORT_FACTS)

    def _insert_facts(self, row: StoredConversation, recorded: Sequence[Recorded]) -> None:
        """Insert facts with their checksums, and bring their conversation's row, from which
        lists are made, up to date. The caller has begun the transaction.
        """
        fact_rows: list[tuple[object, ...]] = []
        for recorded_fact in recorded:
            conversation = recorded_fact.conversation
            seq = recorded_fact.seq
            # SQLite gives a whole number back as a fraction, which has another checksum.
            time = float(recorded_fact.time)
            text = encode_fact(recorded_fact.fact)
            checksum = checksum_of_fact(conversation, seq, time, text)
            fact_rows.append((conversation, seq, time, text, checksum))
        sqlite_database.execute_with_rows(self.connection, _INSERT_FACTS, fact_rows)
        self.connection.execute(_UPSERT, advance_row(row, recorded).column_values())

    def read_recorded(
        self, conversation: str, after: int = 0, limit: int = 0
    ) -> tuple[Recorded, ...]:
        """Return the facts after `after`, each checked and none missing. Unknown
        conversations have none.
        """
        recorded: list[Recorded] = []
        next_seq = after + 1
        for stored_fact in self.read_stored_facts(conversation, after, limit):
            if stored_fact.seq != next_seq:
                raise _damaged_fact_error(conversation, next_seq, "is missing")
            recorded.append(stored_fact.decode_recorded())
            next_seq += 1
        is_end_read = not limit or len(recorded) < limit
        if is_end_read:
            row = self._read_row(conversation)
            if row is not None and next_seq <= row.last_seq:
                raise _damaged_fact_error(conversation, next_seq, "is missing")
        return tuple(recorded)

    def read_stored_facts(
        self, conversation: str, after: int = 0, limit: int = 0
    ) -> list[StoredFact]:
        """Return the facts of a conversation after `after` as they are stored, unchecked."""
        statement = f"{_SELECT_FACTS} conversation = ? AND seq > ? ORDER BY seq LIMIT ?"
        most_rows = limit or -1  # SQLite takes -1 for no limit.
        with sqlite_database.SqliteErrors(JournalCorrupt, f"journal's conversation {conversation}"):
            rows = self.connection.execute(statement, (conversation, after, most_rows))
            return [StoredFact(*row) for row in rows]

    def stored_facts_since(self, watermark: int, limit: int) -> list[StoredFact]:
        """Return facts of all conversations after `watermark`, in the order they were written."""
        rows = select_journal_rows(
            self, f"{_SELECT_FACTS} id > ? ORDER BY id LIMIT ?", watermark, limit
        )
        return [StoredFact(*row) for row in rows]

    def copy_conversation(
        self, conversation: str, last: int, new_conversation: str
    ) -> tuple[Recorded, ...]:
        """Copy the facts up to `last`, with numbers and times, and begin the new
        conversation after them.

        The copies are followed by the fact that this is a fork and, if another program
        wrote some of them, by the fact that says which, and what they cost there.
        """
        copied_facts: list[Recorded] = []
        if last > 0:
            for recorded in self.read_recorded(conversation, 0, last):
                copied_facts.append(replace(recorded, conversation=new_conversation))
        if len(copied_facts) != last or last < 1:
            raise NotFound(f"Conversation {conversation} has no record {last} to fork from.")

        time = self._now()
        started = ConversationStarted(forked_from=conversation, forked_at=last)
        all_facts = list(copied_facts)
        all_facts.append(Recorded(new_conversation, last + 1, time, started))
        first_foreign_seq = self._first_of_another_program(conversation, last)
        if first_foreign_seq is not None:
            first_index = max(0, first_foreign_seq - 1)
            paid_elsewhere = _cost_of_replies(copied_facts[first_index:])
            brought_in = BroughtIn(Origin(), "", first_foreign_seq, cost=paid_elsewhere)
            all_facts.append(Recorded(new_conversation, last + 2, time, brought_in))
        with self.in_one_transaction():
            if self._read_row(new_conversation) is not None:
                raise InvalidInput(f"The conversation {new_conversation} already exists.")
            self._insert_facts(build_empty_row(new_conversation, copied_facts[0].time), all_facts)
        return tuple(all_facts)

    def _first_of_another_program(self, conversation: str, last: int) -> int | None:
        """Return from which fact on those up to `last` are another program's, which a later fact
        may say.
        """
        for recorded in _select_recorded(self, _SELECT_LATER_IMPORT_FACTS, conversation, last):
            fact = recorded.fact
            if isinstance(fact, BroughtIn) and fact.first <= last and not fact.undone:
                return fact.first
        return None

    def first_facts_without_meter(self) -> tuple[Recorded, ...]:
        """Return each conversation's first fact, unless it has a meter. In a fork, the
        first own fact.
        """
        return _select_recorded(self, _STATEMENTS["first facts"])

    def facts_about_cost(self, since: float) -> tuple[Recorded, ...]:
        """Return costs in conversations that changed after `since`, and costs from elsewhere."""
        return _select_recorded(self, _STATEMENTS["facts with a cost"], since)

    def conversations_maybe_in_turn(self) -> tuple[str, ...]:
        """Return conversations of the last day that may be in a turn. Only their facts
        tell for certain.
        """
        rows = select_journal_rows(self, _STATEMENTS["conversations maybe in turn"])
        return tuple(str(name) for (name,) in rows)

    def conversation_rows(self) -> tuple[StoredConversation, ...]:
        """Return all conversations, the last changed first."""
        rows = select_journal_rows(self, f"{_SELECT_CONVERSATIONS} ORDER BY updated DESC, id")
        return tuple(map(StoredConversation.from_columns, rows))

    def numbers_of_last_facts_by_own_clock(self) -> tuple[tuple[str, int], ...]:
        """Return the number of each conversation's last fact among all facts, which grows whatever
        the clock says. An import gives facts the times of another program, and in a shared
        workspace they may have those of another machine: these are left out.
        """
        if select_journal_rows(self, _STATEMENTS["tables of a shared workspace"]):
            return ()
        rows = select_journal_rows(self, _STATEMENTS["last facts by the own clock"])
        return tuple((str(name), int(number)) for name, number in rows)

    def conversation_row(self, conversation: str) -> StoredConversation:
        row = self._read_row(conversation)
        if row is None:
            raise NotFound(f"There is no conversation {conversation} in this workspace.")
        return row

    def _read_row(self, conversation: str) -> StoredConversation | None:
        rows = select_journal_rows(self, f"{_SELECT_CONVERSATIONS} WHERE id = ?", conversation)
        if not rows:
            return None
        return StoredConversation.from_columns(rows[0])

    def write_meter(self, conversation: str, meter: str) -> None:
        """Store a derived text about the conversation's context, for lists."""
        with self.in_one_transaction():
            self.connection.execute(_UPSERT_METER, (conversation, meter))

    def delete_conversation(self, conversation: str) -> int:
        """Delete a conversation for good. Return the number of its facts."""
        with self.in_one_transaction():
            fact_count = self.connection.execute(
                "DELETE FROM facts WHERE conversation = ?", (conversation,)
            ).rowcount
            self.connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
            self.connection.execute("DELETE FROM meters WHERE conversation = ?", (conversation,))
        return fact_count

    def restore_facts(self, stored_facts: Sequence[StoredFact]) -> None:
        """Put stored facts back unchanged, for an import or a repair, and update derived tables."""
        with self.in_one_transaction():
            sqlite_database.execute_with_rows(
                self.connection, _INSERT_FACTS, list(map(_columns_of_stored_fact, stored_facts))
            )
            for conversation in dict.fromkeys(
                stored_fact.conversation for stored_fact in stored_facts
            ):
                self._recompute_row(conversation)

    def insert_stored_facts(
        self, stored_facts: Sequence[StoredFact], *, trusted: bool = False
    ) -> None:
        """Insert facts in order, as `restore_facts` does. `trusted`: the digests were
        just computed.
        """
        facts_by_conversation: dict[str, list[StoredFact]] = {}
        for stored_fact in stored_facts:
            facts_by_conversation.setdefault(stored_fact.conversation, []).append(stored_fact)

        with self.in_one_transaction():
            columns = [_columns_of_stored_fact(stored_fact) for stored_fact in stored_facts]
            sqlite_database.execute_with_rows(self.connection, _INSERT_FACTS, columns)
            for conversation, own_facts in facts_by_conversation.items():
                row_before = self._read_row(conversation)
                if row_before is None:
                    row_before = build_empty_row(conversation, own_facts[0].time)
                if trusted:
                    row = _row_after_facts(row_before, own_facts)
                else:
                    row = advance_row(
                        row_before, (stored_fact.decode_recorded() for stored_fact in own_facts)
                    )
                self.connection.execute(_UPSERT, row.column_values())

    def in_one_transaction(self) -> sqlite_database.SqliteTransaction:
        return sqlite_database.SqliteTransaction(self.connection, JournalCorrupt, "journal")

    def delete_facts_after(self, conversation: str, after: int) -> None:
        """Delete the facts after `after`. Only for facts another conversation now has
        (`shared/sync_state.py`).
        """
        with self.in_one_transaction():
            self.connection.execute(
                "DELETE FROM facts WHERE conversation = ? AND seq > ?", (conversation, after)
            )
            self.connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
            self._recompute_row(conversation)

    def replace_fact(self, stored_fact: StoredFact, fact: Fact) -> None:
        """Replace a fact by another. Only for forgetting and repairs."""
        text = encode_fact(fact)
        digest = checksum_of_fact(stored_fact.conversation, stored_fact.seq, stored_fact.time, text)
        with self.in_one_transaction():
            self.replacing(stored_fact)
            self.connection.execute(
                "UPDATE facts SET fact = ?, digest = ? WHERE id = ?", (text, digest, stored_fact.id)
            )
            self._recompute_row(stored_fact.conversation)

    def _recompute_row(self, conversation: str) -> None:
        stored_facts = self.read_stored_facts(conversation)
        if not stored_facts:
            return
        empty_row = build_empty_row(conversation, stored_facts[0].time)
        row = advance_row(
            empty_row, (stored_fact.decode_recorded() for stored_fact in stored_facts)
        )
        self.connection.execute(_UPSERT, row.column_values())

    def last_fact_id(self) -> int:
        return int(select_journal_rows(self, "SELECT coalesce(max(id), 0) FROM facts")[0][0])


def find_journal_defects(journal: JournalFile) -> Iterator[str]:
    """Check everything. Yield a sentence for each defect."""
    yield from sqlite_database.find_database_defects(journal.connection, "journal")
    try:
        yield from _find_fact_defects(journal)
    except StoreFailed as error:
        yield error.what


def _find_fact_defects(journal: JournalFile) -> Iterator[str]:
    rows = {row.id: row for row in journal.conversation_rows()}
    for (name,) in select_journal_rows(journal, "SELECT DISTINCT conversation FROM facts"):
        yield from _find_conversation_defects(journal, name, rows.pop(name, None))
    for name in rows:
        yield f"The conversation {name} has lost its facts."


def _find_conversation_defects(
    journal: JournalFile, conversation: str, row: StoredConversation | None
) -> Iterator[str]:
    """Check that a conversation's facts are numbered without gap and readable, then
    that its row says what these facts say.

    The row sums up the facts, for lists of conversations. If a fact is missing or
    damaged, it cannot be derived from the rest, so only its last number is compared.
    """
    derived_row: StoredConversation | None = None
    are_facts_intact = True
    last_seq = 0
    for stored_fact in journal.read_stored_facts(conversation):
        if stored_fact.seq != last_seq + 1:
            are_facts_intact = False
            yield f"Record {last_seq + 1} of conversation {conversation} is missing."
        last_seq = stored_fact.seq
        row_before = derived_row or build_empty_row(conversation, stored_fact.time)
        try:
            derived_row = advance_row(row_before, [stored_fact.decode_recorded()])
        except JournalCorrupt as error:
            are_facts_intact = False
            yield error.what
    if row is None or row.last_seq > last_seq:
        yield f"The end of conversation {conversation} is missing, or its row is damaged."
        return
    if are_facts_intact and derived_row is not None:
        if row.column_values() != derived_row.column_values():
            yield f"The row of conversation {conversation} is damaged."


def select_journal_rows(journal: JournalFile, statement: str, *values: float | str) -> list[Any]:
    """Return all rows that a statement selects. JournalCorrupt if the file is damaged."""
    with journal.errors:
        return journal.connection.execute(statement, values).fetchall()


def select_received_facts(journal: JournalFile, conversation: str) -> tuple[Recorded, ...]:
    """Return which messages a connected agent has sent, and where it went back. The
    other facts are not read.
    """
    return _select_recorded(journal, _RECEIVED_FACTS, conversation)


def select_rewinds(journal: JournalFile, conversation: str, after: int) -> tuple[Recorded, ...]:
    """Return where a conversation went back to after a fact. The other facts are not returned."""
    return _select_recorded(journal, _REWINDS, conversation, after)


def _select_recorded(
    journal: JournalFile, statement: str, *values: float | str
) -> tuple[Recorded, ...]:
    with journal.errors:  # One fact at a time, as there may be many.
        return tuple(
            StoredFact(*row).decode_recorded()
            for row in journal.connection.execute(statement, values)
        )


def _row_after_facts(
    row: StoredConversation, stored_facts: Sequence[StoredFact]
) -> StoredConversation:
    """Return the row after these intact facts. The half of them that change no row is
    not decoded.
    """
    changing = []
    for stored_fact in stored_facts:
        if not stored_fact.fact.startswith(_CHANGES_NO_ROW):
            fact = decode_fact(stored_fact.fact)
            changing.append(
                Recorded(stored_fact.conversation, stored_fact.seq, stored_fact.time, fact)
            )
    row = advance_row(row, changing)
    return replace(row, last_seq=stored_facts[-1].seq, updated=stored_facts[-1].time)


def _columns_of_stored_fact(stored_fact: StoredFact) -> tuple[str, int, float, str, bytes]:
    return (
        stored_fact.conversation,
        stored_fact.seq,
        stored_fact.time,
        stored_fact.fact,
        stored_fact.digest,
    )


def _damaged_fact_error(conversation: str, seq: int, defect: str) -> JournalCorrupt:
    return JournalCorrupt(
        f"Record {seq} of conversation {conversation} {defect}.",
        remedy="Open the workspace again to repair it from its backups.",
    )
