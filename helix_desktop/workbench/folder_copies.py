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
from helix_desktop.folder_trees import delete_folder_tree
from helix_desktop.store.content_forgetting import GIT_BUNDLE
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools import private_git_copy as copying
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolOutput,
    ToolResources,
    declare_tool,
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


class CopiesInUse:
    """The copies of one workbench, and what is in them. `open_copy_tools` opens the
    tools that work in a copy alone.
    """

    def __init__(self, bench: CopiesWorkbench, open_copy_tools: OpenCopyTools) -> None:
        self._bench = bench
        self._open_copy_tools = open_copy_tools
        self._folder = bench.workspace.folder / COPIES
        self.labels: dict[
            str, str
        ] = {}  # By copy: what it was made from, according to the last list.
        self._kits: dict[str, WorkspaceTools] = {}
        self._new: set[str] = set()  # Copies that are not set up yet.
        self.changed: dict[
            str, Sequence[str]
        ] = {}  # By copy: the user's files that differ in it, when last listed.
        # By copy: the files changed in it that were also changed in other copies, and those copies.
        self.overlaps: dict[str, Mapping[str, Sequence[str]]] = {}
        self.notes: list[str] = []  # Sentences on what a killed program left unfinished.
        self._opening = asyncio.Lock()

    async def aclose(self) -> None:
        for name in tuple(self._kits):
            await self._kits.pop(name).aclose()

    def list_copies(self) -> list[copy_files.FolderCopy]:
        """Return all copies, newest first, including those that a crash left incomplete."""
        found = copy_files.list_folder_copies(self._bench.workspace)
        self.labels = {copy.id: copy.label for copy in found if copy.is_whole}
        return found

    def find_copy(self, name: str) -> copy_files.FolderCopy | None:
        return (
            next((copy for copy in self.list_copies() if copy.id == name), None) if name else None
        )

    # --- Making copies, and the tools that work in them

    async def get_or_open_tools(self, name: str) -> WorkspaceTools:
        """Return the tools that work in a copy, or for an empty name those of the workspace."""
        if not name:
            return self._bench.kit
        async with self._opening:
            if name not in self._kits:
                copy = await asyncio.to_thread(self.find_copy, name)
                # If there is no such copy here, another machine chose its name, which
                # may not be allowed in a path.
                self._kits[name] = await self._open_copy_tools(
                    copy or copy_files.FolderCopy(name, self._folder / "none")
                )
        return self._kits[name]

    def tools_of_copy(self, name: str) -> WorkspaceTools:
        """Return the tools of a copy that have been opened before, or those of the workspace."""
        return self._kits[name] if name else self._bench.kit

    def check_copy_is_there(self, name: str) -> None:
        """Raise ActionRefused if a conversation works in a copy that is not on this computer."""
        if name and (name not in self._kits or not self._kits[name].resources.roots.folders):
            raise ActionRefused(
                "This conversation's copy of the repository was discarded, or it is on another computer.",
                remedy="To continue in the workspace's own folders, fork the conversation.",
            )

    async def put_back_after_merge(self, name: str) -> None:
        """Put back what was set aside for a merge that the agent has finished or aborted since."""
        if (
            name
            and any((self._folder / name).glob("aside-*/*"))
            and (copy := self.find_copy(name)) is not None
        ):
            await asyncio.to_thread(copy_files.put_back_files_of_copy, copy)

    async def create_copy(
        self, name: str, *, with_changes: bool = False, parent: str = ""
    ) -> copy_files.FolderCopy:
        """Copy the folders of the copy `parent`, or the user's. A failure leaves nothing behind."""
        kit = await self.get_or_open_tools(parent)
        folder = self._folder / name
        if await asyncio.to_thread(self.find_copy, name) is not None:
            raise ActionRefused(f"There is already a copy named {name}.")
        try:
            copy = await asyncio.to_thread(
                copy_files.create_copy_files, folder, kit, with_changes, parent
            )
            tools = self._kits[name] = await self._open_copy_tools(replace(copy, is_whole=True))
            if (checkpoints := tools.resources.checkpoints) is not None:
                await checkpoints.ensure_first_check()
                start = checkpoints.latest_checkpoint if checkpoints.is_ready else None
                copy = replace(copy, start=start.hex if start else "")
            await asyncio.to_thread(
                copy_files.save_copy_description, copy := replace(copy, is_whole=True)
            )
            self.labels[name] = copy.label
            self._new.add(name)
        except BaseException:
            if (opened := self._kits.pop(name, None)) is not None:
                await opened.aclose()
            await asyncio.to_thread(delete_folder_tree, folder, ignore_errors=True)
            raise
        return copy

    async def run_set_up_command(self, conversation: str) -> str:
        """Run the settings' command once in each new copy, if permitted. Returns what
        the agent is told.
        """
        command = self._bench.workspace.settings.copies.get("set_up")
        session = self._bench.sessions.find_open_session(conversation)
        if not command or session is None or session.conversation.state.own_copy not in self._new:
            return ""
        self._new.discard(session.conversation.state.own_copy)
        done = await session.run_user_call(
            "", ToolCall("set-up", ToolName.RUN_COMMAND, json.dumps({"command": command}))
        )
        said = await read_entry_beginning(self._bench.workspace.cache, done.output, MOST_SAID)
        code = "" if done.exit_code is None else f" Exit code {done.exit_code}."
        return f"[You work in a copy of the folders, for which the user has a command: {command}.{code}]\n{said}"

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
        if not (names := (await self.read_copy_status(copy)).changed):
            return "[It worked in a copy of the folders and changed no file.]"
        shown = copying.name_some_files(names)
        return f"[It worked in a copy of the folders. These files are different there, and not in yours: {shown}. To have them in yours, call {APPLY} with the agent {copy.id}. The user can do it with “Bring back…” in that conversation.]"

    async def read_status_of_copies(self) -> dict[str, copy_files.CopyStatus]:
        """Return the status of each copy, with files that other copies have changed as well."""
        copies = await asyncio.to_thread(self.list_copies)
        found = {copy.id: await self.read_copy_status(copy) for copy in copies}
        self.changed = {name: each.changed for name, each in found.items()}
        self._compare_copies()
        return {name: replace(each, overlaps=self.overlaps[name]) for name, each in found.items()}

    async def refresh_changed_files(self, name: str) -> None:
        """List again what differs in a copy, because files in it have changed."""
        for copy in await asyncio.to_thread(self.list_copies):
            if copy.id == name or copy.id not in self.changed:
                with suppress(
                    ActionRefused
                ):  # If a copy is damaged, `read_copy_status` reports it.
                    self.changed[copy.id] = await asyncio.to_thread(
                        copy_files.list_changed_files, copy
                    )
        self._compare_copies()

    def _compare_copies(self) -> None:
        where = defaultdict[str, list[str]](list)
        for name, paths in self.changed.items():
            for path in paths:
                where[path].append(name)
        self.overlaps = {
            name: {
                path: [other for other in where[path] if other != name]
                for path in paths
                if len(where[path]) > 1
            }
            for name, paths in self.changed.items()
        }


