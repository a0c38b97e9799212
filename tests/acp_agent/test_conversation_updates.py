"""Facts as updates, for clients that can show more and for those that cannot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from acp import RequestError
from acp.connection import Connection

from helix_desktop.acp_agent import conversation_updates
from helix_desktop.acp_agent.conversation_updates import (
    ClientAbilities,
    ConversationUpdates,
    build_cold_cache_notice,
    title_of_call,
)
from helix_desktop.acp_agent.editor_conversation import EditorConversation
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.context_usage import NextMessageCost
from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    Fact,
    FileChanged,
    Folded,
    FoldFailed,
    FoldKind,
    ModelReplied,
    PartRef,
    Reasoning,
    Recorded,
    Stop,
    Stored,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.messages import ReasoningDelta, RetryDelay, TextDelta
from helix_desktop.engine.ports import EntryOrigin, PermissionQuestion
from helix_desktop.engine.session_events import (
    CallStage,
    CallStageChanged,
    FactAppended,
    FoldProgress,
    MeterChanged,
    ReplyStreamed,
    ToolPrinted,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.workbench import Workbench
from tests.workbench.conftest import Desks

FOLD = Folded("f1", FoldKind.MARKER, PartRef(3), "what it stands for", 10, 900)
RAN = ToolReturned("c1", Stored(Digest(bytes(32)), 3), 1, exit_code=2, head="out")
OUTPUT = EntryOrigin("tool", "text/plain")
ALL = {"session": {"compaction": {}, "notices": {}}, "_meta": {"terminal_output": True}, "fs": {"readTextFile": True}, "elicitation": {"form": {}}}  # fmt: skip


def updates(**abilities: bool) -> ConversationUpdates:
    return ConversationUpdates(cast(Workbench, None), "c", ClientAbilities(**abilities))


async def told(shown: ConversationUpdates, fact: Fact) -> list[Any]:
    return [update async for update in shown.updates_of_fact(fact)]


@pytest.mark.parametrize(
    "given",
    [None, 5, {}, {"clientCapabilities": "x"}, {"clientCapabilities": {"fs": 1, "_meta": []}}],
)
def test_what_a_client_announces_wrongly_it_cannot_do(given: Any) -> None:
    assert ClientAbilities.parse_initialize(given) == ClientAbilities()
    assert ClientAbilities.parse_initialize({"clientCapabilities": ALL}) == ClientAbilities(
        True, True, True, True, True
    )


async def test_each_fold_is_told_to_clients_that_announce_it_and_to_no_others() -> None:
    (update,) = await told(updates(compaction=True), FOLD)
    assert update == {
        "sessionUpdate": "compaction_update",
        "compactionId": "f1",
        "status": "completed",
        "summary": [{"type": "text", "text": "what it stands for"}],
    }
    assert await told(updates(), FOLD) == []


async def test_why_a_fold_failed_is_a_notice_for_clients_that_present_notices() -> None:
    failed = FoldFailed(FoldKind.HANDOVER, "The model did not answer; it was asked three times.")
    (update,) = await told(updates(notices=True), failed)
    assert update == {
        "sessionUpdate": "notice",
        "severity": "warning",
        "title": "No summary was written, and nothing is lost.",
        "description": "The model did not answer.",
    }
    assert await told(updates(), failed) == []
    replayed = updates(notices=True).updates_of_fact(failed, is_replay=True)
    assert [each async for each in replayed] == [], "a notice is no part of the history"


EXPIRED = NextMessageCost(warm=0.05, cold=0.42, reply=100, warm_until=1_000.0)


@pytest.mark.parametrize(
    ("price", "now"),
    [
        (None, 2_000.0),
        (EXPIRED, 999.0),
        (replace(EXPIRED, warm_until=0.0), 2_000.0),  # Nothing was ever cached.
        (replace(EXPIRED, cold=0.055), 2_000.0),
    ],
)
def test_a_cache_that_is_warm_or_worth_nothing_is_no_notice(
    price: NextMessageCost | None, now: float
) -> None:
    assert build_cold_cache_notice(price, now) is None


@pytest.mark.parametrize("notices", [True, False])
async def test_an_editor_that_shows_notices_hears_that_the_cache_has_expired(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch, notices: bool
) -> None:
    sent: list[Any] = []

    class Client:
        async def send_notification(self, _: str, params: Any) -> None:
            sent.append(params["update"])

    bench = await desks().create_workspace("w", folder)
    tasks = OwnedTasks("editor")
    abilities = ClientAbilities(notices=notices)
    conversation = EditorConversation(
        bench, "c", abilities, cast(Connection, Client()), tasks.spawn_task, asyncio.Lock()
    )
    session = await conversation.open_session()
    monkeypatch.setattr(type(session.context), "next_message_cost", lambda _: EXPIRED)
    await conversation._tell_of_cold_cache(session)
    await tasks.aclose()
    expected = {
        "sessionUpdate": "notice",
        "severity": "info",
        "title": "The provider's cache of this conversation has expired.",
        "description": "This message costs about $0.42 instead of $0.05.",
    }
    assert sent == [expected] * notices


async def test_what_a_command_prints_goes_into_a_terminal_or_into_text() -> None:
    terminal = updates(terminal_output=True)
    (ended,) = await told(
        terminal, RAN
    )  # of a conversation that is loaded: nothing was printed before
    assert ended.field_meta["terminal_output"]["data"] == "out"
    assert ended.field_meta["terminal_exit"]["exit_code"] == 2
    (printed,) = [one async for one in terminal.updates_of_event(ToolPrinted("c", "c1", "out"))]
    assert printed.field_meta == {"terminal_output": {"terminal_id": "c1", "data": "out"}}
    assert "terminal_output" not in (await told(terminal, RAN))[0].field_meta
    (text,) = await told(updates(), RAN)
    assert text.content[0].content.text == "```\nout\n```"


def test_a_title_is_one_line() -> None:
    call = ToolCall("1", "run_command", '{"command": "one\\ntwo ' + "x" * 100 + '"}')
    assert "\n" not in title_of_call(call)
    assert len(title_of_call(call)) == 80
    assert title_of_call(ToolCall("1", "run_command", "{broken")) == "run_command"


async def test_notes_of_the_program_are_no_messages_of_the_user() -> None:
    assert await told(updates(), UserSaid((), by="rules:AGENTS.md")) == []


class AnsweringClient:
    """The connection to an editor that answers every question alike."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []

    async def send_request(self, method: str, params: Any) -> Any:
        self.asked.append((method, params))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def send_notification(self, method: str, params: Any) -> None:
        self.asked.append((method, params))


