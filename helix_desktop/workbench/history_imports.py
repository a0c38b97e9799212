"""Imports histories of other programs as conversations, and later only what is new of them.

Content is stored first; then the facts of a conversation are appended in one
transaction, with a `BroughtIn` that tells where they come from. So a crash or a stop
leaves whole conversations, and the next import goes on with the rest. A file whose size
and time are as they were is not read again; one that has grown adds what is new. Where
the conversation was continued here meanwhile, what is new goes into a fork of it.
"""

import asyncio
import gc
import math
import secrets as random
import time as clock
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.concurrency import finish_even_if_cancelled
from helix_desktop.engine import facts
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.errors import HelixError, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_facts, history_reading
from helix_desktop.histories.conversation_restoring import COPY_WORDS
from helix_desktop.histories.program_names import SAME_REPLY_SECONDS
from helix_desktop.histories.seen_twice import (
    TimedReply,
    is_session_seen_live,
    names_of_session,
)
from helix_desktop.store.conversation_rows import StoredConversation
from helix_desktop.store.empty_trash import read_deleted_conversations
from helix_desktop.store.store_thread import StoreThread
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_export import ignore_progress
from helix_desktop.workbench import session_import
from helix_desktop.workbench.import_decision import SAID
from helix_desktop.workbench.session_preparation import FileToRead, Prepared, SessionPreparation

# Called with the number of bytes read, the total number, and the file.
Report = Callable[[int, int, str], object]
# After each AHEAD bytes, the import waits until at most BEHIND items are missing from the index.
NEWEST = 64  # So many of the newest or oldest facts of a connected agent name its session.
AHEAD, BEHIND = 4 << 20, 2_000
TOGETHER = 1_000  # Sessions are written at the same time until they have more facts than this.


@dataclass(slots=True)
class ImportResult:
    """The result of an import, also of one that was stopped and continued. `here`: all
    its conversations.
    """

    run: str
    imported: list[session_import.ImportedConversation] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    here: set[str] = field(default_factory=set)
    # By leaked key: how often in each conversation.
    keys: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def unchanged_conversations(self) -> set[str]:
        return self.here.difference(conversation.id for conversation in self.imported)


def new_import_name() -> str:
    """Return a name for an import, which contains the time."""
    return f"{clock.strftime('%Y%m%dT%H%M%S', clock.gmtime())}-{random.token_hex(3)}"


