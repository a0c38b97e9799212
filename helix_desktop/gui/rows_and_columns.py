"""Builds rows and columns of widgets, and empties layouts."""

from collections.abc import Sequence
from typing import TypeVar

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QLayoutItem, QVBoxLayout, QWidget

Box = TypeVar("Box", bound=QBoxLayout)
# A widget or layout, the same with a stretch factor, a widget with its alignment, or a
# stretch alone.
BoxItem = QWidget | QLayout | int | tuple[QWidget | QLayout, int] | tuple[QWidget, Qt.AlignmentFlag]
Margins = int | tuple[int, int, int, int]
MAX_LINE_SPACING = 8  # The maximum spacing in pixels between the lines of a row that wraps.
TEXT_WIDTH_IN_LINES = (
    12  # Text is placed beside other widgets only if it can be this many line heights wide.
)
WIDEST = 4_000  # A widget with a larger maximum width in pixels has no preferred width.


class WrappingRow(QHBoxLayout):
    """A row of widgets and spacers that wraps if they do not fit beside each other."""

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._place_items_and_return_height(QRect(0, 0, width, 0), is_moving=False)

    minimumHeightForWidth = (
        heightForWidth  # Qt's version relies on a value that only Qt's own heightForWidth sets.
    )

    def minimumSize(self) -> QSize:
        return QSize(0, super().minimumSize().height())

    def setGeometry(self, place: QRect) -> None:
        QLayout.setGeometry(self, place)
        self._place_items_and_return_height(place, is_moving=True)

    def _place_items_and_return_height(self, place: QRect, *, is_moving: bool) -> int:
        inner, gap = place.marginsRemoved(self.contentsMargins()), self.spacing()
        bottom = inner.top() - min(gap, MAX_LINE_SPACING)
        for line in self._split_into_lines(inner.width()):
            left, top = inner.left(), bottom + min(gap, MAX_LINE_SPACING)
            unused = inner.width() + gap - sum(width + gap for _, width, _ in line)
            shares = sum(stretch for *_, stretch in line) or 1
            sized = [(item, width + unused * stretch // shares) for item, width, stretch in line]
            heights = [
                i.heightForWidth(w) if i.hasHeightForWidth() else i.sizeHint().height()
                for i, w in sized
            ]
            for (item, width), height in zip(sized, heights, strict=True) if is_moving else ():
                item.setGeometry(QRect(left, top + (max(heights) - height) // 2, width, height))
                left += width + gap
            bottom = top + max(heights)
        return max(bottom, inner.top()) + self.contentsMargins().bottom() - place.top()

    def _split_into_lines(self, width: int) -> list[list[tuple[QLayoutItem, int, int]]]:
        """Returns the items of each line, each with its width and its stretch factor."""
        lines: list[list[tuple[QLayoutItem, int, int]]] = []
        room = 0
        for at in range(self.count()):
            item, stretch = self.itemAt(at), self.stretch(at)
            if item is not None and item.spacerItem() is not None and lines:
                lines[-1].append((item, 0, stretch))
                room -= self.spacing()
            if item is None or item.isEmpty() or (widget := item.widget()) is None:
                continue
            limit = TEXT_WIDTH_IN_LINES * widget.fontMetrics().height() if stretch else WIDEST
            wanted = (
                widget.maximumWidth() if widget.maximumWidth() < WIDEST else item.sizeHint().width()
            )
            wanted = min(wanted, limit, width)
            if not lines or wanted > room:
                lines.append([])
                room = width
            lines[-1].append((item, wanted, stretch))
            room -= wanted + self.spacing()
        return lines


def build_row(
    *items: BoxItem,
    owner: QWidget | None = None,
    margins: Margins | None = None,
    spacing: int | None = None,
    wraps: bool = False,
) -> QHBoxLayout:
    """Builds a row of `items`, as the layout of `owner` or for another layout. `wraps`:
    see `WrappingRow`.
    """
    kind = WrappingRow if wraps else QHBoxLayout
    return _fill_box(kind(owner) if owner is not None else kind(), items, margins, spacing)


def build_column(
    *items: BoxItem,
    owner: QWidget | None = None,
    margins: Margins | None = None,
    spacing: int | None = None,
) -> QVBoxLayout:
    return _fill_box(
        QVBoxLayout(owner) if owner is not None else QVBoxLayout(), items, margins, spacing
    )


def _fill_box(
    box: Box, items: Sequence[BoxItem], margins: Margins | None, spacing: int | None
) -> Box:
    if margins is not None:
        box.setContentsMargins(*(margins if isinstance(margins, tuple) else (margins,) * 4))
    if spacing is not None:
        box.setSpacing(spacing)
    for item in items:
        if isinstance(item, int):
            box.addStretch(item)
            continue
        part, place = item if isinstance(item, tuple) else (item, 0)
        # A stretch factor is a plain number. Python also accepts an alignment where a
        # number is expected.
        alignment = place if isinstance(place, Qt.AlignmentFlag) else Qt.AlignmentFlag(0)
        stretch = 0 if alignment else place
        if isinstance(part, QLayout):
            box.addLayout(part, stretch)
        else:
            box.addWidget(part, stretch, alignment)
    return box


def reserve_height_for_width(widget: QWidget) -> None:
    """Reserves the height of what wraps, which a splitter does not ask its widgets for."""
    if (layout := widget.layout()) is not None:
        widget.setMinimumHeight(layout.minimumHeightForWidth(widget.width()))


def clear_layout(layout: QLayout) -> None:
    """Removes everything from a layout. Widgets are hidden at once and deleted a moment later."""
    while (item := layout.takeAt(0)) is not None:
        if (widget := item.widget()) is not None:
            widget.hide()
            widget.deleteLater()
        elif (inner := item.layout()) is not None:
            clear_layout(inner)
