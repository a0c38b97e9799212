"""Files beside a history: read below its folder and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.histories import companion_files


@pytest.fixture(params=["by handles", "by names"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways; the second is that of Windows."""
    if request.param == "by names":
        monkeypatch.setattr("helix_desktop.histories.companion_files.sys.platform", "win32")
    return str(request.param)


@pytest.mark.usefixtures("read")
def test_a_file_below_the_folder_is_read_and_nothing_outside_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside" / "file").write_bytes(b"content")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "in").symlink_to("inside/file")
    assert companion_files.read_file_below(folder, "inside/file") == b"content"
    assert companion_files.read_file_below(folder, "in") == b"content"
    for path in ("out", "../secret", str(tmp_path / "secret"), "inside", "nowhere"):
        with pytest.raises(OSError):
            companion_files.read_file_below(folder, path)


@pytest.mark.usefixtures("read")
def test_a_file_of_more_than_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert companion_files.read_file_below(tmp_path, "file", 10) == b"0123456789"
    with pytest.raises(OSError, match="too large"):
        companion_files.read_file_below(tmp_path, "file", 9)
