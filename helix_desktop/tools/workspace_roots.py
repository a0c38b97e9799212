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
        for root in self.folders:
            if path == root or not path.is_relative_to(root):
                continue
            if self.is_hidden_inside(path.relative_to(root).as_posix()):
                return True
        return False

    @classmethod
    def from_folders(
        cls, folders: Sequence[Path], closed: Sequence[Path] = (), sample: Path | None = None
    ) -> "WorkspaceRoots":
        """`sample`: a folder in which `folders` are open, although it is inside a closed one."""
        real_folders = tuple(folder.resolve() for folder in folders)
        closed_paths = tuple(path.resolve() for path in closed)
        names = tuple(folder.absolute() for folder in folders)
        sample_folder = None
        if sample is not None:
            real_sample = sample.resolve()
            if any(folder.is_relative_to(real_sample) for folder in real_folders):
                sample_folder = real_sample
        return cls(real_folders, closed_paths, names, sample_folder)

    def resolve_path(self, text: str) -> RootPath:
        """Return where `text` points, or raise ActionRefused. The disk is not read
        before it is opened.
        """
        if not text.strip() or "\0" in text:
            raise InvalidInput("The path is empty or contains a null byte.")
        if sys.platform == "win32":
            text = text.replace("\\", "/")
        path = Path(text)
        if text.startswith("~/"):
            path = path.expanduser()
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
        place = self._find_root_path(path)
        if place is None:
            raise ActionRefused(
                f"{text} is outside this workspace's folders.",
                remedy=f"The workspace's folders are: {', '.join(map(str, self.folders))}.",
            )
        self.check_not_off_limits(place.full_path)
        return place

    def _find_root_path(self, path: Path) -> RootPath | None:
        if not path.is_absolute():
            return RootPath(self.folders[0], _path_inside(path))
        # A root may lie in another: the innermost one counts.
        innermost_first = sorted(self._named_roots(), key=lambda named: -len(named.name.parts))
        for named in innermost_first:
            if path.is_relative_to(named.name):
                return RootPath(named.root, _path_inside(path.relative_to(named.name)))
        return None

    def split_full_pattern(self, pattern: str) -> tuple[Path, str] | None:
        """Split a pattern with a full path into a root and the rest. Returns None for
        other patterns.
        """
        for named in self._named_roots():
            folder = f"{named.name}/"
            if pattern.startswith(folder):
                return named.root, pattern.removeprefix(folder)
        return None

    def _named_roots(self) -> list["_NamedRoot"]:
        """Return each root by its real path, and by what the user calls it."""
        named_roots = [_NamedRoot(root, root) for root in self.folders]
        named_roots.extend(map(_NamedRoot, self.names, self.folders))
        return named_roots

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


@dataclass(frozen=True, slots=True)
class _NamedRoot:
    name: Path
    root: Path


def _path_inside(path: Path) -> str:
    """Return a relative path as text, empty for the folder itself."""
    text = path.as_posix()
    if text == ".":
        return ""
    return text


def read_whole_file(roots: WorkspaceRoots, place: RootPath, limit: int = LARGEST_READ) -> bytes:
    """Return a file's bytes. Refuse a file larger than `limit` rather than cut it."""
    shown = roots.display_path(place)
    with _open_checked_file(roots, place) as handle:
        size = _require_regular_file(handle, shown).st_size
        if size > limit:
            raise InvalidInput(
                f"{shown} is too large: it has {size:,} bytes. Only files up to {limit:,} bytes are read in full."
            )
        content = bytearray()
        while len(content) <= limit:  # Somebody may append to it without end.
            data = os.read(handle, _PIECE)
            if not data:
                break
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
    shown = roots.display_path(place)
    with _explain_system_errors(shown):
        if sys.platform == "win32" and place.full_path.is_dir():
            with folders.open_folder(place.root, place.inside):
                return place.full_path.stat()
        with _open_checked_file(roots, place) as handle:
            status = os.fstat(handle)
            if stat.S_ISDIR(status.st_mode):
                return status
            return _require_regular_file(handle, shown)


def read_file_or_none(roots: WorkspaceRoots, place: RootPath) -> bytes | None:
    with suppress(NotFound):
        return read_whole_file(roots, place)
    return None


def list_folder(roots: WorkspaceRoots, place: RootPath) -> list[FolderEntry]:
    """Return a folder's entries by name. Links are shown as links and not followed."""
    with _open_checked_folder(roots, place) as folder:
        entries = [_build_folder_entry(name, status) for name, status in folder.list_entries()]
    shown_entries = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        inside = f"{place.inside}/{entry.name}".lstrip("/")
        if entry.kind == "folder" or not roots.is_hidden_inside(inside):
            shown_entries.append(entry)
    return shown_entries


