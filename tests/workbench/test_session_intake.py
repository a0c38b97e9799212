"""One session of an agent has one conversation, whoever saw it first."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from helix_desktop.commands import cost_command
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    Fact,
    ModelReplied,
    Purpose,
    Received,
    Spent,
    Stop,
    Text,
    ToolCall,
    Usage,
    UserSaid,
)
from helix_desktop.histories import kept_lines
from helix_desktop.histories.conversation_restoring import (
    RestoreRequest,
    build_restored_session,
    digests_needed_for_restoring,
)
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench import history_imports
from helix_desktop.workbench.history_imports import HistoryImport, ImportResult
from helix_desktop.workbench.session_intake import (
    REPLY_SECONDS,
    RepliesUnderWay,
    id_of_imported_session,
)
from helix_desktop.workbench.session_preparation import SessionPreparation
from tests.histories import written
from tests.workbench.test_history_imports import Words, workspace

__all__ = ["workspace"]

PAID = Usage(100, cache_read=60, cache_write=30, output=20)


async def record(workspace: StoredWorkspace, path: Path) -> ImportResult:
    """Import as the recorder does, which brings nothing back that was deleted."""
    preparation = SessionPreparation(copies=path.parent / "copies")
    return await HistoryImport(workspace, Words(), preparation).import_files([path])


async def see_live(
    workspace: StoredWorkspace, lines: list[dict[str, Any]], *, session: str = "session-1"
) -> None:
    """Record the first two replies of the written session as the gateway does."""
    second = datetime.fromisoformat(lines[2]["timestamp"]).timestamp()
    call = ToolCall("t1", "Bash", '{"command":"ls"}')
    seen: list[Fact] = [
        ConversationStarted("list the files", agent="Claude Code"),
        UserSaid((Text("list the files"),)),
        Received(("hash",), (2,), session),
        ModelReplied((Text("I look."), call), "claude-sonnet-4-5", Stop.CALLS, PAID),
        ModelReplied((Text("Done."),), "claude-sonnet-4-5", Stop.END, PAID),
    ]
    times = [second, second, second, second, second + 2]
    await workspace.journal.append_imported_facts("live", [*zip(times, seen, strict=True)])


async def test_a_session_that_the_gateway_saw_is_one_conversation_and_its_parts_are_paid_once(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    lines = written.claude_session()
    await see_live(workspace, lines)
    path = tmp_path / "session-1.jsonl"
    for count in (2, 3, 4, 5, 6, 7, 8):
        await record(workspace, written.lines(path, lines[:count]))
    (row,) = await workspace.journal.list_conversations()
    facts = [recorded.fact for recorded in await workspace.journal.read_facts(row.id)]
    said = [
        part.text
        for fact in facts
        if isinstance(fact, ModelReplied)
        for part in fact.parts
        if isinstance(part, Text)
    ]
    assert (row.id, said) == ("live", ["I look.", "Done.", "Again."])
    paid = await cost_command._read_requests_of_agents(workspace)
    assert [counted.request.tokens for counted in paid] == [100, 100, 100]
    # One note that the file is known, and one with what is new.
    assert sum(isinstance(fact, BroughtIn) for fact in facts) == 2
    # A recorder that starts again does not read the file again.
    stamps = history_imports.stamps_at_last_import(await workspace.journal.facts_about_imports())
    assert stamps[str(path)] == history_imports.stamp_of_history_file(path)


async def test_a_session_that_was_seen_live_is_given_back_in_its_agents_own_lines(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    lines = written.claude_session()
    await see_live(workspace, lines)
    path = written.lines(tmp_path / "session-1.jsonl", lines)
    await record(workspace, path)
    facts = await workspace.journal.read_facts("live")
    contents = await workspace.cache.read_contents(digests_needed_for_restoring(facts))
    request = RestoreRequest("live", "claude", "/home/me/project")
    whole = build_restored_session(facts, contents.get, request)
    assert whole.is_original
    assert whole.content.startswith(path.read_bytes()[:20])
    # What went on without the gateway and was not read yet is not among the replies here.
    more = written.claude_reply(9, 8, "m4", written.text("It cost nothing."))
    written.lines(path, [*lines, more])
    as_recorded = build_restored_session(facts, contents.get, request)
    assert as_recorded.is_original
    assert b"It cost nothing." not in as_recorded.content
    path.unlink()
    kept = set(kept_lines.digests_of_kept_lines(facts))
    without_kept_lines = {digest: contents[digest] for digest in contents if digest not in kept}
    from_facts = build_restored_session(facts, without_kept_lines.get, request)
    assert not from_facts.is_original
    assert b"(restored)" in from_facts.content, "it is the same agent's"


async def test_a_session_seen_live_whose_file_is_gone_comes_back_with_what_only_the_file_had(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """The gateway was not shown the long text that the agent noted for itself."""
    lines = written.claude_session()
    note = written.claude_said(5, 4, "a note of the agent's own " * 20)
    lines.insert(5, {**note, "uuid": "note", "isMeta": True})
    await see_live(workspace, lines)
    path = written.lines(tmp_path / "session-1.jsonl", lines)
    await record(workspace, path)
    path.unlink()
    facts = await workspace.journal.read_facts("live")
    contents = await workspace.cache.read_contents(digests_needed_for_restoring(facts))
    request = RestoreRequest("live", "claude", "/home/me/project")
    restored = build_restored_session(facts, contents.get, request)
    assert restored.is_original
    assert b"a note of the agent's own" in restored.content


async def test_what_was_deleted_for_good_is_not_imported_again_from_its_file(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    lines = written.claude_session()
    await see_live(workspace, lines)
    path = written.lines(tmp_path / "session-1.jsonl", lines)
    await record(workspace, path)
    trashed = ConversationChanged(trashed=True)
    await workspace.journal.append_imported_facts("live", [(0.0, trashed)])
    await workspace.delete_conversations_for_good()
    assert (await record(workspace, path)).imported == []
    assert await workspace.journal.list_conversations() == ()


async def test_an_import_that_appended_to_a_live_session_can_be_undone_and_comes_back(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    lines = written.claude_session()
    await see_live(workspace, lines)
    path = written.lines(tmp_path / "session-1.jsonl", lines)
    run = (await record(workspace, path)).run
    assert await history_imports.undo_import(workspace, run) == (1, [])
    (back,) = (await record(workspace, path)).imported
    assert (back.id, back.state, back.messages) == ("live", "more", 2)


async def test_a_sub_agent_of_a_live_session_stands_below_it(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    lines = written.claude_session()
    await see_live(workspace, lines)
    path = written.lines(tmp_path / "projects" / "-p" / "session-1.jsonl", lines[:6])
    agent = [
        {**line, "agentId": "a1", "isSidechain": True}
        for line in (
            written.claude_said(1, None, "look"),
            written.claude_reply(2, 1, "n1", written.text("I see.")),
        )
    ]
    below = written.lines(path.with_suffix("") / "subagents" / "agent-a1.jsonl", agent)
    await HistoryImport(workspace, Words()).import_files([path, below])
    rows = {row.id: row.parent for row in await workspace.journal.list_conversations()}
    assert sorted(rows.values()) == ["", "live"]


async def test_two_sessions_that_begin_alike_do_not_share_a_conversation(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """An agent that does not name its session is recognised by how the session begins."""
    lines = written.claude_session()
    await see_live(workspace, lines, session="")
    for name in ("session-1", "session-2"):
        named = [{**line, "sessionId": name} for line in lines]
        await record(workspace, written.lines(tmp_path / f"{name}.jsonl", named))
    rows = await workspace.journal.list_conversations()
    assert len(rows) == 2
    facts = await workspace.journal.read_facts("live")
    origins = {one.fact.origin.session for one in facts if isinstance(one.fact, BroughtIn)}
    assert origins == {"session-1"}


async def test_what_was_seen_live_is_not_among_what_was_recorded_of_an_agent(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """`conversation delete --agent` deletes what came from files alone."""
    lines = written.claude_session()
    await see_live(workspace, lines)
    await record(workspace, written.lines(tmp_path / "session-1.jsonl", lines))
    other = [{**line, "sessionId": "session-2"} for line in lines[6:]]
    (own,) = (await record(workspace, written.lines(tmp_path / "session-2.jsonl", other))).imported
    find = history_imports.find_recorded_conversations
    assert await find(workspace, ["claude-code"]) == [own.id]
    assert await find(workspace) == [own.id]


async def test_a_session_over_acp_is_not_stored_again_and_goes_on_in_its_conversation(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """Its replies have other names for tools and no usage: the agent states the cost itself."""
    lines = written.claude_session()
    second = datetime.fromisoformat(lines[2]["timestamp"]).timestamp()
    call = ToolCall("t1", "execute", '{"title":"ls"}')
    seen: list[Fact] = [
        ConversationStarted("list the files", acp_agent="Claude Code"),
        UserSaid((Text("list the files"),)),
        Received((), (), "session-1"),
        ModelReplied((Text("I look."), call), "Claude Code", Stop.CALLS),
        ModelReplied((Text("Done."),), "Claude Code", Stop.END),
        Spent(Purpose.OTHER, "Claude Code", Usage(200, output=40, cost=0.5)),
    ]
    await workspace.journal.append_imported_facts("acp", [(second, fact) for fact in seen])
    path = tmp_path / "session-1.jsonl"
    assert (await record(workspace, written.lines(path, lines[:6]))).imported == []
    (more,) = (await record(workspace, written.lines(path, lines))).imported
    assert (more.id, more.messages) == ("acp", 2)
    (row,) = await workspace.journal.list_conversations()
    assert row.cost == 0.5


async def test_nothing_is_read_into_a_conversation_in_which_an_agent_is_answering(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    lines = written.claude_session()
    await see_live(workspace, lines)
    path = written.lines(tmp_path / "session-1.jsonl", lines)
    before = await workspace.journal.read_facts("live")
    preparation = SessionPreparation(copies=tmp_path / "copies")
    answering = HistoryImport(
        workspace, Words(), preparation, is_reply_under_way=lambda name: name == "live"
    )
    result = await answering.import_files([path])
    assert (result.imported, result.here) == ([], {"live"})
    assert await workspace.journal.read_facts("live") == before


def test_a_reply_under_way_is_over_when_it_ends_or_never_came() -> None:
    replies = RepliesUnderWay()
    assert not replies.is_reply_under_way("c")
    replies.remember_asked_reply("c")
    assert replies.is_reply_under_way("c")
    assert not replies.is_reply_under_way("d")
    replies._asked["c"] -= REPLY_SECONDS
    assert not replies.is_reply_under_way("c")
    replies.remember_asked_reply("c")
    replies.forget_asked_reply("c")
    replies.forget_asked_reply("c")
    assert not replies.is_reply_under_way("c")


def test_a_session_that_an_agent_names_has_the_id_of_its_import() -> None:
    own = id_of_imported_session("Claude Code", "session-1")
    assert own != id_of_imported_session("Codex", "session-1")
    below = id_of_imported_session("Claude Code", "session-1/a1")
    assert below == id_of_imported_session("Claude Code", "agent-a1")
    assert id_of_imported_session("Claude Code", "") == ""
    assert id_of_imported_session("an unknown agent", "session-1") == ""


def write_session_with_older_subagent(folder: Path) -> list[Path]:
    """A session of Claude Code that calls a sub-agent whose file lies beside it, and that file."""
    rows = written.claude_session()
    rows[3] = written.claude_reply(4, 3, "m1", written.use("t1", "Task", prompt="look around"))
    session = written.lines(folder / "session-1.jsonl", rows)
    rows_of_subagent = [
        written.claude_said(21, None, "look around", isSidechain=True, agentId="a1"),
        written.claude_reply(22, 21, "n1", written.text("Seen."), isSidechain=True, agentId="a1"),
    ]
    return [session, written.lines(folder / "agent-a1.jsonl", rows_of_subagent)]


async def import_by_hand(workspace: StoredWorkspace, *files: Path) -> list[str]:
    """Import the files, and return which sessions were new or grew."""
    result = await HistoryImport(workspace, Words()).import_files(files)
    assert result.complaints == []
    return [imported.session for imported in result.imported]


async def test_a_sub_agent_that_an_earlier_import_left_out_is_added_once_below_its_session(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """Earlier versions did not look for files of sub-agents that lie beside a session."""
    session, subagent = write_session_with_older_subagent(tmp_path)
    await import_by_hand(workspace, session)
    assert await import_by_hand(workspace, session, subagent) == ["agent-a1"]
    assert await import_by_hand(workspace, session, subagent) == []
    child, parent = await workspace.journal.list_conversations()
    assert (child.parent, child.parent_call, parent.parent) == (parent.id, "t1", "")


async def test_a_sub_agent_whose_file_is_named_first_stands_below_its_session(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """In a folder, the name of its file may come before that of its session's."""
    session, subagent = write_session_with_older_subagent(tmp_path)
    await import_by_hand(workspace, subagent, session)
    rows = await workspace.journal.list_conversations()
    (parent,) = [row for row in rows if not row.parent]
    assert [row.parent for row in rows if row.id != parent.id] == [parent.id]


async def test_a_sub_agent_that_came_without_its_session_is_put_below_it_once(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    """It was a conversation of its own, in the list, for ever."""
    session, subagent = write_session_with_older_subagent(tmp_path)
    await import_by_hand(workspace, subagent)
    await import_by_hand(workspace, session, subagent)
    rows = await workspace.journal.list_conversations()
    (parent,) = [row for row in rows if not row.parent]
    (child,) = [row for row in rows if row.id != parent.id]
    assert (child.parent, child.parent_call, child.title) == (parent.id, "t1", "look around")
    await import_by_hand(workspace, session, subagent)
    assert await workspace.journal.list_conversations() == rows
