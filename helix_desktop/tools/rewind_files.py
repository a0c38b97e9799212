"""Restores files for a rewind, by checkpoints if there are any, else each change of a file tool."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from helix_desktop.engine.changes.folder_state import decode_difference, merge_changes_and_find_paths_changed_by_others
from helix_desktop.engine.changes.turn_changes import PlannedUndo, UndoOutlook, seqs_to_name_in_undo
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FileChanged, FilesChanged, Recorded, ToolReturned
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.session_setup import FileRestoration
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.tools.built_in_tool import WorkspaceResources
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.file_tools import FileEdit, write_edit
from helix_desktop.tools.workspace_roots import WorkspaceRoots, read_file_or_none


async def restore_files_to_before(facts: Sequence[Recorded], resources: WorkspaceResources) -> FileRestoration:
    """Restore files as before these facts, except what others changed. Says the outcome in sentences."""
    noted = [r.fact for r in facts if isinstance(r.fact, FilesChanged)]
    known = {fact.call for fact in noted}
    returned = (r.fact for r in facts if isinstance(r.fact, ToolReturned))
    bare = [change for fact in returned if fact.call not in known for change in fact.changes]
    said = await undo_tool_changes(bare, resources.roots.with_nothing_hidden, resources.cache)
    checkpoints = resources.checkpoints
    if checkpoints is None or not noted:
        return FileRestoration(said)
    differences = [decode_difference(await resources.cache.read_content(fact.difference.digest)) for fact in noted]
    changes, broken = merge_changes_and_find_paths_changed_by_others(
        change for difference in differences for change in difference
    )
    planned = await change_restoring.plan_undo_of_changes(checkpoints, changes, broken)
    done = await change_restoring.restore_paths(checkpoints, change_restoring.plan_restore_steps(planned))
    undoes = seqs_to_name_in_undo(facts, facts[0].conversation)
    fact = None if done.fact is None else replace(done.fact, undoes=undoes)
    return FileRestoration((*said, *_describe_restoration(checkpoints, planned, done)), fact)


def _describe_restoration(
    checkpoints: Checkpoints, planned: Sequence[PlannedUndo], done: change_restoring.RestoreResult
) -> Iterator[str]:
    for one in planned:
        if one.how is UndoOutlook.CONFLICT:
            yield f"{checkpoints.displayed_path(one.path)} was not changed: it was changed in the meantime."
    for path, why in done.paths_left_alone:
        yield f"{checkpoints.displayed_path(path)} was not changed: {why}."
    gone = {one.path for one in planned if one.before is None}
    for path in done.restored:
        yield f"{checkpoints.displayed_path(path)} was {'deleted again' if path in gone else 'restored'}."


async def undo_tool_changes(
    changes: Sequence[FileChanged], roots: WorkspaceRoots, cache: ContentCache
) -> tuple[str, ...]:
    """Undo these changes, with a sentence for each. What somebody else has changed since is left alone."""
    joined, broken = join_file_changes(changes)
    return tuple([await _undo_file_change(one, roots, cache, broken) for one in reversed(joined)])


def join_file_changes(changes: Sequence[FileChanged]) -> tuple[list[FileChanged], set[str]]:
    """Join each file's changes, unless they cancel out. Also return paths that others changed in between."""
    by_path: dict[str, FileChanged] = {}
    broken = set()
    for change in changes:
        held = by_path.pop(change.path, None)
        if held is not None and held.after != change.before:
            broken.add(change.path)
        by_path[change.path] = FileChanged(change.path, (held or change).before, change.after)
    return [change for change in by_path.values() if change.before != change.after], broken


async def _undo_file_change(change: FileChanged, roots: WorkspaceRoots, cache: ContentCache, broken: set[str]) -> str:
    name = Path(change.path).name
    try:
        place = roots.resolve_path(change.path)
        name = roots.display_path(place)
        now = await asyncio.to_thread(read_file_or_none, roots, place)
        digest = None if now is None else Digest.of_content(now)
        if digest == change.before:
            return f"{name} needed no change."
        if digest != change.after or change.path in broken:
            raise ActionRefused("it was changed in the meantime")
        before = None if change.before is None else await cache.read_content(change.before)
        await asyncio.to_thread(write_edit, roots, FileEdit(place, now, before))
    except HelixError as error:
        return f"{name} was not changed: {error}"
    return f"{name} was deleted, because it did not exist before." if change.before is None else f"{name} was restored."
