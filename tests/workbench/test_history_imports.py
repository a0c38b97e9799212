"""Histories of other programs as conversations: all of it, once, taken back, and gone on with."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time as clock
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import cost_command
from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    Fact,
    Folded,
    ModelReplied,
    Origin,
    Received,
    Recorded,
    Rewound,
    Span,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.session import Session
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.errors import NotFound
from helix_desktop.histories import history_facts
from helix_desktop.histories.conversation_restoring import RestoreRequest, build_restored_session
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench import Workbenches, history_imports
from helix_desktop.workbench.conversation_list_rows import ConversationListRows, facts_paid_here
from helix_desktop.workbench.history_imports import HistoryImport, ImportResult
from helix_desktop.workbench.import_decision import KEPT_DESPITE_DAMAGE, SAID
from helix_desktop.workbench.session_import import SessionWriter
from helix_desktop.workbench.session_preparation import SessionPreparation
from tests.conftest import Expect
from tests.histories import written
from tests.peers import anthropic_server, chat_server, gemini_server, responses_server
from tests.peers.anthropic_server import AnthropicServer
from tests.peers.chat_server import ChatServer
from tests.peers.gemini_server import GeminiServer
from tests.peers.peer import Answer, Peer
from tests.peers.responses_server import ResponsesServer
from tests.peers.strict import RULES, strictly
from tests.scripted_tour import ClockWithoutPauses
from tests.texts_and_calls import user_texts


def _line(role: str, session: str, time: str) -> str:
    message = {
        "role": role,
        "id": f"m{session}",
        "model": "claude-x",
        "content": [{"type": "text", "text": f"said in {session}"}],
    }
    row = {
        "type": role,
        "uuid": f"{role}{session}",
        "sessionId": session,
        "cwd": "/work",
        "timestamp": "TIME",
        "message": message,
    }
    return json.dumps(row).replace('"TIME"', time)


class Words:
    def count_tokens(self, text: str) -> int:
        return len(text.split())


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[StoredWorkspace]:
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    opened = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Work", tmp_path).id
    )
    yield opened
    await opened.aclose()


async def brought(workspace: StoredWorkspace, *paths: Path) -> ImportResult:
    return await HistoryImport(workspace, Words()).import_files(
        history_imports.find_files_to_import(paths)
    )


async def whole(workspace: StoredWorkspace) -> list[Any]:
    rows = await workspace.journal.list_conversations()
    return [
        await workspace.journal.read_facts(row.id) for row in sorted(rows, key=lambda row: row.id)
    ]


@pytest.mark.parametrize("kind", written.KINDS)
async def test_every_output_can_be_recalled_and_a_second_import_changes_nothing(
    workspace: StoredWorkspace, tmp_path: Path, kind: str
) -> None:
    path = written.KINDS[kind](tmp_path)
    result = await brought(workspace, path)
    (one,) = result.imported
    assert (one.state, one.kind in (kind, "messages")) == ("new", True)
    assert (
        await workspace.cache.read_content(Digest.of_content(written.OUTPUT.encode()))
        == written.OUTPUT.encode()
    )
    facts = await workspace.journal.read_facts(one.id)
    output = next(fact.fact for fact in facts if isinstance(fact.fact, ToolReturned))
    assert output.output.digest == Digest.of_content(written.OUTPUT.encode())
    before = await whole(workspace)
    again = await brought(workspace, path)
    assert (again.imported, len(again.unchanged_conversations)) == ([], 1)
    path.touch()
    assert (await brought(workspace, path)).imported == []
    assert await whole(workspace) == before
    await workspace.index.wait_until_indexed()
    assert await workspace.index.search_index("look")


async def test_times_models_and_usage_are_those_of_the_file(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    (one,) = (await brought(workspace, written.claude(tmp_path))).imported
    facts = await workspace.journal.read_facts(one.id)
    assert facts[0].time == facts[1].time == 1767323041.0
    assert facts[-1].time == 1767323048.0
    reply = next(fact.fact for fact in facts if isinstance(fact.fact, ModelReplied))
    assert (reply.model, reply.usage.input, reply.saw) == ("claude-sonnet-4-5", 100, 2)
    (row,) = await workspace.journal.list_conversations()
    assert (row.title, row.updated) == ("list the files", 1767323048.0)
    assert build_state(facts).get_view().blocks


async def test_a_file_that_has_grown_adds_what_is_new(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    values = written.claude_session()
    path = written.lines(tmp_path / "s.jsonl", values[:6])
    (first,) = (await brought(workspace, path)).imported
    before = await workspace.journal.read_facts(first.id)
    written.lines(path, values)
    (more,) = (await brought(workspace, path)).imported
    assert (more.id, more.state, more.messages) == (first.id, "more", 2)
    after = await workspace.journal.read_facts(first.id)
    assert after[: len(before)] == before
    said = [fact.fact for fact in after if isinstance(fact.fact, UserSaid | ModelReplied)]
    fresh = tmp_path / "fresh"
    at_once = await AllWorkspaces(fresh).open_stored_workspace(
        AllWorkspaces(fresh).create_stored_workspace("Fresh", tmp_path).id
    )
    (other,) = (await brought(at_once, path)).imported
    facts = [fact.fact for fact in await at_once.journal.read_facts(other.id)]
    await at_once.aclose()
    assert [getattr(one, "parts", ()) for one in said] == [
        one.parts for one in facts if isinstance(one, UserSaid | ModelReplied)
    ]


async def test_conversations_written_at_the_same_time_are_told_in_the_order_in_which_they_were_read(
    workspace: StoredWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_later = asyncio.Event()
    write = SessionWriter.write_session

    async def write_first_one_last(writer: SessionWriter) -> None:
        is_first = writer.session.recording.session == "first"
        if is_first:
            await written_later.wait()
        await write(writer)
        if not is_first:
            written_later.set()

    monkeypatch.setattr(SessionWriter, "write_session", write_first_one_last)
    paths = [
        written.lines(
            tmp_path / f"{name}.jsonl",
            [{**one, "sessionId": name} for one in written.claude_session()],
        )
        for name in ("first", "second")
    ]
    result = await brought(workspace, *paths)
    assert [Path(one.path).stem for one in result.imported] == ["first", "second"]


async def test_the_list_knows_which_program_recorded_a_conversation(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """Six recorded conversations had one beginning, and nothing told Claude Code's from Codex's."""
    await brought(workspace, written.lines(tmp_path / "s.jsonl", written.claude_session()))
    rows = ConversationListRows(workspace.journal)
    await rows.read_all_rows()
    assert [row.recorded_from for row in rows] == ["Claude Code"]


async def test_a_title_that_comes_later_or_changes_is_taken_over_unless_the_user_gave_it_one_here(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """Recorded from its first reply on, a conversation kept the title of that moment for ever."""
    lines = written.claude_session()

    async def title_after_import(*more: dict[str, Any], count: int = 8) -> str:
        await brought(workspace, written.lines(tmp_path / "s.jsonl", lines[:count] + list(more)))
        (row,) = await workspace.journal.list_conversations()
        return row.title

    ai_title, renamed = ({"type": kind, name: words, "sessionId": "session-1"} for kind, name, words in (("ai-title", "aiTitle", "Files"), ("custom-title", "customTitle", "My files")))  # fmt: skip
    assert await title_after_import(count=6) == "list the files"
    assert await title_after_import(ai_title) == "Files", "with the messages of a second turn"
    before = await whole(workspace)
    assert await title_after_import(ai_title, renamed) == "My files", "and nothing else"
    (facts,) = await whole(workspace)
    change = facts[-2]
    about = facts[-1]
    assert (change.fact, about.fact.first) == (ConversationChanged("My files"), len(before[0]) + 1)
    assert await title_after_import(count=4) == "My files", (
        "the file has lost messages, and so perhaps its title"
    )
    await workspace.journal.append_to_journal(about.conversation, [ConversationChanged("Mine")])
    assert await title_after_import(ai_title) == "Mine"


def texts_of_user(facts: Iterable[Recorded]) -> list[str]:
    texts: list[str] = []
    for one in facts:
        if isinstance(one.fact, UserSaid):
            texts += [part.text for part in one.fact.parts if isinstance(part, Text)]
    return texts


async def test_a_branch_is_a_fork_and_a_sub_agent_a_child(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    values = written.claude_session()
    task = written.claude_reply(
        9, 8, "m4", written.use("t9", "Task", prompt="look deep", description="d")
    )
    values += [
        task,
        written.claude_said(
            10, 9, [written.result("t9", "found")], toolUseResult={"agentId": "a1"}
        ),
        written.claude_said(20, 6, "another way"),
        written.claude_reply(21, 20, "m9", written.text("Another answer.")),
    ]
    path = written.lines(tmp_path / "session-1.jsonl", values)
    child = [
        {**written.claude_said(30, None, "look deep"), "isSidechain": True, "agentId": "a1"},
        {
            **written.claude_reply(31, 30, "c1", written.text("deep")),
            "isSidechain": True,
            "agentId": "a1",
        },
    ]
    beside = written.lines(tmp_path / "session-1" / "subagents" / "agent-a1.jsonl", child)
    assert history_imports.find_files_to_import([path]) == [path, beside]
    result = await brought(workspace, path)
    main, fork, sub = result.imported
    assert fork.forked_from == main.id
    titles = {row.id: row.title for row in await workspace.journal.list_conversations()}
    assert (titles[main.id], titles[fork.id]) == ("list the files", "another way")
    facts = await workspace.journal.read_facts(fork.id)
    of_main = await workspace.journal.read_facts(main.id)
    shared = next(one.seq for one in facts[1:] if getattr(one.fact, "forked_from", "")) - 1
    assert [one.fact for one in facts[1:shared]] == [one.fact for one in of_main[1:shared]]
    assert texts_of_user(facts) == ["list the files", "another way"]
    assert sub.parent == main.id
    returned = [one.fact for one in of_main if isinstance(one.fact, ToolReturned)]
    assert returned[-1].child == sub.id
    row = await workspace.journal.find_conversation(sub.id)
    assert (row.parent, row.parent_call) == (main.id, "t9")
    assert (await brought(workspace, path, beside)).imported == []


async def test_what_comes_after_it_was_continued_here_is_a_fork(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    values = written.claude_session()
    path = written.lines(tmp_path / "s.jsonl", values[:6])
    (first,) = (await brought(workspace, path)).imported
    await workspace.journal.append_to_journal(
        first.id, [UserSaid((Text("my own", 2),)), TurnEnded(TurnEnd.DONE)]
    )
    before = await workspace.journal.read_facts(first.id)
    written.lines(path, values)
    (fork,) = (await brought(workspace, path)).imported
    assert (fork.state, fork.forked_from) == ("fork", first.id)
    assert await workspace.journal.read_facts(first.id) == before
    values.append(written.claude_said(9, 8, "third"))
    values.append(written.claude_reply(10, 9, "m4", written.text("Third.")))
    written.lines(path, values)
    (more,) = (await brought(workspace, path)).imported
    assert (more.id, more.state) == (fork.id, "more")


async def test_a_file_that_tells_it_differently_now_rewinds(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    values = written.claude_session()
    path = written.lines(tmp_path / "s.jsonl", values[:3])
    (first,) = (await brought(workspace, path)).imported
    written.lines(path, values)
    (again,) = (await brought(workspace, path)).imported
    assert again.id == first.id
    facts = await workspace.journal.read_facts(first.id)
    replies = [
        one for one in build_state(facts).facts_on_path() if isinstance(one.fact, ModelReplied)
    ]
    assert len(replies) == 3
    assert (await brought(workspace, path)).imported == []


async def test_two_files_that_name_one_session_and_differ_are_two_conversations(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    values = written.claude_session()
    other = values[:3] + [written.claude_reply(40, 3, "m40", written.text("Told otherwise."))]
    one = written.lines(tmp_path / "s.jsonl", values)
    two = written.lines(tmp_path / "copy.jsonl", other)
    shorter = written.lines(tmp_path / "old" / "s.jsonl", values[:6])
    first = await brought(workspace, one, two, shorter)
    assert [brought.state for brought in first.imported] == ["new", "new"]
    assert len(first.unchanged_conversations) == 0
    before = await whole(workspace)
    assert not any(isinstance(fact.fact, Rewound) for facts in before for fact in facts)
    for path in (one, two, shorter):
        path.touch()
    again = await brought(workspace, two, one, shorter)
    assert (again.imported, len(again.unchanged_conversations)) == ([], 2)
    assert await whole(workspace) == before
    written.lines(two, other + [written.claude_said(41, 40, "and then?")])
    (more,) = (await brought(workspace, one, two, shorter)).imported
    assert (more.id, more.state) == (first.imported[1].id, "more")


async def test_a_session_whose_file_was_moved_goes_on_in_its_conversation(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    values = written.claude_session()
    path = written.lines(tmp_path / "s.jsonl", values[:6])
    (first,) = (await brought(workspace, path)).imported
    path.unlink()
    (more,) = (
        await brought(workspace, written.lines(tmp_path / "archived" / "s.jsonl", values))
    ).imported
    assert (more.id, more.state) == (first.id, "more")


async def test_a_fork_within_what_was_brought_in_counts_none_of_it_as_its_own(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    path = written.pi(tmp_path)
    paid = '"role": "assistant", "usage": {"input": 50, "output": 5, "cost": {"total": 1.25}}'
    path.write_text(path.read_text().replace('"role": "assistant"', paid))
    (one,) = (await brought(workspace, path)).imported
    facts = await workspace.journal.read_facts(one.id)
    at = next(fact.seq for fact in facts if isinstance(fact.fact, ModelReplied))
    await workspace.journal.fork_conversation(one.id, at, "a fork")
    fork = await workspace.journal.read_facts("a fork")
    assert not any(isinstance(fact.fact, ModelReplied) for fact in facts_paid_here(fork))
    assert (await workspace.journal.find_conversation("a fork")).cost == 0
    path.touch()
    again = await brought(workspace, path)
    assert (again.imported, len(again.unchanged_conversations)) == ([], 1)
    runs = await history_imports.list_import_runs(workspace)
    assert [run[0] for run in runs] == [runs[0][0]]


async def test_an_import_is_taken_back_and_comes_again(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    values = written.claude_session()
    path = written.lines(tmp_path / "s.jsonl", values[:6])
    first = await brought(workspace, path)
    written.lines(path, values)
    second = await brought(workspace, path)
    assert await history_imports.undo_import(workspace, second.run) == (1, [])
    name = first.imported[0].id
    present = build_state(await workspace.journal.read_facts(name)).facts_on_path()
    assert sum(isinstance(one.fact, ModelReplied) for one in present) == 2
    with pytest.raises(NotFound):
        await history_imports.undo_import(workspace, second.run)
    (again,) = (await brought(workspace, path)).imported
    assert again.state == "more"
    assert (await brought(workspace, path)).imported == []


async def test_a_new_conversation_that_was_taken_back_comes_out_of_the_trash(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    path = written.pi(tmp_path)
    first = await brought(workspace, path)
    await history_imports.undo_import(workspace, first.run)
    (row,) = await workspace.journal.list_conversations()
    assert row.trashed
    (again,) = (await brought(workspace, path)).imported
    assert again.state == "back"
    assert not (await workspace.journal.find_conversation(again.id)).trashed
    assert {undone for _, _, undone in await history_imports.list_import_runs(workspace)} == {
        False,
        True,
    }


async def test_a_foreign_compaction_can_be_undone(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    values = written.claude_session()
    boundary = written.claude_line(11, "system", None, subtype="compact_boundary", logicalParentUuid="u8", compactMetadata={"trigger": "auto"})  # fmt: skip
    values += [
        boundary,
        written.claude_said(12, 11, "The summary.", isCompactSummary=True),
        written.claude_said(13, 12, "after it"),
        written.claude_reply(14, 13, "m5", written.text("Yes.")),
    ]
    (one,) = (await brought(workspace, written.lines(tmp_path / "s.jsonl", values))).imported
    assert one.folds == 1
    facts = await workspace.journal.read_facts(one.id)
    fold = next(fact.fact for fact in facts if isinstance(fact.fact, Folded))
    assert fold.why == "Claude Code compacted the conversation here (auto)"
    shown = " ".join(str(block.content) for block in build_state(facts).get_view().blocks)
    assert "The summary." in shown
    assert "list the files" not in shown


async def test_keys_are_found(workspace: StoredWorkspace, tmp_path: Path) -> None:
    key = "sk-ant-" + "api03-" + "a1B2" * 8
    values = written.claude_session()
    values[0] = written.claude_said(1, None, f"use {key}, I say {key}")
    result = await brought(workspace, written.lines(tmp_path / "s.jsonl", values))
    assert result.keys == {key: {result.imported[0].id: 2}}
    await workspace.forget_content(text=key)
    facts = await workspace.journal.read_facts(result.imported[0].id)
    assert key not in str(facts)
    goes_on = [
        written.claude_said(9, 8, "more"),
        written.claude_reply(10, 9, "m4", written.text("ok")),
    ]
    written.lines(tmp_path / "s.jsonl", values + goes_on)
    again = await brought(workspace, tmp_path / "s.jsonl")
    assert again.imported[0].state == "more"
    assert key not in str(await workspace.journal.read_facts(result.imported[0].id))


KEY = "sk-ant-" + "api03-" + "c3D4" * 8


def _with_a_key(place: str, folder: Path) -> list[dict[str, Any]]:
    """A session that has a key where no person and no line of output shows it."""
    values = written.claude_session()
    match place:
        case "a result's own file":
            shown = "<persisted-output>\nFull output saved to: /x/tool-results/t1.txt\n\nPreview:\nnothing yet"
            values[4] = written.claude_said(5, 4, [written.result("t1", shown)])
            file = folder / "s" / "tool-results" / "t1.txt"
            file.parent.mkdir(parents=True)
            file.write_text("nothing yet\n" * 300 + KEY, "utf-8")
        case "reasoning":
            values[1] = written.claude_reply(2, 1, "m1", written.thinking(f"They gave me {KEY}."))
        case "a summary":
            values[6:] = [
                written.claude_said(7, 6, f"So far, with {KEY}.", isCompactSummary=True),
                written.claude_reply(8, 7, "m3", written.text("Again.")),
            ]
        case "a document":
            data = base64.b64encode(f"a note: {KEY}".encode()).decode()
            source = {"type": "base64", "media_type": "text/plain", "data": data}
            values[0] = written.claude_said(
                1, None, [written.text("read it"), {"type": "document", "source": source}]
            )
        case "a line that is not read":
            values.append({"type": "last-prompt", "lastPrompt": f"Use {KEY}.", "sessionId": "s"})
    return values


PLACES = ("a result's own file", "reasoning", "a summary", "a document", "a line that is not read")


@pytest.mark.parametrize("state", ["more", "fork"])
@pytest.mark.parametrize("place", PLACES)
async def test_what_was_forgotten_does_not_come_back_when_the_session_grows(
    workspace: StoredWorkspace, tmp_path: Path, place: str, state: str
) -> None:
    """The recorder reads the whole file again, where the text still is."""
    values = _with_a_key(place, tmp_path)
    (first,) = (await brought(workspace, written.lines(tmp_path / "s.jsonl", values))).imported
    await workspace.forget_content(text=KEY)
    if state == "fork":
        await workspace.journal.append_to_journal(
            first.id, [UserSaid((Text("my own", 2),)), TurnEnded(TurnEnd.DONE)]
        )
    last = next(value["uuid"] for value in reversed(values) if "uuid" in value)
    more = {**written.claude_said(90, 0, "and more"), "parentUuid": last}
    result = await brought(workspace, written.lines(tmp_path / "s.jsonl", values + [more]))
    assert result.imported[0].state == state
    kept = await stored(workspace)
    assert "and more" in kept
    assert KEY not in kept


@pytest.mark.parametrize("place", PLACES[:-1])
async def test_a_key_is_found_wherever_it_is_stored_and_forgetting_removes_it(
    workspace: StoredWorkspace, tmp_path: Path, place: str
) -> None:
    result = await brought(
        workspace, written.lines(tmp_path / "s.jsonl", _with_a_key(place, tmp_path))
    )
    assert list(result.keys) == [KEY]
    assert KEY in await stored(workspace)
    await workspace.forget_content(text=KEY)
    assert KEY not in await stored(workspace)


@pytest.mark.parametrize("line", range(1, 8))
async def test_a_line_that_is_damaged_later_takes_nothing_away_from_what_was_imported(
    workspace: StoredWorkspace, tmp_path: Path, line: int
) -> None:
    """Seen: a few bytes were overwritten, and the next import took the call and its
    output out of the conversation.
    """
    path = written.claude(tmp_path)
    await brought(workspace, path)
    (facts,) = await whole(workspace)
    before = [one.fact for one in build_state(facts).facts_on_path() if isinstance(one.fact, SAID)]
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = list(lines)
    damaged[line] = b"#" * (len(lines[line]) - 1) + b"\n"
    path.write_bytes(b"".join(damaged))
    await brought(workspace, path)
    (facts,) = await whole(workspace)
    assert [
        one.fact for one in build_state(facts).facts_on_path() if isinstance(one.fact, SAID)
    ] == before
    more = [
        written.claude_said(9, 8, "go on"),
        written.claude_reply(10, 9, "m4", written.text("Gone on.")),
    ]
    appended = [json.dumps(value).encode() + b"\n" for value in more]
    path.write_bytes(b"".join(damaged + appended))
    await brought(workspace, path)
    (facts,) = await whole(workspace)
    after = [one.fact for one in build_state(facts).facts_on_path() if isinstance(one.fact, SAID)]
    kept = len(after) - 2
    if line < 7:  # What was damaged is the last message from here.
        kept = len(before)
    assert (after[:kept], len(after)) == (before[:kept], kept + 2)


@pytest.mark.parametrize("kind", ["codex", "pi"])
async def test_a_first_line_that_is_damaged_later_makes_no_second_conversation(
    workspace: StoredWorkspace, tmp_path: Path, kind: str
) -> None:
    """Only the first line and the file's name say which session it is."""
    path = written.KINDS[kind](tmp_path)
    (first,) = (await brought(workspace, path)).imported
    _damage(path, 0)
    await brought(workspace, path)
    assert [row.id for row in await workspace.journal.list_conversations()] == [first.id]


