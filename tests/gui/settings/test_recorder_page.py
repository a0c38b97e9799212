"""What the recorder reads of other agents' files."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication, QLabel

from helix_desktop.gui.common.setting_fields import LongTextField
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.settings.recorder_page import RecorderPage
from helix_desktop.program_settings import (
    RECORDER_WITHOUT_AGENTS,
    RECORDER_WITHOUT_FOLDERS,
    ProgramSetting,
    ProgramSettings,
)
from tests.gui.fake_setup import FakeInstallation
from tests.gui.settings.page_widgets import child, said


@pytest.mark.parametrize(
    ("setting", "wrong", "right"),
    [
        (RECORDER_WITHOUT_FOLDERS, "proj", "/work/proj"),
        (RECORDER_WITHOUT_AGENTS, "nonsense", "Claude Code\ngoose"),
    ],
)
def test_what_would_exclude_nothing_from_being_recorded_is_refused(
    window: MainWindow,
    settings: ProgramSettings,
    setting: ProgramSetting[str],
    wrong: str,
    right: str,
) -> None:
    page = ProgramSettingsPage("General", settings, ["Recorder"])
    field = child(page, LongTextField, setting.key)
    assert isinstance(field, LongTextField)
    page.resize(600, 300)
    page.show()
    for text, kept in ((right, right), (f"{right}\n{wrong}", right)):
        field.setPlainText(text)
        field.report_changed_text()
        assert settings[setting] == kept
    (told,) = [label for label in page.findChildren(QLabel) if wrong in label.text()]
    QApplication.processEvents()
    assert not told.visibleRegion().isEmpty(), "it stands below what fits the window"


def test_the_recorder_says_what_of_the_agents_files_is_not_read(
    window: MainWindow, settings: ProgramSettings, program: FakeInstallation
) -> None:
    page = RecorderPage(settings, program, window.background_runner)
    assert "• Codex: 1 file (1.1 MB) is not read: index.db. It stays as it is." in said(page)
