"""The models of a workspace, by role."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.engine.facts import (
    Folded,
    FoldFailed,
    ModelRole,
    ModelSet,
    Text,
    ToolsOffered,
    TurnEnd,
    TurnEnded,
)
from helix_desktop.engine.session import Session
from helix_desktop.errors import HelixError
from helix_desktop.providers.provider_catalog import ProviderConfig, describe_model
from helix_desktop.providers.tokenizer_families import estimate_tokens_of_texts
from helix_desktop.token_counting import TiktokenCounter
from tests.peers.chat_server import ChatServer, reply, too_long
from tests.peers.llama_server import LlamaServer
from tests.peers.ollama_server import OllamaServer
from tests.peers.peer import Answer, Seen, json_answer
from tests.workbench.conftest import Desks


async def test_a_fast_model_that_is_not_there_any_more_leaves_its_place_to_the_main_one(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("Gone", folder)
    await bench.choose_model_for_role("demo")
    await bench.change_settings({"models.fast": "removed/quick", "models.long": "removed/long"})
    assert bench.models.client_for_role(ModelRole.FAST) is None
    assert bench.models.client_for_role(ModelRole.LONG) is None
    await bench.change_settings({"models.main": "removed/large"})
    with pytest.raises(HelixError, match="removed"):
        bench.models.client_for_role(ModelRole.MAIN)


async def test_a_window_named_by_a_refusal_holds_from_then_on(desks: Desks, folder: Path) -> None:
    with ChatServer([reply("Hello."), too_long(4_096), reply("It fits now.")]) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        bench = await desk.create_workspace("Small", folder)
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_conversation("Learns")
        for words in ("First.", "Second."):
            session.send_message((Text(words),))
            await asyncio.wait_for(session.wait_until_idle(), 60)
        facts = [
            session.conversation.fact_at(seq)
            for seq in range(1, session.conversation.state.seq + 1)
        ]
        windows = [
            fact.window for fact in facts if isinstance(fact, ModelSet) and fact.role == "main"
        ]
        assert windows == [8_192, 4_096]
        assert [fact.reason for fact in facts if isinstance(fact, TurnEnded)] == [
            TurnEnd.DONE,
            TurnEnd.DONE,
        ]
        assert session.context.next_request_meter().window == 4_096
    info = desks().configured.find_provider("peer")
    assert info.learned == {"scripted": {"window": 4_096}}


def windows_of(session: Session) -> list[int]:
    """The windows that the main model had, in the order in which they were recorded."""
    facts = [recorded.fact for recorded in session.all_facts]
    return [fact.window for fact in facts if isinstance(fact, ModelSet) and fact.role == "main"]


async def talk(session: Session, *messages: str) -> None:
    for message in messages:
        session.send_message((Text(message),))
        await asyncio.wait_for(session.wait_until_idle(), 120)


async def test_ollama_never_cuts_what_the_window_could_not_hold(desks: Desks, folder: Path) -> None:
    """A model that is not in memory was thought to have 128,000 tokens, and had 4,096."""
    with OllamaServer() as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("ollama", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"ollama/{server.model}")
        session = await bench.start_conversation("Long")
        paste = " ".join(f"line{number}" for number in range(1500))
        await talk(session, *(f"Read this, part {part}: {paste}" for part in range(6)))
        assert windows_of(session) == [8_192]
        assert server.loaded == 8_192
        assert server.cut == 0
        assert any(isinstance(one.fact, Folded) for one in session.all_facts)


async def test_what_ollama_would_cut_in_any_case_is_not_sent(desks: Desks, folder: Path) -> None:
    """The system prompt is never folded, so no measure makes room beside it."""
    with OllamaServer(largest=256, capabilities=("completion",)) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("ollama", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"ollama/{server.model}")
        session = await bench.start_conversation("Tiny")
        await talk(session, "Hello")
        assert server.cut == 0
        assert server.shown == []
        ending = session.all_facts[-1].fact
        assert isinstance(ending, TurnEnded)
        assert ending.reason is TurnEnd.FAILED
        assert "holds only 256" in ending.why
        assert "Nothing was sent." in ending.why


def count_as_a_small_vocabulary(messages: Iterable[dict[str, Any]]) -> int:
    """Count as SmolLM2 does: 4 tokens for 3 Chinese characters, 1 for 4 other ones."""
    total = 0
    for message in messages:
        text = str(message.get("content") or "")
        chinese = len(re.findall("[\u4e00-\u9fff]", text))
        total += chinese * 4 // 3 + (len(text) - chinese) // 4
    return total


async def test_a_first_chinese_text_is_not_cut_by_a_model_with_a_small_vocabulary(
    desks: Desks, folder: Path
) -> None:
    """By our vocabulary it takes up about 5,000 of the 8,192 tokens, by the model's 8,200."""
    sentence = "这台电脑上的模型把每个汉字分成更多的词元，所以同样的文字占用更多的上下文。"
    chinese = "\n".join(f"{number}：{sentence}" for number in range(170))
    with OllamaServer("smollm2:135m", count_tokens=count_as_a_small_vocabulary) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("ollama", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"ollama/{server.model}")
        session = await bench.start_conversation("Chinese")
        await talk(session, chinese)
        assert server.shown
        assert server.cut == 0


