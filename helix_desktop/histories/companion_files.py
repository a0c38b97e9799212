"""Reads files beside a history, but never outside its folder, even if links lead there."""

import errno
import os
import stat
import sys
from pathlib import Path

from helix_desktop.folder_trees import list_tree_files
from helix_desktop.tools.safe_path_opening import DIRECTORY, choose_opener, closing_handle

LARGEST = 256 << 20


def read_file_below(folder: Path, path: str, limit_bytes: int = LARGEST) -> bytes:
    """Read a regular file in the folder. Raises OSError for a larger one, or anything else."""
    if sys.platform == "win32":
        return _read_file_by_resolved_path(folder, path, limit_bytes)
    with closing_handle(os.open(folder, DIRECTORY)) as inside:
        handle = choose_opener()(inside, path, os.O_RDONLY)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit_bytes:
            raise OSError(errno.EFBIG, "is no file, or too large", path)
        return file.read(limit_bytes)


def list_files_below(folder: Path, *patterns: str, allowed_root: Path | None = None) -> list[Path]:
    """Return the files below a folder. Links that lead out of it, or of `allowed_root`,
    are not followed.
    """
    files: set[Path] = set()
    try:
        root = (allowed_root or folder).resolve()
        for pattern in patterns:
            for file, _status in list_tree_files(folder, pattern):
                if file.is_file() and file.resolve().is_relative_to(root):
                    files.add(file)
    except OSError:
        return []
    return sorted(files)


def _read_file_by_resolved_path(folder: Path, path: str, limit_bytes: int) -> bytes:
    """Do the same on Windows, where no file can be opened relative to an open folder."""
    file = (folder / path).resolve(strict=True)
    is_in_folder = file.is_relative_to(folder.resolve())
    if not is_in_folder or not file.is_file() or file.stat().st_size > limit_bytes:
        raise OSError(errno.EXDEV, "leads out of the folder, or is too large", path)
    return file.read_bytes()
