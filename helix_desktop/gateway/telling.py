"""What two processes of the gateway tell each other, as lines of JSON: one has the client's bytes, the other the journal.

A history is told once. Of what is told again with every request only what differs goes over.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson

from helix_desktop.engine.facts import Usage
from helix_desktop.engine.marks import common
from helix_desktop.gateway.arrival import Arrival, Replied, Sent, Ticket
from helix_desktop.gateway.figures import Figures
from helix_desktop.gateway.shown import As, Changed, Hidden, Part, Returned, Says
from helix_desktop.wire.message import Piece, Tool, Wired

_KINDS: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        Arrival, As, Changed, Figures, Hidden, Part, Piece, Replied, Returned, Says, Sent, Ticket, Tool, Usage, Wired,
    )
}  # fmt: skip


NAMES = 64  # of which the last value is held

Tuple = tuple[Any, ...]


class Last:
    """What was told last, by name. There is one at each end of a line, and both hear the same in the same order."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, Tuple] = OrderedDict()

    def told(self, name: str, value: Tuple) -> tuple[int, Tuple]:
        """How many at its beginning are as before, and the rest of it."""
        before = self._held.get(name, ())
        same = common(before, value)
        self._hold(name, value)
        return same, value[same:]

    def heard(self, name: str, same: int, rest: Tuple) -> Tuple:
        """The whole value."""
        value = (*self._held.get(name, ())[:same], *rest)
        self._hold(name, value)
        return value

    def _hold(self, name: str, value: Tuple) -> None:
        self._held[name] = value
        self._held.move_to_end(name)
        if len(self._held) > NAMES:
            self._held.popitem(last=False)


def told(value: Any) -> bytes:
    """A value as a line of JSON; dataclasses say which they are. A message's own JSON stays where it came in."""
    return orjson.dumps(_plain(value), option=orjson.OPT_APPEND_NEWLINE)


def heard(content: bytes | bytearray) -> Any:
    """The value back."""
    return _value(orjson.loads(content))


def _plain(value: Any) -> Any:
    if isinstance(value, str):  # a long history is told as thousands of hashes
        return value
    if isinstance(value, Wired):
        return {
            "is": "Wired",
            "speaker": value.speaker,
            "units": [],
            "pieces": [_plain(piece) for piece in value.pieces],
        }
    if dataclasses.is_dataclass(kind := type(value)):
        names = _names(kind)
        return {"is": type(value).__name__, **{name: _plain(getattr(value, name)) for name in names}}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


@functools.cache
def _names(kind: type) -> Sequence[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    if not isinstance(value, dict):
        return value
    if value.get("is") not in _KINDS:
        return {key: _value(item) for key, item in value.items()}
    kind = _KINDS[value["is"]]
    hints = _enums(kind)
    fields = {name: _value(item) for name, item in value.items() if name != "is"}
    return kind(**{name: hints[name](item) if name in hints else item for name, item in fields.items()})


@functools.cache
def _enums(kind: type) -> Mapping[str, type[StrEnum]]:
    hints = typing.get_type_hints(kind)
    return {
        n: h
        for n, h in hints.items()
        if isinstance(h, type) and not isinstance(h, types.GenericAlias) and issubclass(h, StrEnum)
    }
