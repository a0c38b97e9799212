"""The order of conversations is the order in which they were used, whatever the clock said."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from helix_desktop.workbench.times_of_last_use import TimesOfLastUse, Use, believable_times

NOW = 1_790_000_000.0
DAY = 86_400.0
YEAR = 365 * DAY


@dataclass
class Computer:
    """Its clock is wrong by some seconds, and the monotonic one is not."""

    steady: float = 0.0
    wrong_by: float = 0.0

    def date(self) -> float:
        return NOW + self.steady + self.wrong_by


def in_order(times: dict[str, float]) -> list[str]:
    return sorted(times, key=lambda name: times[name])


def test_times_in_order_stay_as_they_are() -> None:
    uses = {"a": Use(1, NOW - 3), "b": Use(7, NOW - 2), "c": Use(9, NOW - 1)}
    assert believable_times(uses, NOW) == {"a": NOW - 3, "b": NOW - 2, "c": NOW - 1}


def test_what_was_used_while_the_clock_was_ahead_does_not_stand_on_top_for_a_year() -> None:
    uses = {"a": Use(1, NOW - 9), "ahead": Use(2, NOW + YEAR), "c": Use(3, NOW - 5)}
    times = believable_times(uses, NOW)
    assert in_order(times) == ["a", "ahead", "c"]
    assert NOW - 9 < times["ahead"] < NOW - 8


def test_what_was_used_while_the_clock_was_behind_does_not_stand_at_the_end() -> None:
    uses = {"a": Use(1, NOW - 9), "behind": Use(2, 12.0), "c": Use(3, NOW - 5)}
    times = believable_times(uses, NOW)
    assert in_order(times) == ["a", "behind", "c"]
    assert NOW - 9 < times["behind"] < NOW - 8


def test_before_the_first_believable_use_others_stay_in_their_order() -> None:
    uses = {"x": Use(1, NOW + YEAR), "y": Use(2, NOW + 2 * YEAR), "z": Use(3, NOW - 5)}
    times = believable_times(uses, NOW)
    assert in_order(times) == ["x", "y", "z"]
    assert times["z"] == NOW - 5


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_clock_does_the_order_is_that_of_the_uses(seed: int) -> None:
    """Live, and again as after each start of the program."""
    chance = random.Random(seed)
    computer = Computer()
    live = TimesOfLastUse(computer.date, lambda: computer.steady)
    uses: dict[str, Use] = {}
    shown: dict[str, float] = live.set_all_uses(uses)
    for number in range(1, 60):
        computer.steady += chance.choice([0.0, 1.0, 60.0, DAY])
        if chance.random() < 0.2:
            computer.wrong_by = chance.choice(
                [0.0, YEAR, -YEAR, -3_600.0, 3_600.0, 1_000 - NOW, 0.5, -0.5, 20 * YEAR]
            )
        name = f"c{chance.randrange(12)}"
        uses.pop(name, None)
        uses[name] = Use(number, computer.date())
        shown.update(live.note_use(name, computer.date()))
        assert in_order(shown) == list(uses)
        assert max(shown.values()) <= computer.date() + 61
        if chance.random() < 0.2:
            live = TimesOfLastUse(computer.date, lambda: computer.steady)
            shown = live.set_all_uses(uses)
            assert in_order(shown) == list(uses)
