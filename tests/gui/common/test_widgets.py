from __future__ import annotations

import gc
import weakref

from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QDialog,
    QLabel,
    QLineEdit,
    QToolButton,
    QWidget,
)

from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.setting_fields import FieldDeclaration, build_field_row
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.rows_and_columns import build_column


def test_a_name_is_no_markup(application: QApplication) -> None:
    label = build_plain_label("<b>build</b>", "title")
    assert (label.textFormat(), label.text()) == (Qt.TextFormat.PlainText, "<b>build</b>")
    assert (label.wordWrap(), label.property("look")) == (True, "title")


class Counting(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def count(self) -> None:
        self.calls += 1


def test_what_runs_later_runs_once_and_keeps_no_window_that_is_gone(
    application: QApplication,
) -> None:
    widget = Counting()
    widgets.run_after_events(widget, widget.count)
    assert widget.calls == 0
    application.processEvents()
    application.processEvents()
    assert widget.calls == 1

    widgets.run_after_events(widget, widget.count)
    gone = weakref.ref(widget)
    widget.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    del widget
    gc.collect()
    application.processEvents()
    assert gone() is None


def test_return_in_a_field_presses_no_button(application: QApplication) -> None:
    pressed: list[str] = []
    dialog = QDialog()
    field = QLineEdit(dialog)
    button = build_push_button("Delete", dialog, lambda: pressed.append("Delete"), "danger")
    dialog.show()
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert pressed == []
    button.click()
    assert (pressed, button.property("look")) == (["Delete"], "danger")
    dialog.close()


def test_enter_presses_the_button_with_the_keyboard_and_not_the_default_one(
    application: QApplication,
) -> None:
    """On Cancel it did what Cancel was to prevent."""
    pressed: list[str] = []
    dialog = widgets.TransientDialog("Delete?", None)
    dialog.rejected.connect(lambda: pressed.append("Cancel"))
    buttons = widgets.build_confirm_buttons(dialog, "Delete", lambda: pressed.append("Delete"))
    more = build_push_button("More", dialog, lambda: pressed.append("More"))
    sign = QToolButton(dialog)
    sign.clicked.connect(lambda: pressed.append("Sign"))
    line = QLineEdit(dialog)
    build_column(line, more, sign, buttons, owner=dialog)
    dialog.show()
    assert QTest.qWaitForWindowActive(dialog)
    cancel = next(each for each in buttons.buttons() if each.text() == "Cancel")
    for stop in (more, sign, line, cancel):
        stop.setFocus()
        QTest.keyClick(stop, Qt.Key.Key_Return)
    assert pressed == ["More", "Sign", "Delete", "Cancel"]


def names_told(widget: QWidget) -> list[str]:
    """By the labels of a widget, which is all that a screen reader on Linux learns of
    the name of a choice.
    """
    interface = QAccessible.queryAccessibleInterface(widget)
    assert interface is not None
    labels = [
        thing for thing, kind in interface.relations() if kind & QAccessible.RelationFlag.Label
    ]
    return [label.text(QAccessible.Text.Name) for label in labels]


def test_a_choice_is_called_by_its_name_and_not_by_its_value_alone(
    application: QApplication,
) -> None:
    dialog = QDialog()
    box = widgets.build_combo_box("Salt & pepper", dialog)
    build_column(box, owner=dialog)
    box.addItem("A little")
    dialog.show()
    assert names_told(box) == ["Salt & pepper"]
    assert [label.isVisible() for label in dialog.findChildren(QLabel)] == [False]
    dialog.close()


def test_a_choice_among_the_settings_is_called_by_its_title(application: QApplication) -> None:
    page = QWidget()
    for title in ("Fold by", ""):
        declared = FieldDeclaration("by", title, "What a fold makes.", "a", choices=("a", "b"))
        row = build_field_row(declared, lambda _value: None, page)
        assert names_told(row.findChildren(QComboBox)[0]) == [title or "What a fold makes."]
    page.deleteLater()


def test_a_menu_below_a_button_at_the_right_stays_within_the_window(
    application: QApplication,
) -> None:
    window = QWidget()
    window.setGeometry(40, 40, 500, 200)
    button = build_push_button("Undo", window)
    button.move(400, 10)
    window.show()
    menu = widgets.build_popup_menu(button)
    menu.addAction("Undo everything since “A message with many words”…")
    widgets.open_menu_below(menu, button)
    right_edge = window.mapToGlobal(window.rect().topRight()).x()
    assert menu.geometry().right() <= right_edge
    assert menu.geometry().left() < button.mapToGlobal(button.rect().topLeft()).x()
    menu.close()
    window.deleteLater()
