"""What an editor may send that is no message, and workspaces that move between processes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import running_instance
from helix_desktop.acp_agent import workspace_switch
from helix_desktop.acp_agent.workspace_switch import WorkspacePipe, WorkspaceSwitch
from helix_desktop.errors import HelixError, InvalidInput, OwnerEnded

Serve = Callable[[str, WorkspacePipe], Awaitable[int]]


class SwitchedEditor:
    """The editor's end of a switch."""

    def __init__(self, serve: Serve) -> None:
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()
        self.got: asyncio.Queue[Any] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        switch = WorkspaceSwitch(serve, self._find, self._write)
        self.running = asyncio.get_running_loop().create_task(
            switch.run_until_input_ends(self.sent.get)
        )

    def _find(self, folder: Path) -> str:
        if folder.name.startswith("none"):
            raise InvalidInput("not a project")
        return folder.name

    def _write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._loop.call_soon_threadsafe(self.got.put_nowait, json.loads(line))

    async def ask(self, method: str, identity: Any = 1, **params: Any) -> Any:
        self.sent.put_nowait(
            encoded({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
        )
        return await asyncio.wait_for(self.got.get(), 100)

    async def end(self) -> None:
        self.sent.put_nowait(b"")
        await asyncio.wait_for(self.running, workspace_switch.QUIT_SECONDS + 0.5)


def encoded(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def echo(workspace: str, line: WorkspacePipe) -> int:
    """Answers with its name, and asks a question back where it is asked to."""
    while data := await line.read_input():
        message = json.loads(data)
        if message["method"] == "initialize":
            await line.write_output(encoded({"jsonrpc": "2.0", "id": message["id"], "result": {}}))
        elif message["method"] == "session/ask":
            await line.write_output(encoded({"jsonrpc": "2.0", "id": 7, "method": "question"}))
            answer = json.loads(await line.read_input())
            await line.write_output(
                encoded({"jsonrpc": "2.0", "id": message["id"], "result": answer})
            )
        else:
            result = {"sessionId": f"s-{workspace}", "greeted": True}
            await line.write_output(
                encoded({"jsonrpc": "2.0", "id": message["id"], "result": result})
            )
    return 0


async def test_each_message_goes_to_the_workspace_of_its_folder_or_session() -> None:
    editor = SwitchedEditor(echo)
    assert (await editor.ask("initialize", protocolVersion=1))["result"]["protocolVersion"] == 1
    for name in ("one", "two"):
        assert (await editor.ask("session/new", f"id-{name}", cwd=f"/{name}"))["result"][
            "sessionId"
        ] == f"s-{name}"
    question = await editor.ask("session/ask", sessionId="s-two")
    editor.sent.put_nowait(encoded({"jsonrpc": "2.0", "id": question["id"], "result": "yes"}))
    assert (await asyncio.wait_for(editor.got.get(), 100))["result"] == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": "yes",
    }
    await editor.end()


YES = {"outcome": {"outcome": "selected", "optionId": "once:0"}}


@pytest.mark.parametrize(
    ("answer", "passed_on"),
    [
        ({"error": "no"}, {"code": -32603, "message": "The editor answered with an error."}),
        ({"error": 5, "result": YES}, {"code": -32603}),
        ({"error": {}, "result": YES}, {"code": -32603}),
        ({"error": [{"code": 1}]}, {"code": -32603}),
        ({"error": {"code": "x", "message": ["y"]}}, {"code": -32603}),
        ({"error": {"code": -32601, "message": "Unknown"}}, {"code": -32601, "message": "Unknown"}),
        ({}, {"code": -32603}),
        ({"error": None}, {"code": -32603}),
    ],
)
async def test_an_answer_with_an_error_is_an_error_in_the_protocols_form(
    answer: dict[str, Any], passed_on: dict[str, Any]
) -> None:
    """A text as the error ended the conversation's connection in silence. With a result beside it,
    the result counted, and could allow what was asked.
    """
    editor = SwitchedEditor(echo)
    assert (await editor.ask("session/new", cwd="/one"))["result"]["sessionId"] == "s-one"
    question = await editor.ask("session/ask", sessionId="s-one")
    editor.sent.put_nowait(encoded({"jsonrpc": "2.0", "id": question["id"], **answer}))
    got = (await asyncio.wait_for(editor.got.get(), 100))["result"]
    assert got.keys() == {"jsonrpc", "id", "error"}
    assert passed_on.items() <= got["error"].items()
    assert isinstance(got["error"]["message"], str)
    await editor.end()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{no json}\n", -32700),
        (b"[1, 2]\n", -32700),
        (b"[" * 100_000 + b"\n", -32700),
        (b'{"id": 1, "method": 5}\n', -32700),
        (b"\xff\xfe\n", -32700),
        (b'{"id": 1, "method": "session/list", "x": [%b0]}\n' % (b"[]," * 300_000), -32700),
        (b'{"id": 1, "method": "session/list", "x": [%b0]}\n' % (b'"",' * 300_000), -32700),
        (
            encoded({"id": 1, "method": "session/prompt", "params": {"sessionId": "nobody's"}}),
            -32602,
        ),
        (encoded({"id": 1, "method": "session/new", "params": {"cwd": "relative"}}), -32602),
        (encoded({"id": 1, "method": "session/new", "params": {"cwd": "/none"}}), -32602),
        (encoded({"id": 1, "method": "unknown/method"}), -32601),
        (encoded({"id": 1, "method": "logout", "params": {}}), -32601),
        (encoded({"id": 1, "method": "_example.com/echo", "params": {"cwd": "/none"}}), -32601),
        (encoded({"id": 1, "method": "session/new", "params": [1]}), -32602),
    ],
)
async def test_what_is_no_message_is_answered_with_an_error_and_the_next_one_is_served(
    line: bytes, code: int
) -> None:
    editor = SwitchedEditor(echo)
    editor.sent.put_nowait(line)
    assert (await asyncio.wait_for(editor.got.get(), 100))["error"]["code"] == code
    editor.sent.put_nowait(
        encoded({"method": "unknown/notification"}) + encoded({"id": "stray", "result": 1}) + b"\n"
    )
    assert "result" in await editor.ask("session/new", cwd="/one")
    await editor.end()


