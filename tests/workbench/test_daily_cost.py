from __future__ import annotations

import time

import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.facts import Purpose, Recorded, Spent, Text, Usage, UserSaid
from helix_desktop.workbench.conversation_list_rows import DailyCost, facts_paid_here, last_midnight


def cost(dollars: float, at: float) -> Recorded:
    return Recorded("c", 1, at, Spent(Purpose.OTHER, "m", Usage(cost=dollars)))


def test_what_was_spent_today_counts_and_nothing_else() -> None:
    today = DailyCost()
    now = time.time()
    for recorded in (
        cost(2, now),
        cost(4, last_midnight() - 1),
        Recorded("c", 2, now, UserSaid((Text("hello"),))),
    ):
        today.add_cost_if_today(recorded)
    assert today.cost_today == 2


def test_the_next_day_begins_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    today = DailyCost()
    now = time.time()
    today.add_cost_if_today(cost(2, now))
    monkeypatch.setattr(
        "helix_desktop.workbench.conversation_list_rows.time.time", lambda: now + 86_400
    )
    today.add_cost_if_today(cost(3, now + 86_400))
    today.add_cost_if_today(cost(5, now))
    assert today.cost_today == 3


def test_what_was_spent_yesterday_keeps_nobody_from_working_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    today = DailyCost()
    now = time.time()
    today.add_cost_if_today(cost(2, now))
    monkeypatch.setattr(
        "helix_desktop.workbench.conversation_list_rows.time.time", lambda: now + 86_400
    )
    assert today.cost_today == 0


@pytest.mark.usefixtures("clocks_changed_today")
def test_a_day_on_which_the_clocks_change_begins_at_midnight_too() -> None:
    assert time.localtime().tm_isdst
    assert time.localtime(last_midnight())[3:6] == (0, 0, 0)
    assert time.localtime(last_midnight())[:3] == time.localtime()[:3]


def _paid(*told: facts.Fact) -> list[int]:
    return [
        one.seq
        for one in facts_paid_here(
            [facts.Recorded("c", at, 0.0, fact) for at, fact in enumerate(told, 1)]
        )
    ]


def test_what_others_paid_is_not_paid_here() -> None:
    spent = facts.Spent(facts.Purpose.OTHER, "m", facts.Usage(cost=1.0))
    fork = facts.ConversationStarted(forked_from="x")
    assert _paid() == []
    assert _paid(spent, spent) == [1, 2]
    assert _paid(spent, facts.BroughtIn(facts.Origin(), "", 1), spent) == [2, 3]
    assert _paid(spent, spent, facts.BroughtIn(facts.Origin(), "", 2), spent) == [1, 3, 4]
    assert _paid(spent, fork, spent) == [2, 3]
    assert _paid(spent, fork, spent, fork, spent) == [4, 5], (
        "a fork of a fork began with what that one paid"
    )


def test_what_was_paid_here_is_found_in_one_pass() -> None:
    """Of 18,000 replies that an agent brought in 1,200 parts, a gateway that was
    started again compared each with each.
    """
    compared: list[object] = []

    class Number(int):
        def __le__(self, other: int) -> bool:
            compared.append(other)
            return int(self) <= other

        def __lt__(self, other: int) -> bool:
            compared.append(other)
            return int(self) < other

        def __gt__(self, other: int) -> bool:
            return not self <= other

    spent = facts.Spent(facts.Purpose.OTHER, "m", facts.Usage(cost=1.0))
    told = [
        fact
        for at in range(200)
        for fact in (spent, facts.BroughtIn(facts.Origin(), "", Number(2 * at + 1)))
    ]
    assert not set(_paid(*told)) & set(range(1, 400, 2)), "each was brought"
    assert len(compared) < 4 * len(told)
