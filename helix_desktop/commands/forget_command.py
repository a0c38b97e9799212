"""`forget`: removes a text from a workspace, or entries from its cache, for ever."""

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
    add_yes_option,
)
from helix_desktop.commands.workspace_access import print_result
from helix_desktop.console import Console, Terminal
from helix_desktop.engine.forgotten_text_forms import TextForms
from helix_desktop.engine.ports import ForgetResult
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput, format_things
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident.history_recorder import delete_failed_copies, find_waiting_copies
from helix_desktop.resident.schedules import read_schedules
from helix_desktop.store.fleet_task_files import forget_text_in_tasks
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.message_queue_files import MessageQueueFiles
from helix_desktop.workbench.partial_replies import delete_partial_replies
from helix_desktop.workbench.pending_questions import PendingQuestions

STANDARD = "-"


def run_forget_command(arguments: Namespace) -> int:
    """Reads the text to remove from standard input if the user wrote `--text -`, and then runs
    the command on the workspace.

    The text takes the place of the dash in the command line, because another process that has
    the workspace open may run the command, and has another input.
    """
    if not arguments.hashes and not arguments.text:
        raise InvalidInput(
            "There is nothing to remove.", remedy="Specify --text TEXT, or the hash of an entry."
        )
    if arguments.text != STANDARD:
        return workspace_access.run_on_workspace(arguments)

    with Terminal(gather=True) as console:
        whole_input = asyncio.run(workspace_access.read_whole_input(console))
    # The line end that closes the input is not a part of the text.
    text = whole_input.removesuffix("\n").removesuffix("\r")
    if not text and not arguments.hashes:
        raise InvalidInput("There is nothing to remove: standard input was empty.")
    arguments.text = text
    arguments.argv = workspace_access.insert_options(arguments.argv, f"--text={text}")
    return workspace_access.run_on_workspace(arguments)


