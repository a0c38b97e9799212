"""Copies of a workspace's folders, each for a conversation: creates, brings back and discards them.

A copy is deleted only when the user says so, after storing in the cache what is nowhere else.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Protocol

from helix_desktop.engine.changes.folder_state import (
    PathChange,
    PathKind,
    Tree,
    compare_trees,
    pack_item,
)
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.engine.content_recall import read_entry_beginning
from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.engine.facts import (
    Fact,
    FilesChanged,
    Text,
    ToolCall,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session import Session
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.store.content_forgetting import GIT_BUNDLE
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools import private_git_copy as copying
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)
from helix_desktop.tools.changes import change_restoring, interrupted_steps
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.workspace_tools import WorkspaceTools
from helix_desktop.workbench import copy_files, unfinished_bring_back
from helix_desktop.workbench.bring_back_planning import (
    NOT_TOUCHED,
    BringBackPlan,
    BroughtVersions,
    describe_links_leading_out,
    describe_step,
    merge_branches,
    plan_merge,
    repair_moves,
)
from helix_desktop.workbench.open_sessions import OpenSessions
from helix_desktop.workbench.undo_and_change_list import COPIES
from helix_desktop.workbench.unfinished_bring_back import UnfinishedBringBack

APPLY = "apply_agent_changes"
_TITLE = "Changes from a copy"
MOST_SAID = 4_000  # This many bytes of the output of a copy's set-up command are shown.
OpenCopyTools = Callable[[copy_files.FolderCopy], Awaitable[WorkspaceTools]]


class CopiesWorkbench(Protocol):
    workspace: StoredWorkspace
    kit: WorkspaceTools
    sessions: OpenSessions

    async def start_conversation(self, title: str = "", *, identity: str = "") -> Session: ...
    async def open_session(self, conversation: str) -> Session: ...
    def conversation_row(self, conversation: str) -> ConversationListRow | None: ...


@dataclass(frozen=True, slots=True)
class CopyVersions:
    """The files of a copy. `brought`: what the user's folders have of them. `now`: the
    files as they are in the copy.
    """

    checkpoints: Checkpoints
    brought: BroughtVersions
    now: Tree


class CopiesInUse:
    """The copies of one workbench, and what is in them. `open_copy_tools` opens the
    tools that work in a copy alone.
    """

    def __init__(self, bench: CopiesWorkbench, open_copy_tools: OpenCopyTools) -> None:
        self._bench = bench
        self._open_copy_tools = open_copy_tools
        self._folder = bench.workspace.folder / COPIES
        # By copy: what it was made from, according to the last list.
        self.labels: dict[str, str] = {}
        self._kits: dict[str, WorkspaceTools] = {}
        self._new: set[str] = set()  # Copies that are not set up yet.
        # By copy: the user's files that differ in it, when last listed.
        self.changed: dict[str, Sequence[str]] = {}
        # By copy: the files changed in it that were also changed in other copies, and those copies.
        self.overlaps: dict[str, Mapping[str, Sequence[str]]] = {}
        self.notes: list[str] = []  # Sentences on what a killed program left unfinished.
        self._opening = asyncio.Lock()

    async def aclose(self) -> None:
        for name in tuple(self._kits):
            await self._kits.pop(name).aclose()

    def list_copies(self) -> list[copy_files.FolderCopy]:
        """Return all copies, newest first, including those that a crash left incomplete."""
        copies = copy_files.list_folder_copies(self._bench.workspace)
        self.labels = {copy.id: copy.label for copy in copies if copy.is_whole}
        return copies

    def find_copy(self, name: str) -> copy_files.FolderCopy | None:
        if not name:
            return None
        for copy in self.list_copies():
            if copy.id == name:
                return copy
        return None

    # --- Making copies, and the tools that work in them

    async def get_or_open_tools(self, name: str) -> WorkspaceTools:
        """Return the tools that work in a copy, or for an empty name those of the workspace."""
        if not name:
            return self._bench.kit
        async with self._opening:
            if name not in self._kits:
                copy = await asyncio.to_thread(self.find_copy, name)
                if copy is None:
                    # Another machine chose the name, which may not be allowed in a path.
                    copy = copy_files.FolderCopy(name, self._folder / "none")
                self._kits[name] = await self._open_copy_tools(copy)
        return self._kits[name]

    def tools_of_copy(self, name: str) -> WorkspaceTools:
        """Return the tools of a copy that have been opened before, or those of the workspace."""
        if not name:
            return self._bench.kit
        return self._kits[name]

    def check_copy_is_there(self, name: str) -> None:
        """Raise ActionRefused if a conversation works in a copy that is not on this computer."""
        if not name:
            return
        tools = self._kits.get(name)
        if tools is None or not tools.resources.roots.folders:
            raise ActionRefused(
                "This conversation's copy of the repository was discarded, or it is on another computer.",
                remedy="To continue in the workspace's own folders, fork the conversation.",
            )

    async def put_back_after_merge(self, name: str) -> None:
        """Put back what was set aside for a merge that the agent has finished or aborted since."""
        # The quick look comes first, because `find_copy` reads the descriptions of all copies.
        if not name or not any((self._folder / name).glob("aside-*/*")):
            return
        copy = self.find_copy(name)
        if copy is not None:
            await asyncio.to_thread(copy_files.put_back_files_of_copy, copy)

    async def create_copy(
        self, name: str, *, with_changes: bool = False, parent: str = ""
    ) -> copy_files.FolderCopy:
        """Copy the folders of the copy `parent`, or the user's. A failure leaves nothing behind."""
        kit = await self.get_or_open_tools(parent)
        folder = self._folder / name
        if await asyncio.to_thread(self.find_copy, name) is not None:
            raise ActionRefused(f"There is already a copy named {name}.")
        parent_copy = await asyncio.to_thread(self.find_copy, parent)
        try:
            copy = await asyncio.to_thread(
                copy_files.create_copy_files, folder, kit, with_changes, parent_copy
            )
            # In memory, the copy is whole already, so that its tools open it.
            whole_copy = replace(copy, is_whole=True)
            tools = await self._open_copy_tools(whole_copy)
            self._kits[name] = tools
            checkpoints = tools.resources.checkpoints
            if checkpoints is not None:
                start_hex = await _make_first_checkpoint(checkpoints)
                whole_copy = replace(whole_copy, start=start_hex)
            # On the disk, it is whole only now: after a crash before, it counts as incomplete.
            await asyncio.to_thread(copy_files.save_copy_description, whole_copy)
            self.labels[name] = whole_copy.label
            self._new.add(name)
        except BaseException:
            opened_tools = self._kits.pop(name, None)
            if opened_tools is not None:
                await opened_tools.aclose()
            await asyncio.to_thread(delete_folder_tree, folder, ignore_errors=True)
            raise
        return whole_copy

    async def run_set_up_command(self, conversation: str) -> str:
        """Run the settings' command once in each new copy, if permitted. Returns what
        the agent is told.
        """
        command = self._bench.workspace.settings.copies.get("set_up")
        session = self._bench.sessions.find_open_session(conversation)
        if not command or session is None:
            return ""
        copy_name = session.conversation.state.own_copy
        if copy_name not in self._new:
            return ""
        # It is no longer new before the command runs, so that no second turn runs it again.
        self._new.discard(copy_name)
        call = ToolCall("set-up", ToolName.RUN_COMMAND, json.dumps({"command": command}))
        result = await session.run_user_call("", call)
        output = await read_entry_beginning(self._bench.workspace.cache, result.output, MOST_SAID)
        exit_code_sentence = ""
        if result.exit_code is not None:
            exit_code_sentence = f" Exit code {result.exit_code}."
        return f"[You work in a copy of the folders, for which the user has a command: {command}.{exit_code_sentence}]\n{output}"

    # --- What a copy contains

    async def read_copy_status(self, copy: copy_files.FolderCopy) -> copy_files.CopyStatus:
        return await asyncio.to_thread(copy_files.read_copy_status, copy)

    async def describe_copy_of_agent(self, session: Session) -> str:
        """Return what the parent of a sub-agent is told of its copy, or nothing if it
        has none of its own.
        """
        copy = await asyncio.to_thread(self.find_copy, session.id)
        if copy is None or session.conversation.state.own_copy != copy.id:
            return ""
        status = await self.read_copy_status(copy)
        if not status.changed:
            return "[It worked in a copy of the folders and changed no file.]"
        shown = copying.name_some_files(status.changed)
        return f"[It worked in a copy of the folders. These files are different there, and not in yours: {shown}. To have them in yours, call {APPLY} with the agent {copy.id}. The user can do it with “Bring back…” in that conversation.]"

    async def read_status_of_copies(self) -> dict[str, copy_files.CopyStatus]:
        """Return the status of each copy, with files that other copies have changed as well."""
        status_by_copy: dict[str, copy_files.CopyStatus] = {}
        for copy in await asyncio.to_thread(self.list_copies):
            status_by_copy[copy.id] = await self.read_copy_status(copy)
        self.changed = {name: status.changed for name, status in status_by_copy.items()}
        self._compare_copies()
        status_with_overlaps: dict[str, copy_files.CopyStatus] = {}
        for name, status in status_by_copy.items():
            status_with_overlaps[name] = replace(status, overlaps=self.overlaps[name])
        return status_with_overlaps

    async def refresh_changed_files(self, name: str) -> None:
        """List again what differs in a copy, because files in it have changed."""
        for copy in await asyncio.to_thread(self.list_copies):
            if copy.id != name and copy.id in self.changed:
                continue
            # If a copy is damaged, `read_copy_status` reports it.
            with suppress(ActionRefused):
                self.changed[copy.id] = await asyncio.to_thread(copy_files.list_changed_files, copy)
        self._compare_copies()

    def _compare_copies(self) -> None:
        """Find which files several copies have changed, and set `overlaps`."""
        copies_by_path = defaultdict[str, list[str]](list)
        for name, paths in self.changed.items():
            for path in paths:
                copies_by_path[path].append(name)

        overlaps: dict[str, Mapping[str, Sequence[str]]] = {}
        for name, paths in self.changed.items():
            other_copies_by_path: dict[str, Sequence[str]] = {}
            for path in paths:
                if len(copies_by_path[path]) > 1:
                    other_copies = [other for other in copies_by_path[path] if other != name]
                    other_copies_by_path[path] = other_copies
            overlaps[name] = other_copies_by_path
        self.overlaps = overlaps


