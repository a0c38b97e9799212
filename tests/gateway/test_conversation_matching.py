"""Which conversation a request belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gateway.conversation_matching import (
    ConversationMatcher,
    KnownMessages,
    RequestPosition,
    RequestSender,
    compute_message_hashes,
    next_message_hash,
)
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import ProtocolMessage


def find_position(
    tracks: ConversationMatcher, chain: Sequence[str], session: str, head: str, parent: str = ""
) -> RequestPosition:
    sender = RequestSender("", session, parent, is_below_another=bool(parent))
    return tracks.find_request_position(sender, chain, head)


def said(*texts: str) -> list[ProtocolMessage]:
    return anthropic_gateway.parse_messages(
        {"messages": [{"role": "user", "content": text} for text in texts]}
    )


@given(st.lists(st.text(max_size=5), max_size=8), st.data())
def test_a_chain_that_goes_on_from_a_known_beginning_is_the_same(
    texts: list[str], data: st.DataObject
) -> None:
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
    tracks.add_known_messages(KnownMessages("one", "", "head", list(short), [1, 2]))
    tracks.add_known_messages(KnownMessages("two", "", "head", list(long), [1, 2, 3]))
    place = find_position(
        tracks, compute_message_hashes("anthropic", said("a", "c", "d", "e")), "", "head"
    )
    assert place.known_messages is not None
    assert (place.known_messages.conversation, place.known_count, place.is_at_end) == (
        "two",
        3,
        True,
    )
    assert (
        find_position(
            tracks, compute_message_hashes("anthropic", said("x")), "", "head"
        ).known_messages
        is None
    )


class CountedLookups(dict[str, tuple[KnownMessages, ...]]):
    count = 0

    def __contains__(self, hashed: object) -> bool:
        self.count += 1
        return super().__contains__(hashed)

    def get(self, hashed: str, default: object = None) -> Any:
        self.count += 1
        return super().get(hashed, default)


def test_the_place_of_a_long_history_is_found_with_few_lookups() -> None:
    """One lookup for each of 73,825 new messages took 23 ms, in which no other agent
    was answered.
    """
    tracks, chain = ConversationMatcher(), [f"hash {number}" for number in range(10_000)]
    tracks._by_hash = known = CountedLookups()
    for end in (0, 1, 4_000, 10_000):
        if end:
            seqs = [*range(end)]
            tracks.add_known_messages(KnownMessages(f"{end}", "", "head", chain[:end], seqs))
        known.count = 0
        place = find_position(tracks, chain, "", "head")
        assert place.known_count == end
        assert (place.known_messages.conversation if place.known_messages else "0") == f"{end}"
        assert known.count < 40


def position(tracks: ConversationMatcher, *texts: str, session: str, parent: str = "") -> str:
    chain = compute_message_hashes("anthropic", said(*texts))
    line = find_position(tracks, chain, session, "head", parent).known_messages
    return line.conversation if line is not None else ""


def test_a_conversation_goes_on_in_its_session_and_in_those_that_joined_it() -> None:
    tracks = ConversationMatcher()
    line = KnownMessages(
        "one", "first", "head", list(compute_message_hashes("anthropic", said("a", "b"))), [1, 2]
    )
    tracks.add_known_messages(line)
    tracks.add_known_messages(KnownMessages("other", "second", "another head", ["x"], [1]))
    assert position(tracks, "a", "c", session="first") == "one", (
        "its session may change what was said"
    )
    assert position(tracks, "a", "c", session="second") == ""
    assert position(tracks, "a", "c", session="new") == ""
    assert position(tracks, "a", "b", "c", session="new") == "one", "resumed under another name"
    assert position(tracks, "a", "b", session="new") == "", (
        "without a new message it is not resumed"
    )
    assert position(tracks, "a", "b", "c", session="") == ""
    assert position(tracks, "a", "b", "c", session="second") == "", (
        "that name is another conversation's"
    )
    assert position(tracks, "a", "b", "c", session="new", parent="first") == "", (
        "a sub-agent resumes nothing"
    )
    tracks.assign_session(line, "new", "head")
    assert [position(tracks, "a", "c", session=session) for session in ("first", "new")] == [
        "one",
        "one",
    ]
    tracks.remove_known_messages("one")
    assert [
        position(tracks, "a", "b", "c", session=session) for session in ("first", "new", "third")
    ] == ["", "", ""]


def test_only_a_conversation_of_several_messages_that_ends_there_is_resumed_under_another_name() -> (
    None
):
    tracks = ConversationMatcher()
    for name, texts in (("greeting", ("hello",)), ("longer", ("a", "b", "c"))):
        chain = compute_message_hashes("anthropic", said(*texts))
        tracks.add_known_messages(
            KnownMessages(name, name, "head", list(chain), list(range(len(texts))))
        )
    assert position(tracks, "hello", "go", session="new") == "", (
        "many conversations begin with the same words"
    )
    assert position(tracks, "a", "b", "x", session="new") == "", (
        "the conversation went on otherwise"
    )
    assert position(tracks, "a", "b", "c", "d", session="new") == "longer"


def test_what_a_conversation_took_back_is_not_resumed_under_another_name() -> None:
    tracks = ConversationMatcher()
    before, after = (compute_message_hashes("anthropic", said("a", text)) for text in ("b", "c"))
    line = KnownMessages("one", "first", "head", list(before), [1, 2])
    tracks.add_known_messages(line)
    line.rewind_known_messages(line.chain[:1], line.seqs[:1])
    tracks.append_message_hash(line, after[1], 3)
    assert position(tracks, "a", "b", "x", session="new") == ""
    assert position(tracks, "a", "c", "x", session="new") == "one"
    assert position(tracks, "a", "b", "x", session="first") == "one", (
        "in its own session it goes on from there"
    )
    line.rewind_known_messages(line.chain[:1], line.seqs[:1])
    assert (
        position(tracks, "a", "b", "x", session="new")
        == position(tracks, "a", "c", "x", session="new")
        == ""
    )


def hashes(*texts: str) -> tuple[str, ...]:
    return compute_message_hashes("anthropic", said(*texts))


def line_of(name: str, *texts: str, session: str = "") -> KnownMessages:
    return KnownMessages(
        name, session, "head", list(hashes(*texts)), list(range(1, len(texts) + 1))
    )


def test_a_hash_says_the_protocol_and_all_that_came_before() -> None:
    assert hashes("a", "b")[0] == hashes("a")[0]
    assert hashes("a", "b")[1] != hashes("x", "b")[1]
    assert hashes("a") != compute_message_hashes("gemini", said("a"))
    assert {len(one) for one in hashes("a", "b")} == {32}, "as journals have them"


def test_where_a_request_goes_on_is_told_with_the_facts_that_stand_for_it() -> None:
    tracks = ConversationMatcher()
    tracks.add_known_messages(line_of("one", "a", "b", "c", session="s"))
    whole = find_position(tracks, hashes("a", "b", "c"), "s", "head")
    assert (whole.known_count, whole.seqs, whole.is_at_end, whole.has_current_messages) == (
        3,
        (1, 2, 3),
        True,
        True,
    )
    back = find_position(tracks, hashes("a", "b", "x"), "s", "head")
    assert (back.known_count, back.seqs, back.is_at_end, back.has_current_messages) == (
        2,
        (1, 2),
        False,
        True,
    )


def test_a_line_that_was_left_is_known_with_its_own_facts() -> None:
    tracks = ConversationMatcher()
    line = line_of("one", "a", "b", "c", session="s")
    tracks.add_known_messages(line)
    line.rewind_known_messages(line.chain[:1], line.seqs[:1])
    tracks.append_message_hash(line, hashes("a", "x")[1], 9)
    place = find_position(tracks, hashes("a", "b", "c", "d"), "s", "head")
    assert (place.known_count, place.seqs, place.has_current_messages, place.is_at_end) == (
        3,
        (1, 2, 3),
        False,
        False,
    )
    tracks.append_message_hash(line, hashes("a", "x", "y")[2], 10)
    longer = find_position(tracks, hashes("a", "b", "c"), "s", "head")
    assert (longer.seqs, longer.has_current_messages) == ((1, 2, 3), False), (
        "it is not the message at the same place"
    )
    assert line.last_message_seq == 10
    assert KnownMessages("x", "", "").last_message_seq == 0


def test_a_message_that_was_said_again_stands_for_its_last_fact() -> None:
    tracks = ConversationMatcher()
    line, other = line_of("one", "a", "b", session="s"), line_of("two", "a", "b", session="t")
    tracks.add_known_messages(line)
    tracks.add_known_messages(other)
    line.rewind_known_messages(line.chain[:1], line.seqs[:1])
    tracks.append_message_hash(line, hashes("a", "b")[1], 9)
    assert find_position(tracks, hashes("a", "b"), "s", "head").seqs == (1, 9)
    assert find_position(tracks, hashes("a", "b"), "t", "head").seqs == (1, 2)
    line.rewind_known_messages([], [])
    assert find_position(tracks, hashes("a", "b"), "s", "head").seqs == (1, 9)


def test_an_agent_that_shortened_its_history_goes_on_in_its_conversation() -> None:
    tracks = ConversationMatcher()
    tracks.add_known_messages(line_of("one", "a", "b", session="s"))
    place = find_position(tracks, hashes("summary"), "s", "head")
    assert place.known_messages is not None
    assert (place.known_messages.conversation, place.known_count, place.is_at_end) == (
        "one",
        0,
        False,
    )
    other = find_position(tracks, hashes("summary"), "s", "another head")
    assert (other.known_messages, other.parent) == (None, "one"), "its sub-agent has another head"
    assert find_position(tracks, hashes("summary"), "", "head").known_messages is None


def test_a_sub_agent_is_below_the_conversation_that_asked_for_it() -> None:
    tracks = ConversationMatcher()
    tracks.add_known_messages(line_of("one", "a", session="s"))
    assert find_position(tracks, hashes("x"), "child", "head", "s").parent == "one"
    assert find_position(tracks, hashes("x"), "child", "head", "unknown").parent == ""
    assert find_position(tracks, hashes("x"), "child", "head").parent == ""


def test_a_conversation_is_found_by_its_name_and_gone_when_it_is_removed() -> None:
    tracks = ConversationMatcher()
    one, two, again = (
        line_of("one", "a", session="s"),
        line_of("two", "a", session="t"),
        line_of("one", "b", session="s"),
    )
    for line in (one, two, again):
        tracks.add_known_messages(line)
    assert tracks.find_known_messages("one") is again, "the newest of that name"
    tracks.assign_session(two, "s", "head")
    assert (two.session, one.session) == ("s", "s")
    tracks.assign_session(two, "", "head")
    assert two.session == "s"
    tracks.remove_known_messages("one")
    assert (tracks.find_known_messages("one"), tracks.find_known_messages("two")) == (None, two)
    assert position(tracks, "a", "x", session="s") == "two"
    assert position(tracks, "b", "x", session="s") == "two", "its session is left to the other"
    tracks.remove_known_messages("two")
    assert position(tracks, "a", "x", session="s") == position(tracks, "a", "x", session="t") == ""


def test_when_a_conversation_is_removed_another_that_began_in_the_same_way_is_still_found() -> None:
    tracks = ConversationMatcher()
    for line in (line_of("one", "a", "b"), line_of("two", "a", "c")):
        tracks.add_known_messages(line)
    tracks.remove_known_messages("one")
    assert position(tracks, "a", "c", "d", session="") == "two"
    assert position(tracks, "a", "x", session="") == "two"
    assert hashes("a", "b")[1] not in tracks._by_hash, "nothing is kept of what was removed"


async def test_who_asks_for_a_line_waits_until_all_is_recorded() -> None:
    line, order = KnownMessages("one", "", ""), list[str]()
    assert line.can_lock_now
    line.is_recorded.clear()
    assert not line.can_lock_now

    async def ask(name: str) -> None:
        async with line.lock_once_recorded():
            order.append(name)
            assert not line.can_lock_now

    async def release() -> None:
        await line.is_wanted.wait()
        assert order == []
        line.is_recorded.set()
        assert not line.can_lock_now, "somebody has it"

    await asyncio.gather(ask("first"), ask("second"), release())
    assert (order, line.can_lock_now) == (["first", "second"], True)


def test_a_session_whose_tools_changed_goes_on_in_its_line_with_a_new_beginning() -> None:
    tracks = ConversationMatcher()
    line = line_of("one", "a", "b", session="s")
    tracks.add_known_messages(line)
    tracks.assign_session(line, "s", "another head")
    assert find_position(tracks, hashes("x"), "s", "another head").known_messages is line
    assert find_position(tracks, hashes("x"), "s", "head").known_messages is line, (
        "its summary may be asked without tools"
    )
    assert find_position(tracks, hashes("x"), "s", "a sub-agent's").known_messages is None
