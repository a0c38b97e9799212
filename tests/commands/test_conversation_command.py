"""`conversation` from the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.engine.facts import ConversationStarted, Folded, FoldKind, ModelReplied, Span, Stop, Text, UserSaid
from tests.commands.conftest import Helix


@pytest.fixture
def workspace(tmp_path: Path) -> str:
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    known = workspaces.create_stored_workspace("Work", tmp_path)

    async def fill() -> None:
        opened = await workspaces.open_stored_workspace(known.id)
        said = UserSaid((Text("please look", 40),))
        answer = ModelReplied((Text("I looked at all of it", 60),), "m", Stop.END)
        again = UserSaid((Text("and now?", 5),))
        folded = Folded("handover-1", FoldKind.HANDOVER, Span(2, 3), "what was done", 20, 100)
        await opened.journal.append_to_journal("abc-1", [ConversationStarted("Looking"), said, answer, again, folded])
        await opened.journal.append_to_journal("abd-2", [ConversationStarted("Other")])
        await opened.aclose()

    asyncio.run(fill())
    return known.id


def test_conversations_are_listed(helix: Helix, workspace: str) -> None:
    _, out, _ = helix("conversation", "list", "-w", "Work")
    assert {line.split()[0]: line.split()[-1] for line in out.splitlines()} == {"abc-1": "Looking", "abd-2": "Other"}
    _, out, _ = helix("conversation", "list", "-w", "Work", "--json")
    assert {row["title"] for row in json.loads(out)} == {"Looking", "Other"}


@pytest.mark.parametrize("begins", ["ab", "zz"])
def test_what_is_not_there_is_a_sentence(helix: Helix, workspace: str, begins: str) -> None:
    code, out, err = helix("conversation", "export", "-w", "Work", begins)
    assert code in (1, 2)
    assert (out, bool(err.strip())) == ("", True)
