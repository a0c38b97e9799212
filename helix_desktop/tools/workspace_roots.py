"""The workspace's folders, and the only way for tools to read, list, replace or remove
files in them.

These are refused, each with a sentence: paths outside the roots, `..`, links that lead
out, devices, pipes, sockets, /proc and /sys, the program's own data, and writing to a
file with another hard link, which may be outside. New content is written beside the
old, synced, and renamed over it, with its mode kept.
"""

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

from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes import atomic_swap
from helix_desktop.tools.safe_path_opening import closing_handle, write_to_handle

if sys.platform == "win32":
    from helix_desktop.tools import folder_handles_windows as folders
else:
    from helix_desktop.tools import folder_handles as folders

LARGEST_READ = 64 * 1024 * 1024
_PIECE = 1 << 20
_MOST_LINKS = 40


@dataclass(frozen=True, slots=True)
class RootPath:
    """A path in a root. `inside` is relative to it, with forward slashes, and empty for
    the root.
    """

    root: Path
    inside: str

    @property
    def full_path(self) -> Path:
        return self.root / self.inside


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """An entry of a listing. `kind`: file, folder, link or other."""

    name: str
    kind: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class WorkspaceRoots:
    """A workspace's folders; relative paths start at the first. `closed_paths` are never opened."""

    folders: tuple[Path, ...]
    closed_paths: tuple[Path, ...] = ()
    names: tuple[Path, ...] = ()  # What the user calls each folder, if that is a link to it.
    sample_folder: Path | None = None
    # Tells whether a file is hidden from agents, given its path within one of the folders.
    is_hidden_inside: Callable[[str], bool] = lambda _inside: False

    @property
    def with_nothing_hidden(self) -> "WorkspaceRoots":
        """Return the same folders with nothing hidden, for the program's own work, as an undo."""
        return replace_field(self, is_hidden_inside=lambda _inside: False)

    def is_hidden_path(self, path: Path) -> bool:
        """Whether the file with this full path is hidden from agents."""
        return any(
            path != root
            and path.is_relative_to(root)
            and self.is_hidden_inside(path.relative_to(root).as_posix())
            for root in self.folders
        )

    @classmethod
    def from_folders(
        cls, folders: Sequence[Path], closed: Sequence[Path] = (), sample: Path | None = None
    ) -> "WorkspaceRoots":
        """`sample`: a folder in which `folders` are open, although it is inside a closed one."""
        real = tuple(folder.resolve() for folder in folders)
        spared = sample.resolve() if sample is not None else None
        spared = (
            spared
            if spared is not None and any(root.is_relative_to(spared) for root in real)
            else None
        )
        shut = tuple(path.resolve() for path in closed)
        return cls(real, shut, tuple(folder.absolute() for folder in folders), spared)

    def resolve_path(self, text: str) -> RootPath:
        """Return where `text` points, or raise ActionRefused. The disk is not read
        before it is opened.
        """
        if not text.strip() or "\0" in text:
            raise InvalidInput("The path is empty or contains a null byte.")
        if sys.platform == "win32":
            text = text.replace("\\", "/")
        path = Path(text).expanduser() if text.startswith("~/") else Path(text)
        if not self.folders:
            raise ActionRefused(
                "This workspace has no folder, so there are no files.",
                remedy="Add a folder in the workspace settings.",
            )
        if ".." in path.parts:
            raise ActionRefused(
                f"{text}: paths with '..' are refused.",
                remedy="Use a path relative to the workspace folder.",
            )
        place = (
            self._find_root_path(path)
            if path.is_absolute()
            else RootPath(self.folders[0], path.as_posix())
        )
        if place is None:
            raise ActionRefused(
                f"{text} is outside this workspace's folders.",
                remedy=f"The workspace's folders are: {', '.join(map(str, self.folders))}.",
            )
        self.check_not_off_limits(place.full_path)
        return RootPath(place.root, "" if place.inside == "." else place.inside)

    def _find_root_path(self, path: Path) -> RootPath | None:
        folders = sorted(self._folders_by_name(), key=lambda both: -len(both[0].parts))
        found = (
            RootPath(root, path.relative_to(name).as_posix())
            for name, root in folders
            if path.is_relative_to(name)
        )
        return next(found, None)

    def split_full_pattern(self, pattern: str) -> tuple[Path, str] | None:
        """Split a pattern with a full path into a root and the rest. Returns None for
        other patterns.
        """
        folders = ((root, f"{name}/") for name, root in self._folders_by_name())
        return next(
            ((root, pattern[len(name) :]) for root, name in folders if pattern.startswith(name)),
            None,
        )

    def _folders_by_name(self) -> list[tuple[Path, Path]]:
        return [
            *zip(self.folders, self.folders, strict=True),
            *zip(self.names, self.folders, strict=False),
        ]

    def display_path(self, place: RootPath) -> str:
        """Return the path to show to model and user: relative to the first root, or
        else in full.
        """
        return place.inside or "." if place.root == self.folders[0] else str(place.full_path)

    def check_not_off_limits(self, path: Path) -> None:
        """Raise ActionRefused for hidden files and the program's own data, in any
        spelling that file systems accept.
        """
        if self.is_hidden_path(path):
            raise ActionRefused(
                f"{path.name} is hidden from agents in this workspace.",
                remedy="Ask the user for the part you need, or run a command with the file in its `needs` argument.",
            )
        if self.sample_folder is not None and path.is_relative_to(self.sample_folder):
            return
        spelled = normalise_spelling(str(path))
        for closed in self.closed_paths:
            name = normalise_spelling(str(closed))
            if spelled == name or spelled.startswith(name + os.sep):
                raise ActionRefused(f"{path} belongs to Helix Desktop, so tools cannot use it.")


