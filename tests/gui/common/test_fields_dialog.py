"""What is typed into a dialog that has just opened goes into its first field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPlainTextEdit, QPushButton, QWidget

from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.setting_fields import FieldDeclaration
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
