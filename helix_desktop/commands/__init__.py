"""Holds one module for each noun of the command line: it declares the noun's arguments and runs it.

`ask_command` has `add_ask_command`, which declares, and `run_ask_command`. Every start of the
command line imports all of these modules, so they import what is heavy only when they run.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from helix_desktop import __version__

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name for it

NOUNS = (
    "workspace",
    "conversation",
    "cache",
    "changes",
    "project",
    "forget",
    "ask",
    "acp",
    "task",
    "worker",
    "schedule",
    "fleet",
    "tour",
    "cost",
    "gateway",
    "wrap",
    "resident",
    "recorder",
    "provider",
    "model",
    "replay",
    "mcp",
    "doctor",
)


class CommandLineParser(argparse.ArgumentParser):
    """Says what is wrong in a sentence, with the way to help, and ends with 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message[:1].upper()}{message[1:]}. See {self.prog} --help.\n")


def build_command_line_parser() -> argparse.ArgumentParser:
    """The whole command line, as `arguments.run` expects it. Without a noun there is no `run`: the window opens."""
    whole = CommandLineParser(
        prog="helix-desktop",
        description="Work with AI agents for hours without running out of context.",
        epilog="Without a command, the window opens; with a folder instead of a command, the folder opens in it as a workspace. Exit codes are 0 (success), 1 (not found or failed), 2 (invalid arguments) and 130 (stopped with Ctrl+C).",
    )
    whole.add_argument("--home", type=Path, metavar="DIR", help="store all data in DIR (or set HELIX_HOME)")
    whole.add_argument(
        "--version", action="version", help="show the version and exit", version=f"Helix Desktop {__version__}"
    )
    nouns = whole.add_subparsers(metavar="COMMAND", parser_class=CommandLineParser)
    for noun in NOUNS:
        getattr(import_module(f"helix_desktop.commands.{noun}_command"), f"add_{noun}_command")(nouns)
    return whole


def format_local_minute(time: float) -> str:
    """Formats a time in the local time zone, to the minute."""
    return datetime.fromtimestamp(time, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def add_json_option(arguments: argparse.ArgumentParser) -> None:
    """Adds `--json`, which prints one JSON value instead of text."""
    arguments.add_argument("--json", action="store_true", help="print one JSON value instead of text")


def add_workspace_argument(arguments: argparse.ArgumentParser, *, positional: bool = False) -> None:
    """Adds the argument that names the workspace."""
    if positional:
        arguments.add_argument("workspace", metavar="WORKSPACE", help="the workspace's name or ID")
    else:
        arguments.add_argument("--workspace", "-w", required=True, metavar="W", help="the workspace's name or ID")