async def test_a_request_is_answered_whatever_its_id_is() -> None:
    """A request with the id that our own greeting of a workspace had was never answered."""
    editor = SwitchedEditor(echo)
    identities: list[Any] = ["greeting", None, [], {"a": [1]}, 10**30, "1:0", -0.0, ""]
    for identity in identities:
        answer = await editor.ask("session/new", identity, cwd="/one")
        assert answer["id"] == identity
    await editor.end()


async def test_a_line_without_an_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_switch, "LONGEST_MESSAGE", 1_000)
    editor = SwitchedEditor(echo)
    for _ in range(50):
        editor.sent.put_nowait(b"x" * 900)
    editor.sent.put_nowait(b"\n")
    assert (await asyncio.wait_for(editor.got.get(), 100))["error"]["code"] == -32700
    await editor.end()


async def test_a_flood_is_refused_beyond_what_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_switch, "MOST_WAITING", 5)

    async def never(_: str, line: WorkspacePipe) -> int:
        await asyncio.Event().wait()
        return 0

    editor = SwitchedEditor(never)
    for number in range(20):
        editor.sent.put_nowait(
            encoded({"id": number, "method": "session/new", "params": {"cwd": "/one"}})
        )
    refused = [await asyncio.wait_for(editor.got.get(), 100) for _ in range(15)]
    assert {one["error"]["message"] for one in refused} == {
        "Too many requests are waiting for an answer."
    }
    await editor.end()


async def test_a_workspace_that_moves_to_another_process_is_greeted_there_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_instance, "GIVEN_WAY_SECONDS", 0.0)
    monkeypatch.setattr(workspace_switch, "RETRY_SECONDS", 0.0)
    opened: list[int] = []

    async def moving(workspace: str, line: WorkspacePipe) -> int:
        opened.append(len(opened))
        if len(opened) == 1:  # its process dies with a request unanswered
            await line.read_input()
            await line.read_input()
            raise HelixError("The running program was closed.")
        return await echo(workspace, line)

    editor = SwitchedEditor(moving)
    assert (await editor.ask("session/new", cwd="/one"))["error"][
        "message"
    ] == "The running program was closed."
    assert (await editor.ask("session/new", cwd="/one"))["result"]["greeted"]
    assert len(opened) == 2
    await editor.end()


