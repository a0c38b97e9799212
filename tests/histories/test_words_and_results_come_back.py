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
from tests.histories.made_up_sessions import MadeUpSession, Returned, Said
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
        missing = [words for words in session.shown if repr(words)[1:-1] not in request]
        assert missing == [], trial
        interrupted: set[str] = set()
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolResult) and part.text == INTERRUPTED:
                    interrupted.add(part.call)
        assert interrupted.isdisjoint(session.results), trial
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
        request = RestoreRequest("c", agent, "/home/me/project")
        restored = restoring.build_restored_session(facts, content, request)
        sent = "\n".join(restored.texts)
        missing = [words for words in session.shown if words not in sent]
        assert missing == [], trial
        assert session.has_unanswered_calls or INTERRUPTED not in sent
        again = read_back(restored, tmp_path / str(trial))
        whole = "\n".join(message.text for message in again.messages)
        lost = [text for text in texts_that_stay(session) if text.strip() not in whole]
        assert lost == [], trial
        if kind == "codex" and again.compactions:  # Codex keeps all that its user said.
            said = [event.text for event in session.events if isinstance(event, Said)]
            assert [text for text in said if text not in sent] == [], trial


def texts_that_stay(session: MadeUpSession) -> list[str]:
    """The user's words and the results of calls, which no writing leaves out."""
    texts: list[str] = []
    for event in session.events:
        if isinstance(event, Said | Returned):
            texts.append(event.text)
    return [text for text in texts if text]
