"""The text of a message: keys, history, completion, and what is not typed."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QAction, QInputMethodEvent, QKeyEvent, QKeySequence
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import Text
from helix_desktop.gui.chat.completion_list import (
    CompletionOffer,
    CompletionRequest,
    find_completion_request,
)
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.chat.composer_text import ALT_WRITES, LINES
from helix_desktop.gui.window_actions import WindowAction, declare_actions
from tests.gui.chat.composer_hands import TAKEN, sent


def test_enter_sends_and_empties_shift_enter_breaks_the_line(composer: Composer) -> None:
    spy = sent(composer)
    QTest.keyClicks(composer.text, "first")
    QTest.keyClick(composer.text, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(composer.text, "second")
    assert spy.count() == 0
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    assert spy.at(0)[:2] == [(Text("first\nsecond"),), False]
    assert composer.text.toPlainText() == ""


@pytest.mark.skipif(ALT_WRITES, reason="Option writes letters here")
def test_the_key_of_an_action_that_has_nothing_to_do_writes_no_letter(composer: Composer) -> None:
    QTest.keyClick(composer.text, Qt.Key.Key_Y, Qt.KeyboardModifier.AltModifier)
    QTest.keyClicks(composer.text, "x")
    assert composer.text.toPlainText() == "x"


def test_enter_belongs_to_the_input_method_while_it_composes(composer: Composer) -> None:
    spy = sent(composer)
    QApplication.sendEvent(composer.text, QInputMethodEvent("ni", []))
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    assert spy.count() == 0
    done = QInputMethodEvent("", [])
    done.setCommitString("你")
    QApplication.sendEvent(composer.text, done)
    text = composer.text.toPlainText().strip()
    composer.text.setPlainText(text)
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    assert spy.at(0)[0] == (Text("你"),)


def test_control_enter_steers(composer: Composer) -> None:
    spy = sent(composer)
    QTest.keyClicks(composer.text, "look at the other file first")
    QTest.keyClick(composer.text, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert spy.at(0)[1] is True


def test_with_the_other_setting_enter_breaks_the_line(composer: Composer) -> None:
    composer.text.enter_sends = False
    spy = sent(composer)
    QTest.keyClicks(composer.text, "a")
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    QTest.keyClicks(composer.text, "b")
    assert spy.count() == 0
    QTest.keyClick(composer.text, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert spy.at(0)[:2] == [(Text("a\nb"),), False]


def test_it_grows_to_ten_lines_and_no_further(composer: Composer) -> None:
    heights = []
    for lines in (1, 4, LINES, 40):
        composer.text.setPlainText("\n".join("x" * 3 for _ in range(lines)))
        heights.append(composer.text.sizeHint().height())
    line = composer.text.fontMetrics().lineSpacing()
    assert heights[1] - heights[0] == 3 * line
    assert heights[2] - heights[0] == (LINES - 1) * line
    assert heights[3] == heights[2]


def test_arrow_keys_walk_the_history_and_come_back_to_what_was_begun(composer: Composer) -> None:
    for words in ("first", "second"):
        QTest.keyClicks(composer.text, words)
        QTest.keyClick(composer.text, Qt.Key.Key_Return)
    seen = []
    for key in (Qt.Key.Key_Up, Qt.Key.Key_Up, Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Down):
        QTest.keyClick(composer.text, key)
        seen.append(composer.text.toPlainText())
    assert seen == ["second", "first", "first", "second", ""]


def test_the_arrow_moves_the_cursor_in_a_text_that_was_begun(composer: Composer) -> None:
    QTest.keyClicks(composer.text, "first")
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    QTest.keyClicks(composer.text, "begun")
    QTest.keyClick(composer.text, Qt.Key.Key_Up)
    assert composer.text.toPlainText() == "begun"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("/han", CompletionRequest("/", "han", 0)),
        ("/", CompletionRequest("/", "", 0)),
        ("see @src/lo", CompletionRequest("@", "src/lo", 4)),
        ("@", CompletionRequest("@", "", 0)),
        ("(@a", CompletionRequest("@", "a", 1)),
        ("mail me@example.org", None),
        ("a /command", None),
        ("plain words", None),
        ("/usr/bin", None),
    ],
)
def test_what_is_typed_asks_for_completion(text: str, asked: CompletionRequest | None) -> None:
    assert find_completion_request(text, len(text)) == asked


def test_a_completion_is_taken_with_the_keys_of_the_text(composer: Composer) -> None:
    composer.text.offers_wanted.connect(
        lambda asked: composer.text.show_completion_offers(
            asked,
            [CompletionOffer("table.rs", "@src/lock/table.rs "), CompletionOffer("b", "@src/b ")],
        )
    )
    QTest.keyClicks(composer.text, "see @ta")
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    assert composer.text.toPlainText() == "see @src/lock/table.rs "
    QTest.keyClicks(composer.text, "and @x")
    QTest.keyClick(composer.text, Qt.Key.Key_Down)
    QTest.keyClick(composer.text, Qt.Key.Key_Tab)
    assert composer.text.toPlainText() == "see @src/lock/table.rs and @src/b "


def test_a_late_answer_to_an_old_question_is_dropped(composer: Composer) -> None:
    QTest.keyClicks(composer.text, "@a")
    composer.text.show_completion_offers(
        CompletionRequest("@", "old", 0), [CompletionOffer("late")]
    )
    assert composer.text.completion is None or not composer.text.completion.isVisible()


@pytest.mark.parametrize(
    "action",
    [each for each in declare_actions() if each.shortcut and each.id not in TAKEN],
    ids=lambda a: a.id,
)
def test_no_shortcut_of_the_window_is_swallowed_by_the_text(
    composer: Composer, action: WindowAction
) -> None:
    keys = QKeySequence(action.shortcut)[0]  # type: ignore[index]  # the stubs lack it
    event = QKeyEvent(QEvent.Type.ShortcutOverride, keys.key(), keys.keyboardModifiers())
    event.ignore()
    QApplication.sendEvent(composer.text, event)
    assert not event.isAccepted()


def test_control_end_at_the_end_of_the_text_is_the_windows(composer: Composer) -> None:
    """The defect: "Jump to the newest message" did nothing while the message box had the focus."""
    jump = QAction("Jump", composer, shortcut=QKeySequence("Ctrl+End"))
    composer.addAction(jump)
    jumps = QSignalSpy(jump.triggered)
    QTest.keyClick(composer.text, Qt.Key.Key_End, Qt.KeyboardModifier.ControlModifier)
    assert jumps.count() == 1
    composer.text.setPlainText("one\ntwo")
    QTest.keyClick(composer.text, Qt.Key.Key_End, Qt.KeyboardModifier.ControlModifier)
    assert composer.text.textCursor().atEnd(), "in a text it goes to the end of the text first"
    assert jumps.count() == 1
    QTest.keyClick(composer.text, Qt.Key.Key_End, Qt.KeyboardModifier.ControlModifier)
    assert jumps.count() == 2
