"""A long history of a new conversation goes on before its messages are read, and all of it is recorded behind."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import ModelReplied, Recorded, SystemSet, Text, ToolCall, ToolReturned
from helix_desktop.gateway.incremental_parsing import FIRST_VALUES, BodyParser
from helix_desktop.gateway.local_conversations import known_messages_from_facts
from helix_desktop.gateway.request_forwarding import LARGE_BODY_BYTES
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.conftest import Expect
from tests.gateway.running import WIRES, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

UNREAD = ("anthropic", "openai-chat", "openai-responses")
FILLING = "as long as a body must be to be read in a thread " * (2 * LARGE_BODY_BYTES // FIRST_VALUES // 50)


def long_history(protocol: str, url: str, session: str) -> Agent:
    """An agent that comes with more messages than are made before a body goes on."""
    agent = Agent(protocol, url, session=session)
    agent.say(f"the beginning of {session}")
    for number in range(FIRST_VALUES):
        agent.units.extend(_call(protocol, f"call_{session}_{number}"))
        agent.results([(f"call_{session}_{number}", "Bash", f"line {number} of {session} {FILLING}")])
    return agent


def _call(protocol: str, name: str) -> list[Any]:
    if protocol == "anthropic":
        return [{"role": "assistant", "content": [{"type": "tool_use", "id": name, "name": "Bash", "input": {}}]}]
    if protocol == "openai-chat":
        call = {"id": name, "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]
    return [{"type": "function_call", "call_id": name, "name": "Bash", "arguments": "{}"}]


class HeldReading:
    """Long bodies are read only when `go_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on, real = threading.Event(), BodyParser.parse_body

        def parse_body(parser: BodyParser, *body: Any, may_go_on_unread: bool = False) -> Any:
            if not may_go_on_unread:
                self.go_on.wait(100)
            return real(parser, *body, may_go_on_unread=may_go_on_unread)

        monkeypatch.setattr(BodyParser, "parse_body", parse_body)


def facts_of_conversations(home: Path) -> list[Sequence[Recorded]]:
    async def read() -> list[Sequence[Recorded]]:
        where = program_folders.find_program_folders(home)
        known = AllWorkspaces(where.workspaces_folder)
        usual = await asyncio.to_thread(known.find_known_workspace, "Connected agents")
        workspace = await known.open_stored_workspace(usual.id)
        try:
            rows = await workspace.journal.list_conversations()
            return [await workspace.journal.read_facts(row.id) for row in rows]
        finally:
            await workspace.aclose()

    return asyncio.run(read())


def recorded_conversations(home: Path) -> list[tuple[int, list[str]]]:
    """Of each conversation how many messages it has, and its calls, results and replies in their order."""
    found = []
    for recorded in facts_of_conversations(home):
        said = [word for each in recorded for word in _words_of_fact(each.fact)]
        found.append((len(known_messages_from_facts("", recorded).chain), said))
    return found


def _words_of_fact(fact: object) -> Sequence[str]:
    if isinstance(fact, ToolReturned):
        return [f"result of {fact.call}"]
    if isinstance(fact, ModelReplied):
        return [p.id if isinstance(p, ToolCall) else p.text for p in fact.parts if isinstance(p, ToolCall | Text)]
    return []


@pytest.mark.parametrize("protocol", UNREAD)
def test_a_long_history_is_answered_before_it_is_read_and_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    reading = HeldReading(monkeypatch)
    answers = iter(("first answer", "second answer"))
    with Provider(lambda _: [Says(next(answers))]) as provider, running(tmp_path, provider.url) as url:
        agent = long_history(protocol, url, "s")
        sent = []
        for _ in range(2):  # The second request comes before the first one is read.
            sent.append([*agent.units])
            agent.ask()
            agent.say("go on")
        assert not reading.go_on.is_set()
        reading.go_on.set()
    for asked, units in zip(provider.asked, sent, strict=True):
        field = "input" if protocol == "openai-responses" else "messages"
        assert asked.body[field][-len(units) :] == units
    [(count, said)] = recorded_conversations(tmp_path)
    results = [word for word in said if word.startswith("result ")]
    assert results == [f"result of call_s_{number}" for number in range(FIRST_VALUES)]
    assert count == 2 * FIRST_VALUES + 4
    assert [word for word in said if word.endswith("answer")] == ["first answer", "second answer"]


def test_a_recall_in_the_first_reply_to_a_long_history_is_answered(tmp_path: Path) -> None:
    asked_before: list[Asked] = []

    def script(asked: Asked) -> list[Block]:
        asked_before.append(asked)
        if len(asked_before) == 1:
            return [Calls("search_cached_content", {"query": "nothing"})]
        return [Says("that is all")]

    with Provider(script) as provider, running(tmp_path, provider.url) as url:
        agent = long_history("anthropic", url, "s")
        assert agent.ask() == []
        assert agent.units[-1]["content"] == [{"type": "text", "text": "that is all"}]
        assert agent.seen == []
    first, second = (asked.body["messages"] for asked in asked_before)
    assert second[: len(first)] == first
    assert len(second) == len(first) + 2


def test_a_long_history_that_names_its_tools_among_its_items_goes_on_whole(tmp_path: Path) -> None:
    with Provider(lambda _: [Says("an answer")]) as provider, running(tmp_path, provider.url) as url:
        agent = long_history("openai-responses", url, "s")
        tools = [{"type": "function", "name": "Bash", "parameters": {"type": "object", "properties": {}}}]
        agent.units.insert(0, {"type": "additional_tools", "role": "developer", "tools": tools})
        body = {name: value for name, value in agent.body().items() if name != "tools"}
        headers = {"x-api-key": "k", "x-claude-code-session-id": "s"}
        assert httpx.post(url + agent.path, json=body, headers=headers, timeout=60).status_code == 200
    given = provider.asked[0].body["input"]
    assert len(given[0].pop("tools")) > len(tools)
    assert given[1:] == agent.units[1:]


def test_instructions_far_behind_the_beginning_of_a_long_history_are_recorded(tmp_path: Path) -> None:
    with Provider(lambda _: [Says("an answer")]) as provider, running(tmp_path, provider.url) as url:
        agent = long_history("openai-chat", url, "s")
        agent.units.append({"role": "system", "content": "Keep to the plan."})
        agent.say("go on")
        agent.ask()
    (recorded,) = facts_of_conversations(tmp_path)
    systems = [each.fact.text for each in recorded if isinstance(each.fact, SystemSet)]
    assert "Keep to the plan." in systems[-1]


@pytest.mark.parametrize("status", [422, 429])
def test_a_long_history_that_is_refused_changed_is_asked_as_it_came(
    tmp_path: Path, status: int, expect: Expect
) -> None:
    expect("the provider refused a changed request with 422")

    def script(asked: Asked) -> list[Block] | int:
        return status if len(asked.body["tools"]) > 1 else [Says("as it came")]

    with Provider(script) as provider, running(tmp_path, provider.url) as url:
        agent = long_history("anthropic", url, "s")
        if status == 422:
            agent.ask()
            assert [len(asked.body["tools"]) > 1 for asked in provider.asked] == [True, False]
        else:
            with pytest.raises(AssertionError, match="429"):
                agent.ask()
    assert [count for count, _ in recorded_conversations(tmp_path)] == [2 * FIRST_VALUES + 1 + (status == 422)]


def test_a_history_whose_beginning_is_known_is_read_first(tmp_path: Path) -> None:
    with Provider(lambda _: [Says("an answer")]) as provider:
        with running(tmp_path, provider.url) as url:
            short = Agent("anthropic", url, session="s")
            short.say("the beginning of s")
            short.ask()
        with running(tmp_path, provider.url) as url:
            agent = long_history("anthropic", url, "s")
            agent.units[:0] = short.units
            agent.ask()
    assert [count for count, _ in recorded_conversations(tmp_path)] == [len(agent.units)]


def test_wires_that_number_their_calls_are_read_first() -> None:
    assert set(WIRES) - set(UNREAD) == {"gemini"}
