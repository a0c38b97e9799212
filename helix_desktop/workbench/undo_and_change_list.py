"""Lists and undoes changes to the files of an open workspace, for window and command line."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from helix_desktop import atomic_files
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.changes import diff_hunks, folder_state, turn_changes
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.engine.changes.git_patch import FileVersion, format_git_patch
from helix_desktop.engine.changes.turn_changes import ChangeSource, FileChange, PlannedUndo
from helix_desktop.engine.facts import ChangeKept, FilesChanged, FilesCommitted, Recorded
from helix_desktop.engine.session import Session
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_settings import Changes
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.checkpoints import CheckpointProgress, Checkpoints
from helix_desktop.tools.workspace_tools import WorkspaceTools
from helix_desktop.workbench import system_prompt_and_settings
from helix_desktop.workbench.branch_publishing import BranchPublishing
from helix_desktop.workbench.changed_lines_by_file import StepDifferences
from helix_desktop.workbench.git_repository import GitRepository
from helix_desktop.workbench.model_roles import WorkspaceModels

KEEP_DAYS = 30
_SWEPT = "checkpoints.swept"  # This file has the time of the last daily clean-up.
_DAY = 86_400
COPIES = "copies"  # The name of the folder that contains the copies of the workspace's folders.


@dataclass(frozen=True, slots=True)
class FileUndoResult:
    """`restored` has all paths; the counts are of files alone. Undoing `fact` is an exact redo."""

    restored: tuple[str, ...] = ()
    paths_left_alone: tuple[tuple[str, str], ...] = ()
    files_put_back: int = 0
    files_deleted: int = 0
    fact: FilesChanged | None = None


class FileChangesWorkbench(Protocol):
    workspace: StoredWorkspace
    kit: WorkspaceTools
    models: WorkspaceModels
    tasks: OwnedTasks

    async def change_settings(self, changes: Changes) -> None: ...
    async def read_conversation_facts(self, conversation: str) -> Sequence[Recorded]: ...
    async def open_session(self, conversation: str) -> Session: ...


class FileChanges:
    """`kit`: the tools of a copy of the workspace's folders, if it is about that copy."""

    def __init__(self, bench: FileChangesWorkbench, kit: WorkspaceTools | None = None) -> None:
        self._bench = bench
        self._kit = kit or bench.kit
        self.git_repository = GitRepository(
            bench.models, self._current_checkpoints, bench.open_session
        )
        self.branch_publishing = BranchPublishing(
            self._current_checkpoints, bench.open_session, bench.workspace.cache
        )
        self._differences = StepDifferences(bench.workspace.cache, self._current_checkpoints)

    def _current_checkpoints(self) -> Checkpoints:
        return self.workspace_checkpoints

    @property
    def workspace_checkpoints(self) -> Checkpoints:
        checkpoints = self._kit.resources.checkpoints
        if checkpoints is None:
            raise NotFound("This workspace has no folder, so there are no changes.")
        return checkpoints

    # --- Checkpoints of the folders

    async def prepare_checkpoints(self) -> None:
        """Take the first checkpoint in the background, then remove contents that
        nothing needs any more.
        """
        checkpoints = self.workspace_checkpoints
        if checkpoints.folders.coverage.off:
            return
        await checkpoints.ensure_first_check()
        clean_up_file = self._bench.workspace.folder / _SWEPT
        with suppress(OSError):
            seconds_since_clean_up = time.time() - clean_up_file.stat().st_mtime
            # A time far in the future was noted while the clock was wrong.
            if abs(seconds_since_clean_up) < _DAY:
                return
        await self.remove_unused_checkpoints()
        with suppress(HelixError):
            atomic_files.write_file_atomically(clean_up_file, "")

    async def remove_unused_checkpoints(self) -> tuple[int, int]:
        """Remove what no conversation or copy needs any more. Returns the numbers of
        entries and bytes.
        """
        if any((self._bench.workspace.folder / COPIES).glob("*")):
            return 0, 0
        checkpoints = self.workspace_checkpoints
        still_needed: set[Digest] = set()
        for item in checkpoints.folders.known_items().values():
            if item.kind is PathKind.FILE:
                still_needed.add(Digest(item.content))
        removed = await self._bench.workspace.remove_old_checkpoints(
            self.days_to_keep, frozenset(still_needed), checkpoints.latest_checkpoint
        )
        return removed.entries, removed.bytes

    @property
    def days_to_keep(self) -> int:
        return int(self._bench.workspace.settings.changes.get("keep_days", KEEP_DAYS))

    @property
    def coverage_in_settings(self) -> CheckpointCoverage:
        """Return what the settings say of it. The checkpoints themselves follow a little later."""
        return system_prompt_and_settings.parse_coverage(self._bench.workspace.settings.changes)

    def apply_checkpoint_settings(self) -> None:
        checkpoints = self.workspace_checkpoints
        new_coverage = self.coverage_in_settings
        if new_coverage != checkpoints.folders.coverage:
            applying = checkpoints.apply_coverage(new_coverage)
            self._bench.tasks.spawn_task(applying, name="cover other files")

    @property
    def checkpoint_progress(self) -> CheckpointProgress:
        return self.workspace_checkpoints.progress

    def watch_checkpoints(
        self, listener: Callable[[CheckpointProgress], object]
    ) -> Callable[[], None]:
        listeners = self.workspace_checkpoints.listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    async def read_coverage(self) -> None:
        """What checkpoints cover is known here. Where another process has the workspace open, it
        must be asked first.
        """

    def list_uncovered_paths(self) -> Sequence[turn_changes.UncoveredPath]:
        checkpoints = self.workspace_checkpoints
        uncovered: list[turn_changes.UncoveredPath] = []
        for entry in checkpoints.folders.uncovered_entries():
            uncovered.append(replace(entry, path=checkpoints.displayed_path(entry.path)))
        return uncovered

    async def largest_subfolders(self) -> Sequence[tuple[str, int, int]]:
        """Return folders directly in the roots, largest first: name, files, bytes. No
        name: files in none.
        """
        return await asyncio.to_thread(self.workspace_checkpoints.folders.largest_top_folders)

    async def change_coverage(
        self, *, all_of_it: bool = False, leave_out: Sequence[str] | None = None
    ) -> None:
        """Save which files checkpoints cover: all in spite of the limits, or by new rules."""
        changes: dict[str, object] = {}
        if all_of_it:
            changes["changes.most_files"] = 0
            changes["changes.most_bytes"] = 0
        if leave_out is not None:
            changes["changes.leave_out"] = list(leave_out)
        await self._bench.change_settings(changes)

    async def turns_with_changes(
        self, conversation: str, *, is_subagent: bool = False
    ) -> Sequence[turn_changes.TurnOfChanges]:
        """Return the turns that changed files, with what their sub-agents changed,
        except in copies of their own.
        """
        facts = await self._bench.read_conversation_facts(conversation)
        if is_subagent and facts:
            # Its first fact says whether it works in a copy of its own.
            own_copy = getattr(facts[0].fact, "copy", "")
            if own_copy == conversation:
                return []
        turns: list[turn_changes.TurnOfChanges] = []
        for turn in await asyncio.to_thread(turn_changes.group_changes_by_turn, facts):
            sources = list(turn.sources)
            for child in turn.children:
                sources += await self._changes_of_subagent(child)
            if sources:
                sorted_sources = turn_changes.sort_as_they_happened(sources)
                turns.append(replace(turn, sources=tuple(sorted_sources)))
        return turns

    async def _changes_of_subagent(self, conversation: str) -> list[ChangeSource]:
        """Return what a sub-agent changed, or nothing if its conversation cannot be read."""
        sources: list[ChangeSource] = []
        with suppress(HelixError):
            for turn in await self.turns_with_changes(conversation, is_subagent=True):
                sources += turn.sources
        return sources

    async def changes_after_fact(self, conversation: str, seq: int) -> Sequence[FileChange]:
        """Return what was changed after a fact, also by sub-agents and on abandoned branches."""
        time_of_fact = 0.0
        for recorded in await self._bench.read_conversation_facts(conversation):
            if recorded.seq <= seq:
                time_of_fact = max(time_of_fact, recorded.time)
        own_sources: list[ChangeSource] = []
        subagent_sources: list[ChangeSource] = []
        for turn in await self.turns_with_changes(conversation):
            for source in turn.sources:
                # Numbers count within one conversation, so that of a sub-agent goes by time.
                is_own = source.conversation == conversation
                if is_own and source.seq > seq:
                    own_sources.append(source)
                if not is_own and source.time > time_of_fact:
                    subagent_sources.append(source)
        return await self.changes_with_folders(own_sources + subagent_sources)

    async def file_changes_of_steps(self, sources: Sequence[ChangeSource]) -> Sequence[FileChange]:
        steps = []
        for source in turn_changes.sort_as_they_happened(sources):
            # Content of this step may have been forgotten, or removed to free space.
            with suppress(NotFound):
                steps.append((source, await self._differences.read_changes_of_step(source)))
        own_changes = await self._differences.without_foreign_lines(steps)
        files = self._differences.join_differences(
            own_changes, folder_state.without_folders_beside_files
        )
        return await self._differences.with_line_counts(files)

    async def file_changes_of_groups(
        self, groups: Sequence[Sequence[ChangeSource]]
    ) -> Sequence[Sequence[FileChange]]:
        """Return what each group of steps changed."""
        files_by_group: list[Sequence[FileChange]] = []
        for sources in groups:
            files_by_group.append(await self.file_changes_of_steps(sources))
        return files_by_group

    async def changes_since_checkpoint(
        self, checkpoint: Digest, *, folders: bool = False
    ) -> Sequence[FileChange]:
        """Return what differs now from a checkpoint, whoever changed it. `folders`:
        also folders of changed files.
        """
        before = await self.workspace_checkpoints.read_checkpoint_state(checkpoint)
        await self.workspace_checkpoints.check_for_changes()
        present_items = self.workspace_checkpoints.folders.known_items()
        changes = folder_state.compare_trees(before, present_items)
        if folders:
            return self._build_file_changes(changes)
        files = self._build_file_changes(folder_state.without_folders_beside_files(changes))
        return await self._differences.with_line_counts(files)

    def _build_file_changes(self, changes: Iterable[folder_state.PathChange]) -> list[FileChange]:
        build = self._differences.build_file_change
        return [build(change, (), broken=False) for change in changes]

    async def changes_since_revision(self, revision: str) -> Sequence[FileChange]:
        """Return what differs now from a revision of the user's repository, whatever is staged."""
        changes = await self.git_repository.compare_with_revision(revision)
        files = self._build_file_changes(changes)
        return await self._differences.with_line_counts(files)

    async def contents_of_both_versions(self, file: FileChange) -> tuple[bytes, bytes]:
        return await self._differences.read_both_versions(file)

    def path_on_disk(self, file: FileChange) -> Path:
        number, _, inside = file.path_of_change.partition("/")
        return self.workspace_checkpoints.roots[int(number)] / inside

    async def build_git_patch(self, files: Sequence[FileChange]) -> bytes:
        """Return a patch for `git apply`."""
        patches: list[bytes] = []
        for file in files:
            before, after = await self.contents_of_both_versions(file)
            old_version = FileVersion(file.change.before, before)
            new_version = FileVersion(file.change.after, after)
            patches.append(format_git_patch(file.place, old_version, new_version))
        return b"".join(patches)

    async def kept_hunks_by_path(self, conversation: str) -> Mapping[str, frozenset[str]]:
        return turn_changes.kept_hunks(await self._bench.read_conversation_facts(conversation))

    async def keep_hunk(self, conversation: str, path: str, hunk: str = "") -> None:
        await self.append_change_fact(conversation, ChangeKept(path, hunk))

    async def commit_files(
        self, conversation: str, files: Sequence[FileChange], message: str
    ) -> str:
        """Commit these files as they are now, and record it in the conversation, so that its
        agent is not told that they are uncommitted. Return git's answer.
        """
        paths = [file.path_of_change for file in files]
        answer = await self.git_repository.commit_files(paths, message)
        if conversation:  # It may also be the files of a folder, without a conversation.
            await self.append_change_fact(conversation, FilesCommitted(tuple(paths), answer))
        return answer

    async def plan_undo(self, files: Sequence[FileChange]) -> Sequence[PlannedUndo]:
        changes: list[folder_state.PathChange] = []
        broken_paths: set[str] = set()
        for file in files:
            changes.append(file.change)
            if file.broken:
                broken_paths.add(file.path_of_change)
        return await change_restoring.plan_undo_of_changes(
            self.workspace_checkpoints, changes, frozenset(broken_paths)
        )

    async def changes_with_folders(self, sources: Sequence[ChangeSource]) -> Sequence[FileChange]:
        """Return all that some steps changed, including folders, which must be undone together."""
        steps = []
        for source in turn_changes.sort_as_they_happened(sources):
            steps.append((source, await self._differences.read_changes_of_step(source)))
        own_changes = await self._differences.without_foreign_lines(steps)
        return self._differences.join_differences(own_changes, list)

    async def undo_file_changes(
        self,
        files: Sequence[FileChange],
        *,
        conversation: str = "",
        choices: Mapping[str, str] = {},
        undoes: Sequence[int] = (),
    ) -> FileUndoResult:
        """Restore files. `choices`, for those that others have changed since: "before",
        "merge" or "now"; without a choice, the file is left alone. `undoes`: the facts
        that are undone, if the files do not name them.
        """
        if not undoes:
            sources: list[ChangeSource] = []
            for file in files:
                sources.extend(file.sources)
            undoes = turn_changes.seqs_to_name_in_undo(sources, conversation)
        planned = await self.plan_undo(files)
        chosen, left_alone = await self._settle_conflicts(planned, choices)
        steps = change_restoring.plan_restore_steps(planned, chosen)
        deleted_paths: set[str] = set()
        restored_paths: set[str] = set()
        for step in steps:
            if step.target is None:
                deleted_paths.add(step.path)
            else:
                restored_paths.add(step.path)
        steps += await self._remove_emptied_folders(files, deleted_paths)
        steps += await self._bring_back_deleted_folders(files, restored_paths)
        already = [plan for plan in planned if plan.how is turn_changes.UndoOutlook.ALREADY]
        done = await change_restoring.restore_paths(
            self.workspace_checkpoints, steps, already=already
        )
        self._mark_undone_content_as_seen(conversation, files, planned, set(done.restored))
        undone = await self._record_undo(done, steps, left_alone, conversation, undoes)
        if already:  # What is already so was undone by an earlier fact.
            return replace(undone, fact=None)
        return undone

    async def _settle_conflicts(
        self, planned: Sequence[PlannedUndo], choices: Mapping[str, str]
    ) -> tuple[dict[str, TreeItem | None], list[tuple[str, str]]]:
        """Return, for files that others have changed since, what to restore by the user's choice,
        and those that are left alone, each with the reason.
        """
        chosen: dict[str, TreeItem | None] = {}
        left_alone: list[tuple[str, str]] = []
        for file in planned:
            if file.how is not turn_changes.UndoOutlook.CONFLICT:
                continue
            choice = choices.get(file.path, "")
            if choice == "before":
                chosen[file.path] = file.before
            elif choice == "merge":
                merged = await change_restoring.merge_with_other_changes(
                    self.workspace_checkpoints, file
                )
                if merged is None:
                    left_alone.append((file.path, "the changes touch the same lines"))
                else:
                    chosen[file.path] = merged
            else:
                left_alone.append((file.path, "it was changed by somebody else since"))
        return chosen, left_alone

    def _mark_undone_content_as_seen(
        self,
        conversation: str,
        files: Sequence[FileChange],
        planned: Sequence[PlannedUndo],
        restored: set[str],
    ) -> None:
        """Let the agent write these files again: it knows what they have, because it was there
        before its own change. The user's undo must not refuse its next write.
        """
        files_seen = self._kit.resources.files_seen.get(conversation)
        if files_seen is None:
            return
        for file, plan in zip(files, planned, strict=True):
            is_already = plan.how is turn_changes.UndoOutlook.ALREADY
            is_restored = plan.how is turn_changes.UndoOutlook.RESTORE and plan.path in restored
            if is_already or is_restored:
                digest = None
                if plan.before is not None:
                    digest = plan.before.file_digest
                files_seen.set_content_seen(self.path_on_disk(file), digest)

    async def _remove_emptied_folders(
        self, files: Sequence[FileChange], removed: set[str]
    ) -> tuple[change_restoring.RestoreStep, ...]:
        """Return the steps for folders that the agent created and that are empty
        without these `removed` paths.
        """
        sources: dict[ChangeSource, None] = {}
        for file in files:
            if file.path_of_change in removed:
                sources |= dict.fromkeys(file.sources)
        created_paths: list[str] = []
        for file_change in await self.changes_with_folders(tuple(sources)):
            if file_change.change.before is None:
                created_paths.append(file_change.path_of_change)
        if not created_paths:
            return ()
        known_items = self.workspace_checkpoints.folders.known_items()
        remaining_paths = known_items.keys() - removed
        steps: list[change_restoring.RestoreStep] = []
        for path in sorted(created_paths, reverse=True):  # The deepest first.
            if path not in remaining_paths or known_items[path].kind is not PathKind.FOLDER:
                continue
            beginning = f"{path}/"
            paths_below = [other for other in remaining_paths if other.startswith(beginning)]
            if paths_below:
                continue
            remaining_paths.remove(path)
            steps.append(change_restoring.RestoreStep(path, known_items[path], target=None))
        return tuple(steps)

    async def _bring_back_deleted_folders(
        self, files: Sequence[FileChange], restored: set[str]
    ) -> tuple[change_restoring.RestoreStep, ...]:
        """Return the steps for folders that the agent deleted and that the `restored` paths need.

        They would be created anyway, but only a step gives them their modes again, and tells the
        list of changes that they are no longer deleted.
        """
        sources: dict[ChangeSource, None] = {}
        for file in files:
            if file.path_of_change in restored:
                sources |= dict.fromkeys(file.sources)
        known_items = self.workspace_checkpoints.folders.known_items()
        needed_folders = _list_folders_above(restored)
        steps: list[change_restoring.RestoreStep] = []
        for file_change in await self.changes_with_folders(tuple(sources)):
            path = file_change.path_of_change
            before = file_change.change.before
            if before is None or before.kind is not PathKind.FOLDER:
                continue
            is_there = path in known_items or path in restored
            if path in needed_folders and not is_there:
                steps.append(change_restoring.RestoreStep(path, now=None, target=before))
        return tuple(steps)

    async def undo_hunks(
        self, file: FileChange, ids: Sequence[str], *, conversation: str = ""
    ) -> FileUndoResult:
        """Undo some hunks of a text. Later changes elsewhere in it stay."""
        checkpoints = self.workspace_checkpoints
        path = file.path_of_change
        await checkpoints.check_for_changes()
        if file.change.after is None:  # If the file was deleted, its only hunk is the entire file.
            return await self.undo_file_changes([file], conversation=conversation)
        present_item = checkpoints.folders.last_item_at(path)
        if present_item is None or present_item.kind is not PathKind.FILE:
            raise ActionRefused(
                f"{file.place} is no longer a file.", remedy="Undo all changes to the file."
            )

        before, after = await self.contents_of_both_versions(file)
        present = await checkpoints.read_item_content(present_item)
        chosen_ids = set(ids)
        all_hunks = diff_hunks.find_hunks(before, after)
        hunks = [hunk for hunk in all_hunks if hunk.stable_id in chosen_ids]
        content = await asyncio.to_thread(diff_hunks.revert_hunks, before, after, present, hunks)

        target: TreeItem | None = None
        was_created_by_agent = file.change.before is None
        if content or not was_created_by_agent:  # Otherwise nothing is left of a new file.
            target = await change_restoring.store_merged_version(checkpoints, content, present_item)
        steps = [change_restoring.RestoreStep(path, present_item, target)]
        result = await change_restoring.restore_paths(checkpoints, steps)
        sources = await self._sources_of_undone_lines(file, present, content)
        undoes = turn_changes.seqs_to_name_in_undo(sources, conversation)
        return await self._record_undo(result, steps, [], conversation, undoes)

    async def _sources_of_undone_lines(
        self, file: FileChange, present: bytes, content: bytes
    ) -> Sequence[ChangeSource]:
        """Return the changes that an undo from `present` to `content` takes back, in whole or in
        part: of a file that several turns changed, a hunk is often the work of one.
        """
        compare = diff_hunks.collect_removed_and_added_lines
        removed_lines, added_lines = await asyncio.to_thread(compare, content, present)
        undone_sources: list[ChangeSource] = []
        for source in reversed(file.sources):  # The newest first.
            versions = await self._versions_of_file_in_step(file, source)
            if versions is None:
                undone_sources.append(source)  # The file had another name then, or is forgotten.
                continue
            removed_then, added_then = await asyncio.to_thread(compare, *versions)
            if removed_lines.isdisjoint(removed_then) and added_lines.isdisjoint(added_then):
                continue
            undone_sources.append(source)
            # What stood there before this change is gone, too: an earlier one may have added it.
            added_lines |= removed_then
        return undone_sources or file.sources

    async def _versions_of_file_in_step(
        self, file: FileChange, source: ChangeSource
    ) -> tuple[bytes, bytes] | None:
        for file_of_step in await self.file_changes_of_steps([source]):
            if file_of_step.path_of_change == file.path_of_change:
                return await self.contents_of_both_versions(file_of_step)
        return None

    async def three_versions_of_file(self, planned: PlannedUndo) -> tuple[bytes, bytes, bytes]:
        """Return a file before the agent's change, after it, and now, as choices for the user."""
        read = self.workspace_checkpoints.read_item_content
        return await read(planned.before), await read(planned.after), await read(planned.now)

    async def _record_undo(
        self,
        result: change_restoring.RestoreResult,
        steps: Sequence[change_restoring.RestoreStep],
        left_alone: Sequence[tuple[str, str]],
        conversation: str,
        undoes: Sequence[int],
    ) -> FileUndoResult:
        """Append the fact about an undo, and count what came back and what was deleted.
        `left_alone`: paths that were not undone, each with the reason. `undoes`: the numbers of
        the facts whose changes were taken back.
        """
        fact: FilesChanged | None = None
        if result.fact is not None:
            fact = replace(result.fact, undoes=tuple(undoes))
        if fact is not None and conversation:
            is_whole = not await self._has_changes_left(conversation, fact, undoes)
            await self.append_change_fact(conversation, replace(fact, is_whole=is_whole))
        restored = set(result.restored)
        files_back = 0
        files_deleted = 0
        for step in steps:
            if step.path not in restored:
                continue
            if step.target is None:
                files_deleted += _is_no_folder(step.now)
            else:
                files_back += _is_no_folder(step.target)
        displayed_path = self.workspace_checkpoints.displayed_path
        restored_paths = [displayed_path(path) for path in result.restored]
        paths_left_alone: list[tuple[str, str]] = []
        for path, reason in list(left_alone) + list(result.paths_left_alone):
            paths_left_alone.append((displayed_path(path), reason))
        return FileUndoResult(
            tuple(restored_paths), tuple(paths_left_alone), files_back, files_deleted, fact
        )

    async def _has_changes_left(
        self, conversation: str, undo: FilesChanged, undoes: Sequence[int]
    ) -> bool:
        """Whether something of the undone steps still stands after this undo."""
        undone = set(undoes)
        sources: list[ChangeSource] = []
        for turn in await self.turns_with_changes(conversation):
            for source in turn.sources:
                is_undo_of_these = not undone.isdisjoint(source.fact.undoes)
                if source.seq in undone or is_undo_of_these:
                    sources.append(source)
        sources.append(ChangeSource(conversation, 0, time.time(), undo))
        changes_left = await self.file_changes_of_steps(sources)
        return bool(changes_left)

    async def append_change_fact(
        self, conversation: str, fact: FilesChanged | ChangeKept | FilesCommitted
    ) -> Sequence[Recorded]:
        session = await self._bench.open_session(conversation)
        return await session.conversation.append_facts(fact)


def _is_no_folder(item: TreeItem | None) -> bool:
    return item is not None and item.kind is not PathKind.FOLDER


def _list_folders_above(paths: Iterable[str]) -> set[str]:
    """Return all folders in which these paths are, each looked at once."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders
