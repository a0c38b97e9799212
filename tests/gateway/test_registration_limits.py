"""What a token opens: the workspace, the name and the conversations of its registration."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import ConversationStarted, Text, UserSaid
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.gateway.running import PROTOCOLS, Agent, running
from tests.peers.agent_provider import Provider, Says

SESSION = "session-of-victim"
# What a request may say about who sends it: another agent's name, session or conversation.
FORGED: tuple[Mapping[str, str], ...] = (
    {"x-claude-code-session-id": SESSION},
    {"session_id": SESSION},
    {"x-helix-conversation": SESSION},
    {"x-codex-parent-thread-id": SESSION},
    {"x-parent-session-id": SESSION},
    {"x-helix-parent": SESSION},
    {"x-helix-parent": "the victim's conversation"},
    {"x-claude-code-session-id": SESSION, "x-claude-code-agent-id": "a1"},
    {"x-helix-agent": "claude", "x-claude-code-session-id": SESSION},
    {"user-agent": "claude-cli/2.1", "x-claude-code-session-id": SESSION},
)


@dataclass(frozen=True)
class StoredTexts:
    id: str
    agent: str
    parent: str
    said: str


def conversations_of(home: Path, workspace: str) -> list[StoredTexts]:
    """All conversations of a workspace, with what their users said."""

    async def read() -> list[StoredTexts]:
        folder = program_folders.find_program_folders(home).workspaces_folder
        opened = await AllWorkspaces(folder).open_stored_workspace(workspace)
        found = []
        try:
            for row in await opened.journal.list_conversations():
                facts = [one.fact for one in await opened.journal.read_facts(row.id)]
                started = next(fact for fact in facts if isinstance(fact, ConversationStarted))
                said = [fact.parts for fact in facts if isinstance(fact, UserSaid)]
                texts = [
                    part.text
                    for part in itertools.chain.from_iterable(said)
                    if isinstance(part, Text)
                ]
                found.append(StoredTexts(row.id, started.agent, started.parent, "\n".join(texts)))
        finally:
            await opened.aclose()
        return found

    return asyncio.run(read())


def texts_of(home: Path, workspace: str) -> str:
    return "\n".join(one.said for one in conversations_of(home, workspace))


PATHS = ("/w/Secret", "/w/IDENTITY", "/w/secret", "/w/%53ecret", "/a/codex/w/Secret", "/w/Mine/w/Secret")  # fmt: skip


@pytest.mark.parametrize("own_workspace", ["", "Mine"])
def test_a_token_opens_no_workspace_that_its_registration_does_not_name(
    tmp_path: Path, own_workspace: str
) -> None:
    known = AllWorkspaces(program_folders.find_program_folders(tmp_path).workspaces_folder)
    identity = known.create_stored_workspace("Secret").id
    known.create_stored_workspace("Mine")
    with Provider(lambda _: [Says("fine")]) as provider:
        wrapped = GatewayRegistration(
            "wrapped-token", provider.url, agent="claude", workspace=own_workspace
        )
        with running(tmp_path, provider.url, others=[wrapped], chooses_workspace=True) as url:
            agent = Agent("anthropic", f"{url}/w/Secret", session="s-secret")
            agent.say("the secret")
            agent.ask()
            base = url.rpartition("/t/")[0]
            for path in (one.replace("IDENTITY", identity) for one in PATHS):
                for place in (f"/t/wrapped-token{path}", f"{path}/t/wrapped-token"):
                    other = Agent("anthropic", base + place, session=place)
                    other.say(f"asked along {place}")
                    other.ask()
    assert texts_of(tmp_path, "Secret") == "the secret"
    own = texts_of(tmp_path, own_workspace or "Connected agents")
    assert own.count("asked along") == 2 * len(PATHS)


@pytest.mark.parametrize("forged", FORGED, ids=[" ".join(one) for one in FORGED])
def test_no_agent_writes_into_or_below_the_conversation_of_another(
    tmp_path: Path, forged: Mapping[str, str]
) -> None:
    with Provider(lambda _: [Says("fine")]) as provider:
        victim = GatewayRegistration("token-of-victim", provider.url, agent="claude")
        intruder = GatewayRegistration("token-of-intruder", provider.url, agent="codex")
        with running(tmp_path, provider.url, others=[victim, intruder]) as url:
            base = url.rpartition("/t/")[0]
            agent = Agent("anthropic", f"{base}/t/{victim.token}", session=SESSION)
            for said in ("the work", "more of it"):
                agent.say(said)
                agent.ask()
            names = httpx.get(f"{base}/t/{victim.token}/.helix/status").json()["figures"]
            conversation = names[0]["conversation"]
            headers = {
                name: value.replace("the victim's conversation", conversation)
                for name, value in forged.items()
            }
            for path in ("", "/a/claude"):
                address = f"{base}/t/{intruder.token}{path}"
                other = Agent("anthropic", address, headers=headers)
                other.say(f"the intruder was here {path}")
                other.ask()
                copies = Agent("anthropic", address, headers=headers, units=list(agent.units))
                copies.say("the intruder goes on here")
                copies.ask()
    rows = conversations_of(tmp_path, "Connected agents")
    own = [row for row in rows if row.agent == "Claude Code"]
    assert [(row.id, row.said) for row in own] == [(conversation, "the work\nmore of it")]
    assert {(row.agent, row.parent == conversation) for row in rows if row not in own} == {
        ("Codex", False)
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_registrations_name_is_the_agents_name_whatever_a_request_says(
    tmp_path: Path, protocol: str
) -> None:
    with Provider(lambda _: [Says("fine")]) as provider:
        registered = GatewayRegistration("token-of-codex", provider.url, agent="codex")
        with running(tmp_path, provider.url, others=[registered]) as url:
            base = url.rpartition("/t/")[0]
            headers = {"x-helix-agent": "claude", "user-agent": "opencode/1.0"}
            agent = Agent(protocol, f"{base}/a/pi/t/token-of-codex/a/gemini", headers=headers)
            agent.say("hello")
            agent.ask()
    assert [row.agent for row in conversations_of(tmp_path, "Connected agents")] == ["Codex"]
