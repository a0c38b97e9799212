"""The command line, which runs the engine without a window. If you do not specify a
command, the window opens.

The desktop starts the window through this module, so it imports nothing that only commands need.
"""

import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from helix_desktop import __version__
from helix_desktop.errors import TO_WRITABLE_FOLDER, HelixError, InvalidInput

FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130
SHOWN_OF_LONG_NAME = 80  # In characters.


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line. Exit codes: 0 done; 1 not found, failed or not confirmed; 2
    wrong usage; 130 Ctrl+C.
    """
    if argv is None:
        argv = sys.argv[1:]
    given = list(argv)
    _set_output_to_utf8()
    try:
        if given == ["--prepare-sessions", __version__]:
            from helix_desktop.workbench.session_preparation import prepare_sessions_for_parent

            return prepare_sessions_for_parent()
        return _run_or_open_window(given)
    except HelixError as error:
        return _report_error(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _report_os_error(error)


def _run_or_open_window(given: list[str]) -> int:
    place = _pop_target_argument(given)
    if "--new-window" in given:
        return _open_window_beside_another(given, place)
    if given:
        return _run_command_line(given, place)
    return _open_window(None, place)


def _report_error(error: HelixError) -> int:
    from helix_desktop.console import print_text

    print_text(str(error), file=sys.stderr)
    if isinstance(error, InvalidInput):
        return WRONG_USE
    return FAILED


def _report_os_error(error: OSError) -> int:
    """Says what a person can do about an error of the system, or raises it again."""
    from helix_desktop.console import discard_output, print_text

    if isinstance(error, BrokenPipeError):
        discard_output()  # The program that reads our output has closed the pipe.
        return 0
    if error.errno == errno.ENOSPC:
        discard_output()
    sentence = _describe_os_error(error)
    if not sentence:
        raise error
    print_text(sentence, file=sys.stderr)
    return FAILED


def _describe_os_error(error: OSError) -> str:
    """Returns what a person can do about it. Empty: it is a bug, and is raised."""
    if error.errno == errno.ENOSPC:
        return "The disk is full, or the disk that the output is written to. Free up disk space and try again."
    if error.errno in (errno.EROFS, errno.EACCES) and error.filename:
        return f"{error.filename}: {error.strerror}. {TO_WRITABLE_FOLDER}"
    if error.errno == errno.ENAMETOOLONG and error.filename:
        # As where a text was given in the place of a file.
        return f"No file can have so long a name: {str(error.filename)[:SHOWN_OF_LONG_NAME]}…"
    if _is_current_folder_missing():
        return "The folder you are in no longer exists. Change to another one and try again."
    return ""


def _pop_target_argument(given: list[str]) -> str:
    """Removes the target from the arguments and returns it: a link that the desktop
    passes on, or a folder to open.
    """
    if not given:
        return ""
    last = given[-1]
    if last.startswith("helix:"):
        return given.pop()
    follows_home = len(given) == 3 and given[0] == "--home"
    is_alone = len(given) == 1 or follows_home
    if not is_alone:
        return ""
    if Path(last).is_dir():
        from helix_desktop.command_nouns import NOUNS

        if last in NOUNS:  # A folder with such a name can be named with ./ in front.
            return ""
        return str(Path(given.pop()).resolve())
    if os.sep in last and not Path(last).exists():
        raise InvalidInput(f"{last} does not exist.")
    return ""


def _is_current_folder_missing() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except FileNotFoundError:
        return True
    return False


def _run_command_line(given: Sequence[str], place: str) -> int:
    """Runs a command with its own log file, because the window may be writing to the other one."""
    from helix_desktop import commands, logs, program_folders

    arguments = commands.build_command_line_parser(given).parse_args(given)
    if not hasattr(arguments, "run"):
        _refuse_window_for_other_computer(arguments.host)
        return _open_window(arguments.home, place)
    where = program_folders.find_folders_at_start(
        arguments.home, keeps_variables=hasattr(arguments, "keeps_variables")
    )
    arguments.argv = given
    arguments.places = where
    stop = logs.start_logging(where.logs, logs.LogRedaction(), file="command")
    program_folders.make_folders_private(where)
    try:
        if where.logs.parent == where.data and not where.data.is_dir():
            defect = "cannot be created"
            if where.data.exists():
                defect = "is not a folder"
            remedy = "Choose another folder with --home DIR, or set HELIX_HOME."
            raise InvalidInput(f"{where.data} {defect}.", remedy=remedy)
        if arguments.host:
            from helix_desktop.commands import running_elsewhere

            return running_elsewhere.run_on_other_computer(arguments)
        code = arguments.run(arguments)
        if not isinstance(code, int):  # The command is a coroutine.
            import asyncio

            code = asyncio.run(code)
        if sys.stdout is not None:
            sys.stdout.flush()  # An error is shown as a sentence here, but as a traceback at exit.
        return int(code)
    finally:
        stop()


def _open_window_beside_another(given: Sequence[str], place: str) -> int:
    """Opens another window beside one that is open: `[--home DIR] --new-window [PLACE]`."""
    from helix_desktop import commands

    others = [argument for argument in given if argument != "--new-window"]
    arguments = commands.build_command_line_parser(others).parse_args(others)
    return _open_window(arguments.home, place, is_new=True)


def _refuse_window_for_other_computer(host: str) -> None:
    if host:
        raise InvalidInput(
            "The window cannot show a folder of another computer yet.",
            remedy=f"You can work there from the command line: helix-desktop --host {host} ask TEXT",
        )


def _set_output_to_utf8() -> None:
    """Makes standard output UTF-8 on every console and pipe, so that no character can
    end the program.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _report_window_not_opened(reason: str) -> int:
    # Imported here, as it takes longer than all else before the first paint.
    from helix_desktop.console import print_text

    print_text(f"The window could not be opened: {reason}", file=sys.stderr)
    return FAILED


def _open_window(home: Path | None, place: str, *, is_new: bool = False) -> int:
    from helix_desktop import screen_check

    reason = screen_check.describe_missing_screen()
    if reason:
        return _report_window_not_opened(f"{reason}. {screen_check.INSTEAD}")
    try:
        from helix_desktop import window_start
    except ImportError as error:
        if not (error.path or "").endswith((".so", ".pyd")):
            raise
        return _report_window_not_opened(
            f"{error}. To see what to install, run: helix-desktop doctor"
        )
    window_arguments: list[str] = []
    if is_new:
        window_arguments.append("--new-window")
    if place:
        window_arguments.append(place)
    return window_start.main(home, window_arguments)
