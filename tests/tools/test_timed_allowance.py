"""Everything is allowed for an hour, and not a moment longer."""

from __future__ import annotations

import pytest

from helix_desktop.tools.permission import ActionEffect, PermissionMode, ToolAction
from helix_desktop.tools.timed_allowance import SECONDS_OF_ALLOWANCE, TimedAllowance
from helix_desktop.tools.toolbox import WorkspacePermissions

EDIT = ToolAction("edit_file", ActionEffect.EDIT, "", "", path="a.txt")


class TwoClocks:
    def __init__(self) -> None:
        self.date = 1_000_000.0
        self.steady = 50.0

    def build_allowance(self) -> TimedAllowance:
        return TimedAllowance(lambda: self.date, lambda: self.steady)


@pytest.mark.parametrize(
    "mode", [PermissionMode.READ_ONLY, PermissionMode.PLAN, PermissionMode.ASK]
)
def test_a_change_is_allowed_within_the_hour_and_decided_by_the_saved_mode_after_it(
    mode: PermissionMode,
) -> None:
    clocks = TwoClocks()
    permissions = WorkspacePermissions(mode, allowance=clocks.build_allowance())
    saved = permissions.decide_for_conversation(EDIT, "c").verdict
    assert saved != "allow"
    permissions.allowance.begin_hour()
    clocks.steady += SECONDS_OF_ALLOWANCE - 1
    clocks.date += SECONDS_OF_ALLOWANCE - 1
    assert permissions.decide_for_conversation(EDIT, "c").verdict == "allow"
    clocks.steady += 1
    assert permissions.decide_for_conversation(EDIT, "c").verdict == saved


def test_a_computer_that_slept_does_not_make_the_hour_longer() -> None:
    clocks = TwoClocks()
    allowance = clocks.build_allowance()
    allowance.begin_hour()
    clocks.date += SECONDS_OF_ALLOWANCE  # The steady clock stood still.
    assert not allowance.is_hour_running()


def test_a_date_that_is_set_back_neither_makes_the_hour_longer_nor_revives_it() -> None:
    clocks = TwoClocks()
    allowance = clocks.build_allowance()
    allowance.begin_hour()
    clocks.date -= 10 * SECONDS_OF_ALLOWANCE
    clocks.steady += SECONDS_OF_ALLOWANCE
    assert not allowance.is_hour_running()
    clocks.steady = 50.0
    assert not allowance.is_hour_running()


def test_an_hour_can_be_ended_before() -> None:
    allowance = TwoClocks().build_allowance()
    allowance.begin_hour()
    allowance.end_hour()
    assert not allowance.is_hour_running()
