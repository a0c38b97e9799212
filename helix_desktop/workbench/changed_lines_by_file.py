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
    """What steps did to each path, without the lines of others. `without_foreign`: the paths of
    which such lines were left out. `hidden_up_to`: by path, the number of the undo that left
    nothing.
    """

    whole: dict[str, PathChange] = field(default_factory=dict)
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
        shown: list[tuple[ChangeSource, list[PathChange]]] = []
        for number, (source, changes) in enumerate(differences):
            own_changes: list[PathChange] = []
            for change in changes:
                own = await self._own_part_of_change(so_far, number, source, change)
                if own is not None:
                    own_changes.append(own)
            shown.append((source, own_changes))
        listed: list[Difference] = []
        for number, (source, own_changes) in enumerate(shown):
            hidden_up_to = so_far.hidden_up_to
            visible = [own for own in own_changes if number > hidden_up_to.get(own.path, -1)]
            listed.append((source, visible))
        return listed

    async def _own_part_of_change(
        self, so_far: "_OwnChangesSoFar", number: int, source: ChangeSource, change: PathChange
    ) -> PathChange | None:
        """Return a change without the lines of others, or None for an undo that left nothing of the
        agent's work.
        """
        path = change.path
        before = so_far.whole.get(path)
        if before is None:
            so_far.whole[path] = change
            return change
        is_undo = source.fact.by == "undo"
        rest = None
        if is_undo or path in so_far.without_foreign:
            rest = await self._item_without_foreign_lines(before, change)
        own_change = change
        if rest is not None:
            own_change = PathChange(path, before.after, rest)
            so_far.without_foreign.add(path)
            began = before.before
            if is_undo and began is not None and rest.content == began.content:
                so_far.hidden_up_to[path] = number
                del so_far.whole[path]
                so_far.without_foreign.remove(path)
                return None
        so_far.whole[path] = PathChange(path, before.before, own_change.after)
        return own_change

    async def _item_without_foreign_lines(
        self, whole: PathChange, change: PathChange
    ) -> TreeItem | None:
        """Return the file as this change alone leaves it. None if no one else's part
        can be left out.
        """
        if whole.after == change.before:
            return None
        backwards = PlannedUndo(
            change.path, change.after, change.before, whole.after, UndoOutlook.CONFLICT
        )
        return await change_restoring.merge_with_other_changes(self._checkpoints(), backwards)

    def join_differences(
        self,
        differences: Sequence[Difference],
        shown: Callable[[Sequence[PathChange]], Sequence[PathChange]],
    ) -> list[FileChange]:
        by_path: dict[str, list[ChangeSource]] = {}
        for source, changes in differences:
            for change in changes:
                by_path.setdefault(change.path, []).append(source)
        whole, broken = folder_state.merge_changes_and_find_paths_changed_by_others(
            change for _, changes in differences for change in changes
        )
        return [
            self.build_file_change(change, by_path[change.path], change.path in broken)
            for change in shown(whole)
        ]

    def build_file_change(
        self,
        change: PathChange,
        sources: Sequence[ChangeSource],
        broken: bool,  # noqa: FBT001 -- one of three
    ) -> FileChange:
        what = ""
        step = 0
        if sources:
            by_agent = list(turn_changes.without_user_undos(sources))
            last = by_agent[-1] if by_agent else sources[0]
            what = last.what or last.fact.by
            step = last.step
        place = self._checkpoints().displayed_path(change.path)
        return FileChange(change, place, by=what, step=step, broken=broken, sources=tuple(sources))

    async def with_line_counts(self, files: Sequence[FileChange]) -> Sequence[FileChange]:
        """Add how many lines were added and removed, if that is quick to count, and
        which files were renamed.
        """
        left = _LARGE
        found = []
        for file in files:
            left -= sum(
                item.size for item in (file.change.before, file.change.after) if item is not None
            )
            if left > 0:
                with suppress(HelixError):
                    added, removed = await self._count_changed_lines(file)
                    file = replace(file, added=added, removed=removed)  # noqa: PLW2901 -- the same with its counts
            found.append(file)
        return turn_changes.mark_renames(found)

    async def _count_changed_lines(self, file: FileChange) -> tuple[int, int]:
        """Count the added and removed lines. The result for two contents never changes,
        so it is kept.
        """
        items = (file.change.before, file.change.after)
        is_counted_by_content = all(item is None or item.kind is PathKind.FILE for item in items)
        key = tuple(b"" if item is None else item.content for item in items)
        if is_counted_by_content and key in self._counts:
            return self._counts[key]
        before, after = await self.read_both_versions(file)
        counted = await asyncio.to_thread(diff_hunks.count_added_and_removed_lines, before, after)
        if is_counted_by_content:
            self._counts[key] = counted
            if len(self._counts) > COUNTED:
                self._counts.pop(next(iter(self._counts)))
        return counted

    async def read_both_versions(self, file: FileChange) -> tuple[bytes, bytes]:
        before = await self._checkpoints().read_item_content(file.change.before)
        return before, await self._checkpoints().read_item_content(file.change.after)
