"""What covers do to each other: spans of facts and single parts of them."""

from __future__ import annotations

from collections.abc import Collection

from helix_desktop.engine.facts import Cover, PartRef, Span


def ends(cover: Cover) -> tuple[int, int]:
    """The first and the last seq a cover touches."""
    return (cover.seq, cover.seq) if isinstance(cover, PartRef) else (cover.first, cover.last)


def overlap(one: Cover, other: Cover) -> bool:
    """Whether two covers touch a fact in common."""
    first, last = ends(one)
    other_first, other_last = ends(other)
    return first <= other_last and other_first <= last


def contains(outer: Cover, inner: Cover) -> bool:
    """Whether all that `inner` covers is covered by `outer`."""
    if isinstance(outer, PartRef):
        return outer == inner
    first, last = ends(inner)
    return outer.first <= first and last <= outer.last


def nest(one: Cover, other: Cover) -> bool:
    """Whether two covers lie apart or one inside the other: folds of both can be in force at once."""
    return not overlap(one, other) or contains(one, other) or contains(other, one) or ends(one) == ends(other)


def stands_in(refs: Collection[Cover], ref: PartRef) -> bool:
    """Whether a part is among what is pinned, or taken out, by itself or with the facts around it."""
    return ref in refs or any(isinstance(span, Span) and contains(span, ref) for span in refs)
