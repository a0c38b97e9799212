"""`conversation`: lists a workspace's conversations, imports those of other programs,
and exports them.
"""

import asyncio
import math
from argparse import Namespace
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from helix_desktop.commands import (
    format_local_time,
    workspace_access,
)
from helix_desktop.commands.cache_command import print_search_hits
from helix_desktop.commands.conversation_import_command import (
    add_conversation_find,
    add_conversation_import,
    add_conversation_imports,
    add_conversation_undo_import,
)
from helix_desktop.commands.conversation_restore_command import add_conversation_restore
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_chosen_recordings_options,
    add_command,
    add_conversation_argument,
    add_json_option,
    add_search_arguments,
    add_workspace_option,
    parse_number,
)
from helix_desktop.commands.workspace_access import find_conversation_by_prefix, run_on_workspace
from helix_desktop.console import Console, dump_printed_json
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.facts import (
    Attachment,
    Fact,
    ModelReplied,
    Recorded,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.request_building import INTERRUPTED
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import openai_chat_export
from helix_desktop.histories.leaked_keys import find_keys_in_facts, mask_key
from helix_desktop.histories.program_names import history_kinds_of_agents
from helix_desktop.store.stored_workspace import StoredWorkspace


async def print_conversation_list(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Lists the conversations that are not in the trash."""
    from helix_desktop.workbench.copy_files import list_folder_copies

    copies = await asyncio.to_thread(list_folder_copies, workspace)
    label_of_copy = {copy.id: copy.label for copy in copies if copy.is_whole}
    listed: list[ListedConversation] = []
    for row in await workspace.journal.list_conversations():
        if row.trashed:
            continue
        agent = await workspace_access.read_agent_of_conversation(workspace, row)
        listed_conversation = ListedConversation(
            id=row.id,
            title=row.title or row.begins,
            updated=row.updated,
            parent=row.parent,
            copy=label_of_copy.get(row.id, ""),
            agent=agent,
            is_archived=row.archived,
        )
        listed.append(listed_conversation)
    return await print_listed_conversations(arguments, listed, console)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConversation:
    """What the list says of a conversation. `copy`: of which branch or commit it has a copy."""

    id: str
    title: str
    updated: float
    parent: str
    copy: str
    agent: str
    is_archived: bool

    @property
    def notes(self) -> list[str]:
        """What the list says in brackets."""
        notes: list[str] = []
        if self.agent:
            notes.append(self.agent)
        if self.parent:
            notes.append("sub-agent")
        if self.copy:
            notes.append(f"copy of {self.copy}")
        if self.is_archived:
            notes.append("archived")
        return notes


async def print_listed_conversations(
    arguments: Namespace, listed: Sequence[ListedConversation], console: Console
) -> int:
    """Prints one line for each conversation, with what is special about it in brackets."""
    result: list[dict[str, Any]] = []
    lines: list[str] = []
    for conversation in listed:
        result.append(
            {
                "id": conversation.id,
                "title": conversation.title,
                "updated": conversation.updated,
                "parent": conversation.parent,
                "copy": conversation.copy,
                "agent": conversation.agent,
            }
        )
        time = format_local_time(conversation.updated)
        line = f"{conversation.id}  {time}  {conversation.title}"
        if conversation.notes:
            line += f"  ({', '.join(conversation.notes)})"
        lines.append(line.rstrip())
    if not listed and not arguments.json:
        await console.print_error("There are no conversations.")
    return await workspace_access.print_result(arguments, console, result, *lines)


async def print_conversation(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Prints the messages from a certain one on, and warns of what looks like a key in them."""
    conversation = await find_conversation_by_prefix(workspace, arguments.conversation)
    facts = await workspace.journal.read_facts(conversation)
    messages = choose_messages(arguments, facts)
    printed_messages = messages[: arguments.limit or None]

    digests: Sequence[Digest] = ()
    # The contents of a shared workspace may be elsewhere, and are not fetched for this.
    is_shared = workspace.link is not None
    if not is_shared:
        digests = _stored_contents(printed_messages)
    missing = await workspace.cache.find_missing_content(digests)
    await print_messages(arguments, messages, missing, console)

    content_of_digest = await workspace.cache.read_contents(digests)
    contents = list(content_of_digest.values())
    masked_keys = [mask_key(key) for key in find_keys_in_facts(printed_messages, contents)]
    if masked_keys:
        keys = ", ".join(masked_keys)
        remedy = workspace_access.WAY_TO_FORGET.format(workspace.id)
        await console.print_error(f"This looks like a key: {keys}. {remedy}")
    return 0


def choose_messages(arguments: Namespace, facts: Sequence[Recorded]) -> list[Recorded]:
    """Returns the messages of a conversation from the one on that the command line names."""
    in_order = openai_chat_export.list_messages_in_order(facts)
    return [message for message in in_order if message.seq >= arguments.start]


async def print_messages(
    arguments: Namespace,
    messages: Sequence[Recorded],
    gone: Collection[Digest],
    console: Console,
) -> None:
    """Prints as many as the command line says. `gone`: contents that are no longer stored."""
    printed_messages = messages[: arguments.limit or None]
    result: list[dict[str, Any]] = []
    lines: list[str] = []
    for message in printed_messages:
        author_and_text = _describe_message(message.fact, gone)
        described: dict[str, Any] = {"seq": message.seq, "time": message.time}
        described.update(author_and_text)
        result.append(described)
        time = format_local_time(message.time)
        heading = f"[{message.seq}] {time} {author_and_text['by']}"
        lines.append(f"{heading}\n{author_and_text['text']}\n")
    await workspace_access.print_result(arguments, console, result, *lines)

    not_printed = messages[len(printed_messages) :]
    if not_printed:
        next_seq = not_printed[0].seq
        await console.print_error(
            f"{len(not_printed):,} more messages. To see them, add --from {next_seq}."
        )


def _stored_contents(messages: Sequence[Recorded]) -> list[Digest]:
    """Returns the outputs and attachments of these messages."""
    digests: list[Digest] = []
    for message in messages:
        fact = message.fact
        if isinstance(fact, ToolReturned):
            digests.append(fact.output.digest)
        elif isinstance(fact, UserSaid):
            for part in fact.parts:
                if isinstance(part, Attachment):
                    digests.append(part.stored.digest)
    return digests


def _describe_message(fact: Fact, gone: Collection[Digest]) -> dict[str, str]:
    """Returns who said it, and the text with the calls and what is stored of it."""
    match fact:
        case UserSaid(parts=parts):
            return {"by": "user", "text": _describe_user_parts(parts, gone)}
        case ToolReturned():
            return {"by": "tool", "text": _describe_tool_result(fact, gone)}
        case ModelReplied(model=model, parts=parts):
            texts: list[str] = []
            calls: list[str] = []
            for part in parts:
                if isinstance(part, Text):
                    texts.append(part.text)
                elif isinstance(part, ToolCall):
                    calls.append(f"· {part.name} {part.arguments[:200]}")
            # Some histories do not name the model.
            return {"by": model or "assistant", "text": "\n".join(texts + calls)}
    return {}


def _describe_user_parts(parts: Sequence[UserPart], gone: Collection[Digest]) -> str:
    """Returns what the user wrote and attached. A text that was too large for the window
    is attached, too.
    """
    lines: list[str] = []
    text, _ = split_off_agent_additions(parts)
    if text:
        lines.append(text)
    for part in parts:
        if isinstance(part, Attachment):
            lines.append(f"[{part.name}: {_describe_stored(part.stored, gone)}]")
    if not lines:
        return "(added by the agent)"
    return "\n".join(lines)


def _describe_tool_result(result: ToolReturned, gone: Collection[Digest]) -> str:
    """Returns what is stored of an output, and whether the call failed."""
    if result.head == INTERRUPTED:
        return INTERRUPTED  # Nothing is stored of it: the program itself says it.
    description = _describe_stored(result.output, gone)
    if not result.ok:
        return f"Failed. {description}"
    return description


def _describe_stored(stored: Stored, gone: Collection[Digest]) -> str:
    if stored.digest in gone:
        return f"{stored.size:,} bytes, no longer stored: forgotten, or removed to free up space"
    way_to_read = f"helix-desktop cache get {str(stored.digest)[:16]}"
    return f"{stored.size:,} bytes, to read by: {way_to_read}"


async def delete_chosen_conversations(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Deletes the named conversations, and the recorded ones of certain agents or times."""
    from helix_desktop.workbench.history_imports import find_recorded_conversations

    if not (arguments.conversations or arguments.agent or arguments.before):
        raise InvalidInput(
            "No conversation was chosen.",
            remedy="Specify the conversation's ID, --agent or --before.",
        )
    chosen: list[str] = []
    for name in arguments.conversations:
        conversation = await find_conversation_by_prefix(workspace, name, listed_first=False)
        chosen.append(conversation)
    if arguments.agent or arguments.before:
        kinds = history_kinds_of_agents(arguments.agent)
        before = parse_date(arguments.before)
        chosen += await find_recorded_conversations(workspace, kinds, before)
    return await workspace_access.delete_if_confirmed(arguments, workspace, console, chosen)


def parse_date(text: str) -> float:
    """Returns the time of a date. No date means "before any time", which is infinity."""
    if not text:
        return math.inf
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{text!r} is not a date.", remedy="Enter a date such as 2026-01-31."
        ) from None


async def export_conversation_file(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    conversation = await find_conversation_by_prefix(workspace, arguments.conversation)
    facts = await workspace.journal.read_facts(conversation)
    digests = openai_chat_export.digests_needed_for_export(facts)
    contents = await workspace.cache.read_contents(digests)
    lines = list(openai_chat_export.export_openai_lines(facts, contents.get))
    if not arguments.json:
        for line in lines:
            await console.print_line(dump_printed_json(line))
    return await workspace_access.print_result(arguments, console, lines)


def add_conversation_commands(nouns: Subparsers) -> None:
    """Declares `conversation` and its verbs."""
    noun = add_command(nouns, "conversation", "search, read, import and export conversations")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_conversation_list(verbs)
    _add_conversation_search(verbs)
    _add_conversation_show(verbs)
    add_conversation_import(verbs)
    add_conversation_find(verbs)
    add_conversation_imports(verbs)
    add_conversation_undo_import(verbs)
    add_conversation_restore(verbs)
    _add_conversation_delete(verbs)
    _add_conversation_export(verbs)
    _add_conversation_lend_key(verbs)
    _add_conversation_take_key_back(verbs)


def _add_conversation_list(verbs: Subparsers) -> None:
    """Declares `conversation list`."""
    command = add_command(verbs, "list", "list conversations, most recently changed first")
    add_workspace_option(command)
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace,
        work=print_conversation_list,
        counts=False,
        reads=True,
        elsewhere="conversation list",
    )


def _add_conversation_search(verbs: Subparsers) -> None:
    """Declares `conversation search`."""
    command = add_command(
        verbs, "search", "find what was said, called and returned in conversations"
    )
    add_workspace_option(command)
    add_search_arguments(command)
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace, work=print_search_hits, counts=True, only_entries=False, reads=True
    )


def _add_conversation_show(verbs: Subparsers) -> None:
    """Declares `conversation show`."""
    command = add_command(
        verbs, "show", "print what was said in a conversation, and which tools were called"
    )
    add_workspace_option(command)
    add_conversation_argument(command)
    command.add_argument(
        "--from",
        metavar="N",
        dest="start",
        type=parse_number,
        default=0,
        help="begin with message N, as in the results of `conversation search`",
    )
    command.add_argument(
        "--limit",
        metavar="N",
        type=parse_number,
        default=50,
        help="show at most N messages (default: 50; 0 means all)",
    )
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace,
        work=print_conversation,
        counts=False,
        reads=True,
        elsewhere="conversation show",
    )


def _add_conversation_delete(verbs: Subparsers) -> None:
    """Declares `conversation delete`."""
    command = add_command(
        verbs,
        "delete",
        "permanently delete conversations, along with cached content that nothing else uses",
    )
    add_workspace_option(command)
    command.add_argument(
        "conversations", metavar="CONVERSATION", nargs="*", help="the conversation's ID or title"
    )
    add_chosen_recordings_options(command)
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=delete_chosen_conversations, counts=False)


def _add_conversation_export(verbs: Subparsers) -> None:
    """Declares `conversation export`."""
    command = add_command(
        verbs,
        "export",
        "write a conversation to standard output, one message per line; see also `restore`",
    )
    add_workspace_option(command)
    add_conversation_argument(command)
    command.add_argument(
        "--as", metavar="openai", choices=["openai"], default="", help="the format of the messages"
    )
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace, work=export_conversation_file, counts=False, reads=True
    )


def _refuse_lending_here(_: Namespace) -> int:
    raise InvalidInput(
        "A key is lent to another computer only.",
        remedy="Name it: helix-desktop --host ssh://MACHINE/FOLDER conversation lend-key CONVERSATION",
    )


def _add_conversation_lend_key(verbs: Subparsers) -> None:
    """Declares `conversation lend-key`."""
    command = add_command(
        verbs,
        "lend-key",
        "with --host: let the agent there go on while this computer is away, with a key in its memory until its turn is done",
    )
    add_workspace_option(command)
    add_conversation_argument(command)
    command.add_argument(
        "--provider",
        metavar="NAME",
        default="",
        help="whose key (default: that of the conversation's model)",
    )
    add_json_option(command)
    command.set_defaults(run=_refuse_lending_here, elsewhere="conversation lend-key")


def _add_conversation_take_key_back(verbs: Subparsers) -> None:
    """Declares `conversation take-key-back`."""
    command = add_command(
        verbs, "take-key-back", "with --host: end what `lend-key` has lent for a conversation"
    )
    add_workspace_option(command)
    add_conversation_argument(command)
    add_json_option(command)
    command.set_defaults(run=_refuse_lending_here, elsewhere="conversation take-key-back")
