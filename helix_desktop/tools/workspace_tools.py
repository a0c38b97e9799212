"""A workspace's tools together: its folders, sandbox and running commands, and
conversations' Toolboxes.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop.cancellation import end_if_cancelled
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.ports import ContentCache, SearchIndex, TokenCounter
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.folders_of_agents import leave_out_of_search
from helix_desktop.tools import (
    command_tools,
    compare_tool,
    document_tool,
    fetch_tool,
    file_tools,
    hidden_files,
    recall_tools,
    search_files_tool,
    temporary_folders,
    todo_tool,
)
from helix_desktop.tools.autorun_guard import AutorunGuard as FileGuard
from helix_desktop.tools.built_in_tool import BuiltInTool, WorkspaceResources
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.command_tools import CommandLimits, WorkspaceCommands
from helix_desktop.tools.delegate_tool import AgentDelegation, AgentPlace, StartChild
from helix_desktop.tools.git_identity import write_identity
from helix_desktop.tools.home_access import CommandOpenings
from helix_desktop.tools.permission import PermissionMode
from helix_desktop.tools.recall_tools import CompactForPurpose, ReadHistory
from helix_desktop.tools.sandbox import Sandbox, SandboxKind, find_sandbox
from helix_desktop.tools.toolbox import CallHooks, ForeignTool, Toolbox, WorkspacePermissions
from helix_desktop.tools.tools_on_demand import OnDemandTools, ToolFinder
from helix_desktop.tools.workspace_roots import WorkspaceRoots


@dataclass(frozen=True, slots=True)
class WorkspaceToolOptions:
    """`closed_paths`: the program's own files."""

    closed_paths: tuple[Path, ...] = ()
    sample_folder: Path | None = None  # A folder that may be open although it is in a closed one.
    offers_fetch: bool = False
    caches: Path | None = None  # The folder that contains the caches of build tools.
    # Tells which parts of the home folder a command may use. Called before each command.
    opened: Callable[[], CommandOpenings] = CommandOpenings
    # Returns the patterns of files that are hidden from agents.
    hidden: Callable[[], tuple[str, ...]] = lambda: hidden_files.DEFAULT


