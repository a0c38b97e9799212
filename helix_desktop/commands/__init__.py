"""One module for each noun of the command line. `resources/command_line.json` lists the
commands, what they take and the functions that run them.

Only the module in use is imported. A command may be handed to a running program, so
what a workbench needs is imported only when the work is done.
"""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from helix_desktop import __version__
from helix_desktop.json_values import parse_object
from helix_desktop.resources import resources_folder

Subparsers: TypeAlias = "argparse._SubParsersAction[Any]"  # noqa: SLF001 - it has no other name
Options = Mapping[str, str | Mapping[str, Any] | None]
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
        if "invalid choice: 'delete'" in message and "'trash'" in message:
            message += "; instead of delete, use the command trash"
        message = re.sub(r"invalid (?:int|float) value: (.*)", r"\1 is not a number", message)
        self.exit(2, f"{message[:1].upper()}{message[1:]}. See {self.prog} --help.\n")


def build_command_line_parser(given: Sequence[str] = ("--help",)) -> argparse.ArgumentParser:
    """Builds the parser with the nouns in `given`, or with all. Without a noun, the
    window opens.
    """
    whole = CommandLineParser(
        prog="helix-desktop",
        description="Work with AI agents for hours without running out of context.",
        epilog="If you do not specify a command, the window opens. If you specify a folder instead of a command, the window opens the folder as a workspace. Exit codes are 0 (success), 1 (not found, failed or not confirmed), 2 (invalid arguments) and 130 (stopped with Ctrl+C).",
    )  # fmt: skip
    whole.add_argument(
        "--home", type=Path, metavar="DIR", help="store all data in DIR (or set HELIX_HOME)"
    )
    whole.add_argument(
        "--version",
        action="version",
        help="show the version and exit",
        version=f"Helix Desktop {__version__}",
    )
    nouns = whole.add_subparsers(metavar="COMMAND", parser_class=CommandLineParser)
    for noun in [noun for noun in NOUNS if noun in given] or (
        NOUNS if {*given} - {"--version"} else ()
    ):
        _add_noun(nouns, noun)
    return whole


def format_local_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def parse_number(
    text: str, *, most: int = MOST, least: int = 0, what: str = "a number of 0 or more"
) -> int:
    with suppress(ValueError):
        if least <= (number := int(text.replace(",", ""))) <= most:
            return number
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {what}")


def parse_name(text: str) -> str:
    """Refuses an empty name: a script whose variable is empty would start something new."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty")
    return text


Types = Mapping[str, Callable[[str], Any]]
TYPES: Types = {
    "path": Path, "int": int, "float": float, "number": parse_number,
    "ordinal": partial(parse_number, least=1, what="a number from 1"),
    "name": parse_name,
    "port": partial(parse_number, most=65_535, what="a port number"),
}  # fmt: skip


def options_of_command(name: str) -> Options:
    """Returns what a command takes, as `resources/command_line.json` lists it: how an
    option is written, and its help or more arguments for argparse.

    `--yes` is a switch, `--name NAME` a text (none by default), `--to URL...` a list of
    texts, `--as openai|codex` a choice (the first by default). `FILE` is positional,
    `[FILE]` may be left out, `FILE...` and `[FILE...]` take several. `*yes` stands for
    options that several commands take. An option whose help is null is not shown.
    """
    found: dict[str, Any] = {}
    table = _read_command_line()[name]
    for written, given in table.get("options", {} if "help" in table else table).items():
        found |= options_of_command(written) if written.startswith("*") else {written: given}
    return found


@cache
def _read_command_line() -> Mapping[str, Any]:
    return parse_object((resources_folder() / "command_line.json").read_bytes()) or {}


NOUNS = [name for name in _read_command_line() if " " not in name and not name.startswith("*")]


def _add_options(parser: argparse.ArgumentParser, options: Options, types: Types) -> None:
    for written, given in options.items():
        words = [word.rstrip(",") for word in written.split()]
        names = [word for word in words if word.startswith("-")]
        settings: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"help": given}
        if settings.get("help", "") is None:
            settings["help"] = argparse.SUPPRESS
        if "type" in settings:
            settings["type"] = types[settings["type"]]
        if len(names) == len(words):
            settings.setdefault("action", "store_true")
        elif names:
            settings = _build_argparse_settings(words[-1]) | settings
        else:
            settings.setdefault("metavar", words[0].strip("[.]"))
            several, may_be_left_out = "..." in words[0], words[0].startswith("[")
            names = [settings.pop("dest", settings["metavar"].lower() + ("s" if several else ""))]
            if several or may_be_left_out:
                settings["nargs"] = ("*" if may_be_left_out else "+") if several else "?"
        parser.add_argument(*names, **settings)


def _build_argparse_settings(value: str) -> dict[str, Any]:
    if "|" in value:
        return {"choices": value.split("|"), "default": value.partition("|")[0]}
    if value.endswith("..."):
        return {"metavar": value.removesuffix("..."), "action": "append", "default": []}
    return {"metavar": value, "default": ""}


def _add_noun(nouns: Subparsers, name: str) -> None:
    """Adds a command with its verbs. Without a verb, it prints the status of its
    process, if it has one.
    """
    noun = _add_command(nouns, name)
    if process := noun.get_default("process"):
        noun.add_argument(
            "--run", dest="run", action="store_const", const=process, help=argparse.SUPPRESS
        )
    if verbs := [verb for verb in _read_command_line() if verb.startswith(f"{name} ")]:
        subparsers = noun.add_subparsers(required=noun.get_default("run") is None, metavar="VERB")
        for verb in verbs:
            _add_command(subparsers, verb)


def _add_command(where: Subparsers, name: str) -> argparse.ArgumentParser:
    """Adds a command as the table has it. `runs` names the functions that run it and
    read values that only it takes, and the rest of `runs` is for `run_on_workspace`,
    which does the `work` of a command that has no `run`.
    """
    table = _read_command_line()[name]
    sentence: str = table["help"]
    description = table.get("description", f"{sentence[:1].upper()}{sentence[1:]}.")
    one: argparse.ArgumentParser = where.add_parser(
        name.rsplit(maxsplit=1)[-1], help=sentence, description=description
    )
    runs = {key: _find_in_module(each) for key, each in table.get("runs", {}).items()}
    _add_options(one, options_of_command(name), {**TYPES, **runs.pop("types", {})})
    if runs.pop("on_workbench", False):
        runs["work"] = partial(_find_in_module("workspace_access:run_on_workbench"), runs["work"])
    if runs:
        runs.setdefault("run", _find_in_module("workspace_access:run_on_workspace"))
    one.set_defaults(**runs)
    return one


def _find_in_module(value: Any) -> Any:
    """Returns what a value such as "cost_command:print_costs" names. Other values are
    returned as they are.
    """
    module, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    return getattr(import_module(f"helix_desktop.commands.{module}"), name) if name else value
