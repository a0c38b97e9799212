"""The window for everyone: what can be focused has a name, what has the focus can be seen."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QAccessible, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QLineEdit,
    QMessageBox,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QWidget,
)

from helix_desktop.engine.conversation_context import NeededSummary
from helix_desktop.engine.facts import FoldKind, Text, UserSaid
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_events import ConversationActivity, FoldProgress
from helix_desktop.gui.chat.composer import ALLOW_ALL
from helix_desktop.gui.frame.welcome_page import ConnectModelDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.permissions_page import PermissionsPage
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from helix_desktop.gui.transcript.selectable_text_area import TextSurface
from tests.gui import accessibility, story
from tests.gui.accessibility import place_in
from tests.gui.fake_desk import FakeSession, FakeWorkbench
from tests.gui.fake_setup import FakeInstallation, FakeSetup
from tests.turns import qt_works


def focusable(parent: QWidget) -> list[QWidget]:
    return [
        widget
        for widget in parent.findChildren(QWidget)
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and widget.isVisibleTo(parent)
        and not isinstance(widget, QScrollArea)
        and not widget.objectName().startswith("qt_")
    ]


def spoken(widget: QWidget) -> str:
    interface = QAccessible.queryAccessibleInterface(widget)
    name = interface.text(QAccessible.Text.Name) if interface is not None else ""
    shown = widget.text() if isinstance(widget, QAbstractButton) else ""
    hint = widget.placeholderText() if isinstance(widget, QLineEdit) else ""
    return name or shown or hint


@pytest.mark.parametrize("page", ["chat", "cache", "timeline"])
def test_everything_that_can_be_focused_has_a_name(
    window: MainWindow, session: FakeSession, page: str
) -> None:
    session.ask(
        PermissionQuestion(
            story.call(9, "run_command", command="cargo test"), "Run a command", "cargo test"
        )
    )
    window.chat.bridge.emit_waiting_events()
    window.switch_to_page(page)
    qt_works(20)
    nameless = [
        f"{type(widget).__name__} in {type(widget.parent()).__name__}"
        for widget in focusable(window)
        if not spoken(widget)
    ]
    assert nameless == []


def test_everything_in_the_settings_has_a_name(window: MainWindow) -> None:
    dialog = SettingsDialog(window, FakeSetup(), FakeInstallation())
    for name in dialog._page_factories:
        dialog.show_settings_page(name)
        page = dialog._pages[name]
        nameless = [
            f"{name}: {type(widget).__name__}" for widget in focusable(page) if not spoken(widget)
        ]
        assert nameless == []


def test_the_focus_can_be_seen_wherever_tab_goes(window: MainWindow) -> None:
    """Each stop looks different with the focus than without."""
    assert QTest.qWaitForWindowActive(window)
    unseen = []
    for widget in focusable(window):
        if not isinstance(widget, QAbstractButton) or not widget.isEnabled():
            continue
        widget.clearFocus()
        before = widget.grab().toImage()
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        if QApplication.focusWidget() is widget and widget.grab().toImage() == before:
            unseen.append(widget.accessibleName() or widget.text())
    assert unseen == []


def test_f6_goes_around_the_areas(window: MainWindow) -> None:
    assert QTest.qWaitForWindowActive(window)
    window.toggle_side_panel()
    window.chat.composer.text.setFocus()
    seen = []
    for _ in range(4):
        QTest.keyClick(window, Qt.Key.Key_F6)
        focus = QApplication.focusWidget()
        assert focus is not None
        seen.append(focus)
    areas = (
        window.pages.inspector,
        window.sidebar.list,
        window.chat.transcript,
        window.chat.composer.text,
    )
    assert all(
        area is focus or area.isAncestorOf(focus) for area, focus in zip(areas, seen, strict=True)
    )


@pytest.mark.parametrize("page", ["chat", "changes", "cache", "timeline"])
@pytest.mark.parametrize("key", [Qt.Key.Key_F6, Qt.Key.Key_Tab])
def test_every_stop_shows_that_it_has_the_keyboard(
    window: MainWindow, page: str, key: Qt.Key
) -> None:
    """F6 led into the conversation, and nothing showed it."""
    assert QTest.qWaitForWindowActive(window)
    window.toggle_side_panel()
    window.switch_to_page(page)
    qt_works(20)
    window.sidebar.list.setFocus(Qt.FocusReason.TabFocusReason)
    for _ in range(
        6
    ):  # The window learns that the keyboard is used, and the last stop is drawn as it is.
        QTest.keyClick(QApplication.focusWidget() or window, key)
        qt_works(2)
    seen: set[tuple[QWidget, object]] = set()
    unseen = []
    while (here := QApplication.focusWidget()) is not None and (
        stop := (here, place_in(here))
    ) not in seen:
        seen.add(stop)
        with_focus = grab_with_surroundings(here)
        QTest.keyClick(here, key)
        qt_works(2)
        if grab_with_surroundings(here) == with_focus:
            unseen.append(f"{type(here).__name__} {spoken(here)}")
    assert unseen == []
    assert len(seen) > (1 if key == Qt.Key.Key_F6 else 8)


def grab_with_surroundings(widget: QWidget) -> QImage:
    """A field with the frame around it, which shows its focus; its caret blinks."""
    around = 4 if isinstance(widget, QPlainTextEdit | QLineEdit) else 0
    place = QRect(widget.mapTo(widget.window(), QPoint(0, 0)), widget.size()).adjusted(
        *(-around,) * 2, *(around,) * 2
    )
    return widget.window().grab(place).toImage()


def test_right_to_left_the_rail_is_at_the_right(window: MainWindow) -> None:
    application = QApplication.instance()
    assert isinstance(application, QApplication)
    application.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    try:
        qt_works(20)
        assert window.rail.mapTo(window, window.rail.rect().center()).x() > window.width() - 60
        assert window.sidebar.list.grab().toImage().width() > 0
    finally:
        application.setLayoutDirection(Qt.LayoutDirection.LeftToRight)


def role_of(widget: QWidget) -> QAccessible.Role:
    interface = QAccessible.queryAccessibleInterface(widget)
    assert interface is not None
    return interface.role()


def test_what_is_painted_has_a_role(window: MainWindow) -> None:
    window.switch_to_page("timeline")
    window.switch_to_page("changes")
    pages = window.pages
    assert role_of(window.chat.transcript.view) is QAccessible.Role.Document
    assert role_of(pages.timeline.chart) is QAccessible.Role.Chart
    assert {role_of(each) for each in pages.changes.findChildren(TextSurface)} == {
        QAccessible.Role.Document
    }
    assert role_of(window.chat.composer.text) is QAccessible.Role.EditableText


def test_the_permission_mode_that_allows_all_shows_the_focus(window: MainWindow) -> None:
    assert QTest.qWaitForWindowActive(window)
    mode = window.chat.composer._mode
    window.chat.composer.show_permission_modes([(ALLOW_ALL, "Everything allowed")], ALLOW_ALL)
    before = mode.grab().toImage()
    mode.setFocus(Qt.FocusReason.TabFocusReason)
    assert mode.grab().toImage() != before


def test_tab_passes_by_what_merely_scrolls(window: MainWindow) -> None:
    dialog = ConnectModelDialog(FakeSetup(), window.background_runner, window, message_waits=True)
    assert not [
        area
        for area in dialog.findChildren(QScrollArea)
        if area.focusPolicy() & Qt.FocusPolicy.TabFocus
    ]
    dialog.close()


async def press_tab_or_other(key: Qt.Key) -> None:
    here = QApplication.focusWidget()
    assert here is not None
    QTest.keyClick(here, key)
    qt_works(1)


def walk_without_waiting(
    window: QWidget,
) -> tuple[list[accessibility.Control], list[accessibility.Stop], list[str]]:
    walk = accessibility.faults_of(window, press_tab_or_other)
    with pytest.raises(StopIteration) as end:
        walk.send(None)  # Each press is done at once, so nothing is awaited.
    found: tuple[list[accessibility.Control], list[accessibility.Stop], list[str]]
    found = end.value.value
    return found


def test_the_card_of_a_message_that_waits_for_a_summary_is_used_by_keyboard(
    window: MainWindow, session: FakeSession
) -> None:
    session.append(UserSaid((Text("go on"),)))
    session.set_running(ConversationActivity.THINKING)
    session.tell(
        FoldProgress(
            session.id, FoldKind.HANDOVER, is_waited_for=True, retry_why="no", retry_seconds=9.0
        )
    )
    window.chat.bridge.emit_waiting_events()
    qt_works(20)
    surface = window.chat.transcript.view
    surface.setFocus(Qt.FocusReason.TabFocusReason)
    names: list[str] = []
    for _ in range(60):
        hot_spot = surface._focused_hot_spot()
        if hot_spot is not None:
            names.append(hot_spot.name)
        if names[-1:] == ["Go on without a summary"]:
            break
        QTest.keyClick(surface, Qt.Key.Key_Tab)
    assert names[-2:] == ["Try now", "Go on without a summary"]
    QTest.keyClick(surface, Qt.Key.Key_Return)
    QTest.keyClick(surface, Qt.Key.Key_Backtab)
    QTest.keyClick(surface, Qt.Key.Key_Return)
    assert session.done == ["stop the fold", "try now"]


def test_the_question_before_a_summary_is_read_and_left_by_keyboard(
    window: MainWindow, session: FakeSession
) -> None:
    session.needed_summary = NeededSummary(90_000, 8_192, 1_228, 44, 0.62)
    window.chat.composer.text.setPlainText("go on")
    window.chat.composer.send_composed_message(steer=False)
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    assert QTest.qWaitForWindowActive(box)
    _controls, stops, faults = walk_without_waiting(box)
    assert faults == []
    buttons = sorted(box.buttons(), key=lambda button: button.x())
    walked = [stop.widget for stop in stops if isinstance(stop.widget, QAbstractButton)]
    first = buttons.index(walked[0])
    assert walked == buttons[first:] + buttons[:first]
    QTest.keyClick(box, Qt.Key.Key_Escape)
    assert not box.isVisible()
    assert window.chat.composer.text.toPlainText() == "go on"


def test_queued_messages_are_told_apart_and_reached_as_they_are_read(
    window: MainWindow, session: FakeSession
) -> None:
    """The defect: in a narrow window, the menu of each message had the same name."""
    composer = window.chat.composer
    session.set_running(ConversationActivity.THINKING)
    window.chat.bridge.emit_waiting_events()
    composer.show_waiting_messages([(Text("one"),), (Text("two"),), (Text("three"),)], 1)
    qt_works(5)
    buttons = [
        widget
        for widget in focusable(composer.waiting)
        if isinstance(widget, QAbstractButton) and widget.isEnabled()
    ]
    names = [spoken(button) for button in buttons]
    assert len(set(names)) == len(names)
    assert {name.rpartition(": ")[2] for name in names} == {"one", "two", "three"}

    def place_in_list(widget: QWidget) -> tuple[int, int]:
        place = widget.mapTo(composer.waiting, QPoint(0, 0))
        return place.y(), place.x()

    reached: list[QWidget] = []
    here: QWidget | None = min(buttons, key=place_in_list)
    while here is not None and composer.waiting.isAncestorOf(here):
        reached.append(here)
        here = here.nextInFocusChain()
        while here is not None and (
            not here.isVisible()
            or not here.isEnabled()
            or not here.focusPolicy() & Qt.FocusPolicy.TabFocus
        ):
            here = here.nextInFocusChain()

    assert reached == sorted(reached, key=place_in_list)
    assert set(reached) == set(buttons)
    names_of_menus: list[str] = []
    for row in composer.waiting._message_rows:
        row.show_buttons_or_menu(100)
        assert row.more.isVisible()
        names_of_menus.append(spoken(row.more))
    assert names_of_menus == ["More actions: one", "More actions: two", "More actions: three"]


def test_rules_of_conversations_are_told_apart_and_the_keyboard_stays_among_them(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    """The defect: "Remove the rule Allow · make" stood there as often as it was allowed."""
    rule = {"decision": "allow", "command": "make"}
    other = {"decision": "allow", "command": "ls *"}
    bench.workspace.settings.rules[:] = [dict(rule), other]
    first, second, *_others = bench.rows
    bench.rules_by_conversation = {first: [rule], second: [rule]}
    page = PermissionsPage(bench, FakeInstallation(), window.background_runner)
    page.resize(800, 900)
    page.show()
    assert QTest.qWaitForWindowActive(page)
    removing = [button for button in page.findChildren(QPushButton) if button.text() == "Remove"]
    names = [spoken(button) for button in removing]
    assert len(set(names)) == len(names) == 4
    removing[0].setFocus()
    QTest.keyClick(removing[0], Qt.Key.Key_Space)
    qt_works(5)
    here = page.focusWidget()
    assert isinstance(here, QPushButton)
    assert here.text() in ("Remove", "Undo")
