"""Running sums over a list that changes at its end and anywhere else: every operation takes a logarithm of its length."""

from collections.abc import Iterable
from itertools import accumulate


class FenwickTree:
    __slots__ = ("_tree",)

    def __init__(self, values: Iterable[int] = ()) -> None:
        sums = list(accumulate(values, initial=0))
        self._tree = [0, *(sums[i] - sums[i & (i - 1)] for i in range(1, len(sums)))]

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
        """As many numbers as before, all of them 0."""
        self._tree = [0] * len(self._tree)

    def truncate_numbers(self, length: int) -> None:
        """Removes all numbers from `length` on. A node covers only earlier numbers, so no other changes."""
        del self._tree[length + 1 :]

    def sum_before(self, position: int) -> int:
        total, index = 0, position
        while index:
            total += self._tree[index]
            index &= index - 1
        return total

    def sum_between(self, first: int, end: int) -> int:
        """The sum of the numbers from `first` up to, but not including, `end`."""
        return self.sum_before(end) - self.sum_before(first)

    def last_position_within(self, total: int) -> int:
        """The last position before which the numbers, none below zero, sum up to no more than `total`."""
        place, step = 0, 1 << len(self).bit_length()
        while step := step >> 1:
            beyond = place + step
            if beyond < len(self._tree) and self._tree[beyond] <= total:
                place = beyond
                total -= self._tree[beyond]
        return place
