"""Imports histories of other programs as conversations, and later only what is new of them.

Content is stored first; then the facts of a conversation are appended in one
transaction, with a `BroughtIn` that tells where they come from. So a crash or a stop
leaves whole conversations, and the next import goes on with the rest. A file whose size
and time are as they were is not read again; one that has grown adds what is new. Where
the conversation was continued here meanwhile, what is new goes into a fork of it.
"""

import asyncio
import gc
import itertools
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

Report = Callable[
    [int, int, str], object
]  # Called with the number of bytes read, the total number, and the file.
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
    keys: dict[str, dict[str, int]] = field(
        default_factory=dict
    )  # By leaked key: how often in each conversation.

    @property
    def unchanged_conversations(self) -> set[str]:
        return self.here.difference(one.id for one in self.imported)


def new_import_name() -> str:
    """Return a name for an import, which contains the time."""
    return f"{clock.strftime('%Y%m%dT%H%M%S', clock.gmtime())}-{random.token_hex(3)}"


def find_files_to_import(paths: Sequence[Path]) -> list[Path]:
    """Return the files to read. Raises NotFound for a path that does not exist."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise NotFound(f"{path} does not exist.", remedy="Check the file name.")
        found += history_reading.list_history_files(path) if path.is_dir() else [path]
    return list(dict.fromkeys(found))


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
        gc.set_threshold(
            20_000, 50, 100
        )  # An import creates few reference cycles, so garbage is collected less often.
        await self._read_earlier_imports()
        self._deleted = await asyncio.to_thread(read_deleted_conversations, self.workspace.folder)
        self._rows = [
            row for row in await self.workspace.journal.list_conversations() if not row.trashed
        ]
        sizes, ahead = [stamp_of_history_file(file)[0] for file in files], 0
        done = dict(zip(files, itertools.accumulate(sizes, initial=0), strict=False))
        prepared = self.preparation.prepare_files(self._list_changed_files(files), self.tokens)
        thread, held = (
            StoreThread("prepare sessions"),
            _group_unrelated(self._collect_complaints(prepared)),
        )
        try:
            coming = thread.submit_work(next, held, None)
            while (group := await asyncio.wrap_future(coming)) is not None:
                coming = thread.submit_work(next, held, None)  # Prepared while these are written.
                file = group[0].file
                report(done[file], sum(sizes), str(file))
                if done[file] - ahead > AHEAD:
                    await self.workspace.index.wait_until_indexed(allowed_missing=BEHIND)
                    ahead = done[file]
                # A stop comes here: what is being written is finished, so that the result names it.
                await asyncio.sleep(0)
                importing = asyncio.gather(*map(self._import_session, group))
                await self._add_imported(
                    await finish_even_if_cancelled(importing, self._add_imported)
                )
        finally:
            await thread.aclose()
            prepared.close()
        report(sum(sizes), sum(sizes), "")
        return self.result

    async def _add_imported(
        self, brought: Sequence[session_import.ImportedConversation | None]
    ) -> None:
        self.result.imported += [one for one in brought if one is not None]

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
                if names & names_of_session([one.fact for one in live]):
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
            recorded = await journal.read_facts(conversation)
            changes = (one.fact for one in recorded)
            if any(
                isinstance(fact, facts.ConversationChanged) and fact.archived is not None
                for fact in changes
            ):
                return
        change = facts.ConversationChanged(archived=is_copy)
        await journal.append_imported_facts(conversation, [(0.0, change)])

    async def _facts_seen_live(self, row: StoredConversation) -> list[facts.Recorded]:
        """Return the oldest and newest facts of a conversation that an agent is connected to or
        works in over ACP. They name its session.
        """
        if row.id not in self._seen_live:
            read = self.workspace.journal.read_facts
            newest = await read(row.id, after=max(0, row.last_seq - NEWEST))
            found = [*await read(row.id, limit=NEWEST), *newest]
            is_live = any(isinstance(one.fact, facts.Received) for one in found)
            self._seen_live[row.id] = found if is_live else []
        return self._seen_live[row.id]

    def _list_changed_files(self, files: Sequence[Path]) -> list[FileToRead]:
        """Return the files that are not as they were at an earlier import."""
        here: dict[str, set[str]] = {}
        for recorded in self.earlier.last.values():
            here.setdefault(session_import.imported_path(recorded), set()).add(
                recorded.conversation
            )
        changed = []
        for file in files:
            stamp = stamp_of_history_file(self.preparation.copy_of_file(file) or file)
            known = here.get(str(file), set())
            by_hand = (
                self.preparation.copies is None and known & self._deleted.keys()
            )  # What is older comes back, too.
            if stamp[0] and self._stamps.get(str(file)) == stamp and not by_hand:
                self.result.here |= known
            else:
                changed.append((file, stamp))
        return changed

    def _collect_complaints(
        self, prepared: Iterator[Prepared]
    ) -> Iterator[session_import.SessionToImport]:
        for one in prepared:
            if isinstance(one, session_import.SessionToImport):
                yield one
            elif isinstance(one, str):
                self.result.complaints.append(one)

    # --- Writing sessions into conversations, on the event loop

    async def _leave_out_deleted(
        self, held: session_import.SessionToImport
    ) -> session_import.SessionToImport | None:
        """Return what is new since the user deleted it, or what it belongs to, for
        good. By hand, all comes back.
        """
        one, own = held.recording, held.with_unique_session_name().recording
        sessions = filter(None, (one.session, own.session, one.parent, one.forked_from))
        names = [
            session_import.conversation_id_of_session(one.kind, session) for session in sessions
        ]
        deleted = max((self._deleted.get(name, 0.0) for name in names), default=0.0)
        if not deleted or self.preparation.copies is None:
            return held
        known = await self.workspace.journal.read_facts(self.earlier.conversation_of_recording(one))
        return held if any(old.time <= deleted for old in known) else held.newer_part(deleted)

    async def _import_session(
        self, session: session_import.SessionToImport
    ) -> session_import.ImportedConversation | None:
        if (newer := await self._leave_out_deleted(session)) is None:
            return None
        session, recording = newer, newer.recording
        if not any(message.role == "assistant" for message in recording.messages):
            self.result.complaints.append(
                f"{recording.name} was left out because it contains no reply."
            )
            return None
        for message in recording.messages:
            if message.child:
                self.earlier.calls[recording.kind, message.child] = message.answers
        if (
            apart := session.with_unique_session_name()
        ).recording.identity_of_session in self.earlier.last:
            session = apart
        conversation = self.earlier.conversation_of_recording(session.recording)
        writing = session_import.SessionWriter(
            self.workspace, self.hold, self.earlier, self.result.run, session, conversation
        )
        try:
            await writing.write_session()
        except HelixError as error:
            self.result.complaints.append(f"{recording.name}: {error}")
            return None
        self.result.complaints += [writing.damage] * bool(writing.damage)
        if writing.recorded is None or writing.brought is None:
            self.result.here.add(writing.conversation)
        else:
            self.earlier.last[writing.held.recording.identity_of_session] = writing.recorded
            await self._archive_if_here_already(writing.held, writing.brought)
        for at, key in session.keys:
            if at >= writing.new_from:
                places = self.result.keys.setdefault(key, {})
                places[writing.conversation] = places.get(writing.conversation, 0) + 1
        return writing.brought if writing.recorded is not None else None


def _group_unrelated(
    coming: Iterator[session_import.SessionToImport],
) -> Iterator[list[session_import.SessionToImport]]:
    """Yield groups of sessions that can be written at the same time, because none
    belongs to another.
    """
    group: dict[str, session_import.SessionToImport] = {}
    for one in coming:
        needed = (one.recording.session, one.recording.forked_from, one.recording.parent)
        is_full = sum(len(held.made) for held in group.values()) > TOGETHER
        if is_full or not group.keys().isdisjoint(needed):
            yield [*group.values()]
            group = {}
        group[one.recording.session] = one
    if group:
        yield [*group.values()]


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
    return {
        session_import.imported_path(recorded): (0, 0)
        if fact.undone
        else (fact.size, fact.modified)
        for recorded, fact in _imports_once(imports)
    }


def _imports_once(
    imports: Sequence[facts.Recorded],
) -> Iterator[tuple[facts.Recorded, facts.BroughtIn]]:
    """Yield each import once. A fork contains copies of these facts, but the session
    continues in the original.
    """
    known = set[facts.Fact]()
    for recorded in imports:
        if isinstance(fact := recorded.fact, facts.BroughtIn) and fact.run and fact not in known:
            known.add(fact)
            yield recorded, fact


def stamp_of_history_file(file: Path) -> tuple[int, int]:
    """Return the size and time that show whether a file has changed, including files
    beside a database.
    """
    size = modified = 0
    for name in (
        file,
        file.with_name(f"{file.name}-wal"),
        file.parents[2] / "message" / file.stem if len(file.parents) > 2 else file,
    ):
        with suppress(OSError):
            found = name.stat()
            size, modified = size + found.st_size, max(modified, found.st_mtime_ns)
    return size, modified


# --- Undoing an import


async def undo_import(
    workspace: StoredWorkspace, run: str, hold: session_import.Hold = lambda _: nullcontext()
) -> tuple[int, list[str]]:
    """Undo an import: trash its new conversations and rewind the others. Returns how
    many, and what stays.
    """
    newest = {
        one.conversation: (one, one.fact)
        for one in await workspace.journal.facts_about_imports()
        if isinstance(one.fact, facts.BroughtIn) and one.fact.run == run
    }
    found = [one for one, fact in newest.values() if not fact.undone]
    if not found:
        raise NotFound(
            f"There is no import {run} to undo.",
            remedy="To see all imports, run `conversation imports`.",
        )
    count, stayed = 0, []
    for one in found:
        async with hold(one.conversation):
            if await _undo_imported_facts(workspace, one):
                count += 1
            else:
                stayed.append(
                    f"Conversation {one.conversation} was kept because you continued it in Helix Desktop."
                )
    return count, stayed


async def _undo_imported_facts(workspace: StoredWorkspace, brought: facts.Recorded) -> bool:
    recorded = await workspace.journal.read_facts(brought.conversation)
    later = [one.fact for one in recorded if one.seq > brought.seq]
    if any(
        isinstance(fact, (*SAID, facts.Rewound, facts.BroughtIn)) for fact in later
    ) or not isinstance(brought.fact, facts.BroughtIn):
        return False
    fact = brought.fact
    change: facts.Fact = (
        facts.ConversationChanged(trashed=True)
        if fact.first <= 1
        else facts.Rewound(fact.first - 1)
    )
    await workspace.journal.append_imported_facts(
        brought.conversation,
        [(0.0, change), (0.0, replace(fact, size=0, modified=0, undone=True, cost=0.0))],
    )
    return True


async def find_recorded_conversations(
    workspace: StoredWorkspace, kinds: Collection[str] = (), before: float = math.inf
) -> list[str]:
    """Return conversations imported from these programs, or from all, and their forks.
    `before`: last changed.
    """
    brought = await workspace.journal.facts_about_imports()
    origins = (
        (one.conversation, one.fact.origin.kind)
        for one in brought
        if isinstance(one.fact, facts.BroughtIn)
    )
    found = {
        conversation for conversation, kind in origins if kind and (not kinds or kind in kinds)
    }
    rows = await workspace.journal.list_conversations()
    while more := {row.id for row in rows if row.forked_from in found} - found:
        found |= more
    return [row.id for row in rows if row.id in found and row.updated < before]


async def list_import_runs(workspace: StoredWorkspace) -> list[tuple[str, int, bool]]:
    """Return a workspace's imports, newest first: name, number of conversations,
    whether it was undone.
    """
    found: dict[str, dict[str, bool]] = {}
    for one in await workspace.journal.facts_about_imports():
        if isinstance(one.fact, facts.BroughtIn) and one.fact.run:
            found.setdefault(one.fact.run, {})[one.conversation] = one.fact.undone
    return [
        (run, len(those), all(those.values())) for run, those in sorted(found.items(), reverse=True)
    ]
