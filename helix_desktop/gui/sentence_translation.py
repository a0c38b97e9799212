"""Translates English sentences that come from below the window.

The engine, the stores, the tools and the providers know nothing of languages: their sentences are
English, in the journal and for the models. When such a sentence enters the window, it is matched
with a template and translated. The templates are in `resources/translations`, in a file beside the
language's other words. Of the values in a sentence, only our own phrases (`TRANSLATED_NAMES`) are
translated, and an unknown sentence is left unchanged. tests/gui/test_sentence_translation.py
collects the sentences from the source and checks that the table is complete.
"""

import functools
import itertools
import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from PySide6.QtCore import QLocale

LONGEST_TEXT = 4_000  # Only this many characters at the beginning of a text are translated.
MOST_PIECES = 16  # The maximum number of a text's sentences or list items that are translated.
PHRASE_DEPTH = 4  # Phrases that are nested in other phrases are translated down to this depth.
# Placeholders whose values can be phrases of this program, which are also translated.
TRANSLATED_NAMES = frozenset({"why", "what", "kind", "figures"})
PATH_NAME = "path"  # The template "Read {path}" must not match the sentence "Read timed out."
PORT_NAME = "port"  # A port at the end is a number, and not the rest of a sentence.
_SENTENCES = re.compile(r"((?<=[.!?…])\s+)")
# As `providers/provider_catalog.py` names it.
_LOCAL_SERVER = re.compile(r"Local server on port [0-9]{1,5}")
_FIGURE = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(%?)")
_PHRASES = re.compile(r"((?<=[.!?…])\s+|[,;] )")


class SentenceTemplate(NamedTuple):
    """A sentence with named placeholders: the literal text between them, and its translation."""

    literals: tuple[str, ...]
    names: tuple[str, ...]
    translation: str

    def match_sentence(self, text: str) -> dict[str, str] | None:
        """Returns the value of each placeholder, as short as possible and never empty, or None for
        another sentence.

        Takes linear time for any text: once the first match of a literal is used, no other needs to
        be tried.
        """
        first, *middle, last = self.literals
        if len(text) < len(first) + len(last):
            return None
        if _lower_first_letter(text[: len(first)]) != first or not text.endswith(last):
            return None
        limit = len(text) - len(last)
        values: list[str] = []
        start = len(first)
        for literal in middle:
            # A value has at least one letter.
            end = text.find(literal, start + 1, limit)
            if end < 0:
                return None
            values.append(text[start:end])
            start = end + len(literal)
        last_value = text[start:limit]
        if not last_value or not self._may_end_with(last_value):
            return None
        values.append(last_value)
        return dict(zip(self.names, values, strict=True))

    def _may_end_with(self, value: str) -> bool:
        """Whether the last placeholder can stand for this value."""
        last_name = self.names[-1]
        if last_name == PORT_NAME:
            return value.isdigit()
        is_at_end = not self.literals[-1]
        if last_name == PATH_NAME and is_at_end:
            return not value.endswith((".", "!", "?"))
        return True


_plain_sentences: dict[str, str] = {}
# Sentence templates by their first character. The key "" holds templates that begin
# with a placeholder.
_templates: dict[str, list[SentenceTemplate]] = {}
_percent = ["{n}%"]  # The form of percentages in the user's language.


def install_sentence_table(table: Mapping[str, str], percent: str = "{n}%") -> None:
    """Installs the templates of a language; an empty table means English."""
    _percent[0] = percent
    _plain_sentences.clear()
    _templates.clear()
    translate_sentences.cache_clear()
    # The template with the most literal text is tried first: it fits the fewest sentences.
    for text in sorted(table, key=_count_literal_characters, reverse=True):
        translation = table[text]
        literals = list(_literals_of_template(text))
        if len(literals) == 1:
            _plain_sentences[_lower_first_letter(text)] = translation
        else:
            pieces = string.Formatter().parse(text)
            names = tuple(name for _literal, name, _format, _conversion in pieces if name)
            literals[0] = _lower_first_letter(literals[0])
            first_character = literals[0][:1]
            template = SentenceTemplate(tuple(literals), names, translation)
            _templates.setdefault(first_character, []).append(template)


@functools.lru_cache(maxsize=1024)
def translate_sentences(text: str) -> str:
    """Translates the sentences of a text that are known. Never raises an error."""
    if not _plain_sentences or not text:
        return text
    return _translate_piecewise(text[:LONGEST_TEXT], _SENTENCES, PHRASE_DEPTH) + text[LONGEST_TEXT:]


