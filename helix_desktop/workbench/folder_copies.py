"""Copies of a workspace's folders, each for a conversation: creates, brings back and discards them.

They are in the workspace's data, in `copies/<conversation>/<number>`. A description says when one is
complete. One is deleted only when the user says so, after storing in the cache what is nowhere else.
"""

import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from helix_desktop import atomic_files
from helix_desktop.engine.changes.folder_state import (
    PathChange,
    PathKind,
    Tree,
    TreeItem,
    compare_trees,
    pack_item,
    unpack_item,
)
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.engine.content_recall import read_entry_beginning
from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Fact, FilesChanged, Text, ToolCall, TurnEnd, TurnEnded, UserSaid
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import delete_folder_tree, list_tree_files
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, find_program, run_process
from helix_desktop.store.content_forgetting import GIT_BUNDLE
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools import private_git_copy as copying
from helix_desktop.tools.built_in_tool import BuiltInTool, ToolArguments, ToolOutput, ToolResources, declare_tool
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.change_restoring import RestoreStep
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.private_git_copy import BranchMove, CopySource, GitCheckout
from helix_desktop.tools.workspace_tools import WorkspaceTools
from helix_desktop.workbench import unfinished_bring_back
from helix_desktop.workbench.change_list_and_undo import COPIES
from helix_desktop.workbench.open_sessions import OpenSessions
from helix_desktop.workbench.unfinished_bring_back import UnfinishedBringBack

NAME, _DISCARDED = "copy.json", ".discarded"
APPLY = "apply_agent_changes"
MOST_VERSIONS = 4  # This many versions of a file that were brought back are remembered.
MOST_SAID = 4_000  # This many bytes of the output of a copy's set-up command are shown.
_TITLE = "Changes from a copy"
_NOT_TOUCHED = "Your own folder was not changed."
_KINDS = {PathKind.FOLDER: "folder", PathKind.LINK: "link to {}", PathKind.TWIN: "hard link to {}"}


@dataclass(frozen=True, slots=True)
class FolderCopy:
    """`roots`: each folder of the workspace, and where its copy is below `folder`; `parent`:
    the copy that it was made from, if any; `start`: the checkpoint of its first state;
    `brought`: the versions of files that were brought back later, oldest first, in hexadecimal;
    `replaced`: the versions that the last apply has replaced.
    """

    id: str
    folder: Path
    created: float = 0.0
    roots: Sequence[Sequence[str]] = ()
    repositories: Sequence[CopySource] = ()
    parent: str = ""
    start: str = ""
    brought: Mapping[str, Sequence[str]] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False
    problem: str = ""

    @property
    def root_folders(self) -> list[Path]:
        return [(self.folder / inside).resolve() for _, inside in self.roots] if self.is_whole else []

    def is_of(self, folders: Iterable[Path]) -> bool:
        """Whether it is a copy of these folders."""
        return [*map(str, folders)] == [root for root, _ in self.roots]

    @property
    def places(self) -> list[tuple[int, str]]:
        """Return for each root the number of its repository, and how the names of its files begin there."""
        parts = (inside.rstrip(".").partition("/") for _, inside in self.roots)
        return [(int(number), f"{below}/" if below else "") for number, _, below in parts]

    @property
    def label(self) -> str:
        """Return the branch, commit or folder that it is a copy of."""
        return next((each.branch or each.base[:9] or Path(each.source).name for each in self.repositories), "")


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """`changed`: the user's files that differ in it; `overlaps`: those other copies changed, too."""

    bytes: int = 0
    uncommitted: tuple[str, ...] = ()
    commits: int = 0
    problem: str = ""
    changed: tuple[str, ...] = ()
    overlaps: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BroughtVersions:
    """The versions of a copy's files that the user's folders have got: with the copy, and whenever it was brought back."""

    start: Tree
    brought: Mapping[str, Sequence[str]]
    replaced: Mapping[str, str]

    def is_before_last_apply(self, path: str, now: TreeItem | None) -> bool:
        """Whether the user's file is again as it was before the last apply."""
        return self.replaced.get(path) == pack_item(now).hex()

    def versions_of(self, path: str) -> list[TreeItem | None]:
        """Return them, the newest last."""
        return [self.start.get(path), *(unpack_item(bytes.fromhex(each)) for each in self.brought.get(path, ()))]

    def latest_versions(self) -> dict[str, TreeItem]:
        known = {**self.start, **{path: self.versions_of(path)[-1] for path in self.brought}}
        return {path: item for path, item in known.items() if item is not None}


class BringBackPlan(NamedTuple):
    """`changes`: what differs in the copy; `conflicts`: those that no step takes, as the user changed the file, too."""

    checkpoints: Checkpoints
    changes: Sequence[PathChange]
    steps: Sequence[RestoreStep]
    conflicts: Sequence[PathChange]

    @property
    def conflicting_names(self) -> list[str]:
        return [printable_path(self.checkpoints.displayed_path(change.path)) for change in self.conflicts]


