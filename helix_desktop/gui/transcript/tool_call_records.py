"""What is known of each tool call in the chat, with one record for each item that shows one."""

import time
from dataclasses import field

from helix_desktop.engine.facts import Decided, ToolCall, ToolReturned
from helix_desktop.engine.session_events import CallStage
from helix_desktop.fast_dataclass import dataclass

SHOWN_LIVE = 64 * 1024  # So many of the last characters that a running command printed are shown.
# A call that seems to run for longer was asked for before the computer's clock was set.
_LONGEST_CALL_SECONDS = 86_400.0


def is_output_whole_in_fact(returned: ToolReturned) -> bool:
    """Whether the fact holds all of a short output, so that nothing needs to be fetched."""
    return len(returned.head.encode("utf-8", "replace")) >= returned.output.size


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """What a call returned, and the number of the fact that says so."""

    seq: int
    returned: ToolReturned


@dataclass(slots=True)
class ToolCallRecord:
    """`results`: one for each branch. `began`: when it started, after it waited for the
    user or for earlier calls.
    """

    results: tuple[RecordedResult, ...] = ()
    decided: Decided | None = None
    stage: CallStage = CallStage.RUNNING
    began: float | None = None
    printed: str = ""


@dataclass(slots=True)
class ToolCallRecords:
    """Finds calls by id only in the last reply, because models reuse ids."""

    _by_item: dict[int, ToolCallRecord] = field(default_factory=dict)
    _open: dict[str, int] = field(
        default_factory=dict
    )  # The item of each running call, by the call's id.
    # The item of each call of the last reply that has returned, by the call's id.
    _returned: dict[str, int] = field(default_factory=dict)
    # The item of each call that an interruption ended, until the turn goes on with it.
    _ended: dict[str, int] = field(default_factory=dict)
    _by_question: dict[int, str] = field(default_factory=dict)  # The call id of each open question.
    item_by_result: dict[int, int] = field(default_factory=dict)

    @property
    def open_items(self) -> list[int]:
        return list(self._open.values())

    def record_of_chat_item(self, index: int) -> ToolCallRecord:
        return self._by_item.get(index) or ToolCallRecord()

    def is_open(self, call: ToolCall, index: int) -> bool:
        return self._open.get(call.id) == index

    def is_asked_about(self, call: ToolCall) -> bool:
        return call.id in self._by_question.values()

    def record_running_call(self, call: ToolCall, index: int) -> None:
        self._open[call.id] = index
        self._ended.pop(call.id, None)  # Some providers use an id again in a later reply.

    def forget_returned_calls_of_last_reply(self) -> None:
        self._returned.clear()

    def mark_running_calls_ended(self) -> list[int]:
        """Marks calls as ended, because one that has not returned by now never will."""
        stopped = self.open_items
        for index in stopped:
            self._ensure_record(index).printed = ""
        self._ended.update(self._open)
        self._open.clear()
        return stopped

    def add_result(self, index: int, result: RecordedResult) -> None:
        record = self._ensure_record(index)
        record.results += (result,)
        record.printed = ""
        call_id = result.returned.call
        if self._open.get(call_id) == index:
            del self._open[call_id]
        self._returned[call_id] = index
        self.item_by_result[result.seq] = index

    def set_decision_of_call(self, decided: Decided) -> tuple[int, ...]:
        index = self._open.get(decided.call, self._returned.get(decided.call))
        if index is None:
            return ()
        self._ensure_record(index).decided = decided
        return (index,)

    def append_output(self, call: str, text: str) -> tuple[int, ...]:
        changed = self._items_of_open_call(call)
        for index in changed:
            record = self._ensure_record(index)
            all_printed = record.printed + text
            record.printed = all_printed[-SHOWN_LIVE:]
        return changed

    def set_call_of_question(self, number: int, call: str) -> tuple[int, ...]:
        self._by_question[number] = call
        self._reopen_ended_call(call)
        return self._items_of_open_call(call)

    def _reopen_ended_call(self, call: str) -> None:
        """A continued turn asks again about a call that was interrupted, without a new reply."""
        index = self._ended.pop(call, None)
        if index is not None:
            self._open[call] = index

    def mark_call_running_after_answer(self, number: int, now: float) -> tuple[int, ...]:
        """Starts the call's time if it was allowed."""
        return self.set_stage(self._by_question.pop(number, ""), CallStage.RUNNING, now)

    def set_stage(self, call: str, stage: CallStage, now: float) -> tuple[int, ...]:
        """Sets that a call waits for earlier ones in its reply, starts, or has ended."""
        for index in self._items_of_open_call(call):
            record = self._ensure_record(index)
            record.stage = stage
            if stage is CallStage.RUNNING:
                record.began = now
        return self._items_of_open_call(call)

    def begin_of_running_call(self, index: int, reply_time: float) -> float:
        """Return when a call began, by the monotonic clock. Of one that ran before it was
        shown, only the date of its reply is known, which is looked at once.
        """
        record = self._ensure_record(index)
        if record.began is None:
            seconds_running = time.time() - reply_time
            if not 0 <= seconds_running <= _LONGEST_CALL_SECONDS:
                seconds_running = 0.0  # The computer's clock was set meanwhile.
            record.began = time.monotonic() - seconds_running
        return record.began

    def _items_of_open_call(self, call: str) -> tuple[int, ...]:
        if call not in self._open:
            return ()
        return (self._open[call],)

    def _ensure_record(self, index: int) -> ToolCallRecord:
        return self._by_item.setdefault(index, ToolCallRecord())
