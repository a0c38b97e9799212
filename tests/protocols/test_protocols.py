"""Each protocol's messages as pieces, and pieces shown as something else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.fact_encoding import decode_fact, encode_fact
from helix_desktop.engine.facts import Purpose, Spent
from helix_desktop.gateway.sent_body import list_recall_tools
from helix_desktop.protocols.gateway_message import PieceEdit, PieceKind
from helix_desktop.protocols.protocol_table import WIRE_MODULES, with_messages
from tests.gateway.written import FIELDS, bodies
from tests.peers.agent_provider import WRITERS, Calls, Says

each = pytest.mark.parametrize(
    "wire", [pytest.param(wire, id=name) for name, wire in WIRE_MODULES.items()]
)


@each
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_messages_put_together_again_are_the_request_that_came(
    wire: Any, data: st.DataObject
) -> None:
    body = data.draw(bodies(wire.NAME))
    units = [unit for message in wire.parse_messages(body) for unit in message.units]
    assert with_messages(wire.NAME, body, units)[FIELDS[wire.NAME]] == body[FIELDS[wire.NAME]]
    assert wire.merge_added_messages([(unit, False) for unit in units]) == units


@each
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_beginning_that_was_read_is_not_read_again(wire: Any, data: st.DataObject) -> None:
    body = data.draw(bodies(wire.NAME))
    whole = wire.parse_messages(body)
    known = whole[: data.draw(st.integers(0, max(0, len(whole) - 1)))]
    again = wire.parse_messages(body, known)
    assert again == whole
    assert all(one is other for one, other in zip(again, known, strict=False))


@each
def test_a_result_is_shown_as_something_else(wire: Any) -> None:
    reply = wire.parse_reply(
        WRITERS[wire.NAME].whole(
            [Says("I look"), Calls("Bash", {"command": "ls"}, "c1")],
            {"input": 3, "read": 0, "write": 0},
            "1",
        )
    )
    assert [piece.kind for piece in reply.message.pieces if piece.kind is not PieceKind.OTHER] == [
        PieceKind.TEXT,
        PieceKind.CALL,
    ]
    assert (reply.usage.input, reply.message.pieces_of_kind(PieceKind.CALL)[0].name) == (3, "Bash")
    units = [
        wire.user_message("look"),
        *reply.message.units,
        wire.result_message("c1", "Bash", "a long output"),
    ]
    (result,) = (
        one
        for one in wire.parse_messages(with_messages(wire.NAME, {}, units))
        if one.pieces_of_kind(PieceKind.RESULT)
    )
    (shown,) = wire.apply_edits(result, [PieceEdit(0, "short")])
    assert "short" in str(shown)
    assert "a long output" not in str(shown)


@each
def test_tools_of_ours_stand_beside_those_of_the_client(wire: Any) -> None:
    body = wire.with_added_tools(
        {FIELDS[wire.NAME]: [wire.user_message("look")]}, wire.tools_as_json(list_recall_tools())
    )
    assert {tool.name for tool in wire.parse_head(body).tools} == {
        tool.name for tool in list_recall_tools()
    }


@each
@pytest.mark.parametrize("count", [2**63 - 1, -1])
def test_no_count_of_a_provider_makes_a_fact_that_another_machine_refuses(
    wire: Any, count: int
) -> None:
    """A server that says "unlimited" as the largest number, or "unknown" as -1, must
    not stop the sharing.
    """
    names = "input_tokens cache_read_input_tokens cache_creation_input_tokens prompt_tokens promptTokenCount toolUsePromptTokenCount"
    fact = Spent(Purpose.TITLE, "m", wire.parse_usage(dict.fromkeys(names.split(), count)))
    assert (fact.usage.input > 0) is (count > 0)
    assert decode_fact(encode_fact(fact), is_foreign=True) == fact