OpenCopyTools = Callable[[FolderCopy], Awaitable[WorkspaceTools]]


class CopiesWorkbench(Protocol):
    workspace: StoredWorkspace
    kit: WorkspaceTools
    sessions: OpenSessions

    async def start_conversation(self, title: str = "", *, identity: str = "") -> Session: ...
    async def open_session(self, conversation: str) -> Session: ...
    def conversation_row(self, conversation: str) -> ConversationListRow | None: ...


class CopiesInUse:
    """The copies of one workbench, and what is in them. `open_copy_tools` opens the tools that work in a copy alone."""

    def __init__(self, bench: CopiesWorkbench, open_copy_tools: OpenCopyTools) -> None:
        self._bench = bench
        self._open_copy_tools = open_copy_tools
        self._folder = bench.workspace.folder / COPIES
        self.labels: dict[str, str] = {}  # By copy: what it was made from, according to the last list.
        self._kits: dict[str, WorkspaceTools] = {}
        self._new: set[str] = set()  # Copies that are not set up yet.
        self._changed: dict[str, Sequence[str]] = {}  # By copy: the user's files that differ in it.
        # By copy: the files changed in it that were also changed in other copies, and those copies.
        self.overlaps: dict[str, Mapping[str, Sequence[str]]] = {}
        self.notes: list[str] = []  # Sentences on what a killed program left unfinished.
        self._opening = asyncio.Lock()

    async def aclose(self) -> None:
        for name in tuple(self._kits):
            await self._kits.pop(name).aclose()

    def list_copies(self) -> list[FolderCopy]:
        """Return all copies, newest first, including those that a crash left incomplete."""
        found = list_folder_copies(self._bench.workspace)
        self.labels = {copy.id: copy.label for copy in found if copy.is_whole}
        return found

    def find_copy(self, name: str) -> FolderCopy | None:
        return next((copy for copy in self.list_copies() if copy.id == name), None) if name else None

    # --- Making copies, and the tools that work in them

    async def get_or_open_tools(self, name: str) -> WorkspaceTools:
        """Return the tools that work in a copy, or for an empty name those of the workspace."""
        if not name:
            return self._bench.kit
        async with self._opening:
            if name not in self._kits:
                copy = await asyncio.to_thread(self.find_copy, name)
                # If there is no such copy here, another machine chose its name, which may not be allowed in a path.
                self._kits[name] = await self._open_copy_tools(copy or FolderCopy(name, self._folder / "none"))
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
        if name and any((self._folder / name).glob("aside-*/*")) and (copy := self.find_copy(name)) is not None:
            await asyncio.to_thread(_put_back_set_aside_files, copy)

    async def create_copy(self, name: str, *, with_changes: bool = False, parent: str = "") -> FolderCopy:
        """Copy the folders of the copy `parent`, or the user's. A failure leaves nothing behind."""
        kit = await self.get_or_open_tools(parent)
        folder = self._folder / name
        if await asyncio.to_thread(self.find_copy, name) is not None:
            raise ActionRefused(f"There is already a copy named {name}.")
        try:
            copy = await asyncio.to_thread(_create_copy_files, folder, kit, with_changes, parent)
            tools = self._kits[name] = await self._open_copy_tools(replace(copy, is_whole=True))
            if (checkpoints := tools.resources.checkpoints) is not None:
                await checkpoints.ensure_first_check()
                start = checkpoints.latest_checkpoint if checkpoints.is_ready else None
                copy = replace(copy, start=start.hex if start else "")
            await asyncio.to_thread(_save_copy_description, copy := replace(copy, is_whole=True))
            self.labels[name] = copy.label
            self._new.add(name)
        except BaseException:
            if (opened := self._kits.pop(name, None)) is not None:
                await opened.aclose()
            await asyncio.to_thread(delete_folder_tree, folder, ignore_errors=True)
            raise
        return copy

    async def run_set_up_command(self, conversation: str) -> str:
        """Run the settings' command once in each new copy, if permitted. Returns what the agent is told."""
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

    async def read_copy_status(self, copy: FolderCopy) -> CopyStatus:
        return await asyncio.to_thread(_read_copy_status, copy)

    async def describe_copy_of_agent(self, session: Session) -> str:
        """Return what the parent of a sub-agent is told of its copy, or nothing if it has none of its own."""
        copy = await asyncio.to_thread(self.find_copy, session.id)
        if copy is None or session.conversation.state.own_copy != copy.id:
            return ""
        if not (names := (await self.read_copy_status(copy)).changed):
            return "[It worked in a copy of the folders and changed no file.]"
        shown = copying.name_some_files(names)
        return f"[It worked in a copy of the folders. These files are different there, and not in yours: {shown}. To have them in yours, call {APPLY} with the agent {copy.id}. The user can do it with “Bring back…” in that conversation.]"

    async def read_status_of_copies(self) -> dict[str, CopyStatus]:
        """Return the status of each copy, with files that other copies have changed as well."""
        copies = await asyncio.to_thread(self.list_copies)
        found = {copy.id: await self.read_copy_status(copy) for copy in copies}
        self._changed = {name: each.changed for name, each in found.items()}
        self._compare_copies()
        return {name: replace(each, overlaps=self.overlaps[name]) for name, each in found.items()}

    async def refresh_changed_files(self, name: str) -> None:
        """List again what differs in a copy, because files in it have changed."""
        for copy in await asyncio.to_thread(self.list_copies):
            if copy.id == name or copy.id not in self._changed:
                with suppress(ActionRefused):  # If a copy is damaged, `read_copy_status` reports it.
                    self._changed[copy.id] = await asyncio.to_thread(_list_changed_files, copy)
        self._compare_copies()

    def _compare_copies(self) -> None:
        where = defaultdict[str, list[str]](list)
        for name, paths in self._changed.items():
            for path in paths:
                where[path].append(name)
        self.overlaps = {
            name: {path: [other for other in where[path] if other != name] for path in paths if len(where[path]) > 1}
            for name, paths in self._changed.items()
        }

    def changed_files(self, name: str) -> Sequence[str]:
        """Return the user's files that differ in a copy, according to the last list."""
        return self._changed.get(name, ())


