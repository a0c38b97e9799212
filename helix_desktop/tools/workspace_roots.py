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
_PIECE_BYTES = 1 << 20
_MOST_LINKS = 40


@dataclass(frozen=True, slots=True)
class RootPath:
    """A path in a root. `inside` is relative to it, with forward slashes, and empty for
    the root. `is_real`: no part of it was a link, and none may be one when it is opened. `named`: how
    it was named, if links lead from there to it.
    """

    root: Path
    inside: str
    is_real: bool = False
    named: str = ""

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
        root_path = self._find_root_path(path)
        if root_path is None:
            raise ActionRefused(
                f"{text} is outside this workspace's folders.",
                remedy=f"The workspace's folders are: {', '.join(map(str, self.folders))}.",
            )
        self.check_not_off_limits(root_path.full_path)
        return root_path

    def resolve_real_path(self, text: str) -> RootPath:
        """Return where `text` leads through links. That is what the user's rules are for, what a
        question names, and what is opened, even if a link takes its place meanwhile. Reads the disk.
        """
        named_path = self.resolve_path(text)
        real_path = self._find_root_path(Path(os.path.realpath(named_path.full_path)))
        if real_path is None:
            raise _error_in_words(self.display_path(named_path), OSError(errno.EXDEV, ""))
        self.check_not_off_limits(real_path.full_path)
        named = ""
        if real_path.full_path != named_path.full_path:
            named = self.display_path(named_path)
        return replace_field(real_path, is_real=True, named=named)

    def _find_root_path(self, path: Path) -> RootPath | None:
        """Return in which root a path lies, and where in it. A relative path lies in the first
        root.
        """
        if not path.is_absolute():
            return RootPath(self.folders[0], _path_inside(path))
        # A root may lie in another: the innermost one counts.
        innermost: _NamedRoot | None = None
        for named_root in self._named_roots():
            if not path.is_relative_to(named_root.name):
                continue
            if innermost is None or len(named_root.name.parts) > len(innermost.name.parts):
                innermost = named_root
        if innermost is None:
            return None
        return RootPath(innermost.root, _path_inside(path.relative_to(innermost.name)))

    def split_full_pattern(self, pattern: str) -> tuple[Path, str] | None:
        """Split a pattern with a full path into a root and the rest. Returns None for
        other patterns.
        """
        for named_root in self._named_roots():
            prefix = f"{named_root.name}/"
            if pattern.startswith(prefix):
                return named_root.root, pattern.removeprefix(prefix)
        return None

    def _named_roots(self) -> list["_NamedRoot"]:
        """Return each root by its real path, and by what the user calls it."""
        named_roots = [_NamedRoot(root, root) for root in self.folders]
        named_roots.extend(map(_NamedRoot, self.names, self.folders))
        return named_roots

    def display_path(self, root_path: RootPath) -> str:
        """Return the path to show to model and user: relative to the first root, or
        else in full.
        """
        if root_path.root != self.folders[0]:
            return str(root_path.full_path)
        return root_path.inside or "."

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
        comparable_path = normalise_spelling(str(path))
        for closed in self.closed_paths:
            comparable_closed_path = normalise_spelling(str(closed))
            if comparable_path == comparable_closed_path or comparable_path.startswith(
                comparable_closed_path + os.sep
            ):
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


def read_whole_file(roots: WorkspaceRoots, root_path: RootPath, limit: int = LARGEST_READ) -> bytes:
    """Return a file's bytes. Refuse a file larger than `limit` rather than cut it."""
    displayed_path = roots.display_path(root_path)
    with _open_checked_file(roots, root_path) as handle:
        size = _require_regular_file(handle, displayed_path).st_size
        if size > limit:
            raise InvalidInput(
                f"{displayed_path} is too large: it has {size:,} bytes. Only files up to {limit:,} bytes are read in full."
            )
        content = bytearray()
        while len(content) <= limit:  # Somebody may append to it without end.
            piece = os.read(handle, _PIECE_BYTES)
            if not piece:
                break
            content += piece
        return bytes(content)


@contextmanager
def open_for_reading(roots: WorkspaceRoots, root_path: RootPath) -> Iterator[int]:
    """Yield the open handle of a regular file of any size."""
    with _open_checked_file(roots, root_path) as handle:
        _require_regular_file(handle, roots.display_path(root_path))
        yield handle


def read_file_piece(roots: WorkspaceRoots, root_path: RootPath, start: int, length: int) -> bytes:
    with open_for_reading(roots, root_path) as handle:
        os.lseek(handle, start, os.SEEK_SET)
        return os.read(handle, length)