async def test_words_of_the_user_that_replaced_others_are_no_damage(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """The agent went back and asked otherwise; another line of its file cannot be read."""
    path = written.claude(tmp_path)
    await brought(workspace, path)
    session = written.claude_session()
    session[0] = written.claude_said(1, None, "list something else")
    without_four = session[:1] + session[5:]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in without_four) + "{broken\n")
    await brought(workspace, path)
    (facts,) = await whole(workspace)
    said = [
        one.fact for one in build_state(facts).facts_on_path() if isinstance(one.fact, UserSaid)
    ]
    assert (
        next(part.text for fact in said for part in fact.parts if isinstance(part, Text))
        == "list something else"
    )


async def stored(workspace: StoredWorkspace) -> str:
    """Every fact, and every content a fact refers to that is still there."""
    facts = [one for facts in await whole(workspace) for one in facts]
    digests = [digest for one in facts for _, digest in entries_used_by(one.fact)]
    contents = await workspace.cache.read_contents(list(dict.fromkeys(digests)))
    return f"{facts}{contents}"


@pytest.mark.parametrize(("together", "stopped_at"), [(0, 2), (1_000, 1)])
async def test_a_stopped_import_leaves_whole_conversations_and_the_next_goes_on(
    together: int,
    stopped_at: int,
    workspace: StoredWorkspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_imports, "TOGETHER", together)
    paths = [written.claude(tmp_path), written.pi(tmp_path), written.codex(tmp_path)]
    work = HistoryImport(workspace, Words())
    seen: list[str] = []

    def report(_done: int, _total: int, file: str) -> None:
        seen.append(file)
        if len(seen) == stopped_at:
            task.cancel()

    task = asyncio.ensure_future(work.import_files(paths, report))  # noqa: TID251
    with pytest.raises(asyncio.CancelledError):
        await task
    for facts in await whole(workspace):
        assert isinstance(facts[-1].fact, BroughtIn)
    before = len(work.result.imported)
    goes_on = HistoryImport(workspace, Words(), result=work.result)
    result = await goes_on.import_files(paths)
    assert (len(result.imported), len(result.unchanged_conversations)) == (3, 0)
    assert before < 3
    assert len(await whole(workspace)) == 3


