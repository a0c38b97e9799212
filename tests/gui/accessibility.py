"""What somebody without a mouse, or without a screen, meets in a window: its controls
as Qt tells them to a screen reader, and the stops of Tab.

`faults_of(window, press)` is what is wrong with one page or dialog; it presses nothing but Tab.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QAccessible, QAccessibleInterface, QImage
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QApplication,
    QCheckBox,
    QComboBox,
    QDialog,
    QHeaderView,
    QKeySequenceEdit,
    QLabel,
    QMenu,
    QPushButton,
    QScrollBar,
    QToolButton,
    QWidget,
)

from helix_desktop.gui.common.widgets import TransientDialog
from helix_desktop.gui.frame.search_popup import SearchPopup
from helix_desktop.gui.inspector.meter_panel import ContextPanel

Role = QAccessible.Role
Press = Callable[[Qt.Key], Awaitable[None]]
PRESSED = {
    Role.Button,
    Role.CheckBox,
    Role.RadioButton,
    Role.PageTab,
    Role.Link,
    Role.ButtonMenu,
    Role.ButtonDropDown,
}
OPERATED = PRESSED | {Role.ComboBox, Role.EditableText, Role.Slider, Role.SpinBox}
NAMED = OPERATED | {
    Role.ListItem,
    Role.TreeItem,
    Role.MenuItem,
    Role.List,
    Role.Tree,
    Role.Table,
    Role.Graphic,
}
VAGUE = {
    Role.NoRole,
    Role.Client,
    Role.Pane,
    Role.Window,
}  # what says nothing of what can be done with it
ROWS = 40  # of a long list the first
STOPS = 200  # more than any page has
NO_STOP = "Tab leads to nothing that has the keyboard"
AROUND = 4  # pixels around a control where its focus may be drawn


@dataclass(frozen=True)
class Control:
    """One node of the tree. `widget` is none for what is no widget of its own, such as a row."""

    role: QAccessible.Role
    name: str
    widget: QWidget | None
    states: tuple[str, ...]

    def __str__(self) -> str:
        kind = type(self.widget).__name__ if self.widget is not None else ""
        return " ".join(
            filter(None, [self.role.name, repr(self.name[:60]), kind, ",".join(self.states)])
        )


@dataclass(frozen=True)
class Stop:
    """Where Tab stopped: a widget, and the place in it where it has several; `seen` is
    how it looked with the focus.
    """

    widget: QWidget
    place: object
    seen: QImage


def controls_of(window: QWidget) -> list[Control]:
    """The tree below a window, as far as it can be seen."""
    root = QAccessible.queryAccessibleInterface(window)
    return list(_below(root)) if root is not None else []


STATES_TOLD = (
    "checked", "disabled", "focusable", "focused", "expanded", "readOnly", "selected", "hasPopup", "checkable", "editable",
    "defaultButton",
)  # fmt: skip


def _below(node: QAccessibleInterface) -> Iterator[Control]:
    has_rows = node.role() in (Role.List, Role.Tree, Role.Table)
    count = node.childCount()
    for place in range(min(count, ROWS) if has_rows else count):
        child = node.child(place)
        if child is None or not child.isValid() or child.state().invisible:
            continue
        thing = child.object()
        widget = thing if isinstance(thing, QWidget) else None
        if widget is not None and _is_passed_over(widget, is_in_rows=has_rows):
            continue
        state = child.state()
        states = tuple(name for name in STATES_TOLD if getattr(state, name))
        yield Control(child.role(), name_told(child), widget, states)
        if not isinstance(widget, QAbstractSpinBox | QComboBox | QKeySequenceEdit):
            yield from _below(child)


def _is_passed_over(widget: QWidget, *, is_in_rows: bool) -> bool:
    """What is not shown, what belongs to its view, and windows, which are looked at themselves."""
    if not widget.isVisible() or isinstance(widget, QScrollBar | QHeaderView):
        return True
    return widget.isWindow() and not is_in_rows


def name_told(node: QAccessibleInterface) -> str:
    """As a screen reader learns it: for a choice on Linux, by its label alone."""
    if node.role() is not Role.ComboBox:
        return node.text(QAccessible.Text.Name)
    labels = [each for each, kind in node.relations() if kind & QAccessible.RelationFlag.Label]
    return " ".join(each.text(QAccessible.Text.Name) for each in labels)


def spoken_of(widget: QWidget) -> str:
    interface = QAccessible.queryAccessibleInterface(widget)
    name = interface.text(QAccessible.Text.Name) if interface is not None else ""
    return f"{type(widget).__name__} {name[:60]!r}"


def has_keyboard(window: QWidget) -> QWidget | None:
    popup = QApplication.activePopupWidget()
    if popup is not None and popup.focusWidget() is not None:
        return popup.focusWidget()
    return QApplication.focusWidget() or window.focusWidget()


def place_in(widget: QWidget) -> object:
    """Which of the places in a painted widget has the keyboard."""
    spot = getattr(widget, "_spot", None)
    return str(spot) if spot is not None else None


def _picture_of(widget: QWidget) -> QImage:
    """How a widget and what is just around it look, wherever its page has been scrolled to."""
    top = widget.window()
    area = QRect(widget.mapTo(top, QPoint(0, 0)), widget.size()).adjusted(
        -AROUND, -AROUND, AROUND, AROUND
    )
    return top.grab(area).toImage()


async def stops_of(window: QWidget, press: Press) -> tuple[list[Stop], list[str]]:
    """Every stop of Tab, once around, and those whose focus is not to be seen or that
    keep the keyboard.
    """
    stops: list[Stop] = []
    faults: list[str] = []
    known: set[tuple[int, object]] = set()
    for _ in range(STOPS):
        await press(Qt.Key.Key_Tab)
        here = has_keyboard(window)
        if here is None:
            faults.append(NO_STOP)
            break
        one = (id(here), place_in(here))
        now = Stop(here, place_in(here), _picture_of(here))
        if stops:
            last = stops[-1]
            if (last.widget, last.place) == (here, now.place):
                if len(stops) == 1:
                    break
                faults.append(f"Tab does not leave {spoken_of(here)}")
                break
            if last.widget.isVisible() and _picture_of(last.widget) == last.seen:
                faults.append(f"focus not to be seen: {spoken_of(last.widget)} {last.place or ''}")
        if one in known:
            break
        known.add(one)
        stops.append(now)
        shown = here.viewport() if isinstance(here, QAbstractScrollArea) else here
        if not here.isVisible() or shown.visibleRegion().isEmpty():
            faults.append(f"the keyboard is where nothing is seen: {spoken_of(here)}")
    else:
        faults.append(f"no way around in {STOPS} presses of Tab")
    return stops, faults


def reached_by_arrows(stops: list[Stop]) -> set[QWidget]:
    """Buttons beside a stop to which the arrows lead, as those of which one is chosen."""
    reached: set[QWidget] = set()
    for stop in stops:
        here = stop.widget
        owner = here.parentWidget()
        if (
            isinstance(here, QAbstractButton)
            and owner is not None
            and (here.autoExclusive() or here.group())
        ):
            group = here.group()
            if group is not None:
                reached |= set(group.buttons())  # Also those on other cards.
            else:
                siblings = owner.findChildren(type(here))
                reached |= {each for each in siblings if each.parentWidget() is owner}
    return reached


def _inside_reached(widget: QWidget, reached: set[QWidget]) -> bool:
    above: QWidget | None = widget
    while above is not None:
        if above in reached or (above.focusProxy() is not None and above.focusProxy() in reached):
            return True
        above = (
            above.parentWidget()
            if isinstance(above.parentWidget(), QAbstractItemView | QAbstractSpinBox | QComboBox)
            or above.objectName().startswith("qt_")
            else None
        )
    return False


def popup_in(window: QWidget) -> QWidget:
    """What lies over the rest of a window and keeps the keyboard, or the window."""
    kinds = (SearchPopup, ContextPanel)
    return next(
        (each for kind in kinds for each in window.findChildren(kind) if each.isVisible()), window
    )


async def faults_of(window: QWidget, press: Press) -> tuple[list[Control], list[Stop], list[str]]:
    """The controls, the stops and what is wrong with a page or a dialog that is open."""
    window = popup_in(window)
    stops: list[Stop] = []
    faults: list[str] = []
    if not isinstance(window, QMenu):
        stops, faults = await stops_of(window, press)
    controls = controls_of(window)
    operated = [control for control in controls if control.role in OPERATED]
    # A dialog that only says how far work has got needs no stop: Escape closes it.
    if not operated:
        faults = [fault for fault in faults if fault != NO_STOP]
    faults += _faults_of_names(controls)
    faults += _equal_controls(operated)
    if stops:
        faults += _not_reached_by_keyboard(operated, stops)
    for widget in {stop.widget: None for stop in stops}:
        faults += _faults_of_stop(widget)
    faults += _links_for_the_mouse_alone(window)
    return controls, stops, list(dict.fromkeys(faults))


def _faults_of_names(controls: list[Control]) -> Iterator[str]:
    for control in controls:
        if control.widget is None:
            continue
        if control.role in NAMED and not control.name.strip():
            yield f"no name: {control}"
        if control.role is Role.CheckBox and not isinstance(control.widget, QCheckBox):
            yield f"a check box that is none: {control}"


def _equal_controls(operated: list[Control]) -> Iterator[str]:
    counts = Counter((control.role, control.name) for control in operated if control.name)
    for (role, name), count in counts.items():
        if count > 1:
            yield f"{count} times the same: {role.name} {name!r}"


def _not_reached_by_keyboard(operated: list[Control], stops: list[Stop]) -> Iterator[str]:
    reached = {stop.widget for stop in stops} | reached_by_arrows(stops)
    for control in operated:
        if control.widget is None or "disabled" in control.states:
            continue
        if not _inside_reached(control.widget, reached):
            yield f"not by keyboard: {control}"


def _faults_of_stop(widget: QWidget) -> Iterator[str]:
    """What a screen reader could not say of a widget that has the keyboard."""
    interface = QAccessible.queryAccessibleInterface(widget)
    if interface is None:
        yield f"no role: {spoken_of(widget)} "
    elif interface.role() in VAGUE and not isinstance(widget, QKeySequenceEdit):
        yield f"no role: {spoken_of(widget)} {interface.role().name}"
    elif not interface.text(QAccessible.Text.Name).strip():
        yield f"a stop without a name: {type(widget).__name__} {interface.role().name}"
    wrong = pressed_by_enter_instead(widget)
    if wrong is not None:
        yield f"Enter on {spoken_of(widget)} presses {spoken_of(wrong)}"


def _links_for_the_mouse_alone(window: QWidget) -> Iterator[str]:
    by_keyboard = Qt.TextInteractionFlag.LinksAccessibleByKeyboard
    for label in window.findChildren(QLabel):
        if not label.isVisible() or "<a " not in label.text():
            continue
        if not label.textInteractionFlags() & by_keyboard:
            yield f"a link for the mouse alone: {label.text()[:60]!r}"


def pressed_by_enter_instead(widget: QWidget) -> QPushButton | None:
    """In a dialog, Enter on a button that does not take it presses the default button."""
    dialog = widget.window()
    if not isinstance(dialog, QDialog) or not isinstance(widget, QAbstractButton):
        return None
    if isinstance(dialog, TransientDialog) and isinstance(widget, QPushButton | QToolButton):
        return None  # It passes Enter on to the button with the keyboard.
    if isinstance(widget, QPushButton) and (widget.autoDefault() or widget.isDefault()):
        return None
    for button in dialog.findChildren(QPushButton):
        can_be_pressed = button.isEnabled() and button.isVisible()
        if button.isDefault() and can_be_pressed and button is not widget:
            return button
    return None
