"""One row of a recorded history, the careful reading of what may be anything, and what is told of it."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime

from helix_desktop.engine.facts import Usage
from helix_desktop.histories.recording import Picture
from helix_desktop.values import dataclass

LATEST = 253402300799.0  # the end of the year 9999, the last a calendar shows


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


@dataclass(slots=True)
class Told:
    """What is told of reading a file: a sentence for each row that cannot be read, and how many rows are no messages."""

    complaints: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def sentences(self, name: str) -> tuple[str, ...]:
        """All of it, for people."""
        if not self.left_out:
            return tuple(self.complaints)
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(self.left_out.items()))
        return (*self.complaints, f"{name}: these lines are not part of the conversation and were left out: {kinds}.")


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


def objects(value: object) -> list[Mapping[str, object]]:
    """The objects of a list; of anything else, none."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def number(value: object) -> int:
    """A count, where it is one; else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 60:
        return 0
    return int(value)


def cost(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else 0.0


def time_of(value: object) -> float:
    """Seconds since 1970 from an ISO date, or a number of seconds, milliseconds or microseconds; 0 where it is none."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
            return max(0.0, (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError):
            return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return 0.0
    for unit in (1, 1_000, 1_000_000):
        if value / unit < 1e11:
            return min(value / unit, LATEST)
    return 0.0


def picture(media_type: object, data: object, name: str = "") -> Picture | None:
    """A picture from base64 text; None where it is none."""
    if not isinstance(data, str) or not data:
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        return None
    return Picture(
        media_type if isinstance(media_type, str) and media_type else "application/octet-stream", content, name
    )


def from_data_url(url: object) -> Picture | None:
    """The picture in a `data:` address; None for any other."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, _, data = url.partition(",")
    return picture(head[5:].partition(";")[0], data) if head.endswith(";base64") else None


def pictures_of(content: object) -> tuple[Picture, ...]:
    """The pictures and documents among the parts of a content, in the shapes of all protocols."""
    return tuple(found for part in _all(content) if (found := _picture(part)) is not None)


def _all(content: object) -> Iterable[Mapping[str, object]]:
    return [content] if isinstance(content, Mapping) else objects(content)


def _picture(part: Mapping[str, object]) -> Picture | None:
    source, inline = mapping(part.get("source")), mapping(part.get("inlineData"))
    if source:
        return picture(source.get("media_type"), source.get("data"), string(part, "title"))
    if inline:
        return picture(inline.get("mimeType"), inline.get("data"))
    if part.get("type") == "image":
        return picture(part.get("mimeType"), part.get("data"))
    url = part.get("image_url", part.get("url"))
    return from_data_url(mapping(url).get("url") if isinstance(url, Mapping) else url)


def anthropic_usage(value: object) -> Usage:
    """Figures as Anthropic reports them: what was read from the cache is not part of the input."""
    found = mapping(value)
    read, write = number(found.get("cache_read_input_tokens")), number(found.get("cache_creation_input_tokens"))
    return Usage(number(found.get("input_tokens")) + read + write, read, write, number(found.get("output_tokens")))


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
