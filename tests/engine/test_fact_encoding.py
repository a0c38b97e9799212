import json
import math
import types
import typing
from dataclasses import is_dataclass
from enum import StrEnum

import pytest

from helix_desktop.engine.fact_encoding import KINDS, decode_fact, encode_fact
from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    Fact,
    FileChanged,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Pinned,
    PolicySet,
    Reasoning,
    Span,
    Stop,
    Stored,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    ToolSpec,
    Usage,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import JournalCorrupt, WrittenByNewerVersion

DIGEST = Digest.of_content(b"x")
FACTS: list[Fact] = [
    UserSaid((Text("hé\n\x00", 3), Attachment("a", Stored(DIGEST, 1), 2))),
    Folded("f1", FoldKind.MARKER, PartRef(3, 1), "t", 1, 2, entries=(DIGEST,)),
    Folded("f2", FoldKind.HANDOVER, Span(3, 9), "t", 1, 2),
    ToolReturned("c", Stored(DIGEST, 3), 1, changes=(FileChanged("p", None, DIGEST),)),
    PolicySet("helix", (("a", 1.5), ("b", True), ("c", "x"))),
    ModelReplied((ToolCall("1", "n", "{}"), Reasoning("x")), "m", Stop.CUT, Usage(1, 2)),
    TodoSet((("a", "open"),)),
    ToolsOffered((ToolSpec("a", "b", "{}"),), 3),
    ConversationChanged(title="x", pinned=False),
    Pinned(Span(1, 2)),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_comes_back_as_it_was(fact: Fact) -> None:
    assert decode_fact(encode_fact(fact)) == fact == decode_fact(encode_fact(fact), is_foreign=True)


def test_a_fact_of_a_newer_version_is_refused() -> None:
    with pytest.raises(WrittenByNewerVersion):
        decode_fact('{"fact":"Text2","version":1}')
    with pytest.raises(WrittenByNewerVersion):
        decode_fact('{"fact":"UserSaid","version":99,"parts":[]}')


@pytest.mark.parametrize(
    "text", ["", "[]", '{"fact":"UserSaid","version":1}', '{"version":1}', "{"]
)
def test_what_is_no_fact_is_named_corrupt(text: str) -> None:
    with pytest.raises(JournalCorrupt):
        decode_fact(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"fact":["UserSaid"],"version":1,"parts":[]}',
        '{"fact":"UserSaid","version":"1","parts":[]}',
        '{"fact":"UserSaid","version":0,"parts":[]}',
        '{"fact":"UserSaid","version":1,"parts":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_a_kind_a_version_or_a_depth_that_makes_no_sense_is_named_corrupt(text: str) -> None:
    with pytest.raises(JournalCorrupt):
        decode_fact(text)


def test_a_foreign_fact_of_millions_of_values_is_refused_before_it_is_parsed() -> None:
    text = '{"fact":"UserSaid","version":1,"parts":[' + "[]," * 600_000 + "[]]}"
    with pytest.raises(JournalCorrupt, match="more than 500,000 values"):
        decode_fact(text, is_foreign=True)


def _sample(hint: typing.Any) -> typing.Any:
    """JSON for a value of this type."""
    origin = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin is tuple:
        return [_sample(one) for one in inner if one is not Ellipsis]
    if origin in {typing.Union, types.UnionType}:
        return _sample(inner[0])
    if hint is Digest:
        return DIGEST.hex
    if is_dataclass(hint):
        kind = typing.cast(type, hint)
        return {"is": kind.__name__} | {
            name: _sample(one) for name, one in typing.get_type_hints(kind).items()
        }
    if issubclass(hint, StrEnum):
        return next(iter(hint)).value
    return {str: "x", int: 1, float: 1.5, bool: True}[hint]


def _is_of_type(value: typing.Any, hint: typing.Any) -> bool:
    origin = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin is tuple:
        return type(value) is tuple and _are_of_types(value, inner)
    if origin in {typing.Union, types.UnionType}:
        return any(_is_of_type(value, kind) for kind in inner)
    is_whole_number_for_float = hint is float and type(value) is int
    if type(value) is not hint and not is_whole_number_for_float:
        return False
    if hint in {int, float}:
        return math.isfinite(value) and abs(value) < 2**63
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return all(_is_of_type(getattr(value, name), kind) for name, kind in hints.items())
    return True


def _are_of_types(values: tuple[typing.Any, ...], hints: tuple[typing.Any, ...]) -> bool:
    """Whether a tuple is as its hint says: `tuple[int, ...]`, or one type for each value."""
    if hints[-1] is Ellipsis:
        return all(_is_of_type(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(_is_of_type, values, hints))


WRONG: list[object] = [
    None,
    True,
    "x",
    "\ud800",
    7,
    -1,
    1.5,
    math.nan,
    math.inf,
    2**63,
    [],
    {},
    ["x"],
    [None],
    [[]],
    [["x", 1]],
    [{}],
]
WRONG += [
    {"is": "Span", "first": 1, "last": 2},
    [{"is": "Span", "first": 1, "last": 2}],
    {"is": []},
    {"digest": 5},
]


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_a_foreign_fact_has_the_types_of_its_fields_or_is_named_corrupt(kind: type) -> None:
    good = {"fact": kind.__name__, "version": 1} | _sample(kind)
    good.pop("is")
    assert _is_of_type(decode_fact(json.dumps(good), is_foreign=True), kind)
    for name in typing.get_type_hints(kind):
        refused = 0
        for wrong in WRONG:
            try:
                fact = decode_fact(json.dumps(good | {name: wrong}), is_foreign=True)
            except JournalCorrupt:
                refused += 1
                continue
            assert _is_of_type(fact, kind), (name, wrong)
            encode_fact(fact).encode()
        assert refused >= len(WRONG) - 7, name


def test_a_field_of_a_later_version_and_a_whole_number_for_a_time_are_no_reason_to_refuse_a_foreign_fact() -> (
    None
):
    text = '{"fact":"TurnEnded","version":1,"reason":"done","why":"C:\\\\users \\ud83d\\ude00","later":[{"x":null}]}'
    assert decode_fact(text, is_foreign=True) == decode_fact(text)
    assert decode_fact(
        '{"fact":"BroughtIn","version":1,"origin":{},"run":"r","cost":2}', is_foreign=True
    )


def test_a_foreign_number_of_things_is_not_negative_but_the_code_of_a_signal_is() -> None:
    output = {"digest": DIGEST.hex, "size": 1}
    returned = {"fact": "ToolReturned", "version": 1, "call": "a", "output": output, "tokens": 1}
    brought = {"fact": "BroughtIn", "version": 1, "origin": {}, "run": "r"}
    # Versions before 1.0 could write the third: a conversation was given to an agent
    # with a tiny `--window`.
    too_small = {"fact": "ModelSet", "version": 1, "role": "main", "model": "", "window": -29_900}
    other_rights = (returned | {"exit_code": None}, brought | {"modified": 17 * 10**17}, too_small)
    for right in (returned | {"exit_code": -9}, *other_rights):
        assert decode_fact(json.dumps(right), is_foreign=True)
    for wrong in (
        returned | {"tokens": -1},
        {"fact": "ConversationStarted", "version": 1, "forked_at": -5},
    ):
        with pytest.raises(JournalCorrupt):
            decode_fact(json.dumps(wrong), is_foreign=True)
