"""Running sums against adding up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.state.fenwick_tree import FenwickTree


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(-9, 99)), max_size=80),
    st.integers(0, 80),
)
def test_sums_are_what_adding_up_gives(changes: list[tuple[bool, int, int]], upto: int) -> None:
    sums = FenwickTree()
    plain = list[int]()
    for grows, position, value in changes:
        if grows or not plain:
            sums.append_number(value)
            plain.append(value)
        else:
            sums.change_number(position % len(plain), value)
            plain[position % len(plain)] += value
    upto = min(upto, len(plain))
    assert len(sums) == len(plain)
    assert sums.sum_before(upto) == sum(plain[:upto])
    assert sums.sum_between(upto // 2, upto) == sum(plain[upto // 2 : upto])
