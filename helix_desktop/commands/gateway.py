"""`gateway`: an address for agents people already use, without a window."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from helix_desktop import heap, places
from helix_desktop.errors import WrongUse

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.console import Console
    from helix_desktop.gateway.opening import Serving
    from helix_desktop.gateway.registration import Registration
    from helix_desktop.store.workspace import Workspace

TURN = 0.0005  # seconds after which a thread that reads a large body lets other clients' streams go on
LARGE = 4 << 20  # bytes from which on a buffer grows where it is: copying a body of 30 MB would hold the streams up
KEPT = 32 << 20  # bytes that are free and stay, so that a usual body does not ask the system for its pages anew


def add(nouns: Subparsers) -> None:
    gateway = nouns.add_parser(
        "gateway", help="run a local server that makes the requests of other agents smaller, with recall and undo"
    )
    gateway.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        default="",
        help="the workspace for the agents' conversations (default: Connected agents)",
    )
    gateway.add_argument(
        "--port", type=int, metavar="N", help="the port on 127.0.0.1 (default: 4356; 0 picks a free port)"
    )
    gateway.add_argument(
        "--upstream",
        metavar="URL",
        default="",
        help="send all requests to this address instead of each protocol's usual provider",
    )
    gateway.add_argument("--no-folds", action="store_true", help="only record requests, and pass them on unchanged")
    gateway.add_argument(
        "--fold-plans", action="store_true", help="fold even if an agent is signed in with a subscription"
    )
    gateway.add_argument(
        "--key", metavar="PROVIDER", default="", help="use the stored key of this provider if an agent sends no key"
    )
    gateway.add_argument("--socket", type=int, default=-1, help=argparse.SUPPRESS)
    gateway.add_argument("--told", action="store_true", help=argparse.SUPPRESS)
    gateway.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    gateway.add_argument("--release", action="store_true", help=argparse.SUPPRESS)
    gateway.set_defaults(run=run, work=work, lasting=True)


def run(arguments: argparse.Namespace) -> int:
    from helix_desktop.commands import open_workspace
    from helix_desktop.gateway import listening, serving
    from helix_desktop.gateway.registration import Registrations

    sys.setswitchinterval(TURN)
    heap.share(LARGE, KEPT)
    where = places.find(arguments.home)
    _check(arguments.upstream)
    if arguments.workspace:
        open_workspace.all_of(where).find(arguments.workspace)
    if arguments.socket >= 0:  # it listens already, in whoever started this
        sock = socket.socket(fileno=arguments.socket)
    else:
        sock = listening.listen_on(listening.PORT if arguments.port is None else arguments.port)
    told = sys.stdin.buffer if arguments.told else None
    if told is not None:
        registrations = Registrations(*serving.read_registrations(told.readline() or b"[]"))
    else:
        registration = _registration(arguments, where)
        registrations = Registrations(registration)
        sys.stdout.write(f"listening on {listening.agent_address(sock.getsockname()[1], registration.token)}\n")
        sys.stdout.flush()

    async def serve(workspace: Workspace) -> Serving | None:
        return await open_workspace.serve(workspace, where)

    asyncio.run(serving.run(where, sock, registrations, arguments.workspace, serve, told))
    return 0


def _registration(arguments: argparse.Namespace, where: places.Places) -> Registration:
    """The one address of a gateway that was started by hand."""
    from helix_desktop.gateway import serving
    from helix_desktop.gateway.registration import Registration

    key, key_host = asyncio.run(_key(where, arguments.key)) if arguments.key else ("", "")
    return Registration(
        serving.token_of(where),
        arguments.upstream,
        folds=not arguments.no_folds,
        folds_plans=arguments.fold_plans,
        key=key,
        key_host=key_host,
    )


async def _key(where: places.Places, provider: str) -> tuple[str, str]:
    """The key of a provider, and the host of its address, to which alone it goes."""
    from helix_desktop.commands import open_workspace
    from helix_desktop.providers.catalog import key_for
    from helix_desktop.providers.configured import Configured

    config = await asyncio.to_thread(Configured(where.providers).get, provider)
    key = await key_for(config, open_workspace.secrets_of(where))
    if not key:
        raise WrongUse(
            f"There is no stored key for {provider}.",
            remedy=f"To store a key, run: helix-desktop provider add {provider} --key.",
        )
    return key, urlsplit(config.base_url).netloc.lower()


async def work(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    """Asked of the program that has the workspace open: be the engine of a gateway, or let the workspace go."""
    from helix_desktop import workbench
    from helix_desktop.gateway import far_room, opening

    if arguments.release:
        return opening.let_go(workspace.id)
    bench = workbench.of(workspace)
    return 1 if bench is None else await far_room.answer(bench, console)


def _check(upstream: str) -> None:
    parts = urlsplit(upstream)
    if upstream and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query):
        raise WrongUse(
            f"{upstream} is not the address of a provider.", remedy="For example: https://api.anthropic.com."
        )
