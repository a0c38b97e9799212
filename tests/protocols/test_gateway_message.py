"""What makes a message the same message, and text in slices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import ToolSpec
from helix_desktop.protocols import gateway_message
from helix_desktop.protocols.gateway_message import (
    CallNumbering,
    Piece,
    PieceEdit,
    PieceKind,
    ProtocolMessage,
    Speaker,
    copy_with_change,
    edit_pieces,
    images_of_content,
    join_added_messages,
    parse_tool,
    piece_of_part,
    replace_text_in_content,
    slice_text,
    text_of_content,
    unknown_piece,
)
from helix_desktop.protocols.protocol_table import WIRE_MODULES

texts = st.text(st.characters(), max_size=30)
kinds = st.sampled_from([PieceKind.TEXT, PieceKind.CALL, PieceKind.RESULT, PieceKind.REASONING])
pieces = st.lists(
    st.builds(lambda k, t, i: Piece(k, t, id=i, name="Bash"), kinds, texts, texts), max_size=4
)


@given(st.sampled_from(Speaker), pieces, st.integers(1, 7))
def test_a_key_does_not_depend_on_how_texts_are_sliced(
    speaker: Speaker, said: list[Piece], size: int
) -> None:
    wired = ProtocolMessage(speaker, (), tuple(said))
    whole = wired.identity_key
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway_message, "SLICE", size)
        assert wired.identity_key == whole
        assert all("".join(slice_text(piece.text)) == piece.text for piece in said)


def test_keys_of_a_journal_written_earlier_stay_the_same() -> None:
    words = ProtocolMessage(
        Speaker.ASSISTANT,
        (),
        (Piece(PieceKind.TEXT, "I look\n around"), Piece(PieceKind.TEXT, " now")),
    )
    calls = ProtocolMessage(
        Speaker.ASSISTANT,
        (),
        (Piece(PieceKind.TEXT, "x"), Piece(PieceKind.CALL, "{}", id="call-1", name="Bash")),
    )
    result = ProtocolMessage(
        Speaker.USER,
        (),
        (Piece(PieceKind.RESULT, "out\nput", id="call-1"), Piece(PieceKind.TEXT, "ä")),
    )
    assert [each.identity_key for each in (words, calls, result)] == KEYS


def test_white_space_reasoning_and_arguments_do_not_make_another_reply() -> None:
    one = ProtocolMessage(
        Speaker.ASSISTANT, (), (Piece(PieceKind.REASONING, "a"), Piece(PieceKind.TEXT, "I  look"))
    )
    other = ProtocolMessage(Speaker.ASSISTANT, (), (Piece(PieceKind.TEXT, "I look\n"),))
    assert one.identity_key == other.identity_key


KEYS = [
    "dbdef8e191d2af4ab4fa740ffdde6f02",
    "fb8cbfc7c6a4fd9189072366091b9e93",
    "9848639ecda64b1c61218ae15a66035f",
]


def test_an_image_is_read_from_a_data_address_alone() -> None:
    found = piece_of_part({}, "data:image/png;base64,AAAA", (0, "content", 1), ("",))
    assert found == Piece(PieceKind.IMAGE, "AAAA", (0, "content", 1), media_type="image/png")
    assert piece_of_part({}, "https://example.org/a.png", (), ()).kind is PieceKind.OTHER
    assert piece_of_part({}, "data:text/plain,hello", (), ()).kind is PieceKind.OTHER
    assert piece_of_part({"text": "a"}, "", (), ("",)) == Piece(PieceKind.TEXT, "a")


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
        return join_added_messages(
            units, "parts", lambda one: one["parts"], lambda part: part.startswith("result")
        )

    mine = unit("user", "hello")
    theirs = unit("user", "result 1")
    reply = unit("model", "yes")
    assert joined((mine, False), (theirs, False)) == [mine, theirs]
    assert joined((mine, False), (theirs, True), (reply, False)) == [
        unit("user", "result 1", "hello"),
        reply,
    ]
    assert joined((mine, True), (theirs, False)) == [unit("user", "result 1", "hello")]
    assert joined((mine, False), (reply, True)) == [mine, reply]
    assert mine == unit("user", "hello")


def test_the_last_piece_is_edited_first_so_that_places_stay_true() -> None:
    units = ({"content": [{"text": "a"}, {"text": "b"}, {"text": "c"}]},)
    pieces = tuple(Piece(PieceKind.TEXT, text, (0, "content", at)) for at, text in enumerate("abc"))
    edits = [PieceEdit(0, None), PieceEdit(2, "C")]
    changed = edit_pieces(
        ProtocolMessage(Speaker.USER, units, pieces),
        edits,
        lambda _units, _piece, text: (("text",), text),
    )
    assert changed == [{"content": [{"text": "b"}, {"text": "C"}]}]
    assert units[0]["content"][2] == {"text": "c"}


def test_calls_without_ids_are_answered_in_the_order_they_came() -> None:
    numbers = CallNumbering()
    assert [numbers.assign_call_number(name) for name in ("read", "run", "read")] == [
        "call-1",
        "call-2",
        "call-3",
    ]
    assert [numbers.pop_oldest_open_call(name) for name in ("read", "read", "read", "run")] == [
        "call-1",
        "call-3",
        "",
        "call-2",
    ]
    assert numbers.assign_call_number("run") == "call-4"
    assert numbers.pop_oldest_open_call("run") == "call-4"
    assert numbers.pop_oldest_open_call("run") == ""


def test_a_text_is_sliced_into_parts_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_message, "SLICE", 3)
    assert list(slice_text("abcdefg")) == ["abc", "def", "g"]
    assert list(slice_text("")) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("words", "words"),
        (["one", {"text": "two"}, {"text": 3}, {"type": "image"}, 4, None], "one\ntwo"),
        ({"text": "alone"}, "alone"),
        ({"type": "image"}, ""),
        ([], ""),
        (None, ""),
        (5, ""),
    ],
)
def test_the_text_of_a_content_is_all_that_is_said_in_it(content: Any, text: str) -> None:
    assert text_of_content(content) == text


def test_a_tool_has_a_name_also_where_only_its_kind_is_known() -> None:
    told = {"name": "Bash", "description": "runs"}
    assert parse_tool(told, {"type": "object"}) == ToolSpec("Bash", "runs", '{"type":"object"}')
    assert parse_tool({}, None, "web_search").name == "web_search"
    assert parse_tool(told, None, "web_search").name == "Bash"


def test_a_block_nobody_knows_is_the_same_with_and_without_the_mark_of_a_cache() -> None:
    block = {"type": "novelty", "words": "x"}
    found = unknown_piece({**block, "cache_control": {"type": "ephemeral"}}, (0, "content", 2))
    assert found == unknown_piece(block, (0, "content", 2))
    assert (found.kind, found.path) == (PieceKind.OTHER, (0, "content", 2))
    assert '"words":"x"' in found.text
    assert "cache_control" not in found.text


def test_a_content_that_held_one_part_alone_is_left_out_whole() -> None:
    units = ({"content": [{"text": "a"}]}, {"content": [{"text": "b"}, {"text": "c"}]})
    pieces = (
        Piece(PieceKind.TEXT, "a", (0, "content", 0)),
        Piece(PieceKind.TEXT, "b", (1, "content", 0)),
    )

    def edited(*edits: PieceEdit) -> list[Any]:
        return edit_pieces(
            ProtocolMessage(Speaker.USER, units, pieces),
            edits,
            lambda _units, _piece, text: (("text",), text),
        )

    assert edited(PieceEdit(0, None), PieceEdit(1, None)) == [{}, {"content": [{"text": "c"}]}]
    assert edited(PieceEdit(0, "A")) == [{"content": [{"text": "A"}]}, units[1]]
    whole = ProtocolMessage(
        Speaker.ASSISTANT, ({"type": "message"},), (Piece(PieceKind.TEXT, "a", (0,)),)
    )
    assert edit_pieces(whole, [PieceEdit(0, None)], lambda *_: ((), None)) == []
    assert edited() == list(units)


def test_a_change_copies_what_is_on_the_way_and_shares_the_rest() -> None:
    value = {"a": ({"b": 1}, {"c": 2}), "d": {"e": 3}}
    changed = copy_with_change(value, ("a", 0, "b"), 5)
    assert changed == {"a": [{"b": 5}, {"c": 2}], "d": {"e": 3}}
    assert changed["d"] is value["d"]
    assert changed["a"][1] is value["a"][1]  # type: ignore[index]
    assert value["a"][0] == {"b": 1}  # type: ignore[index]
    assert copy_with_change(value, ("a", 1), None)["a"] == [{"b": 1}]
    assert copy_with_change(value, (), "anew") == "anew"
    assert copy_with_change({"a": {"b": 1}}, ("a", "b"), None) == {"a": {}}


@pytest.mark.parametrize("url", ["data:image/png", "https://example.org/;base64,AAAA"])
def test_an_address_that_only_looks_like_an_image_is_none(url: str) -> None:
    assert piece_of_part({}, url, (), ("",)).kind is PieceKind.OTHER


def test_the_words_of_a_content_in_parts_are_one_and_only_words_are_replaced() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "file"}, {"type": "text", "text": "b"}, "odd"]
    assert replace_text_in_content(parts, "c", "input_text") == [
        {"type": "input_text", "text": "c"},
        {"type": "file"},
        "odd",
    ]
    assert replace_text_in_content(None, "c", "text") == "c"


def test_pictures_in_results_are_found_in_each_protocol() -> None:
    address = "data:image/png;base64,aGVsbG8="
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    anthropic = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": source}]}  # fmt: skip
    responses = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": address}]}  # fmt: skip
    chat = {"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": {"url": address}}]}  # fmt: skip
    data = {"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}}
    gemini = {"name": "read_file", "response": {"output": "read"}, "parts": [data]}
    bodies = {
        "anthropic": {"messages": [{"role": "user", "content": [anthropic]}]},
        "openai-responses": {"input": [responses]},
        "openai-chat": {"messages": [chat]},
        "gemini": {"contents": [{"role": "user", "parts": [{"functionResponse": gemini}]}]},
    }
    for protocol, body in bodies.items():
        (message,) = WIRE_MODULES[protocol].parse_messages(body)
        (result,) = message.pieces_of_kind(PieceKind.RESULT)
        assert result.images == (address,), protocol


def test_of_a_picture_that_stands_elsewhere_nothing_is_taken() -> None:
    parts = [
        {"type": "input_image", "image_url": "https://a.example/1.png"},
        "text",
        {"type": "image"},
    ]
    assert images_of_content(parts) == images_of_content("data:image/png;base64,aGk=") == ()
