"""What can be chosen for a conversation in an editor: mode, model, how long it thinks, how context is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    UnstructuredCommandInput,
)

from helix_desktop.engine import context_policy
from helix_desktop.errors import InvalidInput

if TYPE_CHECKING:
    from helix_desktop.workbench import Workbench

MOST_MODELS = 300
_EFFORTS = {"usual": "As usual", "low": "Low", "medium": "Medium", "high": "High"}


def build_modes(bench: Workbench) -> SessionModeState:
    """The permission modes; they are the workspace's, so all its conversations share the one that is chosen."""
    modes = [SessionMode(id=mode, name=name) for mode, name in bench.describe_permission_modes().items()]
    return SessionModeState(current_mode_id=bench.permission_mode, available_modes=modes)


def build_options(bench: Workbench, conversation: str) -> list[Any]:
    """Each with its choices and the one that holds."""
    model = bench.model_of_conversation(conversation)
    names = list(dict.fromkeys([*filter(None, [model]), *bench.models.list_known_names()]))[:MOST_MODELS]
    settings = bench.workspace.settings
    presets = {name: name.capitalize() for name in context_policy.PRESETS}
    return [
        _build_select("mode", "Mode", bench.permission_mode, bench.describe_permission_modes(), category="mode"),
        _build_select("model", "Model", model, {name: name for name in names or [""]}, category="model"),
        _build_select("effort", "Thinking", settings.effort or "usual", _EFFORTS, category="thought_level"),
        _build_select("policy", "Context", bench.policy_name, presets, about=context_policy.PRESETS),
    ]


def _build_select(
    identity: str,
    name: str,
    current: str,
    choices: Mapping[str, str],
    *,
    category: Any = None,
    about: Mapping[str, str] = {},
) -> SessionConfigOptionSelect:
    options = [
        SessionConfigSelectOption(value=value, name=label or "None chosen", description=about.get(value))
        for value, label in choices.items()
    ]
    return SessionConfigOptionSelect(
        type="select", id=identity, name=name, category=category, current_value=current, options=options
    )


async def choose_option(bench: Workbench, conversation: str, identity: str, value: str, *, is_begun: bool) -> None:
    """Takes a choice up. A mode, an effort and a policy hold for the workspace, a model for the conversation."""
    match identity:
        case "mode":
            await bench.choose_permission_mode(value)
        case "model" if is_begun:
            await bench.set_conversation_model(conversation, value)
        case "model":
            bench.use_conversation_model(conversation, value)
        case "effort" if value in _EFFORTS:
            await bench.change_settings({"effort": None if value == "usual" else value})
        case "policy":
            await bench.choose_context_policy(value)
        case _:
            raise InvalidInput(f"{identity[:80]} has no choice {value[:80]}.")


def build_choice_updates(bench: Workbench, conversation: str) -> list[Any]:
    """What holds now, for an editor that did not choose it itself."""
    return [
        CurrentModeUpdate(session_update="current_mode_update", current_mode_id=bench.permission_mode),
        ConfigOptionUpdate(session_update="config_option_update", config_options=build_options(bench, conversation)),
    ]


def build_commands_update(bench: Workbench) -> AvailableCommandsUpdate:
    """The slash commands of the workspace: those of its folders, skills, and prompts of its servers."""
    commands = [
        AvailableCommand(
            name=item.name,
            description=item.about or item.name,
            input=AvailableCommandInput(root=UnstructuredCommandInput(hint="arguments")),
        )
        for item in bench.list_slash_commands()
    ]
    return AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)
