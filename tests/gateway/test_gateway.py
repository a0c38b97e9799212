"""The gateway as agents and providers meet it: real ports, real stores, all four protocols."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Fact, ModelReplied, Spent, Text
from helix_desktop.gateway import gateway_workspaces
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.conversation_rows import StoredConversation
from tests.conftest import Expect
from tests.gateway.running import PROTOCOLS, TOOL, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says, Thinks
from tests.peers.anthropic_billing import Cache

all_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
both = pytest.mark.parametrize("streams", [True, False])
streamed = pytest.mark.parametrize("streams", [True])
LARGE = "\n".join(f"line {n}: the quick brown fox number {n * 7919}" for n in range(1_500))
# As it stands in a body: its line breaks are escaped.
LARGE_IN_JSON = json.dumps(LARGE)[1:-1].encode()
DIGEST = hashlib.sha256(LARGE.encode()).hexdigest()


def scripted(*replies: Sequence[Block] | int) -> tuple[list[Asked], object]:
    left = list(replies)
    heard: list[Asked] = []

    def script(asked: Asked) -> Sequence[Block] | int:
        heard.append(asked)
        return left.pop(0) if left else [Says("done")]

    return heard, script


@all_protocols
@streamed
def test_with_folds_off_the_body_arrives_as_it_was_sent(
    tmp_path: Path, protocol: str, streams: bool
) -> None:
    _, script = scripted(
        [Thinks("let me see"), Says("I look"), Calls(TOOL, {"command": "ls"})], [Says("fine")]
    )
    with Provider(script) as provider, running(tmp_path, provider.url, folds=False) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url, streams)
        agent.say("look around")
        calls = agent.ask()
        agent.results([(call, name, LARGE) for call, name, _ in calls])
        sent = json.loads(json.dumps(agent.body()))
        agent.ask()
        assert provider.asked[-1].body == sent
        assert provider.asked[-1].headers["x-api-key"] == "secret-key-of-the-client"
        assert not provider.refused


@all_protocols
@both
def test_a_large_output_goes_on_short_and_a_recall_of_it_is_answered_inside(
    tmp_path: Path, protocol: str, streams: bool
) -> None:
    recall: list[Block] = [
        Thinks("I need it"),
        Calls("recall_cached_content", {"sha256": DIGEST, "lines": "700-702"}),
    ]
    heard, script = scripted(
        [Thinks("let me see"), Calls(TOOL, {"command": "cat big"})],
        recall,
        [Thinks("now I know"), Says("line 701 it is"), Calls(TOOL, {"command": "again"})],
        [Says("done")],
    )
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url, streams)
        agent.say("look around")
        calls = agent.ask()
        agent.results([(call, name, LARGE) for call, name, _ in calls])
        calls = agent.ask()
        assert provider.refused == []
        assert LARGE_IN_JSON not in heard[1].raw
        assert DIGEST in heard[1].raw.decode()
        assert f"line 700: the quick brown fox number {700 * 7919}" in heard[2].raw.decode()
        assert [name for _, name, _ in calls] == [TOOL]
        assert "recall_cached_content" not in json.dumps(agent.units)
        agent.results([(call, name, "short") for call, name, _ in calls])
        agent.ask()
        assert provider.refused == []
        assert f"line 700: the quick brown fox number {700 * 7919}" in heard[3].raw.decode()
        assert agent.seen == [TOOL, TOOL]


@all_protocols
@streamed
def test_a_recall_beside_a_call_of_the_client_waits_for_its_results(
    tmp_path: Path, protocol: str, streams: bool
) -> None:
    heard, script = scripted(
        [Calls(TOOL, {"command": "cat big"})],
        [
            Says("both"),
            Calls("recall_cached_content", {"sha256": DIGEST, "lines": "5"}),
            Calls(TOOL, {"command": "b"}),
        ],
        [Says("done")],
    )
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url, streams)
        agent.say("look around")
        agent.results([(call, name, LARGE) for call, name, _ in agent.ask()])
        calls = agent.ask()
        assert [name for _, name, _ in calls] == [TOOL]
        agent.results([(call, name, "short") for call, name, _ in calls])
        agent.ask()
        assert provider.refused == []
        assert "recall_cached_content" in heard[2].raw.decode()
        assert f"line 4: the quick brown fox number {4 * 7919}" in heard[2].raw.decode()


@all_protocols
def test_a_session_with_hidden_recalls_goes_on_after_a_restart_and_without_the_gateway(
    tmp_path: Path, protocol: str
) -> None:
    hidden: list[Block] = [
        Thinks("I need it"),
        Calls("recall_cached_content", {"sha256": DIGEST, "lines": "5"}),
        Calls(TOOL, {"command": "b"}),
    ]
    heard, script = scripted(
        [Calls(TOOL, {"command": "cat big"})],
        hidden,
        [Calls(TOOL, {"command": "c"})],
        [Calls(TOOL, {"command": "d"})],
        [Says("end")],
    )
    with Provider(script) as provider:  # type: ignore[arg-type]
        with running(tmp_path, provider.url) as url:
            agent = Agent(protocol, url)
            agent.say("look around")
            agent.results([(call, name, LARGE) for call, name, _ in agent.ask()])
            agent.results([(call, name, "short") for call, name, _ in agent.ask()])
        with running(tmp_path, provider.url) as url:
            agent.url = url
            agent.results([(call, name, "short") for call, name, _ in agent.ask()])
            assert (
                DIGEST in heard[2].raw.decode() and "I need it" in heard[2].raw.decode()
            ) or protocol != "anthropic"
            assert LARGE_IN_JSON not in heard[2].raw
        with running(tmp_path / "other", provider.url) as url:  # the journal is lost
            agent.url = url
            agent.results([(call, name, "short") for call, name, _ in agent.ask()])
        agent.url = provider.url  # and the gateway is gone
        agent.ask()
        assert LARGE_IN_JSON in heard[-1].raw
        assert provider.refused == []


@all_protocols
@both
def test_the_last_recall_is_refused_in_its_result_and_the_model_goes_on(
    tmp_path: Path, protocol: str, streams: bool
) -> None:
    def script(asked: Asked) -> Sequence[Block]:
        if b"Nothing more is recalled" in asked.raw:
            return [Says("then without"), Calls(TOOL, {"command": "ls"})]
        return [Calls("search_cached_content", {"query": "fox"})]

    with Provider(script) as provider, running(tmp_path, provider.url) as url:
        agent = Agent(protocol, url, streams)
        agent.say("loop")
        assert [name for _, name, _ in agent.ask()] == [TOOL]
        assert 5 < len(provider.asked) < 20
        assert provider.refused == []


@all_protocols
@streamed
def test_a_model_that_only_recalls_ends_in_an_error_that_agents_ask_again_after(
    tmp_path: Path, expect: Expect, protocol: str, streams: bool
) -> None:
    expect("a model did nothing but recall")

    def script(asked: Asked) -> Sequence[Block]:
        return [Calls("search_cached_content", {"query": "fox"})]

    with Provider(script) as provider, running(tmp_path, provider.url) as url:
        agent = Agent(protocol, url, streams)
        agent.say("loop")
        reply = httpx.post(
            url + agent.path, json=agent.body(), headers={"x-api-key": "k"}, timeout=60
        )
        assert b"overloaded_error" in reply.content
        assert b"end_turn" not in reply.content
        assert 5 < len(provider.asked) < 20
        assert provider.refused == []


@all_protocols
@both
def test_a_reply_behind_a_recall_that_is_cut_is_asked_for_again(
    tmp_path: Path, protocol: str, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helix_desktop.gateway.reply_relay.RETRY_WAITS_SECONDS", (0.0, 0.0, 0.0))
    recall = [Calls("recall_cached_content", {"sha256": DIGEST})]
    heard, script = scripted(recall, [Says("fi"), Says("ne")], [Says("fine")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        provider.cuts = {2: -1 if protocol == "gemini" else 1}  # Gemini's first event has words
        agent = Agent(protocol, url, streams)
        agent.say("look around")
        assert agent.ask() == []
        assert json.dumps(agent.units).count("fi") == 1
        assert len(heard) == 3


def test_the_key_of_the_client_stands_in_no_file(tmp_path: Path) -> None:
    _, script = scripted([Calls(TOOL, {"command": "ls"})], [Says("fine")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent("anthropic", url, headers={"authorization": "Bearer token-planted-4711"})
        agent.say("look around")
        agent.results([(call, name, LARGE) for call, name, _ in agent.ask()])
        agent.ask()
        assert provider.asked[-1].headers["authorization"] == "Bearer token-planted-4711"
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"look around" in kept
    assert b"secret-key-of-the-client" not in kept
    assert b"planted-4711" not in kept


def test_who_may_not_come_in_is_refused_and_what_is_not_understood_goes_through(
    tmp_path: Path,
) -> None:
    _, script = scripted([Says("fine")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        assert (
            httpx.post(
                f"{url}/v1/messages",
                headers={"origin": "https://page.example"},
                json={},
                timeout=60,
            ).status_code
            == 403
        )
        assert (
            httpx.post(
                f"{url}/v1/messages", headers={"host": "page.example"}, json={}, timeout=60
            ).status_code
            == 403
        )
        assert provider.asked == []
        assert httpx.get(f"{url}/v1/models", timeout=60).json() == {
            "passed": True,
            "path": "/v1/models",
        }
        broken = httpx.post(
            f"{url}/v1/messages", content=b"{no json", headers={"x-api-key": "k"}, timeout=60
        )
        assert broken.status_code == 400
        assert provider.asked[-1].raw == b"{no json"


@all_protocols
def test_an_error_of_the_provider_reaches_the_client_as_it_is(
    tmp_path: Path, protocol: str
) -> None:
    _, script = scripted(529)
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url)
        agent.say("look around")
        with pytest.raises(AssertionError, match=r"529: .*busy"):
            agent.ask()
        assert agent.ask() == []


def test_a_request_the_provider_finds_too_long_is_folded_and_sent_again(tmp_path: Path) -> None:
    heard, script = scripted(
        *([Calls(TOOL, {"command": f"{n}"})] for n in range(12)), 400, [Says("done")]
    )
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent("anthropic", url)
        agent.say("look around")
        for _ in range(12):
            agent.results([(call, name, LARGE[:9_000]) for call, name, _ in agent.ask()])
        assert agent.ask() == []
        assert provider.refused == []
        assert len(heard[-1].raw) < len(heard[-2].raw)


def test_a_client_that_rewinds_goes_on_from_there_and_two_without_a_name_do_not_mix(
    tmp_path: Path,
) -> None:
    said: list[Sequence[Block]] = [[Says("one")], [Says("two")], [Says("other")], [Says("three")]]
    heard, script = scripted(*said)
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        first = Agent("openai-chat", url)
        second = Agent("openai-chat", url)
        for agent in (first, second):
            agent.say("the same beginning")
        first.ask()
        first.say("mine")
        first.ask()
        second.units.append(first.units[1])
        second.say("another")
        second.ask()
        first.say("goes on")
        first.ask()
        assert provider.refused == []
        assert b"another" not in heard[3].raw
        found = httpx.get(f"{url}/.helix/status", timeout=60).json()["figures"]
        assert sorted(one["requests"] for one in found) in ([1, 3], [2, 3])


def test_an_agent_that_says_replies_in_other_words_has_one_conversation(tmp_path: Path) -> None:
    """Each of its requests was a conversation of its own, ten with one title."""
    heard, script = scripted(*([Says(f"reply {number}")] for number in range(4)))
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent("openai-chat", url)
        for number in range(4):
            agent.say(f"message {number}")
            agent.ask()
            agent.units[-1] = {"role": "assistant", "content": f"in other words, {number}"}
        assert provider.refused == []
        assert b"in other words, 2" in heard[3].raw
        found = httpx.get(f"{url}/.helix/status", timeout=60).json()["figures"]
        assert [one["requests"] for one in found] == [4]


def test_what_begins_alike_in_two_sessions_is_not_joined_by_other_words(tmp_path: Path) -> None:
    """The second session has the first message of the first one, and a reply of its own."""
    _, script = scripted(*([Says(f"reply {number}")] for number in range(3)))
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        first = Agent("openai-chat", url)
        first.say("the same beginning")
        first.ask()
        second = Agent("openai-chat", url)
        second.say("the same beginning")
        second.ask()
        second.say("only in the second")
        second.ask()
        assert provider.refused == []
        found = httpx.get(f"{url}/.helix/status", timeout=60).json()["figures"]
    assert len(found) == 2, "the first one has nothing of the second"


def test_a_reply_that_is_asked_for_again_is_recorded_too(tmp_path: Path) -> None:
    """The first reply was recorded, but the agent never got it: a gateway was killed in between."""
    heard, script = scripted([Says("one")], [Says("two")], [Says("three")], [Says("four")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent("anthropic", url, session="a session")
        for words in ("look around", "go on"):
            agent.say(words)
            agent.ask()
            agent.units.pop()
            agent.ask()
        assert b"one" not in heard[2].raw
    assert replies(tmp_path) == ["one", "two", "three", "four"]


@all_protocols
def test_a_call_the_client_left_without_a_result_is_answered_when_the_provider_refuses_it(
    tmp_path: Path, expect: Expect, protocol: str
) -> None:
    """Gemini CLI looks through its own last messages for a loop, and cuts them behind a call."""
    expect("refused a changed request")
    _, script = scripted([Calls(TOOL, {"command": "ls"})], [Says("fine")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url)
        agent.say("look around")
        assert len(agent.ask()) == 1
        agent.say("is it a loop?")
        agent.ask()
        assert provider.refused
        assert "There is no result of this call" in provider.asked[-1].raw.decode()


def test_a_piece_of_a_conversation_goes_through_without_tools(tmp_path: Path) -> None:
    _, script = scripted([Says("no loop")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        said = [
            {"role": "model", "parts": [{"text": LARGE}]},
            {"role": "user", "parts": [{"text": "a loop?"}]},
        ]
        path = "/v1beta/models/gemini-2.5-pro:generateContent"
        assert httpx.post(url + path, json={"contents": said}, timeout=60).status_code == 200
        assert provider.asked[-1].body == {"contents": said}


NAMED = {
    "claude": (
        {"x-claude-code-session-id": "one"},
        {"x-claude-code-session-id": "one", "x-claude-code-agent-id": "below"},
    ),
    "codex": (
        {"session-id": "one", "thread-id": "one"},
        {"session-id": "one", "thread-id": "two", "x-codex-parent-thread-id": "one"},
    ),
    "opencode": ({"x-session-id": "one"}, {"x-session-id": "two", "x-parent-session-id": "one"}),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_subagent_that_works_beside_its_parent_has_a_conversation_of_its_own_below_it(
    tmp_path: Path, name: str
) -> None:
    _, script = scripted(*([Calls(TOOL, {"command": f"{n}"})] for n in range(6)))
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agents = [Agent("anthropic", url, headers=headers) for headers in NAMED[name]]
        for number, agent in enumerate(agents):
            agent.units.append(
                {"role": "user", "content": [{"type": "text", "text": f"duty {number}"}]}
            )
        for _ in range(3):
            for agent in agents:
                agent.results([(call, tool, LARGE) for call, tool, _ in agent.ask()])
        found = httpx.get(f"{url}/.helix/status", timeout=60).json()["figures"]
        assert [one["requests"] for one in found] == [3, 3]
        assert provider.refused == []
    rows = conversations(tmp_path)
    above, below = sorted(rows, key=lambda row: bool(row.parent))
    assert (above.parent, below.parent) == ("", above.id)


def replies(home: Path) -> list[str]:
    said = [fact.parts for fact in recorded_facts(home) if isinstance(fact, ModelReplied)]
    return [part.text for parts in said for part in parts if isinstance(part, Text)]


def recorded_facts(home: Path) -> list[Fact]:
    async def read() -> list[Fact]:
        workspace = await AllWorkspaces(
            program_folders.find_program_folders(home).workspaces_folder
        ).open_stored_workspace(gateway_workspaces.USUAL_WORKSPACE_NAME)
        try:
            rows = await workspace.journal.list_conversations()
            return [
                recorded.fact
                for row in rows
                for recorded in await workspace.journal.read_facts(row.id)
            ]
        finally:
            await workspace.aclose()

    return asyncio.run(read())


def conversations(home: Path) -> list[StoredConversation]:
    async def read() -> list[StoredConversation]:
        workspace = await AllWorkspaces(
            program_folders.find_program_folders(home).workspaces_folder
        ).open_stored_workspace(gateway_workspaces.USUAL_WORKSPACE_NAME)
        try:
            return list(await workspace.journal.list_conversations())
        finally:
            await workspace.aclose()

    return asyncio.run(read())


def with_key(home: Path, provider: Provider) -> AbstractContextManager[str]:
    """A gateway with a stored key of this provider."""
    return running(home, provider.url, key="stored-4711", key_host=urlsplit(provider.url).netloc)


@pytest.mark.parametrize(
    ("protocol", "name"), [("anthropic", "x-api-key"), ("openai-chat", "authorization")]
)
def test_a_stored_key_is_used_only_where_the_agent_sends_none(
    tmp_path: Path, protocol: str, name: str
) -> None:
    _, script = scripted([Says("one")], [Says("two")])
    with Provider(script) as provider, with_key(tmp_path, provider) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url)
        agent.say("look around")
        agent.ask()
        assert "stored-4711" not in str(provider.asked[-1].headers)
        httpx.post(url + agent.path, json=agent.body(), timeout=60)
        assert provider.asked[-1].headers[name].endswith("stored-4711")
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"stored-4711" not in stored


def test_a_stored_key_goes_to_no_other_host_than_its_providers(tmp_path: Path) -> None:
    _, script = scripted([Says("one")])
    with (
        Provider(script) as other,  # type: ignore[arg-type]
        running(tmp_path, other.url, key="stored-4711", key_host="api.openai.com") as url,
    ):
        agent = Agent("openai-chat", url)
        agent.say("look around")
        httpx.post(url + agent.path, json=agent.body(), timeout=60)
        assert len(other.asked) == 1
        assert "stored-4711" not in str(other.asked[-1].headers)


@all_protocols
@streamed
def test_hidden_calls_of_requests_that_went_ahead_are_told_apart(
    tmp_path: Path, protocol: str, streams: bool
) -> None:
    recall = Calls("recall_cached_content", {"sha256": DIGEST})
    search = Calls("search_cached_content", {"query": "x"})
    tool = Calls(TOOL, {"command": "ls"})
    _, script = scripted([tool], [tool], [recall, tool], [search, tool], [tool], [Says("fine")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url, streams)
        agent.say("look around")
        for _ in range(6):
            agent.results([(call, name, "short") for call, name, _ in agent.ask()])
        assert not provider.refused


@all_protocols
@streamed
def test_a_reply_that_cannot_go_on_behind_a_recall_ends_in_an_error(
    tmp_path: Path, expect: Expect, protocol: str, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect("a reply could not go on behind a recall")
    _, script = scripted([Calls("recall_cached_content", {"sha256": DIGEST})], [Says("fine")])
    monkeypatch.setattr(
        "helix_desktop.gateway.reply_relay.HiddenResult", None
    )  # a mistake in the program
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url, streams)
        agent.say("look around")
        reply = httpx.post(
            url + agent.path, json=agent.body(), headers={"x-api-key": "k"}, timeout=60
        )
        assert b"Nothing was lost" in reply.content
        assert agent.ask() == []


@pytest.mark.parametrize("marks_of_its_own", [0, 2])
def test_after_each_clearing_the_provider_reads_what_it_knows(
    tmp_path: Path, marks_of_its_own: int
) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "You are an agent. " * 100, **mark}] * marks_of_its_own
    with (
        Provider(lambda _: [Calls(TOOL, {"command": "look"})]) as provider,
        running(tmp_path, provider.url) as url,
    ):
        agent = Agent("anthropic", url, session="s", system=system)  # type: ignore[arg-type]
        agent.say("Go on until it is done. " * 200)
        for step in range(40):
            blocks = [
                block for unit in agent.units if unit["role"] == "user" for block in unit["content"]
            ]
            for block in blocks:
                block.pop("cache_control", None)
            for block in blocks[-2:]:
                block.update(mark)
            agent.results(
                [(call, name, f"line of output {step}\n" * 200) for call, name, _ in agent.ask()]
            )
    cache = Cache()
    cleared: list[int] = []
    for asked in provider.asked:
        known = cache.known(asked.body)
        read = cache.bill(asked.body)["cache_read_input_tokens"]
        assert read >= 0.9 * known
        cleared.append(asked.raw.count(b"[CACHED]"))
    assert len({*cleared}) > 2
    assert provider.refused == []


@all_protocols
@streamed
@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_refusal_behind_a_recall_is_asked_again_and_the_agent_does_not_see_it(
    tmp_path: Path, protocol: str, streams: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helix_desktop.gateway.reply_relay.RETRY_WAITS_SECONDS", (0.0, 0.0, 0.0))
    recall = [Calls("recall_cached_content", {"sha256": DIGEST})]
    heard, script = scripted(recall, status, status, [Says("fine")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        agent = Agent(protocol, url, streams)
        agent.say("look around")
        assert agent.ask() == []
        assert "fine" in json.dumps(agent.units)
        assert len(heard) == 4


@all_protocols
def test_what_a_reply_had_cost_that_was_cut_is_paid_once(
    tmp_path: Path, expect: Expect, protocol: str
) -> None:
    """OpenAI tells of tokens in its last event alone, so they are estimated, also of a reply of
    which no word came yet: a model may think for minutes before.
    """
    expect("the provider's reply broke off")
    heard, script = scripted([Says("a long answer")], [Says("a long answer")])
    with Provider(script) as provider, running(tmp_path, provider.url) as url:  # type: ignore[arg-type]
        provider.cuts = {1: 1}
        agent = Agent(protocol, url)
        agent.say("look around")
        with pytest.raises((httpx.HTTPError, AssertionError)):
            agent.ask()
        agent.ask()
        assert len(heard) == 2
    recorded = recorded_facts(tmp_path)
    (spent,) = [fact for fact in recorded if isinstance(fact, Spent)]
    if protocol in ("anthropic", "gemini"):
        assert spent.usage.input == 100
    else:
        assert spent.usage.input > 0
    assert [fact.usage.input for fact in recorded if isinstance(fact, ModelReplied)] == [100]
