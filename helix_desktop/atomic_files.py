"""Writes files atomically: after a crash or on a full disk a file has its old or its
new content, never half of it.
"""

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from helix_desktop.errors import ConfigFileMistake, InvalidInput, StoreFailed

# The umask takes permissions away from these. It may be 000 where a service manager started us.
MOST_OPEN_FOLDER = 0o775
MOST_OPEN_FILE = 0o664
_NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_UNNAMED_FILE_FLAG = getattr(os, "O_TMPFILE", 0)
_HEX_DIGITS = frozenset("0123456789abcdef")
# Matches temporary files, which are beside a file while it is being replaced.
_TEMPORARY_FILES = ".*-????????"
# A temporary file of this age was left by a crash and can be deleted.
_ABANDONED_AFTER_SECONDS = 3_600.0

if sys.platform == "win32":
    import msvcrt

    def lock_open_file(handle: int, *, waits: bool = False) -> None:
        """Locks an open file. If it is locked already, waits if `waits`, and raises
        OSError otherwise.
        """
        # Locks a byte far beyond the text, so that other processes can still read the text.
        os.lseek(handle, 1 << 30, os.SEEK_SET)
        mode = msvcrt.LK_NBLCK
        if waits:
            mode = msvcrt.LK_LOCK
        msvcrt.locking(handle, mode, 1)
        os.lseek(handle, 0, os.SEEK_SET)

else:
    import fcntl

    def lock_open_file(handle: int, *, waits: bool = False) -> None:
        operation = fcntl.LOCK_EX
        if not waits:
            operation |= fcntl.LOCK_NB
        fcntl.flock(handle, operation)


