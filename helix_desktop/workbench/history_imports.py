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
from collections.abc import Set as AbstractSet
from contextlib import nullcontext, suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.cancellation import end_if_cancelled
from helix_desktop.engine import facts
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_reading, subagent_files
from helix_desktop.store.empty_trash import read_deleted_conversations
from helix_desktop.store.store_thread import StoreThread
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_export import ignore_progress
from helix_desktop.workbench import session_import
from helix_desktop.workbench.import_decision import SAID
from helix_desktop.workbench.session_intake import SessionIntake
from helix_desktop.workbench.session_preparation import FileToRead, Prepared, SessionPreparation

# Called with the number of bytes read, the total number, and the file.
Report = Callable[[int, int, str], object]
# After each AHEAD bytes, the import waits until at most BEHIND items are missing from the index.
AHEAD = 4 << 20
BEHIND = 2_000
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
    """Return the files to read. A session's file brings those of its sub-agents. Raises NotFound
    for a path that does not exist or has none.
    """
    named_files = [path for path in paths if not path.is_dir()]
    files_by_session = subagent_files.find_files_of_sessions(named_files)
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise NotFound(f"{path} does not exist.", remedy="Check the file name.")
        if path.is_dir():
            files += history_reading.list_history_files(path)
        else:
            files += files_by_session[path]
    return list(dict.fromkeys(files))


@dataclass(slots=True)
class HistoryImport:
    """One import into one workspace. Within `hold`, nobody else changes a conversation.
    `is_reply_under_way`: whether an agent's reply is being written in it.
    """

    workspace: StoredWorkspace
    tokens: TokenCounter
    preparation: SessionPreparation = field(default_factory=SessionPreparation)
    hold: session_import.Hold = lambda _conversation: nullcontext()
    result: ImportResult = field(default_factory=lambda: ImportResult(new_import_name()))
    is_reply_under_way: session_import.IsReplyUnderWay = lambda _conversation: False
    intake: SessionIntake = field(init=False)
    _stamps: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.intake = SessionIntake(
            self.workspace,
            self.result.run,
            self.hold,
            self.is_reply_under_way,
            is_by_hand=self.preparation.copies is None,
        )

    async def import_files(
        self, files: Sequence[Path], report: Report = ignore_progress
    ) -> ImportResult:
        """Import all sessions of these files. The result has a sentence about each that
        could not be imported.
        """
        # An import creates few reference cycles, so garbage is collected less often.
        gc.set_threshold(20_000, 50, 100)
        await self._read_earlier_imports()
        deleted = await asyncio.to_thread(read_deleted_conversations, self.workspace.folder)
        self.intake.deleted = deleted
        self.intake.rows = await self.workspace.journal.list_conversations()
        ordered_files = await asyncio.to_thread(subagent_files.put_subagents_last, files)
        bytes_before_file: dict[Path, int] = {}
        total_bytes = 0
        for file in ordered_files:
            bytes_before_file[file] = total_bytes
            size, _ = stamp_of_history_file(file)
            total_bytes += size
        bytes_at_last_wait = 0
        prepared = self.preparation.prepare_files(
            self._list_files_to_read(ordered_files), self.tokens
        )
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
                importing = asyncio.gather(*[self._import_session(session) for session in group])
                imported = await end_if_cancelled(importing, self._add_imported)
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
            self.intake.earlier.last[fact.origin.kind, fact.origin.session] = recorded
        self._stamps = stamps_at_last_import(imports)

    def _list_files_to_read(self, files: Sequence[Path]) -> list[FileToRead]:
        """Return the files that are not as they were at an earlier import, and those of sub-agents
        whose session is not known yet: it may have been imported since.
        """
        conversations_by_path: dict[str, set[str]] = {}
        for recorded in self.intake.earlier.last.values():
            path = session_import.imported_path(recorded)
            conversations_by_path.setdefault(path, set()).add(recorded.conversation)
        ids_without_parent = {row.id for row in self.intake.rows if not row.parent}
        files_to_read: list[FileToRead] = []
        for file in files:
            file_here = self.preparation.copy_of_file(file) or file
            stamp = stamp_of_history_file(file_here)
            conversations = conversations_by_path.get(str(file), set())
            lacks_parent = False
            if not conversations.isdisjoint(ids_without_parent):
                lacks_parent = subagent_files.is_file_of_subagent(file)
            if self._is_imported_already(file, stamp, conversations) and not lacks_parent:
                self.result.here |= conversations
            else:
                files_to_read.append((file, stamp))
        return files_to_read

    def _is_imported_already(
        self, file: Path, stamp: tuple[int, int], conversations: AbstractSet[str]
    ) -> bool:
        """`conversations`: those that an earlier import made of this file."""
        # If the user imports by hand what was deleted, what is older comes back, too.
        is_deleted = not conversations.isdisjoint(self.intake.deleted)
        if self.intake.is_by_hand and is_deleted:
            return False
        size, _ = stamp
        return size > 0 and self._stamps.get(str(file)) == stamp

    def _collect_complaints(
        self, prepared: Iterator[Prepared]
    ) -> Iterator[session_import.SessionToImport]:
        for session_or_complaint in prepared:
            if isinstance(session_or_complaint, session_import.SessionToImport):
                yield session_or_complaint
            elif isinstance(session_or_complaint, str):
                self.result.complaints.append(session_or_complaint)

    async def _import_session(
        self, session: session_import.SessionToImport
    ) -> session_import.ImportedConversation | None:
        """Take in one session, and note in the result what came of it."""
        intake_result = await self.intake.take_in_session(session)
        self.result.complaints.extend(intake_result.complaints)
        if intake_result.unchanged_conversation:
            self.result.here.add(intake_result.unchanged_conversation)
        conversation = intake_result.conversation
        if conversation:
            for position, key in session.keys:
                # Earlier messages are not new.
                if position >= intake_result.new_from:
                    count_by_conversation = self.result.keys.setdefault(key, {})
                    count_before = count_by_conversation.get(conversation, 0)
                    count_by_conversation[conversation] = count_before + 1
        return intake_result.imported


