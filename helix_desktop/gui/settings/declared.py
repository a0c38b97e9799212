"""Pages made from the settings of the program (settings.py): one row for each declaration, grouped by its section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtWidgets import QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.settings.fields import Declared, Value, row
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.words import tr
from helix_desktop.settings import ALL, ASK_ABOVE, LANGUAGES, SHORTCUTS, Setting, Settings


class DeclaredPage(Page):
    """The settings of some sections. A change is in force and written at once."""

    def __init__(self, title: str, settings: Settings, sections: Sequence[str]) -> None:
        super().__init__(title)
        self._settings = settings
        for section in sections:
            shown = [each for each in ALL if each.section == section and each is not SHORTCUTS]
            if len(sections) > 1 and shown:
                self.heading(tr(section))
            for setting in shown:
                self.add(self._row(setting))
        self._wrong = self.sentence("", "danger")
        self._wrong.hide()

    def _row(self, setting: Setting[Any]) -> QWidget:
        sentence = tr(setting.sentence)
        if setting.restart:
            sentence = f"{sentence} {tr('Takes effect after a restart.')}"
        declared = Declared(
            setting.key,
            tr(setting.title),
            sentence,
            self._settings[setting],
            setting.choices,
            [choice_words(choice) for choice in setting.choices],
            setting.least or 0,
            setting.most or 0,
            tr(setting.unit) if setting.unit else "",
            tr("System font") if setting.font else tr("Never") if setting is ASK_ABOVE else "",
            long=setting.long,
            font=setting.font,
        )
        return row(declared, lambda value: self._change(setting, value), self.inside)

    def _change(self, setting: Setting[Any], value: Value) -> None:
        try:
            self._settings.change(setting, value)
        except HelixError as error:
            self._wrong.setText(said(str(error)))
            self._wrong.show()
        else:
            self._wrong.hide()


def choice_words(choice: str) -> str:
    """A choice of a setting as people read it."""
    known = {
        "system": tr("System"),
        "light": tr("Light"),
        "dark": tr("Dark"),
        "enter": tr("Enter"),
        "ctrl+enter": tr("Ctrl+Enter"),
    }
    return LANGUAGES.get(choice) or known.get(choice) or choice
