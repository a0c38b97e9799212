"""Looking through the folders: what is new since the last look, without reading a file whose inode, size, mode and times are known.

Everything is reached by handles, from a folder to what is in it, and no link is followed. What a time cannot be trusted for, because the
file changed within the clock's resolution of the look, is read again at the next.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from itertools import starmap
from operator import attrgetter, methodcaller
from pathlib import Path

from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.tree import Item, Kind
from helix_desktop.tools import beneath
from helix_desktop.tools.changes.coverage import NEVER, OURS, Coverage
from helix_desktop.values import dataclass

STAMP = struct.Struct("<QqqIQ")  # inode, time of change of the content, of the inode, mode, size
UNSURE = bytes(STAMP.size)
FINE, COARSE = 20_000_000, 2_000_000_000  # nanoseconds: the resolution of a clock, and of one that counts seconds
_looked = methodcaller("stat", follow_symlinks=False)
_told = attrgetter("st_ino", "st_mtime_ns", "st_ctime_ns", "st_mode", "st_size", "st_nlink")
_TOLD = struct.Struct("<QqqIQI")
_FOLDER = beneath.DIRECTORY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_PATH = getattr(os, "O_PATH", 0)
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # gone or replaced meanwhile
_DEEPEST = 200  # folders within each other
_LONGEST = 60_000  # bytes of a path

Known = dict[str, dict[str, bytes]]  # of each folder, each name's stamp and packed item


@dataclass(frozen=True, slots=True)
class Left:
    """A path that is not covered, and why: the rule, or in words. `is_beyond_limits`: not by a rule, but as it could not be read."""

    path: str
    why: str
    is_beyond_limits: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file whose content must be read; it had this stamp."""

    path: str
    stamp: bytes
    mode: int
    size: int
    stamp_seen: bytes = b""  # also where it cannot be trusted to show the next change


@dataclass(frozen=True, slots=True)
class Seen:
    """A folder in which nothing was new. While `mark` is that of its names and times, all the rest holds."""

    mark: bytes
    inner: tuple[str, ...]
    files: int
    bytes: int
    linked: tuple[tuple[tuple[int, int], str, int], ...]


@dataclass(slots=True)
class Found:
    """What a look found. `folders`: those in which something is different, as they are now; None for one that is gone."""

    folders: dict[str, dict[str, bytes] | None] = field(default_factory=dict)
    wanted: list[Wanted] = field(default_factory=list)
    left: dict[str, list[Left]] = field(default_factory=dict)  # by folder
    linked: dict[tuple[int, int], list[tuple[str, int]]] = field(
        default_factory=dict
    )  # hard links: path, number of names
    leftovers: list[str] = field(default_factory=list)
    opened: list[tuple[int, int]] = field(default_factory=list)  # folders whose mode was widened for us, and that mode
    files: int = 0
    bytes: int = 0


