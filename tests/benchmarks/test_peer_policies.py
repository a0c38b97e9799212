"""What other policies are billed for what they no longer show."""

from __future__ import annotations

import json

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.session_player import RememberingCounter
from tests.benchmarks.peer_policies import Design, Policy, Summary, play
from tests.replay.sessions import Words

LINE = "a line of the file that only the agent itself has written"


def session() -> RecordedSession:
    """The agent writes a line, works until it stands behind a summary, and uses it again."""
    said = [RecordedMessage("user", "Begin.")]
    for step in range(30):
        text = LINE if step in (0, 29) else f"another line of the file, number {step}"
        call = ToolCall(f"c{step}", "write", json.dumps({"content": text}))
        said += [
            RecordedMessage("assistant", "", (call,)),
            RecordedMessage("tool", "word " * 900, answers=call.id),
        ]
    return RecordedSession("session", tuple(said))


def played(policy: Policy) -> ReplayFigures:
    return play(
        session(),
        policy,
        10_000,
        RelativePrices(0.1, 1.25, 5.0),
        RememberingCounter(Words()).count_tokens,
    )


def test_what_the_agent_wrote_is_searched_for_behind_a_summary() -> None:
    found = played(Design(floor_tokens=0))
    assert found.folds["handover"]
    assert found.recalls_billed


def test_without_originals_no_call_brings_back_what_the_agent_wrote() -> None:
    found = played(Summary(0.5))
    assert found.folds["handover"]
    assert not found.recalls_billed
