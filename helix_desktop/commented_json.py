"""Parses and changes agents' settings: JSON with comments and trailing commas."""

import json
import re
from collections.abc import Sequence
from typing import Any

from helix_desktop.errors import ConfigFileMistake

# An unclosed string or comment matches up to the end of the text. Otherwise, the search
# would take quadratic time.
_COMMENTS = re.compile(r'("(?:[^"\\]|\\.?)*(?:"|\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_LAST_COMMAS = re.compile(r'("(?:[^"\\]|\\.?)*(?:"|\Z))|,(?=\s*[}\]])', re.DOTALL)
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
    at, depth = plain.index("{"), 0
    while (
        (span := _find_member(plain, at, path[depth]))
        and depth + 1 < len(path)
        and plain[span[0]] == "{"
    ):
        at, depth = span[0], depth + 1
    for inner in reversed(path[depth + 1 :]):
        value = {inner: value}
    if span:
        return f"{text[: span[0]]}{json.dumps(value)}{text[span[1] :]}"
    indent = "  " * (depth + 1)
    member = f"{json.dumps(path[depth])}: {json.dumps(value, indent=2)}".replace(
        "\n", f"\n{indent}"
    )
    rest = text[at + 1 :]
    if plain[_skip_blanks(plain, at + 1)] == "}":  # It has no members, but may contain a comment.
        return f"{text[: at + 1]}\n{indent}{member}\n{indent[2:]}{rest if rest.lstrip()[0] != '}' else rest.lstrip()}"
    return f"{text[: at + 1]}\n{indent}{member},{rest if rest[0].isspace() else ' ' + rest}"


def blank_comments(text: str) -> str:
    """Replaces comments and trailing commas with blanks, so that all positions stay valid."""
    for pattern in (_COMMENTS, _LAST_COMMAS):
        text = pattern.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)
    return text


def _find_member(plain: str, at: int, name: str) -> tuple[int, int] | None:
    """Returns where the value of `name` begins and ends, in the object that begins at `at`."""
    at = _skip_blanks(plain, at + 1)
    while plain[at] != "}":
        key, at = json.JSONDecoder().raw_decode(plain, at)
        begins = _skip_blanks(plain, at)
        _, at = json.JSONDecoder().raw_decode(plain, begins)
        if key == name:
            return begins, at
        at = _skip_blanks(plain, at)
    return None


def _skip_blanks(plain: str, at: int) -> int:
    found = _BETWEEN.match(plain, at)
    return found.end() if found else at
