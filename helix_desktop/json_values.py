"""Reads and writes JSON values whose shape nobody has promised: what a provider, an agent or a file of another program says.

It must not know any protocol. Nothing here raises for a value of another shape, unless its sentence says so. What is written
is `Json`; of what is read, the parts of a list or an object may be anything, and are asked for with these functions again.
"""

import json
from collections.abc import Mapping
from typing import Any

Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Object = dict[str, Json]


def format_json_value(value: object) -> str:
    """A value as compact text, in the order it came."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dump_json(value: Json) -> bytes:
    """Compact UTF-8. Halves of surrogate pairs, which no provider accepts, become question marks."""
    return format_json_value(value).encode("utf-8", errors="replace")


def dump_json_body(body: Object) -> bytes:
    """The same bytes, made item by item: a long conversation in one call would hold the interpreter for a while."""
    return (
        b"{" + b",".join(b"%b:%b" % (dump_json(name), _dump_json_items(value)) for name, value in body.items()) + b"}"
    )


def _dump_json_items(value: Json) -> bytes:
    return b"[" + b",".join(map(dump_json, value)) + b"]" if isinstance(value, list) else dump_json(value)


def _refuse_json_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str | bytes) -> Json:
    """ValueError for what is not JSON, also NaN and nesting deeper than Python can follow."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_json_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def parse_json_or_none(text: str | bytes) -> object:
    """None for what is not JSON, or is nested deeper than Python can follow: whoever asks needs no reason."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def require_object(value: Json) -> Object:
    """The value, which is a ValueError where it is no object: the text is wrong, not the caller."""
    if not isinstance(value, dict):
        raise ValueError("an event is an object")  # noqa: TRY004
    return value


def parse_object(text: str | bytes) -> Object | None:
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def value_at(value: object, *path: str | int) -> Json:
    """The value under a path of keys and positions, or None where any of it is missing or of another shape."""
    found: Any = value
    for step in path:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int) and -len(found) <= step < len(found):
            found = found[step]
        else:
            return None
    return found  # type: ignore[no-any-return]


def text_at(value: object, name: str | int, *rest: str | int) -> str:
    """The text under a path; empty where it is none. A field of an object is found without a loop: it is asked for most."""
    found = value.get(name) if isinstance(value, dict) else value_at(value, name)
    if rest:
        found = value_at(found, *rest)
    return found if isinstance(found, str) else ""


def first_text(value: object, *names: str) -> str:
    """The first of these fields that has a text; empty where none has."""
    return next((text for name in names if (text := text_at(value, name))), "")


def checked_text_at(value: object, *path: str | int) -> str:
    """What the model says, or nothing; a ValueError where something else stands in its place: it must not be lost in silence."""
    found = value_at(value, *path)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{'.'.join(map(str, path))} is no text")
    return found or ""


def number_at(value: object, *path: str | int) -> int:
    """A count; 0 where it is none. One too large for any machine becomes the largest that another one accepts."""
    found = value_at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found or found < 0:  # noqa: PLR0124 (NaN)
        return 0
    return int(min(found, 10**11))


def list_at(value: object, *path: str | int) -> list[Any]:
    found = value_at(value, *path)
    return found if isinstance(found, list) else []


def object_at(value: object, *path: str | int) -> dict[str, Any]:
    found = value_at(value, *path)
    return found if isinstance(found, dict) else {}


def without_fields(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name not in names}


def objects_at(value: object, *path: str | int) -> list[dict[str, Any]]:
    return [item for item in list_at(value, *path) if isinstance(item, dict)]
