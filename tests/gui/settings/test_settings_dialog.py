"""Seven pages, a search, and few settings in sight."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QCheckBox,
    QComboBox,
    QKeySequenceEdit,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)

from helix_desktop.gui.help_dialog import HelpDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.settings.settings_dialog import GROUP_OF_SECTION, SettingsDialog
from helix_desktop.program_settings import RECORDER, RECORDER_WITHOUT_FOLDERS, ProgramSettings
from tests.gui.fake_setup import FakeInstallation, FakeSetup

PAGES = ("appearance", "providers", "instructions", "policy", "permissions", "servers", "storage")
MOST_SETTINGS = 40
VALUE_WIDGETS = (
    QCheckBox,
    QComboBox,
    QAbstractSpinBox,
    QLineEdit,
    QPlainTextEdit,
    QKeySequenceEdit,
)


@pytest.fixture
def dialog(window: MainWindow) -> SettingsDialog:
    return SettingsDialog(window, FakeSetup(), FakeInstallation())


def test_there_are_seven_pages_that_are_made_when_they_are_looked_at(
    dialog: SettingsDialog,
) -> None:
    assert tuple(dialog._page_factories) == PAGES
    assert dialog._pages == {}
    for name in PAGES:
        dialog.show_settings_page(name)
        assert dialog._buttons[name].isChecked()
        assert dialog.focusWidget() is dialog._buttons[name]
    dialog.show_settings_page("no such page")
    assert dialog._buttons["appearance"].isChecked()


@pytest.mark.parametrize(("section", "page"), GROUP_OF_SECTION.items())
def test_a_section_is_reached_by_its_name(dialog: SettingsDialog, section: str, page: str) -> None:
    dialog.show_settings_page(section)
    assert dialog._buttons[page].isChecked()
    if section not in ("", "workspace", "limits"):
        assert section in dialog._pages[page].sections


def test_few_settings_are_in_sight(dialog: SettingsDialog) -> None:
    """Whatever holds a value counts, also in the forms that add something. The choice for long
    conversations is one, and so is each model.
    """
    names: list[str] = []
    for name in PAGES:
        dialog.show_settings_page(name)
        page = dialog._pages[name]
        for field in page.page_content.findChildren(QWidget):
            holds_value = isinstance(field, VALUE_WIDGETS) and not is_inside_field(field)
            if field.isVisibleTo(page) and holds_value:
                names.append(f"{name}: {type(field).__name__} {field.accessibleName()}")
    names += [f"providers: model for {role}" for role in ("main", "fast", "long")]
    names.append("policy: the choice")
    assert 25 < len(names) <= MOST_SETTINGS, "\n".join(names)


def is_inside_field(widget: QWidget) -> bool:
    return isinstance(widget.parent(), QAbstractSpinBox | QComboBox | QKeySequenceEdit)


def test_the_shortcuts_are_unfolded_when_they_are_looked_for(dialog: SettingsDialog) -> None:
    """They are longer than all other settings together."""
    dialog.show()
    dialog.show_settings_page("appearance")
    page = dialog._pages["appearance"]
    shortcuts = page.page_content.findChildren(QKeySequenceEdit)
    assert shortcuts
    assert not shortcuts[0].isVisibleTo(page)
    dialog.show_settings_page("shortcuts")
    assert shortcuts[0].isVisibleTo(page)


def test_the_search_unfolds_the_shortcuts(dialog: SettingsDialog) -> None:
    dialog.show()
    dialog._search.setText("duplicate conversation")
    page = dialog._pages["appearance"]
    assert page.page_content.findChildren(QKeySequenceEdit)[0].isVisibleTo(page)


def test_what_belongs_to_a_switch_is_shown_while_it_is_on(
    dialog: SettingsDialog, settings: ProgramSettings
) -> None:
    dialog.show_settings_page("recorder")
    page = dialog._pages["appearance"]
    field = page.page_content.findChild(QWidget, RECORDER_WITHOUT_FOLDERS.key)
    assert field is not None
    assert not field.isVisibleTo(page)
    switch = page.page_content.findChild(QCheckBox, RECORDER.key)
    assert switch is not None
    switch.click()
    assert field.isVisibleTo(page)
    assert settings[RECORDER]


def test_what_holds_for_every_workspace_does_not_stand_below_the_name_of_one(
    dialog: SettingsDialog,
) -> None:
    """The switch “Agents may fetch web pages” stood there, and so did the recorder."""
    for page in PAGES:
        dialog.show_settings_page(page)
    program_page = dialog._pages["appearance"]
    assert {"tools", "recorder", "extensions"} <= set(program_page.sections)
    for name in dialog._names_below_heading[dialog._workspace_heading]:
        page_of_workspace = dialog._pages[name]
        for section in page_of_workspace.sections.values():
            if isinstance(section, ProgramSettingsPage):
                assert "in every workspace" in section.title.casefold()


def test_headings_of_one_level_are_of_one_size(dialog: SettingsDialog) -> None:
    """The heading “Appearance” was larger than “Chat” below it."""
    dialog.show_settings_page("appearance")
    looks: dict[str, str] = {}
    for label in dialog._pages["appearance"].page_content.findChildren(QLabel):
        looks[label.text()] = label.property("look")
    sections = ("Appearance", "Chat", "Notifications", "Tools", "Recorder")
    assert {looks[title] for title in sections} == {"title"}
    dialog.show_settings_page("servers")
    for label in dialog._pages["servers"].page_content.findChildren(QLabel):
        looks[label.text()] = label.property("look")
    assert (looks["MCP servers"], looks["Add a server"]) == ("title", "heading")


def test_a_search_shows_the_pages_that_say_it(dialog: SettingsDialog) -> None:
    dialog.show()
    dialog._search.setText("check")
    QApplication.processEvents()
    shown = [name for name, button in dialog._buttons.items() if not button.isHidden()]
    assert "storage" in shown
    assert "permissions" not in shown
    dialog._search.setText("no such words anywhere")
    assert all(button.isHidden() for button in dialog._buttons.values())
    assert dialog._nothing_found.isVisible(), "an empty list looked as if nothing had happened"
    assert "no such words anywhere" in dialog._nothing_found.text()
    assert dialog._nothing_found.alignment() == Qt.AlignmentFlag.AlignCenter
    assert not dialog._stack.isVisible(), "the page shown before is no answer"
    dialog._search.clear()
    assert not dialog._nothing_found.isVisible()
    assert dialog._stack.isVisible()
    assert not any(button.isHidden() for button in dialog._buttons.values())


def test_words_typed_at_the_list_of_pages_and_after_ctrl_f_are_searched_for(
    dialog: SettingsDialog,
) -> None:
    """The words were lost: the list of pages has the focus when the settings open."""
    dialog.show_settings_page("appearance")
    dialog.show()
    assert QTest.qWaitForWindowActive(dialog)
    QTest.keyClicks(dialog.focusWidget(), "s")
    QTest.keyClicks(dialog.focusWidget(), "andbox")
    assert dialog._search.text() == "sandbox"
    dialog._buttons["permissions"].setFocus()
    QTest.keyClick(dialog, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert dialog._search.hasFocus()


def test_a_search_marks_the_place(dialog: SettingsDialog) -> None:
    """The page was found and scrolled, but nothing said which of its lines was meant."""

    def marked_texts() -> list[str]:
        page = dialog._stack.currentWidget()
        assert page is not None
        labels = page.findChildren(QLabel)
        return [label.text() for label in labels if label.property("is_found")]

    dialog._search.setText("phone")
    assert "Phone" in marked_texts()
    assert all("phone" in text.casefold() for text in marked_texts())
    dialog._search.setText("phones browsers")
    assert marked_texts() == ["Show a page for phones and browsers"]
    dialog._search.clear()
    assert marked_texts() == []


def test_no_heading_stands_above_pages_that_the_search_hid(dialog: SettingsDialog) -> None:
    dialog._search.setText("font")
    for heading, names in dialog._names_below_heading.items():
        is_used = any(not dialog._buttons[name].isHidden() for name in names)
        assert heading.isHidden() is not is_used, heading.text()
    dialog._search.setText("no such words anywhere")
    assert all(heading.isHidden() for heading in dialog._names_below_heading)
    dialog._search.clear()
    assert not any(heading.isHidden() for heading in dialog._names_below_heading)


def test_no_setting_is_called_as_the_heading_above_it(dialog: SettingsDialog) -> None:
    for name in dialog._buttons:
        page = dialog._build_page(name)
        for section in page.sections:
            title = page.sections[section].title
            if not isinstance(page.sections[section], ProgramSettingsPage):
                continue  # A switch for a whole section is called as the section.
            labels = page._contents[section].findChildren(QLabel)
            assert [label.text() for label in labels].count(title) <= 1, title


def test_f1_opens_the_help_of_the_page(dialog: SettingsDialog) -> None:
    """The defect: F1 did nothing in the settings."""
    dialog.show()
    dialog.activateWindow()
    assert QTest.qWaitForWindowActive(dialog)
    dialog.show_settings_page("providers")
    QTest.keyClick(dialog._buttons["providers"], Qt.Key.Key_F1)
    (help_dialog,) = dialog.findChildren(HelpDialog)
    assert help_dialog.page.source().fileName() == "keys.md"
