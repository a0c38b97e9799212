"""What a recorded session says, and what of it counts."""

from __future__ import annotations

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
    build_recorded_reply,
    format_opaque_json,
    message_texts,
    texts_in_context,
    texts_to_count,
)

PARTS: list[ReplyPart] = [
    Reasoning("hm"),
    Reasoning("", opaque="sealed"),
    Text("I look."),
    Text(""),
    ToolCall("c", "Bash", '{"a": 1}'),
]


def test_a_reply_has_its_parts_and_what_they_say() -> None:
    reply = build_recorded_reply(
        [*PARTS, Text("Now.")], model="m", time=2.0, usage=Usage(1, 0, 0, 2)
    )
    assert (reply.role, reply.text, reply.reasoning) == ("assistant", "I look.\nNow.", "hm")
    assert reply.calls == (ToolCall("c", "Bash", '{"a": 1}'),)
    assert reply.parts == (*PARTS[:3], PARTS[4], Text("Now.")), "an empty text is no part"
    assert (reply.model, reply.time, reply.usage) == ("m", 2.0, Usage(1, 0, 0, 2))
    assert build_recorded_reply([]).usage == Usage()


def test_all_a_message_says_is_counted_once_for_each_text() -> None:
    reply = build_recorded_reply(PARTS)
    assert list(message_texts(reply)) == ["I look.", '{"a": 1}']
    assert list(texts_to_count(reply)) == ["I look.", "hm", "Bash", '{"a": 1}', "hm", "I look."]
    assert list(texts_to_count(RecordedMessage("user", ""))) == []


def test_the_context_of_a_session_begins_with_its_last_compaction() -> None:
    messages = tuple(RecordedMessage("user", text) for text in ("one", "two", "three"))
    assert list(texts_in_context(RecordedSession("s", messages))) == ["", "one", "two", "three"]
    compactions = (RecordedCompaction(1, 1, "first"), RecordedCompaction(3, 2, "last"))
    assert list(texts_in_context(RecordedSession("s", messages, compactions=compactions))) == [
        "last",
        "three",
    ]


def test_a_session_is_known_by_its_kind_and_its_name() -> None:
    assert RecordedSession("file", (), "claude-code", "s1").identity_of_session == (
        "claude-code",
        "s1",
    )


def test_what_a_provider_needs_back_is_short_and_keeps_its_letters() -> None:
    assert format_opaque_json(type="reasoning", text="ü") == '{"type":"reasoning","text":"ü"}'
