"""Several tasks in one conversation."""

from __future__ import annotations

from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.replay.session_player import join_recordings
from tests.replay.sessions import long_session, play


def test_two_sessions_with_the_same_ids_become_one_conversation() -> None:
    one = long_session(1, 20)
    prompt = RecordedMessage("system", "be brief", time=5.0)
    joined = join_recordings(
        [
            RecordedSession("a", (prompt, *one.messages)),
            RecordedSession("b", (prompt, *one.messages)),
        ]
    )
    assert [message.role for message in joined.messages].count("system") == 1
    assert len(joined.messages) == 2 * len(one.messages) + 1
    calls = [call.id for message in joined.messages for call in message.calls]
    answers = [message.answers for message in joined.messages if message.answers]
    assert len(set(calls)) == len(calls)
    assert sorted(answers) == sorted(calls)
    figures = play(joined)
    assert len(figures.steps) == 2 * len(play(one).steps)
    assert figures.illegal_requests == 0
