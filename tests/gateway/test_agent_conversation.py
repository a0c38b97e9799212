"""Replies of connected agents as facts have them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    Fact,
    Folded,
    ModelReplied,
    ModelRole,
    ModelSet,
    Reasoning,
    Rewound,
    Spent,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.prompt_cache_terms import cache_lifetime_seconds
from helix_desktop.engine.request_changes import CauseKind
from helix_desktop.engine.request_costs import read_original_and_explain_requests
from helix_desktop.engine.view import build_state
from helix_desktop.gateway.agent_conversation import _decode_base64_or_keep_text, parts_from_pieces
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import (
    AgentConversations,
    Arrival,
    Replied,
    Sent,
    Ticket,
)
from helix_desktop.gateway.folded_request import are_all_unchanged
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.view_entries import ChangedMessage, UnchangedMessage
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import (
    SLICE,
    Piece,
    PieceKind,
    ProtocolMessage,
    Speaker,
)
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.model_prices import shipped_prices
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.workbench.open_workbench import Workbench
from tests.faults.gateway_histories import TOOLS, _nobody, bench
from tests.peers.agent_provider import WRITERS, Calls, Says


def test_what_a_reply_says_thinks_and_calls_keeps_its_order() -> None:
    pieces = [
        Piece(PieceKind.REASONING, "hm"),
        Piece(PieceKind.TEXT, "I look."),
        Piece(PieceKind.CALL, '{"path": "a"}', id="c1", name="read"),
    ]
    assert parts_from_pieces(pieces) == (
        Reasoning("hm"),
        Text("I look."),
        ToolCall("c1", "read", '{"path": "a"}'),
    )


def test_empty_words_and_thoughts_of_a_reply_are_left_out_and_a_call_without_arguments_is_not() -> (
    None
):
    empty = [Piece(PieceKind.REASONING, ""), Piece(PieceKind.TEXT, "")]
    assert parts_from_pieces([*empty, Piece(PieceKind.CALL, "", id="c1", name="ls")]) == (
        ToolCall("c1", "ls", ""),
    )
    assert parts_from_pieces(empty) == parts_from_pieces([]) == (Text(""),)


def test_a_block_nobody_here_knows_and_a_picture_are_recorded_and_results_are_no_words_of_a_reply() -> (
    None
):
    result = Piece(PieceKind.RESULT, "output", id="c1")
    picture = Piece(PieceKind.IMAGE, "aGVsbG8=", media_type="image/png")
    assert parts_from_pieces([result, picture, Piece(PieceKind.OTHER, "x" * 2_000)]) == (
        Text('[{"image":"image/png","data":"aGVsbG8="}]'),
        Text(f"[{'x' * 2_000}]"),
    )
    assert parts_from_pieces([Piece(PieceKind.OTHER, "")]) == (Text("[]"),)


def test_of_a_long_block_nobody_here_knows_all_fields_are_recorded_and_what_is_missing_is_said() -> (
    None
):
    block = {"type": "mcp_call", "output": "x" * 5_000, "lines": ["y" * 2_001, 3], "status": "ok"}
    (part,) = parts_from_pieces([Piece(PieceKind.OTHER, json.dumps(block))])
    assert isinstance(part, Text)
    recorded = json.loads(part.text[1:-1])
    assert recorded["output"] == "x" * 2_000 + "… (3,000 more characters were not recorded)"
    assert recorded["lines"] == ["y" * 2_000 + "… (1 more characters were not recorded)", 3]
    assert (recorded["type"], recorded["status"]) == ("mcp_call", "ok")
    (part,) = parts_from_pieces([Piece(PieceKind.OTHER, json.dumps({"all": ["z" * 1_000] * 40}))])
    assert isinstance(part, Text)
    assert 20_000 < len(part.text) < 20_100
    assert part.text.endswith(" more characters were not recorded)]")
    (part,) = parts_from_pieces([Piece(PieceKind.OTHER, "z" * 30_000)])
    assert part == Text(f"[{'z' * 20_000}… (10,000 more characters were not recorded)]")


def test_pictures_are_read_in_slices_and_text_that_is_none_is_taken_as_it_is() -> None:
    content = bytes(range(256)) * (SLICE // 128)
    assert _decode_base64_or_keep_text(base64.b64encode(content).decode()) == content
    assert _decode_base64_or_keep_text("no base64 ä!") == "no base64 ä!".encode()


# --- in a workspace


class Room:
    """An agent that says something, in a room of its own; its provider answers as it is told."""

    def __init__(self, bench: Workbench, room: AgentConversations | None = None) -> None:
        self.bench = bench
        self.room: Any = room or LocalAgentConversations(bench, _nobody)
        self.units: list[Any] = []

    def arrival(self, session: str = "s", **changed: Any) -> tuple[Arrival, list[ProtocolMessage]]:
        said = anthropic_gateway.parse_messages({"messages": self.units})
        chain = compute_message_hashes("anthropic", said)
        made = Arrival(
            "anthropic", "an agent", session, "head", "claude-opus-4-6", "system", TOOLS, chain
        )
        return replace(made, **changed), said

    async def send(self, *units: Any, session: str = "s", **changed: Any) -> Sent:
        self.units += units
        sent: Sent = await self.room.receive_request(*self.arrival(session, **changed))
        return sent

    async def answer(
        self,
        sent: Sent,
        *says: Any,
        stop: Stop = Stop.END,
        usage: Usage = Usage(),  # noqa: B008
    ) -> None:
        whole = WRITERS["anthropic"].whole(
            list(says), {"input": 3, "read": 0, "write": 0}, str(len(self.units))
        )
        message = anthropic_gateway.parse_reply(whole).message
        replied = Replied(message.pieces, "claude-opus-4-6", stop, usage)
        await self.room.record_agent_reply(sent.ticket, replied, message.identity_key)
        self.units += message.units

    async def facts(self, sent: Sent) -> list[Fact]:
        """What was said and done, without its settings and without the notes about requests."""
        await self.room._tasks.wait_for_all_tasks()
        recorded = await self.bench.read_conversation_facts(sent.ticket.conversation)
        kinds = (UserSaid, ModelReplied, ToolReturned, TurnEnded, Rewound, Spent)
        return [each.fact for each in recorded if isinstance(each.fact, kinds)]


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Room]:
    async with bench(tmp_path) as made:
        room = Room(made)
        yield room
        await room.room.aclose()


def kinds(found: Sequence[Fact]) -> list[str]:
    return [type(each).__name__ for each in found]


def texts(fact: Fact) -> list[str]:
    assert isinstance(fact, UserSaid | ModelReplied)
    return [part.text if isinstance(part, Text) else type(part).__name__ for part in fact.parts]


async def test_a_turn_of_an_agent_is_a_turn_here(agent: Room) -> None:
    await agent.answer(await agent.send(anthropic_gateway.user_message("look")), Says("I look"), Calls("Bash", {"a": 1}, "c1"), stop=Stop.CALLS)  # fmt: skip
    sent = await agent.send(anthropic_gateway.result_message("c1", "Bash", "out"))
    await agent.answer(sent, Says("Done."), usage=Usage(10, 5, 0, 3))
    said, replied, returned, done, ended = await agent.facts(sent)
    assert isinstance(said, UserSaid)
    assert not said.steering
    assert (texts(said), texts(replied), texts(done)) == (
        ["look"],
        ["I look", "ToolCall"],
        ["Done."],
    )
    assert isinstance(replied, ModelReplied)
    assert isinstance(done, ModelReplied)
    assert (replied.stop, done.stop) == (Stop.CALLS, Stop.END)
    assert (done.usage.input, done.usage.cache_read, done.usage.output) == (10, 5, 3)
    assert done.usage.cost > 0
    assert done.model == "anthropic/claude-opus-4-6"
    assert isinstance(returned, ToolReturned)
    assert (returned.call, returned.head, returned.ok) == ("c1", "out", True)
    assert ended == TurnEnded(TurnEnd.DONE)


async def test_settings_of_a_request_are_recorded_where_they_are_others(agent: Room) -> None:
    def settings(sent: Sent) -> Any:
        return agent.room._open_conversations[sent.ticket.conversation].conversation.state.settings

    sent = await agent.send(anthropic_gateway.user_message("look"))
    assert settings(sent).system == SystemSet("system", 1)
    assert [tool.name for tool in settings(sent).tools.tools] == [tool.name for tool in TOOLS]
    assert settings(sent).model_for_role(ModelRole.MAIN).model == "anthropic/claude-opus-4-6"
    count = agent.bench.token_counter.count_tokens
    assert settings(sent).tools.tokens == sum(
        count(f"{tool.name}{tool.description}{tool.schema}") for tool in TOOLS
    )
    await agent.answer(sent, Says("Done."))
    seen = len(await agent.bench.read_conversation_facts(sent.ticket.conversation))
    other = await agent.send(
        anthropic_gateway.user_message("on"), system="other", tools=(), model="claude-haiku-4-5"
    )
    assert (settings(other).system.text, settings(other).tools.tools) == ("other", ())
    assert settings(other).model_for_role(ModelRole.MAIN).model == "anthropic/claude-haiku-4-5"
    await agent.answer(other, Says("Done."))
    recorded = await agent.bench.read_conversation_facts(sent.ticket.conversation)
    new = [type(each.fact).__name__ for each in recorded[seen:]]
    assert sorted({name for name in new if name.endswith("Set") or name == "ToolsOffered"}) == ["ModelSet", "SystemSet", "ToolsOffered"]  # fmt: skip


async def test_an_agent_that_is_only_watched_gets_no_folds(agent: Room) -> None:
    calls = [agent.send(anthropic_gateway.user_message("look"), fold=False)]
    for number in range(3):
        sent = await calls.pop()
        await agent.answer(sent, Calls("Bash", {}, f"c{number}"), stop=Stop.CALLS)
        calls = [
            agent.send(
                anthropic_gateway.result_message(f"c{number}", "Bash", "a line of it\n" * 40_000),
                fold=False,
            )
        ]
    sent = await calls.pop()
    assert are_all_unchanged(sent.entries, len(agent.units))
    assert not sent.recallable
    recorded = await agent.bench.read_conversation_facts(sent.ticket.conversation)
    assert not any(isinstance(each.fact, Folded) for each in recorded)


async def test_results_come_in_any_order_and_belong_to_their_calls(agent: Room) -> None:
    await agent.answer(await agent.send(anthropic_gateway.user_message("look")), *(Calls("Bash", {}, f"c{at}") for at in (1, 2)), stop=Stop.CALLS)  # fmt: skip
    blocks = [
        anthropic_gateway.result_message(f"c{at}", "Bash", f"output {at}")["content"][0]
        for at in (2, 1)
    ]
    failed = {**blocks[0], "is_error": True}
    sent = await agent.send(
        {"role": "user", "content": [failed, blocks[1], {"type": "text", "text": "and stop"}]}
    )
    await agent.answer(sent, Says("Done."))
    found = await agent.facts(sent)
    returned = {fact.call: (fact.head, fact.ok) for fact in found if isinstance(fact, ToolReturned)}
    assert returned == {"c1": ("output 1", True), "c2": ("output 2", False)}
    (aside,) = [fact for fact in found[2:] if isinstance(fact, UserSaid)]
    assert (texts(aside), aside.steering) == (["and stop"], True)
    assert kinds(found)[-2:] == ["ModelReplied", "TurnEnded"]


async def test_a_result_of_no_call_and_blocks_nobody_knows_are_kept(agent: Room) -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="},
    }
    novelty = {"type": "novelty", "words": "x"}
    sent = await agent.send(
        {"role": "user", "content": [{"type": "text", "text": "look"}, image, novelty]}
    )
    await agent.answer(sent, Says("Done."))
    lost = await agent.send(anthropic_gateway.result_message("nowhere", "Bash", "lost"))
    await agent.answer(lost, Says("Odd."))
    found = await agent.facts(lost)
    first = found[0]
    assert isinstance(first, UserSaid)
    (_, picture, block) = first.parts
    assert isinstance(picture, Attachment)
    assert isinstance(block, Attachment)
    assert (picture.name, block.name, block.stored.media_type) == (
        "image",
        "block",
        "application/json",
    )
    assert await agent.bench.workspace.cache.read_content(picture.stored.digest) == b"hello"
    kept = await agent.bench.workspace.cache.read_content(block.stored.digest)
    assert json.loads(kept)["words"] == "x"
    assert block.tokens == agent.bench.token_counter.count_tokens(kept.decode())
    assert not any(isinstance(fact, ToolReturned) for fact in found)
    (said,) = [fact for fact in found[1:] if isinstance(fact, UserSaid)]
    assert texts(said) == ["lost"]


async def test_a_picture_that_a_call_returned_is_kept(agent: Room) -> None:
    await agent.answer(await agent.send(anthropic_gateway.user_message("look")), Calls("Read", {}, "c1"), stop=Stop.CALLS)  # fmt: skip
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    content = [{"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": content}
    sent = await agent.send({"role": "user", "content": [result]})
    await agent.answer(sent, Says("A dot."))
    (returned,) = [fact for fact in await agent.facts(sent) if isinstance(fact, ToolReturned)]
    (picture,) = returned.images
    assert picture.media_type == "image/png"
    assert await agent.bench.workspace.cache.read_content(picture.digest) == b"hello"


async def test_a_conversation_that_is_brought_along_is_recorded_with_its_replies(
    agent: Room,
) -> None:
    called = anthropic_gateway.parse_reply(WRITERS["anthropic"].whole([Calls("Bash", {}, "c1")], {"input": 3, "read": 0, "write": 0}, "1"))  # fmt: skip
    sent = await agent.send(
        anthropic_gateway.user_message("look"),
        *called.message.units,
        anthropic_gateway.result_message("c1", "Bash", "out"),
        {"role": "assistant", "content": "Done."},
        anthropic_gateway.user_message("and on"),
    )
    found = await agent.facts(sent)
    assert kinds([fact for fact in found if not isinstance(fact, TurnEnded)]) == [
        "UserSaid", "ModelReplied", "ToolReturned", "ModelReplied", "UserSaid",
    ]  # fmt: skip
    assert [fact.stop for fact in found if isinstance(fact, ModelReplied)] == [Stop.CALLS, Stop.END]
    (returned,) = [fact for fact in found if isinstance(fact, ToolReturned)]
    assert returned.head == "out"


async def test_outputs_belong_to_their_own_calls_although_each_reply_uses_the_same_id(
    agent: Room,
) -> None:
    """The journal had the last output in the place of all others, which were lost."""
    said: list[Any] = [anthropic_gateway.user_message("compare")]
    long = [f"content of {name} " * 400 for name in "abc"]
    for output in long:
        reply = WRITERS["anthropic"].whole(
            [Calls("Bash", {}, "call_0")], {"input": 3, "read": 0, "write": 0}, "1"
        )
        said += [
            *anthropic_gateway.parse_reply(reply).message.units,
            anthropic_gateway.result_message("call_0", "Bash", output),
        ]
    sent = await agent.send(*said, anthropic_gateway.user_message("and on"))
    returned = [fact for fact in await agent.facts(sent) if isinstance(fact, ToolReturned)]
    cache = agent.bench.workspace.cache
    assert [(await cache.read_content(fact.output.digest)).decode() for fact in returned] == long


async def test_a_request_with_nothing_due_goes_ahead_and_others_wait(agent: Room) -> None:
    await agent.answer(
        await agent.send(anthropic_gateway.user_message("look")),
        Calls("Bash", {}, "c1"),
        stop=Stop.CALLS,
    )
    short = await agent.send(anthropic_gateway.result_message("c1", "Bash", "out"))
    assert short.ticket.ahead
    await agent.answer(short, Calls("Bash", {}, "c2"), stop=Stop.CALLS)
    long = await agent.send(
        anthropic_gateway.result_message("c2", "Bash", "a line of it\n" * 40_000)
    )
    assert not long.ticket.ahead
    await agent.answer(long, Says("Done."))
    other = await agent.send(anthropic_gateway.user_message("on"), system="other")
    assert not other.ticket.ahead, "its settings are others"
    await agent.answer(other, Says("Done."))
    again = await agent.room.receive_request(*agent.arrival(system="other"))
    assert not again.ticket.ahead, "nothing is new"
    odd = await agent.send({"role": "user", "content": [{"type": "novelty"}]}, system="other")
    assert not odd.ticket.ahead, "nobody knows what it costs"
    found = await agent.facts(odd)
    assert [texts(fact) for fact in found if isinstance(fact, UserSaid)][-2:] == [
        ["on"],
        ["Attachment"],
    ]


async def test_an_agent_that_takes_back_its_words_rewinds_its_own_conversation(agent: Room) -> None:
    await agent.answer(await agent.send(anthropic_gateway.user_message("one")), Says("first"))
    await agent.answer(await agent.send(anthropic_gateway.user_message("two")), Says("second"))
    del agent.units[2:]
    sent = await agent.send(anthropic_gateway.user_message("other"))
    await agent.answer(sent, Says("third"))
    assert len(agent.bench.list_conversations()) == 1
    found = await agent.facts(sent)
    state = build_state(await agent.bench.read_conversation_facts(sent.ticket.conversation))
    shown = [each.fact for each in state.facts_on_path()]
    assert [texts(fact)[0] for fact in shown if isinstance(fact, UserSaid | ModelReplied)] == ["one", "first", "other", "third"]  # fmt: skip
    assert kinds(found).count("Rewound") == 1
    del agent.units[:]
    sent = await agent.send(anthropic_gateway.user_message("anew"))
    state = build_state(await agent.bench.read_conversation_facts(sent.ticket.conversation))
    shown = [each.fact for each in state.facts_on_path()]
    assert [texts(fact) for fact in shown if isinstance(fact, UserSaid | ModelReplied)] == [
        ["anew"]
    ]


async def test_an_agent_without_names_gets_a_conversation_of_its_own_where_it_goes_another_way(
    agent: Room,
) -> None:
    await agent.answer(
        await agent.send(anthropic_gateway.user_message("one"), session=""), Says("first")
    )
    first = await agent.send(anthropic_gateway.user_message("two"), session="")
    await agent.answer(first, Says("second"))
    del agent.units[2:]
    sent = await agent.send(anthropic_gateway.user_message("other"), session="")
    await agent.answer(sent, Says("third"))
    rows = agent.bench.list_conversations()
    assert (len(rows), {row.agent for row in rows}) == (2, {"an agent"})
    assert sent.ticket.conversation != first.ticket.conversation
    state = build_state(await agent.bench.read_conversation_facts(sent.ticket.conversation))
    shown = [each.fact for each in state.facts_on_path()]
    assert [texts(fact)[0] for fact in shown if isinstance(fact, UserSaid | ModelReplied)] == ["one", "first", "other", "third"]  # fmt: skip
    restarted = Room(agent.bench)
    restarted.units = agent.units
    again = await restarted.send(anthropic_gateway.user_message("on"), session="")
    assert again.ticket.conversation == sent.ticket.conversation, (
        "after a restart it is found by what was said"
    )
    assert await restarted.room.count_known_messages(restarted.arrival("")[0]) == len(
        restarted.units
    )
    await restarted.room.aclose()


async def test_what_is_asked_beside_a_session_of_an_earlier_gateway_is_paid_in_its_conversation(
    agent: Room,
) -> None:
    """The server of opencode was told to shorten a session: its request for the summary was the only one
    of that run, and nobody paid for it.
    """
    first = await agent.send(anthropic_gateway.user_message("one"))
    await agent.answer(first, Says("done"), usage=Usage(5, 0, 0, 1))
    restarted = Room(agent.bench)
    find_session = restarted.room.find_conversation_asked_about
    assert await find_session("an agent", "another", "") == ""
    assert await find_session("another agent", "s", "") == ""
    conversation = await find_session("an agent", "s", "")
    assert conversation == first.ticket.conversation
    beside = Ticket(conversation, 0, "", 0, "anthropic", is_import=True)
    replied = Replied((), "claude-opus-4-6", Stop.END, Usage(100, 0, 0, 20))
    await restarted.room.record_agent_reply(beside, replied, "")
    assert kinds(await restarted.facts(first)) == ["UserSaid", "ModelReplied", "TurnEnded", "Spent"]
    await restarted.room.aclose()


async def test_a_question_for_a_summary_without_a_session_is_about_what_is_said_in_it(
    agent: Room,
) -> None:
    """Pi was told to shorten a session by itself, and its only request of that run was in no cost."""
    conversations = []
    for words in ("count the files", "count the files and the folders"):
        agent.units = []
        sent = await agent.send(anthropic_gateway.user_message(words), session="")
        await agent.answer(sent, Says(f"I have begun to {words}"))
        conversations.append(sent.ticket.conversation)
    restarted = Room(agent.bench)
    find = restarted.room.find_conversation_asked_about
    outputs = "12 files\n" * 400
    first = f"[User]: count the files\n[Assistant]: I have begun to count the files\n{outputs}"
    second = first.replace("the files\n", "the files and the folders\n")
    assert [await find("an agent", "", text) for text in (first, second)] == conversations
    title = f"Write a title for: count the files\n{outputs}"
    assert await find("an agent", "", title) == "", "it may be for one that begins now"
    assert await find("another agent", "", second) == ""
    assert await find("an agent", "", first[:100]) == ""
    await restarted.room.aclose()


@pytest.mark.parametrize("session", ["", "s"])
async def test_the_first_message_is_edited_and_the_outputs_say_where_it_comes_from(
    agent: Room, session: str
) -> None:
    """By an agent that names no session, or by one with a session that changes its
    tools at the same time.
    """
    head: dict[str, str] = {}

    def first(words: str) -> Any:
        return anthropic_gateway.user_message(f"{words} " * 100)

    async def step(number: int) -> Sent:
        await agent.answer(
            sent,
            Calls("Bash", {}, f"c{number}"),
            stop=Stop.CALLS,
            usage=Usage(9_000 * number, 0, 0, 1),
        )
        return await agent.send(
            anthropic_gateway.result_message(f"c{number}", "Bash", "a line of it\n" * 900),
            session=session,
            **head,
        )

    sent = await agent.send(first("one"), session=session)
    before = await step(1)
    sent = before
    sent = await step(2)
    await agent.room._tasks.wait_for_all_tasks()
    agent.units[0] = first("other")
    head |= {"head": "other tools"}
    sent = await step(3)
    assert sent.ticket.conversation != before.ticket.conversation
    await agent.answer(sent, Says("Done."), usage=Usage(40_000, 0, 0, 1))
    recorded = await agent.bench.read_conversation_facts(sent.ticket.conversation)
    origins = [
        one.fact.forked_from for one in recorded if isinstance(one.fact, ConversationStarted)
    ]
    assert origins[-1] == before.ticket.conversation
    said = [texts(fact)[0] for fact in (one.fact for one in recorded) if isinstance(fact, UserSaid)]
    assert said == ["other " * 100]
    journal = agent.bench.workspace.journal
    (request,) = await read_original_and_explain_requests(
        recorded, shipped_prices, journal.read_facts
    )
    named = {one.cause.kind: one.tokens for one in request.causes}
    assert named[CauseKind.EDIT] > 0
    assert CauseKind.FIRST not in named


async def test_a_sub_agent_that_is_given_its_parents_outputs_is_no_edit_of_the_parent(
    agent: Room,
) -> None:
    called = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}
    agent.units = [
        anthropic_gateway.user_message("one"),
        {"role": "assistant", "content": [called]},
    ]
    sent = await agent.send(anthropic_gateway.result_message("c1", "Bash", "an output"))
    await agent.answer(sent, Says("fine"))
    agent.units[0] = anthropic_gateway.user_message("you are the sub-agent")
    below = await agent.send(session="s/1", parent="s", head="other")
    recorded = await agent.bench.read_conversation_facts(below.ticket.conversation)
    assert not any(getattr(one.fact, "forked_from", "") for one in recorded)
    row = agent.bench.conversation_row(below.ticket.conversation)
    assert row is not None
    assert row.parent == sent.ticket.conversation


@pytest.mark.parametrize(("session", "output"), [("s", "the same"), ("", "another")])
async def test_another_agent_or_another_output_is_no_sign_of_an_edited_conversation(
    agent: Room, session: str, output: str
) -> None:
    async def history(words: str, text: str, session: str) -> str:
        called = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}
        agent.units = [
            anthropic_gateway.user_message(words),
            {"role": "assistant", "content": [called]},
        ]
        sent = await agent.send(
            anthropic_gateway.result_message("c1", "Bash", text), session=session
        )
        await agent.answer(sent, Says("fine"))
        return sent.ticket.conversation

    names = [await history("one", "the same", ""), await history("two", output, session)]
    recorded = await agent.bench.read_conversation_facts(names[1])
    assert not any(getattr(one.fact, "forked_from", "") for one in recorded)
    assert names[0] != names[1]


async def test_a_reply_whose_recording_broke_off_is_not_recorded_twice(agent: Room) -> None:
    sent = await agent.send(anthropic_gateway.user_message("one"))
    pieces = (Piece(PieceKind.TEXT, "a wall"),)
    replied = Replied(pieces, "claude-opus-4-6", Stop.END, Usage(10, 0, 0, 1), seconds=1.5)
    known_messages = await agent.room._known_messages_of_ticket(sent.ticket)
    opened = await agent.room._get_open_conversation(known_messages)
    reply = opened.build_agent_reply(replied)
    await opened.follower.record_reply(reply, sent.ticket.saw)  # Its process ended here.
    shown = ProtocolMessage(Speaker.ASSISTANT, (), pieces)
    await agent.room.record_agent_reply(sent.ticket, replied, shown.identity_key)
    assert kinds(await agent.facts(sent)) == ["UserSaid", "ModelReplied", "TurnEnded"]


async def test_what_was_sent_again_without_its_reply_is_one_conversation(agent: Room) -> None:
    first = await agent.send(anthropic_gateway.user_message("one"))
    await agent.answer(first, Says("never seen"))
    del agent.units[1:]
    sent = await agent.room.receive_request(*agent.arrival())
    assert sent.ticket.conversation == first.ticket.conversation
    await agent.answer(sent, Says("seen"))
    state = build_state(await agent.bench.read_conversation_facts(sent.ticket.conversation))
    shown = [each.fact for each in state.facts_on_path()]
    assert [texts(fact)[0] for fact in shown if isinstance(fact, UserSaid | ModelReplied)] == [
        "one",
        "seen",
    ]


async def test_the_same_question_aside_is_answered_from_where_it_stood_and_adds_only_what_it_cost(
    agent: Room,
) -> None:
    await agent.answer(
        await agent.send(anthropic_gateway.user_message("one"), session=""), Says("first")
    )
    sent = await agent.send(anthropic_gateway.user_message("two"), session="")
    await agent.answer(sent, Says("second"))
    before = await agent.facts(sent)
    whole, agent.units = agent.units, agent.units[:1]
    aside = await agent.room.receive_request(*agent.arrival(""))
    assert not aside.ticket.live
    assert aside.ticket.conversation == sent.ticket.conversation
    assert are_all_unchanged(aside.entries, 1)
    await agent.answer(aside, Says("other"))
    *same, spent = await agent.facts(sent)
    assert same == before
    assert isinstance(spent, Spent), (
        "the provider bills the reply, although nobody here goes on with it"
    )
    assert await agent.room.fold_after_overflow(aside.ticket) is None
    agent.units = whole
    assert (await agent.send(anthropic_gateway.user_message("three"), session="")).ticket.live


async def test_a_sub_agents_conversation_stands_below_the_one_that_asked(agent: Room) -> None:
    above = await agent.send(anthropic_gateway.user_message("one"))
    whole, agent.units = agent.units, []
    below = await agent.send(
        anthropic_gateway.user_message("look deep"), session="child", parent="s"
    )
    agent.units = []
    named = await agent.send(
        anthropic_gateway.user_message("by its name"),
        session="c2",
        below=above.ticket.conversation,
    )
    agent.units = []
    lost = await agent.send(
        anthropic_gateway.user_message("of nobody"), session="c3", parent="gone"
    )
    parents = {row.id: row.parent for row in agent.bench.list_conversations()}
    assert [parents[one.ticket.conversation] for one in (above, below, named, lost)] == [
        "", above.ticket.conversation, above.ticket.conversation, "",
    ]  # fmt: skip
    agent.units = whole


async def test_what_a_reply_cost_that_broke_off_stands_on_the_bill(agent: Room) -> None:
    sent = await agent.send(anthropic_gateway.user_message("one"))
    replied = Replied((), "claude-opus-4-6", Stop.CUT, Usage(1_000, 0, 0, 5))
    await agent.room.record_agent_reply(sent.ticket, replied, "")
    *_, spent = await agent.facts(sent)
    assert isinstance(spent, Spent)
    assert (spent.model, spent.usage.input) == ("anthropic/claude-opus-4-6", 1_000)
    stale = replace(sent.ticket, last="0" * 32)
    await agent.room.record_agent_reply(stale, replied, "")
    gone = replace(sent.ticket, conversation="gone")
    await agent.room.record_agent_reply(gone, replied, "")
    assert await agent.room.fold_after_overflow(stale) is None
    assert await agent.room.fold_after_overflow(gone) is None
    assert kinds(await agent.facts(sent)).count("Spent") == 2, (
        "what was replied to a conversation that went on meanwhile"
    )


async def test_a_preview_shows_what_a_request_would_become_and_records_nothing(agent: Room) -> None:
    agent.units = [anthropic_gateway.user_message("one")]
    arrival, said = agent.arrival()
    assert list((await agent.room.preview_request(arrival, said)).entries) == [UnchangedMessage(0)]
    assert not agent.bench.list_conversations()
    sent = await agent.room.receive_request(arrival, said)
    await agent.answer(sent, Calls("Bash", {}, "c1"), stop=Stop.CALLS)
    sent = await agent.send(
        anthropic_gateway.result_message("c1", "Bash", "a line of it\n" * 40_000)
    )
    before = await agent.facts(sent)
    agent.units += [{"role": "assistant", "content": "Done."}]
    shown = (await agent.room.preview_request(*agent.arrival())).entries
    assert [type(entry) for entry in shown] == [
        UnchangedMessage,
        UnchangedMessage,
        ChangedMessage,
        UnchangedMessage,
    ]
    agent.units[3:] = []
    agent.units[2:] = [anthropic_gateway.user_message("another way")]
    assert list((await agent.room.preview_request(*agent.arrival())).entries) == [
        UnchangedMessage(0),
        UnchangedMessage(1),
        UnchangedMessage(2),
    ]
    assert await agent.facts(sent) == before


async def test_figures_tell_what_went_on_since(agent: Room) -> None:
    sent = await agent.send(anthropic_gateway.user_message("one"))
    await agent.answer(sent, Says("first"), usage=Usage(10, 0, 0, 1))
    restarted = LocalAgentConversations(agent.bench, _nobody)
    assert list(await restarted.figures_since()) == [], "none is open"
    for _ in range(2):
        (figure,) = await restarted.figures_since(1.0)
        assert (figure.requests, figure.sent) == (1, 10)
    assert list(await restarted.figures_since(time.time() + 3600)) == []
    await agent.answer(
        await agent.send(anthropic_gateway.user_message("two")),
        Says("second"),
        usage=Usage(20, 0, 0, 1),
    )
    (figure,) = await restarted.figures_since(1.0)
    assert (figure.requests, figure.sent) == (2, 30)
    await restarted.aclose()


async def test_when_a_provider_finds_a_request_too_long_it_is_folded_once_more(agent: Room) -> None:
    sent = await agent.send(anthropic_gateway.user_message("one"))
    assert await agent.room.fold_after_overflow(sent.ticket) is None, "there is nothing to fold"
    for number in range(6):
        await agent.answer(sent, Calls("Bash", {}, f"c{number}"), stop=Stop.CALLS)
        sent = await agent.send(
            anthropic_gateway.result_message(f"c{number}", "Bash", f"line of {number}\n" * 900)
        )
    shorter = await agent.room.fold_after_overflow(sent.ticket)
    assert shorter is not None
    assert (shorter.recallable, shorter.ticket.ahead) == (True, False)
    assert shorter.ticket.saw > sent.ticket.saw
    again = await agent.room.fold_after_overflow(sent.ticket)
    assert again is not None, "a fold that was made since is enough"
    assert again.entries == shorter.entries


async def test_a_window_that_a_refusal_named_holds_for_the_requests_after_it(agent: Room) -> None:
    """The defect: 128,000 tokens were assumed, so each later request was refused, too."""
    sent = await agent.send(anthropic_gateway.user_message("one"))
    for number in range(12):
        await agent.answer(sent, Calls("Bash", {}, f"c{number}"), stop=Stop.CALLS)
        sent = await agent.send(
            anthropic_gateway.result_message(f"c{number}", "Bash", f"line of {number}\n" * 900)
        )
    assert await agent.room.fold_after_overflow(sent.ticket, 9_000) is not None
    await agent.answer(sent, Calls("Bash", {}, "d"), stop=Stop.CALLS)
    sent = await agent.send(anthropic_gateway.result_message("d", "Bash", "done"))

    recorded = await agent.bench.read_conversation_facts(sent.ticket.conversation)
    windows = [fact.fact.window for fact in recorded if isinstance(fact.fact, ModelSet)]
    assert windows[-1] == 9_000
    assert len(windows) == 2, "the window is not set back by the next request"
    state = build_state(recorded)
    assert state.counted_tokens < 9_000


async def test_what_the_user_has_set_for_a_model_holds_for_connected_agents_too(
    agent: Room, tmp_path: Path
) -> None:
    """The list of models said 16K, and the conversation that came through the gateway 128K."""
    configured = ConfiguredProviders(program_folders.find_program_folders(tmp_path).providers_file)
    configured.save_provider(ProviderConfig("mine", base_url="http://localhost:8765/v1"))
    configured.correct_model("mine", "walk-large", {"window": 16_000, "input": 7.0})
    models: list[ModelSet] = []
    costs: list[float] = []
    for number, address in enumerate(["http://LOCALHOST:8765", "https://example.org/v1"]):
        sent = await agent.send(
            anthropic_gateway.user_message(f"message {number}"),
            session=f"session {number}",
            model="walk-large",
            address=address,
        )
        models += await models_of(agent, sent)
        await agent.answer(sent, Says("yes"), usage=Usage(input=1_000_000))
        costs += [
            fact.usage.cost for fact in await agent.facts(sent) if isinstance(fact, ModelReplied)
        ]
        agent.units = []
    assert [model.model for model in models] == ["anthropic/walk-large"] * 2
    assert [model.window for model in models] == [16_000, 128_000]
    assert models[0].price_input == 7.0
    assert costs[0] == 7.0, "the page of connected agents said that its price is not known"
    assert costs[1] != 7.0


async def test_a_copy_without_new_words_can_be_told_from_its_original(agent: Room) -> None:
    """Ten conversations of one agent had one title."""
    look = anthropic_gateway.user_message("look")
    await agent.answer(await agent.send(look, session=""), Says("I look"))
    first_units = list(agent.units)
    for number in range(2):
        agent.units = [look]
        again = await agent.send(session="")  # As another session would that begins alike.
        assert again.ticket.live is False
        agent.units += [{"role": "assistant", "content": f"other words {number}"}]
        agent.units += [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "out"}]}]  # fmt: skip
        await agent.answer(await agent.send(session=""), Says("Done."))
    agent.units = first_units
    await agent.send(anthropic_gateway.user_message("and now something else"), session="")
    titles = sorted(row.title for row in agent.bench.list_conversations())
    assert titles == ["look", "look (2)", "look (3)"]


async def test_a_window_that_the_user_sets_meanwhile_holds_and_may_grow_again(
    agent: Room, tmp_path: Path
) -> None:
    configured = ConfiguredProviders(program_folders.find_program_folders(tmp_path).providers_file)
    configured.save_provider(ProviderConfig("mine", base_url="http://localhost:8765/v1"))
    windows_used: list[int] = []
    for window in (64_000, 16_000, 32_000, 64_000):
        configured.correct_model("mine", "walk-large", {"window": window})
        # The program begins anew, so that what refusals named is read from the journal.
        started = Room(agent.bench)
        started.units = agent.units
        # The change is seen while the first request is recorded, so it holds from then on.
        for part in ("first", "second"):
            sent = await started.send(
                anthropic_gateway.user_message(f"{part} at {window}"),
                model="walk-large",
                address="http://localhost:8765",
            )
            await started.answer(sent, Says("yes"))
        await started.room.aclose()
        models = await models_of(agent, sent)
        windows_used.append(models[-1].window)
    assert windows_used == [64_000, 16_000, 32_000, 64_000]


async def models_of(agent: Room, sent: Sent) -> list[ModelSet]:
    recorded = await agent.bench.read_conversation_facts(sent.ticket.conversation)
    return [record.fact for record in recorded if isinstance(record.fact, ModelSet)]


async def test_sessions_that_share_only_what_their_program_says_first_are_none_of_each_other(
    agent: Room,
) -> None:
    """Gemini CLI begins every session with the same context, and names no session."""
    preamble = [anthropic_gateway.user_message("This is the context"), {"role": "assistant", "content": "Got it."}]  # fmt: skip
    first = await agent.send(*preamble, anthropic_gateway.user_message("count files"), session="")
    await agent.answer(first, Says("three"), usage=Usage(10, 0, 0, 1))
    agent.units = list(preamble)
    second = await agent.send(anthropic_gateway.user_message("explain rust"), session="")
    await agent.answer(second, Says("it is red"), usage=Usage(10, 0, 0, 1))
    rows = {row.id: row for row in agent.bench.list_conversations()}
    assert len(rows) == 2
    assert rows[second.ticket.conversation].title == "This is the context (2)", (
        "as a row of its own"
    )
    recorded = await agent.bench.read_conversation_facts(second.ticket.conversation)
    assert not any(getattr(one.fact, "forked_from", "") for one in recorded)
    requests = await read_original_and_explain_requests(
        recorded, shipped_prices, agent.bench.read_conversation_facts
    )
    causes = {cause.cause.kind for request in requests for cause in request.causes}
    assert CauseKind.EDIT not in causes


async def test_a_session_that_leaves_another_behind_its_first_answer_has_its_own_title(
    agent: Room,
) -> None:
    sent = await agent.send(anthropic_gateway.user_message("count files"), session="")
    await agent.answer(sent, Says("three"), usage=Usage(10, 0, 0, 1))
    begins = list(agent.units)
    sent = await agent.send(anthropic_gateway.user_message("and folders"), session="")
    await agent.answer(sent, Says("two"), usage=Usage(10, 0, 0, 1))
    agent.units = begins
    other = await agent.send(anthropic_gateway.user_message("and links"), session="")
    titles = {row.id: row.title for row in agent.bench.list_conversations()}
    assert titles == {
        sent.ticket.conversation: "count files",
        other.ticket.conversation: "and links",
    }


@pytest.mark.parametrize("reported", [Usage(), Usage(0, 0, 0, 3)])
async def test_a_reply_that_broke_off_before_its_usage_is_paid_by_estimate(
    agent: Room, reported: Usage
) -> None:
    """Most providers report the tokens only at the end of a reply: those that broke off were
    missing from the costs.
    """
    sent = await agent.send(anthropic_gateway.user_message("look around " * 500))
    await agent.answer(sent, Says("fine"), usage=Usage(1_300, 0, 1_200, 1))
    sent = await agent.send(anthropic_gateway.user_message("go on " * 300))
    words = Piece(PieceKind.TEXT, "half of the answer " * 40)
    cut = Replied((words,), "claude-opus-4-6", Stop.CUT, reported)
    await agent.room.record_agent_reply(sent.ticket, cut, "")
    spent = (await agent.facts(sent))[-1]
    assert isinstance(spent, Spent)
    assert 1_500 < spent.usage.input < 3_500
    assert spent.usage.cache_read == 1_300
    assert 100 < spent.usage.output < 300
    assert spent.usage.cost


async def test_how_long_a_request_asks_to_be_cached_is_what_folds_are_weighed_with(
    agent: Room,
) -> None:
    for asked, lifetime in ((0, 300), (3_600, 3_600), (300, 300)):
        sent = await agent.send(
            anthropic_gateway.user_message(f"cached for {asked}"), cache_seconds=asked
        )
        await agent.room._tasks.wait_for_all_tasks()
        opened = agent.room._open_conversations[sent.ticket.conversation]
        assert cache_lifetime_seconds(opened.conversation.state) == lifetime


async def test_whoever_goes_on_in_an_agents_conversation_gets_the_agents_model(
    agent: Room, tmp_path: Path
) -> None:
    address = "http://127.0.0.1:8877/v1"
    configured = ConfiguredProviders(program_folders.find_program_folders(tmp_path).providers_file)
    configured.save_provider(ProviderConfig("local", base_url=address))
    for model in ("large", "small", "other"):
        configured.correct_model("local", model, {"window": 16_000})

    async def go_on(model: str) -> str:
        sent = await agent.send(anthropic_gateway.user_message("on"), model=model, address=address)
        await agent.answer(sent, Says("Yes."))
        await agent.facts(sent)
        conversation: str = sent.ticket.conversation
        return conversation

    await agent.bench.choose_model_for_role("local/small")
    conversation = await go_on("large")
    await agent.bench.choose_model_for_role("local/other")
    assert agent.bench.model_of_conversation(conversation) == "local/large"
    # A choice for this conversation holds until the agent uses another model.
    await agent.bench.save_conversation_model(conversation, "local/small")
    assert await go_on("large") == conversation
    assert agent.bench.model_of_conversation(conversation) == "local/small"
    assert await go_on("other") == conversation
    assert agent.bench.model_of_conversation(conversation) == "local/other"


async def test_the_model_of_an_agent_whose_provider_is_not_set_up_here_is_not_gone_on_with(
    agent: Room,
) -> None:
    sent = await agent.send(anthropic_gateway.user_message("hello"))
    await agent.answer(sent, Says("Hello."))
    await agent.facts(sent)
    conversation = sent.ticket.conversation
    assert agent.bench.model_of_conversation(conversation) == agent.bench.main_model_name
