"""Facts as JSON text and back. The stored form: `{"fact": ..., "version": ..., fields}`; bytes that never change.

Defaults are left out, so a field added later with a default reads from old journals and writes nothing new.
A shape that changes otherwise raises its entry in VERSIONS and adds a step to UPGRADES.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum

from helix_desktop.engine import facts
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Fact
from helix_desktop.errors import JournalCorrupt, NewerVersion

KINDS: Mapping[str, type] = {kind.__name__: kind for kind in typing.get_args(Fact)}
_TAGGED: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (facts.Text, facts.Attachment, facts.Reasoning, facts.ToolCall, facts.Span, facts.PartRef)
}
VERSIONS: Mapping[str, int] = {}
UPGRADES: Mapping[tuple[str, int], Callable[[dict[str, object]], dict[str, object]]] = {}


def encode(fact: Fact) -> str:
    """One line of JSON with its keys in declared order."""
    kind = type(fact).__name__
    body = {"fact": kind, "version": VERSIONS.get(kind, 1), **_fields(fact)}
    return (
        json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        .encode("utf-8", "surrogatepass")
        .decode("utf-8", "replace")
    )


def decode(text: str) -> Fact:
    """The fact, brought up to this version; NewerVersion or JournalCorrupt where that cannot be."""
    try:
        body = json.loads(text)
        kind, version = body.pop("fact"), body.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise JournalCorrupt("A fact of the journal cannot be read.") from error
    known = VERSIONS.get(kind, 1)
    if kind not in KINDS or version > known:
        raise NewerVersion(
            f"This journal holds a fact ({kind}, version {version}) of a newer Helix Desktop.",
            remedy="Update the program; nothing was changed.",
        )
    while version < known:
        body = UPGRADES[kind, version](body)
        version += 1
    try:
        return typing.cast(Fact, _build(KINDS[kind], body))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise JournalCorrupt(f"A fact of the journal ({kind}) cannot be read.") from error


def _fields(value: object) -> dict[str, object]:
    out: dict[str, object] = {}
    for field in dataclasses.fields(typing.cast(typing.Any, value)):
        content = getattr(value, field.name)
        if field.default is dataclasses.MISSING or content != field.default:
            out[field.name] = _plain(content)
    return out


def _plain(value: object) -> object:
    match value:
        case Digest():
            return value.hex
        case tuple():
            return [_plain(item) for item in value]
        case StrEnum():
            return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        return {"is": name, **_fields(value)} if name in _TAGGED else _fields(value)
    return value


@functools.cache
def _hints(kind: type) -> Mapping[str, object]:
    return typing.get_type_hints(kind)


def _build(kind: type, body: Mapping[str, object]) -> object:
    hints = _hints(kind)
    return kind(**{name: _value(hints[name], content) for name, content in body.items() if name in hints})


def _value(hint: typing.Any, content: typing.Any) -> object:
    if content is None:
        return None
    origin = typing.get_origin(hint)
    if origin is tuple:
        args = typing.get_args(hint)
        inner = args[:1] * len(content) if args[-1] is Ellipsis else args
        return tuple(_value(item, value) for item, value in zip(inner, content, strict=True))
    if origin in (typing.Union, types.UnionType):
        return _one_of(hint, content)
    return _single(hint, content)


def _one_of(hint: typing.Any, content: typing.Any) -> object:
    """A tagged value says which it is; plain values of several types stand as they are."""
    if isinstance(content, dict):
        return _build(_TAGGED[content.pop("is")], content)
    plain = [item for item in typing.get_args(hint) if item is not type(None)]
    return _value(plain[0], content) if len(plain) == 1 else content


def _single(hint: typing.Any, content: typing.Any) -> object:
    if hint is Digest:
        return Digest.parse(content)
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type, hint), {k: v for k, v in content.items() if k != "is"})
    return hint(content) if isinstance(hint, type) and issubclass(hint, StrEnum) else content
