"""`mcp`: a workspace's cache as an MCP server for other programs, their configuration for it, and signing in to the user's own."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import places
from helix_desktop.commands import as_json, on_workspace, open_workspace
from helix_desktop.console import Console
from helix_desktop.engine.facts import ModelRole
from helix_desktop.errors import NotThere, Refused, WrongUse
from helix_desktop.processes.starter import find_program, open_page, own_program

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.context_server.shelf import CatalogueRow, Shelf
    from helix_desktop.engine.digest import Digest
    from helix_desktop.engine.ports import Hit
    from helix_desktop.store.workspace import Workspace
    from helix_desktop.workbench.servers import Servers

TOKEN = "HELIX_MCP_TOKEN"  # noqa: S105 -- the name of the variable


def add(nouns: Subparsers) -> None:
    mcp = nouns.add_parser("mcp", help="serve a workspace's cache to other programs over MCP")
    mcp.add_argument("--workspace", "-w", metavar="W", help="the workspace's name or ID")
    mcp.add_argument(
        "--http",
        type=_port,
        metavar="PORT",
        help="listen on this local port instead of using stdio; 0 picks a free port",
    )
    mcp.set_defaults(run=run, work=serve, lasting=True, verb="")
    mcp.add_argument("--token", default="", help=argparse.SUPPRESS)
    verbs = mcp.add_subparsers(metavar="VERB")
    one = verbs.add_parser("install", help="show or write the configuration for other programs")
    on_workspace(one)
    as_json(one)
    one.add_argument(
        "--client",
        choices=("claude-code", "cursor", "vscode", "goose"),
        help="show the configuration for this program only",
    )
    one.add_argument(
        "--write", action="store_true", help="write the configuration to the program's file in the workspace's folder"
    )
    one.set_defaults(run=install, work=None)
    one = verbs.add_parser("sign-in", help="sign in to one of the workspace's MCP servers, in the browser")
    on_workspace(one)
    as_json(one)
    one.add_argument("server", metavar="SERVER", help="the server's name in the workspace's settings")
    one.set_defaults(run=open_workspace.run, work=sign_in, lasting=True, counts=False)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    if arguments.workspace is None:
        raise WrongUse("No workspace was specified. Use --workspace.")
    if arguments.http is not None:
        # The token goes to the owner in the command line over a private socket, never onto a process list.
        token = os.environ.get(TOKEN) or secrets.token_urlsafe(32)
        arguments.argv = [*arguments.argv, f"--token={token}"]
        arguments.token = token
    return open_workspace.run(arguments)


async def serve(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    """Answer MCP requests about this workspace and no other, until the caller goes away."""
    for name in ("server", "stdio", "http")[
        : 2 if arguments.http is None else 3
    ]:  # half a second, and a window may be open
        await asyncio.to_thread(importlib.import_module, f"helix_desktop.context_server.{name}")
    from helix_desktop.context_server import server, stdio

    shelf = shelf_of(workspace, arguments.places)
    if arguments.http is None:
        await stdio.serve(server.build(shelf), console.read, console.write)
        return 0
    from helix_desktop.context_server import http

    async def started(port: int) -> None:
        await console.say(f"http://{http.HOST}:{port}{http.PATH}")
        await console.say(f"Authorization: Bearer {arguments.token}")

    await http.serve(server.build(shelf), arguments.http, arguments.token, started)
    return 0


def shelf_of(workspace: Workspace, where: places.Places) -> Shelf:
    """A workspace as the server needs it."""
    from helix_desktop import tokens
    from helix_desktop.context_server.shelf import Shelf
    from helix_desktop.tools.recall import matching_lines

    async def compact(digest: Digest, keep: str) -> str:
        return await _compact(workspace, where, digest, keep)

    return Shelf(
        workspace.name,
        workspace.cache,
        _Catalogue(workspace),
        workspace.journal,
        tokens.Counter(),
        matching_lines,
        compact,
    )


class _Catalogue:
    """The workspace's index, as the server needs it."""

    def __init__(self, workspace: Workspace) -> None:
        self._index = workspace.index

    async def search(self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False) -> Sequence[Hit]:
        await self._index.caught_up()
        return await self._index.search(query, tool=tool, limit=limit, entries_only=entries_only)

    async def listed(self, *, tool: str, limit: int) -> tuple[Sequence[CatalogueRow], int]:
        from helix_desktop.engine.catalogue import Filter, Sort

        await self._index.caught_up()
        chosen = Filter(tool=tool)
        rows = await self._index.entries(chosen, sort=Sort.TIME, descending=True, limit=limit)
        return rows, await self._index.count(chosen)

    async def figures(self) -> dict[str, int]:
        await self._index.caught_up()
        return (await self._index.stats()).named()


