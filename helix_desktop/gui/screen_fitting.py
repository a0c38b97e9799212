"""Keeps dialogs on the screen: they are as large as their contents need, and scroll if
the screen is smaller.
"""

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt
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
    zoomed_size = QSize(round(width * zoom), round(height * zoom))
    first_size = zoomed_size.boundedTo(_largest_size_on_screen(dialog))
    if height:
        dialog.resize(first_size)
    else:
        dialog.setMinimumWidth(first_size.width())
    dialog.installEventFilter(_DialogFitting(dialog))


class _DialogFitting(QObject):
    _waits_for_place = False

    def eventFilter(self, dialog: QObject, event: QEvent) -> bool:
        if not isinstance(dialog, QDialog) or not dialog.isWindow():
            return False
        is_placed_at_last = event.type() == QEvent.Type.Move and self._waits_for_place
        if event.type() in _CHANGING or is_placed_at_last:
            self._waits_for_place = _is_place_within_frame(dialog)
            if not self._waits_for_place:
                _fit_to_screen(dialog)
        return False


def _is_place_within_frame(dialog: QDialog) -> bool:
    """When an X11 window manager has just put its frame around a dialog, Qt knows for a moment only
    the place within the frame. A new size or place would then put it into the screen's corner.
    """
    place = dialog.geometry().topLeft()
    has_frame = dialog.frameGeometry().topLeft() != place
    return has_frame and place == QPoint(0, 0)


def _largest_size_on_screen(dialog: QDialog) -> QSize:
    """Returns how large a dialog can be with the frame that a window manager draws around it."""
    frame = dialog.frameGeometry().size() - dialog.size()
    return dialog.screen().availableGeometry().size() - frame.expandedTo(FRAME)


def _fit_to_screen(dialog: QDialog) -> None:
    largest_size = _largest_size_on_screen(dialog)
    layout = dialog.layout()
    if layout is not None:
        _fit_to_contents(dialog, layout, largest_size)
    bounded_size = dialog.size().boundedTo(largest_size)
    if bounded_size != dialog.size():
        dialog.resize(bounded_size)
    if dialog.isVisible():
        _move_onto_screen(dialog)


def _fit_to_contents(dialog: QDialog, layout: QLayout, largest_size: QSize) -> None:
    needed_size = layout.totalMinimumSize()
    if layout.hasHeightForWidth():  # Labels that wrap need more height.
        fitting_width = min(dialog.width(), largest_size.width())
        width = max(fitting_width, needed_size.width())
        height = layout.minimumHeightForWidth(width)
        needed_size = needed_size.expandedTo(QSize(0, height))
    if needed_size.boundedTo(largest_size) != needed_size:
        _make_contents_scroll(dialog, layout, largest_size)
    elif not isinstance(dialog, QMessageBox):  # A message box determines its own size.
        size = dialog.size().expandedTo(needed_size)
        dialog.resize(size)


def _move_onto_screen(dialog: QDialog) -> None:
    screen = dialog.screen().availableGeometry()
    frame = dialog.frameGeometry()
    if screen.contains(frame):
        return
    largest_left = screen.right() - frame.width() + 1
    largest_top = screen.bottom() - frame.height() + 1
    # Where the dialog is larger than the screen, its upper left corner is shown.
    left = max(min(frame.left(), largest_left), screen.left())
    top = max(min(frame.top(), largest_top), screen.top())
    dialog.move(left, top)


def _make_contents_scroll(dialog: QDialog, layout: QLayout, largest_size: QSize) -> None:
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
        if buttons is not None and buttons.sizeHint().width() > largest_size.width() * 0.9:
            buttons.setOrientation(Qt.Orientation.Vertical)
        if label is not None and label.parent() is dialog:
            label.setWordWrap(True)
            layout.replaceWidget(label, area)
            area.setMinimumSize(label.size().boundedTo(largest_size * 0.6))
            area.setWidget(label)
    if focused is not None:
        focused.setFocus()