async def test_a_session_goes_on_after_the_process_of_its_workspace_has_ended() -> None:
    """Closing the window left the editor with “The session is not open here”."""
    window_closes = asyncio.Event()
    processes = 0

    async def serve(workspace: str, line: WorkspacePipe) -> int:
        nonlocal processes
        processes += 1
        if processes > 1:
            return await echo(workspace, line)
        serving = asyncio.ensure_future(echo(workspace, line))  # noqa: TID251 - to cancel it
        await window_closes.wait()
        serving.cancel()
        raise OwnerEnded("The running program was closed before it answered.")

    editor = SwitchedEditor(serve)
    session = (await editor.ask("session/new", cwd="/one"))["result"]["sessionId"]
    window_closes.set()
    answer = await editor.ask("session/prompt", 2, sessionId=session)
    if "error" in answer:  # The message may have been on its way when the process ended.
        answer = await editor.ask("session/prompt", 3, sessionId=session)
    assert answer["result"]["sessionId"] == session
    assert processes == 2
    await editor.end()


async def test_an_editor_that_does_not_read_holds_nothing_up_and_the_program_ends() -> None:
    stuck = threading.Event()
    sent: asyncio.Queue[bytes] = asyncio.Queue()
    switch = WorkspaceSwitch(echo, lambda folder: folder.name, lambda _: (stuck.wait(30), None)[1])
    running = asyncio.get_running_loop().create_task(switch.run_until_input_ends(sent.get))
    for number in range(100):
        sent.put_nowait(encoded({"id": number, "method": "session/new", "params": {"cwd": "/one"}}))
    sent.put_nowait(b"")
    begun = time.monotonic()
    await running
    # The editor would hold it up for 30 seconds, and a busy computer for a few.
    assert time.monotonic() - begun < 25
    stuck.set()


# --- One pipe and one message alone


async def test_a_workspace_is_sent_its_messages_in_order_and_then_the_end() -> None:
    pipe = WorkspacePipe(1, "w", ignore)
    pipe.send_message({"id": 1})
    pipe.send_end_of_input()
    assert await pipe.read_input() == b'{"id":1}\n'
    assert await pipe.read_input() == b""


async def ignore(_: WorkspacePipe, _message: dict[str, Any]) -> None:
    return None


async def test_the_next_process_gets_the_greeting_first_and_nothing_that_was_for_the_last() -> None:
    heard: list[dict[str, Any]] = []

    async def hear(_: WorkspacePipe, message: dict[str, Any]) -> None:
        heard.append(message)

    pipe = WorkspacePipe(1, "w", hear)
    pipe.send_message({"id": "old"})
    await pipe.write_output(b'{"id": 1}\n{"half":')
    pipe.restart_with_greeting({"method": "initialize", "id": 7})
    pipe.send_message({"id": "new"})
    assert json.loads(await pipe.read_input()) == {
        "method": "initialize",
        "id": workspace_switch.GREETING_ID,
    }
    assert json.loads(await pipe.read_input()) == {"id": "new"}
    await pipe.write_output(b'{"id": 2}\n{"id"')
    await pipe.write_output(b": 3}\n")
    assert heard == [{"id": 1}, {"id": 2}, {"id": 3}]


def nested(depth: int) -> bytes:
    """A message whose values lie so deep, with more brackets than may be counted."""
    inner = b"[" * depth + b"]" * depth
    return b'{"id": 1, "method": "m", "x": %b, "y": [%b]}' % (inner, b",".join([b"[]"] * 300))


def test_a_message_is_nested_as_deeply_as_can_be_passed_on_and_no_deeper() -> None:
    deepest = workspace_switch.DEEPEST_MESSAGE
    assert workspace_switch.decode_message(nested(deepest - 1))["id"] == 1
    with pytest.raises(InvalidInput):
        workspace_switch.decode_message(nested(deepest))


@pytest.mark.parametrize("line", [b'{"id": 1}', b'{"method": "m"}', b'{"id": null}'])
def test_a_message_has_a_method_or_an_id(line: bytes) -> None:
    assert workspace_switch.decode_message(line) == json.loads(line)


@pytest.mark.parametrize("line", [b"{}", b'{"method": 5}', b'{"x": 1}', b"5", b"nonsense"])
def test_what_has_neither_is_no_message(line: bytes) -> None:
    with pytest.raises(InvalidInput):
        workspace_switch.decode_message(line)


