"""`conversation`: list those of a workspace, bring in those of other programs, and give them to others."""

import argparse
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
    rows = await workspace.journal.list_conversations()
    told = [
        {"id": row.id, "title": row.title or row.begins, "updated": row.updated, "parent": row.parent} for row in rows
    ]
    lines = [f"{row.id}  {format_local_minute(row.updated)}  {row.title or row.begins}".rstrip() for row in rows]
    return await print_result(arguments, console, told, *lines)


async def export_conversation_file(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    facts = await workspace.journal.read_facts(await find_conversation_by_prefix(workspace, arguments.conversation))
    contents = await conversation_restore_command.read_exported_entries(workspace, facts)
    lines = list(session_export.openai_lines(facts, contents.get))
    return await print_result(arguments, console, lines, *(json.dumps(line, ensure_ascii=False) for line in lines))
