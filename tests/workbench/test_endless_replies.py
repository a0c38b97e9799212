"""A model that does not come to an end is stopped: what repeats itself, what has reached
the user's limit, and what has filled the window.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import ModelReplied, Stop, Text, TurnEnd, TurnEnded
from helix_desktop.engine.session import Session
from helix_desktop.providers.provider_catalog import ProviderConfig
from tests.peers.chat_server import ChatServer, reply
from tests.peers.peer import Answer
from tests.workbench.conftest import Desks

LOOP = "As a language model I can help. "


@asynccontextmanager
async def talking(
    desks: Desks, folder: Path, server: ChatServer, **corrections: Any
) -> AsyncIterator[Session]:
    desk = desks()
    desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
    if corrections:
        desk.configured.correct_model("mine", "scripted", corrections)
    bench = await desk.create_workspace("Local", folder)
    await bench.choose_model_for_role("mine/scripted")
    yield await bench.start_conversation("Endless")


async def end_of_turn(session: Session) -> TurnEnded:
    await asyncio.wait_for(session.wait_until_idle(), 60)
    end = session.all_facts[-1].fact
    assert isinstance(end, TurnEnded)
    return end


def replies(session: Session) -> list[ModelReplied]:
    facts = [recorded.fact for recorded in session.all_facts]
    return [fact for fact in facts if isinstance(fact, ModelReplied)]


async def test_a_reply_that_repeats_itself_is_stopped_and_can_go_on(
    desks: Desks, folder: Path
) -> None:
    endless = reply("I see. " + LOOP * 400)
    with ChatServer([endless, endless]) as server:
        async with talking(desks, folder, server) as session:
            session.send_message((Text("Hello, who are you?"),))
            end = await end_of_turn(session)
            assert (end.reason, end.cause) == (TurnEnd.REPEATING, "repeated text")
            assert "again and again" in end.why
            (stopped,) = replies(session)
            (text,) = stopped.parts
            assert stopped.stop is Stop.STOPPED
            assert isinstance(text, Text)
            assert text.text.startswith("I see. ")
            assert text.text.count(LOOP.strip()) <= 3
            assert len(server.bodies) == 1, "it is not asked again by itself"
            session.resume_turn()
            assert (await end_of_turn(session)).reason is TurnEnd.DONE
            (whole,) = replies(session)[1].parts
            assert isinstance(whole, Text)
            assert LOOP * 400 in whole.text


def story_of(tokens: int) -> Answer:
    """A reply that was cut after so many tokens."""
    usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
    return reply("Once upon", finish="length", usage=usage)


async def test_the_users_limit_for_replies_is_sent_and_ends_the_turn(
    desks: Desks, folder: Path
) -> None:
    with ChatServer([story_of(120)] * 4) as server:
        async with talking(desks, folder, server, max_output=120) as session:
            session.send_message((Text("Tell me a story."),))
            end = await end_of_turn(session)
            assert server.bodies[0]["max_tokens"] == 120
            assert (end.reason, end.cause) == (TurnEnd.FAILED, "length")
            assert "limit of 120 tokens" in end.why
            assert len(server.bodies) == 1


async def test_a_reply_may_only_have_the_room_that_the_window_has(
    desks: Desks, folder: Path
) -> None:
    with ChatServer([story_of(8_000)] * 4) as server:
        async with talking(desks, folder, server, window=8_192, max_output=20_000) as session:
            session.send_message((Text("Tell me a story."),))
            end = await end_of_turn(session)
            assert 64 <= server.bodies[0]["max_tokens"] < 8_192
            assert "filled the model's context window" in end.why
            assert len(server.bodies) == 1


async def test_a_cloud_models_reply_that_was_cut_at_its_length_is_still_continued(
    desks: Desks, folder: Path
) -> None:
    script = [reply("Once upon", finish="length"), reply(" a time.")]
    with ChatServer(script) as server:
        desk = desks()
        config = ProviderConfig("cloud", base_url=server.base_url, key_host="127.0.0.1")
        desk.configured.save_provider(config)
        desk.configured.correct_model("cloud", "scripted", {"window": 200_000, "input": 1.0})
        bench = await desk.create_workspace("Cloud", folder)
        await bench.choose_model_for_role("cloud/scripted")
        session = await bench.start_conversation("Long")
        session.send_message((Text("Tell me a story."),))
        assert (await end_of_turn(session)).reason is TurnEnd.DONE
        assert "max_tokens" not in server.bodies[0]
        assert len(server.bodies) == 2


async def test_after_another_message_a_reply_that_repeats_itself_is_stopped_again(
    desks: Desks, folder: Path
) -> None:
    with ChatServer([reply(LOOP * 400), reply(LOOP * 400)]) as server:
        async with talking(desks, folder, server) as session:
            for words in ("Hello", "Hello again"):
                session.send_message((Text(words),))
                assert (await end_of_turn(session)).cause == "repeated text"
            assert len(server.bodies) == 2
