"""The version, and what the doctor says."""

from __future__ import annotations

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.about_page import AboutPage
from tests.gui.fake_setup import FakeInstallation
from tests.gui.settings.page_widgets import said


def test_about_shows_the_version_and_what_the_doctor_says(
    window: MainWindow, program: FakeInstallation
) -> None:
    page = AboutPage(program, window.background_runner)
    assert "Helix Desktop" in said(page)
    assert "1 check found no problem." in said(page), "fourteen lines said that all was well"
    assert "✕ Keyring: There is none. Install one." in said(page)
