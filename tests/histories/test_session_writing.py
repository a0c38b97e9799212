"""What the writers of the agents' formats share."""

from __future__ import annotations

from helix_desktop.engine.facts import ToolCall
from helix_desktop.histories import session_writing
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
)
from tests.texts_and_calls import calls_in

SAYS = RecordedMessage("user", "say")
REPLY = RecordedMessage("assistant", "reply")
FIRST, SECOND = (RecordedMessage("tool", f"out {n}", answers=f"c{n}") for n in (1, 2))


def session(
    *messages: RecordedMessage, compactions: tuple[RecordedCompaction, ...] = ()
) -> RecordedSession:
    return RecordedSession("s", messages, compactions=compactions)


def test_a_compaction_stands_before_its_message_also_the_first_and_behind_the_last() -> None:
    start, middle, end = (RecordedCompaction(at, at, f"at {at}") for at in (0, 1, 2))
    listed = list(
        session_writing.list_session_items(session(SAYS, REPLY, compactions=(end, start, middle)))
    )
    assert listed == [start, SAYS, middle, REPLY, end]
    assert list(session_writing.list_session_items(session())) == []


def test_results_stand_with_the_item_that_they_follow() -> None:
    listed = list(
        session_writing.list_items_with_results(session(SAYS, REPLY, FIRST, SECOND, SAYS))
    )
    assert listed == [(SAYS, {}), (REPLY, {"c1": FIRST, "c2": SECOND}), (SAYS, {})]
    assert list(session_writing.list_items_with_results(session(FIRST, SAYS))) == [
        (FIRST, {}),
        (SAYS, {}),
    ]
    short = RecordedCompaction(1, 1, "short")
    listed = list(
        session_writing.list_items_with_results(session(REPLY, FIRST, compactions=(short,)))
    )
    assert listed == [(REPLY, {}), (short, {"c1": FIRST})]
    assert list(session_writing.list_items_with_results(session())) == []


def test_ids_times_and_pictures_as_the_formats_have_them() -> None:
    assert session_writing.plain_call_id("call:1/ä-_Z") == "call_1__-_Z"
    assert session_writing.plain_call_id("a" * 65) == "a" * 64
    assert session_writing.format_iso_time(1767323045.25) == "2026-01-02T03:04:05.250Z"
    assert (
        session_writing.format_picture_url(RecordedPicture("image/png", b"\0\0\0"))
        == "data:image/png;base64,AAAA"
    )


def test_a_call_id_that_comes_again_is_made_unique_with_its_result() -> None:
    """A provider refused the whole session: local servers use the same ids in each reply."""
    messages: list[RecordedMessage] = []
    for number in range(3):
        call = ToolCall("call_0", "run", f'{{"n": {number}}}')
        messages.append(RecordedMessage("assistant", "", parts=(call,)))
        messages.append(RecordedMessage("tool", f"out {number}", answers="call_0"))
    items = session_writing.list_items_with_results(session(*messages))
    names = []
    for number, (item, results) in enumerate(items):
        assert isinstance(item, RecordedMessage)
        (call,) = calls_in(item.parts)
        names.append(call.id)
        assert results[call.id].text == f"out {number}"
    assert len(set(names)) == 3
    assert names[0] == "call_0"


def test_of_lines_that_change_only_those_are_written_anew() -> None:
    content = b'{"a": 1,  "keep": 0}\n{"a": 2}\n\n[1]\nnot json\n{"a": 3, "name": "\xc3\xa4"}'

    def change(line: session_writing.Line) -> session_writing.Line | None:
        if line["a"] == 2:
            return None
        if line["a"] == 3:
            return {**line, "a": 4}
        return line

    changed = session_writing.change_json_lines(content, change)
    assert changed == b'{"a": 1,  "keep": 0}\n{"a":4,"name":"\\u00e4"}\n'
    assert session_writing.change_json_lines(b"", change) == b""


def test_a_file_without_a_form_in_a_session_is_its_text_or_is_named() -> None:
    text = RecordedPicture("text/plain", b"", text="words")
    assert session_writing.describe_left_out_file(text) == "words"
    sound = session_writing.describe_left_out_file(RecordedPicture("audio/wav", b"x"))
    assert sound == "[A file of type audio/wav, which this agent's sessions cannot contain]"
