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
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes.change_attribution import OpenStep, OpenSteps

NAME = "steps.json"
BEAT = 5.0  # So often, in seconds, the time of the file is set while a step is open.
# What changes this long after that, in nanoseconds, is changed after the kill.
_SURE = int(1.2 * BEAT * 1e9)


@dataclass(frozen=True, slots=True)
class InterruptedSteps:
    """What a killed program has left. `latest`: the last state that it knew. `alive_ns`: when it
    was alive for certain, in nanoseconds.
    """

    steps: OpenSteps
    latest: Digest
    alive_ns: int


def encode_steps(steps: OpenSteps, latest: Digest, made_for: str) -> bytes:
    """Return what the next start has to know. `latest`: the state at the last check.
    `made_for`: the folders and rules.

    What changes between two turns may be the user's, so a command in the background is
    left out then. So is an undo, which the user can do again.
    """

    def encode(changes: Iterable[PathChange]) -> str:
        return encode_difference(changes, latest).hex()

    open_steps = []
    for step in steps.open + [step for step, _ in steps.unrecorded]:
        if not step.conversation or step.is_between_turns:
            continue
        whose = (step.call, step.conversation, step.changed_by)
        since = (step.since_check, step.checkpoint.hex)
        open_steps.append((*whose, *since, step.only, encode(step.claimed)))
    if not open_steps:
        return b""
    unclaimed = {
        check: encode(changes.values()) for check, changes in steps.unclaimed.items() if changes
    }
    content = {
        "latest": latest.hex,
        "checks": steps.checks,
        "open": open_steps,
        "found": unclaimed,
        "made_for": made_for,
    }
    return json.dumps(content).encode()


def write_steps_file(file: Path, content: bytes) -> None:
    """Replace the file. It can fail only where the step is refused as well, as on a full disk."""
    with suppress(OSError):
        if not content:
            file.unlink(missing_ok=True)
            return
        new = file.with_suffix(".new")
        new.write_bytes(content)
        new.replace(file)


def read_interrupted_steps(file: Path, made_for: str) -> InterruptedSteps | None:
    """Read what a killed program has left. What cannot be read is nothing, because it only
    says whose changes are.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(file.read_bytes())
        if content["made_for"] != made_for:
            return None
        steps = OpenSteps()
        steps.checks = content["checks"]
        for check, encoded in content["found"].items():
            changes = decode_difference(bytes.fromhex(encoded))
            steps.unclaimed[int(check)] = {change.path: change for change in changes}
        for call, conversation, by, since, checkpoint, only, claimed in content["open"]:
            step = OpenStep(call, conversation, by, since, Digest.from_hex(checkpoint), only=only)
            step.claimed = decode_difference(bytes.fromhex(claimed))
            steps.open.append(step)
        latest = Digest.from_hex(content["latest"])
        return InterruptedSteps(steps, latest, file.stat().st_mtime_ns)
    return None


def changes_before_kill(
    changes: Iterable[PathChange], roots: Sequence[Path], alive: int
) -> Iterator[PathChange]:
    """Leave out what has certainly been changed since, because that was not the agent."""
    for change in changes:
        number, _, inside = change.path.partition("/")
        place = roots[int(number)] / inside
        with suppress(OSError):
            if _time_of_change(change, place) > alive + _SURE:
                continue
        yield change


def _time_of_change(change: PathChange, place: Path) -> int:
    if change.after is not None:
        return place.lstat().st_ctime_ns
    # What is gone has no time, but the folder it was in has.
    for folder in place.parents:
        if folder.is_dir():
            return folder.stat().st_mtime_ns
    return 0


def find_half_written_files(path: str, before: Tree, now: Tree) -> Iterator[str]:
    """Yield what writing a file has left beside it: the new version, or after the two
    were exchanged, the old one.
    """
    folder, _, name = path.rpartition("/")
    start_of_name = re.escape(f"{folder}/.{name[:60]}.")
    beside = re.compile(rf"{start_of_name}[0-9a-f]{{12}}\.helix")
    old = before.get(path)
    is_as_before = now.get(path) == old
    for other_path, item in now.items():
        if not beside.fullmatch(other_path):
            continue
        # If it is another version, somebody has changed the file in that very moment,
        # and it is all there is of it.
        is_old_version = old is not None and item.content == old.content
        if is_as_before or is_old_version:
            yield other_path
