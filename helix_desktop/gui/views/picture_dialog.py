"""A picture at its full size, in a window of its own."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage, QPixmap
from PySide6.QtWidgets import QDialog, QLabel, QScrollArea, QVBoxLayout, QWidget

from helix_desktop.gui.translation import tr


class PictureDialog(QDialog):
    """As large as the picture, or as the screen allows; the rest is scrolled to. Escape closes it."""

    def __init__(self, image: QImage, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(name)
        self.picture = QLabel(self)
        self.picture.setPixmap(QPixmap.fromImage(image))
        self.picture.setAccessibleName(tr("Image, {w} × {h}", w=image.width(), h=image.height()))
        self.picture.setAlignment(Qt.AlignmentFlag.AlignCenter)
        area = QScrollArea(self)
        area.setWidget(self.picture)
        area.setWidgetResizable(True)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(area)
        screen = (parent.screen() or QGuiApplication.primaryScreen()).availableGeometry()
        self.resize(
            min(image.width() + 24, screen.width() * 9 // 10), min(image.height() + 24, screen.height() * 9 // 10)
        )
