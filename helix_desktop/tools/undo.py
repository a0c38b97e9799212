"""A rewind puts files back: by checkpoints where there are any, else each change of a file tool by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.story import How, Planned, undone
from helix_desktop.engine.collaborators import Restored
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FileChanged, FilesChanged, Recorded, ToolReturned
from helix_desktop.engine.ports import Cache
from helix_desktop.errors import HelixError, Refused
from helix_desktop.tools import confine
from helix_desktop.tools.changes import restore
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.confine import Roots
from helix_desktop.tools.files import Change, write
from helix_desktop.tools.tool import Around


async def restored(facts: Sequence[Recorded], around: Around) -> Restored:
    """Put the files back as they were before these facts, a sentence for each. What somebody else has changed is left alone."""
    noted = [r.fact for r in facts if isinstance(r.fact, FilesChanged)]
    known = {fact.call for fact in noted}
    bare = [
        change
        for r in facts
        if isinstance(r.fact, ToolReturned) and r.fact.call not in known
        for change in r.fact.changes
    ]
    said = await undo_changes(bare, around.roots.unhidden, around.cache)
    checkpoints = around.checkpoints
    if checkpoints is None or not noted:
        return Restored(said)
    differences = [tree.read_difference(await around.cache.get(fact.difference.digest)) for fact in noted]
    changes, broken = tree.joined(change for difference in differences for change in difference)
    planned = await restore.plan(checkpoints, changes, broken)
    done = await restore.put_back(checkpoints, restore.steps(planned))
    undoes = undone(facts, facts[0].conversation)
    fact = None if done.fact is None else replace(done.fact, undoes=undoes)
    return Restored((*said, *_said(checkpoints, planned, done)), fact)


def _said(checkpoints: Checkpoints, planned: Sequence[Planned], done: restore.Done) -> Iterator[str]:
    for one in planned:
        if one.how is How.CONFLICT:
            yield f"{checkpoints.place(one.path)} was not changed: it was changed in the meantime."
    for path, why in done.left:
        yield f"{checkpoints.place(path)} was not changed: {why}."
    gone = {one.path for one in planned if one.before is None}
    for path in done.restored:
        yield f"{checkpoints.place(path)} was {'deleted again' if path in gone else 'restored'}."


async def undo_changes(changes: Sequence[FileChanged], roots: Roots, cache: Cache) -> tuple[str, ...]:
    """Put the files back as they were before the first of `changes` (given in the order they happened).

    Returns a sentence for each file. A file that somebody else has changed since is left alone, and that is said.
    """
    return tuple([await _undone(change, roots, cache) for change in reversed(joined(changes))])


def joined(changes: Sequence[FileChanged]) -> list[FileChanged]:
    """Several changes of one file as one, from before the first to after the last; what came to nothing is left out."""
    by_path: dict[str, FileChanged] = {}
    for change in changes:
        first = by_path.pop(change.path, change)
        by_path[change.path] = FileChanged(change.path, first.before, change.after)
    return [change for change in by_path.values() if change.before != change.after]


async def _undone(change: FileChanged, roots: Roots, cache: Cache) -> str:
    name = Path(change.path).name
    try:
        place = roots.place(change.path)
        name = roots.shown(place)
        now = await asyncio.to_thread(confine.content_or_none, roots, place)
        digest = None if now is None else Digest.of(now)
        if digest == change.before:
            return f"{name} was already unchanged."
        if digest != change.after:
            raise Refused("it was changed in the meantime")
        before = None if change.before is None else await cache.get(change.before)
        await asyncio.to_thread(write, roots, Change(place, now, before))
    except HelixError as error:
        return f"{name} was not changed: {error}"
    return f"{name} was deleted again." if change.before is None else f"{name} was restored."
