from __future__ import annotations

from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QComboBox, QLabel

from helix_desktop.gui.common.setting_fields import FieldDeclaration, build_field_row
from helix_desktop.gui.main_window import MainWindow


def test_a_choice_with_long_words_stands_below_its_own(window: MainWindow) -> None:
    """Beside them, the longest was cut in German, and they had a column of three words."""
    words = ("Kurz", "Den Agenten vorher angeben lassen, was er braucht")
    declared = FieldDeclaration(
        "n", "Titel", "Was geschieht, wenn eine große Ausgabe eintrifft.", "b", choices=("a", "b"), words=words
    )
    whole = build_field_row(declared, lambda _: None, window)
    whole.resize(460, 100)
    whole.show()
    choice = whole.findChild(QComboBox)
    assert choice is not None
    assert choice.width() >= choice.sizeHint().width()
    bottoms = [label.mapTo(whole, QPoint(0, label.height())).y() for label in whole.findChildren(QLabel)]
    assert choice.y() >= max(bottoms)
