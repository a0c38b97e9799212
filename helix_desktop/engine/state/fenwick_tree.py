"""Running sums over a list whose numbers change anywhere. Every operation takes
logarithmic time.
"""

from array import array
from collections.abc import Iterable
from itertools import accumulate


class FenwickTree:
    """Each node holds the sum of a run of numbers that ends with its own.

    The nodes count from 1. The lowest bit of a node's index says how many numbers it sums:
    node 12 (binary 1100) those at 9 to 12. `index & (index - 1)` removes this bit, which gives
    the node whose run ends where this one begins.
    """

    __slots__ = ("_tree",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        sums = list(accumulate(numbers, initial=0))
        self._tree = array("q", [0])
        for index in range(1, len(sums)):
            run_start = index & (index - 1)
            self._tree.append(sums[index] - sums[run_start])

    def __len__(self) -> int:
        return len(self._tree) - 1

    def append_number(self, number: int) -> None:
        index = len(self._tree)
        run_start = index & (index - 1)
        total = number
        inner_node = index - 1
        while inner_node > run_start:
            total += self._tree[inner_node]
            inner_node &= inner_node - 1
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
        total = 0
        index = position
        while index > 0:
            total += self._tree[index]
            index &= index - 1
        return total

    def sum_between(self, first: int, end: int) -> int:
        """Return the sum from `first` up to `end`, exclusive."""
        return self.sum_before(end) - self.sum_before(first)

    def last_position_within(self, total: int) -> int:
        """Return the last position before which the numbers (none negative) add up to
        at most `total`.
        """
        remaining = total
        position = 0
        # Each power of two is added if the numbers that it skips still fit in the total.
        step = 1 << len(self._tree).bit_length()
        while step:
            node = position + step
            if node < len(self._tree) and self._tree[node] <= remaining:
                position = node
                remaining -= self._tree[node]
            step //= 2
        return position
