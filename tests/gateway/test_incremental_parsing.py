"""Bodies read from where they differ come to what they come to when all of them is read."""

from __future__ import annotations

import copy
import json
import re
import sys
from array import array
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.gateway import incremental_parsing
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.folded_request import (
    PreviousBody,
    build_folded_body,
    count_leading_instructions,
)
from helix_desktop.gateway.incremental_parsing import (
    FIRST_VALUES,
    BodyParser,
    PackedBody,
    ValueOffsets,
    count_common_bytes,
    read_values_of_list,
)
from helix_desktop.gateway.view_entries import Entry, InsertedText, UnchangedMessage
from helix_desktop.protocols.gateway_message import SLICE, ProtocolMessage
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES
from tests.gateway.written import bodies, dumped, units


def _values_of_list(content: bytes) -> tuple[Any, Any, list[Any]]:
    places, values = ValueOffsets(content, array("q"), array("q")), list[Any]()
    read_values_of_list(places, b"messages", values.extend)
    return places.begins, places.ends, values


all_protocols = pytest.mark.parametrize("protocol", tuple(MESSAGE_FIELDS))


@all_protocols
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_body_read_after_another_is_the_same_as_one_read_alone(
    protocol: str, data: st.DataObject
) -> None:
    readings, style = BodyParser(), data.draw(st.integers(0, 3))
    body: Any = data.draw(bodies(protocol))
    for _ in range(3):
        content = dumped(body, style)
        found = readings.parse_body(protocol, content, "s")
        assert found is not None
        value = json.loads(content)
        assert found.value == value
        wire: Any = WIRE_MODULES[protocol]
        alone = wire.parse_messages(value)
        assert [
            ProtocolMessage(one.speaker, one.units, one.pieces) for one in found.messages
        ] == alone
        assert found.head == wire.parse_head(value)
        assert found.chain == compute_message_hashes(
            protocol, alone[count_leading_instructions(alone) :]
        )
        if data.draw(st.booleans()):
            found.places.content = PackedBody(found.places.content)
        assert json.loads(b"".join(found.encode_changed_body(found.value))) == value
        assert [dict(unit) for unit in found.message_units] == value[MESSAGE_FIELDS[protocol]]
        given_units = list(body[MESSAGE_FIELDS[protocol]])
        keep = data.draw(st.integers(0, len(given_units)))
        body = {
            **body,
            MESSAGE_FIELDS[protocol]: [
                *given_units[:keep],
                *data.draw(st.lists(units(protocol), max_size=3)),
            ],
        }


def test_what_was_there_before_is_not_parsed_again() -> None:
    readings = BodyParser()
    said: list[Any] = [{"role": "user", "content": f"message {n}"} for n in range(50)]
    first = readings.parse_body(
        "anthropic", orjson.dumps({"model": "m", "messages": said, "tools": []}), "s"
    )
    said.append({"role": "assistant", "content": "and one more"})
    second = readings.parse_body(
        "anthropic", orjson.dumps({"model": "m", "messages": said, "tools": []}), "s"
    )
    assert first is not None
    assert second is not None
    assert all(
        one is other for one, other in zip(first.message_units, second.message_units, strict=False)
    )
    assert (
        sum(one is other for one, other in zip(first.messages, second.messages, strict=False)) >= 49
    )
    assert second.head is first.head


