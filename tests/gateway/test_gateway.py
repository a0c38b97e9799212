"""The gateway as agents and providers meet it: real ports, real stores, all four protocols."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.gateway.running import PROTOCOLS, TOOL, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says, Thinks

both = pytest.mark.parametrize("streams", [True, False])
all_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
LARGE = "\n".join(f"line {n}: the quick brown fox number {n * 7919}" for n in range(1_500))
DIGEST = hashlib.sha256(LARGE.encode()).hexdigest()


def scripted(*replies: Sequence[Block] | int) -> tuple[list[Asked], object]:
    left = list(replies)
    heard: list[Asked] = []

    def script(asked: Asked) -> Sequence[Block] | int:
        heard.append(asked)
        return left.pop(0) if left else [Says("done")]

    return heard, script


@all_protocols
@both
def test_with_folds_off_the_body_arrives_as_it_was_sent(tmp_path: Path, protocol: str, streams: bool) -> None:
    _, script = scripted([Thinks("let me see"), Says("I look"), Calls(TOOL, {"command": "ls"})], [Says("fine")])
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
    recall: list[Block] = [Thinks("I need it"), Calls("recall_cached_content", {"sha256": DIGEST, "lines": "700-702"})]
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
        assert LARGE not in heard[1].raw.decode()
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
@both
def test_a_recall_beside_a_call_of_the_client_waits_for_its_results(
    tmp_path: Path, protocol: str, streams: bool
) -> None:
    heard, script = scripted(
        [Calls(TOOL, {"command": "cat big"})],
        [Says("both"), Calls("recall_cached_content", {"sha256": DIGEST, "lines": "5"}), Calls(TOOL, {"command": "b"})],
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
            assert (DIGEST in heard[2].raw.decode() and "I need it" in heard[2].raw.decode()) or protocol != "anthropic"
            assert LARGE not in heard[2].raw.decode()
        with running(tmp_path / "other", provider.url) as url:  # the journal is lost
            agent.url = url
            agent.results([(call, name, "short") for call, name, _ in agent.ask()])
        agent.url = provider.url  # and the gateway is gone
        agent.ask()
        assert provider.refused == []


@all_protocols
@both
def test_a_model_that_recalls_in_a_loop_is_ended(tmp_path: Path, protocol: str, streams: bool) -> None:
    def script(asked: Asked) -> Sequence[Block]:
        return [Calls("search_cached_content", {"query": "fox"})] if b"loop" in asked.raw else [Says("x")]

    with Provider(script) as provider, running(tmp_path, provider.url) as url:
        agent = Agent(protocol, url, streams)
        agent.say("loop")
        assert agent.ask() == []
        assert 5 < len(provider.asked) < 20
        assert provider.refused == []
