"""`copy_command` from the command line: list, show, bring back; and `ask --copy`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

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


def test_a_copy_from_its_beginning_to_its_end(helix: Helix, project: Path) -> None:
    helix("workspace", "new", "Work", "--folder", project)
    (project / "a").write_text("two\n")
    ask = ("ask", "-w", "Work", "-m", "demo/demo", "--allow", "edits")
    code, _, said = helix(*ask, "--copy-with-changes", "write new: by the agent")
    assert (code, (project / "new").exists()) == (0, False)
    name = said.split()[-1]
    assert f"helix-desktop copy bring-back -w {said.split()[-2]} {name}" in said
    (copy,) = json.loads(helix("copy", "list", "-w", "Work", "--json")[1])
    assert (copy["id"], copy["whole"], copy["uncommitted"], copy["commits"]) == (
        name,
        True,
        ["new"],
        0,
    )
    shown = helix("copy", "show", "-w", "Work", name[:8])[1]
    assert "copy of main: 1 file not committed, 0 commits of its own" in shown
    code, out, _ = helix("copy", "bring-back", "-w", "Work", name[:8], "--by", "apply")
    assert (code, out.startswith("Files changed: 1.")) == (0, True)
    assert (project / "new").read_text() == "by the agent\n"
    listed = helix("copy", "list", "-w", "Work")[1]
    assert (
        "copy of main: 0 files not brought back, 1 file not committed, 0 commits of its own"
        in listed
    )
    assert (project / "a").read_text() == "two\n"
    (Path(copy["folder"]) / "0" / "a").write_text("three\n")
    (project / "a").write_text("mine\n")
    code, _, said = helix("copy", "bring-back", "-w", "Work", name, "--by", "apply")
    assert (code, (project / "a").read_text()) == (1, "mine\n")
    assert "in the copy: a." in said
    assert "`--conflicts`" in said
    code, _, _ = helix(
        "copy", "bring-back", "-w", "Work", name, "--by", "apply", "--conflicts", "copy"
    )
    assert (code, (project / "a").read_text()) == (0, "three\n")
    code, out, said = helix("copy", "bring-back", "-w", "Work", name, "--by", "discard")
    assert (code, said, Path(copy["folder"]).exists()) == (1, NOT_CONFIRMED, True)
    code, out, _ = helix("copy", "bring-back", "-w", "Work", name, "--by", "discard", "--yes")
    assert (code, Path(copy["folder"]).exists()) == (0, False)
    assert helix("copy", "list", "-w", "Work")[1] == ""
    here = json.loads(helix("conversation", "list", "-w", "Work", "--json")[1])[0]["id"]
    code, _, said = helix(*ask, "--copy", "-c", here, "write forked: by the fork")
    assert (code, (project / "forked").exists()) == (0, False)
    rows = {
        row["id"]: row["copy"]
        for row in json.loads(helix("conversation", "list", "-w", "Work", "--json")[1])
    }
    assert rows[said.split()[-1]] == "main"
    assert "(copy of main)" in helix("conversation", "list", "-w", "Work")[1]
    helix(*ask, "--copy", "write forked: by another")
    assert "1 file also changed in other copies" in helix("copy", "list", "-w", "Work")[1]
    forked = said.split()[-1]
    other = json.loads(helix("copy", "list", "-w", "Work", "--json")[1])[0]["id"]
    assert (
        f"Also changed in {forked}: {project}/forked"
        in helix("copy", "show", "-w", "Work", other)[1]
    )