def stat_path(roots: WorkspaceRoots, root_path: RootPath) -> os.stat_result:
    """Return the status of a file or folder. Refuse anything else."""
    displayed_path = roots.display_path(root_path)
    with _explain_system_errors(displayed_path):
        if sys.platform == "win32" and root_path.full_path.is_dir():
            with folders.open_folder(
                root_path.root, root_path.inside, follows_links=not root_path.is_real
            ):
                return root_path.full_path.stat()
        with _open_checked_file(roots, root_path) as handle:
            status = os.fstat(handle)
            if stat.S_ISDIR(status.st_mode):
                return status
            return _require_regular_file(handle, displayed_path)


def read_file_or_none(roots: WorkspaceRoots, root_path: RootPath) -> bytes | None:
    with suppress(NotFound):
        return read_whole_file(roots, root_path)
    return None


def list_folder(roots: WorkspaceRoots, root_path: RootPath) -> list[FolderEntry]:
    """Return a folder's entries by name. Links are shown as links and not followed."""
    with _open_checked_folder(roots, root_path) as folder:
        entries = [_build_folder_entry(name, status) for name, status in folder.list_entries()]
    shown_entries = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        path_in_root = f"{root_path.inside}/{entry.name}".lstrip("/")
        if entry.kind == "folder" or not roots.is_hidden_inside(path_in_root):
            shown_entries.append(entry)
    return shown_entries


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """Which folder it is, whatever its path: another one has other numbers."""

    device: int
    inode: int


def identify_folder(roots: WorkspaceRoots, root_path: RootPath) -> FolderIdentity:
    """Return which folder is at this path now."""
    with _open_checked_folder(roots, root_path) as folder:
        return _identify_open_folder(folder)


@contextmanager
def open_same_folder(
    roots: WorkspaceRoots, root_path: RootPath, identity: FolderIdentity
) -> Iterator[Path]:
    """Yield a path to start a process in, which leads to the folder that was identified before, even
    if something else takes its place. Raises ActionRefused if something has taken it already.
    """
    with _open_checked_folder(roots, root_path) as folder:
        if _identify_open_folder(folder) != identity:
            raise ActionRefused(
                f"{roots.display_path(root_path)} was replaced by another folder in the meantime.",
                remedy="Nothing was run. Run the command again if it is meant for this folder.",
            )
        if sys.platform == "linux":
            yield Path(f"/proc/self/fd/{folder.handle}")
        else:
            yield root_path.full_path


def _identify_open_folder(folder: folders.OpenFolder) -> FolderIdentity:
    if sys.platform == "win32":
        status = folder.path.stat()
    else:
        status = os.fstat(folder.handle)
    return FolderIdentity(status.st_dev, status.st_ino)


def walk_files(
    roots: WorkspaceRoots, root_path: RootPath, skip: frozenset[str] = frozenset()
) -> Iterator[tuple[str, FolderEntry]]:
    """Yield every file within a folder as (path in the root, entry), folder by folder.
    Follows no links.

    Folders can be nested too deeply for recursion, so a list holds those that were entered, each
    with its entries that are still to come. The rest of a folder follows when all below is done.
    """
    entered_folders = [(root_path.inside, iter(list_folder(roots, root_path)))]
    while entered_folders:
        folder, entries = entered_folders[-1]
        entry = next(entries, None)
        if entry is None:
            entered_folders.pop()
            continue
        path_in_root = f"{folder}/{entry.name}".lstrip("/")
        if entry.kind == "file":
            yield path_in_root, entry
        elif entry.kind == "folder" and entry.name not in skip:
            with suppress(HelixError):
                subfolder = roots.resolve_path(str(root_path.root / path_in_root))
                entered_folders.append((path_in_root, iter(list_folder(roots, subfolder))))


def replace_file(
    roots: WorkspaceRoots, root_path: RootPath, content: bytes, *, expected: Digest | None
) -> None:
    """Replace a file by `content` if it still is what the caller saw (`expected`; None: no file).
    This creates a new file, so another hard link, perhaps outside the roots, keeps the old content.
    """
    _write_if_unchanged(roots, _follow_links(roots, root_path), content, expected)


def delete_file(roots: WorkspaceRoots, root_path: RootPath, *, expected: Digest) -> None:
    """Delete a file if it still is what the caller saw."""
    _write_if_unchanged(roots, root_path, None, expected)


