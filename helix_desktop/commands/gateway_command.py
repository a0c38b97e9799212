"""`gateway`: runs an address for agents that people already use, without a window."""

import argparse
import asyncio
import gc
import json
import socket
import sys
from argparse import Namespace
from functools import partial
from urllib.parse import urlsplit

from helix_desktop import glibc_memory, running_instance
from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    parse_port,
)
from helix_desktop.console import Console, print_text
from helix_desktop.errors import InvalidInput
from helix_desktop.gateway.agent_upstreams import check_upstream_address
from helix_desktop.gateway.registration import GatewayRegistration, GatewayRegistrations
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.provider_catalog import find_provider_key
from helix_desktop.store.stored_workspace import StoredWorkspace

TURN = 0.0005  # A thread that parses a large body lets others run after this many seconds.
# Larger buffers, in bytes, grow in place, because copying 30 MB would delay other streams.
LARGE = 4 << 20
# The number of new objects that start a collection. With 700, collecting took half of
# the time.
YOUNG = 5_000
MIDDLE = 3  # Collections of new objects before one of older ones. With 10, streams froze for 95 ms.
NEVER = 1 << 30  # Old objects are collected only while the gateway is idle, never automatically.
KEPT = 32 << 20  # This many bytes of freed memory are kept for the next request bodies.


def run_gateway_command(arguments: Namespace) -> int:
    """Serves the gateway until Ctrl+C, or until the process that started it ends it.

    A registration is a secret address for one agent, with what the gateway does for it. Another
    process of this program that starts the gateway writes the registrations to its input
    (`--told`). A user who starts it in a terminal gets one, and reads its address.
    """
    from helix_desktop.gateway import gateway_server

    _tune_for_large_requests()
    where = arguments.places
    check_upstream_address(arguments.upstream)
    if arguments.workspace:
        # A workspace that does not exist is said before anything starts.
        workspace_access.open_all_workspaces(where).find_known_workspace(arguments.workspace)
    sock = _open_listening_socket(arguments)
    told = None
    if arguments.told:
        told = sys.stdin.buffer
        first_line = told.readline() or b"[]"
        registrations = GatewayRegistrations(*gateway_server.parse_registrations(first_line))
    else:
        registration = _build_manual_registration(arguments, where)
        registrations = GatewayRegistrations(registration)
        _print_address(arguments, port=sock.getsockname()[1], token=registration.token)

    serve = partial(workspace_access.listen_for_commands, where=where)
    asyncio.run(
        gateway_server.serve_gateway(where, sock, registrations, arguments.workspace, serve, told)
    )
    return 0


def _tune_for_large_requests() -> None:
    """Sets how this process changes threads, collects objects and takes memory, so that one
    agent's large request does not hold up the answers to others.
    """
    sys.setswitchinterval(TURN)
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    glibc_memory.share_one_heap_between_threads(LARGE, KEPT)


def _open_listening_socket(arguments: Namespace) -> socket.socket:
    from helix_desktop.gateway import gateway_socket

    if arguments.socket >= 0:  # The parent process has handed its listening socket to this process.
        return socket.socket(fileno=arguments.socket)
    if arguments.port is None:
        return gateway_socket.listen_on_loopback(gateway_socket.GATEWAY_PORT)
    return gateway_socket.listen_on_loopback(arguments.port)


def _print_address(arguments: Namespace, *, port: int, token: str) -> None:
    """Prints the address for an agent, and for a person how to use it."""
    from helix_desktop.gateway import gateway_socket, gateway_workspaces

    address = gateway_socket.agent_address(port, token)
    if arguments.json:
        print_text(json.dumps({"address": address}), flush=True)
    else:
        print_text(f"listening on {address}", flush=True)
    workspace = arguments.workspace or gateway_workspaces.USUAL_WORKSPACE_NAME
    how_to_use = f"Use this address in place of the provider's: ANTHROPIC_BASE_URL={address}"
    print_text(
        f"{how_to_use}\nConversations are saved in {workspace}. To stop, press Ctrl+C.",
        file=sys.stderr,
    )


def _build_manual_registration(arguments: Namespace, where: ProgramFolders) -> GatewayRegistration:
    """Builds the registration for whatever agent the user gives the address to."""
    from helix_desktop.gateway import gateway_server

    key = ""
    key_host = ""
    if arguments.key:
        key, key_host = asyncio.run(_provider_key_and_host(where, arguments.key))
    return GatewayRegistration(
        gateway_server.read_or_create_token(where),
        arguments.upstream,
        folds=not arguments.no_folds,
        folds_plans=arguments.fold_plans,
        key=key,
        key_host=key_host,
        chooses_workspace=not arguments.workspace,
    )


async def _provider_key_and_host(where: ProgramFolders, provider: str) -> tuple[str, str]:
    """Returns a provider's key, and the only host to which it may be sent."""
    from helix_desktop.extensions.extension_loading import load_extensions_once

    await load_extensions_once(where)  # One may bring the provider that is meant.
    config = await asyncio.to_thread(
        ConfiguredProviders(where.providers_file).find_provider, provider
    )
    key = await find_provider_key(config, workspace_access.open_secrets(where))
    if not key:
        raise InvalidInput(
            f"There is no stored key for {provider}.",
            remedy=f"To store a key, run: helix-desktop provider add {provider} --key.",
        )
    return key, urlsplit(config.base_url).netloc.lower()


async def serve_gateway_or_release_workspace(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Answers a gateway that found the workspace open in this process: works as its
    engine, or closes the workspace.
    """
    from helix_desktop import workbench
    from helix_desktop.gateway import gateway_workspaces, remote_conversations

    if arguments.release:
        return gateway_workspaces.close_for_other_process(workspace.id)
    bench = workbench.workbench_of(workspace)
    if bench is None:
        return running_instance.LATER
    return await remote_conversations.serve_gateway_process(bench, console)


def add_gateway_commands(nouns: Subparsers) -> None:
    """Declares `gateway`, which has no verbs. The options without help are for other processes
    of this program, which start a gateway or ask one to work in their place.
    """
    noun = add_command(
        nouns,
        "gateway",
        "run a local server that shortens the requests of other agents; what it leaves out can be recalled",
    )
    noun.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        default="",
        help="the workspace for the agents' conversations (default: Connected agents)",
    )
    noun.add_argument(
        "--port",
        metavar="N",
        type=parse_port,
        default=None,
        help="the port on 127.0.0.1 (default: 4356; 0 picks a free port)",
    )
    noun.add_argument(
        "--upstream",
        metavar="URL",
        default="",
        help="send all requests to this address instead of each protocol's usual provider",
    )
    noun.add_argument(
        "--no-folds", action="store_true", help="only record requests, and pass them on unchanged"
    )
    noun.add_argument(
        "--fold-plans",
        action="store_true",
        help="shorten (fold) old messages even if an agent is signed in with a subscription",
    )
    noun.add_argument(
        "--key",
        metavar="PROVIDER",
        default="",
        help="use the stored key of this provider if an agent sends no key",
    )
    noun.add_argument("--socket", metavar="N", type=int, default=-1, help=argparse.SUPPRESS)
    noun.add_argument("--told", action="store_true", help=argparse.SUPPRESS)
    noun.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    noun.add_argument("--release", action="store_true", help=argparse.SUPPRESS)
    add_json_option(noun)
    noun.set_defaults(
        run=run_gateway_command, work=serve_gateway_or_release_workspace, lasting=True
    )
