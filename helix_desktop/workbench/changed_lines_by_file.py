"""Joins the changes of several steps by file, without lines that others changed, and
counts lines.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace

from helix_desktop.engine.changes import diff_hunks, folder_state, turn_changes
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    UndoOutlook,
)
from helix_desktop.engine.ports import ContentCache
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.checkpoints import Checkpoints

COUNTED = 20_000  # The maximum number of line counts of changed files that stay in memory.
Difference = tuple[ChangeSource, Sequence[PathChange]]
_LARGE = 16 << 20  # Lines are counted for files of a list up to this many bytes together.


@dataclass(slots=True)
class _OwnChangesSoFar:
    """What steps did to each path, without the lines of others. `change_by_path`: from before the
    first step to behind the last one. `without_foreign`: the paths of which such lines were left
    out. `hidden_up_to`: by path, the number of the undo that left nothing.
    """

    change_by_path: dict[str, PathChange] = field(default_factory=dict)
    without_foreign: set[str] = field(default_factory=set)
    hidden_up_to: dict[str, int] = field(default_factory=dict)


class StepDifferences:
    """For one workspace. `checkpoints` raises NotFound if it has no folder."""

    def __init__(self, cache: ContentCache, checkpoints: Callable[[], Checkpoints]) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._counts: dict[tuple[bytes, ...], tuple[int, int]] = {}

    async def read_changes_of_step(self, source: ChangeSource) -> Sequence[PathChange]:
        return folder_state.decode_difference(
            await self._cache.read_content(source.fact.difference.digest)
        )

    async def without_foreign_lines(
        self, differences: Sequence[Difference]
    ) -> Sequence[Difference]:
        """Recompute an undo, and what follows it, without lines of others, which would
        be shown as the agent's. An undo that left nothing of the agent's work is not
        listed, and neither is what it undid.
        """
        so_far = _OwnChangesSoFar()
        own_differences: list[tuple[ChangeSource, list[PathChange]]] = []
        for number, (source, changes) in enumerate(differences):
            own_changes: list[PathChange] = []
            for change in changes:
                own_change = await self._own_part_of_change(so_far, number, source, change)
                if own_change is not None:
                    own_changes.append(own_change)
            own_differences.append((source, own_changes))
        visible_differences: list[Difference] = []
        for number, (source, own_changes) in enumerate(own_differences):
            visible_changes: list[PathChange] = []
            for own_change in own_changes:
                last_hidden = so_far.hidden_up_to.get(own_change.path, -1)
                if number > last_hidden:
                    visible_changes.append(own_change)
            visible_differences.append((source, visible_changes))
        return visible_differences

    async def _own_part_of_change(
        self, so_far: "_OwnChangesSoFar", number: int, source: ChangeSource, change: PathChange
    ) -> PathChange | None:
        """Return a change without the lines of others, or None for an undo that left nothing of the
        agent's work.
        """
        path = change.path
        earlier_change = so_far.change_by_path.get(path)
        if earlier_change is None:
            so_far.change_by_path[path] = change
            return change
        is_undo = source.fact.by == "undo"
        own_item = None
        if is_undo or path in so_far.without_foreign:
            own_item = await self._item_without_foreign_lines(earlier_change, change)
        if own_item is None:
            so_far.change_by_path[path] = PathChange(path, earlier_change.before, change.after)
            return change
        first_item = earlier_change.before
        if is_undo and first_item is not None and own_item.content == first_item.content:
            so_far.hidden_up_to[path] = number
            del so_far.change_by_path[path]
            so_far.without_foreign.discard(path)
            return None
        so_far.without_foreign.add(path)
        so_far.change_by_path[path] = PathChange(path, first_item, own_item)
        return PathChange(path, earlier_change.after, own_item)

    async def _item_without_foreign_lines(
        self, earlier_change: PathChange, change: PathChange
    ) -> TreeItem | None:
        """Return the file as this change alone leaves it. None if no one else's part
        can be left out.
        """
        if earlier_change.after == change.before:
            return None
        # Others changed the file between the two: what they did is undone in the result.
        backwards = PlannedUndo(
            change.path,
            change.after,
            change.before,
            earlier_change.after,
            UndoOutlook.CONFLICT,
        )
        return await change_restoring.merge_with_other_changes(self._checkpoints(), backwards)

    def join_differences(
        self,
        differences: Sequence[Difference],
        shown: Callable[[Sequence[PathChange]], Sequence[PathChange]],
    ) -> list[FileChange]:
        """Return one change for each file. `shown` chooses which of the merged changes are shown."""
        sources_by_path: dict[str, list[ChangeSource]] = {}
        all_changes: list[PathChange] = []
        for source, changes in differences:
            for change in changes:
                sources_by_path.setdefault(change.path, []).append(source)
                all_changes.append(change)
        merged_changes, paths_changed_by_others = (
            folder_state.merge_changes_and_find_paths_changed_by_others(all_changes)
        )
        file_changes: list[FileChange] = []
        for change in shown(merged_changes):
            is_broken = change.path in paths_changed_by_others
            sources = sources_by_path[change.path]
            file_changes.append(self.build_file_change(change, sources, is_broken))
        return file_changes

    def build_file_change(
        self,
        change: PathChange,
        sources: Sequence[ChangeSource],
        broken: bool,  # noqa: FBT001 -- one of three
    ) -> FileChange:
        """Return a change as the user sees it: with its path on the disk, and who
        changed it last.
        """
        changed_by = ""
        step = 0
        if sources:
            sources_of_agent = list(turn_changes.without_user_undos(sources))
            last_source = sources[0]
            if sources_of_agent:
                last_source = sources_of_agent[-1]
            changed_by = last_source.what or last_source.fact.by
            # An undo may have taken back this step's lines and left those of others.
            if len(sources_of_agent) == len(sources):
                step = last_source.step
        shown_path = self._checkpoints().displayed_path(change.path)
        return FileChange(
            change, shown_path, by=changed_by, step=step, broken=broken, sources=tuple(sources)
        )

    async def with_line_counts(self, files: Sequence[FileChange]) -> Sequence[FileChange]:
        """Add how many lines were added and removed, if that is quick to count, and
        which files were renamed.
        """
        bytes_left_to_count = _LARGE
        counted_files: list[FileChange] = []
        for file in files:
            counted_file = file
            for item in (file.change.before, file.change.after):
                if item is not None:
                    bytes_left_to_count -= item.size
            if bytes_left_to_count > 0:
                # A file that cannot be read is listed without its counts.
                with suppress(HelixError):
                    added, removed = await self._count_changed_lines(file)
                    counted_file = replace(file, added=added, removed=removed)
            counted_files.append(counted_file)
        return turn_changes.mark_renames(counted_files)

    async def _count_changed_lines(self, file: FileChange) -> tuple[int, int]:
        """Count the added and removed lines. The result for two contents never changes,
        so it is kept.
        """
        digests: list[bytes] = []
        are_plain_files = True
        for item in (file.change.before, file.change.after):
            if item is None:
                digests.append(b"")
                continue
            digests.append(item.content)
            if item.kind is not PathKind.FILE:
                are_plain_files = False
        key = tuple(digests)
        if are_plain_files and key in self._counts:
            return self._counts[key]

        before, after = await self.read_both_versions(file)
        counted = await asyncio.to_thread(diff_hunks.count_added_and_removed_lines, before, after)
        if are_plain_files:
            self._counts[key] = counted
            if len(self._counts) > COUNTED:
                oldest_key = next(iter(self._counts))
                del self._counts[oldest_key]
        return counted

    async def read_both_versions(self, file: FileChange) -> tuple[bytes, bytes]:
        before = await self._checkpoints().read_item_content(file.change.before)
        return before, await self._checkpoints().read_item_content(file.change.after)
