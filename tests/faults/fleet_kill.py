"""SIGKILL of workers and of the database under them, while tasks with effects run: every task is done, no effect happens twice.

Workers of two homes share one PostgreSQL behind PgBouncer in transaction mode. Each task makes three calls that write a line to a
ledger outside; the model is a server that goes by what it is shown, and never repeats a call whose end was not seen. `--alone`: the
same with the file of one home, where everything is killed at once.

python -m tests.faults.fleet_kill [--tasks 200] [--kills 20] [--seed 1] [--alone]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from helix_desktop.store.shared import row_encryption
from tests.faults.store_report import report
from tests.peers import pgbouncer, postgres
from tests.peers.chat_server import ChatServer, reply
from tests.peers.peer import Answer, Seen

CALLS = 3
LEASE = 4.0  # seconds: so that a killed worker's tasks do not keep the trial waiting
PATIENCE = 240.0  # seconds without a task that ends
PASSING = ("shared store", "is open in another program")  # a server that is just starting, a worker that is paused
PROGRAM = (
    "import sys; from helix_desktop import cli; from helix_desktop.workbench import fleet_worker;"
    f"fleet_worker.TASK_LEASE_SECONDS = {LEASE}; sys.exit(cli.main(sys.argv[1:]))"
)


def answer(seen: Seen) -> Answer:
    """The next of the task's calls, by how many results it is shown: a call that was cut off counts as made."""
    messages = seen.body["messages"]
    told = " ".join(str(message["content"]) for message in messages if message["role"] == "user")
    (name,) = set(re.findall(r"task-\d+", told)) or {"none"}
    done = sum(message["role"] == "tool" for message in messages)
    if done >= CALLS or name == "none":
        return reply(f"{name} is done")
    return reply(calls=[("run_command", {"command": f"echo {name}:{done + 1} >> ledger.txt"})])


class Home:
    """One computer: its data, its folder, and the workers that run there."""

    def __init__(self, folder: Path, name: str, environment: dict[str, str], model_server: str) -> None:
        self.name = name
        self.project = folder / f"project-{name}"
        self.project.mkdir()
        self.environment = {**os.environ, **environment, "HELIX_HOME": str(folder / name)}
        self.log = (folder / f"{name}.log").open("ab")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.paused: list[tuple[float, subprocess.Popen[bytes]]] = []  # and when they go on
        self.run("workspace", "new", "Fleet", "--folder", str(self.project))
        self.run("provider", "add", "peer", "--base-url", model_server)
        self.run("model", "set", "-w", "Fleet", "peer/scripted")

    def run(self, *arguments: str, given: str = "") -> str:
        while True:
            done = self._run_once(arguments, given)
            if not done.returncode or not any(words in done.stderr for words in PASSING):
                break
            self.resume_paused()
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def _run_once(self, arguments: tuple[str, ...], given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            check=False, env=self.environment, input=given, capture_output=True, text=True, cwd=self.project,
        )  # fmt: skip

    def start_worker(self) -> None:
        command = [sys.executable, "-c", PROGRAM, "worker", "-w", "Fleet", "--allow", "commands", "--json"]
        self.workers.append(
            subprocess.Popen(command, env=self.environment, stdout=self.log, stderr=self.log, cwd=self.project)
        )

    def kill_worker(self, worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def pause_worker(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        """So long that others think it dead and take its tasks over, while it is alive."""
        worker.send_signal(signal.SIGSTOP)
        self.paused.append((time.monotonic() + seconds, worker))

    def resume_paused(self) -> None:
        for at, worker in list(self.paused):
            if time.monotonic() > at:
                self.paused.remove((at, worker))
                worker.send_signal(signal.SIGCONT)

    def ledger(self) -> list[str]:
        file = self.project / "ledger.txt"
        return file.read_text().split() if file.exists() else []


def trials(tasks: int, kills: int, seed: int, found: Counter[str], *, alone: bool = False) -> None:
    """What was found, counted. Anything under a key that begins with LOST is a failure."""
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="helix-fleet-"))
    with ExitStack() as last:
        last.callback(shutil.rmtree, folder, ignore_errors=True)
        model_server = last.enter_context(ChatServer(default=answer))
        environment, server = dict[str, str](), None
        if not alone:
            server = postgres.Server({"fsync": "off"}).start()
            last.callback(server.remove)
            pooler = pgbouncer.Pooler(server, size=10)
            last.callback(pooler.remove)
            key = row_encryption.format_key_line(row_encryption.new_workspace_key())
            environment = {"HELIX_STORE": pooler.url, "HELIX_STORE_KEY": key}
        homes = [Home(folder, "a", environment, model_server.base_url)]
        if not alone:
            homes[0].run("workspace", "share", "Fleet", "--yes")
            homes.append(Home(folder, "b", environment, model_server.base_url))
        last.callback(_end_all, homes)
        started = time.monotonic()
        _add_tasks(homes[0], tasks)
        for home in [*homes, *homes]:
            home.start_worker()
        _kill_until_done(homes, server, tasks, kills, chance, found)
        found["seconds"] = round(time.monotonic() - started)
        _check_outcome(homes, tasks, found)


