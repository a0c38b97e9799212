"""Taking a shell command line apart, so that a rule about one command cannot be stretched to another.

Only what is certain is taken apart: plain and quoted words joined by `;`, `&&`, `||`, `|` and line ends. Whatever can
make the shell run or write something that is not written there word for word (expansions, substitutions, redirections
to files, subshells, groups, here documents, comments, functions) gives None: no rule may allow it, it has to be asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUOTED = re.compile(r"'[^']*'")
_DOUBLE = re.compile(r'"[^"$`\\!]*"')
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./^~-]+")
_HARMLESS = re.compile(r"(?:2>&1|[12]?>\s*/dev/null)(?=[\s;|&]|$)")
_JOINT = re.compile(r"&&|\|\||[;|\n]")
_SPACE = re.compile(r"[ \t]+")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_KEYWORDS = frozenset(
    [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "in",
        "time",
        "coproc",
        "!",
        "[[",
        "{",
        "}",
        ".",
        "source",
        "eval",
        "exec",
        "command",
        "builtin",
        "trap",
        "alias",
        "export",
        "set",
        "unset",
        "shopt",
    ]
)


@dataclass(frozen=True, slots=True)
class Simple:
    """One command: its words without quotes. `assigns`: variables are set for it (`PATH=… git`)."""

    words: tuple[str, ...]
    assigns: bool = False


def simple_commands(line: str) -> tuple[Simple, ...] | None:
    """The commands of a line, or None where they cannot be told for certain. An empty line has none."""
    commands: list[Simple] = []
    words: list[str] = []
    at = 0
    while at < len(line):
        if space := _SPACE.match(line, at):
            at = space.end()
        elif quiet := _HARMLESS.match(line, at):
            at = quiet.end()
        elif joint := _JOINT.match(line, at):
            if not _close(commands, words):
                return None
            at = joint.end()
        else:
            word, end = _word(line, at)
            if end == at:
                return None
            words.append(word)
            at = end
    return tuple(commands) if _close(commands, words) else None


def _word(line: str, at: int) -> tuple[str, int]:
    """One word made of plain and quoted pieces; the end equals the start where there is none to be sure of."""
    start, pieces = at, []
    while at < len(line):
        if plain := _PLAIN.match(line, at):
            pieces.append(plain.group())
            at = plain.end()
        elif quoted := _QUOTED.match(line, at) or _DOUBLE.match(line, at):
            pieces.append(quoted.group()[1:-1])
            at = quoted.end()
        else:
            break
    certain = at >= len(line) or line[at] in " \t\n;|&"
    return "".join(pieces), at if certain else start


def _close(commands: list[Simple], words: list[str]) -> bool:
    """End a command; False where it is one that can run others."""
    if not words:
        return True
    assigns = bool(_ASSIGNS.match(words[0]))
    while words and _ASSIGNS.match(words[0]):
        words.pop(0)
    if not words:
        return False
    if words[0] in _KEYWORDS:
        return False
    commands.append(Simple(tuple(words), assigns))
    words.clear()
    return True
