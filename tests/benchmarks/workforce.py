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
    made = [part for task in tasks for part in calls("delegate", task=task).parts]
    return Reply(
        tuple(replace(p, id=f"d{n}") for n, p in enumerate(made) if isinstance(p, ToolCall)),
        Stop.CALLS,
    )


def plant(team: Team) -> None:
    """A tree that would have more agents than there may be, whose leaves work until
    they are stopped.
    """
    team.hold = asyncio.Event()
    top, middle = (
        [f"TOP-{n}-" for n in range(5)],
        [f"MIDDLE-{n}.{m}-" for n in range(5) for m in range(6)],
    )
    leaves = [f"LEAF-{n}-" for n in range(30 * 7)]
    team.answers = {"ROOT": [delegates(top)], "LEAF": []}
    team.answers |= {task: [delegates(middle[n * 6 : n * 6 + 6])] for n, task in enumerate(top)}
    team.answers |= {task: [delegates(leaves[n * 7 : n * 7 + 7])] for n, task in enumerate(middle)}


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
        worst, done = 0.0, False

        async def watch() -> None:
            nonlocal worst
            while not done:
                started = time.perf_counter()
                await asyncio.sleep(0.005)
                worst = max(worst, time.perf_counter() - started - 0.005)

        watching = asyncio.ensure_future(watch())  # noqa: TID251
        started = time.perf_counter()
        session.send_message((Text("ROOT"),))
        while (
            len(bench.workforce.list_agent_rows(session.id)) < NUMBER or team.working < NUMBER - 35
        ):
            await asyncio.sleep(0.01)
        print(
            f"{len(bench.workforce.list_agent_rows(session.id))} agents of {5 + 30 + 210} wanted began in {time.perf_counter() - started:.1f} s"
        )
        print(
            f"memory: {before} MB before, {memory()} MB with all of them; the loop was held {worst * 1000:.0f} ms at the most"
        )
        _contexts(team)
        started = time.perf_counter()
        bench.workforce.stop_all_agents(session.id)
        session.stop_turn()
        while team.working:
            await asyncio.sleep(0)
        print(f"no request runs any more after {time.perf_counter() - started:.3f} s")
        await session.wait_until_idle()
        while team.working or any(
            row.state in ("working", "waiting", "asking")
            for row in bench.workforce.list_agent_rows(session.id)
        ):
            await asyncio.sleep(0.005)
        print(
            f"all recorded after {time.perf_counter() - started:.2f} s; started in all: {bench.workforce.team_of(session.id).started_count}"
        )
        print(
            "states:",
            dict(Counter(row.state for row in bench.workforce.list_agent_rows(session.id))),
        )
        done = True
        await watching
        await desk.aclose()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        print(f"after quitting: {team.working} requests, {len(left)} tasks")


def _contexts(team: Team) -> None:
    """Whether a request holds a task of another branch of the tree."""
    strange = 0
    for request in team.requests:
        said = "\n".join(
            getattr(part, "text", "") for message in request.messages for part in message.parts
        )
        own = [word for word in ("TOP-", "MIDDLE-", "LEAF-") if word in said.partition("\n")[0]]
        first = next(
            (getattr(part, "text", "") for message in request.messages for part in message.parts),
            "",
        )
        strange += "LEAF-" in first and ("TOP-" in said or "MIDDLE-" in said or len(own) > 1)
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
    await until(
        lambda: any(isinstance(each, SubagentsDialog) for each in QApplication.topLevelWidgets())
    )
    dialog = next(
        each for each in QApplication.topLevelWidgets() if isinstance(each, SubagentsDialog)
    )
    plant(team)
    before, gaps = memory(), [Gaps() for _ in range(3)]
    await asyncio.sleep(2)
    gaps[0].begin()
    session.send_message((Text("ROOT"),))
    begun = bench.workforce.team_of(session.id)
    await until(lambda: len(begun.agents) == NUMBER and team.working >= NUMBER - 35, 300)
    gaps[0].end()
    gaps[1].begin()
    await asyncio.sleep(10)
    gaps[1].end()
    print(f"memory: {before} MB before, {memory()} MB with {NUMBER} agents")
    gaps[2].begin()
    started = time.perf_counter()
    dialog.stop_shown_agents()
    await until(lambda: not team.working)
    print(f"no request runs any more after {time.perf_counter() - started:.3f} s")
    await until(lambda: all(agent.ended for agent in begun.agents.values()))
    gaps[2].end()
    print(f"all stopped after {time.perf_counter() - started:.2f} s")
    session.stop_turn()
    await session.wait_until_idle()
    for name, each in zip(
        ("while they begin", "while they work", "while they are stopped"), gaps, strict=True
    ):
        for how, values in (("wall", sorted(each.wall)), ("own processor time", sorted(each.own))):
            print(
                f"{name}, {how}: p99 {values[len(values) * 99 // 100]:.1f}, longest {values[-1]:.1f} ms of {len(values)}"
            )


def window() -> int:
    with tempfile.TemporaryDirectory() as base:
        prepare(Path(base), 1, ["Agents"], lambda _folder: None, window=128_000)
        return drive(Path(base), in_window)


if __name__ == "__main__":
    if "--window" in sys.argv:
        sys.exit(window())
    asyncio.run(main())
