"""The heights of a long column of items, with the place of any of them in O(log n): a Fenwick tree.

Heights are whole pixels. An item that is hidden has the height 0 and is never found by its place.
"""

from collections.abc import Iterable
from itertools import accumulate


class ItemHeights:
    """`top(i)` is where item i begins; `at(y)` is the item that covers y."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        sums = [0, *accumulate(self._heights)]
        self._tree = [0, *(sums[i] - sums[i & (i - 1)] for i in range(1, len(sums)))]

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    @property
    def sum_of_heights(self) -> int:
        return self.height_before(len(self._heights))

    def height_before(self, index: int) -> int:
        total = 0
        while index > 0:
            total += self._tree[index]
            index &= index - 1
        return total

    def set_item_height(self, index: int, height: int) -> int:
        """Give an item its height; returns by how much it changed."""
        change = height - self._heights[index]
        if change:
            self._heights[index] = height
            place = index + 1
            while place < len(self._tree):
                self._tree[place] += change
                place += place & -place
        return change

    def append_item_height(self, height: int) -> None:
        place = len(self._tree)
        total = height
        below = place - 1
        stop = place & (place - 1)
        while below > stop:
            total += self._tree[below]
            below &= below - 1
        self._heights.append(height)
        self._tree.append(total)

    def truncate_items(self, length: int) -> None:
        """Removes all items from `length` on. A node of the tree covers only earlier items, so no other changes."""
        del self._heights[length:]
        del self._tree[length + 1 :]

    def item_covering(self, y: int) -> int:
        """The item that covers `y`; the first or the last one outside. -1 without items."""
        if not self._heights:
            return -1
        place = 0
        rest = max(0, y)
        step = 1 << (len(self._heights).bit_length() - 1)
        while step:
            beyond = place + step
            if beyond < len(self._tree) and self._tree[beyond] <= rest:
                place = beyond
                rest -= self._tree[beyond]
            step >>= 1
        return self._last_visible_item() if place >= len(self._heights) else place

    def _last_visible_item(self) -> int:
        index = len(self._heights) - 1
        while index > 0 and not self._heights[index]:
            index -= 1
        return index
