"""What is given back to an agent reads back as the same conversation, under a new name,
and changes nothing.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Folded,
    FoldKind,
    ModelReplied,
    Recorded,
    Stop,
    Text,
    ToolCall,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput, NotFound, StoreFailed
from helix_desktop.histories import conversation_restoring as restoring
from helix_desktop.histories import history_facts, history_reading, kept_lines
from helix_desktop.histories.conversation_restoring import RestoreRequest
from helix_desktop.histories.gemini_cli_writer import choose_gemini_project_name
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.openai_chat_export import ReadContent
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from tests.histories import written
from tests.histories.test_history_facts import Words

TOOLS = {
    "claude": "Bash",
    "codex": "exec_command",
    "gemini": "run_shell_command",
    "opencode": "bash",
    "pi": "bash",
    "qwen": "run_shell_command",
}
FIXTURES = Path(__file__).parent / "fixtures"
RECORDED = {
    "claude": ("claude-code/2.1.197", "-home-me-project/8086ac59-962c-45e3-8b64-1a833031ab31.jsonl"),
    "pi": ("pi/0.73", "2026-11-21T02-16-42-511Z_01a1fbe4-410e-70ca-af4b-5b8bc47a9c62.jsonl"),
    "qwen": ("qwen-code/0.24.4", "projects/-home-me-project/chats/adc7daf2-c97d-4a79-8519-d39e570993cf.jsonl"),
    "codex": ("codex/0.169.0", "sessions/2026/11/21/rollout-2026-11-21T03-33-32-01a1fc2a-9a18-7a73-b8a8-265ac8d65505.jsonl"),
}  # fmt: skip


def imported(recording: RecordedSession) -> tuple[list[Recorded], ReadContent]:
    drafts = history_facts.draft_facts(recording, Words(), lambda _: "")
    contents = {
        Digest.of_content(content): content for draft in drafts for content, _ in draft.contents
    }
    facts = [Recorded("c", at, draft.time, draft.fact) for at, draft in enumerate(drafts, 1)]
    return [
        *facts,
        Recorded("c", len(facts) + 1, 0.0, history_facts.build_started_fact(recording)),
    ], contents.get


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


def test_the_agents_own_lines_come_back_with_only_the_id_changed_and_a_title(
    recorded: tuple[str, Path],
) -> None:
    agent, path = recorded
    session = main_session(path)
    restored = restoring.build_restored_session(
        *imported(session), RestoreRequest("c", agent, "/elsewhere")
    )
    assert restored.is_original
    assert restored.folder == "/home/me/project"
    own = path.read_bytes()
    own = restoring.FORMATS[agent].without_permissions(own)
    content = re.sub(rb'"helix_title": ?"[^"]*", ?', b"", restored.content)
    assert content.replace(restored.session.encode(), session.session.encode())[: len(own)] == own
    added = [json.loads(line) for line in content[len(own) :].splitlines()]
    assert [line["type"] for line in added] == (["custom-title"] if agent == "claude" else [])
    assert restored.session.encode() in restored.content


def test_without_the_file_the_conversation_is_written_anew(
    recorded: tuple[str, Path], tmp_path: Path
) -> None:
    agent, path = recorded
    session = main_session(path)
    facts, content = imported(session)
    path.unlink()
    restored = restoring.build_restored_session(
        facts, content, RestoreRequest("c", agent, "/home/me/project")
    )
    assert not restored.is_original
    again = main_session(_put(tmp_path / f"{restored.session}.jsonl", restored.content))
    assert (again.kind, again.session, again.folder) == (
        session.kind,
        restored.session,
        "/home/me/project",
    )
    own = {one.text for one in session.messages if one.beside}
    assert [one for one in said(again) if one[1] not in own] == [
        one for one in said(session) if one[0] != "failure"
    ]
    assert [one.text for one in again.compactions] == [one.text for one in session.compactions]


def test_without_the_file_its_lines_come_back_if_they_were_kept(
    recorded: tuple[str, Path],
) -> None:
    agent, path = recorded
    session = main_session(path)
    facts, read_content = imported_with_lines(session)
    own = path.read_bytes()
    shutil.rmtree(path.parent)
    request = RestoreRequest("c", agent, "/elsewhere")
    restored = restoring.build_restored_session(facts, read_content, request)
    assert restored.is_original
    assert restored.folder == "/home/me/project"
    own = restoring.FORMATS[agent].without_permissions(own)
    content = re.sub(rb'"helix_title": ?"[^"]*", ?', b"", restored.content)
    assert content.replace(restored.session.encode(), session.session.encode())[: len(own)] == own


# Of a session's file, what makes the agent do more without a question when it resumes. Claude Code
# 2.1.197 went on with "accept edits on", Codex 0.171 in "YOLO mode" without a sandbox.
GRANTS = {
    "claude": (
        {"type": "permission-mode", "permissionMode": "acceptEdits", "sessionId": "SESSION"},
        {"type": "worktree-state", "worktreeSession": {"worktreePath": "/"}, "sessionId": "SESSION"},
        {"type": "relocated", "relocatedCwd": "/", "sessionId": "SESSION"},
        {"type": "bridge-session", "bridgeSessionId": "x", "sessionId": "SESSION"},
    ),
    "codex": (
        {"type": "event_msg", "payload": {"type": "thread_settings_applied", "thread_settings": {
            "approval_policy": "never", "approvals_reviewer": "user", "permission_profile": {"type": "disabled"},
            "sandbox_policy": {"type": "danger-full-access"}, "runtime_workspace_roots": ["/"]}}},
        {"type": "session_meta", "payload": {"id": "SESSION", "cwd": "/home/me/project", "runtime_workspace_roots": ["/"]}},
    ),
    # Qwen Code 0.24 goes on with a goal by itself, and takes the model that such a record names.
    "qwen": (
        {"type": "system", "subtype": "goal_state", "systemPayload": {"goal": "all"}, "sessionId": "SESSION"},
        {"type": "system", "subtype": "session_model", "systemPayload": {"modelId": "x"}, "sessionId": "SESSION"},
        {"type": "session_source", "sessionId": "SESSION"},
    ),
}  # fmt: skip
GRANTING = {
    "permission-mode", "worktree-state", "relocated", "bridge-session", "permissionMode", "approval_policy",
    "approvals_reviewer", "permission_profile", "sandbox_policy", "runtime_workspace_roots", "network",
    "requested_approvals_reviewer", "active_permission_profile", "goal_state", "session_model", "session_source",
}  # fmt: skip


def spelled_oddly(chance: random.Random, value: object) -> str:
    """JSON as an enemy may write it: escaped letters, blanks, and names that come twice."""
    if isinstance(value, dict):
        pieces = []
        for name, inner in value.items():
            if chance.random() < 0.2:
                pieces.append(f"{spelled_oddly(chance, name)}: {spelled_oddly(chance, 'x')}")
            blank = chance.choice(["", " ", "\r", "\t "])
            pieces.append(
                f"{spelled_oddly(chance, name)}{blank}:{blank}{spelled_oddly(chance, inner)}"
            )
        return "{" + ",".join(pieces) + "}"
    if isinstance(value, list):
        return "[" + ",".join(spelled_oddly(chance, inner) for inner in value) + "]"
    if isinstance(value, str):
        escaped = [f"\\u{ord(sign):04x}" if chance.random() < 0.3 else sign for sign in value]
        return '"' + "".join(escaped) + '"'
    return json.dumps(value)


def granting_words(line: object, *, inside: str = "") -> set[str]:
    """What of a line, as the agent reads it, grants something. Contents of messages are only text."""
    found = set()
    if isinstance(line, dict):
        for name, value in line.items():
            if name in GRANTING and inside not in ("message", "turn_context"):
                found.add(name)
            if name in ("type", "subtype") and value in GRANTING:
                found.add(value)
            kind = line.get("type") if name == "payload" else name
            found |= granting_words(value, inside=str(kind))
    return found


def test_only_permissions_are_taken_out_of_a_session(recorded: tuple[str, Path]) -> None:
    agent, path = recorded
    own = path.read_bytes()
    lines = own.splitlines(keepends=True)
    kept = restoring.FORMATS[agent].without_permissions(own).splitlines(keepends=True)
    assert len(kept) == len(lines)
    for before, after in zip(lines, kept, strict=True):
        if before != after:
            values = json.loads(before)
            if agent == "qwen":  # The place of a record stays, so that others can follow it.
                assert values["subtype"] == "attribution_snapshot"
                assert json.loads(after).items() <= values.items()
                continue
            for fields in (
                values,
                values.get("payload", {}),
                values.get("payload", {}).get("thread_settings", {}),
            ):
                for name in GRANTING.intersection(fields):
                    del fields[name]
            assert json.loads(after) == values


@pytest.mark.parametrize("agent", sorted(GRANTS))
@pytest.mark.parametrize("way", ["own file", "kept lines"])
def test_a_session_that_comes_back_grants_nothing(agent: str, way: str, tmp_path: Path) -> None:
    """The defect: a stranger's workspace made Codex go on without a sandbox and without questions."""
    folder, file = RECORDED[agent]
    shutil.copytree(FIXTURES / folder, tmp_path / "agent")
    path = tmp_path / "agent" / file
    own = path.read_bytes()
    session_id = main_session(path).session
    request = RestoreRequest("c", agent, "/elsewhere")
    messages = restoring.build_restored_session(*imported(main_session(path)), request).messages
    chance = random.Random(6868)
    for _ in range(40):
        added = json.loads(json.dumps(GRANTS[agent]).replace("SESSION", session_id))
        chance.shuffle(added)
        written = [spelled_oddly(chance, line) for line in added]
        places = own.splitlines(keepends=True)
        for line in written:
            # The first line of a file of Codex says what session it is.
            places.insert(chance.randrange(1, len(places) + 1), line.encode() + b"\n")
        path.write_bytes(b"".join(places))
        session = main_session(path)
        facts, read_content = imported_with_lines(session)
        if way == "kept lines":
            path.unlink()
        restored = restoring.build_restored_session(facts, read_content, request)
        assert restored.is_original
        lines = [json.loads(line) for line in restored.content.splitlines()]
        assert set().union(*map(granting_words, lines)) == set(), written
        assert restored.messages == messages


