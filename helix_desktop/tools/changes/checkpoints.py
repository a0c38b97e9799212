"""The checkpoints of one workspace's folders: taken before a step that may change files and after it.

Contents are in the cache, synced, before a difference names them, and that before a fact does. So a crash leaves at most contents that
nothing refers to, which are found again by their hash. What the program knows of the folders' stamps is derived and may be lost.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from helix_desktop.engine.changes import hunks, tree
from helix_desktop.engine.changes.tree import Change, Item, Kind
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.tools.changes import known as kept_known
from helix_desktop.tools.changes import reading, walk
from helix_desktop.tools.changes.coverage import Coverage
from helix_desktop.tools.changes.limits import Amount, leave_excess_out
from helix_desktop.tools.changes.reading import ABOUT, Contents, Reader
from helix_desktop.tools.changes.walk import STAMP, Found, Known, Left, Walk, leave_file_out
from helix_desktop.tools.changes.watching import Watch
from helix_desktop.values import dataclass

FEW = 200  # folders that may have changed, up to which only those are looked at
COUNTED = 16 << 20  # bytes of a step's changes in which lines are counted
ROOM = 2  # a new manifest is written when the differences behind the last one take so many times its room
NAMES = 5
USUAL = Coverage()
SHORT = 0.25  # seconds; after a command every file is looked at where that takes no longer


@dataclass(frozen=True, slots=True)
class Progress:
    """`state`: waiting, reading, ready, off or failed."""

    state: str = "waiting"
    files: int = 0
    of_files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    why: str = ""


@dataclass(slots=True, eq=False)
class Window:
    """The time of one step: from the state it met on."""

    call: str
    conversation: str
    by: str
    since: int  # of the looks
    checkpoint: Digest
    left_out: frozenset[str] = frozenset()  # paths that were not covered already


@dataclass(slots=True)
class _Moment:
    """What one look found different: by path, what no step has claimed yet."""

    changes: dict[str, Change] = field(default_factory=dict)


class Checkpoints:
    """Made with the workspace, closed with it. `file`: where stamps are kept between two starts."""

    def __init__(
        self,
        roots: Sequence[Path],
        contents: Contents,
        *,
        file: Path | None = None,
        coverage: Coverage = USUAL,
        closed: Sequence[Path] = (),
    ) -> None:
        self.roots = tuple(roots)
        self.contents = contents
        self.reader = Reader(self.roots)
        self.coverage = coverage
        self.progress = Progress()
        self.listeners: list[Callable[[Progress], object]] = []
        self._file = file
        self._closed = closed
        self._known: Known = {}
        self._covered = Amount()
        self._seen: dict[str, walk.Seen] = {}
        self._left: dict[str, list[Left]] = {}
        self._linked: dict[tuple[int, int], list[tuple[str, int]]] = {}
        self._checkpoint: Digest | None = None
        self._chain = (0, 0, 0)  # bytes of the manifest, of the differences behind it, and their number
        self._looks = 0
        self._moments: dict[int, _Moment] = {}
        self._windows: list[Window] = []
        self._lock = asyncio.Lock()
        self._watch = Watch()
        self._saved: Digest | None = None
        self.leftovers: list[str] = []  # what an undo that was cut short left beside its files, found by the first look
        self._unsure: set[str] = set()  # folders with files whose times cannot be trusted yet
        self._modes: dict[Path, int] = {}  # of the roots, at the first look
        self._seconds = 0.0  # that the last look at everything took
        self._standing: tuple[
            tuple[int, int] | None, ...
        ] = ()  # what stood at the roots at the last look; None: nothing

    # --- what it is

    @property
    def ready(self) -> bool:
        return self.progress.state == "ready"

    @property
    def covers(self) -> bool:
        """Whether there is a safety net, now or as soon as it is prepared."""
        return bool(self.roots) and self.progress.state != "off"

    def largest(self) -> list[tuple[str, int, int]]:
        """The folders right below the roots as the rules leave them: name, files, bytes. An empty name: files in none."""
        closed = frozenset(filter(None, map(_identity, self._closed)))
        return walk.largest(
            self.roots, replace(self.coverage, most_files=0, most_bytes=0, most_file_bytes=1 << 63), closed
        )

    def left_out(self) -> tuple[Left, ...]:
        """What is not covered, and why."""
        found = [left for lefts in self._left.values() for left in lefts]
        names = {path for group in self._linked.values() for path, _ in group}
        for group in self._linked.values():
            if group and group[0][1] > len(group):
                found += [Left(path, "has another name outside") for path, _ in group if path in names]
        return tuple(sorted(found, key=lambda left: left.path))

    def _left_out_paths(self) -> frozenset[str]:
        """What is not covered for its size or because it cannot be read: not by a rule, which the user knows."""
        return frozenset(left.path for lefts in self._left.values() for left in lefts if left.is_beyond_limits)

    def item(self, path: str) -> Item | None:
        """What stood at a path at the last look."""
        folder, _, name = path.rpartition("/")
        return tree.unpack(self._known.get(folder, {}).get(name, b"")[STAMP.size :])

    def items(self) -> dict[str, Item]:
        """All that was there at the last look."""
        return {path: item for path, body in walk.items(self._known) if (item := tree.unpack(body)) is not None}

    def twins(self, path: str) -> list[str]:
        """The other names of a file."""
        for group in self._linked.values():
            names = [name for name, _ in group]
            if path in names:
                return [name for name in names if name != path]
        return []

    def place(self, path: str) -> str:
        """A path as people know it: relative to the first root, in full in another one."""
        number, _, inside = path.partition("/")
        return inside or "." if number == "0" else f"{self.roots[int(number)]}/{inside}"

    def path(self, place: str | Path) -> str:
        """The other way round; the path as it is where it lies in no root."""
        for number, root in enumerate(self.roots):
            if Path(place).is_absolute() and Path(place).is_relative_to(root):
                inside = Path(place).relative_to(root).as_posix()
                return str(number) if inside == "." else f"{number}/{inside}"
        return f"0/{place}"

    def open_roots(self) -> None:
        """Give the folders themselves the mode again that they had when they were looked at first, where they were closed since."""
        for root, mode in self._modes.items():
            with suppress(OSError):
                if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
                    root.chmod(mode)

    # --- taking them

    async def prepare(self) -> None:
        """The first look. It is complete when this returns, or `progress` says why there is none."""
        if not self.ready:
            await self.look(thorough=True)

    async def look(self, *, thorough: bool = False) -> None:
        """Take in what is there now. `thorough`: look at every file, whatever was heard of changes."""
        if not self.covers:
            return
        async with self._lock:
            try:
                await self._look(thorough=thorough or self._checkpoint is None)
            except StoreFailed as error:  # tried again before the next step
                self._watch.doubt = True
                self._tell(Progress("failed", why=str(error)))

    async def again(self, coverage: Coverage) -> None:
        """Other rules: everything is looked at anew."""
        async with self._lock:
            self.coverage = coverage
            self._known, self._checkpoint, self._covered = {}, None, Amount()
            self._seen.clear()
            self._watch.doubt = True
            self._tell(Progress("off" if coverage.off else "waiting"))
        await self.prepare()

    async def begin(self, call: str, conversation: str, by: str) -> Window | None:
        """A step is about to change something. What was changed until now is somebody else's."""
        await self.prepare()
        await self.look()
        if self.progress.state == "failed":
            raise StoreFailed(
                f"The state of the folder could not be stored, so what this changes could not be undone: {self.progress.why}",
                remedy="Nothing was run. Make room on the disk and try again.",
            )
        if self._checkpoint is None or not self.ready or None in self._standing:
            return None
        window = Window(call, conversation, by, self._looks, self._checkpoint, self._left_out_paths())
        self._windows.append(window)
        return window

    async def end(
        self, window: Window, only: Iterable[str] | None = None, *, thorough: bool = False
    ) -> FilesChanged | None:
        """The step is over: what it changed, as a fact; None where it changed nothing. `only`: the paths it says it changed."""
        is_told = True  # else the step stays open, and its end is told when the disk has room again
        try:
            self.open_roots()
            await self.look(thorough=thorough or (window.by != "tool" and self._seconds < SHORT))
            if self.progress.state == "failed":
                is_told = False
                return None
            if not self.ready or self._checkpoint is None:
                return None
            changes = self._claim(window.since, None if only is None else {self.path(place) for place in only})
            left = () if only is not None else sorted(self._left_out_paths() - window.left_out)
            return await self.noted(
                changes, window.checkpoint, self._checkpoint, call=window.call, by=window.by, left_out=left
            )
        finally:
            if is_told:
                self.leave(window)

    def leave(self, window: Window) -> None:
        """The step is over."""
        self._windows.remove(window)
        first = min((each.since for each in self._windows), default=self._looks)
        for number in [number for number in self._moments if number <= first]:
            del self._moments[number]

    def of_conversation(self, conversation: str) -> tuple[Window, ...]:
        """Steps whose end nobody has told."""
        return tuple(window for window in self._windows if window.conversation == conversation)

    @property
    def now(self) -> Digest | None:
        """The state at the last look."""
        return self._checkpoint

    def claim(self, since: int, paths: set[str]) -> tuple[Change, ...]:
        """What was found different at these paths since a look, as somebody's own."""
        return self._claim(since, paths)

    async def noted(
        self,
        changes: Sequence[Change],
        before: Digest,
        after: Digest,
        *,
        call: str = "",
        by: str = "command",
        left_out: Sequence[str] = (),
    ) -> FilesChanged | None:
        """The fact of some changes, with all it names in the cache; None where there are none and nothing new is left out."""
        counted = tree.files_of(changes)
        if not changes and not left_out:
            return None
        added, removed = await self._count(counted)
        (difference,) = await self.contents.put_many([(tree.write_difference(changes, before), ABOUT)])
        names = tuple(self.place(change.path) for change in counted[:NAMES])
        left = tuple(map(self.place, left_out[:NAMES]))
        return FilesChanged(
            difference, before, after, len(counted), added, removed, call, by, names=names, left_out=left
        )

    async def aclose(self) -> None:
        """Keep the stamps for the next start."""
        async with self._lock:
            self._watch.close()
            await self._save()

    # --- one look

    async def _look(self, *, thorough: bool) -> None:
        began = time.monotonic()
        if self._checkpoint is None:
            self._modes = {root: root.stat().st_mode & 0o7777 for root in self.roots if root.is_dir()}
            await self._recall()
            self._tell(replace(self.progress, state="reading"))
        found = await asyncio.to_thread(self._walk, thorough)
        try:
            if not self.ready:
                self.leftovers = found.leftovers
            await self._read(found, began)
        finally:
            walk.restore_modes(found)
        changes = self._taken(found)
        await self._link_on(changes)
        if not self.ready:
            files = sum(len(names) for names in self._known.values())
            self._tell(Progress("ready", files, files, found.bytes, time.monotonic() - began))
            await self._save()

    def _walk(self, thorough: bool) -> Found:  # noqa: FBT001 -- for to_thread
        closed = frozenset(filter(None, map(_identity, self._closed)))
        looking = Walk(self.roots, self._known, self.coverage, closed, self._watch.enter, self._seen)
        before, self._standing = self._standing, tuple(map(_identity, self.roots))
        thorough |= before != self._standing  # moved, or on a drive that came or went: of that no folder tells
        folders = self._watch.changed()
        folders |= {path.rpartition("/")[0] for group in self._linked.values() for path, _ in group}
        try:
            if not thorough and not self._watch.doubt and len(folders) <= FEW:
                looking.some(folders | self._unsure)
            else:
                self._watch.begin()
                began = time.monotonic()
                looking.everything()
                self._seconds = time.monotonic() - began
            leave_excess_out(looking.found, self._known, self.coverage, self._covered)
        except BaseException:
            walk.restore_modes(looking.found)
            raise
        return looking.found

    async def _recall(self) -> None:
        """What was known when the program ended, as far as its contents are there."""
        kept = None
        if self._file is not None:
            kept = await asyncio.to_thread(kept_known.read, self._file, tuple(map(str, self.roots)), self.coverage)
        if kept is None:
            return
        digests = {
            Digest(record[-32:]) for names in kept.known.values() for record in names.values() if _is_file(record)
        }
        lacking = set(await self.contents.lacking([*digests, kept.checkpoint]))
        if kept.checkpoint in lacking:
            return
        for names in kept.known.values():
            for name, record in list(names.items()):
                if _is_file(record) and Digest(record[-32:]) in lacking:
                    names[name] = walk.UNSURE + record[STAMP.size :]
        self._known, self._checkpoint, self._chain = kept.known, kept.checkpoint, kept.chain
        self._covered = Amount()
        for names in self._known.values():
            self._covered.add_records(names.values())

    async def _read(self, found: Found, began: float) -> None:
        """Have the contents that are wanted in the cache, and their records in what was found."""
        done = size = 0
        wanted = {one.path: one for one in found.wanted}
        async for batch in reading.store(self.contents, self.reader, found.wanted):
            for got in batch:
                folder, _, name = got.path.rpartition("/")
                names = found.folders[folder]
                if names is None:
                    continue
                if got.record:
                    names[name] = got.record
                    size += len(got.record)
                elif got.left:
                    leave_file_out(found, self._known, wanted[got.path], names, got.left)
                else:
                    names.pop(name, None)
                if got.restless:
                    found.left.setdefault(folder, []).append(Left(got.path, "changed while it was read"))
            done += len(batch)
            if not self.ready:
                self._tell(Progress("reading", done, len(found.wanted), found.bytes, time.monotonic() - began))

    def _taken(self, found: Found) -> list[Change]:
        """Take over what was found; what is different in it."""
        self._link(found)
        changes: list[Change] = []
        for folder, names in found.folders.items():
            held = self._known.get(folder, {})
            now = names or {}
            for name in held.keys() | now.keys():
                before, after = held.get(name, b"")[STAMP.size :], now.get(name, b"")[STAMP.size :]
                if before != after:
                    changes.append(Change(f"{folder}/{name}", tree.unpack(before), tree.unpack(after)))
                    self._covered.add_item(changes[-1].before, -1)
                    self._covered.add_item(changes[-1].after)
            self._left.pop(folder, None)
            self._unsure.discard(folder)
            if any(record.startswith(walk.UNSURE) and _is_file(record) for record in now.values()):
                self._unsure.add(folder)
            if names is None:
                self._known.pop(folder, None)
            else:
                self._known[folder] = now
        self._left.update(found.left)
        self._looks += 1
        if changes and self._windows:
            self._moments[self._looks] = _Moment({change.path: change for change in changes})
        return sorted(changes)

    def _link(self, found: Found) -> None:
        """Hard links: the first name in order is the file, the others are twins of it."""
        self._linked = found.linked
        for group in found.linked.values():
            paths = sorted(path for path, _ in group)
            leader = self._found_item(found, paths[0])
            if leader is None:
                continue
            content = leader.content
            if leader.kind is Kind.TWIN:
                other = self._found_item(found, leader.content.decode("utf-8", "surrogateescape"))
                content = other.content if other is not None and other.kind is Kind.FILE else b""
            if len(content) != 32:
                continue
            file = Item(Kind.FILE, leader.mode, leader.size, content)
            self._record(found, paths[0], file)
            twin = Item(Kind.TWIN, leader.mode, leader.size, paths[0].encode("utf-8", "surrogateescape"))
            for path in paths[1:]:
                self._record(found, path, twin)

    def _found_item(self, found: Found, path: str) -> Item | None:
        folder, _, name = path.rpartition("/")
        names = found.folders.get(folder, self._known.get(folder))
        return tree.unpack((names or {}).get(name, b"")[STAMP.size :])

    def _record(self, found: Found, path: str, wanted: Item) -> None:
        """Give a path another item, where it has one."""
        folder, _, name = path.rpartition("/")
        names = found.folders.get(folder, self._known.get(folder))
        record = (names or {}).get(name, b"")
        item = tree.unpack(record[STAMP.size :])
        if names is None or item is None or wanted == item:
            return
        if folder not in found.folders:
            names = found.folders[folder] = dict(names)
        names[name] = record[: STAMP.size] + tree.pack(wanted)

    # --- what the cache gets of it

    async def _link_on(self, changes: Sequence[Change]) -> None:
        """The state as a checkpoint: one more difference, or a manifest where there is none or the chain is long."""
        if self._checkpoint is not None and not changes:
            return
        manifest, room, length = self._chain
        if self._checkpoint is None or length >= tree.LONGEST_CHAIN or room > ROOM * manifest:
            content = await asyncio.to_thread(lambda: b"".join(tree.write_manifest(walk.items(self._known))))
            self._checkpoint = (await self.contents.put(content, ABOUT)).digest
            self._chain = (max(len(content), 1 << 16), 0, 0)
            return
        (stored,) = await self.contents.put_many([(tree.write_difference(changes, self._checkpoint), ABOUT)])
        self._checkpoint = stored.digest
        self._chain = (manifest, room + stored.size, length + 1)

    async def state(self, digest: Digest) -> dict[str, Item]:
        """The state a checkpoint names."""
        waiting, read = [digest], list[bytes]()
        while waiting:
            read.append(await self.contents.get(waiting.pop()))
            waiting += tree.behind(read[-1])
        return await asyncio.to_thread(tree.built, read[::-1])

    async def content(self, item: Item | None) -> bytes:
        """What a file held, where a link leads; nothing for the rest."""
        if item is None:
            return b""
        if item.kind is Kind.LINK:
            return item.content
        if item.kind is Kind.TWIN:
            path = item.content.decode("utf-8", "surrogateescape")
            leader = self.item(path)
            return await self.content(leader) if leader is not None and leader.kind is Kind.FILE else b""
        return await self.contents.get(Digest(item.content)) if item.kind is Kind.FILE else b""

    async def _count(self, changes: Sequence[Change]) -> tuple[int, int]:
        """Lines that came and went, where that is not much work."""
        sizes = sum(max(item.size for item in change[1:] if item is not None) for change in changes)
        if sizes > COUNTED:
            return 0, 0
        added = removed = 0
        for change in changes:
            with suppress(HelixError):
                before, after = await self.content(change.before), await self.content(change.after)
                came, went = await asyncio.to_thread(hunks.counts, before, after)
                added, removed = added + came, removed + went
        return added, removed

    # --- whose changes they are

    def _claim(self, since: int, paths: set[str] | None) -> tuple[Change, ...]:
        """What was found since a look and belongs to nobody yet; it belongs to this step from now on."""
        found: list[Change] = []
        for number in sorted(self._moments):
            moment = self._moments[number]
            if number <= since:
                continue
            mine = [path for path in moment.changes if paths is None or path in paths or _holds(path, paths)]
            found += [moment.changes.pop(path) for path in mine]
        return tree.joined(found)[0]

    def _tell(self, progress: Progress) -> None:
        self.progress = progress
        for listener in tuple(self.listeners):
            listener(progress)

    async def _save(self) -> None:
        if self._file is None or self._checkpoint is None or self._saved == self._checkpoint:
            return
        with suppress(StoreFailed):
            kept = kept_known.Kept(self._known, self._checkpoint, self._chain)
            roots = tuple(map(str, self.roots))
            await asyncio.to_thread(kept_known.write, self._file, kept, roots, self.coverage)
            self._saved = self._checkpoint


def _holds(path: str, paths: set[str]) -> bool:
    """A folder that a tool made for a file of its own."""
    return any(each.startswith(f"{path}/") for each in paths)


def _is_file(record: bytes) -> bool:
    return record[STAMP.size : STAMP.size + 1] == b"f"


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        st = path.stat()
        return st.st_dev, st.st_ino
    return None
