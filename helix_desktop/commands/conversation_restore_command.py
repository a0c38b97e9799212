"""`conversation restore`: writes a conversation in an agent's own format, so that the
agent can resume it.
"""

import asyncio
import os
from argparse import Namespace
from dataclasses import fields
from functools import partial
from pathlib import Path

from helix_desktop.commands import workspace_access
from helix_desktop.commands.workspace_access import find_conversation_by_prefix, print_result
from helix_desktop.console import Console
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import conversation_restoring as restoring
from helix_desktop.histories.conversation_restoring import RestoreRequest
from helix_desktop.histories.history_finding import HistoryPlaces
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.store.stored_workspace import StoredWorkspace

AGENTS = tuple(AGENTS_TO_CONTINUE_IN)
_VARIABLES = (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "XDG_DATA_HOME",
    "GEMINI_CLI_HOME",
    "PI_CODING_AGENT_DIR",
)


def run_conversation_restore(arguments: Namespace) -> int:
    """Makes paths absolute, because another process in another folder may do the work."""
    given = arguments.to
    if given and given not in AGENTS:
        if not {".", "/", os.sep}.intersection(given):
            raise InvalidInput(f"There is no agent named {given} to continue in.", remedy=f"Choose {', '.join(AGENTS)}, or a file such as ./{given}.")  # fmt: skip
        arguments.to = str(Path(given).absolute())
        arguments.argv = workspace_access.insert_options(arguments.argv, f"--to={arguments.to}")
    if arguments.agent_places is None:
        arguments.agent_places = [
            str(Path.home()),
            *(os.environ.get(name, "") for name in _VARIABLES),
        ]
        arguments.argv = workspace_access.insert_options(
            arguments.argv, "--agent-places", *arguments.agent_places
        )
    return workspace_access.run_on_workspace(arguments)


async def write_conversation_for_agent(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    from helix_desktop import token_counting, workbench
    from helix_desktop.workbench.conversation_relay import ConversationRelay

    conversation = await find_conversation_by_prefix(workspace, arguments.conversation)
    facts = await workspace.journal.read_facts(conversation)
    agent = arguments.to if arguments.to in AGENTS else restoring.agent_of_origin(facts)
    if not agent and not arguments.to:
        raise InvalidInput("This conversation does not come from an agent that can resume it.", remedy=f"Choose an agent: `--to {'`, `--to '.join(AGENTS)}`.")  # fmt: skip
    home, *named = arguments.agent_places
    places = HistoryPlaces(Path(home), dict(zip(_VARIABLES, named, strict=True)))
    folder = next(iter(workspace.settings.roots), home)
    open_desk = partial(workbench.use_workbench, workspace, arguments.places)
    relay = ConversationRelay(workspace, token_counting.shared_token_counter(), open_desk)
    asked = RestoreRequest(conversation, agent or "claude", folder, arguments.before_compaction, arguments.fold, arguments.window)  # fmt: skip
    restored = await relay.prepare_session_for_agent(asked, may_ask_model=arguments.fold)
    lines = (
        [await asyncio.to_thread(relay.add_mcp_server, asked.agent, Path(folder), places)]
        if arguments.mcp
        else []
    )
    if arguments.to and arguments.to not in AGENTS:
        file = Path(arguments.to)
        path = await asyncio.to_thread(
            restoring.write_new_session_file, file.parent, file.name, restored.content
        )
    else:
        path = await asyncio.to_thread(restoring.write_restored_session, restored, places)
    lines += restoring.describe_restored_session(restored, path)
    if restored.is_folded and not (arguments.fold and arguments.mcp):
        lines.insert(-1, "With `--fold`, this workspace's model summarizes older parts (your provider may charge for this). With `--mcp`, the agent can read the originals.")  # fmt: skip
    if arguments.to and arguments.to not in AGENTS:
        lines[-1] = (
            f"To continue in {AGENTS_TO_CONTINUE_IN[restored.agent]}, use --to {restored.agent}."
        )
    told = {
        one.name: getattr(restored, one.name)
        for one in fields(restored)
        if one.name not in ("content", "texts")
    }
    told |= {
        "original": told.pop("is_original"),
        "folded": told.pop("is_folded"),
        "path": str(path),
    }
    return await print_result(arguments, console, told, *lines)
