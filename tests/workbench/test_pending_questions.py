"""A question that waited when the program was killed is asked again; what may have run is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    Decided,
    ModelReplied,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.ports import NOT_RUN, EntryOrigin, PermissionQuestion
from helix_desktop.engine.request_building import INTERRUPTED
from helix_desktop.engine.session_events import (
    QuestionAnswered,
    QuestionAsked,
    QuestionDenied,
    ReplyStreamed,
)
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, SKIPPED
from helix_desktop.tools.toolbox import describe_refusal_by_user
from tests.conftest import Expect
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
        # Also when the program was only opened and closed in between.
        assert opened.asks_again == (NOT_BEGUN in heads.values())
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


async def test_a_denial_is_kept_with_its_words_until_its_result_is_recorded(
    desks: Desks, folder: Path
) -> None:
    """Two calls ran beside each other, one was denied, and the program was killed meanwhile."""
    first = desks()
    bench = await first.create_workspace("Killed", folder)
    session = await bench.start_conversation("Killed")
    calls = (ToolCall("0", "fetch_url", "{}"), ToolCall("1", "fetch_url", "{}"))
    conversation = session.conversation
    await conversation.append_facts(UserSaid((Text("go"),)), ModelReplied(calls, "m", Stop.CALLS))
    for number, call in enumerate(calls):
        question = PermissionQuestion(call, "Fetch", "x")
        conversation.notify_listeners(QuestionAsked(session.id, number, question))
    denied = QuestionDenied(session.id, 1, "ask the mirror instead", "Ada's phone")
    conversation.notify_listeners(denied)
    conversation.notify_listeners(QuestionAnswered(session.id, 1))
    await first.aclose()

    bench = await desks().open_workspace("Killed")
    opened = await bench.open_session(session.id)
    recorded = [entry.fact for entry in opened.all_facts]
    heads = {fact.call: fact.head for fact in recorded if isinstance(fact, ToolReturned)}
    assert "ask the mirror instead" in heads["1"]
    assert heads["0"] == NOT_BEGUN
    (decided,) = [fact for fact in recorded if isinstance(fact, Decided)]
    assert (decided.call, decided.allowed, decided.device) == ("1", False, "Ada's phone")
    assert not list((bench.workspace.folder / "partial").iterdir())


async def test_after_a_denied_command_the_rest_of_its_reply_is_skipped(
    desks: Desks, folder: Path
) -> None:
    first = desks()
    bench = await first.create_workspace("Killed", folder)
    session = await bench.start_conversation("Killed")
    calls = (ToolCall("0", "run_command", "{}"), ToolCall("1", "write_file", "{}"))
    conversation = session.conversation
    await conversation.append_facts(UserSaid((Text("go"),)), ModelReplied(calls, "m", Stop.CALLS))
    question = PermissionQuestion(calls[0], "Run", "x")
    conversation.notify_listeners(QuestionAsked(session.id, 1, question))
    conversation.notify_listeners(QuestionDenied(session.id, 1, "", ""))
    conversation.notify_listeners(QuestionAnswered(session.id, 1))
    await first.aclose()
    bench = await desks().open_workspace("Killed")
    opened = await bench.open_session(session.id)
    results = [entry.fact for entry in opened.all_facts if isinstance(entry.fact, ToolReturned)]
    assert results[0].head == describe_refusal_by_user("")
    assert results[1].head == SKIPPED
    for result in results:
        entry = await bench.workspace.cache.describe_entry(result.output.digest)
        assert entry.about == NOT_RUN
    assert not opened.asks_again


async def test_the_result_of_another_conversations_call_with_the_same_id_leaves_a_denial(
    desks: Desks, folder: Path
) -> None:
    """Many models number the calls of each reply from 0, so conversations have equal ids."""
    first = desks()
    bench = await first.create_workspace("Killed", folder)
    denied = await bench.start_conversation("Denied")
    other = await bench.start_conversation("Other")
    call = ToolCall("call_0", "fetch_url", "{}")
    for session in (denied, other):
        reply = ModelReplied((call,), "m", Stop.CALLS)
        await session.conversation.append_facts(UserSaid((Text("go"),)), reply)
    listeners = denied.conversation
    listeners.notify_listeners(QuestionAsked(denied.id, 1, PermissionQuestion(call, "Fetch", "x")))
    listeners.notify_listeners(QuestionDenied(denied.id, 1, "never this address", ""))
    listeners.notify_listeners(QuestionAnswered(denied.id, 1))
    output = await bench.workspace.cache.store_content(b"page", EntryOrigin("fetch_url"))
    await other.conversation.append_facts(ToolReturned("call_0", output, 1))
    await first.aclose()

    bench = await desks().open_workspace("Killed")
    opened = await bench.open_session(denied.id)
    (result,) = [entry.fact for entry in opened.all_facts if isinstance(entry.fact, ToolReturned)]
    assert "never this address" in result.head


async def test_where_nothing_can_be_written_a_conversation_opens_asks_and_answers(
    desks: Desks, folder: Path, expect: Expect
) -> None:
    """A file in place of the folder refuses whatever a full or failing disk refuses."""
    expect("could not be read")
    expect("that a question waits could not be kept")
    expect("the words of a denial could not be kept")
    desk = desks()
    bench = await desk.create_workspace("Full", folder)
    await bench.choose_model_for_role("demo/demo")
    session = await bench.start_conversation("Full")
    await desk.aclose()
    (bench.workspace.folder / "partial").write_text("in the way")

    bench = await desks().open_workspace("Full")
    opened = await bench.open_session(session.id)
    question = PermissionQuestion(ToolCall("0", "run_command", "{}"), "Run", "x")
    opened.conversation.notify_listeners(QuestionAsked(opened.id, 1, question))
    opened.conversation.notify_listeners(ReplyStreamed(opened.id, TextDelta("an answer")))
    opened.conversation.notify_listeners(QuestionDenied(opened.id, 1, "no", ""))
    opened.conversation.notify_listeners(QuestionAnswered(opened.id, 1))
    assert bench.text_of_reply_in_progress(opened.id) == "an answer"
