"""The user's own terminal, started for real: a script that says where it runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from helix_desktop.errors import NotFound
from helix_desktop.gui.user_terminal import find_terminal_command, open_user_terminal


def write_script(path: Path, words: str) -> Path:
    path.write_text(f"#!/bin/sh\n{words}\n")
    path.chmod(0o755)
    return path


async def test_the_users_terminal_starts_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    # A pipe that the script opens: reading it waits for the script.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    terminal = write_script(tmp_path / "my-terminal", f"pwd > '{pipe}'")
    monkeypatch.setenv("TERMINAL", str(terminal))
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        await open_user_terminal(folder)
        os.set_blocking(reading, True)
        until = time.monotonic() + 20
        said = b""
        while not said and time.monotonic() < until:
            said = os.read(reading, 4_096)
        assert said.decode().strip() == str(folder)
    finally:
        os.close(reading)


def test_the_terminal_that_the_user_named_comes_before_others(tmp_path: Path) -> None:
    for name in ("mine", "xterm", "konsole"):
        write_script(tmp_path / name, "true")
    environment = {"PATH": str(tmp_path), "TERMINAL": "mine"}
    assert find_terminal_command(tmp_path, environment)[-1] == str(tmp_path / "mine")
    environment = {"PATH": str(tmp_path), "TERMINAL": "gone"}
    assert find_terminal_command(tmp_path, environment)[-1] == str(tmp_path / "konsole")


def test_without_a_terminal_it_is_said_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="TERMINAL"):
        find_terminal_command(tmp_path, {"PATH": str(tmp_path)})
