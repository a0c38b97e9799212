"""Makes Tab move through the window in reading order. Qt's own order is the order in
which widgets were created.
"""

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QWidget

from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class PlacedStop:
    """A widget that Tab can reach, with its place in its area."""

    rect: QRect
    widget: QWidget


def next_tab_stop(
    areas: Sequence[QWidget], focused: QWidget | None, *, forward: bool
) -> QWidget | None:
    """Returns the stop after or before `focused`, wrapping around. None if `focused` is in no area."""
    stops: list[QWidget] = []
    for area in areas:
        if area.isVisible():
            stops.extend(_tab_stops_in_area(area, focused))
    if focused not in stops:
        return None
    index = stops.index(focused)
    if forward:
        next_index = (index + 1) % len(stops)
    else:
        next_index = index - 1  # Before the first stop comes the last one, at index -1.
    return stops[next_index]


def focus_next_stop(areas: Sequence[QWidget], focused: QWidget | None, *, forward: bool) -> bool:
    """Moves the focus to the next stop. Returns False if `focused` is in none of the areas."""
    stop = next_tab_stop(areas, focused, forward=forward)
    if stop is None:
        return False
    if forward:
        stop.setFocus(Qt.FocusReason.TabFocusReason)
    else:
        stop.setFocus(Qt.FocusReason.BacktabFocusReason)
    return True


def focus_first_stop(area: QWidget) -> None:
    stop = next(_tab_stops_in_area(area, None), area)
    stop.setFocus(Qt.FocusReason.TabFocusReason)
    # As Tab does, so that a row shows it.
    stop.window().setAttribute(Qt.WidgetAttribute.WA_KeyboardFocusChange)


def _tab_stops_in_area(area: QWidget, focused: QWidget | None) -> Iterator[QWidget]:
    """Yields the widgets of an area that Tab can reach, line by line, and `focused`, even
    if Tab cannot reach it.
    """
    stops: list[PlacedStop] = []
    for widget in area.findChildren(QWidget):
        if widget is focused or _is_tab_stop(widget):
            corner = widget.mapTo(area, QPoint(0, 0))
            rect = QRect(corner, widget.size())
            stops.append(PlacedStop(rect, widget))
    stops.sort(key=lambda stop: stop.rect.center().y())
    lines: list[list[PlacedStop]] = []
    for stop in stops:
        if lines and _are_on_same_line(lines[-1][0].rect, stop.rect):
            lines[-1].append(stop)
        else:
            lines.append([stop])
    is_mirrored = area.layoutDirection() == Qt.LayoutDirection.RightToLeft
    for line in lines:
        for stop in sorted(line, key=lambda stop: stop.rect.left(), reverse=is_mirrored):
            yield stop.widget


def _is_tab_stop(widget: QWidget) -> bool:
    if not widget.isEnabled() or not widget.isVisible() or widget.focusProxy() is not None:
        return False
    if isinstance(widget, QAbstractItemView):
        model = widget.model()
        if model is not None and model.rowCount() == 0:
            return False  # An empty list has no row that could be acted on or show the focus.
    if isinstance(widget, QAbstractButton):
        group = widget.group()
        if group is not None and group.exclusive() and group.checkedButton() is not None:
            # Qt permanently removes TabFocus from the other buttons of the group.
            return group.checkedButton() is widget
    return bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus)


def _are_on_same_line(rect: QRect, other_rect: QRect) -> bool:
    """Whether two widgets are in one line: the middle of each is beside the other."""
    distance = abs(rect.center().y() - other_rect.center().y())
    smaller_height = min(rect.height(), other_rect.height())
    return distance < smaller_height / 2
