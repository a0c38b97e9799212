"""Requests of agents as facts of conversations."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine import context_usage
from helix_desktop.engine.automatic_folding import FoldPlanner
from helix_desktop.engine.context_policy import DEFAULT_PRESET, preset_policy
from helix_desktop.engine.context_usage import WindowMeter
from helix_desktop.engine.conversation_context import ConversationContext
from helix_desktop.engine.facts import (
    Excluded,
    Fact,
    FoldKind,
    ModelReplied,
    ModelRole,
    PartRef,
    Purpose,
    Received,
    Recorded,
    Rewound,
    Spent,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.fold_document_writer import DocumentMaterial
from helix_desktop.engine.messages import Message, Reply, Request, Role
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.strategies.fold_strategy import FoldSituation
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import ActionRefused
from helix_desktop.gateway import local_conversations
from helix_desktop.gateway.agent_conversation import (
    ConnectedAgentModel,
    OpenAgentConversation,
)
from helix_desktop.gateway.conversation_matching import (
    LONG_HISTORY_MESSAGES,
    compute_message_hashes,
)
from helix_desktop.gateway.conversations_port import Arrival, Replied, Ticket
from helix_desktop.gateway.folded_request import (
    are_all_unchanged,
    build_folded_body,
    count_leading_instructions,
)
from helix_desktop.gateway.local_conversations import (
    MESSAGES_IN_COMMIT,
    LocalAgentConversations,
    _end_of_next_batch,
    known_messages_from_facts,
    title_from_messages,
)
from helix_desktop.gateway.view_entries import ChangedMessage, UnchangedMessage
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import Piece, PieceKind, ProtocolMessage, Speaker
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from helix_desktop.store.async_stores import StoreJournal
from helix_desktop.workbench.open_workbench import Workbench
from tests.conftest import Expect
from tests.faults.gateway_histories import TOOLS, _nobody, bench
from tests.gateway.running import PROTOCOLS, Agent
from tests.gateway.test_agent_conversation import Room, texts
from tests.peers.agent_provider import WRITERS, Asked, Calls, Says, Thinks, complaint

Json = Any
USAGE = {"input": 3, "read": 0, "write": 0}


def arrival(units: list[object], session: str = "s") -> tuple[Arrival, list[ProtocolMessage]]:
    said = anthropic_gateway.parse_messages({"messages": units})
    chain = compute_message_hashes("anthropic", said)
    return Arrival(
        "anthropic", "an agent", session, "head", "claude-opus-4-6", "system", TOOLS, chain
    ), said


async def recorded_kinds(made: Workbench, ticket: Ticket) -> list[type[Fact]]:
    """The classes of the facts of the conversation that a request belongs to."""
    facts = await made.read_conversation_facts(ticket.conversation)
    return [type(recorded.fact) for recorded in facts]


async def test_what_an_agent_says_and_gets_back_becomes_facts_and_a_long_output_is_shown_short(
    tmp_path: Path,
) -> None:
    units: list[object] = [anthropic_gateway.user_message("look around")]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        sent = await room.receive_request(*arrival(units))
        assert list(sent.entries) == [UnchangedMessage(0)]
        answer = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole([Says("I look"), Calls("Bash", {}, "c1")], USAGE, "1")
        )
        replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1))
        await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
        units.extend(answer.message.units)
        units.append(anthropic_gateway.result_message("c1", "Bash", "a line of it\n" * 40_000))
        sent = await room.receive_request(*arrival(units))
        kinds_of_entries = [type(entry) for entry in sent.entries]
        assert kinds_of_entries == [UnchangedMessage, UnchangedMessage, ChangedMessage]
        assert sent.recallable
        kinds = Counter(await recorded_kinds(made, sent.ticket))
        assert (kinds[UserSaid], kinds[ModelReplied], kinds[ToolReturned]) == (1, 1, 1)
        assert [row.agent for row in made.list_conversations()] == ["an agent"]
        (figure,) = await room.figures_since()
        assert figure.requests == 1
        await room.aclose()


def _as_the_client_has_it(protocol: str, units: Sequence[Json], client: str) -> list[Json]:
    """A reply in the next request: some clients leave its reasoning out, some put its
    texts into one.
    """
    kept: list[Json] = json.loads(json.dumps(units))
    if client == "without the reasoning":
        return _without_reasoning(kept)
    if client == "in one text" and protocol in ("anthropic", "gemini"):
        field = "content" if protocol == "anthropic" else "parts"
        parts = kept[0][field]
        texts = [part for part in parts if "text" in part and not part.get("thought")]
        texts[0]["text"] = " ".join(part["text"] for part in texts)
        kept[0][field] = [part for part in parts if part not in texts[1:]]
    return kept


def _without_reasoning(units: Sequence[Json]) -> list[Json]:
    """In each protocol's own form: a unit, a field, or a part."""
    kept = [unit for unit in units if unit.get("type") != "reasoning"]
    for unit in kept:
        unit.pop("reasoning_content", None)
        for field in ("content", "parts"):
            if isinstance(unit.get(field), list):
                unit[field] = [part for part in unit[field] if not _is_thought(part)]
    return kept


def _is_thought(part: Json) -> bool:
    return bool(part.get("thought")) or part.get("type") == "thinking"