async def test_a_form_of_a_server_is_filled_in_by_editors_that_show_forms(
    desks: Desks, folder: Any
) -> None:
    bench = await desks().create_workspace("w", folder)
    owner = OwnedTasks("test")
    question = PermissionQuestion(
        ToolCall("1", "ask", "{}"), "Which one?", "", form='{"type": "object", "properties": {}}'
    )
    for answer, allowed in (
        ({"action": "accept", "content": {"a": 1}}, True),
        ({"action": "decline"}, False),
        (7, False),
    ):
        client = AnsweringClient(answer)
        able = ClientAbilities(fills_forms=True)
        there = EditorConversation(
            bench, "c", able, cast(Any, client), owner.spawn_task, asyncio.Lock()
        )
        found = await there._ask_editor_to_fill_form(question)
        assert found is not None
        assert (found.allowed, found.values) == (allowed, '{"a": 1}' if allowed else "")
        assert client.asked[0][0] == "elicitation/create"
    client = AnsweringClient(None)
    there = EditorConversation(
        bench, "c", ClientAbilities(), cast(Any, client), owner.spawn_task, asyncio.Lock()
    )
    assert await there._ask_editor_to_fill_form(question) is None
    assert "shows no forms" in str(client.asked)
    await owner.aclose()


@pytest.mark.parametrize("answer", [None, {}, {"content": 5}, RequestError(-1, "no")])
async def test_an_editor_that_does_not_give_a_file_leaves_it_to_the_disk(
    desks: Desks, folder: Any, answer: Any
) -> None:
    bench = await desks().create_workspace("w", folder)
    owner = OwnedTasks("test")
    able = ClientAbilities(reads_files=True)
    there = EditorConversation(
        bench, "c", able, cast(Any, AnsweringClient(answer)), owner.spawn_task, asyncio.Lock()
    )
    assert await bench.kit.resources.editor_files["c"](folder / "README.md") is None
    there.close()
    assert bench.kit.resources.editor_files == {}
    await owner.aclose()


