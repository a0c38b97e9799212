"""The language the demonstration speaks: the one it is written to, as agents do."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

from helix_desktop import resources

Say = Callable[..., str]  # Translates a sentence of the demo's script and fills in the values.
MARKS: Mapping[str, re.Pattern[str]] = {
    "zh_CN": re.compile("[\u4e00-\u9fff]"),
    "de": re.compile(r"\b(ich|mir|und|nicht|bitte|eine?|das|wie|zeige?|kannst)\b", re.IGNORECASE),
}  # By language: what occurs in its texts but not in English ones.


def translator_for(texts: Iterable[str]) -> Say:
    """`texts`: what the user wrote, the newest first. A message that may be of any language goes by those before."""
    spoken = (name for text in texts for name, mark in MARKS.items() if mark.search(text))
    return partial(_translate_and_format, next(spoken, ""))


def _translate_and_format(language: str, text: str, /, **values: object) -> str:
    return translations_of(language).get(text, text).format(**values)


@cache
def translations_of(language: str) -> Mapping[str, str]:
    """From the English to the other text."""
    file = resources.resources_folder() / "translations" / f"{language}.demo.json"
    return dict(json.loads(file.read_text("utf-8"))) if language else {}