def imported_with_lines(session: RecordedSession) -> tuple[list[Recorded], ReadContent]:
    facts, read_content = imported(session)
    drafts = history_facts.draft_facts(session, Words(), lambda _: "")
    digests = {Digest.of_content(content).hex for draft in drafts for content, _ in draft.contents}
    lines = kept_lines.replace_stored_contents(session.lines, digests)
    stored = kept_lines.build_kept_lines([], lines)
    reference = history_facts.reference_to_content(stored)
    brought_in = BroughtIn(history_facts.origin_of_recording(session), "run", 1, lines=reference)
    facts.append(Recorded("c", len(facts) + 1, 0.0, brought_in))
    return facts, lambda digest: stored if digest == reference.digest else read_content(digest)


def test_lines_that_were_kept_are_not_given_back_once_the_conversation_went_on_here(
    recorded: tuple[str, Path],
) -> None:
    agent, path = recorded
    facts, read_content = imported_with_lines(main_session(path))
    path.unlink()
    words = Recorded("c", len(facts) + 1, 9e9, UserSaid((Text("and here"),)))
    request = RestoreRequest("c", agent, "/home/me/project")
    restored = restoring.build_restored_session([*facts, words], read_content, request)
    assert not restored.is_original
    assert b"and here" in restored.content


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
    restored = restoring.build_restored_session(
        facts, content, RestoreRequest("c", "claude", "/f", 1)
    )
    assert restored.is_original == (way == "own lines")
    if restored.is_original:
        kept = restored.content.splitlines(keepends=True)
        assert len(kept) < len(lines)
        assert b"compact_boundary" in lines[len(kept) - 1]
        assert b"(restored before compaction 1)" in kept[-1]
    again = main_session(_put(tmp_path / f"{restored.session}.jsonl", restored.content))
    assert again.compactions == ()
    before = session.compactions[0].at
    assert said(again) == [
        one for one in said(RecordedSession("", session.messages[:before])) if one[0] != "failure"
    ]
    with pytest.raises(InvalidInput, match="in this conversation: 1"):
        restoring.build_restored_session(facts, content, RestoreRequest("c", "claude", "/f", 2))


