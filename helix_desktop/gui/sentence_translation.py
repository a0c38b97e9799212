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
_SENTENCES = re.compile(r"((?<=[.!?…])\s+)")
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
        limit = len(text) - len(last)
        if (
            len(text) < len(first) + len(last)
            or _lower_first_letter(text[: len(first)]) != first
            or not text.endswith(last)
        ):
            return None
        starts, at = [len(first)], len(first)
        ends = []
        for literal in middle:
            found = text.find(literal, at + 1, limit)
            if found < 0:
                return None
            ends.append(found)
            at = found + len(literal)
            starts.append(at)
        if at >= limit or (
            self.names[-1] == PATH_NAME and not last and text.endswith((".", "!", "?"))
        ):
            return None
        return {
            name: text[a:b] for name, a, b in zip(self.names, starts, [*ends, limit], strict=True)
        }


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
    for text, other in sorted(
        table.items(), key=lambda row: -len("".join(_literals_of_template(row[0])))
    ):
        around = _literals_of_template(text)
        if len(around) == 1:
            _plain_sentences[_lower_first_letter(text)] = other
        else:
            names = tuple(name for _, name, _, _ in string.Formatter().parse(text) if name)
            first = _lower_first_letter(around[0])
            _templates.setdefault(first[:1], []).append(
                SentenceTemplate((first, *around[1:]), names, other)
            )


@functools.lru_cache(maxsize=1024)
def translate_sentences(text: str) -> str:
    """Translates the sentences of a text that are known. Never raises an error."""
    if not _plain_sentences or not text:
        return text
    return _translate_piecewise(text[:LONGEST_TEXT], _SENTENCES, PHRASE_DEPTH) + text[LONGEST_TEXT:]


def translate_title(text: str, show: Callable[[str], str]) -> str:
    """Translates a title that is known as a whole. `show` shows the names in it."""
    if (plain := _plain_sentences.get(_lower_first_letter(text))) is not None:
        return plain
    for template in _templates_for_first_letter(text):
        if (values := template.match_sentence(text)) is not None:
            return template.translation.format(
                **{name: show(value) for name, value in values.items()}
            )
    return show(text)


def join_sentences(*sentences: str) -> str:
    """Joins sentences of the window's language; empty ones are left out."""
    told = ""
    for each in filter(None, sentences):
        told += _separator_after(told, " ") + each if told else each
    return told


def _translate_piecewise(text: str, between: re.Pattern[str], depth: int) -> str:
    """Translates a text in as few known pieces as possible. An unknown piece is left unchanged."""
    pieces = between.split(text, maxsplit=MOST_PIECES)
    told, at = [], 0
    while at < len(pieces):
        found, end = pieces[at], at + 1
        for until in range(at + 1, len(pieces) + 1, 2):
            known = _translate_known_sentence("".join(pieces[at:until]), depth)
            if known is not None:
                found, end = known, until
                break
        told += [
            found,
            *(
                _separator_after(found, each) if found != pieces[at] else each
                for each in pieces[end : end + 1]
            ),
        ]
        at = end + 1
    return "".join(told)


def _separator_after(found: str, between: str) -> str:
    """The separator after a translated sentence: the language's own comma, and no space
    after a full-width full stop.
    """
    wide = unicodedata.east_asian_width(found[-1:] or " ") in "WF"
    return "" if wide and between == " " else _plain_sentences.get(between, between)


def _translate_known_sentence(text: str, depth: int) -> str | None:
    """Translates one sentence or phrase. Returns None if it is unknown."""
    plain = _plain_sentences.get(_lower_first_letter(text))
    if plain is not None or depth == 0:
        return plain and _capitalize_like(text, plain)
    for template in _templates_for_first_letter(text):
        if (values := template.match_sentence(text)) is not None:
            ours = {
                name: _translate_piecewise(values[name], _PHRASES, depth - 1)
                for name in TRANSLATED_NAMES & values.keys()
            }
            shown = {name: _localize_figure(value) for name, value in values.items()}
            return _capitalize_like(text, template.translation).format(**{**shown, **ours})
    return None


def _localize_figure(value: str) -> str:
    figure = _FIGURE.fullmatch(value)
    if figure is None or not (figure[2] or figure[3] or "," in value):
        return value
    here = QLocale()
    number = figure[1].replace(",", here.groupSeparator()) + (figure[2] or "").replace(
        ".", here.decimalPoint()
    )
    return _percent[0].format(n=number) if figure[3] else number


def _capitalize_like(text: str, other: str) -> str:
    """Capitalizes a translated phrase if the original begins a sentence."""
    return other[:1].upper() + other[1:] if text[:1].isupper() else other


def _templates_for_first_letter(text: str) -> Iterator[SentenceTemplate]:
    return itertools.chain(
        _templates.get(_lower_first_letter(text[:1]), ()), _templates.get("", ())
    )


def _literals_of_template(text: str) -> tuple[str, ...]:
    parts = list(string.Formatter().parse(text))
    literals = [literal for literal, _, _, _ in parts]
    return (*literals, "") if parts and parts[-1][1] is not None else tuple(literals)


def _lower_first_letter(text: str) -> str:
    return text[:1].lower() + text[1:]
