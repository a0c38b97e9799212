"""The modes, models and options of a foreign agent, as it offers them and as they are set."""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.acp_client import agent_choices
from helix_desktop.acp_client.agent_choices import AgentChoice
from helix_desktop.errors import NotFound


def option(name: str, current: Any, *values: str, **more: Any) -> dict[str, Any]:
    offered = [{"value": value, "name": value.title()} for value in values]
    return {"id": name, "name": name.title(), "currentValue": current, "options": offered, **more}


def test_an_option_has_its_values_by_their_names_and_is_set_by_its_id() -> None:
    found = agent_choices.parse_agent_choices(
        {"configOptions": [option("effort", "low", "low", "high")]}
    )
    assert found == {
        "effort": AgentChoice("effort", "Effort", "low", {"low": "Low", "high": "High"})
    }
    assert found["effort"].request_for_value("high") == (
        "session/set_config_option", {"configId": "effort", "value": "high"},
    )  # fmt: skip


def test_values_in_groups_are_offered_like_others() -> None:
    groups = [
        {"name": "One", "options": [{"value": "a", "name": "A"}]},
        {"name": "Two", "options": [{"value": "b", "name": "B"}, {"value": "c", "name": "C"}]},
    ]
    found = agent_choices.parse_agent_choices(
        {"configOptions": [option("model", "b", options=groups)]}
    )
    assert found["model"].values == {"a": "A", "b": "B", "c": "C"}


@pytest.mark.parametrize(("current", "shown"), [(True, "true"), (False, "false"), (None, "none")])
def test_a_switch_is_on_or_off_and_is_set_as_a_boolean(current: object, shown: str) -> None:
    told = {"configOptions": [option("web", current, type="boolean")]}
    switch = agent_choices.parse_agent_choices(told)["web"]
    assert (switch.current, switch.values) == (shown, {"true": "On", "false": "Off"})
    for value, sent in (("true", True), ("false", False)):
        _, values = switch.request_for_value(value)
        assert values == {"configId": "web", "value": sent, "type": "boolean"}


def test_older_agents_offer_modes_and_models_in_fields_of_their_own() -> None:
    told = {
        "modes": {
            "currentModeId": "plan",
            "availableModes": [{"id": "plan", "name": "Plan"}, {"id": "act", "name": "Act"}],
        },
        "models": {
            "currentModelId": "m1",
            "availableModels": [{"modelId": "m1", "name": "One"}, {"modelId": "m2", "name": "Two"}],
        },
    }
    found = agent_choices.parse_agent_choices(told)
    assert (found["mode"].name, found["mode"].current) == ("Mode", "plan")
    assert found["mode"].request_for_value("act") == ("session/set_mode", {"modeId": "act"})
    assert found["model"].current == "m1"
    assert found["model"].request_for_value("m2") == ("session/set_model", {"modelId": "m2"})


def test_a_newer_option_of_the_same_name_counts_and_an_empty_offer_does_not() -> None:
    modes = {"currentModeId": "old", "availableModes": [{"id": "old", "name": "Old"}]}
    told = {"configOptions": [option("mode", "new", "new")], "modes": modes, "models": {}}
    found = agent_choices.parse_agent_choices(told)
    assert [*found] == ["mode"]
    assert found["mode"].current == "new"
    assert agent_choices.parse_agent_choices({}) == {}


def test_a_value_that_is_not_offered_is_refused_with_those_that_are() -> None:
    choice = AgentChoice("mode", "Mode", "plan", {"plan": "Plan", "act": "Act"})
    with pytest.raises(NotFound, match="does not offer fly for Mode") as raised:
        choice.request_for_value("fly")
    assert raised.value.remedy == "Available: plan, act."
    with pytest.raises(NotFound) as raised:
        choice.request_for_value("x" * 200)
    assert "x" * 80 in raised.value.what
    assert "x" * 81 not in raised.value.what


def test_no_more_is_read_of_an_offer_than_a_person_could_choose_from() -> None:
    most = agent_choices.MOST_OFFERED
    names = [f"v{number}" for number in range(most + 1)]
    found = agent_choices.parse_agent_choices({"configOptions": [option("x", "v0", *names)]})
    assert [*found["x"].values] == names[:most]
    models = [{"modelId": name, "name": name} for name in names]
    found = agent_choices.parse_agent_choices({"models": {"availableModels": models}})
    assert [*found["model"].values] == names[:most]
    offered = [{"name": name, "description": "d"} for name in names]
    assert [*agent_choices.parse_agent_commands({"availableCommands": offered})] == names[:most]


def test_commands_are_known_by_a_name_of_bounded_length() -> None:
    offered = [{"name": "x" * 200, "description": "long"}, {"name": "go", "description": "Go on"}]
    found = agent_choices.parse_agent_commands({"availableCommands": offered})
    assert found == {"x" * 100: "long", "go": "Go on"}
    assert agent_choices.parse_agent_commands({}) == {}


def test_no_more_choices_are_read_than_a_person_could_see_and_none_of_endless_words() -> None:
    """The defect: choices without number and descriptions of any length stayed in memory."""
    many = [{"id": str(number), "name": "n" * 10_000} for number in range(5_000)]
    choices = agent_choices.parse_agent_choices({"configOptions": many})
    assert len(choices) <= 50
    assert max(len(choice.name) for choice in choices.values()) <= 100
    value = {"value": "v" * 100_000, "name": "x"}
    option = {"id": "model", "options": [value, {"value": "a", "name": "b" * 10_000}]}
    (choice,) = agent_choices.parse_agent_choices({"configOptions": [option]}).values()
    assert choice.values == {"a": "b" * 100}
    described = {"availableCommands": [{"name": "x", "description": "d" * 100_000}]}
    assert len(agent_choices.parse_agent_commands(described)["x"]) == 2_000
