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
_OLDER = (  # For agents without "config options": where the values are, and how to set one.
    ("mode", "currentModeId", "availableModes", "id", ("session/set_mode", "modeId")),
    ("model", "currentModelId", "availableModels", "modelId", ("session/set_model", "modelId")),
)


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
        switched = (
            {parameter: value == "true", "type": "boolean"}
            if self.values is _SWITCH
            else {parameter: value}
        )
        return method, {"configId": self.id, **switched}


def parse_agent_commands(update: Mapping[str, Any]) -> dict[str, str]:
    """Returns the agent's own slash commands by name, with their descriptions."""
    offered = objects_at(update, "availableCommands")[:MOST]
    return {text_at(each, "name")[:LONGEST_NAME]: text_at(each, "description") for each in offered}


def parse_agent_choices(answer: Mapping[str, Any]) -> dict[str, AgentChoice]:
    """Returns the options by id, from an update or from the answer to a session request."""
    found = {}
    for each in objects_at(answer, "configOptions"):
        groups = [one for one in objects_at(each, "options") if list_at(one, "options")]
        offered = [value for one in groups or [each] for value in objects_at(one, "options")]
        values = {text_at(value, "value"): text_at(value, "name") for value in offered[:MOST]}
        name, identity, current = (
            text_at(each, "name"),
            text_at(each, "id"),
            text_at(each, "currentValue"),
        )
        if text_at(each, "type") == "boolean":
            values, current = _SWITCH, str(each.get("currentValue")).lower()
        found[identity] = AgentChoice(identity, name, current, values)
    for identity, current, offer, key, setter in _OLDER:
        values = {
            text_at(value, key): text_at(value, "name")
            for value in objects_at(answer, f"{identity}s", offer)[:MOST]
        }
        if values and identity not in found:
            chosen = text_at(answer, f"{identity}s", current)
            found[identity] = AgentChoice(identity, identity.title(), chosen, values, setter)
    return found
