"""`forget` from the command line."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.resident import schedules
from helix_desktop.store.journal_file import JournalFile
from tests.commands.conftest import NOT_CONFIRMED, Helix

SECRET = "the-old-password-77"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace whose only conversation and one entry hold the secret."""
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    known = workspaces.create_stored_workspace("Work", tmp_path)

    async def fill() -> None:
        opened = await workspaces.open_stored_workspace(known.id)
        await opened.cache.store_content(f"login {SECRET}".encode(), EntryOrigin("shell"))
        await opened.journal.append_to_journal("c1", [UserSaid((Text(f"it is {SECRET}", 3),))])
        await opened.aclose()

    asyncio.run(fill())
    return known.folder


def holding(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def test_a_text_goes_from_entries_and_conversations(
    helix: Helix, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert holding(workspace)
    assert helix("forget", "-w", "Work", "--text", SECRET)[0] == 1
    assert holding(workspace)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{SECRET}\n".encode())))
    code, out, err = helix("forget", "-w", "Work", "--text", "-", "--yes")
    assert (code, err) == (0, "")
    assert out.startswith("Removed 1 entry. Changed 1 fact in 1 conversation, and ")
    assert holding(workspace) == []
    assert helix("forget", "-w", "Work", "--text", SECRET, "--yes")[0] == 1


@pytest.mark.parametrize(
    "name", ["c1.json", ".c1.json-0123abcd", "c1.queue", "c1.queue-new", "c1.queue-damaged"]
)
def test_what_a_killed_window_left_does_not_bring_a_text_back(
    helix: Helix, workspace: Path, name: str
) -> None:
    left_file = workspace / "partial" / name
    left_file.parent.mkdir(exist_ok=True)
    left_file.write_text(json.dumps({"after": 1, "text": f"it is {SECRET}"}))
    other_reply = workspace / "partial" / "c2.json"
    other_reply.write_text(json.dumps({"after": 1, "text": "nothing to hide"}))
    code, _, err = helix("forget", "-w", "Work", "--text", SECRET, "--yes")
    assert (code, err) == (0, "")
    assert holding(workspace) == []
    assert other_reply.exists()


@pytest.mark.parametrize(
    "place",
    ["partial/c1.json", "partial/c1.queue-damaged", "partial/1.denial", "damaged/c", "copy"],
)
def test_what_is_only_in_texts_that_are_not_recorded_counts_as_removed(
    helix: Helix, workspace: Path, place: str
) -> None:
    """It was removed, but the command said that nothing contained it, and returned 1."""
    left_file = workspace / place
    if place == "copy":
        data = program_folders.find_program_folders().data
        left_file = data / "recorder" / "1.failed" / "s.jsonl"
    left_file.parent.mkdir(exist_ok=True, parents=True)
    left_file.write_text(json.dumps({"after": 1, "words": "only-here-4711", "device": ""}))
    code, out, err = helix("forget", "-w", "Work", "--text", "only-here-4711", "--yes")
    assert (code, err) == (0, "")
    assert "Also removed from 1 other place, such as a waiting message or a description." in out
    assert helix("forget", "-w", "Work", "--text", "only-here-4711", "--yes")[:2] == (
        1,
        "Nothing in this workspace contains what you want to remove.\n",
    )


def test_what_is_only_in_backups_counts_as_removed(helix: Helix, workspace: Path) -> None:
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())

    async def back_up_what_is_lost_then() -> None:
        opened = await workspaces.open_stored_workspace(workspace.name)
        await opened.journal.append_to_journal("c2", [UserSaid((Text("only-here-4711", 3),))])
        await opened.back_up_now()
        await opened.aclose()

    asyncio.run(back_up_what_is_lost_then())
    with closing(JournalFile(workspace / "journal.sqlite3")) as journal:
        journal.delete_conversation("c2")
    code, out, err = helix("forget", "-w", "Work", "--text", "only-here-4711", "--yes")
    assert (code, err) == (0, "")
    assert out.startswith("Removed 0 entries. Changed 0 facts in 0 conversations, and 1 backup.")


def test_the_words_of_a_denial_lose_the_text_and_the_call_stays_denied(
    helix: Helix, workspace: Path
) -> None:
    denial = workspace / "partial" / "0123.denial"
    denial.parent.mkdir(exist_ok=True)
    denial.write_text(json.dumps({"words": f"no, it is {SECRET}", "device": "phone"}))
    damaged_denial = workspace / "partial" / "4567.denial"
    damaged_denial.write_text(f'{{"words": "{SECRET}')
    code, _, err = helix("forget", "-w", "Work", "--text", SECRET, "--yes")
    assert (code, err) == (0, "")
    assert holding(workspace) == []
    assert json.loads(denial.read_text()) == {"words": "no, it is [forgotten]", "device": "phone"}
    assert not damaged_denial.exists()


def test_what_the_window_remembers_is_named(helix: Helix, workspace: Path) -> None:
    window = program_folders.find_program_folders().window_state_path
    window.parent.mkdir(parents=True, exist_ok=True)
    window.write_text(json.dumps({"history/other": [f"say {SECRET}"]}))
    code, _, err = helix("forget", "-w", "Work", "--text", SECRET, "--yes")
    assert code == 1, "it is not gone from everywhere"
    assert f"The text is also in {window}" in err
    assert SECRET not in err


def test_what_would_bring_a_text_back_is_named(helix: Helix, workspace: Path) -> None:
    places = program_folders.find_program_folders()
    waiting = places.data / "recorder" / "20261129" / "s.jsonl"
    waiting.parent.mkdir(parents=True)
    waiting.write_text(json.dumps({"content": SECRET}))
    failed = places.data / "recorder" / "20261128.failed" / "s.jsonl"
    failed.parent.mkdir()
    failed.write_text(SECRET)
    schedule = schedules.build_schedule("Work", f"use {SECRET}", "08:00", "UTC", schedules.WEEKDAYS)
    schedules.write_schedules(places.data, [schedule])
    code, _, err = helix("forget", "-w", "Work", "--text", SECRET, "--yes")
    assert code == 1, "it is not gone from everywhere"
    assert f"The text is also in {waiting}, which was recorded" in err
    assert f"use `helix-desktop schedule remove {schedule.id}`" in err
    assert err.count("\n") == 2
    assert not failed.exists()


def test_an_entry_goes_by_its_hash(helix: Helix, workspace: Path) -> None:
    _, listed, _ = helix("cache", "list", "-w", "Work")
    code, out, err = helix("forget", "-w", "Work", listed.split()[0], "--yes", "--json")
    assert (code, err) == (0, "")  # nothing about what the window remembers: no text was given
    assert '"entries": [' in out
    code, _, err = helix("cache", "get", "-w", "Work", listed.split()[0])
    assert code == 1
    assert err


@pytest.mark.parametrize(
    "arguments", [(), ("--yes",), ("ffff0000", "--yes"), ("--text", "abc", "--yes")]
)
def test_what_cannot_be_is_a_sentence(
    helix: Helix, workspace: Path, arguments: tuple[str, ...]
) -> None:
    code, out, err = helix("forget", "-w", "Work", *arguments)
    assert code in (1, 2)
    assert out == ""
    assert err.strip()


def test_an_empty_input_is_nothing_to_forget(
    helix: Helix, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert helix("forget", "-w", "Work", "--text", "-", "--yes") == (
        2,
        "",
        "There is nothing to remove: standard input was empty.\n",
    )


def test_what_would_go_is_said_first(helix: Helix, workspace: Path) -> None:
    code, out, err = helix("forget", "-w", "Work", "--text", SECRET)
    assert (code, err) == (1, NOT_CONFIRMED)
    assert (
        out
        == "This would remove 1 entry (26 bytes), and change 1 fact in 1 conversation, backups, and messages and replies that are not recorded yet.\n"
    )
    code, out, _ = helix("forget", "-w", "Work", "--text", SECRET, "--json")
    would = json.loads(out)["would_remove"]
    assert (code, would["bytes"], would["facts"], would["conversations"]) == (1, 26, 1, ["c1"])
    assert "remove 0 entries (0 bytes)" in helix("forget", "-w", "Work", "--text", "not there")[1]
    assert holding(workspace)