def test_what_a_conversation_cost_is_told_once_and_again_when_it_has_changed() -> None:
    meter = SimpleNamespace(used=10, window=100)
    session = SimpleNamespace(context=SimpleNamespace(next_request_meter=lambda: meter))
    rows = {"c": SimpleNamespace(whole_cost=1.5)}
    bench = SimpleNamespace(
        sessions=SimpleNamespace(find_open_session=lambda _name: session), conversation_row=rows.get
    )
    shown = ConversationUpdates(cast(Workbench, bench), "c", ClientAbilities())
    (update,) = shown.usage_updates()
    assert (update.used, update.size, update.cost.amount) == (10, 100, 1.5)
    assert shown.usage_updates() == []
    del rows["c"]
    assert [each.cost.amount for each in shown.usage_updates()] == [0.0]


# --- In a workspace


@pytest.fixture
async def bench(desks: Desks, folder: Path) -> Workbench:
    opened = await desks().create_workspace("w", folder)
    await opened.choose_model_for_role("demo/demo")
    return opened


async def opened_updates(bench: Workbench, **abilities: bool) -> ConversationUpdates:
    session = await bench.start_conversation()
    return ConversationUpdates(bench, session.id, ClientAbilities(**abilities))


def shown_texts(updates: list[Any]) -> list[tuple[str, str]]:
    return [(update.session_update, update.content.text) for update in updates]


async def test_a_message_is_shown_unless_this_client_has_sent_it() -> None:
    said = UserSaid((Text("words"), Attachment("a.txt", RAN.output)))
    shown = updates()
    shown.own_messages = 1
    assert await told(shown, said) == []
    assert shown.own_messages == 0
    both = [("user_message_chunk", "words"), ("user_message_chunk", "[a.txt]")]
    assert shown_texts(await told(shown, said)) == both, "it came from the window"
    shown.own_messages = 2
    replayed = [one async for one in shown.updates_of_fact(said, is_replay=True)]
    assert shown_texts(replayed) == both
    assert shown.own_messages == 2


async def test_what_was_streamed_is_told_again_only_when_a_conversation_is_loaded(
    bench: Workbench,
) -> None:
    shown = await opened_updates(bench)
    call = ToolCall("c1", "read_file", '{"path": "README.md"}')
    reply = ModelReplied(
        (Reasoning("thought"), Reasoning(""), Text("words"), call), "m", Stop.CALLS
    )
    (live,) = await told(shown, reply)
    assert (live.session_update, live.tool_call_id, live.status) == ("tool_call", "c1", "pending")
    replayed = [one async for one in shown.updates_of_fact(reply, is_replay=True)]
    assert [one.session_update for one in replayed] == [
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
    ]
    assert [one.content.text for one in replayed[:2]] == ["thought", "words"]


async def test_what_streams_is_passed_on_as_it_comes() -> None:
    async def streamed(event: Any) -> list[Any]:
        return [one async for one in updates().updates_of_event(event)]

    words = await streamed(ReplyStreamed("c", TextDelta("words")))
    assert shown_texts(words) == [("agent_message_chunk", "words")]
    thoughts = await streamed(ReplyStreamed("c", ReasoningDelta("thought")))
    assert shown_texts(thoughts) == [("agent_thought_chunk", "thought")]
    (begun,) = await streamed(CallStageChanged("c", "c1", CallStage.RUNNING))
    assert (begun.tool_call_id, begun.status) == ("c1", "in_progress")
    others = [stage for stage in CallStage if stage is not CallStage.RUNNING]
    assert others
    for stage in others:
        assert await streamed(CallStageChanged("c", "c1", stage)) == []


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (
            ReplyStreamed("c", RetryDelay("The server is\nbusy.", 11.6)),
            "Retrying in 12 s: The server is⟨000A⟩busy.",
        ),
        (
            FoldProgress(
                "c", FoldKind.HANDOVER, is_waited_for=True, retry_why="busy", retry_seconds=3
            ),
            "Retrying in 3 s: busy",
        ),
        (
            FoldProgress("c", FoldKind.HANDOVER, is_waited_for=True),
            "Waiting until the older messages are summarized.",
        ),
        (FoldProgress("c", FoldKind.HANDOVER, retry_why="busy", retry_seconds=3), ""),
        (FoldProgress("c", FoldKind.HANDOVER, is_waited_for=True, done=True), ""),
    ],
)
async def test_an_editor_is_told_why_nothing_comes(event: Any, sentence: str) -> None:
    noticed = [one async for one in updates(notices=True).updates_of_event(event)]
    thought = [one async for one in updates().updates_of_event(event)]
    if not sentence:
        assert (noticed, thought) == ([], []), "nothing waits for it"
        return
    assert noticed == [{"sessionUpdate": "notice", "severity": "info", "title": sentence}]
    assert shown_texts(thought) == [("agent_thought_chunk", f"{sentence}\n\n")]


