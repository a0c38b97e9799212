"""Hides calls of the recall tools, and the reasoning that led to them, from the replies the client sees.

A veil is fed one event after the other of one or several replies that follow each other, and gives the bytes
the client gets: one uninterrupted message. Where nothing is hidden these are the bytes that came.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from helix_desktop.json_values import number_at, object_at
from helix_desktop.protocols.wire_message import Json

HIDDEN_TOOLS = frozenset({"recall_cached_content", "search_cached_content", "recall_history"})


class HiddenCallFilter(ABC):
    """`holds_reasoning`: reasoning is held back until it is known whether a hidden call follows."""

    def __init__(self, *, hold: bool) -> None:
        self.holds_reasoning = hold
        self.replies_before = 0
        self.hidden_count = 0  # Calls in this reply that the client does not see.
        self.visible_count = 0  # Calls in this reply that the client must answer.
        self.any_hidden = False
        self.shown_count = 0  # Blocks or items that the client has seen so far.
        self.output_tokens_before = 0  # Output tokens of all replies before this one.
        self._held_events: list[tuple[bytes, Json]] = []

    def count_and_reset_reply(self, output_tokens: int) -> None:
        """The reply so far came to nothing but hidden calls; the next one goes on in its place."""
        self.replies_before += 1
        self.output_tokens_before += output_tokens
        self.reset_for_retry()

    def reset_for_retry(self) -> None:
        """The reply broke off before the agent saw anything of it; it comes once more."""
        self.hidden_count = self.visible_count = 0
        self._held_events = []

    @property
    def has_only_hidden_calls(self) -> bool:
        """Whether the reply only has hidden calls, so that the gateway continues it."""
        return self.hidden_count > 0 and self.visible_count == 0

    def count_and_check_hidden(self, called_tool: str) -> bool:
        """Whether the client does not see a call of this tool. To be asked once for every call of a reply."""
        ours = called_tool in HIDDEN_TOOLS
        self.hidden_count += ours
        self.any_hidden |= ours
        self.visible_count += not ours
        return ours

    @abstractmethod
    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        """The bytes for the client."""

    @abstractmethod
    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        """Replies that came without a stream, as one."""


class NumberedCallFilter(HiddenCallFilter):
    """For protocols whose events number the blocks or items of a reply: the client's numbers leave out what is hidden."""

    index_name: ClassVar[str]

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._numbers: dict[int, int | None] = {}
        self._holding: int | None = None

    def reset_for_retry(self) -> None:
        super().reset_for_retry()
        self._numbers, self._holding = {}, None

    def begin_reply_part(self, index: int, *, thinks: bool, call: str | None) -> bytes:
        """Give a part its number; `call`: the tool it calls. What was held goes first, unless a hidden call follows it."""
        if thinks and self.replies_before and self.shown_count:
            self._numbers[index] = None
            return b""
        if thinks and self.holds_reasoning:
            out = self.release_held_events()
            self._holding = index
            return out
        ours = call is not None and self.count_and_check_hidden(call)
        if ours and not self.visible_count:
            for _, event in self._held_events:
                self._numbers[number_at(event, self.index_name)] = None
            self._held_events, self._holding = [], None
        out = self.release_held_events()
        self._assign_number(index, hidden=ours)
        return out

    def _assign_number(self, index: int, *, hidden: bool = False) -> None:
        self._numbers[index] = None if hidden else self.shown_count
        self.shown_count += not hidden

    def hold_or_show_event(self, raw: bytes, event: Mapping[str, Json], index: int) -> bytes:
        """An event of a part: nothing yet while the part is held."""
        if self._holding == index:
            self._held_events.append((raw, event))
            return b""
        return self._show_part_event(raw, event, index)

    def release_held_events(self) -> bytes:
        held, self._held_events, self._holding = self._held_events, [], None
        if held and (index := number_at(held[0][1], self.index_name)) not in self._numbers:
            self._assign_number(index)
        return b"".join(self._show_part_event(raw, event, number_at(event, self.index_name)) for raw, event in held)

    def _show_part_event(self, raw: bytes, event: Mapping[str, Json], index: int) -> bytes:
        shown = self._numbers.get(index, index)
        return b"" if shown is None else self.renumber_event(raw, event, index, shown)

    @abstractmethod
    def renumber_event(self, raw: bytes, event: Mapping[str, Json], index: int, shown: int) -> bytes:
        """An event of a part the client sees, with its number there."""


def add_earlier_output(usage: Mapping[str, Json], earlier: int, output: str, read: str = "") -> dict[str, Json]:
    """The figures of a reply with what the replies before it wrote. `read`: the figure of the input, where a total is told."""
    told = {**usage, output: number_at(usage, output) + earlier}
    return {**told, "total_tokens": number_at(told, read) + told[output]} if read else told


def sum_output(values: Sequence[Mapping[str, Json]], output: str, read: str = "") -> dict[str, Json]:
    """The figures of the last of these replies with what all of them wrote."""
    earlier = sum(number_at(value, "usage", output) for value in values[:-1])
    return add_earlier_output(object_at(values[-1], "usage"), earlier, output, read)
