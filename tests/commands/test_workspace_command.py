from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop import cli


def test_a_folder_of_the_programs_own_is_refused_before_every_tool_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HELIX_HOME", str(tmp_path / "home"))
    (tmp_path / "home/work").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    new = ["workspace", "new", "Thesis", "--folder"]
    assert cli.main([*new, str(tmp_path / "work/../home/work")]) == 1
    assert "belongs to Helix Desktop, so tools can't use it" in capsys.readouterr().err
    assert cli.main([*new, str(tmp_path / "work")]) == 0
