"""The workspace's folders, and the only way tools touch files: reading, listing, replacing and removing inside them.

Refused, each with a sentence: paths outside the roots, `..`, links that lead out, devices, pipes, sockets, /proc and
/sys, the program's own data, and writing a file that has a second (hard) link, since that may lie outside.
Writing never truncates: the new content is written beside the old, synced and renamed over it, with its mode kept.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace as replace_field
from pathlib import Path
from secrets import token_hex

from helix_desktop.engine.digest import Digest
from helix_desktop.errors import HelixError, NotThere, Refused, WrongUse
from helix_desktop.values import dataclass

if sys.platform == "win32":
    from helix_desktop.tools import folders_windows as folders
else:
    from helix_desktop.tools import folders

LARGEST_READ = 64 * 1024 * 1024
_PIECE = 1 << 20
_MOST_LINKS = 40


@dataclass(frozen=True, slots=True)
class Place:
    """A path inside a root: `inside` is relative to it with forward slashes, empty for the root itself."""

    root: Path
    inside: str

    @property
    def path(self) -> Path:
        return self.root / self.inside


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a listing. `kind`: file, folder, link or other."""

    name: str
    kind: str
    size: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders of a workspace; relative paths start at the first. `closed`: never, though inside a root. `names`: of each
    folder, what the user calls it, where that is a link to it.
    """

    folders: tuple[Path, ...]
    closed: tuple[Path, ...] = ()
    names: tuple[Path, ...] = ()
    sample: Path | None = None
    hides: Callable[[str], bool] = lambda _inside: False  # whether no agent sees a file, by its path from its root

    @property
    def unhidden(self) -> Roots:
        """The same folders with nothing hidden: for what the program itself does, such as an undo."""
        return replace_field(self, hides=lambda _inside: False)

    def is_hidden(self, path: Path) -> bool:
        """Whether no agent sees the file with this full path."""
        return any(
            path != root and path.is_relative_to(root) and self.hides(path.relative_to(root).as_posix())
            for root in self.folders
        )

    @classmethod
    def of(cls, folders: Sequence[Path], closed: Sequence[Path] = (), sample: Path | None = None) -> Roots:
        """`sample`: a folder that is open where it is itself one of the `folders`, though it lies in a closed one."""
        real = tuple(folder.resolve() for folder in folders)
        spared = sample.resolve() if sample is not None and sample.resolve() in real else None
        shut = tuple(path.resolve() for path in closed)
        return cls(real, shut, tuple(folder.absolute() for folder in folders), spared)

    def place(self, text: str) -> Place:
        """Where `text` points, or Refused. Nothing is looked up: what it really is shows when it is opened."""
        if not text.strip() or "\0" in text:
            raise WrongUse("The path is empty or contains a null byte.")
        if sys.platform == "win32":
            text = text.replace("\\", "/")
        path = Path(text).expanduser() if text.startswith("~/") else Path(text)
        if not self.folders:
            raise Refused(
                "This workspace has no folder, so there are no files.", remedy="Add a folder in the workspace settings."
            )
        if ".." in path.parts:
            raise Refused(
                f"{text}: paths with '..' are refused.", remedy="Use a path relative to the workspace folder."
            )
        place = self._inside(path) if path.is_absolute() else Place(self.folders[0], path.as_posix())
        if place is None:
            raise Refused(
                f"{text} is outside this workspace's folders.",
                remedy=f"The folders are: {', '.join(map(str, self.folders))}.",
            )
        self.check_open(place.path)
        return Place(place.root, "" if place.inside == "." else place.inside)

    def _inside(self, path: Path) -> Place | None:
        for name, root in sorted(self._called(), key=lambda both: -len(both[0].parts)):
            if path.is_relative_to(name):
                return Place(root, path.relative_to(name).as_posix())
        return None

    def within(self, pattern: str) -> tuple[Path, str] | None:
        """A pattern with a full path, as a root and the rest; None for any other."""
        for name, root in self._called():
            if pattern.startswith(f"{name}/"):
                return root, pattern[len(str(name)) + 1 :]
        return None

    def _called(self) -> list[tuple[Path, Path]]:
        """Each folder under each of its names."""
        return [*zip(self.folders, self.folders, strict=True), *zip(self.names, self.folders, strict=False)]

    def shown(self, place: Place) -> str:
        """How a place is named to the model and the user: relative to the first root, else in full."""
        return place.inside or "." if place.root == self.folders[0] else str(place.path)

    def check_open(self, path: Path) -> None:
        """Refused for files that no agent sees and for the program's own data, in whatever spelling the file system would accept."""
        if self.is_hidden(path):
            raise Refused(
                f"{path.name} is one of the files that agents don't see in this workspace.",
                remedy="Ask the user for what you need of it, or name it in `needs` of a command that reads it.",
            )
        if self.sample is not None and path.is_relative_to(self.sample):
            return
        spelled = spelling(str(path))
        for closed in self.closed:
            name = spelling(str(closed))
            if spelled == name or spelled.startswith(name + os.sep):
                raise Refused(f"{path} belongs to Helix Desktop, so tools can't use it.")


