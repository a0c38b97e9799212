"""Results that the file has in another order than a request must have them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.facts import Text, ToolCall
from helix_desktop.histories.late_results import put_results_behind_their_calls
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
    build_recorded_reply,
)


def reply(*calls: str) -> RecordedMessage:
    return build_recorded_reply([Text("I look."), *(ToolCall(name, "f", "{}") for name in calls)])


def result(call: str, text: str = "") -> RecordedMessage:
    return RecordedMessage("tool", text or f"result of {call}", answers=call)


ASKED = RecordedMessage("user", "go")
NOTE = RecordedMessage("user", "a reminder", beside=True)
FAILED = RecordedMessage("failure", "cut")


def ordered(*messages: RecordedMessage) -> list[RecordedMessage]:
    return list(put_results_behind_their_calls(RecordedSession("s", messages)).messages)


def test_a_result_that_comes_after_another_reply_stands_behind_its_own() -> None:
    push = reply("push")
    show = reply("show")
    assert ordered(ASKED, push, show, result("show"), result("push")) == [
        ASKED, push, result("push"), show, result("show"),
    ]  # fmt: skip


def test_a_result_after_the_users_next_words_or_a_failure_stands_before_them() -> None:
    for between in (ASKED, FAILED, RecordedMessage("system", "be brief")):
        assert ordered(reply("a"), between, result("a")) == [reply("a"), result("a"), between]


def test_what_an_agent_adds_between_a_call_and_its_result_stays_there() -> None:
    messages = (ASKED, reply("a", "b"), result("b"), NOTE, result("a"))
    session = RecordedSession("s", messages)
    assert put_results_behind_their_calls(session) is session


def test_a_result_before_its_call_stands_behind_it() -> None:
    assert ordered(ASKED, result("a"), reply("a")) == [ASKED, reply("a"), result("a")]


def test_ids_that_a_server_uses_again_mean_the_newest_call() -> None:
    messages = [reply("a"), result("a", "one"), reply("a"), result("a", "two"), result("a", "none")]
    assert ordered(*messages) == messages


def test_a_compaction_stays_between_the_same_messages() -> None:
    messages = (ASKED, reply("a"), reply("b"), result("b"), ASKED, result("a"))
    compaction = RecordedCompaction(4, 2, "Sum.")
    session = RecordedSession("s", messages, compactions=(compaction,))
    moved = put_results_behind_their_calls(session)
    assert moved.messages == (ASKED, reply("a"), result("a"), reply("b"), result("b"), ASKED)
    assert (moved.compactions[0].at, moved.compactions[0].keep) == (5, 3)


def test_a_fork_shares_only_what_its_original_has() -> None:
    messages = (ASKED, reply("a"), FAILED, ASKED, result("a"))
    fork = RecordedSession("s", messages, forked_from="o", forked_at=3)
    assert put_results_behind_their_calls(fork).forked_at == 2
    whole = RecordedSession("s", messages, forked_from="o", forked_at=5)
    assert put_results_behind_their_calls(whole).forked_at == 5


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_call_has_its_result_before_the_next_reply(data: st.DataObject) -> None:
    """Results arrive in any order, also among later replies and the user's words."""
    messages = draw_messages(data)
    found = ordered(*messages)
    assert sorted(found, key=repr) == sorted(messages, key=repr), "nothing is lost or doubled"
    waiting: set[str] = set()
    for message in found:
        if message.role == "tool":
            waiting.remove(message.answers)
        elif not message.beside:
            assert not waiting
        waiting |= {call.id for call in message.calls}
    assert not waiting


def draw_messages(data: st.DataObject) -> list[RecordedMessage]:
    """Replies with calls in their order, and others and results anywhere among them."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    messages: list[RecordedMessage] = []
    results: list[RecordedMessage] = []
    for number, size in enumerate(sizes):
        calls = [f"{number}-{call}" for call in range(size)]
        messages.append(reply(*calls))
        results += [result(call) for call in calls]
    for number in range(len(sizes)):
        place = data.draw(st.integers(0, len(messages)))
        messages.insert(place, [ASKED, NOTE, FAILED][number % 3])
    for late in data.draw(st.permutations(results)):
        messages.insert(data.draw(st.integers(0, len(messages))), late)
    return messages
