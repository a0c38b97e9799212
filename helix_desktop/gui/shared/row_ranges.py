"""A set of rows as ranges: choosing a million of them costs as much as choosing one."""

from bisect import bisect_right
from collections.abc import Iterator


class RowRanges:
    """Disjoint, ascending ranges of row numbers, ends included. They never touch: neighbours are one range."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __contains__(self, row: int) -> bool:
        at = bisect_right(self._firsts, row) - 1
        return at >= 0 and row <= self._lasts[at]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._firsts, self._lasts, strict=True))

    def iterate_rows(self) -> Iterator[int]:
        for first, last in self:
            yield from range(first, last + 1)

    def clear_ranges(self) -> None:
        self._firsts.clear()
        self._lasts.clear()

    def set_only_range(self, first: int, last: int) -> None:
        self._firsts, self._lasts = [min(first, last)], [max(first, last)]

    def add_range(self, first: int, last: int) -> None:
        first, last = min(first, last), max(first, last)
        kept = [(a, b) for a, b in self if b < first - 1 or a > last + 1]
        joined = [(a, b) for a, b in self if not (b < first - 1 or a > last + 1)]
        first = min([first, *(a for a, _ in joined)])
        last = max([last, *(b for _, b in joined)])
        self._replace_ranges(sorted([*kept, (first, last)]))

    def remove_range(self, first: int, last: int) -> None:
        first, last = min(first, last), max(first, last)
        rest: list[tuple[int, int]] = []
        for a, b in self:
            rest += [(a, min(b, first - 1)), (max(a, last + 1), b)] if b >= first and a <= last else [(a, b)]
        self._replace_ranges([(a, b) for a, b in rest if a <= b])

    def toggle_row(self, row: int) -> None:
        if row in self:
            self.remove_range(row, row)
        else:
            self.add_range(row, row)

    def shift_rows(self, by: int) -> None:
        """Rows have come in before all of them."""
        self._replace_ranges([(a + by, b + by) for a, b in self if a + by >= 0])

    def _replace_ranges(self, ranges: list[tuple[int, int]]) -> None:
        self._firsts = [first for first, _ in ranges]
        self._lasts = [last for _, last in ranges]
