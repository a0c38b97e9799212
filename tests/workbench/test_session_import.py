"""A session is written into its conversation: new, grown, forked, or beside another one."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Fact,
    Folded,
    FoldKind,
    Forgotten,
    ModelReplied,
    Origin,
    Recorded,
    Rewound,
    Span,
    Stop,
    Text,
    UserSaid,
)
from helix_desktop.histories import history_facts, kept_lines
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
    build_recorded_reply,
)
from helix_desktop.store.conversation_rows import conversation_id_of_session
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench import session_import
from helix_desktop.workbench.session_import import (
    EarlierImports,
    SessionToImport,
    SessionWriter,
)
from tests.workbench.test_history_imports import Words, workspace

__all__ = ["workspace"]


def said(text: str, at: float = 1.0, **more: Any) -> RecordedMessage:
    return RecordedMessage("user", text, time=at, **more)


def reply(text: str, at: float = 2.0) -> RecordedMessage:
    return build_recorded_reply([Text(text)], model="claude-sonnet-4-5", time=at)


FIRST = (said("go"), reply("done"))
SECOND = (said("more", 3.0), reply("later", 4.0))


def session(*messages: RecordedMessage, file: str = "/agent/s.jsonl", unread: tuple[bytes, ...] = (), **about: Any) -> SessionToImport:  # fmt: skip
    recording = replace(RecordedSession(file, messages, "codex", "s"), **about)
    made = history_facts.draft_facts(recording, Words(), lambda _: "")
    return SessionToImport(Path(file), recording, made, (9, 9), None, [], unread)


async def write(
    stored: StoredWorkspace, held: SessionToImport, earlier: EarlierImports | None = None
) -> SessionWriter:
    known = earlier or EarlierImports()
    conversation = known.conversation_of_recording(held.recording)
    writer = SessionWriter(stored, lambda _: nullcontext(), known, "run", held, conversation)
    await writer.write_session()
    return writer


async def facts_in(stored: StoredWorkspace, conversation: str) -> list[Fact]:
    return [one.fact for one in await stored.journal.read_facts(conversation)]


def texts(facts: list[Fact]) -> list[str]:
    said_here = (fact for fact in facts if isinstance(fact, UserSaid | ModelReplied))
    return [part.text for fact in said_here for part in fact.parts if isinstance(part, Text)]


async def test_a_session_becomes_a_conversation_once_and_grows(workspace: StoredWorkspace) -> None:
    first = await write(workspace, session(*FIRST))
    assert first.imported is not None
    assert (first.imported.state, first.imported.messages, first.new_from) == ("new", 2, 0)
    assert first.conversation == conversation_id_of_session("codex", "s")
    again = await write(workspace, session(*FIRST))
    assert (again.recorded, again.imported, again.new_from) == (None, None, 2)
    more = await write(workspace, session(*FIRST, *SECOND))
    assert more.imported is not None
    assert (more.imported.state, more.imported.messages, more.new_from) == ("more", 2, 2)
    facts = await facts_in(workspace, more.conversation)
    assert texts(facts) == ["go", "done", "more", "later"]
    assert sum(isinstance(fact, BroughtIn) for fact in facts) == 2


async def test_what_the_file_has_no_more_is_taken_back_and_the_rest_appended(
    workspace: StoredWorkspace,
) -> None:
    await write(workspace, session(*FIRST, *SECOND))
    other = await write(workspace, session(*FIRST, said("other", 3.0), reply("way", 4.0)))
    facts = await facts_in(workspace, other.conversation)
    assert [fact.to for fact in facts if isinstance(fact, Rewound)] == [4]
    assert texts(facts)[-2:] == ["other", "way"]


async def test_what_was_continued_here_stays_and_the_rest_is_a_fork(
    workspace: StoredWorkspace,
) -> None:
    first = await write(workspace, session(*FIRST))
    here = UserSaid((Text("said here"),))
    await workspace.journal.append_imported_facts(first.conversation, [(0.0, here)])
    fork = await write(workspace, session(*FIRST, *SECOND))
    assert fork.imported is not None
    assert (fork.imported.state, fork.imported.forked_from) == ("fork", first.conversation)
    assert texts(await facts_in(workspace, fork.conversation)) == ["go", "done", "more", "later"]
    assert texts(await facts_in(workspace, first.conversation))[-1] == "said here"
    again = await write(workspace, session(*FIRST))
    assert again.imported is None


async def test_another_session_of_the_same_name_is_a_conversation_beside_it(
    workspace: StoredWorkspace, tmp_path: Path
) -> None:
    original = tmp_path / "a.jsonl"
    original.write_text("")
    first = await write(workspace, session(*FIRST, *SECOND, file=str(original)))
    assert first.recorded is not None
    earlier = EarlierImports({("codex", "s"): first.recorded})
    held = session(said("another"), reply("one"), file=str(tmp_path / "b.jsonl"))
    other = await write(workspace, held, earlier)
    assert other.conversation != first.conversation
    assert other.session.recording.session.startswith("s#")
    assert texts(await facts_in(workspace, first.conversation)) == ["go", "done", "more", "later"]


async def test_a_branch_begins_as_a_fork_of_its_original_with_all_that_they_share(
    workspace: StoredWorkspace,
) -> None:
    first = await write(workspace, session(*FIRST, *SECOND))
    assert first.recorded is not None
    earlier = EarlierImports({("codex", "s"): first.recorded})
    held = session(*FIRST, said("other", 3.0), reply("way", 4.0), session="b", forked_from="s", forked_at=2)  # fmt: skip
    branch = await write(workspace, held, earlier)
    facts = await facts_in(workspace, branch.conversation)
    starts = [fact for fact in facts if isinstance(fact, ConversationStarted)]
    assert starts[0].origin == Origin(), "the beginning is the original's"
    assert (starts[-1].forked_from, starts[-1].forked_at) == (first.conversation, 3)
    assert texts(facts) == ["go", "done", "other", "way"]


async def test_a_fold_covers_the_same_messages_wherever_they_stand(
    workspace: StoredWorkspace,
) -> None:
    long = (said("go " * 60), reply("done " * 60))
    compaction = RecordedCompaction(4, 4, "Sum.", 5.0, "compacted")
    held = session(*long, *SECOND, said("on", 6.0), compactions=(compaction,))
    made = await write(workspace, held)
    recorded = await workspace.journal.read_facts(made.conversation)
    (fold,) = [one.fact for one in recorded if isinstance(one.fact, Folded)]
    assert isinstance(fold.cover, Span)
    covered = recorded[fold.cover.first - 1].fact, recorded[fold.cover.last - 1].fact
    assert isinstance(covered[0], UserSaid)
    assert isinstance(covered[1], ModelReplied)
    assert texts([*covered])[1] == "later"


async def test_lines_that_nobody_reads_are_stored_once_and_not_where_text_was_forgotten(
    workspace: StoredWorkspace,
) -> None:
    first = await write(workspace, session(*FIRST, unread=(b"note 1\n", b"note 2\n")))
    more = await write(workspace, session(*FIRST, *SECOND, unread=(b"note 2\n", b"note 3\n")))
    notes = [fact.unread for fact in await facts_in(workspace, first.conversation) if isinstance(fact, BroughtIn)]  # fmt: skip
    contents = [await workspace.cache.read_content(one.digest) for one in notes if one]
    assert contents == [b"note 1\nnote 2", b"note 3"]
    await workspace.journal.append_imported_facts(more.conversation, [(0.0, Forgotten(facts=1))])
    third = (said("third", 5.0), reply("time", 6.0))
    await write(workspace, session(*FIRST, *SECOND, *third, unread=(b"secret\n",)))
    last = (await facts_in(workspace, first.conversation))[-1]
    assert isinstance(last, BroughtIn)
    assert last.unread is None


async def test_the_agents_lines_are_kept_once_and_not_where_text_was_forgotten(
    workspace: StoredWorkspace,
) -> None:
    lines = [b'{"line":1}\n', b'{"line":2}\n', b'{"line":3}\n']
    first = await write(workspace, replace(session(*FIRST), lines=lines[:2]))
    more = await write(workspace, replace(session(*FIRST, *SECOND), lines=lines))
    imports = [fact for fact in await facts_in(workspace, more.conversation) if isinstance(fact, BroughtIn)]  # fmt: skip
    kept = [fact.lines.digest for fact in imports if fact.lines is not None]
    contents = await workspace.cache.read_contents(kept)
    assert kept_lines.join_kept_lines(contents[digest] for digest in kept) == lines
    assert contents[kept[1]].endswith(b'continued\n{"line":3}\n')

    await workspace.forget_content(entries=[kept[0]])
    third = (said("again", 5.0), reply("and again", 6.0))
    await write(workspace, replace(session(*FIRST, *SECOND, *third), lines=lines))
    last = (await facts_in(workspace, first.conversation))[-1]
    assert isinstance(last, BroughtIn)
    assert last.lines is None


async def test_what_a_reply_cost_is_computed_and_counted_where_it_is_new(
    workspace: StoredWorkspace,
) -> None:
    paid = build_recorded_reply([Text("paid")], model="claude-sonnet-4-5", time=2.0)
    paid = replace(paid, usage=replace(paid.usage, input=1_000_000))
    made = await write(workspace, session(said("go"), paid))
    facts = await facts_in(workspace, made.conversation)
    (cost,) = [fact.usage.cost for fact in facts if isinstance(fact, ModelReplied)]
    assert cost > 0
    assert [fact.cost for fact in facts if isinstance(fact, BroughtIn)] == [cost]


def test_after_a_deletion_what_was_typed_later_is_left() -> None:
    messages = (*FIRST, said("note", 8.0, beside=True), said("typed", 9.0), reply("new", 10.0))
    held = replace(session(*messages, title="Old"), keys=[(0, "old key"), (3, "new key")])
    newer = held.newer_part(5.0)
    assert newer is not None
    assert texts([draft.fact for draft in newer.drafts]) == ["typed", "new"]
    assert (newer.recording.title, newer.keys) == ("typed", [(3, "new key")])
    assert held.newer_part(20.0) is None
    assert session(*FIRST, said("typed", 9.0)).newer_part(5.0) is None, "it has no reply"
    assert session(*messages, kind="cline").newer_part(5.0) is None, "its times are guessed"
    future = (said("typed", time.time() + 9_000), reply("new", time.time() + 9_001))
    assert session(*FIRST, *future).newer_part(5.0) is None


def test_folds_get_names_that_are_not_used_yet() -> None:
    fold = Folded("x", FoldKind.EXCERPT, Span(1, 2), "", 1, 2)
    before: list[Fact] = [replace(fold, fold="handover-7"), replace(fold, fold="odd"), UserSaid(())]
    renamed = session_import._rename_folds(before, [(1.0, fold), (2.0, UserSaid(())), (3.0, fold)])
    names = [fact.fold for _, fact in renamed if isinstance(fact, Folded)]
    assert names == ["excerpt-8", "excerpt-9"]
    assert [when for when, _ in renamed] == [1.0, 2.0, 3.0]


def test_a_session_is_in_another_file_as_long_as_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    origin = Origin("codex", "s", f"{file}#2")
    recorded = Recorded("c", 1, 0.0, BroughtIn(origin, "run"))
    earlier = EarlierImports({("codex", "s"): recorded})
    assert session_import.imported_path(recorded) == str(file)
    held = session(*FIRST, file="/agent/b.jsonl")
    assert not earlier.is_in_another_file(held)
    file.write_text("")
    assert earlier.is_in_another_file(held)
    assert not earlier.is_in_another_file(session(*FIRST, file=str(file)))
    assert earlier.conversation_of_recording(held.recording) == "c"
    assert earlier.imported_conversation("codex", "") == ""
    reply_alone = ModelReplied((), "m", Stop.END)
    assert session_import.imported_path(replace(recorded, fact=reply_alone)) == ""


@pytest.mark.parametrize("other", [("codex", "t"), ("pi", "s")])
def test_a_session_has_the_same_conversation_in_each_import(other: tuple[str, str]) -> None:
    own = conversation_id_of_session("codex", "s")
    assert own == conversation_id_of_session("codex", "s")
    assert len(own) == 20
    assert own != conversation_id_of_session(*other)
