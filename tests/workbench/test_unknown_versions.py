"""Histories of a version that nobody has seen: what is known of them is read, the rest
is kept as bytes, and both are said.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import BroughtIn, Fact, ToolReturned
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.workbench.history_imports import HistoryImport
from tests.histories import written
from tests.texts_and_calls import reply_texts, user_texts

RECORD = {
    "type": "novelty",
    "id": "n1",
    "uuid": "n1",
    "role": "novelty",
    "data": "UNKNOWN-RECORD ä数",
}
PART = {"type": "hologram", "data": "UNKNOWN-PART ä数"}


class Words:
    def count_tokens(self, text: str) -> int:
        return len(text.split())


def changed_lines(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """The file with another version, an unknown part in its last reply, and an unknown
    record behind it.
    """
    values = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(values)
    return written.lines(path, [*values, {**RECORD, "parentUuid": values[-1].get("uuid"), "parentId": values[-1].get("id")}])  # fmt: skip


def claude(folder: Path) -> Path:
    def change(values: list[dict[str, Any]]) -> None:
        for value in values:
            value["version"] = "99.7.0"
        values[-1]["message"]["content"] = [*values[-1]["message"]["content"], PART]

    return changed_lines(written.claude(folder), change)


def codex(folder: Path) -> Path:
    def change(values: list[dict[str, Any]]) -> None:
        values[0]["payload"]["cli_version"] = "99.7.0"
        values[-1]["payload"]["content"].append(PART)

    return changed_lines(written.codex(folder), change)


def pi(folder: Path) -> Path:
    def change(values: list[dict[str, Any]]) -> None:
        values[0]["version"] = 99
        values[-1]["message"]["content"].append(PART)

    return changed_lines(written.pi(folder), change)


def gemini(folder: Path) -> Path:
    def change(values: list[dict[str, Any]]) -> None:
        values[0]["version"] = "99.7.0"
        values[-1]["content"] = [{"text": "Again."}, {"hologram": PART["data"]}]
        values.append({"type": "novelty", "data": "UNKNOWN-RECORD without an id"})

    return changed_lines(written.gemini(folder), change)


def older_gemini(folder: Path) -> Path:
    """One JSON document, as before the lines."""
    path = gemini(folder)
    head, *messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    path.unlink()
    document = path.with_suffix(".json")
    document.write_text(
        json.dumps(
            {**head, "messages": [one for one in messages if "id" in one]}, ensure_ascii=False
        )
    )
    return document


def cline(folder: Path) -> Path:
    path = written.cline(folder)
    values = json.loads(path.read_text("utf-8"))
    values[-1]["content"].append(PART)
    path.write_text(json.dumps([*values, RECORD]), "utf-8")
    about = {"environment_history": [{"cline_version": "99.7.0"}]}
    path.with_name("task_metadata.json").write_text(json.dumps(about))
    return path


def opencode(folder: Path) -> Path:
    path = written.opencode(folder)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("UPDATE session SET version = '99.7.0'")
        made.execute("ALTER TABLE message ADD COLUMN novelty")
        made.execute("CREATE TABLE novelty(id)")
        made.execute("INSERT INTO part VALUES('m5-9', 'm5', 'ses_1', ?)", (json.dumps(PART),))
        made.execute("INSERT INTO message(id, session_id, time_created, data) VALUES('m9', 'ses_1', 9e12, ?)", (json.dumps(RECORD),))  # fmt: skip
        made.execute("INSERT INTO part VALUES('m9-1', 'm9', 'ses_1', ?)", (json.dumps({"type": "text", "text": "UNKNOWN-WORDS"}),))  # fmt: skip
        made.execute("INSERT INTO part VALUES('m5-8', 'm5', 'ses_1', 'UNKNOWN-FORM <xml/>')")
    return path


def goose(folder: Path) -> Path:
    path = written.goose(folder)
    insert = "INSERT INTO messages(session_id, role, content_json, created_timestamp, metadata_json) VALUES('g1', ?, ?, ?, '{}')"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("ALTER TABLE messages ADD COLUMN novelty")
        made.execute(
            insert,
            ("assistant", json.dumps([{"type": "text", "text": "And more."}, PART]), 1_767_323_090),
        )
        made.execute(
            insert, ("user", json.dumps([PART | {"data": "UNKNOWN-WORDS"}]), 1_767_323_091)
        )
        made.execute(insert, ("novelty", json.dumps([RECORD]), 1_767_323_092))
    return path


@pytest.mark.parametrize(
    "history", [claude, codex, opencode, gemini, older_gemini, pi, cline, goose]
)
async def test_what_is_known_is_read_the_rest_is_kept_and_said(
    history: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = history(tmp_path / "home")
    before = path.read_bytes()
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    workspace = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("w", tmp_path).id
    )
    result = await HistoryImport(workspace, Words()).import_files([path])
    (imported,) = result.imported
    facts = [one.fact for one in await workspace.journal.read_facts(imported.id)]
    _what_is_known_was_read(facts)
    (brought,) = [fact for fact in facts if isinstance(fact, BroughtIn)]
    assert brought.unread is not None
    kept = (await workspace.cache.read_content(brought.unread.digest)).decode("utf-8")
    _what_is_unknown_was_kept(
        before.decode("utf-8", "replace"), kept, by_lines=path.suffix == ".jsonl"
    )
    sentences = " ".join(result.complaints)
    assert "novelty" in sentences
    assert "hologram" in sentences
    assert path.read_bytes() == before
    await workspace.aclose()


def _what_is_known_was_read(facts: Sequence[Fact]) -> None:
    assert "list the files" in user_texts(facts)
    replies = reply_texts(facts)
    assert "Done." in replies
    assert any(text.startswith("Again.") for text in replies)
    assert any(isinstance(fact, ToolReturned) for fact in facts)


def _what_is_unknown_was_kept(whole: str, kept: str, *, by_lines: bool) -> None:
    for mark in ("UNKNOWN-RECORD", "UNKNOWN-PART", "UNKNOWN-WORDS", "UNKNOWN-FORM"):
        if mark in whole:
            assert mark in kept
    if by_lines:
        unknown = [line for line in whole.splitlines() if "UNKNOWN" in line]
        assert [line for line in unknown if line not in kept] == []  # To the byte.


@pytest.mark.parametrize("history", [claude, codex, opencode, cline])
async def test_the_version_that_a_session_names_is_kept(
    history: Callable[[Path], Path], tmp_path: Path
) -> None:
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    workspace = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("w", tmp_path).id
    )
    result = await HistoryImport(workspace, Words()).import_files([history(tmp_path / "home")])
    first = (await workspace.journal.read_facts(result.imported[0].id))[0].fact
    assert first.origin.version == "99.7.0"  # type: ignore[union-attr]
    await workspace.aclose()
