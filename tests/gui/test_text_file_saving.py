from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from helix_desktop.errors import StoreFailed
from helix_desktop.gui.text_file_saving import file_name_from_title, save_text_file


async def test_a_text_is_written_as_it_is(tmp_path: Path) -> None:
    await save_text_file(tmp_path / "a.md", lambda: "历程 \ud83d\n")
    assert (tmp_path / "a.md").read_bytes() == "历程 ?\n".encode(), (
        "half a sign of a model's is no text"
    )


async def test_what_cannot_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="No such file or directory") as raised:
        await save_text_file(tmp_path / "nowhere" / "a.md", lambda: "text")
    assert "Choose another location" in str(raised.value)


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from helix_desktop.errors import StoreFailed
from helix_desktop.gui.text_file_saving import save_text_file

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    asyncio.run(save_text_file(Path(sys.argv[1]), lambda: "x" * 100_000))
except StoreFailed:
    sys.exit(7)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_a_file_stays_as_it_was_where_there_is_no_room(tmp_path: Path) -> None:
    """It was emptied first."""
    file = tmp_path / "a.md"
    file.write_text("old")
    assert (
        subprocess.run([sys.executable, "-B", "-c", FULL, str(file)], check=False).returncode == 7
    )
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Fix: a/b?", "Fix a b"),
        ("Hello. (fork)", "Hello fork"),
        ("历程 1", "历程 1"),
        ("///", "story"),
        ("", "story"),
    ],
)
def test_a_title_as_the_name_of_a_file(title: str, name: str) -> None:
    assert file_name_from_title(title, "story") == name


@pytest.mark.parametrize("letter", ["x", "é", "漢", "𠀀"])
async def test_a_long_title_is_the_name_of_a_file_that_can_be_written(
    letter: str, tmp_path: Path
) -> None:
    name = file_name_from_title(letter * 300, "story")

    await save_text_file(tmp_path / f"{name}.helix-export", lambda: "words")

    assert name.strip(letter) == ""
    assert [file.read_text() for file in tmp_path.iterdir()] == ["words"]


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
async def test_what_is_saved_can_be_read_by_its_user_only(tmp_path: Path) -> None:
    await save_text_file(tmp_path / "conversation.md", lambda: "words")
    assert stat.S_IMODE((tmp_path / "conversation.md").stat().st_mode) == 0o600
