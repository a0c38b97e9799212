"""What the client does not see of a reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from helix_desktop.protocols.event_stream import RawEventSplitter, parse_event_data
from helix_desktop.protocols.gateway_message import PieceKind
from helix_desktop.protocols.hidden_calls import HiddenCallFilter, add_earlier_output, sum_output
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
        veil.filter_event(raw, parse_event_data(raw)) for raw in RawEventSplitter().feed_raw_chunk(came)
    )


def shown(protocol: str, content: bytes) -> list[tuple[str, str]]:
    reading: Any = WIRES[protocol].ReplyAssembler()
    for raw in RawEventSplitter().feed_raw_chunk(content):
        if (event := parse_event_data(raw)) is not None:
            reading.add_reply_event(event)
    pieces = WIRES[protocol].parse_reply(reading.whole_reply()).message.pieces
    return [(piece.kind.value, piece.name or piece.text) for piece in pieces if piece.kind is not PieceKind.REASONING]


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
    veil.count_and_reset_reply(10)
    _, second = fed(veil, protocol, [Says("and found it"), TOOL])
    found = shown(protocol, first + second)
    assert [kind for kind, _ in found if kind == "call"] == ["call"]
    assert "".join(text for kind, text in found if kind == "text") == "I lookand found it"
    assert b"recall_cached_content" not in first + second


@all_protocols
def test_a_whole_reply_is_put_together_of_several(protocol: str) -> None:
    veil = CALL_FILTERS[protocol](hold=True)
    veil.any_hidden, veil.hidden_count = True, 1
    values = [WRITERS[protocol].whole(blocks, USAGE, "1") for blocks in ([RECALL], [Says("fine"), TOOL])]
    whole = veil.merge_whole_replies(json.loads(json.dumps(values)))
    pieces = WIRES[protocol].parse_reply(whole).message.pieces
    assert [piece.name or piece.text for piece in pieces if piece.kind is not PieceKind.OTHER] == ["fine", "Bash"]


def test_what_hidden_replies_wrote_is_part_of_the_bill() -> None:
    assert add_earlier_output({"output_tokens": 3, "x": 1}, 4, "output_tokens") == {"output_tokens": 7, "x": 1}
    told = add_earlier_output({"i": 10, "o": 3, "total_tokens": 13}, 4, "o", "i")
    assert told == {"i": 10, "o": 7, "total_tokens": 17}
    values = [{"usage": {"i": 5, "o": 2}}, {"usage": {"i": 8, "o": 3}}, {"usage": {"i": 9, "o": 4}}]
    assert sum_output(values, "o", "i") == {"i": 9, "o": 9, "total_tokens": 18}
    assert sum_output(values[:1], "o") == {"i": 5, "o": 2}
