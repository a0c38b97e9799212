"""One module for each noun of the command line, with the functions that run its commands
and, at its end, what they are called, say and take.

Only the module in use is imported. A command may be handed to a running program, so
what a workbench needs is imported only when the work is done.
"""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from helix_desktop import __version__
from helix_desktop.command_nouns import NOUNS
from helix_desktop.commands.option_parsing import (
    CommandLineParser,
    find_first_word,
    find_given_home,
)


def build_command_line_parser(given: Sequence[str] = ("--help",)) -> argparse.ArgumentParser:
    """Builds the parser with the nouns in `given`, or with all. Without a noun, the
    window opens.
    """
    whole = CommandLineParser(
        prog="helix-desktop",
        description="Work with AI agents for hours without running out of context.",
        epilog="If you do not specify a command, the window opens. If you specify a folder instead of a command, the window opens the folder as a workspace. Exit codes are 0 (success), 1 (not found, failed or not confirmed), 2 (invalid arguments) and 130 (stopped with Ctrl+C).",
    )
    whole.add_argument(
        "--home", type=Path, metavar="DIR", help="store all data in DIR (or set HELIX_HOME)"
    )
    whole.add_argument(
        "--host",
        metavar="ssh://MACHINE/DIR",
        default="",
        help="work in a folder of another computer, over your own ssh; for ask, conversation list and conversation show",
    )
    whole.add_argument(
        "--version",
        action="version",
        help="show the version and exit",
        version=f"Helix Desktop {__version__}",
    )
    nouns = whole.add_subparsers(metavar="COMMAND", parser_class=CommandLineParser)
    named = [noun for noun in NOUNS if noun in given]
    only_asks_for_version = not set(given) - {"--version"}
    if not named and not only_asks_for_version:
        named = list(NOUNS)
    for noun in named:
        module = import_module(f"helix_desktop.commands.{noun}_command")
        add_commands = getattr(module, f"add_{noun}_commands")
        add_commands(nouns)
    if _may_mean_command_of_extension(given):
        from helix_desktop.commands import added_commands

        added_commands.add_commands_of_extensions(nouns, find_given_home(given))
    return whole


def _may_mean_command_of_extension(given: Sequence[str]) -> bool:
    """Whether the first word is no command of ours, or all commands are asked for."""
    first_word = find_first_word(given)
    if first_word:
        return first_word not in NOUNS
    return "--help" in given or "-h" in given


def format_local_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
