"""Hides calls of the recall tools, and the reasoning before them, from the replies the client sees.

A filter takes the events of one reply, or of several in a row, and returns the client's
bytes: one uninterrupted message. If nothing is hidden, these are the bytes that came.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from helix_desktop.json_values import number_at, object_at
from helix_desktop.protocols.gateway_message import Json

HIDDEN_TOOLS = frozenset({"recall_cached_content", "search_cached_content", "recall_history"})


class HiddenCallFilter(ABC):
    """Takes calls of the recall tools out of a reply on its way to the agent.

    These tools fetch what was left out of the agent's request. The gateway offers them to
    the model and answers their calls itself, so the agent, its client, knows nothing of them.

    `hold`: keep reasoning back until it is known whether a hidden call follows.
    """

    def __init__(self, *, hold: bool) -> None:
        self.holds_reasoning = hold
        self.replies_before = 0
        self.hidden_count = 0  # Calls in this reply that the client does not see.
        self.visible_count = 0  # Calls in this reply that the client must answer.
        self.any_hidden = False
        self.shown_count = 0  # Blocks or items the client has seen so far.
        self.output_tokens_before = 0  # Output tokens of all replies before this one.
        self._held_events: list[tuple[bytes, Json]] = []

    def continue_in_next_reply(self, output_tokens: int) -> None:
        """Let the next reply continue this one, which had only hidden calls."""
        self.replies_before += 1
        self.output_tokens_before += output_tokens
        self.reset_for_retry()

    def reset_for_retry(self) -> None:
        """Start the reply again, since it broke off before the agent saw any of it."""
        self.hidden_count = 0
        self.visible_count = 0
        self._held_events = []

    @property
    def has_only_hidden_calls(self) -> bool:
        """Whether the reply has only hidden calls, so that the gateway continues it."""
        return self.hidden_count > 0 and self.visible_count == 0

    def count_and_check_hidden(self, called_tool: str) -> bool:
        """Count a call, and return whether it is hidden. Ask exactly once for every call of a reply."""
        self.count_call(called_tool)
        return called_tool in HIDDEN_TOOLS

    def count_call(self, called_tool: str) -> None:
        if called_tool in HIDDEN_TOOLS:
            self.hidden_count += 1
            self.any_hidden = True
        else:
            self.visible_count += 1

    @abstractmethod
    def filter_event(self, raw: bytes, event: Json | None) -> bytes:
        """Return the bytes that the client gets for an event, which may be none."""

    @abstractmethod
    def merge_whole_replies(self, values: Sequence[Mapping[str, Json]]) -> Json:
        """Merge replies that came without a stream."""


class NumberedCallFilter(HiddenCallFilter):
    """For protocols that number a reply's parts (blocks or items). The client's numbers skip
    hidden ones.
    """

    index_name: ClassVar[str]

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        # The number under which the client sees a part, by the provider's. None: it is hidden.
        self._numbers: dict[int, int | None] = {}
        self._held_parts: set[int] = set()  # Reasoning whose events are held back.

    def reset_for_retry(self) -> None:
        super().reset_for_retry()
        self._numbers = {}
        self._held_parts = set()

    def begin_reply_part(self, index: int, *, thinks: bool, called_tool: str | None) -> bytes:
        """Number a part, and return what was held back before it, if the client may see it now.
        `called_tool`: the tool that the part calls.

        Reasoning waits for the part that follows it. It is left out if this is a hidden call,
        unless the client must answer another call of this reply: then the provider wants the
        reply's reasoning back with the answer. Anything else lets it through.
        """
        if thinks and self.replies_before and self.shown_count:
            # In the client's message, this would be reasoning behind an earlier reply's answer.
            self._numbers[index] = None
            return b""
        if thinks and self.holds_reasoning:
            self._held_parts.add(index)
            return b""
        is_hidden = called_tool is not None and self.count_and_check_hidden(called_tool)
        if is_hidden and not self.visible_count:
            self._drop_held_events()
        # The reasoning before this part is numbered first, so it keeps its place.
        released = self.release_held_events()
        self._assign_number(index, hidden=is_hidden)
        return released

    def _drop_held_events(self) -> None:
        """Hide the reasoning that was held back, as it led to a hidden call."""
        for _, event in self._held_events:
            self._numbers[number_at(event, self.index_name)] = None
        self._held_events = []
        self._held_parts = set()

    def _assign_number(self, index: int, *, hidden: bool = False) -> None:
        if hidden:
            self._numbers[index] = None
            return
        self._numbers[index] = self.shown_count
        self.shown_count += 1

    def hold_or_show_event(self, raw: bytes, event: Mapping[str, Json], index: int) -> bytes:
        """Return a part's event for the client, or nothing while the part is held back."""
        if index in self._held_parts:
            self._held_events.append((raw, event))
            return b""
        return self._show_part_event(raw, event, index)

    def release_held_events(self) -> bytes:
        """Return all events that were held back, as the client gets them now."""
        held_events = self._held_events
        self._held_events = []
        self._held_parts = set()
        shown_events: list[bytes] = []
        for raw, event in held_events:
            index = number_at(event, self.index_name)
            # A part gets its number with the first of its events.
            if index not in self._numbers:
                self._assign_number(index)
            shown_events.append(self._show_part_event(raw, event, index))
        return b"".join(shown_events)

    def _show_part_event(self, raw: bytes, event: Mapping[str, Json], index: int) -> bytes:
        """Return a part's event with the client's number, or nothing for a hidden part."""
        shown_index = self._numbers.get(index, index)
        if shown_index is None:
            return b""
        return self.renumber_event(raw, event, index, shown_index)

    @abstractmethod
    def renumber_event(
        self, raw: bytes, event: Mapping[str, Json], index: int, shown_index: int
    ) -> bytes:
        """Return an event of a visible part with the client's number."""


def add_earlier_output(
    usage: Mapping[str, Json], earlier: int, field: str, input_field: str = ""
) -> dict[str, Json]:
    """Return a usage (a reply's token counts) with the output of earlier replies added to it.

    `field` is where the usage has its output. `input_field` is where it has its input, given
    if it has a total of both, too.
    """
    output_of_all = number_at(usage, field) + earlier
    usage_of_all = dict(usage)
    usage_of_all[field] = output_of_all
    if input_field:
        usage_of_all["total_tokens"] = number_at(usage, input_field) + output_of_all
    return usage_of_all


def sum_output(
    values: Sequence[Mapping[str, Json]], field: str, input_field: str = ""
) -> dict[str, Json]:
    """Return the usage of the last reply, with the output of all of them."""
    earlier_output = 0
    for value in values[:-1]:
        earlier_output += number_at(value, "usage", field)
    last_usage = object_at(values[-1], "usage")
    return add_earlier_output(last_usage, earlier_output, field, input_field)
