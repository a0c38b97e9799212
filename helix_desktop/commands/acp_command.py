"""`acp`: this program's agent in an editor, over the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop.acp_agent.workspace_switch import WorkspacePipe, WorkspaceSwitch
from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import Subparsers, add_command
from helix_desktop.console import Console, Terminal
from helix_desktop.errors import InvalidInput
from helix_desktop.gateway import project_workspace

if TYPE_CHECKING:
    from helix_desktop.store.stored_workspace import StoredWorkspace


async def run_acp_command(arguments: Namespace) -> int:
    """Serves the editor until it closes its input. Nothing but messages may be written
    to standard output.
    """

    async def open_line(workspace: str, console: WorkspacePipe) -> int:
        """Serves the editor in one workspace, in the process that has it open."""
        arguments_of_line = Namespace(**vars(arguments))
        # A process that has the workspace open is sent these words, and runs them.
        arguments_of_line.argv = ["acp", "--workspace", workspace]
        return await workspace_access.run_here_or_at_owner(arguments_of_line, workspace, console)

    switch = WorkspaceSwitch(
        open_line, lambda folder: _find_editor_workspace(arguments, folder), _write_to_editor
    )
    await switch.run_until_input_ends(Terminal().read_input)
    logging.shutdown()
    # Everything is closed. A normal exit would wait for threads that load a vocabulary.
    os._exit(0)


def _write_to_editor(data: bytes) -> None:
    """Writes directly to the pipe: a buffer that is locked by a thread would keep the
    program from ending.
    """
    unwritten = memoryview(data)
    while unwritten:
        written_bytes = os.write(sys.stdout.fileno(), unwritten)
        unwritten = unwritten[written_bytes:]


def _find_editor_workspace(arguments: Namespace, folder: Path) -> str:
    """Returns the workspace that is named, or that of the editor's folder, which is
    created if necessary.
    """
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    if arguments.workspace:
        return workspaces.find_known_workspace(arguments.workspace).id

    real_folder = folder.resolve()
    known_workspaces = workspaces.list_workspaces()
    existing = project_workspace.find_project_workspace(known_workspaces, real_folder)
    if existing is not None:
        return existing.id

    home = Path.home().resolve()
    is_project = real_folder.is_dir() and project_workspace.can_be_project_folder(real_folder, home)
    if not is_project:
        raise InvalidInput(
            f"{real_folder} is not a project folder.",
            remedy="In the editor, open a project's folder.",
        )
    return project_workspace.create_project_workspace(workspaces, real_folder).id


async def serve_editor_in_workspace(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Serves an editor in the process that has the workspace open, so that it shares
    conversations with the window.
    """
    from helix_desktop import workbench
    from helix_desktop.workbench import interrupted_turns

    # Imported in a thread, because this takes half a second and would freeze an open window.
    agents = await asyncio.to_thread(
        importlib.import_module, "helix_desktop.acp_agent.editor_requests"
    )
    is_open_already = workbench.workbench_of(workspace) is not None
    async with workbench.use_workbench(workspace, arguments.places) as bench:
        if is_open_already:
            await agents.EditorAgent(bench).serve_editor(console)
            return 0
        # Turns of a process that was killed are still marked as running.
        await interrupted_turns.end_interrupted_turns(bench)
        serving = agents.EditorAgent(bench).serve_editor(console)
        return await workspace_access.serve_until_released(workspace, serving)


def add_acp_commands(nouns: Subparsers) -> None:
    """Declares `acp`, which has no verbs."""
    noun = add_command(
        nouns,
        "acp",
        "make the agent available to an editor that supports the Agent Client Protocol",
    )
    noun.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        default="",
        help="the workspace's name or ID (default: the workspace of the folder that the editor opens; one is created if the folder has none)",
    )
    noun.set_defaults(run=run_acp_command, work=serve_editor_in_workspace, lasting=True)
