"""Conversations released from this disk because other machines have them, and what each still uses.

A table in the journal: releasing and returning happen in one transaction with the facts.
"""

from collections.abc import Iterable

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.store.journal_file import JournalFile, select_journal_rows
from helix_desktop.store.sqlite_database import execute_with_rows

# An empty digest means that the whole conversation was released from this disk.
_TABLE = "CREATE TABLE IF NOT EXISTS released(conversation TEXT, digest BLOB, PRIMARY KEY(conversation, digest)) WITHOUT ROWID"


class ReleasedConversations:
    """The table in an open journal. Used from the journal's thread."""

    def __init__(self, journal: JournalFile) -> None:
        self._journal = journal
        with journal.in_one_transaction():
            journal.connection.execute(_TABLE)

    def release_from_disk(self, conversations: Iterable[str]) -> None:
        """Delete conversations here, but remember them, and the entries of the cache that they use:
        these may be removed, too, and must stay in the shared store.
        """
        for conversation in conversations:
            used_digests: set[bytes] = set()
            for line in self._journal.read_stored_facts(conversation):
                fact = fact_encoding.decode_fact(line.fact)
                for _, digest in entries_used_by(fact):
                    used_digests.add(digest.raw)
            # The row without a digest says that the conversation was released.
            rows = [(conversation, b"")]
            rows += [(conversation, raw) for raw in used_digests]
            with self._journal.in_one_transaction():
                execute_with_rows(self._journal.connection, "INSERT OR IGNORE INTO released", rows)
                self._journal.delete_conversation(conversation)

    def is_released(self, conversation: str) -> bool:
        statement = "SELECT 1 FROM released WHERE conversation = ? AND digest = x''"
        return bool(select_journal_rows(self._journal, statement, conversation))

    def list_released_entries(self) -> frozenset[Digest]:
        rows = select_journal_rows(
            self._journal, "SELECT DISTINCT digest FROM released WHERE digest != x''"
        )
        return frozenset(Digest(raw) for (raw,) in rows)

    def remove_release_marks(self, conversation: str) -> None:
        """Remove the marks, because the conversation is back, or nowhere."""
        with self._journal.in_one_transaction():
            self._journal.connection.execute(
                "DELETE FROM released WHERE conversation = ?", (conversation,)
            )
