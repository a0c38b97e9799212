"""Learns from the kernel (inotify) which folders may have changed. In doubt, all
folders are walked.

The kernel queues a change before the call that made it returns, so the queue has every
earlier change, or says that it overflowed. Only a walk finds writes through mapped
memory or another hard link.
"""

import ctypes
import os
import select
import struct
import sys
from contextlib import suppress

_EVENT = struct.Struct("iIII")
_CHANGED = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_ONLY_FOLDERS = 0x01000000
_OVERFLOW = 0x4000
_IGNORED = 0x8000
_FROM = 0x40
_MOVED = 0x800
_FOLDER = 0x40000000
_READ = 1 << 20


class FolderWatch:
    """`is_in_doubt`: a folder is not watched or a change was missed, until all are walked."""

    def __init__(self) -> None:
        self.is_in_doubt = True
        self._handle = -1
        self._folders: dict[int, str] = {}
        self._watched: set[str] = set()  # Watched folders, by their paths in the last walk.
        if sys.platform.startswith("linux"):
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._handle = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    @property
    def is_watching(self) -> bool:
        return self._handle >= 0

    def forget_changes_before_walk(self) -> None:
        """Forget earlier changes, since a walk of all folders follows."""
        self.is_in_doubt = not self.is_watching
        self.pop_changed_folders()

    def watch_listed_folder(self, path: str, handle: int, same: bool = False) -> None:  # noqa: FBT001, FBT002 -- as the walk calls it
        """Watch a folder that is about to be listed. `same`: it is the last walk's folder."""
        if not self.is_watching or (same and path in self._watched):
            return
        place = f"/proc/self/fd/{handle}/.".encode()
        number = int(self._libc.inotify_add_watch(self._handle, place, _CHANGED | _ONLY_FOLDERS))
        if number < 0:
            self.is_in_doubt = True
        else:
            self._folders[number] = path
            self._watched.add(path)

    def wait_for_change(self, until: int) -> None:
        """Sleep until a watched folder changes, or `until` can be read or is closed at
        its other end.
        """
        poll = select.poll()
        for handle in (self._handle, until):
            poll.register(handle, select.POLLIN)
        poll.poll()

    def pop_changed_folders(self) -> set[str]:
        """Return the folders in which something changed since the last call."""
        changed_folders: set[str] = set()
        while self.is_watching:
            try:
                events = os.read(self._handle, _READ)
            except BlockingIOError:
                break  # The kernel's queue is empty.
            except OSError:
                self.is_in_doubt = True
                break
            event_start = 0
            while event_start < len(events):
                watch_number, mask, _, name_length = _EVENT.unpack_from(events, event_start)
                event_start += _EVENT.size + name_length  # The name in an event is not needed.
                self._apply_kernel_event(watch_number, mask, changed_folders)
        return changed_folders

    def _apply_kernel_event(self, watch_number: int, mask: int, changed_folders: set[str]) -> None:
        """Add the event's folder to the changed ones, or note that more may have changed."""
        if mask & _OVERFLOW:
            self._mark_changes_missed()
        elif mask & _IGNORED:
            self._watched.discard(self._folders.pop(watch_number, ""))
        elif watch_number in self._folders:
            changed_folders.add(self._folders[watch_number])
            is_folder_moved_from_here = mask & _FROM and mask & _FOLDER
            if mask & _MOVED or is_folder_moved_from_here:
                # Everything in a moved folder has a new path.
                self._mark_changes_missed()

    def _mark_changes_missed(self) -> None:
        """Note that changes were missed, so that all folders are walked and watched again."""
        self.is_in_doubt = True
        self._watched.clear()

    def close(self) -> None:
        if self.is_watching:
            with suppress(OSError):
                os.close(self._handle)
            self._handle = -1

    # Closes it if opening is interrupted: by default, Linux allows each user only 128
    # of these.
    __del__ = close
