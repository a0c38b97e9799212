"""Conversations from other programs for the window, with real files and a real desk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.desktop.history_import import HistoryImporter, _describe_history_file
from helix_desktop.engine.view import build_state
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.inspector.inspector_figures import build_cost_rows
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.histories import written
from tests.histories.test_chatgpt_history import talk_named
from tests.histories.test_chatgpt_history import write as write_chatgpt


async def test_what_a_session_has_written_since_comes_with_the_next_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    for name in (
        "CODEX_HOME",
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
        "GEMINI_CLI_HOME",
        "PI_CODING_AGENT_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    values = written.claude_session()
    path = written.lines(tmp_path / ".claude" / "projects" / "-p" / "s.jsonl", values[:6])
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(where, SecretStorage(where.key_file))
    histories = HistoryImporter(desk)
    groups = await histories.find_history_groups()
    first = await histories.import_history_groups(groups, lambda *_: None)
    assert [group.is_imported for group in groups] == [False]
    assert [group.is_imported for group in await histories.find_history_groups()] == [True]
    for bench in desk.opened_workbenches():
        await desk.close_workspace(bench.id)
    assert [group.is_imported for group in await histories.find_history_groups()] == [True]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(value) + "\n" for value in values[6:])
    groups = await histories.find_history_groups()
    assert [group.is_imported for group in groups] == [False], "it has new messages"
    grown = await histories.import_history_groups(groups, lambda *_: None)
    assert (first.new_count, grown.new_count, grown.grown_count) == (1, 0, 1)
    await desk.aclose()


async def test_as_many_conversations_are_said_to_be_imported_as_were_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of Claude Code has a sub-agent in a file of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        "CODEX_HOME",
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
        "GEMINI_CLI_HOME",
        "PI_CODING_AGENT_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    recorded = Path(__file__).parent.parent / "histories" / "fixtures" / "claude-code" / "2.1.197"
    shutil.copytree(recorded, tmp_path / ".claude" / "projects")
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(where, SecretStorage(where.key_file))
    histories = HistoryImporter(desk)
    groups = await histories.find_history_groups()
    assert len(groups) == 1
    assert (await histories.import_history_groups(groups, lambda *_: None)).new_count == 1
    assert (await histories.import_history_groups(groups, lambda *_: None)).unchanged_count == 1
    await desk.aclose()


async def test_an_imported_conversation_costs_the_same_in_the_list_the_timeline_and_the_panel(
    tmp_path: Path,
) -> None:
    """Claude Code writes what was used, and not what it cost."""
    path = written.lines(tmp_path / "s.jsonl", written.claude_session())
    listed = _describe_history_file(path, "/home/me/project", path.stat().st_size).cost
    assert listed > 0
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(where, SecretStorage(where.key_file))
    bench = await desk.create_workspace("Imported", tmp_path)
    (one,) = (await bench.import_histories([path])).imported
    facts = await bench.read_conversation_facts(one.id)
    story = ConversationTimeline(build_state([]))
    story.read_all_facts(facts)
    assert story.dollars[-1] == pytest.approx(listed)
    savings = build_state(facts).savings_until_moment()
    assert savings.paid == 0
    assert savings.paid_before == pytest.approx(listed)
    rows = {row.words: row.figure for row in build_cost_rows(savings)}
    assert rows["Cost before import or duplication"] == format_dollars(listed)
    assert bench.list_conversations()[0].cost == 0, "nothing was paid here"
    await desk.aclose()


async def test_the_files_that_somebody_chose_are_imported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    export = write_chatgpt(tmp_path, talk_named("one"), talk_named("two"))
    claude = written.lines(tmp_path / "elsewhere.jsonl", written.claude_session())
    other = tmp_path / "notes.txt"
    other.write_text("no history")
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(where, SecretStorage(where.key_file))
    histories = HistoryImporter(desk)
    chosen = await histories.read_chosen_files([export, claude, other])
    assert [(group.program, group.conversations) for group in chosen.groups] == [
        ("ChatGPT", 2),
        ("Claude Code", 1),
    ]
    (reason,) = chosen.reasons
    assert "notes.txt doesn't contain a session" in reason
    first = await histories.import_history_groups(chosen.groups, lambda *_: None)
    assert first.new_count == 3
    again = await histories.import_history_groups(chosen.groups, lambda *_: None)
    assert (again.new_count, again.unchanged_count) == (0, 3)
    await desk.aclose()


async def test_a_question_whose_reply_a_crash_cut_off_is_imported_with_a_word_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused as a whole, because its second line is not JSON."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "s.jsonl"
    lines = [json.dumps(value) for value in written.claude_session()[:2]]
    path.write_text(lines[0] + "\n" + lines[1][:-20], encoding="utf-8")
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(where, SecretStorage(where.key_file))
    histories = HistoryImporter(desk)
    chosen = await histories.read_chosen_files([path])
    assert chosen.reasons == []
    outcome = await histories.import_history_groups(chosen.groups, lambda *_: None)
    assert outcome.new_count == 1
    sentence = f"{path}: the last line is cut off; everything before it was read."
    assert sentence in outcome.complaints
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    grown = await histories.import_history_groups(chosen.groups, lambda *_: None)
    assert (grown.new_count, grown.grown_count) == (0, 1), "the rest comes when it is there"
    await desk.aclose()


def test_the_models_that_wrote_a_session_are_named_once(tmp_path: Path) -> None:
    path = written.lines(tmp_path / "s.jsonl", written.claude_session())
    details = _describe_history_file(path, "/home/me/project", path.stat().st_size)
    assert details.models == ["claude-sonnet-4-5"]
