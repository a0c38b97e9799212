"""Empties the trash: deletes its conversations for good, with their sub-agents' conversations and
the entries that nothing else uses, from cache, journal and backups, down to the bytes of the files.

Content is deleted first and conversations last. After a crash in between, they are still
in the trash, and emptying it again completes this. What they cost is no longer counted.
"""

import json
import re
import time as clock
from collections.abc import Collection, Generator, Iterator
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.engine import fact_encoding
from helix_desktop.engine.ports import EmptyTrashResult
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, NotFound
from helix_desktop.store import journal_backups
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_records import CacheRecord
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.store.journal_file import JournalFile, StoredFact

# Lists when conversations were deleted. The recorder imports only what is newer.
DELETED = "deleted-conversations.txt"
_PAGE = 200  # After this many facts or entries, we let other work run.
_SHORTEST = 8  # In digits. A shorter prefix of a hash may be an ordinary word.
_MENTION = re.compile(rf"[0-9a-f]{{{_SHORTEST},64}}", re.IGNORECASE)


class TrashEmptying:
    """One emptying: first `find_content_to_delete` and `remove_trashed_content`, in
    slices on the stores' thread, then `delete_from_backups`, `delete_conversations` and
    `end_emptying`. Content that is stored meanwhile stays. `only`: delete these
    conversations instead of those in the trash.
    """

    def __init__(
        self, journal: JournalFile, cache: CacheFolder, only: Collection[str] = ()
    ) -> None:
        self._journal = journal
        self._only = frozenset(only)
        self._cache = cache
        self.gone: set[str] = set()
        # Hashes of entries that only the conversations to delete use, by their first digits.
        self._own: dict[str, list[str]] = {}
        self._seen = 0  # The last fact checked.
        self._entries = self._bytes = 0

    def find_content_to_delete(self) -> Iterator[bool]:
        """Find the content to delete: what their facts use and no other fact mentions."""
        self._cache.put_again = set()
        self.gone = yield from self._conversations_to_delete()
        for name in sorted(self.gone):
            for lines in _pages_of_conversation(self._journal, name):
                for line in lines:
                    self._collect_entries_of_fact(line)
                yield True
        while self._own and self._spare_content_of_next_facts():
            yield True

    def _conversations_to_delete(self) -> Generator[bool, None, set[str]]:
        """Return the trashed conversations, and those of their sub-agents that no fork shows."""
        rows = self._journal.conversation_rows()
        gone = {row.id for row in rows if (row.id in self._only if self._only else row.trashed)}
        shown: set[str] = set()
        for row in rows:
            if row.forked_from and row.id not in gone:
                for lines in _pages_of_conversation(self._journal, row.id):
                    shown.update(child for line in lines for child in _child_conversations(line))
                    yield True
        while (
            more := {row.id for row in rows if row.parent in gone and not row.forked_from}
            - gone
            - shown
        ):
            gone |= more
        return gone

    def _collect_entries_of_fact(self, line: StoredFact) -> None:
        try:
            fact = fact_encoding.decode_fact(line.fact)
        except HelixError:
            return
        for how, digest in entries_used_by(fact):
            held = self._own.setdefault(digest.hex[:_SHORTEST], [])
            if how != "recall" and digest.hex not in held:
                held.append(digest.hex)

    def _spare_content_of_next_facts(self) -> bool:
        """Spare what the next facts of other conversations use. Return False if there
        were no more facts.
        """
        lines = self._journal.stored_facts_since(self._seen, _PAGE)
        for line in lines:
            self._seen = line.id
            if line.conversation not in self.gone:
                for mention in map(str.lower, _MENTION.findall(line.fact)):
                    held = self._own.get(mention[:_SHORTEST], [])
                    held[:] = [name for name in held if not name.startswith(mention)]
        return bool(lines)

    def remove_trashed_content(self) -> Iterator[bool]:
        names = [name for held in self._own.values() for name in held]
        pinned = self._cache.reader.pinned_entries()
        for start in range(0, len(names), _PAGE):
            while self._spare_content_of_next_facts():
                pass
            for name in names[start : start + _PAGE]:
                self._remove_unless_used(Digest.from_hex(name), pinned)
            yield True
        self._cache.level.scrub_database_files()
        yield True

    def end_emptying(self) -> None:
        """End the emptying, even after a failure."""
        self._cache.put_again = None

    def _remove_unless_used(self, digest: Digest, pinned: frozenset[Digest]) -> None:
        again = self._cache.put_again or set()
        if (
            digest in pinned
            or digest in again
            or digest.hex not in self._own[digest.hex[:_SHORTEST]]
        ):
            return
        try:
            record: CacheRecord | None = self._cache.reader.record_of_entry(digest)
        except NotFound:
            return
        except (HelixError, ValueError):
            record = None  # A damaged entry is deleted, too.
        # No conversation owns what the user or an outside program stored.
        if record is None or record.about.tool.partition(":")[0] not in ("", "outside"):
            self._cache.remove_entry(digest)
            self._entries += 1
            self._bytes += record.kept if record else 0

    def delete_from_backups(self, workspace: Path) -> None:
        """Delete the conversations from each backup of the journal. An unreadable
        backup is deleted.
        """
        journal_backups.change_each_backup(workspace, self._delete_from_journal)

    def delete_conversations(self) -> EmptyTrashResult:
        self._delete_from_journal(self._journal)
        return EmptyTrashResult(tuple(sorted(self.gone)), self._entries, self._bytes)

    def _delete_from_journal(self, journal: JournalFile) -> int:
        removed = sum(journal.delete_conversation(name) for name in sorted(self.gone))
        if removed:
            journal.scrub_journal()
        return removed


def read_deleted_conversations(workspace: Path) -> dict[str, float]:
    """Return when each was deleted: at the latest when the file was changed, as earlier
    versions wrote no times.
    """
    try:
        changed = (workspace / DELETED).stat().st_mtime
        lines = filter(None, map(str.split, (workspace / DELETED).read_text("utf-8").splitlines()))
        return {name: float(time[0]) if time else changed for name, *time in lines}
    except FileNotFoundError:
        return {}


def save_deleted_conversations(workspace: Path, names: Collection[str]) -> None:
    every = read_deleted_conversations(workspace) | dict.fromkeys(names, clock.time())
    text = "".join(f"{name} {time}\n" for name, time in sorted(every.items()))
    atomic_files.write_file_atomically(workspace / DELETED, text, private=True)


def _pages_of_conversation(journal: JournalFile, conversation: str) -> Iterator[list[StoredFact]]:
    after = 0
    while lines := journal.read_stored_facts(conversation, after, _PAGE):
        yield lines
        after = lines[-1].seq


def _child_conversations(line: StoredFact) -> set[str]:
    try:
        return {json.loads(line.fact)["child"]} if '"child"' in line.fact else set()
    except (ValueError, KeyError, TypeError):
        return set()
