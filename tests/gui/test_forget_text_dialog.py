"""A text is forgotten from the window: what it means said first, the text hidden, the
result in a sentence.
"""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QPushButton

from helix_desktop.gui.forget_text_dialog import ForgetTextDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.storage_page import StoragePage
from tests.gui.fake_desk import FakeWorkbench, Held, now
from tests.gui.fake_setup import FakeInstallation


def opened(window: MainWindow) -> ForgetTextDialog:
    window.window_actions["forget-text"].trigger()
    (dialog,) = window.findChildren(ForgetTextDialog)
    return dialog


def words(dialog: ForgetTextDialog) -> str:
    QApplication.processEvents()
    return "\n".join(label.text() for label in dialog.findChildren(QLabel) if not label.isHidden())


def press(button: QPushButton) -> None:
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def test_what_it_means_is_said_and_the_text_is_hidden(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    dialog = opened(window)
    for place in ("history", "cache", "index", "backups", "cannot be undone", "storage-engine"):
        assert place in words(dialog)
    assert dialog.text.echoMode() is QLineEdit.EchoMode.Password
    assert not dialog.forget_button.isEnabled()
    dialog.text.setText("sk-live-77")
    dialog.show_text_checkbox.setChecked(True)
    assert dialog.text.echoMode() is QLineEdit.EchoMode.Normal
    QTest.keyClick(dialog.text, Qt.Key.Key_Return)
    assert bench.forgotten == []  # Return does not press what cannot be undone
    press(dialog.close_button)
    assert bench.forgotten == []


def test_the_result_is_told_and_the_window_remembers_nothing(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    window.chat.composer.text.setPlainText("my key is sk-live-77, is it?")
    window.state_file.remember_value("history", bench.id, value=["sk-live-77"])
    dialog = opened(window)
    dialog.text.setText(" sk-live-77\n")
    press(dialog.forget_button)
    assert bench.forgotten == ["sk-live-77"]
    assert "Removed: 2 stored outputs. Changed: 3 records. Cleaned up: 1 backup." in words(dialog)
    assert "line 2: edit that." in words(dialog)
    assert dialog.text.text() == ""
    assert window.chat.composer.text.toPlainText() == "my key is , is it?"
    assert window.state_file.get_remembered("history", bench.id, default=list[str]()) == []


def test_how_far_it_is_can_be_seen_and_closing_does_not_end_it(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    held = window.background_runner._spawn = Held()
    dialog = opened(window)
    dialog.text.setText("sk-live-77")
    press(dialog.forget_button)
    assert dialog.bar.isVisible()
    dialog._show_forget_progress(1, 4)
    assert (dialog.bar.value(), dialog.bar.maximum()) == (250, 1000)
    assert dialog.stop_button.isVisible()
    dialog._show_forget_progress(4, 4)
    assert dialog.bar.maximum() == 0
    assert not dialog.stop_button.isVisible()
    assert "cannot be stopped" in words(dialog)
    press(dialog.close_button)
    window.background_runner._spawn = now
    held.let()
    assert bench.forgotten == ["sk-live-77"]
    assert "Removed: 2 stored outputs." in window.notices.shown_text


def test_it_can_be_stopped_until_something_is_removed(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    held = window.background_runner._spawn = Held()
    dialog = opened(window)
    assert not dialog.stop_button.isVisible()
    dialog.text.setText("sk-live-77")
    press(dialog.forget_button)
    dialog._show_forget_progress(1, 4)
    press(dialog.stop_button)
    window.background_runner._spawn = now
    assert held.stopped == 1
    assert "Stopped. Nothing was removed." in words(dialog)
    assert dialog.text.text() == "sk-live-77"
    assert dialog.forget_button.isEnabled()
    assert not dialog.stop_button.isVisible()
    held.let()


def test_its_end_takes_the_keyboard_from_nobody_who_looks_for_something_meanwhile(
    window: MainWindow,
) -> None:
    held = window.background_runner._spawn = Held()
    dialog = opened(window)
    dialog.text.setText("sk-live-77")
    press(dialog.forget_button)
    press(dialog.close_button)
    window.window_actions["palette"].trigger()
    looked = window.focusWidget()
    window.background_runner._spawn = now
    held.let("forget")
    assert window.focusWidget() is looked is not None
    assert looked is not window.chat.composer.text


def test_a_text_that_is_nowhere_is_said(window: MainWindow) -> None:
    dialog = opened(window)
    dialog.text.setText("nowhere")
    press(dialog.forget_button)
    assert "Not found" in words(dialog)


def test_a_refusal_keeps_the_text_to_try_again(window: MainWindow, bench: FakeWorkbench) -> None:
    bench.busy = True
    dialog = opened(window)
    dialog.text.setText("sk-live-77")
    press(dialog.forget_button)
    assert "The agent works in this workspace." in words(dialog)
    assert dialog.text.text() == "sk-live-77"
    assert dialog.forget_button.isEnabled()


def test_the_storage_settings_offer_it(window: MainWindow, bench: FakeWorkbench) -> None:
    page = StoragePage(bench, FakeInstallation(), window.background_runner)
    wanted: list[str] = []
    page.wanted.connect(wanted.append)
    next(
        each for each in page.findChildren(QPushButton) if each.text() == "Forget text everywhere…"
    ).click()
    assert wanted == ["forget-text"]
