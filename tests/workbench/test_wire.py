"""What the model saw: at each step it is, byte for byte, what the provider's server was sent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import (
    Attachment,
    Folded,
    FoldKind,
    ModelReplied,
    Text,
    UserSaid,
)
from helix_desktop.engine.session import Session
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
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


def all_strings(value: object) -> list[str]:
    """Every text anywhere in a body."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for each in value for text in all_strings(each)]
    return []


async def attach_text(bench: Workbench, name: str, tokens: int) -> Attachment:
    """A text of about so many tokens, with lines that stand nowhere else."""
    lines: list[str] = []
    while len(lines) * 17 < tokens:
        lines.append(f"{name}, line {len(lines)}: book {len(lines) * 7919 % 1000} is late\n")
    return await bench.attach_content(name, "".join(lines).encode(), "text/plain")


async def check_attachment_is_sent_as_told(
    bench: Workbench, session: Session, server: Peer, attachment: Attachment
) -> int:
    """Send it. What was told before, what is recorded and what the server got must agree."""
    said_before = len(session.all_facts)
    bodies_before = len(server.bodies)
    told = await bench.count_sent_tokens(attachment, session.id)
    session.send_message((attachment,))
    await asyncio.wait_for(session.wait_until_idle(), 60)
    new_facts = [each.fact for each in session.all_facts[said_before:]]
    (message,) = [fact for fact in new_facts if isinstance(fact, UserSaid) and not fact.by]
    excerpts = [
        fact.tokens
        for fact in new_facts
        if isinstance(fact, Folded) and fact.kind is FoldKind.EXCERPT
    ]
    recorded = excerpts[0] if excerpts else message.parts[0].tokens
    # A summary may be written beside the step, from the same texts.
    sent = [
        text for text in all_strings(server.bodies[bodies_before:]) if f"{attachment.name}]" in text
    ]
    assert told == recorded
    # The heading of a whole attachment has a few tokens of its own.
    assert abs(bench.token_counter.count_tokens(sent[0]) - told) <= 16
    return told


@pytest.mark.parametrize(
    ("window", "kind"),
    [
        *itertools.product([8_192, 32_000], PROTOCOLS),
        # In a large window, what is sent depends on the size alone: one protocol shows it.
        (200_000, "anthropic"),
    ],
)
async def test_of_an_attachment_so_many_tokens_are_sent_as_the_composer_told(
    kind: str, window: int, tmp_path: Path
) -> None:
    peer, reply, _thinking = PROTOCOLS[kind]
    (tmp_path / "project").mkdir()
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(
        where, SecretStorage(where.key_file, environ={"A_KEY": "k"}), clock=ClockWithoutPauses()
    )
    # One that stays whole beside others, and one that is too large, in this window alone.
    fitting_tokens = window // 5
    large_tokens = window * 3 // 4
    model = "claude-scripted" if kind == "anthropic" else "scripted"
    with peer([reply(f"Answer {number}.") for number in range(40)]) as server:
        desk.configured.save_provider(
            ProviderConfig("peer", kind, base_url=server.base_url, variable="A_KEY")
        )
        desk.configured.correct_model("peer", model, {"window": window})
        desk.configured.correct_model("peer", f"{model}-large", {"window": 1_000_000})
        bench = await desk.create_workspace("Seen", tmp_path / "project")
        await bench.choose_model_for_role(f"peer/{model}")
        for tokens in (fitting_tokens, large_tokens):
            session = await bench.start_conversation()
            for number in range(1, 11):
                if number not in (1, 2, 10):
                    await said(session, f"message {number}")
                    continue
                attachment = await attach_text(bench, f"note-{tokens}-{number}.txt", tokens)
                await check_attachment_is_sent_as_told(bench, session, server, attachment)
            # Another model, of which nothing is recorded before the next message.
            await bench.save_conversation_model(session.id, f"peer/{model}-large")
            whole = await attach_text(bench, f"whole-{tokens}.txt", large_tokens)
            sent = await check_attachment_is_sent_as_told(bench, session, server, whole)
            assert sent == whole.tokens
            await bench.save_conversation_model(session.id, "")
            large = await attach_text(bench, f"large-{tokens}.txt", large_tokens)
            sent = await check_attachment_is_sent_as_told(bench, session, server, large)
            assert sent < large.tokens
        await desk.aclose()