async def test_without_a_terminal_the_newest_part_of_the_output_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation_updates, "SHOWN_BYTES", 5)
    shown = updates()
    for text, so_far in (("abc", "abc"), ("de", "abcde"), ("f", "bcdef")):
        (update,) = [one async for one in shown.updates_of_event(ToolPrinted("c", "c1", text))]
        assert update.content[0].content.text == f"```\n{so_far}\n```"
    (other,) = [one async for one in shown.updates_of_event(ToolPrinted("c", "c2", "x"))]
    assert other.content[0].content.text == "```\nx\n```", "of another call"
    await told(shown, RAN)
    (anew,) = [one async for one in shown.updates_of_event(ToolPrinted("c", "c1", "y"))]
    assert anew.content[0].content.text == "```\ny\n```"


async def test_a_command_gets_a_terminal_where_the_client_has_one(bench: Workbench) -> None:
    command = ToolCall("c1", "run_command", '{"command": "make"}')
    (card,) = await told(await opened_updates(bench, terminal_output=True), reply_with(command))
    assert card.content[0].terminal_id == "c1"
    assert card.field_meta["terminal_info"] == {"terminal_id": "c1", "cwd": str(bench.main_folder)}
    (plain,) = await told(await opened_updates(bench), reply_with(command))
    assert plain.content is None
    assert (plain.title, plain.kind) == ("run_command make", "execute")
    assert plain.raw_input == {"command": "make"}
    read = ToolCall("c1", "read_file", '{"path": "README.md"}')
    (other,) = await told(await opened_updates(bench, terminal_output=True), reply_with(read))
    assert other.content is None


def reply_with(call: ToolCall) -> ModelReplied:
    return ModelReplied((call,), "m", Stop.CALLS)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ('{"path": "src/pairs.py"}', "src/pairs.py"),
        ('{"path": "new.txt"}', "new.txt"),
        ('{"path": "../outside.txt"}', None),
        ('{"path": 5}', None),
        ("{}", None),
        ("{broken", None),
    ],
)
async def test_a_call_names_the_file_that_the_editor_can_open(
    bench: Workbench, arguments: str, place: str | None
) -> None:
    shown = await opened_updates(bench)
    locations = shown.locations_of_call(ToolCall("c1", "read_file", arguments))
    if place is None:
        assert locations is None
    else:
        assert locations is not None
        assert [one.path for one in locations] == [str(bench.main_folder / place)]


async def returned(bench: Workbench, content: bytes, **values: Any) -> ToolReturned:
    stored = await bench.workspace.cache.store_content(content, OUTPUT)
    return ToolReturned("c1", stored, 1, **values)


async def test_an_output_that_is_not_in_the_fact_is_read_up_to_a_limit(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_updates, "SHOWN_BYTES", 5)
    shown = await opened_updates(bench)
    (whole,) = await told(shown, await returned(bench, b"12345"))
    assert whole.content[0].content.text == "```\n12345\n```"
    assert whole.status == "completed"
    (cut,) = await told(shown, await returned(bench, b"123456"))
    assert cut.content[0].content.text == "```\n12345\n… (6 bytes in all)\n```"
    (failed,) = await told(shown, await returned(bench, b"no", ok=False))
    assert failed.status == "failed"
    (empty,) = await told(shown, await returned(bench, b""))
    assert empty.content is None
    lost = ToolReturned("c1", Stored(Digest(bytes(32)), 3), 1)
    assert (await told(shown, lost))[0].content is None, "it is no longer stored"
    closed = ConversationUpdates(bench, "nobody", ClientAbilities())
    assert (await told(closed, await returned(bench, b"12345")))[0].content is None


