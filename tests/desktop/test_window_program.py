"""window_program.py: what was typed before the program is told to end belongs to the draft."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit

from helix_desktop import cli, window_start
from helix_desktop.desktop.open_windows import claim_further_window
from helix_desktop.desktop.window_program import InterruptHandler
from helix_desktop.gui.theme import Theme
from helix_desktop.program_folders import find_program_folders


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_keys_that_are_still_waiting_are_typed_before_the_window_closes(theme: Theme) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    box = QLineEdit()
    closed = list[str]()
    handler = InterruptHandler(lambda: closed.append(box.text()))
    try:
        for letter in "word":
            press = QKeyEvent(
                QEvent.Type.KeyPress, Qt.Key.Key_W, Qt.KeyboardModifier.NoModifier, letter
            )
            QCoreApplication.postEvent(box, press)
        handler._write.send(bytes([signal.SIGTERM]))
        handler._close_if_asked_to_end()
        assert closed == ["word"]
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
        handler._notifier.setEnabled(False)
        handler._read.close()
        handler._write.close()
        handler.deleteLater()


def test_each_further_window_has_the_lowest_free_number(tmp_path: Path) -> None:
    where = find_program_folders(tmp_path)
    second = claim_further_window(where)
    third = claim_further_window(where)
    assert (second.number, third.number) == (2, 3)
    second.claim.close()
    fourth = claim_further_window(where)
    assert fourth.number == 2
    third.claim.close()
    fourth.claim.close()


def test_a_new_window_is_asked_for_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    def start(home: Path | None, arguments: Sequence[str]) -> int:
        started.append((home, list(arguments)))
        return 0

    monkeypatch.setattr(window_start, "main", start)
    link = "helix://workspace/one"
    assert cli.main(["--home", str(tmp_path), "--new-window", link]) == 0
    assert cli.main(["--new-window"]) == 0
    assert started == [(tmp_path, ["--new-window", link]), (None, ["--new-window"])]
    arguments = window_start._parse_window_arguments(["--new-window", link])
    assert (arguments.new_window, arguments.link) == (True, link)
