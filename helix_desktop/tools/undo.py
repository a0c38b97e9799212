"""Undoing what tools did to files: each change put back, if the file still is what the change left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FileChanged
from helix_desktop.engine.ports import Cache
from helix_desktop.errors import HelixError, Refused
from helix_desktop.tools import confine, difference
from helix_desktop.tools.confine import Roots
from helix_desktop.tools.files import Change, write
from helix_desktop.tools.texts import decoded


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
            return f"{name} is as it was already."
        if digest != change.after:
            raise Refused("it was changed by somebody else meanwhile")
        before = None if change.before is None else await cache.get(change.before)
        await asyncio.to_thread(write, roots, Change(place, now, before))
    except HelixError as error:
        return f"{name} was left as it is: {error}"
    return f"{name} was deleted again." if change.before is None else f"{name} was put back."


async def diff_of(change: FileChanged, cache: Cache, name: str) -> str:
    """The change as a unified diff, for showing it."""
    before, after = [b"" if digest is None else await cache.get(digest) for digest in (change.before, change.after)]
    return await asyncio.to_thread(difference.unified, decoded(before), decoded(after), name)
