"""`forget` from the command line."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from helix_desktop import places
from helix_desktop.commands import open_workspace
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import About
from tests.commands.conftest import Helix

SECRET = "the-old-password-77"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace whose only conversation and one entry hold the secret."""
    workspaces = open_workspace.all_of(places.find())
    known = workspaces.create("Work", tmp_path)

    async def fill() -> None:
        opened = await workspaces.open(known.id)
        await opened.cache.put(f"login {SECRET}".encode(), About("shell"))
        await opened.journal.append("c1", [UserSaid((Text(f"it is {SECRET}", 3),))])
        await opened.aclose()

    asyncio.run(fill())
    return known.folder


def holding(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_text_goes_from_entries_and_conversations(
    helix: Helix, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert holding(workspace)
    assert helix("forget", "-w", "Work", "--text", SECRET)[0] == 2
    assert holding(workspace)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{SECRET}\n".encode())))
    code, out, err = helix("forget", "-w", "Work", "--text", "-", "--yes")
    assert (code, err) == (0, "")
    assert out.startswith("Forgotten: 1 entries; 1 facts in 1 conversations and ")
    assert holding(workspace) == []
    assert helix("forget", "-w", "Work", "--text", SECRET, "--yes")[0] == 1


def test_what_the_window_remembers_is_named(helix: Helix, workspace: Path) -> None:
    window = places.find().window
    window.parent.mkdir(parents=True, exist_ok=True)
    window.write_text(json.dumps({"history/other": [f"say {SECRET}"]}))
    code, _, err = helix("forget", "-w", "Work", "--text", SECRET, "--yes")
    assert code == 1, "it is not gone from everywhere"
    assert f"The text is also in {window}" in err
    assert SECRET not in err


def test_an_entry_goes_by_its_hash(helix: Helix, workspace: Path) -> None:
    _, listed, _ = helix("cache", "list", "-w", "Work")
    code, out, err = helix("forget", "-w", "Work", listed.split()[0], "--yes", "--json")
    assert (code, err) == (0, "")  # nothing about what the window remembers: no text was given
    assert '"entries": [' in out
    code, _, err = helix("cache", "get", "-w", "Work", listed.split()[0])
    assert code == 1
    assert err


@pytest.mark.parametrize("arguments", [(), ("--yes",), ("ffff0000", "--yes"), ("--text", "abc", "--yes")])
def test_what_cannot_be_is_a_sentence(helix: Helix, workspace: Path, arguments: tuple[str, ...]) -> None:
    code, out, err = helix("forget", "-w", "Work", *arguments)
    assert code in (1, 2)
    assert out == ""
    assert err.strip()


def test_an_empty_input_is_nothing_to_forget(helix: Helix, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert helix("forget", "-w", "Work", "--text", "-", "--yes") == (
        2,
        "",
        "There is nothing to forget: standard input was empty.\n",
    )
