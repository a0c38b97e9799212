"""The version, and what the doctor says."""

from __future__ import annotations

from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.about_page import AboutPage
from helix_desktop.gui.settings.settings_group_page import SettingsGroupPage
from helix_desktop.gui.settings.settings_page import SettingsPage
from tests.gui.fake_setup import FakeInstallation
from tests.gui.settings.page_widgets import said


def test_about_shows_the_version_and_what_the_doctor_says(
    window: MainWindow, program: FakeInstallation
) -> None:
    page = AboutPage(program, window.background_runner)
    assert "Helix Desktop" in said(page)
    page.show()
    QApplication.processEvents()
    QApplication.processEvents()
    assert "1 of 2 checks found no problem. Below is what the rest found:" in said(page)
    assert "✕ Keyring: There is none. Install one." in said(page)


def test_the_checks_wait_until_somebody_looks_at_them(
    window: MainWindow, program: FakeInstallation
) -> None:
    """They held up the settings window, which stayed see-through meanwhile."""
    sections = {"about": lambda: AboutPage(program, window.background_runner)}
    page = SettingsGroupPage("General", {"tall": build_tall_section, **sections})
    page.resize(600, 300)
    page.show()
    QApplication.processEvents()
    assert "checks found" not in said(page)
    page.scroll_to_section("about")
    QApplication.processEvents()
    QApplication.processEvents()
    assert "checks found" in said(page)
    page.close()


def build_tall_section() -> SettingsPage:
    section = SettingsPage("Tall")
    section.add_page_widget(QWidget()).setFixedHeight(2_000)
    return section
