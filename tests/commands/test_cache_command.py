"""`cache verify` from the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.engine.facts import Stored, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from tests.commands.conftest import Helix

SHORT = b"a short output"
LONG = b"a long output " * 500


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace whose cache lost the chunks of two outputs."""
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    known = workspaces.create_stored_workspace("Work", tmp_path)

    async def fill() -> None:
        opened = await workspaces.open_stored_workspace(known.id)
        await opened.journal.append_to_journal("c", [UserSaid((Text("build the thing"),))])
        for content in (SHORT, LONG):
            stored: Stored = await opened.cache.store_content(content, EntryOrigin("shell", "make"))
            returned = ToolReturned("1", stored, 1, head=content.decode()[:2000])
            await opened.journal.append_to_journal("c", [returned])
        cache = opened._stores.cache
        for content in (SHORT, LONG):
            staged = cache.find_known_content(Digest.of_content(content))
            assert staged is not None
            await opened._stores.thread.run_work(cache.delete_chunks, staged.record.blob)
        await opened._stores.thread.run_work(cache.level.scrub_database_files)
        await opened.aclose()

    asyncio.run(fill())
    return known.folder


def test_a_repair_looks_into_the_histories_of_other_programs(
    helix: Helix, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tmp_path / "claude" / "projects" / "here" / "session.jsonl"
    session.parent.mkdir(parents=True)
    line = {"message": {"content": [{"type": "tool_result", "content": LONG.decode()}]}}
    session.write_text(f"{json.dumps(line)}\nno JSON\n")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    code, printed, _ = helix("cache", "verify", "--workspace", "Work", "--repair", "--json")
    assert code == 0
    repairs = json.loads(printed)["repairs"]
    assert "Cache entries restored from the histories of other programs: 1." in repairs


def test_a_repair_restores_what_the_journal_has_and_names_what_is_lost(
    helix: Helix, workspace: Path
) -> None:
    code, printed, _ = helix("cache", "verify", "--workspace", "Work", "--json")
    assert code == 1
    assert len(json.loads(printed)["damaged"]) == 2
    code, printed, _ = helix("cache", "verify", "--workspace", "Work", "--repair", "--json")
    assert code == 1
    figures = json.loads(printed)
    assert len(figures["damaged"]) == 1
    assert "Cache entries restored from the journal: 1." in figures["repairs"]
    assert figures["repairs"][-1].endswith("used in: build the thing.")
    _, printed, _ = helix("cache", "verify", "--workspace", "Work")
    assert "it was lost when the cache was damaged" in printed


def test_entries_are_listed_newest_first_and_as_many_as_wanted(
    helix: Helix, workspace: Path
) -> None:
    code, printed, _ = helix("cache", "list", "--workspace", "Work", "--json")
    assert code == 0
    entries = json.loads(printed)
    assert [entry["size"] for entry in entries] == [len(LONG), len(SHORT)]
    _, printed, _ = helix("cache", "list", "--workspace", "Work", "--json", "--limit", "1")
    assert len(json.loads(printed)) == 1
    _, printed, _ = helix("cache", "list", "--workspace", "Work", "--json", "--tool", "other")
    assert json.loads(printed) == []


def test_a_name_from_elsewhere_adds_no_line_to_a_list(helix: Helix, tmp_path: Path) -> None:
    """A tool of a connected agent may be called anything, also like another line of the list."""
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    known = workspaces.create_stored_workspace("Names", tmp_path)

    async def fill() -> None:
        opened = await workspaces.open_stored_workspace(known.id)
        origin = EntryOrigin("Bash\r\n0123456789abcdef  1  1  forged", "a\nb")
        stored = await opened.cache.store_content(SHORT, origin)
        returned = ToolReturned("1", stored, 1, head=SHORT.decode())
        await opened.journal.append_to_journal("c", [UserSaid((Text("x"),)), returned])
        await opened.aclose()

    asyncio.run(fill())
    _, printed, _ = helix("cache", "list", "--workspace", "Names")
    (line,) = printed.splitlines()
    assert line.endswith("Bash 0123456789abcdef 1 1 forged a b")
    _, printed, _ = helix("cache", "search", "output", "--workspace", "Names")
    assert "\n0123" not in printed
