"""Replies of connected agents as facts have them."""

from __future__ import annotations

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.gateway.agent_conversation import parts_from_pieces
from helix_desktop.protocols.wire_message import Piece, PieceKind


def test_what_a_reply_says_thinks_and_calls_keeps_its_order() -> None:
    pieces = [
        Piece(PieceKind.REASONING, "hm"),
        Piece(PieceKind.TEXT, "I look."),
        Piece(PieceKind.CALL, '{"path": "a"}', id="c1", name="read"),
    ]
    assert parts_from_pieces(pieces) == (Reasoning("hm"), Text("I look."), ToolCall("c1", "read", '{"path": "a"}'))


def test_empty_words_and_thoughts_of_a_reply_are_left_out_and_a_call_without_arguments_is_not() -> None:
    empty = [Piece(PieceKind.REASONING, ""), Piece(PieceKind.TEXT, "")]
    assert parts_from_pieces([*empty, Piece(PieceKind.CALL, "", id="c1", name="ls")]) == (ToolCall("c1", "ls", ""),)
    assert parts_from_pieces(empty) == parts_from_pieces([]) == (Text(""),)


def test_of_a_block_nobody_here_knows_the_beginning_is_recorded_and_pictures_and_results_are_no_words_of_a_reply() -> (
    None
):
    others = [Piece(PieceKind.IMAGE, "aGVsbG8="), Piece(PieceKind.RESULT, "output", id="c1")]
    assert parts_from_pieces([*others, Piece(PieceKind.OTHER, "x" * 201)]) == (Text(f"[{'x' * 200}]"),)
    assert parts_from_pieces([Piece(PieceKind.OTHER, "")]) == (Text("[]"),)
