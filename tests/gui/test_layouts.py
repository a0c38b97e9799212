from __future__ import annotations

import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from helix_desktop.gui.layouts import clear_layout
from helix_desktop.gui.theme import Theme


def test_what_stood_in_a_layout_is_gone_and_so_is_what_stood_in_those_inside(theme: Theme) -> None:
    parent = QWidget()
    column, row = QVBoxLayout(parent), QHBoxLayout()
    labels = [QLabel("outside", parent), QLabel("inside", parent)]
    column.addWidget(labels[0])
    row.addWidget(labels[1])
    row.addStretch(1)
    column.addLayout(row)
    parent.show()
    clear_layout(column)
    assert column.count() == 0
    assert [label.isVisible() for label in labels] == [False, False]
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert [shiboken6.isValid(label) for label in labels] == [False, False]
