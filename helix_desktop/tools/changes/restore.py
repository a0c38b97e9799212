"""Taking changes back: what can be put as it was, what somebody else changed meanwhile, and doing it.

Doing it twice is harmless: what is already right is left alone. So an undo that was cut short is simply done again.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field, replace
from secrets import token_hex

from helix_desktop.engine.changes import hunks
from helix_desktop.engine.changes.story import How, Planned
from helix_desktop.engine.changes.tree import Change, Item, Kind
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.errors import HelixError, Refused
from helix_desktop.tools import beneath
from helix_desktop.tools.changes import swapping
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.changes.reading import ABOUT
from helix_desktop.tools.changes.swapping import Changed
from helix_desktop.values import dataclass

_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """What to put at a path, if `now` is still there."""

    path: str
    now: Item | None
    target: Item | None


@dataclass(slots=True)
class Done:
    """What came of it: paths that are as they were wanted, those left alone and why, and the fact of it."""

    restored: list[str] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    fact: FilesChanged | None = None


async def plan(
    checkpoints: Checkpoints, changes: Iterable[Change], broken: frozenset[str] = frozenset()
) -> tuple[Planned, ...]:
    """What taking back these changes (one for each path) comes to. `broken`: paths where somebody else changed something between them."""
    await checkpoints.look()
    return tuple(_planned(change, checkpoints.item(change.path), change.path in broken) for change in changes)


def _planned(change: Change, now: Item | None, broken: bool) -> Planned:  # noqa: FBT001 -- one of three facts
    how = How.CONFLICT
    if now == change.before:
        how = How.ALREADY
    elif now == change.after and not broken:
        how = How.RESTORE
    return Planned(change.path, change.before, change.after, now, how)


async def merged(checkpoints: Checkpoints, planned: Planned) -> Item | None:
    """What stands there now without the agent's change and with everybody else's; None where the two touch each other."""
    before, after, now = planned.before, planned.after, planned.now
    if any(item is None or item.kind is not Kind.FILE for item in (before, after, now)) or now is None:
        return None
    first, second, current = [await checkpoints.content(item) for item in (before, after, now)]
    if hunks.binary(first, second, current):
        return None
    with suppress(Refused):
        found = hunks.take_back(first, second, current, hunks.hunks(first, second))
        return await kept(checkpoints, found, now)
    return None


async def kept(checkpoints: Checkpoints, content: bytes, like: Item) -> Item:
    """A version of a file that is in no folder yet, as an item."""
    (stored,) = await checkpoints.contents.put_many([(content, ABOUT)])
    return Item(Kind.FILE, like.mode, stored.size, stored.digest.raw)


def steps(planned: Sequence[Planned], chosen: Mapping[str, Item | None] = {}) -> tuple[Step, ...]:
    """What is to be done: all that can be, and for conflicts what the user `chosen`."""
    found = [
        Step(one.path, one.now, one.before) for one in planned if one.how is How.RESTORE and one.path not in chosen
    ]
    found += [Step(one.path, one.now, chosen[one.path]) for one in planned if one.path in chosen]
    return tuple(step for step in found if step.now != step.target)


async def put_back(checkpoints: Checkpoints, wanted: Sequence[Step], *, already: Sequence[Planned] = ()) -> Done:
    """Do it. The program may end at any moment within; doing it again goes on from there."""
    done = Done()
    window = await checkpoints.begin("", "", "undo")
    if window is None:
        raise Refused(f"The workspace's folders are not covered: {checkpoints.progress.why}")
    try:
        await _tidy(checkpoints, wanted)
        await _Restoring(checkpoints, done).run(wanted)
        await checkpoints.look()
        paths = {step.path for step in wanted}
        checkpoints.claim(window.since, paths)
        changes = [Change(step.path, step.now, checkpoints.item(step.path)) for step in wanted]
        changes += [Change(one.path, one.after, one.before) for one in already if one.path not in paths]
        changes = sorted(change for change in changes if change.before != change.after)
        if (now := checkpoints.now) is not None and changes:
            done.fact = await checkpoints.noted(changes, window.checkpoint, now, call="", by="undo")
    finally:
        checkpoints.leave(window)
    return done


async def _tidy(checkpoints: Checkpoints, wanted: Sequence[Step]) -> None:
    """Remove what an undo that was cut short left behind, where its content is in the store. Anything else stays: it may be somebody's."""
    if not checkpoints.leftovers:
        return
    items = [*checkpoints.items().values(), *(item for step in wanted for item in (step.now, step.target))]
    links = {os.fsdecode(item.content) for item in items if item is not None and item.kind is Kind.LINK}
    while checkpoints.leftovers:
        above, _, name = checkpoints.leftovers.pop().rpartition("/")
        with suppress(OSError, HelixError):
            folder = checkpoints.reader.open(above, beneath.DIRECTORY)
            try:
                held = await asyncio.to_thread(swapping.content_of, folder, name)
                known = held in links
                if isinstance(held, bytes):
                    known = not await checkpoints.contents.lacking([Digest(held)])
                if known:
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)


