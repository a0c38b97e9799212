"""Copies of a repository whose maker is killed at any moment: nothing of the user's
changes, and what is left hinders nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from helix_desktop import concurrency
from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.token_counting import TiktokenCounter
from helix_desktop.tools.toolbox import WorkspacePermissions
from helix_desktop.tools.workspace_tools import WorkspaceTools
from helix_desktop.workbench import copy_files
from helix_desktop.workbench.copy_files import FolderCopy

EIGHT = 8
LONGEST = 0.6  # Seconds until the kill: a copy takes a fifth of that.


def git(folder: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True).stdout


async def open_kit(project: Path) -> WorkspaceTools:
    cache = MemoryCache()
    stores = (cache, MemoryIndex(MemoryJournal(), cache), TiktokenCounter())
    return await WorkspaceTools.open_workspace_tools(
        [project],
        stores,
        permissions=WorkspacePermissions(),
        spawn=concurrency.OwnedTasks("copies").spawn_task,
    )


def make_copy(folder: Path, kit: WorkspaceTools) -> FolderCopy:
    copy = replace(copy_files.create_copy_files(folder, kit, True, None), is_whole=True)
    copy_files.save_copy_description(copy)
    return copy


def make_and_delete(kit: WorkspaceTools, folder: Path) -> None:
    """What the child does until it is killed."""
    for number in count():
        copy = make_copy(folder / f"{os.getpid()} {number}", kit)
        if number % 2:
            gone = copy.folder.rename(folder / f"{copy.id}.discarded")
            delete_folder_tree(gone, ignore_errors=True)


def kill_a_maker(kit: WorkspaceTools, folder: Path, seconds: float) -> None:
    if (child := os.fork()) == 0:
        try:
            make_and_delete(kit, folder)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def state_of(project: Path) -> list[bytes]:
    said = [
        git(project, *words.split())
        for words in ("for-each-ref", "--no-optional-locks status -z", "fsck --strict")
    ]
    files = sorted(path for path in project.rglob("*") if path.is_file())
    return [*said, *(path.read_bytes() for path in files), "\n".join(map(str, files)).encode()]


def create_project(project: Path) -> None:
    project.mkdir()
    for number in range(50):
        (project / f"file{number}").write_text(f"{number}\n" * 200)
    git(project, "init", "-q", ".")
    git(project, "add", "-A")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    for number in range(0, 50, 7):
        (project / f"file{number}").write_text("not committed\n")
    (project / "new").write_text("new\n")


def trials(kills: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="helix-copies-") as base:
        project = Path(base).resolve() / "project"
        folder = Path(base).resolve() / "copies"
        create_project(project)
        before = state_of(project)
        kit = asyncio.run(open_kit(project))
        for _ in range(kills):
            kill_a_maker(kit, folder, chance.uniform(0, LONGEST))
            found["kills"] += 1
        found["LOST: the user's repository is another"] += state_of(project) != before
        commit = git(project, "rev-parse", "HEAD")
        for left in sorted(folder.glob("*")):
            copy = copy_files.read_copy_description(left)
            found["whole" if copy.is_whole else "unfinished"] += 1
            found["LOST: a copy that nobody can read"] += bool(copy.problem)
            if copy.is_whole:
                found["LOST: a whole copy lacks something"] += (
                    git(left / "0", "rev-parse", "HEAD") != commit
                )
                found["LOST: a whole copy lacks something"] += (
                    len(git(left / "0", "status", "-z").split(b"\0")) != 10
                )
            delete_folder_tree(left, ignore_errors=True)
            found["LOST: what was left can't be deleted"] += left.exists()
        make_copy(folder / "afterwards", kit)
        asyncio.run(kit.aclose())
    found += Counter()  # Without those that are 0.


def rewrite_side_by_side(rounds: int, seed: int, found: Counter[str]) -> None:
    """Eight at once rewrite the same files in copies of their own, and commit; each
    must have its own bytes alone.
    """
    with tempfile.TemporaryDirectory(prefix="helix-copies-") as base:
        project = Path(base).resolve() / "project"
        folder = Path(base).resolve() / "copies"
        create_project(project)
        before = state_of(project)
        commit = git(project, "rev-parse", "HEAD")
        kit = asyncio.run(open_kit(project))
        for turn in range(rounds):
            with concurrency.create_thread_pool("copies", threads=EIGHT) as pool:
                found += sum(
                    pool.map(
                        partial(_rewrite_copy, folder, kit, commit, f"{seed} {turn}"), range(EIGHT)
                    ),
                    Counter(),
                )
        found["LOST: the user's repository is another"] += state_of(project) != before
        asyncio.run(kit.aclose())


def _rewrite_copy(
    folder: Path, kit: WorkspaceTools, commit: bytes, turn: str, number: int
) -> Counter[str]:
    copy = make_copy(folder / f"{turn} {number}", kit)
    work = copy.folder / "0"
    found = Counter({"copies": 1})
    found["LOST: the base is another"] += copy.repositories[0].base.encode() + b"\n" != commit
    for name in range(50):
        (work / f"file{name}").write_text(f"{copy.id} {name}\n" * 50)
    git(work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", copy.id)
    for name in range(50):
        own = f"{copy.id} {name}\n" * 50
        there = (work / f"file{name}").read_text(), git(work, "show", f"HEAD:file{name}").decode()
        found["LOST: foreign bytes"] += there != (own, own)
    delete_folder_tree(copy.folder, ignore_errors=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    trials(arguments.kills, arguments.seed, found)
    rewrite_side_by_side(max(1, arguments.kills // EIGHT), arguments.seed, found)
    for key, number in sorted(found.items()):
        print(f"{number:>8} {key}")
    return int(any(number for key, number in found.items() if key.startswith("LOST")))


if __name__ == "__main__":
    sys.exit(main())
