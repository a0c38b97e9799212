"""The text of a fold over a span: what was written, what must not be lost, and where the rest stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helix_desktop.engine import details
from helix_desktop.engine.details import Detail
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import DetailsKept
from helix_desktop.engine.ports import Tokens
from helix_desktop.engine.strategies import handover
from helix_desktop.engine.strategies.plan import Plan
from helix_desktop.engine.strategies.registry import STRATEGIES
from helix_desktop.values import dataclass

NOTES = "Notes about the past, not instructions."
KEPT = "Kept word for word:"
CUT_OFF = "[… cut off here: the summary was too long]"


LONGEST_TOKEN = 12  # characters, about: what is longer than the limit in any text is not even counted


@dataclass(frozen=True, slots=True)
class Document:
    """A fold's text, counted, with what became of the details."""

    text: str
    tokens: int
    kept: DetailsKept


@dataclass(frozen=True, slots=True)
class Making:
    """What a document is made from, besides what was written. `limit`: tokens it may take in all."""

    plan: Plan
    fold: str
    number: int
    found: Sequence[Detail]
    entry: Digest
    critical: int
    limit: int


def document(making: Making, written: Mapping[str, str], tokens: Tokens) -> Document:
    """Six sections for a handover or a truncation, one list for observations; the details that are missing added."""
    room = min(making.critical, making.limit // 2)
    shortened = _shortened(written, making.limit - room, tokens)
    body = "\n".join(shortened.values())
    lacking = details.missing(making.found, body)
    added = details.chosen(lacking, room, tokens)
    whole = _assembled(making, shortened, added)
    critical = sum(detail.critical for detail in making.found)
    in_text = critical - len(lacking)
    rest = critical - in_text - len(added)
    return Document(whole, tokens.count(whole), DetailsKept(critical, in_text, len(added), rest))


def header(making: Making) -> str:
    """The first lines: what this is, what it covers, and where the originals are."""
    span = making.plan.span
    sources = f'every message: recall_history("{making.fold}"); details: recall_cached_content("{making.entry.hex}")'
    strategy = STRATEGIES[making.plan.kind]
    if not strategy.sections:
        return f"{strategy.title}\n{NOTES} They cover the numbers {span.first} to {span.last}; {sources}."
    return f"{strategy.title}\n{strategy.name(making.number)}. {NOTES} It covers the numbers {span.first} to {span.last}; {sources}."


def _assembled(making: Making, written: Mapping[str, str], added: Sequence[Detail]) -> str:
    if not STRATEGIES[making.plan.kind].sections:
        kept = [KEPT, *map(details.shown, added)] if added else []
        return "\n".join([header(making), *written.values(), *kept])
    pieces = [header(making)]
    for name in handover.SECTIONS:
        mine = [details.shown(detail) for detail in added if details.SECTION_OF[detail.kind] == name]
        said = written.get(name, "")
        if not said and not mine:
            said = handover.NOTHING
        lines = [f"## {name}", said, *([KEPT, *mine] if mine else [])]
        pieces.append("\n".join(filter(None, lines)))
    return "\n\n".join(pieces)


def _shortened(written: Mapping[str, str], limit: int, tokens: Tokens) -> dict[str, str]:
    """The sections within the limit: where they are too long, each keeps its share, cut at a line's end."""
    written = {name: text[: limit * LONGEST_TOKEN] for name, text in written.items()}
    counts = {name: tokens.count(text) for name, text in written.items()}
    total = sum(counts.values())
    if total <= limit:
        return dict(written)
    return {name: _cut(text, max(40, limit * counts[name] // max(total, 1)), tokens) for name, text in written.items()}


def _cut(text: str, limit: int, tokens: Tokens) -> str:
    if tokens.count(text) <= limit:
        return text
    shown = text[: max(1, len(text) * limit // max(tokens.count(text), 1))]
    while tokens.count(shown) > limit and len(shown) > 1:
        shown = shown[: len(shown) * 9 // 10]
    end = shown.rfind("\n")
    return f"{shown[:end] if end > len(shown) // 2 else shown}\n{CUT_OFF}"
