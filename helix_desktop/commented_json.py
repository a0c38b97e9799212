"""Parses and changes agents' settings: JSON with comments and trailing commas."""

import json
import re
from collections.abc import Sequence
from typing import Any

from helix_desktop.errors import ConfigFileMistake
from helix_desktop.fast_dataclass import dataclass

# Both patterns also match strings (group 1), so that what looks like a comment within a string
# stays. An unclosed string or comment matches up to the end of the text. Otherwise, the search
# would take quadratic time.
_COMMENTS = re.compile(r'("(?:[^"\\]|\\.?)*(?:"|\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_LAST_COMMAS = re.compile(r'("(?:[^"\\]|\\.?)*(?:"|\Z))|,(?=\s*[}\]])', re.DOTALL)
# Blanks, and the comma or colon between what an object holds.
_BETWEEN = re.compile(r"[\s,:]*")


def parse_commented_json(text: str, what: str) -> dict[str, Any]:
    """Parses the object in the text. An empty text is an empty object."""
    try:
        found = json.loads(blank_comments(text) if text.strip() else "{}")
    except ValueError as error:
        raise ConfigFileMistake(
            f"{what} is not valid JSON ({error}). Nothing was changed."
        ) from None
    if not isinstance(found, dict):
        raise ConfigFileMistake(f"{what} doesn't contain a JSON object. Nothing was changed.")
    return found


def set_commented_json(text: str, path: Sequence[str], value: object) -> str:
    """Returns the text with the value set at the path, and otherwise unchanged. The
    text must hold an object.
    """
    text = text if text.strip() else "{}\n"
    plain = blank_comments(text)
    place = _find_place(plain, path)
    for name in reversed(place.missing_names):
        value = {name: value}
    if place.known_value is not None:
        begins, ends = place.known_value
        return f"{text[:begins]}{json.dumps(value)}{text[ends:]}"
    return _insert_member(text, plain, place, value)


@dataclass(frozen=True, slots=True)
class _PlaceOfValue:
    """Where a value goes: into the object that begins at `object_at`, under `name`.

    `known_value`: where the present value begins and ends, or None. `missing_names`:
    those of the objects that must be made within it.
    """

    object_at: int
    depth: int
    name: str
    known_value: tuple[int, int] | None
    missing_names: Sequence[str]


def _find_place(plain: str, path: Sequence[str]) -> _PlaceOfValue:
    object_at = plain.index("{")
    for depth, name in enumerate(path):
        known_value = _find_member(plain, object_at, name)
        is_last = depth + 1 == len(path)
        is_object = known_value is not None and plain[known_value[0]] == "{"
        if is_last or known_value is None or not is_object:
            return _PlaceOfValue(object_at, depth, name, known_value, path[depth + 1 :])
        object_at = known_value[0]
    raise ValueError("the path is empty")


def _insert_member(text: str, plain: str, place: _PlaceOfValue, value: object) -> str:
    """Returns the text with a new first member of an object."""
    after_brace = place.object_at + 1
    indent = "  " * (place.depth + 1)
    content = json.dumps(value, indent=2).replace("\n", f"\n{indent}")
    member = f"{json.dumps(place.name)}: {content}"
    head = f"{text[:after_brace]}\n{indent}{member}"
    rest = text[after_brace:]
    has_members = plain[_skip_to_next_token(plain, after_brace)] != "}"
    if has_members:
        return f"{head},{rest}" if rest[0].isspace() else f"{head}, {rest}"
    has_comment = rest.lstrip()[0] != "}"
    return f"{head}\n{indent[2:]}{rest if has_comment else rest.lstrip()}"


def blank_comments(text: str) -> str:
    """Replaces comments and trailing commas with blanks, so that all positions stay valid."""
    for pattern in (_COMMENTS, _LAST_COMMAS):
        text = pattern.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)
    return text


def _find_member(plain: str, at: int, name: str) -> tuple[int, int] | None:
    """Returns where the value of `name` begins and ends, in the object that begins at `at`.

    Of two members with one name, programs use the last, so that is the one to change.
    """
    last_value: tuple[int, int] | None = None
    at = _skip_to_next_token(plain, at + 1)
    while plain[at] != "}":
        key, at = json.JSONDecoder().raw_decode(plain, at)
        begins = _skip_to_next_token(plain, at)
        _, at = json.JSONDecoder().raw_decode(plain, begins)
        if key == name:
            last_value = (begins, at)
        at = _skip_to_next_token(plain, at)
    return last_value


def _skip_to_next_token(plain: str, at: int) -> int:
    found = _BETWEEN.match(plain, at)
    return found.end() if found else at
