"""Copies a workspace for reading: if its disk is full or read-only, or to search it
while it is closed.

Opening the stores writes: LevelDB begins a log, and SQLite shares memory through a
file. So they are opened in a temporary folder that replaces the workspace: small files
are copied, and LevelDB's tables, which never change, are linked. The workspace itself
is not touched, and writes to the copy are lost.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from helix_desktop.atomic_files import create_private_folder
from helix_desktop.errors import StoreBusy, StoreFailed
from helix_desktop.store.workspace_lock import WorkspaceLock
from helix_desktop.store.workspace_settings import NAME

_COPIED = (
    NAME,
    "journal.sqlite3",
    "journal.sqlite3-wal",
    "journal.mended",
    "index.sqlite3",
    "index.sqlite3-wal",
)
_TABLES = {".ldb", ".sst"}
_SPARE_BYTES = 64 << 20  # Bytes. LevelDB needs this much space to open.


def is_disk_unwritable(folder: Path) -> bool:
    """Whether the disk of this folder is full or read-only."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return True
    return False


@contextmanager
def copy_for_reading(workspace: Path) -> Iterator[Path]:
    """Yield a folder of the same name to open instead. Raises StoreBusy while the
    workspace is open.
    """
    with ExitStack() as closing:
        try:
            closing.callback(WorkspaceLock(workspace / "lock").release_lock)
        except StoreBusy:
            raise
        except StoreFailed:
            pass  # If not even the lock can be opened, nobody writes.
        yield closing.enter_context(copy_cache_for_reading(workspace, _COPIED))


@contextmanager
def copy_cache_for_reading(workspace: Path, names_beside: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder with the cache of a workspace and the files `names_beside` it.

    LevelDB's tables, which are large and never change, become links; the other files are copied. It
    takes no lock, so reads must be checked.
    """
    with ExitStack() as closing:
        try:
            paths = [workspace / name for name in names_beside]
            paths += (workspace / "cache").glob("*")
            files = [path for path in paths if path.is_file()]
            needed_bytes = _SPARE_BYTES + _bytes_to_copy(files)
            folder_with_room = _find_folder_with_room(needed_bytes)
            making_folder = tempfile.TemporaryDirectory(
                prefix="helix-reading-", dir=folder_with_room
            )
            temporary_folder = closing.enter_context(making_folder)
            copy = Path(temporary_folder) / workspace.name
            create_private_folder(copy / "cache")
            for file in files:
                file_in_copy = copy / file.relative_to(workspace)
                _link_table_or_copy(file, file_in_copy)
        except OSError as error:
            raise StoreFailed(f"{workspace} cannot be read: {error.strerror}.", remedy="Nothing was changed.") from error  # fmt: skip
        yield copy


def _bytes_to_copy(files: Sequence[Path]) -> int:
    """Return the size of the files that are copied, which are all but the tables."""
    return sum(file.stat().st_size for file in files if file.suffix not in _TABLES)


def _find_folder_with_room(needed_bytes: int) -> str:
    """Return a folder with that much room: in memory, the user's run folder, or the usual place."""
    for folder in ("/dev/shm", os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir()):  # noqa: S108
        if folder and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > needed_bytes:
            return folder
    raise StoreFailed(
        f"The disk is full or read-only, and no other folder has the {needed_bytes >> 20:,} MB needed for a temporary copy.",
        remedy="Nothing was changed. Free up space, or set TMPDIR to another folder.",
    )


def _link_table_or_copy(file: Path, file_in_copy: Path) -> None:
    if file.suffix in _TABLES:
        file_in_copy.symlink_to(file)
    else:
        shutil.copyfile(file, file_in_copy)
