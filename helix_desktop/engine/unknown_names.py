"""Finds the names, paths and figures of a summary that occur nowhere in its messages.

It compares words alone, so what it finds may still be true. It is shown to a person who
looks at the document, and costs no request.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence

from helix_desktop.engine import span_text_and_detail_sources
from helix_desktop.engine.agent_findings import split_sentences
from helix_desktop.engine.conversation_details import (
    KEPT_HEADING,
    DetailSource,
    format_argument_values,
    split_into_pieces_at_line_ends,
)
from helix_desktop.engine.facts import Folded, Span
from helix_desktop.engine.ports import ContentReader
from helix_desktop.engine.view import ConversationState

COUNTABLE = 12  # Whole numbers up to this need no source, as the writer may have counted something.
LONGEST_SENTENCE = 300

_HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
# Where a statement comes from: [12], [12, 15], [3–9].
_SOURCE_NUMBER = re.compile(r"\[[\d,;–\- x]+\]")
_PATH = re.compile(r"(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*\w|\b[\w-]+\.[A-Za-z]\w{0,9}\b")
_QUOTED_CODE = re.compile(r"`([^`\n]{3,80})`")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)\b"
)
_FIGURE = re.compile(r"(?<![\w.,/-])\d[\d,]*(?:\.\d+)?(?![\w/-]|\.\d)")


async def find_unknown_names_of_fold(
    history: ConversationState, fold: Folded, contents: ContentReader
) -> Sequence[str]:
    """Return what occurs in no covered message and no setting, each with its sentence."""
    span = fold.cover
    if not isinstance(span, Span):
        return []
    seqs = [seq for seq in history.branch.order if span.first <= seq <= span.last]
    sources = await span_text_and_detail_sources.read_detail_sources(history.branch, seqs, contents)
    texts = list(_texts_of(sources))
    for block in history.settings.settings_blocks:
        texts.append(str(block.content))
    return await asyncio.to_thread(find_unknown_names, fold.text, texts)


def find_unknown_names(document: str, texts: Sequence[str]) -> list[str]:
    """Return a row for each sentence of a summary with names that occur in none of the texts:
    these names, and the sentence.
    """
    names_by_sentence: dict[str, list[str]] = {}
    possibly_unknown: set[str] = set()
    for sentence in _sentences_of_model(document):
        names = list(dict.fromkeys(_names_in(sentence)))
        names_by_sentence[sentence] = names
        possibly_unknown.update(map(_normalise, names))

    unknown = _names_in_none_of(texts, possibly_unknown)
    rows = []
    for sentence, names in names_by_sentence.items():
        unknown_names = [name for name in names if _normalise(name) in unknown]
        if unknown_names:
            rows.append(f"{', '.join(unknown_names)} — {sentence[:LONGEST_SENTENCE]}")
    return rows


def _names_in_none_of(texts: Sequence[str], names: set[str]) -> set[str]:
    """Return the normalised names that occur in none of the texts."""
    unknown = names
    for text in texts:
        for piece in split_into_pieces_at_line_ends(text):
            normalised_piece = _normalise(piece)
            unknown = {name for name in unknown if name not in normalised_piece}
    return unknown


def _sentences_of_model(document: str) -> Iterator[str]:
    """Yield the sentences of the sections, without the lines that the program added to them."""
    _, heading, sections = document.partition("\n## ")
    if not heading:
        sections = document
    for section in sections.split("\n## "):
        text_of_model, _, _ = section.partition(KEPT_HEADING)
        without_headings = _HEADING.sub("", text_of_model)
        yield from split_sentences(_SOURCE_NUMBER.sub("", without_headings))


def _names_in(sentence: str) -> Iterator[str]:
    """Yield a sentence's words in backticks, its paths, identifiers and large figures."""
    for name in _QUOTED_CODE.findall(sentence):
        if " " not in name:
            yield name
    without_code = _QUOTED_CODE.sub(" ", sentence)
    yield from _PATH.findall(without_code)
    without_paths = _PATH.sub(" ", without_code)
    yield from _IDENTIFIER.findall(without_paths)
    for figure in _FIGURE.findall(without_paths):
        if "." in figure or int(figure.replace(",", "")) > COUNTABLE:
            yield figure


def _normalise(text: str) -> str:
    """Return a text in which a name is found however it is written: 1,200 is 1200."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", text.casefold())


def _texts_of(sources: Iterable[DetailSource]) -> Iterator[str]:
    for source in sources:
        yield source.text
        yield " ".join(change.path for change in source.changes)
        if source.role == "call":
            yield f"{source.tool}\n{format_argument_values(source.text)}"
