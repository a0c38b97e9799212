"""Who is speaking: the turn that runs, and the calls on their way."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from helix_desktop.engine.facts import PartRef, ToolCall

_FORMAT = re.compile(r":\d+$|<\|.*", re.DOTALL)
TEXT_ARGUMENT = 150  # tokens of arguments that may be a file's text
PATH_KEYS = ("path", "file_path", "filename", "file")


@dataclass(frozen=True, slots=True)
class Call:
    """A call on its way: the id the model gave it, the one it has in requests, and the part it is."""

    id: str
    shown: str
    ref: PartRef
    call: ToolCall


@dataclass(slots=True)
class Turn:
    """The turn that runs, or the last one. `words`: the user's message that began it and those that steered it."""

    words: list[int] = field(default_factory=list)
    before: int = 0  # where the turn before this one began
    running: bool = False

    @property
    def begin(self) -> int:
        return self.words[0] if self.words else 0


def text_key(call: ToolCall) -> str:
    """The file a call is about; empty where its arguments name none."""
    values = object_in(call.arguments) or {}
    return next((value for key in PATH_KEYS if isinstance(value := values.get(key), str)), "")


def meant(name: str, offered: Sequence[str]) -> str:
    """The tool that is called, without what some servers leave of the model's own format: `functions.read:0`,
    `read<|channel|>commentary`. A name that is none of those offered stays as it is.
    """
    plain = _FORMAT.sub("", name).rpartition(".")[2].strip().lower()
    alike = [one for one in offered if one.lower() == plain]
    return alike[0] if name not in offered and len(alike) == 1 else name


def read(arguments: str, *, strict: bool = False) -> Any:
    """JSON, which NaN is not: some servers refuse every request in which it stands. `strict`: no line breaks in strings."""
    return json.loads(arguments, strict=strict, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def object_in(arguments: str) -> dict[str, Any] | None:
    """The object the arguments are, also where the model wrote line breaks as they are, or the object as a string."""
    try:
        value = read(arguments)
        value = read(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
