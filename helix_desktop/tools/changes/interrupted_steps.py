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
BEAT_SECONDS = 5.0  # So often, in seconds, the time of the file is set while a step is open.
# What changes this long after that, in nanoseconds, is changed after the kill.
_CERTAINLY_LATER_NS = int(1.2 * BEAT_SECONDS * 1e9)


@dataclass(frozen=True, slots=True)
class InterruptedSteps:
    """What a killed program has left. `latest`: the last state that it knew. `alive_ns`: when it
    was alive for certain, in nanoseconds.
    """

    steps: OpenSteps
    latest: Digest
    alive_ns: int


def encode_steps(steps: OpenSteps, latest: Digest, made_for: str) -> bytes:
    """Return what the next start has to know: the steps that are open, with the changes they
    have claimed, and the changes that no step has claimed. Nothing if no step is open.
    `latest`: the state at the last check. `made_for`: the folders and rules.

    What changes between two turns may be the user's, so a command in the background is
    left out then. So is an undo, which the user can do again.
    """
    unrecorded_steps = [step for step, _ in steps.unrecorded]
    encoded_steps = []
    for step in steps.open + unrecorded_steps:
        if not step.conversation or step.is_between_turns:
            continue
        claimed_changes = encode_difference(step.claimed, latest)
        # Read by `read_interrupted_steps`, in this order.
        encoded_step = (
            step.call,
            step.conversation,
            step.changed_by,
            step.since_check,
            step.checkpoint.hex,
            step.only,
            claimed_changes.hex(),
        )
        encoded_steps.append(encoded_step)
    if not encoded_steps:
        return b""

    unclaimed_changes = {}
    for check, changes in steps.unclaimed.items():
        if changes:
            encoded_changes = encode_difference(changes.values(), latest)
            unclaimed_changes[check] = encoded_changes.hex()
    content = {
        "latest": latest.hex,
        "checks": steps.checks,
        "open": encoded_steps,
        "found": unclaimed_changes,
        "made_for": made_for,
    }
    return json.dumps(content).encode()


def write_steps_file(file: Path, content: bytes) -> None:
    """Replace the file. It can fail only where the step is refused as well, as on a full disk."""
    with suppress(OSError):
        if not content:
            file.unlink(missing_ok=True)
            return
        new_file = file.with_suffix(".new")
        new_file.write_bytes(content)
        new_file.replace(file)


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
        for encoded_step in content["open"]:
            # Written by `encode_steps`, in this order.
            call, conversation, changed_by, since_check, checkpoint, only, claimed = encoded_step
            step = OpenStep(
                call, conversation, changed_by, since_check, Digest.from_hex(checkpoint), only=only
            )
            step.claimed = decode_difference(bytes.fromhex(claimed))
            steps.open.append(step)
        latest = Digest.from_hex(content["latest"])
        return InterruptedSteps(steps, latest, file.stat().st_mtime_ns)
    return None


def changes_before_kill(
    changes: Iterable[PathChange], roots: Sequence[Path], alive_ns: int
) -> Iterator[PathChange]:
    """Leave out what has certainly been changed since, because that was not the agent."""
    for change in changes:
        number, _, inside = change.path.partition("/")
        path = roots[int(number)] / inside
        with suppress(OSError):
            if _time_of_change(change, path) > alive_ns + _CERTAINLY_LATER_NS:
                continue
        yield change


def _time_of_change(change: PathChange, path: Path) -> int:
    if change.after is not None:
        return path.lstat().st_ctime_ns
    # What is gone has no time, but the folder it was in has.
    for parent in path.parents:
        if parent.is_dir():
            return parent.stat().st_mtime_ns
    return 0


def find_half_written_files(path: str, tree_before: Tree, tree_now: Tree) -> Iterator[str]:
    """Yield what writing a file has left beside it: the new version, or after the two
    were exchanged, the old one.
    """
    folder, _, name = path.rpartition("/")
    start_of_name = re.escape(f"{folder}/.{name[:60]}.")
    half_written_name = re.compile(rf"{start_of_name}[0-9a-f]{{12}}\.helix")
    item_before = tree_before.get(path)
    is_unchanged = tree_now.get(path) == item_before
    for other_path, item in tree_now.items():
        if not half_written_name.fullmatch(other_path):
            continue
        # If it is another version, somebody has changed the file in that very moment,
        # and it is all there is of it.
        is_old_version = item_before is not None and item.content == item_before.content
        if is_unchanged or is_old_version:
            yield other_path
