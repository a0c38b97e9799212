"""Both lists of tasks in one run, with the real runner: the file of one computer, and
procrastinate in PostgreSQL behind PgBouncer. Workers are killed while they work; with
`--databases` PostgreSQL is, too. A task makes three calls, as in `fleet_kill`, which also
checks that each task is done, and no effect happened twice or is missing untold.

The computer that works alone has one process that runs its tasks, and one that waits for
the first to end.

python -m tests.faults.fleet_table [--tasks 300] [--kills 6] [--databases 0] [--seed 1]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.faults.fleet_kill import Trial
from tests.faults.store_report import CUT_OFF, report

WORKERS = 3
IDLE_SECONDS = 15.0
IDLE = "per mille of a core while idle"
MEMORY = "MB of memory while idle"


class TableTrial(Trial):
    """Kills single workers, and then PostgreSQL so many times, spread over the tasks."""

    databases = 0

    def kill_something(self) -> None:
        self.found["kills"] += 1
        if self.found["kills"] % 2 == 0 and self.found["servers killed"] < self.databases:
            self.server.kill()
            self.server.start()
            self.found["servers killed"] += 1
            return
        home = self.chance.choice(self.homes)
        home.kill_worker(self.chance.choice(home.workers))
        home.start_worker()
        self.found["workers killed"] += 1

    def look_at_idle_workers(self) -> None:
        """Measure what all the workers take together while nothing is to be done."""
        processes = [worker.pid for home in self.homes for worker in home.workers]
        before = sum(map(_processor_seconds, processes))
        time.sleep(IDLE_SECONDS)
        busy_seconds = sum(map(_processor_seconds, processes)) - before
        self.found[IDLE] = round(1000 * busy_seconds / IDLE_SECONDS / len(processes))
        self.found[MEMORY] = max(map(_megabytes, processes))


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _megabytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["VmRSS"].split()[0]) // 1024


def run_trial(given: argparse.Namespace, found: Counter[str], *, alone: bool) -> None:
    databases = given.databases
    if alone:
        databases = 0
    trial = TableTrial(given.tasks, given.kills + databases, given.seed, found, alone=alone)
    trial.databases = databases
    trial.home_count = 1
    trial.workers = WORKERS
    trial.run()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--databases", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    code = report("own list", given.seed, lambda found: run_trial(given, found, alone=True))
    if code == CUT_OFF:
        return code
    return code + report(
        "procrastinate", given.seed, lambda found: run_trial(given, found, alone=False)
    )


if __name__ == "__main__":
    sys.exit(main())
