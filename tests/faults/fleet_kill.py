"""SIGKILL of workers and of the database under them, while tasks with effects run:
every task is done, no effect happens twice.

Workers of several homes, whose clocks are hours apart, share one PostgreSQL behind
PgBouncer in transaction mode. Each task makes three calls that write a line to a ledger
outside, in files that do not grow with the trial, since undo keeps every state of a
file; the model (`fleet_trial_model`) is a server that goes by what it is shown, and never
repeats a call whose end was not seen. What is killed is a worker, PostgreSQL, or PgBouncer, which cuts
everybody off; with `--promotions` the standby takes the place of a server that is lost
with its disk; with `--lag` it lacks what the server confirmed in so many seconds.
`--alone`: the same with the file of one home, where everything is killed at once.
`--seconds`: what is not done by then, or when the trial gets SIGUSR1, is killed and has
to be on the list. `--traces`: instead of three calls, each task makes as many as a
recorded session, with outputs as long as its. `--bound`: with more facts that are not
in the store than this no turn begins in a home; how many there were at most is counted
beside it, by a look at each home's files every `LOOK` seconds. `--every`: a fault every so many seconds, instead of by how many tasks
have ended.

python -m tests.faults.fleet_kill [--tasks 200] [--kills 20] [--seed 1] [--alone]
[--homes 2] [--workers 4] [--promotions 0] [--keep 0] [--seconds 0] [--lag 0] [--bound
5000] [--every 0] [--pauses 0.2] [--at-once 0] [--traces FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from helix_desktop import concurrency
from helix_desktop.store.shared import row_encryption
from helix_desktop.workbench.conversation_sharing import MOST_UNSENT_FACTS
from tests.faults import fleet_trial_worker
from tests.faults.fleet_trial_model import THREE_CALLS, FleetTrialModel, read_sessions
from tests.faults.fleet_trial_worker import CLAIMS_FOLDER, WORKER_VARIABLE, TrialProgram
from tests.faults.processor_time import ProcessorTimes
from tests.faults.shared_kill import SETTINGS, Pair
from tests.faults.store_report import report
from tests.peers import left_servers, pgbouncer, postgres
from tests.peers.chat_server import ChatServer

LEASE = 4.0  # seconds: so that a killed worker's tasks do not keep the trial waiting
PATIENCE = 240.0  # seconds without a task that ends
PASSING = (
    "shared store",
    "is open in another program",
)  # a server that is just starting, a worker that is paused
ENDED = ("done", "failed", "cancelled", "needs-you", "dead-letter")
RELEASE = 5.0  # seconds between two looks for conversations that may leave
FAILOVER = 12.0  # seconds without claims after a promotion
LAGGING = {"synchronous_standby_names": "''"}
MOST_STEPS = 1_000  # of a turn: the longest recorded session has more than a turn may have else
LOOK = 0.05  # seconds between two looks at what is not yet in the store
# as the worker counts it: what a conversation has beyond what the others are known to
# have; `%s`: the oldest row
UNSENT = (
    "SELECT coalesce(sum(max(0, last_seq - max(coalesce((SELECT seq FROM in_step WHERE conversation = id), 0), min(forked_at,"
    " coalesce((SELECT seq FROM in_step WHERE conversation = forked_from), 0))))), 0) FROM conversations WHERE rowid > %s"
)
NEWEST = (
    "(SELECT max(rowid) - 1000 FROM conversations)"  # those in which somebody works are among these
)
CLOCKS = (0, 3, -5)  # hours that the homes' clocks are wrong by


@dataclass(frozen=True)
class HomeSettings:
    hours: int = 0
    keep: int = 0
    bound: int = MOST_UNSENT_FACTS
    at_once: int = 0


USUAL = HomeSettings()


class Home:
    """One computer: its data, its folder, and the workers that run there."""

    def __init__(
        self,
        folder: Path,
        name: str,
        environment: dict[str, str],
        model_server: str,
        about: HomeSettings = USUAL,
    ) -> None:
        self.name = name
        program = TrialProgram(about.hours, LEASE, RELEASE, FAILOVER, about.bound)
        self._program = [sys.executable, "-P", fleet_trial_worker.__file__]
        self._program.append(json.dumps(asdict(program)))
        self._about = about
        self._started_workers = 0
        self.project = folder / f"project-{name}"
        (self.project / "ledger").mkdir(parents=True)
        (self.project / CLAIMS_FOLDER).mkdir()
        self.environment = {**os.environ, **environment, "HELIX_HOME": str(folder / name)}
        (folder / name).mkdir(mode=0o700, exist_ok=True)  # Perhaps it is a disk of its own.
        (folder / name / "settings.toml").write_text(f'[sharing]\nmachine = "{name}"\n')
        self.log = (folder / f"{name}.log").open("ab")
        self.journal: Path | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.paused: list[tuple[float, subprocess.Popen[bytes]]] = []  # and when they go on
        self.run("workspace", "new", "Fleet", "--folder", str(self.project))
        for settings in (folder / name).glob("workspaces/*/workspace.toml"):
            with settings.open("a") as file:
                file.write(f"\n[limits]\nsteps = {MOST_STEPS}\n")
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
            [*self._program, *arguments],
            check=False, env=self.environment, input=given, capture_output=True, text=True, cwd=self.project,
        )  # fmt: skip

    def start_worker(self) -> None:
        self._started_workers += 1
        environment = self.environment | {WORKER_VARIABLE: f"{self.name}.{self._started_workers}"}
        command = [*self._program, "worker", "-w", "Fleet", "--allow", "commands", "--json"]
        command += ["--keep", str(self._about.keep)]
        if self._about.at_once:
            command += ["--at-once", str(self._about.at_once)]
        self.workers.append(
            subprocess.Popen(
                command, env=environment, stdout=self.log, stderr=self.log, cwd=self.project
            )
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

    def resume_all_paused(self) -> None:
        for _, worker in self.paused:
            worker.send_signal(signal.SIGCONT)
        self.paused.clear()

    def count_unsent(self, oldest: str = NEWEST) -> int:
        """Facts of this home that a loss of its disk would take along. 0 where nothing
        is shared so far.
        """
        if self.journal is None:
            self.journal = next(Path(self.environment["HELIX_HOME"]).rglob("journal.sqlite3"), None)
        if self.journal is not None:
            with (
                suppress(sqlite3.Error),
                closing(sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True)) as connection,
            ):
                return int(connection.execute(UNSENT % oldest).fetchone()[0])
        return 0

    def ledger(self) -> list[LedgerLine]:
        lines = []
        for file in (self.project / "ledger").iterdir():
            for line in file.read_text().splitlines():
                effect, _, done_by = line.partition(" ")
                lines.append(LedgerLine(effect, done_by))
        return lines


@dataclass(frozen=True)
class LedgerLine:
    """An effect that a task had outside. `done_by`: the worker, then the last claim of the
    task on this computer, as its worker and the number of its lease.
    """

    effect: str
    done_by: str


@dataclass
class Trial:
    """What is asked of a trial, and what it found. Anything found under a key that
    begins with LOST is a failure.
    """

    tasks: int
    kills: int
    seed: int
    found: Counter[str]
    alone: bool = False
    home_count: int = 2
    workers: int = 4
    promotions: int = 0
    keep: int = 0
    seconds: float = 0.0
    lag: float = 0.0
    every: float = 0.0
    pauses: float = 0.2  # The share of pauses among the faults of workers.
    next_fault: float = field(default=0.0, init=False)
    bound: int = MOST_UNSENT_FACTS
    at_once: int = 0
    sessions: Sequence[tuple[int, ...]] = (THREE_CALLS,)
    patience: float = PATIENCE
    seconds_between_faults: tuple[float, float] = (2.0, 5.0)
    model: FleetTrialModel = field(init=False)
    homes: list[Home] = field(default_factory=list)
    ended: int = 0
    pair: Pair | None = None
    pooler: pgbouncer.Pooler | None = None
    times: ProcessorTimes = field(default_factory=ProcessorTimes)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.model = FleetTrialModel()

    def run(self) -> None:
        self.began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="helix-fleet-"))
        left_servers.watch_folder(folder)
        with ExitStack() as last:
            last.callback(left_servers.forget_folder, folder)
            last.callback(shutil.rmtree, folder, ignore_errors=True)
            self.model.sessions = self.sessions
            server = last.enter_context(ChatServer(default=self.model.answer))
            self.model_server = server
            last.callback(_end_all, self.homes)
            if self.alone:
                self.homes.append(
                    Home(folder, "a", {}, server.base_url, HomeSettings(at_once=self.at_once))
                )
            else:
                self._make_homes(folder, server.base_url, last)
            self.began = time.monotonic()
            _add_tasks(self.homes[0], self.tasks)
            for number in range(2 if self.alone else self.workers):
                self.homes[number % len(self.homes)].start_worker()
            if not self.alone:
                ended = threading.Event()
                last.callback(ended.set)
                concurrency.start_thread(
                    partial(_watch_unsent, self, ended), name="watch what is not sent"
                )
            _kill_until_done(self)
            self.found["seconds"] = round(time.monotonic() - self.began)
            self.look_at_processor_times()
            self.look_at_idle_workers()
            for part, seconds in sorted(self.times.totals().items()):
                self.found[f"ms of processor time a task: {part}"] = round(
                    1000 * seconds / max(1, self.ended)
                )
            _check_outcome(self)

    def _make_homes(self, folder: Path, model_server: str, last: ExitStack) -> None:
        if self.promotions:
            self.pair = Pair({**SETTINGS, **LAGGING} if self.lag else SETTINGS)
            last.callback(self.pair.remove)
            self.server = self.pair.primary
        else:
            self.server = postgres.Server({"fsync": "off"}).start()
            last.callback(self.server.remove)
        self.pooler = pgbouncer.Pooler(self.server, size=30)
        last.callback(self.pooler.remove)
        key = row_encryption.format_key_line(row_encryption.new_workspace_key())
        environment = {"HELIX_STORE": self.pooler.url, "HELIX_STORE_KEY": key}
        for number in range(self.home_count):
            hours = CLOCKS[number % len(CLOCKS)]
            about = HomeSettings(hours, self.keep, self.bound, self.at_once)
            self.homes.append(Home(folder, "abcdefgh"[number], environment, model_server, about))
            self.homes[number].run("workspace", "share", "Fleet", "--yes")

    def count_ended(self) -> int | None:
        """How many tasks have ended, without a process of its own for it. None while
        the store is away.
        """
        if self.pooler is not None:
            return count_ended_in_store(self.pooler.url)
        counted: dict[str, int] = json.loads(
            self.homes[-1].run("fleet", "status", "-w", "Fleet", "--json")
        )["tasks"]
        return sum(counted[state] for state in ENDED)

    def end_all_faults(self) -> None:
        for home in self.homes:
            home.resume_all_paused()

    def end_passed_faults(self) -> None:
        """End the faults that last for a while, where that has passed."""
        for home in self.homes:
            home.resume_paused()

    def is_fault_due(self, ended: int) -> bool:
        """Every so many seconds, or, so that at a busy machine too most of the work is
        tasks, by how many have ended.
        """
        if not self.every:
            return self.found["kills"] < self.kills * (ended + 1) / self.tasks
        if time.monotonic() < self.next_fault:
            return False
        self.next_fault = time.monotonic() + self.every
        return True

    def look_at_processor_times(self) -> None:
        for home in self.homes:
            for worker in home.workers:
                self.times.look("workers", worker.pid)
        if self.pooler is not None:
            self.times.look("pgbouncer", self.pooler.pid)
            self.times.look("postgres", self.server.pid)
        self.times.look_at_threads()

    def look_at_idle_workers(self) -> None:
        """Called once everything is done, while the workers still run."""

    def end_early(self, *_: object) -> None:
        self.seconds = 0.001

    def kill_something(self) -> None:
        self.found["kills"] += 1
        due = self.found["kills"] * (self.promotions + 1) >= self.kills * (
            self.found["promotions"] + 1
        )
        if self.pooler is not None and (
            self.chance.random() < 0.3 or (due and self.found["promotions"] < self.promotions)
        ):
            self._kill_server_or_pooler(self.pooler)
            return
        home = self.chance.choice(self.homes)
        if not self.alone and self.chance.random() < self.pauses:
            home.pause_worker(self.chance.choice(home.workers), 2 * LEASE)
            self.found["workers paused"] += 1
            return
        for worker in list(home.workers) if self.alone else [self.chance.choice(home.workers)]:
            home.kill_worker(worker)
            home.start_worker()
            self.found["workers killed"] += 1

    def _kill_server_or_pooler(self, pooler: pgbouncer.Pooler) -> None:
        if self.pair is not None and self.found["promotions"] < self.promotions:
            pooler.kill()
            self.pair.promote(self.lag)
            self.server = self.pair.primary
            pooler.start(self.server)
            self.found["promotions"] += 1
        elif self.chance.random() < 0.5:
            pooler.kill()
            time.sleep(2.0 * self.chance.random())
            pooler.start(self.server)
            self.found["cuts"] += 1
        else:
            self.server.kill()
            self.server.start()
            self.found["servers killed"] += 1


def count_ended_in_store(url: str) -> int | None:
    """Return how many tasks have ended, or None if the store does not say it at once."""
    with (
        suppress(psycopg.Error),
        psycopg.connect(url, prepare_threshold=None, connect_timeout=5) as connection,
    ):
        row = connection.execute(
            "SELECT (SELECT count(*) FROM helix.ended_tasks) + count(*) FROM helix.tasks"
            " WHERE state = ANY(%s)",
            [list(ENDED)],
        ).fetchone()
        return int(row[0]) if row else None
    return None


def trials(tasks: int, kills: int, seed: int, found: Counter[str], *, alone: bool = False) -> None:
    Trial(tasks, kills, seed, found, alone=alone).run()


def _end_all(homes: list[Home]) -> None:
    for home in homes:
        for worker in list(home.workers):
            home.kill_worker(worker)
        home.log.close()


def _watch_unsent(trial: Trial, ended: threading.Event) -> None:
    """How much of what was written is nowhere else, while the workers work and are killed."""
    found = trial.found
    while not ended.wait(LOOK):
        found["looks at what is not in the store"] += 1
        oldest = "0" if found["looks at what is not in the store"] % 200 == 0 else NEWEST
        most = max(home.count_unsent(oldest) for home in trial.homes)
        found["facts not in the store at most"] = max(found["facts not in the store at most"], most)
        if most > trial.bound:
            found[
                f"LOST: looks that found more than {trial.bound} facts of a home that are not in the store"
            ] += 1


def _add_tasks(home: Home, tasks: int) -> None:
    lines = "\n".join(
        json.dumps({"text": f"Do task-{n}", "key": f"task-{n}"}) for n in range(tasks)
    )
    for _ in range(2):  # what is added twice is one
        home.run("task", "add", "-w", "Fleet", "-", given=lines)


def _kill_until_done(trial: Trial) -> None:
    homes, found = trial.homes, trial.found
    seen, since = -1, time.monotonic()
    while not any(home.ledger() for home in homes) and time.monotonic() - since < PATIENCE:
        time.sleep(0.02)
    if trial.kills:
        trial.kill_something()  # While the first tasks are under way, however fast the machine is.
    while not trial.seconds or time.monotonic() - trial.began < trial.seconds:
        shortest, longest = trial.seconds_between_faults
        time.sleep(trial.chance.uniform(shortest, longest))
        trial.end_passed_faults()
        trial.look_at_processor_times()
        trial.model_server.requests.clear()  # Together they would take gigabytes.
        if (ended := trial.count_ended()) is None:
            continue
        trial.ended = ended
        if ended >= trial.tasks:
            return
        if ended != seen:
            seen, since = ended, time.monotonic()
        elif time.monotonic() - since > trial.patience:
            found["LOST: tasks that nobody ended"] = trial.tasks - ended
            return
        if trial.is_fault_due(ended):
            trial.kill_something()


def _check_outcome(trial: Trial) -> None:
    homes = trial.homes
    found = trial.found
    trial.end_all_faults()
    _end_all(homes)
    listed: list[dict[str, Any]] = json.loads(
        homes[-1].run("task", "list", "-w", "Fleet", "--most", "100000", "--json")
    )
    done: dict[str, str] = {}
    whys: Counter[str] = Counter()
    for task in listed:
        found[task["state"]] += 1
        if task["state"] == "done":
            done[task["id"]] = task["text"].removeprefix("Do ")
        else:
            whys[task["why"]] += 1
    on_list = found["done"]
    if trial.seconds:  # It ended by the time, with tasks that are under way.
        on_list += found["waiting"] + found["running"]
    if on_list != trial.tasks or len(listed) != trial.tasks:
        found[f"LOST: tasks not done {whys.most_common(2)}"] = trial.tasks - on_list
    found["taken over"] = sum(task["claims"] > 1 for task in listed)
    _check_effects(trial, set(done.values()))
    _check_model(trial)
    _check_conversations(trial, done, {task["id"] for task in listed})


def _check_effects(trial: Trial, done: set[str]) -> None:
    """No effect twice; none is missing of a call whose end was seen, and of every other
    the model was told.
    """
    found = trial.found
    lines = [line for home in trial.homes for line in home.ledger()]
    effects = Counter(line.effect for line in lines)
    found["effects"] = len(effects)
    twice = [name for name, count in effects.items() if count > 1]
    if twice:
        doers = [line for line in lines if line.effect in twice[:3]]
        found[f"LOST: effects that happened twice, such as {doers}"] = len(twice)
    missing: set[str] = set()
    for name in done:
        calls = len(trial.model.session_of(name))
        missing.update(f"{name}:{call}" for call in range(1, calls + 1))
    missing -= effects.keys()
    uncertain = {call for call in trial.model.uncertain if call.partition(":")[0] in done}
    found["calls said to the model as cut off"] = len(uncertain)
    found["of these without an effect"] = len(missing & uncertain)
    unsaid = missing - uncertain
    if unsaid:
        some = sorted(unsaid)[:3]
        lost = f"LOST: effects that are missing although nobody was told, such as {some}"
        found[lost] = len(unsaid)


def _check_model(trial: Trial) -> None:
    """What the ledger says counts only if the model knew at each request what to do."""
    found, failures = trial.found, trial.model.failures
    if trial.model.requests_after_folds:
        found["requests after folds"] = trial.model.requests_after_folds
    if failures:
        found[f"LOST: requests at which the trial's model failed, such as {failures[0]}"] = len(
            failures
        )


def _check_conversations(trial: Trial, done: dict[str, str], tasks: set[str]) -> None:
    """Each is one, never split, and the same wherever it is; a machine that keeps all has all.
    `fleet_leaving` looks at those that left.
    """
    found = trial.found
    journals = [_read_facts(home) for home in trial.homes]
    for task in done:
        copies = [tuple(journal[task]) for journal in journals if task in journal]
        is_missing = len(copies) < len(journals) and not trial.keep
        if is_missing or len(set(copies)) > 1:
            found["LOST: conversations that differ between machines, or are missing"] += 1
    names: set[str] = set()
    for journal in journals:
        names.update(journal)
    split = names - tasks
    if split:
        found["LOST: conversations that were split"] = len(split)
    found["conversations here at most"] = max(map(len, journals))


def _read_facts(home: Home) -> dict[str, list[str]]:
    """The facts of each conversation here, as they are stored, once everything was fetched."""
    if "HELIX_STORE" in home.environment:
        home.run("workspace", "sync", "Fleet")
    (journal,) = Path(home.environment["HELIX_HOME"]).rglob("journal.sqlite3")
    found: dict[str, list[str]] = {}
    with closing(sqlite3.connect(journal)) as connection:
        for conversation, fact in connection.execute(
            "SELECT conversation, fact FROM facts ORDER BY conversation, seq"
        ):
            found.setdefault(conversation, []).append(fact)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true")
    for name, usual in (
        ("homes", 2),
        ("workers", 4),
        ("promotions", 0),
        ("keep", 0),
        ("seconds", 0),
        ("lag", 0.0),
        ("every", 0.0),
        ("pauses", 0.2),
        ("bound", MOST_UNSENT_FACTS),
        ("at-once", 0),
    ):
        parser.add_argument(f"--{name}", type=type(usual), default=usual)
    parser.add_argument("--traces", type=Path)
    given = parser.parse_args()
    sessions = read_sessions(given.traces) if given.traces else (THREE_CALLS,)
    name = "fleet_kill --alone" if given.alone else "fleet_kill"

    def run(found: Counter[str]) -> None:
        counts = (
            given.homes,
            given.workers,
            given.promotions,
            given.keep,
            given.seconds,
            given.lag,
            given.every,
            given.pauses,
        )
        bounds = (given.bound, given.at_once)
        trial = Trial(
            given.tasks, given.kills, given.seed, found, given.alone, *counts, *bounds, sessions
        )
        signal.signal(signal.SIGUSR1, trial.end_early)
        trial.run()

    return report(name, given.seed, run)


if __name__ == "__main__":
    raise SystemExit(main())
