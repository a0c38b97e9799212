"""Takes checkpoints of a workspace's folders before and after each step that may change files.

Contents are stored and synced before a difference refers to them, and the difference
before a fact does. So a crash leaves at most unused contents, which are found again by
hash. Stamps are derived and may be lost.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from sys import maxsize

from helix_desktop.engine.changes import diff_hunks, folder_state
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, Tree, TreeItem
from helix_desktop.engine.changes.turn_changes import UncoveredPath
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes import content_storing, folder_walk, interrupted_steps
from helix_desktop.tools.changes import known_state_file as kept_known
from helix_desktop.tools.changes.change_attribution import OpenStep, OpenSteps
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.content_storing import (
    ABOUT,
    BatchContentCache,
    RootFileOpener,
    WantedFileRecord,
)
from helix_desktop.tools.changes.disk_space import hold_disk_space
from helix_desktop.tools.changes.folder_walk import STAMP, KnownRecords, WalkResult, WantedFile
from helix_desktop.tools.changes.known_folders import KnownFolders
from helix_desktop.tools.changes.known_state_file import CheckpointChain

COUNTED = 16 << 20  # The changed lines of a step with more bytes than this are not counted.
# So many bytes on the stores' disk are held while a step runs, to record it with.
HELD_SPACE = 4 << 20
# A new full list is stored once the differences take more than this many times the
# space of the last one.
ROOM = 2
MOST_NAMES = 5
DEFAULT_COVERAGE = CheckpointCoverage()
# If checking all files takes fewer seconds than this, all are checked after every
# command.
SHORT = 0.25


@dataclass(frozen=True, slots=True)
class CheckpointProgress:
    """`state` is waiting, reading, ready, off or failed."""

    state: str = "waiting"
    files: int = 0
    of_files: int = 0
    why: str = ""


class Checkpoints:
    """Created and closed with the workspace. `file`: where the stamps are kept between
    two starts. `stores`: the folder on whose disk the contents are. `steps_file`: says
    whose changes are if the program is killed.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        contents: BatchContentCache,
        *,
        file: Path | None = None,
        stores: Path | None = None,
        steps_file: Path | None = None,
        coverage: CheckpointCoverage = DEFAULT_COVERAGE,
        closed: Sequence[Path] = (),
    ) -> None:
        self.roots = tuple(roots)
        self.contents = contents
        self.reader = RootFileOpener(self.roots)
        self.folders = KnownFolders(self.roots, coverage, closed)
        self.progress = CheckpointProgress("off" if coverage.off else "waiting")
        self.listeners: list[Callable[[CheckpointProgress], object]] = []
        self._file = file
        self._stores = stores
        self._steps_file = steps_file
        self.latest_checkpoint: Digest | None = None  # The state of the files at the last check.
        self._chain = CheckpointChain()
        self.steps = OpenSteps()
        self._lock = asyncio.Lock()
        self._saved: Digest | None = None
        self._saving_steps = asyncio.Lock()
        self._recording = asyncio.Lock()
        self._beat: asyncio.TimerHandle | None = None
        # None until the file of steps was read.
        self._interrupted: list[tuple[OpenStep, FilesChanged]] | None = None
        # Appends what a command in the background, or a killed program, has changed,
        # unless the conversation has it.
        self.record_changes: Callable[[str, FilesChanged], Awaitable[object]] | None = None
        # Files that an interrupted undo left behind. The first check finds them.
        self.leftovers: list[str] = []

    @property
    def is_ready(self) -> bool:
        return self.progress.state == "ready"

    @property
    def is_undo_available(self) -> bool:
        return bool(self.roots) and self.progress.state != "off"

    def displayed_path(self, path: str) -> str:
        """Return a path as users know it: relative to the first root, or in full for
        other roots.
        """
        number, _, inside = path.partition("/")
        if number == "0":
            return inside or "."
        return f"{self.roots[int(number)]}/{inside}"

    def checkpoint_path(self, place: str | Path) -> str:
        """Convert a displayed path back to a checkpoint path. A path outside all roots
        is returned unchanged.
        """
        shown = Path(place)
        for number, root in enumerate(self.roots):
            if shown.is_absolute() and shown.is_relative_to(root):
                inside = shown.relative_to(root).as_posix()
                return str(number) if inside == "." else f"{number}/{inside}"
        return f"0/{place}"

    async def ensure_first_check(self) -> None:
        """Check all files for the first time. Afterwards, `progress` says why if that
        was not possible.
        """
        if not self.is_ready:
            await self.check_for_changes(thorough=True)
        with suppress(HelixError):  # On a full disk, it is tried again before the next step.
            await self._record_interrupted_steps()

    async def _record_interrupted_steps(self) -> None:
        async with self._recording:
            while self._interrupted and self.record_changes is not None:
                step, fact = self._interrupted[0]
                await self.record_changes(step.conversation, fact)
                del self._interrupted[0]
                self.steps.forget_recorded_change(fact)
                await self.save_open_steps()

    async def check_for_changes(
        self, *, thorough: bool = False, ended: OpenStep | None = None
    ) -> None:
        """Check for changes. `thorough`: check every file. `ended`: a step whose files
        are read again.
        """
        if not self.is_undo_available:
            return
        async with self._lock:
            try:
                if ended is not None:
                    self.folders.distrust_times(ended.met, ended.begun)
                await self._check_folders(thorough=thorough or self.latest_checkpoint is None)
            except StoreFailed as error:  # The files are checked again before the next step.
                self.folders.watch.is_in_doubt = True
                self._notify_progress(CheckpointProgress("failed", why=str(error)))

    async def apply_coverage(self, coverage: CheckpointCoverage) -> None:
        """Apply new coverage rules and read all folders again."""
        async with self._lock:
            self.folders.use_coverage(coverage)
            self.latest_checkpoint = None
            self._notify_progress(CheckpointProgress("off" if coverage.off else "waiting"))
        await self.ensure_first_check()

    async def begin_step(
        self,
        call: str,
        conversation: str,
        by: str,
        size: int = 0,
        only: Sequence[str] | None = None,
    ) -> OpenStep | None:
        """Begin a step. Changes made before it are not credited to it. `size`: how many
        bytes it will write, if known. `only`: the paths that it will change, if known.
        """
        await self.ensure_first_check()
        await self.check_for_changes()
        if self.progress.state == "failed":
            raise StoreFailed(
                f"The state of the folder could not be saved, so it won't be possible to undo these changes: {self.progress.why}",
                remedy="Nothing was run. Free up space on the disk and try again.",
            )
        if self.latest_checkpoint is None or not self.is_ready or self.folders.is_any_root_missing:
            return None
        held = None
        if self._stores is not None:
            held = await asyncio.to_thread(hold_disk_space, self._stores, HELD_SPACE + size)
        left_out = self.folders.paths_uncovered_by_limits()
        step = OpenStep(
            call, conversation, by, self.steps.checks, self.latest_checkpoint, left_out, only
        )
        step.held_space = held
        self.steps.open.append(step)
        await self.save_open_steps()
        return step

    async def end_step(self, window: OpenStep, *, thorough: bool = False) -> FilesChanged | None:
        """Return the step's changes so far as a fact, if any. If this fails, the step
        stays open, with its changes.
        """
        async with window.ending:
            return await self._end_step(window, thorough=thorough)

    async def _end_step(self, window: OpenStep, *, thorough: bool) -> FilesChanged | None:
        is_told = False  # False if the step is recorded later, once the disk has space again.
        try:
            await self._check_after_step(window, thorough=thorough)
            if self.progress.state == "failed":
                return None
            fact = None
            if self.is_ready and self.latest_checkpoint is not None:
                fact = await self._build_fact_of_step(window, self.latest_checkpoint)
            is_told = True
            return fact
        finally:
            if is_told and not window.goes_on:
                self.steps.close_open_step(window)
            await self.save_open_steps()

    async def _check_after_step(self, window: OpenStep, *, thorough: bool) -> None:
        window.release_space()
        self.folders.restore_permissions_of_roots()
        is_short = self.folders.full_walk_seconds < SHORT
        # A tool says what it writes, but a command may write anywhere.
        if window.changed_by != "tool" and is_short:
            thorough = True
        ended = None if window.goes_on else window
        await self.check_for_changes(thorough=thorough, ended=ended)

    async def _build_fact_of_step(self, window: OpenStep, after: Digest) -> FilesChanged | None:
        changes = self._claim_changes(self.steps, window)
        until = self.steps.checks
        uncovered = self.folders.paths_uncovered_by_limits()
        newly_left_out: Sequence[str] = ()
        if window.only is None:
            newly_left_out = sorted(uncovered - window.left_out)
        fact = await self.build_change_fact(
            changes,
            window.checkpoint,
            after,
            call=window.call,
            by=window.changed_by,
            left_out=newly_left_out,
        )
        if fact is not None:
            self.steps.unrecorded.append((replace(window, only=()), fact))
        window.claimed = ()
        window.since_check = until
        window.checkpoint = after
        window.left_out = uncovered
        return fact

    def _claim_changes(self, steps: OpenSteps, step: OpenStep) -> Sequence[PathChange]:
        only = None
        if step.only is not None:
            only = {self.checkpoint_path(place) for place in step.only}
        until = maxsize
        if step.changed_by == "background":
            until = steps.first_check_of_calls()
        claimed = list(step.claimed)
        claimed += steps.claim_unowned_changes(step.since_check, only, until)
        step.claimed, _ = folder_state.merge_changes_and_find_paths_changed_by_others(claimed)
        return step.claimed

    async def save_open_steps(self) -> None:
        """Save whose changes are to be recorded if the program is killed."""
        if self._steps_file is None or self.latest_checkpoint is None:
            return
        async with self._saving_steps:
            content = interrupted_steps.encode_steps(
                self.steps, self.latest_checkpoint, f"{self.roots} {self.folders.coverage}"
            )
            await asyncio.to_thread(interrupted_steps.write_steps_file, self._steps_file, content)
        if self._beat is None:
            self._show_that_steps_run()

    def _show_that_steps_run(self) -> None:
        """Set the time of the file while a step runs, so that what users do after a
        kill is not taken for the step's.
        """
        self._beat = None
        is_any_running = any(not step.is_between_turns for step in self.steps.open)
        if self._steps_file is not None and is_any_running:
            with suppress(OSError):
                os.utime(self._steps_file)
            self._beat = asyncio.get_running_loop().call_later(
                interrupted_steps.BEAT, self._show_that_steps_run
            )

    async def record_end_of_step(self, step: OpenStep) -> None:
        """Record what a command in the background changed, which may have ended between
        two turns.
        """
        fact = await self.end_step(step)
        if fact is not None and self.record_changes is not None:
            with suppress(HelixError):  # Otherwise, the next start records it.
                await self.record_changes(step.conversation, fact)
                self.steps.forget_recorded_change(fact)

    async def build_change_fact(
        self,
        changes: Sequence[PathChange],
        before: Digest,
        after: Digest,
        *,
        call: str = "",
        by: str = "command",
        left_out: Sequence[str] = (),
    ) -> FilesChanged | None:
        """Return the fact of these changes, with all contents stored, or None if
        nothing changed or is newly left out.
        """
        if not changes and not left_out:
            return None
        # People count files.
        counted = [change for change in changes if not folder_state.is_change_of_folder(change)]
        added, removed = await self._count_added_and_removed(counted)
        (difference,) = await self.contents.store_many(
            [(folder_state.encode_difference(changes, before), ABOUT)]
        )
        names = tuple(self.displayed_path(change.path) for change in counted[:MOST_NAMES])
        left = tuple(map(self.displayed_path, left_out[:MOST_NAMES]))
        return FilesChanged(
            difference,
            before,
            after,
            len(counted),
            added,
            removed,
            call,
            by,
            names=names,
            left_out=left,
        )

    async def aclose(self) -> None:
        """Save the stamps for the next start."""
        async with self._lock:
            self.folders.watch.close()
            await self._save_known_state()
        if self._beat is not None:
            self._beat.cancel()
        await self.save_open_steps()

    async def _check_folders(self, *, thorough: bool) -> None:
        if self.latest_checkpoint is None:
            self.folders.remember_permissions_of_roots()
            await self._read_known_state()
            self._notify_progress(replace(self.progress, state="reading"))
        found = await asyncio.to_thread(self.folders.walk_folders, thorough)
        try:
            if not self.is_ready:
                self.leftovers = found.leftovers
            await self._store_wanted_contents(found)
        finally:
            folder_walk.restore_folder_modes(found.opened)
        changes = self.folders.adopt_walk_result(found)
        self.steps.record_check(found.folders, changes)
        await self._store_checkpoint(changes)
        if self._interrupted is None:
            self._interrupted = await self._find_interrupted_changes()
            self.steps.unrecorded += self._interrupted
        if not self.is_ready:
            self._notify_progress(CheckpointProgress("ready"))
            await self._save_known_state()

    async def _find_interrupted_changes(self) -> list[tuple[OpenStep, FilesChanged]]:
        """Return what a killed program has changed and not recorded."""
        if self._steps_file is None or self.latest_checkpoint is None:
            return []
        made_for = f"{self.roots} {self.folders.coverage}"
        left = await asyncio.to_thread(
            interrupted_steps.read_interrupted_steps, self._steps_file, made_for
        )
        if left is None:
            return []
        interrupted = []
        # Contents may have been removed, after another program had the workspace.
        with suppress(HelixError):
            before = await self.read_checkpoint_state(left.latest)
            now = self.folders.known_items()
            changes = interrupted_steps.changes_before_kill(
                folder_state.compare_trees(before, now), self.roots, left.alive_ns
            )
            left.steps.record_check((), await asyncio.to_thread(list, changes))
            # Those that know their paths come first.
            for step in sorted(left.steps.open, key=lambda step: step.only is None):
                claimed = self._claim_changes(left.steps, step)
                fact = await self.build_change_fact(
                    claimed,
                    step.checkpoint,
                    self.latest_checkpoint,
                    call=step.call,
                    by=step.changed_by,
                )
                if fact is not None:
                    interrupted.append((step, fact))
                self._remove_half_written_files(step, before, now)
        return interrupted

    def _remove_half_written_files(self, step: OpenStep, before: Tree, now: Tree) -> None:
        for place in step.only or ():
            path = self.checkpoint_path(place)
            for beside in interrupted_steps.find_half_written_files(path, before, now):
                folder_path, _, name = beside.rpartition("/")
                with suppress(OSError), self.reader.open_folder(folder_path) as folder:
                    os.unlink(name, dir_fd=folder)

    async def _read_known_state(self) -> None:
        """Read the state saved at the program's end, as far as its contents are still stored."""
        if self._file is None:
            return
        roots = tuple(map(str, self.roots))
        kept = await asyncio.to_thread(
            kept_known.read_known_state, self._file, roots, self.folders.coverage
        )
        if kept is None:
            return
        digests = {digest for _, _, digest in _iterate_file_records(kept.known)}
        digests.add(kept.checkpoint)
        missing = set(await self.contents.find_missing_content(list(digests)))
        if kept.checkpoint in missing:
            return
        for folder, name, digest in list(_iterate_file_records(kept.known)):
            if digest in missing:  # The next check reads the file again.
                names = kept.known[folder]
                names[name] = folder_walk.UNRELIABLE_STAMP + names[name][STAMP.size :]
        self.folders.adopt_saved_records(kept.known)
        self.latest_checkpoint = kept.checkpoint
        self._chain = kept.chain

    async def _store_wanted_contents(self, found: WalkResult) -> None:
        done = 0
        wanted = {file.path: file for file in found.wanted}
        async for batch in content_storing.store_wanted_files(
            self.contents, self.reader, found.wanted
        ):
            for stored in batch:
                self._note_stored_file(found, wanted[stored.path], stored)
            done += len(batch)
            if not self.is_ready:
                self._notify_progress(CheckpointProgress("reading", done, len(found.wanted)))

    def _note_stored_file(
        self, found: WalkResult, wanted: WantedFile, stored: WantedFileRecord
    ) -> None:
        folder, _, name = stored.path.rpartition("/")
        names = found.folders[folder]
        if names is None:
            return
        if stored.record:
            names[name] = stored.record
        elif stored.reason_unread:
            folder_walk.leave_out_file(
                found, self.folders.records, wanted, names, stored.reason_unread
            )
        else:
            names.pop(name, None)
        if stored.keeps_changing:
            uncovered = UncoveredPath(stored.path, "changed while it was read")
            found.uncovered.setdefault(folder, []).append(uncovered)

    async def _store_checkpoint(self, changes: Sequence[PathChange]) -> None:
        """Store the state as a difference, or as a full list if there is none yet or the
        chain is long.
        """
        if self.latest_checkpoint is None:
            await self._store_full_list()
            return
        if not changes:
            return
        chain = self._chain
        is_long = chain.difference_count >= folder_state.LONGEST_CHAIN
        if is_long or chain.difference_bytes > ROOM * chain.list_bytes:
            await self._store_full_list()
            return
        difference = folder_state.encode_difference(changes, self.latest_checkpoint)
        (stored,) = await self.contents.store_many([(difference, ABOUT)])
        self.latest_checkpoint = stored.digest
        self._chain = replace(
            chain,
            difference_bytes=chain.difference_bytes + stored.size,
            difference_count=chain.difference_count + 1,
        )

    async def _store_full_list(self) -> None:
        content = await asyncio.to_thread(_encode_full_list, self.folders.records)
        self.latest_checkpoint = (await self.contents.store_content(content, ABOUT)).digest
        self._chain = CheckpointChain(list_bytes=max(len(content), 1 << 16))

    async def read_checkpoint_state(self, digest: Digest) -> dict[str, TreeItem]:
        waiting = [digest]
        contents: list[bytes] = []
        while waiting:
            content = await self.contents.read_content(waiting.pop())
            contents.append(content)
            waiting += folder_state.entries_to_read_first(content)
        contents.reverse()
        return await asyncio.to_thread(folder_state.build_tree, contents)

    async def read_item_content(self, item: TreeItem | None) -> bytes:
        """Return a file's content, a link's target, or nothing for other items."""
        if item is not None and item.kind is PathKind.TWIN:
            path = item.content.decode("utf-8", "surrogateescape")
            leader = self.folders.last_item_at(path)
            is_file = leader is not None and leader.kind is PathKind.FILE
            item = leader if is_file else None
        if item is None:
            return b""
        if item.kind is PathKind.LINK:
            return item.content
        if item.kind is PathKind.FILE:
            return await self.contents.read_content(Digest(item.content))
        return b""

    async def _count_added_and_removed(self, changes: Sequence[PathChange]) -> tuple[int, int]:
        """Count the lines that were added and removed, unless that is too much work."""
        size = 0
        for change in changes:
            size += max(item.size for item in (change.before, change.after) if item is not None)
        if size > COUNTED:
            return 0, 0
        added = 0
        removed = 0
        for change in changes:
            with suppress(HelixError):
                before = await self.read_item_content(change.before)
                after = await self.read_item_content(change.after)
                lines_added, lines_removed = await asyncio.to_thread(
                    diff_hunks.count_added_and_removed_lines, before, after
                )
                added += lines_added
                removed += lines_removed
        return added, removed

    def _notify_progress(self, progress: CheckpointProgress) -> None:
        self.progress = progress
        for listener in tuple(self.listeners):
            listener(progress)

    async def _save_known_state(self) -> None:
        checkpoint = self.latest_checkpoint
        if self._file is None or checkpoint is None or checkpoint == self._saved:
            return
        kept = kept_known.KnownFolderState(self.folders.records, checkpoint, self._chain)
        roots = tuple(map(str, self.roots))
        with suppress(StoreFailed):
            await asyncio.to_thread(
                kept_known.write_known_state, self._file, kept, roots, self.folders.coverage
            )
            self._saved = checkpoint


def _iterate_file_records(known: KnownRecords) -> Iterator[tuple[str, str, Digest]]:
    """Yield the folder, the name and the content of each file."""
    for folder, names in known.items():
        for name, record in names.items():
            if folder_walk.is_record_of_kind(record, PathKind.FILE):
                yield folder, name, Digest(record[-32:])


def _encode_full_list(known: KnownRecords) -> bytes:
    items = folder_walk.iterate_packed_items(known)
    return b"".join(folder_state.encode_manifest(items))
