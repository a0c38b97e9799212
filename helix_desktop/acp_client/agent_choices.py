"""Reads which modes, models and other options a foreign agent lets the user choose."""

from collections.abc import Mapping
from typing import Any

from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import list_at, objects_at, text_at

MOST = 500  # At most this many values of one choice, and this many commands, are read.
LONGEST_NAME = 100
_OPTION = ("session/set_config_option", "value")
_SWITCH = {"true": "On", "false": "Off"}  # The values of a boolean option, as the user sees them.


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An option with its possible `values`, which map to names for people. `setter` is
    a method and its parameter.
    """

    id: str
    name: str
    current: str
    values: Mapping[str, str]
    setter: tuple[str, str] = _OPTION

    def request_for_value(self, value: str) -> tuple[str, dict[str, Any]]:
        """Returns the method and parameters that set the value. NotFound if the agent
        does not offer it.
        """
        if value not in self.values:
            raise NotFound(
                f"The agent does not offer {value[:80]} for {self.name}.",
                remedy=f"Available: {', '.join(self.values)}.",
            )
        method, parameter = self.setter
        if self.setter != _OPTION:
            return method, {parameter: value}
        if self.values is _SWITCH:
            is_on = value == "true"
            return method, {"configId": self.id, parameter: is_on, "type": "boolean"}
        return method, {"configId": self.id, parameter: value}


@dataclass(frozen=True, slots=True)
class OlderChoice:
    """Where an agent without "config options" has the values of a choice, and how one is set."""

    id: str
    current_field: str
    offer_field: str
    value_field: str
    setter: tuple[str, str]


_OLDER_CHOICES = (
    OlderChoice("mode", "currentModeId", "availableModes", "id", ("session/set_mode", "modeId")),
    OlderChoice(
        "model", "currentModelId", "availableModels", "modelId", ("session/set_model", "modelId")
    ),
)


def parse_agent_commands(update: Mapping[str, Any]) -> dict[str, str]:
    """Returns the agent's own slash commands by name, with their descriptions."""
    commands: dict[str, str] = {}
    for offered in objects_at(update, "availableCommands")[:MOST]:
        name = text_at(offered, "name")[:LONGEST_NAME]
        commands[name] = text_at(offered, "description")
    return commands


def parse_agent_choices(answer: Mapping[str, Any]) -> dict[str, AgentChoice]:
    """Returns the options by id, from an update or from the answer to a session request."""
    choices: dict[str, AgentChoice] = {}
    for option in objects_at(answer, "configOptions"):
        choice = _choice_of_option(option)
        choices[choice.id] = choice
    for older in _OLDER_CHOICES:
        offered = objects_at(answer, f"{older.id}s", older.offer_field)[:MOST]
        if offered and older.id not in choices:
            values: dict[str, str] = {}
            for value in offered:
                values[text_at(value, older.value_field)] = text_at(value, "name")
            current = text_at(answer, f"{older.id}s", older.current_field)
            name = older.id.title()
            choices[older.id] = AgentChoice(older.id, name, current, values, older.setter)
    return choices


def _choice_of_option(option: Mapping[str, Any]) -> AgentChoice:
    identity = text_at(option, "id")
    name = text_at(option, "name")
    if text_at(option, "type") == "boolean":
        return AgentChoice(identity, name, str(option.get("currentValue")).lower(), _SWITCH)
    # The values may be in groups, each with a heading of its own.
    holders: list[Mapping[str, Any]] = []
    for entry in objects_at(option, "options"):
        if list_at(entry, "options"):
            holders.append(entry)
    if not holders:
        holders.append(option)
    offered: list[dict[str, Any]] = []
    for holder in holders:
        offered += objects_at(holder, "options")
    values = {text_at(value, "value"): text_at(value, "name") for value in offered[:MOST]}
    return AgentChoice(identity, name, text_at(option, "currentValue"), values)
