"""How long it takes until the next task begins, with the real worker and a model that answers
at once: with the file of one computer, and with PostgreSQL behind PgBouncer.

- in the same process: from the model's answer that ends a task, to the first request of the
  task that waited behind it. A busy computer makes this longer, so the processor time that the
  worker takes for it is said as well
- elsewhere: from adding a task in this process, to its first request by an idle worker

python -m tests.benchmarks.fleet_next_task [--tasks 40] [--added 20]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.fleet_task_files import open_fleet_task_list, open_shared_task_list
from helix_desktop.store.fleet_tasks import FleetTaskOrder, NewFleetTask
from helix_desktop.store.shared import row_encryption
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from tests.faults.fleet_kill import Home, HomeSettings, _end_all
from tests.faults.fleet_table import _processor_seconds
from tests.peers import pgbouncer, postgres
from tests.peers.chat_server import ChatServer, reply
from tests.peers.peer import Answer, Seen

PATIENCE = 120.0
POLL_SECONDS = 0.7  # The worker's: tasks are added at any time between two looks of it.
AddTasks = Callable[[Sequence[str]], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many tasks wait behind each other, and how many are added to an idle worker."""

    tasks: int
    added: int


class RequestTimes:
    """When the model was asked for each task. It answers at once, so that is when it answered."""

    def __init__(self) -> None:
        self.seconds_by_task: dict[str, float] = {}

    def answer(self, seen: Seen) -> Answer:
        (name,) = set(re.findall(r"Do (task-\w+)", str(seen.body["messages"])))
        self.seconds_by_task.setdefault(name, seen.time)
        return reply("done")

    def wait_for(self, names: Sequence[str]) -> list[float]:
        until = time.monotonic() + PATIENCE
        while not self.seconds_by_task.keys() >= set(names):
            if time.monotonic() > until:
                raise TimeoutError(f"{len(self.seconds_by_task)} tasks were begun")
            time.sleep(0.005)
        return [self.seconds_by_task[name] for name in names]


def measure_next_tasks(add_tasks: AddTasks, times: RequestTimes, number: int) -> list[float]:
    """Return the milliseconds between the tasks of a worker that has one at a time."""
    names = [f"task-next{n}" for n in range(number)]
    asyncio.run(add_tasks(names))
    begun = sorted(times.wait_for(names))
    return [1000 * (later - earlier) for earlier, later in itertools.pairwise(begun)]


def measure_added_tasks(add_tasks: AddTasks, times: RequestTimes, number: int) -> list[float]:
    chance = random.Random(1)
    milliseconds: list[float] = []
    for n in range(number):
        time.sleep(1.0 + POLL_SECONDS * chance.random())  # Until the worker is idle again.
        name = f"task-added{n}"
        began = time.monotonic()
        asyncio.run(add_tasks([name]))
        (begun,) = times.wait_for([name])
        milliseconds.append(1000 * (begun - began))
    return milliseconds


def new_tasks(names: Sequence[str]) -> list[NewFleetTask]:
    return [NewFleetTask(FleetTaskOrder(f"Do {name}")) for name in names]


def measure_in_home(
    home: Home, add_tasks: AddTasks, times: RequestTimes, sizes: Sizes
) -> list[str]:
    home.start_worker()
    (worker,) = home.workers
    try:
        asyncio.run(add_tasks(["task-first"]))
        times.wait_for(["task-first"])  # The worker has started.
        elsewhere = measure_added_tasks(add_tasks, times, sizes.added)
        seconds_before = _processor_seconds(worker.pid)
        in_same_process = measure_next_tasks(add_tasks, times, sizes.tasks)
        busy_seconds = _processor_seconds(worker.pid) - seconds_before
    finally:
        _end_all([home])
    return [
        describe("elsewhere", elsewhere),
        describe("in the same process", in_same_process),
        f"  of that, the worker's processor time: {1000 * busy_seconds / sizes.tasks:.0f} ms",
    ]


def measure_alone(folder: Path, sizes: Sizes) -> list[str]:
    times = RequestTimes()
    with ChatServer(default=times.answer) as model:
        home = Home(folder, "a", {}, model.base_url, HomeSettings(at_once=1))
        (workspace,) = AllWorkspaces(folder / "a" / "workspaces").list_workspaces()

        async def add_to_file(names: Sequence[str]) -> None:
            async with open_fleet_task_list(workspace) as tasks:
                await tasks.add_fleet_tasks(new_tasks(names))

        return measure_in_home(home, add_to_file, times, sizes)


def measure_shared(folder: Path, sizes: Sizes) -> list[str]:
    times = RequestTimes()
    with ExitStack() as closing:
        model = closing.enter_context(ChatServer(default=times.answer))
        server = postgres.Server().start()
        closing.callback(server.remove)
        pooler = pgbouncer.Pooler(server)
        closing.callback(pooler.remove)
        key = row_encryption.new_workspace_key()
        environment = {
            "HELIX_STORE": pooler.url,
            "HELIX_STORE_KEY": row_encryption.format_key_line(key),
        }
        home = Home(folder, "b", environment, model.base_url, HomeSettings(at_once=1))
        home.run("workspace", "share", "Fleet", "--yes")
        seal = row_encryption.RowCipher(key)
        engine = PostgresRowStore(pooler.url, seal.space)
        closing.callback(engine.close)

        async def add_to_store(names: Sequence[str]) -> None:
            tasks = open_shared_task_list(engine, seal, asyncio.to_thread)
            await tasks.add_fleet_tasks(new_tasks(names))

        return measure_in_home(home, add_to_store, times, sizes)


def describe(what: str, milliseconds: Sequence[float]) -> str:
    ordered = sorted(milliseconds)
    tenth_longest = ordered[len(ordered) * 9 // 10]
    return (
        f"  {what}: median {statistics.median(ordered):.0f} ms, nine of ten within"
        f" {tenth_longest:.0f} ms, longest {ordered[-1]:.0f} ms of {len(ordered)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--added", type=int, default=20)
    given = parser.parse_args()
    sizes = Sizes(given.tasks, given.added)
    folder = Path(tempfile.mkdtemp(prefix="helix-next-task-"))
    try:
        lines = ["one computer", *measure_alone(folder, sizes)]
        lines += ["PostgreSQL behind PgBouncer", *measure_shared(folder, sizes)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
