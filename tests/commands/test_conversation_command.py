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


def test_the_difference_between_two_moments(helix: Helix, workspace: str) -> None:
    code, out, _ = helix("conversation", "difference", "-w", "Work", "abc", 3)
    assert code == 0
    came_in, total = out.splitlines()[0], out.splitlines()[-1]
    assert came_in.startswith("took another form")
    assert "handover-1 [2–3] what was done" in came_in
    assert total == "108 tokens at 3, 33 at 5: -75"
    _, out, _ = helix("conversation", "difference", "-w", "Work", "abc-1", 3, 4, "--json")
    assert [(change["how"], change["tokens"]) for change in json.loads(out)["changes"]] == [("came", 5)]


@pytest.mark.parametrize("arguments", [("ab", 1), ("zz", 1), ("abc", 99), ("abc", 1, -1)])
def test_what_is_not_there_is_a_sentence(helix: Helix, workspace: str, arguments: tuple[object, ...]) -> None:
    code, out, err = helix("conversation", "difference", "-w", "Work", *arguments)
    assert code in (1, 2)
    assert (out, bool(err.strip())) == ("", True)
