from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QLineEdit

from helix_desktop.gui.shared.plain_widgets import build_plain_label, build_push_button


def test_a_name_is_no_markup(application: QApplication) -> None:
    label = build_plain_label("<b>build</b>", "title")
    assert (label.textFormat(), label.text()) == (Qt.TextFormat.PlainText, "<b>build</b>")
    assert (label.wordWrap(), label.property("look")) == (True, "title")


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
