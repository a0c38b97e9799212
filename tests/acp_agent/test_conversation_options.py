"""What an editor can choose for a conversation, and where each choice is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helix_desktop.acp_agent import conversation_options
from helix_desktop.acp_agent.conversation_options import (
    build_commands_update,
    build_config_options,
    build_mode_and_option_updates,
    build_modes_and_options,
    choose_option,
)
from helix_desktop.engine import context_policy
from helix_desktop.errors import InvalidInput
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.workbench import Workbench
from tests.workbench.conftest import Desks


@pytest.fixture
async def bench(desks: Desks, folder: Path) -> Workbench:
    return await desks().create_workspace("w", folder)


def options_of(bench: Workbench) -> dict[str, dict[str, Any]]:
    return {option["id"]: option for option in build_config_options(bench, "c")}


def values_of(option: dict[str, Any]) -> list[str]:
    return [choice["value"] for choice in option["options"]]


async def test_each_option_has_its_choices_by_name_and_says_which_is_in_force(
    bench: Workbench,
) -> None:
    options = options_of(bench)
    assert [*options] == ["mode", "model", "effort", "policy"]
    assert {option["type"] for option in options.values()} == {"select"}
    assert options["mode"]["currentValue"] == bench.permission_mode
    assert options["model"]["currentValue"] == ""
    assert options["model"]["options"][0] == {"value": "", "name": "None chosen"}
    assert options["effort"]["currentValue"] == "usual"
    assert values_of(options["effort"]) == ["usual", "low", "medium", "high"]
    assert options["policy"]["currentValue"] == bench.policy_name
    assert values_of(options["policy"]) == [*context_policy.PRESETS]
    assert options["policy"]["options"][0]["name"][0].isupper()
    categories = [option.get("category") for option in options.values()]
    assert categories == ["mode", "model", "thought_level", None]
    assert "category" not in options["policy"]


async def test_modes_are_told_beside_the_options_for_editors_that_know_only_these(
    bench: Workbench,
) -> None:
    told = build_modes_and_options(bench, "c")
    modes = told["modes"]
    assert modes["currentModeId"] == bench.permission_mode
    names = {mode["id"]: mode["name"] for mode in modes["availableModes"]}
    assert names == bench.describe_permission_modes()
    assert told["configOptions"] == build_config_options(bench, "c")


async def test_what_was_changed_elsewhere_is_told_as_mode_and_as_options(bench: Workbench) -> None:
    await bench.choose_permission_mode("plan")
    mode, options = build_mode_and_option_updates(bench, "c")
    assert mode == {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
    assert options["sessionUpdate"] == "config_option_update"
    assert options["configOptions"] == build_config_options(bench, "c")


async def test_the_model_in_use_comes_first_and_no_more_are_listed_than_can_be_read(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desks()
    bench = await desk.create_workspace("w", folder)
    desk.configured.save_provider(ProviderConfig("peer", base_url="http://127.0.0.1:9/v1"))
    desk.configured.correct_model("peer", "large", {"window": 8_000})
    assert values_of(options_of(bench)["model"]) == ["", "peer/large"]
    await bench.choose_model_for_role("demo/demo")
    assert values_of(options_of(bench)["model"]) == ["demo/demo", "peer/large"]
    monkeypatch.setattr(conversation_options, "MOST_MODELS", 1)
    assert values_of(options_of(bench)["model"]) == ["demo/demo"]


async def test_a_mode_an_effort_and_a_policy_are_the_workspaces(bench: Workbench) -> None:
    await choose_option(bench, "c", "mode", "read only", is_begun=False)
    await choose_option(bench, "c", "effort", "high", is_begun=False)
    other_policy = next(name for name in context_policy.PRESETS if name != bench.policy_name)
    await choose_option(bench, "c", "policy", other_policy, is_begun=False)
    assert bench.permission_mode == "read only"
    assert bench.workspace.settings.effort == "high"
    assert bench.policy_name == other_policy
    current = {name: option["currentValue"] for name, option in options_of(bench).items()}
    assert current["effort"] == "high"
    assert current["policy"] == other_policy
    await choose_option(bench, "c", "effort", "usual", is_begun=False)
    assert not bench.workspace.settings.effort, "as usual is no setting"


async def test_a_model_is_the_conversations_and_is_stored_once_that_has_begun(
    bench: Workbench,
) -> None:
    await choose_option(bench, "c", "model", "demo/demo", is_begun=False)
    assert bench.model_of_conversation("c") == "demo/demo"
    assert bench.main_model_name == ""
    assert bench.conversation_row("c") is None
    session = await bench.start_conversation()
    await choose_option(bench, session.id, "model", "demo/demo", is_begun=True)
    assert session.conversation.state.own_model == "demo/demo"


@pytest.mark.parametrize(
    ("option_id", "value"),
    [
        ("mode", "fly"),
        ("effort", "endless"),
        ("policy", "none of these"),
        ("colour", "red"),
        ("x" * 100, "y" * 100),
    ],
)
async def test_a_choice_that_is_not_offered_is_refused_and_changes_nothing(
    bench: Workbench, option_id: str, value: str
) -> None:
    before = build_config_options(bench, "c")
    with pytest.raises(InvalidInput) as refused:
        await choose_option(bench, "c", option_id, value, is_begun=False)
    assert str(refused.value).startswith(f"{option_id[:80]} has no choice {value[:80]}.")
    assert build_config_options(bench, "c") == before


async def test_commands_are_told_with_what_they_do_or_their_name(
    bench: Workbench, folder: Path
) -> None:
    commands = folder / ".claude" / "commands"
    commands.mkdir(parents=True)
    (commands / "review.md").write_text("---\ndescription: Looks at the changes\n---\nReview.\n")
    (commands / "plain.md").write_text("")
    items = await bench.project.reread_project_folders()
    await bench.project.trust_items(*items.items)
    told = build_commands_update(bench)
    assert told["sessionUpdate"] == "available_commands_update"
    described = {command["name"]: command["description"] for command in told["availableCommands"]}
    assert described == {"review": "Looks at the changes", "plain": "plain"}
    hints = [command["input"]["hint"] for command in told["availableCommands"]]
    assert hints == ["arguments", "arguments"]
