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
        versions = [self.start.get(path)]
        for packed_item in self.brought.get(path, ()):
            versions.append(unpack_item(bytes.fromhex(packed_item)))
        return versions

    def latest_versions(self) -> dict[str, TreeItem]:
        latest: dict[str, TreeItem] = dict(self.start)
        for path in self.brought:
            item = self.versions_of(path)[-1]
            if item is not None:
                latest[path] = item
            else:  # The copy deleted it.
                latest.pop(path, None)
        return latest


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


@dataclass(frozen=True, slots=True)
class _MergedRepository:
    """`source`: the user's repository. `commit`: the one in the copy that has both sides."""

    source: GitCheckout
    checkout: GitCheckout
    commit: str


def merge_branches(
    copy: FolderCopy, message: str, versions: BroughtVersions | None, *, rebase: bool
) -> tuple[str, ...]:
    """Merge in the copy. The user's branches are moved once that has worked in all repositories."""

    def find_versions(checkout: GitCheckout, name: str) -> Sequence[TreeItem | None]:
        if versions is None:
            return ()
        for root_number, (repository_number, beginning) in enumerate(copy.places):
            is_in_root = str(repository_number) == checkout.folder.name
            if is_in_root and name.startswith(beginning):
                return versions.versions_of(f"{root_number}/{name.removeprefix(beginning)}")
        return ()

    merged: list[_MergedRepository] = []
    for source, checkout_in_copy, repository in find_checkouts(copy):
        if source is None:
            raise ActionRefused(
                "The original repository no longer exists.",
                remedy="You can copy the files by hand instead.",
            )
        checkout = checkout_in_copy.with_committer_of(source)
        source.check_no_merge_open()
        checkout.check_no_merge_open()
        copying.commit_in_copy(checkout, repository, message)
        commit = copying.merge_or_rebase_in_copy(source, checkout, repository, rebase=rebase)
        if commit:
            merged.append(_MergedRepository(source, checkout, commit))
    for repository_to_move in merged:
        copying.bring_commit_to_source(
            repository_to_move.source,
            repository_to_move.checkout,
            repository_to_move.commit,
            copy.id,
        )
    # All are planned before the first is moved.
    moves: list[BranchMove] = []
    for repository_to_move in merged:
        versions_of_name = partial(find_versions, repository_to_move.checkout)
        moves.append(
            copying.plan_branch_move(
                repository_to_move.source, repository_to_move.commit, versions_of_name
            )
        )
    # After a kill, the next start finishes or reports the moves.
    UnfinishedBringBack(moves).save_in_copy(copy.folder)
    return _move_branches(merged, moves)


def _move_branches(
    merged: Sequence[_MergedRepository], moves: Sequence[BranchMove]
) -> tuple[str, ...]:
    """Move the user's branches. If one cannot be moved, the error says how to take back the others."""
    sentences: list[str] = []
    ways_back: list[str] = []
    for repository, move in zip(merged, moves, strict=True):
        source = repository.source
        try:
            copying.move_branch_forward(source, move)
        except ActionRefused as error:
            raise ActionRefused(
                " ".join((error.what, *sentences)), remedy=" ".join(ways_back) or error.remedy
            ) from error
        branch = source.branch or "HEAD"
        sentences.append(f"{branch} in {source.folder} is now at {repository.commit[:9]}.")
        ways_back.append(f"To go back, run `git reset --keep {move.head[:9]}` in {source.folder}.")
    if not sentences:
        return ("There are no changes to bring back.",)
    return tuple(sentences)


def repair_moves(moves: Sequence[BranchMove]) -> bool:
    """Whether all branches were moved."""
    are_all_moved = True
    sources = [copying.find_source_repository(Path(move.source)) for move in moves]
    for source, move in zip(sources, moves, strict=True):
        # The others are repaired even if one was not moved.
        if source is None or not copying.repair_branch_move(source, move):
            are_all_moved = False
    return are_all_moved


