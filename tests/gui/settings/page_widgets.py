"""What the trials of the settings' pages share: finding what stands on a page, and choosing."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox, QLabel, QPushButton, QWidget


def button(page: QWidget, text: str) -> QPushButton:
    return next(
        each
        for each in page.findChildren(QPushButton)
        if each.text() == text and not each.isHidden()
    )


def said(page: QWidget) -> str:
    return "\n".join(label.accessibleName() or label.text() for label in page.findChildren(QLabel))


def child(page: QWidget, kind: type[QWidget], name: str) -> QWidget:
    found = page.findChild(kind, name)
    assert isinstance(found, kind)
    return found


def choose(box: QComboBox, data: str) -> None:
    box.setCurrentIndex(box.findData(data))
    box.activated.emit(box.currentIndex())
