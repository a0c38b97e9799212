"""The connection to a foreign agent's process: what it asks, what it is told, and how it ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from helix_desktop.acp_client import agent_connection
from helix_desktop.acp_client.acp_agents import AcpAgent
from helix_desktop.acp_client.agent_connection import AgentConnection, AgentHandlers, AgentRefused
from helix_desktop.errors import HelixError, ModelFailed, NotFound
from helix_desktop.workbench import Workbench

# An agent with the standard library alone. `on` answers a request; what it returns is the result.
AGENT = """
import json, sys
def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
def update(text):
    send(method="session/update", params={"update": {"said": text}})
ABILITIES = {"loadSession": True}
def on(message):
    return {}
%s
for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        answers(message) if "answers" in globals() else None
    elif message["method"] == "initialize":
        abilities = {**ABILITIES, "heard": message["params"]}
        about = {"agentCapabilities": abilities, "authMethods": [{"name": "log in"}]}
        send(id=message["id"], result=about)
    elif "id" in message:
        result = on(message)
        if isinstance(result, tuple):
            send(id=message["id"], error={"code": result[0], "message": result[1]})
        elif result is not None:
            send(id=message["id"], result=result)
"""


class Heard:
    """What the agent asked and said. `answer`: for its requests, or the error to raise."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.said: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.requests: list[int] = []  # Their sizes.
        self.answer: dict[str, Any] | Exception = {"fine": True}
        self.error_at_update: HelixError | None = None

    async def answer_request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((method, params))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def hear_update(self, _session: str, update: dict[str, Any], size: int) -> None:
        if self.error_at_update is not None:
            raise self.error_at_update
        self.said.append(update)
        self.sizes.append(size)


@asynccontextmanager
async def agent(
    bench: Workbench,
    folder: Path,
    code: str = "",
    heard: Heard | None = None,
    name: str = "Agent",
) -> AsyncIterator[AgentConnection]:
    script = folder / "agent.py"
    script.write_text(AGENT % code)
    hears = heard or Heard()
    link = await AgentConnection.start_agent(
        AcpAgent(name, (sys.executable, str(script))),
        os.environ,
        bench.kit,
        bench.tasks.spawn_task,
        AgentHandlers(hears.answer_request, hears.hear_update, hears.requests.append),
    )
    try:
        yield link
    finally:
        await link.end_agent_process()


