"""Parses calls as models write them. Also what is known of a call in progress and of its turn."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from helix_desktop.engine.facts import PartRef, ToolCall
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import text_at

# With these two tools, a model searches for further tools and calls them.
FIND_TOOLS = "find_tools"
CALL_TOOL = "call_tool"
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
# What models leave of their own formats behind a name.
_FORMAT = re.compile(r":\d+$|<\|.*", re.DOTALL)
UNREAD = "This call was stopped before it was done."
USER_WORDS = " The user said: "  # Precedes the words of a user who refused a call.
NOT_BEGUN = "This call was not run: the turn was stopped before the call began."
SKIPPED = "This call was not run: the user refused one before it in the same reply."
PATH_KEYS = ("path", "file_path", "filename", "file")


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call in progress. `id` is the model's id for it, `shown` the id in requests."""

    id: str
    shown: str
    ref: PartRef
    call: ToolCall


@dataclass(slots=True)
class CurrentTurn:
    """The running or last turn. `words`: the user's message that began it, and steering ones."""

    words: list[int] = field(default_factory=list)
    before: int = 0  # The number of the fact that began the previous turn.
    running: bool = False

    @property
    def first_seq(self) -> int:
        if not self.words:
            return 0
        return self.words[0]


def match_tool_name(name: str, offered: Sequence[str]) -> str:
    """Return the offered tool that is meant, as `read` for `functions.read:0`, or the name itself
    if that does not say which one.
    """
    if name in offered:
        return name
    name_without_number = _FORMAT.sub("", name)
    name_without_group = name_without_number.rpartition(".")[2]
    plain_name = name_without_group.strip().lower()
    similar_tools = [tool for tool in offered if tool.lower() == plain_name]
    if len(similar_tools) != 1:
        return name
    return similar_tools[0]


def unwrap_call(call: ToolCall) -> ToolCall:
    """Return the call that the tool `call_tool` was to make. Any other call, and one whose
    arguments can't be read, is returned unchanged.
    """
    if call.name != CALL_TOOL:
        return call
    values = parse_arguments(call.arguments) or {}
    name = text_at(values, "name")
    if not _TOOL_NAME.fullmatch(name) or name == CALL_TOOL:
        return call
    inner_arguments = _parse_inner_arguments(values.get("arguments", {}))
    if inner_arguments is None:
        return call
    arguments = json.dumps(inner_arguments, ensure_ascii=False)
    keep = text_at(values, "keep")
    return replace(call, name=name, arguments=arguments, keep=keep, via=CALL_TOOL)


def _parse_inner_arguments(written: object) -> dict[str, Any] | None:
    """Return the arguments of an inner call, which some models write as a string of JSON, or as
    an empty one. Return None if they are not an object.
    """
    if isinstance(written, dict):
        return written
    if not isinstance(written, str):
        return None
    if not written.strip():
        return {}
    return parse_arguments(written)


def restore_call_as_made(call: ToolCall) -> ToolCall:
    """Return the call as the model made it, possibly through `call_tool`."""
    if not call.via:
        return call
    arguments = f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
    return replace(call, name=call.via, arguments=arguments)


def parse_strict_json(arguments: str, *, strict: bool = False) -> Any:
    """Parse JSON without NaN and too large numbers. `strict`: also without raw line breaks."""
    if strict:
        return _STRICT.decode(arguments)
    return _LENIENT.decode(arguments)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse_finite_number(written: str) -> float:
    number = float(written)
    if math.isinf(number):
        raise ValueError(f"{written} is too large a number")
    return number


_STRICT = json.JSONDecoder(
    strict=True, parse_constant=_refuse_constant, parse_float=_parse_finite_number
)
_LENIENT = json.JSONDecoder(
    strict=False, parse_constant=_refuse_constant, parse_float=_parse_finite_number
)


def parse_arguments(arguments: str) -> dict[str, Any] | None:
    """Return the arguments as an object, even if they have raw line breaks or are in a string."""
    try:
        value = parse_strict_json(arguments)
        if isinstance(value, str):
            value = parse_strict_json(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value
