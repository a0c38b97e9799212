"""SIGKILL at random moments under a mixed load: what was acknowledged is there, and no
fact refers to missing content.

python -m tests.faults.store_kill [--trials 3000] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.store_load import Acknowledged, Say, begin, check_in_child, in_child, load, told
from tests.faults.store_report import report

GENERATIONS = 25  # kills before the workspace is begun anew, so that files of every age are hit


def trials(count: int, seed: int, found: Counter[str]) -> None:
    """Kill `count` times; what was found, counted. Anything under a key that begins
    with LOST is a failure.
    """
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="helix-kill-"))
    try:
        for trial in range(count):
            if trial % GENERATIONS == 0:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                begin(folder)
                acknowledged: list[str] = []
            acknowledged += killed(folder, chance, found)
            for line in check_in_child(folder, Acknowledged.of(acknowledged)):
                found[f"LOST in trial {trial}: {line}"] += 1
            found["kills"] += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def killed(folder: Path, chance: random.Random, found: Counter[str]) -> list[str]:
    """Start the load, kill it after a random while, and return what it acknowledged."""
    seed = chance.randrange(1 << 40)

    def work(say: Say) -> None:
        asyncio.run(load(folder, random.Random(seed), say))

    child, reading = in_child(work)
    if chance.random() < 0.9:  # else also while the workspace is being opened
        select.select([reading], [], [], 10)
    time.sleep(chance.choice((0.001, 0.02, 0.1, 0.25)) * chance.random())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    lines = told(reading)
    found["acknowledged"] += len(lines)
    for line in lines:
        if line.startswith("RAISED"):
            found[f"LOST: {line}"] += 1
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "kill", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