class RepositoryCopies(CopiesInUse):
    """Also brings copies back: for the user in four ways, and for an agent that applies a sub-agent's."""

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
            shown = "\n".join(_describe_step(plan.checkpoints.roots, step) for step in plan.steps)
            title = "Apply a sub-agent's changes"
            why = "it changes all the listed files at once"
            action = ToolAction(APPLY, ActionEffect.EDIT, title, shown, reason_to_ask=why, asks_in_every_mode=True)
            await use.permit(action)
            if (await self._plan_changes(copy)).steps != plan.steps:
                raise ActionRefused(
                    "The copy or your own files were changed while the question was shown.",
                    remedy=f"Nothing was applied. To ask the user about the changes as they are now, call {APPLY} again.",
                )
        said = await self._carry_out_plan(copy, plan, session)
        return ToolOutput(" ".join(said), source=row.title)

    async def _brought_and_present_versions(self, copy: FolderCopy) -> tuple[Checkpoints, BroughtVersions, Tree]:
        """Return the copy's checkpoints, what the user's folders have of it, and its files as they are now."""
        checkpoints = (await self.get_or_open_tools(copy.id)).resources.checkpoints
        if checkpoints is None or not copy.start:
            raise ActionRefused("Checkpoints leave out this repository copy.", remedy=f"{_NOT_TOUCHED} Merge the copy.")
        await asyncio.to_thread(_put_back_set_aside_files, copy)
        await checkpoints.ensure_first_check()
        await checkpoints.check_for_changes(thorough=True)
        start = await checkpoints.read_checkpoint_state(Digest.from_hex(copy.start))
        return checkpoints, BroughtVersions(start, copy.brought, copy.replaced), checkpoints.folders.known_items()

    async def _changes_in_copy(self, copy: FolderCopy) -> tuple[BroughtVersions, list[PathChange]]:
        """Return what differs from what was brought back last, without files that git ignores."""
        checkpoints, versions, now = await self._brought_and_present_versions(copy)
        listed = await asyncio.to_thread(_list_names_by_root, copy)
        if uncovered := await asyncio.to_thread(_find_git_file_missing_from_checkpoint, checkpoints.roots, now, listed):
            raise ActionRefused(
                f"Checkpoints leave out {printable_path(uncovered)}.",
                remedy=f"{_NOT_TOUCHED} Commit the file in the copy and merge the copy instead, or move the file out of the copy.",
            )
        changes = compare_trees(versions.latest_versions(), now)
        wanted = {change for change in changes if _is_brought_back(change, listed)}
        above = {str(folder) for change in wanted for folder in PurePosixPath(change.path).parents}
        return versions, [each for each in changes if each in wanted or (each.path in above and each.before is None)]

    async def bring_back(
        self, copy: FolderCopy, way: str, message: str = "", conflicts: str = "leave"
    ) -> tuple[str, ...]:
        """Apply, merge, rebase or discard it (`way`). Returns sentences. If refused, the user's files are unchanged.

        `conflicts`: which version of files that both changed is applied: "yours", "copy" or "markers". With "leave",
        the other files are applied, and then it is refused.
        """
        self._check_nobody_works_in(copy)
        copy = await self._settle_unfinished(copy)
        if not copy.is_whole and way != "discard":
            raise ActionRefused(copy.problem or "This copy was not completed.", remedy="Discard the copy instead.")
        if way == "apply":
            return await self._carry_out_plan(copy, await self._plan_changes(copy, conflicts), None)
        if way == "discard":
            return await self._discard_copy(copy)
        return await self._merge_copy(copy, message, rebase=way == "rebase")

    async def list_files_not_brought_back(self, copy: FolderCopy) -> Sequence[str]:
        """Return the files that are different in a copy from what was brought back last."""
        if not copy.is_whole:
            return ()
        try:
            changes = (await self._changes_in_copy(copy))[1]
        except ActionRefused:  # Its checkpoints cannot say it, but git can.
            return (await self.read_copy_status(copy)).changed
        files = [one for one in changes if not {PathKind.FOLDER}.issuperset(each.kind for each in one[1:] if each)]
        return [printable_path(change.path.partition("/")[2]) for change in files]

    async def find_conflicts(self, copy: FolderCopy) -> Sequence[str]:
        """Return the files that cannot be applied, because the user has changed them as well."""
        return (await self._plan_changes(copy)).conflicting_names

    async def _merge_copy(self, copy: FolderCopy, message: str, *, rebase: bool) -> tuple[str, ...]:
        versions = None
        with suppress(ActionRefused):  # A copy without checkpoints is merged as well.
            _, versions, _ = await self._brought_and_present_versions(copy)
        try:
            said = await asyncio.to_thread(_merge_branches, copy, message, versions, rebase=rebase)
        except ActionRefused:
            unfinished_bring_back.forget_unfinished_bring_back(copy.folder)
            raise
        await self._remember_merge(copy, versions)
        return said

    async def _remember_merge(self, copy: FolderCopy, versions: BroughtVersions | None) -> None:
        changes = list[PathChange]()
        if versions is not None:
            _, _, now = await self._brought_and_present_versions(copy)
            merged = [f"{at}/" for at, (number, _) in enumerate(copy.places) if copy.repositories[number].base]
            changes = [one for one in compare_trees(versions.latest_versions(), now) if one.path.startswith((*merged,))]
        await asyncio.to_thread(_remember_brought_back, copy, changes, is_merged=True)
        await self.refresh_changed_files(copy.id)

    # --- After a kill

    async def finish_interrupted_work(self) -> None:
        """Record what a killed program wrote to the user's folders, and delete what it was deleting."""
        for copy in await asyncio.to_thread(self.list_copies):
            if copy.folder.name.endswith(_DISCARDED):
                await asyncio.to_thread(delete_folder_tree, copy.folder, ignore_errors=True)
                continue
            try:
                await self._settle_unfinished(copy)
            except (HelixError, OSError) as error:  # It is tried again before the copy is brought back.
                self.notes.append(str(error))

    async def _settle_unfinished(self, copy: FolderCopy) -> FolderCopy:
        """Do so for one copy. Returns it as it is described afterwards."""
        begun = await asyncio.to_thread(unfinished_bring_back.read_unfinished_bring_back, copy.folder)
        if begun is None:
            return copy
        if begun.moves:
            await self._settle_merge(copy, begun)
        else:
            await self._settle_apply(copy, begun)
        return await asyncio.to_thread(_read_copy_description, copy.folder)

    async def _settle_merge(self, copy: FolderCopy, begun: UnfinishedBringBack) -> None:
        if is_moved := await asyncio.to_thread(_repair_moves, begun.moves):
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

    async def _settle_apply(self, copy: FolderCopy, begun: UnfinishedBringBack) -> None:
        checkpoints = (await self.get_or_open_tools(copy.parent)).resources.checkpoints
        if checkpoints is None or not checkpoints.is_undo_available or not copy.is_of(checkpoints.roots):
            return
        fact, unwritten = await unfinished_bring_back.record_written_steps(checkpoints, begun)
        if fact is not None:
            title = await self._record_applied(fact, begun)
            self.notes.append(
                f"The program was ended while it brought back a copy. Files changed until then: {fact.files:,}. You can undo this in the conversation “{title}”."
            )
        taken = [change for change in begun.taken if change.path not in unwritten]
        steps = [step for step in begun.steps if step.path not in unwritten]
        await asyncio.to_thread(_remember_brought_back, copy, taken, steps)

    def _check_nobody_works_in(self, copy: FolderCopy) -> None:
        working = any(not each.is_idle for each in self._bench.sessions if each.conversation.state.own_copy == copy.id)
        if working or (copy.id in self._kits and self._kits[copy.id].commands.running_in_background):
            raise ActionRefused(
                "An agent or a command is still running in this copy.",
                remedy="Stop it first, or wait until it has ended.",
            )

    async def _plan_changes(self, copy: FolderCopy, conflicts: str = "leave") -> BringBackPlan:
        """Return what to write to the folders that the copy was made from."""
        self._check_nobody_works_in(copy)
        versions, changes = await self._changes_in_copy(copy)
        kit = await self.get_or_open_tools(copy.parent)
        checkpoints = kit.resources.checkpoints
        if checkpoints is None or not copy.is_of(kit.resources.roots.folders):
            raise ActionRefused("The workspace's folders have changed since the copy was made.", remedy=_NOT_TOUCHED)
        if not checkpoints.is_undo_available:
            raise ActionRefused(
                "Checkpoints are turned off for this workspace.", remedy=f"{_NOT_TOUCHED} Merge the copy."
            )
        await checkpoints.ensure_first_check()
        await checkpoints.check_for_changes(thorough=True)
        paths = {change.path for change in changes}
        # What was brought back before is so again if the user has undone it.
        now = (await self._brought_and_present_versions(copy))[2]
        changes += [PathChange(path, None, now.get(path)) for path in copy.brought if path not in paths]
        return await _plan_merge(checkpoints, sorted(changes, key=lambda each: each.path), versions, conflicts)

    async def _carry_out_plan(self, copy: FolderCopy, plan: BringBackPlan, session: Session | None) -> tuple[str, ...]:
        """`session`: its conversation can undo this. Without one, a new conversation can."""
        taken = [change for change in plan.changes if change not in plan.conflicts]
        conversation, seq = (session.id, session.conversation.state.seq) if session else (new_conversation_id(), 0)
        above = unfinished_bring_back.folders_above(plan.checkpoints, plan.steps)
        begun = UnfinishedBringBack((), conversation, seq, [*plan.steps, *above], taken)
        said = await self._restore_planned_steps(copy, plan, begun) if plan.steps else ()
        await asyncio.to_thread(_remember_brought_back, copy, taken, plan.steps)
        if names := plan.conflicting_names:
            raise ActionRefused(
                f"These files were changed both in your folder and in the copy: {copying.name_some_files(names)}.",
                remedy="All other changes were brought back. Choose which version of these files you want: in the window with “Bring back…”, on the command line with `--conflicts`.",
            )
        return said or ("There are no changes to bring back.",)

    async def _restore_planned_steps(
        self, copy: FolderCopy, plan: BringBackPlan, begun: UnfinishedBringBack
    ) -> tuple[str, ...]:
        checkpoints, steps = plan.checkpoints, plan.steps
        await asyncio.to_thread(begun.save_in_copy, copy.folder)
        done = await change_restoring.restore_paths(checkpoints, steps)
        title = await self._record_applied(done.fact, begun)
        folders = {step.path for step in steps if step.now is not None and step.now.kind is PathKind.FOLDER}
        left = [
            f"{printable_path(checkpoints.displayed_path(path))} was not changed: {why}."
            for path, why in done.paths_left_alone
            if path not in folders
        ]
        return (
            f"Files changed: {len(done.restored):,}. You can undo this in the conversation “{title}”.",
            *left,
        )

    async def _record_applied(self, fact: FilesChanged | None, begun: UnfinishedBringBack) -> str:
        """Record it, unless that has been done, in a new conversation if there is none. Returns the title."""
        facts: list[Fact] = [replace(fact, by="command")] if fact is not None else []
        if is_there := self._bench.conversation_row(begun.conversation) is not None:
            session = await self._bench.open_session(begun.conversation)
        else:
            session = await self._bench.start_conversation(_TITLE, identity=begun.conversation)
        if not is_there or not begun.last_seq:
            facts = [UserSaid((Text(_TITLE),)), *facts, TurnEnded(TurnEnd.DONE)]
        later = (each.fact for each in session.all_facts if each.seq > begun.last_seq)
        if not any(isinstance(one, FilesChanged) and one.by == "command" and not one.call for one in later):
            await session.conversation.append_facts(*facts)
        return session.conversation.state.title

    async def _discard_copy(self, copy: FolderCopy) -> tuple[str, ...]:
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
        gone = copy.folder.with_name(copy.folder.name.removesuffix(_DISCARDED) + _DISCARDED)
        await asyncio.to_thread(copy.folder.rename, gone)
        await asyncio.to_thread(delete_folder_tree, gone, ignore_errors=True)
        self.labels.pop(copy.id, None)
        self._changed.pop(copy.id, None)
        if kit is not None:  # A conversation that worked in it may still be open: its tools have no folder now.
            await self.get_or_open_tools(copy.id)
        self._compare_copies()
        return (*kept, "The copy was deleted.")

    async def _store_bundles_of_copy(self, copy: FolderCopy) -> list[str]:
        """Store a bundle of each repository with what is only in the copy, committed or not."""
        if any(not made.base for made in copy.repositories) and (await self._changes_in_copy(copy))[1]:
            raise ActionRefused("This copy is not a git repository.", remedy="Bring the copy's changes back to your folder first.")  # fmt: skip
        said = []
        for source, checkout, made in _find_checkouts(copy):
            if bundle := await asyncio.to_thread(copying.commit_and_bundle_copy, source, checkout, made):
                origin = EntryOrigin("copy", f"copy of {made.source}", GIT_BUNDLE)
                stored = await self._bench.workspace.cache.store_content(bundle, origin)
                # The content is pinned, because no fact names it and it exists nowhere else.
                await self._bench.workspace.cache.pin_entry(stored.digest)
                said.append(
                    f"The copy's changes are stored in the cache as {stored.digest.hex}, a bundle that `git fetch` can read."
                )
        return said


