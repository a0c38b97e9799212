"""Passes each of an editor's messages to the workspace of its folder or session.

A workspace is open in this process or in another one, such as the window, and may move
between them. If its process ends, the editor gets an error for each open request, and
its next message reaches the workspace's new process.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop import concurrency, running_instance
from helix_desktop.acp_agent.agent_description import build_initialize_result
from helix_desktop.errors import HelixError, InvalidInput, NotFound
from helix_desktop.json_values import list_at, object_at, value_at
from helix_desktop.running_instance import LATER

LONGEST_MESSAGE = 64 << 20  # Longer messages from the editor, in bytes, are dropped.
MOST_WAITING = 1_000  # The most requests from the editor that may await an answer in one workspace.
MOST_UNSENT = 10_000  # Once this many messages wait to be read by the editor, senders wait, too.
RETRY_SECONDS = 0.1
QUIT_SECONDS = 1.5
log = logging.getLogger(__name__)
Message = dict[str, Any]
OpenWorkspacePipe = Callable[[str, "WorkspacePipe"], Awaitable[int]]


class WorkspacePipe:
    """The console of the agent of one workspace: what the editor sends it, and its answers."""

    def __init__(
        self,
        number: int,
        workspace: str,
        pass_on: "Callable[[WorkspacePipe, Message], Awaitable[None]]",
    ) -> None:
        self.number = number
        self.workspace = workspace
        self.waiting: dict[Any, Message] = {}  # Requests from the editor that are not answered yet.
        self._pass_on = pass_on
        self._unread: asyncio.Queue[bytes] = asyncio.Queue()
        self._unfinished = bytearray()

    def restart_with_greeting(self, greeting: Message) -> None:
        """Prepares for the next process: discards what the last one had not read, and
        repeats the editor's greeting.
        """
        self._unread, self._unfinished = asyncio.Queue(), bytearray()
        self.send_message({**greeting, "id": "greeting"})

    def send_message(self, message: Message) -> None:
        self._unread.put_nowait(encode_message(message))

    def send_end_of_input(self) -> None:
        self._unread.put_nowait(b"")

    async def read_input(self) -> bytes:
        return await self._unread.get()

    async def write_output(self, data: bytes) -> None:
        *lines, rest = (bytes(self._unfinished) + data).split(b"\n")
        self._unfinished = bytearray(rest)
        for line in lines:
            await self._pass_on(self, json.loads(line))

    async def print_line(self, text: str) -> None:
        log.info("%s", text)

    async def print_error(self, sentence: str) -> None:
        log.warning("%s", sentence)


class WorkspaceSwitch:
    """`find_workspace` returns the id of a folder's workspace. `write` sends bytes to
    the editor, and may block.
    """

    def __init__(
        self,
        open_line: OpenWorkspacePipe,
        find_workspace: Callable[[Path], str],
        write: Callable[[bytes], None],
    ) -> None:
        self._open_line = open_line
        self._find_workspace = find_workspace
        self._write = write
        self._lines: dict[str, WorkspacePipe] = {}
        self._opened_pipes = 0
        # A session outlives the process that has its workspace open.
        self._workspaces_by_session: dict[str, str] = {}
        # Workspaces' requests to the editor, by the id we gave them: the sender, and
        # the id it had given.
        self._asked: dict[str, tuple[WorkspacePipe, Any]] = {}
        self._greeting: Message = {
            "jsonrpc": "2.0",
            "method": "initialize",
            "params": {"protocolVersion": 1},
        }
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue(MOST_UNSENT)
        self._tasks = concurrency.OwnedTasks("agent for editors")

    async def run_until_input_ends(self, read: Callable[[], Awaitable[bytes]]) -> None:
        """Serves the editor until its input ends, and then stops everything within two seconds."""
        writing = self._tasks.spawn_task(
            self._send_waiting_bytes_until_closed(), name="write to the editor"
        )
        unfinished = bytearray()
        while not writing.done() and (piece := await read()):
            unfinished += piece
            if b"\n" in piece:
                *lines, rest = bytes(unfinished).split(b"\n")
                unfinished = bytearray(rest)
                for each in lines:
                    await self._handle_input_line(each)
            elif len(unfinished) > LONGEST_MESSAGE:
                unfinished = bytearray(b"{")  # Drops the line: its rest is no message behind a "{".
        for line in self._lines.values():
            line.send_end_of_input()
        with suppress(TimeoutError):  # The rest ends as in a crash, which loses nothing.
            async with asyncio.timeout(QUIT_SECONDS):
                await self._tasks.aclose(limit=QUIT_SECONDS)

    async def _handle_input_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = decode_message(line)
        except InvalidInput as error:
            await self._send(build_error_response(None, -32700, error.what))
            return
        try:
            await self._route_message(message)
        except HelixError as error:
            if "id" in message and "method" in message:
                await self._send(build_error_response(message["id"], -32602, str(error)))

    async def _route_message(self, message: Message) -> None:
        method, asks = message.get("method"), "id" in message
        if method is None:
            line, own = self._asked.pop(str(message["id"]), (None, None))
            if line is not None:  # An answer without a request is ignored.
                line.send_message({**message, "id": own})
        elif method == "initialize" and asks:
            self._greeting = message
            await self._send(
                {"jsonrpc": "2.0", "id": message["id"], "result": build_initialize_result()}
            )
        elif method == "authenticate" and asks:
            await self._send({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        elif asks and not method.startswith("session/"):
            await self._send(
                build_error_response(message["id"], -32601, f"Method not found: {method[:80]}")
            )
        else:
            line = await self._find_or_open_pipe(message)
            if asks:
                if len(line.waiting) >= MOST_WAITING:
                    raise InvalidInput("Too many requests are waiting for an answer.")
                line.waiting[_key_of_id(message["id"])] = message
            line.send_message(message)

    async def _find_or_open_pipe(self, message: Message) -> WorkspacePipe:
        params = object_at(message, "params")
        workspace = self._workspaces_by_session.get(str(params.get("sessionId")))
        if workspace is None:
            workspace = await self._find_workspace_of_folder(message["method"], params.get("cwd"))
        if workspace not in self._lines:
            self._opened_pipes += 1
            line = WorkspacePipe(self._opened_pipes, workspace, self._handle_workspace_message)
            self._lines[workspace] = line
            line.restart_with_greeting(self._greeting)
            self._tasks.spawn_task(self._run_pipe_until_done(line), name="workspace of an editor")
        return self._lines[workspace]

    async def _find_workspace_of_folder(self, method: str, named_folder: Any) -> str:
        if not named_folder and method != "session/list":
            raise NotFound(f"{method[:80]} names no folder and no session of this editor.")
        folder = Path(str(named_folder or Path.cwd()))
        if not folder.is_absolute():
            raise InvalidInput(f"{folder} is not an absolute path.")
        try:
            return await asyncio.to_thread(self._find_workspace, folder)
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"{str(folder)[:200]!r} is not a folder that can be opened."
            ) from error

    async def _run_pipe_until_done(self, pipe: WorkspacePipe) -> None:
        """Serves a workspace until its work is done, even if another process opens the
        workspace meanwhile.
        """
        while True:
            said = "The workspace moved to another window of this program. Send your message again."
            try:
                code = await self._open_line(pipe.workspace, pipe)
            except HelixError as error:
                code, said = 1, str(error)
            requests = list(pipe.waiting.values())
            pipe.waiting.clear()
            if code == 0:
                return
            pipe.restart_with_greeting(self._greeting)
            for request in requests:
                await self._send(build_error_response(request["id"], -32603, said))
            if not requests and code != LATER:
                # The next message of one of its sessions opens the workspace again.
                self._lines.pop(pipe.workspace, None)
                return
            await asyncio.sleep(
                running_instance.GIVEN_WAY_SECONDS if code == LATER else RETRY_SECONDS
            )

    async def _handle_workspace_message(self, pipe: WorkspacePipe, message: Message) -> None:
        """Passes on an answer or a request of a workspace. A request gets an id that no
        other workspace uses.
        """
        if "method" in message:
            if "id" in message:
                known = f"{pipe.number}:{json.dumps(message['id'])}"
                self._asked[known] = pipe, message["id"]
                message = {**message, "id": known}
            await self._send(message)
        elif message.get("id") != "greeting":
            request = pipe.waiting.pop(_key_of_id(message.get("id")), None)
            asked = value_at(request, "params") if "result" in message else None
            for each in (message.get("result"), asked, *list_at(message, "result", "sessions")):
                if isinstance(session := value_at(each, "sessionId"), str):
                    self._workspaces_by_session[session] = pipe.workspace
            await self._send(message)

    async def _send(self, message: Message) -> None:
        await self._unsent.put(encode_message(message))

    async def _send_waiting_bytes_until_closed(self) -> None:
        while True:
            pieces = [await self._unsent.get()]
            while not self._unsent.empty():
                pieces.append(self._unsent.get_nowait())
            try:
                await concurrency.run_on_detached_thread(
                    partial(self._write, b"".join(pieces)), name="standard output"
                )
            except OSError:
                return  # The editor has closed the pipe, so nothing more can be sent.


def decode_message(line: bytes) -> Message:
    """Parses one message. InvalidInput if the line is not a message."""
    try:
        found = json.loads(line) if len(line) <= LONGEST_MESSAGE else None
    except (ValueError, RecursionError) as error:
        raise InvalidInput("This line is not valid JSON.") from error
    fields = object_at(found)
    if not isinstance(fields.get("method", ""), str) or not {"method", "id"} & set(fields):
        raise InvalidInput("This line is not a message, or is too long.")
    return fields


def encode_message(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def build_error_response(request_id: Any, code: int, sentence: str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": sentence}}


def _key_of_id(message_id: Any) -> str:
    return json.dumps(message_id)
