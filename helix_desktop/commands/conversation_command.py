"""`conversation`: list those of a workspace, bring in those of other programs, and give them to others."""

import argparse
import asyncio
import json

from helix_desktop.commands import (
    CONVERSATION,
    Options,
    Subparsers,
    conversation_restore_command,
    format_local_minute,
    history_import_commands,
)
from helix_desktop.commands.workspace_access import add_workspace_verb, find_conversation_by_prefix, print_result
from helix_desktop.console import Console
from helix_desktop.histories import session_export
from helix_desktop.store.stored_workspace import StoredWorkspace


def add_conversation_command(nouns: Subparsers) -> None:
    noun = nouns.add_parser("conversation", help="list, import and export conversations")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    sentence = "list conversations, most recently changed first"
    add_workspace_verb(verbs, "list", sentence, print_conversation_list, reads=True)
    history_import_commands.add_history_import_commands(verbs)
    conversation_restore_command.add_restore_command(verbs)
    options: Options = {
        **CONVERSATION,
        "--as openai": {"choices": ("openai",), "default": "openai", "help": "chat completions messages"},
    }
    sentence = "write a conversation to standard output, one message per line; see also `restore`"
    add_workspace_verb(verbs, "export", sentence, export_conversation_file, options, reads=True)


async def print_conversation_list(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.workbench.repository_copies import list_folder_copies

    rows = await workspace.journal.list_conversations()
    copies = await asyncio.to_thread(list_folder_copies, workspace)
    labels = {copy.id: copy.label for copy in copies if copy.is_whole}
    told: list[dict[str, object]] = []
    lines = []
    for row in rows:
        title, copy = row.title or row.begins, labels.get(row.id, "")
        told.append({"id": row.id, "title": title, "updated": row.updated, "parent": row.parent, "copy": copy})
        words = f"{title}  (copy of {copy})" if copy else title
        lines.append(f"{row.id}  {format_local_minute(row.updated)}  {words}".rstrip())
    return await print_result(arguments, console, told, *lines)


async def export_conversation_file(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    facts = await workspace.journal.read_facts(await find_conversation_by_prefix(workspace, arguments.conversation))
    contents = await workspace.cache.read_contents(session_export.entries_needed_for_export(facts))
    lines = list(session_export.openai_lines(facts, contents.get))
    return await print_result(arguments, console, lines, *(json.dumps(line, ensure_ascii=False) for line in lines))
