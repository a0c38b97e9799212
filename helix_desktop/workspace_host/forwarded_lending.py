"""How requests to a lent provider cross the line: from the host to the client, which has the keys,
and the provider's answer back.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import HelixError, ModelFailed, ProviderUnreachable
from helix_desktop.providers.lent_providers import LentProvider, LentRequest, ProviderLender
from helix_desktop.workspace_host import host_wire
from helix_desktop.workspace_host.wire_errors import rebuild_error

log = logging.getLogger(__name__)
MOST_OPEN_STREAMS = 64
Send = Callable[[host_wire.WireMessage], Awaitable[None]]
AnswerPart = host_wire.StreamOpened | host_wire.StreamPiece | host_wire.StreamEnded
LENDER_FAILED = "The computer with the keys failed because of a bug. Details are in its log."
LENDER_GONE = "The connection to the computer with the keys broke off."


# --- At the host


class RemoteLender:
    """`ProviderLender` at the other end of the line."""

    def __init__(self, send: Send, dismiss: Callable[[], None]) -> None:
        self.computer = ""
        self.conversation = ""
        self.dismiss = dismiss
        self.providers: Sequence[LentProvider] = ()
        self._send = send
        self._numbers = itertools.count(1)
        self._parts_by_number: dict[int, asyncio.Queue[AnswerPart]] = {}
        self._has_ended = False

    def handle_client_message(self, part: AnswerPart) -> None:
        parts = self._parts_by_number.get(part.number)
        if parts is not None:  # Otherwise it crossed with our message that we need no more.
            parts.put_nowait(part)

    @asynccontextmanager
    async def open_lent_answer(self, request: LentRequest) -> AsyncIterator["ForwardedAnswer"]:
        if self._has_ended:
            raise ProviderUnreachable(LENDER_GONE)
        number = next(self._numbers)
        parts: asyncio.Queue[AnswerPart] = asyncio.Queue()
        self._parts_by_number[number] = parts
        answer: ForwardedAnswer | None = None
        try:
            await self._send_or_raise(host_wire.OpenStream(number, request))
            first = await parts.get()
            if isinstance(first, host_wire.StreamEnded):
                raise _error_of_lender(first)
            if isinstance(first, host_wire.StreamPiece):
                raise ProviderUnreachable(
                    "The computer with the keys sent an answer without a head."
                )
            answer = ForwardedAnswer(first, parts)
            yield answer
        finally:
            del self._parts_by_number[number]
            is_complete = answer is not None and answer.is_complete
            if not is_complete and not self._has_ended:
                await self._send_or_raise(host_wire.CloseStream(number))

    async def _send_or_raise(self, message: host_wire.WireMessage) -> None:
        try:
            await self._send(message)
        except ConnectionError as error:
            raise ProviderUnreachable(LENDER_GONE) from error

    def end_lending(self) -> None:
        self._has_ended = True
        for number, parts in self._parts_by_number.items():
            ended = host_wire.StreamEnded(number, ProviderUnreachable.__name__, LENDER_GONE)
            parts.put_nowait(ended)


class ForwardedAnswer:
    """A provider's answer as it comes from the lender. Its body is read once."""

    def __init__(self, head: host_wire.StreamOpened, parts: asyncio.Queue[AnswerPart]) -> None:
        self.status_code = head.status
        self.response_headers: Mapping[str, str] = dict(head.headers)
        self._parts = parts
        self.is_complete = False

    async def body_chunks(self) -> AsyncGenerator[bytes]:
        while True:
            part = await self._parts.get()
            if isinstance(part, host_wire.StreamEnded):
                break
            if isinstance(part, host_wire.StreamPiece):
                yield part.content
        self.is_complete = True
        if part.kind:
            raise _error_of_lender(part)


def _error_of_lender(ended: host_wire.StreamEnded) -> ModelFailed:
    """What the lender says went wrong, as an error of the model's connection."""
    error = rebuild_error(ended.kind, ended.what, ended.remedy)
    if isinstance(error, ModelFailed):
        return error
    return ModelFailed(error.what, remedy=error.remedy)


# --- At the client


class AnswersToHost:
    """Sends the host's requests through `lender`, and the answers back."""

    def __init__(self, lender: ProviderLender, send: Send, tasks: OwnedTasks) -> None:
        self._lender = lender
        self._send = send
        self._tasks = tasks
        self._running: dict[int, asyncio.Task[None]] = {}

    def handle_host_message(self, message: host_wire.OpenStream | host_wire.CloseStream) -> None:
        if isinstance(message, host_wire.CloseStream):
            running = self._running.pop(message.number, None)
            if running is not None:
                running.cancel()
            return
        if message.number in self._running or len(self._running) >= MOST_OPEN_STREAMS:
            raise host_wire.BrokenStream("The other side asks for too many answers at once.")
        work = self._forward_answer(message.number, message.request)
        self._running[message.number] = self._tasks.spawn_task(work, name="ask a lent provider")

    def stop_answering(self) -> None:
        """The line has ended, so nobody reads the answers, which cost money."""
        for running in self._running.values():
            running.cancel()

    async def _forward_answer(self, number: int, request: LentRequest) -> None:
        ended = host_wire.StreamEnded(number)
        try:
            await self._forward_until_complete(number, request)
        except HelixError as error:
            ended = host_wire.StreamEnded(number, type(error).__name__, error.what, error.remedy)
        except Exception:  # Whatever the other side has asked for, it must be told.
            log.exception("a request of another computer could not be sent")
            ended = host_wire.StreamEnded(number, ModelFailed.__name__, LENDER_FAILED)
        finally:
            self._running.pop(number, None)
        await self._send(ended)

    async def _forward_until_complete(self, number: int, request: LentRequest) -> None:
        """Sends the head of the provider's answer, and then its body as it comes."""
        async with self._lender.open_lent_answer(request) as answer:
            headers = tuple(answer.response_headers.items())
            head = host_wire.StreamOpened(number, answer.status_code, headers)
            await self._send(head)
            async with aclosing(answer.body_chunks()) as chunks:
                async for chunk in chunks:
                    await self._send(host_wire.StreamPiece(number, chunk))
