"""What the client does not see of a reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from helix_desktop.protocols.event_stream import RawEventSplitter, parse_event_data
from helix_desktop.protocols.gateway_message import PieceKind
from helix_desktop.protocols.hidden_calls import (
    HIDDEN_TOOLS,
    HiddenCallFilter,
    NumberedCallFilter,
    add_earlier_output,
    sum_output,
)
from helix_desktop.protocols.protocol_table import CALL_FILTERS
from tests.gateway.running import PROTOCOLS, WIRES
from tests.peers.agent_provider import WRITERS, Block, Calls, Says, Thinks

all_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
USAGE = {"input": 3, "read": 0, "write": 0}
RECALL = Calls("recall_cached_content", {"sha256": "a" * 64}, "c1")
TOOL = Calls("Bash", {"command": "ls"}, "c2")


def fed(veil: HiddenCallFilter, protocol: str, blocks: Sequence[Block]) -> tuple[bytes, bytes]:
    """The bytes of a reply, and what the client gets of them."""
    came = b"".join(WRITERS[protocol].events(blocks, USAGE, "1"))
    return came, b"".join(
        veil.filter_event(raw, parse_event_data(raw))
        for raw in RawEventSplitter().feed_raw_chunk(came)
    )


def shown(protocol: str, content: bytes) -> list[tuple[str, str]]:
    reading: Any = WIRES[protocol].ReplyAssembler()
    for raw in RawEventSplitter().feed_raw_chunk(content):
        if (event := parse_event_data(raw)) is not None:
            reading.add_reply_event(event)
    pieces = WIRES[protocol].parse_reply(reading.whole_reply()).message.pieces
    return [
        (piece.kind.value, piece.name or piece.text)
        for piece in pieces
        if piece.kind is not PieceKind.REASONING
    ]


@all_protocols
def test_a_reply_without_hidden_calls_is_the_bytes_that_came(protocol: str) -> None:
    veil = CALL_FILTERS[protocol](hold=False)
    came, given = fed(veil, protocol, [Thinks("let me see"), Says("I look"), TOOL])
    assert shown(protocol, given) == shown(protocol, came) == [("text", "I look"), ("call", "Bash")]
    assert not veil.has_only_hidden_calls


@all_protocols
def test_a_hidden_call_beside_one_of_the_clients_is_left_out(protocol: str) -> None:
    veil = CALL_FILTERS[protocol](hold=True)
    _, given = fed(veil, protocol, [Says("I look"), RECALL, TOOL])
    assert shown(protocol, given) == [("text", "I look"), ("call", "Bash")]
    assert b"recall_cached_content" not in given
    assert not veil.has_only_hidden_calls


@all_protocols
def test_replies_that_follow_each_other_are_one_message(protocol: str) -> None:
    veil = CALL_FILTERS[protocol](hold=True)
    _, first = fed(veil, protocol, [Says("I look"), RECALL])
    assert veil.has_only_hidden_calls
    veil.continue_in_next_reply(10)
    _, second = fed(veil, protocol, [Says("and found it"), TOOL])
    found = shown(protocol, first + second)
    assert [kind for kind, _ in found if kind == "call"] == ["call"]
    assert "".join(text for kind, text in found if kind == "text") == "I lookand found it"
    assert b"recall_cached_content" not in first + second


@all_protocols
def test_a_whole_reply_is_put_together_of_several(protocol: str) -> None:
    veil = CALL_FILTERS[protocol](hold=True)
    veil.any_hidden = True
    veil.hidden_count = 1
    values = [
        WRITERS[protocol].whole(blocks, USAGE, "1") for blocks in ([RECALL], [Says("fine"), TOOL])
    ]
    whole = veil.merge_whole_replies(json.loads(json.dumps(values)))
    pieces = WIRES[protocol].parse_reply(whole).message.pieces
    assert [piece.name or piece.text for piece in pieces if piece.kind is not PieceKind.OTHER] == [
        "fine",
        "Bash",
    ]


def test_what_hidden_replies_wrote_is_part_of_the_bill() -> None:
    assert add_earlier_output({"output_tokens": 3, "x": 1}, 4, "output_tokens") == {
        "output_tokens": 7,
        "x": 1,
    }
    told = add_earlier_output({"i": 10, "o": 3, "total_tokens": 13}, 4, "o", "i")
    assert told == {"i": 10, "o": 7, "total_tokens": 17}
    values = [{"usage": {"i": 5, "o": 2}}, {"usage": {"i": 8, "o": 3}}, {"usage": {"i": 9, "o": 4}}]
    assert sum_output(values, "o", "i") == {"i": 9, "o": 9, "total_tokens": 18}
    assert sum_output(values[:1], "o") == {"i": 5, "o": 2}


class _LetterFilter(NumberedCallFilter):
    """Events are letters: what the client gets is a part's letter with its number."""

    index_name = "at"

    def filter_event(self, raw: bytes, event: Any) -> bytes:
        return self.hold_or_show_event(raw, event, event["at"])

    def merge_whole_replies(self, values: Sequence[Any]) -> Any:
        return values

    def renumber_event(self, raw: bytes, event: Any, index: int, shown: int) -> bytes:
        return raw + str(shown).encode()