def read_back(restored: restoring.RestoredSession, folder: Path) -> RecordedSession:
    """The session as the agent's reader finds it where it was written."""
    home = folder / "home"
    home.mkdir()
    if restored.agent == "opencode":
        (database := home / ".local/share/opencode/opencode.db").parent.mkdir(parents=True)
        opencode_database(database)
    file = restoring.write_restored_session(restored, HistoryPlaces(home, {}))
    assert file.is_relative_to(home)
    return next(
        one
        for one in history_reading.read_history_file(file).recordings
        if one.session == restored.session
    )


def opencode_database(path: Path) -> None:
    tables = json.loads((FIXTURES / "opencode" / "1.18.33.rows").read_text("utf-8"))
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE project(id, worktree)")
        made.executemany(
            "INSERT INTO project VALUES(?, ?)", [("global", "/"), ("p1", "/home/me/project")]
        )
        for table, rows in tables.items():
            made.execute(f"CREATE TABLE {table}({', '.join(rows[0])})")


@pytest.mark.parametrize("kind", sorted(written.KINDS))
@pytest.mark.parametrize("agent", sorted(restoring.FORMATS))
def test_any_history_is_written_for_any_agent(tmp_path: Path, kind: str, agent: str) -> None:
    session = main_session(written.KINDS[kind](tmp_path))
    facts, content = imported(session)
    request = RestoreRequest("c", agent, "/home/me/project")
    restored = restoring.build_restored_session(facts, content, request)
    again = read_back(restored, tmp_path)
    words: list[str] = []
    shown: list[str] = []
    for message in session.messages:
        if message.role == "user" and not message.beside:
            words.append(message.text)
        if message.role in ("assistant", "tool"):
            shown.append(message.shown or message.text)
    words_again = [message.text for message in again.messages if message.role == "user"]
    assert [text for text in words_again if text in words] == words
    whole = "\n".join(message.text for message in again.messages)
    assert [text for text in shown if text not in whole] == []
    assert again.folder == session.folder or not session.folder


