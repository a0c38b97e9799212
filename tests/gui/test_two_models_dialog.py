from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QMessageBox

from helix_desktop.engine.changes.turn_changes import UncoveredPath
from helix_desktop.engine.facts import Text
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.two_models_dialog import TwoModelsDialog
from helix_desktop.program_settings import ASK_ABOVE
from tests.gui import story
from tests.gui.fake_desk import FakeSession, FakeWorkbench
from tests.gui.fake_setup import QWEN, SONNET, FakeSetup


def test_one_question_is_answered_by_two_models_and_one_of_them_is_continued(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.main_model_name = SONNET.name
    window.begin_new_conversation()
    dialog = TwoModelsDialog(window, FakeSetup(), bench, (Text("Which lock is fairer?"),))
    dialog.show()
    first, second = dialog.columns
    assert (first.model, second.model) == (SONNET.name, QWEN.name)
    before = set(bench.rows)
    QTest.mouseClick(dialog._ask, Qt.MouseButton.LeftButton)
    made = [row for name, row in bench.rows.items() if name not in before]
    assert [row.title for row in made] == [
        "Which lock is fairer? · claude-sonnet",
        "Which lock is fairer? · qwen3",
    ]
    assert [bench.own[row.id] for row in made] == [SONNET.name, QWEN.name]
    assert first.session is not None
    assert second.session is not None
    for column, answer in ((first, "The ticket lock."), (second, "The queue lock.")):
        assert column.is_answering
        column.session.finish(answer)  # type: ignore[union-attr]
        column.bridge.emit_waiting_events()
    assert not dialog._ask.isEnabled()
    dialog._text.setPlainText("And which is faster?")
    assert dialog._ask.isEnabled()
    QTest.mouseClick(second.continue_button, Qt.MouseButton.LeftButton)
    assert window.current_session is second.session
    assert window.current_model == QWEN.name
    assert bench.main_model_name == SONNET.name


def test_two_models_are_asked_at_the_price_of_both(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSession, "first_price", 0.30)
    window.settings.change_setting(ASK_ABOVE, 50)
    bench.main_model_name = SONNET.name
    window.begin_new_conversation()
    dialog = TwoModelsDialog(window, FakeSetup(), bench, (Text("Which lock is fairer?"),))
    dialog.show()
    QTest.mouseClick(dialog._ask, Qt.MouseButton.LeftButton)
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    assert "about $0.600" in box.text()
    assert not any(column.is_answering for column in dialog.columns)
    box.reject()
    assert dialog._text.toPlainText() == "Which lock is fairer?"
    assert dialog._ask.isEnabled()
    QTest.mouseClick(dialog._ask, Qt.MouseButton.LeftButton)
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    next(each for each in box.buttons() if each.text() == "Send").click()
    assert all(column.is_answering for column in dialog.columns)
    assert dialog._text.toPlainText() == ""


def test_the_same_model_twice_is_no_question_to_two(window: MainWindow, bench: FakeWorkbench) -> None:
    dialog = TwoModelsDialog(window, FakeSetup(), bench, (Text("Which?"),))
    dialog.columns[0].show_model_name(QWEN.name)
    dialog.columns[1].show_model_name(QWEN.name)
    dialog._enable_ask_button()
    assert not dialog._ask.isEnabled()
    dialog.close()


def test_a_card_says_what_an_undo_does_not_cover(window: MainWindow, bench: FakeWorkbench) -> None:
    bench.main_model_name = SONNET.name
    bench.file_changes.left = [UncoveredPath("node_modules/", "node_modules/")]
    dialog = TwoModelsDialog(window, FakeSetup(), bench, (Text("Which?"),))
    QTest.mouseClick(dialog._ask, Qt.MouseButton.LeftButton)
    column = dialog.columns[0]
    column.session.ask(PermissionQuestion(story.call(1, "run_command", command="make"), "Run", "make", ""))  # type: ignore[union-attr]
    column.bridge.emit_waiting_events()
    assert column._approvals.visible_card is not None
    words = [label.text() for label in column._approvals.visible_card.findChildren(QLabel)]
    assert "Undo does not cover: node_modules/" in words
    dialog.close()
