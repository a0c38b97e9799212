"""Conversations with a foreign agent, a real process, from the prompt to the journal."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.acp_client import agent_connection, foreign_conversation, turn_recording
from helix_desktop.acp_client.agent_connection import AgentRefused
from helix_desktop.acp_client.foreign_conversation import ForeignConversation
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    PolicySet,
    Reasoning,
    Received,
    Rewound,
    Spent,
    Stop,
    Text,
    TodoSet,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import ConversationActivity, Event, ReplyStreamed
from helix_desktop.errors import ActionRefused, ModelFailed, NotFound
from helix_desktop.workbench import Workbench, acp_conversations
from helix_desktop.workbench.open_sessions import MOST_IDLE_SESSIONS
from tests.acp_client.conftest import calls, facts_of, outputs, run_turn, said, set_up_agents
from tests.turns import lasted
from tests.workbench.conftest import Desks


async def test_what_an_agent_says_thinks_plans_and_does_becomes_facts(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="script")
    ended = await run_turn(session, "think hmm\nplan\nwork")
    assert ended.reason is TurnEnd.DONE, ended
    first, last = facts_of(session, ModelReplied)
    assert [type(part).__name__ for part in first.parts] == [
        "Reasoning",
        "Text",
        "ToolCall",
        "ToolCall",
    ]
    assert first.parts[0] == Reasoning("hmm", first.parts[0].tokens)
    assert (first.stop, last.stop) == (Stop.CALLS, Stop.END)
    assert said(session) == "I begin. I am done."
    assert [call.name for call in calls(session)] == ["work", "read"]
    assert calls(session)[0].arguments == '{"path": "x"}'
    assert outputs(session) == ["x's text", "y's text"]
    assert facts_of(session, TodoSet)[0].items == (("one", "doing"),)
    assert facts_of(session, Spent)[0].usage.cost == 0.25
    assert session.context.next_request_meter().window == 50_000
    assert not session.conversation.state.branch.turn.running


async def test_an_agent_that_is_not_there_is_named_with_those_that_are(bench: Workbench) -> None:
    with pytest.raises(NotFound, match="Available: Script, ScriptNoLoad"):
        await bench.start_conversation(acp_agent="nobody")


async def test_a_turn_of_an_agent_that_dies_says_why_and_the_next_message_goes_on_in_its_session(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "say one")
    ended = await run_turn(session, "say two\ndie")
    assert ended.reason is TurnEnd.FAILED
    assert ended.why.startswith(
        "Script stopped working: it ended with exit code 3. It said: out of memory"
    )
    assert (await run_turn(session, "say three")).reason is TurnEnd.DONE
    assert said(session) == "onetwothree"
    told = [json.loads(line) for line in state_file.read_text().splitlines()]
    assert [text for _, text in told] == ["say one", "say two\ndie", "[loaded]", "say three"]
    assert len({name for name, _ in told}) == 1


async def test_an_agent_that_cannot_load_sessions_is_told_what_was_said(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="ScriptNoLoad")
    await run_turn(session, "say one\nwork")
    await run_turn(session, "die")
    assert (await run_turn(session, "say three")).reason is TurnEnd.DONE
    (_, text) = json.loads(state_file.read_text().splitlines()[-1])
    assert "user: say one\nwork" in text
    assert "assistant: one" in text
    assert "x's text" in text
    assert text.endswith("\ndie\nsay three")  # nobody has answered the first of these


async def test_an_agent_that_starts_is_working_already_and_can_be_stopped(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it answered, the message box offered "Send", and nothing said that it works."""
    session = await bench.start_conversation(acp_agent="Script")
    seen: list[ConversationActivity] = []
    open_conversation = bench.acp.open_conversation

    async def open_and_note(
        conversation: Conversation,
    ) -> foreign_conversation.ForeignConversation:
        seen.append(session.running)
        return await open_conversation(conversation)

    monkeypatch.setattr(bench.acp, "open_conversation", open_and_note)
    await run_turn(session, "say one")
    assert seen == [ConversationActivity.THINKING]


