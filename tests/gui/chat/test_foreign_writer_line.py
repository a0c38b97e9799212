"""A conversation a connected agent writes in: no composer, and a way to go on here."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtWidgets import QLabel

from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeWorkbench


def test_a_connected_agents_conversation_has_a_line_in_place_of_the_composer(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    first = window.current_session
    assert first is not None
    assert not window.chat.composer.isHidden()
    bench.rows[first.id] = replace(bench.rows[first.id], agent="Claude Code")
    window.sides.show_session_or_new(first)
    assert window.chat.composer.isHidden()
    assert not window.chat.foreign.isHidden()
    said = " ".join(label.text() for label in window.chat.foreign.findChildren(QLabel))
    assert "This is a conversation of Claude Code." in said
    window.chat.foreign.button.click()
    assert window.current_session is not None
    assert window.current_session.id != first.id
    assert not window.chat.composer.isHidden()
    assert window.chat.foreign.isHidden()
