"""What is checked before a message is sent by a command, so that nothing is begun for one that fails."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

from helix_desktop.engine.facts import ModelRole
from helix_desktop.engine.session import Session
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput
from helix_desktop.workbench.open_workbench import Workbench


async def check_slash_command(bench: Workbench, text: str, session: Session | None) -> None:
    """Refuses an unknown or untrusted command. A message may begin with a path."""
    first_word = re.match(r"/([\w:.-]+)(?!\S)", text)
    if first_word is None:
        return
    word_with_slash = first_word[0]
    command_name = first_word[1]
    is_path = await asyncio.to_thread(Path(word_with_slash).exists)
    if is_path:
        return
    server = command_name.partition(":")[0]
    if server in bench.workspace.settings.mcp:  # The server may still be starting.
        return
    await bench.project.reread_project_folders()
    if session is not None and session.conversation.state.acp_agent:
        return  # The agent has commands of its own.
    known_commands = bench.slash_commands.list_slash_commands()
    if any(item.name == command_name for item in known_commands):
        return
    for item in bench.project.now.items:
        if item.kind in ("command", "skill") and item.name == command_name:
            raise ActionRefused(
                f"{word_with_slash} is {item.state_description}. Nothing was sent.",
                remedy=f"See `project show {item.settings_key}`, then use `project trust` or `project on`.",
            )
    raise InvalidInput(
        f"There is no command or skill {word_with_slash}. Nothing was sent.",
        remedy="To see the commands and skills, run `project list`. To send a text that begins with / as it is, put a space before it.",
    )


def check_chosen_model(bench: Workbench, model: str, *, is_needed: bool) -> None:
    """Refuses a model that is not known, and none where one `is_needed`."""
    if model:
        bench.models.model_by_name(model)
    elif is_needed and not bench.main_model_name:
        raise no_model_chosen_error(bench)


def use_recorded_model(bench: Workbench, session: Session) -> None:
    """Let a conversation go on with the model that it was begun with, where the workspace has none."""
    if bench.model_of_conversation(session.id):
        return
    recorded = session.conversation.state.settings.model_for_role(ModelRole.MAIN)
    if recorded is not None:
        # The history of another program names models that nobody has connected here.
        with suppress(HelixError):
            bench.set_model_until_closed(session.id, recorded.model)


def no_model_chosen_error(bench: Workbench) -> InvalidInput:
    return InvalidInput(
        f"No model has been chosen for {bench.name}.",
        remedy="Choose a model with --model or `helix-desktop model set`.",
    )
