"""Decides which git settings may run a program or touch files elsewhere: all not known
to be harmless.
"""

import fnmatch
import re
from collections.abc import Iterator

from helix_desktop import resources

_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*')
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_BETWEEN = re.compile(r"(?:[ \t\n]+|[#;][^\n]*)*")
_BLANKS = re.compile(r"[ \t]*")
_LINE = re.compile(r"[^\n]*\n?")
_HARMLESS = resources.read_word_lists("git_settings")["harmless"]
_HARMLESS_NAMES = frozenset(_HARMLESS)
_HARMLESS_PATTERNS = re.compile(
    "|".join(fnmatch.translate(each) for each in _HARMLESS if "*" in each)
)
_HARMLESS_VALUES = resources.read_table("git_settings")["harmless_values"]


def parse_git_settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values as git reads them. What git rejects or cuts short gets a
    special name.
    """
    if "\0" in text:
        yield "not understood: git reads a name or value as far as the NUL in it", ""
    text = text.replace("\0", "").replace("\r\n", "\n").removeprefix("\ufeff")
    section = ""
    at = _end_of_match(_BETWEEN, text, 0)
    while at < len(text):
        heading = _SECTION.match(text, at)
        name = _NAME.match(text, at)
        if heading:
            section = heading[1].casefold()
            if heading[2] is not None:
                section += "." + re.sub(r"\\(.)", r"\1", heading[2])
            at = heading.end()
        elif name:
            value, at = _parse_git_value(text, name.end())
            yield f"{section}.{name[0].casefold()}", value
        else:
            line_end = _end_of_match(_LINE, text, at)
            yield f"not understood: {text[at:line_end]}", ""
            at = line_end
        at = _end_of_match(_BETWEEN, text, at)


def _end_of_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    if match is None:
        return at
    return match.end()


def _parse_git_value(text: str, at: int) -> tuple[str, int]:
    """Parse a value with quotes, comments and continued lines. Return it and where the
    next line begins.
    """
    pieces: list[str] = []
    quoted = False
    at = _end_of_match(_BLANKS, text, at)
    if not text.startswith("=", at):
        return "true", _end_of_match(_LINE, text, at)
    at += 1
    while at < len(text):
        char = text[at]
        if char == "\n" or (char in "#;" and not quoted):
            break
        if char == "\\":
            following = text[at + 1 : at + 2]
            pieces.append({"n": "\n", "t": "\t", "\n": ""}.get(following, following))
            at += 1
        elif char == '"':
            quoted = not quoted
        else:
            pieces.append(char)
        at += 1
    return "".join(pieces).strip(), _end_of_match(_LINE, text, at)


def list_doubtful_settings(text: str) -> list[str]:
    """Return the settings not known to be harmless, as `name = value`."""
    return [
        f"{name} = {value}"
        for name, value in parse_git_settings(text)
        if may_setting_run_program(name, value)
    ]


def may_setting_run_program(name: str, value: str) -> bool:
    """Whether this setting may make git run a program or touch files elsewhere."""
    if "::" in value or value.startswith(("-", "!")):
        return True
    if value.casefold() in _HARMLESS_VALUES.get(name, ()):
        return False
    return name not in _HARMLESS_NAMES and not _HARMLESS_PATTERNS.match(name)
