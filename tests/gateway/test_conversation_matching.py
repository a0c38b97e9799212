"""Which conversation a request belongs to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gateway.conversation_matching import (
    ConversationMatcher,
    MessageLine,
    compute_message_hashes,
    next_message_hash,
)
from helix_desktop.protocols.anthropic import anthropic_wire
from helix_desktop.protocols.wire_message import Wired


def said(*texts: str) -> list[Wired]:
    return anthropic_wire.messages({"messages": [{"role": "user", "content": text} for text in texts]})


@given(st.lists(st.text(max_size=5), max_size=8), st.data())
def test_a_chain_that_goes_on_from_a_known_beginning_is_the_same(texts: list[str], data: st.DataObject) -> None:
    messages = said(*texts)
    whole = compute_message_hashes("anthropic", messages)
    known = data.draw(st.integers(0, len(texts)))
    assert compute_message_hashes("anthropic", messages, whole[:known]) == whole
    if messages:
        assert next_message_hash(whole[:-1], "anthropic", messages[-1].identity_key) == whole[-1]


def test_the_longest_known_beginning_wins() -> None:
    tracks = ConversationMatcher()
    short, long = (
        compute_message_hashes("anthropic", said("a", "b")),
        compute_message_hashes("anthropic", said("a", "c", "d")),
    )
    tracks.add_line(MessageLine("one", "", "head", list(short), [1, 2]))
    tracks.add_line(MessageLine("two", "", "head", list(long), [1, 2, 3]))
    place = tracks.find_request_position(compute_message_hashes("anthropic", said("a", "c", "d", "e")), "", "head")
    assert place.line is not None
    assert (place.line.conversation, place.known_count, place.is_at_end) == ("two", 3, True)
    assert tracks.find_request_position(compute_message_hashes("anthropic", said("x")), "", "head").line is None


def position(tracks: ConversationMatcher, *texts: str, session: str, parent: str = "") -> str:
    chain = compute_message_hashes("anthropic", said(*texts))
    line = tracks.find_request_position(chain, session, "head", parent).line
    return line.conversation if line is not None else ""


def test_a_conversation_goes_on_in_its_session_and_in_those_that_joined_it() -> None:
    tracks = ConversationMatcher()
    line = MessageLine("one", "first", "head", list(compute_message_hashes("anthropic", said("a", "b"))), [1, 2])
    tracks.add_line(line)
    tracks.add_line(MessageLine("other", "second", "another head", ["x"], [1]))
    assert position(tracks, "a", "c", session="first") == "one", "its session may change what was said"
    assert position(tracks, "a", "c", session="second") == ""
    assert position(tracks, "a", "c", session="new") == ""
    assert position(tracks, "a", "b", "c", session="new") == "one", "resumed under another name"
    assert position(tracks, "a", "b", session="new") == "", "without a new message it is not resumed"
    assert position(tracks, "a", "b", "c", session="") == ""
    assert position(tracks, "a", "b", "c", session="second") == "", "that name is another conversation's"
    assert position(tracks, "a", "b", "c", session="new", parent="first") == "", "a sub-agent resumes nothing"
    tracks.join_session(line, "new")
    assert [position(tracks, "a", "c", session=session) for session in ("first", "new")] == ["one", "one"]
    tracks.remove_line("one")
    assert [position(tracks, "a", "b", "c", session=session) for session in ("first", "new", "third")] == ["", "", ""]


def test_only_a_conversation_of_several_messages_that_ends_there_is_resumed_under_another_name() -> None:
    tracks = ConversationMatcher()
    for name, texts in (("greeting", ("hello",)), ("longer", ("a", "b", "c"))):
        chain = compute_message_hashes("anthropic", said(*texts))
        tracks.add_line(MessageLine(name, name, "head", list(chain), list(range(len(texts)))))
    assert position(tracks, "hello", "go", session="new") == "", "many conversations begin with the same words"
    assert position(tracks, "a", "b", "x", session="new") == "", "the conversation went on otherwise"
    assert position(tracks, "a", "b", "c", "d", session="new") == "longer"


def test_what_a_conversation_took_back_is_not_resumed_under_another_name() -> None:
    tracks = ConversationMatcher()
    before, after = (compute_message_hashes("anthropic", said("a", text)) for text in ("b", "c"))
    line = MessageLine("one", "first", "head", list(before), [1, 2])
    tracks.add_line(line)
    del line.chain[1:], line.seqs[1:]
    tracks.extend_line(line, after[1], 3)
    assert position(tracks, "a", "b", "x", session="new") == ""
    assert position(tracks, "a", "c", "x", session="new") == "one"
    assert position(tracks, "a", "b", "x", session="first") == "one", "in its own session it goes on from there"
    del line.chain[1:], line.seqs[1:]
    assert position(tracks, "a", "b", "x", session="new") == position(tracks, "a", "c", "x", session="new") == ""
