"""Reads and writes JSON values of unknown shape: from a provider, an agent or another program's
file.

It must not know any protocol. Nothing here raises an error for a value of another shape, unless its
docstring says so.
"""

import json
from collections.abc import Mapping
from typing import Any

Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Object = dict[str, Json]
LARGEST_NUMBER = 10**11
MOST_DOTS_IN_TOML_LINE = 100  # Other text on one line has fewer, too.


def format_json_value(value: object) -> str:
    """Formats a value as compact text. Fields keep their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dump_json(value: Json) -> bytes:
    """Compact UTF-8. Halves of surrogate pairs, which no provider accepts, become
    question marks.
    """
    return format_json_value(value).encode("utf-8", errors="replace")


def dump_json_body(body: Object) -> bytes:
    """Like `dump_json`, but item by item, so that a long conversation does not hold the
    interpreter.
    """
    fields = [b"%b:%b" % (dump_json(name), _dump_json_items(value)) for name, value in body.items()]
    return b"{%b}" % b",".join(fields)


def _dump_json_items(value: Json) -> bytes:
    if not isinstance(value, list):
        return dump_json(value)
    items = [dump_json(item) for item in value]
    return b"[%b]" % b",".join(items)


def _refuse_json_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str | bytes) -> Json:
    """Parses JSON. ValueError for anything else, also for NaN and for nesting that is
    too deep for Python.
    """
    try:
        value: Json = json.loads(text, parse_constant=_refuse_json_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def check_toml_keys(text: str) -> None:
    """Raises ValueError for a key with so many parts that reading it as TOML takes all memory:
    the libraries take four times as much for one with twice as many parts.
    """
    # `splitlines` would also split at signs that may be in a key.
    for line in text.split("\n"):
        if line.count(".") > MOST_DOTS_IN_TOML_LINE:
            raise ValueError("a key with too many parts")


def has_more_values(text: bytes, limit: int) -> bool:
    """Whether a JSON text holds more values than this, without parsing it: parsed, a message of
    32 MB takes .8 GB and holds the interpreter for more than a second if it is a list of lists.
    """
    if _count_signs_before_values(text) <= limit:
        return False
    # Escapes stand only in strings, so the quotes that remain begin and end strings.
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each string is the name of a value or a value.
    if without_escapes.count(b'"') > 4 * limit:
        return True
    parts_outside_strings = without_escapes.split(b'"')[::2]
    return sum(map(_count_signs_before_values, parts_outside_strings)) > limit


def _count_signs_before_values(text: bytes) -> int:
    return len(text) - len(text.translate(None, b",[{"))


class ValueLimit:
    """Counts the values of a JSON text that comes in pieces, before anybody parses it."""

    def __init__(self, most_values: int) -> None:
        self.most_values = most_values
        self.begin_text()

    def begin_text(self) -> None:
        self._pieces: list[bytes] = []
        self._sign_count = 0
        self._count_for_next_check = self.most_values

    def is_exceeded_with(self, piece: bytes) -> bool:
        """Whether the text with this next piece holds more values than allowed."""
        self._pieces.append(piece)
        self._sign_count += _count_signs_before_values(piece)
        if self._sign_count <= self._count_for_next_check:
            return False
        if has_more_values(b"".join(self._pieces), self.most_values):
            return True
        # Most signs stand in strings, such as a table's commas.
        self._count_for_next_check = 2 * self._sign_count
        return False


def parse_json_or_none(text: str | bytes) -> object:
    """Parses JSON. Returns None for anything else, for callers that do not need the reason."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def require_object(value: Json) -> Object:
    """Returns the value if it is an object. Raises ValueError otherwise, because the
    text is wrong, not the caller.
    """
    if not isinstance(value, dict):
        raise ValueError("an event is an object")  # noqa: TRY004
    return value


def parse_object(text: str | bytes) -> Object | None:
    try:
        value = parse_json(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return value


def value_at(value: object, *path: str | int) -> Json:
    """Returns the value under a path of keys and positions, or None if any part of the
    path does not exist.
    """
    inner: Any = value
    for step in path:
        if isinstance(inner, dict):
            inner = inner.get(step)
        elif isinstance(inner, list) and isinstance(step, int) and -len(inner) <= step < len(inner):
            inner = inner[step]
        else:
            return None
    return inner  # type: ignore[no-any-return]


def text_at(value: object, name: str | int, *rest: str | int) -> str:
    """Returns the text under a path, or an empty text. A single field, the usual case,
    needs no loop.
    """
    found = value.get(name) if isinstance(value, dict) else value_at(value, name)
    if rest:
        found = value_at(found, *rest)
    return found if isinstance(found, str) else ""


def first_text(value: object, *names: str) -> str:
    """Returns the first non-empty text among these fields, or an empty text."""
    for name in names:
        text = text_at(value, name)
        if text:
            return text
    return ""


def checked_text_at(value: object, *path: str | int) -> str:
    """Returns the model's text, or an empty one. Another value raises ValueError, so
    that it is not lost.
    """
    found = value_at(value, *path)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{'.'.join(map(str, path))} is no text")
    return found or ""


def number_at(value: object, *path: str | int) -> int:
    """Returns a count, or 0 for anything else, with the maximum of `amount_at`."""
    return int(amount_at(value, *path))


def amount_at(value: object, *path: str | int) -> float:
    """Returns an amount such as a price, or 0 for anything else. A very large one is reduced to a
    maximum that every machine accepts.
    """
    number = value_at(value, *path)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return 0.0
    # Both comparisons are false for NaN, and none fails for an integer too large for a float.
    if number >= LARGEST_NUMBER:
        return float(LARGEST_NUMBER)
    if number > 0:
        return float(number)
    return 0.0


def list_at(value: object, *path: str | int) -> list[Any]:
    items = value_at(value, *path)
    if not isinstance(items, list):
        return []
    return items


def object_at(value: object, *path: str | int) -> dict[str, Any]:
    fields = value_at(value, *path)
    if not isinstance(fields, dict):
        return {}
    return fields


def without_fields(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: kept for name, kept in value.items() if name not in names}


def objects_at(value: object, *path: str | int) -> list[dict[str, Any]]:
    return [item for item in list_at(value, *path) if isinstance(item, dict)]
