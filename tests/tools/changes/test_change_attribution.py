"""Which of the changes that are found belong to which step."""

from __future__ import annotations

from sys import maxsize

import pytest

from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.tools.changes.change_attribution import OpenStep, OpenSteps

CHECKPOINT = Digest.of_content(b"")


def change(path: str) -> PathChange:
    return PathChange(path, None, TreeItem(PathKind.FILE, 0o644, 1, path.encode()))


def begun(
    steps: OpenSteps, call: str = "call", conversation: str = "c", by: str = "command"
) -> OpenStep:
    steps.open.append(OpenStep(call, conversation, by, steps.checks, CHECKPOINT))
    return steps.open[-1]


def claimed(
    steps: OpenSteps, since: int, paths: set[str] | None = None, until: int = maxsize
) -> list[str]:
    return [one.path for one in steps.claim_unowned_changes(since, paths, until)]


def found(*names: str) -> OpenSteps:
    """Steps of which one is open, and a check after it for each of these files."""
    steps = OpenSteps()
    begun(steps)
    for name in names:
        steps.record_check(["0"], [change(name)])
    return steps


def test_changes_after_a_check_and_up_to_another_are_claimed_once() -> None:
    assert claimed(found("0/a", "0/b", "0/c"), 0) == ["0/a", "0/b", "0/c"]
    assert claimed(found("0/a", "0/b", "0/c"), 1) == ["0/b", "0/c"]
    assert claimed(found("0/a", "0/b", "0/c"), 1, until=2) == ["0/b"]
    steps = found("0/a", "0/b", "0/c")
    assert claimed(steps, 0, until=1) == ["0/a"]
    assert claimed(steps, 0, until=1) == []
    assert claimed(steps, 0) == ["0/b", "0/c"]


def test_a_step_that_names_its_paths_claims_them_and_the_folders_above_them() -> None:
    steps = OpenSteps()
    begun(steps)
    steps.record_check(
        ["0"], [change(path) for path in ("0/a", "0/new", "0/new/b", "0/newer", "0/new/c")]
    )
    assert claimed(steps, 0, {"0/new/b"}) == ["0/new", "0/new/b"]
    assert claimed(steps, 0, set()) == []
    assert claimed(steps, 0) == ["0/a", "0/new/c", "0/newer"]


def test_nothing_is_kept_where_no_step_is_open() -> None:
    steps = OpenSteps()
    steps.record_check(["0"], [change("0/a")])
    step = begun(steps)
    assert (steps.checks, step.since_check, claimed(steps, 0)) == (1, 1, [])
    steps.record_check(["0/x", "0/y"], [])
    assert (steps.checks, step.met) == (2, {"0/x", "0/y"})


def test_what_no_open_step_can_claim_any_more_is_let_go() -> None:
    steps = OpenSteps()
    first = begun(steps)
    steps.record_check(["0"], [change("0/a")])
    second = begun(steps)
    steps.record_check(["0"], [change("0/b")])
    assert sorted(steps.unclaimed) == [1, 2]
    steps.close_open_step(first)
    assert sorted(steps.unclaimed) == [2], "the second one began after the first check"
    steps.close_open_step(second)
    assert steps.unclaimed == {}


@pytest.mark.parametrize("closes_first", [True, False])
def test_steps_are_those_of_their_conversation_until_they_end(closes_first: bool) -> None:
    steps = OpenSteps()
    one = begun(steps, "1")
    two = begun(steps, "2")
    other = begun(steps, "1", "another")
    assert steps.open_steps_of_conversation("c") == (one, two)
    steps.close_open_step(one if closes_first else two)
    assert steps.open_steps_of_conversation("c") == ((two,) if closes_first else (one,))
    assert steps.open_steps_of_conversation("another") == (other,)


def test_a_command_that_goes_on_in_the_background_is_that_of_its_call_and_only_once() -> None:
    steps = OpenSteps()
    one = begun(steps, "1")
    two = begun(steps, "2")
    assert steps.continue_in_background("2", "another") is None
    assert steps.continue_in_background("3", "c") is None
    assert steps.continue_in_background("2", "c") is two
    assert (two.changed_by, two.goes_on, one.goes_on) == ("background", True, False)
    assert steps.continue_in_background("2", "c") is None


def test_between_turns_changes_up_to_the_next_check_are_the_users() -> None:
    steps = OpenSteps()
    one = begun(steps, "1")
    two = begun(steps, "2")
    steps.record_check(["0"], [change("0/agent")])
    one.is_between_turns = True
    steps.disown_next_changes("another")
    assert one.is_between_turns
    steps.disown_next_changes("c")
    assert (one.since_check, one.is_between_turns, two.since_check) == (2, False, 0)
    steps.record_check(["0"], [change("0/user")])
    steps.record_check(["0"], [change("0/later")])
    assert claimed(steps, one.since_check) == ["0/later"]


def test_a_background_command_claims_nothing_from_the_first_check_of_a_call_that_runs() -> None:
    steps = OpenSteps()
    assert steps.first_check_of_calls() == maxsize
    background = begun(steps, "1")
    background.changed_by = "background"
    begun(steps, "tool", by="tool")
    assert steps.first_check_of_calls() == maxsize
    steps.checks = 3
    begun(steps, "2")
    steps.checks = 5
    begun(steps, "3")
    assert steps.first_check_of_calls() == 3
