"""Workers of several computers spend a budget together: they exceed it by at most one request
each, however the requests fall together, and a raised budget lets the tasks go on.

The model server is the ledger: each request that it answers costs the same. With `--kills`
workers are killed while they spend; what a request cost that was under way then is in no
conversation, but charged by what was sent. A worker that begins anew is one more worker.

python -m tests.faults.fleet_budget [--tasks 40] [--homes 2] [--workers 3] [--at-once 4]
[--kills 0] [--raises 3] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.fleet_kill import PATIENCE, Trial, _add_tasks, _end_all
from tests.faults.fleet_trial_model import FleetTrialModel
from tests.faults.store_report import report
from tests.peers import left_servers
from tests.peers.chat_server import ChatServer
from tests.peers.peer import Answer, Seen

REQUESTS_OF_TASK = 4  # Three calls and the answer.
REQUEST_COST = 0.1
REQUEST_SECONDS = 0.4  # So that requests of several tasks and workers run at the same time.
TOKENS_OF_REPLY = 20  # What the model server says of each: `USAGE`.
# With this price for what the model writes alone, each request of `USAGE` costs REQUEST_COST,
# and a worker's own count of the next one comes to the same.
DOLLARS_FOR_A_MILLION_TOKENS = REQUEST_COST / TOKENS_OF_REPLY * 1e6
ALMOST_NOTHING = 1e-6  # Without a price for what is sent, no cost is known.
QUIET_SECONDS = 12.0  # Nobody asked the model for so long: all workers wait for a higher budget.


@dataclass
class RequestLedger:
    """What the model server answered, counted where no worker can forget it."""

    model: FleetTrialModel = field(default_factory=FleetTrialModel)
    requests: int = 0
    last_request: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, seen: Seen) -> Answer:
        with self._lock:
            self.requests += 1
            self.last_request = time.monotonic()
        return self.model.answer(seen).silent_after(0, REQUEST_SECONDS)

    @property
    def dollars(self) -> float:
        return self.requests * REQUEST_COST


@dataclass
class BudgetTrial:
    trial: Trial
    ledger: RequestLedger
    raises: int

    def run(self) -> None:
        home = self.trial.homes[0]
        for each in self.trial.homes:
            words = ["model", "set", "-w", "Fleet", "peer/scripted"]
            words += ["--output", str(DOLLARS_FOR_A_MILLION_TOKENS)]
            for price in ("--input", "--cache-read", "--cache-write"):
                words += [price, str(ALMOST_NOTHING)]
            each.run(*words)
        _add_tasks(home, self.trial.tasks)
        whole = self.trial.tasks * REQUESTS_OF_TASK * REQUEST_COST
        self._set_budget(whole / (self.raises + 1))
        for number in range(self.trial.workers):
            self.trial.homes[number % len(self.trial.homes)].start_worker()
        for step in range(1, self.raises + 1):
            budget = whole * step / (self.raises + 1)
            self._set_budget(budget)
            self._wait_until_spent()
            self._check(budget)
        self._set_budget(0)
        self._wait_until_done()

    def _set_budget(self, dollars: float) -> None:
        self.trial.homes[0].run("fleet", "budget", "-w", "Fleet", str(dollars))

    def _wait_until_spent(self) -> None:
        trial = self.trial
        began = time.monotonic()
        requests_before = self.ledger.requests
        # At first, workers must start, or notice the higher budget.
        while (
            self.ledger.requests == requests_before
            or time.monotonic() - self.ledger.last_request < QUIET_SECONDS
        ):
            time.sleep(0.2)
            if trial.chance.random() < 0.03 and trial.found["kills"] < trial.kills:
                home = trial.chance.choice(trial.homes)
                home.kill_worker(trial.chance.choice(home.workers))
                home.start_worker()
                trial.found["kills"] += 1
            if time.monotonic() - began > PATIENCE:
                trial.found["LOST: budgets that were never spent"] += 1
                return

    def _check(self, budget: float) -> None:
        """`over`: requests beyond the budget, of which each worker may make one."""
        trial = self.trial
        over = round((self.ledger.dollars - budget) / REQUEST_COST)
        allowed = trial.workers + trial.found["kills"]
        trial.found["budgets spent"] += 1
        trial.found["requests beyond a budget at most"] = max(
            trial.found["requests beyond a budget at most"], over
        )
        status = json.loads(trial.homes[0].run("fleet", "status", "-w", "Fleet", "--json"))
        estimated = round(status["estimated_cost"] / REQUEST_COST)
        cut_off = self.ledger.requests - round(status["cost"] / REQUEST_COST)
        # A request is noted just before it is sent: a kill in between leaves the note alone.
        never_sent = max(0, estimated - cut_off)
        trial.found["requests charged by estimate"] = estimated
        trial.found["of them never sent"] = never_sent
        if over < -never_sent:
            trial.found["LOST: budgets at which workers stopped too early"] += 1
        if over > allowed:
            trial.found[f"LOST: {over} requests beyond a budget, where {allowed} may be"] += 1

    def _wait_until_done(self) -> None:
        began = time.monotonic()
        status = {}
        while time.monotonic() - began < PATIENCE:
            status = json.loads(self.trial.homes[0].run("fleet", "status", "-w", "Fleet", "--json"))
            if status["tasks"]["done"] == self.trial.tasks:
                break
            time.sleep(1.0)
        found = self.trial.found
        found["done"] = status["tasks"]["done"]
        found["requests"] = self.ledger.requests
        found["requests in conversations"] = round(status["cost"] / REQUEST_COST)
        if failures := self.ledger.model.failures:
            found[f"LOST: requests at which the model failed, such as {failures[0]}"] = len(
                failures
            )
        if found["done"] != self.trial.tasks:
            found[f"LOST: tasks not done, {status['tasks']}"] += 1
        if not self.trial.kills and found["requests"] != found["requests in conversations"]:
            found["LOST: requests that no conversation has"] += 1


def run_trial(given: argparse.Namespace, found: Counter[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="helix-budget-"))
    left_servers.watch_folder(folder)
    ledger = RequestLedger()
    with ExitStack() as last:
        last.callback(left_servers.forget_folder, folder)
        last.callback(shutil.rmtree, folder, ignore_errors=True)
        server = last.enter_context(ChatServer(default=ledger.answer))
        trial = Trial(given.tasks, given.kills, given.seed, found)
        trial.home_count = given.homes
        trial.workers = given.workers
        trial.at_once = given.at_once
        last.callback(_end_all, trial.homes)
        trial._make_homes(folder, server.base_url, last)
        BudgetTrial(trial, ledger, given.raises).run()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--homes", type=int, default=2)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--raises", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return report("fleet_budget", given.seed, lambda found: run_trial(given, found))


if __name__ == "__main__":
    raise SystemExit(main())
