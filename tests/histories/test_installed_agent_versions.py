"""Old versions of agents, which npm installs without saying so, are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.histories.installed_agent_versions import (
    OldAgent,
    find_old_agent,
    find_old_agents,
)
from helix_desktop.installation_checks import CheckedInstallation, _check_agents
from helix_desktop.secrets import SecretStorage


def install(folder: Path, name: str, program: str, version: str, node: str) -> None:
    """Install a package as npm does: the program is a link into it."""
    package = folder / "node_modules" / name
    (package / "dist").mkdir(parents=True)
    script = package / "dist" / "cli.js"
    script.write_text("#!/usr/bin/env node\n")
    script.chmod(0o755)
    words = {"name": name, "version": version, "engines": {"node": node}}
    (package / "package.json").write_text(json.dumps(words))
    programs = folder / "node_modules" / ".bin"
    programs.mkdir(exist_ok=True)
    (programs / program).symlink_to(script)


def test_an_old_version_is_named_with_what_newer_ones_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "node_modules" / ".bin"))
    assert list(find_old_agents()) == []
    install(tmp_path, "@mariozechner/pi-coding-agent", "pi", "0.73.1", ">=20.6.0")
    install(tmp_path, "@qwen-code/qwen-code", "qwen", "0.24.4", ">=22.0.0")
    install(tmp_path, "somebody-elses", "claude", "1.0.0", ">=18")
    (old_agent,) = find_old_agents()
    assert old_agent == OldAgent("pi", "0.73.1")
    assert find_old_agent("qwen") is find_old_agent("codex") is find_old_agent("claude") is None


def test_the_doctor_says_it_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "node_modules" / ".bin"))
    install(tmp_path, "@qwen-code/qwen-code", "qwen", "0.15.2", ">=20.0.0")
    where = program_folders.find_program_folders(tmp_path)
    installation = CheckedInstallation(where, SecretStorage(where.key_file))
    (finding,) = list(_check_agents(installation))
    assert finding.says.startswith("qwen 0.15.2 is an old version.")
    assert finding.remedy == "Install Node.js 22 or later, and then the agent again."
