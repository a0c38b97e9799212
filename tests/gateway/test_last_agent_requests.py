"""The last request of each conversation, and what the agent's own model is asked behind it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.errors import ModelFailed
from helix_desktop.gateway import last_agent_requests
from tests.gateway.test_gateway_app import running
from tests.peers.agent_provider import Block, Says


async def test_only_the_last_requests_of_open_workspaces_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_agent_requests, "MOST_HELD_REQUESTS", 2)
    async with running(tmp_path) as here:
        for words in ("one", "two", "three"):
            await here.ask(words)
        assert len(here.app.memory.last_requests.by_conversation) == 2
        here.app.memory.list_open_conversations = tuple
        await here.ask("four")
        assert len(here.app.memory.last_requests.by_conversation) == 1, (
            "those of closed workspaces are let go"
        )


async def test_of_the_requests_that_are_held_the_one_asked_longest_ago_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_agent_requests, "MOST_HELD_REQUESTS", 2)
    names: dict[str, str] = {}
    async with running(tmp_path) as here:
        for words in ("one", "two", "one", "three"):
            headers: Any = {"x-claude-code-session-id": words}
            await here.ask(words, **headers)
            names[words] = here.conversation
        assert list(here.app.memory.last_requests.by_conversation) == [
            names["one"],
            names["three"],
        ], "the second was asked longest ago"


async def test_a_fold_is_asked_for_behind_the_agents_last_request(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.ask("look")
        text, usage, model = await here.app.memory.last_requests.ask_agent_model(
            here.conversation, "Sum up.", "", 500
        )
        assert (text, usage.input, bool(model)) == ("fine", 100, True)
        asked = here.provider.asked[-1]
        assert asked.body["stream"] is False
        assert asked.body["system"] == "You are an agent."
        assert "look" in json.dumps(asked.body["messages"])
        assert "Sum up." in json.dumps(asked.body["messages"][-1])
        assert (asked.body["max_tokens"], asked.headers["x-api-key"]) == (4000, "k")
        assert asked.headers["accept-encoding"] == "identity"


async def test_a_text_by_itself_is_asked_for_without_the_agents_instructions(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        await here.ask("look")
        for most, limit in ((500, 500), (0, 4_000)):
            await here.app.memory.last_requests.ask_agent_model(
                here.conversation, "Sum up.", "Be brief.", most
            )
            body = here.provider.asked[-1].body
            assert not {"system", "tools"} & set(body)
            assert body["max_tokens"] == limit
            assert "Be brief.\\n\\nSum up." in json.dumps(body["messages"])
            assert len(body["messages"]) == 1


async def test_a_model_that_does_not_answer_is_a_sentence(tmp_path: Path) -> None:
    answers: list[Sequence[Block] | int] = [[Says("fine")], 500]
    async with running(tmp_path, lambda _: answers.pop(0)) as here:
        with pytest.raises(ModelFailed, match="hasn't sent a request"):
            await here.app.memory.last_requests.ask_agent_model("unknown", "Sum up.", "", 0)
        await here.ask("look")
        with pytest.raises(ModelFailed, match="status 500"):
            await here.app.memory.last_requests.ask_agent_model(here.conversation, "Sum up.", "", 0)
        last = here.app.memory.last_requests.by_conversation[here.conversation]
        here.app.memory.last_requests.by_conversation[here.conversation] = replace(
            last, url="http://127.0.0.1:9/v1/messages"
        )
        with pytest.raises(ModelFailed, match="did not respond: ConnectError"):
            await here.app.memory.last_requests.ask_agent_model(here.conversation, "Sum up.", "", 0)
