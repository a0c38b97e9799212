"""SIGKILL at random moments while a copy is brought back. Nothing is lost, and
everything can be undone or done again.

python -m tests.faults.copy_kill FIRST LAST [--power]

Each number is a trial. The same bring-back is done twice from the same state: once to
its end, and once until the program kills itself at some step of its own. With
`--power`, all its processes are killed after a while, as if the power failed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix_desktop.errors import ActionRefused
from helix_desktop.workbench import Workbench
from tests.faults.copy_trials import (
    Lines,
    Trial,
    files_of,
    git,
    lines_of,
    open_workbenches,
    run_numbered_trials,
)
from tests.faults.store_load import Say, in_child, told

WAYS_KILLED = ("apply", "apply", "apply", "merge", "merge", "rebase", "discard")
STEPS = (
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.posix_spawn",
)
SPAWNS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "_posixsubprocess.fork_exec")


@dataclass
class Scene:
    base: Path
    way: str
    conflicts: str
    is_merged_before: bool = False

    @property
    def project(self) -> Path:
        return self.base / "project"

    def in_workbench(self, work: Callable[[Workbench], Coroutine[Any, Any, object]]) -> None:
        async def open_and_work() -> None:
            async with open_workbenches(self.base) as desk:
                await work(await desk.open_workspace("W"))

        asyncio.run(open_and_work())

    def state_of_project(self) -> dict[str, Any]:
        """What there is of the user's: files, what is staged, the branch."""
        return {
            "files": {
                name: [mode, content.hex()]
                for name, (mode, content) in files_of(self.project).items()
            },
            "index": git(self.project, "ls-files", "--stage"),
            "head": git(self.project, "rev-parse", "HEAD"),
        }


def set_scene(base: Path, seed: int, say: Say) -> None:
    """A project and a copy of it, both changed at random; sometimes the copy has been
    applied once before.
    """

    async def make() -> None:
        trial = Trial(base, seed)
        trial.create_project()
        async with open_workbenches(base) as desk:
            bench = await desk.create_workspace("W", trial.project)
            for _ in range(trial.chance.randrange(4)):
                trial.user.act()
            await trial.make_copy(bench)
            (name,) = trial.agents
            for _ in range(trial.chance.choice((0, 1))):
                trial.agents[name].act()
                copy = bench.copies.find_copy(name)
                assert copy is not None
                try:
                    await bench.copies.bring_back(copy, "apply")
                except ActionRefused as error:
                    trial.did.append(str(error))
            for _ in range(3 + trial.chance.randrange(6)):
                trial.agents[name].act()
            for _ in range(trial.chance.randrange(3)):
                trial.user.act()
        (base / "before").write_text("\n".join(conversations_of_copies(bench)))
        for line in (*trial.did, *trial.user.did, *trial.agents[name].did):
            say(f"did {line}")

    asyncio.run(make())


async def bring_back_once(bench: Workbench, scene: Scene) -> tuple[str, ...]:
    (copy,) = bench.copies.list_copies()
    try:
        return await bench.copies.bring_back(copy, scene.way, "Work", scene.conflicts)
    except ActionRefused as error:
        return (f"REFUSED {error.what}",)


