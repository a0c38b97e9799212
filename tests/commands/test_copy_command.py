"""`copy_command` from the command line: list, show, bring back; and `ask --copy`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import NOT_CONFIRMED, Helix


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a").write_text("one\n")
    for words in (
        "init -q -b main .",
        "config user.name a",
        "config user.email a@b",
        "add -A",
        "commit -qm x",
    ):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    return folder


def make_workspace(helix: Helix, project: Path) -> None:
    helix("workspace", "new", "Work", "--folder", project)
    (project / "a").write_text("two\n")


ASK = ("ask", "-w", "Work", "-m", "demo/demo", "--allow", "edits")


def bring_back(helix: Helix, name: str, *how: str) -> tuple[int, str, str]:
    return helix("copy", "bring-back", "-w", "Work", name, "--by", *how)


def listed_copies(helix: Helix) -> list[dict[str, Any]]:
    """What was made last comes first."""
    copies: list[dict[str, Any]] = json.loads(helix("copy", "list", "-w", "Work", "--json")[1])
    return copies


def test_a_copy_from_its_beginning_to_its_end(helix: Helix, project: Path) -> None:
    make_workspace(helix, project)
    code, _, said = helix(*ASK, "--copy-with-changes", "write new: by the agent")
    assert code == 0
    assert not (project / "new").exists()
    name = said.split()[-1]
    assert f"helix-desktop copy bring-back -w {said.split()[-2]} {name}" in said
    (copy,) = listed_copies(helix)
    assert (copy["id"], copy["whole"]) == (name, True)
    assert (copy["uncommitted"], copy["commits"]) == (["new"], 0)
    shown = helix("copy", "show", "-w", "Work", name[:8])[1]
    assert "copy of main: 1 file not committed, 0 commits of its own" in shown

    code, out, _ = bring_back(helix, name[:8], "apply")
    assert (code, out.startswith("Files changed: 1.")) == (0, True)
    assert (project / "new").read_text() == "by the agent\n"
    assert (project / "a").read_text() == "two\n"
    listed = helix("copy", "list", "-w", "Work")[1]
    nothing_left = (
        "copy of main: 0 files not brought back, 1 file not committed, 0 commits of its own"
    )
    assert nothing_left in listed

    _a_conflict_is_decided_before_anything_changes(helix, project, copy)
    _a_copy_is_thrown_away_once_it_is_confirmed(helix, copy)


def _a_conflict_is_decided_before_anything_changes(
    helix: Helix, project: Path, copy: dict[str, Any]
) -> None:
    (Path(copy["folder"]) / "0" / "a").write_text("three\n")
    (project / "a").write_text("mine\n")
    code, _, said = bring_back(helix, copy["id"], "apply")
    assert (code, (project / "a").read_text()) == (1, "mine\n")
    assert "in the copy: a." in said
    assert "`--conflicts`" in said
    code, _, _ = bring_back(helix, copy["id"], "apply", "--conflicts", "copy")
    assert (code, (project / "a").read_text()) == (0, "three\n")


def _a_copy_is_thrown_away_once_it_is_confirmed(helix: Helix, copy: dict[str, Any]) -> None:
    code, _, said = bring_back(helix, copy["id"], "discard")
    assert (code, said, Path(copy["folder"]).exists()) == (1, NOT_CONFIRMED, True)
    code, _, _ = bring_back(helix, copy["id"], "discard", "--yes")
    assert (code, Path(copy["folder"]).exists()) == (0, False)
    assert helix("copy", "list", "-w", "Work")[1] == ""


def test_a_fork_in_a_copy_is_listed_with_it_and_names_what_other_copies_changed(
    helix: Helix, project: Path
) -> None:
    make_workspace(helix, project)
    helix(*ASK, "write first: by the agent")
    here = json.loads(helix("conversation", "list", "-w", "Work", "--json")[1])[0]["id"]
    code, _, said = helix(*ASK, "--copy", "-c", here, "write forked: by the fork")
    assert code == 0
    assert not (project / "forked").exists()
    forked = said.split()[-1]
    rows = json.loads(helix("conversation", "list", "-w", "Work", "--json")[1])
    (row,) = [row for row in rows if row["id"] == forked]
    assert row["copy"] == "main"
    assert "(copy of main)" in helix("conversation", "list", "-w", "Work")[1]

    helix(*ASK, "--copy", "write forked: by another")
    assert "1 file also changed in other copies" in helix("copy", "list", "-w", "Work")[1]
    other = listed_copies(helix)[0]["id"]
    shown = helix("copy", "show", "-w", "Work", other)[1]
    assert f"Also changed in {forked}: {project}/forked" in shown
