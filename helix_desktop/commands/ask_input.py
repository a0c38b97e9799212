"""What `ask` is given: its words, its files and its options, wherever the turn then runs."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import errors
from helix_desktop.commands import workspace_access
from helix_desktop.console import Console
from helix_desktop.engine.facts import TurnEnd, TurnEnded, UserSaid

if TYPE_CHECKING:
    from helix_desktop.engine.view import ConversationState

LARGEST_ATTACHED = 200 << 20  # Bytes.


def check_ask_arguments(arguments: Namespace) -> None:
    has_message = bool(arguments.text or arguments.attach)
    if arguments.resume:
        if has_message or not arguments.conversation:
            raise errors.InvalidInput(
                "To resume a turn, specify its conversation with --conversation and no TEXT."
            )
    elif not arguments.text:
        raise errors.InvalidInput("There is no message.", remedy="Enter a message as TEXT, or use - to read standard input.")  # fmt: skip


async def read_message_text(arguments: Namespace, console: Console) -> str:
    text = " ".join(arguments.text)
    if text == "-":
        text = await workspace_access.read_whole_input(console)
    if not text.strip():
        raise errors.InvalidInput("The message is empty.")
    return text


async def read_attached_file(file: str) -> tuple[str, bytes]:
    """Returns the file's name and content. InvalidInput if it cannot be read."""
    path = Path(file)
    try:
        status = await asyncio.to_thread(path.stat)
        if status.st_size > LARGEST_ATTACHED:
            raise errors.InvalidInput(
                f"{path.name} is larger than 200 MB. Nothing was sent.",
                remedy="Name the file in the message instead.",
            )
        content = await asyncio.to_thread(path.read_bytes)
    except OSError as error:
        raise errors.InvalidInput(
            f"{file} could not be read: {error.strerror or error}. Nothing was sent."
        ) from error
    return path.name, content


def is_last_turn_complete(state: ConversationState) -> bool:
    """Whether the last turn is finished, or none was started."""
    for recorded in reversed(state.facts_on_path()):
        fact = recorded.fact
        if isinstance(fact, UserSaid):
            return False
        if isinstance(fact, TurnEnded):
            return fact.reason is TurnEnd.DONE
    return True
