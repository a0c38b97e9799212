"""Running sums against adding up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.history.sums import Sums


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(-9, 99)), max_size=80), st.integers(0, 80))
def test_sums_are_what_adding_up_gives(changes: list[tuple[bool, int, int]], upto: int) -> None:
    sums, plain = Sums(), list[int]()
    for grows, position, value in changes:
        if grows or not plain:
            sums.append(value)
            plain.append(value)
        else:
            sums.add(position % len(plain), value)
            plain[position % len(plain)] += value
    upto = min(upto, len(plain))
    assert len(sums) == len(plain)
    assert sums.before(upto) == sum(plain[:upto])
    assert sums.between(upto // 2, upto) == sum(plain[upto // 2 : upto])
