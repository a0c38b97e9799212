"""Facts as updates, for clients that can show more and for those that cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from acp import RequestError
from acp.connection import Connection

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
    Fact,
    Folded,
    FoldFailed,
    FoldKind,
    PartRef,
    Stored,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_events import ToolPrinted
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.workbench import Workbench
from tests.workbench.conftest import Desks

FOLD = Folded("f1", FoldKind.MARKER, PartRef(3), "what it stands for", 10, 900)
RAN = ToolReturned("c1", Stored(Digest(bytes(32)), 3), 1, exit_code=2, head="out")
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
        "title": "No summary was written; all messages stay here.",
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
        bench, "c", abilities, cast(Connection, Client()), tasks.spawn_task
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
        there = EditorConversation(bench, "c", able, cast(Any, client), owner.spawn_task)
        found = await there._ask_editor_to_fill_form(question)
        assert found is not None
        assert (found.allowed, found.values) == (allowed, '{"a": 1}' if allowed else "")
        assert client.asked[0][0] == "elicitation/create"
    client = AnsweringClient(None)
    there = EditorConversation(bench, "c", ClientAbilities(), cast(Any, client), owner.spawn_task)
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
        bench, "c", able, cast(Any, AnsweringClient(answer)), owner.spawn_task
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
