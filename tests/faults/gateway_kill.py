"""A gateway that is killed at random moments while an agent works through it, as `wrap`
and the window run it.

python -m tests.faults.gateway_kill [--kills 500] [--seed 1] [--history 500] [--agents 4]

The same port answers again, the agent's retry succeeds, and every reply the agent has
whole stands in the journal, behind all that it answers. `--history`: the agent comes
with so many steps each time, as one that is connected late. `--agents`: so many work at
once. The times are those until the address answers again, and until every agent has its
next reply.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from helix_desktop import concurrency, program_folders
from helix_desktop.engine.facts import ModelReplied, Text, ToolReturned
from helix_desktop.errors import StoreBusy
from helix_desktop.gateway import gateway_workspaces, wrapped_agent
from helix_desktop.resident import resident_client
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.faults.store_report import report
from tests.gateway.running import TOOL, Agent, wrapped
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

LONGEST = 300.0  # seconds until a killed gateway must have answered, on whatever machine
STEPS, FEW = 30, 2  # of one session; of one that comes with a history
OUTPUT = "a line of its output\n" * 40


class Working:
    """An agent that works until it is told to stop, and tries again what broke."""

    def __init__(self, url: str, history: int, number: int) -> None:
        self._url = url
        self._number = number
        self._history = history
        self.ends = threading.Event()
        self.whole: list[str] = []  # the replies it has
        self.retries = 0
        self.failed: list[str] = []

    def work(self) -> None:
        for session in itertools.count():
            agent = Agent(
                "anthropic",
                self._url,
                session=f"session {self._number} {session}",
                patience=LONGEST,
            )
            agent.say(f"look around in {self._number} {session}")
            for step in range(self._history):
                agent.units.append({"role": "assistant", "content": [_call(f"old-{step}")]})
                agent.results([(f"old-{step}", TOOL, f"{step}: {OUTPUT}")])
            for _ in range(FEW if self._history else STEPS):
                if self.ends.is_set():
                    return
                self._step(agent)

    def _step(self, agent: Agent) -> None:
        until = time.monotonic() + LONGEST
        while True:
            try:
                calls = agent.ask()
                break
            except (httpx.HTTPError, AssertionError) as error:
                self.retries += 1
                if time.monotonic() > until:
                    self.failed.append(repr(error)[:200])
                    return
                time.sleep(0.02)
        self.whole += [block["text"] for block in agent.value["content"] if block["type"] == "text"]
        agent.results([(call, name, f"output of {call}\n" * 400) for call, name, _ in calls])


def _call(name: str) -> dict[str, object]:
    return {"type": "tool_use", "id": name, "name": TOOL, "input": {"command": name}}


def trials(kills: int, seed: int, history: int, agents: int, found: Counter[str]) -> None:
    """So many kills of one gateway after the other, all on one journal."""
    chance = random.Random(seed)
    replies = itertools.count()

    def script(_: Asked) -> Sequence[Block]:
        return [Says(f"reply {next(replies)}"), Calls(TOOL, {"command": "ls"})]

    with tempfile.TemporaryDirectory() as home, Provider(script) as provider:
        started = wrapped(Path(home), provider.url).__enter__()
        working = [Working(started.addresses[0], history, number) for number in range(agents)]
        threads = [concurrency.start_thread(one.work, name="agent") for one in working]
        seconds: list[tuple[float, float]] = []
        with suppress(KeyboardInterrupt):  # interrupted, it looks at what was done by then
            while len(seconds) < kills and not _failed(working):
                seconds.append(_killed(Path(home), started.addresses[0], working, chance))
        for agent in working:
            agent.ends.set()
        for thread in threads:
            thread.join()
        started.__exit__(None, None, None)
        found["kills"] += len(seconds)
        found["retries"] += sum(agent.retries for agent in working)
        found["replies"] += sum(len(agent.whole) for agent in working)
        _count_seconds("it answers", [answers for answers, _ in seconds], found)
        _count_seconds("every agent has its next reply", [replied for _, replied in seconds], found)
        for why in provider.refused + _failed(working):
            found[f"LOST {why}"] += 1
        _check_journal(Path(home), working, history, found)


def _count_seconds(what: str, waits: Sequence[float], found: Counter[str]) -> None:
    if waits:
        slowest = max(waits) * 1000
        median = statistics.median(waits) * 1000
        found[f"ms median until {what}, {slowest:.0f} ms slowest"] += round(median)


def _check_journal(
    home: Path, working: Sequence[Working], history: int, found: Counter[str]
) -> None:
    """Each reply that an agent has whole stands there, with all that it answers."""
    in_journal = asyncio.run(_replies(home))
    old = {f"old-{step}" for step in range(history)}
    for agent in working:
        for reply in agent.whole:
            if reply not in in_journal:
                found[f"LOST {reply!r} is gone"] += 1
            elif not old <= in_journal[reply]:
                found[f"LOST what {reply!r} answers is gone"] += 1


def _failed(working: Sequence[Working]) -> list[str]:
    return [why for one in working for why in one.failed]


def _killed(
    home: Path, url: str, working: Sequence[Working], chance: random.Random
) -> tuple[float, float]:
    """Seconds until it answers again, and until every agent has its next reply."""
    _wait_for_replies(working)  # It works.
    time.sleep(chance.random() * 0.4)
    pid = _gateway_pid(home)
    os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    while _gateway_pid(home) == pid or wrapped_agent.fetch_gateway_status(url) is None:
        if time.monotonic() - begun > LONGEST:
            break
        time.sleep(0.01)
    answered = time.monotonic() - begun
    _wait_for_replies(working)
    return answered, time.monotonic() - begun


def _wait_for_replies(working: Sequence[Working]) -> None:
    done = [len(one.whole) for one in working]
    while any(
        len(one.whole) == before for one, before in zip(working, done, strict=True)
    ) and not _failed(working):
        time.sleep(0.005)


def _gateway_pid(home: Path) -> int:
    return int(
        (
            asyncio.run(
                resident_client.ask_resident(program_folders.find_program_folders(home), "status")
            )
            or {}
        )["gateway"]
    )


async def _replies(home: Path) -> dict[str, set[str]]:
    """The replies in the journal, each with the calls that were answered before it."""
    workspace = await _opened(
        AllWorkspaces(program_folders.find_program_folders(home).workspaces_folder)
    )
    try:
        found: dict[str, set[str]] = {}
        for row in await workspace.journal.list_conversations():
            answered: set[str] = set()
            for recorded in await workspace.journal.read_facts(row.id):
                if isinstance(recorded.fact, ToolReturned):
                    answered.add(recorded.fact.call)
                if isinstance(recorded.fact, ModelReplied):
                    found.update(
                        (part.text, set(answered))
                        for part in recorded.fact.parts
                        if isinstance(part, Text)
                    )
        return found
    finally:
        await workspace.aclose()


async def _opened(workspaces: AllWorkspaces) -> StoredWorkspace:
    """When the last gateway has recorded what it has, and let go."""
    async with asyncio.timeout(LONGEST):
        while True:
            try:
                return await workspaces.open_stored_workspace(
                    gateway_workspaces.USUAL_WORKSPACE_NAME
                )
            except StoreBusy:
                await asyncio.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", type=int, default=0)
    parser.add_argument("--agents", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    chosen = arguments.kills, arguments.seed, arguments.history, arguments.agents
    return report("gateway kill", arguments.seed, lambda found: trials(*chosen, found))


if __name__ == "__main__":
    sys.exit(main())
