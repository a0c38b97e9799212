"""A second process on a workspace that is open: refused in a sentence, and the data is unharmed.

python -m tests.faults.store_twice [--trials 200] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path

from helix_desktop.errors import StoreBusy
from tests.faults.store_load import (
    Acknowledged,
    Say,
    begin,
    check_in_child,
    home,
    in_child,
    load,
    told,
)
from tests.faults.store_report import report

TRIES = 50  # while one owner works, before it ends and the data is checked


async def intrude(folder: Path, say: Say, *, chance: random.Random) -> None:
    """Try to open, or to move it into the trash, what another process owns."""
    workspaces = home(folder)
    try:
        if chance.random() < 0.8:
            await workspaces.open_stored_workspace("W")
        else:
            workspaces.trash_workspace("W")
    except StoreBusy as error:
        say("refused" if "open in another program" in str(error) else f"said: {error}")
    else:
        say("got in")


def trials(count: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="helix-twice-"))
    try:
        begin(folder)
        acknowledged: list[str] = []
        while found["tries"] < count:
            acknowledged += _owned(folder, chance, found, min(TRIES, count - found["tries"]))
            for line in check_in_child(folder, Acknowledged.of(acknowledged)):
                found[f"LOST: {line}"] += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owned(folder: Path, chance: random.Random, found: Counter[str], tries: int) -> list[str]:
    """One owner at work, with intruders; what the owner acknowledged until it was killed."""
    seed = chance.randrange(1 << 40)

    def own(say: Say) -> None:
        asyncio.run(load(folder, random.Random(seed), say))

    owner, reading = in_child(own)
    first = os.read(reading, 5)
    for _ in range(tries):
        another = random.Random(chance.randrange(1 << 40))

        def work(say: Say, another: random.Random = another) -> None:
            asyncio.run(intrude(folder, say, chance=another))

        child, said = in_child(work)
        for line in told(said) or ["said nothing"]:
            found[line if line == "refused" else f"LOST: {line}"] += 1
        os.waitpid(child, 0)
        found["tries"] += 1
        first += _drain(reading)
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    return (first.decode() + "\n".join(told(reading))).splitlines()


def _drain(reading: int) -> bytes:
    """What the owner said by now: left there, it would fill the pipe and hold the owner up."""
    said = b""
    os.set_blocking(reading, False)
    try:
        while piece := os.read(reading, 1 << 16):
            said += piece
    except BlockingIOError:
        pass
    finally:
        os.set_blocking(reading, True)
    return said


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "twice", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
