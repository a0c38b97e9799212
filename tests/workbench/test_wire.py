"""What the model saw: at each step it is, byte for byte, what the provider's server was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Folded, FoldKind, ModelReplied, Text
from helix_desktop.engine.session import Session
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.peers import anthropic_server, chat_server, gemini_server, responses_server
from tests.peers.anthropic_server import AnthropicServer
from tests.peers.chat_server import ChatServer
from tests.peers.gemini_server import GeminiServer
from tests.peers.peer import Answer, Peer
from tests.peers.responses_server import ResponsesServer
from tests.scripted_tour import ClockWithoutPauses

PROTOCOLS: dict[str, tuple[type[Peer], Callable[..., Answer], dict[str, Any]]] = {
    "openai-chat": (ChatServer, chat_server.reply, {"reasoning": "Let me think."}),
    "openai-responses": (ResponsesServer, responses_server.reply, {}),
    "anthropic": (AnthropicServer, anthropic_server.reply, {"thinking": "Let me think."}),
    "gemini": (
        GeminiServer,
        gemini_server.reply,
        {"thought": "Let me think.", "signature": "s1gned"},
    ),
}
EFFORTS = {
    "openai-chat": "effort",
    "openai-responses": "effort",
    "anthropic": "adaptive",
    "gemini": "level",
}
LONG = "\n".join(
    f"line {number} of a file that is long enough to be worth a marker" for number in range(600)
)


async def said(session: Session, words: str) -> None:
    session.send_message((Text(words),))
    await asyncio.wait_for(session.wait_until_idle(), 60)


@pytest.mark.parametrize("kind", PROTOCOLS)
async def test_the_request_of_each_step_is_what_was_sent(kind: str, tmp_path: Path) -> None:
    peer, reply, thinking = PROTOCOLS[kind]
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "long.txt").write_text(LONG)
    script = [
        reply("I read it.", calls=[("read_file", {"path": "long.txt"})], **thinking),
        *(reply(f"Answer {number}.") for number in range(5)),
    ]
    where = program_folders.find_program_folders(tmp_path / "home")

    def desk() -> Workbenches:
        return Workbenches(
            where, SecretStorage(where.key_file, environ={"A_KEY": "k"}), clock=ClockWithoutPauses()
        )

    with peer(script) as server:
        first = desk()
        first.configured.save_provider(
            ProviderConfig("peer", kind, base_url=server.base_url, variable="A_KEY")
        )
        first.configured.correct_model(
            "peer", "scripted", {"reasoning": EFFORTS[kind], "max_output": 64_000}
        )
        bench = await first.create_workspace("Seen", tmp_path / "project")
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_conversation()
        await said(session, "read long.txt")
        await bench.change_settings({"effort": "high", "temperature": 0.3, "top_p": 0.8})
        await said(session, "and then?")
        assert ["high" in str(body) for body in server.bodies] == [False, False, True]
        await session.fold_on_request(FoldKind.MARKER)
        await said(session, "and after the fold?")
        assert LONG[:1_000] not in str(server.bodies[-1])
        folds = [each.fact for each in session.all_facts if isinstance(each.fact, Folded)]
        assert FoldKind.MARKER in {fold.kind for fold in folds}
        for fold in folds:
            await session.folding.unfold(fold.fold)
        await said(session, "and after the undo?")
        await first.aclose()
        second = desk()
        opened = await second.open_workspace(bench.id)
        again = await opened.open_session(session.id)
        await said(again, "and after a restart?")
        replies = [each.seq for each in again.all_facts if isinstance(each.fact, ModelReplied)]
        assert len(replies) == len(server.bodies) == 6
        for seq, body in zip(replies, server.bodies, strict=True):
            request = await again.context.rebuild_request(seq)
            assert again.context.matches_sent_request(seq, request)
            assert await opened.request_as_sent(session.id, seq, request) == ("peer/scripted", body)
        await second.aclose()
