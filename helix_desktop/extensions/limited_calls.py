"""Runs somebody else's code in this process, which may raise anything or never return."""

import logging
from collections.abc import Callable
from typing import TypeVar

from helix_desktop.concurrency import start_thread
from helix_desktop.errors import HelixError

T = TypeVar("T")
log = logging.getLogger(__name__)
LONGEST_MESSAGE = 300


class ExtensionFailed(HelixError):
    """The code of an extension raised an error, hung, or declared what it may not."""


class ExtensionHung(ExtensionFailed):
    """The code of an extension did not return in time."""


def run_with_limit(work: Callable[[], T], seconds: float, what: str) -> T:
    """Return what `work` returns. Raises ExtensionFailed if it raises or takes too long.

    The thread of code that hangs stays behind, but keeps nothing running.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run_and_keep() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - it may even raise SystemExit
            errors.append(error)

    thread = start_thread(run_and_keep, name="extension", daemon=True)
    thread.join(seconds)
    if errors and type(errors[0]) is ExtensionFailed:
        raise errors[0]
    if errors:
        log.info("an extension failed: %s", type(errors[0]).__name__)
        raise ExtensionFailed(f"{what} raised {type(errors[0]).__name__}: {message_of(errors[0])}")
    if not results:
        raise ExtensionHung(f"{what} did not return within {seconds:.0f} s")
    return results[0]


def message_of(error: BaseException) -> str:
    """Return an error's message. Even making a text of it is somebody else's code."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - see above
        return "it has no message"
    return printable_text(message) or "it has no message"


def printable_text(text: str) -> str:
    """Return the beginning of a text without what could change a terminal or add a line."""
    printable = "".join(character for character in text if character.isprintable())
    return printable[:LONGEST_MESSAGE]
