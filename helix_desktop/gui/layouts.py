"""Builds rows and columns of widgets, and empties layouts."""

from collections.abc import Sequence
from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QVBoxLayout, QWidget

Box = TypeVar("Box", bound=QBoxLayout)
# An item of a row or column: a widget or layout, the same with a stretch factor, a widget with its
# alignment, or a stretch alone.
BoxItem = QWidget | QLayout | int | tuple[QWidget | QLayout, int] | tuple[QWidget, Qt.AlignmentFlag]
Margins = int | tuple[int, int, int, int]


def build_row(
    *items: BoxItem, owner: QWidget | None = None, margins: Margins | None = None, spacing: int | None = None
) -> QHBoxLayout:
    """A row of `items`, as the layout of `owner` or to be added to another one."""
    return _fill_box(QHBoxLayout(owner) if owner is not None else QHBoxLayout(), items, margins, spacing)


def build_column(
    *items: BoxItem, owner: QWidget | None = None, margins: Margins | None = None, spacing: int | None = None
) -> QVBoxLayout:
    return _fill_box(QVBoxLayout(owner) if owner is not None else QVBoxLayout(), items, margins, spacing)


def _fill_box(box: Box, items: Sequence[BoxItem], margins: Margins | None, spacing: int | None) -> Box:
    if margins is not None:
        box.setContentsMargins(*(margins if isinstance(margins, tuple) else (margins,) * 4))
    if spacing is not None:
        box.setSpacing(spacing)
    for item in items:
        if isinstance(item, int):
            box.addStretch(item)
            continue
        part, place = item if isinstance(item, tuple) else (item, 0)
        # To Python, an alignment is a number, too.
        alignment = place if isinstance(place, Qt.AlignmentFlag) else Qt.AlignmentFlag(0)
        stretch = 0 if alignment else place
        if isinstance(part, QLayout):
            box.addLayout(part, stretch)
        else:
            box.addWidget(part, stretch, alignment)
    return box


def clear_layout(layout: QLayout) -> None:
    """Removes all of a layout, also of layouts inside it. Widgets disappear at once and are deleted a moment later."""
    while (item := layout.takeAt(0)) is not None:
        if (widget := item.widget()) is not None:
            widget.hide()
            widget.deleteLater()
        elif (inner := item.layout()) is not None:
            clear_layout(inner)
