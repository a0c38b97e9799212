"""What makes a message the same message, and text in slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.protocols import wire_message
from helix_desktop.protocols.wire_message import Piece, PieceKind, Speaker, Wired, slice_text

texts = st.text(st.characters(), max_size=30)
kinds = st.sampled_from([PieceKind.TEXT, PieceKind.CALL, PieceKind.RESULT, PieceKind.REASONING])
pieces = st.lists(st.builds(lambda k, t, i: Piece(k, t, id=i, name="Bash"), kinds, texts, texts), max_size=4)


@given(st.sampled_from(Speaker), pieces, st.integers(1, 7))
def test_a_key_does_not_depend_on_how_texts_are_sliced(speaker: Speaker, said: list[Piece], size: int) -> None:
    wired = Wired(speaker, (), tuple(said))
    whole = wired.identity_key
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_message, "SLICE", size)
        assert wired.identity_key == whole
        assert all("".join(slice_text(piece.text)) == piece.text for piece in said)


def test_keys_of_a_journal_written_earlier_stay_the_same() -> None:
    words = Wired(Speaker.ASSISTANT, (), (Piece(PieceKind.TEXT, "I look\n around"), Piece(PieceKind.TEXT, " now")))
    calls = Wired(
        Speaker.ASSISTANT, (), (Piece(PieceKind.TEXT, "x"), Piece(PieceKind.CALL, "{}", id="call-1", name="Bash"))
    )
    result = Wired(Speaker.USER, (), (Piece(PieceKind.RESULT, "out\nput", id="call-1"), Piece(PieceKind.TEXT, "ä")))
    assert [each.identity_key for each in (words, calls, result)] == KEYS


def test_white_space_reasoning_and_arguments_do_not_make_another_reply() -> None:
    one = Wired(Speaker.ASSISTANT, (), (Piece(PieceKind.REASONING, "a"), Piece(PieceKind.TEXT, "I  look")))
    other = Wired(Speaker.ASSISTANT, (), (Piece(PieceKind.TEXT, "I look\n"),))
    assert one.identity_key == other.identity_key


KEYS = ["dbdef8e191d2af4ab4fa740ffdde6f02", "fb8cbfc7c6a4fd9189072366091b9e93", "9848639ecda64b1c61218ae15a66035f"]