def list_folder_copies(workspace: StoredWorkspace) -> list[FolderCopy]:
    """Return all copies of a workspace's folders, newest first."""
    folders = sorted((workspace.folder / COPIES).glob("*"), reverse=True)
    found = [_read_copy_description(folder) for folder in folders if folder.is_dir()]
    return sorted(found, key=lambda copy: -copy.created)


# --- Creating and reading the files of a copy


def _create_copy_files(folder: Path, kit: WorkspaceTools, with_changes: bool, parent: str) -> FolderCopy:  # noqa: FBT001 -- for to_thread
    if not (roots := kit.resources.roots.folders):
        raise ActionRefused("This workspace has no folder, so there is nothing to copy.")
    atomic_files.ensure_private_folder(folder.parent)
    folder.mkdir(mode=0o700)
    _save_copy_description(FolderCopy(folder.name, folder, time.time()))
    made: dict[Path, CopySource] = {}
    places = []
    for root in roots:
        source = copying.find_source_repository(root, kit.sandbox.command_folder / "git" / "ignore")
        top = source.folder if source is not None else root
        number = [*made, top].index(top)
        target = folder / str(number)
        if top not in made and source is not None:
            checkout = GitCheckout(target, is_copy=True)
            made[top] = copying.create_repository_copy(source, checkout, with_changes=with_changes)
        elif top not in made:
            made[top] = _copy_without_git(root, target)
        inside = f"{number}/{root.relative_to(top).as_posix()}"
        (folder / inside).mkdir(parents=True, exist_ok=True)
        places.append((str(root), inside))
    return FolderCopy(folder.name, folder, time.time(), tuple(places), tuple(made.values()), parent)