@dataclass(slots=True)
class WorkspaceTools:
    resources: WorkspaceResources
    permissions: WorkspacePermissions
    sandbox: Sandbox
    commands: WorkspaceCommands
    options: WorkspaceToolOptions
    finder: ToolFinder = field(default_factory=ToolFinder)
    scratch_lock: int = -1

    @classmethod
    async def open_workspace_tools(
        cls,
        folders: Sequence[Path],
        stores: tuple[ContentCache, SearchIndex, TokenCounter],
        *,
        permissions: WorkspacePermissions,
        spawn: Callable[..., asyncio.Task[Any]],
        options: WorkspaceToolOptions = WorkspaceToolOptions(),  # noqa: B008 -- frozen
        checkpoints: Checkpoints | None = None,
    ) -> "WorkspaceTools":
        """Find out how this system can confine commands to `folders`, and prepare the tools.

        Tools do not see files that are hidden from agents. The guard of files that other programs
        run later does. The scratch folder, which stands for /tmp in commands, is removed again if
        anything fails.
        """

        def is_hidden_from_tools(inside: str) -> bool:
            return hidden_files.matches_hidden_patterns(inside, options.hidden())

        def is_planning() -> bool:
            return permissions.mode_in_force is PermissionMode.PLAN

        all_roots = WorkspaceRoots.from_folders(
            folders, options.closed_paths, options.sample_folder
        )
        leave_out_of_search(all_roots.folders)
        roots = replace(all_roots, is_hidden_inside=is_hidden_from_tools)
        await asyncio.to_thread(temporary_folders.remove_abandoned_scratch_folders)
        scratch, lock = temporary_folders.create_scratch_folder()
        try:
            sandbox = await _find_and_prepare_sandbox(roots, scratch, options.caches)
        except BaseException:
            temporary_folders.remove_scratch_folder(scratch, lock)
            raise
        permissions.sandboxed = sandbox.kind is not SandboxKind.NONE
        guard = FileGuard(all_roots, options.hidden)
        commands = WorkspaceCommands(sandbox, os.environ, spawn, CommandLimits(), guard)
        commands.opened = options.opened
        commands.is_planning = is_planning
        resources = WorkspaceResources(roots, *stores, checkpoints=checkpoints)
        return cls(resources, permissions, sandbox, commands, options, scratch_lock=lock)

    def build_toolbox(  # noqa: PLR0913 -- all of them keywords with defaults
        self,
        *,
        compact: CompactForPurpose | None = None,
        history: ReadHistory | None = None,
        start_child: StartChild | None = None,
        place: AgentPlace | None = None,
        more: Callable[[], Sequence[ForeignTool]] = tuple,
        allowed_tools: Sequence[str] = (),
        on_demand: OnDemandTools | None = None,
        others: Sequence[BuiltInTool] = (),
        guard: CallHooks | None = None,
    ) -> Toolbox:
        """Return one conversation's tools. `place`: its place among the agents to which
        it delegates. `more`: returns the tools of MCP servers. `allowed_tools`: all that it may
        have, or empty for no limit.
        """
        search = partial(search_files_tool.search_files, self.sandbox)
        tools = list(file_tools.TOOLS)
        tools += document_tool.TOOLS
        tools += compare_tool.TOOLS
        tools.append(BuiltInTool(search_files_tool.SEARCH_FILES, search))
        tools += command_tools.build_command_tools(self.commands)
        tools += todo_tool.TOOLS
        tools += recall_tools.build_recall_tools(compact, history)
        if self.options.offers_fetch:
            tools += fetch_tool.TOOLS
        tools += others
        if start_child is not None:
            # A sub-agent may have what this toolbox has, which is made below.
            delegation = AgentDelegation(
                start_child, place=place, names=lambda: toolbox.callable_names
            )
            tools += delegation.build_delegate_tool()
        toolbox = Toolbox(
            tools,
            self.resources,
            permissions=self.permissions,
            more=more,
            only=frozenset(allowed_tools),
            on_demand=on_demand,
            guard=guard,
        )
        return toolbox

    async def collect_unfinished_changes(self, conversation: str) -> Sequence[FilesChanged]:
        """Return, at a turn's end, the changes of steps that were stopped or go on in
        the background.
        """
        checkpoints = self.resources.checkpoints
        if checkpoints is None:
            return ()
        # A turn that ran no tools has not done this yet.
        checkpoints.steps.disown_next_changes(conversation)
        steps = checkpoints.steps.open_steps_of_conversation(conversation)
        facts = []
        for step in steps:
            fact = await checkpoints.end_step(step, thorough=True)
            if fact is not None:
                facts.append(fact)
        for step in steps:
            step.is_between_turns = True
        if steps:
            await checkpoints.save_open_steps()
        return facts

    def forget_recorded_change(self, fact: FilesChanged) -> None:
        if self.resources.checkpoints is not None:
            self.resources.checkpoints.steps.forget_recorded_change(fact)

    async def aclose(self) -> None:
        """Stop the commands in the background and remove the scratch folder."""
        await self.commands.aclose()
        if self.resources.checkpoints is not None:
            await self.resources.checkpoints.aclose()
        lock = self.scratch_lock
        self.scratch_lock = -1  # Another call must not close a file number that is used anew.
        await asyncio.to_thread(temporary_folders.remove_scratch_folder, self.sandbox.scratch, lock)


async def _find_and_prepare_sandbox(
    roots: WorkspaceRoots, scratch: Path, caches: Path | None
) -> Sandbox:
    """Find the sandbox of this system, and write who commits in it."""
    folder_of_caches = caches or scratch / "caches"
    sandbox = await find_sandbox(roots.folders, scratch, roots.closed_paths, folder_of_caches)
    command_folder_of_git = sandbox.command_folder / "git"
    writing = asyncio.to_thread(write_identity, command_folder_of_git, roots.folders)
    # What is still being written would keep the scratch folder from being removed.
    await end_if_cancelled(
        writing,
        lambda _: asyncio.to_thread(temporary_folders.remove_scratch_folder, scratch),
    )
    return sandbox