# An import that goes on elsewhere.

PROTOCOLS: dict[str, tuple[type[Peer], Callable[..., Answer]]] = {
    "openai-chat": (ChatServer, chat_server.reply),
    "openai-responses": (ResponsesServer, responses_server.reply),
    "anthropic": (AnthropicServer, anthropic_server.reply),
    "gemini": (GeminiServer, gemini_server.reply),
}


async def said(session: Session, words: str) -> None:
    session.send_message((Text(words),))
    await asyncio.wait_for(session.wait_until_idle(), 60)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_every_kind_goes_on_with_every_protocol(tmp_path: Path, protocol: str) -> None:
    peer, reply = PROTOCOLS[protocol]
    where = program_folders.find_program_folders(tmp_path / "home")
    (tmp_path / "project").mkdir()
    with peer(default=strictly(protocol, lambda _: reply("Gone on."))) as server:
        desk = Workbenches(
            where, SecretStorage(where.key_file, environ={"A_KEY": "k"}), clock=ClockWithoutPauses()
        )
        desk.configured.save_provider(
            ProviderConfig("peer", protocol, base_url=server.base_url, variable="A_KEY")
        )
        bench = await desk.create_workspace("Seen", tmp_path / "project")
        await bench.choose_model_for_role("peer/scripted")
        files = [make(tmp_path / kind) for kind, make in written.KINDS.items()]
        result = await bench.import_histories(files)
        assert len(result.imported) == len(written.KINDS)
        for one in result.imported:
            session = await bench.open_session(one.id)
            await said(session, "go on")
            ended = next(
                fact.fact
                for fact in reversed(session.all_facts)
                if isinstance(fact.fact, TurnEnded)
            )
            assert ended.reason is TurnEnd.DONE, f"{one.kind}: {ended.why}"
            assert "I look." in json.dumps(server.bodies[-1])
        assert [wrong for body in server.bodies for wrong in RULES[protocol](body)] == []
        await desk.aclose()


