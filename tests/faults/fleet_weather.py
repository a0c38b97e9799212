"""Everything that an operator's night may bring, at once, while tasks with effects run: no
task fails for it, no conversation is split, no effect happens twice.

Workers of three homes, two of whose clocks are hours wrong, share a PostgreSQL server with a
synchronous standby. Each home reaches it through a PgBouncer of its own. The faults:

- a worker is killed, or stopped for longer than its lease and then let go on
- PostgreSQL is killed; or its disk is lost, and the standby takes its place
- a home is cut off: its PgBouncer ends, or says nothing for longer than a lease
- the disk of a home or of PostgreSQL is full for some seconds

Each task makes three calls whose effects are written to a ledger outside, with the worker
and its lease. `fleet_kill` says what is checked at the end. The disks are mounted where only
the trial sees them, which needs root.

python -m tests.faults.fleet_weather [--tasks 300] [--kills 200] [--stops 50] [--servers 20]
[--promotions 2] [--cuts 50] [--disks 20] [--seed 1] [--workers 8] [--homes 3]
[--seconds 0: what is not done by then has to be on the list]
[--traces FOLDER: tasks make as many calls as recorded sessions, with outputs as long as theirs]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop.store.shared import row_encryption
from tests.faults.fleet_kill import (
    CLOCKS,
    LEASE,
    Home,
    HomeSettings,
    Trial,
    count_ended_in_store,
)
from tests.faults.fleet_trial_model import read_sessions
from tests.faults.shared_kill import SETTINGS, Pair
from tests.faults.small_disk import SmallDisk
from tests.faults.store_report import report
from tests.peers import pgbouncer, postgres

BEYOND_THE_LEASE = 2 * LEASE
SHORTEST_FULL_SECONDS = 3.0
LONGEST_FULL_SECONDS = 8.0
LONGEST_CUT_SECONDS = 2.0
SECONDS_BETWEEN_FAULTS = (0.3, 1.5)  # Besides what each takes.
SERVER_CONNECTIONS = 100  # Those of all poolers together.
HOME_MEGABYTES = 150
SERVER_MEGABYTES = 500
MEGABYTES_FOR_A_TASK = 0.05
PATIENCE = 1_200.0  # A task that was given back nine times waits for a quarter of an hour.
SERVER_SETTINGS = {
    **SETTINGS,
    # Small, as the disks are.
    "wal_keep_size": "'32MB'",
    "max_wal_size": "'96MB'",
    "min_wal_size": "'32MB'",
}


@dataclass(frozen=True)
class FaultCounts:
    """How often each fault happens."""

    kills: int
    stops: int
    servers: int
    promotions: int
    cuts: int
    disks: int

    def total(self) -> int:
        faults = self.kills + self.stops + self.servers
        return faults + self.promotions + self.cuts + self.disks


@dataclass(frozen=True)
class LastingFault:
    """A fault that ends later."""

    ends_at: float
    end: Callable[[], None]


@dataclass
class WeatherTrial(Trial):
    counts: FaultCounts = field(kw_only=True)
    disks_of_homes: list[SmallDisk] = field(default_factory=list)
    disk_by_server_folder: dict[Path, SmallDisk] = field(default_factory=dict)
    poolers: list[pgbouncer.Pooler] = field(default_factory=list)
    lasting_faults: list[LastingFault] = field(default_factory=list)
    coming_faults: list[Callable[[], None]] = field(default_factory=list)

    def _make_homes(self, folder: Path, model_server: str, last: ExitStack) -> None:
        last.callback(self._remove_disks)
        self.pair = Pair(SERVER_SETTINGS, self._new_server_folder)
        last.callback(self.pair.remove)
        self.server = self.pair.primary
        # The trial itself asks through one that no fault reaches, whose address stays.
        self.pooler = pgbouncer.Pooler(self.server, size=3)
        last.callback(self.pooler.remove)
        key = row_encryption.format_key_line(row_encryption.new_workspace_key())
        for number in range(self.home_count):
            name = "abcdefgh"[number]
            pooler = pgbouncer.Pooler(self.server, size=SERVER_CONNECTIONS // self.home_count)
            self.poolers.append(pooler)
            last.callback(pooler.remove)
            self.disks_of_homes.append(SmallDisk(folder / name, self._megabytes(HOME_MEGABYTES)))
            environment = {"HELIX_STORE": pooler.url, "HELIX_STORE_KEY": key}
            hours = CLOCKS[number % len(CLOCKS)]
            about = HomeSettings(hours, self.keep, self.bound, self.at_once)
            self.homes.append(Home(folder, name, environment, model_server, about))
            self.homes[number].run("workspace", "share", "Fleet", "--yes")
        self._plan_faults()

    def _new_server_folder(self) -> Path:
        folder = postgres.new_folder()
        disk = SmallDisk(folder, self._megabytes(SERVER_MEGABYTES))
        postgres.hand_over(folder)
        self.disk_by_server_folder[folder] = disk
        return folder

    def _megabytes(self, of_no_tasks: int) -> int:
        return of_no_tasks + round(MEGABYTES_FOR_A_TASK * self.tasks)

    def _remove_disks(self) -> None:
        for disk in [*self.disks_of_homes, *self.disk_by_server_folder.values()]:
            disk.remove()

    def _plan_faults(self) -> None:
        counts = self.counts
        faults = [self._kill_worker] * counts.kills
        faults += [self._stop_worker] * counts.stops
        faults += [self._kill_server] * counts.servers
        faults += [self._promote_standby] * counts.promotions
        faults += [self._cut_home_off] * counts.cuts
        faults += [self._fill_disk] * counts.disks
        self.chance.shuffle(faults)
        self.coming_faults = faults

    # --- The faults

    def kill_something(self) -> None:
        self.found["kills"] += 1
        if self.coming_faults:
            self.coming_faults.pop()()

    def _kill_worker(self) -> None:
        home = self.chance.choice(self.homes)
        home.kill_worker(self.chance.choice(home.workers))
        home.start_worker()
        self.found["workers killed"] += 1

    def _stop_worker(self) -> None:
        home = self.chance.choice(self.homes)
        home.pause_worker(self.chance.choice(home.workers), BEYOND_THE_LEASE)
        self.found["workers stopped beyond their lease"] += 1

    def _kill_server(self) -> None:
        self._start_server_if_ended()
        self.server.kill()
        # It cannot start on a full disk. A fault that filled it up ends here.
        self.disk_by_server_folder[self.server.folder].make_room()
        self.server.start()
        self.found["servers killed"] += 1

    def _promote_standby(self) -> None:
        assert self.pair is not None
        self._start_server_if_ended()
        for pooler in self._all_poolers():
            pooler.kill()
        self.pair.promote()
        self.server = self.pair.primary
        for pooler in self._all_poolers():
            pooler.start(self.server)
        self.found["promotions"] += 1

    def _cut_home_off(self) -> None:
        pooler = self.chance.choice(self.poolers)
        if self.chance.random() < 0.5:
            pooler.kill()
            time.sleep(LONGEST_CUT_SECONDS * self.chance.random())
            pooler.start(self.server)
            self.found["cuts"] += 1
            return
        pooler.send_signal(signal.SIGSTOP)
        ends_at = time.monotonic() + BEYOND_THE_LEASE
        self.lasting_faults.append(
            LastingFault(ends_at, lambda: pooler.send_signal(signal.SIGCONT))
        )
        self.found["cuts without a word"] += 1

    def _fill_disk(self) -> None:
        if self.chance.random() < 0.5:
            disk = self.chance.choice(self.disks_of_homes)
            self.found["full disks of homes"] += 1
        else:
            disk = self.disk_by_server_folder[self.server.folder]
            self.found["full disks of PostgreSQL"] += 1
        disk.fill_up()
        seconds = self.chance.uniform(SHORTEST_FULL_SECONDS, LONGEST_FULL_SECONDS)
        self.lasting_faults.append(LastingFault(time.monotonic() + seconds, disk.make_room))

    def end_passed_faults(self) -> None:
        super().end_passed_faults()
        for fault in list(self.lasting_faults):
            if time.monotonic() > fault.ends_at:
                fault.end()
                self.lasting_faults.remove(fault)
        if not self.lasting_faults:
            self._start_server_if_ended()

    def end_all_faults(self) -> None:
        super().end_all_faults()
        for fault in self.lasting_faults:
            fault.end()
        self.lasting_faults.clear()
        self._start_server_if_ended()

    def _start_server_if_ended(self) -> None:
        """As an operator does with a server that a full disk has ended."""
        if self.server.has_ended_by_itself():
            self.disk_by_server_folder[self.server.folder].make_room()
            self.server.start()
            self.found["servers that a full disk ended"] += 1

    def _all_poolers(self) -> list[pgbouncer.Pooler]:
        assert self.pooler is not None
        return [self.pooler, *self.poolers]

    def count_ended(self) -> int | None:
        return count_ended_in_store(self.server.url)


def run_weather(trial: WeatherTrial) -> None:
    trial.patience = PATIENCE
    trial.seconds_between_faults = SECONDS_BETWEEN_FAULTS
    trial.run()
    if trial.coming_faults:
        trial.found["faults that did not happen by then"] = len(trial.coming_faults)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--promotions", type=int, default=2)
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--disks", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--homes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if os.getuid():
        sys.stdout.write("skipped: only root can mount the disks that are filled up\n")
        return 0
    if not given.inside:
        # In a mount namespace of its own, the disks go with the trial's last process.
        command = [sys.executable, "-m", "tests.faults.fleet_weather", *sys.argv[1:], "--inside"]
        return subprocess.run(["unshare", "--mount", *command], check=False).returncode
    counts = FaultCounts(
        given.kills, given.stops, given.servers, given.promotions, given.cuts, given.disks
    )

    def run(found: Counter[str]) -> None:
        trial = WeatherTrial(given.tasks, counts.total(), given.seed, found, counts=counts)
        trial.workers = given.workers
        trial.home_count = given.homes
        trial.seconds = given.seconds
        if given.traces:
            trial.sessions = read_sessions(given.traces)
        run_weather(trial)

    return report("fleet_weather", given.seed, run)


if __name__ == "__main__":
    raise SystemExit(main())
