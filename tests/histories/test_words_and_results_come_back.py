"""Every word of a user and every complete result is in the next request, here and at each agent
that the conversation is given to, whatever was compacted and in whatever order results came.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Recorded, Stored, ToolReturned
from helix_desktop.engine.messages import Image, Message, ToolResult
from helix_desktop.engine.request_building import INTERRUPTED, build_legal_messages
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.histories import conversation_restoring as restoring
from helix_desktop.histories.conversation_restoring import RestoreRequest
from helix_desktop.histories.openai_chat_export import ReadContent
from tests.histories import made_up_sessions
from tests.histories.made_up_sessions import MadeUpSession, Said
from tests.histories.test_conversation_restoring import imported, main_session, read_back

TRIALS = 12


def make_up(kind: str, trial: int, folder: Path) -> tuple[MadeUpSession, Path]:
    chance = random.Random(f"{kind} {trial}")
    anywhere = kind not in made_up_sessions.RESULTS_WITH_CALLS
    session = made_up_sessions.make_up_session(
        chance, results_anywhere=anywhere, keeps_turns=kind != "codex"
    )
    return session, made_up_sessions.WRITERS[kind](folder, session)


def next_request(facts: list[Recorded], read_content: ReadContent) -> tuple[Message, ...]:
    def resolve(stored: Stored) -> str | Image:
        return (read_content(stored.digest) or b"").decode()

    return build_legal_messages(build_state(facts).get_view(), resolve).messages


@pytest.mark.parametrize("kind", sorted(made_up_sessions.WRITERS))
def test_in_our_own_next_request(kind: str, tmp_path: Path) -> None:
    for trial in range(TRIALS):
        session, path = make_up(kind, trial, tmp_path / str(trial))
        facts, read_content = imported(main_session(path))
        messages = next_request(facts, read_content)
        request = str(messages)
        for words in session.shown:
            assert repr(words)[1:-1] in request, (trial, words)
        answered = [part for one in messages for part in one.parts if isinstance(part, ToolResult)]
        interrupted = [one.call for one in answered if one.text == INTERRUPTED]
        assert not set(interrupted) & set(session.results), trial
        kept = {one.fact.output.digest for one in facts if isinstance(one.fact, ToolReturned)}
        for text in session.results.values():
            assert Digest.of_content(text.encode()) in kept, (trial, text)


@pytest.mark.parametrize("agent", sorted(restoring.FORMATS))
@pytest.mark.parametrize("kind", sorted(made_up_sessions.WRITERS))
def test_at_each_agent(kind: str, agent: str, tmp_path: Path) -> None:
    for trial in range(TRIALS // 3):
        session, path = make_up(kind, trial, tmp_path / str(trial))
        facts, content = imported(main_session(path))
        path.unlink()
        restored = restoring.build_restored_session(
            facts, content, RestoreRequest("c", agent, "/home/me/project")
        )
        sent = "\n".join(restored.texts)
        for words in session.shown:
            assert words in sent, (trial, words)
        assert session.has_unanswered_calls or INTERRUPTED not in sent
        again = read_back(restored, tmp_path / str(trial))
        whole = "\n".join(one.text for one in again.messages)
        for event in session.events:
            if isinstance(event, Said) or (event.text and hasattr(event, "call")):
                assert event.text.strip() in whole, (trial, event)
        if kind == "codex" and again.compactions:
            for event in session.events:
                assert not isinstance(event, Said) or event.text in sent, "Codex keeps them all"