def _end_all(homes: list[Home]) -> None:
    for home in homes:
        for worker in list(home.workers):
            home.kill_worker(worker)
        home.log.close()


def _add_tasks(home: Home, tasks: int) -> None:
    lines = "\n".join(json.dumps({"text": f"Do task-{n}", "key": f"task-{n}"}) for n in range(tasks))
    for _ in range(2):  # what is added twice is one
        home.run("task", "add", "-w", "Fleet", "-", given=lines)


def _kill_until_done(
    homes: list[Home],
    server: postgres.Server | None,
    tasks: int,
    kills: int,
    chance: random.Random,
    found: Counter[str],
) -> None:
    seen, since, ended_at_kill = -1, time.monotonic(), 0
    while not any(home.ledger() for home in homes) and time.monotonic() - since < PATIENCE:
        time.sleep(0.02)
    if kills:
        _kill_something(
            homes, server, chance, found
        )  # While the first tasks are under way, however fast the machine is.
    while True:
        time.sleep(2.0 + 3.0 * chance.random())
        for home in homes:
            home.resume_paused()
        counted = json.loads(homes[-1].run("fleet", "status", "-w", "Fleet", "--json"))["tasks"]
        ended = counted["done"] + counted["failed"] + counted["cancelled"] + counted["needs-you"]
        if ended >= tasks:
            return
        if ended != seen:
            seen, since = ended, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            found["LOST: tasks that nobody ended"] = tasks - ended
            return
        if found["kills"] < kills and ended > ended_at_kill:  # else a busy machine does nothing but start workers
            ended_at_kill = ended
            _kill_something(homes, server, chance, found)


def _kill_something(
    homes: list[Home], server: postgres.Server | None, chance: random.Random, found: Counter[str]
) -> None:
    found["kills"] += 1
    if server is not None and chance.random() < 0.15:
        server.kill()
        server.start()
        found["servers killed"] += 1
        return
    home = chance.choice(homes)
    if server is not None and chance.random() < 0.25:
        home.pause_worker(chance.choice(home.workers), 2 * LEASE)
        found["workers paused"] += 1
        return
    for worker in list(home.workers) if server is None else [chance.choice(home.workers)]:
        home.kill_worker(worker)
        home.start_worker()


def _check_outcome(homes: list[Home], tasks: int, found: Counter[str]) -> None:
    listed: list[dict[str, Any]] = json.loads(
        homes[-1].run("task", "list", "-w", "Fleet", "--most", "100000", "--json")
    )
    for task in listed:
        found[task["state"]] += 1
    if found["done"] != tasks or len(listed) != tasks:
        ends = Counter(task["why"] for task in listed if task["state"] != "done")
        found[f"LOST: tasks not done {ends.most_common(2)}"] = tasks - found["done"]
    _end_all(homes)
    effects = Counter(line for home in homes for line in home.ledger())
    found["effects"] = len(effects)
    found["taken over"] = sum(task["claims"] > 1 for task in listed)
    if twice := [name for name, count in effects.items() if count > 1]:
        found[f"LOST: effects that happened twice, such as {twice[:3]}"] = len(twice)
    journals = [_read_facts(home) for home in homes]
    open_calls = sum(_count_open_calls(facts) for facts in journals[0].values())
    for task in listed:
        copies = {tuple(journal.get(task["id"], ())) for journal in journals}
        if len(copies) != 1 or () in copies:
            found["LOST: conversations that differ between machines, or are missing"] += 1
    found["conversations beside the tasks'"] = max(len(journal) for journal in journals) - len(listed)
    missing = {f"task-{n}:{call}" for n in range(tasks) for call in range(1, CALLS + 1)} - effects.keys()
    found["calls whose end nobody saw"], found["of these without an effect"] = open_calls, len(missing)
    if len(missing) > open_calls:
        found["LOST: effects that are missing although their calls ended"] = len(missing) - open_calls


def _read_facts(home: Home) -> dict[str, list[str]]:
    """The facts of each conversation here, as they are stored, once everything was fetched."""
    if "HELIX_STORE" in home.environment:
        home.run("workspace", "sync", "Fleet")
    (journal,) = Path(home.environment["HELIX_HOME"]).rglob("journal.sqlite3")
    found: dict[str, list[str]] = {}
    with closing(sqlite3.connect(journal)) as connection:
        for conversation, fact in connection.execute("SELECT conversation, fact FROM facts ORDER BY conversation, seq"):
            found.setdefault(conversation, []).append(fact)
    return found


def _count_open_calls(facts: list[str]) -> int:
    """Calls without a result, and those that were stopped."""
    called = sum(fact.count('"run_command"') for fact in facts if '"ModelReplied"' in fact)
    returned = sum('"ToolReturned"' in fact and '"stopped":true' not in fact.replace(" ", "") for fact in facts)
    return called - returned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    name = "fleet_kill --alone" if given.alone else "fleet_kill"
    return report(
        name, given.seed, lambda found: trials(given.tasks, given.kills, given.seed, found, alone=given.alone)
    )


if __name__ == "__main__":
    raise SystemExit(main())
