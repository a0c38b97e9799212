"""console.py: bytes in, bytes out, files whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from helix_desktop.console import PIECE, Terminal
from helix_desktop.errors import NotThere, WrongUse


async def test_a_source_is_read_piece_by_piece_and_a_target_appears_at_the_end(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    content = os.urandom(2 * PIECE + 1)
    source.write_bytes(content)
    sizes = []
    with Terminal(source=source, target=target) as console:
        while piece := await console.read():
            sizes.append(len(piece))
            await console.write(piece)
        assert not target.exists()
    assert target.read_bytes() == content
    assert sizes == [PIECE, PIECE, 1]


async def test_after_an_error_the_old_target_stands_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), Terminal(target=target) as console:  # noqa: PT012 - the block is what fails
        await console.write(b"new")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_text() == "old"


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
async def test_a_target_has_the_rights_of_a_new_file(tmp_path: Path) -> None:
    with Terminal(target=tmp_path / "target"):
        (tmp_path / "other").touch()
    rights = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("target", "other")]
    assert rights[0] == rights[1]


def test_files_that_cannot_be_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="no file"):
        Terminal(source=tmp_path / "none")
    with pytest.raises(NotThere, match="no folder"):
        Terminal(target=tmp_path / "none" / "target")
    with pytest.raises(WrongUse, match="is a folder"):
        Terminal(target=tmp_path)
    with pytest.raises(WrongUse, match="cannot be read"):
        Terminal(source=tmp_path)


async def test_standard_streams_carry_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    console = Terminal()
    await console.write(b"\xff\r\n\x00")
    await console.say("zwölf")
    await console.complain("broken")
    assert capfdbinary.readouterr() == (b"\xff\r\n\x00" + "zwölf\n".encode(), b"broken\n")
