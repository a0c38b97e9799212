"""What is sent again when the provider refuses a request, and what the agent is told at last."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helix_desktop.gateway.refused_request import REFUSED_WITHOUT, TOO_LONG_PHRASES
from helix_desktop.gateway.view_entries import ChangedMessage, ChangedPart, UnchangedMessage
from tests.conftest import Expect
from tests.gateway import test_request_handling as handling
from tests.gateway.test_request_handling import (
    ANSWER,
    CALL,
    FINE,
    QUESTION,
    SHORT,
    Exchanged,
    Room,
    one_exchange,
    refused,
    too_long,
)
from tests.peers.agent_provider import Provider, Raw
from tests.peers.agent_provider import Says as Said

Json = Any
exchanged = handling.exchanged
provider = handling.provider

OVERFLOW = ["fold"]


RETRIES: dict[str, tuple[Any, ...]] = {
    "too long, and shorter then": (
        [too_long(), FINE],
        (SHORT,),
        ["tools", "tools short"],
        200,
        OVERFLOW,
    ),
    "too large": (
        [too_long(413, b"too large"), FINE],
        (SHORT,),
        ["tools", "tools short"],
        200,
        OVERFLOW,
    ),
    "too long, and still": (
        [too_long(), refused(413)],
        (SHORT,),
        ["tools", "tools short"],
        413,
        OVERFLOW,
    ),
    "still too long": (
        [too_long(), refused(400)],
        (SHORT,),
        ["tools", "tools short"],
        400,
        OVERFLOW,
    ),
    "too long, and nothing to fold": ([too_long()], None, ["tools"], 400, OVERFLOW),
    "another status": ([too_long(429)], (SHORT,), ["tools"], 429, []),
    "too large without a word": ([refused(413)], (SHORT,), ["tools"], 413, []),
    "the change is refused": ([refused(400), FINE], (SHORT,), ["tools", "own"], 200, []),
    "the change is refused with 422": ([too_long(422), FINE], (SHORT,), ["tools", "own"], 200, []),
    "so is the agent's own": ([refused(422), refused(403)], (SHORT,), ["tools", "own"], 403, []),
    "so is the agent's own, alike": (
        [refused(400), refused(400)],
        (SHORT,),
        ["tools", "own"],
        400,
        [],
    ),
    "busy": ([refused(503)], (SHORT,), ["tools"], 503, []),
}


@pytest.mark.parametrize("name", RETRIES)
async def test_a_refused_request_is_sent_again_in_the_way_that_may_help(
    exchanged: Exchanged, name: str, expect: Expect, caplog: pytest.LogCaptureFixture
) -> None:
    replies, shorter, kinds, status, told = RETRIES[name]
    is_sent_as_it_came = kinds[-1] == "own"
    if is_sent_as_it_came:
        expect("the provider refused a changed request with")
    room = Room((UnchangedMessage(0),), shorter)
    spoilt: set[str] = set()
    outcome = await exchanged(replies, room, refused_conversations=spoilt)
    assert outcome.kinds() == kinds
    assert outcome.seen[0] == status
    warning = (
        f"the provider refused a changed request with {replies[0].status}; it was sent as it came"
    )
    warnings = [words for words in caplog.messages if "refused a changed" in words]
    assert warnings == [warning] * kinds.count("own")
    if status == 200:
        assert spoilt == ({"talk"} if is_sent_as_it_came else set())
        assert room.told == ["receive", *told, "reply in talk: fine"]
        assert outcome.sent == [("talk", outcome.asked[-1].body)]
    else:
        assert spoilt == set()
        assert room.told == ["receive", *told]
        assert outcome.seen[1] == replies[-1].content
        assert outcome.sent == []


@pytest.mark.parametrize("words", TOO_LONG_PHRASES)
async def test_each_way_to_say_too_long_is_understood(exchanged: Exchanged, words: bytes) -> None:
    outcome = await exchanged([too_long(400, words), FINE], Room((UnchangedMessage(0),), (SHORT,)))
    assert outcome.kinds() == ["tools", "tools short"]


LLAMA_REFUSAL = (
    b'{"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9372, "n_ctx": 8192, '
    b'"message": "request (9372 tokens) exceeds the available context size (8192 tokens), try increasing it"}}'
)
VLLM_REFUSAL = b'{"error": {"message": "This model\'s maximum context length is 4096 tokens. However, you requested 5000"}}'


@pytest.mark.parametrize(("refusal", "window"), [(LLAMA_REFUSAL, 8192), (VLLM_REFUSAL, 4096)])
async def test_the_window_that_a_refusal_names_is_learned(
    exchanged: Exchanged, refusal: bytes, window: int
) -> None:
    """The defect: llama.cpp's words were not understood, so the agent's turns were not answered."""
    room = Room((UnchangedMessage(0),), (SHORT,))
    outcome = await exchanged([too_long(400, refusal), FINE], room)
    assert outcome.kinds() == ["tools", "tools short"]
    assert f"fold for {window}" in room.told


@pytest.mark.parametrize("status", [400, 413])
async def test_what_is_not_folded_is_not_made_shorter(exchanged: Exchanged, status: int) -> None:
    room = Room((UnchangedMessage(0),), (SHORT,))
    outcome = await exchanged([too_long(status)], room, folds=False)
    assert (outcome.kinds(), outcome.seen[0], room.told) == (["own"], status, ["receive"])


@pytest.mark.parametrize(
    ("replies", "folds", "kinds", "status"),
    [
        ([refused(400), refused(400), FINE], True, ["tools", "own", "mended"], 200),
        ([refused(422), refused(422), FINE], True, ["tools", "own", "mended"], 200),
        ([refused(400), FINE], False, ["own", "mended"], 200),
        ([refused(422, "first"), refused(400, "second")], False, ["own", "mended"], 422),
        ([refused(429)], False, ["own"], 429),
        ([refused(400), refused(404)], True, ["tools", "own"], 404),
    ],
)
async def test_a_call_without_a_result_gets_one_where_the_request_is_refused(
    exchanged: Exchanged,
    replies: list[Raw | list[Said]],
    folds: bool,
    kinds: list[str],
    status: int,
    expect: Expect,
) -> None:
    if folds:
        expect("the provider refused a changed request with")
    room = Room()
    outcome = await exchanged(replies, room, (QUESTION, CALL, QUESTION), folds=folds)
    assert outcome.kinds() == kinds
    assert outcome.seen[0] == status
    if status == 200:
        assert room.told == ["receive", "reply in talk: fine"]
        assert outcome.sent == [("talk", outcome.asked[-1].body)]
    elif not folds:
        first = replies[0]
        assert isinstance(first, Raw)
        assert outcome.seen[1] == first.content, "the agent is told of its own request"


async def test_a_conversation_whose_tools_were_refused_gets_none(exchanged: Exchanged) -> None:
    outcome = await exchanged([FINE], Room((UnchangedMessage(0),)), refused_conversations={"talk"})
    assert outcome.kinds() == ["own"]
    outcome = await exchanged(
        [FINE], Room((UnchangedMessage(0),)), refused_conversations={"another"}
    )
    assert outcome.kinds() == ["tools"]


@pytest.mark.parametrize(
    ("last", "is_told"),
    [
        (refused(400, "no such form"), True),
        (refused(422, "no such form"), True),
        (refused(403, "no such form"), False),  # Whatever was taken out had nothing to do with it.
    ],
)
async def test_who_is_refused_without_what_was_taken_out_is_told_that_this_may_be_why(
    provider: Provider, expect: Expect, last: Raw, is_told: bool
) -> None:
    expect("the provider refused a changed request with 400")
    room: Any = Room((UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)))
    async with one_exchange(provider, [refused(400), last], QUESTION, ANSWER, QUESTION) as exchange:
        room.taken_out = (ChangedMessage(0, (ChangedPart("said", "", 0, "[excluded]"),)),)
        await exchange.handler.handle_step(exchange.request, room)
    said = json.loads(exchange.seen[1])["error"]["message"]
    if is_told:
        assert (exchange.seen[0], said) == (400, f"no such form {REFUSED_WITHOUT}")
    else:
        assert (exchange.seen[0], said) == (403, "no such form")


async def test_who_is_refused_for_the_length_is_not_told_of_what_was_taken_out(
    provider: Provider,
) -> None:
    room: Any = Room((UnchangedMessage(0), UnchangedMessage(1), UnchangedMessage(2)))
    room.taken_out = (ChangedMessage(0, (ChangedPart("said", "", 0, "[excluded]"),)),)
    refusal = too_long()
    async with one_exchange(provider, [refusal], QUESTION, ANSWER, QUESTION) as exchange:
        await exchange.handler.handle_step(exchange.request, room)
    assert exchange.seen == [400, refusal.content]
