"""Words of the interface, in the user's language.

Every string a person reads goes through `tr`, in English, with `{name}` for what is put in. A language is one JSON
file in `resources/translations` from the English to the other text; tests/gui/test_words.py finds every `tr("…")` of
the package and holds each catalogue to be complete and to keep the names in braces.
"""

from __future__ import annotations

import json
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QObject, QTranslator

from helix_desktop import resources

LANGUAGES = {"en": "English", "zh_CN": "简体中文"}
_CONTEXT = "helix"


def tr(text: str, **values: object) -> str:
    """The text in the user's language, with the values put in after translating."""
    translated = QCoreApplication.translate(_CONTEXT, text)
    return translated.format(**values) if values else translated


def count(number: int, one: str, many: str) -> str:
    """`one` for exactly one thing, else `many`; both may hold `{n}`. Both pass through `tr` here."""
    return tr(one if number == 1 else many, n=f"{number:,}")


class Catalogue(QTranslator):
    """One language's words, read from its JSON file."""

    def __init__(self, words: dict[str, str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._words = words

    def isEmpty(self) -> bool:
        return not self._words

    def translate(self, context: str, text: str, disambiguation: str | None = None, n: int = -1) -> str | None:
        """None hands the question on to Qt's own catalogue."""
        return self._words.get(text) if context == _CONTEXT else None


def language(chosen: str = "") -> str:
    """The language to show: the chosen one, else the system's where there is a catalogue for it, else English."""
    if chosen in LANGUAGES:
        return chosen
    return "zh_CN" if QLocale.system().language() == QLocale.Language.Chinese else "en"


def catalogue_file(name: str) -> Path:
    return resources.folder() / "translations" / f"{name}.json"


def install(application: QCoreApplication, chosen: str = "") -> None:
    """Put a language into force. Call it before the first widget is made."""
    name = language(chosen)
    QLocale.setDefault(QLocale(name))
    if name == "en":
        return
    of_qt = QTranslator(application)
    if of_qt.load(f"qtbase_{name}", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        application.installTranslator(of_qt)
    words = json.loads(catalogue_file(name).read_text("utf-8"))
    application.installTranslator(Catalogue(words, application))