def play_letters(veil: _LetterFilter, *parts: str) -> list[bytes]:
    """What the client gets for every part: "T" thinks, "H" is hidden, "C" is the
    client's call, all else words.
    """
    given = []
    for at, part in enumerate(parts):
        call = {"H": "recall_history", "C": "Bash"}.get(part)
        begun = veil.begin_reply_part(at, thinks=part == "T", called_tool=call)
        given.append(begun + veil.filter_event(part.encode(), {"at": at}))
    return given


@pytest.mark.parametrize(
    ("hold", "parts", "given"),
    [
        (False, "TaC", [b"T0", b"a1", b"C2"]),
        (False, "THa", [b"T0", b"", b"a1"]),
        (True, "TaC", [b"", b"T0a1", b"C2"]),
        (True, "THa", [b"", b"", b"a0"]),
        # All the reasoning before a hidden call is hidden with it.
        (True, "TTHa", [b"", b"", b"", b"a0"]),
        (True, "TTaC", [b"", b"", b"T0T1a2", b"C3"]),
        (True, "TaTTHa", [b"", b"T0a1", b"", b"", b"", b"a2"]),
        (
            True,
            "CTHa",
            [b"C0", b"", b"T1", b"a2"],
        ),  # The client must answer: its thoughts belong to it.
        (True, "TCHC", [b"", b"T0C1", b"", b"C2"]),
        (False, "HCHa", [b"", b"C0", b"", b"a1"]),
    ],
)
def test_a_part_is_numbered_when_it_is_shown(hold: bool, parts: str, given: list[bytes]) -> None:
    assert play_letters(_LetterFilter(hold=hold), *parts) == given


def test_what_is_held_back_at_the_end_is_shown_once() -> None:
    veil = _LetterFilter(hold=True)
    assert play_letters(veil, "a", "T") == [b"a0", b""]
    assert veil.release_held_events() == b"T1"
    assert veil.release_held_events() == b""
    assert (veil.shown_count, veil.filter_event(b"t", {"at": 1})) == (2, b"t1"), (
        "the rest of it comes at once"
    )


def test_a_reply_that_follows_shows_no_more_thoughts_once_the_client_has_seen_something() -> None:
    veil = _LetterFilter(hold=True)
    assert play_letters(veil, "H") == [b""]
    veil.continue_in_next_reply(1)
    assert play_letters(veil, "T", "a", "H") == [b"", b"T0a1", b""]
    veil.continue_in_next_reply(1)
    assert play_letters(veil, "T", "a") == [b"", b"a2"]


def test_calls_are_counted_as_hidden_or_the_clients() -> None:
    veil = _LetterFilter(hold=False)
    assert (veil.replies_before, veil.output_tokens_before) == (0, 0)
    assert not veil.has_only_hidden_calls, "a reply without calls"
    for number, name in enumerate(sorted(HIDDEN_TOOLS), 1):
        assert veil.count_and_check_hidden(name)
        assert (veil.hidden_count, veil.visible_count, veil.any_hidden) == (number, 0, True)
    assert veil.has_only_hidden_calls
    assert not veil.count_and_check_hidden("Bash")
    assert (veil.hidden_count, veil.visible_count, veil.has_only_hidden_calls) == (3, 1, False)
    assert not veil.count_and_check_hidden("Bash")
    assert veil.visible_count == 2


def test_a_reply_that_is_counted_leaves_nothing_to_the_next_but_what_the_client_saw_and_what_it_cost() -> (
    None
):
    veil = _LetterFilter(hold=True)
    play_letters(veil, "a", "H", "T")
    veil.continue_in_next_reply(5)
    veil.continue_in_next_reply(2)
    assert (veil.replies_before, veil.output_tokens_before, veil.shown_count) == (2, 7, 1)
    assert (veil.hidden_count, veil.visible_count, veil.any_hidden) == (0, 0, True)
    assert veil.release_held_events() == b""


def test_a_reply_that_is_repeated_begins_again_without_counting_as_one_before() -> None:
    veil = _LetterFilter(hold=True)
    play_letters(veil, "H", "T")
    veil.reset_for_retry()
    assert (veil.replies_before, veil.hidden_count, veil.release_held_events()) == (0, 0, b"")
    assert play_letters(veil, "T", "C") == [b"", b"T0C1"]
