from __future__ import annotations

import pytest
import shiboken6
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QLineEdit, QMessageBox, QPushButton

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.sharing.share_workspace_dialog import ShareWorkspaceDialog
from helix_desktop.workbench.conversation_sharing import SharingStatus
from tests.gui.fake_desk import FakeWorkbench
from tests.turns import qt_works

ADDRESS = "postgresql://me@host/helix"


@pytest.fixture
def dialog(window: MainWindow, bench: FakeWorkbench) -> ShareWorkspaceDialog:
    made = ShareWorkspaceDialog(bench, window.background_runner, window)
    made.open()
    made.with_database.click()
    return made


def shown(dialog: ShareWorkspaceDialog) -> str:
    return "\n".join(
        label.text() for label in dialog.findChildren(QLabel) if label.isVisibleTo(dialog)
    )


def test_it_says_what_is_sent_and_does_nothing_without_an_address(
    dialog: ShareWorkspaceDialog,
) -> None:
    assert "12 conversations and 345 stored outputs (6.7 MB)" in shown(dialog)
    assert not dialog.test.isEnabled()
    assert not dialog.share.isEnabled()


def test_a_file_for_a_colleague_comes_before_a_database(dialog: ShareWorkspaceDialog) -> None:
    """An address of a PostgreSQL database was the only way to give something to somebody."""
    words = shown(dialog)
    assert words.index("For a colleague: give them a file") < words.index("PostgreSQL")
    assert "docker run" in "".join(line.text() for line in dialog.findChildren(QLineEdit))
    wanted: list[str] = []
    dialog.export_wanted.connect(wanted.append)
    (button,) = [
        button
        for button in dialog.findChildren(QPushButton)
        if button.text() == "Export workspace…"
    ]
    button.click()
    assert wanted == ["export-workspace"]
    assert not dialog.isVisible()


