"""Joins the changes of several steps by file, without lines that others changed, and
counts lines.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

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
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.checkpoints import Checkpoints

COUNTED = 20_000  # The maximum number of line counts of changed files that stay in memory.
Difference = tuple[ChangeSource, Sequence[PathChange]]
_LARGE = 16 << 20  # Lines are counted for files of a list up to this many bytes together.


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
        whole: dict[str, PathChange] = {}
        # Paths that are shown without the lines that someone else changed.
        without_foreign: set[str] = set()
        hidden_up_to: dict[str, int] = {}  # By path: the number of the undo that left nothing.
        shown: list[tuple[ChangeSource, list[PathChange]]] = []
        for number, (source, changes) in enumerate(differences):
            own_changes: list[PathChange] = []
            shown.append((source, own_changes))
            for change in changes:
                path = change.path
                before = whole.get(path)
                if before is None:
                    whole[path] = change
                    own_changes.append(change)
                    continue
                is_undo = source.fact.by == "undo"
                rest = None
                if is_undo or path in without_foreign:
                    rest = await self._item_without_foreign_lines(before, change)
                own_change = change
                if rest is not None:
                    own_change = PathChange(path, before.after, rest)
                    without_foreign.add(path)
                    is_all_undone = (
                        is_undo
                        and before.before is not None
                        and rest.content == before.before.content
                    )
                    if is_all_undone:
                        hidden_up_to[path] = number
                        del whole[path]
                        without_foreign.remove(path)
                        continue
                whole[path] = PathChange(path, before.before, own_change.after)
                own_changes.append(own_change)
        listed: list[Difference] = []
        for number, (source, own_changes) in enumerate(shown):
            visible = [one for one in own_changes if number > hidden_up_to.get(one.path, -1)]
            listed.append((source, visible))
        return listed

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
        last = [*sources[:1], *turn_changes.without_user_undos(sources)][-1:]
        what, step = next(
            ((source.what or source.fact.by, source.step) for source in last), ("", 0)
        )
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
        items = file.change.before, file.change.after
        same = all(item is None or item.kind is PathKind.FILE for item in items)
        key = tuple(b"" if item is None else item.content for item in items)
        if not same or (counted := self._counts.get(key)) is None:
            counted = await asyncio.to_thread(
                diff_hunks.count_added_and_removed_lines, *await self.read_both_versions(file)
            )
        if same:
            self._counts[key] = counted
            if len(self._counts) > COUNTED:
                self._counts.pop(next(iter(self._counts)))
        return counted

    async def read_both_versions(self, file: FileChange) -> tuple[bytes, bytes]:
        before = await self._checkpoints().read_item_content(file.change.before)
        return before, await self._checkpoints().read_item_content(file.change.after)
