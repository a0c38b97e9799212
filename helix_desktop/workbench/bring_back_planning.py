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
_EXECUTABLE = 0o100  # The bit of a mode by which the owner may execute a file.
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
            packed_bytes = bytes.fromhex(packed_item)
            versions.append(unpack_item(packed_bytes))
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
    the user changed the file, too; `already_there`: those that the user's folder has anyway.
    """

    checkpoints: Checkpoints
    changes: Sequence[PathChange]
    steps: Sequence[RestoreStep]
    conflicts: Sequence[PathChange]
    already_there: Sequence[PathChange]

    @property
    def conflicting_names(self) -> list[str]:
        return self.name_changes(self.conflicts)

    def name_changes(self, changes: Sequence[PathChange]) -> list[str]:
        return [printable_path(self.checkpoints.displayed_path(change.path)) for change in changes]


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
        versions_of_name = partial(
            _versions_of_file_in_repository, copy, versions, repository_to_move.checkout
        )
        move = copying.plan_branch_move(
            repository_to_move.source, repository_to_move.commit, versions_of_name
        )
        moves.append(move)
    # After a kill, the next start finishes or reports the moves.
    UnfinishedBringBack(moves).save_in_copy(copy.folder)
    return _move_branches(merged, moves)


def _versions_of_file_in_repository(
    copy: FolderCopy, versions: BroughtVersions | None, checkout: GitCheckout, name: str
) -> Sequence[TreeItem | None]:
    """Return the versions of a file that the user's folders have got, by its name in the
    repository.
    """
    if versions is None:
        return ()
    for root_number, (repository_number, beginning) in enumerate(copy.places):
        is_in_root = str(repository_number) == checkout.folder.name
        if is_in_root and name.startswith(beginning):
            return versions.versions_of(f"{root_number}/{name.removeprefix(beginning)}")
    return ()


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
            what_happened = " ".join([error.what] + sentences)
            remedy = " ".join(ways_back) or error.remedy
            raise ActionRefused(what_happened, remedy=remedy) from error
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
    already_there: list[PathChange] = []
    for change in changes:
        users_item = checkpoints.folders.last_item_at(change.path)
        if _is_same_version(users_item, change.after):
            already_there.append(change)
            continue
        known = _known_versions_of_change(change, users_item, versions)
        copys_item = _item_with_mode(change.after, users_item)
        step_to_copys_version = RestoreStep(change.path, users_item, copys_item)
        if not known.has_user_changed_it:
            steps.append(step_to_copys_version)
            continue
        if _is_same_version(known.versions[-1], change.after):
            continue  # Only the user has changed it since it was brought back.
        change_since_common_version = change._replace(before=known.before)
        merged_item = await _merge_versions(
            checkpoints,
            change_since_common_version,
            users_item,
            with_markers=choice == "markers",
        )
        if merged_item is not None:
            steps.append(RestoreStep(change.path, users_item, merged_item))
        elif choice == "copy":
            steps.append(step_to_copys_version)
        elif choice != "yours" and not known.was_folder:
            conflicts.append(change)
    return BringBackPlan(checkpoints, changes, steps, conflicts, already_there)


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
    change: PathChange, users_item: TreeItem | None, brought_versions: BroughtVersions
) -> KnownVersions:
    """Return the versions of one path, without the last one if the user has undone the apply (the
    step that wrote the copy's version into the user's folder) that brought it.
    """
    versions = brought_versions.versions_of(change.path)
    before = change.before
    item_before_last_apply = brought_versions.replaced.get(change.path)
    if item_before_last_apply == pack_item(users_item).hex():
        # What the last apply brought is not in the user's folder any more.
        versions = versions[:-1] or versions
        before = versions[-1]
    is_file = change.after is not None and change.after.kind is PathKind.FILE
    has_user_changed_it = True
    for version in versions:
        if _is_same_version(users_item, version, with_mode=is_file):
            has_user_changed_it = False
    return KnownVersions(before, versions, has_user_changed_it)


def describe_step(roots: Sequence[Path], step: RestoreStep) -> str:
    """Return a line with the full path, and what happens to it if more than its content changes."""
    root_number, _, path_in_root = step.path.partition("/")
    words: list[str] = []
    if step.now is None:
        words.append("new")
    elif step.target is None:
        words.append("deleted")
    if step.target is not None:
        words.extend(_describe_kind_or_mode(step.now, step.target))
    line = f"{roots[int(root_number)]}/{path_in_root}"
    if words:
        line += f" ({', '.join(words)})"
    # A name with a line break must not look like another line of the question.
    return printable_path(line).replace("\n", "\\n")


def _describe_kind_or_mode(item: TreeItem | None, target: TreeItem) -> list[str]:
    """Return what becomes of a path that is no plain file, or of a file's mode."""
    if target.kind is not PathKind.FILE:
        kind = _KINDS.get(target.kind, "left out")
        return [kind.format(os.fsdecode(target.content))]
    was_executable = item is not None and item.mode & _EXECUTABLE != 0
    is_executable = target.mode & _EXECUTABLE != 0
    if is_executable and not was_executable:
        return ["executable"]
    if was_executable and not is_executable:
        return ["no longer executable"]
    return []


