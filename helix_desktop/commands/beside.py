"""How a command reaches a workspace: it opens it, or, beside a running program that has it open, is run there.

A command's work is written once, as a coroutine on the open workspace and a console. The caller keeps its own files:
it reads `source` and writes `target` itself, and the work sees both as the console's input and output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop import commands, places
from helix_desktop.console import Console, Terminal
from helix_desktop.errors import Refused, StoreBusy

if TYPE_CHECKING:
    from helix_desktop.instance import Owner
    from helix_desktop.store.workspace import Workspace, Workspaces

Work = Callable[[argparse.Namespace, "Workspace", Console], Awaitable[int]]
PATIENCE = 5.0  # seconds: another command may hold the workspace for a moment


def run(arguments: argparse.Namespace, *, source: Path | None = None, target: Path | None = None) -> int:
    """Do `arguments.work` on the workspace the arguments name. The exit code."""
    with Terminal(source=source, target=target) as console:
        code = asyncio.run(_reach(arguments, console))
        if code and target is not None:
            raise SystemExit(code)  # the target is not put in its place
    return code


async def _reach(arguments: argparse.Namespace, console: Console) -> int:
    from helix_desktop import instance

    where = places.find(arguments.home)
    workspaces = all_of(where)
    known = workspaces.find(arguments.workspace)
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        try:
            workspace = await workspaces.open(known.id)
        except StoreBusy:
            if (wire := await instance.reach(where.run, known.id)) is not None:
                return await instance.hand_over(wire, arguments.argv, console)
            if loop.time() > until:
                raise
            await asyncio.sleep(0.05)
        else:
            try:
                return int(await arguments.work(arguments, workspace, console))
            finally:
                await workspace.aclose()


def all_of(where: places.Places) -> Workspaces:
    from helix_desktop import tokens
    from helix_desktop.store.workspace import Workspaces

    return Workspaces(where.workspaces, count=tokens.Counter().count)


async def serve(workspace: Workspace, run_folder: Path) -> Owner:
    """Answer commands about `workspace` for as long as this process has it open; close what is returned first."""
    from helix_desktop import instance

    return await instance.listen(run_folder, workspace.id, partial(answer, workspace))


async def answer(workspace: Workspace, argv: list[str], console: Console) -> int:
    """Run a caller's command line on the open workspace. It is this workspace, whatever the arguments name."""
    try:
        arguments = commands.parser().parse_args(argv)
    except SystemExit as ended:
        return int(ended.code or 0)
    if not hasattr(arguments, "work"):
        raise Refused("This command is not one that another program is asked for.")
    return int(await arguments.work(arguments, workspace, console))


async def say_json(console: Console, value: Any) -> None:
    await console.say(json.dumps(value, ensure_ascii=False, indent=1))
