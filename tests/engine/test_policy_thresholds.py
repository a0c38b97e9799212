"""Every threshold says what may be set, and is declared so that it can be."""

from __future__ import annotations

import pytest

from helix_desktop.engine.policy_thresholds import THRESHOLDS, Threshold


def declare(default: float | str | bool, **more: object) -> Threshold:
    return Threshold("name", "Group", "Title", "Sentence.", default, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        (declare("off", choices=("off", "pays")), "one of off, pays"),
        (declare(default=True), "true or false"),
        (declare(10, low=1, high=1_000, unit="steps"), "a whole number from 1 to 1000 steps"),
        (declare(0.5, low=0.05, high=1), "a number from 0.05 to 1"),
    ],
)
def test_what_may_be_set_is_said_as_a_person_would(threshold: Threshold, words: str) -> None:
    assert threshold.describe_allowed_values() == words


def test_a_preset_has_its_own_value_or_the_usual_one() -> None:
    threshold = declare(4, others={"helix": 0})
    assert threshold.value_in_preset("helix") == 0
    assert threshold.value_in_preset("layered") == 4


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda threshold: threshold.name)
def test_each_value_of_each_preset_may_be_set(threshold: Threshold) -> None:
    for value in (threshold.default, *threshold.others.values()):
        if threshold.choices:
            assert value in threshold.choices
            continue
        assert type(value) is threshold.value_type
        if threshold.value_type is not bool:
            assert threshold.low <= float(value) <= threshold.high
            assert threshold.low < threshold.high


def test_each_name_is_declared_once() -> None:
    names = [threshold.name for threshold in THRESHOLDS]
    assert len(names) == len(set(names))