def read(roots: Roots, place: Place, limit: int = LARGEST_READ) -> bytes:
    """The file's bytes. A larger file than `limit` is refused rather than cut."""
    with _opened(roots, place) as handle:
        size = _regular(handle, roots.shown(place)).st_size
        if size > limit:
            raise WrongUse(
                f"{roots.shown(place)} is {size:,} bytes. Only files up to {limit:,} bytes are read in full."
            )
        return _all_of(handle, limit)


@contextmanager
def opened(roots: Roots, place: Place) -> Iterator[int]:
    """A regular file's open handle, for reading one of any size."""
    with _opened(roots, place) as handle:
        _regular(handle, roots.shown(place))
        yield handle


def piece(roots: Roots, place: Place, start: int, length: int) -> bytes:
    """Some bytes of a file of any size."""
    with _opened(roots, place) as handle:
        _regular(handle, roots.shown(place))
        os.lseek(handle, start, os.SEEK_SET)
        return os.read(handle, length)


def look(roots: Roots, place: Place) -> os.stat_result:
    """What a file or folder is, refused where it is neither."""
    with _sentences(roots.shown(place)):
        if sys.platform == "win32" and place.path.is_dir():
            with folders.folder(place.root, place.inside):
                return place.path.stat()
        with _opened(roots, place) as handle:
            found = os.fstat(handle)
            return found if stat.S_ISDIR(found.st_mode) else _regular(handle, roots.shown(place))


def content_or_none(roots: Roots, place: Place) -> bytes | None:
    """The file's bytes, or None where there is no such file."""
    try:
        return read(roots, place)
    except NotThere:
        return None


def listing(roots: Roots, place: Place) -> list[Item]:
    """The entries of a folder by name; links are shown as links and not followed."""
    with _folder(roots, place) as folder:
        items = sorted((_item(*entry) for entry in folder.entries()), key=lambda item: item.name)
    inside = f"{place.inside}/" if place.inside else ""
    return [item for item in items if item.kind == "folder" or not roots.hides(f"{inside}{item.name}")]


def walk(roots: Roots, place: Place, skip: frozenset[str] = frozenset()) -> Iterator[tuple[str, Item]]:
    """Every file beneath a folder as (path inside the root, item), folder by folder; links are not followed."""
    for item in listing(roots, place):
        inside = f"{place.inside}/{item.name}" if place.inside else item.name
        if item.kind == "folder" and item.name not in skip:
            with suppress(HelixError):
                yield from walk(roots, roots.place(str(place.root / inside)), skip)
        elif item.kind == "file":
            yield inside, item


