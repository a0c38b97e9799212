"""Pages built from program_settings.py: one row for each setting, grouped by section."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QWidget

from helix_desktop import program_settings
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value, build_field_row
from helix_desktop.gui.common.widgets import run_after_events
from helix_desktop.gui.deep_links import open_in_desktop_program
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.histories.program_names import history_kinds_of_agents
from helix_desktop.program_settings import (
    ALL,
    ASK_ABOVE,
    LANGUAGES,
    SHORTCUTS,
    ProgramSetting,
    ProgramSettings,
)

CENTS = 100  # In a dollar.
RESTART = "restart"  # What a page wants when the user presses "Restart now".


class ProgramSettingsPage(SettingsPage):
    """Shows the settings of some sections. Each change takes effect and is saved at once."""

    def __init__(self, title: str, settings: ProgramSettings, sections: Sequence[str]) -> None:
        super().__init__(title)
        self._settings = settings
        self._rows_by_switch: dict[str, list[QWidget]] = {}
        self._restart_buttons: dict[str, QWidget] = {}  # By the setting that needs a restart.
        for section in sections:
            settings_of_section: list[ProgramSetting[Any]] = []
            for setting in ALL:
                # The shortcuts have a page of their own.
                is_shown_here = setting.in_window and setting is not SHORTCUTS
                if is_shown_here and setting.section == section:
                    settings_of_section.append(setting)
            if len(sections) > 1 and settings_of_section:
                self.add_heading(tr(section))
            for setting in settings_of_section:
                row = self.add_page_widget(self._build_setting_row(setting))
                if setting.restart:
                    self._add_restart_button(setting)
                if setting.shown_while:
                    self._rows_by_switch.setdefault(setting.shown_while, []).append(row)
        self._error_label = self.add_sentence("", "danger")
        self._error_label.hide()
        self._show_rows_of_switches()

    def add_link_to_settings_file(self) -> None:
        """Adds where the settings are that the window does not show."""
        self.add_sentence(tr("Everything else can be set in the program's settings file."), "faint")
        self.add_page_button(tr("Open file"), self._open_file_of_program, "link")

    def _open_file_of_program(self) -> None:
        self._settings.create_file_if_missing()
        open_in_desktop_program(self._settings.settings_path)

    def _show_rows_of_switches(self) -> None:
        """Shows what belongs to a switch only while that is on."""
        for setting in ALL:
            for row in self._rows_by_switch.get(setting.key, []):
                row.setVisible(self._settings[setting])

    def _add_restart_button(self, setting: ProgramSetting[Any]) -> None:
        """Adds a button that is shown once the setting was changed."""
        button = self.add_page_button(tr("Restart now"), partial(self.wanted.emit, RESTART))
        button.hide()
        self._restart_buttons[setting.key] = button

    def _build_setting_row(self, setting: ProgramSetting[Any]) -> QWidget:
        """Builds the row in which a setting is shown and changed. A change is saved at once."""
        sentence = tr(setting.sentence)
        if setting.restart:
            sentence = f"{sentence} {tr('Takes effect after a restart.')}"
        title = tr(setting.title)
        if title == self.title:
            title = ""  # The heading above says it already.
        unit = ""
        if setting.unit:
            unit = tr(setting.unit)
        label_if_unset = ""
        if setting.font:
            label_if_unset = tr("Default")
        field = FieldDeclaration(
            setting.key,
            title,
            sentence,
            self._settings[setting],
            setting.choices,
            [_name_choice(choice) for choice in setting.choices],
            setting.least or 0,
            setting.most or 0,
            unit,
            label_if_unset,
            long=setting.long,
            font=setting.font,
        )
        if setting is ASK_ABOVE:
            return self._build_money_row(field)
        return build_field_row(field, partial(self._change_setting, setting), self.page_content)

    def _build_money_row(self, in_cents: FieldDeclaration) -> QWidget:
        """Shows an amount in dollars, as everywhere. The file has cents, which are whole numbers."""
        cents = self._settings[ASK_ABOVE]
        in_dollars = replace(
            in_cents, value=cents / CENTS, most=in_cents.most / CENTS, unset=tr("Never")
        )

        return build_field_row(in_dollars, self._change_price_limit, self.page_content)

    def _change_price_limit(self, dollars: Value) -> None:
        cents = round(float(dollars) * CENTS)
        if cents == 0 and float(dollars) > 0:
            self._show_error(
                tr(
                    "The smallest amount is {amount}. Nothing was changed.",
                    amount=format_dollars(1 / CENTS),
                )
            )
            return
        self._change_setting(ASK_ABOVE, cents)

    def _change_setting(self, setting: ProgramSetting[Any], value: Value) -> None:
        self._error_label.hide()
        try:
            _check_exclusions(setting, str(value).split("\n"))
            self._settings.change_setting(setting, value)
            self._show_rows_of_switches()
            if setting.restart:
                self._restart_buttons[setting.key].show()
        except HelixError as error:
            self._show_error(translate_sentences(str(error)))

    def _show_error(self, sentence: str) -> None:
        self._error_label.setText(sentence)
        self._error_label.show()
        # The label can be scrolled to once it has its place.
        run_after_events(self, self._scroll_to_error)

    def _scroll_to_error(self) -> None:
        self.ensureWidgetVisible(self._error_label)


def _name_choice(choice: str) -> str:
    # Each language is called by its own name, whatever the language of the window.
    if choice in LANGUAGES:
        return LANGUAGES[choice]
    return translate_name("choice of a setting", choice, otherwise=choice)


def _check_exclusions(setting: ProgramSetting[Any], lines: Sequence[str]) -> None:
    """Raises InvalidInput if a line would keep nothing from being recorded."""
    entries: list[str] = []
    for line in lines:
        if line.strip():
            entries.append(line.strip())
    if setting is program_settings.RECORDER_WITHOUT_AGENTS:
        history_kinds_of_agents(entries)
    if setting is program_settings.RECORDER_WITHOUT_FOLDERS:
        for path in entries:
            if not Path(path).expanduser().is_absolute():
                raise InvalidInput(tr("{path} is not a full path. Nothing was changed.", path=path))