class ReplacementFile:
    """A new version of the file `path`. If the system allows it, the new file has no
    name until it is complete.
    """

    def __init__(self, path: Path, mode: int = MOST_OPEN_FILE) -> None:
        self._target = path
        self._temporary_path = path.with_name(f".{path.name[:200]}-{os.urandom(4).hex()}")
        self.file = os.fdopen(self._open_beside_target(mode), "w+b")

    def _open_beside_target(self, mode: int) -> int:
        if _UNNAMED_FILE_FLAG:
            # Not all file systems support this. If the disk is full, the next call reports it.
            with suppress(OSError):
                return os.open(self._target.parent, _UNNAMED_FILE_FLAG | os.O_RDWR, mode)
        return os.open(self._temporary_path, _NEW_FILE_FLAGS, mode)

    def replace_target(self) -> None:
        """Syncs the new file to the disk, and then replaces the old one."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            if not self._temporary_path.exists() and os.name != "nt":
                self._give_unnamed_file_its_name()
            self.file.close()  # On Windows, a file cannot be moved while it is open.
            self._temporary_path.replace(self._target)
            sync_folder_to_disk(self._target.parent)
        finally:
            self.discard_replacement()

    def _give_unnamed_file_its_name(self) -> None:
        """Gives it the name of a temporary file beside the target, from which it can be renamed."""
        folder = os.open(self._target.parent, os.O_RDONLY)
        try:  # With a folder's handle, os.link follows the link in /proc to the unnamed file.
            source = f"/proc/self/fd/{self.file.fileno()}"
            os.link(source, self._temporary_path, src_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)

    def discard_replacement(self) -> None:
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self._temporary_path.unlink(missing_ok=True)


def find_abandoned_files(folder: Path) -> Iterator[Path]:
    for path in folder.glob(_TEMPORARY_FILES):
        with suppress(OSError):
            status = path.lstat()
            is_file = stat.S_ISREG(status.st_mode)
            has_our_name = _HEX_DIGITS.issuperset(path.name[-8:])
            # A time far in the future comes from a clock that was ahead.
            is_old = abs(time.time() - status.st_mtime) > _ABANDONED_AFTER_SECONDS
            if is_file and has_our_name and is_old:
                yield path


def read_settings_text(path: Path) -> str:
    """Reads a settings file that people edit. Raises FileNotFoundError, or
    ConfigFileMistake with the reason.

    Editors of Windows may put a byte order mark at the beginning, which is no part of the text.
    """
    try:
        return read_small_file(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise
    except InvalidInput as error:
        raise ConfigFileMistake(error.what, remedy=error.remedy) from error
    except UnicodeDecodeError as error:
        raise ConfigFileMistake(
            f"{path} is not UTF-8 text.", remedy="Save the file as UTF-8."
        ) from error
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror}.") from error


def write_file_atomically(path: Path, text: str | bytes, *, private: bool = False) -> None:
    """Replaces the content of a file. If the path is a link, the file that it points to
    is replaced.

    `private` makes the file readable by this user only, from the first byte. Otherwise it keeps its
    permissions, or gets those of any new file.
    """
    if isinstance(text, str):
        content = _encode_as_utf8(text, path)
    else:
        content = text
    try:
        _write_replacement(Path(os.path.realpath(path)), content, private=private)
    except OSError as error:
        raise StoreFailed(
            f"{path} could not be written: {error.strerror}.", remedy="Nothing was changed."
        ) from error


def _encode_as_utf8(text: str, path: Path) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"Only UTF-8 text can be written to {path.name}.", remedy="Nothing was changed."
        ) from error


def _write_replacement(path: Path, content: bytes, *, private: bool) -> None:
    create_folders(path.parent)
    exists = path.exists()
    mode = MOST_OPEN_FILE
    if private or exists:  # An existing file's permissions are set before it is replaced.
        mode = 0o600
    replacement = ReplacementFile(path, mode)
    try:
        replacement.file.write(content)
        if exists and not private and os.name != "nt":
            permissions = stat.S_IMODE(path.stat().st_mode)
            os.fchmod(replacement.file.fileno(), permissions)
        replacement.replace_target()
    finally:
        replacement.discard_replacement()


def create_folders(path: Path) -> None:
    """Creates a folder and those above it. With a umask of 000, too, only the user and the
    user's group can write to them.
    """
    missing = []
    folder = path
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(mode=MOST_OPEN_FOLDER, exist_ok=True)
    if not missing and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


@contextmanager
def hold_for_change(path: Path) -> Iterator[None]:
    """Locks out other processes while a file is read, changed and written back.

    The folder is locked, so no lock file is left behind, and locks within one folder must not be
    nested. Nothing is locked where folders cannot be locked: on Windows, and on some network disks.
    """
    handle = -1
    try:
        with suppress(OSError):
            create_folders(path.parent)
            handle = os.open(path.parent, os.O_RDONLY)
            lock_open_file(handle, waits=True)
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def read_small_file(path: Path, limit_bytes: int = 4 << 20) -> bytes:
    """Reads a small regular file. InvalidInput for anything else: a pipe would block,
    and a device never ends.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(f"{path} is not a regular file.", remedy="Choose a text file.")
        if status.st_size > limit_bytes:
            raise InvalidInput(
                f"{path} is larger than {limit_bytes >> 20} MB.",
                remedy="Replace the file with a smaller one.",
            )
        return file.read(limit_bytes)


def make_path_private(path: Path) -> None:
    """Makes a file or folder readable by this user only. What belongs to somebody else
    is left unchanged.
    """
    if os.name == "nt":
        return
    if path in (Path.home(), Path("/")):
        return
    with suppress(OSError):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        is_ours = status.st_uid == os.getuid()
        is_shared_by_all = bool(mode & stat.S_ISVTX)  # Such as /tmp.
        if not is_ours or is_shared_by_all or stat.S_ISLNK(status.st_mode):
            return
        if mode & 0o077:
            path.chmod(mode & 0o700)


def create_private_folder(path: Path) -> None:
    """Creates a folder that only this user can enter, and those above it, if they are missing."""
    create_folders(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def ensure_private_folder(path: Path) -> None:
    create_private_folder(path)
    make_path_private(path)


def sync_folder_to_disk(folder: Path) -> None:
    """Flushes a folder, so that a rename or a new file in it survives a power cut.
    Windows needs no such call.
    """
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
