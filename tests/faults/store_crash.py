"""Crash images: what the disk may hold after a power cut, made from the recorded writes
and syncs of a real run.

    python -m tests.faults.store_crash [--trials 1000] [--seed 1]

The run's calls are recorded in their order (shim.c). An image is a moment of that run, and from it:
- what a file held at its last sync is there; each later write of it is there, or not,
  or torn, by chance and on its own,
  so that a later one may be there without an earlier one; where a gap was never written, there are zeros;
- names (create, rename, unlink) last in their order. In one half of the images as in a
  journaling file system: all of them
  up to the last sync of anything, and by chance a number of those behind it. In the other half strictly as POSIX has it: those of
  a folder up to the last sync of that very folder, and by chance a number of those behind it.
Then the workspace is opened: everything acknowledged before that moment must be there,
and no fact may dangle.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import shim
from tests.faults.store_load import (
    Acknowledged,
    Say,
    begin,
    check_in_child,
    in_child,
    load,
    told,
    write_line,
)
from tests.faults.store_report import report

_HEAD = struct.Struct("<cQQI")
SECTOR = 512
STEPS = (
    8,
    15,
    60,
)  # of each of three conversations, in a recorded run; the long ones go through several log files
RUNS = 50  # images of one recorded run
SOON = (
    60  # calls behind the making of a log in which a put may be acknowledged that lies in it alone
)


@dataclass(frozen=True, slots=True)
class Call:
    kind: str
    file: int
    offset: int
    content: bytes


@dataclass(slots=True)
class Disk:
    """Files by number and names by path, as far as they have reached the disk."""

    files: dict[int, bytearray] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def write(self, file: int, offset: int, content: bytes) -> None:
        held = self.files.setdefault(file, bytearray())
        if len(held) < offset:
            held.extend(bytes(offset - len(held)))
        held[offset : offset + len(content)] = content

    def name(self, call: Call, number: int) -> None:
        match call.kind:
            case "C" | "L":
                self.names[os.fsdecode(call.content)] = number
            case "U":
                self.names.pop(os.fsdecode(call.content), None)
            case "R":
                old, new = os.fsdecode(call.content).split("\0")
                self.names = {
                    _moved(path, old, new): file for path, file in self.names.items() if path != new
                }


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


def calls_of(record: Path) -> list[Call]:
    content = record.read_bytes()
    return list(_calls(content))


def _calls(content: bytes) -> Iterator[Call]:
    at = 0
    while at + _HEAD.size <= len(content):
        kind, file, offset, length = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        yield Call(kind.decode(), file, offset, content[at : at + length])
        at += length


Lasting = Callable[[int, Call], bool]


def _journaled(calls: list[Call], last_sync: int, chance: random.Random) -> Lasting:
    until = max(last_sync + 1, last_sync + int(chance.random() ** 2 * (len(calls) - last_sync + 1)))
    return lambda at, _: at < until


def _strictly(calls: list[Call], chance: random.Random) -> Lasting:
    synced: dict[str, int] = {}
    for at, call in enumerate(calls):
        if call.kind == "S" and call.content:
            synced[os.fsdecode(call.content)] = at
    until: dict[str, int] = {}

    def lasts(at: int, call: Call) -> bool:
        folder = os.path.dirname(os.fsdecode(call.content).split("\0")[-1])  # noqa: PTH120 - of text, for each call
        if folder not in until:
            last = synced.get(folder, -1)
            until[folder] = max(
                last + 1, last + int(chance.random() ** 2 * (len(calls) - last + 1))
            )
        return at < until[folder]

    return lasts


def image(calls: list[Call], chance: random.Random, *, strict: bool = False) -> Disk:
    """What may be on the disk when the power goes behind the last of `calls`."""
    numbered, synced, last_sync = _numbered(calls)
    disk = Disk()
    fate = chance.choice(("kept", "dropped", "torn", "mixed", "mixed"))
    lasting = _strictly(calls, chance) if strict else _journaled(calls, last_sync, chance)
    for at, (call, number) in enumerate(zip(calls, numbered, strict=True)):
        if call.kind in "CLRU" and lasting(at, call):
            disk.name(call, number)
            disk.files.setdefault(number, bytearray())
        elif call.kind in "WT":
            _reach(disk, call, number, fate if at > synced.get(number, -1) else "kept", chance)
    return disk


def _reach(disk: Disk, call: Call, number: int, fate: str, chance: random.Random) -> None:
    """Let one call reach the disk, or a part of it, or nothing."""
    if fate == "mixed":
        fate = chance.choice(("kept", "dropped", "torn"))
    if fate == "dropped":
        return
    if call.kind == "T":
        held = disk.files.setdefault(number, bytearray())
        del held[call.offset :]
        held.extend(bytes(call.offset - len(held)))
        return
    content = call.content
    if fate == "torn":
        cut = chance.randrange(len(content) + 1)
        content = content[: cut - cut % SECTOR if chance.random() < 0.7 else cut]
    if content:
        disk.write(number, call.offset, content)


def _numbered(calls: list[Call]) -> tuple[list[int], dict[int, int], int]:
    """A number of its own for each file ever made (inodes come again), where each was
    last synced, and the last sync.
    """
    current: dict[int, int] = {}
    numbers: list[int] = []
    synced: dict[int, int] = {}
    last_sync = -1
    for at, call in enumerate(calls):
        if call.kind in "CN":
            current[call.file] = at + 1
        number = current.setdefault(call.file, -call.file) if call.file else 0
        numbers.append(number)
        if call.kind == "S":
            last_sync = at
            synced[number] = at
    return numbers, synced, last_sync


def lay_out(disk: Disk, recorded: Path, folder: Path) -> None:
    """Make the image's files below `folder`."""
    for path, number in disk.names.items():
        target = folder / Path(path).relative_to(recorded)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(disk.files.get(number, b""))


