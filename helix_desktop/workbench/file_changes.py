"""What happened to the files of an open workspace, and taking it back: for the window and the command line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from helix_desktop import durable
from helix_desktop.engine.changes import hunks, story, tree
from helix_desktop.engine.changes.patch import patch
from helix_desktop.engine.changes.story import FileChange, How, Left, Planned, Source, TurnOfChanges
from helix_desktop.engine.changes.tree import Change, Item, Kind
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import ChangeKept, FilesChanged, Recorded
from helix_desktop.engine.session import Session
from helix_desktop.errors import HelixError, NotThere, Refused
from helix_desktop.store.config import Changes
from helix_desktop.store.workspace import Workspace
from helix_desktop.tools.changes import restore
from helix_desktop.tools.changes.checkpoints import Checkpoints, Progress
from helix_desktop.tools.kit import Kit
from helix_desktop.values import dataclass
from helix_desktop.workbench import setup
from helix_desktop.workbench.models import Models
from helix_desktop.workbench.repository import Repository

KEEP_DAYS = 30
COUNTED = 20_000  # changes of which the lines are remembered
_SWEPT = "checkpoints.swept"  # its time says when unused contents were looked for last
_DAY = 86_400
Difference = tuple[Source, Sequence[Change]]
_LARGE = 16 << 20  # bytes beyond which a file is shown by its size and hash alone


@dataclass(frozen=True, slots=True)
class Undone:
    """What taking back came to: names that are as they were, and those left alone with the reason."""

    restored: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()


class Bench(Protocol):
    """What the workbench does for it."""

    workspace: Workspace
    kit: Kit
    models: Models

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]: ...

    async def change(self, changes: Changes) -> None: ...

    async def child(self, conversation: str) -> Sequence[Recorded]: ...

    async def session(self, conversation: str) -> Session: ...


class FileChanges:
    """Of one workbench."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.repository = Repository(bench.models, lambda: self.checkpoints.roots)
        self._counts: dict[tuple[bytes, ...], tuple[int, int]] = {}

    @property
    def checkpoints(self) -> Checkpoints:
        checkpoints = self._bench.kit.around.checkpoints
        if checkpoints is None:
            raise NotThere("This workspace has no folder, so there are no changes.")
        return checkpoints

    # --- the safety net

    async def prepare(self) -> None:
        """Make the first checkpoint in the background, then remove contents that nothing needs any more."""
        checkpoints = self.checkpoints
        if checkpoints.coverage.off:
            return
        await checkpoints.prepare()
        swept = self._bench.workspace.folder / _SWEPT
        with suppress(OSError):
            if swept.stat().st_mtime > time.time() - _DAY:
                return
        await self.sweep()
        with suppress(HelixError):
            durable.write(swept, "")

    async def sweep(self) -> tuple[int, int]:
        """Remove what no conversation needs any more; entries and bytes."""
        named = self.checkpoints.items().values()
        keep = frozenset(Digest(item.content) for item in named if item.kind is Kind.FILE)
        found = await self._bench.workspace.collect_checkpoints(self.keep_days, keep, self.checkpoints.now)
        return found.entries, found.bytes

    @property
    def keep_days(self) -> int:
        return int(self._bench.workspace.settings.changes.get("keep_days", KEEP_DAYS))

    def configure(self) -> None:
        """The settings were changed."""
        wanted = setup.coverage(self._bench.workspace.settings.changes)
        if wanted != self.checkpoints.coverage:
            self._bench.spawn(self.checkpoints.again(wanted), name="cover other files")

    @property
    def progress(self) -> Progress:
        return self.checkpoints.progress

    def watch(self, listener: Callable[[Progress], object]) -> Callable[[], None]:
        listeners = self.checkpoints.listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def not_covered(self) -> Sequence[Left]:
        return [
            Left(self.checkpoints.place(left.path), left.why, left.is_beyond_limits)
            for left in self.checkpoints.left_out()
        ]

    async def room(self) -> tuple[int, int]:
        """How many contents checkpoints hold, and the bytes they take."""
        return await self._bench.workspace.index.checkpoints()

    def rules(self) -> Sequence[str]:
        """What is left out."""
        return self.checkpoints.coverage.leave_out

    async def largest(self) -> Sequence[tuple[str, int, int]]:
        """The folders right below the roots that have most in them: name, files, bytes. An empty name: files in no folder."""
        return await asyncio.to_thread(self.checkpoints.largest)

    async def cover(self, *, all_of_it: bool = False, leave_out: Sequence[str] | None = None) -> None:
        """The user's word about a folder over the limit, or other rules."""
        changes: dict[str, object] = {"changes.most_files": 0, "changes.most_bytes": 0} if all_of_it else {}
        if leave_out is not None:
            changes["changes.leave_out"] = list(leave_out)
        await self._bench.change(changes)

    # --- what happened

    async def turns(self, conversation: str) -> Sequence[TurnOfChanges]:
        """The turns that changed files, with what their sub-agents changed."""
        found = []
        facts = await self._bench.child(conversation)
        for turn in await asyncio.to_thread(story.turns, facts):
            sources = list(turn.sources)
            for child in turn.children:
                with suppress(HelixError):
                    for inner in await self.turns(child):
                        sources += inner.sources
            if sources:
                sources.sort(key=lambda source: (source.time, source.seq))
                found.append(replace(turn, sources=tuple(sources)))
        return found

    async def files(self, sources: Sequence[Source]) -> Sequence[FileChange]:
        """What some steps came to together, file by file."""
        found = []
        for source in sources:
            with suppress(NotThere):  # forgotten, or removed to make room
                found.append((source, await self._difference(source)))
        return await self._counted(self._joined(await self._theirs(found), tree.files_of))

    async def _difference(self, source: Source) -> Sequence[Change]:
        return tree.read_difference(await self._bench.workspace.cache.get(source.fact.difference.digest))

    async def _theirs(self, differences: Sequence[Difference]) -> Sequence[Difference]:
        """An undo beside the user's own lines, and what came after it, as they would have been without these: else they would pass for
        the agent's. Where an undo left nothing of what the agent did, neither is told.
        """
        whole: dict[str, Change] = {}
        beside: set[str] = set()  # paths that are told without somebody's lines
        over: dict[str, int] = {}  # by path the last difference that nothing is told of
        found: list[tuple[Source, list[Change]]] = []
        for number, (source, changes) in enumerate(differences):
            found.append((source, []))
            for change in changes:
                path, held, undo = change.path, whole.get(change.path), source.fact.by == "undo"
                rest = await self._rest(held, change) if held is not None and (undo or path in beside) else None
                if held is not None and rest is not None:
                    change = Change(path, held.after, rest)  # noqa: PLW2901 -- the same without what is somebody else's
                    beside.add(path)
                    if undo and held.before is not None and rest.content == held.before.content:
                        over[path] = number
                        del whole[path]
                        beside.remove(path)
                        continue
                whole[path] = change if held is None else Change(path, held.before, change.after)
                found[-1][1].append(change)
        return [
            (source, [each for each in changes if number > over.get(each.path, -1)])
            for number, (source, changes) in enumerate(found)
        ]

    async def _rest(self, whole: Change, change: Change) -> Item | None:
        """What a change would have left of a file without what somebody else wrote before it; None where nobody did, or it cannot be told."""
        if whole.after == change.before:
            return None
        backwards = Planned(change.path, change.after, change.before, whole.after, How.CONFLICT)
        return await restore.merged(self.checkpoints, backwards)

    def _joined(
        self,
        differences: Sequence[Difference],
        shown: Callable[[Sequence[Change]], Sequence[Change]],
    ) -> list[FileChange]:
        by_path: dict[str, list[Source]] = {}
        for source, changes in differences:
            for change in changes:
                by_path.setdefault(change.path, []).append(source)
        whole, broken = tree.joined(change for _, changes in differences for change in changes)
        return [self._file(change, by_path[change.path], change.path in broken) for change in shown(whole)]

    async def since(self, checkpoint: Digest, *, folders: bool = False) -> Sequence[FileChange]:
        """What is different now from a checkpoint, whoever changed it. `folders`: also those in which a file is."""
        before = await self.checkpoints.state(checkpoint)
        await self.checkpoints.look()
        changes = tree.compared(before, self.checkpoints.items())
        found = [self._file(change, (), broken=False) for change in (changes if folders else tree.files_of(changes))]
        return found if folders else await self._counted(found)

    async def since_revision(self, revision: str) -> Sequence[FileChange]:
        """What is different now from a revision of the user's repository. The index is not looked at."""
        await self.checkpoints.look()
        changes = await self.repository.compared(self.checkpoints, revision)
        return await self._counted([self._file(change, (), broken=False) for change in changes])

    def _file(self, change: Change, sources: Sequence[Source], broken: bool) -> FileChange:  # noqa: FBT001 -- one of three
        last = [*sources[:1], *story.own(sources)][-1:]
        what, step = next(((source.what or source.fact.by, source.step) for source in last), ("", 0))
        place = self.checkpoints.place(change.path)
        return FileChange(change, place, by=what, step=step, broken=broken, sources=tuple(sources))

    async def _counted(self, files: Sequence[FileChange]) -> Sequence[FileChange]:
        """With the lines that came and went, as far as that is quick."""
        left = _LARGE
        found = []
        for file in files:
            left -= sum(item.size for item in (file.change.before, file.change.after) if item is not None)
            if left > 0:
                with suppress(HelixError):
                    added, removed = await self._lines_of(file)
                    file = replace(file, added=added, removed=removed)  # noqa: PLW2901 -- the same with its counts
            found.append(file)
        return found

    async def _lines_of(self, file: FileChange) -> tuple[int, int]:
        """Lines that came and went; of the same two contents they are the same for ever, so they are counted once."""
        items = file.change.before, file.change.after
        same = all(item is None or item.kind is Kind.FILE for item in items)
        key = tuple(b"" if item is None else item.content for item in items)
        if not same or (counted := self._counts.get(key)) is None:
            counted = await asyncio.to_thread(hunks.counts, *await self.contents(file))
        if same:
            self._counts[key] = counted
            if len(self._counts) > COUNTED:
                self._counts.pop(next(iter(self._counts)))
        return counted

    async def contents(self, file: FileChange) -> tuple[bytes, bytes]:
        """Both versions; a link is where it leads."""
        before = await self.checkpoints.content(file.change.before)
        return before, await self.checkpoints.content(file.change.after)

    def file_path(self, file: FileChange) -> Path:
        number, _, inside = file.path.partition("/")
        return self.checkpoints.roots[int(number)] / inside

    async def patch(self, files: Sequence[FileChange]) -> bytes:
        """As `git apply` takes it."""
        found = []
        for file in files:
            before, after = await self.contents(file)
            found.append(patch(file.place, (file.change.before, before), (file.change.after, after)))
        return b"".join(found)

    async def kept(self, conversation: str) -> Mapping[str, frozenset[str]]:
        return story.kept(await self._bench.child(conversation))

    async def keep(self, conversation: str, path: str, hunk: str = "") -> None:
        """The user has seen it and keeps it."""
        await self._record(conversation, ChangeKept(path, hunk))

    # --- taking back

    async def plan(self, files: Sequence[FileChange]) -> Sequence[Planned]:
        """What taking back these files comes to, before anything is done."""
        broken = frozenset(file.path for file in files if file.broken)
        return await restore.plan(self.checkpoints, [file.change for file in files], broken)

    async def with_folders(self, sources: Sequence[Source]) -> Sequence[FileChange]:
        """All that some steps changed, the folders of files among it: what must be put back together."""
        found = [(source, await self._difference(source)) for source in sources]
        return self._joined(await self._theirs(found), list)

    async def take_back(
        self,
        files: Sequence[FileChange],
        *,
        conversation: str = "",
        choices: Mapping[str, str] = {},
        undoes: Sequence[int] = (),
    ) -> Undone:
        """Put files as they were. `choices`, for files that others have changed since: before, merge or now; without one the file is left alone.
        `undoes`: the facts it is about, where the files do not name them.
        """
        undoes = undoes or story.undone((source for file in files for source in file.sources), conversation)
        planned = await self.plan(files)
        chosen: dict[str, Item | None] = {}
        left: list[tuple[str, str]] = []
        for one in planned:
            if one.how is not How.CONFLICT:
                continue
            match choices.get(one.path, ""):
                case "before":
                    chosen[one.path] = one.before
                case "merge" if (item := await restore.merged(self.checkpoints, one)) is not None:
                    chosen[one.path] = item
                case "merge":
                    left.append((one.path, "the changes touch the same lines"))
                case _:
                    left.append((one.path, "it was changed by somebody else since"))
        wanted = restore.steps(planned, chosen)
        already = [one for one in planned if one.how is How.ALREADY]
        done = await restore.put_back(self.checkpoints, wanted, already=already)
        return await self._told(done, left, conversation, undoes)

    async def take_back_hunks(self, file: FileChange, ids: Sequence[str], *, conversation: str = "") -> Undone:
        """Take back some hunks of a text. What has changed elsewhere in it since stays."""
        await self.checkpoints.look()
        now = self.checkpoints.item(file.path)
        if file.change.after is None:  # a file that was deleted has one hunk: all of it
            return await self.take_back([file], conversation=conversation)
        if now is None or now.kind is not Kind.FILE:
            raise Refused(f"{file.place} is no longer a file.", remedy="Undo the whole file.")
        before, after = await self.contents(file)
        current = await self.checkpoints.content(now)
        chosen = [hunk for hunk in hunks.hunks(before, after) if hunk.id in set(ids)]
        content = await asyncio.to_thread(hunks.take_back, before, after, current, chosen)
        target: Item | None = await restore.kept(self.checkpoints, content, now)
        if not content and file.change.before is None:
            target = None
        done = await restore.put_back(self.checkpoints, [restore.Step(file.path, now, target)])
        return await self._told(done, [], conversation, story.undone(file.sources, conversation))

    async def versions(self, planned: Planned) -> tuple[bytes, bytes, bytes]:
        """Before the agent, after it, and now: for the user to choose."""
        contents = [await self.checkpoints.content(item) for item in (planned.before, planned.after, planned.now)]
        return contents[0], contents[1], contents[2]

    async def _told(
        self, done: restore.Done, left: Sequence[tuple[str, str]], conversation: str, undoes: Sequence[int]
    ) -> Undone:
        place = self.checkpoints.place
        fact = None if done.fact is None else replace(done.fact, undoes=tuple(undoes))
        if fact is not None and conversation:
            await self._record(conversation, fact)
        names = tuple(place(path) for path in done.restored)
        return Undone(names, tuple((place(path), why) for path, why in (*left, *done.left)))

    async def _record(self, conversation: str, fact: FilesChanged | ChangeKept) -> Sequence[Recorded]:
        session = await self._bench.session(conversation)
        return await session.conversation.append(fact)
