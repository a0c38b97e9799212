"""The heights of a long column of items, which finds the place of any item in O(log n).

Heights are whole pixels. A hidden item has the height 0 and is never found by its place.
"""

from collections.abc import Iterable, Iterator

from helix_desktop.engine.state.fenwick_tree import FenwickTree


class ItemHeights:
    """`total_height_before(i)` is the top of item i. `item_covering(y)` is the item at y."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        self._sums = FenwickTree(self._heights)

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    @property
    def sum_of_heights(self) -> int:
        return self.total_height_before(len(self._heights))

    def total_height_before(self, index: int) -> int:
        return self._sums.sum_before(index)

    def set_item_height(self, index: int, height: int) -> None:
        change = height - self._heights[index]
        if change:
            self._heights[index] = height
            self._sums.change_number(index, change)

    def append_item_height(self, height: int) -> None:
        self._heights.append(height)
        self._sums.append_number(height)

    def truncate_items(self, length: int) -> None:
        del self._heights[length:]
        self._sums.truncate_numbers(length)

    def item_covering(self, y: int) -> int:
        """Returns the item that covers `y`, or the first or last one if `y` is outside.
        -1 without items.
        """
        index = self._sums.last_position_within(max(0, y))
        if index >= len(self._heights):
            return self._last_visible_item()
        return index

    def visible_items(self, y: int, bottom: int) -> Iterator[int]:
        """Yields each item that is not hidden, from the one that covers `y` to the last
        above `bottom`.
        """
        heights = self._heights
        index = self.item_covering(y)
        top = self.total_height_before(index)
        while 0 <= index < len(heights) and top < bottom:
            if heights[index]:
                yield index
            top += heights[index]
            index += 1

    def _last_visible_item(self) -> int:
        index = len(self._heights) - 1
        while index > 0 and not self._heights[index]:
            index -= 1
        return index