async def test_the_list_shows_what_stands_in_the_window_and_what_was_paid_here(
    tmp_path: Path,
) -> None:
    """As it is before anybody opens the conversation, and after a restart; what the
    other program paid today is not ours.
    """
    (tmp_path / "project").mkdir()
    path = written.pi(tmp_path)
    paid = '"role": "assistant", "usage": {"input": 50, "output": 5, "cost": {"total": 1.25}}'
    now = datetime.now(UTC).isoformat()
    path.write_text(
        path.read_text()
        .replace('"role": "assistant"', paid)
        .replace("2026-01-02T03:04:05.000Z", now)
    )
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(where, SecretStorage(where.key_file), clock=ClockWithoutPauses())
    bench = await desk.create_workspace("Seen", tmp_path / "project")
    (one,) = (await bench.import_histories([path])).imported
    (row,) = bench.list_conversations()
    assert sum(row.parts.values()) > 0
    session = await bench.open_session(one.id)
    assert (
        sum(
            isinstance(fact.fact, ModelReplied) and fact.fact.usage.cost == 1.25
            for fact in session.all_facts
        )
        == 3
    )
    await bench.predict_next_request(one.id)
    assert (row.parts, row.window) == (
        session.context.next_request_meter().parts,
        session.context.next_request_meter().window,
    )
    assert session.conversation.state.savings_until_moment().steps == 0
    await desk.aclose()
    again = Workbenches(where, SecretStorage(where.key_file), clock=ClockWithoutPauses())
    bench = await again.open_workspace(bench.id)
    (kept,) = bench.list_conversations()
    assert (kept.parts, kept.recorded_from, row.recorded_from) == (row.parts, "pi", "pi")
    rows = ConversationListRows(bench.workspace.journal)
    await rows.read_all_rows()
    assert (row.cost, rows.cost_today_and_ever()) == (0.0, (0.0, 0.0))
    await again.aclose()


