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
from typing import IO

from helix_desktop.cancellation import end_if_cancelled
from helix_desktop.engine.changes import diff_hunks, folder_state
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, Tree, TreeItem
from helix_desktop.engine.changes.turn_changes import UncoveredPath
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes import (
    content_storing,
    folder_walk,
    interrupted_steps,
    known_state_file,
)
from helix_desktop.tools.changes.change_attribution import OpenStep, OpenSteps, PathsOfTool
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

# The changed lines of a step with more bytes than this are not counted.
MOST_COUNTED_BYTES = 16 << 20
# So many bytes on the stores' disk are held while a step runs, to record it with.
HELD_SPACE_BYTES = 4 << 20
# A new full list is stored once the differences take more than this many times the
# space of the last one.
MOST_DIFFERENCES_PER_LIST = 2
MOST_NAMES = 5
DEFAULT_COVERAGE = CheckpointCoverage()
# If checking all files takes fewer seconds than this, all are checked after every
# command.
SHORT_CHECK_SECONDS = 0.25


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
        """`contents`: where files' contents are stored. `coverage`: which files are left out.
        `closed`: folders that are never entered.
        """
        self.roots = tuple(roots)
        self.contents = contents
        self.reader = RootFileOpener(self.roots)
        self.folders = KnownFolders(self.roots, coverage, closed)
        self.progress = _progress_before_first_check(coverage)
        self.listeners: list[Callable[[CheckpointProgress], object]] = []
        self._file = file
        self._stores = stores
        self._steps_file = steps_file
        self.latest_checkpoint: Digest | None = None  # The state of the files at the last check.
        # How many differences have followed the last full list of files.
        self._chain = CheckpointChain()
        self.steps = OpenSteps()
        self._lock = asyncio.Lock()  # Held while the files are checked.
        self._saved: Digest | None = None  # The checkpoint that is in `file`.
        self._saving_steps = asyncio.Lock()
        self._recording = asyncio.Lock()
        # Sets the time of the file of steps from time to time, while a step runs.
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

    def checkpoint_path(self, displayed_path: str | Path) -> str:
        """Convert a displayed path back to a checkpoint path. A path outside all roots
        is returned unchanged.
        """
        shown = Path(displayed_path)
        for number, root in enumerate(self.roots):
            if not shown.is_absolute() or not shown.is_relative_to(root):
                continue
            inside = shown.relative_to(root).as_posix()
            if inside == ".":
                return str(number)
            return f"{number}/{inside}"
        return f"0/{displayed_path}"

    async def ensure_first_check(self) -> None:
        """Check all files for the first time. Afterwards, `progress` says why if that
        was not possible.
        """
        if not self.is_ready:
            await self.check_for_changes(thorough=True)
        with suppress(HelixError):  # On a full disk, it is tried again before the next step.
            await self._record_interrupted_steps()

    async def _record_interrupted_steps(self) -> None:
        """Append what a killed program has changed to its conversations, step by step. A step leaves
        the file of steps only once its conversation has it.
        """
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
                is_first_check = self.latest_checkpoint is None
                await self._check_folders(thorough=thorough or is_first_check)
            except StoreFailed as error:  # The files are checked again before the next step.
                self.folders.watch.is_in_doubt = True
                self._notify_progress(CheckpointProgress("failed", why=str(error)))

    async def apply_coverage(self, coverage: CheckpointCoverage) -> None:
        """Apply new coverage rules and read all folders again."""
        async with self._lock:
            self.folders.use_coverage(coverage)
            self.latest_checkpoint = None
            self._notify_progress(_progress_before_first_check(coverage))
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
        held_space = None
        if self._stores is not None:
            holding = asyncio.to_thread(hold_disk_space, self._stores, HELD_SPACE_BYTES + size)
            held_space = await end_if_cancelled(holding, _release_held_space)
        left_out = self.folders.paths_uncovered_by_limits()
        step = OpenStep(
            call,
            conversation,
            by,
            self.steps.checks,
            self.latest_checkpoint,
            left_out,
            only,
        )
        step.held_space = held_space
        self.steps.open.append(step)
        try:
            await self.save_open_steps()
        except BaseException:
            step.release_space()  # The caller does not have the step.
            raise
        return step

    async def end_step(self, step: OpenStep, *, thorough: bool = False) -> FilesChanged | None:
        """Return the step's changes so far as a fact, if any. If this fails, the step
        stays open, with its changes.
        """
        async with step.ending:
            return await self._end_step(step, thorough=thorough)

    async def _end_step(self, step: OpenStep, *, thorough: bool) -> FilesChanged | None:
        """Check the files once more, and build the fact of what the step has changed. A step
        whose command goes on in the background stays open.
        """
        try:
            await self._check_after_step(step, thorough=thorough)
            if self.progress.state == "failed":
                # The step stays open, and is recorded once the disk has space again.
                return None
            fact = None
            if self.is_ready and self.latest_checkpoint is not None:
                fact = await self._build_fact_of_step(step, self.latest_checkpoint)
            if not step.goes_on:
                self.steps.close_open_step(step)
            return fact
        finally:
            await self.save_open_steps()

    async def _check_after_step(self, step: OpenStep, *, thorough: bool) -> None:
        """Find what has changed since the step began. All files are checked after a command, if
        that is quick.
        """
        step.release_space()
        self.folders.restore_permissions_of_roots()
        is_short = self.folders.full_walk_seconds < SHORT_CHECK_SECONDS
        # A tool says what it writes, but a command may write anywhere.
        if step.changed_by != "tool" and is_short:
            thorough = True
        ended_step = None
        if not step.goes_on:
            ended_step = step
        await self.check_for_changes(thorough=thorough, ended=ended_step)

    async def _build_fact_of_step(
        self, step: OpenStep, checkpoint_after: Digest
    ) -> FilesChanged | None:
        """Return the fact that says what a step changed up to this checkpoint, or None without a
        change. The step then begins anew here, so that the next fact says only what comes after.
        """
        changes = self._claim_changes(self.steps, step)
        last_check = self.steps.checks
        uncovered_paths = self.folders.paths_uncovered_by_limits()
        newly_left_out: Sequence[str] = ()
        if step.only is None:
            newly_left_out = sorted(uncovered_paths - step.left_out)
        fact = await self.build_change_fact(
            changes,
            step.checkpoint,
            checkpoint_after,
            call=step.call,
            by=step.changed_by,
            left_out=newly_left_out,
        )
        if fact is not None:
            self.steps.unrecorded.append((replace(step, only=()), fact))
        step.claimed = ()
        step.since_check = last_check
        step.checkpoint = checkpoint_after
        step.left_out = uncovered_paths
        return fact

    def _claim_changes(self, steps: OpenSteps, step: OpenStep) -> Sequence[PathChange]:
        """Return the step's changes, and take them from those that belong to no step yet. A
        command in the background gets only what changed before the calls that run now, and no
        command gets what the file tools change that run beside it.
        """
        only_paths = None
        tools: list[PathsOfTool] = []
        if step.only is not None:
            only_paths = {self.checkpoint_path(place) for place in step.only}
        else:
            tools = self._list_paths_of_tools(steps)
        last_check = maxsize
        if step.changed_by == "background":
            last_check = steps.first_check_of_calls()
        claimed = list(step.claimed)
        claimed += steps.claim_unowned_changes(step.since_check, only_paths, last_check, tools)
        step.claimed, _ = folder_state.merge_changes_and_find_paths_changed_by_others(claimed)
        return step.claimed

    def _list_paths_of_tools(self, steps: OpenSteps) -> list[PathsOfTool]:
        tools = []
        for step in steps.open:
            if step.only is not None:
                paths = {self.checkpoint_path(place) for place in step.only}
                tools.append(PathsOfTool(step.since_check, paths))
        return tools

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
                interrupted_steps.BEAT_SECONDS, self._show_that_steps_run
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
        changes_of_files: list[PathChange] = []
        for change in changes:
            if not folder_state.is_change_of_folder(change):
                changes_of_files.append(change)
        file_count = len(changes_of_files)
        added, removed = await self._count_added_and_removed(changes_of_files)
        encoded_difference = folder_state.encode_difference(changes, before)
        (difference,) = await self.contents.store_many([(encoded_difference, ABOUT)])
        names = [self.displayed_path(change.path) for change in changes_of_files[:MOST_NAMES]]
        left_out_names = [self.displayed_path(path) for path in left_out[:MOST_NAMES]]
        return FilesChanged(
            difference,
            before,
            after,
            file_count,
            added,
            removed,
            call,
            by,
            names=tuple(names),
            left_out=tuple(left_out_names),
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
        """Find what changed in the folders since the last check, store the new contents, and make
        a checkpoint of it. The first check reads what was known when the program ended.

        The open steps are told of the changes before the checkpoint is stored; last, once, come
        the changes of steps that the end of the program has interrupted.
        """
        if self.latest_checkpoint is None:
            self.folders.remember_permissions_of_roots()
            await self._read_known_state()
            self._notify_progress(replace(self.progress, state="reading"))
        walk_result = await asyncio.to_thread(self.folders.walk_folders, thorough)
        try:
            if not self.is_ready:
                self.leftovers = walk_result.leftovers
            await self._store_wanted_contents(walk_result)
        finally:
            folder_walk.restore_folder_modes(walk_result.opened)
        changes = self.folders.adopt_walk_result(walk_result)
        self.steps.record_check(walk_result.folders, changes)
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
        interrupted = await asyncio.to_thread(
            interrupted_steps.read_interrupted_steps, self._steps_file, made_for
        )
        if interrupted is None:
            return []
        interrupted_changes = []
        # Contents may have been removed, after another program had the workspace.
        with suppress(HelixError):
            tree_before = await self.read_checkpoint_state(interrupted.latest)
            tree_now = self.folders.known_items()
            all_changes = folder_state.compare_trees(tree_before, tree_now)
            changes_before_kill = interrupted_steps.changes_before_kill(
                all_changes, self.roots, interrupted.alive_ns
            )
            changes = await asyncio.to_thread(list, changes_before_kill)
            interrupted.steps.record_check((), changes)
            # Those that know their paths come first.
            steps = sorted(interrupted.steps.open, key=lambda step: step.only is None)
            for step in steps:
                fact = await self._build_fact_of_interrupted_step(
                    interrupted.steps, step, self.latest_checkpoint
                )
                if fact is not None:
                    interrupted_changes.append((step, fact))
                self._remove_half_written_files(step, tree_before, tree_now)
        return interrupted_changes

    async def _build_fact_of_interrupted_step(
        self, steps: OpenSteps, step: OpenStep, latest_checkpoint: Digest
    ) -> FilesChanged | None:
        claimed_changes = self._claim_changes(steps, step)
        return await self.build_change_fact(
            claimed_changes,
            step.checkpoint,
            latest_checkpoint,
            call=step.call,
            by=step.changed_by,
        )

    def _remove_half_written_files(self, step: OpenStep, tree_before: Tree, tree_now: Tree) -> None:
        for displayed_path in step.only or ():
            path = self.checkpoint_path(displayed_path)
            for half_written_path in interrupted_steps.find_half_written_files(
                path, tree_before, tree_now
            ):
                folder_path, _, name = half_written_path.rpartition("/")
                with suppress(OSError), self.reader.open_recorded_folder(folder_path) as folder:
                    os.unlink(name, dir_fd=folder)

    async def _read_known_state(self) -> None:
        """Read the state saved at the program's end, as far as its contents are still stored."""
        if self._file is None:
            return
        roots = tuple(map(str, self.roots))
        saved_state = await asyncio.to_thread(
            known_state_file.read_known_state, self._file, roots, self.folders.coverage
        )
        if saved_state is None:
            return
        digests = {digest for _, _, digest in _iterate_file_records(saved_state.known)}
        digests.add(saved_state.checkpoint)
        missing = await self.contents.find_missing_content(list(digests))
        if saved_state.checkpoint in missing:
            return
        for folder, name, digest in list(_iterate_file_records(saved_state.known)):
            if digest in missing:  # The next check reads the file again.
                names = saved_state.known[folder]
                names[name] = folder_walk.UNRELIABLE_STAMP + names[name][STAMP.size :]
        self.folders.adopt_saved_records(saved_state.known)
        self.latest_checkpoint = saved_state.checkpoint
        self._chain = saved_state.chain

    async def _store_wanted_contents(self, walk_result: WalkResult) -> None:
        """Read and store the files that are new or changed, and say after each batch how far it
        is.
        """
        stored_count = 0
        wanted_files = walk_result.wanted
        wanted_count = len(wanted_files)
        wanted_by_path = {file.path: file for file in wanted_files}
        batches = content_storing.store_wanted_files(self.contents, self.reader, wanted_files)
        async for batch in batches:
            for stored in batch:
                wanted_file = wanted_by_path[stored.path]
                self._note_stored_file(walk_result, wanted_file, stored)
            stored_count += len(batch)
            if not self.is_ready:
                progress = CheckpointProgress("reading", stored_count, wanted_count)
                self._notify_progress(progress)

    def _note_stored_file(
        self, walk_result: WalkResult, wanted_file: WantedFile, stored: WantedFileRecord
    ) -> None:
        """Note in the walk's records that a file's content was stored, or why it was not read, in
        which case it is left out of the checkpoint, or that it is gone.
        """
        folder, _, name = stored.path.rpartition("/")
        records = walk_result.folders[folder]
        if records is None:
            return
        if stored.record:
            records[name] = stored.record
        elif stored.reason_unread:
            folder_walk.leave_out_file(
                walk_result, self.folders.records, wanted_file, records, stored.reason_unread
            )
        else:
            records.pop(name, None)
        if stored.keeps_changing:
            uncovered = UncoveredPath(stored.path, "changed while it was read")
            walk_result.uncovered.setdefault(folder, []).append(uncovered)

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
        has_many_differences = chain.difference_count >= folder_state.LONGEST_CHAIN
        most_difference_bytes = MOST_DIFFERENCES_PER_LIST * chain.list_bytes
        if has_many_differences or chain.difference_bytes > most_difference_bytes:
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
        stored = await self.contents.store_content(content, ABOUT)
        self.latest_checkpoint = stored.digest
        list_bytes = max(len(content), 1 << 16)
        self._chain = CheckpointChain(list_bytes=list_bytes)

    async def read_checkpoint_state(self, digest: Digest) -> dict[str, TreeItem]:
        unread_entries = [digest]
        contents: list[bytes] = []
        while unread_entries:
            content = await self.contents.read_content(unread_entries.pop())
            contents.append(content)
            unread_entries += folder_state.entries_to_read_first(content)
        contents.reverse()
        return await asyncio.to_thread(folder_state.build_tree, contents)

    async def read_item_content(self, item: TreeItem | None) -> bytes:
        """Return a file's content, a link's target, or nothing for other items."""
        if item is not None and item.kind is PathKind.TWIN:
            return await self._read_content_of_hard_link(item)
        if item is None:
            return b""
        if item.kind is PathKind.LINK:
            return item.content
        if item.kind is PathKind.FILE:
            return await self.contents.read_content(Digest(item.content))
        return b""

    async def _read_content_of_hard_link(self, twin: TreeItem) -> bytes:
        """Return the content of the file of which this is another name."""
        path = twin.content.decode("utf-8", "surrogateescape")
        file = self.folders.last_item_at(path)
        if file is None or file.kind is not PathKind.FILE:
            return b""
        return await self.contents.read_content(Digest(file.content))

    async def _count_added_and_removed(self, changes: Sequence[PathChange]) -> tuple[int, int]:
        """Count the lines that were added and removed, unless that is too much work. A file
        whose content is missing counts nothing.
        """
        if _bytes_of_both_versions(changes) > MOST_COUNTED_BYTES:
            return 0, 0
        added = 0
        removed = 0
        for change in changes:
            with suppress(HelixError):
                content_before = await self.read_item_content(change.before)
                content_after = await self.read_item_content(change.after)
                lines_added, lines_removed = await asyncio.to_thread(
                    diff_hunks.count_added_and_removed_lines, content_before, content_after
                )
                added += lines_added
                removed += lines_removed
        return added, removed

    def _notify_progress(self, progress: CheckpointProgress) -> None:
        self.progress = progress
        for listener in tuple(self.listeners):
            listener(progress)

    async def _save_known_state(self) -> None:
        """Save what is known of the folders, so that the next start need not read all files
        again. If that fails, it will.
        """
        checkpoint = self.latest_checkpoint
        if self._file is None or checkpoint is None or checkpoint == self._saved:
            return
        state = known_state_file.KnownFolderState(self.folders.records, checkpoint, self._chain)
        roots = tuple(map(str, self.roots))
        with suppress(StoreFailed):
            await asyncio.to_thread(
                known_state_file.write_known_state, self._file, state, roots, self.folders.coverage
            )
            self._saved = checkpoint


def _progress_before_first_check(coverage: CheckpointCoverage) -> CheckpointProgress:
    if coverage.off:
        return CheckpointProgress("off")
    return CheckpointProgress("waiting")


def _bytes_of_both_versions(changes: Sequence[PathChange]) -> int:
    """Return how many bytes must be read to compare the changed files with what they were."""
    total_bytes = 0
    for change in changes:
        if change.before is not None:
            total_bytes += change.before.size
        if change.after is not None:
            total_bytes += change.after.size
    return total_bytes


def _iterate_file_records(known: KnownRecords) -> Iterator[tuple[str, str, Digest]]:
    """Yield the folder, the name and the content of each file."""
    for folder, names in known.items():
        for name, record in names.items():
            if folder_walk.is_record_of_kind(record, PathKind.FILE):
                yield folder, name, Digest(record[-32:])


def _encode_full_list(known: KnownRecords) -> bytes:
    items = folder_walk.iterate_packed_items(known)
    return b"".join(folder_state.encode_manifest(items))


async def _release_held_space(held_space: IO[bytes] | None) -> None:
    if held_space is not None:
        held_space.close()
