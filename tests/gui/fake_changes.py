"""Changes of files in memory; implements gui/changes_port.py. It starts without any: `fill` makes some."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix_desktop.engine.changes import hunks
from helix_desktop.engine.changes.patch import patch
from helix_desktop.engine.changes.story import FileChange, How, Left, Planned, Source, TurnOfChanges
from helix_desktop.engine.changes.tree import Change, Item, Kind
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FilesChanged, Stored


@dataclass(frozen=True)
class State:
    state: str = "ready"
    files: int = 0
    of_files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    why: str = ""


@dataclass
class Undone:
    restored: Sequence[str] = ()
    left: Sequence[tuple[str, str]] = ()


@dataclass
class FakeRepository:
    committed: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    async def propose(self, changes: bytes) -> str:
        return f"Change {changes.count(b'diff --git')} files"

    async def commit(self, paths: Sequence[str], message: str) -> str:
        self.committed.append((tuple(paths), message))
        return "[main 1234567] " + message


class FakeChanges:
    """`now` is what stands in the files."""

    def __init__(self) -> None:
        self.progress = State()
        self.repository = FakeRepository()
        self.versions_of: dict[str, tuple[bytes, bytes]] = {}
        self.now: dict[str, bytes] = {}
        self.kept_hunks: dict[str, frozenset[str]] = {}
        self.left: list[Left] = []
        self.undone: list[Mapping[str, str]] = []
        self.covered: list[tuple[bool, Sequence[str] | None]] = []
        self.listeners: list[Callable[[Any], object]] = []

    def fill(self, files: Mapping[str, tuple[bytes, bytes]]) -> None:
        """Files, each with its content before and after one turn of the agent."""
        self.versions_of = dict(files)
        self.now = {place: after for place, (_, after) in files.items() if after}

    def _files(self) -> list[FileChange]:
        found = []
        for place, (before, after) in self.versions_of.items():
            change = Change(f"0/{place}", _item(before), _item(after))
            added, removed = hunks.counts(before, after)
            found.append(FileChange(change, place, added, removed, "edit_file", 31))
        return found

    def watch(self, listener: Callable[[Any], object]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def not_covered(self) -> Sequence[Left]:
        return self.left

    async def room(self) -> tuple[int, int]:
        return 3, 4_000

    def rules(self) -> Sequence[str]:
        return ("node_modules/",)

    async def largest(self) -> Sequence[tuple[str, int, int]]:
        return [("data", 300_000, 6_000_000_000), ("src", 20, 4_000), ("", 2, 100)]

    async def cover(self, *, all_of_it: bool = False, leave_out: Sequence[str] | None = None) -> None:
        self.covered.append((all_of_it, leave_out))

    async def turns(self, conversation: str) -> Sequence[TurnOfChanges]:
        if not self.versions_of:
            return ()
        fact = FilesChanged(Stored(Digest(bytes(32)), 1), Digest(bytes(32)), Digest(bytes(32)), len(self.versions_of))
        return [TurnOfChanges(12, 1, 9, "Extract it", (Source(conversation, 8, 1.0, fact, "edit_file", 31),))]

    async def files(self, sources: Sequence[Source]) -> Sequence[FileChange]:
        return self._files()

    async def with_folders(self, sources: Sequence[Source]) -> Sequence[FileChange]:
        return self._files()

    async def since(self, checkpoint: Digest, *, folders: bool = False) -> Sequence[FileChange]:
        return self._files()

    async def since_revision(self, revision: str) -> Sequence[FileChange]:
        return self._files()

    async def contents(self, file: FileChange) -> tuple[bytes, bytes]:
        return self.versions_of[file.place]

    async def patch(self, files: Sequence[FileChange]) -> bytes:
        versions = [(file, *self.versions_of[file.place]) for file in files]
        return b"".join(
            patch(file.place, (file.change.before, before), (file.change.after, after))
            for file, before, after in versions
        )

    async def kept(self, conversation: str) -> Mapping[str, frozenset[str]]:
        return self.kept_hunks

    async def keep(self, conversation: str, path: str, hunk: str = "") -> None:
        self.kept_hunks[path] = self.kept_hunks.get(path, frozenset()) | {hunk}

    async def plan(self, files: Sequence[FileChange]) -> Sequence[Planned]:
        return [self._planned(file) for file in files]

    def _planned(self, file: FileChange) -> Planned:
        now = _item(self.now.get(file.place, b""))
        how = How.ALREADY if now == file.change.before else How.CONFLICT
        how = How.RESTORE if now == file.change.after else how
        return Planned(file.path, file.change.before, file.change.after, now, how)

    async def versions(self, planned: Planned) -> tuple[bytes, bytes, bytes]:
        place = planned.path[2:]
        return (*self.versions_of[place], self.now.get(place, b""))

    async def take_back(
        self,
        files: Sequence[FileChange],
        *,
        conversation: str = "",
        choices: Mapping[str, str] = {},
        undoes: Sequence[int] = (),
    ) -> Undone:
        self.undone.append(dict(choices))
        wanted = [f for f in files if self._planned(f).how is How.RESTORE or choices.get(f.path) == "before"]
        for file in wanted:
            self.now[file.place] = self.versions_of[file.place][0]
        return Undone([file.place for file in wanted])

    async def take_back_hunks(self, file: FileChange, ids: Sequence[str], *, conversation: str = "") -> Undone:
        before, after = self.versions_of[file.place]
        chosen = [hunk for hunk in hunks.hunks(before, after) if hunk.id in ids]
        self.now[file.place] = hunks.take_back(before, after, self.now[file.place], chosen)
        return Undone([file.place])

    def file_path(self, file: FileChange) -> Path:
        return Path("/nowhere") / file.place


def _item(content: bytes) -> Item | None:
    if not content:
        return None
    return Item(Kind.FILE, 0o644, len(content), hashlib.sha256(content).digest())
