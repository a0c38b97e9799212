"""Groups of consecutive tool calls, or of an agent's additions, are collapsed into one line."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import field

from helix_desktop.engine.facts import ToolReturned
from helix_desktop.fast_dataclass import dataclass

SMALLEST_OF_ADDITIONS = 2
SMALLEST = 3  # Finished calls are collapsed into one line if there are at least this many in a row.


@dataclass(slots=True)
class CallGroup:
    """The calls from `first` to `last`, with the reasoning between them, or an agent's
    additions.
    """

    first: int
    last: int
    done: int = 0
    failed: int = 0
    seconds: float = 0.0  # The calls' total duration.
    opened: bool = False
    has_additions: bool = False
    tools: Counter[str] = field(default_factory=Counter)  # Finished calls, or additions, by name.
    collapsible_items: set[int] = field(default_factory=set)  # Items a collapsed group may hide.

    @property
    def is_collapsible(self) -> bool:
        """Whether there are enough finished calls or additions for a line."""
        if self.has_additions:
            return self.done >= SMALLEST_OF_ADDITIONS
        return self.done >= SMALLEST

    @property
    def collapsed_items(self) -> AbstractSet[int]:
        """The items that the group's line replaces. It is above the first item."""
        if self.opened or not self.is_collapsible:
            return frozenset()
        return self.collapsible_items


@dataclass(slots=True)
class CallGroups:
    """Only the last group can grow. Methods return the items that must be redrawn."""

    all: list[CallGroup] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)
    is_last_closed: bool = True

    def group_of_item(self, index: int) -> CallGroup | None:
        groups_before = bisect_right(self._firsts, index)
        if groups_before == 0:
            return None
        group = self.all[groups_before - 1]
        if group.last < index:
            return None
        return group

    def group_headed_by(self, index: int) -> CallGroup | None:
        group = self.group_of_item(index)
        if group is None or group.first != index or not group.is_collapsible:
            return None
        return group

    def add_addition(self, index: int, name: str) -> int:
        """Adds what an agent added to a group. Returns the group's first item."""
        self.add_item_to_last_group(index, collapsible=True, added=True)
        self.all[-1].done += 1
        self.all[-1].tools[name] += 1
        return self.all[-1].first

    def add_item_to_last_group(self, index: int, *, collapsible: bool, added: bool = False) -> None:
        """Adds an item to the last group, or to a new one if that has ended.

        `collapsible`: reasoning, useless without its calls. `added`: an agent added it to a message.
        """
        if not self._can_last_group_take(index, added=added):
            self.all.append(CallGroup(index, index, has_additions=added))
            self._firsts.append(index)
            self.is_last_closed = False
        group = self.all[-1]
        group.last = index
        if collapsible:
            group.collapsible_items.add(index)

    def _can_last_group_take(self, index: int, *, added: bool) -> bool:
        if not self.all or self.is_last_closed:
            return False
        group = self.all[-1]
        follows_group = group.last == index - 1
        return follows_group and group.has_additions is added

    def add_result_and_list_items_to_redraw(
        self, index: int, tool: str, result: ToolReturned
    ) -> Iterable[int]:
        """Counts the result of the call at `index` for its group, and returns the items
        that look different now. A failed call keeps a line of its own, so that nobody
        misses it.
        """
        group = self.group_of_item(index)
        if group is None:
            return ()
        was_collapsible = group.is_collapsible
        group.seconds += result.seconds
        group.tools[tool] += 1
        if result.ok:
            group.done += 1
            group.collapsible_items.add(index)
        else:
            group.failed += 1
        # From now on, one line stands for all of its items.
        if group.is_collapsible and not was_collapsible:
            return range(group.first, group.last + 1)
        return (group.first,)

    def is_in_collapsed_group(self, index: int) -> bool:
        group = self.group_of_item(index)
        return group is not None and index != group.first and index in group.collapsed_items

    def collapsed_items_from(self, start: int) -> Iterator[int]:
        first_group = max(bisect_right(self._firsts, start) - 1, 0)
        for group in self.all[first_group:]:
            for index in group.collapsed_items:
                # The first item has the line of the group.
                if index >= start and index != group.first:
                    yield index
