"""Running sums over a list that grows at its end and changes anywhere: every operation takes a logarithm of its length."""


class FenwickTree:
    __slots__ = ("_tree",)

    def __init__(self) -> None:
        self._tree = [0]

    def __len__(self) -> int:
        return len(self._tree) - 1

    def append_number(self, value: int) -> None:
        """Add one more number at the end."""
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

    def sum_before(self, position: int) -> int:
        total, index = 0, position
        while index:
            total += self._tree[index]
            index &= index - 1
        return total

    def sum_between(self, first: int, end: int) -> int:
        """The sum of the numbers from `first` up to, but not including, `end`."""
        return self.sum_before(end) - self.sum_before(first)