class RepositoryCopies(CopiesInUse):
    """Also brings copies back: for the user in four ways, and for an agent that applies
    a sub-agent's.
    """

    def build_apply_tool(self) -> BuiltInTool:
        return BuiltInTool(APPLY_AGENT_CHANGES, self._apply_agent_copy)

    async def _apply_agent_copy(self, args: ToolArguments, use: ToolResources) -> ToolOutput:
        """Ask in every mode. Exactly the steps that the question shows are taken, or none."""
        session = self._bench.sessions.find_open_session(use.context.conversation)
        named_copy = await asyncio.to_thread(self.find_copy, args.text_argument("agent"))
        row = None
        if named_copy is not None:
            row = self._bench.conversation_row(named_copy.id)
        if named_copy is None or row is None:
            raise _no_such_agent_error()
        # The copy of another conversation's agent is not this agent's to bring back.
        if session is None or row.parent != session.id:
            raise _no_such_agent_error()

        copy = await self._finish_interrupted_bring_back(named_copy)
        plan = await self._plan_changes(copy)
        if plan.steps:
            await _ask_to_apply(plan, use)
            plan_after_question = await self._plan_changes(copy)
            if plan_after_question.steps != plan.steps:
                raise ActionRefused(
                    "The copy or your own files were changed while the question was shown.",
                    remedy=f"Nothing was applied. To ask the user about the changes as they are now, call {APPLY} again.",
                )
        sentences = await self._carry_out_plan(copy, plan, session)
        return ToolOutput(" ".join(sentences), source=row.title)

    async def _brought_and_present_versions(self, copy: copy_files.FolderCopy) -> CopyVersions:
        """Return a copy's files as they are now, and as they were when they were
        brought back. Raises ActionRefused without checkpoints.
        """
        tools = await self.get_or_open_tools(copy.id)
        checkpoints = tools.resources.checkpoints
        if checkpoints is None or not copy.start:
            raise ActionRefused(
                "Checkpoints leave out this repository copy.",
                remedy=f"{NOT_TOUCHED} Merge the copy.",
            )
        await asyncio.to_thread(copy_files.put_back_files_of_copy, copy)
        await checkpoints.ensure_first_check()
        await checkpoints.check_for_changes(thorough=True)
        start = await checkpoints.read_checkpoint_state(Digest.from_hex(copy.start))
        return CopyVersions(
            checkpoints=checkpoints,
            brought=BroughtVersions(start, copy.brought, copy.replaced),
            now=checkpoints.folders.known_items(),
        )

    async def _changes_in_copy(
        self, copy: copy_files.FolderCopy
    ) -> tuple[BroughtVersions, list[PathChange]]:
        """Return what differs from what was brought back last, without files that git ignores."""
        versions = await self._brought_and_present_versions(copy)
        names_by_root = await asyncio.to_thread(copy_files.list_names_by_root, copy)
        missing_file = await asyncio.to_thread(
            copy_files.find_git_file_missing_from_checkpoint,
            versions.checkpoints.roots,
            versions.now,
            names_by_root,
        )
        if missing_file:
            raise ActionRefused(
                f"Checkpoints leave out {printable_path(missing_file)}.",
                remedy=f"{NOT_TOUCHED} Commit the file in the copy and merge the copy instead, or move the file out of the copy.",
            )

        brought_versions = versions.brought.latest_versions()
        all_changes = compare_trees(brought_versions, versions.now)
        file_changes = set[PathChange]()
        for change in all_changes:
            if copy_files.is_brought_back(change, names_by_root):
                file_changes.add(change)
        folders_above = set[str]()
        for change in file_changes:
            for folder in PurePosixPath(change.path).parents:
                folders_above.add(str(folder))

        changes: list[PathChange] = []
        for change in all_changes:
            # Git lists no folders: a new one comes along if a file in it does.
            is_new_folder_above = change.path in folders_above and change.before is None
            if change in file_changes or is_new_folder_above:
                changes.append(change)
        return versions.brought, changes

    async def bring_back(
        self, copy: copy_files.FolderCopy, way: str, message: str = "", conflicts: str = "leave"
    ) -> tuple[str, ...]:
        """Apply, merge, rebase or discard it (`way`). Returns sentences. If refused,
        the user's files are unchanged.

        `conflicts`: which version of files that both changed is applied: "yours",
        "copy" or "markers". With "leave", the other files are applied, and then it is
        refused.
        """
        self._check_nobody_works_in(copy)
        copy = await self._finish_interrupted_bring_back(copy)
        if not copy.is_whole and way != "discard":
            raise ActionRefused(
                copy.problem or "This copy was not completed.", remedy="Discard the copy instead."
            )
        if way == "apply":
            plan = await self._plan_changes(copy, conflicts)
            return await self._carry_out_plan(copy, plan, None)
        if way == "discard":
            return await self._discard_copy(copy)
        return await self._merge_copy(copy, message, rebase=way == "rebase")

    async def list_files_not_brought_back(self, copy: copy_files.FolderCopy) -> Sequence[str]:
        """Return the files that are different in a copy from what was brought back
        last, or were undone since.
        """
        if not copy.is_whole:
            return ()
        try:
            versions, changes = await self._changes_in_copy(copy)
        except ActionRefused:  # Its checkpoints cannot say it, but git can.
            status = await self.read_copy_status(copy)
            return status.changed
        undone_changes = await self._changes_undone_since(copy, versions, changes)
        paths: list[str] = []
        for change in changes + undone_changes:
            if not _is_change_of_folders(change):
                paths.append(change.path)
        paths.sort()
        return [_path_without_root_number(path) for path in paths]

    async def _changes_undone_since(
        self,
        copy: copy_files.FolderCopy,
        versions: BroughtVersions,
        changes: Sequence[PathChange],
    ) -> list[PathChange]:
        """Return the files that were brought back and are again as they were before. `changes`:
        those of the copy itself, which are known.
        """
        kit = await self.get_or_open_tools(copy.parent)
        checkpoints = kit.resources.checkpoints
        if checkpoints is None or not checkpoints.is_undo_available:
            return []
        if not copy.is_of(kit.resources.roots.folders):
            return []
        await checkpoints.ensure_first_check()
        await checkpoints.check_for_changes()

        known_paths = {change.path for change in changes}
        undone_changes: list[PathChange] = []
        for path, packed_item_before in copy.replaced.items():
            if path in known_paths:
                continue
            item_now = checkpoints.folders.last_item_at(path)
            if pack_item(item_now).hex() == packed_item_before:
                brought_item = versions.versions_of(path)[-1]
                undone_changes.append(PathChange(path, item_now, brought_item))
        return undone_changes

    async def find_conflicts(self, copy: copy_files.FolderCopy) -> Sequence[str]:
        """Return the files that cannot be applied, because the user has changed them as well."""
        plan = await self._plan_changes(copy)
        return plan.conflicting_names

    async def _merge_copy(
        self, copy: copy_files.FolderCopy, message: str, *, rebase: bool
    ) -> tuple[str, ...]:
        """Merge or rebase the commits of a copy. If that is refused, the user's
        branches are as before.
        """
        brought = await self._brought_versions_if_known(copy)
        try:
            sentences = await asyncio.to_thread(
                merge_branches, copy, message, brought, rebase=rebase
            )
        except ActionRefused:
            unfinished_bring_back.forget_unfinished_bring_back(copy.folder)
            raise
        await self._remember_merge(copy, brought)
        return sentences

    async def _brought_versions_if_known(
        self, copy: copy_files.FolderCopy
    ) -> BroughtVersions | None:
        """Return None for a copy without checkpoints, which can be merged as well."""
        try:
            versions = await self._brought_and_present_versions(copy)
        except ActionRefused:
            return None
        return versions.brought

    async def _remember_merge(
        self, copy: copy_files.FolderCopy, brought: BroughtVersions | None
    ) -> None:
        """Record in the copy's description what the user's folders have got with a merge."""
        changes = list[PathChange]()
        if brought is not None:
            versions = await self._brought_and_present_versions(copy)
            # A folder that is no repository has no branch, so nothing of it was merged.
            merged_roots: list[str] = []
            for root_number, (repository_number, _) in enumerate(copy.places):
                if copy.repositories[repository_number].base:
                    merged_roots.append(f"{root_number}/")
            for change in compare_trees(brought.latest_versions(), versions.now):
                if change.path.startswith(tuple(merged_roots)):
                    changes.append(change)
        await asyncio.to_thread(copy_files.remember_brought_back, copy, changes, is_merged=True)
        await self.refresh_changed_files(copy.id)

    # --- After a kill

    async def finish_interrupted_work(self) -> None:
        """Record what a killed program wrote to the user's folders, and delete what it
        was deleting.
        """
        for copy in await asyncio.to_thread(self.list_copies):
            if copy.folder.name.endswith(copy_files.DISCARDED):
                await asyncio.to_thread(delete_folder_tree, copy.folder, ignore_errors=True)
                continue
            try:
                await self._finish_interrupted_bring_back(copy)
            except (HelixError, OSError) as error:
                # It is tried again before the copy is brought back.
                self.notes.append(str(error))

    async def record_interrupted_steps(self) -> None:
        """Record what agents had changed in copies when the program was killed."""
        for copy in await asyncio.to_thread(self.list_copies):
            if not copy.is_whole or not (copy.folder / interrupted_steps.NAME).exists():
                continue
            tools = await self.get_or_open_tools(copy.id)
            checkpoints = tools.resources.checkpoints
            if checkpoints is not None:
                # The first check records the steps that were interrupted.
                await checkpoints.ensure_first_check()

    async def _finish_interrupted_bring_back(
        self, copy: copy_files.FolderCopy
    ) -> copy_files.FolderCopy:
        """Record what a killed program wrote from one copy. Returns it as it is
        described afterwards.
        """
        unfinished = await asyncio.to_thread(
            unfinished_bring_back.read_unfinished_bring_back, copy.folder
        )
        if unfinished is None:
            return copy
        if unfinished.moves:
            await self._finish_interrupted_merge(copy, unfinished)
        else:
            await self._finish_interrupted_apply(copy, unfinished)
        return await asyncio.to_thread(copy_files.read_copy_description, copy.folder)

    async def _finish_interrupted_merge(
        self, copy: copy_files.FolderCopy, unfinished: UnfinishedBringBack
    ) -> None:
        """Move the user's branches to the end, or back, after the program was ended
        while it moved them.
        """
        is_merged = await asyncio.to_thread(repair_moves, unfinished.moves)
        if is_merged:
            brought = await self._brought_versions_if_known(copy)
            await self._remember_merge(copy, brought)
            self.notes.append(
                "The program was ended while it merged a copy. Your branch has all of the copy's commits."
            )
        else:
            unfinished_bring_back.forget_unfinished_bring_back(copy.folder)
            self.notes.append(
                "The program was ended while it merged a copy. Your branch does not have the copy's commits yet. You can merge the copy again."
            )

    async def _finish_interrupted_apply(
        self, copy: copy_files.FolderCopy, unfinished: UnfinishedBringBack
    ) -> None:
        """Record what was written to the user's files before the program was ended, so
        that it can be undone.
        """
        tools = await self.get_or_open_tools(copy.parent)
        checkpoints = tools.resources.checkpoints
        if checkpoints is None or not checkpoints.is_undo_available:
            return
        if not copy.is_of(checkpoints.roots):
            return
        fact, unwritten_paths = await unfinished_bring_back.record_written_steps(
            checkpoints, unfinished
        )
        if fact is not None:
            title = await self._record_applied(fact, unfinished)
            self.notes.append(
                f"The program was ended while it brought back a copy. Files changed until then: {fact.files:,}. You can undo this in the conversation “{title}”."
            )
        applied_changes = [
            change for change in unfinished.applied_changes if change.path not in unwritten_paths
        ]
        steps = [step for step in unfinished.steps if step.path not in unwritten_paths]
        await asyncio.to_thread(copy_files.remember_brought_back, copy, applied_changes, steps)

    def _check_nobody_works_in(self, copy: copy_files.FolderCopy) -> None:
        """Raise ActionRefused while a session or a background command works in the copy."""
        is_in_use = False
        for session in self._bench.sessions:
            if session.conversation.state.own_copy == copy.id and not session.is_idle:
                is_in_use = True
        tools = self._kits.get(copy.id)
        if tools is not None and tools.commands.running_in_background:
            is_in_use = True
        if is_in_use:
            raise ActionRefused(
                "An agent or a command is still running in this copy.",
                remedy="Stop it first, or wait until it has ended.",
            )

    async def _plan_changes(
        self, copy: copy_files.FolderCopy, conflicts: str = "leave"
    ) -> BringBackPlan:
        """Return what to write to the folders that the copy was made from."""
        self._check_nobody_works_in(copy)
        versions, changes = await self._changes_in_copy(copy)
        kit = await self.get_or_open_tools(copy.parent)
        checkpoints = kit.resources.checkpoints
        if checkpoints is None or not copy.is_of(kit.resources.roots.folders):
            raise ActionRefused(
                "The workspace's folders have changed since the copy was made.", remedy=NOT_TOUCHED
            )
        if not checkpoints.is_undo_available:
            raise ActionRefused(
                "Checkpoints are turned off for this workspace.",
                remedy=f"{NOT_TOUCHED} Merge the copy.",
            )
        await checkpoints.ensure_first_check()
        await checkpoints.check_for_changes(thorough=True)
        changed_paths = {change.path for change in changes}
        # What was brought back before is brought back again if the user has undone it.
        for path in copy.brought:
            if path not in changed_paths:
                brought_item = versions.versions_of(path)[-1]
                changes.append(PathChange(path, None, brought_item))
        changes.sort(key=lambda change: change.path)
        return await plan_merge(checkpoints, changes, versions, conflicts)

    async def _carry_out_plan(
        self, copy: copy_files.FolderCopy, plan: BringBackPlan, session: Session | None
    ) -> tuple[str, ...]:
        """`session`: its conversation can undo this. Without one, a new conversation can."""
        applied_changes = [change for change in plan.changes if change not in plan.conflicts]
        paths_brought_before = set(copy.brought)
        if session is not None:
            conversation = session.id
            last_seq = session.conversation.state.seq
        else:
            conversation = new_conversation_id()
            last_seq = 0
        sentences: tuple[str, ...] = ()
        if plan.steps:
            folders_above = unfinished_bring_back.folders_above(plan.checkpoints, plan.steps)
            unfinished = UnfinishedBringBack(
                conversation=conversation,
                last_seq=last_seq,
                steps=list(plan.steps) + folders_above,
                applied_changes=applied_changes,
            )
            sentences = await self._restore_planned_steps(copy, plan, unfinished)
        await asyncio.to_thread(copy_files.remember_brought_back, copy, applied_changes, plan.steps)
        if plan.conflicting_names:
            shown_names = copying.name_some_files(plan.conflicting_names)
            raise ActionRefused(
                f"These files were changed both in your folder and in the copy: {shown_names}.",
                remedy="All other changes were brought back. Choose which version of these files you want: in the window with “Bring back…”, on the command line with `--conflicts`.",
            )
        if not sentences:
            return (_explain_nothing_brought_back(plan, paths_brought_before),)
        return sentences + tuple(
            describe_links_leading_out(plan.checkpoints.roots, applied_changes)
        )

    async def _restore_planned_steps(
        self, copy: copy_files.FolderCopy, plan: BringBackPlan, unfinished: UnfinishedBringBack
    ) -> tuple[str, ...]:
        """Write the planned files, and record them. Return sentences for the user."""
        checkpoints = plan.checkpoints
        # Saved before the first write: if the program is killed, its next start records
        # what was written.
        await asyncio.to_thread(unfinished.save_in_copy, copy.folder)
        restored = await change_restoring.restore_paths(checkpoints, plan.steps)
        title = await self._record_applied(restored.fact, unfinished)
        folders = set[str]()
        for step in plan.steps:
            if step.now is not None and step.now.kind is PathKind.FOLDER:
                folders.add(step.path)
        sentences = [
            f"Files changed: {len(restored.restored):,}. You can undo this in the conversation “{title}”."
        ]
        for path, why in restored.paths_left_alone:
            if path not in folders:
                shown_path = printable_path(checkpoints.displayed_path(path))
                sentences.append(f"{shown_path} was not changed: {why}.")
        return tuple(sentences)

    async def _record_applied(
        self, fact: FilesChanged | None, unfinished: UnfinishedBringBack
    ) -> str:
        """Record what was applied, unless that is done, in a new conversation if there
        is none. Returns its title.
        """
        conversation_exists = self._bench.conversation_row(unfinished.conversation) is not None
        if conversation_exists:
            session = await self._bench.open_session(unfinished.conversation)
        else:
            session = await self._bench.start_conversation(_TITLE, identity=unfinished.conversation)
        if not _is_applied_fact_recorded(session, unfinished.last_seq):
            facts: list[Fact] = []
            if fact is not None:
                facts.append(replace(fact, by="command"))
            if not conversation_exists or not unfinished.last_seq:
                # It is a conversation of its own, so it gets a message and an end.
                description = Text(_describe_brought_files(unfinished))
                facts.insert(0, UserSaid((description,)))
                facts.append(TurnEnded(TurnEnd.DONE))
            await session.conversation.append_facts(*facts)
        return session.conversation.state.title

    async def _discard_copy(self, copy: copy_files.FolderCopy) -> tuple[str, ...]:
        """Store the content, then rename and delete the copy. A crash in between is harmless."""
        if copy.problem:
            raise ActionRefused(
                copy.problem,
                remedy=f"Check whether you still need anything in {copy.folder}, and then delete the folder yourself.",
            )
        sentences: list[str] = []
        if copy.is_whole:
            sentences = await self._store_bundles_of_copy(copy)
        tools = self._kits.pop(copy.id, None)
        if tools is not None:
            await tools.aclose()
        # The copy may have this ending already, if a crash stopped its deletion.
        name_without_ending = copy.folder.name.removesuffix(copy_files.DISCARDED)
        discarded_folder = copy.folder.with_name(name_without_ending + copy_files.DISCARDED)
        await asyncio.to_thread(copy.folder.rename, discarded_folder)
        await asyncio.to_thread(delete_folder_tree, discarded_folder, ignore_errors=True)
        self.labels.pop(copy.id, None)
        self.changed.pop(copy.id, None)
        if tools is not None:
            # A conversation that worked in it may still be open: its tools have no folder now.
            await self.get_or_open_tools(copy.id)
        self._compare_copies()
        sentences.append("The copy was deleted.")
        return tuple(sentences)

    async def _store_bundles_of_copy(self, copy: copy_files.FolderCopy) -> list[str]:
        """Store a bundle of each repository with what is only in the copy, committed or not."""
        has_plain_folder = any(not repository.base for repository in copy.repositories)
        if has_plain_folder:
            _, changes = await self._changes_in_copy(copy)
            if changes:
                raise ActionRefused(
                    "This copy is not a git repository.",
                    remedy="Bring the copy's changes back to your folder first.",
                )
        sentences: list[str] = []
        for source, checkout, repository in copy_files.find_checkouts(copy):
            bundle = await asyncio.to_thread(
                copying.commit_and_bundle_copy, source, checkout, repository
            )
            if bundle:
                origin = EntryOrigin("copy", f"copy of {repository.source}", GIT_BUNDLE)
                stored = await self._bench.workspace.cache.store_content(bundle, origin)
                # The content is pinned, because no fact names it and it exists nowhere else.
                await self._bench.workspace.cache.pin_entry(stored.digest)
                sentences.append(
                    f"The copy's changes are stored in the cache as {stored.digest.hex}, a bundle that `git fetch` can read."
                )
            if source is not None:
                with suppress(ActionRefused):
                    await asyncio.to_thread(source.run, "update-ref", "-d", f"refs/helix/{copy.id}")
        return sentences


