"""What the user took out of an agent's context reaches no provider, whatever fails on the way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_desktop.engine import facts, message_blocks
from helix_desktop.engine.session import Session
from helix_desktop.errors import StoreBusy
from helix_desktop.gateway import request_handling
from helix_desktop.gateway.conversations_port import Replied
from helix_desktop.gateway.folded_request import build_folded_body
from helix_desktop.gateway.incremental_parsing import MOST_LEVELS
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import PieceKind
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from tests.conftest import Expect
from tests.faults.gateway_histories import _nobody, bench
from tests.gateway.running import PROTOCOLS, Agent, open_here
from tests.gateway.test_gateway_app import Running, running
from tests.gateway.test_local_conversations import arrival
from tests.peers.agent_provider import WRITERS, Asked, Block, Calls, Raw, Says

Json = Any
SECRET = "the password is 4711"
REFUSED = Raw(json.dumps({"error": {"message": "no such form"}}).encode(), status=400)
USAGE = {"input": 3, "read": 0, "write": 0}


async def take_out(session: Session, words: str = "4711") -> None:
    """Every part with these words, as the inspector does it."""
    state = session.conversation.state
    taken_out = set(state.branch.exclusions)
    for recorded in tuple(state.facts):
        fact = recorded.fact
        if isinstance(fact, facts.UserSaid | facts.ModelReplied | facts.ToolReturned):
            for place, part in enumerate(message_blocks.parts_of(fact)):
                ref = facts.PartRef(recorded.seq, place)
                text = (
                    getattr(part, "text", "")
                    + getattr(part, "arguments", "")
                    + getattr(fact, "head", "")
                )
                if words in text and ref not in taken_out:
                    await session.context.exclude_part(ref)


async def bring_back(session: Session) -> None:
    await session.conversation.append_facts(
        *map(facts.Included, tuple(session.conversation.state.branch.exclusions))
    )


# --- Through the gateway


class Talk:
    """One agent's conversation through a gateway. `refuses`: how many more of its
    requests the provider refuses, those that add tools first; `sent`: the bodies since
    the secret was taken out.
    """

    def __init__(self, protocol: str) -> None:
        self.agent = Agent(protocol, "", streams=False, session="one")
        self.refuses_changed = self.refuses_all = False
        self.sent: list[bytes] = []
        self.here: Running

    def script(self, asked: Asked) -> Sequence[Block] | Raw:
        self.sent.append(asked.raw)
        if self.refuses_all or (self.refuses_changed and b"recall" in asked.raw):
            return REFUSED
        if (
            b"tool_result" not in asked.raw
            and b"function_call_output" not in asked.raw
            and len(self.sent) == 1
        ):
            return [Says(f"I look, {SECRET}"), Calls("Bash", {"command": f"echo {SECRET}"}, "c1")]
        return [Says("fine")]

    async def post(self, path: str = "", content: bytes = b"") -> httpx.Response:
        headers = {
            "x-claude-code-session-id": "one",
            "content-type": "application/json",
            "x-api-key": "k",
        }
        content = content or json.dumps(self.agent.body()).encode()
        return await self.here.client.post(
            self.here.url + (path or self.agent.path), content=content, headers=headers
        )

    async def begin(self, here: Running) -> None:
        """A question, a call and its result, each with the secret, which is taken out then."""
        self.here = here
        self.agent.say(f"look around, {SECRET}")
        answer = WIRE_MODULES[self.agent.protocol].parse_reply((await self.post()).json())
        self.agent.units += answer.message.units
        (call,) = answer.message.pieces_of_kind(PieceKind.CALL)
        self.agent.results([(call.id, "Bash", SECRET)])
        answer = WIRE_MODULES[self.agent.protocol].parse_reply((await self.post()).json())
        self.agent.units += answer.message.units
        await take_out(await self.session())
        self.agent.say("go on")
        self.sent.clear()

    async def session(self) -> Session:
        room = await open_here(self.here.app.memory)
        return await room._bench.open_session(self.here.conversation)

    def secret_was_sent(self) -> bool:
        return any(b"4711" in raw for raw in self.sent)


@asynccontextmanager
async def talking(tmp_path: Path, protocol: str = "anthropic") -> AsyncIterator[Talk]:
    talk = Talk(protocol)
    async with running(tmp_path, talk.script) as here:  # type: ignore[arg-type]
        await talk.begin(here)
        yield talk


all_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@all_protocols
async def test_a_request_whose_form_is_refused_is_sent_in_the_agents_own_without_what_was_taken_out(
    tmp_path: Path, protocol: str, expect: Expect
) -> None:
    expect("the provider refused a changed request")
    async with talking(tmp_path, protocol) as talk:
        talk.refuses_changed = True
        again = await talk.post()
        assert again.status_code == 200
        assert [b"recall" in raw for raw in talk.sent] == [True, False]
        assert not talk.secret_was_sent()
        assert b"look around" not in talk.sent[-1]
        assert message_blocks.EXCLUDED.encode() in talk.sent[-1]
        await bring_back(await talk.session())
        talk.agent.units += WIRE_MODULES[protocol].parse_reply(again.json()).message.units
        talk.agent.say("and on")
        assert (await talk.post()).status_code == 200
        assert talk.sent[-1].count(SECRET.encode()) >= 3, "what was brought back goes on as it came"


@all_protocols
async def test_who_is_refused_for_what_was_taken_out_is_told_so(
    tmp_path: Path, protocol: str, expect: Expect
) -> None:
    expect("the provider refused a changed request")
    async with talking(tmp_path, protocol) as talk:
        talk.refuses_all = True
        refused = await talk.post()
        assert refused.status_code == 400
        said = refused.json()["error"]["message"]
        assert "no such form" in said
        assert "What you took out" in said
        assert "Nothing was lost" in said
        assert not talk.secret_was_sent()


@all_protocols
async def test_what_was_taken_out_is_not_sent_where_a_request_cannot_be_recorded(
    tmp_path: Path, protocol: str, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect("a request could not be recorded")
    async with talking(tmp_path, protocol) as talk:
        monkeypatch.setattr(request_handling, "RECORD_TIMEOUT_SECONDS", 0.0)
        assert (await talk.post()).status_code == 200
        assert not talk.secret_was_sent()
        assert len(talk.sent) == 1


async def test_what_was_taken_out_is_not_sent_where_the_workspace_cannot_be_opened(
    tmp_path: Path, expect: Expect
) -> None:
    expect("requests go on unfolded")
    async with talking(tmp_path) as talk:
        assert (await talk.post()).status_code == 200
        talk.here.app.memory.use_conversations = _busy
        assert (await talk.post()).status_code == 200
        assert not talk.secret_was_sent()
        talk.agent.units[0]["content"] = "something else"
        assert (await talk.post()).status_code == 200
        assert talk.secret_was_sent(), "of another conversation nothing was taken out"


async def test_tokens_are_counted_without_what_was_taken_out_where_the_view_cannot_be_made(
    tmp_path: Path, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect("a count of tokens is asked for the unfolded request")
    async with talking(tmp_path) as talk:
        path = "/v1/messages/count_tokens"
        assert (await talk.post(path)).status_code == 200
        (room,) = talk.here.app.memory.list_open_conversations()
        monkeypatch.setattr(room, "preview_request", _fails)
        assert (await talk.post(path)).status_code == 200
        counted = [
            asked.raw for asked in talk.here.provider.asked if asked.path.endswith("count_tokens")
        ]
        assert len(counted) == 2
        assert not any(b"4711" in raw for raw in counted)


@pytest.mark.parametrize("levels", [MOST_LEVELS // 3, MOST_LEVELS * 2])
async def test_a_request_that_cannot_be_read_or_written_is_not_sent_where_something_was_taken_out(
    tmp_path: Path, expect: Expect, levels: int
) -> None:
    """Values that are nested so deep are read and not written, or not read at all."""
    if levels < MOST_LEVELS:
        expect("a request could not be folded")
    async with talking(tmp_path) as talk:
        assert (await talk.post()).status_code == 200
        talk.sent.clear()
        body = json.dumps({**talk.agent.body(), "metadata": None}).encode()
        refused = await talk.post(
            content=body.replace(b"null", b"[" * levels + b"]" * levels) + b" " * 8_000
        )
        assert refused.status_code == 400
        assert "excluded part of this conversation" in refused.json()["error"]["message"]
        assert talk.sent == []
        await bring_back(await talk.session())
        talk.agent.units[-1]["content"][0]["text"] = "go on then"
        assert (await talk.post()).status_code == 200
        talk.here.app.memory.taken_out.refuse_if_anything_taken_out("one")


@asynccontextmanager
async def _busy(_name: str) -> AsyncIterator[Any]:
    raise StoreBusy("Another program has the workspace open.")
    yield


async def _fails(*_: object) -> None:
    raise RuntimeError("the journal is gone")


# --- When the agent goes back


async def spoken(room: LocalAgentConversations, session: str) -> tuple[list[Json], str]:
    """A conversation of three requests, with the secret in the first; its messages and its name."""
    units: list[Json] = [anthropic_gateway.user_message(SECRET)]
    name = ""
    for number in range(3):
        sent = await room.receive_request(*arrival(units, session))
        name = sent.ticket.conversation
        answer = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole([Says(f"answer {number}")], USAGE, str(number))
        )
        replied = Replied(answer.message.pieces, "m", answer.stop, facts.Usage())
        await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
        units += [*answer.message.units, anthropic_gateway.user_message(f"go on {number}")]
    return units, name


async def body_of(
    room: LocalAgentConversations, units: list[Json], session: str, *, counts: bool = False
) -> str:
    asks, said = arrival(units, session)
    sent = await (room.preview_request(asks, said) if counts else room.receive_request(asks, said))
    if not sent.entries:
        return json.dumps(units)
    return json.dumps(build_folded_body("anthropic", {"messages": units}, said, sent.entries))


@pytest.mark.parametrize("session", ["s", ""])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("count", [1, 3, 5])
async def test_what_was_taken_out_stays_out_when_the_agent_asks_an_earlier_question_again(
    tmp_path: Path, session: str, count: int, counts: bool
) -> None:
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        units, name = await spoken(room, session)
        await take_out(await made.open_session(name))
        assert "4711" not in await body_of(room, units[:count], session, counts=counts)
        assert "4711" not in await body_of(
            room, [*units[:count], *units[1:3]], session, counts=counts
        )
        await room.aclose()


@pytest.mark.parametrize("session", ["s", ""])
@pytest.mark.parametrize("again", [1, 2, 4])
async def test_what_was_taken_out_stays_out_when_the_agent_says_something_else(
    tmp_path: Path, session: str, again: int
) -> None:
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        units, name = await spoken(room, session)
        await take_out(await made.open_session(name))
        other = [*units[:again], anthropic_gateway.user_message("something else")]
        assert "4711" not in await body_of(room, other, session)
        assert "4711" not in await body_of(
            room, [*units, anthropic_gateway.user_message("after all")], session
        )
        await room.aclose()


async def test_what_was_taken_out_while_a_reply_came_stays_out_when_the_agent_never_got_the_reply(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        units, name = await spoken(room, "s")
        sent = await room.receive_request(*arrival(units, "s"))
        line = room._matcher.find_known_messages(name)
        assert line is not None
        async with line.lock_once_recorded():
            await take_out(await made.open_session(name))
        answer = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole([Calls("recall", {}, "r")], USAGE, "9")
        )
        replied = Replied(answer.message.pieces, "m", answer.stop, facts.Usage())
        await room.answer_hidden_calls(sent.ticket, replied, answer.message.pieces)
        body = await body_of(room, units, "s")
        assert "go on 2" in body
        assert "4711" not in body
        await room.aclose()
