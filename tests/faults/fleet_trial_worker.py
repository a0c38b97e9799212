"""The program as a computer of a fleet's trial runs it: with short leases, perhaps with a
clock that is hours wrong, and with a note of each claim for the ledger.

python -P fleet_trial_worker.py SETTINGS ARGUMENT ...

SETTINGS is a `TrialProgram` as JSON; the arguments are those of `helix-desktop`. It is run by
its path and with `-P`, as `secrets.py` beside it would take the place of Python's own module.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Names the process in what its commands write: "a.7" is the seventh worker that home a started.
# Variables that begin with LC_ reach a command.
WORKER_VARIABLE = "LC_FLEET_TRIAL_WORKER"
CLAIMS_FOLDER = "claims"  # In the workspace's folder: for each task the claims made here.


@dataclass(frozen=True)
class TrialProgram:
    """What differs from the program as users have it. Times are in seconds."""

    clock_wrong_by_hours: int
    lease: float
    release: float
    failover: float
    most_unsent_facts: int


def run_program(settings: TrialProgram, arguments: Sequence[str]) -> int:
    right_time = time.time
    wrong_by = settings.clock_wrong_by_hours * 3600
    # Before the program is imported, which keeps this function in some places.
    time.time = lambda: right_time() + wrong_by

    from helix_desktop import cli
    from helix_desktop.store import fleet_notes
    from helix_desktop.workbench import claimed_fleet_task, conversation_sharing, fleet_worker

    fleet_notes.FAILOVER_SECONDS = settings.failover
    claimed_fleet_task.TASK_LEASE_SECONDS = settings.lease
    fleet_worker.RELEASE_SECONDS = settings.release
    conversation_sharing.MOST_UNSENT_FACTS = settings.most_unsent_facts
    if WORKER_VARIABLE in os.environ:
        _note_each_claim(os.environ[WORKER_VARIABLE])
    return cli.main(list(arguments))


def _note_each_claim(worker_label: str) -> None:
    """Let each claim add a line "WORKER LEASE" to the task's file, before the task runs."""
    from helix_desktop.store.fleet_task_list import FleetTaskList
    from helix_desktop.store.fleet_tasks import FleetTask

    claim_tasks = FleetTaskList.claim_fleet_tasks

    async def claim_and_note(
        self: FleetTaskList, worker: str, limit: int, seconds: float
    ) -> list[FleetTask]:
        tasks = await claim_tasks(self, worker, limit, seconds)
        for task in tasks:
            name = task.order.text.removeprefix("Do ")
            with Path(CLAIMS_FOLDER, f"{name}.txt").open("a", encoding="utf-8") as file:
                file.write(f"{worker_label} {task.claims}\n")
        return tasks

    FleetTaskList.claim_fleet_tasks = claim_and_note  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(run_program(TrialProgram(**json.loads(sys.argv[1])), sys.argv[2:]))
