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
# Editors of Windows may put it at the beginning of a file.
_BYTE_ORDER_MARK = "\ufeff"
# Blanks, and the comma or colon between what an object holds.
_BETWEEN = re.compile(r"[\s,:]*")


def parse_commented_json(text: str, what: str) -> dict[str, Any]:
    """Parses the object in the text. An empty text is an empty object."""
    text_of_object = "{}"
    if text.removeprefix(_BYTE_ORDER_MARK).strip():
        text_of_object = blank_comments(text).removeprefix(_BYTE_ORDER_MARK)
    try:
        found = json.loads(text_of_object)
    except (ValueError, RecursionError) as error:
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
    old_text = "{}\n"
    if text.removeprefix(_BYTE_ORDER_MARK).strip():
        old_text = text
    plain = blank_comments(old_text)
    place = _find_place(plain, path)
    new_value = value
    for name in reversed(place.missing_names):
        new_value = {name: new_value}
    if place.known_value is not None:
        begins, ends = place.known_value
        return f"{old_text[:begins]}{json.dumps(new_value)}{old_text[ends:]}"
    return _insert_member(old_text, plain, place, new_value)


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
    """Returns the text with a new first member of an object, and with its own line ends."""
    line_end = "\n"
    if "\r\n" in text:
        line_end = "\r\n"
    after_brace = place.object_at + 1
    indent = "  " * (place.depth + 1)
    content = json.dumps(value, indent=2).replace("\n", f"{line_end}{indent}")
    member = f"{json.dumps(place.name)}: {content}"
    head = f"{text[:after_brace]}{line_end}{indent}{member}"
    rest = text[after_brace:]
    has_members = plain[_skip_to_next_token(plain, after_brace)] != "}"
    if has_members and rest[0].isspace():
        return f"{head},{rest}"
    if has_members:
        return f"{head}, {rest}"
    rest_without_blanks = rest.lstrip()
    has_comment = rest_without_blanks[0] != "}"
    if has_comment:
        return f"{head}{line_end}{indent[2:]}{rest}"
    return f"{head}{line_end}{indent[2:]}{rest_without_blanks}"


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