@pytest.mark.parametrize("client", ["as it came", "in one text", "without the reasoning"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_the_user_took_out_of_a_reply_is_not_sent_again(
    tmp_path: Path, protocol: str, client: str
) -> None:
    wire = WIRE_MODULES[protocol]
    agent = Agent(protocol, "")
    agent.say("look around")
    replies = [
        [
            Thinks("I ponder 4711"),
            Says("the password is 4711"),
            Says("I look."),
            Calls("Bash", {}, "c1"),
        ],
        [Thinks("I ponder on"), Says("again, 4711")],
        [Says("That is all.")],
    ]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        for blocks in replies:
            ticket, _ = await _send(room, agent, protocol)
            answer = wire.parse_reply(WRITERS[protocol].whole(blocks, USAGE, "1"))
            replied = Replied(answer.message.pieces, "m", answer.stop, Usage())
            await room.record_agent_reply(ticket, replied, answer.message.identity_key)
            agent.units += _as_the_client_has_it(protocol, answer.message.units, client)
            calls = answer.message.pieces_of_kind(PieceKind.CALL)
            if calls:
                agent.results([(call.id, "Bash", "fine") for call in calls])
            else:
                agent.say("go on")
        _, body = await _send(room, agent, protocol)
        assert "4711" in json.dumps(body)
        await _take_out(made, ticket, "4711")
        _, body = await _send(room, agent, protocol)
        await room.aclose()
    sent = json.dumps(body)
    assert "4711" not in sent
    assert not complaint(Asked(agent.path, {}, sent.encode(), protocol))
    kinds: Counter[PieceKind] = Counter()
    for message in wire.parse_messages(body):
        kinds.update(piece.kind for piece in message.pieces)
    assert kinds[PieceKind.CALL] == 1
    assert kinds[PieceKind.RESULT] == 1
    assert "That is all." in sent
    # In one text with what was taken out, it left with it.
    joins_texts = client == "in one text" and protocol != "openai-responses"
    was_in_one = joins_texts or protocol == "openai-chat"
    assert ("I look." in sent) == (not was_in_one)


async def _send(
    room: LocalAgentConversations, agent: Agent, protocol: str
) -> tuple[Ticket, dict[str, Json]]:
    """The agent's next request, and the body that the gateway makes of it."""
    body = agent.body()
    messages = WIRE_MODULES[protocol].parse_messages(body)
    said = messages[count_leading_instructions(messages) :]
    chain = compute_message_hashes(protocol, said)
    asks = Arrival(protocol, "an agent", "s", "head", "m", "system", TOOLS, chain)
    sent = await room.receive_request(asks, said)
    return sent.ticket, build_folded_body(protocol, body, messages, sent.entries)


async def _take_out(made: Workbench, ticket: Ticket, text: str) -> None:
    """Every part of the conversation that has the text."""
    conversation = (await made.open_session(ticket.conversation)).conversation
    for recorded in conversation.state.facts:
        for place, part in enumerate(getattr(recorded.fact, "parts", ())):
            if text in getattr(part, "text", ""):
                await conversation.append_facts(Excluded(PartRef(recorded.seq, place)))


async def test_an_agent_finds_words_in_what_a_summary_of_its_conversation_stands_for(
    tmp_path: Path,
) -> None:
    units: list[object] = [anthropic_gateway.user_message("The port is 4711. Look around.")]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        for number in range(12):
            sent = await room.receive_request(*arrival(units))
            call = Calls("Bash", {"command": f"look {number}"}, f"c{number}")
            answer = anthropic_gateway.parse_reply(WRITERS["anthropic"].whole([call], USAGE, "1"))
            await room.record_agent_reply(
                sent.ticket,
                Replied(answer.message.pieces, "m", Stop.CALLS, Usage()),
                answer.message.identity_key,
            )
            units.extend(answer.message.units)
            units.append(
                anthropic_gateway.result_message(f"c{number}", "Bash", f"line of {number}\n" * 200)
            )
        sent = await room.receive_request(*arrival(units))
        await (await made.open_session(sent.ticket.conversation)).folding.fold_on_demand(
            FoldKind.TRUNCATION
        )
        asks = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole(
                [Calls("recall_history", {"fold": None, "find": "4711"}, "r")], USAGE, "1"
            )
        )
        replied = Replied(asks.message.pieces, "m", Stop.CALLS, Usage())
        ((_, name, text, well),) = await room.answer_hidden_calls(
            sent.ticket, replied, asks.message.pieces
        )
        assert (name, well) == ("recall_history", True)
        assert "user: The port is 4711. Look around." in text
        await room.aclose()


async def test_what_a_provider_reports_is_learned_under_the_name_the_agent_asks_for(
    tmp_path: Path,
) -> None:
    units: list[object] = [anthropic_gateway.user_message("a word of it " * 1_000)]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        for number in range(5):
            sent = await room.receive_request(*arrival(units))
            state = (await made.open_session(sent.ticket.conversation)).conversation.state
            answer = anthropic_gateway.parse_reply(
                WRITERS["anthropic"].whole([Calls("Bash", {}, f"c{number}")], USAGE, str(number))
            )
            meter = context_usage.measure_window(state, preset_policy(DEFAULT_PRESET))
            usage = Usage(round(sum(meter.counted.values()) * 1.1), 0, 0, 1)
            replied = Replied(answer.message.pieces, "claude-opus-4-6-20260205", Stop.CALLS, usage)
            await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
            units.extend(answer.message.units)
            units.append(anthropic_gateway.result_message(f"c{number}", "Bash", "fine"))
        assert state.billed_per_counted_token() == pytest.approx(1.1, abs=0.01)
        assert (await room.figures_since())[0].paid == pytest.approx(
            (await room.figures_since())[0].sent * 5e-6, rel=0.02
        )
        await room.aclose()


async def test_a_window_that_a_refusal_has_named_holds_after_a_restart_too(tmp_path: Path) -> None:
    """The defect: with each start, a request over the window of a small local model was sent."""
    units: list[object] = [anthropic_gateway.user_message("look around")]
    async with bench(tmp_path) as made:
        windows: list[int] = []
        for number in range(3):
            room = LocalAgentConversations(made, _nobody)
            sent = await room.receive_request(*arrival(units))
            if number == 0:
                await room.fold_after_overflow(sent.ticket, 2_560)
            session = await made.open_session(sent.ticket.conversation)
            model = session.conversation.state.settings.model_for_role(ModelRole.MAIN)
            assert model is not None
            windows.append(model.window)
            answer = anthropic_gateway.parse_reply(
                WRITERS["anthropic"].whole([Says("fine")], USAGE, str(number))
            )
            replied = Replied(answer.message.pieces, "m", Stop.END, Usage(10, 0, 0, 1))
            await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
            units.extend(answer.message.units)
            units.append(anthropic_gateway.user_message("go on"))
            await room.aclose()
        assert windows == [2_560] * 3


async def test_replies_an_agent_brings_with_it_are_no_requests_of_the_gateway(
    tmp_path: Path,
) -> None:
    """An agent that was begun without the gateway, or that wrote a reply anew: its
    provider saw one request.
    """
    units: list[object] = [
        {"role": "assistant" if number % 2 else "user", "content": f"word {number} " * 50}
        for number in range(21)
    ]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        answer = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole([Says("fine")], USAGE, "1")
        )
        replied = Replied(
            answer.message.pieces, "claude-opus-4-6", Stop.END, Usage(5_000, 0, 0, 10)
        )
        for requests in (1, 2):
            sent = await room.receive_request(*arrival(units))
            await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
            (figure,) = await room.figures_since(1.0)
            assert (figure.requests, figure.sent) == (requests, 5_000 * requests)
            assert figure.paid == pytest.approx(requests * (5_000 * 5e-6 + 10 * 25e-6))
            units += [
                {"role": "assistant", "content": "another text than the provider's"},
                anthropic_gateway.user_message("on"),
            ]
        await room.aclose()


async def test_what_a_fold_costs_with_the_agents_own_key_stands_on_the_bill() -> None:
    async def ask(*_: object) -> tuple[str, Usage, str]:
        return "a summary", Usage(1_000_000, 0, 0, 0), "claude-opus-4-6-20260205"

    model = ConnectedAgentModel("c", "anthropic/claude-opus-4-6", ask)
    request = Request("", "system", (Message(Role.USER, (Text("a question"),)),))
    reply = [delta async for delta in model.stream_reply(request)][-1]
    assert isinstance(reply, Reply)
    assert reply.usage.cost == pytest.approx(5.0)
    assert reply.model == "anthropic/claude-opus-4-6"