@pytest.mark.parametrize("agent", sorted(restoring.FORMATS))
def test_a_copy_has_a_title_of_its_own(tmp_path: Path, agent: str) -> None:
    """The original, a restored and a relayed conversation stood in every list under one title."""
    title = "Extract the lock manager into its own module and keep the tests green, please"
    facts, content = imported(replace(main_session(written.codex(tmp_path)), title=title))
    again = read_back(
        restoring.build_restored_session(facts, content, RestoreRequest("c", agent, "/f")), tmp_path
    )
    words = "Extract the lock manager into its own module and keep the tests gre (from Codex)"
    if agent == "codex":
        words = "Extract the lock manager into its own module and keep the tests green (restored)"
    assert history_facts.title_of_recording(again) == words
    facts, content = imported(replace(again, name=""))
    twice = restoring.build_restored_session(facts, content, RestoreRequest("c", agent, "/f"))
    assert words.rpartition(" (")[0].encode() + b" (restored)" in twice.content, (
        "the words about the first copy stay"
    )


@pytest.mark.parametrize("agent", sorted(restoring.FORMATS))
def test_a_compaction_and_a_picture_are_written_for_any_agent(tmp_path: Path, agent: str) -> None:
    call = ToolCall("c1", "Bash", '{"command": "ls"}')
    messages = (
        RecordedMessage(
            "user",
            "/words that begin so\n",
            pictures=(RecordedPicture("image/png", b"PNG"),),
            time=9.0,
        ),
        build_recorded_reply([Text("I look."), call], time=8.0),
        RecordedMessage("tool", "OUT", answers="c1", ok=False, time=7.0),
        RecordedMessage("user", "and again", time=10.0),
    )
    compaction = RecordedCompaction(3, 3, "SUMMARY", 10.0)
    session = RecordedSession(
        "", messages, "claude-code", "s", folder="/f", compactions=(compaction,)
    )
    again = read_back(
        restoring.build_restored_session(*imported(session), RestoreRequest("c", agent, "/f")),
        tmp_path,
    )
    assert [(one.at, one.text) for one in again.compactions] == [(3, "SUMMARY")]
    assert [one.role for one in again.messages] == ["user", "assistant", "tool", "user"]
    assert again.messages[0].text.endswith("/words that begin so\n")
    assert [one.data for one in again.messages[0].pictures] == [b"PNG"]
    assert (again.messages[2].text, again.messages[2].answers) == ("OUT", "c1")
    assert again.messages[2].ok == (
        agent == "codex"
    )  # its rollouts do not say that a command failed


