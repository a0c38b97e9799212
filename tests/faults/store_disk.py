"""A full disk, and an I/O error, at every write, sync, rename and creation in turn: refused in a sentence or recovered,
nothing acknowledged lost, and once the disk works again the open workspace goes on.

    python -m tests.faults.store_disk [--trials 0] [--seed 1]      (0: every call, in every way)
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
from pathlib import Path

from helix_desktop.engine.facts import ConversationStarted, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import About
from helix_desktop.errors import HelixError
from helix_desktop.store.workspace import Workspace
from tests.faults import shim
from tests.faults.store_load import Acknowledged, Say, begin, check_in_child, home, in_child, one_step, told
from tests.faults.store_report import report

WAYS = [(number, for_good) for number in (errno.EIO, errno.ENOSPC) for for_good in (False, True)]


async def script(folder: Path, say: Say) -> None:
    """A short life of a workspace, the same each time. What is refused is refused; nothing else may be raised."""
    workspace = await opened(folder, say)
    chance = random.Random(7)

    async def streamed() -> None:
        stored = await workspace.cache.put(_pieces(chance), About("shell", "large"))
        say(f"put {stored.digest}")
        await workspace.journal.append("large", [ConversationStarted("t"), ToolReturned("1", stored, 1)])

    steps: list[Callable[[], Awaitable[object]]] = [
        *(lambda n=n: one_step(workspace, chance, f"c{n % 2}", say) for n in range(4)),
        streamed,
        lambda: workspace.journal.fork("c0", 1, "fork"),
        lambda: workspace.journal.set_meter("c0", "{}"),
        workspace.back_up,
        lambda: one_step(workspace, chance, "c1", say),
    ]
    for step in steps:
        try:
            await step()
        except HelixError as error:
            say(f"refused {type(error).__name__}: {error.what}")
    _change(workspace, say)
    shim.fail(0, 0, for_good=False)
    await goes_on(workspace, say)
    await workspace.aclose()


async def opened(folder: Path, say: Say) -> Workspace:
    try:
        return await home(folder).open("W")
    except HelixError as error:
        say(f"refused {type(error).__name__}: {error.what}")
    shim.fail(0, 0, for_good=False)
    return await home(folder).open("W")


def _change(workspace: Workspace, say: Say) -> None:
    try:
        workspace.change({"colour": "#123456"})
    except HelixError as error:
        say(f"refused {type(error).__name__}: {error.what}")


async def _pieces(chance: random.Random) -> AsyncIterator[bytes]:
    for _ in range(25):
        yield chance.randbytes(100_000)


async def goes_on(workspace: Workspace, say: Say) -> None:
    """The disk works again: so does the workspace, as it stands open."""
    stored = await workspace.cache.put(b"there is room again", About("shell", "df"))
    await workspace.journal.append("after", [UserSaid((Text("and on it goes"),)), ToolReturned("1", stored, 1)])
    say(f"put {stored.digest}")
    say("went on")


def one(folder: Path, at: int, number: int, *, for_good: bool) -> tuple[list[str], int]:
    """One life, with the `at`-th call failing. What was said, and how many calls were made."""

    def work(say: Say) -> None:
        shim.watch(folder)
        shim.fail(at, number, for_good=for_good)
        asyncio.run(script(folder, say))
        say(f"calls {shim.calls()}")

    child, reading = in_child(work)
    lines = told(reading)
    os.waitpid(child, 0)
    calls = next((int(line.split()[1]) for line in lines if line.startswith("calls ")), 0)
    return lines, calls


def trials(count: int, seed: int, found: Counter[str]) -> None:
    """Every call of the life in every way, or `count` of those by chance."""
    base = Path(tempfile.mkdtemp(prefix="helix-disk-"))
    try:
        _, calls = one(_fresh(base), 0, 0, for_good=False)
        cases = [(at, *way) for at in range(1, calls + 1) for way in WAYS]
        if count and count < len(cases):
            cases = random.Random(seed).sample(cases, count)
        for at, number, for_good in cases:
            folder = _fresh(base)
            lines, _ = one(folder, at, number, for_good=for_good)
            found["trials"] += 1
            found["refused"] += any(line.startswith("refused") for line in lines)
            name = f"{errno.errorcode[number]}{' for good' if for_good else ''} at call {at}"
            if "went on" not in lines:
                found[f"LOST {name}: it did not go on: {[line for line in lines if line.startswith('RAISED')]}"] += 1
            for line in check_in_child(folder, Acknowledged.of(lines)):
                found[f"LOST {name}: {line}"] += 1
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _fresh(base: Path) -> Path:
    shutil.rmtree(base / "home", ignore_errors=True)
    (base / "home").mkdir()
    begin(base / "home")
    return base / "home"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not shim.loaded():
        return shim.again("tests.faults.store_disk", sys.argv[1:])
    return report("disk", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found))


if __name__ == "__main__":
    raise SystemExit(main())