def replace(roots: Roots, place: Place, content: bytes, *, expected: Digest | None) -> None:
    """Put `content` in the file's place, if it still is what the caller saw: `expected`, or None for no file."""
    place = _through_links(roots, place)
    with _parent(roots, place, make=True) as folder:
        before = _stat(folder, place.path.name, roots.shown(place))
        _unchanged(roots, place, expected)
        _swap_in(folder, place.path.name, content, before)


def remove(roots: Roots, place: Place, *, expected: Digest) -> None:
    """Delete the file, if it still is what the caller saw."""
    with _parent(roots, place) as folder:
        _stat(folder, place.path.name, roots.shown(place))
        _unchanged(roots, place, expected)
        folder.remove(place.path.name)


def put_back(roots: Roots, place: Place, content: bytes | None, mode: int, link: str = "") -> None:
    """Make an entry what it was, whatever is there now: a file with this content, a link, or nothing (None). A folder in
    its place is moved aside.
    """
    with suppress(NotThere), _parent(roots, place, make=content is not None or bool(link)) as folder:
        name = place.path.name
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(folder.stat(name).st_mode):
                folder.rename(name, f"{name}.helix-{token_hex(4)}")
            elif content is None or not stat.S_ISREG(folder.stat(name).st_mode):
                folder.remove(name)
        if link:
            folder.make_link(link, name)
        elif content is not None:
            _swap_in(folder, name, content, None, mode)


# --- underneath ------------------------------------------------------------------------------------------------------


def spelling(path: str) -> str:
    """One spelling for all that a file system may take for the same name."""
    return unicodedata.normalize("NFC", path).casefold()


@contextmanager
def _opened(roots: Roots, place: Place) -> Iterator[int]:
    with _sentences(roots.shown(place)):
        _there(place)
        with folders.file(place.root, place.inside) as handle:
            _check_real(roots, handle)
            yield handle


@contextmanager
def _folder(roots: Roots, place: Place) -> Iterator[folders.Folder]:
    with _sentences(roots.shown(place), place):
        _there(place)
        with folders.folder(place.root, place.inside) as folder:
            if sys.platform == "win32":
                roots.check_open(folder.path)
            else:
                _check_real(roots, folder.handle)
            yield folder


def _there(place: Place) -> None:
    if not place.root.exists():
        raise NotThere(f"The workspace's folder {place.root} no longer exists.")


def _check_real(roots: Roots, handle: int) -> None:
    """Links inside a root may still lead to the program's own data: ask the open handle where it is."""
    where = folders.real(handle)
    if where is not None:
        roots.check_open(where)


def _regular(handle: int, shown: str) -> os.stat_result:
    found = os.fstat(handle)
    if stat.S_ISDIR(found.st_mode):
        raise WrongUse(f"{shown} is a folder.", remedy="Use list_files to see what is in it.")
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{shown} is a device, a pipe or a socket, not a file.")
    return found


def _all_of(handle: int, limit: int) -> bytes:
    pieces = []
    total = 0
    while total <= limit and (data := os.read(handle, _PIECE)):
        pieces.append(data)
        total += len(data)
    return b"".join(pieces)


def _item(name: str, found: os.stat_result | None) -> Item:
    if found is None:
        return Item(name, "other")
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    kind = next((word for test, word in kinds if test(found.st_mode)), "other")
    return Item(name, kind, found.st_size if kind == "file" else 0, found.st_mtime_ns)


@contextmanager
def _parent(roots: Roots, place: Place, *, make: bool = False) -> Iterator[folders.Folder]:
    if not place.inside:
        raise WrongUse(f"{place.path} is a workspace folder, not a file.")
    above = Place(place.root, place.inside.rpartition("/")[0])
    if make:
        _make(roots, above)
    with _folder(roots, above) as folder:
        yield folder


def _make(roots: Roots, place: Place) -> None:
    """Make a folder and those above it; each is made inside a folder that has been opened safely."""
    try:
        with _folder(roots, place):
            return
    except NotThere:
        if not place.inside:
            raise
    with _parent(roots, place, make=True) as folder, suppress(FileExistsError):
        folder.make(place.path.name)


