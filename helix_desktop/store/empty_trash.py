"""Empties the trash: deletes its conversations for good, with their sub-agents' conversations and
the entries that nothing else uses, from cache, journal and backups, down to the bytes of the files.

Content is deleted first and conversations last. After a crash in between, they are still
in the trash, and emptying it again completes this. What they cost is no longer counted.
"""

import json
import re
import time as clock
from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import BroughtIn
from helix_desktop.engine.ports import EmptyTrashResult
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, NotFound
from helix_desktop.store import journal_backups
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.conversation_rows import StoredConversation, conversation_id_of_session
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.store.journal_file import JournalFile, StoredFact

# Lists when conversations were deleted. The recorder imports only what is newer.
DELETED = "deleted-conversations.txt"
_PAGE = 200  # After this many facts or entries, we let other work run.
_SHORTEST = 8  # In digits. A shorter prefix of a hash may be an ordinary word.
# An id may itself end in a word such as "2".
_LINE_WITH_TIME = re.compile(r"(.+) (\d+\.\d+|\d{9,})")
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
        self._chosen_ids = frozenset(only)
        self._cache = cache
        self.gone: set[str] = set()
        # The ids that conversations of their agents' sessions would have. What was seen live
        # has another id, and the recorder must not import it again either.
        self.sessions: set[str] = set()
        # Hashes of entries that only the conversations to delete use, by their first digits. At
        # first all that they use; what another conversation mentions is taken out.
        self._entries_by_first_digits: dict[str, list[str]] = {}
        # Up to this fact of the journal, mentions by other conversations have been looked for.
        self._last_checked_fact = 0
        self._entries = 0
        self._bytes = 0

    def find_content_to_delete(self) -> Iterator[bool]:
        """Find the content to delete: what their facts use and no other fact mentions."""
        self._cache.put_again = set()
        self.gone = yield from self._conversations_to_delete()
        for name in sorted(self.gone):
            for stored_facts in _pages_of_conversation(self._journal, name):
                for stored_fact in stored_facts:
                    self._collect_entries_of_fact(stored_fact)
                yield True
        while self._entries_by_first_digits and self._spare_content_of_next_facts():
            yield True
        self.sessions = self._sessions_only_of_gone_conversations()

    def _conversations_to_delete(self) -> Generator[bool, None, set[str]]:
        """Return the trashed conversations, and those of their sub-agents that no fork shows."""
        rows = self._journal.conversation_rows()
        chosen = {row.id for row in rows if self._is_chosen(row)}
        shown_by_forks = yield from self._children_shown_by_forks(rows, chosen)
        parent_by_child: dict[str, str] = {}
        for row in rows:
            if row.parent and not row.forked_from:
                parent_by_child[row.id] = row.parent

        gone = set(chosen)
        while True:  # Sub-agents have sub-agents.
            children = {child for child, parent in parent_by_child.items() if parent in gone}
            newly_found = children - gone - shown_by_forks
            if not newly_found:
                return gone
            gone |= newly_found

    def _is_chosen(self, row: StoredConversation) -> bool:
        """Whether the user named this conversation, or, if none was named, it is in the trash."""
        if self._chosen_ids:
            return row.id in self._chosen_ids
        return row.trashed

    def _children_shown_by_forks(
        self, rows: Sequence[StoredConversation], gone: Collection[str]
    ) -> Generator[bool, None, set[str]]:
        """Return the sub-agents' conversations that a fork refers to which stays. A fork has a
        copy of its original's messages, and with them the calls that started sub-agents.
        """
        children: set[str] = set()
        for row in rows:
            if not row.forked_from or row.id in gone:
                continue
            for stored_facts in _pages_of_conversation(self._journal, row.id):
                for stored_fact in stored_facts:
                    children |= _child_conversations(stored_fact)
                yield True
        return children

    def _sessions_only_of_gone_conversations(self) -> set[str]:
        """Return the ids of agents' sessions that no other conversation has, such as the original
        of a fork.
        """
        deleted_sessions: set[str] = set()
        kept_sessions: set[str] = set()
        for recorded in self._journal.read_import_facts():
            fact = recorded.fact
            if not isinstance(fact, BroughtIn) or not fact.run or not fact.origin.session:
                continue
            session = conversation_id_of_session(fact.origin.kind, fact.origin.session)
            if recorded.conversation in self.gone:
                deleted_sessions.add(session)
            else:
                kept_sessions.add(session)
        return deleted_sessions - kept_sessions

    def _collect_entries_of_fact(self, stored_fact: StoredFact) -> None:
        """Note the entries that a fact of a conversation to delete uses. One that it only recalled
        belongs to another fact, which says whether it is deleted.
        """
        try:
            fact = fact_encoding.decode_fact(stored_fact.fact)
        except HelixError:
            return
        for how, digest in entries_used_by(fact):
            hashes = self._entries_by_first_digits.setdefault(digest.hex[:_SHORTEST], [])
            if how != "recall" and digest.hex not in hashes:
                hashes.append(digest.hex)

    def _spare_content_of_next_facts(self) -> bool:
        """Spare what the next facts of other conversations use. Return False if there
        were no more facts.
        """
        stored_facts = self._journal.stored_facts_since(self._last_checked_fact, _PAGE)
        for stored_fact in stored_facts:
            self._last_checked_fact = stored_fact.id
            if stored_fact.conversation in self.gone:
                continue
            for mention in _MENTION.findall(stored_fact.fact):
                self._spare_mentioned(mention.lower())
        return bool(stored_facts)

    def _spare_mentioned(self, mention: str) -> None:
        """Spare the entries whose hashes begin with the digits of a mention."""
        first_digits = mention[:_SHORTEST]
        hashes = self._entries_by_first_digits.get(first_digits)
        if hashes:
            hashes_not_mentioned = [name for name in hashes if not name.startswith(mention)]
            self._entries_by_first_digits[first_digits] = hashes_not_mentioned

    def remove_trashed_content(self) -> Iterator[bool]:
        """Remove the content that was found, page by page. Before each page, the facts that were
        added since are read: one of them may use an entry that would be removed.
        """
        hashes_to_remove: list[str] = []
        for hashes in self._entries_by_first_digits.values():
            hashes_to_remove += hashes
        pinned = self._cache.reader.pinned_entries()
        for start in range(0, len(hashes_to_remove), _PAGE):
            while self._spare_content_of_next_facts():
                pass
            for hash_to_remove in hashes_to_remove[start : start + _PAGE]:
                self._remove_unless_used(Digest.from_hex(hash_to_remove), pinned)
            yield True
        self._cache.level.scrub_database_files()
        yield True

    def end_emptying(self) -> None:
        """End the emptying, even after a failure."""
        self._cache.put_again = None

    def _remove_unless_used(self, digest: Digest, pinned: frozenset[Digest]) -> None:
        """Delete an entry for good, unless something else needs it: a conversation that stays
        mentions it, it is pinned or was stored again meanwhile, or it is from outside.
        """
        stored_again = self._cache.put_again or set()
        is_mentioned = digest.hex not in self._entries_by_first_digits[digest.hex[:_SHORTEST]]
        if is_mentioned or digest in pinned or digest in stored_again:
            return
        size = 0
        try:
            record = self._cache.reader.record_of_entry(digest)
            # No conversation owns what the user or an outside program stored.
            if record.about.tool.partition(":")[0] in ("", "outside"):
                return
            size = record.kept
        except NotFound:
            return
        except (HelixError, ValueError):
            pass  # A damaged entry is deleted, too.
        self._cache.remove_entry(digest)
        self._entries += 1
        self._bytes += size

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
    versions wrote no times. Their ids may be of any words.
    """
    file = workspace / DELETED
    try:
        changed_time = file.stat().st_mtime
        lines = file.read_text("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return {}
    deletion_times: dict[str, float] = {}
    for line in lines:
        written = line.strip()
        line_with_time = _LINE_WITH_TIME.fullmatch(written)
        if line_with_time is not None:
            deletion_times[line_with_time[1]] = float(line_with_time[2])
        elif written:
            deletion_times[written] = changed_time
    return deletion_times


def save_deleted_conversations(workspace: Path, names: Collection[str]) -> None:
    times = dict(read_deleted_conversations(workspace))
    now = clock.time()
    for name in names:
        times[name] = now
    lines = [f"{name} {time}\n" for name, time in sorted(times.items())]
    atomic_files.write_file_atomically(workspace / DELETED, "".join(lines), private=True)


def _pages_of_conversation(journal: JournalFile, conversation: str) -> Iterator[list[StoredFact]]:
    last_seq = 0
    while True:
        stored_facts = journal.read_stored_facts(conversation, last_seq, _PAGE)
        if not stored_facts:
            return
        yield stored_facts
        last_seq = stored_facts[-1].seq


def _child_conversations(stored_fact: StoredFact) -> set[str]:
    if '"child"' not in stored_fact.fact:
        return set()
    try:
        return {json.loads(stored_fact.fact)["child"]}
    except (ValueError, RecursionError, KeyError, TypeError):
        return set()
