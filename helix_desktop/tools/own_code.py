"""Programs that are given code of their own in the command line, as behind `python -c`, and what of it may start others."""

from __future__ import annotations

import re
from collections.abc import Sequence

from helix_desktop.tools import starters
from helix_desktop.tools.shell_words import certain

_VERSION = re.compile(r"[\d.]+$")
_SED_RUNS = re.compile(
    r"(?:^|[;{}\n$!/]|\d)\s*e(?:\s|$)|([^\w\s\\]).*\1.*\1[gpiImM0-9]*e"
    r"|(?:^|[;{}\n])\s*(?:\d+|\$|/[^/\n]*/)(?:,\s*(?:[+~]?\d+|\$|/[^/\n]*/))?\s*!?\s*e"  # `1egit push`: nothing parts them
    r"|^\s*e\S+\s"
)


def program(word: str) -> str:
    """The name of a program, without where it is."""
    return word.rpartition("/")[2]


def plain_name(word: str) -> str:
    """The same without a version: `python` for `/usr/bin/python3.11`."""
    name = program(word)
    return name if name in starters.PREFIXES else _VERSION.sub("", name) or name


def coded(words: Sequence[str]) -> bool:
    """Whether an interpreter is given a program in its options, or reads one from its input."""
    name = plain_name(words[0])
    letters = starters.CODE.get(name)
    if letters is None:
        return name in starters.WRITTEN_IN
    for word in words[1:]:
        if word == "-m" or not word.startswith(("-", "+")):
            return False
        if word == "-" or _is_code_option(word, letters):
            return True
    return name not in starters.EDITORS


def _is_code_option(word: str, letters: str) -> bool:
    if word.startswith("+") or not certain(word) or word.lstrip("-").partition("=")[0] in starters.CODE_WORDS:
        return True
    return not word.startswith("--") and bool(set(word[1:]) & set(letters))


def may_start(text: str) -> bool:
    """Whether code may start other programs, or cannot be seen whole."""
    return bool(re.search(starters.STARTS, text)) or not certain(text)


def runs_in_sed(words: Sequence[str]) -> bool:
    return any(_SED_RUNS.search(word) for word in words)