def _through_links(roots: Roots, place: Place) -> Place:
    """Where a link inside the root points, so that writing changes the file and keeps the link."""
    for _ in range(_MOST_LINKS):
        target = _link_target(roots, place)
        if not target:
            return place
        above = place.inside.rpartition("/")[0]
        if Path(target).is_absolute():
            raise Refused(f"{roots.shown(place)} is a link that leads outside the workspace's folders.")
        place = Place(place.root, f"{above}/{target}" if above else target)
    raise Refused(f"{roots.shown(place)} is a link that leads back to itself.")


def _link_target(roots: Roots, place: Place) -> str:
    """What a link says; empty for everything else."""
    with suppress(NotThere), _parent(roots, place) as folder, suppress(OSError):
        return folder.link(place.path.name)
    return ""


def _stat(folder: folders.Folder, name: str, shown: str) -> os.stat_result | None:
    try:
        found = folder.stat(name)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise WrongUse(f"{shown} is a folder, not a file.")
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{shown} is a link, a device or a pipe, so nothing was written to it.")
    if not found.st_mode & 0o222:
        raise Refused(
            f"{shown} is write-protected.",
            remedy="To change this file, make it writable first.",
        )
    if found.st_nlink > 1:
        raise Refused(
            f"{shown} was not changed, because it has another hard link, which may be outside the workspace.",
            remedy="Replace the file with a copy of itself, so that it has only one hard link.",
        )
    return found


def _unchanged(roots: Roots, place: Place, expected: Digest | None) -> None:
    now = content_or_none(roots, place)
    if (None if now is None else Digest.of(now)) != expected:
        raise Refused(
            f"{roots.shown(place)} has changed since it was read. Nothing was written.",
            remedy="Read the file again first.",
        )


def _swap_in(folder: folders.Folder, name: str, content: bytes, before: os.stat_result | None, mode: int = 0) -> None:
    beside = f".{name[:60]}.{token_hex(6)}.helix"
    handle = folder.create(beside)
    try:
        try:
            _write_all(handle, content)
            if before is not None:
                folders.set_mode(handle, before.st_mode)
            elif mode:
                folders.set_mode(handle, mode)
            os.fsync(handle)
        finally:
            os.close(handle)
        folder.rename(beside, name)
    except BaseException:
        with suppress(OSError):
            folder.remove(beside)
        raise


def _write_all(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


@contextmanager
def _sentences(shown: str, folder: Place | None = None) -> Iterator[None]:
    """What the system says in a number, said in words. `folder`: what was to be one."""
    try:
        yield
    except OSError as error:
        if folder is not None and error.errno == errno.ENOTDIR and os.path.lexists(folder.path):
            raise WrongUse(f"{shown} is a file, not a folder.") from error
        raise _sentence(shown, error) from error


def _sentence(shown: str, error: OSError) -> HelixError:
    no_file = f"{shown} is a device, a pipe or a socket, not a file."
    no_room = f"The disk is full, so there is no room for {shown}. The file is unchanged."
    leads_out = f"{shown} points outside the workspace's folders, or it was changed while it was being opened."
    forbidden = f"The system doesn't allow this for {shown} ({error.strerror})."
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            found: HelixError = NotThere(
                f"{shown} does not exist.", remedy="Use list_files or glob_files to see what is there."
            )
        case errno.EXDEV | errno.ELOOP:
            found = Refused(leads_out)
        case errno.ENXIO | errno.ENODEV:
            found = Refused(no_file)
        case errno.ENOSPC | errno.EDQUOT:
            found = Refused(no_room)
        case errno.ENAMETOOLONG:
            found = WrongUse(f"The name {shown[:80]}… is longer than the file system allows.")
        case _:
            found = Refused(forbidden)
    return found