def restore_entry(
    roots: WorkspaceRoots, root_path: RootPath, content: bytes | None, mode: int, link: str = ""
) -> None:
    """Put a file with this content, a link, or nothing (None) there. A folder in its
    place is moved aside.
    """
    puts_something = content is not None or bool(link)
    # With nothing to put there, a missing folder above is as good.
    with suppress(NotFound), _open_parent(roots, root_path, make=puts_something) as folder:
        name = root_path.full_path.name
        with suppress(FileNotFoundError):
            current_status = folder.stat_entry(name)
            if stat.S_ISDIR(current_status.st_mode):
                folder.replace_entry(name, f"{name}.helix-{token_hex(4)}")
            elif content is None or not stat.S_ISREG(current_status.st_mode):
                folder.delete_entry(name)
        if link:
            folder.create_link(link, name)
        elif content is not None:
            write_file_beside(folder, name, content, mode, replaces=True)


def normalise_spelling(path: str) -> str:
    """Return one spelling for all names that a file system may consider the same."""
    return unicodedata.normalize("NFC", path).casefold()


@contextmanager
def _open_checked_file(roots: WorkspaceRoots, root_path: RootPath) -> Iterator[int]:
    with _explain_system_errors(roots.display_path(root_path)):
        _check_root_exists(root_path)
        with folders.open_file(
            root_path.root, root_path.inside, follows_links=not root_path.is_real
        ) as handle:
            _check_handle_not_off_limits(roots, handle)
            yield handle


@contextmanager
def _open_checked_folder(
    roots: WorkspaceRoots, root_path: RootPath
) -> Iterator[folders.OpenFolder]:
    """Open a folder, and refuse the program's own data and hidden files, even if links lead
    there.
    """
    with _explain_system_errors(roots.display_path(root_path), root_path):
        _check_root_exists(root_path)
        with folders.open_folder(
            root_path.root, root_path.inside, follows_links=not root_path.is_real
        ) as folder:
            if sys.platform == "win32":
                roots.check_not_off_limits(folder.path)
            else:
                _check_handle_not_off_limits(roots, folder.handle)
            yield folder


def _check_root_exists(root_path: RootPath) -> None:
    if not root_path.root.exists():
        raise NotFound(f"The workspace's folder {root_path.root} no longer exists.")


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
    """Return an entry of a listing. What was removed since it was listed is of no known kind."""
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
    roots: WorkspaceRoots, root_path: RootPath, *, make: bool = False
) -> Iterator[folders.OpenFolder]:
    """Open the folder in which an entry is, and create it if it is missing and may be made."""
    if not root_path.inside:
        raise InvalidInput(f"{root_path.full_path} is a workspace folder, not a file.")
    parent = replace_field(root_path, inside=root_path.inside.rpartition("/")[0])
    if make:
        _create_missing_folders(roots, parent)
    with (
        _open_checked_folder(roots, parent) as folder,
        _explain_system_errors(roots.display_path(root_path)),
    ):
        yield folder


def _create_missing_folders(roots: WorkspaceRoots, root_path: RootPath) -> None:
    """Create a folder and those above it, each inside a folder that was opened safely."""
    with suppress(NotFound), _open_checked_folder(roots, root_path):
        return
    parent = replace_field(root_path, inside="")
    for name in root_path.inside.split("/"):
        subfolder = replace_field(root_path, inside=f"{parent.inside}/{name}".lstrip("/"))
        with (
            _open_checked_folder(roots, parent) as folder,
            _explain_system_errors(roots.display_path(subfolder)),
            suppress(FileExistsError),
        ):
            folder.create_folder(name)
        parent = subfolder


def _follow_links(roots: WorkspaceRoots, root_path: RootPath) -> RootPath:
    """Return where a link inside the root points, so that writing changes its target
    and keeps the link.
    """
    if root_path.is_real:
        return root_path
    current_path = root_path
    for _ in range(_MOST_LINKS):
        target = _link_target(roots, current_path)
        if not target:
            return current_path
        if Path(target).is_absolute():
            raise ActionRefused(
                f"{roots.display_path(current_path)} is a link that leads outside the workspace's folders."
            )
        # A relative target begins at the link's own folder.
        folder = current_path.inside.rpartition("/")[0]
        current_path = RootPath(current_path.root, f"{folder}/{target}".lstrip("/"))
    raise ActionRefused(f"{roots.display_path(current_path)} is a link that leads back to itself.")