async def test_a_recall_of_history_that_is_of_no_conversation_says_so(tmp_path: Path) -> None:
    units: list[object] = [anthropic_gateway.user_message("look around")]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        sent = await room.receive_request(*arrival(units))
        asks = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole([Calls("recall_history", {"find": "4711"}, "r")], USAGE, "1")
        )
        replied = Replied(asks.message.pieces, "m", Stop.CALLS, Usage())
        gone = replace(sent.ticket, conversation="gone")
        ((_, _, text, well),) = await room.answer_hidden_calls(gone, replied, asks.message.pieces)
        assert (text, well) == (
            "[This conversation's earlier messages cannot be recalled now.]",
            False,
        )
        await room.aclose()


async def test_a_call_of_ours_that_cannot_be_answered_tells_the_model_why_and_counts_as_failed(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        sent = await room.receive_request(*arrival([anthropic_gateway.user_message("look around")]))
        given = [
            ("search_cached_content", '{"query": "swordfish", "limit": "many"}'),
            ("search_cached_content", '{"query": "sword", "limit": 1}'),
            ("search_cached_content", ""),
            ("search_cached_content", '["swordfish"]'),
            ("search_cached_content", '{"query": '),
            ("recall_cached_content", '{"sha256": "0000"}'),
        ]
        calls = [
            Piece(PieceKind.CALL, text, id=str(number), name=name)
            for number, (name, text) in enumerate(given)
        ]
        replied = Replied(tuple(calls), "m", Stop.CALLS, Usage())
        answered = await room.answer_hidden_calls(sent.ticket, replied, calls)
        assert [name for name, _, _, _ in answered] == [call.id for call in calls]
        texts = [text for _, _, text, _ in answered]
        went_well = [well for _, _, _, well in answered]
        assert went_well == [True, True, False, False, False, False]
        assert texts[:2] == [
            "[nothing in the cache contains swordfish]",
            "[nothing in the cache contains sword]",
        ]
        assert texts[2] == texts[3] == "[A query is needed. Specify the words to look for.]"
        assert all(
            text.startswith("[") and text.endswith("]") and len(text) > 2 for text in texts[2:]
        )
        await room.aclose()


async def test_an_entry_can_be_recalled_also_where_the_conversation_is_gone(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        sent = await room.receive_request(*arrival([anthropic_gateway.user_message("look around")]))
        stored = await made.workspace.cache.store_content(
            b"one\ntwo\nthree\n", EntryOrigin("tool", "Bash", "text/plain")
        )
        call = Piece(
            PieceKind.CALL,
            f'{{"sha256": "{stored.digest.hex}", "lines": "2-2"}}',
            id="r",
            name="recall_cached_content",
        )
        replied = Replied((call,), "m", Stop.CALLS, Usage())
        for ticket in (sent.ticket, replace(sent.ticket, conversation="gone")):
            ((_, _, text, went_well),) = await room.answer_hidden_calls(ticket, replied, [call])
            assert went_well
            assert "two" in text
            assert "three" not in text
        await room.aclose()


async def test_an_agent_whose_conversation_was_deleted_goes_on_in_a_new_one(tmp_path: Path) -> None:
    units: list[object] = [anthropic_gateway.user_message("look around")]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        sent = await room.receive_request(*arrival(units))
        answer = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole([Says("done")], USAGE, "1")
        )
        replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.END, Usage())
        await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
        await (await made.open_session(sent.ticket.conversation)).set_trashed()
        await made.empty_conversation_trash()
        units.extend(answer.message.units)
        units.append(anthropic_gateway.user_message("go on"))
        again = await room.receive_request(*arrival(units))
        assert [row.id for row in made.list_conversations()] == [again.ticket.conversation]
        assert again.ticket.conversation != sent.ticket.conversation
        await room.aclose()


async def test_a_conversation_of_which_nothing_can_be_recorded_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units: list[object] = [anthropic_gateway.user_message("look around")]

    async def fail(*_: object) -> None:
        raise ValueError("a message that nobody has thought of")

    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        with monkeypatch.context() as patch:
            patch.setattr(OpenAgentConversation, "append_messages", fail)
            for session in ("one", "one", "", "two"):
                with pytest.raises(ValueError, match="nobody has thought of"):
                    await room.receive_request(*arrival(units, session))
            assert list(made.list_conversations()) == []
            assert not await made.workspace.journal.list_conversations()
        sent = await room.receive_request(*arrival(units, "one"))
        (row,) = made.list_conversations()
        assert row.id == sent.ticket.conversation
        await room.aclose()


@pytest.mark.parametrize("reported", [0, 5_000])
async def test_a_step_of_a_killed_gateway_waits_until_it_is_asked_again_or_nobody_does(
    tmp_path: Path, reported: int
) -> None:
    units: list[object] = [anthropic_gateway.user_message("look around")]
    async with bench(tmp_path) as made:
        killed = LocalAgentConversations(made, _nobody)
        sent = await killed.receive_request(*arrival(units))
        conversation = sent.ticket.conversation
        note = killed.questions.note_question(conversation, Purpose.STEP, "claude-opus-4-6")
        note.leave_question_unanswered()
        room = LocalAgentConversations(made, _nobody)
        await room.figures_since()
        assert await spent_in(made, conversation) == []
        if reported:
            sent = await room.receive_request(*arrival(units))
            text = Piece(PieceKind.TEXT, "done")
            replied = Replied((text,), "claude-opus-4-6", Stop.END, Usage(reported))
            await room.record_agent_reply(sent.ticket, replied, "key")
        await room.aclose()
        (spent,) = await spent_in(made, conversation)
        assert spent.is_estimate
        if reported:
            assert spent.usage.input == reported
        assert spent.usage.input > 0
        assert not list(tmp_path.rglob("open-questions/*.json"))
        await killed.aclose()


async def spent_in(made: Workbench, conversation: str) -> list[Spent]:
    recorded_facts = await made.read_conversation_facts(conversation)
    return [recorded.fact for recorded in recorded_facts if isinstance(recorded.fact, Spent)]


async def test_what_was_forgotten_stands_in_no_later_request(tmp_path: Path) -> None:
    units: list[object] = [anthropic_gateway.user_message("look around")]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        outputs = ["the port is 4711-secret\n" + "a line of it\n" * 40_000, "fine"]
        for number, output in enumerate(outputs):
            sent = await room.receive_request(*arrival(units))
            answer = anthropic_gateway.parse_reply(
                WRITERS["anthropic"].whole([Calls("Bash", {}, f"c{number}")], USAGE, str(number))
            )
            replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage())
            await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
            units.extend(answer.message.units)
            units.append(anthropic_gateway.result_message(f"c{number}", "Bash", output))
        assert "4711-secret" in repr(sent.entries)
        await made.forget_content(text="4711-secret")
        assert "4711-secret" not in repr((await room.receive_request(*arrival(units))).entries)
        await room.aclose()


