"""`mcp`: serves a workspace's cache to other programs, and signs in to the user's own servers."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import os
import secrets
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
    parse_port,
)
from helix_desktop.commands.workspace_access import run_on_workspace
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console, Terminal, print_text
from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.engine.facts import ModelRole, Received
from helix_desktop.errors import ActionRefused, InvalidInput, NotFound, format_things
from helix_desktop.processes.starter import open_web_page
from helix_desktop.program_folders import WRAP_ADDRESSES, ProgramFolders

if TYPE_CHECKING:
    from helix_desktop.engine.list_rows import ConversationListRow
    from helix_desktop.engine.session import Session
    from helix_desktop.engine.sha256_digest import Digest
    from helix_desktop.mcp_server.cache_operations import ServedWorkspace
    from helix_desktop.store.stored_workspace import StoredWorkspace

TOKEN = "HELIX_MCP_TOKEN"  # noqa: S105 -- the name of the variable
NEWEST_FACTS = 200  # Among so many of an agent's conversation is one that names its session.
# By workspace and server: the sessions of the Claude Code that started this server.
# After `/clear`, it has another one. Those of ended servers are not taken for the new
# one of an open server.
_sessions_by_server: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
_open_servers: set[str] = set()
# The number of new objects that start a garbage collection. With 700, imports are a
# seventh slower.
YOUNG = 50_000


def run_mcp_command(arguments: Namespace) -> int:
    """Serves the workspace's cache to the program that started this one, over its input and
    output, or with `--http` to any program that has the printed token.

    Another process that has the workspace open may do the work. It gets only the command line,
    so what is read from the environment here is added to it.
    """
    if arguments.workspace is None:
        raise InvalidInput("No workspace was specified. Use --workspace.")
    gc.set_threshold(YOUNG)
    if arguments.http is not None:
        # The token is sent over a private socket to the workspace's owner, so no
        # process list shows it.
        token = os.environ.get(TOKEN) or secrets.token_urlsafe(32)
        arguments.argv = arguments.argv + [f"--token={token}"]
        arguments.token = token
    else:
        # Which agent starts this. The addresses contain tokens, too.
        _take_from_environment(arguments, "session", "CLAUDE_CODE_SESSION_ID")
        _take_from_environment(arguments, "addresses", WRAP_ADDRESSES)
    workspace = workspace_access.find_chosen_workspace(arguments)
    workspace_access.open_all_workspaces(arguments.places).remove_interrupted_imports_and_writes()
    with Terminal() as terminal:
        if arguments.http is None:
            return asyncio.run(_serve_client_of_terminal(arguments, workspace.id, terminal))
        return asyncio.run(_serve_over_http(arguments, workspace.id, terminal))


def _take_from_environment(arguments: Namespace, option: str, variable: str) -> None:
    """Sets an option to the value of a variable, also for the process that serves instead."""
    value = os.environ.get(variable)
    if value:
        setattr(arguments, option, value)
        arguments.argv = arguments.argv + [f"--{option}={value}"]


async def _serve_client_of_terminal(arguments: Namespace, identity: str, terminal: Console) -> int:
    """Serves the client until it disconnects, whichever process has the workspace open."""
    from helix_desktop.mcp_server.client_line import ClientLine

    line = ClientLine(terminal, _can_be_called_again)
    tasks = OwnedTasks("MCP client")
    tasks.spawn_task(line.receive_from_client(), name="read from the MCP client")
    try:
        return await workspace_access.serve_guest_wherever_open(
            arguments, identity, line, line.prepare_for_next_process
        )
    finally:
        await tasks.aclose(limit=1)


def _can_be_called_again(tool_name: str) -> bool:
    """Whether a second call of this tool changes nothing and costs nothing."""
    from helix_desktop.mcp_server.offered_tools import OFFERS

    for offer in OFFERS:
        if offer.name == tool_name:
            return not (offer.changes_workspace or offer.asks_model)
    return False


async def _serve_over_http(arguments: Namespace, identity: str, terminal: Console) -> int:
    """Serves on one port and with one token, whichever process has the workspace open."""
    console = _HttpAddressConsole(terminal)

    async def keep_port() -> None:
        """Lets the next process listen on the same port, so that clients still find it."""
        if console.port:
            arguments.http = console.port
            arguments.argv = arguments.argv + [f"--http={console.port}"]

    return await workspace_access.serve_guest_wherever_open(arguments, identity, console, keep_port)


class _HttpAddressConsole:
    """Prints the address once, and remembers its port for the next process."""

    def __init__(self, terminal: Console) -> None:
        self._terminal = terminal
        self._printed: set[str] = set()
        self.port = 0  # 0 until the address is known.

    async def read_input(self) -> bytes:
        return await self._terminal.read_input()

    async def write_output(self, data: bytes) -> None:
        await self._terminal.write_output(data)

    async def print_line(self, text: str) -> None:
        if text.startswith("http://"):
            self.port = urlsplit(text).port or 0
        if text not in self._printed:
            self._printed.add(text)
            await self._terminal.print_line(text)

    async def print_error(self, sentence: str) -> None:
        await self._terminal.print_error(sentence)


async def serve_workspace_over_mcp(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Answers MCP requests about this workspace only, until the caller disconnects."""
    # Imported in threads, because this takes half a second and would freeze an open window.
    module_names = ["cache_mcp_server", "mcp_over_console"]
    if arguments.http is not None:
        module_names.append("mcp_over_http")
    for name in module_names:
        await asyncio.to_thread(importlib.import_module, f"helix_desktop.mcp_server.{name}")
    from helix_desktop.mcp_server import cache_mcp_server, mcp_over_console

    arguments.server = new_conversation_id()  # Conversations that begin later have greater ones.
    server = cache_mcp_server.build_cache_server(
        build_served_workspace(workspace, arguments.places, arguments)
    )
    if arguments.http is None:
        if arguments.session:
            _open_servers.add(arguments.server)
            _sessions_by_server[workspace.id][arguments.server] = {arguments.session}
        try:
            await mcp_over_console.serve_mcp_over_console(
                server, console.read_input, console.write_output
            )
        finally:
            _open_servers.discard(arguments.server)
            if _open_servers.isdisjoint(_sessions_by_server[workspace.id]):
                del _sessions_by_server[workspace.id]
        return 0
    from helix_desktop.mcp_server import mcp_over_http

    async def print_server_address(port: int) -> None:
        await console.print_line(f"http://{mcp_over_http.HOST}:{port}{mcp_over_http.PATH}")
        await console.print_line(f"Authorization: Bearer {arguments.token}")

    await mcp_over_http.serve_mcp_over_http(
        server, arguments.http, arguments.token, print_server_address
    )
    return 0


