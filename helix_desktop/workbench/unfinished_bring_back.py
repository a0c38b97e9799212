"""Remembers in a copy's folder what is about to be done to the user's files, until it
is done and recorded.

After a kill, the next start reads from it what was written, so that it can be undone.
Nobody asks for the rest at that time, and the user may have worked on since, so no more
is brought back then.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from helix_desktop import atomic_files
from helix_desktop.engine.changes.folder_state import (
    PathChange,
    PathKind,
    TreeItem,
    pack_item,
    unpack_item,
)
from helix_desktop.engine.changes.turn_changes import PlannedUndo, UndoOutlook
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.change_restoring import RestoreStep
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.private_git_copy import BranchMove

UNFINISHED = "unfinished.json"
MOST_BYTES = 64 << 20  # A larger file of this name is not read.


@dataclass(frozen=True, slots=True)
class UnfinishedBringBack:
    """What bringing a copy back is about to do: move the user's branches to merged commits
    (`moves`), or write files. For files, `steps` are written, and `applied_changes` is what the
    user's folders then have of the copy. `conversation` gets the fact, after its fact with the
    number `last_seq`.
    """

    moves: Sequence[BranchMove] = ()
    conversation: str = ""
    last_seq: int = 0
    steps: Sequence[RestoreStep] = ()
    applied_changes: Sequence[PathChange] = ()

    def save_in_copy(self, folder: Path) -> None:
        """Save this in the copy's folder, for the next start after a kill."""
        packed_steps: list[list[str]] = []
        for step in self.steps:
            packed_steps.append(_pack_items(step.path, step.now, step.target))
        packed_changes: list[list[str]] = []
        for change in self.applied_changes:
            packed_changes.append(_pack_items(change.path, change.before, change.after))
        moves = [asdict(move) for move in self.moves]
        saved = {
            "moves": moves,
            "conversation": self.conversation,
            "last_seq": self.last_seq,
            "steps": packed_steps,
            "taken": packed_changes,
        }
        text = json.dumps(saved)
        atomic_files.write_file_atomically(folder / UNFINISHED, text, private=True)


def _pack_items(path: str, before: TreeItem | None, after: TreeItem | None) -> list[str]:
    return [path, pack_item(before).hex(), pack_item(after).hex()]


def _unpack_items(packed: Sequence[str]) -> tuple[str, TreeItem | None, TreeItem | None]:
    path, before, after = packed
    return path, unpack_item(bytes.fromhex(before)), unpack_item(bytes.fromhex(after))


def read_unfinished_bring_back(folder: Path) -> UnfinishedBringBack | None:
    """Return what was not finished in a copy. What cannot be read is nothing, as only a
    damaged disk makes it so.
    """
    try:
        content = atomic_files.read_small_file(folder / UNFINISHED, MOST_BYTES)
        saved = json.loads(content)
        moves = [BranchMove(**move) for move in saved["moves"]]
        steps = [RestoreStep(*_unpack_items(packed)) for packed in saved["steps"]]
        applied_changes = [PathChange(*_unpack_items(packed)) for packed in saved["taken"]]
        return UnfinishedBringBack(
            moves=moves,
            conversation=saved["conversation"],
            last_seq=saved["last_seq"],
            steps=steps,
            applied_changes=applied_changes,
        )
    except (OSError, HelixError, ValueError, RecursionError, KeyError, TypeError):
        return None


def forget_unfinished_bring_back(folder: Path) -> None:
    (folder / UNFINISHED).unlink(missing_ok=True)


def folders_above(checkpoints: Checkpoints, steps: Iterable[RestoreStep]) -> list[RestoreStep]:
    """Return steps that change nothing, so that the modes of these folders are known,
    which are writable meanwhile.
    """
    paths: set[str] = set()
    for step in steps:
        for folder in PurePosixPath(step.path).parents:
            paths.add(str(folder))
    unchanged: list[RestoreStep] = []
    for path in sorted(paths):
        item = checkpoints.folders.last_item_at(path)
        if _is_folder(item):
            unchanged.append(RestoreStep(path, item, item))
    return unchanged


async def record_written_steps(
    checkpoints: Checkpoints, unfinished: UnfinishedBringBack
) -> tuple[FilesChanged | None, set[str]]:
    """Return what was written before the kill as a fact, and the paths that were not.
    Modes of folders are corrected.
    """
    await checkpoints.ensure_first_check()
    await checkpoints.check_for_changes(thorough=True)

    written: list[PlannedUndo] = []
    mode_corrections: list[RestoreStep] = []
    unwritten_paths: set[str] = set()
    for step in unfinished.steps:
        item = checkpoints.folders.last_item_at(step.path)
        are_both_folders = _is_folder(item) and _is_folder(step.target)
        if are_both_folders and _is_left_writable(item, step.target):
            mode_corrections.append(RestoreStep(step.path, item, step.target))
        if are_both_folders or item == step.target:
            written.append(_plan_of_written_step(step, step.target))
            continue
        unwritten_paths.add(step.path)
        was_removed = item is None and step.now is not None
        if was_removed and not change_restoring.can_swap_in_place(step):
            # It was removed to make room, and nothing is there yet.
            written.append(_plan_of_written_step(step, target=None))
    await change_restoring.remove_undo_leftovers(checkpoints, unfinished.steps)
    await change_restoring.restore_paths(checkpoints, mode_corrections)
    result = await change_restoring.restore_paths(checkpoints, (), already=written)
    return result.fact, unwritten_paths


def _is_left_writable(folder: TreeItem | None, target: TreeItem | None) -> bool:
    """Whether a folder still has the mode in which files are moved into it."""
    if folder is None or folder == target:
        return False
    return folder.mode == change_restoring.OPENED


def _is_folder(item: TreeItem | None) -> bool:
    return item is not None and item.kind is PathKind.FOLDER


def _plan_of_written_step(step: RestoreStep, target: TreeItem | None) -> PlannedUndo:
    return PlannedUndo(step.path, target, step.now, target, UndoOutlook.ALREADY)