def _link_target(roots: WorkspaceRoots, root_path: RootPath) -> str:
    """Return a link's target, or an empty string for anything else."""
    with suppress(NotFound), _open_parent(roots, root_path) as folder, suppress(OSError):
        return folder.read_link(root_path.full_path.name)
    return ""


def _stat_replaceable(
    folder: folders.OpenFolder, name: str, shown_path: str
) -> os.stat_result | None:
    """Return the status of a file that may be replaced, or None if there is none. Refuses what
    is not a plain file, and a file that is write-protected.
    """
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
    roots: WorkspaceRoots, root_path: RootPath, content: bytes | None, expected: Digest | None
) -> None:
    """Replace a file, or remove it (None), if it still is what the caller saw."""
    displayed_path = roots.display_path(root_path)
    changed_meanwhile = ActionRefused(
        f"{displayed_path} has changed since it was read. Nothing was written.",
        remedy="Read the file again first.",
    )
    with _open_parent(roots, root_path, make=content is not None) as folder:
        status = _stat_replaceable(folder, root_path.full_path.name, displayed_path)
        content_now = read_file_or_none(roots, root_path)
        digest_now = None
        if content_now is not None:
            digest_now = Digest.of_content(content_now)
        if digest_now != expected:
            raise changed_meanwhile
        try:
            _replace_or_remove(folder, root_path.full_path.name, content, status, expected)
        except atomic_swap.ChangedMeanwhile:
            raise changed_meanwhile from None


def _replace_or_remove(
    folder: folders.OpenFolder,
    name: str,
    content: bytes | None,
    status: os.stat_result | None,
    expected: Digest | None,
) -> None:
    """Write or remove the file (`content` is None). What was taken out is checked once more,
    as others may have saved meanwhile. `status`: the file's now, or None without one.
    """
    mode = 0
    if status is not None:
        mode = stat.S_IMODE(status.st_mode)
    if sys.platform == "win32":
        # Windows cannot exchange two files, so nothing is checked there any more.
        if content is None:
            folder.delete_entry(name)
        else:
            write_file_beside(folder, name, content, mode, replaces=True)
        return
    current_item = None
    if status is not None:
        current_item = TreeItem(PathKind.FILE, mode, status.st_size)
    expected_hash = b""
    if expected is not None:
        expected_hash = expected.raw
    if content is not None:
        new_file_name = write_file_beside(folder, name, content, mode, replaces=False)
        atomic_swap.swap_into_place(folder.handle, name, new_file_name, current_item, expected_hash)
        os.fsync(folder.handle)
    elif current_item is not None:
        atomic_swap.remove_if_expected(folder.handle, name, current_item, expected_hash)


def write_file_beside(
    folder: folders.OpenFolder, name: str, content: bytes, mode: int, *, replaces: bool
) -> str:
    """Write and sync a new file beside the one it will replace, or has already replaced
    (`replaces`).
    """
    new_file_name = f".{name[:60]}.{token_hex(6)}.helix"
    handle = folder.create_file(new_file_name)
    try:
        with closing_handle(handle):
            write_to_handle(handle, content)
            if mode:
                folders.set_file_mode(handle, mode)
            os.fsync(handle)
        if replaces:
            folder.replace_entry(new_file_name, name)
    except BaseException:
        with suppress(OSError):
            folder.delete_entry(new_file_name)
        raise
    return new_file_name


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


def _error_in_words(shown_path: str, error: OSError) -> HelixError:  # noqa: PLR0911 -- one for each kind of error
    """Return an error that says in words what the system's error number means for this path."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            remedy = "Use list_files or glob_files to see what is there."
            return NotFound(f"{shown_path} does not exist.", remedy=remedy)
        case errno.ENAMETOOLONG:
            return InvalidInput(
                f"The name {shown_path[:80]}… is longer than the file system allows."
            )
        case errno.EXDEV | errno.ELOOP:
            return ActionRefused(
                f"{shown_path} points outside the workspace's folders, or it was changed while it was being opened."
            )
        case errno.ENXIO | errno.ENODEV:
            return ActionRefused(f"{shown_path} is a device, a pipe or a socket, not a file.")
        case errno.ENOSPC | errno.EDQUOT:
            return ActionRefused(
                f"The disk is full, so there is no room for {shown_path}. The file is unchanged."
            )
    if shown_path == ".":
        return ActionRefused(
            f"The system doesn't allow this operation on the workspace's folder ({error.strerror})."
        )
    return ActionRefused(
        f"The system doesn't allow this operation on {shown_path} ({error.strerror})."
    )
