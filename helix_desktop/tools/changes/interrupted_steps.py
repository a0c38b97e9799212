"""Keeps in a file which steps are open, so that the next start records what a killed
program has changed.

A step stands in the file from before its first change until the journal has its record.
The file is not synced, so that a step takes no longer: after a kill it is whole, and
only a power failure may lose it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop.engine.changes.folder_state import (
    PathChange,
    Tree,
    decode_difference,
    encode_difference,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.tools.changes.change_attribution import OpenStep, OpenSteps

NAME = "steps.json"
BEAT = 5.0  # So often, in seconds, the time of the file is set while a step is open.
_SURE = int(
    1.2 * BEAT * 1e9
)  # What changes this long after that, in nanoseconds, is changed after the kill.


def encode_steps(steps: OpenSteps, latest: Digest, made_for: str) -> bytes:
    """Return what the next start has to know. `latest`: the state at the last check.
    `made_for`: the folders and rules.

    What changes between two turns may be the user's, so a command in the background is
    left out then. So is an undo, which the user can do again.
    """

    def encode(changes: Iterable[PathChange]) -> str:
        return encode_difference(changes, latest).hex()

    open_steps = [
        (
            one.call,
            one.conversation,
            one.changed_by,
            one.since_check,
            one.checkpoint.hex,
            one.only,
            encode(one.claimed),
        )
        for one in (*steps.open, *(step for step, _ in steps.unrecorded))
        if one.conversation and not one.is_between_turns
    ]
    found = {check: encode(each.values()) for check, each in steps.unclaimed.items() if each}
    said = {
        "latest": latest.hex,
        "checks": steps.checks,
        "open": open_steps,
        "found": found,
        "made_for": made_for,
    }
    return json.dumps(said).encode() if open_steps else b""


def write_steps_file(file: Path, content: bytes) -> None:
    """Replace the file. It can fail only where the step is refused as well, as on a full disk."""
    with suppress(OSError):
        if not content:
            file.unlink(missing_ok=True)
            return
        new = file.with_suffix(".new")
        new.write_bytes(content)
        new.replace(file)


def read_interrupted_steps(file: Path, made_for: str) -> tuple[OpenSteps, Digest, int] | None:
    """Return what a killed program has left: its steps, the last state it knew, and
    when it was alive, in nanoseconds.

    What cannot be read is nothing, because it only says whose changes are.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        said, steps = json.loads(file.read_bytes()), OpenSteps()
        if said["made_for"] != made_for:
            return None
        steps.checks = said["checks"]
        for check, found in said["found"].items():
            steps.unclaimed[int(check)] = {
                one.path: one for one in decode_difference(bytes.fromhex(found))
            }
        for call, conversation, by, since, checkpoint, only, claimed in said["open"]:
            step = OpenStep(call, conversation, by, since, Digest.from_hex(checkpoint), only=only)
            step.claimed = decode_difference(bytes.fromhex(claimed))
            steps.open.append(step)
        return steps, Digest.from_hex(said["latest"]), file.stat().st_mtime_ns
    return None


def changes_before_kill(
    changes: Iterable[PathChange], roots: Sequence[Path], alive: int
) -> Iterator[PathChange]:
    """Leave out what has certainly been changed since, because that was not the agent."""
    for change in changes:
        number, _, inside = change.path.partition("/")
        place = roots[int(number)] / inside
        with suppress(OSError):
            if change.after is None:
                changed = (
                    next(above for above in place.parents if above.is_dir()).stat().st_mtime_ns
                )
            else:
                changed = place.lstat().st_ctime_ns
            if changed > alive + _SURE:
                continue
        yield change


def find_half_written_files(path: str, before: Tree, now: Tree) -> Iterator[str]:
    """Yield what writing a file has left beside it: the new version, or after the two
    were exchanged, the old one.
    """
    folder, _, name = path.rpartition("/")
    beside = re.compile(rf"{re.escape(f'{folder}/.{name[:60]}.')}[0-9a-f]{{12}}\.helix")
    old = before.get(path)
    for each, item in now.items():
        # If it is another version, somebody has changed the file in that very moment,
        # and it is all there is of it.
        if beside.fullmatch(each) and (
            now.get(path) == old or (old is not None and item.content == old.content)
        ):
            yield each
