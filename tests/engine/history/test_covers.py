"""What covers do to each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import Cover, PartRef, Span
from helix_desktop.engine.history.covers import contains, ends, nest, overlap, stands_in

NUMBERS = st.integers(1, 9)
SPANS = st.tuples(NUMBERS, NUMBERS).map(lambda pair: Span(min(pair), max(pair)))
COVERS: st.SearchStrategy[Cover] = st.one_of(SPANS, st.builds(PartRef, NUMBERS, st.integers(0, 2)))


def facts(cover: Cover) -> set[int]:
    first, last = ends(cover)
    return set(range(first, last + 1))


@given(SPANS, COVERS)
def test_covers_are_sets_of_facts(span: Span, other: Cover) -> None:
    assert overlap(span, other) == bool(facts(span) & facts(other))
    assert contains(span, other) == (facts(other) <= facts(span))
    assert nest(span, other) == (
        not facts(span) & facts(other) or facts(span) <= facts(other) or facts(other) <= facts(span)
    )
    assert nest(span, other) == nest(other, span)


def test_a_part_contains_itself_alone() -> None:
    assert contains(PartRef(3, 1), PartRef(3, 1))
    assert not contains(PartRef(3, 1), PartRef(3, 0))
    assert not contains(PartRef(3, 1), Span(3, 3))


def test_a_part_stands_among_refs_by_itself_or_with_its_fact() -> None:
    assert stands_in({PartRef(3, 1): None}, PartRef(3, 1))
    assert stands_in({Span(1, 5): None}, PartRef(3, 1))
    assert not stands_in({Span(1, 2): None, PartRef(3, 0): None}, PartRef(3, 1))
    assert not stands_in({}, PartRef(3, 1))
