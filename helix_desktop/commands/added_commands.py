"""The commands of allowed extensions: `helix-desktop NOUN …` for a noun that is not ours.

Extensions are only looked at if the command line names no command of the program, or asks for
help with all of them.
"""

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from helix_desktop.commands.option_parsing import CommandLineParser, Subparsers
from helix_desktop.console import print_text
from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.extensions.extension_interfaces import ExtensionCommand
from helix_desktop.extensions.extension_loading import load_extensions_in_thread
from helix_desktop.extensions.limited_calls import ExtensionFailed, message_of, run_with_limit
from helix_desktop.extensions.running_extension import RunningExtension
from helix_desktop.program_folders import find_program_folders

DECLARING_SECONDS = 5.0
# What the program itself notes in the arguments of each command.
OWN_ARGUMENTS = frozenset({"run", "argv", "places", "home", "host"})


def add_commands_of_extensions(nouns: Subparsers, home: Path | None) -> None:
    """Add the commands of allowed extensions. One that fails is named, and the others work."""
    extensions = load_extensions_in_thread(find_program_folders(home))
    for extension in extensions.running:
        if extension.stopped_because:
            continue
        for command in extension.declared.commands:
            try:
                parser = _build_parser_of_arguments(command)
            except ExtensionFailed as error:
                extension.note_hanging(error.what)
                break
            added = nouns.add_parser(
                command.noun,
                help=command.sentence.replace("%", "%%"),
                description=command.sentence.replace("%", "%%"),
                parents=[parser],
            )
            added.set_defaults(run=partial(_run_command_of_extension, extension, command))
    for complaint in extensions.complaints:
        print_text(mark_text(complaint), file=sys.stderr)


def _build_parser_of_arguments(command: ExtensionCommand) -> CommandLineParser:
    """Return a parser with the arguments that the extension declares for its command."""
    parser = CommandLineParser(prog=f"helix-desktop {command.noun}", add_help=False)
    what = f"declaring the arguments of its command {command.noun}"
    run_with_limit(lambda: command.add_arguments(parser), DECLARING_SECONDS, what)
    for action in parser._actions:  # noqa: SLF001 - a parser tells its options in no other way
        if action.dest in OWN_ARGUMENTS:
            raise ExtensionFailed(
                f"its command {command.noun} has an argument named {action.dest}, which Helix Desktop uses"
            )
    return parser


def _run_command_of_extension(
    extension: RunningExtension, command: ExtensionCommand, arguments: Namespace
) -> int:
    """Run the command. It may do what it likes, also wait for ever: Ctrl+C ends it."""
    try:
        code = command.run(arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ExtensionFailed(
            f"The command {command.noun} of the extension {extension.installed.name} failed with {type(error).__name__}: {message_of(error)}"
        ) from error
    if type(code) is int:
        return code
    return 0
