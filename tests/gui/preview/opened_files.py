"""Whether a file is opened, as the system sees it. Linux only."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import TracebackType
from typing import Self

_OPENED = 0x20


class OpenedFiles:
    """Notes each opening of these files until it is closed, also by libraries."""

    def __init__(self, *files: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._files = files

    def __enter__(self) -> Self:
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK)
        for file in self._files:
            if self._libc.inotify_add_watch(self._handle, os.fsencode(file), _OPENED) < 0:
                raise OSError(ctypes.get_errno(), str(file))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._handle)

    def is_any_opened(self) -> bool:
        try:
            return bool(os.read(self._handle, 4096))
        except BlockingIOError:
            return False
