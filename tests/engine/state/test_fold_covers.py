"""What covers do to each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import Cover, PartRef, Span
from helix_desktop.engine.state.fold_covers import (
    cover_contains,
    covers_nest,
    covers_overlap,
    first_and_last,
    is_covered_by_any,
)

NUMBERS = st.integers(1, 9)
SPANS = st.tuples(NUMBERS, NUMBERS).map(lambda pair: Span(min(pair), max(pair)))
COVERS: st.SearchStrategy[Cover] = st.one_of(SPANS, st.builds(PartRef, NUMBERS, st.integers(0, 2)))


def facts(cover: Cover) -> set[int]:
    first, last = first_and_last(cover)
    return set(range(first, last + 1))


@given(SPANS, COVERS)
def test_covers_are_sets_of_facts(span: Span, other: Cover) -> None:
    assert covers_overlap(span, other) == bool(facts(span) & facts(other))
    assert cover_contains(span, other) == (facts(other) <= facts(span))
    assert covers_nest(span, other) == (
        not facts(span) & facts(other) or facts(span) <= facts(other) or facts(other) <= facts(span)
    )
    assert covers_nest(span, other) == covers_nest(other, span)


def test_a_part_contains_itself_alone() -> None:
    assert cover_contains(PartRef(3, 1), PartRef(3, 1))
    assert not cover_contains(PartRef(3, 1), PartRef(3, 0))
    assert not cover_contains(PartRef(3, 1), Span(3, 3))


def test_a_part_stands_among_refs_by_itself_or_with_its_fact() -> None:
    assert is_covered_by_any({PartRef(3, 1): None}, PartRef(3, 1))
    assert is_covered_by_any({Span(1, 5): None}, PartRef(3, 1))
    assert not is_covered_by_any({Span(1, 2): None, PartRef(3, 0): None}, PartRef(3, 1))
    assert not is_covered_by_any({}, PartRef(3, 1))
