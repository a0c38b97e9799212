"""`project` from the command line: what a folder brings is trusted by its hash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from tests.commands.conftest import Helix


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    path = folder / "AGENTS.md"
    path.write_text("Never push.\u202e")
    workspace_access.open_all_workspaces(
        program_folders.find_program_folders()
    ).create_stored_workspace("Work", folder)
    return path


def item(helix: Helix, rules: Path) -> dict[str, str]:
    listed = json.loads(helix("project", "list", "-w", "Work", "--json")[1])
    found: dict[str, str] = next(each for each in listed if each["item"] == str(rules))
    return found


def test_what_was_read_is_trusted_by_its_hash(helix: Helix, rules: Path) -> None:
    assert item(helix, rules)["state"] == "new: not trusted yet"
    _, text, _ = helix("project", "show", rules, "-w", "Work")
    assert "Never push.⟨202E⟩" in text
    digest = item(helix, rules)["sha256"]
    code, told, _ = helix("project", "trust", f"{rules}={digest[:12]}", "-w", "Work")
    assert code == 0
    assert "in use" in told
    rules.write_text("Push.")
    assert item(helix, rules)["state"] == "changed: not trusted yet"
    code, _, error = helix("project", "trust", f"{rules}={digest}", "-w", "Work")
    assert code == 1
    assert "Nothing was trusted" in error
    assert helix("project", "trust", f"{rules}=", "-w", "Work")[0] == 2
    assert item(helix, rules)["state"] == "changed: not trusted yet"


def test_one_is_switched_off_and_on(helix: Helix, rules: Path) -> None:
    assert "off" in helix("project", "off", rules, "-w", "Work")[1]
    assert item(helix, rules)["state"] == "off"
    helix("project", "on", rules, "-w", "Work")
    assert item(helix, rules)["state"] == "new: not trusted yet"
    assert helix("project", "off", "nothing", "-w", "Work")[0] == 1