async def changed(bench: Workbench, before: bytes | None, after: bytes | None) -> FileChanged:
    cache = bench.workspace.cache
    digests: list[Digest | None] = []
    for content in (before, after):
        if content is None:
            digests.append(None)
        else:
            digests.append((await cache.store_content(content, OUTPUT)).digest)
    return FileChanged("README.md", *digests)


async def test_what_a_call_changed_is_shown_as_differences_and_its_output_only_if_it_failed(
    bench: Workbench,
) -> None:
    shown = await opened_updates(bench)
    changes = (await changed(bench, b"old", b"new"), await changed(bench, None, b"made"))
    done = await returned(bench, b"out", changes=changes)
    (update,) = await told(shown, done)
    assert [(one.path, one.old_text, one.new_text) for one in update.content] == [
        (str(bench.main_folder / "README.md"), "old", "new"),
        (str(bench.main_folder / "README.md"), None, "made"),
    ]
    (failed,) = await told(shown, replace(done, ok=False))
    assert len(failed.content) == 3
    assert failed.content[2].content.text == "```\nout\n```"
    (removed,) = await told(shown, replace(done, changes=(await changed(bench, b"old", None),)))
    assert (removed.content[0].old_text, removed.content[0].new_text) == ("old", "")


@pytest.mark.parametrize(("largest", "is_shown"), [(3, True), (2, False)])
async def test_a_large_file_and_one_that_is_no_text_have_no_difference(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, largest: int, *, is_shown: bool
) -> None:
    monkeypatch.setattr(conversation_updates, "LARGEST_DIFF", largest)
    shown = await opened_updates(bench)
    for before, after in ((b"old", b"x"), (b"x", b"new")):
        difference = await shown._build_file_difference(await changed(bench, before, after))
        assert (difference is not None) is is_shown
    assert await shown._build_file_difference(await changed(bench, b"\xff", b"x")) is None


async def test_a_plan_and_a_title_are_told() -> None:
    todo = TodoSet((("read", "done"), ("write", "doing"), ("test", "open")))
    (plan,) = await told(updates(), todo)
    assert [(entry.content, entry.status) for entry in plan.entries] == [
        ("read", "completed"),
        ("write", "in_progress"),
        ("test", "pending"),
    ]
    (info,) = await told(updates(), ConversationChanged(title="New"))
    assert (info.session_update, info.title) == ("session_info_update", "New")
    assert await told(updates(), ConversationChanged()) == []


def test_an_empty_fold_has_no_summary() -> None:
    assert conversation_updates._compaction_update(replace(FOLD, text=""))["summary"] == []


@pytest.mark.parametrize(("cold", "is_told"), [(0.01, True), (0.0099, False)])
def test_a_difference_of_a_cent_is_worth_a_notice(cold: float, *, is_told: bool) -> None:
    price = replace(EXPIRED, warm=0.0, cold=cold)
    assert (build_cold_cache_notice(price, 2_000.0) is not None) is is_told


@pytest.mark.parametrize(
    ("event", "may_change"),
    [
        (MeterChanged("c"), True),
        (FactAppended(Recorded("c", 1, 0.0, RAN)), True),
        (FactAppended(Recorded("c", 1, 0.0, TurnEnded(TurnEnd.DONE))), True),
        (FactAppended(Recorded("c", 1, 0.0, ConversationChanged(title="New"))), False),
        (ToolPrinted("c", "c1", "out"), False),
    ],
)
def test_the_usage_is_counted_again_after_what_may_change_it(
    event: Any, *, may_change: bool
) -> None:
    assert conversation_updates._may_change_usage(event) is may_change


@pytest.mark.parametrize(
    ("tool", "kind"),
    [("read_file", "read"), ("search_files", "search"), ("edit_file", "edit"), ("none", "other")],
)
def test_a_call_is_of_the_kind_that_the_editor_has_a_picture_for(tool: str, kind: str) -> None:
    assert conversation_updates.kind_of_call(ToolCall("1", tool, "{}")) == kind


def test_a_title_has_the_first_argument_that_is_a_text() -> None:
    call = ToolCall("1", "read_file", '{"lines": 5, "path": "a.txt", "other": "b"}')
    assert title_of_call(call) == "read_file a.txt"
