from __future__ import annotations

import time

import pytest

from helix_desktop.engine.facts import Purpose, Recorded, Spent, Text, Usage, UserSaid
from helix_desktop.workbench.conversation_list_rows import DailyCost, last_midnight


def cost(dollars: float, at: float) -> Recorded:
    return Recorded("c", 1, at, Spent(Purpose.OTHER, "m", Usage(cost=dollars)))


def test_what_was_spent_today_counts_and_nothing_else() -> None:
    today, now = DailyCost(), time.time()
    for recorded in (cost(2, now), cost(4, last_midnight() - 1), Recorded("c", 2, now, UserSaid((Text("hello"),)))):
        today.add_cost_if_today(recorded)
    assert today.cost_today == 2


def test_the_next_day_begins_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    today, now = DailyCost(), time.time()
    today.add_cost_if_today(cost(2, now))
    monkeypatch.setattr("helix_desktop.workbench.conversation_list_rows.time.time", lambda: now + 86_400)
    today.add_cost_if_today(cost(3, now + 86_400))
    today.add_cost_if_today(cost(5, now))
    assert today.cost_today == 3


def test_what_was_spent_yesterday_keeps_nobody_from_working_today(monkeypatch: pytest.MonkeyPatch) -> None:
    today, now = DailyCost(), time.time()
    today.add_cost_if_today(cost(2, now))
    monkeypatch.setattr("helix_desktop.workbench.conversation_list_rows.time.time", lambda: now + 86_400)
    assert today.cost_today == 0


@pytest.mark.usefixtures("clocks_changed_today")
def test_a_day_on_which_the_clocks_change_begins_at_midnight_too() -> None:
    assert time.localtime().tm_isdst
    assert time.localtime(last_midnight())[3:6] == (0, 0, 0)
    assert time.localtime(last_midnight())[:3] == time.localtime()[:3]
