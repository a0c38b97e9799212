"""Agents that are given work by name, in the background, in trees: limits hold, and
nothing outlives its end.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import (
    ConversationStarted,
    PolicySet,
    Recorded,
    ReplyPart,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import Delta, Reply, Request
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import CLOSED, MeterChanged
from helix_desktop.project import project_files as folders
from helix_desktop.tools.delegate_tool import Delegation
from helix_desktop.workbench import Workbench, partial_replies
from tests.engine.agent import calls, says
from tests.texts_and_calls import texts_in
from tests.workbench.conftest import Desks
from tests.workbench.test_open_workbench import MODEL, bench_on
from tests.workbench.test_rules_and_skills import trusting


@dataclass
class Team:
    """A model that answers each agent by the task it was given: the longest key its
    last message of the user's holds.
    """

    answers: dict[str, list[Reply]]
    model_name: str = "scripted"
    requests: list[Request] = field(default_factory=list)
    hold: asyncio.Event | None = None
    working: int = 0
    most: int = 0  # that worked at the same time
    cost: float = 0.0

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        key = self._find_key(request)
        script = self.answers.get(key, [])
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            if self.hold is not None and not script:
                await self.hold.wait()
        finally:
            self.working -= 1
        reply = script.pop(0) if script else says(f"done with {key or 'it'}")
        parts: list[ReplyPart] = []
        for part in reply.parts:
            if isinstance(part, ToolCall):  # No two calls have one id.
                parts.append(replace(part, id=f"{part.id}-{len(self.requests)}"))
            else:
                parts.append(part)
        usage = Usage(input=10, output=1, cost=self.cost)
        yield replace(reply, parts=tuple(parts), usage=usage)

    def _find_key(self, request: Request) -> str:
        """The longest one that stands in the newest text with any."""
        said: list[str] = []
        for message in request.messages:
            said += texts_in(message.parts)
        for text in reversed(said):
            keys = [key for key in self.answers if key in text]
            if keys:
                return max(keys, key=len)
        return ""


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Team:
    made = Team({})
    monkeypatch.setattr(Workbench, "_model_client_for", lambda *_: made)
    monkeypatch.setattr(folders, "user_home", lambda: tmp_path / "own")
    return made


def agent(folder: Path, name: str, front: str = "", body: str = "You work.") -> None:
    place = folder / ".claude" / "agents"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.md").write_text(
        f"---\nname: {name}\ndescription: Does {name}\n{front}---\n{body}\n"
    )


async def begun(desks: Desks, folder: Path, **limits: float) -> tuple[Workbench, Session]:
    bench = await bench_on(desks, folder)
    await trusting(bench)
    if limits:
        await bench.change_settings({f"limits.{name}": value for name, value in limits.items()})
    return bench, await bench.start_conversation()


async def told(session: Session, words: str) -> None:
    session.send_message((Text(words),))
    await asyncio.wait_for(session.wait_until_idle(), 60)


def results(session: Session) -> list[ToolReturned]:
    return [r.fact for r in session.all_facts if isinstance(r.fact, ToolReturned)]


def delegates(*wishes: dict[str, Any]) -> Reply:
    made = [part for wish in wishes for part in calls("delegate", **wish).parts]
    parts = tuple(
        replace(p, id=f"d{n}") if isinstance(p, ToolCall) else p for n, p in enumerate(made)
    )
    return Reply(parts, Stop.CALLS)


async def test_an_agent_has_its_own_words_tools_and_policy(
    desks: Desks, folder: Path, team: Team
) -> None:
    agent(folder, "reviewer", "tools: Read, Grep\npolicy: helix\n", "You review code.")
    bench, session = await begun(desks, folder)
    team.answers = {"ROOT": [delegates({"task": "TASK look", "agent": "reviewer"})]}
    await told(session, "ROOT")
    (result,) = results(session)
    assert result.ok
    child = await bench.open_session(result.child)
    request = next(r for r in team.requests if "You review code." in r.system)
    names = {spec.name for spec in request.tools}
    assert {"read_file", "search_files"} <= names
    assert not {"write_file", "run_command", "delegate"} & names
    assert [r.fact.preset for r in child.all_facts if isinstance(r.fact, PolicySet)] == ["helix"]
    started = child.all_facts[0].fact
    assert isinstance(started, ConversationStarted)
    assert started.role == "reviewer"
    assert "ROOT" not in str(request.messages)  # nothing of the parent but what was delegated


async def test_agents_call_each_other_where_their_file_says_so_and_circles_end(
    desks: Desks, folder: Path, team: Team
) -> None:
    agent(folder, "a", "agents: b\n")
    agent(folder, "b", "agents: a\n")
    _, session = await begun(desks, folder, agents_depth=5)
    team.answers = {
        "ROOT": [delegates({"task": "ONE", "agent": "a"})],
        "ONE": [
            delegates(
                {"task": "TWO", "agent": "b"}, {"task": "TWO", "agent": "nobody"}, {"task": "TWO"}
            )
        ],
        "TWO": [delegates({"task": "THREE", "agent": "a"})],
    }
    await told(session, "ROOT")
    said = "\n".join(
        getattr(part, "text", "")
        for request in team.requests
        for m in request.messages
        for part in m.parts
    )
    assert "This would create a loop: a → b → a." in said
    assert "There is no agent named 'nobody'" in said
    assert "a may only call: b" in said


async def test_the_background_goes_on_and_tells_when_it_is_done(
    desks: Desks, folder: Path, team: Team
) -> None:
    bench, session = await begun(desks, folder)
    team.hold = asyncio.Event()
    team.answers = {
        "ROOT": [delegates({"task": "SLOW", "background": True}), says("meanwhile")],
        "SLOW": [],
    }
    await told(session, "ROOT")
    (row,) = bench.workforce.list_agent_rows(session.id)
    assert row.state == "working"
    team.answers["finished"] = [says("heard it")]
    team.hold.set()
    async with asyncio.timeout(60):
        while not [
            r
            for r in session.all_facts
            if isinstance(r.fact, UserSaid) and r.fact.by == "agent:SLOW"
        ]:
            await asyncio.sleep(0.01)
        await session.wait_until_idle()
    assert bench.workforce.list_agent_rows(session.id)[0].state == "done"


async def test_a_running_agent_is_told_something(desks: Desks, folder: Path, team: Team) -> None:
    bench, session = await begun(desks, folder)
    team.hold = asyncio.Event()
    team.answers = {
        "ROOT": [delegates({"task": "SLOW", "background": True}), says("ok")],
        "SLOW": [],
    }
    await told(session, "ROOT")
    (row,) = bench.workforce.list_agent_rows(session.id)
    team.answers["AGAIN"] = [
        calls(
            "call_tool",
            name="message_agent",
            arguments={"agent": row.id, "text": "Mind the tests."},
        ),
        says("ok"),
    ]
    session.send_message((Text("AGAIN"),))
    child = await bench.open_session(row.id)
    async with asyncio.timeout(60):
        while not child.queue:
            await asyncio.sleep(0.01)
    team.hold.set()
    await asyncio.wait_for(child.wait_until_idle(), 60)
    assert [r.fact.by for r in child.all_facts if isinstance(r.fact, UserSaid)] == ["", "agent"]


async def test_the_money_of_a_tree_is_limited(desks: Desks, folder: Path, team: Team) -> None:
    bench, session = await begun(desks, folder, agents_cost=0.025)
    team.cost = 0.01
    team.answers = {
        "ROOT": [delegates({"task": "WORK"}), delegates({"task": "MORE"})],
        "WORK": [calls("list_files") for _ in range(9)],
    }
    await told(session, "ROOT")
    first, second = results(session)
    assert not first.ok
    assert "All agents of this conversation has cost" in first.head or "have cost" in first.head
    assert "the limit is $0.03" in second.head or "limit is" in second.head
    assert bench.workforce.cost_of_agents_below(session.id) == pytest.approx(0.03)


async def test_a_conversation_costs_what_its_agents_cost_too_and_totals_count_nothing_twice(
    desks: Desks, folder: Path, team: Team
) -> None:
    bench, session = await begun(desks, folder, agents_depth=3)
    team.cost = 0.5
    heard = list[str]()
    bench.subscribe_to_events(
        lambda event: heard.append(event.conversation) if type(event) is MeterChanged else None
    )
    team.answers = {
        "ROOT": [delegates({"task": "WORK"})],
        "WORK": [delegates({"task": "MORE"})],
        "MORE": [],
    }
    await told(session, "ROOT")
    assert session.id in heard, "the meter of the parent follows what its agents pay"
    rows = {row.id: row for row in bench.list_conversations()}
    (child,) = [result.child for result in results(session)]
    (below,) = [row.id for row in rows.values() if row.parent == child]
    expected = {session.id: (1.0, 2.5), child: (1.0, 1.5), below: (0.5, 0.5)}
    assert {row.id: (row.cost, row.whole_cost) for row in rows.values()} == expected
    assert session.context.cost_of_agents() == 1.5
    assert bench._rows.cost_today_and_ever()[1] == 2.5
    await bench._rows.read_all_rows()  # as after a restart
    assert {row.id: (row.cost, row.whole_cost) for row in bench.list_conversations()} == expected
    bench._rows.remove_conversation_rows([below])
    assert [row.whole_cost for row in bench.list_conversations() if row.id == session.id] == [2.0]


async def test_the_limit_of_a_turn_holds_for_the_agents_that_work_in_it(
    desks: Desks, folder: Path, team: Team
) -> None:
    bench, session = await begun(desks, folder, turn_cost=1.0)
    team.cost = 0.3
    team.answers = {
        "ROOT": [delegates({"task": "WORK"}), calls("list_files")],
        "WORK": [calls("list_files") for _ in range(9)],
        "AGAIN": [calls("list_files"), says("ok")],
    }
    await told(session, "ROOT")
    (end,) = [one.fact for one in session.all_facts if isinstance(one.fact, TurnEnded)]
    assert end.why == "This turn has cost $1.20; the limit is $1.00."
    assert "This turn has cost $1.20" in results(session)[0].head
    assert len(team.requests) == 4
    await told(session, "AGAIN")
    assert len(team.requests) == 6, "what an earlier turn's agents cost is not counted again"
    assert bench.workforce.cost_of_agents_below(session.id) == pytest.approx(0.9)


async def test_the_time_of_a_tree_is_limited(desks: Desks, folder: Path, team: Team) -> None:
    _, session = await begun(desks, folder, agents_seconds=0.5)
    team.hold = asyncio.Event()
    team.answers = {
        "ROOT": [delegates({"task": "SLOW"}), delegates({"task": "SLOW"}), says("ok")],
        "SLOW": [],
    }
    await told(session, "ROOT")  # in time, or it fails
    first, second = results(session)
    assert "reached their time limit of 0.5 s" in first.head
    assert "reached their time limit of 0.5 s" in second.head


async def test_a_tree_of_agents_keeps_its_number_exactly_and_stops_at_once(
    desks: Desks, folder: Path, team: Team
) -> None:
    bench, session = await begun(desks, folder, agents=20, agents_depth=3, agents_at_once=20)
    team.hold = asyncio.Event()
    many = [{"task": f"MIDDLE {n}"} for n in range(5)]
    team.answers = {"ROOT": [delegates(*many)], "LEAF": []}
    for n in range(5):
        team.answers[f"MIDDLE {n}"] = [delegates(*({"task": f"LEAF {n}.{m}"} for m in range(5)))]
    session.send_message((Text("ROOT"),))
    async with asyncio.timeout(60):
        while len(bench.workforce.list_agent_rows(session.id)) < 20 or team.working < 15:
            await asyncio.sleep(0.01)
    rows = bench.workforce.list_agent_rows(session.id)
    bench.workforce.stop_agent(rows[0].id)
    bench.workforce.stop_all_agents(session.id)
    session.stop_turn()
    await asyncio.wait_for(
        session.wait_until_idle(), 60
    )  # one second on a quiet machine; tests/benchmarks/workforce.py measures it
    assert team.working == 0
    assert {row.state for row in bench.workforce.list_agent_rows(session.id)} == {"stopped"}
    assert bench.workforce.team_of(session.id).started_count == 20


async def test_no_more_work_side_by_side_in_the_whole_tree_than_may(
    desks: Desks, folder: Path, team: Team
) -> None:
    bench, session = await begun(desks, folder, agents_depth=2, agents_at_once=2)
    middle = [{"task": f"MIDDLE {n}"} for n in range(4)]
    team.hold = asyncio.Event()
    team.answers = {"ROOT": [delegates(*middle)], "LEAF": []}
    for n in range(4):
        team.answers[f"MIDDLE {n}"] = [delegates(*({"task": f"LEAF {n}.{m}"} for m in range(3)))]
    session.send_message((Text("ROOT"),))
    async with asyncio.timeout(60):
        while team.working < 2:
            await asyncio.sleep(0.01)
    team.hold.set()
    await asyncio.wait_for(session.wait_until_idle(), 60)
    assert team.most == 2
    assert [row.state for row in bench.workforce.list_agent_rows(session.id)] == ["done"] * 16
    assert bench.workforce.team_of(session.id).working == 0


async def test_stopping_all_ends_those_that_wait_for_their_turn(
    desks: Desks, folder: Path, team: Team
) -> None:
    bench, session = await begun(desks, folder, agents_at_once=2)
    team.hold = asyncio.Event()
    team.answers = {"ROOT": [delegates(*({"task": f"TASK {n}"} for n in range(6)))], "TASK": []}
    session.send_message((Text("ROOT"),))
    async with asyncio.timeout(60):
        while len(bench.workforce.list_agent_rows(session.id)) < 6 or team.working < 2:
            await asyncio.sleep(0.01)
    assert (
        sorted(row.state for row in bench.workforce.list_agent_rows(session.id))
        == ["waiting"] * 4 + ["working"] * 2
    )
    bench.workforce.stop_all_agents(session.id)
    team.hold.set()
    await asyncio.wait_for(session.wait_until_idle(), 60)
    assert {row.state for row in bench.workforce.list_agent_rows(session.id)} == {"stopped"}
    assert sum("TASK" in str(request.messages[0]) for request in team.requests) == 2
    assert all("stopped" in result.head for result in results(session)[2:])


async def test_stopping_all_ends_those_that_are_being_opened(
    desks: Desks, folder: Path, team: Team
) -> None:
    """On a busy machine the last of twelve began after "Stop all" was pressed, and worked on."""
    bench, session = await begun(desks, folder)
    open_ = bench.workforce.open
    slowly = asyncio.Event()
    opening: list[Delegation] = []

    async def open_slowly(started: ConversationStarted, wish: Delegation) -> Session:
        opening.append(wish)
        if len(opening) > 1:
            await slowly.wait()
        return await open_(started, wish)

    bench.workforce.open = open_slowly
    team.hold = asyncio.Event()
    team.answers = {"ROOT": [delegates(*({"task": f"TASK {n}"} for n in range(3)))], "TASK": []}
    session.send_message((Text("ROOT"),))
    async with asyncio.timeout(60):
        while len(opening) < 3 or team.working < 1:
            await asyncio.sleep(0.01)
    bench.workforce.stop_all_agents(session.id)
    slowly.set()
    team.hold.set()
    await asyncio.wait_for(session.wait_until_idle(), 60)
    assert [row.state for row in bench.workforce.list_agent_rows(session.id)] == ["stopped"] * 3
    assert sum("TASK" in str(request.messages[0]) for request in team.requests) == 1


@pytest.mark.parametrize("killed", [False, True])
async def test_an_agent_in_the_background_that_the_program_ends_is_reported_after_a_restart(
    desks: Desks, folder: Path, team: Team, *, killed: bool
) -> None:
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role(MODEL)
    session = await bench.start_conversation()
    team.hold = asyncio.Event()
    team.answers = {
        "ROOT": [delegates({"task": "SLOW", "background": True}), says("meanwhile")],
        "SLOW": [],
    }
    await told(session, "ROOT")
    (row,) = bench.workforce.list_agent_rows(session.id)
    child = await bench.open_session(row.id)
    async with asyncio.timeout(60):
        while not team.working:
            await asyncio.sleep(0.01)
    if killed:  # Nothing is recorded after this moment.
        for one in (session, child):
            one.conversation.append_facts = _append_nothing  # type: ignore[method-assign, assignment]
    await desk.aclose()
    assert killed or _last_end(child) == TurnEnded(TurnEnd.STOPPED, CLOSED)
    again = await desks().open_workspace(bench.id)
    for _ in range(2):  # Opened again, it is not reported a second time.
        opened = await again.open_session(session.id)
        said = [r.fact for r in opened.all_facts if isinstance(r.fact, UserSaid)]
        reports = [fact for fact in said if fact.by == "interrupted:SLOW"]
        assert len(reports) == 1
        await again.sessions.close_sessions([session.id])
    (report,) = reports[0].parts
    assert isinstance(report, Text)
    assert row.id in report.text
    assert "the program ended" in report.text
    opened = await again.open_session(session.id)
    assert opened.conversation.state.branch.turn.running, "the user can go on"
    team.answers["did not finish"] = [says("I will do it again")]
    opened.resume_turn()
    await asyncio.wait_for(opened.wait_until_idle(), 60)
    assert any("did not finish" in str(request.messages[-1]) for request in team.requests)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells")
async def test_what_the_command_of_an_interrupted_agent_had_printed_is_kept(
    desks: Desks, folder: Path, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_replies, "EVERY", 0.0)
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role(MODEL)
    await bench.choose_permission_mode("allow all")
    os.mkfifo(folder / "go")
    session = await bench.start_conversation()
    command = calls("run_command", command="echo counted 1; read x < go")
    team.answers = {
        "ROOT": [delegates({"task": "WORK", "background": True}), says("meanwhile")],
        "WORK": [command],
    }
    await told(session, "ROOT")
    (row,) = bench.workforce.list_agent_rows(session.id)
    child = await bench.open_session(row.id)
    async with asyncio.timeout(60):
        while not list((bench.workspace.folder / "partial").glob("*.json")):
            await asyncio.sleep(0.01)
    for one in (
        session,
        child,
    ):  # Nothing is recorded after this moment, as if the program was killed.
        one.conversation.append_facts = _append_nothing  # type: ignore[method-assign, assignment]
    await desk.aclose()
    again = await desks().open_workspace(bench.id)
    await again.open_session(session.id)
    facts = await again.read_conversation_facts(row.id)
    (printed,) = [one.fact for one in facts if isinstance(one.fact, ToolReturned)]
    text = (await again.workspace.cache.read_content(printed.output.digest)).decode()
    assert text == f"counted 1\n{partial_replies.CUT_OFF}"


async def _append_nothing(*_: object) -> list[Recorded]:
    return []


def _last_end(session: Session) -> TurnEnded | None:
    return next(
        (r.fact for r in reversed(session.all_facts) if isinstance(r.fact, TurnEnded)), None
    )


async def test_a_question_of_an_agent_in_the_background_is_shown_where_it_was_delegated(
    desks: Desks, folder: Path, team: Team
) -> None:
    """The turn of the conversation goes on and ends while the question is open."""
    bench, session = await begun(desks, folder)
    team.answers = {
        "ROOT": [delegates({"task": "SLOW", "background": True}), says("meanwhile")],
        "SLOW": [calls("run_command", command="echo hello")],
    }
    await told(session, "ROOT")
    async with asyncio.timeout(60):
        while not session.questions:
            await asyncio.sleep(0.01)
    assert _activity(session) == "waiting for you"
    team.answers["MORE"] = [says("here")]
    await told(session, "MORE")
    assert _activity(session) == "waiting for you", (
        "the end of a turn of its own changes nothing about it"
    )
    session.answer_question(next(iter(session.questions)), PermissionAnswer(False))
    async with asyncio.timeout(60):
        while bench.workforce.list_agent_rows(session.id)[0].state != "done":
            await asyncio.sleep(0.01)
        await session.wait_until_idle()
    assert _activity(session) == "idle"


def _activity(session: Session) -> str:
    return session.running.value


@pytest.mark.parametrize("jump", [-1e7, 1e7])
async def test_a_clock_that_jumps_changes_no_limit_of_time(
    desks: Desks, folder: Path, team: Team, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    bench, session = await begun(desks, folder, agents_seconds=1000)
    team.answers = {"ROOT": [delegates({"task": "FIRST"}), says("ok")], "FIRST": [says("one")]}
    await told(session, "ROOT")
    tree = bench.workforce.team_of(session.id)
    right_time = time.time()
    monkeypatch.setattr(time, "time", lambda: right_time + jump)
    assert 0 < bench.workforce._time_left(tree) <= 1000