class _Restoring:
    """One undo at work."""

    def __init__(self, checkpoints: Checkpoints, done: Done) -> None:
        self._checkpoints = checkpoints
        self._done = done
        self._wanted: set[str] = set()
        self._opened: dict[str, int] = {}  # folders whose mode was widened for us, and what it is to be

    async def run(self, wanted: Sequence[Step]) -> None:
        """Away first, the deepest first; then folders, files, links and further names; modes of folders last."""
        self._wanted = {step.path for step in wanted}
        self._checkpoints.open_roots()
        away = [step for step in wanted if step.now is not None and not _stays(step)]
        failed = set()
        for step in sorted(away, key=lambda step: -step.path.count("/")):
            if not await self._try(step, self._take_away):
                failed.add(step.path)
        self._done.restored += [step.path for step in away if step.target is None and step.path not in failed]
        there = [replace(step, now=None) if step in away else step for step in wanted if step.path not in failed]
        await self._make(sorted(there, key=lambda step: (step.path.count("/"), step.path)))
        for path, mode in sorted(self._opened.items(), reverse=True):
            with suppress(OSError, Changed, HelixError):
                async with self._parent(path) as (folder, name):
                    swapping.set_mode(folder, name, mode, Kind.FOLDER)

    async def _make(self, wanted: Sequence[Step]) -> None:
        acts = {Kind.FOLDER: self._folder, Kind.FILE: self._file, Kind.LINK: self._link, Kind.TWIN: self._twin}
        for kind in Kind:
            for step in wanted:
                if step.target is None or step.target.kind is not kind:
                    continue
                if kind is Kind.OTHER:
                    why = (
                        "its content was not kept"
                        if step.target.content
                        else "a socket, pipe or device is not made anew"
                    )
                    self._done.left.append((step.path, why))
                    continue
                await self._try(step, acts[kind])
                if kind is Kind.FOLDER:
                    self._opened[step.path] = step.target.mode

    async def _try(self, step: Step, act: Callable[[Step], Awaitable[None]]) -> bool:
        """One path; what cannot be done is named and the rest goes on."""
        why = ""
        try:
            await act(step)
        except Changed:
            why = "it was changed in the meantime"
        except HelixError as error:
            why = str(error)
        except OSError as error:
            why = (
                "it contains files that are not part of this undo"
                if error.errno == errno.ENOTEMPTY
                else error.strerror or "refused"
            )
        if why:
            self._done.left.append((step.path, why))
        elif step.target is not None and act != self._take_away:
            self._done.restored.append(step.path)
        return not why

    async def _take_away(self, step: Step) -> None:
        if step.now is None:
            return
        try:
            async with self._parent(step.path) as (folder, name):
                try:
                    await asyncio.to_thread(swapping.remove, folder, name, step.now, self._digest(step.now))
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY or step.target is None:
                        raise
                    aside = f"{name}.not-undone-{token_hex(3)}"
                    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
                    self._done.left.append((f"{step.path}", f"what was in its place and is not covered is now {aside}"))
                os.fsync(folder)
        except FileNotFoundError:
            return

    async def _folder(self, step: Step) -> None:
        async with self._parent(step.path) as (folder, name):
            if step.now is None:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
                os.fsync(folder)

    async def _file(self, step: Step) -> None:
        target, now = step.target, step.now
        if target is None:
            return
        async with self._parent(step.path) as (folder, name):
            if now is not None and now.kind is Kind.FILE and now.content == target.content:
                swapping.set_mode(folder, name, target.mode, Kind.FILE)
                return
            handle, beside = await asyncio.to_thread(swapping.new_file, folder)
            try:
                await self._fill(handle, target)
                beside = await asyncio.to_thread(_finish, folder, handle, target, beside)
            except BaseException:
                if beside:
                    with suppress(OSError):
                        os.unlink(beside, dir_fd=folder)
                raise
            finally:
                os.close(handle)
            await asyncio.to_thread(swapping.put, folder, name, beside, now, self._digest(now))
            os.fsync(folder)
        for twin in self._twins(step.path):
            with suppress(Changed):
                await self._twin_of(twin, step.path, self._checkpoints.item(twin), target.mode)

    def _twins(self, leader: str) -> list[str]:
        """Further names of a file that stay what they are, and so have to be names of the new one."""
        raw = leader.encode("utf-8", "surrogateescape")
        found = [twin for twin in self._checkpoints.twins(leader) if twin not in self._wanted]
        return [twin for twin in found if (item := self._checkpoints.item(twin)) is not None and item.content == raw]

    async def _fill(self, handle: int, target: Item) -> None:
        digest = Digest(target.content)
        if target.size <= _CHUNK:
            content = await self._checkpoints.contents.get(digest)
            await asyncio.to_thread(_write, handle, content)
            return
        for start in range(0, target.size, _CHUNK):
            piece = await self._checkpoints.contents.read(digest, start, _CHUNK)
            await asyncio.to_thread(_write, handle, piece)

    async def _link(self, step: Step) -> None:
        if step.target is None:
            return
        async with self._parent(step.path) as (folder, name):
            beside = swapping.beside()
            os.symlink(step.target.content, os.fsencode(beside), dir_fd=folder)
            await asyncio.to_thread(swapping.put, folder, name, beside, step.now, self._digest(step.now))
            os.fsync(folder)

    async def _twin(self, step: Step) -> None:
        if step.target is not None:
            leader = step.target.content.decode("utf-8", "surrogateescape")
            await self._twin_of(step.path, leader, step.now, step.target.mode)

    async def _twin_of(self, path: str, leader: str, now: Item | None, mode: int) -> None:
        """Make `path` another name of `leader`. Its content is the leader's as it was, so that is what may be replaced."""
        async with self._parent(path) as (folder, name), self._parent(leader) as (other, first):
            st = os.stat(first, dir_fd=other, follow_symlinks=False)
            with suppress(FileNotFoundError):
                here = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if (here.st_dev, here.st_ino) == (st.st_dev, st.st_ino):
                    return
            beside = swapping.beside()
            os.link(first, beside, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)
            await asyncio.to_thread(swapping.put, folder, name, beside, now, self._digest(now))
            os.fsync(folder)

    def _digest(self, item: Item | None) -> bytes:
        """The SHA-256 of what is there now."""
        if item is None:
            return b""
        if item.kind is Kind.TWIN:
            leader = self._checkpoints.item(item.content.decode("utf-8", "surrogateescape"))
            return leader.content if leader is not None else b""
        return item.content

    @asynccontextmanager
    async def _parent(self, path: str) -> AsyncIterator[tuple[int, str]]:
        """The folder a path lies in, made where it is gone and opened for us where its mode forbids writing; and its name in it."""
        above, _, name = path.rpartition("/")
        try:
            folder = self._open(above)
        except FileNotFoundError:
            if "/" not in above:
                raise
            async with self._parent(above) as (outer, inner):
                os.mkdir(inner, 0o755, dir_fd=outer)
            folder = self._open(above)
        try:
            if not os.access(f"/proc/self/fd/{folder}", os.W_OK | os.X_OK):
                self._opened.setdefault(above, os.fstat(folder).st_mode & 0o7777)
                os.fchmod(folder, 0o700)
            yield folder, name
        finally:
            os.close(folder)

    def _open(self, path: str) -> int:
        try:
            return self._checkpoints.reader.open(path, beneath.DIRECTORY)
        except PermissionError:
            above, _, name = path.rpartition("/")
            if not above:
                raise
            outer = self._open(above)
            try:
                st = os.stat(name, dir_fd=outer, follow_symlinks=False)
                self._opened.setdefault(path, st.st_mode & 0o7777)
                swapping.set_mode(outer, name, 0o700, Kind.FOLDER)
            finally:
                os.close(outer)
            return self._checkpoints.reader.open(path, beneath.DIRECTORY)


def _finish(folder: int, handle: int, target: Item, beside: str) -> str:
    os.fchmod(handle, target.mode)
    os.fsync(handle)
    return swapping.named(folder, handle, beside)


def _write(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _stays(step: Step) -> bool:
    """Whether the new item can change places with the one that is there."""
    if step.now is None or step.target is None:
        return False
    same = (step.now.kind is Kind.FOLDER) == (step.target.kind is Kind.FOLDER)
    return same and (step.now.kind is not Kind.OTHER or bool(step.now.content))
