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
        while not self._unread:
            if not (piece := await self._console.read_input()):
                return None
            *self._unread, self._unfinished = (self._unfinished + piece).split(b"\n")
        message: dict[str, Any] = json.loads(self._unread.pop(0))
        return message

    async def send(self, message: dict[str, Any]) -> None:
        await self._console.write_output(
            json.dumps(message, separators=(",", ":")).encode() + b"\n"
        )

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
            return await self._router(method, params if params is not None else {}, is_notification)
        except (HelixError, RequestError, ValidationError, ValueError) as error:
            if is_notification:
                log.info("a notification was not understood: %s", method[:80])
                return None
            raise _as_request_error(error) from error


def _as_request_error(error: Exception) -> RequestError:
    if isinstance(error, RequestError):
        return error
    if isinstance(error, ValidationError):
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]
        )
        return RequestError(-32602, f"These parameters are not valid. {wrong}")
    code = (
        -32602
        if isinstance(error, InvalidInput | ValueError)
        else -32002
        if isinstance(error, NotFound)
        else -32603
    )
    return RequestError(code, str(error))
