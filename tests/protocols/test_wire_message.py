"""What makes a message the same message, and text in slices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.protocols import wire_message
from helix_desktop.protocols.wire_message import (
    CallNumbering,
    Piece,
    PieceEdit,
    PieceKind,
    Speaker,
    Wired,
    edit_pieces,
    join_added_messages,
    piece_of_image_url,
    replace_text_in_content,
    slice_text,
)

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


def test_an_image_is_read_from_a_data_address_alone() -> None:
    found = piece_of_image_url("data:image/png;base64,AAAA", (0, "content", 1))
    assert found == Piece(PieceKind.IMAGE, "AAAA", (0, "content", 1), media_type="image/png")
    assert piece_of_image_url("https://example.org/a.png", ()) is None
    assert piece_of_image_url("data:text/plain,hello", ()) is None


def test_a_content_keeps_its_form_and_its_pictures() -> None:
    picture = {"type": "image", "source": {}}
    assert replace_text_in_content("before", "after", "text") == "after"
    assert replace_text_in_content([{"type": "text", "text": "a"}, picture], "b", "text") == [
        {"type": "text", "text": "b"},
        picture,
    ]


def test_messages_of_one_role_are_joined_where_one_was_added_and_nowhere_else() -> None:
    def unit(role: str, *parts: str) -> dict[str, Any]:
        return {"role": role, "parts": list(parts)}

    def joined(*units: tuple[dict[str, Any], bool]) -> list[Any]:
        return join_added_messages(units, "parts", lambda one: one["parts"], lambda part: part.startswith("result"))

    mine, theirs, reply = unit("user", "hello"), unit("user", "result 1"), unit("model", "yes")
    assert joined((mine, False), (theirs, False)) == [mine, theirs]
    assert joined((mine, False), (theirs, True), (reply, False)) == [unit("user", "result 1", "hello"), reply]
    assert joined((mine, True), (theirs, False)) == [unit("user", "result 1", "hello")]
    assert joined((mine, False), (reply, True)) == [mine, reply]
    assert mine == unit("user", "hello")


def test_the_last_piece_is_edited_first_so_that_places_stay_true() -> None:
    units = ({"content": [{"text": "a"}, {"text": "b"}, {"text": "c"}]},)
    pieces = tuple(Piece(PieceKind.TEXT, text, (0, "content", at)) for at, text in enumerate("abc"))
    edits = [PieceEdit(0, None), PieceEdit(2, "C")]
    changed = edit_pieces(Wired(Speaker.USER, units, pieces), edits, lambda _units, _piece, text: (("text",), text))
    assert changed == [{"content": [{"text": "b"}, {"text": "C"}]}]
    assert units[0]["content"][2] == {"text": "c"}


def test_calls_without_ids_are_answered_in_the_order_they_came() -> None:
    numbers = CallNumbering()
    assert [numbers.assign_call_number(name) for name in ("read", "run", "read")] == ["call-1", "call-2", "call-3"]
    assert [numbers.take_oldest_open_call(name) for name in ("read", "read", "read", "run")] == [
        "call-1",
        "call-3",
        "",
        "call-2",
    ]
