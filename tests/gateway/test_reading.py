"""Bodies read from where they differ come to what they come to when all of them is read."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.gateway import reading
from helix_desktop.gateway.body import FIELDS, WIRES, Kept, folded, leading
from helix_desktop.gateway.reading import Readings, common, cut
from helix_desktop.gateway.shown import As, Entry, Says
from helix_desktop.gateway.tracks import chain_of
from tests.gateway.written import bodies, dumped, units

all_protocols = pytest.mark.parametrize("protocol", tuple(FIELDS))


@all_protocols
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_body_read_after_another_is_the_same_as_one_read_alone(protocol: str, data: st.DataObject) -> None:
    readings, style = Readings(), data.draw(st.integers(0, 3))
    body: Any = data.draw(bodies(protocol))
    for _ in range(3):
        content = dumped(body, style)
        found = readings.read(protocol, content, "s")
        assert found is not None
        value = json.loads(content)
        assert found.value == value
        wire: Any = WIRES[protocol]
        alone = wire.messages(value)
        assert found.messages == alone
        assert found.head == wire.head(value)
        assert found.chain == chain_of(protocol, alone[leading(alone) :])
        assert json.loads(b"".join(found.written(found.value))) == value
        given_units = list(body[FIELDS[protocol]])
        keep = data.draw(st.integers(0, len(given_units)))
        body = {**body, FIELDS[protocol]: [*given_units[:keep], *data.draw(st.lists(units(protocol), max_size=3))]}


def test_what_was_there_before_is_not_parsed_again() -> None:
    readings = Readings()
    said: list[Any] = [{"role": "user", "content": f"message {n}"} for n in range(50)]
    first = readings.read("anthropic", orjson.dumps({"model": "m", "messages": said, "tools": []}), "s")
    said.append({"role": "assistant", "content": "and one more"})
    second = readings.read("anthropic", orjson.dumps({"model": "m", "messages": said, "tools": []}), "s")
    assert first is not None
    assert second is not None
    assert all(one is other for one, other in zip(first.units, second.units, strict=False))
    assert sum(one is other for one, other in zip(first.messages, second.messages, strict=False)) >= 49
    assert second.head is first.head


def test_marks_are_found_in_the_bytes_and_not_in_texts() -> None:
    said: list[Any] = [
        {"role": "user", "content": 'it says "cache_control": here'},
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
    ]
    found = Readings().read("anthropic", orjson.dumps({"messages": said, "system": []}), "")
    assert found is not None
    assert found.marked == frozenset({1})


@all_protocols
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_is_kept_of_a_request_makes_the_next_one_no_other(protocol: str, data: st.DataObject) -> None:
    readings = Readings()
    body: Any = data.draw(bodies(protocol))
    entries: list[Entry] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "GROUP", data.draw(st.integers(1, 4)))
        for _ in range(3):
            found = readings.read(protocol, dumped(body, 0), "s")
            assert found is not None
            said = len(found.messages) - leading(found.messages)
            own = [each for each in entries[: data.draw(st.integers(0, len(entries)))] if getattr(each, "at", 0) < said]
            first = max([each.at for each in own if isinstance(each, As)], default=-1) + 1
            entries = [*own, *map(As, range(first, said))]
            if data.draw(st.booleans()):
                entries.insert(data.draw(st.integers(0, len(entries))), Says("what was done"))
            marks, sent = found.marked, Kept(sent=found.kept.sent)
            shown = folded(protocol, found.value, found.messages, entries, marks, found.kept)
            assert shown == folded(protocol, found.value, found.messages, entries, marks, sent)
            assert json.loads(b"".join(found.written(shown))) == shown
            given_units = list(body[FIELDS[protocol]])
            keep = data.draw(st.integers(0, len(given_units)))
            body = {**body, FIELDS[protocol]: [*given_units[:keep], *data.draw(st.lists(units(protocol), max_size=3))]}


def test_what_goes_on_is_written_as_the_bytes_it_came_as() -> None:
    content = b'{"messages": [ {"role":"user",  "content":1.0} ,{"role":"user","content":"b"}], "x": 1}'
    found = Readings().read("anthropic", content, "")
    assert found is not None
    assert b'{"role":"user",  "content":1.0} ,{"role":"user","content":"b"}' in b"".join(found.written(found.value))


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
    found = Readings().read("anthropic", content, "")
    assert found is None or found.value == json.loads(content)


@pytest.mark.parametrize("content", [b"", b"{no json", b'{"messages": [{]}', b'{"messages": [{"a": "b', b"\xff\xfe"])
def test_what_is_no_json_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        Readings().read("anthropic", content, "")


@given(st.binary(max_size=200), st.binary(max_size=50), st.binary(max_size=50))
def test_common_is_as_long_as_it_can_be(before: bytes, one: bytes, other: bytes) -> None:
    found = common(before + one, before + other)
    assert found >= len(before)
    assert (before + one)[:found] == (before + other)[:found]
    assert (before + one)[found : found + 1] != (before + other)[found : found + 1] or found == min(
        len(before + one), len(before + other)
    )


def test_of_many_conversations_the_oldest_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HELD", 3)
    readings = Readings()
    for number in range(10):
        readings.read("anthropic", orjson.dumps({"messages": [{"role": "user", "content": str(number)}]}), str(number))
    assert len(readings._held) == 3
    assert readings._size == sum(len(body.content) for held in readings._held.values() for body in held)


def test_a_list_is_found_behind_anything() -> None:
    content = b'{"a": {"messages": [1]}, "b": "]}\\\\", "c": -1.5e3,"messages":[{"x": "\\\\\\"}]"},{}]}'
    begins, ends = cut(content, b"messages")
    assert [content[a:b] for a, b in zip(begins, ends, strict=True)] == [b'{"x": "\\\\\\"}]"}', b"{}"]


long_texts = st.lists(
    st.sampled_from(["plain words ", "\n", '"', "\\", "ä", "😀", "\u2028", "\0", "\\u0041", "한", "\ud7ff"]),
    max_size=60,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(long_texts, long_texts, st.booleans(), st.integers(14, 40))
def test_long_texts_are_read_in_slices(one: str, other: str, ascii_only: bool, size: int) -> None:
    value = {"role": "user", one: [other, {"content": one + other, "n": [1, None]}]}
    content = b"  " + json.dumps(value, ensure_ascii=ascii_only).encode() + b"}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "SLICE", size)
        assert reading.parsed(content, 2, len(content) - 1) == value
        assert reading.parsed(bytearray(content), 2, len(content) - 1) == value
