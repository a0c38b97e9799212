"""`host`: serves a workspace to another program of ours over standard input and output.

A client of a workspace's host runs this at the process that has the workspace open. Run by itself,
as over SSH, it opens the workspace if nobody has.
"""

from __future__ import annotations

import asyncio
import importlib
from argparse import Namespace
from typing import TYPE_CHECKING

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import Subparsers, add_command, add_workspace_option
from helix_desktop.console import Console

if TYPE_CHECKING:
    from helix_desktop.store.stored_workspace import StoredWorkspace


async def serve_host_client_of_console(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    from helix_desktop import workbench

    # Imported in a thread, because an open window would freeze meanwhile.
    host_connection = await asyncio.to_thread(
        importlib.import_module, "helix_desktop.workspace_host.host_connection"
    )
    opens_it = workbench.workbench_of(workspace) is None
    async with workbench.use_workbench(workspace, arguments.places) as bench:
        serving = host_connection.serve_host_over_console(bench, console)
        if opens_it:
            return await workspace_access.serve_until_released(bench, serving)
        await serving
    return 0


def add_host_commands(nouns: Subparsers) -> None:
    noun = add_command(
        nouns,
        "host",
        "serve a workspace to another program of Helix Desktop over standard input and output",
    )
    add_workspace_option(noun)
    noun.set_defaults(
        run=workspace_access.run_on_workspace,
        work=serve_host_client_of_console,
        lasting=True,
        looks_on=True,
    )