def _copy_without_git(root: Path, target: Path) -> CopySource:
    """Create a copy that takes no disk space until something in it is changed."""
    cp = find_program("cp")
    words = [cp, "-aT", "--reflink=always", str(root), str(target)]
    if not cp or run_process(ProcessLaunch(CommandAuthor.PROGRAM, words)).returncode:
        raise ActionRefused(
            f"{root} is not in a git repository, and its file system cannot make a copy that shares disk space with the original.",
            remedy="Nothing was copied. Make the folder a git repository first, or work in the folder itself.",
        )
    return CopySource(str(root))


def _save_copy_description(copy: FolderCopy) -> None:
    said = {name: value for name, value in asdict(copy).items() if name not in ("id", "folder", "problem")}
    atomic_files.write_file_atomically(copy.folder / NAME, json.dumps(said), private=True)


def _remember_brought_back(
    copy: FolderCopy, changes: Sequence[PathChange], steps: Iterable[RestoreStep] = (), *, is_merged: bool = False
) -> None:
    """Note in a copy's description what the user's folders have of it now, and from which commit git compares."""
    replaced = {path: item for path, item in copy.replaced.items() if all(path != one.path for one in changes)}
    replaced = {} if is_merged else {**replaced, **{step.path: pack_item(step.now).hex() for step in steps}}
    brought = dict(copy.brought)
    for path, _, after in changes:
        version = pack_item(after).hex()
        brought[path] = [*(each for each in brought.get(path, ()) if each != version), version][-MOST_VERSIONS:]
    repositories = copy.repositories
    if is_merged:
        merged = {}
        for _, at, made in _find_checkouts(copy):
            names = map(os.fsdecode, at.uncommitted_paths())
            carried = {name: copying.size_and_time(at.folder / name) for name in names}
            merged[made.source] = replace(made, base=at.head, carried=carried)
        repositories = [merged.get(made.source, made) for made in repositories]
    _save_copy_description(replace(copy, brought=brought, replaced=replaced, repositories=repositories))
    unfinished_bring_back.forget_unfinished_bring_back(copy.folder)


