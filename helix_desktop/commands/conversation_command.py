"""`conversation`: lists a workspace's conversations, imports those of other programs, and exports them."""

import argparse
import asyncio
import json
import math
from datetime import datetime

from helix_desktop.commands import (
    CONVERSATION,
    Options,
    Subparsers,
    add_noun,
    conversation_restore_command,
    format_local_time,
    history_import_commands,
    workspace_access,
)
from helix_desktop.commands.workspace_access import add_workspace_subcommand, find_conversation_by_prefix
from helix_desktop.console import Console
from helix_desktop.engine.facts import ConversationStarted
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import session_export
from helix_desktop.histories.program_names import NAMES, history_kinds_of_agents
from helix_desktop.store.stored_workspace import StoredWorkspace

CHOICE: Options = {
    "--agent AGENT...": {"default": [], "help": "only this agent's conversations; can be repeated"},
    "--before DATE": {"default": "", "help": "recorded conversations that last changed before this date, such as 2026-01-31"},
    **workspace_access.YES,
}  # fmt: skip
DELETE: Options = {"[CONVERSATION...]": {"dest": "conversations", "help": "the conversation's ID or title"}, **CHOICE}  # fmt: skip


def add_conversation_command(nouns: Subparsers) -> None:
    verbs = add_noun(nouns, "conversation", "list, import and export conversations")
    sentence = "list conversations, most recently changed first"
    add_workspace_subcommand(verbs, "list", sentence, print_conversation_list, reads=True)
    history_import_commands.add_history_import_commands(verbs)
    conversation_restore_command.add_restore_command(verbs)
    sentence = "permanently delete conversations, along with cached content that nothing else uses"
    add_workspace_subcommand(verbs, "delete", sentence, delete_chosen_conversations, DELETE)
    options: Options = {
        **CONVERSATION,
        "--as openai": {"choices": ("openai",), "default": "openai", "help": "the format of the messages"},
    }
    sentence = "write a conversation to standard output, one message per line; see also `restore`"
    add_workspace_subcommand(verbs, "export", sentence, export_conversation_file, options, reads=True)


async def print_conversation_list(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.workbench.repository_copies import list_folder_copies

    rows = [row for row in await workspace.journal.list_conversations() if not row.trashed]
    copies = await asyncio.to_thread(list_folder_copies, workspace)
    labels = {copy.id: copy.label for copy in copies if copy.is_whole}
    told: list[dict[str, object]] = []
    lines = []
    for row in rows:
        # A fork may begin with a fact that does not name the agent.
        begun = await workspace.journal.read_facts(row.id, after=row.forked_at, limit=2)
        starts = (one.fact for one in begun if isinstance(one.fact, ConversationStarted))
        agent = next(filter(None, (fact.agent or NAMES.get(fact.origin.kind, "") for fact in starts)), "")
        title, copy = row.title or row.begins, labels.get(row.id, "")
        same = {"id": row.id, "title": title, "updated": row.updated, "parent": row.parent}
        told.append({**same, "copy": copy, "agent": agent})
        notes = [agent, copy and f"copy of {copy}", "archived" if row.archived else ""]
        words = f"{title}  ({', '.join(filter(None, notes))})" if any(notes) else title
        lines.append(f"{row.id}  {format_local_time(row.updated)}  {words}".rstrip())
    return await workspace_access.print_result(arguments, console, told, *lines)


async def delete_chosen_conversations(
    arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    from helix_desktop.workbench.history_imports import find_recorded_conversations

    if not (arguments.conversations or arguments.agent or arguments.before):
        raise InvalidInput("No conversation was chosen.", remedy="Specify the conversation's ID, --agent or --before.")
    chosen = [await find_conversation_by_prefix(workspace, name) for name in arguments.conversations]
    if arguments.agent or arguments.before:
        kinds, before = history_kinds_of_agents(arguments.agent), parse_date(arguments.before)
        chosen += await find_recorded_conversations(workspace, kinds, before)
    return await workspace_access.delete_if_confirmed(arguments, workspace, console, chosen)


def parse_date(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if text else math.inf
    except (ValueError, OverflowError):
        raise InvalidInput(f"{text!r} is not a date.", remedy="Enter a date such as 2026-01-31.") from None


async def export_conversation_file(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    facts = await workspace.journal.read_facts(await find_conversation_by_prefix(workspace, arguments.conversation))
    contents = await workspace.cache.read_contents(session_export.digests_needed_for_export(facts))
    lines = list(session_export.export_openai_lines(facts, contents.get))
    for line in lines if not arguments.json else ():
        await console.print_line(json.dumps(line, ensure_ascii=False))
    return await workspace_access.print_result(arguments, console, lines)
