"""Keeps dialogs on the screen: they are as large as their contents need, and scroll if
the screen is smaller.
"""

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QFontInfo, QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QLabel,
    QLayout,
    QMessageBox,
    QScrollArea,
    QWidget,
)

from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.theme import TEXT

FRAME = QSize(8, 40)  # The assumed size in pixels of what a window manager draws around a dialog.
_CHANGING = {QEvent.Type.Show, QEvent.Type.LayoutRequest}


def keep_on_screen(dialog: QDialog, width: int = 0, height: int = 0) -> None:
    """Sets a dialog's first size, which grows with the text size. Without a height, it
    is as high as its contents.
    """
    zoom = QFontInfo(QGuiApplication.font()).pixelSize() / TEXT
    wanted = QSize(round(width * zoom), round(height * zoom)).boundedTo(_room_on_screen(dialog))
    if height:
        dialog.resize(wanted)
    else:
        dialog.setMinimumWidth(wanted.width())
    dialog.installEventFilter(_DialogFitting(dialog))


class _DialogFitting(QObject):
    def eventFilter(self, dialog: QObject, event: QEvent) -> bool:
        if event.type() in _CHANGING and isinstance(dialog, QDialog) and dialog.isWindow():
            _fit_to_screen(dialog)
        return False


def _room_on_screen(dialog: QDialog) -> QSize:
    frame = dialog.frameGeometry().size() - dialog.size()
    return dialog.screen().availableGeometry().size() - frame.expandedTo(FRAME)


def _fit_to_screen(dialog: QDialog) -> None:
    layout = dialog.layout()
    room = _room_on_screen(dialog)
    if layout is not None:
        needed = layout.totalMinimumSize()
        if layout.hasHeightForWidth():  # Labels that wrap need more height.
            width = max(min(dialog.width(), room.width()), needed.width())
            needed = needed.expandedTo(QSize(0, layout.minimumHeightForWidth(width)))
        if needed.boundedTo(room) != needed:
            _make_contents_scroll(dialog, layout, room)
        elif not isinstance(dialog, QMessageBox):  # A message box determines its own size.
            dialog.resize(dialog.size().expandedTo(needed))
    if dialog.size().boundedTo(room) != dialog.size():
        dialog.resize(dialog.size().boundedTo(room))
    screen = dialog.screen().availableGeometry()
    place = dialog.frameGeometry()
    if dialog.isVisible() and not screen.contains(place):
        last = screen.bottomRight() - place.bottomRight() + place.topLeft()
        left = max(screen.left(), min(place.left(), last.x()))
        top = max(screen.top(), min(place.top(), last.y()))
        dialog.move(left, top)


def _make_contents_scroll(dialog: QDialog, layout: QLayout, room: QSize) -> None:
    """Makes the contents scroll. In a box of Qt's, only the text scrolls, and wide
    buttons are stacked.
    """
    area = QScrollArea(dialog, widgetResizable=True)
    focused = dialog.focusWidget()
    if not isinstance(dialog, QMessageBox):
        inside = QWidget(dialog)
        inside.setProperty("look", "plain")
        inside.setLayout(layout)  # Qt moves the layout together with its widgets.
        area.setWidget(inside)
        build_column(area, owner=dialog, margins=0)
    else:
        buttons = dialog.findChild(QDialogButtonBox)
        label = dialog.findChild(QLabel, "qt_msgbox_label")
        if buttons is not None and buttons.sizeHint().width() > room.width() * 0.9:
            buttons.setOrientation(Qt.Orientation.Vertical)
        if label is not None and label.parent() is dialog:
            label.setWordWrap(True)
            layout.replaceWidget(label, area)
            area.setMinimumSize(label.size().boundedTo(room * 0.6))
            area.setWidget(label)
    if focused is not None:
        focused.setFocus()
