"""Reads which modes, models and other options a foreign agent lets the user choose."""

from collections.abc import Mapping
from typing import Any

from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import list_at, objects_at, text_at

MOST_CHOICES = 50  # At most this many choices of an agent are read.
MOST_OFFERED = 500  # At most this many values of one choice, and this many commands, are read.
LONGEST_NAME = 100
LONGEST_DESCRIPTION = 2_000
LONGEST_VALUE = 1_000  # A longer value or id is not offered: only the whole one could be sent back.
_SWITCH = {"true": "On", "false": "Off"}  # The values of a boolean option, as the user sees them.


@dataclass(frozen=True, slots=True)
class ChoiceSetter:
    """The method that sets a choice, and which of its parameters takes the value."""

    method: str
    parameter: str


_SET_OPTION = ChoiceSetter("session/set_config_option", "value")


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An option with its possible `values`, which map to names for people."""

    id: str
    name: str
    current: str
    values: Mapping[str, str]
    setter: ChoiceSetter = _SET_OPTION

    def request_for_value(self, value: str) -> tuple[str, dict[str, Any]]:
        """Returns the method and parameters that set the value. NotFound if the agent
        does not offer it.
        """
        if value not in self.values:
            raise NotFound(
                f"The agent does not offer {value[:80]} for {self.name}.",
                remedy=f"Available: {', '.join(self.values)}.",
            )
        method = self.setter.method
        params: dict[str, Any] = {self.setter.parameter: value}
        if self.setter == _SET_OPTION:
            params["configId"] = self.id
        if self.values is _SWITCH:
            params[self.setter.parameter] = value == "true"
            params["type"] = "boolean"
        return method, params


@dataclass(frozen=True, slots=True)
class OlderChoice:
    """Where an agent without "config options" has the values of a choice, and how one is set."""

    id: str
    current_field: str
    offer_field: str
    value_field: str
    setter: ChoiceSetter


_OLDER_CHOICES = (
    OlderChoice(
        id="mode",
        current_field="currentModeId",
        offer_field="availableModes",
        value_field="id",
        setter=ChoiceSetter("session/set_mode", "modeId"),
    ),
    OlderChoice(
        id="model",
        current_field="currentModelId",
        offer_field="availableModels",
        value_field="modelId",
        setter=ChoiceSetter("session/set_model", "modelId"),
    ),
)


def parse_agent_commands(update: Mapping[str, Any]) -> dict[str, str]:
    """Returns the agent's own slash commands by name, with their descriptions."""
    commands: dict[str, str] = {}
    for offered in objects_at(update, "availableCommands")[:MOST_OFFERED]:
        name = text_at(offered, "name")[:LONGEST_NAME]
        commands[name] = text_at(offered, "description")[:LONGEST_DESCRIPTION]
    return commands


def parse_agent_choices(answer: Mapping[str, Any]) -> dict[str, AgentChoice]:
    """Returns the options by id, from an update or from the answer to a session request."""
    choices: dict[str, AgentChoice] = {}
    for option in objects_at(answer, "configOptions")[:MOST_CHOICES]:
        choice = _choice_of_option(option)
        if len(choice.id) <= LONGEST_VALUE:
            choices[choice.id] = choice
    for older in _OLDER_CHOICES:
        offered = objects_at(answer, f"{older.id}s", older.offer_field)
        if offered and older.id not in choices:
            current = text_at(answer, f"{older.id}s", older.current_field)
            choices[older.id] = _choice_without_option(older, current, offered)
    return choices


def _choice_without_option(
    older: OlderChoice, current: str, offered: list[dict[str, Any]]
) -> AgentChoice:
    """Returns a mode or model as the protocol had them before there were config options."""
    values: dict[str, str] = {}
    for offered_value in offered[:MOST_OFFERED]:
        value = text_at(offered_value, older.value_field)
        _add_value(values, value, text_at(offered_value, "name"))
    return AgentChoice(
        id=older.id,
        name=older.id.title(),
        current=current,
        values=values,
        setter=older.setter,
    )


def _add_value(values: dict[str, str], value: str, name: str) -> None:
    if len(value) <= LONGEST_VALUE:
        values[value] = name[:LONGEST_NAME]


def _choice_of_option(option: Mapping[str, Any]) -> AgentChoice:
    option_id = text_at(option, "id")
    name = text_at(option, "name")[:LONGEST_NAME]
    if text_at(option, "type") == "boolean":
        current = str(option.get("currentValue")).lower()
        return AgentChoice(option_id, name, current, _SWITCH)

    # The values may be in groups, each with a heading of its own.
    groups: list[Mapping[str, Any]] = []
    for entry in objects_at(option, "options"):
        if list_at(entry, "options"):
            groups.append(entry)
    if not groups:
        groups.append(option)

    offered: list[dict[str, Any]] = []
    for group in groups:
        offered.extend(objects_at(group, "options"))
    values: dict[str, str] = {}
    for entry in offered[:MOST_OFFERED]:
        value = text_at(entry, "value")
        _add_value(values, value, text_at(entry, "name"))
    current = text_at(option, "currentValue")
    return AgentChoice(option_id, name, current, values)
