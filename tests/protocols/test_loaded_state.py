"""What an agent has loaded for the rest of its work."""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.protocols.gateway_message import Piece, PieceKind
from helix_desktop.protocols.loaded_state import has_other_parts, mark_all, mark_loaded_state


@pytest.mark.parametrize(
    ("piece", "outlives"),
    [
        (Piece(PieceKind.CALL, "{}", name="Skill"), True),
        (Piece(PieceKind.CALL, "{}", name="activate_skill"), True),
        (Piece(PieceKind.CALL, "{}", name="Read"), False),
        (Piece(PieceKind.RESULT, "{}", name="Skill"), False),
        (Piece(PieceKind.TEXT, "<skill>\nsteps"), True),
        (Piece(PieceKind.TEXT, "a <skill>"), False),
        (Piece(PieceKind.TEXT, "Base directory for this skill: /s"), True),
        (Piece(PieceKind.REASONING, "<skill>"), False),
        (Piece(PieceKind.OTHER, "x", outlives_folds=True), True),
    ],
)
def test_pieces_that_load_something(piece: Piece, outlives: bool) -> None:
    (marked,) = mark_loaded_state([piece])
    assert marked.outlives_folds is outlives
    assert (marked.kind, marked.text, marked.name) == (piece.kind, piece.text, piece.name)


def test_a_message_that_goes_on_as_a_whole_has_a_piece_even_without_words() -> None:
    texts = [Piece(PieceKind.TEXT, "a"), Piece(PieceKind.IMAGE, "b")]
    assert [piece.outlives_folds for piece in mark_all(texts, {})] == [True, True]
    (only,) = mark_all([], {"role": "system", "output_config": {"effort": "low"}})
    assert only.outlives_folds
    assert only.path == (0,)
    assert "effort" in only.text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text", False),
        (None, False),
        ([], False),
        ([{"type": "text"}], False),
        ([{"type": "text"}, {"type": "new"}], True),
        ({"type": "new"}, True),
        ({"type": "text"}, False),
        (["plain"], False),
    ],
)
def test_parts_that_are_not_known(content: Any, expected: bool) -> None:
    assert has_other_parts(content, {"text"}) is expected