def read_whole_file(roots: WorkspaceRoots, place: RootPath, limit: int = LARGEST_READ) -> bytes:
    """Return a file's bytes. Refuse a file larger than `limit` rather than cut it."""
    with _open_checked_file(roots, place) as handle:
        if (size := _require_regular_file(handle, roots.display_path(place)).st_size) > limit:
            raise InvalidInput(
                f"{roots.display_path(place)} is too large: it has {size:,} bytes. Only files up to {limit:,} bytes are read in full."
            )
        content = bytearray()
        while len(content) <= limit and (data := os.read(handle, _PIECE)):
            content += data
        return bytes(content)


@contextmanager
def open_for_reading(roots: WorkspaceRoots, place: RootPath) -> Iterator[int]:
    """Yield the open handle of a regular file of any size."""
    with _open_checked_file(roots, place) as handle:
        _require_regular_file(handle, roots.display_path(place))
        yield handle


def read_file_piece(roots: WorkspaceRoots, place: RootPath, start: int, length: int) -> bytes:
    with open_for_reading(roots, place) as handle:
        os.lseek(handle, start, os.SEEK_SET)
        return os.read(handle, length)


def stat_path(roots: WorkspaceRoots, place: RootPath) -> os.stat_result:
    """Return the status of a file or folder. Refuse anything else."""
    with _explain_system_errors(roots.display_path(place)):
        if sys.platform == "win32" and place.full_path.is_dir():
            with folders.open_folder(place.root, place.inside):
                return place.full_path.stat()
        with _open_checked_file(roots, place) as handle:
            found = os.fstat(handle)
            return (
                found
                if stat.S_ISDIR(found.st_mode)
                else _require_regular_file(handle, roots.display_path(place))
            )


def read_file_or_none(roots: WorkspaceRoots, place: RootPath) -> bytes | None:
    with suppress(NotFound):
        return read_whole_file(roots, place)
    return None


def list_folder(roots: WorkspaceRoots, place: RootPath) -> list[FolderEntry]:
    """Return a folder's entries by name. Links are shown as links and not followed."""
    with _open_checked_folder(roots, place) as folder:
        items = sorted(
            (_build_folder_entry(*entry) for entry in folder.list_entries()),
            key=lambda item: item.name,
        )
    inside = f"{place.inside}/" if place.inside else ""
    return [
        item
        for item in items
        if item.kind == "folder" or not roots.is_hidden_inside(f"{inside}{item.name}")
    ]


def walk_files(
    roots: WorkspaceRoots, place: RootPath, skip: frozenset[str] = frozenset()
) -> Iterator[tuple[str, FolderEntry]]:
    """Yield every file within a folder as (path in the root, entry), folder by folder.
    Follows no links.
    """
    above = [
        (place.inside, iter(list_folder(roots, place)))
    ]  # Not recursive, as folders can be nested too deeply.
    while above:
        folder, items = above[-1]
        for item in items:
            inside = f"{folder}/{item.name}" if folder else item.name
            if item.kind == "folder" and item.name not in skip:
                with suppress(HelixError):
                    here = roots.resolve_path(str(place.root / inside))
                    above.append((inside, iter(list_folder(roots, here))))
                    break
            elif item.kind == "file":
                yield inside, item
        else:
            above.pop()


def replace_file(
    roots: WorkspaceRoots, place: RootPath, content: bytes, *, expected: Digest | None
) -> None:
    """Replace a file by `content` if it still is what the caller saw (`expected`; None: no file).
    This creates a new file, so another hard link, perhaps outside the roots, keeps the old content.
    """
    _write_if_unchanged(roots, _follow_links(roots, place), content, expected)


