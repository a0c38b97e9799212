"""Compares covers: spans of facts and single parts of them."""

from collections.abc import Collection

from helix_desktop.engine.facts import Cover, PartRef, Span


def first_and_last(cover: Cover) -> tuple[int, int]:
    return (cover.seq, cover.seq) if isinstance(cover, PartRef) else (cover.first, cover.last)


def covers_overlap(one: Cover, other: Cover) -> bool:
    first, last = first_and_last(one)
    other_first, other_last = first_and_last(other)
    return first <= other_last and other_first <= last


def cover_contains(outer: Cover, inner: Cover) -> bool:
    if isinstance(outer, PartRef):
        return outer == inner
    first, last = first_and_last(inner)
    return outer.first <= first and last <= outer.last


def covers_nest(one: Cover, other: Cover) -> bool:
    """Whether two covers are apart or one is inside the other, so that both can be folded."""
    return (
        not covers_overlap(one, other)
        or cover_contains(one, other)
        or cover_contains(other, one)
        or first_and_last(one) == first_and_last(other)
    )


def is_covered_by_any(refs: Collection[Cover], ref: PartRef) -> bool:
    """Whether a part is in these covers (of pins or exclusions), alone or within a span."""
    return ref in refs or any(isinstance(span, Span) and cover_contains(span, ref) for span in refs)