def count_more_than_is_estimated(messages: Iterable[dict[str, Any]]) -> int:
    texts = [str(message.get("content") or "") for message in messages]
    estimate = estimate_tokens_of_texts("smollm2:135m", texts, TiktokenCounter())
    return round(1.18 * (estimate + 5 * (len(texts) + 1)))


@pytest.mark.parametrize("window", [2_048, 4_096])
async def test_an_estimate_that_is_short_cuts_nothing_before_the_first_reply(
    desks: Desks, folder: Path, window: int
) -> None:
    """The user has limited replies, so that little is reserved for them. Each conversation begins
    with a text that fills the window a little more.
    """
    line = "The late fee of a book is paid by its reader when it comes back too late.\n"
    with OllamaServer(
        "smollm2:135m",
        largest=window,
        capabilities=("completion",),
        count_tokens=count_more_than_is_estimated,
    ) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("ollama", base_url=server.base_url))
        desk.configured.correct_model("ollama", server.model, {"max_output": 20})
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"ollama/{server.model}")
        for share in range(68, 104, 4):
            session = await bench.start_conversation(f"{share}")
            await talk(session, line * (window * share // 100 // 18))
        assert len(server.shown) > 6
        assert server.cut == 0
        assert max(server.most_tokens) <= window


async def test_ollama_is_asked_for_the_window_that_the_user_set(desks: Desks, folder: Path) -> None:
    with OllamaServer() as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("ollama", base_url=server.base_url))
        desk.configured.correct_model("ollama", server.model, {"window": 16_384})
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"ollama/{server.model}")
        session = await bench.start_conversation("Large")
        await talk(session, "Hello")
        assert (windows_of(session), server.loads) == ([16_384], [16_384])


class RestartedServer(ChatServer):
    """A llama.cpp that is started again with another window."""

    window = 8_192

    def listing(self, seen: Seen) -> Answer:
        if seen.path == "/props":
            return json_answer({"default_generation_settings": {"n_ctx": self.window}})
        return super().listing(seen)


async def test_a_server_that_was_started_again_with_another_window_is_noticed(
    desks: Desks, folder: Path
) -> None:
    with RestartedServer([reply("One."), reply("Two.")]) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role("mine/scripted")
        session = await bench.start_conversation("Restart")
        await talk(session, "Hello")
        server.window = 4_096
        await talk(session, "Hello again")
        assert windows_of(session) == [8_192, 4_096]


async def test_an_assumed_window_grows_when_a_request_has_filled_it(
    desks: Desks, folder: Path
) -> None:
    filled = {"prompt_tokens": 6_000, "completion_tokens": 5}
    with ChatServer([reply("One.", usage=filled), reply("Two.")]) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role("mine/scripted")
        session = await bench.start_conversation("Grows")
        await talk(session, "Hello", "Hello again")
        assert windows_of(session) == [8_192, 16_384]
    info = describe_model(desk.configured.find_provider("mine"), "scripted")
    assert (info.window, info.window_from) == (16_384, WindowSizeSource.ASSUMED)


