"""`conversation restore`: a conversation written in the own format of an agent, for that agent to resume."""

import argparse
import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop.commands import CONVERSATION, Options, Subparsers, workspace_access
from helix_desktop.commands.workspace_access import find_conversation_by_prefix, print_result
from helix_desktop.console import Console
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Recorded
from helix_desktop.errors import CacheCorrupt, InvalidInput, NotFound
from helix_desktop.histories import conversation_restoring as restoring
from helix_desktop.histories import session_export
from helix_desktop.histories.conversation_restoring import RestoredSession
from helix_desktop.histories.history_finding import HistoryPlaces
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.store.stored_workspace import StoredWorkspace

AGENTS = tuple(AGENTS_TO_CONTINUE_IN)
_VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "GEMINI_CLI_HOME", "PI_CODING_AGENT_DIR")


OPTIONS: Options = {
    **CONVERSATION,
    "--to WHERE": {"metavar": f"{'|'.join(AGENTS)}|FILE", "default": "", "help": "the agent to save the session for, or a new file (default: the agent that the conversation comes from)"},
    "--before-compaction N": {"type": int, "default": 0, "help": "as it was before its compaction number N, counted from 1"},
    "--agent-places PLACE": {"nargs": len(_VARIABLES) + 1, "default": None, "help": argparse.SUPPRESS},
}  # fmt: skip


def add_restore_command(verbs: Subparsers) -> None:
    sentence = "save a conversation as a new session of another agent"
    workspace_access.add_workspace_verb(
        verbs, "restore", sentence, restore_conversation, OPTIONS, run=run_restore, reads=True
    )


def run_restore(arguments: argparse.Namespace) -> int:
    """With the paths as this program sees them: another one, in another folder, may do the work."""
    given = arguments.to
    if given and given not in AGENTS:
        arguments.to = str(Path(given).absolute())
        arguments.argv = [arguments.to if word == given else word for word in arguments.argv]
        arguments.argv = [f"--to={arguments.to}" if word == f"--to={given}" else word for word in arguments.argv]
    if arguments.agent_places is None:
        arguments.agent_places = [str(Path.home()), *(os.environ.get(name, "") for name in _VARIABLES)]
        arguments.argv = [*arguments.argv, "--agent-places", *arguments.agent_places]
    return workspace_access.run_on_workspace(arguments)


async def restore_conversation(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    facts = await workspace.journal.read_facts(await find_conversation_by_prefix(workspace, arguments.conversation))
    agent = arguments.to if arguments.to in AGENTS else restoring.agent_of_origin(facts)
    if not agent and not arguments.to:
        raise InvalidInput("This conversation does not come from an agent that can resume it.", remedy=f"Choose an agent: `--to {'`, `--to '.join(AGENTS)}`.")  # fmt: skip
    contents = await read_exported_entries(workspace, facts)
    home, *named = arguments.agent_places
    folder = next(iter(workspace.settings.roots), home)
    restored = await asyncio.to_thread(
        restoring.restore_session, facts, contents.get, agent or "claude", folder, arguments.before_compaction
    )
    if arguments.to and arguments.to not in AGENTS:
        file = Path(arguments.to)
        path = await asyncio.to_thread(restoring.write_new_session_file, file.parent, file.name, restored.content)
    else:
        places = HistoryPlaces(Path(home), dict(zip(_VARIABLES, named, strict=True)))
        path = await asyncio.to_thread(restoring.write_restored_session, restored, places)
    lines = restoring.describe_restored_session(restored, path)
    return await print_result(arguments, console, _restored_as_json(restored, path), *lines)


def _restored_as_json(restored: RestoredSession, path: Path) -> dict[str, object]:
    return {
        "agent": restored.agent,
        "session": restored.session,
        "path": str(path),
        "folder": restored.folder,
        "original": restored.is_original,
        "messages": restored.messages,
        "compactions": restored.compactions,
        "left_out_reasoning": restored.left_out_reasoning,
        "left_out_context": restored.left_out_context,
        "calls_as_text": restored.calls_as_text,
        "version": restored.version,
    }


async def read_exported_entries(workspace: StoredWorkspace, facts: Sequence[Recorded]) -> dict[Digest, bytes]:
    """What the facts refer to and an export shows, as far as it is still there and whole."""
    contents = {}
    for digest in session_export.entries_needed_for_export(facts):
        with suppress(NotFound, CacheCorrupt):
            contents[digest] = await workspace.cache.read_content(digest)
    return contents