async def forget_in_workspace(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Removes the text and the entries that are named, and says where else the text is still.

    Without `--yes`, it only prints what would be removed, and asks. Returns 0 if something was
    removed and nothing is left, and otherwise 1.
    """
    text = arguments.text
    entries = [await workspace.cache.resolve_prefix(name) for name in arguments.hashes]
    if not arguments.yes:
        await _print_what_would_be_removed(arguments, workspace, entries, console)
        return workspace_access.ASKING

    result = await forget_everywhere(arguments.places, workspace, text=text, entries=entries)
    sentence = "Nothing in this workspace contains what you want to remove."
    if result.has_removed:
        backups = format_things(result.backups, "backup", "backups")
        sentence = f"Removed {{entries}}. Changed {{facts}}, and {backups}."
        if result.outside_facts:
            places = format_things(result.outside_facts, "other place", "other places")
            sentence += f" Also removed from {places}, such as a waiting message or a description."
        sentence += " Files in the workspace's folders were not changed."
    summary = _describe_forget_result(result, sentence)
    await print_result(arguments, console, _result_as_json(result), summary)

    for place in result.elsewhere:
        await console.print_error(place)
    for place in result.ciphertext:  # Encrypted, so it does not count as left.
        await console.print_error(place)
    if result.has_removed and not result.elsewhere:
        return 0
    return 1


async def forget_everywhere(
    places: ProgramFolders,
    workspace: StoredWorkspace,
    *,
    text: str,
    entries: Sequence[Digest] = (),
) -> ForgetResult:
    """Removes the text from copies of failed imports, from tasks and from the workspace, and
    returns what was removed from tasks and workspace together, and where the text is still. Every
    command that forgets a text calls this.
    """
    outside_facts = 0
    if text:
        has_text = TextForms(text).occurs_in_bytes
        outside_facts += await asyncio.to_thread(delete_failed_copies, places, has_text)
        # An open workspace forgets these itself, while its agents stand still.
        if workspace.content_forgetter == workspace.forget_content:
            outside_facts += await asyncio.to_thread(
                _forget_what_a_killed_program_left, workspace.folder, text
            )
    changed_tasks, places_left_in_tasks = await forget_text_in_tasks(workspace, text)
    removed = await workspace.content_forgetter(text=text, entries=entries)
    places_outside: list[str] = []
    if text:
        places_outside = await asyncio.to_thread(_describe_places_outside_workspace, places, text)
    return replace(
        removed,
        facts=removed.facts + changed_tasks,
        elsewhere=(*removed.elsewhere, *places_left_in_tasks, *places_outside),
        outside_facts=removed.outside_facts + outside_facts,
    )


def _forget_what_a_killed_program_left(workspace: Path, text: str) -> int:
    """Removes it from replies that were cut off, from messages that wait and from the words of
    denials: all become a part of their conversations when these are opened. Returns from how many.
    """
    folder = workspace / "partial"
    changed = delete_partial_replies(folder, text)
    changed += PendingQuestions(folder).forget_text(text)
    changed += MessageQueueFiles(folder, lambda _conversation: None).forget_text(text)
    return changed


async def _print_what_would_be_removed(
    arguments: Namespace, workspace: StoredWorkspace, entries: Sequence[Digest], console: Console
) -> None:
    """Prints what the command would remove, for the question that the user is asked."""
    found, size = await workspace.find_content_to_forget(arguments.text, entries)
    sentence = _describe_forget_result(
        found,
        f"This would remove {{entries}} ({size:,} bytes), and change {{facts}}, backups, and messages and replies that are not recorded yet.",
    )
    found_as_json = _result_as_json(found)
    found_as_json["bytes"] = size
    await print_result(arguments, console, {"would_remove": found_as_json}, sentence)


def _result_as_json(result: ForgetResult) -> dict[str, Any]:
    return {**asdict(result), "entries": [digest.hex for digest in result.entries]}


def _describe_places_outside_workspace(places: ProgramFolders, text: str) -> list[str]:
    """Finds the text where it may come back from: in copies that are still to be imported, in
    schedules, and in the saved states of windows. Only a running window can change its drafts and
    input history.
    """
    forms = TextForms(text)
    sentences: list[str] = []
    for copy in find_waiting_copies(places, forms.occurs_in_bytes):
        sentences.append(
            f"The text is also in {copy}, which was recorded and is still to be imported. Remove the text again after that."
        )
    for schedule in read_schedules(places.data):
        if forms.occurs_in_text(schedule.text):
            sentences.append(
                f"The text is also in the schedule {schedule.id}. To remove it there, use `helix-desktop schedule remove {schedule.id}`."
            )
    for window in places.list_window_state_paths():
        if window.exists() and forms.occurs_in_bytes(window.read_bytes()):
            sentences.append(
                f"The text is also in {window}, in a draft or in your input history. To remove it there, use the window: Settings > Files and storage."
            )
    return sentences


def _describe_forget_result(found: ForgetResult, sentence: str) -> str:
    """Fills `{entries}` and `{facts}` of a sentence with the numbers of what was found or
    removed.
    """
    where = format_things(len(found.conversations), "conversation", "conversations")
    facts = f"{format_things(found.facts, 'fact', 'facts')} in {where}"
    entries = format_things(len(found.entries), "entry", "entries")
    return sentence.format(entries=entries, facts=facts)


def add_forget_commands(nouns: Subparsers) -> None:
    """Declares `forget`, which has no verbs."""
    noun = add_command(
        nouns,
        "forget",
        "permanently remove a text or entries from the cache, the conversations and the backups",
    )
    add_workspace_option(noun)
    noun.add_argument(
        "hashes", metavar="HASH", nargs="*", help="the hash of an entry, or the first part of it"
    )
    noun.add_argument(
        "--text",
        metavar="TEXT",
        default="",
        help="the text to remove everywhere; - reads standard input",
    )
    add_yes_option(noun)
    add_json_option(noun)
    noun.set_defaults(run=run_forget_command, work=forget_in_workspace, counts=False)
