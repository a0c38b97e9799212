"""Calls that follow one another, as groups: those that are done and went well stand behind one line; all others stay in sight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import field

from helix_desktop.values import dataclass

SMALLEST = 3  # calls that are done before they become one line


@dataclass(slots=True)
class Group:
    """The items from `first` to `last`: calls, and the reasoning between them. `seconds`: how long the calls took."""

    first: int
    last: int
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    opened: bool = False
    quiet: set[int] = field(default_factory=set)  # the items that need not be seen

    @property
    def one_line(self) -> bool:
        """Whether there is enough of it to stand behind a line."""
        return self.done >= SMALLEST

    def hides(self, index: int) -> bool:
        """The first item stays: the line of the group stands on it."""
        return self.one_line and not self.opened and index != self.first and index in self.quiet


@dataclass(slots=True)
class Groups:
    """Only the last one grows. Every method returns the items that look different now."""

    all: list[Group] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)
    _closed: bool = True

    def of(self, index: int) -> Group | None:
        at = bisect_right(self._firsts, index) - 1
        return self.all[at] if at >= 0 and self.all[at].last >= index else None

    def put(self, index: int, *, quiet: bool) -> Iterable[int]:
        """One more item of a group. `quiet`: reasoning, which is of no use without its calls."""
        if self._closed or self.all[-1].last != index - 1:
            self.all.append(Group(index, index))
            self._firsts.append(index)
            self._closed = False
        group = self.all[-1]
        group.last = index
        if quiet:
            group.quiet.add(index)
        return ()

    def end(self) -> None:
        """What comes next stands by itself."""
        self._closed = True

    def returned(self, index: int, *, ok: bool, seconds: float) -> Iterable[int]:
        """A call has its result."""
        group = self.of(index)
        if group is None:
            return ()
        before = group.one_line
        group.seconds += seconds
        if ok:
            group.done += 1
            group.quiet.add(index)
        else:
            group.failed += 1
        return range(group.first, group.last + 1) if group.one_line and not before else (group.first,)

    def hidden(self, index: int) -> bool:
        group = self.of(index)
        return group is not None and group.hides(index)

    def all_hidden(self, start: int) -> Iterator[int]:
        """Every item from `start` on that is hidden."""
        at = max(bisect_right(self._firsts, start) - 1, 0)
        for group in self.all[at:]:
            if group.one_line and not group.opened:
                yield from (index for index in group.quiet if index >= start and index != group.first)
