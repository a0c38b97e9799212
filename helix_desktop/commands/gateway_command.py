"""`gateway`: runs an address for agents that people already use, without a window."""

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
from helix_desktop.console import Console, print_text
from helix_desktop.errors import InvalidInput
from helix_desktop.gateway.registration import GatewayRegistration, GatewayRegistrations
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.provider_catalog import find_provider_key, is_provider_address
from helix_desktop.store.stored_workspace import StoredWorkspace

TURN = 0.0005  # A thread that parses a large body lets others run after this many seconds.
LARGE = (
    4 << 20
)  # Larger buffers, in bytes, grow in place, because copying 30 MB would delay other streams.
# The number of new objects that start a collection. With 700, collecting took half of
# the time.
YOUNG = 5_000
MIDDLE = 3  # Collections of new objects before one of older ones. With 10, streams froze for 95 ms.
NEVER = 1 << 30  # Old objects are collected only while the gateway is idle, never automatically.
KEPT = 32 << 20  # This many bytes of freed memory are kept for the next request bodies.


def run_gateway_command(arguments: Namespace) -> int:
    from helix_desktop.gateway import gateway_server, gateway_socket, gateway_workspaces

    sys.setswitchinterval(TURN)
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    glibc_memory.share_one_heap_between_threads(LARGE, KEPT)
    where = arguments.places
    check_upstream_address(arguments.upstream)
    if arguments.workspace:
        workspace_access.open_all_workspaces(where).find_known_workspace(arguments.workspace)
    if arguments.socket >= 0:  # The parent process has handed its listening socket to this process.
        sock = socket.socket(fileno=arguments.socket)
    else:
        port = gateway_socket.GATEWAY_PORT if arguments.port is None else arguments.port
        sock = gateway_socket.listen_on_loopback(port)
    told = sys.stdin.buffer if arguments.told else None
    if told is not None:
        registrations = GatewayRegistrations(
            *gateway_server.parse_registrations(told.readline() or b"[]")
        )
    else:
        registration = _build_manual_registration(arguments, where)
        registrations = GatewayRegistrations(registration)
        address = gateway_socket.agent_address(sock.getsockname()[1], registration.token)
        print_text(
            json.dumps({"address": address}) if arguments.json else f"listening on {address}",
            flush=True,
        )
        saved = arguments.workspace or gateway_workspaces.USUAL_WORKSPACE_NAME
        how = f"Use this address in place of the provider's: ANTHROPIC_BASE_URL={address}\n"
        print_text(
            f"{how}Conversations are saved in {saved}. To stop, press Ctrl+C.", file=sys.stderr
        )

    serve = partial(workspace_access.listen_for_commands, where=where)
    asyncio.run(
        gateway_server.serve_gateway(where, sock, registrations, arguments.workspace, serve, told)
    )
    return 0


def _build_manual_registration(arguments: Namespace, where: ProgramFolders) -> GatewayRegistration:
    from helix_desktop.gateway import gateway_server

    key, key_host = (
        asyncio.run(_provider_key_and_host(where, arguments.key)) if arguments.key else ("", "")
    )
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
    return (
        running_instance.LATER
        if bench is None
        else await remote_conversations.serve_gateway_process(bench, console)
    )


def check_upstream_address(address: str) -> None:
    if address and (
        not is_provider_address(address) or urlsplit(address).username or "?" in address
    ):
        raise InvalidInput(
            f"{address} is not the address of a provider.",
            remedy="For example: https://api.anthropic.com.",
        )
