"""Decides what bringing a copy back writes to the user's files, and joins its branches
with the user's.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from helix_desktop.engine.changes.folder_state import (
    PathChange,
    PathKind,
    Tree,
    TreeItem,
    pack_item,
    unpack_item,
)
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import private_git_copy as copying
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.change_restoring import RestoreStep
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.private_git_copy import BranchMove, GitCheckout
from helix_desktop.workbench.copy_files import FolderCopy, find_checkouts
from helix_desktop.workbench.unfinished_bring_back import UnfinishedBringBack

NOT_TOUCHED = "Your own folder was not changed."
_KINDS = {PathKind.FOLDER: "folder", PathKind.LINK: "link to {}", PathKind.TWIN: "hard link to {}"}


@dataclass(frozen=True, slots=True)
class BroughtVersions:
    """The versions of a copy's files that the user's folders have got: with the copy,
    and whenever it was brought back.
    """

    start: Tree
    brought: Mapping[str, Sequence[str]]
    replaced: Mapping[str, str]

    def versions_of(self, path: str) -> list[TreeItem | None]:
        """Return the versions of a file, the newest last."""
        return [
            self.start.get(path),
            *(unpack_item(bytes.fromhex(each)) for each in self.brought.get(path, ())),
        ]

    def latest_versions(self) -> dict[str, TreeItem]:
        known = {**self.start, **{path: self.versions_of(path)[-1] for path in self.brought}}
        return {path: item for path, item in known.items() if item is not None}


class BringBackPlan(NamedTuple):
    """`changes`: what differs in the copy; `conflicts`: those that no step takes, as
    the user changed the file, too.
    """

    checkpoints: Checkpoints
    changes: Sequence[PathChange]
    steps: Sequence[RestoreStep]
    conflicts: Sequence[PathChange]

    @property
    def conflicting_names(self) -> list[str]:
        return [
            printable_path(self.checkpoints.displayed_path(change.path))
            for change in self.conflicts
        ]


def merge_branches(
    copy: FolderCopy, message: str, versions: BroughtVersions | None, *, rebase: bool
) -> tuple[str, ...]:
    """Merge in the copy. The user's branches are moved once that has worked in all repositories."""

    def find_versions(checkout: GitCheckout, name: str) -> Sequence[TreeItem | None]:
        for at, (number, start) in enumerate(copy.places):
            if (
                versions is not None
                and str(number) == checkout.folder.name
                and name.startswith(start)
            ):
                return versions.versions_of(f"{at}/{name.removeprefix(start)}")
        return ()

    joined = []
    for source, in_copy, made in find_checkouts(copy):
        if source is None:
            raise ActionRefused(
                "The original repository no longer exists.",
                remedy="You can copy the files by hand instead.",
            )
        checkout = in_copy.with_committer_of(source)
        source.check_no_merge_open()
        checkout.check_no_merge_open()
        copying.commit_in_copy(checkout, made, message)
        if commit := copying.merge_or_rebase_in_copy(source, checkout, made, rebase=rebase):
            joined.append((source, checkout, commit))
    for source, checkout, commit in joined:
        copying.bring_commit_to_source(source, checkout, commit, copy.id)
    # All are planned before the first is moved.
    moves = [
        copying.plan_branch_move(source, commit, partial(find_versions, at))
        for source, at, commit in joined
    ]
    UnfinishedBringBack(moves).save_in_copy(copy.folder)
    said, undoing = list[str](), list[str]()
    for (source, _, commit), move in zip(joined, moves, strict=True):
        undoing.append(f"To go back, run `git reset --keep {move.head[:9]}` in {source.folder}.")
        try:
            copying.move_branch_forward(source, move)
        except ActionRefused as error:
            raise ActionRefused(
                " ".join((error.what, *said)), remedy=" ".join(undoing[:-1]) or error.remedy
            ) from error
        said.append(f"{source.branch or 'HEAD'} in {source.folder} is now at {commit[:9]}.")
    return tuple(said) or ("There are no changes to bring back.",)


def repair_moves(moves: Sequence[BranchMove]) -> bool:
    """Whether all branches were moved."""
    sources = [copying.find_source_repository(Path(move.source)) for move in moves]
    found = [
        (source, move) for source, move in zip(sources, moves, strict=True) if source is not None
    ]
    return len([None for source, move in found if copying.repair_branch_move(source, move)]) == len(
        moves
    )