def _read_copy_description(folder: Path) -> FolderCopy:
    try:
        said = json.loads(atomic_files.read_small_file(folder / NAME))
        said["repositories"] = [CopySource(**each) for each in said["repositories"]]
        said["is_whole"] = said["is_whole"] is True and not folder.name.endswith(_DISCARDED)
        return FolderCopy(folder.name, folder, **said)
    except (OSError, HelixError, ValueError, KeyError, TypeError):
        is_kept = not folder.name.endswith(_DISCARDED) and any(folder.glob("[0-9]*"))
        problem = "What describes this copy cannot be read." if is_kept else ""
        return FolderCopy(folder.name, folder, folder.stat().st_mtime, problem=problem)


def _find_checkouts(copy: FolderCopy) -> Iterator[tuple[GitCheckout | None, GitCheckout, CopySource]]:
    """Yield the user's repository (None if it is gone), the copy if its git files lead nowhere else, and its source."""
    for number, made in enumerate(copy.repositories):
        source = None
        with suppress(ActionRefused):
            source = copying.find_source_repository(Path(made.source))
        if made.base:
            there = source if source is not None and source.folder == Path(made.source) else None
            checkout = GitCheckout(copy.folder / str(number), is_copy=True)
            checkout.check_git_folder_is_its_own()
            yield there, checkout, made


