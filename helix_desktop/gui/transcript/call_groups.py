"""Groups of consecutive tool calls; finished, successful ones are collapsed into one line."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field

from helix_desktop.engine.facts import ToolReturned
from helix_desktop.fast_dataclass import dataclass

SMALLEST = 3  # Finished calls are collapsed into one line if there are at least this many in a row.


@dataclass(slots=True)
class CallGroup:
    """The calls from `first` to `last`, with the reasoning between them. `seconds`: the calls' total duration."""

    first: int
    last: int
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    opened: bool = False
    tools: Counter[str] = field(default_factory=Counter)  # The finished calls of each tool.
    collapsible_items: set[int] = field(default_factory=set)  # Items a collapsed group may hide.

    @property
    def is_collapsible(self) -> bool:
        """Whether enough calls are finished to collapse the group into a line."""
        return self.done >= SMALLEST

    def hides_item(self, index: int) -> bool:
        """Whether a collapsed group hides the item. The first item stays visible with the group's line."""
        return self.is_collapsible and not self.opened and index != self.first and index in self.collapsible_items


@dataclass(slots=True)
class CallGroups:
    """Only the last group can grow. Methods return the items that must be redrawn."""

    all: list[CallGroup] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)
    _closed: bool = True

    def group_of_item(self, index: int) -> CallGroup | None:
        at = bisect_right(self._firsts, index) - 1
        return self.all[at] if at >= 0 and self.all[at].last >= index else None

    def group_headed_by(self, index: int) -> CallGroup | None:
        group = self.group_of_item(index)
        return group if group is not None and group.first == index and group.is_collapsible else None

    def add_item_to_last_group(self, index: int, *, collapsible: bool) -> None:
        """Adds an item to a group. `collapsible`: reasoning, which is of no use without its calls."""
        if self._closed or self.all[-1].last != index - 1:
            self.all.append(CallGroup(index, index))
            self._firsts.append(index)
            self._closed = False
        group = self.all[-1]
        group.last = index
        if collapsible:
            group.collapsible_items.add(index)

    def close_last_group(self) -> None:
        self._closed = True

    def add_result_and_list_items_to_redraw(self, index: int, tool: str, result: ToolReturned) -> Iterable[int]:
        if (group := self.group_of_item(index)) is None:
            return ()
        before = group.is_collapsible
        group.seconds += result.seconds
        group.tools[tool] += 1
        if result.ok:
            group.done += 1
            group.collapsible_items.add(index)
        else:
            group.failed += 1
        return range(group.first, group.last + 1) if group.is_collapsible and not before else (group.first,)

    def is_in_collapsed_group(self, index: int) -> bool:
        group = self.group_of_item(index)
        return group is not None and group.hides_item(index)

    def collapsed_items_from(self, start: int) -> Iterator[int]:
        at = max(bisect_right(self._firsts, start) - 1, 0)
        for group in self.all[at:]:
            if group.is_collapsible and not group.opened:
                yield from (index for index in group.collapsible_items if index >= start and index != group.first)
