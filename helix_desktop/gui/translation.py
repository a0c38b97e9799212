"""Translates the window's texts into the user's language and formats numbers for it.

Every string a person reads goes through `tr`, in English, with `{name}` for what is put in. A language is one JSON
file in `resources/translations` from the English to the other text; tests/gui/test_translation.py finds every
`tr("…")` of the package and holds each catalogue to be complete and to keep the names in braces.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QTranslator

from helix_desktop import resources
from helix_desktop.gui import sentence_translation
from helix_desktop.program_settings import LANGUAGES

_translations: dict[str, str] = {}


def tr(text: str, **values: object) -> str:
    """The text in the user's language, with the values put in after translating."""
    translated = _translations.get(text, text)
    return translated.format(**values) if values else translated


def format_count(number: int, one: str, many: str) -> str:
    """`one` for exactly one thing, else `many`; both may hold `{n}`. Both pass through `tr` here."""
    return tr(one if number == 1 else many, n=format_number(number))


def format_number(value: float, decimals: int = 0) -> str:
    """A number as the chosen language writes it: 1,234.5 or 1.234,5."""
    return QLocale().toString(float(value), "f", decimals)


def format_percent(share: float) -> str:
    """A part of a whole: 42% or 42 %."""
    return tr("{n}%", n=format_number(100 * share))


def set_translations(words: Mapping[str, str], below: Mapping[str, str] | None = None) -> None:
    """Put the words of a language into force, from the English to the other text; none: English. `below`: see `said`.

    A table, and no QTranslator in Python: Qt asks its translators on any thread, also while it holds locks of its own.
    A thread that decoded a picture waited there for the interpreter, whoever had that waited for the lock, for ever.
    """
    _translations.clear()
    _translations.update(words)
    sentence_translation.install_sentence_table(below or {}, words.get("{n}%", "{n}%"))


def language_to_show(chosen: str = "") -> str:
    """The chosen language, else the system's if there is a catalogue, else English."""
    if chosen in LANGUAGES:
        return chosen
    spoken = QLocale.system().name().partition("_")[0]
    return next((name for name in LANGUAGES if name.partition("_")[0] == spoken), "en")


def locale_of_language(name: str) -> QLocale:
    """How a language writes numbers and dates: as this computer does where it speaks it. English without a country writes 24 hours."""
    system, own = QLocale.system(), QLocale("en_GB" if name == "en" else name)
    return system if system.language() == own.language() else own


def catalogue_file(name: str) -> Path:
    return resources.resources_folder() / "translations" / f"{name}.json"


def sentences_file(name: str) -> Path:
    return resources.resources_folder() / "translations" / f"{name}.said.json"


def install_language(application: QCoreApplication, chosen: str = "") -> None:
    """Put a language into force. Call it before the first widget is made."""
    name = language_to_show(chosen)
    QLocale.setDefault(locale_of_language(name))
    if name == "en":
        return
    of_qt = QTranslator(application)
    if of_qt.load(f"qtbase_{name}", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        application.installTranslator(of_qt)
    set_translations(*(json.loads(file(name).read_text("utf-8")) for file in (catalogue_file, sentences_file)))
