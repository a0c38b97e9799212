"""`resident`: what is said while it is stopped, what starts it, and what `leave` takes back."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from helix_desktop.gateway import address_in_agent_settings, known_agents, wrapped_agent
from helix_desktop.program_folders import find_program_folders
from helix_desktop.program_settings import RECORDER, ProgramSettings
from helix_desktop.resident import login_start, schedules
from tests.commands.conftest import Helix


def test_no_agent_goes_on_sending_its_key_to_an_address_that_nobody_reserves(
    helix: Helix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    where = find_program_folders(tmp_path / "helix")
    files = {}
    for name in ("claude", "gemini"):
        agent = known_agents.find_known_agent(name)
        files[name] = agent.file(tmp_path, {})
        address_in_agent_settings.install_address(
            address_in_agent_settings.plan_address_install(agent, 4356, tmp_path, {}), where.config
        )
    login_start.enable_login_start(["helix-desktop"])
    files["gemini"].write_text(files["gemini"].read_text() + "\n")
    code, out, _ = helix("--home", where.data, "resident", "leave", "--json")
    told = json.loads(out)
    assert (code, told["removed"], files["claude"].exists()) == (3, ["Claude Code"], False)
    assert str(files["gemini"]) in told["left"][0]
    assert list((tmp_path / ".config").rglob("helix-desktop*resident*"))
    files["gemini"].unlink()
    (where.config / address_in_agent_settings.FOLDER / "gemini.json").unlink()
    code, out, _ = helix("--home", where.data, "resident", "leave")
    assert (code, out.splitlines()[0]) == (0, "No agent used the gateway.")
    assert not list((tmp_path / ".config").rglob("helix-desktop*resident*"))


@pytest.fixture
def claude_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address in the settings of a connected Claude Code, at a port that was free just now."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agent = known_agents.find_known_agent("claude")
    change = address_in_agent_settings.plan_address_install(agent, port, tmp_path, {})
    address_in_agent_settings.install_address(
        change, find_program_folders(tmp_path / "helix").config
    )
    return str(json.loads(change.file.read_text("utf-8"))["env"]["ANTHROPIC_BASE_URL"])


def test_a_stopped_resident_names_who_gets_no_answers_and_how_to_start_it(
    helix: Helix, tmp_path: Path, claude_address: str
) -> None:
    home = ("--home", tmp_path / "helix", "resident")
    _, out, _ = helix(*home, "status")
    assert "It starts when it is needed" not in out
    assert "- Claude Code gets no answers" in out
    assert "helix-desktop wrap --uninstall claude" in out
    assert out.endswith("To start it, run: helix-desktop resident start\n")
    assert helix(*home, "start")[0] == 0
    assert wrapped_agent.fetch_gateway_status(claude_address, 100) == {"figures": []}
    code, out, _ = helix(*home, "stop")
    assert (code, out.splitlines()[0]) == (
        0,
        "The background process was stopped. Until it runs again:",
    )
    assert "- Claude Code gets no answers" in out


def test_a_stopped_resident_says_that_nothing_is_recorded_and_no_task_is_added(
    helix: Helix, tmp_path: Path
) -> None:
    where = find_program_folders(tmp_path)
    home = ("--home", tmp_path, "resident")
    assert (
        helix(*home)[1] == "The background process is not running. It starts when it is needed.\n"
    )
    ProgramSettings(where.settings_file).change_setting(RECORDER, value=True)
    wanted = schedules.build_schedule("W", "look", "08:00", "Europe/Berlin", schedules.WEEKDAYS)
    schedules.write_schedules(where.data, [wanted])
    assert helix(*home)[1].splitlines()[1:3] == [
        "- No conversation is recorded.",
        "- No schedule adds a task.",
    ]
    assert helix(*home, "status", "--json")[1] == "null\n"


def test_the_status_says_why_agents_were_disconnected(
    helix: Helix, tmp_path: Path, claude_address: str
) -> None:
    port = int(claude_address.partition("/t/")[0].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        code, out, _ = helix("--home", tmp_path / "helix", "resident", "start")
    assert not code
    assert (
        "The gateway's port is in use by another program, so Claude Code no longer uses the gateway."
        in out
    )
    helix("--home", tmp_path / "helix", "resident", "stop")