def build_served_workspace(
    workspace: StoredWorkspace, where: ProgramFolders, started_by: Namespace
) -> ServedWorkspace:
    """Builds what the server's tools work with: the workspace's stores, and functions for what
    needs a model, a list of tasks or an agent's conversation.
    """
    from helix_desktop import token_counting
    from helix_desktop.mcp_server.cache_operations import ServedWorkspace
    from helix_desktop.tools.regex_search import grep_entry_lines

    async def run_task_command(words: Sequence[str]) -> Any:
        from helix_desktop.resident.resident_client import CollectingConsole

        console = CollectingConsole()
        verb = words[0]
        argv = ["task", verb, "--workspace", workspace.id, "--json"]
        argv += words[1:]
        await workspace_access.run_command_of_caller(workspace, where, None, None, argv, console)
        answer = "\n".join(console.answers)
        return json.loads(answer)

    token_counter = token_counting.shared_token_counter()
    compact = partial(_compact_with_fast_model, workspace, where)
    use_agent_session = partial(_use_agent_session, workspace, where, started_by)
    return ServedWorkspace(
        workspace.name,
        workspace.cache,
        workspace.index,
        workspace.journal,
        token_counter,
        grep_entry_lines,
        compact,
        run_task_command,
        use_agent_session,
    )