async def test_after_a_rewind_and_in_a_fork_the_agent_knows_only_what_is_there(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "say one")
    before = session.conversation.state.seq
    await run_turn(session, "say secret")
    await session.rewind_to(before)
    await run_turn(session, "say three")
    (rewound, text) = json.loads(state_file.read_text().splitlines()[-1])
    assert "in a new session. What was said so far:]" in text
    assert "assistant: one" in text
    assert "secret" not in text
    fork = await bench.fork_conversation(session.id)
    assert (await run_turn(fork, "say four")).reason is TurnEnd.DONE
    (forked, text) = json.loads(state_file.read_text().splitlines()[-1])
    assert forked != rewound
    assert "assistant: three" in text


@pytest.mark.parametrize("deed", ["hang", "deaf", "flood", "calls", "endless"])
async def test_whatever_an_agent_does_it_is_stopped_in_under_two_seconds(
    bench: Workbench, deed: str
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    begun = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, ReplyStreamed) and isinstance(event.delta, TextDelta):
            begun.set()

    session.subscribe_to_events(hear)
    session.send_message((Text(f"say begun\n{deed}"),))
    await begun.wait()
    await asyncio.sleep(0.2)  # what it does has begun
    session.stop_turn()
    assert await lasted(session.wait_until_idle()) < 2
    assert session.turns.last_end is not None
    limits = {
        "endless": "bytes",
        "calls": "than a single turn can hold",
    }  # A fast agent reaches its limit before the stop.
    is_too_long = deed in limits and limits[deed] in session.turns.last_end.why
    assert is_too_long or (session.turns.last_end.reason, session.turns.last_end.why) == (
        TurnEnd.STOPPED,
        "",
    )
    assert said(session).startswith("begun")
    assert (await run_turn(session, "say again")).reason is TurnEnd.DONE


async def test_an_agent_that_never_starts_can_be_stopped(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="ScriptMute")
    session.send_message((Text("hello"),))
    await asyncio.sleep(0.3)
    session.stop_turn()
    assert await lasted(session.wait_until_idle()) < 2
    assert session.turns.last_end is not None
    assert session.turns.last_end.reason is TurnEnd.STOPPED


async def test_what_is_being_recorded_when_the_agent_is_stopped_is_kept(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_reply_part = turn_recording.TurnRecorder._build_reply_part

    def build_slowly(recorder: turn_recording.TurnRecorder, part: Any) -> Any:
        time.sleep(2 * foreign_conversation.STOP_SECONDS)  # as on a busy computer, in its thread
        return build_reply_part(recorder, part)

    monkeypatch.setattr(turn_recording.TurnRecorder, "_build_reply_part", build_slowly)
    monkeypatch.setattr(turn_recording, "MOST_TEXT", 1_000)
    session = await bench.start_conversation(acp_agent="Script")
    begun = asyncio.Event()
    session.subscribe_to_events(
        lambda event: begun.set() if isinstance(event, ReplyStreamed) else None
    )
    session.send_message((Text("say begun\nflood"),))
    await begun.wait()
    await asyncio.sleep(0.5)  # enough of the flood for a reply
    session.stop_turn()
    await session.wait_until_idle()
    assert said(session).startswith("begun")


async def test_silence_ends_the_turn_with_a_sentence(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_conversation, "SILENT_SECONDS", 0.5)
    session = await bench.start_conversation(acp_agent="Script")
    ended = await run_turn(session, "say begun\nhang")
    assert ended.reason is TurnEnd.FAILED
    assert "did not respond" in ended.why
    assert said(session) == "begun"


async def test_lines_and_updates_that_nobody_understands_do_no_harm(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    ended = await run_turn(session, "say before\nstrange\nsay after")
    assert ended.reason is TurnEnd.DONE, ended
    assert said(session).startswith("before")
    assert said(session).endswith("after")
    assert '"code": -32601' in said(session)


async def test_a_message_without_an_end_ends_the_agent_and_a_long_text_is_kept(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_connection, "LONGEST_MESSAGE_BYTES", 8 << 20)
    session = await bench.start_conversation(acp_agent="Script")
    ended = await run_turn(session, "crowd\nsay x\nendless")
    assert ended.reason is TurnEnd.FAILED
    assert "a message of more than 8,388,608 bytes" in ended.why
    assert said(session) == "x" * 3_000_001


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        ("requests 2000 small.txt", "too many requests"),
        ("requests 200 small.txt same", "same ID"),
        ("requests 4 large.txt", "did not read"),
    ],
)
async def test_requests_that_nobody_waits_for_take_no_memory(
    bench: Workbench, folder: Path, monkeypatch: pytest.MonkeyPatch, deed: str, why: str
) -> None:
    """They are handled side by side, and their answers wait until the agent reads them."""
    monkeypatch.setattr(agent_connection, "MOST_WAITING_BYTES", 4 << 20)
    (folder / "small.txt").write_text("x" * 200)
    (folder / "large.txt").write_text("x" * (3 << 20))
    session = await bench.start_conversation(acp_agent="Script")
    ended = await run_turn(session, deed)
    assert (ended.reason, why in ended.why) == (TurnEnd.FAILED, True), ended.why