def delete_file(roots: WorkspaceRoots, place: RootPath, *, expected: Digest) -> None:
    """Delete a file if it still is what the caller saw."""
    _write_if_unchanged(roots, place, None, expected)


def restore_entry(
    roots: WorkspaceRoots, place: RootPath, content: bytes | None, mode: int, link: str = ""
) -> None:
    """Put a file with this content, a link, or nothing (None) there. A folder in its
    place is moved aside.
    """
    with (
        suppress(NotFound),
        _open_parent(roots, place, make=content is not None or bool(link)) as folder,
    ):
        name = place.full_path.name
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(folder.stat_entry(name).st_mode):
                folder.replace_entry(name, f"{name}.helix-{token_hex(4)}")
            elif content is None or not stat.S_ISREG(folder.stat_entry(name).st_mode):
                folder.delete_entry(name)
        if link:
            folder.create_link(link, name)
        elif content is not None:
            write_file_beside(folder, name, content, mode, replaces=True)


def normalise_spelling(path: str) -> str:
    """Return one spelling for all names that a file system may consider the same."""
    return unicodedata.normalize("NFC", path).casefold()


@contextmanager
def _open_checked_file(roots: WorkspaceRoots, place: RootPath) -> Iterator[int]:
    with _explain_system_errors(roots.display_path(place)):
        _check_root_exists(place)
        with folders.open_file(place.root, place.inside) as handle:
            _check_handle_not_off_limits(roots, handle)
            yield handle


@contextmanager
def _open_checked_folder(roots: WorkspaceRoots, place: RootPath) -> Iterator[folders.OpenFolder]:
    with _explain_system_errors(roots.display_path(place), place):
        _check_root_exists(place)
        with folders.open_folder(place.root, place.inside) as folder:
            if sys.platform == "win32":
                roots.check_not_off_limits(folder.path)
            else:
                _check_handle_not_off_limits(roots, folder.handle)
            yield folder


def _check_root_exists(place: RootPath) -> None:
    if not place.root.exists():
        raise NotFound(f"The workspace's folder {place.root} no longer exists.")


def _check_handle_not_off_limits(roots: WorkspaceRoots, handle: int) -> None:
    """Refuse a handle that is really on the program's own data, to which links may lead."""
    if (where := folders.real_path(handle)) is not None:
        roots.check_not_off_limits(where)


def _require_regular_file(handle: int, shown_path: str) -> os.stat_result:
    found = os.fstat(handle)
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInput(
            f"{shown_path} is a folder.", remedy="Use list_files to see what is in the folder."
        )
    if not stat.S_ISREG(found.st_mode):
        raise ActionRefused(f"{shown_path} is a device, a pipe or a socket, not a file.")
    return found


def _build_folder_entry(name: str, status: os.stat_result | None) -> FolderEntry:
    if status is None:
        return FolderEntry(name, "other")
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    kind = next((word for test, word in kinds if test(status.st_mode)), "other")
    return FolderEntry(name, kind, status.st_size if kind == "file" else 0)


@contextmanager
def _open_parent(
    roots: WorkspaceRoots, place: RootPath, *, make: bool = False
) -> Iterator[folders.OpenFolder]:
    if not place.inside:
        raise InvalidInput(f"{place.full_path} is a workspace folder, not a file.")
    above = RootPath(place.root, place.inside.rpartition("/")[0])
    if make:
        _create_missing_folders(roots, above)
    with (
        _open_checked_folder(roots, above) as folder,
        _explain_system_errors(roots.display_path(place)),
    ):
        yield folder


def _create_missing_folders(roots: WorkspaceRoots, place: RootPath) -> None:
    """Create a folder and those above it, each inside a folder that was opened safely."""
    with suppress(NotFound), _open_checked_folder(roots, place):
        return
    above = ""
    for name in place.inside.split("/"):
        new = RootPath(place.root, f"{above}/{name}".lstrip("/"))
        explained = _explain_system_errors(roots.display_path(new))
        with (
            _open_checked_folder(roots, RootPath(place.root, above)) as folder,
            explained,
            suppress(FileExistsError),
        ):
            folder.create_folder(name)
        above = new.inside


def _follow_links(roots: WorkspaceRoots, place: RootPath) -> RootPath:
    """Return where a link inside the root points, so that writing changes its target
    and keeps the link.
    """
    for _ in range(_MOST_LINKS):
        if not (target := _link_target(roots, place)):
            return place
        above = place.inside.rpartition("/")[0]
        if Path(target).is_absolute():
            raise ActionRefused(
                f"{roots.display_path(place)} is a link that leads outside the workspace's folders."
            )
        place = RootPath(place.root, f"{above}/{target}" if above else target)
    raise ActionRefused(f"{roots.display_path(place)} is a link that leads back to itself.")


