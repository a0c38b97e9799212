"""What the timeline and the inspector say of a policy is what the policy does."""

from __future__ import annotations

import re

import pytest

from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.context_usage import WindowMeter, tokens_at_which_handover_must_start
from helix_desktop.gui.common.policy_names import (
    list_fold_thresholds,
    list_named_presets,
    list_plain_choices,
)
from helix_desktop.resources import resources_folder


def test_the_share_at_which_a_handover_is_written_leaves_room_for_the_reply() -> None:
    """The defect: the timeline said 85% where the meter's panel, rightly, said 26,216
    of 32,768 tokens.
    """
    meter = WindowMeter({}, 0, 32_768, 4_914, 1.0)
    policy = preset_policy("layered")
    (words, _, share) = list_fold_thresholds(policy, meter)[-1]
    assert share * meter.window == tokens_at_which_handover_must_start(meter, policy)
    assert words == "summary at 80%"


def test_each_preset_says_what_it_cost_in_the_same_sessions_as_the_help_and_the_readme() -> None:
    """One card spoke of 31 sessions and ten of them, another of ten, the cheapest of none, and the
    README of 25%.
    """
    page = (resources_folder() / "help" / "savings.md").read_text("utf-8")
    readme = (resources_folder().parent / "README.md").read_text("utf-8")
    bills = dict(re.findall(r"the bill with `(helix)` is ([\d.]+)", page))
    bills |= dict(re.findall(r"and with `(observational)` ([\d.]+)", page))
    for preset in ("layered", "keeps_most"):
        row = re.search(
            rf"^\| `{preset}` \| 128,000 \| ([\d.]+) \| [\d.]+ \| [\d.]+ \|", page, re.MULTILINE
        )
        assert row is not None
        bills[preset] = row[1]
    measured = {
        choice.preset: choice.measured for choice in list_plain_choices() + list_named_presets()
    }
    assert measured.pop("none") == ""
    assert set(measured) == set(bills)
    for preset, words in measured.items():
        percent = 100 * float(bills[preset]) - 100
        (said,) = re.findall(r"([\d.]+)%", words)
        assert float(said) == pytest.approx(abs(percent), abs=0.5)
        assert (" less than " in words) is (percent < 0)
        assert "in 31 recorded sessions" in words
    assert "they cost 25% less" in readme
    assert "25% less" in measured["layered"]
