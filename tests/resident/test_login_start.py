"""The entry that starts the resident at login: who asked for it, and when it goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helix_desktop.gateway import address_in_agent_settings
from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.program_folders import ProgramFolders, find_program_folders
from helix_desktop.program_settings import RECORDER, ProgramSettings
from helix_desktop.resident import agent_connecting, login_start, schedule_changes, schedules

LINE = ["helix-desktop"]


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramFolders:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    return find_program_folders(tmp_path / "helix")


def starts_at_login(where: ProgramFolders) -> bool:
    return bool(list((where.data.parent / ".config").rglob("helix-desktop*resident*")))


def connect_claude(where: ProgramFolders) -> None:
    """As `connect_agent` does, without a process."""
    login_start.enable_login_start(LINE)
    planned = address_in_agent_settings.plan_address_install(
        KNOWN_AGENTS["claude"], 4356, where.data.parent, {}
    )
    address_in_agent_settings.install_address(planned, where.config)


def disconnect_claude(where: ProgramFolders) -> None:
    planned = address_in_agent_settings.plan_address_removal(KNOWN_AGENTS["claude"], where.config)
    agent_connecting.disconnect_agent(planned, where)


def turn_recorder(where: ProgramFolders, *, on: bool) -> None:
    ProgramSettings(where.settings_file).change_setting(RECORDER, on)
    login_start.disable_unneeded_login_start(where)


def test_the_last_agent_takes_the_entry_with_it_if_only_agents_asked_for_it(
    where: ProgramFolders,
) -> None:
    turn_recorder(where, on=True)  # Without `--at-login`.
    connect_claude(where)
    assert starts_at_login(where)
    disconnect_claude(where)
    assert not starts_at_login(where)
    assert login_start.is_resident_needed(where)  # For the recorder, but not at login.
    turn_recorder(where, on=False)
    assert not login_start.is_resident_needed(where)


@pytest.mark.parametrize("first", [True, False])
def test_the_entry_stays_for_a_recorder_that_starts_at_login_until_it_is_off(
    where: ProgramFolders, first: bool
) -> None:
    turn_recorder(where, on=True)
    if first:
        login_start.enable_login_start(LINE, for_recorder=True)
    connect_claude(where)
    if not first:
        login_start.enable_login_start(LINE, for_recorder=True)
    disconnect_claude(where)
    assert starts_at_login(where)
    turn_recorder(where, on=False)
    assert not starts_at_login(where)


def test_an_entry_of_an_earlier_version_stays_while_the_recorder_is_on(
    where: ProgramFolders,
) -> None:
    turn_recorder(where, on=True)
    login_start.enable_login_start(LINE, for_recorder=True)
    (entry,) = (where.data.parent / ".config").rglob("helix-desktop*resident*")
    assert login_start.NOT_FOR_RECORDER not in entry.read_text(
        "utf-8"
    )  # Earlier versions wrote the same entry.


def test_schedules_keep_the_entry_when_the_last_agent_leaves(where: ProgramFolders) -> None:
    wanted = schedules.build_schedule("W", "look", "08:00", "Europe/Berlin", schedules.WEEKDAYS)
    schedules.change_stored_schedules(where.data, lambda known: [*known, wanted])
    connect_claude(where)
    disconnect_claude(where)
    assert starts_at_login(where)
    assert not asyncio.run(schedule_changes.change_schedules(where, lambda _: []))
    assert not starts_at_login(where)
