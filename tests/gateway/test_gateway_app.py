"""The gateway's application: what it says of itself, what it lets through, and how it
asks an agent's own model.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import ModelReplied, ModelSet, Purpose, Spent, Usage
from helix_desktop.errors import NotFound, StoreFailed
from helix_desktop.gateway import (
    gateway_app,
    request_forwarding,
    request_handling,
    request_parsing,
)
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gateway.gateway_app import GatewayApp
from helix_desktop.gateway.gateway_workspaces import GatewayWorkspaces
from helix_desktop.gateway.incremental_parsing import PackedBody
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.registration import GatewayRegistration, GatewayRegistrations
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.workbench.unread_requests import sum_of_unread_requests
from tests.conftest import Expect
from tests.gateway.running import TOOL, Agent, open_here
from tests.peers.agent_provider import Asked, Block, Calls, CutOff, Provider, Raw, Says

Script = Callable[[Asked], Sequence[Block] | int]


class Running:
    """An application, a client of it, and the provider behind it. `registration` is the
    one agents come in by.
    """

    def __init__(
        self, app: GatewayApp, client: httpx.AsyncClient, provider: Provider, token: str
    ) -> None:
        self.app = app
        self.client = client
        self.provider = provider
        self.url = f"/t/{token}"

    async def ask(self, words: str, *, streams: bool = True, **headers: str) -> httpx.Response:
        agent = Agent("anthropic", self.url, streams)
        agent.say(words)
        return await self.client.post(
            agent.url + agent.path, json=agent.body(), headers={"x-api-key": "k", **headers}
        )

    async def status(self) -> Any:
        return (await self.client.get(f"{self.url}/.helix/status")).json()

    @property
    def conversation(self) -> str:
        return next(reversed(self.app.memory.last_requests.by_conversation))


async def _not_served(_: object) -> None:
    return None


@asynccontextmanager
async def running(
    tmp_path: Path, script: Script = lambda _: [Says("fine")], **options: Any
) -> AsyncIterator[Running]:
    where = program_folders.find_program_folders(tmp_path)
    with Provider(script) as provider:
        registration = GatewayRegistration("token", provider.url, **options)

        async def ask(*asked: Any) -> tuple[str, Usage, str]:
            return await app.memory.last_requests.ask_agent_model(*asked)

        opened = GatewayWorkspaces(where, "", _not_served, ask)
        app = GatewayApp(GatewayRegistrations(registration), opened.hold_workspace_open)
        app.memory.list_open_conversations = opened.list_open_conversations
        try:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1", timeout=60
            ) as client:
                yield Running(app, client, provider, "token")
        finally:
            await _shut_down(app)
            await opened.aclose()


async def _shut_down(app: GatewayApp) -> None:
    """As the server does, before the workspaces close."""

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.shutdown"}

    async def send(_: object) -> None: ...

    await app({"type": "lifespan"}, receive, send)


async def test_the_window_is_told_what_each_agent_does(tmp_path: Path) -> None:
    async with running(tmp_path, sees_all=True) as here:
        assert await here.status() == {"agents": [], "figures": [], "today": []}
        begun = time.time()
        for words in ("look", "and on"):
            assert (await here.ask(words)).status_code == 200
        status = await here.status()
        (agent,) = status["agents"]
        assert (agent["requests"], agent["unfolded"], agent["conversation"]) == (
            2,
            "",
            here.conversation,
        )
        assert begun <= agent["last"] <= time.time()
        assert sum(one["requests"] for one in status["figures"]) == 2
        assert len(status["figures"]) == 2
        assert all(one in status["figures"] for one in status["today"])


async def test_the_window_is_told_of_any_request_that_arrived_and_how_it_ended(
    tmp_path: Path,
) -> None:
    """A list of models, or a request to a provider that was not reached, was not counted: the
    page of connected agents went on to say that none had arrived.
    """
    async with running(tmp_path, sees_all=True) as here:
        await here.client.get("/t/token/v1/models")
        arrival = (await here.status())["arrival"]
        assert arrival["host"] == here.provider.url.removeprefix("http://")
        assert (arrival["status"], arrival["failure"]) == (200, "")
        nobody = GatewayRegistration("token", "http://127.0.0.1:9", sees_all=True)
        here.app._registrations.replace_all([nobody])
        await here.client.get("/t/token/v1/models")
        arrival = (await here.status())["arrival"]
        assert (arrival["host"], arrival["status"]) == ("127.0.0.1:9", 0)
        assert "could not be reached" in arrival["failure"]


async def test_what_the_user_set_for_a_model_at_the_address_of_its_provider_holds(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        providers_file = program_folders.find_program_folders(tmp_path).providers_file
        configured = ConfiguredProviders(providers_file)
        configured.save_provider(ProviderConfig("mine", base_url=f"{here.provider.url}/v1"))
        configured.correct_model("mine", "claude-sonnet-4-5", {"window": 16_000})
        assert (await here.ask("look")).status_code == 200
        room = await open_here(here.app.memory)
        recorded = await room._bench.read_conversation_facts(here.conversation)
    windows = [record.fact.window for record in recorded if isinstance(record.fact, ModelSet)]
    assert windows == [16_000]


async def test_an_agent_is_told_of_its_own_conversations_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        assert await here.status() == {"figures": []}
        await here.ask("look")
        (figure,) = (await here.status())["figures"]
        assert figure["conversation"] == here.conversation
        here.app._registrations.replace_all([GatewayRegistration("other", here.provider.url)])
        here.url = "/t/other"
        assert await here.status() == {"figures": []}


async def test_an_agent_on_a_subscription_is_not_folded_unless_it_is_turned_on(
    tmp_path: Path,
) -> None:
    for folds_plans in (False, True):
        async with running(
            tmp_path / str(folds_plans), sees_all=True, folds_plans=folds_plans
        ) as here:
            await here.ask("look", authorization="Bearer sk-ant-oat01-x")
            (agent,) = (await here.status())["agents"]
            assert ("subscription" in agent["unfolded"]) == (not folds_plans)


@pytest.mark.parametrize("sessions", [("a", "a"), ("a", "b"), ("", "")])
async def test_what_a_title_cost_stands_in_the_conversation_of_its_session_that_begins_after_it(
    tmp_path: Path, sessions: tuple[str, str]
) -> None:
    """Of opencode and Gemini CLI it stood nowhere: they ask for a title or a choice of
    model first.
    """
    aside, main = (
        [("x-claude-code-session-id", session)] if session else [] for session in sessions
    )
    async with running(tmp_path) as here:
        agent = Agent("anthropic", here.url)
        agent.say("find a title")
        body = {name: value for name, value in agent.body().items() if name != "tools"}
        answer = await here.client.post(
            agent.url + agent.path, json=body, headers={"x-api-key": "k", **dict(aside)}
        )
        assert answer.status_code == 200
        agent.units[:] = []
        agent.say("do the work")
        headers = {"x-api-key": "k", **dict(main)}
        await here.client.post(agent.url + agent.path, json=agent.body(), headers=headers)
        await here.app._tasks.wait_for_all_tasks()
        room = await open_here(here.app.memory)
        await room._tasks.wait_for_all_tasks()
        recorded = [
            each.fact for each in await room._bench.read_conversation_facts(here.conversation)
        ]
        spent = [fact for fact in recorded if isinstance(fact, Spent)]
        assert [fact.purpose for fact in spent] == [Purpose.OTHER] * (aside == main)
        assert all(fact.usage.output and fact.usage.cost for fact in spent)
        assert len(here.app.memory.side_requests.waiting) == (aside != main)


async def test_the_gateway_knows_for_how_long_nobody_asked_for_anything(tmp_path: Path) -> None:
    seen: list[float] = []

    def script(_: Asked) -> Sequence[Block]:
        seen.append(here.app.idle_seconds)
        return [Says("fine")]

    async with running(tmp_path, script) as here:
        assert here.app.idle_seconds > 0
        await here.ask("look")
        assert seen == [0.0], "while somebody is answered it is not idle"
        assert 0 < here.app.idle_seconds < 60


async def test_who_has_no_address_is_refused_in_a_form_that_agents_read(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        here.url = "/t/unknown"
        refused = await here.ask("look")
        assert refused.status_code == 403
        assert refused.headers["content-type"] == "application/json"
        assert int(refused.headers["content-length"]) == len(refused.content)
        assert refused.json()["type"] == "error"
        assert refused.json()["error"]["type"] == "helix_gateway"
        assert here.provider.asked == []


async def test_a_request_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as here:
        size = len(json.dumps(Agent("anthropic", "").body()))
        monkeypatch.setattr(gateway_app, "MOST_BODY_BYTES", size + 200)
        assert (await here.ask("look")).status_code == 200
        assert (await here.ask("look" * 100)).status_code == 413
        assert len(here.provider.asked) == 1


async def test_a_provider_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        here.app._registrations.replace_all([GatewayRegistration("token", "http://127.0.0.1:9")])
        refused = await here.ask("look")
        assert refused.status_code == 502
        assert (
            "127.0.0.1:9 could not be reached (All connection attempts failed). Check the address and the proxy."
            in refused.text
        )


async def test_the_window_is_told_why_an_agents_last_request_was_not_answered(
    tmp_path: Path,
) -> None:
    """An agent whose every request failed was shown as one that works."""
    async with running(tmp_path, sees_all=True) as here:
        here.app._registrations.replace_all(
            [GatewayRegistration("token", "http://127.0.0.1:9", sees_all=True)]
        )
        refused = await here.ask("look")
        (agent,) = (await here.status())["agents"]
        assert agent["failure"] == refused.json()["error"]["message"]
        assert agent["failure"].startswith("127.0.0.1:9 could not be reached")
        here.app._registrations.replace_all(
            [GatewayRegistration("token", here.provider.url, sees_all=True)]
        )
        assert (await here.ask("look")).status_code == 200
        (agent,) = (await here.status())["agents"]
        assert (agent["requests"], agent["failure"]) == (2, "")


CHAT_EVENTS = b"".join(
    b'data: {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": '
    + delta
    + b"}]}\n\n"
    for delta in (b'{"role": "assistant", "content": "Hello"}', b"{}")
)
CHAT_REPLY = Raw(CHAT_EVENTS + b"data: [DONE]\n\n", media_type="text/event-stream")
NO_PATH = Raw(b'{"error": {"message": "File Not Found"}}', status=404)
NO_MODEL = Raw(b'{"error": {"message": "The model x does not exist"}}', status=404)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (CHAT_REPLY, "with a reply in OpenAI Chat Completions, which the agent cannot read. Let"),
        (NO_PATH, "OpenAI Responses with 404, so it does not seem to have this protocol. Check"),
        (NO_MODEL, ""),
    ],
)
async def test_a_server_without_the_agents_protocol_is_named_until_one_answers(
    tmp_path: Path, reply: Raw, words: str
) -> None:
    """The agent only said that a stream had ended, and eight requests got no answer."""
    async with running(tmp_path, sees_all=True) as here:
        replies: list[Any] = [reply, [Says("Hello")]]
        here.provider.script = lambda _: replies.pop(0)
        agent = Agent("openai-responses", here.url)
        agent.say("look")
        await here.client.post(agent.url + agent.path, json=agent.body())
        (row,) = (await here.status())["agents"]
        assert words in row["failure"]
        assert bool(row["failure"]) == bool(words)
        assert here.app.memory.unserved.get("token", "") == row["failure"]
        await here.client.post(agent.url + agent.path, json=agent.body())
        (row,) = (await here.status())["agents"]
        assert row["failure"] == ""


async def test_requests_of_a_workspace_that_cannot_be_opened_go_on_unfolded(
    tmp_path: Path, expect: Expect
) -> None:
    expect("requests go on unfolded")
    async with running(tmp_path, workspace="gone") as here:
        assert (await here.ask("look")).status_code == 200
        assert here.app.memory.last_requests.by_conversation == {}
        status = await here.status()
        assert status.keys() == {"figures", "unrecorded", "unread"}
        assert (status["figures"], status["unread"]["requests"]) == ([], 1)
        assert "gone" in status["unrecorded"]


async def test_the_status_says_why_requests_are_not_recorded(
    tmp_path: Path, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreFailed("The journal could not be written: the disk is full.")

    expect("a request could not be recorded")
    monkeypatch.setattr(LocalAgentConversations, "receive_request", fail)
    async with running(tmp_path) as here:
        assert (await here.ask("look " * 10_000)).status_code == 200
        assert (await here.status())[
            "unrecorded"
        ] == "The journal could not be written: the disk is full."


async def test_a_mistake_in_the_settings_of_a_workspace_is_said_and_the_conversation_recorded(
    tmp_path: Path, expect: Expect
) -> None:
    expect("requests go on as they came")
    where = program_folders.find_program_folders(tmp_path)
    workspaces = AllWorkspaces(where.workspaces_folder)
    workspace = workspaces.create_stored_workspace("here")
    settings_file = where.workspaces_folder / workspace.id / "workspace.toml"
    with settings_file.open("a") as file:
        file.write('[policy]\npreset = "layred"\n')
    async with running(tmp_path, workspace="here") as here:
        agent = Agent("anthropic", here.url, streams=False)
        for words in ("look " * 20_000, "and on", "and on"):
            agent.say(words)
            reply = await here.client.post(
                agent.url + agent.path, json=agent.body(), headers={"x-api-key": "k"}
            )
            agent.units.append({"role": "assistant", "content": reply.json()["content"]})
        assert here.provider.asked[-1].body["messages"] == agent.units[:-1]
        conversations = await open_here(here.app.memory)
        (row,) = conversations._bench.list_conversations()
        notes = conversations._bench.opening_notes
        status = await here.status()
        (activity,) = here.app.memory.agent_activity.values()
    (figures,) = status["figures"]
    assert (figures["conversation"], figures["requests"]) == (row.id, 3)
    assert status["unfolded"].startswith("There is no preset 'layred'. Did you mean 'layered'?")
    assert str(settings_file) in status["unfolded"]
    assert notes == (status["unfolded"],)
    assert activity.unfolded == status["unfolded"]
    assert "unrecorded" not in status


async def test_what_is_not_understood_goes_on_as_it_came(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        here.provider.strict = False
        for method, path in (("POST", "/v1/other"), ("GET", "/v1/messages")):
            await here.client.request(method, here.url + path, headers={"x-api-key": "k"})
        assert here.app.memory.last_requests.by_conversation == {}
        assert here.app.memory.agent_activity == {}


UNREAD_BODIES = {
    # The provider has the history.
    "openai-responses": {"input": [], "previous_response_id": "resp_1", "stream": True},
    "openai-chat": {"messages": "not a list", "stream": False},
    "anthropic": {"messages": [], "stream": True},
    "gemini": {"contents": [], "cachedContent": "cachedContents/1"},
}


@pytest.mark.parametrize("protocol", UNREAD_BODIES)
async def test_what_is_not_understood_is_counted_with_what_its_reply_says_it_cost(
    tmp_path: Path, protocol: str
) -> None:
    async with running(tmp_path) as here:
        here.provider.strict = False
        here.provider.usage = lambda _: {"input": 100, "read": 40, "write": 0}
        path = Agent(protocol, "").path
        body = UNREAD_BODIES[protocol]
        for _ in range(2):
            reply = await here.client.post(here.url + path, json=body, headers={"x-api-key": "k"})
            assert reply.status_code == 200
        assert here.provider.asked[-1].body == body
        unread = (await here.status())["unread"]
        assert unread["requests"] == 2
        assert unread["input"] == 2 * here.provider.paid_tokens // 2
        assert unread["unknown"] == 0
        assert [one.unread for one in here.app.memory.agent_activity.values()] == [2]
        async with here.app.memory.use_conversations("") as conversations:
            kept = conversations.unread_requests.read_unread_requests()
        total = sum_of_unread_requests(kept)
    assert asdict(total) == unread
    assert total.output > 0


async def test_what_is_not_understood_counts_by_its_length_if_its_reply_says_no_more(
    tmp_path: Path, expect: Expect
) -> None:
    expect("the provider's reply broke off")
    body = json.dumps({"messages": [], "words": "of a request " * 30})
    answers = [Raw(b"not JSON"), Raw(b'{"id": "x"}'), CutOff([Says("cut")], 60), 529]
    async with running(tmp_path, lambda _: answers.pop(0)) as here:  # type: ignore[arg-type,return-value]
        here.provider.strict = False
        for _ in range(2):
            await here.client.post(f"{here.url}/v1/messages", content=body)
        with suppress(httpx.HTTPError, AssertionError):
            streamed = {**json.loads(body), "stream": True}
            await here.client.post(f"{here.url}/v1/messages", json=streamed)
        await here.client.post(f"{here.url}/v1/messages", content=body)
        # What is no request to a model is none that went on unread.
        await here.client.post(f"{here.url}/v1/messages/count_tokens", content=body)
        await here.client.post(f"{here.url}/api/event_logging/batch", json={"events": [1]})
        await here.client.get(f"{here.url}/v1/models")
        await here.app.memory.tasks.wait_for_all_tasks()
        unread = (await here.status())["unread"]
    assert (unread["requests"], unread["unknown"], unread["input"]) == (3, 3, 0)
    assert 300 < unread["unknown_tokens"] < 400


@pytest.mark.parametrize("words", ["look", "look " * 10_000])
async def test_what_could_not_be_recorded_is_counted_with_what_it_cost(
    tmp_path: Path, expect: Expect, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreFailed("The journal could not be written: the disk is full.")

    expect("a request could not be recorded")
    monkeypatch.setattr(LocalAgentConversations, "receive_request", fail)
    async with running(tmp_path) as here:
        assert (await here.ask(words)).status_code == 200
        unread = (await here.status())["unread"]
        assert (unread["requests"], unread["input"], unread["unknown"]) == (1, 100, 0)
        assert unread["cost"] > 0


# --- the agent's own model


# --- connections


async def speak(scope: dict[str, Any], *events: str) -> list[dict[str, Any]]:
    """What the application sends for these events of the server."""
    sent: list[dict[str, Any]] = []
    left = list(events)

    async def nobody(_: str) -> Any:
        raise NotFound("there is no workspace")

    async def receive() -> dict[str, Any]:
        return {"type": left.pop(0)}

    async def send(event: Any) -> None:
        sent.append(event)

    await GatewayApp(GatewayRegistrations(), nobody)(scope, receive, send)  # type: ignore[arg-type]
    return sent


async def test_a_web_socket_is_refused_so_that_agents_ask_plainly() -> None:
    (closed,) = await speak({"type": "websocket"}, "websocket.connect")
    assert closed == {"type": "websocket.close", "code": 1008}


async def test_the_application_starts_and_ends_in_order() -> None:
    sent = await speak({"type": "lifespan"}, "lifespan.startup", "lifespan.shutdown")
    assert [event["type"] for event in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


# --- what is refused, and what goes on as it came


async def test_a_packed_request_is_read_and_one_that_stands_for_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, sees_all=True) as here:
        agent = Agent("anthropic", here.url)
        agent.say("look" * 100)
        content = json.dumps(agent.body()).encode()
        headers = {"x-api-key": "k", "content-encoding": "gzip"}
        fine = await here.client.post(
            here.url + agent.path, content=gzip.compress(content), headers=headers
        )
        assert fine.status_code == 200
        assert here.app.memory.last_requests.by_conversation.keys() == {here.conversation}
        monkeypatch.setattr(request_parsing, "MOST_BODY_BYTES", len(content) - 1)
        refused = await here.client.post(
            here.url + agent.path, content=gzip.compress(content), headers=headers
        )
        sentence = (
            "A request of more than 64 MB after decompression is refused. Nothing was sent on."
        )
        assert (refused.status_code, refused.json()["error"]["message"]) == (413, sentence)
        assert len(here.provider.asked) == 1


async def test_a_large_request_is_understood_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_forwarding, "LARGE_BODY_BYTES", 10)
    async with running(tmp_path, sees_all=True) as here:
        assert (await here.ask("look")).status_code == 200
        assert (await here.status())["agents"][0]["requests"] == 1


async def test_a_large_request_is_held_packed_once_it_was_sent_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_forwarding, "LARGE_BODY_BYTES", 10)
    async with running(tmp_path) as here:
        await here.ask("look around")
        await here.app._tasks.wait_for_all_tasks()
        assert isinstance(
            here.app.memory.last_requests.by_conversation[
                here.conversation
            ].request.body.places.content,
            PackedBody,
        )
        await here.app.memory.last_requests.ask_agent_model(here.conversation, "Sum up.", "", 500)
        assert "look around" in json.dumps(here.provider.asked[-1].body["messages"])


async def test_a_provider_whose_certificates_cannot_be_read_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        proxies = {"ssl_cert_file": str(tmp_path / "nowhere.pem")}
        here.app._registrations.replace_all(
            [GatewayRegistration("token", "https://llm.example", proxies=proxies)]
        )
        refused = await here.ask("look")
        assert refused.status_code == 502
        assert "SSL_CERT_FILE cannot be read" in refused.json()["error"]["message"]


async def test_a_mistake_of_this_program_is_in_nobodys_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expect: Expect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake in the program")

    expect(
        "a request was not understood; it goes on as it came unless something was taken out of its session"
    )
    monkeypatch.setattr(request_handling, "parse_incoming_request", fail)
    async with running(tmp_path) as here:
        assert (await here.ask("look")).status_code == 200
    assert (
        "a request was not understood; it goes on as it came unless something was taken out of its session"
        in caplog.messages
    )


async def test_tokens_are_counted_of_what_would_be_sent(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expect: Expect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expect("a count of tokens is asked for the unfolded request, without what was taken out")
    answers: list[Sequence[Block]] = [[Calls(TOOL, {"command": "ls"}, "c1")], [Says("fine")]]
    async with running(tmp_path, lambda _: answers.pop(0)) as here:
        agent = Agent("anthropic", here.url, streams=False)
        agent.say("look")

        async def post(path: str) -> Any:
            reply = await here.client.post(
                here.url + path, json=agent.body(), headers={"x-api-key": "k"}
            )
            assert reply.status_code == 200
            return reply.json()

        async def counted() -> bytes:
            assert (await post("/v1/messages/count_tokens"))["passed"] is True
            return here.provider.asked[-1].raw

        own = json.dumps(agent.body()).encode()
        assert json.loads(await counted()) == agent.body(), "nothing is known of it yet"
        agent.units.append(
            {"role": "assistant", "content": (await post("/v1/messages"))["content"]}
        )
        agent.results([("c1", TOOL, "a line of it\n" * 40_000)])
        await post("/v1/messages")
        own = json.dumps(agent.body()).encode()
        assert len(await counted()) < len(own) / 10
        assert b"tool_result" in here.provider.asked[-1].raw

        async def fail(*_: object) -> None:
            raise RuntimeError("the journal is gone")

        monkeypatch.setattr(LocalAgentConversations, "preview_request", fail)
        assert json.loads(await counted()) == agent.body()
    assert (
        "a count of tokens is asked for the unfolded request, without what was taken out"
        in caplog.messages
    )


class Connection:
    """One request as a server passes it on; the agent hangs up behind it, or stays."""

    def __init__(self, raw_path: bytes, content: bytes, *, stays: bool = False) -> None:
        self.scope = {
            "type": "http", "method": "POST", "raw_path": raw_path, "query_string": b"",
            "headers": [(b"host", b"127.0.0.1"), (b"x-api-key", b"k")],
        }  # fmt: skip
        self.events = [
            {"type": "http.request", "body": content[:9], "more_body": True},
            {"type": "http.request", "body": content[9:]},
        ]
        self.stays = stays
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        if self.events:
            return self.events.pop(0)
        if self.stays:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Any) -> None:
        self.sent.append(event)


class ConnectionUntilReply(Connection):
    """The agent hangs up as soon as it has as many bytes as the reply has by its headers."""

    def __init__(self, raw_path: bytes, content: bytes) -> None:
        super().__init__(raw_path, content)
        self._has_reply = asyncio.Event()

    async def receive(self) -> Any:
        if not self.events:
            await self._has_reply.wait()
        return await super().receive()

    async def send(self, event: Any) -> None:
        await super().send(event)
        if event.get("body"):
            self._has_reply.set()


async def test_an_unread_request_is_counted_though_its_agent_hangs_up_behind_the_reply(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as here:
        here.provider.strict = False
        body = json.dumps(UNREAD_BODIES["openai-chat"]).encode()
        for count in (1, 2, 3):
            agent = ConnectionUntilReply(b"/t/token/v1/chat/completions", body)
            await here.app(agent.scope, agent.receive, agent.send)
            async with here.app.memory.use_conversations("") as conversations:
                kept = conversations.unread_requests.read_unread_requests()
            assert [request.is_estimate for request in kept] == [False] * count


async def test_an_address_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        odd = Connection(b"/t/token/v1/" + b"a" * 70_000, b"{}", stays=True)
        await here.app(odd.scope, odd.receive, odd.send)
        start, body = odd.sent
        assert start["status"] == 400
        assert "is not valid. Nothing was sent." in json.loads(body["body"])["error"]["message"]
        assert body["more_body"] is False


async def test_when_an_agent_hangs_up_nobody_waits_for_its_reply(tmp_path: Path) -> None:
    go_on = threading.Event()

    def script(_: Asked) -> Sequence[Block]:
        go_on.wait(60)
        return [Says("too late")]

    async with running(tmp_path, script) as here:
        agent = Agent("anthropic", "")
        agent.say("look")
        gone = Connection(b"/t/token/v1/messages", json.dumps(agent.body()).encode())
        await here.app(gone.scope, gone.receive, gone.send)
        assert not go_on.is_set()
        go_on.set()
        assert gone.sent == []
        assert here.app.idle_seconds > 0


async def test_a_long_reply_goes_on_in_pieces_that_leave_others_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_app, "SLICE", 100)
    async with running(tmp_path) as here:
        agent = Agent("anthropic", "", streams=False)
        agent.say("look")
        stays = Connection(b"/t/token/v1/messages", json.dumps(agent.body()).encode(), stays=True)
        await here.app(stays.scope, stays.receive, stays.send)
        start, *pieces, end = stays.sent
        assert start["status"] == 200
        assert end == {"type": "http.response.body", "body": b"", "more_body": False}
        assert all(0 < len(piece["body"]) <= 100 and piece["more_body"] for piece in pieces)
        assert (
            json.loads(b"".join(piece["body"] for piece in pieces))["content"][0]["text"] == "fine"
        )


@pytest.mark.usefixtures("clocks_changed_today")
async def test_the_figures_of_today_begin_at_midnight_of_this_computer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    tell = LocalAgentConversations.figures_since

    async def figures_since(room: LocalAgentConversations, since: float = 0.0) -> Sequence[Figures]:
        asked.append(since)
        return await tell(room, since)

    monkeypatch.setattr(LocalAgentConversations, "figures_since", figures_since)
    async with running(tmp_path, sees_all=True) as here:
        await here.ask("look")
        await here.status()
    ever, today = asked
    assert ever == 0
    assert time.localtime(today)[3:6] == (0, 0, 0)
    assert time.localtime(today)[:3] == time.localtime()[:3]


async def titles_and_costs(here: Running) -> list[tuple[str, str, int]]:
    """Title, agent, and how many requests were paid, of each conversation."""
    await here.app._tasks.wait_for_all_tasks()
    room = await open_here(here.app.memory)
    await room._tasks.wait_for_all_tasks()
    found = []
    for row in room._bench.list_conversations():
        recorded = await room._bench.read_conversation_facts(row.id)
        kinds = (Spent, ModelReplied)
        paid = [one.fact for one in recorded if isinstance(one.fact, kinds) and one.fact.usage.cost]
        found.append((row.title, row.agent, len(paid)))
    return sorted(found)


async def test_an_agent_that_offers_no_tools_is_recorded_and_priced(tmp_path: Path) -> None:
    """Of aider nothing was recorded, and the last line said that nothing was answered."""
    async with running(tmp_path, agent="aider") as here:
        for words in (["count the files"], ["the files, once more", "and the folders"]):
            agent = Agent("openai-chat", here.url)
            for said in words:
                agent.say(said)
            body = {name: value for name, value in agent.body().items() if name != "tools"}
            answer = await here.client.post(
                agent.url + agent.path, json=body, headers={"x-api-key": "k"}
            )
            assert answer.status_code == 200
        assert await titles_and_costs(here) == [("count the files", "aider", 2)]
        (figures,) = (await here.status())["figures"]
        assert figures["requests"] == 2


@pytest.mark.parametrize("size", [10, 20_000])
async def test_a_choice_of_a_model_is_beside_the_conversation_however_long_it_is(
    tmp_path: Path, size: int
) -> None:
    """Gemini CLI's became a conversation, and later sessions forks of it with its title."""
    async with running(tmp_path, agent="gemini") as here:
        for words in ("count files", "explain rust"):
            context = "This is the context. " + "x" * size
            choice = Agent("gemini", here.url, system="You choose a model.")
            choice.say(context)
            choice.say(words)
            body = {name: value for name, value in choice.body().items() if name != "tools"}
            await here.client.post(choice.url + choice.path, json=body)
            agent = Agent("gemini", here.url)
            agent.units = [{"role": "user", "parts": [{"text": words}, {"text": context}]}]
            await here.client.post(agent.url + agent.path, json=agent.body())
        assert await titles_and_costs(here) == [
            ("count files", "Gemini CLI", 2),
            ("explain rust", "Gemini CLI", 2),
        ]


async def test_a_reply_without_an_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    expect("the provider's reply broke off: ReplyTooLong")
    monkeypatch.setattr(gateway_app, "MOST_RELAYED_BYTES", 5_000)
    async with running(tmp_path, lambda _: [Says("again and again " * 2_000)]) as here:
        agent = Agent("anthropic", "", streams=True)
        agent.say("look")
        endless = Connection(b"/t/token/v1/messages", json.dumps(agent.body()).encode(), stays=True)
        await here.app(endless.scope, endless.receive, endless.send)
        start, *pieces = endless.sent
        assert start["status"] == 200
        assert all(piece["more_body"] for piece in pieces), "the agent sees that it was cut"
        assert sum(len(piece["body"]) for piece in pieces) <= 5_000


async def test_a_provider_that_never_answers_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_app, "LONGEST_REQUEST_SECONDS", 0.5)
    answered = threading.Event()

    def script(_: Asked) -> Sequence[Block]:
        answered.wait(60)
        return [Says("too late")]

    async with running(tmp_path, script) as here:
        refused = await here.ask("look")
        answered.set()
        assert refused.status_code == 504
        assert "Nothing was lost" in refused.json()["error"]["message"]
        assert here.app.idle_seconds > 0
