"""Checkpoints and undo under attack: hostile turns, SIGKILL at any moment, a second
writer, links swapped all the time.

python -m tests.faults.checkpoints [--trials 1000] [--files N] [--seed 1] [--only
hostile,kill,writer,links]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathChange
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import HelixError
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.checkpoints import Checkpoints
from tests.faults.confinement import SWAP
from tests.faults.store_report import report
from tests.tools.changes import hostile
from tests.tools.changes.conftest import Read, state

# turns after which every byte is compared, also of files whose times say that nothing
# happened
WHOLE = 20
KINDS = ("hostile", "kill", "writer", "links")


def trials(
    found: Counter[str], count: int, files: int, seed: int, only: tuple[str, ...] = KINDS
) -> None:
    """`count` hostile turns, half as many kills, a third with a second writer, twenty
    link races for each turn.
    """
    base = Path(tempfile.mkdtemp(prefix="helix-net-"))
    acts: dict[str, Callable[[], None]] = {
        "hostile": lambda: asyncio.run(_hostile(base / "hostile", count, files, seed, found)),
        "kill": lambda: _kills(base / "kill", max(1, count // 2), seed, found),
        "writer": lambda: asyncio.run(
            _writer(base / "writer", max(1, count * 3 // 10), seed, found)
        ),
        "links": lambda: asyncio.run(_links(base / "links", count * 20, seed, found)),
    }
    try:
        for name in only:
            acts[name]()
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextlib.asynccontextmanager
async def net(base: Path) -> AsyncIterator[Checkpoints]:
    """A folder's checkpoints on real stores; the folder and the stores outlive it."""
    folder = base / "project"
    home = base / "home"
    folder.mkdir(parents=True, exist_ok=True)
    known = AllWorkspaces(home)
    there = known.list_workspaces() or (known.create_stored_workspace("net", folder),)
    workspace = await known.open_stored_workspace(there[0].id)
    checkpoints = Checkpoints([folder], workspace.cache, file=base / "known")
    try:
        yield checkpoints
    finally:
        await checkpoints.aclose()
        await workspace.aclose()


async def _hostile(base: Path, count: int, files: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    folder = base / "project"
    folder.mkdir(parents=True)
    hostile.fill(folder, chance, files)
    (folder / "large.bin").write_bytes(chance.randbytes(1 << 20) * 101)
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    subprocess.run(
        ["git", "config", "gc.auto", "0"], cwd=folder, check=True
    )  # nothing in .git changes behind our back
    (folder / ".git" / "info" / "exclude").write_text(
        "large.bin\n"
    )  # so `git clean -fdx` deletes it, and no commit has it
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
        cwd=folder,
        check=True,
    )
    subprocess.run(
        ["git", "repack", "-adq"], cwd=folder, check=True
    )  # one file to compare, not one for each object
    read: Read = {}
    before = state(folder, read)
    async with net(base) as checkpoints:
        await checkpoints.ensure_first_check()
        for number in range(count):
            window = await checkpoints.begin_step("1", "c", "command")
            if window is None:
                found[f"LOST: no checkpoint in turn {number}"] += 1
                return
            hostile.turn(folder, chance)
            git = hostile.git_state(folder)
            fact = await checkpoints.end_step(window)
            if fact is not None:
                changes = folder_state.decode_difference(
                    await checkpoints.contents.read_content(fact.difference.digest)
                )
                done = await change_restoring.restore_paths(
                    checkpoints,
                    change_restoring.plan_restore_steps(
                        await change_restoring.plan_undo_of_changes(checkpoints, changes)
                    ),
                )
                found["paths put back"] += len(done.restored)
            found["turns"] += 1
            if hostile.git_state(folder) != git:
                found[f"LOST: .git touched in turn {number}"] += 1
            if number % WHOLE == WHOLE - 1 or number == count - 1:
                read.clear()
            if (after := state(folder, read)) != before:
                different = [
                    name
                    for name in before.keys() | after.keys()
                    if before.get(name) != after.get(name)
                ]
                found[f"LOST in turn {number}: {different[:3]}"] += 1
                before = after


def _kills(base: Path, count: int, seed: int, found: Counter[str]) -> None:
    """A child takes checkpoints and undoes in a loop and is killed; then a new one
    undoes, and the folder is as it was.
    """
    chance = random.Random(seed)
    folder = base / "project"
    folder.mkdir(parents=True)
    hostile.fill(folder, chance, 150)
    before = state(folder)
    asyncio.run(_prepared(base))
    for number in range(count):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                asyncio.run(_undo_all(base, number))
            os._exit(0)
        time.sleep(chance.uniform(0.05, 0.7))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found["kills"] += 1
        try:
            asyncio.run(_undo_all(base, -1))
        except HelixError as error:
            found[f"LOST after kill {number}: {error}"] += 1
        if (after := state(folder)) != before:
            different = [
                name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
            ]
            found[f"LOST after kill {number}: {different[:3]}"] += 1
            return


