"""200 agents in a tree of depth 3 against a scripted model: `python -m
tests.benchmarks.workforce [--window]`.

Whether the limit of their number holds exactly, how long it takes until all have
stopped, what is left after quitting, whether anything of one agent is in another's
context but its result, memory, and how long the event loop was held. `--window`: in the
real window with the agents panel open, where the turns of Qt's event loop are measured;
needs a display.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from PySide6.QtWidgets import QApplication

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import Stop, Text, ToolCall
from helix_desktop.engine.messages import Reply
from helix_desktop.gui.subagents_dialog import SubagentsDialog
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.benchmarks.loop import Gaps
from tests.engine.agent import calls
from tests.soak.driven import drive, opened, prepare, until
from tests.workbench.test_subagents import Team

NUMBER = 200


def delegates(tasks: list[str]) -> Reply:
    delegated: list[ToolCall] = []
    for task in tasks:
        for part in calls("delegate", task=task).parts:
            assert isinstance(part, ToolCall)
            delegated.append(replace(part, id=f"d{len(delegated)}"))
    return Reply(tuple(delegated), Stop.CALLS)


def plant(team: Team) -> None:
    """A tree that would have more agents than there may be, whose leaves work until
    they are stopped.
    """
    team.hold = asyncio.Event()
    top = [f"TOP-{number}-" for number in range(5)]
    team.answers = {"ROOT": [delegates(top)], "LEAF": []}
    leaf_count = 0
    for number, top_task in enumerate(top):
        middle = [f"MIDDLE-{number}.{place}-" for place in range(6)]
        team.answers[top_task] = [delegates(middle)]
        for middle_task in middle:
            leaves = [f"LEAF-{leaf_count + place}-" for place in range(7)]
            leaf_count += len(leaves)
            team.answers[middle_task] = [delegates(leaves)]


def memory() -> int:
    """Of this process now, in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


async def main() -> None:
    team = Team({})
    Workbench._model_client_for = lambda *_: team  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "project"
        folder.mkdir()
        where = program_folders.find_program_folders(Path(base) / "home")
        desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
        bench = await desk.create_workspace("Agents", folder)
        await bench.change_settings(
            {"limits.agents": NUMBER, "limits.agents_depth": 3, "limits.agents_at_once": NUMBER}
        )
        session = await bench.start_conversation()
        plant(team)
        before = memory()
        worst = 0.0
        done = False

        async def watch() -> None:
            nonlocal worst
            while not done:
                started = time.perf_counter()
                await asyncio.sleep(0.005)
                worst = max(worst, time.perf_counter() - started - 0.005)

        def count_agents() -> int:
            return len(bench.workforce.list_agent_rows(session.id))

        watching = asyncio.ensure_future(watch())  # noqa: TID251
        started = time.perf_counter()
        session.send_message((Text("ROOT"),))
        while count_agents() < NUMBER or team.working < NUMBER - 35:
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - started
        print(f"{count_agents()} agents of {5 + 30 + 210} wanted began in {seconds:.1f} s")
        print(
            f"memory: {before} MB before, {memory()} MB with all of them;"
            f" the loop was held {worst * 1000:.0f} ms at the most"
        )
        _contexts(team)
        started = time.perf_counter()
        bench.workforce.stop_all_agents(session.id)
        session.stop_turn()
        while team.working:
            await asyncio.sleep(0)
        print(f"no request runs any more after {time.perf_counter() - started:.3f} s")
        await session.wait_until_idle()
        states = _count_states(bench, session.id)
        while team.working or any(states[state] for state in ("working", "waiting", "asking")):
            await asyncio.sleep(0.005)
            states = _count_states(bench, session.id)
        seconds = time.perf_counter() - started
        started_count = bench.workforce.team_of(session.id).started_count
        print(f"all recorded after {seconds:.2f} s; started in all: {started_count}")
        print("states:", dict(states))
        done = True
        await watching
        await desk.aclose()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        print(f"after quitting: {team.working} requests, {len(left)} tasks")


def _count_states(bench: Workbench, session: str) -> Counter[str]:
    return Counter(row.state for row in bench.workforce.list_agent_rows(session))


def _contexts(team: Team) -> None:
    """Whether a request of a leaf holds a task of another branch of the tree."""
    strange = 0
    for request in team.requests:
        texts: list[str] = []
        for message in request.messages:
            texts += [getattr(part, "text", "") for part in message.parts]
        if not texts or "LEAF-" not in texts[0]:
            continue
        whole = "\n".join(texts)
        if "TOP-" in whole or "MIDDLE-" in whole:
            strange += 1
    print(
        f"{len(team.requests)} requests; {strange} of agents with something of another agent in them"
    )


async def in_window(run: WindowProgram) -> None:
    """The same tree with the panel open, and Stop all pressed there."""
    team = Team({})
    Workbench._model_client_for = lambda *_: team  # type: ignore[method-assign]
    window = run.window
    await opened(run, "Agents")
    bench = window.current_workbench
    assert isinstance(bench, Workbench)
    await bench.change_settings(
        {"limits.agents": NUMBER, "limits.agents_depth": 3, "limits.agents_at_once": NUMBER}
    )
    session = await bench.start_conversation()
    window.sides.refresh_conversations()
    window.sides.go_to_conversation(session.id)
    await until(
        lambda: window.current_session is not None and window.current_session.id == session.id
    )
    window.window_actions["agents"].trigger()
    await until(lambda: bool(_open_dialogs()))
    dialog = _open_dialogs()[0]
    plant(team)
    before = memory()
    await asyncio.sleep(2)
    beginning = Gaps()
    beginning.begin()
    session.send_message((Text("ROOT"),))
    begun = bench.workforce.team_of(session.id)
    await until(lambda: len(begun.agents) == NUMBER and team.working >= NUMBER - 35, 300)
    beginning.end()
    working = Gaps()
    working.begin()
    await asyncio.sleep(10)
    working.end()
    print(f"memory: {before} MB before, {memory()} MB with {NUMBER} agents")
    stopping = Gaps()
    stopping.begin()
    started = time.perf_counter()
    dialog.stop_shown_agents()
    await until(lambda: not team.working)
    print(f"no request runs any more after {time.perf_counter() - started:.3f} s")
    await until(lambda: all(agent.ended for agent in begun.agents.values()))
    stopping.end()
    print(f"all stopped after {time.perf_counter() - started:.2f} s")
    session.stop_turn()
    await session.wait_until_idle()
    _show_gaps("while they begin", beginning)
    _show_gaps("while they work", working)
    _show_gaps("while they are stopped", stopping)


def _open_dialogs() -> list[SubagentsDialog]:
    return [
        widget for widget in QApplication.topLevelWidgets() if isinstance(widget, SubagentsDialog)
    ]


def _show_gaps(name: str, gaps: Gaps) -> None:
    for clock, times in (("wall", gaps.wall), ("own processor time", gaps.own)):
        in_order = sorted(times)
        p99 = in_order[len(in_order) * 99 // 100]
        print(f"{name}, {clock}: p99 {p99:.1f}, longest {in_order[-1]:.1f} ms of {len(in_order)}")


def window() -> int:
    with tempfile.TemporaryDirectory() as base:
        prepare(Path(base), 1, ["Agents"], lambda _folder: None, window=128_000)
        return drive(Path(base), in_window)


if __name__ == "__main__":
    if "--window" in sys.argv:
        sys.exit(window())
    asyncio.run(main())
