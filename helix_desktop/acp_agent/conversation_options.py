"""The options of a conversation that an editor can change: mode, model, effort and policy."""

from collections.abc import Mapping
from typing import Any

from helix_desktop.engine import context_policy
from helix_desktop.errors import InvalidInput
from helix_desktop.workbench import Workbench

MOST_MODELS = 300
_EFFORTS = {"usual": "As usual", "low": "Low", "medium": "Medium", "high": "High"}


def build_modes_and_options(bench: Workbench, conversation: str) -> dict[str, Any]:
    """Lists modes and options for the protocol. The permission mode is shared by the
    whole workspace.
    """
    available_modes: list[dict[str, str]] = []
    for mode, name in bench.describe_permission_modes().items():
        available_modes.append({"id": mode, "name": name})
    modes = {"currentModeId": bench.permission_mode, "availableModes": available_modes}
    options = build_config_options(bench, conversation)
    return {"modes": modes, "configOptions": options}


def build_config_options(bench: Workbench, conversation: str) -> list[dict[str, Any]]:
    """Lists what an editor can choose for a conversation: its own model comes first."""
    modes = bench.describe_permission_modes()
    mode = _build_select("mode", "Mode", bench.permission_mode, modes, "mode")
    model = _build_model_select(bench, conversation)
    chosen_effort = bench.workspace.settings.effort or "usual"
    effort = _build_select("effort", "Thinking", chosen_effort, _EFFORTS, "thought_level")
    presets = {name: name.capitalize() for name in context_policy.PRESETS}
    policy = _build_select("policy", "Context", bench.policy_name, presets, None)
    return [mode, model, effort, policy]


def _build_model_select(bench: Workbench, conversation: str) -> dict[str, Any]:
    chosen_model = bench.model_of_conversation(conversation)
    known_models = [chosen_model or ""]
    known_models += bench.models.list_known_model_names()
    different_models = list(dict.fromkeys(known_models))
    labels: dict[str, str] = {}
    for name in different_models[:MOST_MODELS]:
        labels[name] = name or "None chosen"
    return _build_select("model", "Model", chosen_model, labels, "model")


def _build_select(
    option_id: str, name: str, current: str, choices: Mapping[str, str], category: str | None
) -> dict[str, Any]:
    options: list[dict[str, str]] = []
    for value, label in choices.items():
        options.append({"value": value, "name": label})
    select: dict[str, Any] = {
        "type": "select",
        "id": option_id,
        "name": name,
        "currentValue": current,
        "options": options,
    }
    if category:
        select["category"] = category
    return select


async def choose_option(
    bench: Workbench, conversation: str, option_id: str, value: str, *, is_begun: bool
) -> None:
    """Sets an option. A mode, an effort or a policy is set for the workspace, a model
    for the conversation.
    """
    match option_id:
        case "mode" if value in bench.describe_permission_modes():
            await bench.choose_permission_mode(value)
        case "model" if is_begun:
            await bench.save_conversation_model(conversation, value)
        case "model":
            bench.set_model_until_closed(conversation, value)
        case "effort" if value in _EFFORTS:
            chosen_effort: str | None = value
            if value == "usual":  # No setting is made then.
                chosen_effort = None
            await bench.change_settings({"effort": chosen_effort})
        case "policy" if value in context_policy.PRESETS:
            await bench.choose_context_policy(value)
        case _:
            raise InvalidInput(f"{option_id[:80]} has no choice {value[:80]}.")


def build_mode_and_option_updates(bench: Workbench, conversation: str) -> list[dict[str, Any]]:
    """The current mode and options, for an editor when they were changed outside it."""
    mode_update = {"sessionUpdate": "current_mode_update", "currentModeId": bench.permission_mode}
    options = build_config_options(bench, conversation)
    option_update = {"sessionUpdate": "config_option_update", "configOptions": options}
    return [mode_update, option_update]


def build_commands_update(bench: Workbench) -> dict[str, Any]:
    """The workspace's slash commands: from its folders, from skills, and from prompts
    of MCP servers.
    """
    commands: list[dict[str, Any]] = []
    for command in bench.slash_commands.list_slash_commands():
        description = command.about or command.name
        described_command = {
            "name": command.name,
            "description": description,
            "input": {"hint": "arguments"},
        }
        commands.append(described_command)
    return {"sessionUpdate": "available_commands_update", "availableCommands": commands}
