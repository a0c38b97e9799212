"""`forget`: removes a text from a workspace, or entries from its cache, for ever."""

import argparse
import asyncio
from dataclasses import asdict, replace
from pathlib import Path

from helix_desktop.commands import Options, Subparsers, workspace_access
from helix_desktop.commands.workspace_access import add_workspace_subcommand, print_result, read_whole_input
from helix_desktop.console import Console
from helix_desktop.engine.forgotten_text_forms import TextForms
from helix_desktop.engine.ports import ForgetResult
from helix_desktop.errors import InvalidInput, format_things
from helix_desktop.store.fleet_task_files import forget_text_in_tasks
from helix_desktop.store.stored_workspace import StoredWorkspace

STANDARD = "-"


OPTIONS: Options = {
    "[HASH...]": {"dest": "hashes", "help": "the hash of an entry, or the first part of it"},
    "--text TEXT": "the text to remove everywhere; - reads standard input",
    "--yes": "required, because what you remove cannot be restored",
}


def add_forget_command(nouns: Subparsers) -> None:
    sentence = "permanently remove a piece of text, or entries, from the cache, the conversations and the backups"
    add_workspace_subcommand(nouns, "forget", sentence, forget_in_workspace, OPTIONS, run=run_forget_command)


def run_forget_command(arguments: argparse.Namespace) -> int:
    if not arguments.hashes and not arguments.text:
        raise InvalidInput("There is nothing to remove.", remedy="Specify --text TEXT, or the hash of an entry.")
    if not arguments.yes:
        raise InvalidInput(
            "Nothing has been removed yet. What you remove cannot be restored.", remedy="Add --yes to confirm."
        )
    return workspace_access.run_on_workspace(arguments, gather=arguments.text == STANDARD)


async def forget_in_workspace(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    text = arguments.text
    if text == STANDARD:  # The whole input is read, and its last line end is left out.
        text = (await read_whole_input(console)).removesuffix("\n").removesuffix("\r")
    if not text and not arguments.hashes:
        raise InvalidInput("There is nothing to remove: standard input was empty.")
    entries = [await workspace.cache.resolve_prefix(name) for name in arguments.hashes]
    tasks, left = await forget_text_in_tasks(workspace, text)
    purged = await workspace.content_forgetter(text=text, entries=entries)
    purged = replace(purged, facts=purged.facts + tasks, elsewhere=(*purged.elsewhere, *left))
    result = {**asdict(purged), "entries": [digest.hex for digest in purged.entries]}
    await print_result(arguments, console, result, _describe_forget_result(purged))
    remembered = await asyncio.to_thread(_describe_places_in_window_state, arguments.places.window_state_path, text)
    for sentence in (*purged.elsewhere, *remembered, *purged.ciphertext):
        await console.print_error(sentence)
    return 0 if (purged.entries or purged.facts) and not purged.elsewhere and not remembered else 1


def _describe_places_in_window_state(window: Path, text: str) -> tuple[str, ...]:
    """Finds the text in the saved window state. Only a running window can change its drafts and input history."""
    if not text or not window.exists() or not TextForms(text).occurs_in_bytes(window.read_bytes()):
        return ()
    return (
        f"The text is also in {window}, in a draft or in your input history. To remove it there, use the window: Settings > Storage.",
    )


def _describe_forget_result(purged: ForgetResult) -> str:
    if not purged.entries and not purged.facts:
        return "Nothing in this workspace contains what you want to remove."
    entries = format_things(len(purged.entries), "entry", "entries")
    facts = format_things(purged.facts, "fact", "facts")
    backups = format_things(purged.backups, "backup", "backups")
    where = format_things(len(purged.conversations), "conversation", "conversations")
    return f"Removed {entries}. Changed {facts} in {where}, and {backups}."
