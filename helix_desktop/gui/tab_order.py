"""Makes Tab move through the window in reading order. Qt's own order is the order in
which widgets were created.
"""

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QWidget


def next_tab_stop(
    areas: Sequence[QWidget], here: QWidget | None, *, forward: bool
) -> QWidget | None:
    """Returns the stop after or before `here`, wrapping around. None if `here` is in no area."""
    stops = [stop for area in areas if area.isVisible() for stop in _tab_stops_in_area(area, here)]
    if here not in stops:
        return None
    return stops[(stops.index(here) + (1 if forward else -1)) % len(stops)]


def focus_next_stop(areas: Sequence[QWidget], here: QWidget | None, *, forward: bool) -> bool:
    """Moves the focus to the next stop. Returns False if `here` is in none of the areas."""
    stop = next_tab_stop(areas, here, forward=forward)
    if stop is not None:
        stop.setFocus(
            Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason
        )
    return stop is not None


def focus_first_stop(area: QWidget) -> None:
    stop = next(_tab_stops_in_area(area, None), area)
    stop.setFocus(Qt.FocusReason.TabFocusReason)
    stop.window().setAttribute(
        Qt.WidgetAttribute.WA_KeyboardFocusChange
    )  # As Tab does, so that a row shows it.


def _tab_stops_in_area(area: QWidget, here: QWidget | None) -> Iterator[QWidget]:
    """Yields the widgets of an area that Tab can reach, line by line, and `here`, even
    if Tab cannot reach it.
    """
    lines: list[list[tuple[QRect, QWidget]]] = []
    placed = [
        (QRect(each.mapTo(area, QPoint(0, 0)), each.size()), each)
        for each in area.findChildren(QWidget)
        if each is here or _is_tab_stop(each)
    ]
    for place in sorted(placed, key=lambda each: each[0].center().y()):
        if lines and _are_on_same_line(lines[-1][0][0], place[0]):
            lines[-1].append(place)
        else:
            lines.append([place])
    mirrored = area.layoutDirection() == Qt.LayoutDirection.RightToLeft
    for line in lines:
        yield from (
            each for _, each in sorted(line, key=lambda each: each[0].left(), reverse=mirrored)
        )


def _is_tab_stop(widget: QWidget) -> bool:
    if not widget.isEnabled() or not widget.isVisible() or widget.focusProxy() is not None:
        return False
    if (
        isinstance(widget, QAbstractItemView)
        and widget.model() is not None
        and widget.model().rowCount() == 0
    ):
        return False  # An empty list has no row that could be acted on or show the focus.
    group = widget.group() if isinstance(widget, QAbstractButton) else None
    if group is not None and group.exclusive() and group.checkedButton() is not None:
        return (
            group.checkedButton() is widget
        )  # Qt permanently removes TabFocus from the other buttons of the group.
    return bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus)


def _are_on_same_line(one: QRect, other: QRect) -> bool:
    """Whether two widgets are in one line: the middle of each is beside the other."""
    return abs(one.center().y() - other.center().y()) * 2 < min(one.height(), other.height())
