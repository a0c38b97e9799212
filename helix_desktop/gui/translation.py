"""Translates the window's texts into the user's language, and formats numbers for it.

Every text for people goes through `tr`, in English, with `{name}` for inserted values.
A language is one JSON file in `resources/translations` that maps English texts to
translations. tests/gui/test_translation.py finds every `tr("…")` of the package and
checks that each catalogue is complete and keeps the names in braces. What the values of
an enum are called is in `resources/shown_names.json`.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QTranslator

from helix_desktop import resources
from helix_desktop.gui import sentence_translation
from helix_desktop.program_settings import LANGUAGES

_translations: dict[str, str] = {}


def tr(text: str, **values: object) -> str:
    """Returns the text in the user's language. Values are inserted after translating: counts as the
    language writes them, so that 1499 never stands beside 1,499. The number of a line, which is
    written without a sign for thousands, is given as text.
    """
    translated = _translations.get(text, text)
    if not values:
        return translated
    inserted: dict[str, object] = {}
    for name, value in values.items():
        # A truth value is an int in Python, but no count.
        if isinstance(value, int) and not isinstance(value, bool):
            inserted[name] = format_number(value)
        else:
            inserted[name] = value
    return translated.format(**inserted)


@cache
def read_shown_names() -> Mapping[str, Mapping[str, str]]:
    """Returns what the values of a table are called in English. The key of an enum's
    member is its value.
    """
    return dict(resources.read_json_resource("shown_names.json"))


def translate_name(table: str, value: str, *, otherwise: str = "", **inserted: object) -> str:
    """Returns what a value is called in the user's language, or `otherwise` if the
    table does not have it.
    """
    name = read_shown_names()[table].get(value)
    if name is None:
        return otherwise
    return tr(name, **inserted)


def format_count(number: int, one: str, many: str) -> str:
    """Returns `one` for exactly one thing, or else `many`; both may hold `{n}`. Both
    are translated.
    """
    if number == 1:
        return tr(one, n=format_number(number))
    return tr(many, n=format_number(number))


def format_number(value: float, decimals: int = 0) -> str:
    """Formats a number in the chosen language: 1,234.5 or 1.234,5."""
    return QLocale().toString(float(value), "f", decimals)


def format_percent(share: float) -> str:
    return tr("{n}%", n=format_number(100 * share))


def set_translations(
    translations: Mapping[str, str], sentences: Mapping[str, str] | None = None
) -> None:
    """Sets a language's translations; without any, the language is English. `sentences`: those
    that come from below the window (`sentence_translation`).

    This is a table instead of a QTranslator, because Qt asks its translators on any thread, even
    while it holds locks. A thread that decoded a picture once waited for the interpreter, whose
    holder waited for that lock, for ever.
    """
    _translations.clear()
    _translations.update(translations)
    percent_form = translations.get("{n}%", "{n}%")
    sentence_translation.install_sentence_table(sentences or {}, percent_form)


def choose_window_language(chosen: str = "") -> str:
    """Returns the chosen language, or the system's if it has a catalogue, or English."""
    if chosen in LANGUAGES:
        return chosen
    # Of a name like "zh_CN", only the language counts, not the country.
    system_language, _, _ = QLocale.system().name().partition("_")
    for name in LANGUAGES:
        language, _, _ = name.partition("_")
        if language == system_language:
            return name
    return "en"


def locale_of_language(name: str) -> QLocale:
    """Returns the locale for numbers and dates. English without a country uses 24 hours."""
    locale = QLocale(name)
    if name == "en":
        locale = QLocale("en_GB")
    # The system's locale has the formats that the user chose for this language.
    system_locale = QLocale.system()
    if system_locale.language() == locale.language():
        return system_locale
    return locale


def translation_catalogue_path(name: str) -> Path:
    return resources.resources_folder() / "translations" / f"{name}.json"


def sentences_file(name: str) -> Path:
    return resources.resources_folder() / "translations" / f"{name}.said.json"


def install_language(application: QCoreApplication, chosen: str = "") -> None:
    """Installs a language. Must be called before the first widget is created."""
    name = choose_window_language(chosen)
    QLocale.setDefault(locale_of_language(name))
    if name == "en":
        return
    # What Qt's own dialogs say is translated by Qt.
    qt_folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
    qt_translator = QTranslator(application)
    if qt_translator.load(f"qtbase_{name}", qt_folder):
        application.installTranslator(qt_translator)
    translations = json.loads(translation_catalogue_path(name).read_text("utf-8"))
    sentences = json.loads(sentences_file(name).read_text("utf-8"))
    set_translations(translations, sentences)