def test_marks_are_found_in_the_bytes_and_not_in_texts() -> None:
    said: list[Any] = [
        {"role": "user", "content": 'it says "cache_control": here'},
        {
            "role": "user",
            "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        },
    ]
    found = BodyParser().parse_body("anthropic", orjson.dumps({"messages": said, "system": []}), "")
    assert found is not None
    assert found.marked == frozenset({1})


@all_protocols
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_is_kept_of_a_request_makes_the_next_one_no_other(
    protocol: str, data: st.DataObject
) -> None:
    readings = BodyParser()
    body: Any = data.draw(bodies(protocol))
    entries: list[Entry] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_parsing, "VALUES_IN_GROUP", data.draw(st.integers(1, 4)))
        for _ in range(3):
            found = readings.parse_body(protocol, dumped(body, 0), "s")
            assert found is not None
            if data.draw(st.booleans()):
                found.places.content = PackedBody(found.places.content)
            said = len(found.messages) - count_leading_instructions(found.messages)
            own = [
                each
                for each in entries[: data.draw(st.integers(0, len(entries)))]
                if getattr(each, "at", 0) < said
            ]
            first = (
                max([each.at for each in own if isinstance(each, UnchangedMessage)], default=-1) + 1
            )
            entries = [*own, *map(UnchangedMessage, range(first, said))]
            if data.draw(st.booleans()):
                entries.insert(
                    data.draw(st.integers(0, len(entries))), InsertedText("what was done")
                )
            marks, sent = found.marked, PreviousBody(marked_request=found.previous.marked_request)
            shown = build_folded_body(
                protocol, found.value, found.messages, entries, marks, found.previous
            )
            assert shown == build_folded_body(
                protocol, found.value, found.messages, entries, marks, sent
            )
            assert json.loads(b"".join(found.encode_changed_body(shown))) == shown
            given_units = list(body[MESSAGE_FIELDS[protocol]])
            keep = data.draw(st.integers(0, len(given_units)))
            body = {
                **body,
                MESSAGE_FIELDS[protocol]: [
                    *given_units[:keep],
                    *data.draw(st.lists(units(protocol), max_size=3)),
                ],
            }


def test_what_goes_on_is_written_as_the_bytes_it_came_as() -> None:
    content = (
        b'{"messages": [ {"role":"user",  "content":1.0} ,{"role":"user","content":"b"}], "x": 1}'
    )
    found = BodyParser().parse_body("anthropic", content, "")
    assert found is not None
    assert b'{"role":"user",  "content":1.0} ,{"role":"user","content":"b"}' in b"".join(
        found.encode_changed_body(found.value)
    )


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"{}",
        b'{"messages": 3}',
        b'{"messages": ["a"]}',
        b'{"messages": []}',
        b'{"messages": [{}], "messages": []}',
    ],
)
def test_what_cannot_be_cut_is_read_whole(content: bytes) -> None:
    found = BodyParser().parse_body("anthropic", content, "")
    assert found is None or found.value == json.loads(content)


@pytest.mark.parametrize(
    "content", [b"", b"{no json", b'{"messages": [{]}', b'{"messages": [{"a": "b', b"\xff\xfe"]
)
def test_what_is_no_json_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        BodyParser().parse_body("anthropic", content, "")


@given(st.binary(max_size=200), st.binary(max_size=50), st.binary(max_size=50))
def test_common_is_as_long_as_it_can_be(before: bytes, one: bytes, other: bytes) -> None:
    found = count_common_bytes(before + one, before + other)
    assert found >= len(before)
    assert (before + one)[:found] == (before + other)[:found]
    assert (before + one)[found : found + 1] != (before + other)[found : found + 1] or found == min(
        len(before + one), len(before + other)
    )


def test_of_many_conversations_the_oldest_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_parsing, "MOST_HELD_BODIES", 3)
    readings = BodyParser()
    for number in range(10):
        readings.parse_body(
            "anthropic",
            orjson.dumps({"messages": [{"role": "user", "content": str(number)}]}),
            str(number),
        )
    assert len(readings._held) == 3


def test_a_list_is_found_behind_anything() -> None:
    content = (
        b'{"a": {"messages": [1]}, "b": "]}\\\\", "c": -1.5e3,"messages":[{"x": "\\\\\\"}]"},{}]}'
    )
    begins, ends, _ = _values_of_list(content)
    assert [content[a:b] for a, b in zip(begins, ends, strict=True)] == [
        b'{"x": "\\\\\\"}]"}',
        b"{}",
    ]