async def test_a_request_that_goes_ahead_is_recorded_before_its_reply(tmp_path: Path) -> None:
    units: list[object] = [anthropic_gateway.user_message("look around")]
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        for number in range(2):
            sent = await room.receive_request(*arrival(units))
            assert sent.ticket.ahead == (number == 1)
            kinds = await recorded_kinds(made, sent.ticket)
            assert ToolReturned not in kinds  # the request is on its way
            answer = anthropic_gateway.parse_reply(
                WRITERS["anthropic"].whole([Calls("Bash", {}, f"c{number}")], USAGE, str(number))
            )
            replied = Replied(
                answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1)
            )
            await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
            units.extend(answer.message.units)
            units.append(anthropic_gateway.result_message(f"c{number}", "Bash", "fine"))
        kinds = await recorded_kinds(made, sent.ticket)
        assert [kind for kind in kinds if kind in (ModelReplied, ToolReturned)] == [
            ModelReplied,
            ToolReturned,
            ModelReplied,
        ]
        await room.aclose()


def history(steps: int, output: str = "fine") -> list[object]:
    """What an agent has that was connected late."""
    units: list[object] = [anthropic_gateway.user_message("look around")]
    for number in range(steps):
        whole = WRITERS["anthropic"].whole([Calls("Bash", {}, f"c{number}")], USAGE, str(number))
        units.extend(anthropic_gateway.parse_reply(whole).message.units)
        units.append(anthropic_gateway.result_message(f"c{number}", "Bash", output))
    return units


async def test_a_long_history_goes_ahead_as_it_came_and_is_recorded_with_its_reply(
    tmp_path: Path,
) -> None:
    units = history(MESSAGES_IN_COMMIT, "a line of it\n" * 5_000)
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        sent = await room.receive_request(*arrival(units))
        assert are_all_unchanged(sent.entries, len(units))
        assert not sent.recallable
        kinds = await recorded_kinds(made, sent.ticket)
        assert ToolReturned not in kinds  # the request is on its way
        shorter = await room.fold_after_overflow(sent.ticket)
        assert shorter is not None
        assert ChangedMessage in map(type, shorter.entries)
        answer = anthropic_gateway.parse_reply(
            WRITERS["anthropic"].whole([Calls("Bash", {}, "last")], USAGE, "1")
        )
        replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1))
        await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
        await room._tasks.wait_for_all_tasks()
        kinds = await recorded_kinds(made, sent.ticket)
        assert kinds.count(ToolReturned) == MESSAGES_IN_COMMIT
        assert kinds.count(ModelReplied) == MESSAGES_IN_COMMIT + 1
        units.extend(answer.message.units)
        units.append(anthropic_gateway.result_message("last", "Bash", "fine"))
        sent = await room.receive_request(*arrival(units))
        assert ChangedMessage in map(type, sent.entries)
        await room.aclose()


@pytest.mark.parametrize("session", ["s", ""])
async def test_what_comes_while_a_long_history_is_recorded_waits_for_nothing_and_is_recorded_in_its_order(
    tmp_path: Path, session: str
) -> None:
    """An agent that names no session must be known again before anything of its history
    is recorded.
    """
    units = history(MESSAGES_IN_COMMIT * 2)
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        for number in range(3):
            sent = await room.receive_request(*arrival(units, session))
            assert are_all_unchanged(sent.entries, len(units))
            assert ToolReturned not in await recorded_kinds(made, sent.ticket)
            answer = anthropic_gateway.parse_reply(
                WRITERS["anthropic"].whole([Calls("Bash", {}, f"new{number}")], USAGE, str(number))
            )
            replied = Replied(
                answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(100 + number, 0, 0, 1)
            )
            await room.record_agent_reply(sent.ticket, replied, answer.message.identity_key)
            units.extend(answer.message.units)
            units.append(anthropic_gateway.result_message(f"new{number}", "Bash", "fine"))
        await room.aclose()
        recorded = await made.read_conversation_facts(sent.ticket.conversation)
        replies = [each.fact for each in recorded if isinstance(each.fact, ModelReplied)]
        assert [reply.usage.input for reply in replies[-3:]] == [100, 101, 102]
        kinds = Counter(await recorded_kinds(made, sent.ticket))
        assert kinds[ModelReplied] == MESSAGES_IN_COMMIT * 2 + 3
        assert kinds[ToolReturned] == MESSAGES_IN_COMMIT * 2 + 2
        assert kinds[Rewound] == 0
        assert len(made.list_conversations()) == 1