def _group_unrelated(
    sessions: Iterator[session_import.SessionToImport],
) -> Iterator[list[session_import.SessionToImport]]:
    """Yield groups of sessions that can be written at the same time, because none
    belongs to another.
    """
    group: dict[str, session_import.SessionToImport] = {}
    draft_count = 0
    for session in sessions:
        recording = session.recording
        related_sessions = (recording.session, recording.forked_from, recording.parent)
        if draft_count > TOGETHER or not group.keys().isdisjoint(related_sessions):
            yield list(group.values())
            group = {}
            draft_count = 0
        group[recording.session] = session
        draft_count += len(session.drafts)
    if group:
        yield list(group.values())


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
    yielded_facts = set[facts.Fact]()
    for recorded in imports:
        fact = recorded.fact
        if not isinstance(fact, facts.BroughtIn) or not fact.run:
            continue
        if fact not in yielded_facts:
            yielded_facts.add(fact)
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
    imports_to_undo = await _find_imports_to_undo(workspace, run)
    if not imports_to_undo:
        raise NotFound(
            f"There is no import {run} to undo.",
            remedy="To see all imports, run `conversation imports`.",
        )
    undone_count = 0
    stayed: list[str] = []
    for conversation, recorded in imports_to_undo.items():
        async with hold(conversation):
            was_undone = await _undo_imported_facts(workspace, recorded)
        if was_undone:
            undone_count += 1
        else:
            stayed.append(
                f"Conversation {conversation} was kept because you continued it in Helix Desktop."
            )
    return undone_count, stayed


async def _find_imports_to_undo(workspace: StoredWorkspace, run: str) -> dict[str, facts.Recorded]:
    """Return the import's last fact in each conversation that it changed."""
    # What is said last of a conversation counts: its import may have been undone already.
    imports_to_undo: dict[str, facts.Recorded] = {}
    for recorded in await workspace.journal.facts_about_imports():
        fact = recorded.fact
        if not isinstance(fact, facts.BroughtIn) or fact.run != run:
            continue
        if fact.undone:
            imports_to_undo.pop(recorded.conversation, None)
        else:
            imports_to_undo[recorded.conversation] = recorded
    return imports_to_undo


async def _undo_imported_facts(workspace: StoredWorkspace, import_fact: facts.Recorded) -> bool:
    """Take back what an import brought. Return False if the conversation was continued since."""
    fact = import_fact.fact
    if not isinstance(fact, facts.BroughtIn):
        return False
    kinds_of_continuing = SAID + (facts.Rewound, facts.BroughtIn)
    for recorded in await workspace.journal.read_facts(import_fact.conversation):
        if recorded.seq > import_fact.seq and isinstance(recorded.fact, kinds_of_continuing):
            return False
    # An import that began the conversation takes all of it back.
    change: facts.Fact = facts.ConversationChanged(trashed=True)
    if fact.first > 1:
        change = facts.Rewound(fact.first - 1)
    undone = replace(fact, size=0, modified=0, undone=True, cost=0.0)
    await workspace.journal.append_imported_facts(
        import_fact.conversation, [(0.0, change), (0.0, undone)]
    )
    return True


async def find_recorded_conversations(
    workspace: StoredWorkspace, kinds: Collection[str] = (), before: float = math.inf
) -> list[str]:
    """Return conversations imported from these programs, or from all, and their forks. Those that
    the gateway or ACP saw first are not among them. `before`: last changed.
    """
    conversations = set[str]()
    for recorded in await workspace.journal.facts_about_imports():
        fact = recorded.fact
        if isinstance(fact, facts.BroughtIn) and _began_with_import_from(fact, kinds):
            conversations.add(recorded.conversation)
    rows = await workspace.journal.list_conversations()
    # Forks of forks, too, until no other one is found.
    while True:
        forks = {row.id for row in rows if row.forked_from in conversations}
        if forks <= conversations:
            break
        conversations |= forks
    old_conversations: list[str] = []
    for row in rows:
        if row.id in conversations and row.updated < before:
            old_conversations.append(row.id)
    return old_conversations


def _began_with_import_from(fact: facts.BroughtIn, kinds: Collection[str]) -> bool:
    """Whether this import made the conversation, and is from one of these programs, or from any."""
    kind = fact.origin.kind
    if not kind or fact.first > 1:
        return False
    return not kinds or kind in kinds


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