def do_and_count(scene: Scene, say: Say, kill_at: int = 0) -> None:
    """Bring back. Says how many steps it took, or kills itself at the one with the
    number `kill_at`.
    """
    steps = 0
    is_counting = False

    def count_step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal steps
        is_writing = (
            event == "open"
            and isinstance(arguments[2], int)
            and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if is_counting and (is_writing or event in STEPS or event in SPAWNS):
            steps += 1
            if steps == kill_at:
                os.killpg(0, signal.SIGKILL)  # Also a git that has just been started.

    async def work(bench: Workbench) -> None:
        nonlocal is_counting
        await bench.file_changes.workspace_checkpoints.ensure_first_check()
        say("ready")
        is_counting = True
        said = await bring_back_once(bench, scene)
        is_counting = False
        say(json.dumps(said))

    sys.addaudithook(count_step)
    scene.in_workbench(work)
    say(str(steps))


def run_in_child(
    work: Callable[[Say], object], *, power_fails_after: float | None = None
) -> list[str]:
    """What it said before it ended or was killed."""

    def work_in_group(say: Say) -> None:
        os.setsid()
        work(say)

    child, reading = in_child(work_in_group)
    if power_fails_after is not None:
        select.select([reading], [], [], 20)  # Until it says that it is ready.
        select.select([], [], [], power_fails_after)
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = told(reading)
    if raised := [line for line in said if line.startswith("RAISED")]:
        raise AssertionError("\n".join(raised))
    return said


def run_killed_trial(seed: int, *, power: bool = False) -> str:
    """Returns what was done. Raises AssertionError for what is wrong."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="helix-kill-") as name:
        base = Path(name).resolve() / "base"
        saved = Path(name).resolve() / "saved"
        base.mkdir()
        scene = Scene(base, chance.choice(WAYS_KILLED), chance.choice(("leave", "copy", "markers")))
        did = run_in_child(lambda say: set_scene(base, seed, say))
        shutil.copytree(base, saved, symlinks=True)
        held = scene.state_of_project()
        (work,) = base.glob("home/**/copies/*/0")
        in_copy = lines_of(work)
        whole = run_in_child(lambda say: do_and_count(scene, say))
        wanted = scene.state_of_project()
        shutil.rmtree(base)
        saved.rename(base)
        at = chance.randrange(1, int(whole[-1]) + 1)
        after = chance.random() * 0.5 if power else None
        run_in_child(
            lambda say: do_and_count(scene, say, 0 if power else at), power_fails_after=after
        )
        about = f"{scene.way} {scene.conflicts}, killed {f'after {after:.3f} s' if power else f'at {at} of {whole[-1]}'}"
        try:
            run_in_child(
                lambda _: scene.in_workbench(
                    lambda bench: check_after_kill(bench, scene, held, wanted, in_copy)
                )
            )
        except AssertionError as error:
            raise AssertionError(
                "\n".join((f"seed {seed}: {about}", *did, f"whole: {whole}", str(error)))
            ) from error
    return scene.way


async def check_after_kill(
    bench: Workbench, scene: Scene, held: Any, wanted: Any, in_copy: Lines
) -> None:
    # A git that was killed as well leaves them; the user is told to delete them.
    for lock in list(scene.base.rglob("*.lock")):
        if ".git" in lock.parts:
            lock.unlink()
    await bench.copies.finish_interrupted_work()
    if scene.way == "discard":
        await check_discard(bench, scene, in_copy)
        assert scene.state_of_project() == held, "a discard changed the user's folder"
        return
    if scene.way == "apply":
        await undo_newest_apply(bench, scene.base)
        now = scene.state_of_project()
        assert now == held, f"the undo is not exact: {differences(held, now)}"
    else:
        now = scene.state_of_project()
        is_whole = now in (held, wanted_with(now, wanted, held))
        assert is_whole, f"half merged: {differences(held, now)}, {differences(wanted, now)}"
    said = await bring_back_once(bench, scene)
    now = scene.state_of_project()
    difference = differences(wanted, now)
    assert now["files"] == wanted["files"], f"the second time is different: {said} {difference}"
    assert tree_of(now) == tree_of(wanted), f"another index the second time: {said} {difference}"


def wanted_with(now: Any, wanted: Any, held: Any) -> Any:
    """The whole merge, whose commit has another time."""
    return {**wanted, "head": now["head"]} if now["head"] != held["head"] else wanted


def tree_of(state: Any) -> str:
    return str(state["index"])


def differences(one: Any, other: Any) -> str:
    names = {
        name
        for name in {*one["files"], *other["files"]}
        if one["files"].get(name) != other["files"].get(name)
    }
    found = [
        f"{name}: {one['files'].get(name)} {other['files'].get(name)}" for name in sorted(names)
    ]
    rest = [key for key in ("index", "head") if one[key] != other[key]]
    return "; ".join((*found, *rest))


async def undo_newest_apply(bench: Workbench, base: Path) -> None:
    new = set(conversations_of_copies(bench)).difference((base / "before").read_text().split())
    assert len(new) <= 1, f"recorded twice: {new}"
    for conversation in new:
        turns = await bench.file_changes.turns_with_changes(conversation)
        assert len(turns) == 1, f"turns recorded: {len(turns)}"
        files = await bench.file_changes.changes_with_folders(turns[0].sources)
        await bench.file_changes.undo_file_changes(files, conversation=conversation)


def conversations_of_copies(bench: Workbench) -> list[str]:
    return [row.id for row in bench.list_conversations() if row.title == "Changes from a copy"]


async def check_discard(bench: Workbench, scene: Scene, in_copy: Lines) -> None:
    for copy in bench.copies.list_copies():
        assert copy.is_whole, "a copy is left that is not whole"
        assert lines_of(copy.folder / "0") == in_copy, "a discard changed the copy"
        assert not (await bring_back_once(bench, scene))[0].startswith("REFUSED")
    said = tuple(
        f"stored as {digest.hex}"
        for digest in bench.workspace.cache._folder.reader.pinned_entries()
    )
    await Trial(scene.base, 0).check_nothing_is_lost(bench, said, in_copy)


if __name__ == "__main__":
    sys.exit(
        run_numbered_trials(
            lambda seed: Counter([run_killed_trial(seed, power="--power" in sys.argv)])
        )
    )
