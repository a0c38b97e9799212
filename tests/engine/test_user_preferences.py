"""What the user demands, and what of it was fulfilled or replaced since."""

from __future__ import annotations

import time

import pytest

from helix_desktop.engine.user_preferences import StatedDemand, UserPreferences


def in_force(preferences: UserPreferences) -> list[str]:
    return [demand.text for demand in preferences.demands if not demand.is_settled]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Use tabs in the parser.", "No, use spaces instead of tabs in the parser."),
        ("Never push to main.", "You may push to main now."),
        ("Always run the linter first.", "The linter is no longer needed, do not run the linter."),
        ("Nimm immer SQLite.", "Nimm statt SQLite die Datei."),
        ("Please use JSON for the export", "Forget JSON, please use CSV for the export"),
    ],
)
def test_a_demand_that_was_replaced_goes(earlier: str, later: str) -> None:
    preferences = UserPreferences()
    preferences.add_demand(earlier, 1)
    preferences.add_demand(later, 9)
    assert in_force(preferences) == [later]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Never touch main.py.", "Never touch other.py."),
        ("Use tabs in the parser.", "Run the tests instead of the linter."),
        ("You must keep rule 1", "You must keep rule 2"),
    ],
)
def test_a_demand_beside_another_stays(earlier: str, later: str) -> None:
    preferences = UserPreferences()
    preferences.add_demand(earlier, 1)
    preferences.add_demand(later, 9)
    assert in_force(preferences) == [earlier, later]


def test_a_task_that_was_worked_on_and_answered_is_fulfilled_once_the_user_goes_on() -> None:
    preferences = UserPreferences()
    preferences.add_demand("Split the reader from the writer", 1)
    preferences.add_demand("Never delete /srv/data", 1)
    preferences.add_answer()
    assert in_force(preferences) == ["Split the reader from the writer", "Never delete /srv/data"]
    preferences.add_next_message()
    preferences.add_demand("Now the tests", 5)
    assert in_force(preferences) == ["Never delete /srv/data", "Now the tests"]


@pytest.mark.parametrize(
    "review",
    [
        "server.py:88 never closes the file",
        "login() in src/server.py must check the token",
        "Please fix the typo in docs/server.py",
    ],
)
def test_what_names_a_file_is_fulfilled_once_that_file_was_changed(review: str) -> None:
    preferences = UserPreferences()
    preferences.add_demand(review, 1)
    preferences.add_changed_file("/home/me/other.py")
    preferences.add_answer()
    preferences.add_next_message()
    assert in_force(preferences) == [review]
    preferences.add_changed_file(
        "/home/me/docs/src/server.py" if "src" in review else "docs/server.py"
    )
    preferences.add_next_message()
    assert in_force(preferences) == []


@pytest.mark.parametrize(
    "rule",
    ["Never change main.py", "Keep a.py as it is, always", "Only use b.py", "main.py 不要修改"],
)
def test_a_lasting_rule_about_a_file_is_never_fulfilled(rule: str) -> None:
    preferences = UserPreferences()
    preferences.add_demand(rule, 1)
    for path in ("main.py", "a.py", "b.py"):
        preferences.add_changed_file(path)
    preferences.add_answer()
    preferences.add_next_message()
    assert in_force(preferences) == [rule]


def seconds_of_long_conversation(message_count: int, *, is_work_done: bool) -> float:
    preferences = UserPreferences()
    start = time.process_time()
    for number in range(message_count):
        preferences.add_next_message()
        preferences.add_demand(f"Write chapter {number}.", 3 * number)
        if is_work_done:
            preferences.add_changed_file(f"chapters/{number}.md")
            preferences.add_answer()
    return time.process_time() - start


@pytest.mark.parametrize("is_work_done", [True, False])
def test_a_long_conversation_costs_what_its_messages_cost_and_not_their_square(
    is_work_done: bool,
) -> None:
    """The summary of one with 100,000 messages went through all demands again at each of them."""
    short = min(seconds_of_long_conversation(500, is_work_done=is_work_done) for _ in range(3))
    assert seconds_of_long_conversation(8_000, is_work_done=is_work_done) < 64 * short


@pytest.mark.parametrize(
    ("is_task", "is_answered", "is_lasting", "files", "is_fulfilled"),
    [
        (True, True, False, (), True),
        (True, False, False, (), False),
        (False, True, False, (), False),
        (True, True, True, (), False),
        (True, True, False, ("a.py",), False),
    ],
)
def test_only_an_answered_task_is_fulfilled_by_an_answer(
    is_task: bool, is_answered: bool, is_lasting: bool, files: tuple[str, ...], is_fulfilled: bool
) -> None:
    demand = StatedDemand(
        "x", 1, 1, frozenset(), frozenset(files), is_lasting, is_task, is_answered
    )
    assert demand.is_fulfilled is is_fulfilled
