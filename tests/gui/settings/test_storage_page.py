"""What is kept on this machine, and how room is made."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.storage_page import StoragePage
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.fake_setup import FakeInstallation
from tests.gui.settings.page_widgets import button, said


def test_storage_says_what_is_kept_and_looks_after_it(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = StoragePage(bench, program, window.background_runner)
    assert "1,284 stored outputs" in said(page)
    assert "Last backup: 20 Nov 2026" in said(page)
    for pressed, answer in (
        ("Verify everything that is stored", "All of it is whole."),
        ("Back up now", "Backed up."),
    ):
        QTest.mouseClick(button(page, pressed), Qt.MouseButton.LeftButton)
        assert page._status_label.text() == answer
        assert button(page, pressed).isEnabled()


def test_room_is_made_after_it_was_said_what_would_go(
    window: MainWindow, bench: FakeWorkbench, program: FakeInstallation
) -> None:
    page = StoragePage(bench, program, window.background_runner)
    QTest.mouseClick(button(page, "Free up space…"), Qt.MouseButton.LeftButton)
    box = page.findChildren(QMessageBox)[0]
    for words in (
        "12.0 MB over the limit.",
        "2 stored outputs that no conversation uses",
        "read_file a.rs",
        "still be 3.0 MB over",
    ):
        assert words in box.text()
    assert page._status_label.text() == ""
    next(each for each in box.buttons() if each.text() == "Remove").click()
    assert page._status_label.text() == "The disk refused. Try again."
