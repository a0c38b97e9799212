"""A fold in words: the same title and the same figures in the chat, in the timeline and in the inspector."""

from __future__ import annotations

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.facts import DetailsKept, Folded, FoldKind, Span
from helix_desktop.gui.meter import short
from helix_desktop.gui.words import count, numeral, tr

KIND: dict[FoldKind, Kind] = {
    FoldKind.MARKER: Kind.OUTPUT,
    FoldKind.EXCERPT: Kind.OUTPUT,
    FoldKind.OBSERVATIONS: Kind.OBSERVATIONS,
    FoldKind.REFLECTION: Kind.OBSERVATIONS,
    FoldKind.HANDOVER: Kind.HANDOVER,
    FoldKind.TRUNCATION: Kind.HANDOVER,
}


def colour_kind(kind: FoldKind) -> Kind:
    """The kind of context whose colour a fold has: that of observations where nothing else is said."""
    return KIND.get(kind, Kind.OBSERVATIONS)


def title(fold: Folded, folds: int = 1) -> str:
    """What a fold is called. `folds`: how many of its batch there are."""
    if fold.kind is FoldKind.HANDOVER:
        return tr("Handover {n}", n=fold.number) if fold.number else tr("Handover")
    if fold.kind is FoldKind.MARKER:
        return count(folds, "Cached {n} tool output", "Cached {n} tool outputs")
    if fold.kind is FoldKind.EXCERPT:
        return count(folds, "Excerpted {n} tool output", "Excerpted {n} tool outputs")
    if fold.kind is FoldKind.OBSERVATIONS:
        return count(covered(fold), "Observed {n} message", "Observed {n} messages")
    if fold.kind is FoldKind.REFLECTION:
        return tr("Merged the observations")
    return tr("Truncated") if fold.kind is FoldKind.TRUNCATION else kind_words(fold.kind).capitalize()


def kind_words(kind: FoldKind) -> str:
    """A kind in a word or two."""
    return {
        FoldKind.MARKER: tr("markers"),
        FoldKind.EXCERPT: tr("excerpts"),
        FoldKind.OBSERVATIONS: tr("observations"),
        FoldKind.REFLECTION: tr("reflection"),
        FoldKind.HANDOVER: tr("handover"),
        FoldKind.TRUNCATION: tr("truncation"),
    }.get(kind, kind.value)


def covered(fold: Folded) -> int:
    """How many facts a fold covers."""
    return fold.cover.last - fold.cover.first + 1 if isinstance(fold.cover, Span) else 1


def change(before: int, after: int) -> str:
    return tr("{before} → {after} tokens", before=short(before), after=short(after))


def kept(details: DetailsKept) -> str:
    """How many details the folded text still holds, by the model's own words or added; empty where none were found."""
    if not details.found:
        return ""
    return tr(
        "{kept} of {found} details kept",
        kept=numeral(details.kept + details.added + details.entry),
        found=numeral(details.found),
    )


def sentence(fold: Folded, folds: int = 1, before: int = 0, after: int = 0) -> str:
    """The line across the chat. `before` and `after`: of the whole batch, where it is more than one fold."""
    figures = change(before or fold.tokens_before, after or fold.tokens)
    return " · ".join(part for part in (title(fold, folds), figures, kept(fold.details)) if part)
