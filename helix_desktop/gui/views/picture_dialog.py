"""A picture at its full size, in a window of its own."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage, QPixmap
from PySide6.QtWidgets import QLabel, QScrollArea, QWidget

from helix_desktop.gui.layouts import build_column
from helix_desktop.gui.shared.plain_widgets import TransientDialog
from helix_desktop.gui.translation import tr


class PictureDialog(TransientDialog):
    """As large as the picture, or as the screen allows; the rest is scrolled to. Escape closes it."""

    def __init__(self, image: QImage, name: str, parent: QWidget) -> None:
        super().__init__(name, parent)
        self.picture = QLabel(self)
        self.picture.setPixmap(QPixmap.fromImage(image))
        self.picture.setAccessibleName(tr("Image, {w} × {h}", w=image.width(), h=image.height()))
        self.picture.setAlignment(Qt.AlignmentFlag.AlignCenter)
        area = QScrollArea(self)
        area.setWidget(self.picture)
        area.setWidgetResizable(True)
        build_column(area, owner=self, margins=0)
        screen = (parent.screen() or QGuiApplication.primaryScreen()).availableGeometry()
        self.resize(
            min(image.width() + 24, screen.width() * 9 // 10), min(image.height() + 24, screen.height() * 9 // 10)
        )