def _put_back_set_aside_files(copy: FolderCopy) -> None:
    for _, checkout, made in _find_checkouts(copy):
        copying.put_back_set_aside_files(checkout, made)


def _read_copy_status(copy: FolderCopy) -> CopyStatus:
    size = sum(about.st_blocks * 512 for _, about in list_tree_files(copy.folder))
    uncommitted, changed = list[str](), tuple[str, ...]()
    commits, problem = 0, copy.problem
    try:
        for source, checkout, made in _find_checkouts(copy) if copy.is_whole else ():
            names = copying.list_uncommitted_paths(checkout, made)
            uncommitted += [printable_path(os.fsdecode(name)) for name in names]
            commits += len(copying.list_commits_only_in_copy(source, checkout, made))
        changed = _list_changed_files(copy)
    except ActionRefused as error:
        problem = str(error)
    return CopyStatus(size, tuple(uncommitted), commits, problem, changed)


def _list_changed_files(copy: FolderCopy) -> tuple[str, ...]:
    found = []
    for _, checkout, made in _find_checkouts(copy) if copy.is_whole else ():
        folder = _find_users_folder(made.source)
        found += [f"{folder}/{name}" for name in copying.list_changed_paths(checkout, made)]
    return tuple(found)


def _find_users_folder(source: str) -> str:
    """Return the user's folder from which a copy, or a copy of a copy, was made."""
    above = Path(source).parent
    if above.parent.name != COPIES or not Path(source).name.isdigit():
        return source
    made = _read_copy_description(above).repositories
    number = int(Path(source).name)
    return _find_users_folder(made[number].source) if number < len(made) else source


def _list_names_by_root(copy: FolderCopy) -> dict[int, frozenset[str] | None]:
    """Return the files of each root that git sees as changed or new, or None without git."""
    found: dict[int, frozenset[str] | None] = dict.fromkeys(range(len(copy.roots)))
    for _, checkout, made in _find_checkouts(copy):
        checkout.check_no_merge_open()  # The half of one, with its conflict markers, is not brought back.
        names = copying.list_changed_paths(checkout, made)
        for at, (number, start) in enumerate(copy.places):
            if str(number) == checkout.folder.name:
                found[at] = frozenset(name.removeprefix(start) for name in names if name.startswith(start))
    return found


def _find_git_file_missing_from_checkpoint(
    roots: Sequence[Path], checkpoint_items: Mapping[str, TreeItem], git_names: Mapping[int, frozenset[str] | None]
) -> str:
    """Return a file that git knows but checkpoints do not, or an empty string."""
    for number, names in git_names.items():
        for name in names or ():
            item, place = checkpoint_items.get(f"{number}/{name}"), roots[number] / name
            if (item is None or item.kind is PathKind.OTHER) and os.path.lexists(place) and not place.is_dir():
                return str(place)
    return ""


def _is_brought_back(change: PathChange, git_names: Mapping[int, frozenset[str] | None]) -> bool:
    """Whether to bring a change back. New files only if git would track them."""
    if all(item is None or item.kind is PathKind.FOLDER for item in change[1:]):
        return change.after is None
    number, _, inside = change.path.partition("/")
    names = git_names[int(number)]
    return change.before is not None or names is None or inside in names


# --- Joining the copy's branches with the user's


