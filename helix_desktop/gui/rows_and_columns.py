"""Builds rows and columns of widgets, and empties layouts."""

from collections.abc import Sequence
from typing import TypeVar

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QLayoutItem, QVBoxLayout, QWidget

from helix_desktop.fast_dataclass import dataclass

Box = TypeVar("Box", bound=QBoxLayout)
# A widget or layout, the same with a stretch factor, a widget with its alignment, or a
# stretch alone.
BoxItem = QWidget | QLayout | int | tuple[QWidget | QLayout, int] | tuple[QWidget, Qt.AlignmentFlag]
Margins = int | tuple[int, int, int, int]
MAX_LINE_SPACING = 8  # The maximum spacing in pixels between the lines of a row that wraps.
# Text is placed beside other widgets only if it can be this many line heights wide.
TEXT_WIDTH_IN_LINES = 12
NO_ALIGNMENT = Qt.AlignmentFlag(0)
WIDEST = 4_000  # A widget with a larger maximum width in pixels has no preferred width.


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item of a line, with the width it wants and its share of what is left over."""

    item: QLayoutItem
    width: int
    stretch: int

    def height_for(self, width: int) -> int:
        if self.item.hasHeightForWidth():
            return self.item.heightForWidth(width)
        return self.item.sizeHint().height()


class WrappingRow(QHBoxLayout):
    """A row of widgets and spacers that wraps if they do not fit beside each other."""

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._place_items_and_return_height(QRect(0, 0, width, 0), is_moving=False)

    # Qt's version relies on a value that only Qt's own heightForWidth sets.
    minimumHeightForWidth = heightForWidth

    def minimumSize(self) -> QSize:
        return QSize(0, super().minimumSize().height())

    def setGeometry(self, rect: QRect) -> None:
        QLayout.setGeometry(self, rect)
        self._place_items_and_return_height(rect, is_moving=True)

    def _place_items_and_return_height(self, rect: QRect, *, is_moving: bool) -> int:
        """Returns the height that the lines need in a rectangle of this width, and moves the
        items there, unless only the height is asked for.
        """
        inner_rect = rect.marginsRemoved(self.contentsMargins())
        line_spacing = min(self.spacing(), MAX_LINE_SPACING)
        bottom = inner_rect.top() - line_spacing
        for line in self._split_into_lines(inner_rect.width()):
            top = bottom + line_spacing
            widths = self._share_width_of_line(line, inner_rect.width())
            heights = [item.height_for(width) for item, width in zip(line, widths, strict=True)]
            line_height = max(heights)
            bottom = top + line_height
            if not is_moving:
                continue
            left = inner_rect.left()
            for item, width, height in zip(line, widths, heights, strict=True):
                # Each item stands in the middle of its line's height, or fills it.
                item_top = top + (line_height - height) // 2
                item_rect = QRect(left, item_top, width, height)
                if item.item.expandingDirections() & Qt.Orientation.Vertical:
                    item_rect = QRect(left, top, width, line_height)
                item.item.setGeometry(item_rect)
                left += width + self.spacing()
        inner_bottom = max(bottom, inner_rect.top())
        return inner_bottom + self.contentsMargins().bottom() - rect.top()

    def _share_width_of_line(self, line: Sequence[PlacedItem], whole_width: int) -> list[int]:
        """Returns the width of each item, the unused width being shared by stretch factors."""
        used_width = self.spacing() * (len(line) - 1)
        stretch_of_line = 0
        for item in line:
            used_width += item.width
            stretch_of_line += item.stretch
        unused_width = whole_width - used_width
        widths: list[int] = []
        for item in line:
            extra_width = unused_width * item.stretch // max(stretch_of_line, 1)
            widths.append(item.width + extra_width)
        return widths

    def _split_into_lines(self, width: int) -> list[list[PlacedItem]]:
        lines: list[list[PlacedItem]] = []
        width_left = 0  # In the last line.
        for index in range(self.count()):
            item = self.itemAt(index)
            stretch = self.stretch(index)
            if item is None:
                continue
            # A space never begins a line.
            if item.spacerItem() is not None and lines:
                lines[-1].append(PlacedItem(item, 0, stretch))
                width_left -= self.spacing()
            widget = item.widget()
            if item.isEmpty() or widget is None:
                continue
            wanted_width = min(_preferred_width(item, widget, stretch), width)
            if not lines or wanted_width > width_left:
                lines.append([])
                width_left = width
            lines[-1].append(PlacedItem(item, wanted_width, stretch))
            width_left -= wanted_width + self.spacing()
        return lines


def _preferred_width(item: QLayoutItem, widget: QWidget, stretch: int) -> int:
    # A text of one long line would otherwise claim a line of its own; it can wrap.
    limit = WIDEST
    if stretch:
        limit = TEXT_WIDTH_IN_LINES * widget.fontMetrics().height()
    if widget.maximumWidth() < WIDEST:
        return min(widget.maximumWidth(), limit)
    return min(item.sizeHint().width(), limit)


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
    row = QHBoxLayout()
    if wraps:
        row = WrappingRow()
    if owner is not None:
        owner.setLayout(row)
    return _fill_box(row, items, margins, spacing)


def build_column(
    *items: BoxItem,
    owner: QWidget | None = None,
    margins: Margins | None = None,
    spacing: int | None = None,
) -> QVBoxLayout:
    column = QVBoxLayout()
    if owner is not None:
        owner.setLayout(column)
    return _fill_box(column, items, margins, spacing)


def _fill_box(
    box: Box, items: Sequence[BoxItem], margins: Margins | None, spacing: int | None
) -> Box:
    if isinstance(margins, int):
        box.setContentsMargins(margins, margins, margins, margins)
    elif margins is not None:
        left, top, right, bottom = margins
        box.setContentsMargins(left, top, right, bottom)
    if spacing is not None:
        box.setSpacing(spacing)
    for item in items:
        if isinstance(item, int):
            box.addStretch(item)
            continue
        if not isinstance(item, tuple):
            _add_to_box(box, item)
            continue
        widget_or_layout, stretch_or_alignment = item
        # A stretch factor is a plain number. Python also accepts an alignment where a
        # number is expected.
        if isinstance(stretch_or_alignment, Qt.AlignmentFlag):
            _add_to_box(box, widget_or_layout, alignment=stretch_or_alignment)
        else:
            _add_to_box(box, widget_or_layout, stretch=stretch_or_alignment)
    return box


def _add_to_box(
    box: QBoxLayout,
    widget_or_layout: QWidget | QLayout,
    *,
    stretch: int = 0,
    alignment: Qt.AlignmentFlag = NO_ALIGNMENT,
) -> None:
    if isinstance(widget_or_layout, QLayout):
        box.addLayout(widget_or_layout, stretch)
    else:
        box.addWidget(widget_or_layout, stretch, alignment)


def reserve_height_for_width(widget: QWidget) -> None:
    """Reserves the height of what wraps, which a splitter does not ask its widgets for."""
    layout = widget.layout()
    if layout is not None:
        widget.setMinimumHeight(layout.minimumHeightForWidth(widget.width()))


def clear_layout(layout: QLayout) -> None:
    """Removes everything from a layout. Widgets are hidden at once and deleted a moment later."""
    while layout.count():
        item = layout.takeAt(0)
        if item is None:
            return
        widget = item.widget()
        inner_layout = item.layout()
        if widget is not None:
            widget.hide()
            widget.deleteLater()
        elif inner_layout is not None:
            clear_layout(inner_layout)
