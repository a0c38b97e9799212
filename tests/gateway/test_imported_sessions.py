"""One session, seen by the gateway and read from its file in any order: stored, listed, paid once."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.commands import cost_command
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    Fact,
    ModelReplied,
    Origin,
    Received,
    Recorded,
    Stop,
    Text,
    ToolSpec,
    Usage,
    UserSaid,
)
from helix_desktop.engine.view import build_state
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival, Replied, Sent
from helix_desktop.gateway.imported_sessions import has_imported_facts
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.view_entries import UnchangedMessage
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.session_preparation import SessionPreparation
from tests.faults.gateway_histories import _nobody, bench
from tests.histories import written

TOOLS = (ToolSpec("Bash", "run it", "{}"),)
MODEL = "claude-opus-4-6"
INPUT = 100


@dataclass
class WatchedAgent:
    """A session of Claude Code: what it sends, and what it writes to its file."""

    made: Workbench
    folder: Path
    units: list[dict[str, Any]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    session: str = "session-1"
    sent_name: str | None = None  # The session's name in requests, if it is another one.

    @property
    def file(self) -> Path:
        return self.folder / f"{self.session}.jsonl"

    def say(self, words: str) -> None:
        """Answer the last calls, or say something as the user, and write it down."""
        last = self.units[-1]["content"] if self.units else []
        answered = [
            block for block in last if isinstance(block, dict) and block["type"] == "tool_use"
        ]
        content: list[dict[str, Any]] = [{"type": "text", "text": words}]
        if answered:
            call = answered[0]["id"]
            content = [{"type": "tool_result", "tool_use_id": call, "content": f"output of {call}"}]
        self.units.append({"role": "user", "content": content})
        number = len(self.lines) + 1
        said: Any = words if not answered else content
        self._write_line(written.claude_said(number, number - 1 or None, said))

    def next_reply(self, words: str, *, calls: bool) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": words}]
        if calls:
            call = {
                "type": "tool_use",
                "id": f"call {words}",
                "name": "Bash",
                "input": {"c": words},
            }
            content.append(call)
        self.replies.append(words)
        return {"role": "assistant", "content": content}

    def write_reply(self, reply: dict[str, Any]) -> None:
        number = len(self.lines) + 1
        line = written.claude_reply(number, number - 1, f"m{number}", *reply["content"])
        line["message"]["model"] = MODEL
        self._write_line(line)

    def _write_line(self, line: dict[str, Any]) -> None:
        now = datetime.fromtimestamp(time.time(), UTC).isoformat()
        self.lines.append({**line, "sessionId": self.session, "timestamp": now})
        written.lines(self.file, self.lines)

    async def read_file(self) -> None:
        """Import the file as the recorder does."""
        preparation = SessionPreparation(copies=self.folder / "copies")
        result = await self.made.import_histories([self.file], preparation=preparation)
        unexpected = [one for one in result.complaints if "contains no reply" not in one]
        assert unexpected == []

    async def ask(self, room: LocalAgentConversations) -> Sent:
        said = anthropic_gateway.parse_messages({"messages": self.units})
        chain = compute_message_hashes("anthropic", said)
        name = self.session if self.sent_name is None else self.sent_name
        arrival = Arrival("anthropic", "Claude Code", name, "head", MODEL, "Be good.", TOOLS, chain)  # fmt: skip
        sent = await room.receive_request(arrival, said)
        assert list(sent.entries) == [UnchangedMessage(position) for position in range(len(said))]
        return sent

    async def get_reply(
        self, room: LocalAgentConversations, sent: Sent, reply: dict[str, Any]
    ) -> None:
        parsed = anthropic_gateway.parse_message(reply)
        stop = Stop.CALLS if len(reply["content"]) > 1 else Stop.END
        replied = Replied(parsed.pieces, MODEL, stop, Usage(INPUT, 60, 30, 20))
        await room.record_agent_reply(sent.ticket, replied, parsed.identity_key)


def texts_on_path(facts: Sequence[Recorded]) -> list[str]:
    return [
        part.text
        for recorded in build_state(facts).facts_on_path()
        if isinstance(recorded.fact, UserSaid | ModelReplied)
        for part in recorded.fact.parts
        if isinstance(part, Text)
    ]


async def paid_inputs(made: Workbench) -> list[int]:
    requests = await cost_command._read_requests_of_agents(made.workspace)
    return [counted.request.tokens for counted in requests]


@pytest.mark.parametrize("trial", range(12))
async def test_a_session_seen_by_gateway_and_recorder_is_one_row_and_paid_once(
    tmp_path: Path, trial: int
) -> None:
    """Steps with and without the gateway, the file read at any moment, also while a reply is
    written, and the gateway started anew in between.
    """
    chance = random.Random(trial)
    async with bench(tmp_path / "home") as made:
        room = LocalAgentConversations(made, _nobody)
        agent = WatchedAgent(made, tmp_path)
        words: list[str] = []
        is_wrapped = chance.random() < 0.6
        for step in range(1, chance.randint(3, 8)):
            if chance.random() < 0.35:
                is_wrapped = not is_wrapped
                await room.aclose()
                room = LocalAgentConversations(made, _nobody)
            had_calls = bool(agent.units) and len(agent.units[-1]["content"]) > 1
            if not had_calls:
                words.append(f"question {step} of trial {trial}")
            agent.say(f"question {step} of trial {trial}")
            if chance.random() < 0.4:
                await agent.read_file()
            reply = agent.next_reply(f"answer {step} of trial {trial}", calls=chance.random() < 0.5)
            words.append(agent.replies[-1])
            writes_early = chance.random() < 0.5
            sent = await agent.ask(room) if is_wrapped else None
            if writes_early:
                agent.write_reply(reply)
                if chance.random() < 0.5:
                    await agent.read_file()
            if sent is not None:
                await agent.get_reply(room, sent, reply)
            if not writes_early:
                agent.write_reply(reply)
            agent.units.append(reply)
            if chance.random() < 0.4:
                await agent.read_file()
        await agent.read_file()
        await room.aclose()
        (row,) = made.list_conversations()
        facts = await made.read_conversation_facts(row.id)
        assert (row.archived, row.parent) == (False, "")
        assert texts_on_path(facts) == words
        assert await paid_inputs(made) == [INPUT] * len(agent.replies)


async def imported_session(made: Workbench, folder: Path) -> tuple[WatchedAgent, str]:
    """A session that ran without the gateway, was imported, and has said the next words."""
    agent = WatchedAgent(made, folder)
    agent.say("question 1")
    reply = agent.next_reply("answer 1", calls=False)
    agent.write_reply(reply)
    agent.units.append(reply)
    await agent.read_file()
    (row,) = made.list_conversations()
    agent.say("question 2")
    return agent, row.id


@pytest.mark.parametrize("is_archived", [False, True])
async def test_an_imported_session_goes_on_through_the_gateway_in_its_own_conversation(
    tmp_path: Path, is_archived: bool
) -> None:
    async with bench(tmp_path / "home") as made:
        agent, conversation = await imported_session(made, tmp_path)
        if is_archived:
            session = await made.open_session(conversation)
            await session.conversation.append_facts(ConversationChanged(archived=True))
        title = made.list_conversations()[0].title
        room = LocalAgentConversations(made, _nobody)
        sent = await agent.ask(room)
        assert sent.ticket.conversation == conversation
        await agent.get_reply(room, sent, agent.next_reply("answer 2", calls=False))
        await room.aclose()
        (row,) = made.list_conversations()
        assert (row.agent, row.recorded_from, row.archived) == ("Claude Code", "Claude Code", False)
        assert row.title == title
        facts = await made.read_conversation_facts(conversation)
        assert texts_on_path(facts) == ["question 1", "answer 1", "question 2", "answer 2"]
        # The gateway that starts next knows it by what it has noted.
        room = LocalAgentConversations(made, _nobody)
        agent.units.append({"role": "assistant", "content": [{"type": "text", "text": "answer 2"}]})
        agent.say("question 3")
        assert (await agent.ask(room)).ticket.conversation == conversation
        await room.aclose()


async def test_an_agent_that_names_no_session_is_recognised_by_how_it_began(tmp_path: Path) -> None:
    """Pi and Gemini CLI send no name. Of two sessions that begin alike, the longer one is meant."""
    async with bench(tmp_path / "home") as made:
        short, _ = await imported_session(made, tmp_path)
        lines = [{**line, "sessionId": "session-2"} for line in short.lines]
        agent = WatchedAgent(made, tmp_path, [*short.units], lines, session="session-2")
        reply = agent.next_reply("answer 2", calls=False)
        agent.write_reply(reply)
        agent.units.append(reply)
        await agent.read_file()
        longer = max(made.list_conversations(), key=lambda row: row.updated).id
        agent.say("question 3")
        agent.sent_name = ""
        room = LocalAgentConversations(made, _nobody)
        assert (await agent.ask(room)).ticket.conversation == longer
        other = WatchedAgent(made, tmp_path, sent_name="")
        other.units = [*agent.units]
        other.units[1] = other.next_reply("Another first answer.", calls=False)
        assert (await other.ask(room)).ticket.conversation not in (longer, short.session)
        await room.aclose()
        assert len(made.list_conversations()) == 3


SUMMARY = "This session is being continued from a previous conversation. We have counted."
LONG_ANSWER = "An answer that no other session has. " * 8


@pytest.mark.parametrize("name", ["session-1", ""])
@pytest.mark.parametrize("imported_behind", [False, True])
async def test_an_imported_session_that_its_agent_has_compacted_goes_on_in_its_own_conversation(
    tmp_path: Path, name: str, imported_behind: bool
) -> None:
    """It began without the gateway, and was a second conversation from then on. Without a name it is
    joined only by what is behind the summary.
    """
    async with bench(tmp_path / "home") as made:
        agent, conversation = await imported_session(made, tmp_path)
        agent.lines.pop()
        boundary = written.claude_line(3, "system", None, subtype="compact_boundary")
        agent._write_line(boundary | {"logicalParentUuid": "u2"})
        agent._write_line(written.claude_said(4, 3, SUMMARY, isCompactSummary=True))
        agent.units = [{"role": "user", "content": [{"type": "text", "text": SUMMARY}]}]
        agent.say("question 2")
        if imported_behind:
            reply = agent.next_reply(LONG_ANSWER, calls=False)
            agent.write_reply(reply)
            agent.units.append(reply)
            await agent.read_file()
            agent.say("question 3")
        agent.sent_name = name
        room = LocalAgentConversations(made, _nobody)
        sent = await agent.ask(room)
        is_known = bool(name) or imported_behind
        assert (sent.ticket.conversation == conversation) is is_known
        reply = agent.next_reply("last answer", calls=False)
        await agent.get_reply(room, sent, reply)
        await room.aclose()
        agent.write_reply(reply)
        if is_known:  # The recorder reads what the gateway has recorded.
            await agent.read_file()
        rows = made.list_conversations()
        assert len(rows) == (1 if is_known else 2)
        facts = await made.read_conversation_facts(sent.ticket.conversation)
        texts = texts_on_path(facts)
        assert texts[-1] == "last answer"
        for words in ("question 2", *([LONG_ANSWER, "question 3"] if imported_behind else [])):
            assert texts.count(words) == 1, texts
        if is_known:
            assert texts[:2] == ["question 1", "answer 1"], "nothing of it is lost"


async def test_two_imported_sessions_with_the_same_end_are_never_joined(tmp_path: Path) -> None:
    async with bench(tmp_path / "home") as made:
        for session in ("session-1", "session-2"):
            agent = WatchedAgent(made, tmp_path, session=session)
            for words, answer in ((session, "first"), ("the same", LONG_ANSWER)):
                agent.say(words)
                reply = agent.next_reply(answer, calls=False)
                agent.write_reply(reply)
                agent.units.append(reply)
            await agent.read_file()
        before = {row.id for row in made.list_conversations()}
        agent.units[:2] = [{"role": "user", "content": [{"type": "text", "text": SUMMARY}]}]
        agent.say("go on")
        agent.sent_name = ""
        room = LocalAgentConversations(made, _nobody)
        assert (await agent.ask(room)).ticket.conversation not in before
        await room.aclose()


async def compact_and_import(agent: WatchedAgent, summary: str) -> None:
    """The session was shortened without the gateway: its file has the summary, and the end of its
    requests is one short answer. Its requests have no name.
    """
    for words, answer in (
        (f"{agent.session} begins", LONG_ANSWER * 5),
        ("the same", "All done."),
    ):
        agent.say(words)
        reply = agent.next_reply(answer, calls=False)
        agent.write_reply(reply)
        agent.units.append(reply)
    boundary = written.claude_line(5, "system", None, subtype="compact_boundary")
    kept = {"preservedMessages": {"uuids": ["u4"]}}
    agent._write_line(boundary | {"logicalParentUuid": "u4", "compactMetadata": kept})
    agent._write_line(written.claude_said(6, 5, summary, isCompactSummary=True))
    await agent.read_file()
    said = f"{SUMMARY}\n<summary>\n{summary}\n</summary>"
    agent.units[:3] = [{"role": "user", "content": [{"type": "text", "text": said}]}]
    agent.say("go on")
    agent.sent_name = ""


LONG_SUMMARY = "We have counted, and there is more to say about it. " * 3


@pytest.mark.parametrize("is_alike", [False, True])
async def test_a_session_without_a_name_is_recognised_by_the_summary_in_its_file(
    tmp_path: Path, is_alike: bool
) -> None:
    """Pi with little behind its summary was a second conversation. Two sessions that end with the
    same words are told apart by their summaries, and never joined if those are alike, too.
    """
    async with bench(tmp_path / "home") as made:
        agents: list[WatchedAgent] = []
        for session in ("session-1", "session-2"):
            agent = WatchedAgent(made, tmp_path, session=session)
            own_words = "" if is_alike else f"It was {session}."
            await compact_and_import(agent, f"{LONG_SUMMARY}{own_words}")
            agents.append(agent)
        conversations = {row.title: row.id for row in made.list_conversations()}
        assert len(conversations) == 2
        room = LocalAgentConversations(made, _nobody)
        for agent in agents:
            own = conversations[f"{agent.session} begins"]
            sent = await agent.ask(room)
            found = sent.ticket.conversation
            if is_alike:
                assert found not in conversations.values()
                continue
            assert found == own
            await agent.get_reply(room, sent, agent.next_reply("last answer", calls=False))
            texts = texts_on_path(await made.read_conversation_facts(own))
            assert texts[0] == f"{agent.session} begins", "nothing of it is lost"
            assert [texts.count(words) for words in ("the same", "All done.", "go on")] == [1] * 3
        await room.aclose()


@pytest.mark.parametrize("has_reply", [False, True])
@pytest.mark.parametrize("name", ["session-1", "session-2"])
async def test_a_session_with_a_name_goes_on_behind_a_summary_in_any_form(
    tmp_path: Path, name: str, has_reply: bool
) -> None:
    """Codex's is for its provider alone, opencode's is a reply: both were second conversations."""
    async with bench(tmp_path / "home") as made:
        agent = WatchedAgent(made, tmp_path)
        await compact_and_import(agent, LONG_SUMMARY)
        (row,) = made.list_conversations()
        before = await made.read_conversation_facts(row.id)
        agent.units = []
        agent.say("What did we do so far?")
        if has_reply:
            agent.units.append(agent.next_reply(LONG_SUMMARY, calls=False))
        agent.say("go on")
        agent.sent_name = name
        room = LocalAgentConversations(made, _nobody)
        sent = await agent.ask(room)
        await room.aclose()
        assert (sent.ticket.conversation == row.id) is (name == agent.session)
        after = await made.read_conversation_facts(row.id)
        assert after[: len(before)] == before, "nothing of it is lost"
        if name == agent.session:
            assert texts_on_path(after)[-1] == "go on"


@pytest.mark.parametrize("change", ["continued", "trashed", "another answer", "another session"])
async def test_an_imported_session_that_is_another_one_by_now_stays_as_it_is(
    tmp_path: Path, change: str
) -> None:
    async with bench(tmp_path / "home") as made:
        agent, conversation = await imported_session(made, tmp_path)
        session = await made.open_session(conversation)
        if change == "continued":
            await session.conversation.append_facts(UserSaid((Text("said here", 2),)))
        elif change == "trashed":
            await session.conversation.append_facts(ConversationChanged(trashed=True))
        elif change == "another answer":
            agent.units[1]["content"][0]["text"] = "Something else was the answer."
        else:
            agent.session = "session-2"
        before = await made.read_conversation_facts(conversation)
        room = LocalAgentConversations(made, _nobody)
        sent = await agent.ask(room)
        await room.aclose()
        assert sent.ticket.conversation != conversation
        assert await made.read_conversation_facts(conversation) == before


def test_only_an_import_with_facts_of_its_own_has_imported_something() -> None:
    origin = Origin("claude-code", "s", "/s.jsonl")

    def recorded(*facts: Fact) -> list[Recorded]:
        return [Recorded("c", seq, 1.0, fact) for seq, fact in enumerate(facts, 1)]

    said = UserSaid((Text("go"),))
    with_words = recorded(Received((), ()), said, BroughtIn(origin, "run", 2))
    assert has_imported_facts(with_words, 1)
    assert not has_imported_facts(with_words, 3)
    # A note that the file has nothing new, and what the gateway took over from a request.
    assert not has_imported_facts(recorded(Received((), ()), BroughtIn(origin, "run", 2)), 1)
    assert not has_imported_facts(recorded(Received((), ()), said, BroughtIn(Origin(), "", 2)), 1)
    assert not has_imported_facts(recorded(Received((), ()), said), 1)
