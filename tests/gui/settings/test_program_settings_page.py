"""The settings of the program: each has a row and changes at once."""

from __future__ import annotations

from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QFontComboBox,
    QLabel,
    QPushButton,
    QSpinBox,
    QWidget,
)

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.program_settings_page import RESTART, ProgramSettingsPage
from helix_desktop.gui.settings.settings_dialog import GENERAL_SECTIONS
from helix_desktop.program_settings import (
    ALL,
    ASK_ABOVE,
    CODE_FONT,
    LANGUAGE,
    LOG_SIZE,
    NOTIFY_DONE,
    THEME,
    ZOOM,
    ProgramSettings,
)
from tests.gui.settings.page_widgets import child, choose, said


def test_every_setting_of_the_program_has_a_row_and_changes_at_once(
    window: MainWindow, settings: ProgramSettings
) -> None:
    appearance = ProgramSettingsPage("Appearance", settings, ["Appearance"])
    general = ProgramSettingsPage("General", settings, GENERAL_SECTIONS)
    names = {
        each.objectName()
        for page in (appearance, general)
        for each in page.page_content.findChildren(QWidget)
    }
    in_these = {"Appearance", "Chat", "Notifications"}
    assert {each.key for each in ALL if each.section in in_these and each.in_window} <= names
    box = child(appearance, QComboBox, THEME.key)
    assert isinstance(box, QComboBox)
    choose(box, "dark")
    zoom = child(appearance, QSpinBox, ZOOM.key)
    assert isinstance(zoom, QSpinBox)
    zoom.setValue(150)
    check = child(general, QCheckBox, NOTIFY_DONE.key)
    assert isinstance(check, QCheckBox)
    check.setChecked(False)
    assert (settings[THEME], settings[ZOOM], settings[NOTIFY_DONE]) == ("dark", 150, False)
    assert (zoom.minimum(), zoom.maximum()) == (ZOOM.least, ZOOM.most)
    assert check.accessibleName() == NOTIFY_DONE.title


def test_a_value_that_is_not_allowed_is_said(window: MainWindow, settings: ProgramSettings) -> None:
    page = ProgramSettingsPage("General", settings, ["Chat"])
    page._change_setting(LOG_SIZE, 5_000)
    assert "logs.size must be" in said(page)
    assert settings[LOG_SIZE] == LOG_SIZE.default


def test_a_font_is_chosen_from_those_of_the_system(
    window: MainWindow, settings: ProgramSettings
) -> None:
    page = ProgramSettingsPage("Appearance", settings, ["Appearance"])
    fonts = child(page, QFontComboBox, CODE_FONT.key)
    assert isinstance(fonts, QFontComboBox)
    assert fonts.currentText() == "Default"
    assert fonts.count() > 1
    fonts.activated.emit(1)
    assert settings[CODE_FONT] == fonts.itemText(1)
    fonts.activated.emit(0)
    assert settings[CODE_FONT] == ""


def test_money_is_shown_in_dollars(window: MainWindow, settings: ProgramSettings) -> None:
    settings.change_setting(ASK_ABOVE, 50)
    page = ProgramSettingsPage("Before", settings, ["Long conversations"])
    field = child(page, QDoubleSpinBox, ASK_ABOVE.key)
    assert isinstance(field, QDoubleSpinBox)
    assert field.value() == 0.5
    field.setValue(1.25)
    assert settings[ASK_ABOVE] == 125
    field.setValue(0.001)
    assert settings[ASK_ABOVE] == 125, "it was 0, which means never"
    assert "The smallest amount is $0.010. Nothing was changed." in [
        label.text() for label in page.findChildren(QLabel) if not label.isHidden()
    ]


def test_after_another_language_was_chosen_a_restart_is_offered(
    window: MainWindow, settings: ProgramSettings
) -> None:
    """It only said that the change takes effect after one."""
    page = ProgramSettingsPage("Appearance", settings, ["Appearance"])
    (button,) = [each for each in page.findChildren(QPushButton) if each.text() == "Restart now"]
    assert button.isHidden()
    languages = child(page, QComboBox, LANGUAGE.key)
    assert isinstance(languages, QComboBox)
    languages.setCurrentIndex(languages.findText("Deutsch"))
    languages.activated.emit(languages.currentIndex())
    assert settings[LANGUAGE] == "de"
    assert not button.isHidden()
    wanted = QSignalSpy(page.wanted)
    button.click()
    assert wanted.at(0) == [RESTART]