async def _compact(workspace: Workspace, where: places.Places, digest: Digest, keep: str) -> str:
    from helix_desktop import workbench
    from helix_desktop.engine import recall

    bench = workbench.of(workspace)
    if bench is None:
        async with workbench.alone(workspace, where) as opened:
            client = opened.models.client(ModelRole.FAST) or opened.models.client(ModelRole.MAIN)
            if client is None:
                raise NotThere("This workspace has no model that can shorten the content.")
            return await recall.compact(workspace.cache, client, digest.hex, keep, lambda _: None)
    client = bench.models.client(ModelRole.FAST) or bench.models.client(ModelRole.MAIN)
    if client is None:
        raise NotThere("This workspace has no model that can shorten the content.")
    return await recall.compact(workspace.cache, client, digest.hex, keep, lambda _: None)


# --- sign-in ---------------------------------------------------------------------------------------------------------


async def sign_in(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    """Through the process that has the workspace open, so that its server goes on with the token."""
    from helix_desktop import workbench

    bench = workbench.of(workspace)
    if bench is not None:
        return await _sign_in(bench.servers, arguments, console)
    async with workbench.alone(workspace, arguments.places) as opened:
        return await _sign_in(opened.servers, arguments, console)


async def _sign_in(servers: Servers, arguments: argparse.Namespace, console: Console) -> int:
    from helix_desktop.mcp_host.server import State

    name = arguments.server

    async def page(address: str) -> None:
        await console.complain(f"Sign in on this page, which also opens in your browser: {address}")
        await asyncio.to_thread(open_page, address)

    status = await servers.sign_in(name, page)
    if status.state is not State.READY:
        raise Refused(f"{name} is not ready. {status.why}".strip(), remedy="Try again, or check the server's settings.")
    if arguments.json:
        await open_workspace.say_json(console, {"server": name, "tools": status.tools})
    else:
        await console.say(f"{name} is ready, with {status.tools} tools.")
    return 0


# --- install ---------------------------------------------------------------------------------------------------------


def install(arguments: argparse.Namespace) -> int:
    from helix_desktop.context_server import clients

    if arguments.write and not arguments.client:
        raise WrongUse("No program was specified. Use --client to say which program's file should be written.")
    where = places.find(arguments.home)
    known = open_workspace.all_of(where).find(arguments.workspace)
    folder = Path(known.settings.roots[0]) if known.settings.roots else Path.cwd()
    command = [*_program(), *(["--home", str(where.data)] if arguments.home or os.environ.get("HELIX_HOME") else [])]
    command += ["mcp", "--workspace", known.id]
    wanted = [arguments.client] if arguments.client else clients.CLIENTS
    found = [clients.snippet(each, command, "helix-context-cache", folder=folder, home=Path.home()) for each in wanted]
    if arguments.json:
        print(_as_json(found))
    for one in found if not arguments.json else ():
        print(f"{one.client}: {one.file}\n\n{one.text}\n")
    if arguments.write:
        written = clients.write(found[0])
        print(f"{found[0].file} {'written' if written else 'already has it'}.", file=sys.stderr)
    return 0


def _as_json(found: Sequence[object]) -> str:
    import dataclasses
    import json

    return json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False, indent=1, default=str)  # type: ignore[call-overload]


def _program() -> list[str]:
    """How other programs start us: by our command where it is on the path, else by ourselves."""
    command = find_program("helix-desktop")
    return [command] if command else own_program()
