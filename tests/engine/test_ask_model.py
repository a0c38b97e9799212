"""Asking a model for one text: within a time, with its cost told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from helix_desktop.engine import request_building
from helix_desktop.engine.ask_model import (
    MOST_TRIES,
    WAITED_FOR_CHARACTERS,
    append_question,
    build_material_request,
)
from helix_desktop.engine.facts import Purpose, Reasoning, Spent, Stop, Text, Usage
from helix_desktop.engine.messages import Delta, Reply, Request, TextDelta
from helix_desktop.errors import ModelFailed, ModelOverloaded
from tests.engine.keeping import Writer, fails, inquiry
from tests.engine.talk import Talk


async def test_the_text_and_what_it_cost() -> None:
    spent: list[Spent] = []
    writer = Writer("fast", lambda _: "  the answer\n")
    assert (
        await inquiry(spent).ask_for_text(
            writer, build_material_request("material", "question?", Purpose.HANDOVER), 5
        )
        == "the answer"
    )
    assert [(one.purpose, one.model, one.usage.input) for one in spent] == [
        ("handover", "fast", 100)
    ]
    assert writer.requests[0].model == "fast"


async def test_a_model_that_hangs_has_failed_when_its_time_is_over() -> None:
    with pytest.raises(ModelFailed, match=r"did not finish within 0\.01 seconds"):
        await inquiry().ask_for_text(
            Writer("slow", hangs=True), build_material_request("m", "q", Purpose.HANDOVER), 0.01
        )


async def test_a_model_that_fails_says_why_itself() -> None:
    with pytest.raises(ModelOverloaded):
        await inquiry().ask_for_text(
            Writer("busy", fails), build_material_request("m", "q", Purpose.HANDOVER), 5
        )


@dataclass
class Breaking:
    """A stream that breaks off so often before it comes whole."""

    left: int
    model_name: str = "broken"

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        self.left -= 1
        yield Reply(
            (Text("half a" if self.left >= 0 else "whole"),),
            Stop.CUT if self.left >= 0 else Stop.END,
        )


async def test_a_stream_that_breaks_off_is_asked_again_and_half_a_text_is_none() -> None:
    spent: list[Spent] = []
    asked = build_material_request("m", "q", Purpose.HANDOVER)
    assert await inquiry(spent).ask_for_text(Breaking(MOST_TRIES - 1), asked, 5) == "whole"
    assert len(spent) == MOST_TRIES
    with pytest.raises(ModelFailed, match="stopped in the middle"):
        await inquiry(spent).ask_for_text(Breaking(MOST_TRIES), asked, 5)


@dataclass
class Thinking:
    """A model whose thinking takes all of a limit, where it has one."""

    asked: list[Request] = field(default_factory=list)
    model_name: str = "thinking"

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        self.asked.append(request)
        if request.max_output:
            yield Reply((Reasoning("first of all"),), Stop.LENGTH, Usage(input=5))
        else:
            yield Reply((Reasoning("first of all"), Text("the answer")), Stop.END, Usage(input=5))


async def test_a_model_that_spends_all_its_room_on_thinking_is_asked_again_without_a_limit() -> (
    None
):
    spent = list[Spent]()
    model = Thinking()
    assert (
        await inquiry(spent).ask_for_text(
            model, build_material_request("m", "q", Purpose.HANDOVER, 500), 5
        )
        == "the answer"
    )
    assert [request.max_output for request in model.asked] == [500, 0]
    assert len(spent) == 2


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("<think>\n## Completed Work\nlet me see\n</think>\n\nthe answer", "the answer"),
        ("<thinking>so</thinking>the answer", "the answer"),
        ("<think>and no end", ""),
        ("the tag <think> is new, </think> too", "the tag <think> is new, </think> too"),
    ],
)
async def test_thinking_that_a_server_left_in_the_text_is_no_part_of_it(
    said: str, text: str
) -> None:
    asked = build_material_request("m", "q", Purpose.HANDOVER)
    assert await inquiry().ask_for_text(Writer("open", lambda _: said), asked, 5) == text


class Endless:
    """A stream that ends without a reply."""

    model_name = "odd"

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        yield TextDelta("half a")


async def test_a_stream_without_a_reply_has_failed() -> None:
    with pytest.raises(ModelFailed, match="stopped without sending a reply"):
        await inquiry().ask_for_text(
            Endless(), build_material_request("m", "q", Purpose.HANDOVER), 5
        )


# A busy computer may stand still between two words, but hardly for so many seconds.
LIMIT_BETWEEN_WORDS = 4.5


@dataclass
class Rambling:
    """A model that writes words without end."""

    words: int = 0
    model_name: str = "rambling"

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        while True:
            self.words += 1
            yield TextDelta("word ")
            await asyncio.sleep(0.001)


async def test_a_model_that_writes_without_end_is_waited_for_until_it_wrote_far_too_much() -> None:
    model = Rambling()
    moved = list[int]()
    asking = replace(inquiry(), wrote=lambda: moved.append(model.words))
    request = build_material_request("m", "q", Purpose.HANDOVER, 50)
    async with asyncio.timeout(60):
        with pytest.raises(ModelFailed, match="did not finish within"):
            await asking.ask_for_text(model, request, LIMIT_BETWEEN_WORDS)
    assert moved == list(range(1, 50 * WAITED_FOR_CHARACTERS // len("word ") + 1))


@dataclass
class OneAtATime:
    """A slow server that answers a request once it is done with the one before."""

    free: asyncio.Lock = field(default_factory=asyncio.Lock)
    model_name: str = "slow"

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        async with self.free:
            for _ in range(60):
                await asyncio.sleep(0.05)
                yield TextDelta("word ")
            yield Reply((Text("words"),), Stop.END)


async def test_a_reply_that_has_to_wait_for_another_one_is_waited_for_while_that_is_written() -> (
    None
):
    asking = replace(inquiry(), wrote=lambda: None)
    request = build_material_request("m", "q", Purpose.HANDOVER, 500)
    model = OneAtATime()
    # Each reply takes three seconds, so the first word of the third one comes after six.
    asked = [asking.ask_for_text(model, request, LIMIT_BETWEEN_WORDS) for _ in range(3)]
    replies = await asyncio.gather(*asked)
    assert replies == ["words"] * 3


def test_requests_of_both_ways_are_legal() -> None:
    plain = build_material_request("the material", "the question", Purpose.COMPACTION, 500)
    assert request_building.find_violations(plain) == []
    assert (plain.purpose, plain.max_output) == ("compaction", 500)
    assert "the material" in str(plain.messages)
    talk = Talk()
    talk.user("go")
    talk.step("a")
    request = talk.request()
    asked = append_question(request, "the question", Purpose.HANDOVER, 500)
    assert request_building.find_violations(asked) == []
    assert asked.messages[:-1] == request.messages[:-1]
    assert asked.messages[-1].parts[-1] == Text("the question")
    assert asked.tools == request.tools