async def test_updates_are_measured_by_the_bytes_they_took(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_recording, "MOST_IN_TURN", 5_000)
    session = await bench.start_conversation(acp_agent="Script")
    ended = await run_turn(session, "flood")
    assert "it sent more data than a single turn can hold" in ended.why
    recorder = turn_recording.TurnRecorder(session.conversation, bench.kit.resources, "")
    with pytest.raises(ModelFailed, match="more data"):
        await recorder.record_session_update(NeverPrinted(), 5_001)


class NeverPrinted(dict[str, Any]):
    """As a text it would take 32 MB more, and the window's time."""

    def __repr__(self) -> str:
        raise AssertionError


async def test_an_agent_that_wants_a_login_says_so(bench: Workbench) -> None:
    session = await bench.start_conversation(acp_agent="ScriptNeedsLogin")
    ended = await run_turn(session, "hello")
    assert ended.reason is TurnEnd.FAILED
    assert "Authentication required" in ended.why
    assert "Log in" in ended.why


async def test_pictures_go_along_where_the_agent_sees_them(bench: Workbench) -> None:
    picture = await bench.attach_content("a.png", b"\x89PNG\r\n\x1a\n" + bytes(40), "image/png")
    session = await bench.start_conversation(acp_agent="Script")
    session.send_message((picture, Text("echo-prompt")))
    await session.wait_until_idle()
    assert '{"type": "image", "mimeType": "image/png", "data": "iVBOR' in said(session)
    blind = await bench.start_conversation(acp_agent="ScriptNoImages")
    blind.send_message((picture, Text("say hello")))
    await blind.wait_until_idle()
    assert blind.turns.last_end is not None
    assert "does not accept images" in blind.turns.last_end.why


