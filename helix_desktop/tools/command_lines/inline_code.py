"""Programs that are given code of their own in the command line, as behind `python -c`, and what of it may start others."""

from __future__ import annotations

import re
from collections.abc import Sequence

from helix_desktop.tools.command_lines import program_tables
from helix_desktop.tools.command_lines.shell_words import is_certain_word

_VERSION = re.compile(r"[\d.]+$")
_SED_RUNS = re.compile(
    r"(?:^|[;{}\n$!/]|\d)\s*e(?:\s|$)|([^\w\s\\]).*\1.*\1[gpiImM0-9]*e"
    r"|(?:^|[;{}\n])\s*(?:\d+|\$|/[^/\n]*/)(?:,\s*(?:[+~]?\d+|\$|/[^/\n]*/))?\s*!?\s*e"  # In `1egit push` nothing separates the command from its text.
    r"|^\s*e\S+\s"
)


def program_base_name(word: str) -> str:
    """The name of a program, without where it is."""
    return word.rpartition("/")[2]


def name_without_version(word: str) -> str:
    """The same without a version: `python` for `/usr/bin/python3.11`."""
    name = program_base_name(word)
    return name if name in program_tables.WRAPPERS else _VERSION.sub("", name) or name


def is_given_code(words: Sequence[str]) -> bool:
    """Whether an interpreter is given a program in its options, or reads one from its input."""
    name = name_without_version(words[0])
    letters = program_tables.CODE_OPTIONS.get(name)
    if letters is None:
        return name in program_tables.SCRIPT_LANGUAGES
    for word in words[1:]:
        if word == "-m" or not word.startswith(("-", "+")):
            return False
        if word == "-" or _is_code_option(word, letters):
            return True
    return name not in program_tables.EDITORS


def _is_code_option(word: str, letters: str) -> bool:
    if (
        word.startswith("+")
        or not is_certain_word(word)
        or word.lstrip("-").partition("=")[0] in program_tables.CODE_WORDS
    ):
        return True
    return not word.startswith("--") and bool(set(word[1:]) & set(letters))


def may_start_programs(text: str) -> bool:
    """Whether code may start other programs, or cannot be seen whole."""
    return bool(re.search(program_tables.STARTING_CODE, text)) or not is_certain_word(text)


def sed_runs_programs(words: Sequence[str]) -> bool:
    return any(_SED_RUNS.search(word) for word in words)