async def _prepared(base: Path) -> None:
    """The state everything is put back to, named in a file."""
    async with net(base) as checkpoints:
        await checkpoints.ensure_first_check()
        now = checkpoints.latest_checkpoint
        assert now is not None
        change = PathChange("0/x", None, folder_state.TreeItem(folder_state.PathKind.FOLDER, 0o755))
        fact = await checkpoints.build_change_fact([change], now, now)
        if fact is not None:
            (base / "first").write_text(fact.before.hex)


async def _undo_all(base: Path, seed: int) -> None:
    """Hostile things (none for -1), then everything since the first checkpoint undone."""
    from helix_desktop.engine.sha256_digest import Digest

    async with net(base) as checkpoints:
        await checkpoints.ensure_first_check()
        if seed >= 0:
            chance = random.Random(seed)
            for _ in range(3):
                hostile.turn(base / "project", chance)
                await checkpoints.check_for_changes()
        first = await checkpoints.read_checkpoint_state(
            Digest.from_hex((base / "first").read_text())
        )
        changes = folder_state.compare_trees(first, checkpoints.folders.known_items())
        await change_restoring.restore_paths(
            checkpoints,
            change_restoring.plan_restore_steps(
                await change_restoring.plan_undo_of_changes(checkpoints, changes)
            ),
        )


async def _writer(base: Path, count: int, seed: int, found: Counter[str]) -> None:
    """Somebody else writes files of the same folder between the steps and while an undo
    goes on; none of it may be lost.
    """
    chance = random.Random(seed)
    folder = base / "project"
    folder.mkdir(parents=True)
    hostile.fill(folder, chance, 100)
    async with net(base) as checkpoints:
        await checkpoints.ensure_first_check()
        for number in range(count):
            paths = chance.sample(sorted(folder.rglob("*.py")), 12)
            window = await checkpoints.begin_step("1", "c", "command")
            if window is None:
                return
            for path in paths:
                path.write_text(f"agent {number}\n")
            fact = await checkpoints.end_step(window)
            if fact is None:
                continue
            theirs = {path: f"theirs {number} {chance.random()}\n" for path in paths[:6]}
            changes = folder_state.decode_difference(
                await checkpoints.contents.read_content(fact.difference.digest)
            )
            planned = await change_restoring.plan_undo_of_changes(checkpoints, changes)
            undo = asyncio.ensure_future(  # noqa: TID251
                change_restoring.restore_paths(
                    checkpoints, change_restoring.plan_restore_steps(planned)
                )
            )
            kept = {}
            for path, text in theirs.items():
                await asyncio.sleep(chance.uniform(0, 0.004))
                path.write_text(text)
                kept[path] = text
            await undo
            found["turns beside a writer"] += 1
            for path, text in kept.items():
                if path.read_text() != text:
                    found[f"LOST: what somebody else wrote, in turn {number}"] += 1


async def _links(base: Path, races: int, seed: int, found: Counter[str]) -> None:
    """A folder changes places with a link to the outside while files in it are taken in
    and put back.
    """
    folder = base / "project"
    outside = base / "outside"
    (folder / "d").mkdir(parents=True)
    outside.mkdir()
    (folder / "d" / "f").write_text("inside")
    (outside / "f").write_text("outside, secret")
    (folder / "d.other").symlink_to(outside)
    inside = outside.stat().st_mtime_ns
    async with net(base) as checkpoints:
        await checkpoints.ensure_first_check()
        secret = folder_state.TreeItem(
            folder_state.PathKind.FILE, 0o644, 15, hashlib.sha256(b"outside, secret").digest()
        )
        stored = await checkpoints.contents.store_many([(b"put back", reading_about())])
        target = folder_state.TreeItem(folder_state.PathKind.FILE, 0o644, 8, stored[0].digest.raw)
        swapper = subprocess.Popen([sys.executable, "-c", SWAP, str(folder / "d"), str(outside)])
        try:
            for number in range(races):
                await checkpoints.check_for_changes(thorough=True)
                if any(
                    item.content == secret.content
                    for item in checkpoints.folders.known_items().values()
                ):
                    found["LOST: a file of the outside was read"] += 1
                now = checkpoints.folders.last_item_at("0/d/f")
                await change_restoring.restore_paths(
                    checkpoints,
                    [
                        change_restoring.RestoreStep(
                            f"0/d/{'f' if number % 2 else 'new'}",
                            now if number % 2 else None,
                            target,
                        )
                    ],
                )
                found["link races"] += 1
                if [path.name for path in outside.iterdir()] != ["f"] or (
                    outside / "f"
                ).read_text() != "outside, secret":
                    found["LOST: something was written outside"] += 1
                    return
        finally:
            swapper.kill()
            swapper.wait()
    if outside.stat().st_mtime_ns != inside:
        found["LOST: the outside was touched"] += 1


def reading_about() -> EntryOrigin:
    from helix_desktop.tools.changes.content_storing import ABOUT

    return ABOUT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--files", type=int, default=0, help="20 for each turn where none is said")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(KINDS))
    given = parser.parse_args()
    only = tuple(given.only.split(","))
    return report(
        "checkpoints",
        given.seed,
        lambda found: trials(
            found, given.trials, given.files or 20 * given.trials, given.seed, only
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