def test_a_message_may_be_as_long_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"id": 1}'
    monkeypatch.setattr(workspace_switch, "LONGEST_MESSAGE", len(line))
    assert workspace_switch.decode_message(line) == {"id": 1}
    with pytest.raises(InvalidInput):
        workspace_switch.decode_message(line + b" ")


async def test_questions_of_two_workspaces_with_one_id_reach_the_workspace_that_asked() -> None:
    editor = SwitchedEditor(echo)
    for name in ("one", "two"):
        await editor.ask("session/new", f"id-{name}", cwd=f"/{name}")
    questions = [await editor.ask("session/ask", f"ask-{n}", sessionId=f"s-{n}") for n in ("one", "two")]  # fmt: skip
    first, second = (question["id"] for question in questions)
    assert first != second
    for identity, words in ((second, "for two"), (first, "for one")):
        editor.sent.put_nowait(encoded({"jsonrpc": "2.0", "id": identity, "result": words}))
    answers = [await asyncio.wait_for(editor.got.get(), 100) for _ in range(2)]
    heard = {answer["id"]: answer["result"]["result"] for answer in answers}
    assert heard == {"ask-one": "for one", "ask-two": "for two"}
    await editor.end()


async def test_signing_in_needs_nothing_and_a_list_of_sessions_is_of_the_folder_it_began_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    editor = SwitchedEditor(echo)
    assert (await editor.ask("authenticate", methodId="x"))["result"] == {}
    assert (await editor.ask("session/list"))["result"]["sessionId"] == "s-here"
    refused = await editor.ask("session/new")
    assert "names no folder" in refused["error"]["message"]
    await editor.end()


async def test_sessions_that_a_list_names_belong_to_its_workspace() -> None:
    async def listing(workspace: str, line: WorkspacePipe) -> int:
        while data := await line.read_input():
            message = json.loads(data)
            sessions = [{"sessionId": f"{workspace}-{number}"} for number in range(2)]
            result = {"sessions": sessions, "by": workspace}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            await line.write_output(encoded(answer))
        return 0

    editor = SwitchedEditor(listing)
    for name in ("one", "two"):
        await editor.ask("session/list", cwd=f"/{name}")
    answer = await editor.ask("session/prompt", sessionId="one-1")
    assert answer["result"]["by"] == "one"
    await editor.end()


async def test_a_workspace_that_gave_way_is_waited_for_and_one_that_nobody_asks_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_instance, "GIVEN_WAY_SECONDS", 0.0)
    monkeypatch.setattr(workspace_switch, "RETRY_SECONDS", 0.0)
    opened = 0

    async def giving_way(workspace: str, line: WorkspacePipe) -> int:
        nonlocal opened
        opened += 1
        if opened == 1:
            return running_instance.LATER
        return await echo(workspace, line)

    editor = SwitchedEditor(giving_way)
    answer = await editor.ask("session/new", cwd="/one")
    if "error" in answer:
        assert answer["error"]["message"] == workspace_switch.MOVED
        assert answer["error"]["code"] == -32603
        answer = await editor.ask("session/new", cwd="/one")
    assert answer["result"]["greeted"]
    assert opened == 2
    await editor.end()


async def test_a_late_answer_to_a_process_that_ended_is_no_answer_to_the_next_one() -> None:
    """Each process counts its requests from the beginning, so theirs have the same ids."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    may_end = asyncio.Event()

    async def ask_once(_workspace: str, line: WorkspacePipe) -> int:
        while data := await line.read_input():
            message = json.loads(data)
            if message.get("method") == "session/prompt":
                await line.write_output(encoded({"jsonrpc": "2.0", "id": 0, "method": "question"}))
                if not may_end.is_set():
                    await may_end.wait()
                    return 1
            elif "method" not in message:
                heard.put_nowait(message["result"])
        return 0

    editor = SwitchedEditor(ask_once)
    first = await editor.ask("session/prompt", cwd="/one")
    may_end.set()
    assert "error" in await asyncio.wait_for(editor.got.get(), 100)
    second = await editor.ask("session/prompt", cwd="/one")
    for question, answer in ((first, "late yes"), (second, "answer")):
        editor.sent.put_nowait(encoded({"jsonrpc": "2.0", "id": question["id"], "result": answer}))
    assert await asyncio.wait_for(heard.get(), 100) == "answer"
    await editor.end()