# --- the recorded run


def recorded_run(folder: Path, seed: int, steps: int) -> list[Call]:
    """Run the load in a child whose calls are recorded; what it acknowledges is written
    into the record as well.
    """
    record = folder.with_name(f"{folder.name}.record")
    said = folder / "said"

    def work(_: Say) -> None:
        folder.mkdir()
        shim.watch(folder)
        shim.record(os.open(record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
        begin(folder)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        asyncio.run(load(folder, random.Random(seed), lambda line: write_line(out, line), steps))

    child, reading = in_child(work)
    failed = told(reading)
    os.waitpid(child, 0)
    if failed:
        raise RuntimeError(failed[0])
    calls = calls_of(record)
    record.unlink()
    shutil.rmtree(folder)
    return calls


def said_by(calls: list[Call], folder: Path) -> Acknowledged:
    """What the run had acknowledged by the last of these calls."""
    name = os.fsencode(folder / "said")
    file = next((call.file for call in calls if call.kind == "C" and call.content == name), 0)
    text = b"".join(
        call.content for call in calls if call.kind == "W" and call.file == file and file
    )
    return Acknowledged.of(text.decode().splitlines())


def trials(count: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    base = Path(tempfile.mkdtemp(prefix="helix-crash-"))
    recorded = base / "recorded"
    folder = base / "image"
    try:
        for trial in range(count):
            if trial % RUNS == 0:
                calls = recorded_run(
                    recorded,
                    chance.randrange(1 << 40),
                    chance.choice(STEPS) if count >= RUNS else STEPS[0],
                )
                begun = next(at for at, call in enumerate(calls) if call.content.endswith(b"/said"))
                found["recorded calls"] += len(calls)
            strict = trial % 2 == 1
            until = _moment(calls, begun, chance, strict=strict)
            disk = image(calls[:until], chance, strict=strict)
            found["images with a log just made"] += (
                strict and until > begun and _log_just_made(calls[:until])
            )
            lay_out(disk, recorded, folder)
            for line in check_in_child(folder, said_by(calls[:until], recorded)):
                found[f"LOST in image {trial}: {line}"] += 1
            found["images"] += 1
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _moment(calls: list[Call], begun: int, chance: random.Random, *, strict: bool) -> int:
    """Any moment; of the strict ones every other just behind the making of a log,
    before anything else syncs its name.
    """
    made = (
        [at for at in range(begun, len(calls)) if _makes_log(calls[at])]
        if strict and chance.random() < 0.5
        else []
    )
    if not made:
        return chance.randrange(begun, len(calls)) + 1
    at = chance.choice(made)
    return min(at + 1 + chance.randrange(SOON), len(calls))


def _makes_log(call: Call) -> bool:
    return call.kind == "C" and call.content.endswith(b".log")


def _log_just_made(calls: list[Call]) -> bool:
    return any(_makes_log(call) for call in calls[-SOON:])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not shim.loaded():
        return shim.again("tests.faults.store_crash", sys.argv[1:])
    return report(
        "crash", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    raise SystemExit(main())
