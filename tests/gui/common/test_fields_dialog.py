"""What is typed into a dialog that has just opened goes into its first field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QPlainTextEdit, QPushButton, QWidget

from helix_desktop.gui import translation
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.setting_fields import FieldDeclaration, RefusedValueLine
from helix_desktop.gui.fleet.fleet_rows import declare_schedule_fields, declare_task_fields
from helix_desktop.gui.theme import Theme


@pytest.fixture
def owner(theme: Theme) -> Iterator[QWidget]:
    widget = QWidget()
    yield widget
    widget.close()


def open_dialog(
    owner: QWidget, fields: Sequence[FieldDeclaration]
) -> tuple[FieldsDialog, list[object]]:
    saved: list[object] = []
    dialog = FieldsDialog("Title", fields, "Add", saved.append, owner)
    dialog.show()
    assert QTest.qWaitForWindowActive(dialog)
    return dialog, saved


def test_what_is_typed_at_once_is_what_to_do_and_presses_no_button(owner: QWidget) -> None:
    dialog, saved = open_dialog(owner, declare_task_fields({"w": "Workspace"}))
    QTest.keyClicks(dialog.focusWidget(), "say hello please")
    text = dialog.findChild(QPlainTextEdit, "text")
    assert text is not None
    assert text.toPlainText() == "say hello please"
    assert not saved


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(declare_task_fields({"w": "Workspace"}), id="task"),
        pytest.param(declare_schedule_fields(), id="schedule"),
        pytest.param([FieldDeclaration("name", "Name", "", "")], id="line"),
        pytest.param([FieldDeclaration("count", "Count", "", 5, most=9)], id="number"),
    ],
)
def test_the_keyboard_starts_in_the_first_field(
    owner: QWidget, fields: Sequence[FieldDeclaration]
) -> None:
    dialog, _ = open_dialog(owner, fields)
    focused = dialog.focusWidget()
    assert not isinstance(focused, QPushButton)
    assert focused is dialog.findChild(QWidget, fields[0].name)


def test_letters_in_a_number_are_said_before_the_dialog_saves_and_closes(owner: QWidget) -> None:
    """A price in letters was not taken, without a word, and Enter saved the old one."""
    price = FieldDeclaration("price", "Price", "", 3.0, most=100.0)
    dialog, saved = open_dialog(owner, [price])
    field = dialog.findChild(QWidget, "price")
    assert field is not None
    QTest.keyClicks(field, "abc")
    QTest.keyClick(field, Qt.Key.Key_Return)
    (refused_line,) = dialog.findChildren(RefusedValueLine)
    assert refused_line.isVisible()
    assert "was not saved. Enter a number from 0 to 100." in refused_line.text()
    assert (dialog.isVisible(), saved) == (True, [])

    assert field.hasFocus()
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert (dialog.isVisible(), saved) == (False, [{"price": 3.0}])


@pytest.mark.parametrize("language", ["en", "de", "zh_CN"])
def test_the_choices_of_a_new_task_begin_below_each_other(
    owner: QWidget, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if language != "en":
        path = translation.translation_catalogue_path(language)
        monkeypatch.setattr(translation, "_translations", json.loads(path.read_text("utf-8")))
    dialog, _saved = open_dialog(owner, declare_task_fields({"w": "Workspace", "v": "Other"}))
    choices = dialog.findChildren(QComboBox)
    assert len(choices) == 2
    lefts = {choice.mapTo(dialog, QPoint()).x() for choice in choices}
    assert len(lefts) == 1


def test_a_choice_with_a_long_text_ends_within_the_dialog(owner: QWidget) -> None:
    """The right edges of all choices of a new task were cut off by the name of a model."""
    name = "a-model-with-a-name-" * 6
    dialog, _saved = open_dialog(owner, declare_task_fields({"w": "Workspace"}, [name]))
    choices = dialog.findChildren(QComboBox)
    assert len({choice.width() for choice in choices}) == 1
    for width in (600, 460):
        dialog.resize(width, 500)
        QApplication.processEvents()
        for choice in choices:
            right = choice.mapTo(dialog, QPoint(choice.width(), 0)).x()
            assert right <= dialog.width() - 20
            assert choice.visibleRegion().boundingRect().width() == choice.width()