def translate_title(text: str, show: Callable[[str], str]) -> str:
    """Translates a title that is known as a whole. `show` shows the names in it."""
    plain = _plain_sentences.get(_lower_first_letter(text))
    if plain is not None:
        return plain
    for template in _templates_for_first_letter(text):
        values = template.match_sentence(text)
        if values is not None:
            shown_values = {name: show(value) for name, value in values.items()}
            return template.translation.format(**shown_values)
    return show(text)


def join_sentences(*sentences: str) -> str:
    """Joins sentences of the window's language; empty ones are left out."""
    text = ""
    for sentence in filter(None, sentences):
        if text:
            text += _separator_after(text, " ")
        text += sentence
    return text


def _translate_piecewise(text: str, between: re.Pattern[str], depth: int) -> str:
    """Translates a text in as few known pieces as possible. An unknown piece is left unchanged."""
    pieces = between.split(text, maxsplit=MOST_PIECES)
    translated: list[str] = []
    start = 0
    # Every second piece is a separator.
    while start < len(pieces):
        sentence = pieces[start]
        end = start + 1
        for possible_end in range(start + 1, len(pieces) + 1, 2):
            joined_pieces = "".join(pieces[start:possible_end])
            translation = _translate_known_sentence(joined_pieces, depth)
            if translation is not None:
                sentence = translation
                end = possible_end
                break
        translated.append(sentence)
        if end < len(pieces):
            separator = pieces[end]
            if sentence != pieces[start]:
                separator = _separator_after(sentence, separator)
            translated.append(separator)
        start = end + 1
    return "".join(translated)


def _separator_after(sentence: str, separator: str) -> str:
    """The separator after a translated sentence: the language's own comma, and no space
    after a full-width full stop.
    """
    is_full_width = unicodedata.east_asian_width(sentence[-1:] or " ") in "WF"
    if is_full_width and separator == " ":
        return ""
    return _plain_sentences.get(separator, separator)


def _translate_known_sentence(text: str, depth: int) -> str | None:
    """Translates one sentence or phrase. Returns None if it is unknown."""
    plain = _plain_sentences.get(_lower_first_letter(text))
    if plain is not None or depth == 0:
        return plain and _capitalize_like(text, plain)
    for template in _templates_for_first_letter(text):
        values = template.match_sentence(text)
        if values is None:
            continue
        shown_values: dict[str, str] = {}
        for name, value in values.items():
            if name in TRANSLATED_NAMES:
                shown_values[name] = _translate_piecewise(value, _PHRASES, depth - 1)
            else:
                shown_values[name] = _localize_figure(translate_provider_name(value))
        return _capitalize_like(text, template.translation).format(**shown_values)
    return None


def translate_provider_name(name: str) -> str:
    """Translates what a local server is called. Names that others gave stay as they are."""
    if _LOCAL_SERVER.fullmatch(name) is None:
        return name
    return _translate_known_sentence(name, 1) or name


def _localize_figure(value: str) -> str:
    """Writes a number or a percentage as the user's language does. Leaves other values alone."""
    figure = _FIGURE.fullmatch(value)
    if figure is None:
        return value
    whole_part, decimals, percent_sign = figure.groups(default="")
    is_plain_count = not decimals and not percent_sign and "," not in value
    if is_plain_count:
        return value
    locale = QLocale()
    number = whole_part.replace(",", locale.groupSeparator())
    number += decimals.replace(".", locale.decimalPoint())
    if percent_sign:
        return _percent[0].format(n=number)
    return number


def _capitalize_like(text: str, translation: str) -> str:
    """Capitalizes a translated phrase if the original begins a sentence."""
    if not text[:1].isupper():
        return translation
    return translation[:1].upper() + translation[1:]


def _templates_for_first_letter(text: str) -> Iterator[SentenceTemplate]:
    return itertools.chain(
        _templates.get(_lower_first_letter(text[:1]), ()), _templates.get("", ())
    )


def _literals_of_template(text: str) -> tuple[str, ...]:
    literals: list[str] = []
    ends_with_placeholder = False
    for literal, name, _format, _conversion in string.Formatter().parse(text):
        literals.append(literal)
        ends_with_placeholder = name is not None
    # After a placeholder at the end there is an empty literal.
    if ends_with_placeholder:
        literals.append("")
    return tuple(literals)


def _count_literal_characters(text: str) -> int:
    return sum(map(len, _literals_of_template(text)))


def _lower_first_letter(text: str) -> str:
    return text[:1].lower() + text[1:]
