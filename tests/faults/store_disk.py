"""A full disk, and an I/O error, at every write, sync, rename and creation in turn:
refused in a sentence or recovered, nothing acknowledged lost, and once the disk works
again the open workspace goes on.

    python -m tests.faults.store_disk [--trials 0] [--seed 1]      (0: every call, in every way; minutes with TMPDIR=/dev/shm)

The calls of working are counted up to the moment the disk works again; those of
emptying the trash and of closing by themselves. How many there are differs a little
from life to life, as threads take turns: each way goes on until three lives end before
the call that was to fail.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    Fact,
    Text,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.faults import shim
from tests.faults.store_load import (
    Acknowledged,
    Say,
    begin,
    check_in_child,
    home,
    in_child,
    one_step,
    told,
)
from tests.faults.store_report import report

LIVES = 3


@dataclass(frozen=True, slots=True)
class Way:
    """How a call fails: by what error, it alone or all behind it, and what is being done."""

    number: int
    for_good: bool
    during: str  # "working", "emptying" the trash, "closing"

    def __str__(self) -> str:
        return f"{errno.errorcode[self.number]}{' for good' * self.for_good} while {self.during}"

    def arm(self, at: int, now: str) -> None:
        shim.fail(at if self.during == now else 0, self.number, for_good=self.for_good)


WAYS = [
    Way(number, for_good, during)
    for during in ("working", "emptying", "closing")
    for number in (errno.EIO, errno.ENOSPC)
    for for_good in (False, True)
]


async def script(folder: Path, at: int, way: Way, say: Say) -> None:
    """A short life of a workspace, the same each time. What is refused is refused;
    nothing else may be raised.
    """
    way.arm(at, "working")
    workspace = await opened(folder, say)
    chance = random.Random(7)

    async def streamed() -> None:
        stored = await workspace.cache.store_content(_pieces(chance), EntryOrigin("shell", "large"))
        say(f"put {stored.digest}")
        await workspace.journal.append_to_journal(
            "large", [ConversationStarted("t"), ToolReturned("1", stored, 1)]
        )

    steps: list[Callable[[], Awaitable[object]]] = [
        *(lambda n=n: one_step(workspace, chance, f"c{n % 2}", say) for n in range(4)),
        streamed,
        lambda: workspace.journal.fork_conversation("c0", 1, "fork"),
        lambda: workspace.journal.store_meter("c0", "{}"),
        workspace.back_up_now,
        lambda: one_step(workspace, chance, "c1", say),
    ]
    for step in steps:
        try:
            await step()
        except HelixError as error:
            say(f"refused {type(error).__name__}: {error.what}")
    _change(workspace, say)
    works_again(say)
    if way.during == "emptying":
        await emptied(workspace, at, way, say)
    await goes_on(workspace, say)
    before = shim.calls()
    way.arm(at, "closing")
    try:
        await workspace.aclose()
    except HelixError as error:
        say(f"refused {type(error).__name__}: {error.what}")
    say(f"closing {shim.calls() - before}")


async def emptied(workspace: StoredWorkspace, at: int, way: Way, say: Say) -> None:
    """What could not be purged is purged when the disk works again."""
    stored = await workspace.cache.store_content(b"to be purged" * 100, EntryOrigin("shell", "env"))
    thrown_away: list[Fact] = [ToolReturned("1", stored, 1), ConversationChanged(trashed=True)]
    await workspace.journal.append_to_journal("purged", thrown_away)
    before = shim.calls()
    way.arm(at, "emptying")
    try:
        await workspace.delete_conversations_for_good()
    except HelixError as error:
        say(f"refused {type(error).__name__}: {error.what}")
    shim.fail(0, 0, for_good=False)
    say(f"emptying {shim.calls() - before}")
    await workspace.delete_conversations_for_good()
    if any(row.id == "purged" for row in await workspace.journal.list_conversations()):
        raise RuntimeError("The trash could not be emptied any more.")


def works_again(say: Say) -> None:
    shim.fail(0, 0, for_good=False)
    say(f"working {shim.calls()}")


async def opened(folder: Path, say: Say) -> StoredWorkspace:
    try:
        return await home(folder).open_stored_workspace("W")
    except HelixError as error:
        say(f"refused {type(error).__name__}: {error.what}")
    works_again(say)
    return await home(folder).open_stored_workspace("W")


def _change(workspace: StoredWorkspace, say: Say) -> None:
    try:
        workspace.change_settings({"colour": "#123456"})
    except HelixError as error:
        say(f"refused {type(error).__name__}: {error.what}")


async def _pieces(chance: random.Random) -> AsyncIterator[bytes]:
    for _ in range(25):
        yield chance.randbytes(100_000)


async def goes_on(workspace: StoredWorkspace, say: Say) -> None:
    """The disk works again: so does the workspace, as it stands open.

    What LevelDB failed to do in the background, after the last step, only the next
    write hears of: it may be refused once.
    """
    content = b"there is room again"
    origin = EntryOrigin("shell", "df")
    try:
        stored = await workspace.cache.store_content(content, origin)
    except StoreFailed as error:
        say(f"refused {type(error).__name__}: {error.what}")
        stored = await workspace.cache.store_content(content, origin)
    await workspace.journal.append_to_journal(
        "after", [UserSaid((Text("and on it goes"),)), ToolReturned("1", stored, 1)]
    )
    say(f"put {stored.digest}")
    say("went on")


def one(folder: Path, at: int, way: Way) -> tuple[list[str], int]:
    """One life, with the `at`-th call failing. What was said, and how many calls there
    were to fail.
    """

    def work(say: Say) -> None:
        shim.watch(folder)
        asyncio.run(script(folder, at, way, say))

    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    return lines, next(
        (int(line.split()[1]) for line in lines if line.startswith(f"{way.during} ")), 0
    )


def trials(count: int, seed: int, found: Counter[str]) -> None:
    """Every call of the life in every way, or `count` of those by chance."""
    base = Path(tempfile.mkdtemp(prefix="helix-disk-"))
    try:
        if not count:
            for way in WAYS:
                at = 1
                while any(trial(base, at, way, found) for _ in range(LIVES)):
                    at += 1
            return
        calls = {way: one(_fresh(base), 0, way)[1] for way in WAYS}
        cases = [(at, way) for way in WAYS for at in range(1, calls[way] + 1)]
        for at, way in random.Random(seed).sample(cases, min(count, len(cases))):
            trial(base, at, way, found)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def trial(base: Path, at: int, way: Way, found: Counter[str]) -> bool:
    """Whether the life had so many calls; where not, it is none of the trials."""
    folder = _fresh(base)
    lines, calls = one(folder, at, way)
    lost = (
        []
        if "went on" in lines
        else [f"it did not go on: {[line for line in lines if 'RAISED' in line]}"]
    )
    lost += check_in_child(folder, Acknowledged.of(lines))
    for line in lost:
        found[f"LOST {way} at call {at}: {line}"] += 1
    found["trials"] += calls >= at
    found["refused"] += any(line.startswith("refused") for line in lines)
    return calls >= at


def _fresh(base: Path) -> Path:
    shutil.rmtree(base / "home", ignore_errors=True)
    (base / "home").mkdir()
    begin(base / "home")
    return base / "home"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not shim.loaded():
        return shim.again("tests.faults.store_disk", sys.argv[1:])
    return report(
        "disk", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