class CountingServer(ChatServer):
    """A llama.cpp whose model has few tokens for Chinese, and no tools in its template."""

    window = 8_192
    template_words = 10

    def listing(self, seen: Seen) -> Answer:
        if seen.path == "/props":
            caps = {"supports_tools": False}
            settings = {"n_ctx": self.window}
            return json_answer(
                {"default_generation_settings": settings, "chat_template_caps": caps}
            )
        return super().listing(seen)

    def count(self, messages: list[dict[str, Any]]) -> int:
        return sum(len(str(message["content"]).encode()) for message in messages) // 2

    def answer(self, seen: Seen) -> Answer:
        if seen.path == "/apply-template":
            prompt = "\n".join(str(message["content"]) for message in seen.body["messages"])
            return json_answer({"prompt": prompt})
        if seen.path == "/tokenize":
            return json_answer({"tokens": [1] * (len(seen.body["content"].encode()) // 2)})
        return super().answer(seen)


async def test_the_meter_counts_with_the_servers_own_tokenizer_before_the_first_reply(
    desks: Desks, folder: Path
) -> None:
    with CountingServer([reply("好。")] * 9) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role("mine/scripted")
        session = await bench.start_conversation("Chinese")
        for part in range(6):
            await talk(session, f"第{part}部分：" + "借书的日期是星期一，罚款是两欧元。" * 40)
            sent = next(body for body in reversed(server.bodies) if "stream" in body)
            counted = server.count(sent["messages"])
            assert counted < server.window, "no request is longer than the window"
            used = session.context.next_request_meter().used
            assert abs(used - counted) < 0.05 * counted + 20
            assert "tools" not in sent, "its template would leave them out"
        offered = [one.fact for one in session.all_facts if isinstance(one.fact, ToolsOffered)]
        assert not any(fact.tokens for fact in offered)


async def test_what_a_fold_leaves_is_counted_again_before_it_is_sent(
    desks: Desks, folder: Path
) -> None:
    """German that a fold left had more tokens than code and German together, for each one of
    ours, so a request was longer than the window.
    """
    chinese = "借书的日期是星期一，罚款是两欧元。" * 60
    with LlamaServer(lambda _body: "Read.", window=8_192, has_tools=False) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"mine/{server.model}")
        session = await bench.start_conversation("Folds")
        await talk(session, *(f"{part}: {chinese}" for part in range(8)))
        assert any(isinstance(one.fact, Folded) for one in session.all_facts)
        last_counted: object = None
        for seen in server.requests:
            if seen.path == "/apply-template":
                last_counted = seen.body["messages"]
            elif seen.path == "/v1/chat/completions":
                newest = str(seen.body["messages"][-1]["content"])
                if newest.endswith(chinese):  # The others ask for a summary.
                    assert seen.body["messages"] == last_counted


async def test_a_summary_is_not_asked_for_behind_a_conversation_that_fills_the_window(
    desks: Desks, folder: Path
) -> None:
    """The server refused it each time, after it had read all of it."""
    chance = random.Random(5)
    stories: list[str] = []
    for length in (300, 300, 300, 300, 2_500):  # The last one fills the window.
        stories.append(" ".join(f"book{chance.randrange(1_000)}" for _ in range(length)))
    replies = iter(["Hello.", *stories])
    with LlamaServer(
        lambda _body: next(replies, "The fee is due."), window=4_096, has_tools=False
    ) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"mine/{server.model}")
        session = await bench.start_conversation("Stories")
        await talk(session, "Hello", *(f"And book {number}?" for number in range(5)))
        await session.folding.wait_for_fold_in_work()
        assert server.prompt_tokens[-1] < server.window
        assert any(isinstance(one.fact, Folded) for one in session.all_facts)
        assert server.refused == 0


def count_by_bytes(text: str) -> int:
    """Count as vocabularies do that have few Chinese characters and spell the others in bytes."""
    others = len(text.encode()) - len(text)
    return len(text) // 4 + others


async def test_usual_messages_are_shortened_where_tools_take_half_of_a_small_window(
    desks: Desks, folder: Path
) -> None:
    """No message was large, yet nothing more was shortened, and every later turn failed."""
    chance = random.Random(3)
    words = ("读者", "归还", "图书", "支付", "逾期", "罚款", "图书馆", "规定", "日期")
    with LlamaServer(
        lambda _body: "好。", window=3_584, has_tools=True, count_tokens=count_by_bytes
    ) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"mine/{server.model}")
        session = await bench.start_conversation("Chinese")
        for _ in range(4):
            await talk(session, "".join(chance.choices(words, k=340)))
        assert len(server.prompt_tokens) >= 4
        assert server.refused == 0


async def test_what_is_too_little_for_a_summary_does_not_end_all_summaries(
    desks: Desks, folder: Path
) -> None:
    """In a window of 2,048, three attempts failed before the server was asked even once."""
    chance = random.Random(5)
    reply = " ".join(f"book{chance.randrange(1_000)}" for _ in range(40))
    with LlamaServer(lambda _body: reply, window=2_048, has_tools=False) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role(f"mine/{server.model}")
        session = await bench.start_conversation("Pastes")
        pastes: list[str] = []
        for words in (10, 10, 10, 10, 200, 200, 200, 200):
            pastes.append(" ".join(f"book{chance.randrange(1_000)}" for _ in range(words)))
        await talk(session, *(f"Which is missing? {paste}" for paste in pastes))
        await session.folding.wait_for_fold_in_work()
        assert any(isinstance(one.fact, Folded) for one in session.all_facts)
        assert not any(isinstance(one.fact, FoldFailed) for one in session.all_facts)


async def test_the_newest_message_stays_whole_where_all_fits_in_a_window_of_4096(
    desks: Desks, folder: Path
) -> None:
    paste = " ".join(f"line {number} of the paste" for number in range(180))
    with CountingServer([reply("Hello."), reply("Read.")]) as server:
        server.window = 4_096
        desk = desks()
        desk.configured.save_provider(ProviderConfig("mine", base_url=server.base_url))
        bench = await desk.create_workspace("Local", folder)
        await bench.choose_model_for_role("mine/scripted")
        session = await bench.start_conversation("Paste")
        await talk(session, "Hello", paste)
        sent = next(body for body in reversed(server.bodies) if "stream" in body)
        assert server.count(sent["messages"]) < server.window
        assert paste in sent["messages"][-1]["content"]