@asynccontextmanager
async def _use_agent_session(
    workspace: StoredWorkspace, where: ProgramFolders, started_by: Namespace, client: str
) -> AsyncIterator[Session]:
    """Opens the conversation of the agent that calls this server, with the gateway's records.

    Which one it is, is told best by the addresses that `wrap` gave to this agent alone, then by the
    session that it had when it started this server (`started_by`), and else by what the agent calls
    itself, such as codex-mcp-client (`client`). Of several, the newest is meant.
    """
    from helix_desktop import workbench

    async with workbench.use_workbench(workspace, where) as bench:
        rows = [row for row in bench.list_conversations() if _is_agents_own(row)]
        addresses = started_by.addresses.split()
        if addresses:
            candidates = _rows_registered_at(where, addresses, rows)
        else:
            rows_of_name = [row for row in rows if _names_agent(client, row.agent)]
            own_row = None
            if started_by.session:
                own_row = await _find_row_of_session(workspace, started_by.server, rows_of_name)
            if own_row is not None:
                candidates = [own_row]
            else:
                # Without an agent of this name, the newest of any agent is meant.
                candidates = rows_of_name or rows
        if not candidates:
            raise NotFound(
                "This agent has not worked in this workspace.",
                remedy="Start an agent with helix-desktop wrap.",
            )
        yield await bench.open_session(candidates[0].id)


def _is_agents_own(row: ConversationListRow) -> bool:
    return bool(row.agent) and not row.parent and not row.trashed


def _names_agent(client: str, agent: str) -> bool:
    return agent.casefold().replace(" ", "-") in client.casefold()


def _rows_registered_at(
    where: ProgramFolders, addresses: Sequence[str], rows: Sequence[ConversationListRow]
) -> list[ConversationListRow]:
    """Returns the conversations of these addresses. After `/clear`, the session has
    another name, but the addresses are the same.
    """
    from helix_desktop.gateway import registration

    registered = registration.RegisteredConversations(where.run / registration.CONVERSATIONS_FILE)
    conversations: set[str] = set()
    for address in addresses:
        token = address.rpartition("/")[2]
        conversations.update(registered.find_conversations(token))
    return [row for row in rows if row.id in conversations]


async def _find_row_of_session(
    workspace: StoredWorkspace, server: str, rows: Sequence[ConversationListRow]
) -> ConversationListRow | None:
    """Returns the conversation of the Claude Code that started this server, and remembers
    its sessions.
    """
    other_servers = {**_sessions_by_server.get(workspace.id, {})}
    own_sessions = other_servers.pop(server, set())
    sessions_of_others = set().union(*other_servers.values())
    is_only_server_open = _open_servers.isdisjoint(other_servers)
    for row in rows:
        sessions = await _sessions_named_in(workspace, row.id)
        # If no other Claude Code is open, a later session that none began with is this
        # one's after `/clear`.
        is_later = row.id > server and is_only_server_open
        is_next = is_later and sessions.isdisjoint(sessions_of_others)
        if is_next or not sessions.isdisjoint(own_sessions):
            own_sessions |= sessions
            return row
    return None


async def _sessions_named_in(workspace: StoredWorkspace, conversation: str) -> set[str]:
    """Returns the names of the agent's sessions that the newest facts of a conversation mention."""
    stored = await workspace.journal.find_conversation(conversation)
    first_seq = max(0, stored.last_seq - NEWEST_FACTS)
    newest_facts = await workspace.journal.read_facts(conversation, first_seq)
    sessions: set[str] = set()
    for recorded in newest_facts:
        if isinstance(recorded.fact, Received):
            sessions.add(recorded.fact.session)
    return sessions


async def _compact_with_fast_model(
    workspace: StoredWorkspace, where: ProgramFolders, digest: Digest, keep: str
) -> str:
    """Lets the workspace's fast model shorten an entry, or its main model if it has no fast
    one. `keep` says what the shortened text must still contain.
    """
    from helix_desktop import workbench
    from helix_desktop.engine import ask_model, content_recall

    async with workbench.use_workbench(workspace, where) as bench:
        client = bench.models.client_for_role(ModelRole.FAST)
        if client is None:
            client = bench.models.client_for_role(ModelRole.MAIN)
        if client is None:
            raise NotFound("This workspace has no model that can shorten the content.")
        asking = ask_model.ModelInquiry(lambda _: asyncio.sleep(0), lambda: None)
        return await content_recall.compact_entry(workspace.cache, client, digest.hex, keep, asking)


# --- Signing in to an MCP server ---


