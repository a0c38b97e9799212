"""Instructions and checkpoints of a workspace."""

from __future__ import annotations

from PySide6.QtWidgets import QCheckBox, QPlainTextEdit

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.settings.workspace_settings_pages import CheckpointsPage, InstructionsPage
from helix_desktop.program_settings import INSTRUCTIONS, ProgramSettings
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.settings.page_widgets import child


def test_instructions_are_written_when_the_field_is_left(
    window: MainWindow, bench: FakeWorkbench, settings: ProgramSettings
) -> None:
    page = InstructionsPage(bench, window.background_runner)
    text = child(page, QPlainTextEdit, "instructions")
    assert isinstance(text, QPlainTextEdit)
    page.show()
    text.setPlainText("Answer in French.")
    page.hide()
    assert bench.written == [("instructions", "Answer in French.")]
    general = ProgramSettingsPage("General", settings, ["Instructions"])
    everywhere = child(general, QPlainTextEdit, INSTRUCTIONS.key)
    assert isinstance(everywhere, QPlainTextEdit)
    general.show()
    everywhere.setPlainText("Be brief.\nNo emojis.")
    general.hide()
    assert settings[INSTRUCTIONS] == "Be brief.\nNo emojis."


def test_checkpoints_are_turned_off_and_kept_for_some_days(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    page = CheckpointsPage(bench, window.background_runner)
    on = child(page, QCheckBox, "off")
    always = child(page, QCheckBox, "always")
    assert isinstance(on, QCheckBox)
    assert isinstance(always, QCheckBox)
    on.click()
    always.click()
    always.click()
    assert bench.written == [
        ("changes.off", True),
        ("copies.always", True),
        ("copies.always", None),
    ]
