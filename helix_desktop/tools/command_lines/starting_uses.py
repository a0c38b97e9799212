"""Knows which uses of a program start another one: an editor, a pager, a browser, a filter, gpg.

"Always allow `git branch *`" is about branches. `git branch --edit-description` starts whatever the
settings call an editor, and no word of the command says so.

The options are in `resources/tables/programs.toml`. They were found in manual pages by
`tests/faults/starting_uses.py`, which also runs such uses and sees what the kernel starts.
"""

import re
from collections.abc import Iterable, Sequence

from helix_desktop.tools.command_lines import program_tables
from helix_desktop.tools.command_lines.program_finder import name_without_version

# Words of a format with which `git log` and its relatives have gpg check a signature.
_ASKS_FOR_SIGNATURE = re.compile(r"%G")
# Commands of sqlite3 that start a program or load a library. They may be cut short.
_SHELL_COMMAND_OF_SQLITE = re.compile(
    r"(?m:^)[ \t]*\.|\bedit\s*\(|\bload_extension\b", re.IGNORECASE
)
_OPENS_TODO_LIST = re.compile(r"\A(?:--rebase=|-r=?)(?:i|interactive)\Z")
# `less +!command`: what less does with its first file.
_IS_COMMAND_OF_PAGER = re.compile(r"\A\+")
_TELLING_WORDS = {
    "less": (_IS_COMMAND_OF_PAGER,),
    "git": (_ASKS_FOR_SIGNATURE, _OPENS_TODO_LIST),
    "sqlite3": (_SHELL_COMMAND_OF_SQLITE,),
}


def starts_unnamed_program(words: Sequence[str]) -> bool:
    """Whether this command starts a program that no word of it names."""
    name = name_without_version(words[0])
    arguments = words[1:]
    for command in _names_of_command(name, arguments):
        if command.replace(" ", "/") in program_tables.STARTING_COMMANDS:
            return True
        starting_options = program_tables.STARTING_OPTIONS.get(command, frozenset())
        if any(_is_one_of(word, starting_options) for word in arguments):
            return True
        if _opens_editor(command, arguments):
            return True
    telling_words = _TELLING_WORDS.get(name, ())
    for word in arguments:
        if any(telling_word.search(word) for telling_word in telling_words):
            return True
    return False


def starts_alias_or_extension(words: Sequence[str]) -> bool:
    """Whether the command is none of the program's own: an alias of the user, which may be any
    command line, or an extension, which is another program.
    """
    own_commands = program_tables.OWN_COMMANDS.get(name_without_version(words[0]))
    if own_commands is None:
        return False
    for word in words[1:]:
        if not word.startswith(("-", "+")):
            return word not in own_commands
    return False


def _names_of_command(name: str, arguments: Sequence[str]) -> list[str]:
    """`git`, `git log`; `gh`, `gh pr`, `gh pr list`: what the tables may know."""
    subcommands = [word for word in arguments[:2] if not word.startswith("-")]
    names = [name]
    for subcommand in subcommands:
        names.append(f"{names[-1]} {subcommand}")
    return names


def _is_one_of(word: str, options: Iterable[str]) -> bool:
    """Whether a word is one of these options: attached to others, cut short, or with a value."""
    if word.startswith("--"):
        return _is_one_of_long_options(word, options)
    if word in options:
        return True
    if not word.startswith("-"):
        return False
    letters = {option[1] for option in options if re.fullmatch(r"-[A-Za-z0-9]", option)}
    return not letters.isdisjoint(word[1:])


def _is_one_of_long_options(word: str, options: Iterable[str]) -> bool:
    name = word.partition("=")[0]
    if name in program_tables.LIKE_STARTING_OPTIONS:
        return name in options
    # Most programs accept the beginning of a long option for the whole of it.
    long_options = [option for option in options if option.startswith("--")]
    return any(option.startswith(name) for option in long_options)


def _opens_editor(command: str, arguments: Sequence[str]) -> bool:
    """Whether a message is missing, so that the user's editor is opened for it."""
    message_options = program_tables.MESSAGE_OPTIONS.get(command)
    if message_options is None:
        return False
    # Some commands open it only with one of these options.
    editor_options = program_tables.EDITOR_OPTIONS.get(command)
    if editor_options is not None:
        may_open_editor = any(_is_one_of(word, editor_options) for word in arguments)
        if not may_open_editor:
            return False
    is_message_given = any(_gives_message(word, message_options) for word in arguments)
    return not is_message_given


def _gives_message(word: str, message_options: Iterable[str]) -> bool:
    """A long option counts only in full here: where it is unsure, the editor is expected."""
    if word.startswith("--"):
        return word.partition("=")[0] in message_options
    if re.match(r"-[A-Za-z]", word) is None:
        return False
    letters = {option[1] for option in message_options if re.fullmatch(r"-[A-Za-z]", option)}
    return not letters.isdisjoint(word[1:])