class Walk:
    """One look. `known` is only read; `seen` is for the next look. `enter` hears of each folder before it is listed, and whether it is
    the same one as at the last look.
    """

    def __init__(
        self,
        roots: tuple[Path, ...],
        known: Known,
        coverage: Coverage,
        closed: frozenset[tuple[int, int]],
        enter: Callable[[str, int, bool], object] | None = None,
        seen: dict[str, Seen] | None = None,
    ) -> None:
        self._roots = roots
        self._known = known
        self._coverage = coverage
        self._closed = closed
        self._enter = enter
        self._seen = {} if seen is None else seen
        self._began = time.time_ns()
        self._may_leave_out = coverage.may_leave_out
        self.found = Found()

    def everything(self) -> Found:
        """All folders of all roots; what was known and was not met is gone. A root that is not there is no empty one: nothing of it
        is gone.
        """
        met: set[str] = set()
        for number, root in enumerate(self._roots):
            try:
                handle = self._open_root(root)
            except OSError:
                met.update(path for path in self._known if path.partition("/")[0] == str(number))
            else:
                self._go(handle, str(number), met)
        for path in self._known.keys() - met:
            self.found.folders[path] = None
        return self.found

    def some(self, folders: set[str]) -> Found:
        """Only these folders, and what is new beneath them."""
        for path in sorted(folders):
            if path in self.found.folders:
                continue
            number, _, inside = path.partition("/")
            try:
                start = self._open_root(self._roots[int(number)])
            except OSError:
                continue
            try:
                handle = beneath.open_without_links(start, inside or ".", beneath.DIRECTORY)
            except OSError as error:
                if error.errno not in GONE:  # it is there: who goes down to it step by step can open it
                    self.found = Found(opened=self.found.opened)
                    return self.everything()
                self._gone(path)
                continue
            finally:
                os.close(start)
            self._one(handle, path)
        return self.found

    def _go(self, handle: int, path: str, met: set[str]) -> None:
        """A folder and all beneath it; closes the handle. Deep trees without recursion of Python's."""
        stack: list[tuple[int, str, list[str], bool]] = []
        met.add(path)
        stack.append((handle, path, *self._list(handle, path)))
        try:
            while stack:
                handle, path, inner, same = stack[-1]
                if not inner:
                    os.close(handle)
                    stack.pop()
                    continue
                name = inner.pop()
                below = f"{path}/{name}"
                if below.count("/") > _DEEPEST or len(below) > _LONGEST:
                    self._leave(path, below, "too deep", is_beyond_limits=True)
                    continue
                try:
                    opened = self._open(name, handle, below)
                except OSError as error:
                    if error.errno not in GONE:  # what is known of it stays as it is
                        self._leave(path, below, UNREADABLE, is_beyond_limits=True)
                        met.update(known for known in self._known if known == below or known.startswith(f"{below}/"))
                    continue
                met.add(below)
                stack.append((opened, below, *self._list(opened, below, same=same)))
        except BaseException:
            for handle, *_ in stack:
                with suppress(OSError):
                    os.close(handle)
            raise

    def _one(self, handle: int, path: str) -> None:
        """A folder by itself, and what is new beneath it."""
        try:
            known = self._known.get(path, {})
            below = [name for name in self._list(handle, path)[0] if f"{path}/{name}" not in self._known]
            now = self.found.folders.get(path) or known
            for name in known.keys() - now.keys() if path in self.found.folders else ():
                if f"{path}/{name}" in self._known:
                    self._gone(f"{path}/{name}")
            for name in below:
                with suppress(OSError):
                    self._go(self._open(name, handle, f"{path}/{name}"), f"{path}/{name}", set())
        finally:
            os.close(handle)

    def _open_root(self, root: Path) -> int:
        try:
            return os.open(root, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0))
        except PermissionError:
            return self._widened(os.open(root, beneath.DIRECTORY | _PATH))

    def _open(self, name: str, folder: int, path: str) -> int:
        """A folder. One that was covered and that somebody has closed since is opened for us until the look is over."""
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except PermissionError:
            if path not in self._known:
                raise
            return self._widened(os.open(name, _FOLDER | _PATH, dir_fd=folder))

    def _widened(self, place: int) -> int:
        """`place` as a handle that can be listed and searched. Only the owner of a folder can do that."""
        if not self._widen(place):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return os.open(".", _FOLDER, dir_fd=place)

    def _widen(self, place: int) -> bool:
        mode = os.fstat(place).st_mode & 0o7777
        try:
            os.chmod(f"/proc/self/fd/{place}", mode | 0o700)  # noqa: PTH101 -- of the handle
        except OSError:
            os.close(place)
            return False
        self.found.opened.append((place, mode))
        return True

    def _gone(self, path: str) -> None:
        above = f"{path}/"
        for known in self._known:
            if known == path or known.startswith(above):
                self.found.folders[known] = None

    def _list(self, handle: int, path: str, *, same: bool = False) -> tuple[list[str], bool]:
        """What is in a folder: the folders to go into, and whether nothing in it is new. `same`: it is the one of the last look."""
        if self._enter is not None:
            self._enter(path, handle, same)
        with os.scandir(handle) as listed:
            entries = [entry for entry in listed if entry.name != NEVER]
        stamps: list[tuple[int, ...]] = []
        try:
            stamps = list(map(_told, map(_looked, entries)))
        except PermissionError:  # what is in it can be named but not looked at
            if path in self._known or "/" not in path:
                self._widen(os.dup(handle))
        except OSError:  # one has just gone
            pass
        names = "/".join([entry.name for entry in entries])
        told = hashlib.blake2b(os.fsencode(names), digest_size=16)
        told.update(b"".join(starmap(_TOLD.pack, stamps)))
        seen = self._seen.get(path)
        if seen is not None and len(stamps) == len(entries) and seen.mark == told.digest():
            self._count(path, seen)
            return list(seen.inner), True
        return self._compare(handle, path, entries, told.digest() if len(stamps) == len(entries) else b""), False

    def _count(self, path: str, seen: Seen) -> None:
        """A folder in which nothing is new."""
        found = self.found
        found.files += seen.files
        found.bytes += seen.bytes
        for identity, name, names in seen.linked:
            found.linked.setdefault(identity, []).append((f"{path}/{name}", names))

    def _compare(self, handle: int, path: str, entries: list[os.DirEntry[str]], told: bytes) -> list[str]:  # noqa: C901 -- one loop that every changed folder goes through
        """A folder in which something may be new, name by name; returns the folders to go into."""
        known, found = self._known.get(path, {}), self.found
        pack, get, may_leave_out = STAMP.pack, known.get, self._may_leave_out
        now: dict[str, bytes] = {}
        inner: list[str] = []
        folders: list[tuple[str, os.stat_result]] = []
        linked: list[tuple[tuple[int, int], str, int]] = []
        fresh = files = size = 0
        for entry in entries:
            name = entry.name
            try:
                st = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            mode = st.st_mode
            kind = mode & 0o170000
            if kind == 0o040000:
                folders.append((name, st))
                continue
            stamp = pack(st.st_ino, st.st_mtime_ns, st.st_ctime_ns, mode, st.st_size)
            record = get(name)
            files += 1
            if kind == 0o100000:
                size += st.st_size
                if st.st_nlink > 1:
                    linked.append(((st.st_dev, st.st_ino), name, st.st_nlink))
            if record is not None and record.startswith(stamp):
                now[name] = record
            elif not (record is None and may_leave_out(name) and self._skipped(handle, path, name, st, now)) and not (
                name.startswith(".helix-undo-") and self._ours(path, name)
            ):
                fresh += 1
                self._note(handle, path, name, st, stamp, now)
        for name, st in folders:
            if self._skipped(handle, path, name, st, now):
                continue
            inner.append(name)
            record = _folder_record(st.st_mode & 0o7777)
            fresh += get(name) != record
            now[name] = record
        seen = Seen(told, tuple(inner), files, size, tuple(linked))
        self._count(path, seen)
        if fresh or len(now) != len(known) or path not in self._known:
            found.folders[path] = now
            self._seen.pop(path, None)
        elif told:
            self._seen[path] = seen
        return inner

    def _note(self, handle: int, path: str, name: str, st: os.stat_result, stamp: bytes, now: dict[str, bytes]) -> None:
        """What is new under this name."""
        whole = f"{path}/{name}"
        match stat.S_IFMT(st.st_mode):
            case stat.S_IFREG:
                wanted = Wanted(whole, stamp if self._sure(st) else UNSURE, st.st_mode & 0o7777, st.st_size, stamp)
                if st.st_size > self._coverage.most_file_bytes:
                    leave_file_out(self.found, self._known, wanted, now, LARGE)
                    return
                now[name] = UNSURE  # until its content is known
                self.found.wanted.append(wanted)
            case stat.S_IFLNK:
                with suppress(OSError):
                    target = os.fsencode(os.readlink(name, dir_fd=handle))
                    now[name] = stamp + tree.pack(Item(Kind.LINK, 0o777, 0, target))
            case _:
                now[name] = stamp + tree.pack(Item(Kind.OTHER, st.st_mode & 0o7777))
                self._leave(path, whole, "a socket, pipe or device")

    def _sure(self, st: os.stat_result) -> bool:
        """Whether a later change must show in the times."""
        whole_seconds = st.st_mtime_ns % 1_000_000_000 == 0 and st.st_ctime_ns % 1_000_000_000 == 0
        return st.st_ctime_ns < self._began - (COARSE if whole_seconds else FINE)

    def _ours(self, path: str, name: str) -> bool:
        """What an undo that was cut short has left behind."""
        ours = OURS.fullmatch(name) is not None
        if ours:
            self.found.leftovers.append(f"{path}/{name}")
        return ours

    def _skipped(self, handle: int, path: str, name: str, st: os.stat_result, beside: Mapping[str, object]) -> bool:
        folder = stat.S_ISDIR(st.st_mode)
        if folder and (st.st_dev, st.st_ino) in self._closed:
            self._leave(path, f"{path}/{name}", "belongs to Helix Desktop")
            return True
        if folder and is_kind(self._known.get(path, {}).get(name, b""), Kind.FOLDER):
            return False  # it was covered: nothing that is put into it or beside it takes it out

        def within(wanted: str) -> bool:
            return _there(handle, f"{name}/{wanted}")

        rule = self._coverage.left_out(name, beside.__contains__, within, folder=folder)
        if rule:
            self._leave(path, f"{path}/{name}", rule)
        return bool(rule)

    def _leave(self, folder: str, path: str, why: str, *, is_beyond_limits: bool = False) -> None:
        self.found.left.setdefault(folder, []).append(Left(path, why, is_beyond_limits))


