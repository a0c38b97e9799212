"""A foreign agent's process, and the messages to and from it.

The SDK (`acp.connection`) numbers requests and matches answers to them. Its own
transport reads lines of any length and handles each notification in a separate task.
This one handles each update before it reads the next message, so a flood of updates
waits in the pipe, and the answer to a prompt comes after everything that the agent has
said.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from acp import RequestError
from acp.connection import Connection

from helix_desktop.acp_client.acp_agents import AcpAgent, find_sign_in_command
from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.concurrency import wait_with_limit
from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.errors import HelixError, ModelFailed, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import has_more_values, object_at, objects_at, parse_object, text_at
from helix_desktop.processes.folders_of_agents import find_folder_without_agents
from helix_desktop.processes.running_command import RunningCommand
from helix_desktop.processes.starter import PIPE, CommandAuthor, ProcessLaunch, ProcessPlace
from helix_desktop.tools.workspace_tools import WorkspaceTools

LONGEST_MESSAGE_BYTES = 32 << 20  # A longer message, in bytes, ends the connection.
MOST_VALUES = 200_000  # A message with more values ends it, too.
# The maximum size in bytes of the agent's unanswered requests, and of the answers that
# it has not read.
MOST_WAITING_BYTES = 64 << 20
START_SECONDS = 120.0  # Some agents are downloaded when they are started.
_PIECE_BYTES = 1 << 16
_QUOTED_ERROR_CHARACTERS = (
    300  # An error quotes this many characters from the end of the agent's error output.
)
_END_SECONDS = 1.0  # After an agent ends, its last error output has this many seconds to arrive.
_CLIENT_CAPABILITIES = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}},
    "session": {"configOptions": {"boolean": {}}},
}
# Error codes of the Agent Client Protocol.
NOT_SIGNED_IN = -32000
MISSING_FILE = -32002
INTERNAL_ERROR = -32603
# They prefer a package of the folder in which they start.
_PACKAGE_RUNNERS = frozenset(["npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "uv"])
# The SDK does not check the types of these fields of a message.
_TRUSTED_TYPES = (("id", str | int | None), ("method", str | None), ("error", dict | None))


@dataclass(frozen=True, slots=True)
class AgentHandlers:
    """`answer_request` takes a method and its parameters, `handle_update` the session of an update,
    the update and its size in bytes. `count_request` takes a request's size in bytes, and raises
    HelixError if the agent has sent too much.
    """

    answer_request: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
    handle_update: Callable[[str, dict[str, Any], int], Awaitable[None]]
    count_request: Callable[[int], None]


def _runs_what_its_folder_has(argv: Sequence[str]) -> bool:
    """Whether a command would run a package or a module of the folder in which it starts instead of
    the one that it names.
    """
    program = Path(argv[0]).stem
    runs_module = program.startswith("py") and "-m" in argv[1:2]
    return program in _PACKAGE_RUNNERS or runs_module


def _has_trusted_types(message: Mapping[str, Any]) -> bool:
    for name, kind in _TRUSTED_TYPES:
        if not isinstance(message.get(name), kind):
            return False
    return True


class AgentRefused(ModelFailed):
    """The agent answered a request with an error."""


class AgentConnection:
    """A connection to an agent. `last_heard` is when it last sent something,
    `abilities` is what it said it can do.
    """

    def __init__(
        self, name: str, command: RunningCommand, spawn: TaskSpawner, handlers: AgentHandlers
    ) -> None:
        self.last_heard = asyncio.get_running_loop().time()
        self.abilities: dict[str, Any] = {}
        self._name = name
        self._command = command
        self._handlers = handlers
        self._lines = deque[bytes]()
        self._unfinished_line: list[bytes] = []
        # The size of each unanswered request from the agent, by the request's id.
        self._open_requests: dict[str | int | None, int] = {}
        self._end_reason = ""  # Why the connection has ended; empty while the connection works.
        self._sign_in_methods = ""
        self._end_of_error_output = b""
        self._reading_error_output = spawn(
            self._drain_standard_error(), name=f"complaints of {name}"
        )
        self._sdk_connection = Connection(self._answer_agent, cast(Any, self))

    @classmethod
    async def start_agent(
        cls,
        agent: AcpAgent,
        environment: Mapping[str, str],
        kit: WorkspaceTools,
        spawn: TaskSpawner,
        handlers: AgentHandlers,
    ) -> "AgentConnection":
        """Starts the agent in the workspace's folder, of which it also hears over the protocol. No
        process that it starts outlives it or this program.
        """
        folder = None
        if kit.resources.roots.folders:
            folder = kit.resources.roots.folders[0]
        if _runs_what_its_folder_has(agent.argv):
            folder = find_folder_without_agents()
        launch = ProcessLaunch(
            CommandAuthor.USER, agent.argv, folder, environment, place=ProcessPlace.WATCHED
        )
        wrap = partial(kit.sandbox.wrap_command, agent.argv, network=True, outside=True)
        command = await RunningCommand.start_in_jail(launch, wrap, stdin=PIPE, stderr=PIPE)
        started = cls(agent.name, command, spawn, handlers)
        try:
            await started._request_abilities()
        except BaseException:
            await finish_even_if_cancelled(started.end_agent_process())
            raise
        return started

    async def _request_abilities(self) -> None:
        client_info = {"name": "helix-desktop", "title": "Helix Desktop", "version": "1"}
        values = {
            "protocolVersion": 1,
            "clientCapabilities": _CLIENT_CAPABILITIES,
            "clientInfo": client_info,
        }
        answer = await self.ask_agent("initialize", values, START_SECONDS)
        self.abilities = object_at(answer, "agentCapabilities")
        names: list[str] = []
        for method in objects_at(answer, "authMethods"):
            names.append(text_at(method, "name"))
        joined_names = ", ".join(names)
        self._sign_in_methods = joined_names[:_QUOTED_ERROR_CHARACTERS]

    @property
    def has_live_process(self) -> bool:
        return not self._end_reason and self._command.process.returncode is None

    async def ask_agent(
        self, method: str, params: dict[str, Any], seconds: float | None = None
    ) -> dict[str, Any]:
        """Sends a request and returns the agent's answer. ModelFailed if the agent ends
        or does not answer in time.
        """
        try:
            answer = await wait_with_limit(
                self._sdk_connection.send_request(method, params), seconds
            )
        except TimeoutError as error:
            raise ModelFailed(
                f"{self._name} did not respond to {method} within {seconds:.0f} s."
            ) from error
        except ConnectionError as error:
            raise ModelFailed(await self._describe_why_agent_ended()) from error
        except RequestError as error:
            details = text_at(error.data, "details")
            words = " ".join(f"{error} {details}".split())[:500].rstrip(".")
            sentence = f"{self._name} reported an error: {words}."
            if error.code == NOT_SIGNED_IN:
                sentence += f" Sign in with the agent's own program first: {self._sign_in_methods}."
                sign_in_command = find_sign_in_command(self._name)
                if sign_in_command:
                    sentence += f" To sign in, run this in a terminal: {sign_in_command}."
            raise AgentRefused(sentence) from error
        return object_at(answer)

    async def notify_agent(self, method: str, params: dict[str, Any]) -> None:
        with suppress(ConnectionError):
            await self._sdk_connection.send_notification(method, params)

    async def _describe_why_agent_ended(self) -> str:
        """Says why the agent stopped working, with the end of its error output."""
        await asyncio.wait([self._reading_error_output], timeout=_END_SECONDS)
        exit_code = self._command.process.returncode
        if self._end_reason:
            reason = self._end_reason
        elif exit_code is None:
            reason = "it closed the connection"
        else:
            reason = f"it ended with exit code {exit_code}"
        sentence = f"{self._name} stopped working: {reason}."

        error_output = self._end_of_error_output.decode("utf-8", "replace")
        # Line breaks and indentation become single spaces.
        error_words = " ".join(error_output.split())
        if error_words:
            sentence += f" It said: {error_words[-_QUOTED_ERROR_CHARACTERS:]}"
        return sentence

    async def _drain_standard_error(self) -> None:
        """Reads all error output, so that the agent never blocks, and keeps the end."""
        error_output = cast(asyncio.StreamReader, self._command.process.stderr)
        piece = await error_output.read(_PIECE_BYTES)
        while piece:
            self._end_of_error_output = (self._end_of_error_output + piece)[
                -4 * _QUOTED_ERROR_CHARACTERS :
            ]
            piece = await error_output.read(_PIECE_BYTES)
        await self._command.process.wait()

    def kill_with_reason(self, why: str) -> None:
        self._end_reason = self._end_reason or why
        self._command.kill_process_tree()

    async def end_agent_process(self) -> None:
        """Ends the agent and all that it started, in less than a second."""
        self.kill_with_reason("it was ended")
        await self._sdk_connection.close()
        await self._command.kill_and_wait()

    async def _answer_agent(
        self,
        method: str,
        params: Any,
        is_notification: bool,  # noqa: FBT001 -- the SDK calls it so
    ) -> dict[str, Any] | None:
        """Lets our side answer a request. The SDK sends errors back to the agent."""
        if is_notification:
            return None
        try:
            return await self._handlers.answer_request(method, object_at(params))
        except NotFound as error:
            # Without this code, Qwen Code would not create a new file.
            raise RequestError(MISSING_FILE, str(error)) from error
        except (HelixError, OSError, ValueError) as error:
            raise RequestError(INTERNAL_ERROR, str(error)) from error

    # --- The methods that the SDK calls to send and receive messages

    async def receive(self) -> dict[str, Any] | None:
        """Returns the next message other than an update, or None at the end. Updates
        are handled meanwhile.
        """
        while True:
            line = await self._read_line()
            if line is None:
                return None
            self.last_heard = asyncio.get_running_loop().time()
            if has_more_values(line, MOST_VALUES):
                self.kill_with_reason(f"it sent a message of more than {MOST_VALUES:,} values")
                return None
            message = parse_object(line)
            if message is None or not _has_trusted_types(message):
                continue
            size = len(line)
            if message.get("method") != "session/update":
                self._add_open_request_or_kill(message, size)
                return cast(dict[str, Any], message)
            await self._handle_update_or_kill(message, size)

    async def _handle_update_or_kill(self, message: Mapping[str, Any], size: int) -> None:
        session = text_at(message, "params", "sessionId")
        update = object_at(message, "params", "update")
        handling = self._handlers.handle_update(session, update, size)
        try:
            await asyncio.shield(handling)
        except HelixError as error:  # The update was too large or could not be recorded.
            self.kill_with_reason(str(error))

    def _add_open_request_or_kill(self, message: dict[str, Any], size: int) -> None:
        """Requests are answered concurrently, so the agent is killed before too many wait."""
        is_request = "method" in message and "id" in message
        if not is_request:
            return
        if message["id"] in self._open_requests:
            self.kill_with_reason("it sent two requests with the same ID")
        try:
            self._handlers.count_request(size)
        except HelixError as error:
            self.kill_with_reason(str(error))
        self._open_requests[message["id"]] = max(size, _PIECE_BYTES)
        if sum(self._open_requests.values()) > MOST_WAITING_BYTES:
            self.kill_with_reason("it sent too many requests at once")

    async def _read_line(self) -> bytes | None:
        output = cast(asyncio.StreamReader, self._command.process.stdout)
        while not self._lines:
            piece = await output.read(_PIECE_BYTES)
            await asyncio.sleep(0)  # Lets other tasks run even if the agent sends without a pause.
            if not piece or self._end_reason:
                return None
            self._split_into_lines(piece)
        return self._lines.popleft()

    def _split_into_lines(self, piece: bytes) -> None:
        """Adds what is a whole line now, and keeps the rest until its end comes."""
        parts = piece.split(b"\n")
        self._unfinished_line.append(parts[0])
        if len(parts) > 1:
            self._lines.append(b"".join(self._unfinished_line))
            self._lines.extend(parts[1:-1])
            self._unfinished_line = [parts[-1]]

        # The sum is computed only where so many pieces could exceed the limit.
        if len(self._unfinished_line) <= LONGEST_MESSAGE_BYTES // _PIECE_BYTES:
            return
        if sum(map(len, self._unfinished_line)) > LONGEST_MESSAGE_BYTES:
            self.kill_with_reason(f"it sent a message of more than {LONGEST_MESSAGE_BYTES:,} bytes")

    async def send(self, message: dict[str, Any]) -> None:
        """Writes a message to the agent's input. Raises ConnectionError for a request
        that cannot be sent.
        """
        stdin = cast(asyncio.StreamWriter, self._command.process.stdin)
        try:
            if self._end_reason:
                raise OSError(self._end_reason)  # noqa: TRY301 -- as from a pipe that is closed
            stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            if stdin.transport.get_write_buffer_size() > MOST_WAITING_BYTES:
                self.kill_with_reason("it did not read the data it requested")
            await stdin.drain()
        except (OSError, RuntimeError) as error:
            if "method" in message:  # Nobody waits for a lost answer, but for one to a request.
                raise ConnectionError(str(error)) from error
        finally:
            if "method" not in message:
                self._open_requests.pop(message["id"], None)

    async def close(self) -> None:
        """Does nothing, because `end_agent_process` ends the process."""