class RepositoryCopies(CopiesInUse):
    """Also brings copies back: for the user in four ways, and for an agent that applies
    a sub-agent's.
    """

    def build_apply_tool(self) -> BuiltInTool:
        return declare_tool(APPLY, self._apply_agent_copy)

    async def _apply_agent_copy(self, args: ToolArguments, use: ToolResources) -> ToolOutput:
        """Ask in every mode. Exactly the steps that the question shows are taken, or none."""
        copy = await asyncio.to_thread(self.find_copy, args.text_argument("agent"))
        row = self._bench.conversation_row(copy.id) if copy is not None else None
        session = self._bench.sessions.find_open_session(use.context.conversation)
        if copy is None or row is None or session is None or row.parent != session.id:
            raise ActionRefused("You have no sub-agent with this name that works in its own copy.")
        copy = await self._settle_unfinished(copy)
        plan = await self._plan_changes(copy)
        if plan.steps:
            shown = "\n".join(describe_step(plan.checkpoints.roots, step) for step in plan.steps)
            title = "Apply a sub-agent's changes"
            why = "it changes all the listed files at once"
            action = ToolAction(
                APPLY, ActionEffect.EDIT, title, shown, reason_to_ask=why, asks_in_every_mode=True
            )
            await use.permit(action)
            if (await self._plan_changes(copy)).steps != plan.steps:
                raise ActionRefused(
                    "The copy or your own files were changed while the question was shown.",
                    remedy=f"Nothing was applied. To ask the user about the changes as they are now, call {APPLY} again.",
                )
        said = await self._carry_out_plan(copy, plan, session)
        return ToolOutput(" ".join(said), source=row.title)

    async def _brought_and_present_versions(
        self, copy: copy_files.FolderCopy
    ) -> tuple[Checkpoints, BroughtVersions, Tree]:
        """Return the copy's checkpoints, what the user's folders have of it, and its
        files as they are now.
        """
        checkpoints = (await self.get_or_open_tools(copy.id)).resources.checkpoints
        if checkpoints is None or not copy.start:
            raise ActionRefused(
                "Checkpoints leave out this repository copy.",
                remedy=f"{NOT_TOUCHED} Merge the copy.",
            )
        await asyncio.to_thread(copy_files.put_back_files_of_copy, copy)
        await checkpoints.ensure_first_check()
        await checkpoints.check_for_changes(thorough=True)
        start = await checkpoints.read_checkpoint_state(Digest.from_hex(copy.start))
        return (
            checkpoints,
            BroughtVersions(start, copy.brought, copy.replaced),
            checkpoints.folders.known_items(),
        )

    async def _changes_in_copy(
        self, copy: copy_files.FolderCopy
    ) -> tuple[BroughtVersions, list[PathChange]]:
        """Return what differs from what was brought back last, without files that git ignores."""
        checkpoints, versions, now = await self._brought_and_present_versions(copy)
        listed = await asyncio.to_thread(copy_files.list_names_by_root, copy)
        if uncovered := await asyncio.to_thread(
            copy_files.find_git_file_missing_from_checkpoint, checkpoints.roots, now, listed
        ):
            raise ActionRefused(
                f"Checkpoints leave out {printable_path(uncovered)}.",
                remedy=f"{NOT_TOUCHED} Commit the file in the copy and merge the copy instead, or move the file out of the copy.",
            )
        changes = compare_trees(versions.latest_versions(), now)
        wanted = {change for change in changes if copy_files.is_brought_back(change, listed)}
        above = {str(folder) for change in wanted for folder in PurePosixPath(change.path).parents}
        return versions, [
            each
            for each in changes
            if each in wanted or (each.path in above and each.before is None)
        ]

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
        copy = await self._settle_unfinished(copy)
        if not copy.is_whole and way != "discard":
            raise ActionRefused(
                copy.problem or "This copy was not completed.", remedy="Discard the copy instead."
            )
        if way == "apply":
            return await self._carry_out_plan(copy, await self._plan_changes(copy, conflicts), None)
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
            return (await self.read_copy_status(copy)).changed
        changes += await self._changes_undone_since(copy, versions, changes)
        files = [change for change in changes if not _is_change_of_folders(change)]
        paths = sorted(change.path for change in files)
        return [printable_path(path.partition("/")[2]) for path in paths]

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
        is_same_place = copy.is_of(kit.resources.roots.folders)
        if checkpoints is None or not is_same_place or not checkpoints.is_undo_available:
            return []
        await checkpoints.ensure_first_check()
        await checkpoints.check_for_changes()
        known = {change.path for change in changes}
        undone = []
        for path, packed_before in copy.replaced.items():
            now = checkpoints.folders.last_item_at(path)
            if path not in known and pack_item(now).hex() == packed_before:
                undone.append(PathChange(path, now, versions.versions_of(path)[-1]))
        return undone

    async def find_conflicts(self, copy: copy_files.FolderCopy) -> Sequence[str]:
        """Return the files that cannot be applied, because the user has changed them as well."""
        return (await self._plan_changes(copy)).conflicting_names

    async def _merge_copy(
        self, copy: copy_files.FolderCopy, message: str, *, rebase: bool
    ) -> tuple[str, ...]:
        versions = None
        with suppress(ActionRefused):  # A copy without checkpoints is merged as well.
            _, versions, _ = await self._brought_and_present_versions(copy)
        try:
            said = await asyncio.to_thread(merge_branches, copy, message, versions, rebase=rebase)
        except ActionRefused:
            unfinished_bring_back.forget_unfinished_bring_back(copy.folder)
            raise
        await self._remember_merge(copy, versions)
        return said

    async def _remember_merge(
        self, copy: copy_files.FolderCopy, versions: BroughtVersions | None
    ) -> None:
        changes = list[PathChange]()
        if versions is not None:
            _, _, now = await self._brought_and_present_versions(copy)
            merged = [
                f"{at}/"
                for at, (number, _) in enumerate(copy.places)
                if copy.repositories[number].base
            ]
            changes = [
                one
                for one in compare_trees(versions.latest_versions(), now)
                if one.path.startswith((*merged,))
            ]
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
                await self._settle_unfinished(copy)
            except (
                HelixError,
                OSError,
            ) as error:  # It is tried again before the copy is brought back.
                self.notes.append(str(error))

    async def record_interrupted_steps(self) -> None:
        """Record what agents had changed in copies when the program was killed."""
        for copy in await asyncio.to_thread(self.list_copies):
            if not copy.is_whole or not (copy.folder / interrupted_steps.NAME).exists():
                continue
            if (
                checkpoints := (await self.get_or_open_tools(copy.id)).resources.checkpoints
            ) is not None:
                await checkpoints.ensure_first_check()

    async def _settle_unfinished(self, copy: copy_files.FolderCopy) -> copy_files.FolderCopy:
        """Record what a killed program wrote from one copy. Returns it as it is
        described afterwards.
        """
        begun = await asyncio.to_thread(
            unfinished_bring_back.read_unfinished_bring_back, copy.folder
        )
        if begun is None:
            return copy
        if begun.moves:
            await self._settle_merge(copy, begun)
        else:
            await self._settle_apply(copy, begun)
        return await asyncio.to_thread(copy_files.read_copy_description, copy.folder)

    async def _settle_merge(self, copy: copy_files.FolderCopy, begun: UnfinishedBringBack) -> None:
        if is_moved := await asyncio.to_thread(repair_moves, begun.moves):
            versions = None
            with suppress(ActionRefused):
                _, versions, _ = await self._brought_and_present_versions(copy)
            await self._remember_merge(copy, versions)
        else:
            unfinished_bring_back.forget_unfinished_bring_back(copy.folder)
        self.notes.append(
            "The program was ended while it merged a copy. Your branch has all of the copy's commits."
            if is_moved
            else "The program was ended while it merged a copy. Your branch does not have the copy's commits yet. You can merge the copy again."
        )

    async def _settle_apply(self, copy: copy_files.FolderCopy, begun: UnfinishedBringBack) -> None:
        checkpoints = (await self.get_or_open_tools(copy.parent)).resources.checkpoints
        if (
            checkpoints is None
            or not checkpoints.is_undo_available
            or not copy.is_of(checkpoints.roots)
        ):
            return
        fact, unwritten = await unfinished_bring_back.record_written_steps(checkpoints, begun)
        if fact is not None:
            title = await self._record_applied(fact, begun)
            self.notes.append(
                f"The program was ended while it brought back a copy. Files changed until then: {fact.files:,}. You can undo this in the conversation “{title}”."
            )
        taken = [change for change in begun.taken if change.path not in unwritten]
        steps = [step for step in begun.steps if step.path not in unwritten]
        await asyncio.to_thread(copy_files.remember_brought_back, copy, taken, steps)

    def _check_nobody_works_in(self, copy: copy_files.FolderCopy) -> None:
        working = any(
            not each.is_idle
            for each in self._bench.sessions
            if each.conversation.state.own_copy == copy.id
        )
        if working or (
            copy.id in self._kits and self._kits[copy.id].commands.running_in_background
        ):
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
        paths = {change.path for change in changes}
        # What was brought back before is so again if the user has undone it.
        again = [path for path in copy.brought if path not in paths]
        changes += [PathChange(path, None, versions.versions_of(path)[-1]) for path in again]
        return await plan_merge(
            checkpoints, sorted(changes, key=lambda each: each.path), versions, conflicts
        )

    async def _carry_out_plan(
        self, copy: copy_files.FolderCopy, plan: BringBackPlan, session: Session | None
    ) -> tuple[str, ...]:
        """`session`: its conversation can undo this. Without one, a new conversation can."""
        taken = [change for change in plan.changes if change not in plan.conflicts]
        conversation, seq = (
            (session.id, session.conversation.state.seq) if session else (new_conversation_id(), 0)
        )
        above = unfinished_bring_back.folders_above(plan.checkpoints, plan.steps)
        begun = UnfinishedBringBack((), conversation, seq, [*plan.steps, *above], taken)
        said = await self._restore_planned_steps(copy, plan, begun) if plan.steps else ()
        await asyncio.to_thread(copy_files.remember_brought_back, copy, taken, plan.steps)
        if names := plan.conflicting_names:
            raise ActionRefused(
                f"These files were changed both in your folder and in the copy: {copying.name_some_files(names)}.",
                remedy="All other changes were brought back. Choose which version of these files you want: in the window with “Bring back…”, on the command line with `--conflicts`.",
            )
        if not said:
            return ("There are no changes to bring back.",)
        return (*said, *describe_links_leading_out(plan.checkpoints.roots, taken))

    async def _restore_planned_steps(
        self, copy: copy_files.FolderCopy, plan: BringBackPlan, begun: UnfinishedBringBack
    ) -> tuple[str, ...]:
        checkpoints, steps = plan.checkpoints, plan.steps
        await asyncio.to_thread(begun.save_in_copy, copy.folder)
        done = await change_restoring.restore_paths(checkpoints, steps)
        title = await self._record_applied(done.fact, begun)
        folders = {
            step.path for step in steps if step.now is not None and step.now.kind is PathKind.FOLDER
        }
        left = [
            f"{printable_path(checkpoints.displayed_path(path))} was not changed: {why}."
            for path, why in done.paths_left_alone
            if path not in folders
        ]
        said = f"Files changed: {len(done.restored):,}. You can undo this in the conversation “{title}”."
        return (said, *left)

    async def _record_applied(self, fact: FilesChanged | None, begun: UnfinishedBringBack) -> str:
        """Record what was applied, unless that is done, in a new conversation if there
        is none. Returns its title.
        """
        facts: list[Fact] = [replace(fact, by="command")] if fact is not None else []
        if is_there := self._bench.conversation_row(begun.conversation) is not None:
            session = await self._bench.open_session(begun.conversation)
        else:
            session = await self._bench.start_conversation(_TITLE, identity=begun.conversation)
        if not is_there or not begun.last_seq:
            names = [
                printable_path(step.path.partition("/")[2])
                for step in begun.steps
                if step.now != step.target
            ]
            said = "\n".join((_TITLE, *names[: copying.MOST_NAMED]))  # So that a search finds it.
            facts = [UserSaid((Text(said),)), *facts, TurnEnded(TurnEnd.DONE)]
        later = (each.fact for each in session.all_facts if each.seq > begun.last_seq)
        if not any(
            isinstance(one, FilesChanged) and one.by == "command" and not one.call for one in later
        ):
            await session.conversation.append_facts(*facts)
        return session.conversation.state.title

    async def _discard_copy(self, copy: copy_files.FolderCopy) -> tuple[str, ...]:
        """Store the content, then rename and delete the copy. A crash in between is harmless."""
        if copy.problem:
            raise ActionRefused(
                copy.problem,
                remedy=f"Check whether you still need anything in {copy.folder}, and then delete the folder yourself.",
            )
        kept = await self._store_bundles_of_copy(copy) if copy.is_whole else []
        kit = self._kits.pop(copy.id, None)
        if kit is not None:
            await kit.aclose()
        gone = copy.folder.with_name(
            copy.folder.name.removesuffix(copy_files.DISCARDED) + copy_files.DISCARDED
        )
        await asyncio.to_thread(copy.folder.rename, gone)
        await asyncio.to_thread(delete_folder_tree, gone, ignore_errors=True)
        self.labels.pop(copy.id, None)
        self.changed.pop(copy.id, None)
        if (
            kit is not None
        ):  # A conversation that worked in it may still be open: its tools have no folder now.
            await self.get_or_open_tools(copy.id)
        self._compare_copies()
        return (*kept, "The copy was deleted.")

    async def _store_bundles_of_copy(self, copy: copy_files.FolderCopy) -> list[str]:
        """Store a bundle of each repository with what is only in the copy, committed or not."""
        if (
            any(not made.base for made in copy.repositories)
            and (await self._changes_in_copy(copy))[1]
        ):
            raise ActionRefused("This copy is not a git repository.", remedy="Bring the copy's changes back to your folder first.")  # fmt: skip
        said = []
        for source, checkout, made in copy_files.find_checkouts(copy):
            if bundle := await asyncio.to_thread(
                copying.commit_and_bundle_copy, source, checkout, made
            ):
                origin = EntryOrigin("copy", f"copy of {made.source}", GIT_BUNDLE)
                stored = await self._bench.workspace.cache.store_content(bundle, origin)
                # The content is pinned, because no fact names it and it exists nowhere else.
                await self._bench.workspace.cache.pin_entry(stored.digest)
                said.append(
                    f"The copy's changes are stored in the cache as {stored.digest.hex}, a bundle that `git fetch` can read."
                )
            if source is not None:
                with suppress(ActionRefused):
                    await asyncio.to_thread(source.run, "update-ref", "-d", f"refs/helix/{copy.id}")
        return said


def _is_change_of_folders(change: PathChange) -> bool:
    """Whether nothing but a folder was or is at the path."""
    items = [item for item in (change.before, change.after) if item is not None]
    return all(item.kind is PathKind.FOLDER for item in items)