def walk_files(
    roots: WorkspaceRoots, place: RootPath, skip: frozenset[str] = frozenset()
) -> Iterator[tuple[str, FolderEntry]]:
    """Yield every file within a folder as (path in the root, entry), folder by folder.
    Follows no links.
    """
    # Not recursive, as folders can be nested too deeply. Each with what is still to be walked.
    open_folders = [(place.inside, iter(list_folder(roots, place)))]
    while open_folders:
        folder, entries = open_folders[-1]
        for entry in entries:
            inside = f"{folder}/{entry.name}".lstrip("/")
            if entry.kind == "folder" and entry.name not in skip:
                with suppress(HelixError):
                    subfolder = roots.resolve_path(str(place.root / inside))
                    open_folders.append((inside, iter(list_folder(roots, subfolder))))
                    break  # The rest of this folder follows when all below is done.
            elif entry.kind == "file":
                yield inside, entry
        else:
            open_folders.pop()


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
    puts_something = content is not None or bool(link)
    # With nothing to put there, a missing folder above is as good.
    with suppress(NotFound), _open_parent(roots, place, make=puts_something) as folder:
        name = place.full_path.name
        with suppress(FileNotFoundError):
            present = folder.stat_entry(name)
            if stat.S_ISDIR(present.st_mode):
                folder.replace_entry(name, f"{name}.helix-{token_hex(4)}")
            elif content is None or not stat.S_ISREG(present.st_mode):
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
    real_path = folders.real_path(handle)
    if real_path is not None:
        roots.check_not_off_limits(real_path)


def _require_regular_file(handle: int, shown_path: str) -> os.stat_result:
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):
        raise InvalidInput(
            f"{shown_path} is a folder.", remedy="Use list_files to see what is in the folder."
        )
    if not stat.S_ISREG(status.st_mode):
        raise ActionRefused(f"{shown_path} is a device, a pipe or a socket, not a file.")
    return status


def _build_folder_entry(name: str, status: os.stat_result | None) -> FolderEntry:
    if status is None:
        return FolderEntry(name, "other")
    if stat.S_ISREG(status.st_mode):
        return FolderEntry(name, "file", status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return FolderEntry(name, "folder")
    if stat.S_ISLNK(status.st_mode):
        return FolderEntry(name, "link")
    return FolderEntry(name, "other")


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
    above = RootPath(place.root, "")
    for name in place.inside.split("/"):
        new = RootPath(place.root, f"{above.inside}/{name}".lstrip("/"))
        with (
            _open_checked_folder(roots, above) as folder,
            _explain_system_errors(roots.display_path(new)),
            suppress(FileExistsError),
        ):
            folder.create_folder(name)
        above = new


def _follow_links(roots: WorkspaceRoots, place: RootPath) -> RootPath:
    """Return where a link inside the root points, so that writing changes its target
    and keeps the link.
    """
    for _ in range(_MOST_LINKS):
        target = _link_target(roots, place)
        if not target:
            return place
        if Path(target).is_absolute():
            raise ActionRefused(
                f"{roots.display_path(place)} is a link that leads outside the workspace's folders."
            )
        folder = place.inside.rpartition("/")[0]
        place = RootPath(place.root, f"{folder}/{target}".lstrip("/"))
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
        status = folder.stat_entry(name)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise InvalidInput(f"{shown_path} is a folder, not a file.")
    if not stat.S_ISREG(status.st_mode):
        raise ActionRefused(
            f"{shown_path} is a link, a device or a pipe, so nothing was written to it."
        )
    if not status.st_mode & 0o222:
        raise ActionRefused(
            f"{shown_path} is write-protected.",
            remedy="To change this file, make it writable first.",
        )
    return status


def _write_if_unchanged(
    roots: WorkspaceRoots, place: RootPath, content: bytes | None, expected: Digest | None
) -> None:
    """Replace a file, or remove it (None), if it still is what the caller saw."""
    shown = roots.display_path(place)
    changed_meanwhile = ActionRefused(
        f"{shown} has changed since it was read. Nothing was written.",
        remedy="Read the file again first.",
    )
    with _open_parent(roots, place, make=content is not None) as folder:
        status = _stat_replaceable(folder, place.full_path.name, shown)
        content_now = read_file_or_none(roots, place)
        digest_now = None
        if content_now is not None:
            digest_now = Digest.of_content(content_now)
        if digest_now != expected:
            raise changed_meanwhile
        try:
            _replace_or_remove(folder, place.full_path.name, content, status, expected)
        except atomic_swap.ChangedMeanwhile:
            raise changed_meanwhile from None


def _replace_or_remove(
    folder: folders.OpenFolder,
    name: str,
    content: bytes | None,
    status: os.stat_result | None,
    expected: Digest | None,
) -> None:
    """Write or remove the file. What was taken out is checked once more, as others may have
    saved meanwhile.
    """
    mode = 0
    item = None
    if status is not None:
        mode = stat.S_IMODE(status.st_mode)
        item = TreeItem(PathKind.FILE, mode, status.st_size)
    if sys.platform == "win32":
        # Windows cannot exchange two files, so nothing is checked there any more.
        if content is None:
            folder.delete_entry(name)
        else:
            write_file_beside(folder, name, content, mode, replaces=True)
        return
    digest = b""
    if expected is not None:
        digest = expected.raw
    if content is not None:
        beside = write_file_beside(folder, name, content, mode, replaces=False)
        atomic_swap.swap_into_place(folder.handle, name, beside, item, digest)
        os.fsync(folder.handle)
    elif item is not None:
        atomic_swap.remove_if_expected(folder.handle, name, item, digest)


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
        is_no_folder = error.errno == errno.ENOTDIR and folder is not None
        if folder is not None and is_no_folder and os.path.lexists(folder.full_path):
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
