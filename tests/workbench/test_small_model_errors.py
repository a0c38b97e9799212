"""The ways in which a small model errs: each turn ends, with one sentence at most, nothing is
lost, and what repeats itself is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Text, TurnEnd, TurnEnded
from helix_desktop.engine.session import Session
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.workbench import Workbench
from tests.peers.chat_server import ChatServer, chunk, reply
from tests.peers.peer import Answer, sse
from tests.workbench.conftest import Desks

QUESTION = "Which port does the server use? Remember: never delete anything."
MOST_REQUESTS = 6  # No more are made by themselves.
ANSWER = "The server uses port 8080."
CALL = '{"name": "read_file", "arguments": {"path": "a.txt"}}'


@dataclass(frozen=True)
class Error:
    """What the model answers, one reply after another, and how the turn must end."""

    name: str
    replies: Sequence[Answer]
    ends: TurnEnd = TurnEnd.DONE
    says: str = ""  # Stands in the reason for the end.


def repeating(name: str, text: str) -> Error:
    return Error(f"repeats {name}", [reply(text)] * 2, TurnEnd.REPEATING, "again and again")


def counted_lines(count: int, line: str) -> str:
    return "".join(f"{number}. {line}\n" for number in range(1, count))


def raw(*deltas: dict[str, Any], finish: str | None = "stop") -> Answer:
    chunks = [chunk(delta) for delta in deltas]
    return Answer(pieces=sse(*chunks, chunk({}, finish), "[DONE]"))


GOOD = reply(ANSWER)
REPEATS = [
    repeating("a sentence", "I see. " + "As a language model I can help. " * 400),
    repeating("a word", "The port " + "is " * 4_000),
    repeating("a letter", "The port is " + "a" * 8_000),
    repeating("a Chinese phrase", "服务器使用端口。" + "我可以帮助你。" * 800),
    repeating("line ends", "The port is:" + "\n" * 8_000),
    repeating("a list entry", "Steps:\n" + "- Open the file\n" * 800),
    repeating("a table row", "|a|b|\n|-|-|\n" + "| 1 | 2 |\n" * 900),
    repeating("a code block", "Look:\n" + "```\nport = 8080\n```\n" * 500),
    repeating("two sentences by turns", "So. " + "I open it. I close it. " * 400),
    repeating("a pictograph", "Port 8080 " + "🎉" * 3_000),
    repeating("its own answer", (ANSWER + "\n\n") * 400),
    repeating("an array", "[" + '{"port": 8080}, ' * 600),
    repeating("a numbered list", counted_lines(600, "Open the file and read it.")),
    Error(
        "repeats a thought",
        [reply(reasoning="Wait, maybe not. " * 800)] * 2,
        TurnEnd.REPEATING,
        "again and again",
    ),
    Error(
        "repeats within a call",
        [reply(calls=[("write_file", '{"path": "a", "content": "' + "x = 1\\n" * 6_000)])] * 2,
        TurnEnd.REPEATING,
        "again and again",
    ),
]
EMPTY = [
    Error("nothing", [reply("")] * 9, TurnEnd.FAILED, "empty"),
    Error("only blanks", [reply(" \n ")] * 9, TurnEnd.FAILED, "empty"),
    Error("only thoughts", [reply(reasoning="Let me think.")] * 9, TurnEnd.FAILED, "empty"),
    Error("null", [raw({"content": None})] * 9, TurnEnd.FAILED, "empty"),
    Error("nothing once", [reply(""), GOOD]),
    Error("only an end mark", [reply("<|im_end|>")] * 9, TurnEnd.FAILED, "empty"),
    Error("no choices at all", [Answer(pieces=sse("[DONE]"))] * 9, TurnEnd.FAILED),
]
CALLS_AS_TEXT = [
    Error("a call in tags", [reply(f"<tool_call>\n{CALL}\n</tool_call>"), GOOD]),
    Error("a call in a fence", [reply(f"```json\n{CALL}\n```"), GOOD]),
    Error("a bare call", [reply(CALL), GOOD]),
    Error("a call without an end", [reply(f"<tool_call>\n{CALL}"), GOOD]),
    Error(
        "a call of no tool",
        [reply('<tool_call>\n{"name": "fly", "arguments": {}}\n</tool_call>')],
        says="nothing was run",
    ),
    Error(
        "a broken call in tags",
        [reply('<tool_call>\n{"name": "read_\n</tool_call>')],
        says="nothing was run",
    ),
]
BROKEN_CALLS = [
    Error("cut arguments", [reply(calls=[("read_file", '{"path": "a.t')]), GOOD]),
    Error("single quotes", [reply(calls=[("read_file", "{'path': 'a.txt'}")]), GOOD]),
    Error("a comma too many", [reply(calls=[("read_file", '{"path": "a.txt",}')]), GOOD]),
    Error("a list as arguments", [reply(calls=[("read_file", '["a.txt"]')]), GOOD]),
    Error("no arguments", [reply(calls=[("read_file", "")]), GOOD]),
    Error("text as arguments", [reply(calls=[("read_file", '"a.txt"')]), GOOD]),
    Error("a wrong field", [reply(calls=[("read_file", {"file": "a.txt"})]), GOOD]),
    Error("a wrong type", [reply(calls=[("read_file", {"path": 7})]), GOOD]),
    Error("an unknown tool", [reply(calls=[("open_file", {"path": "a.txt"})]), GOOD]),
    Error("a tool without a name", [reply(calls=[("", {"path": "a.txt"})]), GOOD]),
    Error("a huge number", [reply(calls=[("read_file", '{"path": 1e999}')]), GOOD]),
    Error("deep brackets", [reply(calls=[("read_file", "[" * 5_000)]), GOOD]),
    Error(
        "the same call again and again",
        [reply(calls=[("read_file", {"path": "missing.txt"})])] * 60,
        TurnEnd.REPEATING,
        "with the same arguments",
    ),
    Error("a call promised and not made", [reply("I read it.", finish="tool_calls")]),
]
ODD_TEXT = [
    Error("another language", [reply("Der Server benutzt den Port 8080.")]),
    Error("the user's next words", [reply(f"{ANSWER}\nUser: Thanks!\nAssistant: Bye.")]),
    Error("marks of its template", [reply(f"<|im_start|>assistant\n{ANSWER}<|im_end|>")]),
    Error("thoughts in the text", [reply(f"<think>\nLet me see.\n</think>\n{ANSWER}")]),
    Error("thoughts without an end", [reply("<think>\nLet me see. " + ANSWER)]),
    Error("half a character", [raw({"content": "8080 \\ud83d"}, {"content": " is it"})]),
    Error("control characters", [reply("8080\x00\x1b[2J\x07")]),
    Error("a reason nobody knows", [reply(ANSWER, finish="eos_token")]),
    Error("no reason", [reply(ANSWER, finish=None)]),
    Error("mad usage", [reply(ANSWER, usage={"prompt_tokens": -5, "completion_tokens": 1e30})]),
]
KINDS_OF_ERRORS = {
    "it repeats itself": REPEATS,
    "it says nothing": EMPTY,
    "it writes calls as text": CALLS_AS_TEXT,
    "its calls are broken": BROKEN_CALLS,
    "its text is odd": ODD_TEXT,
}


class SmallModel:
    """A workspace whose model errs, each time in a conversation of its own."""

    def __init__(self, bench: Workbench, server: ChatServer) -> None:
        self._bench = bench
        self._server = server
        self._requests_before = 0

    async def ask(self, error: Error) -> Session:
        """Ask a question, which the model answers with this error."""
        self._server.script[:] = error.replies
        self._requests_before = len(self._server.bodies)
        session = await self._bench.start_conversation(error.name)
        await self._send(session, QUESTION)
        return session

    async def ask_again(self, session: Session) -> None:
        self._server.script[:] = [GOOD]
        await self._send(session, "And now?")

    async def _send(self, session: Session, text: str) -> None:
        session.send_message((Text(text),))
        await asyncio.wait_for(session.wait_until_idle(), 60)

    @property
    def count_of_requests(self) -> int:
        return len(self._server.bodies) - self._requests_before

    def texts_sent_last(self) -> list[str]:
        return [str(message["content"]) for message in self._server.bodies[-1]["messages"]]


@pytest.fixture
async def small_model(desks: Desks, folder: Path) -> AsyncIterator[SmallModel]:
    (folder / "a.txt").write_text("port = 8080\n")
    with ChatServer() as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role("mine/scripted")
        yield SmallModel(bench, server)


@pytest.mark.parametrize("kind", KINDS_OF_ERRORS)
async def test_the_turn_ends_with_one_sentence_and_nothing_is_lost(
    kind: str, small_model: SmallModel
) -> None:
    for error in KINDS_OF_ERRORS[kind]:
        session = await small_model.ask(error)
        (end,) = _ends_of_turns(session)
        assert end.reason is error.ends, error.name
        assert error.says in end.why, error.name
        if end.reason is TurnEnd.DONE and not error.says:
            assert end.why == "", error.name
        assert small_model.count_of_requests <= MOST_REQUESTS, error.name

        await small_model.ask_again(session)
        assert _ends_of_turns(session)[-1].reason is TurnEnd.DONE, error.name
        sent = small_model.texts_sent_last()
        assert sum(QUESTION in text for text in sent) == 1, error.name
        assert "And now?" in sent[-1], error.name


def _ends_of_turns(session: Session) -> list[TurnEnded]:
    facts = [recorded.fact for recorded in session.all_facts]
    return [fact for fact in facts if isinstance(fact, TurnEnded)]
