"""Icons in the colours of the scheme: `resources/icons/<name>.svg`, drawn in `currentColor`."""

from functools import lru_cache

from PySide6.QtCore import QByteArray, QSize, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from helix_desktop import resources

_SIZES = (16, 24, 32, 48)


def build_icon(name: str, colour: QColor) -> QIcon:
    return _render_icon(name, colour.name())


@lru_cache(maxsize=256)
def _render_icon(name: str, colour: str) -> QIcon:
    file = resources.resources_folder() / "icons" / f"{name}.svg"
    source = file.read_text("utf-8").replace("currentColor", colour)
    renderer = QSvgRenderer(QByteArray(source.encode()))
    icon = QIcon()
    for size in _SIZES:
        pixmap = QPixmap(QSize(size, size))
        pixmap.fill(Qt.GlobalColor.transparent)
        painter = QPainter(pixmap)
        renderer.render(painter)
        painter.end()
        icon.addPixmap(pixmap)
    return icon
