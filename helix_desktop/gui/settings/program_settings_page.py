"""Pages built from program_settings.py: one row for each setting, grouped by section."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from helix_desktop import program_settings
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value, build_field_row
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


class ProgramSettingsPage(SettingsPage):
    """Shows the settings of some sections. Each change takes effect and is saved at once."""

    def __init__(self, title: str, settings: ProgramSettings, sections: Sequence[str]) -> None:
        super().__init__(title)
        self._settings = settings
        for section in sections:
            # The shortcuts have a page of their own.
            in_window = [setting for setting in ALL if setting.in_window]
            shown: list[ProgramSetting[Any]] = []
            for setting in in_window:
                if setting.section == section and setting is not SHORTCUTS:
                    shown.append(setting)
            if len(sections) > 1 and shown:
                self.add_heading(tr(section))
            for setting in shown:
                self.add_page_widget(self._build_setting_row(setting))
        self._error_label = self.add_sentence("", "danger")
        self._error_label.hide()

    def _build_setting_row(self, setting: ProgramSetting[Any]) -> QWidget:
        sentence = tr(setting.sentence)
        if setting.restart:
            sentence = f"{sentence} {tr('Takes effect after a restart.')}"
        words_of_choices: list[str] = []
        for choice in setting.choices:
            words = LANGUAGES.get(choice) or translate_name(
                "choice of a setting", choice, otherwise=choice
            )
            words_of_choices.append(words)
        unit = ""
        if setting.unit:
            unit = tr(setting.unit)
        unset = ""
        if setting.font:
            unset = tr("Default")
        title = tr(setting.title)
        if title == self.title:
            title = ""  # The heading above says it already.
        declared = FieldDeclaration(
            setting.key,
            title,
            sentence,
            self._settings[setting],
            setting.choices,
            words_of_choices,
            setting.least or 0,
            setting.most or 0,
            unit,
            unset,
            long=setting.long,
            font=setting.font,
        )
        if setting is ASK_ABOVE:
            return self._build_money_row(declared)
        return build_field_row(declared, partial(self._change_setting, setting), self.page_content)

    def _build_money_row(self, in_cents: FieldDeclaration) -> QWidget:
        """Shows an amount in dollars, as everywhere. The file has cents, which are whole numbers."""
        cents = self._settings[ASK_ABOVE]
        in_dollars = replace(
            in_cents, value=cents / CENTS, most=in_cents.most / CENTS, unset=tr("Never")
        )

        def change_cents(dollars: Value) -> None:
            self._change_setting(ASK_ABOVE, round(float(dollars) * CENTS))

        return build_field_row(in_dollars, change_cents, self.page_content)

    def _change_setting(self, setting: ProgramSetting[Any], value: Value) -> None:
        self._error_label.hide()
        try:
            _check_exclusions(setting, str(value).split("\n"))
            self._settings.change_setting(setting, value)
        except HelixError as error:
            self._error_label.setText(translate_sentences(str(error)))
            self._error_label.show()
            # The label can be scrolled to once it has its place.
            QTimer.singleShot(0, self, lambda: self.ensureWidgetVisible(self._error_label))


def _check_exclusions(setting: ProgramSetting[Any], lines: Sequence[str]) -> None:
    """Raises InvalidInput if a line would keep nothing from being recorded."""
    if setting is program_settings.RECORDER_WITHOUT_AGENTS:
        history_kinds_of_agents([line.strip() for line in lines if line.strip()])
    if setting is not program_settings.RECORDER_WITHOUT_FOLDERS:
        return
    for line in lines:
        path = line.strip()
        if path and not Path(path).expanduser().is_absolute():
            raise InvalidInput(tr("{path} is not a full path. Nothing was changed.", path=path))
