"""What the timeline and the inspector say of a policy is what the policy does."""

from __future__ import annotations

from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.context_usage import WindowMeter, tokens_at_which_handover_must_start
from helix_desktop.gui.common.policy_names import list_fold_thresholds


def test_the_share_at_which_a_handover_is_written_leaves_room_for_the_reply() -> None:
    """The defect: the timeline said 85% where the meter's panel, rightly, said 26,216
    of 32,768 tokens.
    """
    meter = WindowMeter({}, 0, 32_768, 4_914, 1.0)
    policy = preset_policy("layered")
    (words, _, share) = list_fold_thresholds(policy, meter)[-1]
    assert share * meter.window == tokens_at_which_handover_must_start(meter, policy)
    assert words == "summary at 80%"
