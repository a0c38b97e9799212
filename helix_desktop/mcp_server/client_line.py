"""Keeps an MCP client served while its workspace moves from one process to another.

The process that has the workspace open answers the client. That may be a window, another
command or this process, and it may end at any time. The client must not notice: the next
process gets the client's greeting again and the requests that were not answered. A request
that may have changed something is not repeated; the client gets an error that says so.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from helix_desktop.console import Console
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import has_more_values, object_at, value_at

# The most bytes of a message: 16 MB of stored content can double in size as JSON.
LONGEST = 32 << 20
MOST_VALUES = 500_000  # In a message. Parsed, many small ones take a hundred times their length.
GREETING_ID = "helix-greeting"
REQUEST_FAILED = -32603
MAYBE_DONE = (
    "The program that had this workspace open ended before it answered. Nothing that was stored is "
    "lost, but this call may have had its effect. Check before you repeat it."
)
# Asking these again changes nothing and costs nothing.
REPEATED_METHODS = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "completion/complete",
        "tasks/get",
        "tasks/list",
        "tasks/result",
    }
)
Message = dict[str, Any]
IsRepeatable = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request of the client that nobody has answered yet."""

    message: Message
    line: bytes


class ClientLine:
    """The console of an MCP server that outlives the process behind it.

    `tool_is_repeatable` says whether a tool can be called again without any effect.
    """

    def __init__(self, client: Console, tool_is_repeatable: IsRepeatable) -> None:
        self._client = client
        self._tool_is_repeatable = tool_is_repeatable
        self._unread: asyncio.Queue[bytes] = asyncio.Queue()
        self._unfinished_output = bytearray()
        self._waiting: dict[str, WaitingRequest] = {}
        self._greeting: WaitingRequest | None = None
        self._initialized = b""
        self._has_ended = False

    async def receive_from_client(self) -> None:
        """Reads the client's lines until it disconnects."""
        async for line in iterate_input_lines(self._client.read_input):
            self._remember_client_line(line)
            self._unread.put_nowait(line + b"\n")
        self._has_ended = True
        self._unread.put_nowait(b"")

    def _remember_client_line(self, line: bytes) -> None:
        """Notes the greeting and each request, for the next process if this one ends."""
        message = _parse_object(line)
        method = message.get("method")
        if method is None:  # An answer, or no JSON: the server answers that with an error.
            return
        if method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled":
            # Who cancels a request wants no answer from the next process either.
            self._waiting.pop(_key_of_request(value_at(message, "params", "requestId")), None)
        if "id" not in message:
            return
        request = WaitingRequest(message, line)
        if method == "initialize":
            self._greeting = request
        self._waiting[_key_of_request(message["id"])] = request

    async def read_input(self) -> bytes:
        return await self._unread.get()

    async def write_output(self, data: bytes) -> None:
        """Passes whole lines on to the client."""
        self._unfinished_output += data
        if b"\n" not in data:
            return
        lines = bytes(self._unfinished_output).split(b"\n")
        # What follows the last line end is the beginning of a line.
        self._unfinished_output = bytearray(lines.pop())
        for line in lines:
            message = _parse_object(line)
            if message.get("id") == GREETING_ID:
                continue  # The client had its answer from an earlier process.
            if "method" not in message:
                self._forget_answered_request(message)
            await self._client.write_output(line + b"\n")

    def _forget_answered_request(self, answer: Message) -> None:
        request = self._waiting.pop(_key_of_request(answer.get("id")), None)
        # A client of today's protocol falls back to a greeting if the server takes long, and goes
        # on without one where it is refused. The next process would take it for an older client.
        if request is not None and request is self._greeting and "error" in answer:
            self._greeting = None

    async def print_line(self, text: str) -> None:
        await self._client.print_line(text)

    async def print_error(self, sentence: str) -> None:
        await self._client.print_error(sentence)

    async def prepare_for_next_process(self) -> None:
        """Queues the greeting and the open requests, and refuses those that may have run."""
        self._unread = asyncio.Queue()
        self._unfinished_output.clear()

        # A greeting that is still unanswered is one of the open requests below.
        if self._greeting is not None and not self._is_waiting(self._greeting):
            greeting = self._greeting.message | {"id": GREETING_ID}
            self._unread.put_nowait(json.dumps(greeting).encode() + b"\n")
            if self._initialized:
                self._unread.put_nowait(self._initialized + b"\n")

        for key, request in list(self._waiting.items()):
            if self._can_be_repeated(request.message):
                self._unread.put_nowait(request.line + b"\n")
            else:
                del self._waiting[key]
                await self._refuse_request(request.message)
        if self._has_ended:
            self._unread.put_nowait(b"")

    def _is_waiting(self, request: WaitingRequest) -> bool:
        return self._waiting.get(_key_of_request(request.message["id"])) is request

    def _can_be_repeated(self, message: Message) -> bool:
        if message["method"] == "tools/call":
            tool_name = str(value_at(message, "params", "name"))
            return self._tool_is_repeatable(tool_name)
        return message["method"] in REPEATED_METHODS

    async def _refuse_request(self, message: Message) -> None:
        error = {"code": REQUEST_FAILED, "message": MAYBE_DONE}
        answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        await self._client.write_output(json.dumps(answer).encode() + b"\n")


async def iterate_input_lines(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """Yield whole lines. One that is too long, or has too many values, is yielded as a short
    invalid line, to get an error.
    """
    pieces: list[bytes] = []  # Of the line that has not ended yet.
    size = 0
    data = await read()
    while data:
        parts_of_lines = data.split(b"\n")
        # What follows the last line end is the beginning of a line.
        unfinished = parts_of_lines.pop()
        for last_part in parts_of_lines:
            pieces.append(last_part)
            size += len(last_part)
            line = b"".join(pieces)
            if size > LONGEST or has_more_values(line, MOST_VALUES):
                line = b"too long"
            pieces.clear()
            size = 0
            if line.strip():
                yield line

        size += len(unfinished)
        if size <= LONGEST:
            pieces.append(unfinished)
        else:
            # Only the size is kept of a line that is too long, and not its content.
            pieces.clear()
        data = await read()


def _parse_object(line: bytes) -> Message:
    """Parses a message. What is none is empty: the server says what is wrong with it."""
    try:
        return object_at(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def _key_of_request(message_id: Any) -> str:
    return json.dumps(message_id)
