"""What is given back to Claude Code and Codex reads back as the same conversation, under a new name, and changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import ConversationStarted, ModelReplied, Recorded, Stop, Text, ToolCall, UserSaid
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import conversation_restoring as restoring
from helix_desktop.histories import history_reading, recording_facts
from helix_desktop.histories.history_finding import HistoryPlaces
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.histories.session_export import Content
from tests.histories import written
from tests.histories.test_recording_facts import Words

FIXTURES = Path(__file__).parent / "fixtures"
RECORDED = {
    "claude": ("claude-code/2.1.197", "-home-me-project/8086ac59-962c-45e3-8b64-1a833031ab31.jsonl"),
    "codex": ("codex/0.169.0", "sessions/2026/11/21/rollout-2026-11-21T03-33-32-01a1fc2a-9a18-7a73-b8a8-265ac8d65505.jsonl"),
}  # fmt: skip


def imported(recording: RecordedSession) -> tuple[list[Recorded], Content]:
    drafts = recording_facts.draft_facts(recording, Words(), lambda _: "")
    contents = {Digest.of_content(content): content for draft in drafts for content, _ in draft.contents}
    facts = [Recorded("c", at, draft.time, draft.fact) for at, draft in enumerate(drafts, 1)]
    return [*facts, Recorded("c", len(facts) + 1, 0.0, recording_facts.started_fact(recording))], contents.get


def main_session(path: Path) -> RecordedSession:
    return next(one for one in history_reading.read_history_file(path).recordings if not one.parent)


def said(session: RecordedSession) -> list[tuple[object, ...]]:
    return [
        (one.role, one.shown or one.text, one.calls, one.answers, one.ok, len(one.pictures))
        for one in session.messages
        if one.role != "system" and not one.beside
    ]


@pytest.fixture(params=sorted(RECORDED))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """An agent, and a copy of a session that it wrote."""
    folder, file = RECORDED[request.param]
    shutil.copytree(FIXTURES / folder, tmp_path / "agent")
    return request.param, tmp_path / "agent" / file


def test_the_agents_own_lines_come_back_with_only_the_id_changed(recorded: tuple[str, Path]) -> None:
    agent, path = recorded
    session = main_session(path)
    restored = restoring.restore_session(*imported(session), agent, "/elsewhere")
    assert restored.is_original
    assert restored.folder == "/home/me/project"
    assert restored.content.replace(restored.session.encode(), session.session.encode()) == path.read_bytes()
    assert restored.session.encode() in restored.content


def test_without_the_file_the_conversation_is_written_anew(recorded: tuple[str, Path], tmp_path: Path) -> None:
    agent, path = recorded
    session = main_session(path)
    facts, content = imported(session)
    path.unlink()
    restored = restoring.restore_session(facts, content, agent, "/home/me/project")
    assert not restored.is_original
    again = main_session(_put(tmp_path / f"{restored.session}.jsonl", restored.content))
    assert (again.kind, again.session, again.folder) == (session.kind, restored.session, "/home/me/project")
    own = {one.text for one in session.messages if one.beside}
    assert [one for one in said(again) if one[1] not in own] == [one for one in said(session) if one[0] != "failure"]
    assert [one.text for one in again.compactions] == [one.text for one in session.compactions]


@pytest.mark.parametrize("way", ["own lines", "anew"])
def test_a_conversation_from_before_its_compaction(tmp_path: Path, way: str) -> None:
    folder, file = RECORDED["claude"]
    shutil.copytree(FIXTURES / folder, tmp_path / "agent")
    path = tmp_path / "agent" / file
    session = main_session(path)
    facts, content = imported(session)
    lines = path.read_bytes().splitlines(keepends=True)
    if way == "anew":
        path.unlink()
    restored = restoring.restore_session(facts, content, "claude", "/f", before_compaction=1)
    assert restored.is_original == (way == "own lines")
    if restored.is_original:
        kept = restored.content.splitlines(keepends=True)
        assert len(kept) < len(lines)
        assert b"compact_boundary" in lines[len(kept)]
    again = main_session(_put(tmp_path / f"{restored.session}.jsonl", restored.content))
    assert again.compactions == ()
    before = session.compactions[0].at
    assert said(again) == [one for one in said(RecordedSession("", session.messages[:before])) if one[0] != "failure"]
    with pytest.raises(InvalidInput, match="has 1 compactions"):
        restoring.restore_session(facts, content, "claude", "/f", before_compaction=2)


@pytest.mark.parametrize("kind", sorted(written.KINDS))
@pytest.mark.parametrize("agent", sorted(RECORDED))
def test_any_history_is_written_for_either_agent(tmp_path: Path, kind: str, agent: str) -> None:
    session = main_session(written.KINDS[kind](tmp_path))
    facts, content = imported(session)
    restored = restoring.restore_session(facts, content, agent, "/home/me/project")
    again = main_session(_put(tmp_path / f"{restored.session}.jsonl", restored.content))
    words = [one.text for one in session.messages if one.role == "user" and not one.beside]
    assert [one.text for one in again.messages if one.text in words and one.role == "user"] == words
    whole = "\n".join(one.text for one in again.messages)
    assert all((one.shown or one.text) in whole for one in session.messages if one.role in ("assistant", "tool"))


@pytest.mark.parametrize("agent", sorted(RECORDED))
def test_a_call_that_corresponds_is_translated_and_another_is_text(agent: str) -> None:
    calls = (ToolCall("c1", "run_command", '{"command": "ls"}'), ToolCall("c2", "delegate", '{"task": "look"}'))
    facts = [
        Recorded("c", 1, 1.0, ConversationStarted("t")),
        Recorded("c", 2, 1.0, UserSaid((Text("  look \n"),))),
        Recorded("c", 3, 1.0, ModelReplied((calls[0],), "m", Stop.CALLS)),
        Recorded("c", 4, 1.0, ModelReplied((calls[1],), "m", Stop.CALLS)),
    ]
    restored = restoring.restore_session(facts, lambda _: None, agent, "/f")
    text = restored.content.decode()
    assert json.dumps("  look \n") in text
    assert ('"Bash"' if agent == "claude" else '"exec_command"') in text
    assert "[Call of the tool delegate]" in text
    assert "[Result of the tool delegate, which failed]" in text
    assert restored.calls_as_text == 1


# --- the file -------------------------------------------------------------------------------------------------------


def test_the_file_stands_where_the_agent_looks(recorded: tuple[str, Path], tmp_path: Path) -> None:
    agent, path = recorded
    restored = restoring.restore_session(*imported(main_session(path)), agent, "")
    home = tmp_path / "home"
    home.mkdir()
    root, inside = restoring.place_of_session(restored, HistoryPlaces(home, {}))
    file = restoring.write_new_session_file(root, inside, restored.content)
    assert file.read_bytes() == restored.content
    assert file.is_relative_to(home / (".claude/projects/-home-me-project" if agent == "claude" else ".codex/sessions"))
    assert [one for one in file.parent.iterdir() if one != file] == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").write_text("kept")
    with pytest.raises(InvalidInput, match="already exists"):
        restoring.write_new_session_file(tmp_path, "there.jsonl", b"new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("there.jsonl", "kept")]


@pytest.mark.parametrize("link", [".claude", ".claude/projects", ".claude/projects/-f"])
def test_a_link_on_the_way_is_refused(tmp_path: Path, link: str) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / link).parent.mkdir(parents=True)
    elsewhere.mkdir()
    (home / link).symlink_to(elsewhere)
    with pytest.raises(InvalidInput, match="can't be written"):
        restoring.write_new_session_file(home, ".claude/projects/-f/new.jsonl", b"new")
    assert list(elsewhere.rglob("*")) == []


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
