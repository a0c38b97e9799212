"""Undoes changes: finds what can be restored and what others have changed meanwhile,
then restores it.

What is already right is left alone, so an undo that was interrupted can simply be run again.
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field, replace
from secrets import token_hex

from helix_desktop.engine.changes import diff_hunks
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import PlannedUndo, UndoOutlook
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes import atomic_swap
from helix_desktop.tools.changes.atomic_swap import ChangedMeanwhile
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.changes.content_storing import ABOUT
from helix_desktop.tools.safe_path_opening import DIRECTORY, closing_handle, write_to_handle

_CHUNK = 4 << 20
OPENED = 0o700  # The mode of a folder while something in it is restored.


@dataclass(frozen=True, slots=True)
class RestoreStep:
    """What to put at a path, if `now` is still there."""

    path: str
    now: TreeItem | None
    target: TreeItem | None


@dataclass(slots=True)
class RestoreResult:
    """The outcome: paths that are now as wanted, those left alone and why, and the fact
    that records it.
    """

    restored: list[str] = field(default_factory=list)
    paths_left_alone: list[tuple[str, str]] = field(default_factory=list)
    fact: FilesChanged | None = None


async def plan_undo_of_changes(
    checkpoints: Checkpoints,
    changes: Iterable[PathChange],
    changed_between: frozenset[str] = frozenset(),
) -> tuple[PlannedUndo, ...]:
    """Plan to undo these changes, one per path. `changed_between`: paths that others
    changed in between.
    """
    await checkpoints.check_for_changes()
    planned = []
    for change in changes:
        current_item = checkpoints.folders.last_item_at(change.path)
        was_changed_by_others = current_item != change.after or change.path in changed_between
        if current_item == change.before:
            outlook = UndoOutlook.ALREADY
        elif was_changed_by_others:
            outlook = UndoOutlook.CONFLICT
        else:
            outlook = UndoOutlook.RESTORE
        planned.append(
            PlannedUndo(
                path=change.path,
                before=change.before,
                after=change.after,
                now=current_item,
                how=outlook,
            )
        )
    return tuple(planned)


async def merge_with_other_changes(
    checkpoints: Checkpoints, planned: PlannedUndo
) -> TreeItem | None:
    """Return the current file without the agent's change, or None if others changed the
    same lines.
    """
    current_item = planned.now
    for item in (planned.before, planned.after, current_item):
        if item is None or item.kind is not PathKind.FILE:
            return None
    if current_item is None:
        return None
    before_agent = await checkpoints.read_item_content(planned.before)
    after_agent = await checkpoints.read_item_content(planned.after)
    current_content = await checkpoints.read_item_content(current_item)
    if diff_hunks.is_binary(before_agent, after_agent, current_content):
        return None
    with suppress(ActionRefused):  # Others changed the same lines.
        hunks = diff_hunks.find_hunks(before_agent, after_agent)
        merged = diff_hunks.revert_hunks(before_agent, after_agent, current_content, hunks)
        return await store_merged_version(checkpoints, merged, current_item)
    return None


async def store_merged_version(
    checkpoints: Checkpoints, content: bytes, like: TreeItem
) -> TreeItem:
    """Store a version of a file that is in no folder yet, and return its item."""
    (stored,) = await checkpoints.contents.store_many([(content, ABOUT)])
    return TreeItem(PathKind.FILE, like.mode, stored.size, stored.digest.raw)


def plan_restore_steps(
    planned: Sequence[PlannedUndo], chosen: Mapping[str, TreeItem | None] = {}
) -> tuple[RestoreStep, ...]:
    """Return what to restore: everything that can be, and for conflicts the user's
    `chosen` versions.
    """
    possible = []
    conflicts = []
    for undo in planned:
        if undo.path in chosen:
            conflicts.append(RestoreStep(undo.path, undo.now, chosen[undo.path]))
        elif undo.how is UndoOutlook.RESTORE:
            possible.append(RestoreStep(undo.path, undo.now, undo.before))
    return tuple(step for step in possible + conflicts if step.now != step.target)


async def restore_paths(
    checkpoints: Checkpoints, steps: Sequence[RestoreStep], *, already: Sequence[PlannedUndo] = ()
) -> RestoreResult:
    """Restore these paths. If the program ends meanwhile, another run continues from there."""
    result = RestoreResult()
    # While this step is open, what changes at its paths counts as changed by the undo.
    open_step = await checkpoints.begin_step("", "", "undo")
    if open_step is None:
        raise _no_checkpoints_error(checkpoints)
    try:
        await remove_undo_leftovers(checkpoints, steps)
        await _PathRestorer(checkpoints, result).restore_all_steps(steps)
        await checkpoints.check_for_changes()
        paths = {step.path for step in steps}
        checkpoints.steps.claim_unowned_changes(open_step.since_check, paths)
        changes = _changes_of_undo(checkpoints, steps, already)
        checkpoint_after_undo = checkpoints.latest_checkpoint
        if checkpoint_after_undo is not None and changes:
            result.fact = await checkpoints.build_change_fact(
                changes, open_step.checkpoint, checkpoint_after_undo, call="", by="undo"
            )
    finally:
        checkpoints.steps.close_open_step(open_step)
        await checkpoints.save_open_steps()
    return result


def _no_checkpoints_error(checkpoints: Checkpoints) -> ActionRefused:
    for root in checkpoints.roots:
        if not root.is_dir():
            return ActionRefused(f"The workspace's folder {root} no longer exists.")
    return ActionRefused("The workspace's folders are not covered by checkpoints.")


def _changes_of_undo(
    checkpoints: Checkpoints, steps: Sequence[RestoreStep], already: Sequence[PlannedUndo]
) -> list[PathChange]:
    """Return what the undo changed, and what was as wanted before it."""
    change_by_path: dict[str, PathChange] = {}
    for step in steps:
        item_after_undo = checkpoints.folders.last_item_at(step.path)
        change_by_path[step.path] = PathChange(step.path, step.now, item_after_undo)
    for undo in already:
        change_by_path.setdefault(undo.path, PathChange(undo.path, undo.after, undo.before))
    return sorted(change for change in change_by_path.values() if change.before != change.after)


def _targets_of_known_links(checkpoints: Checkpoints, steps: Sequence[RestoreStep]) -> set[str]:
    items: list[TreeItem | None] = list(checkpoints.folders.known_items().values())
    for step in steps:
        items += (step.now, step.target)
    targets = set()
    for item in items:
        if item is not None and item.kind is PathKind.LINK:
            targets.add(os.fsdecode(item.content))
    return targets


async def remove_undo_leftovers(checkpoints: Checkpoints, steps: Sequence[RestoreStep]) -> None:
    """Remove what an interrupted undo left, if its content is stored. Other files may
    be somebody's.
    """
    if not checkpoints.leftovers:
        return
    known_targets = _targets_of_known_links(checkpoints, steps)
    while checkpoints.leftovers:
        parent_path, _, name = checkpoints.leftovers.pop().rpartition("/")
        # A leftover that cannot be read or removed stays: it does not prevent the undo.
        with (
            suppress(OSError, HelixError),
            checkpoints.reader.open_recorded_folder(parent_path) as parent,
        ):
            digest_or_target = await asyncio.to_thread(
                atomic_swap.read_digest_or_link_target, parent, name
            )
            if isinstance(digest_or_target, bytes):
                digest = Digest(digest_or_target)
                is_kept_elsewhere = not await checkpoints.contents.find_missing_content([digest])
            else:
                is_kept_elsewhere = digest_or_target in known_targets
            if is_kept_elsewhere:
                os.unlink(name, dir_fd=parent)


def _reason_for_no_restore(target: TreeItem) -> str:
    if target.content:
        return "its content was not kept"
    return "sockets, pipes and devices are not restored"


def _reason_of_failure(error: ChangedMeanwhile | HelixError | OSError) -> str:
    if isinstance(error, ChangedMeanwhile):
        return "it was changed in the meantime"
    if isinstance(error, HelixError):
        return str(error)
    if error.errno == errno.ENOTEMPTY:
        return "it contains files that are not part of this undo"
    return error.strerror or "refused"


class _PathRestorer:
    """Carries out an undo: leads each path to what it is to be, and notes in `done` what came of it."""

    def __init__(self, checkpoints: Checkpoints, done: RestoreResult) -> None:
        self._checkpoints = checkpoints
        self._done = done
        self._wanted: set[str] = set()
        # Folders that were made writable for an undo, with the modes to restore.
        self._opened: dict[str, int] = {}

    async def restore_all_steps(self, steps: Sequence[RestoreStep]) -> None:
        """Remove entries, deepest first, then create folders, files and hard links, and
        set folder modes last.

        A step leads one path from what it is `now` to its `target`. What can take its
        target in place, as a file can, is not removed before.
        """
        self._wanted = {step.path for step in steps}
        self._checkpoints.folders.restore_permissions_of_roots()
        steps_in_place = []
        steps_to_remove = []
        for step in steps:
            if step.now is None or can_swap_in_place(step):
                steps_in_place.append(step)
            else:
                steps_to_remove.append(step)
        removed_steps = await self._remove_entries(steps_to_remove)
        self._done.restored += [step.path for step in removed_steps if step.target is None]
        steps_after_removal = [replace(step, now=None) for step in removed_steps]
        # A folder is created before what is in it.
        outermost_first = sorted(
            steps_in_place + steps_after_removal,
            key=lambda step: (step.path.count("/"), step.path),
        )
        await self._create_targets(outermost_first)
        await self._restore_folder_modes()

    async def _remove_entries(self, steps: Sequence[RestoreStep]) -> list[RestoreStep]:
        """Remove entries, deepest first. Return the steps that worked."""
        failed = set()
        for step in sorted(steps, key=lambda step: -step.path.count("/")):
            if not await self._try_restore_step(step, self._remove_current_entry):
                failed.add(step.path)
        return [step for step in steps if step.path not in failed]

    async def _restore_folder_modes(self) -> None:
        for path, mode in sorted(self._opened.items(), reverse=True):
            with suppress(OSError, ChangedMeanwhile, HelixError):
                async with self._open_writable_parent(path) as (folder, name):
                    atomic_swap.set_entry_mode(folder, name, mode, PathKind.FOLDER)

    async def _create_targets(self, steps: Sequence[RestoreStep]) -> None:
        """Create what the steps lead to, kind by kind in the order of `PathKind`: folders before
        what is in them, and files before the hard links to them (twins).

        A new folder is writable until all is in it; its own mode is noted to be set at the end.
        """
        acts = {
            PathKind.FOLDER: self._create_folder_if_missing,
            PathKind.FILE: self._restore_file,
            PathKind.LINK: self._restore_link,
            PathKind.TWIN: self._restore_hard_link,
        }
        for kind in PathKind:
            for step in steps:
                if step.target is None or step.target.kind is not kind:
                    continue
                if kind is PathKind.OTHER:
                    reason = _reason_for_no_restore(step.target)
                    self._done.paths_left_alone.append((step.path, reason))
                    continue
                await self._try_restore_step(step, acts[kind])
                if kind is PathKind.FOLDER:
                    self._opened[step.path] = step.target.mode

    async def _try_restore_step(
        self, step: RestoreStep, act: Callable[[RestoreStep], Awaitable[None]]
    ) -> bool:
        """Restore one path, by `act`. A failure is reported, and the others are still restored."""
        try:
            await act(step)
        except (ChangedMeanwhile, HelixError, OSError) as error:
            self._done.paths_left_alone.append((step.path, _reason_of_failure(error)))
            return False
        if step.target is not None and act != self._remove_current_entry:
            self._done.restored.append(step.path)
        return True

    async def _remove_current_entry(self, step: RestoreStep) -> None:
        """Remove what is at a path now, if it is still as the step expects. A folder that still
        holds files which no checkpoint covers is renamed instead if its path is needed.
        """
        if step.now is None:
            return
        with suppress(FileNotFoundError):
            async with self._open_writable_parent(step.path) as (folder, name):
                expected_digest = self._digest_of_current(step.now)
                try:
                    await asyncio.to_thread(
                        atomic_swap.remove_if_expected, folder, name, step.now, expected_digest
                    )
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY or step.target is None:
                        raise
                    self._keep_uncovered_files_beside(step.path, folder, name)
                os.fsync(folder)

    def _keep_uncovered_files_beside(self, path: str, folder: int, name: str) -> None:
        """The folder holds files that no checkpoint covers. They are kept beside it, so that the
        path is free for what the undo restores there.
        """
        name_of_kept = f"{name}.not-undone-{token_hex(3)}"
        os.rename(name, name_of_kept, src_dir_fd=folder, dst_dir_fd=folder)
        reason = f"what was in its place and is not covered is now {name_of_kept}"
        self._done.paths_left_alone.append((path, reason))

    async def _create_folder_if_missing(self, step: RestoreStep) -> None:
        """Create a folder, which others may have created meanwhile. Its mode is set at the end."""
        async with self._open_writable_parent(step.path) as (folder, name):
            if step.now is None:
                with suppress(FileExistsError):
                    os.mkdir(name, OPENED, dir_fd=folder)
                os.fsync(folder)

    async def _restore_file(self, step: RestoreStep) -> None:
        """Restore a file. If only its mode differs, the mode is set. Otherwise a new file is
        written whole and then takes the place of what is there.

        Other names of the same file (hard links) then become names of the new file.
        """
        target = step.target
        now = step.now
        if target is None:
            return
        async with self._open_writable_parent(step.path) as (folder, name):
            if now is not None and now.kind is PathKind.FILE and now.content == target.content:
                atomic_swap.set_entry_mode(folder, name, target.mode, PathKind.FILE)
                return
            beside = await self._write_restored_version(folder, target)
            await self._swap_and_sync(folder, name, beside, now)
        for twin in self._hard_links_to_renew(step.path):
            item_at_twin = self._checkpoints.folders.last_item_at(twin)
            with suppress(ChangedMeanwhile):
                await self._link_to_leader(twin, step.path, item_at_twin, target.mode)

    async def _write_restored_version(self, folder: int, target: TreeItem) -> str:
        """Write a new file into a folder, and return the temporary name that it has there."""
        handle, beside = await asyncio.to_thread(atomic_swap.create_unnamed_file, folder)
        try:
            await self._write_target_content(handle, target)
            beside = await asyncio.to_thread(_finish_new_file, folder, handle, target, beside)
        except BaseException:
            if beside:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=folder)
            raise
        finally:
            os.close(handle)
        return beside

    def _hard_links_to_renew(self, leader: str) -> list[str]:
        """Return other names of a file that stay, and so must become names of the new file."""
        folders = self._checkpoints.folders
        leader_name = leader.encode("utf-8", "surrogateescape")
        twins = []
        for twin in folders.other_names_of_file(leader):
            item = folders.last_item_at(twin)
            names_leader = item is not None and item.content == leader_name
            if names_leader and twin not in self._wanted:
                twins.append(twin)
        return twins

    async def _write_target_content(self, handle: int, target: TreeItem) -> None:
        digest = Digest(target.content)
        if target.size <= _CHUNK:
            content = await self._checkpoints.contents.read_content(digest)
            await asyncio.to_thread(write_to_handle, handle, content)
            return
        for start in range(0, target.size, _CHUNK):
            piece = await self._checkpoints.contents.read_range(digest, start, _CHUNK)
            await asyncio.to_thread(write_to_handle, handle, piece)

    async def _restore_link(self, step: RestoreStep) -> None:
        if step.target is None:
            return
        async with self._open_writable_parent(step.path) as (folder, name):
            beside = atomic_swap.temporary_name()
            os.symlink(step.target.content, os.fsencode(beside), dir_fd=folder)
            await self._swap_and_sync(folder, name, beside, step.now)

    async def _restore_hard_link(self, step: RestoreStep) -> None:
        if step.target is not None:
            leader = step.target.content.decode("utf-8", "surrogateescape")
            await self._link_to_leader(step.path, leader, step.now, step.target.mode)

    async def _link_to_leader(
        self, path: str, leader: str, now: TreeItem | None, mode: int
    ) -> None:
        """Make `path` another name of `leader`. Only the leader's old content may be replaced."""
        async with (
            self._open_writable_parent(path) as (folder, name),
            self._open_writable_parent(leader) as (other, first),
        ):
            status_of_leader = os.stat(first, dir_fd=other, follow_symlinks=False)
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if os.path.samestat(status, status_of_leader):
                    return
            beside = atomic_swap.temporary_name()
            os.link(first, beside, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)
            await self._swap_and_sync(folder, name, beside, now)

    async def _swap_and_sync(
        self, folder: int, name: str, beside: str, now: TreeItem | None
    ) -> None:
        """Put the file `beside` in the place of `name`, if that is still what it is `now`."""
        digest = self._digest_of_current(now)
        await asyncio.to_thread(atomic_swap.swap_into_place, folder, name, beside, now, digest)
        os.fsync(folder)

    def _digest_of_current(self, item: TreeItem | None) -> bytes:
        """Return the hash of a file's content. Of a twin, which is a further name of a file, it is
        that of the file that the twin names.
        """
        if item is None:
            return b""
        if item.kind is not PathKind.TWIN:
            return item.content
        leader_path = item.content.decode("utf-8", "surrogateescape")
        leader = self._checkpoints.folders.last_item_at(leader_path)
        if leader is None:
            return b""
        return leader.content

    @asynccontextmanager
    async def _open_writable_parent(self, path: str) -> AsyncIterator[tuple[int, str]]:
        """Yield the parent folder and the name in it. Create a missing folder, and open
        one whose mode forbids writing.
        """
        parent_path, _, name = path.rpartition("/")
        try:
            parent = self._open_folder_granting_access(parent_path)
        except FileNotFoundError:
            # A root is not created: without it, the workspace's folder is missing.
            if "/" not in parent_path:
                raise
            async with self._open_writable_parent(parent_path) as (grandparent, parent_name):
                os.mkdir(parent_name, 0o755, dir_fd=grandparent)
            parent = self._open_folder_granting_access(parent_path)
        with closing_handle(parent):
            if not os.access(f"/proc/self/fd/{parent}", os.W_OK | os.X_OK):
                mode_to_restore = os.fstat(parent).st_mode & 0o7777
                self._opened.setdefault(parent_path, mode_to_restore)
                os.fchmod(parent, OPENED)
            yield parent, name

    def _open_folder_granting_access(self, path: str) -> int:
        """Open a folder. If folders on the way to it are closed for us, they are opened one by
        one, and their modes are noted, to be restored at the end.
        """
        try:
            return self._checkpoints.reader.open_without_link(path, DIRECTORY)
        except PermissionError:
            parent_path, _, name = path.rpartition("/")
            if not parent_path:
                raise
            with closing_handle(self._open_folder_granting_access(parent_path)) as parent:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                self._opened.setdefault(path, status.st_mode & 0o7777)
                atomic_swap.set_entry_mode(parent, name, OPENED, PathKind.FOLDER)
            return self._checkpoints.reader.open_without_link(path, DIRECTORY)


def _finish_new_file(folder: int, handle: int, target: TreeItem, beside: str) -> str:
    os.fchmod(handle, target.mode)
    os.fsync(handle)
    return atomic_swap.ensure_file_has_name(folder, handle, beside)


def can_swap_in_place(step: RestoreStep) -> bool:
    if step.now is None or step.target is None:
        return False
    was_folder = step.now.kind is PathKind.FOLDER
    becomes_folder = step.target.kind is PathKind.FOLDER
    is_unread_special_file = step.now.kind is PathKind.OTHER and not step.now.content
    return was_folder == becomes_folder and not is_unread_special_file