async def test_a_mode_is_chosen_before_the_session_and_in_it(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    foreign = await bench.acp.open_conversation(session.conversation)
    await foreign.choose_agent_option(session.conversation, "mode", "auto")
    await run_turn(session, "say one")
    assert foreign.choices["mode"].current == "auto"
    await foreign.choose_agent_option(session.conversation, "mode", "ask")
    assert foreign.choices["mode"].current == "ask"
    with pytest.raises(NotFound, match="Available: ask, auto"):
        await foreign.choose_agent_option(session.conversation, "mode", "wild")


async def test_idle_agents_beyond_a_few_are_ended_and_come_back(
    bench: Workbench, state_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_conversations, "MOST_IDLE", 1)
    sessions = [await bench.start_conversation(acp_agent="Script") for _ in range(3)]
    for session in sessions:
        await run_turn(session, "say one")
    running = [
        (await bench.acp.open_conversation(session.conversation)).has_running_process
        for session in sessions
    ]
    assert running == [False, True, True]
    assert (await run_turn(sessions[0], "say two")).reason is TurnEnd.DONE
    assert "[loaded]" in state_file.read_text()


async def test_a_workspace_without_a_folder_says_what_is_missing(
    desks: Desks, tmp_path: Path
) -> None:
    set_up_agents(tmp_path)
    bench = await desks().create_workspace("w", None)
    session = await bench.start_conversation(acp_agent="Script")
    ended = await run_turn(session, "say one")
    assert ended.reason is TurnEnd.FAILED
    assert "This workspace has no folder" in ended.why


async def test_what_an_agent_offers_is_known_before_the_first_message_and_what_was_said_is_still_told(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="ScriptNoLoad")
    foreign = await bench.acp.start_agent(session.conversation)
    assert foreign.choices["mode"].values == {"ask": "Ask", "auto": "Auto"}
    assert foreign.choices["web"].values == {"true": "On", "false": "Off"}
    await run_turn(session, "say one")
    await foreign.choose_agent_option(session.conversation, "web", "true")
    assert foreign.choices["web"].current == "true"
    await foreign.end_agent()
    await bench.acp.start_agent(session.conversation)
    await run_turn(session, "say two")
    told = [json.loads(line)[1] for line in state_file.read_text().splitlines()]
    assert told[1] == "web is on"
    assert told[2] == "web is on"  # in the new session, too
    assert "assistant: one" in told[3]


async def test_a_command_that_both_know_goes_to_the_agent(bench: Workbench, folder: Path) -> None:
    for name in ("review", "ship"):
        command = folder / ".claude" / "commands" / f"{name}.md"
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text("ours")
    await bench.project.reread_project_folders()
    await bench.project.trust_items(*bench.project.now.items)
    session = await bench.start_conversation(acp_agent="Script")
    assert [item.name for item in bench.slash_commands.list_slash_commands(session.id)] == [
        "review",
        "ship",
    ]
    await bench.acp.start_agent(session.conversation)
    await run_turn(session, "say one")
    assert bench.acp.list_agent_commands(session.id) == {"review": "Looks at the changes"}
    assert [item.name for item in bench.slash_commands.list_slash_commands(session.id)] == ["ship"]
    assert [item.name for item in bench.slash_commands.list_slash_commands()] == ["review", "ship"]


async def test_an_agent_that_died_between_two_messages_answers_the_second(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "say one\nlast-words")
    assert (await run_turn(session, "say two")).reason is TurnEnd.DONE
    assert said(session) == "onetwo"
    told = [json.loads(line)[1] for line in state_file.read_text().splitlines()]
    assert told == ["say one\nlast-words", "[failed]", "[loaded]", "say two"]


async def test_an_agent_that_cannot_resume_as_it_said_loads_its_session(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="ScriptSaysResume")
    await run_turn(session, "say one\ndie")
    await run_turn(session, "say two")
    told = [json.loads(line)[1] for line in state_file.read_text().splitlines()]
    assert told == ["say one\ndie", "[loaded]", "say two"]


async def test_an_agent_whose_own_record_of_a_session_is_refused_goes_on_in_a_new_one(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="ScriptSpoilsLoaded")
    await run_turn(session, "say one\ndie")
    assert (await run_turn(session, "say two")).reason is TurnEnd.DONE
    assert (await run_turn(session, "say three")).reason is TurnEnd.DONE
    assert said(session) == "onetwothree"
    told = [json.loads(line)[1] for line in state_file.read_text().splitlines()]
    assert told[:3] == ["say one\ndie", "[loaded]", "[refused]"]
    assert "assistant: one" in told[3]
    assert told[3].endswith("say two")
    assert told[4:] == ["say three"]


async def test_an_agent_that_had_done_something_when_its_session_was_refused_goes_on_with_the_next_message(
    bench: Workbench, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="ScriptSpoilsLoaded")
    await run_turn(session, "say one\ndie")
    ended = await run_turn(session, "speak first")
    assert ended.reason is TurnEnd.FAILED
    assert "its own record of the session is not complete" in ended.why
    assert "Send another message" in ended.why
    assert (await run_turn(session, "say three")).reason is TurnEnd.DONE
    assert said(session) == "onetwo three"
    told = [json.loads(line)[1] for line in state_file.read_text().splitlines()]
    assert told[:3] == ["say one\ndie", "[loaded]", "[refused]"]
    assert "assistant: two" in told[3]


async def test_what_was_chosen_for_an_agent_holds_after_a_restart(
    desks: Desks, folder: Path, tmp_path: Path, state_file: Path
) -> None:
    set_up_agents(tmp_path)
    desk = desks()
    bench = await desk.create_workspace("w", folder)
    session = await bench.start_conversation(acp_agent="Script")
    await (await bench.acp.open_conversation(session.conversation)).choose_agent_option(
        session.conversation, "mode", "auto"
    )
    await run_turn(session, "say one")
    await desk.aclose()
    bench = await desks().open_workspace(bench.id)
    session = await bench.open_session(session.id)
    await run_turn(session, "say two")
    assert (await bench.acp.open_conversation(session.conversation)).choices[
        "mode"
    ].current == "auto"


async def test_a_turn_that_is_stopped_while_its_end_is_recorded_is_recorded_whole(
    bench: Workbench,
) -> None:
    """The defect: its last call had no result, as if it went on for ever."""
    begun = json.dumps({"toolCallId": "a", "title": "work", "status": "in_progress"})
    session = await bench.start_conversation(acp_agent="Script")
    agent = await bench.acp.open_conversation(session.conversation)
    for rounds in range(6):
        await run_turn(session, "say ready")
        session.send_message((Text(f"tell {begun}\ndie"),))
        while agent.has_running_process:
            await asyncio.sleep(0)
        for _ in range(4 * rounds * rounds):
            await asyncio.sleep(0)
        session.stop_turn()
        await session.wait_until_idle()
    assert len(outputs(session)) == len(calls(session)) == 6
    ends = facts_of(session, TurnEnded)
    assert len(ends) == 12


# --- Without a process


async def never_found(_name: str) -> Any:
    raise NotFound("no agent")


def unstarted(bench: Workbench) -> ForeignConversation:
    return ForeignConversation("Echo", never_found, bench.tasks.spawn_task, PolicySet("none"))


def offer(*option_ids: str, current: str = "a") -> dict[str, Any]:
    values = [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}]
    options = []
    for option_id in option_ids:
        options.append(
            {
                "id": option_id,
                "name": option_id.upper(),
                "type": "select",
                "currentValue": current,
                "options": values,
            }
        )
    return {"configOptions": options}


