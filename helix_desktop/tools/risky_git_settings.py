"""Decides which git settings may run a program or touch files elsewhere: all not known
to be harmless.
"""

import fnmatch
import re
from collections.abc import Iterator

from helix_desktop import resources

_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*')
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_SPACE_AND_COMMENTS = re.compile(r"(?:[ \t\n]+|[#;][^\n]*)*")
_BLANKS = re.compile(r"[ \t]*")
_REST_OF_LINE = re.compile(r"[^\n]*\n?")
_HARMLESS = resources.read_word_lists("git_settings")["harmless"]
_HARMLESS_NAMES = frozenset(_HARMLESS)
_PATTERNS = [fnmatch.translate(pattern) for pattern in _HARMLESS if "*" in pattern]
_HARMLESS_PATTERNS = re.compile("|".join(_PATTERNS))
_HARMLESS_VALUES = resources.read_table("git_settings")["harmless_values"]


def parse_git_settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values as git reads them, such as `core.editor` and `vim`. What git
    rejects or cuts short gets a special name.

    A setting's name begins with that of its section, the last line like `[core]` or
    `[remote "origin"]` before it.
    """
    if "\0" in text:
        yield "not understood: git reads a name or value as far as the NUL in it", ""
    content = text.replace("\0", "").replace("\r\n", "\n").removeprefix("\ufeff")
    section = ""
    position = _end_of_match(_SPACE_AND_COMMENTS, content, 0)
    while position < len(content):
        section_match = _SECTION.match(content, position)
        name_match = _NAME.match(content, position)
        if section_match:
            section = _name_of_section(section_match)
            position = section_match.end()
        elif name_match:
            value, position = _parse_git_value(content, name_match.end())
            yield f"{section}.{name_match[0].casefold()}", value
        else:
            line_end = _end_of_match(_REST_OF_LINE, content, position)
            yield f"not understood: {content[position:line_end]}", ""
            position = line_end
        position = _end_of_match(_SPACE_AND_COMMENTS, content, position)


def _name_of_section(section_match: re.Match[str]) -> str:
    """Return `remote.origin` for `[remote "origin"]`. Only the first part ignores case."""
    section = section_match[1].casefold()
    quoted_part = section_match[2]
    if quoted_part is None:
        return section
    return section + "." + re.sub(r"\\(.)", r"\1", quoted_part)


def _end_of_match(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    if match is None:
        return position
    return match.end()


def _parse_git_value(text: str, position: int) -> tuple[str, int]:
    """Parse a value with quotes, comments and continued lines. Return it and where the
    next line begins. A name without a value is on.
    """
    equals_sign = _end_of_match(_BLANKS, text, position)
    if not text.startswith("=", equals_sign):
        return "true", _end_of_match(_REST_OF_LINE, text, equals_sign)
    pieces: list[str] = []
    is_quoted = False
    index = equals_sign + 1
    while index < len(text):
        character = text[index]
        begins_comment = character in "#;" and not is_quoted
        if character == "\n" or begins_comment:
            break
        if character == "\\":
            # A backslash at the end of a line continues it.
            following = text[index + 1 : index + 2]
            pieces.append({"n": "\n", "t": "\t", "\n": ""}.get(following, following))
            index += 1
        elif character == '"':
            is_quoted = not is_quoted
        else:
            pieces.append(character)
        index += 1
    return "".join(pieces).strip(), _end_of_match(_REST_OF_LINE, text, index)


def list_doubtful_settings(text: str) -> list[str]:
    """Return the settings not known to be harmless, as `name = value`."""
    doubtful = []
    for name, value in parse_git_settings(text):
        if may_setting_run_program(name, value):
            doubtful.append(f"{name} = {value}")
    return doubtful


def may_setting_run_program(name: str, value: str) -> bool:
    """Whether this setting may make git run a program or touch files elsewhere."""
    if "::" in value or value.startswith(("-", "!")):
        return True
    if value.casefold() in _HARMLESS_VALUES.get(name, ()):
        return False
    return name not in _HARMLESS_NAMES and not _HARMLESS_PATTERNS.match(name)
