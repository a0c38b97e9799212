"""The keeper of the page: what it says, that it starts the page again, and that it ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.program_settings import PAGE_ADDRESS, PAGE_ON, ProgramSettings
from helix_desktop.resident import page_keeper
from helix_desktop.resident.gateway_keeper import GatewayKeeper
from helix_desktop.resident.page_keeper import PageKeeper
from helix_desktop.resident.resident_process import Resident
from helix_desktop.resident.schedule_keeper import ScheduleKeeper
from tests.resident.test_resident_process import is_gone, wait_until

# Stands for this program: its arguments are the page's own.
SERVES = "import sys; print('http://127.0.0.1:1/', flush=True); sys.stdin.read()"
FAILS = "import sys; print('The port is taken.', file=sys.stderr); sys.exit(1)"


def command(code: str) -> Sequence[str]:
    return [sys.executable, "-I", "-c", code]


@pytest.fixture
def keeper() -> Iterator[PageKeeper]:
    made = PageKeeper(command(SERVES))
    yield made
    made.stop_page()


def page_process(keeper: PageKeeper) -> int:
    status = keeper.page_status_as_json()
    assert status is not None
    return int(status["pid"])


def test_it_says_where_the_page_answers_and_ends_it(keeper: PageKeeper) -> None:
    assert keeper.page_status_as_json() is None
    keeper.start_page()
    assert keeper.url == "http://127.0.0.1:1/"
    pid = page_process(keeper)
    keeper.stop_page()
    assert keeper.page_status_as_json() is None
    wait_until(lambda: is_gone(pid))


async def test_a_page_that_answers_where_it_should_is_not_started_again(
    keeper: PageKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window turns it on and then asks for it: on a busy computer, each start takes seconds."""
    monkeypatch.setenv("HOME", str(tmp_path))
    where = program_folders.find_program_folders(tmp_path / "helix")
    settings = ProgramSettings(where.settings_file)
    settings.change_setting(PAGE_ON, value=True)
    resident = Resident(where, GatewayKeeper([]), ScheduleKeeper(where.data, []), keeper)
    await asyncio.gather(*(resident.start_or_stop_page() for _ in range(3)))
    pid = page_process(keeper)
    await resident.start_or_stop_page()
    assert page_process(keeper) == pid
    settings.change_setting(PAGE_ADDRESS, "127.0.0.2")
    await resident.start_or_stop_page()
    assert page_process(keeper) != pid


def test_a_page_that_was_killed_is_started_again(
    keeper: PageKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_keeper, "RESTART_PAUSE_SECONDS", 0.01)
    keeper.start_page()
    pid = page_process(keeper)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: page_process(keeper) != pid and keeper.url)
    assert keeper.trouble == ""


def test_why_the_page_cannot_answer_is_said() -> None:
    keeper = PageKeeper(command(FAILS))
    keeper.start_page()
    try:
        assert (keeper.url, keeper.trouble) == ("", "The port is taken.")
    finally:
        keeper.stop_page()


def test_starting_and_stopping_again_and_again_leaves_one_page(keeper: PageKeeper) -> None:
    pids: list[int] = []
    for _ in range(5):
        keeper.start_page()
        pids.append(page_process(keeper))
        keeper.stop_page()
    keeper.start_page()
    for pid in pids:
        assert is_gone(pid)
    assert not is_gone(page_process(keeper))