async def test_only_so_many_choices_are_kept_and_known_ones_change(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_conversation, "MOST_CHOICES", 3)
    there = unstarted(bench)
    there._add_choices(offer("one", "two"))
    there._add_choices(offer("three", "four"))
    assert list(there.choices) == ["one", "two", "three"]
    there._add_choices(offer("one", "five", current="b"))
    assert {name: choice.current for name, choice in there.choices.items()} == {
        "one": "b",
        "two": "a",
        "three": "a",
    }
    assert there.get_agent_choice("two").name == "TWO"
    with pytest.raises(NotFound, match="The agent Echo has no option six") as unknown:
        there.get_agent_choice("six")
    assert unknown.value.remedy == "Available: one, two, three."
    with pytest.raises(NotFound) as none:
        unstarted(bench).get_agent_choice("six")
    assert none.value.remedy == "Available: none."


async def test_what_the_agent_says_of_itself_is_taken_over_where_it_makes_sense(
    bench: Workbench,
) -> None:
    there = unstarted(bench)
    there._apply_update_to_agent({"currentModeId": "plan", "size": 1_000})
    assert (there.choices, there._window) == ({}, 1_000)
    there._add_choices(offer("mode"))
    there._apply_update_to_agent({"currentModeId": "b"})
    assert there.choices["mode"].current == "b"
    assert there._window == 1_000, "it said nothing new"
    for amount, cost in ((0.5, 0.5), (-1, 0.5), (1e6, 0.5), ("1", 0.5), (0, 0.0), (2, 2.0)):
        there._apply_update_to_agent({"cost": {"amount": amount}})
        assert there._cost == cost
    commands = [{"name": "review", "description": "Look at it."}]
    there._apply_update_to_agent({"availableCommands": commands})
    assert there.commands == {}
    there._apply_update_to_agent(
        {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    )
    assert there.commands == {"review": "Look at it."}


async def test_a_turn_costs_what_the_session_cost_more_than_before(bench: Workbench) -> None:
    there = unstarted(bench)
    there._cost = 0.75
    answer = {"usage": {"inputTokens": 100, "outputTokens": 7}}
    assert there._usage_since_last_turn(answer) == Usage(input=100, output=7, cost=0.75)
    there._cost = 1.0
    assert there._usage_since_last_turn({}) == Usage(cost=0.25)
    there._cost = 0.5  # A new session.
    assert there._usage_since_last_turn({}) == Usage()
    there._is_routed = True
    there._cost = 9.0
    assert there._usage_since_last_turn(answer) == Usage(), "the gateway records it"


@pytest.mark.parametrize(
    ("named", "own", "is_other"),
    [("", "", False), ("a", "", False), ("", "a", False), ("a", "a", False), ("b", "a", True)],
)
async def test_what_names_another_session_is_of_another_conversation(
    bench: Workbench, named: str, own: str, *, is_other: bool
) -> None:
    there = unstarted(bench)
    there._session = own
    assert there._is_of_other_session(named) is is_other


async def test_nothing_is_done_for_an_agent_between_two_turns(bench: Workbench) -> None:
    there = unstarted(bench)
    assert (there.is_working, there.has_running_process) == (False, False)
    with pytest.raises(ActionRefused, match="only while it answers a message"):
        await there._answer_agent_in_turn("fs/read_text_file", {})
    there._count_request(5)
    await there._cancel_turn_or_end_agent()
    await there.end_agent()


@pytest.mark.parametrize(
    ("error", "is_invalid"),
    [
        (AgentRefused("Echo reported an error: invalid_request_error."), True),
        (AgentRefused("Echo reported an error: INVALID_ARGUMENT"), True),
        (AgentRefused("Echo reported an error: Invalid argument."), True),
        (AgentRefused("Echo reported an error: overloaded."), False),
        (ModelFailed("invalid_request"), False),
    ],
)
def test_only_a_request_that_was_refused_as_invalid_gives_up_a_session(
    error: ModelFailed, *, is_invalid: bool
) -> None:
    assert foreign_conversation._is_invalid_request(error) is is_invalid


async def conversation_of(bench: Workbench, *recorded: Fact) -> Conversation:
    session = await bench.start_conversation()
    await session.conversation.append_facts(*recorded)
    return session.conversation


def reply(text: str) -> ModelReplied:
    return ModelReplied((Text(text),), "Echo", Stop.END)


async def test_what_is_sent_is_what_the_user_has_said_since_the_last_reply(
    bench: Workbench,
) -> None:
    conversation = await conversation_of(bench, UserSaid((Text("one"),)))
    parts = foreign_conversation._parts_since_last_reply(conversation.state.branch)
    assert parts == [Text("one")]
    assert foreign_conversation._format_history(conversation.state.branch) == ""
    await conversation.append_facts(reply("answer"))
    parts = foreign_conversation._parts_since_last_reply(conversation.state.branch)
    assert parts == [Text(foreign_conversation.GO_ON)], "nothing was said since"
    await conversation.append_facts(UserSaid((Text("two"), Text("three"))))
    branch = conversation.state.branch
    assert foreign_conversation._parts_since_last_reply(branch) == [Text("two"), Text("three")]
    history = foreign_conversation._format_history(branch)
    assert "one" in history
    assert "answer" in history
    assert "two" not in history, "it is sent as the message itself"


async def test_only_the_end_of_a_long_history_is_told(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await conversation_of(
        bench, UserSaid((Text("first " + "x" * 500),)), reply("y" * 50)
    )
    monkeypatch.setattr(foreign_conversation, "LONGEST_HISTORY", 60)
    history = foreign_conversation._format_history(conversation.state.branch)
    assert "y" * 50 in history
    assert "first" not in history
    assert len(history) < 60 + len(foreign_conversation.HISTORY)


async def test_the_session_of_a_conversation_ends_with_a_rewind(bench: Workbench) -> None:
    find = foreign_conversation._find_agent_session_id
    conversation = await conversation_of(bench, UserSaid((Text("one"),)))
    assert find(conversation) == ""
    await conversation.append_facts(Received((), (), session="s1"), reply("answer"))
    assert find(conversation) == "s1"
    await conversation.append_facts(Received((), (), session="s2"))
    assert find(conversation) == "s2"
    await conversation.append_facts(Rewound(1))
    assert find(conversation) == ""


async def test_an_agent_is_told_each_folder_of_the_workspace(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more"
    more.mkdir()
    desk = desks()
    one = await desk.create_workspace("one", folder)
    values = foreign_conversation._session_folders(one.kit)
    assert values == {"cwd": str(folder), "mcpServers": []}
    await one.change_settings({"roots": [str(folder), str(more)]})
    await desk.aclose()
    reopened = await desks().open_workspace(one.id)
    values = foreign_conversation._session_folders(reopened.kit)
    assert values["cwd"] == str(folder)
    assert values["additionalDirectories"] == [str(more)]


async def test_a_conversation_of_an_agent_that_was_left_does_not_stay_in_memory(
    bench: Workbench,
) -> None:
    """The defect: a timer held all of its facts until a provider's cache would have expired, which
    is nothing to a conversation whose requests another program sends.
    """
    session = await bench.start_conversation(acp_agent="Script")
    await run_turn(session, "say hello")
    facts = weakref.ref(session.conversation.state)
    await (await bench.acp.open_conversation(session.conversation)).end_agent()
    del session
    for _ in range(MOST_IDLE_SESSIONS + 1):
        await bench.start_conversation()
    gc.collect()
    assert facts() is None
