"""Finds the demonstration's language: the one in which people write to it."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from helix_desktop import resources

Say = Callable[..., str]  # Translates a sentence of the demo and fills in values.
MARKS: Mapping[str, re.Pattern[str]] = {
    "zh_CN": re.compile("[\u4e00-\u9fff]"),
    "de": re.compile(r"\b(ich|mir|und|nicht|bitte|eine?|das|wie|zeige?|kannst)\b", re.IGNORECASE),
}  # For each language, a pattern that matches its texts but not English ones.


def choose_translator(texts: Iterable[str]) -> Say:
    """Return a function that says the demonstration's sentences in the user's language.

    `texts`: what the user wrote, the newest first. A text that could be of any language
    leaves the choice to the one before it.
    """
    translations = translations_of(_language_of(texts))

    def say(text: str, /, **values: object) -> str:
        translated = translations.get(text, text)
        return translated.format(**values)

    return say


def _language_of(texts: Iterable[str]) -> str:
    """Return the language of the first text that shows one, or an empty string for English."""
    for text in texts:
        for language, mark in MARKS.items():
            if mark.search(text):
                return language
    return ""


@cache
def translations_of(language: str) -> Mapping[str, str]:
    """Return the other text by the English one."""
    if not language:
        return {}
    file = resources.resources_folder() / "translations" / f"{language}.demo.json"
    return dict(json.loads(file.read_text("utf-8")))
