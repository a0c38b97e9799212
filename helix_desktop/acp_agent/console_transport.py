"""Carries the SDK's messages over a command's console, and turns this program's errors
into the protocol's.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from acp import RequestError
from acp.router import MessageRouter
from pydantic import ValidationError

from helix_desktop.console import Console
from helix_desktop.errors import HelixError, InvalidInput, NotFound

# Codes of JSON-RPC, and one of the protocol's own.
INVALID_PARAMETERS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
MOST_MISTAKES = 5  # One error names at most so many wrong parameters.
LONGEST_MISTAKE = 300  # At most so many characters of one: it may quote what the editor sent.
log = logging.getLogger(__name__)


class ConsoleTransport:
    """The transport of an SDK connection (`acp.connection.Connection`): one line of
    JSON for each message.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._unread: list[bytes] = []
        self._unfinished = b""

    async def receive(self) -> dict[str, Any] | None:
        """Returns the next message, or None once the input has ended."""
        while not self._unread:
            piece = await self._console.read_input()
            if not piece:
                return None
            lines = (self._unfinished + piece).split(b"\n")
            # What follows the last line end is the beginning of a line.
            self._unfinished = lines.pop()
            self._unread = lines
        message: dict[str, Any] = json.loads(self._unread.pop(0))
        return message

    async def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")) + "\n"
        await self._console.write_output(line.encode())

    async def close(self) -> None:
        """Does nothing, because the caller closes the console."""


class GuardedRouter:
    """The SDK's router. A failed request is answered with a sentence, and a failed
    notification is logged.
    """

    def __init__(self, router: MessageRouter, note_request: Callable[[str, Any], None]) -> None:
        self._router = router
        self._inspect_client_request = note_request

    async def __call__(self, method: str, params: Any, is_notification: bool) -> Any:  # noqa: FBT001 -- the SDK calls it so
        try:
            self._inspect_client_request(method, params)
            if params is None:
                params = {}
            return await self._router(method, params, is_notification)
        except (HelixError, RequestError, ValidationError, ValueError) as error:
            if is_notification:
                log.info("a notification was not understood: %s", method[:80])
                return None
            raise _as_request_error(error) from error


def _as_request_error(error: Exception) -> RequestError:
    """Returns the protocol's error for an error of this program."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, ValidationError):
        sentence = f"These parameters are not valid. {_describe_mistakes(error)}"
        return RequestError(INVALID_PARAMETERS, sentence)
    if isinstance(error, InvalidInput | ValueError):
        return RequestError(INVALID_PARAMETERS, str(error))
    if isinstance(error, NotFound):
        return RequestError(RESOURCE_NOT_FOUND, str(error))
    return RequestError(INTERNAL_ERROR, str(error))


def _describe_mistakes(error: ValidationError) -> str:
    """Says which parameters are wrong, each with its path in the request."""
    mistakes: list[str] = []
    for mistake in error.errors()[:MOST_MISTAKES]:
        path = ".".join(str(step) for step in mistake["loc"])
        reason = mistake["msg"]
        description = f"{path}: {reason}"
        mistakes.append(description[:LONGEST_MISTAKE])
    return "; ".join(mistakes)