def _merge_branches(
    copy: FolderCopy, message: str, versions: BroughtVersions | None, *, rebase: bool
) -> tuple[str, ...]:
    """Merge in the copy. The user's branches are moved once that has worked in all repositories."""

    def find_versions(checkout: GitCheckout, name: str) -> Sequence[TreeItem | None]:
        for at, (number, start) in enumerate(copy.places):
            if versions is not None and str(number) == checkout.folder.name and name.startswith(start):
                return versions.versions_of(f"{at}/{name.removeprefix(start)}")
        return ()

    joined = []
    for source, checkout, made in _find_checkouts(copy):
        if source is None:
            raise ActionRefused(
                "The original repository no longer exists.", remedy="You can copy the files by hand instead."
            )
        source.check_no_merge_open()
        checkout.check_no_merge_open()
        copying.commit_in_copy(checkout, made, message)
        commit = copying.merge_or_rebase_in_copy(source, checkout, made, rebase=rebase)
        joined.append((source, checkout, commit))
    joined = [each for each in joined if each[2]]
    for source, checkout, commit in joined:
        copying.bring_commit_to_source(source, checkout, commit, copy.id)
    # All are planned before the first is moved.
    moves = [copying.plan_branch_move(source, commit, partial(find_versions, at)) for source, at, commit in joined]
    UnfinishedBringBack(moves).save_in_copy(copy.folder)
    said, undoing = list[str](), list[str]()
    for (source, _, commit), move in zip(joined, moves, strict=True):
        undoing.append(f"To go back, run `git reset --keep {move.head[:9]}` in {source.folder}.")
        try:
            copying.move_branch_forward(source, move)
        except ActionRefused as error:
            raise ActionRefused(" ".join((error.what, *said)), remedy=" ".join(undoing[:-1]) or error.remedy) from error
        said.append(f"{source.branch or 'HEAD'} in {source.folder} is now at {commit[:9]}.")
    return tuple(said) or ("There are no changes to bring back.",)


def _repair_moves(moves: Sequence[BranchMove]) -> bool:
    """Whether all branches were moved."""
    sources = [copying.find_source_repository(Path(move.source)) for move in moves]
    found = [(source, move) for source, move in zip(sources, moves, strict=True) if source is not None]
    return len([None for source, move in found if copying.repair_branch_move(source, move)]) == len(moves)


async def _plan_merge(
    checkpoints: Checkpoints, changes: Sequence[PathChange], versions: BroughtVersions, choice: str
) -> BringBackPlan:
    """Return the steps that add these changes to the user's files. `choice`: what is done about conflicts."""
    steps, conflicts = [], []
    for each in changes:
        change, now = each, checkpoints.folders.last_item_at(each.path)
        if _is_same_version(now, change.after):
            continue
        is_file = change.after is not None and change.after.kind is PathKind.FILE
        known = versions.versions_of(change.path)
        if versions.is_before_last_apply(change.path, now):
            known = known[:-1] or known
            change = change._replace(before=known[-1])
        if any(_is_same_version(now, one, with_mode=is_file) for one in known):
            steps.append(RestoreStep(change.path, now, _item_with_mode(change.after, now)))
        elif _is_same_version(known[-1], change.after):
            continue  # Only the user has changed it since it was brought back.
        elif (merged := await _merge_versions(checkpoints, change, now, with_markers=choice == "markers")) is not None:
            steps.append(RestoreStep(change.path, now, merged))
        elif choice == "copy":
            steps.append(RestoreStep(change.path, now, _item_with_mode(change.after, now)))
        elif choice != "yours" and (change.before is None or change.before.kind is not PathKind.FOLDER):
            conflicts.append(each)
    return BringBackPlan(checkpoints, changes, steps, conflicts)


def _describe_step(roots: Sequence[Path], step: RestoreStep) -> str:
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


def _is_same_version(one: TreeItem | None, other: TreeItem | None, *, with_mode: bool = True) -> bool:
    """Compare as git does: of a mode, only whether a file is executable counts."""
    if one is None or other is None or one.kind is not other.kind:
        return one is other
    same_mode = not with_mode or not (one.mode ^ other.mode) & 0o100
    return one.kind is PathKind.FOLDER or (one.content == other.content and same_mode)


def _item_with_mode(wanted: TreeItem | None, now: TreeItem | None) -> TreeItem | None:
    """Return the file with the mode of the user's, except whether it is executable."""
    if wanted is None or now is None or not wanted.kind is now.kind is PathKind.FILE:
        return wanted
    return wanted._replace(mode=now.mode | (now.mode & 0o444) >> 2 if wanted.mode & 0o100 else now.mode & ~0o111)


async def _merge_versions(
    checkpoints: Checkpoints, change: PathChange, now: TreeItem | None, *, with_markers: bool
) -> TreeItem | None:
    """Merge the user's version with the copy's as git does. None if both changed the same lines, unless `with_markers`."""
    before, after = change.before, change.after
    if now is None or after is None or not now.kind is after.kind is PathKind.FILE:
        return None
    if before is None or before.kind is not PathKind.FILE:
        if not with_markers:
            return None
        before = after._replace(content=b"", size=0)
    versions = [await checkpoints.read_item_content(item) if item.size else b"" for item in (now, before, after)]
    try:
        merged = await asyncio.to_thread(copying.merge_versions, *versions, with_markers=with_markers)
    except ActionRefused:
        return None
    item = await change_restoring.store_merged_version(checkpoints, merged, now)
    return _item_with_mode(item._replace(mode=after.mode), now) if (before.mode ^ after.mode) & 0o100 else item
