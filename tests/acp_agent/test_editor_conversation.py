"""One conversation of an editor: what it is told in which order, what it is asked, and how a turn ends."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from acp import RequestError
from acp.helpers import update_agent_message_text

from helix_desktop import program_folders
from helix_desktop.acp_agent import editor_conversation
from helix_desktop.acp_agent.agent_description import SIGN_IN
from helix_desktop.acp_agent.conversation_updates import ClientAbilities
from helix_desktop.acp_agent.editor_conversation import (
    EditorConversation,
    _build_question_card,
    _offer_scope,
)
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import (
    ConversationStarted,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
)
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    Event,
    ReplyStreamed,
)
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.acp_agent.editor_in_process import (
    EditorInProcess,
    choose,
    connected,
    new_session,
    words,
)
from tests.acp_agent.test_conversation_updates import AnsweringClient
from tests.peers.chat_server import ChatServer, refused
from tests.texts_and_calls import user_texts
from tests.workbench.conftest import Desks
from tests.workbench.test_hook_runner import hooks
from tests.workbench.test_rules_and_skills import trusting


@pytest.fixture
async def bench(desks: Desks, folder: Path) -> Workbench:
    opened = await desks().create_workspace("w", folder)
    await opened.choose_model_for_role("demo/demo")
    return opened


def said(editor: EditorInProcess) -> str:
    texts = [update["content"]["text"] for update in editor.updates_of("agent_message_chunk")]
    return "".join(texts)


async def test_the_end_of_a_turn_comes_after_all_that_was_said_and_done(bench: Workbench) -> None:
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        answer = await editor.prompt(session, "read README.md")
        assert answer == {"stopReason": "end_turn"}
        kinds = [update["sessionUpdate"] for update in editor.updates]
        assert kinds.index("tool_call") < kinds.index("tool_call_update")
        assert kinds.index("tool_call_update") < kinds.index("agent_message_chunk")
        assert "Counting sequences." in said(editor)
        assert editor.updates_of("user_message_chunk") == [], "the editor shows its own message"
        assert editor.updates_of("usage_update")[-1]["used"] > 0


async def test_a_message_that_was_written_in_the_window_is_shown_in_the_editor(
    bench: Workbench,
) -> None:
    async with connected(bench) as editor:
        session_id = await new_session(editor, bench)
        await editor.prompt(session_id, "read README.md")
        session = await bench.open_session(session_id)
        session.send_message((Text("from the window"),))
        await session.wait_until_idle()
        await editor.wait_until(lambda: editor.updates_of("user_message_chunk"))
        (shown,) = editor.updates_of("user_message_chunk")
        assert shown["content"]["text"] == "from the window"


async def test_a_conversation_is_stored_with_its_first_message_and_keeps_the_model_that_was_chosen(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("w", folder)
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        error = await editor.refusal("session/prompt", sessionId=session, prompt=words("hello"))
        assert error["code"] == -32000
        assert error["message"] == f"No model has been chosen for w. {SIGN_IN}"
        assert bench.conversation_row(session) is None
        chosen = {"configId": "model", "value": "demo/demo"}
        await editor.request("session/set_config_option", sessionId=session, **chosen)
        assert bench.conversation_row(session) is None
        await editor.prompt(session, "read README.md")
        assert bench.conversation_row(session) is not None
        stored = (await bench.open_session(session)).conversation.state
        assert stored.own_model == "demo/demo"


async def test_a_second_message_is_refused_while_the_agent_answers_and_a_cancelled_one_is_not_done(
    bench: Workbench, folder: Path
) -> None:
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        turn = editor.begin_request(
            "session/prompt", sessionId=session, prompt=words("write new.txt: text")
        )
        await editor.wait_until(lambda: editor.asked)
        error = await editor.refusal("session/prompt", sessionId=session, prompt=words("more"))
        assert "still answering" in error["message"]
        assert "cancel the answer first" in error["message"]
        editor.pipe.send_message(
            {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
        )
        assert (await asyncio.wait_for(turn, 60))["result"] == {"stopReason": "cancelled"}
        assert not (folder / "new.txt").exists()
        answer = await editor.prompt(session, "read README.md")
        assert answer == {"stopReason": "end_turn"}, "the next turn is not cancelled"


async def begun_again(editor: EditorInProcess, bench: Workbench) -> str:
    """A stored conversation that the editor has closed, so that its next message opens it."""
    session = await new_session(editor, bench)
    await editor.prompt(session, "read README.md")
    await editor.request("session/close", sessionId=session)
    return session


async def test_each_of_several_messages_is_answered_while_their_conversation_is_being_opened(
    bench: Workbench,
) -> None:
    async with connected(bench) as editor:
        session = await begun_again(editor, bench)
        about_session: dict[str, Any] = {"sessionId": session, "prompt": words("read README.md")}
        async with bench.sessions.opening:
            turns = [editor.begin_request("session/prompt", **about_session) for _ in range(3)]
            await editor.request("session/list")  # By now, all three have been read.
        answers = [await asyncio.wait_for(turn, 60) for turn in turns]
        assert answers[0]["result"] == {"stopReason": "end_turn"}
        for refused in answers[1:]:
            assert "still answering" in refused["error"]["message"]


@pytest.mark.parametrize("method", ["session/cancel", "session/close", "session/delete"])
async def test_a_message_whose_conversation_is_being_opened_can_be_cancelled(
    bench: Workbench, folder: Path, method: str
) -> None:
    async with connected(bench) as editor:
        editor.answers["session/request_permission"] = choose("once:0")
        session = await begun_again(editor, bench)
        async with bench.sessions.opening:
            turn = editor.begin_request(
                "session/prompt", sessionId=session, prompt=words("write new.txt: text")
            )
            ending: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
            if method == "session/cancel":
                editor.pipe.send_message(ending | {"params": {"sessionId": session}})
            else:
                editor.begin_request(method, sessionId=session)
            await editor.request("session/list")  # By now, both have been read.
        assert (await asyncio.wait_for(turn, 60))["result"] == {"stopReason": "cancelled"}
        await (await bench.open_session(session)).wait_until_idle()
        assert not (folder / "new.txt").exists()


async def test_a_message_that_a_hook_blocks_is_not_in_the_way_of_the_next(
    bench: Workbench, folder: Path
) -> None:
    hooks(folder, "UserPromptSubmit", "grep -q secret || exit 0; echo no secrets >&2; exit 2")
    await trusting(bench)
    async with connected(bench) as editor:
        session_id = await new_session(editor, bench)
        prompt = {"sessionId": session_id, "prompt": words("my secret")}
        error = await editor.refusal("session/prompt", **prompt)
        assert "no secrets" in error["message"]
        assert "queued" not in error["message"], "the editor has no queue"
        assert await editor.prompt(session_id, "read README.md") == {"stopReason": "end_turn"}
        session = await bench.open_session(session_id)
        assert list(session.queue) == []
        assert user_texts(session.all_facts) == ["read README.md"]


@pytest.mark.parametrize("method", ["session/cancel", "session/close"])
async def test_a_message_that_is_cancelled_before_it_is_recorded_is_not_sent_with_the_next(
    bench: Workbench, folder: Path, method: str
) -> None:
    # It waits for a line that nobody writes.
    hooks(folder, "UserPromptSubmit", "grep -q later && exit 0; echo >begun; read -r line <held")
    for name in ("begun", "held"):
        os.mkfifo(folder / name)
    await trusting(bench)
    async with connected(bench) as editor:
        session_id = await new_session(editor, bench)
        prompt = {"sessionId": session_id, "prompt": words("write new.txt: text")}
        turn = editor.begin_request("session/prompt", **prompt)
        await asyncio.to_thread((folder / "begun").read_text)
        ending: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if method == "session/cancel":
            editor.pipe.send_message(ending | {"params": {"sessionId": session_id}})
        else:
            editor.begin_request(method, sessionId=session_id)
        assert (await asyncio.wait_for(turn, 60))["result"] == {"stopReason": "cancelled"}
        session = await bench.open_session(session_id)
        assert list(session.queue) == []
        assert await editor.prompt(session_id, "read later") == {"stopReason": "end_turn"}
        assert user_texts(session.all_facts) == ["read later"]


async def test_a_conversation_begins_once_though_it_is_closed_and_written_to_meanwhile(
    bench: Workbench,
) -> None:
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        about_session: dict[str, Any] = {"sessionId": session, "prompt": words("read README.md")}
        first = editor.begin_request("session/prompt", **about_session)
        editor.begin_request("session/close", sessionId=session)
        second = editor.begin_request("session/prompt", **about_session)
        assert (await asyncio.wait_for(first, 60))["result"] == {"stopReason": "cancelled"}
        assert (await asyncio.wait_for(second, 60))["result"] == {"stopReason": "end_turn"}
        stored = await bench.open_session(session)
        begun = [
            recorded
            for recorded in stored.all_facts
            if isinstance(recorded.fact, ConversationStarted)
        ]
        assert len(begun) == 1


async def test_a_turn_that_somebody_else_began_is_not_stopped_by_the_editor(
    bench: Workbench, folder: Path
) -> None:
    async with connected(bench) as editor:
        session_id = await new_session(editor, bench)
        await editor.prompt(session_id, "read README.md")
        session = await bench.open_session(session_id)
        session.send_message((Text("write new.txt: text"),))
        await editor.wait_until(lambda: editor.asked)
        await editor.request("session/close", sessionId=session_id)
        assert not session.is_idle
        session.stop_turn()
        await session.wait_until_idle()


@pytest.mark.parametrize("method", ["session/cancel", "session/close"])
async def test_a_message_that_waits_for_a_turn_of_the_window_is_cancelled_without_that_turn(
    bench: Workbench, method: str
) -> None:
    async with connected(bench) as editor:
        session_id = await new_session(editor, bench)
        await editor.prompt(session_id, "read README.md")
        session = await bench.open_session(session_id)
        session.send_message((Text("write new.txt: text"),))
        await editor.wait_until(lambda: editor.asked)
        prompt = {"sessionId": session_id, "prompt": words("read src/pairs.py")}
        turn = editor.begin_request("session/prompt", **prompt)
        async with asyncio.timeout(60):
            while not session.queue:
                await asyncio.sleep(0)
        ending: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if method == "session/cancel":
            editor.pipe.send_message(ending | {"params": {"sessionId": session_id}})
        else:
            editor.begin_request(method, sessionId=session_id)
        await editor.request("session/list")
        assert list(session.queue) == []
        assert (await asyncio.wait_for(turn, 60))["result"] == {"stopReason": "cancelled"}
        assert session.questions, "the window still asks"
        session.stop_turn()
        await session.wait_until_idle()
        assert user_texts(session.all_facts) == ["read README.md", "write new.txt: text"]


@pytest.mark.parametrize("method", ["session/cancel", "session/close", "session/delete"])
async def test_a_yes_right_behind_the_end_of_its_turn_runs_nothing(
    bench: Workbench, folder: Path, method: str
) -> None:
    """Both come in one piece, so that nothing happens between them."""
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        turn = editor.begin_request(
            "session/prompt", sessionId=session, prompt=words("write new.txt: text")
        )
        await editor.wait_until(lambda: editor.asked)
        ending: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if method == "session/cancel":
            editor.pipe.send_message(ending | {"params": {"sessionId": session}})
        else:
            editor.begin_request(method, sessionId=session)
        answer = choose("once:0")(editor.asked[0])
        editor.pipe.send_message({"jsonrpc": "2.0", "id": editor.asked[0]["id"], **answer})
        assert (await asyncio.wait_for(turn, 60))["result"] == {"stopReason": "cancelled"}
        await (await bench.open_session(session)).wait_until_idle()
        assert not (folder / "new.txt").exists()


async def test_a_yes_after_an_editor_closed_a_session_runs_nothing_in_a_turn_of_the_window(
    bench: Workbench, folder: Path
) -> None:
    async with connected(bench) as editor:
        session_id = await new_session(editor, bench)
        await editor.prompt(session_id, "read README.md")
        session = await bench.open_session(session_id)
        session.send_message((Text("write new.txt: text"),))
        await editor.wait_until(lambda: editor.asked)
        await editor.request("session/close", sessionId=session_id)
        answer = choose("once:0")(editor.asked[0])
        editor.pipe.send_message({"jsonrpc": "2.0", "id": editor.asked[0]["id"], **answer})
        await editor.request("session/list")  # By now, the answer has been read.
        assert session.questions, "the window still asks"
        session.stop_turn()
        await session.wait_until_idle()
        assert not (folder / "new.txt").exists()


@pytest.mark.parametrize(
    ("option", "is_written", "mode"),
    [("once:0", True, "ask"), ("deny", False, "ask"), ("nonsense:0", False, "ask")],
)
async def test_what_the_editors_user_chooses_is_done(
    bench: Workbench, folder: Path, option: str, is_written: bool, mode: str
) -> None:
    async with connected(bench) as editor:
        editor.answers["session/request_permission"] = choose(option)
        session = await new_session(editor, bench)
        await editor.prompt(session, "write new.txt: text")
        assert (folder / "new.txt").exists() == is_written
        assert bench.permission_mode == mode
        (asked,) = editor.asked
        names = {each["optionId"]: each["name"] for each in asked["params"]["options"]}
        assert names["once:0"] == "Allow once"
        assert names["deny"] == "Deny"
        assert asked["params"]["sessionId"] == session
        status = editor.updates_of("tool_call_update")[-1]["status"]
        assert status == ("completed" if is_written else "failed")


async def test_what_is_allowed_in_this_conversation_is_not_asked_about_again(
    bench: Workbench, folder: Path
) -> None:
    async with connected(bench) as editor:
        editor.answers["session/request_permission"] = choose("conversation:0")
        session = await new_session(editor, bench)
        await editor.prompt(session, "write new.txt: text")
        await editor.prompt(session, "write new.txt: another")
        assert len(editor.asked) == 1
        assert (folder / "new.txt").read_text().startswith("another")


async def test_an_editor_that_cannot_show_a_question_denies_it_with_that_reason(
    bench: Workbench, folder: Path
) -> None:
    async with connected(bench) as editor:
        editor.answers["session/request_permission"] = lambda _: {
            "error": {"code": -32601, "message": "no questions here"}
        }
        session_id = await new_session(editor, bench)
        answer = await editor.prompt(session_id, "write new.txt: text")
        assert answer == {"stopReason": "end_turn"}
        assert not (folder / "new.txt").exists()
        session = await bench.open_session(session_id)
        heads = [
            recorded.fact.head
            for recorded in session.all_facts
            if isinstance(recorded.fact, ToolReturned)
        ]
        assert "The editor could not show the question." in heads[-1]


async def test_a_mode_that_was_chosen_elsewhere_is_told_with_the_options_once(
    bench: Workbench,
) -> None:
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        await editor.prompt(session, "read README.md")
        assert editor.updates_of("current_mode_update") == []
        await bench.choose_permission_mode("plan")
        await editor.prompt(session, "read README.md")
        await editor.prompt(session, "read README.md")
        (mode,) = editor.updates_of("current_mode_update")
        assert mode["currentModeId"] == "plan"
        (options,) = editor.updates_of("config_option_update")
        assert options["configOptions"][0]["currentValue"] == "plan"


async def test_a_loaded_conversation_is_told_from_its_beginning_and_then_its_commands_and_usage(
    bench: Workbench,
) -> None:
    async with connected(bench) as editor:
        session = await new_session(editor, bench)
        await editor.prompt(session, "read README.md")
        live = said(editor)
        await editor.request("session/close", sessionId=session)
        editor.updates.clear()
        await editor.request(
            "session/load", sessionId=session, cwd=str(bench.main_folder), mcpServers=[]
        )
        kinds = [update["sessionUpdate"] for update in editor.updates]
        assert kinds.index("user_message_chunk") < kinds.index("agent_message_chunk")
        assert kinds[-2:] == ["available_commands_update", "usage_update"]
        assert said(editor) == live
        first = editor.updates_of("user_message_chunk")[0]
        assert first["content"]["text"] == "read README.md"


async def test_a_conversation_that_is_loaded_in_a_pause_says_why_nothing_comes(
    tmp_path: Path,
) -> None:
    places = program_folders.find_program_folders(tmp_path / "home")
    # With the real clock: the pause lasts until the end of the test.
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    busy = refused(503, "overloaded", retry_after=40)
    with ChatServer([busy]) as server:
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        (tmp_path / "project").mkdir()
        bench = await desk.create_workspace("w", tmp_path / "project")
        await bench.choose_model_for_role("peer/scripted")
        own = await bench.start_conversation()
        has_paused = asyncio.Event()

        def note_pause(event: Event) -> None:
            if isinstance(event, ReplyStreamed) and isinstance(event.delta, RetryDelay):
                has_paused.set()

        own.subscribe_to_events(note_pause)
        own.send_message((Text("hello"),))
        await asyncio.wait_for(has_paused.wait(), 60)
        async with connected(bench) as editor:
            await editor.request(
                "session/load", sessionId=own.id, cwd=str(bench.main_folder), mcpServers=[]
            )
            (wait,) = editor.updates_of("agent_thought_chunk")
            assert re.match(r"Retrying in \d+ s: peer", wait["content"]["text"])
        await desk.aclose()


async def test_a_file_is_read_from_the_disk_once_an_editor_did_not_send_it_in_time(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editor_conversation, "READ_SECONDS", 0.01)
    async with connected(bench, fs={"readTextFile": True}) as editor:
        session = await new_session(editor, bench)
        for _ in range(2):
            await editor.prompt(session, "read README.md")
        assert "Counting sequences." in said(editor)
        methods = [request["method"] for request in editor.asked]
        assert methods == ["fs/read_text_file"], "it is not asked a second time"


async def test_what_the_editor_has_not_saved_is_what_the_agent_reads(
    bench: Workbench, folder: Path
) -> None:
    async with connected(bench, fs={"readTextFile": True}) as editor:
        editor.answers["fs/read_text_file"] = lambda _: {"result": {"content": "unsaved words"}}
        session = await new_session(editor, bench)
        await editor.prompt(session, "read README.md")
        assert "unsaved words" in said(editor)
        (asked,) = editor.asked
        assert asked["params"] == {"sessionId": session, "path": str(folder / "README.md")}


def options_of(scope: str, rules: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    question = PermissionQuestion(ToolCall("c", "run_command", "{}"), "Run", "make", rules=rules)
    offered = _offer_scope(question, scope)
    return [(option.option_id, option.name, option.kind) for option in offered]


@pytest.mark.parametrize(
    ("scope", "name", "kind"),
    [
        ("once", "Allow once", "allow_once"),
        ("conversation", "Allow in this conversation", "allow_always"),
        ("always", "Always allow", "allow_always"),
        ("ask", "Approve and ask before changes", "allow_once"),
        ("edits", "Approve, allow edits", "allow_always"),
        ("all", "Approve, allow everything", "allow_always"),
    ],
)
def test_each_scope_has_a_name_and_says_whether_it_lasts(scope: str, name: str, kind: str) -> None:
    assert options_of(scope) == [(f"{scope}:0", name, kind)]


def test_each_rule_that_would_allow_it_longer_is_an_option_of_its_own() -> None:
    rules = ("make", "make *")
    assert options_of("always", rules) == [
        ("always:0", "Always allow make", "allow_always"),
        ("always:1", "Always allow make *", "allow_always"),
    ]
    assert [option_id for option_id, _, _ in options_of("once", rules)] == ["once:0"]


def card_of(**values: Any) -> Any:
    call = ToolCall("c1", "run_command", '{"command": "make"}')
    return _build_question_card(PermissionQuestion(call, preview="make *all*", **values))


def test_the_card_of_a_command_shows_it_word_for_word_below_the_reason() -> None:
    card = card_of(title="Run make", why="it changes files")
    assert (card.tool_call_id, card.title, card.kind) == ("c1", "Run make", "execute")
    assert card.status == "pending"
    assert card.content[0].content.text == "It changes files\n\n```\nmake *all*\n```"


def test_a_reason_in_the_words_of_a_hook_keeps_its_first_letter() -> None:
    card = card_of(title="Run make", why="for i in seq is a loop")
    assert card.content[0].content.text.startswith("for i in seq is a loop")


def test_a_card_without_a_reason_or_a_title_shows_the_call() -> None:
    card = card_of(title="")
    assert card.title == "run_command make"
    assert card.content[0].content.text == "```\nmake *all*\n```"


def test_a_plan_is_drawn_as_the_markdown_that_it_is_and_switches_the_mode() -> None:
    card = card_of(title="Plan", plan=True)
    assert card.kind == "switch_mode"
    assert card.content[0].content.text == "make *all*"


# --- One step at a time


@asynccontextmanager
async def conversation_with(
    bench: Workbench, answer: Any = None
) -> AsyncIterator[tuple[EditorConversation, AnsweringClient]]:
    owner = OwnedTasks("editor of a trial")
    client = AnsweringClient(answer)
    there = EditorConversation(
        bench, "c", ClientAbilities(), cast(Any, client), owner.spawn_task, asyncio.Lock()
    )
    yield there, client
    there.close()
    await owner.aclose()


@pytest.mark.parametrize(
    ("activity", "is_over"),
    [
        (ConversationActivity.IDLE, True),
        (ConversationActivity.FAILED, True),
        (ConversationActivity.THINKING, False),
        (ConversationActivity.ASKING, False),
    ],
)
async def test_a_turn_is_over_when_the_agent_rests_or_has_failed(
    bench: Workbench, activity: ConversationActivity, *, is_over: bool
) -> None:
    async with conversation_with(bench) as (there, _):
        there._turn_is_over = asyncio.get_running_loop().create_future()
        there.queue_event_for_editor(ActivityChanged("c", activity, "The disk is full."))
        assert there._turn_is_over.done() is is_over
        has_failed = activity is ConversationActivity.FAILED
        failure = TurnEnded(TurnEnd.FAILED, "The disk is full.")
        assert there._turn_end == (failure if has_failed else None)
        there.queue_event_for_editor(ActivityChanged("c", activity, "Again."))
        assert there._turn_end == (failure if has_failed else None), "the first reason counts"


def asked(**values: Any) -> PermissionQuestion:
    call = ToolCall("c1", "run_command", '{"command": "make"}')
    return PermissionQuestion(call, "Run make", "make", rules=("make", "make *"), **values)


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        ({"outcome": "selected", "optionId": "once:0"}, PermissionAnswer(True, "once", rule=0)),
        ({"outcome": "selected", "optionId": "always:1"}, PermissionAnswer(True, "always", rule=1)),
        ({"outcome": "selected", "optionId": "deny"}, PermissionAnswer(False)),
        ({"outcome": "selected", "optionId": "always:2"}, PermissionAnswer(False)),
        ({"outcome": "cancelled", "optionId": "once:0"}, PermissionAnswer(False)),
        ({}, PermissionAnswer(False)),
    ],
)
async def test_only_an_option_that_was_offered_and_chosen_allows_something(
    bench: Workbench, outcome: dict[str, str], answer: PermissionAnswer
) -> None:
    async with conversation_with(bench, {"outcome": outcome}) as (there, client):
        assert await there._ask_editor_or_deny(asked()) == answer
        ((method, params),) = client.asked
        assert method == "session/request_permission"
        assert params["sessionId"] == "c"
        options = [(one["optionId"], one["kind"]) for one in params["options"]]
        assert options == [
            ("once:0", "allow_once"),
            ("conversation:0", "allow_always"),
            ("conversation:1", "allow_always"),
            ("always:0", "allow_always"),
            ("always:1", "allow_always"),
            ("deny", "reject_once"),
        ]
        assert params["options"][-1]["name"] == "Deny"


async def test_who_does_not_approve_a_plan_keeps_planning(bench: Workbench) -> None:
    async with conversation_with(bench, {}) as (there, client):
        await there._ask_editor_or_deny(asked(plan=True, scopes=("ask", "edits", "all")))
        options = client.asked[0][1]["options"]
        assert [one["name"] for one in options][-1] == "Keep planning"
        assert [one["optionId"] for one in options][:3] == ["ask:0", "edits:0", "all:0"]
        assert [one["kind"] for one in options][:2] == ["allow_once", "allow_always"]


@pytest.mark.parametrize("error", [RequestError(-1, "no"), ConnectionError("gone"), ValueError()])
async def test_an_editor_that_fails_to_ask_has_denied_it(
    bench: Workbench, error: Exception
) -> None:
    async with conversation_with(bench, error) as (there, _):
        answer = await there._ask_editor_or_deny(asked())
        words = "The editor could not show the question."
        assert answer == PermissionAnswer(allowed=False, words=words)


async def test_updates_go_as_the_protocol_or_as_they_are(bench: Workbench) -> None:
    async with conversation_with(bench) as (there, client):
        await there.send_update({"sessionUpdate": "notice"})
        await there.send_update(update_agent_message_text("words"))
        (first, second) = client.asked
        assert first == (
            "session/update",
            {"sessionId": "c", "update": {"sessionUpdate": "notice"}},
        )
        assert second[0] == "session/update"
        assert second[1]["update"]["content"]["text"] == "words"


async def test_commands_are_told_once_and_again_when_they_have_changed(bench: Workbench) -> None:
    async with conversation_with(bench) as (there, client):
        await there.send_commands_if_changed()
        await there.send_commands_if_changed()
        assert len(client.asked) == 1
        await there.send_commands_and_usage()
        assert len(client.asked) == 2, "a loaded conversation is told all"
        await there.send_options_if_mode_changed()
        assert len(client.asked) == 2
        await bench.choose_permission_mode("plan")
        await there.send_options_if_mode_changed()
        kinds = [params["update"]["sessionUpdate"] for _, params in client.asked[2:]]
        assert kinds == ["current_mode_update", "config_option_update"]
        await there.send_options_if_mode_changed()
        assert len(client.asked) == 4
