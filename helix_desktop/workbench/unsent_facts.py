"""Counts the facts that are on no other machine yet: the tasks of workers write only as much as a bound leaves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from helix_desktop.workbench.conversation_fences import ConversationFences

MOST_UNSENT_FACTS = 5_000  # With more, no turn begins while the store answers. Tasks of workers never write more.
ENDING_FACTS = 4  # This many facts are left free for each task: a turn that is stopped records its end at once.
_LOOK_SECONDS = 0.05


class UnsentFacts:
    """Never fewer than there are: those counted last, those `written` since, and those of the `_line`, the first one first, that
    waits or writes. For those that the store does not take, of conversations without a worker (`_stuck`), nobody waits.
    """

    def __init__(self, fences: ConversationFences) -> None:
        self._fences = fences
        self.written = self._written_at_count = self._stuck = 0
        self._counted: Mapping[str, int] = {}
        self._line: dict[object, int] = {}

    def set_unsent_counts(self, unsent: Mapping[str, int], written: int, *, was_sent: bool) -> None:
        """So many facts of each conversation were unsent when `written` had been. `was_sent`: after all was sent that could be."""
        if was_sent:
            same = unsent.items() & self._counted.items()
            self._stuck = sum(count for name, count in same if self._fences.find_fence(name) is None)
        if written >= self._written_at_count:
            self._counted, self._written_at_count = unsent, written

    def has_room(self, place: object = None) -> bool:
        """For the line up to `place`, or all of it. What is larger than the bound goes alone."""
        line = list(self._line)
        ahead = line[: line.index(place) + 1] if place else line
        unsent = sum(self._counted.values()) - self._stuck + self.written - self._written_at_count
        most = MOST_UNSENT_FACTS - ENDING_FACTS * len(self._fences.held)
        return unsent + sum(map(self._line.__getitem__, ahead)) <= most or (unsent <= 0 and ahead == line[:1])

    @asynccontextmanager
    async def hold_room(
        self, count: int, may_wait: Callable[[], bool], send: Callable[[], object]
    ) -> AsyncIterator[None]:
        """So many facts are written within. Waits for room, in turn, while `may_wait`; `send` asks for what is unsent to be sent."""
        place = object()
        self._line[place] = count
        try:
            while may_wait() and not self.has_room(place):
                send()
                await asyncio.sleep(_LOOK_SECONDS)
            yield
        finally:
            del self._line[place]
            self.written += count
