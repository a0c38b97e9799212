"""The pieces that the commands' options are made of: the parser, numbers, and the options
that many commands take.
"""

import argparse
import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from helix_desktop.console import escape_control_characters

Subparsers: TypeAlias = "argparse._SubParsersAction[Any]"  # noqa: SLF001 - it has no other name
# How argparse says that a noun or a verb is unknown or missing. Since Python 3.12, the names have
# no quotes.
_UNKNOWN_COMMAND = re.compile(
    r"argument (?:COMMAND|VERB): invalid choice: '(?P<given>.*)' \(choose from (?P<names>.*)\)",
    re.DOTALL,
)
_NO_COMMAND = "the following arguments are required: VERB"
MOST = 10**18 - 1  # A larger number may not fit into the database's 64-bit integers.


class CommandLineParser(argparse.ArgumentParser):
    """Reports a mistake in one sentence, says how to get help, and exits with code 2."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reports unknown arguments through the subcommand's parser, which names its own help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        unknown_command = _UNKNOWN_COMMAND.fullmatch(message)
        if unknown_command is not None:
            message = _describe_unknown_command(unknown_command)
        elif message == _NO_COMMAND:
            message = f"A command is missing after {self.prog}"
        message = re.sub(r"invalid (?:int|float) value: (.*)", r"\1 is not a number", message)
        sentence = f"{message[:1].upper()}{message[1:]}. See {self.prog} --help.\n"
        self.exit(2, escape_control_characters(sentence))


def _describe_unknown_command(mistake: re.Match[str]) -> str:
    """Return the sentence about an unknown noun or verb, with the one that may be meant."""
    given = mistake["given"]
    names = re.findall(r"[\w-]+", mistake["names"])
    meant = get_close_matches(given, names, n=1)
    if given == "delete" and "trash" in names:
        meant = ["trash"]
    sentence = f"there is no command {given!r}"
    if meant:
        return f"{sentence}. Did you mean {meant[0]!r}? The commands are {', '.join(names)}"
    return f"{sentence}. The commands are {', '.join(names)}"


def add_command(
    where: Subparsers, name: str, sentence: str, *, description: str = ""
) -> argparse.ArgumentParser:
    """Adds a noun or a verb. `sentence`: what the list of commands says of it, and its
    own help unless that has a longer description.
    """
    as_sentence = f"{sentence[:1].upper()}{sentence[1:]}."
    parser: argparse.ArgumentParser = where.add_parser(
        name, help=sentence, description=description or as_sentence
    )
    return parser


def option_words(command: argparse.ArgumentParser) -> frozenset[str]:
    """Returns how a command's options are written, such as --workspace and -w, without
    that for help, which another program may have too.
    """
    actions = command._actions  # noqa: SLF001 - a parser tells its options in no other way
    words = {word for action in actions for word in action.option_strings}
    return frozenset(words - {"-h", "--help"})


# --- Numbers and names


def parse_number(
    text: str, *, most: int = MOST, least: int = 0, what: str = "a number of 0 or more"
) -> int:
    with suppress(ValueError):
        number = int(text.replace(",", ""))
        if least <= number <= most:
            return number
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {what}")


parse_ordinal = partial(parse_number, least=1, what="a number from 1")
parse_port = partial(parse_number, most=65_535, what="a port number")


def parse_name(text: str) -> str:
    """Refuses an empty name: a script whose variable is empty would start something new."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty")
    return text


# --- What several commands take


def add_json_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON value instead of text")


def add_text_option(command: argparse.ArgumentParser, name: str, metavar: str, help_: str) -> None:
    """Adds an option that takes one text, and is empty without it."""
    command.add_argument(name, metavar=metavar, default="", help=help_)


def add_repeated_option(
    command: argparse.ArgumentParser, name: str, metavar: str, help_: str
) -> None:
    """Adds an option that may be given several times, and whose texts become a list."""
    command.add_argument(name, metavar=metavar, action="append", default=[], help=help_)


def add_names_argument(
    command: argparse.ArgumentParser,
    name: str,
    metavar: str,
    help_: str,
    *,
    may_be_none: bool = False,
) -> None:
    """Adds an argument for names of things, one at least unless there `may_be_none`."""
    number = "*" if may_be_none else "+"
    command.add_argument(name, metavar=metavar, nargs=number, help=help_)


def add_yes_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--yes",
        action="store_true",
        help="do not ask for confirmation (by default, show what would be done and, in a terminal, ask first)",
    )


def add_workspace_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("workspace", metavar="WORKSPACE", help="the workspace's name or ID")


def add_workspace_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workspace",
        "-w",
        metavar="W",
        default=None,
        help="the workspace's name or ID (default: the workspace of this folder)",
    )


def add_conversation_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "conversation",
        metavar="CONVERSATION",
        help="the conversation's ID, the beginning of its ID, or its whole title",
    )


def add_search_arguments(command: argparse.ArgumentParser) -> None:
    """Adds the words to search for, the tool whose outputs are searched, and the number of
    results.
    """
    command.add_argument(
        "words",
        metavar="WORD",
        nargs="+",
        help="words, and filters such as by:user, agent:codex, tool:bash, file:main.py or before:2026-01-31",
    )
    command.add_argument(
        "--tool", metavar="TOOL", default="", help="search only outputs of this tool"
    )
    command.add_argument(
        "--limit",
        metavar="N",
        type=parse_number,
        default=20,
        help="show at most N (default: 20; 0 means all)",
    )


def add_chosen_recordings_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that choose recorded conversations by their agent and age."""
    command.add_argument(
        "--agent",
        metavar="AGENT",
        action="append",
        default=[],
        help="only this agent's conversations; can be repeated",
    )
    command.add_argument(
        "--before",
        metavar="DATE",
        default="",
        help="recorded conversations that last changed before this date, such as 2026-01-31",
    )
    add_yes_option(command)


def find_first_word(given: Sequence[str]) -> str:
    """Return the word that names the command, or an empty string."""
    is_value = False
    for argument in given:
        if is_value:
            is_value = False
        elif argument in ("--home", "--host"):
            is_value = True
        elif not argument.startswith("-"):
            return argument
    return ""


def find_given_home(given: Sequence[str]) -> Path | None:
    """Return what --home names, before the command line as a whole can be read."""
    for position, argument in enumerate(given):
        if argument.startswith("--home="):
            return Path(argument.removeprefix("--home="))
        if argument == "--home" and position + 1 < len(given):
            return Path(given[position + 1])
    return None
