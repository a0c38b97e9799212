"""`resources/command_line.json` repeats values that the program declares elsewhere:
they must be the same.
"""

from collections.abc import Iterable

import pytest

from helix_desktop.commands import options_of_command
from helix_desktop.commands.model_command import FIGURES
from helix_desktop.engine.facts import ModelRole
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.replay.simulated_recalls import RecallMode
from helix_desktop.replay.stand_in_model import KINDS
from helix_desktop.store.fleet_tasks import FleetTaskState


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        ("task list", "--state STATE", FleetTaskState),
        ("replay", "--recalls KIND", RecallMode),
        ("replay", "--stand-in KIND", KINDS),
    ],
)
def test_an_option_offers_the_values_that_the_program_knows(
    command: str, option: str, values: Iterable[str]
) -> None:
    given = options_of_command(command)[option]
    assert given is not None
    assert not isinstance(given, str)
    assert given["choices"] == [*values]


def test_a_model_can_be_chosen_for_each_role_and_its_figures_can_be_overridden() -> None:
    options = options_of_command("model set")
    assert f"--role {'|'.join(ModelRole)}" in options
    assert [f"--{name.replace('_', '-')} N" for name in FIGURES] == [
        name for name in options if name.endswith(" N")
    ]


def test_a_conversation_can_be_restored_for_each_agent() -> None:
    given = options_of_command("conversation restore")["--to WHERE"]
    assert given is not None
    assert not isinstance(given, str)
    assert given["metavar"] == "|".join((*AGENTS_TO_CONTINUE_IN, "FILE"))
