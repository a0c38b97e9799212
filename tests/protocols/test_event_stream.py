from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.protocols import event_stream
from helix_desktop.protocols.event_stream import (
    MOST_EVENTS,
    EventStreamParser,
    EventTooLong,
    RawEventSplitter,
    ServerSentEvent,
    parse_event_data,
)


def read(content: bytes, *cuts: int) -> list[ServerSentEvent]:
    parser = EventStreamParser()
    events = []
    last = 0
    for cut in (*sorted(cuts), len(content)):
        events += parser.feed_bytes(content[last:cut])
        last = max(last, cut)
    return events


# A field's value holds no line break; U+2028 and U+0085, at which str.splitlines would
# cut, may stand in it.
values = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
events = st.lists(st.tuples(st.lists(values, min_size=1, max_size=3), values), max_size=4)
endings = st.sampled_from(["\n", "\r", "\r\n"])


@given(events, endings, st.booleans(), st.lists(st.integers(0, 300), max_size=12), st.booleans())
def test_what_was_written_is_read_whatever_the_chunks(
    written: list[tuple[list[str], str]], end: str, space: bool, cuts: list[int], mark: bool
) -> None:
    colon = ": " if space else ":"
    text = ""
    for data, name in written:
        text += f": a comment{end}"
        # Without the optional space, a value that begins with one would lose it.
        text += "".join(
            f"data{': ' if line.startswith(' ') else colon}{line}{end}" for line in data
        )
        text += f"event{': ' if name.startswith(' ') else colon}{name}{end}" if name else ""
        text += end
    content = (b"\xef\xbb\xbf" if mark else b"") + text.encode()
    expected = [ServerSentEvent("\n".join(data), name or "message") for data, name in written]
    assert read(content, *(min(cut, len(content)) for cut in cuts)) == expected


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_any_bytes_read_the_same_however_they_are_cut(content: bytes, cuts: list[int]) -> None:
    assert read(content, *(min(cut, len(content)) for cut in cuts)) == read(content)


def test_an_unfinished_event_is_no_event() -> None:
    parser = EventStreamParser()
    assert parser.feed_bytes(b"data: half") == []
    assert parser.feed_bytes(b" and half\n\n") == [ServerSentEvent("half and half")]


def test_a_line_feed_after_a_chunk_that_ends_with_a_return_is_no_second_line() -> None:
    assert read(b"data: a\r\ndata: b\r\n\r\n", 8) == [ServerSentEvent("a\nb")]


def test_fields_without_a_value_and_unknown_ones_are_harmless() -> None:
    assert read(b"data\nid: 7\nretry: 10\nwhat: ever\n\n") == [ServerSentEvent("")]


def test_an_event_without_end_is_refused() -> None:
    parser = EventStreamParser(longest=1000)
    for _ in range(15):
        parser.feed_bytes(b"data: " + b"x" * 50)
    with pytest.raises(EventTooLong):
        parser.feed_bytes(b"x" * 250)


def test_many_events_of_some_length_are_not_too_long() -> None:
    parser = EventStreamParser(longest=100)
    assert sum(len(parser.feed_bytes(b"data: " + b"x" * 60 + b"\n\n")) for _ in range(50)) == 50


def test_an_event_of_too_many_values_is_not_read() -> None:
    """The parser holds up all other agents until it is done."""
    assert parse_event_data(b'data: {"a": [' + b"0," * 150_000 + b"0]}\n\n") is not None
    assert parse_event_data(b'data: {"a": [' + b"0," * 250_000 + b"0]}\n\n") is None
    picture = b'data: {"picture": "' + b"x" * (8 << 20) + b'"}\n\n'
    assert parse_event_data(picture) is not None


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_empty_lines_are_no_events_of_their_own(end: bytes) -> None:
    """A reply of 60 MB of them took 88 s."""
    splitter = RawEventSplitter()
    content = b"data: 1" + end * 3_000 + b"data: 2" + end * 2
    found = list(splitter.feed_raw_chunk(content))
    assert [parse for raw in found for parse in read(raw)] == [
        ServerSentEvent("1"),
        ServerSentEvent("2"),
    ]
    assert len(found) == 2
    assert b"".join(found) + splitter.unfinished == content


def test_a_reply_of_too_many_events_is_handed_on_many_at_once() -> None:
    event = b": ping\n\n"
    more = 10_000
    splitter = RawEventSplitter(events_left=100)
    found = list(splitter.feed_raw_chunk(event * more + b"data: half"))
    assert found == [event] * 100 + [event * (more - 100)]
    assert list(splitter.feed_raw_chunk(b"\n\n" + event)) == [b"data: half\n\n" + event]
    assert len(read(b"data: 1\n\n" * (MOST_EVENTS + 10))) == MOST_EVENTS + 10, (
        "what reads its own provider reads all"
    )


def test_the_last_end_of_an_event_is_found_in_one_pass() -> None:
    """64 KB without an end took 31 s of the loop that all agents share."""
    splitter = RawEventSplitter(events_left=0)
    line = b"data: " + b"x" * (1 << 20)
    assert list(splitter.feed_raw_chunk(line)) == []
    assert list(splitter.feed_raw_chunk(b"\n\nrest")) == [line + b"\n\n"]


@pytest.mark.parametrize("data", [b"1", b"[[]]", b"null", b'"text"', b"[DONE]", b""])
def test_data_that_is_no_object_is_not_read(data: bytes) -> None:
    """What takes an event in asks it for its fields."""
    assert parse_event_data(b"data: " + data + b"\n\n") is None


def test_an_event_as_long_as_may_be_is_read_and_one_that_is_longer_is_not() -> None:
    event = b"data: " + b"x" * 92 + b"\n\n"
    assert len(EventStreamParser(longest=len(event)).feed_bytes(event)) == 1
    with pytest.raises(EventTooLong):
        EventStreamParser(longest=len(event) - 1).feed_bytes(event)


def test_an_event_with_as_many_values_and_bytes_as_may_be_is_an_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = b'data: {"a": [1, 2, 3, 4], "b": "words"}\n\n'
    signs = sum(event.count(sign) for sign in (b"[", b"{", b","))
    for most, longest, is_read in (
        (signs, 99, True),
        (signs - 1, 99, False),
        (signs, len(event), True),
        (signs, len(event) - 1, False),
    ):
        monkeypatch.setattr(event_stream, "MOST_EVENT_SIGNS", most)
        monkeypatch.setattr(event_stream, "LONGEST_PARSED_EVENT", longest)
        assert (parse_event_data(event) is not None) == is_read, (most, longest)