def _no_such_agent_error() -> ActionRefused:
    return ActionRefused("You have no sub-agent with this name that works in its own copy.")


async def _make_first_checkpoint(checkpoints: Checkpoints) -> str:
    """Return the digest of a new copy's first checkpoint as hex, or an empty string if
    it could not be made.
    """
    await checkpoints.ensure_first_check()
    first_checkpoint = None
    if checkpoints.is_ready:
        first_checkpoint = checkpoints.latest_checkpoint
    if first_checkpoint is None:
        return ""
    return first_checkpoint.hex


def _is_applied_fact_recorded(session: Session, last_seq: int) -> bool:
    """Whether what was brought back after this fact is recorded, as before a kill."""
    for numbered_fact in session.all_facts:
        fact = numbered_fact.fact
        if numbered_fact.seq <= last_seq or not isinstance(fact, FilesChanged):
            continue
        # A change with a call is one that the agent made.
        if fact.by == "command" and not fact.call:
            return True
    return False


def _describe_brought_files(unfinished: UnfinishedBringBack) -> str:
    """Name some of the files, so that a search finds the conversation."""
    lines = [_TITLE]
    for step in unfinished.steps:
        if step.now != step.target and len(lines) <= copying.MOST_NAMED:
            lines.append(_path_without_root_number(step.path))
    return "\n".join(lines)