async def plan_merge(
    checkpoints: Checkpoints, changes: Sequence[PathChange], versions: BroughtVersions, choice: str
) -> BringBackPlan:
    """Return the steps that add these changes to the user's files. `choice`: what is
    done about conflicts.
    """
    steps, conflicts = [], []
    for each in changes:
        change, now = each, checkpoints.folders.last_item_at(each.path)
        if _is_same_version(now, change.after):
            continue
        is_file = change.after is not None and change.after.kind is PathKind.FILE
        known = versions.versions_of(change.path)
        if versions.replaced.get(change.path) == pack_item(now).hex():  # The last apply was undone.
            known = known[:-1] or known
            change = change._replace(before=known[-1])
        if any(_is_same_version(now, one, with_mode=is_file) for one in known):
            steps.append(RestoreStep(change.path, now, _item_with_mode(change.after, now)))
        elif _is_same_version(known[-1], change.after):
            continue  # Only the user has changed it since it was brought back.
        elif (
            merged := await _merge_versions(
                checkpoints, change, now, with_markers=choice == "markers"
            )
        ) is not None:
            steps.append(RestoreStep(change.path, now, merged))
        elif choice == "copy":
            steps.append(RestoreStep(change.path, now, _item_with_mode(change.after, now)))
        elif choice != "yours" and (
            change.before is None or change.before.kind is not PathKind.FOLDER
        ):
            conflicts.append(each)
    return BringBackPlan(checkpoints, changes, steps, conflicts)


def describe_step(roots: Sequence[Path], step: RestoreStep) -> str:
    """Return a line with the full path, and what happens to it if more than its content changes."""
    number, _, inside = step.path.partition("/")
    now, target = step.now, step.target
    words = ["new"] if now is None else ["deleted"] if target is None else []
    if target is not None and target.kind is not PathKind.FILE:
        words.append(_KINDS.get(target.kind, "left out").format(os.fsdecode(target.content)))
    elif target is not None and (target.mode ^ (now.mode if now is not None else 0)) & 0o100:
        words.append("executable" if target.mode & 0o100 else "no longer executable")
    line = f"{roots[int(number)]}/{inside}" + (f" ({', '.join(words)})" if words else "")
    return printable_path(line).replace("\n", "\\n")


def describe_links_leading_out(
    roots: Sequence[Path], changes: Sequence[PathChange]
) -> tuple[str, ...]:
    """Name the links among what was brought back that lead out of the workspace's folders."""
    sentences = []
    for change in changes:
        item = change.after
        if item is None or item.kind is not PathKind.LINK:
            continue
        number, _, inside = change.path.partition("/")
        link = roots[int(number)] / inside
        target = os.path.normpath(link.parent / os.fsdecode(item.content))
        if not any(Path(target).is_relative_to(root) for root in roots):
            shown = printable_path(str(link))
            sentences.append(
                f"The link {shown} leads out of the workspace's folders, to {printable_path(target)}."
            )
    return tuple(sentences)


def _is_same_version(
    one: TreeItem | None, other: TreeItem | None, *, with_mode: bool = True
) -> bool:
    """Compare as git does: of a mode, only whether a file is executable counts."""
    if one is None or other is None or one.kind is not other.kind:
        return one is other
    same_mode = not with_mode or not (one.mode ^ other.mode) & 0o100
    return one.kind is PathKind.FOLDER or (one.content == other.content and same_mode)


def _item_with_mode(wanted: TreeItem | None, now: TreeItem | None) -> TreeItem | None:
    """Return the file with the mode of the user's, except whether it is executable."""
    if wanted is None or now is None or not wanted.kind is now.kind is PathKind.FILE:
        return wanted
    return wanted._replace(
        mode=now.mode | (now.mode & 0o444) >> 2 if wanted.mode & 0o100 else now.mode & ~0o111
    )


async def _merge_versions(
    checkpoints: Checkpoints, change: PathChange, now: TreeItem | None, *, with_markers: bool
) -> TreeItem | None:
    """Merge the user's version with the copy's as git does. None if both changed the
    same lines, unless `with_markers`.
    """
    before, after = change.before, change.after
    if now is None or after is None or not now.kind is after.kind is PathKind.FILE:
        return None
    if before is None or before.kind is not PathKind.FILE:
        if not with_markers:
            return None
        before = after._replace(content=b"", size=0)
    versions = [
        await checkpoints.read_item_content(item) if item.size else b""
        for item in (now, before, after)
    ]
    try:
        merged = await asyncio.to_thread(
            copying.merge_versions, *versions, with_markers=with_markers
        )
    except ActionRefused:
        return None
    item = await change_restoring.store_merged_version(checkpoints, merged, now)
    return (
        _item_with_mode(item._replace(mode=after.mode), now)
        if (before.mode ^ after.mode) & 0o100
        else item
    )
