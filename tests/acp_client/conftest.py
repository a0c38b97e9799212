"""A desk on which the scripted agent is set up, and turns in conversations with it."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Fact, ModelReplied, Text, ToolCall, ToolReturned, TurnEnded
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.program_settings import ACP_AGENTS, ProgramSettings
from helix_desktop.workbench import Workbench
from tests.workbench.conftest import Desks, desks, folder

__all__ = ["desks", "folder"]
SCRIPT = Path(__file__).with_name("scripted_agent.py")
ASKED: list[PermissionQuestion] = []  # in the last turn


@pytest.fixture
def state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the agent's sessions were told."""
    file = tmp_path / "state.jsonl"
    monkeypatch.setenv("SCRIPTED_STATE", str(file))
    return file


@pytest.fixture
async def bench(desks: Desks, folder: Path, tmp_path: Path) -> Workbench:
    set_up_agents(tmp_path)
    return await desks().create_workspace("w", folder)


def set_up_agents(tmp_path: Path) -> None:
    words = f"{sys.executable} {shlex.quote(str(SCRIPT))}"
    lines = [
        f"Script{option.title().replace('-', '')} = {words} {option}"
        for option in (
            "",
            "no-load",
            "mute",
            "needs-login",
            "no-images",
            "says-resume",
            "spoils-loaded",
            "routed",
        )
    ]
    places = program_folders.find_program_folders(tmp_path / "home")
    places.settings_file.parent.mkdir(parents=True, exist_ok=True)
    ProgramSettings(places.settings_file).change_setting(ACP_AGENTS, "\n".join(lines))


async def run_turn(
    session: Session, text: str, answer: PermissionAnswer | None = None
) -> TurnEnded:
    """Sends a message and waits for the end of its turn; questions are answered so, or refused."""
    asked: list[PermissionQuestion] = []

    def hear(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            asked.append(event.question)
            asyncio.get_running_loop().call_soon(
                session.answer_question, event.number, answer or PermissionAnswer(allowed=False)
            )

    unsubscribe = session.subscribe_to_events(hear)
    session.send_message((Text(text),))
    await asyncio.wait_for(session.wait_until_idle(), 60)
    unsubscribe()
    assert session.turns.last_end is not None
    ASKED[:] = asked
    return session.turns.last_end


def facts_of(session: Session, kind: type[Any]) -> list[Any]:
    return [each.fact for each in session.all_facts if isinstance(each.fact, kind)]


def said(session: Session) -> str:
    """All that the agent has said."""
    return "".join(
        part.text
        for reply in facts_of(session, ModelReplied)
        for part in reply.parts
        if isinstance(part, Text)
    )


def outputs(session: Session) -> list[str]:
    return [fact.head for fact in facts_of(session, ToolReturned)]


def calls(session: Session) -> list[ToolCall]:
    return [
        part
        for reply in facts_of(session, ModelReplied)
        for part in reply.parts
        if isinstance(part, ToolCall)
    ]


__all__ += ["Fact"]
