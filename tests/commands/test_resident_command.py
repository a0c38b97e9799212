"""`resident leave`: what is taken back before the program is uninstalled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop.gateway import agent_settings, known_agents
from helix_desktop.program_folders import find_program_folders
from helix_desktop.resident import login_start
from tests.commands.conftest import Helix


def test_no_agent_goes_on_sending_its_key_to_an_address_that_nobody_reserves(
    helix: Helix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    where, files = find_program_folders(tmp_path / "helix"), {}
    for name in ("claude", "gemini"):
        agent = known_agents.find_known_agent(name)
        files[name] = agent.file(tmp_path, {})
        agent_settings.install_address(agent_settings.plan_address_install(agent, 4356, tmp_path, {}), where.config)
    login_start.enable_login_start(["helix-desktop"])
    files["gemini"].write_text(files["gemini"].read_text() + "\n")
    code, out, _ = helix("--home", where.data, "resident", "leave", "--json")
    told = json.loads(out)
    assert (code, told["removed"], files["claude"].exists()) == (3, ["Claude Code"], False)
    assert str(files["gemini"]) in told["left"][0]
    assert list((tmp_path / ".config").rglob("helix-desktop*resident*"))
    files["gemini"].unlink()
    (where.config / agent_settings.FOLDER / "gemini.json").unlink()
    code, out, _ = helix("--home", where.data, "resident", "leave")
    assert (code, out.splitlines()[0]) == (0, "No agent used the gateway.")
    assert not list((tmp_path / ".config").rglob("helix-desktop*resident*"))
