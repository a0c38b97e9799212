"""Checks the sessions that an extension reads, before they become facts of the journal.

The journal stores a time as a fraction and finds it damaged if it was a whole number, so every
value gets exactly the type that its class declares.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from helix_desktop.engine.facts import Reasoning, Text, ToolCall, Usage
from helix_desktop.errors import InvalidInput
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
)

CHECKED_TYPES = (
    RecordedSession, RecordedMessage, RecordedPicture, RecordedCompaction, ToolCall, Text,
    Reasoning, Usage,
)  # fmt: skip
# A field's type is a class, or the name of one.
PLAIN_TYPES: Mapping[object, type] = {
    float: float, "float": float, int: int, "int": int, bool: bool, "bool": bool,
    bytes: bytes, "bytes": bytes,
}  # fmt: skip
ROLES = ("system", "user", "assistant", "tool", "failure")


def check_read_sessions(sessions: Iterable[Any], kind: str) -> list[RecordedSession]:
    """Return the sessions with this kind, whatever they say themselves. Raises InvalidInput."""
    checked: list[RecordedSession] = []
    for session in sessions:
        if type(session) is not RecordedSession:
            raise InvalidInput(
                f"The format {kind} returned {type(session).__name__} instead of a RecordedSession."
            )
        for message in session.messages:
            if type(message) is not RecordedMessage or message.role not in ROLES:
                raise InvalidInput(
                    f"The format {kind} returned a message whose role is none of {', '.join(ROLES)}."
                )
        checked.append(replace(_copy_with_exact_types(session, kind), kind=kind))
    return checked


def _copy_with_exact_types(thing: Any, kind: str) -> Any:
    values: dict[str, object] = {}
    for field in fields(thing):
        name = f"{type(thing).__name__}.{field.name}"
        value = getattr(thing, field.name)
        values[field.name] = _exact_value(name, field.type, value, kind)
    return type(thing)(**values)


def _exact_value(name: str, declared_type: object, value: object, kind: str) -> object:
    if type(value) in CHECKED_TYPES:
        return _copy_with_exact_types(value, kind)
    if isinstance(value, tuple | list):
        items: list[object] = []
        for item in value:
            items.append(_exact_value(name, type(item), item, kind))
        return tuple(items)
    wanted_type = PLAIN_TYPES.get(declared_type, str)  # A role is declared as a Literal.
    if wanted_type is float and type(value) in (int, float):
        number = float(str(value))
        if math.isfinite(number):
            return number
    elif type(value) is wanted_type:
        return value
    raise InvalidInput(f"The format {kind} gave {name} the value {str(value)[:40]!r}.")