@functools.cache
def _folder_record(mode: int) -> bytes:
    return UNSURE + tree.pack(Item(Kind.FOLDER, mode))


LARGE, OVER, UNREADABLE = "larger than the limit for one file", "over the limit", "not readable"


def leave_file_out(found: Found, known: Known, wanted: Wanted, now: dict[str, bytes], why: str) -> None:
    """A file is not read. One that takes the place of something that was covered is still told from what was there."""
    folder, _, name = wanted.path.rpartition("/")
    if known.get(folder, {}).get(name):
        now[name] = wanted.stamp + tree.pack(Item(Kind.OTHER, wanted.mode, wanted.size, wanted.stamp_seen))
    else:
        now.pop(name, None)
    found.left.setdefault(folder, []).append(Left(wanted.path, why, is_beyond_limits=True))


def restore_modes(found: Found) -> None:
    """Give folders that were opened for a look their modes back."""
    while found.opened:
        handle, mode = found.opened.pop()
        with suppress(OSError):
            os.chmod(f"/proc/self/fd/{handle}", mode)  # noqa: PTH101 -- of the handle
        os.close(handle)


def is_kind(record: bytes, kind: Kind) -> bool:
    return record[STAMP.size : STAMP.size + 1] == kind.encode()


def _there(handle: int, name: str) -> bool:
    with suppress(OSError):
        os.stat(name, dir_fd=handle, follow_symlinks=False)
        return True
    return False


def items(known: Known) -> Iterator[tuple[str, bytes]]:
    """Every path with its packed item, in order."""
    size = STAMP.size
    for folder in sorted(known):
        for name, record in sorted(known[folder].items()):
            if len(record) > size:
                yield f"{folder}/{name}", record[size:]


def largest(
    roots: tuple[Path, ...], coverage: Coverage, closed: frozenset[tuple[int, int]]
) -> list[tuple[str, int, int]]:
    """What each folder right below the roots holds: name, files, bytes, the largest first. An empty name: files in none."""
    found = Walk(roots, {}, coverage, closed).everything()
    held: dict[str, list[int]] = {}
    for one in found.wanted:
        _, _, inside = one.path.partition("/")
        above, below, _ = inside.partition("/")
        counted = held.setdefault(above if below else "", [0, 0])
        counted[0] += 1
        counted[1] += one.size
    folders = [(name, files, size) for name, (files, size) in held.items()]
    return sorted(folders, key=lambda each: (-each[2], each[0]))
