"""The question before something from elsewhere takes effect."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QPushButton, QWidget

import helix_desktop.gui
from helix_desktop.gui.chat.trust_dialog import TrustDialog
from helix_desktop.gui.common.consent_dialog import ConsentDialog, ConsentQuestion
from helix_desktop.gui.common.consent_text_view import ExactTextView
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.question_dialogs import (
    DialogChoice,
    ask_allow_all,
    ask_allow_all_for_an_hour,
    ask_to_choose_one,
    ask_to_confirm,
    ask_to_forget_keys,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.project.project_item import ProjectItem

Agree = Callable[..., object]
OpenDialog = Callable[[Theme, QWidget, Agree], QDialog]
LONG_COMMAND = "npx some-server --option value-with-many-letters " * 8


@pytest.mark.parametrize("text", ["nosuchcommand --x", "a\nb\nc\nd", LONG_COMMAND])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_the_field_of_a_short_text_is_as_high_as_its_lines(
    theme: Theme, text: str, zoom: float
) -> None:
    """One line stood in a field of 17."""
    theme.set_zoom(zoom)
    parent = QWidget()
    try:
        question = ConsentQuestion("Add MCP server", "Add this server?", text, "Add")
        dialog = ConsentDialog(theme, question, parent, bool)
        dialog.show()
        QApplication.processEvents()
        (view,) = dialog.findChildren(ExactTextView)
        assert view.verticalScrollBar().maximum() == 0
        line_height = view.fontMetrics().lineSpacing()
        assert view.height() < view.sizeHint().height() + 2 * line_height
        assert view.is_end_seen
        dialog.reject()
    finally:
        theme.set_zoom(1.0)
        parent.deleteLater()


def test_a_long_text_has_room_and_scrolls(theme: Theme) -> None:
    parent = QWidget()
    question = ConsentQuestion("Allow", "Allow this?", "a line\n" * 300, "Allow")
    dialog = ConsentDialog(theme, question, parent, bool)
    dialog.show()
    QApplication.processEvents()
    (view,) = dialog.findChildren(ExactTextView)
    assert view.height() > 8 * view.fontMetrics().lineSpacing()
    assert not view.is_end_seen
    dialog.reject()
    parent.deleteLater()


def consent(theme: Theme, parent: QWidget, agree: Agree, **buttons: str) -> QDialog:
    question = ConsentQuestion("Title", "Do this?", "the text", "Agree", **buttons)
    return ConsentDialog(theme, question, parent, agree)


def trust(theme: Theme, parent: QWidget, agree: Agree) -> QDialog:
    item = ProjectItem("rules", "AGENTS.md", Path("/x/AGENTS.md"), "Be kind.", "")
    return TrustDialog(theme, [item], agree, parent)


SAFE_BY_DEFAULT: dict[str, OpenDialog] = {
    "server, extension, connection": consent,
    "imported settings": lambda theme, parent, agree: consent(
        theme, parent, agree, no="Discard", later="Decide later"
    ),
    "rules of a folder": trust,
    "confirm": lambda _, parent, agree: ask_to_confirm(parent, "Title", "Text", "Yes", agree),
    "forget keys": lambda _, parent, agree: ask_to_forget_keys(parent, ["ab…yz"], agree),
    "everything": lambda _, parent, agree: ask_allow_all(parent, agree),
    "an hour": lambda _, parent, agree: ask_allow_all_for_an_hour(parent, agree),
    "quit": lambda _, parent, agree: ask_to_choose_one(
        parent, "Quit", "Text", [DialogChoice("On", agree), DialogChoice("Stop", agree)]
    ),
}
USUAL_BY_DEFAULT: dict[str, OpenDialog] = {
    "usual choice": lambda _, parent, agree: ask_to_choose_one(
        parent, "Title", "Text", [DialogChoice("Usual", agree)], is_first_usual=True
    ),
    "fields": lambda _, parent, agree: FieldsDialog("Title", [], "Save", agree, parent),
}


@pytest.mark.parametrize("name", [*SAFE_BY_DEFAULT, *USUAL_BY_DEFAULT])
def test_enter_presses_the_button_that_looks_so(theme: Theme, name: str) -> None:
    """The filled “Add” looked like the default, and Enter cancelled, without a word."""
    open_dialog = (SAFE_BY_DEFAULT | USUAL_BY_DEFAULT)[name]
    agreed: list[object] = []
    pressed: list[str] = []
    parent = QWidget()
    dialog = open_dialog(theme, parent, lambda *_: agreed.append(1))
    dialog.show()
    assert QTest.qWaitForWindowExposed(dialog)
    buttons = dialog.findChildren(QPushButton)
    (filled,) = [button for button in buttons if button.property("look") == "primary"]
    assert filled.isDefault()
    for button in buttons:
        button.clicked.connect(partial(pressed.append, button.text()))
    QTest.keyClick(dialog, Qt.Key.Key_Return)
    assert pressed == [filled.text()]
    assert bool(agreed) is (name in USUAL_BY_DEFAULT)
    parent.deleteLater()


def test_a_default_button_is_made_in_one_place() -> None:
    gui = Path(helix_desktop.gui.__file__).parent
    making = re.compile(
        r"\.setDefault\(True|\.setDefaultButton\(|build_push_button\([^)]*default=True"
    )
    places: set[str] = set()
    for file in gui.rglob("*.py"):
        if making.search(file.read_text()):
            places.add(file.relative_to(gui).as_posix())
    assert places == {"theme.py", "question_dialogs.py"}
