"""Requests of agents as facts of conversations."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.engine import budget
from helix_desktop.engine.blocks import Message, Reply, Request, Role
from helix_desktop.engine.facts import (
    Fact,
    FoldKind,
    ModelReplied,
    Recorded,
    Rewound,
    Stop,
    Text,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.policy import Policy
from helix_desktop.gateway.arrival import Arrival, Replied
from helix_desktop.gateway.follower import AgentsModel, Follower, _picture
from helix_desktop.gateway.room import MANY, PART, Room, title_of
from helix_desktop.gateway.shown import As, Changed
from helix_desktop.gateway.tracks import chain_of
from helix_desktop.wire import anthropic
from helix_desktop.wire.message import SLICE, Wired
from tests.conftest import Expect
from tests.faults.gateway_histories import TOOLS, _nobody, bench
from tests.peers.agent_provider import WRITERS, Calls, Says

USAGE = {"input": 3, "read": 0, "write": 0}


def arrival(units: list[object], session: str = "s") -> tuple[Arrival, list[Wired]]:
    said = anthropic.messages({"messages": units})
    chain = chain_of("anthropic", said)
    return Arrival("anthropic", "an agent", session, "head", "claude-opus-4-6", "system", TOOLS, chain), said


async def test_what_an_agent_says_and_gets_back_becomes_facts_and_a_long_output_is_shown_short(tmp_path: Path) -> None:
    units: list[object] = [anthropic.said("look around")]
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        sent = await room.arrive(*arrival(units))
        assert list(sent.entries) == [As(0)]
        answer = anthropic.answer(WRITERS["anthropic"].whole([Says("I look"), Calls("Bash", {}, "c1")], USAGE, "1"))
        replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1))
        await room.replied(sent.ticket, replied, answer.message.key)
        units += [*answer.message.units, anthropic.result("c1", "Bash", "a line of it\n" * 40_000)]
        sent = await room.arrive(*arrival(units))
        assert [type(entry) for entry in sent.entries] == [As, As, Changed]
        assert sent.recallable
        facts = [type(each.fact) for each in await made.child(sent.ticket.conversation)]
        assert [facts.count(kind) for kind in (UserSaid, ModelReplied, ToolReturned)] == [1, 1, 1]
        assert [row.agent for row in made.conversations()] == ["an agent"]
        (figure,) = await room.figures()
        assert figure.requests == 1
        await room.aclose()


async def test_an_agent_finds_words_in_what_a_summary_of_its_conversation_stands_for(tmp_path: Path) -> None:
    units: list[object] = [anthropic.said("The port is 4711. Look around.")]
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        for number in range(12):
            sent = await room.arrive(*arrival(units))
            call = Calls("Bash", {"command": f"look {number}"}, f"c{number}")
            answer = anthropic.answer(WRITERS["anthropic"].whole([call], USAGE, "1"))
            await room.replied(
                sent.ticket, Replied(answer.message.pieces, "m", Stop.CALLS, Usage()), answer.message.key
            )
            units += [*answer.message.units, anthropic.result(f"c{number}", "Bash", f"line of {number}\n" * 200)]
        sent = await room.arrive(*arrival(units))
        await (await made.session(sent.ticket.conversation)).steward.fold_now(FoldKind.TRUNCATION)
        asks = anthropic.answer(
            WRITERS["anthropic"].whole([Calls("recall_history", {"fold": None, "find": "4711"}, "r")], USAGE, "1")
        )
        replied = Replied(asks.message.pieces, "m", Stop.CALLS, Usage())
        ((_, name, text, well),) = await room.hidden(sent.ticket, replied, asks.message.pieces)
        assert (name, well) == ("recall_history", True)
        assert "user: The port is 4711. Look around." in text
        await room.aclose()


async def test_what_a_provider_reports_is_learned_under_the_name_the_agent_asks_for(tmp_path: Path) -> None:
    units: list[object] = [anthropic.said("a word of it " * 1_000)]
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        for number in range(5):
            sent = await room.arrive(*arrival(units))
            state = (await made.session(sent.ticket.conversation)).conversation.state
            answer = anthropic.answer(WRITERS["anthropic"].whole([Calls("Bash", {}, f"c{number}")], USAGE, str(number)))
            usage = Usage(round(budget.meter(state, Policy()).used / state.factor() * 1.1), 0, 0, 1)
            replied = Replied(answer.message.pieces, "claude-opus-4-6-20260205", Stop.CALLS, usage)
            await room.replied(sent.ticket, replied, answer.message.key)
            units += [*answer.message.units, anthropic.result(f"c{number}", "Bash", "fine")]
        assert state.factor() == pytest.approx(1.1, abs=0.01)
        assert (await room.figures())[0].paid == pytest.approx((await room.figures())[0].sent * 5e-6, rel=0.02)
        await room.aclose()


async def test_what_a_fold_costs_with_the_agents_own_key_stands_on_the_bill() -> None:
    async def ask(*_: object) -> tuple[str, Usage, str]:
        return "a summary", Usage(1_000_000, 0, 0, 0), "claude-opus-4-6-20260205"

    model = AgentsModel("c", "anthropic/claude-opus-4-6", ask)
    request = Request("", "system", (Message(Role.USER, (Text("a question"),)),))
    reply = [delta async for delta in model.stream(request)][-1]
    assert isinstance(reply, Reply)
    assert reply.usage.cost == pytest.approx(5.0)
    assert reply.model == "anthropic/claude-opus-4-6"


async def test_a_recall_of_history_that_is_of_no_conversation_says_so(tmp_path: Path) -> None:
    units: list[object] = [anthropic.said("look around")]
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        sent = await room.arrive(*arrival(units))
        asks = anthropic.answer(
            WRITERS["anthropic"].whole([Calls("recall_history", {"find": "4711"}, "r")], USAGE, "1")
        )
        replied = Replied(asks.message.pieces, "m", Stop.CALLS, Usage())
        gone = replace(sent.ticket, conversation="gone")
        ((_, _, text, well),) = await room.hidden(gone, replied, asks.message.pieces)
        assert (text, well) == ("[This conversation's earlier messages cannot be recalled now.]", False)
        await room.aclose()


async def test_an_agent_whose_conversation_was_deleted_goes_on_in_a_new_one(tmp_path: Path) -> None:
    units: list[object] = [anthropic.said("look around")]
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        sent = await room.arrive(*arrival(units))
        answer = anthropic.answer(WRITERS["anthropic"].whole([Says("done")], USAGE, "1"))
        replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.END, Usage())
        await room.replied(sent.ticket, replied, answer.message.key)
        await (await made.session(sent.ticket.conversation)).trash()
        await made.empty_trash()
        again = await room.arrive(*arrival([*units, *answer.message.units, anthropic.said("go on")]))
        assert [row.id for row in made.conversations()] == [again.ticket.conversation]
        assert again.ticket.conversation != sent.ticket.conversation
        await room.aclose()


async def test_what_was_forgotten_stands_in_no_later_request(tmp_path: Path) -> None:
    units: list[object] = [anthropic.said("look around")]
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        outputs = ["the port is 4711-secret\n" + "a line of it\n" * 40_000, "fine"]
        for number, output in enumerate(outputs):
            sent = await room.arrive(*arrival(units))
            answer = anthropic.answer(WRITERS["anthropic"].whole([Calls("Bash", {}, f"c{number}")], USAGE, str(number)))
            replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage())
            await room.replied(sent.ticket, replied, answer.message.key)
            units += [*answer.message.units, anthropic.result(f"c{number}", "Bash", output)]
        assert "4711-secret" in repr(sent.entries)
        await made.forget(text="4711-secret")
        assert "4711-secret" not in repr((await room.arrive(*arrival(units))).entries)
        await room.aclose()


async def test_a_request_that_goes_ahead_is_recorded_before_its_reply(tmp_path: Path) -> None:
    units: list[object] = [anthropic.said("look around")]
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        for number in range(2):
            sent = await room.arrive(*arrival(units))
            assert sent.ticket.ahead == (number == 1)
            facts = [type(each.fact) for each in await made.child(sent.ticket.conversation)]
            assert ToolReturned not in facts  # the request is on its way
            answer = anthropic.answer(WRITERS["anthropic"].whole([Calls("Bash", {}, f"c{number}")], USAGE, str(number)))
            replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1))
            await room.replied(sent.ticket, replied, answer.message.key)
            units += [*answer.message.units, anthropic.result(f"c{number}", "Bash", "fine")]
        facts = [type(each.fact) for each in await made.child(sent.ticket.conversation)]
        assert [kind for kind in facts if kind in (ModelReplied, ToolReturned)] == [
            ModelReplied,
            ToolReturned,
            ModelReplied,
        ]
        await room.aclose()


def history(steps: int, output: str = "fine") -> list[object]:
    """What an agent has that was connected late."""
    units: list[object] = [anthropic.said("look around")]
    for number in range(steps):
        whole = WRITERS["anthropic"].whole([Calls("Bash", {}, f"c{number}")], USAGE, str(number))
        units += [*anthropic.answer(whole).message.units, anthropic.result(f"c{number}", "Bash", output)]
    return units


async def test_a_long_history_goes_ahead_as_it_came_and_is_recorded_before_its_reply(tmp_path: Path) -> None:
    units = history(PART, "a line of it\n" * 5_000)
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        sent = await room.arrive(*arrival(units))
        assert [*sent.entries] == [*map(As, range(len(units)))]
        assert not sent.recallable
        facts = [type(each.fact) for each in await made.child(sent.ticket.conversation)]
        assert ToolReturned not in facts  # the request is on its way
        shorter = await room.overflowed(sent.ticket)
        assert shorter is not None
        assert Changed in map(type, shorter.entries)
        answer = anthropic.answer(WRITERS["anthropic"].whole([Calls("Bash", {}, "last")], USAGE, "1"))
        replied = Replied(answer.message.pieces, "claude-opus-4-6", Stop.CALLS, Usage(10, 0, 0, 1))
        await room.replied(sent.ticket, replied, answer.message.key)
        facts = [type(each.fact) for each in await made.child(sent.ticket.conversation)]
        assert [facts.count(kind) for kind in (ToolReturned, ModelReplied)] == [PART, PART + 1]
        sent = await room.arrive(*arrival([*units, *answer.message.units, anthropic.result("last", "Bash", "fine")]))
        assert Changed in map(type, sent.entries)
        await room.aclose()


async def test_a_long_history_goes_on_where_recording_it_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    expect("a request could not be recorded")
    units = history(PART)
    taken: list[int] = []
    real = Follower.take

    async def take(follower: Follower, messages: Sequence[Wired], tip: int) -> list[int]:
        taken.append(len(messages))
        if len(taken) == 2:
            raise TimeoutError
        return await real(follower, messages, tip)

    monkeypatch.setattr(Follower, "take", take)
    async with bench(tmp_path) as made:
        room = Room(made, _nobody)
        await room.arrive(*arrival(units))
        sent = await room.arrive(*arrival(units))
        await room.aclose()
        facts = [type(each.fact) for each in await made.child(sent.ticket.conversation)]
        assert facts.count(ToolReturned) == PART
        assert Rewound not in facts
        assert taken[1] == taken[2] == len(units) - taken[0]


async def test_a_long_history_is_recorded_in_few_commits_as_it_would_be_message_by_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units: list[object] = [anthropic.said("look around")]
    for number in range(PART):
        ids = [f"c{number}", f"d{number}"]
        whole = WRITERS["anthropic"].whole([Says("I look"), *(Calls("Bash", {}, one) for one in ids)], USAGE, "1")
        outputs = ["a line of it\n" * (40_000 if number == 7 else 1), f"output {number}"]
        blocks = [anthropic.result(*each)["content"][0] for each in zip(ids, ("Bash", "Bash"), outputs, strict=True)]
        units += [*anthropic.answer(whole).message.units, {"role": "user", "content": blocks}]
        if number % 9 == 0:
            units += [{"role": "assistant", "content": "done"}, anthropic.said(f"go on {number}")]
    found = []
    for many in (MANY, len(units)):
        monkeypatch.setattr("helix_desktop.gateway.room.MANY", many)
        async with bench(tmp_path / str(many)) as made:
            room, commits, append = Room(made, _nobody), list[int](), made.workspace.journal.append

            async def counted(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
                commits.append(len(facts))  # noqa: B023 - called within this round
                return await append(conversation, facts)  # noqa: B023

            monkeypatch.setattr(made.workspace.journal, "append", counted)
            sent = await room.arrive(*arrival(units))
            await room.aclose()
            found.append([each.fact for each in await made.child(sent.ticket.conversation)])
            assert (len(commits) < 12) == (many == MANY)
    assert found[0] == found[1]


def test_pictures_are_read_in_slices_and_text_that_is_none_is_taken_as_it_is() -> None:
    content = bytes(range(256)) * (SLICE // 128)
    assert _picture(base64.b64encode(content).decode()) == content
    assert _picture("no base64 ä!") == "no base64 ä!".encode()


def test_a_title_is_the_first_words_a_person_said() -> None:
    said = [
        anthropic.message(anthropic.said(text)) for text in ("<system-reminder>x</system-reminder>", "Mend it\nnow")
    ]
    assert title_of(said) == "Mend it"
    assert title_of([]) == ""