def describe_links_leading_out(
    roots: Sequence[Path], changes: Sequence[PathChange]
) -> tuple[str, ...]:
    """Name the links among what was brought back that lead out of the workspace's folders."""
    sentences = []
    for change in changes:
        item = change.after
        if item is None or item.kind is not PathKind.LINK:
            continue
        root_number, _, path_in_root = change.path.partition("/")
        link = roots[int(root_number)] / path_in_root
        target = os.path.normpath(link.parent / os.fsdecode(item.content))
        roots_with_target = [root for root in roots if Path(target).is_relative_to(root)]
        if not roots_with_target:
            shown_link = printable_path(str(link))
            shown_target = printable_path(target)
            sentences.append(
                f"The link {shown_link} leads out of the workspace's folders, to {shown_target}."
            )
    return tuple(sentences)


def _is_same_version(
    first: TreeItem | None, second: TreeItem | None, *, with_mode: bool = True
) -> bool:
    """Compare as git does: of a mode, only whether a file is executable counts."""
    if first is None or second is None:
        return first is second
    if first.kind is not second.kind:
        return False
    if first.kind is PathKind.FOLDER:
        return True
    if with_mode and (first.mode ^ second.mode) & _EXECUTABLE:
        return False
    return first.content == second.content


def _item_with_mode(copys_item: TreeItem | None, users_item: TreeItem | None) -> TreeItem | None:
    """Return the copy's file with the mode of the user's, except whether it is executable."""
    if copys_item is None or users_item is None:
        return copys_item
    if not copys_item.kind is users_item.kind is PathKind.FILE:
        return copys_item
    if copys_item.mode & _EXECUTABLE:
        # As git does: whoever may read an executable file may also execute it. The bits to
        # execute (0o111) stand two places behind those to read.
        executable_by_readers = (users_item.mode & 0o444) >> 2
        return copys_item._replace(mode=users_item.mode | executable_by_readers)
    return copys_item._replace(mode=users_item.mode & ~0o111)


async def _merge_versions(
    checkpoints: Checkpoints,
    change: PathChange,
    users_item: TreeItem | None,
    *,
    with_markers: bool,
) -> TreeItem | None:
    """Merge the user's version with the copy's as git does. None if both changed the
    same lines, unless `with_markers`.
    """
    before = change.before
    after = change.after
    if users_item is None or after is None:
        return None
    if not users_item.kind is after.kind is PathKind.FILE:
        return None
    if before is None or before.kind is not PathKind.FILE:
        if not with_markers:
            return None
        # Without a common version, every line counts as added by both.
        before = after._replace(content=b"", size=0)
    contents: list[bytes] = []
    for item in (users_item, before, after):
        content = b""
        if item.size:
            content = await checkpoints.read_item_content(item)
        contents.append(content)
    try:
        merged_content = await asyncio.to_thread(
            copying.merge_versions, *contents, with_markers=with_markers
        )
    except ActionRefused:
        # Both changed the same lines.
        return None
    merged_item = await change_restoring.store_merged_version(
        checkpoints, merged_content, users_item
    )
    has_copy_changed_mode = (before.mode ^ after.mode) & _EXECUTABLE
    if not has_copy_changed_mode:
        return merged_item
    return _item_with_mode(merged_item._replace(mode=after.mode), users_item)