def _path_without_root_number(path: str) -> str:
    """Return a path of a checkpoint as people read it: it begins with its folder's number."""
    _, _, path_in_folder = path.partition("/")
    return printable_path(path_in_folder)


def _is_change_of_folders(change: PathChange) -> bool:
    """Whether nothing but a folder was or is at the path."""
    items = [item for item in (change.before, change.after) if item is not None]
    return all(item.kind is PathKind.FOLDER for item in items)


def _explain_nothing_brought_back(plan: BringBackPlan, paths_brought_before: set[str]) -> str:
    """Say why no file was written. Files that this copy brought earlier need no word."""
    same_files: list[PathChange] = []
    for change in plan.already_there:
        was_brought_before = change.path in paths_brought_before
        if not was_brought_before and not _is_change_of_folders(change):
            same_files.append(change)
    if not same_files:
        return "There are no changes to bring back."
    shown_names = copying.name_some_files(plan.name_changes(same_files))
    return f"Nothing was brought back: your folder already has the same versions of these files: {shown_names}."


APPLY_AGENT_CHANGES = ToolDeclaration(
    APPLY,
    "Bring what a sub-agent changed in its copy into your folders.",
    {"type": "object", "properties": {"agent": {"type": "string"}}, "required": ["agent"]},
    runs_alone=True,
    is_rare=True,
)


async def _ask_to_apply(plan: BringBackPlan, use: ToolResources) -> None:
    step_lines = [describe_step(plan.checkpoints.roots, step) for step in plan.steps]
    action = ToolAction(
        APPLY,
        ActionEffect.EDIT,
        title="Apply a sub-agent's changes",
        preview="\n".join(step_lines),
        reason_to_ask="it changes all the listed files at once",
        asks_in_every_mode=True,
    )
    await use.permit(action)