long_texts = st.lists(
    st.sampled_from(
        ["plain words ", "\n", '"', "\\", "ä", "😀", "\u2028", "\0", "\\u0041", "한", "\ud7ff"]
    ),
    max_size=60,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(long_texts, long_texts, st.booleans(), st.integers(14, 40))
def test_long_texts_are_read_in_slices(one: str, other: str, ascii_only: bool, size: int) -> None:
    value = {"role": "user", one: [other, {"content": one + other, "n": [1, None]}]}
    content = b"  " + json.dumps(value, ensure_ascii=ascii_only).encode() + b"}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_parsing, "SLICE", size)
        assert incremental_parsing.parse_value_between(content, 2, len(content) - 1) == value
        assert (
            incremental_parsing.parse_value_between(bytearray(content), 2, len(content) - 1)
            == value
        )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**12) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=9), inner, max_size=8)
    ),
    max_leaves=40,
)


@settings(max_examples=200, deadline=None)
@given(
    json_values,
    st.integers(16, 60),
    st.integers(0, 400),
    st.sampled_from(["", ",", "]", "{", '"', " ", ":1", "[]"]),
)
def test_a_value_read_in_slices_is_what_it_is_in_one_piece_or_is_refused(
    value: Any, size: int, at: int, wrong: str
) -> None:
    text = json.dumps({"a": value})
    content = (text[:at] + wrong + text[at + bool(wrong) :]).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_parsing, "SLICE", size)
        patch.setattr(incremental_parsing, "STEP", size)
        try:
            whole = orjson.loads(content)
        except ValueError:
            with pytest.raises(ValueError):
                incremental_parsing.parse_whole_body(content)
        else:
            assert incremental_parsing.parse_whole_body(content) == whole