def test_what_gemini_cli_itself_said_at_the_beginning_is_left_out_elsewhere() -> None:
    messages = (
        RecordedMessage("user", "<session_context>\nToday", beside=True),
        RecordedMessage("user", "hello"),
    )
    restored = restoring.build_restored_session(
        *imported(RecordedSession("", messages, "gemini-cli", "s")), RestoreRequest("c", "pi", "/f")
    )
    assert (restored.messages, restored.left_out_context) == (1, 1)
    assert b"session_context" not in restored.content


def test_calls_of_a_resumed_session_of_gemini_cli_stand_in_its_content(tmp_path: Path) -> None:
    head = {
        "sessionId": "s",
        "projectHash": "p",
        "startTime": "2026-01-01T00:00:00Z",
        "kind": "main",
    }
    called = {"functionCall": {"id": "c1", "name": "run_shell_command", "args": {"command": "ls"}}}
    answer = {
        "functionResponse": {"id": "c1", "name": "run_shell_command", "response": {"output": "OUT"}}
    }
    records = [
        {"id": "1", "type": "user", "content": [{"text": "look"}]},
        {
            "id": "2",
            "type": "gemini",
            "content": [{"text": "hm", "thought": True}, {"text": "I look."}, called],
        },
        {"id": "2_response", "type": "user", "content": [answer]},
    ]
    lines = [head, {"$set": {"messages": records}}]
    path = tmp_path / "session-2026-01-01T00-00-s.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    _, reply, result = main_session(path).messages
    assert (reply.text, [call.id for call in reply.calls], result.answers, result.text) == (
        "I look.",
        ["c1"],
        "c1",
        "OUT",
    )


@pytest.mark.parametrize(
    ("title", "agent"),
    [("Claude Code", "claude"), ("Gemini CLI", "gemini"), ("qwen", ""), ("", "")],
)
def test_an_agent_that_worked_through_the_gateway_is_the_one_that_can_resume_it(
    title: str, agent: str
) -> None:
    started = ConversationStarted("Title", agent=title)
    assert restoring.agent_of_origin([Recorded("c", 1, 0.0, started)]) == agent


def test_opencode_without_a_database_is_told_what_to_do(tmp_path: Path) -> None:
    restored = restoring.RestoredSession("opencode", "ses_1", "/f", b"{}", False, 0, 0, ())
    with pytest.raises(NotFound, match="no database") as refused:
        restoring.write_restored_session(restored, HistoryPlaces(tmp_path, {}))
    assert "Start opencode once, and try again." in refused.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_project_of_gemini_cli_is_found_as_it_finds_it(tmp_path: Path) -> None:
    folders = tmp_path / "tmp"
    for name, owner in (("work", "/elsewhere/work"), ("other", "/home/me/marked")):
        (folders / name).mkdir(parents=True)
        (folders / name / ".project_root").write_text(owner)
    (tmp_path / "projects.json").write_text(
        json.dumps({"projects": {"/home/me/listed": "listed", "/x": "work-1"}})
    )
    names = ("/home/me/listed", "/home/me/marked", "/home/me/work")
    assert [choose_gemini_project_name(folders, name) for name in names] == [
        "listed",
        "other",
        "work-2",
    ]


@pytest.mark.parametrize("agent", sorted(restoring.FORMATS))
def test_a_call_that_corresponds_is_translated_and_another_is_text(agent: str) -> None:
    calls = (
        ToolCall("c1", "run_command", '{"command": "ls"}'),
        ToolCall("c2", "delegate", '{"task": "look"}'),
    )
    facts = [
        Recorded("c", 1, 1.0, ConversationStarted("t")),
        Recorded("c", 2, 1.0, UserSaid((Text("  look \n"),))),
        Recorded("c", 3, 1.0, ModelReplied((calls[0],), "m", Stop.CALLS)),
        Recorded("c", 4, 1.0, ModelReplied((calls[1],), "m", Stop.CALLS)),
    ]
    restored = restoring.build_restored_session(
        facts, lambda _: None, RestoreRequest("c", agent, "/f")
    )
    text = restored.content.decode()
    assert json.dumps("  look \n") in text
    assert f'"{TOOLS[agent]}"' in text
    assert "[Call of the tool delegate]" in text
    assert "[Result of the tool delegate, which failed]" in text
    assert restored.calls_as_text == 1


