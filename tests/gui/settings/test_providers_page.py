"""Providers: adding one, and what is said of its key and address."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QMessageBox

from helix_desktop.errors import NoUsableKeyring
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.providers_page import EditProviderDialog, ProvidersPage
from tests.gui.fake_setup import ANTHROPIC, FakeSetup
from tests.gui.settings.page_widgets import button, said


def test_a_changed_key_that_no_keyring_takes_is_not_lost(window: MainWindow) -> None:
    setup = FakeSetup(keyring=False)
    setup.added = [(ANTHROPIC, "old", "session")]
    page = ProvidersPage(setup, window.background_runner)
    QTest.mouseClick(button(page, "Edit…"), Qt.MouseButton.LeftButton)
    dialog = page.findChildren(EditProviderDialog)[0]
    QTest.keyClicks(dialog.key, "good")
    QTest.keyClick(dialog.key, Qt.Key.Key_Return)
    assert dialog.isVisible()
    assert "There is no keyring here." in said(dialog)
    QTest.mouseClick(button(dialog, "Use the key for this session only"), Qt.MouseButton.LeftButton)
    assert setup.added[-1] == (replace(ANTHROPIC, key="session"), "good", "session")
    assert not dialog.isVisible()


def test_a_message_takes_no_room_from_the_fields_above_it(window: MainWindow) -> None:
    dialog = EditProviderDialog(ANTHROPIC, window)
    dialog.setStyleSheet("QLineEdit, QPushButton { padding: 12px; }")
    dialog.open()
    dialog.show_provider_error(NoUsableKeyring("This system has no keyring. " * 4))
    QApplication.processEvents()
    assert dialog.key.height() >= dialog.key.sizeHint().height()
    dialog.reject()


def test_a_key_is_never_shown(window: MainWindow) -> None:
    page = ProvidersPage(FakeSetup(), window.background_runner)
    assert page._panel._key.echoMode() is QLineEdit.EchoMode.Password


def test_removing_a_provider_is_asked_first(window: MainWindow) -> None:
    setup = FakeSetup()
    setup.added = [(ANTHROPIC, "good", "keyring")]
    page = ProvidersPage(setup, window.background_runner)
    QTest.mouseClick(button(page, "Remove"), Qt.MouseButton.LeftButton)
    box = page.findChildren(QMessageBox)[0]
    assert len(setup.added) == 1
    next(each for each in box.buttons() if each.text() == "Remove").click()
    assert setup.added == []
