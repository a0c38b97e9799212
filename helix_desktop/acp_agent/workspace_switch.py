"""Passes each of an editor's messages to the workspace of its folder or session.

A workspace is open in this process or in another one, such as the window, and may move
between them. If its process ends, the editor gets an error for each open request, and
its next message reaches the workspace's new process.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop import concurrency, running_instance
from helix_desktop.acp_agent.agent_description import build_initialize_result
from helix_desktop.errors import HelixError, InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import has_more_values, list_at, object_at, text_at, value_at
from helix_desktop.running_instance import LATER

LONGEST_MESSAGE = 64 << 20  # Longer messages from the editor, in bytes, are dropped.
MOST_VALUES = (
    200_000  # In one message. It is parsed again in the window that has the workspace open.
)
DEEPEST_MESSAGE = 200  # Values within values. Python reads about 980, and writes fewer.
MOST_WAITING = 1_000  # The most requests from the editor that may await an answer in one workspace.
MOST_UNSENT = 10_000  # Once this many messages wait to be read by the editor, senders wait, too.
# The id of a greeting that we repeat. No request of an editor has it by chance.
GREETING_ID = f"greeting {secrets.token_hex(8)}"
RETRY_SECONDS = 0.1
QUIT_SECONDS = 1.5
# Codes of JSON-RPC.
PARSE_ERROR = -32700
METHOD_NOT_FOUND = -32601
INVALID_PARAMETERS = -32602
INTERNAL_ERROR = -32603
NO_ANSWER = "The editor answered with an error."
NO_MESSAGE = "This line is not a message, or is too long."
MOVED = "The workspace moved to another window of this program. Send your message again."
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
        self._unread = asyncio.Queue()
        self._unfinished = bytearray()
        self.send_message(greeting | {"id": GREETING_ID})

    def send_message(self, message: Message) -> None:
        self._unread.put_nowait(encode_message(message))

    def send_end_of_input(self) -> None:
        self._unread.put_nowait(b"")

    async def read_input(self) -> bytes:
        return await self._unread.get()

    async def write_output(self, data: bytes) -> None:
        self._unfinished += data
        lines = bytes(self._unfinished).split(b"\n")
        # What follows the last line end is the beginning of a line.
        self._unfinished = bytearray(lines.pop())
        for line in lines:
            await self._pass_on(self, json.loads(line))

    async def print_line(self, text: str) -> None:
        log.info("%s", text)

    async def print_error(self, sentence: str) -> None:
        log.warning("%s", sentence)


@dataclass(frozen=True, slots=True)
class WorkspaceRequest:
    """A request of a workspace to the editor. `own_id` is the workspace's own id for it."""

    pipe: WorkspacePipe
    own_id: Any


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
        self._pipes: dict[str, WorkspacePipe] = {}
        self._started_processes = 0
        # A session outlives the process that has its workspace open.
        self._workspaces_by_session: dict[str, str] = {}
        # By the id that we gave them, as two workspaces may use the same.
        self._requests_to_editor: dict[str, WorkspaceRequest] = {}
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
        unfinished_line = bytearray()
        while not writing.done():
            piece = await read()
            if not piece:
                break
            unfinished_line += piece
            if b"\n" in piece:
                lines = bytes(unfinished_line).split(b"\n")
                unfinished_line = bytearray(lines.pop())
                await self._handle_input_lines(lines)
            elif len(unfinished_line) > LONGEST_MESSAGE:
                # Drops the line: its rest is no message behind a "{".
                unfinished_line = bytearray(b"{")
        for pipe in self._pipes.values():
            pipe.send_end_of_input()
        with suppress(TimeoutError):  # The rest ends as in a crash, which loses nothing.
            async with asyncio.timeout(QUIT_SECONDS):
                await self._tasks.aclose(limit=QUIT_SECONDS)

    async def _handle_input_lines(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if line.strip():
                await self._handle_input_line(line)

    async def _handle_input_line(self, line: bytes) -> None:
        try:
            message = decode_message(line)
        except InvalidInput as error:
            response = build_error_response(None, PARSE_ERROR, error.what)
            await self._send(response)
            return
        try:
            await self._route_message(message)
        except HelixError as error:
            is_request = "id" in message and "method" in message
            if is_request:
                response = build_error_response(message["id"], INVALID_PARAMETERS, str(error))
                await self._send(response)

    async def _route_message(self, message: Message) -> None:
        """Answers what concerns no workspace, and passes everything else to a workspace."""
        method = message.get("method")
        if method is None:
            self._pass_on_answer(message)
            return
        if "id" not in message:
            pipe = await self._find_or_open_pipe(message)
            pipe.send_message(message)
            return
        if method == "initialize":
            self._greeting = message
            await self._send_result(message, build_initialize_result())
        elif method == "authenticate":
            await self._send_result(message, {})
        elif method.startswith("session/"):
            await self._pass_on_request(message)
        else:
            sentence = f"Method not found: {method[:80]}"
            await self._send(build_error_response(message["id"], METHOD_NOT_FOUND, sentence))

    def _pass_on_answer(self, answer: Message) -> None:
        """Gives the editor's answer to the workspace that asked. One without a request is ignored."""
        request = self._requests_to_editor.pop(str(answer["id"]), None)
        if request is None:
            return
        outcome = extract_outcome(answer)
        request.pipe.send_message({"jsonrpc": "2.0", "id": request.own_id} | outcome)

    async def _pass_on_request(self, request: Message) -> None:
        pipe = await self._find_or_open_pipe(request)
        if len(pipe.waiting) >= MOST_WAITING:
            raise InvalidInput("Too many requests are waiting for an answer.")
        pipe.waiting[_key_of_id(request["id"])] = request
        pipe.send_message(request)

    async def _find_or_open_pipe(self, message: Message) -> WorkspacePipe:
        """Returns the pipe to the workspace of the message's session, or of its folder."""
        params = object_at(message, "params")
        session = str(params.get("sessionId"))
        workspace = self._workspaces_by_session.get(session)
        if workspace is None:
            workspace = await self._find_workspace_of_folder(message["method"], params.get("cwd"))
        pipe = self._pipes.get(workspace)
        if pipe is not None:
            return pipe

        self._started_processes += 1
        new_pipe = WorkspacePipe(self._started_processes, workspace, self._handle_workspace_message)
        self._pipes[workspace] = new_pipe
        new_pipe.restart_with_greeting(self._greeting)
        self._tasks.spawn_task(self._run_pipe_until_done(new_pipe), name="workspace of an editor")
        return new_pipe

    async def _find_workspace_of_folder(self, method: str, named_folder: Any) -> str:
        """Finds the workspace of the folder that a message names. A list of sessions without a
        folder is of the one that the editor started this program in.
        """
        if not named_folder and method != "session/list":
            raise NotFound(f"{method[:80]} names no folder and no session of this editor.")
        folder = Path(str(named_folder or Path.cwd()))
        quoted_folder = repr(str(folder)[:200])
        if not folder.is_absolute():
            raise InvalidInput(f"{quoted_folder} is not an absolute path.")
        try:
            return await asyncio.to_thread(self._find_workspace, folder)
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links form a circle.
            raise InvalidInput(f"{quoted_folder} is not a folder that can be opened.") from error

    async def _run_pipe_until_done(self, pipe: WorkspacePipe) -> None:
        """Serves a workspace until its work is done, even if another process opens the
        workspace meanwhile.
        """
        while True:
            sentence = MOVED
            try:
                exit_code = await self._open_line(pipe.workspace, pipe)
            except HelixError as error:
                exit_code = 1
                sentence = str(error)
            unanswered = list(pipe.waiting.values())
            pipe.waiting.clear()
            if exit_code == 0:
                return

            self._forget_requests_of_process(pipe)
            # The greeting is queued first, so that the next process gets it before all else.
            pipe.restart_with_greeting(self._greeting)
            for request in unanswered:
                await self._send(build_error_response(request["id"], INTERNAL_ERROR, sentence))
            if exit_code == LATER:
                await asyncio.sleep(running_instance.GIVEN_WAY_SECONDS)
            elif unanswered:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                # The next message of one of its sessions opens the workspace again.
                self._pipes.pop(pipe.workspace, None)
                return

    def _forget_requests_of_process(self, pipe: WorkspacePipe) -> None:
        """A late answer to a process that has ended must not answer a question of the next one,
        which counts its requests from the beginning.
        """
        for id_for_editor, request in list(self._requests_to_editor.items()):
            if request.pipe is pipe:
                del self._requests_to_editor[id_for_editor]
        self._started_processes += 1
        pipe.number = self._started_processes

    async def _handle_workspace_message(self, pipe: WorkspacePipe, message: Message) -> None:
        """Passes on an answer or a request of a workspace to the editor."""
        if "method" not in message:
            await self._handle_workspace_answer(pipe, message)
            return
        if "id" not in message:
            await self._send(message)
            return
        # No other workspace uses this id.
        id_for_editor = f"{pipe.number}:{json.dumps(message['id'])}"
        self._requests_to_editor[id_for_editor] = WorkspaceRequest(pipe, message["id"])
        await self._send(message | {"id": id_for_editor})

    async def _handle_workspace_answer(self, pipe: WorkspacePipe, answer: Message) -> None:
        answer_id = answer.get("id")
        if answer_id == GREETING_ID:
            return  # The editor had its answer from us.
        request = pipe.waiting.pop(_key_of_id(answer_id), None)
        if "result" in answer:
            self._remember_sessions(pipe, request, answer["result"])
        await self._send(answer)

    def _remember_sessions(self, pipe: WorkspacePipe, request: Message | None, result: Any) -> None:
        """Notes to which workspace the sessions belong that a request or its result names."""
        may_name_session = [result, value_at(request, "params")]
        may_name_session += list_at(result, "sessions")
        for value in may_name_session:
            session = value_at(value, "sessionId")
            if isinstance(session, str):
                self._workspaces_by_session[session] = pipe.workspace

    async def _send_result(self, request: Message, result: Any) -> None:
        await self._send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def _send(self, message: Message) -> None:
        await self._unsent.put(encode_message(message))

    async def _send_waiting_bytes_until_closed(self) -> None:
        while True:
            # What waits already is written at once.
            pieces = [await self._unsent.get()]
            while not self._unsent.empty():
                pieces.append(self._unsent.get_nowait())
            write_pieces = partial(self._write, b"".join(pieces))
            try:
                await concurrency.run_on_detached_thread(write_pieces, name="standard output")
            except OSError:
                return  # The editor has closed the pipe, so nothing more can be sent.


def decode_message(line: bytes) -> Message:
    """Parses one message. InvalidInput if the line is not a message."""
    if len(line) > LONGEST_MESSAGE or has_more_values(line, MOST_VALUES):
        raise InvalidInput(NO_MESSAGE)
    try:
        fields = object_at(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise InvalidInput("This line is not valid JSON.") from error
    if _is_nested_too_deeply(line, fields):
        raise InvalidInput(NO_MESSAGE)
    is_message = "method" in fields or "id" in fields
    if not is_message or not isinstance(fields.get("method", ""), str):
        raise InvalidInput(NO_MESSAGE)
    return fields


def _is_nested_too_deeply(line: bytes, fields: Message) -> bool:
    """Whether the message could be read here, but perhaps not be written, or read elsewhere."""
    opening_brackets = line.count(b"[") + line.count(b"{")
    if opening_brackets <= DEEPEST_MESSAGE:
        return False
    level: list[Any] = [fields]
    for _ in range(DEEPEST_MESSAGE):
        level = _list_values_within(level)
    return bool(level)


def _list_values_within(level: Sequence[Any]) -> list[Any]:
    """Returns the values of all objects and lists among these, one level deeper."""
    values_within: list[Any] = []
    for value in level:
        if isinstance(value, dict):
            values_within.extend(value.values())
        elif isinstance(value, list):
            values_within.extend(value)
    return values_within


def extract_outcome(answer: Message) -> Message:
    """The result or the error of an editor's answer. An answer with an error is no result, whatever
    else is in it. The library that reads it expects errors in the protocol's form.
    """
    error = answer.get("error")
    if error is None and "result" in answer:
        return {"result": answer["result"]}
    code = value_at(error, "code")
    if not isinstance(code, int):
        code = INTERNAL_ERROR
    sentence = text_at(error, "message") or NO_ANSWER
    return {"error": {"code": code, "message": sentence}}


def encode_message(message: Message) -> bytes:
    text = json.dumps(message, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def build_error_response(request_id: Any, code: int, sentence: str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": sentence}}


def _key_of_id(message_id: Any) -> str:
    return json.dumps(message_id)
