"""`conversation restore`: writes a conversation in an agent's own format, so that the
agent can resume it.
"""

import argparse
import asyncio
import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_conversation_argument,
    add_json_option,
    add_workspace_option,
    parse_ordinal,
)
from helix_desktop.commands.workspace_access import find_conversation_by_prefix, print_result
from helix_desktop.console import Console
from helix_desktop.engine.facts import Recorded
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import conversation_restoring as restoring
from helix_desktop.histories.conversation_restoring import RestoredSession, RestoreRequest
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.store.stored_workspace import StoredWorkspace

AGENTS = tuple(AGENTS_TO_CONTINUE_IN)
HOW_TO_FOLD_BETTER = "With `--fold`, this workspace's model summarizes older parts (your provider may charge for this). With `--mcp`, the agent can read the originals."
_VARIABLES = (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "XDG_DATA_HOME",
    "GEMINI_CLI_HOME",
    "PI_CODING_AGENT_DIR",
)


def run_conversation_restore(arguments: Namespace) -> int:
    """Makes paths absolute, because another process in another folder may do the work."""
    agent_or_file = arguments.to
    if agent_or_file and agent_or_file not in AGENTS:
        is_path = bool({".", "/", os.sep}.intersection(agent_or_file))
        if not is_path:
            raise InvalidInput(f"There is no agent named {agent_or_file} to continue in.", remedy=f"Choose {', '.join(AGENTS)}, or a file such as ./{agent_or_file}.")  # fmt: skip
        arguments.to = str(Path(agent_or_file).absolute())
        arguments.argv = workspace_access.insert_options(arguments.argv, f"--to={arguments.to}")
    if arguments.agent_places is None:
        arguments.agent_places = [str(Path.home())]
        arguments.agent_places += [os.environ.get(name, "") for name in _VARIABLES]
        arguments.argv = workspace_access.insert_options(
            arguments.argv, "--agent-places", *arguments.agent_places
        )
    return workspace_access.run_on_workspace(arguments)


async def write_conversation_for_agent(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Writes the conversation as a session of an agent or into a file, and says how to continue."""
    from helix_desktop import token_counting, workbench
    from helix_desktop.workbench.conversation_relay import ConversationRelay

    conversation = await find_conversation_by_prefix(workspace, arguments.conversation)
    facts = await workspace.journal.read_facts(conversation)
    agent = _choose_agent(arguments.to, facts)
    places = _places_of_agents(arguments.agent_places)
    folder = next(iter(workspace.settings.roots), str(places.home))
    open_workbench = partial(workbench.use_workbench, workspace, arguments.places)
    relay = ConversationRelay(workspace, token_counting.shared_token_counter(), open_workbench)
    request = RestoreRequest(
        conversation, agent, folder, arguments.before_compaction, arguments.fold, arguments.window
    )
    restored = await relay.prepare_session_for_agent(request, may_ask_model=arguments.fold)

    lines: list[str] = []
    if arguments.mcp:
        line = await asyncio.to_thread(relay.add_mcp_server, agent, Path(folder), places)
        lines.append(line)
    is_to_file = _names_file(arguments.to)
    if is_to_file:
        file = Path(arguments.to)
        # The files of sub-agents belong into a folder of the agent.
        restored = replace(restored, subagents=0, files_of_subagents=())
        path = await asyncio.to_thread(
            restoring.write_new_session_file, file.parent, file.name, restored.content
        )
    else:
        path = await asyncio.to_thread(restoring.write_restored_session, restored, places)
    lines += restoring.describe_restored_session(restored, path)
    if restored.is_folded and not (arguments.fold and arguments.mcp):
        lines.insert(-1, HOW_TO_FOLD_BETTER)
    if is_to_file:
        name = AGENTS_TO_CONTINUE_IN[restored.agent]
        lines[-1] = f"To continue in {name}, use --to {restored.agent}."
    result = _restored_session_as_json(restored, path)
    return await print_result(arguments, console, result, *lines)


def _names_file(to: str) -> bool:
    """Whether `--to` names a file and not an agent."""
    return bool(to) and to not in AGENTS


def _choose_agent(to: str, facts: Sequence[Recorded]) -> str:
    """Returns the agent in whose format the session is written: the named one, or the one
    that the conversation comes from.
    """
    if to in AGENTS:
        return to
    agent = restoring.agent_of_origin(facts)
    if agent:
        return agent
    if not _names_file(to):
        raise InvalidInput(
            "This conversation does not come from an agent that can resume it.",
            remedy=f"Choose an agent: `--to {'`, `--to '.join(AGENTS)}`.",
        )
    return "claude"


def _places_of_agents(places: Sequence[str]) -> HistoryPlaces:
    """Parses `--agent-places`: the home folder, then the values of the agents' variables."""
    home = places[0]
    return HistoryPlaces(Path(home), dict(zip(_VARIABLES, places[1:], strict=True)))


def _restored_session_as_json(restored: RestoredSession, path: Path) -> dict[str, Any]:
    """Returns what was written, without the session itself."""
    result = {field.name: getattr(restored, field.name) for field in fields(restored)}
    del result["content"]
    del result["texts"]
    del result["files_of_subagents"]
    result["original"] = result.pop("is_original")
    result["folded"] = result.pop("is_folded")
    result["path"] = str(path)
    return result


def add_conversation_restore(verbs: Subparsers) -> None:
    """Declares `conversation restore`."""
    command = add_command(verbs, "restore", "save a conversation as a new session of another agent")
    add_workspace_option(command)
    add_conversation_argument(command)
    command.add_argument(
        "--to",
        metavar="|".join((*AGENTS, "FILE")),
        default="",
        help="the agent to save the session for, or a new file (default: the agent that the conversation comes from)",
    )
    command.add_argument(
        "--before-compaction",
        metavar="N",
        type=parse_ordinal,
        default=0,
        help="save the conversation as it was before compaction N (counting from 1)",
    )
    command.add_argument(
        "--fold",
        action="store_true",
        help="let this workspace's model summarize older parts first, even if the conversation fits in the context window of the agent's model (your provider may charge for this)",
    )
    command.add_argument(
        "--window",
        metavar="TOKENS",
        type=int,
        default=0,
        help="the size of the context window of the agent's model in tokens (default: that of its usual model); older parts that do not fit are replaced with a list of what they contain, or with a summary if you add --fold",
    )
    command.add_argument(
        "--mcp",
        action="store_true",
        help="also add this workspace's MCP server to the agent's settings, so that the agent can read what was folded",
    )
    command.add_argument(
        "--agent-places", metavar="PLACE", nargs=6, default=None, help=argparse.SUPPRESS
    )
    add_json_option(command)
    command.set_defaults(
        run=run_conversation_restore, work=write_conversation_for_agent, counts=False, reads=True
    )
