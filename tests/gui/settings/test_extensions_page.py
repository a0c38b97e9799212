"""Extensions in the settings: their state, Allow with what it means, Off, and a refusal."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from helix_desktop.gui.common.consent_dialog import ConsentDialog
from helix_desktop.gui.common.consent_text_view import ExactTextView
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.extensions_page import ExtensionsPage
from tests.gui.fake_setup import FakeExtensions


@pytest.fixture
def extensions() -> FakeExtensions:
    return FakeExtensions()


@pytest.fixture
def page(window: MainWindow, extensions: FakeExtensions) -> ExtensionsPage:
    made = ExtensionsPage(window.theme, extensions, window.background_runner)
    made.setParent(window)
    return made


def texts(shown: QWidget) -> str:
    return "\n".join(label.text() for label in shown.findChildren(QLabel))


def press(shown: QWidget, name: str) -> None:
    for button in shown.findChildren(QPushButton):
        if name in (button.text(), button.accessibleName()):
            button.click()
            return
    pytest.fail(f"there is no button {name}")


def state_of(extensions: FakeExtensions, name: str) -> str:
    (state,) = [each.state for each in extensions.known if each.name == name]
    return state


def test_each_extension_is_listed_with_its_state_and_why(page: ExtensionsPage) -> None:
    shown = texts(page.page_content)
    assert "words · helix-words 1.0" in shown
    assert "Off, because it has changed since you allowed it" in shown
    assert "Switched off: its module raised KeyError: 7" in shown
    assert "Allowed" in shown


def test_an_extension_is_allowed_after_the_question_says_what_it_can_do(
    page: ExtensionsPage, extensions: FakeExtensions
) -> None:
    press(page.page_content, "Allow words…")
    (dialog,) = page.findChildren(ConsentDialog)
    assert "can do everything that you can do" in texts(dialog)
    (exact,) = dialog.findChildren(ExactTextView)
    assert "Package: helix-words 1.0" in exact.toPlainText()
    assert "ab" * 32 in exact.toPlainText()
    assert state_of(extensions, "words") == "off"
    press(dialog, "Allow")
    assert state_of(extensions, "words") == "allowed"
    assert "It runs once you start Helix Desktop again." in texts(page.page_content)


def test_an_extension_is_switched_off(page: ExtensionsPage, extensions: FakeExtensions) -> None:
    press(page.page_content, "Switch off films")
    assert state_of(extensions, "films") == "off"


def test_what_changed_since_it_was_shown_is_not_allowed(
    page: ExtensionsPage, extensions: FakeExtensions
) -> None:
    press(page.page_content, "Allow old…")
    (dialog,) = page.findChildren(ConsentDialog)
    press(dialog, "Allow")
    assert state_of(extensions, "old") == "changed"
    assert "so it was not allowed" in texts(page.page_content)
