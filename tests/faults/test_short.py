"""The trials of networks, servers and keyrings in their short form, and the frame of the suite."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import (
    cards,
    clock_jumps,
    command_cards,
    forgetting,
    histories,
    hooks,
    keyring,
    mcp_servers,
    network,
    started_names,
    starting_uses,
)
from tests.faults.__main__ import ALL, Tally, counts, table

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, or starts dbus")
CAN_MOUNT = (
    sys.platform == "linux"
    and os.geteuid() == 0
    and shutil.which("dpkg-deb") is not None
    and subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False).returncode
    == 0
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What goes wrong here is logged by the program, on purpose."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def lost(found: Counter[str]) -> list[str]:
    return [key for key in found if key.startswith("LOST")]


def test_a_network_that_fails_loses_no_turn() -> None:
    found: Counter[str] = Counter()
    network.trials(8, 5, found, each=1)
    assert (lost(found), found["turns"] >= 8, found["conversations"]) == ([], True, 4)


def test_damaged_histories_are_read_up_to_the_damage() -> None:
    found: Counter[str] = Counter()
    histories.trials(60, 3, found)
    assert (lost(found), found["files"]) == ([], 60)


def test_a_clock_that_is_set_harms_nothing() -> None:
    found: Counter[str] = Counter()
    clock_jumps.trials(39, 7, found)
    assert (lost(found), found["stories"], found["jumps"] > 39) == ([], 39, True)


def test_what_a_card_shows_is_what_runs() -> None:
    found: Counter[str] = Counter()
    cards.trials(4_000, 7, found)
    assert (lost(found), found["values"]) == ([], 4_000)


@needs_linux
def test_no_program_of_a_project_takes_the_place_of_another_by_its_name() -> None:
    found: Counter[str] = Counter()
    started_names.trials(4, 3, found)
    assert (lost(found), found["starts"]) == ([], 4)


@needs_linux
def test_what_a_person_agrees_to_is_all_shown_on_every_surface() -> None:
    words = [sys.executable, "-m", "tests.faults.consent", "--texts", "12", "--seed", "7"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 card, 12 task in the window" in done.stdout


@needs_linux
def test_a_rule_covers_no_more_than_the_words_on_the_card_said() -> None:
    found: Counter[str] = Counter()
    command_cards.run_trials(150, 3, found)
    assert (lost(found), found["lines"], found["allowed"] > 100) == ([], 150, True)


@needs_linux
@pytest.mark.skipif(
    not all(map(shutil.which, ("strace", "bwrap", "man"))), reason="needs strace, bwrap and man"
)
def test_what_always_covers_starts_no_program_that_no_word_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: Counter[str] = Counter()
    monkeypatch.setenv("PATH", starting_uses.search_path_without_shims())
    starting_uses.run_trials(10, 3, found)
    assert (lost(found), found["covered"]) == ([], 10)


@needs_linux
def test_a_copy_whose_maker_is_killed_hinders_nobody() -> None:
    words = [sys.executable, "-m", "tests.faults.copies", "--kills", "5", "--seed", "3"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 kills" in done.stdout


@needs_linux
@pytest.mark.skipif(not CAN_MOUNT, reason="needs root, dpkg and overlay mounts")
def test_a_removal_of_the_package_gives_nothing_of_roots_to_users() -> None:
    words = [sys.executable, "-m", "tests.faults.package_removal", "--rounds", "1", "--seed", "4"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rounds" in done.stdout


def test_what_is_forgotten_is_in_no_file(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    asyncio.run(forgetting.trials(2, 5, found, tmp_path))
    assert ([key for key in lost(found) if found[key]], found["secrets"]) == ([], 2)


@needs_linux
def test_what_got_in_by_any_way_is_forgotten_or_named(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    forgetting.try_ways(5, found, tmp_path, most=6)
    assert [key for key in lost(found) if found[key]] == []
    assert found["ways"] == 25


@needs_linux
def test_mcp_servers_that_misbehave_hinder_nobody() -> None:
    found: Counter[str] = Counter()
    mcp_servers.trials(2, 5, found)
    assert (lost(found), found["trials"]) == ([], 2)


@needs_linux
@pytest.mark.skipif(shutil.which("dbus-run-session") is None, reason="needs dbus-run-session")
def test_keys_are_safe_whatever_the_secret_service_does() -> None:
    found: Counter[str] = Counter()
    keyring.trials(4, 5, found)
    assert (lost(found), found["none"], found["silent"] > 0) == ([], 1, True)


@needs_linux
def test_a_trusted_hook_leaves_and_shows_nothing() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:  # of /tmp, commands have their own
        failed, kind = asyncio.run(hooks.try_hooks(4, 5, Path(base)))
    if kind == "none":
        pytest.skip("there is no sandbox here")
    assert failed == []


def test_a_report_is_counted() -> None:
    said = "kill: 20 kills, 31 acknowledged; 0 failures; 3 s, seed 1\nopen_by_kernel: 2,000 races in 3 s: {}\n"
    assert counts(said) == {"kills": 20, "acknowledged": 31, "races": 2000}


def test_the_table_names_what_failed_and_how_to_see_it_again() -> None:
    tallies = {one.name: Tally(2, 60.0, [], Counter(kills=40)) for one in ALL[:2]}
    tallies["store_crash"].failures.append("python -m tests.faults.store_crash --seed 7")
    made = table(list(ALL[:2]), tallies, 120.0, (1, 2))
    assert "4 rounds in 2.0 minutes, seeds 1 to 2: 1 failed" in made
    assert "40 kills" in made
    assert made.endswith("Again: python -m tests.faults.store_crash --seed 7")
