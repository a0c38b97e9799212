"""No dialog is larger than the screen or smaller than what must be read in it, whatever
the text size.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QRect, QSize, Qt
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QLabel,
    QLineEdit,
    QMessageBox,
    QPushButton,
    QScrollArea,
    QWidget,
)

import helix_desktop.gui
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.question_dialogs import ask_text, ask_to_confirm, show_text_box
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.screen_fitting import keep_on_screen
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from helix_desktop.gui.theme import Theme
from tests.gui.fake_setup import FakeInstallation, FakeSetup
from tests.turns import qt_works

SENTENCE = "The text is removed from every conversation, the cache, the index, the backups and your drafts. "


def room(dialog: QDialog) -> QSize:
    return dialog.screen().availableGeometry().size()


def is_on_screen(dialog: QDialog) -> bool:
    qt_works(30)
    return dialog.screen().availableGeometry().contains(dialog.geometry())


@pytest.mark.parametrize("zoom", [1.0, 2.0, 3.0])
def test_a_dialog_with_more_than_the_screen_has_room_for_scrolls(theme: Theme, zoom: float) -> None:
    theme.set_zoom(zoom)
    dialog = TransientDialog("Many", None, 500)
    last = QLineEdit(dialog)
    build_column(*(QPushButton(f"Number {at}", dialog) for at in range(60)), last, owner=dialog)
    last.setFocus()
    dialog.show()
    assert is_on_screen(dialog)
    area = dialog.findChild(QScrollArea)
    assert area is not None
    assert area.verticalScrollBar().maximum()
    assert dialog.focusWidget() is last


def test_a_dialog_grows_with_the_text_but_not_beyond_the_screen(theme: Theme) -> None:
    dialog = TransientDialog("Some", None, 300)
    build_column(*(QPushButton(f"Number {at}", dialog) for at in range(14)), owner=dialog)
    dialog.show()
    qt_works(30)
    before = dialog.height()
    assert dialog.findChild(QScrollArea) is None
    theme.set_zoom(1.5)
    qt_works(30)
    assert dialog.height() > before
    theme.set_zoom(3.0)
    assert is_on_screen(dialog)


def test_wrapped_sentences_get_all_the_height_they_need(theme: Theme) -> None:
    theme.set_zoom(2.0)
    dialog = TransientDialog("Words", None, 300)
    labels = [build_plain_label(SENTENCE, parent=dialog) for _ in range(2)]
    build_column(*labels, build_row(1, QPushButton("Close", dialog)), owner=dialog)
    dialog.show()
    qt_works(30)
    for label in labels:
        assert label.height() >= label.heightForWidth(label.width())


@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_a_question_with_a_long_text_scrolls_it_and_keeps_its_buttons(
    theme: Theme, zoom: float
) -> None:
    theme.set_zoom(zoom)
    parent = QWidget()
    long = "\n".join([SENTENCE] * 60)
    for box in (
        ask_to_confirm(parent, "Change?", long, "Change the file", lambda: None),
        show_text_box(parent, "Read", long, "a command"),
        ask_text(parent, "Name", SENTENCE, "x", lambda _: None),
    ):
        assert is_on_screen(box), box.geometry()
        for button in box.findChildren(QPushButton):
            if button.isVisible():
                assert box.rect().contains(
                    button.rect().translated(button.mapTo(box, button.rect().topLeft()))
                )
        if isinstance(box, QMessageBox):
            assert [each.text() for each in box.findChildren(QLabel) if each.text() == long]
        box.reject()


def test_a_short_question_stays_as_it_is(theme: Theme) -> None:
    parent = QWidget()
    box = ask_to_confirm(parent, "Remove?", "This cannot be undone.", "Remove", lambda: None)
    qt_works(30)
    assert box.findChild(QScrollArea) is None
    box.reject()


@pytest.mark.parametrize("zoom", [1.0, 2.0, 3.0])
def test_every_page_of_the_settings_fits_and_every_name_of_one_can_be_reached(
    window: MainWindow, zoom: float
) -> None:
    window.theme.set_zoom(zoom)
    dialog = SettingsDialog(window, FakeSetup(), FakeInstallation())
    dialog.open()
    for name in dialog._page_factories:
        dialog.show_settings_page(name)
        assert is_on_screen(dialog), (name, dialog.geometry(), room(dialog))
        button = dialog._buttons[name]
        assert not button.visibleRegion().isEmpty(), f"{name} is out of sight in the list"
        assert dialog._names.horizontalScrollBar().maximum() == 0, "the names are cut off"


@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_what_the_windows_actions_open_fits(window: MainWindow, zoom: float) -> None:
    window.theme.set_zoom(zoom)
    opened = set()
    for name in (
        "help",
        "share-workspace",
        "join-workspace",
        "forget-text",
        "workspace-trash",
        "new-copy",
        "agents",
        "rename",
    ):
        window.window_actions[name].trigger()
        qt_works(30)
        for dialog in (
            each
            for each in QApplication.topLevelWidgets()
            if isinstance(each, QDialog) and each.isVisible()
        ):
            assert is_on_screen(dialog), (name, dialog.geometry())
            opened.add(name)
            dialog.reject()
    assert len(opened) > 5, opened


def test_every_dialog_of_the_window_is_kept_on_the_screen() -> None:
    """There is one base class, and one module that makes Qt's own boxes: both call
    `keep_on_screen`.
    """
    folder = Path(helix_desktop.gui.__file__).parent
    found = []
    for file in folder.rglob("*.py"):
        source = file.read_text("utf-8")
        if not any(dialog in source for dialog in ("QMessageBox", "QInputDialog", "QDialog")):
            continue
        for node in ast.walk(ast.parse(source)):
            made = (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("QMessageBox", "QInputDialog", "QDialog")
            )
            based = isinstance(node, ast.ClassDef) and any(
                "QDialog" in (getattr(base, "id", ""), getattr(base, "attr", ""))
                for base in node.bases
            )
            if made or based:
                found.append(f"{file.relative_to(folder)}")
    assert sorted(set(found)) == ["common/widgets.py", "question_dialogs.py"]


class FramedDialog(QDialog):
    """Has the frame that openbox draws."""

    def frameGeometry(self) -> QRect:
        return self.geometry().adjusted(-1, -20, 1, 5)


def test_a_dialog_whose_frame_was_just_put_around_it_is_not_moved_into_the_corner(
    application: QApplication,
) -> None:
    """The first undo after each start was asked for in the corner of the screen."""
    dialog = FramedDialog()
    keep_on_screen(dialog, 400)
    dialog.show()
    qt_works(30)
    moved = Qt.WidgetAttribute.WA_Moved
    dialog.setGeometry(0, 0, 400, 100)  # Within the frame.
    dialog.setAttribute(moved, on=False)
    dialog.resize(4000, 100)
    QApplication.sendEvent(dialog, QEvent(QEvent.Type.LayoutRequest))
    assert not dialog.testAttribute(moved)
    assert dialog.width() == 4000

    dialog.move(50, 50)
    assert is_on_screen(dialog)
