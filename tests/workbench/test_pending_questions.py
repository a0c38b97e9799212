"""A question that waited when the program was killed is asked again; what may have run is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.facts import ModelReplied, Stop, Text, ToolCall, ToolReturned, UserSaid
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.request_building import INTERRUPTED
from helix_desktop.engine.session_events import QuestionAnswered, QuestionAsked
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN
from tests.workbench.conftest import Desks


@pytest.mark.parametrize(
    ("names", "asked", "heads"),
    [
        (["run_command", "write_file"], ["0"], {"0": NOT_BEGUN, "1": NOT_BEGUN}),
        (["read_file", "run_command"], ["1"], {"0": INTERRUPTED, "1": NOT_BEGUN}),
        (["fetch_url", "fetch_url"], ["1"], {"0": INTERRUPTED, "1": NOT_BEGUN}),
        (["fetch_url", "fetch_url"], ["0"], {"0": NOT_BEGUN, "1": INTERRUPTED}),
        (["fetch_url", "fetch_url"], ["0", "1"], {"0": NOT_BEGUN, "1": NOT_BEGUN}),
        (["run_command"], [], {}),
    ],
)
async def test_only_what_certainly_did_not_begin_is_asked_again(
    desks: Desks, folder: Path, names: list[str], asked: list[str], heads: dict[str, str]
) -> None:
    first = desks()
    bench = await first.create_workspace("Killed", folder)
    session = await bench.start_conversation("Killed")
    calls = tuple(ToolCall(str(number), name, "{}") for number, name in enumerate(names))
    await session.conversation.append_facts(
        UserSaid((Text("go"),)), ModelReplied(calls, "m", Stop.CALLS)
    )
    for number, call in enumerate(calls):
        question = PermissionQuestion(call, "Run", "x")
        session.conversation.notify_listeners(QuestionAsked(session.id, number, question))
        if call.id not in asked:
            session.conversation.notify_listeners(QuestionAnswered(session.id, number))
    await first.aclose()
    for _ in range(2):
        desk = desks()
        bench = await desk.open_workspace("Killed")
        opened = await bench.open_session(session.id)
        found = {
            recorded.fact.call: recorded.fact.head
            for recorded in opened.all_facts
            if isinstance(recorded.fact, ToolReturned)
        }
        assert found == heads
        assert not list(bench.workspace.folder.glob("partial/*.question"))
        await desk.aclose()


async def test_the_note_of_a_question_is_gone_when_its_call_begins(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("Asked", folder)
    session = await bench.start_conversation("Asked")
    notes = bench.workspace.folder / "partial"
    question = PermissionQuestion(ToolCall("../a/b", "run_command", "{}"), "Run", "x")
    session.conversation.notify_listeners(QuestionAsked(session.id, 7, question))
    (note,) = notes.glob("*")
    assert note.stat().st_size == 0
    assert note.stem.isalnum()
    session.conversation.notify_listeners(QuestionAnswered(session.id, 7))
    assert not list(notes.glob("*"))
