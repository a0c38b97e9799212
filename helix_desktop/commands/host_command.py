"""`host`: serves a workspace to another program of ours over standard input and output.

A client of a workspace's host runs this at the process that has the workspace open. Run by itself,
it opens the workspace if nobody has. Over SSH (`--over-line`), it leads to a process of its own, which
goes on when the line breaks (`--keep`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import Subparsers, add_command, add_workspace_option
from helix_desktop.console import Console, Terminal
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gateway import project_workspace, wrapped_agent

if TYPE_CHECKING:
    from helix_desktop.store.stored_workspace import StoredWorkspace


def run_host_command(arguments: Namespace) -> int:
    if arguments.hold_key:
        with Terminal() as console:
            return asyncio.run(_hold_lent_key(arguments, console))
    if not arguments.over_line:
        return workspace_access.run_on_workspace(arguments)
    with Terminal() as console:
        return asyncio.run(_carry_line_of_other_computer(arguments, console))


async def _carry_line_of_other_computer(arguments: Namespace, console: Console) -> int:
    from helix_desktop.workspace_host.kept_host import HostStarter, LineEnd

    workspace = await asyncio.to_thread(_find_or_create_workspace, arguments)
    program = wrapped_agent.command_of_this_program(arguments.places)
    starter = HostStarter(arguments.places.run, workspace, program, console)
    return await LineEnd(starter, console).carry_until_either_ends()


async def _hold_lent_key(arguments: Namespace, console: Console) -> int:
    """At the end of a line ("line"), hands the key to a process of its own. That process ("here")
    holds it until the turn is done.
    """
    from helix_desktop.workspace_host import key_holder

    workspace = await asyncio.to_thread(_find_or_create_workspace, arguments)
    if arguments.hold_key == "line":
        from helix_desktop.workspace_host.kept_host import START_OF_LINE

        await console.write_output(START_OF_LINE)
    offer_line = await _read_offer_line(console)
    if arguments.hold_key == "line":
        program = wrapped_agent.command_of_this_program(arguments.places)
        said = await asyncio.to_thread(key_holder.start_key_holder, program, workspace, offer_line)
        await console.print_line(said)
        return 0

    async def announce() -> None:
        await console.print_line(key_holder.KEY_IS_HELD)

    try:
        offer = key_holder.decode_key_offer(offer_line)
        await key_holder.hold_key_until_turn_ends(arguments.places.run, workspace, offer, announce)
    except HelixError as error:
        await console.print_line(" ".join(str(error).split()))
    return 0


async def _read_offer_line(console: Console) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = await console.read_input()
        if not piece:
            break
        line += piece
    return line


def _find_or_create_workspace(arguments: Namespace) -> str:
    """Returns the id of the named workspace, or of that of the folder, which is created if necessary."""
    if arguments.folder is None:
        return workspace_access.find_chosen_workspace(arguments).id
    folder = arguments.folder.expanduser().resolve()
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder there. Nothing was created.")
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    known = project_workspace.find_project_workspace(workspaces.list_workspaces(), folder)
    if known is not None:
        return known.id
    if not project_workspace.can_be_project_folder(folder, Path.home().resolve()):
        raise InvalidInput(
            f"{folder} is the home folder there, or one above it, and no folder of a project.",
            remedy="Name a folder within it.",
        )
    return project_workspace.create_project_workspace(workspaces, folder).id


async def serve_host_client_of_console(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Serves the program at the other end of the input and output, in the process that has the
    workspace open. A process that opens it for this gives way to others that want it.
    """
    from helix_desktop import workbench

    if arguments.keep:
        return await _keep_workspace_open(arguments, workspace)
    # Imported in a thread, because an open window would freeze meanwhile.
    host_connection = await asyncio.to_thread(
        importlib.import_module, "helix_desktop.workspace_host.host_connection"
    )
    is_open_already = workbench.workbench_of(workspace) is not None
    async with workbench.use_workbench(workspace, arguments.places) as bench:
        serving = host_connection.serve_host_over_console(bench, console)
        if is_open_already:
            await serving
            return 0
        return await workspace_access.serve_until_released(workspace, serving)


async def _keep_workspace_open(arguments: Namespace, workspace: StoredWorkspace) -> int:
    """Serves those who come, until nobody has used the workspace for a while."""
    from helix_desktop import workbench
    from helix_desktop.workbench import interrupted_turns
    from helix_desktop.workspace_host import kept_host

    async with workbench.use_workbench(workspace, arguments.places) as bench:
        await interrupted_turns.end_interrupted_turns(bench)
        serving = kept_host.wait_until_unused(bench)
        return await workspace_access.serve_until_released(workspace, serving)


def add_host_commands(nouns: Subparsers) -> None:
    """Declares `host`, which other programs of Helix Desktop start."""
    noun = add_command(
        nouns,
        "host",
        "serve a workspace to another program of Helix Desktop over standard input and output",
    )
    add_workspace_option(noun)
    noun.add_argument(
        "--folder",
        metavar="DIR",
        type=Path,
        default=None,
        help="the folder whose workspace is served; one is created if it has none (only with --over-line)",
    )
    noun.add_argument(
        "--over-line",
        action="store_true",
        help="serve a window or a command on another computer, which started this over ssh",
    )
    noun.add_argument("--hold-key", choices=["line", "here"], default="", help=argparse.SUPPRESS)
    noun.add_argument("--keep", action="store_true", help=argparse.SUPPRESS)
    noun.set_defaults(
        run=run_host_command,
        work=serve_host_client_of_console,
        lasting=True,
        looks_on=True,
    )
