"""Several subjects below each other on one page of the settings."""

from __future__ import annotations

from PySide6.QtWidgets import QApplication, QLabel

from helix_desktop.gui.settings.settings_group_page import SettingsGroupPage
from helix_desktop.gui.settings.settings_page import SettingsPage


def build_section() -> SettingsPage:
    section = SettingsPage("Colours")
    section.add_sentence("Dark or light.")
    return section


def test_a_section_shows_its_content_on_the_page_and_nothing_of_its_own(
    application: QApplication,
) -> None:
    page = SettingsGroupPage("Appearance", {"colours": build_section})
    page.resize(400, 300)
    page.show()
    section = page.sections["colours"]
    assert not section.isVisible()
    (sentence,) = [label for label in page.findChildren(QLabel) if label.text() == "Dark or light."]
    assert sentence.isVisible()
    wanted: list[str] = []
    page.wanted.connect(wanted.append)
    section.wanted.emit("models")
    assert wanted == ["models"]
    page.close()
