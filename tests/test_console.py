"""console.py: bytes in, bytes out, files whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.console import (
    PIECE,
    Terminal,
    dump_printed_json,
    escape_control_characters,
)
from helix_desktop.errors import InvalidInput, NotFound, StoreFailed


async def test_a_source_is_read_piece_by_piece_and_a_target_appears_at_the_end(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    target = tmp_path / "target"
    content = os.urandom(2 * PIECE + 1)
    source.write_bytes(content)
    sizes = []
    with Terminal(source=source, target=target) as console:
        while piece := await console.read_input():
            sizes.append(len(piece))
            await console.write_output(piece)
        assert not target.exists()
    assert target.read_bytes() == content
    assert sizes == [PIECE, PIECE, 1]


async def test_after_an_error_the_old_target_stands_and_nothing_lies_beside_it(
    tmp_path: Path,
) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), Terminal(target=target) as console:  # noqa: PT012 - the block is what fails
        await console.write_output(b"new")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_text() == "old"


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
async def test_a_target_can_be_read_by_its_user_only(tmp_path: Path) -> None:
    """The defect: `workspace export` wrote whole histories that everybody on the
    computer could read.
    """
    for there in (False, True):
        with Terminal(target=tmp_path / "target") as console:
            await console.write_output(b"history")
        assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o600, there
        (tmp_path / "target").chmod(0o644)


def test_files_that_cannot_be_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        Terminal(source=tmp_path / "none")
    with pytest.raises(NotFound, match="does not exist"):
        Terminal(target=tmp_path / "none" / "target")
    with pytest.raises(InvalidInput, match="is a folder"):
        Terminal(target=tmp_path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        Terminal(source=tmp_path)


async def test_standard_streams_carry_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    console = Terminal()
    await console.write_output(b"\xff\r\n\x00")
    await console.print_line("zwölf")
    await console.print_error("broken")
    assert capfdbinary.readouterr() == (b"\xff\r\n\x00" + "zwölf\n".encode(), b"broken\n")


@pytest.mark.skipif(sys.platform == "win32", reason="devices and links of POSIX")
async def test_a_device_is_written_to_and_a_link_stays_a_link(tmp_path: Path) -> None:
    device = tmp_path / "device"
    os.mkfifo(device)
    reading = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    with Terminal(target=device) as console:
        await console.write_output(b"through")
    assert os.read(reading, 100) == b"through"
    os.close(reading)
    assert stat.S_ISFIFO(device.stat().st_mode)
    link = tmp_path / "link"
    real = tmp_path / "real"
    link.symlink_to(real)
    with Terminal(target=link) as console:
        await console.write_output(b"there")
    assert link.is_symlink()
    assert real.read_bytes() == b"there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["device", "link", "real"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device")
async def test_a_full_disk_is_said_and_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(StoreFailed, match="/dev/full could not be written: No space"),
        Terminal(target=Path("/dev/full")) as console,
    ):
        await console.write_output(b"content")
    with open("/dev/full", "w", buffering=1) as full:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(StoreFailed, match="Standard output could not be written: No space"):
            await Terminal().print_line("words")
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


async def test_without_standard_output_lines_are_for_nobody_and_content_is_not_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    await Terminal().print_line("words")
    await Terminal().print_error("words")
    with pytest.raises(StoreFailed, match="closed"):
        await Terminal().write_output(b"content")


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="a folder nobody can write to, root included"
)
def test_a_folder_that_takes_no_file_is_said() -> None:
    with pytest.raises(InvalidInput, match="/proc/none cannot be written"):
        Terminal(target=Path("/proc/none"))


@pytest.mark.skipif(sys.platform == "win32", reason="a folder cannot be opened there")
async def test_an_input_that_is_a_folder_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    with os.fdopen(os.dup(os.open(os.devnull, os.O_RDONLY)), "r") as given:
        os.dup2(folder, given.fileno())
        monkeypatch.setattr(sys, "stdin", given)
        with pytest.raises(InvalidInput, match="input cannot be read: Is a directory"):
            await Terminal().read_input()
        with pytest.raises(StoreFailed, match="Standard input could not be read"):
            Terminal(gather=True)
    os.close(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
async def test_foreign_text_gives_a_terminal_no_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = os.openpty()
    with os.fdopen(far, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setattr(sys, "stderr", terminal)
        await Terminal().print_line("a\x1b]0;title\x07\tb")
        await Terminal().print_error("c\x9b31m")
        monkeypatch.undo()
        told = b""
        while not told.endswith(b"31m\r\n"):  # a terminal gives what it has so far
            told += os.read(near, 1000)
        said = told.decode()
    os.close(near)
    assert said.split() == ["a⟨001B⟩]0;title⟨0007⟩", "b", "c⟨009B⟩31m"]


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
@pytest.mark.parametrize("piece_size", [1, 2, 3, 7, 1000])
async def test_content_gives_a_terminal_no_orders_and_a_pipe_every_byte(
    piece_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: `cache get` and `changes show` wrote a file's escape sequences to the terminal."""
    content = "a\x1b]52;c;eA==\x07ü \u202eb\x9b31m\tc\r\nd\rEND".encode() + b"\x9b\xff\n"
    pieces = [content[at : at + piece_size] for at in range(0, len(content), piece_size)]
    printed = {}
    for kind, (near, far) in {"terminal": os.openpty(), "pipe": os.pipe()}.items():
        with os.fdopen(far, "w") as output:
            monkeypatch.setattr(sys, "stdout", output)
            console = Terminal()
            for piece in pieces:
                await console.write_output(piece)
            monkeypatch.undo()
            told = b""
            while not told.endswith(b"\n") or b"END" not in told:
                told += os.read(near, 1000)
        os.close(near)
        printed[kind] = told
    assert printed["pipe"] == content
    expected = "a⟨001B⟩]52;c;eA==⟨0007⟩ü ⟨202E⟩b⟨009B⟩31m\tc\nd⟨000D⟩END\ufffd\ufffd\n"
    assert printed["terminal"].decode().replace("\r", "") == expected


@given(st.text(st.characters() | st.sampled_from('\u202e\u2066\x1b\r\n\x9b\u2028\U000e0041⟨\\"')))
def test_what_is_printed_has_no_control_and_no_direction_mark(text: str) -> None:
    shown = escape_control_characters(text)
    hidden = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\U000e0000-\U000e007f]"
    assert re.search(hidden, shown) is None
    assert "\r" not in shown.replace("\r\n", "")


@given(
    st.text(
        st.characters(exclude_categories=["Cs"]) | st.sampled_from('\u202e\x1b\r\x9b\U000e0041\\"')
    )
)
def test_printed_json_is_the_same_value_and_needs_no_marks(text: str) -> None:
    printed = dump_printed_json({"text": [text]}, indent=1)
    assert json.loads(printed) == {"text": [text]}
    assert escape_control_characters(printed) == printed
