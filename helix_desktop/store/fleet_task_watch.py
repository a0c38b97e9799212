"""Which closed workspaces have tasks to run, seen without opening them.

An open workspace takes about 22 file handles and 4 threads, so a worker of a thousand
workspaces opens only those that have a task. The list of tasks is a file of its own,
and is only read again after it has changed.
"""

import math
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import fleet_task_files

# A workspace whose worker found nothing that it may do is not opened again before its
# list changes, or this time has passed: all may be stopped, or the budget spent.
UNCHANGED_SECONDS = 30.0
FileStamp = tuple[int, ...]


@dataclass(slots=True)
class _WatchedList:
    """A list of tasks, with its stamp when it was read last. Even if it does not change,
    it is read again at `read_again_at`, by the clock that does not jump.
    """

    path: Path
    stamp: FileStamp = ()
    read_again_at: float = 0.0


class FleetTaskWatch:
    """`folders`: those of the workspaces, by id. They are not shared."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._lists = {
            workspace: _WatchedList(folder / fleet_task_files.TASK_FILE)
            for workspace, folder in folders.items()
        }

    def find_workspaces_with_tasks(self, opened: Collection[str] = ()) -> list[str]:
        """Return those that have a task to run now, except the opened ones."""
        with_tasks: list[str] = []
        for workspace, watched in self._lists.items():
            if workspace in opened:
                continue
            if _has_task_to_run(watched):
                with_tasks.append(workspace)
        return with_tasks

    def note_closed(self, workspace: str) -> None:
        """Note that a worker has closed the workspace, so what it left is not for now."""
        watched = self._lists.get(workspace)
        if watched is None:
            return
        pause_seconds = UNCHANGED_SECONDS
        watched.stamp = _read_stamp(watched.path)
        if watched.stamp:
            ahead = fleet_task_files.find_tasks_ahead(watched.path)
            if ahead.next_try_seconds is not None:
                pause_seconds = min(pause_seconds, ahead.next_try_seconds)
        watched.read_again_at = time.monotonic() + pause_seconds


def _has_task_to_run(watched: _WatchedList) -> bool:
    """Whether the list has a task to run now. An unchanged list is not read again, and has
    none, since what it had was found the last time.
    """
    stamp = _read_stamp(watched.path)
    if not stamp:  # The workspace never had a task.
        return False
    now = time.monotonic()
    is_unchanged = stamp == watched.stamp
    if is_unchanged and now < watched.read_again_at:
        return False

    ahead = fleet_task_files.find_tasks_ahead(watched.path)
    watched.stamp = stamp
    if ahead.next_try_seconds is None:
        watched.read_again_at = math.inf
    else:
        watched.read_again_at = now + ahead.next_try_seconds
    return ahead.has_work


def _read_stamp(path: Path) -> FileStamp:
    """Return what differs after each change of the file or its log. Empty without a file."""
    stamp: list[int] = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = file.stat()
        except OSError:
            continue
        stamp += [status.st_ino, status.st_size, status.st_mtime_ns]
    return tuple(stamp)