def find_files_to_import(paths: Sequence[Path]) -> list[Path]:
    """Return the files to read. Raises NotFound for a path that does not exist."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise NotFound(f"{path} does not exist.", remedy="Check the file name.")
        if path.is_dir():
            files += history_reading.list_history_files(path)
        else:
            files.append(path)
    return list(dict.fromkeys(files))


@dataclass(slots=True)
class HistoryImport:
    """One import into one workspace. Within `hold`, nobody else changes a conversation."""

    workspace: StoredWorkspace
    tokens: TokenCounter
    preparation: SessionPreparation = field(default_factory=SessionPreparation)
    hold: session_import.Hold = lambda _conversation: nullcontext()
    result: ImportResult = field(default_factory=lambda: ImportResult(new_import_name()))
    earlier: session_import.EarlierImports = field(default_factory=session_import.EarlierImports)
    _deleted: dict[str, float] = field(default_factory=dict)
    _stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    _rows: list[StoredConversation] = field(default_factory=list)  # The last changed first.
    _seen_live: dict[str, list[facts.Recorded]] = field(default_factory=dict)

    async def import_files(
        self, files: Sequence[Path], report: Report = ignore_progress
    ) -> ImportResult:
        """Import all sessions of these files. The result has a sentence about each that
        could not be imported.
        """
        # An import creates few reference cycles, so garbage is collected less often.
        gc.set_threshold(20_000, 50, 100)
        await self._read_earlier_imports()
        self._deleted = await asyncio.to_thread(read_deleted_conversations, self.workspace.folder)
        rows = await self.workspace.journal.list_conversations()
        self._rows = [row for row in rows if not row.trashed]
        bytes_before_file: dict[Path, int] = {}
        total_bytes = 0
        for file in files:
            bytes_before_file[file] = total_bytes
            size, _ = stamp_of_history_file(file)
            total_bytes += size
        bytes_at_last_wait = 0
        prepared = self.preparation.prepare_files(self._list_changed_files(files), self.tokens)
        groups = _group_unrelated(self._collect_complaints(prepared))
        thread = StoreThread("prepare sessions")
        try:
            next_group = thread.submit_work(next, groups, None)
            while True:
                group = await asyncio.wrap_future(next_group)
                if group is None:
                    break
                # The next group is prepared while this one is written.
                next_group = thread.submit_work(next, groups, None)
                file = group[0].file
                bytes_done = bytes_before_file[file]
                report(bytes_done, total_bytes, str(file))
                if bytes_done - bytes_at_last_wait > AHEAD:
                    await self.workspace.index.wait_until_indexed(allowed_missing=BEHIND)
                    bytes_at_last_wait = bytes_done
                # A stop comes here: what is being written is finished, so that the result names it.
                await asyncio.sleep(0)
                importing = asyncio.gather(*map(self._import_session, group))
                imported = await finish_even_if_cancelled(importing, self._add_imported)
                await self._add_imported(imported)
        finally:
            await thread.aclose()
            prepared.close()
        report(total_bytes, total_bytes, "")
        return self.result

    async def _add_imported(
        self, imported: Sequence[session_import.ImportedConversation | None]
    ) -> None:
        for conversation in imported:
            if conversation is not None:
                self.result.imported.append(conversation)

    async def _read_earlier_imports(self) -> None:
        imports = await self.workspace.journal.facts_about_imports()
        for recorded, fact in _imports_once(imports):
            self.earlier.last[fact.origin.kind, fact.origin.session] = recorded
        self._stamps = stamps_at_last_import(imports)

    async def _archive_if_here_already(
        self, held: session_import.SessionToImport, brought: session_import.ImportedConversation
    ) -> None:
        """Archive what was also seen live, through the gateway or over ACP, and copies for an
        agent, until they go on elsewhere.
        """
        replies = _newest_replies(held)
        seen_live = await self._find_same_session_seen_live(held)
        if seen_live is not None:
            is_copy = is_session_seen_live(replies, seen_live)
            await self._archive_or_list(brought.id, is_copy=is_copy)
            return
        title = history_facts.title_of_recording(held.recording)
        words_of_copy = COPY_WORDS.search(title)
        if words_of_copy is None:
            return
        is_copy = False
        for row in self._rows:
            if row.id != brought.id and row.title.startswith(title[: words_of_copy.start()]):
                original = await self.workspace.journal.read_facts(row.id)
                is_copy = is_copy or is_session_seen_live(replies, original)
        await self._archive_or_list(brought.id, is_copy=is_copy)

    async def _find_same_session_seen_live(
        self, held: session_import.SessionToImport
    ) -> list[facts.Recorded] | None:
        """Return the facts of the conversation that saw this session live, or None."""
        times = [draft.time for draft in held.made if draft.time] or [0.0]
        begun = min(times) - SAME_REPLY_SECONDS
        ended = max(times) + SAME_REPLY_SECONDS
        started = history_facts.build_started_fact(held.recording)
        names = names_of_session([started, *(draft.fact for draft in held.made)])
        for row in self._rows:
            if begun <= row.created <= ended:
                live = await self._facts_seen_live(row)
                if names & names_of_session([recorded.fact for recorded in live]):
                    return live
        return None

    async def _archive_or_list(self, conversation: str, *, is_copy: bool) -> None:
        """Archive a copy unless somebody has taken it out of the archive. List what is
        no copy any more.
        """
        journal = self.workspace.journal
        was_archived = (await journal.find_conversation(conversation)).archived
        if is_copy is was_archived:
            return
        if is_copy:
            for recorded in await journal.read_facts(conversation):
                fact = recorded.fact
                if isinstance(fact, facts.ConversationChanged) and fact.archived is not None:
                    return
        change = facts.ConversationChanged(archived=is_copy)
        await journal.append_imported_facts(conversation, [(0.0, change)])

    async def _facts_seen_live(self, row: StoredConversation) -> list[facts.Recorded]:
        """Return the oldest and newest facts of a conversation that an agent is connected to or
        works in over ACP. They name its session.
        """
        if row.id not in self._seen_live:
            journal = self.workspace.journal
            newest = await journal.read_facts(row.id, after=max(0, row.last_seq - NEWEST))
            oldest = await journal.read_facts(row.id, limit=NEWEST)
            ends = [*oldest, *newest]
            is_live = any(isinstance(recorded.fact, facts.Received) for recorded in ends)
            if not is_live:
                ends = []
            self._seen_live[row.id] = ends
        return self._seen_live[row.id]

    def _list_changed_files(self, files: Sequence[Path]) -> list[FileToRead]:
        """Return the files that are not as they were at an earlier import."""
        conversations_by_path: dict[str, set[str]] = {}
        for recorded in self.earlier.last.values():
            path = session_import.imported_path(recorded)
            conversations_by_path.setdefault(path, set()).add(recorded.conversation)
        changed_files: list[FileToRead] = []
        for file in files:
            stamp = stamp_of_history_file(self.preparation.copy_of_file(file) or file)
            size, _ = stamp
            conversations = conversations_by_path.get(str(file), set())
            # If the user imports by hand what was deleted, what is older comes back, too.
            is_by_hand = self.preparation.copies is None
            brings_back_deleted = is_by_hand and not conversations.isdisjoint(self._deleted)
            is_unchanged = size > 0 and self._stamps.get(str(file)) == stamp
            if is_unchanged and not brings_back_deleted:
                self.result.here |= conversations
            else:
                changed_files.append((file, stamp))
        return changed_files

    def _collect_complaints(
        self, prepared: Iterator[Prepared]
    ) -> Iterator[session_import.SessionToImport]:
        for session_or_complaint in prepared:
            if isinstance(session_or_complaint, session_import.SessionToImport):
                yield session_or_complaint
            elif isinstance(session_or_complaint, str):
                self.result.complaints.append(session_or_complaint)

    # --- Writing sessions into conversations, on the event loop

    async def _leave_out_deleted(
        self, held: session_import.SessionToImport
    ) -> session_import.SessionToImport | None:
        """Return what is new since the user deleted it, or what it belongs to, for
        good. By hand, all comes back.
        """
        recording = held.recording
        unique_name = held.with_unique_session_name().recording.session
        sessions = (recording.session, unique_name, recording.parent, recording.forked_from)
        deleted_time = 0.0
        for session in sessions:
            if session:
                name = session_import.conversation_id_of_session(recording.kind, session)
                deleted_time = max(deleted_time, self._deleted.get(name, 0.0))
        if not deleted_time or self.preparation.copies is None:
            return held
        conversation = self.earlier.conversation_of_recording(recording)
        known_facts = await self.workspace.journal.read_facts(conversation)
        # With older facts, the user has brought it back by hand since.
        if any(recorded.time <= deleted_time for recorded in known_facts):
            return held
        return held.newer_part(deleted_time)

    async def _import_session(
        self, session: session_import.SessionToImport
    ) -> session_import.ImportedConversation | None:
        session_to_write = await self._leave_out_deleted(session)
        if session_to_write is None:
            return None
        session = session_to_write
        recording = session.recording
        if not any(message.role == "assistant" for message in recording.messages):
            self.result.complaints.append(
                f"{recording.name} was left out because it contains no reply."
            )
            return None
        for message in recording.messages:
            if message.child:
                self.earlier.calls[recording.kind, message.child] = message.answers
        # It keeps the unique name that an earlier import has given it.
        session_apart = session.with_unique_session_name()
        if session_apart.recording.identity_of_session in self.earlier.last:
            session = session_apart
        conversation = self.earlier.conversation_of_recording(session.recording)
        writing = session_import.SessionWriter(
            self.workspace, self.hold, self.earlier, self.result.run, session, conversation
        )
        try:
            await writing.write_session()
        except HelixError as error:
            self.result.complaints.append(f"{recording.name}: {error}")
            return None
        if writing.damage:
            self.result.complaints.append(writing.damage)
        if writing.recorded is None or writing.brought is None:
            self.result.here.add(writing.conversation)
        else:
            self.earlier.last[writing.held.recording.identity_of_session] = writing.recorded
            await self._archive_if_here_already(writing.held, writing.brought)
        self._count_leaked_keys(session, writing)
        if writing.recorded is None:
            return None
        return writing.brought

    def _count_leaked_keys(
        self, session: session_import.SessionToImport, writing: session_import.SessionWriter
    ) -> None:
        for position, key in session.keys:
            if position >= writing.new_from:
                count_by_conversation = self.result.keys.setdefault(key, {})
                count_before = count_by_conversation.get(writing.conversation, 0)
                count_by_conversation[writing.conversation] = count_before + 1


def _group_unrelated(
    coming: Iterator[session_import.SessionToImport],
) -> Iterator[list[session_import.SessionToImport]]:
    """Yield groups of sessions that can be written at the same time, because none
    belongs to another.
    """
    group: dict[str, session_import.SessionToImport] = {}
    for session in coming:
        recording = session.recording
        needed = (recording.session, recording.forked_from, recording.parent)
        is_full = sum(len(grouped.made) for grouped in group.values()) > TOGETHER
        if is_full or not group.keys().isdisjoint(needed):
            yield list(group.values())
            group = {}
        group[recording.session] = session
    if group:
        yield list(group.values())


def _newest_replies(held: session_import.SessionToImport) -> list[TimedReply]:
    return [
        TimedReply(draft.time, draft.fact)
        for draft in held.made[-NEWEST:]
        if isinstance(draft.fact, facts.ModelReplied)
    ]


def stamps_at_last_import(imports: Sequence[facts.Recorded]) -> dict[str, tuple[int, int]]:
    """Return the size and time that each imported file had, by its path. `imports`:
    oldest first.
    """
    stamps: dict[str, tuple[int, int]] = {}
    for recorded, fact in _imports_once(imports):
        stamp = (fact.size, fact.modified)
        if fact.undone:
            stamp = (0, 0)  # No file has this, so it is read again.
        stamps[session_import.imported_path(recorded)] = stamp
    return stamps


def _imports_once(
    imports: Sequence[facts.Recorded],
) -> Iterator[tuple[facts.Recorded, facts.BroughtIn]]:
    """Yield each import once. A fork contains copies of these facts, but the session
    continues in the original.
    """
    known = set[facts.Fact]()
    for recorded in imports:
        fact = recorded.fact
        if not isinstance(fact, facts.BroughtIn) or not fact.run:
            continue
        if fact not in known:
            known.add(fact)
            yield recorded, fact


def stamp_of_history_file(file: Path) -> tuple[int, int]:
    """Return the size and time that show whether a file has changed, including files
    beside a database.
    """
    size = 0
    modified = 0
    # opencode wrote the messages of a session into a folder of their own.
    folder_of_messages = file
    if len(file.parents) > 2:
        folder_of_messages = file.parents[2] / "message" / file.stem
    for path in (file, file.with_name(f"{file.name}-wal"), folder_of_messages):
        with suppress(OSError):
            status = path.stat()
            size += status.st_size
            modified = max(modified, status.st_mtime_ns)
    return size, modified


# --- Undoing an import


async def undo_import(
    workspace: StoredWorkspace, run: str, hold: session_import.Hold = lambda _: nullcontext()
) -> tuple[int, list[str]]:
    """Undo an import: trash its new conversations and rewind the others. Returns how
    many, and what stays.
    """
    newest_by_conversation: dict[str, tuple[facts.Recorded, facts.BroughtIn]] = {}
    for recorded in await workspace.journal.facts_about_imports():
        fact = recorded.fact
        if isinstance(fact, facts.BroughtIn) and fact.run == run:
            newest_by_conversation[recorded.conversation] = (recorded, fact)
    imports_to_undo: list[facts.Recorded] = []
    for recorded, fact in newest_by_conversation.values():
        if not fact.undone:
            imports_to_undo.append(recorded)
    if not imports_to_undo:
        raise NotFound(
            f"There is no import {run} to undo.",
            remedy="To see all imports, run `conversation imports`.",
        )
    undone_count = 0
    stayed: list[str] = []
    for recorded in imports_to_undo:
        conversation = recorded.conversation
        async with hold(conversation):
            if await _undo_imported_facts(workspace, recorded):
                undone_count += 1
            else:
                stayed.append(
                    f"Conversation {conversation} was kept because you continued it in Helix Desktop."
                )
    return undone_count, stayed


async def _undo_imported_facts(workspace: StoredWorkspace, brought: facts.Recorded) -> bool:
    fact = brought.fact
    if not isinstance(fact, facts.BroughtIn):
        return False
    kinds_of_continuing = (*SAID, facts.Rewound, facts.BroughtIn)
    for recorded in await workspace.journal.read_facts(brought.conversation):
        if recorded.seq > brought.seq and isinstance(recorded.fact, kinds_of_continuing):
            return False
    # An import that began the conversation takes all of it back.
    change: facts.Fact = facts.ConversationChanged(trashed=True)
    if fact.first > 1:
        change = facts.Rewound(fact.first - 1)
    undone = replace(fact, size=0, modified=0, undone=True, cost=0.0)
    await workspace.journal.append_imported_facts(
        brought.conversation, [(0.0, change), (0.0, undone)]
    )
    return True


async def find_recorded_conversations(
    workspace: StoredWorkspace, kinds: Collection[str] = (), before: float = math.inf
) -> list[str]:
    """Return conversations imported from these programs, or from all, and their forks.
    `before`: last changed.
    """
    conversations = set[str]()
    for recorded in await workspace.journal.facts_about_imports():
        if not isinstance(recorded.fact, facts.BroughtIn):
            continue
        kind = recorded.fact.origin.kind
        if kind and (not kinds or kind in kinds):
            conversations.add(recorded.conversation)
    rows = await workspace.journal.list_conversations()
    # Forks of forks, too, until a look finds no other one.
    while True:
        forks = {row.id for row in rows if row.forked_from in conversations}
        if forks <= conversations:
            break
        conversations |= forks
    return [row.id for row in rows if row.id in conversations and row.updated < before]


async def list_import_runs(workspace: StoredWorkspace) -> list[tuple[str, int, bool]]:
    """Return a workspace's imports, newest first: name, number of conversations,
    whether it was undone.
    """
    undone_by_run: dict[str, dict[str, bool]] = {}
    for recorded in await workspace.journal.facts_about_imports():
        fact = recorded.fact
        if isinstance(fact, facts.BroughtIn) and fact.run:
            undone_by_conversation = undone_by_run.setdefault(fact.run, {})
            undone_by_conversation[recorded.conversation] = fact.undone
    runs: list[tuple[str, int, bool]] = []
    for run in sorted(undone_by_run, reverse=True):
        undone_by_conversation = undone_by_run[run]
        is_undone = all(undone_by_conversation.values())
        runs.append((run, len(undone_by_conversation), is_undone))
    return runs