@pytest.mark.parametrize("agent", sorted(restoring.FORMATS))
def test_a_call_that_the_gateway_saw_stays_a_call_for_its_agent(agent: str) -> None:
    call = ToolCall("c1", "delegate", '{"task": "look"}')
    kind = restoring.FORMATS[agent].kind
    facts = [
        Recorded("c", 1, 1.0, ConversationStarted("t", agent=NAMES[kind])),
        Recorded("c", 2, 1.0, UserSaid((Text("look"),))),
        Recorded("c", 3, 1.0, ModelReplied((call,), "m", Stop.CALLS)),
    ]
    restored = restoring.build_restored_session(
        facts, lambda _: None, RestoreRequest("c", agent, "/f")
    )
    assert restored.calls_as_text == 0
    assert '"delegate"' in restored.content.decode()


# --- the file


def test_the_file_stands_where_the_agent_looks(recorded: tuple[str, Path], tmp_path: Path) -> None:
    agent, path = recorded
    restored = restoring.build_restored_session(
        *imported(main_session(path)), RestoreRequest("c", agent, "")
    )
    home = tmp_path / "home"
    home.mkdir()
    file = restoring.write_restored_session(restored, HistoryPlaces(home, {}))
    assert file.read_bytes() == restored.content
    places = {
        "claude": ".claude/projects/-home-me-project",
        "codex": ".codex/sessions",
        "qwen": ".qwen/projects/-home-me-project/chats",
    }
    assert file.is_relative_to(home / places.get(agent, ".pi/agent/sessions/--home-me-project--"))
    assert [one for one in file.parent.iterdir() if one != file] == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").write_text("kept")
    with pytest.raises(InvalidInput, match="already exists"):
        restoring.write_new_session_file(tmp_path, "there.jsonl", b"new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("there.jsonl", "kept")]


@pytest.mark.parametrize("link", [".claude", ".claude/projects", ".claude/projects/-f"])
def test_a_link_on_the_way_is_refused(tmp_path: Path, link: str) -> None:
    home = tmp_path / "home"
    elsewhere = tmp_path / "elsewhere"
    (home / link).parent.mkdir(parents=True)
    elsewhere.mkdir()
    (home / link).symlink_to(elsewhere)
    with pytest.raises(StoreFailed, match="could not be written"):
        restoring.write_new_session_file(home, ".claude/projects/-f/new.jsonl", b"new")
    assert list(elsewhere.rglob("*")) == []


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_the_agent_a_conversation_comes_from_is_known_by_its_origin() -> None:
    messages = (RecordedMessage("user", "go"), build_recorded_reply([Text("yes")]))
    for kind, agent in (("codex", "codex"), ("claude-code", "claude"), ("goose", ""), ("", "")):
        assert (
            restoring.agent_of_origin(imported(RecordedSession("", messages, kind, "s"))[0])
            == agent
        )


def test_own_lines_are_given_back_only_where_they_say_what_the_conversation_says(
    recorded: tuple[str, Path],
) -> None:
    agent, path = recorded
    session = main_session(path)
    facts, content = imported(session)
    more = [*facts, Recorded("c", len(facts) + 1, 0.0, UserSaid((Text("said here"),)))]
    asked = RestoreRequest("c", agent, "/home/me/project")
    assert not restoring.build_restored_session(more, content, asked).is_original
    assert not restoring.build_restored_session(
        facts, content, replace(asked, is_folded=True)
    ).is_original
    other = next(name for name in RECORDED if name != agent)
    assert not restoring.build_restored_session(
        facts, content, replace(asked, agent=other)
    ).is_original
    strange = imported(replace(session, session="another"))
    assert not restoring.build_restored_session(*strange, asked).is_original, (
        "its file has another session by now"
    )
    path.write_bytes(path.read_bytes() + b'{"half a line')
    restored = restoring.build_restored_session(facts, content, asked)
    assert restored.is_original
    assert restored.content.endswith(b"\n"), "a line that is still being written is not given back"


def test_of_a_file_with_branches_its_own_lines_are_given_back_only_for_the_newest(
    tmp_path: Path,
) -> None:
    """Claude Code goes on at the newest branch: who asked for an older one got that instead."""
    lines = written.claude_session()
    lines.append(written.claude_said(20, 6, "another way"))
    lines.append(written.claude_reply(21, 20, "m9", written.text("Another answer.")))
    path = written.lines(tmp_path / "session-1.jsonl", lines)
    older, newest = history_reading.read_history_file(path).recordings
    asked = RestoreRequest("c", "claude", "/f")
    restored = restoring.build_restored_session(*imported(older), asked)
    assert (restored.is_original, b"and again" in restored.content, b"another way" in restored.content) == (False, True, False)  # fmt: skip
    restored = restoring.build_restored_session(*imported(newest), asked)
    assert (restored.is_original, restored.messages) == (True, len(newest.messages))
    assert (
        restored.content.count(b'"sessionId": "%b"' % restored.session.encode()) == len(lines) + 1
    )
    assert b'"session-1"' not in restored.content


def test_before_its_second_compaction_a_conversation_has_the_first(tmp_path: Path) -> None:
    boundary = {"subtype": "compact_boundary"}
    summary = {"isCompactSummary": True}
    lines = written.claude_session()
    for number, text in ((9, "First sum."), (12, "Second sum.")):
        lines.append(
            written.claude_line(
                number, "system", None, **boundary, logicalParentUuid=f"u{number - 1}"
            )
        )
        lines.append(written.claude_said(number + 1, number, text, **summary))
        lines.append(
            written.claude_reply(number + 2, number + 1, f"r{number}", written.text("word " * 60))
        )
    path = written.lines(tmp_path / "session-1.jsonl", lines)
    facts, content = imported(main_session(path))
    restored = restoring.build_restored_session(
        facts, content, RestoreRequest("c", "claude", "/f", 2)
    )
    assert (restored.is_original, restored.compactions) == (True, 1)
    assert restored.content.count(b"\n") == 12
    assert restored.messages == len(main_session(path).messages) - 1
    assert "First sum." in restored.texts[0]
    first = restoring.build_restored_session(facts, content, RestoreRequest("c", "claude", "/f", 1))
    assert (first.compactions, first.texts[0]) == (0, "")


def test_after_its_compaction_was_undone_here_a_conversation_comes_back_without_it(
    tmp_path: Path,
) -> None:
    """The agent's own lines were given back with the compaction: Claude Code sent six
    messages instead of 62.
    """
    folder, file = RECORDED["claude"]
    shutil.copytree(FIXTURES / folder, tmp_path / "agent")
    session = main_session(tmp_path / "agent" / file)
    facts, content = imported(session)
    folds = [one.fact for one in facts if isinstance(one.fact, Folded)]
    (fold,) = (one.fold for one in folds if one.kind is FoldKind.HANDOVER)
    undone = [*facts, Recorded("c", len(facts) + 1, 0.0, Unfolded(fold))]
    restored = restoring.build_restored_session(
        undone, content, RestoreRequest("c", "claude", "/f")
    )
    again = main_session(_put(tmp_path / f"{restored.session}.jsonl", restored.content))
    assert again.compactions == ()
    assert {one[1] for one in said(session) if one[0] == "user"} <= {one[1] for one in said(again)}


def test_people_are_told_what_was_written_and_what_is_not_in_it(tmp_path: Path) -> None:
    bare = restoring.RestoredSession("codex", "s1", "/f", b"", False, 1_234, 2, ())
    assert list(restoring.describe_restored_session(bare, tmp_path)) == [
        f"Written to {tmp_path}. Messages: 1,234; compactions: 2.",
        "To continue in /f, run: codex resume s1",
    ]
    full = replace(
        bare, is_original=True, version="0.1", left_out_reasoning=1, left_out_context=2, calls_as_text=3, is_folded=True,
        fits=False,
    )  # fmt: skip
    report = list(restoring.describe_restored_session(full, tmp_path))
    assert len(report) == 9
    assert report[-2] == "The session is from version 0.1. Restoring was tested with 0.171.0."
    assert (
        len(list(restoring.describe_restored_session(replace(bare, version="0.171.0"), tmp_path)))
        == 2
    )


def test_a_new_file_is_for_its_owner_alone_and_leaves_no_draft(tmp_path: Path) -> None:
    path = restoring.write_new_session_file(tmp_path, "a/b/new.jsonl", b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert [one.name for one in path.parent.iterdir()] == ["new.jsonl"]
    with pytest.raises(InvalidInput):
        restoring.write_new_session_file(tmp_path, "a/b/new.jsonl", b"other")
    assert [one.name for one in path.parent.iterdir()] == ["new.jsonl"]
