"""What is said below the window, in the user's language.

The engine, the stores, the tools and the providers know nothing of languages: their sentences are English, in the
journal and for the models. Where such a sentence enters the window it is recognised by its template and said in the
user's language. The templates stand in `resources/translations`, in a file beside the language's other words; of what
stands in for a name only our own phrases (`OURS`) are translated as well, and what is not recognised stays as it is.
tests/gui/test_engine_sentences.py gathers the sentences from the source and holds the table to be complete.
"""

from __future__ import annotations

import functools
import itertools
import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from PySide6.QtCore import QLocale

LONGEST = 4_000  # characters that are looked at
PIECES = 16  # sentences, or items of a list, that are looked at
DEPTH = 4  # phrases within phrases
OURS = frozenset({"why", "what", "kind", "figures"})  # names in a template that may stand for phrases of ours
PATH = "path"  # at the end of a title, such as "Edit {path}"; "Read timed out." is none
_SENTENCES = re.compile(r"((?<=[.!?…])\s+)")
_FIGURE = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(%?)")
_PHRASES = re.compile(r"((?<=[.!?…])\s+|[,;] )")


class Template(NamedTuple):
    """A sentence with names in it: the literal text around them, and the other language's."""

    around: tuple[str, ...]
    names: tuple[str, ...]
    other: str

    def read(self, text: str) -> dict[str, str] | None:
        """What stands for the names, each as short as it can be and never empty; None where it is another sentence.

        Linear, whatever the text: once the first fitting place of a literal is taken no other must be tried.
        """
        first, *middle, last = self.around
        limit = len(text) - len(last)
        if len(text) < len(first) + len(last) or _lowered(text[: len(first)]) != first or not text.endswith(last):
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
        if at >= limit or (self.names[-1] == PATH and not last and text.endswith((".", "!", "?"))):
            return None
        return {name: text[a:b] for name, a, b in zip(self.names, starts, [*ends, limit], strict=True)}


_plain: dict[str, str] = {}
_templates: dict[str, list[Template]] = {}  # by the first letter; "": those that begin with a name
_percent = ["{n}%"]  # how the language writes one


def take(table: Mapping[str, str], percent: str = "{n}%") -> None:
    """Put the templates of a language into force; none: English. `percent`: how it writes one."""
    _percent[0] = percent
    _plain.clear()
    _templates.clear()
    said.cache_clear()
    for text, other in sorted(table.items(), key=lambda row: -len("".join(_around(row[0])))):
        around = _around(text)
        if len(around) == 1:
            _plain[_lowered(text)] = other
        else:
            names = tuple(name for _, name, _, _ in string.Formatter().parse(text) if name)
            first = _lowered(around[0])
            _templates.setdefault(first[:1], []).append(Template((first, *around[1:]), names, other))


@functools.lru_cache(maxsize=1024)
def said(text: str) -> str:
    """The text in the user's language, as far as its sentences are known; else as it is. Never an error."""
    if not _plain or not text:
        return text
    return _each(text[:LONGEST], _SENTENCES, DEPTH) + text[LONGEST:]


def said_of(text: str, show: Callable[[str], str]) -> str:
    """A title that names what something is done to: known as a whole or not at all, and `show` shows the names."""
    plain = _plain.get(_lowered(text))
    if plain is not None:
        return plain
    for template in _beginning_like(text):
        values = template.read(text)
        if values is not None:
            return template.other.format(**{name: show(value) for name, value in values.items()})
    return show(text)


def in_a_row(*sentences: str) -> str:
    """Sentences of this language behind each other; empty ones are left out."""
    told = ""
    for each in filter(None, sentences):
        told += _apart(told, " ") + each if told else each
    return told


def _each(text: str, between: re.Pattern[str], depth: int) -> str:
    """Piece by piece: the fewest that together are something known, else the next one as it is."""
    pieces = between.split(text, maxsplit=PIECES)
    told, at = [], 0
    while at < len(pieces):
        found, end = pieces[at], at + 1
        for until in range(at + 1, len(pieces) + 1, 2):
            known = _one("".join(pieces[at:until]), depth)
            if known is not None:
                found, end = known, until
                break
        told += [found, *(_apart(found, each) if found != pieces[at] else each for each in pieces[end : end + 1])]
        at = end + 1
    return "".join(told)


def _apart(found: str, between: str) -> str:
    """What stands behind a translated piece: the language's own comma, and no space behind a wide full stop."""
    wide = unicodedata.east_asian_width(found[-1:] or " ") in "WF"
    return "" if wide and between == " " else _plain.get(between, between)


def _one(text: str, depth: int) -> str | None:
    """One sentence or phrase; None where it is not known."""
    plain = _plain.get(_lowered(text))
    if plain is not None or depth == 0:
        return plain and _begun_like(text, plain)
    for template in _beginning_like(text):
        values = template.read(text)
        if values is not None:
            ours = {name: _each(values[name], _PHRASES, depth - 1) for name in OURS & values.keys()}
            shown = {name: _as_here(value) for name, value in values.items()}
            return _begun_like(text, template.other).format(**{**shown, **ours})
    return None


def _as_here(value: str) -> str:
    """A number, an amount or a percentage as the language writes it."""
    figure = _FIGURE.fullmatch(value)
    if figure is None or not (figure[2] or figure[3] or "," in value):
        return value
    here = QLocale()
    number = figure[1].replace(",", here.groupSeparator()) + (figure[2] or "").replace(".", here.decimalPoint())
    return _percent[0].format(n=number) if figure[3] else number


def _begun_like(text: str, other: str) -> str:
    """A phrase that begins a sentence begins one in the other language too."""
    return other[:1].upper() + other[1:] if text[:1].isupper() else other


def _beginning_like(text: str) -> Iterator[Template]:
    return itertools.chain(_templates.get(_lowered(text[:1]), ()), _templates.get("", ()))


def _around(text: str) -> tuple[str, ...]:
    """The literal text before, between and behind the names."""
    parts = list(string.Formatter().parse(text))
    literals = [literal for literal, _, _, _ in parts]
    return (*literals, "") if parts and parts[-1][1] is not None else tuple(literals)


def _lowered(text: str) -> str:
    """A phrase of ours may begin a sentence: the first letter counts in either case."""
    return text[:1].lower() + text[1:]