async def test_the_recording_of_a_long_history_pauses_after_another_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request of a session waited for a part of the history several times."""
    monkeypatch.setattr(local_conversations, "QUIET_SECONDS", 1_000.0)
    monkeypatch.setattr(local_conversations, "AHEAD_SECONDS", 0.0)
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        sent = await room.receive_request(*arrival(history(MESSAGES_IN_COMMIT * 4)))
        for number in range(5):
            await room.receive_request(
                *arrival([anthropic_gateway.user_message("hello")], f"other {number}")
            )
        assert ToolReturned not in await recorded_kinds(made, sent.ticket)
        await room._tasks.aclose(limit=0)


async def test_the_recording_of_a_long_history_pauses_until_the_first_request_of_a_session_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_conversations, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(local_conversations, "FIRST_REQUEST_SECONDS", 20.0)
    monkeypatch.setattr(local_conversations, "AHEAD_SECONDS", 0.0)
    real = OpenAgentConversation.append_messages
    parts_recorded: list[int] = []

    async def take(
        follower: OpenAgentConversation, messages: Sequence[ProtocolMessage], tip: int
    ) -> list[int]:
        if len(messages) > 3:
            parts_recorded.append(len(messages))
            return await real(follower, messages, tip)
        before = len(parts_recorded)
        for _ in range(200):  # Much longer than it is quiet after other requests.
            await asyncio.sleep(0.001)
        assert len(parts_recorded) == before
        return await real(follower, messages, tip)

    monkeypatch.setattr(OpenAgentConversation, "append_messages", take)
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        await room.receive_request(*arrival(history(MESSAGES_IN_COMMIT * 10)))
        await room.receive_request(*arrival(history(1), "another session"))
        assert sum(parts_recorded) < len(history(MESSAGES_IN_COMMIT * 10))
        await room.aclose()
        assert sum(parts_recorded) == len(history(MESSAGES_IN_COMMIT * 10))


async def test_a_long_history_goes_on_where_recording_it_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    expect("a request could not be recorded")
    units = history(MESSAGES_IN_COMMIT)
    taken: list[int] = []
    real = OpenAgentConversation.append_messages

    async def take(
        follower: OpenAgentConversation, messages: Sequence[ProtocolMessage], tip: int
    ) -> list[int]:
        taken.append(len(messages))
        if len(taken) == 2:
            raise TimeoutError
        return await real(follower, messages, tip)

    monkeypatch.setattr(OpenAgentConversation, "append_messages", take)
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        await room.receive_request(*arrival(units))
        sent = await room.receive_request(*arrival(units))
        await room.aclose()
        kinds = await recorded_kinds(made, sent.ticket)
        assert kinds.count(ToolReturned) == MESSAGES_IN_COMMIT
        assert Rewound not in kinds
        assert taken[1] == taken[2] == len(units) - taken[0]


async def test_a_long_history_is_recorded_in_few_commits_as_it_would_be_message_by_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units: list[object] = [anthropic_gateway.user_message("look around")]
    for number in range(MESSAGES_IN_COMMIT):
        ids = [f"c{number}", f"d{number}"]
        calls = [Calls("Bash", {}, call_id) for call_id in ids]
        whole = WRITERS["anthropic"].whole([Says("I look")] + calls, USAGE, "1")
        outputs = ["a line of it\n", f"output {number}"]
        if number == 7:
            outputs[0] = "a line of it\n" * 40_000
        blocks = [
            anthropic_gateway.result_message(*each)["content"][0]
            for each in zip(ids, ("Bash", "Bash"), outputs, strict=True)
        ]
        units.extend(anthropic_gateway.parse_reply(whole).message.units)
        units.append({"role": "user", "content": blocks})
        if number % 9 == 0:
            units += [
                {"role": "assistant", "content": "done"},
                anthropic_gateway.user_message(f"go on {number}"),
            ]
    found = []
    module = "helix_desktop.gateway.local_conversations"
    monkeypatch.setattr(f"{module}._can_be_written_together", lambda *_: False)
    for many in (LONG_HISTORY_MESSAGES, len(units)):
        monkeypatch.setattr(f"{module}.LONG_HISTORY_MESSAGES", many)
        async with bench(tmp_path / str(many)) as made:
            room = LocalAgentConversations(made, _nobody)
            commits: list[int] = []
            append = made.workspace.journal.append_to_journal

            async def counted(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
                commits.append(len(facts))  # noqa: B023 - called within this round
                return await append(conversation, facts)  # noqa: B023

            monkeypatch.setattr(made.workspace.journal, "append_to_journal", counted)
            sent = await room.receive_request(*arrival(units))
            await room.aclose()
            found.append(
                [each.fact for each in await made.read_conversation_facts(sent.ticket.conversation)]
            )
            assert (len(commits) < 12) == (many == LONG_HISTORY_MESSAGES)
    assert found[0] == found[1]


async def test_the_first_request_of_a_session_waits_for_few_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a long history, each waited for a part of it: a quarter of a second in all."""
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        commits: list[int] = []
        append = made.workspace.journal.append_to_journal

        async def counted(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
            commits.append(len(facts))
            return await append(conversation, facts)

        monkeypatch.setattr(made.workspace.journal, "append_to_journal", counted)
        sent = await room.receive_request(*arrival(history(1)))
        assert len(commits) == 3  # The conversation, its settings, and all messages.
        kinds = await recorded_kinds(made, sent.ticket)
        assert kinds[-5:-1] == [UserSaid, ModelReplied, ToolReturned, Received]
        held = (
            await room._get_open_conversation(await room._known_messages_of_ticket(sent.ticket))  # type: ignore[arg-type]
        ).conversation
        assert list(held.state.facts) == list(
            await made.read_conversation_facts(sent.ticket.conversation)
        )
        await room.aclose()


async def test_a_thousand_turns_are_recorded_without_looking_for_folds_and_other_agents_wait_for_few_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done once a turn over all turns before it, or once a fact over all facts,
    was most of the work.
    """
    said = [
        anthropic_gateway.user_message(f"word {number}")
        for number in range(10 * MESSAGES_IN_COMMIT)
    ]
    turns = [each for one in said for each in (one, {"role": "assistant", "content": "fine"})]
    looked = [0]
    measured = [0]
    find = FoldPlanner.find_due_fold
    meter = ConversationContext.next_request_meter
    shown: list[int] = []
    refresh = ConversationState._refresh_blocks

    def counted_find(planner: FoldPlanner, situation: FoldSituation) -> DocumentMaterial | None:
        looked[0] += 1
        return find(planner, situation)

    def counted_meter(context: ConversationContext) -> WindowMeter:
        measured[0] += 1
        return meter(context)

    monkeypatch.setattr(FoldPlanner, "find_due_fold", counted_find)

    def counted_refresh(state: ConversationState) -> None:
        shown.append(len(state.branch.items) - len(state._item_starts))
        refresh(state)

    monkeypatch.setattr(ConversationContext, "next_request_meter", counted_meter)
    monkeypatch.setattr(ConversationState, "_refresh_blocks", counted_refresh)
    async with bench(tmp_path) as made:
        for session, units in enumerate((said, turns)):
            room = LocalAgentConversations(made, _nobody)
            commits: list[int] = []
            append = made.workspace.journal.append_to_journal

            async def counted(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
                commits.append(len(facts))  # noqa: B023 - called within this round
                return await append(conversation, facts)  # noqa: B023

            with monkeypatch.context() as patch:
                patch.setattr(made.workspace.journal, "append_to_journal", counted)
                looked[0] = measured[0] = 0
                await room.receive_request(*arrival(units, f"session {session}"))
                await room.aclose()
            assert max(commits) <= 4 * MESSAGES_IN_COMMIT
            assert looked[0] < 10
            assert measured[0] < 5 * len(commits)
            assert max(shown) <= 4 * MESSAGES_IN_COMMIT, "the view grows with each commit"


def test_a_title_is_the_first_words_a_person_said() -> None:
    said = [
        anthropic_gateway.parse_message(anthropic_gateway.user_message(text))
        for text in ("<system-reminder>x</system-reminder>", "Mend it\nnow")
    ]
    assert title_from_messages(said) == "Mend it"
    assert title_from_messages([]) == ""


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (["x" * 60], "x" * 60),
        (["x" * 61], "x" * 59 + "…"),
        (["a wörd " * 20], "a wörd " * 8 + "a w…"),
        (["a word, " + "x" * 50 + "     and more"], "a word, " + "x" * 50 + "…"),
        (["  \n <env>\nLinux</env> ", "<b>bold</b>", "then this"], "then this"),
        (["<x>" + "y" * 20_000 + "</x> out of reach"], "<x>" + "y" * 56 + "…"),
        ([], ""),
    ],
)
def test_a_title_is_one_short_line(words: list[str], title: str) -> None:
    reply = ProtocolMessage(Speaker.ASSISTANT, (), (Piece(PieceKind.TEXT, "I am the model"),))
    picture = ProtocolMessage(Speaker.USER, (), (Piece(PieceKind.IMAGE, "aGVsbG8="),))
    said = [ProtocolMessage(Speaker.USER, (), (Piece(PieceKind.TEXT, text),)) for text in words]
    assert title_from_messages([reply, picture] + said) == title


def test_a_long_history_is_recorded_in_parts_that_end_before_a_reply_where_one_comes() -> None:
    def ends(replies: set[int], first: int, count: int) -> int:
        speakers = [Speaker.ASSISTANT if at in replies else Speaker.USER for at in range(count)]
        return _end_of_next_batch([ProtocolMessage(each, (), ()) for each in speakers], first)

    many = MESSAGES_IN_COMMIT
    assert ends({many - 1, many + 3, many + 5}, 0, 10 * many) == many + 3
    assert ends({many}, 0, 10 * many) == many
    assert ends({2 * many - 1}, 0, 10 * many) == 2 * many - 1
    assert ends({2 * many}, 0, 10 * many) == 2 * many, "other agents wait no longer"
    assert ends(set(), 5, 10 * many) == 5 + 2 * many
    assert ends(set(), 5, 5 + many) == 5 + many
    assert ends({6 + many}, 5, 5 + many) == 5 + many


def test_what_was_taken_back_is_no_part_of_a_conversation_that_is_read_again() -> None:
    told: list[Fact] = [
        Received(("a", "b"), (2, 4), "s", "h"),
        Received(("c", "d"), (6, 8), "s2", "h2"),
        Rewound(6),
        Received(("e",), (10,), "s3", "h3"),
        UserSaid((Text("x", 1),)),
    ]
    recorded = [Recorded("c", at, 0.0, fact) for at, fact in enumerate(told, 1)]
    line = known_messages_from_facts("c", recorded)
    assert (line.conversation, line.chain, line.seqs) == ("c", ["a", "b", "c", "e"], [2, 4, 6, 10])
    assert (line.session, line.head, line.last_message_seq) == ("s3", "h3", 10)
    nothing = known_messages_from_facts("c", [Recorded("c", 1, 0.0, Rewound(0))])
    assert (nothing.chain, nothing.last_message_seq) == ([], 0)


async def _asks(agent: Room, *calls: Calls) -> Replied:
    whole = WRITERS["anthropic"].whole([Says("I look."), *calls], USAGE, "1")
    return Replied(
        anthropic_gateway.parse_reply(whole).message.pieces,
        "m",
        Stop.CALLS,
        Usage(10, 0, 0, 1),
        "raw",
    )


async def test_a_hidden_recall_is_a_step_of_the_conversation_as_far_as_it_still_is_there(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as made:
        agent = Room(made)
        sent = await agent.send(anthropic_gateway.user_message("look around"))
        before = await agent.facts(sent)
        replied = await _asks(agent, Calls("search_cached_content", {"query": "swordfish"}, "h1"))
        calls = [piece for piece in replied.pieces if piece.kind is PieceKind.CALL]
        for ticket in (replace(sent.ticket, live=False), replace(sent.ticket, last="0" * 32)):
            ((_, name, _, well),) = await agent.room.answer_hidden_calls(ticket, replied, calls)
            assert (name, well) == ("search_cached_content", True)
            facts = await agent.facts(sent)
            kept = list(facts[:-1])
            spent = facts[-1]
            assert isinstance(spent, Spent), (
                "the provider bills the reply, although nobody goes on with it"
            )
            assert (kept, spent.purpose, spent.usage.input) == (
                before,
                Purpose.STEP,
                replied.usage.input,
            )
            before.append(spent)
        await agent.room.answer_hidden_calls(sent.ticket, replied, calls)
        said, *spends, answer, returned = await agent.facts(sent)
        assert len(spends) == 2
        assert isinstance(said, UserSaid)
        assert isinstance(answer, ModelReplied)
        assert (answer.raw, answer.stop, answer.saw) == ("raw", Stop.CALLS, sent.ticket.saw)
        assert isinstance(returned, ToolReturned)
        assert (returned.call, returned.ok, returned.head) == (
            "h1",
            True,
            "[nothing in the cache contains swordfish]",
        )
        refused = replace(calls[0], id="h2")
        asked = replace(replied, pieces=(refused,))
        found = await agent.room.answer_hidden_calls(sent.ticket, asked, [refused], "[Enough.]")
        assert found == [("h2", "search_cached_content", "[Enough.]", False)]
        returned = (await agent.facts(sent))[-1]
        assert isinstance(returned, ToolReturned)
        assert (returned.call, returned.ok, returned.head) == ("h2", False, "[Enough.]")
        (figure,) = await agent.room.figures_since()
        assert (figure.requests, figure.recalls) == (4, 2)
        await agent.answer(sent, Says("Done."))
        assert await agent.room.count_known_messages(agent.arrival()[0]) == 2
        await agent.room.aclose()


async def test_a_recall_is_answered_with_what_it_asks_for(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        agent = Room(made)
        sent = await agent.send(anthropic_gateway.user_message("look around"))
        text = "\n".join(f"line {number} of the file" for number in range(1, 400))
        stored = await made.workspace.cache.store_content(
            text.encode(), EntryOrigin("tool", "Bash", "text/plain")
        )
        for number in range(12):
            await made.workspace.cache.store_content(
                f"a swordfish {number}".encode(), EntryOrigin("tool")
            )
        await made.workspace.index.wait_until_indexed()

        async def recall(name: str, **arguments: object) -> str:
            call = Piece(PieceKind.CALL, json.dumps(arguments), id="r", name=name)
            replied = Replied((call,), "m", Stop.CALLS, Usage())
            ticket = replace(sent.ticket, live=False)
            ((_, _, answer, well),) = await agent.room.answer_hidden_calls(ticket, replied, [call])
            assert well
            return str(answer)

        entry = {"sha256": stored.digest.hex}
        whole = await recall("recall_cached_content", **entry)
        assert ("line 1 of" in whole, "line 399 of" in whole, "go on with" in whole) == (
            True,
            False,
            True,
        )
        lines = await recall("recall_cached_content", **entry, lines="7-8")
        assert ("line 7 of" in lines, "line 9 of" in lines) == (True, False)
        grepped = await recall("recall_cached_content", **entry, grep="line 2[05]0 ")
        assert ("line 200 of" in grepped, "line 250 of" in grepped, "line 300 of" in grepped) == (
            True,
            True,
            False,
        )
        assert ("line 199 of" in grepped, "line 100 of" in grepped) == (True, False), (
            "with the lines around it"
        )
        passages = await recall("recall_cached_content", **entry, find="line 321")
        assert "line 321 of" in passages
        assert (await recall("search_cached_content", query="swordfish")).count("swordfish") == 10
        assert (await recall("search_cached_content", query="swordfish", limit=3)).count(
            "swordfish"
        ) == 3
        assert (await recall("search_cached_content", query="swordfish", limit="3")).count(
            "swordfish"
        ) == 10

        # The agent's user goes back to before the output.
        session = await made.open_session(sent.ticket.conversation)
        first = session.conversation.state.seq
        call = ToolCall("b1", "Bash", "{}")
        await session.conversation.append_facts(
            ModelReplied((call,), "m", Stop.CALLS), ToolReturned("b1", stored, 9)
        )
        await session.conversation.append_facts(Rewound(first))
        await made.workspace.index.wait_until_indexed()
        left = "[from a part of this conversation that was left]"
        assert left in await recall("recall_cached_content", **entry)
        assert left in await recall("search_cached_content", query="399")
        await agent.room.aclose()


async def test_a_reply_ends_a_turn_unless_it_calls(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        agent = Room(made)
        sent = await agent.send(anthropic_gateway.user_message("look around"))
        await agent.answer(sent, Calls("Bash", {}, "c0"), stop=Stop.CALLS)
        assert TurnEnded not in await recorded_kinds(made, sent.ticket)
        sent = await agent.send(anthropic_gateway.result_message("c0", "Bash", "fine"))
        assert sent.ticket.ahead
        await agent.answer(sent, Says("Done."), stop=Stop.END)
        ended = (await agent.facts(sent))[-1]
        assert isinstance(ended, TurnEnded)
        returned = 0
        saw: list[int] = []
        noted: list[Received] = []
        for recorded in await made.read_conversation_facts(sent.ticket.conversation):
            if isinstance(recorded.fact, ToolReturned):
                returned = recorded.seq
            elif isinstance(recorded.fact, ModelReplied):
                saw.append(recorded.fact.saw)
            elif isinstance(recorded.fact, Received):
                noted.append(recorded.fact)
        assert saw[1] > returned > saw[0], "it answers what was recorded after it was sent"
        assert [(len(one.chain), one.session, one.head) for one in noted] == [(1, "s", "head")] * 4
        assert tuple(one.chain[0] for one in noted) == agent.arrival()[0].chain
        await agent.room.aclose()


async def test_folds_are_begun_after_a_turn_and_not_between_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    async with bench(tmp_path) as made:
        agent = Room(made)
        for number, (says, stop) in enumerate(
            ((Calls("Bash", {}, "c0"), Stop.CALLS), (Says("done"), Stop.END))
        ):
            unit = anthropic_gateway.result_message("c0", "Bash", "fine") if number else None
            sent = await agent.send(unit or anthropic_gateway.user_message("look"))
            session = await made.open_session(sent.ticket.conversation)
            kind = type(session.folding)
            monkeypatch.setattr(kind, "start_folds_after_turn", lambda _: begun.append(1))
            await agent.answer(sent, says, stop=stop)
            assert len(begun) == number, "only the second reply ends the turn"
        sent = await agent.send(anthropic_gateway.user_message("and on"))
        await agent.room.record_agent_reply(sent.ticket, None, "shown")
        assert len(begun) == 1, "of a reply that was hidden nothing is known"
        await agent.room.aclose()


async def test_a_request_that_others_went_on_from_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        agent = Room(made)
        agent.units = [
            anthropic_gateway.user_message("one"),
            {"role": "assistant", "content": "two"},
        ]
        arrival_, said = agent.arrival()
        with pytest.raises(ActionRefused, match="continued elsewhere in the meantime"):
            await agent.room.receive_request(arrival_, said[1:], known_count=1)
        await agent.room.receive_request(arrival_, said)
        agent.units.append(anthropic_gateway.user_message("three"))
        arrival_, said = agent.arrival()
        sent = await agent.room.receive_request(arrival_, said[2:], known_count=2)
        said_here = [
            fact.parts[0] for fact in await agent.facts(sent) if isinstance(fact, UserSaid)
        ]
        assert [part.text for part in said_here if isinstance(part, Text)] == ["one", "three"]
        await agent.room.aclose()


async def test_a_session_that_goes_back_goes_back_here(tmp_path: Path) -> None:
    """Its conversation is rewound rather than forked, and what was said after that
    place stays recorded.
    """
    async with bench(tmp_path) as made:
        agent = Room(made)
        await agent.answer(await agent.send(anthropic_gateway.user_message("one")), Says("first"))
        await agent.answer(await agent.send(anthropic_gateway.user_message("two")), Says("second"))
        agent.units = agent.units[:2]
        sent = await agent.send(anthropic_gateway.user_message("three"))
        facts = await agent.facts(sent)
        assert [texts(fact) for fact in facts if isinstance(fact, UserSaid)] == [
            ["one"],
            ["two"],
            ["three"],
        ]
        (rewound,) = [at for at, fact in enumerate(facts) if isinstance(fact, Rewound)]
        assert [texts(fact) for fact in facts[rewound:] if isinstance(fact, UserSaid)] == [
            ["three"]
        ]
        await agent.room.aclose()


async def test_the_figures_of_a_closed_conversation_are_counted_again_once_it_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_conversations, "MOST_OPEN_CONVERSATIONS", 1)
    async with bench(tmp_path) as made:
        first = Room(made)
        other = Room(made)
        other.room = first.room
        for requests in (1, 2):
            sent = await first.send(
                anthropic_gateway.user_message(f"duty {requests}"), session="first"
            )
            await first.answer(sent, Says("fine"), usage=Usage(10, 0, 0, 1))
            await other.answer(
                await other.send(anthropic_gateway.user_message("beside"), session="other"),
                Says("fine"),
            )
            for _ in range(2):  # The second time, they are read from memory.
                found = await first.room.figures_since(1.0)
                assert [
                    one.requests for one in found if one.conversation == sent.ticket.conversation
                ] == [requests]
        await first.room.aclose()


async def test_few_conversations_are_held_open_and_those_in_the_trash_are_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_conversations, "MOST_OPEN_CONVERSATIONS", 2)
    async with bench(tmp_path) as made:
        agents = [Room(made, LocalAgentConversations(made, _nobody))]
        names: list[str] = []
        agents += [Room(made, agents[0].room) for _ in range(2)]
        for number, agent in enumerate(agents):
            sent = await agent.send(
                anthropic_gateway.user_message(f"duty {number}"), session=f"s{number}"
            )
            await agent.answer(sent, Says("fine"), usage=Usage(10, 0, 0, 1))
            names.append(sent.ticket.conversation)
        assert [figure.conversation for figure in await agents[0].room.figures_since()] == names[1:]
        for number in (1, 0):
            sent = await agents[number].send(
                anthropic_gateway.user_message("on"), session=f"s{number}"
            )
            await agents[number].answer(sent, Says("fine"))
        assert [figure.conversation for figure in await agents[0].room.figures_since()] == [
            names[1],
            names[0],
        ]
        assert [row.title for row in made.list_conversations() if row.id == names[2]] == ["duty 2"]
        await agents[0].room.aclose()
        await (await made.open_session(names[0])).set_trashed()
        again = LocalAgentConversations(made, _nobody)
        for number, (agent, name) in enumerate(zip(agents, names, strict=True)):
            agent.room = again
            sent = await agent.send(anthropic_gateway.user_message("and on"), session=f"s{number}")
            assert (sent.ticket.conversation == name) == (number > 0)
        await again.aclose()


async def test_while_a_long_history_is_recorded_all_of_it_counts_as_known(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        units = history(LONG_HISTORY_MESSAGES // 2)
        few = await room.receive_request(*arrival(units[:LONG_HISTORY_MESSAGES], "few"))
        assert (few.ticket.is_import, few.ticket.ahead) == (False, False)
        units[0] = anthropic_gateway.user_message("another agent's")
        many = await room.receive_request(*arrival(units[: LONG_HISTORY_MESSAGES + 1], "many"))
        assert (many.ticket.is_import, many.ticket.ahead) == (True, True)
        assert (
            await room.count_known_messages(arrival(units, "many")[0]) == LONG_HISTORY_MESSAGES + 1
        )
        await room.aclose()
        assert (
            await room.count_known_messages(arrival(units, "many")[0]) == LONG_HISTORY_MESSAGES + 1
        )
        kinds = await recorded_kinds(made, many.ticket)
        assert kinds.count(ToolReturned) == LONG_HISTORY_MESSAGES // 2


async def test_a_history_that_is_being_recorded_stays_open_while_other_agents_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_conversations, "MOST_OPEN_CONVERSATIONS", 1)
    opened: list[str] = []
    open_by_name = OpenAgentConversation.open_by_name

    async def note_and_open(made: Any, name: str, ask: Any) -> OpenAgentConversation:
        opened.append(name)
        return await open_by_name(made, name, ask)

    monkeypatch.setattr(OpenAgentConversation, "open_by_name", note_and_open)
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        units = history(LONG_HISTORY_MESSAGES)
        many = await room.receive_request(*arrival(units, "many"))
        assert many.ticket.is_import
        await room.receive_request(
            *arrival([anthropic_gateway.user_message("another agent's")], "few")
        )
        await room._tasks.wait_for_all_tasks()
        units.append(anthropic_gateway.user_message("go on"))
        await room.receive_request(*arrival(units, "many"))
        assert opened.count(many.ticket.conversation) == 1, "it would be in memory twice"
        await room.aclose()


class WatchedMessage(ProtocolMessage):
    """A message that says when it is read, and is read only once somebody allows it."""

    __slots__ = ("allowed", "asked", "whole")
    asked: threading.Event
    allowed: threading.Event
    whole: ProtocolMessage

    def __init__(
        self, whole: ProtocolMessage, asked: threading.Event, allowed: threading.Event
    ) -> None:
        object.__setattr__(self, "speaker", whole.speaker)
        object.__setattr__(self, "units", whole.units)
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "asked", asked)
        object.__setattr__(self, "allowed", allowed)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        self.asked.set()
        assert self.allowed.wait(10), "the event loop waits for this message"
        pieces: tuple[Piece, ...] = self.whole.pieces
        return pieces


async def test_others_are_answered_while_results_of_an_earlier_conversation_are_looked_for(
    tmp_path: Path,
) -> None:
    """In a history of 73,825 messages that took .6 s, in which nobody else was answered."""
    asked = threading.Event()
    allowed = threading.Event()
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        await room.receive_request(*arrival(history(2), ""))
        later_units = [anthropic_gateway.user_message("and now")] + history(2)[1:]
        new, messages = arrival(later_units, "")
        watched = [WatchedMessage(message, asked, allowed) for message in messages]
        receiving = room._tasks.spawn_task(room.receive_request(new, watched), name="receive")
        assert await asyncio.to_thread(asked.wait, 10)
        allowed.set()
        await receiving
        await room.aclose()


async def test_a_long_history_of_a_session_goes_on_before_it_is_read(tmp_path: Path) -> None:
    asked = threading.Event()
    allowed = threading.Event()
    async with bench(tmp_path) as made:
        room = LocalAgentConversations(made, _nobody)
        await room.receive_request(*arrival([anthropic_gateway.user_message("hello")], "other"))
        new, messages = arrival(history(MESSAGES_IN_COMMIT * 2))
        # The first message alone is read: it says which session this is.
        behind = [WatchedMessage(message, asked, allowed) for message in messages[1:]]
        allowed.set()
        sent = await room.receive_request(new, [messages[0], *behind])
        assert are_all_unchanged(sent.entries, 1 + len(behind))
        assert not asked.is_set()
        await room.aclose()


async def test_a_reply_and_the_note_by_which_it_is_recognised_are_on_the_disk_at_once(
    tmp_path: Path,
) -> None:
    """A program that is killed between the two would take the reply for one that the agent never
    got, and would record it again when the agent sends it with its next message.
    """
    journal_sizes: list[int] = []
    async with bench(tmp_path) as made:
        agent = Room(made)
        sent = await agent.send(anthropic_gateway.user_message("one"))
        await agent.room._tasks.wait_for_all_tasks()
        session = await made.open_session(sent.ticket.conversation)
        session.subscribe_to_events(lambda _: journal_sizes.append(session.conversation.state.seq))
        await agent.answer(sent, Says("two"))
        recorded = session.conversation.state.facts
        (reply,) = [each for each in recorded if isinstance(each.fact, ModelReplied)]
        assert journal_sizes
        # What a kill leaves is what was written when the first fact of the reply was told.
        left_by_kill = recorded[: journal_sizes[0]]
        known = known_messages_from_facts(session.id, left_by_kill)
        assert known.seqs[-1] == reply.seq, "the agent's next request is recognised by it"
        await agent.room.aclose()


@pytest.mark.parametrize("words", ["three", "three " * 2_000, "three " * 60_000])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_message_and_the_note_by_which_it_is_recognised_are_on_the_disk_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool, words: str
) -> None:
    """A program that was killed between the two left a message that no request was recognised
    by. The agent's next try began a second conversation, if it was the session's first message.
    """
    async with bench(tmp_path) as made:
        agent = Room(made)
        if not is_first:
            sent = await agent.send(anthropic_gateway.user_message("one"))
            await agent.answer(sent, Says("two"))
        written_together = _note_what_is_written(monkeypatch)
        await agent.send(anthropic_gateway.user_message(words))
        await agent.room._tasks.wait_for_all_tasks()
        (with_message,) = [names for names in written_together if "UserSaid" in names]
        assert "Received" in with_message
        await agent.room.aclose()


async def test_a_long_output_and_the_note_by_which_it_is_recognised_are_on_the_disk_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that was killed between the two recorded the output again with the next request."""
    lines = [f"{number}: a line of a long output" for number in range(5_000)]
    async with bench(tmp_path) as made:
        agent = Room(made)
        sent = await agent.send(anthropic_gateway.user_message("one"))
        await agent.answer(sent, Calls("Bash", {"command": "list"}, "c1"))
        written_together = _note_what_is_written(monkeypatch)
        await agent.send(anthropic_gateway.result_message("c1", "Bash", "\n".join(lines)))
        await agent.room._tasks.wait_for_all_tasks()
        (with_output,) = [names for names in written_together if "ToolReturned" in names]
        assert with_output == ["ToolReturned", "Folded", "Received"]
        await agent.room.aclose()


def _note_what_is_written(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return a list that gets, for each transaction of the journal, the classes of its facts."""
    written_together: list[list[str]] = []
    append_to_journal = StoreJournal.append_to_journal

    async def note_what_is_written(
        self: StoreJournal, conversation: str, facts: Sequence[Fact]
    ) -> Sequence[Recorded]:
        written_together.append([type(fact).__name__ for fact in facts])
        return await append_to_journal(self, conversation, facts)

    monkeypatch.setattr(StoreJournal, "append_to_journal", note_what_is_written)
    return written_together


async def test_a_reply_that_is_told_again_is_neither_recorded_nor_paid_twice(
    tmp_path: Path,
) -> None:
    """A gateway tells it again if the process that recorded it was killed before it said so."""
    async with bench(tmp_path) as made:
        agent = Room(made)
        sent = await agent.send(anthropic_gateway.user_message("one"))
        usage = Usage(input=10, output=5)
        await agent.answer(sent, Says("two"), usage=usage)
        del agent.units[1:]
        successor = Room(made)
        successor.units = agent.units
        await successor.answer(sent, Says("two"), usage=usage)
        found = [type(fact).__name__ for fact in await successor.facts(sent)]
        assert found == ["UserSaid", "ModelReplied", "TurnEnded"]
        await successor.room.aclose()
        await agent.room.aclose()
