"""Running sums over a list whose numbers change anywhere. Every operation takes
logarithmic time.
"""

from array import array
from collections.abc import Iterable
from itertools import accumulate


class FenwickTree:
    __slots__ = ("_tree",)

    def __init__(self, values: Iterable[int] = ()) -> None:
        sums = list(accumulate(values, initial=0))
        self._tree = array("q", [0, *(sums[i] - sums[i & (i - 1)] for i in range(1, len(sums)))])

    def __len__(self) -> int:
        return len(self._tree) - 1

    def append_number(self, value: int) -> None:
        index = len(self._tree)
        total, below = value, index - 1
        while below > index - (index & -index):
            total += self._tree[below]
            below &= below - 1
        self._tree.append(total)

    def change_number(self, position: int, change: int) -> None:
        """Change the number at `position`, counted from 0."""
        index = position + 1
        while index < len(self._tree):
            self._tree[index] += change
            index += index & -index

    def clear_numbers(self) -> None:
        self._tree = array("q", bytes(8 * len(self._tree)))

    def truncate_numbers(self, length: int) -> None:
        """Remove all numbers from `length` on. Nodes cover only earlier numbers, so no
        others change.
        """
        del self._tree[length + 1 :]

    def sum_before(self, position: int) -> int:
        total, index, tree = 0, position, self._tree
        while index > 0:
            total += tree[index]
            index &= index - 1
        return total

    def sum_between(self, first: int, end: int) -> int:
        """Return the sum from `first` up to `end`, exclusive."""
        return self.sum_before(end) - self.sum_before(first)

    def last_position_within(self, total: int) -> int:
        """Return the last position before which the numbers (none negative) add up to
        at most `total`.
        """
        tree, size = self._tree, len(self._tree)
        place, step = 0, 1 << size.bit_length()
        while step := step >> 1:
            beyond = place + step
            if beyond < size and tree[beyond] <= total:
                place = beyond
                total -= tree[beyond]
        return place
