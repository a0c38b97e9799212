"""`fleet`: what the workers of a workspace do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from helix_desktop.commands import add_json_option, add_workspace_argument, workspace_access

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.console import Console
    from helix_desktop.store.stored_workspace import StoredWorkspace


def add_fleet_command(nouns: Subparsers) -> None:
    noun = nouns.add_parser("fleet", help="show what the workers of a workspace do")
    verbs = noun.add_subparsers(metavar="VERB", required=True)
    status = verbs.add_parser("status", help="show how many tasks wait, run and ended, and on which workers they run")
    add_workspace_argument(status)
    add_json_option(status)
    status.set_defaults(run=workspace_access.run_on_workspace, work=_print_fleet_status, counts=False)


async def _print_fleet_status(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.store import fleet_task_files

    async with fleet_task_files.open_fleet_task_list(workspace) as tasks:
        states, workers = await tasks.count_fleet_tasks()
        newest = await tasks.list_fleet_tasks(most=1000)
    cost = sum(task.result.cost for task in newest)
    if arguments.json:
        found = {"workspace": workspace.id, "tasks": states, "workers": workers, "cost_of_newest_1000": cost}
        await workspace_access.print_json(console, found)
        return 0
    await console.print_line(", ".join(f"{count} {state}" for state, count in states.items()))
    for worker, count in sorted(workers.items()):
        await console.print_line(f"{worker}: {count}")
    return 0