def test_no_slice_of_a_body_that_is_one_value_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser holds the interpreter, and all other agents wait."""
    longest = 0

    def loads(content: Any) -> Any:
        nonlocal longest
        longest = max(longest, len(content))
        return orjson.loads(content)

    monkeypatch.setattr(incremental_parsing, "orjson", SimpleNamespace(loads=loads))
    found = incremental_parsing.parse_whole_body(b'{"messages": [' + b'"a", ' * 400_000 + b'"a"]}')
    assert len(found["messages"]) == 400_001
    assert longest <= SLICE + 2


MANY = 1_000_000
HOSTILE_BODIES = {
    "blanks": b'{"messages":' + b" " * MANY + b"[{}]}",
    "levels": b'{"messages":[' * (MANY // 13),
    "lists": b'{"messages":[{"a":[' + b"[]," * MANY + b"[]]}]}",
    "deep lists": b'{"messages":[{"a":[' + (b"[" * 12 + b"]" * 12 + b",") * (MANY // 4) + b"[]]}]}",
    "quotes": b'{"messages":[{"a":"' + b'\\"' * MANY + b'"}]}',
    "backslashes": b'{"messages":[{"a":"' + b"\\\\" * MANY + b'"}]}',
    "number": b'{"a":' + b"1" * MANY + b',"messages":[]}',
    "unclosed": b'{"messages":[{"a":"' + b"x" * MANY,
}


@pytest.mark.parametrize("name", HOSTILE_BODIES)
def test_a_hostile_body_is_scanned_by_patterns_and_not_byte_by_byte(name: str) -> None:
    """Lines of Python that are run for a million signs: a loop over them runs millions."""
    lines = 0

    def count_line(_frame: object, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count_line

    sys.settrace(count_line)
    try:
        BodyParser().parse_body("anthropic", HOSTILE_BODIES[name], "s")
    except ValueError:
        pass
    finally:
        sys.settrace(None)
    assert lines < 50_000


def test_values_not_parted_by_commas_are_no_list() -> None:
    with pytest.raises(ValueError):
        BodyParser().parse_body("anthropic", b'{"messages":[{"a":1} {"b":2}]}', "")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(16, 64), st.text(max_size=20))
def test_values_of_any_depth_and_length_are_cut_alike(levels: int, step: int, text: str) -> None:
    deep: Any = text
    for _ in range(levels):
        deep = [{"[": deep, "}": '"]'}, "x" * 40]
    units = [{"a": deep}, {}, {"b": text}]
    content = json.dumps({"tools": deep, "messages": units}).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_parsing, "STEP", step)
        begins, ends, _ = _values_of_list(content)
    assert [json.loads(content[a:b]) for a, b in zip(begins, ends, strict=True)] == units


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["role", "type", "a", 'x"y', "ä", "},{", ",", ""]),
            st.sampled_from(
                [
                    "},{",
                    '"},{"role":',
                    "\\",
                    1,
                    {"role": "b"},
                    [{"role": 1}, {"type": 2}, {"a": {}}],
                    None,
                ]
            ),
            max_size=3,
        ),
        max_size=12,
    ),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")]),
    st.integers(20, 300),
)
def test_objects_that_are_read_many_at_once_are_cut_where_each_of_them_ends(
    units: list[Any], ascii_only: bool, signs: tuple[str, str], size: int
) -> None:
    content = json.dumps({"messages": units}, ensure_ascii=ascii_only, separators=signs).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_parsing, "SLICE", size)
        begins, ends, values = _values_of_list(content)
    assert values == units
    assert [json.loads(content[a:b]) for a, b in zip(begins, ends, strict=True)] == units


def test_of_objects_that_are_not_alike_none_is_taken_for_two() -> None:
    escaped = b'{"messages":[{"\\u0072ole":1},{"role":{"a":[{"role":2},{"role":3}]}},{"x":0},7]}'
    with pytest.raises(ValueError):
        _values_of_list(escaped)
    begins, ends, values = _values_of_list(escaped.replace(b",7]", b"]"))
    assert [json.loads(escaped[a:b]) for a, b in zip(begins, ends, strict=True)] == values
    assert len(values) == 3


def test_white_space_is_the_same_to_both_ways_of_leaving_it_out() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert "".join(every.split()) == re.sub(r"\s+", "", every)


def test_a_long_value_is_read_in_slices_to_the_depth_that_is_allowed_and_no_deeper() -> None:
    long = '"' + "x" * SLICE + '"'
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        most = incremental_parsing.MOST_SLICED_LEVELS
        content = (opening * most + long + closing * most).encode()
        assert incremental_parsing.parse_whole_body(content) == json.loads(content)
        with pytest.raises(ValueError):
            incremental_parsing.parse_whole_body(opening.encode() + content + closing.encode())
    assert incremental_parsing.MOST_SLICED_LEVELS == 24


def test_values_nested_a_thousand_deep_are_read_and_much_deeper_ones_go_on_unread() -> None:
    for levels in (1_000, most := 1_000 + incremental_parsing._LEVELS_AT_ONCE):
        assert incremental_parsing._find_value_end(b"[" * levels + b"]" * levels, 0) == 2 * levels
    with pytest.raises(incremental_parsing.MessagesNotFound):
        incremental_parsing._find_value_end(b"[" * (most + 1) + b"]" * (most + 1), 0)


def test_as_many_lists_and_objects_as_are_allowed_are_read_and_one_more_is_not() -> None:
    incremental_parsing.check_bracket_count(b'[{"a":[{}]}]', 0, 4)
    incremental_parsing.check_bracket_count(b'[{"a":[{}]}]', 1, 3)
    with pytest.raises(ValueError, match="more than 3 lists"):
        incremental_parsing.check_bracket_count(b'[{"a":[{}]}]', 0, 3)


def _body(said: int, **more: Any) -> bytes:
    return orjson.dumps(
        {
            "model": "m",
            "messages": [{"role": "user", "content": str(n)} for n in range(said)],
            **more,
        }
    )


@pytest.mark.parametrize(
    "change", [{"system": "other"}, {"tools": [{"name": "Bash", "input_schema": {}}]}]
)
def test_instructions_and_tools_that_changed_behind_the_messages_are_read_anew(
    change: dict[str, Any],
) -> None:
    readings = BodyParser()
    first = readings.parse_body("anthropic", _body(3, system="one", tools=[]), "s")
    second = readings.parse_body(
        "anthropic", _body(3, **{"system": "one", "tools": [], **change}), "s"
    )
    assert first is not None
    assert second is not None
    assert second.messages[0] is first.messages[0], "the messages are not read again"
    assert second.head == WIRE_MODULES["anthropic"].parse_head(second.value) != first.head


def test_tools_whose_keys_come_in_another_order_are_read_anew() -> None:
    readings = BodyParser()
    schema = {"type": "object", "required": []}
    first, second = (
        readings.parse_body(
            "anthropic", _body(3, tools=[{"name": "Bash", "input_schema": keys}]), "s"
        )
        for keys in (schema, dict(reversed(schema.items())))
    )
    assert first is not None
    assert second is not None
    assert second.head.tools != first.head.tools


def test_a_body_takes_the_place_of_the_one_it_goes_on_from_and_side_requests_stay_beside_it() -> (
    None
):
    readings = BodyParser()

    def held_after(content: bytes) -> list[bytes]:
        readings.parse_body("anthropic", content, "s")
        [held] = readings._held.values()
        return [bytes(body.places.content) for body in held]

    two, three, same, side = _body(2), _body(3), _body(3, x=1), _body(1, model="n")
    assert held_after(two) == [two]
    assert held_after(three) == [three]
    assert held_after(same) == [same]
    assert held_after(two) == [same, two]
    assert held_after(side) == [same, two, side]
    more = [
        _body(1, model=f"other {number}")
        for number in range(incremental_parsing.MOST_BODIES_PER_SESSION)
    ]
    for content in more:
        found = held_after(content)
    assert found == more


def test_of_the_bodies_of_a_session_the_most_similar_is_gone_on_from() -> None:
    readings = BodyParser()
    for content in (_body(4), _body(2), _body(3, model="n")):
        readings.parse_body("anthropic", content, "s")
    nearest, same = readings._find_most_similar("anthropic", _body(5), "s")
    assert nearest is not None
    assert (bytes(nearest.places.content), same) == (
        _body(4),
        count_common_bytes(_body(4), _body(5)),
    )
    assert readings._find_most_similar("anthropic", _body(5), "t") == (None, 0)
    assert readings._find_most_similar("anthropic", _body(5, model="o"), "s") == (None, 0)


@pytest.mark.parametrize("most", [20, 10_000])
def test_a_changed_list_has_the_bytes_of_all_other_values(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(incremental_parsing, "VALUES_IN_GROUP", 2)
    monkeypatch.setattr(incremental_parsing, "MOST_JOINED", most)
    content = _body(5).replace(b'"4"', b'"\\u0034"')
    readings = BodyParser()
    found = readings.parse_body("anthropic", content, "s")
    assert found is not None
    units = [*found.message_units[:2], {"role": "user", "content": "new"}, *found.message_units[3:]]
    changed = content.replace(b'"2"', b'"new"')
    assert b"".join(found.encode_changed_body({**found.value, "messages": units})) == changed
    assert readings.parse_body("anthropic", content[:-2] + b',{"role":"user"}]}', "s") is not None
    assert b"".join(found.encode_changed_body({**found.value, "messages": units})) == changed, (
        "of a body behind it"
    )


_NO_PLACES: Any = incremental_parsing.ValueOffsets(b"", array("q"), array("q"))
_WITHOUT_PLACES = incremental_parsing.ParsedBody(
    "anthropic",
    _NO_PLACES,
    {},
    [],
    (),
    SimpleNamespace(),  # type: ignore[arg-type]
    None,
)


@pytest.mark.parametrize(
    "ask",
    [
        lambda value: value | {"x": 1},
        lambda value: {"x": 1} | value,
        lambda value: {**value},
        dict,
        lambda value: value.copy(),
        lambda value: (value.setdefault("x", 2), dict(value)),
        lambda value: (value.pop("role"), dict(value)),
        lambda value: (value.update(x=1), dict(value)),
        lambda value: (value.__setitem__("x", 1), dict(value)),
        lambda value: list(reversed(value)),
        lambda value: (bool(value), repr(value)),
        copy.deepcopy,
        lambda value: b"".join(_WITHOUT_PLACES.encode_changed_body({"messages": [value]})),
    ],
)
def test_a_value_in_bytes_is_the_object_whatever_is_asked_of_it(ask: Any) -> None:
    """Until it is parsed it is an empty one: an operation that is not known to it would
    send an empty message.
    """
    content = b'{"messages": [{"role":"user","content":"hello"}]}'
    (value,) = incremental_parsing.BodyParser().parse_body("anthropic", content, "s").message_units  # type: ignore[union-attr]
    assert isinstance(value, incremental_parsing.ValueInBytes)
    asked = ask(value)
    plain = ask({"role": "user", "content": "hello"})
    assert asked == plain


def test_values_are_not_parsed_before_something_in_them_is_asked_for() -> None:
    found = BodyParser().parse_body("anthropic", _body(3), "s")
    assert found is not None
    first, second, third = found.message_units
    assert not any(dict.__len__(unit) for unit in found.message_units)
    assert [piece.text for piece in found.messages[0].pieces] == ["0"]
    assert not dict.__len__(first)
    assert {**first} == dict(first) == {"role": "user", "content": "0"}
    assert (second == third, second != third, second == {"role": "user", "content": "1"}) == (
        False,
        True,
        True,
    )
    assert dict.__len__(third) == 2


@pytest.mark.parametrize(
    ("size", "held"), [(incremental_parsing.MOST_PARSED_AGAIN, True), (10, False)]
)
def test_the_pieces_of_long_messages_are_held(size: int, held: bool) -> None:
    content = orjson.dumps({"messages": [{"role": "user", "content": "x" * size}]})
    found = BodyParser().parse_body("anthropic", content, "s")
    assert found is not None
    assert (found.messages[0].pieces is found.messages[0].pieces) == held


def test_of_a_long_body_that_may_go_on_unread_only_the_first_values_are_held_and_all_go_on() -> (
    None
):
    said = [{"role": "user", "content": f"{number} " * 500} for number in range(5 * FIRST_VALUES)]
    content = orjson.dumps({"model": "m", "messages": said, "stream": True})
    read = BodyParser().parse_body("anthropic", content, "s", may_go_on_unread=True)
    assert read is not None
    assert read.read_rest is not None
    assert FIRST_VALUES <= len(read.message_units) < 2 * FIRST_VALUES
    assert len(read.places.begins) == len(read.places.ends) == len(said)
    changed = {
        **read.value,
        "messages": [{"role": "user", "content": "0"}, *read.message_units[1:]],
    }
    for value, first in ((read.value, said[0]), (changed, changed["messages"][0])):
        written = orjson.loads(b"".join(read.encode_changed_body({**value, "tools": []})))
        assert written == {
            "model": "m",
            "messages": [first, *said[1:]],
            "stream": True,
            "tools": [],
        }
    rest = read.read_rest()
    assert rest is not None
    assert rest.message_units == said


@pytest.mark.parametrize("sign", ["[", "{"])
def test_a_body_of_millions_of_lists_is_not_read_whether_it_is_the_first_or_goes_on(
    sign: str,
) -> None:
    """Making them would hold up every other agent. In a text they cost nothing, and are
    not told from others.
    """
    many = sign * (incremental_parsing.MOST_OPENING_SIGNS + 1)
    hostile = _body(3)[:-2] + b',{"role":"user","content":"%b"}]}' % many.encode()
    with pytest.raises(ValueError, match="lists and objects"):
        BodyParser().parse_body("anthropic", hostile, "s")
    readings = BodyParser()
    assert readings.parse_body("anthropic", _body(3), "s") is not None
    with pytest.raises(ValueError, match="lists and objects"):
        readings.parse_body("anthropic", hostile, "s")
    assert readings.parse_body("anthropic", _body(4), "s") is not None


def test_only_a_long_body_of_a_wire_whose_calls_have_ids_goes_on_unread() -> None:
    long = _body(FIRST_VALUES + 1)
    read = {
        (wire, may): BodyParser().parse_body(wire, long.replace(b'"messages"', b'"%b"' % MESSAGE_FIELDS[wire].encode()), "s", may_go_on_unread=may)
        for wire in ("anthropic", "gemini")
        for may in (True, False)
    }  # fmt: skip
    assert {key: found is not None and found.read_rest is not None for key, found in read.items()} == {
        ("anthropic", True): True, ("anthropic", False): False, ("gemini", True): False, ("gemini", False): False,
    }  # fmt: skip
    short = BodyParser().parse_body("anthropic", _body(FIRST_VALUES), "s", may_go_on_unread=True)
    assert short is not None
    assert short.read_rest is None


@pytest.mark.parametrize("end", [b"", b"\\", b'\\"', b"\\\\", b'"'])
def test_a_text_that_never_ends_is_no_body(end: bytes) -> None:
    with pytest.raises(incremental_parsing.MessagesNotFound):
        BodyParser().parse_body(
            "anthropic", b'{"messages": [{"role": "user", "content": "x' + end, "s"
        )


def test_one_conversation_is_remembered_however_large_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incremental_parsing, "MOST_HELD_BYTES", 1)
    readings = BodyParser()
    first = readings.parse_body("anthropic", _body(3), "s")
    second = readings.parse_body("anthropic", _body(4), "s")
    assert first is not None
    assert second is not None
    assert second.message_units[0] is first.message_units[0], "it was gone on from"
    readings.parse_body("anthropic", _body(3), "other")
    third = readings.parse_body("anthropic", _body(5), "s")
    assert third is not None
    assert third.message_units[0] is not first.message_units[0], "another took its place"


def test_bodies_of_several_conversations_are_held_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for more, is_kept in ((0, True), (-1, False)):
        monkeypatch.setattr(incremental_parsing, "MOST_HELD_BYTES", 2 * len(_body(3)) + more)
        readings = BodyParser()
        first = readings.parse_body("anthropic", _body(3), "s")
        readings.parse_body("anthropic", _body(3), "other")
        assert first is not None
        monkeypatch.undo()
        again = readings.parse_body("anthropic", _body(4), "s")
        assert again is not None
        assert (again.message_units[0] is first.message_units[0]) == is_kept


@settings(max_examples=40, deadline=None)
@given(content=st.binary(min_size=1, max_size=40), step=st.integers(1, 9), ends=st.tuples(st.integers(0, 40), st.integers(0, 40)))  # fmt: skip
def test_a_packed_body_has_the_bytes_of_the_body(
    content: bytes, step: int, ends: tuple[int, int]
) -> None:
    first, end = sorted(min(one, len(content)) for one in ends)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_parsing, "STEP", step)
        packed, places = PackedBody(content), ValueOffsets(content, array("q"), array("q"))
        assert (len(packed), packed[first:end], packed[:end], packed[first:]) == (len(content), content[first:end], content[:end], content[first:])  # fmt: skip
        assert count_common_bytes(packed, content[:end]) == end
        places.content = packed
        pieces = list(places.pieces_between(first, end))
        assert b"".join(pieces) == content[first:end]
        assert all(0 < len(piece) <= step for piece in pieces)


def test_a_packed_body_is_gone_on_from() -> None:
    """A history of 30 MB took 30 MB while it was recorded, and as long as its agent
    might go on with it.
    """
    readings = BodyParser()
    before = readings.parse_body("anthropic", _body(40_000), "s")
    assert before is not None
    before.places.pack_content()
    packed = before.places.content
    before.places.pack_content()
    assert before.places.content is packed
    assert isinstance(packed, PackedBody)
    assert sum(map(len, packed._parts)) < len(packed) / 4
    more = readings.parse_body("anthropic", _body(40_001), "s")
    assert more is not None
    assert more.message_units[0] is before.message_units[0]
    assert more.messages[39_999].pieces[0].text == "39999"