@pytest.mark.parametrize("program", ["npx", "bunx", "own-agent"])
async def test_a_package_runner_does_not_start_in_the_project(
    bench: Workbench, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """`npx agent` ran a file of the project's node_modules, outside the sandbox."""
    home = tmp_path / "home of the user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    script = folder / "agent.py"
    script.write_text(AGENT % "import os\nABILITIES = {'folder': os.getcwd()}")
    runner = tmp_path / program
    runner.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{script}'\n")
    runner.chmod(0o755)
    heard = Heard()
    link = await AgentConnection.start_agent(
        AcpAgent("Agent", (str(runner), "some-agent")),
        os.environ,
        bench.kit,
        bench.tasks.spawn_task,
        AgentHandlers(heard.answer_request, heard.hear_update, heard.requests.append),
    )
    expected = bench.kit.resources.roots.folders[0] if program == "own-agent" else home
    assert link.abilities["folder"] == str(expected)
    await link.end_agent_process()


async def test_an_agent_says_what_it_can_do_and_answers(bench: Workbench, folder: Path) -> None:
    code = "def on(message):\n    return {'got': message['method'], 'with': message['params']}"
    async with agent(bench, folder, code) as link:
        assert link.abilities["loadSession"] is True
        assert link.abilities["heard"]["protocolVersion"] == 1
        assert link.has_live_process
        before = link.last_heard
        answer = await link.ask_agent("session/new", {"cwd": "/w"})
        assert answer == {"got": "session/new", "with": {"cwd": "/w"}}
        assert link.last_heard >= before
    assert not link.has_live_process
    with pytest.raises(ModelFailed, match="stopped working: it was ended"):
        await link.ask_agent("session/new", {})


async def test_what_it_says_before_its_answer_is_heard_first(
    bench: Workbench, folder: Path
) -> None:
    code = "def on(message):\n    for n in range(50): update(n)\n    return {'done': True}"
    heard = Heard()
    async with agent(bench, folder, code, heard) as link:
        assert await link.ask_agent("session/prompt", {}) == {"done": True}
        assert [update["said"] for update in heard.said] == list(range(50))
        assert min(heard.sizes) > 60


async def test_lines_that_are_no_messages_are_passed_over(bench: Workbench, folder: Path) -> None:
    code = (
        "def on(message):\n"
        "    print('a log line', flush=True)\n    print('[1]', flush=True)\n"
        "    send(id=[1], result={})\n    send(method=7)\n    send(id='x', error='text')\n"
        "    return {'done': True}"
    )
    async with agent(bench, folder, code) as link:
        assert await link.ask_agent("session/prompt", {}, 20) == {"done": True}


async def test_its_requests_are_answered_also_with_errors(bench: Workbench, folder: Path) -> None:
    code = (
        "asked = {}\n"
        "def on(message):\n"
        "    asked['id'] = message['id']\n"
        "    send(id='r1', method='fs/read_text_file', params={'path': 'x'})\n"
        "def answers(message):\n"
        "    send(id=asked['id'], result={'heard': message.get('result', message.get('error'))})"
    )
    heard = Heard()
    async with agent(bench, folder, code, heard) as link:
        assert await link.ask_agent("session/prompt", {}) == {"heard": {"fine": True}}
        assert heard.asked == [("fs/read_text_file", {"path": "x"})]
        for error, number in ((NotFound("gone"), -32002), (HelixError("no"), -32603), (OSError("disk"), -32603)):  # fmt: skip
            heard.answer = error
            told = (await link.ask_agent("session/prompt", {}))["heard"]
            # Without this code, some agents would not create a new file.
            assert told["code"] == number
            assert str(error).split(".")[0] in told["message"]


async def test_a_refusal_says_the_agents_words_and_a_missing_login_how_to_sign_in(
    bench: Workbench, folder: Path
) -> None:
    code = (
        "def on(message):\n"
        "    return (-32000, 'please log in.') if message['method'] == 'a' else (-1, 'x ' * 900)"
    )
    async with agent(bench, folder, code) as link:
        with pytest.raises(AgentRefused) as login:
            await link.ask_agent("a", {})
        assert str(login.value).startswith("Agent reported an error: please log in. Sign in")
        assert str(login.value).endswith("Sign in with the agent's own program first: log in.")
        with pytest.raises(AgentRefused) as long:
            await link.ask_agent("b", {})
        assert "Sign in" not in str(long.value)
        assert len(str(long.value)) < 600
        assert link.has_live_process, "a refusal does not end the agent"
    async with agent(bench, folder, code, name="Codex") as link:
        with pytest.raises(AgentRefused) as known:
            await link.ask_agent("a", {})
        words = "log in. To sign in, run this in a terminal: codex login."
        assert str(known.value).endswith(words)


async def test_an_agent_that_does_not_answer_in_time_is_named(
    bench: Workbench, folder: Path
) -> None:
    async with agent(bench, folder, "def on(message):\n    return None") as link:
        with pytest.raises(ModelFailed, match="Agent did not respond to session/new within 0 s"):
            await link.ask_agent("session/new", {}, 0.2)


async def test_an_agent_that_ends_says_with_which_code_and_its_last_words(
    bench: Workbench, folder: Path
) -> None:
    code = "def on(message):\n    print('x' * 900 + ' out of memory', file=sys.stderr)\n    sys.exit(3)"
    async with agent(bench, folder, code) as link:
        with pytest.raises(ModelFailed) as failed:
            await link.ask_agent("session/prompt", {})
        said = str(failed.value)
        assert said.startswith("Agent stopped working: it ended with exit code 3. It said: x")
        assert said.endswith("out of memory")
        assert len(said) < 400
        assert not link.has_live_process
        await link.notify_agent("session/cancel", {})  # Nobody waits for it, so nothing fails.
        with pytest.raises(ModelFailed):
            await link.ask_agent("session/prompt", {})


async def test_an_agent_that_cannot_be_started_leaves_no_process(
    bench: Workbench, folder: Path
) -> None:
    with pytest.raises(ModelFailed, match="Agent stopped working: it ended with exit code 5"):
        async with agent(bench, folder, "sys.exit(5)"):
            raise AssertionError


async def test_what_is_too_long_or_too_much_ends_the_agent(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_connection, "LONGEST_MESSAGE_BYTES", 200_000)
    code = "def on(message):\n    update('x' * 1_000_000)\n    return {}"
    async with agent(bench, folder, code) as link:
        with pytest.raises(ModelFailed, match="a message of more than 200,000 bytes"):
            await link.ask_agent("session/prompt", {})
    monkeypatch.setattr(agent_connection, "LONGEST_MESSAGE_BYTES", 32 << 20)
    code = "def on(message):\n    update([[]] * 300_000)\n    return {}"
    async with agent(bench, folder, code) as link:
        with pytest.raises(ModelFailed, match="a message of more than 200,000 values"):
            await link.ask_agent("session/prompt", {})
    monkeypatch.setattr(agent_connection, "MOST_WAITING_BYTES", 200_000)
    code = "def on(message):\n    for n in range(8): send(id=f'r{n}', method='slow', params={})"
    heard = Heard()

    async def never(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(heard, "answer_request", never)
    async with agent(bench, folder, code, heard) as link:
        with pytest.raises(ModelFailed, match="too many requests at once"):
            await link.ask_agent("session/prompt", {})


async def test_an_update_that_cannot_be_recorded_ends_the_agent_with_the_reason(
    bench: Workbench, folder: Path
) -> None:
    heard = Heard()
    heard.error_at_update = ModelFailed("the disk is full")
    code = "def on(message):\n    update('one')\n    return None"
    async with agent(bench, folder, code, heard) as link:
        with pytest.raises(ModelFailed, match="the disk is full"):
            await link.ask_agent("session/prompt", {})
        link.kill_with_reason("another reason")
        with pytest.raises(ModelFailed, match="the disk is full"):
            await link.ask_agent("session/prompt", {})


async def test_what_the_agent_is_told_without_an_answer_reaches_it(
    bench: Workbench, folder: Path
) -> None:
    """Stop is such a word: without it, an agent went on for a second and was ended."""
    code = (
        "told = []\n"
        "def on(message):\n"
        "    return {'told': told}\n"
        "load = json.loads\n"
        "def loads(line):\n"
        "    message = load(line)\n"
        "    if 'id' not in message: told.append(message['method'])\n"
        "    return message\n"
        "json.loads = loads\n"
    )
    async with agent(bench, folder, code) as link:
        await link.notify_agent("session/cancel", {"sessionId": "s"})
        assert await link.ask_agent("session/prompt", {}) == {"told": ["session/cancel"]}


async def test_an_error_is_quoted_up_to_a_limit_on_one_line(bench: Workbench, folder: Path) -> None:
    code = "def on(message):\n    return (-1, 'a\\n  b ' + 'x' * 900 + '.')"
    async with agent(bench, folder, code) as link:
        with pytest.raises(AgentRefused) as refused:
            await link.ask_agent("b", {})
        beginning = "Agent reported an error: "
        said = str(refused.value)
        assert said.startswith(f"{beginning}a b xxx")
        assert len(said) == len(beginning) + 500 + len(".")


async def test_two_requests_with_one_id_end_the_agent(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()

    async def never(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(heard, "answer_request", never)
    code = "def on(message):\n    for n in range(2): send(id='r', method='slow', params={})"
    async with agent(bench, folder, code, heard) as link:
        with pytest.raises(ModelFailed, match="two requests with the same ID"):
            await link.ask_agent("session/prompt", {})


async def test_a_request_that_is_too_large_ends_the_agent_with_the_reason(
    bench: Workbench, folder: Path
) -> None:
    def refuse(_size: int) -> None:
        raise ModelFailed("it asked for too much")

    heard = Heard()
    heard.requests = cast(Any, SimpleNamespace(append=refuse))
    code = "def on(message):\n    send(id='r', method='ask', params={})"
    async with agent(bench, folder, code, heard) as link:
        with pytest.raises(ModelFailed, match="it asked for too much"):
            await link.ask_agent("session/prompt", {})


async def test_an_agent_whose_first_answer_does_not_come_is_ended(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_connection, "START_SECONDS", 0.2)
    ended: list[str] = []
    end = AgentConnection.end_agent_process

    async def note_end(self: AgentConnection) -> None:
        await end(self)
        ended.append(self._name)
        assert self._command.process.returncode is not None

    monkeypatch.setattr(AgentConnection, "end_agent_process", note_end)
    with pytest.raises(ModelFailed, match="Agent did not respond to initialize"):
        async with agent(bench, folder, "sys.stdin.readline()\nsys.stdin.readline()"):
            raise AssertionError
    assert ended == ["Agent"]


async def test_a_message_in_pieces_is_put_together_and_its_rest_is_kept(
    bench: Workbench, folder: Path
) -> None:
    async with agent(bench, folder) as link:
        link._unfinished_line = [b""]
        for piece in (b"one", b" line\ntwo", b"\n", b"three\nfour\nfi", b"ve"):
            link._split_into_lines(piece)
        assert [bytes(line) for line in link._lines] == [b"one line", b"two", b"three", b"four"]
        assert b"".join(link._unfinished_line) == b"five"
        link._lines.clear()
        link._unfinished_line = [b""]