async def sign_in_to_server(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Signs in within the process that has the workspace open, so that its running
    server uses the new token.
    """
    from helix_desktop import workbench
    from helix_desktop.mcp_client.hosted_server import McpConnectionState

    name = arguments.server

    async def print_sign_in_address(address: str) -> None:
        await console.print_error(
            f"Sign in on this page, which also opens in your browser: {address}"
        )
        await asyncio.to_thread(open_web_page, address)

    async with workbench.use_workbench(workspace, arguments.places) as bench:
        status = await bench.mcp_servers.sign_in_at_server(name, print_sign_in_address)
    if status.state is not McpConnectionState.READY:
        raise ActionRefused(
            f"{name} is not ready. {status.why}".strip(),
            remedy="Try again, or check the server's settings.",
        )
    line = f"{name} is ready, with {format_things(status.tools, 'tool', 'tools')}."
    return await workspace_access.print_result(
        arguments, console, {"server": name, "tools": status.tools}, line
    )


# --- Adding this workspace's MCP server to another program's settings ---


def install_in_client_settings(arguments: Namespace) -> int:
    """Prints what to add to each program's settings so that it uses this workspace, and with
    `--write` adds it to one program's file.
    """
    from helix_desktop.mcp_server import client_configuration
    from helix_desktop.workbench import conversation_relay

    if arguments.write and not arguments.client:
        raise InvalidInput(
            "No program was specified. Use --client to say which program's file should be written."
        )
    workspace = workspace_access.find_chosen_workspace(arguments)
    folder = Path.cwd()
    if workspace.settings.roots:
        folder = Path(workspace.settings.roots[0])
    command = conversation_relay.mcp_server_command(workspace.id, arguments.places.data)
    clients: Sequence[str] = client_configuration.CLIENTS
    if arguments.client:
        clients = [arguments.client]
    snippets: list[client_configuration.ClientSnippet] = []
    for client in clients:
        snippet = client_configuration.build_client_snippet(
            client, command, workspace.id, folder=folder, home=Path.home()
        )
        snippets.append(snippet)
    values = [{**asdict(snippet), "file": str(snippet.file)} for snippet in snippets]
    lines = [f"{snippet.client}: {snippet.file}\n\n{snippet.text}\n" for snippet in snippets]
    asyncio.run(workspace_access.print_result(arguments, Terminal(), values, *lines))
    if not arguments.write:
        return 0
    snippet_to_write = snippets[0]
    if client_configuration.add_snippet_if_missing(snippet_to_write):
        sentence = f"{snippet_to_write.file} written."
    else:
        sentence = f"{snippet_to_write.file} already has it."
    print_text(sentence, file=sys.stderr)
    return 0


def add_mcp_commands(nouns: Subparsers) -> None:
    """Declares `mcp` and its verbs. The options without help are those that `run_mcp_command`
    adds.
    """
    noun = add_command(nouns, "mcp", "serve a workspace's cache to other programs over MCP")
    noun.add_argument(
        "--workspace", "-w", metavar="W", default=None, help="the workspace's name or ID"
    )
    noun.add_argument(
        "--http",
        metavar="PORT",
        type=parse_port,
        default=None,
        help="listen on this local port instead of using stdio; 0 picks a free port",
    )
    noun.add_argument("--token", metavar="T", default="", help=argparse.SUPPRESS)
    noun.add_argument("--session", metavar="S", default="", help=argparse.SUPPRESS)
    noun.add_argument("--addresses", metavar="A", default="", help=argparse.SUPPRESS)
    noun.set_defaults(run=run_mcp_command, work=serve_workspace_over_mcp, lasting=True, verb="")
    verbs = noun.add_subparsers(required=False, metavar="VERB")
    _add_mcp_install(verbs)
    _add_mcp_sign_in(verbs)


def _add_mcp_install(verbs: Subparsers) -> None:
    """Declares `mcp install`."""
    from helix_desktop.mcp_server.client_configuration import CLIENTS

    command = add_command(verbs, "install", "show or write the configuration for other programs")
    add_workspace_option(command)
    command.add_argument(
        "--client",
        choices=CLIENTS,
        default=None,
        help="show the configuration for this program only",
    )
    command.add_argument(
        "--write",
        action="store_true",
        help="write the configuration to the program's file: in the workspace's folder, or for codex in its own settings, for all folders",
    )
    add_json_option(command)
    command.set_defaults(run=install_in_client_settings, work=None)


def _add_mcp_sign_in(verbs: Subparsers) -> None:
    """Declares `mcp sign-in`."""
    command = add_command(
        verbs, "sign-in", "sign in to one of the workspace's MCP servers, in the browser"
    )
    add_workspace_option(command)
    command.add_argument(
        "server", metavar="SERVER", help="the server's name in the workspace's settings"
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=sign_in_to_server, counts=False, lasting=True)