# --- a file that its program wrote anew


def claude_compacted() -> list[dict[str, Any]]:
    """What the session is after a compaction that wrote the file anew: a summary, the
    last turn, and a new one.
    """
    summary = "This session goes on from an earlier one. The files were listed."
    return [
        written.claude_line(
            20, "system", None, subtype="compact_boundary", content="Conversation compacted"
        ),
        written.claude_said(21, 20, summary, isCompactSummary=True),
        written.claude_said(7, 21, "and again"),
        written.claude_reply(8, 7, "m3", written.text("Again.")),
        written.claude_said(9, 8, "once more"),
        written.claude_reply(10, 9, "m4", written.text("Once more.")),
    ]


def codex_compacted(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    summary = {"type": "compacted", "payload": {"message": "The files were listed."}, "timestamp": rows[-1]["timestamp"]}  # fmt: skip
    more = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "More."}],
    }
    last_time = rows[-1]["timestamp"]
    reply = {"type": "response_item", "payload": more, "timestamp": last_time}
    return rows[:2] + [summary] + rows[-2:] + [reply]


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
async def test_a_compaction_that_wrote_the_file_anew_is_a_fold_over_what_stood_before(
    workspace: StoredWorkspace, tmp_path: Path, kind: str
) -> None:
    path = written.KINDS[kind](tmp_path)
    await brought(workspace, path)
    (before,) = await whole(workspace)
    if kind == "claude-code":
        written.lines(path, claude_compacted())
    else:
        written.lines(path, codex_compacted(path))
    said = [one.seq for one in before if isinstance(one.fact, UserSaid)]
    for _ in range(2):  # the second time nothing is new
        await brought(workspace, path)
        (facts,) = await whole(workspace)
        assert facts[: len(before)] == before
        assert not any(isinstance(one.fact, Rewound) for one in facts)
        (fold,) = [one.fact for one in facts if isinstance(one.fact, Folded)]
        assert "The files were listed." in fold.text
        assert isinstance(fold.cover, Span)
        assert fold.cover.first == said[0]
        assert fold.cover.last < said[-1], "the last turn was kept"
        state = build_state(facts)
        assert fold.fold in state.branch.live
        assert len(state.facts_on_path()) == len(facts)


