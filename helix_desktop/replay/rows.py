"""One row of an imported file, and the careful reading of what may be anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


class Unreadable(Exception):
    """A row cannot be read; the message says why, to stand behind the place of the row."""


@dataclass(frozen=True, slots=True)
class Row:
    """`place` names file and line for people."""

    value: Mapping[str, object]
    place: str

    def complaint(self, why: object) -> str:
        """The sentence for a row that was left out."""
        return f"{self.place}: {why}; the line was left out."


def text_of(content: object) -> str:
    """Text of a message's content: a string, or a list of parts. A picture or a file becomes a short note."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of([content])
    if isinstance(content, list):
        return "\n".join(piece for part in content if (piece := _part(part)))
    raise Unreadable(f"a content of type {type(content).__name__} is neither text nor a list of parts")


def string(value: Mapping[str, object], *names: str) -> str:
    """The first of these fields that is a text; empty where none is."""
    for name in names:
        found = value.get(name)
        if isinstance(found, str) and found:
            return found
    return ""


def arguments_of(value: object) -> str:
    """A call's arguments as JSON text."""
    if isinstance(value, str):
        return value
    return json.dumps({} if value is None else value, ensure_ascii=False)


def mapping(value: object) -> Mapping[str, object]:
    """The value, where it is an object; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise Unreadable("a part of the content is neither a text nor an object")
    for name in ("text", "input_text", "output_text", "refusal", "content"):
        if isinstance(part.get(name), str):
            return str(part[name])
    kind = part.get("type")
    return f"[{kind}]" if isinstance(kind, str) else ""
