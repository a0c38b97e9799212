"""The windows that are open now, each a process of its own: how one finds the others, asks them what
they do, and starts the program again with all of them.

Each window holds the claim to its name for as long as it is open, and answers under that name.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from helix_desktop import running_instance
from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.program_folders import ProgramFolders

if TYPE_CHECKING:
    from helix_desktop.processes.starter import ChildProcess

NAME = "window"
# What a window is asked by another one.
SHOW = "show"
COUNT_WORK = "count-work"
CLOSE_FOR_RESTART = "close-for-restart"

LONGEST_CLOSING_SECONDS = 10.0
LONGEST_START_SECONDS = 30.0
SECONDS_BETWEEN_LOOKS = 0.05


@dataclass(frozen=True, slots=True)
class FurtherWindow:
    """A window beside the first one. Its layout and drafts are stored under its number, which no
    other window has as long as `claim`, an open file, is held.
    """

    number: int
    claim: IO[bytes]


def claim_further_window(where: ProgramFolders) -> FurtherWindow:
    """Claims the lowest number from 2 that no open window has."""
    number = 2
    claim = running_instance.claim_instance(where.run, name_window(number))
    while claim is None:
        number += 1
        claim = running_instance.claim_instance(where.run, name_window(number))
    return FurtherWindow(number, claim)


def name_window(number: int) -> str:
    """The name under which a window is claimed and answers. The first one has the number 1."""
    if number == 1:
        return NAME
    return f"{NAME}-{number}"


def list_open_windows(run: Path, own_number: int) -> list[int]:
    """Returns the numbers of the windows that other processes have open."""
    numbers = [1]
    for lock in run.glob(f"{NAME}-*.lock"):
        ending = lock.stem.removeprefix(f"{NAME}-")
        if ending.isdecimal():
            numbers.append(int(ending))
    open_numbers: list[int] = []
    for number in sorted(numbers):
        if number != own_number and _is_open(run, number):
            open_numbers.append(number)
    return open_numbers


def _is_open(run: Path, number: int) -> bool:
    if not (run / f"{name_window(number)}.lock").exists():
        return False
    claim = running_instance.claim_instance(run, name_window(number))
    if claim is None:
        return True
    claim.close()
    return False


class _LinesOfAnswer:
    """The console of a window that asks another one: it keeps what is answered."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def read_input(self) -> bytes:
        return b""

    async def write_output(self, data: bytes) -> None:
        """A window answers in lines alone."""

    async def print_line(self, text: str) -> None:
        self.lines.append(text)

    async def print_error(self, sentence: str) -> None:
        """The exit code says that the question was refused."""


async def ask_window(run: Path, number: int, question: str) -> str:
    """Returns the answer of another window. ActionRefused if it does not answer."""
    answer = _LinesOfAnswer()
    exit_code = 1
    connection = await running_instance.connect_to_owner(run, name_window(number))
    if connection is not None:
        exit_code = await running_instance.run_at_owner(connection, [question], answer)
    if exit_code != 0:
        raise ActionRefused(
            "Another window does not answer, so nothing was restarted.",
            remedy="Close that window, and try again.",
        )
    return "".join(answer.lines)


async def count_work_of_other_windows(run: Path, own_number: int) -> int:
    """Counts the agents that work in the other windows."""
    count = 0
    for number in list_open_windows(run, own_number):
        count += int(await ask_window(run, number, COUNT_WORK))
    return count


async def close_other_windows_for_restart(run: Path, own_number: int) -> dict[int, str]:
    """Closes the other windows. Returns what each showed, as a link, by its number."""
    links: dict[int, str] = {}
    for number in list_open_windows(run, own_number):
        links[number] = await ask_window(run, number, CLOSE_FOR_RESTART)
    return links


def start_windows_again(command: Sequence[str], run: Path, links: dict[int, str]) -> None:
    """Starts the program with these windows, in the order of their numbers, once those of before
    are closed. Raises OSError if it cannot be started.

    Each window takes the lowest free number, and with it the layout and the drafts that the window
    of that number had. So the next one is started once the one before it listens.
    """
    _wait_until_closed(run, list(links))
    places = [links[number] for number in sorted(links)]
    for index, place in enumerate(places):
        arguments = list(command)
        if index > 0:
            _wait_until_listening(run, index)
            arguments.append("--new-window")
        if place:
            arguments.append(place)
        start_window_process(arguments)


def _wait_until_closed(run: Path, numbers: Sequence[int]) -> None:
    latest = time.monotonic() + LONGEST_CLOSING_SECONDS
    while time.monotonic() < latest:
        if not any(_is_open(run, number) for number in numbers):
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _wait_until_listening(run: Path, number: int) -> None:
    latest = time.monotonic() + LONGEST_START_SECONDS
    while time.monotonic() < latest:
        if running_instance.is_listening(run, name_window(number)):
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)


def start_window_process(command: Sequence[str]) -> "ChildProcess":
    from helix_desktop.processes.starter import (
        DEVNULL,
        CommandAuthor,
        ProcessLaunch,
        open_process,
    )

    launch = ProcessLaunch(CommandAuthor.PROGRAM, command, has_own_session=True)
    return open_process(launch, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
