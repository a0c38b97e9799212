"""Files that stand there whole or not at all, also when the power goes or the disk is full while they are written."""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from helix_desktop.errors import StoreFailed, WrongUse

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def write(path: Path, text: str | bytes, *, private: bool = False) -> None:
    """Put the text, or the bytes, in the file's place; where that is a link, in the place of what it names.

    `private`: for this user alone, from the first byte on. Else with the rights the file had, or those of any new one.
    """
    try:
        content = text.encode("utf-8") if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise WrongUse(f"What is not UTF-8 cannot stand in {path.name}.", remedy="Nothing was changed.") from error
    try:
        _put(Path(os.path.realpath(path)), content, private=private)
    except OSError as error:
        raise StoreFailed(f"{path} could not be written: {error.strerror}.", remedy="It is as it was.") from error


def _put(path: Path, content: bytes, *, private: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    there = path.exists()
    beside = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with os.fdopen(os.open(beside, _NEW, 0o600 if private or there else 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if there and not private:
            shutil.copymode(path, beside)
        beside.replace(path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new file in `folder` last; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
