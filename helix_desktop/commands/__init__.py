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
from helix_desktop.commands.option_parsing import CommandLineParser

# In the order of the help. For each noun, the module `NOUN_command` has a function
# `add_NOUN_commands`.
NOUNS = (
    "workspace", "conversation", "cache", "changes", "copy", "project", "forget", "ask", "acp",
    "task", "worker", "schedule", "fleet", "cost", "gateway", "wrap", "resident", "recorder",
    "provider", "model", "replay", "mcp", "host", "extension", "doctor",
)  # fmt: skip


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
    only_asks_for_version = not {*given} - {"--version"}
    if not named and not only_asks_for_version:
        named = list(NOUNS)
    for noun in named:
        module = import_module(f"helix_desktop.commands.{noun}_command")
        add_commands = getattr(module, f"add_{noun}_commands")
        add_commands(nouns)
    return whole


def format_local_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