async def test_a_session_goes_on_behind_a_compaction_that_wrote_the_file_anew(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    path = written.KINDS["claude-code"](tmp_path)
    await brought(workspace, path)
    written.lines(path, claude_compacted())
    await brought(workspace, path)
    more = json.dumps(written.claude_said(11, 10, "at last"))
    path.write_text(f"{path.read_text('utf-8')}{more}\n", "utf-8")
    await brought(workspace, path)
    (facts,) = await whole(workspace)
    assert "at last" in user_texts(facts)


async def test_a_file_whose_beginning_was_cut_off_loses_nothing(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    path = written.claude(tmp_path)
    await brought(workspace, path)
    (before,) = await whole(workspace)
    kept = [written.claude_said(7, None, "and again")] + claude_compacted()[3:]
    written.lines(path, kept)
    await brought(workspace, path)
    (facts,) = await whole(workspace)
    assert facts[: len(before)] == before
    assert not [one for one in facts if isinstance(one.fact, Rewound)]
    texts = [part.text for one in facts if isinstance(one.fact, UserSaid) for part in one.fact.parts if isinstance(part, Text)]  # fmt: skip
    assert texts == ["list the files", "and again", "once more"]


def _damage(path: Path, *numbers: int) -> None:
    """Overwrite bytes of these lines in place, as a failing disk or a crash does."""
    rows = path.read_bytes().splitlines(keepends=True)
    for number in numbers:
        rows[number] = rows[number][:20] + b"\0" * 30 + rows[number][50:]
    path.write_bytes(b"".join(rows))


def _append_line(path: Path, value: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


async def _said_on_path(workspace: StoredWorkspace, conversation: str) -> list[Fact]:
    facts = await workspace.journal.read_facts(conversation)
    kinds = (UserSaid, ModelReplied, ToolReturned)
    return [one.fact for one in build_state(facts).facts_on_path() if isinstance(one.fact, kinds)]


@pytest.mark.parametrize("damaged", [(0, 3, 4), (1, 4), (2,), (3, 4, 5, 6), (5, 7), range(8)])
async def test_lines_that_cannot_be_read_any_more_push_out_nothing_that_was_recorded(
    workspace: StoredWorkspace, tmp_path: Path, damaged: tuple[int, ...]
) -> None:
    path = written.claude(tmp_path)
    (first,) = (await brought(workspace, path)).imported
    before = await _said_on_path(workspace, first.id)
    _damage(path, *damaged)
    result = await brought(workspace, path)
    assert await _said_on_path(workspace, first.id) == before
    if len(damaged) < 8:
        assert any(one.endswith(KEPT_DESPITE_DAMAGE) for one in result.complaints)
        _append_line(path, written.claude_said(9, 8, "and a third time"))
        _append_line(path, written.claude_reply(10, 9, "m4", written.text("A third")))
        await brought(workspace, path)
        _append_line(
            path, written.claude_reply(11, 10, "m4", written.use("t9"))
        )  # The reply was still being written.
        _append_line(path, written.claude_said(12, 11, [written.result("t9", "the new result")]))
        await brought(workspace, path)
        after = await _said_on_path(workspace, first.id)
        assert after[: len(before)] == before
        assert [type(one) for one in after[len(before) :]] == [UserSaid, ModelReplied, ToolReturned]
        assert len(after[-2].parts) == 2  # type: ignore[union-attr]
        ends = [
            one.fact
            for one in await workspace.journal.read_facts(first.id)
            if isinstance(one.fact, TurnEnded)
        ]
        assert [one.reason for one in ends if one.why.endswith(KEPT_DESPITE_DAMAGE)] == [
            TurnEnd.FAILED
        ]  # Said once.
    assert len(await workspace.journal.list_conversations()) == 1


async def test_what_was_forgotten_does_not_come_back_from_a_damaged_file_either(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    path = written.claude(tmp_path)
    (first,) = (await brought(workspace, path)).imported
    await workspace.forget_content(text="Again.")
    _damage(path, 3, 4)
    _append_line(path, written.claude_said(9, 8, "and a third time"))
    await brought(workspace, path)
    texts = [part.text for one in await _said_on_path(workspace, first.id) for part in getattr(one, "parts", ()) if isinstance(part, Text)]  # fmt: skip
    assert "and a third time" in texts
    assert "I look." in texts
    assert "Again." not in await stored(workspace)


async def test_what_is_new_goes_to_the_conversation_and_not_to_a_fork_of_it(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    path = written.lines(tmp_path / "s.jsonl", written.claude_session()[:2])
    (first,) = (await brought(workspace, path)).imported
    last = (await workspace.journal.read_facts(first.id))[-1].seq
    await workspace.journal.fork_conversation(first.id, last, "fork")
    written.lines(path, written.claude_session())
    assert {one.id for one in (await brought(workspace, path)).imported} == {first.id}


async def test_what_was_deleted_for_good_comes_back_only_by_hand(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    path = written.lines(tmp_path / "s.jsonl", written.claude_session()[:2])
    (first,) = (await brought(workspace, path)).imported
    other = written.codex(tmp_path / "other")
    (stays,) = (await brought(workspace, other)).imported
    await workspace.journal.fork_conversation(first.id, 2, "fork")
    find = history_imports.find_recorded_conversations
    assert set(await find(workspace)) == {first.id, stays.id, "fork"}
    assert await find(workspace, ["codex"]) == [stays.id]
    assert await find(workspace, before=1.0) == []
    gone = await find(workspace, ["claude-code"])
    assert set((await workspace.delete_conversations_for_good(gone)).conversations) == {
        first.id,
        "fork",
    }
    written.lines(path, written.claude_session())
    recorder = HistoryImport(workspace, Words(), SessionPreparation(copies=tmp_path / "copies"))
    assert (await recorder.import_files([path, other])).imported == []
    assert [row.id for row in await workspace.journal.list_conversations()] == [stays.id]
    assert [one.id for one in (await brought(workspace, path)).imported] == [first.id]


@pytest.mark.parametrize("has_times", [True, False])
async def test_what_is_new_after_a_deletion_is_recorded_and_nothing_older_comes_back(
    workspace: StoredWorkspace, tmp_path: Path, has_times: bool
) -> None:
    """A conversation that went on after `recorder forget` was never recorded again, and
    nothing said so.
    """
    lines = written.claude_session()
    titled = lines + [{"type": "ai-title", "aiTitle": "List the files"}]
    path = written.lines(tmp_path / "s.jsonl", titled)
    recorder = HistoryImport(workspace, Words(), SessionPreparation(copies=tmp_path / "copies"))
    (first,) = (await recorder.import_files([path])).imported
    await workspace.delete_conversations_for_good([first.id])
    file = workspace.folder / "deleted-conversations.txt"
    name, time = file.read_text("utf-8").split()
    assert name == first.id
    assert abs(float(time) - clock.time()) < 600
    at = datetime.fromisoformat("2026-01-02T03:05:00Z").timestamp()
    if has_times:
        file.write_text(f"{first.id} {at}\n", "utf-8")
    else:
        file.write_text(f"{first.id}\n", "utf-8")
    os.utime(
        file, (at, at)
    )  # An earlier version wrote no times: nothing was deleted after the file was changed.
    later = [
        written.claude_said(9, 8, "list the files again", isCompactSummary=True),
        written.claude_reply(10, 9, "m9", written.text("Files, again."), requestId=""),
        written.claude_said(11, 10, "what is new?"),
        written.claude_reply(12, 11, "m10", written.text("This."), written.use("t9")),
        written.claude_said(13, 12, [written.result("t9", "new output")]),
    ]
    for second, line in enumerate(later):
        line["timestamp"] = f"2026-01-02T03:06:{second:02}.000Z"
    for count in (3, 4, 5):
        values = lines + [
            {"type": "ai-title", "aiTitle": "List the files"},
            {"type": "queue", "x": "list"},
        ]
        values += later[:count]
        written.lines(path, values)
        recorder = HistoryImport(workspace, Words(), SessionPreparation(copies=tmp_path / "copies"))
        assert [one.id for one in (await recorder.import_files([path])).imported] == [first.id] * (
            count > 3
        )
    (row,) = await workspace.journal.list_conversations()
    assert (row.id, row.title) == (first.id, "what is new?")
    facts = [one.fact for one in await workspace.journal.read_facts(row.id)]
    assert [type(fact) for fact in facts if isinstance(fact, SAID)] == [
        UserSaid,
        ModelReplied,
        ToolReturned,
    ]
    told = " ".join(map(fact_encoding.encode_fact, facts))
    assert ("what is new?" in told, "list the files" in told, "List the files" in told) == (
        True,
        False,
        False,
    )
    assert not any(isinstance(fact, Folded) or getattr(fact, "unread", None) for fact in facts)
    (again,) = (await brought(workspace, path)).imported
    assert again.id == first.id
    assert "list the files" in str(
        build_state(await workspace.journal.read_facts(row.id)).get_view().blocks
    )
    recorder = HistoryImport(workspace, Words(), SessionPreparation(copies=tmp_path / "copies"))
    goes_on = [
        written.claude_said(14, 13, "go on"),
        written.claude_reply(15, 14, "m11", written.text("I do.")),
    ]
    written.lines(path, values + goes_on)
    await recorder.import_files([path])
    assert "list the files" in str(
        build_state(await workspace.journal.read_facts(row.id)).get_view().blocks
    )


@pytest.mark.parametrize("named", [True, False])
async def test_what_the_gateway_records_too_is_stored_once_and_what_went_on_without_it_follows(
    workspace: StoredWorkspace, tmp_path: Path, named: bool
) -> None:
    """A wrapped run with the recorder on was stored twice, and listed twice under the same
    title. Some agents do not name their sessions.
    """
    lines = written.claude_session()

    async def said_after_import(*session: dict[str, Any]) -> list[str]:
        path = written.lines(tmp_path / f"{session[0]['sessionId']}.jsonl", session)
        recorder = HistoryImport(workspace, Words(), SessionPreparation(copies=tmp_path / "copies"))
        await recorder.import_files([path])
        facts = await workspace.journal.read_facts("connected")
        texts = []
        for recorded in build_state(facts).facts_on_path():
            if isinstance(recorded.fact, UserSaid | ModelReplied):
                parts = recorded.fact.parts
                texts += [part.text.strip() for part in parts if isinstance(part, Text)][-1:]
        return texts

    second = datetime.fromisoformat(lines[2]["timestamp"]).timestamp()
    said = UserSaid(
        (Text("<system-reminder>\nBe brief.\n</system-reminder>", 5), Text("list the files", 3))
    )
    reply = ModelReplied(
        (Text(" I look.\n", 2), ToolCall("call-1", "Bash", '{"command":"ls"}')), "m", Stop.CALLS
    )
    received = Received(("hash",), (1,), lines[0]["sessionId"] if named else "")
    begun = ConversationStarted(agent="Claude Code"), said, received, reply
    await workspace.journal.append_imported_facts("connected", [(second, fact) for fact in begun])
    other = [
        {**line, "sessionId": "other"}
        for line in (lines[0], written.claude_reply(2, 1, "m1", written.text("No.")))
    ]
    seen_live = ["list the files", "I look."]
    # The same words in the same minute, but another reply: another session.
    assert await said_after_import(*other) == seen_live
    assert len(await workspace.journal.list_conversations()) == 2
    assert await said_after_import(*lines[:3]) == seen_live
    done = ModelReplied((Text("Done."),), "m", Stop.END)
    await workspace.journal.append_imported_facts("connected", [(second + 3, done)])
    seen_live.append("Done.")
    assert await said_after_import(*lines[:6]) == seen_live
    # The user went on a few seconds later, without the gateway.
    seen_live += ["and again", "Again."]
    assert await said_after_import(*lines) == seen_live
    more = written.claude_reply(9, 8, "m4", written.text("It cost nothing."))
    assert await said_after_import(*lines, more) == [*seen_live, "It cost nothing."]
    rows = await workspace.journal.list_conversations()
    assert sorted((row.title, row.archived) for row in rows) == [
        ("", False),
        ("list the files", False),
    ]


async def test_what_went_through_the_gateway_later_is_archived_once_and_stays_listed_if_the_user_wants_it(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """A conversation that was given to Codex and went on through the gateway stood in
    the list three times.
    """
    lines = written.claude_session()
    path = tmp_path / "s.jsonl"

    async def is_archived_after_import(count: int) -> bool:
        written.lines(path, lines[:count])
        recorder = HistoryImport(workspace, Words(), SessionPreparation(copies=tmp_path / "copies"))
        await recorder.import_files([path])
        return (await workspace.journal.find_conversation(found)).archived

    written.lines(path, lines[:5])
    found = (await brought(workspace, path)).imported[0].id
    second = datetime.fromisoformat(lines[5]["timestamp"]).timestamp()
    received = Received(("hash",), (1,), lines[0]["sessionId"])
    begun = ConversationStarted(agent="Codex"), UserSaid((Text("go on"),)), received
    await workspace.journal.append_imported_facts("connected", [(second, fact) for fact in begun])
    assert await is_archived_after_import(6), "its reply is under way"
    done = ModelReplied((Text("Done."),), "m", Stop.END)
    await workspace.journal.append_imported_facts("connected", [(second + 1, done)])
    assert await is_archived_after_import(7)
    listed = ConversationChanged(archived=False)
    await workspace.journal.append_imported_facts(found, [(second + 2, listed)])
    again = ModelReplied((Text("Again."),), "m", Stop.END)
    await workspace.journal.append_imported_facts("connected", [(second + 3, again)])
    assert not await is_archived_after_import(8)


@pytest.mark.parametrize("agent", ["codex", "pi", "gemini", "claude"])
async def test_a_copy_given_to_an_agent_is_listed_as_soon_as_that_agent_says_something(
    workspace: StoredWorkspace, tmp_path: Path, agent: str
) -> None:
    """After "Continue in Codex", the same conversation stood in the list twice at once."""
    (first,) = (await brought(workspace, written.claude(tmp_path))).imported
    facts = await workspace.journal.read_facts(first.id)
    request = RestoreRequest(first.id, agent, "/home/me/project")
    names = {"codex": "rollout-copy.jsonl", "gemini": "chats/session-copy.jsonl"}
    path = tmp_path / names.get(agent, "copy.jsonl")
    path.parent.mkdir(exist_ok=True)
    copy = build_restored_session(facts, lambda _: written.OUTPUT.encode(), request)
    path.write_bytes(copy.content)

    async def is_archived_after_import() -> bool:
        recorder = HistoryImport(workspace, Words(), SessionPreparation(copies=tmp_path / "copies"))
        (one,) = (await recorder.import_files([path])).imported
        return (await workspace.journal.find_conversation(one.id)).archived

    assert await is_archived_after_import()
    on: list[Fact] = [UserSaid((Text("on", 1),)), ModelReplied((Text("More."),), "m", Stop.END)]
    time = facts[-1].time + 60
    went_on = list(facts)
    for seq, fact in enumerate(on, len(facts) + 1):
        went_on.append(Recorded(first.id, seq, time + seq, fact))
    again = build_restored_session(went_on, lambda _: written.OUTPUT.encode(), request)
    path.write_bytes(again.content.replace(again.session.encode(), copy.session.encode()))
    assert not await is_archived_after_import()
    assert not (await workspace.journal.find_conversation(first.id)).archived


async def test_requests_are_paid_once_though_the_gateway_took_over_what_came_before_it(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """The gateway notes messages that it did not see as brought in, so its conversation
    counted as an import.
    """
    lines = written.claude_session()
    usage = Usage(input=100, output=20)
    second = datetime.fromisoformat(lines[5]["timestamp"]).timestamp()
    received = Received(("hash",), (1,), lines[0]["sessionId"])
    begun = ConversationStarted(agent="Claude Code"), UserSaid((Text("list the files"),)), received
    before = BroughtIn(Origin(), "", 2)
    done = ModelReplied((Text("Done."),), "claude-sonnet-4-5", Stop.END, usage)
    connected = [(second, fact) for fact in begun + (before, done)]
    await workspace.journal.append_imported_facts("connected", connected)
    await brought(workspace, written.lines(tmp_path / "s.jsonl", lines))
    assert [row.id for row in await workspace.journal.list_conversations()][1:] == ["connected"]
    paid = await cost_command._read_requests_of_agents(workspace)
    assert [counted.request.tokens for counted in paid] == [100, 100, 100]


async def test_a_reply_that_was_read_while_it_was_written_is_paid_once(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    lines = written.claude_session()
    path = tmp_path / "s.jsonl"
    for count in (2, 3, 4, 5, 6, 7, 8):
        written.lines(path, lines[:count])
        await brought(workspace, path)
    (row,) = await workspace.journal.list_conversations()
    facts = await workspace.journal.read_facts(row.id)
    replies = [
        one.fact for one in build_state(facts).facts_on_path() if isinstance(one.fact, ModelReplied)
    ]
    assert len(replies) == 3 < sum(isinstance(one.fact, ModelReplied) for one in facts)
    paid = build_state(facts).record.ledger.dollars_until(row.last_seq)
    assert paid == pytest.approx(sum(reply.usage.cost for reply in replies))


async def test_lines_that_nobody_reads_are_kept_as_they_are(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    path = written.lines(tmp_path / "s.jsonl", written.claude_session()[:2])
    strange = [
        b'{"type":  "of-tomorrow", "x": 1}',
        b"no json \xff",
        b'{"type": "user", "message": {"content": 3}}',
    ]

    def add(lines: list[bytes], end: bytes = b"") -> None:
        with path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines) + end)

    async def kept() -> list[bytes]:
        facts = await workspace.journal.read_facts(first.id)
        found = [
            one.fact.unread for one in facts if isinstance(one.fact, BroughtIn) and one.fact.unread
        ]
        assert all(
            entries_used_by(one.fact)
            for one in facts
            if isinstance(one.fact, BroughtIn) and one.fact.unread
        )
        return [await workspace.cache.read_content(stored.digest) for stored in found]

    add(strange[:1], end=b'{"type": "half')
    (first,) = (await brought(workspace, path)).imported
    assert await kept() == [strange[0]]
    written.lines(path, written.claude_session())
    add(strange)
    await brought(workspace, path)
    assert await kept() == [strange[0], b"\n".join(strange[1:])]


@pytest.mark.parametrize("time", ["1" + "0" * 400, "-1" + "0" * 400, "1e400"])
async def test_a_line_that_cannot_be_read_stops_neither_its_session_nor_the_others(
    workspace: StoredWorkspace, tmp_path: Path, time: str
) -> None:
    """One number in one line ended the whole import, each time."""
    for name, odd in (("a", "0"), ("b", time), ("c", "0")):
        (tmp_path / f"{name}.jsonl").write_text(
            f"{_line('user', name, odd)}\n{_line('assistant', name, odd)}\n"
        )
    result = await brought(workspace, *sorted(tmp_path.glob("?.jsonl")))
    assert [one.title for one in result.imported] == ["said in a", "said in b", "said in c"]


async def test_a_session_that_breaks_its_reader_is_named_and_the_others_are_imported(
    workspace: StoredWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    expect("a history could not be read: TypeError")
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text(
            f"{_line('user', name, '0')}\n{_line('assistant', name, '0')}\n"
        )
    right = history_facts.draft_facts

    def break_at_b(recording: Any, *rest: Any) -> Any:
        if "b" in recording.session:
            raise TypeError
        return right(recording, *rest)

    monkeypatch.setattr(history_facts, "draft_facts", break_at_b)
    result = await brought(workspace, *sorted(tmp_path.glob("?.jsonl")))
    assert [one.title for one in result.imported] == ["said in a", "said in c"]
    assert any("can't be read" in one for one in result.complaints)


async def test_a_compaction_of_codex_that_an_earlier_version_read_without_usage_stays_as_it_is(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """Its usage is read now. The next import must not replace everything after it for that."""

    def event(kind: str, **payload: object) -> dict[str, object]:
        return {"timestamp": "2026-11-26T14:26:00Z", "type": kind, "payload": payload}

    def said(role: str, text: str) -> dict[str, object]:
        return event(
            "response_item",
            type="message",
            role=role,
            content=[{"type": "input_text", "text": text}],
        )

    usage = {"input_tokens": 9_244, "output_tokens": 15}
    lines = [
        event("session_meta", id="s", cwd="/work"),
        said("user", "Count all the rows of the big listing, please"),
        said("assistant", "There are many more rows than I could tell in a word"),
        said("assistant", "The summary"),
        event("token_usage_record", usage=usage),
        event("compacted", message="Short."),
        said("user", "more"),
    ]
    path = written.lines(
        tmp_path / "rollout-s.jsonl", [one for one in lines if one["type"] != "token_usage_record"]
    )
    (first,) = (await brought(workspace, path)).imported
    written.lines(path, lines + [said("assistant", "Here is more")])
    (again,) = (await brought(workspace, path)).imported
    facts = await workspace.journal.read_facts(first.id)
    assert again.id == first.id
    assert any(isinstance(one.fact, Folded) for one in facts)
    assert not any(isinstance(one.fact, Rewound) for one in facts)
