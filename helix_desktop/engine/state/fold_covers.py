"""Compares covers: what a fold stands for, a span of facts or a single part of one."""

from collections.abc import Collection

from helix_desktop.engine.facts import Cover, PartRef, Span


def first_and_last(cover: Cover) -> tuple[int, int]:
    if isinstance(cover, PartRef):
        return cover.seq, cover.seq
    return cover.first, cover.last


def covers_overlap(cover: Cover, other_cover: Cover) -> bool:
    first, last = first_and_last(cover)
    other_first, other_last = first_and_last(other_cover)
    return first <= other_last and other_first <= last


def cover_contains(outer: Cover, inner: Cover) -> bool:
    if isinstance(outer, PartRef):
        return outer == inner
    inner_first, inner_last = first_and_last(inner)
    return outer.first <= inner_first and inner_last <= outer.last


def covers_nest(cover: Cover, other_cover: Cover) -> bool:
    """Whether two covers are apart or one is inside the other, so that both can be folded."""
    if not covers_overlap(cover, other_cover):
        return True
    if first_and_last(cover) == first_and_last(other_cover):
        return True
    return cover_contains(cover, other_cover) or cover_contains(other_cover, cover)


def is_covered_by_any(refs: Collection[Cover], ref: PartRef) -> bool:
    """Whether a part is in these covers (of pins or exclusions), alone or within a span."""
    if ref in refs:
        return True
    spans = [cover for cover in refs if isinstance(cover, Span)]
    return any(cover_contains(span, ref) for span in spans)