def _link_target(roots: WorkspaceRoots, place: RootPath) -> str:
    """Return a link's target, or an empty string for anything else."""
    with suppress(NotFound), _open_parent(roots, place) as folder, suppress(OSError):
        return folder.read_link(place.full_path.name)
    return ""


def _stat_replaceable(
    folder: folders.OpenFolder, name: str, shown_path: str
) -> os.stat_result | None:
    try:
        found = folder.stat_entry(name)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInput(f"{shown_path} is a folder, not a file.")
    if not stat.S_ISREG(found.st_mode):
        raise ActionRefused(
            f"{shown_path} is a link, a device or a pipe, so nothing was written to it."
        )
    if not found.st_mode & 0o222:
        raise ActionRefused(
            f"{shown_path} is write-protected.",
            remedy="To change this file, make it writable first.",
        )
    return found


def _write_if_unchanged(
    roots: WorkspaceRoots, place: RootPath, content: bytes | None, expected: Digest | None
) -> None:
    """Replace or remove a file, and check what was replaced, as others may have saved meanwhile."""
    name, shown = place.full_path.name, roots.display_path(place)
    said = f"{shown} has changed since it was read. Nothing was written."
    digest = None if expected is None else expected.raw
    with _open_parent(roots, place, make=content is not None) as folder:
        before, now = _stat_replaceable(folder, name, shown), read_file_or_none(roots, place)
        mode = stat.S_IMODE(before.st_mode) if before else 0
        item = TreeItem(PathKind.FILE, mode, before.st_size) if before else None
        if (None if now is None else Digest.of_content(now).raw) != digest:
            raise ActionRefused(said, remedy="Read the file again first.")
        at_once = sys.platform == "win32"
        beside = (
            ""
            if content is None
            else write_file_beside(folder, name, content, mode, replaces=at_once)
        )
        try:
            if sys.platform == "win32":
                if content is None:
                    folder.delete_entry(name)
            elif beside:
                atomic_swap.swap_into_place(folder.handle, name, beside, item, digest or b"")
                os.fsync(folder.handle)
            elif item is not None:
                atomic_swap.remove_if_expected(folder.handle, name, item, digest or b"")
        except atomic_swap.ChangedMeanwhile:
            raise ActionRefused(said, remedy="Read the file again first.") from None


def write_file_beside(
    folder: folders.OpenFolder, name: str, content: bytes, mode: int, *, replaces: bool
) -> str:
    """Write and sync a new file beside the one it will replace, or has already replaced
    (`replaces`).
    """
    beside = f".{name[:60]}.{token_hex(6)}.helix"
    handle = folder.create_file(beside)
    try:
        with closing_handle(handle):
            write_to_handle(handle, content)
            if mode:
                folders.set_file_mode(handle, mode)
            os.fsync(handle)
        if replaces:
            folder.replace_entry(beside, name)
    except BaseException:
        with suppress(OSError):
            folder.delete_entry(beside)
        raise
    return beside


@contextmanager
def _explain_system_errors(shown_path: str, folder: RootPath | None = None) -> Iterator[None]:
    """Convert the system's error numbers to sentences. `folder`: a path that should be a folder."""
    try:
        yield
    except OSError as error:
        if (
            folder is not None
            and error.errno == errno.ENOTDIR
            and os.path.lexists(folder.full_path)
        ):
            raise InvalidInput(f"{shown_path} is a file, not a folder.") from error
        raise _error_in_words(shown_path, error) from error


def _error_in_words(shown_path: str, error: OSError) -> HelixError:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            remedy = "Use list_files or glob_files to see what is there."
            return NotFound(f"{shown_path} does not exist.", remedy=remedy)
        case errno.ENAMETOOLONG:
            return InvalidInput(
                f"The name {shown_path[:80]}… is longer than the file system allows."
            )
        case errno.EXDEV | errno.ELOOP:
            said = f"{shown_path} points outside the workspace's folders, or it was changed while it was being opened."
        case errno.ENXIO | errno.ENODEV:
            said = f"{shown_path} is a device, a pipe or a socket, not a file."
        case errno.ENOSPC | errno.EDQUOT:
            said = f"The disk is full, so there is no room for {shown_path}. The file is unchanged."
        case _:
            place = "the workspace's folder" if shown_path == "." else shown_path
            said = f"The system doesn't allow this operation on {place} ({error.strerror})."
    return ActionRefused(said)
