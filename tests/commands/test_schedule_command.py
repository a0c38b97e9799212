"""`schedule list` and `remove` on two computers that share a workspace."""

from __future__ import annotations

import json
import time
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.resident import schedules
from helix_desktop.resident.schedules import WEEKDAYS, WorkSchedule
from tests.commands.test_sharing_commands import Helix, helix, homes, known_at, work_of  # noqa: F401 - fixtures
from tests.peers import postgres
from tests.store.shared.conftest import server  # noqa: F401 - a fixture


def write_schedule(home: Path) -> WorkSchedule:
    (workspace,) = known_at(home).list_workspaces()
    wanted = schedules.build_schedule(workspace.id, "look", "08:00", "Europe/Berlin", WEEKDAYS)
    schedules.write_schedules(program_folders.find_program_folders(home).data, [wanted])
    return wanted


def share_and_join(helix: Helix, here: Path, there: Path, url: str) -> None:  # noqa: F811
    assert helix("--home", here, "workspace", "share", "Work", "--to", url, "--yes")[0] == 0
    key = helix("--home", here, "workspace", "share", "Work", "--show-key")[1]
    join = ("--home", there, "workspace", "join", "-", "--folder", work_of(there))
    assert helix(*join, typed=f"{url}\n{key}")[0] == 0


def test_a_joined_computer_lists_a_shared_schedule_as_one_of_its_own_workspace(
    helix: Helix,  # noqa: F811
    homes: tuple[Path, Path],  # noqa: F811
    server: postgres.Server,  # noqa: F811
) -> None:
    here, there = homes
    share_and_join(helix, here, there, server.url)
    wanted = write_schedule(here)
    (joined,) = known_at(there).list_workspaces()
    assert joined.id != wanted.workspace

    assert helix("--home", here, "schedule", "list", "--workspace", "Work")[0] == 0
    code, out, err = helix("--home", there, "schedule", "list", "--workspace", joined.name)
    assert (code, err) == (0, "")
    assert f"  {joined.name}: look" in out
    assert wanted.workspace not in out
    as_json = helix("--home", there, "schedule", "list", "-w", joined.name, "--json")[1]
    (listed,) = json.loads(as_json)
    assert (listed["id"], listed["workspace"]) == (wanted.id, joined.id)
    assert listed["next_due"] > time.time()

    removing = ("--home", there, "schedule", "remove", "-w", joined.name, wanted.id)
    code, out, err = helix(*removing)
    assert (code, err) == (0, "")
    assert f"  {joined.name}: look" in out
    assert helix("--home", here, "schedule", "list", "-w", "Work")[1] == "There are no schedules.\n"


def test_a_budget_that_is_no_amount_is_refused_when_the_schedule_is_added(
    helix: Helix,  # noqa: F811
    homes: tuple[Path, Path],  # noqa: F811
) -> None:
    here, _ = homes
    add = ("--home", here, "schedule", "add", "-w", "Work", "--at", "08:00", "--budget", "5,00")
    code, _, err = helix(*add, "look")
    assert code
    assert "A budget must be an amount of 0 dollars or more" in err
    assert helix("--home", here, "schedule", "list")[1] == "There are no schedules.\n"