async def plan_merge(
    checkpoints: Checkpoints, changes: Sequence[PathChange], versions: BroughtVersions, choice: str
) -> BringBackPlan:
    """Return the steps that add these changes to the user's files. `choice`: what is
    done about conflicts.
    """
    steps: list[RestoreStep] = []
    conflicts: list[PathChange] = []
    for change in changes:
        now = checkpoints.folders.last_item_at(change.path)
        if _is_same_version(now, change.after):
            continue
        known = _known_versions_of_change(change, now, versions)
        step_to_copy_version = RestoreStep(change.path, now, _item_with_mode(change.after, now))
        if not known.has_user_changed_it:
            steps.append(step_to_copy_version)
            continue
        if _is_same_version(known.versions[-1], change.after):
            continue  # Only the user has changed it since it was brought back.
        both_changed = change._replace(before=known.before)
        merged = await _merge_versions(
            checkpoints, both_changed, now, with_markers=choice == "markers"
        )
        if merged is not None:
            steps.append(RestoreStep(change.path, now, merged))
        elif choice == "copy":
            steps.append(step_to_copy_version)
        elif choice != "yours" and not known.was_folder:
            conflicts.append(change)
    return BringBackPlan(checkpoints, changes, steps, conflicts)


@dataclass(frozen=True, slots=True)
class KnownVersions:
    """What a path was before a change, and the versions of it that the user's folders may have."""

    before: TreeItem | None
    versions: Sequence[TreeItem | None]
    has_user_changed_it: bool

    @property
    def was_folder(self) -> bool:
        return self.before is not None and self.before.kind is PathKind.FOLDER


def _known_versions_of_change(
    change: PathChange, now: TreeItem | None, brought: BroughtVersions
) -> KnownVersions:
    versions = brought.versions_of(change.path)
    before = change.before
    was_last_apply_undone = brought.replaced.get(change.path) == pack_item(now).hex()
    if was_last_apply_undone:
        # What the last apply brought is not in the user's folder any more.
        versions = versions[:-1] or versions
        before = versions[-1]
    is_file = change.after is not None and change.after.kind is PathKind.FILE
    is_known = any(_is_same_version(now, version, with_mode=is_file) for version in versions)
    return KnownVersions(before, versions, has_user_changed_it=not is_known)


def describe_step(roots: Sequence[Path], step: RestoreStep) -> str:
    """Return a line with the full path, and what happens to it if more than its content changes."""
    number, _, inside = step.path.partition("/")
    now = step.now
    target = step.target
    words: list[str] = []
    if now is None:
        words.append("new")
    elif target is None:
        words.append("deleted")
    if target is not None:
        was_executable = now is not None and now.mode & 0o100 != 0
        is_executable = target.mode & 0o100 != 0
        if target.kind is not PathKind.FILE:
            kind = _KINDS.get(target.kind, "left out")
            words.append(kind.format(os.fsdecode(target.content)))
        elif is_executable and not was_executable:
            words.append("executable")
        elif was_executable and not is_executable:
            words.append("no longer executable")
    line = f"{roots[int(number)]}/{inside}"
    if words:
        line += f" ({', '.join(words)})"
    # A name with a line break must not look like another line of the question.
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
    if wanted.mode & 0o100:
        # As git does: whoever may read an executable file may also execute it.
        return wanted._replace(mode=now.mode | (now.mode & 0o444) >> 2)
    return wanted._replace(mode=now.mode & ~0o111)


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
    contents: list[bytes] = []
    for item in (now, before, after):
        content = b""
        if item.size:
            content = await checkpoints.read_item_content(item)
        contents.append(content)
    try:
        merged = await asyncio.to_thread(
            copying.merge_versions, *contents, with_markers=with_markers
        )
    except ActionRefused:
        return None
    merged_item = await change_restoring.store_merged_version(checkpoints, merged, now)
    has_copy_changed_mode = (before.mode ^ after.mode) & 0o100
    if not has_copy_changed_mode:
        return merged_item
    return _item_with_mode(merged_item._replace(mode=after.mode), now)
