"""Every threshold is declared once; presets, checks and messages come from the declaration."""

from __future__ import annotations

import dataclasses

import pytest

from helix_desktop.engine import context_policy, fold_economics
from helix_desktop.engine.context_policy import (
    PRESETS,
    Policy,
    declared_thresholds,
    policy_from_fact,
    preset_policy,
    require_valid_threshold,
)
from helix_desktop.engine.facts import PolicySet
from helix_desktop.errors import InvalidInput


def test_every_field_is_declared_with_a_sentence_and_a_default_in_every_preset() -> None:
    names = {field.name for field in dataclasses.fields(Policy)} - {"preset"}
    assert set(declared_thresholds()) == names
    for name, declared in declared_thresholds().items():
        assert set(declared.others) <= set(PRESETS), name
        assert declared.sentence.endswith("."), name
        assert declared.group, name
        for value in (declared.default, *declared.others.values()):
            assert require_valid_threshold(name, value) == value


def test_the_presets_are_the_table_of_the_design() -> None:
    helix, observational, layered, none = (
        preset_policy(name) for name in ("helix", "observational", "layered", "none")
    )
    assert (helix.admission, observational.admission, layered.admission, none.admission) == (
        "off",
        "ask",
        "ahead",
        "off",
    )
    assert (helix.caching, observational.caching, layered.caching, none.caching) == (
        "steps",
        "off",
        "pays",
        "off",
    )
    assert (helix.caching_steps, helix.caching_tokens) == (10, 500)
    assert (helix.arguments, observational.arguments, layered.arguments) == (False, False, False)
    assert (helix.observation, observational.observation, layered.observation) == (
        False,
        True,
        False,
    )
    assert (observational.observation_share, observational.reflection_share) == (0.30, 0.50)
    assert (helix.handover, observational.handover, layered.handover, none.handover) == (
        "share",
        "panic",
        "pays",
        "off",
    )
    assert (helix.handover_share, helix.handover_cooldown) == (0.85, 60)
    assert (helix.truncation, observational.truncation, layered.truncation, none.truncation) == (
        True,
        True,
        True,
        False,
    )
    assert (layered.admission_tokens, layered.admission_batch_tokens, layered.admission_wait) == (
        4_000,
        12_000,
        10,
    )
    assert (layered.tail_steps, layered.progress, layered.failures, layered.critical_tokens) == (
        4,
        0.10,
        3,
        1_500,
    )
    assert layered == policy_from_fact(None)
    assert (layered.admission_command_tokens, helix.admission_command_tokens) == (2_000, 4_000)


def test_the_preset_that_keeps_most_uses_more_than_half_of_any_window() -> None:
    keeps = preset_policy("keeps_most")
    layered = preset_policy("layered")
    for window in (32_000, 128_000, 1_000_000):
        floor = fold_economics.least_context_for_handover(
            window, keeps.handover_floor_tokens, keeps.handover_floor_share
        )
        assert floor == pytest.approx(window * 0.55)
        assert floor > fold_economics.least_context_for_handover(
            window, layered.handover_floor_tokens, layered.handover_floor_share
        )
    assert keeps.tail_steps > layered.tail_steps
    assert keeps.caching == "off"


def test_a_policy_becomes_a_fact_and_comes_back() -> None:
    for name in PRESETS:
        assert policy_from_fact(preset_policy(name).to_policy_fact()) == preset_policy(name)
        assert preset_policy(name).to_policy_fact() == PolicySet(name)
    changed = preset_policy("helix").with_thresholds(
        {"caching_steps": "7", "handover_share": 0.6, "arguments": "on"}
    )
    fact = changed.to_policy_fact()
    assert dict(fact.values) == {"caching_steps": 7, "handover_share": 0.6, "arguments": True}
    assert policy_from_fact(fact) == changed
    assert policy_from_fact(None) == preset_policy("layered")


def test_an_old_fact_with_what_is_not_known_any_more_still_gives_a_policy() -> None:
    fact = PolicySet("gone", (("tail_steps", 5), ("was_once", 3), ("caching", "sometimes")))
    assert policy_from_fact(fact) == preset_policy("layered").with_thresholds({"tail_steps": 5})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tail_step", 1, r"There is no setting 'tail_step'. Did you mean 'tail_steps'\?"),
        (
            "tail_steps",
            0,
            "tail_steps = 0 is not allowed: expected a whole number from 1 to 200 steps.",
        ),
        ("tail_steps", 2.5, "expected a whole number"),
        ("tail_steps", "many", "expected a whole number"),
        ("tail_steps", True, "expected a whole number"),
        ("tail_steps", "nan", "expected a whole number"),
        ("progress", "0.95", "expected a number from 0 to 0.9"),
        ("caching", "pay", r"expected one of off, steps, pays. Did you mean 'pays'\?"),
        ("arguments", "maybe", "expected true or false"),
        ("handover", 3, "expected one of off, panic, share, pays"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_was_expected(
    name: str, value: object, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        require_valid_threshold(name, value)


def test_values_are_read_as_people_write_them() -> None:
    assert require_valid_threshold("admission_tokens", "6_000") == 6_000
    assert require_valid_threshold("admission_tokens", 6_000.0) == 6_000
    assert isinstance(require_valid_threshold("admission_tokens", 6_000.0), int)
    assert require_valid_threshold("arguments", "OFF") is False
    assert require_valid_threshold("progress", "0.25") == 0.25


def test_a_preset_that_is_none() -> None:
    with pytest.raises(InvalidInput, match=r"no preset 'layerd'. Did you mean 'layered'\?"):
        preset_policy("layerd")
    assert "layered" in context_policy.PRESETS


def test_a_larger_window_makes_no_conversation_dearer() -> None:
    """The default hands over for gain at the same size in every large window."""
    layered = preset_policy("layered")
    floors = {
        fold_economics.least_context_for_handover(
            window, layered.handover_floor_tokens, layered.handover_floor_share
        )
        for window in (128_000, 200_000, 1_000_000)
    }
    assert floors == {38_400}
