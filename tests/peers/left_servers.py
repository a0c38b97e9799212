"""Ends what a trial left running that was killed, such as its PostgreSQL server, and
removes its folders.

A trial that is killed can end nothing itself. So a second process, which runs this file
as a program, holds the reading end of a pipe. The trial writes the folders of its
servers to the pipe. Once the pipe is closed, the trial has ended in whatever way, and
everything that still runs in one of these folders ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import IO

WATCH = "watch"
FORGET = "forget"
PATIENCE_SECONDS = 10.0  # What has not ended in order after so long is killed.

# The watching process of this trial, once it has a folder to watch.
_watchers: list[subprocess.Popen[str]] = []


def watch_folder(folder: Path) -> None:
    """End what runs in this folder, and remove it, once this process has ended."""
    if not _watchers:
        _watchers.append(_start_watcher())
        atexit.register(_end_watcher)
    _tell_watcher(WATCH, folder)


def forget_folder(folder: Path) -> None:
    """Leave the folder alone: whoever asked for the watch has removed it."""
    _tell_watcher(FORGET, folder)


def watching_process_id() -> int:
    return _watchers[0].pid


def _start_watcher() -> subprocess.Popen[str]:
    # In a session of its own, where Ctrl+C in the trial's terminal does not reach it.
    return subprocess.Popen(
        [sys.executable, "-I", __file__],
        stdin=subprocess.PIPE,
        text=True,
        cwd="/",
        start_new_session=True,
    )


def _tell_watcher(word: str, folder: Path) -> None:
    for watcher in _watchers:
        assert watcher.stdin is not None
        watcher.stdin.write(f"{word} {folder}\n")
        watcher.stdin.flush()


def _end_watcher() -> None:
    for watcher in _watchers:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()


# --- What the watching process does


def read_folders(lines: Iterable[str]) -> set[Path]:
    """Return the folders that are left to clean up once the lines end."""
    folders: set[Path] = set()
    for line in lines:
        word, _, path = line.rstrip("\n").partition(" ")
        if word == WATCH:
            folders.add(Path(path))
        else:
            folders.discard(Path(path))
    return folders


def end_what_runs_in(folders: Collection[Path]) -> None:
    # PostgreSQL ends its own processes at SIGQUIT, but not at SIGKILL.
    _signal_processes(folders, signal.SIGQUIT)
    until = time.monotonic() + PATIENCE_SECONDS
    while _find_processes(folders) and time.monotonic() < until:
        time.sleep(0.05)
    _signal_processes(folders, signal.SIGKILL)
    for folder in folders:
        _unmount_disks_in(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _unmount_disks_in(folder: Path) -> None:
    """Some trials have disks of their own there, or the folder is one."""
    mounted = []
    for path in (folder, *folder.glob("*")):
        if path.is_mount():
            mounted.append(str(path))
    if mounted:
        subprocess.run(["umount", "--lazy", *mounted], check=False)


def _signal_processes(folders: Collection[Path], sign: signal.Signals) -> None:
    for process_id in _find_processes(folders):
        try:
            os.kill(process_id, sign)
        except ProcessLookupError:
            continue


def _find_processes(folders: Collection[Path]) -> list[int]:
    """Return the processes whose working folder or command line names one of the folders."""
    process_ids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _belongs_to(entry, folders):
            process_ids.append(int(entry.name))
    return process_ids


def _belongs_to(process: Path, folders: Collection[Path]) -> bool:
    try:
        working_folder = (process / "cwd").readlink()
        command_line = os.fsdecode((process / "cmdline").read_bytes())
    except OSError:  # It has ended, or is somebody else's.
        return False
    for folder in folders:
        if working_folder.is_relative_to(folder) or str(folder) in command_line:
            return True
    return False


def main(pipe: IO[str]) -> None:
    end_what_runs_in(read_folders(pipe))


if __name__ == "__main__":
    main(sys.stdin)
