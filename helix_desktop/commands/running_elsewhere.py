"""Runs a command on a workspace of another computer (`--host ssh://…`), over the user's own ssh."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from typing import TYPE_CHECKING

from helix_desktop.commands.other_computer import OtherComputer, find_row_by_prefix, read_list
from helix_desktop.console import Console, Terminal
from helix_desktop.engine.facts import ModelRole
from helix_desktop.errors import InvalidInput
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_interface import TakeKeyBack

if TYPE_CHECKING:
    from helix_desktop.workspace_host.host_interface import HostListRow


def run_on_other_computer(arguments: Namespace) -> int:
    """Runs the command over there, as far as it can be run from here."""
    command = getattr(arguments, "elsewhere", "")
    if not command:
        raise InvalidInput(
            "This cannot be run on another computer from here yet.",
            remedy="With --host, you can use `ask` and `conversation list`, `show`, `lend-key` and `take-key-back`. For everything else, log in there with ssh and run helix-desktop.",
        )
    with Terminal() as console:
        return asyncio.run(_run_command(command, arguments, console))


async def _run_command(command: str, arguments: Namespace, console: Console) -> int:
    """Runs one of the commands that work on another computer, and ends the connection to
    it.
    """
    computer = OtherComputer(arguments)
    try:
        if command == "ask":
            from helix_desktop.commands.ask_as_client import ask_as_client
            from helix_desktop.commands.ask_input import check_ask_arguments

            check_ask_arguments(arguments)
            _refuse_options_for_here(arguments)
            return await ask_as_client(arguments, computer, console)
        if command == "conversation list":
            return await _print_conversation_list(arguments, computer, console)
        if command == "conversation lend-key":
            return await _lend_key(arguments, computer, console)
        if command == "conversation take-key-back":
            return await _take_key_back(arguments, computer, console)
        return await _print_conversation(arguments, computer, console)
    finally:
        await computer.aclose()


def _refuse_options_for_here(arguments: Namespace) -> None:
    for option in ("acp", "copy", "copy_with_changes", "choose"):
        if getattr(arguments, option):
            raise InvalidInput(
                f"--{option.replace('_', '-')} cannot be used on another computer yet. Nothing was sent."
            )


async def _print_conversation_list(
    arguments: Namespace, computer: OtherComputer, console: Console
) -> int:
    """Prints the conversations of the workspace over there, those that changed last first."""
    from helix_desktop.commands.conversation_command import (
        ListedConversation,
        print_listed_conversations,
    )

    async with computer.connect() as host:
        rows = await read_list(host)
    listed: list[ListedConversation] = []
    for entry in sorted(rows, key=_time_of_last_change, reverse=True):
        row = entry.row
        if row.trashed:
            continue
        listed.append(
            ListedConversation(
                id=row.id,
                title=row.title,
                updated=row.updated,
                parent=row.parent,
                copy=row.copy,
                agent=row.agent,
                is_archived=row.archived,
            )
        )
    return await print_listed_conversations(arguments, listed, console)


def _time_of_last_change(entry: HostListRow) -> float:
    return entry.row.updated


async def _lend_key(arguments: Namespace, computer: OtherComputer, console: Console) -> int:
    """Lends the key of the provider that the conversation's model is of."""
    followed = FollowedConversation()
    async with computer.connect() as host:
        conversation = find_row_by_prefix(await read_list(host), arguments.conversation)
        follower = await host.follow_conversation(conversation)
        while not followed.has_caught_up:
            for event in await follower.next_events():
                followed.apply_event(event)
    provider = arguments.provider or _provider_of_conversation(followed)
    await computer.lend_key(conversation, provider)
    machine = computer.address.target
    if arguments.json:
        result = {"conversation": conversation, "provider": provider, "machine": machine}
        await console.print_line(json.dumps(result))
        return 0
    await console.print_line(
        f"{machine} holds your key for {provider} in its memory, for this conversation alone, until its turn is done. "
        f"You may close this computer. Whoever controls {machine} can read the key there until then. To end it before, run `conversation take-key-back`."
    )
    return 0


def _provider_of_conversation(followed: FollowedConversation) -> str:
    model = followed.state.settings.model_for_role(ModelRole.MAIN)
    if model is None:
        raise InvalidInput(
            "This conversation has not asked a model yet.", remedy="Name one with --provider."
        )
    provider, _, _ = model.model.partition("/")
    return provider


async def _take_key_back(arguments: Namespace, computer: OtherComputer, console: Console) -> int:
    async with computer.connect() as host:
        conversation = find_row_by_prefix(await read_list(host), arguments.conversation)
        await host.run_host_command(TakeKeyBack(conversation))
    machine = computer.address.target
    if arguments.json:
        await console.print_line(json.dumps({"conversation": conversation, "machine": machine}))
        return 0
    await console.print_line(f"{machine} holds no key for this conversation now.")
    return 0


async def _print_conversation(
    arguments: Namespace, computer: OtherComputer, console: Console
) -> int:
    """Fetches a conversation's facts, which are what was recorded of it, and prints its
    messages.
    """
    from helix_desktop.commands.conversation_command import choose_messages, print_messages

    followed = FollowedConversation()
    async with computer.connect() as host:
        conversation = find_row_by_prefix(await read_list(host), arguments.conversation)
        follower = await host.follow_conversation(conversation)
        while not followed.has_caught_up:
            for event in await follower.next_events():
                followed.apply_event(event)
    messages = choose_messages(arguments, followed.state.facts)
    await print_messages(arguments, messages, (), console)
    return 0
