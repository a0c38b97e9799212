"""Messages that wait for the agent: shown, edited, moved and removed."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget

from helix_desktop.engine.facts import Text
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.chat.waiting_messages import OneLineLabel, WaitingMessageRow
from helix_desktop.gui.theme import Theme


def test_a_waiting_message_shows_as_much_as_there_is_room_for(theme: Theme) -> None:
    row = QWidget()
    line = OneLineLabel("one two three four five six seven eight nine ten", row)
    row.show()
    line.resize(1_000, 20)
    assert line.text().endswith("ten")
    line.resize(90, 20)
    assert line.text().endswith("…")
    line.resize(1_000, 20)
    assert line.text().endswith("ten")


def test_waiting_messages_can_be_edited_and_removed(composer: Composer) -> None:
    editing = QSignalSpy(composer.waiting.editing)
    dropping = QSignalSpy(composer.waiting.discarding)
    composer.show_waiting_messages([(Text("one"),), (Text("two"),)])
    buttons = {
        button.accessibleName(): button for button in composer.waiting.findChildren(QPushButton)
    }
    QTest.mouseClick(buttons["Edit: two"], Qt.MouseButton.LeftButton)
    QTest.mouseClick(buttons["Remove: one"], Qt.MouseButton.LeftButton)
    assert (editing.at(0), dropping.at(0)) == ([1], [0])
    composer.show_waiting_messages([])
    assert not composer.waiting.isVisible()


def test_waiting_messages_say_when_they_go_and_can_change_it(composer: Composer) -> None:
    moving = QSignalSpy(composer.waiting.moving)
    steering = QSignalSpy(composer.waiting.steering)
    composer.show_waiting_messages([(Text("one"),), (Text("two"),), (Text("three"),)], 1)
    rows = composer.waiting.findChildren(WaitingMessageRow)
    labels = [label.text() for row in rows for label in row.findChildren(QLabel)]
    assert labels[1::2] == ["When the command ends", "When done", "When done"]
    buttons = {
        button.accessibleName(): button for button in composer.waiting.findChildren(QPushButton)
    }
    QTest.mouseClick(buttons["Send when done: one"], Qt.MouseButton.LeftButton)
    QTest.mouseClick(buttons["Send now: two"], Qt.MouseButton.LeftButton)
    QTest.mouseClick(buttons["Send this message later: two"], Qt.MouseButton.LeftButton)
    QTest.mouseClick(buttons["Send this message earlier: three"], Qt.MouseButton.LeftButton)
    assert [steering.at(0), steering.at(1)] == [[0, False], [1, True]]
    assert [moving.at(0), moving.at(1)] == [[1, 1], [2, -1]]
    # The only message that goes after this step has no other to pass.
    assert not buttons["Send this message earlier: one"].isEnabled()
    assert not buttons["Send this message later: one"].isEnabled()
    assert not buttons["Send this message earlier: two"].isEnabled()
    composer.show_waiting_messages([])
    assert not composer.waiting.isVisible()


def test_a_waiting_message_does_not_promise_a_step_that_was_stopped(composer: Composer) -> None:
    composer.show_waiting_messages([(Text("one"),), (Text("two"),)], 1)
    composer.waiting.show_when_sent(waits_for_user=True)
    rows = composer.waiting._message_rows
    labels = [label.text() for row in rows for label in row.findChildren(QLabel)]
    assert labels[1::2] == ["When you continue", "When you continue"]
    names = [button.accessibleName() for row in rows for button in row.findChildren(QPushButton)]
    assert "Edit: one" in names
    assert not [name for name in names if name.startswith(("Send when", "Send now"))]
    composer.waiting.show_when_sent(waits_for_user=False)
    rows = composer.waiting._message_rows
    labels = [label.text() for row in rows for label in row.findChildren(QLabel)]
    assert labels[1::2] == ["When the command ends", "When done"]


def test_the_buttons_of_a_waiting_message_keep_their_places_when_another_goes(
    composer: Composer,
) -> None:
    """A press on "Edit" hit "Send now", as the arrows were gone."""

    def places_of_one() -> list[tuple[str, int]]:
        QApplication.processEvents()
        places: list[tuple[str, int]] = []
        row = composer.waiting._message_rows[0]
        for button in row.findChildren(QPushButton):
            if button.isVisible():
                places.append((button.text(), button.x()))
        return places

    composer.resize(900, 500)
    composer.show()
    composer.show_waiting_messages([(Text("one"),), (Text("two"),)])
    places_before = places_of_one()
    composer.show_waiting_messages([(Text("one"),)])
    # A message that waits alone has no other to pass.
    assert [place for place in places_before if place[0] not in "↑↓"] == places_of_one()
    assert {label for label, _ in places_before} > {"↑", "↓"}


def test_the_row_of_a_waiting_message_has_no_empty_places(composer: Composer) -> None:
    """The words began far behind “When done”, and the buttons ended far from the edge."""
    composer.resize(900, 500)
    composer.show()
    for count, steering_count in ((1, 0), (2, 0), (2, 2), (3, 1)):
        messages = [(Text(f"message {n}"),) for n in range(count)]
        composer.show_waiting_messages(messages, steering_count)
        QApplication.processEvents()
        words_begin: set[int] = set()
        gaps: list[int] = []
        for row in composer.waiting._message_rows:
            (words,) = row.findChildren(OneLineLabel)
            (state,) = [label for label in row.findChildren(QLabel) if label is not words]
            state_end = state.x() + state.fontMetrics().horizontalAdvance(state.text())
            words_begin.add(words.x())
            gaps.append(words.x() - state_end)
            visible = [button for button in row.findChildren(QPushButton) if button.isVisible()]
            assert row.width() - max(button.geometry().right() for button in visible) < 16
        assert len(words_begin) == 1
        assert min(gaps) < 16