def test_only_a_file_is_offered_until_a_database_is_asked_for(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    dialog = ShareWorkspaceDialog(bench, window.background_runner, window)
    dialog.open()
    assert "PostgreSQL" not in shown(dialog)
    assert not dialog.share.isVisibleTo(dialog)
    dialog.with_database.click()
    assert "PostgreSQL" in shown(dialog)
    assert dialog.share.isVisibleTo(dialog)
    (copy,) = [
        button
        for button in dialog.findChildren(QPushButton)
        if button.text() == "Copy a text for your administrator"
    ]
    copy.click()
    assert "PostgreSQL database (version 13 or newer)" in QGuiApplication.clipboard().text()
    assert "The text was copied" in shown(dialog)


def test_it_says_before_sharing_that_keys_go_along(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    dialog = ShareWorkspaceDialog(bench, window.background_runner, window)
    dialog.open()
    assert "includes any passwords and other secrets in the conversations" in shown(dialog)
    dialog.with_database.click()
    assert shown(dialog).count("includes any passwords and other secrets in the conversations") == 1


def test_what_looks_like_a_secret_is_shown_before_anything_is_saved(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    """The dialog said that secrets go along, and not whether there are any."""
    rows = bench.list_conversations()
    secret = "sk-proj-" + "a1b2" * 8
    bench.sharing_setup.secrets = {rows[1].id: [secret], rows[2].id: [secret]}
    window.window_actions["share-workspace"].trigger()
    (dialog,) = window.findChildren(ShareWorkspaceDialog)
    qt_works(5)
    words = shown(dialog)
    assert "This workspace contains what looks like secrets: sk-proj…b2." in words
    assert f"{len(rows)} conversations were searched." in words
    assert secret not in words
    window.chat.composer.text.setPlainText(f"use {secret}")
    dialog.forget_secrets.click()
    (box,) = dialog.findChildren(QMessageBox)
    next(each for each in box.buttons() if each.text() == "Forget them").click()
    qt_works(5)
    assert bench.forgotten == [secret]
    assert "1 secret was removed." in shown(dialog)
    assert "Nothing that looks like a secret was found." in shown(dialog)
    assert not dialog.forget_secrets.isVisibleTo(dialog)
    dialog.reject()


def test_a_secret_is_forgotten_in_drafts_too_when_the_dialog_is_closed_meanwhile(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgetting takes seconds in a large workspace."""
    row = bench.list_conversations()[1]
    secrets = ["sk-proj-" + "a1b2" * 8, "ghp_" + "c3d4" * 9]
    bench.sharing_setup.secrets = {row.id: secrets}
    window.window_actions["share-workspace"].trigger()
    (dialog,) = window.findChildren(ShareWorkspaceDialog)
    qt_works(5)

    async def forget_and_close(*, text: str) -> None:
        bench.forgotten.append(text)
        if shiboken6.isValid(dialog):
            shiboken6.delete(dialog)

    monkeypatch.setattr(bench, "forget_content", forget_and_close)
    state_file = window.parts.state_file
    state_file.remember_value("history", bench.id, value=[f"use {secret}" for secret in secrets])
    dialog._forget_secrets(secrets)
    qt_works(5)
    assert sorted(bench.forgotten) == sorted(secrets)
    kept = " ".join(state_file.get_remembered("history", bench.id, default=list[str]()))
    assert not any(secret in kept for secret in secrets)


def test_that_nothing_was_found_is_said_with_what_was_searched(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    dialog = ShareWorkspaceDialog(bench, window.background_runner, window)
    dialog.open()
    qt_works(5)
    count = len(bench.list_conversations())
    assert "Nothing that looks like a secret was found." in shown(dialog)
    assert f"{count} conversations were searched." in shown(dialog)
    dialog.reject()


def test_a_password_in_the_address_is_hidden_at_once(
    dialog: ShareWorkspaceDialog, bench: FakeWorkbench
) -> None:
    dialog.address.setText("postgresql://me:p%40ss@host/helix")
    assert dialog.address.text() == ADDRESS
    assert dialog.password.text() == "p@ss"
    assert dialog.password.echoMode() is QLineEdit.EchoMode.Password
    dialog.test.click()
    assert "Connected to PostgreSQL 15.6 at postgresql://me:p%40ss@host/helix." in shown(dialog)


def test_a_store_is_tested_before_anything_is_sent(
    dialog: ShareWorkspaceDialog, bench: FakeWorkbench
) -> None:
    dialog.address.setText(ADDRESS)
    dialog.test.setFocus()
    dialog.test.click()
    assert dialog.focusWidget() is dialog.test  # and not Close, which comes after it
    assert f"Connected to PostgreSQL 15.6 at {ADDRESS}." in shown(dialog)
    assert bench.sharing.sharing_state.state == "off"
    bench.sharing.refusing = "The shared store rejected the user name or the password."
    dialog.share.click()
    assert "rejected the user name or the password" in shown(dialog)
    assert dialog.share.isEnabled()


def test_once_it_is_shared_the_key_can_be_copied_for_another_computer(
    dialog: ShareWorkspaceDialog,
) -> None:
    dialog.address.setText(ADDRESS)
    dialog.share.click()
    assert "Everything is in sync" in shown(dialog)
    assert not dialog.address.isVisibleTo(dialog)
    assert dialog.line.text() == ADDRESS
    dialog.copy_address.click()
    assert QGuiApplication.clipboard().text() == ADDRESS
    dialog.copy_key.click()
    assert QGuiApplication.clipboard().text() == "helix1-key"


def test_it_follows_how_things_stand(dialog: ShareWorkspaceDialog, bench: FakeWorkbench) -> None:
    bench.sharing.stand(
        SharingStatus("away", 212, 1_000_000.0, "The shared store is not responding.")
    )
    assert "212 changes have not been sent yet" in shown(dialog)
    assert "The shared store is not responding." in shown(dialog)
    bench.sharing.stand(
        SharingStatus("away", 0, 1_000_000.0, "The shared store is not responding.")
    )
    assert "not been sent" not in shown(dialog)
    dialog.reject()
    assert len(bench.sharing.listeners) == 1  # the window's own


def test_no_line_is_cut_when_the_amount_is_known_later(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    window.show()
    with monkeypatch.context() as patch:
        patch.setattr(ShareWorkspaceDialog, "_show_upload_amount", lambda *_: None)
        dialog = ShareWorkspaceDialog(bench, window.background_runner, window)
        dialog.open()
        dialog.with_database.click()
        QGuiApplication.processEvents()
    dialog._show_upload_amount((12, 345, 6_700_000))
    qt_works(20)
    labels = [label for label in dialog.findChildren(QLabel) if label.isVisible()]
    assert len(labels) == 9
    assert all(label.height() >= label.heightForWidth(label.width()) for label in labels)
