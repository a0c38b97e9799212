"""200 agents in a tree of depth 3 against a scripted model: `python -m tests.benchmarks.workforce [--window]`.

Whether the limit of their number holds exactly, how long it takes until all have stopped, what is left after quitting, whether
anything of one agent is in another's context but its result, memory, and how long the event loop was held. `--window`: in the
real window with the agents panel open, where the turns of Qt's event loop are measured; needs a display.
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

from helix_desktop import places
from helix_desktop.desktop.program import Program
from helix_desktop.engine.blocks import Reply
from helix_desktop.engine.facts import Stop, Text, ToolCall
from helix_desktop.gui.agents import AgentsDialog
from helix_desktop.secrets import Secrets
from helix_desktop.workbench import Desk, Workbench
from tests.benchmarks.loop import Gaps
from tests.engine.agent import calls
from tests.soak.driven import drive, opened, prepare, until
from tests.workbench.test_workforce import Team

NUMBER = 200


def delegates(tasks: list[str]) -> Reply:
    made = [part for task in tasks for part in calls("delegate", task=task).parts]
    return Reply(tuple(replace(p, id=f"d{n}") for n, p in enumerate(made) if isinstance(p, ToolCall)), Stop.CALLS)


def plant(team: Team) -> None:
    """A tree that would have more agents than there may be, whose leaves work until they are stopped."""
    team.hold = asyncio.Event()
    top, middle = [f"TOP-{n}-" for n in range(5)], [f"MIDDLE-{n}.{m}-" for n in range(5) for m in range(6)]
    leaves = [f"LEAF-{n}-" for n in range(30 * 7)]
    team.answers = {"ROOT": [delegates(top)], "LEAF": []}
    team.answers |= {task: [delegates(middle[n * 6 : n * 6 + 6])] for n, task in enumerate(top)}
    team.answers |= {task: [delegates(leaves[n * 7 : n * 7 + 7])] for n, task in enumerate(middle)}


def memory() -> int:
    """Of this process now, in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


async def main() -> None:
    team = Team({})
    Workbench._client = lambda *_: team  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "project"
        folder.mkdir()
        where = places.find(Path(base) / "home")
        desk = Desk(where, Secrets(where.key_file, environ={}))
        bench = await desk.create("Agents", folder)
        await bench.change({"limits.agents": NUMBER, "limits.agents_depth": 3, "limits.agents_at_once": NUMBER})
        session = await bench.new_conversation()
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
        session.send((Text("ROOT"),))
        while len(bench.workforce.rows(session.id)) < NUMBER or team.working < NUMBER - 35:
            await asyncio.sleep(0.01)
        print(
            f"{len(bench.workforce.rows(session.id))} agents of {5 + 30 + 210} wanted began in {time.perf_counter() - started:.1f} s"
        )
        print(
            f"memory: {before} MB before, {memory()} MB with all of them; the loop was held {worst * 1000:.0f} ms at the most"
        )
        _contexts(team)
        started = time.perf_counter()
        bench.workforce.stop_all(session.id)
        session.stop()
        while team.working:
            await asyncio.sleep(0)
        print(f"no request runs any more after {time.perf_counter() - started:.3f} s")
        await session.idle()
        while team.working or any(
            row.state in ("working", "waiting", "asking") for row in bench.workforce.rows(session.id)
        ):
            await asyncio.sleep(0.005)
        print(
            f"all recorded after {time.perf_counter() - started:.2f} s; started in all: {bench.workforce.team(session.id).started}"
        )
        print("states:", dict(Counter(row.state for row in bench.workforce.rows(session.id))))
        done = True
        await watching
        await desk.aclose()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        print(f"after quitting: {team.working} requests, {len(left)} tasks")


def _contexts(team: Team) -> None:
    """Whether a request holds a task of another branch of the tree."""
    strange = 0
    for request in team.requests:
        said = "\n".join(getattr(part, "text", "") for message in request.messages for part in message.parts)
        own = [word for word in ("TOP-", "MIDDLE-", "LEAF-") if word in said.partition("\n")[0]]
        first = next((getattr(part, "text", "") for message in request.messages for part in message.parts), "")
        strange += "LEAF-" in first and ("TOP-" in said or "MIDDLE-" in said or len(own) > 1)
    print(f"{len(team.requests)} requests; {strange} of agents with something of another agent in them")


async def in_window(run: Program) -> None:
    """The same tree with the panel open, and Stop all pressed there."""
    team = Team({})
    Workbench._client = lambda *_: team  # type: ignore[method-assign]
    window = run.window
    await opened(run, "Agents")
    bench = window.bench
    assert isinstance(bench, Workbench)
    await bench.change({"limits.agents": NUMBER, "limits.agents_depth": 3, "limits.agents_at_once": NUMBER})
    session = await bench.new_conversation()
    window.refresh_conversations()
    window.open_conversation(session.id)
    await until(lambda: window.session is not None and window.session.id == session.id)
    window.actions_["agents"].trigger()
    await until(lambda: any(isinstance(each, AgentsDialog) for each in QApplication.topLevelWidgets()))
    dialog = next(each for each in QApplication.topLevelWidgets() if isinstance(each, AgentsDialog))
    plant(team)
    before, gaps = memory(), [Gaps() for _ in range(3)]
    await asyncio.sleep(2)
    gaps[0].begin()
    session.send((Text("ROOT"),))
    begun = bench.workforce.team(session.id)
    await until(lambda: len(begun.agents) == NUMBER and team.working >= NUMBER - 35, 300)
    gaps[0].end()
    gaps[1].begin()
    await asyncio.sleep(10)
    gaps[1].end()
    print(f"memory: {before} MB before, {memory()} MB with {NUMBER} agents")
    gaps[2].begin()
    started = time.perf_counter()
    dialog.stop_all()
    await until(lambda: not team.working)
    print(f"no request runs any more after {time.perf_counter() - started:.3f} s")
    await until(lambda: all(agent.ended for agent in begun.agents.values()))
    gaps[2].end()
    print(f"all stopped after {time.perf_counter() - started:.2f} s")
    session.stop()
    await session.idle()
    for name, each in zip(("while they begin", "while they work", "while they are stopped"), gaps, strict=True):
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
