"""`dev.py faults [NAME ...] [--minutes N] [--seed S]`: try to break it, and say what came of it.

Without `--minutes` each trial runs once at its full count (some hours for all of them). With it, short rounds of all trials
follow each other, each with a new seed, until the time is up. A failure is shown with the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Trial:
    """A module of this folder. `count`: the name of its argument for how much, with the full and the short amount."""

    name: str
    tries: str
    count: str
    full: int
    short: int
    seeded: bool = True


ALL = (
    Trial("store_kill", "SIGKILL under a mixed load", "--trials", 3000, 20),
    Trial("store_crash", "power cuts: images of what the disk may hold", "--trials", 1000, 30),
    Trial("store_bits", "single flipped bits", "--trials", 1000, 30),
    Trial("store_cut", "last logs cut at every length", "--trials", 0, 60),
    Trial("store_disk", "a full disk and I/O errors at every call", "--trials", 0, 40),
    Trial("store_twice", "a second process on an open workspace", "--trials", 200, 20),
    Trial("turn_kill", "SIGKILL in the middle of a turn", "--trials", 60, 5),
    Trial("confinement", "links swapped under tools at work", "--races", 20_000, 2_000),
    Trial("sandbox", "commands that misbehave", "--rounds", 10, 1, seeded=False),
)


@dataclass
class Tally:
    runs: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    last: str = ""


def main() -> int:
    arguments = _arguments()
    chosen = [one for one in ALL if not arguments.names or one.name in arguments.names]
    if unknown := set(arguments.names) - {one.name for one in ALL}:
        sys.exit(f"There is no trial {', '.join(sorted(unknown))}. There are: {', '.join(one.name for one in ALL)}.")
    tallies = {one.name: Tally() for one in chosen}
    until = time.monotonic() + 60 * arguments.minutes if arguments.minutes else 0.0
    seed = arguments.seed
    while True:
        for one in chosen:
            if arguments.minutes and time.monotonic() >= until:
                break
            _run(one, seed, tallies[one.name], short=bool(arguments.minutes))
        if time.monotonic() >= until:
            break
        seed += 1
    print(_table(chosen, tallies))
    return int(any(tally.failures for tally in tallies.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dev.py faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="\n".join(f"{one.name}: {one.tries}" for one in ALL))
    parser.add_argument("--minutes", type=float, default=0.0, metavar="N", help="go on for so long")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed")
    return parser.parse_args()


def _run(one: Trial, seed: int, tally: Tally, *, short: bool) -> None:
    command = [sys.executable, "-m", f"tests.faults.{one.name}", one.count, str(one.short if short else one.full)]
    command += ["--seed", str(seed)] if one.seeded else []
    begun = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    tally.runs += 1
    tally.seconds += time.monotonic() - begun
    tally.last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "")
    print(f"{one.name}, seed {seed}: {tally.last}", flush=True)
    if done.returncode:
        again = " ".join(["python", *command[1:]])
        tally.failures.append(again)
        print(f"{done.stdout}{done.stderr}Again: {again}", flush=True)


def _table(chosen: list[Trial], tallies: dict[str, Tally]) -> str:
    lines = [f"\n{'trial':<14}{'runs':>6}{'minutes':>9}{'failed':>8}  what is tried"]
    for one in chosen:
        tally = tallies[one.name]
        lines.append(f"{one.name:<14}{tally.runs:>6}{tally.seconds / 60:>9.1f}{len(tally.failures):>8}  {one.tries}")
    lines += [f"Again: {command}" for tally in tallies.values() for command in tally.failures]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
